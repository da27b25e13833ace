// Optimizers and schedules against PyTorch's numbers (tests/fixtures/make_optimizers.py).
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/frontend/error_text.h"

namespace graven {
namespace {

using test::error_of;

nlohmann::json fixture() {
  std::ifstream file(GRAVEN_SOURCE_DIR "/tests/fixtures/optimizers.json");
  return nlohmann::json::parse(file);
}

template <class Options>
Options common_options(const nlohmann::json& o) {
  Options options;
  options.lr = o.value("lr", options.lr);
  options.weight_decay = o.value("weight_decay", options.weight_decay);
  options.maximize = o.value("maximize", false);
  return options;
}
template <class Options>
Options adam_options(const nlohmann::json& o) {
  auto options = common_options<Options>(o);
  options.betas = o.value("betas", options.betas);
  options.eps = o.value("eps", options.eps);
  options.amsgrad = o.value("amsgrad", false);
  return options;
}

optim::Optimizer make(const std::string& kind, const std::vector<Tensor>& parameters, const nlohmann::json& o) {
  if (kind == "rmsprop") {
    auto options = common_options<optim::RMSpropOptions>(o);
    options.alpha = o.value("alpha", options.alpha);
    options.eps = o.value("eps", options.eps);
    options.momentum = o.value("momentum", 0.0);
    options.centered = o.value("centered", false);
    return optim::RMSprop(parameters, options);
  }
  if (kind == "adagrad") {
    auto options = common_options<optim::AdagradOptions>(o);
    options.lr_decay = o.value("lr_decay", 0.0);
    options.initial_accumulator_value = o.value("initial_accumulator_value", 0.0);
    options.eps = o.value("eps", options.eps);
    return optim::Adagrad(parameters, options);
  }
  if (kind == "adadelta") {
    auto options = common_options<optim::AdadeltaOptions>(o);
    options.rho = o.value("rho", options.rho);
    options.eps = o.value("eps", options.eps);
    return optim::Adadelta(parameters, options);
  }
  if (kind == "lamb") {
    auto options = common_options<optim::LAMBOptions>(o);
    options.betas = o.value("betas", options.betas);
    options.eps = o.value("eps", options.eps);
    options.adam_w_mode = o.value("adam_w_mode", true);
    options.do_bias_correction = o.value("do_bias_correction", true);
    return optim::LAMB(parameters, options);
  }
  if (kind == "adam") return optim::Adam(parameters, adam_options<optim::AdamOptions>(o));
  if (kind == "adamw") return optim::AdamW(parameters, adam_options<optim::AdamWOptions>(o));
  auto options = common_options<optim::SGDOptions>(o);
  options.momentum = o.value("momentum", 0.0);
  options.dampening = o.value("dampening", 0.0);
  options.nesterov = o.value("nesterov", false);
  return optim::SGD(parameters, options);
}

TEST(Optimizers, StepAsPyTorchDoes) {
  const nlohmann::json data = fixture();
  ASSERT_EQ(data.at("optimizers").size(), 27u);
  for (const auto& c : data.at("optimizers")) {
    SCOPED_TRACE(c.at("kind").get<std::string>() + c.at("options").dump());
    Tensor p = tensor({1., -2., 0.5}, f64).requires_grad_();
    optim::Optimizer optimizer = make(c.at("kind"), {p}, c.at("options"));
    ASSERT_EQ(c.at("parameters").size(), 50u);
    for (int t = 0; t < 50; ++t) {
      if (t == 3) {  // exact resume: a new optimizer with the old one's state
        const auto state = optimizer.state_dict();
        optimizer = make(c.at("kind"), {p}, c.at("options"));
        optimizer.load_state_dict(state);
      }
      p.set_grad((arange(3).to(f64) + t).sin() + 0.1 * p.detach());
      optimizer.step();
      const auto expected = c.at("parameters").at(static_cast<std::size_t>(t)).get<std::vector<double>>();
      const std::vector<double> got = p.to_vector<double>();
      for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << "step " << t;
    }
  }
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

TEST(Optimizers, SayWhatIsWrong) {
  Tensor p = tensor({1.}).requires_grad_();
  EXPECT_NE(error_of([&] { optim::SGD(std::vector<Tensor>{}); }).find("there are no parameters"), std::string::npos);
  EXPECT_NE(error_of([&] { optim::SGD({p, p}); }).find("is given twice"), std::string::npos);
  EXPECT_NE(error_of([&] { optim::SGD({p * 2}); }).find("must be a leaf"), std::string::npos);
  EXPECT_NE(error_of([&] { optim::SGD({p}, {.lr = -1}); }).find("lr is out of range"), std::string::npos);
  EXPECT_NE(error_of([&] { optim::SGD({p}, {.nesterov = true}); }).find("nesterov needs momentum"), std::string::npos);
  EXPECT_NE(error_of([&] { optim::Adam({p}, {.betas = {0.9, 1.0}}); }).find("betas[1] is out of range"), std::string::npos);
  EXPECT_NE(error_of([&] { optim::SGD({p}, {.clip_grad_max_norm = -1}); }).find("clip_grad_max_norm is out of range"), std::string::npos);
  EXPECT_NE(error_of([&] { optim::Adam({p}, {.clip_grad_max_norm = 1, .clip_grad_norm_type = 0}); }).find("clip_grad_norm_type must be positive"),
            std::string::npos);
  EXPECT_NE(error_of([&] { optim::RMSprop({p}, {.alpha = 1.5}); }).find("rmsprop: the option alpha is out of range"), std::string::npos);
  EXPECT_NE(error_of([&] { optim::RMSprop({p}, {.momentum = -1}); }).find("rmsprop: the option momentum is out of range"), std::string::npos);
  EXPECT_NE(error_of([&] { optim::Adagrad({p}, {.lr_decay = -1}); }).find("adagrad: the option lr_decay is out of range"), std::string::npos);
  EXPECT_NE(error_of([&] { optim::Adagrad({p}, {.initial_accumulator_value = -1}); }).find("initial_accumulator_value is out of range"),
            std::string::npos);
  EXPECT_NE(error_of([&] { optim::Adadelta({p}, {.rho = -0.1}); }).find("adadelta: the option rho is out of range"), std::string::npos);
  EXPECT_NE(error_of([&] { optim::LAMB({p}, {.betas = {1.0, 0.9}}); }).find("lamb: the option betas[0] is out of range"), std::string::npos);
  optim::SGD a({p}), b({p});
  EXPECT_NE(error_of([&] { a.load_state_dict({{"9.9.step", tensor(1)}}); }).find("missing     0.0.step"), std::string::npos);
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
