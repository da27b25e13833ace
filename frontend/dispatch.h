// The one gate through which every function passes: while this thread traces a graph, and an input belongs to it, the call is recorded;
// otherwise it runs at once, and autograd remembers it.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "frontend/tensor_impl.h"
#include "ir/op.h"

namespace graven::detail {

/// Undefined tensors are absent optional inputs.
std::vector<Tensor> apply(const ir::OpDef& op, std::vector<Tensor> inputs, ir::Attributes attributes, Location where);
/// The first output.
Tensor apply(std::string_view op, std::vector<Tensor> inputs, ir::Attributes attributes, Location where);

/// Whether a call on these inputs would be recorded.
bool would_record(const std::vector<Tensor>& inputs);

/// A tensor of one value, recorded where a call on `beside` would be.
Tensor filled(const Shape& shape, double value, DType dtype, const Tensor& beside, Location where);

/// For views: `op` with `attributes` describes the view to the trace and to autograd; eagerly `make` computes it by strides, or returns an
/// undefined tensor when strides cannot express it, and then the operator runs.
template <class Make>
Tensor apply_view(std::string_view op, const Tensor& x, ir::Attributes attributes, Location where, Make make);
void record_view(const ir::OpDef& op, const Tensor& x, const Tensor& view, ir::Attributes attributes, Location where);

template <class Make>
Tensor apply_view(std::string_view op, const Tensor& x, ir::Attributes attributes, Location where, Make make) {
  if (!would_record({x})) {
    Tensor view = make();
    if (view.defined()) {
      record_view(ir::get_op(op), x, view, std::move(attributes), where);
      return view;
    }
  }
  return apply(op, {x}, std::move(attributes), where);
}

/// Replaces x by `value` in place: eagerly copies the elements, while tracing rebinds the recorded value.
void assign_in_place(Tensor& x, const Tensor& value, const char* function, Location where);

/// Fails with the innermost module's path, the function and the line.
[[noreturn]] void fail(const std::string& function, const std::string& message, Location where);
/// Fails with the line alone.
[[noreturn]] void fail_at(const std::string& message, Location where);

}  // namespace graven::detail
