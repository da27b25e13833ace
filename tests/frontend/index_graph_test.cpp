// Indices in the data of compiled graphs: out of range they are errors, and nothing else happens.
#include <gtest/gtest.h>

#include <graven/graven.h>

#include "tests/frontend/error_text.h"

namespace graven {
namespace {

struct Classify : nn::Graph<Classify> {
  nn::Embedding words = child("words", nn::Embedding(5, 3, {.padding_idx = 0}));
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss({.label_smoothing = 0.1}));
  optim::SGD optimizer{words.parameters(), {.lr = 0.5}};
  Classify() { add_optimizer(optimizer); }
  Tensor build(Tensor tokens, Tensor labels) {
    Tensor loss = loss_fn(words(tokens), labels);
    loss.backward();
    return loss;
  }
};

TEST(IndexGraph, AnIndexOutOfRangeIsAnErrorAndChangesNothing) {
  Classify graph;
  const Tensor tokens = tensor({1, 4, 0, 1}), labels = tensor({0, 2, 1, 1});
  const Tensor before = graph.words.weight.detach().clone();
  const std::string token = test::error_of([&] { (void)graph(tensor({1, 5, 0, 1}), labels); });
  EXPECT_NE(token.find("words, index_graph_test.cpp:12: index_select: index 5 at position 1 is outside [0, 5)"), std::string::npos) << token;
  const std::string label = test::error_of([&] { (void)graph(tokens, tensor({0, 2, 1, -1})); });
  EXPECT_NE(label.find("loss_fn, index_graph_test.cpp:13: cross_entropy: label -1 at position 3 is outside [0, 3)"), std::string::npos) << label;
  EXPECT_TRUE(equal(graph.words.weight, before));
  EXPECT_EQ(graph.train_step(), 0);

  // The graph goes on, and learns what eager mode learns.
  Tensor weight = before.clone().requires_grad_();
  cross_entropy(embedding(tokens, weight, 0), labels, {.label_smoothing = 0.1}).backward();
  (void)graph(tokens, labels);
  EXPECT_TRUE(allclose(graph.words.weight, before - weight.grad() * 0.5, 1e-5, 1e-6));
  EXPECT_EQ(graph.train_step(), 1);
  EXPECT_TRUE(equal(graph.words.weight[0], before[0])) << "the padding is not trained";
}

}  // namespace
}  // namespace graven
