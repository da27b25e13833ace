#include "ir/sizes.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "ir/diagnostic.h"
#include "ir/ops.h"

namespace graven::ir {

const Symbol* SizeRules::find(std::string_view symbol) const {
  const auto found = std::find_if(symbols.begin(), symbols.end(), [&](const Symbol& s) { return s.name == symbol; });
  return found == symbols.end() ? nullptr : &*found;
}

SizeRules size_rules(const Graph& graph) {
  SizeRules rules{graph.symbols(), {}};
  const auto require = [&](const Dim& size, std::int64_t least) {
    if (size.minimum() >= least) return;
    // Of one symbol it is the symbol's own range; for a * x + b >= least, x is (least - b) / a, rounded up.
    if (const auto linear = size.linear(); linear && linear->coefficient > 0) {
      const Dim needed = Dim(least) - Dim(linear->offset);
      const std::int64_t lowest = -floor_divide(Dim(0) - needed, linear->coefficient).value();
      for (Symbol& s : rules.symbols)
        if (s.name == linear->symbol.name) s.least = std::max(s.least, lowest);
      return;
    }
    rules.bounds.push_back({size, least});
  };
  const auto find = [&](std::string_view name) {
    const Symbol* const symbol = rules.find(name);
    return symbol == nullptr ? std::nullopt : std::optional(*symbol);
  };
  for (const auto& [key, value] : graph.config)
    if (const auto* least = std::get_if<std::int64_t>(&value);
        least != nullptr && key.compare(0, kLeastSize.size(), kLeastSize) == 0)
      if (const auto size = parse_dim(std::string_view(key).substr(kLeastSize.size()), find)) require(*size, *least);
  for (const Node& node : graph.nodes) {
    if (!node.is(kBatchNormTraining)) continue;
    if (node.attributes.flag("sync") && graph.flag(kDataParallel)) continue;  // there are other ranks' as well
    const auto values = divide(graph.type(node.inputs[0]).shape.numel(), graph.type(node.outputs[1]).shape.numel());
    if (values && !values->is_static()) require(*values, 2);
  }
  return rules;
}

std::optional<std::string> find_wrong_size(const SizeRules& rules, const SymbolSizes& sizes) {
  for (const Symbol& s : rules.symbols) {
    const auto found = sizes.find(s.name);
    if (found != sizes.end() && (found->second < s.least || found->second > s.most))
      return s.name + " must lie in " + s.range() + ", got " + std::to_string(found->second);
  }
  for (const SizeBound& bound : rules.bounds)
    if (const std::int64_t size = bound.size.at(sizes); size < bound.least)
      return bound.size.to_string() + " must be at least " + std::to_string(bound.least) + ", got " +
             std::to_string(size);
  return std::nullopt;
}

Graph with_sizes(Graph graph, const SymbolSizes& sizes) {
  if (const auto wrong = find_wrong_size(size_rules(graph), sizes)) throw UserError(*wrong);
  const auto fix = [&](Shape& s) {
    for (std::size_t i = 0; i < s.rank(); ++i)
      if (!s[i].is_static()) s[i] = Dim(s[i].at(sizes));
  };
  for (Value& v : graph.values) fix(v.type.shape);
  for (Node& n : graph.nodes) {
    std::vector<std::pair<std::string, Shape>> changed;
    for (const auto& [key, value] : n.attributes)
      if (const auto* s = std::get_if<Shape>(&value); s && !s->is_static()) changed.emplace_back(key, *s);
    for (auto& [key, s] : changed) {
      fix(s);
      n.attributes.set(key, std::move(s));
    }
  }
  return graph;
}

}  // namespace graven::ir
