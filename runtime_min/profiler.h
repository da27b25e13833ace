// Profiler: the option --profile of programs, and what it does: some steps warm up, so many are measured, a table of
// them is printed, and a trace of them written.
//
//   ProfileOptions options;
//   options.add_option(arguments, "steps");
//   if (arguments.given("profile")) {
//     Profiler profiler(options);                       // the file, before anything else
//     profiler.begin(model, "2 threads", 64, {});
//     while (!profiler.is_done()) {
//       profiler.measure([&] { model.step(...); });     // or several times for a step
//       profiler.end_step();
//     }
//     profiler.finish();
//   }
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "arguments.h"
#include "call_times.h"
#include "file.h"
#include "profile.h"

namespace graven::runtime {

struct ProfileOptions {
  static constexpr std::int64_t kWarmUp = 3;
  std::string path{};  ///< of the trace; empty: none is written
  std::int64_t steps = 20;

  void add_option(Arguments& arguments, const char* unit, const char* data) {
    const std::string what = unit;
    const std::string help =
        "measure the kernels' calls of --profile-steps " + what + " " + data +
        ", print where their time goes by module, beside what the machine reaches, and stop; into FILE goes a "
        "trace, which ui.perfetto.dev shows";
    const std::string steps_help =
        what + " that --profile measures, after " + std::to_string(kWarmUp) + " that warm up";
    arguments.optional_text("profile", path, "", "FILE", help.c_str());
    arguments.integer("profile-steps", steps, 1, 100'000, "N", steps_help.c_str());
  }
  /// Of options that a profile takes no notice of: an error where one is given.
  void refuse(const Arguments& arguments, std::initializer_list<const char*> others) const {
    if (!arguments.given("profile")) {
      if (arguments.given("profile-steps")) throw UsageError("--profile-steps", "", "--profile beside it", "none");
      return;
    }
    for (const char* other : others)
      if (arguments.given(other))
        throw UsageError(
            "--profile", "",
            std::string("no --") + other + ": it measures some steps, and neither saves nor reports others", "both");
  }
};

/// "2 threads, rank 0 of 4". `number`: of threads, or the device's.
inline std::string place_of(bool on_device, int number, int rank, int ranks) {
  const std::string text = std::to_string(number);
  std::string place = on_device ? "device " + text : text + (number == 1 ? " thread" : " threads");
  if (ranks > 1) place += ", rank " + std::to_string(rank) + " of " + std::to_string(ranks);
  return place;
}

template <class Model>
class Profiler {
 public:
  /// `rank`: one of several, whose file has its number; -1: there is one process. An Error where the file cannot be
  /// written.
  Profiler(const ProfileOptions& options, int rank) : options_(options), path_(options.path) {
    if (path_.empty()) return;
    if (rank >= 0) {
      const std::size_t name = path_.find_last_of('/') + 1, dot = path_.find_last_of('.');
      path_.insert(dot == std::string::npos || dot <= name ? path_.size() : dot, "." + std::to_string(rank));
    }
    file_.emplace(path_);
  }

  /// Once the model can compute. `where`: "2 threads". `sizes`: what the symbols stand for besides the batch, none
  /// where they are as large as they may be.
  void begin(Model& model, const std::string& where, std::int64_t batch, const std::vector<std::int64_t>& sizes) {
    const auto& description = model.description();
    model_ = &model;
    profile_ = Profile(description.name, where + ", batch " + std::to_string(batch), model.machine_limits());
    bool is_largest = batch == description.batch;
    std::string largest = "batch " + std::to_string(description.batch);
    for (std::size_t s = 0; s < description.symbols.size(); ++s) {
      const auto& symbol = description.symbols[s];
      largest += std::string(", ") + symbol.name + " " + std::to_string(symbol.maximum);
      is_largest = is_largest && (sizes.empty() || sizes[s] == symbol.maximum);
    }
    if (!is_largest) profile_.add_note("bytes and FLOP are those of the largest sizes: " + largest);
    model.measure_calls(true);
  }
  /// Steps in all, those that warm up and those that are measured.
  std::int64_t steps() const { return ProfileOptions::kWarmUp + options_.steps; }
  bool is_done() const { return done_ >= steps(); }

  /// A step, or a part of it, for so many samples.
  template <class Work>
  void measure(const Work& work, std::int64_t samples) {
    const double begin = steady_clock();
    work();
    const double end = steady_clock();
    if (seconds_ == 0) begin_ = begin;
    seconds_ += end - begin;
    samples_ += samples;
  }
  void end_step() {
    const std::vector<ProfiledCall> calls = model_->call_times();
    if (++done_ > ProfileOptions::kWarmUp) profile_.add_step(begin_, seconds_, calls, samples_);
    seconds_ = 0;
    samples_ = 0;
  }

  void finish() {
    model_->measure_calls(false);
    std::fputs(profile_.table().c_str(), stdout);
    if (file_) {
      profile_.write_trace(*file_);
      file_->commit();
      std::printf("trace: %s, for ui.perfetto.dev\n", path_.c_str());
    }
    flush_output();
  }

 private:
  ProfileOptions options_;
  std::string path_;
  std::optional<AtomicFile> file_;
  Model* model_ = nullptr;
  Profile profile_;
  std::int64_t done_ = 0;
  double begin_ = 0, seconds_ = 0;
  std::int64_t samples_ = 0;
};

}  // namespace graven::runtime
