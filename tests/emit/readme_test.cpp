// The README's first screen: its program is this file's, and what stands beside it is what that program is emitted as.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "codegen/emit/project.h"

namespace graven::codegen {
namespace readme {

// What follows is the README's text.
// clang-format off: as the README breaks its lines
struct Mlp : nn::Module<Mlp> {
  nn::Linear hidden = child("hidden", nn::Linear(784, 256));
  nn::Linear logits = child("logits", nn::Linear(256, 10));

  Tensor forward(Tensor images) {
    return logits(relu(hidden(flatten(images, 1))));
  }
};

struct TrainMlp : nn::Graph<TrainMlp> {
  Mlp model = child("model", Mlp());
  nn::CrossEntropyLoss loss_fn =
      child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{model.parameters(),
                       {.lr = 0.1, .momentum = 0.9}};

  TrainMlp() { add_optimizer(optimizer); }

  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};
// clang-format on

std::string text_of(const std::string& path) {
  std::ifstream in(std::string(GRAVEN_SOURCE_DIR) + "/" + path, std::ios::binary);
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

/// The lines of the README's nth block of C++.
std::vector<std::string> block(int n) {
  std::istringstream in(text_of("README.md"));
  std::vector<std::string> lines;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line == "```cpp") {
      inside = n-- == 0;
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      lines.push_back(line);
    }
  }
  return lines;
}

std::string without_spaces(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' && c != '\n') out += c;
  return out;
}

/// Comments as in columns: one space between words, rules cut to their titles.
std::string words(const std::string& comment) {
  std::istringstream in(comment);
  std::string out;
  for (std::string word; in >> word;)
    if (word.find_first_not_of("=-") != std::string::npos) out += (out.empty() ? "" : " ") + word;
  return out;
}

TEST(Readme, TheProgramIsTested) {
  const std::string source = text_of("tests/emit/readme_test.cpp");
  const std::vector<std::string> program = block(0);
  ASSERT_GT(program.size(), 25u);
  for (const std::string& line : program) {
    if (line.find("int main") == 0) break;  // what follows is in the next test
    if (line.find("#include") == 0 || line.find("using namespace") == 0) continue;
    EXPECT_NE(source.find("\n" + line + "\n"), std::string::npos) << line;
  }
}

TEST(Readme, WhatItBecomesIsWhatIsEmitted) {
  TrainMlp graph;
  graph.compile(spec({64, 1, 28, 28}, "images"), spec({64}, i64, "labels"));
  std::string code;
  std::vector<std::string> comments;
  const auto project = render_project(graph.graph());
  for (const char* file : {"model.cpp", "configs.h", "memory_plan.h"}) {
    std::istringstream in(project.at(file));
    for (std::string line; std::getline(in, line);) {
      const std::size_t comment = line.find("//");
      if (comment != std::string::npos) comments.push_back(words(line.substr(comment)));
      code += without_spaces(line.substr(0, comment));
    }
  }
  int compared = 0;
  for (const int n : {1, 2}) {
    std::string fragment;
    auto finish = [&] {
      if (fragment.empty()) return;
      EXPECT_NE(code.find(fragment), std::string::npos) << fragment;
      ++compared;
      fragment.clear();
    };
    for (const std::string& line : block(n)) {
      const std::size_t comment = line.find("//");
      if (comment != std::string::npos && line.find(".h: ") == std::string::npos) {
        finish();
        const std::string text = words(line.substr(comment));
        EXPECT_TRUE(std::any_of(comments.begin(), comments.end(), [&](const std::string& c) {
          return c.compare(0, text.size(), text) == 0;
        })) << line;
      }
      std::string rest = without_spaces(line.substr(0, comment));
      for (std::size_t dots; (dots = rest.find("...")) != std::string::npos; rest = rest.substr(dots + 3)) {
        fragment += rest.substr(0, dots);
        finish();
      }
      fragment += rest;
      if (!fragment.empty() && (fragment.back() == ';' || fragment.back() == '{')) finish();
    }
    finish();
  }
  EXPECT_GT(compared, 6);
}

}  // namespace readme
}  // namespace graven::codegen
