// Emitted CUDA projects that several ranks train together, each on an emulated device of its own, started as torchrun
// starts them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "ir/graph.h"
#include "tests/cuda_on_cpu/projects.h"
#include "tests/projects/data.h"
#include "tests/projects/launchers.h"

namespace graven::tests {

namespace fs = std::filesystem;
using codegen::ProcessResult;

/// A data parallel graph's projects, and what its ranks are started with.
class Ranked {
 public:
  Ranked(const std::string& name, const ir::Graph& graph, std::int64_t samples = 48, bool evaluates_apart = true)
      : name_(name), projects_(name, graph, evaluates_apart) {
    data_ = {"--data", path("data")};
    write_data(work() / "data/train", samples, 1);
    write_data(work() / "data/test", 11, 2);
    write_data(work() / "other/train", samples, 3);
  }
  /// Emitted already, to be trained with a text: the projects of one process, and of ranks.
  Ranked(const std::string& name, const fs::path& on_cpu, const fs::path& on_cuda)
      : name_(name), projects_(name, on_cpu, on_cuda) {
    data_ = {"--data", path("text.txt"), "--data-format", "text", "--test-data", path("held.txt")};
    std::ofstream text(work() / "text.txt"), held(work() / "held.txt");
    for (int i = 0; i < 12; ++i) text << "line " << i % 10 << ", and so on\n";
    for (int i = 0; i < 4; ++i) held << "line " << 9 - i << ", and more so\n";
  }

  fs::path work() const { return projects_.folder(); }
  std::string path(const std::string& out) const { return (work() / out).string(); }
  std::vector<std::string> options(const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> all = data_;
    for (const std::string& word : {std::string("--out"), out.empty() ? out : path(out), std::string("--seed"),
                                    std::string("5"), std::string("--log"), path((out.empty() ? "log" : out + ".log"))})
      all.push_back(word);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  /// What it takes to start ranks.
  struct Start {
    int ranks = 2;
    std::string order = {};
    std::string environment = {};  ///< "NAME=value ...", of all
    std::string of_rank_1 = {};    ///< the words of its command; empty: those of all
    std::string behind = {};       ///< commands of the shell, once they have started
  };
  /// Each in an environment as torchrun makes it. The output has what they have said, and "rank R: status S".
  ProcessResult run(const std::string& command, const Start& start) const {
    const std::string order = start.order.empty() ? "" : "CUDA_ON_CPU_ORDER=" + start.order + " ";
    std::string text = "export WORLD_SIZE=" + std::to_string(start.ranks) +
                       " MASTER_PORT=" + std::to_string(20000 + ::getpid() % 20000) +
                       " LD_LIBRARY_PATH=" GRAVEN_STAND_INS " TMPDIR=" + work().string() +
                       " CUDA_ON_CPU_DEFAULT_STREAM=refuse CUDA_ON_CPU_RACES=ignore " + order + start.environment +
                       "\n";
    for (int rank = 0; rank < start.ranks; ++rank) {
      const std::string n = std::to_string(rank);
      text += "RANK=" + n + " " + (rank == 1 && !start.of_rank_1.empty() ? start.of_rank_1 : command) + " & rank_" + n +
              "=$!\n";
    }
    text += start.behind + "\n";
    for (int rank = 0; rank < start.ranks; ++rank) {
      const std::string n = std::to_string(rank);
      text += "wait $rank_" + n + "; echo rank " + n + ": status $?\n";
    }
    return codegen::run_process({"/bin/bash", "-c", text}, {.directory = work().string(), .seconds = 120});
  }
  std::string command(const std::vector<std::string>& with) const {
    std::string text = path("cuda/" + name_);
    for (const std::string& word : with) text += " '" + word + "'";
    return text;
  }
  static void expect_all_succeed(const ProcessResult& r, int ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_NE(r.output.find("rank " + std::to_string(rank) + ": status 0\n"), std::string::npos) << r.output;
  }
  void train(const Start& start, const std::string& out, const std::vector<std::string>& more) const {
    expect_all_succeed(run(command(options(out, more)), start), start.ranks);
  }
  /// Of weights; of statistics, too, where ranks have the same.
  double difference(const std::string& a, const std::string& b, bool shared = false) const {
    return tests::difference(path(a) + "/latest/weights.safetensors", path(b) + "/latest/weights.safetensors", shared);
  }
  /// One process, on the processor or on a device.
  std::string run_one(const std::string& target, const std::string& out, const std::vector<std::string>& more) {
    return projects_.run(target, name_, options(out, more));
  }
  codegen::Projects& projects() { return projects_; }

 private:
  std::string name_;
  codegen::Projects projects_;
  std::vector<std::string> data_;
};

}  // namespace graven::tests
