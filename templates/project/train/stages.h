@{ banner }@
// The stages of the pipeline. Of several processes each runs one (runtime/pipeline.h); one process runs them all, in
// turns. A stage keeps the parts of a step, or of an evaluation, that are under way in arenas of their own, and takes
// of an arena what its values take.
//
//   stage  file          parts under way  bytes of each arena  modules
{% for stage in stages %}
//   @{ stage.line }@
{% endfor %}
//
// Included for its lines: define GRAVEN_CROSSING(from, to, phase, data, bytes), a value that one stage makes and
// another reads, or GRAVEN_STAGES(path, change, stages...), a weight or a state and who reads it, its owner first: it
// is fixed, learned by updates, or observed while parts run.
{% if evaluates_apart %}
// Or GRAVEN_EVALUATION_CROSSING(from, to, data, bytes), a value of an evaluation.
{% endif %}
{% if on_device %}
// Or, of what a stage's process has memory for on its device, besides the weights and states that it reads:
// GRAVEN_STAGES_OF_GRADIENT(path, stages...), whose calls touch a parameter's gradient; GRAVEN_ARENA(stage, offset,
{% if evaluates_apart %}
// bytes), a part of the memory plan, and GRAVEN_EVALUATION_ARENA, the same of an evaluation's.
{% else %}
// bytes), a part of the memory plan.
{% endif %}
{% endif %}
#ifdef GRAVEN_CROSSING
// clang-format off
{% for line in crossings %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_CROSSING
#endif
{% if evaluates_apart %}
#ifdef GRAVEN_EVALUATION_CROSSING
// clang-format off
{% for line in evaluation_crossings %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_EVALUATION_CROSSING
#endif
{% endif %}
#ifdef GRAVEN_STAGES
// clang-format off
{% for line in stage_variables %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_STAGES
#endif
{% if on_device %}
#ifdef GRAVEN_STAGES_OF_GRADIENT
// clang-format off
{% for line in stage_gradients %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_STAGES_OF_GRADIENT
#endif
#ifdef GRAVEN_ARENA
// clang-format off
{% for line in stage_arenas %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_ARENA
#endif
{% if evaluates_apart %}
#ifdef GRAVEN_EVALUATION_ARENA
// clang-format off
{% for line in evaluation_arenas %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_EVALUATION_ARENA
#endif
{% endif %}
{% endif %}
