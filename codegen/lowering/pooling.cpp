#include "codegen/lowering/families.h"
#include "ir/ops/pool2d_shared.h"
#include "ir/ops/resample_shared.h"

namespace graven::codegen::lowering {

namespace {

/// `x`: the image on the input's side, `y` that on the output's.
KernelCall pool2d_call(const NodeView& node, std::string name, const Shape& x, const Shape& y) {
  const Attributes& a = node.attributes();
  const bool channels_last = a.flag("channels_last");
  const ops::ImageLayout layout(channels_last);
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
                     {"channels_last", channels_last}}};
}

KernelCall max_pool2d(const NodeView& node) {
  return pool2d_call(node, "max_pool2d", node.input(0).shape, node.output().shape);
}
KernelCall max_pool2d_backward(const NodeView& node) {
  return pool2d_call(node, "max_pool2d_backward", node.output().shape, node.input(0).shape);
}
KernelCall avg_pool2d(const NodeView& node) {
  return pool2d_call(node, "avg_pool2d", node.input(0).shape, node.output().shape);
}
KernelCall avg_pool2d_backward(const NodeView& node) {
  return pool2d_call(node, "avg_pool2d_backward", node.output().shape, node.input(0).shape);
}

KernelCall resample_call(const Attributes& a, std::string name, const Shape& from, const Shape& to) {
  const std::int64_t dim = a.integer("dim");
  const ops::Span3 span = ops::around(from, dim);
  return {.name = std::move(name),
          .file = "resample",
          .config = {{"outer", span.outer},
                     {"in", span.size},
                     {"out", to[static_cast<std::size_t>(dim)]},
                     {"inner", span.inner},
                     {"mode", Dim(ops::resample_mode(a))},
                     {"align_corners", a.flag("align_corners")},
                     {"scale", a.number("scale")}}};
}

KernelCall resample(const NodeView& node) {
  return resample_call(node.attributes(), "resample", node.input(0).shape, node.output().shape);
}
KernelCall resample_backward(const NodeView& node) {
  return resample_call(node.attributes(), "resample_backward", node.output().shape, node.input(0).shape);
}

}  // namespace

std::span<const Row> pooling() {
  static constexpr Row kRows[] = {
      {&ir::kAvgPool2d, avg_pool2d}, {&ir::kAvgPool2dBackward, avg_pool2d_backward},
      {&ir::kMaxPool2d, max_pool2d}, {&ir::kMaxPool2dBackward, max_pool2d_backward},
      {&ir::kResample, resample},    {&ir::kResampleBackward, resample_backward},
  };
  return kRows;
}

}  // namespace graven::codegen::lowering
