@{ banner }@
// The memory of the model on the device, its weights file, and both interfaces of model.h.
#include <cstdio>
#include <new>
#include <stdexcept>

#include "kernels/cuda/mirror.cuh"
#include "kernels/cuda/recorded_calls.cuh"
#include "program.h"
#include "runtime/safetensors.h"
#include "runtime/tensor.h"

namespace [[gnu::visibility("hidden")]] @{ namespace }@ {

namespace runtime = graven::runtime;

@{ level_choice }@

@{ places }@
namespace {

template <class T>
T* take(char*& next, std::size_t count) {
  T* const taken = reinterpret_cast<T*>(next);
  next += aligned(sizeof(T) * count);
  return taken;
}

/// Bytes of the weights and of what is prepared from them.
constexpr std::size_t weight_bytes() {
  std::size_t bytes = 0;
#define GRAVEN_FIXED(name, dtype, path, ...) bytes += aligned(sizeof(dtype) * numel({__VA_ARGS__}));
#define GRAVEN_PREPARED(name, dtype, path, ...) bytes += aligned(sizeof(dtype) * numel({__VA_ARGS__}));
#include "params.h"
  return bytes;
}
constexpr std::size_t input_bytes() {
  std::size_t bytes = 0;
{% for input in inputs %}
  bytes += aligned(sizeof(@{ input.element }@) * @{ input.storage }@);
{% endfor %}
  return bytes;
}
constexpr std::size_t output_bytes() {
  std::size_t bytes = 0;
{% for output in outputs %}
  bytes += aligned(sizeof(@{ output.element }@) * @{ output.storage }@);
{% endfor %}
  return bytes;
}

}  // namespace

struct [[gnu::visibility("hidden")]] Weights::Memory {
  explicit Memory(CudaContext& context) : device(context.device()), block(context, weight_bytes()) {
    [[maybe_unused]] char* next = block.device<char>(0);
#define GRAVEN_FIXED(name, dtype, path, ...) param.name = take<dtype>(next, numel({__VA_ARGS__}));
#define GRAVEN_PREPARED(name, dtype, path, ...) prepared.name = take<dtype>(next, numel({__VA_ARGS__}));
#include "params.h"
  }

  int device;
  Mirror block;
  Parameters param;
{% if has_prepared %}
  Prepared prepared;
{% endif %}
};

struct [[gnu::visibility("hidden")]] Model::Memory {
  /// Where the inputs go.
  struct Staged {
{% for input in inputs %}
    @{ input.element }@* @{ input.member }@ = nullptr;
{% endfor %}
  };

  explicit Memory(std::shared_ptr<const Weights> given)
      : weights(std::move(given)), inputs(input_bytes()), outputs(output_bytes()), arena(kArenaBytes) {
    char* next = static_cast<char*>(inputs.data());
{% for input in inputs %}
    staged.@{ input.member }@ = take<@{ input.element }@>(next, @{ input.storage }@);
    in.@{ input.member }@ = staged.@{ input.member }@;
{% endfor %}
    next = static_cast<char*>(outputs.data());
{% for output in outputs %}
    out.@{ output.member }@ = take<@{ output.element }@>(next, @{ output.storage }@);
{% endfor %}
    [[maybe_unused]] char* const base = static_cast<char*>(arena.data());
#define GRAVEN_VALUE(name, dtype, offset, bytes) \
  { constexpr std::size_t at = offset; buf.name = reinterpret_cast<dtype*>(base + at); }
#include "memory_plan.h"
    context.rehearse([&] { program.forward(step()); });
  }

  /// With the largest sizes that there can be.
  Step step() {
    const Weights::Memory& loaded = *weights->memory_;
    return {context, in, out, loaded.param{% if has_prepared %}, loaded.prepared{% endif %}, buf};
  }

  CudaContext context;
  std::shared_ptr<const Weights> weights;
  DeviceBuffer inputs, outputs, arena;
  Staged staged;
  Inputs in;
  Outputs out;
  Buffers buf;
  RecordedCalls calls;
};

Weights::Weights(const std::string& path, int device) {
  const DeviceGuard guard(device);
  require_device_memory(weight_bytes(), "weights");
  CudaContext context;
  memory_ = std::make_unique<Memory>(context);
  if (!path.empty()) {
    std::vector<runtime::Variable> variables;
#define GRAVEN_FIXED(name, dtype, path, ...)                          \
  runtime::add(variables, path, runtime::DType::dtype, {__VA_ARGS__}, \
               memory_->block.host(memory_->param.name));
#include "params.h"
    runtime::load_variables(runtime::SafetensorsFile(path), variables);
    memory_->block.upload(context);
    context.synchronize();
    memory_->block.forget_host();
  }
{% if has_prepare %}
  const Inputs in;
  const Outputs out;
  const Buffers buf;
  program.prepare(Step{context, in, out, memory_->param{% if has_prepared %}, memory_->prepared{% endif %}, buf});
{% endif %}
  context.synchronize();
}
Weights::~Weights() = default;

Model::Model(std::shared_ptr<const Weights> weights) {
  if (weights == nullptr) throw std::runtime_error("a model needs weights");
  const DeviceGuard guard(weights->memory_->device);
  require_device_memory(input_bytes() + output_bytes() + kArenaBytes, "inputs, outputs and the memory plan");
  memory_ = std::make_unique<Memory>(std::move(weights));
}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

void Model::forward(@{ parameters }@, @{ output_parameters }@) {
  Memory& own = *memory_;
  const DeviceGuard guard(own.context.device());
{% for symbol in symbols %}
  if (@{ symbol.identifier }@ < @{ symbol.least }@ || @{ symbol.identifier }@ > @{ symbol.maximum }@)
    throw std::runtime_error("@{ symbol.identifier }@: expected @{ symbol.least }@ to @{ symbol.maximum }@, found " +
                             std::to_string(@{ symbol.identifier }@));
{% endfor %}
{% for bound in size_bounds %}
  if (const std::int64_t size = @{ bound.size }@; size < @{ bound.least }@)
    throw std::runtime_error("@{ bound.name }@: expected @{ bound.least }@ or more, found " + std::to_string(size));
{% endfor %}
  {% if length(symbols) == 0 %}const {% endif %}Step step = own.step();
{% for symbol in symbols %}
  step.size.@{ symbol.identifier }@ = @{ symbol.identifier }@;
{% endfor %}
{% for input in inputs %}
  upload(own.context, own.staged.@{ input.member }@, @{ input.converted }@, @{ input.count_in_step }@);
{% endfor %}
  own.calls.run(own.context, {@{ symbol_list }@}, [&] { program.forward(step); });
{% for output in outputs %}
  download(own.context, @{ output.converted }@, const_cast<const @{ output.element }@*>(own.out.@{ output.member }@),
           @{ output.count_in_step }@);
{% endfor %}
  own.context.synchronize();
}

void Model::use(std::shared_ptr<const Weights> weights) {
  if (weights == nullptr) throw std::runtime_error("a model needs weights");
  const int expected = memory_->context.device(), found = weights->memory_->device;
  if (found != expected)
    throw std::runtime_error("weights: expected on the model's device, " + std::to_string(expected) +
                             ", found on device " + std::to_string(found));
  memory_->weights = std::move(weights);
  const DeviceGuard guard(expected);
  memory_->calls.forget();  // they read the others
}

void Model::use_cuda_graph(bool on) { memory_->context.record_calls(on); }

const char* Model::level() const { return program.level; }

}  // namespace @{ namespace }@

@{ c_interface }@
