@{ banner }@
// The self-test: one call on recorded inputs; results against what was recorded when the project was generated (in double precision, by plain
// loops); then the same again, which must give the same bits.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "model.h"
#include "runtime/compare.h"
#include "runtime/file.h"

namespace runtime = graven::runtime;

{% if recorded %}
namespace {

/// The difference that rounding alone may make: @{ rounding_in_words }@ of the tensor's largest recorded number, so that small numbers are tested as
/// strictly as large ones.
double allowance(const runtime::Comparison& comparison, const std::string& name, runtime::DType dtype,
                 const runtime::Dims& shape) {
  const std::int64_t n = runtime::count_of(shape);
  std::vector<std::byte> recorded(static_cast<std::size_t>(n) * runtime::size_of(dtype));
  comparison.load(name.c_str(), recorded.data(), dtype, shape);
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(runtime::number_at(dtype, recorded.data(), i)));
  return @{ rounding }@ * largest;
}

}  // namespace

{% endif %}
int main() {
  using graven::runtime::DType;
  try {
    @{ namespace }@::Model model(std::make_shared<const @{ namespace }@::Weights>({% if has_weights %}runtime::required_beside_program("weights.safetensors"){% else %}""{% endif %}));
{% for input in inputs %}
    alignas(64) static @{ input.public_type }@ @{ input.member }@[@{ input.storage }@];
{% endfor %}
{% for output in outputs %}
    alignas(64) static @{ output.public_type }@ @{ output.member }@[@{ output.storage }@], @{ output.member }@_again[@{ output.storage }@];
{% endfor %}
{% for symbol in symbols %}
    const std::int64_t @{ symbol.identifier }@ = @{ symbol.maximum }@;
{% endfor %}
{% if recorded %}
    runtime::Comparison comparison(runtime::required_beside_program("selftest.safetensors"));
{% for input in inputs %}
    comparison.load("input.@{ input.member }@", @{ input.member }@, DType::@{ input.element }@, {@{ input.maxima }@});
{% endfor %}
{% endif %}
    model.forward(@{ argument_names }@, @{ output_names }@);
    std::printf("%s, level %s\n", @{ name_literal }@, model.level());
{% if recorded %}
{% for output in outputs %}
    comparison.check("output.@{ output.member }@", @{ output.member }@, DType::@{ output.element }@, {@{ output.maxima }@}, @{ tolerance }@,
                     allowance(comparison, "output.@{ output.member }@", DType::@{ output.element }@, {@{ output.maxima }@}));
{% endfor %}
{% endif %}
    model.forward(@{ argument_names }@, @{ output_names_again }@);
{% for output in outputs %}
    if (std::memcmp(@{ output.member }@, @{ output.member }@_again, sizeof @{ output.member }@) != 0) return std::printf("@{ output.member }@: two runs differ\n"), 1;
{% endfor %}
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
