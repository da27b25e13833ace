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
{% if tensor_ranks > 1 %}
//   GRAVEN_PART      which of them are parts of larger tensors: (path, dimension, blocks)
{% endif %}
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
{% if nests %}
// Lines of a block of the network stand between two that begin and end it. With GRAVEN_MEMBERS they are members of a
// struct of its name; else `name` is BLOCK.NAME.
#ifdef GRAVEN_MEMBERS
#define GRAVEN_BLOCK(block) struct block##_block {
#define GRAVEN_BLOCK_END(block) } block;
#define GRAVEN_PARAM_OF(block, name, ...) GRAVEN_PARAM(name, __VA_ARGS__)
#define GRAVEN_FIXED_OF(block, name, ...) GRAVEN_FIXED(name, __VA_ARGS__)
#define GRAVEN_STATE_OF(block, name, ...) GRAVEN_STATE(name, __VA_ARGS__)
#define GRAVEN_PREPARED_OF(block, name, ...) GRAVEN_PREPARED(name, __VA_ARGS__)
#else
#define GRAVEN_BLOCK(block)
#define GRAVEN_BLOCK_END(block)
#define GRAVEN_PARAM_OF(block, name, ...) GRAVEN_PARAM(block.name, __VA_ARGS__)
#define GRAVEN_FIXED_OF(block, name, ...) GRAVEN_FIXED(block.name, __VA_ARGS__)
#define GRAVEN_STATE_OF(block, name, ...) GRAVEN_STATE(block.name, __VA_ARGS__)
#define GRAVEN_PREPARED_OF(block, name, ...) GRAVEN_PREPARED(block.name, __VA_ARGS__)
#endif
{% endif %}
// clang-format off
{% for line in parameter_lines %}
@{ line }@
{% endfor %}
{% if tensor_ranks > 1 %}
// Of these each of @{ tensor_ranks }@ ranks has a part, of the shape above: a piece of each block of one of the whole
// tensor's dimensions.
#ifdef GRAVEN_PART
{% for line in part_lines %}
@{ line }@
{% endfor %}
#undef GRAVEN_PART
#endif
{% endif %}
// clang-format on
#undef GRAVEN_PARAM
#undef GRAVEN_FIXED
#undef GRAVEN_STATE
#undef GRAVEN_PREPARED
{% if nests %}
#undef GRAVEN_MEMBERS
#undef GRAVEN_BLOCK
#undef GRAVEN_BLOCK_END
#undef GRAVEN_PARAM_OF
#undef GRAVEN_FIXED_OF
#undef GRAVEN_STATE_OF
#undef GRAVEN_PREPARED_OF
{% endif %}
