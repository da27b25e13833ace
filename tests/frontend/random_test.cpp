// Dropout and random numbers: eagerly, recorded, differentiated, trained, resumed, evaluated.
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <cmath>
#include <cstring>
#include <map>

#include "frontend/eager/executor.h"
#include "ir/analysis.h"
#include "ir/op.h"
#include "ir/passes/derive_evaluation.h"
#include "tests/frontend/error_text.h"

namespace graven::random_test {
namespace {

double mean_of(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x;
  return sum / static_cast<double>(v.size());
}
double variance_of(const std::vector<double>& v) {
  const double m = mean_of(v);
  double sum = 0;
  for (const double x : v) sum += (x - m) * (x - m);
  return sum / static_cast<double>(v.size());
}

TEST(Random, MomentsAreThoseOfTheDistributions) {
  manual_seed(5);
  constexpr std::int64_t kCount = 100000;
  const auto close = [](double expected, double variance, double found) {  // five standard errors
    EXPECT_NEAR(found, expected, 5 * std::sqrt(variance / kCount));
  };
  for (const double p : {0.1, 0.5, 0.9}) {
    const std::vector<double> y = dropout(ones({kCount}), p).to_vector<double>();
    close(1, p / (1 - p), mean_of(y));
    EXPECT_NEAR(variance_of(y), p / (1 - p), 0.2 * p / (1 - p));
    // Neighbours do not know of each other.
    double product = 0;
    for (std::size_t i = 0; i + 1 < y.size(); ++i) product += (y[i] - 1) * (y[i + 1] - 1);
    close(0, p / (1 - p) * p / (1 - p), product / kCount);
  }
  const Tensor like = zeros({kCount});
  const std::vector<double> uniform = rand_like(like).to_vector<double>(),
                            normal = randn_like(like).to_vector<double>();
  close(0.5, 1.0 / 12, mean_of(uniform));
  EXPECT_NEAR(variance_of(uniform), 1.0 / 12, 0.002);
  close(0, 1, mean_of(normal));
  EXPECT_NEAR(variance_of(normal), 1, 0.03);
  for (const double u : uniform) ASSERT_TRUE(u >= 0 && u < 1);
  close(0.3, 0.21, mean_of(bernoulli(zeros({kCount}) + 0.3).to_vector<double>()));
  for (const double wrong : {1.5, -0.25, std::nan("")}) {
    const std::string said = test::error_of([&] { (void)bernoulli(tensor({0.0, 1.0, wrong})); });
    EXPECT_NE(said.find("bernoulli: the probabilities must lie in [0, 1], got "), std::string::npos) << said;
  }
  for (const double u : rand_like(zeros({2000}, f16)).to_vector<double>()) ASSERT_TRUE(u >= 0 && u < 1);
}

TEST(Random, MultinomialDrawsInProportion) {
  manual_seed(8);
  constexpr std::int64_t kCount = 40000;
  const Tensor p = tensor({{0.0, 1.0, 3.0, 0.0, 4.0}, {2.0, 0.0, 0.0, 0.0, 2.0}});
  const std::vector<std::vector<double>> share = {{0, 0.125, 0.375, 0, 0.5}, {0.5, 0, 0, 0, 0.5}};
  const Tensor many = multinomial(p, kCount, true);
  ASSERT_EQ(many.sizes(), (Sizes{2, kCount}));
  ASSERT_EQ(many.dtype(), i64);
  const Tensor firsts = multinomial(p.select(0, 0).expand({kCount, 5}), 3);
  ASSERT_EQ(firsts.sizes(), (Sizes{kCount, 3}));
  for (std::int64_t row = 0; row < 2; ++row) {
    const std::vector<double> found = bincount(many[row], {}, 5).to_vector<double>();
    for (std::size_t i = 0; i < 5; ++i) {
      const double q = share[static_cast<std::size_t>(row)][i];
      EXPECT_NEAR(found[i] / kCount, q, 5 * std::sqrt(q * (1 - q) / kCount)) << row << ", " << i;
    }
  }
  // Without replacement the first is drawn in proportion, too, and all three that are possible come once.
  const std::vector<double> first = bincount(firsts.select(1, 0), {}, 5).to_vector<double>();
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(first[i] / kCount, share[0][i], 5 * std::sqrt(share[0][i] * (1 - share[0][i]) / kCount)) << i;
  EXPECT_TRUE(equal(std::get<0>(sort(firsts, 1)), tensor({1, 2, 4}).expand({kCount, 3})));
  EXPECT_EQ(multinomial(tensor({0.0, 2.0}), 1).to_vector<int>(), (std::vector<int>{1}));
}

TEST(Random, MultinomialSumsLargeNumbersInDouble) {
  manual_seed(9);
  constexpr std::int64_t kCount = 3000;
  const std::vector<double> found = bincount(multinomial(full({3}, 3e38), kCount, true), {}, 3).to_vector<double>();
  for (const double n : found) EXPECT_NEAR(n / kCount, 1.0 / 3, 0.05);
  EXPECT_NE(test::error_of([] {
              multinomial(full({3}, 1e308, f64), 2, true);
            }).find("the sum of the probabilities is not finite"),
            std::string::npos);
}

TEST(Random, GumbelSoftmaxDrawsFromTheSoftmax) {
  manual_seed(9);
  constexpr std::int64_t kCount = 40000;
  const Tensor logits = log(tensor({1.0, 3.0, 4.0})).expand({kCount, 3});
  const Tensor hard = gumbel_softmax(logits, 0.7, true);
  EXPECT_TRUE(allclose(hard.sum(-1), ones({kCount}), 1e-6, 1e-6));
  EXPECT_TRUE(allclose(hard.amax(-1), ones({kCount}), 1e-6, 1e-6));
  const std::vector<double> found = hard.mean(0).to_vector<double>();
  const double share[] = {0.125, 0.375, 0.5};
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(found[i], share[i], 5 * std::sqrt(share[i] * (1 - share[i]) / kCount)) << i;
  const Tensor soft = gumbel_softmax(logits, 2);
  EXPECT_TRUE(allclose(soft.sum(-1), ones({kCount}), 1e-5, 1e-5));
  // The one-hot result has the soft one's gradient, which a constant sum of weights makes nothing.
  Tensor leaf = randn({4, 3}).requires_grad_();
  manual_seed(10);
  (gumbel_softmax(leaf, 1, true) * arange(3)).sum().backward();
  const Tensor of_hard = leaf.grad().clone();
  leaf.set_grad({});
  manual_seed(10);
  (gumbel_softmax(leaf) * arange(3)).sum().backward();
  EXPECT_TRUE(allclose(of_hard, leaf.grad(), 1e-6, 1e-6));
  EXPECT_GT(abs(of_hard).sum().item<double>(), 0);
}

TEST(Random, TheGradientHasTheMaskOfTheResult) {
  manual_seed(6);
  Tensor x = ones({50, 40}).requires_grad_();
  const Tensor y = dropout(x, 0.3);
  y.sum().backward();
  EXPECT_TRUE(equal(x.grad(), y.detach()));
  EXPECT_FALSE(equal(dropout(x.detach(), 0.3), y.detach())) << "another call draws other numbers";
  manual_seed(6);
  EXPECT_TRUE(equal(dropout(x.detach(), 0.3), y.detach())) << "the same seed, the same numbers";
}

TEST(Random, ChannelsAreDroppedWhole) {
  manual_seed(7);
  const std::vector<double> y = dropout2d(ones({20, 10, 3, 4}), 0.5).to_vector<double>();
  int dropped = 0;
  for (std::size_t c = 0; c < 200; ++c) {
    for (std::size_t i = 1; i < 12; ++i) ASSERT_EQ(y[c * 12 + i], y[c * 12]);
    dropped += y[c * 12] == 0;
  }
  EXPECT_NEAR(dropped, 100, 35);
  EXPECT_EQ(nn::Dropout1d(0.5)(ones({4, 5, 6})).describe(), "f32[4,5,6]");
  EXPECT_EQ(nn::Dropout3d(0.5)(ones({4, 1, 2, 3})).describe(), "f32[4,1,2,3]");
  EXPECT_THROW(dropout2d(ones({4, 5})), UserError);
}

struct Block : nn::Module<Block> {
  nn::Linear fc = child("fc", nn::Linear(16, 16));
  nn::Dropout drop = child("drop", nn::Dropout(0.4));
  Tensor forward(Tensor x) { return drop(relu(fc(x))); }
};
struct Net : nn::Module<Net> {
  nn::Linear in = child("in", nn::Linear(6, 16));
  nn::ModuleList<Block> blocks = child("blocks", nn::ModuleList<Block>());
  nn::Linear out = child("out", nn::Linear(16, 3));
  explicit Net(int count) {
    for (int i = 0; i < count; ++i) blocks.push_back(Block());
  }
  Tensor forward(Tensor x) {
    x = dropout(in(x), 0.2, is_training());
    for (Block& b : blocks) x = b(x);
    return out(x);
  }
};
struct TrainNet : nn::Graph<TrainNet> {
  Net model;
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer;
  explicit TrainNet(Net net) : model(child("model", net)), optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9}) {
    add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = loss_fn(model(x), labels);
    loss.backward();
    return loss;
  }
};

std::map<std::string, std::int64_t> streams(const ir::Graph& graph) {
  std::map<std::string, std::int64_t> found;
  for (const ir::Node& n : graph.nodes)
    if (n.op->name == "dropout") found.emplace(n.origins.back().module, n.attributes.integer("stream"));
  return found;
}

TEST(Random, AddingALayerChangesNoOtherLayersNumbers) {
  TrainNet two(Net(2)), three(Net(3));
  for (TrainNet* g : {&two, &three}) g->compile(spec({8, 6}), spec({8}, i64));
  const auto a = streams(two.graph()), b = streams(three.graph());
  ASSERT_EQ(a.size(), 3u);
  ASSERT_EQ(b.size(), 4u);
  std::map<std::int64_t, int> distinct;
  for (const auto& [path, stream] : b) ++distinct[stream];
  EXPECT_EQ(distinct.size(), 4u);
  for (const auto& [path, stream] : a) EXPECT_EQ(b.at(path), stream) << path;
}

TEST(Random, EvaluationDropsNothing) {
  TrainNet graph(Net(2));
  graph.compile(spec({8, 6}), spec({8}, i64));
  const ir::Graph evaluation = ir::evaluation_graph(graph.graph());
  for (const ir::Node& n : evaluation.nodes) EXPECT_NE(n.op->name, "dropout");
}

/// Each counts otherwise, so that none can stand for another.
struct DropEveryWay : nn::Module<DropEveryWay> {
  nn::Dropout plain = child("plain", nn::Dropout(0.3));
  nn::Dropout2d channels = child("channels", nn::Dropout2d(0.3));
  nn::AlphaDropout alpha = child("alpha", nn::AlphaDropout(0.3)), all = child("all", nn::AlphaDropout(1));
  nn::StochasticDepth rows = child("rows", nn::StochasticDepth(0.3)),
                      batch = child("batch", nn::StochasticDepth(0.3, "batch"));
  Tensor forward(Tensor x) {
    Tensor y = plain(x) + 2 * channels(x);
    y = y + 4 * alpha(x) + 8 * all(x);
    return y + 16 * rows(x) + 32 * batch(x);
  }
};
struct TrainDropping : nn::Graph<TrainDropping> {
  DropEveryWay model = child("model", DropEveryWay());
  nn::Conv2d conv = child("conv", nn::Conv2d(3, 2, 1));
  optim::SGD optimizer{conv.parameters(), {.lr = 0}};
  TrainDropping() { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = conv(model(x)).square().mean();
    loss.backward();
    return loss;
  }
};

TEST(Random, EvaluationOfEveryDropoutIsThatOfTheModules) {
  manual_seed(11);
  TrainDropping graph;
  graph.compile(spec({4, 3, 5, 5}));
  const Tensor x = randn({4, 3, 5, 5});
  graph.model.eval();
  const double expected = graph.conv(graph.model(x)).square().mean().item<double>();

  const ir::Graph evaluation = ir::evaluation_graph(graph.graph());
  eager::Environment values;
  const auto give = [&](ir::ValueId id, const Tensor& t) {
    const auto* bytes = static_cast<const std::byte*>(t.data_ptr());
    values[id] = {evaluation.type(id), {bytes, bytes + t.numel() * 4}};
  };
  give(evaluation.inputs.at(0), x);
  for (const ir::ValueId id : evaluation.parameters)
    for (const auto& [name, t] : graph.state_dict())
      if (name == evaluation.value(id).name) give(id, t);
  eager::execute(evaluation, values);
  float found = 0;
  std::memcpy(&found, values.at(evaluation.outputs.at(0)).bytes.data(), sizeof found);
  EXPECT_NEAR(found, expected, 1e-4 * expected);
}

TEST(Random, StochasticDepthLeavesOutSamplesOrAll) {
  manual_seed(8);
  const std::vector<double> y = stochastic_depth(ones({400, 3, 2}), 0.2).to_vector<double>();
  int dropped = 0;
  for (std::size_t sample = 0; sample < 400; ++sample) {
    for (std::size_t i = 0; i < 6; ++i) ASSERT_EQ(y[sample * 6 + i], y[sample * 6]);
    ASSERT_TRUE(y[sample * 6] == 0 || y[sample * 6] == 1.25);
    dropped += y[sample * 6] == 0;
  }
  EXPECT_NEAR(dropped, 80, 40);
  int batches = 0;
  for (int i = 0; i < 100; ++i) {
    const std::vector<double> all = stochastic_depth(ones({3, 2}), 0.5, "batch").to_vector<double>();
    for (const double v : all) ASSERT_EQ(v, all[0]);
    batches += all[0] == 0;
  }
  EXPECT_NEAR(batches, 50, 25);
  const Tensor x = randn({2, 3});
  EXPECT_TRUE(equal(stochastic_depth(x, 0.5, "row", false), x));
  EXPECT_TRUE(equal(stochastic_depth(x, 1), zeros({2, 3})));
  EXPECT_EQ(nn::StochasticDepth(0.2).repr(), "StochasticDepth(p=0.2, mode=row)");
  EXPECT_THROW(stochastic_depth(x, 0.5, "column"), UserError);
  EXPECT_THROW(nn::StochasticDepth(1.5), UserError);
}

struct Infer : nn::Graph<Infer> {
  Net model;
  explicit Infer(Net net) : model(child("model", net)) {}
  Tensor build(Tensor x) { return model(x); }
};

TEST(Random, AGraphWithoutAnOptimizerDrawsNothing) {
  Net net(1);
  Infer training(net);
  const std::string text = test::error_of([&] { training.compile(spec({8, 6})); });
  EXPECT_NE(text.find("draws random numbers, and Infer_"), std::string::npos) << text;
  EXPECT_NE(text.find("call eval() on the module"), std::string::npos) << text;
  net.eval();
  Infer evaluated(net);
  evaluated.compile(spec({8, 6}));
  for (const ir::Node& n : evaluated.graph().nodes) EXPECT_FALSE(ir::is_random(n));
}

/// What a user's forward() draws by itself, in every way that there is.
struct DrawAll : nn::Graph<DrawAll> {
  nn::Linear layer = child("layer", nn::Linear(2, 1));
  optim::SGD optimizer{layer.parameters(), {.lr = 0}};
  DrawAll() { add_optimizer(optimizer); }
  std::map<std::string, Tensor> build(Tensor x) {
    layer(x).mean().backward();
    Tensor uniform = x + 0, normal = x + 1;
    uniform.uniform_(-3, -1);
    normal.normal_(5, 2);
    return {{"rand", rand({2000}, f64)},
            {"randn", randn(x.shape())},
            {"randint", randint(-3, 4, {2000})},
            {"randperm", randperm(50)},
            {"half", rand({2000}, f16)},
            {"uniform_", uniform},
            {"normal_", normal},
            {"dropout", dropout(ones({2000}), 0.5)},
            {"dropout2d", dropout2d(ones({1, 500, 2, 2}), 0.5)},
            {"bernoulli", bernoulli(full({2000}, 0.25))},
            {"rand_like", rand_like(zeros({2000}))}};
  }
};

TEST(Random, WhatBuildDrawsIsDrawnAnewInEachStep) {
  DrawAll graph;
  const Tensor x = zeros({1000, 2});
  const auto first = graph(x), second = graph(x);
  const auto moments = [&](const char* name, double mean, double variance) {
    const std::vector<double> v = first.at(name).to_vector<double>();
    EXPECT_NEAR(mean_of(v), mean, 6 * std::sqrt(variance / static_cast<double>(v.size()))) << name;
    EXPECT_NEAR(variance_of(v), variance, 0.2 * variance) << name;
  };
  for (const auto& [name, t] : first)
    EXPECT_FALSE(equal(t, second.at(name))) << name << ": the same numbers in another step";
  moments("rand", 0.5, 1.0 / 12);
  moments("half", 0.5, 1.0 / 12);
  moments("randn", 0, 1);
  moments("randint", 0, 4);
  moments("uniform_", -2, 1.0 / 3);
  moments("normal_", 5, 4);
  moments("bernoulli", 0.25, 0.1875);
  EXPECT_EQ(first.at("randn").shape(), x.shape());
  EXPECT_EQ(first.at("half").dtype(), f16);
  for (const std::int64_t i : first.at("randint").to_vector<std::int64_t>()) ASSERT_TRUE(i >= -3 && i < 4) << i;
  for (const double u : first.at("uniform_").to_vector<double>()) ASSERT_TRUE(u >= -3 && u < -1) << u;
  EXPECT_TRUE(equal(std::get<0>(first.at("randperm").sort()), arange(50)));
  EXPECT_TRUE(equal(x, zeros({1000, 2}))) << "an input changed in place stays the caller's";
}

struct DrawInInference : nn::Graph<DrawInInference> {
  Tensor build(Tensor x) { return x + randn({2}); }
};
struct DrawTooMuch : nn::Graph<DrawTooMuch> {
  Tensor build(Tensor x) { return x + randint(0, (std::int64_t{1} << 24) + 1, {2}); }
};
TEST(Random, WhatCannotBeDrawnIsAnError) {
  DrawInInference graph;
  const std::string text = test::error_of([&] { graph.compile(spec({2})); });
  EXPECT_NE(text.find("random_normal: draws random numbers, and DrawInInference_"), std::string::npos) << text;
  EXPECT_NE(text.find("draw them outside and make them an input"), std::string::npos) << text;
  DrawTooMuch wide;
  const std::string range = test::error_of([&] { wide.compile(spec({2})); });
  EXPECT_NE(range.find("within a graph high - low must be at most 2^24, got 16777217"), std::string::npos) << range;
}

TEST(Random, AResumedRunDrawsWhatItWouldHaveDrawn) {
  manual_seed(11);
  const Tensor x = randn({32, 6}), labels = randint(0, 3, {32});
  TrainNet whole(Net(2));
  nn::StateDict start, middle;
  whole.compile(spec({32, 6}), spec({32}, i64));
  for (const auto& [name, t] : whole.state_dict()) start.emplace_back(name, t.detach().clone());
  whole.set_threads(1);
  std::vector<double> losses;
  for (int step = 0; step < 6; ++step) {
    if (step == 3)
      for (const auto& [name, t] : whole.state_dict()) middle.emplace_back(name, t.detach().clone());
    losses.push_back(whole(x, labels).item<double>());
  }
  TrainNet resumed(Net(2));
  resumed.load_state_dict(middle);
  resumed.set_threads(2);
  for (int step = 3; step < 6; ++step)
    EXPECT_EQ(resumed(x, labels).item<double>(), losses[static_cast<std::size_t>(step)]) << step;
  for (std::size_t i = 0; i < whole.model.parameters().size(); ++i)
    EXPECT_TRUE(equal(whole.model.parameters()[i], resumed.model.parameters()[i]))
        << "bit for bit, with another number of threads";
  // Another seed is another run.
  TrainNet other(Net(2));
  other.load_state_dict(start);
  manual_seed(12);
  EXPECT_NE(other(x, labels).item<double>(), losses[0]);
}

}  // namespace
}  // namespace graven::random_test
