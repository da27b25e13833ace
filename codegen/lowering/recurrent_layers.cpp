#include "codegen/lowering/families.h"
#include "ir/ops/recurrent_shared.h"

namespace graven::codegen::lowering {

namespace {

/// The operators' last input has the lengths.
KernelCall recurrent_call(const NodeView& node, const ops::RecurrentSizes& s) {
  const bool padded = node.has_input(node.node.op->inputs.size() - 1);
  return {.name = std::string(node.node.op->name),
          .file = "recurrent",
          .config = {{"steps", s.steps},
                     {"batch", s.batch},
                     {"hidden", Dim(s.hidden)},
                     {"state", Dim(s.state)},
                     {"reverse", node.attributes().flag("reverse")},
                     {"relu", node.attributes().flag_or("relu", false)},
                     {"padded", padded}},
          .checks_data = padded};
}

KernelCall gru(const NodeView& node) { return recurrent_call(node, ops::gru_sizes(node)); }
KernelCall gru_backward(const NodeView& node) { return recurrent_call(node, ops::gru_backward_sizes(node)); }
KernelCall lstm(const NodeView& node) { return recurrent_call(node, ops::lstm_sizes(node)); }
KernelCall lstm_backward(const NodeView& node) { return recurrent_call(node, ops::lstm_backward_sizes(node)); }
KernelCall rnn(const NodeView& node) { return recurrent_call(node, ops::rnn_sizes(node)); }
KernelCall rnn_backward(const NodeView& node) { return recurrent_call(node, ops::rnn_backward_sizes(node)); }

}  // namespace

std::span<const Row> recurrent_layers() {
  static constexpr Row kRows[] = {
      {&ir::kGru, gru}, {&ir::kGruBackward, gru_backward}, {&ir::kLstm, lstm}, {&ir::kLstmBackward, lstm_backward},
      {&ir::kRnn, rnn}, {&ir::kRnnBackward, rnn_backward},
  };
  return kRows;
}

}  // namespace graven::codegen::lowering
