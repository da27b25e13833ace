// state_dict and load_state_dict of modules and graphs: names, strictness, all or nothing, shared and frozen
// parameters, loading before and after the first call. The programs of the graphs are compiled into the cache.
#include <graven/graven.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/call.h"
#include "tests/frontend/error_text.h"
#include "tests/frontend/state_dicts.h"

namespace graven::state_test {
namespace {

using test::error_of;

struct Net : nn::Module<Net> {
  nn::Linear first = child("first", nn::Linear(3, 4));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(4));
  nn::Linear last = child("last", nn::Linear(4, 2));
  Tensor forward(Tensor x) { return last(relu(norm(first(x)))); }
};

struct Train : nn::Graph<Train> {
  Net model;
  Train(Net net, const optim::Optimizer& optimizer) : model(child("model", net)) { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = mse_loss(model(x), y);
    loss.backward();
    return loss;
  }
};

std::vector<std::string> names_of(const nn::StateDict& state) {
  std::vector<std::string> names;
  for (const auto& entry : state) names.push_back(entry.first);
  return names;
}

Tensor& entry(nn::StateDict& state, const std::string& name) {
  for (auto& [n, t] : state)
    if (n == name) return t;
  throw UserError("no " + name);
}

optim::SGD momentum(const Net& net) { return optim::SGD(net.parameters(), {.lr = 0.1, .momentum = 0.9}); }

struct Fault {
  std::string name;
  test::Call<void(nn::StateDict&)> damage;
  std::string error;
  bool strict_only = false;  ///< strict = false passes over it
};
const Fault kFaults[] = {
    {"missing", [](nn::StateDict& s) { s.erase(s.begin()); }, "missing     model.first.weight  f32[4,3]", true},
    {"missing_state", [](nn::StateDict& s) { s.erase(s.end() - 5); }, "missing     model.last.bias-momentum  f32[2]",
     true},
    {"missing_step", [](nn::StateDict& s) { s.pop_back(); }, "missing     train_step  i64[]", true},
    {"unexpected", [](nn::StateDict& s) { s.emplace_back("model.other.weight", zeros({1})); },
     "unexpected  model.other.weight  f32[1]", true},
    {"shape", [](nn::StateDict& s) { entry(s, "model.last.weight") = zeros({2, 5}); },
     "mismatch    model.last.weight  expected f32[2,4], got f32[2,5]"},
    {"rank", [](nn::StateDict& s) { entry(s, "model.last.bias") = zeros({1, 2}); },
     "mismatch    model.last.bias  expected f32[2], got f32[1,2]"},
    {"shape_of_state", [](nn::StateDict& s) { entry(s, "model.first.bias-momentum") = zeros({3}); },
     "mismatch    model.first.bias-momentum  expected f32[4], got f32[3]"},
    {"undefined", [](nn::StateDict& s) { entry(s, "model.last.bias") = Tensor(); },
     "mismatch    model.last.bias  expected f32[2], got an undefined tensor"},
    {"kind", [](nn::StateDict& s) { entry(s, "model.last.bias") = zeros({2}, i64); },
     "mismatch    model.last.bias  expected f32[2], got i64[2]"},
    {"kind_of_step", [](nn::StateDict& s) { entry(s, "train_step") = tensor(1.5); },
     "mismatch    train_step  expected i64[], got f32[]"},
    {"negative_step", [](nn::StateDict& s) { entry(s, "train_step") = tensor(-1); },
     "train_step must not be negative, got -1"},
    {"negative_step_of_another_integer", [](nn::StateDict& s) { entry(s, "train_step") = tensor(-5, i32); },
     "train_step must not be negative, got -5"},
    {"far_step", [](nn::StateDict& s) { entry(s, "train_step") = tensor((std::int64_t{1} << 53) + 1); },
     "train_step must be at most 2^53, got 9007199254740993"},
    {"twice", [](nn::StateDict& s) { s.push_back(s.front()); }, "twice       model.first.weight"},
};

class Faults : public testing::TestWithParam<Fault> {};
TEST_P(Faults, LoadNothing) {
  const Fault& fault = GetParam();
  manual_seed(1);
  Net source, target;
  Train from(source, momentum(source)), into(target, momentum(target));
  nn::StateDict state = copy_of(from.state_dict());
  for (auto& [name, t] : state) t = name == "train_step" ? tensor(3) : t.dtype() == i64 ? t : full(t.shape(), 0.25);
  fault.damage(state);
  const nn::StateDict before = copy_of(into.state_dict());
  for (const bool strict : {true, false}) {
    if (!strict && fault.strict_only) continue;
    EXPECT_NE(error_of([&] { into.load_state_dict(state, strict); }).find(fault.error), std::string::npos)
        << error_of([&] { into.load_state_dict(state, strict); });
    expect_same(into.state_dict(), before);
    EXPECT_EQ(into.train_step(), 0);
  }
  if (fault.strict_only) {
    const nn::LoadReport report = into.load_state_dict(state, false);
    EXPECT_EQ(report.missing.size() + report.unexpected.size(), 1u);
    EXPECT_EQ(into.model.last.bias.to_vector<double>(), (std::vector<double>(2, 0.25)));
  }
}
INSTANTIATE_TEST_SUITE_P(All, Faults, testing::ValuesIn(kFaults), [](const auto& info) { return info.param.name; });

struct Suffixes {
  std::string name;
  test::Call<optim::Optimizer(const Net&)> make;
  std::vector<std::string> suffixes;
  std::vector<std::string> of_vectors = {};  ///< where parameters of one dimension have others
};
const Suffixes kSuffixes[] = {
    {"sgd", [](const Net& n) { return optim::SGD(n.parameters(), {.lr = 0.1}); }, {}},
    {"sgd_momentum", [](const Net& n) { return momentum(n); }, {"-momentum"}},
    {"adam", [](const Net& n) { return optim::Adam(n.parameters(), {.lr = 0.1}); }, {"-m", "-v"}},
    {"rmsprop", [](const Net& n) { return optim::RMSprop(n.parameters()); }, {"-square_avg"}},
    {"rmsprop_whole",
     [](const Net& n) { return optim::RMSprop(n.parameters(), {.momentum = 0.9, .centered = true}); },
     {"-square_avg", "-grad_avg", "-momentum"}},
    {"adagrad", [](const Net& n) { return optim::Adagrad(n.parameters()); }, {"-sum"}},
    {"adadelta", [](const Net& n) { return optim::Adadelta(n.parameters()); }, {"-square_avg", "-acc_delta"}},
    {"lamb", [](const Net& n) { return optim::LAMB(n.parameters()); }, {"-m", "-v"}},
    {"nadam", [](const Net& n) { return optim::NAdam(n.parameters()); }, {"-exp_avg", "-exp_avg_sq"}},
    {"radam", [](const Net& n) { return optim::RAdam(n.parameters()); }, {"-exp_avg", "-exp_avg_sq"}},
    {"adamax", [](const Net& n) { return optim::Adamax(n.parameters()); }, {"-exp_avg", "-exp_inf"}},
    {"rprop", [](const Net& n) { return optim::Rprop(n.parameters()); }, {"-prev", "-step_size"}},
    {"lion", [](const Net& n) { return optim::Lion(n.parameters()); }, {"-exp_avg"}},
    {"adafactor",
     [](const Net& n) { return optim::Adafactor(n.parameters()); },
     {"-row_var", "-col_var"},
     {"-variance"}},
    {"lars", [](const Net& n) { return optim::LARS(n.parameters(), {.momentum = 0.9}); }, {"-momentum"}},
    {"adamw_amsgrad",
     [](const Net& n) { return optim::AdamW(n.parameters(), {.lr = 0.1, .amsgrad = true}); },
     {"-m", "-v", "-max_v"}},
};
class OptimizerState : public testing::TestWithParam<Suffixes> {};
TEST_P(OptimizerState, StandsBehindItsParametersName) {
  Net net;
  Train graph(net, GetParam().make(net));
  std::vector<std::string> expected;
  for (const auto& entry : net.state_dict()) expected.push_back("model." + entry.first);
  for (const auto& [name, parameter] : net.named_parameters()) {
    const bool vector = parameter.shape().rank() == 1 && !GetParam().of_vectors.empty();
    for (const std::string& suffix : vector ? GetParam().of_vectors : GetParam().suffixes)
      expected.push_back("model." + name + suffix);
  }
  for (const char* name : {"seed", "lr.0", "initial_lr.0", "train_step"}) expected.emplace_back(name);
  EXPECT_EQ(names_of(graph.state_dict()), expected);
}
INSTANTIATE_TEST_SUITE_P(All, OptimizerState, testing::ValuesIn(kSuffixes),
                         [](const auto& info) { return info.param.name; });

TEST(GraphState, LoadedBeforeOrAfterTheFirstCallGoesOnExactly) {
  manual_seed(2);
  const Tensor x = randn({6, 3}), y = randn({6, 2});
  Net net;
  Train graph(net, momentum(net));
  for (int i = 0; i < 3; ++i) (void)graph(x, y);
  const std::string path =
      (std::filesystem::temp_directory_path() / ("graven_state_test_" + std::to_string(::getpid()) + ".safetensors"))
          .string();
  nn::save(graph.state_dict(), path);
  const nn::StateDict saved = nn::load(path);
  std::filesystem::remove(path);
  for (int i = 0; i < 2; ++i) (void)graph(x, y);
  for (const bool after : {false, true}) {
    Net other;
    Train resumed(other, momentum(other));
    if (after)
      for (int i = 0; i < 4; ++i) (void)resumed(-x, y);
    resumed.load_state_dict(saved);
    EXPECT_EQ(resumed.train_step(), 3);
    for (int i = 0; i < 2; ++i) (void)resumed(x, y);
    expect_same(resumed.state_dict(), graph.state_dict());
  }
}

TEST(GraphState, FrozenParametersStayAndHaveNoOptimizerState) {
  manual_seed(3);
  Net net;
  Train graph(net, momentum(net));
  EXPECT_EQ(names_of(graph.state_dict()).size(), 19u);
  net.first.requires_grad_(false);  // before the graph is recorded
  const std::vector<std::string> names = names_of(graph.state_dict());
  EXPECT_EQ(std::count(names.begin(), names.end(), "model.first.weight-momentum"), 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), "model.last.weight-momentum"), 1);
  const Tensor frozen = net.first.weight.detach().clone(), trained = net.last.weight.detach().clone();
  for (int i = 0; i < 2; ++i) (void)graph(randn({6, 3}), randn({6, 2}));
  EXPECT_EQ(graph.graph().optimizers[0].groups[0].parameters.size(),
            net.parameters().size() - net.first.parameters().size());
  EXPECT_TRUE(equal(net.first.weight, frozen));
  EXPECT_FALSE(equal(net.last.weight, trained));
  EXPECT_EQ(names_of(graph.state_dict()), names);
}

/// A layer that nobody trains, and the statistics of its results.
struct Normalized : nn::Module<Normalized> {
  nn::Linear first = child("first", nn::Linear(3, 4));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(4, {.affine = false}));
  Normalized() { first.requires_grad_(false); }
  Tensor forward(Tensor x) { return norm(first(x)); }
};
struct InferNormalized : nn::Graph<InferNormalized> {
  Normalized model;
  explicit InferNormalized(Normalized m) : model(child("model", m)) {}
  Tensor build(Tensor x) { return model(x); }
};
struct TrainHead : nn::Graph<TrainHead> {
  Normalized model;
  nn::Linear head = child("head", nn::Linear(4, 1));
  optim::SGD optimizer{head.parameters(), {.lr = 0.1}};
  explicit TrainHead(Normalized m) : model(child("model", m)) { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = mean(head(model(x)));
    loss.backward();
    return loss;
  }
};

TEST(GraphState, WhatAnotherGraphHasWrittenIsSeen) {
  manual_seed(4);
  Normalized net;
  const Tensor x = randn({6, 3}) + 2;
  net.eval();
  InferNormalized infer(net);
  const Tensor before = infer(x);  // the statistics are folded into the weights, once
  net.train();
  TrainHead train(net);
  (void)train(x);
  net.eval();
  const Tensor after = infer(x);
  EXPECT_FALSE(allclose(after, before));
  EXPECT_TRUE(allclose(after, net(x), 1e-5, 1e-5));
}

/// One linear layer under two names, and another layer's weight in a third place.
struct Shared : nn::Module<Shared> {
  nn::Linear encode = child("encode", nn::Linear(3, 3, {.bias = false}));
  nn::Linear again = child("again", encode);
  Tensor tied = parameter("tied", encode.weight);
  Tensor forward(Tensor x) { return matmul(again(encode(x)), tied); }
};
struct TrainShared : nn::Graph<TrainShared> {
  Shared model = child("model", Shared());
  optim::SGD optimizer{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
  TrainShared() { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = mean(model(x));
    loss.backward();
    return loss;
  }
};

TEST(SharedParameters, HaveEveryNameInAModuleAndOneInAGraph) {
  Shared module;
  EXPECT_EQ(module.parameters().size(), 1u);
  EXPECT_EQ(names_of(module.state_dict()), (std::vector<std::string>{"tied", "encode.weight", "again.weight"}));
  TrainShared graph;
  EXPECT_EQ(names_of(graph.state_dict()), (std::vector<std::string>{"model.tied", "model.tied-momentum", "seed", "lr.0",
                                                                    "initial_lr.0", "train_step"}));
}

TEST(SharedParameters, LoadUnderAnyOfTheirNames) {
  for (const char* name : {"tied", "encode.weight", "again.weight"}) {
    Shared module;
    module.load_state_dict({{name, full({3, 3}, 0.5)}});
    EXPECT_EQ(module.tied.to_vector<double>(), (std::vector<double>(9, 0.5))) << name;
    TrainShared graph;
    graph.load_state_dict({{std::string("model.") + name, full({3, 3}, 0.5)},
                           {"model.tied-momentum", zeros({3, 3})},
                           {"train_step", tensor(1)}});
    EXPECT_EQ(graph.model.tied.to_vector<double>(), (std::vector<double>(9, 0.5))) << name;
  }
  Shared module;
  EXPECT_NE(error_of([&] { module.load_state_dict(nn::StateDict{}); }).find("3 entries do not fit"), std::string::npos);
  EXPECT_NE(error_of([&] {
              module.load_state_dict({{"tied", zeros({3, 3})}, {"again.weight", zeros({3})}});
            }).find("mismatch    again.weight"),
            std::string::npos);
}

/// Tied as in PyTorch.
struct Language : nn::Module<Language> {
  nn::Embedding words = child("words", nn::Embedding(7, 4));
  nn::Linear hidden = child("hidden", nn::Linear(4, 4));
  nn::Linear head = child("head", nn::Linear(4, 7));
  Language() { head.weight = words.weight; }
  Tensor forward(Tensor x) { return head(tanh(hidden(words(x)))); }
};
struct TrainLanguage : nn::Graph<TrainLanguage> {
  Language model;
  optim::SGD optimizer;
  explicit TrainLanguage(Language m)
      : model(child("model", m)), optimizer(model.parameters(), {.lr = 0.5, .momentum = 0.9}) {
    add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = cross_entropy(model(x), y);
    loss.backward();
    return loss;
  }
};

TEST(TiedParameters, AreOneParameterUnderTwoNames) {
  Language model;
  EXPECT_TRUE(model.head.weight.is_same(model.words.weight));
  EXPECT_EQ(model.parameters().size(), 4u);
  EXPECT_EQ(names_of(model.named_parameters()),
            (std::vector<std::string>{"words.weight", "hidden.weight", "hidden.bias", "head.bias"}));
  const nn::StateDict state = model.state_dict();
  EXPECT_EQ(names_of(state),
            (std::vector<std::string>{"words.weight", "hidden.weight", "hidden.bias", "head.weight", "head.bias"}));
  EXPECT_TRUE(state[0].second.is_same(state[3].second));
  const Language copy = model;
  EXPECT_TRUE(copy.parameters()[0].is_same(model.words.weight));
  EXPECT_TRUE(copy.head.weight.is_same(model.words.weight));
}

TEST(TiedParameters, LearnAlikeEagerlyAndInGraphs) {
  manual_seed(5);
  Language eager, shared;
  shared.load_state_dict(eager.state_dict());
  const Tensor x = randint(0, 7, {6}), y = randint(0, 7, {6});
  optim::SGD optimizer(eager.parameters(), {.lr = 0.5, .momentum = 0.9});
  TrainLanguage graph(shared);
  for (int step = 0; step < 4; ++step) {
    const Tensor loss = cross_entropy(eager(x), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    EXPECT_NEAR(graph(x, y).item<double>(), loss.item<double>(), 1e-5);
    EXPECT_TRUE(allclose(shared.words.weight, eager.words.weight, 1e-4, 1e-5)) << step;
    EXPECT_TRUE(shared.head.weight.is_same(shared.words.weight));
  }
  EXPECT_EQ(names_of(graph.state_dict()),
            (std::vector<std::string>{"model.words.weight", "model.hidden.weight", "model.hidden.bias",
                                      "model.head.bias", "model.words.weight-momentum", "model.hidden.weight-momentum",
                                      "model.hidden.bias-momentum", "model.head.bias-momentum", "seed", "lr.0",
                                      "initial_lr.0", "train_step"}));
}

TEST(TiedParameters, AreSavedAndLoaded) {
  manual_seed(6);
  Language model, other;
  const std::string path =
      (std::filesystem::temp_directory_path() / ("graven_tied_test_" + std::to_string(::getpid()) + ".safetensors"))
          .string();
  nn::save(model.state_dict(), path);
  other.load_state_dict(nn::load(path));
  std::filesystem::remove(path);
  expect_same(other.state_dict(), model.state_dict());
  EXPECT_TRUE(other.head.weight.is_same(other.words.weight));
  nn::StateDict one = copy_of(model.state_dict());
  one.erase(one.begin() + 3);  // under one of its names, as some files have it
  other.load_state_dict(one);
  expect_same(other.state_dict(), model.state_dict());

  TrainLanguage graph(model);
  graph.compile(spec({6}, i64, "x"), spec({6}, i64, "y"));
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("graven_tied_test_" + std::to_string(::getpid()))).string();
  graph.save(folder);
  nn::SavedGraph saved(folder);
  std::filesystem::remove_all(folder);
  const Tensor x = randint(0, 7, {6}), y = randint(0, 7, {6});
  for (int step = 0; step < 2; ++step) EXPECT_TRUE(equal(saved({x, y})[0], graph(x, y)));
}

TEST(RegisteredTensors, MayBeReplacedAndRemoved) {
  nn::Linear layer(2, 2);
  layer.weight = full({3, 2}, 0.5);
  EXPECT_TRUE(layer.weight.requires_grad());
  EXPECT_TRUE(layer.parameters()[0].is_same(layer.weight));
  layer.bias = Tensor();
  EXPECT_EQ(names_of(layer.state_dict()), (std::vector<std::string>{"weight"}));
  EXPECT_EQ(layer(ones({1, 2})).to_vector<double>(), (std::vector<double>{1, 1, 1}));
  layer.bias = zeros({3});
  EXPECT_EQ(names_of(layer.state_dict()), (std::vector<std::string>{"weight", "bias"}));
  // Of two layers of one class; and whole layers are handles as ever.
  nn::Linear other(2, 3);
  other.weight = layer.weight;
  EXPECT_TRUE(other.parameters()[0].is_same(layer.weight));
  nn::Linear handle(5, 5);
  const Tensor kept = handle.weight;
  handle = other;
  EXPECT_TRUE(handle.weight.is_same(other.weight));
  EXPECT_EQ(handle.state(), other.state());
  handle.bias = layer.bias;
  EXPECT_TRUE(other.named("bias").is_same(layer.bias));
  EXPECT_EQ(kept.size(0), 5);
  // A buffer stays one.
  nn::BatchNorm1d norm(2);
  norm.running_mean = full({2}, 3.0);
  EXPECT_FALSE(norm.running_mean.requires_grad());
  EXPECT_TRUE(norm.named_buffers()[0].second.is_same(norm.running_mean));
}

TEST(RegisteredTensors, SayWhatIsWrong) {
  nn::Linear layer(2, 2, {.bias = false});
  EXPECT_NE(error_of([&] { layer.bias = zeros({2}); }).find("a member that its module did not register"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              layer.weight = layer.weight * 2;
            }).find("the result of an operator, f32[2,2], is assigned to 'weight' of Linear"),
            std::string::npos);
  EXPECT_NE(error_of([&] { layer.weight = zeros({2, 2}, i64); }).find("'weight' of Linear must be floating-point"),
            std::string::npos);
  struct Local : nn::Module<Local> {
    nn::Linear inner = child("inner", nn::Linear(2, 2));
    Tensor forward(Tensor x) {
      auto weight = inner.weight;
      weight = weight.detach();
      return linear(x, weight);
    }
  };
  EXPECT_NE(error_of([] { Local()(ones({1, 2})); }).find("assigned to 'weight' of Linear within forward() or build()"),
            std::string::npos);

  // A copy that was made before.
  nn::Linear first(2, 2), second(2, 2);
  nn::Sequential net(first, second);
  second.weight = first.weight;
  EXPECT_EQ(net.parameters().size(), 3u);
  const std::string stale = error_of([&] { net(ones({1, 2})); });
  EXPECT_NE(stale.find("this copy of Linear has a 'weight' that was replaced"), std::string::npos) << stale;
  EXPECT_NE(stale.find("at state_test.cpp:"), std::string::npos) << stale;
}

TEST(RegisteredTensors, AreNotReplacedBehindAGraphsBack) {
  const Tensor x = tensor({1, 2}), y = tensor({3, 4});
  Language model;
  TrainLanguage graph(model);
  (void)graph(x, y);
  graph.model.hidden.weight = zeros({4, 4});
  const std::string text = error_of([&] { (void)graph(x, y); });
  EXPECT_NE(text.find("model.hidden.weight is another tensor than when TrainLanguage_"), std::string::npos) << text;
  EXPECT_NE(text.find("at state_test.cpp:"), std::string::npos) << text;
  EXPECT_NE(error_of([&] { (void)graph.state_dict(); }).find("model.hidden.weight is another tensor"),
            std::string::npos);

  TrainLanguage late((Language()));
  late.model.hidden.weight = zeros({4, 4});
  EXPECT_NE(
      error_of([&] { (void)late(x, y); }).find("in whose place another was registered: make the optimizer after that"),
      std::string::npos);
}

}  // namespace
}  // namespace graven::state_test
