// The options of a training program: what they are, their defaults, and what goes with what.
//
//   TrainingOptions options = default_options(description, defaults);
//   Arguments arguments = training_arguments(options, description);
//   if (!arguments.parse(argc, argv)) return 0;   // --help, --version
//   check(arguments, options, description);
#pragma once

#include <cstdint>
#include <string>

#include "arguments.h"
#include "batch.h"
#include "dataset.h"
#include "execution.h"
#include "profiler.h"
#include "train.h"

namespace graven::runtime {

/// No count of steps or samples reaches it, and doubles hold every one below.
inline constexpr std::int64_t kMany = std::int64_t{1} << 53;

struct TrainingOptions {
  DatasetOptions data, test_data;
  std::string weights, out, resume, log;
  std::int64_t epochs = 1, steps = 0, batch = 1, accumulation_steps = 1, seed = 0, warmup = 0, total_steps = 0;
  std::int64_t checkpoint_every = 0, save_every = 1, keep = 3, eval_every = 1, print_every = 1, log_every = 1,
               patience = 0, bench = 0;
  double lr = 0, min_delta = 0, bench_seconds = 0, rank_timeout = 600;
  bool shuffle = true, drop_last = false, overwrite = false;
  Normalization normalization;
  Execution execution;
  ProfileOptions profile;
};

TrainingOptions default_options(const TrainingDescription& description, const TrainDefaults& defaults);
/// The options by their names, with what --help says of them; parse() writes what is given to `options`.
Arguments training_arguments(TrainingOptions& options, const TrainingDescription& description);
/// Behind parse(), before any file is opened: throws a UsageError where options do not go together.
void check(const Arguments& arguments, TrainingOptions& options, const TrainingDescription& description);

}  // namespace graven::runtime
