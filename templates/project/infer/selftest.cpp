@{ banner }@
{% if recorded %}
// The self-test: one call on recorded inputs; results against what was recorded when the project was generated (in
// double precision, by plain loops), as near as rounding allows; then the same again, which must give the same bits.
{% else %}
// The self-test: two calls must give the same bits. Nothing was recorded to compare them with.
{% endif %}
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>

#include "model.h"
#include "runtime/arena.h"
#include "runtime/compare.h"
#include "runtime/file.h"

namespace @{ namespace }@ {
namespace {

namespace runtime = graven::runtime;

int test() {
{% if recorded %}
  using runtime::DType;
{% endif %}
  try {
{% if has_weights %}
    Model model(std::make_shared<const Weights>(runtime::required_beside_program("weights.safetensors")));
{% else %}
    Model model(std::make_shared<const Weights>(""));
{% endif %}
@{ selftest_inputs }@
    // Of both runs, one beside the other.
{% for output in outputs %}
{% if loop.is_first %}
    const runtime::Arena output_memory[] = {
{% endif %}
        runtime::Arena(sizeof(@{ output.public_type }@) * @{ output.tested_storage }@),
        runtime::Arena(sizeof(@{ output.public_type }@) * @{ output.tested_storage }@),
{% if loop.is_last %}
    };
{% endif %}
{% endfor %}
{% for output in outputs %}
    auto* const @{ output.member }@ = output_memory[@{ 2 * loop.index }@].at<@{ output.public_type }@>(0);
    auto* const @{ output.member }@_again = output_memory[@{ 2 * loop.index + 1 }@].at<@{ output.public_type }@>(0);
{% endfor %}
{% if recorded %}
    runtime::Comparison comparison(runtime::required_beside_program("selftest.safetensors"));
{% for input in inputs %}
    comparison.load("input.@{ input.member }@", @{ input.member }@, DType::@{ input.element }@, {@{ input.tested }@});
{% endfor %}
{% endif %}
    model.forward(@{ argument_names }@, @{ output_names }@);
    std::printf("%s, level %s\n", @{ name_literal }@, model.level());
{% if recorded %}
{% for output in outputs %}
    comparison.check("output.@{ output.member }@", @{ output.member }@, DType::@{ output.element }@,
                     {@{ output.tested }@});
{% endfor %}
{% endif %}
    model.forward(@{ argument_names }@, @{ output_names_again }@);
{% for output in outputs %}
    if (std::memcmp(@{ output.member }@, @{ output.member }@_again, output_memory[@{ 2 * loop.index }@].bytes()) != 0)
      return std::printf("@{ output.member }@: two runs differ\n"), 1;
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
