// Emits five small training projects into a folder, for compare.sh: what they compute must be the same bits however
// they are compiled. Their sizes are no multiples of a vector's, so that the ends of rows count.
//
//   build/tests/bits/bits_networks FOLDER
#include <graven/graven.h>

#include <filesystem>
#include <iostream>
#include <string>

namespace graven {
namespace {

namespace fs = std::filesystem;

/// f32[24,21] to 7 classes.
struct Mlp : nn::Module<Mlp> {
  nn::Sequential layers = child(
      "layers", nn::Sequential(nn::Linear(21, 50), nn::Tanh(), nn::Linear(50, 33), nn::Sigmoid(), nn::Linear(33, 7)));
  Tensor forward(Tensor x) { return layers(x); }
};

/// LeNet of 1998 with ReLU: f32[6,1,28,28] to 10 classes.
struct LeNet : nn::Module<LeNet> {
  nn::Sequential features =
      child("features", nn::Sequential(nn::Conv2d(1, 6, 5, {.padding = 2}), nn::ReLU(), nn::MaxPool2d(2),  //
                                       nn::Conv2d(6, 16, 5), nn::ReLU(), nn::MaxPool2d(2)));
  nn::Sequential classifier =
      child("classifier", nn::Sequential(nn::Flatten(), nn::Linear(400, 84), nn::ReLU(), nn::Linear(84, 10)));
  Tensor forward(Tensor images) { return classifier(features(images)); }
};

/// Batch norms, a residual, a depthwise convolution: f32[5,3,13,13] to 9 classes.
struct Residual : nn::Module<Residual> {
  nn::Conv2d first = child("first", nn::Conv2d(3, 20, 3, {.padding = 1, .bias = false}));
  nn::BatchNorm2d first_norm = child("first_norm", nn::BatchNorm2d(20));
  nn::Conv2d second = child("second", nn::Conv2d(20, 20, 3, {.padding = 1, .bias = false}));
  nn::BatchNorm2d second_norm = child("second_norm", nn::BatchNorm2d(20));
  nn::Conv2d apart = child("apart", nn::Conv2d(20, 20, 3, {.stride = 2, .padding = 1, .groups = 20, .bias = false}));
  nn::Conv2d wide = child("wide", nn::Conv2d(20, 88, 3, {.stride = 2, .padding = 1}));
  nn::Linear classifier = child("classifier", nn::Linear(88, 9));
  Tensor forward(Tensor images) {
    const Tensor x = relu(first_norm(first(images)));
    const Tensor y = relu6(second_norm(second(x)) + x);
    return classifier(flatten(adaptive_avg_pool2d(silu(wide(apart(y))), 1), 1));
  }
};

/// A block of attention, layer norms and GELU: f32[4,11,36] to 5 classes.
struct Transformer : nn::Module<Transformer> {
  nn::LayerNorm norm = child("norm", nn::LayerNorm(36)), last_norm = child("last_norm", nn::LayerNorm(36));
  nn::MultiheadAttention attention = child("attention", nn::MultiheadAttention(36, 3, {.batch_first = true}));
  nn::Linear widen = child("widen", nn::Linear(36, 100)), narrow = child("narrow", nn::Linear(100, 36)),
             classifier = child("classifier", nn::Linear(36, 5));
  Tensor forward(Tensor x) {
    const Tensor h = norm(x);
    const Tensor seen = x + attention(h, h, h).first;
    return classifier((seen + narrow(gelu(widen(last_norm(seen))))).mean(1));
  }
};

/// An embedding, an LSTM and dropout: i64[6,4] to 19 classes.
struct Lstm : nn::Module<Lstm> {
  nn::Embedding embedding = child("embedding", nn::Embedding(23, 18));
  nn::LSTM lstm = child("lstm", nn::LSTM(18, 21, {.batch_first = true}));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.25));
  nn::Linear classifier = child("classifier", nn::Linear(21, 19));
  Tensor forward(Tensor tokens) { return classifier(dropout(lstm(embedding(tokens)).first.mean(1))); }
};

template <class Network, class Optimizer, class Options>
struct Train : nn::Graph<Train<Network, Optimizer, Options>> {
  Network model = this->child("model", Network());
  Optimizer optimizer;
  explicit Train(Options options) : optimizer{model.parameters(), options} { this->add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(model(x), labels);
    loss.backward();
    return loss;
  }
};

template <class Network, class Optimizer, class Options>
void emit(const fs::path& folder, const std::string& name, Options options, const Shape& shape, DType dtype) {
  Train<Network, Optimizer, Options> graph(options);
  graph.compile(spec(shape, dtype, "x"), spec({shape[0]}, i64, "labels"));
  codegen::emit(graph, folder / name, {.name = name, .format = false});
}

}  // namespace
}  // namespace graven

int main(int argc, char** argv) try {
  using namespace graven;
  if (argc != 2) throw UserError("usage: bits_networks FOLDER");
  const fs::path folder = argv[1];
  manual_seed(1);
  emit<Mlp, optim::Adam, optim::AdamOptions>(folder, "mlp", {.lr = 0.01}, {24, 21}, f32);
  emit<LeNet, optim::SGD, optim::SGDOptions>(folder, "lenet", {.lr = 0.05, .momentum = 0.9}, {6, 1, 28, 28}, f32);
  emit<Residual, optim::SGD, optim::SGDOptions>(
      folder, "residual", {.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3, .nesterov = true}, {5, 3, 13, 13}, f32);
  emit<Transformer, optim::AdamW, optim::AdamWOptions>(folder, "transformer", {.lr = 0.005}, {4, 11, 36}, f32);
  emit<Lstm, optim::AdamW, optim::AdamWOptions>(folder, "sequences", {.lr = 0.01}, {6, 4}, i64);
  return 0;
} catch (const std::exception& e) {
  std::cerr << e.what() << "\n";
  return 1;
}
