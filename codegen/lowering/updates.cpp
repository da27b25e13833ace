#include "codegen/lowering/families.h"
#include "ir/ops/linear_shared.h"
#include "ir/ops/optimizer_shared.h"
#include "ir/optimizer_kind.h"
#include "ir/rank_layout.h"
#include "ir/update_rule.h"

namespace graven::codegen::lowering {

namespace {

/// Options that the rule reads in each step, and a functor for each choice of states.
KernelCall update_call(const NodeView& node, std::string name, std::string file, const ir::UpdateRule& rule) {
  KernelCall call{.name = std::move(name),
                  .file = std::move(file),
                  .config_type = rule.name() + "_config",
                  .template_arguments = {rule.name()}};
  for (const ir::AttributeSpec* a : rule.attributes()) {
    ConfigField& field = call.config.emplace_back(a->name, 0.0).second;
    if (a->type == ir::AttributeType::boolean)
      field = node.attributes().flag(a->name);
    else
      field = node.attributes().number(a->name);
  }
  return call;
}

KernelCall clip_factor(const NodeView& node) {
  return {.name = "clip_factor",
          .config = {{"max_norm", node.attributes().number("max_norm")},
                     {"norm_type", node.attributes().number("norm_type")},
                     {"over_ranks", node.attributes().flag("over_ranks")}}};
}

KernelCall gradient_norm(const NodeView& node) {
  return {.name = "gradient_norm",
          .file = "clip_factor",
          .config_type = "gradient_norm_config",
          .config = {{"norm_type", node.attributes().number("norm_type")}}};
}

KernelCall accumulate(const NodeView& node) {
  return {.name = "accumulate", .config = {{"n", node.input(0).shape.numel()}}};
}

KernelCall all_reduce(const NodeView& node) {
  return {.name = "all_reduce", .config = {{"n", node.input(0).shape.numel()}}};
}

KernelCall reduce_scatter(const NodeView& node) {
  return {.name = "reduce_scatter", .config = {{"n", node.input(0).shape.numel()}}};
}

KernelCall accumulate_shard(const NodeView& node) {
  return {.name = "accumulate_shard", .config = {{"n", node.input(0).shape.numel()}}};
}

KernelCall gather_shards(const NodeView& node) {
  return {.name = "gather_shards", .config = {{"n", node.input(0).shape.numel()}}};
}

/// A layout as the kernel's config tells it (kernels/config/convert_layout.h).
Dim number_of(const ir::RankLayout& layout, const Shape& whole, std::int64_t ranks) {
  if (layout.is_split()) return ir::run_of(whole, layout, ranks);
  return layout.is_partial() ? -1 : 0;
}

KernelCall convert_layout(const NodeView& node) {
  const Attributes& a = node.attributes();
  const std::int64_t ranks = a.integer("ranks");
  const ir::RankLayout from = ir::RankLayout::parse(a.text("from")).value(),
                       to = ir::RankLayout::parse(a.text("to")).value();
  const Shape whole = ir::whole_shape(node.input(0).shape, from, ranks);
  return {.name = "convert_layout",
          .config = {{"n", whole.numel()},
                     {"ranks", Dim(ranks)},
                     {"from", number_of(from, whole, ranks)},
                     {"to", number_of(to, whole, ranks)}}};
}

KernelCall index_on_rank(const NodeView& node) {
  const Attributes& a = node.attributes();
  return {.name = "index_on_rank",
          .config = {{"n", node.input(0).shape.numel()},
                     {"size", Dim(a.integer("size"))},
                     {"ranks", Dim(a.integer("ranks"))},
                     {"ignores", a.flag("ignores")},
                     {"ignored", Dim(a.integer("ignored"))}},
          .checks_data = true};
}

KernelCall all_gather(const NodeView& node) {
  return {.name = "all_gather", .config = {{"least", Dim(node.attributes().integer("least"))}}};
}

KernelCall finite_step(const NodeView& node) {
  return {.name = "finite_step",
          .file = "loss_scale",
          .config_type = "finite_step_config",
          .config = {{"over_ranks", node.attributes().flag("over_ranks")}}};
}

KernelCall update_loss_scale(const NodeView& node) {
  return {.name = "update_loss_scale",
          .file = "loss_scale",
          .config_type = "update_loss_scale_config",
          .config = {{"growth_factor", node.attributes().number("growth_factor")},
                     {"backoff_factor", node.attributes().number("backoff_factor")},
                     {"growth_interval", Dim(node.attributes().integer("growth_interval"))}}};
}

/// `sizes`: the last two dimensions of a parameter are matrices, of which each has so many rows and columns. Of one
/// without elements there is none.
KernelCall adafactor(const NodeView& node) {
  const Attributes& a = node.attributes();
  const ir::InputRange params = ir::input_range(node.node, ir::InputRole::parameter);
  const double eps1 = a.number("eps1");
  KernelCall call{
      .name = "adafactor",
      .config = {{"beta2_decay", a.number("beta2_decay")},
                 {"eps1", eps1 < 0 ? ir::epsilon_of(params.count > 0 ? node.input(0).dtype : ir::DType::f32) : eps1},
                 {"eps2", a.number("eps2")},
                 {"d", a.number("d")},
                 {"weight_decay", a.number("weight_decay")},
                 {"maximize", a.flag("maximize")}}};
  for (std::size_t i = 0; i < params.count; ++i) {
    const Shape& shape = node.input(i).shape;
    std::vector<Dim> sizes{1, 1, shape.numel()};
    if (shape.numel().maximum() == 0)
      sizes.assign(3, Dim(0));
    else if (shape.rank() >= 2)
      sizes = {ops::product(shape, 0, shape.rank() - 2), shape.back(1), shape.back()};
    call.sizes.insert(call.sizes.end(), sizes.begin(), sizes.end());
  }
  return call;
}

}  // namespace

KernelCall update_parameters(const NodeView& node) {
  const ir::UpdateRule rule(*node.node.op, node.attributes(), false);
  return update_call(node, rule.norms().empty() ? "update_parameters" : "update_parameters_with_norms", "update", rule);
}

/// m, n, k and the taps, then the options of the optimizer's own call.
KernelCall linear_update(const NodeView& node) {
  KernelCall call = update_call(node, "linear_update", {}, ir::UpdateRule(*node.node.op, node.attributes(), false));
  const std::size_t dy = ops::product_of_update(*node.node.op);
  const Shape &of_y = node.input(dy).shape, &of_x = node.input(dy + 1).shape;
  const std::initializer_list<std::pair<std::string, ConfigField>> own = {
      {"m", ops::rows_of(of_y)},
      {"n", of_y.back()},
      {"k", of_x.back()},
      {"taps", Dim(node.attributes().integer("taps"))},
      {"tap", Dim(node.attributes().integer("tap"))}};
  call.config.insert(call.config.begin(), own);
  return call;
}

std::span<const Row> updates() {
  static constexpr Row kRows[] = {
      {&ir::kAccumulate, accumulate},
      {&ir::kAccumulateShard, accumulate_shard},
      {&ir::kAdafactor, adafactor},
      {&ir::kAllGather, all_gather},
      {&ir::kAllReduce, all_reduce},
      {&ir::kClipFactor, clip_factor},
      {&ir::kConvertLayout, convert_layout},
      {&ir::kFiniteStep, finite_step},
      {&ir::kGatherShards, gather_shards},
      {&ir::kGradientNorm, gradient_norm},
      {&ir::kIndexOnRank, index_on_rank},
      {&ir::kReduceScatter, reduce_scatter},
      {&ir::kUpdateLossScale, update_loss_scale},
  };
  return kRows;
}

}  // namespace graven::codegen::lowering
