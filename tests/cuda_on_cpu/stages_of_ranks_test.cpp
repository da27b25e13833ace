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

/// Two stages of much the same size, of which both read the first weight. The forward phase is the evaluation; batches
/// have a fixed size, which the held-out set does not fill.
struct Tied : nn::Graph<Tied> {
  static constexpr std::int64_t kWidth = 64, kWide = 512;
  nn::Linear in = child("in", nn::Linear(kFeatures, kWidth)), wide = child("wide", nn::Linear(kWidth, kWide)),
             narrow = child("narrow", nn::Linear(kWide, kWidth));
  optim::Adam optimizer{Staged::parameters_of({in, wide, narrow}), {.lr = 0.01}};
  Tied() {
    in.set_stage(0);
    wide.set_stage(0);
    narrow.set_stage(1);
    add_optimizer(optimizer);
    enable_data_parallel();
  }
  Tensor build(Tensor images, Tensor labels) {
    const Tensor h = narrow(tanh(wide(tanh(in(images)))));
    Tensor loss = cross_entropy(matmul(h, in.weight).slice(1, 0, kClasses), labels);
    loss.backward();
    return loss;
  }
  /// Of tensors of so many f32, as a device has them.
  static std::int64_t bytes_of(std::initializer_list<std::int64_t> counts) {
    std::int64_t bytes = 0;
    for (const std::int64_t n : counts) bytes += (n * 4 + 255) / 256 * 256;
    return bytes;
  }
};

Ranked& tied() {
  static const std::unique_ptr<Ranked> made = [] {
    manual_seed(3);
    Tied graph;
    graph.compile(spec({kMostRows, kFeatures}, "images"), spec({kMostRows}, i64, "labels"));
    return std::make_unique<Ranked>("tied_stages", graph.graph(), kSamplesOfStages, false);
  }();
  return *made;
}

void expect_same(const Ranked& own, const std::string& a, const std::string& b) {
  for (const char* file : {"weights.safetensors", "optimizer.safetensors", "manifest.json"})
    EXPECT_EQ(read_file(own.path(a) + "/latest/" + file), read_file(own.path(b) + "/latest/" + file))
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
    expect_same(own, "one", out);
    EXPECT_EQ(codegen::losses(own.path(out + ".log")), codegen::losses(own.path("one.log")));
    const auto evaluations = codegen::evaluations(own.path(out + ".log"));
    EXPECT_FALSE(evaluations.empty());
    EXPECT_EQ(evaluations, codegen::evaluations(own.path("one.log")));
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
  expect_same(own, "straight", "cut");
}

TEST(StagesOfRanks, ReplicasComputeWhatOneProcessDoesWithAsManyParts) {
  Ranked& own = staged();
  own.run_one("cuda", "parts", {"--epochs", "1", "--accumulation-steps", "4"});
  own.train({.ranks = 6, .order = "random:3"}, "replicas", {"--epochs", "1", "--accumulation-steps", "2"});
  EXPECT_LT(own.difference("parts", "replicas"), 2e-5);
}

TEST(StagesOfRanks, EvaluateByTheForwardPhaseAsOneProcessDoes) {
  Ranked& own = tied();
  const std::vector<std::string> epochs = {"--epochs", "2", "--accumulation-steps", "2"};
  own.run_one("cuda", "one", epochs);
  for (const std::string order : {"forward", "random:5"}) {
    SCOPED_TRACE(order);
    own.train({.order = order}, "two_" + order, epochs);
    expect_same(own, "one", "two_" + order);
    EXPECT_EQ(codegen::evaluations(own.path("two_" + order + ".log")), codegen::evaluations(own.path("one.log")));
  }
  // Replicas have the same weights where nothing is learned.
  own.run_one("cuda", "still", {"--epochs", "1", "--accumulation-steps", "2", "--lr", "0"});
  own.train({.ranks = 4, .order = "random:5"}, "replicas", {"--epochs", "1", "--lr", "0"});
  const auto evaluations = codegen::evaluations(own.path("still.log"));
  EXPECT_FALSE(evaluations.empty());
  EXPECT_EQ(codegen::evaluations(own.path("replicas.log")), evaluations);
}

/// What a device is asked for, of which it has too little.
std::string asked_of(const std::string& output) {
  const std::string before = "weights, gradients, states, inputs and the memory plan take ";
  const std::size_t at = output.find(before);
  if (at == std::string::npos) return output;
  const std::size_t begin = at + before.size();
  return output.substr(begin, output.find(' ', begin) - begin);
}

TEST(StagesOfRanks, HaveOnTheirDeviceWhatTheyReadAlone) {
  Ranked& own = tied();
  constexpr std::int64_t kIn = Tied::kWidth * kFeatures, kLarge = Tied::kWidth * Tied::kWide;
  const std::int64_t first = Tied::bytes_of({kIn, Tied::kWidth, kLarge, Tied::kWide}),
                     second = Tied::bytes_of({kLarge, Tied::kWidth});
  // Of the shared weight the second stage has neither a gradient nor a state: those are its owner's.
  const std::int64_t of_stage[] = {4 * first, Tied::bytes_of({kIn}) + 4 * second};
  const auto command = own.command(own.options("", {"--epochs", "1", "--accumulation-steps", "2"}));
  const std::string little = "CUDA_ON_CPU_MEMORY=100000", enough = "CUDA_ON_CPU_MEMORY=" + std::to_string(1 << 30);
  EXPECT_EQ(asked_of(own.run(command, {.environment = little, .of_rank_1 = enough + " " + command}).output),
            std::to_string(of_stage[0]));
  EXPECT_EQ(asked_of(own.run(command, {.of_rank_1 = little + " " + command}).output), std::to_string(of_stage[1]));
  // Devices of which each has less than the model takes train it, evaluate it and save all of it. Beside it stands what
  // products work in.
  constexpr std::int64_t kWorkspace = 32 << 20;
  const std::int64_t whole = 4 * (first + second);
  const std::string less = "CUDA_ON_CPU_MEMORY=" + std::to_string(kWorkspace + whole - (1 << 16));
  const std::vector<std::string> two_epochs = {"--epochs", "2", "--accumulation-steps", "2"};
  const ProcessResult one = own.run(own.command(own.options("", two_epochs)), {.ranks = 1, .environment = less});
  EXPECT_NE(one.output.find("out of memory"), std::string::npos) << one.output;
  own.run_one("cuda", "fits", two_epochs);
  own.train({.environment = less}, "parts", {"--epochs", "1", "--accumulation-steps", "2"});
  own.train({.environment = less}, "parts", {"--epochs", "2", "--accumulation-steps", "2", "--resume"});
  expect_same(own, "fits", "parts");
}

TEST(StagesOfRanks, HaveOthersTensorsInTheHostsMemory) {
  Ranked& own = tied();
  own.projects().compile_user(R"(
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include "model.h"
#define EXPECT(condition) (void)((condition) || (std::printf("not so: %s\n", #condition), failed = true))
int main() {
  bool failed = false;
  const int rank = std::atoi(std::getenv("RANK"));
  const auto sum = [](const tied_stages::Tensor& t) {
    double total = 0;
    std::int64_t n = 1;
    for (const std::int64_t d : t.shape) n *= d;
    for (std::int64_t i = 0; i < n; ++i) total += static_cast<const float*>(t.data)[i];
    return total;
  };
  tied_stages::Model model;
  for (const auto& t : model.parameters()) EXPECT(sum(t) == 0);
  model.load("cuda/weights.safetensors");
  double loaded = 0;
  for (const auto& t : model.parameters()) {
    EXPECT(sum(t) != 0);
    loaded += sum(t);
  }
  EXPECT(model.parameters().size() == 6 && model.gradients().size() == 6 && model.states().size() == 12);
  for (const auto& t : model.gradients()) EXPECT(sum(t) == 0);
  for (const auto& t : model.states()) EXPECT(sum(t) == 0);
  EXPECT((model.place_of("narrow.weight") != nullptr) == (rank == 1));
  EXPECT((model.place_of("wide.weight") != nullptr) == (rank == 0));
  EXPECT(model.place_of("in.weight") != nullptr);
  // What is written into the lists stays, wherever the tensor lies.
  for (const auto& t : model.parameters()) static_cast<float*>(t.data)[0] += 1;
  model.write_back();
  double changed = 0;
  for (const auto& t : model.parameters()) changed += sum(t);
  EXPECT(changed > loaded + 5.9 && changed < loaded + 6.1);
  const std::string file = "saved_by_" + std::to_string(rank) + ".safetensors";
  model.load("cuda/weights.safetensors");
  model.save(file);
  const float images[4 * 6] = {};
  const std::int64_t labels[4] = {};
  for (const auto& call : {+[](tied_stages::Model& m, const float* x, const std::int64_t* y) { m.evaluate(x, y); },
                           +[](tied_stages::Model& m, const float* x, const std::int64_t* y) { m.step(x, y, {}); }})
    try {
      call(model, images, labels);
      EXPECT(!"an error");
    } catch (const std::runtime_error& e) {
      EXPECT(std::string(e.what()).starts_with("one of several processes runs a stage alone"));
    }
  try {
    model.set_slots(1 - rank, 1);
    EXPECT(!"an error");
  } catch (const std::runtime_error& e) {
    EXPECT(std::string(e.what()).starts_with("stage: expected "));
  }
  return failed;
}
)");
  const ProcessResult r = own.run(own.path("cuda/user"), {});
  own.expect_all_succeed(r, 2);
  for (const char* rank : {"0", "1"})
    EXPECT_EQ(tests::difference(own.path(std::string("saved_by_") + rank + ".safetensors"),
                                own.path("cuda/weights.safetensors"), true),
              0);
}

TEST(StagesOfRanks, HaveOfTheMemoryPlanWhatTheirCallsTouch) {
  const std::string text = read_file(staged().work() / "cuda/stages.h");
  for (const char* line :
       {"GRAVEN_ARENA(0, ", "GRAVEN_ARENA(1, ", "GRAVEN_ARENA(2, ", "GRAVEN_EVALUATION_ARENA(1, ",
        "GRAVEN_CROSSING(0, 2, update,", "GRAVEN_EVALUATION_CROSSING(1, 2, ",
        "GRAVEN_STAGES_OF_GRADIENT(\"middle.weight\", 1)", "GRAVEN_STAGES(\"middle.weight\", learned, 1, 2)"})
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
