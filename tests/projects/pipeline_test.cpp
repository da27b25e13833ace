// Emitted projects of which several ranks each train a stage, built with each MPI that is here: what they compute is,
// bit for bit, what one process computes that runs all stages, whatever the number of parts, and across checkpoints;
// and within rounding, where each stage has several ranks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "graven/graven.h"
#include "tests/projects/data.h"
#include "tests/projects/launchers.h"
#include "tests/projects/workplace.h"

namespace graven {
namespace {

namespace fs = std::filesystem;
using codegen::ProcessResult;

using tests::kClasses;
using tests::kFeatures;
using tests::Launcher;
using tests::launchers;
using tests::read_file;
using tests::write_data;
using tests::write_npy;

constexpr std::int64_t kBatch = 4, kSamples = 46;  // the last batch of an epoch is smaller

/// Three stages; the loss belongs to none, nor does the dropout.
struct Mlp : nn::Graph<Mlp> {
  nn::Linear in = child("in", nn::Linear(kFeatures, 40)), middle = child("middle", nn::Linear(40, 30)),
             out = child("out", nn::Linear(30, kClasses));
  nn::BatchNorm1d norm = child("norm", nn::BatchNorm1d(30));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.25));
  optim::SGD optimizer{parameters_of({in, middle, norm, out}), {.lr = 0.05, .momentum = 0.9}};
  Mlp() {
    in.set_stage(0);
    middle.set_stage(1);
    norm.set_stage(1);
    out.set_stage(2);
    add_optimizer(optimizer);
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
    Tensor loss = cross_entropy(scores, labels);
    loss.backward();
    // What the first stage makes is a result, too.
    return {{"loss", loss}, {"spread", mean(h)}};
  }
};

constexpr std::int64_t kVocabulary = 11, kLength = 6;

/// Two stages, of which both read the embeddings: as such, and as the last layer's weight.
struct TrainGpt2 : nn::Graph<TrainGpt2> {
  models::GPT2LMHeadModel model =
      child("model", models::GPT2LMHeadModel(
                         {.n_layer = 3, .n_head = 2, .n_embd = 16, .n_positions = kLength, .vocab_size = kVocabulary}));
  // Of SGD: Adam makes steps out of gradients that are rounding alone, as those of the keys' biases are.
  optim::SGD optimizer{model.parameters(), {.lr = 0.1, .momentum = 0.9, .clip_grad_max_norm = 0.5}};
  TrainGpt2() {
    model.transformer.set_stage(0);
    model.transformer.h[1].set_stage(1);
    model.transformer.h[2].set_stage(1);
    model.transformer.ln_f.set_stage(1);
    model.lm_head.set_stage(1);
    add_optimizer(optimizer);
  }
  Tensor build(Tensor tokens, Tensor targets) {
    Tensor loss = cross_entropy(model(tokens).reshape({-1, kVocabulary}), targets.reshape({-1}));
    loss.backward();
    return loss;
  }
};

constexpr std::int64_t kPixels = 12;

/// Images go from stage to stage as the convolutions have them.
struct Lenet : nn::Graph<Lenet> {
  nn::Sequential features = child(
      "features", nn::Sequential(nn::Conv2d(1, 8, 3), nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(8, 16, 3), nn::ReLU()));
  nn::Linear out = child("out", nn::Linear(16 * 9, kClasses));
  optim::Adam optimizer;
  Lenet() : optimizer(parameters(), {.lr = 0.01}) {
    features.set_stage(1);
    features[0].set_stage(0);
    features[1].set_stage(0);
    add_optimizer(optimizer);
  }
  std::vector<Tensor> parameters() {
    std::vector<Tensor> all = features.parameters();
    for (const Tensor& t : out.parameters()) all.push_back(t);
    return all;
  }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = cross_entropy(out(flatten(features(images), 1)), labels);
    loss.backward();
    return loss;
  }
};

/// The loss is a mean over samples of which the program knows none that it could leave out.
struct Fit : nn::Graph<Fit> {
  nn::Linear in = child("in", nn::Linear(kFeatures, 20)), out = child("out", nn::Linear(20, 3));
  optim::SGD optimizer;
  Fit() : optimizer(Mlp::parameters_of({in, out}), {.lr = 0.05, .momentum = 0.9}) {
    in.set_stage(0);
    out.set_stage(1);
    add_optimizer(optimizer);
  }
  Tensor build(Tensor images, Tensor targets) {
    Tensor loss = mse_loss(out(tanh(in(images))), targets);
    loss.backward();
    return loss;
  }
};

struct Project {
  const char* name;
  int stages;
};
constexpr Project kProjects[] = {{"mlp", 3}, {"lenet", 2}, {"gpt2", 2}, {"fit", 2}};
constexpr std::int64_t kHeldOut = 11;  ///< samples: the last batch has three

const tests::Workplace kPlace("pipeline_work");

class PipelineProjects : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    kPlace.begin();
    write_data(work() / "mlp_data/train", kSamples, 1);
    write_data(work() / "mlp_data/test", kHeldOut, 2);
    std::mt19937 random(3);
    for (const auto& [split, samples] : {std::pair("train", kSamples), std::pair("test", kHeldOut)}) {
      for (const char* field : {"tokens", "targets"}) {
        std::string bytes;
        for (std::int64_t i = 0; i < samples * kLength; ++i) {
          // Some positions have a label that the loss leaves out.
          const bool ignored = *field == 't' && field[1] == 'a' && i % 7 == 3;
          const std::int64_t token = ignored ? -100 : static_cast<std::int64_t>(random() % kVocabulary);
          bytes.append(reinterpret_cast<const char*>(&token), sizeof token);
        }
        write_npy(work() / "gpt2_data" / split / (std::string(field) + ".npy"), runtime::DType::i64, {samples, kLength},
                  bytes);
      }
      std::string images, labels;
      for (std::int64_t i = 0; i < samples; ++i) {
        labels += static_cast<char>(i % kClasses);
        for (std::int64_t p = 0; p < kPixels * kPixels; ++p)
          images += static_cast<char>(random() % 128 + (p / 48 == i % kClasses ? 100 : 0));
      }
      write_npy(work() / "lenet_data" / split / "images.npy", runtime::DType::u8, {samples, 1, kPixels, kPixels},
                images);
      write_npy(work() / "lenet_data" / split / "labels.npy", runtime::DType::u8, {samples}, labels);
      for (const auto& [field, width] : {std::pair("images", kFeatures), std::pair("targets", std::int64_t{3})}) {
        std::string bytes;
        for (std::int64_t i = 0; i < samples * width; ++i) {
          const float number = static_cast<float>(random() % 2000) / 1000.0f - 1.0f;
          bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
        }
        write_npy(work() / "fit_data" / split / (std::string(field) + ".npy"), runtime::DType::f32, {samples, width},
                  bytes);
      }
    }
    if (launchers().empty()) return;
    const ir::Dim batch("batch", kBatch);
    // A batch norm learns from two samples or more: two of the 46 are the last batch.
    emit<Mlp>("mlp", spec({batch, kFeatures}, "images"), spec({batch}, i64, "labels"));
    emit<Lenet>("lenet", spec({kBatch, 1, kPixels, kPixels}, "images"), spec({kBatch}, i64, "labels"));
    emit<TrainGpt2>("gpt2", spec({batch, kLength}, i64, "tokens"), spec({batch, kLength}, i64, "targets"));
    emit<Fit>("fit", spec({kBatch, kFeatures}, "images"), spec({kBatch, 3}, "targets"));
    for (const Launcher& l : launchers()) build("mlp", l);
    for (const char* other : {"lenet", "gpt2", "fit"}) build(other, launchers().front());
  }
  void SetUp() override {
    if (launchers().empty()) GTEST_SKIP() << "no MPI is installed (scripts/packages.txt)";
  }

  template <class Graph, class... Inputs>
  static void emit(const std::string& name, Inputs... inputs) {
    manual_seed(3);
    Graph graph;
    if (name != "lenet") graph.enable_data_parallel();
    graph.compile(inputs...);
    codegen::emit(graph, work() / name, {.name = tests::kProgram, .format = false});
  }
  static void build(const std::string& project, const Launcher& l) { kPlace.build(project, l); }
  static fs::path work() { return kPlace.folder(); }
  static std::string path(const std::string& out) { return kPlace.path(out); }
  static std::string program(const std::string& project, const Launcher& l) { return kPlace.program(project, l); }
  static std::vector<std::string> options(const std::string& project, const std::string& out,
                                          std::vector<std::string> more) {
    std::vector<std::string> all = {
        "--data", path(project + "_data"), "--out", out.empty() ? out : path(out), "--seed", "5", "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  /// As so many ranks; 0: without a launcher.
  static ProcessResult run(const std::string& project, const Launcher& l, int ranks,
                           const std::vector<std::string>& with) {
    if (ranks > 0) return tests::run_ranks(l, ranks, program(project, l), with, work());
    std::vector<std::string> command = {program(project, l)};
    command.insert(command.end(), with.begin(), with.end());
    return codegen::run_process(command, {.directory = work().string(), .seconds = 120});
  }
  static void expect_same(const std::string& a, const std::string& b) { kPlace.expect_same(a, b); }
  /// The lines of a log without times and paths.
  static std::string said(const std::string& log) {
    std::istringstream lines(read_file(path(log)));
    std::string text;
    for (std::string line; std::getline(lines, line);) {
      nlohmann::json j = nlohmann::json::parse(line);
      j.erase("seconds");
      j.erase("path");
      text += j.dump() + "\n";
    }
    return text;
  }
  /// The norms of the gradients that the steps of a log have.
  static std::vector<double> norms_in(const std::string& log) {
    std::istringstream lines(read_file(path(log)));
    std::vector<double> norms;
    for (std::string line; std::getline(lines, line);)
      if (const nlohmann::json j = nlohmann::json::parse(line); j.at("event") == "step")
        norms.push_back(j.at("gradient_norm").get<double>());
    return norms;
  }
};

TEST_F(PipelineProjects, HaveAFileForEachStage) {
  const std::string first = read_file(work() / "gpt2/stage_0.cpp"), last = read_file(work() / "gpt2/stage_1.cpp"),
                    model = read_file(work() / "gpt2/model.cpp"), stages = read_file(work() / "gpt2/stages.h");
  for (const char* part :
       {"forward_stage_0", "backward_stage_0", "norms_stage_0", "update_stage_0", "evaluate_stage_0"}) {
    EXPECT_NE(first.find(part), std::string::npos) << part;
    EXPECT_EQ(last.find(part), std::string::npos) << part;
    EXPECT_NE(model.find(std::string("  ") + part + "();"), std::string::npos) << part;
  }
  EXPECT_NE(first.find("param.transformer_h_0_attn_c_attn_weight"), std::string::npos);
  EXPECT_EQ(first.find("param.transformer_h_1_attn_c_attn_weight"), std::string::npos);
  EXPECT_NE(last.find("param.transformer_h_1_attn_c_attn_weight"), std::string::npos);
  EXPECT_NE(stages.find("GRAVEN_STAGES(\"model.transformer.wte.weight\", learned, 0, 1)"), std::string::npos);
  EXPECT_NE(stages.find("GRAVEN_STAGES(\"model.transformer.wte.weight-momentum\", learned, 0)"), std::string::npos);
  EXPECT_NE(stages.find("GRAVEN_CROSSING(0, 1, forward, buf."), std::string::npos);
  EXPECT_NE(stages.find("GRAVEN_EVALUATION_CROSSING(0, 1, buf."), std::string::npos);
  EXPECT_FALSE(fs::exists(work() / "gpt2/stage_2.cpp"));
}

TEST_F(PipelineProjects, SelfTestsPass) {
  for (const Project& p : kProjects) {
    const ProcessResult r = codegen::run_process({path(p.name) + "/build-" + launchers().front().name + "/selftest"},
                                                 {.directory = path(p.name), .seconds = 120});
    EXPECT_EQ(r.exit_status, 0) << p.name << "\n" << r.output;
  }
}

TEST_F(PipelineProjects, StagesComputeWhatOneProcessDoes) {
  for (const Project& p : kProjects)
    for (const std::string parts : {"1", "2", "5"})
      for (const Launcher& l : launchers()) {
        if (!fs::exists(program(p.name, l))) continue;
        const std::string one = std::string(p.name) + "_one_" + parts, several = p.name + l.name + parts;
        if (!fs::exists(path(one))) {
          const ProcessResult r = run(
              p.name, l, 0,
              options(p.name, one, {"--epochs", "3", "--accumulation-steps", parts, "--log", path(one + ".jsonl")}));
          ASSERT_EQ(r.exit_status, 0) << r.output;
        }
        const ProcessResult r =
            run(p.name, l, p.stages,
                options(p.name, several,
                        {"--epochs", "3", "--accumulation-steps", parts, "--log", path(several + ".jsonl")}));
        ASSERT_EQ(r.exit_status, 0) << r.output;
        EXPECT_NE(r.output.find(", " + std::to_string(p.stages) + " stages"), std::string::npos) << r.output;
        const std::size_t line = r.output.find("epoch 1/3");
        EXPECT_NE(line, std::string::npos) << r.output;
        EXPECT_EQ(r.output.find("epoch 1/3", line + 1), std::string::npos) << "more than one rank prints\n" << r.output;
        expect_same(one, several);
        EXPECT_EQ(said(one + ".jsonl"), said(several + ".jsonl")) << several;
        EXPECT_NE(said(one + ".jsonl").find("\"event\":\"step\""), std::string::npos);
        EXPECT_NE(said(one + ".jsonl").find("\"test_loss\":"), std::string::npos);
        const std::vector<double> norms = norms_in(several + ".jsonl");
        EXPECT_FALSE(norms.empty());
        for (const double norm : norms) EXPECT_GT(norm, 0);
      }
}

TEST_F(PipelineProjects, GoOnBitForBitInAnyNumberOfProcesses) {
  for (const Launcher& l : launchers()) {
    const auto trained = [&](int ranks, const std::string& out, const std::vector<std::string>& more) {
      const ProcessResult r = run("mlp", l, ranks, options("mlp", out, more));
      EXPECT_EQ(r.exit_status, 0) << r.output;
    };
    const std::string straight = l.name + "_straight", mixed = l.name + "_mixed";
    trained(3, straight, {"--epochs", "3"});
    trained(3, mixed, {"--epochs", "3", "--steps", "3"});
    trained(1, mixed, {"--epochs", "3", "--steps", "6", "--resume"});
    trained(0, mixed, {"--epochs", "3", "--steps", "7", "--resume"});
    trained(3, mixed, {"--epochs", "3", "--resume"});
    expect_same(straight, mixed);
  }
}

TEST_F(PipelineProjects, MistakesEndAll) {
  for (const Launcher& l : launchers()) {
    const struct {
      int ranks;
      std::vector<std::string> options;
      const char* said;
    } cases[] = {
        {2, options("mlp", "", {}),
         "ranks: expected a multiple of 3 ranks, one for each stage of the pipeline, or 1, which runs all, found 2"},
        {4, options("mlp", "", {}), "or 1, which runs all, found 4"},
        {3, options("mlp", "", {"--epochs", "x"}), "error: rank 0: --epochs: expected a whole number"},
        {3, {"--data", "nowhere", "--out", ""}, "error: rank 0: nowhere: cannot open"},
        {3, {"--profile"}, "error: rank 0: --profile: expected one process, which runs all stages of the pipeline"},
    };
    for (const auto& c : cases) {
      const ProcessResult r = run("mlp", l, c.ranks, c.options);
      EXPECT_NE(r.exit_status, 0) << c.said;
      EXPECT_NE(r.output.find(c.said), std::string::npos) << c.said << "\n" << r.output;
    }
  }
}

TEST_F(PipelineProjects, OfOneReplicaTakeAsManyRanksAsStages) {
  const ProcessResult r = run("lenet", launchers().front(), 4, options("lenet", "", {}));
  EXPECT_NE(r.exit_status, 0);
  EXPECT_NE(r.output.find("ranks: expected 2 ranks, one for each stage of the pipeline, or 1, which runs all, found 4"),
            std::string::npos)
      << r.output;
}

TEST_F(PipelineProjects, ReplicasComputeWhatOneProcessDoesWithAsManyParts) {
  struct Replicas {
    const char* project;
    int ranks;
  };
  for (const Replicas& replicas : {Replicas{"mlp", 6}, Replicas{"gpt2", 4}}) {
    const std::string project = replicas.project;
    const int ranks = replicas.ranks;
    const Launcher l = launchers().front();
    const std::string one = project + "_alone", several = project + "_replicas", cut = project + "_replicas_cut";
    const auto trained = [&](int n, const std::string& out, const std::vector<std::string>& more) {
      const ProcessResult r = run(project, l, n, options(project, out, more));
      EXPECT_EQ(r.exit_status, 0) << r.output;
    };
    trained(0, one, {"--epochs", "2", "--accumulation-steps", "4", "--log", path(one + ".jsonl")});
    trained(ranks, several, {"--epochs", "2", "--accumulation-steps", "2", "--log", path(several + ".jsonl")});
    const std::vector<double> expected = norms_in(one + ".jsonl"), found = norms_in(several + ".jsonl");
    ASSERT_TRUE(!expected.empty() && found.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4 * expected[i]);
    trained(ranks, cut, {"--epochs", "2", "--accumulation-steps", "2", "--steps", "2"});
    trained(ranks, cut, {"--epochs", "2", "--resume"});
    expect_same(several, cut);
    const auto of_one = nn::load(path(one) + "/latest/weights.safetensors"),
               of_several = nn::load(path(several) + "/latest/weights.safetensors");
    ASSERT_EQ(of_one.size(), of_several.size());
    for (std::size_t v = 0; v < of_one.size(); ++v) {
      const auto& [name, expected] = of_one[v];
      // Running statistics are those of the first replica's batches.
      if (name.find("running") != std::string::npos || name.find("tracked") != std::string::npos) continue;
      EXPECT_TRUE(allclose(of_several[v].second, expected, 1e-4, 1e-5)) << project << ": " << name;
    }
  }
}

TEST_F(PipelineProjects, ReplicasEvaluateAsOneProcessDoes) {
  // With a rate of 0 all have the same weights; the held-out set has three batches, of which the last one is cut.
  for (const std::string project : {"gpt2", "fit"}) {
    const Launcher l = launchers().front();
    for (const auto& [ranks, parts] : {std::pair(0, "2"), std::pair(2, "2"), std::pair(4, "1")}) {
      const std::string out = project + "_evaluates_" + std::to_string(ranks);
      const ProcessResult r =
          run(project, l, ranks,
              options(project, out,
                      {"--epochs", "1", "--lr", "0", "--accumulation-steps", parts, "--log", path(out + ".jsonl")}));
      ASSERT_EQ(r.exit_status, 0) << r.output;
    }
    const auto evaluated = [&](int ranks) {
      const std::string log = said(project + "_evaluates_" + std::to_string(ranks) + ".jsonl");
      const std::size_t at = log.find("\"test_loss\":");
      EXPECT_NE(at, std::string::npos) << log;
      return log.substr(log.rfind('{', at), log.find('}', at) - log.rfind('{', at));
    };
    const auto of = [](const std::string& line, const std::string& key) {
      const std::size_t at = line.find(key);
      return at == std::string::npos ? "" : line.substr(at, line.find(',', at) - at);
    };
    for (const int ranks : {2, 4})
      for (const char* key : {"\"test_loss\":", "\"accuracy\":"})
        EXPECT_EQ(of(evaluated(0), key), of(evaluated(ranks), key)) << project << ", " << ranks << " ranks";
  }
}

TEST_F(PipelineProjects, OneThatDiesOrHangsEndsTheOthers) {
  for (const Launcher& l : launchers()) {
    for (const std::string signal : {"KILL", "STOP"}) {
      const std::string out = l.name + signal;
      const ProcessResult r = tests::signal_one_rank(
          l, 3, program("mlp", l),
          options("mlp", out, {"--epochs", "1000000", "--save-every", "5", "--rank-timeout", "2"}), signal, path(out));
      EXPECT_FALSE(r.timed_out) << r.output;
      EXPECT_EQ(r.output.find("status 0"), std::string::npos) << r.output;
      if (signal == "STOP") {
        EXPECT_NE(r.output.find("ranks: expected an answer of the other ranks within 2 s (--rank-timeout), found none"),
                  std::string::npos)
            << r.output;
      }
      const ProcessResult again = run("mlp", l, 3, options("mlp", out, {"--epochs", "1", "--resume"}));
      EXPECT_EQ(again.exit_status, 0) << again.output;
      EXPECT_NE(again.output.find("resumed from " + path(out)), std::string::npos) << again.output;
    }
  }
}

}  // namespace
}  // namespace graven
