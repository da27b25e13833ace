// Every layer: what PyTorch's gives in training and evaluation, its gradients, and how it prints. A layer is found by
// the text that makes PyTorch's.
#include <gtest/gtest.h>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

/// Puts a layer into the mode of the case, with its parameters.
void prepare(nn::ModuleBase& module, const Fixture& f) {
  EXPECT_EQ(module.repr(), f.text("repr"));
  module.train(!f.flag("eval"));
  if (const DType dtype = f.tensor("x").dtype(); ir::is_floating(dtype)) module.to(dtype);
  f.give_parameters(module);
}
template <class M>
M prepared(M module, const Fixture& f) {
  prepare(module, f);
  return module;
}

template <class M>
Function layer(M module) {
  return one([module](const Fixture& f) { return prepared(module, f)(f.tensor("x")); });
}
/// With its buffers as they are afterwards. It changes, so each case has its own.
template <class Make>
Function normalisation(Make make) {
  return [make](const Fixture& f) {
    auto module = prepared(make(), f);
    std::vector<Tensor> outputs{module(f.tensor("x"))};
    for (const auto& [name, buffer] : module.named_buffers()) outputs.push_back(buffer);
    return outputs;
  };
}
template <class M>
Function loss(M module) {
  return one([module](const Fixture& f) { return prepared(module, f)(f.tensor("x"), f.tensor("target")); });
}
template <class M>
Function loss_of_three(M module) {
  return one(
      [module](const Fixture& f) { return prepared(module, f)(f.tensor("x"), f.tensor("target"), f.tensor("third")); });
}
template <class M>
Function printed(M module) {
  return one([module](const Fixture& f) {
    EXPECT_EQ(module.repr(), f.text("repr"));
    return zeros({1});
  });
}

std::map<std::string, Function> activations_layers() {
  return {
      {"ReLU()", layer(nn::ReLU())},
      {"ReLU6()", layer(nn::ReLU6())},
      {"Sigmoid()", layer(nn::Sigmoid())},
      {"Tanh()", layer(nn::Tanh())},
      {"SiLU()", layer(nn::SiLU())},
      {"GELU()", layer(nn::GELU())},
      {"GELU(approximate='tanh')", layer(nn::GELU("tanh"))},
      {"LeakyReLU()", layer(nn::LeakyReLU())},
      {"LeakyReLU(0.2)", layer(nn::LeakyReLU(0.2))},
      {"Softmax(dim=1)", layer(nn::Softmax(1))},
      {"Softmax(dim=0)", layer(nn::Softmax(0))},
      {"LogSoftmax(dim=-1)", layer(nn::LogSoftmax(-1))},
      {"LogSoftmax(dim=0)", layer(nn::LogSoftmax(0))},
      {"Hardsigmoid()", layer(nn::Hardsigmoid())},
      {"Hardswish()", layer(nn::Hardswish())},
      {"Mish()", layer(nn::Mish())},
      {"SELU()", layer(nn::SELU())},
      {"Softsign()", layer(nn::Softsign())},
      {"Tanhshrink()", layer(nn::Tanhshrink())},
      {"LogSigmoid()", layer(nn::LogSigmoid())},
      {"ELU()", layer(nn::ELU())},
      {"ELU(0.7)", layer(nn::ELU(0.7))},
      {"CELU()", layer(nn::CELU())},
      {"CELU(0.7)", layer(nn::CELU(0.7))},
      {"Softplus()", layer(nn::Softplus())},
      {"Softplus(2.0, 3.0)", layer(nn::Softplus(2.0, 3.0))},
      {"Hardtanh()", layer(nn::Hardtanh())},
      {"Hardtanh(-0.5, 2.0)", layer(nn::Hardtanh(-0.5, 2.0))},
      {"Softshrink()", layer(nn::Softshrink())},
      {"Softshrink(0.8)", layer(nn::Softshrink(0.8))},
      {"Hardshrink()", layer(nn::Hardshrink())},
      {"Hardshrink(0.8)", layer(nn::Hardshrink(0.8))},
      {"Threshold(0.1, 20.0)", layer(nn::Threshold(0.1, 20.0))},
      {"Softmin(dim=1)", layer(nn::Softmin(1))},
      {"GLU()", layer(nn::GLU())},
      {"GLU(0)", layer(nn::GLU(0))},
      {"PReLU()", layer(nn::PReLU())},
      {"PReLU(4)", layer(nn::PReLU(4))},
      {"PReLU(4, 0.1)", layer(nn::PReLU(4, 0.1))},
      {"Identity()", layer(nn::Identity())},
      {"Flatten()", layer(nn::Flatten())},
      {"Flatten(0, 1)", layer(nn::Flatten(0, 1))},
  };
}
std::map<std::string, Function> normalisation_layers() {
  return {
      {"BatchNorm1d(4)", normalisation([] { return nn::BatchNorm1d(4); })},
      {"BatchNorm1d(4, momentum=0.3)", normalisation([] { return nn::BatchNorm1d(4, {.momentum = 0.3}); })},
      {"BatchNorm1d(4, affine=False)", normalisation([] { return nn::BatchNorm1d(4, {.affine = false}); })},
      {"BatchNorm2d(4)", normalisation([] { return nn::BatchNorm2d(4); })},
      {"BatchNorm2d(4, momentum=None)", normalisation([] { return nn::BatchNorm2d(4, {.momentum = std::nullopt}); })},
      {"BatchNorm2d(4, eps=0.01, momentum=0.2)",
       normalisation([] { return nn::BatchNorm2d(4, {.eps = 0.01, .momentum = 0.2}); })},
      {"BatchNorm2d(4, affine=False, track_running_stats=False)",
       normalisation([] { return nn::BatchNorm2d(4, {.affine = false, .track_running_stats = false}); })},
      {"BatchNorm3d(2)", normalisation([] { return nn::BatchNorm3d(2); })},
      {"SyncBatchNorm(4)", normalisation([] { return nn::SyncBatchNorm(4); })},
      {"SyncBatchNorm(4, momentum=None)",
       normalisation([] { return nn::SyncBatchNorm(4, {.momentum = std::nullopt}); })},
      {"SyncBatchNorm(4, eps=0.01, momentum=0.3, affine=False)",
       normalisation([] { return nn::SyncBatchNorm(4, {.eps = 0.01, .momentum = 0.3, .affine = false}); })},
      {"SyncBatchNorm(2, affine=False, track_running_stats=False)",
       normalisation([] { return nn::SyncBatchNorm(2, {.affine = false, .track_running_stats = false}); })},
      {"InstanceNorm1d(4)", normalisation([] { return nn::InstanceNorm1d(4); })},
      {"InstanceNorm1d(4, affine=True, track_running_stats=True)",
       normalisation([] { return nn::InstanceNorm1d(4, {.affine = true, .track_running_stats = true}); })},
      {"InstanceNorm2d(4)", normalisation([] { return nn::InstanceNorm2d(4); })},
      {"InstanceNorm2d(4, eps=0.01, momentum=0.3, track_running_stats=True)", normalisation([] {
         return nn::InstanceNorm2d(4, {.eps = 0.01, .momentum = 0.3, .track_running_stats = true});
       })},
      {"InstanceNorm3d(2)", normalisation([] { return nn::InstanceNorm3d(2); })},
      {"InstanceNorm3d(2, affine=True)", normalisation([] { return nn::InstanceNorm3d(2, {.affine = true}); })},
      {"LayerNorm(3)", layer(nn::LayerNorm(3))},
      {"LayerNorm((2, 3))", layer(nn::LayerNorm(Sizes{2, 3}))},
      {"LayerNorm((2, 3), bias=False)", layer(nn::LayerNorm(Sizes{2, 3}, {.bias = false}))},
      {"LayerNorm(3, eps=0.1, elementwise_affine=False)",
       layer(nn::LayerNorm(3, {.eps = 0.1, .elementwise_affine = false}))},
      {"RMSNorm(3)", layer(nn::RMSNorm(3))},
      {"RMSNorm((2, 3), eps=0.1)", layer(nn::RMSNorm(Sizes{2, 3}, {.eps = 0.1}))},
      {"RMSNorm(3, elementwise_affine=False)", layer(nn::RMSNorm(3, {.elementwise_affine = false}))},
      {"GroupNorm(2, 4)", layer(nn::GroupNorm(2, 4))},
      {"GroupNorm(4, 4, eps=0.1)", layer(nn::GroupNorm(4, 4, {.eps = 0.1}))},
      {"GroupNorm(1, 4, affine=False)", layer(nn::GroupNorm(1, 4, {.affine = false}))},
  };
}
std::map<std::string, Function> padding_layers() {
  return {
      {"ReflectionPad1d((1, 3))", layer(nn::ReflectionPad1d({1, 3}))},
      {"ReflectionPad1d(2)", layer(nn::ReflectionPad1d(2))},
      {"ReflectionPad2d((1, 2, 0, 1))", layer(nn::ReflectionPad2d({1, 2, 0, 1}))},
      {"ReflectionPad2d(1)", layer(nn::ReflectionPad2d(1))},
      {"ReflectionPad3d((1, 0, 0, 1, 1, 1))", layer(nn::ReflectionPad3d({1, 0, 0, 1, 1, 1}))},
      {"ReflectionPad3d(1)", layer(nn::ReflectionPad3d(1))},
      {"ReplicationPad1d((1, 3))", layer(nn::ReplicationPad1d({1, 3}))},
      {"ReplicationPad1d(2)", layer(nn::ReplicationPad1d(2))},
      {"ReplicationPad2d((1, 2, 0, 1))", layer(nn::ReplicationPad2d({1, 2, 0, 1}))},
      {"ReplicationPad2d(1)", layer(nn::ReplicationPad2d(1))},
      {"ReplicationPad3d((1, 0, 0, 1, 1, 1))", layer(nn::ReplicationPad3d({1, 0, 0, 1, 1, 1}))},
      {"ReplicationPad3d(1)", layer(nn::ReplicationPad3d(1))},
      {"CircularPad1d((1, 3))", layer(nn::CircularPad1d({1, 3}))},
      {"CircularPad1d(2)", layer(nn::CircularPad1d(2))},
      {"CircularPad2d((1, 2, 0, 1))", layer(nn::CircularPad2d({1, 2, 0, 1}))},
      {"CircularPad2d(1)", layer(nn::CircularPad2d(1))},
      {"CircularPad3d((1, 0, 0, 1, 1, 1))", layer(nn::CircularPad3d({1, 0, 0, 1, 1, 1}))},
      {"CircularPad3d(1)", layer(nn::CircularPad3d(1))},
      {"ZeroPad1d((1, 3))", layer(nn::ZeroPad1d({1, 3}))},
      {"ZeroPad1d(2)", layer(nn::ZeroPad1d(2))},
      {"ZeroPad2d((1, 2, 0, 1))", layer(nn::ZeroPad2d({1, 2, 0, 1}))},
      {"ZeroPad2d(1)", layer(nn::ZeroPad2d(1))},
      {"ZeroPad3d((1, 0, 0, 1, 1, 1))", layer(nn::ZeroPad3d({1, 0, 0, 1, 1, 1}))},
      {"ZeroPad3d(1)", layer(nn::ZeroPad3d(1))},
      {"ZeroPad1d((1, -2))", layer(nn::ZeroPad1d({1, -2}))},
      {"ReplicationPad2d((1, 2, -1, 1))", layer(nn::ReplicationPad2d({1, 2, -1, 1}))},
      {"ConstantPad1d((1, 2), 0.5)", layer(nn::ConstantPad1d({1, 2}, 0.5))},
      {"ConstantPad2d((1, 2, -1, 1), 2.5)", layer(nn::ConstantPad2d({1, 2, -1, 1}, 2.5))},
      {"ConstantPad2d(1, -1.0)", layer(nn::ConstantPad2d(1, -1.0))},
      {"ConstantPad3d((1, 0, 0, 1, 1, 1), 2.5)", layer(nn::ConstantPad3d({1, 0, 0, 1, 1, 1}, 2.5))},
  };
}
std::map<std::string, Function> pooling_and_upsampling_layers() {
  return {
      {"MaxPool1d(2)", layer(nn::MaxPool1d(2))},
      {"MaxPool1d(3, stride=2, padding=1, dilation=2, ceil_mode=True)",
       layer(nn::MaxPool1d(3, {.stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true}))},
      {"MaxPool2d(2)", layer(nn::MaxPool2d(2))},
      {"MaxPool2d(3, stride=(2, 1), padding=1, dilation=(1, 2), ceil_mode=True)",
       layer(nn::MaxPool2d(3, {.stride = Size2(2, 1), .padding = 1, .dilation = {1, 2}, .ceil_mode = true}))},
      {"MaxPool2d((2, 3), stride=1)", layer(nn::MaxPool2d({2, 3}, {.stride = Size2(1)}))},
      {"MaxPool3d(2)", layer(nn::MaxPool3d(2))},
      {"MaxPool3d((2, 3, 2), stride=(1, 2, 1), padding=(1, 1, 0), ceil_mode=True)",
       layer(nn::MaxPool3d({2, 3, 2}, {.stride = Size3(1, 2, 1), .padding = {1, 1, 0}, .ceil_mode = true}))},
      {"AvgPool1d(2)", layer(nn::AvgPool1d(2))},
      {"AvgPool1d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)",
       layer(nn::AvgPool1d(3, {.stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false}))},
      {"AvgPool2d(2)", layer(nn::AvgPool2d(2))},
      {"AvgPool2d(3, stride=2, padding=1, ceil_mode=True)",
       layer(nn::AvgPool2d(3, {.stride = Size2(2), .padding = 1, .ceil_mode = true}))},
      {"AvgPool2d((2, 3), stride=(1, 2), count_include_pad=False, padding=1)",
       layer(nn::AvgPool2d({2, 3}, {.stride = Size2(1, 2), .padding = 1, .count_include_pad = false}))},
      {"AvgPool3d(2)", layer(nn::AvgPool3d(2))},
      {"AvgPool3d((2, 3, 2), stride=1, padding=1, count_include_pad=False)",
       layer(nn::AvgPool3d({2, 3, 2}, {.stride = Size3(1), .padding = 1, .count_include_pad = false}))},
      {"AdaptiveAvgPool1d(4)", layer(nn::AdaptiveAvgPool1d(4))},
      {"AdaptiveAvgPool2d((3, 4))", layer(nn::AdaptiveAvgPool2d({3, 4}))},
      {"AdaptiveAvgPool2d(1)", layer(nn::AdaptiveAvgPool2d(1))},
      {"AdaptiveAvgPool3d((2, 3, 1))", layer(nn::AdaptiveAvgPool3d({2, 3, 1}))},
      {"AdaptiveMaxPool1d(4)", layer(nn::AdaptiveMaxPool1d(4))},
      {"AdaptiveMaxPool2d((3, 4))", layer(nn::AdaptiveMaxPool2d({3, 4}))},
      {"AdaptiveMaxPool2d(2)", layer(nn::AdaptiveMaxPool2d(2))},
      {"AdaptiveMaxPool3d((2, 3, 1))", layer(nn::AdaptiveMaxPool3d({2, 3, 1}))},
      {"LPPool1d(2.0, 3, stride=2, ceil_mode=True)", layer(nn::LPPool1d(2.0, 3, 2, true))},
      {"LPPool1d(3.0, 2)", layer(nn::LPPool1d(3.0, 2))},
      {"LPPool2d(3.0, (2, 3))", layer(nn::LPPool2d(3.0, {2, 3}))},
      {"LPPool2d(2.0, 2, stride=1)", layer(nn::LPPool2d(2.0, 2, 1))},
      {"Upsample(scale_factor=2.0)", layer(nn::Upsample({.scale_factor = {2.0}}))},
      {"Upsample(size=(7, 4), mode='bicubic')", layer(nn::Upsample({.size = {7, 4}, .mode = "bicubic"}))},
      {"Upsample(scale_factor=1.5, mode='trilinear')",
       layer(nn::Upsample({.scale_factor = {1.5}, .mode = "trilinear"}))},
      {"Upsample(size=9, mode='linear', align_corners=True)",
       layer(nn::Upsample({.size = {9}, .mode = "linear", .align_corners = true}))},
      {"Upsample(scale_factor=(1.5, 2.0), mode='bilinear')",
       layer(nn::Upsample({.scale_factor = {1.5, 2.0}, .mode = "bilinear"}))},
      {"UpsamplingNearest2d(scale_factor=2.0)", layer(nn::UpsamplingNearest2d({.scale_factor = {2.0}}))},
      {"UpsamplingNearest2d(size=(3, 8))", layer(nn::UpsamplingNearest2d({.size = {3, 8}}))},
      {"UpsamplingBilinear2d(scale_factor=2.0)", layer(nn::UpsamplingBilinear2d({.scale_factor = {2.0}}))},
      {"UpsamplingBilinear2d(size=(3, 8))", layer(nn::UpsamplingBilinear2d({.size = {3, 8}}))},
  };
}
std::map<std::string, Function> rearranging_layers() {
  const auto cell = [](auto module) {
    return one([module](const Fixture& f) { return prepared(module, f)(f.tensor("x"), f.tensor("target")); });
  };
  return {
      {"Unflatten(1, (2, 3))", layer(nn::Unflatten(1, {2, 3}))},
      {"PixelShuffle(2)", layer(nn::PixelShuffle(2))},
      {"PixelUnshuffle(2)", layer(nn::PixelUnshuffle(2))},
      {"ChannelShuffle(3)", layer(nn::ChannelShuffle(3))},
      {"Unfold(2)", layer(nn::Unfold(2))},
      {"Unfold((2, 3), dilation=(1, 2), padding=1, stride=2)",
       layer(nn::Unfold({2, 3}, {.dilation = {1, 2}, .padding = 1, .stride = 2}))},
      {"Fold((3, 4), 2)", layer(nn::Fold({3, 4}, 2))},
      {"Fold(output_size=4, kernel_size=(2, 3), padding=1, stride=2)",
       layer(nn::Fold(4, {2, 3}, {.padding = 1, .stride = 2}))},
      {"LocalResponseNorm(2)", layer(nn::LocalResponseNorm(2))},
      {"LocalResponseNorm(3, alpha=0.5, beta=0.6, k=2.0)",
       layer(nn::LocalResponseNorm(3, {.alpha = 0.5, .beta = 0.6, .k = 2}))},
      {"Bilinear(3, 2, 4)", loss(nn::Bilinear(3, 2, 4))},
      {"Bilinear(3, 2, 1, bias=False)", loss(nn::Bilinear(3, 2, 1, {.bias = false}))},
      {"MaxUnpool2d(2)", loss(nn::MaxUnpool2d(2))},
      {"RNNCell(3, 4)", cell(nn::RNNCell(3, 4))},
      {"RNNCell(3, 4, bias=False, nonlinearity='relu')",
       cell(nn::RNNCell(3, 4, {.bias = false, .nonlinearity = "relu"}))},
      {"GRUCell(3, 4)", cell(nn::GRUCell(3, 4))},
      {"GRUCell(3, 4, bias=False)", cell(nn::GRUCell(3, 4, {.bias = false}))},
  };
}
std::map<std::string, Function> dropout_layers() {
  return {
      {"Dropout()", layer(nn::Dropout())},
      {"Dropout(0.3)", layer(nn::Dropout(0.3))},
      {"Dropout(0.0)", layer(nn::Dropout(0.0))},
      {"Dropout(1.0)", layer(nn::Dropout(1.0))},
      {"Dropout1d()", layer(nn::Dropout1d())},
      {"Dropout1d(0.3)", layer(nn::Dropout1d(0.3))},
      {"Dropout1d(0.0)", layer(nn::Dropout1d(0.0))},
      {"Dropout1d(1.0)", layer(nn::Dropout1d(1.0))},
      {"Dropout2d()", layer(nn::Dropout2d())},
      {"Dropout2d(0.3)", layer(nn::Dropout2d(0.3))},
      {"Dropout2d(0.0)", layer(nn::Dropout2d(0.0))},
      {"Dropout2d(1.0)", layer(nn::Dropout2d(1.0))},
      {"Dropout3d()", layer(nn::Dropout3d())},
      {"Dropout3d(0.3)", layer(nn::Dropout3d(0.3))},
      {"Dropout3d(0.0)", layer(nn::Dropout3d(0.0))},
      {"Dropout3d(1.0)", layer(nn::Dropout3d(1.0))},
      {"AlphaDropout()", layer(nn::AlphaDropout())},
      {"AlphaDropout(0.0)", layer(nn::AlphaDropout(0.0))},
      {"AlphaDropout(1.0)", layer(nn::AlphaDropout(1.0))},
  };
}
std::map<std::string, Function> products_layers() {
  return {
      {"Linear(4, 3)", layer(nn::Linear(4, 3))},
      {"Linear(4, 3, bias=False)", layer(nn::Linear(4, 3, {.bias = false}))},
      {"Conv1d(2, 3, 3)", layer(nn::Conv1d(2, 3, 3))},
      {"Conv1d(2, 4, 3, stride=2, padding=1, groups=2, bias=False)",
       layer(nn::Conv1d(2, 4, 3, {.stride = 2, .padding = 1, .groups = 2, .bias = false}))},
      {"Conv1d(2, 3, 3, padding='same', padding_mode='circular')",
       layer(nn::Conv1d(2, 3, 3, {.padding = "same", .padding_mode = "circular"}))},
      {"Conv2d(2, 3, 3)", layer(nn::Conv2d(2, 3, 3))},
      {"Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2)",
       layer(nn::Conv2d(2, 4, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2}))},
      {"Conv2d(2, 3, 3, padding=1, padding_mode='reflect', bias=False)",
       layer(nn::Conv2d(2, 3, 3, {.padding = 1, .bias = false, .padding_mode = "reflect"}))},
      {"Conv2d(2, 3, 3, padding='same')", layer(nn::Conv2d(2, 3, 3, {.padding = "same"}))},
      {"Conv3d(1, 2, 2)", layer(nn::Conv3d(1, 2, 2))},
      {"Conv3d(1, 2, (2, 3, 2), stride=(1, 2, 1), padding=1, bias=False)",
       layer(nn::Conv3d(1, 2, {2, 3, 2}, {.stride = {1, 2, 1}, .padding = 1, .bias = false}))},
      {"ConvTranspose1d(2, 3, 3)", layer(nn::ConvTranspose1d(2, 3, 3))},
      {"ConvTranspose1d(2, 4, 3, stride=2, padding=1, output_padding=1, groups=2, bias=False)",
       layer(
           nn::ConvTranspose1d(2, 4, 3, {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2, .bias = false}))},
      {"ConvTranspose2d(2, 1, 2, stride=2)", layer(nn::ConvTranspose2d(2, 1, 2, {.stride = 2}))},
      {"ConvTranspose2d(2, 2, 3, stride=(2, 1), padding=1, output_padding=(1, 0), dilation=(1, 2))",
       layer(nn::ConvTranspose2d(2, 2, 3,
                                 {.stride = {2, 1}, .padding = 1, .output_padding = {1, 0}, .dilation = {1, 2}}))},
      {"ConvTranspose3d(1, 2, 2)", layer(nn::ConvTranspose3d(1, 2, 2))},
      {"ConvTranspose3d(1, 2, (2, 1, 3), stride=(2, 1, 1), padding=(1, 0, 1), output_padding=(1, 0, 0), bias=False)",
       layer(nn::ConvTranspose3d(
           1, 2, {2, 1, 3}, {.stride = {2, 1, 1}, .padding = {1, 0, 1}, .output_padding = {1, 0, 0}, .bias = false}))},
      {"Embedding(5, 3)", layer(nn::Embedding(5, 3))},
      {"Embedding(5, 3, padding_idx=1)", layer(nn::Embedding(5, 3, {.padding_idx = 1}))},
      {"EmbeddingBag(5, 3)", layer(nn::EmbeddingBag(5, 3))},
      {"EmbeddingBag(5, 3, mode='max', padding_idx=1)",
       loss(nn::EmbeddingBag(5, 3, {.mode = "max", .padding_idx = 1}))},
      {"EmbeddingBag(5, 3, mode='sum', include_last_offset=True)",
       loss_of_three(nn::EmbeddingBag(5, 3, {.mode = "sum", .include_last_offset = true}))},
  };
}
std::map<std::string, Function> losses_layers() {
  return {
      {"CrossEntropyLoss()", loss(nn::CrossEntropyLoss())},
      {"CrossEntropyLoss(weight=w6, ignore_index=3, label_smoothing=0.2)",
       loss(nn::CrossEntropyLoss({.weight = linspace(0.5, 2, 6), .ignore_index = 3, .label_smoothing = 0.2}))},
      {"CrossEntropyLoss(reduction='sum')", loss(nn::CrossEntropyLoss({.reduction = Reduction::sum}))},
      {"NLLLoss()", loss(nn::NLLLoss())},
      {"NLLLoss(weight=w6, ignore_index=3, reduction='sum')",
       loss(nn::NLLLoss({.weight = linspace(0.5, 2, 6), .ignore_index = 3, .reduction = Reduction::sum}))},
      {"MSELoss()", loss(nn::MSELoss())},
      {"MSELoss(reduction='sum')", loss(nn::MSELoss({.reduction = Reduction::sum}))},
      {"L1Loss()", loss(nn::L1Loss())},
      {"L1Loss(reduction='none')", loss(nn::L1Loss({.reduction = Reduction::none}))},
      {"SmoothL1Loss()", loss(nn::SmoothL1Loss())},
      {"SmoothL1Loss(reduction='sum', beta=0.3)", loss(nn::SmoothL1Loss({.reduction = Reduction::sum, .beta = 0.3}))},
      {"HuberLoss()", loss(nn::HuberLoss())},
      {"HuberLoss(reduction='none', delta=0.3)", loss(nn::HuberLoss({.reduction = Reduction::none, .delta = 0.3}))},
      {"BCELoss()", loss(nn::BCELoss())},
      {"BCELoss(weight=w6, reduction='sum')",
       loss(nn::BCELoss({.weight = linspace(0.5, 2, 6), .reduction = Reduction::sum}))},
      {"BCEWithLogitsLoss()", loss(nn::BCEWithLogitsLoss())},
      {"BCEWithLogitsLoss(weight=w6, reduction='none', pos_weight=w6)",
       loss(nn::BCEWithLogitsLoss(
           {.weight = linspace(0.5, 2, 6), .reduction = Reduction::none, .pos_weight = linspace(0.5, 2, 6)}))},
      {"KLDivLoss()", loss(nn::KLDivLoss())},
      {"KLDivLoss(reduction='batchmean')", loss(nn::KLDivLoss({.reduction = Reduction::batchmean}))},
      {"KLDivLoss(reduction='sum', log_target=True)",
       loss(nn::KLDivLoss({.reduction = Reduction::sum, .log_target = true}))},
      {"MarginRankingLoss(margin=0.5)", loss_of_three(nn::MarginRankingLoss({.margin = 0.5}))},
      {"CosineEmbeddingLoss(margin=0.1, reduction='sum')",
       loss_of_three(nn::CosineEmbeddingLoss({.margin = 0.1, .reduction = Reduction::sum}))},
      {"HingeEmbeddingLoss(margin=0.7)", loss(nn::HingeEmbeddingLoss({.margin = 0.7}))},
      {"TripletMarginLoss(margin=0.5, p=1.0, swap=True)",
       loss_of_three(nn::TripletMarginLoss({.margin = 0.5, .p = 1, .swap = true}))},
      {"SoftMarginLoss(reduction='none')", loss(nn::SoftMarginLoss({.reduction = Reduction::none}))},
      {"MultiLabelSoftMarginLoss(weight=w6)", loss(nn::MultiLabelSoftMarginLoss({.weight = linspace(0.5, 2, 6)}))},
      {"MultiMarginLoss(p=2, margin=0.4, weight=w6)",
       loss(nn::MultiMarginLoss({.p = 2, .margin = 0.4, .weight = linspace(0.5, 2, 6)}))},
      {"PoissonNLLLoss(full=True)", loss(nn::PoissonNLLLoss({.full = true}))},
      {"GaussianNLLLoss()", loss_of_three(nn::GaussianNLLLoss())},
      {"CosineSimilarity()", loss(nn::CosineSimilarity())},
      {"CosineSimilarity(dim=0, eps=0.1)", loss(nn::CosineSimilarity(0, 0.1))},
      {"PairwiseDistance()", loss(nn::PairwiseDistance())},
      {"PairwiseDistance(p=1.0, eps=0.01, keepdim=True)", loss(nn::PairwiseDistance(1, 0.01, true))},
  };
}
/// tests/fixtures/operator_cases/layers.py has its twin.
struct Mixture : nn::Module<Mixture> {
  nn::ModuleList<> steps = child("steps", nn::ModuleList<>{nn::Linear(3, 3), nn::Tanh()});
  nn::ModuleDict<nn::Linear> heads = child(
      "heads", nn::ModuleDict<nn::Linear>{{"mask", nn::Linear(3, 2)}, {"label", nn::Linear(3, 2, {.bias = false})}});
  nn::ParameterList scales = child("scales", nn::ParameterList{ones({3}), ones({})});
  nn::ParameterList shifts = child("shifts", nn::ParameterList{ones({2})});
  nn::ParameterDict mixing = child("mixing", nn::ParameterDict{{"a", ones({2})}, {"b", ones({2, 2})}});
  Tensor forward(Tensor x) {
    for (nn::AnyModule& step : steps) x = step(x) * scales[0] + scales[1];
    Tensor total = zeros({2});
    for (auto& [key, head] : heads) total = total + head(x) * mixing["a"];
    return matmul(total, mixing["b"]) + shifts[0];
  }
};

std::map<std::string, Function> containers_layers() {
  return {
      {"Mixture()", layer(Mixture())},
      {"ModuleDict()", printed(nn::ModuleDict<>())},
      {"ModuleDict({'b': Linear(2, 3), 'a': ReLU()})",
       printed(nn::ModuleDict<>{{"b", nn::Linear(2, 3)}, {"a", nn::ReLU()}})},
      {"ParameterList()", printed(nn::ParameterList())},
      {"ParameterList([ones(2, 3)])", printed(nn::ParameterList{ones({2, 3})})},
      {"ParameterList([ones(2, 3), ones(())])", printed(nn::ParameterList{ones({2, 3}), ones({})})},
      {"ParameterDict()", printed(nn::ParameterDict())},
      {"ParameterDict({'a': ones(4)})", printed(nn::ParameterDict{{"a", ones({4})}})},
      {"ParameterDict({'a': ones(4), 'b': ones(1, 2)})",
       printed(nn::ParameterDict{{"a", ones({4})}, {"b", ones({1, 2})}})},
  };
}
std::map<std::string, Function> printed_layers() {
  return {
      {"MultiheadAttention(8, 2)", printed(nn::MultiheadAttention(8, 2))},
      {"MultiheadAttention(8, 2, bias=False, batch_first=True)",
       printed(nn::MultiheadAttention(8, 2, {.bias = false, .batch_first = true}))},
      {"RNN(3, 4)", printed(nn::RNN(3, 4))},
      {"RNN(3, 4, num_layers=2, bias=False)", printed(nn::RNN(3, 4, {.num_layers = 2, .bias = false}))},
      {"LSTM(3, 4, batch_first=True, bidirectional=True)",
       printed(nn::LSTM(3, 4, {.batch_first = true, .bidirectional = true}))},
      {"LSTM(3, 4, num_layers=2, dropout=0.5)", printed(nn::LSTM(3, 4, {.num_layers = 2, .dropout = 0.5}))},
      {"LSTM(3, 4, proj_size=2, num_layers=2, bidirectional=True)",
       printed(nn::LSTM(3, 4, {.num_layers = 2, .bidirectional = true, .proj_size = 2}))},
      {"GRU(3, 4)", printed(nn::GRU(3, 4))},
      {"Sequential(Linear(2, 3), ReLU(), Sequential(Dropout(), Linear(3, 1)))",
       printed(nn::Sequential(nn::Linear(2, 3), nn::ReLU(), nn::Sequential(nn::Dropout(), nn::Linear(3, 1))))},
  };
}

TEST(Layers, AgreeWithPyTorchs) {
  std::map<std::string, Function> functions;
  for (const auto& group :
       {activations_layers, normalisation_layers, padding_layers, pooling_and_upsampling_layers, rearranging_layers,
        dropout_layers, products_layers, losses_layers, containers_layers, printed_layers})
    functions.merge(group());
  expect_family("layers", functions, tolerance::layers, tolerance::layer_gradients);
}

}  // namespace
}  // namespace graven::tests
