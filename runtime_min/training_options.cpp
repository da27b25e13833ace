#include "training_options.h"

#include <algorithm>

namespace graven::runtime {
namespace {

std::string describe_inputs(const std::vector<TensorDescription>& inputs, std::int64_t batch, bool symbolic) {
  std::string text = std::string("A step's inputs, for a batch of ") + std::string(symbolic ? "1 to " : "") +
                     std::to_string(batch) + ":\n";
  for (const TensorDescription& input : inputs) {
    text += std::string("  ") + input.name + "  " + describe(input.dtype, input.shape);
    if (input.classes > 0) text += std::string(", from 0 to ") + std::to_string(input.classes - 1);
    if (*input.comment != '\0') text += std::string("  ") + input.comment;
    text += "\n";
  }
  text.pop_back();
  return text;
}

void register_options(Arguments& a, TrainingOptions& o, const TrainingDescription& description) {
  const std::int64_t least_batch = description.batch_is_symbolic ? description.least_batch : description.batch;
  a.section("Data");
  a.text(
      "data", o.data.path, "PATH",
      "training set: a folder (IDX, CIFAR, npy, npz, safetensors), a file, or a file for each input, commas between");
  a.text("test-data", o.test_data.path, "PATH",
         "held-out set; without it the test set in --data's folder, if it has one");
  a.text("data-format", o.data.format, "FORMAT",
         "auto, idx, cifar10, cifar100, npy, npz, safetensors, raw, text or tokens");
  a.numbers("mean", o.normalization.mean, "X[,X...]",
            "subtracted from 8-bit images, which are x / 255; one number or one a channel");
  a.numbers("std", o.normalization.std, "X[,X...]", "what they are then divided by");
  a.flag("shuffle", o.shuffle, "a new order each epoch, from the seed and the epoch's number");
  a.flag("drop-last", o.drop_last, "leave out an epoch's last samples when they don't fill a batch");
  a.section("Training");
  a.integer("epochs", o.epochs, 0, kMany, "N", "passes over the training set");
  a.integer(
      "steps", o.steps, 0, kMany, "N",
      "stop after step N, counted from the run's first; without --epochs, as many epochs as it takes; 0: no limit");
  a.integer("patience", o.patience, 0, kMany, "N",
            "stop early, when the held-out loss (without a held-out set the training loss) has not fallen below its "
            "least for N evaluated epochs in a row; 0: never");
  a.number("min-delta", o.min_delta, 0, 1e30, "X", "by how much it must fall for --patience");
  a.integer("batch", o.batch, least_batch, description.batch, "N", "samples a step");
  a.integer("accumulation-steps", o.accumulation_steps, 1, kMany, "N",
            description.data_parallel ? "batches of a step on each rank: one update, by the mean of all their gradients"
                                      : "batches of a step: one update, by the mean of their gradients");
  a.number("lr", o.lr, 0, 1e30, "X", "learning rate of the first parameter group; the others keep their ratio to it");
  a.integer("warmup", o.warmup, 0, kMany, "N",
            "steps of linear warm-up in place of the schedule's own; 0: the schedule's own");
  a.integer("total-steps", o.total_steps, 0, kMany, "N", "length of the learning-rate schedule; 0: as it was emitted");
  a.integer("seed", o.seed, 0, kMany, "N", "of the order of the samples, and of random operators");
  a.text("weights", o.weights, "FILE",
         "initial weights; a bare name is looked for beside the program, above it, in share/ there, and here");
  o.execution.add_option(a);
  if (description.data_parallel || description.stages > 1 || description.tensor_ranks > 1)
    a.number("rank-timeout", o.rank_timeout, 1, 1e9, "S",
             "seconds that a rank waits for the others before it gives up");
  a.section("Checkpoints");
  a.text("out", o.out, "DIR", "where checkpoints go; empty: none are made");
  a.optional_text("resume", o.resume, "newest", "PATH",
                  "go on exactly where a run stopped: from the newest whole checkpoint of --out, or of PATH, or from "
                  "the one at PATH");
  a.flag("overwrite", o.overwrite, "a new run may remove the checkpoints in --out");
  a.integer("checkpoint-every", o.checkpoint_every, 0, kMany, "N",
            "steps between checkpoints within an epoch; 0: none but those at its end");
  a.integer("save-every", o.save_every, 0, kMany, "N",
            "epochs between the checkpoints that are made at their ends; 0: the last epoch only");
  a.integer("keep", o.keep, 0, kMany, "K", "keep the newest K, and the best; 0: all");
  a.section("Reports");
  a.integer("eval-every", o.eval_every, 0, kMany, "N", "epochs between evaluations of the held-out set; 0: never");
  a.integer("print-every", o.print_every, 1, kMany, "N", "epochs between the lines that are printed");
  a.text("log", o.log, "FILE", "append a JSON line for each step, epoch and checkpoint");
  a.integer("log-every", o.log_every, 1, kMany, "N", "steps between the log's lines");
  a.integer("bench", o.bench, 0, 1'000'000, "N", "time N steps on random data, print one JSON line, and stop");
  a.number("bench-seconds", o.bench_seconds, 0, 1e6, "S", "the same, for S seconds");
  o.profile.add_option(a, "steps", "of training, on random data where there is no --data");
}

}  // namespace

TrainingOptions default_options(const TrainingDescription& description, const TrainDefaults& defaults) {
  TrainingOptions options;
  options.data.path = defaults.data;
  options.test_data.path = defaults.test_data;
  options.data.format = defaults.data_format;
  options.weights = defaults.weights;
  options.out = defaults.out;
  options.epochs = defaults.epochs;
  options.save_every = defaults.save_every;
  options.eval_every = defaults.eval_every;
  options.print_every = defaults.print_every;
  options.seed = defaults.seed;
  options.execution = {.on_device = description.on_device, .threads = defaults.threads};
  options.warmup = defaults.warmup;
  options.shuffle = defaults.shuffle;
  options.drop_last = defaults.drop_last || !description.batch_is_symbolic;
  options.normalization = {defaults.mean, defaults.std, false};
  options.batch = description.batch;
  options.accumulation_steps = std::max<std::int64_t>(description.accumulation_steps, 1);
  options.lr = description.groups.empty() ? 0 : description.groups[0].lr;
  return options;
}

Arguments training_arguments(TrainingOptions& options, const TrainingDescription& description) {
  Arguments arguments(description.name,
                      std::string("Trains ") + description.name + ", minimising " + description.loss + ".\n\n" +
                          describe_inputs(description.inputs, description.batch, description.batch_is_symbolic));
  register_options(arguments, options, description);
  arguments.note(
      "Stopping: SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGPIPE finish the step, save a checkpoint and stop; a second "
      "SIGINT or SIGTERM stops at once.");
  return arguments;
}

void check(const Arguments& arguments, TrainingOptions& options, const TrainingDescription& description) {
  options.normalization.required = arguments.given("mean") || arguments.given("std");
  if (arguments.given("resume") && options.resume.empty())
    throw UsageError("--resume", "", "the path of a checkpoint or of a folder of them, or no value at all",
                     "an empty one");
  if (!description.batch_is_symbolic && arguments.given("drop-last") && !options.drop_last)
    throw UsageError("--no-drop-last", std::string("the model's batch is fixed at ") +
                                           std::to_string(description.batch) +
                                           ": an epoch's last samples must fill one");
  options.profile.refuse(
      arguments, {"bench", "bench-seconds", "steps", "epochs", "patience", "min-delta", "out", "resume", "overwrite",
                  "checkpoint-every", "save-every", "keep", "test-data", "eval-every", "print-every"});
}

}  // namespace graven::runtime
