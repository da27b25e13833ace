@{ banner }@
// The arena: one line a value, in the order of writing. Values whose lives do not meet share memory. Included for its lines as well: define
// GRAVEN_VALUE(name, dtype, offset, bytes).
#ifdef GRAVEN_VALUE
// clang-format off
{% for line in arena_lines %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_VALUE
#endif

#ifndef @{ guard }@_MEMORY_PLAN
#define @{ guard }@_MEMORY_PLAN
#include <cstddef>

namespace @{ namespace }@ {

/// The peak. No placement can be below @{ lower_bound }@ bytes (ratio @{ arena_ratio }@); without reuse it would be @{ without_reuse }@.
inline constexpr std::size_t kArenaBytes = @{ arena_bytes }@;
{% if memory_budget != "0" %}
inline constexpr std::size_t kMemoryBudget = @{ memory_budget }@;
static_assert(kArenaBytes <= kMemoryBudget, "the arena does not fit the memory budget");
{% endif %}

}  // namespace @{ namespace }@
#endif
