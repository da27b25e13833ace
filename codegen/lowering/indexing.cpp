#include "codegen/lowering/families.h"

namespace graven::codegen::lowering {

namespace {

KernelCall gather_call(const NodeView& node, std::string name) {
  const Shape &x = node.input(0).shape, &index = node.input(1).shape;
  const bool scalar = x.rank() == 0;
  return {.name = std::move(name),
          .file = "index",
          .config_type = "gather_config",
          .config = {{"rank", Dim(scalar ? 1 : static_cast<std::int64_t>(x.rank()))},
                     {"dim", Dim(node.attributes().integer("dim"))},
                     {"shape", scalar ? std::vector<Dim>{1} : index.dims()},
                     {"x_shape", scalar ? std::vector<Dim>{1} : x.dims()}},
          .checks_data = true};
}

KernelCall gather(const NodeView& node) { return gather_call(node, "gather"); }

KernelCall scatter_call(const NodeView& node, std::string name) {
  KernelCall call = gather_call(node, std::move(name));
  call.in_place = {0};
  return call;
}

KernelCall scatter(const NodeView& node) { return scatter_call(node, "scatter"); }
KernelCall scatter_add(const NodeView& node) { return scatter_call(node, "scatter_add"); }

KernelCall slices_call(std::string name, const ops::Span3& x, const Dim& count, std::int64_t skipped) {
  return {
      .name = std::move(name),
      .file = "index",
      .config_type = "index_select_config",
      .config = {{"outer", x.outer}, {"size", x.size}, {"inner", x.inner}, {"count", count}, {"skipped", Dim(skipped)}},
      .checks_data = true};
}

KernelCall index_select(const NodeView& node) {
  return slices_call("index_select", ops::around(node.input(0).shape, node.attributes().integer("dim")),
                     node.input(1).shape[0], -1);
}

KernelCall embedding(const NodeView& node) {
  const Shape& weight = node.input(0).shape;
  return slices_call("index_select", {.outer = 1, .size = weight[0], .inner = weight[1]}, node.input(1).shape.numel(),
                     -1);
}

KernelCall index_add(const NodeView& node) {
  KernelCall call = slices_call("index_add", ops::around(node.output().shape, node.attributes().integer("dim")),
                                node.input(1).shape[0], node.attributes().integer("skipped"));
  if (node.has_input(2)) call.in_place = {2};
  return call;
}

KernelCall one_hot(const NodeView& node) {
  return {.name = "one_hot",
          .file = "index",
          .config_type = "one_hot_config",
          .config = {{"rows", node.input(0).shape.numel()}, {"classes", Dim(node.attributes().integer("num_classes"))}},
          .checks_data = true};
}

KernelCall sort_call(std::string name, const Shape& x, const Shape& taken, std::int64_t dim, bool descending) {
  const ops::Span3 span = ops::around(x, dim);
  return {.name = std::move(name),
          .file = "sort",
          .config = {{"outer", span.outer},
                     {"size", span.size},
                     {"inner", span.inner},
                     {"count", taken.empty() ? Dim(1) : taken[static_cast<std::size_t>(dim)]},
                     {"descending", descending}}};
}

KernelCall sort(const NodeView& node) {
  return sort_call("sort", node.input(0).shape, node.output().shape, node.attributes().integer("dim"),
                   node.attributes().flag("descending"));
}

KernelCall sort_backward(const NodeView& node) {
  return sort_call("sort_backward", node.output().shape, node.input(0).shape, node.attributes().integer("dim"), false);
}

}  // namespace

std::span<const Row> indexing() {
  static constexpr Row kRows[] = {
      {&ir::kEmbedding, embedding},      {&ir::kGather, gather},  {&ir::kIndexAdd, index_add},
      {&ir::kIndexSelect, index_select}, {&ir::kOneHot, one_hot}, {&ir::kScatter, scatter},
      {&ir::kScatterAdd, scatter_add},   {&ir::kSort, sort},      {&ir::kSortBackward, sort_backward},
  };
  return kRows;
}

}  // namespace graven::codegen::lowering
