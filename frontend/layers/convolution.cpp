#include "graven/layers/convolution.h"

#include <cmath>

#include "frontend/dispatch.h"
#include "frontend/layers/arguments.h"
#include "frontend/layers/convolution.h"
#include "graven/init.h"
#include "graven/layers.h"

namespace graven::nn {

using arguments::default_bias;
using arguments::default_weight;
using arguments::list;

namespace {

void require_channels(const char* layer, std::int64_t in, std::int64_t out, std::int64_t groups) {
  arguments::require_at_least(1, layer, "in_channels", in);
  arguments::require_at_least(1, layer, "out_channels", out);
  arguments::require_at_least(1, layer, "groups", groups);
  if (in % groups != 0 || out % groups != 0)
    throw UserError(
        fmt::format("{}: groups {} must divide in_channels {} and out_channels {}", layer, groups, in, out));
}

std::string head(std::int64_t in, std::int64_t out, const std::vector<std::int64_t>& kernel,
                 const std::vector<std::int64_t>& stride) {
  return fmt::format("{}, {}, kernel_size={}, stride={}", in, out, arguments::tuple(kernel), arguments::tuple(stride));
}

bool all_are(const std::vector<std::int64_t>& values, std::int64_t n) {
  for (const std::int64_t v : values)
    if (v != n) return false;
  return true;
}

/// The checks of Conv1d, Conv2d and Conv3d, and how they are printed.
template <class Options, class Size>
std::string set_up(const char* name, std::int64_t in, std::int64_t out, Size kernel, const Options& o) {
  require_channels(name, in, out, o.groups);
  arguments::require_window(name, kernel, o.stride, o.padding.value, o.dilation);
  convolution::require_padding_mode(name, o.padding_mode);
  std::string text = head(in, out, list(kernel), list(o.stride));
  if (o.padding.same)
    text += ", padding=same";
  else if (!all_are(list(o.padding.value), 0))
    text += ", padding=" + arguments::tuple(list(o.padding.value));
  if (!all_are(list(o.dilation), 1)) text += ", dilation=" + arguments::tuple(list(o.dilation));
  if (o.groups != 1) text += ", groups=" + std::to_string(o.groups);
  if (!o.bias) text += ", bias=False";
  if (o.padding_mode != "zeros") text += ", padding_mode=" + o.padding_mode;
  return text;
}

template <class Options, class Size>
std::string set_up_transposed(const char* name, std::int64_t in, std::int64_t out, Size kernel, const Options& o) {
  require_channels(name, in, out, o.groups);
  arguments::require_window(name, kernel, o.stride, o.padding, o.dilation);
  arguments::require_at_least(0, name, "output_padding", o.output_padding);
  std::string text = head(in, out, list(kernel), list(o.stride));
  if (!all_are(list(o.padding), 0)) text += ", padding=" + arguments::tuple(list(o.padding));
  if (!all_are(list(o.dilation), 1)) text += ", dilation=" + arguments::tuple(list(o.dilation));
  if (!all_are(list(o.output_padding), 0)) text += ", output_padding=" + arguments::tuple(list(o.output_padding));
  if (o.groups != 1) text += ", groups=" + std::to_string(o.groups);
  if (!o.bias) text += ", bias=False";
  return text;
}

}  // namespace

Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, Size2 kernel_size, Conv2dOptions options)
    : options_(std::move(options)) {
  set_arguments(set_up("Conv2d", in_channels, out_channels, kernel_size, options_));
  weight = parameter(
      "weight", default_weight({out_channels, in_channels / options_.groups, kernel_size.height, kernel_size.width},
                               options_.dtype));
  if (options_.bias) bias = parameter("bias", default_bias(out_channels, weight));
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

void convolution::require_padding_mode(const char* layer, const std::string& mode) {
  if (mode != "zeros" && mode != "reflect" && mode != "replicate" && mode != "circular")
    throw UserError(
        fmt::format("{}: padding_mode must be zeros, reflect, replicate or circular, got '{}'", layer, mode));
}

Tensor convolution::bordered(const Tensor& x, const Tensor& weight, bool same, const std::vector<std::int64_t>& padding,
                             const std::vector<std::int64_t>& stride, const std::vector<std::int64_t>& dilation,
                             const std::string& mode, Location where) {
  Sizes pads;  // last dimension first
  for (std::size_t d = padding.size(); d-- > 0;) {
    if (same && stride[d] != 1)
      graven::detail::fail("conv", "padding 'same' is for a stride of 1, got " + std::to_string(stride[d]), where);
    const std::int64_t total =
        same ? dilation[d] * (weight.size(static_cast<std::int64_t>(d) + 2) - 1) : 2 * padding[d];
    pads.push_back(total / 2);
    pads.push_back(total - total / 2);
  }
  return pad(Operand(x, where), pads, mode);
}

Conv1d::Conv1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size, Conv1dOptions options)
    : options_(std::move(options)) {
  set_arguments(set_up("Conv1d", in_channels, out_channels, kernel_size, options_));
  weight =
      parameter("weight", default_weight({out_channels, in_channels / options_.groups, kernel_size}, options_.dtype));
  if (options_.bias) bias = parameter("bias", default_bias(out_channels, weight));
}
Tensor Conv1d::forward(Tensor x) {
  Conv1dFunctionOptions o{
      .stride = options_.stride, .padding = options_.padding, .dilation = options_.dilation, .groups = options_.groups};
  if (options_.padding_mode != "zeros") {
    x = convolution::bordered(x, weight, o.padding.same, {o.padding.value}, {o.stride}, {o.dilation},
                              options_.padding_mode, call_location());
    o.padding = 0;
  }
  return conv1d(Operand(x, call_location()), weight, bias, o);
}

Conv3d::Conv3d(std::int64_t in_channels, std::int64_t out_channels, Size3 kernel_size, Conv3dOptions options)
    : options_(std::move(options)) {
  set_arguments(set_up("Conv3d", in_channels, out_channels, kernel_size, options_));
  weight = parameter("weight", default_weight({out_channels, in_channels / options_.groups, kernel_size.depth,
                                               kernel_size.height, kernel_size.width},
                                              options_.dtype));
  if (options_.bias) bias = parameter("bias", default_bias(out_channels, weight));
}
Tensor Conv3d::forward(Tensor x) {
  Conv3dFunctionOptions o{
      .stride = options_.stride, .padding = options_.padding, .dilation = options_.dilation, .groups = options_.groups};
  if (options_.padding_mode != "zeros") {
    x = convolution::bordered(x, weight, o.padding.same, list(o.padding.value), list(o.stride), list(o.dilation),
                              options_.padding_mode, call_location());
    o.padding = 0;
  }
  return conv3d(Operand(x, call_location()), weight, bias, o);
}

ConvTranspose1d::ConvTranspose1d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
                                 ConvTranspose1dOptions options)
    : options_(options) {
  set_arguments(set_up_transposed("ConvTranspose1d", in_channels, out_channels, kernel_size, options_));
  weight =
      parameter("weight", default_weight({in_channels, out_channels / options_.groups, kernel_size}, options_.dtype));
  if (options_.bias) bias = parameter("bias", default_bias(out_channels, weight));
}
Tensor ConvTranspose1d::forward(Tensor x) {
  return conv_transpose1d(Operand(x, call_location()), weight, bias,
                          {.stride = options_.stride,
                           .padding = options_.padding,
                           .output_padding = options_.output_padding,
                           .groups = options_.groups,
                           .dilation = options_.dilation});
}

ConvTranspose2d::ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels, Size2 kernel_size,
                                 ConvTranspose2dOptions options)
    : options_(options) {
  set_arguments(set_up_transposed("ConvTranspose2d", in_channels, out_channels, kernel_size, options_));
  weight = parameter(
      "weight", default_weight({in_channels, out_channels / options_.groups, kernel_size.height, kernel_size.width},
                               options_.dtype));
  if (options_.bias) bias = parameter("bias", default_bias(out_channels, weight));
}
Tensor ConvTranspose2d::forward(Tensor x) {
  return conv_transpose2d(Operand(x, call_location()), weight, bias,
                          {.stride = options_.stride,
                           .padding = options_.padding,
                           .output_padding = options_.output_padding,
                           .groups = options_.groups,
                           .dilation = options_.dilation});
}

ConvTranspose3d::ConvTranspose3d(std::int64_t in_channels, std::int64_t out_channels, Size3 kernel_size,
                                 ConvTranspose3dOptions options)
    : options_(options) {
  set_arguments(set_up_transposed("ConvTranspose3d", in_channels, out_channels, kernel_size, options_));
  weight = parameter("weight", default_weight({in_channels, out_channels / options_.groups, kernel_size.depth,
                                               kernel_size.height, kernel_size.width},
                                              options_.dtype));
  if (options_.bias) bias = parameter("bias", default_bias(out_channels, weight));
}
Tensor ConvTranspose3d::forward(Tensor x) {
  return conv_transpose3d(Operand(x, call_location()), weight, bias,
                          {.stride = options_.stride,
                           .padding = options_.padding,
                           .output_padding = options_.output_padding,
                           .groups = options_.groups,
                           .dilation = options_.dilation});
}

}  // namespace graven::nn
