// Recurrent layers in graphs: one operator a direction whatever the length, which may be a symbol, as the batch may be;
// eager mode's numbers.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include <graven/graven.h>

#include "ir/graph.h"
#include "tests/frontend/error_text.h"

namespace graven {
namespace {

struct Mixed : nn::Module<Mixed> {
  nn::RNN rnn = child("rnn", nn::RNN(4, 3, {.bidirectional = true, .nonlinearity = "relu"}));
  nn::LSTM lstm = child("lstm", nn::LSTM(4, 5, {.num_layers = 2, .bidirectional = true}));
  nn::LSTM projected = child("projected", nn::LSTM(4, 6, {.bias = false, .proj_size = 2}));
  nn::GRU gru = child("gru", nn::GRU(4, 17, {.num_layers = 2, .dropout = 0.5}));

  Tensor forward(Tensor x, Tensor h0) {
    const auto [a, h_of_rnn] = rnn(x);
    const auto [b, state] = lstm(x);
    const auto [c, state_of_projected] = projected(x);
    const auto [d, h_of_gru] = gru(x, h0);
    // The projected one is read by its last states alone, the last state of the GRU's first layer by nothing.
    return mean(a * a) + mean(b) + mean(h_of_rnn) + mean(state.first * state.second) + mean(state_of_projected.first) +
           mean(state_of_projected.second) + mean(d * d) + mean(h_of_gru.select(0, 1));
  }
};

struct Train : nn::Graph<Train> {
  Mixed model = child("model", Mixed());
  optim::SGD optimizer{model.parameters(), {.lr = 0.5}};
  Train() {
    model.gru.eval();  // dropout draws other numbers in a graph
    add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor h0) {
    Tensor loss = model(x, h0);
    loss.backward();
    return loss;
  }
};

/// Trains in a graph of these inputs and eagerly, on sequences of these lengths and batches.
void expect_same_training(const Spec& x, const Spec& h0, const std::vector<std::pair<int, int>>& sizes) {
  manual_seed(5);
  Train graph;
  manual_seed(5);
  Mixed eager;
  eager.gru.eval();
  optim::SGD optimizer(eager.parameters(), {.lr = 0.5});
  graph.compile(x, h0);
  for (const auto& [length, batch] : sizes) {
    SCOPED_TRACE("length " + std::to_string(length) + ", batch " + std::to_string(batch));
    const Tensor sequence = randn({length, batch, 4}), state = randn({2, batch, 17});
    optimizer.zero_grad();
    Tensor loss = eager(sequence, state);
    loss.backward();
    optimizer.step();
    EXPECT_NEAR(graph(sequence, state).item<double>(), loss.item<double>(), 1e-5);
  }
  const auto of_graph = graph.model.named_parameters(), of_eager = eager.named_parameters();
  ASSERT_EQ(of_graph.size(), of_eager.size());
  for (std::size_t i = 0; i < of_graph.size(); ++i)
    EXPECT_TRUE(allclose(of_graph[i].second, of_eager[i].second, 1e-5, 1e-5)) << of_graph[i].first;
}

TEST(RecurrentGraph, TrainsOnSequencesOfAnyLength) {
  expect_same_training(spec({Dim("length", 7), 3, 4}), spec({2, 3, 17}), {{7, 3}, {1, 3}, {4, 3}});
}
TEST(RecurrentGraph, TrainsOnAnyNumberOfSequences) {
  const Dim batch("batch", 20);
  expect_same_training(spec({5, batch, 4}), spec({2, batch, 17}), {{5, 20}, {5, 1}, {5, 6}});
}

TEST(RecurrentGraph, HasAsManyNodesWhateverTheLength) {
  const auto nodes = [](std::int64_t length) {
    Train graph;
    return graph.trace(spec({length, 2, 4}), spec({2, 2, 17})).nodes.size();
  };
  EXPECT_EQ(nodes(1), nodes(300));
}

TEST(RecurrentGraph, RunsSequencesOfAnyLengthAndAnyNumberOfThem) {
  struct Infer : nn::Graph<Infer> {
    nn::LSTM lstm = child("lstm", nn::LSTM(4, 5, {.num_layers = 2}));
    Tensor build(Tensor x) { return lstm(x).first; }
  } graph;
  graph.compile(spec({Dim("length", 7), Dim("batch", 20), 4}));
  for (const auto& [length, batch] : {std::pair<std::int64_t, std::int64_t>{7, 20}, {1, 1}, {3, 20}, {7, 2}}) {
    const Tensor x = randn({length, batch, 4});
    const Tensor found = graph(x), expected = graph.lstm(x).first.detach();
    ASSERT_EQ(found.describe(), expected.describe());
    EXPECT_TRUE(allclose(found, expected, 1e-5, 1e-6));
  }
}

}  // namespace
}  // namespace graven
