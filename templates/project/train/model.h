@{ banner }@
{% if on_device %}
// @{ name }@: training. One Model is the network, its optimizer and their memory; everything that a step needs is
// allocated when it is made.
{% else %}
// @{ name }@: training. One Model is the network, its optimizer and their memory; everything is allocated when it is
// made.
{% endif %}
//
{% if on_device %}
//   @{ namespace }@::Model model(/*device=*/0);
{% else %}
//   @{ namespace }@::Model model(/*threads=*/2);
{% endif %}
//   model.load("weights.safetensors");
//   @{ namespace }@::Hyper hyper;
//   for (hyper.step = 1; ...; ++hyper.step) loss = model.step(@{ argument_names }@, hyper);
{% if has_evaluation %}
//   const double held_out = model.evaluate(@{ argument_names }@);
{% endif %}
//   model.save("trained.safetensors");
//
{% for input in inputs %}
//   input   @{ input.name_padded }@ @{ input.type }@
{% endfor %}
{% for output in outputs %}
//   output  @{ output.name_padded }@ @{ output.type }@
{% endfor %}
//
// One thread at a time may use a Model; results are the same, bit for bit, whatever the number of threads that it runs
// on. Inputs are row-major. Errors arrive as std::runtime_error. A C interface follows at the end; it turns errors into
// codes.
{% if on_device %}
// parameters(), gradients(), states() and results() are copies on the host, which take memory there from their first
// call on. Every call leaves the thread's current CUDA device as it was.
{% if pipeline %}
//
// Of several processes each runs a stage of the pipeline (`stages` below), and has memory on its device for what that
// takes alone: stages.h says of weights, gradients and states which stages have them. Of the others the lists have
// entries as well, in the host's memory: a weight or state as it was last written there, by load() or from another
// process, zeros at first; a gradient as zeros. load() and save() are of all weights, as the process has them.
{% endif %}
{% endif %}
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* SHA-256 of graph.json, which saved weights name; and, in the digits behind it, what a step computes, wherever and by
   whatever version of the generator the project was made: a checkpoint of another computation is refused. */
#define @{ constant_prefix }@_GRAPH graph_@{ graph_hash }@_@{ computation }@

/* What a library shows of the project, where it is compiled; nothing to whoever uses it. */
#ifndef GRAVEN_API
#define GRAVEN_API
#endif

{% if on_device %}
struct CUstream_st; /* what a cudaStream_t points to */

{% endif %}
#ifdef __cplusplus
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace @{ namespace }@ {
// Of this graph: what a program makes of these types, inline or of a template, is another's for another version.
inline namespace @{ constant_prefix }@_GRAPH {
{% for symbol in symbols %}

/// The largest @{ symbol.identifier }@; any from @{ symbol.given_least }@ on will do.
constexpr std::int64_t maximum_@{ symbol.identifier }@ = @{ symbol.maximum }@;
{% endfor %}

/// The numbers that change from step to step.
struct Hyper {
{% if group_count > 0 %}
  /// One per parameter group.
  double learning_rates[@{ group_count }@] = {@{ learning_rates }@};
{% endif %}
  /// From 1.
  std::int64_t step = 1;
  /// Of random operators.
  std::int64_t seed = 0;
{% if accumulates %}
  /// Which part of the step's batch a call has, from 0, and how many there are: gradients add up from part to part, and
  /// the call with the last part updates, by their mean.
  std::int64_t part = 0, parts = 1;
  /// Counts the parts of all steps, from 1: what random numbers go by. 0: (step - 1) * parts + part + 1.
  std::int64_t draw = 0;
{% endif %}
};

/// A tensor of the model, where it lies.
struct Tensor {
  std::string path;     ///< "@{ example_path }@"
  const char* dtype;    ///< "f32"
  std::vector<std::int64_t> shape;
  void* data;
{% if shares_states %}
  std::int64_t count;  ///< elements at `data`: of what the ranks share, this one's, which stand in a row
{% endif %}
};

@{ call_times }@
class GRAVEN_API Model {
 public:
{% if tensor_ranks > 1 %}
{% if on_device %}
  /// A process is one of @{ tensor_ranks }@ ranks, started by mpirun, torchrun or srun, which make the same calls, each
  /// on a device of its own: each has its part of each tensor. One that is none is an error; the self-test, which sets
  /// this, is the first rank, and takes what the others have for zeros.
{% else %}
  /// A process is one of @{ tensor_ranks }@ ranks, started by mpirun, which make the same calls: each has its part of
  /// each tensor. One that is none is an error; the self-test, which sets this, is the first rank, and takes what the
  /// others have for zeros.
{% endif %}
  static inline bool is_first_rank_alone = false;
{% endif %}
{% if on_device %}
  /// On this CUDA device.
  explicit Model(int device = 0);
{% else %}
  /// `threads` to run on; 0: every processor.
  explicit Model(int threads = 0);
{% endif %}
  ~Model();
  /// What was moved from can only be assigned to or destroyed.
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

{% if accumulates %}
  /// Forward, backward, and, with the step's last part, update. Returns the part's loss before the update.
{% else %}
  /// Forward, backward, update. Returns the loss before the update.
{% endif %}
{% if scales_loss %}
  /// Where a gradient of an optimizer is infinite or NaN, that optimizer's step is skipped.
{% endif %}
  double step(@{ parameters }@, const Hyper& hyper);
{% if on_device %}
  /// The same in two calls, so that the device goes on while the host prepares what comes next: begin_step() gives it a
  /// step and returns, finish_step() waits for the earliest that was begun and returns its loss. Two may be under way.
  /// Inputs on the host are copied before begin_step() returns; memory for that is taken by the first. Where a number
  /// in the data was out of range, finish_step() has the error, and what was begun behind it is dropped.
  void begin_step(@{ parameters }@, const Hyper& hyper);
  double finish_step();
{% endif %}
{% if updates_in_backward %}
  /// The forward phase of a step, as it is in training; returns the loss. Backward updates each parameter as soon as
  /// its gradient is there, so the rest of the step is not to be had apart, and no gradient outlives it.
{% else %}
  /// The forward phase of a step, as it is in training; returns the loss.
{% endif %}
  double forward(@{ parameters }@{% if random %}, const Hyper& hyper = {}{% endif %});
{% if not updates_in_backward %}
{% if accumulates %}
  /// The gradients of the loss, after forward() with the same inputs and numbers; those of part 0, to which the
  /// gradients of the other parts are added. Behind the last part they are the mean.
{% else if random %}
  /// The gradients of the loss, after forward() with the same inputs, seed and step: masks are drawn again.
{% else %}
  /// The gradients of the loss, after forward() with the same inputs.
{% endif %}
  void backward(@{ parameters }@{% if random or accumulates %}, const Hyper& hyper = {}{% endif %});
  /// Changes the parameters by their gradients, after backward().
  void update(const Hyper& hyper);
{% endif %}
{% if has_evaluation %}
{% if evaluates_apart %}
  /// The loss of the network in evaluation mode: batch norms use their running statistics, nothing is random, nothing
  /// is learned or written.
{% else %}
  /// The loss alone; nothing is learned. This network is the same function in training and in evaluation mode.
{% endif %}
  double evaluate(@{ parameters }@);
{% if has_accuracy %}
{% if own_classes > 0 %}
  /// How the last evaluate() rated this rank's classes, [rows, @{ own_classes }@]: the largest of a row, over all
  /// ranks, is the prediction. Valid until the next call.
{% else %}
  /// How the last evaluate() rated the classes, [rows, classes]: the largest of a row is the prediction. Valid until
  /// the next call.
{% endif %}
{% if pipeline %}
  /// `slot`: of a pipeline, after evaluate_stage() of stage_of_scores.
  Tensor scores(int slot = 0) const;
{% else %}
  Tensor scores() const;
{% endif %}
{% if on_device %}
  /// The predictions themselves, i64 [rows], without the scores leaving the device: of the largest scores of a row the
  /// first. Valid until the next call.
  Tensor predictions({% if pipeline %}int slot = 0{% endif %}) const;
{% endif %}
{% endif %}
{% endif %}

  /// Reads parameters and buffers from a safetensors file, all or nothing.
  void load(const std::string& path);
  /// Writes them; the old file stays until the new one is complete.
  void save(const std::string& path) const;

  /// Parameters and buffers, in the order of the weights file.
  std::vector<Tensor> parameters() const;
{% if not updates_in_backward %}
  /// Gradients under their parameters' paths, valid after backward().
{% if shares_states and not shares_gradients %}
  /// Of those that several ranks share each has the mean over all ranks in its own elements alone, the ones it updates.
{% endif %}
  std::vector<Tensor> gradients() const;
{% endif %}
{% if scales_loss %}
  /// The optimizer's states, all zero at first, and what the loss is scaled by.
  std::vector<Tensor> states() const;
  /// By optimizer: how many steps were skipped, because a gradient was not finite. Hyper::step counts these, too.
  std::vector<std::int64_t> skipped_steps() const;
  /// What the next step multiplies the loss by, and so what gradients() then has: the update divides by it what it
  /// reads, so clipped gradients and those of several parts are without it.
  double loss_scale() const;
{% else %}
  /// The optimizer's states; all zero at first.
  std::vector<Tensor> states() const;
{% endif %}
  /// Results of the last forward() or step().
  std::vector<Tensor> results() const;
{% if pipeline %}

  /// The stages of the pipeline, of which runtime/pipeline.h runs one in each process. A slot has a part of a step that
  /// is under way, in an arena of its own; slot 0 is that of step() and results().
  static constexpr int stages = @{ length(stages) }@;
{% if on_device %}
  /// Of several processes rank r runs stage r % stages, and has the memory that its slots take from here on. step(),
  /// forward(), evaluate() and the like are one process's.
{% else %}
  /// `stage`: whose calls will be made.
{% endif %}
  void set_slots(int stage, int count);
{% if on_device %}
  /// The slot has these inputs, copied, and these numbers.
{% else %}
  /// The slot has these inputs, which stay where they are, and these numbers.
{% endif %}
  void prepare_part(int slot, @{ parameters }@, const Hyper& hyper);
  void forward_stage(int stage, int slot);
{% if on_device and data_parallel %}
  /// Behind the last part the gradients are the mean of all processes that have this stage.
{% endif %}
  void backward_stage(int stage, int slot);
  /// The loss that the stage has computed of the slot's part, before the slot gets another one or is updated with; 0
  /// where it computes none. Of the results of one number each, without the loss, it adds to `numbers` those that it
  /// makes, each in its place, unless that is nullptr.
  double results_of_stage(int stage, int slot, double* numbers = nullptr);
  /// What the update of other stages reads of this one's gradients; then the update, by the numbers of slot 0.
  void begin_update_stage(int stage);
  void update_stage(int stage);
{% if has_evaluation %}
  /// What the stage has of evaluate(), of the inputs that the slot has; and of its loss what the stage has computed,
  /// before the slot gets others: 0 where it computes none.
  void evaluate_stage(int stage, int slot);
  double evaluation_of_stage(int stage, int slot);
{% for output in scores %}
  static constexpr int stage_of_scores = @{ output.stage }@;
{% endfor %}
{% endif %}
  /// A value that one stage makes and another reads: bytes of the part that the slot has.
  struct Crossing {
    /// Of the update, it is there once that has begun.
    enum class Phase { forward, backward, update, evaluate } phase;
    int from, to;
    void* data;
    std::size_t bytes;
  };
  const std::vector<Crossing>& crossings(int slot) const;
{% if on_device %}
  /// To and from another stage, on the device of another process. What is sent is what calls before have computed; it
  /// goes on beside those that follow, which may write there behind finish_sending(), and find what was received behind
  /// finish_receiving(). The two processes make the same calls, in the same order.
  void send_to_stage(int slot, int stage, const void* data, std::size_t bytes);
  void receive_from_stage(int stage, void* data, std::size_t bytes);
  void finish_receiving();
  void finish_sending(int slot);
  /// Behind the update: waits for the device.
  void end_step();
  /// Where a parameter lies on the device; nullptr where that has none of it.
  void* place_of(const std::string& path);
{% endif %}
{% endif %}
{% if on_device %}
  /// Copies to the device what was written into the tensors of parameters() and of states(), which are copies of the
  /// device's: of those that were called since the last step, forward() or update(). An error when neither was.
  void write_back();
{% if not updates_in_backward %}
  /// The same of gradients(), since the last step or backward().
  void write_back_gradients();
{% endif %}
  /// Whether calls are recorded as a CUDA graph when they are first made and replayed from then on, as they are unless
  /// this says otherwise; false gives them to the device one by one, for profilers and debuggers.
  void use_cuda_graph(bool on);
  /// How many CUDA devices the process sees.
  static int device_count();
  /// Has the device's work go to the caller's stream, which is ordered with what else the caller gives it and must
  /// outlive the model, or the next use_stream(); nullptr: to one of the model's own, as at first. Waits for what was
  /// given to the one before.
  void use_stream(CUstream_st* stream);
  /// "cuda".
{% else %}
  /// The instruction-set level that was chosen.
{% endif %}
  const char* level() const;

@{ measuring_declarations }@

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace @{ constant_prefix }@_GRAPH
}  // namespace @{ namespace }@

extern "C" {
#endif

/* The C interface: 0 is success; otherwise @{ namespace }@_error() says what happened, in this thread. */
typedef struct @{ namespace }@_model @{ namespace }@_model;
enum {
  @{ constant_prefix }@_OK = 0,
  @{ constant_prefix }@_ERROR = 1,       /* a file, a call out of its turn, whatever else */
  @{ constant_prefix }@_NO_MEMORY = 2,
  @{ constant_prefix }@_BAD_ARGUMENT = 3 /* a NULL, or a number that cannot be; nothing was changed */
};

GRAVEN_API int @{ namespace }@_create(int @{ create_argument }@, @{ namespace }@_model** model);
GRAVEN_API void @{ namespace }@_destroy(@{ namespace }@_model* model);
/* Forward, backward, update. `learning_rates`: @{ group_count }@; `step` counts from 1. The loss is stored where `loss`
   points, unless that is NULL. */
GRAVEN_API int @{ namespace }@_step(@{ namespace }@_model* model, @{ c_parameters }@,
                                    const double* learning_rates, int64_t step{% if random %}, int64_t seed{% endif %},
                                    double* loss);
{% if on_device %}
/* A step in two calls: two may be begun before one is finished. Inputs of all calls may lie on the device; the stream
   that work goes to, NULL: the model's own. */
GRAVEN_API int @{ namespace }@_begin_step(@{ namespace }@_model* model, @{ c_parameters }@,
                                          const double* learning_rates,
                                          int64_t step{% if random %}, int64_t seed{% endif %});
GRAVEN_API int @{ namespace }@_finish_step(@{ namespace }@_model* model, double* loss);
GRAVEN_API int @{ namespace }@_use_stream(@{ namespace }@_model* model, struct CUstream_st* stream);
{% endif %}
GRAVEN_API int @{ namespace }@_forward(@{ namespace }@_model* model, @{ c_parameters }@{% if random %}, int64_t step,
                                       int64_t seed{% endif %}, double* loss);
{% if not updates_in_backward %}
/* The gradients of the loss, after a forward with the same arguments; then what the update makes of them. */
GRAVEN_API int @{ namespace }@_backward(@{ namespace }@_model* model, @{ c_parameters }@{% if random %}, int64_t step,
                                        int64_t seed{% endif %});
GRAVEN_API int @{ namespace }@_update(@{ namespace }@_model* model, const double* learning_rates, int64_t step);
{% endif %}
{% if accumulates %}
/* Which part of the step's batch the calls that follow have, from 0, and how many there are: gradients add up from part
   to part, and the step with the last part updates, by their mean. `draw` counts the parts of all steps, from 1: what
   random numbers go by; 0: (step - 1) * parts + part + 1. At first 0, 1, 0. */
GRAVEN_API int @{ namespace }@_set_part(@{ namespace }@_model* model, int64_t part, int64_t parts, int64_t draw);
{% endif %}
{% if has_evaluation %}
GRAVEN_API int @{ namespace }@_evaluate(@{ namespace }@_model* model, @{ c_parameters }@, double* loss);
{% endif %}
/* A tensor of the model, row-major, where it lies: what is written there counts. */
typedef struct @{ namespace }@_tensor {
  const char* path;  /* "@{ example_path }@" */
  const char* dtype; /* "f32" */
  size_t rank;
  const int64_t* shape;
  void* data;
} @{ namespace }@_tensor;
{% if updates_in_backward %}
/* Parameters and buffers, in the order of the weights file; the optimizer's states; results of the last forward or
   step. The list stays until the function is called again, or the model destroyed. */
{% else %}
/* Parameters and buffers, in the order of the weights file; gradients under their parameters' paths, after a step or
   backward; the optimizer's states; results of the last forward or step. The list stays until the function is called
   again, or the model destroyed. */
{% endif %}
GRAVEN_API int @{ namespace }@_parameters(@{ namespace }@_model* model, const @{ namespace }@_tensor** tensors,
                                          size_t* count);
{% if not updates_in_backward %}
GRAVEN_API int @{ namespace }@_gradients(@{ namespace }@_model* model, const @{ namespace }@_tensor** tensors,
                                         size_t* count);
{% endif %}
GRAVEN_API int @{ namespace }@_states(@{ namespace }@_model* model, const @{ namespace }@_tensor** tensors,
                                      size_t* count);
{% if scales_loss %}
/* By optimizer: how many steps were skipped, because a gradient was not finite; `step` counts these, too. They are
   states as well, and so is what the loss is scaled by: what is written there counts. */
GRAVEN_API int @{ namespace }@_skipped_steps(@{ namespace }@_model* model, const int64_t** counts, size_t* count);
{% endif %}
GRAVEN_API int @{ namespace }@_results(@{ namespace }@_model* model, const @{ namespace }@_tensor** tensors,
                                       size_t* count);
{% if on_device %}
/* The lists are copies on the host: these bring back what was written into parameters and states, and into gradients,
   as write_back() and write_back_gradients() do. */
GRAVEN_API int @{ namespace }@_write_back(@{ namespace }@_model* model);
{% if not updates_in_backward %}
GRAVEN_API int @{ namespace }@_write_back_gradients(@{ namespace }@_model* model);
{% endif %}
{% endif %}
GRAVEN_API int @{ namespace }@_load(@{ namespace }@_model* model, const char* path);
GRAVEN_API int @{ namespace }@_save(const @{ namespace }@_model* model, const char* path);
{% for symbol in symbols %}
/* The largest @{ symbol.identifier }@; any from @{ symbol.given_least }@ on will do. */
GRAVEN_API int64_t @{ namespace }@_maximum_@{ symbol.identifier }@(void);
{% endfor %}
GRAVEN_API const char* @{ namespace }@_error(void);

#ifdef __cplusplus
}
#endif
#undef GRAVEN_API
