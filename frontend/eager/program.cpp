#include "frontend/eager/program.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <unordered_map>

#include <fmt/format.h>

#include "frontend/eager/executor.h"
#include "frontend/eager/table.h"
#include "ir/analysis.h"
#include "ir/executable.h"
#include "ir/ops.h"
#include "ir/optimizer_kind.h"

namespace graven::eager {

namespace {

using ir::kNone;
using ir::ValueId;

void append(std::string& key, const ir::Attribute& a) {
  key += static_cast<char>('A' + static_cast<int>(a.index()));
  std::visit(
      [&](const auto& v) {
        using T = std::remove_cvref_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::int64_t>) {
          key += std::to_string(v);
        } else if constexpr (std::is_same_v<T, double>) {
          char bits[sizeof v];
          __builtin_memcpy(bits, &v, sizeof v);
          key.append(bits, sizeof bits);
        } else if constexpr (std::is_same_v<T, std::string>) {
          key.append(std::to_string(v.size())).append(":").append(v);
        } else if constexpr (std::is_same_v<T, ir::Ints>) {
          for (std::int64_t i : v) key.append(std::to_string(i)).append(",");
        } else if constexpr (std::is_same_v<T, ir::DType>) {
          key += ir::name(v);
        } else if constexpr (std::is_same_v<T, ir::Shape>) {
          key += v.to_string();
        } else {
          GRAVEN_CHECK(v.empty(), "a fused program has no eager signature");
        }
      },
      a);
}

/// The device of one of them, or the host where all are there.
ir::Device device_of(const std::vector<Tensor>& tensors) {
  for (const Tensor& t : tensors)
    if (t.defined() && !t.impl()->storage->device.is_cpu()) return t.impl()->storage->device;
  return {};
}

class OnHost : public Runner {
 public:
  explicit OnHost(ir::Graph graph) : executor_(lowered(std::move(graph))) {}
  void run(std::span<const void* const> inputs, std::span<void* const> outputs, Location) const override {
    executor_.run(inputs, outputs);
  }

 private:
  static ir::Graph lowered(ir::Graph graph) {
    lower_for_eager(graph);
    return graph;
  }
  Executor executor_;
};

class OnDevice : public Runner {
 public:
  OnDevice(const ir::Graph& graph, const ir::Device& device)
      : executable_(ir::compile(graph, {.device = device, .one_operator = true})) {}
  void run(std::span<const void* const> inputs, std::span<void* const> outputs, Location where) const override {
    const std::lock_guard lock(mutex_);
    ir::StepNumbers numbers;
    if (where.line != 0) numbers.where = fmt::format("{}:{}", where.file_name(), where.line);
    executable_->run({inputs.begin(), inputs.end()}, {outputs.begin(), outputs.end()}, {}, numbers);
  }

 private:
  mutable std::mutex mutex_;
  std::unique_ptr<ir::Executable> executable_;
};

/// An optimizer's update on a device: a training graph that is nothing else. What it updates lies where the caller has
/// it; rate and step are numbers of the host.
class UpdateOnDevice {
 public:
  struct Variable {
    std::size_t input;
    std::string name;
  };

  UpdateOnDevice(const ir::OpDef& op, const std::vector<Tensor>& inputs, const ir::Attributes& attributes,
                 const ir::Device& device) {
    ir::Graph graph;
    graph.name = "eager";
    graph.training = true;
    const ir::OptimizerKind& kind = kind_of(op, attributes);
    ir::Optimizer optimizer{.kind = std::string(kind.name), .groups = {{{}, {{"lr", 1}}}}, .schedule = {}};
    for (const auto& [name, value] : attributes)
      if (!is_fixed(kind, name))
        optimizer.groups[0].options[name] =
            std::holds_alternative<bool>(value) ? static_cast<double>(std::get<bool>(value)) : std::get<double>(value);
    // Each parameter is what a loss is made of whose gradient comes in.
    std::vector<ValueId> gradients;
    for (std::size_t s = 0; s < op.inputs.size(); ++s) {
      const ir::InputSpec& spec = op.inputs[s];
      const ir::InputRange range = ir::input_range(op, inputs.size(), s);
      const ir::OptimizerState* const state = ir::state_of(kind, spec.name);
      if (spec.role == ir::InputRole::rate) rate_ = range.begin;
      if (spec.role == ir::InputRole::step) step_ = range.begin;
      if (!spec.variadic) continue;
      for (std::size_t i = 0; i < range.count; ++i) {
        const std::size_t at = range.begin + i;
        if (!inputs[at].defined()) continue;
        const std::string parameter = "parameter_" + std::to_string(i);
        const ir::TensorType type{inputs[at].dtype(), inputs[at].shape()};
        if (state != nullptr) {
          variables_.push_back({at, ir::name_of_state(parameter, state->name)});
        } else if (spec.role == ir::InputRole::parameter) {
          optimizer.groups[0].parameters.push_back(graph.add_parameter(parameter, type, true));
          variables_.push_back({at, parameter});
        } else {
          gradients.push_back(graph.add_input("gradient_" + std::to_string(i), type));
          gradients_.push_back(at);
        }
      }
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const ValueId of = optimizer.groups[0].parameters[i];
      graph.losses.push_back(
          {graph.add_node(ir::kReshape, {of}, {{"shape", graph.type(of).shape}}, {}).at(0), gradients[i]});
    }
    graph.optimizers.push_back(std::move(optimizer));
    executable_ = ir::compile(graph, {.device = device, .one_operator = true});
  }

  /// `inputs` as the operator has them, row-major on the device where they are tensors of it.
  void run(const std::vector<Tensor>& inputs) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [input, name] : variables_) {
      const detail::TensorImpl& t = *inputs[input].impl();
      executable_->bind(name, t.place(), static_cast<std::size_t>(t.numel()) * ir::size_of(t.dtype));
    }
    std::vector<const void*> gradients;
    for (const std::size_t i : gradients_) gradients.push_back(inputs[i].impl()->place());
    executable_->run(gradients, {}, {},
                     {.learning_rates = {inputs[rate_].item<double>()}, .step = inputs[step_].item<std::int64_t>()});
  }

  /// What is updated.
  const std::vector<Variable>& variables() const { return variables_; }

 private:
  static bool is_fixed(const ir::OptimizerKind& kind, std::string_view attribute) {
    return std::any_of(kind.fixed.begin(), kind.fixed.end(), [&](const auto& f) { return f.first == attribute; });
  }
  static const ir::OptimizerKind& kind_of(const ir::OpDef& op, const ir::Attributes& attributes) {
    for (const ir::OptimizerKind& kind : ir::optimizer_kinds())
      if (&ir::get_op(kind.op) == &op && std::all_of(kind.fixed.begin(), kind.fixed.end(), [&](const auto& f) {
            return attributes.flag(f.first) == f.second;
          }))
        return kind;
    GRAVEN_CHECK(false, "no optimizer updates by " + std::string(op.name));
    return ir::optimizer_kinds().front();
  }

  mutable std::mutex mutex_;
  std::vector<Variable> variables_;
  std::vector<std::size_t> gradients_;
  std::size_t rate_ = 0, step_ = 0;
  std::unique_ptr<ir::Executable> executable_;
};

std::shared_ptr<const Runner> make_runner(ir::Graph graph, const ir::Device& device) {
  if (device.is_cpu()) return std::make_shared<const OnHost>(std::move(graph));
  if (ir::allows_tf32()) graph.config[std::string(ir::kAllowTf32)] = true;
  return std::make_shared<const OnDevice>(graph, device);
}

/// What tells two calls apart that need different programs.
std::string signature(const ir::OpDef& op, const std::vector<Tensor>& inputs, const ir::Attributes& attributes,
                      const ir::Device& device) {
  std::string key(op.name);
  if (!device.is_cpu()) key += "@" + device.to_string() + (ir::allows_tf32() ? " tf32" : "");
  for (const auto& [name, value] : attributes) {
    key.append("|").append(name).append("=");
    append(key, value);
  }
  for (const Tensor& t : inputs) {
    key += ';';
    if (!t.defined()) continue;
    key += ir::name(t.dtype());
    for (std::int64_t s : t.impl()->sizes) key.append(",").append(std::to_string(s));
  }
  return key;
}

/// Programs by signature. Bounded: a program with ever new shapes starts over rather than growing without end. Made
/// for good: at the end of the process a device may be gone before what runs there.
template <class T>
class Cache {
 public:
  template <class Make>
  std::shared_ptr<const T> get(const std::string& key, Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto it = entries_.find(key); it != entries_.end()) return it->second;
    }
    std::shared_ptr<const T> made = make();
    const std::lock_guard lock(mutex_);
    constexpr std::size_t kMost = 10000;
    if (entries_.size() >= kMost) entries_.clear();
    return entries_.emplace(key, std::move(made)).first->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const T>> entries_;
};

struct OperatorProgram {
  std::shared_ptr<const Runner> runner;
  std::vector<ir::TensorType> results;
  std::vector<std::size_t> given;    ///< inputs that are present
  std::vector<std::size_t> updated;  ///< of them, those whose new values are the last results
};

std::shared_ptr<const OperatorProgram> make_program(const ir::OpDef& op, const std::vector<Tensor>& inputs,
                                                    const ir::Attributes& attributes, const ir::Device& device) {
  auto program = std::make_shared<OperatorProgram>();
  ir::Graph graph;
  graph.name = "eager";
  std::vector<ValueId> ids;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) {
      ids.push_back(kNone);
      continue;
    }
    program->given.push_back(i);
    ids.push_back(graph.add_input("input_" + std::to_string(i), {inputs[i].dtype(), inputs[i].shape()}));
  }
  // Optional inputs at the end may be left out.
  while (!ids.empty() && ids.back() == kNone) ids.pop_back();
  graph.outputs = graph.add_node(op, ids, attributes, {});
  for (ValueId v : graph.outputs) program->results.push_back(graph.type(v));
  program->updated = ir::donated_inputs(op, graph.nodes.back().inputs);
  program->runner = make_runner(std::move(graph), device);
  return program;
}

std::vector<Tensor> run_program(const Runner& runner, const ir::Device& device,
                                const std::vector<ir::TensorType>& results, const std::vector<Tensor>& rows,
                                const std::vector<Tensor>& updated, Location where) {
  std::vector<const void*> in;
  for (const Tensor& t : rows) in.push_back(t.impl()->place());
  std::vector<Tensor> outputs;
  std::vector<void*> out;
  const std::size_t made = results.size() - updated.size();
  for (std::size_t i = 0; i < made; ++i) {
    outputs.push_back(detail::make_tensor(results[i].dtype, results[i].shape, device));
    out.push_back(outputs.back().impl()->place());
  }
  for (const Tensor& t : updated) out.push_back(t.impl()->place());
  runner.run(in, out, where);
  return outputs;
}

/// What was changed in `row`, the tensor itself or its row-major copy.
void write_back(const Tensor& row, const Tensor& tensor) {
  if (row.impl() != tensor.impl()) detail::copy_elements(*row.impl(), *tensor.impl());
  tensor.impl()->bump_version();
}

void run_update_on_device(const ir::OpDef& op, const std::vector<Tensor>& inputs, const ir::Attributes& attributes,
                          const ir::Device& device) {
  static auto* const cache = new Cache<UpdateOnDevice>;
  const auto update = cache->get(signature(op, inputs, attributes, device), [&] {
    return std::make_shared<const UpdateOnDevice>(op, inputs, attributes, device);
  });
  std::vector<Tensor> rows;
  for (const Tensor& t : inputs)
    rows.push_back(t.defined() && !t.impl()->storage->device.is_cpu() ? detail::contiguous_on(t, device) : t);
  update->run(rows);
  for (const UpdateOnDevice::Variable& v : update->variables()) write_back(rows[v.input], inputs[v.input]);
}

}  // namespace

std::vector<Tensor> run(const ir::OpDef& op, const std::vector<Tensor>& inputs, const ir::Attributes& attributes,
                        Location where) {
  static auto* const cache = new Cache<OperatorProgram>;
  const ir::Device device = device_of(inputs);
  if (!device.is_cpu() && ir::input_of(op, ir::InputRole::rate) < op.inputs.size()) {
    run_update_on_device(op, inputs, attributes, device);
    return {};
  }
  const auto program = cache->get(signature(op, inputs, attributes, device),
                                  [&] { return make_program(op, inputs, attributes, device); });
  std::vector<Tensor> rows, updated;
  for (const std::size_t i : program->given) {
    rows.push_back(detail::contiguous_on(inputs[i], device));
    if (std::count(program->updated.begin(), program->updated.end(), i) != 0) updated.push_back(rows.back());
  }
  const std::vector<Tensor> outputs = run_program(*program->runner, device, program->results, rows, updated, where);
  for (std::size_t k = 0; k < updated.size(); ++k) write_back(updated[k], inputs[program->updated[k]]);
  return outputs;
}

std::shared_ptr<const GradientProgram> gradient_of(const ir::OpDef& op, const std::vector<Tensor>& inputs,
                                                   const ir::Attributes& attributes, const std::vector<bool>& needed) {
  static auto* const cache = new Cache<GradientProgram>;
  const ir::Device device = device_of(inputs);
  std::string key = signature(op, inputs, attributes, device) + "/";
  for (bool b : needed) key += b ? '1' : '0';
  return cache->get(key, [&]() -> std::shared_ptr<const GradientProgram> {
    ir::Graph graph;
    graph.name = "eager_gradient";
    ir::Node node{&op, attributes, {}, {}, ir::Phase::forward, {}};
    std::vector<std::optional<ir::TensorType>> types;
    for (const Tensor& t : inputs)
      types.push_back(t.defined() ? std::optional(ir::TensorType{t.dtype(), t.shape()}) : std::nullopt);
    const std::vector<ir::TensorType> results = ir::infer(op, types, node.attributes);  // fills in the defaults
    std::vector<ValueId> output_gradients(results.size(), kNone), remaining;
    for (std::size_t i = 0; i < op.gradient_outputs; ++i) {
      output_gradients.at(i) = graph.add_input("dy_" + std::to_string(i), results[i]);
      remaining.push_back(output_gradients[i]);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i)
      node.inputs.push_back(types[i] ? graph.add_input("input_" + std::to_string(i), *types[i]) : kNone);
    for (std::size_t i = 0; i < results.size(); ++i)
      node.outputs.push_back(graph.add_input("output_" + std::to_string(i), results[i]));
    ir::GradientBuilder builder(graph, node, output_gradients, needed);
    op.gradient(builder);
    auto program = std::make_shared<GradientProgram>();
    program->device = device;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const ValueId v = builder.gradients()[i];
      if (!needed[i] || v == kNone) continue;
      if (graph.type(v) != graph.type(node.inputs[i]))
        GRAVEN_CHECK(false, "the gradient of " + std::string(op.name) + " is " + graph.type(v).to_string() + " where " +
                                graph.type(node.inputs[i]).to_string() + " is due");
      program->wanted.push_back(static_cast<std::int32_t>(i));
      program->results.push_back(graph.type(v));
      graph.outputs.push_back(v);
    }
    if (graph.outputs.empty()) return nullptr;
    // Nodes that nothing needs (the rule may build more than is asked for), then what remains of the inputs is what
    // must be saved.
    ir::ByValue<bool> used;
    for (ValueId v : graph.outputs) used[v] = true;
    std::vector<ir::Node> kept;
    for (std::size_t k = graph.nodes.size(); k-- > 0;) {
      ir::Node& n = graph.nodes[k];
      if (std::none_of(n.outputs.begin(), n.outputs.end(), std::cref(used))) continue;
      for (ValueId v : n.inputs)
        if (v != kNone) used[v] = true;
      n.phase = ir::Phase::forward;  // of this graph
      kept.push_back(std::move(n));
    }
    graph.nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (used(node.inputs[i])) {
        program->saved_inputs.push_back(static_cast<std::int32_t>(i));
        remaining.push_back(node.inputs[i]);
      }
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (used(node.outputs[i])) {
        program->saved_outputs.push_back(static_cast<std::int32_t>(i));
        remaining.push_back(node.outputs[i]);
      }
    graph.inputs = remaining;
    graph.compact();
    program->runner = make_runner(std::move(graph), device);
    return program;
  });
}

std::vector<Tensor> run(const GradientProgram& program, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> rows;
  for (const Tensor& t : inputs) rows.push_back(detail::contiguous_on(t, program.device));
  return run_program(*program.runner, program.device, program.results, rows, {}, {});
}

}  // namespace graven::eager
