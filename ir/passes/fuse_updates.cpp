// Updates the weight of a linear layer where its gradient is computed: the gradient is never stored, which saves its memory and moving it there and
// back, and half of the second-level cache is left to the weight.
//
//   dw, db = linear_backward_weight(dy, x)       db = linear_sgd(weight, momentum, dy, x, lr, step)
//   sgd({weight, bias}, {dw, db}, ...)           sgd({bias}, {db}, ...)
//
// The new node stands where the update stood, behind the last node that reads the weight. After update_in_backward, so only where the graph asks for
// that; in f32, and where the gradient is summed over all rows at once: then the parameters are the same, bit for bit.
#include <algorithm>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "kernels/config/linear.h"

namespace graven::ir {

namespace {

/// The operators that compute a gradient and update by it: one line for each pair.
struct Fusion {
  std::string_view gradient, update, fused;
};
constexpr Fusion kFusions[] = {{"linear_backward_weight", "sgd", "linear_sgd"}, {"linear_backward_weight", "adam", "linear_adam"}};

constexpr std::size_t kGradients = 1;  ///< of an update's inputs

bool is_list_update(const Node& node) { return !node.op->inputs.empty() && node.op->inputs[0].variadic && node.op->inputs[0].mutated; }

std::size_t index_of(ValueId v) { return static_cast<std::size_t>(v); }

class UpdateFusion {
 public:
  explicit UpdateFusion(Graph& graph)
      : graph_(graph), uses_(graph), replaced_(graph.nodes.size(), false), gone_(graph.values.size(), false), instead_(graph.nodes.size()) {}

  void run() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!replaced_[n] && graph_.nodes[n].phase == Phase::backward && is_list_update(graph_.nodes[n])) fuse(n);
    }
    std::vector<Node> nodes;
    nodes.reserve(graph_.nodes.size());
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (Node& node : instead_[n]) nodes.push_back(std::move(node));
      if (!replaced_[n]) nodes.push_back(std::move(graph_.nodes[n]));
    }
    graph_.nodes = std::move(nodes);
    // What is nowhere stored is nobody's gradient.
    std::erase_if(graph_.gradients, [&](const Gradient& g) { return gone_[index_of(g.value)]; });
  }

 private:
  /// Takes out of an update each parameter whose gradient can be computed there.
  void fuse(std::size_t n) {
    std::vector<std::size_t> left;
    const std::size_t count = input_range(*graph_.nodes[n].op, graph_.nodes[n].inputs.size(), 0).count;
    for (std::size_t i = 0; i < count; ++i)
      if (!fuse(n, i)) left.push_back(i);
    if (left.empty())
      replaced_[n] = true;
    else if (left.size() < count)
      keep_only(graph_.nodes[n], left);
  }

  static void keep_only(Node& update, const std::vector<std::size_t>& chosen) {
    std::vector<ValueId> inputs;
    for (std::size_t s = 0; s < update.op->inputs.size(); ++s) {
      const InputRange range = input_range(*update.op, update.inputs.size(), s);
      if (!update.op->inputs[s].variadic) inputs.push_back(update.inputs[range.begin]);
      for (const std::size_t i : chosen)
        if (update.op->inputs[s].variadic) inputs.push_back(update.inputs[range.begin + i]);
    }
    update.inputs = std::move(inputs);
  }

  bool fuse(std::size_t n, std::size_t i) {
    const Node& update = graph_.nodes[n];
    const ValueId gradient = update.inputs[input_range(*update.op, update.inputs.size(), kGradients).begin + i];
    if (graph_.type(gradient).dtype != DType::f32 || is_result(gradient) || uses_.consumers[index_of(gradient)].size() != 1) return false;
    const NodeId made = uses_.producer[index_of(gradient)];
    if (made < 0 || replaced_[static_cast<std::size_t>(made)]) return false;
    const Node& maker = graph_.nodes[static_cast<std::size_t>(made)];
    const auto* const fusion = std::find_if(std::begin(kFusions), std::end(kFusions),
                                            [&](const Fusion& f) { return f.gradient == maker.op->name && f.update == update.op->name; });
    if (fusion == std::end(kFusions) || maker.outputs[0] != gradient || !at_once(maker) || !stay(maker) || !can_wait(maker, n)) return false;
    Node fused = maker;
    fused.op = &get_op(fusion->fused);
    fused.attributes = update.attributes;
    fused.inputs.clear();
    for (const bool of_parameter : {true, false}) {
      for (std::size_t s = 0; s < update.op->inputs.size(); ++s)
        if (update.op->inputs[s].variadic == of_parameter && s != kGradients)
          fused.inputs.push_back(update.inputs[input_range(*update.op, update.inputs.size(), s).begin + (of_parameter ? i : 0)]);
      if (of_parameter) fused.inputs.insert(fused.inputs.end(), maker.inputs.begin(), maker.inputs.end());
    }
    fused.outputs.erase(fused.outputs.begin());
    gone_[index_of(gradient)] = true;
    replaced_[static_cast<std::size_t>(made)] = true;
    instead_[n].push_back(std::move(fused));
    for (const NodeId reader : earlier_readers(maker, n)) {
      instead_[n].push_back(std::move(graph_.nodes[static_cast<std::size_t>(reader)]));
      replaced_[static_cast<std::size_t>(reader)] = true;
    }
    return true;
  }

  bool is_result(ValueId v) const {
    return std::count(graph_.outputs.begin(), graph_.outputs.end(), v) != 0 ||
           std::any_of(graph_.losses.begin(), graph_.losses.end(), [&](const Loss& l) { return l.value == v || l.gradient == v; });
  }

  /// Whether the gradient is one sum over all rows: so it is large.
  bool at_once(const Node& maker) const {
    const Shape& weight = graph_.type(maker.outputs[0]).shape;
    return kernels::linear_backward_weight_chunks({.m = std::int64_t{1} << 31, .n = weight[0].value(), .k = weight.back().value()}) == 1;
  }

  /// Whether what the gradient is computed from is still the same later: nothing that an update writes.
  bool stay(const Node& maker) const {
    return std::all_of(maker.inputs.begin(), maker.inputs.end(), [&](ValueId v) {
      for (NodeId made = uses_.producer[index_of(v)]; made >= 0 && graph_.nodes[static_cast<std::size_t>(made)].op->alias;
           made = uses_.producer[index_of(v)])
        v = graph_.nodes[static_cast<std::size_t>(made)].inputs[0];
      const ValueKind kind = graph_.value(v).kind;
      return kind == ValueKind::node || kind == ValueKind::input;
    });
  }

  /// The nodes before n that read the gradient's other result, db.
  std::vector<NodeId> earlier_readers(const Node& maker, std::size_t n) const {
    std::vector<NodeId> readers;
    for (std::size_t o = 1; o < maker.outputs.size(); ++o)
      for (const NodeId reader : uses_.consumers[index_of(maker.outputs[o])])
        if (static_cast<std::size_t>(reader) < n) readers.push_back(reader);
    return readers;
  }

  /// Whether all that reads db before n may as well stand behind n: another update, of a bias with options of its own.
  bool can_wait(const Node& maker, std::size_t n) const {
    for (std::size_t o = 1; o < maker.outputs.size(); ++o)
      if (is_result(maker.outputs[o])) return false;
    const std::vector<NodeId> readers = earlier_readers(maker, n);
    return std::all_of(readers.begin(), readers.end(), [&](NodeId reader) {
      return !replaced_[static_cast<std::size_t>(reader)] && is_list_update(graph_.nodes[static_cast<std::size_t>(reader)]);
    });
  }

  Graph& graph_;
  const Uses uses_;
  std::vector<bool> replaced_, gone_;       ///< by node: it is no longer where it was; by value: nothing makes it any more
  std::vector<std::vector<Node>> instead_;  ///< by node: what stands before it, or for it
};

}  // namespace

void fuse_updates(Graph& graph, const PassOptions&) { UpdateFusion(graph).run(); }

}  // namespace graven::ir
