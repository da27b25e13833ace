#include "codegen/build/process.h"

#include <gtest/gtest.h>

#include <chrono>

namespace graven::codegen {
namespace {

TEST(Process, ReturnsStatusAndOutput) {
  struct Case {
    std::vector<std::string> command;
    int status;
    std::string output;
  };
  const Case cases[] = {
      {{"sh", "-c", "echo out; echo err >&2; exit 3"}, 3, "out\nerr\n"},
      {{"printf", "%s|", "a b", "$HOME", "; echo x", "*"}, 0, "a b|$HOME|; echo x|*|"},  // no shell between
      {{"/nonexistent/program"}, 127, ""},
      {{"sh", "-c", "kill -9 $$"}, 128 + 9, ""},
      {{"cat"}, 0, ""},  // standard input is empty
  };
  for (const Case& c : cases) {
    const ProcessResult r = run_process(c.command, {.seconds = 20});
    EXPECT_EQ(r.exit_status, c.status) << c.command[0];
    EXPECT_EQ(r.output, c.output) << c.command[0];
    EXPECT_FALSE(r.timed_out);
  }
}

TEST(Process, KeepsBothEndsOfALongOutput) {
  const ProcessResult r =
      run_process({"sh", "-c", "echo begin; head -c 300000 /dev/zero | tr '\\0' x; echo; echo end"}, {.seconds = 20, .output_limit = 1000});
  EXPECT_EQ(r.output.rfind("begin\n", 0), 0u);
  EXPECT_NE(r.output.find("bytes left out"), std::string::npos);
  EXPECT_EQ(r.output.substr(r.output.size() - 4), "end\n");
  EXPECT_LT(r.output.size(), 2000u);
}

TEST(Process, KillsTheWholeGroupAtItsLimit) {
  // The child's child holds the pipe: killing only the child would wait for it.
  const ProcessResult r = run_process({"sh", "-c", "sleep 600 & sleep 600"}, {.seconds = 0.3});
  EXPECT_TRUE(r.timed_out);
  EXPECT_NE(r.exit_status, 0);
}

TEST(Process, FindsPrograms) {
  EXPECT_NE(find_program("sh"), "");
  EXPECT_EQ(find_program("no-such-program-anywhere"), "");
  EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
}

}  // namespace
}  // namespace graven::codegen
