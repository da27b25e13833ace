// Sample 5: ResNet-18 on Fashion-MNIST, from the library of networks: emits a project that trains it and one that runs
// it.
//
//   build/samples/05_resnet18 --out OUTPUT_DIRECTORY
//   cd OUTPUT_DIRECTORY/resnet18_train && cmake -B build && cmake --build build -j2
//   build/resnet18_train --data /usr/share/datasets/fashion-mnist --test-data /usr/share/datasets/fashion-mnist
//
// Weights in torchvision's names may be loaded first: --weights resnet18.safetensors (all but the last layer, which has
// ten classes here).
#include <graven/graven.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>

using namespace graven;

/// Grey pictures for a network that expects colours: f32[batch,1,28,28] to logits f32[batch,10].
struct GreyResNet18 : nn::Module<GreyResNet18> {
  models::ResNet resnet = child("resnet", models::resnet18({.num_classes = 10}));

  Tensor forward(Tensor images) { return resnet(images.expand({-1, 3, -1, -1})); }
};

struct TrainResNet18 : nn::Graph<TrainResNet18> {
  GreyResNet18 model;
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{model.parameters(), {.lr = 0.05, .momentum = 0.9, .weight_decay = 5e-4}};

  explicit TrainResNet18(GreyResNet18 network) : model(child("model", network)) { add_optimizer(optimizer); }

  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};

struct InferResNet18 : nn::Graph<InferResNet18> {
  GreyResNet18 model;

  explicit InferResNet18(GreyResNet18 trained) : model(child("model", trained)) {}  // shares the parameters

  Tensor build(Tensor images) { return model(images); }
};

int main(int argc, char** argv) try {
  std::filesystem::path output = ".";
  std::string weights;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc || (name != "--out" && name != "--weights"))
      throw UserError("usage: 05_resnet18 [--out OUTPUT_DIRECTORY] [--weights FILE]");
    if (name == "--out")
      output = argv[i + 1];
    else
      weights = argv[i + 1];
  }
  manual_seed(0);
  GreyResNet18 model;
  if (!weights.empty()) {
    nn::StateDict pretrained = nn::load(weights);
    std::erase_if(pretrained, [](const auto& entry) { return entry.first.starts_with("fc."); });
    model.resnet.load_state_dict(pretrained, false);
  }

  TrainResNet18 train(model);
  train.compile(spec({64, 1, 28, 28}, "images"), spec({64}, i64, "labels"));  // records build(); computes nothing
  codegen::emit(train, output / "resnet18_train",
                {.name = "resnet18_train", .epochs = 3, .mean = {0.2860}, .std = {0.3530}});

  model.eval();
  InferResNet18 infer(model);
  infer.compile(spec({Dim("batch", 64), 1, 28, 28}, "images"));
  codegen::emit(infer, output / "resnet18", {.name = "resnet18", .mean = {0.2860}, .std = {0.3530}});

  std::cout << "emitted " << (output / "resnet18_train").string() << " and " << (output / "resnet18").string() << "\n";
  return 0;
} catch (const UserError& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
