// Makes the copies without which a variable could not keep its memory, so that plans may write each new value where the
// old one lies.
//
//   total <- sum                          new(total) = copy(sum)          total <- new(total)
//   new(w) = sgd(w, ...)   y = f(w)       c = copy(w)   new(w) = sgd(w, ...)   y = f(c)
//
// What a variable is to hold is made by the update that takes over its memory, or by a copy, which the planner leaves
// out where what is copied can be computed in place. Nothing may read the old value behind that: the update is moved
// behind its readers, or they read a copy.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

class CopyInsertion {
 public:
  explicit CopyInsertion(Graph& graph) : graph_(graph) {}

  void run() {
    drop_what_stays();
    copy_new_values();
    // Each round moves a node, or copies what is read behind it, and looks at the graph anew. There is hardly ever one.
    while (const std::optional<Conflict> conflict = find_conflict()) {
      if (!move_behind_readers(*conflict)) copy_old_value(*conflict);
    }
  }

 private:
  /// A view of the variable itself holds the same numbers in the same order.
  void drop_what_stays() {
    const std::vector<ValueId> memory = memory_roots(graph_);
    std::erase_if(graph_.donations, [&](const Donation& d) { return memory[at(d.value)] == d.variable; });
  }

  /// A copy for each variable that no update makes the new value of.
  void copy_new_values() {
    const Uses uses(graph_);
    const std::vector<ValueId> memory = memory_roots(graph_);
    ByValue<Phase> last_read{Phase::forward};
    const ByValue<ValueId> from = updated_from(graph_);
    for (const Node& node : graph_.nodes)
      for (const ValueId v : node.inputs)
        if (v != kNone) last_read[memory[at(v)]] = std::max(last_read(memory[at(v)]), node.phase);
    // Copies that an earlier run has made.
    ByValue<bool> copied;
    for (const Node& node : graph_.nodes)
      if (node.is(kCopy) && uses.readers(node.outputs[0]).empty()) copied[node.outputs[0]] = true;
    std::vector<Node> nodes;
    std::map<NodeId, std::vector<Node>> before;
    for (Donation& d : graph_.donations) {
      ValueId first = d.value, update = kNone;  // where the chain of updates begins that ends at the new value
      for (; from(first) != kNone; first = from(first)) update = first;
      if (first == d.variable || std::exchange(copied[first], false)) continue;
      const Node* const maker = uses.maker(graph_, first);
      const Phase phase = std::max(last_read(d.variable), maker == nullptr ? Phase::forward : maker->phase);
      const std::string& path = graph_.value(d.variable).name;
      const std::size_t dot = path.find_last_of('.');
      const std::string module = dot == std::string::npos ? std::string() : path.substr(0, dot);
      Node copy = copy_of(first, new_value_name(path), {{module, "", 0}}, phase);
      if (update == kNone) {
        d.value = copy.outputs[0];
        nodes.push_back(std::move(copy));
        continue;
      }
      // build() has changed what the update changes further, which may be another variable's value as well.
      Node& first_update = graph_.nodes[at(uses.maker(update))];
      for (const auto& [input, output] : donated_by(first_update))
        if (first_update.outputs[output] == update) first_update.inputs[input] = copy.outputs[0];
      copy.phase = first_update.phase;
      before[uses.maker(update)].push_back(std::move(copy));
    }
    insert(before);
    // At the end of their phases, behind all that reads the old values.
    std::move(nodes.begin(), nodes.end(), std::back_inserter(graph_.nodes));
    sort_by_phase(graph_);
  }

  /// A node that is not yet in the graph.
  Node copy_of(ValueId value, std::string name, Origins origins, Phase phase) {
    graph_.add_node(kCopy, {value}, {}, std::move(origins), phase, std::move(name));
    Node copy = std::move(graph_.nodes.back());
    graph_.nodes.pop_back();
    return copy;
  }
  void insert(std::map<NodeId, std::vector<Node>>& before) {
    if (before.empty()) return;
    std::vector<Node> nodes;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (const auto found = before.find(static_cast<NodeId>(n)); found != before.end())
        std::move(found->second.begin(), found->second.end(), std::back_inserter(nodes));
      nodes.push_back(std::move(graph_.nodes[n]));
    }
    graph_.nodes = std::move(nodes);
  }

  /// A node that takes over memory before all of it that is read has been.
  struct Conflict {
    std::size_t node;
    std::size_t input;        ///< of an update: the one whose memory it takes over
    ValueId old;              ///< whose memory that is
    std::size_t last_reader;  ///< may be the node itself, which reads it as another input, too
  };

  std::optional<Conflict> find_conflict() {
    memory_ = memory_roots(graph_);
    ByValue<std::size_t> last_reader{0};
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (!graph_.nodes[n].op->alias)
        for (const ValueId v : graph_.nodes[n].inputs)
          if (v != kNone) last_reader[memory_[at(v)]] = n;
    const ByValue<ValueId> variable = variable_of(graph_);
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (node.is(kCopy) && variable(node.outputs[0]) != kNone) {
        const ValueId old = variable(node.outputs[0]);
        if (last_reader(old) > n) return Conflict{n, node.inputs.size(), old, last_reader(old)};
      }
      for (const auto& [input, output] : donated_by(node)) {
        const ValueId old = memory_[at(node.inputs[input])];
        if (last_reader(old) > n || reads_as_another(node, old, input))
          return Conflict{n, input, old, last_reader(old)};
      }
    }
    return std::nullopt;
  }
  bool reads_as_another(const Node& node, ValueId old, std::size_t input) const {
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (i != input && node.inputs[i] != kNone && memory_[at(node.inputs[i])] == old) return true;
    return false;
  }

  /// Whether the node could be moved behind the last one that reads what it takes over.
  bool move_behind_readers(const Conflict& conflict) {
    const auto begin = graph_.nodes.begin() + static_cast<std::ptrdiff_t>(conflict.node);
    const auto last = graph_.nodes.begin() + static_cast<std::ptrdiff_t>(conflict.last_reader);
    if (last <= begin || last->phase != begin->phase || reads_as_another(*begin, conflict.old, conflict.input))
      return false;
    ByValue<bool> made, read;
    for (const ValueId v : begin->outputs) made[v] = true;
    for (const ValueId v : begin->inputs)
      if (v != kNone) read[memory_[at(v)]] = true;
    const ByValue<ValueId> variable = variable_of(graph_);
    for (auto node = begin + 1; node <= last; ++node) {
      if (std::any_of(node->inputs.begin(), node->inputs.end(), std::cref(made))) return false;
      // What takes over the memory of what this one reads stays behind it.
      if (node->is(kCopy) && read(variable(node->outputs[0]))) return false;
      for (const auto& [input, output] : donated_by(*node))
        if (read(memory_[at(node->inputs[input])])) return false;
    }
    std::rotate(begin, begin + 1, last + 1);
    return true;
  }

  /// Whoever reads the old value behind the node reads a copy of it, or of the view of it, that is made before.
  void copy_old_value(const Conflict& conflict) {
    const Uses uses(graph_);
    const auto position = static_cast<NodeId>(conflict.node);
    const Phase phase = graph_.nodes[conflict.node].phase;
    const Origins origins = graph_.nodes[conflict.node].origins;
    std::map<NodeId, std::vector<Node>> before;
    std::map<ValueId, ValueId> copies;
    for (std::size_t n = conflict.node; n < graph_.nodes.size(); ++n)
      for (std::size_t i = 0; i < graph_.nodes[n].inputs.size(); ++i) {
        const ValueId v = graph_.nodes[n].inputs[i];
        if (v == kNone || memory_[at(v)] != conflict.old || uses.maker(v) >= position) continue;
        if (n == conflict.node && i == conflict.input) continue;
        const auto [copy, is_new] = copies.emplace(v, kNone);
        if (is_new) {
          before[position].push_back(copy_of(v, graph_.value(v).name + ".before", origins, phase));
          copy->second = before[position].back().outputs[0];
        }
        graph_.nodes[n].inputs[i] = copy->second;
      }
    insert(before);
  }

  Graph& graph_;
  std::vector<ValueId> memory_;
};

}  // namespace

void insert_copies(Graph& graph, const PassOptions&) {
  if (!graph.donations.empty()) CopyInsertion(graph).run();
}

}  // namespace graven::ir
