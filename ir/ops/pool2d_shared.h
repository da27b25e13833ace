// What max_pool2d, avg_pool2d and their gradients share: attributes, sizes, pool2d_config.
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

/// Checks the attributes (and fills in the stride) and gives the sizes for this input, with batch 0.
inline kernels::pool2d_config infer_pool2d(InferContext& c, const Shape& x) {
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
  kernels::pool2d_config s;
  s.channels = fixed(x[layout.channels], "the number of channels");
  s.in_height = fixed(x[layout.height], "the image's height"), s.in_width = fixed(x[layout.width], "the image's width");
  s.kernel_height = kernel[0], s.kernel_width = kernel[1];
  s.stride_height = stride[0], s.stride_width = stride[1];
  s.padding_height = padding[0], s.padding_width = padding[1];
  s.dilation_height = dilation[0], s.dilation_width = dilation[1];
  s.count_include_pad = c.attributes.find("count_include_pad") ? c.attributes.flag("count_include_pad") : true;
  s.channels_last = channels_last;
  s.out_height = kernels::pool2d_out_size(s.in_height, s.kernel_height, s.stride_height, s.padding_height,
                                          s.dilation_height, ceil_mode);
  s.out_width = kernels::pool2d_out_size(s.in_width, s.kernel_width, s.stride_width, s.padding_width, s.dilation_width,
                                         ceil_mode);
  c.require(s.out_height >= 1 && s.out_width >= 1,
            "the window " + std::to_string(kernel[0]) + "x" + std::to_string(kernel[1]) +
                " does not fit into the padded image " + std::to_string(s.in_height + 2 * padding[0]) + "x" +
                std::to_string(s.in_width + 2 * padding[1]));
  return s;
}

/// The call for a node whose image of the input side is `x` and of the output side is `y`.
inline KernelCall pool2d_call(const NodeView& node, std::string name, const Shape& x, const Shape& y) {
  const Attributes& a = node.attributes();
  const bool channels_last = a.flag("channels_last");
  const ImageLayout layout(channels_last);
  const Ints &kernel = a.integers("kernel_size"), &stride = a.integers("stride"), &padding = a.integers("padding");
  const Ints dilation = a.find("dilation") ? a.integers("dilation") : Ints{1, 1};
  return {.name = std::move(name),
          .file = "pool2d",
          .config = {{"batch", x[0]},
                     {"channels", x[layout.channels]},
                     {"in_height", x[layout.height]},
                     {"in_width", x[layout.width]},
                     {"out_height", y[layout.height]},
                     {"out_width", y[layout.width]},
                     {"kernel_height", Dim(kernel[0])},
                     {"kernel_width", Dim(kernel[1])},
                     {"stride_height", Dim(stride[0])},
                     {"stride_width", Dim(stride[1])},
                     {"padding_height", Dim(padding[0])},
                     {"padding_width", Dim(padding[1])},
                     {"dilation_height", Dim(dilation[0])},
                     {"dilation_width", Dim(dilation[1])},
                     {"count_include_pad", a.find("count_include_pad") ? a.flag("count_include_pad") : true},
                     {"channels_last", channels_last}},
          .reference = !channels_last || !all_f32(node)};
}

/// The attributes of a pooling node that its gradient needs, and the input's shape.
inline Attributes pool2d_backward_attributes(const Attributes& forward, const Shape& x) {
  Attributes a = forward;
  a.set("input_shape", x);
  return a;
}

/// Checks 'input_shape' and dy of a gradient; one output of that shape.
inline void infer_pool2d_backward(InferContext& c) {
  require_floating(c, 0);
  const TensorType& dy = c.input(0);
  const Shape x = c.attributes.shape("input_shape");
  c.require(x.rank() == 4, "'input_shape' must have 4 dimensions, got " + x.to_string());
  const kernels::pool2d_config s = infer_pool2d(c, x);
  const Shape expected = ImageLayout(s.channels_last).shape(x[0], s.channels, s.out_height, s.out_width);
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
