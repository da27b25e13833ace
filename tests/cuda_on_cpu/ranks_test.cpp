// Emitted CUDA projects that several ranks train, on an emulated device each: what N of them compute is what one
// process of the CPU project computes with N times as many batches a step, and whatever goes wrong on one of them ends
// all.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "graven/graven.h"
#include "ir/json.h"
#include "ir/ops.h"
#include "tests/cuda_on_cpu/projects.h"
#include "tests/cuda_on_cpu/ranked.h"
#include "tests/projects/data.h"
#include "tests/projects/launchers.h"
#include "tests/projects/networks.h"

namespace graven {
namespace {

namespace fs = std::filesystem;
using codegen::ProcessResult;
using tests::Classify;
using tests::kClasses;
using tests::kFeatures;
using tests::Ranked;
using tests::read_file;

constexpr std::int64_t kBatch = 4;

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

// ---- tensors in parts -----------------------------------------------------------------------------------------------

/// As in Megatron-LM: columns, then rows; heads; and the table of tokens by rows, which is the layer of logits, too.
void mark(models::GPT2LMHeadModel& model) {
  for (auto& block : model.transformer.h) {
    block.attn.c_attn.weight.set_layout(layout::split(1));
    block.attn.c_proj.weight.set_layout(layout::split(0));
    block.mlp.c_fc.weight.set_layout(layout::split(-1));
    block.mlp.c_proj.weight.set_layout(layout::split(0));
  }
  model.transformer.wte.weight.set_layout(layout::split(0));
}

struct Gpt2 : nn::Graph<Gpt2> {
  models::GPT2LMHeadModel model = child(
      "model", models::GPT2LMHeadModel({.n_layer = 1, .n_head = 4, .n_embd = 32, .n_positions = 8, .vocab_size = 512}));
  optim::AdamW optimizer{model.parameters(), {.lr = 1e-2, .eps = 0.05, .clip_grad_max_norm = 1}};
  explicit Gpt2(std::int64_t ranks) {
    add_optimizer(optimizer);
    mark(model);
    if (ranks > 1) enable_tensor_parallel(ranks);
    enable_data_parallel();
  }
  Tensor build(Tensor tokens, Tensor targets) {
    Tensor loss = cross_entropy(model(tokens).flatten(0, 1), targets.flatten());
    loss.backward();
    return loss;
  }
};

/// Emitted for the processor, of one rank, and for the device, of two; compiled once for all tests.
Ranked& parts() {
  static const std::unique_ptr<Ranked> made = [] {
    const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "cuda_projects/parts_emitted";
    fs::remove_all(folder);
    for (const std::int64_t ranks : {1, 2}) {
      manual_seed(4);
      Gpt2 graph(ranks);
      graph.compile(spec({4, 8}, i64, "tokens"), spec({4, 8}, i64, "targets"));
      const std::string target = ranks == 1 ? "cpu" : "cuda";
      codegen::emit(graph, folder / target, {.name = "parts", .target = target, .format = false});
    }
    // What the tests are about is there.
    const ir::Graph of_rank = ir::read_graph((folder / "cuda/graph.json").string());
    const auto has = [&](const ir::OpDef& op, const char* what) {
      EXPECT_TRUE(std::any_of(of_rank.nodes.begin(), of_rank.nodes.end(), [&](const ir::Node& n) { return n.is(op); }))
          << what;
    };
    has(ir::kConvertLayout, "no tensor changes its layout");
    has(ir::kIndexOnRank, "no words are in parts");
    return std::make_unique<Ranked>("parts", folder / "cpu", folder / "cuda");
  }();
  return *made;
}

TEST(CudaRanks, ThatHaveTensorsInPartsComputeWhatOneProcessDoes) {
  Ranked& own = parts();
  // Dropout, heads, words, the norm of the gradients, the held-out set's loss and accuracy: by one row of two ranks,
  // and by two rows with batches of their own.
  for (const int rows : {1, 2}) {
    const std::string n = std::to_string(2 * rows), one = "one_" + n;
    own.run_one("cpu", one, {"--epochs", "2", "--accumulation-steps", std::to_string(rows), "--threads", "1"});
    for (const codegen::Way& way :
         {codegen::Way{rows == 1 ? "forward" : "reverse", ""}, codegen::Way{"random:7", "--no-cuda-graph"}}) {
      if (rows == 2 && *way.option != 0) continue;
      SCOPED_TRACE(n + " ranks, " + way.order + " " + way.option);
      const std::string out = "ranks_" + n + "_" + way.order;
      const ProcessResult r = own.run(own.command(codegen::with_option(own.options(out, {"--epochs", "2"}), way)),
                                      {.ranks = 2 * rows, .order = way.order});
      own.expect_all_succeed(r, 2 * rows);
      EXPECT_LT(own.difference(one, out), 2e-5);
      const fs::path log = own.path(out + ".log"), expected = own.path(one + ".log");
      codegen::expect_same_losses(codegen::losses(log), codegen::losses(expected), 1e-4);
      const auto held = codegen::evaluations(log), held_by_one = codegen::evaluations(expected);
      ASSERT_EQ(held.size(), held_by_one.size());
      for (std::size_t e = 0; e < held.size(); ++e) {
        EXPECT_NEAR(held[e].first, held_by_one[e].first, 1e-4);
        EXPECT_EQ(held[e].second, held_by_one[e].second);
        EXPECT_GT(held[e].second, 0);
      }
    }
  }
  // How the device's work is given to it changes no bit.
  for (const char* file : {"weights.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(own.path("ranks_2_forward") + "/latest/" + file),
              read_file(own.path("ranks_2_random:7") + "/latest/" + file));
  own.projects().run("cuda", "selftest", {});
}

TEST(CudaRanks, ThatHaveTensorsInPartsGoOnInAnyNumber) {
  Ranked& own = parts();
  own.train({}, "straight", {"--steps", "6"});
  own.train({}, "cut", {"--steps", "3"});
  own.train({}, "cut", {"--steps", "6", "--resume"});
  for (const char* file : {"weights.safetensors", "optimizer.safetensors", "manifest.json"})
    EXPECT_EQ(read_file(own.path("straight") + "/latest/" + file), read_file(own.path("cut") + "/latest/" + file))
        << file;
  own.train({}, "mixed", {"--steps", "2"});
  own.run_one("cpu", "mixed", {"--steps", "4", "--resume", "--threads", "1"});
  own.train({}, "mixed", {"--steps", "6", "--resume"});
  EXPECT_LT(own.difference("straight", "mixed"), 2e-5);
  // What has to be sent, and no more.
  const ProcessResult bench = own.run(own.command({"--bench", "3"}), {});
  own.expect_all_succeed(bench, 2);
  const std::size_t begin = bench.output.find('{');
  const auto line = nlohmann::json::parse(bench.output.substr(begin, bench.output.find('}') + 1 - begin));
  EXPECT_GT(line.at("least_sent_bytes").get<double>(), 0);
  EXPECT_NEAR(line.at("sent_bytes").get<double>(), line.at("least_sent_bytes").get<double>(),
              0.02 * line.at("least_sent_bytes").get<double>());
}

TEST(CudaRanks, ThatHaveTensorsInPartsEndTogether) {
  Ranked& own = parts();
  for (const int ranks : {1, 3}) {
    const ProcessResult r = own.run(own.command(own.options("", {"--steps", "1"})), {.ranks = ranks});
    EXPECT_NE(r.output.find("ranks: expected a multiple of 2 ranks, which have the tensors of the model in parts"),
              std::string::npos)
        << r.output;
    EXPECT_EQ(r.output.find("status 0"), std::string::npos) << r.output;
    const std::size_t first = r.output.find("error: ");
    EXPECT_EQ(r.output.find("error: ", first + 1), std::string::npos) << "more than one rank says it\n" << r.output;
  }
  const std::string wait = "for i in $(seq 300); do [ -e " + own.path("killed") +
                           "/latest/manifest.json ] && break; sleep 0.1; done; kill -KILL $rank_1";
  const ProcessResult killed =
      own.run(own.command(own.options("killed", {"--epochs", "1000000", "--checkpoint-every", "2"})),
              {.ranks = 4, .behind = wait});
  EXPECT_FALSE(killed.timed_out) << killed.output;
  EXPECT_NE(killed.output.find("found rank 1 gone"), std::string::npos) << killed.output;
  EXPECT_EQ(killed.output.find("status 0"), std::string::npos) << killed.output;
}

struct InferGpt2 : nn::Graph<InferGpt2> {
  models::GPT2LMHeadModel model = child(
      "model", models::GPT2LMHeadModel({.n_layer = 1, .n_head = 4, .n_embd = 32, .n_positions = 8, .vocab_size = 512}));
  explicit InferGpt2(std::int64_t ranks) {
    mark(model);
    model.eval();
    if (ranks > 1) enable_tensor_parallel(ranks);
  }
  Tensor build(Tensor tokens) { return model(tokens); }
};

TEST(CudaRanks, ThatHaveTensorsInPartsInferWhatOneProcessDoes) {
  if (!tests::all_tests()) GTEST_SKIP() << "a slow one: tests/run.sh --all";
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "cuda_projects/inferring_emitted";
  fs::remove_all(folder);
  for (const std::int64_t ranks : {1, 2}) {
    manual_seed(4);
    InferGpt2 graph(ranks);
    graph.compile(spec({Dim("batch", 4), 8}, i64, "tokens"));
    const std::string target = ranks == 1 ? "cpu" : "cuda";
    codegen::emit(graph, folder / target, {.name = "inferring", .target = target, .format = false});
  }
  Ranked own("inferring", folder / "cpu", folder / "cuda");
  std::string tokens;
  for (int i = 0; i < 5 * 8; ++i) {
    const std::int64_t token = i * i * 7 % 512;
    tokens.append(reinterpret_cast<const char*>(&token), sizeof token);
  }
  tests::write_npy(own.work() / "tokens.npy", runtime::DType::i64, {5, 8}, tokens);
  const auto call = [&](const std::string& output) {
    return std::vector<std::string>{"--data", own.path("tokens.npy"), "--output", own.path(output)};
  };
  own.projects().run("cuda", "selftest", {});
  own.projects().run("cpu", "inferring", call("one.npy"));
  const ProcessResult r = own.run(own.command(call("two.npy")), {});
  own.expect_all_succeed(r, 2);
  const std::vector<float> expected = codegen::read_npy(own.work() / "one.npy"),
                           found = codegen::read_npy(own.work() / "two.npy");
  ASSERT_EQ(found.size(), std::size_t{5 * 8 * 512});
  ASSERT_EQ(expected.size(), found.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-5) << i;
  const ProcessResult alone = own.run(own.command(call("three.npy")), {.ranks = 1});
  EXPECT_NE(alone.output.find("ranks: expected 2 ranks, which have the tensors of the model in parts"),
            std::string::npos)
      << alone.output;
}

/// Calls of NCCL that the library would refuse, or wait for for ever: the stand-in tells of each.
TEST(CudaRanks, CallsThatDoNotFitAreErrors) {
  Ranked& own = parts();
  own.projects().compile_user(R"(
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>
#include "kernels/cuda/nccl.cuh"
#include "runtime/rank_sockets.h"
#include "runtime/ranks.h"
using namespace graven::kernels;
namespace runtime = graven::runtime;
int main() {
  const char* given = std::getenv("WRONG");
  const std::string wrong = given != nullptr ? given : "";
  runtime::Ranks::use(runtime::connect_by_sockets);
  const int rank = runtime::Ranks::all().rank();
  try {
    const DeviceGuard guard(rank);
    CudaContext context;
    NcclRanks ranks(context, runtime::processes<NcclRanks::Processes>(2));
    constexpr std::int64_t kRow = 64;
    const DeviceBuffer rows(2 * kRow), received(2 * kRow);
    char *from = static_cast<char*>(rows.data()), *to = static_cast<char*>(received.data());
    std::vector<char> host(2 * kRow);
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<char>(i + 100 * static_cast<unsigned>(rank));
    GRAVEN_CUDA(cudaMemcpyAsync(from, host.data(), host.size(), cudaMemcpyHostToDevice, context.stream()));
    context.synchronize();
    const Nccl& nccl = Nccl::library();
    const bool is_wrong = rank == 1 && !wrong.empty();
    if (is_wrong && wrong == "end") GRAVEN_NCCL(nccl.group_end());
    if (is_wrong && wrong == "bytes") {
      context.team()->exchange(from, to, kRow - 8);
    } else if (is_wrong && wrong == "host") {
      context.team()->exchange(host.data(), to, kRow);
    } else if (is_wrong && wrong == "length") {
      context.team()->exchange(from, to + 8, kRow);
    } else if (is_wrong && wrong == "upon") {
      context.team()->exchange(from, from, kRow);
    } else if (is_wrong && wrong == "call") {
      context.team()->gather(from, to, kRow);
    } else if (is_wrong && wrong == "group") {
      GRAVEN_NCCL(nccl.group_start());
      context.team()->exchange(from, to, kRow);
      runtime::Ranks::all().set_time_limit(2);
    } else {
      context.team()->exchange(from, to, kRow);
    }
    context.synchronize();
    GRAVEN_CUDA(cudaMemcpyAsync(host.data(), to, host.size(), cudaMemcpyDeviceToHost, context.stream()));
    context.synchronize();
    bool same = true;
    for (std::size_t r = 0; r < 2; ++r)
      for (std::size_t i = 0; i < kRow; ++i)
        same = same && host[r * kRow + i] == static_cast<char>(static_cast<unsigned>(rank) * kRow + i + 100 * r);
    std::printf("%d: %s\n", rank, same ? "as expected" : "other bytes");
    if (!same) return 1;
    double done = 0;  // nobody goes before all are done
    runtime::Ranks::all().sum(&done, 1);
    return 0;
  } catch (const std::exception& e) {
    std::printf("%d: %s\n", rank, e.what());
    std::fflush(stdout);
    std::_Exit(3);
  }
}
)");
  const ProcessResult right = own.run(own.path("cuda/user"), {});
  own.expect_all_succeed(right, 2);
  const struct {
    std::string wrong, said;
  } cases[] = {
      {"end", "NCCL: invalid usage from nccl.group_end()"},
      {"bytes", "ncclSend of 56 of type 1"},
      {"host", "ncclSend, what is sent: 64 bytes of device memory expected"},
      {"length", "64 bytes of device memory expected, got an address that is at byte 72 of an allocation of 128 bytes"},
      {"upon", "what one call of a group receives lies upon what another one sends or receives"},
      {"call", "makes another call, ncclAllGather of 64 of type 1"},
      {"group", "a communicator ends within a group"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.wrong);
    const ProcessResult r = own.run(own.path("cuda/user"), {.environment = "WRONG=" + c.wrong});
    EXPECT_FALSE(r.timed_out) << r.output;
    EXPECT_NE(r.output.find(c.said), std::string::npos) << r.output;
    EXPECT_EQ(r.output.find("status 0"), std::string::npos) << r.output;
  }
}

}  // namespace
}  // namespace graven
