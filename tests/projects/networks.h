// What several tests of emitted projects train.
#pragma once

#include <cstdint>
#include <type_traits>

#include "graven/graven.h"
#include "tests/projects/data.h"

namespace graven::tests {

struct Perceptron : nn::Module<Perceptron> {
  nn::Linear first, second, third;
  nn::Dropout dropout = child("dropout", nn::Dropout(0.2));
  Perceptron(std::int64_t wide, std::int64_t narrow)
      : first(child("first", nn::Linear(kFeatures, wide))),
        second(child("second", nn::Linear(wide, narrow))),
        third(child("third", nn::Linear(narrow, kClasses))) {}
  Tensor forward(const Tensor& x) { return third(relu(second(dropout(relu(first(x)))))); }
};

/// Two optimizers, one clips; and an average of the weights that reads what all ranks have updated. Graph's constructor
/// adds the optimizers.
template <class Graph>
struct AveragedPerceptron : nn::Graph<Graph> {
  Perceptron model, average;
  optim::SGD sgd{model.first.parameters(), {.lr = 0.05, .momentum = 0.9, .clip_grad_max_norm = 0.05}};
  // A large epsilon: steps go by the size of gradients, not by the sign of those that are rounding alone.
  optim::AdamW adam{{model.second.weight, model.second.bias, model.third.weight, model.third.bias},
                    {.lr = 0.02, .eps = 0.05, .weight_decay = 0.01}};
  AveragedPerceptron(std::int64_t wide, std::int64_t narrow)
      : model(this->child("model", Perceptron(wide, narrow))),
        average(this->child("average", Perceptron(wide, narrow))) {
    average.requires_grad_(false);
  }
  /// What build() does with a loss.
  void train_on(Tensor& loss) {
    loss.backward();
    nn::AfterUpdate after;
    nn::utils::update_average_(average, model, 0.9);
  }
};

/// Dropout, and a batch norm of each rank's own batch.
struct Classify : nn::Graph<Classify> {
  nn::Sequential model =
      child("model", nn::Sequential(nn::Linear(kFeatures, 300), nn::ReLU(), nn::BatchNorm1d(300), nn::Dropout(0.2),
                                    nn::Linear(300, 300), nn::ReLU(), nn::Linear(300, kClasses)));
  // Of SGD, whose steps are as large as the gradients: Adam makes steps out of gradients that are rounding alone.
  optim::SGD optimizer{model.parameters(), {.lr = 0.05, .momentum = 0.9}};
  Classify() { add_optimizer(optimizer); }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = cross_entropy(model(images), labels);
    loss.backward();
    return loss;
  }
};

/// Batch norms of images and of rows, of each rank's batch or of all of them together.
template <class Norm>
struct PicturesNet : nn::Module<PicturesNet<Norm>> {
  nn::Conv2d conv = this->child("conv", nn::Conv2d(1, 8, 3, {.padding = 1}));
  Norm norm = this->child("norm", Norm(8));
  nn::Linear hidden = this->child("hidden", nn::Linear(48, 24));
  nn::BatchNorm1d of_rows = this->child("of_rows", nn::BatchNorm1d(24, {.momentum = std::nullopt}));
  nn::Linear scores = this->child("scores", nn::Linear(24, kClasses));
  Tensor forward(Tensor images) {
    const Tensor h = relu(norm(conv(images.reshape({-1, 1, 2, 3}))));
    return scores(relu(of_rows(hidden(flatten(h, 1)))));
  }
};
template <class Norm>
struct Pictures : nn::Graph<Pictures<Norm>> {
  PicturesNet<Norm> net = this->child("net", PicturesNet<Norm>());
  optim::SGD optimizer{net.parameters(), {.lr = 0.05, .momentum = 0.9}};
  Pictures() {
    if constexpr (std::is_same_v<Norm, nn::SyncBatchNorm>) nn::SyncBatchNorm::convert_sync_batchnorm(net);
    this->add_optimizer(optimizer);
  }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = cross_entropy(net(images), labels);
    loss.backward();
    return loss;
  }
};

}  // namespace graven::tests
