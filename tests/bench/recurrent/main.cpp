// Recurrent layers timed one call at a time, for tests/bench/recurrent/compare.py, which times PyTorch's in turn.
//
//   recurrent-times                 reads lines from standard input, and answers each with a line of milliseconds
//     make KIND LENGTH BATCH INPUT HIDDEN LAYERS DIRECTIONS TRAIN LENGTHS THREADS
//                                   compiles a graph of that layer; milliseconds of it and of the first call
//     time CALLS                    milliseconds of each of so many calls
//
// KIND: rnn, lstm or gru. TRAIN 1: forward, the gradients of all parameters and of x, of the result's sum of squares;
// 0: forward alone. LENGTHS 1: the sequences are packed, and end between half of LENGTH and LENGTH.
#include <graven/graven.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

namespace graven {
namespace {

struct Case {
  std::string kind;
  std::int64_t length = 0, batch = 0, input = 0, hidden = 0, layers = 1, directions = 1;
  bool train = false, lengths = false;
  int threads = 1;
};

template <class Layer>
struct Infer : nn::Graph<Infer<Layer>> {
  Layer layer;
  explicit Infer(const Layer& made) : layer(this->child("layer", made)) {}
  Tensor build(Tensor x) { return layer(x).first; }
};
template <class Layer>
struct Train : nn::Graph<Train<Layer>> {
  Layer layer;
  optim::SGD optimizer;
  explicit Train(const Layer& made)
      : layer(this->child("layer", made)), optimizer(layer.parameters(), optim::SGDOptions{.lr = 1e-6}) {
    this->add_optimizer(optimizer);
  }
  Tensor build(Tensor x) {
    const Tensor y = layer(x).first;
    Tensor loss = mean(y * y);
    loss.backward();
    return loss;
  }
};

double milliseconds(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

template <template <class> class Graph, class Layer>
std::function<void()> prepared(const Case& c) {
  manual_seed(0);
  const Layer layer(c.input, c.hidden, {.num_layers = c.layers, .bidirectional = c.directions == 2});
  const auto graph = std::make_shared<Graph<Layer>>(layer);
  graph->compile(spec({c.length, c.batch, c.input}));
  const Tensor x = randn({c.length, c.batch, c.input});
  return [graph, x] { (*graph)(x); };
}
template <class Layer>
std::function<void()> of_kind(const Case& c) {
  return c.train ? prepared<Train, Layer>(c) : prepared<Infer, Layer>(c);
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
               : c.kind == "gru"
                   ? of_kind<nn::GRU>(c)
                   : throw UserError("recurrent-times: expects rnn, lstm or gru, got '" + c.kind + "'");
        call();
      });
      std::printf("%.6f\n", ms);
    } else if (command == "time") {
      int calls = 0;
      words >> calls;
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
