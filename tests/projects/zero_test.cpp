// Emitted projects whose ranks share states, gradients and parameters (enable_zero): whatever the number of ranks and
// the sizes, what they compute is what one process does, and so is what their checkpoints hold.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "codegen/emit/project.h"
#include "graven/graven.h"
#include "runtime_min/shard.h"
#include "tests/frontend/error_text.h"
#include "tests/projects/data.h"
#include "tests/projects/launchers.h"
#include "tests/projects/networks.h"
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

constexpr std::int64_t kBatch = 4, kSamples = 48, kLeast = 64;

/// The rate of one optimizer follows the held-out loss. Of 3 * 301 and 301 * 53 elements no number of ranks divides
/// them.
struct Classify : tests::AveragedPerceptron<Classify> {
  Classify() : AveragedPerceptron(301, 53) {
    add_optimizer(sgd);
    add_optimizer(adam, lr_scheduler::ReduceLROnPlateau(adam, {.factor = 0.5, .patience = 0, .threshold = 0.5}));
  }
  std::map<std::string, Tensor> build(Tensor images, Tensor labels) {
    const Tensor scores = model(images);
    Tensor loss = cross_entropy(scores, labels), hits = eq(argmax(scores, 1), labels).sum(),
           height = square(scores).mean();
    train_on(loss);
    return {{"loss", loss}, {"hits", hits}, {"height", height}};
  }
};

const tests::Workplace kPlace("zero_work");

class Zero : public testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    kPlace.begin();
    tests::write_data(work() / "data/train", kSamples, 1);
    tests::write_data(work() / "data/test", 11, 2);
  }
  static fs::path work() { return kPlace.folder(); }
  static std::string path(const std::string& out) { return kPlace.path(out); }
  virtual std::string project() const { return "stage_" + std::to_string(GetParam()); }
  void train(const Launcher& l, int ranks, const std::string& out, std::vector<std::string> more) const {
    more.insert(more.begin(), {"--data", path("data")});
    kPlace.train(project(), l, ranks, out, more);
  }
  /// What the log of a run in that folder has: rates are the same, other numbers within the rounding of sums.
  static void expect_near_logs(const std::string& a, const std::string& b) {
    std::ifstream one(path(a) + ".log"), other(path(b) + ".log");
    std::size_t steps = 0, epochs = 0;
    for (std::string x, y; std::getline(one, x) && std::getline(other, y);) {
      const auto expected = nlohmann::json::parse(x), found = nlohmann::json::parse(y);
      ASSERT_EQ(expected.at("event"), found.at("event"));
      if (!expected.contains("results")) continue;
      (expected.at("event") == "step" ? steps : epochs) += 1;
      EXPECT_EQ(expected.at("rates"), found.at("rates"));
      EXPECT_EQ(expected.at("results").at("hits"), found.at("results").at("hits"));
      const auto near = [](const nlohmann::json& u, const nlohmann::json& v, const char* key) {
        EXPECT_NEAR(u.at(key).get<double>(), v.at(key).get<double>(), 1e-4 * u.at(key).get<double>()) << key;
      };
      near(expected.at("results"), found.at("results"), "height");
      near(expected, found, "loss");
      if (expected.at("event") == "step") near(expected, found, "gradient_norm");
      EXPECT_TRUE(epochs < 3 || expected.at("rates").at(1).get<double>() < 0.02) << "reduced, on all ranks";
    }
    EXPECT_GT(steps, epochs);
    EXPECT_EQ(epochs, 3u);
  }
  static void expect_near(const std::string& a, const std::string& b) { kPlace.expect_near(a, b, 2e-5); }
};

TEST_P(Zero, RanksComputeWhatOneProcessDoes) {
  if (launchers().empty()) GTEST_SKIP() << "no MPI is installed (scripts/packages.txt)";
  if (GetParam() < 3 && !tests::all_tests()) GTEST_SKIP() << "a slow one: tests/run.sh --all";
  manual_seed(3);
  Classify graph;
  graph.enable_zero(GetParam(), kLeast);
  EXPECT_NE(graph.repr().find(", zero_stage=" + std::to_string(GetParam()) + ", shard_min_size=64"), std::string::npos);
  graph.compile(spec({kBatch, kFeatures}, "images"), spec({kBatch}, i64, "labels"));
  codegen::emit(graph, work() / project(), {.name = tests::kProgram, .format = false});
  const Launcher of_all = launchers().front();
  for (const Launcher& l : launchers()) kPlace.build(project(), l);
  const std::string prefix = project() + "_";
  for (const int ranks : {2, 3}) {
    const std::string n = std::to_string(ranks), one = prefix + "one_" + n;
    const auto train_logged = [&](const Launcher& l, int processes, const std::string& out, int parts) {
      train(l, processes, out,
            {"--epochs", "3", "--accumulation-steps", std::to_string(parts), "--log", path(out) + ".log"});
    };
    train_logged(of_all, 1, one, 2 * ranks);
    for (const Launcher& l : launchers()) {
      const std::string out = prefix + l.name + n;
      train_logged(l, ranks, out, 2);
      expect_near(one, out);
      expect_near_logs(one, out);
    }
  }
  // No more is sent than has to be. Of a tensor that is shared: its gradient, and the parameter behind the update; of
  // one that is not, a mean. Stage 3: parameters in forward, weights of all but the first layer in backward, and all
  // of them once more for the average that reads them behind the update.
  const double weights = 301 * 6 + 53 * 301 + 3 * 53, shared = weights + 301, other = 53 + 3,
               least = (GetParam() < 3 ? 2 * shared : 3 * shared + weights - 301 * 6) + 2 * other;
  for (const int ranks : {2, 3}) {
    const ProcessResult r =
        kPlace.run(project(), of_all, ranks,
                   {"--bench", "4", "--threads", "1", "--weights", path(project() + "/weights.safetensors")});
    ASSERT_EQ(r.exit_status, 0) << r.output;
    const std::size_t begin = r.output.find("{\"peer\"");
    const auto line = nlohmann::json::parse(r.output.substr(begin, r.output.find('\n', begin) - begin));
    EXPECT_NEAR(line.at("least_sent_bytes").get<double>(), 4 * least * (ranks - 1) / ranks, 1e-6);
    EXPECT_LE(line.at("sent_bytes").get<double>(), 1.02 * line.at("least_sent_bytes").get<double>());
    EXPECT_GE(line.at("sent_bytes").get<double>(), line.at("least_sent_bytes").get<double>());
  }
  // Stopped and gone on with: bit for bit with as many ranks, and by other numbers of them.
  const std::string straight = prefix + "straight", cut = prefix + "cut", mixed = prefix + "mixed";
  train(of_all, 3, straight, {"--epochs", "3", "--accumulation-steps", "2"});
  train(of_all, 3, cut, {"--epochs", "3", "--accumulation-steps", "2", "--steps", "3"});
  train(of_all, 3, cut, {"--epochs", "3", "--resume"});
  kPlace.expect_same(straight, cut);
  train(of_all, 2, mixed, {"--epochs", "3", "--accumulation-steps", "3", "--steps", "2"});
  train(of_all, 1, mixed, {"--epochs", "3", "--steps", "4", "--resume"});
  train(launchers().back(), 6, mixed, {"--epochs", "3", "--resume"});
  expect_near(straight, mixed);
}

INSTANTIATE_TEST_SUITE_P(Stage, Zero, testing::Values(1, 2, 3),
                         [](const auto& info) { return std::to_string(info.param); });

/// Optimizers by norms of whole tensors, of which some are shared and some are not, behind both ways to clip.
struct ByNorms : nn::Graph<ByNorms> {
  tests::Perceptron model = child("model", tests::Perceptron(301, 53));
  optim::LAMB lamb{{model.first.weight, model.first.bias, model.second.weight, model.second.bias},
                   {.lr = 0.02, .eps = 0.05, .weight_decay = 0.01, .clip_grad_max_norm = 0.05}};
  optim::LARS lars{model.third.parameters(), {.lr = 0.5, .momentum = 0.9, .trust_coefficient = 0.1}};
  ByNorms() {
    add_optimizer(lamb);
    add_optimizer(lars);
  }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = cross_entropy(model(images), labels);
    loss.backward();
    nn::utils::clip_grad_value_(model.second.parameters(), 0.002);
    nn::utils::clip_grad_value_(model.third.parameters(), 0.01);
    return loss;
  }
};

class ZeroByNorms : public Zero {
 protected:
  std::string project() const override { return "norms_" + std::to_string(GetParam()); }
};

TEST_P(ZeroByNorms, RanksComputeWhatOneProcessDoes) {
  if (launchers().empty()) GTEST_SKIP() << "no MPI is installed (scripts/packages.txt)";
  if (GetParam() != 2 && !tests::all_tests()) GTEST_SKIP() << "a slow one: tests/run.sh --all";
  manual_seed(3);
  ByNorms graph;
  graph.enable_zero(GetParam(), kLeast);
  graph.compile(spec({kBatch, kFeatures}, "images"), spec({kBatch}, i64, "labels"));
  codegen::emit(graph, work() / project(), {.name = tests::kProgram, .format = false});
  const std::string text = read_file(work() / project() / "model.cpp");
  for (const char* call :
       {"update_parameters_with_norms<over_ranks<lamb_weight_decay>>(",
        "update_parameters_with_norms<lamb_weight_decay>(", "update_parameters_with_norms<over_ranks<lars_momentum>>(",
        "update_parameters_with_norms<lars_momentum>("})
    EXPECT_NE(text.find(call), std::string::npos) << call;
  // Another engine in each stage.
  const Launcher l = launchers()[static_cast<std::size_t>(GetParam()) % launchers().size()];
  kPlace.build(project(), l);
  const std::string prefix = project() + "_";
  for (const int ranks : {2, 3}) {
    const std::string n = std::to_string(ranks), one = prefix + "one_" + n, out = prefix + n;
    train(l, 1, one, {"--epochs", "2", "--accumulation-steps", std::to_string(2 * ranks)});
    train(l, ranks, out, {"--epochs", "2", "--accumulation-steps", "2"});
    expect_near(one, out);
  }
  const std::string cut = prefix + "cut";
  train(l, 3, cut, {"--epochs", "2", "--accumulation-steps", "2", "--steps", "3"});
  train(l, 3, cut, {"--epochs", "2", "--resume"});
  kPlace.expect_same(prefix + "3", cut);
}

INSTANTIATE_TEST_SUITE_P(Stage, ZeroByNorms, testing::Values(1, 2, 3),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(Shards, CoverEachElementOnce) {
  for (const std::int64_t ranks : {1, 2, 3, 7, 64})
    for (const std::int64_t n : {0, 1, 2, 9, 10, 63, 64, 65, 1000}) {
      std::int64_t next = 0, counted = 0;
      for (std::int64_t r = 0; r < ranks; ++r) {
        const runtime::Shard s{r, ranks, 10};
        counted += s.counted(n);
        if (n < 10 || ranks == 1) {
          EXPECT_EQ(s.first(n), 0);
          EXPECT_EQ(s.count(n), n);
          next = n;
          continue;
        }
        EXPECT_EQ(s.first(n), next) << n << " of " << ranks;
        EXPECT_LE(s.count(n), (n + ranks - 1) / ranks);
        next += s.count(n);
      }
      EXPECT_EQ(next, n) << ranks;
      EXPECT_EQ(counted, n) << ranks;
    }
}

TEST(ZeroOfGraphs, WhatDoesNotGoTogether) {
  struct Small : nn::Graph<Small> {
    nn::Linear model = child("model", nn::Linear(kFeatures, 40));
    using GraphBase::add_optimizer;
    bool clips_twice = false;
    Tensor build(Tensor x) {
      Tensor loss = model(x).square().mean();
      loss.backward();
      nn::utils::clip_grad_value_(model.parameters(), 0.1);
      for (int i = 0; clips_twice && i < 2; ++i) nn::utils::clip_grad_norm_(model.parameters(), 1);
      return loss;
    }
  };
  const auto said = [](auto change) {
    Small graph;
    return test::error_of([&] {
      change(graph);
      if (!graph.training()) {
        optim::SGD sgd(graph.model.parameters(), {.lr = 0.1});
        graph.add_optimizer(sgd);
      }
      graph.enable_zero(2, 64);
      graph(zeros({4, kFeatures}));
    });
  };
  const struct {
    std::string text, expected;
  } cases[] = {
      {said([](Small&) {}), "no error"},
      {said([](Small& g) { g.enable_zero(4); }), "enable_zero: expected stage 1"},
      {said([](Small& g) { g.enable_zero(0); }), "enable_zero: expected stage 1"},
      {said([](Small& g) { g.enable_zero(1, 1); }), "enable_zero: expected a shard_min_size of at least 2, got 1"},
      {said([](Small& g) {
         optim::Adafactor adafactor(g.model.parameters(), {.lr = 0.1});
         g.add_optimizer(adafactor);
       }),
       "enable_zero: the optimizer adafactor of the graph Small looks at rows and columns of whole parameters"},
      {said([](Small& g) { g.clips_twice = true; }), "enable_zero: mul"},
      {said([](Small& g) { g.model.set_stage(0); }), "asks for stages of a pipeline (set_stage), and for ranks"},
      {said([](Small& g) { g.update_in_backward(); }), "asks for update_in_backward, and to be data parallel"},
  };
  for (const auto& c : cases) {
    EXPECT_NE(c.text.find(c.expected), std::string::npos) << c.expected << "\n" << c.text;
  }
}

}  // namespace
}  // namespace graven
