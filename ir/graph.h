// The graph: what is computed. The first of Graven's two data structures (the other is codegen::Plan, how it runs).
//
// Values are referred to by index and never move; nodes stand in a topological order, which is also the order of
// execution until the scheduler changes it. A pass reads the old node list and writes the new one in a single walk
// (ir/passes/rewriter.h), so every pass is linear in the size of the graph. Serialised as versioned JSON (ir/json.h),
// weights beside it as safetensors.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/attribute.h"
#include "ir/origin.h"
#include "ir/types.h"

namespace graven::ir {

struct OpDef;

using ValueId = std::int32_t;
using NodeId = std::int32_t;          ///< index into Graph::nodes; changes when a pass rewrites the list
inline constexpr ValueId kNone = -1;  ///< an optional input that is absent
/// The number of a value, a node or a dimension as a position in a list.
inline std::size_t at(std::int64_t number) { return static_cast<std::size_t>(number); }

enum class ValueKind : std::uint8_t {
  node,       ///< result of a node
  input,      ///< given by the caller at each call
  parameter,  ///< a module's parameter, in weights and checkpoints
  buffer,     ///< a module's buffer (running statistics), in weights and checkpoints
  constant,   ///< data known when the graph was made (Graph::constants)
  state,      ///< optimizer state: in checkpoints, not in weights
  hyper,      ///< a number the training loop sets before each step, called as below
  sum,        ///< a gradient's, over the parts of a batch so far (Gradient::sum): not in checkpoints
};
/// Of values of the kind `hyper`: "lr.<group>" (f64 scalar); and i64 scalars: "step", from 1, which counts calls;
/// "seed"; of a step in parts (gradient accumulation) "part", from 0, "parts", how many there are, and "draw", from 1,
/// which counts the parts of all steps and is what random numbers go by.
inline constexpr std::string_view kRatePrefix = "lr.", kStepName = "step", kSeedName = "seed", kPartName = "part",
                                  kPartsName = "parts", kDrawName = "draw";
/// The group that the learning rate of this name belongs to, counted through all optimizers; none for another name.
std::optional<std::size_t> group_of_rate(std::string_view name);

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  friend bool operator==(const TensorType&, const TensorType&) = default;
  std::string to_string() const { return describe(dtype, shape); }
};

struct Value {
  std::string name;  ///< unique in the graph: a parameter's path, an input's name, a node result's module path
  ValueKind kind = ValueKind::node;
  TensorType type;
  bool trainable = false;  ///< parameters: whether the optimizer may change it (requires_grad)
};

/// When a node runs. A graph's node list is ordered by phase.
enum class Phase : std::uint8_t {
  prepare,  ///< inference: depends on parameters only; run once after weights are loaded or replaced (packing, folding)
  forward,
  backward,
  update,
};
std::string_view name(Phase phase);

struct Node {
  const OpDef* op = nullptr;
  Attributes attributes;
  /// kNone where an optional input is absent; variadic inputs are laid out one group after another.
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Phase phase = Phase::forward;
  Origins origins;
  /// It computes again, in the backward phase, what a node of the forward phase has computed: the same operator on the
  /// same values, or on such results (ir/passes/recompute_activations.cpp). It is never merged with that one, and runs
  /// no earlier than what its first reader waits for.
  bool recomputes = false;

  /// Whether it is of this operator, or of one of these (ir/ops.h).
  bool is(const std::same_as<OpDef> auto&... ops) const { return ((op == &ops) || ...); }
};

/// Contents of a constant, in row-major order, native byte order.
struct TensorData {
  TensorType type;  ///< shape is static
  std::vector<std::byte> bytes;
};

/// One loss that build() called backward() on. `gradient` is kNone for a scalar loss.
struct Loss {
  ValueId value = kNone;
  ValueId gradient = kNone;
};

/// What autograd found for a parameter that is to be trained. The optimizer reads it; users may ask for it.
struct Gradient {
  ValueId parameter = kNone;
  ValueId value = kNone;
  ValueId sum = kNone;  ///< where a step has parts: what they add up in (ir/passes/accumulate_gradients.cpp)
};

/// What a parameter, a buffer or a state holds after the call: a value of the graph, which takes over its memory.
/// Values never change: who reads the variable reads what it held before the call. A result of the graph that is a
/// variable, or a view of one, is what that holds after it.
struct Donation {
  ValueId variable = kNone;
  ValueId value = kNone;  ///< of the variable's type
  /// Of a trace: build() changes it where no later backward() needs what it held before, which gradients may then read.
  bool behind_backward = false;
};

/// What the value is called that becomes a variable's: "new(model.fc.weight)".
inline std::string new_value_name(const std::string& variable) { return "new(" + variable + ")"; }

/// Gradients that are scaled down, or clamped, between backward and the updates: clip_grad_norm_() and
/// clip_grad_value_() within build().
struct Clip {
  enum class Kind : std::uint8_t { norm, value } kind = Kind::norm;
  /// Of whatever groups and optimizers, or of none; without a gradient they have no part in it.
  std::vector<ValueId> parameters;
  double limit = 0;  ///< of the norm of all these gradients as one vector, or of each element's magnitude; at least 0
  double norm_type = 2;  ///< of a norm: its order, positive; infinity: the largest magnitude
};

/// Learning-rate schedule: `kind` is "constant", "step", "cosine", ...; options are its numbers by PyTorch's names.
struct Schedule {
  std::string kind;  ///< empty: none
  std::map<std::string, double> options;
  std::vector<double> milestones;
  std::vector<Schedule> parts = {};  ///< of the kind "sequential": milestones[i] is where parts[i + 1] begins
  std::vector<double> factors = {};  ///< of the kind "table": of the rates of so many steps
};

/// Sequences within sequences: what stands innermost is at this depth at most.
inline constexpr std::size_t kMaximumScheduleDepth = 8;

struct ParameterGroup {
  std::vector<ValueId> parameters;
  /// lr, momentum, weight_decay, ...: every option of the kind, defaults filled in.
  std::map<std::string, double> options;
};

struct Optimizer {
  std::string kind;  ///< "sgd", "adam", ...: ir/optimizer_kind.h
  std::vector<ParameterGroup> groups;
  Schedule schedule;
  /// What the training loop reduces the rates by when its loss stays where it is (ir/schedule.h); empty: it does not.
  std::map<std::string, double> plateau = {};
};

/// A module, in order of registration: what `repr`, pictures and banners group by.
struct ModuleInfo {
  std::string path;        ///< "model.features.0"
  std::string class_name;  ///< "Conv2d"
  std::string arguments;   ///< "3, 32, kernel_size=(3, 3)": what repr prints between the parentheses
};

/// How a call's container maps to the flat list: a leaf, or a tuple, list or map of trees. Serialised as is.
struct Tree {
  enum class Kind : std::uint8_t { leaf, none, tuple, list, map } kind = Kind::leaf;
  std::int32_t index = 0;  ///< of a leaf
  std::vector<Tree> children;
  std::vector<std::string> keys;  ///< of a map
  friend bool operator==(const Tree&, const Tree&) = default;
};

/// Key of Graph::config, an integer: so many parts of a batch are one step (ir/passes/accumulate_gradients.cpp).
inline constexpr std::string_view kAccumulationSteps = "gradient_accumulation_steps";
/// Key of Graph::config, a boolean: several processes, ranks, train together (ir/passes/reduce_gradients.cpp).
inline constexpr std::string_view kDataParallel = "data_parallel";
/// Keys of Graph::config, integers: 1 to 3, where these ranks share the states of optimizers, besides gradients,
/// besides parameters (ir/sharding.h); and how many elements the smallest parameter has that they share.
inline constexpr std::string_view kZeroStage = "zero_stage", kShardMinSize = "shard_min_size";
/// Keys of Graph::config, numbers: what the losses are scaled by at first, and how that changes
/// (ir/passes/scale_losses.cpp). A graph scales its losses where it has the first.
inline constexpr std::string_view kLossScale = "grad_scaler.init_scale", kScaleGrowth = "grad_scaler.growth_factor",
                                  kScaleBackoff = "grad_scaler.backoff_factor",
                                  kScaleInterval = "grad_scaler.growth_interval";
/// What states of a scaled loss are called: the scale, f32; how many steps in a row it has held, i64; and of each
/// optimizer, behind its number, how many steps it has skipped, i64.
inline constexpr std::string_view kLossScaleState = "grad_scaler-scale",
                                  kGrowthTrackerState = "grad_scaler-growth_tracker",
                                  kSkippedState = "grad_scaler-skipped.";
/// One call of a module with activation checkpointing: backward computes again what it needs of it.
struct Checkpoint {
  std::string module;        ///< its path
  std::uint32_t within = 0;  ///< the call that it is part of: the place of another in Graph::checkpoints, from 1
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

/// Key of Graph::config: bytes that the arena may take, an integer (ir/passes/recompute_activations.cpp).
inline constexpr std::string_view kMemoryBudget = "memory_budget";
/// Keys of Graph::config: how the plan orders nodes, a text of kStraightenModes, the first where it is absent; and
/// whether it searches longer for a placement (codegen/plan).
inline constexpr std::string_view kStraightenAlgorithm = "straighten_algorithm", kCompressMemory = "compress_memory";
inline constexpr std::string_view kStraightenModes[] = {"memory_first", "disable", "speed_first", "overlap",
                                                        "delay_short"};
/// Keys of Graph::config, booleans: fusions that the graph does without.
inline constexpr std::string_view kNoModelUpdateFusion = "no_model_update_fusion",
                                  kNoAddToOutputFusion = "no_add_to_output_fusion",
                                  kNoCastScaleFusion = "no_cast_scale_fusion";
/// Key of Graph::config, a boolean: of the algorithms that a library has for a convolution the program takes the
/// fastest, not the one that the library recommends. Targets that have no such library do without.
inline constexpr std::string_view kMeasuredConvolutions = "measured_convolutions";
/// Key of Graph::config, a boolean: products and convolutions of f32 may round their factors to TF32, where the
/// target's library does so.
inline constexpr std::string_view kAllowTf32 = "allow_tf32";

/// Key of Graph::config: each parameter is updated as soon as its gradient is there (ir/passes/update_in_backward.cpp).
inline constexpr std::string_view kUpdateInBackward = "update_in_backward";
/// Key of Graph::config: f16 or bf16, the dtype of products and of what follows them (ir/passes/mixed_precision.cpp).
inline constexpr std::string_view kAmp = "amp";

class Graph {
 public:
  std::string name;             ///< the class: "TrainMlp"
  std::string stage = "trace";  ///< the last pass that ran
  bool training = false;        ///< modules were in training mode, or an optimizer was added
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<ValueId> parameters;  ///< parameters and buffers, in order of registration
  std::vector<ValueId> states;      ///< optimizer state, once autograd has run
  std::vector<Loss> losses;
  std::vector<Gradient> gradients;  ///< in the order of `parameters`, once autograd has run; parameters that no loss
                                    ///< depends on are left out
  std::vector<Donation> donations;  ///< each variable once; the others stay as they are
  std::vector<Clip> clips;          ///< in the order in which they are done; none any more once clip_gradients has run
  std::vector<Optimizer> optimizers;
  std::vector<ModuleInfo> modules;
  std::vector<Checkpoint> checkpoints;  ///< calls of modules with activation checkpointing, in order
  Tree input_tree, output_tree;
  std::map<std::string, Attribute> config;
  std::unordered_map<ValueId, std::shared_ptr<const TensorData>> constants;

  const Value& value(ValueId id) const { return values[at(id)]; }
  Value& value(ValueId id) { return values[at(id)]; }
  const TensorType& type(ValueId id) const { return value(id).type; }
  /// The types of several values, as ir::infer() takes them: null for kNone. They hold until a value is added.
  std::vector<const TensorType*> types_of(const std::vector<ValueId>& ids) const;

  /// Adds a value; the name is made unique by appending "_2", "_3", ... where it is taken.
  ValueId add_value(std::string name, ValueKind kind, TensorType type);
  ValueId add_input(std::string name, TensorType type);
  ValueId add_parameter(std::string name, TensorType type, bool trainable);
  ValueId add_buffer(std::string name, TensorType type);
  ValueId add_constant(std::string name, std::shared_ptr<const TensorData> data);
  ValueId add_state(std::string name, TensorType type);
  /// The number of the training loop of that name, which is added where there is none yet. User error where the name is
  /// another value's.
  ValueId add_hyper(std::string_view name, DType dtype);

  /// Appends a node: checks attributes against the declaration and fills in defaults, infers the outputs' types, names
  /// the outputs, and returns their ids. A name is `result_name`, or a module path and the operator: of the child whose
  /// result comes in ("model.conv1.relu"), or else of the last origin ("model.relu"); so a layer added elsewhere in the
  /// module renames nothing. What takes over an input's memory is called after that. User error when the operator
  /// rejects it. `called`: what the error calls it, where the operator is a part of a function that the user called.
  std::vector<ValueId> add_node(const OpDef& op, std::vector<ValueId> inputs, Attributes attributes, Origins origins,
                                Phase phase = Phase::forward, std::string result_name = {},
                                std::string_view called = {});
  /// The same for an operator with one output, by name, which may be misspelt: for graphs that are written by hand.
  ValueId call(std::string_view op, std::vector<ValueId> inputs, Attributes attributes, Origins origins,
               Phase phase = Phase::forward, std::string result_name = {});
  /// Finds a value by name, kNone when absent. Linear the first time after a change.
  ValueId find(std::string_view name) const;

  /// Exchanges the names of two values.
  void swap_names(ValueId a, ValueId b);

  /// Drops values that nothing refers to, renumbering the rest in order of first appearance.
  void compact();

  /// A boolean of `config`; false when it is absent. User error when it is something else.
  bool flag(std::string_view key) const;
  /// A number of `config`; none when it is absent. User error when it is something else.
  std::optional<double> number(std::string_view key) const;
  /// An integer of `config`; 0 when it is absent. User error when it is something else, or negative.
  std::int64_t count(std::string_view key) const;
  /// A text of `config`; empty when it is absent. User error when it is something else.
  std::string text(std::string_view key) const;

  /// The symbols of the inputs, in order of first appearance.
  std::vector<Symbol> symbols() const;

 private:
  /// The child of `module` that one of the inputs comes from, the first that does; else `module`.
  std::string naming_module(const std::vector<ValueId>& inputs, const std::string& module) const;

  std::unordered_map<std::string, ValueId> names_;
  std::unordered_map<std::string, int> name_counts_;
};

/// A node with its graph: how operators look at themselves.
struct NodeView {
  const Graph& graph;
  const Node& node;
  std::size_t input_count() const { return node.inputs.size(); }
  bool has_input(std::size_t i) const { return i < node.inputs.size() && node.inputs[i] != kNone; }
  const TensorType& input(std::size_t i) const { return graph.type(node.inputs[i]); }
  const TensorType& output(std::size_t i = 0) const { return graph.type(node.outputs[i]); }
  const Attributes& attributes() const { return node.attributes; }
};

}  // namespace graven::ir
