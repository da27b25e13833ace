#include "tests/differential/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "codegen/plan/arena.h"
#include "codegen/plan/plan.h"
#include "frontend/eager/executor.h"
#include "frontend/tensor_impl.h"
#include "graven/threads.h"
#include "ir/analysis.h"
#include "ir/diagnostic.h"
#include "ir/executable.h"
#include "ir/json.h"
#include "ir/op.h"
#include "ir/passes/pass.h"
#include "ir/verify.h"
#include "tests/differential/random_graph.h"
#include "tests/differential/symbolic.h"
#include "tests/ops/backends.h"
#include "tests/tolerances.h"

namespace graven::tests {

using ir::DType;
using ir::Graph;
using ir::TensorData;
using ir::ValueId;

namespace {

/// A tensor times a scalar of its type.
TensorData scaled(TensorData tensor, const TensorData& factor) {
  const double times = as_doubles(factor).at(0);
  const std::size_t size = ir::size_of(tensor.type.dtype);
  const std::vector<double> elements = as_doubles(tensor);
  for (std::size_t i = 0; i < elements.size(); ++i)
    detail::write_element(tensor.type.dtype, tensor.bytes.data() + i * size, elements[i] * times);
  return tensor;
}

/// Outputs, gradients, parameters, buffers and states by name.
using Results = std::map<std::string, TensorData>;

Results results_of(const Graph& g, const eager::Environment& values, bool gradients) {
  Results results;
  for (std::size_t i = 0; i < g.outputs.size(); ++i) results[fmt::format("output {}", i)] = values.at(g.outputs[i]);
  // A gradient as its update sees it: that may clip what it is given.
  std::map<ValueId, ValueId> factors;  // by parameter
  for (const ir::Node& n : g.nodes)
    if (ir::is_update(*n.op) && ir::factor_of(n) != ir::kNone)
      for (const ir::InPlace& pair : ir::donated_by(n)) factors.emplace(n.inputs[pair.input], ir::factor_of(n));
  if (gradients)
    for (const ir::Gradient& gradient : g.gradients) {
      const auto factor = factors.find(gradient.parameter);
      const TensorData& own = values.at(gradient.value);
      results["gradient of " + g.value(gradient.parameter).name] =
          factor == factors.end() ? own : scaled(own, values.at(factor->second));
    }
  for (const auto* list : {&g.parameters, &g.states})
    for (ValueId v : *list) results[g.value(v).name] = values.at(v);
  return results;
}

using Symbols = std::map<std::string, std::int64_t>;

Results run(const Graph& g, eager::Oracle oracle, double change = 0, const eager::MemoryLayout* layout = nullptr,
            const Symbols& symbols = {}) {
  eager::Environment values = leaves_of(g, change, symbols);
  eager::execute(g, values, {.oracle = oracle, .symbols = symbols, .keep_all = layout == nullptr, .layout = layout});
  return results_of(g, values, layout == nullptr);
}
Results run_double(const Graph& g, double change = 0, const Symbols& symbols = {}) {
  return run(g, eager::Oracle::double_reference, change, nullptr, symbols);
}

/// `allowed(name, expected tensor)`: the largest difference over 1 + the largest magnitude that may be.
template <typename Allowed>
std::optional<std::string> first_of(const Results& expected, const Results& found, const Allowed& allowed) {
  for (const auto& [name, tensor] : expected) {
    const auto other = found.find(name);
    if (other == found.end()) {
      if (name.starts_with("gradient of ")) continue;  // passes may leave one to its update alone
      return name + " is missing";
    }
    const double d = difference(tensor, other->second), most = allowed(name, tensor);
    if (!(d <= most)) return fmt::format("{} differs by {:.3g}, {:.3g} allowed", name, d, most);
  }
  return std::nullopt;
}

std::optional<std::string> first_bit(const Results& expected, const Results& found) {
  for (const auto& [name, tensor] : found) {
    const TensorData& other = expected.at(name);
    if (other.bytes != tensor.bytes) return fmt::format("{}: bits differ, by {:.3g}", name, difference(other, tensor));
  }
  return std::nullopt;
}

bool is_needed(std::string_view pass) {
  return pass == "differentiate" || pass == "clip_gradients" || pass == "add_optimizer_updates" ||
         pass.substr(0, 9) == "decompose";
}

ir::PassOptions fewest_passes() {
  ir::PassOptions options;
  for (const ir::Pass& pass : ir::pipeline())
    if (!is_needed(pass.name)) options.disabled.emplace_back(pass.name);
  return options;
}

/// Passes in a random order as far as they may stand in any, some twice, some left out.
std::string run_in_random_order(Graph& g, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::span<const ir::Pass> table = ir::pipeline();
  std::vector<const ir::Pass*> early, chosen;
  std::size_t i = 0;
  ir::PassOptions options;
  options.to = "add_optimizer_updates";
  ir::run_passes(g, options);
  while (table[i].name != options.to) ++i;
  for (++i; table[i].name != "choose_layout"; ++i) early.push_back(&table[i]);
  early.push_back(&table[0]);
  for (std::size_t n = below(2 * early.size()); n-- > 0;) chosen.push_back(early[below(early.size())]);
  for (; i < table.size(); ++i)
    if (is_needed(table[i].name) || below(4) != 0) chosen.push_back(&table[i]);
  std::string names;
  for (const ir::Pass* pass : chosen) {
    if (pass->applies && !pass->applies(g, {})) continue;
    names += " " + std::string(pass->name);
    pass->run(g, {});
    g.stage = pass->name;
    ir::verify(g);
  }
  return names;
}

std::optional<Finding> check_passes(const Graph& traced, const Results& expected, std::mt19937& random) {
  // Folded constants are rounded to f32; the oracle rounds nothing.
  const auto allowed = [](const std::string&, const TensorData&) { return tolerance::random_rewritten.f32; };
  for (int trial = 0; trial < 4; ++trial) {
    Graph g = traced;
    std::string what = " all";
    if (trial == 0) {
      ir::run_passes(g, {});
    } else {
      what = run_in_random_order(g, random);
    }
    if (const auto text = first_of(expected, run_double(g), allowed))
      return Finding{"passes", *text + ", after" + what};
  }
  return std::nullopt;
}

double dot(const TensorData& a, const TensorData& b) {
  const std::vector<double> x = as_doubles(a), y = as_doubles(b);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

std::optional<Finding> check_differences(const Graph& traced) {
  if (traced.losses.empty()) return std::nullopt;
  Graph g = traced;
  ir::PassOptions options = fewest_passes();
  options.disabled.insert(options.disabled.end(), {"clip_gradients", "add_optimizer_updates"});
  ir::run_passes(g, options);
  const eager::Environment leaves = leaves_of(g);
  eager::Environment values = leaves;
  eager::execute(g, values, {.oracle = eager::Oracle::double_reference, .symbols = {}, .keep_all = true});
  std::map<ValueId, TensorData> direction;
  double slope = 0;
  for (const ir::Gradient& gradient : g.gradients) {
    const TensorData& d = direction[gradient.parameter] = random_tensor(
        {DType::f64, g.type(gradient.parameter).shape}, -1, 1, static_cast<std::uint64_t>(gradient.parameter));
    slope += dot(values.at(gradient.value), d);
  }
  const auto loss_at = [&](double step) {
    eager::Environment moved = leaves;
    for (const auto& [parameter, d] : direction) {
      std::vector<double> elements = as_doubles(leaves.at(parameter));
      const std::vector<double> towards = as_doubles(d);
      for (std::size_t i = 0; i < elements.size(); ++i) elements[i] += step * towards[i];
      TensorData& changed = moved[parameter];
      changed.type.dtype = DType::f64;
      changed.bytes.resize(elements.size() * sizeof(double));
      if (!elements.empty()) std::memcpy(changed.bytes.data(), elements.data(), changed.bytes.size());
    }
    eager::execute(g, moved, {.oracle = eager::Oracle::double_reference});
    return as_doubles(moved.at(g.losses[0].value)).at(0);
  };
  // Two steps: where they disagree the loss bends within them, and says nothing about the slope.
  const double wide = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5, narrow = (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6;
  const double tolerance = 1e-6 * (1 + std::fabs(slope)) + std::fabs(wide - narrow);
  if (std::fabs(slope - narrow) <= tolerance) return std::nullopt;
  return Finding{"differences",
                 fmt::format("the loss rises by {:.9g} along the direction, its gradient says {:.9g}", narrow, slope)};
}

std::optional<Finding> check_json(const Graph& g) {
  const std::string text = ir::to_json(g);
  std::map<std::string, std::shared_ptr<const TensorData>> large;
  for (const auto& [v, data] : g.constants) large[g.value(v).name] = data;
  const Graph read =
      ir::from_json(text, "graph.json", [&](const std::string& name, const ir::TensorType&) { return large.at(name); });
  if (ir::to_json(read) == text) return std::nullopt;
  return Finding{"json", "reading what was written gives another text"};
}

/// Runs the plan's order in the plan's arena.
std::optional<Finding> check_memory(const Graph& g, const Results& expected) {
  const codegen::Plan plan = codegen::make_plan(g);
  codegen::verify_plan(g, plan);
  std::vector<codegen::Buffer> buffers = plan.buffers;
  constexpr std::int64_t kCanary = 64;
  for (codegen::Buffer& b : buffers) b.bytes += kCanary;
  eager::MemoryLayout layout;
  layout.bytes = codegen::place_buffers(buffers);
  for (const codegen::Step& step : plan.steps) {
    layout.order.push_back(step.node);
    layout.workspace.push_back(step.workspace < 0 ? -1 : buffers[static_cast<std::size_t>(step.workspace)].offset);
  }
  for (const codegen::Placement& p : plan.placements)
    layout.offset.push_back(
        p.home == codegen::Home::arena && p.buffer >= 0 ? buffers[static_cast<std::size_t>(p.buffer)].offset : -1);
  constexpr std::byte kPoison{0xff}, kGuard{0xa5};  // 0xff...: NaN in every floating dtype
  std::string broken;
  layout.before = [&](std::size_t position, std::span<std::byte> arena) {
    if (position == 0) std::fill(arena.begin(), arena.end(), kPoison);
    for (const codegen::Buffer& b : buffers)
      if (b.first == static_cast<std::int32_t>(position)) {
        const auto begin = arena.begin() + b.offset;
        std::fill(begin, begin + b.bytes - kCanary, kPoison);
        std::fill(begin + b.bytes - kCanary, begin + b.bytes, kGuard);
      }
  };
  layout.after = [&](std::size_t position, std::span<std::byte> arena) {
    const auto now = static_cast<std::int32_t>(position);
    for (const codegen::Buffer& b : buffers) {
      if (b.first > now || b.last < now) continue;
      const auto end = arena.begin() + b.offset + b.bytes;
      if (broken.empty() && !std::all_of(end - kCanary, end, [](std::byte x) { return x == kGuard; })) {
        const ir::Node& node = g.nodes[static_cast<std::size_t>(plan.steps[position].node)];
        broken = fmt::format("step {} ({}) wrote behind the buffer of {}", position, node.op->name, b.name);
      }
      if (b.last == now && position + 1 < plan.steps.size())  // losses are read behind the last step
        std::fill(arena.begin() + b.offset, end, kPoison);
    }
  };
  const Results found = run(g, eager::Oracle::none, 0, &layout);
  if (!broken.empty()) return Finding{"memory", broken};
  if (const auto text = first_bit(expected, found)) return Finding{"memory", *text};
  return std::nullopt;
}

/// Updates within backward: the oracle's results are the same, and the kernels' in every bit, in an arena that
/// gradients share.
std::optional<Finding> check_update_in_backward(const Graph& traced, const Results& expected, const Results& alone) {
  if (traced.optimizers.empty()) return std::nullopt;
  Graph g = traced;
  g.config[std::string(ir::kUpdateInBackward)] = true;
  ir::run_passes(g, {});
  if (auto finding = check_json(g)) return finding;
  const auto allowed = [](const std::string&, const TensorData&) {
    return tolerance::random_rewritten.f32;
  };  // folded constants are rounded to f32
  if (const auto text = first_of(expected, run_double(g), allowed)) return Finding{"update_in_backward", *text};
  return check_memory(g, alone);
}

/// One dimension a symbol, which passes see and the executor gives a value.
std::optional<Finding> check_symbol(const Graph& traced, std::mt19937& random) {
  const std::optional<Graph> lifted = with_symbol(traced);
  if (!lifted) return std::nullopt;
  Graph plain = *lifted, lowered = *lifted;
  ir::run_passes(plain, fewest_passes());
  ir::run_passes(lowered, {});
  if (auto finding = check_json(lowered)) return finding;
  const auto [symbol, least, most] = lifted->symbols().at(0);
  for (const std::int64_t size : {most, least, std::uniform_int_distribution<std::int64_t>(least, most)(random)}) {
    const Symbols symbols{{symbol, size}};
    Results expected;
    try {
      expected = run_double(plain, 0, symbols);
    } catch (const UserError&) {
      continue;  // an index counts what is fewer now
    }
    const Results moved = run_double(plain, 1e-6, symbols);
    const auto rewritten = [](const std::string&, const TensorData&) { return tolerance::random_rewritten.f32; };
    const auto computed = [&](const std::string& name, const TensorData& tensor) {
      return ir::is_floating(tensor.type.dtype)
                 ? tolerance::random_emitted.f32 + 20 * difference(tensor, moved.at(name))
                 : 0;
    };
    if (const auto text = first_of(expected, run_double(lowered, 0, symbols), rewritten))
      return Finding{"symbol", fmt::format("{} = {}, after the passes: {}", symbol, size, *text)};
    if (const auto text = first_of(expected, run(lowered, eager::Oracle::none, 0, nullptr, symbols), computed))
      return Finding{"symbol", fmt::format("{} = {}, by the kernels: {}", symbol, size, *text)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Finding> check(const Graph& traced, std::uint64_t seed) {
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  Graph plain = traced;
  ir::run_passes(plain, fewest_passes());
  const Results expected = run_double(plain);
  if (auto finding = check_passes(traced, expected, random)) return finding;
  if (auto finding = check_differences(traced)) return finding;
  if (auto finding = check_json(traced)) return finding;
  Graph lowered = traced;
  ir::run_passes(lowered, {});
  if (auto finding = check_json(lowered)) return finding;
  // How much results move under changes of the leaves by one part in a million says how much rounding may move them.
  const Results moved = run_double(plain, 1e-6);
  const auto allowed = [&](const std::string& name, const TensorData& tensor) {
    return ir::is_floating(tensor.type.dtype) ? tolerance::random_emitted.f32 + 20 * difference(tensor, moved.at(name))
                                              : 0;
  };
  const int threads = get_num_threads();
  set_num_threads(1);
  const Results alone = run(lowered, eager::Oracle::none);
  set_num_threads(3);
  const Results shared = run(lowered, eager::Oracle::none);
  set_num_threads(threads);
  if (const auto text = first_of(expected, alone, allowed)) return Finding{"kernels", *text};
  if (const auto text = first_bit(alone, shared)) return Finding{"threads", *text};
  if (auto finding = check_memory(lowered, alone)) return finding;
  if (auto finding = check_update_in_backward(traced, expected, alone)) return finding;
  return check_symbol(traced, random);
}

bool takes_ones(const Graph& traced) {
  Graph plain = traced;
  ir::run_passes(plain, fewest_passes());
  Symbols ones;
  for (const ir::Symbol& s : plain.symbols()) ones[s.name] = s.least;
  try {
    run_double(plain, 0, ones);
    return true;
  } catch (const UserError&) {
    return false;
  }
}

std::optional<Finding> check_emitted(const std::vector<Graph>& traced) {
  const Graph all = merge(traced);
  Graph plain = all;
  ir::run_passes(plain, fewest_passes());
  const std::unique_ptr<ir::Executable> program = ir::compile(all, {});
  const auto symbols = all.symbols();
  for (const bool largest :
       symbols.empty() || !takes_ones(all) ? std::vector<bool>{true} : std::vector<bool>{true, false}) {
    Symbols sizes;
    std::vector<std::int64_t> in_order;
    for (const auto& [name, least, most] : symbols) {
      sizes[name] = largest ? most : least;
      in_order.push_back(sizes[name]);
    }
    const Results expected = run_double(plain, 0, sizes), moved = run_double(plain, 1e-6, sizes);
    eager::Environment values = leaves_of(plain, 0, sizes);
    for (const auto* list : {&plain.parameters, &plain.states})
      for (ValueId v : *list) program->bind(plain.value(v).name, values.at(v).bytes.data(), values.at(v).bytes.size());
    program->weights_changed();
    std::vector<const void*> inputs;
    for (ValueId v : plain.inputs) inputs.push_back(values.at(v).bytes.data());
    std::vector<TensorData> computed;
    for (ValueId v : plain.outputs) {
      const ir::TensorType& type = expected.at(fmt::format("output {}", computed.size())).type;
      computed.push_back({{plain.type(v).dtype, type.shape},
                          std::vector<std::byte>(static_cast<std::size_t>(type.shape.numel().value()) *
                                                 ir::size_of(plain.type(v).dtype))});
    }
    std::vector<void*> outputs;
    for (TensorData& data : computed) outputs.push_back(data.bytes.data());
    program->run(inputs, outputs, in_order,
                 {.learning_rates = std::vector<double>(all.optimizers.size(), 0.1), .step = 1, .draw = 1});
    const auto allowed = [&](const std::string& name, const TensorData& tensor) {
      return ir::is_floating(tensor.type.dtype)
                 ? tolerance::random_emitted.f32 + 20 * difference(tensor, moved.at(name))
                 : 0;
    };
    Results found;
    for (std::size_t i = 0; i < computed.size(); ++i) found[fmt::format("output {}", i)] = computed[i];
    for (const auto* list : {&plain.parameters, &plain.states})
      for (ValueId v : *list) found[plain.value(v).name] = values.at(v);
    if (const auto text = first_of(expected, found, allowed))
      return Finding{"emitted", (largest ? "" : "symbols are 1: ") + *text};
  }
  return std::nullopt;
}

Graph merge(const std::vector<Graph>& graphs) {
  Graph all;
  all.name = "Merged";
  for (std::size_t k = 0; k < graphs.size(); ++k) {
    const Graph& from = graphs[k];
    const std::string prefix = fmt::format("g{}.", k);
    std::vector<ValueId> to(from.values.size(), ir::kNone);
    const auto at = [&](ValueId v) -> ValueId& { return to[static_cast<std::size_t>(v)]; };
    for (ValueId v : from.inputs) at(v) = all.add_input(prefix + from.value(v).name, from.type(v));
    for (ValueId v : from.parameters)
      at(v) = from.value(v).kind == ir::ValueKind::buffer
                  ? all.add_buffer(prefix + from.value(v).name, from.type(v))
                  : all.add_parameter(prefix + from.value(v).name, from.type(v), from.value(v).trainable);
    for (std::size_t v = 0; v < from.values.size(); ++v)
      if (const auto it = from.constants.find(static_cast<ValueId>(v)); it != from.constants.end())
        to[v] = all.add_constant(prefix + from.values[v].name, it->second);
    for (const ir::Node& n : from.nodes) {
      std::vector<ValueId> inputs;
      for (ValueId v : n.inputs) inputs.push_back(v == ir::kNone ? ir::kNone : at(v));
      ir::Origins origins = n.origins;
      for (auto& o : origins) o.module = prefix + o.module;
      const std::vector<ValueId> outputs = all.add_node(*n.op, inputs, n.attributes, origins);
      for (std::size_t i = 0; i < outputs.size(); ++i) at(n.outputs[i]) = outputs[i];
    }
    for (ValueId v : from.outputs) all.outputs.push_back(at(v));
    for (const ir::Loss& loss : from.losses) all.losses.push_back({at(loss.value), ir::kNone});
    for (const auto* list : {&from.inputs, &from.parameters})
      for (ValueId v : *list)
        all.config["seed:" + prefix + from.value(v).name] = static_cast<double>(seed_of(from, from.value(v).name));
    for (const auto& [name, value] : from.config) {
      const std::size_t colon = name.find(':') + 1;
      all.config[name.substr(0, colon) + prefix + name.substr(colon)] = value;
    }
    all.training = all.training || from.training;
    for (ir::Optimizer o : from.optimizers) {
      for (ValueId& v : o.groups[0].parameters) v = at(v);
      all.optimizers.push_back(std::move(o));
    }
  }
  make_trees(all);
  return all;
}

std::pair<double, double> limits_of(const Graph& traced, ValueId value) {
  Graph decomposed = traced;  // what reductions and products need to run at all
  decomposed.losses.clear();
  decomposed.optimizers.clear();
  decomposed.outputs.push_back(value);
  ir::run_passes(decomposed, fewest_passes());
  eager::Environment values = leaves_of(decomposed);
  eager::execute(decomposed, values, {.oracle = eager::Oracle::double_reference, .symbols = {}, .keep_all = true});
  const std::vector<double> elements = as_doubles(values.at(decomposed.find(traced.value(value).name)));
  if (elements.empty()) return {0, 1};
  const auto [low, high] = std::minmax_element(elements.begin(), elements.end());
  return {*low, *high + (ir::is_floating(traced.type(value).dtype) ? 0 : 1)};
}

namespace {

/// The graph without node `n`: what it made is given to the graph, with the values that were computed for it.
Graph without_node(const Graph& g, std::size_t n) {
  Graph smaller;
  smaller.name = g.name;
  smaller.training = g.training;
  smaller.config = g.config;
  std::vector<ValueId> to(g.values.size(), ir::kNone);
  const auto at = [&](ValueId v) -> ValueId& { return to[static_cast<std::size_t>(v)]; };
  std::vector<bool> used(g.values.size(), false);
  for (std::size_t k = 0; k < g.nodes.size(); ++k)
    if (k != n)
      for (ValueId v : g.nodes[k].inputs)
        if (v != ir::kNone) used[static_cast<std::size_t>(v)] = true;
  for (ValueId v : g.inputs)
    if (used[static_cast<std::size_t>(v)]) at(v) = smaller.add_input(g.value(v).name, g.type(v));
  for (ValueId v : g.parameters)
    if (used[static_cast<std::size_t>(v)])
      at(v) = g.value(v).kind == ir::ValueKind::buffer
                  ? smaller.add_buffer(g.value(v).name, g.type(v))
                  : smaller.add_parameter(g.value(v).name, g.type(v), g.value(v).trainable);
  for (std::size_t v = 0; v < g.values.size(); ++v)
    if (const auto it = g.constants.find(static_cast<ValueId>(v)); it != g.constants.end() && used[v])
      to[v] = smaller.add_constant(g.values[v].name, it->second);
  for (ValueId v : g.nodes[n].outputs) {
    if (!used[static_cast<std::size_t>(v)]) continue;
    const ir::TensorType& type = g.type(v);
    const bool training = ir::is_floating(type.dtype) && g.training;
    const std::string name = fmt::format("cut.{}", g.value(v).name);
    at(v) = training ? smaller.add_parameter(name, type, true) : smaller.add_input(name, type);
    const auto [low, high] = limits_of(g, v);
    smaller.config["low:" + name] = low;
    smaller.config["high:" + name] = high;
  }
  for (std::size_t k = 0; k < g.nodes.size(); ++k) {
    if (k == n) continue;
    const ir::Node& node = g.nodes[k];
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs) inputs.push_back(v == ir::kNone ? ir::kNone : at(v));
    const std::vector<ValueId> outputs = smaller.add_node(*node.op, inputs, node.attributes, node.origins);
    for (std::size_t i = 0; i < outputs.size(); ++i) at(node.outputs[i]) = outputs[i];
  }
  for (ValueId v : g.outputs)
    if (at(v) != ir::kNone) smaller.outputs.push_back(at(v));
  for (const ir::Loss& l : g.losses)
    if (at(l.value) != ir::kNone) smaller.losses.push_back({at(l.value), ir::kNone});
  smaller.optimizers = g.optimizers;
  for (ir::Optimizer& o : smaller.optimizers) {
    o.groups[0].parameters.clear();
    for (ValueId p : smaller.parameters)
      if (smaller.value(p).trainable) o.groups[0].parameters.push_back(p);
  }
  if (smaller.losses.empty()) smaller.optimizers.clear(), smaller.training = false;
  make_trees(smaller);
  return smaller;
}

}  // namespace

Graph shrink(Graph graph, const std::function<bool(const Graph&)>& fails) {
  const auto still_fails = [&](const Graph& candidate) {
    try {
      return fails(candidate);
    } catch (const UserError&) {
      return false;  // not a valid graph any more
    }
  };
  for (bool smaller = true; smaller;) {
    smaller = false;
    if (!graph.losses.empty()) {
      Graph candidate = graph;
      candidate.losses.clear();
      candidate.optimizers.clear();
      candidate.training = false;
      if (still_fails(candidate)) graph = std::move(candidate), smaller = true;
    }
    for (std::size_t i = graph.outputs.size(); i-- > 0 && graph.outputs.size() > 1;) {
      Graph candidate = graph;
      candidate.outputs.erase(candidate.outputs.begin() + static_cast<std::ptrdiff_t>(i));
      make_trees(candidate);
      if (still_fails(candidate)) graph = std::move(candidate), smaller = true;
    }
    for (std::size_t n = graph.nodes.size(); n-- > 0;) {
      if (n >= graph.nodes.size()) continue;
      try {
        Graph candidate = without_node(graph, n);
        if (!candidate.outputs.empty() && still_fails(candidate)) graph = std::move(candidate), smaller = true;
      } catch (const UserError&) {
        continue;
      }
    }
  }
  return graph;
}

}  // namespace graven::tests
