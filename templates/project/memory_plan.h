@{ banner }@
// @{ plan_subject }@: one line a value, in the order of writing. Values whose lives do not meet share memory.
// Included for its lines as well: define GRAVEN_VALUE(name, dtype, offset, bytes).
// @{ ends }@::NAME() is where NAME ends.
#ifdef GRAVEN_VALUE
// clang-format off
{% for line in arena_lines %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_VALUE
#endif

#ifndef @{ plan_guard }@
#define @{ plan_guard }@
#include <cstddef>

namespace @{ namespace }@ {

/// The peak.
constexpr std::size_t @{ plan_constant }@ = @{ arena_bytes }@;
{% if memory_budget != "0" %}
static_assert(@{ plan_constant }@ <= @{ memory_budget }@,
              "the arena does not fit the memory budget of @{ memory_budget }@ bytes");
{% endif %}

}  // namespace @{ namespace }@
#endif
