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
  explicit BatchNormFolder(Graph& graph) : uses_(graph), rewriter_(graph), graph_(graph) {
    producer_.assign(graph.values.size(), -1);
    constant_.assign(graph.values.size(), false);
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      const ValueKind kind = graph.values[v].kind;
      constant_[v] = kind == ValueKind::parameter || kind == ValueKind::buffer || kind == ValueKind::constant;
    }
    for (const Node& node : rewriter_.old())
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (is_mutated(node, i)) constant_[static_cast<std::size_t>(node.inputs[i])] = false;
  }

  void run() {
    for (Node& node : rewriter_.old()) {
      rewriter_.forward_inputs(node);
      if (node.op->name == "batch_norm" && fold(node)) continue;
      for (ValueId v : node.outputs) producer_[static_cast<std::size_t>(v)] = static_cast<NodeId>(graph_.nodes.size());
      rewriter_.keep(std::move(node));
      // New values have no entries; nothing here asks for them.
      producer_.resize(graph_.values.size(), -1);
    }
    rewriter_.finish();
  }

 private:
  bool is_constant(ValueId v) const {
    return v == kNone || (static_cast<std::size_t>(v) < constant_.size() && constant_[static_cast<std::size_t>(v)]);
  }

  bool fold(const Node& norm) {
    const ValueId x = norm.inputs[0];
    if (static_cast<std::size_t>(x) >= producer_.size() || producer_[static_cast<std::size_t>(x)] < 0) return false;
    const auto position = static_cast<std::size_t>(producer_[static_cast<std::size_t>(x)]);
    const Node layer = graph_.nodes[position];
    const bool convolution = layer.op->name == "conv2d";
    if (!convolution && !(layer.op->name == "linear" && graph_.type(x).shape.rank() == 2)) return false;
    // Its result must serve nothing else, and nothing may follow it in its epilogue.
    if (static_cast<std::size_t>(x) >= uses_.consumers.size() ||
        uses_.consumers[static_cast<std::size_t>(x)].size() != 1 || uses_.is_output[static_cast<std::size_t>(x)])
      return false;
    if (!layer.attributes.program("epilogue").empty() || layer.attributes.flag("packed") ||
        (layer.inputs.size() > 3 && layer.inputs[3] != kNone))
      return false;
    auto input = [](const Node& n, std::size_t i) { return i < n.inputs.size() ? n.inputs[i] : kNone; };
    const ValueId weight = input(layer, 1), bias = input(layer, 2);
    const ValueId gamma = input(norm, 1), beta = input(norm, 2), mean = input(norm, 3), var = input(norm, 4);
    if (!is_constant(weight) || !is_constant(bias) || !is_constant(gamma) || !is_constant(beta) || !is_constant(mean) ||
        !is_constant(var) || mean == kNone || var == kNone)
      return false;
    const DType dtype = graph_.type(weight).dtype;
    if (graph_.type(mean).dtype != dtype || graph_.type(var).dtype != dtype) return false;

    // The new weights stand before the layer; what they read stands at the graph's border.
    Node moved = std::move(graph_.nodes[position]);
    graph_.nodes[position] = Node{};  // a hole, closed at the end
    moved.origins = merge(moved.origins, norm.origins);
    // "model.features.0.1.batch_norm" -> "model.features.0.1.folded_weight"
    const std::string& name = graph_.value(norm.outputs[0]).name;
    const std::string module = name.substr(0, name.rfind('.') + 1);
    const ValueId new_weight = graph_.add_value(module + "folded_weight", ValueKind::node, graph_.type(weight)),
                  new_bias = graph_.add_value(module + "folded_bias", ValueKind::node, graph_.type(mean));
    rewriter_.keep({&get_op("fold_batch_norm"),
                    {{"eps", norm.attributes.number("eps")}},
                    {weight, bias, gamma, beta, mean, var},
                    {new_weight, new_bias},
                    moved.phase,
                    moved.origins});
    moved.inputs.resize(std::max<std::size_t>(moved.inputs.size(), 3), kNone);
    moved.inputs[1] = new_weight;
    moved.inputs[2] = new_bias;
    // The layer moves behind its new weights: nothing between reads its result.
    graph_.nodes.push_back(std::move(moved));
    producer_.resize(graph_.values.size(), -1);
    producer_[static_cast<std::size_t>(x)] = static_cast<NodeId>(graph_.nodes.size()) - 1;
    rewriter_.replace(norm.outputs[0], x);
    return true;
  }

  Uses uses_;
  Rewriter rewriter_;
  Graph& graph_;
  std::vector<NodeId> producer_;
  std::vector<bool> constant_;
};

}  // namespace

void fold_batch_norm(Graph& graph, const PassOptions& options) {
  BatchNormFolder(graph).run();
  std::erase_if(graph.nodes, [](const Node& n) { return n.op == nullptr; });
  remove_dead_nodes(graph, options);
}

}  // namespace graven::ir
