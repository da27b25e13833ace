// print(graph) and debug(): whole texts, stored under tests/print/texts. `test_print --bless` rewrites them.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "tests/patterns.h"

namespace graven::test {
namespace {

bool bless = false;

const std::string kTexts = GRAVEN_SOURCE_DIR "/tests/print/texts/";

/// Times depend on the machine, and whether a program was compiled on what ran before; lines of this file change with
/// it.
std::string masked(std::string text) {
  text = tests::replaced(text, "[0-9]+\\.[0-9]+ ms", "<time> ms");
  text = tests::replaced(text, "take from the cache:|compile:", "<compile or take from the cache>:");
  return tests::replaced(text, "print_test\\.cpp:[0-9]+", "print_test.cpp:<line>");
}

void expect_text(const std::string& name, const std::string& found) {
  const std::string path = kTexts + name + ".txt";
  if (bless) {
    std::ofstream(path) << found;
    return;
  }
  std::ifstream file(path);
  std::stringstream stored;
  stored << file.rdbuf();
  EXPECT_EQ(found, stored.str())
      << path << " says otherwise. If the change is meant, run: test_print --bless, and read the difference";
}

std::string first_lines(const std::string& text, int count) {
  std::istringstream in(text);
  std::string out, line;
  for (int i = 0; i < count && std::getline(in, line); ++i) out += line + "\n";
  return out;
}

/// A convolution with its norm, a frozen layer, and parameters of the module's own.
struct Small : nn::Module<Small> {
  nn::Sequential features = child(
      "features",
      nn::Sequential(nn::Conv2d(1, 4, 3, {.stride = 2, .padding = 1, .bias = false}), nn::BatchNorm2d(4), nn::ReLU()));
  nn::Linear classifier = child("classifier", nn::Linear(64, 3));
  Tensor scale = parameter("scale", ones({3}));
  Small() { features.requires_grad_(false); }
  Tensor forward(Tensor x) { return classifier(flatten(features(x), 1)) * scale; }
};
struct TrainSmall : nn::Graph<TrainSmall> {
  Small model = child("model", Small());
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{model.parameters(), {.lr = 0.1, .momentum = 0.9}};
  TrainSmall() { add_optimizer(optimizer); }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};

struct TrainMobileNet : nn::Graph<TrainMobileNet> {
  models::MobileNetV2 model = child("model", models::MobileNetV2({.num_classes = 10}));
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{model.parameters(), {.lr = 1e-3}};
  TrainMobileNet() { add_optimizer(optimizer); }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};

/// The number of a graph counts its class, whatever test ran before.
std::string numbered(std::string text, const nn::GraphBase& graph) {
  const std::string zero = graph.class_name() + "_0";
  for (std::size_t at = 0; (at = text.find(graph.name(), at)) != std::string::npos; at += zero.size())
    text.replace(at, graph.name().size(), zero);
  return text;
}

TEST(Print, OfASmallGraphBeforeAndAfterTheFirstCall) {
  TrainSmall graph;
  expect_text("small_before", numbered(graph.repr(), graph) + "\n");
  graph.compile(spec({2, 1, 8, 8}, "images"), spec({2}, i64, "labels"));
  expect_text("small_after", numbered(graph.repr(), graph) + "\n");
}

TEST(Print, OfMobileNetV2BeginsAsItsDocumentationShows) {
  TrainMobileNet graph;
  expect_text("mobilenet_v2_before", first_lines(numbered(graph.repr(), graph), 40));
  graph.compile(spec({64, 3, 32, 32}), spec({64}, i64));
  const std::string after = numbered(graph.repr(), graph);
  expect_text("mobilenet_v2_after", first_lines(after, 60));
  EXPECT_EQ(after.substr(after.rfind('\n') + 1), ")");
}

TEST(Debug, PrintsWhatItsLevelSays) {
  for (int level = -1; level <= 3; ++level) {
    TrainSmall graph;
    if (level >= 0) graph.debug(level);
    testing::internal::CaptureStderr();
    graph(zeros({2, 1, 8, 8}), zeros({2}, i64));
    graph(zeros({2, 1, 8, 8}), zeros({2}, i64));  // later calls say nothing
    const std::string text = testing::internal::GetCapturedStderr();
    if (level < 0)
      EXPECT_EQ(text, "");
    else
      expect_text("debug_" + std::to_string(level), numbered(masked(text), graph));
  }
}

TEST(Debug, WarnsOfASecondCompilation) {
  TrainSmall graph;
  graph.compile(spec({2, 1, 8, 8}), spec({2}, i64));
  testing::internal::CaptureStderr();
  graph.compile(spec({2, 1, 8, 8}), spec({2}, i64));
  EXPECT_EQ(numbered(testing::internal::GetCapturedStderr(), graph),
            "warning: TrainSmall_0 is compiled already; compiling it again changes nothing\n");
}

TEST(Debug, RefusesOtherLevels) {
  TrainSmall graph;
  for (int level : {-2, 4}) EXPECT_THROW(graph.debug(level), UserError);
}

}  // namespace
}  // namespace graven::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != "--bless") {
      std::cerr << "unknown argument " << argv[i] << "; --bless rewrites the texts\n";
      return 2;
    }
    graven::test::bless = true;
  }
  return RUN_ALL_TESTS();
}
