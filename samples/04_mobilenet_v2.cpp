// Sample 4: MobileNetV2 on CIFAR-10: eagerly, as a training graph that saves its state after each epoch and goes on
// from it, and as an inference graph with the trained parameters.
//
//   build/samples/04_mobilenet_v2 --data cifar-10-batches-bin                # the graph, one epoch
//   build/samples/04_mobilenet_v2 --data cifar-10-batches-bin --eager        # the same steps without a graph
//   build/samples/04_mobilenet_v2 --epochs 2 --resume                        # a second epoch after the first,
//                                                                            # exactly as in one run
//
// Without --data, or where there is no CIFAR-10, it makes up a small set in the same format, and says so. --batches N
// ends each epoch early.
#include <graven/graven.h>

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>

#include "generated_cifar10.h"

using namespace graven;

constexpr std::int64_t kBatchSize = 64;

struct TrainMobileNetV2 : nn::Graph<TrainMobileNetV2> {
  models::MobileNetV2 model;
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{model.parameters(), {.lr = 1e-3}};

  explicit TrainMobileNetV2(models::MobileNetV2 network) : model(child("model", network)) { add_optimizer(optimizer); }

  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};

struct InferMobileNetV2 : nn::Graph<InferMobileNetV2> {
  models::MobileNetV2 model;

  explicit InferMobileNetV2(models::MobileNetV2 trained) : model(child("model", trained)) {}  // shares the parameters

  Tensor build(Tensor images) { return model(images); }
};

/// What the command line says.
struct Options {
  std::string data;
  std::filesystem::path out = ".";
  std::int64_t epochs = 1, batches = -1;
  bool eager = false, resume = false;

  Options(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string_view name = argv[i];
      const auto value = [&] {
        if (++i == argc) throw UserError(std::string(name) + ": expected a value");
        return std::string(argv[i]);
      };
      const auto number = [&] {
        const std::string text = value();
        std::int64_t n = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
        if (error != std::errc() || end != text.data() + text.size() || n < 1)
          throw UserError(std::string(name) + ": expected a positive number, found '" + text + "'");
        return n;
      };
      if (name == "--data")
        data = value();
      else if (name == "--out")
        out = value();
      else if (name == "--epochs")
        epochs = number();
      else if (name == "--batches")
        batches = number();
      else if (name == "--eager")
        eager = true;
      else if (name == "--resume")
        resume = true;
      else
        throw UserError(
            "usage: 04_mobilenet_v2 [--data DIRECTORY] [--epochs N] [--batches N] [--eager] [--resume] [--out "
            "DIRECTORY]");
    }
  }
};

/// One epoch; `step` takes images and labels and returns the loss.
template <class Step>
void train_epoch(const data::DataLoader& loader, std::int64_t epoch, std::int64_t batches, Step&& step) {
  std::printf("Epoch %lld\n-------------------------------\n", static_cast<long long>(epoch + 1));
  std::int64_t batch = 0;
  for (auto [images, labels] : loader.epoch(epoch)) {
    if (batch == batches) break;
    const Tensor loss = step(images, labels);
    if (batch % 5 == 0)
      std::printf("loss: %7f  [%5lld/%5lld]\n", loss.item<double>(), static_cast<long long>(batch * kBatchSize),
                  static_cast<long long>(loader.samples()));
    std::fflush(stdout);
    ++batch;
  }
}

/// The part of the test images that the model, in evaluation mode, labels right.
template <class Network>
double accuracy(Network& network, const data::DataLoader& loader, std::int64_t batches) {
  std::int64_t right = 0, all = 0;
  for (auto [images, labels] : loader.epoch()) {
    if (batches >= 0 && all >= batches * kBatchSize) break;
    right += (network(images).argmax(1) == labels).to(i64).sum().template item<std::int64_t>();
    all += labels.size(0);
  }
  return static_cast<double>(right) / static_cast<double>(all);
}

int main(int argc, char** argv) try {
  Options options(argc, argv);
  std::filesystem::create_directories(options.out);
  if (options.data.empty() || !data::is_available(options.data)) {
    const std::filesystem::path folder = options.out / "generated-cifar-10";
    std::cout << "There is no CIFAR-10 at '" << options.data << "': training on made-up stripes in the same format ("
              << folder.string() << ").\n";
    write_generated_cifar10(folder, 2560, 512);
    options.data = folder.string();
  }
  const data::DataLoader train(options.data,
                               {.batch_size = kBatchSize, .shuffle = true, .drop_last = true, .num_classes = 10});
  const data::DataLoader test(
      options.data, {.split = data::Split::test, .batch_size = kBatchSize, .drop_last = true, .num_classes = 10});

  manual_seed(0);
  models::MobileNetV2 model({.num_classes = 10});

  if (options.eager) {
    nn::CrossEntropyLoss loss_fn;
    optim::SGD optimizer(model.parameters(), {.lr = 1e-3});
    for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch)
      train_epoch(train, epoch, options.batches, [&](const Tensor& images, const Tensor& labels) {
        Tensor loss = loss_fn(model(images), labels);
        optimizer.zero_grad();
        loss.backward();
        optimizer.step();
        return loss;
      });
  } else {
    TrainMobileNetV2 graph(model);
    const std::string saved = (options.out / "mobilenet_v2.safetensors").string();
    std::int64_t first = 0;
    if (options.resume) {
      graph.load_state_dict(nn::load(saved));
      first = graph.train_step() / (options.batches < 0 ? train.size() : std::min(options.batches, train.size()));
      std::cout << "Going on after epoch " << first << ".\n";
    }
    for (std::int64_t epoch = first; epoch < options.epochs; ++epoch) {
      train_epoch(train, epoch, options.batches, graph);
      nn::save(graph.state_dict(), saved);  // parameters, running statistics, optimizer state, step
    }
    std::cout << "saved " << saved << "\n";
  }

  model.eval();
  const NoGradGuard no_grad;
  if (options.eager) {
    std::printf("accuracy: %.4f\n", accuracy(model, test, options.batches));
  } else {
    InferMobileNetV2 graph(model);
    std::printf("accuracy: %.4f\n", accuracy(graph, test, options.batches));
  }
  return 0;
} catch (const UserError& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
