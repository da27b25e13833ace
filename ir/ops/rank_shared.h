// Layouts over ranks that several operators have (OpDef::rank_layouts, ir/rank_layout.h).
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/ops/shared.h"
#include "ir/rank_layout.h"

namespace graven::ir::ops {

/// The nodes that stand for another, of which each rank computes its part (RankLayouts::nodes).
class RankNodes {
 public:
  RankNodes(Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  const Shape& shape(ValueId v) const { return graph_.type(v).shape; }
  DType dtype(ValueId v) const { return graph_.type(v).dtype; }
  /// One more node, whose result is called after that of the node.
  ValueId add(const OpDef& op, std::vector<ValueId> inputs, Attributes attributes, std::string_view role) const {
    return graph_.add_node(op, std::move(inputs), std::move(attributes), node_.origins, node_.phase, name(role))[0];
  }
  ValueId scalar(double value, DType dtype) const {
    return add(kFull, {}, {{"shape", Shape{}}, {"value", value}, {"dtype", dtype}}, "number");
  }
  ValueId convert(ValueId x, const RankLayout& from, const RankLayout& to, std::int64_t ranks,
                  std::string_view role) const {
    return add(kConvertLayout, {x}, {{"from", from.to_string()}, {"to", to.to_string()}, {"ranks", ranks}}, role);
  }
  /// How many of the flags are set.
  ValueId count(ValueId flags, DType dtype) const {
    const ValueId ones = add(kCast, {flags}, {{"dtype", dtype}}, "ones");
    return add(kSum, {ones}, {{"dims", Ints{0}}, {"keepdim", false}}, "count");
  }
  /// own and mine.
  std::pair<ValueId, ValueId> index_on_rank(ValueId index, std::int64_t size, std::int64_t ranks,
                                            std::optional<std::int64_t> ignored) const {
    const std::vector<ValueId> made = graph_.add_node(
        kIndexOnRank, {index},
        {{"size", size}, {"ranks", ranks}, {"ignores", ignored.has_value()}, {"ignored", ignored.value_or(0)}},
        node_.origins, node_.phase, name("index"));
    return {made[0], made[1]};
  }

 private:
  std::string name(std::string_view role) const {
    return graph_.value(node_.outputs[0]).name + "." + std::string(role);
  }
  Graph& graph_;
  const Node& node_;
};

/// Along a dimension that these inputs and outputs have in common, at the same place in each. The others are broadcast.
inline void split_alike(RankRules& rules, std::int64_t dim, std::initializer_list<std::size_t> inputs,
                        std::initializer_list<std::size_t> outputs) {
  rules.each_split(rules.input(*inputs.begin()), dim, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    for (const std::size_t i : inputs)
      if (rules.has_input(i)) way.inputs[i] = layout;
    for (const std::size_t i : outputs) way.outputs[i] = layout;
    rules.add(std::move(way));
  });
}

/// Of a layer's product, dimension `features` of x and y: by what the weight's rows give; and by terms of the sum over
/// what its columns read, of which the bias is one.
inline void product_layouts(RankRules& rules, std::int64_t features) {
  const bool bias = rules.has_input(2);
  rules.each_split(rules.output(), features, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[1] = RankLayout::split(0, layout.blocks);
    if (bias) way.inputs[2] = RankLayout::split(0, layout.blocks);
    way.outputs[0] = layout;
    rules.add(std::move(way));
  });
  rules.each_split(rules.input(0), features, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[0] = layout;
    way.inputs[1] = RankLayout::split(1, layout.blocks);
    if (bias) way.inputs[2] = RankLayout::partial_sum();
    way.outputs[0] = RankLayout::partial_sum();
    rules.add(std::move(way));
  });
}

/// What copies its first input: in any layout, terms of a sum too.
inline void same_layout(RankRules& rules) {
  for (std::size_t d = 0; d < rules.input(0).rank(); ++d) split_alike(rules, static_cast<std::int64_t>(d), {0}, {0});
  if (!is_floating(rules.node().input(0).dtype)) return;
  RankLayouts way = rules.way();
  way.inputs[0] = way.outputs[0] = RankLayout::partial_sum();
  rules.add(std::move(way));
}

/// What adds up to a variable, element by element: `sum` and `x`, or x alone.
inline void sum_layouts(RankRules& rules) {
  const bool two = rules.node().node.op->inputs.size() > 1 && rules.node().node.op->inputs[1].name == "x";
  for (std::size_t d = 0; d < rules.input(0).rank(); ++d) {
    if (two)
      split_alike(rules, static_cast<std::int64_t>(d), {0, 1}, {0});
    else
      split_alike(rules, static_cast<std::int64_t>(d), {0}, {0});
  }
}

/// Softmax and its kin: all but the dimension 'dim', and, where a query sees the keys before it, the queries'.
inline void softmax_layouts(RankRules& rules) {
  const Attributes& a = rules.node().attributes();
  const Attribute* const causal = a.find("causal");
  const std::int64_t dim = a.integer("dim"), rank = static_cast<std::int64_t>(rules.input(0).rank());
  for (std::int64_t d = 0; d < rank; ++d) {
    if (d == dim || (causal != nullptr && std::get<bool>(*causal) && d + 2 >= rank)) continue;
    if (rules.node().input_count() > 1)
      split_alike(rules, d, {0, 1}, {0});
    else
      split_alike(rules, d, {0}, {0});
  }
}

/// Of reductions: what is not reduced is split, and a sum over a dimension that is split has terms.
inline void reduction_layouts(RankRules& rules, bool is_sum) {
  const Attributes& a = rules.node().attributes();
  const Ints& dims = a.integers("dims");
  const bool keeps = a.flag("keepdim");
  std::int64_t place = 0;
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(rules.input(0).rank()); ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    if (!reduced || is_sum)
      rules.each_split(rules.input(0), d, [&](const RankLayout& layout) {
        RankLayouts way = rules.way();
        way.inputs[0] = layout;
        way.outputs[0] = reduced ? RankLayout::partial_sum() : RankLayout::split(place, layout.blocks);
        rules.add(std::move(way));
      });
    if (!reduced || keeps) ++place;
  }
  if (!is_sum || !is_floating(rules.node().input(0).dtype)) return;
  RankLayouts way = rules.way();
  way.inputs[0] = way.outputs[0] = RankLayout::partial_sum();
  rules.add(std::move(way));
}

/// Normalisation of rows: `rows` inputs and outputs have rows in common, `terms` outputs are sums over rows.
inline void row_layouts(RankRules& rules, std::int64_t normalized, std::initializer_list<std::size_t> inputs,
                        std::initializer_list<std::size_t> outputs, std::initializer_list<std::size_t> terms) {
  const std::size_t first = *inputs.begin();
  for (std::int64_t d = 0; d + normalized < static_cast<std::int64_t>(rules.input(first).rank()); ++d)
    rules.each_split(rules.input(first), d, [&](const RankLayout& layout) {
      RankLayouts way = rules.way();
      for (const std::size_t i : inputs)
        if (rules.has_input(i)) way.inputs[i] = layout;
      for (const std::size_t i : outputs)
        if (i < way.outputs.size()) way.outputs[i] = layout;
      for (const std::size_t i : terms)
        if (i < way.outputs.size()) way.outputs[i] = RankLayout::partial_sum();
      rules.add(std::move(way));
    });
}

/// By channels, dimension 1 of `images`; of the vectors of a number a channel they are the only dimension.
inline void channel_layouts(RankRules& rules, std::initializer_list<std::size_t> images,
                            std::initializer_list<std::size_t> vectors,
                            std::initializer_list<std::size_t> image_outputs,
                            std::initializer_list<std::size_t> vector_outputs) {
  rules.each_split(rules.input(*images.begin()), 1, [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    const RankLayout of_vector = RankLayout::split(0, layout.blocks);
    for (const std::size_t i : images) way.inputs[i] = layout;
    for (const std::size_t i : vectors)
      if (rules.has_input(i)) way.inputs[i] = of_vector;
    for (const std::size_t i : image_outputs) way.outputs[i] = layout;
    for (const std::size_t i : vector_outputs)
      if (i < way.outputs.size()) way.outputs[i] = of_vector;
    rules.add(std::move(way));
  });
}

/// Of a convolution in groups: each rank has some of them, with the channels of `images` and the rows of `weights`.
inline void group_layouts(RankRules& rules, std::initializer_list<std::size_t> images,
                          std::initializer_list<std::size_t> weights, std::initializer_list<std::size_t> image_outputs,
                          std::initializer_list<std::size_t> weight_outputs) {
  const std::int64_t groups = rules.node().attributes().integer("groups");
  if (groups % rules.ranks() != 0) return;
  RankLayouts way = rules.way();
  for (const std::size_t i : images) way.inputs[i] = RankLayout::split(1);
  for (const std::size_t i : weights)
    if (rules.has_input(i)) way.inputs[i] = RankLayout::split(0);
  for (const std::size_t i : image_outputs) way.outputs[i] = RankLayout::split(1);
  for (const std::size_t i : weight_outputs)
    if (i < way.outputs.size()) way.outputs[i] = RankLayout::split(0);
  way.attributes.emplace_back("groups", groups / rules.ranks());
  rules.add(std::move(way));
}

/// Windows of an image and a channel: by either.
inline void pool_layouts(RankRules& rules) {
  for (const std::int64_t d : {0, 1})
    rules.each_split(rules.input(0), d, [&](const RankLayout& layout) {
      RankLayouts way = rules.way();
      way.inputs.assign(way.inputs.size(), layout);
      way.outputs.assign(way.outputs.size(), layout);
      if (rules.node().attributes().find("input_shape") != nullptr)
        way.attributes.emplace_back("input_shape", shape_on_rank(rules.output(), layout, rules.ranks()));
      rules.add(std::move(way));
    });
}

}  // namespace graven::ir::ops
