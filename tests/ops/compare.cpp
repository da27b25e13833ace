#include "tests/ops/compare.h"

#include <gtest/gtest.h>

#include "tests/tolerances.h"

namespace graven::tests {

using ir::DType;
using ir::OpDef;
using ir::TensorData;

namespace {

std::uint64_t hash(std::string_view text) {  // FNV-1a
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
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
void expect_close(const std::vector<TensorData>& expected, const std::vector<TensorData>& computed,
                  const CaseGraph& made, const ir::TestCase& test_case, const char* what) {
  ASSERT_EQ(expected.size(), computed.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double tolerance = ir::is_floating(computed[i].type.dtype) ? allowed(test_case, coarsest(made)) : 0;
    EXPECT_LE(difference(expected[i], computed[i]), tolerance)
        << what << " " << i << " " << computed[i].type.to_string();
  }
}

bool is_compiled(const NamedCase& c) {
  const ir::Attribute* channels_last = c.test_case.attributes.find("channels_last");
  return !c.op->donates() && !c.op->packs && !(channels_last && std::get<bool>(*channels_last));
}

}  // namespace

std::vector<TensorData> random_inputs(const CaseGraph& made, const OpDef& op, const ir::TestCase& test_case) {
  std::vector<TensorData> inputs;
  for (std::size_t i = 0; i < made.graph.inputs.size(); ++i) {
    const int of = made.input_of[i];
    double low = -1, high = 1;
    if (of >= 0)
      low = test_case.inputs[static_cast<std::size_t>(of)].low,
      high = test_case.inputs[static_cast<std::size_t>(of)].high;
    inputs.push_back(random_tensor(made.graph.type(made.graph.inputs[i]), low, high,
                                   hash(std::string(op.name) + test_case.note) + i));
  }
  return inputs;
}

void compare(const Backend& backend, const CaseGraph& made, const std::vector<TensorData>& inputs,
             const ir::TestCase& test_case) {
  const Computed expected = run_oracle(made.graph, inputs);
  const Computed computed = backend.run(made.graph, inputs);
  expect_close(expected.outputs, computed.outputs, made, test_case, "output");
}

ir::TestCase looser(const ir::TestCase& test_case) {
  ir::TestCase changed = test_case;
  changed.tolerance = test_case.tolerance == 0 ? tolerance::operator_gradients.f32 : 10 * test_case.tolerance;
  return changed;
}

std::vector<const OpDef*> operators(const std::function<bool(const OpDef&)>& rule) {
  std::vector<const OpDef*> chosen;
  for (const OpDef* op : ir::all_ops())
    if (rule(*op)) chosen.push_back(op);
  return chosen;
}

std::vector<NamedCase> cases_to_compile() {
  std::vector<NamedCase> cases = all_cases();
  std::erase_if(cases, [](const NamedCase& c) { return !is_compiled(c); });
  return cases;
}

void compare_batch(const Backend& backend, const std::vector<NamedCase>& cases, bool gradients) {
  const Batch batch = make_batch(cases, gradients);
  std::vector<TensorData> inputs;
  for (const Batch::Part& part : batch.parts)
    for (TensorData& t : random_inputs(part.alone, *part.op, part.test_case)) inputs.push_back(std::move(t));
  const Computed computed = backend.run(batch.graph, inputs);
  for (const Batch::Part& part : batch.parts) {
    SCOPED_TRACE(part.name + " on " + backend.name);
    const auto input = inputs.begin() + static_cast<std::ptrdiff_t>(part.first_input);
    const auto output = computed.outputs.begin() + static_cast<std::ptrdiff_t>(part.first_output);
    const Computed expected =
        run_oracle(part.alone.graph, {input, input + static_cast<std::ptrdiff_t>(part.alone.graph.inputs.size())});
    expect_close(expected.outputs, {output, output + static_cast<std::ptrdiff_t>(part.alone.graph.outputs.size())},
                 part.alone, gradients ? looser(part.test_case) : part.test_case, "output");
  }
}

}  // namespace graven::tests
