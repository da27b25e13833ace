// How near mixed precision stays to f32 in training: losses over 200 steps of four small networks, in f32 and with
// enable_amp(), for tests/bench/amp/compare.py, which trains the same from the same weights in PyTorch.
//
//   amp-losses DIRECTORY [NETWORK...]     writes NETWORK.safetensors: weights and batches, and NETWORK.json: losses
#include <graven/graven.h>
#include <graven/models.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace graven {
namespace {

constexpr int kSteps = 200, kBatches = 8;

template <class Net, class Optimizer>
struct Train : nn::Graph<Train<Net, Optimizer>> {
  Net model;
  Optimizer optimizer;
  template <class Options>
  Train(Net net, const Options& options) : model(this->child("model", net)), optimizer(model.parameters(), options) {
    this->add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor scores = model(x);
    if (scores.dim() == 3) scores = flatten(scores, 0, 1);
    Tensor loss = cross_entropy(scores, flatten(labels));
    loss.backward();
    return loss;
  }
};

/// Batches are taken in turns, so that the losses fall.
struct Batches {
  std::vector<Tensor> inputs, labels;
};

template <class Make>
void measure(const std::string& directory, const std::string& name, const Make& make, const Batches& batches) {
  std::ofstream json(directory + "/" + name + ".json");
  json << "{";
  for (const bool amp : {false, true}) {
    manual_seed(0);
    auto graph = make();
    if (amp) graph.enable_amp();
    if (!amp) {
      nn::StateDict all = graph.model.state_dict();
      for (int b = 0; b < kBatches; ++b) {
        all.emplace_back("batch." + std::to_string(b) + ".input", batches.inputs[static_cast<std::size_t>(b)]);
        all.emplace_back("batch." + std::to_string(b) + ".labels", batches.labels[static_cast<std::size_t>(b)]);
      }
      nn::save(all, directory + "/" + name + ".safetensors");
    }
    json << (amp ? ", \"amp\": [" : "\"f32\": [");
    for (int step = 0; step < kSteps; ++step) {
      const auto b = static_cast<std::size_t>(step % kBatches);
      char text[32];
      std::snprintf(text, sizeof text, "%.9g",
                    static_cast<double>(graph(batches.inputs[b], batches.labels[b]).template item<float>()));
      json << (step == 0 ? "" : ", ") << text;
    }
    json << "]";
  }
  json << "}\n";
  std::printf("%s\n", name.c_str());
}

Batches images() {
  manual_seed(1);
  Batches batches;
  for (int b = 0; b < kBatches; ++b) {
    batches.inputs.push_back(randn({16, 3, 32, 32}));
    batches.labels.push_back(randint(0, 10, {16}));
  }
  return batches;
}
Batches tokens(bool each) {
  manual_seed(1);
  Batches batches;
  for (int b = 0; b < kBatches; ++b) {
    batches.inputs.push_back(randint(0, 256, {8, 32}));
    batches.labels.push_back(each ? randint(0, 256, {8, 32}) : randint(0, 2, {8}));
  }
  return batches;
}

void run(const std::string& directory, const std::vector<std::string>& wanted) {
  using Pictures = optim::SGDOptions;
  using Texts = optim::AdamWOptions;
  const Pictures sgd{.lr = 0.02, .momentum = 0.9};
  const Texts adamw{.lr = 1e-3, .weight_decay = 0.01};
  const std::map<std::string, std::function<void(const std::string&)>> networks{
      {"resnet18",
       [&](const std::string& name) {
         measure(
             directory, name,
             [&] { return Train<models::ResNet, optim::SGD>(models::resnet18({.num_classes = 10}), sgd); }, images());
       }},
      {"mobilenet_v2",
       [&](const std::string& name) {
         measure(
             directory, name,
             [&] {
               return Train<models::MobileNetV2, optim::SGD>(models::MobileNetV2({.num_classes = 10, .dropout = 0}),
                                                             sgd);
             },
             images());
       }},
      {"gpt2",
       [&](const std::string& name) {
         measure(
             directory, name,
             [&] {
               return Train<models::GPT2LMHeadModel, optim::AdamW>(models::GPT2LMHeadModel({.n_layer = 4,
                                                                                            .n_head = 4,
                                                                                            .n_embd = 128,
                                                                                            .n_positions = 32,
                                                                                            .vocab_size = 256,
                                                                                            .resid_pdrop = 0,
                                                                                            .embd_pdrop = 0,
                                                                                            .attn_pdrop = 0}),
                                                                   adamw);
             },
             tokens(true));
       }},
      {"bert",
       [&](const std::string& name) {
         measure(
             directory, name,
             [&] {
               return Train<models::BertForSequenceClassification, optim::AdamW>(
                   models::BertForSequenceClassification(2, {.vocab_size = 256,
                                                             .hidden_size = 128,
                                                             .num_hidden_layers = 4,
                                                             .num_attention_heads = 4,
                                                             .intermediate_size = 512,
                                                             .hidden_dropout_prob = 0,
                                                             .attention_probs_dropout_prob = 0,
                                                             .max_position_embeddings = 32}),
                   adamw);
             },
             tokens(false));
       }},
  };
  std::filesystem::create_directories(directory);
  for (const auto& [name, measure_one] : networks)
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end()) measure_one(name);
}

}  // namespace
}  // namespace graven

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: amp-losses DIRECTORY [NETWORK...]\n");
    return 2;
  }
  try {
    graven::run(argv[1], {argv + 2, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
