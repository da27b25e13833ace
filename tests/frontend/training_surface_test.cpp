// What surrounds a training step: averages of weights behind the update, gradients and rates that are read from
// outside, groups of parameters that change between steps, penalties, what a run is resumed with, two losses of two
// optimizers. Beside PyTorch's figures (tests/fixtures/make_surface.py), and in a graph beside the same sentence of
// eager mode.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <graven/graven.h>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/call.h"
#include "tests/frontend/error_text.h"

namespace graven::training_surface_test {
namespace {

using test::error_of;

constexpr std::int64_t kBatch = 12;
constexpr int kSteps = 20;

nlohmann::json fixture(DType dtype) {
  std::ifstream file(GRAVEN_SOURCE_DIR "/tests/fixtures/surface.json");
  return nlohmann::json::parse(file).at(dtype == DType::f64 ? "float64" : "float32");
}

template <class F>
Tensor numbers(F&& f, std::int64_t rows, std::int64_t columns, DType dtype) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < rows * columns; ++i) values.push_back(f(static_cast<double>(i)));
  return from_data(values, {rows, columns}).to(dtype);
}
Tensor x_of(double t, DType dtype) {
  return numbers([&](double i) { return std::sin(0.37 * i + 0.11 * t + 1); }, kBatch, 5, dtype);
}
Tensor y_of(double t, DType dtype) {
  return numbers([&](double i) { return std::cos(0.5 * i + t); }, kBatch, 1, dtype);
}

void fill(nn::ModuleBase module, DType dtype) {
  module.to(dtype);
  int k = 0;
  const NoGradGuard no_grad;
  for (const nn::ModuleBase& part : module.modules())
    for (const char* name : {"weight", "bias"}) {
      Tensor p = part.named(name);
      if (!p.defined()) continue;
      if (part.class_name() != "BatchNorm1d") {
        std::vector<double> values;
        for (std::int64_t i = 0; i < p.numel(); ++i) values.push_back(0.4 * std::sin(static_cast<double>(i + 1 + k)));
        p.copy_(from_data(values, p.shape()));
      }
      ++k;
    }
}

std::vector<double> flat(const std::vector<Tensor>& tensors) {
  std::vector<double> all;
  for (const Tensor& t : tensors) {
    const std::vector<double> own = t.detach().to(DType::f64).to_vector<double>();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}
std::vector<double> flat(const nn::NamedTensors& tensors) {
  std::vector<Tensor> list;
  for (const auto& entry : tensors) list.push_back(entry.second);
  return flat(list);
}

void expect_close(const std::vector<double>& found, const std::vector<double>& expected, DType dtype) {
  ASSERT_EQ(found.size(), expected.size());
  const double tolerance = dtype == DType::f64 ? 1e-10 : 3e-5;
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], tolerance * std::max(1.0, std::fabs(expected[i]))) << i;
}

// ---- averages of weights --------------------------------------------------------------------------------------------

struct Net : nn::Module<Net> {
  nn::Linear hidden = child("hidden", nn::Linear(5, 7));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(7));
  nn::Linear last = child("last", nn::Linear(7, 1));
  Tensor forward(Tensor x) { return last(norm(tanh(hidden(x)))); }
};

/// A step around its update, which eager code makes where a graph says nothing.
struct Step {
  Net& net;
  Net& average;
  Tensor x, y;
  test::Call<void()> update;
  Tensor loss() const { return square(net(x) - y).mean(); }
};
using Sentence = test::Call<Tensor(const Step&)>;

Tensor average_in_a_module(const Step& s) {
  Tensor loss = s.loss();
  loss.backward();
  s.update();
  nn::utils::update_average_(s.average, s.net, 0.9);
  return loss;
}

struct Train : nn::Graph<Train> {
  Sentence sentence;
  Net net = child("net", Net()), average = child("average", Net());
  optim::AdamW optimizer{net.parameters(), {.lr = 0.01, .weight_decay = 0.1}};
  lr_scheduler::StepLR schedule{optimizer, {.step_size = 7, .gamma = 0.5}};
  explicit Train(Sentence s, DType dtype = f32) : sentence(std::move(s)) {
    fill(net, dtype);
    fill(average, dtype);
    add_optimizer(optimizer, schedule);
  }
  Tensor build(Tensor x, Tensor y) {
    return sentence({net, average, x, y, [] {}});
  }
};

class InDType : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(TrainingSurface, InDType, testing::Values(f32, f64),
                         [](const auto& info) { return std::string(ir::name(info.param)); });

TEST_P(InDType, AnAverageOfWeightsAndWhatIsReadOnTheWayArePyTorchs) {
  const nlohmann::json expected = fixture(GetParam()).at("average");
  for (const int way : {0, 1, 2, 3}) {  // eagerly; a graph; its updates apart; its updates in backward
    SCOPED_TRACE(way);
    Train graph(average_in_a_module, GetParam());
    if (way == 2) graph.allow_fuse_model_update_ops(false);
    if (way == 3) graph.update_in_backward();
    std::vector<double> losses, norms, rates;
    for (int t = 0; t < kSteps; ++t) {
      const Tensor x = x_of(t, GetParam()), y = y_of(t, GetParam());
      rates.push_back(graph.learning_rates().at(0));
      if (way == 0) {
        graph.optimizer.zero_grad();
        losses.push_back(average_in_a_module({graph.net, graph.average, x, y,
                                              [&] {
                                                norms.push_back(
                                                    nn::utils::clip_grad_norm_(graph.net.parameters(), 1e9));
                                                graph.optimizer.step();
                                                graph.schedule.step();
                                              }})
                             .item<double>());
      } else {
        losses.push_back(graph(x, y).item<double>());
        if (way < 3) norms.push_back(graph.gradient_norm());
      }
    }
    expect_close(losses, expected.at("losses"), GetParam());
    expect_close(rates, expected.at("rates"), f64);
    if (way < 3) expect_close(norms, expected.at("norms"), GetParam());
    expect_close(flat(graph.net.parameters()), expected.at("weights"), GetParam());
    expect_close(flat(graph.average.parameters()), expected.at("average"), GetParam());
    expect_close(flat(graph.average.named_buffers()), expected.at("buffers"), GetParam());
    if (way == 1 || way == 2) {
      const nn::StateDict gradients = graph.gradients();
      ASSERT_EQ(gradients.size(), 6U);
      EXPECT_EQ(gradients[0].first, "net.hidden.weight");
      expect_close(flat({gradients[0].second}), expected.at("gradient"), GetParam());
    }
  }
}

struct Case {
  std::string name;
  Sentence sentence;
  std::string refused = {};  ///< what the graph's error says; empty: it computes the same
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

std::vector<Case> cases() {
  const auto behind = [](test::Call<void(const Step&)> then) {
    return [then](const Step& s) {
      Tensor loss = s.loss();
      loss.backward();
      s.update();
      then(s);
      return loss;
    };
  };
  return {
      {"AverageOfAModule", average_in_a_module},
      {"AverageOfALayer", behind([](const Step& s) { nn::utils::update_average_(s.average.last, s.net.last, 0.5); })},
      {"AverageByHand", behind([](const Step& s) {
         nn::AfterUpdate after;
         const auto averages = s.average.parameters(), weights = s.net.parameters();
         for (std::size_t i = 0; i < weights.size(); ++i) {
           Tensor a = averages[i];
           a.mul_(0.99).add_(weights[i] * 0.01);
         }
       })},
      {"AMomentumEncoderOfDetachedWeights", behind([](const Step& s) {
         nn::AfterUpdate after;
         Tensor a = s.average.last.weight;
         a.copy_(0.7 * a + 0.3 * s.net.last.weight.detach());
       })},
      {"AHardCopyOfATargetNetwork", behind([](const Step& s) {
         nn::AfterUpdate after;
         Tensor a = s.average.hidden.weight;
         a.copy_(s.net.hidden.weight);
       })},
      {"AViewOfAParameterIsTakenBefore",
       [](const Step& s) {
         Tensor row = s.net.hidden.weight[0], loss = s.loss();
         loss.backward();
         s.update();
         nn::AfterUpdate after;
         Tensor a = s.average.hidden.weight;
         a[1] = row * 2;
         return loss;
       }},
      {"AParameterThatBuildChangesFirst",
       [](const Step& s) {
         {
           NoGradGuard no_grad;
           s.net.last.weight.clamp_(-0.2, 0.2);
         }
         return average_in_a_module(s);
       }},
      {"TheAverageIsReadByTheStep",
       [](const Step& s) {
         Tensor target;
         {
           NoGradGuard no_grad;
           s.average.eval();
           target = s.average(s.x) * 1;
           s.average.train();
         }
         Tensor loss = square(s.net(s.x) - target - s.y).mean();
         loss.backward();
         s.update();
         nn::utils::update_average_(s.average, s.net, 0.8);
         return loss;
       }},
      {"TwoAverages", behind([](const Step& s) {
         nn::utils::update_average_(s.average.last, s.net.last, 0.5);
         nn::utils::update_average_(s.average.hidden, s.net.hidden, 0.25);
       })},
      {"L2Penalty",
       [](const Step& s) {
         Tensor loss = s.loss();
         for (const Tensor& p : s.net.parameters()) loss = loss + 1e-3 * p.square().sum();
         loss.backward();
         s.update();
         return loss;
       }},
      {"L1Penalty",
       [](const Step& s) {
         Tensor loss = s.loss();
         for (const auto& [name, p] : s.net.named_parameters())
           if (name.ends_with("weight")) loss = loss + 1e-3 * p.abs().sum();
         loss.backward();
         s.update();
         return loss;
       }},
      {"BeforeBackward",
       [](const Step& s) {
         nn::utils::update_average_(s.average, s.net, 0.9);
         return average_in_a_module(s);
       },
       "stands behind backward()"},
      {"WhatWasComputedBefore", behind([](const Step& s) {
         nn::AfterUpdate after;
         Tensor a = s.average.last.weight;
         a.copy_(s.x.narrow(0, 0, 1).sum().expand({1, 7}));
       }),
       "was there before the update"},
      {"AResultBehindAnAverage", behind([](const Step& s) {
         nn::utils::update_average_(s.average, s.net, 0.9);
         (void)(s.x * 2 + s.average.last.weight.sum()).sum();
       }),
       "what stands behind update_average_ (training_surface_test.cpp:"},
      {"AParameterThatIsUpdated", behind([](const Step& s) {
         nn::AfterUpdate after;
         Tensor w = s.net.last.weight;
         w.clamp_(-0.1, 0.1);
       }),
       "net.last.weight is what the graph's update gives"},
      {"BackwardBehindIt",
       [](const Step& s) {
         Tensor loss = average_in_a_module(s);
         (loss * 2).backward();
         return loss;
       },
       "before the update"},
      {"ClipBehindIt", behind([](const Step& s) {
         nn::utils::update_average_(s.average, s.net, 0.9);
         nn::utils::clip_grad_norm_(s.net.parameters(), 1);
       }),
       "clip_grad_norm_ stands behind what reads the updated parameters"},
      {"RandomNumbers", behind([](const Step& s) {
         nn::AfterUpdate after;
         Tensor a = s.average.last.weight;
         a.copy_(rand_like(a));
       }),
       "nothing random is drawn behind the update"},
      {"TheModelItself", behind([](const Step& s) { nn::utils::update_average_(s.net, s.net, 0.9); }),
       "hidden.weight of the average is the model's own"},
      {"OtherNames", behind([](const Step& s) { nn::utils::update_average_(s.average.last, s.net, 0.9); }),
       "the average has 2 parameters, the model 6"},
      {"TheUpdatedParameterAsAResult",
       [](const Step& s) {
         average_in_a_module(s);
         return s.net.last.weight;
       },
       "returns f32[1,7], which is there only behind the update"},
      {"TheAverageAsAResult",
       [](const Step& s) {
         average_in_a_module(s);
         return s.average.last.bias;
       },
       "returns f32[1], which is there only behind the update"},
      {"WhatIsComputedOfThemAsAResult",
       [](const Step& s) {
         average_in_a_module(s);
         return (s.net.last.weight - s.average.last.weight).abs().sum();
       },
       "returns f32[], which is there only behind the update"},
      {"NoDecay", behind([](const Step& s) { nn::utils::update_average_(s.average, s.net, 1.5); }),
       "decay must lie in [0, 1], got 1.5"},
  };
}

class BehindTheUpdate : public testing::TestWithParam<Case> {};
class RefusedBehindTheUpdate : public testing::TestWithParam<Case> {};
std::vector<Case> cases_that_are(bool refused) {
  std::vector<Case> chosen;
  for (Case& c : cases())
    if (c.refused.empty() != refused) chosen.push_back(std::move(c));
  return chosen;
}

TEST_P(BehindTheUpdate, MeansTheSameInAGraph) {
  for (const std::int64_t parts : {1, 3}) {
    if (parts == 3 && GetParam().name.ends_with("Step")) continue;  // batch norms of parts are others
    SCOPED_TRACE(parts);
    Train eager(GetParam().sentence), graph(GetParam().sentence);
    for (Train* t : {&eager, &graph})
      for (Net* net : {&t->net, &t->average}) net->norm.eval();
    graph.set_gradient_accumulation_steps(parts);
    for (int t = 0; t < 4; ++t) {
      const Tensor x = x_of(t, f32), y = y_of(t, f32);
      eager.optimizer.zero_grad();
      const Tensor expected = GetParam().sentence({eager.net, eager.average, x, y, [&] {
                                                     eager.optimizer.step();
                                                     eager.schedule.step();
                                                   }});
      EXPECT_TRUE(allclose(graph(x, y), expected, 1e-5, 1e-6)) << t;
    }
    expect_close(flat(graph.net.parameters()), flat(eager.net.parameters()), f32);
    expect_close(flat(graph.average.parameters()), flat(eager.average.parameters()), f32);
    expect_close(flat(graph.average.named_buffers()), flat(eager.average.named_buffers()), f32);
  }
}

TEST_P(RefusedBehindTheUpdate, IsOneErrorThatSaysWhere) {
  Train graph(GetParam().sentence);
  const std::string text = error_of([&] { (void)graph(x_of(0, f32), y_of(0, f32)); });
  EXPECT_NE(text.find(GetParam().refused), std::string::npos) << text;
  EXPECT_NE(text.find("training_surface_test.cpp:"), std::string::npos) << text;
}

const auto kName = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(TrainingSurface, BehindTheUpdate, testing::ValuesIn(cases_that_are(false)), kName);
INSTANTIATE_TEST_SUITE_P(TrainingSurface, RefusedBehindTheUpdate, testing::ValuesIn(cases_that_are(true)), kName);

// ---- two losses, two optimizers -------------------------------------------------------------------------------------

struct Gan : nn::Graph<Gan> {
  nn::Sequential generator = child("generator", nn::Sequential(nn::Linear(3, 8), nn::Tanh(), nn::Linear(8, 2)));
  nn::Sequential discriminator =
      child("discriminator", nn::Sequential(nn::Linear(2, 8), nn::LeakyReLU(0.2), nn::Linear(8, 1)));
  optim::Adam g_optimizer, d_optimizer;
  explicit Gan(DType dtype)
      : g_optimizer((fill(generator, dtype), generator.parameters()), {.lr = 0.01, .betas = {0.5, 0.999}}),
        d_optimizer((fill(discriminator, dtype), discriminator.parameters()), {.lr = 0.02, .betas = {0.5, 0.999}}) {
    add_optimizer(d_optimizer);
    add_optimizer(g_optimizer);
  }
  std::map<std::string, Tensor> build(Tensor real, Tensor z) {
    const auto judged = [](const Tensor& logits, bool real) {
      return binary_cross_entropy_with_logits(logits, real ? ones_like(logits) : zeros_like(logits));
    };
    Tensor fake = generator(z);
    Tensor on_real = discriminator(real);
    Tensor d_loss = judged(on_real, true) + judged(discriminator(fake.detach()), false);
    d_loss.backward();
    discriminator.requires_grad_(false);
    Tensor g_loss = judged(discriminator(fake), true);
    g_loss.backward();
    discriminator.requires_grad_(true);
    return {{"d_loss", d_loss}, {"g_loss", g_loss}};
  }
};

TEST_P(InDType, AGansTwoLossesAndOptimizersInOneGraphArePyTorchs) {
  const nlohmann::json expected = fixture(GetParam()).at("gan");
  Gan graph(GetParam());
  std::vector<double> d_losses, g_losses;
  for (int t = 0; t < kSteps; ++t) {
    const auto results =
        graph(numbers([&](double i) { return 0.5 * std::sin(0.7 * i + t) + 1; }, kBatch, 2, GetParam()),
              numbers([&](double i) { return std::cos(0.9 * i + 2 * t); }, kBatch, 3, GetParam()));
    d_losses.push_back(results.at("d_loss").item<double>());
    g_losses.push_back(results.at("g_loss").item<double>());
  }
  expect_close(d_losses, expected.at("d_losses"), GetParam());
  expect_close(g_losses, expected.at("g_losses"), GetParam());
  expect_close(flat(graph.generator.parameters()), expected.at("generator"), GetParam());
  expect_close(flat(graph.discriminator.parameters()), expected.at("discriminator"), GetParam());
}

// ---- buffers that forward() reads and updates -----------------------------------------------------------------------

/// A VQ-VAE's codebook, learnt by averages of what is assigned to each code (van den Oord et al. 2017, appendix A.1).
struct Codebook : nn::Module<Codebook> {
  Tensor codes = buffer("codes", tensor({{1.0, 0.0}, {0.0, 1.0}, {-1.0, -0.5}}));
  Tensor counts = buffer("counts", ones({3}));
  Tensor sums = buffer("sums", tensor({{1.0, 0.0}, {0.0, 1.0}, {-1.0, -0.5}}));
  Tensor forward(Tensor z) {
    Tensor distances = (z.unsqueeze(1) - codes).square().sum(2);
    Tensor nearest = one_hot(argmin(distances, 1), 3).to(f32);
    Tensor quantized = matmul(nearest, codes);
    if (is_training()) {
      NoGradGuard no_grad;
      counts.mul_(0.9).add_(nearest.sum(0) * 0.1);
      sums.mul_(0.9).add_(matmul(nearest.t(), z) * 0.1);
      codes.copy_(sums / counts.unsqueeze(1));
    }
    return z + (quantized - z).detach();
  }
};
struct Quantizing : nn::Module<Quantizing> {
  nn::Linear encoder = child("encoder", nn::Linear(5, 2)), decoder = child("decoder", nn::Linear(2, 5));
  Codebook codebook = child("codebook", Codebook());
  Tensor loss(Tensor x) {
    Tensor z = encoder(x);
    Tensor quantized = codebook(z);
    return mse_loss(decoder(quantized), x) + 0.25 * mse_loss(z, quantized.detach());
  }
};
struct LearnCodes : nn::Graph<LearnCodes> {
  Quantizing model = child("model", Quantizing());
  optim::Adam optimizer{model.parameters(), {.lr = 0.02}};
  LearnCodes() {
    fill(model, f32);
    add_optimizer(optimizer);
  }
  Tensor build(Tensor x) {
    Tensor loss = model.loss(x);
    loss.backward();
    return loss;
  }
};

TEST(BuffersThatForwardUpdates, ACodebookIsLearntInAGraphAsEagerly) {
  LearnCodes eager, graph;
  for (int t = 0; t < 6; ++t) {
    const Tensor x = x_of(t, f32);
    eager.optimizer.zero_grad();
    Tensor expected = eager.model.loss(x);
    expected.backward();
    eager.optimizer.step();
    EXPECT_TRUE(allclose(graph(x), expected, 1e-5, 1e-6)) << t;
  }
  expect_close(flat(graph.model.parameters()), flat(eager.model.parameters()), f32);
  expect_close(flat(graph.model.named_buffers()), flat(eager.model.named_buffers()), f32);
  EXPECT_FALSE(equal(graph.model.codebook.codes, Codebook().codes));
}

// ---- groups of parameters and what is read of them ------------------------------------------------------------------

TEST(ParameterGroups, ChangeBetweenStepsAsTwoOptimizersDo) {
  Net one, two;
  fill(one, f64);
  fill(two, f64);
  // The last layer joins in the third step; what decays changes in the fifth, the rates in the sixth.
  optim::SGD grouped(one.hidden.parameters(), {.lr = 0.1, .momentum = 0.9});
  optim::SGD hidden(two.hidden.parameters(), {.lr = 0.1, .momentum = 0.9});
  optim::SGD last(two.last.parameters(), {.lr = 0.05});
  for (int t = 0; t < 8; ++t) {
    if (t == 2) grouped.add_param_group(one.last.parameters(), {.lr = 0.05});
    if (t == 4) {
      grouped.set_option(0, "weight_decay", 0.01);
      EXPECT_EQ(grouped.option(0, "weight_decay"), 0.01);
      EXPECT_EQ(grouped.option(1, "weight_decay"), 0);
      hidden.set_option(0, "weight_decay", 0.01);
    }
    if (t == 5) {
      grouped.set_learning_rates({0.02, 0.03});
      hidden.set_learning_rate(0.02);
      last.set_option(0, "lr", 0.03);
    }
    for (Net* net : {&one, &two}) {
      net->zero_grad();
      square((*net)(x_of(t, f64))-y_of(t, f64)).mean().backward();
    }
    grouped.step();
    hidden.step();
    if (t >= 2) last.step();
  }
  EXPECT_EQ(grouped.learning_rates(), (std::vector<double>{0.02, 0.03}));
  EXPECT_EQ(flat(one.parameters()), flat(two.parameters()));
}

/// torch.optim.SGD(lr=0.1, dampening=0.25) whose momentum is set to 0.9 behind two steps, to 0 behind four and to 0.5
/// behind six: the buffer begins with the whole gradient of the third step, and is kept while it is not used.
TEST(ParameterGroups, MomentumThatIsSwitchedOnBeginsWithTheGradient) {
  const std::vector<double> expected[] = {
      {0.9, -1.9, 0.5125},
      {0.7100000000000001, -1.905, 0.4253125},
      {0.43900000000000006, -2.00975, 0.23594531249999998},
      {-0.06282499999999998, -2.253659375, -0.15506118164062505},
      {-0.45654249999999996, -2.54097640625, -0.5589377111816407},
      {-0.91088825, -2.9139275859375, -1.0729111539611818},
      {-1.54348413125, -3.3766099889648435, -1.7385314851682665},
      {-2.26902076203125, -4.0063283158923335, -2.628939116118714},
  };
  Tensor p = tensor({1.0, -2.0, 0.5}, f64).requires_grad_();
  const Tensor slope = tensor({1.0, 0.5, -0.25}, f64);
  optim::SGD optimizer({p}, {.lr = 0.1, .dampening = 0.25});
  const std::map<int, double> momentum = {{2, 0.9}, {4, 0.0}, {6, 0.5}};
  for (int t = 0; t < 8; ++t) {
    if (momentum.count(t)) optimizer.set_option(0, "momentum", momentum.at(t));
    optimizer.zero_grad();
    (slope * square(p) / 2 + p * t).sum().backward();
    optimizer.step();
    const std::vector<double> now = p.to_vector<double>();
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(now[i], expected[t][i], 1e-14) << "step " << t + 1;
  }
}

TEST(ParameterGroups, AGraphRefusesMomentumThatItWouldDampen) {
  struct Train : nn::Graph<Train> {
    nn::Linear model = child("model", nn::Linear(4, 4));
    optim::SGD optimizer{model.parameters(), {.lr = 0.1, .dampening = 0.25}};
    Train() { add_optimizer(optimizer); }
    Tensor build(Tensor x) {
      Tensor loss = square(model(x)).mean();
      loss.backward();
      return loss;
    }
  } graph;
  const Tensor x = ones({2, 4});
  square(graph.model(x)).mean().backward();
  graph.optimizer.step();
  graph.optimizer.set_option(0, "momentum", 0.9);
  EXPECT_NE(test::error_of([&] { graph(x); }).find("begins with the first gradient that it sees"), std::string::npos)
      << test::error_of([&] { graph(x); });
  graph.optimizer.step();  // the buffer is there now
  EXPECT_EQ(test::error_of([&] { graph(x); }), "no error");
}

TEST(ParameterGroups, RefuseWhatIsNotThere) {
  Net net;
  optim::SGD optimizer(net.hidden.parameters(), {.lr = 0.1});
  const std::pair<const char*, test::Call<void()>> sentences[] = {
      {"the sgd has 1 groups, there is no group 1", [&] { (void)optimizer.option(1, "lr"); }},
      {"the sgd has no option 'weight_dekay'; it has", [&] { optimizer.set_option(0, "weight_dekay", 0); }},
      {"momentum", [&] { optimizer.set_option(0, "momentum", -1); }},
      {"nesterov", [&] { optimizer.set_option(0, "nesterov", 1); }},
      {"set_learning_rates: the sgd has 1 groups, got 2 rates", [&] { optimizer.set_learning_rates({0.1, 0.2}); }},
      {"lr", [&] { optimizer.set_learning_rates({-0.1}); }},
      {"is given twice", [&] { optimizer.add_param_group({net.hidden.weight}); }},
      {"there are no parameters", [&] { optim::SGD none(std::vector<Tensor>{}); }},
  };
  for (const auto& [expected, sentence] : sentences) {
    const std::string text = error_of(sentence);
    EXPECT_NE(text.find(expected), std::string::npos) << text;
    EXPECT_NE(text.find("training_surface_test.cpp:"), std::string::npos) << text;
  }
  EXPECT_EQ(optimizer.option(0, "momentum"), 0);
  lr_scheduler::StepLR schedule(optimizer, {.step_size = 2});
  EXPECT_NE(error_of([&] { optimizer.add_param_group(net.last.parameters()); }).find("a schedule stands on the sgd"),
            std::string::npos);
}

TEST(ParameterGroups, OfARecordedGraphKeepAllButTheirRates) {
  const auto said = [](const test::Call<void(Train&)>& sentence) {
    Train graph(average_in_a_module);
    (void)graph(x_of(0, f32), y_of(0, f32));
    return error_of([&] {
      sentence(graph);
      (void)graph(x_of(1, f32), y_of(1, f32));
    });
  };
  EXPECT_EQ(said([](Train& g) { g.optimizer.set_learning_rates({0.5}); }), "no error");
  EXPECT_EQ(said([](Train& g) { g.optimizer.set_option(0, "lr", 0.5); }), "no error");
  EXPECT_NE(said([](Train& g) { g.optimizer.set_option(0, "weight_decay", 0.5); }).find("the learning rate"),
            std::string::npos);
  struct Plain : nn::Graph<Plain> {
    Net net = child("net", Net());
    optim::SGD optimizer{net.hidden.parameters(), {.lr = 0.1, .clip_grad_max_norm = 1}};
    Plain() { add_optimizer(optimizer); }
    Tensor build(Tensor x, Tensor y) {
      Tensor loss = square(net(x) - y).mean();
      loss.backward();
      return loss;
    }
  };
  Plain graph;
  (void)graph(x_of(0, f32), y_of(0, f32));
  graph.optimizer.set_option(0, "clip_grad_max_norm", std::numeric_limits<double>::infinity());
  EXPECT_NE(error_of([&] { (void)graph(x_of(1, f32), y_of(1, f32)); }).find("had the option clip_grad_max_norm"),
            std::string::npos);
  graph.optimizer.set_option(0, "clip_grad_max_norm", 1);
  graph.optimizer.add_param_group(graph.net.last.parameters());
  EXPECT_NE(error_of([&] { (void)graph(x_of(1, f32), y_of(1, f32)); }).find("there were 1 groups of parameters"),
            std::string::npos);
}

TEST(Gradients, OfAGraphAreThereBehindACallOrRefused) {
  Train graph(average_in_a_module);
  EXPECT_NE(error_of([&] { (void)graph.gradients(); }).find("has made no step"), std::string::npos);
  (void)graph(x_of(0, f32), y_of(0, f32));
  const nn::StateDict first = graph.gradients();
  const std::vector<double> kept = flat({first[0].second});
  EXPECT_NEAR(
      graph.gradient_norm(std::numeric_limits<double>::infinity()),
      [&] {
        double most = 0;
        for (const auto& entry : first)
          for (const double g : entry.second.to_vector<double>()) most = std::max(most, std::fabs(g));
        return most;
      }(),
      0);
  EXPECT_NE(error_of([&] { (void)graph.gradient_norm(0); }).find("norm_type must be positive"), std::string::npos);
  (void)graph(x_of(1, f32), y_of(1, f32));
  EXPECT_EQ(flat({first[0].second}), kept) << "copies";
  EXPECT_NE(flat({graph.gradients()[0].second}), kept);

  Train in_backward(average_in_a_module);
  in_backward.update_in_backward();
  (void)in_backward(x_of(0, f32), y_of(0, f32));
  EXPECT_NE(error_of([&] { (void)in_backward.gradients(); }).find("no gradient outlives"), std::string::npos);
  Train scaled(average_in_a_module);
  scaled.set_grad_scaler(amp::GradScaler());
  (void)scaled(x_of(0, f32), y_of(0, f32));
  EXPECT_NE(error_of([&] { (void)scaled.gradients(); }).find("are scaled"), std::string::npos);
}

// ---- what a run is resumed with -------------------------------------------------------------------------------------

/// The gradients of `first` and `second` are equal, those of p and q are the other parameter, and that of `of_input` is
/// the input.
struct SharedGradients : nn::Module<SharedGradients> {
  Tensor first = parameter("first", zeros({3})), second = parameter("second", zeros({3}));
  Tensor p = parameter("p", ones({3}) * 2.0), q = parameter("q", ones({3}));
  Tensor of_input = parameter("of_input", ones({4, 3}));
  Tensor forward(Tensor x) { return (x + first + second).square().mean() + (p * q).sum() + (of_input * x).sum(); }
};

struct TrainSharedGradients : nn::Graph<TrainSharedGradients> {
  SharedGradients model = child("model", SharedGradients());
  optim::AdamW optimizer{model.parameters(), {.lr = 0.1}};
  bool clips;
  explicit TrainSharedGradients(bool clips) : clips(clips) { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = model(x);
    loss.backward();
    if (clips) nn::utils::clip_grad_norm_(model.parameters(), 1.0);
    return loss;
  }
};

TEST(Gradients, ThatAreEqualOrNoResultOfBackwardAreEachParametersOwn) {
  const Tensor x = arange(12).to(f32).reshape({4, 3}) * 0.1;
  for (const char* way : {"plain", "clipped", "scaled"}) {
    SCOPED_TRACE(way);
    const bool clips = way == std::string("clipped"), scales = way == std::string("scaled");
    TrainSharedGradients graph(clips);
    if (scales) graph.set_grad_scaler(amp::GradScaler({.init_scale = 16}));
    SharedGradients eager;
    optim::AdamW optimizer(eager.parameters(), {.lr = 0.1});
    nn::StateDict expected;
    double norm = 0;
    for (int step = 0; step < 3; ++step) {
      graph(x);
      optimizer.zero_grad();
      eager(x).backward();
      expected.clear();
      norm = 0;
      for (const auto& [name, t] : eager.named_parameters()) {
        expected.emplace_back("model." + name, t.grad().clone());
        norm += t.grad().square().sum().item<double>();
      }
      if (clips) nn::utils::clip_grad_norm_(eager.parameters(), 1.0);
      optimizer.step();
    }
    const nn::StateDict learnt = graph.model.state_dict();
    for (const auto& [name, t] : eager.state_dict())
      EXPECT_TRUE(std::any_of(learnt.begin(), learnt.end(), [&, &name = name, &t = t](const auto& e) {
        return e.first == name && allclose(e.second, t, 1e-5, 1e-6);
      })) << name;
    if (scales) continue;  // gradients are those of a scaled loss, and are refused
    const nn::StateDict gradients = graph.gradients();
    ASSERT_EQ(gradients.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(gradients[i].first, expected[i].first);
      EXPECT_TRUE(allclose(gradients[i].second, expected[i].second, 1e-5, 1e-6)) << expected[i].first;
    }
    EXPECT_NEAR(graph.gradient_norm(), std::sqrt(norm), 1e-4);
  }
}

struct Drawn : nn::Graph<Drawn> {
  Net net = child("net", Net());
  nn::Dropout dropout = child("dropout", nn::Dropout(0.5));
  optim::SGD optimizer{{{net.hidden.parameters(), {.lr = 0.1}}, {net.last.parameters(), {.lr = 0.2}}}};
  Drawn() {
    fill(net, f32);
    add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = square(net(dropout(x)) - y).mean();
    loss.backward();
    return loss;
  }
};

TEST(StateOfAGraph, HasTheSeedAndTheRates) {
  manual_seed(11);
  Drawn whole;
  const auto step = [](Drawn& graph, int t) { return graph(x_of(t, f32), y_of(t, f32)).item<double>(); };
  (void)step(whole, 0);
  whole.optimizer.set_learning_rates({0.03, 0.04});
  (void)step(whole, 1);
  nn::StateDict saved;
  for (const auto& [name, t] : whole.state_dict()) saved.emplace_back(name, t.clone());
  const auto number = [&](const std::string& name) {
    for (const auto& entry : saved)
      if (entry.first == name) return entry.second.item<double>();
    ADD_FAILURE() << name;
    return 0.0;
  };
  EXPECT_EQ(number("seed"), 11);
  EXPECT_EQ(number("lr.0"), 0.03);
  EXPECT_EQ(number("initial_lr.1"), 0.04);
  const double expected[] = {step(whole, 2), step(whole, 3)};

  manual_seed(5);  // another process
  Drawn resumed;
  resumed.load_state_dict(saved);
  EXPECT_EQ(resumed.learning_rates(), (std::vector<double>{0.03, 0.04}));
  EXPECT_EQ(step(resumed, 2), expected[0]);
  EXPECT_EQ(step(resumed, 3), expected[1]);

  // What says nothing of them leaves them.
  std::erase_if(saved, [](const auto& e) { return e.first == "seed" || e.first.find("lr.") != std::string::npos; });
  manual_seed(7);
  Drawn without;
  without.load_state_dict(saved);
  EXPECT_EQ(without.learning_rates(), (std::vector<double>{0.1, 0.2}));
  nn::StateDict now = without.state_dict();
  for (auto& [name, t] : now) {
    if (name == "seed") {
      EXPECT_EQ(t.item<std::int64_t>(), 7);
    }
    if (name == "lr.0") t = tensor(-1.0, f64);
  }
  EXPECT_NE(error_of([&] { without.load_state_dict(now); }).find("lr"), std::string::npos);
  EXPECT_EQ(without.learning_rates(), (std::vector<double>{0.1, 0.2}));
}

}  // namespace
}  // namespace graven::training_surface_test
