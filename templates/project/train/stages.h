@{ banner }@
// The stages of the pipeline. Of several processes each runs one (runtime/pipeline.h); one process runs them all, in
// turns. A stage keeps the parts of a step that are under way in arenas of their own, and takes of an arena what its
// values take.
//
//   stage  file          parts under way  bytes of each arena  modules
{% for stage in stages %}
//   @{ stage.line }@
{% endfor %}
//
// Included for its lines: define GRAVEN_CROSSING(from, to, phase, data, bytes), a value that one stage makes and
// another reads, or GRAVEN_STAGES(path, changes, stages...), a weight or a state and who reads it, its owner first.
{% if on_device %}
// Or GRAVEN_ARENA(stage, offset, bytes), a part of the memory plan that the stage has.
{% endif %}
#ifdef GRAVEN_CROSSING
// clang-format off
{% for line in crossings %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_CROSSING
#endif
#ifdef GRAVEN_STAGES
// clang-format off
{% for line in stage_variables %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_STAGES
#endif
{% if on_device %}
#ifdef GRAVEN_ARENA
// clang-format off
{% for line in stage_arenas %}
@{ line }@
{% endfor %}
// clang-format on
#undef GRAVEN_ARENA
#endif
{% endif %}
