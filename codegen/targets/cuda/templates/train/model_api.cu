@{ banner }@
// The memory of the model, on the device and, for who asks, copies of it on the host; its files, and both interfaces of
// model.h.
{% if evaluates_apart %}
#include <algorithm>
{% endif %}
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>

#include "kernels/cuda/mirror.cuh"
#include "kernels/cuda/recorded_calls.cuh"
{% if has_accuracy == "true" %}
#include "kernels/cuda/reduce.cuh"
{% endif %}
#include "program.h"
#include "runtime/safetensors.h"
#include "runtime/tensor.h"

namespace [[gnu::visibility("hidden")]] @{ namespace }@ {

namespace runtime = graven::runtime;

@{ level_choice }@

@{ places }@
namespace {

/// Cuts a block of the device's memory into tensors.
class Cutter {
 public:
  explicit Cutter(const Mirror& block) : next_(block.device<char>(0)) {}
  template <class T>
  T* take(std::size_t count) {
    T* const taken = reinterpret_cast<T*>(next_);
    next_ += aligned(sizeof(T) * count);
    return taken;
  }

 private:
  char* next_;
};

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
constexpr std::size_t input_bytes() {
  std::size_t bytes = 0;
{% for input in inputs %}
  bytes += aligned(sizeof(@{ input.element }@) * @{ input.storage }@);
{% endfor %}
  return bytes;
}
constexpr std::size_t result_bytes() {
  std::size_t bytes = 0;
{% for output in outputs %}
  bytes += aligned(sizeof(@{ output.element }@) * @{ output.storage }@);
{% endfor %}
  return bytes;
}

constexpr std::size_t all_bytes() {
  std::size_t bytes = weight_bytes() + state_bytes() + input_bytes();
{% if not updates_in_backward %}
  bytes += gradient_bytes();
{% endif %}
{% if evaluates_apart %}
  bytes += std::max(kArenaBytes, kEvaluationBytes);
{% else %}
  bytes += kArenaBytes;
{% endif %}
  return bytes;
}

/// Before anything is changed: the optimizers' first step is number 1.
void require_step(const Hyper& hyper) {
  if (hyper.step < 1) throw std::runtime_error("step: expected 1 or more, found " + std::to_string(hyper.step));
}

}  // namespace

struct [[gnu::visibility("hidden")]] Model::Memory {
  /// Where the inputs go.
  struct Staged {
{% for input in inputs %}
    @{ input.element }@* @{ input.member }@ = nullptr;
{% endfor %}
  };

  Memory()
      : weights(context, weight_bytes()),
{% if not updates_in_backward %}
        gradients(context, gradient_bytes()),
{% endif %}
        states(context, state_bytes()),
        inputs(input_bytes()),
        hyper_memory(sizeof(Hyper)),
        next_hyper(sizeof(Hyper)),
        arena({% if evaluates_apart %}std::max(kArenaBytes, kEvaluationBytes){% else %}kArenaBytes{% endif %}),
        results(result_bytes()),
{% for output in scores %}
        scores(sizeof(@{ output.element }@) * @{ output.storage }@),
        predictions(sizeof(std::int64_t) * (@{ output.storage }@ / @{ classes }@)),
        host_predictions(predictions.bytes()),
{% endfor %}
        losses(sizeof(double) * @{ loss_count }@) {
    [[maybe_unused]] Cutter next_weight(weights),
{% if not updates_in_backward %}
        next_gradient(gradients),
{% endif %}
        next_state(states);
#define GRAVEN_PARAM(name, dtype, path, ...) param.name = next_weight.take<dtype>(numel({__VA_ARGS__}));
#define GRAVEN_FIXED(name, dtype, path, ...) param.name = next_weight.take<dtype>(numel({__VA_ARGS__}));
#include "params.h"
{% if not updates_in_backward %}
#define GRAVEN_PARAM(name, dtype, path, ...) grad.name = next_gradient.take<dtype>(numel({__VA_ARGS__}));
#include "params.h"
{% endif %}
#define GRAVEN_STATE(name, dtype, path, ...) state.name = next_state.take<dtype>(numel({__VA_ARGS__}));
#include "params.h"
    char* next = static_cast<char*>(inputs.data());
{% for input in inputs %}
    staged.@{ input.member }@ = reinterpret_cast<@{ input.element }@*>(next);
    in.@{ input.member }@ = staged.@{ input.member }@;
    next += aligned(sizeof(@{ input.element }@) * @{ input.storage }@);
{% endfor %}
    const auto* const numbers = static_cast<const Hyper*>(hyper_memory.data());
{% if group_count != "0" %}
    for (int group = 0; group < @{ group_count }@; ++group)
      hyper.learning_rates[group] = &numbers->learning_rates[group];
{% endif %}
    hyper.step = &numbers->step;
    hyper.seed = &numbers->seed;
    next = static_cast<char*>(arena.data());
#define GRAVEN_VALUE(name, dtype, offset, bytes) \
  { constexpr std::size_t at = offset; buf.name = reinterpret_cast<dtype*>(next + at); }
#include "memory_plan.h"
{% if evaluates_apart %}
#define GRAVEN_VALUE(name, dtype, offset, bytes) \
  { constexpr std::size_t at = offset; evaluation_buf.name = reinterpret_cast<dtype*>(next + at); }
#include "evaluation_plan.h"
{% endif %}
    context.rehearse([&] {
      const Step step = whole_step();
{% for function in functions %}
      program.@{ function.name }@(step);
{% endfor %}
{% if evaluates_apart %}
      program.evaluate(EvaluationStep{context, in, param, evaluation_buf});
{% endif %}
    });
  }

  // The host's copies.
  std::vector<runtime::Variable> weight_variables() const {
    std::vector<runtime::Variable> list;
#define GRAVEN_PARAM(name, dtype, path, ...) \
  runtime::add(list, path, runtime::DType::dtype, {__VA_ARGS__}, weights.host(param.name));
#define GRAVEN_FIXED(name, dtype, path, ...) \
  runtime::add(list, path, runtime::DType::dtype, {__VA_ARGS__}, weights.host(param.name));
#include "params.h"
    return list;
  }
{% if not updates_in_backward %}
  std::vector<runtime::Variable> gradient_variables() const {
    std::vector<runtime::Variable> list;
#define GRAVEN_PARAM(name, dtype, path, ...) \
  runtime::add(list, path, runtime::DType::dtype, {__VA_ARGS__}, gradients.host(grad.name));
#include "params.h"
    return list;
  }
{% endif %}
  std::vector<runtime::Variable> state_variables() const {
    std::vector<runtime::Variable> list;
#define GRAVEN_STATE(name, dtype, path, ...) \
  runtime::add(list, path, runtime::DType::dtype, {__VA_ARGS__}, states.host(state.name));
#include "params.h"
    return list;
  }

  /// With the largest sizes that there can be.
  Step whole_step() { return {context, in, param, {% if not updates_in_backward %}grad, {% endif %}state, buf, hyper}; }
  /// What the next calls find in `hyper`. The stream has come to its end, or the numbers before might still be read.
  void set(const Hyper& numbers) { std::memcpy(next_hyper.data(), &numbers, sizeof numbers); }
  void send_hyper() {
    upload(context, static_cast<Hyper*>(hyper_memory.data()), static_cast<const Hyper*>(next_hyper.data()), 1);
  }
  /// Sends the inputs on their way.
  Step step(@{ parameters }@) {
    Step step = whole_step();
{% for symbol in symbols %}
    if (@{ symbol.identifier }@ < @{ symbol.given_least }@ || @{ symbol.identifier }@ > @{ symbol.maximum }@)
      throw std::runtime_error("@{ symbol.identifier }@: expected @{ symbol.given_least }@ to @{ symbol.maximum }@, "
                               "found " +
                               std::to_string(@{ symbol.identifier }@));
    step.size.@{ symbol.identifier }@ = @{ symbol.identifier }@;
{% endfor %}
{% for input in inputs %}
    upload(context, staged.@{ input.member }@, @{ input.converted }@, @{ input.count_in_step }@);
{% endfor %}
    return step;
  }
  /// Asks for the loss as it is now; loss() has it once the stream has come here.
  void fetch_loss() {
{% for loss in losses %}
    download(context, loss_at<@{ loss.element }@>(@{ loop.index }@),
             const_cast<const @{ loss.element }@*>(@{ loss.expression }@), 1);
{% endfor %}
  }
  template <class T>
  T* loss_at(std::size_t i) const {
    return reinterpret_cast<T*>(static_cast<double*>(losses.data()) + i);
  }
{% if evaluates_apart %}
  EvaluationStep evaluation(@{ parameters }@) {
    [[maybe_unused]] const Step checked = step(@{ argument_names }@);
    EvaluationStep evaluation{context, in, param, evaluation_buf};
{% for symbol in symbols %}
    evaluation.size.@{ symbol.identifier }@ = checked.size.@{ symbol.identifier }@;
{% endfor %}
    return evaluation;
  }
  /// The same of an evaluation.
  void fetch_evaluation_loss() {
    const auto& buf = evaluation_buf;
{% for loss in evaluation_losses %}
    download(context, loss_at<@{ loss.element }@>(@{ loop.index }@),
             const_cast<const @{ loss.element }@*>(@{ loss.expression }@), 1);
{% endfor %}
  }
{% endif %}
  double loss() const {
    context.synchronize();
    double sum = 0;
{% for loss in losses %}
    sum += static_cast<double>(*loss_at<@{ loss.element }@>(@{ loop.index }@));
{% endfor %}
    return sum;
  }

  /// The host's copies of what a forward phase or an update changes are old from now on.
  void outdate() {
    weights.outdate();
    states.outdate();
  }

  CudaContext context;
  Mirror weights, {% if not updates_in_backward %}gradients, {% endif %}states;
  DeviceBuffer inputs, hyper_memory;
  PinnedBuffer next_hyper;
  DeviceBuffer arena;
  LazyHostBuffer results{% if has_accuracy == "true" %}, scores{% endif %};
{% if has_accuracy == "true" %}
  DeviceBuffer predictions;
  LazyHostBuffer host_predictions;
{% endif %}
  PinnedBuffer losses;
  Staged staged;
  Inputs in;
  HyperOnDevice hyper;
  Parameters param;
{% if not updates_in_backward %}
  Gradients grad;
{% endif %}
  States state;
  Buffers buf;
{% if evaluates_apart %}
  EvaluationBuffers evaluation_buf;
{% endif %}
  RecordedCalls step_calls, forward_calls;
{% if not updates_in_backward %}
  RecordedCalls backward_calls, update_calls;
{% endif %}
{% if evaluates_apart %}
  RecordedCalls evaluation_calls;
{% endif %}
};

Model::Model(int device) {
  const DeviceGuard guard(device);
  require_device_memory(all_bytes(), "weights, gradients, states and the memory plan");
  memory_ = std::make_unique<Memory>();
}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

void Model::use_cuda_graph(bool on) { memory_->context.record_calls(on); }

double Model::forward(@{ parameters }@{% if random %}, const Hyper& hyper{% endif %}) {
  Memory& own = *memory_;
  const DeviceGuard guard(own.context.device());
  own.outdate();
  const Step step = own.step(@{ argument_names }@);
{% if random %}
  own.set(hyper);
{% endif %}
  own.forward_calls.run(own.context, {@{ symbol_list }@}, [&] {
{% if random %}
    own.send_hyper();
{% endif %}
    program.forward(step);
    own.fetch_loss();
  });
  return own.loss();
}

{% if not updates_in_backward %}
void Model::backward(@{ parameters }@{% if random %}, const Hyper& hyper{% endif %}) {
  Memory& own = *memory_;
  const DeviceGuard guard(own.context.device());
  own.gradients.outdate();
  const Step step = own.step(@{ argument_names }@);
{% if random %}
  own.set(hyper);
{% endif %}
  own.backward_calls.run(own.context, {@{ symbol_list }@}, [&] {
{% if random %}
    own.send_hyper();
{% endif %}
    program.backward(step);
  });
  own.context.synchronize();
}

void Model::update(const Hyper& hyper) {
  require_step(hyper);
  Memory& own = *memory_;
  const DeviceGuard guard(own.context.device());
  own.outdate();
  own.set(hyper);
  own.update_calls.run(own.context, {}, [&] {
    own.send_hyper();
    program.update(own.whole_step());
  });
  own.context.synchronize();
}

{% endif %}
double Model::step(@{ parameters }@, const Hyper& hyper) {
  require_step(hyper);
  Memory& own = *memory_;
  const DeviceGuard guard(own.context.device());
  own.outdate();
{% if not updates_in_backward %}
  own.gradients.outdate();
{% endif %}
  const Step step = own.step(@{ argument_names }@);
  own.set(hyper);
  own.step_calls.run(own.context, {@{ symbol_list }@}, [&] {
    own.send_hyper();
    program.forward(step);
    program.backward(step);
    own.fetch_loss();
{% if has_update %}
    program.update(step);
{% endif %}
  });
  return own.loss();
}

{% if has_evaluation == "true" %}
double Model::evaluate(@{ parameters }@) {
{% if evaluates_apart %}
  Memory& own = *memory_;
  const DeviceGuard guard(own.context.device());
  const EvaluationStep step = own.evaluation(@{ argument_names }@);
  own.evaluation_calls.run(own.context, {@{ symbol_list }@}, [&] {
    program.evaluate(step);
    own.fetch_evaluation_loss();
  });
  return own.loss();
{% else %}
  return this->forward(@{ argument_names }@);
{% endif %}
}

{% for output in scores %}
Tensor Model::scores() const {
  const DeviceGuard guard(memory_->context.device());
  const auto& buf = memory_->{% if evaluates_apart %}evaluation_{% endif %}buf;
  @{ output.element }@* const host = static_cast<@{ output.element }@*>(memory_->scores.data());
  download(memory_->context, host, const_cast<const @{ output.element }@*>(@{ output.expression }@),
           @{ output.storage }@);
  memory_->context.synchronize();
  return {"scores", "@{ output.dtype }@", {@{ output.maxima }@}, host};
}

Tensor Model::predictions() const {
  const DeviceGuard guard(memory_->context.device());
  const auto& buf = memory_->{% if evaluates_apart %}evaluation_{% endif %}buf;
  constexpr std::int64_t rows = @{ output.storage }@ / @{ classes }@;
  std::int64_t* const found = static_cast<std::int64_t*>(memory_->predictions.data());
  std::int64_t* const host = static_cast<std::int64_t*>(memory_->host_predictions.data());
  argmax(memory_->context, reduce_config{.outer = rows, .size = @{ classes }@, .inner = 1}, found,
         const_cast<const @{ output.element }@*>(@{ output.expression }@));
  download(memory_->context, host, const_cast<const std::int64_t*>(found), rows);
  memory_->context.synchronize();
  return {"predictions", "i64", {rows}, host};
}

{% endfor %}
{% endif %}
void Model::load(const std::string& path) {
  const DeviceGuard guard(memory_->context.device());
  const auto variables = memory_->weight_variables();
  runtime::load_variables(runtime::SafetensorsFile(path), variables);
  memory_->weights.upload(memory_->context);
  memory_->context.synchronize();
}

void Model::save(const std::string& path) const {
  const DeviceGuard guard(memory_->context.device());
  memory_->weights.download(memory_->context);
  runtime::save_variables(path, memory_->weight_variables(), {{"graph", kGraphHash}});
}

void Model::write_back() {
  const DeviceGuard guard(memory_->context.device());
  const bool weights = memory_->weights.write_back(memory_->context),
             states = memory_->states.write_back(memory_->context);
  memory_->context.synchronize();
  if (!weights && !states)
    throw std::runtime_error(
        "write_back: expected parameters() or states() to have been called since the last step, forward() or update()");
}

{% if not updates_in_backward %}
void Model::write_back_gradients() {
  const DeviceGuard guard(memory_->context.device());
  if (!memory_->gradients.write_back(memory_->context))
    throw std::runtime_error(
        "write_back_gradients: expected gradients() to have been called since the last step or backward()");
  memory_->context.synchronize();
}

{% endif %}
namespace {
std::vector<Tensor> tensors(const std::vector<runtime::Variable>& variables) {
  std::vector<Tensor> list;
  for (const auto& v : variables) list.push_back({v.path, runtime::name(v.dtype), v.shape, v.data});
  return list;
}
}  // namespace

std::vector<Tensor> Model::parameters() const {
  const DeviceGuard guard(memory_->context.device());
  memory_->weights.download(memory_->context);
  return tensors(memory_->weight_variables());
}
{% if not updates_in_backward %}
std::vector<Tensor> Model::gradients() const {
  const DeviceGuard guard(memory_->context.device());
  memory_->gradients.download(memory_->context);
  return tensors(memory_->gradient_variables());
}
{% endif %}
std::vector<Tensor> Model::states() const {
  const DeviceGuard guard(memory_->context.device());
  memory_->states.download(memory_->context);
  return tensors(memory_->state_variables());
}
std::vector<Tensor> Model::results() const {
  const DeviceGuard guard(memory_->context.device());
  std::vector<Tensor> list;
  char* next = static_cast<char*>(memory_->results.data());
{% for output in outputs %}
  download(memory_->context, reinterpret_cast<@{ output.element }@*>(next),
           const_cast<const @{ output.element }@*>(@{ output.in_memory }@), @{ output.storage }@);
  list.push_back({"@{ output.member }@", "@{ output.dtype }@", {@{ output.maxima }@}, next});
  next += aligned(sizeof(@{ output.element }@) * @{ output.storage }@);
{% endfor %}
  memory_->context.synchronize();
  return list;
}
const char* Model::level() const { return program.level; }

}  // namespace @{ namespace }@

@{ c_interface }@
