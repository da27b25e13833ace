// The progress bar, on a pseudo-terminal and elsewhere.
#include "runtime_min/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "runtime_min/stopwatch.h"
#include "tests/patterns.h"

namespace graven::runtime {
namespace {

/// What `body` writes to the standard error, while that is `to`; read from the other end.
std::string error_output(int to, int from, const std::function<void()>& body) {
  std::fflush(stderr);
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(to, STDERR_FILENO);
  body();
  std::fflush(stderr);
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  ::fcntl(from, F_SETFL, O_NONBLOCK);
  std::string text;
  char part[4096];
  for (ssize_t n; (n = ::read(from, part, sizeof part)) > 0;) text.append(part, static_cast<std::size_t>(n));
  ::close(to);
  ::close(from);
  return text;
}

/// Some containers have none: tests that need one are skipped there.
bool has_pseudo_terminals() {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0) return false;
  ::close(master);
  return true;
}

std::string on_a_terminal(const std::function<void()>& body) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) return "no pseudo-terminal";
  const int terminal = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  return terminal < 0 ? "no pseudo-terminal" : error_output(terminal, master, body);
}

std::string in_a_pipe(const std::function<void()>& body) {
  int ends[2];
  return ::pipe(ends) != 0 ? "no pipe" : error_output(ends[1], ends[0], body);
}

/// How fast it went and what is left depend on the machine.
std::string masked(std::string text) {
  text = tests::replaced(text, "[0-9]+ samples/s", "N samples/s");
  return tests::replaced(text, "[0-9:]+ left", "M:SS left");
}

void wait() {
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
}  // longer than from one drawing to the next

TEST(Progress, RedrawsOneLineOfATerminalAndClearsIt) {
  if (!has_pseudo_terminals()) GTEST_SKIP() << "no pseudo-terminal";
  double seconds = 0;
  std::string text = on_a_terminal([&] {
    const Stopwatch watch;
    Progress progress("epoch 1/5", 938);
    progress.update(1, 2.5, 64);  // too early
    wait();
    progress.update(1, 2.25, 64);
    for (int i = 0; i < 100; ++i) progress.update(2, 2.5, 128);  // too early again
    wait();
    progress.update(469, 0.51234, 30016);
    wait();
    progress.update(938, 0.25, 60032);
    progress.finish();
    progress.finish();  // nothing is left to clear
    seconds = watch.seconds();
  });
  EXPECT_LE(static_cast<double>(std::count(text.begin(), text.end(), '[')), 2 * (10 * seconds + 1))
      << "ten times a second; each has a bar and an escape";
  text = tests::replaced(text, "\r[^\r]*loss 2\\.5000[^\r]*",
                         "");  // where the machine stood still, early was not so early
  EXPECT_EQ(masked(text),
            "\repoch 1/5 [>                       ]   0%  loss 2.2500  N samples/s  M:SS left \033[K"
            "\repoch 1/5 [============>           ]  50%  loss 0.5123  N samples/s  M:SS left \033[K"
            "\repoch 1/5 [========================] 100%  loss 0.2500  N samples/s  M:SS left \033[K"
            "\r\033[K");
}

TEST(Progress, LeavesTheTerminalClearWhenTheRunIsCutOff) {
  if (!has_pseudo_terminals()) GTEST_SKIP() << "no pseudo-terminal";
  const std::string text = on_a_terminal([] {
    const auto epoch = [] {
      Progress progress("epoch 2/5", 4, 1);
      wait();
      progress.update(2, 1, 64);
      throw 1;
    };
    EXPECT_THROW(epoch(), int);
  });
  EXPECT_EQ(masked(text),
            "\repoch 2/5 [============>           ]  50%  loss 1.0000  N samples/s  M:SS left \033[K\r\033[K");
}

TEST(Progress, EstimatesFromWhatThisRunDid) {
  if (!has_pseudo_terminals()) GTEST_SKIP() << "no pseudo-terminal";
  // Resumed at 900 of 1000: one step took the whole time, so 99 more take 99 times as long.
  const std::string text = on_a_terminal([] {
    Progress progress("epoch 3/5", 1000, 900);
    wait();
    progress.update(901, 1, 64);
  });
  const std::vector<tests::Match> left = tests::matches(text, "([0-9]+):([0-9]+) left");
  ASSERT_FALSE(left.empty()) << text;
  EXPECT_GE(60 * std::stoi(left[0].groups[1]) + std::stoi(left[0].groups[2]), 12) << text;  // 99 times 0.12 s
}

TEST(Progress, DrawsNothingElsewhere) {
  const std::string text = in_a_pipe([] {
    Progress progress("epoch 1/5", 938);
    wait();
    progress.update(469, 0.5, 30016);  // a plain line comes every ten seconds only
    progress.finish();
  });
  EXPECT_EQ(text, "");
}

TEST(Progress, TellsTheTime) {
  const std::pair<double, const char*> cases[] = {{0, "0:00"},    {-1, "0:00"},    {11.6, "0:12"},   {59.4, "0:59"},
                                                  {59.6, "1:00"}, {3599, "59:59"}, {3723, "1:02:03"}};
  for (const auto& [seconds, text] : cases) EXPECT_EQ(clock_time(seconds), text);
  EXPECT_EQ(clock_time(1e300), "1000000:00:00");
}

}  // namespace
}  // namespace graven::runtime
