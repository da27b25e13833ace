@{ banner }@
// What is computed element by element: bodies of elementwise kernels and epilogues.
#pragma once

#include "kernels/config/device.h"
#include "@{ scalar_math }@"
{% if on_device %}
{% for header in program_headers %}
#include "@{ header }@"
{% endfor %}

namespace [[gnu::visibility("hidden")]] @{ namespace }@ {

using namespace graven::kernels;
{% else %}
#include "program.h"

namespace [[gnu::visibility("hidden")]] @{ namespace }@ {
inline namespace GRAVEN_LEVEL_NAMESPACE {
{% endif %}

{% for functor in functors %}
@{ functor }@
{% endfor %}
{% if not on_device %}
}  // namespace GRAVEN_LEVEL_NAMESPACE
{% endif %}
}  // namespace @{ namespace }@
{% if relu_trait != "" %}

/// The libraries have a ReLU of their own.
template <>
inline constexpr bool graven::kernels::@{ relu_trait }@<@{ namespace }@::relu> = true;
{% endif %}
