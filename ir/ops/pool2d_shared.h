// What max_pool2d, avg_pool2d and their gradients share: attributes and sizes.
#pragma once

#include "ir/ops/conv2d_shared.h"
#include "kernels/config/pool2d.h"

namespace graven::ir::ops {

/// kernel_size, stride (empty: the kernel's size, as in PyTorch), padding, channels_last; of maximum pooling also
/// dilation.
inline std::vector<AttributeSpec> pool2d_attributes(bool maximum) {
  const AttributeSpec own =
      maximum
          ? AttributeSpec{"dilation", AttributeType::integers, Ints{1, 1}, "distance between taps"}
          : AttributeSpec{"count_include_pad", AttributeType::boolean, true, "whether padding counts in the divisor"};
  return {{"kernel_size", AttributeType::integers, {}, "of the window, height and width"},
          {"stride", AttributeType::integers, Ints{}, "of the window; empty: kernel_size"},
          {"padding", AttributeType::integers, Ints{0, 0}, "at most half the kernel"},
          own,
          {"ceil_mode", AttributeType::boolean, false, "round the output size up"},
          channels_last_attribute()};
}

/// How many windows lie in a dimension: kernels::pool2d_out_size. User error where, with ceil_mode, no expression says
/// that.
inline Dim pool2d_windows(const InferContext& c, const Dim& in, std::int64_t kernel, std::int64_t stride,
                          std::int64_t padding, std::int64_t dilation, bool ceil_mode) {
  if (in.is_static()) return kernels::pool2d_out_size(in.value(), kernel, stride, padding, dilation, ceil_mode);
  const Dim span = in + Dim(2 * padding - dilation * (kernel - 1) - 1);
  if (span.minimum() < 0) return 0;
  if (!ceil_mode) return floor_divide(span, stride) + 1;
  // The last window must not begin behind the image and its left padding.
  const Dim out = floor_divide(span + Dim(stride - 1), stride) + 1, beyond = (out - 1) * stride - in - Dim(padding);
  if (beyond.maximum() < 0) return out;
  c.require(beyond.minimum() >= 0,
            [&] { return "with ceil_mode the number of windows in " + in.to_string() + " is no expression of it"; });
  return out - 1;
}

struct Pool2dSizes {
  std::int64_t kernel_height, kernel_width;
  Shape out;  ///< y's
};

/// Checks the attributes (and fills in the stride) and gives the sizes for this input.
inline Pool2dSizes infer_pool2d(InferContext& c, const Shape& x) {
  const Ints kernel = checked_list(c, "kernel_size", 2, 1);
  if (c.attributes.integers("stride").empty()) c.attributes.set("stride", kernel);
  const Ints stride = checked_list(c, "stride", 2, 1), padding = checked_list(c, "padding", 2, 0);
  const Ints dilation = c.attributes.find("dilation") ? checked_list(c, "dilation", 2, 1) : Ints{1, 1};
  for (std::size_t i = 0; i < 2; ++i) {
    c.require(padding[i] <= kernel[i] / 2, "'padding' must be at most half of the kernel's " +
                                               std::to_string(kernel[i]) + ", got " + std::to_string(padding[i]));
    c.require(kernel[i] <= (1 << 24) && stride[i] <= (1 << 24) && dilation[i] <= (1 << 24), "the window is too large");
  }
  const bool channels_last = c.attributes.flag("channels_last"), ceil_mode = c.attributes.flag("ceil_mode");
  const ImageLayout layout(channels_last);
  const Dim &height = x[layout.height], &width = x[layout.width];
  const Dim out_height = pool2d_windows(c, height, kernel[0], stride[0], padding[0], dilation[0], ceil_mode),
            out_width = pool2d_windows(c, width, kernel[1], stride[1], padding[1], dilation[1], ceil_mode);
  c.require(out_height.minimum() >= 1 && out_width.minimum() >= 1, [&] {
    return "the window " + std::to_string(kernel[0]) + "x" + std::to_string(kernel[1]) +
           " does not fit into the padded image " + (height + Dim(2 * padding[0])).to_string() + "x" +
           (width + Dim(2 * padding[1])).to_string() + at_least(out_height.minimum() < 1 ? height : width);
  });
  const std::int64_t channels = fixed(x[layout.channels], "the number of channels");
  return {kernel[0], kernel[1], layout.shape(x[0], channels, out_height, out_width)};
}

/// The attributes of a pooling node that its gradient needs, and the input's shape.
inline Attributes pool2d_backward_attributes(const Attributes& forward, const Shape& x) {
  Attributes a = forward;
  a.set("input_shape", x);
  return a;
}

/// Checks 'input_shape' and dy of a gradient; one output of that shape.
inline void infer_pool2d_backward(InferContext& c) {
  const TensorType& dy = c.input(0);
  const Shape x = c.attributes.shape("input_shape");
  c.require(x.rank() == 4, "'input_shape' must have 4 dimensions, got " + x.to_string());
  const Shape expected = infer_pool2d(c, x).out;
  c.require(dy.shape == expected, "dy must be " + describe(dy.dtype, expected) + ", got " + dy.to_string());
  c.output(dy.dtype, x);
}

inline double pool2d_flops(const NodeView& node, const Shape& y) {
  const Ints& kernel = node.attributes().integers("kernel_size");
  return static_cast<double>(y.numel().maximum()) * static_cast<double>(kernel[0]) * static_cast<double>(kernel[1]);
}

/// Windows that overlap, leave gaps, reach into the padding and beyond it.
inline std::vector<TestCase> pool2d_cases(bool maximum) {
  std::vector<TestCase> cases;
  auto add = [&](std::string note, DType dtype, Shape x, Attributes attributes) {
    cases.push_back(
        {.note = std::move(note), .inputs = {random(dtype, std::move(x), -4, 4)}, .attributes = std::move(attributes)});
  };
  const Ints two{2, 2}, three{3, 3}, one{1, 1};
  add("2x2", DType::f32, {2, 3, 6, 8}, {{"kernel_size", two}});
  add("3x3 stride 2 same", DType::f32, {1, 5, 7, 9}, {{"kernel_size", three}, {"stride", two}, {"padding", one}});
  add("overlapping", DType::f32, {1, 2, 6, 5}, {{"kernel_size", three}, {"stride", one}});
  add("gaps", DType::f32, {1, 2, 9, 9}, {{"kernel_size", two}, {"stride", Ints{3, 4}}});
  add("ceil", DType::f32, {1, 2, 6, 7}, {{"kernel_size", three}, {"stride", two}, {"ceil_mode", true}});
  add("ceil with padding", DType::f32, {1, 17, 6, 7},
      {{"kernel_size", three}, {"stride", two}, {"padding", one}, {"ceil_mode", true}});
  add("whole image", DType::f32, {2, 3, 4, 5}, {{"kernel_size", Ints{4, 5}}});
  add("channels last", DType::f32, {2, 6, 7, 18},
      {{"kernel_size", three}, {"stride", two}, {"padding", one}, {"channels_last", true}});
  add("empty batch", DType::f32, {0, 3, 6, 8}, {{"kernel_size", two}});
  if (maximum)
    add("dilated", DType::f32, {1, 2, 9, 9},
        {{"kernel_size", three}, {"stride", two}, {"dilation", two}, {"padding", one}});
  else
    add("padding left out", DType::f32, {1, 2, 7, 7},
        {{"kernel_size", three}, {"stride", two}, {"padding", one}, {"count_include_pad", false}});
  for (DType d : kFloats) add(std::string(name(d)), d, {1, 2, 4, 6}, {{"kernel_size", two}});
  return cases;
}

}  // namespace graven::ir::ops
