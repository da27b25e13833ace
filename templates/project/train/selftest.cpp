@{ banner }@
{% if recorded %}
{% if updates_in_backward %}
// The self-test: a step on recorded inputs, and one with other states; the loss, the parameters and the optimizer's
// states against what was recorded when the project was generated (in double precision, by plain loops), as near as
// rounding allows; then the first step again with another model, which must give the same bits.
{% else %}
// The self-test: forward and backward on recorded inputs, and two updates by the recorded gradients; loss, gradients,
// parameters and the optimizer's states against what was recorded when the project was generated (in double precision,
// by plain loops), as near as rounding allows; then the same again, which must give the same bits.
{% endif %}
{% else %}
// The self-test: two runs of the same step must give the same bits. Nothing was recorded to compare it with.
{% endif %}
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "model.h"
#include "runtime/arena.h"
#include "runtime/compare.h"
#include "runtime/file.h"

namespace @{ namespace }@ {
namespace {

namespace runtime = graven::runtime;
using runtime::DType;

DType dtype_of(const Tensor& tensor) { return runtime::dtype_named(tensor.dtype).value(); }
std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(runtime::count_of(tensor.shape)) * runtime::size_of(dtype_of(tensor));
}

using Contents = std::vector<std::vector<char>>;

Contents contents(const std::vector<Tensor>& tensors) {
  Contents copies;
  for (const Tensor& t : tensors)
    copies.emplace_back(static_cast<const char*>(t.data), static_cast<const char*>(t.data) + bytes_of(t));
  return copies;
}

[[maybe_unused]] void restore(const std::vector<Tensor>& tensors, const Contents& copies) {
  for (std::size_t i = 0; i < tensors.size(); ++i) std::memcpy(tensors[i].data, copies[i].data(), copies[i].size());
}

/// Whether two runs left the same bits in these.
bool agree(const std::vector<Tensor>& tensors, const Contents& before) {
  const Contents after = contents(tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (after[i] != before[i]) return std::printf("%s: two runs differ\n", tensors[i].path.c_str()), false;
  return true;
}
{% if recorded %}

/// Those that were recorded, under `kind` and their paths.
void check(runtime::Comparison& comparison, const std::string& kind, const std::vector<Tensor>& tensors) {
  for (const Tensor& t : tensors)
    if (const std::string name = kind + t.path; comparison.has(name))
      comparison.check(name.c_str(), t.data, dtype_of(t), t.shape);
}
{% if updates_in_backward and has_states %}

/// |x| + max |x| of what was recorded: states that no step leaves at 0.
void set_later_state(const runtime::Comparison& comparison, const Tensor& state) {
  const DType dtype = dtype_of(state);
  comparison.load(("state." + state.path).c_str(), state.data, dtype, state.shape);
  auto* const data = static_cast<std::byte*>(state.data);
  const std::int64_t n = runtime::count_of(state.shape);
  double most = 0;
  for (std::int64_t i = 0; i < n; ++i) most = std::fmax(most, std::fabs(runtime::number_at(dtype, data, i)));
  for (std::int64_t i = 0; i < n; ++i)
    runtime::put_number(dtype, data, i, std::fabs(runtime::number_at(dtype, data, i)) + most);
}
{% endif %}
{% endif %}

int test() {
  try {
    Model model;
@{ selftest_inputs }@
    model.load(runtime::required_beside_program("weights.safetensors"));
    // Also buffers, which a forward phase may both read and write.
    const Contents weights = contents(model.parameters());
{% if recorded %}
    runtime::Comparison comparison(runtime::required_beside_program("selftest.safetensors"));
{% for input in inputs %}
    comparison.load("input.@{ input.member }@", @{ input.member }@, DType::@{ input.element }@, {@{ input.tested }@});
{% endfor %}
{% endif %}
{% if recorded and evaluates_apart %}
    const float evaluated = static_cast<float>(model.evaluate(@{ argument_names }@));
    comparison.check("evaluation.loss", &evaluated, DType::f32, {});
{% for output in scores %}
    comparison.check("evaluation.scores", model.scores().data, DType::@{ output.element }@, {@{ output.tested }@});
{% endfor %}
{% endif %}
    // Learning rates that are large, for rounding to hide little of what is added to a parameter, and unlike one
    // another.
    Hyper hyper;
{% if group_count > 0 %}
    for (int i = 0; i < @{ group_count }@; ++i) hyper.learning_rates[i] = 1.0 / (2 + i % 8);
{% endif %}
{% if updates_in_backward %}
    const double loss = model.step(@{ argument_names }@, hyper);
    std::printf("%s, level %s, loss %.9g\n", @{ name_literal }@, model.level(), loss);
{% if recorded %}
    const float loss_f32 = static_cast<float>(loss);
    comparison.check("loss", &loss_f32, DType::f32, {});
    check(comparison, "parameter.", model.parameters());
    check(comparison, "state.", model.states());
{% endif %}
    Model other;
    other.load(runtime::required_beside_program("weights.safetensors"));
    other.step(@{ argument_names }@, hyper);
    if (!agree(model.parameters(), contents(other.parameters())) || !agree(model.states(), contents(other.states())))
      return 1;
    std::printf("two runs agree in every bit\n");
{% if recorded and has_states %}
    restore(model.parameters(), weights);
    for (const Tensor& t : model.states()) set_later_state(comparison, t);
{% if on_device %}
    model.write_back();
{% endif %}
    hyper.step = 2;
    model.step(@{ argument_names }@, hyper);
    check(comparison, "later.parameter.", model.parameters());
    check(comparison, "later.state.", model.states());
{% endif %}
{% else %}
    const Contents states = contents(model.states());
    double loss = 0;
    const auto forward_and_backward = [&] {
      loss = model.forward(@{ argument_names }@);
      model.backward(@{ argument_names }@);
    };
    const auto update_twice = [&] {
{% if recorded %}
      // By what the gradients should be, so that it is the update that is compared.
      for (const Tensor& t : model.gradients())
        if (const std::string name = "gradient." + t.path; comparison.has(name))
          comparison.load(name.c_str(), t.data, dtype_of(t), t.shape);
{% if on_device %}
      model.write_back_gradients();
{% endif %}
{% endif %}
      for (hyper.step = 1; hyper.step <= 2; ++hyper.step) model.update(hyper);
    };
    forward_and_backward();
    std::printf("%s, level %s, loss %.9g\n", @{ name_literal }@, model.level(), loss);
{% if recorded %}
    const float loss_f32 = static_cast<float>(loss);
    comparison.check("loss", &loss_f32, DType::f32, {});
    check(comparison, "gradient.", model.gradients());
{% endif %}
    const Contents gradients = contents(model.gradients());
    update_twice();
{% if recorded %}
    check(comparison, "parameter.", model.parameters());
    check(comparison, "state.", model.states());
{% endif %}
    const Contents updated = contents(model.parameters()), updated_states = contents(model.states());
    restore(model.parameters(), weights);
    restore(model.states(), states);
{% if on_device %}
    model.write_back();
{% endif %}
    forward_and_backward();
    if (!agree(model.gradients(), gradients)) return 1;
    update_twice();
    if (!agree(model.parameters(), updated) || !agree(model.states(), updated_states)) return 1;
    std::printf("two runs agree in every bit\n");
{% endif %}
{% if recorded %}
    return comparison.finish();
{% else %}
    return 0;
{% endif %}
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}

}  // namespace
}  // namespace @{ namespace }@

{% if tensor_ranks > 1 %}
int main() {
  @{ namespace }@::Model::is_first_rank_alone = true;
  return @{ namespace }@::test();
}
{% else %}
int main() { return @{ namespace }@::test(); }
{% endif %}
