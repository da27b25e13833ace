@{ banner }@
// Parameters, buffers and states: one line each. Offsets are summed by the compiler, so that a change stays one line.
// This file is included for its lines, several times; define what each kind should become:
//   GRAVEN_PARAM     learned: has a gradient of the same shape
{% if updates_in_backward %}
//   GRAVEN_FIXED     in the weights file, without a gradient that lasts: learned within backward, or not learned here
{% else %}
//   GRAVEN_FIXED     in the weights file, but not learned here
{% endif %}
//   GRAVEN_STATE     of the optimizer: in checkpoints only
//   GRAVEN_PREPARED  computed from the weights once they are loaded
#ifndef GRAVEN_PARAM
#define GRAVEN_PARAM(name, dtype, path, ...)
#endif
#ifndef GRAVEN_FIXED
#define GRAVEN_FIXED(name, dtype, path, ...)
#endif
#ifndef GRAVEN_STATE
#define GRAVEN_STATE(name, dtype, path, ...)
#endif
#ifndef GRAVEN_PREPARED
#define GRAVEN_PREPARED(name, dtype, path, ...)
#endif
// clang-format off
{% for line in parameter_lines %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_PARAM
#undef GRAVEN_FIXED
#undef GRAVEN_STATE
#undef GRAVEN_PREPARED
