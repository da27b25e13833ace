// Clipping by a norm where the update reads its gradients anyway: the update multiplies by the factor, and no pass over
// the gradients stands before it.
//
//   f = clip_factor(g...)  adam(params, f * g..., ...)   ->   f = clip_factor(g...)  adam(params, g..., ..., f)
//
// The same with what unscales the gradients of a scaled loss. For updates whose gradients are all scaled by the same
// factor, where nothing else reads what is scaled. The product is rounded as before, so the parameters are the same,
// bit for bit. From here on a parameter's gradient is what flowed back, before it is clipped; the norm becomes part of
// the update, so that a program that changes gradients between backward and update has it taken of those.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

class ClippingFusion {
 public:
  explicit ClippingFusion(Graph& graph) : graph_(graph), uses_(graph), scale_(loss_scale(graph)) {
    for (Gradient& g : graph.gradients) gradients_of_[g.value].push_back(&g);
    results_.insert(graph.outputs.begin(), graph.outputs.end());
    for (const Loss& loss : graph.losses) results_.insert(loss.value);
  }

  void run() {
    for (Node& node : graph_.nodes)
      if (is_update(*node.op) && input_of(*node.op, InputRole::factor) < node.op->inputs.size() &&
          factor_of(node) == kNone)
        fuse(node);
    if (fused_.empty()) return;
    for (Node& node : graph_.nodes)
      if (node.is(kFiniteStep))
        for (ValueId& v : node.inputs)
          if (const auto found = fused_.find(v); found != fused_.end()) v = found->second;
    std::erase_if(graph_.nodes, [&](const Node& n) { return !n.outputs.empty() && fused_.count(n.outputs[0]) != 0; });
    if (!updates_in_backward(graph_)) clip_in_update();
    graph_.compact();  // looks the names up anew
  }

 private:
  /// A gradient and what it is multiplied by, the factor of a norm.
  struct Product {
    ValueId gradient, factor;
  };
  std::optional<Product> product_of(ValueId v) const {
    const Node* const maker = uses_.maker(graph_, v);
    if (maker == nullptr || !maker->is(kMul) || results_.count(v) != 0 || readers_but_checks(v) != 1)
      return std::nullopt;
    for (const std::size_t i : {1, 0}) {
      const ValueId factor = maker->inputs[i], gradient = maker->inputs[1 - i];
      if (is_factor(factor, uses_) && graph_.type(gradient) == graph_.type(v)) return Product{gradient, factor};
    }
    return std::nullopt;
  }
  /// Without those that only look whether it is finite, which is said of the gradient as well.
  std::size_t readers_but_checks(ValueId v) const {
    std::size_t count = 0;
    for (const NodeId n : uses_.readers(v)) count += graph_.nodes[at(n)].is(kFiniteStep) ? 0 : 1;
    return count;
  }
  bool is_factor(ValueId v, const Uses& uses) const {
    const Node* maker = uses.maker(graph_, v);
    while (maker != nullptr && maker->is(kCast)) maker = uses.maker(graph_, maker->inputs[0]);
    return maker != nullptr && (maker->is(kClipFactor) || is_inverse_scale(*maker, uses));
  }
  /// Of a scaled loss: what its gradients are multiplied by (unscale_gradients.cpp).
  bool is_inverse_scale(const Node& node, const Uses& uses) const {
    if (!node.is(kReciprocal) || scale_ == kNone) return false;
    ValueId v = node.inputs[0];
    for (const Node* maker = uses.maker(graph_, v); maker != nullptr && maker->is(kCast); maker = uses.maker(graph_, v))
      v = maker->inputs[0];
    return v == scale_;
  }

  void fuse(Node& update) {
    const InputRange gradients = input_range(update, InputRole::gradient);
    std::vector<Product> products;
    for (std::size_t i = gradients.begin; i < gradients.begin + gradients.count; ++i) {
      const std::optional<Product> product = product_of(update.inputs[i]);
      if (!product || (!products.empty() && product->factor != products[0].factor)) return;
      products.push_back(*product);
    }
    for (std::size_t i = 0; i < products.size(); ++i) {
      ValueId& taken = update.inputs[gradients.begin + i];
      if (fused_.emplace(taken, products[i].gradient).second) replace(taken, products[i].gradient);
      taken = products[i].gradient;
    }
    update.inputs.push_back(products[0].factor);
  }

  /// Of the parameters whose gradient it is: equal ones are one value. The name goes with it, but what has a name of
  /// its own keeps that: a parameter, an input or a result may be another parameter's gradient.
  void replace(ValueId scaled, ValueId gradient) {
    const auto known = gradients_of_.find(scaled);
    if (known == gradients_of_.end()) return;
    for (Gradient* g : known->second) g->value = gradient;
    if (graph_.value(gradient).kind == ValueKind::node && results_.count(gradient) == 0)
      std::swap(graph_.value(scaled).name, graph_.value(gradient).name);
  }

  /// Factors that updates alone read are computed with them.
  void clip_in_update() {
    const Uses uses(graph_);
    for (std::size_t n = graph_.nodes.size(); n-- > 0;) {
      Node& node = graph_.nodes[n];
      if (node.outputs.empty() || node.phase != Phase::backward) continue;
      const ValueId v = node.outputs[0];
      if (!is_factor(v, uses) || uses.is_result(v) || uses.readers(v).empty()) continue;
      const auto updates = [&](NodeId reader) { return graph_.nodes[at(reader)].phase == Phase::update; };
      if (std::all_of(uses.readers(v).begin(), uses.readers(v).end(), updates)) node.phase = Phase::update;
    }
    sort_by_phase(graph_);
  }

  Graph& graph_;
  const Uses uses_;  ///< as the graph was
  const ValueId scale_;
  std::unordered_map<ValueId, std::vector<Gradient*>> gradients_of_;
  std::unordered_set<ValueId> results_;         ///< outputs and losses; of the graph's results a gradient may be scaled
  std::unordered_map<ValueId, ValueId> fused_;  ///< products, and the gradients that are read in their places
};

}  // namespace

void fuse_clipping(Graph& graph, const PassOptions&) { ClippingFusion(graph).run(); }

}  // namespace graven::ir
