#include "workloads.h"

#include <graven/graven.h>

#include <chrono>
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
  models::MLP layers = child("layers", models::MLP(784, {256, 10}));
  Tensor forward(Tensor images) { return layers(flatten(images, 1)); }
};

/// A chain of elementwise operators on 2^22 floats: what fusion is for.
struct Chain : nn::Module<Chain> {
  Tensor forward(Tensor x, Tensor y) {
    Tensor a = sigmoid(x * y + 1) * x;
    Tensor b = tanh(a - y) * 0.5 + a;
    return relu(b) + exp(-b * b) * y;
  }
};

/// Layer norm, GELU and a residual over 4096 rows of 768.
struct NormBlock : nn::Module<NormBlock> {
  nn::LayerNorm ln = child("ln", nn::LayerNorm(768));
  Tensor forward(Tensor x) { return x + gelu(ln(x)); }
};

/// The last layer's states alone.
struct BertStates : nn::Module<BertStates> {
  models::BertModel bert = child("bert", models::BertModel({}, false));
  Tensor forward(Tensor tokens) { return bert(tokens).first; }
};

// ---- graphs ----

template <class Net>
struct Infer : nn::Graph<Infer<Net>> {
  Net model;
  explicit Infer(Net net = Net()) : model(this->child("model", net)) { model.eval(); }
  Tensor build(Tensor x) { return model(x); }
};

struct InferChain : nn::Graph<InferChain> {
  Chain model = child("model", Chain());
  Tensor build(Tensor x, Tensor y) { return model(x, y); }
};

template <class Net>
struct TrainClassifier : nn::Graph<TrainClassifier<Net>> {
  Net model;
  nn::CrossEntropyLoss loss_fn = this->child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer;
  TrainClassifier(Net net, optim::SGDOptions options)
      : model(this->child("model", net)), optimizer(model.parameters(), options) {
    this->add_optimizer(optimizer);
  }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};

/// A step of GPT-2 of 124 million parameters, without dropout: the loss of every token's successor.
struct TrainGpt2 : nn::Graph<TrainGpt2> {
  models::GPT2LMHeadModel model =
      child("model", models::GPT2LMHeadModel({.resid_pdrop = 0, .embd_pdrop = 0, .attn_pdrop = 0}));
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::AdamW optimizer{model.parameters(), {.lr = 1e-4, .betas = {0.9, 0.999}, .eps = 1e-8, .weight_decay = 0}};
  /// `budget`: bytes of the arena; 0: no limit. With updates in backward it does without the memory of all gradients.
  explicit TrainGpt2(bool in_backward = true, std::int64_t budget = 0) {
    add_optimizer(optimizer);
    update_in_backward(in_backward);
    memory_budget(budget);
  }
  Tensor build(Tensor tokens, Tensor successors) {
    Tensor loss = loss_fn(flatten(model(tokens), 0, 1), flatten(successors, 0, 1));
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
  const auto start = std::chrono::steady_clock::now();
  const ir::Graph& recorded = graph.trace(specs...);
  w.trace_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  w.graph = recorded;
  for (const auto& [name, tensor] : graph.state_dict()) {
    const ir::ValueId v = recorded.find(name);
    if (v == ir::kNone) continue;  // the optimizer's state, the step
    auto data = std::make_shared<ir::TensorData>();
    data->type = recorded.type(v);
    data->bytes.resize(static_cast<std::size_t>(tensor.numel()) * ir::size_of(tensor.dtype()));
    std::memcpy(data->bytes.data(), tensor.contiguous().data_ptr(), data->bytes.size());
    w.weights[name] = std::move(data);
  }
  return w;
}

/// A step on 64 images and labels.
template <class Net>
Workload train_classifier(Net net, optim::SGDOptions options, std::int64_t channels, std::int64_t size,
                          bool update_in_backward = false) {
  TrainClassifier<Net> g(net, options);
  g.update_in_backward(update_in_backward);
  return record(g, spec({64, channels, size, size}, "images"), spec({64}, i64, "labels"));
}

template <class Net>
Workload of_pictures(Net net, std::int64_t batch, std::int64_t size) {
  Infer<Net> g(net);
  return record(g, spec({batch, 3, size, size}, "images"));
}

models::MobileNetV2 mobilenet(std::int64_t classes) { return models::MobileNetV2({.num_classes = classes}); }

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
    // Most of its step moves the weight and its gradient, so the gradient is not stored.
    {"mlp-train", [] { return train_classifier(Mlp(), {.lr = 0.1}, 1, 28, true); }},
    {"lenet-train", [] { return train_classifier(models::LeNet(), {.lr = 0.05, .momentum = 0.9}, 1, 28); }},
    {"mobilenetv2-cifar-train",
     [] { return train_classifier(models::MobileNetV2({.num_classes = 10}), {.lr = 1e-3}, 3, 32); }},
    {"mobilenetv2-cifar-b1", [] { return of_pictures(mobilenet(10), 1, 32); }},
    {"mobilenetv2-cifar-b64", [] { return of_pictures(mobilenet(10), 64, 32); }},
    {"mobilenetv2-224-b1", [] { return of_pictures(mobilenet(1000), 1, 224); }},
    {"mobilenetv2-224-b8", [] { return of_pictures(mobilenet(1000), 8, 224); }},
    {"resnet18-cifar-train",
     [] {
       return train_classifier(models::resnet18({.num_classes = 10}),
                               {.lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4}, 3, 32, true);
     }},
    {"resnet18-224-b1", [] { return of_pictures(models::resnet18(), 1, 224); }},
    {"resnet50-224-b1", [] { return of_pictures(models::resnet50(), 1, 224); }},
    {"resnet50-224-b8", [] { return of_pictures(models::resnet50(), 8, 224); }},
    {"style-256-b1", [] { return of_pictures(models::TransformerNet(), 1, 256); }},
    {"bert-s128-b1",
     [] {
       Infer<BertStates> g;
       return record(g, spec({1, 128}, i64, "tokens"));
     }},
    {"gpt2-t64-b1",
     [] {
       Infer<models::GPT2LMHeadModel> g;
       return record(g, spec({1, 64}, i64, "tokens"));
     }},
    {"gpt2-b4-t64-train",
     [] {
       TrainGpt2 g;
       return record(g, spec({4, 64}, i64, "tokens"), spec({4, 64}, i64, "successors"));
     }},
    // All that backward reads is kept, which takes 213.5 MB; half of that.
    {"gpt2-b4-t64-train-kept",
     [] {
       TrainGpt2 g(false);
       return record(g, spec({4, 64}, i64, "tokens"), spec({4, 64}, i64, "successors"));
     }},
    {"gpt2-b4-t64-train-half",
     [] {
       TrainGpt2 g(false, 106'759'744);
       return record(g, spec({4, 64}, i64, "tokens"), spec({4, 64}, i64, "successors"));
     }},
    // One program for every size, measured at the sizes of the ones above.
    {"style-256-b1-any",
     [] {
       Infer<models::TransformerNet> g;
       return record(g, spec({Dim("batch", 1), 3, Dim("height", 16, 256), Dim("width", 16, 256)}, "images"));
     }},
    {"bert-s128-b1-any",
     [] {
       Infer<BertStates> g;
       return record(g, spec({Dim("batch", 1), Dim("length", 128)}, i64, "tokens"));
     }},
    {"gpt2-t64-b1-any",
     [] {
       Infer<models::GPT2LMHeadModel> g;
       return record(g, spec({Dim("batch", 1), Dim("length", 64)}, i64, "tokens"));
     }},
    {"elementwise",
     [] {
       InferChain g;
       return record(g, spec({1 << 22}, "x"), spec({1 << 22}, "y"));
     }},
    {"norm",
     [] {
       Infer<NormBlock> g;
       return record(g, spec({4096, 768}, "x"));
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
