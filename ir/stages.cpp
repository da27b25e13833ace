#include "ir/stages.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "ir/analysis.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

constexpr std::int32_t kNoStage = -1, kMostStages = 4096;

/// The stages of modules that have one of their own.
std::unordered_map<std::string, std::int32_t> stages_of_modules(const Graph& graph) {
  std::unordered_map<std::string, std::int32_t> found;
  for (auto at = graph.config.lower_bound(std::string(kStageOf)); at != graph.config.end(); ++at) {
    if (!at->first.starts_with(kStageOf)) break;
    const auto* const stage = std::get_if<std::int64_t>(&at->second);
    if (stage == nullptr || *stage < 0 || *stage >= kMostStages)
      throw UserError("config." + at->first + ": expected a stage, an integer from 0 to " +
                      std::to_string(kMostStages - 1));
    found.emplace(at->first.substr(kStageOf.size()), static_cast<std::int32_t>(*stage));
  }
  return found;
}

/// What nodes' origins say.
class Modules {
 public:
  explicit Modules(const Graph& graph) : stages_(stages_of_modules(graph)) {}

  /// The first and the last stage of the node's modules; kNoStage twice where none has one.
  std::pair<std::int32_t, std::int32_t> of(const Node& node) {
    std::pair found{kNoStage, kNoStage};
    for (const Origin& o : node.origins) {
      const std::int32_t stage = of(o.module);
      if (stage == kNoStage) continue;
      if (found.first == kNoStage || stage < found.first) found.first = stage;
      found.second = std::max(found.second, stage);
    }
    return found;
  }

 private:
  std::int32_t of(const std::string& module) {
    const auto known = stages_.find(module);
    if (known != stages_.end()) return known->second;
    const std::size_t dot = module.rfind('.');
    const std::int32_t stage = dot == std::string::npos ? kNoStage : of(module.substr(0, dot));
    stages_.emplace(module, stage);
    return stage;
  }
  std::unordered_map<std::string, std::int32_t> stages_;
};

/// The extreme of what is known; kNoStage where nothing is.
std::int32_t least(std::int32_t a, std::int32_t b) { return a == kNoStage ? b : b == kNoStage ? a : std::min(a, b); }

class Stages {
 public:
  explicit Stages(const Graph& graph)
      : graph_(graph), uses_(graph), modules_(graph), of_(graph.nodes.size(), kNoStage) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) of_[n] = first_guess(graph.nodes[n]);
    // What reads nothing that has a stage is computed where it is read.
    for (std::size_t n = graph.nodes.size(); n-- > 0;)
      if (of_[n] == kNoStage && graph.nodes[n].phase != Phase::update) of_[n] = of_readers(graph.nodes[n]);
    find_owners();
    for (std::size_t n = 0; n < graph.nodes.size(); ++n)
      if (graph.nodes[n].phase == Phase::update) of_[n] = of_update(graph.nodes[n]);
    for (std::size_t n = graph.nodes.size(); n-- > 0;) {
      if (of_[n] == kNoStage) of_[n] = of_readers(graph.nodes[n]);
      if (of_[n] == kNoStage) of_[n] = std::max(of_what_it_reads(graph.nodes[n]), 0);
    }
  }

  std::vector<std::int32_t> take() { return std::move(of_); }

 private:
  std::int32_t stage_of(ValueId v) const {
    return v == kNone || uses_.maker(v) < 0 ? kNoStage : of_[at(uses_.maker(v))];
  }

  std::int32_t first_guess(const Node& node) {
    if (node.is(kReceive)) return static_cast<std::int32_t>(node.attributes.integer("to"));
    if (node.phase == Phase::update) return kNoStage;
    const auto [first, last] = modules_.of(node);
    std::int32_t forward = kNoStage, backward = kNoStage;
    for (const ValueId v : node.inputs) {
      const Node* const maker = uses_.maker(graph_, v);
      if (maker == nullptr) continue;
      if (maker->phase == Phase::backward)
        backward = least(backward, stage_of(v));
      else
        forward = std::max(forward, stage_of(v));
    }
    if (node.phase != Phase::backward) return std::max(first, forward);
    return backward != kNoStage ? least(last, backward) : last != kNoStage ? last : forward;
  }

  std::int32_t of_readers(const Node& node) const {
    std::int32_t stage = kNoStage;
    for (const ValueId v : node.outputs)
      for (const NodeId reader : uses_.readers(v))
        stage = node.phase == Phase::backward ? std::max(stage, of_[at(reader)]) : least(stage, of_[at(reader)]);
    return stage;
  }

  void find_owners() {
    // Where it is added up: what updates make of a gradient comes later.
    for (const Donation& d : graph_.donations)
      if (graph_.value(d.variable).kind == ValueKind::sum) owner_[d.variable] = stage_of(d.value);
    for (const Gradient& g : graph_.gradients)
      if (g.sum != kNone) owner_[g.parameter] = owner_(g.sum);
  }
  std::int32_t of_update(const Node& node) const {
    if (node.is(kReceive)) return static_cast<std::int32_t>(node.attributes.integer("to"));
    std::int32_t stage = kNoStage;
    for (const ValueId v : node.inputs)
      if (v != kNone) stage = std::max(stage, uses_.maker(v) < 0 ? owner_(v) : stage_of(v));
    return stage;
  }

  /// Of an update that reads nothing that a stage makes: where forward reads what it reads.
  std::int32_t of_what_it_reads(const Node& node) const {
    std::int32_t stage = kNoStage;
    if (node.phase != Phase::update) return stage;
    for (const ValueId v : node.inputs)
      if (v != kNone && uses_.maker(v) < 0)
        for (const NodeId reader : uses_.readers(v))
          if (graph_.nodes[at(reader)].phase != Phase::update) stage = least(stage, of_[at(reader)]);
    return stage;
  }

  const Graph& graph_;
  const Uses uses_;
  Modules modules_;
  std::vector<std::int32_t> of_;
  ByValue<std::int32_t> owner_{kNoStage};
};

}  // namespace

bool has_stages(const Graph& graph) {
  const auto found = graph.config.lower_bound(std::string(kStageOf));
  const bool trains = !graph.optimizers.empty() && !graph.losses.empty();
  return (trains || graph.flag(kStagedEvaluation)) && found != graph.config.end() && found->first.starts_with(kStageOf);
}

std::int32_t count_stages(const Graph& graph) {
  if (!has_stages(graph)) return 1;
  std::set<std::int32_t> stages;
  for (const auto& [module, stage] : stages_of_modules(graph)) stages.insert(stage);
  const auto count = static_cast<std::int32_t>(stages.size());
  if (*stages.rbegin() >= count) {
    std::string list;
    std::int32_t missing = 0;
    for (const std::int32_t s : stages) {
      list += (list.empty() ? "" : ", ") + std::to_string(s);
      if (s == missing) ++missing;
    }
    throw UserError("set_stage: the stages of " + graph.name + " are " + list + ", and there is no stage " +
                    std::to_string(missing) + ": they are counted from 0, without gaps");
  }
  return count;
}

std::vector<std::int32_t> stages_of_nodes(const Graph& graph) { return Stages(graph).take(); }

std::vector<std::vector<std::int32_t>> stages_of_variables(const Graph& graph) {
  const std::vector<std::int32_t> stage = stages_of_nodes(graph);
  const Uses uses(graph);
  std::vector<std::vector<std::int32_t>> found(graph.values.size());
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind == ValueKind::node) continue;
    std::set<std::int32_t> readers;
    for (const NodeId n : uses.readers(static_cast<ValueId>(v))) readers.insert(stage[at(n)]);
    found[v].assign(readers.begin(), readers.end());
  }
  for (const Donation& d : graph.donations) {
    std::vector<std::int32_t>& list = found[at(d.variable)];
    if (uses.maker(d.value) < 0 || (graph.value(d.variable).kind == ValueKind::sum)) continue;
    const std::int32_t owner = stage[at(uses.maker(d.value))];
    list.erase(std::remove(list.begin(), list.end(), owner), list.end());
    list.insert(list.begin(), owner);
  }
  return found;
}

std::vector<bool> second_round(const Graph& graph) {
  std::vector<bool> found(graph.nodes.size(), false);
  ByValue<bool> is_second;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.phase != Phase::update) continue;
    found[n] = node.is(kReceive) || std::any_of(node.inputs.begin(), node.inputs.end(), std::cref(is_second));
    if (found[n])
      for (const ValueId v : node.outputs) is_second[v] = true;
  }
  return found;
}

void sort_by_stage(Graph& graph) {
  const std::vector<bool> second = second_round(graph);
  const std::vector<std::int32_t> stage = stages_of_nodes(graph);
  std::vector<std::size_t> order(graph.nodes.size());
  for (std::size_t n = 0; n < order.size(); ++n) order[n] = n;
  const auto key = [&](std::size_t n) {
    const Phase phase = graph.nodes[n].phase;
    return std::tuple(phase, bool(second[n]), phase == Phase::backward ? -stage[n] : stage[n]);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  std::vector<Node> nodes;
  nodes.reserve(order.size());
  for (const std::size_t n : order) nodes.push_back(std::move(graph.nodes[n]));
  graph.nodes = std::move(nodes);
}

std::vector<Crossing> crossings(const Graph& graph) {
  const std::vector<ValueId> root = memory_roots(graph);
  const Uses uses(graph);
  std::vector<Crossing> found;
  for (const Node& node : graph.nodes) {
    if (!node.is(kReceive)) continue;
    const auto from = static_cast<std::int32_t>(node.attributes.integer("from")),
               to = static_cast<std::int32_t>(node.attributes.integer("to"));
    const ValueId value = root[at(node.inputs[0])];
    // What backward computes again may look once more at what forward has received.
    const bool there =
        std::any_of(found.begin(), found.end(), [&](const Crossing& c) { return c.value == value && c.to == to; });
    if (!there) found.push_back({value, from, to, node.phase});
  }
  std::stable_sort(found.begin(), found.end(), [&](const Crossing& a, const Crossing& b) {
    return std::tuple(uses.maker(a.value), a.to) < std::tuple(uses.maker(b.value), b.to);
  });
  return found;
}

}  // namespace graven::ir
