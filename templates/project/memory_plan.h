@{ banner }@
// @{ plan.subject }@: one line a value, in the order of writing. Values whose lives do not meet share memory.
// Included for its lines as well: define GRAVEN_VALUE(name, dtype, offset, bytes).
// @{ plan.ends }@::NAME() is where NAME ends.
{% if nests %}
// Lines of a block of the network stand between two that begin and end it, as in params.h. With GRAVEN_JOINED `name` is
// BLOCK_NAME.
{% endif %}
#ifdef GRAVEN_VALUE
{% if nests %}
#if defined(GRAVEN_MEMBERS)
#define GRAVEN_BLOCK(block) struct block##_block {
#define GRAVEN_BLOCK_END(block) } block;
#define GRAVEN_VALUE_OF(block, name, ...) GRAVEN_VALUE(name, __VA_ARGS__)
#else
#define GRAVEN_BLOCK(block)
#define GRAVEN_BLOCK_END(block)
#if defined(GRAVEN_JOINED)
#define GRAVEN_VALUE_OF(block, name, ...) GRAVEN_VALUE(block##_##name, __VA_ARGS__)
#else
#define GRAVEN_VALUE_OF(block, name, ...) GRAVEN_VALUE(block.name, __VA_ARGS__)
#endif
#endif
{% endif %}
// clang-format off
{% for line in plan.lines %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_VALUE
{% if nests %}
#undef GRAVEN_MEMBERS
#undef GRAVEN_JOINED
#undef GRAVEN_BLOCK
#undef GRAVEN_BLOCK_END
#undef GRAVEN_VALUE_OF
{% endif %}
#endif

#ifndef @{ plan.guard }@
#define @{ plan.guard }@
#include <cstddef>

namespace @{ namespace }@ {

/// The peak.
constexpr std::size_t @{ plan.constant }@ = @{ plan.arena_bytes }@;
{% if plan.memory_budget > 0 %}
static_assert(@{ plan.constant }@ <= @{ plan.memory_budget }@,
              "the arena does not fit the memory budget of @{ plan.memory_budget }@ bytes");
{% endif %}

}  // namespace @{ namespace }@
#endif
