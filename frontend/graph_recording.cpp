// Recording a graph's build(), and what is made of what was recorded.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "frontend/graph_state.h"
#include "frontend/random.h"
#include "ir/analysis.h"
#include "ir/json.h"
#include "ir/ops.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/rank_layout.h"
#include "ir/stages.h"
#include "ir/verify.h"

namespace graven::nn {

namespace {

std::uint64_t next_trace_id() {
  static std::atomic<std::uint64_t> id{0};
  return ++id;
}

/// A result that is a variable is, of the graph, what that holds after the call (ir/graph.h). Where build() has
/// returned what it held before, which the update of a parameter writes over, or which another variable was given, the
/// result is a copy.
void return_what_was_seen(ir::Graph& graph) {
  const std::vector<ir::ValueId> memory = ir::memory_roots(graph);
  const auto changes = [&](ir::ValueId of) {
    return ir::is_changed(graph, of) || (!graph.optimizers.empty() && graph.value(of).kind == ir::ValueKind::parameter);
  };
  ir::ByValue<ir::Phase> phase{ir::Phase::forward};
  for (const ir::Node& n : graph.nodes)
    for (const ir::ValueId v : n.outputs) phase[v] = n.phase;
  for (ir::ValueId& v : graph.outputs)
    if (changes(memory[static_cast<std::size_t>(v)]))
      v = graph.add_node(ir::kCast, {v}, {{"dtype", graph.type(v).dtype}}, {ir::Origin{}}, phase(v)).at(0);
  ir::sort_by_phase(graph);
}

}  // namespace

class GraphRecording {
 public:
  explicit GraphRecording(std::unique_ptr<Trace> t) : trace(std::move(t)), scope(*trace) {}
  std::unique_ptr<Trace> trace;
  TraceScope scope;
  std::vector<std::string> input_paths;
  std::map<const graven::detail::TensorImpl*, long> handles;  ///< of each parameter and buffer, when build() begins
  Stopwatch stopwatch;
  Location where;
};

std::shared_ptr<GraphRecording> GraphBase::begin_recording(Location where) {
  if (graven::detail::active_trace())
    fail_at(state_->name + " is called within build() of " + graven::detail::active_trace()->graph_name, where);
  if (state_->debug_level >= 0)
    std::fputs(fmt::format("{} start building graph.\n", state_->log_name()).c_str(), stderr);
  state_->require_gradients(where);
  (void)state_->parameter_names(where);
  auto trace = std::make_unique<Trace>();
  trace->id = next_trace_id();
  trace->graph_name = state_->class_name;
  trace->graph.name = state_->class_name;
  trace->modules.emplace(state_->root.get(), Trace::Module{});
  state_->walk([&](const std::string& path, const ModuleState& s) {
    trace->modules.emplace(&s, Trace::Module{path, {}});
    trace->graph.modules.push_back({path, s.class_name, s.arguments});
  });
  walk_declarations(*state_->root,
                    [&](const ModuleState& s, Location where) { trace->modules.at(&s).declared = where; });
  for (const auto& [path, t] : state_->variables()) {
    const ir::TensorType type{t->tensor.dtype(), t->tensor.shape()};
    const ir::ValueId value = t->is_buffer ? trace->graph.add_buffer(path, type)
                                           : trace->graph.add_parameter(path, type, t->tensor.requires_grad());
    trace->variables.emplace(t->tensor.impl().get(), Trace::Variable{value, value});
  }
  for (const auto& a : state_->optimizers)
    for (const Tensor& t : a.optimizer.parameters()) trace->learned.insert(t.impl().get());
  auto recording = std::make_shared<GraphRecording>(std::move(trace));
  recording->where = where;
  for (const auto& [path, t] : state_->variables()) {
    t->tensor.impl()->was_let_go.store(false, std::memory_order_relaxed);
    recording->handles.emplace(t->tensor.impl().get(), t->tensor.impl().use_count());
  }
  return recording;
}

namespace {

/// One of so many equal parts of a dimension: of a number, or of a symbol, which then is one of the part.
std::optional<Dim> part_of(const Dim& dim, std::int64_t parts) {
  if (dim.is_static()) {
    if (dim.value() % parts != 0) return std::nullopt;
    return Dim(dim.value() / parts);
  }
  const auto linear = dim.linear();
  if (!linear || !linear->is_symbol() || linear->symbol.most < parts) return std::nullopt;
  return Dim(linear->symbol.name, (linear->symbol.least + parts - 1) / parts, linear->symbol.most / parts);
}

}  // namespace

Tensor GraphBase::add_input(GraphRecording& recording, const Spec& spec, const std::string& path, ir::Tree& tree) {
  const std::size_t index = recording.input_paths.size();
  const auto refuse = [&](const std::string& why, const std::string& note = {}) {
    UserError error("the spec of input " + path + why);
    if (!note.empty()) error.note(note);
    error.at(spec.where.file_name(), spec.where.line);
    throw error;
  };
  for (const Dim& d : spec.shape) {
    for (const ir::Symbol& symbol : d.symbols()) {
      if (symbol.least < 1 || symbol.most < symbol.least)
        refuse(" has the dimension " + d.to_string() + " of the range " + symbol.range() +
               "; a symbol stands for sizes of at least 1, and its maximum is not less than its minimum");
      if (!ir::is_symbol_name(symbol.name))
        refuse(" has the symbol '" + symbol.name +
                   "'; a symbol's name is made of letters, digits and underscores, and " + "begins with no digit",
               "such as Dim(\"batch\", " + std::to_string(symbol.most) + ")");
    }
    if (d.minimum() < 0) refuse(" has the dimension " + d.to_string() + "; dimensions must not be negative");
    if (const auto linear = d.linear(); !d.is_static() && (!linear || linear->coefficient < 1))
      refuse(
          " has the dimension " + d.to_string() + "; what a symbol stands for must follow from it",
          "a symbol, or a multiple of one and a number, 2 * Dim(\"length\", 64) + 1; results may have any expression");
  }
  if (spec.shape.rank() > ir::kMaximumRank)
    refuse(fmt::format(" has {} dimensions; the most are {}", spec.shape.rank(), ir::kMaximumRank));
  if (!graven::detail::has_countable_bytes({spec.dtype, spec.shape}))
    refuse(" is too large: the bytes of " + ir::describe(spec.dtype, spec.shape) + " do not fit in 63 bits");
  const std::string name = spec.name.empty() ? "input_" + std::to_string(index) : spec.name;
  Shape shape = spec.shape;
  if (state_->parts > 1) {
    const std::string steps = std::to_string(state_->parts) + " gradient accumulation steps of " + state_->name;
    const std::string called = " ('" + name + "') is " + ir::describe(spec.dtype, shape);
    if (shape.rank() == 0) refuse(called + ", and has no dimension 0 that the " + steps + " would divide");
    const std::optional<Dim> part = part_of(shape[0], state_->parts);
    if (!part) refuse(called + ": dimension 0 is not divisible by the " + steps);
    shape[0] = *part;
  }
  std::vector<ir::Symbol> known = recording.trace->graph.symbols();
  for (const Dim& d : shape)
    for (const ir::Symbol& symbol : d.symbols()) {
      for (const ir::Symbol& other : known)
        if (symbol.name == other.name && !(symbol == other))
          refuse(fmt::format(": the symbol '{}' has the range {} here, and {} before", symbol.name, symbol.range(),
                             other.range()));
      known.push_back(symbol);
    }
  const ir::ValueId value = recording.trace->graph.add_input(name, {spec.dtype, shape});
  recording.input_paths.push_back(path);
  tree.index = static_cast<std::int32_t>(index);
  return recording.trace->wrap(value);
}

Tensor GraphBase::add_input(GraphRecording& recording, const Tensor& example, const std::string& path, ir::Tree& tree) {
  if (!example.defined()) fail_at("input " + path + " of " + state_->name + " is an undefined tensor", recording.where);
  if (example.is_traced())
    fail_at("input " + path + " of " + state_->name + " ('" + example.impl()->owner + "') was recorded by another " +
                "graph's build()",
            recording.where);
  return add_input(recording, Spec{example.shape(), example.dtype(), {}, recording.where}, path, tree);
}

void GraphBase::add_output(GraphRecording& recording, const Tensor& value, const std::string& path, ir::Tree& tree) {
  if (!value.defined())
    fail_at("build() of " + state_->name + " returns an undefined tensor" + (path.empty() ? "" : " at '" + path + "'"),
            recording.where);
  Trace& trace = *recording.trace;
  const ir::ValueId output = trace.value_of(value, {});
  if (trace.is_of_update(output))
    fail_at("build() of " + state_->name + " returns " + trace.graph.type(output).to_string() +
                (path.empty() ? "" : " at '" + path + "'") +
                ", which is there only behind the update: expected what is computed before it; parameters and buffers "
                "are read from their modules, behind the call",
            recording.where);
  tree.index = static_cast<std::int32_t>(trace.graph.outputs.size());
  trace.graph.outputs.push_back(output);
}

namespace {

/// Parameters that require a gradient, and have one, and that nothing updates.
std::string without_optimizer(const ir::Graph& graph) {
  if (graph.optimizers.empty()) return {};
  std::set<ir::ValueId> updated;
  for (const ir::Optimizer& o : graph.optimizers)
    for (const ir::ParameterGroup& g : o.groups) updated.insert(g.parameters.begin(), g.parameters.end());
  const auto reached = graven::detail::reached_by_losses(graph, 0);
  std::string names;
  for (const ir::ValueId p : graph.parameters)
    if (graph.value(p).trainable && reached.count(p) && !updated.count(p))
      names += (names.empty() ? "" : ", ") + graph.value(p).name;
  return names;
}

/// User error where a member of a module that had a registered tensor was given another one within build(): every step
/// would begin with what is registered, and nothing would change that. Handles of one tensor are alike, so their number
/// tells, and that one of them was assigned to: a local name that is assigned to came, and goes, within build().
void require_handles_kept(const std::vector<std::pair<std::string, const ModuleState::Named*>>& variables,
                          const std::map<const graven::detail::TensorImpl*, long>& before, const std::string& graph,
                          Location where) {
  for (const auto& [path, t] : variables) {
    const std::shared_ptr<graven::detail::TensorImpl>& impl = t->tensor.impl();
    const auto known = before.find(impl.get());
    if (known == before.end() || impl.use_count() >= known->second || !impl->was_let_go.load(std::memory_order_relaxed))
      continue;
    fail_at(fmt::format("{} ({}): the member of the {} '{}' was given another tensor within build() of {}, and what "
                        "is registered would stay as it is in every step. {}",
                        path, impl->owner, t->is_buffer ? "buffer" : "parameter", t->name, graph,
                        t->is_buffer ? fmt::format("Write into its memory: {}.copy_(...)", t->name)
                                     : fmt::format("Give the result a name of its own, or write into the parameter's "
                                                   "memory under NoGradGuard: {}.copy_(...)",
                                                   t->name)),
            where);
  }
}

}  // namespace

void GraphBase::end_recording(GraphRecording& recording, ir::Tree inputs, ir::Tree outputs, std::any result) {
  Trace& trace = *recording.trace;
  require_handles_kept(state_->variables(), recording.handles, state_->name, recording.where);
  trace.finish();
  ir::Graph& graph = trace.graph;
  graph.input_tree = std::move(inputs);
  graph.output_tree = std::move(outputs);
  graph.training = training();
  if (!graph.losses.empty() && state_->optimizers.empty())
    fail_at("build() of " + state_->name +
                " calls backward(), but the graph has no optimizer: call add_optimizer() in its constructor",
            recording.where);
  if (graph.losses.empty() && !state_->optimizers.empty())
    fail_at(state_->name + " has an optimizer, but its build() calls backward() on no loss", recording.where);
  if (state_->optimizers.empty())
    for (const ir::Node& n : graph.nodes)
      if (ir::is_random(n)) {
        UserError error("draws random numbers, and " + state_->name +
                        " has no optimizer: only training programs have a seed and a step");
        error.in(ir::owner_of(n.origins), std::string(n.op->name));
        error.note(n.is(ir::kDropout)
                       ? "call eval() on the module before it is recorded: dropout is the identity then"
                       : "draw them outside and make them an input; where a module draws only in training, call its "
                         "eval() first");
        error.at(n.origins);
        throw error;
      }
  if (state_->update_in_backward && state_->optimizers.empty())
    throw UserError("update_in_backward: " + state_->name + " has no optimizer, so there is no update");
  if (state_->update_in_backward) graph.config[std::string(ir::kUpdateInBackward)] = true;
  if (state_->parts > 1 && state_->optimizers.empty())
    throw UserError("set_gradient_accumulation_steps: " + state_->name +
                    " has no optimizer, so there are no gradients");
  if (state_->parts > 1) graph.config[std::string(ir::kAccumulationSteps)] = state_->parts;
  if (state_->data_parallel && state_->optimizers.empty())
    throw UserError("enable_data_parallel: " + state_->name + " has no optimizer, so there are no gradients");
  if (state_->data_parallel) graph.config[std::string(ir::kDataParallel)] = true;
  if (state_->zero_stage > 0) {
    graph.config[std::string(ir::kZeroStage)] = std::int64_t{state_->zero_stage};
    graph.config[std::string(ir::kShardMinSize)] = state_->shard_min_size;
  }
  if (state_->tensor_ranks > 1) graph.config[std::string(ir::kTensorParallel)] = state_->tensor_ranks;
  for (const auto& [impl, variable] : trace.variables)
    if (impl->layout)
      graph.config[std::string(ir::kLayoutOf) + graph.value(variable.value).name] = impl->layout->to_string();
  walk_modules(state_->root, {}, [&](const std::string& path, const std::shared_ptr<ModuleState>& module) {
    if (module->stage >= 0) graph.config[std::string(ir::kStageOf) + path] = std::int64_t{module->stage};
  });
  if (state_->scaler && state_->optimizers.empty())
    throw UserError("set_grad_scaler: " + state_->name + " has no optimizer, so there are no gradients");
  if (state_->scaler) {
    // A scale that stays neither grows nor shrinks.
    const amp::GradScalerOptions& options = state_->scaler->options;
    const bool stays = state_->scaler->is_static;
    graph.config[std::string(ir::kLossScale)] = options.init_scale;
    graph.config[std::string(ir::kScaleGrowth)] = stays ? 1 : options.growth_factor;
    graph.config[std::string(ir::kScaleBackoff)] = stays ? 1 : options.backoff_factor;
    graph.config[std::string(ir::kScaleInterval)] = options.growth_interval;
  }
  if (state_->amp) graph.config[std::string(ir::kAmp)] = *state_->amp;
  if (state_->memory_budget > 0 && state_->optimizers.empty())
    throw UserError("memory_budget: " + state_->name + " has no optimizer, so nothing is kept for a backward pass");
  state_->configure(graph);
  for (const auto& a : state_->optimizers) {
    ir::Optimizer o;
    o.kind = a.optimizer.kind();
    for (const auto& g : a.optimizer.state()->groups) {
      ir::ParameterGroup group;
      for (const Tensor& t : g.parameters)
        if (const ir::ValueId v = trace.variables.at(t.impl().get()).value; graph.value(v).trainable)
          group.parameters.push_back(v);
      group.options = g.options;
      group.options["lr"] = a.schedule ? g.base_lr : g.options.at("lr");
      o.groups.push_back(std::move(group));
    }
    if (a.schedule) o.schedule = a.schedule->schedule;
    if (a.plateau) o.plateau = a.plateau->recorded();
    graph.optimizers.push_back(std::move(o));
  }
  // Whether what was asked for goes together.
  (void)ir::accumulation_steps(graph);
  (void)ir::scales_losses(graph);
  std::string layouts;
  if (state_->tensor_ranks > 1) {
    ir::Graph split = graph;
    ir::PassOptions passes;
    passes.to = "split_tensors";
    ir::finish_passes(split, passes);
    layouts = ir::describe_layouts(split);
  }
  return_what_was_seen(graph);
  const int level = state_->debug_level;
  if (state_->now.trace) {  // with dynamic input shapes
    state_->others.insert(state_->others.begin(), std::move(state_->now));
    if (state_->others.size() >= static_cast<std::size_t>(state_->dynamic_shapes)) state_->others.pop_back();
  }
  state_->now = {std::move(recording.trace), std::move(result), nullptr};
  for (const auto& a : state_->optimizers) {
    state_->now.loads.push_back(a.optimizer.state()->loads);
    for (const auto& g : a.optimizer.state()->groups)
      for (const Tensor& t : g.parameters) state_->now.learned.emplace_back(t, t.requires_grad());
  }
  const double milliseconds = recording.stopwatch.seconds() * 1e3;
  if (level >= 1) {
    std::fputs(fmt::format("{}\n", state_->text(level - 1)).c_str(), stderr);
    if (level >= 2) std::fputs(layouts.c_str(), stderr);
    if (const std::string names = without_optimizer(graph); !names.empty())
      std::fputs(
          fmt::format("{} in no optimizer, though a loss depends on them: {}.\n", state_->log_name(), names).c_str(),
          stderr);
  }
  if (level >= 0)
    std::fputs(fmt::format("{} end building graph: {} operators, {:.1f} ms.\n", state_->log_name(), graph.nodes.size(),
                           milliseconds)
                   .c_str(),
               stderr);
}

void GraphBase::warn_compiled_twice(Location) const {
  std::fputs(fmt::format("warning: {} is compiled already; compiling it again changes nothing\n", state_->name).c_str(),
             stderr);
}

}  // namespace graven::nn
