#include "graven/saved_graph.h"

#include <map>
#include <optional>
#include <set>
#include <string>

#include "frontend/compiled_program.h"
#include "frontend/dispatch.h"
#include "frontend/module_state.h"
#include "frontend/optim_state.h"
#include "frontend/random.h"
#include "frontend/serialize.h"
#include "frontend/trace.h"
#include "ir/analysis.h"
#include "ir/json.h"
#include "ir/optimizer_kind.h"
#include "ir/passes/passes.h"
#include "runtime_min/error.h"
#include "runtime_min/safetensors.h"

namespace graven::nn {

using graven::detail::CompiledProgram;
using graven::detail::fail_at;

struct SavedGraph::State {
  ir::Graph graph;
  std::vector<CompiledProgram::Variable> variables;  ///< parameters and buffers, then optimizer state
  std::int64_t steps = 0;
  int debug_level = -1, threads = 0;
  std::string tuning;  ///< the file beside the graph; empty: there is none
  std::unique_ptr<CompiledProgram> program;
  std::optional<graven::detail::ProfileRecording> recording = {};  ///< while calls are profiled
};

SavedGraph::SavedGraph(const std::string& directory, Location where) : state_(std::make_shared<State>()) {
  State& s = *state_;
  std::string saved;
  s.graph = graven::detail::located(where, [&] { return ir::read_graph(directory + "/graph.json", &saved); });
  if (std::error_code ignored; std::filesystem::exists(directory + "/tuning.json", ignored))
    s.tuning = directory + "/tuning.json";
  std::vector<LoadTarget> expected;
  for (const ir::Value& v : s.graph.values)
    if (v.kind == ir::ValueKind::parameter || v.kind == ir::ValueKind::buffer) expected.push_back({v.name, v.type});
  // The file's tensors become the graph's: what fits has the size that the graph says, so nothing is allocated for a
  // graph alone.
  StateDict weights;
  try {
    const runtime::SafetensorsFile file(directory + "/weights.safetensors");
    ir::check_saved_together(directory + "/graph.json", saved, file);
    weights = tensors_of(file);
  } catch (const runtime::Error& e) {
    graven::detail::fail_at(e.what(), where);
  }
  check_entries(expected, weights, true, "the weights of " + directory, where);
  const std::map<std::string, Tensor> given(weights.begin(), weights.end());
  for (const LoadTarget& target : expected) {
    const ir::Value& v = s.graph.value(s.graph.find(target.name));
    s.variables.push_back({target.name, given.at(target.name).to(target.type.dtype),
                           (training() && (v.kind == ir::ValueKind::buffer || v.trainable)) ||
                               ir::is_changed(s.graph, s.graph.find(target.name)),
                           false});
  }
  const std::set<std::string> trained = ir::parameters_with_gradients(s.graph);
  for (const ir::Optimizer& optimizer : s.graph.optimizers)
    for (const ir::ParameterGroup& group : optimizer.groups)
      for (const ir::ValueId p : group.parameters)
        for (const ir::OptimizerState& state : ir::optimizer_kind(optimizer.kind).states)
          if (const auto type = ir::state_type(state, group.options, s.graph.type(p));
              type && trained.count(s.graph.value(p).name))
            s.variables.push_back(
                {ir::name_of_state(s.graph.value(p).name, state.name), zeros(type->shape, type->dtype), true, true});
}

const std::string& SavedGraph::name() const { return state_->graph.name; }
const ir::Graph& SavedGraph::graph() const { return state_->graph; }
bool SavedGraph::training() const { return !state_->graph.optimizers.empty(); }
std::int64_t SavedGraph::train_step() const { return state_->steps; }

std::vector<Spec> SavedGraph::inputs() const {
  std::vector<Spec> specs;
  for (const ir::ValueId v : state_->graph.inputs) {
    const ir::Value& value = state_->graph.value(v);
    specs.push_back(spec(value.type.shape, value.type.dtype, value.name));
  }
  return specs;
}

std::vector<std::string> SavedGraph::output_names() const {
  std::vector<std::string> names;
  for (const ir::ValueId v : state_->graph.outputs) names.push_back(state_->graph.value(v).name);
  return names;
}

std::vector<double> SavedGraph::learning_rates() const {
  std::vector<double> rates;
  for (const ir::Optimizer& optimizer : state_->graph.optimizers)
    for (const ir::ParameterGroup& group : optimizer.groups)
      rates.push_back(lr_scheduler::scheduled_rate(optimizer.schedule, group.options.at("lr"), state_->steps));
  return rates;
}

std::vector<Tensor> SavedGraph::operator()(const std::vector<Tensor>& inputs, Location where) {
  State& s = *state_;
  if (graven::detail::active_trace())
    fail_at(name() + ", read from a file, is called within build() of " + graven::detail::active_trace()->graph_name +
                ": a graph is no part of another",
            where);
  if (inputs.size() != s.graph.inputs.size())
    fail_at(
        name() + " takes " + std::to_string(s.graph.inputs.size()) + " inputs, got " + std::to_string(inputs.size()),
        where);
  std::vector<std::string> indices;
  for (std::size_t i = 0; i < inputs.size(); ++i) indices.push_back(std::to_string(i));
  const graven::detail::ProgramInputs checked =
      graven::detail::check_inputs(s.graph, name(), inputs, indices, 1, where);
  if (s.program && !s.program->runs_where(checked)) s.program.reset();  // its tensors were moved
  if (!s.program)
    s.program = std::make_unique<CompiledProgram>(
        s.graph, name(),
        ir::CompileOptions{.device = CompiledProgram::device_of(name(), s.variables, checked, indices, where),
                           .threads = s.threads,
                           .tuning = s.tuning,
                           .debug_level = s.debug_level,
                           .log_name = "(GRAPH:" + name() + ")"},
        s.variables);
  std::vector<Tensor> outputs = s.program->run(checked, learning_rates(), training() ? s.steps + 1 : 0, where,
                                               s.recording ? &*s.recording : nullptr);
  if (training()) ++s.steps;
  return outputs;
}

Profile SavedGraph::profile(const std::vector<Tensor>& inputs, const ProfileOptions& options, Location where) {
  return graven::detail::profile_calls(state_->recording, name(), options, [&] { (*this)(inputs, where); }, where);
}

void SavedGraph::to(const Device& device, Location where) {
  graven::detail::located(where, [&] {
    ir::require_device(device);
    for (const CompiledProgram::Variable& v : state_->variables) graven::detail::move_to(*v.tensor.impl(), device);
  });
}

StateDict SavedGraph::state_dict() const {
  StateDict result;
  for (const CompiledProgram::Variable& v : state_->variables) result.emplace_back(v.name, v.tensor);
  if (!training()) return result;
  result.emplace_back(std::string(kSeedEntry), tensor(graven::detail::default_generator().signed_seed(), DType::i64));
  const std::vector<double> rates = learning_rates();
  std::size_t index = 0;
  for (const ir::Optimizer& optimizer : state_->graph.optimizers)
    for (const ir::ParameterGroup& group : optimizer.groups) {
      result.emplace_back(rate_entry("lr", index), tensor(rates[index], DType::f64));
      result.emplace_back(rate_entry("initial_lr", index), tensor(group.options.at("lr"), DType::f64));
      ++index;
    }
  result.emplace_back("train_step", tensor(state_->steps, DType::i64));
  return result;
}

LoadReport SavedGraph::load_state_dict(const StateDict& state, bool strict, Location where) {
  StateDict targets = state_dict();
  const std::string what = "load_state_dict of " + name();
  if (!training()) return load_tensors(targets, state, strict, what, where);
  check_train_step(state, what, where);
  // Of the seed and the rates files of emitted programs say nothing: they stay as they are then.
  std::set<std::string> given, optional{std::string(kSeedEntry)};
  for (const auto& entry : state) given.insert(entry.first);
  std::size_t index = 0;
  for (const ir::Optimizer& optimizer : state_->graph.optimizers)
    for (std::size_t g = 0; g < optimizer.groups.size(); ++g, ++index)
      for (const char* rate : {"lr", "initial_lr"}) {
        const std::string entry = *optional.insert(rate_entry(rate, index)).first;
        if (const std::optional<double> number = number_in(state, entry))
          graven::detail::located(where, [&] { ir::check_options(optimizer.kind, {{rate, *number}}); });
      }
  std::erase_if(targets, [&](const auto& entry) { return optional.count(entry.first) && !given.count(entry.first); });
  const LoadReport report = load_tensors(targets, state, strict, what, where);
  state_->steps = targets.back().second.item<std::int64_t>();
  index = 0;
  for (ir::Optimizer& optimizer : state_->graph.optimizers)
    for (ir::ParameterGroup& group : optimizer.groups) {
      // A schedule makes the rate of what it starts from.
      const char* rate = optimizer.schedule.kind.empty() ? "lr" : "initial_lr";
      group.options["lr"] = number_in(targets, rate_entry(rate, index++)).value_or(group.options.at("lr"));
    }
  for (const auto& [entry, t] : targets)
    if (entry == kSeedEntry && t.item<std::int64_t>() != graven::detail::default_generator().signed_seed())
      manual_seed(static_cast<std::uint64_t>(t.item<std::int64_t>()));
  return report;
}

void SavedGraph::debug(int v_level) {
  if (v_level < -1 || v_level > 3)
    throw UserError("debug: the level must lie in [-1, 3], got " + std::to_string(v_level));
  state_->debug_level = v_level;
}

void SavedGraph::set_threads(int threads) {
  if (threads < 0) throw UserError("set_threads: the number must not be negative, got " + std::to_string(threads));
  if (state_->program) throw UserError("set_threads: the program of " + name() + " is running already");
  state_->threads = threads;
}

}  // namespace graven::nn
