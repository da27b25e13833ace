// The networks of <graven/models.h> against torchvision's (tests/fixtures/make_models.py): names, order, dtypes and shapes of the state; outputs with
// weights that PyTorch wrote; initial values.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <string>

#include "tests/networks/fixture_values.h"

namespace graven::test {
namespace {

const std::string kFixtures = GRAVEN_SOURCE_DIR "/tests/fixtures/models/";

/// Of tests/fixtures/make_models.py.
models::ResNet narrow_resnet50() { return models::ResNet(models::ResNetBlock::bottleneck, {1, 2, 1, 1}, {.num_classes = 10, .stem_channels = 4}); }
models::MobileNetV2 narrow_mobilenet() {
  return models::MobileNetV2(
      {.num_classes = 10, .width_mult = 0.25, .inverted_residual_setting = {{1, 16, 1, 1}, {6, 24, 2, 2}, {4, 32, 2, 2}}, .round_nearest = 4});
}
models::VGG narrow_vgg() { return models::VGG({8, 0, 12, 0}, {.num_classes = 10, .batch_norm = true, .hidden_features = 16}); }

struct StateCase {
  std::string name;
  std::function<nn::ModuleBase()> make;
};
const StateCase kStates[] = {
    {"mlp", [] { return models::MLP(784, {256, 10}); }},
    {"resnet18", [] { return models::resnet18(); }},
    {"resnet34", [] { return models::resnet34(); }},
    {"resnet50", [] { return models::resnet50(); }},
    {"mobilenet_v2", [] { return models::MobileNetV2(); }},
    {"vgg16", [] { return models::vgg16({.hidden_features = 64}); }},
    {"style_transfer", [] { return models::TransformerNet(); }},
};

class State : public testing::TestWithParam<StateCase> {};
TEST_P(State, HasTorchvisionsNamesAndShapes) {
  std::ifstream file(kFixtures + GetParam().name + ".txt");
  ASSERT_TRUE(file);
  std::vector<std::string> expected, found;
  for (std::string line; std::getline(file, line);) expected.push_back(line);
  const nn::ModuleBase model = GetParam().make();
  for (const auto& [name, tensor] : model.state_dict()) {
    std::string line = name + " " + std::string(ir::name(tensor.dtype())) + " [";
    for (std::int64_t d = 0; d < tensor.dim(); ++d) line += (d ? "," : "") + std::to_string(tensor.size(d));
    found.push_back(line + "]");
  }
  EXPECT_EQ(found, expected);
}
INSTANTIATE_TEST_SUITE_P(All, State, testing::ValuesIn(kStates), [](const auto& info) { return info.param.name; });

struct OutputCase {
  std::string name;
  std::int64_t size;
  std::function<std::pair<nn::ModuleBase, std::function<Tensor(Tensor)>>()> make;
};
template <class M>
std::pair<nn::ModuleBase, std::function<Tensor(Tensor)>> callable(M model) {
  return {model, [model](Tensor x) { return model(x); }};
}
const OutputCase kOutputs[] = {
    {"resnet18", 64, [] { return callable(models::resnet18({.num_classes = 10, .stem_channels = 4})); }},
    {"resnet50", 64, [] { return callable(narrow_resnet50()); }},
    {"mobilenet_v2", 32, [] { return callable(narrow_mobilenet()); }},
    {"vgg16", 28, [] { return callable(narrow_vgg()); }},
    {"style_transfer", 24, [] { return callable(models::TransformerNet({.channels = 4})); }},
};

class Output : public testing::TestWithParam<OutputCase> {};
TEST_P(Output, WithWeightsOfPyTorchIsPyTorchs) {
  const OutputCase& c = GetParam();
  nn::StateDict state = nn::load(kFixtures + c.name + ".safetensors");
  Tensor expected;
  std::erase_if(state, [&](const auto& entry) {
    if (entry.first == "output") expected = entry.second;
    return entry.first == "output";
  });
  ASSERT_TRUE(expected.defined());
  auto [model, forward] = c.make();
  model.load_state_dict(state);
  model.eval();
  for (const DType dtype : {f32, f64}) {
    model.to(dtype);
    const Tensor images = from_data(values(4 * 3 * c.size * c.size, 1, 1.0), {4, 3, c.size, c.size}).to(f32).to(dtype);
    const std::vector<double> found = forward(images).detach().to(f64).contiguous().to_vector<double>();
    const std::vector<double> wanted = expected.to_vector<double>();
    ASSERT_EQ(found.size(), wanted.size());
    double largest = 0;
    for (const double w : wanted) largest = std::max(largest, std::abs(w));
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], wanted[i], (dtype == f32 ? 4e-6 : 1e-13) * largest) << ir::name(dtype) << " [" << i << "]";
  }
}
INSTANTIATE_TEST_SUITE_P(All, Output, testing::ValuesIn(kOutputs), [](const auto& info) { return info.param.name; });

struct Moments {
  double mean, deviation;
};
Moments moments(const Tensor& t) {
  const std::vector<double> v = t.detach().to(f64).contiguous().to_vector<double>();
  double sum = 0, squares = 0;
  for (const double x : v) sum += x, squares += x * x;
  const double n = static_cast<double>(v.size()), mean = sum / n;
  return {mean, std::sqrt(squares / n - mean * mean)};
}

/// The parameter of the name.
Tensor find(const nn::ModuleBase& model, const std::string& name) {
  for (const auto& [n, p] : model.state_dict())
    if (n == name) return p;
  throw std::runtime_error("no " + name);
}

TEST(InitialValues, AreTorchvisions) {
  manual_seed(0);
  const models::ResNet resnet = models::resnet18();
  // kaiming_normal_(fan_out, relu): deviation sqrt(2 / (out * 3 * 3)).
  const Moments conv = moments(find(resnet, "layer4.1.conv2.weight"));
  EXPECT_NEAR(conv.deviation, std::sqrt(2.0 / (512 * 9)), 1e-4);
  EXPECT_NEAR(conv.mean, 0, 1e-4);
  // nn.Linear's own: uniform in +-1/sqrt(512).
  EXPECT_NEAR(moments(find(resnet, "fc.weight")).deviation, 1 / std::sqrt(512.0 * 3), 1e-4);
  EXPECT_EQ(moments(find(resnet, "layer1.0.bn2.weight")).mean, 1);

  const models::ResNet zero = models::resnet18({.zero_init_residual = true, .stem_channels = 4});
  EXPECT_EQ(moments(find(zero, "layer1.0.bn2.weight")).mean, 0);
  EXPECT_EQ(moments(find(zero, "layer1.0.bn1.weight")).mean, 1);
  const models::ResNet zero50 = models::resnet50({.zero_init_residual = true, .stem_channels = 4});
  EXPECT_EQ(moments(find(zero50, "layer3.5.bn3.weight")).mean, 0);
  EXPECT_EQ(moments(find(zero50, "layer3.5.bn2.weight")).mean, 1);

  const models::MobileNetV2 mobilenet;
  EXPECT_NEAR(moments(find(mobilenet, "features.18.0.weight")).deviation, std::sqrt(2.0 / 1280), 1e-4);
  EXPECT_NEAR(moments(find(mobilenet, "classifier.1.weight")).deviation, 0.01, 1e-4);
  EXPECT_EQ(moments(find(mobilenet, "classifier.1.bias")).deviation, 0);
  const models::VGG vgg = narrow_vgg();
  EXPECT_EQ(moments(find(vgg, "features.0.bias")).deviation, 0);
}

TEST(Errors, NameTheArgument) {
  const auto message = [](const std::function<void()>& f) -> std::string {
    try {
      f();
    } catch (const UserError& e) {
      return e.what();
    }
    return "nothing";
  };
  EXPECT_NE(message([] { models::MLP(4, {}); }).find("hidden_channels"), std::string::npos);
  EXPECT_NE(message([] { models::resnet18({.groups = 2}); }).find("basic blocks only support groups = 1"), std::string::npos);
  EXPECT_NE(message([] { models::resnet50({.width_per_group = 0}); }).find("width_per_group"), std::string::npos);
  EXPECT_NE(message([] { models::MobileNetV2({.width_mult = 0}); }).find("width_mult"), std::string::npos);
  EXPECT_NE(message([] { models::MobileNetV2({.inverted_residual_setting = {{6, 24, 1, 3}}}); }).find("stride must be 1 or 2"), std::string::npos);
  EXPECT_NE(message([] { models::TransformerNet({.channels = 0}); }).find("channels must be positive"), std::string::npos);
  EXPECT_NE(message([] { models::VGG({0}); }).find("one convolution"), std::string::npos);
}

}  // namespace
}  // namespace graven::test
