#include "frontend/compiled_program.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/random.h"
#include "ir/analysis.h"
#include "ir/sizes.h"

namespace graven::detail {

namespace {

struct Mismatch {
  std::size_t input;
  std::string why;  ///< what the types alone do not say
};

/// The first input that does not fit; what the symbols stand for is added to `symbols`.
std::optional<Mismatch> find_mismatch(const ir::Graph& graph, const std::vector<Tensor>& inputs, std::int64_t parts,
                                      std::map<std::string, std::int64_t>& symbols) {
  const ir::SizeRules rules = ir::size_rules(graph);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ir::TensorType& expected = graph.type(graph.inputs[i]);
    if (!inputs[i].defined()) return Mismatch{i, ""};
    if (inputs[i].is_traced()) return Mismatch{i, ", recorded by another graph's build()"};
    if (inputs[i].dtype() != expected.dtype || inputs[i].shape().rank() != expected.shape.rank())
      return Mismatch{i, ""};
    for (std::size_t d = 0; d < expected.shape.rank(); ++d) {
      const Dim& dim = expected.shape[d];
      std::int64_t got = inputs[i].shape()[d].value();
      if (d == 0 && got % parts != 0)
        return Mismatch{i, fmt::format(": dimension 0 is not divisible by the {} gradient accumulation steps", parts)};
      if (d == 0) got /= parts;
      if (dim.is_static()) {
        if (got != dim.value()) return Mismatch{i, ""};
        continue;
      }
      const std::optional<Dim::Linear> linear = dim.linear();
      GRAVEN_CHECK(linear, "an input's dimension is " + dim.to_string());
      const std::optional<std::int64_t> value = linear->symbol_at(got);
      if (!value) return Mismatch{i, ""};
      const ir::Symbol& range = *rules.find(linear->symbol.name);
      if (*value < range.least || *value > range.most)
        return Mismatch{i, fmt::format(": {} must lie in {}", range.name, range.range())};
      const auto [it, fresh] = symbols.emplace(range.name, *value);
      if (!fresh && it->second != *value)
        return Mismatch{i, fmt::format(": {} is {} in an earlier input", range.name, it->second)};
    }
  }
  if (const auto wrong = ir::find_wrong_size(rules, symbols)) return Mismatch{inputs.size() - 1, ": " + *wrong};
  return std::nullopt;
}

/// Whether the input has fewer rows than were recorded, and is else as it was.
bool is_part_of_batch(const ir::TensorType& expected, const Tensor& got) {
  const Shape& shape = expected.shape;
  if (!got.defined() || got.is_traced() || got.dtype() != expected.dtype || shape.rank() == 0 ||
      got.shape().rank() != shape.rank() || !shape[0].is_static() || got.shape()[0].value() >= shape[0].value())
    return false;
  return std::equal(shape.begin() + 1, shape.end(), got.shape().begin() + 1);
}

}  // namespace

bool inputs_fit(const ir::Graph& graph, const std::vector<Tensor>& inputs, std::int64_t parts) {
  std::map<std::string, std::int64_t> symbols;
  return inputs.size() == graph.inputs.size() && !find_mismatch(graph, inputs, parts, symbols);
}

ProgramInputs check_inputs(const ir::Graph& graph, const std::string& owner, const std::vector<Tensor>& inputs,
                           const std::vector<std::string>& paths, std::int64_t parts, Location where) {
  ProgramInputs checked;
  if (const auto mismatch = find_mismatch(graph, inputs, parts, checked.symbols)) {
    const ir::Value& expected = graph.value(graph.inputs[mismatch->input]);
    const Tensor& got = inputs[mismatch->input];
    ir::TensorType whole = expected.type;
    if (parts > 1) whole.shape[0] = whole.shape[0] * Dim(parts);
    UserError error("input " + paths[mismatch->input] + " ('" + expected.name + "') of " + owner + ": expected " +
                    whole.to_string() + ", got " + (got.defined() ? got.describe() : "an undefined tensor") +
                    mismatch->why);
    if (is_part_of_batch(whole, got))
      error.note("a last batch that is smaller: a DataLoader's drop_last leaves it out; Dim(\"batch\", " +
                 whole.shape[0].to_string() + ") in the spec takes every size up to that; " +
                 "with_dynamic_input_shape() compiles a program for each shape");
    error.at(where.file_name(), where.line);
    throw error;
  }
  for (const Tensor& t : inputs)
    checked.tensors.push_back(t.impl()->contiguous() ? t : t.detach().clone());  // on its device
  return checked;
}

CompiledProgram::CompiledProgram(const ir::Graph& graph, std::string owner, const ir::CompileOptions& options,
                                 const std::vector<Variable>& variables, std::int64_t parts, int outputs_buffer_size)
    : graph_(graph),
      owner_(std::move(owner)),
      device_(options.device),
      threads_(options.threads),
      parts_(parts),
      ring_(ir::at(outputs_buffer_size)) {
  if (parts > 1) {
    ir::ByValue<bool> depends;
    for (const ir::ValueId v : graph.inputs) depends[v] = true;
    for (const ir::Node& n : graph.nodes)
      if (std::any_of(n.inputs.begin(), n.inputs.end(), [&](ir::ValueId v) { return depends(v); }))
        for (const ir::ValueId v : n.outputs) depends[v] = true;
    // Of a parameter or a buffer that is what the last part leaves behind.
    const std::vector<ir::ValueId> memory = ir::memory_roots(graph);
    for (const ir::ValueId v : graph.parameters) depends[v] = false;
    for (const ir::Donation& d : graph.donations) depends[memory[ir::at(d.value)]] = false;
    for (const ir::ValueId v : graph.outputs)
      joinings_.push_back(joining_of(v, depends(v) && depends(memory[ir::at(v)])));
  }
  try {
    executable_ = ir::compile(graph, options);
  } catch (const std::bad_alloc&) {
    throw UserError("out of memory while " + owner_ + " was compiled");
  }
  for (const Variable& v : variables) bound_.push_back({v, nullptr, 0});
}

CompiledProgram::Joining CompiledProgram::joining_of(ir::ValueId result, bool depends_on_inputs) const {
  const ir::TensorType& type = graph_.type(result);
  if (!depends_on_inputs) return Joining::last;
  if (type.shape.rank() > 0) return Joining::rows;
  if (type.dtype == DType::boolean)
    throw UserError("'" + graph_.value(result).name + "' of " + owner_ + " is " + type.to_string() +
                    ", of which a step of " + std::to_string(parts_) +
                    " gradient accumulation steps has several, and gives back one: return it as a number, or with a "
                    "dimension");
  return ir::is_floating(type.dtype) ? Joining::mean : Joining::sum;
}

ir::Device CompiledProgram::device_of(const std::string& owner, const std::vector<Variable>& variables,
                                      const ProgramInputs& inputs, const std::vector<std::string>& paths,
                                      Location where) {
  std::string first;
  ir::Device device;
  const auto see = [&](const std::string& what, const Tensor& t) {
    const ir::Device& own = t.impl()->storage->device;
    if (first.empty()) {
      first = what;
      device = own;
    } else if (own != device) {
      fail_at(
          fmt::format("{} has tensors on two devices: {} is on {}, {} on {}; move the module, or the input, with to()",
                      owner, first, device.to_string(), what, own.to_string()),
          where);
    }
  };
  for (const Variable& v : variables)
    if (!v.is_state) see(v.name, v.tensor);
  for (std::size_t i = 0; i < inputs.tensors.size(); ++i) see("input " + paths[i], inputs.tensors[i]);
  return device;
}

bool CompiledProgram::runs_where(const ProgramInputs& inputs) const {
  const auto is_here = [&](const Tensor& t) { return t.impl()->storage->device == device_; };
  return std::all_of(bound_.begin(), bound_.end(),
                     [&](const Bound& b) { return b.variable.is_state || is_here(b.variable.tensor); }) &&
         std::all_of(inputs.tensors.begin(), inputs.tensors.end(), is_here);
}

CompiledProgram::~CompiledProgram() = default;

void CompiledProgram::bind_variables(Location where) {
  bool changed = false;
  for (Bound& b : bound_) {
    TensorImpl& impl = *b.variable.tensor.impl();
    if (b.variable.is_state) move_to(impl, device_);
    if (impl.storage != b.storage) {
      const ir::ValueId id = graph_.find(b.variable.name);
      if (id != ir::kNone && (graph_.type(id).dtype != impl.dtype || graph_.type(id).shape != impl.shape))
        fail_at("the parameter " + b.variable.name + " of " + owner_ + " was recorded as " +
                    graph_.type(id).to_string() + ", and is " + b.variable.tensor.describe() + " now",
                where);
      executable_->bind(b.variable.name, impl.place(),
                        static_cast<std::size_t>(impl.numel()) * ir::size_of(impl.dtype));
      b.storage = impl.storage;
      changed = true;
    }
    const std::uint64_t writes = impl.storage->possible_writes();
    changed = changed || writes != b.writes;
    b.writes = writes;
  }
  if (changed) executable_->weights_changed();
}

nn::StateDict CompiledProgram::gradients() const {
  nn::StateDict result;
  for (const Bound& b : bound_) {
    const void* data = executable_->gradient(b.variable.name);
    if (data == nullptr) continue;
    Tensor copy = make_tensor(b.variable.tensor.dtype(), b.variable.tensor.shape(), device_);
    if (device_.is_cpu())
      std::memcpy(copy.impl()->data(), data, copy.impl()->storage->bytes);
    else
      ir::copy_on_device(device_, copy.impl()->place(), static_cast<const std::byte*>(data),
                         copy.impl()->storage->bytes);
    result.emplace_back(b.variable.name, std::move(copy));
  }
  return result;
}

Tensor CompiledProgram::result(std::size_t output, const Shape& shape) {
  const DType dtype = graph_.type(graph_.outputs[output]).dtype;
  if (ring_.empty() || output >= ring_[oldest_].size()) return make_tensor(dtype, shape, device_);
  std::shared_ptr<Storage>& storage = ring_[oldest_][output];
  const auto bytes = static_cast<std::size_t>(shape.numel().value()) * ir::size_of(dtype);
  if (storage.use_count() != 1 || storage->bytes != bytes) return make_tensor(dtype, shape, device_);
  // Whoever let it go, in whatever thread, has read it before.
  std::atomic_thread_fence(std::memory_order_acquire);
  auto impl = std::make_shared<TensorImpl>();
  impl->dtype = dtype;
  impl->shape = shape;
  impl->sizes = shape.values();
  impl->strides = contiguous_strides(impl->sizes);
  impl->storage = std::move(storage);
  impl->bump_version();
  return Tensor(std::move(impl));
}

/// Each part's results that are numbers go to `numbers`, by output.
void CompiledProgram::run_parts(const ProgramInputs& inputs, const std::vector<std::int64_t>& symbols,
                                ir::StepNumbers& counts, std::vector<Tensor>& outputs,
                                std::vector<std::vector<double>>& numbers) {
  const auto place = [&](const Tensor& t, bool cut) {
    const std::int64_t bytes = t.numel() * static_cast<std::int64_t>(ir::size_of(t.dtype()));
    return t.impl()->place() + (cut ? counts.part * (bytes / parts_) : 0);
  };
  for (; counts.part < parts_; ++counts.part) {
    counts.draw = (counts.step - 1) * parts_ + counts.part + 1;
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const Tensor& t : inputs.tensors) in.push_back(place(t, true));
    for (std::size_t i = 0; i < outputs.size(); ++i)
      out.push_back(place(outputs[i], parts_ > 1 && joinings_[i] == Joining::rows));
    try {
      executable_->run(in, out, symbols, counts);
    } catch (const std::bad_alloc&) {
      throw UserError("out of memory while " + owner_ + " ran");
    }
    for (std::size_t i = 0; i < joinings_.size(); ++i)
      if (joinings_[i] == Joining::mean || joinings_[i] == Joining::sum)
        numbers[i].push_back(outputs[i].item<double>());
  }
}

std::vector<Tensor> CompiledProgram::run(const ProgramInputs& inputs, const std::vector<double>& learning_rates,
                                         std::int64_t step, Location where, ProfileRecording* recording) {
  // Its memory is one call's: a second one at once would compute something else, and so would the first.
  if (is_running_.exchange(true, std::memory_order_acquire))
    fail_at(owner_ +
                " runs in another thread: a graph makes one call at a time; give each thread a graph of its own, which "
                "may share the module",
            where);
  struct End {
    std::atomic<bool>& is_running;
    ~End() { is_running.store(false, std::memory_order_release); }
  } const end{is_running_};
  bind_variables(where);
  std::vector<std::int64_t> symbols;
  for (const ir::Symbol& symbol : graph_.symbols())
    symbols.push_back(inputs.symbols.count(symbol.name) ? inputs.symbols.at(symbol.name) : symbol.most);
  std::vector<Tensor> outputs;
  std::vector<std::vector<double>> numbers(graph_.outputs.size());  // those of each part, of results that are numbers
  for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
    const ir::TensorType& type = graph_.type(graph_.outputs[i]);
    Shape shape;
    for (const Dim& d : type.shape) shape.push_back(d.at(inputs.symbols));
    if (parts_ > 1 && joinings_[i] == Joining::rows) shape[0] = shape[0] * Dim(parts_);
    outputs.push_back(result(i, shape));
  }
  ir::StepNumbers counts{.learning_rates = learning_rates,
                         .step = step,
                         .seed = static_cast<std::int64_t>(default_generator().initial_seed()),
                         .parts = parts_};
  const auto run = [&] { run_parts(inputs, symbols, counts, outputs, numbers); };
  if (recording != nullptr)
    recording->measure(*executable_, device_, threads_, symbols, run);
  else
    run();
  for (std::size_t i = 0; i < joinings_.size(); ++i) {
    if (numbers[i].empty()) continue;
    const double sum = std::accumulate(numbers[i].begin(), numbers[i].end(), 0.0);
    const Tensor joined = make_tensor(outputs[i].dtype(), outputs[i].shape());
    write_element(joined.dtype(), joined.impl()->data(),
                  joinings_[i] == Joining::mean ? sum / static_cast<double>(parts_) : sum);
    copy_elements(*joined.impl(), *outputs[i].impl());
  }
  if (!ring_.empty()) {
    ring_[oldest_].clear();
    for (const Tensor& t : outputs) ring_[oldest_].push_back(t.impl()->storage);
    oldest_ = (oldest_ + 1) % ring_.size();
  }
  for (Bound& b : bound_)
    if (b.variable.written) {
      b.variable.tensor.impl()->bump_version();
      b.writes = b.storage->possible_writes();
    }
  return outputs;
}

}  // namespace graven::detail
