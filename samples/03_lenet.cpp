// Sample 3: LeNet on Fashion-MNIST. Traces the network, prints it, and emits two projects: one that trains it and one
// that runs it.
//
//   build/samples/03_lenet --out OUTPUT_DIRECTORY
//   cd OUTPUT_DIRECTORY/lenet_train && cmake -B build && cmake --build build -j2
//   build/lenet_train --data /usr/share/datasets/fashion-mnist
//
// With --target cuda they are projects for an NVIDIA GPU. OUTPUT_DIRECTORY/saved has the graphs, for the graven
// command.
#include <graven/graven.h>

#include <filesystem>
#include <iostream>
#include <string_view>

using namespace graven;

/// LeCun et al. 1998, with today's activations and pooling. Images f32[batch,1,28,28], logits f32[batch,10].
struct LeNet : nn::Module<LeNet> {
  nn::Sequential features =
      child("features", nn::Sequential(nn::Conv2d(1, 6, 5, {.padding = 2}), nn::ReLU(), nn::MaxPool2d(2),  //
                                       nn::Conv2d(6, 16, 5), nn::ReLU(), nn::MaxPool2d(2)));
  nn::Sequential classifier = child("classifier", nn::Sequential(nn::Flatten(), nn::Linear(400, 120), nn::ReLU(),  //
                                                                 nn::Linear(120, 84), nn::ReLU(), nn::Linear(84, 10)));

  Tensor forward(Tensor images) { return classifier(features(images)); }
};

struct LeNetTrain : nn::Graph<LeNetTrain> {
  LeNet model = child("model", LeNet());
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{model.parameters(), {.lr = 0.05, .momentum = 0.9}};

  LeNetTrain() { add_optimizer(optimizer); }

  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};

struct LeNetInfer : nn::Graph<LeNetInfer> {
  LeNet model;

  explicit LeNetInfer(LeNet trained) : model(child("model", trained)) {}  // shares the parameters

  Tensor build(Tensor images) { return model(images); }
};

int main(int argc, char** argv) try {
  std::filesystem::path output = ".";
  std::string target = "cpu";
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (option == "--out" && !value.empty())
      output = value;
    else if (option == "--target" && (value == "cpu" || value == "cuda"))
      target = value;
    else
      throw UserError("usage: 03_lenet [--out OUTPUT_DIRECTORY] [--target cpu|cuda]");
  }
  manual_seed(0);

  LeNetTrain train;
  train.compile(spec({64, 1, 28, 28}, "images"), spec({64}, i64, "labels"));  // records build(); computes nothing
  std::cout << train << "\n";
  codegen::emit(train, output / "lenet_train",
                {.name = "lenet_train", .target = target, .epochs = 5, .mean = {0.2860}, .std = {0.3530}});
  train.save(output / "saved/lenet_train");

  train.model.eval();
  LeNetInfer infer(train.model);
  infer.compile(spec({Dim("batch", 256), 1, 28, 28}, "images"));  // any batch up to 256
  codegen::emit(infer, output / "lenet", {.name = "lenet", .target = target, .mean = {0.2860}, .std = {0.3530}});
  infer.save(output / "saved/lenet");

  std::cout << "emitted " << (output / "lenet_train").string() << " and " << (output / "lenet").string() << "\n";
  return 0;
} catch (const UserError& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
