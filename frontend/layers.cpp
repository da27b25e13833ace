#include "graven/layers.h"

#include <cmath>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/layers/arguments.h"
#include "frontend/layers/convolution.h"
#include "graven/init.h"

namespace graven::nn {

using arguments::default_bias;
using arguments::default_weight;
using arguments::number;
using arguments::python;
using arguments::require_positive;

namespace {

std::string pair(Size2 s) { return fmt::format("({}, {})", s.height, s.width); }
std::string single_or_pair(Size2 s) { return s.height == s.width ? fmt::format("{}", s.height) : pair(s); }

void require_window(const char* layer, Size2 kernel, Size2 stride, Size2 padding, Size2 dilation) {
  const auto check = [layer](Size2 s, const char* what, std::int64_t least) {
    if (s.height < least || s.width < least)
      throw UserError(std::string(layer) + ": " + what + " must be at least " + std::to_string(least) + ", got " +
                      pair(s));
  };
  check(kernel, "kernel_size", 1);
  check(stride, "stride", 1);
  check(padding, "padding", 0);
  check(dilation, "dilation", 1);
}

}  // namespace

Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, Size2 kernel_size, Conv2dOptions options)
    : options_(options) {
  require_positive(in_channels, "in_channels", "Conv2d");
  require_positive(out_channels, "out_channels", "Conv2d");
  require_positive(options.groups, "groups", "Conv2d");
  require_window("Conv2d", kernel_size, options.stride, options.padding.value, options.dilation);
  convolution::require_padding_mode("Conv2d", options.padding_mode);
  if (in_channels % options.groups != 0 || out_channels % options.groups != 0)
    throw UserError(fmt::format("Conv2d: groups {} must divide in_channels {} and out_channels {}", options.groups,
                                in_channels, out_channels));
  weight = parameter("weight",
                     default_weight({out_channels, in_channels / options.groups, kernel_size.height, kernel_size.width},
                                    options.dtype));
  if (options.bias) bias = parameter("bias", default_bias(out_channels, weight));
  std::string text = fmt::format("{}, {}, kernel_size={}, stride={}", in_channels, out_channels, pair(kernel_size),
                                 pair(options.stride));
  if (options.padding.same)
    text += ", padding=same";
  else if (options.padding.value != Size2(0))
    text += ", padding=" + pair(options.padding.value);
  if (options.dilation != Size2(1)) text += ", dilation=" + pair(options.dilation);
  if (options.groups != 1) text += ", groups=" + std::to_string(options.groups);
  if (!options.bias) text += ", bias=False";
  if (options.padding_mode != "zeros") text += ", padding_mode=" + options.padding_mode;
  set_arguments(std::move(text));
}
Tensor Conv2d::forward(Tensor x) {
  Conv2dFunctionOptions o{
      .stride = options_.stride, .padding = options_.padding, .dilation = options_.dilation, .groups = options_.groups};
  if (options_.padding_mode != "zeros") {
    x = convolution::bordered(x, weight, o.padding.same, {o.padding.value.height, o.padding.value.width},
                              {o.stride.height, o.stride.width}, {o.dilation.height, o.dilation.width},
                              options_.padding_mode, call_location());
    o.padding = 0;
  }
  return conv2d(Operand(x, call_location()), weight, bias, o);
}

MaxPool2d::MaxPool2d(Size2 kernel_size, MaxPool2dOptions options) : kernel_size_(kernel_size), options_(options) {
  const Size2 stride = options.stride.value_or(kernel_size);
  require_window("MaxPool2d", kernel_size, stride, options.padding, options.dilation);
  set_arguments(fmt::format("kernel_size={}, stride={}, padding={}, dilation={}, ceil_mode={}",
                            single_or_pair(kernel_size), single_or_pair(stride), single_or_pair(options.padding),
                            single_or_pair(options.dilation), python(options.ceil_mode)));
}
Tensor MaxPool2d::forward(Tensor x) { return max_pool2d(Operand(x, call_location()), kernel_size_, options_); }

AvgPool2d::AvgPool2d(Size2 kernel_size, AvgPool2dOptions options) : kernel_size_(kernel_size), options_(options) {
  const Size2 stride = options.stride.value_or(kernel_size);
  require_window("AvgPool2d", kernel_size, stride, options.padding, 1);
  set_arguments(fmt::format("kernel_size={}, stride={}, padding={}", single_or_pair(kernel_size),
                            single_or_pair(stride), single_or_pair(options.padding)));
}
Tensor AvgPool2d::forward(Tensor x) { return avg_pool2d(Operand(x, call_location()), kernel_size_, options_); }

AdaptiveAvgPool2d::AdaptiveAvgPool2d(Size2 output_size) : output_size_(output_size) {
  if (output_size.height < 1 || output_size.width < 1)
    throw UserError("AdaptiveAvgPool2d: output_size must be at least 1, got " + pair(output_size));
  set_arguments("output_size=" + single_or_pair(output_size));
}
Tensor AdaptiveAvgPool2d::forward(Tensor x) { return adaptive_avg_pool2d(Operand(x, call_location()), output_size_); }

Flatten::Flatten(std::int64_t start_dim, std::int64_t end_dim) : start_dim_(start_dim), end_dim_(end_dim) {
  set_arguments(fmt::format("start_dim={}, end_dim={}", start_dim, end_dim));
}
Tensor Flatten::forward(Tensor x) { return flatten(Operand(x, call_location()), start_dim_, end_dim_); }

Tensor ReLU::forward(Tensor x) { return relu(Operand(x, call_location())); }
Tensor ReLU6::forward(Tensor x) { return relu6(Operand(x, call_location())); }
Tensor Sigmoid::forward(Tensor x) { return sigmoid(Operand(x, call_location())); }
Tensor Tanh::forward(Tensor x) { return tanh(Operand(x, call_location())); }
Tensor SiLU::forward(Tensor x) { return silu(Operand(x, call_location())); }

GELU::GELU(std::string approximate) : approximate_(std::move(approximate)) {
  if (approximate_ != "none" && approximate_ != "tanh")
    throw UserError("GELU: approximate must be 'none' or 'tanh', got '" + approximate_ + "'");
  set_arguments("approximate='" + approximate_ + "'");
}
Tensor GELU::forward(Tensor x) { return gelu(Operand(x, call_location()), approximate_); }

LeakyReLU::LeakyReLU(double negative_slope) : negative_slope_(negative_slope) {
  set_arguments("negative_slope=" + number(negative_slope));
}
Tensor LeakyReLU::forward(Tensor x) { return leaky_relu(Operand(x, call_location()), negative_slope_); }

Softmax::Softmax(std::int64_t dim) : dim_(dim) { set_arguments(fmt::format("dim={}", dim)); }
Tensor Softmax::forward(Tensor x) { return softmax(Operand(x, call_location()), dim_); }
LogSoftmax::LogSoftmax(std::int64_t dim) : dim_(dim) { set_arguments(fmt::format("dim={}", dim)); }
Tensor LogSoftmax::forward(Tensor x) { return log_softmax(Operand(x, call_location()), dim_); }

}  // namespace graven::nn
