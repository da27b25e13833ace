// Fuses elementwise nodes into `fused_elementwise`: one pass over memory for what took several, and nothing of it
// stored between. A group grows from its last node towards the inputs: a node joins when all of its readers are in the
// group and its result has the group's shape; what costs next to nothing (a comparison, a sign) is computed again in
// each group that reads it. Numbers (`full`) become constants of the program. A group reads at most 8 tensors, the
// limit of the kernels, and computes in one dtype, converting at its border.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/passes/scalar_program.h"

namespace graven::ir {

namespace {

constexpr std::size_t kMostInputs = 8;
constexpr std::size_t kMostFusedSteps = 64;  // a functor that a person can still read
constexpr std::size_t kMostCopies = 4;       // of a node that is computed again

class ElementwiseFuser {
 public:
  explicit ElementwiseFuser(Graph& graph)
      : graph_(graph),
        uses_(graph),
        groups_(graph.nodes.size()),
        member_of_(graph.nodes.size()),
        gone_(graph.nodes.size(), false) {}

  void run() {
    for (std::size_t n = graph_.nodes.size(); n-- > 0;) place(n);
    rewrite();
  }

 private:
  /// Grown from the node of its own index, the root.
  struct Group {
    std::vector<std::size_t> members;  ///< empty: this node is not a root
    std::set<ValueId> inputs;          ///< numbers aside
    std::optional<DType> dtype;        ///< that it computes in; nothing yet while all is boolean
    std::size_t steps = 0;
  };

  bool is_number(ValueId v) const {
    const Node* const maker = uses_.maker(graph_, v);
    return maker && maker->is(kFull);
  }
  const Shape& shape(ValueId v) const { return graph_.type(v).shape; }

  /// The dtype that a node computes in: that of its operands that are not boolean, or else of its result; nothing when
  /// all is boolean.
  std::optional<DType> compute_dtype(const Node& node) const {
    for (ValueId v : node.inputs)
      if (graph_.type(v).dtype != DType::boolean) return graph_.type(v).dtype;
    const DType result = graph_.type(node.outputs[0]).dtype;
    return result == DType::boolean ? std::nullopt : std::optional(result);
  }
  static bool is_narrow(DType d) { return d != DType::f32 && d != DType::f64; }

  /// Whether `node` can be computed inside a group that computes in `dtype`; `inner`: its result is not the group's.
  /// Sets `dtype` to what the group computes in afterwards.
  bool fits(const Node& node, std::optional<DType>& dtype, bool inner) const {
    std::optional<DType> own = compute_dtype(node);
    if (node.is(kCast)) {
      const DType from = graph_.type(node.inputs[0]).dtype, to = graph_.type(node.outputs[0]).dtype;
      if (from != DType::boolean && to != DType::boolean && from != to) {
        // Storing converts the group's result. Loading converts, too, to the dtype that the group has anyway; from a
        // wider one it would compute in that.
        if (inner && (!is_narrow(from) || is_narrow(to))) return false;
        own = inner ? to : from;
      }
    }
    if (dtype && own && *dtype != *own) return false;
    if (own) dtype = own;
    return true;
  }

  static bool is_cheap(const Node& node) {
    return node.is(kEq, kNe, kLt, kLe, kGt, kGe, kNeg, kAbs, kCast, kLogicalNot);
  }

  void place(std::size_t n) {
    const Node& node = graph_.nodes[n];
    if (!is_elementwise(node)) return;
    const bool alone = casts_or_scales(graph_, uses_, node) && graph_.flag(kNoCastScaleFusion);
    if (!alone && try_join(n)) return;
    Group group;
    if (!fits(node, group.dtype, false)) return;
    add(group, n);
    if (group.inputs.empty() || group.inputs.size() > kMostInputs) return;
    if (!alone) member_of_[n] = {n};
    groups_[n] = std::move(group);
  }

  void add(Group& group, std::size_t n) const {
    const Node& node = graph_.nodes[n];
    group.members.push_back(n);
    group.inputs.erase(node.outputs[0]);
    ++group.steps;
    for (ValueId v : node.inputs)
      if (!is_number(v)) group.inputs.insert(v);
  }

  /// Moves node n into the group, or groups, of its readers.
  bool try_join(std::size_t n) {
    const Node& node = graph_.nodes[n];
    const ValueId y = node.outputs[0];
    const auto& readers = uses_.readers(y);
    if (uses_.is_result(y) || readers.empty() || readers.size() > 64) return false;
    std::vector<std::size_t> roots;
    for (NodeId reader : readers) {
      const auto& memberships = member_of_[at(reader)];
      if (memberships.empty()) return false;
      for (std::size_t root : memberships)
        if (std::find(roots.begin(), roots.end(), root) == roots.end()) roots.push_back(root);
    }
    if (roots.size() > 1 && (!is_cheap(node) || roots.size() > kMostCopies || tensor_inputs(node) > 1)) return false;
    std::vector<Group> grown;
    for (std::size_t root : roots) {
      const Node& last = graph_.nodes[root];
      const Group& group = groups_[root];
      std::optional<DType> dtype = group.dtype;
      if (last.phase != node.phase || shape(last.outputs[0]) != shape(y) || group.steps >= kMostFusedSteps ||
          !fits(node, dtype, true))
        return false;
      // What only numbers go into has no shape of its own inside a program.
      if (tensor_inputs(node) == 0) return false;
      // The set is copied only while small: at most kMostInputs and a few more.
      std::set<ValueId> inputs = group.inputs;
      inputs.erase(y);
      for (ValueId v : node.inputs)
        if (!is_number(v)) inputs.insert(v);
      if (inputs.size() > kMostInputs || !keeps_shape(inputs, shape(y))) return false;
    }
    for (std::size_t root : roots) {
      fits(node, groups_[root].dtype, true);
      add(groups_[root], n);
    }
    member_of_[n] = std::move(roots);
    gone_[n] = true;
    return true;
  }
  std::size_t tensor_inputs(const Node& node) const {
    return static_cast<std::size_t>(
        std::count_if(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return !is_number(v); }));
  }
  /// Whether broadcasting the inputs alone gives the result's shape.
  bool keeps_shape(const std::set<ValueId>& inputs, const Shape& result) const {
    Shape all;
    for (ValueId v : inputs) {
      const auto both = broadcast(all, shape(v));
      if (!both) return false;
      all = *both;
    }
    return all == result;
  }

  void rewrite() {
    std::vector<Node> kept;
    kept.reserve(graph_.nodes.size());
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (gone_[n]) continue;
      Group& group = groups_[n];
      const bool numbers = !group.members.empty() && tensor_inputs(graph_.nodes[n]) < graph_.nodes[n].inputs.size();
      const bool worth =
          group.members.size() > 1 || (numbers && keeps_shape(group.inputs, shape(graph_.nodes[n].outputs[0])));
      if (!worth) {
        // Numbers are still to be looked at by the programs of later nodes.
        if (graph_.nodes[n].is(kFull))
          kept.push_back(graph_.nodes[n]);
        else
          kept.push_back(std::move(graph_.nodes[n]));
        continue;
      }
      std::sort(group.members.begin(), group.members.end());
      Node node{&kFusedElementwise, {}, {}, graph_.nodes[n].outputs, graph_.nodes[n].phase, {}};
      node.attributes.set("program", build(group, node));
      kept.push_back(std::move(node));
    }
    graph_.nodes = std::move(kept);
  }

  ScalarProgram build(const Group& group, Node& fused) {
    // The inputs stand in the order in which the computation reads them.
    std::map<ValueId, std::int32_t> place;
    for (std::size_t n : group.members)
      for (ValueId v : graph_.nodes[n].inputs)
        if (group.inputs.count(v) && place.emplace(v, static_cast<std::int32_t>(fused.inputs.size())).second)
          fused.inputs.push_back(v);
    ScalarProgram program;
    program.inputs = static_cast<std::int32_t>(fused.inputs.size());
    std::map<std::pair<DType, std::uint64_t>, std::int32_t> numbers;
    auto next = [&] { return program.inputs + static_cast<std::int32_t>(program.steps.size()); };
    for (std::size_t n : group.members) {
      const Node& node = graph_.nodes[n];
      ScalarProgram::Step step = step_of(graph_, node);
      for (ValueId v : node.inputs) {
        if (!is_number(v)) {
          step.arguments.push_back(place.at(v));
          continue;
        }
        const DType dtype = graph_.type(v).dtype;
        const double value = uses_.maker(graph_, v)->attributes.number("value");
        std::uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        const auto [known, fresh] = numbers.emplace(std::pair(dtype, bits), next());
        if (fresh) program.steps.push_back({std::string(kFull.name), {}, {{"value", value}}, dtype});
        step.arguments.push_back(known->second);
      }
      place[node.outputs[0]] = next();
      program.steps.push_back(std::move(step));
      fused.origins = merge(fused.origins, node.origins);
    }
    return program;
  }

  Graph& graph_;
  Uses uses_;
  std::vector<Group> groups_;                        ///< by node
  std::vector<std::vector<std::size_t>> member_of_;  ///< by node: the roots of its groups
  std::vector<bool> gone_;                           ///< by node: computed inside groups only
};

}  // namespace

void fuse_elementwise(Graph& graph, const PassOptions& options) {
  ElementwiseFuser(graph).run();
  remove_dead_nodes(graph, options);  // numbers that have become constants of programs
}

}  // namespace graven::ir
