#include "codegen/lowering/families.h"
#include "kernels/config/pad_border.h"

namespace graven::codegen::lowering {

namespace {

/// `strided_copy`: the tensor of `shape` read with these strides from `offset`; neighbouring dimensions that lie one
/// behind the other are merged.
KernelCall strided_copy(const Shape& shape, const std::vector<Dim>& strides, Dim offset) {
  std::vector<Dim> dims, steps;
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    if (shape[d] == Dim(1)) continue;
    if (!dims.empty() && steps.back() == strides[d] * shape[d]) {
      dims.back() = dims.back() * shape[d];
      steps.back() = strides[d];
      continue;
    }
    dims.push_back(shape[d]);
    steps.push_back(strides[d]);
  }
  if (dims.empty()) dims = {1}, steps = {1};
  const auto rank = static_cast<std::int64_t>(dims.size());
  return {.name = "strided_copy",
          .file = "strided_copy",
          .config = {{"rank", Dim(rank)}, {"shape", dims}, {"strides", steps}, {"offset", offset}}};
}

KernelCall copy(const NodeView& node) {
  const Shape& shape = node.input(0).shape;
  return strided_copy(shape, contiguous_strides(shape), 0);
}

KernelCall expand(const NodeView& node) {
  const Shape& from = node.input(0).shape;
  const Shape& to = node.output().shape;
  const std::vector<Dim> own = contiguous_strides(from);
  const std::size_t extra = to.rank() - from.rank();
  std::vector<Dim> strides;
  for (std::size_t d = 0; d < to.rank(); ++d)
    strides.push_back(d < extra || from[d - extra] != to[d] ? Dim(0) : own[d - extra]);
  return strided_copy(to, strides, 0);
}

KernelCall flip(const NodeView& node) {
  const Shape& shape = node.input(0).shape;
  std::vector<Dim> strides = contiguous_strides(shape);
  Dim offset = 0;
  for (const std::int64_t dim : node.attributes().integers("dims")) {
    const auto d = static_cast<std::size_t>(dim);
    if (shape[d] != Dim(0)) offset = offset + strides[d] * (shape[d] - 1);
    strides[d] = strides[d] * Dim(-1);
  }
  return strided_copy(shape, strides, offset);
}

KernelCall as_strided(const NodeView& node) {
  std::vector<Dim> strides;
  for (const std::int64_t s : node.attributes().integers("strides")) strides.emplace_back(s);
  return strided_copy(node.output().shape, strides, node.attributes().integer("offset"));
}

KernelCall permute(const NodeView& node) {
  const std::vector<Dim> from = contiguous_strides(node.input(0).shape);
  std::vector<Dim> strides;
  for (std::int64_t d : node.attributes().integers("dims")) strides.push_back(from[static_cast<std::size_t>(d)]);
  return strided_copy(node.output().shape, strides, 0);
}

KernelCall slice(const NodeView& node) {
  std::vector<Dim> strides = contiguous_strides(node.input(0).shape);
  const auto dim = static_cast<std::size_t>(node.attributes().integer("dim"));
  const Shape bounds = node.attributes().shape("bounds");
  const Dim start = bounds.empty() ? Dim(node.attributes().integer("start")) : bounds[0];
  const Dim offset = strides[dim] * start;
  strides[dim] = strides[dim] * Dim(node.attributes().integer("step"));
  return strided_copy(node.output().shape, strides, offset);
}

KernelCall cat(const NodeView& node) {
  const ops::Span3 span = ops::around(node.output().shape, node.attributes().integer("dim"));
  KernelCall call{.name = "concat", .config = {{"outer", span.outer}, {"inner", span.inner}}};
  for (std::size_t i = 0; i < node.input_count(); ++i)
    call.sizes.push_back(node.input(i).shape[static_cast<std::size_t>(node.attributes().integer("dim"))]);
  return call;
}

KernelCall pad(const NodeView& node) {
  const Ints& pads = node.attributes().integers("pads");
  std::vector<Dim> shape, in_shape, before;
  for (std::size_t d = 0; d < node.output().shape.rank(); ++d) {
    const Dim to = node.output().shape[d], from = node.input(0).shape[d];
    const bool plain = pads[2 * d] == 0 && pads[2 * d + 1] == 0;
    if (plain && !shape.empty()) {
      // What is not padded belongs to the elements of the dimension before it.
      shape.back() = shape.back() * to;
      in_shape.back() = in_shape.back() * from;
      before.back() = before.back() * from;
      continue;
    }
    shape.push_back(to);
    in_shape.push_back(from);
    before.push_back(pads[2 * d]);
  }
  if (shape.empty()) shape = in_shape = {1}, before = {0};
  return {.name = "pad",
          .config = {{"rank", Dim(static_cast<std::int64_t>(shape.size()))},
                     {"shape", shape},
                     {"in_shape", in_shape},
                     {"before", before},
                     {"value", node.attributes().number("value")}}};
}

std::int64_t border_mode(const Attributes& a) {
  const std::string& mode = a.text("mode");
  return mode == "reflect"     ? kernels::kPadReflect
         : mode == "replicate" ? kernels::kPadReplicate
                               : kernels::kPadCircular;
}

/// For x of `from` and y of `to`: leading dimensions without padding become one, those at the end become `inner`.
KernelCall border_call(const Attributes& a, std::string name, const Shape& from, const Shape& to) {
  const Ints& pads = a.integers("pads");
  std::vector<Dim> shape, in_shape, before;
  std::size_t rank = to.rank();
  Dim inner = 1;
  const auto plain = [&](std::size_t d) { return pads[2 * d] == 0 && pads[2 * d + 1] == 0; };
  while (rank > 0 && plain(rank - 1)) inner = inner * to[--rank];
  for (std::size_t d = 0; d < rank; ++d) {
    if (plain(d) && d > 0 && plain(d - 1)) {
      shape.back() = shape.back() * to[d];
      in_shape.back() = in_shape.back() * from[d];
      continue;
    }
    shape.push_back(to[d]);
    in_shape.push_back(from[d]);
    before.push_back(pads[2 * d]);
  }
  if (shape.empty()) shape = in_shape = {1}, before = {0};
  return {.name = std::move(name),
          .file = "pad_border",
          .config = {{"rank", Dim(static_cast<std::int64_t>(shape.size()))},
                     {"shape", shape},
                     {"in_shape", in_shape},
                     {"before", before},
                     {"inner", inner},
                     {"mode", Dim(border_mode(a))}}};
}

KernelCall pad_border(const NodeView& node) {
  return border_call(node.attributes(), "pad_border", node.input(0).shape, node.output().shape);
}
KernelCall pad_border_backward(const NodeView& node) {
  return border_call(node.attributes(), "pad_border_backward", node.output().shape, node.input(0).shape);
}

KernelCall full(const NodeView& node) {
  return {.name = "fill",
          .file = "elementwise",
          .config_type = "fill_config",
          .config = {{"n", node.output().shape.numel()}, {"value", node.attributes().number("value")}}};
}

KernelCall arange(const NodeView& node) {
  return {.name = "arange",
          .config = {{"n", node.output().shape.numel()},
                     {"start", node.attributes().number("start")},
                     {"step", node.attributes().number("step")}}};
}

KernelCall size(const NodeView& node) {
  return {.name = "size", .config = {{"n", node.attributes().shape("shape")[0]}}};
}

KernelCall causal_mask(const NodeView& node) {
  return {.name = "causal_mask", .config = {{"queries", node.output().shape[0]}, {"keys", node.output().shape[1]}}};
}

}  // namespace

std::span<const Row> movement() {
  static constexpr Row kRows[] = {
      {&ir::kArange, arange},
      {&ir::kAsStrided, as_strided},
      {&ir::kCat, cat},
      {&ir::kCausalMask, causal_mask},
      {&ir::kCopy, copy},
      {&ir::kExpand, expand},
      {&ir::kFlip, flip},
      {&ir::kFull, full},
      {&ir::kFusedElementwise, elementwise},
      {&ir::kPad, pad},
      {&ir::kPadBorder, pad_border},
      {&ir::kPadBorderBackward, pad_border_backward},
      {&ir::kPermute, permute},
      {&ir::kSize, size},
      {&ir::kSlice, slice},
  };
  return kRows;
}

}  // namespace graven::codegen::lowering
