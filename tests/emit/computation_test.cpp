#include "codegen/emit/computation.h"

#include <gtest/gtest.h>

#include <string>

#include "ir/diagnostic.h"
#include "ir/text.h"

namespace graven::codegen {
namespace {

const std::string kTrace = R"(graph Train (trace, training)
input x f32[4,3]
parameter net.weight f32[2,3]
parameter net.bias f32[2]
constant scale f32[2] = [1, 2]
forward
  first f32[4,2] = linear(x, net.weight, net.bias) @ net network.cpp:1
  h f32[4,2] = leaky_relu(first; negative_slope=0.125) @ net network.cpp:2
  g f32[4,2] = mul(h, scale) @ net network.cpp:3
  loss f32[] = sum(g) @ net network.cpp:4
output loss
loss loss
optimizer sgd
  group dampening=0, lr=0.1, maximize=0, momentum=0.5, nesterov=0, weight_decay=0 (net.weight, net.bias)
)";

std::string digest(std::string text, const std::string& from = {}, const std::string& to = {}) {
  for (std::size_t at = 0; !from.empty() && (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return computation_digest(ir::from_text(text, "train.graph"));
}

TEST(Computation, IsTheSameHoweverAStepIsArranged) {
  const std::string own = digest(kTrace);
  EXPECT_EQ(own.size(), kComputationDigits);
  const struct {
    const char *what, *from, *to;
  } same[] = {
      {"the class's name", "graph Train ", "graph TrainAgain "},
      {"lines and files", "network.cpp:", "another.cpp:1"},
      {"names of results", "first", "hidden"},
      {"ranks", "input x", "config zero_stage = {\"integer\": 2}\ninput x"},
      {"layouts", "input x", "config layout_of.net.weight = {\"text\": \"split(0)\"}\ninput x"},
      {"stages", "input x", "config stage_of.net = {\"integer\": 0}\ninput x"},
      {"memory", "input x", "config memory_budget = {\"integer\": 4096}\ninput x"},
      {"threads", "input x", "config emit.threads = {\"integer\": 2}\ninput x"},
      {"a default that is spelled out", "sum(g)", "sum(g; keepdim=false)"},
  };
  for (const auto& c : same) EXPECT_EQ(digest(kTrace, c.from, c.to), own) << c.what;
}

TEST(Computation, ChangesWithWhatAStepComputes) {
  const std::string own = digest(kTrace);
  const struct {
    const char *what, *from, *to;
  } others[] = {
      {"an operator", "sum(g)", "mean(g)"},
      {"an attribute", "0.125", "0.25"},
      {"an input", "linear(x, net.weight, net.bias)", "linear(x, net.weight)"},
      {"another value", "sum(g)", "sum(h)"},
      {"a size", "[4,", "[5,"},
      {"a parameter's name", "net.", "model."},
      {"a frozen parameter", "net.bias f32[2]\n", "net.bias f32[2] frozen\n"},
      {"a constant", "[1, 2]", "[1, 3]"},
      {"an option", "momentum=0.5", "momentum=0.25"},
      {"the group's parameters", "(net.weight, net.bias)\n", "(net.weight)\n"},
      {"what is done to the gradient", "optimizer", "clip norm limit=1, norm_type=2 (net.weight)\noptimizer"},
      {"mixed precision", "input x", "config amp = {\"dtype\": \"bf16\"}\ninput x"},
  };
  for (const auto& c : others) EXPECT_NE(digest(kTrace, c.from, c.to), own) << c.what;
}

TEST(Computation, OfATraceIsItsOwnAndOfAnotherGraphADigest) {
  ir::Graph graph = ir::from_text(kTrace, "train.graph");
  const std::string key(kComputation), own = computation_digest(graph);
  graph.config[key] = std::string("0123456789abcdef");
  keep_computation(graph);
  EXPECT_EQ(graph.text(key), own) << "a trace says what it computes";
  graph.stage = "lower";
  graph.config[key] = std::string("0123456789abcdef");
  keep_computation(graph);
  EXPECT_EQ(graph.text(key), "0123456789abcdef") << "what its trace was";
  for (const char* text : {"", "0123456789abcde", "0123456789abcdeg", "0123456789ABCDEF", "x; int main"}) {
    graph.config[key] = std::string(text);
    EXPECT_THROW(keep_computation(graph), UserError) << text;
  }
}

}  // namespace
}  // namespace graven::codegen
