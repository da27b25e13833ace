#include "codegen/lowering/families.h"
#include "ir/ops/conv2d_shared.h"

namespace graven::codegen::lowering {

namespace {

KernelCall conv2d_call(std::string name, const ops::Conv2dSizes& sizes, const Dim& batch) {
  const kernels::conv2d_config& s = sizes.most;
  return {.name = std::move(name),
          .file = "conv2d",
          .config = {{"batch", batch},
                     {"in_height", sizes.in_height},
                     {"in_width", sizes.in_width},
                     {"in_channels", Dim(s.in_channels)},
                     {"out_height", sizes.out_height},
                     {"out_width", sizes.out_width},
                     {"out_channels", Dim(s.out_channels)},
                     {"kernel_height", Dim(s.kernel_height)},
                     {"kernel_width", Dim(s.kernel_width)},
                     {"stride_height", Dim(s.stride_height)},
                     {"stride_width", Dim(s.stride_width)},
                     {"padding_height", Dim(s.padding_height)},
                     {"padding_width", Dim(s.padding_width)},
                     {"dilation_height", Dim(s.dilation_height)},
                     {"dilation_width", Dim(s.dilation_width)},
                     {"groups", Dim(s.groups)},
                     {"channels_last", s.channels_last},
                     {"weight_by_channels", s.weight_by_channels},
                     {"measured", false},
                     {"tf32", false},
                     {"algorithm", Dim(0)}}};
}

KernelCall conv2d(const NodeView& node) {
  return conv2d_call("conv2d", ops::conv2d_forward_sizes(node), node.input(0).shape[0]);
}

KernelCall conv2d_backward_input(const NodeView& node) {
  return conv2d_call("conv2d_backward_input", ops::conv2d_backward_input_sizes(node), node.input(0).shape[0]);
}

KernelCall conv2d_backward_weight(const NodeView& node) {
  return conv2d_call("conv2d_backward_weight", ops::conv2d_backward_weight_sizes(node), node.input(1).shape[0]);
}

KernelCall pack_conv2d_weight(const NodeView& node) {
  return conv2d_call(node.attributes().flag("backward") ? "pack_conv2d_weight_backward" : "pack_conv2d_weight",
                     ops::conv2d_packing_sizes(node.attributes(), node.input(0).shape.values()), 0);
}

KernelCall winograd_call(std::string name, const ops::Conv2dWinogradSizes& sizes, const Dim& batch) {
  const kernels::conv2d_winograd_config& s = sizes.most;
  return {.name = std::move(name),
          .file = "conv2d_winograd",
          .config = {{"batch", batch},
                     {"in_height", sizes.in_height},
                     {"in_width", sizes.in_width},
                     {"in_channels", Dim(s.in_channels)},
                     {"out_height", sizes.out_height},
                     {"out_width", sizes.out_width},
                     {"out_channels", Dim(s.out_channels)},
                     {"padding_height", Dim(s.padding_height)},
                     {"padding_width", Dim(s.padding_width)},
                     {"tile", Dim(s.tile)}}};
}

KernelCall conv2d_winograd(const NodeView& node) {
  const Shape& x = node.input(0).shape;
  return winograd_call("conv2d_winograd", ops::conv2d_winograd_sizes(node.attributes(), x, ops::weight_shape(node)),
                       x[0]);
}

KernelCall pack_conv2d_winograd_weight(const NodeView& node) {
  return winograd_call("pack_conv2d_winograd_weight",
                       {.most = ops::conv2d_winograd_weight_sizes(node.attributes(), node.input(0).shape.values()),
                        .in_height = 0,
                        .in_width = 0,
                        .out_height = 0,
                        .out_width = 0},
                       0);
}

KernelCall inverted_residual(const NodeView& node) {
  const kernels::inverted_residual_config s = ops::inverted_residual_sizes(node.attributes(), node.input(0).shape);
  return {.name = "inverted_residual",
          .config = {{"batch", node.input(0).shape[0]},
                     {"in_height", Dim(s.in_height)},
                     {"in_width", Dim(s.in_width)},
                     {"in_channels", Dim(s.in_channels)},
                     {"wide_channels", Dim(s.wide_channels)},
                     {"out_height", Dim(s.out_height)},
                     {"out_width", Dim(s.out_width)},
                     {"out_channels", Dim(s.out_channels)},
                     {"kernel_height", Dim(s.kernel_height)},
                     {"kernel_width", Dim(s.kernel_width)},
                     {"stride_height", Dim(s.stride_height)},
                     {"stride_width", Dim(s.stride_width)},
                     {"padding_height", Dim(s.padding_height)},
                     {"padding_width", Dim(s.padding_width)},
                     {"dilation_height", Dim(s.dilation_height)},
                     {"dilation_width", Dim(s.dilation_width)}}};
}

}  // namespace

std::span<const Row> convolutions() {
  static constexpr Row kRows[] = {
      {&ir::kConv2d, conv2d},
      {&ir::kConv2dBackwardInput, conv2d_backward_input},
      {&ir::kConv2dBackwardWeight, conv2d_backward_weight},
      {&ir::kConv2dWinograd, conv2d_winograd},
      {&ir::kInvertedResidual, inverted_residual},
      {&ir::kPackConv2dWeight, pack_conv2d_weight},
      {&ir::kPackConv2dWinogradWeight, pack_conv2d_winograd_weight},
  };
  return kRows;
}

}  // namespace graven::codegen::lowering
