#include "graven/layers/pooling.h"

#include "frontend/layers/arguments.h"

namespace graven::nn {

namespace {

std::string text(std::int64_t n) { return std::to_string(n); }
std::string text(Size2 s) { return arguments::tuple(s); }
std::string text(Size3 s) {
  return s == Size3(s.depth) ? std::to_string(s.depth)
                             : arguments::tuple(std::vector<std::int64_t>{s.depth, s.height, s.width});
}
template <class Size, class Options>
std::string maximum(Size kernel, const Options& o) {
  return fmt::format("kernel_size={}, stride={}, padding={}, dilation={}, ceil_mode={}", text(kernel),
                     text(o.stride.value_or(kernel)), text(o.padding), text(o.dilation),
                     arguments::python(o.ceil_mode));
}
template <class Size, class Options>
std::string average(Size kernel, const Options& o) {
  return fmt::format("kernel_size={}, stride={}, padding={}", text(kernel), text(o.stride.value_or(kernel)),
                     text(o.padding));
}
std::string power(double norm_type, const std::string& kernel, const std::optional<std::string>& stride,
                  bool ceil_mode) {
  return fmt::format("norm_type={}, kernel_size={}, stride={}, ceil_mode={}", arguments::number(norm_type), kernel,
                     stride.value_or("None"), arguments::python(ceil_mode));
}

}  // namespace

MaxPool2d::MaxPool2d(Size2 kernel_size, MaxPool2dOptions options) : kernel_size_(kernel_size), options_(options) {
  const Size2 stride = options.stride.value_or(kernel_size);
  arguments::require_window("MaxPool2d", kernel_size, stride, options.padding, options.dilation);
  set_arguments(maximum(kernel_size, options));
}
Tensor MaxPool2d::forward(Tensor x) { return max_pool2d(Operand(x, call_location()), kernel_size_, options_); }

AvgPool2d::AvgPool2d(Size2 kernel_size, AvgPool2dOptions options) : kernel_size_(kernel_size), options_(options) {
  const Size2 stride = options.stride.value_or(kernel_size);
  arguments::require_window("AvgPool2d", kernel_size, stride, options.padding, Size2(1));
  set_arguments(average(kernel_size, options));
}
Tensor AvgPool2d::forward(Tensor x) { return avg_pool2d(Operand(x, call_location()), kernel_size_, options_); }

AdaptiveAvgPool2d::AdaptiveAvgPool2d(Size2 output_size) : output_size_(output_size) {
  arguments::require_at_least(1, "AdaptiveAvgPool2d", "output_size", output_size);
  set_arguments("output_size=" + arguments::tuple(output_size));
}
Tensor AdaptiveAvgPool2d::forward(Tensor x) { return adaptive_avg_pool2d(Operand(x, call_location()), output_size_); }

MaxPool1d::MaxPool1d(std::int64_t kernel_size, MaxPool1dOptions options)
    : kernel_size_(kernel_size), options_(options) {
  set_arguments(maximum(kernel_size, options));
}
Tensor MaxPool1d::forward(Tensor x) { return max_pool1d(Operand(x, call_location()), kernel_size_, options_); }
MaxPool3d::MaxPool3d(Size3 kernel_size, MaxPool3dOptions options) : kernel_size_(kernel_size), options_(options) {
  set_arguments(maximum(kernel_size, options));
}
Tensor MaxPool3d::forward(Tensor x) { return max_pool3d(Operand(x, call_location()), kernel_size_, options_); }
AvgPool1d::AvgPool1d(std::int64_t kernel_size, AvgPool1dOptions options)
    : kernel_size_(kernel_size), options_(options) {
  const auto one = [](std::int64_t n) { return arguments::tuple(std::vector<std::int64_t>{n}); };
  set_arguments(fmt::format("kernel_size={}, stride={}, padding={}", one(kernel_size),
                            one(options.stride.value_or(kernel_size)), one(options.padding)));
}
Tensor AvgPool1d::forward(Tensor x) { return avg_pool1d(Operand(x, call_location()), kernel_size_, options_); }
AvgPool3d::AvgPool3d(Size3 kernel_size, AvgPool3dOptions options) : kernel_size_(kernel_size), options_(options) {
  set_arguments(average(kernel_size, options));
}
Tensor AvgPool3d::forward(Tensor x) { return avg_pool3d(Operand(x, call_location()), kernel_size_, options_); }
AdaptiveAvgPool1d::AdaptiveAvgPool1d(std::int64_t output_size) : output_size_(output_size) {
  set_arguments("output_size=" + text(output_size));
}
Tensor AdaptiveAvgPool1d::forward(Tensor x) { return adaptive_avg_pool1d(Operand(x, call_location()), output_size_); }
AdaptiveAvgPool3d::AdaptiveAvgPool3d(Size3 output_size) : output_size_(output_size) {
  set_arguments("output_size=" + text(output_size));
}
Tensor AdaptiveAvgPool3d::forward(Tensor x) { return adaptive_avg_pool3d(Operand(x, call_location()), output_size_); }
AdaptiveMaxPool1d::AdaptiveMaxPool1d(std::int64_t output_size) : output_size_(output_size) {
  set_arguments("output_size=" + text(output_size));
}
Tensor AdaptiveMaxPool1d::forward(Tensor x) { return adaptive_max_pool1d(Operand(x, call_location()), output_size_); }
AdaptiveMaxPool2d::AdaptiveMaxPool2d(Size2 output_size) : output_size_(output_size) {
  set_arguments("output_size=" + text(output_size));
}
Tensor AdaptiveMaxPool2d::forward(Tensor x) { return adaptive_max_pool2d(Operand(x, call_location()), output_size_); }
AdaptiveMaxPool3d::AdaptiveMaxPool3d(Size3 output_size) : output_size_(output_size) {
  set_arguments("output_size=" + text(output_size));
}
Tensor AdaptiveMaxPool3d::forward(Tensor x) { return adaptive_max_pool3d(Operand(x, call_location()), output_size_); }
LPPool1d::LPPool1d(double norm_type, std::int64_t kernel_size, std::optional<std::int64_t> stride, bool ceil_mode)
    : norm_type_(norm_type), kernel_size_(kernel_size), stride_(stride), ceil_mode_(ceil_mode) {
  set_arguments(power(norm_type, text(kernel_size), stride ? std::optional(text(*stride)) : std::nullopt, ceil_mode));
}
Tensor LPPool1d::forward(Tensor x) {
  return lp_pool1d(Operand(x, call_location()), norm_type_, kernel_size_, stride_, ceil_mode_);
}
LPPool2d::LPPool2d(double norm_type, Size2 kernel_size, std::optional<Size2> stride, bool ceil_mode)
    : norm_type_(norm_type), kernel_size_(kernel_size), stride_(stride), ceil_mode_(ceil_mode) {
  set_arguments(power(norm_type, text(kernel_size), stride ? std::optional(text(*stride)) : std::nullopt, ceil_mode));
}
Tensor LPPool2d::forward(Tensor x) {
  return lp_pool2d(Operand(x, call_location()), norm_type_, kernel_size_, stride_, ceil_mode_);
}

MaxUnpool2d::MaxUnpool2d(Size2 kernel_size, MaxUnpool2dLayerOptions options) : kernel_(kernel_size), options_(options) {
  set_arguments(fmt::format("kernel_size={}, stride={}, padding={}", arguments::pair(kernel_size),
                            arguments::pair(options.stride.value_or(kernel_size)), arguments::pair(options.padding)));
}
Tensor MaxUnpool2d::forward(Tensor x, Tensor indices, std::optional<Size2> output_size) {
  return max_unpool2d(Operand(x, call_location()), indices, kernel_,
                      {.stride = options_.stride, .padding = options_.padding, .output_size = output_size});
}

}  // namespace graven::nn
