#include "codegen/build/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <limits>
#include <new>
#include <set>
#include <span>

#include "codegen/emit/embedded.h"
#include "codegen/emit/just_in_time.h"
#include "codegen/targets/targets.h"
#include "ir/diagnostic.h"
#include "ir/executable.h"
#include "ir/passes/pass.h"
#include "runtime_min/machine.h"
#include "runtime_min/sha256.h"

namespace graven::codegen {

namespace {

/// A gain that is taken: less is noise, and a change of a program for nothing.
constexpr double kWorthwhile = 0.97;
constexpr const char* kAll = "all";  // processors

/// By key, in one: those of several nodes.
std::map<std::string, ir::Choice> choices_of(const ir::Graph& finished, const Target& target) {
  std::map<std::string, ir::Choice> by_key;
  if (target.choices == nullptr) return by_key;
  for (ir::Choice& choice : target.choices(finished)) {
    const auto [found, is_new] = by_key.try_emplace(choice.key, choice);
    if (!is_new) found->second.nodes.insert(found->second.nodes.end(), choice.nodes.begin(), choice.nodes.end());
  }
  return by_key;
}

std::map<std::string, ir::Choice> choices_by_heuristics(const ir::Graph& traced, const Target& target) {
  ir::Graph graph = traced;
  ir::PassOptions passes;
  passes.target = &target.passes;
  ir::finish_passes(graph, passes);
  return choices_of(graph, target);
}

/// Three digits say all that a time does.
double rounded(double milliseconds) {
  const std::string text = fmt::format("{:.3g}", milliseconds);
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// ---- programs to measure --------------------------------------------------------------------------------------------

/// Memory that all programs of a graph share: what it is given and keeps, and what it gives back.
class Memory {
 public:
  Memory(const ir::Device& device, const TuneOptions& options) : device_(device), options_(options) {}

  void* of(const ir::Value& value) {
    const std::string key = fmt::format("{}{}", static_cast<int>(value.kind), value.name);
    std::shared_ptr<std::byte>& place = places_[key];
    if (place != nullptr) return place.get();
    const auto bytes = static_cast<std::size_t>(value.type.shape.numel().maximum()) * ir::size_of(value.type.dtype);
    const std::vector<std::byte> data = content(value, bytes);
    if (device_.is_cpu()) {
      place = {new (std::align_val_t{64}) std::byte[bytes + 1],
               [](std::byte* p) { ::operator delete[](p, std::align_val_t{64}); }};
      std::copy(data.begin(), data.end(), place.get());
    } else {
      place = ir::allocate_on_device(device_, bytes + 1);
      ir::copy_to_device(device_, place.get(), data.data(), bytes);
    }
    return place.get();
  }

 private:
  /// Numbers that nothing goes wrong with: integers are 0, which is a label and an index of anything.
  std::vector<std::byte> content(const ir::Value& value, std::size_t bytes) {
    if (const auto given = options_.weights.find(value.name);
        given != options_.weights.end() && given->second->bytes.size() == bytes)
      return given->second->bytes;
    std::vector<std::byte> data(bytes);
    const bool is_small = value.kind == ir::ValueKind::parameter;
    const auto fill = [&](auto number) {
      for (std::size_t i = 0; i + sizeof number <= bytes; i += sizeof number) {
        random_ = random_ * 6364136223846793005u + 1442695040888963407u;
        const double share = static_cast<double>(random_ >> 40) / static_cast<double>(1 << 24);
        number = static_cast<decltype(number)>(is_small ? (share - 0.5) / 8 : share);
        std::memcpy(data.data() + i, &number, sizeof number);
      }
    };
    if (value.kind == ir::ValueKind::state) return data;
    if (value.type.dtype == ir::DType::f32) fill(float{});
    if (value.type.dtype == ir::DType::f64) fill(double{});
    return data;
  }

  ir::Device device_;
  const TuneOptions& options_;
  std::map<std::string, std::shared_ptr<std::byte>> places_;
  std::uint64_t random_ = 1;
};

class Program {
 public:
  Program(const ir::Graph& traced, const Target& target, const ir::Device& device, int threads, Memory& memory)
      : device_(device) {
    EmitOptions options;
    options.target = target.name();
    options.jit_entry = true;
    options.format = false;
    EmitReport report;
    const ir::Graph finished = render_just_in_time(traced, options, report).graph;
    choices_ = choices_of(finished, target);
    executable_ = ir::compile(traced, {.device = device, .threads = threads, .measured = true});
    for (const ir::Value& v : finished.values)
      if (v.kind == ir::ValueKind::parameter || v.kind == ir::ValueKind::buffer || v.kind == ir::ValueKind::state)
        executable_->bind(v.name, memory.of(v),
                          static_cast<std::size_t>(v.type.shape.numel().maximum()) * ir::size_of(v.type.dtype));
    for (const ir::ValueId v : finished.inputs) inputs_.push_back(memory.of(finished.value(v)));
    for (std::size_t i = 0; i < finished.outputs.size(); ++i) {
      ir::Value result = finished.value(finished.outputs[i]);
      result.kind = ir::ValueKind::state;  // of its own, and 0 at first
      result.name = fmt::format("result {}", i);
      outputs_.push_back(memory.of(result));
    }
    for (const ir::Symbol& s : finished.symbols()) symbols_.push_back(s.most);
    for (const ir::Optimizer& o : finished.optimizers)
      numbers_.learning_rates.insert(numbers_.learning_rates.end(), o.groups.size(), 0);  // weights stay as they are
    for (const ir::CallDescription& call : executable_->calls(symbols_)) nodes_.push_back(call.node);
    run();
  }

  const std::map<std::string, ir::Choice>& choices() const { return choices_; }

  /// Of a step, in milliseconds: the shortest of some.
  double time() {
    double least = std::numeric_limits<double>::infinity();
    run_some([&](double milliseconds) { least = std::min(least, milliseconds); });
    return least;
  }

  /// The same of each choice, by key: of all its calls together.
  std::map<std::string, double> times_of_choices() {
    std::map<std::string, double> least;
    executable_->measure_calls(true);
    run_some([&](double) {
      std::map<ir::NodeId, double> of_nodes;
      for (const ir::CallTime& t : executable_->call_times()) of_nodes[nodes_.at(t.call)] += t.seconds * 1e3;
      for (const auto& [key, choice] : choices_) {
        double sum = 0;
        for (const ir::NodeId n : choice.nodes) sum += of_nodes[n];
        const auto [found, is_new] = least.try_emplace(key, sum);
        if (!is_new) found->second = std::min(found->second, sum);
      }
    });
    executable_->measure_calls(false);
    return least;
  }

 private:
  /// `each` is told what a step has taken, of at least two, behind some that bring memory into the caches and threads
  /// to processors.
  template <class Each>
  void run_some(const Each& each) {
    constexpr double kWarm = 40, kMeasured = 30;  // milliseconds
    double spent = 0, measured = 0;
    for (int steps = 0; steps < 2 || measured < kMeasured;) {
      const auto start = std::chrono::steady_clock::now();
      run();
      const double took = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
      const bool warm = spent > 0 && spent + took >= kWarm;
      spent += took;
      if (!warm) {
        executable_->call_times();
        continue;
      }
      ++steps;
      measured += took;
      each(took);
    }
  }

  void run() {
    ++numbers_.step, ++numbers_.draw;
    executable_->run(inputs_, outputs_, symbols_, numbers_);
    if (!device_.is_cpu()) ir::synchronize_device(device_);
  }

  ir::Device device_;
  std::map<std::string, ir::Choice> choices_;
  std::unique_ptr<ir::Executable> executable_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<std::int64_t> symbols_;
  std::vector<ir::NodeId> nodes_;  ///< by call
  ir::StepNumbers numbers_;
};

/// The least that programs take, run in turns: others' work on the machine only adds to it.
std::vector<double> times_in_turns(const std::vector<Program*>& programs, int rounds) {
  std::vector<double> least(programs.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < programs.size(); ++i) least[i] = std::min(least[i], programs[i]->time());
  return least;
}

class Tuner {
 public:
  Tuner(const ir::Graph& traced, const TuneOptions& options)
      : traced_(traced),
        options_(options),
        target_(target_named(options.target)),
        device_(target_.device),
        memory_(device_, options) {
    if (target_.style.just_in_time.empty() && !target_.style.kernels_just_in_time)
      throw UserError(
          fmt::format("programs for {} do not run in this process: nothing can be measured", target_.title));
    if (traced.stage != "trace")
      throw UserError(fmt::format("the graph {} has been through passes, which have chosen", traced.name))
          .note("expected  the graph as it was saved");
  }

  TuneReport run() {
    before_ = std::make_unique<Program>(traced_, target_, device_, options_.threads, memory_);
    measure_candidates();
    choose();
    std::unique_ptr<Program> tuned;
    ir::Graph graph = with_choices();
    if (ir::has_tuned(graph)) {
      tuned = std::make_unique<Program>(graph, target_, device_, options_.threads, memory_);
      const std::vector<double> times = times_in_turns({before_.get(), tuned.get()}, options_.rounds);
      report_.milliseconds_before = times[0], report_.milliseconds_after = times[1];
      if (times[1] * kWorthwhile >= times[0]) {  // slower by more than noise
        report_.slower_together = true;
        for (auto& [key, chosen] : chosen_) chosen = report_.heuristics.at(key);
        graph = traced_;
        tuned.reset();
      }
    }
    if (tuned == nullptr) {
      if (report_.milliseconds_before == 0)
        report_.milliseconds_before = times_in_turns({before_.get()}, options_.rounds)[0];
      report_.milliseconds_after = report_.milliseconds_before;
    }
    for (const auto& [key, chosen] : chosen_) add_entry(key, chosen, times_[key]);
    if (device_.is_cpu()) choose_threads(graph);
    return std::move(report_);
  }

 private:
  /// A program by heuristics, and others, each of which takes for every choice another candidate.
  void measure_candidates() {
    std::vector<std::unique_ptr<Program>> others;
    std::vector<Program*> programs = {before_.get()};
    std::size_t most = 0;
    for (const auto& [key, choice] : before_->choices()) {
      report_.heuristics[key] = choice.taken;
      most = std::max(most, choice.candidates.size());
    }
    for (std::size_t i = 0; i + 1 < most; ++i) {
      ir::Graph graph = traced_;
      for (const auto& [key, choice] : before_->choices()) {
        std::vector<std::string> rest = choice.candidates;
        std::erase(rest, choice.taken);
        if (i < rest.size()) ir::set_tuned(graph, key, rest[i]);
      }
      others.push_back(std::make_unique<Program>(graph, target_, device_, options_.threads, memory_));
      programs.push_back(others.back().get());
    }
    if (most < 2) return;
    for (int round = 0; round < options_.rounds; ++round)
      for (Program* program : programs)
        for (const auto& [key, time] : program->times_of_choices()) {
          if (!report_.heuristics.count(key)) continue;
          const auto [found, is_new] = times_[key].try_emplace(program->choices().at(key).taken, time);
          if (!is_new) found->second = std::min(found->second, time);
        }
  }

  void choose() {
    for (const auto& [key, of_candidates] : times_) {
      const std::string& heuristics = report_.heuristics.at(key);
      const auto fastest = std::min_element(of_candidates.begin(), of_candidates.end(),
                                            [](const auto& a, const auto& b) { return a.second < b.second; });
      const bool is_worth_it = fastest->second < kWorthwhile * of_candidates.at(heuristics);
      chosen_[key] = is_worth_it ? fastest->first : heuristics;
    }
  }

  ir::Graph with_choices() const {
    ir::Graph graph = traced_;
    for (const auto& [key, chosen] : chosen_)
      if (chosen != report_.heuristics.at(key)) ir::set_tuned(graph, key, chosen);
    return graph;
  }

  void choose_threads(const ir::Graph& graph) {
    const std::string key = ir::threads_key(traced_);
    report_.heuristics[key] = kAll;
    if (options_.threads > 0) return add_entry(key, std::to_string(options_.threads), {});
    const int all = runtime::processor_count();
    std::vector<std::unique_ptr<Program>> programs;
    std::vector<Program*> in_turns;
    std::vector<std::string> names;
    for (int threads = 1; threads <= all; threads = threads < all && 2 * threads > all ? all : 2 * threads) {
      programs.push_back(std::make_unique<Program>(graph, target_, device_, threads, memory_));
      in_turns.push_back(programs.back().get());
      names.push_back(threads == all ? kAll : std::to_string(threads));
    }
    const std::vector<double> times = times_in_turns(in_turns, options_.rounds);
    std::map<std::string, double> by_name;
    std::size_t best = names.size() - 1;
    for (std::size_t i = 0; i < names.size(); ++i) {
      by_name[names[i]] = times[i];
      if (times[i] < kWorthwhile * times.back() && times[i] < times[best]) best = i;
    }
    add_entry(key, names[best], by_name);
    report_.milliseconds_after *= times[best] / times.back();  // measured in turns
  }

  void add_entry(const std::string& key, const std::string& chosen, std::map<std::string, double> times) {
    for (auto& [candidate, time] : times) time = rounded(time);
    report_.entries.push_back({std::string(target_.name()), ir::name_of_device(device_), tuning_versions(target_), key,
                               chosen, std::move(times)});
  }

  const ir::Graph& traced_;
  const TuneOptions& options_;
  const Target& target_;
  ir::Device device_;
  Memory memory_;
  std::unique_ptr<Program> before_;
  std::map<std::string, std::map<std::string, double>> times_;  ///< by choice and candidate
  std::map<std::string, std::string> chosen_;
  TuneReport report_;
};

}  // namespace

std::string tuning_versions(const Target& target, bool with_libraries) {
  const std::string folder = "kernels/" + target.style.calls.kernel_folder + "/";
  std::string all;
  for (const EmbeddedFile& file : embedded_files())
    if (file.path.starts_with("kernels/config/") || file.path.starts_with(folder)) all += file.text;
  const std::string digest = runtime::sha256(std::as_bytes(std::span(all.data(), all.size())));
  const std::string library = with_libraries ? ir::product_library(target.device) : std::string();
  return fmt::format("graven {}, kernels {}{}{}", GRAVEN_VERSION, digest.substr(0, 8), library.empty() ? "" : ", ",
                     library);
}

std::string apply_tuning(ir::Graph& graph, const std::string& file, const Target& target, const std::string& tuned_for,
                         const std::optional<ir::Device>& device) {
  const std::vector<ir::TuningEntry> entries = ir::read_tuning(file);
  if (graph.stage != "trace") return {};
  const bool is_named = !tuned_for.empty();
  const std::string here = is_named ? tuned_for : ir::name_of_device(device.value_or(target.device));
  const std::string versions = tuning_versions(target, !is_named && !here.empty());
  std::string why;
  const std::map<std::string, ir::Choice> choices = choices_by_heuristics(graph, target);
  std::size_t other_device = 0, other_version = 0, other_choice = 0;
  std::string other;
  bool applied = false;
  for (const ir::TuningEntry& e : entries) {
    if (e.target != target.name()) continue;
    if (here != e.device) {
      ++other_device;
      other = e.device;
      continue;
    }
    if (is_named ? !e.versions.starts_with(versions) : e.versions != versions) {
      ++other_version;
      continue;
    }
    const auto found = choices.find(e.choice);
    const bool is_threads = e.choice == ir::threads_key(graph);
    const bool is_possible =
        is_threads ? e.chosen == kAll || ir::thread_count(e.chosen)
                   : found != choices.end() &&
                         std::count(found->second.candidates.begin(), found->second.candidates.end(), e.chosen);
    if (!is_possible) {
      ++other_choice;
    } else if (e.chosen != (is_threads ? kAll : found->second.taken)) {
      ir::set_tuned(graph, e.choice, e.chosen);
      applied = true;
    }
  }
  if (applied) graph.config[std::string(ir::kTunedFor)] = here;
  const auto add = [&](std::size_t count, const std::string& text) {
    if (count > 0) why += fmt::format("{}{} {}", why.empty() ? "" : ", ", count, text);
  };
  add(other_device,
      "for another device (" + other + (here.empty() ? "; there is none here)" : "; here is " + here + ")"));
  add(other_version, "of other versions (here is " + versions + ")");
  add(other_choice, "of choices that the graph does not have");
  return why.empty() ? why : fmt::format("{}: entries that are ignored: {}", file, why);
}

TuneReport tune(const ir::Graph& traced, const TuneOptions& options) { return Tuner(traced, options).run(); }

std::vector<ir::TuningEntry> merged(std::vector<ir::TuningEntry> entries, const std::vector<ir::TuningEntry>& before) {
  std::set<std::pair<std::string, std::string>> measured;
  for (const ir::TuningEntry& e : entries) measured.insert({e.target, e.device});
  for (const ir::TuningEntry& e : before)
    if (measured.count({e.target, e.device}) == 0) entries.push_back(e);
  return entries;
}

}  // namespace graven::codegen
