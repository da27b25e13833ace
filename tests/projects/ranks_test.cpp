// Emitted projects that several ranks train, built with each MPI that is here: what N of them compute is what one
// process computes with N times as many batches a step, and whatever goes wrong on one of them ends all of them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "codegen/plan/plan.h"
#include "codegen/simulate/simulate.h"
#include "graven/graven.h"
#include "ir/json.h"
#include "kernels/cpu/all_reduce.h"
#include "tests/all_tests.h"
#include "tests/frontend/error_text.h"
#include "tests/projects/data.h"
#include "tests/projects/launchers.h"
#include "tests/projects/networks.h"

namespace graven {
namespace {

namespace fs = std::filesystem;
using codegen::ProcessResult;

using tests::build_project;
using tests::Classify;
using tests::kClasses;
using tests::kFeatures;
using tests::Launcher;
using tests::launchers;
using tests::read_file;
using tests::run_ranks;
using tests::write_data;

constexpr std::int64_t kBatch = 4, kSamples = 48;

class Ranks : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    fs::remove_all(work());
    fs::create_directories(work());
    write_data(work() / "data/train", kSamples, 1);
    write_data(work() / "data/test", 11, 2);
    write_data(work() / "other/train", kSamples, 3);
    if (launchers().empty()) return;
    manual_seed(3);
    Classify graph;
    const auto images = spec({kBatch, kFeatures}, "images"), labels = spec({kBatch}, i64, "labels");
    graph.enable_data_parallel();
    graph.compile(images, labels);
    codegen::emit(graph, work() / "ranks", {.name = tests::kProgram, .format = false});
    for (const Launcher& l : launchers())
      build_project(work() / "ranks", l.name, {"-DGRAVEN_MPI=ON", "-DMPI_CXX_COMPILER=" + l.compiler}, tests::kProgram);
    build_project(work() / "ranks", "alone", {}, tests::kProgram);
    emit_pictures<nn::SyncBatchNorm>("pictures", launchers());
    emit_pictures<nn::BatchNorm2d>("apart", {launchers()[0]});
    if (!tests::all_tests()) return;
    manual_seed(3);
    Classify without;
    without.compile(images, labels);
    codegen::emit(without, work() / "without", {.name = tests::kProgram, .format = false});
    build_project(work() / "without", "alone", {}, tests::kProgram);
    build_project(work() / "pictures", "alone", {}, tests::kProgram);
  }
  template <class Norm>
  static void emit_pictures(const std::string& name, const std::vector<Launcher>& engines) {
    manual_seed(3);
    tests::Pictures<Norm> graph;
    const Dim batch("batch", 12);
    graph.enable_data_parallel();
    graph.compile(spec({batch, kFeatures}, "images"), spec({batch}, i64, "labels"));
    codegen::emit(graph, work() / name, {.name = tests::kProgram, .format = false});
    for (const Launcher& l : engines)
      build_project(work() / name, l.name, {"-DGRAVEN_MPI=ON", "-DMPI_CXX_COMPILER=" + l.compiler}, tests::kProgram);
  }
  void SetUp() override {
    if (launchers().empty()) GTEST_SKIP() << "no MPI is installed (scripts/packages.txt)";
  }

  static fs::path work() { return fs::path(GRAVEN_BINARY_DIR) / "ranks_work"; }
  static std::string program(const std::string& engine, const std::string& project = "ranks") {
    return (work() / project / ("build-" + engine) / tests::kProgram).string();
  }
  static std::vector<std::string> options(const std::string& out, std::vector<std::string> more) {
    std::vector<std::string> all = {
        "--data", (work() / "data").string(), "--out", out.empty() ? out : path(out), "--seed", "5", "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string path(const std::string& out) { return (work() / out).string(); }
  /// One process; of pictures the build for ranks, but where all tests are asked for.
  static ProcessResult alone(const std::vector<std::string>& with, const std::string& project = "ranks") {
    const bool is_built = project == "ranks" || tests::all_tests();
    std::vector<std::string> command = {program(is_built ? "alone" : launchers()[0].name, project)};
    command.insert(command.end(), with.begin(), with.end());
    return codegen::run_process(command, {.directory = work().string(), .seconds = 120});
  }
  static ProcessResult run(const Launcher& l, int ranks, const std::string& what,
                           const std::vector<std::string>& with) {
    return run_ranks(l, ranks, what, with, work());
  }
  static double difference(const std::string& a, const std::string& b, bool shared = false) {
    return tests::difference(path(a) + "/latest/weights.safetensors", path(b) + "/latest/weights.safetensors", shared);
  }
};

TEST(AllReduce, BeginsBehindTheLastPart) {
  struct Fake final : kernels::Collectives {
    int size() const override { return 4; }
    void start_mean(float* x, std::int64_t n) override { begun.emplace_back(x, x + n); }
    void start_mean(double*, std::int64_t) override { FAIL(); }
    void start_shard_of_mean(float*, std::int64_t) override { FAIL(); }
    void start_shard_of_mean(double*, std::int64_t) override { FAIL(); }
    void start_adding_shard(float*, const float*, std::int64_t, const Accumulation&) override { FAIL(); }
    void start_adding_shard(double*, const double*, std::int64_t, const Accumulation&) override { FAIL(); }
    void start_gather(float*, std::int64_t) override { FAIL(); }
    void start_gather(double*, std::int64_t) override { FAIL(); }
    void finish_gathers() override { FAIL(); }
    void gather(float*, const float*, std::int64_t) override { FAIL(); }
    void gather(double*, const double*, std::int64_t) override { FAIL(); }
    void visit(const double*, std::int64_t, void (*)(void*, const double*), void*) override { FAIL(); }
    void sum(double*, std::int64_t) override { FAIL(); }
    void largest(double*, std::int64_t) override { FAIL(); }
    std::vector<std::vector<float>> begun;
  } fake;
  kernels::Threads threads(2);
  std::vector<float> x = {4, 8, -2};
  const std::int64_t first = 0, last = 1, parts = 2;
  kernels::all_reduce(threads, {.n = 3}, x.data(), &last, &parts);
  EXPECT_EQ(x, (std::vector<float>{4, 8, -2})) << "there is one rank";
  threads.set_collectives(&fake);
  kernels::all_reduce(threads, {.n = 3}, x.data(), &first, &parts);
  EXPECT_TRUE(fake.begun.empty());
  EXPECT_EQ(x, (std::vector<float>{4, 8, -2}));
  kernels::all_reduce(threads, {.n = 3}, x.data(), &last, &parts);
  EXPECT_EQ(fake.begun, (std::vector<std::vector<float>>{{4, 8, -2}}));
}

TEST_F(Ranks, ComputeWhatOneProcessDoesWithAsManyBatches) {
  for (const int ranks : {2, 3, 4}) {
    const std::string one = "one_" + std::to_string(ranks), n = std::to_string(ranks);
    ASSERT_EQ(alone(options(one, {"--epochs", "3", "--accumulation-steps", n})).exit_status, 0);
    for (const Launcher& l : launchers()) {
      const std::string out = l.name + n;
      const ProcessResult r = run(l, ranks, program(l.name), options(out, {"--epochs", "3"}));
      ASSERT_EQ(r.exit_status, 0) << r.output;
      EXPECT_LT(difference(one, out), 2e-5) << l.name << ", " << ranks;
      EXPECT_NE(r.output.find(", " + n + " ranks, " + n + " batches a step\n"), std::string::npos) << r.output;
      const std::size_t line = r.output.find("epoch 1/3");
      EXPECT_NE(line, std::string::npos) << r.output;
      EXPECT_EQ(r.output.find("epoch 1/3", line + 1), std::string::npos) << "more than one rank prints\n" << r.output;
    }
  }
}

TEST_F(Ranks, GoOnBitForBitAndInOtherNumbers) {
  for (const Launcher& l : launchers()) {
    const auto trained = [&](int ranks, const std::string& out, const std::vector<std::string>& more) {
      const ProcessResult r = run(l, ranks, program(l.name), options(out, more));
      EXPECT_EQ(r.exit_status, 0) << r.output;
    };
    const std::string straight = l.name + "_straight", cut = l.name + "_cut", mixed = l.name + "_mixed";
    trained(2, straight, {"--epochs", "3", "--accumulation-steps", "2"});
    trained(2, cut, {"--epochs", "3", "--accumulation-steps", "2", "--steps", "4"});
    trained(2, cut, {"--epochs", "3", "--resume"});
    for (const char* file : {"weights.safetensors", "optimizer.safetensors", "manifest.json"})
      EXPECT_EQ(read_file(path(straight) + "/latest/" + file), read_file(path(cut) + "/latest/" + file)) << file;
    trained(4, mixed, {"--epochs", "3", "--steps", "2"});
    trained(1, mixed, {"--epochs", "3", "--steps", "5", "--resume"});
    trained(2, mixed, {"--epochs", "3", "--resume"});
    EXPECT_LT(difference(straight, mixed), 2e-5) << l.name;
  }
}

TEST_F(Ranks, WithOneBatchNormComputeWhatOneProcessDoesWithTheWholeBatch) {
  const auto trained = [](const Launcher& l, const std::string& project, int ranks, const std::string& out,
                          const std::vector<std::string>& more) {
    const ProcessResult r = run(l, ranks, program(l.name, project), options(out, more));
    EXPECT_EQ(r.exit_status, 0) << r.output;
  };
  for (const int ranks : {2, 3}) {
    const std::string n = std::to_string(ranks), one = "whole_" + n;
    const ProcessResult r =
        alone(options(one, {"--epochs", "3", "--batch", std::to_string(ranks * kBatch)}), "pictures");
    ASSERT_EQ(r.exit_status, 0) << r.output;
    for (const Launcher& l : launchers()) {
      SCOPED_TRACE(l.name + n);
      const std::string out = "sync_" + l.name + n;
      trained(l, "pictures", ranks, out, {"--epochs", "3", "--batch", "4"});
      // Running statistics as well.
      EXPECT_LT(difference(one, out, true), 2e-5);
    }
    // Which batch norms of each rank's own batch do not.
    const Launcher l = launchers()[0];
    const std::string apart = "apart_" + n;
    trained(l, "apart", ranks, apart, {"--epochs", "3", "--batch", "4"});
    EXPECT_GT(difference(one, apart), 1e-2);
  }
  // Each part of a step has its own statistics; and a run that is cut goes on bit for bit.
  ASSERT_EQ(
      alone(options("parts", {"--epochs", "3", "--batch", "8", "--accumulation-steps", "2"}), "pictures").exit_status,
      0);
  for (const Launcher& l : launchers()) {
    SCOPED_TRACE(l.name);
    const std::string straight = "sync_straight_" + l.name, cut = "sync_cut_" + l.name;
    const std::vector<std::string> all = {"--epochs", "3", "--batch", "4", "--accumulation-steps", "2"};
    std::vector<std::string> first = all, rest = all;
    first.emplace_back("--steps");
    first.emplace_back("4");
    rest.emplace_back("--resume");
    trained(l, "pictures", 2, straight, all);
    trained(l, "pictures", 2, cut, first);
    trained(l, "pictures", 2, cut, rest);
    EXPECT_LT(difference("parts", straight, true), 2e-5);
    for (const char* file : {"weights.safetensors", "optimizer.safetensors", "manifest.json"})
      EXPECT_EQ(read_file(path(straight) + "/latest/" + file), read_file(path(cut) + "/latest/" + file)) << file;
  }
}

/// What the project's step is on so many ranks, by the simulator.
codegen::Prediction simulated(const fs::path& project, int ranks) {
  const ir::Graph graph = ir::read_graph((project / "graph.json").string());
  const codegen::Plan plan = codegen::make_plan(graph);
  codegen::Machine machine;
  machine.ranks = ranks;
  machine.network = machine.node = {.bandwidth = 1e9, .latency = 0};
  return codegen::Simulator(graph, plan, machine).predict({});
}

TEST_F(Ranks, SendNoMoreThanTheyHaveToAndWhatTheSimulatorSays) {
  for (const Launcher& l : launchers())
    for (const int ranks : {2, 3, 4}) {
      SCOPED_TRACE(l.name + ", " + std::to_string(ranks));
      const auto bench = [&](int steps, Launcher launcher) {
        const ProcessResult r = run(launcher, ranks, program(l.name),
                                    {"--bench", std::to_string(steps), "--threads", "1", "--weights",
                                     (work() / "ranks/weights.safetensors").string()});
        EXPECT_EQ(r.exit_status, 0) << r.output;
        const std::size_t begin = r.output.find("{\"peer\"");
        return nlohmann::json::parse(r.output.substr(begin, r.output.find('\n', begin) - begin), nullptr, false);
      };
      const nlohmann::json line = bench(4, l);
      ASSERT_TRUE(line.is_object());
      const codegen::Prediction p = simulated(work() / "ranks", ranks);
      EXPECT_EQ(line.at("ranks"), ranks);
      EXPECT_EQ(line.at("messages"), 1) << "all together are less than a bucket";
      EXPECT_EQ(line.at("message_bytes").get<double>(), p.gradient_bytes);
      EXPECT_NEAR(line.at("least_sent_bytes").get<double>(), p.sent, 1e-6);
      EXPECT_GE(line.at("sent_bytes").get<double>(), p.sent);
      EXPECT_LE(line.at("sent_bytes").get<double>(), 1.02 * p.sent);
      EXPECT_GT(line.at("sending_ms").get<double>(), 0);
      EXPECT_GT(line.at("waited_ms").get<double>(), 0);
      EXPECT_GE(line.at("hidden").get<double>(), 0);
      EXPECT_LE(line.at("hidden").get<double>(), 1);
      if (l.name != "openmpi") continue;
      // What Open MPI puts on the way, by its own count: of 12 steps less that of 4.
      Launcher watched = l;
      const std::string to = path("sent");
      watched.command.insert(watched.command.end() - 1,
                             {"--mca", "pml_monitoring_enable", "2", "--mca", "pml_monitoring_enable_output", "3",
                              "--mca", "pml_monitoring_filename", to});
      const auto sent = [&](int steps) {
        std::vector<double> bytes;
        bench(steps, watched);
        for (int rank = 0; rank < ranks; ++rank) {
          bytes.push_back(0);
          std::ifstream file(to + "." + std::to_string(rank) + ".prof");
          for (std::string text; std::getline(file, text);) {
            std::istringstream words(text);
            std::string kind;
            double from = 0, peer = 0, own = 0;
            // "I  0  1  4096 bytes  2 msgs sent", of point to point messages; E: of the library's own.
            if (words >> kind >> from >> peer >> own && (kind == "I" || kind == "E")) bytes.back() += own;
          }
        }
        return bytes;
      };
      const std::vector<double> few = sent(4), more = sent(12);
      for (std::size_t rank = 0; rank < few.size(); ++rank) {
        const double step = (more[rank] - few[rank]) / 8;
        EXPECT_GT(step, 0.98 * p.sent) << rank;
        EXPECT_LT(step, 1.02 * p.sent) << rank;
      }
    }
}

TEST_F(Ranks, AreProfiledEachInAFileOfItsOwn) {
  for (const Launcher& l : launchers()) {
    const std::string trace = path("trace." + l.name);
    const ProcessResult r = run(l, 2, program(l.name),
                                {"--profile", trace + ".json", "--profile-steps", "3", "--threads", "1", "--weights",
                                 (work() / "ranks/weights.safetensors").string()});
    ASSERT_EQ(r.exit_status, 0) << r.output;
    const std::size_t table = r.output.find(", rank 0 of 2, ");  // the first one's alone
    ASSERT_NE(table, std::string::npos) << r.output;
    EXPECT_EQ(r.output.find(", rank ", table + 1), std::string::npos) << r.output;
    for (const int rank : {0, 1}) {
      const auto json = nlohmann::json::parse(tests::read_file(trace + "." + std::to_string(rank) + ".json"));
      const std::string name = json.at("traceEvents").at(0).at("args").at("name");
      EXPECT_NE(name.find(", rank " + std::to_string(rank) + " of 2, "), std::string::npos) << name;
    }
  }
}

TEST_F(Ranks, SendTheSumsOfBatchNormsOnce) {
  for (const Launcher& l : launchers())
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(l.name + ", " + std::to_string(ranks));
      const ProcessResult r =
          run(l, ranks, program(l.name, "pictures"),
              {"--bench", "4", "--threads", "1", "--weights", (work() / "pictures/weights.safetensors").string()});
      ASSERT_EQ(r.exit_status, 0) << r.output;
      const std::size_t begin = r.output.find("{\"peer\"");
      const auto line =
          nlohmann::json::parse(r.output.substr(begin, r.output.find('\n', begin) - begin), nullptr, false);
      ASSERT_TRUE(line.is_object());
      const codegen::Prediction p = simulated(work() / "pictures", ranks);
      // A count and two numbers for each channel, forward and backward.
      const double sums = 2 * 8.0 * ((1 + 2 * 8) + (1 + 2 * 24));
      EXPECT_EQ(line.at("messages"), 1 + 4);
      EXPECT_EQ(line.at("message_bytes").get<double>(), p.gradient_bytes + sums);
      EXPECT_NEAR(line.at("least_sent_bytes").get<double>(), p.sent, 1e-6);
      EXPECT_LE(line.at("sent_bytes").get<double>(), 1.02 * p.sent);
    }
}

TEST_F(Ranks, MistakesEndAll) {
  const std::string data = (work() / "data").string(), other = (work() / "other").string();
  for (const Launcher& l : launchers()) {
    ASSERT_EQ(run(l, 3, program(l.name), options("three", {"--epochs", "1", "--overwrite"})).exit_status, 0);
    // Rank 1 has other options than rank 0.
    const auto differing = [&](const std::string& set, const std::string& epochs) {
      return std::vector<std::string>{"-c", "[ \"${PMI_RANK:-$OMPI_COMM_WORLD_RANK}\" = 0 ] && exec " +
                                                program(l.name) + " --out '' --epochs 1 --data " + data + "; exec " +
                                                program(l.name) + " --out '' --epochs " + epochs + " --data " + set};
    };
    struct Case {
      int ranks;
      std::string program;
      std::vector<std::string> options;
      const char* said;
    };
    std::vector<Case> cases = {
        {2, program("alone"), options("", {}),
         "ranks: expected a program that is built with -DGRAVEN_MPI=ON, of a graph that was made for ranks"},
        {2, program(l.name), options("", {"--epochs", "x"}), "error: rank 0: --epochs: expected a whole number"},
        {2, program(l.name), {"--data", "nowhere", "--out", ""}, "error: rank 0: nowhere: cannot open"},
        {2, program(l.name), options("three", {"--resume", "--epochs", "2"}),
         "error: rank 0: --accumulation-steps: expected another number of ranks, or of batches on each: a step of the "
         "checkpoint has 3 batches, found 2 ranks"},
        {2, "/bin/sh", differing(other, "1"), "error: rank 1: the training set: expected the first rank's, 48 samples"},
        {2, "/bin/sh", differing(data, "2"), "error: rank 1: the options: expected the first rank's, epochs 1, "},
        {13, program(l.name), options("", {}), "expected a batch for each of 13 ranks, found 12"},
    };
    if (tests::all_tests())
      cases.push_back({2, program("alone", "without"), options("", {}), "ranks: expected a program"});
    for (const Case& c : cases) {
      // Where processors are busy, mpirun may end all before it has passed on what one of them said last.
      ProcessResult r;
      for (int attempt = 0; attempt < 3 && r.output.empty(); ++attempt) r = run(l, c.ranks, c.program, c.options);
      EXPECT_NE(r.exit_status, 0) << c.said;
      EXPECT_NE(r.output.find(c.said), std::string::npos) << c.said << "\n" << r.output;
    }
    // Nothing is removed for a run that does not begin.
    const std::string kept = read_file(path("three") + "/latest/manifest.json");
    const std::string begins = program(l.name) + " --epochs 1 --overwrite --out " + path("three") + " --data ";
    const ProcessResult apart = run(
        l, 2, "/bin/sh",
        {"-c", "[ \"${PMI_RANK:-$OMPI_COMM_WORLD_RANK}\" = 0 ] && exec " + begins + data + "; exec " + begins + other});
    EXPECT_NE(apart.exit_status, 0);
    EXPECT_EQ(read_file(path("three") + "/latest/manifest.json"), kept) << apart.output;
    for (const Launcher& engine : launchers())
      if (engine.name != l.name) {
        const ProcessResult r = run(l, 2, program(engine.name), options("", {}));
        EXPECT_NE(r.exit_status, 0);
        EXPECT_NE(r.output.find("the mpirun of the MPI that the program is built with"), std::string::npos) << r.output;
      }
  }
}

TEST_F(Ranks, OneThatDiesOrHangsEndsTheOthers) {
  for (const Launcher& l : launchers()) {
    for (const std::string signal : {"KILL", "STOP"}) {
      const std::string out = l.name + signal;
      const ProcessResult r = tests::signal_one_rank(
          l, 2, program(l.name), options(out, {"--epochs", "1000000", "--save-every", "5", "--rank-timeout", "2"}),
          signal, path(out));
      EXPECT_FALSE(r.timed_out) << r.output;
      EXPECT_EQ(r.output.find("status 0"), std::string::npos) << r.output;
      if (signal == "STOP") {
        EXPECT_NE(r.output.find("ranks: expected an answer of the other ranks within 2 s (--rank-timeout), found none"),
                  std::string::npos)
            << r.output;
      }
      const ProcessResult again = run(l, 1, program(l.name), options(out, {"--epochs", "1", "--resume"}));
      EXPECT_EQ(again.exit_status, 0) << again.output;
      EXPECT_NE(again.output.find("resumed from " + path(out)), std::string::npos) << again.output;
    }
  }
}

TEST(RanksOfGraphs, WhatDoesNotGoTogether) {
  const auto refused = [](auto change, auto... inputs) {
    Classify graph;
    change(graph);
    return test::error_of([&] { graph.compile(inputs...); });
  };
  const auto images = spec({kBatch, kFeatures}, "images"), labels = spec({kBatch}, i64, "labels");
  EXPECT_NE(refused(
                [](Classify& g) {
                  g.enable_data_parallel();
                  g.update_in_backward();
                },
                images, labels)
                .find("asks for update_in_backward, and to be data parallel"),
            std::string::npos);
  Classify graph;
  graph.compile(images, labels);
  EXPECT_NE(test::error_of([&] { graph.enable_data_parallel(); }).find("enable_data_parallel"), std::string::npos);

  // In the host's process.
  Classify one_of_two;
  one_of_two.enable_data_parallel();
  ASSERT_EQ(::setenv("OMPI_COMM_WORLD_SIZE", "2", 1), 0);
  const std::string said = test::error_of([&] { one_of_two(zeros({kBatch, kFeatures}), zeros({kBatch}).to(i64)); });
  ASSERT_EQ(::unsetenv("OMPI_COMM_WORLD_SIZE"), 0);
  EXPECT_NE(said.find("is data parallel, and is called in one of 2 processes"), std::string::npos) << said;
}

}  // namespace
}  // namespace graven
