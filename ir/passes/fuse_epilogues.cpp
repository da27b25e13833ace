// Matrix products and convolutions finish each result in registers before they store it: a bias, an activation, a
// residual. An elementwise node that is the only reader of such a product, and everything that only it reads, becomes
// the epilogue of its lowered operator:
//
//   add(linear(x, w), bias)                 linear with a bias; likewise matmul and conv2d
//   relu(conv2d(x, w, bias))                lowered_conv2d, epilogue relu
//   relu(add(conv2d(x, w), shortcut))       lowered_conv2d, residual shortcut, epilogue add, relu
//   where(y > 0, linear_backward_input, 0)  lowered_linear_backward_input, residual y, epilogue "where(y > 0, x, 0)"
//
// An epilogue reads at most one tensor besides the product, of the same shape. The product moves to where its last
// absorbed reader stood.
#include <algorithm>
#include <cstring>
#include <map>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/passes/scalar_program.h"

namespace graven::ir {

namespace {

constexpr std::size_t kMostEpilogueSteps = 24;
constexpr int kMostDepth = 4;  // of an operand's own computation

class EpilogueFuser {
 public:
  EpilogueFuser(Graph& graph, const PassOptions& options)
      : graph_(graph),
        options_(options),
        uses_(graph),
        absorbed_(graph.nodes.size(), false),
        moved_to_(graph.nodes.size(), 0) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) moved_to_[n] = n;
  }

  void run() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (eligible(graph_.nodes[n])) fuse(n);
    // A product stands where its last absorbed reader stood.
    std::vector<Node> kept;
    kept.reserve(graph_.nodes.size());
    std::vector<std::size_t> here(graph_.nodes.size());
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) here[n] = n;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (!absorbed_[n] && moved_to_[n] != n) here[moved_to_[n]] = n;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (here[n] != n)
        kept.push_back(std::move(graph_.nodes[here[n]]));
      else if (!absorbed_[n] && moved_to_[n] == n)
        kept.push_back(std::move(graph_.nodes[n]));
    }
    graph_.nodes = std::move(kept);
  }

 private:
  /// What is being put together for one product.
  struct Draft {
    ScalarProgram program{.inputs = 2, .steps = {}};  // input 1 is dropped in the end if there is no residual
    ValueId residual = kNone;
    std::vector<std::size_t> nodes;  // absorbed
    std::map<std::pair<DType, std::uint64_t>, std::int32_t> numbers;
    std::int32_t next() const { return program.inputs + static_cast<std::int32_t>(program.steps.size()); }
  };

  static bool has(const Node& node, std::size_t input) {
    return node.inputs.size() > input && node.inputs[input] != kNone;
  }
  static void set(Node& node, std::size_t input, ValueId v) {
    if (node.inputs.size() <= input) node.inputs.resize(input + 1, kNone);
    node.inputs[input] = v;
  }

  bool eligible(const Node& node) const {
    const Attribute* const epilogue = node.attributes.find("epilogue");
    if (epilogue == nullptr ? &lowered(*node.op) == node.op : !std::get<ScalarProgram>(*epilogue).empty()) return false;
    // The reference kernels, for all that the fast ones do not cover, have no epilogue.
    const DType dtype = graph_.type(node.outputs[0]).dtype;
    const std::span<const DType> covered = options_.target->epilogues;
    return std::find(covered.begin(), covered.end(), dtype) != covered.end() &&
           !(options_.target->packs_weights && is_unpacked_convolution(node));
  }

  static bool is_unpacked_convolution(const Node& node) {
    return node.is(kConv2d, kConv2dBackwardInput) ||
           (node.is(kLoweredConv2d, kLoweredConv2dBackwardInput, kConv2dWinograd) && !node.attributes.flag("packed"));
  }

  void fuse(std::size_t n) {
    Node& node = graph_.nodes[n];
    const TensorType type = graph_.type(node.outputs[0]);
    ValueId y = node.outputs[0];
    std::size_t last = n;
    Origins origins = node.origins;
    if (const NodeId reader = uses_.only_reader(y); reader >= 0 && absorb_bias(node, graph_.nodes[at(reader)])) {
      last = at(reader);
      y = graph_.nodes[last].outputs[0];
      origins = merge(origins, graph_.nodes[last].origins);
      absorbed_[last] = true;
    }
    Draft draft;
    std::int32_t current = 0;
    while (true) {
      const NodeId reader = uses_.only_reader(y);
      if (reader < 0 || absorbed_[at(reader)]) break;
      const Node& next = graph_.nodes[at(reader)];
      if (!is_elementwise(next) || next.phase != node.phase || graph_.type(next.outputs[0]) != type) break;
      Draft attempt = draft;
      if (!absorb(attempt, at(reader), y, current, type, 0)) break;
      if (next.is(kAdd) && attempt.residual != draft.residual && graph_.flag(kNoAddToOutputFusion)) break;
      draft = std::move(attempt);
      current = draft.next() - 1;
      y = next.outputs[0];
      last = at(reader);
    }
    for (std::size_t a : draft.nodes) {
      absorbed_[a] = true;
      origins = merge(origins, graph_.nodes[a].origins);
    }
    if (last == n) return;
    if (!draft.program.steps.empty()) {
      if (draft.residual == kNone) drop_residual(draft.program);
      make_lowered(node);
      node.attributes.set("epilogue", draft.program);
      if (draft.residual != kNone) set(node, input_of(*node.op, InputRole::residual), draft.residual);
    }
    // The result keeps the product's name, which says its layer: "model.fc1.linear" rather than "model.relu_3", which
    // another relu would renumber.
    if (!uses_.is_result(y)) std::swap(graph_.value(y).name, graph_.value(node.outputs[0]).name);
    node.outputs[0] = y;
    node.origins = std::move(origins);
    moved_to_[n] = last;
  }

  /// add(product, b), b one number a column.
  bool absorb_bias(Node& node, const Node& add) {
    const std::size_t bias = input_of(*node.op, InputRole::bias);
    const ValueId y = node.outputs[0];
    if (!add.is(kAdd) || add.phase != node.phase || add.inputs[0] == add.inputs[1]) return false;
    if (bias == node.op->inputs.size() || has(node, bias)) return false;
    if (!node.attributes.flag_or("channels_last", true)) return false;
    // The result's last dimension is not the product's columns.
    if (node.is(kMatmul, kLoweredMatmul) && graph_.type(node.inputs[1]).shape.rank() == 1) return false;
    const ValueId b = add.inputs[0] == y ? add.inputs[1] : add.inputs[0];
    const TensorType& type = graph_.type(y);
    if (graph_.type(add.outputs[0]) != type || graph_.type(b).dtype != type.dtype) return false;
    // A reshape to [1, ..., 1, n], as broadcasting wants it, is looked through.
    ValueId column = b;
    if (const Node* reshape = uses_.maker(graph_, b); reshape && reshape->is(kReshape)) column = reshape->inputs[0];
    const Shape wide = graph_.type(b).shape, wanted{type.shape.back()};
    if (wide.empty() || wide.back() != type.shape.back() || wide.numel() != type.shape.back()) return false;
    if (graph_.type(b).shape == wanted) column = b;
    if (graph_.type(column).shape != wanted) return false;
    set(node, bias, column);
    return true;
  }

  std::int32_t number(Draft& draft, const Node& full) const {
    const DType dtype = full.attributes.dtype("dtype");
    const double value = full.attributes.number("value");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    const auto [known, fresh] = draft.numbers.emplace(std::pair(dtype, bits), draft.next());
    if (fresh) draft.program.steps.push_back({std::string(kFull.name), {}, {{"value", value}}, dtype});
    return known->second;
  }

  /// Adds node n to the draft; operand `y` (kNone: none) is the result so far, known as `current`.
  bool absorb(Draft& draft, std::size_t n, ValueId y, std::int32_t current, const TensorType& type, int depth) const {
    const Node& node = graph_.nodes[n];
    if (depth > kMostDepth || draft.program.steps.size() >= kMostEpilogueSteps) return false;
    if (casts_or_scales(graph_, uses_, node) && graph_.flag(kNoCastScaleFusion)) return false;
    const DType result = graph_.type(node.outputs[0]).dtype;
    if (result != type.dtype && result != DType::boolean) return false;
    ScalarProgram::Step step = step_of(graph_, node);
    for (ValueId v : node.inputs) {
      const Node* m = uses_.maker(graph_, v);
      if (v == y && y != kNone) {
        step.arguments.push_back(current);
      } else if (m && m->is(kFull)) {
        if (graph_.type(v).dtype != type.dtype && graph_.type(v).dtype != DType::boolean) return false;
        step.arguments.push_back(number(draft, *m));
      } else if (graph_.type(v).shape != type.shape) {
        return false;
      } else {
        Draft attempt = draft;
        const bool own =
            m && is_elementwise(*m) && m->phase == node.phase && uses_.only_reader(v) == static_cast<NodeId>(n);
        const std::size_t made = at(uses_.maker(v));
        if (own && !absorbed_[made] && absorb(attempt, made, kNone, 0, type, depth + 1)) {
          draft = std::move(attempt);
          step.arguments.push_back(draft.next() - 1);
        } else if (graph_.type(v) == type && (draft.residual == kNone || draft.residual == v)) {
          draft.residual = v;
          step.arguments.push_back(1);
        } else {
          return false;
        }
      }
    }
    draft.nodes.push_back(n);
    draft.program.steps.push_back(std::move(step));
    return true;
  }

  static void drop_residual(ScalarProgram& program) {
    program.inputs = 1;
    for (ScalarProgram::Step& s : program.steps)
      for (std::int32_t& a : s.arguments)
        if (a >= 2) --a;
  }

  Graph& graph_;
  const PassOptions& options_;
  Uses uses_;
  std::vector<bool> absorbed_;
  std::vector<std::size_t> moved_to_;  ///< by node: the position of its last absorbed reader
};

}  // namespace

void fuse_epilogues(Graph& graph, const PassOptions& options) {
  EpilogueFuser(graph, options).run();
  remove_dead_nodes(graph, options);
}

}  // namespace graven::ir
