// Every test case of every operator on every backend against the reference kernels in double; every gradient rule
// against finite differences in double, and its graph on every backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

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

/// Whether one of the operator's cases reads tensors of the dtype.
bool takes(const OpDef& op, DType dtype) {
  for (const ir::TestCase& c : op.cases())
    for (const ir::TestCase::Input& i : c.inputs)
      if (i.type.dtype == dtype) return true;
  return false;
}

/// Whether an input has half the bits of an f32: its differences would only repeat in double what f32's are.
bool is_of_halves(const ir::TestCase& c) {
  return std::any_of(c.inputs.begin(), c.inputs.end(),
                     [](const auto& i) { return i.type.dtype == DType::f16 || i.type.dtype == DType::bf16; });
}
bool is_differentiable(const OpDef& op) {
  const std::vector<ir::TestCase> cases = op.cases();
  return std::any_of(cases.begin(), cases.end(), [](const ir::TestCase& c) { return c.gradient && !is_of_halves(c); });
}
bool is_scalar(const OpDef& op) { return op.elementwise() && !op.inputs.empty(); }

class DifferentiableOperator : public testing::TestWithParam<const OpDef*> {};
class UnpackedOperator : public testing::TestWithParam<const OpDef*> {};
class FloatingScalarOperator : public testing::TestWithParam<const OpDef*> {};
class IntegerScalarOperator : public testing::TestWithParam<const OpDef*> {};

TEST_P(UnpackedOperator, ComputesTheSameOnEveryBackend) {
  for (const ir::TestCase& c : GetParam()->cases())
    for (const Backend& backend : backends()) {
      if (backend.compiles) continue;
      SCOPED_TRACE(c.note + " on " + backend.name);
      const CaseGraph made = make_forward(*GetParam(), c);
      compare(backend, made, random_inputs(made, *GetParam(), c), c);
    }
}

/// Every combination of these numbers as the inputs of a scalar operator (where's condition: both bools).
template <class T>
std::pair<ir::TestCase, std::vector<TensorData>> every_combination(const OpDef& op, DType dtype,
                                                                   const std::vector<T>& numbers) {
  ir::TestCase c{.note = std::string(ir::name(dtype)), .attributes = op.cases()[0].attributes};
  std::vector<TensorData> inputs;
  std::size_t total = 1;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) total *= numbers.size();
  for (std::size_t i = 0, step = 1; i < op.inputs.size(); ++i, step *= numbers.size()) {
    const bool condition = op.name == "where" && i == 0;
    c.inputs.push_back({.type = {condition ? DType::boolean : dtype, {static_cast<std::int64_t>(total)}}});
    TensorData data{c.inputs.back().type, std::vector<std::byte>(total * (condition ? 1 : sizeof(T)))};
    for (std::size_t k = 0; k < total; ++k) {
      if (condition)
        data.bytes[k] = std::byte(k / step % 2);
      else
        std::memcpy(data.bytes.data() + k * sizeof(T), &numbers[k / step % numbers.size()], sizeof(T));
    }
    inputs.push_back(std::move(data));
  }
  if (op.name == "cast") c.attributes = {{"dtype", DType::f64}};
  return {std::move(c), std::move(inputs)};
}

/// NaN, infinities and both zeros in every combination: the vectorised functions end where the C library's do.
TEST_P(FloatingScalarOperator, TreatsSpecialValuesAsTheReferenceDoes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto [c, inputs] = every_combination<float>(
      *GetParam(), DType::f32,
      {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity, 0.0f, -0.0f, 1.0f, -2.0f});
  for (const Backend& backend : backends()) {
    if (backend.compiles) continue;
    SCOPED_TRACE(backend.name);
    const CaseGraph made = make_forward(*GetParam(), c);
    compare(backend, made, inputs, c);
    // A difference of 0 does not tell zeros apart.
    const std::vector<double> expected = as_doubles(run_oracle(made.graph, inputs).outputs[0]);
    const std::vector<double> found = as_doubles(backend.run(made.graph, inputs).outputs[0]);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      std::string at;
      for (const TensorData& x : inputs) at += " " + std::to_string(as_doubles(x)[i]);
      EXPECT_TRUE(expected[i] != 0 || found[i] != 0 || std::signbit(expected[i]) == std::signbit(found[i]))
          << "of" << at << ": " << found[i] << ", expected " << expected[i];
    }
  }
}

/// The least and the largest number in every combination: integers wrap around. This test also runs under
/// UndefinedBehaviorSanitizer.
template <class T>
void compare_extremes(const OpDef& op, DType dtype) {
  constexpr T kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
  const auto [c, inputs] = every_combination<T>(
      op, dtype,
      {kLeast, T(kLeast + 1), T(kLeast / 2), T(-1), T(0), T(1), T(2), T(7), T(kMost / 2), T(kMost - 1), kMost});
  for (const Backend& backend : backends()) {
    if (backend.compiles) continue;
    SCOPED_TRACE(c.note + " on " + backend.name);
    const Computed computed = backend.run(make_forward(op, c).graph, inputs);
    const Computed expected = run_oracle(make_forward(op, c).graph, inputs);
    // Not as doubles, which hold 53 bits.
    if (!ir::is_floating(expected.outputs[0].type.dtype)) {
      EXPECT_EQ(computed.outputs[0].bytes, expected.outputs[0].bytes);
    }
  }
}

TEST_P(IntegerScalarOperator, WrapsAsTheReferenceDoes) {
  const OpDef& op = *GetParam();
  if (takes(op, DType::i8)) compare_extremes<std::int8_t>(op, DType::i8);
  if (takes(op, DType::u8)) compare_extremes<std::uint8_t>(op, DType::u8);
  if (takes(op, DType::i32)) compare_extremes<std::int32_t>(op, DType::i32);
  if (takes(op, DType::i64)) compare_extremes<std::int64_t>(op, DType::i64);
}

TEST_P(DifferentiableOperator, GradientsAgreeOnEveryBackend) {
  for (const ir::TestCase& c : GetParam()->cases()) {
    if (!c.gradient) continue;
    for (const Backend& backend : backends()) {
      if (backend.compiles) continue;
      SCOPED_TRACE(c.note + " on " + backend.name);
      const CaseGraph made = make_gradient(*GetParam(), c);
      compare(backend, made, random_inputs(made, *GetParam(), c), looser(c));
    }
  }
}

/// Whether an operator of two inputs gives the same with them exchanged, zeros of one sign; all NaN are alike.
template <class T>
bool commutes(const OpDef& op, DType dtype, const std::vector<T>& numbers) {
  const auto [c, inputs] = every_combination<T>(op, dtype, numbers);
  const CaseGraph made = make_forward(op, c);
  const std::vector<double> one = as_doubles(run_oracle(made.graph, inputs).outputs[0]);
  const std::vector<double> other = as_doubles(run_oracle(made.graph, {inputs[1], inputs[0]}).outputs[0]);
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](double x, double y) {
    return (x == y && std::signbit(x) == std::signbit(y)) || (std::isnan(x) && std::isnan(y));
  });
}

// What is equal but for the order of its inputs is computed once where the operator's entry says that the order means
// nothing.
TEST(AllOperators, AreCommutativeWhereTheirEntriesSaySo) {
  int commutative = 0;
  for (const OpDef* op : operators([](const OpDef& o) { return is_scalar(o) && o.inputs.size() == 2; })) {
    const bool found = takes(*op, DType::f32) ? commutes<float>(*op, DType::f32, {0, -0.0F, 1, -2, 0.3F, 7, 1e30F})
                       : takes(*op, DType::boolean) ? commutes<std::uint8_t>(*op, DType::boolean, {0, 1})
                                                    : commutes<std::int32_t>(*op, DType::i32, {0, 1, -2, 3, 7, 12});
    EXPECT_EQ(op->commutative, found) << op->name;
    commutative += found ? 1 : 0;
  }
  EXPECT_GE(commutative, 8);
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

TEST_P(DifferentiableOperator, GradientsAreTheLimitsOfDifferences) {
  constexpr double kStep = 1e-6, kTolerance = 1e-6;
  constexpr std::size_t kElements = 40;  // of each input, at most
  for (const ir::TestCase& c : GetParam()->cases()) {
    if (!c.gradient || is_of_halves(c)) continue;
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
    // Behind the operator's inputs, the gradients of those outputs through which they flow.
    const auto flowing = static_cast<std::ptrdiff_t>(GetParam()->gradient_outputs);
    std::vector<TensorData> moved(inputs.begin(), inputs.end() - flowing);
    for (std::size_t g = 0; g < gradients.outputs.size(); ++g) {
      const auto input = static_cast<std::size_t>(
          std::find(backward.input_of.begin(), backward.input_of.end(), backward.output_of[g]) -
          backward.input_of.begin());
      const std::vector<double> gradient = as_doubles(gradients.outputs[g]);
      const std::size_t stride = gradient.size() > kElements ? gradient.size() / kElements : 1;
      for (std::size_t i = 0; i < gradient.size(); i += stride) {
        std::byte* const at = moved[input].bytes.data() + i * sizeof(double);
        double x = 0;
        std::memcpy(&x, at, sizeof x);
        const auto loss_at = [&](double value) {
          std::memcpy(at, &value, sizeof value);
          const std::vector<TensorData> outputs = run_oracle(forward.graph, moved).outputs;
          double loss = 0;
          for (std::ptrdiff_t k = 0; k < flowing; ++k)
            loss +=
                inner_product(inputs[moved.size() + static_cast<std::size_t>(k)], outputs[static_cast<std::size_t>(k)]);
          return loss;
        };
        const double slope = (loss_at(x + kStep) - loss_at(x - kStep)) / (2 * kStep);
        std::memcpy(at, &x, sizeof x);
        EXPECT_NEAR(gradient[i], slope, kTolerance * (1 + std::fabs(slope)))
            << "input " << backward.output_of[g] << " element " << i;
      }
    }
  }
}

const auto kName = [](const auto& info) { return std::string(info.param->name); };
INSTANTIATE_TEST_SUITE_P(Backends, DifferentiableOperator, testing::ValuesIn(operators(is_differentiable)), kName);
INSTANTIATE_TEST_SUITE_P(Backends, UnpackedOperator,
                         testing::ValuesIn(operators([](const OpDef& op) { return !op.packs; })), kName);
INSTANTIATE_TEST_SUITE_P(Backends, FloatingScalarOperator, testing::ValuesIn(operators([](const OpDef& op) {
                           return is_scalar(op) && takes(op, DType::f32);
                         })),
                         kName);
INSTANTIATE_TEST_SUITE_P(Backends, IntegerScalarOperator, testing::ValuesIn(operators([](const OpDef& op) {
                           return is_scalar(op) && (takes(op, DType::i8) || takes(op, DType::u8) ||
                                                    takes(op, DType::i32) || takes(op, DType::i64));
                         })),
                         kName);

}  // namespace
}  // namespace graven::tests
