// The structs of project_data.h as templates see them: their members, by name.
#include "codegen/emit/project_data.h"

#ifndef NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_ONLY_SERIALIZE  // the library has it from 3.11.3 on
#define NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_ONLY_SERIALIZE(Type, ...)                  \
  inline void to_json(nlohmann::json& nlohmann_json_j, const Type& nlohmann_json_t) { \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_TO, __VA_ARGS__))          \
  }
#endif
#define GRAVEN_WORDS(...) NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_ONLY_SERIALIZE(__VA_ARGS__)

namespace graven::codegen {

using nlohmann::json;

GRAVEN_WORDS(ProjectNames, name, project, constant_prefix, name_literal, graph_name, graph_hash, computation, generator,
             generator_version, purpose, banner, hash_banner, training, updates_in_backward, accumulates, data_parallel,
             has_ranks, shares_states, shares_gradients, shares_parameters, shard_min_size, tensor_ranks, tensor_bytes,
             data_group, engine, needs, execution_type, execution_name, scalar_math, model_extension, device_type,
             create_argument, on_device, program_headers, api_headers, kernel_flags, kernel_flags_of_gnu,
             default_levels)
GRAVEN_WORDS(TensorText, member, name_padded, element, public_type, dtype, type, shape, maxima, storage, tested,
             tested_storage, count_in_step, converted, symbolic, batched, classes, ignored, in_instance, writable,
             stages)
GRAVEN_WORDS(SymbolText, identifier, least, given_least, maximum, tested)
GRAVEN_WORDS(SizeBoundText, size, name, least)
GRAVEN_WORDS(Signature, inputs, outputs, symbols, size_bounds, parameters, c_parameters, argument_names, symbol_list,
             output_parameters, c_output_parameters, output_names, output_names_again, erased_arguments, erased_outputs,
             other_symbols, described_symbols, largest_sizes, batch, least_batch, batch_if_passed, batch_is_symbolic)
GRAVEN_WORDS(PlanText, subject, constant, ends, guard, lines, arena_bytes, lower_bound, memory_budget, ratio)
GRAVEN_WORDS(PlanFile, ends, file, bytes)
GRAVEN_WORDS(ConstantText, type, name, values, comment)
GRAVEN_WORDS(MemoryText, parameter_lines, part_lines, nests, parameter_count, parameter_bytes, alignment, has_weights,
             has_prepared, has_states, example_path, inline_constants, plan, evaluation_plan, plans, evaluates_apart)
GRAVEN_WORDS(GroupText, lr, schedule, plateau)
GRAVEN_WORDS(LossText, expression, element, stage)
GRAVEN_WORDS(ScoresText, element, dtype, maxima, tested, expression, writable, storage, stage)
GRAVEN_WORDS(TrainingText, groups, plateaus, has_schedule, group_count, learning_rates, losses, evaluation_losses,
             loss_literal, accumulation_steps, scales_loss, scales_gradients, unscaled_gradients, loss_scale,
             first_loss_scale, skipped, optimizers_of_groups, logs_results, logged_results, shown_results, random,
             drawn_by, has_evaluation, loss_is_sum, has_accuracy, scores, score_type, label_type, times_rows_per_sample,
             ignorable_labels, label_input, classes, own_classes, count_if_used)
GRAVEN_WORDS(BlockText, head, text)
GRAVEN_WORDS(CallText, comment, lines)
GRAVEN_WORDS(CallGroup, banner, calls)
GRAVEN_WORDS(FunctionText, owner, name, head, parameters, title, parts, groups)
GRAVEN_WORDS(PhaseText, name, parts)
GRAVEN_WORDS(StageText, number, path, forward, backward, update, norms, evaluate, line)
GRAVEN_WORDS(PipelineText, pipeline, stages, crossings, evaluation_crossings, stage_variables, stage_gradients,
             stage_arenas, evaluation_arenas, numbers_of_stages, has_norms)
GRAVEN_WORDS(ModelFile, is_main, headers, copy_header, functions)
GRAVEN_WORDS(CallsText, config_headers, config_structs, configs, evaluation_configs, functors, libraries,
             wrapped_configs, uses_configs, has_functors, split, relu_trait, call_count, unit, flops_text, bytes_text,
             block_functions, evaluation_block_functions, functions, step_functions, evaluation_parts, has_update,
             has_prepare, evaluation_call_count, evaluation_flops_text, evaluation_bytes_text, model_sources,
             measured_lines, measured_at_largest)
GRAVEN_WORDS(DefaultsText, mean, std, data_literal, test_data_literal, threads_default, epochs, threads, seed, shuffle,
             recorded)

json template_data(const ProjectData& project) {
  json data = project.names;
  for (const json& more : {json(project.signature), json(project.memory), json(project.training), json(project.calls),
                           json(project.defaults), json(project.pipeline)})
    data.update(more);
  data["namespace"] = project.names.project;  // which C++ has another use for
  return data;
}

json brief_template_data(json data) {
  for (const char* list :
       {"configs", "evaluation_configs", "functors", "parameter_lines", "plan", "evaluation_plan", "inline_constants"})
    data.erase(list);
  return data;
}

json template_data(const ModelFile& file) { return file; }

}  // namespace graven::codegen
