#include "codegen/emit/record.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <set>

#include "codegen/emit/values.h"
#include "codegen/plan/labels.h"
#include "codegen/plan/storage.h"
#include "ir/analysis.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/passes/passes.h"
#include "ir/sizes.h"
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

std::size_t element_count(const ir::TensorData& data) { return data.bytes.size() / ir::size_of(data.type.dtype); }

/// Floating types in [low, high); integers in [0, count).
ir::TensorData fill(const std::string& name, const ir::TensorType& type, double low, double high, std::int64_t count,
                    std::int64_t least = 0) {
  ir::TensorData data{{type.dtype, at_maximum(type.shape)}, {}};
  const std::size_t n = static_cast<std::size_t>(type.shape.numel().maximum()), size = ir::size_of(type.dtype);
  data.bytes.resize(n * size);
  const std::uint64_t seed = hash(name);
  for (std::size_t i = 0; i < n; ++i) {
    const double u = uniform(seed, i), x = low + (high - low) * u;
    const std::int64_t k = static_cast<std::int64_t>(u * static_cast<double>(count)) + least;
    std::byte* to = data.bytes.data() + i * size;
    auto put = [&](auto value) { std::memcpy(to, &value, sizeof value); };
    switch (type.dtype) {
      case ir::DType::f32:
        put(static_cast<float>(x));
        break;
      case ir::DType::f64:
        put(x);
        break;
      case ir::DType::f16:  // 0.5 and -0.25 (or 0.25): exact in any format
        put(static_cast<std::uint16_t>(u < 0.5 ? 0x3800 : low < 0 ? 0xb400 : 0x3400));
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

/// Sets element i of a floating tensor.
void put_number(ir::TensorData& data, std::size_t i, double x) {
  const auto store = [&](auto y) { std::memcpy(data.bytes.data() + i * sizeof y, &y, sizeof y); };
  if (data.type.dtype == ir::DType::f64) return store(x);
  const float y = static_cast<float>(x);
  if (data.type.dtype == ir::DType::f32) return store(y);
  store(data.type.dtype == ir::DType::bf16 ? runtime::bfloat16_from_float(y) : runtime::half_from_float(y));
}

/// f64 results as what the program computes.
ir::TensorData as_type(const ir::TensorData& data, ir::DType dtype) {
  if (data.type.dtype == dtype) return data;
  GRAVEN_CHECK(data.type.dtype == ir::DType::f64 && ir::is_floating(dtype),
               "recorded results are f64, or of the graph's dtype");
  ir::TensorData out{{dtype, data.type.shape}, std::vector<std::byte>(element_count(data) * ir::size_of(dtype))};
  for (std::size_t i = 0; i < element_count(data); ++i) put_number(out, i, number_at(data, i));
  return out;
}

ir::TensorData number(const ir::TensorType& type, auto value) {
  ir::TensorData scalar{type, std::vector<std::byte>(sizeof value)};
  std::memcpy(scalar.bytes.data(), &value, sizeof value);
  return scalar;
}

/// The most that rounding to the dtype changes a number, in parts of it.
double rounding_of(ir::DType dtype) { return ir::epsilon_of(dtype) / 2; }

/// Each number by a random few roundings nearer to 0, where it stays within what it may be. In double and single
/// precision up to 64, so that what jumps near a number (the slope of ReLU at 0) jumps here sooner than in a program.
/// `computed`: the half type that a program computes in, where it does.
void round_at_random(const std::string& name, ir::TensorData& data, std::optional<ir::DType> computed) {
  const ir::DType dtype = data.type.dtype;
  if (!ir::is_floating(dtype)) return;
  const double most = computed                                             ? rounding_of(*computed)
                      : dtype == ir::DType::f64 || dtype == ir::DType::f32 ? 64 * rounding_of(dtype)
                                                                           : rounding_of(dtype);
  const std::uint64_t seed = hash("rounding." + name);
  for (std::size_t i = 0; i < element_count(data); ++i)
    put_number(data, i, number_at(data, i) * (1 - most * uniform(seed, i)));
}

double largest_of(const ir::TensorData& data) {
  double largest = 0;
  if (!ir::is_floating(data.type.dtype)) return 0;
  for (std::size_t i = 0; i < element_count(data); ++i)
    if (const double x = std::fabs(number_at(data, i)); std::isfinite(x)) largest = std::fmax(largest, x);
  return largest;
}

/// The largest difference, where both are numbers.
double distance(const ir::TensorData& a, const ir::TensorData& b) {
  double most = 0;
  if (!ir::is_floating(a.type.dtype)) return 0;
  for (std::size_t i = 0; i < element_count(a); ++i)
    if (const double d = std::fabs(number_at(a, i) - number_at(b, i)); std::isfinite(d)) most = std::fmax(most, d);
  return most;
}

/// The parameters whose change is proportional to their gradients, SGD's. Adam's depends on the gradients' signs, which
/// rounding decides where they are nearly 0; there its states tell more.
std::vector<ir::ValueId> changed_in_proportion(const ir::Graph& graph) {
  std::vector<ir::ValueId> parameters;
  for (const ir::Node& node : graph.nodes)
    for (std::size_t i = 0; node.op->change_is_proportional && i < node.inputs.size(); ++i)
      if (node.inputs[i] != ir::kNone && graph.value(node.inputs[i]).kind == ir::ValueKind::parameter)
        parameters.push_back(node.inputs[i]);
  return parameters;
}

/// |state| + max |state|: of the state's own size, and far enough from 0 that what divides by it, or takes its sign,
/// does not jump.
ir::TensorData later_state(const ir::TensorData& state) {
  ir::TensorData later = state;
  const double most = largest_of(state);
  for (std::size_t i = 0; i < element_count(later); ++i) put_number(later, i, std::fabs(number_at(state, i)) + most);
  return later;
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
    return data.type.dtype == ir::DType::f32 ? any(data, float{})
                                             : data.type.dtype == ir::DType::f64 && any(data, double{});
  });
}

/// How many steps a recurrent layer has whose sequences' lengths are `value`, of whatever integers; 0: there is none.
std::int64_t steps_of_lengths(const ir::Graph& graph, const Plan& plan, ir::ValueId value) {
  for (const ir::Node& n : graph.nodes) {
    if (!n.is(ir::kRnn, ir::kLstm, ir::kGru) || n.inputs.size() != n.op->inputs.size()) continue;
    ir::ValueId lengths = root(plan, n.inputs.back());
    for (const ir::Node& cast : graph.nodes)
      if (cast.is(ir::kCast) && cast.outputs[0] == lengths) {
        lengths = root(plan, cast.inputs[0]);
        break;
      }
    if (lengths == value) return graph.type(n.outputs[0]).shape[0].value();
  }
  return 0;
}

using Tensors = std::map<std::string, ir::TensorData>;

/// The executions behind one record, all from floating inputs in [low, 1).
class Recorder {
 public:
  Recorder(double low, const ir::Graph& graph, const Plan& plan, const Evaluation* evaluation,
           const EmitOptions& options)
      : graph_(graph),
        plan_(plan),
        evaluation_(evaluation),
        options_(options),
        values_(graph, plan),
        symbols_(extent_of(graph, evaluation, options).symbols),
        sized_(sized(graph)),
        updates_in_backward_(ir::updates_in_backward(graph)),
        computed_(ir::amp_dtype(graph)) {
    if (sized_.flag(ir::kAllowTf32) && !computed_) computed_ = ir::DType::f16;  // which has the precision of TF32
    for (const ir::ValueId v : graph.inputs) {
      const std::int64_t classes = classes_of(graph, plan, v), steps = steps_of_lengths(sized_, plan, v);
      inputs_.emplace(v, fill("input." + graph.value(v).name, sized_.type(v), low, 1,
                              steps > 0     ? steps
                              : classes > 0 ? classes
                                            : 2,
                              steps > 0 ? 1 : 0));
    }
  }

  Tensors take() {
    const Tensors exact = run(nullptr), rounded = run(&exact);
    Tensors recorded;
    for (const auto& [v, data] : inputs_) recorded.emplace("input." + values_.member(v), data);
    std::map<std::string, double> most_of_kind;
    const auto kind_of = [](const std::string& name) {
      const std::size_t skip = name.starts_with("later.") ? 6 : 0;
      return name.substr(0, name.find('.', skip));
    };
    for (const auto& [name, data] : exact) {
      double& most = most_of_kind[kind_of(name)];
      most = std::fmax(most, largest_of(data));
    }
    for (const auto& [name, data] : exact) {
      const bool in_half = computed_.has_value() && !of_update_.contains(name);
      const double epsilon = rounding_of(in_half ? *computed_ : data.type.dtype),
                   apart = distance(data, rounded.at(name));
      double own = largest_of(data), tolerance = 4 * apart;
      if (apart > own / 1024) tolerance += 28 * apart + 64 * epsilon * most_of_kind.at(kind_of(name));
      if (const auto before = magnitudes_.find(name); before != magnitudes_.end()) own += before->second;
      tolerance += 8 * epsilon * own;
      recorded.emplace("tolerance." + name, number({ir::DType::f64, {}}, tolerance));
      recorded.emplace(name, data);
    }
    return recorded;
  }

 private:
  /// With the record's sizes, and without leave to round to TF32 where the target does not.
  ir::Graph sized(const ir::Graph& graph) const {
    ir::Graph result = ir::with_sizes(graph, symbols_);
    if (!plan_.target->style.on_device) result.config.erase(std::string(ir::kAllowTf32));
    return result;
  }

  /// One execution: in double precision, or, where what that gave is given, rounded. Results are of the graph's dtypes.
  Tensors run(const Tensors* exact) {
    Tensors results;
    const bool rounded = exact != nullptr;
    TensorValues known = given_to(rounded);
    if (evaluation_) evaluate(known, rounded, results);
    for (const ir::ValueId v : graph_.states) known.emplace(v, zeros(sized_.type(v)));
    if (const ir::ValueId scale = ir::loss_scale(graph_); scale != ir::kNone)
      known.insert_or_assign(scale,
                             number(sized_.type(scale), static_cast<float>(graph_.number(ir::kLossScale).value_or(1))));
    for (const ir::Gradient& g : graph_.gradients)
      if (g.sum != ir::kNone) known.emplace(g.sum, zeros(sized_.type(g.sum)));
    set_hyper(known, 1);

    ir::Graph step = sized_;
    // The update is left out where it can be: it is recorded by itself.
    if (!updates_in_backward_)
      std::erase_if(step.nodes, [](const ir::Node& n) { return n.phase == ir::Phase::update; });
    const auto gradients = parameter_gradients(graph_);
    const std::vector<ir::ValueId> read_by_update =
        updates_in_backward_ ? std::vector<ir::ValueId>() : results_that_updates_read();
    step.outputs.insert(step.outputs.end(), read_by_update.begin(), read_by_update.end());
    for (const ir::Loss& l : graph_.losses) step.outputs.push_back(l.value);
    options_.execute(step, known, rounded);

    const auto keep = [&](const std::string& name, ir::ValueId v) {
      const auto found = known.find(v);
      GRAVEN_CHECK(found != known.end(), "the graph's execution left out " + graph_.value(v).name);
      return &results.insert_or_assign(name, as_type(found->second, graph_.type(v).dtype)).first->second;
    };
    if (graph_.optimizers.empty() && graph_.losses.empty()) {
      for (std::size_t i = 0; i < graph_.outputs.size(); ++i) keep("output." + values_.output(i), graph_.outputs[i]);
      return results;
    }
    std::vector<ir::ValueId> losses;
    for (const ir::Loss& l : graph_.losses) losses.push_back(l.value);
    results.emplace("loss", sum_of(losses, known));
    for (const ir::Donation& d : graph_.donations)
      if (const ir::Value& v = graph_.value(d.variable); v.kind == ir::ValueKind::buffer)
        keep("parameter." + v.name, d.variable);
    if (updates_in_backward_) {
      for (const ir::ValueId v : graph_.states) keep("state." + graph_.value(v).name, v);
      for (const ir::ValueId v : changed_in_proportion(graph_)) keep("parameter." + graph_.value(v).name, v);
      note_magnitudes("parameter.");
      if (!graph_.states.empty()) step_later(exact, results);
      return results;
    }
    std::set<ir::ValueId> exactly_given;  // parameters whose gradients the self-test sets to what is recorded
    for (const GradientOf& g : gradients) {
      const Placement& place = plan_.placements[at(root(plan_, g.gradient))];
      if (place.home != Home::gradient) continue;
      keep("gradient." + graph_.value(g.parameter).name, g.gradient)->type.shape = graph_.type(g.parameter).shape;
      exactly_given.insert(g.parameter);
    }
    update(known, gradients, exactly_given, exact, results);
    return results;
  }

  ir::TensorData weight(ir::ValueId v) const {
    const auto given = options_.weights.find(graph_.value(v).name);
    ir::Value whole = graph_.value(v);
    whole.type = ir::whole_type(graph_, v);
    // The self-test is one process, the first of the ranks.
    return ir::first_part(given != options_.weights.end() ? *given->second : made_up_weight(whole),
                          ir::layout_of(graph_, v), ir::tensor_ranks(graph_));
  }

  /// Inputs and weights.
  TensorValues given_to(bool rounded) const {
    TensorValues given(inputs_.begin(), inputs_.end());
    for (const ir::ValueId v : graph_.parameters) given.emplace(v, weight(v));
    if (!rounded) return given;
    for (auto& [v, data] : given) {
      // Where only the step's result tells, a difference of the weights would hide what is added to them.
      const bool is_input = graph_.value(v).kind == ir::ValueKind::input;
      if (is_input || !updates_in_backward_) round_at_random(graph_.value(v).name, data, computed_);
    }
    return given;
  }

  void set_hyper(TensorValues& known, std::int64_t step) const {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const ir::Value& value = graph_.values[v];
      if (value.kind != ir::ValueKind::hyper) continue;
      const auto id = static_cast<ir::ValueId>(v);
      if (const auto group = ir::group_of_rate(value.name)) {
        known.insert_or_assign(id, number(value.type, test_rate(static_cast<std::int64_t>(*group))));
        continue;
      }
      // A step is of one part.
      const bool counts_steps = value.name == ir::kStepName || value.name == ir::kDrawName;
      const std::int64_t count = counts_steps ? step : value.name == ir::kPartsName ? 1 : 0;
      known.insert_or_assign(id, number(value.type, count));
    }
  }

  std::vector<ir::ValueId> results_that_updates_read() const {
    std::set<ir::ValueId> made, read;
    for (const ir::Node& n : graph_.nodes)
      if (n.phase != ir::Phase::update) made.insert(n.outputs.begin(), n.outputs.end());
    for (const ir::Node& n : graph_.nodes)
      for (const ir::ValueId v : n.inputs)
        if (n.phase == ir::Phase::update && made.count(v)) read.insert(v);
    return {read.begin(), read.end()};
  }

  /// The sum of the scalar losses: the program adds them up in double precision and reports them in f32.
  static ir::TensorData sum_of(const std::vector<ir::ValueId>& losses, const TensorValues& known) {
    double sum = 0;
    for (const ir::ValueId v : losses) sum += number_at(known.at(v), 0);
    return number({ir::DType::f32, {}}, static_cast<float>(sum));
  }

  void evaluate(const TensorValues& known, bool rounded, Tensors& results) const {
    const ir::Graph e = sized(evaluation_->graph);
    std::map<std::string, const ir::TensorData*> given;
    for (const auto& [v, data] : known) given.emplace(graph_.value(v).name, &data);
    TensorValues values;
    for (const auto* list : {&e.inputs, &e.parameters})
      for (const ir::ValueId v : *list) values.emplace(v, *given.at(e.value(v).name));
    options_.execute(e, values, rounded);
    std::vector<ir::ValueId> losses;
    for (std::size_t i = 0; i < e.outputs.size(); ++i) {
      if (e.output_tree.keys.at(i) == "scores")
        results.emplace("evaluation.scores", as_type(values.at(e.outputs[i]), e.type(e.outputs[i]).dtype));
      else
        losses.push_back(e.outputs[i]);
    }
    results.emplace("evaluation.loss", sum_of(losses, values));
  }

  /// Two updates by the gradients as they are recorded, from the weights as they are given: what is compared is the
  /// update's rounding alone.
  void update(TensorValues& known, const std::vector<GradientOf>& gradients, const std::set<ir::ValueId>& exactly_given,
              const Tensors* exact, Tensors& results) {
    if (graph_.optimizers.empty()) return;
    for (const ir::ValueId v : graph_.parameters)
      if (graph_.value(v).kind == ir::ValueKind::parameter) known.insert_or_assign(v, weight(v));
    for (const GradientOf& g : gradients) {
      const auto recorded = (exact ? *exact : results).find("gradient." + graph_.value(g.parameter).name);
      if (!exactly_given.count(g.parameter)) continue;
      ir::TensorData data = recorded->second;
      data.type.shape = sized_.type(g.gradient).shape;
      known.insert_or_assign(g.gradient, std::move(data));
    }
    ir::Graph update = sized_;
    std::erase_if(update.nodes, [](const ir::Node& n) { return n.phase != ir::Phase::update; });
    update.outputs.clear();
    update.losses.clear();
    for (std::int64_t step = 1; step <= 2; ++step) {
      set_hyper(known, step);
      options_.execute(update, known, exact != nullptr);
    }
    std::set<ir::ValueId> compared = exactly_given;
    for (const ir::ValueId v : changed_in_proportion(graph_)) compared.insert(v);
    for (const GradientOf& g : gradients)
      if (compared.count(g.parameter)) {
        const std::string name = "parameter." + graph_.value(g.parameter).name;
        results.insert_or_assign(name, as_type(known.at(g.parameter), graph_.type(g.parameter).dtype));
        of_update_.insert(name);
      }
    for (const ir::Node& node : update.nodes) {
      // The states of a call of which every parameter is compared.
      const auto unknown = [&](ir::ValueId v) {
        return v != ir::kNone && graph_.value(v).kind == ir::ValueKind::parameter && !compared.count(v);
      };
      if (std::any_of(node.inputs.begin(), node.inputs.end(), unknown)) continue;
      for (const ir::ValueId v : node.inputs)
        if (v != ir::kNone && graph_.value(v).kind == ir::ValueKind::state) {
          results.insert_or_assign("state." + graph_.value(v).name, as_type(known.at(v), graph_.type(v).dtype));
          of_update_.insert("state." + graph_.value(v).name);
        }
    }
    note_magnitudes("parameter.");
  }

  /// Another step that updates in backward, from states that are none of zero's.
  void step_later(const Tensors* exact, Tensors& results) {
    TensorValues known = given_to(exact != nullptr);
    for (const ir::ValueId v : graph_.states)
      known.emplace(v, later_state((exact ? *exact : results).at("state." + graph_.value(v).name)));
    set_hyper(known, 2);
    options_.execute(sized_, known, exact != nullptr);
    for (const ir::ValueId v : graph_.states)
      results.emplace("later.state." + graph_.value(v).name, as_type(known.at(v), graph_.type(v).dtype));
    for (const ir::ValueId v : graph_.parameters)
      if (graph_.value(v).kind == ir::ValueKind::parameter)
        results.emplace("later.parameter." + graph_.value(v).name, as_type(known.at(v), graph_.type(v).dtype));
    note_magnitudes("later.parameter.");
  }

  /// What is added to a parameter is rounded with it.
  void note_magnitudes(const std::string& kind) {
    for (const ir::ValueId v : graph_.parameters) magnitudes_[kind + graph_.value(v).name] = largest_of(weight(v));
  }

  const ir::Graph& graph_;
  const Plan& plan_;
  const Evaluation* evaluation_;
  const EmitOptions& options_;
  const ValueNames values_;
  const std::map<std::string, std::int64_t> symbols_;
  const ir::Graph sized_;  ///< the graph at those sizes
  const bool updates_in_backward_;
  std::optional<ir::DType> computed_;  ///< whose precision the program computes in, where that is a half type's
  std::set<std::string> of_update_;    ///< results that an update by itself makes, in its parameters' dtypes
  std::map<ir::ValueId, ir::TensorData> inputs_;
  std::map<std::string, double> magnitudes_;
};

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
  if (getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
    available = std::min(available, static_cast<double>(own.rlim_cur));
  return available;
}

void require_memory(const Need& need, const std::string& name, const std::string& purpose) {
  const double available = available_memory();
  if (need.bytes <= available) return;
  throw UserError(fmt::format("{}: {} takes {:.0f} bytes of memory, and {:.0f} are available", name, purpose,
                              need.bytes, available))
      .note("the largest tensor is " + need.tensor);
}

/// What the executions keep: every result, in double precision, beside what they are given and their own copy of that;
/// and what is compared.
Need need_of(const ir::Graph& sized, bool update) {
  const auto computed = [](const ir::Value& v) {
    return static_cast<double>(ir::is_floating(v.type.dtype) ? sizeof(double) : ir::size_of(v.type.dtype));
  };
  Need need;
  for (const auto* list : {&sized.inputs, &sized.parameters, &sized.states})
    for (const ir::ValueId v : *list)
      need.add(sized.value(v), static_cast<double>(ir::size_of(sized.type(v).dtype)) + computed(sized.value(v)));
  for (const ir::Node& n : sized.nodes) {
    // To the execution a packed weight is the weight.
    if (n.op->alias || n.op->packs || (n.phase == ir::Phase::update && !update)) continue;
    for (const ir::ValueId v : n.outputs) need.add(sized.value(v), computed(sized.value(v)));
  }
  // Gradients, parameters and states after the updates, of two executions.
  if (!sized.optimizers.empty())
    for (const auto* list : {&sized.parameters, &sized.parameters, &sized.states})
      for (const ir::ValueId v : *list)
        need.add(sized.value(v), 2 * static_cast<double>(ir::size_of(sized.type(v).dtype)));
  return need;
}

/// The larger of the step's and the evaluation's.
Need need_of(const ir::Graph& graph, const Evaluation* evaluation, const std::map<std::string, std::int64_t>& sizes) {
  const Need own = need_of(ir::with_sizes(graph, sizes), ir::updates_in_backward(graph));
  if (!evaluation) return own;
  const Need other = need_of(ir::with_sizes(evaluation->graph, sizes), true);
  return other.bytes > own.bytes ? other : own;
}

}  // namespace

Extent extent_of(const ir::Graph& graph, const Evaluation* evaluation, const EmitOptions& options) {
  Extent extent;
  const ir::SizeRules rules = ir::size_rules(graph);
  for (const ir::Symbol& s : rules.symbols) extent.symbols.emplace(s.name, s.most);
  if (options.jit_entry) return extent;
  const auto limit = static_cast<double>(options.selftest);
  for (;;) {
    extent.bytes = need_of(graph, evaluation, extent.symbols).bytes;
    extent.recorded = options.execute && options.selftest > 0 && extent.bytes <= limit;
    if (extent.bytes <= limit) return extent;
    bool less = false;
    for (auto& [name, size] : extent.symbols) {
      // Statistics of a batch need two samples.
      const std::int64_t least = std::max<std::int64_t>(rules.find(name)->least, 2);
      if (size > least) size = std::max((size + 1) / 2, least), less = true;
    }
    if (!less) return extent;
    extent.reduced = true;
  }
}

void require_memory_to_record(const ir::Graph& graph, const Evaluation* evaluation, const EmitOptions& options) {
  const Extent extent = extent_of(graph, evaluation, options);
  if (!extent.recorded) return;
  try {
    require_memory(need_of(graph, evaluation, extent.symbols), graph.name,
                   "computing what the project's self-test compares with");
  } catch (UserError& e) {
    e.note(
        fmt::format("--selftest (EmitOptions::selftest) limits it, to {} bytes; off leaves it out", options.selftest));
    throw;
  }
}

void require_memory_to_make_up(const std::string& name, const std::vector<const ir::Value*>& values) {
  Need need;
  for (const ir::Value* v : values) need.add(*v, static_cast<double>(ir::size_of(v->type.dtype)));
  require_memory(need, name, "making up the weights that were not given");
}

ir::TensorData made_up_weight(const ir::Value& value) {
  const ir::TensorType& type = value.type;
  if (value.kind == ir::ValueKind::buffer) return fill(value.name, type, 0.5, 1.5, 2);
  const std::int64_t n = type.shape.numel().maximum(),
                     rows = type.shape.empty() ? 1 : std::max<std::int64_t>(1, type.shape[0].maximum());
  const double bound =
      1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, type.shape.rank() > 1 ? n / rows : n)));
  return fill(value.name, type, -bound, bound, 2);
}

Tensors record(const ir::Graph& graph, const Plan& plan, const Evaluation* evaluation, const EmitOptions& options) {
  constexpr double kSigned = -1, kPositive = 0;
  const auto from = [&](double low) { return Recorder(low, graph, plan, evaluation, options).take(); };
  Tensors recorded;
  try {
    recorded = from(kSigned);
    if (!has_nan(recorded)) return recorded;
  } catch (const UserError&) {
  }
  // Probabilities, and what a logarithm or a root is taken of.
  try {
    Tensors positive = from(kPositive);
    return recorded.empty() || !has_nan(positive) ? positive : recorded;
  } catch (UserError& e) {
    if (!recorded.empty()) return recorded;
    e.note("this is of the inputs that were made up, in [0, 1), for the project's self-test");
    throw;
  }
}

}  // namespace graven::codegen
