// The networks of tests/fixtures/make_networks.py, as a user of Graven writes them.
#pragma once

#include <graven/graven.h>

namespace graven::test {

struct MyLinear : nn::Module<MyLinear> {
  Tensor weight = parameter("weight", zeros({4, 3}));
  Tensor bias = parameter("bias", zeros({3}));
  Tensor forward(Tensor x) { return matmul(x, weight) + bias; }
};

struct Mlp : nn::Module<Mlp> {
  nn::Sequential layers = child("layers", nn::Sequential(nn::Flatten(), nn::Linear(784, 32), nn::ReLU(), nn::Linear(32, 10)));
  Tensor forward(Tensor x) { return layers(x); }
};

struct LeNet : nn::Module<LeNet> {
  nn::Sequential features = child("features", nn::Sequential(nn::Conv2d(1, 6, 5, {.padding = 2}), nn::ReLU(), nn::MaxPool2d(2),  //
                                                             nn::Conv2d(6, 16, 5), nn::ReLU(), nn::MaxPool2d(2)));
  nn::Sequential classifier = child("classifier", nn::Sequential(nn::Flatten(), nn::Linear(400, 120), nn::ReLU(), nn::Linear(120, 84),  //
                                                                 nn::ReLU(), nn::Linear(84, 10)));
  Tensor forward(Tensor images) { return classifier(features(images)); }
};

struct ConvBatchNorm : nn::Module<ConvBatchNorm> {
  nn::Conv2d conv1 = child("conv1", nn::Conv2d(3, 16, 3, {.stride = 2, .padding = 1, .bias = false}));
  nn::BatchNorm2d bn1 = child("bn1", nn::BatchNorm2d(16));
  nn::Conv2d conv2 = child("conv2", nn::Conv2d(16, 16, 3, {.padding = 1, .groups = 16, .bias = false}));
  nn::BatchNorm2d bn2 = child("bn2", nn::BatchNorm2d(16));
  nn::Conv2d conv3 = child("conv3", nn::Conv2d(16, 16, 1, {.bias = false}));
  nn::BatchNorm2d bn3 = child("bn3", nn::BatchNorm2d(16));
  nn::Linear head = child("head", nn::Linear(16, 10));
  Tensor forward(Tensor x) {
    Tensor a = relu6(bn1(conv1(x)));
    Tensor b = relu6(bn2(conv2(a)));
    Tensor c = bn3(conv3(b)) + a;
    return head(mean(c, {2, 3}));
  }
};

struct Polynomial : nn::Module<Polynomial> {
  nn::Sequential layers = child("layers", nn::Sequential(nn::Linear(3, 1), nn::Flatten(0, 1)));
  Tensor forward(Tensor x) { return layers(x); }
};

}  // namespace graven::test
