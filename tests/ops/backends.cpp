#include "tests/ops/backends.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "frontend/eager/executor.h"
#include "frontend/eager/table.h"
#include "ir/executable.h"
#include "ir/passes/passes.h"
#include "tests/tolerances.h"

namespace graven::tests {

using ir::DType;
using ir::TensorData;
using ir::TensorType;

namespace {

/// SplitMix64 (Steele et al. 2014): a number in [0, 1) from the seed and a position, on every machine the same.
double uniform(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed * 0x9e3779b97f4a7c15u + (index + 1) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

Computed run_executor(const ir::Graph& traced, const std::vector<TensorData>& inputs, eager::Oracle oracle) {
  ir::Graph graph = traced;
  if (oracle == eager::Oracle::none) {
    eager::lower_for_eager(graph);
  } else {
    ir::decompose_reductions(graph, {});
    ir::decompose_matmuls(graph, {});
  }
  eager::Environment values;
  for (std::size_t i = 0; i < inputs.size(); ++i) values.emplace(graph.inputs[i], inputs[i]);
  eager::execute(graph, values, {.oracle = oracle});
  Computed result;
  for (ir::ValueId v : graph.outputs) result.outputs.push_back(values.at(v));
  return result;
}

/// The project that is emitted for the graph, compiled, loaded and run: all passes, the plan, the generated text.
Computed run_emitted(const ir::Graph& graph, const std::vector<TensorData>& inputs) {
  const std::unique_ptr<ir::Executable> program = ir::compile(graph, {});
  Computed result;
  std::vector<const void*> given;
  for (const TensorData& t : inputs) given.push_back(t.bytes.data());
  std::vector<void*> wanted;
  for (ir::ValueId v : graph.outputs) {
    const TensorType& type = graph.type(v);
    result.outputs.push_back(
        {type, std::vector<std::byte>(static_cast<std::size_t>(type.shape.numel().value()) * ir::size_of(type.dtype))});
  }
  for (TensorData& t : result.outputs) wanted.push_back(t.bytes.data());
  program->run(given, wanted, {}, {});
  return result;
}

}  // namespace

TensorData random_tensor(const TensorType& type, double low, double high, std::uint64_t seed) {
  const auto n = static_cast<std::size_t>(type.shape.numel().value());
  TensorData data{{DType::f64, type.shape}, std::vector<std::byte>(n * sizeof(double))};
  for (std::size_t i = 0; i < n; ++i) {
    double x = low + uniform(seed, i) * (high - low);
    if (!ir::is_floating(type.dtype)) x = std::floor(x);
    std::memcpy(data.bytes.data() + i * sizeof x, &x, sizeof x);
  }
  return eager::convert(data, type.dtype);
}

std::vector<double> as_doubles(const TensorData& data) {
  const TensorData wide = eager::convert(data, DType::f64);
  std::vector<double> values(wide.bytes.size() / sizeof(double));
  if (!values.empty()) std::memcpy(values.data(), wide.bytes.data(), wide.bytes.size());
  return values;
}

Computed run_oracle(const ir::Graph& graph, const std::vector<TensorData>& inputs) {
  return run_executor(graph, inputs, eager::Oracle::double_reference);
}

const std::vector<Backend>& backends() {
  static const std::vector<Backend> kBackends = {
      {"reference",
       [](const ir::Graph& g, const std::vector<TensorData>& inputs) {
         return run_executor(g, inputs, eager::Oracle::reference);
       }},
      {"eager", [](const ir::Graph& g,
                   const std::vector<TensorData>& inputs) { return run_executor(g, inputs, eager::Oracle::none); }},
      {"emitted", run_emitted, true},
  };
  return kBackends;
}

double difference(const TensorData& expected, const TensorData& computed) {
  const std::vector<double> a = as_doubles(expected), b = as_doubles(computed);
  if (a.size() != b.size() || expected.type.shape != computed.type.shape)
    return std::numeric_limits<double>::infinity();
  double scale = 1, worst = 0;
  for (double x : a)
    if (std::isfinite(x)) scale = std::max(scale, std::fabs(x));
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double d = std::fabs(a[i] - b[i]) / scale;
    worst = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(worst, d);
  }
  return worst;
}

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return tolerance::operators.f64;
    case DType::f32:
      return tolerance::operators.f32;
    case DType::f16:
      return tolerance::operators.f16;
    case DType::bf16:
      return tolerance::operators.bf16;
    default:
      return 0;
  }
}

}  // namespace graven::tests
