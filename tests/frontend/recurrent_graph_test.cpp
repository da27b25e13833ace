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

TEST(RecurrentGraph, TrainsOnAnyNumberOfSequencesOfAnyLength) {
  const Dim batch("batch", 20);
  expect_same_training(spec({Dim("length", 7), batch, 4}), spec({2, batch, 17}), {{7, 20}, {1, 1}, {4, 6}, {7, 2}});
}

/// Packed sequences, whose lengths are an input.
struct Packed : nn::Module<Packed> {
  nn::RNN rnn = child("rnn", nn::RNN(4, 3, {.nonlinearity = "relu"}));
  nn::LSTM lstm = child("lstm", nn::LSTM(3, 6, {.num_layers = 2, .bidirectional = true, .proj_size = 2}));
  nn::GRU gru = child("gru", nn::GRU(4, 17, {.bidirectional = true}));

  Tensor forward(Tensor x, Tensor lengths, Tensor h0) {
    using namespace nn::utils::rnn;
    const auto [a, h_of_rnn] = rnn(pack_padded_sequence(x, lengths, {.batch_first = true, .enforce_sorted = false}));
    const auto [b, state] = lstm(a);
    const auto [c, h_of_gru] =
        gru(pack_padded_sequence(pad_packed_sequence(b).first, lengths, {.enforce_sorted = false}), h0);
    const Tensor y = pad_packed_sequence(c, {.batch_first = true, .padding_value = 0.25}).first;
    return mean(y * y) + mean(h_of_rnn) + mean(state.first * state.second.sum()) + mean(h_of_gru * h_of_gru);
  }
};
struct TrainPacked : nn::Graph<TrainPacked> {
  Packed model = child("model", Packed());
  optim::SGD optimizer{model.parameters(), {.lr = 0.5}};
  TrainPacked() { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor lengths, Tensor h0) {
    Tensor loss = model(x, lengths, h0);
    loss.backward();
    return loss;
  }
};

TEST(RecurrentGraph, TrainsOnPackedSequencesOfAnyLengths) {
  manual_seed(5);
  TrainPacked graph;
  manual_seed(5);
  Packed eager;
  optim::SGD optimizer(eager.parameters(), {.lr = 0.5});
  const Dim batch("batch", 9), length("length", 7);
  graph.compile(spec({batch, length, 4}), spec({batch}, DType::i64), spec({2, batch, 17}));
  for (const auto& [steps, count] : {std::pair<std::int64_t, std::int64_t>{7, 9}, {1, 1}, {4, 9}, {7, 2}}) {
    SCOPED_TRACE("length " + std::to_string(steps) + ", batch " + std::to_string(count));
    const Tensor x = randn({count, steps, 4}), state = randn({2, count, 17}), lengths = randint(1, steps + 1, {count});
    optimizer.zero_grad();
    Tensor loss = eager(x, lengths, state);
    loss.backward();
    optimizer.step();
    EXPECT_NEAR(graph(x, lengths, state).item<double>(), loss.item<double>(), 1e-5);
  }
  const auto of_graph = graph.model.named_parameters(), of_eager = eager.named_parameters();
  for (std::size_t i = 0; i < of_graph.size(); ++i)
    EXPECT_TRUE(allclose(of_graph[i].second, of_eager[i].second, 1e-5, 1e-5)) << of_graph[i].first;
}

/// What lies behind a sequence's end has no part in anything: whole sequences of their own length give the same bits.
TEST(RecurrentGraph, GivesASequenceWhatItGivesItAlone) {
  manual_seed(5);
  nn::LSTM lstm(4, 21, {.num_layers = 2, .bidirectional = true});
  const Tensor x = randn({6, 5, 4});
  const std::vector<std::int64_t> ends{3, 6, 1, 5, 6};
  const auto [packed, state] =
      lstm(nn::utils::rnn::pack_padded_sequence(x, from_data(ends, {5}), {.enforce_sorted = false}));
  const Tensor y = nn::utils::rnn::pad_packed_sequence(packed).first;
  for (std::int64_t b = 0; b < 5; ++b) {
    const std::int64_t end = ends[static_cast<std::size_t>(b)];
    const auto [alone, last] = lstm(x.slice(1, b, b + 1).slice(0, 0, end));
    EXPECT_TRUE(equal(y.slice(1, b, b + 1).slice(0, 0, end), alone)) << b;
    EXPECT_TRUE(equal(state.first.slice(1, b, b + 1), last.first)) << b;
    EXPECT_TRUE(equal(state.second.slice(1, b, b + 1), last.second)) << b;
  }
}

TEST(RecurrentGraph, SaysWhichLayersLengthsAreWrong) {
  TrainPacked graph;
  graph.compile(spec({2, 5, 4}), spec({2}, DType::i64), spec({2, 2, 17}));
  const std::string error = test::error_of(
      [&] { graph(randn({2, 5, 4}), from_data(std::vector<std::int64_t>{5, 6}, {2}), randn({2, 2, 17})); });
  EXPECT_NE(error.find("length 6 at position 1 is outside [1, 6)"), std::string::npos) << error;
  EXPECT_NE(error.find("model.rnn"), std::string::npos) << error;
}

/// Sorting is asked for of values that a graph does not know.
TEST(RecurrentGraph, RefusesToEnforceTheOrderOfLengths) {
  struct Sorted : nn::Graph<Sorted> {
    nn::GRU gru = child("gru", nn::GRU(4, 3));
    Tensor build(Tensor x, Tensor lengths) { return gru(nn::utils::rnn::pack_padded_sequence(x, lengths)).second; }
  } graph;
  const std::string error = test::error_of([&] { graph.compile(spec({5, 2, 4}), spec({2}, DType::i64)); });
  EXPECT_NE(error.find("expects lengths that descend, which a graph does not know of its input"), std::string::npos)
      << error;
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
