#include "train.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <exception>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "arguments.h"
#include "batch.h"
#include "checkpoint.h"
#include "dataset.h"
#include "evaluation_calls.h"
#include "execution.h"
#include "file.h"
#include "json_lines.h"
#include "learning_rates.h"
#include "machine.h"
#include "number.h"
#include "profiler.h"
#include "progress.h"
#include "ranks.h"
#include "safetensors.h"
#include "sampler.h"
#include "sha256.h"
#include "signals.h"
#include "stopwatch.h"
#include "training_options.h"

namespace graven::runtime {
namespace {

/// Whether what is resumed from, "newest", a checkpoint or a folder of them, is the folder `out` or in it.
bool goes_on_in(const std::string& resume, const std::string& out) {
  if (resume == "newest") return true;
  struct stat own, other;
  if (::stat(out.c_str(), &own) != 0) return false;
  for (const std::string& place : {resume, join(resume, "..")})
    if (::stat(place.c_str(), &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino) return true;
  return false;
}

double mean_loss_of(const Evaluation& e) {
  return e.loss_sum / static_cast<double>(std::max<std::int64_t>(e.samples, 1));
}

double accuracy_of(const Evaluation& e) {
  return static_cast<double>(e.correct) / static_cast<double>(std::max<std::int64_t>(e.labels, 1));
}

/// A step of an epoch, from where it begins.
struct EpochStep {
  std::int64_t number, position, draws;  ///< steps, samples and draws before it
  std::int64_t parts, batches, samples;  ///< this rank's parts; all ranks' batches, and the samples in them
  bool is_logged, is_saved;
  double scale;               ///< of its gradients
  std::int64_t finished = 0;  ///< of its parts
};

class Trainer {
 public:
  Trainer(TrainableModel& model, TrainingOptions options, const Arguments& arguments)
      : model_(model),
        description_(model.description()),
        options_(std::move(options)),
        arguments_(arguments),
        log_(ranks_.is_first() ? options_.log : std::string()) {
    ranks_.set_time_limit(options_.rank_timeout);
    if (arguments.given("profile")) {
      profiler_.emplace(options_.profile, ranks_.size() > 1 ? ranks_.rank() : -1);
      options_.out.clear();
    }
    if (description_.tensor_ranks > 1) Ranks::divide(description_.tensor_ranks);
  }

  int run();
  void bench();
  /// Of steps on random data.
  void profile();

 private:
  void start();
  void begin_profile(std::int64_t batch, const std::vector<std::int64_t>& sizes);
  void load_initial_weights(bool required);
  void resume();
  bool train_epoch();
  void finish_step(const EpochStep& step);
  std::optional<Evaluation> evaluate();
  void finish_epoch(const Stopwatch& watch);
  void begin_next_epoch();
  void watch_loss(double loss);
  bool has_waited() const { return options_.patience > 0 && state_.waited >= options_.patience; }
  void save();
  std::int64_t steps_from(std::int64_t position) const;
  std::optional<std::int64_t> last_step() const;
  void require_parts(std::int64_t batches) const;
  void require_same_program();
  void require_same_run();
  void share_state();
  void share_weights();
  void share_out(std::span<const Variable> variables, const std::string& file);
  void collect_weights();
  /// Of all slots, the one of a program that is no pipeline, with memory for so many samples.
  std::vector<Batch> make_batches(const std::vector<TensorDescription>& inputs, std::int64_t most) const {
    std::vector<Batch> batches;
    for (int slot = 0; slot < (pipeline_ != nullptr ? pipeline_->slots() : 1); ++slot)
      batches.emplace_back(inputs, most);
    return batches;
  }
  void agree_on_stop();
  void warn(const std::string& text) const;
  static Ranks::Traffic take_traffic();
  [[noreturn]] void fail_on_loss(double loss) const;
  std::string epoch_title() const;
  bool epoch_is_due(std::int64_t every) const;
  /// Of the epoch so far; NaN where no loss was a number.
  double mean_loss() const {
    if (state_.position == 0) return 0;
    return state_.counted == 0 ? std::nan("") : state_.loss_sum / static_cast<double>(state_.counted);
  }
  void add_numbers();
  std::optional<double> gradient_norm(double scale);
  void follow_plateaus(const std::optional<Evaluation>& evaluation, double loss);
  void report_epoch(const std::optional<Evaluation>& evaluation, double loss, double seconds);
  void report_last_step(double seconds) const;
  /// With several ranks it is what they have agreed on last.
  int stop_signal() const { return ranks_.size() > 1 ? agreed_signal_ : signals_ ? signals_->received() : 0; }

  /// Ranks that have batches of their own, and which of these this one is: those of a pipeline, and those that have
  /// tensors in parts, work on the same ones.
  std::int64_t replicas() const {
    return pipeline_ != nullptr ? pipeline_->replicas() : ranks_.size() / description_.tensor_ranks;
  }
  std::int64_t replica() const {
    return pipeline_ != nullptr ? pipeline_->replica() : ranks_.rank() / description_.tensor_ranks;
  }
  /// Of ranks that compute the same numbers one counts them.
  bool counts() const { return ranks_.rank() % description_.tensor_ranks == 0; }

  Ranks& ranks_ = Ranks::all();
  TrainableModel& model_;
  bool starts_folder_ = false;  ///< none of the checkpoints that are in --out belongs to this run
  Pipeline* const pipeline_ = ranks_.size() > 1 ? model_.pipeline() : nullptr;  ///< nullptr: this rank is no stage
  const TrainingDescription& description_;
  TrainingOptions options_;
  const Arguments& arguments_;
  JsonLines log_;
  JsonWriter json_;
  std::vector<Variable> weights_, states_;
  std::optional<CheckpointFolder> folder_;
  std::optional<Dataset> data_, test_;
  std::optional<BatchSource> source_, test_source_;
  std::vector<std::int64_t> sizes_, test_sizes_;  ///< what the symbols stand for in data_ and test_
  std::vector<TensorDescription> inputs_, test_inputs_;
  std::vector<Batch> batches_, test_batches_;  ///< by slot; the latter where test_ has other sizes
  LearningRates rates_{model_};
  std::vector<Variable> numbers_;  ///< results of the last step, besides the loss
  std::vector<double> sums_;       ///< of a step's parts: of the loss, and of those
  bool knows_results_ = true;      ///< of the whole epoch
  bool logs_ = false;              ///< the first rank has a log
  TrainingState state_;
  std::int64_t saved_step_ = -1;
  std::string saved_path_;
  std::string weights_path_;  ///< where the first weights come from
  int agreed_signal_ = 0;
  std::optional<Profiler<TrainableModel>> profiler_;
  int number_ = 0;                      ///< of threads, or the device's
  std::optional<StopSignals> signals_;  ///< while the loop runs: before it, a signal simply ends the program
};

void Trainer::start() {
  const int number = options_.execution.number();
  // Each of several ranks has its share of the processors, where nobody says how many threads it has.
  const int sharing = ranks_.sharing_processors();
  const bool chosen = options_.execution.on_device || options_.execution.threads > 0;
  number_ = chosen ? number : std::max(number / sharing, 1);
  // Each rank has a device of its own, where nobody says which.
  if (options_.execution.on_device && ranks_.size() > 1)
    if (const int place = ranks_.place_on_machine(); !arguments_.given("device"))
      number_ = place % std::max(model_.devices(), 1);
  model_.start(number_);
  if (options_.execution.no_cuda_graph) model_.use_cuda_graph(false);
  weights_ = model_.weights();
  states_ = model_.states();
  if (pipeline_ != nullptr) pipeline_->start(weights_, states_, options_.rank_timeout);
  numbers_ = model_.numbers();
  sums_.resize(1 + numbers_.size());
  logs_ = log_.enabled();
  ranks_.broadcast(&logs_, sizeof logs_);
}

/// Behind start(). `sizes`: what the symbols stand for besides the batch, none where they are as large as they may be.
void Trainer::begin_profile(std::int64_t batch, const std::vector<std::int64_t>& sizes) {
  profiler_->begin(model_, place_of(options_.execution.on_device, number_, ranks_.rank(), ranks_.size()), batch, sizes);
}

void Trainer::load_initial_weights(bool required) {
  if (weights_.empty()) return;
  const std::string path = find_beside_program(options_.weights);
  if (!path.empty()) {
    load_variables(SafetensorsFile(path), weights_);
    weights_path_ = path;
    model_.weights_changed();
  } else if (required) {
    throw Error(
        "--weights", "",
        printable(options_.weights) + " beside the program, in the folder above it, in share/ there, or in this one",
        "no such file");
  }
}

/// From that sample of an epoch to its end, as train_epoch() makes them.
std::int64_t Trainer::steps_from(std::int64_t position) const {
  const std::int64_t batch = state_.batch, n = state_.samples;
  const std::int64_t end = state_.drop_last ? n - n % batch : n;
  const std::int64_t batches = (std::max<std::int64_t>(end - position, 0) + batch - 1) / batch;
  return (batches / replicas() * replicas() + state_.accumulation_steps - 1) / state_.accumulation_steps;
}

/// Of the run, where that is known: --patience may end it at any epoch.
std::optional<std::int64_t> Trainer::last_step() const {
  const std::int64_t epochs = options_.epochs - state_.epoch - 1, each = steps_from(0);
  std::int64_t last = 0;
  if (options_.patience > 0 || epochs < 0) return std::nullopt;
  if (__builtin_mul_overflow(epochs, each, &last) ||
      __builtin_add_overflow(last, state_.step + steps_from(state_.position), &last))
    last = std::numeric_limits<std::int64_t>::max();
  return options_.steps > 0 ? std::min(last, options_.steps) : last;
}

/// `batches` of a step, on all ranks.
void Trainer::require_parts(std::int64_t batches) const {
  if (batches > replicas() && description_.accumulation_steps == 0)
    throw UsageError("--accumulation-steps", "",
                     "1: this program was emitted from a graph that asks for no gradient accumulation, or for "
                     "update_in_backward (set_gradient_accumulation_steps() before it is recorded)",
                     std::to_string(batches));
}

void Trainer::resume() {
  const std::string& from = options_.resume;
  const auto report = [this](const std::string& text) { warn(text + "; looking for an older one"); };
  std::string path = from;
  TrainingState loaded;
  if (from != "newest" && kind_of(join(from, "manifest.json")) == FileKind::regular) {
    loaded = load_checkpoint(from, description_.computation, weights_, states_);
  } else {
    const std::string& folder = from == "newest" ? options_.out : from;
    if (folder.empty()) throw UsageError("--resume", "", "a path, when --out is empty", "none");
    loaded = load_newest(folder, description_.computation, weights_, states_, report, &path);
  }
  model_.weights_changed();
  if (loaded.samples != state_.samples) {
    throw Error(path, "",
                std::string("a training set of ") + std::to_string(loaded.samples) + " samples, as the checkpoint's",
                std::to_string(state_.samples) + " (a new run from these weights: --weights " +
                    join(path, "weights.safetensors") + ")");
  }
  if (loaded.batch < 1 || loaded.batch > description_.batch)
    throw Error(path, "batch", std::string("1 to ") + std::to_string(description_.batch) + " samples",
                std::to_string(loaded.batch));
  const TrainingState chosen = state_;
  state_ = loaded;
  state_.generator = chosen.generator;
  state_.plateaus.resize(description_.plateaus.size());
  knows_results_ = state_.position == 0 || state_.result_sums.size() == numbers_.size();
  state_.result_sums.resize(numbers_.size());
  // What the command line says overrides; what it leaves unsaid is the checkpoint's.
  const auto take = [&](const char* option, auto TrainingState::* field) {
    if (!arguments_.given(option) || chosen.*field == loaded.*field) return;
    state_.*field = chosen.*field;
    warn(std::string("--") + option + " is not the checkpoint's: the run will not be the one that was stopped");
  };
  take("seed", &TrainingState::seed);
  take("batch", &TrainingState::batch);
  take("accumulation-steps", &TrainingState::accumulation_steps);
  take("shuffle", &TrainingState::shuffle);
  take("drop-last", &TrainingState::drop_last);
  if (arguments_.given("lr") && chosen.lr != loaded.lr) state_.reduced_lrs.clear();  // it is the rate from here on
  take("lr", &TrainingState::lr);
  take("warmup", &TrainingState::warmup);
  take("total-steps", &TrainingState::total_steps);
  if (folder_ && !starts_folder_) {
    // A newer checkpoint that is whole would be lost by going on from here.
    for (const std::string& other : list_checkpoints(options_.out)) {
      if (step_of(other) <= state_.step) break;
      if (is_whole_checkpoint(other)) {
        throw UsageError(
            "--resume", "",
            "another --out, because " + options_.out + " holds a checkpoint of step " + std::to_string(step_of(other)),
            printable(from));
      }
    }
  }
  saved_step_ = state_.step;
  saved_path_ = path;
  weights_path_ = weights_file(path);
  std::printf("resumed from %s: epoch %lld, step %lld\n", path.c_str(), static_cast<long long>(state_.epoch + 1),
              static_cast<long long>(state_.step));
}

/// What only the first rank has read or decided, for the others: where the run is, and its weights.
void Trainer::share_state() {
  std::int64_t* const integers[] = {&state_.step,    &state_.draws,       &state_.epoch,     &state_.position,
                                    &state_.counted, &state_.seed,        &state_.batch,     &state_.accumulation_steps,
                                    &state_.warmup,  &state_.total_steps, &state_.best_step, &state_.watched_step,
                                    &state_.waited,  &saved_step_};
  for (std::int64_t* n : integers) ranks_.broadcast(n, sizeof *n);
  for (double* x : {&state_.loss_sum, &state_.lr, &state_.best_metric, &state_.watched_loss})
    ranks_.broadcast(x, sizeof *x);
  for (bool* flag : {&state_.shuffle, &state_.drop_last, &state_.has_best, &state_.has_watched})
    ranks_.broadcast(flag, sizeof *flag);
  ranks_.broadcast(state_.result_sums.data(), state_.result_sums.size() * sizeof(double));
  ranks_.broadcast(state_.plateaus.data(), state_.plateaus.size() * sizeof(PlateauState));
  std::size_t reduced = state_.reduced_lrs.size();
  ranks_.broadcast(&reduced, sizeof reduced);
  state_.reduced_lrs.resize(reduced);
  ranks_.broadcast(state_.reduced_lrs.data(), reduced * sizeof(double));
  ranks_.broadcast(&knows_results_, sizeof knows_results_);
  if (pipeline_ != nullptr) return pipeline_->hand_out();
  share_weights();
  share_out(weights_, ranks_.is_first() ? weights_path_ : std::string());
  share_out(states_, !ranks_.is_first() || saved_path_.empty() ? std::string() : states_file(saved_path_));
  for (const Variable& v : states_)
    if (!v.is_part()) ranks_.broadcast(v.data, v.bytes());
  if (ranks_.size() > 1) model_.weights_changed();
}

/// What the first rank has of the variables in a file, in shards; nothing where it has none.
void Trainer::share_out(std::span<const Variable> variables, const std::string& file) {
  bool has_file = !file.empty();
  ranks_.broadcast(&has_file, sizeof has_file);
  if (!has_file) return;
  std::optional<SafetensorsFile> source;
  if (ranks_.is_first()) source.emplace(file);
  for (const Variable& v : variables) {
    if (!v.is_part()) continue;
    const void* whole = nullptr;
    if (source) {
      const SafetensorsEntry* entry = source->find(v.path);
      if (entry == nullptr || entry->dtype != v.dtype || entry->shape != v.shape)
        throw Error(file, printable(v.path), describe(v.dtype, v.shape), "another file than a moment ago");
      whole = source->bytes(*entry).data();
    }
    ranks_.scatter(v, whole);
  }
}

/// Each rank has the first one's parameters, as it has anyhow, and its buffers: of batch norms each has its own while
/// it trains. Behind this the run is the one that a checkpoint goes on with.
void Trainer::share_weights() {
  if (ranks_.size() == 1) return;
  model_.weights_needed();
  for (const Variable& v : weights_)
    if (v.cut.is_cut())
      Ranks::peers().broadcast(v.data, v.bytes());
    else if (!v.is_part())
      ranks_.broadcast(v.data, v.bytes());
  model_.weights_changed();
}

/// Before anything is shared: the ranks train one model.
void Trainer::require_same_program() {
  ranks_.require_same("the program",
                      std::string(description_.generator) + ", graph " + std::string(description_.graph_hash));
}

/// Before the first step: they do so on one set of samples, and stop, look and report at the same steps.
void Trainer::require_same_run() {
  if (ranks_.size() == 1) return;
  std::vector<std::byte> bytes;
  const Batch& batch = batches_.front();
  const std::int64_t n = data_->size(), rows = std::min(batch.samples(), n);
  source_->fill(batches_.front(), rows, [&](std::int64_t i) { return i * (n / rows); });
  for (std::size_t t = 0; t < inputs_.size(); ++t)
    if (inputs_[t].batched) bytes.insert(bytes.end(), batch.row(t, 0), batch.row(t, rows));
  ranks_.require_same("the training set", std::to_string(n) + " samples, SHA-256 of some " + sha256(bytes));
  ranks_.require_same("the options",
                      "epochs " + std::to_string(options_.epochs) + ", steps " + std::to_string(options_.steps) +
                          ", evaluation every " + std::to_string(options_.eval_every) + " (patience " +
                          std::to_string(options_.patience) + ") of " + std::to_string(test_ ? test_->size() : 0) +
                          " samples, checkpoints every " + std::to_string(options_.save_every) + " epochs and " +
                          std::to_string(options_.checkpoint_every) + " steps" +
                          (logs_ ? ", lines of a log every " + std::to_string(options_.log_every) : ""));
}

/// Every rank stops where one has been told to.
void Trainer::agree_on_stop() {
  if (ranks_.size() == 1) return;
  double signals[] = {0, 0};
  if (signals_ && signals_->received() != 0) signals[0] = 1, signals[1] = signals_->received();
  ranks_.sum(signals, 2);
  if (signals[0] > 0) agreed_signal_ = static_cast<int>(signals[1] / signals[0]);
}

/// Of all groups that this rank is in.
Ranks::Traffic Trainer::take_traffic() {
  Ranks::Traffic sum;
  std::vector<Ranks*> seen;
  for (Ranks* group : {&Ranks::all(), &Ranks::peers(), &Ranks::team()}) {
    if (std::find(seen.begin(), seen.end(), group) != seen.end()) continue;
    seen.push_back(group);
    const Ranks::Traffic own = group->take_traffic();
    sum.messages += own.messages;
    sum.bytes += own.bytes;
    sum.least += own.least;
    sum.sent += own.sent;
    sum.waited += own.waited;
  }
  return sum;
}

void Trainer::warn(const std::string& text) const {
  if (ranks_.is_first()) std::fprintf(stderr, "warning: %s\n", text.c_str());
}

/// Before the first rank saves them.
void Trainer::collect_weights() {
  if (pipeline_ != nullptr) return pipeline_->bring_to_first();
  share_weights();
}

void Trainer::save() {
  collect_weights();
  saved_step_ = state_.step;
  bool saves = folder_.has_value();
  ranks_.broadcast(&saves, sizeof saves);
  if (!saves) return;
  if (!folder_) {
    for (const std::vector<Variable>* list : {&weights_, &states_})
      for (const Variable* v : in_file_order(*list))
        if (v->is_part()) ranks_.gather(*v, nullptr);
    return;
  }
  model_.weights_needed();
  std::vector<std::byte> all;  // of one variable at a time
  saved_path_ = folder_->save(state_, weights_, states_, options_.keep, [&](const Variable& v) {
    all.resize(v.whole_bytes());
    ranks_.gather(v, all.data());
    return all.data();
  });
  if (!log_.enabled()) return;
  json_.clear();
  log_.write(json_.begin_object()
                 .key("event")
                 .value("checkpoint")
                 .key("step")
                 .value(state_.step)
                 .key("path")
                 .value(saved_path_)
                 .end_object());
}

void Trainer::fail_on_loss(double loss) const {
  const std::string kept = saved_path_.empty() ? "no checkpoint was made" : "the last checkpoint is " + saved_path_;
  throw Error(
      "training", std::string("step ") + std::to_string(state_.step + 1), "a finite loss",
      (std::isnan(loss) ? std::string("NaN") : std::string("infinity")) + "; " + kept + "; a lower --lr may help");
}

std::string Trainer::epoch_title() const {
  const std::string title = std::string("epoch ") + std::to_string(state_.epoch + 1);
  return options_.epochs == kMany ? title : title + "/" + std::to_string(options_.epochs);
}

/// Trains to the end of the epoch; false when something stops the run before.
bool Trainer::train_epoch() {
  const std::int64_t n = state_.samples, batch = state_.batch, start = state_.position;
  const Permutation order(n, state_.seed, state_.epoch);
  const bool shuffle = state_.shuffle;
  const std::int64_t end = state_.drop_last ? n - n % batch : n;
  Progress progress(epoch_title().c_str(), end, start, ranks_.is_first() && !profiler_);
  const std::int64_t ranks = replicas();
  // On a device the next step is begun before the last one's loss is known, unless it asks for what that leaves.
  const bool runs_ahead =
      description_.on_device && !description_.scales_loss && numbers_.empty() && !profiler_ && pipeline_ == nullptr;
  std::deque<EpochStep> begun;
  std::int64_t parts_under_way = 0;
  const auto conclude = [&](const EpochStep& step) {
    finish_step(step);
    progress.update(state_.position, mean_loss(), state_.position - start);
    if (step.is_saved) save();
  };
  const auto finish_part = [&] {
    EpochStep& step = begun.front();
    if (step.finished == 0) sums_[0] = 0;
    sums_[0] += model_.finish_step();
    --parts_under_way;
    if (++step.finished < step.parts) return;
    conclude(step);
    begun.pop_front();
  };
  bool stopped = false;
  for (std::int64_t position = state_.position, number = state_.step, draws = state_.draws; position < end;) {
    stopped = stop_signal() != 0 || (options_.steps > 0 && number >= options_.steps);
    if (stopped) break;
    // The last step of an epoch has the batches that are left; those that do not go round the ranks are left out.
    const std::int64_t left = (end - position + batch - 1) / batch;
    const std::int64_t all = std::min(state_.accumulation_steps, left / ranks * ranks), parts = all / ranks;
    if (parts == 0) break;
    const std::int64_t samples = std::min(all * batch, end - position);
    rates_.set(number);
    const bool is_logged = logs_ && (number + 1) % options_.log_every == 0;
    const bool is_saved =
        options_.checkpoint_every > 0 && (number + 1) % options_.checkpoint_every == 0 && position + samples < end;
    const EpochStep step{.number = number,
                         .position = position,
                         .draws = draws,
                         .parts = parts,
                         .batches = all,
                         .samples = samples,
                         .is_logged = is_logged,
                         .is_saved = is_saved,
                         .scale = is_logged ? model_.loss_scale() : 1};  // the step changes it
    StepNumbers numbers{
        .learning_rates = rates_.values().data(), .step = number + 1, .seed = state_.seed, .parts = parts};
    // The batches of a step are dealt out to the ranks one by one. A batch has the same random numbers wherever it is
    // computed.
    const auto part_of = [&](std::int64_t part, Batch& to) {
      const std::int64_t place = part * ranks + replica();
      numbers.part = part;
      numbers.draw = step.draws + place + 1;
      const std::int64_t first = step.position + place * batch, count = std::min(batch, end - first);
      source_->fill(to, count, [&](std::int64_t i) { return shuffle ? order[first + i] : first + i; });
      return StagePart{to.pointers(), count, numbers};
    };
    position += samples;
    number += 1;
    draws += all;
    if (runs_ahead) {
      begun.push_back(step);
      for (std::int64_t part = 0; part < parts; ++part) {
        const StagePart own = part_of(part, batches_.front());
        model_.begin_step(own.inputs, own.batch, own.numbers);
        ++parts_under_way;
        while (parts_under_way > 1) finish_part();
      }
      while ((is_logged || is_saved) && parts_under_way > 0) finish_part();
      continue;
    }
    std::fill(sums_.begin(), sums_.end(), 0.0);
    if (pipeline_ != nullptr) {
      sums_[0] = pipeline_->step(
          parts, [&](std::int64_t part, int slot) { return part_of(part, batches_[static_cast<std::size_t>(slot)]); },
          sums_.data() + 1);
    } else {
      for (std::int64_t part = 0; part < parts; ++part) {
        const StagePart own = part_of(part, batches_.front());
        const auto make = [&] { sums_[0] += model_.step(own.inputs, own.batch, own.numbers); };
        if (profiler_)
          profiler_->measure(make, own.batch);
        else
          make();
        add_numbers();
      }
      if (profiler_) profiler_->end_step();
    }
    conclude(step);
  }
  while (parts_under_way > 0) finish_part();
  return !stopped && stop_signal() == 0;
}

/// Of a step whose losses and results are in sums_: what the run knows of it, and the line of the log.
void Trainer::finish_step(const EpochStep& step) {
  if (!counts()) std::fill(sums_.begin(), sums_.end(), 0.0);
  ranks_.sum(sums_.data(), sums_.size());
  agree_on_stop();
  const double loss = sums_[0] / static_cast<double>(step.batches);
  const bool is_number = std::isfinite(loss);
  if (!is_number && !description_.scales_loss) fail_on_loss(loss);
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    double& result = sums_[1 + i];
    if (is_floating(numbers_[i].dtype)) {  // the mean of the parts; whole numbers add up
      result /= static_cast<double>(step.batches);
      if (is_number) state_.result_sums[i] += result * static_cast<double>(step.samples);
    } else {
      state_.result_sums[i] += result;
    }
  }
  state_.step += 1;
  state_.draws += step.batches;
  state_.position += step.samples;
  if (is_number) {  // a step that is skipped because of its loss leaves the epoch's means as they are
    state_.loss_sum += loss * static_cast<double>(step.samples);
    state_.counted += step.samples;
  }
  const std::optional<double> norm = step.is_logged ? gradient_norm(step.scale) : std::nullopt;
  if (!step.is_logged || !log_.enabled()) return;
  json_.clear();
  json_.begin_object()
      .key("event")
      .value("step")
      .key("step")
      .value(state_.step)
      .key("epoch")
      .value(state_.epoch + 1)
      .key("loss")
      .value(loss);
  rates_.write(json_);
  if (norm) json_.key("gradient_norm").value(*norm);
  if (!numbers_.empty()) json_.key("results").begin_object();
  for (std::size_t i = 0; i < numbers_.size(); ++i) json_.key(numbers_[i].path).value(sums_[1 + i]);
  if (!numbers_.empty()) json_.end_object();
  log_.write(json_.end_object());
}

/// Behind a part of a step.
void Trainer::add_numbers() {
  if (numbers_.empty()) return;
  if (description_.on_device) numbers_ = model_.numbers();
  for (std::size_t i = 0; i < numbers_.size(); ++i)
    sums_[1 + i] += number_at(numbers_[i].dtype, static_cast<const std::byte*>(numbers_[i].data), 0);
}

/// Of all gradients of the last step as one vector, in double: what its update read, a norm that it clips by not being
/// in them, and without the scale of a loss. Every rank calls it.
std::optional<double> Trainer::gradient_norm(double scale) {
  const std::vector<Variable> gradients = model_.gradients();
  if (gradients.empty()) return std::nullopt;
  const auto squares_of = [](const auto* x, std::int64_t n) {
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return sum;
  };
  std::vector<double> squares(gradients.size(), 0.0);
  for (std::size_t g = 0; g < gradients.size(); ++g) {
    const Variable& v = gradients[g];
    if (pipeline_ != nullptr && !pipeline_->has_gradient(v.path)) continue;
    double& sum = squares[g];
    if (v.dtype == DType::f32) {
      sum = squares_of(static_cast<const float*>(v.data), v.count());
    } else if (v.dtype == DType::f64) {
      sum = squares_of(static_cast<const double*>(v.data), v.count());
    } else {
      for (std::int64_t i = 0; i < v.count(); ++i) {
        const double x = number_at(v.dtype, static_cast<const std::byte*>(v.data), i);
        sum += x * x;
      }
    }
    const std::vector<const char*>& unscaled = description_.unscaled_gradients;
    if (std::find(unscaled.begin(), unscaled.end(), v.path) == unscaled.end()) sum /= scale * scale;
  }
  // Of a pipeline one rank has each of them, so these sums, and the order of what is added below, are one process's.
  if (pipeline_ != nullptr) ranks_.sum(squares.data(), squares.size());
  // Of those that every rank has, of this one's parts of those that its row has together, and of all ranks' shards.
  double whole = 0, parts = 0, shards = 0;
  for (std::size_t g = 0; g < gradients.size(); ++g) {
    const Variable& v = gradients[g];
    (v.cut.is_cut() ? parts : v.is_part() ? shards : whole) += squares[g];
  }
  ranks_.sum(&shards, 1);
  Ranks::team().sum(&parts, 1);
  return std::sqrt(whole + parts + shards);
}

/// Of an epoch that is evaluated, or without a held-out set of any.
void Trainer::follow_plateaus(const std::optional<Evaluation>& evaluation, double loss) {
  if (description_.plateaus.empty() || (test_source_ && !evaluation)) return;
  std::optional<double> accuracy;
  if (evaluation) loss = mean_loss_of(*evaluation), accuracy = accuracy_of(*evaluation);
  if (!rates_.follow_plateaus(state_, loss, accuracy, ranks_)) return;
  std::printf("  learning rate%s reduced to", rates_.values().size() > 1 ? "s" : "");
  for (const double rate : rates_.values()) std::printf(" %g", rate);
  std::printf("\n");
  std::fflush(stdout);
}

std::optional<Evaluation> Trainer::evaluate() {
  if (!test_source_ || !description_.has_evaluation || options_.eval_every == 0 || !epoch_is_due(options_.eval_every))
    return std::nullopt;
  std::vector<Batch>& held_out = test_batches_.empty() ? batches_ : test_batches_;
  for (Batch& batch : held_out) test_source_->fill_shared(batch);
  model_.resize(test_sizes_.data());
  const std::int64_t n = test_->size(), batch = held_out.front().samples(), batches = (n + batch - 1) / batch;
  const std::vector<EvaluationCall> calls = evaluation_calls(description_, n, batch);
  // Each batch on one replica. Where all ranks have to make the same calls, one that has none in the last round takes
  // the first batch, of which nothing comes; and all make those that find what a row adds.
  const bool together = description_.shares_parameters;
  std::vector<std::size_t> own;  // those that this rank makes
  for (std::int64_t round = 0; round < batches; round += replicas())
    if (const std::int64_t place = round + replica(); place < batches || together)
      own.push_back(place < batches ? static_cast<std::size_t>(place) : 0);
  const bool has_last = (batches - 1) % replicas() == replica();
  for (auto c = static_cast<std::size_t>(batches); c < calls.size(); ++c)
    if (has_last || together) own.push_back(c);
  const StepNumbers numbers{
      .learning_rates = rates_.values().data(), .step = state_.step + 1, .seed = state_.seed};  // nobody reads them
  const auto part_of = [&](std::size_t c, Batch& to) {
    const EvaluationCall& call = calls[c];
    test_source_->fill(to, call.rows, [&](std::int64_t i) { return i < call.count ? call.first + i : call.other; });
    if (call.rows > call.count && description_.ignorable_labels >= 0) {
      const auto labels = static_cast<std::size_t>(description_.ignorable_labels);
      to.set_rows(description_.inputs, labels, call.count, description_.inputs[labels].ignored);
    }
    return StagePart{to.pointers(), call.rows, numbers, call.is_looked_at ? call.count : 0};
  };
  // Of each call its loss, right answers and labels: added up in the order of the batches, by whatever ranks.
  std::vector<double> results(3 * calls.size(), 0.0);
  const auto keep = [&](std::int64_t i, const Evaluation& result) {
    const std::size_t c = own[static_cast<std::size_t>(i)];
    const std::int64_t owner = std::min(static_cast<std::int64_t>(c), batches - 1) % replicas();
    if (owner != replica() || !counts()) return;
    double* const at = results.data() + 3 * c;
    at[0] = result.loss_sum;
    at[1] = static_cast<double>(result.correct);
    at[2] = static_cast<double>(result.labels);
  };
  if (pipeline_ != nullptr) {
    pipeline_->share_statistics();
    pipeline_->evaluate(
        std::ssize(own),
        [&](std::int64_t i, int slot) {
          return part_of(own[static_cast<std::size_t>(i)], held_out[static_cast<std::size_t>(slot)]);
        },
        keep);
  } else {
    share_weights();
    for (std::int64_t i = 0; i < std::ssize(own) && stop_signal() == 0; ++i) {
      const StagePart part = part_of(own[static_cast<std::size_t>(i)], held_out.front());
      keep(i, model_.evaluate(part.inputs, part.batch, part.count));
    }
  }
  ranks_.sum(results.data(), results.size());
  agree_on_stop();
  for (Batch& own_batch : batches_) source_->fill_shared(own_batch);
  model_.resize(sizes_.data());
  if (stop_signal() != 0) return std::nullopt;
  const EvaluatedSet set = total_of(description_, calls, results);
  if (!set.warning.empty()) warn(set.warning);
  return set.total;
}

/// Whether the epoch that ends is one of every `every`, or the run's last.
bool Trainer::epoch_is_due(std::int64_t every) const {
  const bool last = state_.epoch + 1 == options_.epochs || (options_.steps > 0 && state_.step >= options_.steps);
  return last || (every > 0 && (state_.epoch + 1) % every == 0);
}

void Trainer::report_epoch(const std::optional<Evaluation>& evaluation, double loss, double seconds) {
  const auto result = [&](std::size_t i) {  // of the epoch: the mean over its samples; whole numbers add up
    const auto samples = static_cast<double>(state_.counted);
    return is_floating(numbers_[i].dtype) ? state_.result_sums[i] / samples : state_.result_sums[i];
  };
  if (epoch_is_due(options_.print_every)) {
    std::printf("%s  loss %.4f", epoch_title().c_str(), loss);
    if (knows_results_)
      for (const std::size_t i : description_.shown_results)
        std::printf(is_floating(numbers_[i].dtype) ? "  %s %.4f" : "  %s %.0f", numbers_[i].path.c_str(), result(i));
    if (evaluation) {
      std::printf("  test loss %.4f", mean_loss_of(*evaluation));
      if (description_.has_accuracy) std::printf("  accuracy %.4f", accuracy_of(*evaluation));
    }
    std::printf("  %.1f s\n", seconds);
    std::fflush(stdout);
  }
  if (!log_.enabled()) return;
  json_.clear();
  json_.begin_object()
      .key("event")
      .value("epoch")
      .key("epoch")
      .value(state_.epoch + 1)
      .key("step")
      .value(state_.step)
      .key("loss")
      .value(loss);
  rates_.write(json_);
  if (knows_results_ && !numbers_.empty()) {
    json_.key("results").begin_object();
    for (std::size_t i = 0; i < numbers_.size(); ++i) json_.key(numbers_[i].path).value(result(i));
    json_.end_object();
  }
  if (evaluation) {
    json_.key("test_loss").value(mean_loss_of(*evaluation));
    if (description_.has_accuracy) json_.key("accuracy").value(accuracy_of(*evaluation));
  }
  log_.write(json_.key("seconds").value(seconds).end_object());
}

/// The closing line of a run that --steps ends within an epoch, which has no line of its own yet.
void Trainer::report_last_step(double seconds) const {
  std::printf("%s, step %lld  loss %.4f  %.1f s  %s%s\n", epoch_title().c_str(), static_cast<long long>(state_.step),
              mean_loss(), seconds, folder_ ? "saved " : "not saved: --out is empty",
              folder_ ? saved_path_.c_str() : "");
}

/// Of an epoch that --patience looks at.
void Trainer::watch_loss(double loss) {
  if (std::isfinite(loss) && (!state_.has_watched || loss < state_.watched_loss - options_.min_delta)) {
    state_.has_watched = true;
    state_.watched_loss = loss;
    state_.watched_step = state_.step;
    state_.waited = 0;
  } else {
    state_.waited += 1;
  }
}

void Trainer::finish_epoch(const Stopwatch& watch) {
  if (profiler_) return begin_next_epoch();
  const std::optional<Evaluation> evaluation = evaluate();
  if (stop_signal() != 0) return;  // the epoch ends, with its evaluation, when the run goes on
  const double loss = mean_loss();
  report_epoch(evaluation, loss, watch.seconds());
  if (options_.patience > 0 && (evaluation || !test_source_)) watch_loss(evaluation ? mean_loss_of(*evaluation) : loss);
  follow_plateaus(evaluation, loss);
  const bool due = epoch_is_due(options_.save_every);
  // The best is a checkpoint, so only epochs that are saved compete; with a held-out set, only those that are
  // evaluated.
  if (due && (evaluation || !test_source_)) {
    const double compared = evaluation ? evaluation->loss_sum : loss;  // an epoch whose loss is NaN is never the best
    const double metric =
        evaluation && description_.has_accuracy ? static_cast<double>(evaluation->correct) : -compared;
    if (std::isfinite(compared) && (!state_.has_best || metric > state_.best_metric)) {
      state_.has_best = true;
      state_.best_metric = metric;
      state_.best_step = state_.step;
    }
  }
  begin_next_epoch();
  if (due) save();
}

void Trainer::begin_next_epoch() {
  state_.epoch += 1;
  state_.position = 0;
  state_.loss_sum = 0;
  state_.counted = 0;
  std::fill(state_.result_sums.begin(), state_.result_sums.end(), 0.0);
  knows_results_ = true;
}

int Trainer::run() {
  require_samples(description_.inputs);
  data_.emplace(open_dataset(options_.data, description_.inputs, Split::train));
  sizes_ = sizes_in(*data_, description_.inputs, description_.symbols);
  inputs_ = with_sizes(description_.inputs, sizes_);
  source_.emplace(*data_, inputs_, options_.normalization);
  if (!options_.test_data.path.empty() && !description_.has_evaluation)
    throw Error("--test-data",
                "this program was emitted without an evaluation, because the network behaves otherwise when it is "
                "evaluated (batch norm, dropout) and "
                "the graph was past its trace: emit it from the trace, or with its evaluation.json beside it");
  if (description_.has_evaluation && !profiler_ &&
      (!options_.test_data.path.empty() || has_test_split(options_.data, description_.inputs))) {
    options_.test_data.format = options_.data.format;
    if (options_.test_data.path.empty()) options_.test_data.path = options_.data.path;
    test_.emplace(open_dataset(options_.test_data, description_.inputs, Split::test));
    test_sizes_ = sizes_in(*test_, description_.inputs, description_.symbols);
    test_inputs_ = with_sizes(description_.inputs, test_sizes_);
    test_source_.emplace(*test_, test_inputs_, options_.normalization);
  }
  if (options_.patience > 0 && test_ && options_.eval_every == 0)
    throw UsageError("--patience", "", "an --eval-every above 0, as the held-out loss is what it looks at", "0");
  if (!description_.plateaus.empty() && test_ && options_.eval_every == 0)
    throw UsageError("--eval-every", "", "1 or more, as the learning rate follows the held-out set", "0");
  for (const Plateau& plateau : description_.plateaus)
    if (plateau.max && !profiler_ && !(test_ && description_.has_accuracy))
      throw UsageError("--test-data", "",
                       std::string("a held-out set") +
                           (description_.has_accuracy ? "" : ", and a model with an accuracy") +
                           ": the learning rate follows the accuracy (ReduceLROnPlateau with PlateauMode::max)",
                       test_ ? "no accuracy" : "none");
  if (!description_.batch_is_symbolic) options_.drop_last = true;
  state_ = {.model = description_.name,
            .graph_hash = std::string(description_.graph_hash),
            .generator = description_.generator,
            .computation = std::string(description_.computation),
            .samples = data_->size()};
  state_.seed = options_.seed;
  state_.batch = options_.batch;
  state_.accumulation_steps = options_.accumulation_steps * replicas();
  state_.shuffle = options_.shuffle;
  state_.drop_last = options_.drop_last;
  state_.lr = options_.lr;
  state_.warmup = options_.warmup;
  state_.total_steps = options_.total_steps;
  if (profiler_) options_.steps = profiler_->steps();
  if (options_.steps > 0 && !arguments_.given("epochs")) options_.epochs = kMany;

  if (!options_.out.empty() && ranks_.is_first()) {
    folder_.emplace(options_.out, [](const std::string& text) { std::fprintf(stderr, "note: %s\n", text.c_str()); });
    starts_folder_ = options_.resume.empty() || !goes_on_in(options_.resume, options_.out);
    if (starts_folder_ && !list_checkpoints(options_.out).empty()) {
      if (!options_.overwrite)
        throw Error(options_.out,
                    "holds the checkpoints of another run: go on with it (--resume), choose another --out, or remove "
                    "them (--overwrite)");
    }
  }
  start();
  state_.result_sums.resize(numbers_.size());
  state_.plateaus.resize(description_.plateaus.size());
  if (ranks_.is_first()) {
    if (options_.resume.empty())
      load_initial_weights(true);
    else
      resume();
  }
  require_same_program();
  share_state();
  if (state_.accumulation_steps % replicas() != 0)
    throw UsageError("--accumulation-steps", "",
                     "another number of ranks, or of batches on each: a step of the checkpoint has " +
                         std::to_string(state_.accumulation_steps) + " batches",
                     std::to_string(ranks_.size()) + " ranks");
  if (state_.drop_last && state_.batch > state_.samples)
    throw Error(data_->path(), "", std::string("at least one batch of ") + std::to_string(state_.batch) + " samples",
                std::to_string(state_.samples));
  const std::int64_t rest = state_.drop_last ? 0 : state_.samples % state_.batch;
  if (rest != 0 && rest < description_.least_batch) {
    throw UsageError("--batch", "",
                     "another one, or --drop-last: a batch norm learns from " +
                         std::to_string(description_.least_batch) + " samples or more",
                     std::to_string(rest) + " in the last batch of an epoch");
  }
  // An epoch without a step would never end.
  const std::int64_t filled = state_.drop_last ? 0 : state_.batch - 1;
  if (const std::int64_t batches = (state_.samples + filled) / state_.batch; batches < replicas())
    throw Error(data_->path(), "", "a batch for each of " + std::to_string(ranks_.size()) + " ranks",
                std::to_string(batches));
  require_parts(state_.accumulation_steps);
  rates_.start(state_);
  if (const std::optional<std::int64_t> last = last_step()) rates_.require(*last, state_.step);
  const std::int64_t most = std::max(state_.batch, description_.batch_is_symbolic ? state_.batch : description_.batch);
  batches_ = make_batches(inputs_, most);
  if (test_ && test_sizes_ != sizes_) test_batches_ = make_batches(test_inputs_, most);
  for (Batch& batch : batches_) source_->fill_shared(batch);
  model_.resize(sizes_.data());
  require_same_run();
  // Only now that nothing is wrong with the run; its first weights may be an old checkpoint's.
  if (folder_ && starts_folder_) folder_->clear();

  std::printf("%s: %lld training samples", description_.name, static_cast<long long>(data_->size()));
  if (test_) std::printf(", %lld held out", static_cast<long long>(test_->size()));
  std::printf(", batch %lld", static_cast<long long>(state_.batch));
  if (ranks_.size() > 1) std::printf(", %d ranks", ranks_.size());
  if (pipeline_ != nullptr) std::printf(", %d stages", pipeline_->stages());
  if (description_.tensor_ranks > 1) std::printf(", tensors in %d parts", description_.tensor_ranks);
  if (state_.accumulation_steps > 1)
    std::printf(", %lld batches a step", static_cast<long long>(state_.accumulation_steps));
  std::printf("\n");
  for (const std::string& binding : source_->bindings()) std::printf("  %s\n", binding.c_str());
  std::fflush(stdout);
  if (log_.enabled()) {
    json_.clear();
    json_.begin_object()
        .key("event")
        .value("start")
        .key("model")
        .value(description_.name)
        .key("graph")
        .value(description_.graph_hash);
    json_.key("step")
        .value(state_.step)
        .key("samples")
        .value(state_.samples)
        .key("batch")
        .value(state_.batch)
        .key("seed")
        .value(state_.seed);
    log_.write(json_.key("lr").value(state_.lr).end_object());
  }

  const auto finished = [&] {
    return state_.epoch >= options_.epochs || (options_.steps > 0 && state_.step >= options_.steps) || has_waited();
  };
  if (finished()) {
    std::printf("nothing left to do: %lld epochs and %lld steps are done\n", static_cast<long long>(state_.epoch),
                static_cast<long long>(state_.step));
    return 0;
  }
  signals_.emplace();
  if (profiler_) begin_profile(state_.batch, sizes_);
  double seconds = 0;
  while (!finished()) {
    const Stopwatch watch;
    const bool whole = train_epoch();
    seconds = watch.seconds();
    if (!whole) break;
    finish_epoch(watch);
    if (stop_signal() != 0) break;
  }
  if (profiler_ && stop_signal() == 0) {
    profiler_->finish();
    return 0;
  }
  if (saved_step_ != state_.step || state_.position != 0) save();
  if (has_waited() && stop_signal() == 0)
    std::printf("stopped early: the %s loss has not fallen below %.4f, that of step %lld, for %lld epochs\n",
                test_ ? "held-out" : "training", state_.watched_loss, static_cast<long long>(state_.watched_step),
                static_cast<long long>(state_.waited));
  if (const int signal = stop_signal(); signal != 0) {
    if (ranks_.is_first())
      std::fprintf(stderr, "stopped by a signal after step %lld%s%s%s\n", static_cast<long long>(state_.step),
                   folder_ ? "; go on with --resume (" : "", folder_ ? saved_path_.c_str() : "", folder_ ? ")" : "");
    return 128 + signal;
  }
  if (state_.position != 0) report_last_step(seconds);
  return 0;
}

void Trainer::bench() {
  state_.lr = options_.lr;
  start();
  if (pipeline_ == nullptr || ranks_.is_first()) load_initial_weights(arguments_.given("weights"));
  rates_.start(state_);
  batches_ = make_batches(description_.inputs, options_.batch);
  for (Batch& batch : batches_) batch.randomize(description_.inputs, options_.seed);
  if (pipeline_ != nullptr) pipeline_->hand_out();
  Timings timings(options_.bench > 0 ? static_cast<std::size_t>(options_.bench) : 200'000);
  double first = 0;
  const Stopwatch total;
  // Two calls warm up; then the number that was asked for, or at least five and as many as the time allows.
  for (std::int64_t i = -2;; ++i) {
    rates_.set(state_.step);
    const Stopwatch watch;
    StepNumbers numbers{.learning_rates = rates_.values().data(), .step = state_.step + 1, .seed = options_.seed};
    if (pipeline_ != nullptr) {
      numbers.parts = options_.accumulation_steps;
      pipeline_->step(
          numbers.parts,
          [&](std::int64_t part, int slot) {
            numbers.part = part;
            return StagePart{batches_[static_cast<std::size_t>(slot)].pointers(), options_.batch, numbers};
          },
          nullptr);
    } else {
      model_.step(batches_.front().pointers(), options_.batch, numbers);
    }
    const double seconds = watch.seconds();
    state_.step += 1;
    if (i == -2) first = seconds;
    if (i == -1) take_traffic();
    if (i >= 0) timings.add(seconds);
    bool done = timings.full() || (options_.bench == 0 && i >= 4 && total.seconds() >= options_.bench_seconds);
    ranks_.broadcast(&done, sizeof done);  // clocks differ
    if (done) break;
  }
  Ranks::Traffic traffic = take_traffic();
  traffic.least += description_.tensor_bytes * static_cast<double>(timings.count());
  std::vector<double> alone;
  for (int i = 0; i < 5; ++i) alone.push_back(Ranks::peers().time_last_messages());
  std::sort(alone.begin(), alone.end());
  json_.begin_object().key("peer").value("graven").key("workload").value(description_.name);
  json_.key(options_.execution.name()).value(options_.execution.number()).key("batch").value(options_.batch);
  if (ranks_.size() > 1) {
    // Of a step: the bytes of what this rank has brought together with the others', what it has to send for that, and
    // what it has sent; how long that takes alone, and what of it the kernels did not hide.
    const double steps = static_cast<double>(timings.count());
    json_.key("ranks").value(std::int64_t{ranks_.size()});
    json_.key("messages").value(traffic.messages / static_cast<std::int64_t>(timings.count()));
    json_.key("message_bytes").value(traffic.bytes / steps);
    json_.key("least_sent_bytes").value(traffic.least / steps).key("sent_bytes").value(traffic.sent / steps);
    if (!options_.execution.on_device) {
      const double sending = alone[alone.size() / 2], waited = traffic.waited / steps;
      json_.key("sending_ms").value(sending * 1e3).key("waited_ms").value(waited * 1e3);
      json_.key("hidden").value(sending > 0 ? std::clamp(1 - waited / sending, 0.0, 1.0) : 0.0);
    }
  }
  json_.key("runs")
      .value(timings.count())
      .key("median_ms")
      .value(timings.median() * 1e3)
      .key("min_ms")
      .value(timings.minimum() * 1e3);
  json_.key("first_ms").value(first * 1e3).key("rss_mb").value(peak_memory_mb()).end_object();
  std::printf("%s\n", json_.text().c_str());
  flush_output();
}

void Trainer::profile() {
  require_parts(options_.accumulation_steps * replicas());
  state_.lr = options_.lr;
  start();
  load_initial_weights(arguments_.given("weights"));
  rates_.start(state_);
  batches_ = make_batches(description_.inputs, options_.batch);
  batches_.front().randomize(description_.inputs, options_.seed);
  begin_profile(options_.batch, {});
  for (; !profiler_->is_done(); ++state_.step) {
    rates_.set(state_.step);
    StepNumbers numbers{.learning_rates = rates_.values().data(),
                        .step = state_.step + 1,
                        .seed = options_.seed,
                        .parts = options_.accumulation_steps};
    for (; numbers.part < numbers.parts; ++numbers.part) {
      numbers.draw = state_.step * numbers.parts + numbers.part + 1;
      profiler_->measure([&] { model_.step(batches_.front().pointers(), options_.batch, numbers); }, options_.batch);
    }
    profiler_->end_step();
  }
  profiler_->finish();
}

}  // namespace

int train_main(int argc, char** argv, TrainableModel& model, const TrainDefaults& defaults) {
  fill_standard_streams();
  const TrainingDescription& description = model.description();
  TrainingOptions options = default_options(description, defaults);
  Arguments arguments = training_arguments(options, description);
  Ranks* ranks = nullptr;
  const auto fail = [&](const std::exception& error, int status) {
    std::fflush(stdout);
    if (ranks != nullptr) return ranks->fail(error, status);
    std::fprintf(stderr, "error: %s\n", error.what());
    return status;
  };
  try {
    ranks = &Ranks::all();
    if (!ranks->is_first() && std::freopen("/dev/null", "w", stdout) == nullptr)
      throw system_error("/dev/null", "open");
    if (const int stages = description.stages; ranks->size() > 1 && stages > 1) {
      const bool fits = description.data_parallel ? ranks->size() % stages == 0 : ranks->size() == stages;
      if (!fits)
        throw Error("ranks", "",
                    (description.data_parallel ? "a multiple of " : "") + std::to_string(stages) +
                        " ranks, one for each stage of the pipeline, or 1, which runs all",
                    std::to_string(ranks->size()));
    }
    if (ranks->size() > 1 && !description.data_parallel && description.stages == 1 && description.tensor_ranks == 1)
      throw Error("ranks", "",
                  "a program of a graph that is data parallel (enable_data_parallel() before it is recorded)",
                  "one of " + std::to_string(ranks->size()) + " processes that would each train for itself");
    if (!arguments.parse(argc, argv)) return 0;
    if (const int row = description.tensor_ranks; row > 1) {
      const bool fits = description.data_parallel ? ranks->size() % row == 0 : ranks->size() == row;
      if (!fits)
        throw Error("ranks", "",
                    (description.data_parallel ? "a multiple of " : "") + std::to_string(row) +
                        " ranks, which have the tensors of the model in parts (enable_tensor_parallel)",
                    std::to_string(ranks->size()));
    }
    check(arguments, options, description);
    if (arguments.given("profile") && ranks->size() > 1 && description.stages > 1)
      throw UsageError("--profile", "", "one process, which runs all stages of the pipeline",
                       std::to_string(ranks->size()) + " ranks");
    Trainer trainer(model, options, arguments);
    int status = 0;
    if (options.bench > 0 || options.bench_seconds > 0)
      trainer.bench();
    else if (arguments.given("profile") && options.data.path.empty())
      trainer.profile();
    else
      status = trainer.run();
    // Nobody goes before all are done: to who still waits, it would be gone.
    double done = 0;
    ranks->sum(&done, 1);
    return status;
  } catch (const UsageError& error) {
    return fail(error, 2);
  } catch (const std::exception& error) {
    return fail(error, 1);
  }
}

}  // namespace graven::runtime
