// Profiles: sums, shares and limits of times that are known.
#include "runtime_min/profile.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime_min/call_times.h"

namespace graven::runtime {
namespace {

ProfiledCall profiled_call(const char* phase, const char* module, const char* operation, double flops, double bytes,
                           double begin, double seconds) {
  return {phase, module, operation, "f32[4] -> f32[4]", flops, bytes, begin, seconds};
}

TEST(Profile, RowsAreMeansOfTheFasterHalf) {
  Profile profile("net", "1 thread", {.flops = 100, .bytes = 10});
  // Of the limits a call of 200 FLOP and 10 bytes needs 2 s at least, one of 50 FLOP and 30 bytes 3 s.
  const auto step = [&](double seconds, double of_linear) {
    profile.add_step(
        0, seconds,
        {profiled_call("forward", "a", "linear", 200, 10, 0, of_linear),
         profiled_call("forward", "b", "add", 50, 30, 6, 3), profiled_call("forward", "b", "add", 50, 30, 9, 3),
         profiled_call("update", "", "sgd", 0, 0, 12, 1)});
  };
  step(20, 4);
  step(100, 80);  // which others delayed
  step(24, 6);
  step(60, 40);
  EXPECT_EQ(profile.steps(), 4u);
  EXPECT_EQ(profile.seconds(), 22);
  const std::vector<ProfileRow> rows = profile.rows();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].module, "a");
  EXPECT_EQ(rows[0].calls, 1);
  EXPECT_EQ(rows[0].seconds, 5);
  EXPECT_EQ(rows[0].share, 5.0 / 22);
  EXPECT_EQ(rows[0].share_of_limit, 2.0 / 5);
  EXPECT_EQ(rows[1].operation, "add");
  EXPECT_EQ(rows[1].calls, 2);
  EXPECT_EQ(rows[1].flops, 100);
  EXPECT_EQ(rows[1].bytes, 60);
  EXPECT_EQ(rows[1].seconds, 6);
  EXPECT_EQ(rows[1].share_of_limit, 1);
  EXPECT_EQ(rows[2].phase, "update");
  EXPECT_EQ(rows[2].share_of_limit, 0);
  EXPECT_EQ(profile.table(),
            "net, 1 thread: 22.000 s  a step, the mean of the faster half of 4\n"
            "limits, measured now: 100  FLOP/s (f32 multiply-adds), 10  B/s (a copy, read and written)\n"
            "                      calls       time  of step    bytes     FLOP      B/s   FLOP/s of limit\n"
            "forward                   3  11.000 s    50.0 %     70      300     6.36     27.3     72.7 %\n"
            "  a  linear               1   5.000 s    22.7 %     10      200        2       40     40.0 %\n"
            "  b  add                  2   6.000 s    27.3 %     60      100       10     16.7    100.0 %\n"
            "update                    1   1.000 s     4.5 %      0        0        0        0      0.0 %\n"
            "  (no module)  sgd        1   1.000 s     4.5 %      0        0        0        0      0.0 %\n"
            "between calls                10.000 s    45.5 %\n"
            "total                     4  22.000 s   100.0 %     70      300     3.18     13.6     36.4 %\n");
}

// The last batch of a data set, shorter sentences: they are in the trace, not in the means.
TEST(Profile, SmallerStepsAreLeftOut) {
  Profile profile("net", "1 thread", {});
  const auto calls = [](double flops) {
    return std::vector<ProfiledCall>{profiled_call("forward", "a", "linear", flops, 10, 0, 1)};
  };
  profile.add_step(0, 8, calls(200), 16);
  profile.add_step(10, 2, calls(200), 4);
  profile.add_step(20, 1, calls(50), 16);
  profile.add_step(30, 6, calls(200), 16);
  EXPECT_EQ(profile.seconds(), 6);
  EXPECT_EQ(profile.rows()[0].flops, 200);
  EXPECT_NE(profile.table().find("6.000 s  a step, the mean of the faster half of the 2 largest of 4\n"),
            std::string::npos)
      << profile.table();
}

TEST(Profile, WithoutLimitsSaysNothingOfThem) {
  Profile profile("net", "device 0", {});
  profile.add_step(0, 2, {profiled_call("forward", "a", "linear", 200, 10, 0, 1)});
  EXPECT_EQ(profile.rows()[0].share_of_limit, 0);
  EXPECT_EQ(profile.table().find("limits, measured now"), std::string::npos);
}

TEST(Profile, OfNoStepsIsATableWithoutRows) {
  const Profile profile("net", "1 thread", {.flops = 1, .bytes = 1});
  EXPECT_EQ(profile.seconds(), 0);
  EXPECT_TRUE(profile.rows().empty());
  EXPECT_NE(profile.table().find("the mean of the faster half of 0"), std::string::npos);
}

struct ProfileListener {
  struct Mark {
    std::uint64_t ticks;
  };
  void* self = nullptr;
  void (*begin_phase)(void* self, const char* name) = nullptr;
  void (*end_phase)(void* self) = nullptr;
  void (*begin_call)(void* self) = nullptr;
  Mark *next = nullptr, *end = nullptr;
};

std::uint64_t profile_ticks = 0;

TEST(CallTimes, AreFromOneMarkToTheNext) {
  profile_ticks = 0;
  CallTimes<ProfileListener> times([] { return profile_ticks; });
  const double start = steady_clock();
  const auto mark = [&](std::uint64_t ticks) { (times.listener.next++)->ticks = ticks; };
  times.listener.begin_phase(times.listener.self, "forward");
  mark(10);
  mark(30);
  profile_ticks = 100;
  times.listener.end_phase(times.listener.self);
  times.listener.begin_phase(times.listener.self, "update");
  profile_ticks = 200;
  times.listener.end_phase(times.listener.self);
  times.listener.begin_phase(times.listener.self, "forward");
  mark(300);
  profile_ticks = 400;
  times.listener.end_phase(times.listener.self);
  while (steady_clock() < start + 1e-3) {
  }
  const std::vector<CallTime> list = times.take();
  ASSERT_EQ(list.size(), 3u);
  const double tick = list[0].seconds / 20;  // of 400 that took a millisecond or more
  EXPECT_GE(400 * tick, 0.99e-3);
  EXPECT_NEAR(list[1].seconds, 70 * tick, 1e-9);
  EXPECT_NEAR(list[2].seconds, 100 * tick, 1e-9);
  EXPECT_NEAR(list[2].begin - list[0].begin, 290 * tick, 1e-9);
  EXPECT_EQ(list[1].call, 1);
  EXPECT_EQ(list[2].call, 0);
  EXPECT_STREQ(list[2].phase, "forward");
  EXPECT_TRUE(times.take().empty());
}

}  // namespace
}  // namespace graven::runtime
