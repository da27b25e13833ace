// Inference: a batch_norm whose only input is a convolution or linear layer scales and shifts that layer's channels,
// which its weight and bias can do themselves:
//
//   scale = gamma / sqrt(var + eps),   weight' = weight * scale,   bias' = beta + (bias - mean) * scale
//
// Both are results of one node, fold_batch_norm, computed once after loading (prepare_weights moves it there), so that
// the weights in files stay those of the user's modules, and may be replaced.
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

class BatchNormFolder {
 public:
  explicit BatchNormFolder(Graph& graph)
      : uses_(graph),
        constant_(fixed(graph, {ValueKind::parameter, ValueKind::buffer, ValueKind::constant})),
        rewriter_(graph),
        graph_(graph) {}

  void run() {
    for (Node& node : rewriter_.old()) {
      rewriter_.forward_inputs(node);
      if (!node.is(kBatchNorm) || !fold(node)) rewriter_.keep(std::move(node));
    }
    rewriter_.finish();
  }

 private:
  bool is_constant(ValueId v) const { return v == kNone || constant_(v); }

  bool fold(const Node& norm) {
    const ValueId x = norm.inputs[0];
    Node* const made = rewriter_.maker(x);
    if (made == nullptr) return false;
    const Node layer = *made;
    if (!layer.is(kConv2d) && !(layer.is(kLinear) && graph_.type(x).shape.rank() == 2)) return false;
    if (uses_.only_reader(x) < 0) return false;  // its result must serve nothing else
    auto input = [](const Node& n, std::size_t i) { return i < n.inputs.size() ? n.inputs[i] : kNone; };
    const ValueId weight = input(layer, 1), bias = input(layer, 2);
    const ValueId gamma = input(norm, 1), beta = input(norm, 2), mean = input(norm, 3), var = input(norm, 4);
    if (!is_constant(weight) || !is_constant(bias) || !is_constant(gamma) || !is_constant(beta) || !is_constant(mean) ||
        !is_constant(var) || mean == kNone || var == kNone)
      return false;
    const DType dtype = graph_.type(weight).dtype;
    if (graph_.type(mean).dtype != dtype || graph_.type(var).dtype != dtype) return false;

    // The new weights stand before the layer; what they read stands at the graph's border.
    Node moved = std::exchange(*made, {});  // a hole, closed at the end
    moved.origins = merge(moved.origins, norm.origins);
    // "model.features.0.1.batch_norm" -> "model.features.0.1.folded_weight"
    const std::string& name = graph_.value(norm.outputs[0]).name;
    const std::string module = name.substr(0, name.rfind('.') + 1);
    const ValueId new_weight = graph_.add_value(module + "folded_weight", ValueKind::node, graph_.type(weight)),
                  new_bias = graph_.add_value(module + "folded_bias", ValueKind::node, graph_.type(mean));
    rewriter_.keep({&kFoldBatchNorm,
                    {{"eps", norm.attributes.number("eps")}},
                    {weight, bias, gamma, beta, mean, var},
                    {new_weight, new_bias},
                    moved.phase,
                    moved.origins});
    moved.inputs.resize(std::max<std::size_t>(moved.inputs.size(), 3), kNone);
    moved.inputs[1] = new_weight;
    moved.inputs[2] = new_bias;
    // The layer moves behind its new weights: nothing between reads its result.
    rewriter_.keep(std::move(moved));
    rewriter_.replace(norm.outputs[0], x);
    return true;
  }

  const Uses uses_;
  const ByValue<bool> constant_;
  Rewriter rewriter_;
  Graph& graph_;
};

}  // namespace

void fold_batch_norm(Graph& graph, const PassOptions& options) {
  BatchNormFolder(graph).run();
  std::erase_if(graph.nodes, [](const Node& n) { return n.op == nullptr; });
  remove_dead_nodes(graph, options);
}

}  // namespace graven::ir
