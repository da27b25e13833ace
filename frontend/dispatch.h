// The one gate through which every function passes: while this thread traces a graph, and an input belongs to it, the
// call is recorded; otherwise it runs at once, and autograd remembers it.
#pragma once

#include <initializer_list>
#include <optional>
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

/// User error of the function where an integer dtype cannot hold `value`. Negative whole numbers down to the negative
/// of the largest one wrap around in an unsigned dtype, and fractions are cut off, as torch.tensor and Tensor.fill_
/// have them.
void require_fits(Scalar value, DType dtype, const char* function, Location where);

/// A fresh tensor, on the device of its options and requiring a gradient where they say so.
Tensor with_options(Tensor t, const TensorOptions& options, Location where);
/// The dtype and the device of a tensor.
TensorOptions options_of(const Tensor& like);
/// A tensor of the host, fresh or given, as indices are, on the device of `like` where that is no part of a graph.
Tensor beside(const Tensor& given, const Tensor& like, Location where = Location::current());

/// A tensor of one value that its dtype can hold, on the device of `beside`, recorded where a call on that would be.
Tensor filled(const Shape& shape, Scalar value, DType dtype, const Tensor& beside, Location where);
/// The same, recorded as a node of the graph that is being built.
Tensor recorded_full(const Shape& shape, Scalar value, DType dtype, Location where);
/// What an operator without inputs gives, as a part of the graph that is being recorded.
Tensor recorded(std::string_view op, ir::Attributes attributes, Location where);

// ---- sizes that may be symbols ----

/// Where two dtypes meet, how one becomes the other.
void note_conversion(UserError& error);
/// Whether the bytes of such a tensor, symbols at their maxima, fit in 63 bits.
bool has_countable_bytes(const ir::TensorType& type);
/// User error where the shape has a symbol and no graph is being recorded.
void require_recording(const Shape& shape, const char* function, Location where);
/// The size of a dimension, which must be a number: a symbol is a user error that says so of `function`, and what to
/// write `instead`.
std::int64_t fixed_size(const Tensor& t, std::int64_t dim, const char* function, Location where,
                        std::string_view instead = {});
[[noreturn]] void refuse_symbol(const Tensor& t, std::int64_t dim, const char* function, Location where,
                                std::string_view instead = {});
/// The graph that is being recorded refuses sizes with which this is less than two.
void require_two(const Dim& size);
/// A size as a scalar tensor: of a symbol what it stands for when the graph runs.
Tensor size_value(const Dim& size, DType dtype, const char* function, Location where);
/// 0, 1, ..., i64, as a part of the graph that records `beside`, or at once and on its device.
Tensor counted(const Dim& size, const Tensor& beside, Location where);

// ---- undefined tensors ----
// Operand::tensor() refuses them of operands; these of other tensors that a function cannot do without.

/// User error of the function where the tensor, by its argument's name `what`, is undefined.
void require_defined(const Tensor& t, std::string_view function, Location where, std::string_view what = {});
/// The same of a list, by the place in it.
void require_defined(const std::vector<Tensor>& tensors, std::string_view function, Location where);
/// User error where so many tensors would be made that nobody holds them, as of an empty tensor with a huge dimension.
void require_parts(std::int64_t count, const char* function, Location where);
/// result_type() of a function's own operands.
DType promoted(const Operand& a, const Operand& b, const char* function = __builtin_FUNCTION());

/// User error for a tensor of a graph that is not being recorded here: it has no data to compute with.
void require_data(std::string_view function, const std::vector<Tensor>& tensors, Location where);

/// For views: `op` with `attributes` describes the view to the trace and to autograd; eagerly `make` computes it by
/// strides, or returns an undefined tensor when strides cannot express it, and then the operator runs.
template <class Make>
Tensor apply_view(std::string_view op, const Tensor& x, ir::Attributes attributes, Location where, Make make);
void record_view(const ir::OpDef& op, const Tensor& x, const Tensor& view, const ir::Attributes& attributes,
                 Location where);
/// The strides of a view of these sizes, or nothing where only a copy can have its elements.
std::optional<Sizes> strides_of_view(const TensorImpl& base, const ir::OpDef& op, const ir::Attributes& attributes,
                                     const Sizes& sizes);
/// What the base of a view becomes when `value` is written into the view, as a new tensor.
Tensor written_through(const TensorImpl& view, const Tensor& value, const char* function, Location where);

template <class Make>
Tensor apply_view(std::string_view op, const Tensor& x, ir::Attributes attributes, Location where, Make make) {
  if (!would_record({x})) {
    require_data(op, {x}, where);
    Tensor view = make();
    if (view.defined()) {
      record_view(ir::get_op(op), x, view, attributes, where);
      return view;
    }
  }
  return apply(op, {x}, std::move(attributes), where);
}

/// Replaces x by `value` in place: eagerly copies the elements and gives x the value's history, while tracing rebinds
/// the recorded value. What `value` was computed by after `since` (tape_position(), frontend/autograd.h) is part of the
/// same call: it may need for its gradient what x held before.
void assign_in_place(Tensor& x, const Tensor& value, const char* function, Location where, std::uint64_t since);

/// Fails with the innermost module's path, the function (that the user called, where `where` knows it) and the line.
[[noreturn]] void fail(const std::string& function, const std::string& message, Location where);
/// Says of a symbol that an error's message names what it is, where nothing else is advised.
void note_symbols(UserError& error);
/// The same of an error that has notes.
[[noreturn]] void throw_at(UserError& error, const std::string& function, Location where);
/// Fails with the line alone.
[[noreturn]] void fail_at(const std::string& message, Location where);

/// Of all elements as one vector, in double: the largest magnitude where norm_type is infinity. NaN where one is.
double norm_of(const std::vector<Tensor>& tensors, double norm_type);

/// The number as a tensor without dimensions; beyond an integer dtype it wraps around, as operands do.
Tensor wrapped(Scalar value, DType dtype);

/// User error within build(), which runs once: what `call` changes in eager objects, the graph's calls would not.
void refuse_within_build(std::string_view call, Location where);
/// What `make` gives; an error of its is the function's and has the line, unless it knows nearer ones.
template <class Make>
auto made_by(const char* function, Location where, const Make& make) {
  try {
    return make();
  } catch (UserError& e) {
    throw_at(e, function, where);
  }
}
/// What `make` gives; an error of its has the line, unless it knows a nearer one.
template <class Make>
auto located(Location where, const Make& make) {
  try {
    return make();
  } catch (UserError& e) {
    e.at(where.file_name(), where.line);
    throw;
  }
}

}  // namespace graven::detail
