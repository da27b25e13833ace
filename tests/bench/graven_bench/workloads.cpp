#include "workloads.h"

#include <graven/graven.h>

#include <cstring>

namespace graven::bench {

namespace {

// ---- networks: as in peers/workloads.py ----

struct MyLinear : nn::Module<MyLinear> {
  Tensor weight = parameter("weight", randn({4, 3}));
  Tensor bias = parameter("bias", randn({3}));
  Tensor forward(Tensor x) { return matmul(x, weight) + bias; }
};

struct Polynomial : nn::Module<Polynomial> {
  nn::Linear linear = child("linear", nn::Linear(3, 1));
  Tensor forward(Tensor x) { return flatten(linear(x), 0, 1); }
};

struct Mlp : nn::Module<Mlp> {
  nn::Linear hidden = child("hidden", nn::Linear(784, 256));
  nn::Linear logits = child("logits", nn::Linear(256, 10));
  Tensor forward(Tensor images) { return logits(relu(hidden(flatten(images, 1)))); }
};

struct LeNet : nn::Module<LeNet> {
  nn::Sequential features = child("features", nn::Sequential(nn::Conv2d(1, 6, 5, {.padding = 2}), nn::ReLU(), nn::MaxPool2d(2),  //
                                                             nn::Conv2d(6, 16, 5), nn::ReLU(), nn::MaxPool2d(2)));
  nn::Sequential classifier = child("classifier", nn::Sequential(nn::Flatten(), nn::Linear(400, 120), nn::ReLU(), nn::Linear(120, 84),  //
                                                                 nn::ReLU(), nn::Linear(84, 10)));
  Tensor forward(Tensor images) { return classifier(features(images)); }
};

/// A chain of elementwise operators on 2^22 floats: what fusion is for.
struct Chain : nn::Module<Chain> {
  Tensor forward(Tensor x, Tensor y) {
    Tensor a = sigmoid(x * y + 1) * x;
    Tensor b = tanh(a - y) * 0.5 + a;
    return relu(b) + exp(-b * b) * y;
  }
};

// ---- graphs ----

template <class Net>
struct Infer : nn::Graph<Infer<Net>> {
  Net model = this->child("model", Net());
  Tensor build(Tensor x) { return model(x); }
};

struct InferChain : nn::Graph<InferChain> {
  Chain model = child("model", Chain());
  Tensor build(Tensor x, Tensor y) { return model(x, y); }
};

template <class Net>
struct TrainClassifier : nn::Graph<TrainClassifier<Net>> {
  Net model = this->child("model", Net());
  nn::CrossEntropyLoss loss_fn = this->child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer;
  explicit TrainClassifier(optim::SGDOptions options) : optimizer(model.parameters(), options) { this->add_optimizer(optimizer); }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};

struct TrainPolynomial : nn::Graph<TrainPolynomial> {
  Polynomial model = child("model", Polynomial());
  optim::SGD optimizer{model.parameters(), {.lr = 1e-6}};
  TrainPolynomial() { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = mse_loss(model(x), y, Reduction::sum);
    loss.backward();
    return loss;
  }
};

template <class G, class... Specs>
Workload record(G& graph, const Specs&... specs) {
  Workload w;
  w.graph = graph.trace(specs...);
  for (const ir::ValueId v : w.graph.parameters)
    for (const auto& [name, tensor] : graph.state_dict())
      if (name == w.graph.value(v).name) {
        auto data = std::make_shared<ir::TensorData>();
        data->type = w.graph.type(v);
        data->bytes.resize(static_cast<std::size_t>(tensor.numel()) * ir::size_of(tensor.dtype()));
        std::memcpy(data->bytes.data(), tensor.contiguous().data_ptr(), data->bytes.size());
        w.weights[name] = std::move(data);
      }
  return w;
}

struct Entry {
  const char* name;
  Workload (*make)();
};

const Entry kEntries[] = {
    {"mylinear",
     [] {
       Infer<MyLinear> g;
       return record(g, spec({1, 4}, "x"));
     }},
    {"polyfit-train",
     [] {
       TrainPolynomial g;
       return record(g, spec({2000, 3}, "x"), spec({2000}, "y"));
     }},
    {"mlp-train",
     [] {
       TrainClassifier<Mlp> g({.lr = 0.1});
       return record(g, spec({64, 1, 28, 28}, "images"), spec({64}, i64, "labels"));
     }},
    {"lenet-train",
     [] {
       TrainClassifier<LeNet> g({.lr = 0.05, .momentum = 0.9});
       return record(g, spec({64, 1, 28, 28}, "images"), spec({64}, i64, "labels"));
     }},
    {"elementwise",
     [] {
       InferChain g;
       return record(g, spec({1 << 22}, "x"), spec({1 << 22}, "y"));
     }},
};

}  // namespace

std::vector<std::string> workload_names() {
  std::vector<std::string> names;
  for (const Entry& e : kEntries) names.push_back(e.name);
  return names;
}

Workload make_workload(const std::string& name) {
  manual_seed(0);
  std::string known;
  for (const Entry& e : kEntries) {
    if (name == e.name) return e.make();
    known += std::string(known.empty() ? "" : ", ") + e.name;
  }
  throw UserError("there is no workload '" + name + "'").note("workloads: " + known);
}

}  // namespace graven::bench
