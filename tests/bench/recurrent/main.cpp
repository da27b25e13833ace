// Recurrent layers timed one call at a time, for tests/bench/recurrent/compare.py, which times PyTorch's in turn.
//
//   recurrent-times                 reads lines from standard input, and answers each with a line of milliseconds
//     make KIND LENGTH BATCH INPUT HIDDEN LAYERS DIRECTIONS TRAIN LENGTHS THREADS
//                                   compiles a graph of that layer; milliseconds of it and of the first call
//     time CALLS                    milliseconds of each of so many calls
//
// KIND: rnn, lstm or gru. TRAIN 1: forward, the gradients of all parameters and of x, of the result's sum of squares;
// 0: forward alone. LENGTHS 1: the sequences are packed, and end between half of LENGTH and LENGTH. `time` waits a
// moment and makes a call that it does not report: the threads of the other side have gone to sleep then.
#include <graven/graven.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace graven {
namespace {

struct Case {
  std::string kind;
  std::int64_t length = 0, batch = 0, input = 0, hidden = 0, layers = 1, directions = 1;
  bool train = false, lengths = false;
  int threads = 1;
};

/// The layer's result, of all steps or of packed sequences.
template <class Layer>
Tensor result(const Layer& layer, const Tensor& x) {
  return layer(x).first;
}
template <class Layer>
Tensor result(const Layer& layer, const Tensor& x, const Tensor& lengths) {
  return nn::utils::rnn::pad_packed_sequence(
             layer(nn::utils::rnn::pack_padded_sequence(x, lengths, {.enforce_sorted = false})).first)
      .first;
}

template <class Layer>
struct Infer : nn::Graph<Infer<Layer>> {
  Layer layer;
  explicit Infer(const Layer& made) : layer(this->child("layer", made)) {}
  Tensor build(Tensor x) { return result(layer, x); }
};
template <class Layer>
struct InferPacked : nn::Graph<InferPacked<Layer>> {
  Layer layer;
  explicit InferPacked(const Layer& made) : layer(this->child("layer", made)) {}
  Tensor build(Tensor x, Tensor lengths) { return result(layer, x, lengths); }
};

Tensor step(const Tensor& y) {
  Tensor loss = mean(y * y);
  loss.backward();
  return loss;
}
template <class Layer>
struct Train : nn::Graph<Train<Layer>> {
  Layer layer;
  optim::SGD optimizer;
  explicit Train(const Layer& made)
      : layer(this->child("layer", made)), optimizer(layer.parameters(), optim::SGDOptions{.lr = 1e-6}) {
    this->add_optimizer(optimizer);
  }
  Tensor build(Tensor x) { return step(result(layer, x)); }
};
template <class Layer>
struct TrainPacked : nn::Graph<TrainPacked<Layer>> {
  Layer layer;
  optim::SGD optimizer;
  explicit TrainPacked(const Layer& made)
      : layer(this->child("layer", made)), optimizer(layer.parameters(), optim::SGDOptions{.lr = 1e-6}) {
    this->add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor lengths) { return step(result(layer, x, lengths)); }
};

double milliseconds(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

template <bool Packs, template <class> class Graph, class Layer>
std::function<void()> prepared(const Case& c) {
  manual_seed(0);
  const Layer layer(c.input, c.hidden, {.num_layers = c.layers, .bidirectional = c.directions == 2});
  const auto graph = std::make_shared<Graph<Layer>>(layer);
  const Tensor x = randn({c.length, c.batch, c.input});
  if constexpr (Packs) {
    // From the longest, LENGTH, down to half of it, as compare.py has them.
    std::vector<std::int64_t> ends;
    for (std::int64_t i = 0; i < c.batch; ++i)
      ends.push_back(c.length - i * (c.length / 2) / std::max<std::int64_t>(c.batch - 1, 1));
    graph->compile(spec({c.length, c.batch, c.input}), spec({c.batch}, DType::i64));
    const Tensor lengths = from_data(ends, {c.batch});
    return [graph, x, lengths] { (*graph)(x, lengths); };
  } else {
    graph->compile(spec({c.length, c.batch, c.input}));
    return [graph, x] { (*graph)(x); };
  }
}
template <class Layer>
std::function<void()> of_kind(const Case& c) {
  if (c.lengths) return c.train ? prepared<true, TrainPacked, Layer>(c) : prepared<true, InferPacked, Layer>(c);
  return c.train ? prepared<false, Train, Layer>(c) : prepared<false, Infer, Layer>(c);
}

int serve() {
  std::function<void()> call;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "make") {
      Case c;
      words >> c.kind >> c.length >> c.batch >> c.input >> c.hidden >> c.layers >> c.directions >> c.train >>
          c.lengths >> c.threads;
      if (words.fail()) throw UserError("recurrent-times: 'make' has ten words behind it, got '" + line + "'");
      set_num_threads(c.threads);
      const double ms = milliseconds([&] {
        call = c.kind == "rnn"    ? of_kind<nn::RNN>(c)
               : c.kind == "lstm" ? of_kind<nn::LSTM>(c)
               : c.kind == "gru"  ? of_kind<nn::GRU>(c)
                                  : throw UserError("recurrent-times: expects rnn, lstm or gru, got '" + c.kind + "'");
        call();
      });
      std::printf("%.6f\n", ms);
    } else if (command == "time") {
      int calls = 0;
      words >> calls;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      call();
      for (int i = 0; i < calls; ++i) std::printf("%.6f ", milliseconds(call));
      std::printf("\n");
    } else {
      throw UserError("recurrent-times: expects 'make' or 'time', got '" + line + "'");
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace graven

int main() {
  try {
    return graven::serve();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
