// Schedules beyond those of optim_test.cpp: PyTorch's against its numbers (tests/fixtures/make_optimizers.py),
// OneFlow's against numbers worked out by hand, sequences of them, graphs that step them, and what is refused.
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <unistd.h>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/call.h"
#include "tests/frontend/error_text.h"

namespace graven::lr_scheduler_test {
namespace {

using namespace lr_scheduler;

optim::SGD two_groups() {
  return optim::SGD({{{tensor({1.}).requires_grad_()}, {.lr = 0.1}}, {{tensor({1.}).requires_grad_()}, {.lr = 0.02}}});
}
optim::SGD one_group(double lr) { return optim::SGD({tensor({1.}).requires_grad_()}, {.lr = lr}); }

using Make = test::Call<LRScheduler(const optim::Optimizer&)>;

/// As make_optimizers.py has them.
const std::map<std::string, Make>& pytorch_schedules() {
  using O = const optim::Optimizer&;
  static const std::map<std::string, Make> all = {
      {"warm restarts", [](O o) { return CosineAnnealingWarmRestarts(o, {.T_0 = 7}); }},
      {"warm restarts, longer and longer",
       [](O o) { return CosineAnnealingWarmRestarts(o, {.T_0 = 3, .T_mult = 2, .eta_min = 0.01}); }},
      {"warm restarts from one step", [](O o) { return CosineAnnealingWarmRestarts(o, {.T_0 = 1, .T_mult = 3}); }},
      {"one cycle", [](O o) { return OneCycleLR(o, {.max_lr = 1, .total_steps = 50}); }},
      {"one cycle by group",
       [](O o) {
         return OneCycleLR(
             o,
             {.max_lr = {1.0, 0.3}, .total_steps = 60, .pct_start = 0.25, .div_factor = 10, .final_div_factor = 100});
       }},
      {"one cycle, linear",
       [](O o) {
         return OneCycleLR(
             o, {.max_lr = 0.5, .total_steps = 50, .pct_start = 0.33, .anneal_strategy = AnnealStrategy::linear});
       }},
      {"one cycle, three phases",
       [](O o) { return OneCycleLR(o, {.max_lr = 1, .total_steps = 50, .three_phase = true}); }},
      {"one cycle, three phases, linear",
       [](O o) {
         return OneCycleLR(o, {.max_lr = 1,
                               .total_steps = 55,
                               .pct_start = 0.42,
                               .anneal_strategy = AnnealStrategy::linear,
                               .three_phase = true});
       }},
      {"one cycle, only down", [](O o) { return OneCycleLR(o, {.max_lr = 1, .total_steps = 50, .pct_start = 0}); }},
      {"one cycle, only up", [](O o) { return OneCycleLR(o, {.max_lr = 1, .total_steps = 50, .pct_start = 1}); }},
      {"cyclic", [](O o) { return CyclicLR(o, {.base_lr = 0.01, .max_lr = 0.1, .step_size_up = 8}); }},
      {"cyclic by group",
       [](O o) {
         return CyclicLR(o, {.base_lr = {0.01, 0.03}, .max_lr = {0.1, 0.3}, .step_size_up = 4, .step_size_down = 9});
       }},
      {"cyclic, halved",
       [](O o) {
         return CyclicLR(
             o,
             {.base_lr = 0.02, .max_lr = 0.5, .step_size_up = 6, .step_size_down = 3, .mode = CyclicMode::triangular2});
       }},
      {"cyclic, exponential",
       [](O o) {
         return CyclicLR(
             o, {.base_lr = 0.02, .max_lr = 0.5, .step_size_up = 5, .mode = CyclicMode::exp_range, .gamma = 0.95});
       }},
      {"constant, exponential",
       [](O o) {
         return SequentialLR(o, {ConstantLR(o, {.factor = 0.1, .total_iters = 20}), ExponentialLR(o, {.gamma = 0.9})},
                             {20});
       }},
      {"linear, cosine, step",
       [](O o) {
         return SequentialLR(
             o,
             {LinearLR(o, {.start_factor = 0.1, .total_iters = 5}),
              CosineAnnealingLR(o, {.T_max = 25, .eta_min = 0.01}), StepLR(o, {.step_size = 4, .gamma = 0.5})},
             {5, 30});
       }},
      {"milestones, polynomial, restarts",
       [](O o) {
         return SequentialLR(
             o,
             {MultiStepLR(o, {.milestones = {2, 5, 5}, .gamma = 0.3}), PolynomialLR(o, {.total_iters = 8, .power = 2}),
              CosineAnnealingWarmRestarts(o, {.T_0 = 4, .T_mult = 2})},
             {7, 16});
       }},
      {"one cycle first, linear",
       [](O o) {
         const OneCycleLR main(o, {.max_lr = 1, .total_steps = 30, .three_phase = true});
         return SequentialLR(o, {main, LinearLR(o, {.start_factor = 0.5, .total_iters = 6})}, {30});
       }},
      {"one cycle made first, after linear",
       [](O o) {
         const OneCycleLR main(o, {.max_lr = 1, .total_steps = 40});
         return SequentialLR(o, {LinearLR(o, {.start_factor = 0.2, .total_iters = 10}), main}, {10});
       }},
      {"lambda",
       [](O o) { return LambdaLR(o, [](std::int64_t t) { return 1 / (1 + 0.1 * static_cast<double>(t)); }); }},
      {"lambda by group",
       [](O o) {
         return LambdaLR(o, {[](std::int64_t t) { return 1.0 + static_cast<double>(t / 5); },
                             [](std::int64_t t) { return t < 20 ? 0.5 : 0.25; }});
       }},
  };
  return all;
}

TEST(Schedules, GiveTheRatesOfPyTorchOver50Steps) {
  std::ifstream file(GRAVEN_SOURCE_DIR "/tests/fixtures/schedules.json");
  const nlohmann::json data = nlohmann::json::parse(file);
  ASSERT_EQ(data.size(), pytorch_schedules().size());
  for (const auto& c : data) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    const optim::SGD optimizer = two_groups();
    LRScheduler schedule = pytorch_schedules().at(c.at("name"))(optimizer);
    ASSERT_EQ(c.at("rates").size(), 50u);
    for (const auto& expected : c.at("rates")) {
      const std::vector<double> rates = optimizer.learning_rates();
      for (std::size_t g = 0; g < 2; ++g)
        EXPECT_NEAR(rates[g], expected[g].get<double>(), 1e-15) << "step " << schedule.last_epoch();
      schedule.step();
    }
  }
}

TEST(Schedules, GoOnFromAnyStepBitForBit) {
  for (const auto& [name, make] : pytorch_schedules()) {
    SCOPED_TRACE(name);
    const optim::SGD optimizer = two_groups(), resumed = two_groups();
    LRScheduler schedule = make(optimizer), at_once = make(resumed);
    for (int t = 0; t < 80; ++t) {
      at_once.set_last_epoch(t);
      EXPECT_EQ(resumed.learning_rates(), optimizer.learning_rates()) << t;
      schedule.step();
    }
  }
}

TEST(Schedules, GiveTheRatesOfOneFlow) {
  const struct {
    const char* name;
    Make make;
    std::vector<std::pair<std::int64_t, double>> rates;
  } cases[] = {
      {"cosine decay",
       [](const optim::Optimizer& o) { return CosineDecayLR(o, {.decay_steps = 12, .alpha = 0.2}); },
       {{0, 0.1}, {3, 0.08828427124746191}, {4, 0.08}, {6, 0.06}, {8, 0.04}, {12, 0.02}, {13, 0.02}, {50, 0.02}}},
      {"cosine decay to nothing",
       [](const optim::Optimizer& o) { return CosineDecayLR(o, {.decay_steps = 3}); },
       {{0, 0.1}, {1, 0.075}, {2, 0.025}, {3, 0}, {4, 0}}},
      {"polynomial to an end",
       [](const optim::Optimizer& o) {
         return PolynomialLR(o, {.total_iters = 4, .power = 2, .end_learning_rate = 0.02});
       },
       {{0, 0.1}, {1, 0.065}, {2, 0.04}, {3, 0.025}, {4, 0.02}, {9, 0.02}}},
      {"polynomial, cycle",
       [](const optim::Optimizer& o) {
         return PolynomialLR(o, {.total_iters = 4, .power = 2, .end_learning_rate = 0.02, .cycle = true});
       },
       {{0, 0.1},
        {1, 0.065},
        {2, 0.04},
        {4, 0.02},
        {5, 0.03125},
        {6, 0.025},
        {8, 0.02},
        {9, 0.025},
        {12, 0.02},
        {13, 0.0228125}}},
      {"polynomial, cycle to nothing",
       [](const optim::Optimizer& o) { return PolynomialLR(o, {.total_iters = 2, .cycle = true}); },
       {{0, 0.1}, {1, 0.05}, {2, 0}, {3, 0.025}, {4, 0}, {5, 0.1 / 6}, {6, 0}}},
  };
  for (const auto& c : cases) {
    const optim::SGD optimizer = one_group(0.1);
    LRScheduler schedule = c.make(optimizer);
    for (const auto& [t, rate] : c.rates) {
      schedule.set_last_epoch(t);
      EXPECT_NEAR(optimizer.learning_rates()[0], rate, 1e-16) << c.name << ", step " << t;
    }
  }
}

TEST(Schedules, OneCycleKeepsItsLastRate) {
  for (const AnnealStrategy strategy : {AnnealStrategy::cos, AnnealStrategy::linear})
    for (const bool three_phase : {false, true})
      for (const double pct_start : {0.0, 0.02, 0.1, 0.3, 0.5, 0.9})
        for (const std::int64_t total : {1, 2, 3, 10, 50}) {
          SCOPED_TRACE(testing::Message() << pct_start << " of " << total << (three_phase ? ", three phases" : ""));
          const optim::SGD optimizer = one_group(5);
          OneCycleLR schedule(optimizer, {.max_lr = 1,
                                          .total_steps = total,
                                          .pct_start = pct_start,
                                          .anneal_strategy = strategy,
                                          .div_factor = 20,
                                          .final_div_factor = 100,
                                          .three_phase = three_phase});
          for (std::int64_t t = 0; t < total; ++t, schedule.step()) {
            EXPECT_GE(optimizer.learning_rates()[0], 0.05 / 100 * 0.999999) << t;
            EXPECT_LE(optimizer.learning_rates()[0], 1.000001) << t;
          }
          schedule.set_last_epoch(total - 1);
          const double last = optimizer.learning_rates()[0];
          const bool third_phase = !three_phase || 2 * pct_start <= 1 ||
                                   total == 1;  // or the fall back to where the rise began fills the rest
          if (third_phase) {
            EXPECT_NEAR(last, 0.0005, 1e-15);
          }
          for (const std::int64_t t : {total, total + 1, 1000 * total}) {
            schedule.set_last_epoch(t);
            EXPECT_EQ(optimizer.learning_rates()[0], last) << t;
          }
        }
}

TEST(Schedules, CyclesOfLargeNumbersStayFinite) {
  const optim::SGD optimizer = one_group(1);
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  for (const std::int64_t multiple : {std::int64_t{1}, std::int64_t{2}, kMost}) {
    CosineAnnealingWarmRestarts schedule(optimizer, {.T_0 = 1, .T_mult = multiple});
    for (const std::int64_t t : {std::int64_t{0}, std::int64_t{1}, kMost - 1, kMost}) {
      schedule.set_last_epoch(t);
      EXPECT_GE(schedule.get_last_lr()[0], 0);
      EXPECT_LE(schedule.get_last_lr()[0], 1);
    }
  }
}

TEST(Schedules, SequencesMayStandInSequencesAndHaveWarmUps) {
  const optim::SGD optimizer = one_group(1);
  LRScheduler decay = ExponentialLR(optimizer, {.gamma = 0.5});
  const SequentialLR inner(optimizer, {ConstantLR(optimizer, {.factor = 0.75, .total_iters = 10}), decay}, {2});
  LRScheduler warm = StepLR(optimizer, {.step_size = 2, .gamma = 0.5});
  warm.warmup(2, {.factor = 0});
  SequentialLR schedule(optimizer, {inner, warm}, {5});
  decay.step();  // changes nothing: the sequence has what it was made of
  warm.warmup(0);
  schedule.set_last_epoch(0);
  std::vector<double> rates;
  for (int t = 0; t < 10; ++t) {
    rates.push_back(optimizer.learning_rates()[0]);
    schedule.step();
  }
  EXPECT_EQ(rates, (std::vector<double>{0.75, 0.75, 1, 0.5, 0.25, 0, 0.25, 0.5, 0.5, 0.25}));
  schedule.warmup(4, {.factor = 0});
  schedule.set_last_epoch(2);
  EXPECT_EQ(optimizer.learning_rates()[0], 0.125) << "half way to the 0.25 of step 4";
  schedule.set_last_epoch(4);
  EXPECT_EQ(optimizer.learning_rates()[0], 0.25);
}

TEST(Schedules, WarmUpOneCycles) {
  const optim::SGD optimizer = one_group(1);
  OneCycleLR schedule(
      optimizer,
      {.max_lr = 8, .total_steps = 20, .pct_start = 0.25, .anneal_strategy = AnnealStrategy::linear, .div_factor = 8});
  schedule.warmup(4, {.method = Warmup::constant, .factor = 0.5});
  EXPECT_EQ(optimizer.learning_rates()[0], 0.5);
  schedule.set_last_epoch(4);
  EXPECT_EQ(optimizer.learning_rates()[0], 8);
}

TEST(Schedules, SayWhatIsWrong) {
  const optim::SGD sgd = two_groups(), other = one_group(0.1);
  const double inf = std::numeric_limits<double>::infinity();
  const StepLR step(sgd, {}), others(other, {});
  const auto nested = [&](int depth) {
    LRScheduler schedule = step;
    for (int i = 1; i < depth; ++i) schedule = SequentialLR(sgd, {schedule}, {});
  };
  nested(8);
  const struct {
    test::Call<void()> mistake;
    const char* error;
  } cases[] = {
      {[&] { CosineAnnealingWarmRestarts(sgd, {.T_0 = 0}); },
       "CosineAnnealingWarmRestarts: T_0 must be positive, got 0"},
      {[&] { CosineAnnealingWarmRestarts(sgd, {.T_mult = 0}); },
       "CosineAnnealingWarmRestarts: T_mult must be positive, got 0"},
      {[&] { CosineAnnealingWarmRestarts(sgd, {.eta_min = inf}); },
       "CosineAnnealingWarmRestarts: eta_min must be a finite number, got inf"},
      {[&] { CosineDecayLR(sgd, {.decay_steps = -1}); }, "CosineDecayLR: decay_steps must be positive, got -1"},
      {[&] { CosineDecayLR(sgd, {.alpha = inf}); }, "CosineDecayLR: alpha must be a finite number, got inf"},
      {[&] { PolynomialLR(sgd, {.end_learning_rate = -inf}); },
       "PolynomialLR: end_learning_rate must be a finite number, got -inf"},
      {[&] { StepLR(sgd, {.step_size = std::int64_t{1} << 62}); },
       "StepLR: step_size must be at most 2^53, got 4611686018427387904"},
      {[&] { OneCycleLR(sgd, {.max_lr = 1}); }, "OneCycleLR: total_steps must be positive, got 0"},
      {[&] { OneCycleLR(sgd, {.total_steps = 5}); },
       "OneCycleLR: max_lr must be one number, or one for each of the 2 parameter groups, got 0"},
      {[&] { OneCycleLR(sgd, {.max_lr = {1, 2, 3}, .total_steps = 5}); },
       "OneCycleLR: max_lr must be one number, or one for each of the 2 parameter groups, got 3"},
      {[&] { OneCycleLR(sgd, {.max_lr = {1, -2}, .total_steps = 5}); },
       "OneCycleLR: max_lr must be finite and not negative, got -2"},
      {[&] { OneCycleLR(sgd, {.max_lr = inf, .total_steps = 5}); },
       "OneCycleLR: max_lr must be finite and not negative, got inf"},
      {[&] { OneCycleLR(sgd, {.max_lr = 1, .total_steps = 5, .pct_start = 1.5}); },
       "OneCycleLR: pct_start must lie in [0, 1], got 1.5"},
      {[&] { OneCycleLR(sgd, {.max_lr = 1, .total_steps = 5, .div_factor = 0}); },
       "OneCycleLR: div_factor must be a finite number above 0, got 0"},
      {[&] { OneCycleLR(sgd, {.max_lr = 1, .total_steps = 5, .final_div_factor = -2}); },
       "OneCycleLR: final_div_factor must be a finite number above 0, got -2"},
      {[&] { CyclicLR(sgd, {.base_lr = 0, .max_lr = 1}); },
       "CyclicLR: base_lr must be above 0, since the whole curve is a multiple of it"},
      {[&] { CyclicLR(sgd, {.base_lr = {1, 2, 3}, .max_lr = 1}); },
       "CyclicLR: base_lr must be one number, or one for each of the 2 parameter groups, got 3"},
      {[&] { CyclicLR(sgd, {.base_lr = 1}); },
       "CyclicLR: max_lr must be one number, or one for each of the 2 parameter groups, got 0"},
      {[&] { CyclicLR(sgd, {.base_lr = {0.1, 0.2}, .max_lr = 1}); },
       "CyclicLR: max_lr / base_lr must be the same for each parameter group, got 1 / 0.1 and 1 / 0.2"},
      {[&] { CyclicLR(sgd, {.base_lr = {0.1, 0}, .max_lr = {1, 0}}); },
       "CyclicLR: max_lr / base_lr must be the same for each parameter group, got 1 / 0.1 and 0 / 0"},
      {[&] { CyclicLR(sgd, {.base_lr = 1, .max_lr = 2, .step_size_up = 0}); },
       "CyclicLR: step_size_up must be positive, got 0"},
      {[&] { CyclicLR(sgd, {.base_lr = 1, .max_lr = 2, .step_size_down = 0}); },
       "CyclicLR: step_size_down must be positive, got 0"},
      {[&] { CyclicLR(sgd, {.base_lr = 1, .max_lr = 2, .gamma = inf}); },
       "CyclicLR: gamma must be a finite number, got inf"},
      {[&] { LambdaLR(sgd, std::vector<LambdaLR::Function>(3, [](std::int64_t) { return 1.0; })); },
       "LambdaLR: expected one function, or one for each of the 2 parameter groups, got 3"},
      {[&] { LambdaLR(sgd, LambdaLR::Function()); }, "LambdaLR: a function is empty"},
      {[&] { LambdaLR(two_groups(), [](std::int64_t t) { return 1.0 / static_cast<double>(t); }); },
       "LambdaLR: the function gave inf for step 0; a factor must be finite"},
      {[&] { LambdaLR(two_groups(), [](std::int64_t t) { return 1.0 / static_cast<double>(1 - t); }).step(); },
       "LambdaLR: the function gave inf for step 1; a factor must be finite"},
      {[&] { StepLR(two_groups(), {}).set_last_epoch(-1); },
       "set_last_epoch: a schedule cannot stand before its first step, expected 0 or more, got -1"},
      {[&] { StepLR(two_groups(), {}).warmup(-1); }, "warmup: the number of steps must not be negative, got -1"},
      {[&] { StepLR(two_groups(), {}).warmup(5, {.factor = 2}); }, "warmup: the factor must lie in [0, 1], got 2"},
      {[&] { LambdaLR(two_groups(), [](std::int64_t) { return 1.0; }).warmup(3); },
       "warmup: a LambdaLR has none: let its function begin with it"},
      {[&] { SequentialLR(sgd, {step, LambdaLR(sgd, [](std::int64_t) { return 1.0; })}, {5}); },
       "SequentialLR: scheduler 1 is a LambdaLR, which stands alone: let its function count the steps"},
      {[&] { ReduceLROnPlateau(sgd, {.factor = 1}); }, "ReduceLROnPlateau: factor must lie in [0, 1), got 1"},
      {[&] { ReduceLROnPlateau(sgd, {.patience = -1}); }, "ReduceLROnPlateau: patience must not be negative, got -1"},
      {[&] { ReduceLROnPlateau(sgd, {.cooldown = -2}); }, "ReduceLROnPlateau: cooldown must not be negative, got -2"},
      {[&] { ReduceLROnPlateau(sgd, {.threshold = inf}); },
       "ReduceLROnPlateau: threshold must be a finite number, got inf"},
      {[&] { ReduceLROnPlateau(sgd, {.min_lr = {1, 2, 3}}); },
       "ReduceLROnPlateau: min_lr must be one number, or one for each of the 2 parameter groups, got 3"},
      {[&] { SequentialLR(sgd, {}, {}); }, "SequentialLR: there are no schedulers"},
      {[&] { SequentialLR(sgd, {step, others}, {5}); }, "SequentialLR: scheduler 1 belongs to another optimizer"},
      {[&] { SequentialLR(sgd, {step, step}, {5, 6}); },
       "SequentialLR: expected one milestone fewer than schedulers, got 2 and 2"},
      {[&] { SequentialLR(sgd, {step, step}, {0}); }, "SequentialLR: milestones must increase from above 0, got 0"},
      {[&] { SequentialLR(sgd, {step, step, step}, {5, 5}); },
       "SequentialLR: milestones must increase from above 0, got 5, 5"},
      {[&] { nested(9); }, "SequentialLR: schedules stand within schedules at most 8 deep, got 9"},
      {[&] { SequentialLR(sgd, {step, OneCycleLR(sgd, {.max_lr = 1, .total_steps = 5})}, {5}); },
       "SequentialLR: scheduler 0 starts from the learning rate 0.1, but scheduler 1 sets it to 0.04\n"
       "  make OneCycleLR or CyclicLR before the others: all start from the rate that it sets"},
      {[&] {
         const optim::SGD fresh = two_groups();
         const StepLR before(fresh, {});
         const OneCycleLR cycle(fresh, {.max_lr = 1, .total_steps = 5});
         SequentialLR(fresh, {before, SequentialLR(fresh, {cycle, StepLR(fresh, {})}, {5})}, {7});
       },
       "SequentialLR: scheduler 0 starts from the learning rate 0.1, but scheduler 1 sets it to 0.04\n"
       "  make OneCycleLR or CyclicLR before the others: all start from the rate that it sets"},
  };
  for (const auto& c : cases) {
    const std::string text = test::error_of(c.mistake);
    EXPECT_EQ(text.substr(0, text.rfind("\n  at lr_scheduler_test.cpp:")), std::string("error: ") + c.error);
    EXPECT_NE(text.find("\n  at lr_scheduler_test.cpp:"), std::string::npos) << text;
  }
}

TEST(Schedules, GoOnFromTheirState) {
  for (const auto& [name, make] : pytorch_schedules()) {
    SCOPED_TRACE(name);
    const optim::SGD one = two_groups(), other = two_groups();
    LRScheduler schedule = make(one);
    for (int t = 0; t < 9; ++t) schedule.step();
    LRScheduler resumed = make(other);
    // Whatever its optimizer's rates are by then.
    optim::SGD(other).set_learning_rate(0.7);
    const nn::LoadReport report = resumed.load_state_dict(schedule.state_dict());
    EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
    EXPECT_EQ(resumed.last_epoch(), 9);
    for (int t = 0; t < 20; ++t) {
      EXPECT_EQ(resumed.get_last_lr(), schedule.get_last_lr()) << t;
      EXPECT_EQ(other.learning_rates(), one.learning_rates()) << t;
      schedule.step();
      resumed.step();
    }
  }
}

TEST(Schedules, TakeTheirOptionsFromTheirState) {
  const optim::SGD one = one_group(0.1), other = one_group(0.1);
  StepLR schedule(one, {.step_size = 3, .gamma = 0.5}), resumed(other, {.step_size = 7, .gamma = 0.25});
  resumed.load_state_dict(schedule.state_dict());
  for (int t = 0; t < 8; ++t, schedule.step(), resumed.step())
    EXPECT_EQ(resumed.get_last_lr(), schedule.get_last_lr()) << t;
}

TEST(Schedules, SayWhatIsWrongInTheirState) {
  const optim::SGD optimizer = one_group(0.1);
  StepLR schedule(optimizer, {.step_size = 3, .gamma = 0.5});
  schedule.step();
  const nn::StateDict good = schedule.state_dict();
  const struct {
    const char* name;
    Tensor value;  ///< undefined: none of the name
    const char* error;
  } cases[] = {
      {"last_epoch", Tensor(), "missing     last_epoch  i64[]"},
      {"base_lrs", Tensor(), "missing     base_lrs  f64[1]"},
      {"gamma", Tensor(), "missing     gamma  f64[]"},
      {"T_max", tensor(1.), "unexpected  T_max  f32[]"},
      {"last_epoch", tensor(-1), "last_epoch must not be negative, got -1"},
      {"last_epoch", tensor(1.5), "mismatch    last_epoch  expected i64[], got f32[]"},
      {"base_lrs", tensor({1., 2.}), "mismatch    base_lrs  expected f64[1], got f32[2]"},
      {"base_lrs", tensor({-1.}), "base_lrs must be finite and not negative, got -1"},
      {"step_size", tensor(0.), "expected a whole number from 1 to 2^53 for step_size, found 0"},
      {"gamma", tensor(std::numeric_limits<double>::infinity()), "expected a finite number for gamma, found inf"},
  };
  for (const auto& c : cases) {
    nn::StateDict state;
    bool found = false;
    for (const auto& entry : good) {
      found |= entry.first == c.name;
      if (entry.first != c.name)
        state.push_back(entry);
      else if (c.value.defined())
        state.emplace_back(c.name, c.value);
    }
    if (!found) state.emplace_back(c.name, c.value);
    const std::string text = test::error_of([&] { schedule.load_state_dict(state); });
    EXPECT_NE(text.find(c.error), std::string::npos) << text;
    EXPECT_NE(text.find("load_state_dict of a learning-rate schedule"), std::string::npos) << text;
    EXPECT_NE(text.find("lr_scheduler_test.cpp:"), std::string::npos) << text;
    EXPECT_EQ(schedule.last_epoch(), 1);
    EXPECT_EQ(optimizer.learning_rates(), (std::vector<double>{0.1}));
  }
}

struct Mlp : nn::Module<Mlp> {
  nn::Linear hidden = child("hidden", nn::Linear(6, 20));
  nn::Linear logits = child("logits", nn::Linear(20, 3));
  Tensor forward(Tensor x) { return logits(relu(hidden(x))); }
};

struct Scheduled : nn::Graph<Scheduled> {
  Mlp model;
  optim::SGD optimizer;
  Scheduled(Mlp mlp, const Make& schedule)
      : model(child("model", mlp)), optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9}) {
    add_optimizer(optimizer, schedule(optimizer));
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(model(x), labels);
    loss.backward();
    return loss;
  }
};

ReduceLROnPlateauOptions plateau_options(const nlohmann::json& o) {
  ReduceLROnPlateauOptions options;
  options.mode = o.value("mode", "min") == "min" ? PlateauMode::min : PlateauMode::max;
  options.factor = o.value("factor", options.factor);
  options.patience = o.value("patience", options.patience);
  options.threshold = o.value("threshold", options.threshold);
  options.threshold_mode = o.value("threshold_mode", "rel") == "rel" ? ThresholdMode::rel : ThresholdMode::abs;
  options.cooldown = o.value("cooldown", options.cooldown);
  if (o.contains("min_lr")) options.min_lr = o.at("min_lr").get<std::vector<double>>();
  options.eps = o.value("eps", options.eps);
  return options;
}

TEST(Plateaus, GiveTheRatesOfPyTorch) {
  std::ifstream file(GRAVEN_SOURCE_DIR "/tests/fixtures/optimizers.json");
  const nlohmann::json cases = nlohmann::json::parse(file).at("plateaus");
  ASSERT_GT(cases.size(), 3u);
  std::size_t reductions = 0;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.at("options").dump());
    const optim::SGD optimizer = two_groups();
    ReduceLROnPlateau schedule(optimizer, plateau_options(c.at("options")));
    std::vector<double> before = optimizer.learning_rates();
    for (const auto& epoch : c.at("epochs")) {
      // Each epoch in one that was loaded from the state of the epoch before.
      ReduceLROnPlateau resumed(optimizer, plateau_options(c.at("options")));
      resumed.load_state_dict(schedule.state_dict());
      resumed.step(std::stod(epoch.at("metric").get<std::string>()));
      schedule = resumed;
      EXPECT_EQ(schedule.get_last_lr(), epoch.at("rates").get<std::vector<double>>())
          << "epoch " << schedule.last_epoch();
      EXPECT_EQ(schedule.num_bad_epochs(), epoch.at("bad").get<std::int64_t>()) << "epoch " << schedule.last_epoch();
      reductions += optimizer.learning_rates() != before ? 1 : 0;
      before = optimizer.learning_rates();
    }
  }
  EXPECT_GT(reductions, 10u);
}

TEST(Plateaus, LowerTheRateOfAGraph) {
  manual_seed(14);
  const Tensor x = randn({8, 6}), labels = randint(0, 3, {8});
  struct Plain : nn::Graph<Plain> {
    Mlp model = child("model", Mlp());
    optim::SGD optimizer{model.parameters(), {.lr = 0.1}};
    Plain() { add_optimizer(optimizer); }
    Tensor build(Tensor x, Tensor labels) {
      Tensor loss = cross_entropy(model(x), labels);
      loss.backward();
      return loss;
    }
  } graph;
  ReduceLROnPlateau schedule(graph.optimizer, {.factor = 0, .patience = 0});
  const Tensor first = graph(x, labels);
  schedule.step(first);
  schedule.step(first);  // no better than before: the rate is 0 from here on
  EXPECT_EQ(graph.learning_rates(), (std::vector<double>{0}));
  const Tensor second = graph(x, labels);
  EXPECT_LT(second.item<double>(), first.item<double>());
  EXPECT_TRUE(equal(graph(x, labels), second));
}

/// Beside a schedule a reduction stays: the schedule goes on from the reduced rate, as PyTorch's chainable formulas
/// have it, which are repeated here.
TEST(Plateaus, ReduceWhatAScheduleGoesOnFrom) {
  constexpr double kPi = 3.14159265358979323846;
  const struct {
    const char* name;
    Make schedule;
    test::Call<double(double lr, int t)> next;  ///< PyTorch's get_lr() of step t, from the rate of the one before
  } cases[] = {
      {"step", [](const optim::Optimizer& o) { return StepLR(o, {.step_size = 2, .gamma = 0.5}); },
       [](double lr, int t) { return t % 2 == 0 ? lr * 0.5 : lr; }},
      {"a step that is far away", [](const optim::Optimizer& o) { return StepLR(o, {.step_size = 1000}); },
       [](double lr, int) { return lr; }},
      {"exponential", [](const optim::Optimizer& o) { return ExponentialLR(o, {.gamma = 0.9}); },
       [](double lr, int) { return lr * 0.9; }},
      {"cosine", [](const optim::Optimizer& o) { return CosineAnnealingLR(o, {.T_max = 20, .eta_min = 0.001}); },
       [](double lr, int t) {
         return (1 + std::cos(kPi * t / 20)) / (1 + std::cos(kPi * (t - 1) / 20)) * (lr - 0.001) + 0.001;
       }},
      {"linear",
       [](const optim::Optimizer& o) { return LinearLR(o, {.start_factor = 0.5, .end_factor = 1, .total_iters = 5}); },
       [](double lr, int t) { return t > 5 ? lr : lr * (1 + 0.5 / (5 * 0.5 + (t - 1) * 0.5)); }},
  };
  manual_seed(15);
  const Tensor x = randn({8, 6}), labels = randint(0, 3, {8});
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    Mlp eager, shared;
    shared.load_state_dict(eager.state_dict());
    Scheduled graph(shared, c.schedule);
    optim::SGD optimizer(eager.parameters(), {.lr = 0.1, .momentum = 0.9});
    LRScheduler schedule = c.schedule(optimizer);
    const ReduceLROnPlateauOptions options{.factor = 0.5, .patience = 1};
    ReduceLROnPlateau plateau(optimizer, options), of_graph(graph.optimizer, options);
    double expected = optimizer.learning_rates()[0];
    for (int t = 1; t <= 9; ++t) {
      optimizer.zero_grad();
      cross_entropy(eager(x), labels).backward();
      optimizer.step();
      (void)graph(x, labels);
      schedule.step();
      plateau.step(1.0);
      of_graph.step(1.0);
      expected = c.next(expected, t);
      if (t == 3 || t == 5 || t == 7 || t == 9) expected *= 0.5;  // each second epoch that is no better than the first
      EXPECT_NEAR(optimizer.learning_rates()[0], expected, 1e-12) << "step " << t;
      EXPECT_EQ(graph.optimizer.learning_rates(), optimizer.learning_rates()) << "step " << t;
      EXPECT_EQ(graph.learning_rates(), optimizer.learning_rates()) << "step " << t;
      EXPECT_TRUE(allclose(shared.parameters()[0], eager.parameters()[0], 1e-4, 1e-5)) << "step " << t;
    }
    EXPECT_EQ(schedule.get_last_lr(), optimizer.learning_rates());
  }
}

TEST(Plateaus, AreRefusedBesideSchedulesThatSetEachRateAnew) {
  const std::pair<const char*, Make> cases[] = {
      {"LambdaLR", [](const optim::Optimizer& o) { return LambdaLR(o, [](std::int64_t) { return 1.0; }); }},
      {"OneCycleLR", [](const optim::Optimizer& o) { return OneCycleLR(o, {.max_lr = 1, .total_steps = 50}); }},
      {"CosineAnnealingWarmRestarts",
       [](const optim::Optimizer& o) { return CosineAnnealingWarmRestarts(o, {.T_0 = 7}); }},
      {"SequentialLR",
       [](const optim::Optimizer& o) {
         return SequentialLR(o, {StepLR(o, {.step_size = 2}), StepLR(o, {.step_size = 3})}, {2});
       }},
  };
  for (const auto& [name, make] : cases) {
    optim::SGD optimizer = one_group(0.1);
    ReduceLROnPlateau plateau(optimizer, {.patience = 0});
    {
      const LRScheduler schedule = make(optimizer);
      const std::string error = test::error_of([&] { plateau.step(1.0); });
      EXPECT_NE(error.find("the optimizer's " + std::string(name) + " sets the rate of each step anew"),
                std::string::npos)
          << error;
      EXPECT_NE(error.find("at lr_scheduler_test.cpp:"), std::string::npos) << error;
      EXPECT_EQ(plateau.last_epoch(), 0);
    }
    EXPECT_EQ(test::error_of([&] { plateau.step(1.0); }), "no error");  // the schedule is gone
  }
}

TEST(Schedules, AFunctionThatThrowsLeavesThemAsTheyWere) {
  const Make make = [](const optim::Optimizer& o) {
    return LambdaLR(o, [](std::int64_t t) {
      if (t == 2) throw std::runtime_error("no rate");
      return 1.0 / static_cast<double>(1 + t);
    });
  };
  optim::SGD optimizer = one_group(0.1);
  LRScheduler schedule = make(optimizer);
  schedule.step();
  EXPECT_THROW(schedule.step(), std::runtime_error);
  EXPECT_THROW(schedule.set_last_epoch(2), std::runtime_error);
  EXPECT_EQ(schedule.last_epoch(), 1);
  EXPECT_EQ(optimizer.learning_rates(), (std::vector<double>{0.05}));
  schedule.set_last_epoch(3);
  EXPECT_EQ(optimizer.learning_rates(), (std::vector<double>{0.025}));

  manual_seed(16);
  const Tensor x = randn({8, 6}), labels = randint(0, 3, {8});
  Scheduled graph(Mlp(), make);
  (void)graph(x, labels);
  const Tensor before = graph.model.parameters()[0].detach().clone();
  EXPECT_THROW((void)graph(x, labels), std::runtime_error);
  EXPECT_EQ(graph.train_step(), 1);
  EXPECT_EQ(graph.learning_rates(), (std::vector<double>{0.05}));
  EXPECT_TRUE(equal(graph.model.parameters()[0].detach(), before));
}

TEST(Schedules, CountToTheLastNumber) {
  optim::SGD optimizer = one_group(0.1);
  StepLR schedule(optimizer, {.step_size = 2});
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  schedule.set_last_epoch(kMost);
  EXPECT_NE(test::error_of([&] { schedule.step(); }).find("there are no more steps to count"), std::string::npos);
  EXPECT_EQ(schedule.last_epoch(), kMost);
}

TEST(Schedules, AFunctionOfTheProgramIsNeitherSavedNorEmitted) {
  Scheduled graph(
      Mlp(), [](const optim::Optimizer& o) { return LambdaLR(o, [](std::int64_t t) { return t < 2 ? 1.0 : 0.5; }); });
  graph.compile(spec({8, 6}), spec({8}, i64));
  const std::string error =
      "error: the learning-rate schedule LambdaLR is a function of this program, which cannot be saved or emitted\n"
      "  give it a table, {.tabulated_steps = ...}, or use one of the other schedules, or SequentialLR with several of "
      "them";
  const std::string folder = testing::TempDir() + "graven_lambda_" + std::to_string(::getpid());
  EXPECT_EQ(test::error_of([&] { graph.save(folder); }), error);
  EXPECT_EQ(test::error_of([&] { codegen::emit(graph, folder); }), error);
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(Schedules, ATableOfAFunctionIsSavedAndEmitted) {
  const auto factor = [](std::int64_t t) { return 1 / (1 + 0.5 * static_cast<double>(t)); };
  Scheduled graph(Mlp(), [&](const optim::Optimizer& o) { return LambdaLR(o, factor, {.tabulated_steps = 3}); });
  graph.compile(spec({8, 6}), spec({8}, i64));
  const std::string folder = testing::TempDir() + "graven_table_" + std::to_string(::getpid());
  graph.save(folder);
  const ir::Graph& recorded = graph.graph();
  ASSERT_EQ(recorded.optimizers.at(0).schedule.kind, "table");
  EXPECT_EQ(recorded.optimizers[0].schedule.factors, (std::vector<double>{1, 1 / 1.5, 0.5}));
  codegen::emit(graph, folder + "/project");
  std::ifstream main(folder + "/project/main.cpp");
  const std::string text(std::istreambuf_iterator<char>(main), {});
  EXPECT_NE(text.find(".kind = Schedule::Kind::table"), std::string::npos) << text;
  EXPECT_NE(text.find("0.6666666666666666"), std::string::npos) << text;
  // What was saved goes on as the function does, to the table's end; the function itself goes on.
  nn::SavedGraph saved(folder);
  manual_seed(13);
  const Tensor x = randn({8, 6}), labels = randint(0, 3, {8});
  for (int t = 0; t < 3; ++t) {
    EXPECT_EQ(saved.learning_rates(), (std::vector<double>{0.1 * factor(t)}));
    saved({x, labels});
    graph(x, labels);
  }
  EXPECT_NE(test::error_of([&] { saved({x, labels}); }).find("ends after 3 steps"), std::string::npos)
      << test::error_of([&] { saved({x, labels}); });
  EXPECT_EQ(graph.learning_rates(), (std::vector<double>{0.1 * factor(3)}));
  std::filesystem::remove_all(folder);

  const optim::SGD two = two_groups();
  using Functions = std::vector<LambdaLR::Function>;
  EXPECT_NE(test::error_of([&] {
              LambdaLR(two, Functions{factor, [](std::int64_t) { return 1.0; }}, {.tabulated_steps = 2});
            }).find("the functions of the parameter groups 0 and 1 differ at step 1"),
            std::string::npos);
  EXPECT_NE(test::error_of([&] { LambdaLR(two, factor, {.tabulated_steps = -1}); }).find("tabulated_steps must lie in"),
            std::string::npos);
}

/// PyTorch's scheduler has last_epoch in its state, and functions not.
TEST(Schedules, AFunctionGoesOnFromWhatWasSaved) {
  const auto factor = [](std::int64_t t) { return 1 / (1 + 0.5 * static_cast<double>(t)); };
  const optim::SGD one = one_group(0.1), other = one_group(0.4);
  LambdaLR first(one, factor), second(other, factor);
  for (int t = 0; t < 5; ++t) first.step();
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(second.last_epoch(), 5);
  EXPECT_EQ(other.learning_rates(), one.learning_rates());
  first.step();
  second.step();
  EXPECT_EQ(other.learning_rates(), (std::vector<double>{0.1 * factor(6)}));

  // And of a graph.
  const auto make = [&](const optim::Optimizer& o) { return LambdaLR(o, factor); };
  Scheduled whole(Mlp(), make), resumed(Mlp(), make);
  const Tensor x = randn({8, 6}), labels = randint(0, 3, {8});
  for (int t = 0; t < 3; ++t) whole(x, labels);
  resumed.compile(spec({8, 6}), spec({8}, i64));
  resumed.load_state_dict(whole.state_dict());
  EXPECT_EQ(resumed.learning_rates(), whole.learning_rates());
  whole(x, labels);
  resumed(x, labels);
  EXPECT_EQ(resumed.learning_rates(), (std::vector<double>{0.1 * factor(4)}));
}

TEST(Plateaus, OfAGraphAreEmitted) {
  struct Followed : nn::Graph<Followed> {
    Mlp model = child("model", Mlp());
    optim::SGD optimizer{model.parameters(), {.lr = 0.1}};
    StepLR steps{optimizer, {.step_size = 100}};
    ReduceLROnPlateau plateau{optimizer, {.mode = PlateauMode::max, .factor = 0.5, .patience = 3, .min_lr = 0.01}};
    explicit Followed(bool scheduled) {
      if (scheduled)
        add_optimizer(optimizer, steps, plateau);
      else
        add_optimizer(optimizer, plateau);
    }
    Tensor build(Tensor x, Tensor labels) {
      Tensor loss = cross_entropy(model(x), labels);
      loss.backward();
      return loss;
    }
  };
  for (const bool scheduled : {false, true}) {
    Followed graph(scheduled);
    graph.compile(spec({8, 6}), spec({8}, i64));
    const std::string folder = testing::TempDir() + "graven_plateau_" + std::to_string(::getpid());
    graph.save(folder);
    codegen::emit(graph, folder + "/project");
    std::ifstream main(folder + "/project/main.cpp");
    std::string text(std::istreambuf_iterator<char>(main), {});
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
    EXPECT_NE(text.find(".plateau=0,.min_lr=0.01"), std::string::npos) << text;
    EXPECT_NE(text.find(".max=true,.factor=0.5,.patience=3,.threshold=0.0001"), std::string::npos) << text;
    EXPECT_EQ(text.find("Kind::step") != std::string::npos, scheduled);
    // In this program step() is the caller's.
    for (int epoch = 0; epoch < 5; ++epoch) graph.plateau.step(0.5);
    EXPECT_EQ(graph.learning_rates(), (std::vector<double>{0.05}));
    std::filesystem::remove_all(folder);
  }
  struct Wrong : nn::Graph<Wrong> {
    Mlp model = child("model", Mlp());
    optim::SGD optimizer{model.parameters(), {.lr = 0.1}}, other{model.parameters(), {.lr = 0.1}};
    void cosine() {
      add_optimizer(optimizer, CosineAnnealingWarmRestarts(optimizer, {.T_0 = 3}), ReduceLROnPlateau(optimizer));
    }
    void foreign() { add_optimizer(optimizer, ReduceLROnPlateau(other)); }
    Tensor build(Tensor x) { return x; }
  } wrong;
  EXPECT_NE(test::error_of([&] { wrong.cosine(); }).find("CosineAnnealingWarmRestarts sets the rate of each step anew"),
            std::string::npos);
  EXPECT_NE(test::error_of([&] { wrong.foreign(); }).find("the ReduceLROnPlateau belongs to another optimizer"),
            std::string::npos);
}

TEST(Schedules, StepInGraphsAsEagerly) {
  const struct {
    const char* name;
    Make schedule;
    std::vector<double> rates;
  } cases[] = {
      {"sequence",
       [](const optim::Optimizer& o) {
         return SequentialLR(
             o, {LinearLR(o, {.start_factor = 0.25, .total_iters = 2}), StepLR(o, {.step_size = 2, .gamma = 0.5})},
             {2});
       },
       {0.025, 0.0625, 0.1, 0.1, 0.05, 0.05}},
      {"one cycle",
       [](const optim::Optimizer& o) {
         return OneCycleLR(o, {.max_lr = 0.5,
                               .total_steps = 5,
                               .pct_start = 0.6,
                               .anneal_strategy = AnnealStrategy::linear,
                               .div_factor = 5,
                               .final_div_factor = 10});
       },
       {0.1, 0.3, 0.5, 0.255, 0.01, 0.01}},
      {"lambda",
       [](const optim::Optimizer& o) { return LambdaLR(o, [](std::int64_t t) { return t < 3 ? 1.0 : 0.25; }); },
       {0.1, 0.1, 0.1, 0.025, 0.025, 0.025}},
  };
  manual_seed(13);
  const Tensor x = randn({8, 6}), labels = randint(0, 3, {8});
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    Mlp eager, shared;
    shared.load_state_dict(eager.state_dict());
    Scheduled graph(shared, c.schedule);
    optim::SGD optimizer(eager.parameters(), {.lr = 0.1, .momentum = 0.9});
    LRScheduler schedule = c.schedule(optimizer);
    nn::StateDict saved;
    std::vector<Tensor> losses;
    for (std::size_t step = 0; step < c.rates.size(); ++step) {
      EXPECT_NEAR(graph.learning_rates()[0], c.rates[step], 1e-15) << "step " << step;
      EXPECT_EQ(graph.learning_rates(), optimizer.learning_rates()) << "step " << step;
      optimizer.zero_grad();
      cross_entropy(eager(x), labels).backward();
      optimizer.step();
      schedule.step();
      losses.push_back(graph(x, labels).detach().clone());
      for (std::size_t i = 0; i < 4; ++i)
        EXPECT_TRUE(allclose(shared.parameters()[i], eager.parameters()[i], 1e-4, 1e-5))
            << "step " << step << ", parameter " << i;
      if (step == 2)
        for (const auto& [name, t] : graph.state_dict()) saved.emplace_back(name, t.detach().clone());
    }
    Scheduled resumed(Mlp(), c.schedule);
    resumed.load_state_dict(saved);
    EXPECT_EQ(resumed.optimizer.learning_rates(), resumed.learning_rates());
    // What is recorded is the rate that the schedule starts from, however far it has come.
    resumed.compile(spec({8, 6}), spec({8}, i64));
    EXPECT_EQ(resumed.graph().optimizers[0].groups[0].options.at("lr"),
              graph.graph().optimizers[0].groups[0].options.at("lr"));
    for (std::size_t step = 3; step < c.rates.size(); ++step)
      EXPECT_TRUE(equal(resumed(x, labels), losses[step])) << "step " << step;
  }
}

TEST(Schedules, ARateThatIsSetBetweenStepsIsTheNextSteps) {
  manual_seed(4);
  const Tensor x = randn({8, 6}), labels = randint(0, 3, {8});
  for (const Make& make :
       {Make([](const optim::Optimizer& o) { return StepLR(o, {.step_size = 3, .gamma = 0.5}); }),
        Make([](const optim::Optimizer& o) { return OneCycleLR(o, {.max_lr = 0.5, .total_steps = 8}); })}) {
    Scheduled graph(Mlp(), make);
    Mlp eager;
    eager.load_state_dict(graph.model.state_dict());
    optim::SGD optimizer(eager.parameters(), {.lr = 0.1, .momentum = 0.9});
    LRScheduler schedule = make(optimizer);
    for (int step = 0; step < 6; ++step) {
      if (step == 2 || step == 4)
        for (optim::SGD* of : {&graph.optimizer, &optimizer}) of->set_learning_rate(step == 2 ? 0.2 : 0.03);
      ASSERT_EQ(graph.learning_rates(), optimizer.learning_rates()) << step;
      optimizer.zero_grad();
      cross_entropy(eager(x), labels).backward();
      optimizer.step();
      schedule.step();
      graph(x, labels);
      for (std::size_t i = 0; i < eager.parameters().size(); ++i)
        EXPECT_TRUE(allclose(graph.model.parameters()[i], eager.parameters()[i], 1e-4, 1e-5)) << step << ", " << i;
    }
  }
}

}  // namespace
}  // namespace graven::lr_scheduler_test
