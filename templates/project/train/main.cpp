@{ banner }@
// The program: reads a data set and trains the model on it. See --help.
#include <cstring>
{% if tensor_ranks > 1 %}
#include <map>
{% endif %}
#include <memory>
{% if pipeline %}
#include <optional>
{% endif %}
{% if not has_evaluation %}
#include <stdexcept>
{% endif %}
#include <string_view>
#include <vector>

#include "model.h"
{% if has_ranks and on_device %}
#include "runtime/rank_sockets.h"
#include "runtime/ranks.h"
{% else if shares_states or tensor_ranks > 1 %}
#include "runtime/ranks.h"
{% endif %}
{% if own_classes > 0 and not on_device %}
#include "runtime/predictions.h"
{% endif %}
{% if pipeline %}
#include "runtime/pipeline.h"
{% endif %}
#include "runtime/train.h"

namespace runtime = graven::runtime;

namespace {

#define GRAVEN_TEXT_OF(x) #x
#define GRAVEN_TEXT(x) GRAVEN_TEXT_OF(x)
/// What follows "graph_" in model.h: SHA-256 of graph.json, 64 digits, "_", and the digest of what a step computes.
constexpr std::string_view kGraph = std::string_view(GRAVEN_TEXT(@{ constant_prefix }@_GRAPH)).substr(6);

using graven::runtime::DType;
{% if has_schedule %}
using graven::runtime::Schedule;
{% endif %}
using graven::runtime::Variable;

std::vector<Variable> variables(const std::vector<@{ namespace }@::Tensor>& tensors) {
  std::vector<Variable> list;
{% if shares_states %}
  for (const auto& t : tensors) {
    Variable v{t.path, runtime::dtype_named(t.dtype).value(), t.shape, t.data};
    if (t.count < v.count()) v.shard = runtime::Ranks::all().shard(@{ shard_min_size }@);
    list.push_back(std::move(v));
  }
{% else %}
  for (const auto& t : tensors) list.push_back({t.path, runtime::dtype_named(t.dtype).value(), t.shape, t.data});
{% endif %}
{% if tensor_ranks > 1 %}
  // In files they are whole.
  const std::int64_t rank = runtime::Ranks::team().rank();
  static const std::map<std::string, runtime::Cut> parts = {
#define GRAVEN_PART(path, dimension, count) {path, {.dim = dimension, .blocks = count, .ranks = @{ tensor_ranks }@}},
#include "params.h"
  };
  for (Variable& v : list)
    if (const auto part = parts.find(v.path); part != parts.end()) {
      v.cut = part->second;
      v.cut.rank = rank;
      v.shape[static_cast<std::size_t>(v.cut.dim)] *= v.cut.ranks;
    }
{% endif %}
  return list;
}

{% if pipeline %}
class Program final : public runtime::TrainableModel, private runtime::StagedModel {
{% else %}
class Program final : public runtime::TrainableModel {
{% endif %}
 public:
  const runtime::TrainingDescription& description() const override {
    static const runtime::TrainingDescription text{
        .name = @{ name_literal }@,
        .loss = @{ loss_literal }@,
        .inputs = {
{% for input in inputs %}
            {.name = "@{ input.member }@", .dtype = DType::@{ input.element }@,
             .shape = {@{ input.maxima }@}, .batched = @{ input.batched }@,
             .classes = @{ input.classes }@@{ input.ignored }@@{ input.symbolic }@},
{% endfor %}
        },
{% if length(other_symbols) > 0 %}
        .symbols = {@{ described_symbols }@},
{% endif %}
        .batch = @{ batch }@,
        .batch_is_symbolic = @{ batch_is_symbolic }@,
{% if least_batch > 1 %}
        .least_batch = @{ least_batch }@,
{% endif %}
        .groups = {
{% for group in groups %}
{% if group.plateau == "" %}
            {.lr = @{ group.lr }@, .schedule = {@{ group.schedule }@}},
{% else %}
            {.lr = @{ group.lr }@, .schedule = {@{ group.schedule }@}, @{ group.plateau }@},
{% endif %}
{% endfor %}
        },
{% if length(plateaus) > 0 %}
        .plateaus = {
{% for plateau in plateaus %}
            {@{ plateau }@},
{% endfor %}
        },
{% endif %}
{% if shown_results != "" %}
        .shown_results = {@{ shown_results }@},
{% endif %}
        .graph_hash = kGraph.substr(0, 64),
        .computation = kGraph.substr(65),
        .generator = "@{ generator }@",
        .has_evaluation = @{ has_evaluation }@,
        .has_accuracy = @{ has_accuracy }@,
{% if ignorable_labels != "" %}
        .ignorable_labels = @{ ignorable_labels }@,
{% if loss_is_sum %}
        .loss_is_sum = true,
{% endif %}
{% endif %}
{% if accumulates %}
        .accumulation_steps = @{ accumulation_steps }@,
{% endif %}
{% if scales_loss %}
        .scales_loss = true,
{% if unscaled_gradients != "" %}
        .unscaled_gradients = {@{ unscaled_gradients }@},
{% endif %}
{% endif %}
{% if data_parallel %}
        .data_parallel = true,
{% if shares_parameters %}
        .shares_parameters = true,
{% endif %}
{% endif %}
{% if tensor_ranks > 1 %}
        .tensor_ranks = @{ tensor_ranks }@,
        .tensor_bytes = @{ tensor_bytes }@,
{% endif %}
{% if pipeline %}
        .stages = @{ namespace }@::Model::stages,
{% endif %}
{% if on_device %}
        .on_device = true,
{% endif %}
    };
    return text;
  }
{% if on_device %}
  void start(int device) override { model_ = std::make_unique<@{ namespace }@::Model>(device); }
  int devices() const override { return @{ namespace }@::Model::device_count(); }
  void use_cuda_graph(bool on) override { model_->use_cuda_graph(on); }
  void weights_changed() override { model_->write_back(); }
  void weights_needed() override {
    model_->parameters();
    model_->states();
  }
{% else %}
  void start(int threads) override { model_ = std::make_unique<@{ namespace }@::Model>(threads); }
{% endif %}
{% if length(other_symbols) > 0 %}
  void resize(const std::int64_t* sizes) override {
    for (std::size_t s = 0; s < @{ length(other_symbols) }@; ++s) sizes_[s] = sizes[s];
  }
{% endif %}
  std::vector<Variable> weights() override { return variables(model_->parameters()); }
  std::vector<Variable> states() override { return variables(model_->states()); }
  double step(const void* const* inputs, std::int64_t@{ batch_if_passed }@,
              const runtime::StepNumbers& numbers) override {
    return model_->step(@{ erased_arguments }@, hyper_of(numbers));
  }
{% if pipeline %}
  runtime::Pipeline* pipeline() override {
    if (!pipeline_) pipeline_.emplace(static_cast<runtime::StagedModel&>(*this));
    return &*pipeline_;
  }
{% endif %}
{% if on_device %}
  void begin_step(const void* const* inputs, std::int64_t@{ batch_if_passed }@,
                  const runtime::StepNumbers& numbers) override {
    model_->begin_step(@{ erased_arguments }@, hyper_of(numbers));
  }
  double finish_step() override { return model_->finish_step(); }
{% endif %}
{% if scales_loss %}
  std::int64_t skipped(std::size_t group) override {
    constexpr std::size_t optimizer_of[] = {@{ optimizers_of_groups }@};
    return model_->skipped_steps().at(optimizer_of[group]);
  }
{% endif %}
{% if logs_results %}
  std::vector<Variable> numbers() override {
    const std::vector<Variable> results = variables(model_->results());
    return @{ logged_results }@;
  }
{% endif %}
{% if scales_gradients and not updates_in_backward %}
  double loss_scale() override { return model_->loss_scale(); }
{% endif %}
{% if not updates_in_backward %}
{% if shares_states and not shares_gradients %}
  std::vector<Variable> gradients() override {
    std::vector<Variable> list = variables(model_->gradients());
    // Each rank updates its shard, of which alone its gradient is the mean over all ranks.
    for (Variable& v : list) {
      v.shard = runtime::Ranks::all().shard(@{ shard_min_size }@);
      const std::int64_t first = v.shard.first(runtime::count_of(v.shape));
      v.data = static_cast<char*>(v.data) + static_cast<std::size_t>(first) * runtime::size_of(v.dtype);
    }
    return list;
  }
{% else %}
  std::vector<Variable> gradients() override { return variables(model_->gradients()); }
{% endif %}
{% endif %}
{% if has_evaluation %}
{% if pipeline %}
  runtime::Evaluation evaluate(const void* const* inputs, std::int64_t batch, std::int64_t count) override {
    return evaluation_of(model_->evaluate(@{ erased_arguments }@), inputs, batch, count, 0, true);
  }
  /// Of a batch that a slot has been evaluated with; `has_scores`: there.
  runtime::Evaluation evaluation_of(double loss, [[maybe_unused]] const void* const* inputs, std::int64_t batch,
                                    [[maybe_unused]] std::int64_t count, [[maybe_unused]] int slot,
                                    [[maybe_unused]] bool has_scores) {
{% else %}
  runtime::Evaluation evaluate(const void* const* inputs, std::int64_t batch,
                               std::int64_t@{ count_if_used }@) override {
    const double loss = model_->evaluate(@{ erased_arguments }@);
{% endif %}
{% if loss_is_sum %}
    // The loss is a sum over the samples.
    runtime::Evaluation sums{.loss_sum = loss, .samples = batch};
{% else %}
    // The loss is a mean over the samples.
    runtime::Evaluation sums{.loss_sum = loss * static_cast<double>(batch), .samples = batch};
{% endif %}
{% if has_accuracy and pipeline %}
    if (!has_scores) return sums;
{% endif %}
{% if has_accuracy and on_device %}
    const auto predictions = model_->predictions({% if pipeline %}slot{% endif %});
    const auto* predicted = static_cast<const std::int64_t*>(predictions.data);  // [rows]
    const auto* labels = static_cast<const @{ label_type }@*>(inputs[@{ label_input }@]);
    for (std::int64_t row = 0; row < count@{ times_rows_per_sample }@; ++row) {
      if (labels[row] < 0 || labels[row] >= @{ classes }@) continue;  // ignored by the loss as well
      sums.correct += predicted[row] == labels[row];
      ++sums.labels;
    }
{% endif %}
{% if has_accuracy and own_classes > 0 and not on_device %}
    // Each rank has the scores of its own classes.
    const auto scores = model_->scores();
    const auto* score = static_cast<const @{ score_type }@*>(scores.data);  // [rows, @{ own_classes }@]
    const auto predicted =
        runtime::predictions_of_ranks(score, scores.shape[0], @{ own_classes }@, runtime::Ranks::team());
    const auto* labels = static_cast<const @{ label_type }@*>(inputs[@{ label_input }@]);
    for (std::int64_t row = 0; row < count@{ times_rows_per_sample }@; ++row) {
      if (labels[row] < 0 || labels[row] >= @{ classes }@) continue;  // ignored by the loss as well
      sums.correct += predicted[static_cast<std::size_t>(row)] == labels[row];
      ++sums.labels;
    }
{% else if has_accuracy and not on_device %}
    const auto scores = model_->scores({% if pipeline %}slot{% endif %});
    const auto* score = static_cast<const @{ score_type }@*>(scores.data);  // [rows, classes]
    const auto* labels = static_cast<const @{ label_type }@*>(inputs[@{ label_input }@]);
    for (std::int64_t row = 0; row < count@{ times_rows_per_sample }@; ++row, score += @{ classes }@) {
      if (labels[row] < 0 || labels[row] >= @{ classes }@) continue;  // ignored by the loss as well
      std::int64_t best = 0;  // the first of the largest, as torch.argmax has it: NaN is larger than any number
      for (std::int64_t c = 1; c < @{ classes }@ && score[best] == score[best]; ++c)
        if (!(score[c] <= score[best])) best = c;
      sums.correct += best == labels[row];
      ++sums.labels;
    }
{% endif %}
    return sums;
  }
{% else %}
  runtime::Evaluation evaluate(const void* const*, std::int64_t, std::int64_t) override {
    throw std::logic_error("the program has no evaluation, and says so in its description");
  }
{% endif %}
@{ measuring_overrides }@

 private:
  static @{ namespace }@::Hyper hyper_of(const runtime::StepNumbers& numbers) {
    @{ namespace }@::Hyper hyper;
{% if group_count > 0 %}
    std::memcpy(hyper.learning_rates, numbers.learning_rates, sizeof hyper.learning_rates);
{% endif %}
    hyper.step = numbers.step;
    hyper.seed = numbers.seed;
{% if accumulates %}
    hyper.part = numbers.part;
    hyper.parts = numbers.parts;
    hyper.draw = numbers.draw;
{% endif %}
    return hyper;
  }
{% if pipeline %}

  // What the pipeline asks for.
  int stages() const override { return @{ namespace }@::Model::stages; }
{% if on_device %}
  runtime::StageMessages* messages() override { return &messages_; }
  void* place_of(const Variable& variable) override { return model_->place_of(variable.path); }
  void finish_gradients() override {}  // the last part's backward phase has done it
  void end_step() override { model_->end_step(); }
{% endif %}
  void set_slots(int stage, int count) override {
    model_->set_slots(stage, count);
    crossings_.resize(static_cast<std::size_t>(count));
  }
  void prepare(int slot, const runtime::StagePart& part) override {
    const void* const* const inputs = part.inputs;
    [[maybe_unused]] const std::int64_t batch = part.batch;
    model_->prepare_part(slot, @{ erased_arguments }@, hyper_of(part.numbers));
    std::vector<runtime::Crossing>& list = crossings_[static_cast<std::size_t>(slot)];
    list.clear();
    for (const auto& c : model_->crossings(slot))
      list.push_back({static_cast<runtime::Crossing::Phase>(c.phase), c.from, c.to, c.data, c.bytes});
  }
  void forward(int stage, int slot) override { model_->forward_stage(stage, slot); }
  void backward(int stage, int slot) override { model_->backward_stage(stage, slot); }
  double results(int stage, int slot, double* numbers) override {
    return model_->results_of_stage(stage, slot, numbers);
  }
  void begin_update(int stage) override { model_->begin_update_stage(stage); }
  void update(int stage) override { model_->update_stage(stage); }
{% if has_evaluation %}
  void evaluate(int stage, int slot) override { model_->evaluate_stage(stage, slot); }
  runtime::Evaluation evaluated(int stage, int slot, const runtime::StagePart& part) override {
    const double loss = model_->evaluation_of_stage(stage, slot);
{% if has_accuracy %}
    const bool has_scores = stage == @{ namespace }@::Model::stage_of_scores;
{% else %}
    const bool has_scores = false;
{% endif %}
    return evaluation_of(loss, part.inputs, part.batch, part.count, slot, has_scores);
  }
{% else %}
  void evaluate(int, int) override {}
  runtime::Evaluation evaluated(int, int, const runtime::StagePart&) override { return {}; }
{% endif %}
  const std::vector<runtime::Crossing>& crossings(int slot) override {
    return crossings_[static_cast<std::size_t>(slot)];
  }
  const std::vector<runtime::StagesOfVariable>& stages_of_variables() const override {
    static const std::vector<runtime::StagesOfVariable> list = {
#define GRAVEN_STAGES(path, change, ...) {path, runtime::StagesOfVariable::Change::change, {__VA_ARGS__}},
#include "stages.h"
    };
    return list;
  }

{% if on_device %}
  /// Between devices; of a rank, which stage it has is its place in its row.
  class Messages final : public runtime::StageMessages {
   public:
    explicit Messages(std::unique_ptr<@{ namespace }@::Model>& model) : model_(model) {}
    void send(int slot, int to, int, const void* data, std::size_t bytes) override {
      model_->send_to_stage(slot, to % @{ namespace }@::Model::stages, data, bytes);
    }
    void receive(int from, int, void* data, std::size_t bytes) override {
      model_->receive_from_stage(from % @{ namespace }@::Model::stages, data, bytes);
    }
    void finish_receiving() override { model_->finish_receiving(); }
    void finish_sending(int slot) override { model_->finish_sending(slot); }

   private:
    std::unique_ptr<@{ namespace }@::Model>& model_;
  };

  Messages messages_{model_};
{% endif %}
  std::vector<std::vector<runtime::Crossing>> crossings_;  ///< by slot
  std::optional<runtime::StagePipeline> pipeline_;
{% endif %}

  std::unique_ptr<@{ namespace }@::Model> model_;
{% if length(other_symbols) > 0 %}
  std::int64_t sizes_[@{ length(other_symbols) }@] = {@{ largest_sizes }@};
{% endif %}
};

}  // namespace

int main(int argc, char** argv) {
{% if has_ranks and on_device %}
  runtime::Ranks::use(runtime::connect_by_sockets);
{% endif %}
  Program program;
  return runtime::train_main(argc, argv, program,
                                     {.data = @{ data_literal }@,
                                      .test_data = @{ test_data_literal }@,
                                      .epochs = @{ epochs }@,
                                      .seed = @{ seed }@,
{% if threads > 0 and not on_device %}
                                      .threads = @{ threads }@,
{% endif %}
                                      .shuffle = @{ shuffle }@,
                                      .mean = {@{ mean }@},
                                      .std = {@{ std }@}});
}
