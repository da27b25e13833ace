#include "graven/graph.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <ostream>
#include <set>

#include <fmt/format.h>

#include "frontend/autograd.h"
#include "frontend/compiled_program.h"
#include "frontend/dispatch.h"
#include "frontend/grad_scaler_state.h"
#include "frontend/module_state.h"
#include "frontend/optim_state.h"
#include "frontend/random.h"
#include "frontend/serialize.h"
#include "frontend/trace.h"
#include "ir/analysis.h"
#include "ir/json.h"
#include "ir/ops.h"
#include "ir/optimizer_kind.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/rank_layout.h"
#include "ir/schedule.h"
#include "ir/stages.h"
#include "ir/verify.h"
#include "runtime_min/ranks.h"

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

namespace {

/// How many graphs of each class there were: the number in a graph's name.
int next_number(const std::string& class_name) {
  static std::mutex mutex;
  static std::map<std::string, int> counts;
  const std::lock_guard lock(mutex);
  return counts[class_name]++;
}

std::uint64_t next_trace_id() {
  static std::atomic<std::uint64_t> id{0};
  return ++id;
}

std::string python_shape(const Shape& shape) {
  std::string s = "(";
  for (std::size_t i = 0; i < shape.rank(); ++i) s += (i ? ", " : "") + shape[i].to_string();
  return s + (shape.rank() == 1 ? ",)" : ")");
}

/// "float32": the names that OneFlow and PyTorch print.
std::string long_name(DType dtype) {
  constexpr const char* kNames[] = {"float32", "float64", "float16", "bfloat16", "int8",
                                    "int32",   "int64",   "uint8",   "bool"};
  return kNames[static_cast<std::size_t>(dtype)];
}

std::string describe_tensor(const ir::TensorType& type, bool recorded, bool requires_grad) {
  return "tensor(..., " + std::string(recorded ? "is_lazy='True', " : "") + "size=" + python_shape(type.shape) +
         ", dtype=" + long_name(type.dtype) + (requires_grad ? ", requires_grad=True" : "") + ")";
}

/// "(OPERATOR:model.relu:relu(model.hidden.linear) -> f32[64,256])"
std::string operator_line(const ir::Graph& graph, const ir::Node& n, bool with_origins) {
  std::string line = "(OPERATOR:" + graph.value(n.outputs.empty() ? n.inputs.at(0) : n.outputs[0]).name + ":" +
                     std::string(n.op->name) + "(";
  bool first = true;
  for (ir::ValueId v : n.inputs) {
    if (v == ir::kNone) continue;
    line += (first ? "" : ", ") + graph.value(v).name;
    first = false;
  }
  line += ")";
  for (std::size_t i = 0; i < n.outputs.size(); ++i) line += (i ? ", " : " -> ") + graph.type(n.outputs[i]).to_string();
  if (with_origins)
    for (const ir::Origin& o : n.origins) line += "  " + o.to_string();
  return line + ")";
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

/// The lines of the operators that each module recorded, by path.
using OperatorLines = std::map<std::string, std::vector<std::string>>;
OperatorLines operator_lines(const ir::Graph& graph, bool with_origins) {
  OperatorLines lines;
  for (const ir::Node& n : graph.nodes) lines[ir::owner_of(n.origins)].push_back(operator_line(graph, n, with_origins));
  return lines;
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
  std::int64_t steps = 0;  ///< training calls, those too whose update was skipped

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
    const std::vector<double> own = a.schedule ? a.schedule->rates() : a.optimizer.learning_rates();
    rates.insert(rates.end(), own.begin(), own.end());
  }
  return rates;
}

// ---- recording ------------------------------------------------------------------------------------------------------

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
               "; dimensions must not be negative, maxima at least 1");
      if (!ir::is_symbol_name(symbol.name))
        refuse(" has the symbol '" + symbol.name +
                   "'; a symbol's name is made of letters, digits and underscores, and " + "begins with no digit",
               "such as Dim(\"batch\", " + std::to_string(symbol.most) + ")");
    }
    if (d.minimum() < 0)
      refuse(" has the dimension " + d.to_string() + "; dimensions must not be negative, maxima at least 1");
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
  tree.index = static_cast<std::int32_t>(trace.graph.outputs.size());
  trace.graph.outputs.push_back(trace.value_of(value, {}));
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
      if (n.op->random) {
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
      variables.push_back({path, t->tensor, updated || ir::is_changed(graph, graph.find(path))});
    }
    if (training_graph)
      for (const auto& [path, t] : s.states())
        if (s.now.states.count(path)) variables.push_back({path, t, true});
    s.now.program = std::make_unique<graven::detail::CompiledProgram>(
        graph, s.name, ir::CompileOptions{.threads = s.threads, .debug_level = s.debug_level, .log_name = s.log_name()},
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
  std::vector<Tensor> outputs = s.now.program->run(checked, learning_rates(), training_graph ? s.steps + 1 : 0, where);
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

// ---- print ----------------------------------------------------------------------------------------------------------

namespace {

void print_module(std::string& text, const std::string& path, const ModuleState& s, const Trace* trace,
                  const OperatorLines& operators, std::size_t depth) {
  const std::string indent(2 * depth, ' '), inner(2 * depth + 2, ' ');
  std::string body;
  if (s.stage >= 0 || s.activation_checkpointing)
    body += inner + "(CONFIG:config:ModuleConfig(" + (s.stage >= 0 ? fmt::format("stage_id={}, ", s.stage) : "") +
            (s.activation_checkpointing ? "activation_checkpointing=True, " : "") + "))\n";
  const graven::detail::ModuleCall* call = nullptr;
  if (trace)
    if (const auto it = trace->calls.find(&s); it != trace->calls.end()) call = &it->second;
  if (call)
    for (std::size_t i = 0; i < call->inputs.size(); ++i)
      body += inner + "(INPUT:_" + path + "-input_" + std::to_string(i) + ":" +
              describe_tensor(call->inputs[i], true, false) + ")\n";
  for (const auto& t : s.tensors)
    body += inner + (t.is_buffer ? "(BUFFER:" : "(PARAMETER:") + join_path(path, t.name) + ":" +
            describe_tensor({t.tensor.dtype(), t.tensor.shape()}, false, t.tensor.requires_grad()) + "): ()\n";
  for (const auto& c : s.children) print_module(body, join_path(path, c.name), *c.state, trace, operators, depth + 1);
  if (const auto it = operators.find(path); it != operators.end())
    for (const std::string& o : it->second) body += inner + o + "\n";
  if (call)
    for (std::size_t i = 0; i < call->outputs.size(); ++i)
      body += inner + "(OUTPUT:_" + path + "-output_" + std::to_string(i) + ":" +
              describe_tensor(call->outputs[i], true, false) + ")\n";
  text += indent + "(MODULE:" + path + ":" + s.class_name + "(" + s.printed() + ")): (";
  text += body.empty() ? ")\n" : "\n" + body + indent + ")\n";
}

}  // namespace

std::string GraphBase::repr() const { return state_->text(1); }

std::string GraphState::text(int with_operators) const {
  const GraphState& s = *this;
  std::string text = "(GRAPH:" + s.name + ":" + s.class_name + "): (\n";
  text += std::string("  (CONFIG:config:GraphConfig(training=") + (s.optimizers.empty() ? "False" : "True") +
          (s.update_in_backward ? ", update_in_backward=True" : "") +
          (s.amp ? ", amp=" + std::string(ir::name(*s.amp)) : "") +
          (s.parts > 1 ? fmt::format(", gradient_accumulation_steps={}", s.parts) : "") +
          (s.data_parallel ? ", data_parallel=True" : "") +
          (s.zero_stage > 0 ? fmt::format(", zero_stage={}, shard_min_size={}", s.zero_stage, s.shard_min_size) : "") +
          (s.tensor_ranks > 1 ? fmt::format(", tensor_parallel={}", s.tensor_ranks) : "") + scaler_text() +
          s.configuration() + ", ))\n";
  const auto line = [&](const char* kind, const char* suffix, std::size_t i, ir::ValueId v) {
    text += "  (" + std::string(kind) + ":_" + s.name + "-" + suffix + "_" + std::to_string(i) + ":" +
            describe_tensor(s.now.trace->graph.type(v), false, false) + ")\n";
  };
  if (s.now.trace)
    for (std::size_t i = 0; i < s.now.trace->graph.inputs.size(); ++i)
      line("INPUT", "input", i, s.now.trace->graph.inputs[i]);
  const OperatorLines operators =
      s.now.trace && with_operators > 0 ? operator_lines(s.now.trace->graph, with_operators > 1) : OperatorLines();
  for (const auto& c : s.root->children) print_module(text, c.name, *c.state, s.now.trace.get(), operators, 1);
  if (const auto it = operators.find(""); it != operators.end())
    for (const std::string& o : it->second) text += "  " + o + "\n";
  if (s.now.trace)
    for (std::size_t i = 0; i < s.now.trace->graph.outputs.size(); ++i)
      line("OUTPUT", "output", i, s.now.trace->graph.outputs[i]);
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const GraphBase& graph) { return out << graph.repr(); }

}  // namespace graven::nn
