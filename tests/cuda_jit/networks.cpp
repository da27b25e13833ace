#include "tests/cuda_jit/networks.h"

#include <utility>

namespace graven::cuda_jit {

namespace {

template <class Model>
struct Infer : nn::Graph<Infer<Model>> {
  Model model;
  explicit Infer(Model m) : model(this->child("model", std::move(m))) {}
  Tensor build(Tensor x) { return model(x); }
};

/// A classifier's training: cross entropy, and an optimizer.
template <class Model, class Optimizer>
struct Train : nn::Graph<Train<Model, Optimizer>> {
  Model model;
  Optimizer optimizer;
  double clip;
  template <class Options>
  Train(Model m, const Options& options, double clip)
      : model(this->child("model", std::move(m))), optimizer(model.parameters(), options), clip(clip) {
    this->add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor scores = model(x);
    if (scores.dim() == 3) scores = scores.flatten(0, 1);
    Tensor loss = cross_entropy(scores, labels);
    loss.backward();
    if (clip > 0) nn::utils::clip_grad_norm_(model.parameters(), clip);
    return loss;
  }
};

template <class Model>
std::function<Running()> infers(std::function<Model()> make) {
  return [make] {
    manual_seed(5);
    auto graph = std::make_shared<Infer<Model>>(make());
    graph->model.eval();
    return Running{graph, [graph](const Device& d) { graph->model.to(d); },
                   [graph](const std::vector<Tensor>& x) { return (*graph)(x.at(0)); }};
  };
}

template <class Optimizer, class Model, class Options>
std::function<Running()> trains(std::function<Model()> make, Options options, double clip = 0) {
  return [=] {
    manual_seed(5);
    auto graph = std::make_shared<Train<Model, Optimizer>>(make(), options, clip);
    return Running{graph, [graph](const Device& d) { graph->model.to(d); },
                   [graph](const std::vector<Tensor>& x) { return (*graph)(x.at(0), x.at(1)); }};
  };
}

/// The same in mixed precision.
std::function<Running()> in(DType half, const std::function<Running()>& make) {
  return [=] {
    Running running = make();
    running.graph->enable_amp(half);
    if (half == f16) running.graph->set_grad_scaler(amp::GradScaler({.init_scale = 1024}));
    return running;
  };
}

/// With parameters of a half type.
template <class Model>
Model of(DType half, Model model) {
  model.to(half);
  return model;
}

struct Mlp : nn::Module<Mlp> {
  nn::Linear hidden = child("hidden", nn::Linear(12, 20));
  nn::LayerNorm norm = child("norm", nn::LayerNorm({20}));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.25));
  nn::Linear logits = child("logits", nn::Linear(20, 5));
  Tensor forward(Tensor x) { return logits(dropout(gelu(norm(hidden(x))))); }
};

struct Recurrent : nn::Module<Recurrent> {
  nn::LSTM lstm = child("lstm", nn::LSTM(6, 8));
  nn::Linear logits = child("logits", nn::Linear(8, 5));
  Tensor forward(Tensor x) { return logits(std::get<0>(lstm(x)).select(0, -1)); }
};

std::vector<Tensor> images(std::int64_t batch, std::int64_t channels, std::int64_t size) {
  return {randn({batch, channels, size, size}), randint(0, 10, {batch})};
}

models::GPT2LMHeadModel small_gpt2() {
  return models::GPT2LMHeadModel({.n_layer = 1, .n_head = 2, .n_embd = 16, .n_positions = 8, .vocab_size = 20});
}

/// Attention whose heads share keys and values: behind a mask of padding, whose token is 0, with dropout, and behind a
/// causal one.
/// (A bias of keys adds one number to all scores of a query, so that its gradient is what rounding leaves.)
struct SharedKeys : nn::Module<SharedKeys> {
  nn::Embedding words = child("words", nn::Embedding(20, 16));
  nn::Linear query = child("query", nn::Linear(16, 16)), key = child("key", nn::Linear(16, 8, {.bias = false})),
             value = child("value", nn::Linear(16, 8)), logits = child("logits", nn::Linear(16, 20));
  Tensor forward(Tensor tokens) {
    const auto heads = [](const Tensor& t, std::int64_t count) {
      return t.reshape({t.shape()[0], t.shape()[1], count, 4}).transpose(1, 2);
    };
    const Tensor x = words(tokens), k = heads(key(x), 2), v = heads(value(x), 2);
    const Tensor seen = (tokens != 0).unsqueeze(1).unsqueeze(1);
    Tensor y = scaled_dot_product_attention(
        heads(query(x), 4), k, v, {.attn_mask = seen, .dropout_p = is_training() ? 0.2 : 0, .enable_gqa = true});
    y = y + scaled_dot_product_attention(y, k, v, {.is_causal = true, .enable_gqa = true});
    return logits(y.transpose(1, 2).reshape(x.shape()));
  }
};

models::MobileNetV2 small_mobilenet() {
  return models::MobileNetV2({.num_classes = 10,
                              .width_mult = 0.25,
                              .inverted_residual_setting = {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 1, 2}},
                              .dropout = 0.2});
}

}  // namespace

const std::vector<Network>& networks() {
  static const std::vector<Network> all = {
      {"mlp", infers<Mlp>([] { return Mlp(); }), [] { return std::vector<Tensor>{randn({7, 12})}; }},
      {"lenet", infers<models::LeNet>([] { return models::LeNet(); }), [] { return images(2, 1, 28); }},
      {"mobilenet_v2", infers<models::MobileNetV2>(small_mobilenet), [] { return images(1, 3, 32); }},
      {"gpt2", infers<models::GPT2LMHeadModel>(small_gpt2), [] { return std::vector<Tensor>{randint(0, 20, {2, 8})}; }},
      {"mlp_train_adamw",
       trains<optim::AdamW>(std::function(+[] { return Mlp(); }), optim::AdamWOptions{.lr = 0.01}, 0.5),
       [] { return std::vector<Tensor>{randn({8, 12}), randint(0, 5, {8})}; }},
      {"mlp_train_lamb", trains<optim::LAMB>(std::function(+[] { return Mlp(); }), optim::LAMBOptions{.lr = 0.01}),
       [] { return std::vector<Tensor>{randn({8, 12}), randint(0, 5, {8})}; }},
      {"lenet_train_sgd",
       trains<optim::SGD>(std::function(+[] { return models::LeNet(); }),
                          optim::SGDOptions{.lr = 0.05, .momentum = 0.9}),
       [] { return images(4, 1, 28); }},
      {"mobilenet_v2_train",
       trains<optim::SGD>(std::function(+[] { return small_mobilenet(); }),
                          optim::SGDOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4}),
       [] { return images(2, 3, 32); }, 2},
      {"gpt2_train", trains<optim::Adam>(std::function(+[] { return small_gpt2(); }), optim::AdamOptions{.lr = 0.001}),
       [] { return std::vector<Tensor>{randint(0, 20, {2, 8}), randint(0, 20, {16})}; }},
      {"shared_keys_train",
       trains<optim::Adam>(std::function(+[] { return SharedKeys(); }), optim::AdamOptions{.lr = 0.01}),
       [] { return std::vector<Tensor>{randint(0, 5, {2, 9}), randint(0, 20, {18})}; }},
      {"lstm_train",
       trains<optim::RMSprop>(std::function(+[] { return Recurrent(); }), optim::RMSpropOptions{.lr = 0.01}),
       [] { return std::vector<Tensor>{randn({5, 3, 6}), randint(0, 5, {3})}; }},
      {"gpt2_train_bf16",
       in(bf16,
          trains<optim::AdamW>(std::function(+[] { return small_gpt2(); }), optim::AdamWOptions{.lr = 0.001}, 1.0)),
       [] { return std::vector<Tensor>{randint(0, 20, {2, 8}), randint(0, 20, {16})}; }, 3, bf16},
      {"mlp_train_f16",
       in(f16, trains<optim::AdamW>(std::function(+[] { return Mlp(); }), optim::AdamWOptions{.lr = 0.01}, 0.5)),
       [] { return std::vector<Tensor>{randn({8, 12}), randint(0, 5, {8})}; }, 3, f16},
      {"mobilenet_v2_train_bf16",
       in(bf16, trains<optim::SGD>(std::function(+[] { return small_mobilenet(); }),
                                   optim::SGDOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4})),
       [] { return images(2, 3, 32); }, 1, bf16},
      {"lenet_bf16", in(bf16, infers<models::LeNet>([] { return models::LeNet(); })), [] { return images(2, 1, 28); },
       1, bf16},
      {"mlp_of_bf16_train",
       trains<optim::AdamW>(std::function(+[] { return of(bf16, Mlp()); }), optim::AdamWOptions{.lr = 0.01}, 0.5),
       [] { return std::vector<Tensor>{randn({8, 12}).to(bf16), randint(0, 5, {8})}; }, 3, bf16},
      {"mobilenet_v2_of_f16", infers<models::MobileNetV2>([] { return of(f16, small_mobilenet()); }),
       [] { return std::vector<Tensor>{randn({1, 3, 32, 32}).to(f16)}; }, 1, f16},
  };
  return all;
}

}  // namespace graven::cuda_jit
