#include "ir/rank_layout.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "ir/diagnostic.h"
#include "ir/ops.h"

namespace graven::ir {

std::string RankLayout::to_string() const {
  if (kind == Kind::broadcast) return "broadcast";
  if (kind == Kind::partial_sum) return "partial_sum";
  return "split(" + std::to_string(dim) + (blocks > 1 ? ", " + std::to_string(blocks) : "") + ")";
}

std::optional<RankLayout> RankLayout::parse(std::string_view text) {
  if (text == "broadcast") return RankLayout{};
  if (text == "partial_sum") return partial_sum();
  if (!text.starts_with("split(") || !text.ends_with(")")) return std::nullopt;
  text = text.substr(6, text.size() - 7);
  RankLayout layout = split(0);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layout.dim);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.empty()) return layout;
  if (!text.starts_with(", ")) return std::nullopt;
  text.remove_prefix(2);
  const auto [last, wrong] = std::from_chars(text.data(), text.data() + text.size(), layout.blocks);
  if (wrong != std::errc() || last != text.data() + text.size() || layout.blocks < 1) return std::nullopt;
  return layout;
}

bool can_have(const Shape& shape, const RankLayout& layout, std::int64_t ranks) {
  if (!layout.is_split()) return true;
  if (layout.dim < 0 || layout.dim >= static_cast<std::int64_t>(shape.rank())) return false;
  const Dim& size = shape[at(layout.dim)];
  return size.is_static() && size.value() > 0 && size.value() % (layout.blocks * ranks) == 0;
}

Shape shape_on_rank(const Shape& shape, const RankLayout& layout, std::int64_t ranks) {
  Shape own = shape;
  if (layout.is_split()) own[at(layout.dim)] = shape[at(layout.dim)].value() / ranks;
  return own;
}

Shape whole_shape(const Shape& on_rank, const RankLayout& layout, std::int64_t ranks) {
  Shape whole = on_rank;
  if (layout.is_split()) whole[at(layout.dim)] = on_rank[at(layout.dim)].value() * ranks;
  return whole;
}

Dim run_of(const Shape& shape, const RankLayout& layout, std::int64_t ranks) {
  Dim run = shape[at(layout.dim)].value() / (layout.blocks * ranks);
  for (std::size_t d = at(layout.dim) + 1; d < shape.rank(); ++d) run = run * shape[d];
  return run;
}

double bytes_sent(const RankLayout& from, const RankLayout& to, double whole_bytes, std::int64_t ranks) {
  if (from == to) return 0;
  const double others = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  if (from.is_partial()) return whole_bytes * others * (to.is_split() ? 1 : 2);
  if (from.is_split() && to.is_broadcast()) return whole_bytes * others;
  if (from.is_split() && to.is_split()) return whole_bytes * others / static_cast<double>(ranks);
  return 0;  // a rank keeps a part of what it has, or the first one is the one that has it
}

double bytes_sent(const Graph& graph) {
  double sum = 0;
  for (const Node& node : graph.nodes) {
    if (!node.is(kConvertLayout)) continue;
    const RankLayout from = RankLayout::parse(node.attributes.text("from")).value(),
                     to = RankLayout::parse(node.attributes.text("to")).value();
    const std::int64_t ranks = node.attributes.integer("ranks");
    const TensorType& x = graph.type(node.inputs[0]);
    sum += bytes_sent(from, to,
                      static_cast<double>(whole_shape(x.shape, from, ranks).numel().maximum()) *
                          static_cast<double>(size_of(x.dtype)),
                      ranks);
  }
  return sum;
}

std::int64_t tensor_ranks(const Graph& graph) {
  const std::optional<double> number = graph.number(kTensorParallel);
  if (!number) return 1;
  if (!(*number >= 1 && *number <= 65536) || *number != static_cast<double>(static_cast<std::int64_t>(*number)))
    throw UserError("config." + std::string(kTensorParallel) + ": expected a number of ranks from 1 to 65536, found " +
                    std::to_string(*number));
  return static_cast<std::int64_t>(*number);
}

RankLayout layout_of(const Graph& graph, ValueId variable) {
  if (!graph.flag(kLayoutsChosen)) return {};
  const std::string text = graph.text(std::string(kLayoutOf) + graph.value(variable).name);
  return text.empty() ? RankLayout{} : RankLayout::parse(text).value();
}

TensorType whole_type(const Graph& graph, ValueId variable) {
  TensorType type = graph.type(variable);
  if (const RankLayout layout = layout_of(graph, variable); layout.is_split())
    type.shape = whole_shape(type.shape, layout, tensor_ranks(graph));
  return type;
}

std::string describe_layouts(const Graph& graph) {
  std::string text;
  for (const std::vector<ValueId>* list : {&graph.parameters, &graph.states})
    for (const ValueId v : *list)
      if (const RankLayout layout = layout_of(graph, v); layout.is_split())
        text += graph.value(v).name + " " + whole_type(graph, v).to_string() + ": " + layout.to_string() + "\n";
  for (const Node& node : graph.nodes) {
    if (!node.is(kConvertLayout)) continue;
    const std::string &from = node.attributes.text("from"), &to = node.attributes.text("to");
    const std::int64_t ranks = node.attributes.integer("ranks");
    const RankLayout before = RankLayout::parse(from).value();
    const TensorType& x = graph.type(node.inputs[0]);
    const TensorType whole{x.dtype, whole_shape(x.shape, before, ranks)};
    const double bytes =
        bytes_sent(before, RankLayout::parse(to).value(),
                   static_cast<double>(whole.shape.numel().maximum()) * static_cast<double>(size_of(x.dtype)), ranks);
    const std::string module = owner_of(node.origins);
    text += graph.value(node.inputs[0]).name + " " + whole.to_string() + ": " + from + " -> " + to + ", " +
            std::to_string(static_cast<std::int64_t>(bytes)) + " bytes sent by each rank" +
            (module.empty() ? "" : " (" + module + ")") + "\n";
  }
  return text;
}

TensorData first_part(const TensorData& whole, const RankLayout& layout, std::int64_t ranks) {
  if (!layout.is_split() || ranks == 1) return whole;
  const Shape& shape = whole.type.shape;
  TensorData part{{whole.type.dtype, shape_on_rank(shape, layout, ranks)}, {}};
  const auto bytes = run_of(shape, layout, ranks).value() * static_cast<std::int64_t>(size_of(whole.type.dtype));
  for (std::int64_t begin = 0; bytes > 0 && begin < std::ssize(whole.bytes); begin += ranks * bytes)
    part.bytes.insert(part.bytes.end(), whole.bytes.begin() + begin, whole.bytes.begin() + begin + bytes);
  return part;
}

void RankRules::add(RankLayouts way) {
  for (std::size_t i = 0; i < way.inputs.size(); ++i)
    if (has_input(i) && !can_have(input(i), way.inputs[i], ranks_)) return;
  for (std::size_t i = 0; i < way.outputs.size(); ++i)
    if (!can_have(output(i), way.outputs[i], ranks_)) return;
  ways_.push_back(std::move(way));
}

namespace {

/// Of what is computed element by element: each has its part of it, and what is linear takes terms.
void elementwise_layouts(RankRules& rules) {
  const Node& node = rules.node().node;
  const Shape& y = rules.output();
  for (std::size_t d = 0; d < y.rank(); ++d)
    rules.each_split(y, static_cast<std::int64_t>(d), [&](const RankLayout& layout) {
      RankLayouts way = rules.way();
      way.outputs[0] = layout;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (!rules.has_input(i)) continue;
        const std::size_t missing = y.rank() - rules.input(i).rank();
        if (d < missing || rules.input(i)[d - missing] == Dim(1)) continue;
        way.inputs[i] = RankLayout::split(static_cast<std::int64_t>(d - missing), layout.blocks);
      }
      if (const Attribute* shape = node.attributes.find("shape"); shape != nullptr && node.inputs.empty())
        way.attributes.emplace_back("shape", shape_on_rank(y, layout, rules.ranks()));
      rules.add(std::move(way));
    });
  if (!is_floating(rules.node().output().dtype)) return;
  const auto terms = [&](std::initializer_list<std::size_t> inputs) {
    for (const std::size_t i : inputs)
      if (!is_floating(rules.node().input(i).dtype)) return;
    RankLayouts way = rules.way();
    way.outputs[0] = RankLayout::partial_sum();
    for (const std::size_t i : inputs) way.inputs[i] = RankLayout::partial_sum();
    rules.add(std::move(way));
  };
  if (node.is(kAdd, kSub)) terms({0, 1});
  if (node.is(kMul, kDiv, kNeg, kCast)) terms({0});
  if (node.is(kMul)) terms({1});
}

}  // namespace

std::vector<RankLayouts> rank_layouts(const NodeView& node, std::int64_t ranks,
                                      const std::vector<std::int64_t>& blocks) {
  RankRules rules(node, ranks, blocks);
  rules.add(rules.way());
  if (node.node.op->rank_layouts != nullptr)
    node.node.op->rank_layouts(rules);
  else if (node.node.op->elementwise())
    elementwise_layouts(rules);
  return rules.take();
}

}  // namespace graven::ir
