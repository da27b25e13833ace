#include "ir/sizes.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "ir/diagnostic.h"
#include "ir/ops.h"

namespace graven::ir {

std::map<std::string, std::int64_t> least_sizes(const Graph& graph) {
  std::map<std::string, std::int64_t> least;
  for (const auto& [key, value] : graph.config)
    if (const auto* number = std::get_if<std::int64_t>(&value);
        number != nullptr && key.compare(0, kLeastSize.size(), kLeastSize) == 0)
      least[key.substr(kLeastSize.size())] = *number;
  for (const Node& node : graph.nodes) {
    if (!node.is(kBatchNormTraining)) continue;
    const Dim values = graph.type(node.inputs[0]).shape.numel();
    if (!values.is_static() && Dim(values.coefficient()) == graph.type(node.outputs[1]).shape.numel())
      least[values.symbol()] = std::max<std::int64_t>(least[values.symbol()], 2);
  }
  return least;
}

Graph with_sizes(Graph graph, const std::map<std::string, std::int64_t>& sizes) {
  const std::map<std::string, std::int64_t> least = least_sizes(graph);
  const auto fix_dim = [&](Dim& d) {
    if (d.is_static()) return;
    const auto it = sizes.find(d.symbol());
    const std::int64_t value = it == sizes.end() ? d.symbol_maximum() : it->second;
    const auto bound = least.find(d.symbol());
    const std::int64_t lowest = bound == least.end() ? 1 : bound->second;
    if (value < lowest || value > d.symbol_maximum())
      throw UserError(d.symbol() + " must lie in [" + std::to_string(lowest) + ", " +
                      std::to_string(d.symbol_maximum()) + "], got " + std::to_string(value));
    d = Dim(d.at(value));
  };
  const auto fix = [&](Shape& s) {
    for (std::size_t i = 0; i < s.rank(); ++i) fix_dim(s[i]);
  };
  for (Node& n : graph.nodes) {
    if (!n.is(kSlice) || !n.attributes.flag("of_symbol")) continue;
    Dim whole = graph.type(n.inputs[0]).shape[static_cast<std::size_t>(n.attributes.integer("dim"))];
    if (whole.is_static()) continue;
    Dim each(whole.symbol(), whole.symbol_maximum());
    fix_dim(each);
    for (const char* bound : {"start", "end"}) n.attributes.set(bound, n.attributes.integer(bound) * each.value());
    n.attributes.set("of_symbol", false);
  }
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
