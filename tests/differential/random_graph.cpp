#include "tests/differential/random_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "ir/diagnostic.h"
#include "ir/op.h"
#include "ir/optimizer_kind.h"
#include "ir/passes/passes.h"
#include "tests/ops/backends.h"
#include "tests/passes/graphs.h"

namespace graven::tests {

using ir::Attributes;
using ir::Dim;
using ir::DType;
using ir::Graph;
using ir::Ints;
using ir::OpDef;
using ir::Shape;
using ir::TensorData;
using ir::TensorType;
using ir::TestCase;
using ir::ValueId;
using ir::ValueKind;

namespace {

constexpr std::int64_t kMaximumElements = 4096;
constexpr double kLarge = 100, kChange = 1e-6;

std::uint64_t hash(std::string_view text) {  // FNV-1a
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

/// SplitMix64 (Steele et al. 2014).
class Random {
 public:
  /// Neighbouring seeds begin far apart: a state that is the seed times the increment would only shift one stream.
  explicit Random(std::uint64_t seed) : state_(hash(std::to_string(seed))) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  bool one_in(std::size_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

/// The dtypes that a random graph holds: halves round so much that nothing could be compared behind them; tests/ops has
/// them one by one.
bool is_taken(DType d) { return d != DType::f16 && d != DType::bf16; }

/// Operators and cases that a user's graph may hold, before any pass.
bool is_user_level(const OpDef& op) { return op.cases && !op.donates() && !op.lowered && op.name != "full"; }
bool is_user_level(const TestCase& c) {
  if (c.attributes.flag_or("channels_last", false)) return false;
  for (const auto& [name, value] : c.attributes) {
    if (const auto* program = std::get_if<ir::ScalarProgram>(&value); program && !program->empty()) return false;
    if (const auto* dtype = std::get_if<DType>(&value); dtype && !is_taken(*dtype)) return false;
  }
  for (const TestCase::Input& i : c.inputs) {
    if (i.absent) continue;
    if (!is_taken(i.type.dtype) || !i.type.shape.is_static()) return false;
    if (i.type.shape.numel().value() > kMaximumElements) return false;
  }
  return true;
}

class Builder {
 public:
  explicit Builder(std::uint64_t seed) : random_(seed) {
    graph_.name = fmt::format("Random{}", seed);
    for (const OpDef* op : ir::all_ops())
      if (is_user_level(*op)) ops_.push_back(op);
  }

  Graph run() {
    const std::size_t wanted = 4 + random_.below(24);
    for (std::size_t tries = 0, made = 0; made < wanted && tries < 10 * wanted; ++tries) {
      block_ = fmt::format("block{}", made);
      made += step() ? 1 : 0;
    }
    return finish();
  }

 private:
  struct Entry {
    ValueId value;
    std::vector<double> elements, changed;  ///< as computed, and with changed leaves
    bool trains = false;                    ///< a parameter's gradient may flow through it
    bool cut = false;                       ///< a trained parameter moves it in a way that no gradient tells of
  };

  const TensorType& type(const Entry& e) const { return graph_.type(e.value); }

  Entry leaf(const TestCase::Input& input) {
    const bool floating = ir::is_floating(input.type.dtype);
    const std::string name = fmt::format("leaf{}", leaves_++);
    const std::size_t kind = random_.below(7);
    Entry e;
    if (kind == 0) {
      auto data = std::make_shared<TensorData>(random_tensor(input.type, input.low, input.high, hash(name)));
      e.value = graph_.add_constant(name, data);
      e.elements = e.changed = as_doubles(*data);
      return e;
    }
    graph_.config["low:" + name] = input.low;
    graph_.config["high:" + name] = input.high;
    if (floating && kind < 4) {
      e.value = graph_.add_parameter(name, input.type, kind != 1);
      e.trains = kind != 1;
    } else {
      e.value = kind == 6 ? graph_.add_buffer(name, input.type) : graph_.add_input(name, input.type);
    }
    e.elements = contents(e.value, 0);
    e.changed = contents(e.value, kChange);
    if (kind == 6) buffers_.push_back(e);
    return e;
  }

  std::vector<double> contents(ValueId v, double change) {
    Graph alone;  // leaves are drawn by name
    alone.config = graph_.config;
    alone.add_input(graph_.value(v).name, graph_.type(v));
    return as_doubles(leaves_of(alone, change).at(0));
  }

  /// Adds a node and computes it. Absent inputs have kNone.
  std::optional<std::vector<Entry>> add(const OpDef& op, const std::vector<Entry>& inputs,
                                        const Attributes& attributes) {
    std::vector<ValueId> ids;
    Graph alone;
    std::vector<ValueId> alone_ids;
    std::vector<TensorData> given, given_changed;
    bool trains = false, cut = false;
    for (const Entry& e : inputs) {
      ids.push_back(e.value);
      if (e.value == ir::kNone) {
        alone_ids.push_back(ir::kNone);
        continue;
      }
      trains = trains || e.trains;
      cut = cut || e.cut;
      alone_ids.push_back(alone.add_input(fmt::format("x{}", given.size()), type(e)));
      for (auto [elements, list] : {std::pair(&e.elements, &given), std::pair(&e.changed, &given_changed)}) {
        TensorData wide{{DType::f64, type(e).shape}, std::vector<std::byte>(elements->size() * sizeof(double))};
        if (!elements->empty()) std::memcpy(wide.bytes.data(), elements->data(), wide.bytes.size());
        list->push_back(ir::is_floating(type(e).dtype) ? wide : eager::convert(wide, type(e).dtype));
      }
    }
    try {
      alone.outputs = alone.add_node(op, alone_ids, attributes, {{"alone", {}, 0}});
      if (trains && op.gradient && !all_flow(alone, inputs)) return std::nullopt;
      // Without running statistics there are no new ones.
      if (op.name == "batch_norm_training" && inputs[3].value == ir::kNone) alone.outputs.resize(3);
      for (ValueId v : alone.outputs)
        if (!is_taken(alone.type(v).dtype) || alone.type(v).shape.numel().value() > kMaximumElements)
          return std::nullopt;
      const Computed computed = run_oracle(alone, given), moved = run_oracle(alone, given_changed);
      std::vector<Entry> results;
      for (std::size_t i = 0; i < computed.outputs.size(); ++i) {
        Entry e{ir::kNone, as_doubles(computed.outputs[i]), as_doubles(moved.outputs[i]),
                trains && op.gradient != nullptr && i < op.gradient_outputs};
        for (std::size_t k = 0; k < e.elements.size(); ++k) {
          const double x = e.elements[k];
          if (!std::isfinite(x) || std::fabs(x) > kLarge) return std::nullopt;
          if (!(std::fabs(x - e.changed[k]) <= 100 * kChange * (1 + std::fabs(x)))) return std::nullopt;
        }
        // Gradients flow from some results alone. Without a rule, only what is constant piece by piece (rounding,
        // comparisons) has none to tell of.
        e.cut =
            cut || (trains && (i >= op.gradient_outputs || op.name == "detach" || (!op.gradient && !op.elementwise())));
        e.trains = e.trains && ir::is_floating(alone.type(alone.outputs[i]).dtype);
        results.push_back(std::move(e));
      }
      const std::vector<ValueId> made = graph_.add_node(op, ids, attributes, {{block_, "random.cpp", ++line_}});
      for (std::size_t i = 0; i < results.size(); ++i) results[i].value = made[i];
      // What a gradient cannot flow through also stops it behind.
      if (trains && !op.gradient)
        for (Entry& e : results) e.trains = false;
      return results;
    } catch (const UserError&) {
      return std::nullopt;  // the operator refuses what was drawn
    }
  }
  /// Whether the gradient rule of the last node has an answer for each input that trains: some inputs (running
  /// statistics) are constants to it.
  static bool all_flow(const Graph& alone, const std::vector<Entry>& inputs) {
    Graph g = alone;
    const ir::Node node = g.nodes.back();
    std::vector<ValueId> gradients;
    for (ValueId v : node.outputs) gradients.push_back(gradients.empty() ? g.add_input("dy", g.type(v)) : ir::kNone);
    std::vector<bool> needed;
    for (const Entry& e : inputs) needed.push_back(e.value != ir::kNone && e.trains);
    ir::GradientBuilder builder(g, node, gradients, needed);
    node.op->gradient(builder);
    for (std::size_t i = 0; i < needed.size(); ++i)
      if (needed[i] && builder.gradients()[i] == ir::kNone) return false;
    return true;
  }
  std::optional<Entry> add(std::string_view op, const std::vector<Entry>& inputs, const Attributes& attributes = {}) {
    auto made = add(ir::get_op(op), inputs, attributes);
    if (!made) return std::nullopt;
    return std::move((*made)[0]);
  }
  std::optional<Entry> number(double value, DType dtype) {
    return add("full", {}, {{"shape", Shape{}}, {"value", value}, {"dtype", dtype}});
  }

  /// The entry with this many elements and this shape; none when it is too small.
  std::optional<Entry> shaped(Entry e, const Shape& shape) {
    if (type(e).shape == shape) return e;
    const std::int64_t have = type(e).shape.numel().value(), need = shape.numel().value();
    if (have < need || need == 0) return std::nullopt;
    if (have > need) {
      auto flat = add("reshape", {e}, {{"shape", Shape{have}}});
      if (flat)
        flat = add("slice", {*flat}, {{"dim", std::int64_t{0}}, {"start", std::int64_t{have - need}}, {"end", have}});
      if (!flat) return std::nullopt;
      e = *flat;
    }
    return add("reshape", {e}, {{"shape", shape}});
  }

  /// The entry with every element in [low, high).
  std::optional<Entry> limited(Entry e, double low, double high) {
    const auto inside = [&](double x) { return x >= low && x < high; };
    if (std::all_of(e.elements.begin(), e.elements.end(), inside)) return e;
    if (!ir::is_floating(type(e).dtype)) return std::nullopt;
    // Well-behaved operators take more than their cases' default limits.
    if (low == -1 && high == 1 && random_.one_in(2)) return e;
    const DType dtype = type(e).dtype;
    auto y = add("sigmoid", {e});
    auto width = number((high - low) * 0.98, dtype), start = number(low + (high - low) * 0.01, dtype);
    if (y && width) y = add("mul", {*y, *width});
    if (y && start) y = add("add", {*y, *start});
    return y && std::all_of(y->elements.begin(), y->elements.end(), inside) ? y : std::nullopt;
  }

  Entry input(const TestCase::Input& wanted) {
    if (wanted.absent) return {ir::kNone, {}, {}, false};
    for (int tries = 0; tries < 3 && !pool_.empty() && !random_.one_in(4); ++tries) {
      // Recent values first: deep graphs.
      const std::size_t back =
          random_.one_in(3) ? random_.below(pool_.size()) : random_.below(std::min<std::size_t>(pool_.size(), 5));
      const Entry& candidate = pool_[pool_.size() - 1 - back];
      if (type(candidate).dtype != wanted.type.dtype) continue;
      if (auto e = shaped(candidate, wanted.type.shape))
        if (auto limited_entry = limited(std::move(*e), wanted.low, wanted.high)) return std::move(*limited_entry);
    }
    Entry e = leaf(wanted);
    pool_.push_back(e);
    return e;
  }

  bool step() {
    const OpDef& op = *ops_[random_.below(ops_.size())];
    const std::vector<TestCase> cases = op.cases();
    if (cases.empty()) return false;
    const TestCase& c = cases[random_.below(cases.size())];
    if (!is_user_level(c)) return false;
    std::vector<Entry> inputs;
    for (const TestCase::Input& i : c.inputs) inputs.push_back(input(i));
    // Elementwise operators broadcast: another shape now and then.
    if (op.elementwise() && inputs.size() > 1 && !pool_.empty() && random_.one_in(2)) {
      const Entry& other = pool_[random_.below(pool_.size())];
      if (type(other).dtype == type(inputs[1]).dtype)
        if (auto e = limited(other, c.inputs[1].low, c.inputs[1].high)) inputs[1] = *e;
    }
    // And numbers: a mask alone may choose between two of them.
    if (op.elementwise() && inputs.size() > 1 && random_.one_in(4)) {
      const std::size_t first = op.name == "where" ? 1 : random_.below(inputs.size());
      for (std::size_t i = first; i < inputs.size(); ++i) {
        const DType dtype = inputs[i].value == ir::kNone ? DType::boolean : type(inputs[i]).dtype;
        const double at =
            c.inputs[i].low + (c.inputs[i].high - c.inputs[i].low) * static_cast<double>(random_.below(8)) / 8;
        if (ir::is_floating(dtype))
          if (auto n = number(at, dtype)) inputs[i] = *n;
      }
    }
    // The gradient of some cases is another than differences find: that of a padding, or of several elements written to
    // one place.
    const bool trains = std::any_of(inputs.begin(), inputs.end(), [](const Entry& e) { return e.trains; });
    if (trains && op.gradient && !c.gradient) return false;
    auto results = add(op, inputs, c.attributes);
    if (!results) return false;
    for (Entry& e : *results) pool_.push_back(std::move(e));
    return true;
  }

  /// New contents for buffers, as they are recorded: behind all else, one after the other. What another one was before
  /// is among them.
  void assign_buffers(bool statistics_alone) {
    std::set<ValueId> assigned;
    std::vector<std::pair<ValueId, ValueId>> assignments;
    for (const ir::Node& n : graph_.nodes) {
      if (n.op->name != "batch_norm_training") continue;
      for (std::size_t i = 3; i < n.inputs.size() && i < n.outputs.size();
           ++i)  // the running statistics, as the frontend records them
        if (n.inputs[i] != ir::kNone && graph_.value(n.inputs[i]).kind == ValueKind::buffer &&
            assigned.insert(n.inputs[i]).second)
          assignments.emplace_back(n.inputs[i], n.outputs[i]);
    }
    for (const Entry& buffer : buffers_) {
      if (statistics_alone) break;
      if (assigned.count(buffer.value) || random_.one_in(3)) continue;
      block_ = fmt::format("assign{}", buffer.value);
      for (int tries = 0; tries < 8; ++tries) {
        const Entry& drawn = pool_[random_.below(pool_.size())];
        if (drawn.value == buffer.value || type(drawn).dtype != type(buffer).dtype) continue;
        const Shape shape = type(buffer).shape;
        const auto value = shaped(drawn, shape);
        if (!value) continue;
        assignments.emplace_back(buffer.value, value->value);
        break;
      }
    }
    for (const auto& [buffer, value] : assignments) graph_.donations.push_back({buffer, value});
  }

  Graph finish() {
    block_ = "loss";
    // What nobody reads yet, or any, as results.
    std::vector<Entry> ends;
    for (std::size_t i = pool_.size(); i-- > 0 && ends.size() < 4;)
      if (ends.empty() || !random_.one_in(3)) ends.push_back(pool_[i]);
    std::optional<Entry> loss;
    if (!random_.one_in(3))
      for (std::size_t i = pool_.size(), parts = 0; i-- > 0 && parts < 4;) {
        const Entry& e = pool_[i];
        if (!e.trains || e.cut || type(e).dtype != DType::f32 || e.elements.empty()) continue;
        auto part = add("tanh", {e});
        if (part) part = add("square", {*part});
        if (part) part = add("mean", {*part}, {{"dims", Ints{}}});
        if (!part) continue;
        if (loss) part = add("add", {*loss, *part});
        if (part) loss = part, ++parts;
      }
    for (const Entry& e : ends)
      if (std::find(graph_.outputs.begin(), graph_.outputs.end(), e.value) == graph_.outputs.end())
        graph_.outputs.push_back(e.value);
    if (loss) {
      graph_.training = true;
      graph_.outputs.insert(graph_.outputs.begin(), loss->value);
      graph_.losses = {{loss->value, ir::kNone}};
      train_reached_parameters();
    }
    Graph unassigned = graph_;
    assign_buffers(false);
    if (graph_.training && !differentiated()) {
      // A gradient needs what is overwritten; running statistics are always recorded.
      graph_ = unassigned;
      assign_buffers(true);
      if (!differentiated()) {
        graph_ = std::move(unassigned);
        graph_.losses.clear();
        graph_.optimizers.clear();
        graph_.training = false;
      }
    }
    make_trees(graph_);
    return std::move(graph_);
  }

  /// Any kind with any of its options, and clipped or not. Large eps: elsewhere the first steps are hardly more than
  /// the gradients' signs. LAMB decays, as a direction of nothing but rounding would be made as long as any.
  ir::Optimizer draw_optimizer() {
    const auto maybe = [&](double value) { return random_.one_in(2) ? value : 0.0; };
    // Where an update goes by a sign alone, a rounding may turn it.
    std::vector<ir::OptimizerKind> kinds = ir::optimizer_kinds();
    std::erase_if(kinds, [](const ir::OptimizerKind& k) { return k.name == "rprop" || k.name == "lion"; });
    const ir::OptimizerKind& kind = kinds[random_.below(kinds.size())];
    std::map<std::string, double> options = {{"lr", 0.1}};
    for (const ir::AttributeSpec& a : ir::get_op(kind.op).attributes) {
      const std::string name(a.name);
      if (std::any_of(kind.fixed.begin(), kind.fixed.end(), [&](const auto& f) { return f.first == name; })) continue;
      if (a.type == ir::AttributeType::boolean)
        options[name] = maybe(1);
      else if (name == "eps" || name == "eps1")
        options[name] = 0.1;
      else if (name == "beta2_decay")
        options[name] = -0.5 - maybe(0.3);
      else if (name == "d")
        options[name] = 1 + maybe(1);
      else if (name == "beta1" || name == "beta2" || name == "alpha" || name == "rho")
        options[name] = 0.5 + maybe(0.4);
      else
        options[name] = kind.name == "lamb" ? 0.1 : maybe(0.25);
    }
    if (options.count("nesterov") && (options["momentum"] == 0 || options["dampening"] != 0)) options["nesterov"] = 0;
    if (random_.one_in(3)) {
      constexpr double kOrders[] = {1, 2, 3, std::numeric_limits<double>::infinity()};
      options[std::string(ir::kClipMaxNorm)] = random_.one_in(2) ? 0.01 : 10;
      options[std::string(ir::kClipNormType)] = kOrders[random_.below(std::size(kOrders))];
    }
    return {.kind = std::string(kind.name), .groups = {{{}, std::move(options)}}, .schedule = {}};
  }

  /// None for an operator without gradient, nothing to train, or what a gradient needs and is overwritten.
  std::optional<Graph> differentiated() const {
    Graph g = graph_;
    try {
      ir::differentiate(g, {});
      return g;
    } catch (const UserError&) {
      return std::nullopt;
    }
  }

  /// An optimizer over the parameters that the loss has a gradient for.
  void train_reached_parameters() {
    const std::optional<Graph> differentiated_graph = differentiated();
    if (!differentiated_graph) {  // inference, then
      graph_.losses.clear();
      graph_.training = false;
      return;
    }
    ir::Optimizer optimizer = draw_optimizer();
    for (const ir::Gradient& gradient : differentiated_graph->gradients)
      optimizer.groups[0].parameters.push_back(graph_.find(differentiated_graph->value(gradient.parameter).name));
    if (optimizer.groups[0].parameters.empty()) {
      graph_.losses.clear();
      graph_.training = false;
      return;
    }
    graph_.optimizers = {std::move(optimizer)};
  }

  Graph graph_;
  Random random_;
  std::vector<const OpDef*> ops_;
  std::vector<Entry> pool_, buffers_;
  std::string block_;
  std::uint32_t line_ = 0;
  int leaves_ = 0;
};

}  // namespace

void make_trees(Graph& graph) {
  for (auto [list, tree] :
       {std::pair(&graph.inputs, &graph.input_tree), std::pair(&graph.outputs, &graph.output_tree)}) {
    *tree = {.kind = ir::Tree::Kind::tuple, .index = 0, .children = {}, .keys = {}};
    for (std::size_t i = 0; i < list->size(); ++i)
      tree->children.push_back(
          {.kind = ir::Tree::Kind::leaf, .index = static_cast<std::int32_t>(i), .children = {}, .keys = {}});
  }
}

Graph random_graph(std::uint64_t seed) { return Builder(seed).run(); }

std::uint64_t seed_of(const Graph& graph, const std::string& name) {
  const auto it = graph.config.find("seed:" + name);
  return it == graph.config.end() ? hash(name) >> 12 : static_cast<std::uint64_t>(std::get<double>(it->second));
}

eager::Environment leaves_of(const Graph& graph, double change, const std::map<std::string, std::int64_t>& symbols) {
  eager::Environment values;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ir::Value& value = graph.values[v];
    if (value.kind == ValueKind::node || value.kind == ValueKind::constant) continue;
    Shape shape = value.type.shape;
    for (std::size_t d = 0; d < shape.rank(); ++d) shape[d] = shape[d].at(symbols);
    double low = -1, high = 1;
    if (value.kind == ValueKind::state) low = high = 0;
    if (value.kind == ValueKind::hyper) low = high = value.name == "step" ? 1 : value.name == "seed" ? 7 : 0.1;
    if (const auto it = graph.config.find("low:" + value.name); it != graph.config.end())
      low = std::get<double>(it->second);
    if (const auto it = graph.config.find("high:" + value.name); it != graph.config.end())
      high = std::get<double>(it->second);
    const std::uint64_t seed = seed_of(graph, value.name);
    TensorData data = random_tensor({value.type.dtype, shape}, low, high, seed);
    if (change != 0 && ir::is_floating(value.type.dtype)) {
      std::vector<double> elements = as_doubles(data);
      const std::vector<double> factors = as_doubles(random_tensor({DType::f64, shape}, -1, 1, seed + 1));
      for (std::size_t i = 0; i < elements.size(); ++i) elements[i] *= 1 + change * factors[i];
      data = {{DType::f64, shape}, std::vector<std::byte>(elements.size() * sizeof(double))};
      if (!elements.empty()) std::memcpy(data.bytes.data(), elements.data(), data.bytes.size());
    }
    values[static_cast<ValueId>(v)] = std::move(data);
  }
  return values;
}

}  // namespace graven::tests
