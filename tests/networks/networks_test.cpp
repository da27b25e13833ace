// Whole networks against what PyTorch computed in double precision (tests/fixtures/make_networks.py): outputs, first
// gradients, the loss of every step, and parameters and running statistics at the end; eager in f32 and f64, and
// compiled graphs; and programs that take any batch, length, height and width.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <string>

#include "fixture_values.h"
#include "networks.h"
#include "runtime_min/safetensors.h"
#include "tests/tolerances.h"

namespace graven::test {
namespace {

namespace tolerance = tests::tolerance;

/// How far a result may be from PyTorch's double-precision figures, relative to the largest value of the tensor; in f32
/// also up to four times as far as PyTorch's own f32 run is (Adam divides by gradients that are all rounding). f64: the
/// stored figures are rounded to f32.
struct NetworkTolerance {
  double output, gradient, loss, final;
};
constexpr NetworkTolerance kF32{tolerance::network_output.f32, tolerance::network_gradient.f32,
                                tolerance::network_loss.f32, tolerance::network_final.f32};
constexpr NetworkTolerance kF64{tolerance::network_output.f64, tolerance::network_gradient.f64,
                                tolerance::network_loss.f64, tolerance::network_final.f64};

class Fixture {
 public:
  explicit Fixture(const std::string& name)
      : file_(GRAVEN_SOURCE_DIR "/tests/fixtures/networks/" + name + ".safetensors") {}
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  std::vector<double> get(const std::string& name) const {
    const runtime::SafetensorsEntry* entry = file_.find(name);
    if (!entry) throw std::runtime_error("the fixture has no " + name);
    const auto bytes = file_.bytes(*entry);
    std::vector<double> out;
    if (entry->dtype_name == "F64") {
      out.resize(bytes.size() / 8);
      std::memcpy(out.data(), bytes.data(), bytes.size());
    } else {
      std::vector<float> f(bytes.size() / 4);
      std::memcpy(f.data(), bytes.data(), bytes.size());
      out.assign(f.begin(), f.end());
    }
    return out;
  }

 private:
  runtime::SafetensorsFile file_;
};

std::vector<double> numbers(const Tensor& t) { return t.detach().to(f64).contiguous().to_vector<double>(); }

void expect_close(const std::vector<double>& found, const std::vector<double>& expected, double tolerance,
                  double distance, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double scale = 0, worst = 0;
  std::size_t at = 0;
  for (const double e : expected) scale = std::max(scale, std::abs(e));
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(found[i] - expected[i]);
    if (!(difference <= worst)) worst = difference, at = i;
  }
  // What is 0 but for rounding, as the gradient of a bias before a batch norm, has no scale of its own.
  EXPECT_LE(worst, std::max({tolerance * scale, 4 * distance, 1e-15}))
      << what << "[" << at << "]: found " << found[at] << ", PyTorch has " << expected[at] << "; largest value "
      << scale;
}

/// As initialise() in make_networks.py. `prefix` is what our module path has before PyTorch's.
void initialise(nn::ModuleBase& module, bool deep) {
  std::int64_t position = 0;
  for (auto& [name, p] : module.named_parameters()) {
    const bool unit = deep && p.dim() == 1 && name.ends_with("weight");
    const double scale = p.dim() > 1 ? 1 / std::sqrt(static_cast<double>(p.numel() / p.size(0))) : unit ? 0.25 : 0.1;
    std::vector<double> v = values(p.numel(), 100 + position++, scale);
    if (unit)
      for (double& x : v) x += 1;
    p.detach().copy_(from_data(v, p.shape()).to(p.dtype()));
  }
}

std::string torch_name(std::string name) {
  if (name.rfind("layers.", 0) == 0) name.erase(0, 7);
  return name;
}

struct Data {
  Tensor x, y;
};

Data images(std::int64_t batch, std::int64_t channels, std::int64_t size, DType dtype, std::int64_t seed = 1) {
  const std::int64_t count = batch * channels * size * size;
  return {from_data(values(count, seed, 1.0), {batch, channels, size, size}).to(dtype),
          from_data(labels(batch, 2, 10), {batch})};
}

/// A picture, and what is to become of it.
Data pictures(std::int64_t batch, std::int64_t size, DType dtype) {
  const std::int64_t count = batch * 3 * size * size;
  const Shape shape{batch, 3, size, size};
  return {from_data(values(count, 21, 1.0), shape).to(dtype), from_data(values(count, 22, 1.0), shape).to(dtype)};
}

Data tokens(std::int64_t batch, const Shape& target, std::int64_t classes) {
  return {from_data(labels(batch * 12, 1, 48), {batch, 12}),
          from_data(labels(target.numel().value(), 2, classes), target)};
}

Data polynomial(DType dtype) {
  std::vector<double> x, y;
  for (int i = 0; i < 2000; ++i) {
    const double v = -M_PI + (2 * M_PI / 1999) * i;
    x.insert(x.end(), {v, v * v, v * v * v});
    y.push_back(std::sin(v));
  }
  return {from_data(x, {2000, 3}).to(dtype), from_data(y, {2000}).to(dtype)};
}

Tensor cross_entropy_of(const Tensor& logits, const Tensor& target) {
  return cross_entropy(logits.flatten(0, -2), target.flatten());
}
Tensor mean_of_squares(const Tensor& prediction, const Tensor& target) { return mse_loss(prediction, target); }
Tensor squares(const Tensor& prediction, const Tensor& target) { return mse_loss(prediction, target, Reduction::sum); }

template <class Net>
struct TrainGraph : nn::Graph<TrainGraph<Net>> {
  Net model;
  Tensor (*loss_fn)(const Tensor&, const Tensor&);
  TrainGraph(Net net, const optim::Optimizer& optimizer, Tensor (*loss)(const Tensor&, const Tensor&))
      : model(this->child("model", net)), loss_fn(loss) {
    this->add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = loss_fn(model(x), y);
    loss.backward();
    return loss;
  }
};

template <class Net>
struct InferGraph : nn::Graph<InferGraph<Net>> {
  Net model;
  explicit InferGraph(Net net) : model(this->child("model", net)) {}
  Tensor build(Tensor x) { return model(x); }
};

/// Of tensors of more than 1024 elements the fixtures hold 256, evenly spaced.
std::vector<double> sampled(std::vector<double> found) {
  if (found.size() <= 1024) return found;
  std::vector<double> samples;
  for (std::size_t i = 0; i < 256; ++i) samples.push_back(found[i * found.size() / 256]);
  return samples;
}

enum class Mode { eager, graph };

/// `train` is null where the fixture was only evaluated.
template <class Net, bool Deep = false>
void compare(const std::string& fixture_name, Mode mode, DType dtype, const std::function<Data(DType)>& make_data,
             Tensor (*loss_fn)(const Tensor&, const Tensor&) = nullptr,
             const std::function<optim::Optimizer(const Net&)>& make_optimizer = {}) {
  const Fixture fixture(fixture_name);
  const NetworkTolerance tolerance = dtype == f64 ? kF64 : kF32;
  const auto check = [&](const std::vector<double>& found, const std::string& stored, double allowed) {
    const double distance = dtype == f32 ? fixture.get("distance." + stored)[0] : 0;
    expect_close(found, fixture.get(stored), allowed, distance, fixture_name + " " + stored);
  };
  Net net;
  initialise(net, Deep);
  net.to(dtype);
  const Data data = make_data(dtype);

  net.eval();
  Tensor output;
  if (mode == Mode::eager) {
    output = net(data.x).detach();
  } else {
    InferGraph<Net> graph(net);
    output = graph(data.x);
  }
  check(numbers(output), "output", tolerance.output);
  if (!loss_fn) return;

  net.train();
  optim::Optimizer optimizer = make_optimizer(net);
  TrainGraph<Net> graph(net, optimizer, loss_fn);
  const std::size_t steps = fixture.get("losses").size();
  std::vector<double> losses;
  for (std::size_t step = 0; step < steps; ++step) {
    if (mode == Mode::graph) {
      losses.push_back(numbers(graph(data.x, data.y))[0]);
      continue;
    }
    Tensor loss = loss_fn(net(data.x), data.y);
    optimizer.zero_grad();
    loss.backward();
    if (step == 0)
      for (const auto& [name, p] : net.named_parameters())
        check(sampled(numbers(p.grad())), "gradient." + torch_name(name), tolerance.gradient);
    optimizer.step();
    losses.push_back(numbers(loss)[0]);
  }
  check(losses, "losses", tolerance.loss);
  for (const auto& [name, p] : net.state_dict())
    if (fixture.has("final." + torch_name(name)))
      check(sampled(numbers(p)), "final." + torch_name(name), tolerance.final);
}

struct Case {
  std::string name;
  std::function<void(Mode, DType)> run;
};

const Case kCases[] = {
    {"my_linear",
     [](Mode m, DType d) {
       compare<MyLinear>("my_linear", m, d,
                         [](DType t) { return Data{from_data(values(4, 1, 1.0), {1, 4}).to(t), {}}; });
     }},
    {"mlp",
     [](Mode m, DType d) {
       compare<Mlp>(
           "mlp", m, d, [](DType t) { return images(16, 1, 28, t); }, cross_entropy_of,
           [](const Mlp& n) { return optim::SGD(n.parameters(), {.lr = 0.1, .momentum = 0.9}); });
     }},
    {"lenet",
     [](Mode m, DType d) {
       compare<LeNet>(
           "lenet", m, d, [](DType t) { return images(8, 1, 28, t, 15); }, cross_entropy_of,
           [](const LeNet& n) { return optim::SGD(n.parameters(), {.lr = 0.05, .momentum = 0.9}); });
     }},
    {"lenet_adamw",
     [](Mode m, DType d) {
       compare<LeNet>(
           "lenet_adamw", m, d, [](DType t) { return images(8, 1, 28, t, 15); }, cross_entropy_of,
           [](const LeNet& n) { return optim::AdamW(n.parameters(), {.lr = 1e-3, .weight_decay = 0.01}); });
     }},
    {"conv_batch_norm",
     [](Mode m, DType d) {
       compare<ConvBatchNorm>(
           "conv_batch_norm", m, d, [](DType t) { return images(4, 3, 16, t); }, cross_entropy_of,
           [](const ConvBatchNorm& n) {
             return optim::SGD(n.parameters(), {.lr = 0.05, .momentum = 0.9, .weight_decay = 5e-4});
           });
     }},
    {"resnet18",
     [](Mode m, DType d) {
       compare<ResNet18, true>(
           "resnet18", m, d, [](DType t) { return images(16, 3, 32, t, 2); }, cross_entropy_of,
           [](const ResNet18& n) {
             return optim::SGD(n.parameters(), {.lr = 0.005, .momentum = 0.9, .weight_decay = 5e-4});
           });
     }},
    {"mobilenet_v2",
     [](Mode m, DType d) {
       compare<MobileNetV2, true>(
           "mobilenet_v2", m, d, [](DType t) { return images(4, 3, 32, t, 5); }, cross_entropy_of,
           [](const MobileNetV2& n) { return optim::SGD(n.parameters(), {.lr = 0.01}); });
     }},
    {"style_transfer",
     [](Mode m, DType d) {
       compare<StyleTransfer, true>(
           "style_transfer", m, d, [](DType t) { return pictures(2, 16, t); }, mean_of_squares,
           [](const StyleTransfer& n) { return optim::SGD(n.parameters(), {.lr = 0.02, .momentum = 0.9}); });
     }},
    {"gpt2",
     [](Mode m, DType d) {
       compare<Gpt2, true>(
           "gpt2", m, d, [](DType) { return tokens(3, {3, 12}, 48); }, cross_entropy_of,
           [](const Gpt2& n) { return optim::SGD(n.parameters(), {.lr = 0.05, .momentum = 0.9}); });
     }},
    {"bert",
     [](Mode m, DType d) {
       compare<Bert, true>(
           "bert", m, d, [](DType) { return tokens(4, {4}, 10); }, cross_entropy_of,
           [](const Bert& n) {
             return optim::SGD(n.parameters(), {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01});
           });
     }},
    {"lstm",
     [](Mode m, DType d) {
       compare<Lstm>(
           "lstm", m, d,
           [](DType t) {
             return Data{from_data(values(4 * 6 * 8, 1, 1.0), {4, 6, 8}).to(t), from_data(labels(4, 2, 10), {4})};
           },
           cross_entropy_of, [](const Lstm& n) { return optim::Adam(n.parameters(), {.lr = 5e-3}); });
     }},
    {"polynomial",
     [](Mode m, DType d) {
       compare<Polynomial>(
           "polynomial", m, d, [](DType t) { return polynomial(t); }, squares,
           [](const Polynomial& n) { return optim::SGD(n.parameters(), {.lr = 1e-6}); });
     }},
};

/// Compiling a deep network in double takes longer than the test is worth: eager mode covers the arithmetic, f32 the
/// graph.
std::vector<std::size_t> compiled_in_double() {
  const std::set<std::string> deep{"resnet18", "mobilenet_v2", "style_transfer", "bert", "lstm"};
  std::vector<std::size_t> cases;
  for (std::size_t i = 0; i < std::size(kCases); ++i)
    if (!deep.contains(kCases[i].name)) cases.push_back(i);
  return cases;
}
std::string case_name(const testing::TestParamInfo<std::size_t>& info) { return kCases[info.param].name; }

class Networks : public testing::TestWithParam<std::size_t> {};
class NetworksCompiledInDouble : public testing::TestWithParam<std::size_t> {};
TEST_P(Networks, EagerInFloat) { kCases[GetParam()].run(Mode::eager, f32); }
TEST_P(Networks, EagerInDouble) { kCases[GetParam()].run(Mode::eager, f64); }
TEST_P(Networks, GraphInFloat) { kCases[GetParam()].run(Mode::graph, f32); }
TEST_P(NetworksCompiledInDouble, Graph) { kCases[GetParam()].run(Mode::graph, f64); }
INSTANTIATE_TEST_SUITE_P(All, Networks, testing::Range<std::size_t>(0, std::size(kCases)), case_name);
INSTANTIATE_TEST_SUITE_P(All, NetworksCompiledInDouble, testing::ValuesIn(compiled_in_double()), case_name);

// ---- one program for every size -------------------------------------------------------------------------------------

/// A network whose batch, and length or height and width, are symbols, at five sizes.
template <class Net>
struct Sized {
  std::string fixture;
  Shape symbols;
  std::vector<Sizes> sizes;
  std::function<Data(const Sizes&)> data;
  Spec target;
  Tensor (*loss)(const Tensor&, const Tensor&);
  optim::SGDOptions optimizer;
};

Tensor mean_square(const Tensor& y, const Tensor&) { return mean(square(y)); }

template <class Net>
void compare_sizes(const Sized<Net>& c, DType dtype_of_input) {
  const Fixture fixture(c.fixture);
  const auto check = [&](const Tensor& found, const std::string& stored, double allowed) {
    expect_close(sampled(numbers(found)), fixture.get(stored), allowed, fixture.get("distance." + stored)[0],
                 c.fixture + " " + stored);
  };
  Net net;
  initialise(net, true);
  net.eval();
  InferGraph<Net> infer(net);
  infer.compile(spec(c.symbols, dtype_of_input));
  for (std::size_t i = 0; i < c.sizes.size(); ++i)
    check(infer(c.data(c.sizes[i]).x), "output." + std::to_string(i), kF32.output);
  net.train();
  TrainGraph<Net> train(net, optim::SGD(net.parameters(), c.optimizer), c.loss);
  train.compile(spec(c.symbols, dtype_of_input), c.target);
  std::vector<double> losses;
  for (std::size_t step = 0; step < 10; ++step) {
    const Data data = c.data(c.sizes[step % c.sizes.size()]);
    losses.push_back(numbers(train(data.x, data.y))[0]);
  }
  check(from_data(losses, {10}), "losses", kF32.loss);
  for (const auto& [name, p] : net.named_parameters()) check(p, "final." + name, kF32.final);
}

const Dim kBatch("batch", 4), kLength("length", 16), kHeight("height", 16, 40), kWidth("width", 16, 40);

Data tokens_of(const Sizes& size, const Sizes& target, std::int64_t classes) {
  const auto count = [](const Sizes& s) { return Shape(s).numel().value(); };
  return {from_data(labels(count(size), 1, 48), size), from_data(labels(count(target), 2, classes), target)};
}

TEST(NetworksOfAnySize, Gpt2) {
  compare_sizes<Gpt2>({.fixture = "gpt2_sizes",
                       .symbols = {kBatch, kLength},
                       .sizes = {{1, 1}, {3, 12}, {2, 16}, {4, 5}, {1, 9}},
                       .data = [](const Sizes& s) { return tokens_of(s, s, 48); },
                       .target = spec({kBatch, kLength}, i64),
                       .loss = cross_entropy_of,
                       .optimizer = {.lr = 0.05, .momentum = 0.9}},
                      i64);
}

TEST(NetworksOfAnySize, Bert) {
  compare_sizes<Bert>({.fixture = "bert_sizes",
                       .symbols = {kBatch, kLength},
                       .sizes = {{1, 1}, {4, 12}, {2, 16}, {3, 7}, {1, 10}},
                       .data = [](const Sizes& s) { return tokens_of(s, {s[0]}, 10); },
                       .target = spec({kBatch}, i64),
                       .loss = cross_entropy_of,
                       .optimizer = {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01}},
                      i64);
}

TEST(NetworksOfAnySize, StyleTransfer) {
  compare_sizes<StyleTransfer>({.fixture = "style_transfer_sizes",
                                .symbols = {kBatch, 3, kHeight, kWidth},
                                .sizes = {{1, 16, 16}, {2, 17, 30}, {1, 33, 20}, {2, 24, 24}, {1, 19, 39}},
                                .data =
                                    [](const Sizes& s) {
                                      const std::int64_t count = s[0] * 3 * s[1] * s[2];
                                      return Data{from_data(values(count, 21, 1.0), {s[0], 3, s[1], s[2]}).to(f32),
                                                  zeros({})};
                                    },
                                .target = spec({}, f32),
                                .loss = mean_square,
                                .optimizer = {.lr = 0.02, .momentum = 0.9}},
                               f32);
}

}  // namespace
}  // namespace graven::test
