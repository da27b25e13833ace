@{ banner }@
// The self-test: one step on recorded inputs; loss, results and gradients against what was recorded when the project was generated (in double
// precision, by plain loops); then the same again, which must give the same bits.
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

{% if recorded %}
namespace {

/// What differences are measured by: a ten-thousandth of the largest recorded number, so that a tensor of small numbers is tested as strictly.
double allowance(const graven::runtime::Comparison& comparison, const std::string& name, graven::runtime::DType dtype,
                 const graven::runtime::Dims& shape) {
  const std::int64_t n = graven::runtime::count_of(shape);
  std::vector<std::byte> recorded(static_cast<std::size_t>(n) * graven::runtime::size_of(dtype));
  comparison.load(name.c_str(), recorded.data(), dtype, shape);
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(graven::runtime::number_at(dtype, recorded.data(), i)));
  return 1e-4 * largest;
}

}  // namespace

{% endif %}
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
    model.load(graven::runtime::find_beside_program("weights.safetensors"));
{% if recorded %}
    graven::runtime::Comparison comparison(graven::runtime::find_beside_program("selftest.safetensors"));
{% for input in inputs %}
    comparison.load("input.@{ input.member }@", @{ input.member }@, DType::@{ input.element }@, {@{ input.maxima }@});
{% endfor %}
{% endif %}
{% if recorded and evaluates_apart %}
    // First of all: a step writes running statistics.
    const float evaluated = static_cast<float>(model.evaluate(@{ argument_names }@));
    comparison.check("evaluation.loss", &evaluated, DType::f32, {}, @{ tolerance }@, 1e-6);
{% for output in scores %}
    const DType score_type = DType::@{ output.element }@;
    comparison.check("evaluation.scores", model.scores().data, score_type, {@{ output.maxima }@}, @{ tolerance }@, allowance(comparison, "evaluation.scores", score_type, {@{ output.maxima }@}));
{% endfor %}
{% endif %}
    const double loss = model.forward(@{ argument_names }@);
    model.backward(@{ argument_names }@);
    std::printf("%s, level %s, loss %.9g\n", @{ name_literal }@, model.level(), loss);
{% if recorded %}
    const float loss_f32 = static_cast<float>(loss);
    comparison.check("loss", &loss_f32, DType::f32, {}, @{ tolerance }@, 1e-6);
    for (const auto& t : model.gradients()) {
      for (int d = 0; d < static_cast<int>(std::size(graven::runtime::kDTypes)); ++d)
        if (std::strcmp(graven::runtime::kDTypes[d].name, t.dtype) == 0)
          {
          const std::string name = "gradient." + t.path;
          comparison.check(name.c_str(), t.data, static_cast<DType>(d), t.shape, @{ tolerance }@, allowance(comparison, name, static_cast<DType>(d), t.shape));
        }
    }
{% endif %}
    std::vector<std::vector<char>> first;
    auto bytes = [](const @{ namespace }@::Tensor& t) {
      std::size_t count = 1;
      for (const std::int64_t d : t.shape) count *= static_cast<std::size_t>(d);
      std::size_t size = 1;
      for (const auto& info : graven::runtime::kDTypes)
        if (std::strcmp(info.name, t.dtype) == 0) size = info.size;
      const char* data = static_cast<const char*>(t.data);
      return std::vector<char>(data, data + count * size);
    };
    for (const auto& t : model.gradients()) first.push_back(bytes(t));
    model.forward(@{ argument_names }@);
    model.backward(@{ argument_names }@);
    std::size_t k = 0;
    for (const auto& t : model.gradients())
      if (bytes(t) != first[k++]) return std::printf("%s: two runs differ\n", t.path.c_str()), 1;
    std::printf("two runs agree in every bit\n");
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
