// What conv2d, its gradients and the packing of its weights share: attributes and sizes.
#pragma once

#include "ir/ops/shared.h"
#include "kernels/config/conv2d.h"
#include "kernels/config/conv2d_bf16.h"
#include "kernels/config/conv2d_winograd.h"
#include "kernels/config/inverted_residual.h"

namespace graven::ir::ops {

/// Positions of the dimensions of an image batch: NCHW, or NHWC when channels_last.
struct ImageLayout {
  std::size_t channels, height, width;
  explicit ImageLayout(bool channels_last)
      : channels(channels_last ? 3 : 1), height(channels_last ? 1 : 2), width(channels_last ? 2 : 3) {}
  Shape shape(const Dim& batch, const Dim& c, const Dim& h, const Dim& w) const {
    Shape s{batch, 0, 0, 0};
    s[channels] = c, s[height] = h, s[width] = w;
    return s;
  }
};

inline AttributeSpec channels_last_attribute() {
  return {"channels_last", AttributeType::boolean, false, "images are [n, h, w, c] instead of [n, c, h, w]"};
}

/// Of a lowered convolution.
inline AttributeSpec weight_by_channels_attribute() {
  return {"weight_by_channels", AttributeType::boolean, false,
          "the weight is [out, h, w, in / groups] instead of [out, in / groups, h, w]"};
}

/// stride, padding, dilation, groups.
inline std::vector<AttributeSpec> window_attributes() {
  return {{"stride", AttributeType::integers, Ints{1, 1}, "of the window, height and width"},
          {"padding", AttributeType::integers, Ints{0, 0}, "zeros above and below, left and right"},
          {"dilation", AttributeType::integers, Ints{1, 1}, "distance between taps"},
          {"groups", AttributeType::integer, std::int64_t{1}, "divides input and output channels"}};
}

inline void check_window(const InferContext& c) {
  checked_list(c, "stride", 2, 1);
  checked_list(c, "padding", 2, 0);
  checked_list(c, "dilation", 2, 1);
  for (const char* key : {"stride", "padding", "dilation"})
    for (std::int64_t v : c.attributes.integers(key))
      c.require(v <= (1 << 24), std::string("'") + key + "' is too large: " + std::to_string(v));
  c.require(c.attributes.integer("groups") >= 1,
            "'groups' must be at least 1, got " + std::to_string(c.attributes.integer("groups")));
}

/// How many windows lie in a dimension: kernels::conv2d_out_size. 0 where at some size none does.
inline Dim windows_in(const Dim& in, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                      std::int64_t dilation) {
  const Dim span = in + Dim(2 * padding - dilation * (kernel - 1) - 1);
  return span.minimum() < 0 ? Dim(0) : floor_divide(span, stride) + 1;
}

/// The sizes behind a node's attributes and an input image.
struct Conv2dSizes {
  kernels::conv2d_config most;  ///< of the largest image, with batch 0
  Dim in_height, in_width, out_height, out_width;
};

/// `weight` is [out, in / groups, kernel_height, kernel_width].
inline Conv2dSizes conv2d_sizes(const Attributes& a, const Dim& in_height, const Dim& in_width, const Ints& weight,
                                bool channels_last) {
  const Ints &stride = a.integers("stride"), &padding = a.integers("padding"), &dilation = a.integers("dilation");
  Conv2dSizes sizes{.most = {},
                    .in_height = in_height,
                    .in_width = in_width,
                    .out_height = windows_in(in_height, weight[2], stride[0], padding[0], dilation[0]),
                    .out_width = windows_in(in_width, weight[3], stride[1], padding[1], dilation[1])};
  kernels::conv2d_config& s = sizes.most;
  s.groups = a.integer("groups");
  s.in_height = in_height.maximum(), s.in_width = in_width.maximum(), s.in_channels = weight[1] * s.groups;
  s.out_height = sizes.out_height.maximum(), s.out_width = sizes.out_width.maximum(), s.out_channels = weight[0];
  s.kernel_height = weight[2], s.kernel_width = weight[3];
  s.stride_height = stride[0], s.stride_width = stride[1];
  s.padding_height = padding[0], s.padding_width = padding[1];
  s.dilation_height = dilation[0], s.dilation_width = dilation[1];
  s.channels_last = channels_last;
  return sizes;
}

/// Of nodes that have passed inference.
inline Conv2dSizes conv2d_forward_sizes(const NodeView& node) {
  const bool channels_last = node.attributes().flag("channels_last");
  const ImageLayout layout(channels_last);
  const Shape& x = node.input(0).shape;
  Conv2dSizes sizes =
      conv2d_sizes(node.attributes(), x[layout.height], x[layout.width], weight_shape(node), channels_last);
  sizes.most.weight_by_channels = has_weight_by_channels(node.attributes());
  return sizes;
}
inline Conv2dSizes conv2d_backward_input_sizes(const NodeView& node) {
  const Shape& size = node.attributes().shape("input_size");
  Conv2dSizes sizes =
      conv2d_sizes(node.attributes(), size[0], size[1], weight_shape(node), node.attributes().flag("channels_last"));
  sizes.most.weight_by_channels = has_weight_by_channels(node.attributes());
  return sizes;
}
inline Conv2dSizes conv2d_backward_weight_sizes(const NodeView& node) {
  const bool channels_last = node.attributes().flag("channels_last");
  const ImageLayout layout(channels_last);
  const Shape& x = node.input(1).shape;
  return conv2d_sizes(node.attributes(), x[layout.height], x[layout.width], node.output().shape.values(),
                      channels_last);
}
/// Of a weight to be packed: the order depends on its shape and the window, not on the image.
inline Conv2dSizes conv2d_packing_sizes(const Attributes& a, const Ints& weight) {
  return conv2d_sizes(a, 0, 0, weight, true);
}

/// The sizes behind conv2d_winograd's attributes and an input image.
struct Conv2dWinogradSizes {
  kernels::conv2d_winograd_config most;  ///< of the largest image, with batch 0
  Dim in_height, in_width, out_height, out_width;
};
/// Of the weight alone.
inline kernels::conv2d_winograd_config conv2d_winograd_weight_sizes(const Attributes& a, const Ints& weight) {
  return {.in_channels = weight[1], .out_channels = weight[0], .tile = a.integer("tile")};
}
inline Conv2dWinogradSizes conv2d_winograd_sizes(const Attributes& a, const Shape& x, const Ints& weight) {
  const Ints& padding = a.integers("padding");
  Conv2dWinogradSizes sizes{.most = conv2d_winograd_weight_sizes(a, weight),
                            .in_height = x[1],
                            .in_width = x[2],
                            .out_height = windows_in(x[1], 3, 1, padding[0], 1),
                            .out_width = windows_in(x[2], 3, 1, padding[1], 1)};
  kernels::conv2d_winograd_config& s = sizes.most;
  s.in_height = x[1].maximum(), s.in_width = x[2].maximum();
  s.out_height = sizes.out_height.maximum(), s.out_width = sizes.out_width.maximum();
  s.padding_height = padding[0], s.padding_width = padding[1];
  return sizes;
}

/// User error where the kernel is beyond reason, or does not fit into an image.
inline void check_conv2d_sizes(const InferContext& c, const Conv2dSizes& sizes) {
  const kernels::conv2d_config& s = sizes.most;
  const bool sane =
      s.kernel_height >= 1 && s.kernel_width >= 1 && s.kernel_height <= (1 << 24) && s.kernel_width <= (1 << 24);
  const std::string kernel = std::to_string(s.kernel_height) + "x" + std::to_string(s.kernel_width);
  c.require(sane, [&] { return "the kernel must be at least 1x1, got " + kernel; });
  c.require(sizes.out_height.minimum() >= 1 && sizes.out_width.minimum() >= 1, [&] {
    const Dim height = sizes.in_height + Dim(2 * s.padding_height), width = sizes.in_width + Dim(2 * s.padding_width);
    return "the kernel " + kernel + " does not fit into the padded image " + height.to_string() + "x" +
           width.to_string() + at_least(sizes.out_height.minimum() < 1 ? sizes.in_height : sizes.in_width);
  });
}

/// Multiply-adds counted as two.
inline double conv2d_flops(const kernels::conv2d_config& s, const Dim& batch) {
  return 2.0 * static_cast<double>(batch.maximum()) * static_cast<double>(s.out_height * s.out_width) *
         static_cast<double>(s.out_channels) * static_cast<double>(s.kernel_height * s.kernel_width) *
         static_cast<double>(s.in_channels / s.groups);
}

/// channels_last behind the window's attributes.
inline std::vector<AttributeSpec> conv2d_attributes() { return join(window_attributes(), {channels_last_attribute()}); }
inline std::vector<AttributeSpec> conv2d_backward_input_attributes() {
  return join(conv2d_attributes(), {{"input_size", AttributeType::shape, {}, "height and width of x"}});
}

/// What packs the weight of a convolution with these attributes.
inline Packing conv2d_packing(const Attributes& a, bool backward) {
  Packing packing{&kPackConv2dWeight, {{"backward", backward}}};
  for (const char* key : {"stride", "padding", "dilation", "groups"}) packing.attributes.set(key, a.at(key));
  return packing;
}

/// The sizes of a convolution's weight (input `weight`).
inline Ints conv2d_weight_sizes(const InferContext& c, std::size_t weight) {
  require_rank(c, weight, 4, "weight");
  Ints sizes;
  for (const Dim& d : c.input(weight).shape) sizes.push_back(fixed(d, "the weight's shape"));
  return sizes;
}

/// The packed weight of conv2d, or of conv2d_backward_input.
inline TensorType packed_conv2d_weight(DType dtype, const kernels::conv2d_config& s, bool backward) {
  const bool bf16 = dtype == DType::bf16;
  const std::int64_t elements =
      backward ? bf16 ? kernels::conv2d_bf16_packed_backward_elements(s) : kernels::conv2d_packed_backward_elements(s)
      : bf16 ? kernels::conv2d_bf16_packed_elements(s)
               : kernels::conv2d_packed_elements(s);
  return {dtype, {elements}};
}

/// The config behind the attributes of inverted_residual and an input image, with batch 0.
inline kernels::inverted_residual_config inverted_residual_sizes(const Attributes& a, const Shape& x) {
  const Ints &kernel = a.integers("kernel_size"), &stride = a.integers("stride"), &padding = a.integers("padding"),
             &dilation = a.integers("dilation");
  kernels::inverted_residual_config s;
  s.in_height = x[1].value(), s.in_width = x[2].value(), s.in_channels = x[3].value();
  s.wide_channels = a.integer("wide_channels"), s.out_channels = a.integer("out_channels");
  s.kernel_height = kernel[0], s.kernel_width = kernel[1];
  s.stride_height = stride[0], s.stride_width = stride[1];
  s.padding_height = padding[0], s.padding_width = padding[1];
  s.dilation_height = dilation[0], s.dilation_width = dilation[1];
  s.out_height =
      kernels::conv2d_out_size(s.in_height, s.kernel_height, s.stride_height, s.padding_height, s.dilation_height);
  s.out_width = kernels::conv2d_out_size(s.in_width, s.kernel_width, s.stride_width, s.padding_width, s.dilation_width);
  return s;
}

}  // namespace graven::ir::ops
