#include "codegen/emit/record.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "codegen/emit/values.h"
#include "codegen/plan/storage.h"
#include "ir/diagnostic.h"
#include "ir/passes/passes.h"
#include "runtime_min/half.h"

namespace graven::codegen {

namespace {

std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 14695981039346656037u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return h;
}

/// Uniform numbers in [0, 1), a function of seed and position.
double uniform(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t x = seed + (i + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

ir::Shape at_maximum(const ir::Shape& shape) { return ir::Shape::of(shape.maxima()); }

/// Floating types in [low, high); integers in [0, count).
ir::TensorData fill(const std::string& name, const ir::TensorType& type, double low, double high, std::int64_t count) {
  ir::TensorData data{{type.dtype, at_maximum(type.shape)}, {}};
  const std::size_t n = static_cast<std::size_t>(type.shape.numel().maximum()), size = ir::size_of(type.dtype);
  data.bytes.resize(n * size);
  const std::uint64_t seed = hash(name);
  for (std::size_t i = 0; i < n; ++i) {
    const double u = uniform(seed, i), x = low + (high - low) * u;
    const std::int64_t k = static_cast<std::int64_t>(u * static_cast<double>(count));
    std::byte* to = data.bytes.data() + i * size;
    auto put = [&](auto value) { std::memcpy(to, &value, sizeof value); };
    switch (type.dtype) {
      case ir::DType::f32:
        put(static_cast<float>(x));
        break;
      case ir::DType::f64:
        put(x);
        break;
      case ir::DType::f16:
        put(static_cast<std::uint16_t>(u < 0.5 ? 0x3800 : low < 0 ? 0xb400 : 0x3400));  // 0.5 and -0.25 (or 0.25): exact in any format
        break;
      case ir::DType::bf16:
        put(static_cast<std::uint16_t>(u < 0.5 ? 0x3f00 : low < 0 ? 0xbe80 : 0x3e80));
        break;
      case ir::DType::i8:
        put(static_cast<std::int8_t>(k));
        break;
      case ir::DType::i32:
        put(static_cast<std::int32_t>(k));
        break;
      case ir::DType::i64:
        put(k);
        break;
      case ir::DType::u8:
        put(static_cast<std::uint8_t>(k));
        break;
      case ir::DType::boolean:
        put(static_cast<std::uint8_t>(u < 0.5));
        break;
    }
  }
  return data;
}

ir::TensorData zeros(const ir::TensorType& type) {
  return {{type.dtype, at_maximum(type.shape)}, std::vector<std::byte>(static_cast<std::size_t>(byte_count(type)))};
}

/// Element i of a floating tensor.
double number_at(const ir::TensorData& data, std::size_t i) {
  const auto load = [&](auto x) {
    std::memcpy(&x, data.bytes.data() + i * sizeof x, sizeof x);
    return x;
  };
  switch (data.type.dtype) {
    case ir::DType::f64:
      return load(double{});
    case ir::DType::f32:
      return static_cast<double>(load(float{}));
    case ir::DType::f16:
      return static_cast<double>(runtime::float_from_half(load(std::uint16_t{})));
    case ir::DType::bf16:
      return static_cast<double>(runtime::float_from_bfloat16(load(std::uint16_t{})));
    default:
      GRAVEN_CHECK(false, "a floating tensor is recorded");
      return 0;
  }
}

/// f64 results as what the program computes.
ir::TensorData as_type(const ir::TensorData& data, ir::DType dtype) {
  if (data.type.dtype == dtype) return data;
  GRAVEN_CHECK(data.type.dtype == ir::DType::f64 && ir::is_floating(dtype), "recorded results are f64, or of the graph's dtype");
  const std::size_t size = ir::size_of(dtype), n = data.bytes.size() / sizeof(double);
  ir::TensorData out{{dtype, data.type.shape}, std::vector<std::byte>(n * size)};
  for (std::size_t i = 0; i < n; ++i) {
    const float y = static_cast<float>(number_at(data, i));
    const std::uint16_t half = dtype == ir::DType::bf16 ? runtime::bfloat16_from_float(y) : runtime::half_from_float(y);
    std::memcpy(out.bytes.data() + i * size, dtype == ir::DType::f32 ? static_cast<const void*>(&y) : &half, size);
  }
  return out;
}

/// after - before, as `dtype`.
ir::TensorData difference(const ir::TensorData& after, const ir::TensorData& before, ir::DType dtype) {
  ir::TensorData out{{ir::DType::f64, after.type.shape}, {}};
  const std::size_t n = after.bytes.size() / ir::size_of(after.type.dtype);
  out.bytes.resize(n * sizeof(double));
  for (std::size_t i = 0; i < n; ++i) {
    const double x = number_at(after, i) - number_at(before, i);
    std::memcpy(out.bytes.data() + i * sizeof x, &x, sizeof x);
  }
  return as_type(out, dtype);
}

/// With rates of 1, what SGD changes is as large as the gradients.
void take_rates_of_one(const ir::Graph& graph, TensorValues& known) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind != ir::ValueKind::hyper || graph.values[v].name.compare(0, 3, "lr.") != 0) continue;
    ir::TensorData scalar{graph.values[v].type, std::vector<std::byte>(sizeof(double))};
    const double one = 1;
    std::memcpy(scalar.bytes.data(), &one, sizeof one);
    known.emplace(static_cast<ir::ValueId>(v), std::move(scalar));
  }
}

/// The parameters whose change is proportional to their gradients, SGD's. Adam's depends on the gradients' signs, which rounding decides where they
/// are nearly 0; there its states tell more.
std::vector<ir::ValueId> changed_in_proportion(const ir::Graph& graph) {
  std::vector<ir::ValueId> parameters;
  for (const ir::Node& node : graph.nodes)
    for (std::size_t i = 0; node.op->change_is_proportional && i < node.inputs.size(); ++i)
      if (node.inputs[i] != ir::kNone && graph.value(node.inputs[i]).kind == ir::ValueKind::parameter) parameters.push_back(node.inputs[i]);
  return parameters;
}

/// The sum of the scalar losses, as the program reports it, in f32.
ir::TensorData sum_of(const std::vector<ir::ValueId>& losses, const TensorValues& known) {
  double sum = 0;
  for (const ir::ValueId v : losses) sum += number_at(known.at(v), 0);
  const float rounded = static_cast<float>(sum);
  ir::TensorData scalar{{ir::DType::f32, {}}, std::vector<std::byte>(4)};
  std::memcpy(scalar.bytes.data(), &rounded, 4);
  return scalar;
}

bool has_nan(const std::map<std::string, ir::TensorData>& tensors) {
  const auto any = [](const ir::TensorData& data, auto element) {
    for (std::size_t i = 0; i < data.bytes.size(); i += sizeof element) {
      std::memcpy(&element, data.bytes.data() + i, sizeof element);
      if (std::isnan(element)) return true;
    }
    return false;
  };
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& entry) {
    const ir::TensorData& data = entry.second;
    return data.type.dtype == ir::DType::f32 ? any(data, float{}) : data.type.dtype == ir::DType::f64 && any(data, double{});
  });
}

/// Floating inputs in [low, 1).
std::map<std::string, ir::TensorData> record_from(double low, const ir::Graph& graph, const Plan& plan, const Evaluation* evaluation,
                                                  const EmitOptions& options) {
  std::map<std::string, ir::TensorData> recorded;
  const ValueNames values(graph, plan);
  TensorValues known;
  for (const ir::ValueId v : graph.inputs) {
    const std::int64_t classes = classes_of(graph, plan, v);
    ir::TensorData data = fill("input." + graph.value(v).name, graph.type(v), low, 1, classes > 0 ? classes : 2);
    recorded.emplace("input." + values.member(v), data);
    known.emplace(v, std::move(data));
  }
  for (const ir::ValueId v : graph.parameters) {
    const auto weight = options.weights.find(graph.value(v).name);
    known.emplace(v, weight != options.weights.end() ? *weight->second : made_up_weight(graph.value(v)));
  }
  std::map<std::string, ir::TensorData> given;  // what an evaluation reads
  if (evaluation)
    for (const auto* list : {&graph.inputs, &graph.parameters})
      for (const ir::ValueId v : *list) given.emplace(graph.value(v).name, known.at(v));
  for (const ir::ValueId v : graph.states) known.emplace(v, zeros(graph.type(v)));

  // Hyper's defaults, which the self-test runs with.
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const std::string& name = graph.values[v].name;
    if (graph.values[v].kind != ir::ValueKind::hyper || (name != "seed" && name != "step")) continue;
    const std::int64_t number = name == "step" ? 1 : 0;
    ir::TensorData scalar{graph.values[v].type, std::vector<std::byte>(sizeof number)};
    std::memcpy(scalar.bytes.data(), &number, sizeof number);
    known.emplace(static_cast<ir::ValueId>(v), std::move(scalar));
  }

  ir::Graph forward = graph;
  const auto gradients = parameter_gradients(graph);
  const bool updates_in_backward = ir::updates_in_backward(graph);
  const TensorValues before = updates_in_backward ? known : TensorValues();
  if (updates_in_backward) {
    take_rates_of_one(graph, known);
  } else {
    // The update is left out: what it reads, the gradients, are results here.
    std::erase_if(forward.nodes, [](const ir::Node& n) { return n.phase == ir::Phase::update; });
  }
  for (const GradientOf& g : gradients) forward.outputs.push_back(g.gradient);
  for (const ir::Loss& l : graph.losses) forward.outputs.push_back(l.value);
  const bool training = !graph.optimizers.empty() || !graph.losses.empty();
  options.execute(forward, known);

  auto keep = [&](const std::string& name, ir::ValueId v) {
    const auto found = known.find(v);
    GRAVEN_CHECK(found != known.end(), "the graph's execution left out " + graph.value(v).name);
    recorded.emplace(name, as_type(found->second, graph.type(v).dtype));
  };
  if (!training) {
    for (std::size_t i = 0; i < graph.outputs.size(); ++i) keep("output." + values.output(i), graph.outputs[i]);
    return recorded;
  }
  if (updates_in_backward) {
    for (const ir::ValueId v : graph.states) keep("state." + graph.value(v).name, v);
    for (const ir::ValueId v : changed_in_proportion(graph))
      recorded.emplace("change." + graph.value(v).name, difference(known.at(v), before.at(v), graph.type(v).dtype));
  }
  for (const GradientOf& g : gradients)
    if (plan.placements[static_cast<std::size_t>(root(plan, g.gradient))].home == Home::gradient) {
      keep("gradient." + graph.value(g.parameter).name, g.gradient);
      recorded.at("gradient." + graph.value(g.parameter).name).type.shape = graph.type(g.parameter).shape;
    }
  std::vector<ir::ValueId> losses;
  for (const ir::Loss& l : graph.losses) losses.push_back(l.value);
  recorded.emplace("loss", sum_of(losses, known));
  if (evaluation) {
    const ir::Graph& e = evaluation->graph;
    TensorValues values_of_evaluation;
    for (const auto* list : {&e.inputs, &e.parameters})
      for (const ir::ValueId v : *list) values_of_evaluation.emplace(v, given.at(e.value(v).name));
    options.execute(e, values_of_evaluation);
    losses.clear();
    for (std::size_t i = 0; i < e.outputs.size(); ++i) {
      if (e.output_tree.keys.at(i) != "scores") {
        losses.push_back(e.outputs[i]);
        continue;
      }
      recorded.emplace("evaluation.scores", as_type(values_of_evaluation.at(e.outputs[i]), e.type(e.outputs[i]).dtype));
    }
    recorded.emplace("evaluation.loss", sum_of(losses, values_of_evaluation));
  }
  return recorded;
}

/// Bytes, and the tensor that has the most of them.
struct Need {
  double bytes = 0, largest = 0;
  std::string tensor;

  void add(const ir::Value& value, double per_element) {
    const double own = per_element * static_cast<double>(value.type.shape.numel().maximum());
    bytes += own;
    if (tensor.empty() || own > largest) largest = own, tensor = value.name + ", " + value.type.to_string();
  }
};

/// What this process can still have, as far as the system says: without swapping everything else out.
double available_memory() {
  double available = std::numeric_limits<double>::infinity();
  std::ifstream info("/proc/meminfo");
  double sum = 0;
  bool known = false;
  for (std::string key, unit; info >> key;) {
    double kilobytes = 0;
    if (!(info >> kilobytes)) break;
    std::getline(info, unit);
    if (key == "MemAvailable:" || key == "SwapFree:") sum += kilobytes * 1024;
    known = known || key == "MemAvailable:";
  }
  if (known) available = sum;
  double group = 0;  // a container's limit; the file says "max" where there is none
  if (std::ifstream limit("/sys/fs/cgroup/memory.max"); limit >> group) available = std::min(available, group);
  rlimit own{};
  if (getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY) available = std::min(available, static_cast<double>(own.rlim_cur));
  return available;
}

void require_memory(const Need& need, const std::string& name, const std::string& purpose) {
  const double available = available_memory();
  if (need.bytes <= available) return;
  throw UserError(fmt::format("{}: {} takes {:.0f} bytes of memory, and {:.0f} are available", name, purpose, need.bytes, available))
      .note("the largest tensor is " + need.tensor);
}

}  // namespace

void require_memory_to_record(const ir::Graph& graph, const Evaluation* evaluation, const EmitOptions& options) {
  // The execution keeps every result, in double precision, beside what it is given and its own copy of that.
  const auto computed = [](const ir::Value& v) {
    return static_cast<double>(ir::is_floating(v.type.dtype) ? sizeof(double) : ir::size_of(v.type.dtype));
  };
  const auto need_of = [&](const ir::Graph& g, bool update) {
    Need need;
    for (const auto* list : {&g.inputs, &g.parameters, &g.states})
      for (const ir::ValueId v : *list) need.add(g.value(v), static_cast<double>(ir::size_of(g.type(v).dtype)) + computed(g.value(v)));
    for (const ir::Node& n : g.nodes) {
      // To the execution a packed weight is the weight.
      if (n.op->alias || n.op->name.starts_with("pack_") || (n.phase == ir::Phase::update && !update)) continue;
      for (const ir::ValueId v : n.outputs) need.add(g.value(v), computed(g.value(v)));
    }
    return need;
  };
  if (!options.execute) return;
  require_memory(need_of(graph, ir::updates_in_backward(graph)), graph.name, "computing what the project's self-test compares with");
  if (evaluation) require_memory(need_of(evaluation->graph, true), graph.name, "computing what the evaluation's self-test compares with");
}

void require_memory_to_make_up(const std::string& name, const std::vector<const ir::Value*>& values) {
  Need need;
  for (const ir::Value* v : values) need.add(*v, static_cast<double>(ir::size_of(v->type.dtype)));
  require_memory(need, name, "making up the weights that were not given");
}

ir::TensorData made_up_weight(const ir::Value& value) {
  const ir::TensorType& type = value.type;
  if (value.kind == ir::ValueKind::buffer) return fill(value.name, type, 0.5, 1.5, 2);
  const std::int64_t n = type.shape.numel().maximum(), rows = type.shape.empty() ? 1 : std::max<std::int64_t>(1, type.shape[0].maximum());
  const double bound = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, type.shape.rank() > 1 ? n / rows : n)));
  return fill(value.name, type, -bound, bound, 2);
}

std::map<std::string, ir::TensorData> record(const ir::Graph& graph, const Plan& plan, const Evaluation* evaluation, const EmitOptions& options) {
  constexpr double kSigned = -1, kPositive = 0;
  std::map<std::string, ir::TensorData> recorded;
  try {
    recorded = record_from(kSigned, graph, plan, evaluation, options);
    if (!has_nan(recorded)) return recorded;
  } catch (const UserError&) {
  }
  // Probabilities, and what a logarithm or a root is taken of.
  try {
    std::map<std::string, ir::TensorData> positive = record_from(kPositive, graph, plan, evaluation, options);
    return recorded.empty() || !has_nan(positive) ? positive : recorded;
  } catch (UserError& e) {
    if (!recorded.empty()) return recorded;
    e.note("this is of the inputs that were made up, in [0, 1), for the project's self-test");
    throw;
  }
}

}  // namespace graven::codegen
