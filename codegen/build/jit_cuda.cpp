#include "codegen/build/jit_cuda.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "codegen/build/cuda/context.h"
#include "codegen/build/cuda/libraries.h"
#include "codegen/build/cuda/limits.h"
#include "codegen/build/cuda/program.h"
#include "codegen/build/cuda/table.h"
#include "codegen/build/measured_calls.h"
#include "codegen/emit/calls.h"
#include "codegen/emit/just_in_time.h"
#include "codegen/emit/update.h"
#include "codegen/plan/storage.h"
#include "ir/call.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/update_rule.h"

namespace graven::codegen {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Of a kernel's template arguments.
const char* device_type(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f32:
      return "float";
    case ir::DType::f64:
      return "double";
    case ir::DType::i8:
      return "signed char";
    case ir::DType::u8:
      return "unsigned char";
    case ir::DType::i32:
      return "int";
    case ir::DType::i64:
      return "long";
    case ir::DType::boolean:
      return "bool";
    case ir::DType::f16:
      return "graven::kernels::half";
    case ir::DType::bf16:
      return "graven::kernels::bfloat16";
  }
  return "";
}

/// The numbers of a step, as they lie on the device.
struct Numbers {
  static constexpr std::size_t kMostRates = 64;
  std::int64_t step, seed, part, parts, draw;
  double rates[kMostRates];
};

/// A step of the plan: what does not depend on sizes.
struct PlannedCall {
  const Step* step = nullptr;
  CudaThunk thunk = nullptr;
  cuda::StandIns stand_ins;
  bool mixes_types = false;  ///< an elementwise call whose types differ in size
  std::vector<std::byte> rule_options;
  std::string where;
};

ir::ConfigField at_sizes(const ir::ConfigField& field, const ir::SymbolSizes& sizes) {
  const auto fixed = [&](const std::vector<ir::Dim>& dims) {
    std::vector<ir::Dim> result;
    for (const ir::Dim& d : dims) result.emplace_back(d.at(sizes));
    return result;
  };
  if (const auto* d = std::get_if<ir::Dim>(&field)) return ir::Dim(d->at(sizes));
  if (const auto* dims = std::get_if<std::vector<ir::Dim>>(&field)) return fixed(*dims);
  if (const auto* rows = std::get_if<std::vector<std::vector<ir::Dim>>>(&field)) {
    std::vector<std::vector<ir::Dim>> result;
    for (const auto& row : *rows) result.push_back(fixed(row));
    return result;
  }
  return field;
}

/// The bytes of the struct that print_update() prints: numbers are doubles, flags are bools, in order.
std::vector<std::byte> options_of(const ir::UpdateRule& rule, const ir::Node& node) {
  std::vector<std::byte> bytes;
  const auto add = [&](auto value) {
    bytes.resize((bytes.size() + alignof(decltype(value)) - 1) / alignof(decltype(value)) * alignof(decltype(value)));
    bytes.resize(bytes.size() + sizeof value);
    std::memcpy(bytes.data() + bytes.size() - sizeof value, &value, sizeof value);
  };
  for (const ir::AttributeSpec* a : rule.attributes()) {
    if (a->type == ir::AttributeType::boolean)
      add(node.attributes.flag(a->name));
    else
      add(node.attributes.number(a->name));
  }
  bytes.resize((bytes.size() / sizeof(double) + 1) * sizeof(double));  // an empty struct has a byte, too
  return bytes;
}

class CudaGraph : public ir::Executable {
 public:
  CudaGraph(const ir::Graph& traced, const ir::CompileOptions& options, CudaJitReport* report)
      : device_(options.device), options_(options), report_(report ? *report : own_report_) {
    ir::require_device(device_);
    (void)cuda::nvrtc();  // what is missing is said before the work is done
    auto start = Clock::now();
    EmitOptions emit_options;
    emit_options.target = "cuda";
    emit_options.jit_entry = true;
    emit_options.format = false;
    EmitReport emitted;
    project_ = render_just_in_time(traced, emit_options, emitted);
    report_.emit_seconds = seconds_since(start);
    log(fmt::format("passes, plan and emit: {:.1f} ms.", report_.emit_seconds * 1e3));
    sources_ = {project_.files, {}, traced.name};
    list_calls();
    make_ranges();
    on_device([&](kernels::CudaContext& context) { allocate(context); });
    report_.program = sources_.program;
    report_.files = sources_.texts;
  }

  ~CudaGraph() override {
    try {
      const cuda::Lease lease(device_.index);
      lease.context().synchronize();
      forget();
      program_.reset();
      uploaded_.reset();
      pinned_.reset();
    } catch (...) {  // a device that has failed: what it has goes with the process
    }
  }

  void bind(const std::string& name, void* data, std::size_t bytes) override {
    const ir::ValueId v = graph().find(name);
    const Home place = v == ir::kNone ? Home::arena : home(v);
    if (place != Home::parameter && place != Home::state) {
      if (v != ir::kNone && graph().value(v).kind != ir::ValueKind::node) return;  // nothing reads it
      throw UserError(graph().name + ": the program has no parameter, buffer or state called " + name);
    }
    if (const auto expected = static_cast<std::size_t>(byte_count(graph().type(v))); bytes != expected)
      throw UserError(fmt::format("{}: {}: expected {} bytes, found {}", graph().name, name, expected, bytes));
    if (bound_[v] == data) return;
    bound_[v] = data;
    moved_ = true;
  }

  void weights_changed() override { prepared_ = false; }

  const void* gradient(const std::string& parameter) override {
    const auto found = gradients_.find(graph().find(parameter));
    return found == gradients_.end() ? nullptr : found->second;
  }

  void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
           const std::vector<std::int64_t>& symbols, const ir::StepNumbers& numbers) override {
    on_device([&](kernels::CudaContext& context) {
      if (moved_) {  // what was recorded knows another place
        context.synchronize();
        forget();
        moved_ = false;
      }
      ir::SymbolSizes sizes;
      const std::vector<ir::Symbol> all = graph().symbols();
      for (std::size_t i = 0; i < all.size(); ++i) sizes[all[i].name] = symbols[i];
      if (options_.one_operator) {
        run_operator(context, inputs, outputs, numbers);
        return;
      }
      make_ready(context, symbols, sizes);
      const Listening listening(context, times_ ? times_->listener() : ranges_ ? &ranges_->listener : nullptr);
      send(context, numbers);
      if (!prepared_) make_calls(context, sizes, {ir::Phase::prepare});
      prepared_ = true;
      const bool whole = numbers.parts == 1;
      if (whole && ran_in_place(context, inputs, outputs, symbols, sizes)) return;
      for (std::size_t i = 0; i < inputs.size(); ++i)
        kernels::copy_on_device(context, pointer(graph().inputs[i]), inputs[i], bytes_of(graph().inputs[i], sizes));
      // One graph, but where an update comes with the last part of a step alone.
      recorded_step_.run(context, symbols, [&] { make_calls(context, sizes, whole ? kStep : kPart); });
      if (!whole && numbers.part + 1 == numbers.parts)
        recorded_update_.run(context, symbols, [&] { make_calls(context, sizes, {ir::Phase::update}); });
      copy_results(context, outputs, sizes);
    });
  }

  std::vector<ir::CallDescription> calls(const std::vector<std::int64_t>& symbols) const override {
    ir::SymbolSizes sizes;
    const std::vector<ir::Symbol> all = graph().symbols();
    for (std::size_t i = 0; i < all.size(); ++i) sizes[all[i].name] = symbols.at(i);
    return describe_calls(graph(), project_.measured, sizes);
  }
  void measure_calls(bool on) override {
    on_device([&](kernels::CudaContext& context) {
      times_.reset();
      if (on) times_ = std::make_unique<Times>(project_.measured, context);
    });
  }
  std::vector<ir::CallTime> call_times() override {
    ir::synchronize_device(device_);  // which says what was out of range
    std::vector<ir::CallTime> list;
    if (times_) on_device([&](kernels::CudaContext&) { list = times_->take(); });
    return list;
  }
  ir::MachineLimits machine_limits() override {
    ir::MachineLimits limits;
    on_device([&](kernels::CudaContext&) { limits = cuda::measure_device_limits(device_.index); });
    return limits;
  }

 private:
  using Times = MeasuredCalls<runtime::DeviceCallTimes<kernels::CallListener, kernels::EventClock>>;
  /// The device's context, which other graphs have, too, tells this one's listener of calls.
  struct Listening {
    Listening(kernels::CudaContext& context, kernels::CallListener* listener) : context(context) {
      context.set_listener(listener);
    }
    ~Listening() { context.set_listener(nullptr); }
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;
    kernels::CudaContext& context;
  };

  // ---- memory of the caller -----------------------------------------------------------------------------------------

  /// Inputs and results lie where the caller has them while `work` is done.
  template <class Work>
  void in_place(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, const Work& work) {
    const std::map<ir::ValueId, std::byte*> own = own_;
    // Of nothing there is no memory, and nullptr stands for what is absent.
    const auto place = [&](const void* data) {
      return data ? static_cast<std::byte*>(const_cast<void*>(data)) : memory_.get();
    };
    for (std::size_t i = 0; i < inputs.size(); ++i) own_[graph().inputs[i]] = place(inputs[i]);
    // Where a result is another view of what is computed, that lies there.
    for (std::size_t i = outputs.size(); i-- > 0;)
      if (const ir::ValueId v = root(project_.plan, graph().outputs[i]); home(v) == Home::output)
        own_[v] = place(outputs[i]);
    try {
      work();
    } catch (...) {
      own_ = own;
      throw;
    }
    own_ = own;
  }

  /// What lies elsewhere: a result that is the memory of an input, of another result or of a parameter, too.
  void copy_results(kernels::CudaContext& context, const std::vector<void*>& outputs, const ir::SymbolSizes& sizes) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const ir::ValueId v = graph().outputs[i];
      if (void* const from = pointer(v); from != outputs[i])
        kernels::copy_on_device(context, outputs[i], from, bytes_of(v, sizes));
    }
  }

  /// Replays what was recorded for this memory, without copies. Memory that comes for the second time is recorded, as
  /// in a loop, whose tensors lie in turns where others have lain; other memory's inputs are copied.
  bool ran_in_place(kernels::CudaContext& context, const std::vector<const void*>& inputs,
                    const std::vector<void*>& outputs, const std::vector<std::int64_t>& symbols,
                    const ir::SymbolSizes& sizes) {
    constexpr std::size_t kMost = 16;
    std::vector<const void*> memory = inputs;
    memory.insert(memory.end(), outputs.begin(), outputs.end());
    const std::pair key(symbols, std::move(memory));
    auto found = recorded_in_place_.find(key);
    if (found == recorded_in_place_.end()) {
      if (recorded_in_place_.size() < kMost) recorded_in_place_.try_emplace(key);
      return false;
    }
    found->second.run(context, {}, [&] {
      in_place(inputs, outputs, [&] {
        make_calls(context, sizes, kStep);
        copy_results(context, outputs, sizes);
      });
    });
    return true;
  }

  void run_operator(kernels::CudaContext& context, const std::vector<const void*>& inputs,
                    const std::vector<void*>& outputs, const ir::StepNumbers& numbers) {
    const std::shared_ptr<std::byte> borrowed =
        cuda::allocate(device_.index, static_cast<std::size_t>(project_.plan.arena_bytes()));
    arena_ = borrowed.get();
    in_place(inputs, outputs, [&] {
      where_ = numbers.where;
      make_ready(context, {}, {});
      if (!numbers.learning_rates.empty()) send(context, numbers);
      make_calls(context, {}, prepared_ ? kStep : kAll);
      prepared_ = true;
      copy_results(context, outputs, {});
    });
  }

  std::size_t bytes_of(ir::ValueId v, const ir::SymbolSizes& sizes) const {
    return static_cast<std::size_t>(graph().type(v).shape.numel().at(sizes)) * ir::size_of(graph().type(v).dtype);
  }
  Home home(ir::ValueId v) const { return project_.plan.placements[at(v)].home; }

  using Phases = std::set<ir::Phase>;
  inline static const Phases kPart = {ir::Phase::forward, ir::Phase::backward},
                             kStep = {ir::Phase::forward, ir::Phase::backward, ir::Phase::update},
                             kAll = {ir::Phase::prepare, ir::Phase::forward, ir::Phase::backward, ir::Phase::update};

  const ir::Graph& graph() const { return project_.graph; }

  void log(const std::string& text) const {
    if (options_.debug_level >= 0) std::fputs(fmt::format("{} {}\n", options_.log_name, text).c_str(), stderr);
  }

  template <class Work>
  void on_device(const Work& work) {
    try {
      const cuda::Lease lease(device_.index);
      work(lease.context());
    } catch (const kernels::CudaOutOfMemory& e) {
      throw UserError(fmt::format("{}: {}", graph().name, e.what()));
    } catch (const kernels::CudaError& e) {
      throw UserError(fmt::format("{}: {}", graph().name, e.what()));
    }
  }

  void make_ranges() {
    const cuda::Nvtx* const nvtx = cuda::nvtx();
    if (nvtx == nullptr || options_.one_operator) return;
    std::map<std::string, std::vector<std::string>> names;
    for (const MeasuredCall& c : project_.measured)
      names[std::string(ir::name(c.phase))].push_back((c.module.empty() ? "" : c.module + ": ") + c.description);
    ranges_ = std::make_unique<kernels::NvtxRanges>(nvtx->push, nvtx->pop, std::move(names));
    ranges_->listener.of_each_call = true;  // what is recorded and replayed has no ranges
  }

  // ---- what is called -----------------------------------------------------------------------------------------------

  void list_calls() {
    std::set<std::string> includes;
    for (const Step& step : project_.plan.steps) {
      if (step.call.name.empty()) continue;
      const ir::Node& node = graph().nodes[at(step.node)];
      includes.insert("kernels/cuda/" + (step.call.file.empty() ? step.call.name : step.call.file) + ".cuh");
      calls_.push_back(planned(step, node));
    }
    // Of the configs kernels need the options of updates alone; all else reaches them as arguments.
    const bool has_rules =
        std::any_of(calls_.begin(), calls_.end(), [](const PlannedCall& call) { return !call.rule_options.empty(); });
    std::erase_if(sources_.texts, [&](const auto& file) {
      return !file.first.starts_with("kernels/") && file.first != "functors.h" &&
             !(has_rules && file.first == "configs.h");
    });
    for (const char* of_project : {"configs.h", "functors.h"})
      if (sources_.texts.count(of_project)) sources_.program += fmt::format("#include \"{}\"\n", of_project);
    for (const std::string& include : includes) sources_.program += fmt::format("#include \"{}\"\n", include);
  }

  PlannedCall planned(const Step& step, const ir::Node& node) const {
    PlannedCall call{&step, nullptr, {}, false, {}, ir::described(node.origins)};
    FunctorForm form = FunctorForm::none;
    const std::vector<ir::DType> types = pointer_types(graph(), node, step.call);
    if (node.op->rule != nullptr) {
      const ir::UpdateRule rule(*node.op, node.attributes, true);
      const UpdateText text = print_update(rule);
      call.stand_ins = {
          project_.name_space + "::" + text.functor.name, project_.name_space + "::config::" + text.config_type, {}};
      call.rule_options = options_of(rule, node);
    } else {
      const ir::DType result = node.outputs.empty() ? ir::DType::f32 : graph().type(node.outputs[0]).dtype;
      const std::vector<ir::ScalarProgram> programs = programs_of(node, step.call, result);
      GRAVEN_CHECK(programs.size() <= 1, "a CUDA kernel takes one functor");
      if (!programs.empty() && !programs[0].empty()) {
        const Functor functor = make_functor(programs[0]);
        call.stand_ins.functor = project_.name_space + "::" + functor.name;
        form = functor.name == ir::kRelu.name ? FunctorForm::relu
               : programs[0].inputs == 1      ? FunctorForm::of_one
                                              : FunctorForm::of_two;
      }
      for (const ir::DType d : types) {
        call.stand_ins.types.emplace_back(device_type(d));
        call.mixes_types = call.mixes_types || ir::size_of(d) != ir::size_of(types[0]);
      }
    }
    const std::string key = cuda_key(graph(), node, step.call, form);
    call.thunk = find_cuda_thunk(key);
    if (!call.thunk) {
      UserError error(fmt::format("{}: no launcher {} is compiled into the library: {} cannot run on {} just in time",
                                  graph().name, key, node.op->name, device_.to_string()));
      throw error.at(node.origins);
    }
    return call;
  }

  /// Makes the calls of some phases, with sizes.
  void make_calls(kernels::CudaContext& context, const ir::SymbolSizes& sizes, const Phases& phases) {
    const kernels::EachCall<kernels::CudaContext> each(context);
    for (const ir::Phase phase : phases) {
      const kernels::CallPhase of_phase(each, ir::name(phase).data());
      for (std::size_t n = 0; n < calls_.size(); ++n) {
        if (graph().nodes[at(calls_[n].step->node)].phase != phase) continue;
        context.begin_call();
        make_call(context, sizes, n);
      }
    }
  }

  void make_call(kernels::CudaContext& context, const ir::SymbolSizes& sizes, std::size_t number) {
    const PlannedCall& planned = calls_[number];
    const ir::Node& node = graph().nodes[at(planned.step->node)];
    ir::KernelCall call = planned.step->call;
    for (auto& [name, field] : call.config) field = at_sizes(field, sizes);
    if (planned.mixes_types && call.name == "broadcast") require_32_bits(call, node);
    std::vector<void*> tensors;
    std::vector<std::vector<void*>> lists;
    std::vector<std::int64_t> list_sizes;
    CudaArguments arguments{context, &call};
    const std::vector<ir::Argument> all = ir::arguments_of(node, call, true);
    lists.reserve(all.size());
    const auto add = [&](const ir::Argument& argument) {
      if (argument.kind != ir::Argument::Kind::list) return tensors.push_back(pointer(argument.value()));
      std::vector<void*>& list = lists.emplace_back();
      for (const ir::ValueId v : argument.values) list.push_back(pointer(v));
      tensors.push_back(list.empty() ? nullptr : static_cast<void*>(list.data()));
    };
    for (const ir::Argument& argument : all) {
      if (is_pointer(argument)) add(argument);
      if (argument.kind == ir::Argument::Kind::count)
        arguments.count = static_cast<std::int64_t>(argument.values.size());
      if (argument.kind == ir::Argument::Kind::sizes)
        for (const ir::Dim& d : ir::sizes_of(graph(), call, argument)) list_sizes.push_back(d.at(sizes));
    }
    if (node.op->rule != nullptr) in_order_of_updates(all, tensors);
    arguments.tensors = tensors.data();
    arguments.sizes = list_sizes.data();
    arguments.rule_options = planned.rule_options.data();
    arguments.where = options_.one_operator ? where_.c_str() : planned.where.c_str();
    const cuda::Program::Use use(*program_, planned.stand_ins, number);
    planned.thunk(arguments);
  }

  /// Lists of parameters, gradients and states first, then the rate, the step and the factor, or none.
  void in_order_of_updates(const std::vector<ir::Argument>& arguments, std::vector<void*>& tensors) const {
    std::vector<void*> lists, numbers;
    std::size_t tensor = 0;
    for (const ir::Argument& argument : arguments)
      if (is_pointer(argument))
        (argument.kind == ir::Argument::Kind::list ? lists : numbers).push_back(tensors[tensor++]);
    if (numbers.size() == 2) numbers.push_back(nullptr);
    GRAVEN_CHECK(numbers.size() == 3, "an update takes a rate, a step and perhaps a factor");
    lists.insert(lists.end(), numbers.begin(), numbers.end());
    tensors = std::move(lists);
  }

  /// Launchers of elementwise kernels know the widest type alone, and move others' pointers by it where a call is cut
  /// up.
  void require_32_bits(const ir::KernelCall& call, const ir::Node& node) const {
    std::int64_t n = 1;
    for (const ir::Dim& d : std::get<std::vector<ir::Dim>>(call.config[1].second)) n *= d.value();
    if (n <= std::numeric_limits<std::int32_t>::max()) return;
    UserError error(
        fmt::format("{}: {} of {} elements of several types cannot run just in time: expected 2^31 - 1 at "
                    "most",
                    graph().name, node.op->name, n));
    throw error.at(node.origins);
  }

  // ---- kernels ------------------------------------------------------------------------------------------------------

  /// Before sizes are run for the first time: descriptors, the workspace, and the kernels that are not compiled yet.
  void make_ready(kernels::CudaContext& context, const std::vector<std::int64_t>& symbols,
                  const ir::SymbolSizes& sizes) {
    if (!ready_.insert(symbols).second) return;
    const auto all = [&] { make_calls(context, sizes, kAll); };
    try {
      try {
        context.rehearse(all);
      } catch (const kernels::CudaOutOfMemory&) {  // the workspace
        cuda::make_room(device_.index, std::numeric_limits<std::size_t>::max());
        context.rehearse(all);
      }
      program_->collect(true);
      all();
      program_->collect(false);
      if (program_->missing().empty()) return;
      const auto start = Clock::now();
      bool cached = false;
      const std::set<std::string> names = program_->missing();
      program_->load(cuda::compile_kernels(sources_, names, cuda::architecture_of(device_.index), &cached));
      report_.compile_seconds += seconds_since(start);
      report_.cached = report_.cached && cached;
      report_.kernels.insert(report_.kernels.end(), names.begin(), names.end());
      log(fmt::format("{} {} kernels: {:.1f} ms.", cached ? "take from the cache" : "compile", names.size(),
                      seconds_since(start) * 1e3));
    } catch (...) {
      program_->collect(false);
      ready_.erase(symbols);
      throw;
    }
  }

  void forget() {
    recorded_step_.forget();
    recorded_update_.forget();
    recorded_in_place_.clear();
    ready_.clear();
    prepared_ = false;
  }

  // ---- memory -------------------------------------------------------------------------------------------------------

  void allocate(kernels::CudaContext& context) {
    const Plan& plan = project_.plan;
    std::size_t bytes = 0;
    const auto place = [&](std::size_t size) {
      const std::size_t begin = bytes;
      bytes += (size + 255) / 256 * 256;
      return begin;
    };
    std::map<ir::ValueId, std::size_t> places;
    const std::size_t arena = place(options_.one_operator ? 0 : static_cast<std::size_t>(plan.arena_bytes())),
                      numbers = place(sizeof(Numbers));
    for (std::size_t i = 0; i < graph().values.size(); ++i) {
      const auto v = static_cast<ir::ValueId>(i);
      const Placement& p = plan.placements[i];
      const bool is_callers = p.home == Home::input || p.home == Home::output;
      const bool is_own = (is_callers && !options_.one_operator) || p.home == Home::prepared ||
                          p.home == Home::gradient || p.home == Home::constant;
      if (is_own) places[v] = place(static_cast<std::size_t>(byte_count(graph().type(v))));
    }
    cuda::make_room(device_.index, bytes);
    kernels::require_device_memory(bytes, "the memory plan, inputs, results and gradients");
    memory_ = cuda::allocate(device_.index, bytes);
    GRAVEN_CUDA(cudaMemsetAsync(memory_.get(), 0, bytes, context.stream()));
    arena_ = memory_.get() + arena;
    numbers_ = memory_.get() + numbers;
    for (const auto& [v, begin] : places) own_[v] = memory_.get() + begin;
    for (const auto& [v, begin] : places)
      if (const Placement& p = plan.placements[at(v)]; p.home == Home::gradient)
        gradients_[p.parameter] = memory_.get() + begin;
    for (const auto& [v, data] : graph().constants)
      if (own_.count(v) && !data->bytes.empty())
        GRAVEN_CUDA(
            cudaMemcpyAsync(own_[v], data->bytes.data(), data->bytes.size(), cudaMemcpyHostToDevice, context.stream()));
    pinned_ = std::make_unique<kernels::CudaDevice::PinnedMemory>(sizeof(Numbers));
    uploaded_ = std::make_unique<Event>();
    program_ = std::make_unique<cuda::Program>();
    context.synchronize();
    GRAVEN_CHECK(graph().optimizers.size() <= Numbers::kMostRates, "too many optimizers");
  }

  /// Where a value lies; nullptr of one that is absent or that nobody reads.
  void* pointer(ir::ValueId value) const {
    if (value == ir::kNone) return nullptr;
    const ir::ValueId v = root(project_.plan, value);
    const Placement& p = project_.plan.placements[at(v)];
    switch (p.home) {
      case Home::arena:
        return p.buffer < 0 ? nullptr : arena_ + project_.plan.buffers[at(p.buffer)].offset;
      case Home::parameter:
      case Home::state: {
        const auto found = bound_.find(v);
        GRAVEN_CHECK(found != bound_.end(), graph().value(v).name + " was not bound");
        return found->second;
      }
      case Home::hyper:
        return hyper(graph().value(v).name);
      case Home::gradient:
        return gradients_.at(p.parameter);
      case Home::alias:
        break;
      default:
        return own_.at(v);
    }
    GRAVEN_CHECK(false, graph().value(v).name + " is an alias of an alias");
    return nullptr;
  }

  void* hyper(const std::string& name) const {
    if (const auto group = ir::group_of_rate(name))
      return numbers_ + offsetof(Numbers, rates) + *group * sizeof(double);
    const std::pair<std::string_view, std::size_t> all[] = {{ir::kStepName, offsetof(Numbers, step)},
                                                            {ir::kSeedName, offsetof(Numbers, seed)},
                                                            {ir::kPartName, offsetof(Numbers, part)},
                                                            {ir::kPartsName, offsetof(Numbers, parts)},
                                                            {ir::kDrawName, offsetof(Numbers, draw)}};
    for (const auto& [known, offset] : all)
      if (name == known) return numbers_ + offset;
    GRAVEN_CHECK(false, "no number is called " + name);
    return nullptr;
  }

  /// Sends a step's numbers on their way, from memory that is not written again before they are there.
  void send(kernels::CudaContext& context, const ir::StepNumbers& numbers) {
    if (numbers.learning_rates.size() > Numbers::kMostRates)
      throw UserError(fmt::format("{}: expected {} parameter groups at most on {}, found {}", graph().name,
                                  Numbers::kMostRates, device_.to_string(), numbers.learning_rates.size()));
    Numbers values{numbers.step, numbers.seed, numbers.part, numbers.parts, numbers.draw, {}};
    std::copy(numbers.learning_rates.begin(), numbers.learning_rates.end(), values.rates);
    if (sent_ && std::memcmp(pinned_->data(), &values, sizeof values) == 0) return;  // they are there
    uploaded_->wait();
    sent_ = true;
    std::memcpy(pinned_->data(), &values, sizeof values);
    GRAVEN_CUDA(cudaMemcpyAsync(numbers_, pinned_->data(), sizeof values, cudaMemcpyHostToDevice, context.stream()));
    uploaded_->record(context);
  }

  /// Something that the device comes to, and that the host may wait for.
  class Event {
   public:
    Event() { GRAVEN_CUDA(cudaEventCreate(&event_)); }
    ~Event() { (void)cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    void record(kernels::CudaContext& context) {
      GRAVEN_CUDA(cudaEventRecord(event_, context.stream()));
      recorded_ = true;
    }
    void wait() {
      if (recorded_) GRAVEN_CUDA(cudaEventSynchronize(event_));
    }

   private:
    cudaEvent_t event_ = nullptr;
    bool recorded_ = false;
  };

  ir::Device device_;
  ir::CompileOptions options_;
  CudaJitReport own_report_;
  CudaJitReport& report_;
  JustInTime project_;
  cuda::KernelSources sources_;
  std::vector<PlannedCall> calls_;
  std::unique_ptr<cuda::Program> program_;
  kernels::RecordedCalls recorded_step_, recorded_update_;
  /// By sizes and by the memory of inputs and results.
  std::map<std::pair<std::vector<std::int64_t>, std::vector<const void*>>, kernels::RecordedCalls> recorded_in_place_;
  std::set<std::vector<std::int64_t>> ready_;  ///< sizes whose kernels are compiled
  std::map<ir::ValueId, void*> bound_;
  bool moved_ = false, prepared_ = false, sent_ = false;
  std::string where_;  ///< of an operator that is run by itself
  std::shared_ptr<std::byte> memory_;
  std::byte *arena_ = nullptr, *numbers_ = nullptr;
  std::map<ir::ValueId, std::byte*> own_, gradients_;  ///< the latter by parameter
  std::unique_ptr<kernels::CudaDevice::PinnedMemory> pinned_;
  std::unique_ptr<Event> uploaded_;
  std::unique_ptr<Times> times_;                 ///< while calls are measured
  std::unique_ptr<kernels::NvtxRanges> ranges_;  ///< where GRAVEN_NVTX asks for them
};

/// What outlives a static object that holds it: when the process ends, nothing is given back.
class CudaExecutable : public ir::Executable {
 public:
  explicit CudaExecutable(std::unique_ptr<CudaGraph> graph) : graph_(std::move(graph)) {}
  ~CudaExecutable() override {
    if (cuda::is_exiting()) (void)graph_.release();
  }
  void bind(const std::string& name, void* data, std::size_t bytes) override { graph_->bind(name, data, bytes); }
  void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
           const std::vector<std::int64_t>& symbols, const ir::StepNumbers& numbers) override {
    graph_->run(inputs, outputs, symbols, numbers);
  }
  void weights_changed() override { graph_->weights_changed(); }
  const void* gradient(const std::string& parameter) override { return graph_->gradient(parameter); }
  std::vector<ir::CallDescription> calls(const std::vector<std::int64_t>& symbols) const override {
    return graph_->calls(symbols);
  }
  void measure_calls(bool on) override { graph_->measure_calls(on); }
  std::vector<ir::CallTime> call_times() override { return graph_->call_times(); }
  ir::MachineLimits machine_limits() override { return graph_->machine_limits(); }

 private:
  std::unique_ptr<CudaGraph> graph_;
};

}  // namespace

std::unique_ptr<ir::Executable> compile_on_cuda(const ir::Graph& traced, const ir::CompileOptions& options,
                                                CudaJitReport* report) {
  return std::make_unique<CudaExecutable>(std::make_unique<CudaGraph>(traced, options, report));
}

}  // namespace graven::codegen
