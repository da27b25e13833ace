@{ banner }@
// The shapes: every kernel's config, once, named after the module that owns it. The structs are documented in
// kernels/config/.
#pragma once

{% for header in config_headers %}
#include "@{ header }@"
{% endfor %}
{% for constant in inline_constants %}
{% if loop.is_first %}

namespace @{ namespace }@::constant {

using namespace graven::kernels;

{% endif %}
constexpr @{ constant.type }@ @{ constant.name }@[] = {@{ constant.values }@};  // @{ constant.comment }@
{% if loop.is_last %}

}  // namespace @{ namespace }@::constant
{% endif %}
{% endfor %}

namespace @{ namespace }@::config {

using namespace graven::kernels;

{% for struct in config_structs %}
@{ struct }@
{% endfor %}
{% if wrapped_configs %}
// clang-format off
{% endif %}
{% for config in configs %}
@{ config }@
{% endfor %}
{% for config in evaluation_configs %}
{% if loop.is_first %}

/// Of the evaluation, where it has others than the training.
namespace evaluation {

{% endif %}
@{ config }@
{% if loop.is_last %}

}  // namespace evaluation
{% endif %}
{% endfor %}
{% if wrapped_configs %}
// clang-format on
{% endif %}

}  // namespace @{ namespace }@::config
