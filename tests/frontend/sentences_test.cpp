// What users write around a training step: each sentence stands in a loop of eager mode and in a graph's build(), and
// means the same in both, or the graph says in one error, with the line, that it cannot.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <graven/graven.h>
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/call.h"
#include "tests/frontend/error_text.h"

namespace graven {
namespace {

struct Net : nn::Module<Net> {
  nn::Linear first = child("first", nn::Linear(3, 8)), second = child("second", nn::Linear(8, 2));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.5));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(8));
  Tensor scale = buffer("scale", ones({2}));
  Tensor forward(Tensor x) { return second(tanh(first(x))) * scale; }
};

struct Step {
  Net& net;
  optim::Optimizer& optimizer;
  Tensor x, y;
  Tensor loss() const { return mse_loss(net(x), y); }
};

/// One step until the update, and what it returns.
using Sentence = test::Call<Tensor(const Step&)>;

struct Learn : nn::Graph<Learn> {
  Sentence sentence;
  Net net = child("net", Net());
  optim::Optimizer optimizer;
  explicit Learn(Sentence s)
      : sentence(std::move(s)), optimizer(optim::SGD(net.parameters(), {.lr = 0.5, .momentum = 0.9})) {
    add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor y) { return sentence({net, optimizer, x, y}); }
};

Tensor data_of(int step) {
  return tensor({{1.0, -2.0, 0.5}, {0.25, 3.0, -1.0}, {-1.5, 0.5, 2.0}, {2.0, 1.0, -0.5}}) * (1 + 0.25 * step);
}
Tensor target_of(int step) { return tensor({{1.0, 0.0}, {-1.0, 2.0}, {0.5, 0.5}, {3.0, -2.0}}) + 0.1 * step; }

struct Case {
  std::string name;
  Sentence sentence;
  std::string refused = {};  ///< what the graph's error says; empty: it computes the same
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const double kInfinity = std::numeric_limits<double>::infinity();

std::vector<Case> cases() {
  using nn::utils::clip_grad_norm_;
  using nn::utils::clip_grad_value_;
  const auto after = [](test::Call<void(const Step&)> then) {
    return [then](const Step& s) {
      Tensor loss = s.loss();
      loss.backward();
      then(s);
      return loss;
    };
  };
  return {
      {"Backward", after([](const Step&) {})},
      {"ClipNorm", after([](const Step& s) { clip_grad_norm_(s.net.parameters(), 0.1); })},
      {"ClipNormThatIsSmallEnough", after([](const Step& s) { clip_grad_norm_(s.net.parameters(), 1e6); })},
      {"ClipNormToNothing", after([](const Step& s) { clip_grad_norm_(s.net.parameters(), 0); })},
      {"ClipLargest", after([](const Step& s) { clip_grad_norm_(s.net.parameters(), 0.05, kInfinity); })},
      {"ClipSum", after([](const Step& s) { clip_grad_norm_(s.net.parameters(), 0.2, 1); })},
      {"ClipNormOfOrderThree", after([](const Step& s) { clip_grad_norm_(s.net.parameters(), 0.2, 3); })},
      {"ClipNormOfOneLayer", after([](const Step& s) { clip_grad_norm_(s.net.second.parameters(), 0.05); })},
      {"ClipEachLayerByItself", after([](const Step& s) {
         clip_grad_norm_(s.net.first.parameters(), 0.05);
         clip_grad_norm_(s.net.second.parameters(), 0.1);
       })},
      {"ClipALayerAndThenAll", after([](const Step& s) {
         clip_grad_norm_(s.net.first.parameters(), 0.05);
         clip_grad_norm_(s.net.parameters(), 0.06);
       })},
      {"ClipValue", after([](const Step& s) { clip_grad_value_(s.net.parameters(), 0.01); })},
      {"ClipValueAndNorm", after([](const Step& s) {
         clip_grad_value_(s.net.parameters(), 0.05);
         clip_grad_norm_(s.net.parameters(), 0.08);
       })},
      {"ClipNormAndValue", after([](const Step& s) {
         clip_grad_norm_(s.net.parameters(), 0.08);
         clip_grad_value_(s.net.parameters(), 0.02);
       })},
      {"FreezeALayer",
       [](const Step& s) {
         s.net.first.requires_grad_(false);
         Tensor loss = s.loss();
         loss.backward();
         s.net.first.requires_grad_(true);
         return loss;
       }},
      {"FreezeALayerForOneOfTwoLosses",
       [](const Step& s) {
         s.net.first.requires_grad_(false);
         Tensor one = s.loss();
         one.backward();
         s.net.first.requires_grad_(true);
         Tensor two = l1_loss(s.net(s.x * 0.5), s.y);
         two.backward();
         return one + two;
       }},
      {"FreezeAParameter",
       [](const Step& s) {
         s.net.second.weight.requires_grad_(false);
         Tensor loss = s.loss();
         loss.backward();
         s.net.second.weight.requires_grad_(true);
         return loss;
       }},
      {"Detach",
       [](const Step& s) {
         Tensor loss =
             mse_loss(s.net.second(tanh(s.net.first(s.x)).detach()), s.y) + s.net.first.weight.square().mean();
         loss.backward();
         return loss;
       }},
      {"NoGradForAPart",
       [](const Step& s) {
         Tensor hidden;
         {
           NoGradGuard no_grad;
           hidden = tanh(s.net.first(s.x));
         }
         Tensor loss = mse_loss(s.net.second(hidden), s.y) + s.net.first.bias.square().sum();
         loss.backward();
         return loss;
       }},
      {"TwoLosses",
       [](const Step& s) {
         Tensor one = s.loss(), two = l1_loss(s.net(s.x), s.y);
         one.backward();
         two.backward();
         return one + two;
       }},
      {"OneLossTwice",
       [](const Step& s) {
         Tensor loss = s.loss();
         loss.backward({}, true);
         loss.backward();
         return loss;
       },
       "this loss went backward in this build() already"},
      {"BackwardWithAGradient",
       [](const Step& s) {
         Tensor out = s.net(s.x);
         out.backward((out - s.y).detach() * 0.25);
         return mse_loss(out, s.y);
       }},
      {"ZeroGradBeforeBackward",
       [](const Step& s) {
         s.optimizer.zero_grad();
         Tensor loss = s.loss();
         loss.backward();
         return loss;
       }},
      {"ZeroGradOfTheModuleBeforeBackward",
       [](const Step& s) {
         s.net.zero_grad();
         Tensor loss = s.loss();
         loss.backward();
         return loss;
       }},
      {"EvalWithinTheStep",
       [](const Step& s) {
         s.net.eval();
         Tensor loss = mse_loss(s.net.second(s.net.dropout(s.net.norm(s.net.first(s.x)))), s.y);
         s.net.train();
         loss.backward();
         return loss;
       }},
      {"BatchNormTrains",
       [](const Step& s) {
         Tensor loss = mse_loss(s.net.second(s.net.norm(s.net.first(s.x))), s.y);
         loss.backward();
         return loss;
       }},
      {"AMetricWithoutGradient",
       [](const Step& s) {
         Tensor loss = s.loss();
         loss.backward();
         NoGradGuard no_grad;
         return (s.net(s.x) - s.y).abs().mean();
       }},
      {"ABufferIsWritten",
       [](const Step& s) {
         Tensor loss = mse_loss(s.net.second(s.net.first(s.x)) * s.net.scale.clone(), s.y);
         loss.backward();
         NoGradGuard no_grad;
         s.net.scale.mul_(0.9);
         return loss;
       }},
      {"AssignToARow",
       [](const Step& s) {
         Tensor x = s.x * 1;
         x[0] = s.net.first.bias.narrow(0, 0, 3);
         x[-1] = 0.5;
         x.index({indexing::Slice(), 1}) = s.y.select(1, 0);
         Tensor loss = mse_loss(s.net(x), s.y);
         loss.backward();
         return loss;
       }},
      {"AssignToAPartOfABuffer",
       [](const Step& s) {
         Tensor loss = mse_loss(s.net.second(s.net.first(s.x)) * s.net.scale.clone(), s.y);
         loss.backward();
         NoGradGuard no_grad;
         s.net.scale[0] = s.net.scale[1] * 0.5;
         return loss;
       }},
      {"ALocalNameOfAParameterIsAssignedTo",
       [](const Step& s) {
         Tensor w = s.net.second.weight;
         w = w * 0.5;
         Tensor loss = mse_loss(linear(s.net.first(s.x), w, s.net.second.bias), s.y);
         loss.backward();
         return loss;
       }},
      {"ABufferIsAssignedTo",
       [](const Step& s) {
         Tensor loss = mse_loss(s.net.second(s.net.first(s.x)), s.y);
         loss.backward();
         NoGradGuard no_grad;
         s.net.scale = s.net.scale * 0.9;
         return loss;
       },
       "Write into its memory: scale.copy_(...)"},
      {"ABufferThatTheGradientReadsIsWritten",
       [](const Step& s) {
         Tensor loss = s.loss();
         loss.backward();
         NoGradGuard no_grad;
         s.net.scale.mul_(0.9);
         return loss;
       }},
      {"AModuleIsCalledTwice",
       [](const Step& s) {
         Tensor loss = mse_loss(s.net(s.x) + s.net(-s.x), s.y);
         loss.backward();
         return loss;
       }},
      {"NothingIsLearnt", [](const Step& s) { return s.loss(); },
       "has an optimizer, but its build() calls backward() on no loss"},
      {"ReadAGradient", after([](const Step& s) { (void)s.net.first.weight.grad(); }),
       "grad: within build() gradients are not there yet"},
      {"SetAGradient", after([](const Step& s) { s.net.first.weight.set_grad(zeros({8, 3})); }),
       "set_grad: within build() gradients are not there yet"},
      {"GradOfALoss",
       [](const Step& s) {
         Tensor loss = s.loss();
         Tensor penalty = grad({loss}, {s.net.first.weight}, {}, true)[0].square().sum();
         loss.backward();
         return penalty;
       },
       "grad: within build() gradients are not there yet"},
      {"StepOfTheOptimizer", after([](const Step& s) { s.optimizer.step(); }), "step()"},
      {"SetTheLearningRate", after([](const Step& s) { s.optimizer.set_learning_rate(0.5); }),
       "set_learning_rate() within build(), which runs once: call it outside of it"},
      {"LoadTheOptimizer", after([](const Step& s) { s.optimizer.load_state_dict(s.optimizer.state_dict()); }),
       "load_state_dict() of an optimizer within build()"},
      {"ZeroGradBehindBackward", after([](const Step& s) { s.optimizer.zero_grad(); }),
       "zero_grad() behind backward()"},
      {"ZeroGradOfTheModuleBehindBackward", after([](const Step& s) { s.net.zero_grad(); }),
       "zero_grad() behind backward()"},
      {"ClipBeforeBackward",
       [](const Step& s) {
         Tensor loss = s.loss();
         clip_grad_norm_(s.net.parameters(), 0.1);
         loss.backward();
         return loss;
       },
       "there are no gradients before backward()"},
      {"ClipBetweenBackwards",
       [](const Step& s) {
         Tensor loss = s.loss();
         loss.backward();
         clip_grad_norm_(s.net.parameters(), 0.1);
         Tensor other = l1_loss(s.net(s.x), s.y);
         other.backward();
         return other;
       },
       "a later backward() adds to the gradient"},
      {"LookAtTheNorm", after([](const Step& s) {
         const double norm = clip_grad_norm_(s.net.parameters(), 0.1);
         if (norm > 1) s.net.eval();
       }),
       "the norm is a number that the graph finds when it runs"},
      {"ErrorIfNotFinite", after([](const Step& s) { clip_grad_norm_(s.net.parameters(), 0.1, 2, true); }),
       "error_if_nonfinite"},
      {"LookAtTheLoss",
       [](const Step& s) {
         Tensor loss = s.loss();
         if (loss.item<double>() < 100) loss.backward();
         return loss;
       },
       "item"},
      {"LookAtNumbers",
       [](const Step& s) {
         Tensor loss = s.loss();
         if (s.x.to_vector<float>()[0] < 100) loss.backward();
         return loss;
       },
       "sentences_test.cpp"},
      {"Seed", after([](const Step&) { manual_seed(7); }), "manual_seed"},
  };
}

class Sentences : public testing::TestWithParam<Case> {};
class RefusedSentences : public testing::TestWithParam<Case> {};

/// Those that a graph refuses, or the others.
std::vector<Case> cases_that_are(bool refused) {
  std::vector<Case> chosen;
  for (Case& c : cases())
    if (c.refused.empty() != refused) chosen.push_back(std::move(c));
  return chosen;
}

TEST_P(RefusedSentences, GiveAnErrorThatSaysWhere) {
  Learn graph(GetParam().sentence);
  const std::string text = test::error_of([&] { (void)graph(data_of(0), target_of(0)); });
  EXPECT_NE(text.find(GetParam().refused), std::string::npos) << text;
  EXPECT_NE(text.find("sentences_test.cpp:"), std::string::npos) << text;
}

TEST_P(Sentences, MeanTheSameInAGraph) {
  constexpr int kSteps = 4;
  manual_seed(5);
  Net eager;
  optim::Optimizer optimizer = optim::SGD(eager.parameters(), {.lr = 0.5, .momentum = 0.9});
  manual_seed(5);
  Learn graph(GetParam().sentence);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const Tensor expected = GetParam().sentence({eager, optimizer, data_of(step), target_of(step)});
    optimizer.step();
    const Tensor found = graph(data_of(step), target_of(step));
    EXPECT_TRUE(allclose(found, expected, 1e-5, 1e-6)) << "step " << step << ": " << found << expected;
  }
  const auto learned = graph.net.state_dict();
  for (const auto& [name, value] : eager.state_dict()) {
    const auto it =
        std::find_if(learned.begin(), learned.end(), [&, n = name](const auto& entry) { return entry.first == n; });
    ASSERT_NE(it, learned.end()) << name;
    EXPECT_TRUE(allclose(it->second.to(f32), value.to(f32), 1e-4, 1e-5)) << name;
  }
}

const auto kName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Written, Sentences, testing::ValuesIn(cases_that_are(false)), kName);
INSTANTIATE_TEST_SUITE_P(Written, RefusedSentences, testing::ValuesIn(cases_that_are(true)), kName);

/// What is said after the graph has been recorded.
// ---- numbers that meet integer tensors ------------------------------------------------------------------------------

/// What is written with a tensor of integers and a number, and what becomes of it.
using WithANumber = test::Call<Tensor(Tensor, Scalar)>;
/// A graph of such sentences, one after the other; what they give stands in one vector.
struct WithNumbers : nn::Graph<WithNumbers> {
  std::vector<std::pair<WithANumber, Scalar>> sentences;
  Tensor build(Tensor x) {
    std::vector<Tensor> results;
    for (const auto& [sentence, number] : sentences) results.push_back(sentence(x * 1, number));
    return cat(results);
  }
};

TEST(NumbersInIntegerTensors, FitOrAreOneErrorInAGraphAsEagerly) {
  const std::pair<const char*, WithANumber> sentences[] = {
      {"new_full", [](Tensor x, Scalar n) { return x.new_full({2}, n); }},
      {"full_like", [](Tensor x, Scalar n) { return full_like(x, n); }},
      {"fill_", [](Tensor x, Scalar n) { return x.fill_(n); }},
      {"masked_fill", [](Tensor x, Scalar n) { return x.masked_fill(x > 1, n); }},
      {"masked_fill_", [](Tensor x, Scalar n) { return x.masked_fill_(x > 1, n); }},
      {"index_fill", [](Tensor x, Scalar n) { return index_fill(x, 0, tensor({0, 2}), n); }},
      {"index_put", [](Tensor x, Scalar n) { return index_put(x, {tensor({1})}, n); }},
      {"index_put_", [](Tensor x, Scalar n) { return x.index_put_({tensor({1})}, n); }},
      {"a view's fill_", [](Tensor x, Scalar n) { return x.index({indexing::Slice(1, 3)}).fill_(n), x; }},
      {"scatter", [](Tensor x, Scalar n) { return scatter(x, 0, tensor({2, 0}), n); }},
  };
  const Scalar numbers[] = {7, 255, -1, -255, 300, -256, 127.9, -0.5, -1.5, 255.9, 256.0, 1e30, kInfinity, true};
  int refused = 0;
  for (const DType dtype : {DType::u8, DType::i8, DType::i32, DType::i64, DType::f32}) {
    WithNumbers graph;
    std::vector<Tensor> expected;
    const auto given = [&] { return tensor({1, 2, 3}, dtype); };
    for (const auto& entry : sentences) {
      const WithANumber& sentence = entry.second;
      for (const Scalar number : numbers) {
        SCOPED_TRACE(fmt::format("{} of {}, {}", entry.first, ir::name(dtype), number.number()));
        const std::string said = test::error_of([&] { expected.push_back(sentence(given(), number)); });
        if (said == "no error") {
          graph.sentences.emplace_back(sentence, number);
          continue;
        }
        ++refused;
        WithNumbers refusing;
        refusing.sentences = {{sentence, number}};
        const std::string says = test::error_of([&] { refusing(given()); });
        const auto message = [](const std::string& text) {
          const std::size_t start = std::min(text.find("the numbers of"), text.size());
          return text.substr(start, text.find('\n') - start);
        };
        EXPECT_FALSE(message(said).empty()) << said;
        EXPECT_EQ(message(says), message(said));
        EXPECT_NE(said.find("sentences_test.cpp:"), std::string::npos) << said;
        EXPECT_NE(says.find("sentences_test.cpp:"), std::string::npos) << says;
      }
    }
    const Tensor found = graph(given());
    EXPECT_EQ(found.dtype(), dtype);
    EXPECT_TRUE(equal(found, cat(expected))) << found << cat(expected);
  }
  EXPECT_EQ(refused, 10 * (6 + 8 + 2 + 2));  // by dtype
}

TEST(SentencesAfterwards, AreObeyedOrRefused) {
  const auto plain = [](const Step& s) {
    Tensor loss = mse_loss(s.net.second(s.net.norm(s.net.first(s.x))), s.y);
    loss.backward();
    return loss;
  };
  const auto said = [&](const test::Call<void(Learn&)>& sentence) {
    manual_seed(5);
    Learn graph(plain);
    (void)graph(data_of(0), target_of(0));
    return test::error_of([&] {
      sentence(graph);
      (void)graph(data_of(1), target_of(1));
    });
  };
  EXPECT_NE(said([](Learn& g) { g.net.eval(); }).find("was in training mode when"), std::string::npos);
  EXPECT_NE(said([](Learn& g) { g.net.first.requires_grad_(false); }).find("required a gradient when"),
            std::string::npos);
  EXPECT_EQ(said([](Learn& g) { g.optimizer.set_learning_rate(0.01); }), "no error");
  EXPECT_EQ(said([](Learn& g) { g.net.load_state_dict(Net().state_dict()); }), "no error");
  Learn graph(plain);
  (void)graph(data_of(0), target_of(0));
  NoGradGuard no_grad;
  EXPECT_NE(test::error_of([&] { (void)graph(data_of(1), target_of(1)); }).find("is called under NoGradGuard"),
            std::string::npos);
}

}  // namespace
}  // namespace graven
