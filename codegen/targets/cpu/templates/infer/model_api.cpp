@{ banner }@
// The memory of the model, its weights file, and both interfaces of model.h.
#include <cstdio>
#include <new>
#include <stdexcept>

#include "program.h"
#include "runtime/arena.h"
#include "runtime/safetensors.h"
#include "runtime/tensor.h"

namespace [[gnu::visibility("hidden")]] @{ namespace }@ {

namespace runtime = graven::runtime;

@{ level_choice }@

@{ places }@
namespace {

template <class T>
T* take(std::byte*& next, std::size_t count) {
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

}  // namespace

struct [[gnu::visibility("hidden")]] Weights::Memory {
  Memory() : block(weight_bytes()) {
    [[maybe_unused]] std::byte* next = block.at<std::byte>(0);
#define GRAVEN_FIXED(name, dtype, path, ...) param.name = take<dtype>(next, numel({__VA_ARGS__}));
#define GRAVEN_PREPARED(name, dtype, path, ...) prepared.name = take<dtype>(next, numel({__VA_ARGS__}));
#include "params.h"
  }

  runtime::Arena block;
  Parameters param;
{% if has_prepared %}
  Prepared prepared;
{% endif %}
};

struct [[gnu::visibility("hidden")]] Model::Memory {
  Memory(std::shared_ptr<const Weights> given, int count)
      : weights(std::move(given)), threads(count), arena(kArenaBytes) {
    [[maybe_unused]] std::byte* const base = arena.at<std::byte>(0);
#define GRAVEN_VALUE(name, dtype, offset, bytes) \
  { constexpr std::size_t at = offset; buf.name = reinterpret_cast<dtype*>(base + at); }
#include "memory_plan.h"
  }

  std::shared_ptr<const Weights> weights;
  Threads threads;
  runtime::Arena arena;
  Inputs in;
  Outputs out;
  Buffers buf;
  const Program& program = choose_program();
};

Weights::Weights(const std::string& path) : memory_(std::make_unique<Memory>()) {
  if (!path.empty()) {
    std::vector<runtime::Variable> variables;
#define GRAVEN_FIXED(name, dtype, path, ...) \
  runtime::add(variables, path, runtime::DType::dtype, {__VA_ARGS__}, memory_->param.name);
#include "params.h"
    runtime::load_variables(runtime::SafetensorsFile(path), variables);
  }
{% if has_prepare %}
  Threads threads(1);
  const Inputs in;
  const Outputs out;
  const Buffers buf;
  choose_program().prepare(
      Step{threads, in, out, memory_->param{% if has_prepared %}, memory_->prepared{% endif %}, buf});
{% endif %}
}
Weights::~Weights() = default;

Model::Model(std::shared_ptr<const Weights> weights, int threads) {
  if (weights == nullptr) throw std::runtime_error("a model needs weights");
  if (threads < 0) throw std::runtime_error("threads: expected 0 or more, found " + std::to_string(threads));
  memory_ = std::make_unique<Memory>(std::move(weights), threads);
}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

void Model::forward(@{ parameters }@, @{ output_parameters }@) {
  Memory& own = *memory_;
{% for symbol in symbols %}
  if (@{ symbol.identifier }@ < @{ symbol.least }@ || @{ symbol.identifier }@ > @{ symbol.maximum }@)
    throw std::runtime_error("@{ symbol.identifier }@: expected @{ symbol.least }@ to @{ symbol.maximum }@, found " +
                             std::to_string(@{ symbol.identifier }@));
{% endfor %}
{% for bound in size_bounds %}
  if (const std::int64_t size = @{ bound.size }@; size < @{ bound.least }@)
    throw std::runtime_error("@{ bound.name }@: expected @{ bound.least }@ or more, found " + std::to_string(size));
{% endfor %}
{% for input in inputs %}
  own.in.@{ input.member }@ = @{ input.converted }@;
{% endfor %}
{% for output in outputs %}
  own.out.@{ output.member }@ = @{ output.converted }@;
{% endfor %}
  const Weights::Memory& loaded = *own.weights->memory_;
  Step step{own.threads, own.in, own.out, loaded.param{% if has_prepared %}, loaded.prepared{% endif %}, own.buf};
{% for symbol in symbols %}
  step.size.@{ symbol.identifier }@ = @{ symbol.identifier }@;
{% endfor %}
  own.program.forward(step);
}

void Model::use(std::shared_ptr<const Weights> weights) {
  if (weights == nullptr) throw std::runtime_error("a model needs weights");
  memory_->weights = std::move(weights);
}

const char* Model::level() const { return memory_->program.level; }

}  // namespace @{ namespace }@

@{ c_interface }@
