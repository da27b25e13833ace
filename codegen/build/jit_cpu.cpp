#include "codegen/build/jit_cpu.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "codegen/build/cache.h"
#include "codegen/build/jit_abi.h"
#include "codegen/build/measured_calls.h"
#include "codegen/build/process.h"
#include "codegen/emit/just_in_time.h"
#include "codegen/emit/project.h"
#include "codegen/kernel_flags.h"
#include "codegen/plan/summary.h"
#include "ir/diagnostic.h"
#include "runtime_min/file.h"
#include "runtime_min/machine.h"
#include "runtime_min/sha256.h"

namespace graven::codegen {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kCompileSeconds = 600, kVersionSeconds = 20;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string hash_of(const std::string& text) {
  return runtime::sha256(std::as_bytes(std::span(text.data(), text.size())));
}

/// The command that starts the compiler, and what identifies it.
struct Compiler {
  std::vector<std::string> command;
  std::string version;
};

/// $CXX: a program, or a command with arguments ("ccache g++"), as make and CMake take it. What a user chose is used or
/// is an error.
Compiler chosen_compiler(const std::string& chosen) {
  std::vector<std::string> command;
  if (!find_program(chosen).empty()) {
    command.push_back(chosen);
  } else {
    std::istringstream words(chosen);
    for (std::string word; words >> word;) command.push_back(word);
  }
  const std::string program = command.empty() ? std::string() : find_program(command[0]);
  if (program.empty())
    throw UserError(fmt::format("CXX: expected a C++20 compiler, found '{}': no such program", chosen));
  command[0] = program;
  std::vector<std::string> question = command;
  question.emplace_back("--version");
  const ProcessResult r = run_process(question, {.seconds = kVersionSeconds});
  if (!r.failure.empty())
    throw UserError(fmt::format("CXX: expected a C++20 compiler, found '{}': with --version it {}", chosen, r.failure))
        .note(r.output);
  return {command, r.output};
}

Compiler find_compiler() {
  if (const char* chosen = std::getenv("CXX"); chosen && *chosen) return chosen_compiler(chosen);
  UserError error(
      "running a graph needs a C++20 compiler: CXX names none, and neither c++ nor g++ nor clang++ in PATH is one");
  for (const char* name : {"c++", "g++", "clang++"}) {
    const std::string path = find_program(name);
    if (path.empty()) continue;
    const ProcessResult r = run_process({path, "--version"}, {.seconds = kVersionSeconds});
    if (r.failure.empty()) return {{path}, r.output};
    error.note(path + " --version " + r.failure);
  }
  throw error;
}

/// What -march=native depends on.
std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  std::string found;
  for (std::string line; std::getline(in, line) && !line.empty();)
    if (line.rfind("model name", 0) == 0 || line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0)
      found += line + "\n";
  utsname name{};
  if (uname(&name) == 0) found += name.machine;
  return found;
}

/// The kernels' own, then $CXXFLAGS, as make and CMake take it, then what there is no library without: of two that
/// contradict the last one counts.
std::vector<std::string> flags(const Compiler& compiler, bool measured) {
  const char* chosen = std::getenv("CXXFLAGS");
  std::vector<std::string> all = {"-march=native"};
  const bool gnu = compiler.version.find("clang") == std::string::npos;
  std::istringstream words(std::string(gnu ? kKernelFlagsOfGnu : kKernelFlags) + " " + (chosen ? chosen : ""));
  for (std::string word; words >> word;) all.push_back(word);
  all.insert(all.end(), {"-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-w", "-I."});
  // g++ would have the process share variables of inline functions of the standard library, and keep what defines them.
  if (gnu) all.emplace_back("-fno-gnu-unique");
  if (!measured) all.emplace_back("-DGRAVEN_UNMEASURED");
  return all;
}

/// The sources of the library: the model and its entry, not the programs around them.
bool belongs_to_library(const std::string& path) {
  return path.ends_with(".cpp") && path != "main.cpp" && path != "selftest.cpp" && path.rfind("runtime/", 0) != 0;
}

/// A unit that is compiled: files of the library, as one text. Of a small graph half of the time is what the standard
/// library's headers take, so all of it is one unit; those of a large one are compiled side by side.
struct Unit {
  std::size_t bytes = 0;
  std::string text{};
};

std::vector<Unit> units_of(const std::map<std::string, std::string>& texts) {
  constexpr std::size_t kUnitBytes = 100'000;  // of calls: some seconds
  std::vector<std::pair<std::size_t, std::string>> files;
  std::size_t bytes = 0;
  for (const auto& [path, text] : texts)
    if (belongs_to_library(path)) {
      files.emplace_back(text.size(), path);
      bytes += text.size();
    }
  const auto processors = static_cast<std::size_t>(std::max(1, runtime::processor_count()));
  std::vector<Unit> units(std::clamp<std::size_t>(bytes / kUnitBytes, 1, std::min(processors, files.size())));
  if (units.size() > 1) std::sort(files.rbegin(), files.rend());  // the longest first, each where there is least yet
  for (const auto& [size, path] : files) {
    Unit& unit =
        *std::min_element(units.begin(), units.end(), [](const Unit& a, const Unit& b) { return a.bytes < b.bytes; });
    unit.bytes += size;
    unit.text += fmt::format("#include \"{}\"\n", path);
  }
  return units;
}

void compile_library(const std::map<std::string, std::string>& texts, const Compiler& compiler, bool measured,
                     const std::string& output, const std::string& graph_name) {
  const fs::path sources = fs::path(output).parent_path() / "sources";
  for (const auto& [path, text] : texts) write_source(sources / path, text);
  std::vector<std::string> command = compiler.command;
  for (const std::string& f : flags(compiler, measured)) command.push_back(f);
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> all = command;
    all.insert(all.end(), more.begin(), more.end());
    return run_process(all, {.directory = sources.string(), .seconds = kCompileSeconds});
  };
  const std::vector<Unit> units = units_of(texts);
  const auto name = [](std::size_t unit, const char* ending) {
    return fmt::format("library_{}.{}", unit, ending);  // no name of an emitted file
  };
  for (std::size_t u = 0; u < units.size(); ++u) write_source(sources / name(u, "cpp"), units[u].text);
  ProcessResult result;
  if (units.size() == 1) {
    result = run({name(0, "cpp"), "-o", output});
  } else {
    std::vector<ProcessResult> results(units.size());
    std::vector<std::exception_ptr> errors(units.size());
    std::vector<std::thread> threads;
    const auto compile = [&](std::size_t u) {
      try {
        results[u] = run({"-c", name(u, "cpp"), "-o", name(u, "o")});
      } catch (...) {
        errors[u] = std::current_exception();
      }
    };
    for (std::size_t u = 0; u < units.size(); ++u) {
      try {
        threads.emplace_back(compile, u);
      } catch (const std::system_error&) {  // the process may have no more threads
        compile(u);
      }
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
    std::vector<std::string> link;
    for (std::size_t u = 0; u < units.size(); ++u) {
      if (result.failure.empty()) result = results[u];
      link.push_back(name(u, "o"));
    }
    link.insert(link.end(), {"-o", output});
    if (result.failure.empty()) result = run(link);
  }
  std::error_code ignored;
  fs::remove_all(sources, ignored);
  if (result.failure.empty()) return;
  UserError error(fmt::format("{}: the compiler {} on the generated code", graph_name, result.failure));
  std::istringstream lines(result.output);
  int count = 0;
  for (std::string line; std::getline(lines, line) && count < 20; ++count) error.note(line);
  throw error;
}

/// Whether all that is loaded of a library lies in the file. The dynamic loader takes that for granted: beyond the end
/// of a file there is SIGBUS.
bool is_whole_library(const std::string& path) {
  const runtime::MappedFile file(path);
  const auto bytes = file.bytes();
  ElfW(Ehdr) header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr))) return false;
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    const std::size_t at = header.e_phoff + i * sizeof segment;
    if (at > bytes.size() || bytes.size() - at < sizeof segment) return false;
    std::memcpy(&segment, bytes.data() + at, sizeof segment);
    if (segment.p_offset > bytes.size() || bytes.size() - segment.p_offset < segment.p_filesz) return false;
  }
  return header.e_phnum > 0;
}

/// A library of a model, open for good: its pool may be unwinding thread-local data whenever its last instance goes.
struct Library {
  JitError error = nullptr;
  JitCreate create = nullptr;
  JitDestroy destroy = nullptr;
  JitBind bind = nullptr;
  JitWeightsChanged weights_changed = nullptr;
  JitGradient gradient = nullptr;
  JitRun run = nullptr;
  JitListen listen = nullptr;
  JitLimits limits = nullptr;

  /// Returns why it cannot be loaded, or empty.
  std::string load(const std::string& path) {
    if (!is_whole_library(path)) return "the compiled program cannot be loaded: it is no library, or a part of one";
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) return std::string("the compiled program cannot be loaded: ") + dlerror();
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      return function != nullptr;
    };
    if (find(error, "graven_jit_error") && find(create, "graven_jit_create") && find(destroy, "graven_jit_destroy") &&
        find(bind, "graven_jit_bind") && find(weights_changed, "graven_jit_weights_changed") &&
        find(gradient, "graven_jit_gradient") && find(run, "graven_jit_run") && find(listen, "graven_jit_listen") &&
        find(limits, "graven_jit_limits"))
      return {};
    const std::string reason = std::string("the compiled program is not whole: ") + dlerror();
    dlclose(handle);
    return reason;
  }
};

/// Compiled, or out of the cache. Returns where it lies.
std::string take_library(ArtefactCache& cache, Library& library, const std::map<std::string, std::string>& texts,
                         const Compiler& compiler, bool measured, const std::string& graph_name) {
  std::string all = compiler.version + "\n" + processor() + "\n";
  for (const std::string& word : compiler.command) all += word + "\n";
  for (const std::string& f : flags(compiler, measured)) all += f + "\n";
  for (const auto& [path, text] : texts) all += path + "\n" + std::to_string(text.size()) + "\n" + text;
  return cache.get(
      hash_of(all) + ".so",
      [&](const std::string& path) { compile_library(texts, compiler, measured, path, graph_name); },
      [&](const std::string& path) {
        const std::string reason = library.load(path);
        return reason.empty() ? reason : graph_name + ": " + reason;
      });
}

class JitExecutable : public ir::Executable {
 public:
  using Constants = std::map<std::string, std::shared_ptr<const ir::TensorData>>;
  using Times = MeasuredCalls<runtime::CallTimes<kernels::CallListener>>;

  /// `measured`: gives the library whose calls can be measured, which few graphs ever ask for.
  JitExecutable(const Library& library, std::function<Library()> measured, JustInTime project, int threads,
                Constants constants)
      : graph_name_(project.graph.name),
        constants_(std::move(constants)),
        measured_(std::move(measured)),
        calls_(std::move(project.measured)),
        threads_(threads) {
    symbols_ = project.graph.symbols();
    if (!symbols_.empty()) graph_ = std::move(project.graph);
    open(library);
    // No program writes into a constant.
    for (const auto& [name, data] : constants_)
      bind(name, const_cast<std::byte*>(data->bytes.data()), data->bytes.size());
  }
  ~JitExecutable() override {
    if (instance_) library_.destroy(instance_);
  }
  void bind(const std::string& name, void* data, std::size_t bytes) override {
    check(library_.bind(instance_, name.c_str(), data, bytes));
    bound_[name] = {data, bytes};
  }
  void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
           const std::vector<std::int64_t>& symbols, const ir::StepNumbers& numbers) override {
    const std::int64_t counts[] = {numbers.step, numbers.seed, numbers.part, numbers.parts, numbers.draw};
    check(
        library_.run(instance_, inputs.data(), outputs.data(), symbols.data(), numbers.learning_rates.data(), counts));
  }
  void weights_changed() override { check(library_.weights_changed(instance_)); }
  const void* gradient(const std::string& parameter) override {
    return library_.gradient(instance_, parameter.c_str());
  }
  std::vector<ir::CallDescription> calls(const std::vector<std::int64_t>& symbols) const override {
    ir::SymbolSizes sizes;
    for (std::size_t i = 0; i < symbols_.size(); ++i) sizes[symbols_[i].name] = symbols.at(i);
    return describe_calls(graph_, calls_, sizes);
  }
  void measure_calls(bool on) override {
    if (on && measured_) {
      open(measured_());
      measured_ = nullptr;
      for (const auto& [name, where] : bound_) check(library_.bind(instance_, name.c_str(), where.first, where.second));
    }
    library_.listen(instance_, nullptr);
    times_.reset();
    if (!on) return;
    times_ = std::make_unique<Times>(calls_, [] { return kernels::read_ticks(); });
    library_.listen(instance_, times_->listener());
  }
  std::vector<ir::CallTime> call_times() override { return times_ ? times_->take() : std::vector<ir::CallTime>(); }
  ir::MachineLimits machine_limits() override {
    ir::MachineLimits limits;
    library_.limits(instance_, &limits.flops, &limits.bytes);
    return limits;
  }

 private:
  void check(int code) {
    if (code != 0) throw UserError(graph_name_ + ": " + library_.error(instance_));
  }

  /// An instance of its own, in the place of another one.
  void open(const Library& library) {
    void* const instance = library.create(threads_);
    if (!instance) throw UserError(graph_name_ + ": " + library.error(nullptr));
    if (instance_) library_.destroy(instance_);
    library_ = library;
    instance_ = instance;
  }

  std::string graph_name_;
  Constants constants_;
  Library library_;
  std::function<Library()> measured_;  ///< nothing: it is the one that is open
  std::map<std::string, std::pair<void*, std::size_t>> bound_;
  std::vector<MeasuredCall> calls_;
  int threads_;
  std::vector<ir::Symbol> symbols_;
  ir::Graph graph_;  ///< with symbols, of which the calls' FLOPs and bytes depend; else empty
  std::unique_ptr<Times> times_;
  void* instance_ = nullptr;
};

/// What `debug_level` asks for.
void log_stages(const ir::Graph& traced, const ir::CompileOptions& options, const EmitOptions& emit_options,
                const EmitReport& emitted, const JitReport& r) {
  const auto log = [&](const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      std::fputs(fmt::format("{} {}\n", options.log_name, line).c_str(), stderr);
  };
  double passes = 0;
  for (const ir::PassTiming& t : emitted.passes) passes += t.milliseconds;
  if (options.debug_level >= 1)
    for (const ir::PassTiming& t : emitted.passes)
      log(fmt::format("pass {}: {} -> {} operators, {:.2f} ms.", t.name, t.nodes_before, t.nodes_after,
                      t.milliseconds));
  log(fmt::format("passes: {:.1f} ms.", passes));
  log(fmt::format("plan: {:.1f} ms.", emitted.plan_milliseconds));
  log(fmt::format("emit: {:.1f} ms.", emitted.emit_milliseconds));
  log(fmt::format("{}: {:.1f} ms.", r.cached ? "take from the cache" : "compile", r.compile_seconds * 1e3));
  if (options.debug_level < 2) return;
  // The same passes and the same plan again: both are functions of the graph.
  ir::Graph finished = traced;
  ir::PassOptions pass_options = emit_options.passes;
  const Target& target = target_named(emit_options.target);
  pass_options.target = &target.passes;
  ir::finish_passes(finished, pass_options);
  const Plan plan = make_plan(finished, target);
  log(memory_summary(finished, plan));
  if (options.debug_level < 3) return;
  log(order_table(finished, plan));
  log(memory_table(finished, plan));
}

}  // namespace

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  utsname machine{};
  std::string name = uname(&machine) == 0 ? machine.machine : "processor";
  for (std::string line; std::getline(in, line) && !line.empty();) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) name = line.substr(colon + 2);
    // Of ARM's, which have no name there.
    if (line.starts_with("CPU implementer") || line.starts_with("CPU part")) name += " " + line.substr(colon + 2);
  }
  const int count = runtime::processor_count();
  return fmt::format("{}, {} processor{}", name, count, count == 1 ? "" : "s");
}

std::unique_ptr<ir::Executable> compile_on_cpu(const ir::Graph& traced, const ir::CompileOptions& options,
                                               JitReport* report) {
  JitReport local;
  JitReport& r = report ? *report : local;
  auto start = Clock::now();
  EmitOptions emit_options;
  emit_options.jit_entry = true;
  emit_options.format = false;
  EmitReport emitted;
  JustInTime project = render_just_in_time(traced, emit_options, emitted);
  std::map<std::string, std::string> texts = std::move(project.files);
  r.emit_seconds = seconds_since(start);

  start = Clock::now();
  const Compiler compiler = find_compiler();
  ArtefactCache cache(ArtefactCache::default_directory());
  Library library;
  r.library = take_library(cache, library, texts, compiler, options.measured, traced.name);
  r.cached = cache.was_hit();
  r.compile_seconds = seconds_since(start);
  if (!cache.warning().empty()) {
    static std::once_flag once;
    std::call_once(once, [&] { std::fprintf(stderr, "warning: %s\n", cache.warning().c_str()); });
  }
  if (options.debug_level >= 0) log_stages(traced, options, emit_options, emitted, r);
  std::function<Library()> measured;
  if (!options.measured) {
    // What is Graven's own text need not be kept.
    std::vector<std::string> copied;
    std::erase_if(texts, [&](const auto& file) {
      const bool is_copied = file.first.starts_with("kernels/") || file.first.starts_with("runtime/");
      if (is_copied) copied.push_back(file.first);
      return is_copied;
    });
    measured = [own = std::move(texts), copied = std::move(copied), compiler, name = traced.name] {
      std::map<std::string, std::string> all = own;
      add_copied(all, copied);
      ArtefactCache again(ArtefactCache::default_directory());
      Library found;
      take_library(again, found, all, compiler, true, name);
      return found;
    };
  }
  return std::make_unique<JitExecutable>(library, std::move(measured), std::move(project), options.threads,
                                         std::move(emitted.constants));
}

}  // namespace graven::codegen
