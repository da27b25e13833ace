// What a graph prints of itself.
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "frontend/graph_state.h"
#include "ir/stages.h"

namespace graven::nn {

namespace {

std::string python_shape(const Shape& shape) {
  std::string s = "(";
  for (std::size_t i = 0; i < shape.rank(); ++i) s += (i ? ", " : "") + shape[i].to_string();
  return s + (shape.rank() == 1 ? ",)" : ")");
}

/// "float32": the names that OneFlow and PyTorch print.
std::string long_name(DType dtype) {
  constexpr const char* kNames[] = {"float32", "float64", "float16", "bfloat16", "int8",
                                    "int32",   "int64",   "uint8",   "bool"};
  return kNames[static_cast<std::size_t>(dtype)];
}

std::string describe_tensor(const ir::TensorType& type, bool recorded, bool requires_grad) {
  return "tensor(..., " + std::string(recorded ? "is_lazy='True', " : "") + "size=" + python_shape(type.shape) +
         ", dtype=" + long_name(type.dtype) + (requires_grad ? ", requires_grad=True" : "") + ")";
}

/// "(OPERATOR:model.relu:relu(model.hidden.linear) -> f32[64,256])"
std::string operator_line(const ir::Graph& graph, const ir::Node& n, bool with_origins) {
  std::string line = "(OPERATOR:" + graph.value(n.outputs.empty() ? n.inputs.at(0) : n.outputs[0]).name + ":" +
                     std::string(n.op->name) + "(";
  bool first = true;
  for (ir::ValueId v : n.inputs) {
    if (v == ir::kNone) continue;
    line += (first ? "" : ", ") + graph.value(v).name;
    first = false;
  }
  line += ")";
  for (std::size_t i = 0; i < n.outputs.size(); ++i) line += (i ? ", " : " -> ") + graph.type(n.outputs[i]).to_string();
  if (with_origins)
    for (const ir::Origin& o : n.origins) line += "  " + o.to_string();
  return line + ")";
}

/// The lines of the operators that each module recorded, by path.
using OperatorLines = std::map<std::string, std::vector<std::string>>;
OperatorLines operator_lines(const ir::Graph& graph, bool with_origins) {
  OperatorLines lines;
  for (const ir::Node& n : graph.nodes) lines[ir::owner_of(n.origins)].push_back(operator_line(graph, n, with_origins));
  return lines;
}

void print_module(std::string& text, const std::string& path, const ModuleState& s, const Trace* trace,
                  const OperatorLines& operators, std::size_t depth) {
  const std::string indent(2 * depth, ' '), inner(2 * depth + 2, ' ');
  std::string body;
  if (s.stage >= 0 || s.activation_checkpointing)
    body += inner + "(CONFIG:config:ModuleConfig(" + (s.stage >= 0 ? fmt::format("stage_id={}, ", s.stage) : "") +
            (s.activation_checkpointing ? "activation_checkpointing=True, " : "") + "))\n";
  const graven::detail::ModuleCall* call = nullptr;
  if (trace)
    if (const auto it = trace->calls.find(&s); it != trace->calls.end()) call = &it->second;
  if (call)
    for (std::size_t i = 0; i < call->inputs.size(); ++i)
      body += inner + "(INPUT:_" + path + "-input_" + std::to_string(i) + ":" +
              describe_tensor(call->inputs[i], true, false) + ")\n";
  for (const auto& t : s.tensors)
    body += inner + (t.is_buffer ? "(BUFFER:" : "(PARAMETER:") + join_path(path, t.name) + ":" +
            describe_tensor({t.tensor.dtype(), t.tensor.shape()}, false, t.tensor.requires_grad()) + "): ()\n";
  for (const auto& c : s.children) print_module(body, join_path(path, c.name), *c.state, trace, operators, depth + 1);
  if (const auto it = operators.find(path); it != operators.end())
    for (const std::string& o : it->second) body += inner + o + "\n";
  if (call)
    for (std::size_t i = 0; i < call->outputs.size(); ++i)
      body += inner + "(OUTPUT:_" + path + "-output_" + std::to_string(i) + ":" +
              describe_tensor(call->outputs[i], true, false) + ")\n";
  text += indent + "(MODULE:" + path + ":" + s.class_name + "(" + s.printed() + ")): (";
  text += body.empty() ? ")\n" : "\n" + body + indent + ")\n";
}

}  // namespace

std::string GraphBase::repr() const { return state_->text(1); }

std::string GraphState::text(int with_operators) const {
  const GraphState& s = *this;
  std::string text = "(GRAPH:" + s.name + ":" + s.class_name + "): (\n";
  text += std::string("  (CONFIG:config:GraphConfig(training=") + (s.optimizers.empty() ? "False" : "True") +
          (s.update_in_backward ? ", update_in_backward=True" : "") +
          (s.amp ? ", amp=" + std::string(ir::name(*s.amp)) : "") +
          (s.parts > 1 ? fmt::format(", gradient_accumulation_steps={}", s.parts) : "") +
          (s.data_parallel ? ", data_parallel=True" : "") +
          (s.zero_stage > 0 ? fmt::format(", zero_stage={}, shard_min_size={}", s.zero_stage, s.shard_min_size) : "") +
          (s.tensor_ranks > 1 ? fmt::format(", tensor_parallel={}", s.tensor_ranks) : "") + scaler_text() +
          s.configuration() + ", ))\n";
  const auto line = [&](const char* kind, const char* suffix, std::size_t i, ir::ValueId v) {
    text += "  (" + std::string(kind) + ":_" + s.name + "-" + suffix + "_" + std::to_string(i) + ":" +
            describe_tensor(s.now.trace->graph.type(v), false, false) + ")\n";
  };
  if (s.now.trace)
    for (std::size_t i = 0; i < s.now.trace->graph.inputs.size(); ++i)
      line("INPUT", "input", i, s.now.trace->graph.inputs[i]);
  const OperatorLines operators =
      s.now.trace && with_operators > 0 ? operator_lines(s.now.trace->graph, with_operators > 1) : OperatorLines();
  for (const auto& c : s.root->children) print_module(text, c.name, *c.state, s.now.trace.get(), operators, 1);
  if (const auto it = operators.find(""); it != operators.end())
    for (const std::string& o : it->second) text += "  " + o + "\n";
  if (s.now.trace)
    for (std::size_t i = 0; i < s.now.trace->graph.outputs.size(); ++i)
      line("OUTPUT", "output", i, s.now.trace->graph.outputs[i]);
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const GraphBase& graph) { return out << graph.repr(); }

}  // namespace graven::nn
