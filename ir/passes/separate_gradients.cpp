// Each parameter that an update changes gets a gradient of its own, in memory of its own, which is read from outside by
// the parameter's name and counts in the norm of all gradients.
//
//   b1 + b2: grad(b1) = grad(b2) = sum(dy)   ->   grad(b1) = sum(dy), grad(b2) = copy(grad(b1))
//
// So does what is no result of backward: the gradient of p in (p * q).sum() is q, a parameter that the same update
// changes, or an input, or a constant; and a part of something larger, which has no place of its own. Sums over the
// parts of a batch (Gradient::sum) are each parameter's own as it is.
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

class GradientSeparation {
 public:
  explicit GradientSeparation(Graph& graph) : graph_(graph), memory_(memory_roots(graph)) {
    for (const Gradient& g : graph.gradients)
      if (g.sum != kNone) added_up_.insert(g.parameter);
  }

  void run() {
    std::vector<Node> copies;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node update = graph_.nodes[n];  // a copy: nodes are added meanwhile
      if (!is_update(*update.op) || update.phase != Phase::update) continue;
      const InputRange gradients = input_range(update, InputRole::gradient),
                       parameters = input_range(update, InputRole::parameter);
      for (std::size_t i = 0; i < gradients.count; ++i) {
        const ValueId gradient = update.inputs[gradients.begin + i], parameter = update.inputs[parameters.begin + i];
        if (graph_.value(parameter).kind != ValueKind::parameter || added_up_.count(parameter) != 0) continue;
        if (graph_.type(gradient) != graph_.type(parameter)) continue;
        ValueId own = gradient;
        if (!is_own(gradient, parameter)) {
          own = copy(gradient, parameter, update.origins, copies);
          graph_.nodes[n].inputs[gradients.begin + i] = own;
        }
        owners_[gradient].push_back(own);
      }
    }
    if (copies.empty()) return;
    for (Node& node : graph_.nodes)
      if (node.phase == Phase::update && node.is(kClipFactor, kGradientNorm, kFiniteStep)) read_own(node);
    for (Node& copy : copies) graph_.nodes.push_back(std::move(copy));
    sort_by_phase(graph_);
    graph_.compact();  // looks the names up anew
  }

 private:
  /// The first parameter that it is the gradient of may have it.
  bool is_own(ValueId gradient, ValueId parameter) {
    const ValueId memory = memory_[at(gradient)];
    return graph_.value(memory).kind == ValueKind::node &&
           graph_.type(memory).shape.numel() == graph_.type(parameter).shape.numel() && taken_.insert(memory).second;
  }

  /// A norm that the update takes is of what it reads: where a value occurs again, of the next parameter's.
  void read_own(Node& node) {
    std::unordered_map<ValueId, std::size_t> occurrences;
    for (ValueId& v : node.inputs)
      if (const auto found = owners_.find(v); found != owners_.end())
        if (const std::size_t k = occurrences[v]++; k < found->second.size()) v = found->second[k];
  }

  ValueId copy(ValueId gradient, ValueId parameter, const Origins& origins, std::vector<Node>& copies) {
    const ValueId own = graph_.add_node(kCopy, {gradient}, {}, origins, Phase::backward,
                                        "grad(" + graph_.value(parameter).name + ")")[0];
    copies.push_back(std::move(graph_.nodes.back()));
    graph_.nodes.pop_back();
    for (Gradient& g : graph_.gradients)
      if (g.parameter == parameter) g.value = own;
    return own;
  }

  Graph& graph_;
  const std::vector<ValueId> memory_;
  std::unordered_set<ValueId> taken_, added_up_;
  std::unordered_map<ValueId, std::vector<ValueId>> owners_;  ///< by what was the gradient: each parameter's own
};

}  // namespace

void separate_gradients(Graph& graph, const PassOptions&) { GradientSeparation(graph).run(); }

}  // namespace graven::ir
