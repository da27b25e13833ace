// Emitted CUDA projects of a pipeline, each stage on a rank and an emulated device of its own: what they compute is,
// bit for bit, what one process computes on a device that runs all stages, in whatever order streams go on; within
// rounding, where each stage has several ranks; and whatever goes wrong on one of them ends all.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graven/graven.h"
#include "tests/cuda_on_cpu/projects.h"
#include "tests/cuda_on_cpu/ranked.h"
#include "tests/projects/data.h"

namespace graven {
namespace {

using codegen::ProcessResult;
using tests::kClasses;
using tests::kFeatures;
using tests::Ranked;
using tests::read_file;

constexpr std::int64_t kMostRows = 4, kSamplesOfStages = 46;  // the last batch of an epoch is smaller

/// Three stages. The second one's weight is read by the third, too; a value of the first goes to both others; gradients
/// are clipped by a norm over all stages; and what the first makes is a result.
struct Staged : nn::Graph<Staged> {
  nn::Linear in = child("in", nn::Linear(kFeatures, 40)), middle = child("middle", nn::Linear(40, 30)),
             out = child("out", nn::Linear(30, kClasses));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(30));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.25));
  optim::SGD optimizer{parameters_of({in, middle, norm, out}),
                       {.lr = 0.05, .momentum = 0.9, .clip_grad_max_norm = 0.5}};
  Staged() {
    in.set_stage(0);
    middle.set_stage(1);
    norm.set_stage(1);
    out.set_stage(2);
    add_optimizer(optimizer);
    enable_data_parallel();
  }
  static std::vector<Tensor> parameters_of(std::initializer_list<nn::ModuleBase> modules) {
    std::vector<Tensor> all;
    for (const nn::ModuleBase& m : modules)
      for (const Tensor& t : m.parameters()) all.push_back(t);
    return all;
  }
  std::map<std::string, Tensor> build(Tensor images, Tensor labels) {
    const Tensor h = relu(in(images));
    const Tensor scores = out(dropout(relu(norm(middle(h)))) + 0.5 * h.slice(1, 0, 30));
    const Tensor tied = matmul(scores, middle.weight.slice(0, 0, kClasses)).slice(1, 0, kClasses);
    Tensor loss = cross_entropy(scores + 0.1 * tied, labels);
    loss.backward();
    return {{"loss", loss}, {"spread", mean(h)}};
  }
};

/// Compiled once for all tests.
Ranked& staged() {
  static const std::unique_ptr<Ranked> made = [] {
    manual_seed(3);
    Staged graph;
    const Dim batch("batch", kMostRows);
    graph.compile(spec({batch, kFeatures}, "images"), spec({batch}, i64, "labels"));
    return std::make_unique<Ranked>("stages", graph.graph(), kSamplesOfStages);
  }();
  return *made;
}

void expect_same(const std::string& a, const std::string& b) {
  for (const char* file : {"weights.safetensors", "optimizer.safetensors", "manifest.json"})
    EXPECT_EQ(read_file(staged().path(a) + "/latest/" + file), read_file(staged().path(b) + "/latest/" + file))
        << a << ", " << b << ": " << file;
}

TEST(StagesOfRanks, ComputeWhatOneProcessDoes) {
  Ranked& own = staged();
  const std::vector<std::string> epochs = {"--epochs", "2", "--accumulation-steps", "4", "--log-every", "1"};
  own.run_one("cpu", "processor", epochs);
  own.run_one("cuda", "one", epochs);
  EXPECT_LT(own.difference("processor", "one"), 2e-5);
  for (const codegen::Way& way :
       {codegen::Way{"forward", ""}, codegen::Way{"reverse", ""}, codegen::Way{"random:7", "--no-cuda-graph"}}) {
    SCOPED_TRACE(std::string(way.order) + " " + way.option);
    const std::string out = std::string("stages_") + way.order;
    const ProcessResult r =
        own.run(own.command(codegen::with_option(own.options(out, epochs), way)), {.ranks = 3, .order = way.order});
    own.expect_all_succeed(r, 3);
    EXPECT_NE(r.output.find(", 3 ranks, 3 stages, 4 batches a step"), std::string::npos) << r.output;
    expect_same("one", out);
    EXPECT_EQ(codegen::losses(own.path(out + ".log")), codegen::losses(own.path("one.log")));
    EXPECT_EQ(codegen::evaluations(own.path(out + ".log")), codegen::evaluations(own.path("one.log")));
  }
  EXPECT_NE(read_file(own.path("one.log")).find("\"spread\":"), std::string::npos);
}

TEST(StagesOfRanks, GoOnInAnyNumber) {
  Ranked& own = staged();
  const std::vector<std::string> two_epochs = {"--epochs", "2", "--accumulation-steps", "4"};
  own.run_one("cuda", "straight", two_epochs);
  own.train({.ranks = 3}, "cut", {"--epochs", "2", "--accumulation-steps", "4", "--steps", "2"});
  own.run_one("cuda", "cut", {"--epochs", "2", "--steps", "4", "--resume"});
  own.train({.ranks = 3}, "cut", {"--epochs", "2", "--resume"});
  expect_same("straight", "cut");
}

TEST(StagesOfRanks, ReplicasComputeWhatOneProcessDoesWithAsManyParts) {
  Ranked& own = staged();
  own.run_one("cuda", "parts", {"--epochs", "1", "--accumulation-steps", "4"});
  own.train({.ranks = 6, .order = "random:3"}, "replicas", {"--epochs", "1", "--accumulation-steps", "2"});
  EXPECT_LT(own.difference("parts", "replicas"), 2e-5);
}

TEST(StagesOfRanks, HaveOfTheMemoryPlanWhatTheirCallsTouch) {
  const std::string text = read_file(staged().work() / "cuda/stages.h");
  for (const char* line : {"GRAVEN_ARENA(0, ", "GRAVEN_ARENA(1, ", "GRAVEN_ARENA(2, ", "GRAVEN_CROSSING(0, 2, update,",
                           "GRAVEN_STAGES(\"middle.weight\", true, 1, 2)"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

TEST(StagesOfRanks, MistakesEndAll) {
  Ranked& own = staged();
  const auto all = own.command(own.options("", {"--epochs", "1", "--accumulation-steps", "2"}));
  std::ofstream(own.work() / "libnccl.so.2") << "no library";
  const struct {
    std::string command;
    Ranked::Start start;
    const char* said;
  } cases[] = {
      {all, {.ranks = 2}, "expected a multiple of 3 ranks, one for each stage of the pipeline, or 1, which runs all"},
      {all, {.ranks = 3, .environment = "LD_LIBRARY_PATH=" + own.work().string()}, "libnccl.so.2 cannot be opened ("},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.said);
    const ProcessResult r = own.run(c.command, c.start);
    EXPECT_FALSE(r.timed_out);
    EXPECT_NE(r.output.find(c.said), std::string::npos) << r.output;
    EXPECT_EQ(r.output.find("status 0"), std::string::npos) << r.output;
  }
}

TEST(StagesOfRanks, OneThatDiesOrHangsEndsTheOthers) {
  Ranked& own = staged();
  for (const std::string signal : {"KILL", "STOP"}) {
    SCOPED_TRACE(signal);
    const std::string out = "ends_" + signal;
    const std::string wait = "for i in $(seq 300); do [ -e " + own.path(out) +
                             "/latest/manifest.json ] && break; sleep 0.1; done; kill -" + signal + " $rank_1" +
                             (signal == "STOP" ? "; (sleep 5; kill -KILL $rank_1) &" : "");
    const ProcessResult r = own.run(
        own.command(own.options(out, {"--epochs", "1000000", "--accumulation-steps", "2", "--rank-timeout", "2"})),
        {.ranks = 3, .behind = wait});
    EXPECT_FALSE(r.timed_out) << r.output;
    EXPECT_EQ(r.output.find("status 0"), std::string::npos) << r.output;
    EXPECT_NE(r.output.find("error: "), std::string::npos) << r.output;
    const std::string again = own.run_one("cuda", out, {"--epochs", "1", "--resume"});
    EXPECT_NE(again.find("resumed from " + own.path(out)), std::string::npos) << again;
  }
}

}  // namespace
}  // namespace graven
