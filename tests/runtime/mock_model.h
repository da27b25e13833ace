// A model small enough to be written by hand: softmax regression, images f32[batch, features] to `classes` scores, mean
// cross entropy, SGD with momentum. It drives the training and inference programs in the tests as an emitted model
// would, and can note what they tell it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "runtime_min/infer.h"
#include "runtime_min/safetensors.h"
#include "runtime_min/train.h"

namespace graven::runtime {

struct SoftmaxRegression {
  std::int64_t features, classes;
  std::vector<float> weight = std::vector<float>(static_cast<std::size_t>(features * classes));
  std::vector<float> bias = std::vector<float>(static_cast<std::size_t>(classes));

  void scores(const float* x, float* y) const {
    for (std::int64_t c = 0; c < classes; ++c) {
      double sum = bias[static_cast<std::size_t>(c)];
      for (std::int64_t f = 0; f < features; ++f)
        sum += static_cast<double>(weight[static_cast<std::size_t>(c * features + f)]) * x[f];
      y[c] = static_cast<float>(sum);
    }
  }
  std::vector<Variable> variables() {
    return {{"model.weight", DType::f32, {classes, features}, weight.data()},
            {"model.bias", DType::f32, {classes}, bias.data()}};
  }
};

class MockTrainable : public TrainableModel {
 public:
  MockTrainable(Dims sample, std::int64_t classes, std::int64_t batch, bool symbolic)
      : model_{count_of(sample), classes} {
    Dims images = sample;
    images.insert(images.begin(), batch);
    description_.name = "mock";
    description_.loss = "cross_entropy(mean)";
    description_.inputs = {{.name = "images", .dtype = DType::f32, .shape = images, .comment = "pictures"},
                           {.name = "labels", .dtype = DType::i64, .shape = {batch}, .classes = classes}};
    description_.batch = batch;
    description_.batch_is_symbolic = symbolic;
    description_.groups = {{.lr = 0.1, .schedule = {.kind = Schedule::Kind::cosine, .T_max = 1000}}};
    description_.graph_hash = "0123456789abcdef0123456789abcdef";
    description_.computation = "0123456789abcdef";
    description_.generator = "graven test";
    description_.has_accuracy = true;
    weight_momentum_.resize(model_.weight.size());
    bias_momentum_.resize(model_.bias.size());
  }

  const TrainingDescription& description() const override { return description_; }
  TrainingDescription& description() { return description_; }
  void start(int threads_or_device) override { started_on = threads_or_device; }
  int started_on = -1;
  std::vector<Variable> weights() override { return model_.variables(); }
  void weights_changed() override { note("changed"); }
  void weights_needed() override { note("needed"); }
  std::vector<Variable> states() override {
    return {{"model.weight-momentum", DType::f32, {model_.classes, model_.features}, weight_momentum_.data()},
            {"model.bias-momentum", DType::f32, {model_.classes}, bias_momentum_.data()}};
  }

  double step(const void* const* inputs, std::int64_t batch, const StepNumbers& numbers) override {
    if (numbers.step == nan_at_step) return std::nan("");
    if (notes != nullptr) {
      Note n{.what = "step",
             .seed = numbers.seed,
             .rates = {numbers.learning_rates, numbers.learning_rates + description_.groups.size()}};
      for (std::int64_t i = 0; i < batch; ++i)
        n.samples.push_back(static_cast<const float*>(inputs[0])[i * model_.features]);
      if (description_.inputs.size() > 2) n.shared = *static_cast<const float*>(inputs[2]);
      notes->push_back(std::move(n));
    }
    std::vector<float>&gradient = gradient_, &bias_gradient = bias_gradient_;
    gradient.assign(model_.weight.size(), 0);
    bias_gradient.assign(model_.bias.size(), 0);
    std::vector<float> p(static_cast<std::size_t>(model_.classes));
    hits_ = 0;
    double loss = 0;
    for (std::int64_t i = 0; i < batch; ++i) {
      const float* x = static_cast<const float*>(inputs[0]) + i * model_.features;
      const std::int64_t label = static_cast<const std::int64_t*>(inputs[1])[i];
      loss += softmax(x, label, p.data());
      hits_ += *std::max_element(p.begin(), p.end()) == p[static_cast<std::size_t>(label)] ? 1 : 0;
      p[static_cast<std::size_t>(label)] -= 1;
      for (std::size_t c = 0; c < p.size(); ++c) {
        const float g = p[c] / static_cast<float>(batch);
        bias_gradient[c] += g;
        for (std::int64_t f = 0; f < model_.features; ++f)
          gradient[c * static_cast<std::size_t>(model_.features) + static_cast<std::size_t>(f)] += g * x[f];
      }
    }
    const auto lr = static_cast<float>(numbers.learning_rates[0]);
    const auto update = [lr](std::vector<float>& parameter, std::vector<float>& momentum, const std::vector<float>& g) {
      for (std::size_t i = 0; i < g.size(); ++i) {
        momentum[i] = 0.9F * momentum[i] + g[i];
        parameter[i] -= lr * momentum[i];
      }
    };
    update(model_.weight, weight_momentum_, gradient);
    update(model_.bias, bias_momentum_, bias_gradient);
    twice_ = static_cast<float>(2 * loss / static_cast<double>(batch));
    return loss_at ? loss_at(numbers.step) : loss / static_cast<double>(batch);
  }

  /// As on a device; "begin" and "finish" are noted besides.
  void begin_step(const void* const* inputs, std::int64_t batch, const StepNumbers& numbers) override {
    note("begin");
    begun_.push_back(step(inputs, batch, numbers));
    most_under_way = std::max(most_under_way, begun_.size());
  }
  double finish_step() override {
    note("finish");
    const double loss = begun_.front();
    begun_.pop_front();
    return loss;
  }
  std::size_t most_under_way = 0;

  Evaluation evaluate(const void* const* inputs, std::int64_t batch, std::int64_t count) override {
    note("evaluation", description_.inputs.size() > 2 ? *static_cast<const float*>(inputs[2]) : 0);
    if (evaluation_of) return evaluation_of(inputs, count);
    if (evaluation) return evaluation(count);
    std::vector<float> p(static_cast<std::size_t>(model_.classes));
    Evaluation result;
    result.samples = batch;
    result.labels = count;
    for (std::int64_t i = 0; i < batch; ++i) {
      const std::int64_t label = static_cast<const std::int64_t*>(inputs[1])[i];
      result.loss_sum += softmax(static_cast<const float*>(inputs[0]) + i * model_.features, label, p.data());
      std::size_t best = 0;
      for (std::size_t c = 1; c < p.size(); ++c) {
        if (p[c] > p[best]) best = c;
      }
      if (i < count && best == static_cast<std::size_t>(label)) ++result.correct;
    }
    return result;
  }

  std::vector<Variable> numbers() override {
    if (!shows_numbers) return {};
    return {
        {"hits", DType::i64, {}, &hits_}, {"output_1", DType::f32, {}, &twice_}, {"twice", DType::f32, {}, &twice_}};
  }
  std::vector<Variable> gradients() override {
    if (!shows_gradients) return {};
    return {{"model.weight", DType::f32, {model_.classes, model_.features}, gradient_.data()},
            {"model.bias", DType::f32, {model_.classes}, bias_gradient_.data()}};
  }
  double loss_scale() override { return scale; }
  bool shows_numbers = false, shows_gradients = false;
  double scale = 1;  ///< that it says it has

  std::int64_t nan_at_step = -1;
  std::function<double(std::int64_t step)> loss_at;            ///< instead of the loss
  std::function<Evaluation(std::int64_t samples)> evaluation;  ///< instead of an evaluation

  /// The same, of the inputs.
  std::function<Evaluation(const void* const* inputs, std::int64_t samples)> evaluation_of;

  /// A call of the program: "step", "evaluation", "changed" or "needed" (the weights).
  struct Note {
    std::string what;
    std::int64_t seed = 0;
    std::vector<double> rates{};
    std::vector<float> samples{};  ///< the first feature of each
    float shared = 0;              ///< of a third input, that all samples share
  };
  std::vector<Note>* notes = nullptr;  ///< where calls are noted

 private:
  void note(const char* what, float shared = 0) const {
    if (notes != nullptr) notes->push_back({.what = what, .shared = shared});
  }
  /// Leaves the probabilities in `p` and returns the loss.
  double softmax(const float* x, std::int64_t label, float* p) const {
    model_.scores(x, p);
    float most = p[0];
    for (std::int64_t c = 1; c < model_.classes; ++c) most = std::max(most, p[c]);
    double sum = 0;
    for (std::int64_t c = 0; c < model_.classes; ++c) sum += std::exp(static_cast<double>(p[c] - most));
    const double loss = std::log(sum) - (p[label] - most);
    for (std::int64_t c = 0; c < model_.classes; ++c)
      p[c] = static_cast<float>(std::exp(static_cast<double>(p[c] - most)) / sum);
    return loss;
  }

  SoftmaxRegression model_;
  TrainingDescription description_;
  std::vector<float> weight_momentum_, bias_momentum_, gradient_, bias_gradient_;
  std::int64_t hits_ = 0;     ///< samples whose label had the largest score
  float twice_ = 0;           ///< the loss
  std::deque<double> begun_;  ///< losses of steps under way
};

class MockInference : public InferenceModel {
 public:
  MockInference(Dims sample, std::int64_t classes, std::int64_t batch, bool symbolic)
      : model_{count_of(sample), classes} {
    Dims images = sample;
    images.insert(images.begin(), batch);
    description_.name = "mock";
    description_.inputs = {{.name = "images", .dtype = DType::f32, .shape = images}};
    description_.outputs = {{.name = "scores", .dtype = DType::f32, .shape = {batch, classes}}};
    description_.batch = batch;
    description_.batch_is_symbolic = symbolic;
  }

  const InferenceDescription& description() const override { return description_; }
  InferenceDescription& description() { return description_; }
  void start(int, const std::string& weights) override {
    if (!weights.empty()) load_variables(SafetensorsFile(weights), model_.variables());
  }
  void forward(const void* const* inputs, std::int64_t batch, void* const* outputs) override {
    largest_batch = std::max(largest_batch, batch);
    for (std::int64_t i = 0; i < batch; ++i)
      model_.scores(static_cast<const float*>(inputs[0]) + i * model_.features,
                    static_cast<float*>(outputs[0]) + i * model_.classes);
  }

  SoftmaxRegression& model() { return model_; }
  std::int64_t largest_batch = 0;

 private:
  SoftmaxRegression model_;
  InferenceDescription description_;
};

}  // namespace graven::runtime
