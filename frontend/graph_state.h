// What GraphBase's handle refers to: modules, optimizers, what was asked for, and what was recorded.
#pragma once

#include <any>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "frontend/autograd.h"
#include "frontend/compiled_program.h"
#include "frontend/dispatch.h"
#include "frontend/grad_scaler_state.h"
#include "frontend/module_state.h"
#include "frontend/optim_state.h"
#include "frontend/profile.h"
#include "frontend/trace.h"
#include "graven/graph.h"
#include "ir/analysis.h"
#include "ir/optimizer_kind.h"
#include "ir/passes/passes.h"

namespace graven::nn {

using graven::detail::fail_at;

using graven::detail::Trace;
using graven::detail::TraceScope;

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

struct GraphState {
  std::string class_name, name;
  std::shared_ptr<ModuleState> root = std::make_shared<ModuleState>();
  struct Attached {
    optim::Optimizer optimizer;
    std::shared_ptr<lr_scheduler::LRScheduler::State> schedule;
    std::shared_ptr<lr_scheduler::ReduceLROnPlateau::State> plateau = {};
  };
  std::vector<Attached> optimizers;
  int debug_level = -1;
  int threads = 0;
  bool update_in_backward = false;
  std::int64_t parts = 1;      ///< of a step's batch
  bool data_parallel = false;  ///< ranks share a step
  int zero_stage = 0;          ///< and more; 0: nothing more
  std::int64_t tensor_ranks = 1;
  std::int64_t shard_min_size = 0;
  std::shared_ptr<amp::GradScaler::State> scaler;  ///< none: losses are not scaled
  std::optional<DType> amp;
  std::int64_t memory_budget = 0;
  GraphBase::Straighten straighten = GraphBase::Straighten::memory_first;
  bool compress_memory = false;
  int outputs_buffer_size = graven::detail::kOutputsBufferSize;
  bool fuses_model_update = true, fuses_add_to_output = true, fuses_cast_scale = true;
  bool convolutions_by_heuristic = true;
  std::optional<bool> tf32;  ///< none: as cuda::allow_tf32() has it when the graph is recorded
  std::string tuning;        ///< a file; empty: none
  std::int64_t steps = 0;    ///< training calls, those too whose update was skipped
  std::optional<graven::detail::ProfileRecording> recording;  ///< while calls are profiled

  /// What build() recorded for inputs of certain types, and, once it has run, its program.
  struct Recorded {
    std::unique_ptr<Trace> trace;
    std::any result;
    std::unique_ptr<graven::detail::CompiledProgram> program;
    std::vector<std::uint64_t> loads = {};  ///< by optimizer: how often it had been loaded
    std::set<std::string> states = {};      ///< names of the optimizer state that its program has
    /// What the optimizers were given, and whether it required a gradient.
    std::vector<std::pair<Tensor, bool>> learned = {};
    /// What an optimizer knows of a parameter that the program updates: the same tensors, by the state's name.
    struct Known {
      std::size_t optimizer, group, parameter;
      std::vector<std::pair<std::string, Tensor>> states;
    };
    std::vector<Known> known = {};
  };
  Recorded now;                  ///< what run() runs
  std::vector<Recorded> others;  ///< with dynamic input shapes: what was used before it, the last first
  int dynamic_shapes = 0;        ///< how many are kept in all; 0: one, and other types are an error
  StateDict optimizer_states;    ///< by the names of checkpoints; made when they are first needed

  /// What was asked for of memory, order and fusions, where it differs from what graphs do anyway.
  void configure(ir::Graph& graph) const {
    const auto set = [&](std::string_view key, ir::Attribute value) { graph.config[std::string(key)] = value; };
    if (memory_budget > 0) set(ir::kMemoryBudget, memory_budget);
    if (straighten != GraphBase::Straighten::memory_first)
      set(ir::kStraightenAlgorithm, std::string(ir::kStraightenModes[static_cast<std::size_t>(straighten)]));
    if (compress_memory) set(ir::kCompressMemory, true);
    if (!fuses_model_update) set(ir::kNoModelUpdateFusion, true);
    if (!fuses_add_to_output) set(ir::kNoAddToOutputFusion, true);
    if (!fuses_cast_scale) set(ir::kNoCastScaleFusion, true);
    if (!convolutions_by_heuristic) set(ir::kMeasuredConvolutions, true);
    if (tf32.value_or(ir::allows_tf32())) set(ir::kAllowTf32, true);
  }
  /// The same for print.
  std::string configuration() const {
    std::string text;
    if (memory_budget > 0) text += fmt::format(", memory_budget={}", memory_budget);
    if (straighten != GraphBase::Straighten::memory_first)
      text += fmt::format(", straighten_algorithm={}", ir::kStraightenModes[static_cast<std::size_t>(straighten)]);
    if (compress_memory) text += ", compress_memory=True";
    if (outputs_buffer_size != graven::detail::kOutputsBufferSize)
      text += fmt::format(", outputs_buffer_size={}", outputs_buffer_size);
    if (!fuses_model_update) text += ", fuse_model_update_ops=False";
    if (!fuses_add_to_output) text += ", fuse_add_to_output=False";
    if (!fuses_cast_scale) text += ", fuse_cast_scale=False";
    if (!convolutions_by_heuristic) text += ", cudnn_conv_heuristic_search_algo=False";
    if (now.trace ? now.trace->graph.flag(ir::kAllowTf32) : tf32.value_or(ir::allows_tf32()))
      text += ", allow_tf32=True";
    if (!tuning.empty()) text += ", tuning=" + tuning;
    return text;
  }
  /// For what is asked for before the graph is recorded.
  void require_not_recorded(const char* function, Location where) const {
    if (now.trace)
      fail_at(
          std::string(function) + ": " + name + " is recorded already; ask for it before compile() and the first call",
          where);
  }

  /// "(GRAPH:TrainMlp_0:TrainMlp)", what begins the lines of debug().
  std::string log_name() const { return "(GRAPH:" + name + ":" + class_name + ")"; }
  /// ", grad_scaler=GradScaler(init_scale=65536, ...)", as it was made.
  std::string scaler_text() const {
    if (!scaler) return {};
    const amp::GradScalerOptions& o = scaler->options;
    if (scaler->is_static) return fmt::format(", grad_scaler=StaticGradScaler({})", o.init_scale);
    return fmt::format(
        ", grad_scaler=GradScaler(init_scale={}, growth_factor={}, backoff_factor={}, growth_interval={})",
        o.init_scale, o.growth_factor, o.backoff_factor, o.growth_interval);
  }
  /// The text of print(), with each operator (1), or with their lines in user code besides (2).
  std::string text(int operators) const;
  /// Modules under their paths, parents first.
  template <class F>
  void walk(F&& f) const {
    walk_modules(root, {}, [&](const std::string& path, const std::shared_ptr<ModuleState>& s) {
      if (s != root) f(path, *s);
    });
  }
  /// Every parameter and buffer once, under its first path.
  std::vector<std::pair<std::string, const ModuleState::Named*>> variables() const {
    std::vector<std::pair<std::string, const ModuleState::Named*>> result;
    std::set<const graven::detail::TensorImpl*> seen;
    walk([&](const std::string& path, const ModuleState& s) {
      for (const auto& t : s.tensors)
        if (seen.insert(t.tensor.impl().get()).second) result.emplace_back(join_path(path, t.name), &t);
    });
    return result;
  }
  /// The parameters' names; user error where an optimizer has one that the graph has not, or has no more.
  std::map<const graven::detail::TensorImpl*, std::string> parameter_names(Location where) const {
    std::map<const graven::detail::TensorImpl*, std::string> names;
    for (const auto& [path, t] : variables())
      if (!t->is_buffer) names.emplace(t->tensor.impl().get(), path);
    for (const Attached& a : optimizers)
      for (const Tensor& p : a.optimizer.parameters())
        if (!names.count(p.impl().get()))
          fail_at("the optimizer " + a.optimizer.kind() + " of " + name + " has a parameter " + p.describe() + " (" +
                      p.impl()->owner + ") in whose place another was registered: make the optimizer after that",
                  where);
    return names;
  }
  /// User error where what was registered when the graph was recorded was replaced since.
  void require_current(Location where) {
    const std::uint64_t changes = count_replacements();
    if (!now.trace || changes == seen_replacements) return;
    for (const auto& [path, t] : variables())
      if (!now.trace->variables.count(t->tensor.impl().get()))
        fail_at(path + " is another tensor than when " + name +
                    " was recorded: assign to layers before compile() and the first call",
                where);
    walk([&](const std::string& path, const ModuleState& module) {
      if (!now.trace->modules.count(&module))
        fail_at("the module " + path + " (" + module.class_name + ") came after " + name +
                    " was recorded: add it before compile() and the first call",
                where);
    });
    seen_replacements = changes;
  }
  std::uint64_t seen_replacements = 0;
  /// User error where a parameter was frozen, or set free, since build() was recorded: the program would not know.
  void require_learned_as_recorded(Location where) const {
    for (const auto& [p, learned] : now.learned)
      if (p.requires_grad() != learned)
        fail_at(fmt::format("{} {} when {} was recorded, and {} now: freeze what is not to be learnt before compile() "
                            "and the first call, or make a new graph",
                            now.trace->graph.value(now.trace->variables.at(p.impl().get()).value).name,
                            learned ? "required a gradient" : "was frozen", name, learned ? "does not" : "is not"),
                where);
  }
  /// User error where a module is in another mode than when build() was recorded, an optimizer has other options, or
  /// the elements that became a constant were written: the program would go on with the old ones.
  void require_unchanged(Location where) const {
    const ir::Graph& graph = now.trace->graph;
    for (const auto& [module, training] : now.trace->modes)
      if (module->training != training)
        fail_at(fmt::format("{} {} was in {} mode when {} was recorded, and is in {} mode now: a program has one mode. "
                            "Give the other its own graph, "
                            "which shares the module",
                            module->class_name, now.trace->modules.at(module).path,
                            training ? "training" : "evaluation", name, training ? "evaluation" : "training"),
                where);
    for (const auto& [impl, taken] : now.trace->captured)
      if (impl->storage->version.load(std::memory_order_relaxed) != taken.version)
        fail_at(fmt::format("the tensor '{}' of {} was written since; tensors from outside are constants: make it an "
                            "input, or a buffer of a module",
                            graph.value(taken.value).name, name),
                where);
    for (std::size_t o = 0; o < optimizers.size(); ++o) {
      const optim::Optimizer::State& state = *optimizers[o].optimizer.state();
      if (state.loads == now.loads[o]) continue;
      if (state.groups.size() != graph.optimizers[o].groups.size())
        fail_at(
            fmt::format("{}: there were {} groups of parameters when {} was recorded, and are {} now: add them before "
                        "compile() and the first call",
                        optimizers[o].optimizer.kind(), graph.optimizers[o].groups.size(), name, state.groups.size()),
            where);
      for (std::size_t g = 0; g < state.groups.size(); ++g) {
        const auto& recorded = graph.optimizers[o].groups[g].options;
        for (const auto& entry : recorded)
          if (state.groups[g].options.count(entry.first) == 0)
            fail_at(
                fmt::format("{}: group {} had the option {} when {} was recorded, and has it no more; of a recorded "
                            "graph the learning rate alone may change",
                            optimizers[o].optimizer.kind(), g, entry.first, name),
                where);
        for (const auto& [option, value] : state.groups[g].options)
          if (option != "lr" && (!recorded.count(option) || recorded.at(option) != value))
            fail_at(fmt::format("{}: the option {} of group {} is {} now, and was another when {} was recorded; of a "
                                "recorded graph the learning rate "
                                "alone may change",
                                optimizers[o].optimizer.kind(), option, g, value, name),
                    where);
      }
    }
    require_gradients(where);
  }
  void require_gradients(Location where) const {
    if (!optimizers.empty() && !is_grad_enabled())
      fail_at(name +
                  " trains, and is called under NoGradGuard, where nothing is learnt; evaluate with a graph that has "
                  "no optimizer",
              where);
  }
  /// Whether the graph may write `p`: what was frozen before it was recorded it does not.
  bool trains(const Tensor& p) const {
    if (!now.trace) return p.requires_grad();
    return now.trace->graph.value(now.trace->variables.at(p.impl().get()).value).trainable;
  }
  const StateDict& states() {
    if (now.program) return optimizer_states;  // bound
    StateDict before;
    before.swap(optimizer_states);
    // What the optimizer has of eager steps, or was given by load_state_dict(), goes on.
    const auto add = [&](const std::string& state_name, const Tensor& own, const ir::TensorType& type) {
      const auto it =
          std::find_if(before.begin(), before.end(), [&](const auto& entry) { return entry.first == state_name; });
      optimizer_states.emplace_back(state_name, own.defined()        ? own
                                                : it == before.end() ? zeros(type.shape, type.dtype)
                                                                     : it->second);
      now.states.insert(state_name);
      return optimizer_states.back().second;
    };
    now.states.clear();
    now.known.clear();
    const auto names = parameter_names({});
    // Until build() is recorded nobody knows which of them a loss depends on.
    std::optional<std::set<std::string>> trained;
    if (now.trace) trained = ir::parameters_with_gradients(now.trace->graph);
    for (std::size_t o = 0; o < optimizers.size(); ++o) {
      const optim::Optimizer& optimizer = optimizers[o].optimizer;
      for (std::size_t g = 0; g < optimizer.state()->groups.size(); ++g) {
        const auto& group = optimizer.state()->groups[g];
        for (std::size_t i = 0; i < group.parameters.size(); ++i) {
          const Tensor& p = group.parameters[i];
          const std::string& name = names.at(p.impl().get());
          if (trained ? !trained->count(name) : !p.requires_grad()) continue;
          Recorded::Known known{o, g, i, {}};
          for (const ir::OptimizerState& state : ir::optimizer_kind(optimizer.kind()).states) {
            const std::string state_name(state.name);
            if (const auto type = ir::state_type(state, group.options, {p.dtype(), p.shape()}))
              known.states.emplace_back(
                  state_name, add(ir::name_of_state(name, state_name), group.states.at(state_name)[i], *type));
          }
          now.known.push_back(std::move(known));
        }
      }
    }
    if (scaler) {
      add(std::string(ir::kLossScaleState), scaler->scale, {});
      add(std::string(ir::kGrowthTrackerState), scaler->tracker, {});
      for (std::size_t o = 0; o < optimizers.size(); ++o)
        if (std::any_of(now.known.begin(), now.known.end(), [&](const auto& k) { return k.optimizer == o; }))
          add(std::string(ir::kSkippedState) + std::to_string(o), {}, {DType::i64, {}});
    }
    // With dynamic input shapes another program may train what this one does not.
    if (!others.empty())
      for (const auto& entry : before)
        if (!now.states.count(entry.first)) optimizer_states.push_back(entry);
    return optimizer_states;
  }
  optim::Optimizer::State::Group& group_of(const Recorded::Known& k) const {
    return optimizers[k.optimizer].optimizer.state()->groups[k.group];
  }
  /// User error for a momentum that has seen no gradient though its parameter has been updated: it begins with the
  /// gradient as it is, and the graph, which goes by the number of the step alone, would dampen it.
  void require_undampened(const Recorded::Known& k, const std::string& state_name, Location where) const {
    const auto& group = group_of(k);
    const auto dampening = group.options.find("dampening");
    if (group.states.at(state_name)[k.parameter].defined() || group.steps[k.parameter] == 0 ||
        dampening == group.options.end() || dampening->second == 0)
      return;
    const std::string& kind = optimizers[k.optimizer].optimizer.kind();
    for (const ir::OptimizerState& state : ir::optimizer_kind(kind).states)
      if (state.name == state_name && state.begins_with_gradient)
        fail_at(
            fmt::format("the {} of {} begins with the first gradient that it sees, not dampened, and was switched on "
                        "after {} steps, which a graph goes on counting: make a step of the optimizer before the "
                        "first call, or set its dampening to 0",
                        state_name, name, group.steps[k.parameter]),
            where);
  }
  /// The program's tensors become the optimizers' own, so that each sees what the other does.
  void hand_states_to_optimizers(Location where) {
    for (const Recorded::Known& k : now.known)
      for (const auto& entry : k.states) require_undampened(k, entry.first, where);
    for (const Recorded::Known& k : now.known)
      for (const auto& [state_name, t] : k.states) group_of(k).states.at(state_name)[k.parameter] = t;
  }
  /// Before a step: what was loaded into the optimizers since the last one, and how many eager steps they made.
  void take_from_optimizers(Location where) {
    NoGradGuard no_grad;
    std::optional<std::int64_t> count;
    for (const Recorded::Known& k : now.known) {
      auto& group = group_of(k);
      for (const auto& [state_name, t] : k.states) {
        Tensor &own = group.states.at(state_name)[k.parameter], mine = t;
        if (own.impl() == mine.impl()) continue;
        require_undampened(k, state_name, where);
        if (own.defined())
          mine.copy_(own);
        else
          mine.zero_();
        own = mine;
      }
      const std::int64_t calls = group.steps[k.parameter] + skipped(k.optimizer);
      if (count && *count != calls)
        fail_at(fmt::format("{} trains parameters of which its optimizers have updated one {} times and another {} "
                            "times; a graph counts its steps once",
                            name, *count, calls),
                where);
      count = calls;
    }
    if (count) steps = *count;
  }
  /// Calls f(optimizer, group, number), groups counted through all optimizers.
  template <class F>
  void each_group(F&& f) const {
    std::size_t index = 0;
    for (const Attached& a : optimizers)
      for (auto& group : a.optimizer.state()->groups) f(a.optimizer, group, index++);
  }
  /// Eager ones of its optimizers count, too.
  std::int64_t steps_done() const {
    if (now.known.empty()) return steps - least_skipped();
    std::int64_t most = 0;
    for (const Recorded::Known& k : now.known) most = std::max(most, group_of(k).steps[k.parameter]);
    return most;
  }
  /// So many training calls; optimizers have made the steps that they have not skipped.
  void set_steps(std::int64_t calls) {
    steps = calls;
    for (const Recorded::Known& k : now.known) group_of(k).steps[k.parameter] = calls - skipped(k.optimizer);
  }
  /// How many steps an optimizer has skipped because a gradient was not finite.
  std::int64_t skipped(std::size_t optimizer) const {
    if (!scaler) return 0;
    const std::string wanted = std::string(ir::kSkippedState) + std::to_string(optimizer);
    for (const auto& [state_name, t] : optimizer_states)
      if (state_name == wanted) return t.item<std::int64_t>();
    return 0;
  }
  std::int64_t least_skipped() const {
    if (optimizers.empty()) return 0;
    std::int64_t least = skipped(0);
    for (std::size_t o = 1; o < optimizers.size(); ++o) least = std::min(least, skipped(o));
    return least;
  }
};

}  // namespace graven::nn
