// The data that the templates are filled with: everything about one graph, its plan and its options. The members of
// these structs are the words of the templates, where all but the plans' and tensors' stand side by side.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "codegen/emit/calls.h"
#include "codegen/emit/evaluation.h"
#include "codegen/emit/project.h"
#include "codegen/emit/record.h"
#include "codegen/emit/values.h"
#include "codegen/plan/plan.h"

namespace graven::codegen {

/// What the project is called, what it is for, and how its target is written.
struct ProjectNames {
  std::string name = {}, project = {};  ///< in comments; the namespace, the library and the program
  std::string constant_prefix = {};     ///< of macros and enumerators
  std::string name_literal = {};        ///< in C++
  std::string graph_name = {}, graph_hash = {}, computation = {}, generator = {}, generator_version = {}, purpose = {};
  std::string banner = {}, hash_banner = {};  ///< the first line of a file, in C++ and in CMake
  bool training = false, updates_in_backward = false;
  bool accumulates = false;    ///< a step may have several parts
  bool data_parallel = false;  ///< ranks may share a step
  bool shares_states = false, shares_gradients = false,
       shares_parameters = false;           ///< each has its shards of these alone
  bool has_ranks = false;                   ///< ranks share a step, or each is a stage of a pipeline
  std::int64_t shard_min_size = 0;          ///< elements of the smallest tensor of which it is so
  std::int64_t tensor_ranks = 1;            ///< that have tensors in parts
  double tensor_bytes = 0;                  ///< that each of them has to send the others in a step
  std::string data_group = "all";           ///< of runtime::Ranks: those that have batches of their own
  std::string engine = "Threads::Threads";  ///< what CMake links to what asks for processors or ranks
  std::string needs = {}, execution_type = {}, execution_name = {}, scalar_math = {}, model_extension = {},
              device_type = {};
  std::string create_argument = {};  ///< of what makes a model: "threads" or "device"
  bool on_device = false;
  std::vector<std::string> program_headers = {}, api_headers = {};
  std::string kernel_flags = {}, kernel_flags_of_gnu = {}, default_levels = {};
};

/// An input or an output.
struct TensorText {
  std::string member = {}, name_padded = {};               ///< in C++; in a column
  std::string element = {}, public_type = {}, dtype = {};  ///< "f32", "float", "f32"
  std::string type = {}, shape = {};                       ///< "f32[batch,10]", "[batch,10]"
  std::string maxima = {};                                 ///< the largest sizes, in C++
  std::int64_t storage = 1;                                ///< the elements that there are then, 1 at least
  std::string tested = {};                                 ///< the sizes of the self-test
  std::int64_t tested_storage = 1;
  std::string count_in_step = {};               ///< elements, of a step's sizes
  std::string converted = {};                   ///< the caller's pointer, of the kernels' type
  std::string symbolic = {};                    ///< further fields of its description: how sizes follow from symbols
  bool batched = false;                         ///< dimension 0 counts samples
  std::int64_t classes = 0;                     ///< of an input of labels
  std::string ignored = {};                     ///< a further field of its description
  std::string in_instance = {}, writable = {};  ///< of an output of training: where it lies
  std::string stages = {};                      ///< of a pipeline's input: that read it
};

struct SymbolText {
  std::string identifier = {};
  std::int64_t least = 0, given_least = 0, maximum = 0, tested = 0;  ///< least: that the operators take
};

/// A size that has to be so large.
struct SizeBoundText {
  std::string size = {}, name = {};
  std::int64_t least = 0;
};

/// How functions take inputs, outputs and sizes.
struct Signature {
  std::vector<TensorText> inputs = {}, outputs = {};
  std::vector<SymbolText> symbols = {};
  std::vector<SizeBoundText> size_bounds = {};
  std::string parameters = {}, c_parameters = {}, argument_names = {}, symbol_list = {};
  std::string output_parameters = {}, c_output_parameters = {}, output_names = {}, output_names_again = {};
  std::string erased_arguments = {}, erased_outputs = {};  ///< from arrays of pointers
  std::vector<std::string> other_symbols = {};             ///< than the batch
  std::string described_symbols = {}, largest_sizes = {};
  std::int64_t batch = 1, least_batch = 1;
  std::string batch_if_passed = {};
  bool batch_is_symbolic = false;
};

/// memory_plan.h, of a step's arena or of an evaluation's.
struct PlanText {
  std::string subject = {}, constant = {}, ends = {}, guard = {};
  std::vector<std::string> lines = {};
  std::int64_t arena_bytes = 0, lower_bound = 0, memory_budget = 0;
  std::string ratio = {};
};

/// A plan whose lines are read once more: where its values end.
struct PlanFile {
  std::string ends = {}, file = {}, bytes = {};
};

struct ConstantText {
  std::string type = {}, name = {}, values = {}, comment = {};
};

struct MemoryText {
  std::vector<std::string> parameter_lines = {};
  std::vector<std::string> part_lines = {};  ///< which of them are parts of larger tensors
  bool nests = false;                        ///< lines of blocks stand between two that begin and end them
  std::int64_t parameter_count = 0, parameter_bytes = 0, alignment = 64;
  bool has_weights = false, has_prepared = false, has_states = false;
  std::string example_path = {};
  std::vector<ConstantText> inline_constants = {};
  PlanText plan = {}, evaluation_plan = {};
  std::vector<PlanFile> plans = {};
  bool evaluates_apart = false;  ///< an evaluation has calls and a plan of its own
};

/// Of an optimizer's parameters.
struct GroupText {
  std::string lr = {}, schedule = {};
  std::string plateau = {};  ///< which of TrainingText::plateaus, and the least rate; empty: none
};

struct LossText {
  std::string expression = {}, element = {};
  std::int32_t stage = 0;  ///< of a pipeline: that makes it
};

/// The scores of the classes in an evaluation.
struct ScoresText {
  std::string element = {}, dtype = {}, maxima = {}, tested = {}, expression = {}, writable = {};
  std::int64_t storage = 1;
  std::int32_t stage = 0;  ///< of a pipeline: that makes them
};

struct TrainingText {
  std::vector<GroupText> groups = {};
  std::vector<std::string> plateaus = {};
  bool has_schedule = false;
  std::int64_t group_count = 0;
  std::string learning_rates = {};
  std::vector<LossText> losses = {}, evaluation_losses = {};
  std::string loss_literal = {};        ///< the first loss's operator
  std::int64_t accumulation_steps = 1;  ///< batches of a step, where nothing else is said
  bool scales_loss = false;
  bool scales_gradients = false;                       ///< some, as the host sees them
  std::string unscaled_gradients = {};                 ///< the parameters of those that are not, where some are
  std::string loss_scale = {}, first_loss_scale = {};  ///< the state, and what it is in a new run
  std::vector<std::string> skipped = {};               ///< the states that count what optimizers have skipped
  std::string optimizers_of_groups = {};               ///< of each group: which of those is its optimizer's
  bool logs_results = false;
  std::string logged_results = {};
  std::string shown_results = {};  ///< which of those build() gave a name
  bool random = false;
  std::string drawn_by = {};  ///< the argument that says what random numbers went by, for the backward phase
  bool has_evaluation = false, loss_is_sum = false, has_accuracy = false;
  std::vector<ScoresText> scores = {};  ///< one, or none
  std::string score_type = "float", label_type = "std::int64_t", times_rows_per_sample = {}, ignorable_labels = {};
  std::int64_t label_input = 0, classes = 1;
  std::int64_t own_classes = 0;  ///< of ranks that have some of the classes each: how many; 0: all of them
  std::string count_if_used = " /* count */";
};

/// A declaration of a function of a block.
struct BlockText {
  std::string head = {}, text = {};  ///< "template <class Config>", or empty; "void inverted_residual(...) const;"
};

/// A call, or a copy: its comment and its lines.
struct CallText {
  std::string comment = {};
  std::vector<std::string> lines = {};
};

/// Calls of one module.
struct CallGroup {
  std::string banner = {};
  std::vector<CallText> calls = {};
};

struct FunctionText {
  std::string owner = {}, name = {}, head = {}, parameters = {}, title = {};
  std::vector<std::string> parts = {};  ///< functions that it calls instead
  std::vector<CallGroup> groups = {};
};

/// A function that the program calls.
struct PhaseText {
  std::string name = {};
  std::vector<std::string> parts = {};
};

/// A stage of a pipeline.
struct StageText {
  std::int32_t number = 0;
  std::string path = {}, forward = {}, backward = {}, update = {};  ///< its file; its functions
  std::string norms = {};     ///< and the first round of its updates, where there are two
  std::string evaluate = {};  ///< and what it has of an evaluation that is a function of its own
  std::string line = {};      ///< what stages.h says of it
};

struct PipelineText {
  bool pipeline = false;
  std::vector<StageText> stages = {};
  /// Lines of stages.h.
  std::vector<std::string> crossings = {}, evaluation_crossings = {}, stage_variables = {}, stage_gradients = {},
                           stage_arenas = {}, evaluation_arenas = {};
  std::vector<LossText> numbers_of_stages = {};  ///< results of one number each, which the log has beside the loss
  bool has_norms = false;  ///< stages send one another something behind the first round of updates
};

/// One of the files that the calls are spread over.
struct ModelFile {
  std::string path = {};  ///< "model.cpp", "model_forward_2.cpp"
  bool is_main = false;
  std::vector<std::string> headers = {};
  std::string copy_header = {};
  std::vector<FunctionText> functions = {};
};

struct CallsText {
  std::vector<std::string> config_headers = {}, config_structs = {}, configs = {}, evaluation_configs = {},
                           functors = {}, libraries = {};
  bool wrapped_configs = false, uses_configs = false, has_functors = false, split = false;
  std::string relu_trait = {};
  std::string call_count = {}, unit = {}, flops_text = {}, bytes_text = {};
  std::vector<BlockText> block_functions = {}, evaluation_block_functions = {};
  std::vector<PhaseText> functions = {};
  std::vector<std::string> step_functions = {}, evaluation_parts = {};
  bool has_update = false, has_prepare = false;
  std::size_t evaluation_call_count = 0;
  std::string evaluation_flops_text = {}, evaluation_bytes_text = {}, model_sources = {};
  std::vector<std::string> measured_lines = {};  ///< of calls.h
  bool measured_at_largest = false;              ///< sizes of a call may be smaller than what they say
};

/// What options of the programs are, unless they are given.
struct DefaultsText {
  std::string mean = {}, std = {}, data_literal = {}, test_data_literal = {}, threads_default = {};
  std::int64_t epochs = 1, threads = 0, seed = 0;
  bool shuffle = true;
  bool recorded = false;  ///< the self-test has something to compare with
};

struct ProjectData {
  ProjectNames names;
  Signature signature;
  MemoryText memory;
  TrainingText training;
  CallsText calls;
  DefaultsText defaults;
  PipelineText pipeline;
  std::vector<ModelFile> files;
  std::vector<std::string> headers;           ///< kernels' files that generated files include
  std::vector<ir::ValueId> stored_constants;  ///< those that lie among the weights
  std::vector<std::string> notes;             ///< for EmitReport::notes
  std::vector<MeasuredCall> measured;         ///< those of a step or call, or of what prepares them
};

/// What every template may use.
nlohmann::json template_data(const ProjectData& project);
/// The same without the long lists, which files of calls have no use for: a rendering costs time in proportion to all
/// of its data.
nlohmann::json brief_template_data(nlohmann::json data);
/// "file" of templates/project/model.cpp.
nlohmann::json template_data(const ModelFile& file);

/// "train_mlp" of "TrainMlp"; an identifier.
std::string project_name(const ir::Graph& graph, const EmitOptions& options);

/// `extent`: of the self-test. `evaluation`: nullptr when the forward phase is the evaluation, or, with
/// `evaluation_unknown`, when there is none.
ProjectData make_project_data(const ir::Graph& graph, const Plan& plan, const Evaluation* evaluation,
                              bool evaluation_unknown, const EmitOptions& options, const Extent& extent,
                              const std::string& graph_hash);

}  // namespace graven::codegen
