// The networks that tests/review edits: sample 3's LeNet, MobileNetV2 on CIFAR-10 and a small GPT-2, each with its loss
// and its optimizer. A member of the options is one edit of what a user writes.
#pragma once

#include <graven/graven.h>

#include <cstdint>
#include <string>
#include <vector>

namespace graven::review {

struct TrainingOptions {
  std::int64_t batch = 64;
  double lr = 0.05;
  bool adam = false;            ///< instead of SGD with momentum; of GPT-2, SGD with momentum instead of AdamW
  std::string child = "model";  ///< what the graph calls the network
};

struct LeNetOptions : TrainingOptions {
  std::int64_t image = 28, kernel = 5, hidden = 120, classes = 10;
  bool tanh = false;        ///< the first activation
  bool normalised = false;  ///< a BatchNorm2d before everything else of `features`
  bool dropout = false;     ///< before the last layer
  bool without_84 = false;  ///< no linear layer of 84 and no activation behind it
  bool bytes = false;       ///< images u8, which build() converts
  std::string features = "features";
};

struct LeNet : nn::Module<LeNet> {
  nn::Sequential features, classifier;

  explicit LeNet(const LeNetOptions& o)
      : features(child(o.features, make_features(o))), classifier(child("classifier", make_classifier(o))) {}
  Tensor forward(Tensor images) { return classifier(features(images)); }

 private:
  static nn::Sequential make_features(const LeNetOptions& o) {
    nn::Sequential layers;
    if (o.normalised) layers.push_back(nn::BatchNorm2d(1));
    layers.push_back(nn::Conv2d(1, 6, o.kernel, {.padding = o.kernel / 2}));
    if (o.tanh)
      layers.push_back(nn::Tanh());
    else
      layers.push_back(nn::ReLU());
    layers.push_back(nn::MaxPool2d(2));
    layers.push_back(nn::Conv2d(6, 16, 5));
    layers.push_back(nn::ReLU());
    layers.push_back(nn::MaxPool2d(2));
    return layers;
  }
  static nn::Sequential make_classifier(const LeNetOptions& o) {
    const std::int64_t side = (o.image / 2 - 4) / 2, last = o.without_84 ? o.hidden : 84;
    nn::Sequential layers;
    layers.push_back(nn::Flatten());
    layers.push_back(nn::Linear(16 * side * side, o.hidden));
    layers.push_back(nn::ReLU());
    if (!o.without_84) {
      layers.push_back(nn::Linear(o.hidden, 84));
      layers.push_back(nn::ReLU());
    }
    if (o.dropout) layers.push_back(nn::Dropout(0.5));
    layers.push_back(nn::Linear(last, o.classes));
    return layers;
  }
};

struct MobileNetOptions : TrainingOptions {
  std::int64_t image = 32, stem_kernel = 3, classes = 10;
  std::vector<models::InvertedResidualSetting> blocks = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                                         {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  bool hardswish = false;  ///< the last activation
  bool dropout = false;    ///< in front of the last layer
  std::string features = "features";
};

struct MobileNet : nn::Module<MobileNet> {
  nn::Sequential features, classifier;

  explicit MobileNet(const MobileNetOptions& o)
      : features(child(o.features, make_features(o))), classifier(child("classifier", make_classifier(o))) {}
  Tensor forward(Tensor x) { return classifier(flatten(adaptive_avg_pool2d(features(x), 1), 1)); }

 private:
  static nn::Sequential convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                                    bool hardswish = false) {
    nn::Sequential layers;
    layers.push_back(nn::Conv2d(in, out, kernel, {.stride = stride, .padding = kernel / 2, .bias = false}));
    layers.push_back(nn::BatchNorm2d(out));
    if (hardswish)
      layers.push_back(nn::Hardswish());
    else
      layers.push_back(nn::ReLU6());
    return layers;
  }
  static nn::Sequential make_features(const MobileNetOptions& o) {
    nn::Sequential layers;
    layers.push_back(convolution(3, 32, o.stem_kernel, 2));
    std::int64_t channels = 32;
    for (const models::InvertedResidualSetting& row : o.blocks)
      for (std::int64_t i = 0; i < row.repeats; ++i) {
        const std::int64_t stride = i == 0 ? row.stride : 1;
        layers.push_back(models::InvertedResidual(channels, row.channels, stride, row.expand_ratio));
        channels = row.channels;
      }
    layers.push_back(convolution(channels, 1280, 1, 1, o.hardswish));
    return layers;
  }
  static nn::Sequential make_classifier(const MobileNetOptions& o) {
    nn::Sequential layers;
    if (o.dropout) layers.push_back(nn::Dropout(0.2));
    layers.push_back(nn::Linear(1280, o.classes));
    return layers;
  }
};

struct Gpt2Options : TrainingOptions {
  Gpt2Options() {
    batch = 16;
    lr = 1e-3;
  }
  std::int64_t length = 64, layers = 2, inner = 512;
  double dropout = 0;
  DType tokens = i64;
};

struct TrainLeNet : nn::Graph<TrainLeNet> {
  LeNet model;
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  bool bytes;

  explicit TrainLeNet(const LeNetOptions& o) : model(child(o.child, LeNet(o))), bytes(o.bytes) {
    if (o.adam)
      add_optimizer(optim::Adam(model.parameters(), {.lr = o.lr}));
    else
      add_optimizer(optim::SGD(model.parameters(), {.lr = o.lr, .momentum = 0.9}));
  }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(bytes ? images.to(f32) : images), labels);
    loss.backward();
    return loss;
  }
};

struct TrainMobileNet : nn::Graph<TrainMobileNet> {
  MobileNet model;
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());

  explicit TrainMobileNet(const MobileNetOptions& o) : model(child(o.child, MobileNet(o))) {
    if (o.adam)
      add_optimizer(optim::Adam(model.parameters(), {.lr = o.lr}));
    else
      add_optimizer(optim::SGD(model.parameters(), {.lr = o.lr, .momentum = 0.9}));
  }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};

struct TrainGpt2 : nn::Graph<TrainGpt2> {
  models::GPT2LMHeadModel model;
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());

  explicit TrainGpt2(const Gpt2Options& o)
      : model(child(o.child, models::GPT2LMHeadModel({.n_layer = o.layers,
                                                      .n_head = 4,
                                                      .n_embd = 128,
                                                      .n_positions = o.length,
                                                      .vocab_size = 256,
                                                      .n_inner = o.inner,
                                                      .resid_pdrop = o.dropout,
                                                      .embd_pdrop = o.dropout,
                                                      .attn_pdrop = o.dropout}))) {
    if (o.adam)
      add_optimizer(optim::SGD(model.parameters(), {.lr = o.lr, .momentum = 0.9, .clip_grad_max_norm = 1}));
    else
      add_optimizer(optim::AdamW(model.parameters(),
                                 {.lr = o.lr, .betas = {0.9, 0.95}, .weight_decay = 0.1, .clip_grad_max_norm = 1}));
  }
  /// Both i64[batch,length]; the target of a token is the one that follows it.
  Tensor build(Tensor tokens, Tensor targets) {
    Tensor loss = loss_fn(model(tokens).flatten(0, 1), targets.flatten());
    loss.backward();
    return loss;
  }
};

inline ir::Graph traced(const LeNetOptions& o) {
  manual_seed(0);
  return TrainLeNet(o).trace(spec({o.batch, 1, o.image, o.image}, o.bytes ? u8 : f32, "images"),
                             spec({o.batch}, i64, "labels"));
}

inline ir::Graph traced(const MobileNetOptions& o) {
  manual_seed(0);
  return TrainMobileNet(o).trace(spec({o.batch, 3, o.image, o.image}, "images"), spec({o.batch}, i64, "labels"));
}

inline ir::Graph traced(const Gpt2Options& o) {
  manual_seed(0);
  return TrainGpt2(o).trace(spec({o.batch, o.length}, o.tokens, "tokens"), spec({o.batch, o.length}, i64, "targets"));
}

}  // namespace graven::review
