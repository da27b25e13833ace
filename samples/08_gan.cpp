// Sample 8: a GAN, in one graph: two losses, two optimizers. The generator learns points on a circle from noise; the
// discriminator tells them from real ones. Trains here for a while, then emits a project that does.
//
//   build/samples/08_gan --out OUTPUT_DIRECTORY
//   cmake -S OUTPUT_DIRECTORY/gan_train -B OUTPUT_DIRECTORY/gan_train/build
//   cmake --build OUTPUT_DIRECTORY/gan_train/build -j2
//   OUTPUT_DIRECTORY/gan_train/build/gan_train --data OUTPUT_DIRECTORY/circle.safetensors --epochs 20 --log gan.log
//
// The log has d_loss and g_loss of each step. The same in PyTorch, whose numbers tests/frontend compares:
//
//   fake = generator(noise)
//   d_loss = bce(discriminator(real), 1) + bce(discriminator(fake.detach()), 0)
//   d_loss.backward()
//   discriminator.requires_grad_(False)
//   g_loss = bce(discriminator(fake), 1)
//   g_loss.backward()
//   discriminator.requires_grad_(True)
//   d_optimizer.step(); g_optimizer.step()
//
// Both optimizers step at the end of a call, so g_loss sees the discriminator as it was. Where the generator is to meet
// the updated one, two graphs share the two networks: one for each loss.
#include <graven/graven.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <numbers>
#include <string>
#include <string_view>

using namespace graven;

constexpr std::int64_t kBatch = 64, kNoise = 8, kSamples = 4096;

/// Logits that all of these are real, or that none is: the mean binary cross entropy.
Tensor judged(Tensor logits, bool real) {
  return binary_cross_entropy_with_logits(logits, real ? ones_like(logits) : zeros_like(logits));
}

struct TrainGan : nn::Graph<TrainGan> {
  nn::Sequential generator = child("generator", nn::Sequential(nn::Linear(kNoise, 64), nn::ReLU(), nn::Linear(64, 64),
                                                               nn::ReLU(), nn::Linear(64, 2)));
  nn::Sequential discriminator = child(
      "discriminator",
      nn::Sequential(nn::Linear(2, 64), nn::LeakyReLU(0.2), nn::Linear(64, 64), nn::LeakyReLU(0.2), nn::Linear(64, 1)));
  optim::Adam d_optimizer{discriminator.parameters(), {.lr = 1e-3, .betas = {0.5, 0.999}}};
  optim::Adam g_optimizer{generator.parameters(), {.lr = 1e-3, .betas = {0.5, 0.999}}};

  TrainGan() {
    add_optimizer(d_optimizer);
    add_optimizer(g_optimizer);
  }

  /// real f32[batch,2]; what is returned under a name is logged under it.
  std::map<std::string, Tensor> build(Tensor real) {
    Tensor noise = randn_like(zeros({kBatch, kNoise}));  // other numbers in each step
    Tensor fake = generator(noise);

    Tensor on_real = discriminator(real);
    Tensor d_loss = judged(on_real, true) + judged(discriminator(fake.detach()), false);
    d_loss.backward();

    discriminator.requires_grad_(false);  // g_loss teaches the generator alone
    Tensor g_loss = judged(discriminator(fake), true);
    g_loss.backward();
    discriminator.requires_grad_(true);
    return {{"d_loss", d_loss}, {"g_loss", g_loss}};
  }
};

int main(int argc, char** argv) try {
  if (argc != 1 && (argc != 3 || std::string_view(argv[1]) != "--out"))
    throw UserError("usage: 08_gan [--out OUTPUT_DIRECTORY]");
  const std::filesystem::path output = argc == 3 ? argv[2] : ".";
  manual_seed(0);
  const Tensor angle = rand({kSamples}) * (2 * std::numbers::pi);
  const Tensor circle = stack({cos(angle), sin(angle)}, 1) + 0.02 * randn({kSamples, 2});

  TrainGan graph;
  graph.compile(spec({kBatch, 2}, "real"));
  for (std::int64_t epoch = 1; epoch <= 40; ++epoch) {
    std::map<std::string, Tensor> results;
    for (std::int64_t i = 0; i + kBatch <= kSamples; i += kBatch) results = graph(circle.slice(0, i, i + kBatch));
    if (epoch % 10 != 0) continue;
    std::printf("epoch %d  d_loss %.4f  g_loss %.4f\n", static_cast<int>(epoch), results.at("d_loss").item<double>(),
                results.at("g_loss").item<double>());
  }
  const NoGradGuard no_grad;
  const Tensor radius = graph.generator(randn({1000, kNoise})).square().sum(1).sqrt();
  std::printf("radius of what is generated: mean %.2f, deviation %.2f\n", radius.mean().item<double>(),
              radius.std().item<double>());

  std::filesystem::create_directories(output);
  nn::save({{"real", circle}}, (output / "circle.safetensors").string());
  codegen::emit(graph, output / "gan_train", {.name = "gan_train", .epochs = 20});
  std::cout << "emitted " << (output / "gan_train").string() << "\n";
  return 0;
} catch (const UserError& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
