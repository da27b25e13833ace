@{ banner }@
// What is computed element by element: bodies of elementwise kernels and epilogues.
#pragma once

#include "kernels/config/device.h"
#include "@{ scalar_math }@"
#include "program.h"

namespace [[gnu::visibility("hidden")]] @{ namespace }@ {
inline namespace GRAVEN_LEVEL_NAMESPACE {

{% for functor in functors %}
@{ functor }@
{% endfor %}
}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace @{ namespace }@
{% if relu_trait != "" %}

/// The libraries have a ReLU of their own.
template <>
inline constexpr bool graven::kernels::@{ relu_trait }@<@{ namespace }@::relu> = true;
{% endif %}
