@{ banner }@
// The memory of the model, its weights file, and both interfaces of model.h.
#include <cstdio>
#include <cstring>
#include <iterator>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>

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
{% if tensor_ranks > 1 %}
namespace {

{% if on_device %}
/// Which of the ranks that each have a part of each tensor this is.
std::int64_t rank_of_process() {
  if (Model::is_first_rank_alone) return 0;
  runtime::Ranks::use(runtime::connect_by_sockets);
{% else %}
runtime::RankTeam<Team> team;

/// The ranks that each have a part of each tensor, for whoever runs kernels; returns which of them this is.
std::int64_t join_ranks(Device& device) {
  if (Model::is_first_rank_alone) return 0;
{% endif %}
  if (runtime::Ranks::all().size() != @{ tensor_ranks }@)
    throw std::runtime_error("ranks: expected @{ tensor_ranks }@ of them, each with its part of each tensor, found " +
                             std::to_string(runtime::Ranks::all().size()));
  runtime::Ranks::divide(@{ tensor_ranks }@);
{% if not on_device %}
  device.execution().set_team(&team);
{% endif %}
  return runtime::Ranks::team().rank();
}

}  // namespace

{% endif %}
struct [[gnu::visibility("hidden")]] Weights::Memory {
  Memory(Device& device, int number) : number(number) {
#define GRAVEN_FIXED(name, dtype, path, ...) weights.add(param.name, path, runtime::DType::dtype, {__VA_ARGS__});
#define GRAVEN_PREPARED(name, dtype, path, ...) computed.add(prepared.name, path, runtime::DType::dtype, {__VA_ARGS__});
#include "params.h"
{% if tensor_ranks > 1 %}
    const std::int64_t rank = {% if on_device %}rank_of_process(){% else %}join_ranks(device){% endif %};
#define GRAVEN_PART(path, dimension, count) \
  weights.cut(path, {.dim = dimension, .blocks = count, .ranks = @{ tensor_ranks }@, .rank = rank});
#include "params.h"
{% endif %}
{% if has_prepared %}
    Device::require_memory(weights.bytes() + computed.bytes(), "weights");
    computed.allocate(device);
{% else %}
    Device::require_memory(weights.bytes(), "weights");
{% endif %}
    weights.allocate(device);
  }

  const int number;  ///< the device's
  runtime::TensorBlock<Device> weights;
  Parameters param;
{% if has_prepared %}
  runtime::TensorBlock<Device> computed;
  Prepared prepared;
{% endif %}
};

struct [[gnu::visibility("hidden")]] Model::Memory {
  Memory(std::shared_ptr<const Weights> given, int number) : weights(std::move(given)), device(number) {
{% if tensor_ranks > 1 and not on_device %}
    join_ranks(device);
{% endif %}
{% if on_device %}
{% for input in inputs %}
    inputs.add(in.@{ input.member }@, @{ input.storage }@);
{% endfor %}
{% for output in outputs %}
    outputs.add(out.@{ output.member }@, @{ output.storage }@);
{% endfor %}
{% endif %}
    Device::require_memory(inputs.bytes() + outputs.bytes() + kArenaBytes, "inputs, outputs and the memory plan");
    inputs.allocate(device);
    outputs.allocate(device);
    arena.emplace(device, kArenaBytes);
#define GRAVEN_VALUE(name, dtype, offset, bytes) \
  { constexpr std::size_t at = offset; buf.name = reinterpret_cast<dtype*>(arena->data() + at); }
#include "memory_plan.h"
{% if tensor_ranks > 1 and on_device %}
    if (!Model::is_first_rank_alone)
      ranks.emplace(device.execution(), runtime::processes<NcclRanks::Processes>(@{ tensor_ranks }@));
{% endif %}
    device.rehearse([&] { program.forward(step()); });
  }

  /// With the largest sizes that there can be.
  Step step() {
    const Weights::Memory& loaded = *weights->memory_;
    return {device.execution(), in, out, loaded.param{% if has_prepared %}, loaded.prepared{% endif %}, buf};
  }

  std::shared_ptr<const Weights> weights;
  Device device;
{% if tensor_ranks > 1 and on_device %}
  std::optional<NcclRanks> ranks;
{% endif %}
  runtime::CallMemory<Device> inputs, outputs;
  std::optional<Device::Memory> arena;
  Inputs in;
  Outputs out;
  Buffers buf;
  const Program& program = choose_program();
  Device::Calls calls;
{% if on_device %}
#if defined(GRAVEN_NVTX)
  Ranges ranges{device};
#endif
{% endif %}
  std::optional<Measuring> measuring;  ///< while calls are measured
};

{% if on_device %}
Weights::Weights(const std::string& path, int number) {
{% else %}
Weights::Weights(const std::string& path) {
  constexpr int number = 1;
{% endif %}
  const Device::Guard guard(number);
  Device device(number);
  memory_ = std::make_unique<Memory>(device, number);
  if (!path.empty()) memory_->weights.load(device, path);
{% if has_prepare %}
  const Inputs in;
  const Outputs out;
  const Buffers buf;
  choose_program().prepare(
      Step{device.execution(), in, out, memory_->param{% if has_prepared %}, memory_->prepared{% endif %}, buf});
{% endif %}
  device.synchronize();
  memory_->weights.memory().forget_host();
}
Weights::~Weights() = default;

{% if on_device %}
Model::Model(std::shared_ptr<const Weights> weights) {
  if (weights == nullptr) throw runtime::BadArgument("a model needs weights");
  const int number = weights->memory_->number;
{% else %}
Model::Model(std::shared_ptr<const Weights> weights, int number) {
  if (weights == nullptr) throw runtime::BadArgument("a model needs weights");
{% endif %}
  const Device::Guard guard(number);
  memory_ = std::make_unique<Memory>(std::move(weights), number);
}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

{% if on_device %}
void Model::forward(@{ parameters }@, @{ output_parameters }@) {
  this->enqueue(@{ argument_names }@, @{ output_names }@);
  this->wait();
}

void Model::wait() {
  const Device::Guard guard(memory_->device.number());
  memory_->device.synchronize();
}

void Model::enqueue(@{ parameters }@, @{ output_parameters }@) {
{% else %}
void Model::forward(@{ parameters }@, @{ output_parameters }@) {
{% endif %}
  Memory& own = *memory_;
  const Device::Guard guard(own.device.number());
{% for symbol in symbols %}
  runtime::require_size("@{ symbol.identifier }@", @{ symbol.identifier }@, @{ symbol.least }@, @{ symbol.maximum }@);
{% endfor %}
{% for bound in size_bounds %}
  runtime::require_size("@{ bound.name }@", @{ bound.size }@, @{ bound.least }@);
{% endfor %}
  {% if length(symbols) == 0 %}const {% endif %}Step step = own.step();
{% for symbol in symbols %}
  step.size.@{ symbol.identifier }@ = @{ symbol.identifier }@;
{% endfor %}
{% for input in inputs %}
  own.inputs.send(own.device, own.in.@{ input.member }@, @{ input.converted }@{% if length(symbols) > 0 %},
                  @{ input.count_in_step }@{% endif %});
{% endfor %}
{% for output in outputs %}
  own.outputs.receive(own.out.@{ output.member }@, @{ output.converted }@);
{% endfor %}
  own.calls.run(own.device, {@{ symbol_list }@}, [&] { own.program.forward(step); });
{% for output in outputs %}
  own.outputs.fetch(own.device, @{ output.converted }@, own.out.@{ output.member }@{% if length(symbols) > 0 %},
                    @{ output.count_in_step }@{% endif %});
{% endfor %}
{% if not on_device %}
  own.device.synchronize();
{% endif %}
}

void Model::use(std::shared_ptr<const Weights> weights) {
  if (weights == nullptr) throw runtime::BadArgument("a model needs weights");
{% if on_device %}
  const int expected = memory_->device.number(), found = weights->memory_->number;
  if (found != expected)
    throw runtime::BadArgument("weights: expected on the model's device, " + std::to_string(expected) +
                               ", found on device " + std::to_string(found));
{% endif %}
  const Device::Guard guard(memory_->device.number());
{% if on_device %}
  memory_->device.execution().synchronize();  // what was enqueued still reads those before
{% endif %}
  memory_->weights = std::move(weights);
  memory_->calls.forget();  // they read the others
}

{% if on_device %}
void Model::use_cuda_graph(bool on) { memory_->device.record_calls(on); }
{% if tensor_ranks > 1 %}
int Model::device_count() { return Device::count(); }
{% endif %}

void Model::use_stream(CUstream_st* stream) {
  const Device::Guard guard(memory_->device.number());
  memory_->device.execution().use_stream(stream);
}

{% endif %}
const char* Model::level() const { return memory_->program.level; }

@{ measuring_definitions }@

}  // namespace @{ namespace }@

@{ c_interface }@
