#include "codegen/cli/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "codegen/plan/summary.h"
#include "ir/analysis.h"
#include "ir/op.h"

namespace graven::codegen {

namespace {

/// Text inside a quoted DOT string.
std::string dot_escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += ' ';
    else
      out += c;
  }
  return out;
}

std::string xml_escape(const std::string& text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  return out;
}

/// The tree of modules, each with its own nodes.
struct Scope {
  std::string name, path;
  std::vector<ir::NodeId> nodes;
  std::vector<std::unique_ptr<Scope>> children;

  Scope& child(const std::string& part) {
    for (auto& c : children)
      if (c->name == part) return *c;
    children.push_back(std::make_unique<Scope>());
    children.back()->name = part;
    children.back()->path = path.empty() ? part : path + "." + part;
    return *children.back();
  }
  Scope& at(const std::string& module) {
    Scope* scope = this;
    for (std::size_t begin = 0; begin < module.size();) {
      const std::size_t dot = std::min(module.find('.', begin), module.size());
      scope = &scope->child(module.substr(begin, dot - begin));
      begin = dot + 1;
    }
    return *scope;
  }
};

const char* phase_colour(ir::Phase phase) {
  switch (phase) {
    case ir::Phase::prepare:
      return "#e8e8e8";
    case ir::Phase::forward:
      return "#d8e8ff";
    case ir::Phase::backward:
      return "#ffe4d0";
    case ir::Phase::update:
      return "#dff2d8";
  }
  return "#ffffff";
}

void write_scope(const ir::Graph& graph, const Scope& scope, int depth, std::string& out) {
  const std::string indent(static_cast<std::size_t>(2 + 2 * depth), ' ');
  if (depth > 0) {
    out += fmt::format("{}subgraph \"cluster_{}\" {{\n", std::string(indent.size() - 2, ' '), dot_escape(scope.path));
    std::string label = scope.path;
    for (const ir::ModuleInfo& m : graph.modules)
      if (m.path == scope.path) label += "  " + m.class_name;
    out +=
        fmt::format("{}label=\"{}\"; style=\"rounded\"; color=\"#8090a0\"; fontsize=11;\n", indent, dot_escape(label));
  }
  for (const ir::NodeId id : scope.nodes) {
    const ir::Node& node = graph.nodes[at(id)];
    std::string label = std::string(node.op->name);
    for (const ir::ValueId v : node.inputs)
      if (v != ir::kNone &&
          (graph.value(v).kind == ir::ValueKind::parameter || graph.value(v).kind == ir::ValueKind::buffer) &&
          node.inputs.size() <= 8)
        label += "\\n" + dot_escape(graph.value(v).name + " " + graph.type(v).shape.to_string());
    if (const std::string place = ir::place_of(node.origins); !place.empty()) label += "\\n" + dot_escape(place);
    out += fmt::format("{}n{} [label=\"{}\", fillcolor=\"{}\"];\n", indent, id, label, phase_colour(node.phase));
  }
  for (const auto& child : scope.children) write_scope(graph, *child, depth + 1, out);
  if (depth > 0) out += std::string(indent.size() - 2, ' ') + "}\n";
}

std::string human_bytes(std::int64_t bytes) {
  if (bytes >= 10'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  if (bytes >= 10'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{} B", bytes);
}

}  // namespace

std::string graph_picture(const ir::Graph& graph) {
  std::string out = fmt::format(
      "digraph \"{}\" {{\n  rankdir=TB;\n  node [shape=box, style=\"filled,rounded\", fontname=\"Helvetica\", "
      "fontsize=10];\n",
      dot_escape(graph.name));
  out += "  edge [fontname=\"Helvetica\", fontsize=9, color=\"#506070\"];\n  graph [fontname=\"Helvetica\"];\n";
  Scope root;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    root.at(ir::owner_of(graph.nodes[i].origins)).nodes.push_back(static_cast<ir::NodeId>(i));
  write_scope(graph, root, 0, out);
  const ir::Uses uses(graph);
  for (const ir::ValueId v : graph.inputs)
    out += fmt::format("  v{} [label=\"{}\\n{}\", shape=ellipse, fillcolor=\"#fff8c8\"];\n", v,
                       dot_escape(graph.value(v).name), graph.type(v).to_string());
  for (std::size_t i = 0; i < graph.outputs.size(); ++i)
    out += fmt::format("  out{} [label=\"output {}\\n{}\", shape=ellipse, fillcolor=\"#fff8c8\"];\n", i, i,
                       graph.type(graph.outputs[i]).to_string());
  auto source = [&](ir::ValueId v) -> std::string {
    if (const ir::NodeId p = uses.maker(v); p >= 0) return fmt::format("n{}", p);
    return graph.value(v).kind == ir::ValueKind::input ? fmt::format("v{}", v) : std::string();
  };
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    std::vector<ir::ValueId> drawn;
    for (const ir::ValueId v : graph.nodes[i].inputs) {
      if (v == ir::kNone || std::find(drawn.begin(), drawn.end(), v) != drawn.end()) continue;
      drawn.push_back(v);
      if (const std::string from = source(v); !from.empty())
        out += fmt::format("  {} -> n{} [label=\"{}\"];\n", from, i, graph.type(v).to_string());
    }
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i)
    if (const std::string from = source(graph.outputs[i]); !from.empty())
      out += fmt::format("  {} -> out{};\n", from, i);
  return out + "}\n";
}

std::string memory_picture(const ir::Graph& graph, const Plan& plan, std::int64_t before) {
  constexpr double kWidth = 1200, kHeight = 520, kLeft = 90, kTop = 50, kBottom = 40;
  const double steps = std::max<double>(1, static_cast<double>(plan.steps.size()));
  const double top_bytes =
      std::max<double>(1, static_cast<double>(std::max({plan.arena_bytes(), plan.lower_bound(), before})));
  auto x = [&](double step) { return kLeft + step / steps * (kWidth - kLeft - 20); };
  auto y = [&](double bytes) { return kHeight - kBottom - bytes / top_bytes * (kHeight - kTop - kBottom); };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"Helvetica,Arial,sans-serif\" "
      "font-size=\"11\">\n",
      kWidth, kHeight);
  out += fmt::format("<rect width=\"{}\" height=\"{}\" fill=\"#ffffff\"/>\n", kWidth, kHeight);
  out += fmt::format(
      "<text x=\"{}\" y=\"20\" font-size=\"14\">{}: arena {}, lower bound {} ({:.3f}), without reuse {}; {} buffers, "
      "{} steps</text>\n",
      kLeft, xml_escape(graph.name), human_bytes(plan.arena_bytes()), human_bytes(plan.lower_bound()),
      plan.lower_bound() ? static_cast<double>(plan.arena_bytes()) / static_cast<double>(plan.lower_bound()) : 1.0,
      human_bytes(plan.without_reuse()), plan.buffers.size(), plan.steps.size());
  const Recomputation again = recomputation_of(graph, plan);
  if (again.steps > 0) {
    out += fmt::format(
        "<text x=\"{}\" y=\"38\">hatched: computed again in backward, {} steps, {:.3f} MFLOP, {:.1f}% longer by "
        "estimate{}</text>\n",
        kLeft, again.steps, again.flops * 1e-6, again.slowdown * 100,
        before > 0 ? "; the arena takes " + human_bytes(before) + " without" : std::string());
    out +=
        "<defs><pattern id=\"again\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><path d=\"M0 6L6 0\" "
        "stroke=\"#ffffff\" stroke-width=\"1.5\"/></pattern></defs>\n";
  }
  ir::ByValue<bool> is_again;
  for (const ir::Node& node : graph.nodes)
    if (node.recomputes)
      for (const ir::ValueId v : node.outputs) is_again[v] = true;
  // Bands behind the buffers: where backward and update begin.
  for (std::size_t s = 0; s < plan.steps.size();) {
    const ir::Phase phase = graph.nodes[at(plan.steps[s].node)].phase;
    std::size_t end = s;
    while (end < plan.steps.size() && graph.nodes[at(plan.steps[end].node)].phase == phase) ++end;
    out += fmt::format("<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\" opacity=\"0.45\"/>\n",
                       x(static_cast<double>(s)), kTop, x(static_cast<double>(end)) - x(static_cast<double>(s)),
                       kHeight - kTop - kBottom, phase_colour(phase));
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{}</text>\n", x(static_cast<double>(s)) + 3, kHeight - kBottom + 15,
                       name(phase));
    s = end;
  }
  constexpr const char* kColours[] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                      "#76b7b2", "#edc948", "#b07aa1", "#9c755f"};
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& b = plan.buffers[i];
    const std::int64_t begin = plan.begin(b.space) + b.offset;
    const double x0 = x(b.first), x1 = x(b.last + 1), y1 = y(static_cast<double>(begin)),
                 y0 = y(static_cast<double>(begin + b.bytes));
    std::string hover =
        fmt::format("{}  {} at {}, steps {} to {}", b.name, human_bytes(b.bytes), b.offset, b.first, b.last);
    for (const ir::ValueId v : b.values) hover += "\n" + graph.value(v).name + "  " + graph.type(v).to_string();
    out += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" fill-opacity=\"{}\" "
        "stroke=\"#ffffff\" "
        "stroke-width=\"0.5\"><title>{}</title></rect>\n",
        x0, y0, x1 - x0, std::max(0.5, y1 - y0), kColours[i % std::size(kColours)], b.values.empty() ? "0.35" : "0.8",
        xml_escape(hover));
    if (std::any_of(b.values.begin(), b.values.end(), std::cref(is_again)))
      out += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"url(#again)\" "
          "pointer-events=\"none\"/>\n",
          x0, y0, x1 - x0, std::max(0.5, y1 - y0));
    if (x1 - x0 > 60 && y1 - y0 > 12) {
      const std::size_t fits = static_cast<std::size_t>((x1 - x0 - 6) / 6.2);
      std::string label = b.name + "  " + human_bytes(b.bytes);
      if (label.size() > fits) label.resize(fits);
      out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"#ffffff\">{}</text>\n", x0 + 3, (y0 + y1) / 2 + 4,
                         xml_escape(label));
    }
  }
  std::vector<std::tuple<std::int64_t, const char*, const char*>> lines{
      {plan.arena_bytes(), "arena", ""}, {plan.lower_bound(), "bound", " stroke-dasharray=\"4 3\""}};
  if (before > 0) lines.emplace_back(before, "before", " stroke-dasharray=\"1 3\"");
  for (const auto& [bytes, label, dash] : lines) {
    out += fmt::format("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#303030\"{3}/>\n", kLeft,
                       kWidth - 20, y(static_cast<double>(bytes)), dash);
    out += fmt::format("<text x=\"4\" y=\"{:.1f}\">{} {}</text>\n", y(static_cast<double>(bytes)) + (*dash ? 14 : 4),
                       label, human_bytes(bytes));
  }
  return out + "</svg>\n";
}

}  // namespace graven::codegen
