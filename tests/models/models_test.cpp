// The networks of <graven/models.h> against torchvision's and transformers' (tests/fixtures/make_models.py): names,
// order, dtypes and shapes of the state; outputs with weights that PyTorch wrote; initial values.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <string>

#include "tests/networks/fixture_values.h"
#include "tests/tolerances.h"

namespace graven::test {
namespace {

const std::string kFixtures = GRAVEN_SOURCE_DIR "/tests/fixtures/models/";

/// Of tests/fixtures/make_models.py.
models::ResNet narrow_resnet50() {
  return models::ResNet(models::ResNetBlock::bottleneck, {1, 2, 1, 1}, {.num_classes = 10, .stem_channels = 4});
}
models::MobileNetV2 narrow_mobilenet() {
  return models::MobileNetV2({.num_classes = 10,
                              .width_mult = 0.25,
                              .inverted_residual_setting = {{1, 16, 1, 1}, {6, 24, 2, 2}, {4, 32, 2, 2}},
                              .round_nearest = 4});
}
models::VGG narrow_vgg() {
  return models::VGG({8, 0, 12, 0}, {.num_classes = 10, .batch_norm = true, .hidden_features = 16});
}
models::GPT2LMHeadModel narrow_gpt2(std::int64_t layers = 2, std::int64_t heads = 2, std::int64_t size = 16) {
  return models::GPT2LMHeadModel(
      {.n_layer = layers, .n_head = heads, .n_embd = size, .n_positions = 16, .vocab_size = 48});
}
models::BertModel narrow_bert(std::int64_t layers = 2, std::int64_t heads = 2, std::int64_t size = 16) {
  return models::BertModel({.vocab_size = 48,
                            .hidden_size = size,
                            .num_hidden_layers = layers,
                            .num_attention_heads = heads,
                            .intermediate_size = 4 * size,
                            .max_position_embeddings = 16});
}
models::VisionTransformer narrow_vit() {
  return models::VisionTransformer({.image_size = 32,
                                    .patch_size = 8,
                                    .num_layers = 2,
                                    .num_heads = 2,
                                    .hidden_dim = 16,
                                    .mlp_dim = 32,
                                    .num_classes = 10});
}

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
    {"gpt2", [] { return narrow_gpt2(12, 12, 48); }},
    {"bert", [] { return narrow_bert(12, 12, 48); }},
    {"vit_b_16", [] { return models::vit_b_16({.hidden_dim = 48, .mlp_dim = 192}); }},
};

class State : public testing::TestWithParam<StateCase> {};
TEST_P(State, HasTheLibrarysNamesAndShapes) {
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

/// Numbers of parameters as their publishers give them (transformers' gpt2 and bert-base-uncased, torchvision's). The
/// files above are of narrower networks.
TEST(Defaults, AreThePublishedNetworks) {
  const auto count = [](const nn::ModuleBase& model) {
    std::int64_t n = 0;
    for (const Tensor& p : model.parameters()) n += p.numel();
    return n;
  };
  EXPECT_EQ(count(models::GPT2LMHeadModel()), 124439808);
  EXPECT_EQ(count(models::BertModel()), 109482240);
  EXPECT_EQ(count(models::MobileNetV2()), 3504872);
  EXPECT_EQ(count(models::vit_b_16()), 86567656);
}

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
    {"vit_b_16", 32, [] { return callable(narrow_vit()); }},
};

void expect_close(const Tensor& found, const Tensor& expected, double tolerance, const std::string& what) {
  const std::vector<double> values = found.detach().to(f64).contiguous().to_vector<double>();
  const std::vector<double> wanted = expected.to_vector<double>();
  ASSERT_EQ(values.size(), wanted.size()) << what;
  double largest = 0;
  for (const double w : wanted) largest = std::max(largest, std::abs(w));
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], wanted[i], tolerance * largest) << what << " [" << i << "]";
}

/// The fixture's state; what is named apart is left out of it.
nn::StateDict load_fixture(const std::string& name, const std::vector<std::pair<std::string, Tensor*>>& apart) {
  nn::StateDict state = nn::load(kFixtures + name + ".safetensors");
  for (const auto& named : apart)
    std::erase_if(state, [&](const auto& entry) {
      if (entry.first == named.first) *named.second = entry.second;
      return entry.first == named.first;
    });
  return state;
}

class Output : public testing::TestWithParam<OutputCase> {};
TEST_P(Output, WithWeightsOfPyTorchIsPyTorchs) {
  const OutputCase& c = GetParam();
  Tensor expected;
  const nn::StateDict state = load_fixture(c.name, {{"output", &expected}});
  ASSERT_TRUE(expected.defined());
  auto [model, forward] = c.make();
  model.load_state_dict(state);
  model.eval();
  for (const DType dtype : {f32, f64}) {
    model.to(dtype);
    const Tensor images = from_data(values(4 * 3 * c.size * c.size, 1, 1.0), {4, 3, c.size, c.size}).to(f32).to(dtype);
    expect_close(forward(images), expected, dtype == f32 ? tests::tolerance::models.f32 : tests::tolerance::models.f64,
                 c.name + " " + std::string(ir::name(dtype)));
  }
}
INSTANTIATE_TEST_SUITE_P(All, Output, testing::ValuesIn(kOutputs), [](const auto& info) { return info.param.name; });

/// The parameter of the name.
Tensor find(const nn::ModuleBase& model, const std::string& name) {
  for (const auto& [n, p] : model.state_dict())
    if (n == name) return p;
  throw std::runtime_error("no " + name);
}

Tensor tokens(std::int64_t seed, std::int64_t highest) { return from_data(labels(4 * 12, seed, highest), {4, 12}); }

struct InferGpt2 : nn::Graph<InferGpt2> {
  models::GPT2LMHeadModel model;
  explicit InferGpt2(models::GPT2LMHeadModel m) : model(child("model", m)) {}
  Tensor build(Tensor tokens) { return model(tokens); }
};

TEST(Gpt2, WithWeightsOfTransformersIsTransformers) {
  Tensor expected;
  const nn::StateDict state = load_fixture("gpt2", {{"output", &expected}});
  ASSERT_TRUE(expected.defined());
  models::GPT2LMHeadModel model = narrow_gpt2();
  model.load_state_dict(state);
  model.eval();
  InferGpt2 graph(model);
  graph.compile(spec({Dim("batch", 8), 12}, i64, "tokens"));
  expect_close(graph(tokens(1, 48)), expected, tests::tolerance::models.f32, "graph");
  for (const DType dtype : {f32, f64}) {
    model.to(dtype);
    expect_close(model(tokens(1, 48)), expected,
                 dtype == f32 ? tests::tolerance::models.f32 : tests::tolerance::models.f64,
                 std::string(ir::name(dtype)));
  }
}

/// Published checkpoints name things in several ways.
TEST(Gpt2, LoadsCheckpointsAsPublished) {
  Tensor expected;
  const nn::StateDict state = load_fixture("gpt2", {{"output", &expected}});
  nn::StateDict published;  // of the bare GPT2Model, with its masks
  for (const auto& [name, tensor] : state)
    if (name.starts_with("transformer.")) published.emplace_back(name.substr(12), tensor);
  for (const char* layer : {"h.0.attn.", "h.1.attn."}) {
    published.emplace_back(std::string(layer) + "bias", ones({1, 1, 16, 16}));
    published.emplace_back(std::string(layer) + "masked_bias", tensor({-1e4}));
  }
  for (const nn::StateDict& checkpoint : {state, published}) {
    models::GPT2LMHeadModel model = narrow_gpt2();
    model.load_pretrained(checkpoint);
    model.eval();
    expect_close(model(tokens(1, 48)), expected, tests::tolerance::models.f32, "output");
    EXPECT_TRUE(model.lm_head.weight.is_same(model.transformer.wte.weight));
  }
  models::GPT2LMHeadModel model = narrow_gpt2();
  const Tensor before = model.transformer.ln_f.weight.detach().clone();
  published.pop_back();
  published.erase(published.begin());  // wte.weight
  EXPECT_THROW(model.load_pretrained(published), UserError);
  EXPECT_TRUE(equal(model.transformer.ln_f.weight.detach(), before));
}

TEST(Bert, WithWeightsOfTransformersIsTransformers) {
  Tensor expected, expected_pooled;
  const nn::StateDict state = load_fixture("bert", {{"output", &expected}, {"pooled", &expected_pooled}});
  ASSERT_TRUE(expected.defined() && expected_pooled.defined());
  // As make_models.py has it.
  std::vector<std::int64_t> seen(48, 1);
  for (std::size_t i = 7; i < 12; ++i) seen[12 + i] = 0;
  for (std::size_t i = 1; i < 12; ++i) seen[36 + i] = 0;
  const Tensor mask = from_data(seen, {4, 12});

  models::BertModel model = narrow_bert();
  model.load_state_dict(state);
  model.eval();
  for (const DType dtype : {f32, f64}) {
    model.to(dtype);
    for (const Tensor& m : {mask, mask != 0}) {
      const auto [states, pooled] = model(tokens(1, 48), m, tokens(2, 2));
      expect_close(states, expected, dtype == f32 ? tests::tolerance::models.f32 : tests::tolerance::models.f64,
                   "states");
      expect_close(pooled, expected_pooled, dtype == f32 ? tests::tolerance::models.f32 : tests::tolerance::models.f64,
                   "pooled");
    }
  }
  // Absent token types are 0, absent masks 1.
  const auto [states, pooled] = model(tokens(1, 48), ones({4, 12}, i64), zeros({4, 12}, i64));
  EXPECT_TRUE(allclose(model(tokens(1, 48)).first, states, 1e-12, 1e-12));
}

TEST(Bert, LoadsCheckpointsAsPublished) {
  Tensor expected, expected_pooled;
  const nn::StateDict state = load_fixture("bert", {{"output", &expected}, {"pooled", &expected_pooled}});
  nn::StateDict published;  // of BertForPreTraining, as TensorFlow's were converted
  for (const auto& [name, tensor] : state) {
    std::string old = "bert." + name;
    if (const auto at = old.find("LayerNorm."); at != std::string::npos)
      old.replace(at, std::string::npos, old.ends_with("weight") ? "LayerNorm.gamma" : "LayerNorm.beta");
    published.emplace_back(old, tensor);
  }
  published.emplace_back("bert.embeddings.position_ids", arange(16));
  published.emplace_back("cls.predictions.bias", zeros({48}));
  models::BertModel model = narrow_bert();
  model.load_pretrained(published);
  for (const auto& [name, tensor] : state) EXPECT_TRUE(equal(find(model, name).detach(), tensor)) << name;
  models::BertModel without({.vocab_size = 48,
                             .hidden_size = 16,
                             .num_hidden_layers = 2,
                             .num_attention_heads = 2,
                             .intermediate_size = 64,
                             .max_position_embeddings = 16},
                            false);
  without.load_pretrained(published);
  without.eval();
  EXPECT_FALSE(without(tokens(1, 48)).second.defined());
}

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

TEST(InitialValues, AreTheLibrarys) {
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

  // transformers: 0.02, the projections into the residual stream 0.02 / sqrt(2 layers), the padding's row 0.
  const models::GPT2LMHeadModel gpt2 = narrow_gpt2(2, 2, 128);
  EXPECT_NEAR(moments(find(gpt2, "transformer.h.1.mlp.c_fc.weight")).deviation, 0.02, 2e-4);
  EXPECT_NEAR(moments(find(gpt2, "transformer.h.1.mlp.c_proj.weight")).deviation, 0.01, 1e-4);
  EXPECT_NEAR(moments(find(gpt2, "transformer.h.0.attn.c_proj.weight")).deviation, 0.01, 1.5e-4);
  const models::BertModel bert = narrow_bert(1, 2, 128);
  EXPECT_NEAR(moments(find(bert, "encoder.layer.0.intermediate.dense.weight")).deviation, 0.02, 2e-4);
  EXPECT_EQ(moments(find(bert, "embeddings.word_embeddings.weight").select(0, 0)).deviation, 0);
  // torchvision: the head 0, patches sqrt(1 / fan_in).
  const models::VisionTransformer vit = models::vit_b_16({.num_layers = 1, .hidden_dim = 192, .mlp_dim = 256});
  EXPECT_EQ(moments(find(vit, "heads.head.weight")).deviation, 0);
  EXPECT_NEAR(moments(find(vit, "conv_proj.weight")).deviation, std::sqrt(1 / 768.0), 2e-4);
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
  EXPECT_NE(message([] { models::resnet18({.groups = 2}); }).find("basic blocks only support groups = 1"),
            std::string::npos);
  EXPECT_NE(message([] { models::resnet50({.width_per_group = 0}); }).find("width_per_group"), std::string::npos);
  EXPECT_NE(message([] { models::MobileNetV2({.width_mult = 0}); }).find("width_mult"), std::string::npos);
  EXPECT_NE(message([] {
              models::MobileNetV2({.inverted_residual_setting = {{6, 24, 1, 3}}});
            }).find("stride must be 1 or 2"),
            std::string::npos);
  EXPECT_NE(message([] { models::TransformerNet({.channels = 0}); }).find("channels must be positive"),
            std::string::npos);
  EXPECT_NE(message([] { narrow_gpt2(2, 3, 16); }).find("n_head must divide n_embd"), std::string::npos);
  EXPECT_NE(message([] { models::GPT2LMHeadModel({.n_layer = 0}); }).find("n_layer"), std::string::npos);
  EXPECT_NE(message([] { narrow_gpt2()(zeros({1, 17}, i64)); }).find("n_positions allows 16"), std::string::npos);
  EXPECT_NE(message([] { narrow_gpt2()(zeros({17}, i64)); }).find("[batch,length]"), std::string::npos);
  EXPECT_NE(message([] { models::BertModel({.hidden_act = "swish"}); }).find("hidden_act"), std::string::npos);
  EXPECT_NE(message([] { narrow_bert()(zeros({1, 17}, i64)); }).find("max_position_embeddings allows 16"),
            std::string::npos);
  EXPECT_NE(message([] { narrow_bert()(zeros({1, 4}, i64), zeros({4}, i64)); }).find("attention_mask"),
            std::string::npos);
  EXPECT_NE(message([] { models::vit_b_16({.patch_size = 15}); }).find("patch_size must divide image_size"),
            std::string::npos);
  EXPECT_NE(message([] { narrow_vit()(zeros({1, 3, 16, 16})); }).find("[batch,3,32,32]"), std::string::npos);
  EXPECT_NE(message([] { models::VGG({0}); }).find("one convolution"), std::string::npos);
}

}  // namespace
}  // namespace graven::test
