#include "codegen/emit/labels_data.h"

#include <algorithm>
#include <string>

#include "codegen/emit/text.h"
#include "codegen/plan/labels.h"
#include "ir/analysis.h"
#include "ir/ops.h"

namespace graven::codegen {

namespace {

bool is_elementwise(const ir::Node& node) { return node.op->elementwise() || node.is(ir::kFusedElementwise); }
/// Whether the number depends on the batch by losses of these labels alone, of each batch their mean or sum.
bool is_made_of_labels(const ir::Graph& graph, const Plan& plan, const ir::ByValue<bool>& labels, ir::ValueId number,
                       const std::vector<bool>& batched) {
  const ir::Uses uses(graph);
  ir::ByValue<bool> of_batch;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) of_batch[graph.inputs[i]] = batched.at(i);
  for (const ir::Node& n : graph.nodes)
    if (std::any_of(n.inputs.begin(), n.inputs.end(), [&](ir::ValueId v) { return of_batch(v); }))
      for (const ir::ValueId v : n.outputs) of_batch[v] = true;
  std::vector<ir::ValueId> left = {number};
  bool is_loss = false;
  while (!left.empty()) {
    const ir::ValueId v = left.back();
    left.pop_back();
    const ir::Node* const maker = uses.maker(graph, v);
    if (!of_batch(v)) continue;
    if (maker == nullptr || graph.type(v).shape.numel() != ir::Dim(1)) return false;
    const auto taken = [&] {
      for (std::size_t k = 0; k < maker->inputs.size(); ++k)
        if (is_labels(*maker, k) && labels(maker->inputs[k])) return true;
      return false;
    }();
    if (taken) {
      const ir::Attribute* reduction = maker->attributes.find("reduction");
      const auto* const how = reduction != nullptr ? std::get_if<std::string>(reduction) : nullptr;
      if (v != maker->outputs[0] || how == nullptr || *how == "none") return false;
      is_loss = true;
    } else if (is_elementwise(*maker) || root(plan, v) != v || maker->is(ir::kReshape)) {
      left.insert(left.end(), maker->inputs.begin(), maker->inputs.end());
    } else {
      return false;
    }
  }
  return is_loss;
}

}  // namespace

void list_unscaled_gradients(const ir::Graph& graph, TrainingText& training) {
  const ir::Uses uses(graph);
  const auto is_norm = [&](ir::ValueId factor) {
    std::vector<ir::ValueId> left = {factor};
    while (!left.empty()) {
      const ir::Node* const maker = uses.maker(graph, left.back());
      left.pop_back();
      if (maker == nullptr) continue;
      if (maker->is(ir::kClipFactor)) return true;
      left.insert(left.end(), maker->inputs.begin(), maker->inputs.end());
    }
    return false;
  };
  std::vector<std::string> unscaled;
  for (const ir::Node& node : graph.nodes) {
    if (node.phase != ir::Phase::update || !ir::is_update(*node.op)) continue;
    const ir::ValueId factor = ir::factor_of(node);
    if (factor != ir::kNone && !is_norm(factor)) {
      training.scales_gradients = true;
      continue;
    }
    const ir::InputRange parameters = input_range(node, ir::InputRole::parameter);
    for (std::size_t i = 0; i < parameters.count; ++i)
      unscaled.push_back(string_literal(graph.value(node.inputs[parameters.begin + i]).name));
  }
  if (training.scales_gradients) training.unscaled_gradients = join(unscaled);
}

std::optional<std::size_t> ignorable_labels(const ir::Graph& graph, const Plan& plan,
                                            const std::vector<ir::ValueId>& losses, const std::vector<bool>& batched) {
  if (losses.empty()) return {};
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const ir::ValueId labels = graph.inputs[i];
    const ir::TensorType& type = graph.type(labels);
    const std::optional<std::int64_t> ignored = ignored_label(graph, plan, labels);
    if (!ignored || !batched.at(i)) continue;
    const auto holds = [&](ir::DType dtype) {
      return dtype == ir::DType::i32  ? *ignored >= INT32_MIN && *ignored <= INT32_MAX
             : dtype == ir::DType::i8 ? *ignored >= INT8_MIN && *ignored <= INT8_MAX
             : dtype == ir::DType::u8 ? *ignored >= 0 && *ignored <= UINT8_MAX
                                      : dtype == ir::DType::i64;
    };
    const ir::ByValue<bool> elements = elements_of(graph, plan, labels, Moves::any);
    bool others_bear_it = holds(type.dtype);
    for (const ir::Node& n : graph.nodes) {
      if (n.phase != ir::Phase::forward) continue;
      for (std::size_t k = 0; k < n.inputs.size(); ++k) {
        if (n.inputs[k] == ir::kNone || !elements(n.inputs[k])) continue;
        const bool is_moved = n.outputs.size() == 1 && elements(n.outputs[0]) && holds(graph.type(n.outputs[0]).dtype);
        others_bear_it = others_bear_it && (is_labels(n, k) || is_moved || is_elementwise(n));
      }
    }
    const bool all = std::all_of(losses.begin(), losses.end(), [&](ir::ValueId loss) {
      return is_made_of_labels(graph, plan, elements, root(plan, loss), batched);
    });
    if (others_bear_it && all) return i;
  }
  return {};
}

}  // namespace graven::codegen
