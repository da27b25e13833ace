@{ banner }@
// The memory of the model, its files, and both interfaces of model.h.
{% if evaluates_apart %}
#include <algorithm>
{% endif %}
#include <cstdio>
#include <cstring>
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

constexpr std::size_t weight_bytes() {
  std::size_t bytes = 0;
#define GRAVEN_PARAM(name, dtype, path, ...) bytes += aligned(sizeof(dtype) * numel({__VA_ARGS__}));
#define GRAVEN_FIXED(name, dtype, path, ...) bytes += aligned(sizeof(dtype) * numel({__VA_ARGS__}));
#include "params.h"
  return bytes;
}
{% if not updates_in_backward %}
constexpr std::size_t gradient_bytes() {
  std::size_t bytes = 0;
#define GRAVEN_PARAM(name, dtype, path, ...) bytes += aligned(sizeof(dtype) * numel({__VA_ARGS__}));
#include "params.h"
  return bytes;
}
{% endif %}
constexpr std::size_t state_bytes() {
  std::size_t bytes = 0;
#define GRAVEN_STATE(name, dtype, path, ...) bytes += aligned(sizeof(dtype) * numel({__VA_ARGS__}));
#include "params.h"
  return bytes;
}

/// Before anything is changed: the optimizers' first step is number 1.
void require_step(const Hyper& hyper) {
  if (hyper.step < 1) throw std::runtime_error("step: expected 1 or more, found " + std::to_string(hyper.step));
}

}  // namespace

struct [[gnu::visibility("hidden")]] Model::Memory {
  explicit Memory(int count)
      : threads(count),
        weights(weight_bytes()),
{% if not updates_in_backward %}
        gradients(gradient_bytes()),
{% endif %}
        states(state_bytes()),
{% if evaluates_apart %}
        arena(std::max(kArenaBytes, kEvaluationBytes)) {
{% else %}
        arena(kArenaBytes) {
{% endif %}
    std::byte* next = weights.at<std::byte>(0);
#define GRAVEN_PARAM(name, dtype, path, ...) param.name = take<dtype>(next, numel({__VA_ARGS__}));
#define GRAVEN_FIXED(name, dtype, path, ...) param.name = take<dtype>(next, numel({__VA_ARGS__}));
#include "params.h"
{% if not updates_in_backward %}
    next = gradients.at<std::byte>(0);
#define GRAVEN_PARAM(name, dtype, path, ...) grad.name = take<dtype>(next, numel({__VA_ARGS__}));
#include "params.h"
{% endif %}
    next = states.at<std::byte>(0);
#define GRAVEN_STATE(name, dtype, path, ...) state.name = take<dtype>(next, numel({__VA_ARGS__}));
#include "params.h"
    next = arena.at<std::byte>(0);
#define GRAVEN_VALUE(name, dtype, offset, bytes) \
  { constexpr std::size_t at = offset; buf.name = reinterpret_cast<dtype*>(next + at); }
#include "memory_plan.h"
{% if evaluates_apart %}
#define GRAVEN_VALUE(name, dtype, offset, bytes) \
  { constexpr std::size_t at = offset; evaluation_buf.name = reinterpret_cast<dtype*>(next + at); }
#include "evaluation_plan.h"
{% endif %}
  }

  std::vector<runtime::Variable> weight_variables() const {
    std::vector<runtime::Variable> list;
#define GRAVEN_PARAM(name, dtype, path, ...) runtime::add(list, path, runtime::DType::dtype, {__VA_ARGS__}, param.name);
#define GRAVEN_FIXED(name, dtype, path, ...) runtime::add(list, path, runtime::DType::dtype, {__VA_ARGS__}, param.name);
#include "params.h"
    return list;
  }
{% if not updates_in_backward %}
  std::vector<runtime::Variable> gradient_variables() const {
    std::vector<runtime::Variable> list;
#define GRAVEN_PARAM(name, dtype, path, ...) runtime::add(list, path, runtime::DType::dtype, {__VA_ARGS__}, grad.name);
#include "params.h"
    return list;
  }
{% endif %}
  std::vector<runtime::Variable> state_variables() const {
    std::vector<runtime::Variable> list;
#define GRAVEN_STATE(name, dtype, path, ...) runtime::add(list, path, runtime::DType::dtype, {__VA_ARGS__}, state.name);
#include "params.h"
    return list;
  }

  Step step(@{ parameters }@) {
{% for input in inputs %}
    in.@{ input.member }@ = @{ input.converted }@;
{% endfor %}
    Step step{threads, in, param, {% if not updates_in_backward %}grad, {% endif %}state, buf};
{% for symbol in symbols %}
    if (@{ symbol.identifier }@ < @{ symbol.given_least }@ || @{ symbol.identifier }@ > @{ symbol.maximum }@)
      throw std::runtime_error("@{ symbol.identifier }@: expected @{ symbol.given_least }@ to @{ symbol.maximum }@, "
                               "found " +
                               std::to_string(@{ symbol.identifier }@));
    step.size.@{ symbol.identifier }@ = @{ symbol.identifier }@;
{% endfor %}
    return step;
  }
  double loss() const { return @{ loss_value }@; }
{% if evaluates_apart %}
  EvaluationStep evaluation(@{ parameters }@) {
    [[maybe_unused]] const Step checked = step(@{ argument_names }@);
    EvaluationStep evaluation{threads, in, param, evaluation_buf};
{% for symbol in symbols %}
    evaluation.size.@{ symbol.identifier }@ = checked.size.@{ symbol.identifier }@;
{% endfor %}
    return evaluation;
  }
{% endif %}

  Threads threads;
  runtime::Arena weights, {% if not updates_in_backward %}gradients, {% endif %}states, arena;
  Inputs in;
  Parameters param;
{% if not updates_in_backward %}
  Gradients grad;
{% endif %}
  States state;
  Buffers buf;
{% if evaluates_apart %}
  EvaluationBuffers evaluation_buf;
{% endif %}
  const Program& program = choose_program();
};

Model::Model(int threads) {
  if (threads < 0) throw std::runtime_error("threads: expected 0 or more, found " + std::to_string(threads));
  memory_ = std::make_unique<Memory>(threads);
}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

double Model::forward(@{ parameters }@{% if random %}, const Hyper& hyper{% endif %}) {
{% if random %}
  Step step = memory_->step(@{ argument_names }@);
  step.hyper = hyper;
  memory_->program.forward(step);
{% else %}
  memory_->program.forward(memory_->step(@{ argument_names }@));
{% endif %}
  return memory_->loss();
}

{% if not updates_in_backward %}
{% if random %}
void Model::backward(@{ parameters }@, const Hyper& hyper) {
  Step step = memory_->step(@{ argument_names }@);
  step.hyper = hyper;
  memory_->program.backward(step);
}
{% else %}
void Model::backward(@{ parameters }@) { memory_->program.backward(memory_->step(@{ argument_names }@)); }
{% endif %}

void Model::update(const Hyper& hyper) {
  require_step(hyper);
  Step step{memory_->threads, memory_->in, memory_->param, memory_->grad, memory_->state, memory_->buf};
  step.hyper = hyper;
  memory_->program.update(step);
}

{% endif %}
double Model::step(@{ parameters }@, const Hyper& hyper) {
  require_step(hyper);
  Step step = memory_->step(@{ argument_names }@);
  step.hyper = hyper;
  memory_->program.forward(step);
  memory_->program.backward(step);
  const double loss = memory_->loss();
{% if has_update %}
  memory_->program.update(step);
{% endif %}
  return loss;
}

{% if has_evaluation == "true" %}
double Model::evaluate(@{ parameters }@) {
{% if evaluates_apart %}
  const auto& buf = memory_->evaluation_buf;
  memory_->program.evaluate(memory_->evaluation(@{ argument_names }@));
  return @{ evaluation_loss_value }@;
{% else %}
  return this->forward(@{ argument_names }@);
{% endif %}
}

{% for output in scores %}
Tensor Model::scores() const {
  const auto& buf = memory_->{% if evaluates_apart %}evaluation_{% endif %}buf;
  return {"scores", "@{ output.dtype }@", {@{ output.maxima }@}, @{ output.writable }@};
}

{% endfor %}
{% endif %}
void Model::load(const std::string& path) {
  const auto variables = memory_->weight_variables();
  runtime::load_variables(runtime::SafetensorsFile(path), variables);
}

void Model::save(const std::string& path) const {
  runtime::save_variables(path, memory_->weight_variables(), {{"graph", kGraphHash}});
}

namespace {
std::vector<Tensor> tensors(const std::vector<runtime::Variable>& variables) {
  std::vector<Tensor> list;
  for (const auto& v : variables) list.push_back({v.path, runtime::name(v.dtype), v.shape, v.data});
  return list;
}
}  // namespace

std::vector<Tensor> Model::parameters() const { return tensors(memory_->weight_variables()); }
{% if not updates_in_backward %}
std::vector<Tensor> Model::gradients() const { return tensors(memory_->gradient_variables()); }
{% endif %}
std::vector<Tensor> Model::states() const { return tensors(memory_->state_variables()); }
std::vector<Tensor> Model::results() const {
  std::vector<Tensor> list;
{% for output in outputs %}
  list.push_back({"@{ output.member }@", "@{ output.dtype }@", {@{ output.maxima }@}, @{ output.writable }@});
{% endfor %}
  return list;
}
const char* Model::level() const { return memory_->program.level; }

}  // namespace @{ namespace }@

@{ c_interface }@
