// Optimizers and schedules against PyTorch's numbers (tests/fixtures/make_optimizers.py).
#include <gtest/gtest.h>
#include <unistd.h>

#include <graven/graven.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/optimizer_kind.h"
#include "tests/call.h"
#include "tests/frontend/error_text.h"
#include "tests/frontend/state_dicts.h"

namespace graven {
namespace {

using test::error_of;

nlohmann::json fixture() {
  std::ifstream file(GRAVEN_SOURCE_DIR "/tests/fixtures/optimizers.json");
  return nlohmann::json::parse(file);
}

/// Sets the options that the kind has, where they are given.
template <class Options>
Options options_from(const nlohmann::json& given) {
  Options o;
#define SET(option) \
  if constexpr (requires { o.option; }) o.option = given.value(#option, o.option)
  SET(lr);
  SET(weight_decay);
  SET(maximize);
  SET(momentum);
  SET(dampening);
  SET(nesterov);
  SET(betas);
  SET(beta2_decay);
  SET(d);
  if constexpr (requires { double{o.eps}; }) {
    SET(eps);
  } else if constexpr (requires { o.eps; }) {
    if (given.contains("eps")) {
      const nlohmann::json& eps = given.at("eps");
      o.eps = {eps.at(0).is_null() ? std::nullopt : std::optional(eps.at(0).get<double>()), eps.at(1).get<double>()};
    }
  }
  SET(amsgrad);
  SET(alpha);
  SET(centered);
  SET(lr_decay);
  SET(initial_accumulator_value);
  SET(rho);
  SET(adam_w_mode);
  SET(do_bias_correction);
  SET(momentum_decay);
  SET(decoupled_weight_decay);
  SET(etas);
  SET(step_sizes);
  SET(trust_coefficient);
#undef SET
  return o;
}

optim::Optimizer make(const std::string& kind, const std::vector<Tensor>& parameters, const nlohmann::json& o) {
  if (kind == "sgd") return optim::SGD(parameters, options_from<optim::SGDOptions>(o));
  if (kind == "adam") return optim::Adam(parameters, options_from<optim::AdamOptions>(o));
  if (kind == "adamw") return optim::AdamW(parameters, options_from<optim::AdamWOptions>(o));
  if (kind == "rmsprop") return optim::RMSprop(parameters, options_from<optim::RMSpropOptions>(o));
  if (kind == "adagrad") return optim::Adagrad(parameters, options_from<optim::AdagradOptions>(o));
  if (kind == "adadelta") return optim::Adadelta(parameters, options_from<optim::AdadeltaOptions>(o));
  if (kind == "lamb") return optim::LAMB(parameters, options_from<optim::LAMBOptions>(o));
  if (kind == "nadam") return optim::NAdam(parameters, options_from<optim::NAdamOptions>(o));
  if (kind == "radam") return optim::RAdam(parameters, options_from<optim::RAdamOptions>(o));
  if (kind == "adamax") return optim::Adamax(parameters, options_from<optim::AdamaxOptions>(o));
  if (kind == "rprop") return optim::Rprop(parameters, options_from<optim::RpropOptions>(o));
  if (kind == "lion") return optim::Lion(parameters, options_from<optim::LionOptions>(o));
  if (kind == "adafactor") return optim::Adafactor(parameters, options_from<optim::AdafactorOptions>(o));
  if (kind == "lars") return optim::LARS(parameters, options_from<optim::LARSOptions>(o));
  throw UserError("tests/frontend/optim_test.cpp makes no optimizer of kind " + kind);
}

TEST(Optimizers, StepAsPyTorchDoes) {
  const nlohmann::json data = fixture();
  std::set<std::string> compared;
  for (const auto& c : data.at("optimizers")) {
    compared.insert(c.at("kind"));
    SCOPED_TRACE(c.at("kind").get<std::string>() + c.at("options").dump());
    const std::vector<double> start = c.value("start", std::vector<double>{1, -2, 0.5});
    const std::vector<std::int64_t> shape = c.value("shape", std::vector<std::int64_t>{3});
    const auto count = static_cast<std::int64_t>(start.size());
    Tensor p = from_data(start, shape).requires_grad_();
    optim::Optimizer optimizer = make(c.at("kind"), {p}, c.at("options"));
    ASSERT_EQ(c.at("parameters").size(), 50u);
    for (int t = 0; t < 50; ++t) {
      if (t == 3) {  // exact resume: a new optimizer with the old one's state
        const auto state = optimizer.state_dict();
        optimizer = make(c.at("kind"), {p}, c.at("options"));
        optimizer.load_state_dict(state);
      }
      p.set_grad((arange(count).to(f64) + t).sin().reshape(shape) + 0.1 * p.detach());
      optimizer.step();
      const auto expected = c.at("parameters").at(static_cast<std::size_t>(t)).get<std::vector<double>>();
      const std::vector<double> got = p.to_vector<double>();
      for (std::size_t i = 0; i < start.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << "step " << t;
    }
  }
  for (const ir::OptimizerKind& kind : ir::optimizer_kinds())
    EXPECT_TRUE(compared.count(std::string(kind.name)))
        << kind.name << " has no case in tests/fixtures/make_optimizers.py";
}

/// Over tensors that make several pieces of work: f32 is the f64 that is compared with PyTorch, with any threads.
TEST(Optimizers, StepOverManyTensors) {
  const auto steps = [](const nlohmann::json& c, DType dtype) {
    std::vector<Tensor> parameters;
    for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{
             {1}, {40000}, {0}, {256}, {17}, {16384}, {3}, {40, 1000}, {0, 3}, {5, 1}, {1, 70}, {3, 2, 70, 30}}) {
      const Tensor order = arange(Shape(shape).numel().value()).to(f64).reshape(shape);
      parameters.push_back(((order * 0.7).cos() + 1.5).to(dtype).detach().requires_grad_());
    }
    optim::Optimizer optimizer = make(c.at("kind"), parameters, c.at("options"));
    for (int t = 0; t < 3; ++t) {
      for (Tensor& p : parameters)
        p.set_grad(((((arange(p.numel()).to(f64) * 1.3) + t).sin() + 0.05).sign().to(dtype) *
                    (((arange(p.numel()).to(f64) * 0.9) + t).sin() + 2).to(dtype))
                       .reshape(p.sizes()));
      optimizer.step();
    }
    std::vector<double> all;
    for (const Tensor& p : parameters)
      for (const double x : p.to(f64).to_vector<double>()) all.push_back(x);
    return all;
  };
  const int threads = get_num_threads();
  const nlohmann::json data = fixture();
  for (const auto& c : data.at("optimizers")) {
    SCOPED_TRACE(c.at("kind").get<std::string>() + c.at("options").dump());
    const std::vector<double> want = steps(c, f64);
    set_num_threads(1);
    const std::vector<double> one = steps(c, f32);
    set_num_threads(3);
    EXPECT_EQ(steps(c, f32), one);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < want.size(); ++i)
      wrong += std::abs(one[i] - want[i]) > 5e-5 * std::max(1.0, std::abs(want[i]));
    EXPECT_EQ(wrong, 0u);
  }
  set_num_threads(threads);
}

TEST(Optimizers, OptionsOutOfRangeAreRefused) {
  const std::vector<Tensor> p{tensor({1.}).requires_grad_()};
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN(), kMost = std::numeric_limits<double>::infinity();
  const std::pair<test::Call<void()>, const char*> cases[] = {
      {[&] { optim::SGD(p, {.lr = -1}); }, "sgd: the option lr must lie in [0, 1e+300], got -1"},
      {[&] { optim::SGD(p, {.lr = kNone}); }, "sgd: the option lr must lie in [0, 1e+300], got nan"},
      {[&] { optim::SGD(p, {.lr = kMost}); }, "sgd: the option lr must lie in [0, 1e+300], got inf"},
      {[&] { optim::SGD(p, {.momentum = -1}); }, "sgd: the option momentum must lie in [0, 1e+300], got -1"},
      {[&] { optim::SGD(p, {.nesterov = true}); }, "sgd: nesterov needs momentum above 0 and dampening 0"},
      {[&] { optim::Adam(p, {.betas = {0.9, 1.0}}); }, "adam: the option betas[1] must lie in [0, 1), got 1"},
      {[&] { optim::AdamW(p, {.betas = {-0.5, 0.9}}); }, "adamw: the option betas[0] must lie in [0, 1), got -0.5"},
      {[&] { optim::RMSprop(p, {.alpha = 1.5}); }, "rmsprop: the option alpha must lie in [0, 1], got 1.5"},
      {[&] { optim::RMSprop(p, {.momentum = -1}); }, "rmsprop: the option momentum must lie in [0, 1e+300], got -1"},
      {[&] { optim::Adagrad(p, {.lr_decay = -1}); }, "adagrad: the option lr_decay must lie in [0, 1e+300], got -1"},
      {[&] { optim::Adagrad(p, {.initial_accumulator_value = -1}); },
       "adagrad: the option initial_accumulator_value must lie in [0, 1e+300], got -1"},
      {[&] { optim::Adadelta(p, {.rho = -0.1}); }, "adadelta: the option rho must lie in [0, 1], got -0.1"},
      {[&] { optim::LAMB(p, {.betas = {1.0, 0.9}}); }, "lamb: the option betas[0] must lie in [0, 1), got 1"},
      {[&] { optim::NAdam(p, {.betas = {0.9, 1.0}}); }, "nadam: the option betas[1] must lie in [0, 1), got 1"},
      {[&] { optim::NAdam(p, {.momentum_decay = -1}); },
       "nadam: the option momentum_decay must lie in [0, 1e+300], got -1"},
      {[&] { optim::RAdam(p, {.eps = -1}); }, "radam: the option eps must lie in [0, 1e+300], got -1"},
      {[&] { optim::Adamax(p, {.weight_decay = -1}); },
       "adamax: the option weight_decay must lie in [0, 1e+300], got -1"},
      {[&] { optim::Rprop(p, {.etas = {1.0, 1.2}}); }, "rprop: the option etas[0] must lie in (0, 1), got 1"},
      {[&] { optim::Rprop(p, {.etas = {0.5, 1.0}}); }, "rprop: the option etas[1] must lie in (1, 1e+300], got 1"},
      {[&] { optim::Lion(p, {.betas = {-0.1, 0.9}}); }, "lion: the option betas[0] must lie in [0, 1), got -0.1"},
      {[&] { optim::Adafactor(p, {.d = 0.5}); }, "adafactor: the option d must lie in [1, 1e+300], got 0.5"},
      {[&] { optim::Adafactor(p, {.d = kMost}); }, "adafactor: the option d must lie in [1, 1e+300], got inf"},
      {[&] { optim::Adafactor(p, {.beta2_decay = 0.1}); },
       "adafactor: the option beta2_decay must lie in [-1e+300, 0], got 0.1"},
      {[&] { optim::Adafactor(p, {.eps = {-1, 1e-3}}); },
       "adafactor: the option eps[0] must lie in [0, 1e+300], got -1"},
      {[&] { optim::Adafactor(p, {.eps = {{}, -1}}); }, "adafactor: the option eps[1] must lie in [0, 1e+300], got -1"},
      {[&] { optim::LARS(p, {.nesterov = true}); }, "lars: nesterov needs momentum above 0 and dampening 0"},
      {[&] { optim::LARS(p, {.trust_coefficient = kNone}); },
       "lars: the option trust_coefficient must lie in [0, 1e+300], got nan"},
      {[&] { optim::LBFGS(p, {.lr = kMost}); }, "lbfgs: lr must be finite and not negative, got inf"},
      {[&] { optim::LBFGS(p).set_learning_rate(-1); }, "lbfgs: lr must be finite and not negative, got -1"},
      {[&] { optim::SGD(p).set_learning_rate(-1); }, "sgd: the option lr must lie in [0, 1e+300], got -1"},
      {[&] { optim::Adam(p).set_learning_rate(kNone); }, "adam: the option lr must lie in [0, 1e+300], got nan"},
      // Of options that the others make no use of, too.
      {[&] { optim::SGD(p, {.dampening = kNone}); },
       "sgd: the option dampening must lie in [-1e+300, 1e+300], got nan"},
      {[&] { optim::SGD(p, {.clip_grad_max_norm = -1}); },
       "sgd: the option clip_grad_max_norm must lie in [0, 1e+300], got -1"},
      {[&] { optim::Adam(p, {.clip_grad_max_norm = 1, .clip_grad_norm_type = 0}); },
       "adam: the option clip_grad_norm_type must be positive, or infinity, got 0"},
      {[&] { optim::SGD(p, {.clip_grad_norm_type = -1}); },
       "sgd: the option clip_grad_norm_type must be positive, or infinity, got -1"},
      {[&] { optim::Lion(p, {.clip_grad_norm_type = kNone}); },
       "lion: the option clip_grad_norm_type must be positive, or infinity, got nan"},
  };
  for (const auto& [mistake, error] : cases) {
    const std::string text = error_of(mistake);
    EXPECT_EQ(text.substr(0, text.find('\n')), std::string("error: ") + error);
    EXPECT_EQ(text.find("\n  at optim_test.cpp:"), text.find('\n')) << text;
  }
  // In which of several groups.
  const Tensor q = tensor({1.}).requires_grad_();
  const std::string text = error_of([&] { optim::SGD({{p, {.lr = 1}}, {{q}, {.lr = -1}}}); });
  EXPECT_EQ(
      text.find("error: sgd: the option lr must lie in [0, 1e+300], got -1\n  in group 1 of 2\n  at optim_test.cpp:"),
      0u)
      << text;
  EXPECT_EQ(error_of([&] { optim::SGD(p, {.clip_grad_norm_type = kMost}); }), "no error");
}

TEST(Optimizers, ParametersThatAreNoneAreRefused) {
  const Tensor a = tensor({1.}).requires_grad_(), b = tensor({1., 2.}).requires_grad_();
  const std::string undefined = "must be a tensor, got an undefined one: leave out what a layer does not have";
  const std::pair<test::Call<void()>, std::string> cases[] = {
      {[&] { optim::SGD({a, Tensor()}); }, "sgd: parameter 1 " + undefined},
      {[&] { optim::SGD({Tensor()}); }, "sgd: parameter 0 " + undefined},
      {[&] { optim::AdamW({{{a}, {}}, {{b, Tensor()}, {}}}); }, "adamw: parameter 1 of group 1 " + undefined},
      {[&] { optim::LBFGS({a, Tensor()}); }, "lbfgs: parameter 1 " + undefined},
      {[&] { optim::SGD(std::vector<Tensor>{}); }, "sgd: there are no parameters to optimise"},
      {[&] { optim::LBFGS(std::vector<Tensor>{}); }, "lbfgs: there are no parameters to optimise"},
      {[&] { optim::SGD({a, b, a}); }, "sgd: parameter 2 is given twice: f32[1] is parameter 0, too"},
      {[&] { optim::SGD({{{b}, {}}, {{a, b}, {}}}); },
       "sgd: parameter 1 of group 1 is given twice: f32[2] is parameter 0 of group 0, too"},
      {[&] { optim::Adam({a, b * 2}); }, "adam: parameter 1 must be a leaf, got the result of an operator, f32[2]"},
      {[&] { optim::Adam({a, tensor({1})}); }, "adam: parameter 1 must be floating-point, got i64[1]"},
  };
  for (const auto& [mistake, error] : cases) {
    const std::string text = error_of(mistake);
    EXPECT_EQ(text.substr(0, text.find('\n')), "error: " + error);
    EXPECT_EQ(text.find("\n  at optim_test.cpp:"), text.find('\n')) << text;
  }
  // What a layer does not have is no parameter of it.
  const nn::Linear plain(2, 3, {.bias = false});
  EXPECT_EQ(optim::SGD(plain.parameters()).parameters().size(), 1u);
}

TEST(Optimizers, AdamWithoutBiasCorrection) {
  // PyTorch's Adam always corrects; without it the first steps are (1 - beta1) / sqrt(1 - beta2) times as long.
  const double g = 0.25, lr = 0.1, beta1 = 0.9, beta2 = 0.99;
  Tensor p = tensor({1.}, f64).requires_grad_();
  optim::Adam optimizer({p}, {.lr = lr, .betas = {beta1, beta2}, .eps = 0, .do_bias_correction = false});
  p.set_grad(tensor({g}, f64));
  optimizer.step();
  double expected = 1 - lr * (1 - beta1) * g / std::sqrt((1 - beta2) * g * g);
  EXPECT_NEAR(p.item<double>(), expected, 1e-14);
  optimizer.step();
  expected -= lr * (1 - beta1 * beta1) * g / std::sqrt((1 - beta2 * beta2) * g * g);
  EXPECT_NEAR(p.item<double>(), expected, 1e-14);
}

TEST(Optimizers, CenteredRmspropHasNoRootOfLessThanZero) {
  // Of equal gradients the variance is 0, and rounds to either side of it.
  Tensor p = full({64}, 1.0).requires_grad_();
  optim::RMSprop optimizer({p}, {.alpha = 0.3, .eps = 1, .centered = true});
  for (int step = 0; step < 30; ++step) {
    p.set_grad((arange(64).to(f32) + 1) / 37);
    optimizer.step();
  }
  EXPECT_TRUE(p.isfinite().all().item<bool>());
}

/// Their configs differ by the dtype's epsilon.
TEST(Optimizers, AGroupOfSeveralDtypesStepsInAGraphAsEagerly) {
  struct Net : nn::Module<Net> {
    Tensor a = parameter("a", full({3, 4}, 0.5).to(bf16)), b = parameter("b", full({4}, 0.5)),
           c = parameter("c", full({2, 3, 4}, 0.25).to(f64));
    Tensor forward(Tensor x) { return x * a.to(f32) * b * c.to(f32); }
  };
  struct Train : nn::Graph<Train> {
    Net net;
    Train(Net n, const optim::Optimizer& o) : net(child("net", n)) { add_optimizer(o); }
    Tensor build(Tensor x) {
      Tensor loss = (net(x) - 1).square().mean();
      loss.backward();
      return loss;
    }
  };
  Net eager, graphed;
  optim::Adafactor optimizer(eager.parameters());
  Train graph(graphed, optim::Adafactor(graphed.parameters()));
  const Tensor x = ones({3, 4});
  for (int t = 0; t < 3; ++t) {
    Tensor loss = (eager(x) - 1).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_NEAR(graph(x).item<double>(), loss.item<double>(), 1e-6);
  }
  EXPECT_TRUE(allclose(graphed.a.to(f32), eager.a.to(f32), 1e-6, 1e-6));
  EXPECT_TRUE(allclose(graphed.c, eager.c, 1e-6, 1e-6));
}

TEST(Optimizers, StatesOfAnotherDTypeThanTheParametersAreRefused) {
  nn::Linear layer(2, 3);
  optim::Adam optimizer(layer.parameters(), {.lr = 0.1});
  const auto step = [&](DType dtype) {
    optimizer.zero_grad();
    layer(ones({1, 2}, dtype)).sum().backward();
    optimizer.step();
  };
  step(f32);
  layer.to(bf16);
  const std::string text = error_of([&] { step(bf16); });
  EXPECT_NE(text.find("step: parameter 0 is bf16[3,2], and its state m is f32[3,2], of an earlier step: make another "
                      "optimizer behind module.to(bf16)\n  at optim_test.cpp:"),
            std::string::npos)
      << text;
}

TEST(Optimizers, KeepGroupsApart) {
  Tensor a = tensor({1.}).requires_grad_(), b = tensor({1.}).requires_grad_(), unused = tensor({1.}).requires_grad_();
  optim::SGD optimizer({{{a, unused}, {.lr = 0.5}}, {{b}, {.lr = 0.25}}});
  (a * b).sum().backward();
  optimizer.step();
  EXPECT_EQ(a.item<double>(), 0.5);
  EXPECT_EQ(b.item<double>(), 0.75);
  EXPECT_EQ(unused.item<double>(), 1);
  EXPECT_EQ(optimizer.learning_rates(), (std::vector<double>{0.5, 0.25}));
  optimizer.zero_grad();
  EXPECT_FALSE(a.grad().defined());
}

TEST(Optimizers, SchedulesStartFromTheRateThatIsSet) {
  optim::SGD optimizer({tensor({1.}).requires_grad_()}, {.lr = 0.1});
  optimizer.set_learning_rate(1);
  EXPECT_EQ(optimizer.learning_rates(), std::vector<double>{1});
  lr_scheduler::StepLR schedule(optimizer, {.step_size = 1, .gamma = 0.5});
  schedule.step();
  EXPECT_EQ(optimizer.learning_rates(), std::vector<double>{0.5});
}

TEST(Optimizers, StateOfAnotherIsRefused) {
  const Tensor p = tensor({1.}).requires_grad_();
  optim::SGD a({p});
  EXPECT_NE(error_of([&] { a.load_state_dict({{"9.9.step", tensor(1)}}); }).find("missing     0.0.step"),
            std::string::npos);
}

struct StateCase {
  const char* name;
  optim::Optimizer (*make)(const std::vector<Tensor>& parameters, double lr);
  std::vector<std::string> buffers;
};
const StateCase kStateCases[] = {
    {"sgd", [](const std::vector<Tensor>& p, double lr) -> optim::Optimizer { return optim::SGD(p, {.lr = lr}); }, {}},
    {"sgd_momentum",
     [](const std::vector<Tensor>& p, double lr) -> optim::Optimizer {
       return optim::SGD(p, {.lr = lr, .momentum = 0.9, .clip_grad_max_norm = 2});
     },
     {"momentum"}},
    {"adam",
     [](const std::vector<Tensor>& p, double lr) -> optim::Optimizer { return optim::Adam(p, {.lr = lr}); },
     {"m", "v"}},
    {"adamw_amsgrad",
     [](const std::vector<Tensor>& p, double lr) -> optim::Optimizer {
       return optim::AdamW(p, {.lr = lr, .amsgrad = true});
     },
     {"m", "v", "max_v"}},
    {"rmsprop",
     [](const std::vector<Tensor>& p, double lr) -> optim::Optimizer {
       return optim::RMSprop(p, {.lr = lr, .momentum = 0.9, .centered = true});
     },
     {"square_avg", "grad_avg", "momentum"}},
    {"adagrad",
     [](const std::vector<Tensor>& p, double lr) -> optim::Optimizer { return optim::Adagrad(p, {.lr = lr}); },
     {"sum"}},
    {"adadelta",
     [](const std::vector<Tensor>& p, double lr) -> optim::Optimizer { return optim::Adadelta(p, {.lr = lr}); },
     {"square_avg", "acc_delta"}},
    {"lamb",
     [](const std::vector<Tensor>& p, double lr) -> optim::Optimizer { return optim::LAMB(p, {.lr = lr}); },
     {"m", "v"}},
};

void take_step(optim::Optimizer& optimizer, int t) {
  double i = 0;
  for (Tensor& p : optimizer.parameters()) p.set_grad((p.detach() + ++i + t).sin());
  optimizer.step();
}

TEST(OptimizerState, EveryEntryIsNeededAndNothingIsLoadedWithoutIt) {
  for (const StateCase& c : kStateCases) {
    SCOPED_TRACE(c.name);
    Tensor a = tensor({1., 2.}, f64).requires_grad_(), b = tensor({3.}).requires_grad_();
    optim::Optimizer trained = c.make({a, b}, 0.25), other = c.make({a, b}, 0.5);
    for (int t = 0; t < 3; ++t) take_step(trained, t);
    take_step(other, 7);
    const nn::StateDict state = copy_of(trained.state_dict()), before = copy_of(other.state_dict());
    std::size_t buffers = 0;
    for (const std::string& name : c.buffers)
      for (const auto& entry : state) buffers += entry.first.substr(entry.first.find('.', 2) + 1) == name;
    EXPECT_EQ(buffers, 2 * c.buffers.size());
    for (std::size_t i = 0; i < state.size(); ++i) {
      nn::StateDict partial = state;
      partial.erase(partial.begin() + static_cast<std::ptrdiff_t>(i));
      const std::string text = error_of([&] { other.load_state_dict(partial); });
      EXPECT_NE(text.find("load_state_dict of " + other.kind() +
                          ": 1 entry does not fit; nothing was loaded\n  missing     " + state[i].first),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("optim_test.cpp:"), std::string::npos) << text;
      expect_same(other.state_dict(), before);
    }
    other.load_state_dict(state);
    expect_same(other.state_dict(), state);
    EXPECT_EQ(other.learning_rates(), (std::vector<double>{0.25}));
  }
}

TEST(OptimizerState, LoadsWhatThereIsWhereNotStrict) {
  Tensor p = tensor({1., 2.}, f64).requires_grad_();
  optim::Adam trained({p}, {.lr = 0.25}), other({p}, {.lr = 0.5});
  take_step(trained, 0);
  take_step(other, 1);
  nn::StateDict state = copy_of(trained.state_dict());
  const Tensor own = other.state_dict().at(1).second.clone();
  ASSERT_EQ(state.at(1).first, "0.0.v");
  state[1].first = "0.0.w";
  const nn::LoadReport report = other.load_state_dict(state, false);
  EXPECT_EQ(report.missing, (std::vector<std::string>{"0.0.v"}));
  EXPECT_EQ(report.unexpected, (std::vector<std::string>{"0.0.w"}));
  EXPECT_TRUE(equal(other.state_dict().at(0).second, state[0].second));
  EXPECT_TRUE(equal(other.state_dict().at(1).second, own));
  EXPECT_EQ(other.learning_rates(), (std::vector<double>{0.25}));
}

TEST(OptimizerState, OptionsComeFromTheDictionary) {
  Tensor p = tensor({1., 2.}, f64).requires_grad_(), q = tensor({1., 2.}, f64).requires_grad_();
  optim::SGD trained({p}, {.lr = 0.25, .momentum = 0.5, .weight_decay = 0.1, .clip_grad_max_norm = 0.5}),
      other({q}, {.lr = 1});
  take_step(trained, 0);
  other.load_state_dict(trained.state_dict());
  {
    const NoGradGuard no_grad;
    q.copy_(p);
  }
  take_step(trained, 1);
  take_step(other, 1);
  EXPECT_TRUE(equal(p, q));
  // Options that use no buffer call for none; and the other way round.
  optim::SGD plain({q}, {.lr = 1});
  take_step(plain, 0);
  trained.load_state_dict(plain.state_dict());
  expect_same(trained.state_dict(), plain.state_dict());
}

TEST(OptimizerState, BeforeTheFirstStepThereIsNone) {
  Tensor p = tensor({1., 2.}, f64).requires_grad_();
  optim::Adam fresh({p}), trained({p});
  take_step(trained, 0);
  trained.load_state_dict(fresh.state_dict());
  expect_same(trained.state_dict(), fresh.state_dict());
  for (const auto& entry : trained.state_dict()) EXPECT_EQ(entry.first.find("0.0.m"), std::string::npos);
}

TEST(OptimizerState, GoesThroughAFile) {
  Tensor p = tensor({1., 2.}, f64).requires_grad_();
  optim::LAMB trained({p}, {.lr = 0.3}), other({p});
  take_step(trained, 0);
  const std::string path = testing::TempDir() + "graven_optimizer_state_" + std::to_string(::getpid()) + ".safetensors";
  nn::save(trained.state_dict(), path);
  other.load_state_dict(nn::load(path));
  std::remove(path.c_str());
  expect_same(other.state_dict(), trained.state_dict());
}

TEST(OptimizerState, SaysWhatIsWrong) {
  const struct {
    const char* name;
    Tensor value;
    const char* error;
  } cases[] = {
      {"0.0.m", zeros({3}, f64), "mismatch    0.0.m  expected f64[2], got f64[3]"},
      {"0.0.v", zeros({2}, i64), "mismatch    0.0.v  expected f64[2], got i64[2]"},
      {"0.0.v", Tensor(), "mismatch    0.0.v  expected f64[2], got an undefined tensor"},
      {"0.0.step", tensor({1, 2}), "mismatch    0.0.step  expected i64[], got i64[2]"},
      {"0.0.step", tensor(1.0), "mismatch    0.0.step  expected i64[], got f32[]"},
      {"0.0.step", tensor(-1), "0.0.step must not be negative, got -1"},
      {"0.0.step", tensor(std::numeric_limits<std::int64_t>::max()),
       "0.0.step must be at most 2^53, got 92233720368547"},
      {"0.maximize", tensor(0.5, f64), "the option maximize must be 0 or 1, got 0.5"},
      {"0.lr", tensor(-1., f64), "adam: the option lr must lie in [0, 1e+300], got -1"},
      {"0.lr", tensor(std::nan(""), f64), "adam: the option lr must lie in [0, 1e+300], got nan"},
      {"0.lr", tensor({1., 2.}), "mismatch    0.lr  expected f64[], got f32[2]"},
      {"0.beta1", tensor(2., f64), "adam: the option betas[0] must lie in [0, 1), got 2"},
      {"0.initial_lr", tensor(-1., f64), "adam: the option initial_lr must lie in [0, 1e+300], got -1"},
      {"0.clip_grad_norm_type", tensor(-1., f64), "adam: the option clip_grad_norm_type must be positive"},
      {"0.foo", tensor(1.), "unexpected  0.foo  f32[]"},
      {"0.0.max_v", zeros({2}), "unexpected  0.0.max_v  f32[2]"},
      {"1.lr", tensor(1.), "unexpected  1.lr  f32[]"},
  };
  Tensor p = tensor({1., 2.}, f64).requires_grad_();
  optim::Adam trained({p}), other({p}, {.lr = 0.5});
  take_step(trained, 0);
  const nn::StateDict before = copy_of(other.state_dict());
  for (const auto& c : cases) {
    nn::StateDict state = copy_of(trained.state_dict());
    const auto found =
        std::find_if(state.begin(), state.end(), [&](const auto& entry) { return entry.first == c.name; });
    if (found == state.end())
      state.emplace_back(c.name, c.value);
    else
      found->second = c.value;
    const std::string text = error_of([&] { other.load_state_dict(state); });
    EXPECT_NE(text.find(c.error), std::string::npos) << c.name << ": " << text;
    EXPECT_NE(text.find("optim_test.cpp:"), std::string::npos) << text;
    EXPECT_NE(text.find("load_state_dict"), std::string::npos) << text;
    expect_same(other.state_dict(), before);
  }
}

TEST(Schedules, GiveTheRatesOfPyTorch) {
  using namespace lr_scheduler;
  const auto make_schedule = [](const std::string& name, const optim::Optimizer& o) -> LRScheduler {
    if (name == "StepLR") return StepLR(o, {.step_size = 3, .gamma = 0.5});
    if (name == "MultiStepLR") return MultiStepLR(o, {.milestones = {2, 5, 5, 9}, .gamma = 0.3});
    if (name == "ExponentialLR") return ExponentialLR(o, {.gamma = 0.9});
    if (name == "CosineAnnealingLR") return CosineAnnealingLR(o, {.T_max = 10, .eta_min = 0.01});
    if (name == "LinearLR") return LinearLR(o, {.start_factor = 0.25, .total_iters = 4});
    if (name == "ConstantLR") return ConstantLR(o, {.factor = 0.25, .total_iters = 4});
    return PolynomialLR(o, {.total_iters = 6, .power = 2});
  };
  const nlohmann::json data = fixture();
  ASSERT_EQ(data.at("schedules").size(), 7u);
  for (const auto& c : data.at("schedules")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    optim::SGD optimizer({tensor({1.}).requires_grad_()}, {.lr = 0.1});
    LRScheduler schedule = make_schedule(c.at("name"), optimizer);
    for (double expected : c.at("rates")) {
      EXPECT_NEAR(optimizer.learning_rates()[0], expected, 1e-15);
      schedule.step();
    }
  }
}

TEST(Schedules, WarmUp) {
  optim::SGD optimizer({tensor({1.}).requires_grad_()}, {.lr = 1});
  lr_scheduler::StepLR schedule(optimizer, {.step_size = 4, .gamma = 0.5});
  schedule.warmup(4, {.factor = 0});
  std::vector<double> rates;
  for (int t = 0; t < 5; ++t) {
    rates.push_back(schedule.get_last_lr()[0]);
    schedule.step();
  }
  EXPECT_EQ(rates, (std::vector<double>{0, 0.125, 0.25, 0.375, 0.5}));
}

TEST(Training, LowersTheLossEagerly) {
  manual_seed(0);
  nn::Sequential net(nn::Linear(2, 16), nn::Tanh(), nn::Linear(16, 1));
  const Tensor x = rand({64, 2}), y = (x.select(1, 0) * x.select(1, 1)).unsqueeze(1);
  optim::Adam optimizer(net.parameters(), {.lr = 0.02});
  double first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    const Tensor loss = mse_loss(net(x), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    (step == 0 ? first : last) = loss.item<double>();
  }
  EXPECT_LT(last, 0.1 * first);
}

}  // namespace
}  // namespace graven
