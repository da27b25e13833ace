@{ banner }@
{% if updates_in_backward %}
// The self-test: one step, with learning rates of 1, on recorded inputs; the loss, the optimizer's states and what SGD changed against what was
// recorded when the project was generated (in double precision, by plain loops); then the same with another model, which must give the same bits.
{% else %}
// The self-test: one step on recorded inputs; loss, results and gradients against what was recorded when the project was generated (in double
// precision, by plain loops); then the same again, which must give the same bits.
{% endif %}
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "model.h"
#include "runtime/compare.h"
#include "runtime/file.h"

namespace runtime = graven::runtime;

namespace {

{% if recorded %}
/// The tensor's largest recorded number.
double largest(const runtime::Comparison& comparison, const std::string& name, runtime::DType dtype,
               const runtime::Dims& shape) {
  const std::int64_t n = runtime::count_of(shape);
  std::vector<std::byte> recorded(static_cast<std::size_t>(n) * runtime::size_of(dtype));
  comparison.load(name.c_str(), recorded.data(), dtype, shape);
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(runtime::number_at(dtype, recorded.data(), i)));
  return largest;
}

/// The difference that rounding alone may make: @{ rounding_in_words }@ of the tensor's largest recorded number, so that small numbers are tested as
/// strictly as large ones. A tensor that is nothing beside `all` of its kind, such as the gradient of a bias before a batch norm, is what rounding left
/// of terms that cancel each other: there it is a share of those.
double allowance(const runtime::Comparison& comparison, const std::string& name, runtime::DType dtype,
                 const runtime::Dims& shape, double all = 0) {
  const double own = largest(comparison, name, dtype, shape);
  return @{ rounding }@ * (own > 1e-12 * all ? own : all);
}

{% endif %}
runtime::DType dtype_of(const @{ namespace }@::Tensor& tensor) { return runtime::dtype_named(tensor.dtype).value(); }
{% if recorded %}

/// The largest recorded number of all tensors of a kind.
double largest_of_all(const runtime::Comparison& comparison, const std::string& kind, const std::vector<@{ namespace }@::Tensor>& tensors) {
  double all = 0;
  for (const auto& t : tensors)
    if (comparison.has(kind + t.path)) all = std::fmax(all, largest(comparison, kind + t.path, dtype_of(t), t.shape));
  return all;
}
{% endif %}

std::vector<char> bytes(const @{ namespace }@::Tensor& tensor) {
  const auto count = static_cast<std::size_t>(runtime::count_of(tensor.shape));
  const char* const data = static_cast<const char*>(tensor.data);
  return {data, data + count * runtime::size_of(dtype_of(tensor))};
}

}  // namespace

int main() {
  using graven::runtime::DType;
  try {
    @{ namespace }@::Model model;
{% for input in inputs %}
    alignas(64) static @{ input.public_type }@ @{ input.member }@[@{ input.storage }@];
{% endfor %}
{% for symbol in symbols %}
    const std::int64_t @{ symbol.identifier }@ = @{ symbol.maximum }@;
{% endfor %}
    model.load(runtime::required_beside_program("weights.safetensors"));
{% if recorded %}
    runtime::Comparison comparison(runtime::required_beside_program("selftest.safetensors"));
{% for input in inputs %}
    comparison.load("input.@{ input.member }@", @{ input.member }@, DType::@{ input.element }@, {@{ input.maxima }@});
{% endfor %}
{% endif %}
{% if recorded and evaluates_apart %}
    // First of all: a step changes what an evaluation reads.
    const float evaluated = static_cast<float>(model.evaluate(@{ argument_names }@));
    comparison.check("evaluation.loss", &evaluated, DType::f32, {}, @{ tolerance }@, 1e-6);
{% for output in scores %}
    const DType score_type = DType::@{ output.element }@;
    comparison.check("evaluation.scores", model.scores().data, score_type, {@{ output.maxima }@}, @{ tolerance }@, allowance(comparison, "evaluation.scores", score_type, {@{ output.maxima }@}));
{% endfor %}
{% endif %}
    const double loss = model.forward(@{ argument_names }@);
{% if not updates_in_backward %}
    model.backward(@{ argument_names }@);
{% endif %}
    std::printf("%s, level %s, loss %.9g\n", @{ name_literal }@, model.level(), loss);
{% if recorded %}
    const float loss_f32 = static_cast<float>(loss);
    comparison.check("loss", &loss_f32, DType::f32, {}, @{ tolerance }@, 1e-6);
{% endif %}
{% if updates_in_backward %}
    @{ namespace }@::Hyper hyper;
    for (double& rate : hyper.learning_rates) rate = 1;
{% if recorded %}
    std::vector<std::vector<char>> before;
    for (const auto& t : model.parameters()) before.push_back(bytes(t));
{% endif %}
    model.step(@{ argument_names }@, hyper);
{% if recorded %}
    const double changes = largest_of_all(comparison, "change.", model.parameters()), states = largest_of_all(comparison, "state.", model.states());
    std::size_t index = 0;
    for (const auto& t : model.parameters()) {
      const std::vector<char>& old = before[index++];
      const std::string name = "change." + t.path;
      if (!comparison.has(name)) continue;
      const DType dtype = dtype_of(t);
      const auto* const now = static_cast<const std::byte*>(t.data);
      const auto* const then = reinterpret_cast<const std::byte*>(old.data());
      std::vector<char> change(old.size());
      double parameter = 0;  // its largest element, whose rounding the difference has in it
      for (std::size_t i = 0; i < old.size() / runtime::size_of(dtype); ++i) {
        const double a = runtime::number_at(dtype, now, static_cast<std::int64_t>(i)), b = runtime::number_at(dtype, then, static_cast<std::int64_t>(i));
        parameter = std::fmax(parameter, std::fmax(std::fabs(a), std::fabs(b)));
        const float narrow = static_cast<float>(a - b);
        if (dtype == DType::f64) {
          const double wide = a - b;
          std::memcpy(change.data() + i * sizeof wide, &wide, sizeof wide);
        } else {
          std::memcpy(change.data() + i * sizeof narrow, &narrow, sizeof narrow);
        }
      }
      comparison.check(name.c_str(), change.data(), dtype, t.shape, @{ tolerance }@, allowance(comparison, name, dtype, t.shape, changes) + 2.5e-7 * parameter);
    }
    for (const auto& t : model.states()) {
      const std::string name = "state." + t.path;
      comparison.check(name.c_str(), t.data, dtype_of(t), t.shape, @{ tolerance }@, allowance(comparison, name, dtype_of(t), t.shape, states));
    }
{% endif %}
    @{ namespace }@::Model other;
    other.load(runtime::required_beside_program("weights.safetensors"));
    other.forward(@{ argument_names }@);
    other.step(@{ argument_names }@, hyper);
    const auto agree = [&](const std::vector<@{ namespace }@::Tensor>& a, const std::vector<@{ namespace }@::Tensor>& b) {
      for (std::size_t i = 0; i < a.size(); ++i)
        if (bytes(a[i]) != bytes(b[i])) return std::printf("%s: two runs differ\n", a[i].path.c_str()), false;
      return true;
    };
    if (!agree(model.parameters(), other.parameters()) || !agree(model.states(), other.states())) return 1;
    std::printf("two runs agree in every bit\n");
{% else %}
{% if recorded %}
    const double gradients = largest_of_all(comparison, "gradient.", model.gradients());
    for (const auto& t : model.gradients()) {
      const std::string name = "gradient." + t.path;
      comparison.check(name.c_str(), t.data, dtype_of(t), t.shape, @{ tolerance }@, allowance(comparison, name, dtype_of(t), t.shape, gradients));
    }
{% endif %}
    std::vector<std::vector<char>> first;
    for (const auto& t : model.gradients()) first.push_back(bytes(t));
    model.forward(@{ argument_names }@);
    model.backward(@{ argument_names }@);
    std::size_t index = 0;
    for (const auto& t : model.gradients())
      if (bytes(t) != first[index++]) return std::printf("%s: two runs differ\n", t.path.c_str()), 1;
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
