#include "codegen/lowering/families.h"

namespace graven::codegen::lowering {

std::vector<Dim> contiguous_strides(const Shape& shape) {
  std::vector<Dim> strides(shape.rank());
  Dim next = 1;
  for (std::size_t d = shape.rank(); d-- > 0;) {
    strides[d] = next;
    next = next * shape[d];
  }
  return strides;
}

KernelCall elementwise(const NodeView& node) {
  const Shape& shape = node.output().shape;
  const std::size_t count = node.input_count();
  KernelCall call;
  bool same = true;
  for (std::size_t i = 0; i < count; ++i) {
    if (node.input(i).shape != shape) {
      same = false;
    } else if (ir::size_of(node.input(i).dtype) == ir::size_of(node.output().dtype)) {
      call.in_place.push_back(static_cast<std::int32_t>(i));
    }
  }
  call.file = "elementwise";
  if (same) {
    call.name = "elementwise";
    call.config = {{"n", shape.numel()}};
    return call;
  }
  // Strides of each input over the output's dimensions, 0 where it is broadcast; neighbours merge where they lie one
  // behind the other in every input.
  std::vector<Dim> dims;
  std::vector<std::vector<Dim>> strides(count), merged(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Shape& from = node.input(i).shape;
    const std::vector<Dim> own = contiguous_strides(from);
    const std::size_t extra = shape.rank() - from.rank();
    for (std::size_t d = 0; d < shape.rank(); ++d)
      strides[i].push_back(d < extra || from[d - extra] != shape[d] ? Dim(0) : own[d - extra]);
  }
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    if (shape[d] == Dim(1)) continue;
    bool merges = !dims.empty();
    for (std::size_t i = 0; i < count && merges; ++i) merges = merged[i].back() == strides[i][d] * shape[d];
    if (merges)
      dims.back() = dims.back() * shape[d];
    else
      dims.push_back(shape[d]);
    for (std::size_t i = 0; i < count; ++i) {
      if (merges)
        merged[i].back() = strides[i][d];
      else
        merged[i].push_back(strides[i][d]);
    }
  }
  if (dims.empty()) {
    dims = {1};
    for (auto& m : merged) m = {0};
  }
  call.name = "broadcast";
  call.config_type = "broadcast_config";
  call.config = {{"rank", Dim(static_cast<std::int64_t>(dims.size()))}, {"shape", dims}, {"strides", merged}};
  return call;
}

}  // namespace graven::codegen::lowering
