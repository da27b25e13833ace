#include "frontend/dispatch.h"

#include "frontend/autograd.h"
#include "frontend/eager/program.h"
#include "frontend/trace.h"

namespace graven::detail {

void fail_at(const std::string& message, Location where) {
  UserError error(message);
  error.at(where.file_name(), where.line);
  throw error;
}

void fail(const std::string& function, const std::string& message, Location where) {
  UserError error(message);
  const auto& frames = module_frames();
  error.in(frames.empty() ? std::string() : frames.back().path, function);
  error.at(where.file_name(), where.line);
  note_declaration(error, where);
  throw error;
}

bool would_record(const std::vector<Tensor>& inputs) {
  const Trace* trace = active_trace();
  if (!trace) return false;
  for (const Tensor& t : inputs)
    if (t.defined() && trace->owns(t)) return true;
  return false;
}

namespace {

/// A tensor of a graph that is not being recorded here has no data to compute with.
void require_data(const ir::OpDef& op, const std::vector<Tensor>& inputs, Location where) {
  for (const Tensor& t : inputs)
    if (t.defined() && t.impl()->trace_id != 0)
      fail(std::string(op.name), "the tensor " + t.describe() + " was recorded by a graph's build(), and is used outside of it", where);
}

}  // namespace

std::vector<Tensor> apply(const ir::OpDef& op, std::vector<Tensor> inputs, ir::Attributes attributes, Location where) {
  if (would_record(inputs)) {
    Trace& trace = *active_trace();
    std::vector<Tensor> outputs = trace.record(op, inputs, std::move(attributes), where);
    if (!grad_enabled())
      for (std::size_t i = 0; i < outputs.size(); ++i)
        if (outputs[i].impl()->requires_grad) outputs[i] = trace.record(ir::get_op("detach"), {outputs[i]}, {}, where).at(0);
    return outputs;
  }
  require_data(op, inputs, where);
  require_registered(inputs, where);
  try {
    std::vector<Tensor> outputs = eager::run(op, inputs, attributes);
    record_on_tape(op, inputs, outputs, attributes, where);
    return outputs;
  } catch (UserError& e) {
    const auto& frames = module_frames();
    e.in(frames.empty() ? std::string() : frames.back().path, std::string(op.name));
    e.at(where.file_name(), where.line);
    note_declaration(e, where);
    throw;
  }
}

Tensor apply(std::string_view op, std::vector<Tensor> inputs, ir::Attributes attributes, Location where) {
  return apply(ir::get_op(op), std::move(inputs), std::move(attributes), where).at(0);
}

void record_view(const ir::OpDef& op, const Tensor& x, const Tensor& view, ir::Attributes attributes, Location where) {
  require_registered({x}, where);
  if (!any_requires_grad({x})) return;
  std::vector<Tensor> outputs{view};
  record_on_tape(op, {x}, outputs, attributes, where);
  view.impl()->storage->has_recorded_views = true;
}

void assign_in_place(Tensor& x, const Tensor& value, const char* function, Location where) {
  const TensorImpl& old = get(x);
  // Only a higher category is refused: a float32 result goes into a float16 tensor, but not into an integer one.
  const auto category = [](DType d) { return d == DType::boolean ? 0 : ir::is_floating(d) ? 2 : 1; };
  if (category(value.dtype()) > category(old.dtype))
    fail(function, "a result of " + std::string(ir::name(value.dtype())) + " cannot be stored in " + x.describe(), where);
  if (value.shape() != old.shape) fail(function, "a result of shape " + value.shape().to_string() + " does not fit into " + x.describe(), where);

  Trace* trace = active_trace();
  if (trace && (trace->owns(x) || (value.defined() && trace->owns(value)))) {
    trace->assign(x, value.to(x.dtype(), where), function, where);
    return;
  }
  if (old.trace_id != 0) fail(function, "the tensor " + x.describe() + " was recorded by a graph's build(), and is used outside of it", where);
  TensorImpl& target = *x.impl();
  for (std::size_t d = 0; d < target.sizes.size(); ++d)
    if (target.strides[d] == 0 && target.sizes[d] > 1)
      fail(function, "several elements of this expanded tensor share one place in memory; clone() it first", where);
  const bool with_history = any_requires_grad({x, value});
  if (with_history) {
    if (target.requires_grad && !target.grad_fn)
      fail(function, "a leaf that requires a gradient is changed in place; use NoGradGuard, or a new tensor", where);
    if (target.is_view || target.storage->has_recorded_views)
      fail(function, "a view, or a tensor with views, that takes part in autograd is changed in place; use a new tensor", where);
  }
  const Tensor converted = value.to(x.dtype(), where);
  copy_elements(*converted.impl(), target);
  if (with_history) {
    target.requires_grad = converted.impl()->requires_grad;
    target.grad_fn = converted.impl()->grad_fn;
    target.output_index = converted.impl()->output_index;
    if (!target.grad_fn && converted.impl()->requires_grad) {
      // The value is itself a leaf (copy_): history of one step leads to it.
      const Tensor step = apply("cast", {converted}, {{"dtype", x.dtype()}}, where);
      target.grad_fn = step.impl()->grad_fn;
    }
  }
}

}  // namespace graven::detail
