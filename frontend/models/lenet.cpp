#include "graven/models/lenet.h"

namespace graven::models {

LeNet::LeNet(std::int64_t num_classes)
    : features(child("features", nn::Sequential(nn::Conv2d(1, 6, 5, {.padding = 2}), nn::ReLU(), nn::MaxPool2d(2),  //
                                                nn::Conv2d(6, 16, 5), nn::ReLU(), nn::MaxPool2d(2)))),
      classifier(
          child("classifier", nn::Sequential(nn::Flatten(), nn::Linear(400, 120), nn::ReLU(), nn::Linear(120, 84),  //
                                             nn::ReLU(), nn::Linear(84, num_classes)))) {}

Tensor LeNet::forward(Tensor images) { return classifier(features(images)); }

}  // namespace graven::models
