#include "frontend/dispatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "frontend/autograd.h"
#include "frontend/eager/program.h"
#include "frontend/module_state.h"
#include "frontend/trace.h"
#include "graven/functional.h"
#include "ir/ops.h"
#include "ir/sizes.h"

namespace graven::detail {

namespace {

/// Whether a line is Graven's own: of a network of the library.
bool is_own(Location where) {
  static const std::string folder = std::string(__FILE__).substr(0, std::string(__FILE__).rfind("dispatch.cpp"));
  return !folder.empty() && std::string_view(where.file).starts_with(folder);
}

/// The line itself, or where the user's code called the network that it stands in.
Location users_line(Location where) {
  if (!is_own(where)) return where;
  const auto& frames = module_frames();
  const auto found =
      std::find_if(frames.rbegin(), frames.rend(), [](const ModuleFrame& f) { return !is_own(f.where); });
  return found == frames.rend() ? where : found->where;
}

/// The name of `wanted` below `module`: "blocks.0". Empty where there is none.
std::string name_below(const nn::ModuleState& module, const nn::ModuleState& wanted) {
  for (const auto& child : module.children) {
    if (child.state.get() == &wanted) return child.name;
    if (const std::string name = name_below(*child.state, wanted); !name.empty()) return child.name + "." + name;
  }
  return {};
}

/// The module whose forward() runs: in a graph its path there; eagerly "Net.features.0", after the class of the
/// outermost one.
std::string scope() {
  const auto& frames = module_frames();
  if (frames.empty()) return {};
  if (active_trace()) return frames.back().path;
  std::string path = frames.front().module->class_name;
  for (std::size_t i = 1; i < frames.size(); ++i) {
    const std::string name = name_below(*frames[i - 1].module, *frames[i].module);
    path += "." + (name.empty() ? frames[i].module->class_name : name);
  }
  return path;
}

}  // namespace

void fail_at(const std::string& message, Location where) {
  UserError error(message);
  error.at(where.file_name(), where.line);
  throw error;
}

void refuse_within_build(std::string_view call, Location where) {
  if (active_trace()) fail_at(fmt::format("{} within build(), which runs once: call it outside of it", call), where);
}

void fail(const std::string& function, const std::string& message, Location where) {
  UserError error(message);
  throw_at(error, function, where);
}

void note_symbols(UserError& error) {
  const Trace* trace = active_trace();
  if (!trace || std::any_of(error.notes().begin(), error.notes().end(),
                            [](const std::string& note) { return note.find("  ") == std::string::npos; }))
    return;
  const std::string& text = error.message();
  for (const auto& [symbol, least, most] : trace->graph.symbols()) {
    const auto is_letter = [&](std::size_t at) {
      return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
    };
    for (std::size_t at = text.find(symbol); at != std::string::npos; at = text.find(symbol, at + 1)) {
      if ((at > 0 && is_letter(at - 1)) || is_letter(at + symbol.size())) continue;
      error.note(symbol + " is a symbol, of any size from " + std::to_string(least) + " to " + std::to_string(most) +
                 ": where a number is due, the graph's spec must give this dimension one");
      return;
    }
  }
}

/// The message ends with the two that meet: "..., got x (f32) and weight (bf16)".
void note_conversion(UserError& error) {
  const std::string& text = error.message();
  if (text.find("expects inputs of one dtype") == std::string::npos) return;
  std::vector<std::string> dtypes;
  for (std::size_t at = text.find('(', text.find(", got ")); at != std::string::npos; at = text.find('(', at + 1))
    dtypes.push_back(text.substr(at + 1, text.find(')', at) - at - 1));
  if (dtypes.size() != 2) return;
  error.note("convert one of them: an input with x.to(" + dtypes[1] + "), a module's weights with module.to(" +
             dtypes[0] + ")");
}

void throw_at(UserError& error, const std::string& function, Location where) {
  note_conversion(error);
  note_symbols(error);
  error.in(scope(), where.function == nullptr ? function : where.function);
  const Location line = users_line(where);
  error.at(line.file_name(), line.line);
  note_declaration(error, line);
  throw error;
}

bool would_record(const std::vector<Tensor>& inputs) {
  const Trace* trace = active_trace();
  if (!trace) return false;
  for (const Tensor& t : inputs)
    if (t.defined() && trace->owns(t)) return true;
  return false;
}

Tensor filled(const Shape& shape, Scalar value, DType dtype, const Tensor& beside, Location where) {
  return would_record({beside}) ? recorded_full(shape, value, dtype, where)
                                : full(shape, value, {dtype, options_of(beside).device}, where);
}

Tensor recorded_full(const Shape& shape, Scalar value, DType dtype, Location where) {
  // A node's number is a double; a whole number that may be none becomes a constant.
  constexpr std::int64_t kWhole = std::int64_t{1} << 53;
  const bool is_double = dtype != DType::i64 || value.category() != Scalar::Category::integer ||
                         (value.integer() >= -kWhole && value.integer() <= kWhole);
  if (is_double) return recorded("full", {{"shape", shape}, {"value", value.number()}, {"dtype", dtype}}, where);
  return active_trace()->record(ir::kExpand, {tensor(value, dtype)}, {{"shape", shape}}, where).at(0);
}

Tensor recorded(std::string_view op, ir::Attributes attributes, Location where) {
  return active_trace()->record(ir::get_op(op), {}, std::move(attributes), where).at(0);
}

bool has_countable_bytes(const ir::TensorType& type) {
  std::int64_t bytes = static_cast<std::int64_t>(ir::size_of(type.dtype));
  bool fits = true, empty = false;
  for (const Dim& d : type.shape) {
    const std::int64_t maximum = d.maximum();
    if (!d.is_static() && maximum == std::numeric_limits<std::int64_t>::max()) return false;
    empty |= maximum == 0;
    fits = fits && !__builtin_mul_overflow(bytes, maximum, &bytes);
  }
  return fits || empty;
}

void require_recording(const Shape& shape, const char* function, Location where) {
  if (shape.is_static() || active_trace()) return;
  fail(function,
       "the shape " + shape.to_string() +
           " has a symbol, which stands for a number only where a graph runs: call it within build()",
       where);
}

std::int64_t fixed_size(const Tensor& t, std::int64_t dim, const char* function, Location where,
                        std::string_view instead) {
  const auto at = static_cast<std::size_t>(normalize_dim(dim, t.dim(), function, where));
  const Dim size = t.dim() == 0 ? Dim(1) : t.shape()[at];
  if (size.is_static()) return size.value();
  refuse_symbol(t, static_cast<std::int64_t>(at), function, where, instead);
}

void refuse_symbol(const Tensor& t, std::int64_t dim, const char* function, Location where, std::string_view instead) {
  const Dim& size = t.shape()[static_cast<std::size_t>(dim)];
  UserError error("dimension " + std::to_string(dim) + " of " + t.describe() +
                  " must be a fixed number here, and is the symbol " + size.to_string());
  error.note(
      instead.empty()
          ? "give this dimension a number in the graph's spec, and the symbol to one that the function leaves as it is"
          : std::string(instead));
  throw_at(error, function, where);
}

void require_two(const Dim& size) {
  if (size.is_static() || size.minimum() >= 2 || !active_trace()) return;
  active_trace()->graph.config[std::string(ir::kLeastSize) + size.to_string()] = std::int64_t{2};
}

Tensor size_value(const Dim& size, DType dtype, const char* function, Location where) {
  if (size.is_static()) return tensor(size.value(), dtype);
  require_recording(Shape{size}, function, where);
  return recorded("size", {{"shape", Shape{size}}, {"dtype", dtype}}, where);
}

Tensor counted(const Dim& size, const Tensor& beside, Location where) {
  if (!would_record({beside})) return detail::beside(arange(size, where), beside);
  return recorded("arange", {{"shape", Shape{size}}, {"dtype", DType::i64}}, where);
}

void require_defined(const Tensor& t, std::string_view function, Location where, std::string_view what) {
  if (t.defined()) return;
  const std::string name = what.empty() ? std::string("a tensor") : "a tensor for " + std::string(what);
  fail(std::string(function), "expects " + name + ", got an undefined one", where);
}

void require_defined(const std::vector<Tensor>& tensors, std::string_view function, Location where) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].defined())
      fail(std::string(function),
           "expects tensors, got an undefined one at index " + std::to_string(i) + " of " +
               std::to_string(tensors.size()),
           where);
}

void require_parts(std::int64_t count, const char* function, Location where) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  if (count > kMost)
    fail(function,
         "would make " + std::to_string(count) + " tensors, expected at most " + std::to_string(kMost) +
             ": select() and slice() take one at a time",
         where);
}

void require_data(std::string_view function, const std::vector<Tensor>& tensors, Location where) {
  for (const Tensor& t : tensors)
    if (t.defined() && t.impl()->trace_id != 0)
      fail(std::string(function),
           "the tensor " + t.describe() + " ('" + t.impl()->owner +
               "') was recorded by a graph's build(), and is used outside of it",
           where);
}

namespace {
/// User error where tensors are on two devices. A number of the host, a tensor without dimensions, goes to where the
/// others are.
void put_on_one_device(const ir::OpDef& op, std::vector<Tensor>& inputs, Location where) {
  const auto device_of = [](const Tensor& t) { return t.impl()->storage->device; };
  const auto on_device = std::find_if(inputs.begin(), inputs.end(),
                                      [&](const Tensor& t) { return t.defined() && !device_of(t).is_cpu(); });
  if (on_device == inputs.end()) return;
  const Device device = device_of(*on_device);
  for (Tensor& t : inputs) {
    if (!t.defined() || device_of(t) == device) continue;
    if (t.dim() != 0 || !device_of(t).is_cpu())
      fail(std::string(op.name),
           fmt::format("expects tensors on one device, got {} on {} and {} on {}", on_device->describe(),
                       device.to_string(), t.describe(), device_of(t).to_string()),
           where);
    t = copied_to(t, device, where);
  }
}

/// Of those that the operator cannot do without.
void require_inputs(const ir::OpDef& op, const std::vector<Tensor>& inputs, Location where) {
  for (std::size_t s = 0; s < op.inputs.size(); ++s) {
    if (op.inputs[s].optional) continue;
    const ir::InputRange range = ir::input_range(op, inputs.size(), s);
    for (std::size_t i = range.begin; i < std::min(range.begin + range.count, inputs.size()); ++i)
      if (!inputs[i].defined()) require_defined(inputs[i], op.name, where, op.inputs[s].name);
  }
}
}  // namespace

std::vector<Tensor> apply(const ir::OpDef& op, std::vector<Tensor> inputs, ir::Attributes attributes, Location where) {
  require_inputs(op, inputs, where);
  if (would_record(inputs)) {
    Trace& trace = *active_trace();
    std::vector<Tensor> outputs = trace.record(op, inputs, std::move(attributes), where);
    if (!grad_enabled())
      for (std::size_t i = 0; i < outputs.size(); ++i)
        if (outputs[i].impl()->requires_grad) outputs[i] = trace.record(ir::kDetach, {outputs[i]}, {}, where).at(0);
    return outputs;
  }
  require_data(op.name, inputs, where);
  put_on_one_device(op, inputs, where);
  require_registered(inputs, where);
  try {
    std::vector<Tensor> outputs = eager::run(op, inputs, attributes, where);
    record_on_tape(op, inputs, outputs, attributes, where);
    return outputs;
  } catch (UserError& e) {
    // Where the operator is a part of what was called, that is what the user knows.
    if (where.function != nullptr && e.operator_name() == op.name) e.called(where.function);
    throw_at(e, std::string(op.name), where);
  }
}

Tensor apply(std::string_view op, std::vector<Tensor> inputs, ir::Attributes attributes, Location where) {
  return apply(ir::get_op(op), std::move(inputs), std::move(attributes), where).at(0);
}

void record_view(const ir::OpDef& op, const Tensor& x, const Tensor& view, const ir::Attributes& attributes,
                 Location where) {
  require_registered({x}, where);
  if (!grad_enabled()) return;
  const bool with_history = any_requires_grad({x});
  view.impl()->view = std::make_shared<RecordedView>(x.impl(), op, attributes, *x.impl()->storage);
  if (!with_history) return;
  std::vector<Tensor> outputs{view};
  record_on_tape(op, {x}, outputs, attributes, where);
}

namespace {

/// What a tensor, and each tensor that it is a view of, becomes when it is written into.
struct NewHistory {
  std::shared_ptr<TensorImpl> tensor;
  Tensor value;
};

/// Innermost view first. Computed before the memory changes.
std::vector<NewHistory> new_histories(const Tensor& x, const Tensor& value, const char* function, Location where) {
  // Written over entirely by what has no history, it stays part of autograd, with a gradient of zero.
  const bool keeps = x.impl()->requires_grad && !value.impl()->requires_grad;
  std::vector<NewHistory> all{
      {x.impl(),
       keeps ? graven::where(Operand(tensor(false), where), Operand(x, where), Operand(value, where)) : value}};
  while (all.back().tensor->view) {
    const TensorImpl& view = *all.back().tensor;
    all.push_back({view.view->base, written_through(view, all.back().value, function, where)});
  }
  return all;
}

/// What the operators of this call keep of x's memory for their gradients is what they read, not what is written now:
/// x.mul_(w), x.pow_(3).
void keep_what_was_read(const Tensor& value, const Storage& storage, std::uint64_t since, Location where) {
  if (!value.impl()->grad_fn) return;
  NoGradGuard no_grad;
  std::vector<GradNode*> pending{value.impl()->grad_fn.get()};
  while (!pending.empty()) {
    GradNode& node = *pending.back();
    pending.pop_back();
    if (node.sequence <= since) continue;
    for (SavedTensor& saved : node.saved) {
      if (saved.tensor.impl()->storage.get() != &storage ||
          saved.version != storage.version.load(std::memory_order_relaxed))
        continue;
      const Tensor kept = saved.tensor.clone(where);
      saved = {kept, kept.impl()->storage->version.load(std::memory_order_relaxed)};
    }
    for (const Edge& edge : node.edges)
      if (edge.node) pending.push_back(edge.node.get());
  }
}

}  // namespace

void assign_in_place(Tensor& x, const Tensor& value, const char* function, Location where, std::uint64_t since) {
  const TensorImpl& old = get(x);
  // Only a higher category is refused: a float32 result goes into a float16 tensor, but not into an integer one.
  const auto category = [](DType d) { return d == DType::boolean ? 0 : ir::is_floating(d) ? 2 : 1; };
  if (category(value.dtype()) > category(old.dtype))
    fail(function, "a result of " + std::string(ir::name(value.dtype())) + " cannot be stored in " + x.describe(),
         where);
  if (value.shape() != old.shape)
    fail(function, "a result of shape " + value.shape().to_string() + " does not fit into " + x.describe(), where);

  Trace* trace = active_trace();
  if (trace && (trace->owns(x) || (value.defined() && trace->owns(value)))) {
    trace->assign(x, value.to(x.dtype(), where), function, where);
    return;
  }
  for (const Tensor* t : {&std::as_const(x), &value})
    if (get(*t).trace_id != 0)
      fail(function,
           "the tensor " + t->describe() + " ('" + get(*t).owner +
               "') was recorded by a graph's build(), and is used outside of it",
           where);
  TensorImpl& target = *x.impl();
  for (std::size_t d = 0; d < target.sizes.size(); ++d)
    if (target.strides[d] == 0 && target.sizes[d] > 1)
      fail(function, "several elements of this expanded tensor share one place in memory; clone() it first", where);
  const bool with_history = any_requires_grad({x, value});
  if (with_history) {
    for (const TensorImpl* at = &target; at != nullptr; at = at->view ? at->view->base.get() : nullptr) {
      if (at->requires_grad && !at->grad_fn)
        fail(function,
             std::string(at == &target ? "a leaf" : "a view of a leaf") +
                 " that requires a gradient is changed in place; use NoGradGuard, or a new tensor",
             where);
      if (at->is_view && !at->view)
        fail(function,
             "what detach() gave, or a view that was taken under NoGradGuard, is changed in place by a value with "
             "history; use a new tensor",
             where);
    }
  }
  Tensor converted = value.to(x.dtype(), where);
  if (with_history && converted.device() != x.device()) converted = copied_to(converted, x.device(), where);
  keep_what_was_read(converted, *target.storage, since, where);
  const std::vector<NewHistory> histories =
      with_history ? new_histories(x, converted, function, where) : std::vector<NewHistory>();
  copy_elements(*converted.impl(), target);
  if (histories.empty()) return;
  const std::uint64_t version = target.storage->version.load(std::memory_order_relaxed);
  for (const NewHistory& h : histories) {
    TensorImpl& changed = *h.tensor;
    const TensorImpl& from = *h.value.impl();
    // A value that is itself a leaf (copy_): history of one step leads to it.
    const Tensor step =
        from.requires_grad && !from.grad_fn ? apply("cast", {h.value}, {{"dtype", changed.dtype}}, where) : h.value;
    changed.requires_grad = step.impl()->requires_grad;
    changed.grad_fn = step.impl()->grad_fn;
    changed.output_index = step.impl()->output_index;
    if (changed.view) changed.view->seen = version;
  }
}

}  // namespace graven::detail
