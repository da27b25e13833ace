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
#include "tests/tolerances.h"

namespace graven::tests {
namespace {

using ir::DType;
using ir::OpDef;
using ir::TensorData;

std::uint64_t hash(std::string_view text) {  // FNV-1a
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

/// Contents for every input of the graph: the case's own limits, [-1, 1) for gradients of outputs.
std::vector<TensorData> random_inputs(const CaseGraph& made, const OpDef& op, const ir::TestCase& test_case) {
  std::vector<TensorData> inputs;
  for (std::size_t i = 0; i < made.graph.inputs.size(); ++i) {
    const int of = made.input_of[i];
    double low = -1, high = 1;
    if (of >= 0) low = test_case.inputs[static_cast<std::size_t>(of)].low, high = test_case.inputs[static_cast<std::size_t>(of)].high;
    inputs.push_back(random_tensor(made.graph.type(made.graph.inputs[i]), low, high, hash(std::string(op.name) + test_case.note) + i));
  }
  return inputs;
}

double allowed(const ir::TestCase& test_case, DType dtype) {
  const double usual = tolerance_of(dtype);
  if (test_case.tolerance == 0 || dtype == DType::f64) return usual;
  return test_case.tolerance * usual / tolerance_of(DType::f32);  // it is stated for f32
}

/// A value computed from half numbers is no better than they are, whatever its own dtype.
DType coarsest(const CaseGraph& made) {
  DType worst = DType::f64;
  for (const ir::Value& v : made.graph.values)
    if (ir::is_floating(v.type.dtype) && tolerance_of(v.type.dtype) > tolerance_of(worst)) worst = v.type.dtype;
  return worst;
}

/// Compares tensors of one kind with what the oracle gave.
void expect_close(const std::vector<TensorData>& expected, const std::vector<TensorData>& computed, const CaseGraph& made,
                  const ir::TestCase& test_case, const char* what) {
  ASSERT_EQ(expected.size(), computed.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double tolerance = ir::is_floating(computed[i].type.dtype) ? allowed(test_case, coarsest(made)) : 0;
    EXPECT_LE(difference(expected[i], computed[i]), tolerance) << what << " " << i << " " << computed[i].type.to_string();
  }
}

void compare(const Backend& backend, const CaseGraph& made, const std::vector<TensorData>& inputs, const ir::TestCase& test_case, bool effect) {
  const Computed expected = run_oracle(made.graph, inputs);
  const Computed computed = backend.run(made.graph, inputs);
  expect_close(expected.outputs, computed.outputs, made, test_case, "output");
  if (effect) expect_close(expected.inputs, computed.inputs, made, test_case, "input");
}

/// A gradient is a longer computation than the operator.
ir::TestCase looser(const ir::TestCase& test_case) {
  ir::TestCase changed = test_case;
  changed.tolerance = test_case.tolerance == 0 ? tolerance::operator_gradients.f32 : 10 * test_case.tolerance;
  return changed;
}

/// Packed weights are the kernels' own affair: to the reference kernels they are the weights as they are. What reads them is compared.
bool is_packing(const OpDef& op) { return op.name.substr(0, 5) == "pack_"; }

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

/// What is worth a compiler's time, of what a user's graph may hold (the layout is chosen, and weights are packed, by passes): f32, and of the
/// elementwise operators, which differ in one line of text, the first few cases.
bool is_compiled(const NamedCase& c, std::size_t index) {
  const ir::Attribute* channels_last = c.test_case.attributes.find("channels_last");
  if (c.op->has_effect() || is_packing(*c.op) || (channels_last && std::get<bool>(*channels_last))) return false;
  for (const ir::TestCase::Input& i : c.test_case.inputs)
    if (!i.absent && ir::is_floating(i.type.dtype) && i.type.dtype != DType::f32) return false;
  return !c.op->elementwise() || c.op->name == "cast" || index < 3;
}

/// All cases in one graph: one compilation for each backend that compiles.
void compare_batch(bool gradients) {
  std::vector<NamedCase> cases;
  std::size_t index = 0;
  for (NamedCase& c : all_cases()) {
    index = cases.empty() || cases.back().op != c.op ? 0 : index + 1;
    if (is_compiled(c, index)) cases.push_back(std::move(c));
  }
  const Batch batch = make_batch(cases, gradients);
  std::vector<TensorData> inputs;
  for (const Batch::Part& part : batch.parts)
    for (TensorData& t : random_inputs(part.alone, *part.op, part.test_case)) inputs.push_back(std::move(t));
  for (const Backend& backend : backends()) {
    if (!backend.compiles) continue;
    const Computed computed = backend.run(batch.graph, inputs);
    for (const Batch::Part& part : batch.parts) {
      SCOPED_TRACE(part.name + " on " + backend.name);
      const auto input = inputs.begin() + static_cast<std::ptrdiff_t>(part.first_input);
      const auto output = computed.outputs.begin() + static_cast<std::ptrdiff_t>(part.first_output);
      const Computed expected = run_oracle(part.alone.graph, {input, input + static_cast<std::ptrdiff_t>(part.alone.graph.inputs.size())});
      expect_close(expected.outputs, {output, output + static_cast<std::ptrdiff_t>(part.alone.graph.outputs.size())}, part.alone,
                   gradients ? looser(part.test_case) : part.test_case, "output");
    }
  }
}

TEST(AllOperators, ComputeTheSameWhenCompiled) { compare_batch(false); }
TEST(AllOperators, GradientsAgreeWhenCompiled) { compare_batch(true); }

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
