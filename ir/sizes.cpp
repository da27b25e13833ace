#include "ir/sizes.h"

#include <utility>
#include <variant>
#include <vector>

#include "ir/diagnostic.h"

namespace graven::ir {

Graph with_sizes(Graph graph, const std::map<std::string, std::int64_t>& sizes) {
  const auto fix_dim = [&](Dim& d) {
    if (d.is_static()) return;
    const auto it = sizes.find(d.symbol());
    const std::int64_t value = it == sizes.end() ? d.symbol_maximum() : it->second;
    if (value < 1 || value > d.symbol_maximum())
      throw UserError(d.symbol() + " must lie in [1, " + std::to_string(d.symbol_maximum()) + "], got " +
                      std::to_string(value));
    d = Dim(d.at(value));
  };
  const auto fix = [&](Shape& s) {
    for (std::size_t i = 0; i < s.rank(); ++i) fix_dim(s[i]);
  };
  for (Node& n : graph.nodes) {
    if (n.op->name != "slice" || !n.attributes.flag("of_symbol")) continue;
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
