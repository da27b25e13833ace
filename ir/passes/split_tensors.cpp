// Splits the tensors of a graph over ranks (Graph::config, "tensor_parallel"; ir/rank_layout.h): parameters and inputs
// as the user has marked them, the others so that ranks send one another the least.
//
//   h = linear(x, w0, b0)     w0 split(0)        h = linear(x, w0, b0)      f32[8,512] of 1024 features
//   h = relu(h)                             ->   h = relu(h)
//   y = linear(h, w1, b1)     w1 split(1)        t = linear(h, w1, convert_layout(b1) {from=broadcast, to=partial_sum})
//                                                y = convert_layout(t) {from=partial_sum, to=broadcast}
//
// Every operator says in which layouts its results come from which of its inputs (OpDef::rank_layouts). What a choice
// costs is the time of what the conversions send, and of the work that is left to each rank. The search begins with
// what follows from the marks, with the cheapest way of one node after the other, and with all whole; from each it
// changes one node or parameter at a time for as long as that helps, and it takes the best. Behind it shapes are those
// that one rank has.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/diagnostic.h"
#include "ir/passes/derive_evaluation.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/rank_layout.h"
#include "ir/stages.h"
#include "ir/update_rule.h"

namespace graven::ir {

namespace {

/// Of a conversion: what a rank sends at 1 GB/s, and 20 microseconds for a message; a call of a kernel takes one.
constexpr double kBytesPerSecond = 1e9, kMessageSeconds = 2e-5, kCallSeconds = 1e-6;

bool has_states_of_its_shape(const Node& update) {
  const OpDef& op = *update.op;
  return op.rule != nullptr && UpdateRule(op, update.attributes, false).norms().empty() &&
         std::all_of(op.inputs.begin(), op.inputs.end(),
                     [](const InputSpec& s) { return s.role != InputRole::state || s.shape == StateShape::parameter; });
}

/// Where each tensor lies: the variables' layouts and the nodes' ways, and what they cost.
class Search {
 public:
  explicit Search(const Graph& graph) : graph_(graph), ranks_(tensor_ranks(graph)) {
    find_blocks();
    find_places();
    find_variables();
    ways_.resize(graph.nodes.size());
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      if (!is_free_form(node)) ways_[n] = rank_layouts({graph, node}, ranks_, blocks_);
    }
    choice_.assign(graph.nodes.size(), 0);
    choose_blocks();
  }

  /// From each beginning to where no single change helps; the best of these is kept.
  void run() {
    std::optional<double> least;
    std::vector<std::size_t> choice;
    ByValue<std::size_t> variables;
    for (const Start start : {Start::following, Start::cheapest, Start::whole}) {
      begin(start);
      descend();
      const double cost = total();
      if (least && cost >= *least) continue;
      least = cost;
      choice = choice_;
      variables = variable_choice_;
    }
    choice_ = choice;
    variable_choice_ = variables;
  }

  std::int64_t ranks() const { return ranks_; }
  const RankLayouts* way(std::size_t n) const { return ways_[n].empty() ? nullptr : &ways_[n][choice_[n]]; }
  /// What is there behind the node that makes it, before it is converted to what the user has marked.
  RankLayout raw(ValueId v) const {
    if (const Place made = maker_(v); made.node >= 0) {
      const auto n = at(made.node);
      if (ways_[n].empty()) return layout_of_free_form(graph_.nodes[n], made.index);
      return ways_[n][choice_[n]].outputs[made.index];
    }
    return variable(v);
  }
  RankLayout home(ValueId v) const {
    const auto found = marks_.find(v);
    return found != marks_.end() && !is_variable_(v) ? found->second : raw(v);
  }
  /// Of a variable: its own, the one of the parameter whose state or sum it is, or the one in which the operator takes
  /// it that changes it. Whole otherwise.
  RankLayout variable(ValueId v) const {
    if (is_variable_(v)) return candidates_(v)[variable_choice_(v)];
    const Owner& owner = owners_(v);
    if (owner.parameter != kNone) return variable(owner.parameter);
    return owner.reader.node < 0
               ? RankLayout{}
               : ways_[at(owner.reader.node)][choice_[at(owner.reader.node)]].inputs[owner.reader.index];
  }
  /// In which a node reads an input.
  RankLayout demand(std::size_t n, std::size_t i) const {
    if (!ways_[n].empty()) return ways_[n][choice_[n]].inputs[i];
    const Node& node = graph_.nodes[n];
    if (is_update(*node.op)) return variable(parameter_of(node, i));
    if (node.is(kAccumulate, kAllReduce)) return layout_of_sum(node, i);
    const RankLayout own = home(node.inputs[i]);
    return own.is_partial() ? RankLayout{} : own;
  }
  /// In which the graph returns a value: whole, but for the scores of an evaluation, of which the ranks may have some
  /// classes each.
  RankLayout result(ValueId v) const {
    const RankLayout there = home(v);
    return v == scores_ && there == RankLayout::split(1) ? there : RankLayout{};
  }
  /// In which the graph itself reads a value.
  std::vector<RankLayout> results(ValueId v) const {
    std::vector<RankLayout> wanted;
    if (is_whole_(v)) wanted.push_back(result(v));
    for (const ValueId p : becomes_(v)) wanted.push_back(variable(variables_(p)));
    return wanted;
  }

 private:
  struct Place {
    NodeId node = -1;
    std::size_t index = 0;
  };

  /// Whose layout a variable has that has no choice of its own.
  struct Owner {
    ValueId parameter = kNone;
    Place reader;
  };

  /// Updates, and what takes any number of tensors as they are.
  static bool is_free_form(const Node& node) {
    return is_update(*node.op) || node.is(kClipFactor, kGradientNorm, kFiniteStep, kAccumulate, kAllReduce);
  }

  /// Of an update's input, the parameter of the same entry; kNone of numbers.
  ValueId parameter_of(const Node& node, std::size_t i) const {
    const InputRange parameters = input_range(node, InputRole::parameter);
    for (std::size_t s = 0; s < node.op->inputs.size(); ++s) {
      const InputRange range = input_range(*node.op, node.inputs.size(), s);
      if (i < range.begin || i >= range.begin + range.count) continue;
      const InputRole role = node.op->inputs[s].role;
      const bool is_of_parameter =
          role == InputRole::parameter || role == InputRole::gradient || role == InputRole::state;
      return is_of_parameter ? variables_(node.inputs[parameters.begin + (i - range.begin)]) : kNone;
    }
    return kNone;
  }
  /// Sums of a gradient, over parts and over ranks, have the layout of the parameter, as its memory has.
  RankLayout layout_of_sum(const Node& node, std::size_t input) const {
    const ValueId parameter = sums_of_(node.outputs[0]);
    return parameter != kNone && input < (node.is(kAccumulate) ? 2U : 1U) ? variable(parameter) : RankLayout{};
  }
  RankLayout layout_of_free_form(const Node& node, std::size_t output) const {
    if (node.is(kAccumulate, kAllReduce)) return layout_of_sum(node, 0);
    if (is_update(*node.op))
      for (const auto& [input, out] : donated_by(node))
        if (out == output) return variable(parameter_of(node, input));
    return {};
  }

  /// A dimension of which slices are cut may be split in as many blocks.
  void find_blocks() {
    std::set<std::int64_t> found{1};
    for (const Node& node : graph_.nodes) {
      if (!node.is(kSlice)) continue;
      const auto d = at(node.attributes.integer("dim"));
      const Dim &from = graph_.type(node.inputs[0]).shape[d], &to = graph_.type(node.outputs[0]).shape[d];
      if (from.is_static() && to.is_static() && to.value() > 0 && from.value() % to.value() == 0 &&
          node.attributes.integer("start") % to.value() == 0 && from.value() / to.value() <= 64)
        found.insert(from.value() / to.value());
    }
    blocks_.assign(found.begin(), found.end());
  }

  void find_places() {
    variables_ = variable_of(graph_);
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (node.inputs[i] != kNone) readers_[node.inputs[i]].push_back({static_cast<NodeId>(n), i});
      for (std::size_t i = 0; i < node.outputs.size(); ++i) maker_[node.outputs[i]] = {static_cast<NodeId>(n), i};
      for (const auto& [input, output] : donated_by(node)) {
        const ValueId v = node.inputs[input];
        if (maker_(v).node >= 0) continue;
        const ValueId parameter = is_update(*node.op) ? parameter_of(node, input) : kNone;
        if (parameter != kNone && parameter != variables_(v)) owners_[v].parameter = parameter;
        if (!is_free_form(node)) owners_[v].reader = {static_cast<NodeId>(n), input};
      }
    }
    for (const Gradient& g : graph_.gradients) {
      if (g.sum != kNone) owners_[g.sum].parameter = g.parameter;
      find_sums(g.value, g.parameter);
      for (const Donation& d : graph_.donations)
        if (d.variable == g.sum && g.sum != kNone) find_sums(d.value, g.parameter);
    }
    for (const ValueId v : graph_.outputs) is_whole_[v] = true;
    if (graph_.flag(kLayoutsChosen)) scores_ = scores_of(graph_);
    for (const Loss& l : graph_.losses) {
      is_whole_[l.value] = true;
      if (l.gradient != kNone) is_whole_[l.gradient] = true;
    }
    for (const Gradient& g : graph_.gradients) becomes_[g.value].push_back(g.parameter);
    for (const Donation& d : graph_.donations)
      if (const Place made = maker_(d.value); made.node < 0 || !graph_.nodes[at(made.node)].op->donates())
        becomes_[d.value].push_back(d.variable);
  }

  /// The sums over parts and ranks that a parameter's gradient is, before it is clipped or scaled.
  void find_sums(ValueId v, ValueId parameter) {
    for (Place made = maker_(v); made.node >= 0; made = maker_(v)) {
      const Node& node = graph_.nodes[at(made.node)];
      if (node.is(kAccumulate, kAllReduce)) {
        sums_of_[v] = parameter;
        if (node.is(kAccumulate)) owners_[node.inputs[0]].parameter = parameter;
        v = node.inputs[node.is(kAccumulate) ? 1 : 0];
      } else if (node.op->elementwise() && sums_of_(v) == kNone && !node.inputs.empty() &&
                 graph_.type(node.inputs[0]) == graph_.type(v)) {
        v = node.inputs[0];
      } else {
        return;
      }
    }
  }

  [[noreturn]] void refuse(ValueId v, const std::string& text) const {
    throw UserError("set_layout: " + graph_.value(v).name + " " + graph_.type(v).to_string() + ": " + text);
  }

  void find_variables() {
    const bool chosen = graph_.flag(kLayoutsChosen);
    std::map<std::string, std::string> texts;
    for (const auto& [key, value] : graph_.config)
      if (key.starts_with(kLayoutOf)) texts.emplace(key.substr(kLayoutOf.size()), std::get<std::string>(value));
    for (const auto& [name, text] : texts) {
      const std::optional<RankLayout> layout = RankLayout::parse(text);
      if (!layout)
        throw UserError("config." + std::string(kLayoutOf) + name + ": expected broadcast, split(dimension) or " +
                        "partial_sum, found '" + text + "'");
      const ValueId v = graph_.find(name);
      if (v == kNone && chosen) continue;  // of the training that this is an evaluation of
      if (v == kNone)
        throw UserError("set_layout: the graph " + graph_.name + " has a layout of '" + name +
                        "', which nothing that it trains or returns is computed from");
      marks_.emplace(v, *layout);
    }
    // What reads all of a parameter where it updates it.
    ByValue<const Node*> whole{nullptr};
    for (const Node& node : graph_.nodes)
      if (is_update(*node.op) && !has_states_of_its_shape(node)) {
        const InputRange parameters = input_range(node, InputRole::parameter);
        for (std::size_t i = 0; i < parameters.count; ++i) whole[variables_(node.inputs[parameters.begin + i])] = &node;
      }
    for (const ValueId v : graph_.parameters) {
      std::vector<RankLayout>& candidates = candidates_[v];
      is_variable_[v] = true;
      const auto mark = marks_.find(v);
      const Shape& shape = graph_.type(v).shape;
      const bool is_kept = owners_(v).reader.node >= 0;
      if (mark == marks_.end()) {
        candidates.push_back({});
        if (chosen || is_kept || whole(v) != nullptr || marks_.empty()) continue;
        for (std::size_t d = 0; d < shape.rank(); ++d)
          for (const std::int64_t b : blocks_)
            if (const RankLayout l = RankLayout::split(static_cast<std::int64_t>(d), b); can_have(shape, l, ranks_))
              candidates.push_back(l);
        continue;
      }
      const RankLayout layout = mark->second;
      if (layout.is_partial()) refuse(v, "expected split(dimension) or broadcast of a parameter, found partial_sum");
      if (layout.is_split() && whole(v) != nullptr)
        refuse(v, "expected an optimizer whose elements are updated one by one of what is split, found " +
                      std::string(whole(v)->op->name));
      if (layout.is_split() && is_kept) refuse(v, "a buffer that its operator changes cannot be split");
      if (!can_have(shape, layout, ranks_))
        refuse(v,
               layout.to_string() + " of " + std::to_string(ranks_) + " ranks: expected a dimension that they divide");
      if (layout.is_split() && !chosen) {
        candidates_in_blocks_[v] = true;
        for (const std::int64_t b : blocks_)
          if (const RankLayout l = RankLayout::split(layout.dim, b); can_have(shape, l, ranks_))
            candidates.push_back(l);
      } else {
        candidates.push_back(layout);
      }
    }
    for (const auto& [v, layout] : marks_)
      if (!is_variable_(v) && !can_have(graph_.type(v).shape, layout, ranks_))
        refuse(v,
               layout.to_string() + " of " + std::to_string(ranks_) + " ranks: expected a dimension that they divide");
      else if (layout.is_partial() && !is_floating(graph_.type(v).dtype))
        refuse(v, "expected a floating-point number, of which there are terms");
  }

  double bytes(ValueId v) const {
    const TensorType& t = graph_.type(v);
    return static_cast<double>(t.shape.numel().maximum()) * static_cast<double>(size_of(t.dtype));
  }
  double conversion(ValueId v, const RankLayout& from, const RankLayout& to) const {
    if (from == to) return 0;
    const double sent = bytes_sent(from, to, bytes(v), ranks_);
    return (sent > 0 ? sent / kBytesPerSecond + kMessageSeconds : 0) + kCallSeconds +
           seconds_of({.flops = 0, .bytes = bytes(v)});
  }
  /// Of a value: all conversions of it.
  double cost_of_value(ValueId v) const {
    const RankLayout made = raw(v), there = home(v);
    double cost = conversion(v, made, there);
    std::vector<RankLayout> wanted = results(v);
    for (const Place& reader : readers_(v)) wanted.push_back(demand(at(reader.node), reader.index));
    for (std::size_t i = 0; i < wanted.size(); ++i)
      if (std::find(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(i), wanted[i]) ==
          wanted.begin() + static_cast<std::ptrdiff_t>(i))
        cost += conversion(v, there, wanted[i]);
    return cost;
  }
  double cost_of_way(std::size_t n, std::size_t w) const {
    const RankLayouts& way = ways_[n][w];
    const double work = seconds_of(ir::cost_of({graph_, graph_.nodes[n]}));
    const auto is_split = [](const RankLayout& l) { return l.is_split(); };
    const bool shares = std::any_of(way.inputs.begin(), way.inputs.end(), is_split) ||
                        std::any_of(way.outputs.begin(), way.outputs.end(), is_split);
    return work / (shares ? static_cast<double>(ranks_) : 1) +
           (way.bytes > 0 ? way.bytes / kBytesPerSecond + 3 * kMessageSeconds : 0);
  }
  double total() const {
    double sum = 0;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) sum += cost_of_value(static_cast<ValueId>(v));
    for (std::size_t n = 0; n < ways_.size(); ++n)
      if (!ways_[n].empty()) sum += cost_of_way(n, choice_[n]);
    return sum;
  }

  /// How many slices that are cut out of what is made of `v` cannot be cut where it is in this layout.
  std::size_t slices_that_do_not_fit(ValueId v, const RankLayout& layout) const {
    std::size_t found = 0;
    std::vector<std::pair<ValueId, RankLayout>> to_do{{v, layout}};
    std::set<ValueId> seen{v};
    while (!to_do.empty()) {
      const ValueId value = to_do.back().first;
      const RankLayout own = to_do.back().second;
      to_do.pop_back();
      for (const Place& reader : readers_(value)) {
        const auto n = at(reader.node);
        if (graph_.nodes[n].phase != Phase::forward || ways_[n].empty()) continue;
        const auto way = std::find_if(ways_[n].begin(), ways_[n].end(),
                                      [&](const RankLayouts& w) { return w.inputs[reader.index] == own; });
        if (way == ways_[n].end()) {
          found += graph_.nodes[n].is(kSlice) ? 1 : 0;
          continue;
        }
        const ValueId result = graph_.nodes[n].outputs[0];
        if (way->outputs[0].is_split() && seen.insert(result).second) to_do.emplace_back(result, way->outputs[0]);
      }
    }
    return found;
  }

  /// Where q, k and v lie side by side, each rank has a part of each.
  void choose_blocks() {
    for (const ValueId v : graph_.parameters) {
      std::vector<RankLayout>& candidates = candidates_[v];
      if (!candidates_in_blocks_(v) || candidates.size() < 2) continue;
      std::vector<std::pair<std::size_t, RankLayout>> by_slices;
      by_slices.reserve(candidates.size());
      for (const RankLayout& l : candidates) by_slices.emplace_back(slices_that_do_not_fit(v, l), l);
      std::stable_sort(by_slices.begin(), by_slices.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      for (std::size_t i = 0; i < candidates.size(); ++i) candidates[i] = by_slices[i].second;
    }
  }

  /// What a search begins with: node after node the cheapest way of those that take what is computed as it is, or
  /// whole; the cheapest of all; or all whole.
  enum class Start : std::uint8_t { following, cheapest, whole };

  void begin(Start start) {
    for (const ValueId v : graph_.parameters) variable_choice_[v] = 0;
    for (std::size_t n = 0; n < ways_.size(); ++n) {
      const Node& node = graph_.nodes[n];
      choice_[n] = 0;
      double best = 0;
      for (std::size_t w = 0; w < (start == Start::whole ? 0 : ways_[n].size()); ++w) {
        double cost = cost_of_way(n, w);
        bool follows = true;
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
          if (node.inputs[i] == kNone) continue;
          const RankLayout there = home(node.inputs[i]), wanted = ways_[n][w].inputs[i];
          cost += conversion(node.inputs[i], there, wanted);
          follows = follows && (there == wanted || wanted.is_broadcast() || is_variable_(node.inputs[i]));
        }
        if (w > 0 && (cost >= best || (start == Start::following && !follows))) continue;
        best = cost;
        choice_[n] = w;
      }
      if (start == Start::following && node.phase == Phase::forward) follow_reader(n);
    }
  }

  /// A parameter that nobody has marked is at first as the first node that reads it takes it: a bias as its weight.
  void follow_reader(std::size_t n) {
    for (std::size_t i = 0; i < graph_.nodes[n].inputs.size() && !ways_[n].empty(); ++i) {
      const ValueId v = graph_.nodes[n].inputs[i];
      if (v == kNone || !is_variable_(v) || candidates_in_blocks_(v) || variable_choice_(v) != 0) continue;
      const auto& candidates = candidates_(v);
      const auto wanted = std::find(candidates.begin(), candidates.end(), ways_[n][choice_[n]].inputs[i]);
      if (wanted != candidates.end()) variable_choice_[v] = static_cast<std::size_t>(wanted - candidates.begin());
    }
  }

  /// The values whose conversions depend on a choice.
  double cost_around(const std::set<ValueId>& values) const {
    double sum = 0;
    for (const ValueId v : values) sum += cost_of_value(v);
    return sum;
  }
  bool improve_node(std::size_t n) {
    if (ways_[n].size() < 2) return false;
    std::set<ValueId> around;
    for (const ValueId v : graph_.nodes[n].inputs)
      if (v != kNone) around.insert(v);
    for (const ValueId v : graph_.nodes[n].outputs) around.insert(v);
    const std::size_t before = choice_[n];
    std::size_t best = before;
    double least = cost_around(around) + cost_of_way(n, before);
    for (std::size_t w = 0; w < ways_[n].size(); ++w) {
      if (w == before) continue;
      choice_[n] = w;
      if (const double cost = cost_around(around) + cost_of_way(n, w); cost < least * (1 - 1e-9)) {
        least = cost;
        best = w;
      }
    }
    choice_[n] = best;
    return best != before;
  }
  bool improve_variable(ValueId v) {
    if (candidates_(v).size() < 2) return false;
    std::set<ValueId> around{v};
    for (const Place& reader : readers_(v)) {
      const Node& node = graph_.nodes[at(reader.node)];
      if (!is_update(*node.op)) continue;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (node.inputs[i] != kNone && parameter_of(node, i) == v) around.insert(node.inputs[i]);
    }
    for (std::size_t u = 0; u < graph_.values.size(); ++u) {
      const auto& of = becomes_(static_cast<ValueId>(u));
      if (std::find(of.begin(), of.end(), v) != of.end() || variables_(static_cast<ValueId>(u)) == v)
        around.insert(static_cast<ValueId>(u));
      if (sums_of_(static_cast<ValueId>(u)) != v) continue;
      around.insert(static_cast<ValueId>(u));
      for (const ValueId input : graph_.nodes[at(maker_(static_cast<ValueId>(u)).node)].inputs)
        if (input != kNone) around.insert(input);
    }
    const std::size_t before = variable_choice_(v);
    std::size_t best = before;
    double least = cost_around(around);
    for (std::size_t c = 0; c < candidates_(v).size(); ++c) {
      if (c == before) continue;
      variable_choice_[v] = c;
      if (const double cost = cost_around(around); cost < least * (1 - 1e-9)) {
        least = cost;
        best = c;
      }
    }
    variable_choice_[v] = best;
    return best != before;
  }
  void descend() {
    constexpr int kMostRounds = 20;
    for (int round = 0; round < kMostRounds; ++round) {
      bool better = false;
      for (std::size_t n = 0; n < ways_.size(); ++n) better = improve_node(n) || better;
      for (const ValueId v : graph_.parameters) better = improve_variable(v) || better;
      for (std::size_t n = ways_.size(); n-- > 0;) better = improve_node(n) || better;
      if (!better) return;
    }
  }

  const Graph& graph_;
  const std::int64_t ranks_;
  std::vector<std::int64_t> blocks_;
  std::vector<std::vector<RankLayouts>> ways_;  ///< by node; none of updates
  std::vector<std::size_t> choice_;
  std::map<ValueId, RankLayout> marks_;
  ByValue<std::vector<RankLayout>> candidates_;  ///< of variables
  ByValue<std::size_t> variable_choice_;
  ByValue<bool> is_variable_, is_whole_, candidates_in_blocks_;
  ValueId scores_ = kNone;             ///< of an evaluation
  ByValue<Owner> owners_;              ///< of states, sums and buffers
  ByValue<ValueId> variables_{kNone};  ///< by version of one
  ByValue<ValueId> sums_of_{kNone};    ///< of a sum or mean of gradients: the parameter
  ByValue<Place> maker_;
  ByValue<std::vector<Place>> readers_;
  ByValue<std::vector<ValueId>> becomes_;  ///< variables that hold it, or whose gradient it is
};

/// Writes the graph that one rank runs.
class Splitter {
 public:
  Splitter(Graph& graph, const Search& search) : graph_(graph), search_(search), rewriter_(graph) {}

  void run() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const auto id = static_cast<ValueId>(v);
      whole_[id] = graph_.type(id);
      layout_[id] = search_.raw(id);
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const auto id = static_cast<ValueId>(v);
      graph_.value(id).type.shape = shape_on_rank(whole_(id).shape, layout_(id), search_.ranks());
    }
    for (const ValueId v : graph_.inputs) mark(v, {}, Phase::forward);
    for (std::size_t n = 0; n < rewriter_.old().size(); ++n) add(n);
    for (const std::vector<ValueId>* list : {&graph_.parameters, &graph_.states, &graph_.inputs})
      for (const ValueId v : *list) give(v, {}, Phase::forward);
    finish();
  }

 private:
  void add(std::size_t n) {
    Node node = rewriter_.old()[n];
    const RankLayouts* const way = search_.way(n);
    const std::vector<ValueId> outputs = node.outputs;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] != kNone)
        node.inputs[i] = in_layout(node.inputs[i], search_.demand(n, i), node.origins, node.phase);
    if (node.is(kClipFactor) || node.is(kGradientNorm)) join_norms(node, node.attributes.at("norm_type"));
    // The largest element of a part is finite where all are.
    if (node.is(kFiniteStep)) join_norms(node, std::numeric_limits<double>::infinity());
    if (way != nullptr && way->nodes != nullptr) {
      const std::vector<ValueId> made = way->nodes(graph_, node, node.inputs, search_.ranks());
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        GRAVEN_CHECK(graph_.type(made[i]) == graph_.type(outputs[i]), "a part of another type");
        graph_.swap_names(made[i], outputs[i]);
        stands_for_[outputs[i]] = made[i];
      }
    } else {
      if (way != nullptr)
        for (const auto& [key, value] : way->attributes) node.attributes.set(key, value);
      rewriter_.keep(node);
    }
    // What a phase completes is read in the next one.
    const Phase there = node.op->collective ? Phase::update : node.phase;
    for (const ValueId v : outputs) mark(v, node.origins, there);
    for (const ValueId v : outputs) give(v, node.origins, there);
  }

  /// What is asked of gradients together of which a rank has parts: of the norm of those alone that each rank has, and
  /// of the others.
  void join_norms(Node& node, const Attribute& norm_type) {
    std::vector<ValueId> parts, others;
    const std::size_t count = input_range(*node.op, node.inputs.size(), 0).count;
    for (std::size_t i = 0; i < count; ++i) (is_part_(node.inputs[i]) ? parts : others).push_back(node.inputs[i]);
    if (parts.empty()) return;
    const std::string name = graph_.value(node.outputs[0]).name;
    const ValueId own = graph_.add_node(kGradientNorm, parts, {{"norm_type", norm_type}}, node.origins, node.phase,
                                        name + ".own_norm")[0];
    const ValueId row =
        graph_.add_node(kReshape, {own}, {{"shape", Shape{1}}}, node.origins, node.phase, name + ".own_norm_row")[0];
    others.push_back(convert(row, RankLayout::split(0), {}, node.origins, node.phase, name + ".norms"));
    others.insert(others.end(), node.inputs.begin() + static_cast<std::ptrdiff_t>(count), node.inputs.end());
    node.inputs = others;
  }

  ValueId convert(ValueId v, const RankLayout& from, const RankLayout& to, const Origins& origins, Phase phase,
                  std::string name) {
    return graph_.add_node(kConvertLayout, {v},
                           {{"from", from.to_string()}, {"to", to.to_string()}, {"ranks", search_.ranks()}}, origins,
                           phase, std::move(name))[0];
  }
  /// To what the user has marked.
  void mark(ValueId v, const Origins& origins, Phase phase) {
    if (const RankLayout to = search_.home(v); !(to == layout_(v))) {
      stands_for_[v] = in_layout(v, to, origins, phase);
      is_marked_[v] = true;
    }
  }
  /// As the graph itself reads it.
  void give(ValueId v, const Origins& origins, Phase phase) {
    for (const RankLayout& to : search_.results(v)) in_layout(v, to, origins, phase);
  }
  ValueId in_layout(ValueId v, const RankLayout& to, const Origins& origins, Phase phase) {
    const RankLayout from = is_marked_(v) ? search_.home(v) : layout_(v);
    const ValueId there = stands_for_(v) == kNone ? v : stands_for_(v);
    if (from == to) {
      if (to.is_split()) is_part_[there] = true;
      return there;
    }
    const auto [known, fresh] = converted_.emplace(std::pair(v, to.to_string()), kNone);
    if (!fresh) return known->second;
    const char* const what = to.is_split() ? ".part" : to.is_partial() ? ".term" : ".whole";
    const ValueId made = convert(there, from, to, origins, phase, graph_.value(v).name + what);
    if (to.is_split()) is_part_[made] = true;
    converted_[{v, to.to_string()}] = made;
    return made;
  }

  void finish() {
    const auto whole = [&](ValueId& v) {
      if (v != kNone) v = in_layout(v, {}, {}, Phase::update);
    };
    const auto as_variable = [&](ValueId& v, ValueId variable) {
      v = in_layout(v, layout_(variable), {}, Phase::update);
    };
    for (ValueId& v : graph_.outputs) v = in_layout(v, search_.result(v), {}, Phase::update);
    for (Loss& l : graph_.losses) {
      whole(l.value);
      whole(l.gradient);
    }
    for (Gradient& g : graph_.gradients) as_variable(g.value, g.parameter);
    for (Donation& d : graph_.donations) as_variable(d.value, d.variable);
    std::erase_if(graph_.config, [](const auto& entry) { return entry.first.starts_with(kLayoutOf); });
    graph_.config[std::string(kLayoutsChosen)] = true;
    for (const std::vector<ValueId>* list : {&graph_.parameters, &graph_.states})
      for (const ValueId v : *list)
        if (layout_(v).is_split())
          graph_.config[std::string(kLayoutOf) + graph_.value(v).name] = layout_(v).to_string();
    sort_by_phase(graph_);
    graph_.compact();
  }

  Graph& graph_;
  const Search& search_;
  Rewriter rewriter_;
  ByValue<TensorType> whole_;
  ByValue<RankLayout> layout_;
  ByValue<bool> is_marked_, is_part_;
  ByValue<ValueId> stands_for_{kNone};
  std::map<std::pair<ValueId, std::string>, ValueId> converted_;
};

void require_alone(const Graph& graph, const char* what, bool asks) {
  if (asks)
    throw UserError("the graph " + graph.name + " has tensors in parts over ranks (enable_tensor_parallel), and asks " +
                    "for " + what + ": one of the two");
}

}  // namespace

void split_tensors(Graph& graph, const PassOptions&) {
  require_alone(graph, "stages of a pipeline (set_stage)", has_stages(graph));
  require_alone(graph, "shards of states, gradients or parameters (enable_zero)", graph.number(kZeroStage).has_value());
  const Graph whole = graph;
  Search search(whole);
  search.run();
  Splitter(graph, search).run();
}

}  // namespace graven::ir
