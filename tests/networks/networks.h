// The networks of tests/fixtures/make_networks.py, as a user of Graven writes them.
#pragma once

#include <graven/graven.h>

namespace graven::test {

struct MyLinear : nn::Module<MyLinear> {
  Tensor weight = parameter("weight", zeros({4, 3}));
  Tensor bias = parameter("bias", zeros({3}));
  Tensor forward(Tensor x) { return matmul(x, weight) + bias; }
};

struct Mlp : nn::Module<Mlp> {
  nn::Sequential layers =
      child("layers", nn::Sequential(nn::Flatten(), nn::Linear(784, 32), nn::ReLU(), nn::Linear(32, 10)));
  Tensor forward(Tensor x) { return layers(x); }
};

using models::LeNet;

struct ResNet18 : models::ResNet {
  ResNet18() : models::ResNet(models::ResNetBlock::basic, {2, 2, 2, 2}, {.num_classes = 10, .stem_channels = 8}) {}
};

struct MobileNetV2 : models::MobileNetV2 {
  MobileNetV2()
      : models::MobileNetV2({.num_classes = 10,
                             .width_mult = 0.25,
                             .inverted_residual_setting = {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 2, 2}, {6, 64, 1, 2}},
                             .dropout = 0}) {}
};

struct StyleTransfer : models::TransformerNet {
  StyleTransfer() : models::TransformerNet({.channels = 4}) {}
};

struct ConvBatchNorm : nn::Module<ConvBatchNorm> {
  nn::Conv2d conv1 = child("conv1", nn::Conv2d(3, 16, 3, {.stride = 2, .padding = 1, .bias = false}));
  nn::BatchNorm2d bn1 = child("bn1", nn::BatchNorm2d(16));
  nn::Conv2d conv2 = child("conv2", nn::Conv2d(16, 16, 3, {.padding = 1, .groups = 16, .bias = false}));
  nn::BatchNorm2d bn2 = child("bn2", nn::BatchNorm2d(16));
  nn::Conv2d conv3 = child("conv3", nn::Conv2d(16, 16, 1, {.bias = false}));
  nn::BatchNorm2d bn3 = child("bn3", nn::BatchNorm2d(16));
  nn::Linear head = child("head", nn::Linear(16, 10));
  Tensor forward(Tensor x) {
    Tensor a = relu6(bn1(conv1(x)));
    Tensor b = relu6(bn2(conv2(a)));
    Tensor c = bn3(conv3(b)) + a;
    return head(mean(c, {2, 3}));
  }
};

struct Gpt2 : models::GPT2LMHeadModel {
  Gpt2()
      : models::GPT2LMHeadModel({.n_layer = 2,
                                 .n_head = 2,
                                 .n_embd = 32,
                                 .n_positions = 16,
                                 .vocab_size = 48,
                                 .resid_pdrop = 0,
                                 .embd_pdrop = 0,
                                 .attn_pdrop = 0}) {}
};

struct Bert : models::BertForSequenceClassification {
  Bert()
      : models::BertForSequenceClassification(10, {.vocab_size = 48,
                                                   .hidden_size = 32,
                                                   .num_hidden_layers = 2,
                                                   .num_attention_heads = 2,
                                                   .intermediate_size = 64,
                                                   .hidden_dropout_prob = 0,
                                                   .attention_probs_dropout_prob = 0,
                                                   .max_position_embeddings = 16}) {}
};

struct Lstm : nn::Module<Lstm> {
  nn::LSTM lstm = child("lstm", nn::LSTM(8, 16, {.num_layers = 2, .batch_first = true}));
  nn::Linear head = child("head", nn::Linear(16, 10));
  Tensor forward(Tensor x) { return head(lstm(x).first.select(1, -1)); }
};

struct Polynomial : nn::Module<Polynomial> {
  nn::Sequential layers = child("layers", nn::Sequential(nn::Linear(3, 1), nn::Flatten(0, 1)));
  Tensor forward(Tensor x) { return layers(x); }
};

}  // namespace graven::test
