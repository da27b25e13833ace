#include "frontend/eager/executor.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <type_traits>

#include "frontend/eager/table.h"
#include "frontend/tensor_impl.h"
#include "graven/threads.h"
#include "ir/analysis.h"
#include "ir/call.h"
#include "ir/data_error.h"
#include "ir/diagnostic.h"
#include "ir/element_rule.h"
#include "ir/ops.h"
#include "ir/passes/passes.h"
#include "ir/sizes.h"
#include "kernels/cpu/dtype.h"
#include "kernels/cpu/threads.h"

namespace graven::eager {

namespace {

using ir::at;
using ir::DType;
using ir::kNone;
using ir::ValueId;

/// The pool of eager mode. One caller at a time may use it.
struct Pool {
  std::mutex mutex;
  std::unique_ptr<kernels::Threads> threads = std::make_unique<kernels::Threads>();
};
Pool& pool() {
  static Pool p;
  return p;
}

}  // namespace

void run_pieces(std::int64_t pieces, const std::function<void(std::int64_t piece)>& body) {
  if (pieces == 1) return body(0);
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  p.threads->run(pieces, [&](std::int64_t piece) { body(piece); });
}

namespace {

void convert_elements(DType from, const void* source, DType to, void* target, std::int64_t n) {
  if (from == to) {
    if (n > 0) std::memmove(target, source, static_cast<std::size_t>(n) * ir::size_of(from));
    return;
  }
  detail::convert_buffer(from, source, to, target, n);
}

std::int64_t round_up(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

template <class T>
void move_numbers(T* data, std::int64_t n, std::uint64_t seed, double most) {
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint64_t x = seed + static_cast<std::uint64_t>(i + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;  // halves convert to float alone
    const double left = 1 - most * (static_cast<double>(x >> 11) * 0x1p-53);
    data[i] = static_cast<T>(static_cast<Wide>(static_cast<double>(static_cast<Wide>(data[i])) * left));
  }
}

}  // namespace

void move_by_roundings(DType dtype, void* data, std::int64_t n, std::uint64_t seed, bool tf32) {
  switch (dtype) {
    case DType::f32:
      return move_numbers(static_cast<float*>(data), n, seed, tf32 ? 0x1p-11 : 0x1p-18);
    case DType::f64:
      return move_numbers(static_cast<double*>(data), n, seed, 0x1p-47);
    case DType::f16:
      return move_numbers(static_cast<kernels::f16*>(data), n, seed, 0x1p-11);
    case DType::bf16:
      return move_numbers(static_cast<kernels::bf16*>(data), n, seed, 0x1p-8);
    default:
      return;
  }
}

ir::TensorData convert(const ir::TensorData& data, DType dtype) {
  ir::TensorData result;
  result.type = {dtype, data.type.shape};
  const std::int64_t n = data.type.shape.numel().value();
  GRAVEN_CHECK(data.bytes.size() == static_cast<std::size_t>(n) * ir::size_of(data.type.dtype),
               "data does not fit its type");
  result.bytes.resize(static_cast<std::size_t>(n) * ir::size_of(dtype));
  convert_elements(data.type.dtype, data.bytes.data(), dtype, result.bytes.data(), n);
  return result;
}

// ---- lowering -------------------------------------------------------------------------------------------------------

struct Executor::Impl {
  ir::Graph graph;
  Oracle oracle = Oracle::none;
  bool updates_in_backward = false;

  struct Slot {
    DType dtype;
    std::int64_t numel = 0;
    std::vector<std::int64_t> sizes;
    std::int64_t offset = -1;  ///< in the scratch memory; -1: given from outside, or an alias
    ValueId alias_of = kNone;  ///< the same memory
    std::int64_t bytes() const { return numel * static_cast<std::int64_t>(ir::size_of(dtype)); }
  };
  std::vector<Slot> slots;
  std::int64_t scratch_bytes = 0;

  /// Where an argument of a step comes from.
  struct Source {
    enum class Kind : std::uint8_t { none, value, scratch, data } kind = Kind::none;
    ValueId value = kNone;
    std::int64_t offset = 0;     ///< scratch
    const void* data = nullptr;  ///< owned by the executor
  };
  struct Step {
    enum class Kind : std::uint8_t { kernel, elementwise, convert, fill, copy } kind = Kind::kernel;
    Thunk thunk = nullptr;
    std::vector<Source> arguments;  ///< Arguments::tensors, or what this kind of step takes
    ir::KernelCall call;
    kernels::broadcast_config broadcast{};
    // convert, copy, fill
    DType from = DType::f32, to = DType::f32;
    std::int64_t n = 0;
    double value = 0;
    // of a call with lists
    std::int64_t count = 0;                  ///< of the tensors of each
    std::vector<std::vector<Source>> lists;  ///< by argument; empty where it is a single one
    std::vector<std::int64_t> sizes;
    std::int64_t workspace = -1;
  };
  std::vector<Step> steps;
  std::vector<std::size_t> first_step;  ///< by position of a node in the order of execution
  const MemoryLayout* layout = nullptr;
  bool noise = false;
  std::deque<std::vector<std::byte>> owned;  ///< constants and scalar attributes

  DType mapped(DType d) const { return oracle == Oracle::double_reference && ir::is_floating(d) ? DType::f64 : d; }
  Slot& slot(ValueId v) { return slots[at(v)]; }

  std::int64_t allocate(std::int64_t bytes) {
    const std::int64_t at = scratch_bytes;
    scratch_bytes += round_up(std::max<std::int64_t>(bytes, 1));
    return at;
  }
  Source of(ValueId v) const { return v == kNone ? Source{} : Source{Source::Kind::value, v, 0, nullptr}; }
  Source scalar(DType dtype, double value) {
    std::vector<std::byte>& bytes = owned.emplace_back(ir::size_of(dtype));
    detail::write_element(dtype, bytes.data(), value);
    return {Source::Kind::data, kNone, 0, bytes.data()};
  }

  Impl(ir::Graph g, const ExecuteOptions& options)
      : graph(ir::with_sizes(std::move(g), options.symbols)),
        oracle(options.oracle),
        updates_in_backward(ir::updates_in_backward(graph)),
        layout(options.layout),
        noise(options.noise) {
    if (layout) {
      GRAVEN_CHECK(layout->order.size() == graph.nodes.size() && layout->offset.size() == graph.values.size(),
                   "a layout of another graph");
      allocate(layout->bytes);  // the arena is the beginning of the scratch memory
    }
    std::map<std::size_t, std::vector<ir::Node>> parts;  // by position of a node that stands for several
    for (std::size_t n = 0; n < graph.nodes.size(); ++n)
      if (const ir::Node& node = graph.nodes[n]; node.op->parts != nullptr)
        parts.emplace(n, node.op->parts(graph, node));
    find_in_place();
    slots.resize(graph.values.size());
    for (std::size_t i = 0; i < graph.values.size(); ++i) {
      const ir::TensorType& t = graph.values[i].type;
      slots[i].dtype = mapped(t.dtype);
      // lr and step are passed by value in the types of the kernels' declarations.
      slots[i].sizes = t.shape.values();
      slots[i].numel = t.shape.numel().value();
    }
    for (const auto& [v, data] : graph.constants) {
      const ir::TensorData converted = convert(*data, slot(v).dtype);
      owned.push_back(converted.bytes);
      if (owned.back().empty()) owned.back().resize(1);
      constants.emplace_back(v, owned.back().data());
    }
    for (std::size_t position = 0; position < graph.nodes.size(); ++position) {
      first_step.push_back(steps.size());
      const std::size_t n = layout ? at(layout->order[position]) : position;
      if (const auto several = parts.find(n); several != parts.end()) {
        for (const ir::Node& part : several->second) add(part);
      } else {
        add(graph.nodes[n]);
      }
      if (layout && layout->workspace[position] >= 0)
        for (std::size_t s = first_step.back(); s < steps.size(); ++s)
          if (steps[s].workspace >= 0) steps[s].workspace = layout->workspace[position];
    }
  }
  std::vector<std::pair<ValueId, std::byte*>> constants;

  /// What updates change is changed where it lies if nothing reads it afterwards.
  void find_in_place() {
    const std::vector<ValueId> memory = ir::memory_roots(graph);
    const auto node_at = [&](std::size_t position) -> const ir::Node& {
      return graph.nodes[layout ? at(layout->order[position]) : position];
    };
    ir::ByValue<std::size_t> last_read{0};
    ir::ByValue<int> reads{0};  // by the last node that reads it
    for (std::size_t position = 0; position < graph.nodes.size(); ++position)
      if (const ir::Node& n = node_at(position); !n.op->alias)
        for (const ValueId v : n.inputs) {
          if (v == kNone) continue;
          const ValueId m = memory[at(v)];
          reads[m] = last_read(m) == position ? reads(m) + 1 : 1;
          last_read[m] = position;
        }
    for (const ir::Donation& d : graph.donations)  // what another variable is to hold is read last
      last_read[memory[at(d.value)]] = graph.nodes.size();
    for (std::size_t position = 0; position < graph.nodes.size(); ++position)
      for (const ir::Node& n = node_at(position); const auto& [input, output] : ir::donated_by(n))
        if (const ValueId m = memory[at(n.inputs[input])]; last_read(m) == position && reads(m) == 1)
          in_place.emplace(n.outputs[output], n.inputs[input]);
  }
  std::map<ValueId, ValueId> in_place;  ///< results, and what they take over the memory of

  void place_outputs(const ir::Node& n) {
    for (ValueId v : n.outputs) {
      if (const auto found = in_place.find(v); found != in_place.end()) {
        slot(v).alias_of = found->second;
        continue;
      }
      const bool known = layout && at(v) < layout->offset.size();  // not of parts
      const std::int64_t planned = known ? layout->offset[at(v)] : -1;
      slot(v).offset = planned >= 0 ? planned : allocate(slot(v).bytes());
    }
  }

  /// y = op(inputs), broadcast; inputs given with their sizes.
  struct Operand {
    Source source;
    DType dtype;
    std::vector<std::int64_t> sizes;
  };
  void add_elementwise(const ir::OpDef& op, Source y, DType output, const std::vector<std::int64_t>& sizes,
                       const std::vector<Operand>& inputs, const std::vector<double>& attributes) {
    std::int64_t n = 1;
    for (std::int64_t s : sizes) n *= s;
    if (op == ir::kCast) {
      Step step;
      step.kind = Step::Kind::convert;
      step.from = inputs[0].dtype;
      step.to = output;
      step.n = n;
      step.arguments = {y, inputs[0].source};
      steps.push_back(std::move(step));
      return;
    }
    Step step;
    step.kind = Step::Kind::elementwise;
    std::vector<DType> types;
    for (const Operand& i : inputs) types.push_back(i.dtype);
    const std::string key = elementwise_key(op.name, output, types);
    step.thunk = find_thunk(key);
    if (!step.thunk)
      throw UserError("there is no compiled kernel " + key + ": " + std::string(op.name) +
                      " does not take these dtypes eagerly");
    step.arguments.push_back(y);
    for (const Operand& i : inputs) step.arguments.push_back(i.source);
    DType computed = types.empty() ? output : types.back();
    if (computed == DType::f16 || computed == DType::bf16) computed = DType::f32;
    for (double a : attributes) step.arguments.push_back(scalar(computed, a));
    // Dimensions merge where every input lies one behind the other (or is broadcast) in both.
    kernels::broadcast_config& c = step.broadcast;
    const std::size_t rank = sizes.size();
    std::vector<std::vector<std::int64_t>> strides(inputs.size(), std::vector<std::int64_t>(rank, 0));
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      const auto& own = inputs[k].sizes;
      std::int64_t stride = 1;
      for (std::size_t d = own.size(); d-- > 0;) {
        const std::size_t at = rank - own.size() + d;
        strides[k][at] = own[d] == 1 && sizes[at] != 1 ? 0 : stride;
        stride *= own[d];
      }
    }
    c.rank = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      if (sizes[d] == 1) continue;
      bool merge = c.rank > 0;
      for (std::size_t k = 0; k < inputs.size() && merge; ++k)
        merge = c.strides[k][c.rank - 1] == strides[k][d] * sizes[d];
      if (merge) {
        c.shape[c.rank - 1] *= sizes[d];
      } else {
        if (c.rank == kernels::broadcast_config::kMaximumRank)
          throw UserError(std::string(op.name) + ": broadcasting over more than " + std::to_string(c.rank) +
                          " dimensions is not supported");
        c.shape[c.rank++] = sizes[d];
      }
      for (std::size_t k = 0; k < inputs.size(); ++k) c.strides[k][c.rank - 1] = strides[k][d];
    }
    if (inputs.size() + attributes.size() > kernels::broadcast_config::kMaximumInputs)
      throw UserError(std::string(op.name) + ": too many inputs");
    steps.push_back(std::move(step));
  }

  static std::vector<double> attribute_values(const ir::OpDef& op, const ir::Attributes& attributes) {
    std::vector<double> values;
    for (const ir::AttributeSpec* spec : scalar_attributes(op))
      values.push_back(ir::number_of(attributes.at(spec->name)).value());
    return values;
  }

  /// A program step by step over whole tensors; the last step writes into y.
  void add_program(const ir::ScalarProgram& program, Source y, DType output, const std::vector<std::int64_t>& sizes,
                   const std::vector<Operand>& inputs) {
    GRAVEN_CHECK(program.inputs <= static_cast<std::int32_t>(inputs.size()), "a program has more inputs than its node");
    std::int64_t n = 1;
    for (std::int64_t s : sizes) n *= s;
    std::vector<Operand> results(inputs.begin(), inputs.begin() + program.inputs);
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      const ir::ScalarProgram::Step& s = program.steps[i];
      const ir::OpDef& op = ir::get_op(s.op);
      std::vector<Operand> arguments;
      for (std::int32_t a : s.arguments) arguments.push_back(results.at(at(a)));
      const bool last = i + 1 == program.steps.size();
      const DType dtype = last ? output : mapped(ir::element_rule(op).gives_boolean() ? DType::boolean : s.dtype);
      Operand result{last ? y : Source{}, dtype, sizes};
      if (!last) {
        if (arguments.empty()) result.sizes = {};
        result.source = {Source::Kind::scratch, kNone,
                         allocate((arguments.empty() ? 1 : n) * static_cast<std::int64_t>(ir::size_of(dtype))),
                         nullptr};
      }
      const auto constant = [&](std::string_view name) -> const double* {
        for (const auto& [key, value] : s.constants)
          if (key == name) return &value;
        return nullptr;
      };
      if (op == ir::kFull) {
        add_fill(result.source, dtype, last ? n : 1, constant("value") ? *constant("value") : 0);
      } else {
        std::vector<double> attributes;
        for (const ir::AttributeSpec* spec : scalar_attributes(op)) {
          if (const double* value = constant(spec->name))
            attributes.push_back(*value);
          else if (spec->fallback)
            attributes.push_back(std::visit(
                [](const auto& v) -> double {
                  if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(v)>>)
                    return static_cast<double>(v);
                  else
                    return 0;
                },
                *spec->fallback));
          else
            attributes.push_back(0);
        }
        // Integers and floats may meet where a cast was fused away; every argument is brought to the step's type.
        if (!ir::element_rule(op).gives_boolean() && op != ir::kCast && op != ir::kWhere)
          for (Operand& a : arguments)
            if (a.dtype != dtype) a = converted(a, dtype);
        add_elementwise(op, result.source, dtype, result.sizes, arguments, attributes);
      }
      results.push_back(std::move(result));
    }
  }
  Operand converted(const Operand& a, DType dtype) {
    std::int64_t n = 1;
    for (std::int64_t s : a.sizes) n *= s;
    Operand r{{Source::Kind::scratch, kNone, allocate(n * static_cast<std::int64_t>(ir::size_of(dtype))), nullptr},
              dtype,
              a.sizes};
    add_elementwise(ir::kCast, r.source, dtype, a.sizes, {a}, {});
    return r;
  }

  void add_copy(Source to, Source from, std::int64_t bytes) {
    Step step;
    step.kind = Step::Kind::copy;
    step.n = bytes;
    step.arguments = {to, from};
    steps.push_back(std::move(step));
  }

  void add_fill(Source y, DType dtype, std::int64_t n, double value) {
    Step step;
    step.kind = Step::Kind::fill;
    step.to = dtype;
    step.n = n;
    step.value = value;
    step.arguments = {y};
    steps.push_back(std::move(step));
  }

  Operand operand(ValueId v) { return {of(v), slot(v).dtype, slot(v).sizes}; }

  void add(const ir::Node& n) {
    const ir::OpDef& op = *n.op;
    // The reference kernels take weights as they are in checkpoints: packing is nothing to them.
    const bool packs_nothing = op.packs && oracle != Oracle::none;
    if (op.alias || (packs_nothing && !updates_in_backward)) {
      slot(n.outputs[0]).alias_of = n.inputs[0];
      return;
    }
    if (packs_nothing) {
      // What was packed stays as it was when the parameter is updated before the packed weight is read.
      place_outputs(n);
      GRAVEN_CHECK(slot(n.outputs[0]).bytes() >= slot(n.inputs[0]).bytes(), "packing leaves elements out");
      add_copy(of(n.outputs[0]), of(n.inputs[0]), slot(n.inputs[0]).bytes());
      return;
    }
    place_outputs(n);
    if (n.is(ir::kCopy)) {
      add_copy(of(n.outputs[0]), of(n.inputs[0]), slot(n.inputs[0]).bytes());
      return;
    }
    if (n.is(ir::kFull)) {
      add_fill(of(n.outputs[0]), slot(n.outputs[0]).dtype, slot(n.outputs[0]).numel, n.attributes.number("value"));
      return;
    }
    std::vector<Operand> operands;
    if (n.is(ir::kFusedElementwise, ir::kFusedReduction) || op.elementwise())
      for (ValueId v : n.inputs) operands.push_back(operand(v));
    if (n.is(ir::kFusedElementwise)) {
      add_program(n.attributes.program("program"), of(n.outputs[0]), slot(n.outputs[0]).dtype, slot(n.outputs[0]).sizes,
                  operands);
      return;
    }
    if (n.is(ir::kFusedReduction)) {
      add_fused_reduction(n, operands);
      return;
    }
    if (op.elementwise()) {
      add_elementwise(op, of(n.outputs[0]), slot(n.outputs[0]).dtype, slot(n.outputs[0]).sizes, operands,
                      attribute_values(op, n.attributes));
      return;
    }
    add_kernel(n);
  }

  /// The program into scratch memory, then the reduction: what a graph fuses is two kernels here.
  void add_fused_reduction(const ir::Node& n, const std::vector<Operand>& operands) {
    const Slot& x = slot(n.inputs[0]);
    const Source terms{Source::Kind::scratch, kNone, allocate(x.bytes()), nullptr};
    add_program(n.attributes.program("program"), terms, x.dtype, x.sizes, operands);
    Step step;
    step.call = ir::lower({graph, n});
    step.call.reference = oracle != Oracle::none;
    const Signature s = signature_of(n, [this](ValueId v) { return slots[at(v)].dtype; });
    step.thunk = find_thunk(kernel_key(step.call, s.outputs, s.inputs));
    GRAVEN_CHECK(step.thunk, "reductions of floating types are compiled");
    step.arguments = {of(n.outputs[0]), terms};
    steps.push_back(std::move(step));
  }

  void add_kernel(const ir::Node& n) {
    const ir::OpDef& op = *n.op;
    Step step;
    step.call = ir::lower({graph, n});
    // The epilogue is applied afterwards, so the kernel does not get the residual.
    const ir::Attribute* attribute = n.attributes.find("epilogue");
    const auto* epilogue = attribute ? std::get_if<ir::ScalarProgram>(attribute) : nullptr;
    const bool finishes = epilogue && !epilogue->empty();
    const Signature s = signature_of(n, [this](ValueId v) { return slots[at(v)].dtype; });
    const bool has_fast = !step.call.reference;
    step.call.reference |= oracle != Oracle::none;
    const std::string key = kernel_key(step.call, s.outputs, s.inputs);
    step.thunk = find_thunk(key);
    if (!step.thunk && step.call.reference && has_fast) {  // no reference version: data movement
      step.call.reference = false;
      step.thunk = find_thunk(kernel_key(step.call, s.outputs, s.inputs));
    }
    if (!step.thunk)
      throw UserError("there is no compiled kernel " + key + ": " + std::string(op.name) +
                      " does not take these dtypes eagerly");
    ValueId residual = kNone;
    // An update changes the memory of its results, which hold what it updates before it runs.
    std::map<ValueId, ValueId> updated;
    for (const auto& [input, output] : ir::donated_by(n)) {
      updated.emplace(n.inputs[input], n.outputs[output]);
      if (in_place.count(n.outputs[output]) == 0)
        add_copy(of(n.outputs[output]), of(n.inputs[input]), slot(n.outputs[output]).bytes());
    }
    for (const ir::Argument& a : ir::arguments_of(n, step.call)) {
      bind(step, a, updated);
      if (!finishes || a.kind != ir::Argument::Kind::input || a.index != ir::input_of(op, ir::InputRole::residual))
        continue;
      residual = a.value();
      step.arguments.back() = {};
    }
    // The result may be planned over the residual, which the epilogue has yet to read.
    if (finishes && layout)
      step.arguments[0] = {Source::Kind::scratch, kNone, allocate(slot(n.outputs[0]).bytes()), nullptr};
    const Source product = step.arguments.empty() ? Source{} : step.arguments[0];  // updates have no results
    steps.push_back(std::move(step));
    if (finishes) {
      std::vector<Operand> operands{operand(n.outputs[0])};
      operands[0].source = product;
      if (residual != kNone) operands.push_back(operand(residual));
      add_program(*epilogue, of(n.outputs[0]), slot(n.outputs[0]).dtype, slot(n.outputs[0]).sizes, operands);
    }
  }

  /// Adds what a thunk is given for one of its arguments. `updated`: the results that take over inputs' memory.
  void bind(Step& step, const ir::Argument& argument, const std::map<ValueId, ValueId>& updated) {
    using Kind = ir::Argument::Kind;
    const auto place = [&](ValueId v) {
      const auto found = argument.kind == Kind::output ? updated.end() : updated.find(v);
      return of(found == updated.end() ? v : found->second);
    };
    switch (argument.kind) {
      case Kind::output:
      case Kind::input:
      case Kind::number:
        step.arguments.push_back(place(argument.value()));
        break;
      case Kind::list:
        step.arguments.emplace_back();
        step.lists.resize(step.arguments.size());
        if (std::any_of(argument.values.begin(), argument.values.end(), [](ValueId v) { return v != kNone; }))
          for (const ValueId v : argument.values) step.lists.back().push_back(place(v));
        break;
      case Kind::sizes:
        for (const ir::Dim& d : ir::sizes_of(graph, step.call, argument)) step.sizes.push_back(d.value());
        break;
      case Kind::count:
        step.count = static_cast<std::int64_t>(argument.values.size());
        break;
      case Kind::workspace:
        step.workspace = allocate(*step.call.workspace_bytes);
        break;
      case Kind::threads:
      case Kind::config:
      case Kind::where:
        break;  // the thunk has them
    }
  }

  // ---- running ----

  /// Moves what the node has computed nearer to 0, each number by some roundings of its own.
  void add_noise(const ir::Node& node, const std::vector<void*>& memory) const {
    if (node.op->alias || node.is(ir::kCopy)) return;  // nothing is rounded
    for (const ValueId v : ir::own_outputs(node)) {
      const Slot& slot = slots[at(v)];
      void* const data = memory[at(v)];
      if (slot.alias_of != kNone || data == nullptr) continue;
      // By its name, not its number, which another reading of the same graph may give to another value.
      std::uint64_t seed = 14695981039346656037u;
      for (const char c : graph.value(v).name) seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211u;
      move_by_roundings(slot.dtype, data, slot.numel, seed,
                        graph.flag(ir::kAllowTf32) && node.phase != ir::Phase::update);
    }
  }

  /// `given`: memory by value, nullptr where the scratch memory is to be used. Fills in the rest.
  void run(std::vector<void*>& memory, std::byte* scratch) const {
    for (const auto& [v, p] : constants) memory[at(v)] = p;
    for (std::size_t v = 0; v < slots.size(); ++v)
      if (!memory[v] && slots[v].offset >= 0) memory[v] = scratch + slots[v].offset;
    // Aliases of later values never occur: nodes stand in order.
    for (const ir::Node& n : graph.nodes)
      for (ValueId v : n.outputs)
        if (const ValueId base = slots[at(v)].alias_of; base != kNone) memory[at(v)] = memory[at(base)];
    const auto pointer = [&](const Source& s) -> void* {
      switch (s.kind) {
        case Source::Kind::value:
          return memory[at(s.value)];
        case Source::Kind::scratch:
          return scratch + s.offset;
        case Source::Kind::data:
          return const_cast<void*>(s.data);
        case Source::Kind::none:
          break;
      }
      return nullptr;
    };
    Pool& p = pool();
    const std::lock_guard lock(p.mutex);
    std::vector<void*> tensors;
    std::vector<std::vector<void*>> lists;
    const std::span<std::byte> arena{scratch, layout ? static_cast<std::size_t>(layout->bytes) : 0};
    std::size_t position = 0;
    const auto finish = [&](std::size_t done) {
      if (layout && layout->after) layout->after(done, arena);
      if (noise) add_noise(graph.nodes[layout ? at(layout->order[done]) : done], memory);
    };
    const bool watched = layout || noise;
    const auto advance = [&](std::size_t until) {  // past the nodes that have no steps, too
      for (; position < until; ++position) {
        if (position > 0) finish(position - 1);
        if (position < first_step.size() && layout && layout->before) layout->before(position, arena);
      }
    };
    for (std::size_t index = 0; index < steps.size(); ++index) {
      const Step& s = steps[index];
      if (watched)
        advance(static_cast<std::size_t>(std::upper_bound(first_step.begin(), first_step.end(), index) -
                                         first_step.begin()));
      tensors.clear();
      for (const Source& a : s.arguments) tensors.push_back(pointer(a));
      switch (s.kind) {
        case Step::Kind::convert:
          convert_elements(s.from, tensors[1], s.to, tensors[0], s.n);
          continue;
        case Step::Kind::copy:
          if (s.n > 0) std::memmove(tensors[0], tensors[1], static_cast<std::size_t>(s.n));
          continue;
        case Step::Kind::fill: {
          const std::size_t size = ir::size_of(s.to);
          std::byte one[8];
          detail::write_element(s.to, one, s.value);
          for (std::int64_t i = 0; i < s.n; ++i)
            std::memcpy(static_cast<std::byte*>(tensors[0]) + static_cast<std::size_t>(i) * size, one, size);
          continue;
        }
        case Step::Kind::kernel:
        case Step::Kind::elementwise:
          break;
      }
      lists.assign(s.lists.size(), {});
      for (std::size_t i = 0; i < s.lists.size(); ++i) {
        if (s.lists[i].empty()) continue;
        for (const Source& a : s.lists[i]) lists[i].push_back(pointer(a));
        tensors[i] = lists[i].data();
      }
      try {
        s.thunk({*p.threads, &s.call, &s.broadcast, tensors.data(), s.count, s.sizes,
                 s.workspace >= 0 ? scratch + s.workspace : nullptr});
      } catch (const std::exception& e) {  // an index in the data is out of range
        throw ir::data_error(e.what());
      }
    }
    if (watched && !first_step.empty()) {
      advance(first_step.size());
      finish(first_step.size() - 1);
    }
  }
};

namespace {
struct Scratch {
  explicit Scratch(std::int64_t bytes) : storage(static_cast<std::size_t>(bytes)) {}
  detail::Storage storage;
};
}  // namespace

Executor::Executor(ir::Graph graph, const ExecuteOptions& options)
    : impl_(std::make_unique<Impl>(std::move(graph), options)) {}
Executor::~Executor() = default;
const ir::Graph& Executor::graph() const { return impl_->graph; }

void Executor::run(std::span<const void* const> inputs, std::span<void* const> outputs) const {
  const Impl& e = *impl_;
  GRAVEN_CHECK(inputs.size() == e.graph.inputs.size() && outputs.size() == e.graph.outputs.size(),
               "wrong number of tensors");
  std::vector<void*> memory(e.slots.size(), nullptr);
  for (std::size_t i = 0; i < inputs.size(); ++i) memory[at(e.graph.inputs[i])] = const_cast<void*>(inputs[i]);
  // Results go straight to the caller, where they are computed rather than aliases.
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::size_t v = at(e.graph.outputs[i]);
    if (e.slots[v].offset >= 0 && !memory[v]) memory[v] = outputs[i];
  }
  const Scratch scratch(e.scratch_bytes);
  e.run(memory, scratch.storage.data);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::size_t v = at(e.graph.outputs[i]);
    const auto bytes = static_cast<std::size_t>(e.slots[v].bytes());
    if (memory[v] != outputs[i] && bytes > 0) std::memcpy(outputs[i], memory[v], bytes);
  }
}

struct ExecutorAccess {
  static Executor::Impl& impl(Executor& e) { return *e.impl_; }
};

void execute(const ir::Graph& graph, Environment& values, const ExecuteOptions& options) {
  Executor executor(graph, options);
  Executor::Impl& e = ExecutorAccess::impl(executor);
  std::vector<void*> memory(e.slots.size(), nullptr);
  std::deque<ir::TensorData> leaves;
  std::vector<std::pair<ValueId, ir::TensorData*>> leaf_of;
  std::set<ValueId> produced;
  for (const ir::Node& n : e.graph.nodes) produced.insert(n.outputs.begin(), n.outputs.end());
  for (auto& [v, data] : values) {
    if (v < 0 || at(v) >= e.slots.size() || produced.count(v)) continue;
    const auto& slot = e.slots[at(v)];
    if (data.type.shape != e.graph.type(v).shape)
      throw UserError("execute: '" + e.graph.value(v).name + "' must be " + e.graph.type(v).to_string() + ", got " +
                      data.type.to_string());
    leaves.push_back(convert(data, e.graph.value(v).kind == ir::ValueKind::hyper ? e.graph.type(v).dtype : slot.dtype));
    if (leaves.back().bytes.empty()) leaves.back().bytes.resize(1);
    memory[at(v)] = leaves.back().bytes.data();
    leaf_of.emplace_back(v, &leaves.back());
  }
  for (const ir::Node& n : e.graph.nodes)
    for (ValueId v : n.inputs)
      if (v != kNone && !produced.count(v) && !memory[at(v)] && !e.graph.constants.count(v))
        throw UserError("execute: the value '" + e.graph.value(v).name + "' is needed by " + std::string(n.op->name) +
                        " and was not given");
  const Scratch scratch(e.scratch_bytes);
  e.run(memory, scratch.storage.data);
  const auto store = [&](ValueId v) {
    const auto& slot = e.slots[at(v)];
    ir::TensorData data;
    data.type = {slot.dtype, e.graph.type(v).shape};
    const auto* p = static_cast<const std::byte*>(memory[at(v)]);
    GRAVEN_CHECK(p != nullptr, "the value '" + e.graph.value(v).name + "' was not computed");
    data.bytes.assign(p, p + slot.bytes());
    values[v] = std::move(data);
  };
  for (const ir::Node& n : e.graph.nodes) {
    // To the oracle a packed weight is the weight: there is nothing of the packed size to keep.
    const bool packs_nothing = options.oracle != Oracle::none && n.op->packs;
    if (options.keep_all && !packs_nothing)
      for (ValueId v : n.outputs) store(v);
  }
  for (ValueId v : e.graph.outputs)
    if (!values.count(v) || produced.count(v)) store(v);
  for (const ir::Loss& l : e.graph.losses) store(l.value);
  // What variables hold now. A graph of some of the nodes changes some of them.
  std::vector<std::pair<ValueId, ir::TensorData>> held;
  for (const ir::Donation& d : e.graph.donations)
    if (produced.count(d.value) || e.graph.value(d.value).kind != ir::ValueKind::node) {
      store(d.value);
      held.emplace_back(d.variable, values.at(d.value));
    }
  for (auto& [v, data] : held) values[v] = std::move(data);
  // A result that is a variable, or a view of one, is what that holds.
  const std::vector<ValueId> roots = ir::memory_roots(e.graph);
  for (const ValueId v : e.graph.outputs)
    if (const ValueId m = roots[at(v)];
        m != v && std::any_of(held.begin(), held.end(), [&](const auto& h) { return h.first == m; })) {
      ir::TensorData data = values.at(m);
      data.type.shape = e.graph.type(v).shape;
      values[v] = std::move(data);
    }
  for (const auto& [v, p] : e.constants)
    if (std::find(e.graph.outputs.begin(), e.graph.outputs.end(), v) != e.graph.outputs.end()) store(v);
}

}  // namespace graven::eager

namespace graven {

void set_num_threads(int count) {
  if (count < 0) throw UserError("set_num_threads: the number must not be negative, got " + std::to_string(count));
  eager::Pool& p = eager::pool();
  const std::lock_guard lock(p.mutex);
  p.threads.reset();  // its threads end before others begin
  p.threads = std::make_unique<kernels::Threads>(count);
}

int get_num_threads() {
  eager::Pool& p = eager::pool();
  const std::lock_guard lock(p.mutex);
  return p.threads->count();
}

}  // namespace graven
