#include "codegen/lowering/families.h"
#include "ir/ops/recurrent_shared.h"

namespace graven::codegen::lowering {

namespace {

/// `tensor`: the input with numbers for each step, which says their count.
KernelCall recurrent_call(const NodeView& node, std::size_t tensor, std::size_t weight_hh, std::int64_t gates) {
  const ops::RecurrentSizes s = ops::recurrent_sizes(node.input(tensor).shape, node.input(weight_hh).shape, gates);
  return {.name = std::string(node.node.op->name),
          .file = "recurrent",
          .config = {{"steps", s.steps},
                     {"batch", s.batch},
                     {"hidden", Dim(s.hidden)},
                     {"state", Dim(s.state)},
                     {"reverse", node.attributes().flag("reverse")},
                     {"relu", flag_or_false(node, "relu")}}};
}

KernelCall gru(const NodeView& node) { return recurrent_call(node, 0, 1, 3); }
KernelCall gru_backward(const NodeView& node) { return recurrent_call(node, 2, 4, 3); }
KernelCall lstm(const NodeView& node) { return recurrent_call(node, 0, 1, 4); }
KernelCall lstm_backward(const NodeView& node) { return recurrent_call(node, 4, 6, 4); }
KernelCall rnn(const NodeView& node) { return recurrent_call(node, 0, 1, 1); }
KernelCall rnn_backward(const NodeView& node) { return recurrent_call(node, 2, 3, 1); }

}  // namespace

std::span<const Row> recurrent_layers() {
  static constexpr Row kRows[] = {
      {&ir::kGru, gru}, {&ir::kGruBackward, gru_backward}, {&ir::kLstm, lstm}, {&ir::kLstmBackward, lstm_backward},
      {&ir::kRnn, rnn}, {&ir::kRnnBackward, rnn_backward},
  };
  return kRows;
}

}  // namespace graven::codegen::lowering
