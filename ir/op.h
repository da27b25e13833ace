// One operator, one place: an OpDef says what an operator is, as mathematics. It stands in ir/ops/<op>.cpp. JSON, eager
// mode, fusion, tests and the table of operators follow from the entry. Where its rule does not say what kernels do,
// codegen/lowering has the call of one, of which there is a file in each of kernels/config, kernels/reference,
// kernels/cpu, kernels/cuda.
//
//   static void gradient(GradientBuilder& g) { g.set(0, g.call("mul", {g.output_gradient(), g.call("gt", ...)})); }
//   const OpDef kRelu{.name = "relu", .doc = "y = max(x, 0)", .inputs = {{"x"}}, .dtypes = kNumbers,
//                     .gradient = gradient, .scalar = [](ElementRule& e) { return select(e.x() < 0, 0, e.x()); }};
//
// and one line in ir/op_list.inc, from which ir/ops.h declares it. Everything here is data or a function from a node to
// data; nothing calls into codegen.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attribute.h"
#include "ir/graph.h"

namespace graven::ir {

/// What an input is to its operator.
enum class InputRole : std::uint8_t {
  value,      ///< what it computes with, and nothing below
  operand,    ///< of a functor: where there are several, each is an argument of its own
  weight,     ///< a layer's
  bias,       ///< a layer's
  residual,   ///< of a lowered operator: the second operand of the epilogue
  parameter,  ///< what it updates
  gradient,   ///< of the parameters that it updates
  state,      ///< what it keeps of each parameter from step to step
  rate,       ///< the learning rate, f64
  step,       ///< the training loop's, i64, from 1
  factor,     ///< of an update: what it multiplies gradients by before it looks at them, a scalar of their dtype
  seed,       ///< of random numbers, i64
  part,       ///< the training loop's, i64: which part of a batch, from 0, or of how many (gradient accumulation)
  kept,       ///< what it keeps from call to call that belongs to no parameter's update
};

/// Of a state: which parameters have it, and its shape.
enum class StateShape : std::uint8_t {
  parameter,   ///< the parameter's, of each
  rows,        ///< of those with two dimensions or more: a number a row, the last dimension is 1
  columns,     ///< of those with two dimensions or more: a number a column, the last dimension but one is 1
  unfactored,  ///< the parameter's, of those with fewer than two dimensions
};
/// None where a parameter of this type has no such state.
std::optional<TensorType> state_type(StateShape shape, const TensorType& parameter);

struct InputSpec {
  std::string_view name = {};
  InputRole role = InputRole::value;
  std::optional<DType> dtype = {};  ///< its own; none: what OpDef::dtypes says, of a number what its role does
  bool is_sum = false;              ///< f32 where those before it are of a half type: ops::dtype_of_sums of theirs
  bool optional = false;
  bool variadic = false;         ///< any number of values; several variadic inputs of one operator have equal counts
  int classes_of = -1;           ///< labels: each is an index into the last dimension of that input; -1: no labels
  std::string_view option = {};  ///< of a state: there is none where this attribute is false or 0; empty: always
  std::string_view key = {};     ///< of a state: what checkpoints append to the parameter's name; empty: `name`
  StateShape shape = StateShape::parameter;
  bool begins_with_gradient = false;  ///< of a state: OptimizerState::begins_with_gradient

  /// Whether its memory becomes a result's, which is its value after the step. The node's last outputs are these, one
  /// for each input that is there, in order: inference adds them, entries do not state them, and kernels are given one
  /// pointer for both (ir/call.h).
  bool donated() const { return role == InputRole::parameter || role == InputRole::state || role == InputRole::kept; }
  /// Whether the training loop sets it before each step.
  bool number() const {
    return role == InputRole::rate || role == InputRole::step || role == InputRole::seed || role == InputRole::part;
  }
  std::optional<DType> own_dtype() const {
    return number() ? role == InputRole::rate ? DType::f64 : DType::i64 : dtype;
  }
};

/// Numbers from `least` to `most`, without those two where they are excluded. NaN lies in none.
struct NumberRange {
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  bool excludes_least = false, excludes_most = false;
  bool contains(double x) const {
    return (excludes_least ? x > least : x >= least) && (excludes_most ? x < most : x <= most);
  }
  /// "[0, 1)"
  std::string to_string() const;
};

struct AttributeSpec {
  std::string_view name = {};
  AttributeType type;
  std::optional<Attribute> fallback = {};  ///< without one the attribute is required
  std::string_view doc = {};
  std::optional<NumberRange> range = {};
  std::string_view shown = {};  ///< what users call it: "betas[0]"; empty: `name`
};

/// The types of a node's inputs, which lie elsewhere; null for an input that is not there.
using InputTypes = std::span<const TensorType* const>;

/// What shape inference sees and sets.
class InferContext {
 public:
  InferContext(const OpDef& op, InputTypes inputs, Attributes& attributes)
      : attributes(attributes), op_(op), inputs_(inputs) {}

  const OpDef& op() const { return op_; }
  std::size_t input_count() const { return inputs_.size(); }
  bool has_input(std::size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  const TensorType& input(std::size_t i) const { return *inputs_[i]; }
  /// Appends an output.
  void output(DType dtype, Shape shape) { outputs.push_back({dtype, std::move(shape)}); }
  /// User error: "<op>: <message>" with the inputs listed below it.
  [[noreturn]] void fail(const std::string& message) const;
  void require(bool condition, std::string_view message) const {
    if (!condition) fail(std::string(message));
  }
  /// A message that is put together only where it is needed: shapes are inferred for every node after every pass.
  template <std::invocable Message>
  void require(bool condition, const Message& message) const {
    if (!condition) fail(message());
  }

  Attributes& attributes;  ///< inference may normalise them (negative dimensions, for example)
  std::vector<TensorType> outputs;

 private:
  const OpDef& op_;
  InputTypes inputs_;
};

/// What a gradient rule sees and sets. It adds nodes; it computes nothing, so backward gets every backend and every
/// fusion for free.
class GradientBuilder {
 public:
  GradientBuilder(Graph& graph, const Node& node, std::vector<ValueId> output_gradients, std::vector<bool> needed)
      : graph_(graph),
        node_(node),
        output_gradients_(std::move(output_gradients)),
        needed_(std::move(needed)),
        gradients_(node_.inputs.size(), kNone) {}

  ValueId input(std::size_t i) const { return node_.inputs[i]; }
  bool has_input(std::size_t i) const { return i < node_.inputs.size() && node_.inputs[i] != kNone; }
  std::size_t input_count() const { return node_.inputs.size(); }
  ValueId output(std::size_t i = 0) const { return node_.outputs[i]; }
  /// kNone when nothing flowed back into that output.
  ValueId output_gradient(std::size_t i = 0) const { return output_gradients_[i]; }
  /// Whether anybody asks for input i's gradient.
  bool needs(std::size_t i) const { return i < needed_.size() && needed_[i]; }
  const TensorType& type(ValueId v) const { return graph_.type(v); }
  const Attributes& attributes() const { return node_.attributes; }

  /// Adds a node of one output, in the backward phase, with this node's origins.
  ValueId call(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {});
  std::vector<ValueId> call_many(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {});
  /// A scalar of the dtype of `like`, broadcast where it is used.
  ValueId scalar(double value, ValueId like);
  /// Sums `gradient` over the dimensions that broadcasting added, to the type of input i, and sets it.
  void set_reduced(std::size_t i, ValueId gradient);
  /// As input i's dtype.
  void set(std::size_t i, ValueId gradient);
  const std::vector<ValueId>& gradients() const { return gradients_; }
  Graph& graph() { return graph_; }

 private:
  Graph& graph_;
  Node node_;  // a copy: adding nodes moves Graph::nodes
  std::vector<ValueId> output_gradients_;
  std::vector<bool> needed_;
  std::vector<ValueId> gradients_;
};

struct Cost {
  double flops = 0;
  double bytes = -1;  ///< negative: every input read once, every output written once
};

/// One line of the list of test cases that every backend runs.
struct TestCase {
  struct Input {
    TensorType type = {};
    double low = -1, high = 1;  ///< uniform in [low, high); integers inclusive of low, exclusive of high
    bool absent = false;
  };
  std::string note = {};
  std::vector<Input> inputs = {};
  Attributes attributes = {};
  bool gradient = true;  ///< compare the gradient with finite differences in double
  double tolerance = 0;  ///< relative, for f32; 0: the table's default for the dtype
};

/// A way to call an operator. Attributes and shapes decide, besides dtypes, which of the kernels' functions a node
/// becomes: an entry has as many forms as it takes to reach each of them. From these and the dtypes that it declares,
/// eager mode knows what to compile (ir/forms.h).
struct Form {
  Attributes attributes = {};
  std::vector<Shape> shapes = {};  ///< of the first inputs; of others: 4 x 4, of numbers [], optional ones are left out
};

/// What makes a weight's packed form.
struct Packing {
  const OpDef* op;
  Attributes attributes;
};

/// What becomes of a node where images lie in memory as [n, h, w, c] instead of [n, c, h, w] (choose_layout).
struct ImageLayout {
  enum class Rule : std::uint8_t {
    none,     ///< it takes [n, c, h, w] alone
    leads,    ///< its kernels read [n, h, w, c], wherever it stands: attribute 'channels_last'
    follows,  ///< it takes either as the attribute 'channels_last' says, and what its input is
    moves,    ///< it takes either: its attributes 'dim', 'pads' and 'input_shape' go by dimensions
    reduces,  ///< it takes either, and reduces the dimensions 'dims'
  } rule = Rule::none;
  std::size_t inputs = 1, outputs = 1;  ///< of `leads` and `follows`: so many, from the first on, are images
};

class Scalar;
class ElementRule;
class UpdateRule;
class RankRules;

enum class AmpClass : std::uint8_t { gray, white, black, clear };

struct OpDef {
  std::string_view name = {};
  std::string_view doc = {};  ///< the formula, layouts and the source of both
  std::vector<InputSpec> inputs = {};
  /// What the inputs may be that have no dtype of their own, all of them the same (operands of a functor: each for
  /// itself), and the attribute 'dtype'. There are kernels for each.
  DTypeSet dtypes = kFloating;
  std::vector<AttributeSpec> attributes = {};
  /// Names, where there are several: the first one's value is called after the node alone.
  std::vector<std::string_view> outputs = {};
  /// nullptr, of an elementwise operator: the inputs broadcast; bools where its rule gives them, else their dtype.
  void (*infer)(InferContext&) = nullptr;
  void (*gradient)(GradientBuilder&) = nullptr;  ///< nullptr: not differentiable
  std::size_t gradient_outputs = 1;              ///< through so many outputs, from the first on, gradients flow
  /// Elementwise operators have this: what they make of an element of each input (ir/element_rule.h). The others have
  /// kernels (codegen/lowering),
  Scalar (*scalar)(ElementRule&) = nullptr;
  /// What a node stands for in simpler operators, one after the other, the last one making its outputs; values between
  /// are added to the graph. Of operators that the passes put together out of several with epilogues of their own:
  /// eager execution and the oracle run these. nullptr: none.
  std::vector<Node> (*parts)(Graph&, const Node&) = nullptr;
  /// It stands for what kernels compute of other operators, and is put there by passes (ir/ops/lowered): no trace has
  /// it.
  bool lowered = false;
  /// Of a lowered operator: the one that it computes, whose inputs and attributes are its first ones; nullptr: several,
  /// or a part of one.
  const OpDef* lowers = nullptr;
  /// Of a lowered operator with these attributes: what makes the weight that the attribute 'packed' says it has, of
  /// that of the layer. nullptr: it packs none.
  Packing (*packing)(const Attributes&) = nullptr;
  ImageLayout layout = {};
  /// Which layouts over ranks its results have where its inputs have some (ir/rank_layout.h), besides all broadcast.
  /// nullptr: none; of an elementwise operator those of its elements.
  void (*rank_layouts)(RankRules&) = nullptr;
  bool alias = false;                       ///< or this: output 0 is input 0's memory under another shape (reshape)
  Cost (*cost)(const NodeView&) = nullptr;  ///< nullptr: elementwise cost
  /// What a call's comment adds to the shapes, which leave it open: "dim 1, 2:5". nullptr: nothing.
  std::string (*remark)(const NodeView&) = nullptr;
  AmpClass amp = AmpClass::gray;
  bool commutative = false;
  bool random = false;  ///< draws random numbers where it is given a seed: ir::is_random
  /// Ranks run it together. It is begun where the node stands and done when the node's phase is: only nodes of a later
  /// phase read its results.
  bool collective = false;
  bool by_rank = false;  ///< depends on which of several ranks computes it: never folded, never done beforehand
  bool packs = false;    ///< OpDef::packing of others; the reference kernels take the weight as it was
  /// An update: what it adds to the parameters is proportional to their gradients.
  bool change_is_proportional = false;
  void (*rule)(UpdateRule&) = nullptr;  ///< of an optimizer: its step (ir/update_rule.h)
  /// Of an optimizer: what is wrong with its options together, empty: nothing.
  std::string_view (*refusal)(const std::function<double(std::string_view)>& option) = nullptr;
  std::vector<Form> forms = {{}};
  std::function<std::vector<TestCase>()> cases = nullptr;  ///< for tests alone

  bool elementwise() const { return scalar != nullptr; }
  /// Nullptr where it has none of this name.
  const AttributeSpec* find_attribute(std::string_view attribute) const {
    for (const AttributeSpec& a : attributes)
      if (a.name == attribute) return &a;
    return nullptr;
  }
  /// Whether results take over the memory of inputs.
  bool donates() const {
    for (const auto& i : inputs)
      if (i.donated()) return true;
    return false;
  }
  /// There is one entry of each operator.
  friend bool operator==(const OpDef& a, const OpDef& b) { return &a == &b; }
};

/// Whether a node with these attributes has an input: a state that none of its options asks for it has not.
bool is_used(const InputSpec& input, const Attributes& attributes);

/// The operator whose `lowers` this is, or itself where there is none: its inputs are what kernels take.
const OpDef& lowered(const OpDef& op);

/// An optimizer's: it is given lists of parameters and of their gradients.
bool is_update(const OpDef& op);
/// It updates one parameter and computes the gradient as well: ops::linear_update.
bool updates_parameter(const OpDef& op);

/// Every operator, in the order of op_list.inc.
std::span<const OpDef* const> all_ops();
/// Nullptr when unknown.
const OpDef* find_op(std::string_view name);
/// User error naming the closest known operator when unknown.
const OpDef& get_op(std::string_view name);

/// Where input spec `spec` begins in a node's flat input list, and how many values it has. Optional inputs at the end
/// may be left out, behind several lists only the last one: where it would begin the list ends.
struct InputRange {
  std::size_t begin, count;
};
InputRange input_range(const OpDef& op, std::size_t flat_count, std::size_t spec);
/// Of the first input of this role, which the node's operator has.
InputRange input_range(const Node& node, InputRole role);
/// The first input spec of this role; as many as there are inputs where there is none.
std::size_t input_of(const OpDef& op, InputRole role);

/// The positions in a node's flat input list of those that are there and donated: InputSpec::donated().
std::vector<std::size_t> donated_inputs(const OpDef& op, std::span<const ValueId> inputs);
/// An input whose memory an output takes over, by position.
struct InPlace {
  std::size_t input, output;
};
std::vector<InPlace> donated_by(const Node& node);
/// The outputs that are no donated input's new value: they stand first.
std::span<const ValueId> own_outputs(const Node& node);

/// Checks dtypes and attributes against the declaration, fills in defaults, runs inference. User error on any mismatch.
std::vector<TensorType> infer(const OpDef& op, InputTypes inputs, Attributes& attributes);
std::vector<TensorType> infer(const OpDef& op, const std::vector<std::optional<TensorType>>& inputs,
                              Attributes& attributes);

Cost cost_of(const NodeView& node);

/// An estimate of the seconds that it takes, for comparing nodes with one another: arithmetic at 100 GFLOP/s, which
/// products reach on two cores with AVX2, behind memory traffic at 10 GB/s, which all else waits for.
double seconds_of(const Cost& cost);

}  // namespace graven::ir
