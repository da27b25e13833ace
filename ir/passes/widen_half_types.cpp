// Half types are storage: where a target has no kernel for a node's f16 or bf16, its inputs become f32, the f32 kernel
// computes, and its results are rounded. That is what kernels of half types do, too, who add up in f32 and round once;
// so the numbers are the same but for the order of sums.
//
//   y bf16 = softmax(x bf16)    ->    x.f32 = cast(x), y.unrounded = softmax(x.f32), y = cast(y.unrounded)
//
// A value becomes f32 once a phase, for all its readers: what backward reads is kept in the half type, and takes half
// of the memory. But for statistics that an operator keeps for its gradient, a number for many elements (a norm's
// means): they stay f32, as PyTorch's do. Fusion makes conversions part of the elementwise work around them.
#include <algorithm>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

class WidenHalfTypes {
 public:
  WidenHalfTypes(Graph& graph, bool (*takes_half)(const NodeView& node))
      : graph_(graph), takes_half_(takes_half), rewriter_(graph) {
    for (const Node& node : rewriter_.old()) {
      const Reader reader = is_widened(node) ? Reader::widened : Reader::other;
      for (const ValueId v : node.inputs)
        if (v != kNone) note(v, reader);
    }
    for (const ValueId v : graph.outputs) note(v, Reader::other);
    for (const Loss& l : graph.losses) {
      note(l.value, Reader::other);
      if (l.gradient != kNone) note(l.gradient, Reader::other);
    }
    for (const Gradient& g : graph.gradients) note(g.value, Reader::other);
    for (const Donation& d : graph.donations) note(d.value, Reader::other);
  }

  void run() {
    for (Node& node : rewriter_.old()) {
      if (node.phase != phase_) f32_of_ = ByValue<ValueId>(kNone);
      phase_ = node.phase;
      if (is_widened(node))
        compute_in_f32(std::move(node));
      else
        rewriter_.keep(std::move(node));
    }
  }

 private:
  enum class Reader : std::uint8_t { none, widened, other };  ///< each counts for more than those before
  void note(ValueId v, Reader reader) { readers_[v] = std::max(readers_(v), reader); }

  bool is_widened(const Node& node) const {
    return has_half(node) && !node.op->elementwise() && !has_program(node) && !takes_half_({graph_, node});
  }
  /// Of a graph that has been fused before: what is in it rounds step by step.
  static bool has_program(const Node& node) {
    const Attribute* const epilogue = node.attributes.find("epilogue");
    const auto* program = epilogue == nullptr ? nullptr : std::get_if<ScalarProgram>(epilogue);
    return node.is(kFusedReduction) || (program != nullptr && !program->empty());
  }
  /// Whether it is one number of many elements, for the gradient alone.
  bool is_statistic(const Node& node, std::size_t output) const {
    constexpr std::int64_t kElements = 8;
    if (output < static_cast<std::size_t>(node.op->gradient_outputs) || node.inputs.empty()) return false;
    return graph_.type(node.outputs[output]).shape.numel().maximum() * kElements <=
           graph_.type(node.inputs[0]).shape.numel().maximum();
  }
  bool is_half_value(ValueId v) const { return v != kNone && is_half(graph_.type(v).dtype); }
  bool has_half(const Node& node) const {
    const auto is = [this](ValueId v) { return is_half_value(v); };
    return std::any_of(node.inputs.begin(), node.inputs.end(), is) ||
           std::any_of(node.outputs.begin(), node.outputs.end(), is);
  }

  void compute_in_f32(Node node) {
    for (ValueId& v : node.inputs)
      if (is_half_value(v)) v = widened(v, node.origins);
    if (const Attribute* dtype = node.attributes.find("dtype"))
      if (const auto* d = std::get_if<DType>(dtype); d != nullptr && is_half(*d))
        node.attributes.set("dtype", DType::f32);
    std::vector<Node> roundings;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      ValueId& v = node.outputs[i];
      if (!is_half_value(v)) continue;
      if (readers_(v) == Reader::none || (readers_(v) == Reader::widened && is_statistic(node, i))) {
        graph_.value(v).type.dtype = DType::f32;  // for all who read it, and they are none, or want it so
        continue;
      }
      const Value half = graph_.value(v);
      Attributes to_half{{"dtype", half.type.dtype}};
      const ValueId wide = graph_.add_value(half.name + ".unrounded", ValueKind::node, {DType::f32, half.type.shape});
      roundings.push_back({.op = &kCast,
                           .attributes = std::move(to_half),
                           .inputs = {wide},
                           .outputs = {v},
                           .phase = node.phase,
                           .origins = node.origins});
      v = wide;
    }
    rewriter_.keep(std::move(node));
    for (Node& rounding : roundings) rewriter_.keep(std::move(rounding));
  }

  ValueId widened(ValueId v, const Origins& origins) {
    if (f32_of_(v) == kNone)
      f32_of_[v] = rewriter_.add(kCast, {v}, {{"dtype", DType::f32}}, origins, phase_, graph_.value(v).name + ".f32");
    return f32_of_(v);
  }

  Graph& graph_;
  bool (*takes_half_)(const NodeView& node);
  Rewriter rewriter_;
  ByValue<Reader> readers_{Reader::none};
  Phase phase_ = Phase::forward;
  ByValue<ValueId> f32_of_{kNone};  ///< of this phase
};

}  // namespace

void widen_half_types(Graph& graph, const PassOptions& options) {
  WidenHalfTypes(graph, options.target->takes_half).run();
}

}  // namespace graven::ir
