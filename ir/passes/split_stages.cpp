// Makes stages of a graph whose modules have them (Graph::config, "stage_of.MODULE"): what one stage makes and another
// reads goes there by `receive`, forward to later stages and backward to earlier ones.
//
//   h = linear(x, w0, b0)    @ model.0       ->     h = linear(x, w0, b0)              stage 0
//   y = linear(h, w1, b1)    @ model.1              h1 = receive(h) {from=0, to=1}
//                                                   y = linear(h1, w1, b1)             stage 1
//
// What nothing but inputs, parameters and constants goes into, and no module with a stage computes (a mask), or what is
// one of these under another shape, is computed in each stage that reads it. An update of parameters of several stages
// becomes one of each, and what stands behind it, an average of weights, is computed where the parameter that it reads
// is updated. A parameter that several stages read belongs to the first of them: the others' parts of its gradient flow
// there, and it is they who get its new value from there (runtime_min/pipeline.h). A norm of gradients of several
// stages is that of the stages' own norms:
//
//   f = clip_factor(g0, g1)                ->    n0 = gradient_norm(g0)             n1 = gradient_norm(g1)
//   p0, p1 = sgd(p0, p1, f * g0, f * g1)         f0 = clip_factor(n0, receive(n1))  f1 = clip_factor(receive(n0), n1)
//                                                p0 = sgd(p0, f0 * g0)              p1 = sgd(p1, f1 * g1)
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/stages.h"

namespace graven::ir {

namespace {

std::string number(std::int32_t stage) { return "stage " + std::to_string(stage); }

class Split {
 public:
  /// `settles`: whatever reads nothing that a stage makes is computed in each, modules or not.
  Split(Graph& graph, bool settles)
      : graph_(graph),
        uses_(graph),
        stage_(stages_of_nodes(graph)),
        root_(memory_roots(graph)),
        settles_(settles),
        rewriter_(graph) {}

  void run() {
    for (std::size_t n = 0; n < rewriter_.old().size(); ++n) {
      const Node& node = rewriter_.old()[n];
      // What is an input or a parameter under another shape every stage has.
      const bool is_variable = node.op->alias && uses_.maker(root_[at(node.outputs[0])]) < 0;
      const bool may_be = node.phase == Phase::update ? !is_update(*node.op) && !gives_result(node)
                                                      : settles_ || is_variable || !has_module(node);
      is_free_[static_cast<NodeId>(n)] =
          may_be && !node.is(kReceive) && !node.op->donates() &&
          std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
            return uses_.maker(v) < 0 ? node.phase != Phase::update || stage_of(v) < 0 : is_free_(uses_.maker(v));
          });
    }
    for (std::size_t n = 0; n < rewriter_.old().size(); ++n) {
      Node node = rewriter_.old()[n];  // a copy: what reads it may need it once more
      if (node.phase == Phase::update)
        add_update(std::move(node), stage_[n]);
      else
        add(std::move(node), stage_[n]);
    }
    sort_by_phase(graph_);
  }

 private:
  /// Whether one of its modules has a stage.
  bool has_module(const Node& node) const {
    return std::any_of(node.origins.begin(), node.origins.end(),
                       [&](const Origin& o) { return stage_of_module(o.module) >= 0; });
  }
  std::int32_t stage_of_module(std::string module) const {
    for (;;) {
      if (const auto found = graph_.config.find(std::string(kStageOf) + module); found != graph_.config.end())
        return static_cast<std::int32_t>(std::get<std::int64_t>(found->second));
      const std::size_t dot = module.rfind('.');
      if (dot == std::string::npos) return -1;
      module.resize(dot);
    }
  }
  std::string place(const Node& node, std::int32_t stage) const {
    const std::string module = owner_of(node.origins);
    return (module.empty() ? std::string(node.op->name) : module) + " (" + number(stage) + ")";
  }

  /// The node that has the stage of `v` by a module of its own: its maker, or the one before it that it has it from.
  const Node& in_module(ValueId v) const {
    const NodeId n = uses_.maker(v);
    const Node& node = rewriter_.old()[at(n)];
    if (has_module(node)) return node;
    for (const ValueId input : node.inputs)
      if (input != kNone && uses_.maker(input) >= 0 && stage_[at(uses_.maker(input))] == stage_[at(n)])
        return in_module(input);
    return node;
  }
  [[noreturn]] void refuse(ValueId v, std::int32_t from, const Node& reader, std::int32_t to) const {
    const Node& maker = rewriter_.old()[at(uses_.maker(v))];
    const bool forward = maker.phase == Phase::forward;
    UserError error("set_stage: '" + graph_.value(v).name + "' " + graph_.type(v).to_string() + " flows from " +
                    place(in_module(v), from) + " to " + place(reader, to) +
                    (forward ? ": values flow to later stages" : ": gradients flow to earlier stages"));
    error.in(owner_of(reader.origins), std::string(reader.op->name));
    error.note("give the module that reads it a stage of at least " + std::to_string(from) +
               ", or the one that makes it an earlier one");
    error.at(reader.origins);
    throw error;
  }

  /// A module has the stage that was set, or there is an error.
  void require_its_own(const Node& node, std::int32_t stage) const {
    if (settles_ || node.phase != Phase::forward) return;
    for (const Origin& o : node.origins) {
      const std::int32_t own = stage_of_module(o.module);
      if (own < 0 || own >= stage) continue;
      for (const ValueId v : node.inputs)
        if (v != kNone && uses_.maker(v) >= 0 && stage_[at(uses_.maker(v))] > own)
          refuse(v, stage_[at(uses_.maker(v))], node, own);
    }
  }

  void add(Node node, std::int32_t stage) {
    require_its_own(node, stage);
    if (!node.is(kReceive))
      for (std::size_t i = 0; i < node.inputs.size(); ++i) node.inputs[i] = in_stage(node.inputs[i], stage, node);
    rewriter_.keep(std::move(node));
  }

  /// The value as a node of that stage reads it.
  ValueId in_stage(ValueId v, std::int32_t to, const Node& reader) {
    const NodeId m = uses_.maker(v);
    if (m < 0 || stage_[at(m)] == to) return v;
    if (const auto known = there_.find({v, to}); known != there_.end()) return known->second;
    const Node& maker = rewriter_.old()[at(m)];
    const std::int32_t from = stage_[at(m)];
    if (is_free_(m)) return computed_again(m, v, to, reader);
    if (maker.phase == Phase::forward ? from > to && reader.phase == Phase::forward : from < to)
      refuse(v, from, reader, to);
    const Phase phase = maker.phase == Phase::forward && from < to ? Phase::forward : Phase::backward;
    const ValueId received =
        rewriter_.add(kReceive, {v}, {{"from", std::int64_t{from}}, {"to", std::int64_t{to}}}, origins_in(reader, to),
                      phase, graph_.value(v).name + ".stage_" + std::to_string(to));
    return there_[{v, to}] = received;
  }

  /// Those of the reader's modules that are in the stage: whoever looks at the node again finds it there.
  Origins origins_in(const Node& reader, std::int32_t stage) const {
    Origins found;
    for (const Origin& o : reader.origins)
      if (stage_of_module(o.module) == stage) found.push_back(o);
    return found.empty() ? Origins{Origin{}} : found;
  }

  ValueId computed_again(NodeId m, ValueId v, std::int32_t to, const Node& reader) {
    Node copy = rewriter_.old()[at(m)];
    copy.origins = origins_in(reader, to);
    for (ValueId& input : copy.inputs) input = in_stage(input, to, reader);
    for (ValueId& output : copy.outputs) {
      const Value value = graph_.value(output);
      const ValueId own = graph_.add_value(value.name + ".stage_" + std::to_string(to), ValueKind::node, value.type);
      there_[{output, to}] = own;
      output = own;
    }
    rewriter_.keep(std::move(copy));
    return there_.at({v, to});
  }

  // ---- updates

  bool gives_result(const Node& node) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return uses_.is_result(v); });
  }

  /// The stage of what an update reads; -1: a number, or another that belongs to none.
  std::int32_t stage_of(ValueId v) {
    if (v == kNone || norms_.count(v) != 0) return -1;
    if (uses_.maker(v) >= 0) {
      const NodeId m = uses_.maker(v);
      return is_free_(m) ? -1 : stages_of_made_(v, stage_[at(m)]);
    }
    if (owners_.empty()) {
      for (const Donation& d : graph_.donations)
        if (graph_.value(d.variable).kind == ValueKind::sum) owners_[d.variable] = stage_[at(uses_.maker(d.value))];
      for (const Gradient& g : graph_.gradients)
        if (g.sum != kNone) owners_[g.parameter] = owners_[g.sum];
    }
    const auto found = owners_.find(v);
    return found == owners_.end() ? -1 : found->second;
  }
  std::int32_t stages_of_made_(ValueId v, std::int32_t otherwise) const {
    const auto found = updated_in_.find(v);
    return found == updated_in_.end() ? otherwise : found->second;
  }

  /// `otherwise`: the stage of one that reads nothing that has a stage.
  void add_update(Node node, std::int32_t otherwise) {
    if (node.is(kReceive)) {
      updated_in_[node.outputs[0]] = static_cast<std::int32_t>(node.attributes.integer("to"));
      return rewriter_.keep(std::move(node));
    }
    std::set<std::int32_t> stages;
    for (const ValueId v : node.inputs)
      if (const std::int32_t stage = stage_of(v); stage >= 0) stages.insert(stage);
    if (stages.size() > 1 && is_update(*node.op) && !updates_parameter(*node.op)) {
      const InputRange gradients = input_range(node, InputRole::gradient);
      std::map<std::int32_t, std::vector<std::size_t>> chosen;
      for (std::size_t i = 0; i < gradients.count; ++i) chosen[stage_of(node.inputs[gradients.begin + i])].push_back(i);
      if (chosen.size() > 1) {
        for (const auto& [stage, positions] : chosen) add_update(part_of_update(node, positions), stage);
        return;
      }
    }
    if (stages.size() > 1 && node.is(kClipFactor)) return add_norms(node);
    if (stages.size() > 1) {
      std::string list;
      for (const std::int32_t s : stages) list += (list.empty() ? "" : ", ") + std::to_string(s);
      throw UserError("set_stage: '" + std::string(node.op->name) + "', which belongs to the update, reads what " +
                      "stages " + list + " of " + graph_.name + " make: expected one stage")
          .note(graph_.config.count(std::string(kLossScale)) == 0
                    ? "behind the update a stage reads what it has updated itself: parameters of one stage alone"
                    : "set_grad_scaler() looks at the gradients of all stages at once: leave it out")
          .at(node.origins);
    }
    const std::int32_t stage = stages.empty() ? otherwise : *stages.begin();
    for (ValueId& v : node.inputs)
      if (norms_.count(v) != 0)
        v = factor_in(v, stage);
      else if (v != kNone && uses_.maker(v) >= 0 && is_free_(uses_.maker(v)))
        v = in_stage(v, stage, node);
    for (const ValueId v : node.outputs) updated_in_[v] = stage;
    rewriter_.keep(std::move(node));
  }

  /// Of a norm over the gradients of several stages: each computes that of its own.
  void add_norms(const Node& node) {
    const ValueId factor = node.outputs[0];
    Norms& norms = norms_.emplace(factor, Norms{node}).first->second;
    std::map<std::int32_t, std::vector<ValueId>> gradients;
    for (const ValueId v : node.inputs) gradients[stage_of(v)].push_back(v);
    for (const auto& [stage, own] : gradients) {
      const ValueId norm =
          rewriter_.add(kGradientNorm, own, {{"norm_type", node.attributes.number("norm_type")}}, node.origins,
                        Phase::update, graph_.value(factor).name + ".norm_of_stage_" + std::to_string(stage));
      norms.of_stage.emplace(stage, norm);
      updated_in_[norm] = stage;
    }
  }
  /// The factor, which each stage computes from the norms of all: the norm of these is that of all gradients.
  ValueId factor_in(ValueId factor, std::int32_t stage) {
    Norms& norms = norms_.at(factor);
    const auto [known, fresh] = norms.factors.emplace(stage, kNone);
    if (!fresh) return known->second;
    std::vector<ValueId> all;
    for (const auto& [from, norm] : norms.of_stage)
      all.push_back(from == stage
                        ? norm
                        : rewriter_.add(kReceive, {norm}, {{"from", std::int64_t{from}}, {"to", std::int64_t{stage}}},
                                        norms.node.origins, Phase::update,
                                        graph_.value(norm).name + ".stage_" + std::to_string(stage)));
    return known->second = rewriter_.add(kClipFactor, all, norms.node.attributes, norms.node.origins, Phase::update,
                                         graph_.value(factor).name + ".stage_" + std::to_string(stage));
  }

  Graph& graph_;
  const Uses uses_;
  const std::vector<std::int32_t> stage_;
  const std::vector<ValueId> root_;  ///< whose memory a value is
  const bool settles_;
  ByValue<bool> is_free_;  ///< by node
  Rewriter rewriter_;
  std::map<std::pair<ValueId, std::int32_t>, ValueId> there_;  ///< by value and stage
  std::map<ValueId, std::int32_t> owners_, updated_in_;
  struct Norms {
    Node node;  ///< the factor's, over all gradients
    std::map<std::int32_t, ValueId> of_stage = {}, factors = {};
  };
  std::map<ValueId, Norms> norms_;  ///< by factor
};

void require_operators(const Graph& graph) {
  const std::int32_t count = count_stages(graph);
  std::vector<bool> has_any(at(count), false);
  const std::vector<std::int32_t> stage = stages_of_nodes(graph);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].phase == Phase::forward && stage[n] < count) has_any[at(stage[n])] = true;
  const auto empty = std::find(has_any.begin(), has_any.end(), false);
  if (empty == has_any.end()) return;
  const auto none = static_cast<std::int32_t>(empty - has_any.begin());
  std::string modules;
  for (const auto& [key, value] : graph.config)
    if (key.starts_with(kStageOf) && std::get<std::int64_t>(value) == none)
      modules += (modules.empty() ? "" : ", ") + key.substr(kStageOf.size());
  throw UserError("set_stage: " + number(none) + " of " + graph.name + " computes nothing that a result needs (" +
                  modules + ")");
}

}  // namespace

void cross_stages(Graph& graph, bool settles) { Split(graph, settles).run(); }

void split_stages(Graph& graph, const PassOptions&) {
  // An evaluation may leave a stage nothing to do: a dropout is one of training alone.
  if (!graph.flag(kStagedEvaluation)) require_operators(graph);
  cross_stages(graph, false);
  // Whatever passes make once for several readers, a cast of an input, belongs to the first of them, and so to a stage
  // that all others may read it from.
  sort_by_stage(graph);
}

}  // namespace graven::ir
