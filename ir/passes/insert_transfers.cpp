// Targets with several kinds of memory: a kernel finds what it reads in the space where it runs, and a caller finds
// results in the first one. What lies elsewhere is copied, once for all who read it there:
//
//   y = relu(x)     x lies in "host", relu runs in "device"      x.device = copy(x)   y = relu(x.device)
#include <map>
#include <utility>

#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

Place place_of(const NodeView& node, const TargetTraits& target) {
  if (target.place == nullptr || node.node.phase == Phase::prepare) return {};
  Place place = target.place(node);
  if (node.node.op->donates()) place.space = 0;
  GRAVEN_CHECK(place.stream >= 0 && at(place.stream) < target.streams.size() && place.space >= 0 &&
                   at(place.space) < target.spaces.size(),
               "the target has no such stream or memory space");
  return place;
}

ByValue<std::int32_t> memory_spaces(const Graph& graph, const TargetTraits& target) {
  ByValue<std::int32_t> space, wanted;
  if (target.place == nullptr) return space;
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    if (node.is(kCopy)) continue;
    const std::int32_t here = node.op->alias ? wanted(node.outputs[0]) : place_of({graph, node}, target).space;
    for (const ValueId v : node.inputs)
      if (v != kNone) wanted[v] = here;
  }
  for (const ValueId v : graph.outputs) wanted[v] = 0;
  for (const Loss& l : graph.losses) wanted[l.value] = 0;
  for (const Gradient& g : graph.gradients) wanted[g.value] = 0;
  for (const Donation& d : graph.donations) wanted[d.value] = 0;
  for (const Node& node : graph.nodes)
    for (const ValueId v : node.outputs)
      space[v] = node.op->alias   ? space(node.inputs[0])
                 : node.is(kCopy) ? wanted(v)
                                  : place_of({graph, node}, target).space;
  return space;
}

void insert_transfers(Graph& graph, const PassOptions& options) {
  const TargetTraits& target = *options.target;
  const ByValue<std::int32_t> space = memory_spaces(graph, target);
  std::map<std::pair<ValueId, std::int32_t>, ValueId> moved;
  Rewriter rewriter(graph);
  const auto move = [&](ValueId& v, std::int32_t to, const Node& node) {
    if (v == kNone || space(v) == to || graph.value(v).kind == ValueKind::hyper) return;
    const auto [known, fresh] = moved.emplace(std::pair(v, to), kNone);
    if (fresh)
      known->second = rewriter.add(kCopy, {v}, {}, node.origins, node.phase,
                                   graph.value(v).name + "." + std::string(target.spaces[at(to)]));
    v = known->second;
  };
  ByValue<bool> is_result;
  for (const ValueId v : graph.outputs) is_result[v] = true;
  for (const Loss& l : graph.losses) is_result[l.value] = true;
  for (const Gradient& g : graph.gradients) is_result[g.value] = true;
  for (Node& node : rewriter.old()) {
    const Node as_it_was = node;
    if (!node.op->alias && !node.is(kCopy))
      for (ValueId& v : node.inputs) move(v, place_of({graph, as_it_was}, target).space, as_it_was);
    rewriter.keep(std::move(node));
    for (ValueId v : as_it_was.outputs)
      if (is_result(v)) move(v, 0, as_it_was);
  }
  const auto result = [&](ValueId& v) {
    if (const auto found = moved.find({v, 0}); found != moved.end()) v = found->second;
  };
  for (ValueId& v : graph.outputs) result(v);
  for (Loss& l : graph.losses) result(l.value);
  for (Gradient& g : graph.gradients) result(g.value);
}

}  // namespace graven::ir
