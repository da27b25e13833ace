#include "runtime_min/schedule.h"

#include "fixture.h"

namespace graven::runtime::schedule_test {
namespace {

using Kind = Schedule::Kind;

// PyTorch 2.15, SGD with lr 0.1: optimizer.param_groups[0]["lr"] before step t + 1, for these t.
constexpr std::int64_t kSteps[] = {0, 1, 2, 3, 4, 5, 6, 9, 10, 11, 20, 30};

struct Case {
  const char* note;
  Schedule (*schedule)();
  double rates[12];
};

TEST(Schedule, AgreesWithPyTorch) {
  constexpr Case cases[] = {
      {"ConstantLR, defaults",
       [] { return Schedule{.kind = Kind::constant}; },
       {0.03333333333333333, 0.03333333333333333, 0.03333333333333333, 0.03333333333333333, 0.03333333333333333, 0.1,
        0.1, 0.1, 0.1, 0.1, 0.1, 0.1}},
      {"ConstantLR(factor=0.5, total_iters=10)",
       [] { return Schedule{.kind = Kind::constant, .factor = 0.5, .total_iters = 10}; },
       {0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.1, 0.1, 0.1, 0.1}},
      {"LinearLR, defaults",
       [] { return Schedule{.kind = Kind::linear}; },
       {0.03333333333333333, 0.04666666666666667, 0.060000000000000005, 0.07333333333333335, 0.08666666666666668, 0.1,
        0.1, 0.1, 0.1, 0.1, 0.1, 0.1}},
      {"LinearLR(0.1, 0.7, 20)",
       [] { return Schedule{.kind = Kind::linear, .start_factor = 0.1, .end_factor = 0.7, .total_iters = 20}; },
       {0.010000000000000002, 0.013000000000000003, 0.016000000000000004, 0.019000000000000003, 0.022000000000000006,
        0.025000000000000005, 0.028000000000000008, 0.037000000000000005, 0.04000000000000001, 0.043000000000000003,
        0.07, 0.07}},
      {"StepLR(3)",
       [] { return Schedule{.kind = Kind::step, .step_size = 3}; },
       {0.1, 0.1, 0.1, 0.010000000000000002, 0.010000000000000002, 0.010000000000000002, 0.0010000000000000002,
        0.00010000000000000003, 0.00010000000000000003, 0.00010000000000000003, 1.0000000000000005e-07,
        1.0000000000000006e-11}},
      {"StepLR(10, gamma=0.7)",
       [] { return Schedule{.kind = Kind::step, .gamma = 0.7, .step_size = 10}; },
       {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.06999999999999999, 0.06999999999999999, 0.048999999999999995,
        0.0343}},
      {"MultiStepLR([2, 5, 5, 11], gamma=0.5)",
       [] { return Schedule{.kind = Kind::multi_step, .gamma = 0.5, .milestones = {2, 5, 5, 11}}; },
       {0.1, 0.1, 0.05, 0.05, 0.05, 0.0125, 0.0125, 0.0125, 0.0125, 0.00625, 0.00625, 0.00625}},
      {"ExponentialLR(0.9)",
       [] { return Schedule{.kind = Kind::exponential, .gamma = 0.9}; },
       {0.1, 0.09000000000000001, 0.08100000000000002, 0.07290000000000002, 0.06561000000000002, 0.05904900000000002,
        0.05314410000000002, 0.03874204890000002, 0.03486784401000002, 0.03138105960900001, 0.01215766545905694,
        0.004239115827521626}},
      {"CosineAnnealingLR(10)",
       [] { return Schedule{.kind = Kind::cosine, .T_max = 10}; },
       {0.1, 0.09755282581475769, 0.09045084971874738, 0.07938926261462367, 0.06545084971874739, 0.05000000000000001,
        0.03454915028125264, 0.002447174185242324, 0.0, 0.0024471741852423235, 0.10000000000000044, 0.0}},
      {"CosineAnnealingLR(30, eta_min=0.01)",
       [] { return Schedule{.kind = Kind::cosine, .eta_min = 0.01, .T_max = 30}; },
       {0.1, 0.0997534852915723, 0.09901664203302125, 0.09779754323328191, 0.09610954559391702, 0.09397114317029974,
        0.09140576474687263, 0.08145033635316129, 0.0775, 0.07330314893841101, 0.0325, 0.01}},
      {"PolynomialLR, defaults",
       [] { return Schedule{.kind = Kind::polynomial}; },
       {0.1, 0.08000000000000002, 0.060000000000000005, 0.04000000000000001, 0.02, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0}},
      {"PolynomialLR(20, power=2)",
       [] { return Schedule{.kind = Kind::polynomial, .power = 2, .total_iters = 20}; },
       {0.1, 0.09025, 0.081, 0.07225, 0.064, 0.05625, 0.048999999999999995, 0.03025000000000001, 0.025000000000000005,
        0.02025, 0.0, 0.0}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.note);
    for (std::size_t i = 0; i < std::size(kSteps); ++i)
      EXPECT_NEAR(c.schedule().learning_rate(0.1, kSteps[i]), c.rates[i], 1e-15) << "t = " << kSteps[i];
  }
}

TEST(Schedule, WarmsUp) {
  const Schedule constant{.warmup = Schedule::Warmup::constant, .warmup_factor = 0.5, .warmup_iters = 3};
  EXPECT_EQ(constant.learning_rate(0.2, 0), 0.1);
  EXPECT_EQ(constant.learning_rate(0.2, 2), 0.1);
  EXPECT_EQ(constant.learning_rate(0.2, 3), 0.2);
  const Schedule linear{.kind = Kind::step,
                        .gamma = 0.5,
                        .step_size = 4,
                        .warmup = Schedule::Warmup::linear,
                        .warmup_factor = 0,
                        .warmup_iters = 4};
  EXPECT_EQ(linear.learning_rate(1, 0), 0);
  EXPECT_EQ(linear.learning_rate(1, 2), 0.25);  // on the way to the 0.5 of step 4
  EXPECT_EQ(linear.learning_rate(1, 4), 0.5);
  EXPECT_EQ(linear.learning_rate(1, 8), 0.25);
}

TEST(Schedule, SetsLengths) {
  Schedule cosine{.kind = Kind::cosine};
  EXPECT_TRUE(cosine.set_length(50));
  EXPECT_EQ(cosine.T_max, 50);
  Schedule polynomial{.kind = Kind::polynomial};
  EXPECT_TRUE(polynomial.set_length(50));
  EXPECT_EQ(polynomial.total_iters, 50);
  Schedule one_cycle{.kind = Kind::one_cycle, .total_steps = 10};
  EXPECT_TRUE(one_cycle.set_length(50));
  EXPECT_EQ(one_cycle.total_steps, 50);
  Schedule cosine_decay{.kind = Kind::cosine_decay, .decay_steps = 10};
  EXPECT_TRUE(cosine_decay.set_length(50));
  EXPECT_EQ(cosine_decay.decay_steps, 50);
  for (const Kind kind : {Kind::none, Kind::step, Kind::multi_step, Kind::exponential, Kind::cosine_warm_restarts,
                          Kind::triangular, Kind::triangular2, Kind::exp_range}) {
    Schedule without{.kind = kind};
    EXPECT_FALSE(without.set_length(50));
    EXPECT_EQ(without.start_of_last_part(), 0);
  }
}

// As an emitted main.cpp states it.
Schedule sequence_of_three() {
  return {.kind = Kind::sequential,
          .milestones = {2, 5},
          .parts = {
              {.kind = Kind::linear, .start_factor = 0.5, .total_iters = 2},
              {.kind = Kind::sequential, .milestones = {1}, .parts = {{}, {.kind = Kind::exponential, .gamma = 0.5}}},
              {.kind = Kind::polynomial,
               .total_iters = 4,
               .warmup = Schedule::Warmup::constant,
               .warmup_factor = 0.25,
               .warmup_iters = 1},
          }};
}

TEST(Schedule, SequencesCountFromTheirMilestones) {
  const Schedule schedule = sequence_of_three();
  const double rates[] = {0.5, 0.75, 1, 1, 0.5, 0.25, 0.75, 0.5, 0.25, 0, 0};
  for (std::size_t t = 0; t < std::size(rates); ++t)
    EXPECT_EQ(schedule.learning_rate(1, static_cast<std::int64_t>(t)), rates[t]) << t;
}

TEST(Schedule, TheLengthOfASequenceIsItsLastParts) {
  Schedule schedule = sequence_of_three();
  EXPECT_EQ(schedule.start_of_last_part(), 5);
  EXPECT_FALSE(schedule.set_length(5));
  EXPECT_TRUE(schedule.set_length(15));
  EXPECT_EQ(schedule.parts[2].total_iters, 10);
  Schedule outer{.kind = Kind::sequential, .milestones = {3}, .parts = {{}, schedule}};
  EXPECT_EQ(outer.start_of_last_part(), 8);
  EXPECT_FALSE(outer.set_length(8));
  EXPECT_TRUE(outer.set_length(9));
  EXPECT_EQ(outer.parts[1].parts[2].total_iters, 1);
  outer.parts[1].parts[2] = {.kind = Kind::step};
  EXPECT_FALSE(outer.set_length(9));
}

}  // namespace
}  // namespace graven::runtime::schedule_test
