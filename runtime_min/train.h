// The training program: everything of it but the model. main.cpp of an emitted project wraps its model and hands it
// over:
//
//   class Trainable : public TrainableModel {
//    public:
//     const TrainingDescription& description() const override { return kDescription; }
//     void start(int threads) override { model_ = std::make_unique<Model>(threads); }
//     std::vector<Variable> weights() override { ... }            // parameters and buffers
//     std::vector<Variable> states() override { ... }             // optimizer state
//     double step(const void* const* inputs, std::int64_t batch, const StepNumbers& numbers) override {
//       return model_->step(static_cast<const float*>(inputs[0]), static_cast<const std::int64_t*>(inputs[1]),
//                           numbers.learning_rates[0]);
//     }
//     Evaluation evaluate(const void* const* inputs, std::int64_t batch, std::int64_t count) override { ... }
//   };
//
//   int main(int argc, char** argv) {
//     Trainable model;
//     return graven::runtime::train_main(argc, argv, model, {.data = "data/fashion-mnist", .epochs = 5});
//   }
//
// The loop: for each epoch a permutation of the samples from (seed, epoch); batch after batch gathered, converted and
// given to step(); the held-out set evaluated; a checkpoint saved. A run that was killed goes on with --resume, bit for
// bit as if nothing had happened. Nothing but the log allocates between the first and the last step of an epoch.
// `--help` lists every option with its default.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "plateau.h"
#include "profile.h"
#include "schedule.h"
#include "tensor.h"

namespace graven::runtime {

struct ParameterGroup {
  double lr = 0;        ///< default learning rate of the group
  Schedule schedule{};  ///< of the optimizer that the group belongs to
  int plateau = -1;     ///< that optimizer's, in TrainingDescription::plateaus; -1: it has none
  double min_lr = 0;    ///< below which that does not reduce the rate
};

/// What the program knows of the model before it starts: constant data in the emitted main.cpp.
struct TrainingDescription {
  const char* name = "model";  ///< "lenet"
  const char* loss = "loss";   ///< "cross_entropy(mean)", for --help and the log
  std::vector<TensorDescription> inputs{};
  std::vector<SymbolDescription> symbols{};  ///< besides the batch: the files say what they stand for
  std::int64_t batch = 1;                    ///< samples of a step at the most
  bool batch_is_symbolic = false;            ///< any batch from 1 to `batch` will do; otherwise it is exactly `batch`
  std::int64_t least_batch = 1;  ///< of a symbolic batch: such as 2 where a batch norm has one value a channel
  std::vector<ParameterGroup> groups{};
  std::vector<Plateau> plateaus{};           ///< by which rates follow the held-out loss or accuracy
  std::vector<std::size_t> shown_results{};  ///< of TrainableModel::numbers(): what an epoch's line has
  std::string_view graph_hash{};             ///< SHA-256 of graph.json
  std::string_view computation{};            ///< the digest of what a step computes: checkpoints of another are refused
  const char* generator = "";                ///< "graven 0.1.0"
  bool has_evaluation = true;                ///< evaluate() may be called
  bool has_accuracy = false;                 ///< Evaluation::correct means something
  /// Of a fixed batch: the input whose TensorDescription::ignored takes a sample out of the loss, exactly; -1: there is
  /// none, or the loss is more than an operator of labels.
  std::int64_t ignorable_labels = -1;
  bool loss_is_sum = false;  ///< with ignorable_labels: a sum over the samples, not a mean
  /// Default of --accumulation-steps; 0: gradients cannot add up from batch to batch.
  std::int64_t accumulation_steps = 0;
  bool scales_loss = false;  ///< a step whose loss or gradients are not finite is skipped, and is no error
  /// Of a scaled loss: gradients() has those of these parameters as they are, others are multiplied by loss_scale().
  std::vector<const char*> unscaled_gradients{};
  bool data_parallel = false;      ///< several ranks may share a step
  bool shares_parameters = false;  ///< each rank has its shards of the parameters: all of them make the same calls
  int stages = 1;                  ///< of a pipeline: ranks may be so many, each a stage, or one
  int tensor_ranks = 1;            ///< that have the tensors of one model in parts: ranks are rows of so many
  double tensor_bytes = 0;         ///< the least that each of them has to send the others in a step
  bool on_device = false;          ///< it computes on a device: --device chooses which, and there is no --threads
};

/// The numbers that change from step to step.
struct StepNumbers {
  const double* learning_rates;  ///< one per parameter group, schedule applied
  std::int64_t step;             ///< from 1: Adam's bias correction
  std::int64_t seed;             ///< for random operators, with the step, or with `draw` where a step may have parts
  std::int64_t part = 0;         ///< the call's part of the step, from 0: only the last one updates
  std::int64_t parts = 1;        ///< how many it has
  std::int64_t draw = 0;         ///< counts the parts of all steps, from 1
};

/// The result of evaluating samples; sums, so that batches add up.
struct Evaluation {
  double loss_sum = 0;       ///< of the samples' losses
  std::int64_t samples = 0;  ///< how many those are
  std::int64_t correct = 0;  ///< labels that have the largest score of their row
  /// Labels looked at: one a sample, or one a position; those that the loss ignores are not counted.
  std::int64_t labels = 0;
};

/// A part of a step's batch, as step() of a model takes it; or a batch of an evaluation, as evaluate() does.
struct StagePart {
  const void* const* inputs;
  std::int64_t batch;
  StepNumbers numbers;
  std::int64_t count = 0;  ///< of an evaluation
};
/// Gives a part, whose inputs stay where they are until the slot gets another one.
using StageParts = std::function<StagePart(std::int64_t part, int slot)>;
using EvaluatedPart = std::function<void(std::int64_t part, const Evaluation& result)>;

/// How ranks train a model that has stages, each rank one of them (runtime/pipeline.h). Every rank calls each function
/// at the same place.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
  virtual int stages() const = 0;
  /// How often there are all stages, each time for batches of their own; and which of these this rank belongs to.
  virtual int replicas() const = 0;
  virtual int replica() const = 0;
  /// So many parts are under way on this rank at the most.
  virtual int slots() const = 0;
  /// Called once, after the model's start().
  virtual void start(const std::vector<Variable>& weights, const std::vector<Variable>& states, double time_limit) = 0;
  /// One step of so many parts; returns the sum of the losses that this rank computes, and adds to `numbers` those of
  /// TrainableModel::numbers() that it computes, each in its place; nullptr: nobody asks for these.
  virtual double step(std::int64_t parts, const StageParts& part, double* numbers) = 0;
  /// What the first rank has in weights and states, for those whose stages have them.
  virtual void hand_out() = 0;
  /// The reverse: the first rank has all weights and states as they are.
  virtual void bring_to_first() = 0;
  /// All replicas have the running statistics of the first one: they are each one's own while it trains.
  virtual void share_statistics() = 0;
  /// Evaluates so many parts, of this rank's replica; behind share_statistics(). `result` gets, of each in turn, what
  /// this rank computes of it.
  virtual void evaluate(std::int64_t parts, const StageParts& part, const EvaluatedPart& result) = 0;
  /// Whether this rank is the one that has the gradient of a parameter: the first replica's of the stage that owns it.
  virtual bool has_gradient(const std::string& parameter) const = 0;
};

class TrainableModel {
 public:
  virtual ~TrainableModel() = default;

  virtual const TrainingDescription& description() const = 0;
  /// Allocates everything. Called once, after the options have been read and before anything below. `threads` is 1 or
  /// more; of a model on a device it is the device's number, from 0.
  virtual void start(int threads) = 0;
  /// Called after start(), of a model on a device alone: whether it records its calls as a CUDA graph, as it does.
  virtual void use_cuda_graph(bool /* on */) {}
  /// How many devices there are for it.
  virtual int devices() const { return 1; }
  /// Parameters and buffers, in the weights file and in checkpoints. The memory stays where it is.
  virtual std::vector<Variable> weights() = 0;
  /// Optimizer state, in checkpoints only; all zero bits in a new run.
  virtual std::vector<Variable> states() = 0;
  /// Called after the weights or states were written from outside, before the next step.
  virtual void weights_changed() {}
  /// Called before they are read from outside: a model whose weights live on a device copies them to the memory that
  /// weights() and states() name.
  virtual void weights_needed() {}
  /// What the symbols of the description stand for in the calls that follow; the largest before.
  virtual void resize(const std::int64_t* /* sizes */) {}
  /// Forward, backward, update; returns the loss. `inputs` are in the order of the description, 64-byte aligned,
  /// `batch` samples each.
  virtual double step(const void* const* inputs, std::int64_t batch, const StepNumbers& numbers) = 0;
  /// Of a model on a device alone: step() in two calls, so that the device goes on while the host prepares what comes
  /// next. Two may be under way. begin_step() has read the inputs when it returns; finish_step() returns the loss of
  /// the earliest that was begun.
  virtual void begin_step(const void* const* /* inputs */, std::int64_t /* batch */, const StepNumbers& /* numbers */) {
    throw std::logic_error("begin_step: a model on a device has it");
  }
  virtual double finish_step() { throw std::logic_error("finish_step: a model on a device has it"); }
  /// Of a model that has stages; nullptr: it has none.
  virtual Pipeline* pipeline() { return nullptr; }
  /// How many steps the optimizer of a parameter group has skipped: its schedule has not come further.
  virtual std::int64_t skipped(std::size_t /* group */) { return 0; }
  /// Results of the last step() of one number each, besides the loss: the log has them by name. Where the model does
  /// not compute on a device, they stay where they are.
  virtual std::vector<Variable> numbers() { return {}; }
  /// Those of the last step(), as its update read them, by their parameters' paths; none where none outlives it.
  virtual std::vector<Variable> gradients() { return {}; }
  /// What gradients() of the next step() will be multiplied by.
  virtual double loss_scale() { return 1; }
  /// Evaluates `batch` samples, in evaluation mode and without learning: the loss of all of them, the labels of the
  /// first `count`. With a symbolic batch, count == batch. With a fixed one the set's last samples may not fill it; the
  /// caller then repeats one sample, and either gives it the label that is ignored or takes its share out.
  virtual Evaluation evaluate(const void* const* inputs, std::int64_t batch, std::int64_t count) = 0;
  /// Measures each call of the steps from here on, or no longer.
  virtual void measure_calls(bool /* on */) {}
  /// Those since it was last asked.
  virtual std::vector<ProfiledCall> call_times() { return {}; }
  /// What the machine reaches, measured now.
  virtual Limits machine_limits() { return {}; }
};

/// Defaults of the options, chosen when the project was emitted.
struct TrainDefaults {
  std::string data{};                ///< --data; empty: it must be given
  std::string test_data{};           ///< --test-data
  std::string data_format = "auto";  ///< --data-format
  /// --weights, looked for beside the program, above it (also in share/PROGRAM), and here.
  std::string weights = "weights.safetensors";
  std::string out = "checkpoints";  ///< --out
  std::int64_t epochs = 1;          ///< --epochs
  std::int64_t save_every = 1;      ///< --save-every: epochs
  std::int64_t eval_every = 1;      ///< --eval-every: epochs
  std::int64_t print_every = 1;     ///< --print-every: epochs
  std::int64_t seed = 0;            ///< --seed
  std::int64_t threads = 0;         ///< --threads; 0: one for each processor.
  std::int64_t warmup = 0;          ///< --warmup: steps of linear warm-up, over the schedule's own
  bool shuffle = true;              ///< --shuffle, --no-shuffle
  bool drop_last = false;           ///< --drop-last: always so with a fixed batch
  std::vector<double> mean{},
      std{};  ///< --mean, --std: of 8-bit images after scaling to [0, 1], one number or one a channel
};

/// Reads the options, trains, and returns the exit status: 0 done, 1 error (on stderr), 2 wrong options, 128 + N
/// stopped by signal N after a checkpoint.
int train_main(int argc, char** argv, TrainableModel& model, const TrainDefaults& defaults);

}  // namespace graven::runtime
