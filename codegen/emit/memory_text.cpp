#include "codegen/emit/memory_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "codegen/emit/text.h"
#include "codegen/plan/storage.h"
#include "ir/origin.h"

namespace graven::codegen {

namespace {

// Columns of params.h and of the plans. They are where they are whatever else stands in the file, so that a longer name
// moves its own line alone.
constexpr int kParameterColumn = 48, kPathColumn = 54, kShapeColumn = 96, kValueColumn = 58, kBytesColumn = 54;

/// Up to the column; one space behind what is longer.
std::string padded(std::string text, int column) {
  const auto wanted = static_cast<std::size_t>(column);
  text.append(text.size() < wanted ? wanted - text.size() : 1, ' ');
  return text;
}

/// "(hidden_weight", or "_OF(features_3, conv_0_weight" of "features_3.conv_0_weight".
std::string arguments_of(const std::string& member) {
  const std::size_t dot = member.find('.');
  return dot == std::string::npos ? "(" + member
                                  : fmt::format("_OF({}, {}", member.substr(0, dot), member.substr(dot + 1));
}
std::string block_of(const std::string& member) {
  const std::size_t dot = member.find('.');
  return dot == std::string::npos ? std::string() : member.substr(0, dot);
}

/// Where each buffer lies: "0", or behind one that lives at the same time, "end::hidden_linear()", so that what
/// changes the size of one changes its line alone. Of several that end there the one that is written first; a number
/// where there is none, and where so many would stand on one another that a compiler might refuse to follow them.
std::vector<std::string> offset_texts(const ir::Graph& graph, const Plan& plan, const ValueNames& values,
                                      const std::string& ends) {
  std::vector<std::string> names(plan.buffers.size());
  for (std::size_t b = 0; b < plan.buffers.size(); ++b)
    for (const ir::ValueId v : plan.buffers[b].values)
      // What takes over a buffer may fill less of it.
      if (names[b].empty() && plan.aligned(byte_count(graph.type(v))) == plan.buffers[b].bytes)
        names[b] = values.member(v);
  for (const Step& step : plan.steps)
    if (step.workspace >= 0) names[at(step.workspace)] = values.workspace(step);
  std::unordered_map<std::int64_t, std::vector<std::size_t>> by_end;
  std::vector<std::size_t> upwards(plan.buffers.size());
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    upwards[b] = b;
    if (plan.buffers[b].bytes > 0) by_end[plan.buffers[b].offset + plan.buffers[b].bytes].push_back(b);
  }
  std::stable_sort(upwards.begin(), upwards.end(),
                   [&](std::size_t a, std::size_t b) { return plan.buffers[a].offset < plan.buffers[b].offset; });
  constexpr int kDeepest = 120;  // nvcc follows 128, clang++ and g++ 512
  std::vector<int> depth(plan.buffers.size(), 0);
  std::vector<std::string> texts(plan.buffers.size());
  for (const std::size_t b : upwards) {
    const Buffer& own = plan.buffers[b];
    texts[b] = fmt::format("{}", own.offset);
    if (own.offset == 0) continue;
    const auto below = by_end.find(own.offset);
    if (below == by_end.end()) continue;
    for (const std::size_t other : below->second) {
      const Buffer& under = plan.buffers[other];
      if (under.last < own.first || own.last < under.first || names[other].empty() || depth[other] >= kDeepest)
        continue;
      std::string name = names[other];
      std::replace(name.begin(), name.end(), '.', '_');
      texts[b] = ends + "::" + name + "()";
      depth[b] = depth[other] + 1;
      break;
    }
  }
  return texts;
}

}  // namespace

std::string maxima(const ir::Shape& shape) {
  std::vector<std::string> dims;
  for (const std::int64_t d : shape.maxima()) dims.push_back(fmt::format("{}", d));
  return join(dims);
}

std::vector<std::string> marked_by_block(const std::vector<BlockLine>& lines) {
  return lines_by_block(
      lines, [](const std::string& block) { return fmt::format("GRAVEN_BLOCK({})", block); },
      [](const std::string& block) { return fmt::format("GRAVEN_BLOCK_END({})", block); });
}

BlockLine parameter_line(const std::string& macro, const ir::Graph& graph, const ValueNames& values, ir::ValueId v) {
  const ir::TensorType& type = graph.type(v);
  const std::string member = values.member(v), shape = maxima(type.shape);
  std::string text = padded(macro + arguments_of(member) + ",", kParameterColumn);
  text = padded(text + std::string(element_type(type.dtype)) + ",", kPathColumn) + string_literal(graph.value(v).name);
  return {block_of(member), shape.empty() ? text + ")" : padded(text + ",", kShapeColumn) + shape + ")"};
}

std::vector<std::string> arena_lines(const ir::Graph& graph, const Plan& plan, const ValueNames& values,
                                     const std::string& ends, const std::vector<BlockFunction>& functions) {
  struct Line {
    std::string name, dtype, comment, offset;
    std::int64_t bytes;
  };
  const std::vector<std::string> offsets = offset_texts(graph, plan, values, ends);
  std::vector<std::int32_t> last(graph.values.size(), -1), first(graph.values.size(), -1);
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    const ir::Node& n = graph.nodes[at(plan.steps[s].node)];
    for (const ir::ValueId v : n.inputs)
      if (v != ir::kNone) last[at(root(plan, v))] = static_cast<std::int32_t>(s);
    for (const ir::ValueId v : n.outputs) first[at(v)] = static_cast<std::int32_t>(s);
  }
  auto where = [&](std::int32_t step) -> std::string {
    if (step < 0) return "nobody";
    const ir::Node& n = graph.nodes[at(plan.steps[at(step)].node)];
    std::string module = ir::owner_of(n.origins);
    if (module.empty()) module = n.op->name;
    return comment_text(module) + (n.phase == ir::Phase::forward ? "" : " (" + std::string(ir::name(n.phase)) + ")");
  };
  std::vector<Line> lines;
  std::size_t next = 0;
  const auto& arena_values = values.arena();
  for (const Step& step : plan.steps) {
    for (; next < arena_values.size(); ++next) {
      const ir::ValueId v = arena_values[next];
      const auto& outputs = graph.nodes[at(step.node)].outputs;
      if (std::find(outputs.begin(), outputs.end(), v) == outputs.end()) break;
      const std::size_t buffer = at(plan.placements[at(v)].buffer);
      const Buffer& b = plan.buffers[buffer];
      std::string comment =
          fmt::format("{:<22} {} .. {}", graph.type(v).to_string(), where(first[at(v)]), where(last[at(v)]));
      const auto own = std::find(b.values.begin(), b.values.end(), v);
      if (own != b.values.begin() && own != b.values.end())
        comment += "; takes over " + values.member(*std::prev(own)) + ", in place";
      lines.push_back({values.member(v), std::string(element_type(graph.type(v).dtype)), comment, offsets[buffer],
                       byte_count(graph.type(v))});
    }
    if (step.workspace >= 0) {
      const Buffer& b = plan.buffers[at(step.workspace)];
      const std::int32_t index = static_cast<std::int32_t>(&step - plan.steps.data());
      lines.push_back({values.workspace(step), "u8", fmt::format("{:<22} {}", "scratch", where(index)),
                       offsets[at(step.workspace)], b.bytes});
    }
  }
  for (const BlockFunction& f : functions)
    for (const std::string& name : f.unneeded)
      lines.push_back({name, "u8", "scratch that others of its class need, and this one does not", "0", 0});
  std::vector<BlockLine> texts;
  for (const Line& l : lines) {
    const std::string bytes = fmt::format("{}", l.bytes);
    const std::string place = fmt::format("{:<4} {},", l.dtype + ",", l.offset);
    texts.push_back({block_of(l.name), padded("GRAVEN_VALUE" + arguments_of(l.name) + ",", kValueColumn) +
                                           padded(place, kBytesColumn - static_cast<int>(bytes.size())) + bytes +
                                           ")  // " + l.comment});
  }
  return marked_by_block(texts);
}

}  // namespace graven::codegen
