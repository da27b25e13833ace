// Mixed precision, for graphs that ask for it (Graph::config, "amp"): products are computed in a half type, whose
// operands take half the memory and meet in faster instructions, and everything that rounding would hurt in f32. By
// OpDef::amp an operator is
//
//   white  computed in the half type: linear, matmul, conv2d and their gradients
//   black  in f32: losses, statistics of norms, softmax, reductions, exp, log, ...
//   gray   in the half type if all its tensors are that already, else in f32: two dtypes meet in the wider one
//   clear  the same: it computes nothing
//
// These are PyTorch's lists for autocast (torch.amp, "CUDA Ops that can autocast to float16" and "CPU Ops that can
// autocast to bfloat16": what may go to half types, to float32, and to the widest input type), which agree with
// OneFlow's white, black, gray and clear lists but for a few: exp, log and their kin, and norms, are computed in f32 as
// PyTorch's CUDA list has it, where its CPU list lets them follow; maxima and minima follow.
//
// Every value is cast once: the casts of a weight and of what a layer reads serve forward and backward. Parameters,
// gradients, states of optimizers, losses and the graph's results stay f32: an update changes its master weights, which
// the next step casts anew. What the target's kernels do not take (TargetTraits::half) stays f32, and so do
// convolutions of so few channels a group that they are no products to speak of (depthwise ones).
#include <algorithm>
#include <functional>

#include "ir/diagnostic.h"
#include "ir/ops/conv2d_shared.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

class MixedPrecision {
 public:
  MixedPrecision(Graph& graph, const TargetTraits& target, DType half)
      : graph_(graph), target_(target), half_(half), rewriter_(graph) {
    for (const ValueId v : graph.outputs) keeps_name_[v] = true;
    for (const Loss& l : graph.losses) keeps_name_[l.value] = true;
    for (const Gradient& g : graph.gradients) keeps_name_[g.value] = true;
    for (const Donation& d : graph.donations) keeps_name_[d.value] = true;
  }

  void run() {
    for (Node& node : rewriter_.old()) {
      if (node.is(kCast)) {  // to what the user asked for, from whatever is there
        rewriter_.keep(std::move(node));
      } else if (goes_to_half(node)) {
        compute_in_half(std::move(node));
      } else {
        compute_in_f32(std::move(node));
      }
    }
    const auto widen_result = [&](ValueId& v) {
      if (v != kNone && is_half(v)) v = widened(v, origins_of(v), phase_of(v));
    };
    for (ValueId& v : graph_.outputs) widen_result(v);
    for (Loss& l : graph_.losses) widen_result(l.value);
    for (Gradient& g : graph_.gradients) widen_result(g.value);
    for (Donation& d : graph_.donations) widen_result(d.value);
    sort_by_phase(graph_);
  }

 private:
  DType dtype(ValueId v) const { return graph_.type(v).dtype; }
  /// What this pass has made it.
  bool is_half(ValueId v) const { return narrowed_(v); }
  /// Numbers that are written into the code: they are what they meet.
  bool is_number(ValueId v) const {
    const Node* const maker = rewriter_.maker(v, kFull);
    return maker != nullptr && graph_.type(v).shape.numel() == Dim(1);
  }

  bool takes_half(const Node& node) const {
    const OpDef& op = *node.op;
    if (!op.dtypes.contains(half_)) return false;
    if (op.elementwise()) return true;
    if (std::find(target_.half.begin(), target_.half.end(), &op) == target_.half.end()) return false;
    return !is_thin_convolution(node);
  }
  bool is_thin_convolution(const Node& node) const {
    constexpr std::int64_t kLeastChannels = 16;
    if (!node.is(kConv2d, kConv2dBackwardInput, kConv2dBackwardWeight)) return false;
    const std::int64_t groups = node.attributes.integer("groups");
    const Shape& weight =
        node.is(kConv2dBackwardWeight) ? graph_.type(node.outputs[0]).shape : graph_.type(node.inputs[1]).shape;
    return groups > 1 && weight[1].maximum() < kLeastChannels;
  }

  bool goes_to_half(const Node& node) const {
    const AmpClass amp = node.op->amp;
    if (amp == AmpClass::black || node.phase == Phase::update || !takes_half(node)) return false;
    bool any = false, all = true;
    for (const ValueId v : node.inputs) {
      if (v == kNone || !is_floating(dtype(v))) continue;
      if (!is_half(v) && dtype(v) != DType::f32) return false;  // the user's own f64, or half
      if (is_number(v)) continue;
      any = any || is_half(v);
      all = all && is_half(v);
    }
    return amp == AmpClass::white || (any && all);
  }

  /// Whether the input stays f32.
  static bool is_sum(const Node& node, std::size_t input) {
    const std::vector<InputSpec>& specs = node.op->inputs;
    for (std::size_t s = 0; s < specs.size(); ++s)
      if (specs[s].is_sum && input_range(*node.op, node.inputs.size(), s).begin == input) return true;
    return false;
  }

  void compute_in_half(Node node) {
    std::vector<std::optional<TensorType>> inputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId& v = node.inputs[i];
      if (v != kNone && dtype(v) == DType::f32 && !is_sum(node, i)) v = narrowed(v, node.origins, node.phase);
      inputs.push_back(v == kNone ? std::nullopt : std::optional(graph_.type(v)));
    }
    const std::vector<TensorType> outputs = infer(*node.op, inputs, node.attributes);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId v = node.outputs[i];
      narrowed_[v] = dtype(v) == DType::f32 && outputs[i].dtype == half_;
      graph_.value(v).type = outputs[i];
    }
    rewriter_.keep(std::move(node));
  }
  void compute_in_f32(Node node) {
    for (ValueId& v : node.inputs)
      if (v != kNone && is_half(v))  // gradients are f32 before the updates
        v = widened(v, node.origins, node.phase == Phase::update ? phase_of(v) : node.phase);
    rewriter_.keep(std::move(node));
  }

  ValueId narrowed(ValueId v, const Origins& origins, Phase phase) {
    if (half_of_(v) != kNone) return half_of_(v);
    const std::string name = graph_.value(v).name + "." + std::string(ir::name(half_));
    if (is_number(v)) {
      Attributes attributes = rewriter_.maker(v)->attributes;
      attributes.set("dtype", half_);
      return half_of_[v] = rewriter_.add(kFull, {}, std::move(attributes), origins, phase, name);
    }
    return half_of_[v] = rewriter_.add(kCast, {v}, {{"dtype", half_}}, origins, phase, name);
  }
  ValueId widened(ValueId v, const Origins& origins, Phase phase) {
    if (f32_of_(v) != kNone) return f32_of_(v);
    // Results keep their names, whoever makes them.
    const DType of_name = keeps_name_(v) ? half_ : DType::f32;
    const std::string name = graph_.value(v).name + "." + std::string(ir::name(of_name));
    const ValueId wide = rewriter_.add(kCast, {v}, {{"dtype", DType::f32}}, origins, phase, name);
    if (keeps_name_(v)) graph_.swap_names(v, wide);
    return f32_of_[v] = wide;
  }

  Origins origins_of(ValueId v) const { return rewriter_.maker(v)->origins; }
  Phase phase_of(ValueId v) const { return rewriter_.maker(v)->phase; }

  Graph& graph_;
  const TargetTraits& target_;
  DType half_;
  Rewriter rewriter_;
  ByValue<bool> narrowed_, keeps_name_;
  ByValue<ValueId> half_of_{kNone}, f32_of_{kNone};
};

}  // namespace

std::optional<DType> amp_dtype(const Graph& graph) {
  const auto found = graph.config.find(std::string(kAmp));
  if (found == graph.config.end()) return std::nullopt;
  const DType* const dtype = std::get_if<DType>(&found->second);
  if (dtype == nullptr || (*dtype != DType::f16 && *dtype != DType::bf16))
    throw UserError("config." + found->first + ": expected f16 or bf16");
  return *dtype;
}

void mixed_precision(Graph& graph, const PassOptions& options) {
  if (options.target->half.empty())
    throw UserError("enable_amp: the " + std::string(options.target->name) + " target has no half types yet");
  MixedPrecision(graph, *options.target, *amp_dtype(graph)).run();
}

}  // namespace graven::ir
