// Emitted CUDA projects that several ranks train, on an emulated device each: what N of them compute is what one
// process of the CPU project computes with N times as many batches a step, and whatever goes wrong on one of them ends
// all.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "graven/graven.h"
#include "tests/cuda_on_cpu/projects.h"
#include "tests/projects/data.h"
#include "tests/projects/launchers.h"
#include "tests/projects/networks.h"

namespace graven {
namespace {

namespace fs = std::filesystem;
using codegen::ProcessResult;
using codegen::Projects;
using tests::Classify;
using tests::kClasses;
using tests::kFeatures;
using tests::read_file;

constexpr std::int64_t kBatch = 4, kSamples = 48;

/// A data parallel graph's projects, and what its ranks are started with.
class Ranked {
 public:
  Ranked(const std::string& name, const ir::Graph& graph) : name_(name), projects_(name, graph, true) {
    tests::write_data(work() / "data/train", kSamples, 1);
    tests::write_data(work() / "data/test", 11, 2);
    tests::write_data(work() / "other/train", kSamples, 3);
  }

  fs::path work() const { return projects_.folder(); }
  std::string path(const std::string& out) const { return (work() / out).string(); }
  std::vector<std::string> options(const std::string& out, const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"--data", path("data"), "--out", out.empty() ? out : path(out),
                                    "--seed", "5",          "--log", out.empty() ? path("log") : path(out + ".log")};
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
  Projects& projects() { return projects_; }

 private:
  std::string name_;
  Projects projects_;
};

/// Compiled once for all tests.
Ranked& classify() {
  static const std::unique_ptr<Ranked> made = [] {
    manual_seed(3);
    Classify graph;
    graph.enable_data_parallel();
    graph.compile(spec({kBatch, kFeatures}, "images"), spec({kBatch}, i64, "labels"));
    return std::make_unique<Ranked>("ranks", graph.graph());
  }();
  return *made;
}

TEST(CudaRanks, ComputeWhatOneProcessDoesWithAsManyBatches) {
  Ranked& own = classify();
  for (const int ranks : {2, 3}) {
    const std::string n = std::to_string(ranks), one = "one_" + n;
    own.run_one("cpu", one, {"--epochs", "3", "--accumulation-steps", n, "--threads", "1"});
    for (const codegen::Way& way :
         {codegen::Way{ranks == 2 ? "forward" : "reverse", ""}, codegen::Way{"random:7", "--no-cuda-graph"}}) {
      SCOPED_TRACE(n + " ranks, " + way.order + " " + way.option);
      const std::string out = "ranks_" + n + "_" + way.order;
      const ProcessResult r = own.run(own.command(codegen::with_option(own.options(out, {"--epochs", "3"}), way)),
                                      {.ranks = ranks, .order = way.order});
      own.expect_all_succeed(r, ranks);
      EXPECT_LT(own.difference(one, out), 2e-5);
      codegen::expect_same_losses(codegen::losses(own.path(out + ".log")), codegen::losses(own.path(one + ".log")),
                                  1e-4);
      EXPECT_NE(r.output.find(", " + n + " ranks, " + n + " batches a step\n"), std::string::npos) << r.output;
      const std::size_t line = r.output.find("epoch 1/3");
      EXPECT_NE(line, std::string::npos) << r.output;
      EXPECT_EQ(r.output.find("epoch 1/3", line + 1), std::string::npos) << "more than one rank prints\n" << r.output;
    }
  }
}

TEST(CudaRanks, GoOnBitForBitAndInOtherNumbers) {
  Ranked& own = classify();
  own.train({}, "straight", {"--epochs", "3", "--accumulation-steps", "2"});
  own.train({}, "cut", {"--epochs", "3", "--accumulation-steps", "2", "--steps", "4"});
  own.train({}, "cut", {"--epochs", "3", "--resume"});
  for (const char* file : {"weights.safetensors", "optimizer.safetensors", "manifest.json"})
    EXPECT_EQ(read_file(own.path("straight") + "/latest/" + file), read_file(own.path("cut") + "/latest/" + file))
        << file;
  own.train({.ranks = 4}, "mixed", {"--epochs", "3", "--steps", "2"});
  own.run_one("cuda", "mixed", {"--epochs", "3", "--steps", "5", "--resume"});
  own.train({.ranks = 2}, "mixed", {"--epochs", "3", "--resume"});
  EXPECT_LT(own.difference("straight", "mixed"), 2e-5);
}

TEST(CudaRanks, SendWhatARingSends) {
  Ranked& own = classify();
  const ProcessResult r = own.run(own.command({"--data", own.path("data"), "--bench", "3"}), {});
  own.expect_all_succeed(r, 2);
  const auto line =
      nlohmann::json::parse(r.output.substr(r.output.find('{'), r.output.find('}') + 1 - r.output.find('{')));
  const double elements = kFeatures * 300 + 300 + 2 * 300 + 300 * 300 + 300 + 300 * kClasses + kClasses;
  EXPECT_EQ(line.at("ranks"), 2);
  EXPECT_EQ(line.at("messages"), 1) << "all together are less than a bucket";
  EXPECT_EQ(line.at("message_bytes").get<double>(), 4 * elements);
  EXPECT_EQ(line.at("sent_bytes").get<double>(), 4 * elements);
}

TEST(CudaRanks, MistakesEndAll) {
  Ranked& own = classify();
  const auto all = own.command(own.options("", {"--epochs", "1"}));
  const auto with = [&](const std::vector<std::string>& more) { return own.command(own.options("", more)); };
  std::ofstream(own.work() / "libnccl.so.2") << "no library";
  const struct {
    std::string command;
    Ranked::Start start;
    const char* said;
  } cases[] = {
      {with({"--epochs", "x"}), {}, "error: rank 0: --epochs: expected a whole number"},
      {all,
       {.of_rank_1 = with({"--epochs", "2"})},
       "error: rank 1: the options: expected the first rank's, epochs 1, "},
      {all,
       {.of_rank_1 = own.command({"--data", own.path("other"), "--out", "", "--seed", "5", "--epochs", "1"})},
       "error: rank 1: the training set: expected the first rank's, 48 samples"},
      {with({"--epochs", "1"}), {.ranks = 13}, "expected a batch for each of 13 ranks, found 12"},
      {all, {.environment = "LD_LIBRARY_PATH=" + own.work().string()}, "libnccl.so.2 cannot be opened ("},
      {with({"--epochs", "1", "--device", "7"}), {}, "device: expected 0 to 1, found 7"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.said);
    const ProcessResult r = own.run(c.command, c.start);
    EXPECT_FALSE(r.timed_out);
    EXPECT_NE(r.output.find(c.said), std::string::npos) << r.output;
    EXPECT_EQ(r.output.find("status 0"), std::string::npos) << r.output;
    const std::size_t first = r.output.find("error: ");
    EXPECT_EQ(r.output.find("error: ", first + 1), std::string::npos) << "more than one rank says it\n" << r.output;
  }
}

TEST(CudaRanks, OneThatDiesOrHangsEndsTheOthers) {
  Ranked& own = classify();
  for (const std::string signal : {"KILL", "STOP"})
    for (const std::string rank : {"0", "1", "2"}) {
      if (signal == "STOP" && rank != "1") continue;
      SCOPED_TRACE(signal + " of rank " + rank);
      const std::string out = "out_" + signal + rank;
      const std::string wait = "for i in $(seq 300); do [ -e " + own.path(out) +
                               "/latest/manifest.json ] && break; sleep 0.1; done; kill -" + signal + " $rank_" + rank +
                               (signal == "STOP" ? "; (sleep 5; kill -KILL $rank_" + rank + ") &" : "");
      const ProcessResult r =
          own.run(own.command(own.options(out, {"--epochs", "1000000", "--save-every", "5", "--rank-timeout", "2"})),
                  {.ranks = 3, .behind = wait});
      EXPECT_FALSE(r.timed_out) << r.output;
      EXPECT_EQ(r.output.find("status 0"), std::string::npos) << r.output;
      const std::size_t first = r.output.find("error: ");
      EXPECT_NE(first, std::string::npos) << r.output;
      if (signal == "KILL") {
        EXPECT_NE(r.output.find("ranks: expected all ranks to go on until the end, found rank " + rank + " gone"),
                  std::string::npos)
            << r.output;
        EXPECT_EQ(r.output.find("error: ", first + 1), std::string::npos) << r.output;
      }
      const std::string again = own.run_one("cuda", out, {"--epochs", "1", "--resume"});
      EXPECT_NE(again.find("resumed from " + own.path(out)), std::string::npos) << again;
    }
}

TEST(CudaRanks, ModelsOfAProgramTakeStepsAhead) {
  Ranked& own = classify();
  const std::string text = R"(
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>
#include "model.h"
int main() {
  const auto number = [](const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? -1 : std::atoi(text);
  };
  const int rank = number("RANK");
  try {
    ranks::Model model;
    model.load("cuda/weights.safetensors");
    std::vector<float> images(4 * 6);
    ranks::Hyper hyper;
    hyper.seed = 1;
    double sum = 0;
    for (int step = 1; step <= 6; ++step) {
      for (std::size_t i = 0; i < images.size(); ++i)
        images[i] = static_cast<float>((7 * static_cast<int>(i) + 3 * step + rank) % 11);
      const std::int64_t labels[] = {0, step == 2 && rank == number("WRONG") ? 7 : 1, 2, 1};
      hyper.step = step;
      hyper.draw = 2 * step + rank + 1;
      model.begin_step(images.data(), labels, hyper);
      if (step > 1) sum += model.finish_step();
    }
    sum += model.finish_step();
    double squares = 0;
    for (const auto& p : model.gradients()) {
      std::size_t n = 1;
      for (const auto d : p.shape) n *= static_cast<std::size_t>(d);
      const auto* const values = static_cast<const float*>(p.data);
      for (std::size_t i = 0; i < n; ++i) squares += values[i] * values[i];
    }
    std::printf("loss of %d %.17g\ngradients %.17g\n", rank, sum, squares);
  } catch (const std::exception& e) {
    std::printf("%d: %s\n", rank, e.what());
    std::fflush(stdout);
    std::_Exit(3);
  }
}
)";
  own.projects().compile_user(text);
  const ProcessResult r = own.run(own.path("cuda/user"), {});
  own.expect_all_succeed(r, 2);
  const auto line_from = [&](std::size_t from) {
    const std::size_t at = r.output.find("gradients ", from);
    return at == std::string::npos ? "" : r.output.substr(at, r.output.find('\n', at) - at);
  };
  const std::string first = line_from(0), second = line_from(r.output.find(first) + 1);
  EXPECT_FALSE(first.empty()) << r.output;
  EXPECT_GT(std::stod(first.substr(first.find(' '))), 1e-6) << r.output;
  EXPECT_EQ(first, second) << r.output;
  // What one finds out of range ends it; the other hears of it when it next waits.
  const ProcessResult wrong = own.run(own.path("cuda/user"), {.environment = "WRONG=1"});
  EXPECT_FALSE(wrong.timed_out) << wrong.output;
  EXPECT_NE(wrong.output.find("label 7 at position 1 is outside [0, 3)"), std::string::npos) << wrong.output;
  EXPECT_NE(wrong.output.find("0: ranks: expected all ranks to go on until the end, found rank 1 gone"),
            std::string::npos)
      << wrong.output;
}

/// Optimizers by norms of whole tensors, of which some are shared and some are not, behind both ways to clip; and an
/// average of the weights that reads what all ranks have updated. Of 3 * 301 and 301 * 53 elements no number of ranks
/// divides them.
struct ByNorms : tests::AveragedPerceptron<ByNorms> {
  optim::LAMB lamb{{model.first.weight, model.first.bias, model.second.weight, model.second.bias},
                   {.lr = 0.02, .eps = 0.05, .weight_decay = 0.01, .clip_grad_max_norm = 0.05}};
  optim::LARS lars{model.third.parameters(), {.lr = 0.5, .momentum = 0.9, .trust_coefficient = 0.1}};
  ByNorms() : AveragedPerceptron(301, 53) {
    add_optimizer(lamb);
    add_optimizer(lars);
  }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = cross_entropy(model(images), labels);
    train_on(loss);
    return loss;
  }
};

/// Batch norms of all ranks, a scaled loss, and a norm that clips.
struct ScaledPictures : nn::Graph<ScaledPictures> {
  tests::PicturesNet<nn::SyncBatchNorm> net = child("net", tests::PicturesNet<nn::SyncBatchNorm>());
  optim::SGD optimizer{net.parameters(), {.lr = 0.05, .momentum = 0.9, .clip_grad_max_norm = 0.5}};
  ScaledPictures() {
    nn::SyncBatchNorm::convert_sync_batchnorm(net);
    add_optimizer(optimizer);
    set_grad_scaler(amp::GradScaler({.init_scale = 256, .growth_interval = 3}));
  }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = cross_entropy(net(images), labels);
    loss.backward();
    return loss;
  }
};

/// Ranks that share states, gradients and parameters compute what one process does, with as many batches, or with a
/// batch as large as theirs together; and their checkpoints are whole.
template <class Graph>
void expect_zero(int stage, bool one_batch) {
  const std::string name = "zero_" + std::to_string(stage);
  SCOPED_TRACE(name);
  manual_seed(3);
  Graph graph;
  graph.enable_zero(stage, 16);
  const Dim batch = one_batch ? Dim("batch", 3 * kBatch) : Dim(kBatch);
  graph.compile(spec({batch, kFeatures}, "images"), spec({batch}, i64, "labels"));
  Ranked own(name, graph.graph());
  own.projects().run("cuda", "selftest", {});
  const std::vector<std::string> of_rank = {"--epochs", "2",       "--accumulation-steps",
                                            "2",        "--batch", std::to_string(kBatch)};
  for (const int ranks : {2, 3}) {
    const std::string n = std::to_string(ranks), one = "one_" + n, out = "ranks_" + n;
    own.run_one("cpu", one,
                {"--epochs", "2", "--threads", "1", "--accumulation-steps", std::to_string(one_batch ? 2 : 2 * ranks),
                 "--batch", std::to_string(one_batch ? ranks * kBatch : kBatch)});
    own.train({.ranks = ranks, .order = ranks == 2 ? "reverse" : "random:3"}, out, of_rank);
    EXPECT_LT(own.difference(one, out, one_batch), 2e-5) << "running statistics of one batch as well";
    codegen::expect_same_losses(codegen::losses(own.path(out + ".log")), codegen::losses(own.path(one + ".log")), 1e-4);
  }
  own.train({.ranks = 3}, "cut", {"--epochs", "2", "--accumulation-steps", "2", "--batch", "4", "--steps", "1"});
  own.train({.ranks = 3}, "cut", {"--epochs", "2", "--resume"});
  for (const char* file : {"weights.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(own.path("ranks_3") + "/latest/" + file), read_file(own.path("cut") + "/latest/" + file))
        << file;
}

TEST(CudaRanks, WithSharedParametersAndOneBatchNormComputeWhatOneProcessDoes) { expect_zero<ScaledPictures>(3, true); }
TEST(CudaRanks, WithSharedStatesComputeWhatOneProcessDoes) {
  if (!tests::all_tests()) GTEST_SKIP() << "a slow one: tests/run.sh --all";
  for (const int stage : {1, 2}) expect_zero<ByNorms>(stage, false);
}

}  // namespace
}  // namespace graven
