@{ banner }@
// What a step touches: pointers by name. The calls are in model@{ model_extension }@, the memory in
// model_api@{ model_extension }@. Not for users of the model: they include model.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
{% if training %}
#include <string_view>
{% endif %}

{% for header in program_headers %}
#include "@{ header }@"
{% endfor %}
{% if evaluates_apart %}
#include "evaluation_plan.h"
{% endif %}
#include "memory_plan.h"
// What a library that holds the model shows. Its own calls go to it, even where another has functions of the same
// names.
#define GRAVEN_API [[gnu::visibility("protected")]]
#include "model.h"
{% if on_device %}

#define GRAVEN_LEVEL_NAMESPACE on_cuda
{% endif %}

namespace [[gnu::visibility("hidden")]] @{ namespace }@ {

using namespace graven::kernels;

/// What the caller gives.
struct Inputs {
{% for input in inputs %}
  const @{ input.element }@* @{ input.member }@ = nullptr;  ///< @{ input.shape }@
{% endfor %}
};
{% if not training %}

/// Where the caller wants the results.
struct Outputs {
{% for output in outputs %}
  @{ output.element }@* @{ output.member }@ = nullptr;  ///< @{ output.shape }@
{% endfor %}
};
{% endif %}

/// Elements of a tensor.
constexpr std::size_t numel(std::initializer_list<std::int64_t> shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return static_cast<std::size_t>(n);
}

/// Parameters and buffers.
struct Parameters {
#define GRAVEN_PARAM(name, dtype, path, ...) dtype* name = nullptr;
#define GRAVEN_FIXED(name, dtype, path, ...) dtype* name = nullptr;
{% if nests %}
#define GRAVEN_MEMBERS
{% endif %}
#include "params.h"
};
{% if training %}
{% if not updates_in_backward %}

/// Gradients, by parameter.
struct Gradients {
#define GRAVEN_PARAM(name, dtype, path, ...) dtype* name = nullptr;
{% if nests %}
#define GRAVEN_MEMBERS
{% endif %}
#include "params.h"
};
{% endif %}

/// What the optimizer keeps from step to step.
struct States {
#define GRAVEN_STATE(name, dtype, path, ...) dtype* name = nullptr;
{% if nests %}
#define GRAVEN_MEMBERS
{% endif %}
#include "params.h"
};
{% endif %}
{% if has_prepared %}

/// What depends on the weights alone.
struct Prepared {
#define GRAVEN_PREPARED(name, dtype, path, ...) dtype* name = nullptr;
{% if nests %}
#define GRAVEN_MEMBERS
{% endif %}
#include "params.h"
};
{% endif %}

/// What is computed on the way: the arena's values.
struct Buffers {
#define GRAVEN_VALUE(name, dtype, offset, bytes) dtype* name = nullptr;
{% if nests %}
#define GRAVEN_MEMBERS
{% endif %}
#include "memory_plan.h"
};

{% if length(symbols) > 0 %}
/// The sizes that a call brings with it.
struct Sizes {
{% for symbol in symbols %}
  std::int64_t @{ symbol.identifier }@ = @{ symbol.maximum }@;  ///< @{ symbol.given_least }@ to @{ symbol.maximum }@
{% endfor %}
};

{% endif %}
{% if training and on_device %}
/// The numbers that change from step to step, where they lie on the device: the same calls do for every step.
struct HyperOnDevice {
{% if accumulates %}
  explicit HyperOnDevice(const Hyper* numbers)
      : step(&numbers->step), seed(&numbers->seed), part(&numbers->part), parts(&numbers->parts), draw(&numbers->draw) {
{% else %}
  explicit HyperOnDevice(const Hyper* numbers) : step(&numbers->step), seed(&numbers->seed) {
{% endif %}
{% if group_count > 0 %}
    for (int group = 0; group < @{ group_count }@; ++group) learning_rates[group] = &numbers->learning_rates[group];
{% endif %}
  }

{% if group_count > 0 %}
  const double* learning_rates[@{ group_count }@];
{% endif %}
  const std::int64_t* step;
  const std::int64_t* seed;
{% if accumulates %}
  const std::int64_t* part;
  const std::int64_t* parts;
  const std::int64_t* draw;
{% endif %}
};

{% endif %}
/// Everything a call can name.
struct Step {
  EachCall<@{ execution_type }@> @{ execution_name }@;
  const Inputs& in;
{% if training %}
  const Parameters& param;
{% if not updates_in_backward %}
  const Gradients& grad;
{% endif %}
  const States& state;
{% if shares_states %}
  const graven::runtime::Shard& shard;  ///< this rank's part of what the ranks share
{% endif %}
{% else %}
  const Outputs& out;
  const Parameters& param;
{% endif %}
{% if has_prepared %}
  const Prepared& prepared;
{% endif %}
  const Buffers& buf;
{% if training and on_device %}
  const HyperOnDevice& hyper;
{% endif %}
{% if training and not on_device %}
  const Hyper& hyper;
{% endif %}
{% if length(symbols) > 0 %}
  Sizes size = {};
{% endif %}
};

{% if evaluates_apart %}
/// What an evaluation computes on the way: another plan, in the same memory.
struct EvaluationBuffers {
#define GRAVEN_VALUE(name, dtype, offset, bytes) dtype* name = nullptr;
{% if nests %}
#define GRAVEN_MEMBERS
{% endif %}
#include "evaluation_plan.h"
};

/// Everything a call of an evaluation can name: no gradient, no state.
struct EvaluationStep {
  EachCall<@{ execution_type }@> @{ execution_name }@;
  const Inputs& in;
  const Parameters& param;
  const EvaluationBuffers& buf;
{% if length(symbols) > 0 %}
  Sizes size = {};
{% endif %}
};

{% endif %}
/// The name of the level that is being compiled.
#define GRAVEN_TEXT_OF(x) #x
#define GRAVEN_TEXT(x) GRAVEN_TEXT_OF(x)
{% if training %}

/// SHA-256 of graph.json, which saved weights name: the 64 digits behind "graph_" in model.h.
constexpr std::string_view kGraphHash = std::string_view(GRAVEN_TEXT(@{ constant_prefix }@_GRAPH)).substr(6, 64);
{% endif %}

/// The calls of a phase; who listens to them hears its name first.
template <class S>
struct Phase {
  const char* name;
  void (*calls)(const S& step);

  [[gnu::always_inline]] void operator()(const S& step) const {
    if (step.@{ execution_name }@.execution().listener() == nullptr) return calls(step);
    tell(step);
  }

 private:
  [[gnu::noinline]] void tell(const S& step) const {
    const CallPhase phase(step.@{ execution_name }@, name);
    calls(step);
  }
};

/// The program, once for each instruction-set level.
struct Program {
  const char* level;
  machine_limits (*measure_limits)(@{ execution_type }@& @{ execution_name }@);
{% for function in functions %}
  Phase<Step> @{ function.name }@;
{% endfor %}
{% if evaluates_apart %}
  Phase<EvaluationStep> evaluate;
{% endif %}
{% if pipeline %}
  /// What a stage has of them.
  struct {
    Phase<Step> forward;
    Phase<Step> backward;
{% if has_norms %}
    Phase<Step> norms;
{% endif %}
{% if evaluates_apart %}
    Phase<EvaluationStep> evaluate;
{% endif %}
    Phase<Step> update;
  } stages[@{ length(stages) }@];
{% endif %}
};

inline namespace GRAVEN_LEVEL_NAMESPACE {

/// The calls: member functions, so that a line names what it touches and nothing else.
struct Calls : Step {
  explicit Calls(const Step& step) : Step(step) {}
{% for block in block_functions %}
{% if block.head != "" %}
  @{ block.head }@
{% endif %}
  @{ block.text }@
{% endfor %}
{% for function in functions %}
  void @{ function.name }@() const;
{% for part in function.parts %}
  void @{ part }@() const;
{% endfor %}
{% endfor %}
};
{% if evaluates_apart %}

/// The calls of an evaluation.
struct EvaluationCalls : EvaluationStep {
  explicit EvaluationCalls(const EvaluationStep& step) : EvaluationStep(step) {}
{% for block in evaluation_block_functions %}
{% if block.head != "" %}
  @{ block.head }@
{% endif %}
  @{ block.text }@
{% endfor %}
  void evaluate() const;
{% for part in evaluation_parts %}
  void @{ part }@() const;
{% endfor %}
};
{% endif %}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace @{ namespace }@
