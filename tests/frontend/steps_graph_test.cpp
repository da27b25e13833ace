// Steps of several parts and steps of scaled losses: in graphs and eagerly, beside PyTorch's
// (tests/fixtures/make_steps.py), and resumed. Programs are compiled into the cache.
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/frontend/error_text.h"

namespace graven::steps_graph_test {
namespace {

using test::error_of;

constexpr std::int64_t kBatch = 12;

nlohmann::json fixture() {
  std::ifstream file(GRAVEN_SOURCE_DIR "/tests/fixtures/steps.json");
  return nlohmann::json::parse(file);
}

struct Net : nn::Module<Net> {
  nn::Linear hidden = child("hidden", nn::Linear(5, 7));
  nn::Linear last = child("last", nn::Linear(7, 1));
  explicit Net(DType dtype) {
    to(dtype);
    std::int64_t k = 0;
    const NoGradGuard no_grad;
    for (const auto& [name, p] : named_parameters()) {
      std::vector<double> values;
      for (std::int64_t i = 0; i < p.numel(); ++i) values.push_back(0.4 * std::sin(static_cast<double>(i + 1 + k)));
      Tensor(p).copy_(from_data(values, p.shape()));
      ++k;
    }
  }
  Tensor forward(Tensor x) { return last(tanh(hidden(x))); }
};

struct Batch {
  Tensor x, y;
};
Batch batch(std::int64_t step, DType dtype, bool overflows = false) {
  std::vector<double> x, y;
  const auto t = static_cast<double>(step);
  for (int i = 0; i < kBatch * 5; ++i) x.push_back(std::sin(0.37 * i + 0.11 * t + 1));
  for (int i = 0; i < kBatch; ++i) y.push_back(std::cos(0.5 * i + t));
  if (overflows) x[0] = std::numeric_limits<double>::infinity();
  return {from_data(x, {kBatch, 5}).to(dtype), from_data(y, {kBatch, 1}).to(dtype)};
}

optim::Optimizer make_optimizer(const std::string& kind, const std::vector<Tensor>& parameters) {
  if (kind == "sgd") return optim::SGD(parameters, {.lr = 0.05, .momentum = 0.9});
  return optim::Adam(parameters, {.lr = 0.01});
}

struct Train : nn::Graph<Train> {
  Net net;
  optim::Optimizer optimizer;
  lr_scheduler::StepLR schedule;
  double max_norm;
  Train(const std::string& kind, DType dtype, double norm, bool scheduled, std::int64_t parts = 1)
      : net(child("net", Net(dtype))),
        optimizer(make_optimizer(kind, net.parameters())),
        schedule(optimizer, {.step_size = 10, .gamma = 0.5}),
        max_norm(norm) {
    if (scheduled)
      add_optimizer(optimizer, schedule);
    else
      add_optimizer(optimizer);
    set_gradient_accumulation_steps(parts);
  }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = square(net(x) - y).mean();
    loss.backward();
    if (max_norm > 0) nn::utils::clip_grad_norm_(net.parameters(), max_norm);
    return loss;
  }
};

std::vector<double> weights_of(const Net& net) {
  std::vector<double> all;
  for (const Tensor& p : net.parameters()) {
    const std::vector<double> own = p.to(DType::f64).to_vector<double>();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

/// The largest difference, the sign of infinities and NaN aside.
double apart(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]));
  return most;
}

DType dtype_of(const nlohmann::json& c) { return c.at("dtype") == "float64" ? DType::f64 : DType::f32; }
double tolerance_of(DType dtype) { return dtype == DType::f64 ? 1e-12 : 2e-5; }
std::string name_of(const nlohmann::json& c) {
  return c.at("kind").get<std::string>() + ", " + c.at("dtype").get<std::string>() + ", norm " +
         c.at("max_norm").dump();
}

TEST(AccumulationSteps, AreAsPyTorchs) {
  const nlohmann::json all = fixture();
  for (const nlohmann::json& c : all.at("accumulated")) {
    SCOPED_TRACE(name_of(c) + ", " + c.at("parts").dump() + " parts");
    const DType dtype = dtype_of(c);
    Train graph(c.at("kind"), dtype, c.at("max_norm"), false, c.at("parts"));
    std::vector<double> losses;
    for (std::int64_t step = 0; step < 20; ++step) {
      const Batch b = batch(step, dtype);
      losses.push_back(graph(b.x, b.y).item<double>());
    }
    EXPECT_LT(apart(losses, c.at("losses")), tolerance_of(dtype));
    EXPECT_LT(apart(weights_of(graph.net), c.at("weights")), tolerance_of(dtype));
    EXPECT_EQ(graph.train_step(), 20);
  }
}

amp::GradScaler small_scaler() { return amp::GradScaler({.init_scale = 1024, .growth_interval = 6}); }

TEST(GradScaler, GraphsSkipStepsAsPyTorchDoes) {
  const nlohmann::json all = fixture();
  const std::vector<std::int64_t> overflows = all.at("overflows");
  for (const nlohmann::json& c : all.at("scaled")) {
    SCOPED_TRACE(name_of(c));
    const DType dtype = dtype_of(c);
    Train graph(c.at("kind"), dtype, c.at("max_norm"), true);
    amp::GradScaler scaler = small_scaler();
    graph.set_grad_scaler(scaler);
    std::vector<double> losses, scales;
    std::int64_t made = 0;
    for (std::int64_t step = 0; step < 50; ++step) {
      const bool skipped = std::count(overflows.begin(), overflows.end(), step) != 0;
      const Batch b = batch(step, dtype, skipped);
      const std::vector<double> before = weights_of(graph.net);
      losses.push_back(graph(b.x, b.y).item<double>());
      scales.push_back(scaler.get_scale());
      if (!skipped) ++made;
      if (skipped) {
        EXPECT_EQ(before, weights_of(graph.net)) << step;
      }
      EXPECT_EQ(graph.train_step(), made);
    }
    EXPECT_LT(apart(losses, c.at("losses")), tolerance_of(dtype));
    EXPECT_EQ(scales, c.at("scales").get<std::vector<double>>());
    EXPECT_LT(apart(weights_of(graph.net), c.at("weights")), tolerance_of(dtype));
    EXPECT_NEAR(graph.learning_rates().at(0), c.at("lr").get<double>(), 1e-15);
  }
}

TEST(GradScaler, EagerStepsAreAsPyTorchs) {
  const nlohmann::json all = fixture();
  const std::vector<std::int64_t> overflows = all.at("overflows");
  for (const nlohmann::json& c : all.at("scaled")) {
    SCOPED_TRACE(name_of(c));
    const DType dtype = dtype_of(c);
    Net net(dtype);
    optim::Optimizer optimizer = make_optimizer(c.at("kind"), net.parameters());
    lr_scheduler::StepLR schedule(optimizer, {.step_size = 10, .gamma = 0.5});
    amp::GradScaler scaler = small_scaler();
    std::vector<double> losses, scales;
    for (std::int64_t step = 0; step < 50; ++step) {
      const Batch b = batch(step, dtype, std::count(overflows.begin(), overflows.end(), step) != 0);
      optimizer.zero_grad();
      Tensor loss = square(net(b.x) - b.y).mean();
      scaler.scale(loss).backward();
      if (const double norm = c.at("max_norm"); norm > 0) {
        scaler.unscale_(optimizer);
        nn::utils::clip_grad_norm_(net.parameters(), norm);
      }
      if (scaler.step(optimizer)) schedule.step();
      scaler.update();
      losses.push_back(loss.item<double>());
      scales.push_back(scaler.get_scale());
    }
    EXPECT_LT(apart(losses, c.at("losses")), tolerance_of(dtype));
    EXPECT_EQ(scales, c.at("scales").get<std::vector<double>>());
    EXPECT_LT(apart(weights_of(net), c.at("weights")), tolerance_of(dtype));
  }
}

TEST(GradScaler, AndAccumulationTogether) {
  // A power of two scales exactly, and an overflow in one part skips the step of all.
  const auto run = [](bool scaled) {
    Train graph("adam", DType::f32, 0.5, true, 3);
    amp::GradScaler scaler = small_scaler();
    if (scaled) graph.set_grad_scaler(scaler);
    for (std::int64_t step = 0; step < 15; ++step) {
      const bool overflows = step == 4;
      if (overflows && !scaled) continue;
      const Batch b = batch(step, DType::f32, overflows);
      graph(b.x, b.y);
    }
    EXPECT_EQ(graph.train_step(), 14);
    return weights_of(graph.net);
  };
  EXPECT_EQ(run(false), run(true));
}

TEST(GradScaler, IsResumedBitForBit) {
  for (const std::int64_t parts : {1, 3}) {
    const auto step = [&](Train& graph, std::int64_t s) {
      const Batch b = batch(s, DType::f32, s == 2 || s == 9);
      return graph(b.x, b.y).item<float>();
    };
    Train whole("adam", DType::f32, 0.5, true, parts);
    whole.set_grad_scaler(small_scaler());
    nn::StateDict saved;
    std::vector<float> expected, found;
    for (std::int64_t s = 0; s < 12; ++s) {
      if (s == 6)
        for (const auto& [name, t] : whole.state_dict()) saved.emplace_back(name, t.clone());
      const float loss = step(whole, s);
      if (s >= 6) expected.push_back(loss);
    }
    Train resumed("adam", DType::f32, 0.5, true, parts);
    amp::GradScaler scaler = small_scaler();
    resumed.set_grad_scaler(scaler);
    resumed.load_state_dict(saved);
    EXPECT_EQ(resumed.train_step(), 5);
    EXPECT_EQ(scaler.get_scale(), 512);
    for (std::int64_t s = 6; s < 12; ++s) found.push_back(step(resumed, s));
    EXPECT_EQ(expected, found);
    EXPECT_EQ(weights_of(whole.net), weights_of(resumed.net));
    EXPECT_EQ(whole.train_step(), resumed.train_step());
  }
}

/// Two losses, of which one may overflow alone.
struct Two : nn::Graph<Two> {
  nn::Linear a = child("a", nn::Linear(2, 2)), b = child("b", nn::Linear(2, 2));
  optim::SGD of_a{a.parameters(), {.lr = 0.1}}, of_b{b.parameters(), {.lr = 0.1}};
  explicit Two(const amp::GradScaler& scaler) {
    add_optimizer(of_a);
    add_optimizer(of_b);
    set_grad_scaler(scaler);
  }
  Tensor build(Tensor x, Tensor y) {
    Tensor first = a(x).mean(), second = b(y).mean();
    first.backward();
    second.backward();
    return first;
  }
};

TEST(GradScaler, LooksAtEachOptimizersOwnGradients) {
  amp::GradScaler scaler;
  Two graph(scaler);
  const Tensor finite = ones({1, 2}), infinite = finite * std::numeric_limits<double>::infinity();
  const auto values = [](const nn::Linear& l) { return l.weight.to_vector<float>(); };
  const auto a = values(graph.a), b = values(graph.b);
  graph(finite, infinite);
  EXPECT_NE(values(graph.a), a);
  EXPECT_EQ(values(graph.b), b);
  EXPECT_EQ(scaler.get_scale(), 32768);
  EXPECT_EQ(graph.train_step(), 1);
  graph(finite, finite);
  EXPECT_NE(values(graph.b), b);
  EXPECT_EQ(graph.train_step(), 2);
  for (const auto& [name, t] : graph.state_dict())
    if (name.rfind("grad_scaler-skipped.", 0) == 0) {
      EXPECT_EQ(t.item<std::int64_t>(), name.back() == '1' ? 1 : 0) << name;
    }
}

TEST(GradScaler, StaticStays) {
  amp::StaticGradScaler scaler(8);
  Two graph(scaler);
  const Tensor finite = ones({1, 2}), infinite = finite * std::numeric_limits<double>::infinity();
  graph(infinite, infinite);
  graph(finite, finite);
  EXPECT_EQ(scaler.get_scale(), 8);
  EXPECT_EQ(graph.train_step(), 1);
}

/// What comes back of a step in parts.
struct Results : nn::Graph<Results> {
  nn::Linear layer = child("layer", nn::Linear(2, 1));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.5));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(2));
  optim::SGD optimizer{layer.parameters(), {.lr = 0}};
  Results() {
    add_optimizer(optimizer);
    set_gradient_accumulation_steps(4);
  }
  std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> build(Tensor x) {
    Tensor y = layer(norm(x)), loss = y.sum();
    loss.backward();
    return {loss, dropout(ones({2, 64})), (x > 0).to(i64).sum(), x * 2, layer.weight.abs().sum(), norm.running_mean};
  }
};

TEST(AccumulationSteps, PutResultsTogether) {
  manual_seed(3);
  Results graph;
  const Tensor x = tensor({{1., 2.}, {3., 4.}, {5., 6.}, {7., 8.}, {-1., 2.}, {3., -4.}, {5., 6.}, {-7., -8.}});
  const auto [loss, drawn, positive, doubled, norm, mean] = graph(x);
  EXPECT_EQ(loss.shape(), Shape({}));
  EXPECT_EQ(positive.item<std::int64_t>(), 12);
  EXPECT_EQ(doubled.to_vector<float>(), (x * 2).to_vector<float>());
  EXPECT_NEAR(norm.item<double>(), graph.layer.weight.abs().sum().item<double>(), 1e-6);
  // The running statistics have seen each part.
  double expected = 0;
  for (const double of_part : {2., 6., 1., -1.}) expected += 0.1 * (of_part - expected);
  EXPECT_NEAR(mean.to_vector<float>()[0], expected, 1e-6);
  EXPECT_EQ(drawn.shape(), Shape({2, 64})) << "what depends on no input is the last part's";
}

struct Masks : nn::Graph<Masks> {
  nn::Linear layer = child("layer", nn::Linear(32, 1));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.5));
  optim::SGD optimizer{layer.parameters(), {.lr = 0}};
  Masks() {
    add_optimizer(optimizer);
    set_gradient_accumulation_steps(3);
  }
  Tensor build(Tensor x) {
    Tensor mask = dropout(x);
    layer(mask).mean().backward();
    return mask;
  }
};

TEST(AccumulationSteps, DrawOtherNumbersInEachPart) {
  manual_seed(3);
  Masks graph;
  std::vector<std::vector<float>> seen;
  for (int step = 0; step < 2; ++step) {
    const std::vector<float> all = graph(ones({3, 32})).to_vector<float>();
    for (int part = 0; part < 3; ++part) seen.emplace_back(all.begin() + 32 * part, all.begin() + 32 * (part + 1));
  }
  for (std::size_t i = 0; i < seen.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(seen[i], seen[j]) << i << " " << j;
}

TEST(AccumulationSteps, TakeASymbolicBatch) {
  Train fixed("sgd", DType::f32, 0, false, 3), symbolic("sgd", DType::f32, 0, false, 3);
  symbolic.compile(spec({Dim("batch", 24), 5}, "x"), spec({Dim("batch", 24), 1}, "y"));
  const Batch b = batch(0, DType::f32);
  EXPECT_EQ(fixed(b.x, b.y).item<float>(), symbolic(b.x, b.y).item<float>());
  EXPECT_EQ(weights_of(fixed.net), weights_of(symbolic.net));
  EXPECT_NE(error_of([&] { symbolic(b.x.slice(0, 0, 10), b.y.slice(0, 0, 10)); }).find("input 0 ('x') of Train_"),
            std::string::npos);
}

TEST(AccumulationSteps, SayWhatCannotBeDone) {
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  {
    Train graph("sgd", DType::f32, 0, false, 5);
    has(error_of([&] { graph.compile(spec({12, 5}, "x"), spec({12, 1}, "y")); }),
        "the spec of input 0 ('x') is f32[12,5]: dimension 0 is not divisible by the 5 gradient accumulation steps of "
        "Train_");
  }
  {
    Train graph("sgd", DType::f32, 0, false, 4);
    has(error_of([&] { graph.compile(spec({12, 5}, "x"), spec({}, "y")); }),
        "the spec of input 1 ('y') is f32[], and has no dimension 0 that the 4 gradient accumulation steps of Train_");
  }
  {
    Train graph("sgd", DType::f32, 0, false, 4);
    graph.compile(spec({12, 5}, "x"), spec({12, 1}, "y"));
    const Batch b = batch(0, DType::f32);
    has(error_of([&] { graph(b.x.slice(0, 0, 10), b.y); }), "expected f32[12,5], got f32[10,5]");
    has(error_of([&] { graph.set_gradient_accumulation_steps(2); }), "is recorded already");
    has(error_of([&] { graph.set_grad_scaler(amp::GradScaler()); }), "is recorded already");
  }
  {
    Train graph("sgd", DType::f32, 0, false, 4);
    graph.update_in_backward();
    has(error_of([&] { graph.compile(spec({12, 5}, "x"), spec({12, 1}, "y")); }),
        "asks for update_in_backward, and for 4 gradient accumulation steps");
  }
  {
    Train graph("sgd", DType::f32, 0, false);
    graph.update_in_backward();
    graph.set_grad_scaler(amp::GradScaler());
    has(error_of([&] { graph.compile(spec({12, 5}, "x"), spec({12, 1}, "y")); }),
        "asks for update_in_backward, and scales its losses");
  }
  Train graph("sgd", DType::f32, 0, false);
  has(error_of([&] { graph.set_gradient_accumulation_steps(0); }), "must be positive, got 0");
}

TEST(AccumulationSteps, ArePrintedAndSaved) {
  Train graph("sgd", DType::f32, 0, false, 4);
  graph.set_grad_scaler(amp::GradScaler({.init_scale = 256}));
  EXPECT_NE(graph.repr().find("(CONFIG:config:GraphConfig(training=True, gradient_accumulation_steps=4, "
                              "grad_scaler=GradScaler(init_scale=256, growth_factor=2, backoff_factor=0.5, "
                              "growth_interval=2000), ))"),
            std::string::npos)
      << graph.repr();
}

TEST(GradScaler, SaysWhatCannotBeDone) {
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(error_of([] { amp::GradScaler({.init_scale = 0}); }), "init_scale must be a positive number of f32, got 0");
  has(error_of([] { amp::GradScaler({.growth_factor = 1}); }), "growth_factor must be more than 1, got 1");
  has(error_of([] { amp::GradScaler({.backoff_factor = 1}); }), "backoff_factor must lie in (0, 1), got 1");
  has(error_of([] { amp::GradScaler({.growth_interval = 0}); }), "growth_interval must be at least 1, got 0");
  Net net(DType::f32);
  optim::SGD optimizer(net.parameters(), {.lr = 0.1});
  amp::GradScaler scaler;
  has(error_of([&] { scaler.update(); }), "no gradients were looked at since the last one");
  has(error_of([&] { scaler.step(optimizer); }), "no parameter of this sgd has a gradient");
  const Batch b = batch(0, DType::f32);
  scaler.scale(square(net(b.x) - b.y).mean()).backward();
  scaler.unscale_(optimizer);
  has(error_of([&] { scaler.unscale_(optimizer); }), "unscale_() has already been called on this sgd");
  EXPECT_TRUE(scaler.step(optimizer));
  has(error_of([&] { scaler.step(optimizer); }), "step() has already been called on this sgd");
  scaler.update();
  has(error_of([&] { scaler.scale(tensor(std::int64_t{1}, i64)); }), "expected a tensor of floating-point numbers");
}

TEST(GradScaler, StateDict) {
  amp::GradScaler from({.init_scale = 32, .growth_factor = 3, .backoff_factor = 0.25, .growth_interval = 7}), to;
  to.load_state_dict(from.state_dict());
  EXPECT_EQ(to.get_scale(), 32);
  EXPECT_EQ(to.growth_factor(), 3);
  EXPECT_EQ(to.backoff_factor(), 0.25);
  EXPECT_EQ(to.growth_interval(), 7);
  EXPECT_NE(error_of([&] { to.load_state_dict({}); }), "no error");
  amp::GradScaler none({.enabled = false});
  EXPECT_EQ(none.get_scale(), 1);
  EXPECT_TRUE(none.state_dict().empty());
}

}  // namespace
}  // namespace graven::steps_graph_test
