@{ banner }@
// The memory of the model, its files, and both interfaces of model.h.
#include <algorithm>
#include <cstdio>
#include <cstring>
{% if pipeline %}
#include <deque>
{% endif %}
{% if pipeline and on_device %}
#include <initializer_list>
{% endif %}
#include <iterator>
#include <new>
#include <optional>
{% if pipeline and on_device %}
#include <set>
{% endif %}
#include <stdexcept>
#include <string>
{% if pipeline and on_device %}
#include <utility>
#include <vector>
{% endif %}

{% for header in api_headers %}
#include "@{ header }@"
{% endfor %}
#include "program.h"
#include "runtime/call_times.h"
#include "runtime/session.h"
{% if on_device %}
#if defined(GRAVEN_NVTX)
#include <nvtx3/nvToolsExt.h>
#endif
{% endif %}

namespace [[gnu::visibility("hidden")]] @{ namespace }@ {

namespace runtime = graven::runtime;
using Device = @{ device_type }@;

@{ level_choice }@

@{ places }@
@{ measured_calls }@
namespace {

{% if evaluates_apart %}
constexpr std::size_t kAllArenaBytes = std::max(kArenaBytes, kEvaluationBytes);
{% else %}
constexpr std::size_t kAllArenaBytes = kArenaBytes;
{% endif %}

{% if data_parallel and not on_device %}
{% if pipeline or tensor_ranks > 1 %}
runtime::RankCollectives<Collectives> other_ranks(runtime::Ranks::peers);
{% else %}
runtime::RankCollectives<Collectives> other_ranks(runtime::Ranks::all);
{% endif %}

{% endif %}
{% if tensor_ranks > 1 and not on_device %}
runtime::RankTeam<Team> team;

{% endif %}
{% if has_ranks and on_device and tensor_ranks < 2 %}
/// Of this process, by sockets: their devices do the rest.
runtime::Ranks& all_ranks() {
  runtime::Ranks::use(runtime::connect_by_sockets);
  return runtime::Ranks::all();
}

{% endif %}
/// Before anything is changed: the optimizers' first step is number 1.
void require_step(const Hyper& hyper) {
  if (hyper.step < 1) throw runtime::BadArgument("step: expected 1 or more, found " + std::to_string(hyper.step));
{% if group_count > 0 %}
  for (const double rate : hyper.learning_rates)
    if (!(rate >= 0 && rate <= 1e30))  // nor NaN
      throw runtime::BadArgument("learning_rates: expected numbers from 0 to 1e+30, found " + std::to_string(rate));
{% endif %}
}

{% if accumulates %}
/// Where the caller leaves it open, what random numbers go by.
Hyper complete(Hyper hyper) {
  if (hyper.part < 0 || hyper.part >= hyper.parts)
    throw runtime::BadArgument("part: expected 0 to " + std::to_string(hyper.parts - 1) + ", found " +
                               std::to_string(hyper.part));
  if (hyper.draw == 0) hyper.draw = (hyper.step - 1) * hyper.parts + hyper.part + 1;
  return hyper;
}

{% endif %}
{% if shares_states %}
Tensor tensor(const runtime::Variable& v) { return {v.path, runtime::name(v.dtype), v.shape, v.data, v.count()}; }
{% else if tensor_ranks > 1 %}
Tensor tensor(const runtime::Variable& v) { return {v.path, runtime::name(v.dtype), v.own_shape(), v.data}; }
{% else %}
Tensor tensor(const runtime::Variable& v) { return {v.path, runtime::name(v.dtype), v.shape, v.data}; }
{% endif %}
std::vector<Tensor> tensors(const std::vector<runtime::Variable>& variables) {
  std::vector<Tensor> list;
  for (const auto& v : variables) list.push_back(tensor(v));
  return list;
}

}  // namespace

struct [[gnu::visibility("hidden")]] Model::Memory {
  explicit Memory(int number) : device(number), numbers(device), losses(@{ length(losses) }@) {
{% if pipeline and on_device %}
    if (is_stage) place_own_stage();
{% endif %}
{% if not updates_in_backward %}
#define GRAVEN_PARAM(name, dtype, path, ...)                           \
  weights.add(param.name, path, runtime::DType::dtype, {__VA_ARGS__}{% if shares_parameters %}, shard{% endif %}); \
  gradients.add(grad.name, path, runtime::DType::dtype, {__VA_ARGS__}{% if shares_gradients %}, shard{% endif %});
{% endif %}
#define GRAVEN_FIXED(name, dtype, path, ...) weights.add(param.name, path, runtime::DType::dtype, {__VA_ARGS__});
{% if shares_states %}
#define GRAVEN_STATE(name, dtype, path, ...) states.add(state.name, path, runtime::DType::dtype, {__VA_ARGS__}, shard);
{% else %}
#define GRAVEN_STATE(name, dtype, path, ...) states.add(state.name, path, runtime::DType::dtype, {__VA_ARGS__});
{% endif %}
#include "params.h"
{% if tensor_ranks > 1 and on_device %}
    runtime::Ranks::use(runtime::connect_by_sockets);
{% endif %}
{% if tensor_ranks > 1 %}
    // Rows of ranks have the parts of one model.
    if (!is_first_rank_alone && runtime::Ranks::all().size() % @{ tensor_ranks }@ != 0)
      throw std::runtime_error("ranks: expected @{ tensor_ranks }@ of them, or a multiple, each with its part of each "
                               "tensor, found " + std::to_string(runtime::Ranks::all().size()));
    if (!is_first_rank_alone) runtime::Ranks::divide(@{ tensor_ranks }@);
    const std::int64_t rank = is_first_rank_alone ? 0 : runtime::Ranks::team().rank();
#define GRAVEN_PART(path, dimension, count)                                                        \
  for (auto* block : {&weights, &states})                                                          \
    block->cut(path, {.dim = dimension, .blocks = count, .ranks = @{ tensor_ranks }@, .rank = rank});
#include "params.h"
{% endif %}
{% if tensor_ranks > 1 and not on_device %}
    if (!is_first_rank_alone) device.execution().set_team(&team);
{% endif %}
{% if on_device %}
{% if pipeline %}
    // Of several processes slots have inputs, and each its stage's part of the plan.
    if (!is_stage) add_inputs(kAllStages, in, inputs);
{% else %}
{% for input in inputs %}
    inputs.add(in.@{ input.member }@, @{ input.storage }@);
{% endfor %}
{% endif %}
{% endif %}
{% if updates_in_backward %}
    Device::require_memory(weights.bytes() + states.bytes() + inputs.bytes() + kAllArenaBytes,
                           "weights, states, inputs and the memory plan");
{% else %}
{% if pipeline and on_device %}
    const std::size_t plan_bytes = is_stage ? 0 : kAllArenaBytes;
    Device::require_memory(weights.bytes() + gradients.bytes() + states.bytes() + inputs.bytes() + plan_bytes,
                           "weights, gradients, states, inputs and the memory plan");
{% else %}
    Device::require_memory(weights.bytes() + gradients.bytes() + states.bytes() + inputs.bytes() + kAllArenaBytes,
                           "weights, gradients, states, inputs and the memory plan");
{% endif %}
    gradients.allocate(device);
{% endif %}
    weights.allocate(device);
    states.allocate(device);
{% if scales_loss %}
    states.set(device, @{ loss_scale }@, static_cast<float>(@{ first_loss_scale }@));
{% endif %}
    inputs.allocate(device);
{% if pipeline and on_device %}
    if (!is_stage) {
      arena.emplace(device, kAllArenaBytes);
      const auto place = [&](std::size_t offset) { return arena->data() + offset; };
      place_values(place, buf);
{% if evaluates_apart %}
      place_values(place, evaluation_buf);
{% endif %}
    }
{% else %}
    arena.emplace(device, kAllArenaBytes);
{% endif %}
{% if data_parallel and not on_device %}
    device.execution().set_collectives(&other_ranks);
{% endif %}
{% if not (pipeline and on_device) %}
#define GRAVEN_VALUE(name, dtype, offset, bytes) \
  { constexpr std::size_t at = offset; buf.name = reinterpret_cast<dtype*>(arena->data() + at); }
#include "memory_plan.h"
{% if evaluates_apart %}
#define GRAVEN_VALUE(name, dtype, offset, bytes) \
  { constexpr std::size_t at = offset; evaluation_buf.name = reinterpret_cast<dtype*>(arena->data() + at); }
#include "evaluation_plan.h"
{% endif %}
{% endif %}
{% if has_ranks and on_device %}
{% if tensor_ranks > 1 %}
    if (!is_first_rank_alone)
      ranks.emplace(device.execution(), runtime::processes<NcclRanks::Processes>(@{ tensor_ranks }@));
{% else if pipeline %}
    if (is_stage) ranks.emplace(device.execution(), runtime::processes<NcclRanks::Processes>(stages), links());
{% else %}
    if (all_ranks().size() > 1) ranks.emplace(device.execution(), runtime::processes<NcclRanks::Processes>());
{% endif %}
{% if data_parallel and length(symbols) > 0 %}
    // Ranks may have batches of different sizes, and all of them have to record, or none.
    if (device.execution().collectives() != nullptr) device.record_calls(false);
{% endif %}
{% endif %}
{% if on_device %}
    device.rehearse([&] {
      const Step step = whole_step();
{% if pipeline %}
      if (is_stage) return rehearse_own_stage(step);
{% endif %}
{% for function in functions %}
      program.@{ function.name }@(step);
{% endfor %}
{% if evaluates_apart %}
      program.evaluate(EvaluationStep{device.execution(), in, param, evaluation_buf});
{% endif %}
    });
{% endif %}
  }
{% if data_parallel and on_device %}
  /// A part of a step, behind the last of which the gradients become the mean of all ranks'.
  void begin_part(const Hyper& numbers_of_part) {
    if (ranks) ranks->begin_part(numbers_of_part.part + 1 == numbers_of_part.parts);
  }
  void finish_ranks() {
    if (ranks) ranks->finish();
  }
{% endif %}
{% if has_ranks and on_device %}
  /// Of what was given to the device since the last time.
  void count_messages() {
    if (!ranks) return;
    const SentByRank all = ranks->take_sent();
    runtime::Ranks::all().count(
        {.messages = all.messages, .bytes = all.bytes, .least = all.least, .sent = all.sent});
  }
{% endif %}

  /// With the largest sizes that there can be.
  Step whole_step() {
{% if shares_states %}
    return {device.execution(), in, param, grad, state, shard, buf, hyper};
{% else %}
    return {device.execution(), in, param, {% if not updates_in_backward %}grad, {% endif %}state, buf, hyper};
{% endif %}
  }
{% if on_device %}
  /// Sends the inputs on their way, by the device or ahead of it. What the arena holds is no backward phase's any more.
  template <class Carrier>
  Step step_by(Carrier& carrier, @{ parameters }@) {
{% else %}
  /// Sends the inputs on their way. What the arena holds is no backward phase's any more.
  Step step(@{ parameters }@) {
{% endif %}
    Step step = whole_step();
{% for symbol in symbols %}
    runtime::require_size("@{ symbol.identifier }@", @{ symbol.identifier }@, @{ symbol.given_least }@,
                          @{ symbol.maximum }@);
    step.size.@{ symbol.identifier }@ = @{ symbol.identifier }@;
{% endfor %}
{% for input in inputs %}
    inputs.send({% if on_device %}carrier{% else %}device{% endif %}, in.@{ input.member }@,
                @{ input.converted }@{% if length(symbols) > 0 %}, @{ input.count_in_step }@{% endif %});
{% endfor %}
    order.begin();
    return step;
  }
{% if on_device %}
  Step step(@{ parameters }@) { return this->step_by(device, @{ argument_names }@); }
{% endif %}
  /// Asks for the loss as it is now.
  void fetch_loss() {
{% for loss in losses %}
    losses.fetch(device, @{ loop.index }@, const_cast<const @{ loss.element }@*>(@{ loss.expression }@));
{% endfor %}
  }
  /// The loss that was asked for.
  double loss() const {
    device.synchronize();
    return losses.sum();
  }
{% if on_device %}
  /// Makes room for a step that is begun ahead.
  void begin_ahead() {
    if (!ahead) ahead.emplace(device.execution(), inputs.bytes() + aligned(sizeof(Hyper)), losses.bytes());
    ahead->begin();
  }
  /// Leaves the loss as it is now to a step that was begun.
  void keep_loss() {
{% for loss in losses %}
    losses.keep(device, @{ loop.index }@, const_cast<const @{ loss.element }@*>(@{ loss.expression }@),
                ahead->results());
{% endfor %}
  }
{% endif %}
  /// A forward phase or an update changes what the host has copies of.
  void outdate() {
    weights.memory().outdate();
    states.memory().outdate();
  }

{% if pipeline %}
{% if on_device %}
  static constexpr int kAllStages = -1;
  /// Those that the stage reads; `in` points to no others.
  static void add_inputs(int stage, Inputs& in, runtime::CallMemory<Device>& to) {
    const auto is_read = [&](std::initializer_list<int> by) {
      return stage == kAllStages || std::find(by.begin(), by.end(), stage) != by.end();
    };
{% for input in inputs %}
    if (is_read({@{ input.stages }@})) to.add(in.@{ input.member }@, @{ input.storage }@);
{% endfor %}
  }
  int stages_of_slots() const { return is_stage ? own_stage : kAllStages; }
  /// Before weights, gradients and states are added.
  void place_own_stage() {
    struct Stages {
      const char* path;
      std::vector<int> stages;
    };
    static const std::vector<Stages> of_variables = {
#define GRAVEN_STAGES(path, change, ...) {path, {__VA_ARGS__}},
#include "stages.h"
    };
    static const std::vector<Stages> of_gradients = {
#define GRAVEN_STAGES_OF_GRADIENT(path, ...) {path, {__VA_ARGS__}},
#include "stages.h"
    };
    const auto those_of = [own = own_stage](const std::vector<Stages>& list) {
      std::set<std::string> paths;
      for (const Stages& s : list)
        if (std::find(s.stages.begin(), s.stages.end(), own) != s.stages.end()) paths.insert(s.path);
      return [paths = std::move(paths)](const std::string& path) { return paths.count(path) != 0; };
    };
    weights.place_on_device(those_of(of_variables));
    gradients.place_on_device(those_of(of_gradients));
    states.place_on_device(those_of(of_variables));
  }
  void rehearse_own_stage(const Step& step) {
    const auto& own = program.stages[own_stage];
    own.forward(step);
    own.backward(step);
{% if has_norms %}
    own.norms(step);
{% endif %}
    own.update(step);
{% if evaluates_apart %}
    own.evaluate(EvaluationStep{device.execution(), in, param, evaluation_buf});
{% endif %}
  }
  /// Points the values of a plan to where `place` has what stands at their offsets.
  template <class Place>
  static void place_values(const Place& place, Buffers& values) {
#define GRAVEN_VALUE(name, dtype, offset, bytes) \
  { constexpr std::size_t at = offset; values.name = reinterpret_cast<dtype*>(place(at)); }
#include "memory_plan.h"
  }
{% if evaluates_apart %}
  template <class Place>
  static void place_values(const Place& place, EvaluationBuffers& values) {
#define GRAVEN_VALUE(name, dtype, offset, bytes) \
  { constexpr std::size_t at = offset; values.name = reinterpret_cast<dtype*>(place(at)); }
#include "evaluation_plan.h"
  }
{% endif %}
  /// What goes from stage to stage: values, and weights that several read.
  static std::vector<NcclStages::Link> links() {
    std::set<std::pair<int, int>> pairs;
#define GRAVEN_CROSSING(from, to, phase, data, bytes) pairs.emplace(from, to);
{% if evaluates_apart %}
#define GRAVEN_EVALUATION_CROSSING(from, to, data, bytes) pairs.emplace(from, to);
{% endif %}
    enum { fixed, learned, observed };
#define GRAVEN_STAGES(path, change, ...)                                   \
  if (const std::vector<int> of = {__VA_ARGS__}; change != fixed)          \
    for (std::size_t i = 1; i < of.size(); ++i) pairs.emplace(of[0], of[i]);
#include "stages.h"
    std::vector<NcclStages::Link> list;
    for (const auto& [from, to] : pairs) list.push_back({from, to});
    return list;
  }
  /// Before anything is computed.
  void require_one_process() const {
    if (is_stage)
      throw std::runtime_error("one of several processes runs a stage alone: expected forward_stage() and its like");
  }

{% endif %}
  /// A part of a step that is under way.
  struct Slot {
{% if on_device %}
    explicit Slot(Memory& of) : numbers(of.device) {
      add_inputs(of.stages_of_slots(), in, inputs);
      inputs.allocate(of.device);
      ahead.emplace(of.device.execution(), inputs.bytes() + aligned(sizeof(Hyper)));
    }

    Inputs in;
    runtime::CallMemory<Device> inputs;
    runtime::HyperMemory<Device, Hyper> numbers;
    const HyperOnDevice hyper{numbers.data()};
    bool is_last = true;  ///< part of its step
    std::optional<StageSlot> ahead;
    runtime::Losses<Device> losses{@{ length(losses) }@}, results{@{ length(numbers_of_stages) }@};
    Device::Calls forward_calls, backward_calls;
    Buffers buf;
{% if evaluates_apart %}
    runtime::Losses<Device> evaluation_losses{@{ length(evaluation_losses) }@};
    Device::Calls evaluation_calls;
    EvaluationBuffers evaluation_buf;
{% endif %}
{% else %}
    Inputs in;
    Buffers buf;
{% if evaluates_apart %}
    EvaluationBuffers evaluation_buf;
{% endif %}
    Hyper hyper;
{% endif %}
{% if length(symbols) > 0 %}
    Sizes size;
{% endif %}
    std::vector<Crossing> crossings;
    std::optional<Device::Memory> arena;  ///< the first one's is the model's

    /// Of the part's sizes.
    void list_crossings() {
      crossings.clear();
{% if has_evaluation and not evaluates_apart %}
      // An evaluation is a forward phase.
#define GRAVEN_CROSSING(from, to, phase, data, bytes)                    \
  crossings.push_back({Crossing::Phase::phase, from, to, data, bytes}); \
  if (Crossing::Phase::phase == Crossing::Phase::forward)               \
    crossings.push_back({Crossing::Phase::evaluate, from, to, data, bytes});
#include "stages.h"
{% else %}
#define GRAVEN_CROSSING(from, to, phase, data, bytes) \
  crossings.push_back({Crossing::Phase::phase, from, to, data, bytes});
#include "stages.h"
{% endif %}
{% if evaluates_apart %}
      list_evaluation_crossings(evaluation_buf);
    }
    void list_evaluation_crossings([[maybe_unused]] const EvaluationBuffers& buf) {
#define GRAVEN_EVALUATION_CROSSING(from, to, data, bytes) \
  crossings.push_back({Crossing::Phase::evaluate, from, to, data, bytes});
#include "stages.h"
{% endif %}
    }
  };
  Step step_of(Slot& slot) {
    return {device.execution(), slot.in, param, grad, state, slot.buf,
            slot.hyper{% if length(symbols) > 0 %}, slot.size{% endif %}};
  }
{% if evaluates_apart %}
  /// What an evaluation has left, in a slot or without any.
  const EvaluationBuffers& scored(int slot) const {
    return slots.empty() ? evaluation_buf : slots.at(static_cast<std::size_t>(slot)).evaluation_buf;
  }
  EvaluationStep evaluation_step_of(Slot& slot) {
    return {device.execution(), slot.in, param,
            slot.evaluation_buf{% if length(symbols) > 0 %}, slot.size{% endif %}};
  }
{% else if has_accuracy %}
  /// What an evaluation has left, in a slot or without any.
  const Buffers& scored(int slot) const {
    return slots.empty() ? buf : slots.at(static_cast<std::size_t>(slot)).buf;
  }
{% endif %}

{% endif %}
  Device device;
{% if has_ranks and on_device %}
  std::optional<NcclRanks> ranks;  ///< where there are several
{% endif %}
  runtime::TensorBlock<Device> weights, {% if not updates_in_backward %}gradients, {% endif %}states;
  runtime::CallMemory<Device> inputs;
  runtime::HyperMemory<Device, Hyper> numbers;
  runtime::Losses<Device> losses;
{% if scales_loss %}
  runtime::Copies<Device> skipped, scale;
{% endif %}
  runtime::Copies<Device> results{% if has_accuracy %}, scores{% endif %};
{% if has_accuracy and on_device %}
  std::optional<Device::Memory> predictions;
{% endif %}
  std::optional<Device::Memory> arena;
  Inputs in;
  Parameters param;
{% if not updates_in_backward %}
  Gradients grad;
{% endif %}
  States state;
{% if shares_states %}
  /// Tensors of fewer elements every rank has whole.
{% if on_device %}
  const runtime::Shard shard = all_ranks().shard(@{ shard_min_size }@);
{% else %}
  const runtime::Shard shard = runtime::Ranks::all().shard(@{ shard_min_size }@);
{% endif %}
{% endif %}
  Buffers buf;
{% if evaluates_apart %}
  EvaluationBuffers evaluation_buf;
{% endif %}
{% if on_device %}
  const HyperOnDevice hyper{numbers.data()};
{% else %}
  const Hyper& hyper = *numbers.data();
{% endif %}
  const Program& program = choose_program();
  runtime::CallOrder order;
{% if pipeline and on_device %}
  /// One of several processes, which runs this stage.
  const bool is_stage = all_ranks().size() > 1;
  const int own_stage = all_ranks().rank() % stages;
{% endif %}
  Device::Calls step_calls, forward_calls, evaluation_calls;
{% if not updates_in_backward %}
  Device::Calls backward_calls, update_calls;
{% endif %}
{% if on_device %}
  Device::Calls ahead_calls;
  std::optional<StepsAhead> ahead;  ///< from the first begin_step() on
{% endif %}
{% if on_device %}
#if defined(GRAVEN_NVTX)
  Ranges ranges{device};
#endif
{% endif %}
{% if pipeline %}
  std::deque<Slot> slots;
{% endif %}
  std::optional<Measuring> measuring;  ///< while calls are measured
};

Model::Model(int @{ create_argument }@) {
  const Device::Guard guard(@{ create_argument }@);
  memory_ = std::make_unique<Memory>(@{ create_argument }@);
}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

double Model::forward(@{ parameters }@{% if random %}, const Hyper& hyper{% endif %}) {
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
{% if pipeline and on_device %}
  own.require_one_process();
{% endif %}
  const Step step = own.step(@{ argument_names }@);
{% if random %}
  own.numbers.set({% if accumulates %}complete(hyper){% else %}hyper{% endif %});
{% endif %}
  own.outdate();
  own.forward_calls.run(own.device, {@{ symbol_list }@}, [&] {
{% if random %}
    own.numbers.send(own.device);
{% endif %}
    own.program.forward(step);
    own.fetch_loss();
  });
  const double loss = own.loss();
  own.order.forwarded({@{ symbol_list }@}@{ drawn_by }@);
  return loss;
}

{% if not updates_in_backward %}
void Model::backward(@{ parameters }@{% if random or accumulates %}, const Hyper& hyper{% endif %}) {
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
{% if pipeline and on_device %}
  own.require_one_process();
{% endif %}
{% if random or accumulates %}
  own.numbers.set({% if accumulates %}complete(hyper){% else %}hyper{% endif %});
{% endif %}
{% if accumulates %}
  own.order.require_part(hyper.part, hyper.parts);
{% endif %}
  const Step step = own.step(@{ argument_names }@);
  own.order.require_forward({@{ symbol_list }@}@{ drawn_by }@);
  own.gradients.memory().outdate();
{% if data_parallel and on_device %}
  own.begin_part(hyper);
  const bool last = hyper.part + 1 == hyper.parts;
  own.backward_calls.run(own.device, {@{ symbol_list }@{% if length(symbols) > 0 %}, {% endif %}last}, [&] {
{% else %}
  own.backward_calls.run(own.device, {@{ symbol_list }@}, [&] {
{% endif %}
{% if random or accumulates %}
    own.numbers.send(own.device);
{% endif %}
    own.program.backward(step);
{% if data_parallel and on_device %}
    own.finish_ranks();
{% else if data_parallel %}
    runtime::Ranks::@{ data_group }@().finish();
{% endif %}
  });
  own.device.synchronize();
{% if has_ranks and on_device %}
  own.count_messages();
{% endif %}
{% if accumulates %}
  own.order.did_part(hyper.part, hyper.parts);
{% endif %}
}

void Model::update(const Hyper& hyper) {
  require_step(hyper);
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
{% if pipeline and on_device %}
  own.require_one_process();
{% endif %}
  own.numbers.set({% if accumulates %}complete(hyper){% else %}hyper{% endif %});
{% if accumulates %}
  own.order.require_all_parts();
{% endif %}
  own.order.begin();
  own.outdate();
  own.update_calls.run(own.device, {}, [&] {
    own.numbers.send(own.device);
    own.program.update(own.whole_step());
  });
  own.device.synchronize();
{% if has_ranks and on_device %}
  own.count_messages();
{% endif %}
}

{% endif %}
double Model::step(@{ parameters }@, const Hyper& hyper) {
  require_step(hyper);
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
{% if pipeline and on_device %}
  own.require_one_process();
{% endif %}
{% if accumulates %}
  own.order.require_part(hyper.part, hyper.parts);
{% endif %}
  const Step step = own.step(@{ argument_names }@);
  own.numbers.set({% if accumulates %}complete(hyper){% else %}hyper{% endif %});
  own.outdate();
{% if not updates_in_backward %}
  own.gradients.memory().outdate();
{% endif %}
{% if data_parallel and on_device %}
  own.begin_part(hyper);
{% endif %}
{% if accumulates %}
  const bool last = hyper.part + 1 == hyper.parts;
  own.step_calls.run(own.device, {@{ symbol_list }@{% if length(symbols) > 0 %}, {% endif %}last}, [&] {
{% else %}
  own.step_calls.run(own.device, {@{ symbol_list }@}, [&] {
{% endif %}
    own.numbers.send(own.device);
    own.program.forward(step);
    own.program.backward(step);
    own.fetch_loss();
{% if data_parallel and on_device %}
    own.finish_ranks();  // now each gradient is the mean of all ranks'
{% else if data_parallel %}
    runtime::Ranks::@{ data_group }@().finish();  // now each gradient is the mean of all ranks'
{% endif %}
{% if has_update %}
    {% if accumulates %}if (last) {% endif %}own.program.update(step);
{% endif %}
  });
{% if has_ranks and on_device %}
  own.count_messages();
{% endif %}
{% if accumulates %}
  const double loss = own.loss();
  own.order.did_part(hyper.part, hyper.parts);
  return loss;
{% else %}
  return own.loss();
{% endif %}
}

{% if on_device %}
void Model::begin_step(@{ parameters }@, const Hyper& hyper) {
  require_step(hyper);
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
{% if pipeline and on_device %}
  own.require_one_process();
{% endif %}
{% if accumulates %}
  own.order.require_part(hyper.part, hyper.parts);
{% endif %}
  own.begin_ahead();
  const Step step = own.step_by(*own.ahead, @{ argument_names }@);
  own.numbers.send_ahead(*own.ahead, {% if accumulates %}complete(hyper){% else %}hyper{% endif %});
  own.ahead->arrive();
  own.outdate();
{% if not updates_in_backward %}
  own.gradients.memory().outdate();
{% endif %}
{% if data_parallel and on_device %}
  own.begin_part(hyper);
{% endif %}
{% if accumulates %}
  const bool last = hyper.part + 1 == hyper.parts;
  own.ahead_calls.run(own.device, {@{ symbol_list }@{% if length(symbols) > 0 %}, {% endif %}last}, [&] {
{% else %}
  own.ahead_calls.run(own.device, {@{ symbol_list }@}, [&] {
{% endif %}
    own.program.forward(step);
    own.program.backward(step);
    own.keep_loss();
{% if data_parallel and on_device %}
    own.finish_ranks();
{% endif %}
{% if has_update %}
    {% if accumulates %}if (last) {% endif %}own.program.update(step);
{% endif %}
  });
  own.ahead->end();
{% if has_ranks and on_device %}
  own.count_messages();
{% endif %}
{% if accumulates %}
  own.order.did_part(hyper.part, hyper.parts);
{% endif %}
}

double Model::finish_step() {
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
  if (!own.ahead) throw std::runtime_error("finish_step: expected a step under way, found none");
  return own.losses.sum_of(own.ahead->finish());
}

{% endif %}
{% if pipeline %}
@{ stage_functions }@
{% endif %}
{% if has_evaluation %}
double Model::evaluate(@{ parameters }@) {
{% if evaluates_apart %}
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
{% if pipeline and on_device %}
  own.require_one_process();
{% endif %}
  [[maybe_unused]] const Step sized = own.step(@{ argument_names }@);
  const EvaluationStep step{own.device.execution(), own.in, own.param,
                            own.evaluation_buf{% if length(symbols) > 0 %}, sized.size{% endif %}};
  own.evaluation_calls.run(own.device, {@{ symbol_list }@}, [&] {
    const auto& buf = own.evaluation_buf;
    own.program.evaluate(step);
{% for loss in evaluation_losses %}
    own.losses.fetch(own.device, @{ loop.index }@, const_cast<const @{ loss.element }@*>(@{ loss.expression }@));
{% endfor %}
  });
  return own.loss();
{% else %}
  return this->forward(@{ argument_names }@);
{% endif %}
}

{% for output in scores %}
{% if pipeline %}
Tensor Model::scores(int slot) const {
{% else %}
Tensor Model::scores() const {
{% endif %}
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
{% if pipeline %}
  const auto& buf = own.scored(slot);
{% else %}
  const auto& buf = own.{% if evaluates_apart %}evaluation_{% endif %}buf;
{% endif %}
  const runtime::Variable scores{"scores", runtime::DType::@{ output.element }@, {@{ output.maxima }@},
                                 @{ output.writable }@};
  const Tensor copy = tensor(own.scores.of(own.device, scores));
  own.device.synchronize();
  return copy;
}

{% if on_device %}
{% if pipeline %}
Tensor Model::predictions(int slot) const {
{% else %}
Tensor Model::predictions() const {
{% endif %}
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
{% if pipeline %}
  const auto& buf = own.scored(slot);
{% else %}
  const auto& buf = own.{% if evaluates_apart %}evaluation_{% endif %}buf;
{% endif %}
{% if own_classes > 0 %}
  constexpr std::int64_t rows = @{ output.storage }@ / @{ own_classes }@;
{% else %}
  constexpr std::int64_t rows = @{ output.storage }@ / @{ classes }@;
{% endif %}
  if (!own.predictions) own.predictions.emplace(own.device, sizeof(std::int64_t) * rows);
  auto* const found = reinterpret_cast<std::int64_t*>(own.predictions->data());
{% if own_classes > 0 %}
  argmax_of_team(own.device.execution(), reduce_config{.outer = rows, .size = @{ own_classes }@, .inner = 1}, found,
                 const_cast<const @{ output.element }@*>(@{ output.expression }@));
{% else %}
  argmax(own.device.execution(), reduce_config{.outer = rows, .size = @{ classes }@, .inner = 1}, found,
         const_cast<const @{ output.element }@*>(@{ output.expression }@));
{% endif %}
  const Tensor copy = tensor(own.scores.of(own.device, {"predictions", runtime::DType::i64, {rows}, found}));
  own.device.synchronize();
  return copy;
}

{% endif %}
{% endfor %}
{% endif %}
void Model::load(const std::string& path) {
  const Device::Guard guard(memory_->device.number());
  memory_->weights.load(memory_->device, path);
}

void Model::save(const std::string& path) const {
  const Device::Guard guard(memory_->device.number());
  memory_->weights.save(memory_->device, path, kGraphHash);
}

std::vector<Tensor> Model::parameters() const {
  const Device::Guard guard(memory_->device.number());
  return tensors(memory_->weights.fetched(memory_->device));
}
{% if not updates_in_backward %}
std::vector<Tensor> Model::gradients() const {
  const Device::Guard guard(memory_->device.number());
  return tensors(memory_->gradients.fetched(memory_->device));
}
{% endif %}
std::vector<Tensor> Model::states() const {
  const Device::Guard guard(memory_->device.number());
  return tensors(memory_->states.fetched(memory_->device));
}
{% if scales_loss %}
std::vector<std::int64_t> Model::skipped_steps() const {
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
  const runtime::Variable counts[] = {
{% for state in skipped %}
      own.skipped.of(own.device, {"@{ loop.index }@", runtime::DType::i64, {}, own.@{ state }@}),
{% endfor %}
  };
  own.device.synchronize();
  std::vector<std::int64_t> list;
  for (const runtime::Variable& count : counts) list.push_back(*static_cast<const std::int64_t*>(count.data));
  return list;
}
double Model::loss_scale() const {
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
  const runtime::Variable scale = own.scale.of(own.device, {"scale", runtime::DType::f32, {}, own.@{ loss_scale }@});
  own.device.synchronize();
  return static_cast<double>(*static_cast<const float*>(scale.data));
}
{% endif %}
std::vector<Tensor> Model::results() const {
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
  std::vector<Tensor> list;
{% for output in outputs %}
  list.push_back(tensor(own.results.of(
      own.device, {"@{ output.member }@", runtime::DType::@{ output.element }@, {@{ output.maxima }@},
                   @{ output.writable }@})));
{% endfor %}
  own.device.synchronize();
  return list;
}
{% if on_device %}

void Model::write_back() {
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
  const bool weights = own.weights.memory().write_back(own.device), states = own.states.memory().write_back(own.device);
  own.device.synchronize();
  if (!weights && !states)
    throw std::runtime_error(
        "write_back: expected parameters() or states() to have been called since the last step, forward() or update()");
}

{% if not updates_in_backward %}
void Model::write_back_gradients() {
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
  if (!own.gradients.memory().write_back(own.device))
    throw std::runtime_error(
        "write_back_gradients: expected gradients() to have been called since the last step or backward()");
  own.device.synchronize();
}

{% endif %}
{% if data_parallel and on_device and length(symbols) > 0 %}
void Model::use_cuda_graph(bool on) {
  memory_->device.record_calls(on && memory_->device.execution().collectives() == nullptr);
}
{% else %}
void Model::use_cuda_graph(bool on) { memory_->device.record_calls(on); }
{% endif %}
int Model::device_count() { return Device::count(); }

void Model::use_stream(CUstream_st* stream) {
  const Device::Guard guard(memory_->device.number());
  memory_->device.execution().use_stream(stream);
}
{% endif %}

const char* Model::level() const { return memory_->program.level; }

@{ measuring_definitions }@

}  // namespace @{ namespace }@

@{ c_interface }@
