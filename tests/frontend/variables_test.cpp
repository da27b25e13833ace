// Parameters, buffers and what is computed of them, changed in place within build(): each sentence means what it means
// eagerly, in its results, its gradients and what the variables hold after each of three steps. The sentences stand in
// one graph, each with variables of its own, so that passes also see what is equal in several of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <graven/graven.h>
#include <string>
#include <vector>

#include "tests/call.h"
#include "tests/frontend/error_text.h"

// Of its own: the tests of this folder are compiled together.
namespace graven::changed_variables {

struct Variables : nn::Module<Variables> {
  Tensor p = parameter("p", tensor({{0.5, -1.0}, {1.5, 0.25}})),
         q = parameter("q", tensor({{-0.75, 2.0}, {0.1, -0.3}}));
  Tensor a = buffer("a", tensor({{0.2, 0.4}, {-0.6, 0.8}})), b = buffer("b", tensor({{1.0, 3.0}, {-2.0, 0.7}}));
};

using Results = std::vector<Tensor>;
struct Sentence {
  std::string name;
  test::Call<Results(Variables&, Tensor)> say;
};

Tensor learn(const Tensor& loss) {
  loss.backward();
  return loss;
}
Tensor loss_of(const Variables& v, const Tensor& x) { return learn((matmul(x, v.p) * v.q).square().mean()); }
void quietly(const test::Call<void()>& change) {
  NoGradGuard guard;
  change();
}

/// Around a training step.
std::vector<Sentence> training_sentences() {
  return {
      {"ParameterFromBuffer",
       [](Variables& v, Tensor x) -> Results {
         Tensor loss = loss_of(v, x);
         quietly([&] { v.p.copy_(v.a); });
         return {loss};
       }},
      {"ParameterFromParameter",
       [](Variables& v, Tensor x) -> Results {
         quietly([&] { v.p.copy_(v.q); });
         return {loss_of(v, x)};
       }},
      {"ParameterFromParameterBehindBackward",
       [](Variables& v, Tensor x) -> Results {
         Tensor loss = loss_of(v, x);
         quietly([&] { v.p.copy_(v.q); });
         return {loss};
       }},
      {"ExchangeOfParameters",
       [](Variables& v, Tensor x) -> Results {
         quietly([&] {
           const Tensor p = v.p.clone();
           v.p.copy_(v.q);
           v.q.copy_(p);
         });
         return {loss_of(v, x)};
       }},
      {"ExchangeOfParametersBehindBackward",
       [](Variables& v, Tensor x) -> Results {
         Tensor loss = loss_of(v, x);
         quietly([&] {
           const Tensor p = v.p.clone();
           v.p.copy_(v.q);
           v.q.copy_(p);
         });
         return {loss};
       }},
      {"ExchangeWithABuffer",
       [](Variables& v, Tensor x) -> Results {
         Tensor loss = loss_of(v, x);
         quietly([&] {
           const Tensor a = v.a.clone();
           v.a.copy_(v.p);
           v.p.copy_(a);
         });
         return {loss, v.a};
       }},
      {"ParameterFromItsAverage",
       [](Variables& v, Tensor x) -> Results {
         Tensor loss = loss_of(v, x);
         quietly([&] {
           v.a.mul_(0.9).add_(v.p * 0.1);
           v.p.copy_(v.a);
         });
         return {loss};
       }},
      {"BothParametersFromOneValue",
       [](Variables& v, Tensor x) -> Results {
         quietly([&] {
           const Tensor mean = (v.p + v.q) * 0.5;
           v.p.copy_(mean);
           v.q.copy_(mean);
         });
         return {loss_of(v, x)};
       }},
      {"BothParametersFilled",
       [](Variables& v, Tensor x) -> Results {
         quietly([&] {
           v.p.fill_(0.5);
           v.q.fill_(0.5);
         });
         return {loss_of(v, x)};
       }},
      {"BufferFromParameterInTheLoss",
       [](Variables& v, Tensor x) -> Results {
         quietly([&] { v.a.copy_(v.p); });
         return {learn((x * v.a * v.q + v.p * 0.1).square().mean())};
       }},
      {"BufferFromClippedParameterInTheLoss",
       [](Variables& v, Tensor x) -> Results {
         quietly([&] {
           v.p.clamp_(-0.3, 0.3);
           v.a.copy_(v.p);
         });
         return {learn((x * v.a * v.q + v.p * 0.1).square().mean())};
       }},
      {"LocalFromParameterInTheLoss",
       [](Variables& v, Tensor x) -> Results {
         Tensor t = x * 1;
         quietly([&] { t.copy_(v.p); });
         return {learn((t * v.q + v.p * 0.1).square().mean())};
       }},
      {"ActivationShifted",
       [](Variables& v, Tensor x) -> Results {
         Tensor t = x + v.p;
         quietly([&] { t.add_(0.1); });
         return {learn((t * v.p).mean() + v.q.mean())};
       }},
      {"ActivationMasked",
       [](Variables& v, Tensor x) -> Results {
         Tensor t = matmul(x, v.p);
         quietly([&] { t.masked_fill_(x > 0.5, 0.0); });
         return {learn((t * v.q).square().mean())};
       }},
      {"ActivationZeroed",
       [](Variables& v, Tensor x) -> Results {
         Tensor t = matmul(x, v.p);
         quietly([&] { t.zero_(); });
         return {learn((t * v.q + v.q).square().mean())};
       }},
      {"ViewOfAParameterHalved",
       [](Variables& v, Tensor x) -> Results {
         Tensor row = v.p.view({4});
         quietly([&] { row.mul_(0.5); });
         return {learn((row * x.view({4})).square().mean() + v.q.square().mean())};
       }},
      {"ParameterFromActivation",
       [](Variables& v, Tensor x) -> Results {
         Tensor t = tanh(x + v.p);
         quietly([&] { v.p.copy_(t); });
         return {learn((t * v.q).mean() + v.p.square().mean())};
       }},
      {"ClippedBehindTheFirstOfTwoLosses",  // a critic's weights, which the generator's loss then reads
       [](Variables& v, Tensor x) -> Results {
         Tensor critic = learn((matmul(x, v.p)).square().mean());
         quietly([&] { v.p.clamp_(-0.3, 0.3); });
         v.p.requires_grad_(false);
         Tensor generator = learn((matmul(v.q, v.p) + x).square().mean());
         v.p.requires_grad_(true);
         return {critic, generator};
       }},
      {"SnapshotOfTheOldParameter",
       [](Variables& v, Tensor x) -> Results {
         Tensor loss = loss_of(v, x);
         quietly([&] {
           v.b.copy_(v.p - v.a);
           v.a.copy_(v.p);
         });
         return {loss, v.b};
       }},
  };
}

/// Of buffers alone; results are what build() saw.
std::vector<Sentence> inference_sentences() {
  return {
      {"BufferFromBufferThatChanges",
       [](Variables& v, Tensor) -> Results {
         v.a.copy_(v.b);
         v.b.mul_(2);
         return {v.a, v.a + 1, v.b};
       }},
      {"ExchangeOfBuffers",
       [](Variables& v, Tensor x) -> Results {
         const Tensor a = v.a.clone();
         v.a.copy_(v.b);
         v.b.copy_(a);
         return {v.a, v.b, x * v.a};
       }},
      {"ViewsOfABufferThatTookAnothersValue",
       [](Variables& v, Tensor x) -> Results {
         v.a.copy_(v.b);
         v.b.add_(x);
         return {v.a.view({4}), v.a[0]};
       }},
      {"CloneOfABufferThatChanges",
       [](Variables& v, Tensor x) -> Results {
         Tensor t = v.a.clone();
         v.a.add_(x);
         return {t, t.view({4})};
       }},
      {"LocalFromABufferThatChanges",
       [](Variables& v, Tensor x) -> Results {
         Tensor t = x * 1;
         t.copy_(v.a);
         v.a.add_(x);
         return {t, t.view({4})};
       }},
  };
}

struct All : nn::Graph<All> {
  std::vector<Sentence> sentences;
  std::vector<Variables> variables;
  All(std::vector<Sentence> said, bool trains) : sentences(std::move(said)) {
    std::vector<Tensor> parameters;
    for (std::size_t i = 0; i < sentences.size(); ++i) {
      variables.push_back(child("s" + std::to_string(i), Variables()));
      for (const Tensor& p : variables.back().parameters()) parameters.push_back(p);
    }
    if (trains) add_optimizer(optim::SGD(parameters, {.lr = 0.1, .momentum = 0.9}));
  }
  std::vector<Results> build(Tensor x) {
    std::vector<Results> results;
    for (std::size_t i = 0; i < sentences.size(); ++i) results.push_back(sentences[i].say(variables[i], x.clone()));
    return results;
  }
};

Tensor input_of(int step) { return tensor({{1.0 + step, -0.5}, {0.3 * step, 2.0}}); }

void expect_equal(const Tensor& expected, const Tensor& found, const std::string& what) {
  ASSERT_EQ(expected.shape(), found.shape()) << what;
  const auto e = expected.detach().to(DType::f64).contiguous().to_vector<double>(),
             f = found.detach().to(DType::f64).contiguous().to_vector<double>();
  for (std::size_t i = 0; i < e.size(); ++i) EXPECT_NEAR(e[i], f[i], 1e-5 * (1 + std::abs(e[i]))) << what;
}

void expect_as_eagerly(const std::vector<Sentence>& sentences, bool trains, bool in_backward) {
  All graph(sentences, trains);
  if (in_backward) graph.update_in_backward();
  std::vector<Variables> eager(sentences.size());
  std::vector<optim::SGD> optimizers;
  for (Variables& v : eager) optimizers.emplace_back(v.parameters(), optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < 3; ++step) {
    const std::vector<Results> results = graph(input_of(step));
    for (std::size_t i = 0; i < sentences.size(); ++i) {
      const std::string what = sentences[i].name + ", step " + std::to_string(step);
      optimizers[i].zero_grad();
      const Results expected = sentences[i].say(eager[i], input_of(step));
      ASSERT_EQ(expected.size(), results[i].size());
      for (std::size_t k = 0; k < expected.size(); ++k)
        expect_equal(expected[k], results[i][k], what + ", result " + std::to_string(k));
      if (trains) optimizers[i].step();
      const nn::StateDict own = graph.variables[i].state_dict();
      const nn::StateDict other = eager[i].state_dict();
      for (std::size_t k = 0; k < own.size(); ++k)
        expect_equal(other[k].second, own[k].second, what + ", " + own[k].first);
    }
  }
}

TEST(ChangedVariables, MeanInAGraphWhatTheyMeanEagerly) { expect_as_eagerly(training_sentences(), true, false); }

TEST(ChangedVariables, MeanTheSameWhereUpdatesStandInBackward) { expect_as_eagerly(training_sentences(), true, true); }

TEST(ChangedVariables, AreReturnedAsBuildSawThem) { expect_as_eagerly(inference_sentences(), false, false); }

struct One : nn::Graph<One> {
  test::Call<void(Variables&, Tensor)> change;
  Variables v = child("v", Variables());
  explicit One(test::Call<void(Variables&, Tensor)> c) : change(std::move(c)) {
    add_optimizer(optim::SGD(v.parameters(), {.lr = 0.1}));
  }
  Tensor build(Tensor x) {
    change(v, x);
    return loss_of(v, x);
  }
};

TEST(ChangedVariables, LeavesAreRefusedWithoutAGuardAsEagerly) {
  const std::vector<std::pair<std::string, test::Call<void(Variables&, Tensor)>>> changes = {
      {"mul_: a leaf that requires a gradient", [](Variables& v, Tensor) { v.p.mul_(0.5); }},
      {"copy_: a leaf that requires a gradient", [](Variables& v, Tensor x) { v.p.copy_(x); }},
      {"fill_: a view of a leaf that requires a gradient", [](Variables& v, Tensor) { v.p[0] = 1.0; }},
  };
  for (const auto& c : changes) {
    const std::string& says = c.first;
    const auto& change = c.second;
    One graph(change);
    const std::string text = test::error_of([&] { graph(input_of(0)); });
    EXPECT_NE(text.find(says), std::string::npos) << text;
    Variables v;
    EXPECT_NE(test::error_of([&] { change(v, input_of(0)); }).find(says), std::string::npos) << says;
  }
}

TEST(ChangedVariables, WhatAGradientNeedsStaysUntilBackward) {
  One graph([](Variables& v, Tensor x) {
    const Tensor product = matmul(x, v.a + v.p);
    const Tensor used = v.b * product;
    quietly([&] { v.b.mul_(2); });
    used.mean().backward();
  });
  const std::string text = test::error_of([&] { graph(input_of(0)); });
  EXPECT_NE(text.find("'v.b' f32[2,2], which a gradient needs, is changed in place after it is used, and before "
                      "backward()"),
            std::string::npos)
      << text;
}

struct Halve : nn::Graph<Halve> {
  nn::Linear layer;
  explicit Halve(nn::Linear l) : layer(child("layer", l)) {}
  Tensor build(Tensor x) {
    NoGradGuard guard;
    layer.weight.mul_(0.5);
    return layer(x);
  }
};
struct Apply : nn::Graph<Apply> {
  nn::Linear layer;
  explicit Apply(nn::Linear l) : layer(child("layer", l)) {}
  Tensor build(Tensor x) { return layer(x); }
};

TEST(ChangedVariables, AreSeenByOtherGraphsWhoeverChangesThem) {
  const nn::Linear layer(4, 3);
  Apply apply(layer);
  Halve halve(layer);
  const Tensor x = ones({2, 4});
  for (int step = 0; step < 2; ++step) {
    halve(x);
    expect_equal(layer(x), apply(x), "step " + std::to_string(step));
  }
}

TEST(ChangedVariables, AreSeenByAGraphThatWerePointedTo) {
  const nn::Linear layer(4, 64);
  Apply apply(layer);
  const Tensor x = ones({2, 4});
  apply(x);
  std::fill_n(layer.weight.data<float>(), layer.weight.numel(), 1.0F);
  expect_equal(layer(x), apply(x), "by data()");
  std::fill_n(static_cast<float*>(layer.bias.data_ptr()), layer.bias.numel(), 2.0F);
  expect_equal(layer(x), apply(x), "by data_ptr()");
}

struct Half : nn::Graph<Half> {
  nn::Linear used = child("used", nn::Linear(2, 2)), unused = child("unused", nn::Linear(2, 2));
  Half() {
    std::vector<Tensor> parameters = used.parameters();
    for (const Tensor& t : unused.parameters()) parameters.push_back(t);
    add_optimizer(optim::SGD(parameters, {.lr = 0.1, .momentum = 0.9}));
  }
  Tensor build(Tensor x) { return learn(used(x).square().mean()); }
};

TEST(StatesOfAGraph, OfParametersWithoutALossAreKnownBehindCompile) {
  Half saved;
  saved(ones({2, 2}));
  const nn::StateDict state = saved.state_dict();
  Half loaded;
  const std::string text = test::error_of([&] { loaded.load_state_dict(state); });
  EXPECT_NE(text.find("where no loss depends on some of them, compile() it first"), std::string::npos) << text;
  loaded.compile(spec({2, 2}));
  loaded.load_state_dict(state);
  expect_equal(saved(ones({2, 2})), loaded(ones({2, 2})), "resumed");
  expect_equal(saved.used.weight, loaded.used.weight, "resumed");
}

}  // namespace graven::changed_variables
