@{ banner }@
// The kernels' calls: a line each, in the order in which every phase makes them, for who measures them
// (Model::measure_calls(), and --profile, which does). Included for its lines: define
// GRAVEN_CALL(phase, module, operation, types, flops, bytes).
// Bytes are those that have to move: each input read once, each output written once.
{% if measured_at_largest %}
// FLOPs and bytes are those of the largest sizes.
{% endif %}
// clang-format off
{% for line in measured_lines %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_CALL
