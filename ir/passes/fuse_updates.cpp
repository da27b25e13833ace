// Updates the weight of a linear layer where its gradient is computed: the gradient is never stored, which saves its
// memory and moving it there and back, and half of the second-level cache is left to the weight.
//
//   dw, db = linear_backward_weight(dy, x)       db = linear_sgd(weight, momentum, dy, x, lr, step)
//   sgd({weight, bias}, {dw, db}, ...)           sgd({bias}, {db}, ...)
//
// A convolution whose kernel is one pixel is such a layer, too. Where trim_kernels cut the kernel, the gradient comes
// back through a pad, with zeros around it: the new node is told which of the taps has the gradient instead.
//
// The new node stands where the update stood, behind the last node that reads the weight. After update_in_backward, so
// only where the graph asks for that; in f32, and where the gradient is summed over all rows at once: then the
// parameters are the same, bit for bit.
#include <algorithm>

#include "ir/ops/optimizer_shared.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "kernels/config/linear.h"

namespace graven::ir {

namespace {

/// The operator that computes a weight's gradient and updates by the same rule; nullptr: there is none.
const OpDef* fusion_of(const OpDef& gradient, const OpDef& update) {
  if (gradient != kLinearBackwardWeight && gradient != kConv2dBackwardWeight) return nullptr;
  for (const OpDef* op : all_ops())
    if (updates_parameter(*op) && op->rule == update.rule) return op;
  return nullptr;
}

/// A gradient as an update takes it, and where it comes from.
struct Source {
  NodeId maker = -1;
  std::vector<NodeId> between;     ///< reshapes and a pad
  std::int64_t taps = 1, tap = 0;  ///< the pad puts each element at place `tap` of `taps`
};

class UpdateFusion {
 public:
  explicit UpdateFusion(Graph& graph)
      : graph_(graph),
        uses_(graph),
        memory_(memory_roots(graph)),
        replaced_(graph.nodes.size(), false),
        gone_(graph.values.size(), false),
        instead_(graph.nodes.size()) {}

  void run() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!replaced_[n] && graph_.nodes[n].phase == Phase::backward && is_update(*graph_.nodes[n].op)) fuse(n);
    }
    std::vector<Node> nodes;
    nodes.reserve(graph_.nodes.size());
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (Node& node : instead_[n]) nodes.push_back(std::move(node));
      if (!replaced_[n]) nodes.push_back(std::move(graph_.nodes[n]));
    }
    graph_.nodes = std::move(nodes);
    // What is nowhere stored is nobody's gradient.
    std::erase_if(graph_.gradients, [&](const Gradient& g) { return gone_[at(g.value)]; });
  }

 private:
  /// Takes out of an update each parameter whose gradient can be computed there.
  void fuse(std::size_t n) {
    if (factor_of(graph_.nodes[n]) != kNone) return;  // it waits for the norm of all gradients
    std::vector<std::size_t> left;
    const std::size_t count = input_range(graph_.nodes[n], InputRole::parameter).count;
    for (std::size_t i = 0; i < count; ++i)
      if (!fuse(n, i)) left.push_back(i);
    if (left.empty())
      replaced_[n] = true;
    else if (left.size() < count)
      graph_.nodes[n] = part_of_update(graph_.nodes[n], left);
  }

  bool fuse(std::size_t n, std::size_t i) {
    const Node& update = graph_.nodes[n];
    const ValueId gradient = update.inputs[input_range(update, InputRole::gradient).begin + i];
    const Source source = source_of(gradient);
    if (source.maker < 0 || replaced_[at(source.maker)]) return false;
    const Node& maker = graph_.nodes[at(source.maker)];
    const OpDef* const fusion = fusion_of(*maker.op, *update.op);
    if (fusion == nullptr || graph_.type(maker.inputs[0]).dtype != DType::f32 || !is_linear(maker) || !at_once(maker) ||
        !stay(maker) || !can_wait(maker, n))
      return false;
    Node fused = maker;
    fused.op = fusion;
    fused.attributes = update.attributes;
    fused.attributes.set("taps", source.taps);
    fused.attributes.set("tap", source.tap);
    fused.inputs.clear();
    for (const bool of_parameter : {true, false}) {
      for (std::size_t s = 0; s < update.op->inputs.size(); ++s)
        if (update.op->inputs[s].variadic == of_parameter && update.op->inputs[s].role != InputRole::gradient &&
            update.op->inputs[s].role != InputRole::factor)
          fused.inputs.push_back(
              update.inputs[input_range(*update.op, update.inputs.size(), s).begin + (of_parameter ? i : 0)]);
      if (of_parameter) fused.inputs.insert(fused.inputs.end(), maker.inputs.begin(), maker.inputs.end());
    }
    fused.outputs.erase(fused.outputs.begin());
    const std::vector<ValueId> updated = part_of_update(update, {i}).outputs;
    fused.outputs.insert(fused.outputs.end(), updated.begin(), updated.end());
    gone_[at(gradient)] = true;
    replaced_[at(source.maker)] = true;
    for (const NodeId node : source.between) replaced_[at(node)] = true;
    instead_[n].push_back(std::move(fused));
    for (const NodeId reader : earlier_readers(maker, n)) {
      instead_[n].push_back(std::move(graph_.nodes[at(reader)]));
      replaced_[at(reader)] = true;
    }
    return true;
  }

  /// The node whose first result the gradient is, through reshapes and one pad; none where anybody else reads what lies
  /// between.
  Source source_of(ValueId gradient) const {
    Source source;
    for (ValueId v = gradient; graph_.type(v).dtype == DType::f32 && !is_result(v) && uses_.readers(v).size() == 1;) {
      const NodeId made = uses_.maker(v);
      if (made < 0) return source;
      const Node& node = graph_.nodes[at(made)];
      if (node.is(kPad) && source.taps == 1) {
        if (!take_taps(node, source)) return source;
      } else if (!node.is(kReshape)) {
        if (node.outputs[0] == v) source.maker = made;
        return source;
      }
      source.between.push_back(made);
      v = node.inputs[0];
    }
    return source;
  }

  /// Whether a pad spreads single elements with zeros around each: in its last dimension of more than one.
  bool take_taps(const Node& pad, Source& source) const {
    const Shape &from = graph_.type(pad.inputs[0]).shape, &to = graph_.type(pad.outputs[0]).shape;
    const Ints& pads = pad.attributes.integers("pads");
    std::size_t last = to.rank();
    while (last > 0 && to[last - 1] == 1 && from[last - 1] == 1) --last;
    if (last == 0 || from[last - 1] != 1 || pad.attributes.number("value") != 0) return false;
    for (std::size_t d = 0; d + 1 < last; ++d)
      if (pads[2 * d] != 0 || pads[2 * d + 1] != 0) return false;
    source.taps = to[last - 1].value();
    source.tap = pads[2 * (last - 1)];
    return source.taps <= ops::kMostTaps && source.tap >= 0 && source.tap < source.taps;
  }

  /// Whether the gradient is the product of dy and x as matrices.
  static bool is_linear(const Node& maker) {
    if (!maker.is(kConv2dBackwardWeight)) return true;
    const Attributes& a = maker.attributes;
    return a.flag("channels_last") && a.integer("groups") == 1 && a.integers("kernel_size") == Ints{1, 1} &&
           a.integers("stride") == Ints{1, 1} && a.integers("padding") == Ints{0, 0};
  }

  bool is_result(ValueId v) const {
    return std::count(graph_.outputs.begin(), graph_.outputs.end(), v) != 0 ||
           std::any_of(graph_.losses.begin(), graph_.losses.end(),
                       [&](const Loss& l) { return l.value == v || l.gradient == v; });
  }

  /// Whether the gradient is one sum over all rows: so it is large.
  bool at_once(const Node& maker) const {
    const Shape& weight = graph_.type(maker.outputs[0]).shape;
    const std::int64_t n = weight[0].value(), k = weight.numel().value() / std::max<std::int64_t>(n, 1);
    return kernels::linear_backward_weight_chunks({.m = std::int64_t{1} << 31, .n = n, .k = k}) == 1;
  }

  /// Whether what the gradient is computed from may be read later: nothing whose memory another update takes over.
  bool stay(const Node& maker) const {
    return std::all_of(maker.inputs.begin(), maker.inputs.end(), [&](ValueId v) {
      const ValueKind kind = graph_.value(memory_[at(v)]).kind;
      return kind == ValueKind::node || kind == ValueKind::input;
    });
  }

  /// The nodes before n that read the gradient's other result, db.
  std::vector<NodeId> earlier_readers(const Node& maker, std::size_t n) const {
    std::vector<NodeId> readers;
    for (std::size_t o = 1; o < maker.outputs.size(); ++o)
      for (const NodeId reader : uses_.readers(maker.outputs[o]))
        if (at(reader) < n) readers.push_back(reader);
    return readers;
  }

  /// Whether all that reads db before n may as well stand behind n: another update, of a bias with options of its own.
  bool can_wait(const Node& maker, std::size_t n) const {
    for (std::size_t o = 1; o < maker.outputs.size(); ++o)
      if (is_result(maker.outputs[o])) return false;
    const std::vector<NodeId> readers = earlier_readers(maker, n);
    return std::all_of(readers.begin(), readers.end(), [&](NodeId reader) {
      return !replaced_[at(reader)] && is_update(*graph_.nodes[at(reader)].op);
    });
  }

  Graph& graph_;
  const Uses uses_;
  const std::vector<ValueId> memory_;
  std::vector<bool> replaced_, gone_;  ///< by node: it is no longer where it was; by value: nothing makes it any more
  std::vector<std::vector<Node>> instead_;  ///< by node: what stands before it, or for it
};

}  // namespace

void fuse_updates(Graph& graph, const PassOptions&) { UpdateFusion(graph).run(); }

}  // namespace graven::ir
