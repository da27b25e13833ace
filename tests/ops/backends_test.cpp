// Every test case of every operator on every backend against the reference kernels in double; every gradient rule against finite differences in
// double, and its graph on every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/diagnostic.h"
#include "tests/ops/backends.h"
#include "tests/ops/case_graph.h"
#include "tests/ops/compare.h"
#include "tests/tolerances.h"

namespace graven::tests {
namespace {

using ir::DType;
using ir::OpDef;
using ir::TensorData;

class Operator : public testing::TestWithParam<const OpDef*> {};

TEST_P(Operator, ComputesTheSameOnEveryBackend) {
  if (is_packing(*GetParam())) return;
  for (const ir::TestCase& c : GetParam()->cases())
    for (const Backend& backend : backends()) {
      if (backend.compiles) continue;
      SCOPED_TRACE(c.note + " on " + backend.name);
      const CaseGraph made = make_forward(*GetParam(), c);
      compare(backend, made, random_inputs(made, *GetParam(), c), c, GetParam()->has_effect());
    }
}

/// NaN, infinities and both zeros in every combination: the vectorised functions end where the C library's do.
TEST_P(Operator, TreatsSpecialValuesAsTheReferenceDoes) {
  const OpDef& op = *GetParam();
  if (!op.elementwise() || op.inputs.empty()) return;
  bool floating = false;  // bits of integers have no special values
  for (const ir::TestCase& c : op.cases())
    for (const ir::TestCase::Input& i : c.inputs) floating = floating || i.type.dtype == DType::f32;
  if (!floating) return;
  constexpr float kSpecial[] = {std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity(),
                                0.0f,
                                -0.0f,
                                1.0f,
                                -2.0f};
  constexpr std::size_t kCount = std::size(kSpecial);
  ir::TestCase c{.note = "special values", .attributes = op.cases()[0].attributes};
  std::vector<TensorData> inputs;
  std::size_t total = 1;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) total *= kCount;
  for (std::size_t i = 0, step = 1; i < op.inputs.size(); ++i, step *= kCount) {
    const bool condition = op.name == "where" && i == 0;
    c.inputs.push_back({.type = {condition ? DType::boolean : DType::f32, {static_cast<std::int64_t>(total)}}});
    TensorData data{c.inputs.back().type, std::vector<std::byte>(total * (condition ? 1 : sizeof(float)))};
    for (std::size_t k = 0; k < total; ++k) {
      const float value = kSpecial[k / step % kCount];
      if (condition)
        data.bytes[k] = std::byte(k / step % 2);
      else
        std::memcpy(data.bytes.data() + k * sizeof value, &value, sizeof value);
    }
    inputs.push_back(std::move(data));
  }
  if (op.name == "cast") c.attributes = {{"dtype", DType::f64}};
  for (const Backend& backend : backends()) {
    if (backend.compiles) continue;
    SCOPED_TRACE(backend.name);
    compare(backend, make_forward(op, c), inputs, c, false);
  }
}

TEST_P(Operator, GradientsAgreeOnEveryBackend) {
  for (const ir::TestCase& c : GetParam()->cases()) {
    if (!c.gradient) continue;
    for (const Backend& backend : backends()) {
      if (backend.compiles) continue;
      SCOPED_TRACE(c.note + " on " + backend.name);
      const CaseGraph made = make_gradient(*GetParam(), c);
      compare(backend, made, random_inputs(made, *GetParam(), c), looser(c), false);
    }
  }
}

void compare_compiled(bool gradients) {
  for (const Backend& backend : backends())
    if (backend.compiles) compare_batch(backend, cases_to_compile(), gradients);
}

TEST(AllOperators, ComputeTheSameWhenCompiled) { compare_compiled(false); }
TEST(AllOperators, GradientsAgreeWhenCompiled) { compare_compiled(true); }

/// Sum of dy * y.
double inner_product(const TensorData& dy, const TensorData& y) {
  const std::vector<double> a = as_doubles(dy), b = as_doubles(y);
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

TEST_P(Operator, GradientsAreTheLimitsOfDifferences) {
  constexpr double kStep = 1e-6, kTolerance = 1e-6;
  constexpr std::size_t kElements = 40;  // of each input, at most
  for (const ir::TestCase& c : GetParam()->cases()) {
    // Half the inputs' dtypes would only repeat the same in double.
    bool half = false;
    for (const ir::TestCase::Input& i : c.inputs) half = half || i.type.dtype == DType::f16 || i.type.dtype == DType::bf16;
    if (!c.gradient || half) continue;
    SCOPED_TRACE(c.note);
    const CaseGraph forward = make_forward(*GetParam(), c), backward = make_gradient(*GetParam(), c);
    std::vector<TensorData> inputs = random_inputs(backward, *GetParam(), c);
    // In double all the way: a step of 1e-6 is nothing to an f32.
    for (TensorData& t : inputs)
      if (ir::is_floating(t.type.dtype)) {
        const std::vector<double> values = as_doubles(t);
        t.type.dtype = DType::f64;
        t.bytes.resize(values.size() * sizeof(double));
        if (!values.empty()) std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
      }
    const Computed gradients = run_oracle(backward.graph, inputs);
    const TensorData& dy = inputs.back();
    std::vector<TensorData> moved(inputs.begin(), inputs.end() - 1);
    for (std::size_t g = 0; g < gradients.outputs.size(); ++g) {
      const auto input =
          static_cast<std::size_t>(std::find(backward.input_of.begin(), backward.input_of.end(), backward.output_of[g]) - backward.input_of.begin());
      const std::vector<double> gradient = as_doubles(gradients.outputs[g]);
      const std::size_t stride = gradient.size() > kElements ? gradient.size() / kElements : 1;
      for (std::size_t i = 0; i < gradient.size(); i += stride) {
        std::byte* const at = moved[input].bytes.data() + i * sizeof(double);
        double x = 0;
        std::memcpy(&x, at, sizeof x);
        const auto loss_at = [&](double value) {
          std::memcpy(at, &value, sizeof value);
          return inner_product(dy, run_oracle(forward.graph, moved).outputs[0]);
        };
        const double slope = (loss_at(x + kStep) - loss_at(x - kStep)) / (2 * kStep);
        std::memcpy(at, &x, sizeof x);
        EXPECT_NEAR(gradient[i], slope, kTolerance * (1 + std::fabs(slope))) << "input " << backward.output_of[g] << " element " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Operator, testing::ValuesIn(ir::all_ops()), [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace graven::tests
