#include "codegen/build/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

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
  const ProcessResult r = run_process({"sh", "-c", "echo begin; head -c 300000 /dev/zero | tr '\\0' x; echo; echo end"},
                                      {.seconds = 20, .output_limit = 1000});
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
  EXPECT_EQ(r.failure, "takes longer than 0.3 s");
}

TEST(Process, SaysWhatBecameOfIt) {
  EXPECT_EQ(run_process({"true"}).failure, "");
  EXPECT_EQ(run_process({"sh", "-c", "exit 3"}).failure, "fails with exit status 3");
  EXPECT_EQ(run_process({"sh", "-c", "kill -9 $$"}).failure, "is ended by signal 9");
  EXPECT_EQ(run_process({"/nonexistent/program"}).failure, "cannot be started");
}

TEST(Process, WaitsForItsOwnProgramOnly) {
  // The other is started while this one's pipe is open, and outlives it.
  const std::string stop = GRAVEN_BINARY_DIR "/process_stop";
  std::filesystem::remove(stop);
  ProcessResult first;
  std::thread waiting([&] { first = run_process({"sh", "-c", "sleep 0.5; echo done"}, {.seconds = 20}); });
  usleep(100'000);
  std::thread other(
      [&] { run_process({"sh", "-c", R"(while [ ! -e "$0" ]; do sleep 0.02; done)", stop}, {.seconds = 60}); });
  waiting.join();
  std::ofstream(stop) << "";
  other.join();
  EXPECT_FALSE(first.timed_out);
  EXPECT_EQ(first.output, "done\n");
}

TEST(Process, ReadsTheOutputWhereTheStandardStreamsAreClosed) {
  const pid_t child = fork();
  if (child == 0) {
    for (int stream = 0; stream <= 2; ++stream) close(stream);
    const ProcessResult r = run_process({"sh", "-c", "echo out; echo err >&2; cat"}, {.seconds = 20});
    _exit(r.exit_status == 0 && r.output == "out\nerr\n" ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Process, WhateverEndsAProgramEndsWhatItRuns) {
  const std::filesystem::path note = std::filesystem::path(GRAVEN_BINARY_DIR) / "process_signals";
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGKILL, SIGSEGV}) {
    std::filesystem::remove(note);
    const pid_t child = fork();
    if (child == 0) {
      ::signal(signal, SIG_DFL);  // nohup ignores one, and a sanitizer's handler would make one an exit
      // A process of the process. Neither shell starts another one once the note is there: a signal that comes
      // meanwhile dash may lose.
      run_process({"sh", "-c", R"(sh -c 'echo $$ > "$1.new" && mv "$1.new" "$1"; exec sleep 600' sh "$0"; true)",
                   note.string()});
      _exit(1);
    }
    pid_t grandchild = 0;
    for (int i = 0; i < 1000 && grandchild == 0; ++i) {
      usleep(10000);
      std::ifstream(note) >> grandchild;
    }
    ASSERT_GT(grandchild, 0);
    kill(child, signal);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    // Another process collects it, in its own time: gone, or a zombie.
    bool ended = false;
    for (int i = 0; i < 1000 && !ended; ++i) {
      std::ifstream stat("/proc/" + std::to_string(grandchild) + "/stat");
      std::string word;
      ended = !(stat >> word >> word >> word) || word == "Z";
      if (!ended) usleep(10000);
    }
    EXPECT_TRUE(ended) << "signal " << signal;
  }
}

TEST(Process, FindsPrograms) {
  EXPECT_NE(find_program("sh"), "");
  EXPECT_EQ(find_program("no-such-program-anywhere"), "");
  EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
}

}  // namespace
}  // namespace graven::codegen
