// Graphs but for their recording and printing: options, optimizers, running, state.
#include "graven/graph.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "frontend/graph_state.h"
#include "frontend/random.h"
#include "frontend/serialize.h"
#include "ir/json.h"
#include "ir/schedule.h"
#include "ir/stages.h"
#include "runtime_min/ranks.h"

namespace graven::nn {

namespace {

/// How many graphs of each class there were: the number in a graph's name.
int next_number(const std::string& class_name) {
  static std::mutex mutex;
  static std::map<std::string, int> counts;
  const std::lock_guard lock(mutex);
  return counts[class_name]++;
}

/// What a part of the inputs is: "a tensor", "nothing", "a list of 3".
std::string describe_tree(const ir::Tree& tree) {
  switch (tree.kind) {
    case ir::Tree::Kind::leaf:
      return "a tensor";
    case ir::Tree::Kind::none:
      return "nothing";
    case ir::Tree::Kind::tuple:
      return "a tuple of " + std::to_string(tree.children.size());
    case ir::Tree::Kind::list:
      return "a list of " + std::to_string(tree.children.size());
    case ir::Tree::Kind::map: {
      std::string keys;
      for (const std::string& key : tree.keys) keys += (keys.empty() ? "" : ", ") + key;
      return "a map of " + (keys.empty() ? "nothing" : keys);
    }
  }
  return {};
}

/// "input 1[2]: expected a tensor, got nothing": the first place where the two differ. Empty where they do not, but for
/// the tensors' numbers.
std::string tree_difference(const ir::Tree& expected, const ir::Tree& got, const std::string& path) {
  if (expected.kind != got.kind || expected.children.size() != got.children.size() || expected.keys != got.keys)
    return (path.empty() ? "inputs" : "input " + path) + ": expected " + describe_tree(expected) + ", got " +
           describe_tree(got);
  for (std::size_t i = 0; i < expected.children.size(); ++i) {
    const std::string own = expected.kind == ir::Tree::Kind::map    ? path + "[\"" + expected.keys[i] + "\"]"
                            : expected.kind == ir::Tree::Kind::list ? path + "[" + std::to_string(i) + "]"
                            : path.empty()                          ? std::to_string(i)
                                                                    : path + "." + std::to_string(i);
    if (std::string text = tree_difference(expected.children[i], got.children[i], own); !text.empty()) return text;
  }
  return {};
}

}  // namespace

GraphBase::GraphBase(std::string class_name) : state_(std::make_unique<GraphState>()) {
  state_->name = class_name + "_" + std::to_string(next_number(class_name));
  state_->class_name = std::move(class_name);
  state_->root->class_name = state_->class_name;
}
GraphBase::~GraphBase() = default;

const std::string& GraphBase::name() const { return state_->name; }
const std::string& GraphBase::class_name() const { return state_->class_name; }
bool GraphBase::is_compiled() const { return state_->now.trace != nullptr; }
bool GraphBase::training() const { return !state_->optimizers.empty(); }
std::int64_t GraphBase::train_step() const { return state_->steps_done(); }
const std::any& GraphBase::recorded_result() const { return state_->now.result; }
void GraphBase::debug(int v_level) {
  if (v_level < -1 || v_level > 3)
    throw UserError("debug: the level must lie in [-1, 3], got " + std::to_string(v_level));
  state_->debug_level = v_level;
}
void GraphBase::set_threads(int threads) {
  if (threads < 0) throw UserError("set_threads: the number must not be negative, got " + std::to_string(threads));
  if (state_->now.program) throw UserError("set_threads: the program of " + state_->name + " is running already");
  state_->threads = threads;
}

void GraphBase::update_in_backward(bool on, Location where) {
  state_->require_not_recorded("update_in_backward", where);
  state_->update_in_backward = on;
}

void GraphBase::set_gradient_accumulation_steps(std::int64_t steps, Location where) {
  state_->require_not_recorded("set_gradient_accumulation_steps", where);
  if (steps < 1)
    fail_at("set_gradient_accumulation_steps: the number of parts must be positive, got " + std::to_string(steps),
            where);
  state_->parts = steps;
}

void GraphBase::enable_data_parallel(bool on, Location where) {
  state_->require_not_recorded("enable_data_parallel", where);
  state_->data_parallel = on;
}

void GraphBase::enable_zero(int stage, std::int64_t shard_min_size, Location where) {
  state_->require_not_recorded("enable_zero", where);
  if (stage < 1 || stage > 3)
    fail_at("enable_zero: expected stage 1 (states of optimizers), 2 (and gradients) or 3 (and parameters), got " +
                std::to_string(stage),
            where);
  if (shard_min_size < 2)
    fail_at("enable_zero: expected a shard_min_size of at least 2, got " + std::to_string(shard_min_size), where);
  state_->data_parallel = true;
  state_->zero_stage = stage;
  state_->shard_min_size = shard_min_size;
}

void GraphBase::enable_tensor_parallel(std::int64_t ranks, Location where) {
  state_->require_not_recorded("enable_tensor_parallel", where);
  if (ranks < 1 || ranks > 65536)
    fail_at("enable_tensor_parallel: expected a number of ranks from 1 to 65536, got " + std::to_string(ranks), where);
  state_->tensor_ranks = ranks;
}

void GraphBase::set_grad_scaler(const amp::GradScaler& scaler, Location where) {
  state_->require_not_recorded("set_grad_scaler", where);
  state_->scaler = scaler.is_enabled() ? scaler.state() : nullptr;
}

void GraphBase::enable_amp(DType dtype, bool on, Location where) {
  state_->require_not_recorded("enable_amp", where);
  if (dtype != DType::f16 && dtype != DType::bf16)
    fail_at("enable_amp: expected f16 or bf16, got " + std::string(ir::name(dtype)), where);
  state_->amp = on ? std::optional(dtype) : std::nullopt;
}

void GraphBase::memory_budget(std::int64_t bytes, Location where) {
  state_->require_not_recorded("memory_budget", where);
  if (bytes < 0) fail_at(fmt::format("memory_budget: bytes must not be negative, got {}", bytes), where);
  state_->memory_budget = bytes;
}
void GraphBase::enable_straighten_algorithm(Straighten mode, Location where) {
  state_->require_not_recorded("enable_straighten_algorithm", where);
  state_->straighten = mode;
}
void GraphBase::enable_compress_memory(bool on, Location where) {
  state_->require_not_recorded("enable_compress_memory", where);
  state_->compress_memory = on;
}
void GraphBase::set_outputs_buffer_size(int size, Location where) {
  state_->require_not_recorded("set_outputs_buffer_size", where);
  if (size < 0) fail_at(fmt::format("set_outputs_buffer_size: the size must not be negative, got {}", size), where);
  state_->outputs_buffer_size = size;
}
void GraphBase::allow_fuse_model_update_ops(bool on, Location where) {
  state_->require_not_recorded("allow_fuse_model_update_ops", where);
  state_->fuses_model_update = on;
}
void GraphBase::allow_fuse_add_to_output(bool on, Location where) {
  state_->require_not_recorded("allow_fuse_add_to_output", where);
  state_->fuses_add_to_output = on;
}
void GraphBase::allow_fuse_cast_scale(bool on, Location where) {
  state_->require_not_recorded("allow_fuse_cast_scale", where);
  state_->fuses_cast_scale = on;
}
void GraphBase::allow_tf32(bool on, Location where) {
  state_->require_not_recorded("allow_tf32", where);
  state_->tf32 = on;
}

void GraphBase::set_tuning(const std::string& file, Location where) {
  if (state_->now.program)
    graven::detail::fail_at("set_tuning: the program of " + state_->name + " is running already", where);
  state_->tuning = file;
}
const std::string& GraphBase::tuning() const { return state_->tuning; }

void GraphBase::enable_cudnn_conv_heuristic_search_algo(bool on, Location where) {
  state_->require_not_recorded("enable_cudnn_conv_heuristic_search_algo", where);
  state_->convolutions_by_heuristic = on;
}

void GraphBase::with_dynamic_input_shape(int size, Location where) {
  state_->require_not_recorded("with_dynamic_input_shape", where);
  if (size < 1)
    fail_at(
        "with_dynamic_input_shape: the number of programs that are kept must be positive, got " + std::to_string(size),
        where);
  state_->dynamic_shapes = size;
}

bool GraphBase::is_ready(const std::vector<Tensor>& inputs, const ir::Tree& tree) {
  GraphState& s = *state_;
  // Within another graph's build() nothing is recorded, and nothing is run: run() says so.
  if (s.dynamic_shapes == 0 || graven::detail::active_trace()) return s.now.trace != nullptr;
  const auto fits = [&](const GraphState::Recorded& r) {
    return r.trace && tree == r.trace->graph.input_tree && graven::detail::inputs_fit(r.trace->graph, inputs, s.parts);
  };
  if (fits(s.now)) return true;
  const auto found = std::find_if(s.others.begin(), s.others.end(), fits);
  if (found == s.others.end()) return false;
  std::rotate(s.others.begin(), found, found + 1);
  std::swap(s.now, s.others.front());
  return true;
}

const ir::Graph& GraphBase::graph() const {
  if (!state_->now.trace) throw UserError(state_->name + " has not been recorded yet: compile() it, or call it once");
  return state_->now.trace->graph;
}

void GraphBase::register_child(Name name, const ModuleBase& module) {
  if (is_compiled())
    fail_at("the child '" + std::string(name.text()) + "' comes too late: " + state_->name + " has been recorded",
            name.where());
  check_name(*state_->root, name, "child");
  module.state()->registered = true;
  state_->root->children.push_back({std::string(name.text()), module.state(), name.where()});
}

// ---- optimizers -----------------------------------------------------------------------------------------------------

void GraphBase::add_optimizer(const optim::Optimizer& optimizer, Location where) {
  if (is_compiled()) fail_at("the optimizer comes too late: " + state_->name + " has been recorded", where);
  std::map<const graven::detail::TensorImpl*, std::string> names;
  for (const auto& [path, t] : state_->variables())
    if (!t->is_buffer) names.emplace(t->tensor.impl().get(), path);
  std::set<const graven::detail::TensorImpl*> taken;
  for (const auto& a : state_->optimizers)
    for (const Tensor& t : a.optimizer.parameters()) taken.insert(t.impl().get());
  for (const Tensor& t : optimizer.parameters()) {
    const auto it = names.find(t.impl().get());
    if (it == names.end())
      fail_at("add_optimizer: the optimizer " + optimizer.kind() + " has a parameter " + t.describe() +
                  (t.impl()->owner.empty() ? "" : " (" + t.impl()->owner + ")") + " that is not in the graph " +
                  state_->name,
              where);
    if (taken.count(t.impl().get()))
      fail_at("add_optimizer: the parameter " + it->second + " belongs to another optimizer of " + state_->name, where);
  }
  state_->optimizers.push_back({optimizer, nullptr});
}

void GraphBase::add_optimizer(const optim::Optimizer& optimizer, const lr_scheduler::LRScheduler& scheduler,
                              Location where) {
  if (scheduler.state()->optimizer != optimizer.state())
    fail_at("add_optimizer: the schedule belongs to another optimizer", where);
  add_optimizer(optimizer, where);
  state_->optimizers.back().schedule = scheduler.state();
}

void GraphBase::add_optimizer(const optim::Optimizer& optimizer, const lr_scheduler::ReduceLROnPlateau& plateau,
                              Location where) {
  if (plateau.state()->optimizer != optimizer.state())
    fail_at("add_optimizer: the ReduceLROnPlateau belongs to another optimizer", where);
  add_optimizer(optimizer, where);
  state_->optimizers.back().plateau = plateau.state();
}

void GraphBase::add_optimizer(const optim::Optimizer& optimizer, const lr_scheduler::LRScheduler& scheduler,
                              const lr_scheduler::ReduceLROnPlateau& plateau, Location where) {
  if (plateau.state()->optimizer != optimizer.state())
    fail_at("add_optimizer: the ReduceLROnPlateau belongs to another optimizer", where);
  if (const char* name = ir::sets_rates_anew(scheduler.state()->schedule))
    fail_at(fmt::format("add_optimizer: {} sets the rate of each step anew, and a reduction of ReduceLROnPlateau would "
                        "be gone with the next one; have one of the two",
                        name),
            where);
  add_optimizer(optimizer, scheduler, where);
  state_->optimizers.back().plateau = plateau.state();
}

StateDict GraphBase::gradients(Location where) const {
  const GraphState& s = *state_;
  if (s.optimizers.empty()) fail_at("gradients: " + s.name + " has no optimizer, so there are no gradients", where);
  if (s.update_in_backward)
    fail_at("gradients: of " + s.name + " with update_in_backward() no gradient outlives the backward pass", where);
  if (s.scaler)
    fail_at("gradients: those of " + s.name + " are scaled, by what the step changes: it has a GradScaler", where);
  if (!s.now.program || s.steps == 0)
    fail_at("gradients: " + s.name + " has made no step of which there would be gradients", where);
  return s.now.program->gradients();
}

double GraphBase::gradient_norm(double norm_type, Location where) const {
  if (!(norm_type > 0)) fail_at(fmt::format("gradient_norm: norm_type must be positive, got {}", norm_type), where);
  std::vector<Tensor> all;
  for (const auto& entry : gradients(where)) all.push_back(entry.second);
  return graven::detail::norm_of(all, norm_type);
}

std::vector<double> GraphBase::learning_rates() const {
  std::vector<double> rates;
  for (const auto& a : state_->optimizers) {
    // Those that its schedule gave it, unless somebody has set others for the next step.
    const std::vector<double> own = a.optimizer.learning_rates();
    rates.insert(rates.end(), own.begin(), own.end());
  }
  return rates;
}

// ---- running --------------------------------------------------------------------------------------------------------

std::vector<Tensor> GraphBase::run_program(const std::vector<Tensor>& inputs, const std::vector<std::string>& paths,
                                           const ir::Tree& tree, Location where) {
  GraphState& s = *state_;
  const ir::Graph& graph = s.now.trace->graph;
  if (graven::detail::active_trace())
    fail_at(s.name + " is called within build() of " + graven::detail::active_trace()->graph_name, where);
  if (!(tree == graph.input_tree))
    fail_at("the inputs of " + s.name +
                " are arranged otherwise than when it was recorded: " + tree_difference(graph.input_tree, tree, ""),
            where);
  s.require_current(where);
  const graven::detail::ProgramInputs checked =
      graven::detail::check_inputs(graph, s.name, inputs, paths, s.parts, where);
  const bool training_graph = training();
  s.require_unchanged(where);
  if (training_graph) s.require_learned_as_recorded(where);
  if (s.now.program && !s.now.program->runs_where(checked)) s.now.program.reset();  // its tensors were moved
  if (!s.now.program) {
    const bool staged = ir::has_stages(graph);
    if (const int processes = runtime::launched_processes();
        (s.data_parallel || staged || s.tensor_ranks > 1) && processes > 1)
      fail_at(fmt::format("{} {}, and is called in one of {} processes: in the host's process a graph is "
                          "one rank, and each would train for itself; emit its project, and start that",
                          s.name,
                          staged               ? "has stages"
                          : s.tensor_ranks > 1 ? "has tensors in parts"
                                               : "is data parallel",
                          processes),
              where);
    const Stopwatch stopwatch;
    if (s.debug_level >= 0) std::fputs(fmt::format("{} start compiling.\n", s.log_name()).c_str(), stderr);
    std::vector<graven::detail::CompiledProgram::Variable> variables;
    for (const auto& [path, t] : s.variables()) {
      const bool updated = training_graph && (t->is_buffer || s.trains(t->tensor));
      variables.push_back({path, t->tensor, updated || ir::is_changed(graph, graph.find(path)), false});
    }
    const Device device = graven::detail::CompiledProgram::device_of(s.name, variables, checked, paths, where);
    if (training_graph)
      for (const auto& [path, t] : s.states())
        if (s.now.states.count(path)) variables.push_back({path, t, true, true});
    s.now.program = std::make_unique<graven::detail::CompiledProgram>(graph, s.name,
                                                                      ir::CompileOptions{.device = device,
                                                                                         .threads = s.threads,
                                                                                         .tuning = s.tuning,
                                                                                         .debug_level = s.debug_level,
                                                                                         .log_name = s.log_name()},
                                                                      variables, s.parts, s.outputs_buffer_size);
    if (training_graph) s.hand_states_to_optimizers(where);
    if (s.debug_level >= 0)
      std::fputs(fmt::format("{} end compiling: {:.1f} ms.\n", s.log_name(), stopwatch.seconds() * 1e3).c_str(),
                 stderr);
  }
  // Of the step after this one: a function that throws leaves everything as it was.
  std::vector<std::vector<double>> next_rates;
  if (training_graph) {
    s.take_from_optimizers(where);
    for (const auto& a : s.optimizers)
      if (a.schedule) next_rates.push_back(a.schedule->rates_at(a.schedule->next_step()));
  }
  std::vector<std::int64_t> skipped;
  for (std::size_t o = 0; o < s.optimizers.size(); ++o) skipped.push_back(s.skipped(o));
  std::vector<Tensor> outputs = s.now.program->run(checked, learning_rates(), training_graph ? s.steps + 1 : 0, where,
                                                   s.recording ? &*s.recording : nullptr);
  if (training_graph) {
    s.set_steps(s.steps + 1);
    auto next = next_rates.begin();
    for (std::size_t o = 0; o < s.optimizers.size(); ++o) {
      const auto& schedule = s.optimizers[o].schedule;
      if (!schedule) continue;
      if (s.skipped(o) == skipped[o]) schedule->set_steps(schedule->steps + 1, *next);
      ++next;
    }
  }
  return outputs;
}

Profile GraphBase::profile_calls(const std::function<void()>& work, Location where) {
  return graven::detail::profile_calls(state_->recording, state_->name, 0, 1, work, where);
}

Profile GraphBase::profile_calls(const ProfileOptions& options, const std::function<void()>& work) {
  return graven::detail::profile_calls(state_->recording, state_->name, options, work, {});
}

// ---- state ----------------------------------------------------------------------------------------------------------

StateDict GraphBase::state_dict() const {
  state_->require_current({});
  StateDict result;
  for (const auto& [path, t] : state_->variables()) result.emplace_back(path, t->tensor);
  if (training()) {
    for (const auto& entry : state_->states()) result.push_back(entry);
    result.emplace_back(std::string(kSeedEntry), tensor(graven::detail::default_generator().signed_seed(), DType::i64));
    state_->each_group([&](const optim::Optimizer&, const optim::Optimizer::State::Group& group, std::size_t index) {
      result.emplace_back(rate_entry("lr", index), tensor(group.options.at("lr"), DType::f64));
      result.emplace_back(rate_entry("initial_lr", index), tensor(group.base_lr, DType::f64));
    });
    result.emplace_back("train_step", tensor(state_->steps_done(), DType::i64));
  }
  return result;
}

LoadReport GraphBase::load_state_dict(const StateDict& state, bool strict, Location where) {
  StateDict targets = state_dict();
  // A shared parameter is one variable, but files have it under every path.
  std::set<std::string> names;
  for (const auto& entry : targets) names.insert(entry.first);
  walk_paths(state_->root, {}, [&](const std::string& path, const std::shared_ptr<ModuleState>& s) {
    for (const auto& t : s->tensors)
      if (std::string name = join_path(path, t.name); names.insert(name).second)
        targets.emplace_back(std::move(name), t.tensor);
  });
  if (training()) {
    check_train_step(state, "load_state_dict of " + state_->name, where);
    // Of the seed and the rates files of emitted programs say nothing: they stay as they are then.
    std::set<std::string> given, optional{std::string(kSeedEntry)};
    for (const auto& entry : state) given.insert(entry.first);
    state_->each_group([&](const optim::Optimizer& optimizer, optim::Optimizer::State::Group&, std::size_t index) {
      for (const char* what : {"lr", "initial_lr"}) {
        const std::string name = *optional.insert(rate_entry(what, index)).first;
        if (const std::optional<double> rate = number_in(state, name))
          graven::detail::located(where, [&] { ir::check_options(optimizer.kind(), {{what, *rate}}); });
      }
    });
    std::erase_if(targets, [&](const auto& entry) { return optional.count(entry.first) && !given.count(entry.first); });
  }
  LoadReport report;
  try {
    report = load_tensors(targets, state, strict, "load_state_dict of " + state_->name, where);
  } catch (UserError& e) {
    std::set<std::string> given;
    for (const auto& entry : state) given.insert(entry.first);
    const auto& states = state_->optimizer_states;
    if (!state_->now.trace &&
        std::any_of(states.begin(), states.end(), [&](const auto& entry) { return given.count(entry.first) == 0; }))
      e.note(
          "before it is recorded a graph expects states of all parameters that require a gradient: where no loss "
          "depends on some of them, compile() it first");
    throw;
  }
  if (!training()) return report;
  state_->each_group([&](const optim::Optimizer&, optim::Optimizer::State::Group& group, std::size_t index) {
    for (const auto& [name, t] : targets) {
      if (name == rate_entry("lr", index)) group.options["lr"] = t.item<double>();
      if (name == rate_entry("initial_lr", index)) group.base_lr = t.item<double>();
    }
  });
  for (const auto& [name, t] : targets) {
    if (name == kSeedEntry) {
      // Eager draws begin anew with a seed: not where it is this one already.
      if (t.item<std::int64_t>() != graven::detail::default_generator().signed_seed())
        manual_seed(static_cast<std::uint64_t>(t.item<std::int64_t>()));
    } else if (name == "train_step") {
      state_->set_steps(t.item<std::int64_t>() + state_->least_skipped());
      for (std::size_t o = 0; o < state_->optimizers.size(); ++o)
        if (const auto& schedule = state_->optimizers[o].schedule; schedule) {
          schedule->steps = state_->steps - state_->skipped(o);
          schedule->apply();
        }
    }
  }
  return report;
}

void GraphBase::save(const std::string& directory) const {
  const ir::Graph& recorded = graph();
  for (const ir::Optimizer& o : recorded.optimizers) ir::require_portable(o.schedule);
  state_->require_current({});
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw UserError(directory + ": cannot be made: " + error.message());
  StateDict weights;
  for (const auto& [path, t] : state_->variables())
    if (recorded.find(path) != ir::kNone) weights.emplace_back(path, t->tensor);
  // The graph last: a folder that has one is whole. Over another graph's folder, the digest tells its files from this
  // one's; other weights of one graph are as good as these.
  const std::string saved = ir::digest_of(recorded);
  // What could not be read again is not written, and what is there stays.
  const std::string file = directory + "/graph.json";
  (void)ir::from_json(ir::to_json(recorded, saved), file, [&](const std::string& name, const ir::TensorType&) {
    return recorded.constants.at(recorded.find(name));
  });
  save_file(weights, directory + "/weights.safetensors", {{std::string(ir::kSavedKey), saved}});
  ir::write_graph(file, recorded, saved);
}

}  // namespace graven::nn
