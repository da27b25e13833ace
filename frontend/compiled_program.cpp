#include "frontend/compiled_program.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/random.h"
#include "ir/sizes.h"

namespace graven::detail {

namespace {

struct Mismatch {
  std::size_t input;
  std::string why;  ///< what the types alone do not say
};

/// The first input that does not fit; what the symbols stand for is added to `symbols`.
std::optional<Mismatch> find_mismatch(const ir::Graph& graph, const std::vector<Tensor>& inputs,
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
      const std::int64_t got = inputs[i].shape()[d].value();
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

bool inputs_fit(const ir::Graph& graph, const std::vector<Tensor>& inputs) {
  std::map<std::string, std::int64_t> symbols;
  return inputs.size() == graph.inputs.size() && !find_mismatch(graph, inputs, symbols);
}

ProgramInputs check_inputs(const ir::Graph& graph, const std::string& owner, const std::vector<Tensor>& inputs,
                           const std::vector<std::string>& paths, Location where) {
  ProgramInputs checked;
  if (const auto mismatch = find_mismatch(graph, inputs, checked.symbols)) {
    const ir::Value& expected = graph.value(graph.inputs[mismatch->input]);
    const Tensor& got = inputs[mismatch->input];
    UserError error("input " + paths[mismatch->input] + " ('" + expected.name + "') of " + owner + ": expected " +
                    expected.type.to_string() + ", got " + (got.defined() ? got.describe() : "an undefined tensor") +
                    mismatch->why);
    if (is_part_of_batch(expected.type, got))
      error.note("a last batch that is smaller: a DataLoader's drop_last leaves it out; Dim(\"batch\", " +
                 expected.type.shape[0].to_string() + ") in the spec takes every size up to that; " +
                 "with_dynamic_input_shape() compiles a program for each shape");
    error.at(where.file_name(), where.line);
    throw error;
  }
  for (const Tensor& t : inputs) checked.tensors.push_back(contiguous_copy(t));
  return checked;
}

CompiledProgram::CompiledProgram(const ir::Graph& graph, std::string owner, const ir::CompileOptions& options,
                                 const std::vector<Variable>& variables)
    : graph_(graph), owner_(std::move(owner)) {
  try {
    executable_ = ir::compile(graph, options);
  } catch (const std::bad_alloc&) {
    throw UserError("out of memory while " + owner_ + " was compiled");
  }
  for (const Variable& v : variables) bound_.push_back({v, nullptr, 0});
}

CompiledProgram::~CompiledProgram() = default;

void CompiledProgram::bind_variables(Location where) {
  bool changed = false;
  for (Bound& b : bound_) {
    TensorImpl& impl = *b.variable.tensor.impl();
    if (impl.storage != b.storage) {
      const ir::ValueId id = graph_.find(b.variable.name);
      if (id != ir::kNone && (graph_.type(id).dtype != impl.dtype || graph_.type(id).shape != impl.shape))
        fail_at("the parameter " + b.variable.name + " of " + owner_ + " was recorded as " +
                    graph_.type(id).to_string() + ", and is " + b.variable.tensor.describe() + " now",
                where);
      executable_->bind(b.variable.name, impl.data(), static_cast<std::size_t>(impl.numel()) * ir::size_of(impl.dtype));
      b.storage = impl.storage;
      changed = true;
    }
    const std::uint64_t version = impl.storage->version.load(std::memory_order_relaxed);
    changed = changed || version != b.version;
    b.version = version;
  }
  if (changed) executable_->weights_changed();
}

std::vector<Tensor> CompiledProgram::run(const ProgramInputs& inputs, const std::vector<double>& learning_rates,
                                         std::int64_t step, Location where) {
  bind_variables(where);
  std::vector<std::int64_t> symbols;
  for (const ir::Symbol& symbol : graph_.symbols())
    symbols.push_back(inputs.symbols.count(symbol.name) ? inputs.symbols.at(symbol.name) : symbol.most);
  std::vector<Tensor> outputs;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Tensor& t : inputs.tensors) in.push_back(t.impl()->data());
  for (ir::ValueId v : graph_.outputs) {
    Shape shape;
    for (const Dim& d : graph_.type(v).shape) shape.push_back(d.at(inputs.symbols));
    outputs.push_back(make_tensor(graph_.type(v).dtype, shape));
    out.push_back(outputs.back().impl()->data());
  }
  try {
    executable_->run(in, out, symbols, learning_rates, step,
                     static_cast<std::int64_t>(default_generator().initial_seed()));
  } catch (const std::bad_alloc&) {
    throw UserError("out of memory while " + owner_ + " ran");
  }
  for (Bound& b : bound_)
    if (b.variable.written) {
      b.variable.tensor.impl()->bump_version();
      b.version = b.storage->version.load(std::memory_order_relaxed);
    }
  return outputs;
}

}  // namespace graven::detail
