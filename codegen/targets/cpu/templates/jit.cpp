@{ banner }@
// The entry points of just-in-time compilation: the calls of model.cpp on memory that the host program owns.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

{% if inline_constants %}
#include "configs.h"
{% endif %}
#include "program.h"

namespace [[gnu::visibility("hidden")]] @{ namespace }@ {
inline namespace GRAVEN_LEVEL_NAMESPACE {
extern const Program program;
}

@{ places }@
namespace {

/// What no host memory is bound to: gradients, prepared values, the arena.
constexpr std::size_t own_bytes() {
  std::size_t bytes = aligned(kArenaBytes) + 64;
{% if training and not updates_in_backward %}
#define GRAVEN_PARAM(name, dtype, path, ...) bytes += aligned(sizeof(dtype) * numel({__VA_ARGS__}));
#include "params.h"
{% endif %}
{% if has_prepared %}
#define GRAVEN_PREPARED(name, dtype, path, ...) bytes += aligned(sizeof(dtype) * numel({__VA_ARGS__}));
#include "params.h"
{% endif %}
  return bytes;
}

struct Instance {
  // Zeros from the system: pages that no call comes to, of a batch that stays smaller than it may be, are never there.
  explicit Instance(int count) : threads(count), memory(std::calloc(1, own_bytes())) {
    if (memory == nullptr) throw std::bad_alloc();
    std::size_t space = own_bytes();
    void* first = memory;
    std::byte* next = static_cast<std::byte*>(std::align(64, space - 64, first, space));
#define GRAVEN_VALUE(name, dtype, offset, bytes) \
  { constexpr std::size_t at = offset; buf.name = reinterpret_cast<dtype*>(next + at); }
#include "memory_plan.h"
    next += aligned(kArenaBytes);
{% if training and not updates_in_backward %}
#define GRAVEN_PARAM(name, dtype, path, ...) \
  grad.name = reinterpret_cast<dtype*>(next); \
  next += aligned(sizeof(dtype) * numel({__VA_ARGS__}));
#include "params.h"
{% endif %}
{% if has_prepared %}
#define GRAVEN_PREPARED(name, dtype, path, ...) \
  prepared.name = reinterpret_cast<dtype*>(next); \
  next += aligned(sizeof(dtype) * numel({__VA_ARGS__}));
#include "params.h"
{% endif %}
  }
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  ~Instance() { std::free(memory); }

  Step step() {
{% if training %}
    return Step{threads, in, param{% if not updates_in_backward %}, grad{% endif %},
                state{% if has_prepared %}, prepared{% endif %}, buf, hyper};
{% else %}
    return Step{threads, in, out, param{% if has_prepared %}, prepared{% endif %}, buf};
{% endif %}
  }

  Threads threads;
  void* memory;
  Inputs in;
  Parameters param;
{% if training %}
{% if not updates_in_backward %}
  Gradients grad;
{% endif %}
  States state;
  Hyper hyper;
{% else %}
  Outputs out;
{% endif %}
{% if has_prepared %}
  Prepared prepared;
{% endif %}
  Buffers buf;
  std::string error;
};

std::string failure;

template <class T>
bool bind(Instance& instance, T*& slot, const char* wanted, const char* name, std::size_t expected, void* data,
          std::size_t bytes, int& status) {
  if (std::strcmp(wanted, name) != 0) return false;
  if (bytes != expected) {
    instance.error =
        std::string(name) + ": expected " + std::to_string(expected) + " bytes, found " + std::to_string(bytes);
    status = 1;
  } else {
    slot = static_cast<T*>(data);
    status = 0;
  }
  return true;
}

}  // namespace
}  // namespace @{ namespace }@

using namespace @{ namespace }@;  // NOLINT: this file is one translation unit of its own

// The only symbols that the library shows.
#pragma GCC visibility push(default)
extern "C" {

void* graven_jit_create(int count) {
  try {
    return new Instance(count);
  } catch (const std::bad_alloc&) {
    failure = "out of memory: its buffers take " + std::to_string(own_bytes()) + " bytes";
    return nullptr;
  } catch (const std::exception& e) {
    failure = e.what();
    return nullptr;
  }
}

void graven_jit_destroy(void* instance) { delete static_cast<Instance*>(instance); }

const char* graven_jit_error(void* instance) {
  return instance == nullptr ? failure.c_str() : static_cast<Instance*>(instance)->error.c_str();
}

int graven_jit_bind(void* opaque, const char* wanted, void* data, std::size_t bytes) {
  Instance& instance = *static_cast<Instance*>(opaque);
  int status = 1;
  (void)data;
  (void)bytes;
#define GRAVEN_PARAM(name, dtype, path, ...) \
  if (bind(instance, instance.param.name, wanted, path, sizeof(dtype) * numel({__VA_ARGS__}), data, bytes, status)) \
    return status;
#define GRAVEN_FIXED(name, dtype, path, ...) \
  if (bind(instance, instance.param.name, wanted, path, sizeof(dtype) * numel({__VA_ARGS__}), data, bytes, status)) \
    return status;
{% if training %}
#define GRAVEN_STATE(name, dtype, path, ...) \
  if (bind(instance, instance.state.name, wanted, path, sizeof(dtype) * numel({__VA_ARGS__}), data, bytes, status)) \
    return status;
{% endif %}
#include "params.h"
  instance.error = std::string("the program has no parameter, buffer or state called ") + wanted;
  return status;
}

int graven_jit_weights_changed(void* opaque) {
{% if has_prepare %}
  Instance& instance = *static_cast<Instance*>(opaque);
  program.prepare(instance.step());
{% else %}
  (void)opaque;
{% endif %}
  return 0;
}

const void* graven_jit_gradient(void* opaque, const char* wanted) {
{% if training and not updates_in_backward %}
  const Instance& instance = *static_cast<Instance*>(opaque);
#define GRAVEN_PARAM(name, dtype, path, ...) \
  if (std::strcmp(wanted, path) == 0) return instance.grad.name;
#include "params.h"
{% endif %}
  (void)opaque, (void)wanted;
  return nullptr;
}

void graven_jit_listen(void* instance, void* listener) {
  static_cast<Instance*>(instance)->threads.set_listener(static_cast<CallListener*>(listener));
}

void graven_jit_limits(void* instance, double* flops, double* bytes) {
  const machine_limits limits = program.measure_limits(static_cast<Instance*>(instance)->threads);
  *flops = limits.flops;
  *bytes = limits.bytes;
}

int graven_jit_run(void* opaque, const void* const* inputs, void* const* outputs, const std::int64_t* symbols,
                   const double* learning_rates, const std::int64_t* counts) {
  Instance& instance = *static_cast<Instance*>(opaque);
{% for input in inputs %}
  instance.in.@{ input.member }@ = static_cast<const @{ input.element }@*>(inputs[@{ loop.index }@]);
{% endfor %}
{% if not training %}
{% for output in outputs %}
  instance.out.@{ output.member }@ = static_cast<@{ output.element }@*>(outputs[@{ loop.index }@]);
{% endfor %}
{% endif %}
  Step step = instance.step();
{% for symbol in symbols %}
  step.size.@{ symbol.identifier }@ = symbols[@{ loop.index }@];
{% endfor %}
{% if training %}
{% if group_count > 0 %}
  for (double& rate : instance.hyper.learning_rates) rate = *learning_rates++;
{% endif %}
  instance.hyper.step = counts[0];
  instance.hyper.seed = counts[1];
{% if accumulates %}
  instance.hyper.part = counts[2];
  instance.hyper.parts = counts[3];
  instance.hyper.draw = counts[4];
{% endif %}
{% endif %}
  try {
{% for function in step_functions %}
    program.@{ function }@(step);
{% endfor %}
{% if accumulates %}
    if (instance.hyper.part + 1 == instance.hyper.parts) program.update(step);
{% endif %}
  } catch (const std::exception& e) {  // an index in the data is out of range
    instance.error = e.what();
    return 1;
  }
{% if training %}
{% for output in outputs %}
  std::memcpy(outputs[@{ loop.index }@], @{ output.in_instance }@,
              sizeof(@{ output.element }@) * static_cast<std::size_t>(@{ output.count_in_step }@));
{% endfor %}
{% endif %}
  (void)inputs, (void)outputs, (void)symbols, (void)learning_rates, (void)counts;
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
