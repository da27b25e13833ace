// The first two samples' projects, their programs, and programs of others that use their models: data that lies on the
// device, the caller's stream, steps that are begun before those before them are finished, labels that are none.
#include <gtest/gtest.h>

#include "projects.h"

namespace graven::codegen {
namespace {

/// What both programs begin with: values, and copies of them that the caller's stream has yet to make.
const std::string kHost = R"(
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "model.h"

using namespace NAME;

/// On the device once the stream has come to it: what lies in page-locked memory then.
template <class T>
struct Late {
  Late(const std::vector<T>& values, cudaStream_t stream) : bytes(values.size() * sizeof(T)) {
    cudaMalloc(&device, bytes);
    cudaMallocHost(&host, bytes);
    std::memcpy(host, values.data(), bytes);
    cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream);
  }
  ~Late() {
    cudaFree(device);
    cudaFreeHost(host);
  }
  std::size_t bytes;
  T *device = nullptr, *host = nullptr;
};
void said(const char* what, bool is) { std::printf("%s: %s\n", what, is ? "yes" : "NO"); }
template <class F>
void fails(const F& call) {
  try {
    call();
    std::puts("no error");
  } catch (const std::exception& e) {
    std::puts(e.what());
  }
}
)";

const std::string kTraining = R"(
std::vector<float> images_of(int step) {
  std::vector<float> images(64 * 784);
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>((i + 7 * step) % 19) / 19;
  return images;
}
std::vector<std::int64_t> labels_of(int step) {
  std::vector<std::int64_t> labels(64);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i * 7 + step) % 10;
  return labels;
}
Hyper hyper_of(int step) {
  Hyper hyper;
  hyper.learning_rates[0] = 0.05 / step;
  hyper.step = step;
  return hyper;
}
std::vector<std::string> weights_of(const Model& model) {
  std::vector<std::string> all;
  for (const Tensor& t : model.parameters()) {
    std::size_t bytes = sizeof(float);
    for (const std::int64_t size : t.shape) bytes *= static_cast<std::size_t>(size);
    all.emplace_back(static_cast<const char*>(t.data), bytes);
  }
  return all;
}

int main() {
  constexpr int steps = 3;
  Model model(1);
  model.load("weights.safetensors");
  std::vector<double> losses;
  for (int s = 1; s <= steps; ++s) losses.push_back(model.step(images_of(s).data(), labels_of(s).data(), hyper_of(s)));
  const std::vector<std::string> weights = weights_of(model);

  {
    Model ahead(1);
    ahead.load("weights.safetensors");
    fails([&] { ahead.finish_step(); });
    std::vector<double> found;
    for (int s = 1; s <= steps; ++s) {
      std::vector<float> images = images_of(s);
      std::vector<std::int64_t> labels = labels_of(s);
      const auto before = cuda_on_cpu::statistics();
      ahead.begin_step(images.data(), labels.data(), hyper_of(s));
      const auto after = cuda_on_cpu::statistics();
      if (s > 2 && (after.allocations != before.allocations || after.descriptors != before.descriptors))
        std::puts("a step allocates");
      std::fill(images.begin(), images.end(), 1e30f);
      std::fill(labels.begin(), labels.end(), 99);
      if (s == 2) fails([&] { ahead.begin_step(images.data(), labels.data(), hyper_of(s)); });
      if (s > 1) found.push_back(ahead.finish_step());
    }
    found.push_back(ahead.finish_step());
    said("the same losses ahead", found == losses);
    said("and weights", weights_of(ahead) == weights);
  }

  // Inputs that are on the device by the time the caller's stream comes to the step.
  cudaSetDevice(1);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  {
    Model there(1);
    there.load("weights.safetensors");
    there.use_stream(stream);
    std::vector<double> found;
    for (int s = 1; s <= steps; ++s) {
      const Late<float> images(images_of(s), stream);
      const Late<std::int64_t> labels(labels_of(s), stream);
      if (s % 2 == 0) {
        there.begin_step(images.device, labels.device, hyper_of(s));
        found.push_back(there.finish_step());
      } else {
        found.push_back(there.step(images.device, labels.device, hyper_of(s)));
      }
    }
    said("the same losses on the caller's stream", found == losses);
    said("and weights", weights_of(there) == weights);
    there.use_stream(nullptr);
    fails([&] { there.begin_step(images_of(1).data(), labels_of(1).data(), hyper_of(0)); });

    // A label that is no class in the first of two: the second changes nothing either.
    std::vector<std::int64_t> wrong = labels_of(1);
    wrong[5] = 10;
    there.begin_step(images_of(1).data(), wrong.data(), hyper_of(7));
    there.begin_step(images_of(2).data(), labels_of(2).data(), hyper_of(8));
    fails([&] { there.finish_step(); });
    fails([&] { there.finish_step(); });
    said("the weights stay", weights_of(there) == weights);
    wrong = labels_of(1);
    wrong[63] = -1;
    fails([&] { there.step(images_of(1).data(), wrong.data(), hyper_of(7)); });
    said("again", weights_of(there) == weights);
    const double loss = model.step(images_of(1).data(), labels_of(1).data(), hyper_of(7));
    there.begin_step(images_of(1).data(), labels_of(1).data(), hyper_of(7));
    said("and it goes on", there.finish_step() == loss && weights_of(there) == weights_of(model));
  }
  // By the C interface.
  NAME_model* c = nullptr;
  double loss = 0;
  const Hyper hyper = hyper_of(1);
  const std::vector<float> images = images_of(1);
  const std::vector<std::int64_t> labels = labels_of(1);
  int status = NAME_create(1, &c) | NAME_load(c, "weights.safetensors") | NAME_use_stream(c, stream) |
               NAME_begin_step(c, images.data(), labels.data(), hyper.learning_rates, hyper.step) |
               NAME_finish_step(c, &loss);
  said("C has the loss", status == 0 && loss == losses[0]);
  status = NAME_finish_step(c, &loss);
  std::printf("%d %s\n", status, NAME_error());
  NAME_destroy(c);
  cudaStreamDestroy(stream);
}
)";

TEST(CudaProjects, LeNetTrains) {
  Projects projects("lenet_train", lenet_train(), /*evaluates_apart=*/true, /*finds_races=*/false, /*runs_long=*/true);
  EXPECT_TRUE(fs::exists(projects.folder() / "cuda/evaluation.cu"));
  std::vector<std::int64_t> labels;
  const std::vector<float> images = numbers(128 * 784, 2);
  for (std::int64_t i = 0; i < 128; ++i) labels.push_back(i * 7 % 10);
  write_npy(projects.folder() / "images.npy", "<f4", {128, 1, 28, 28}, images);
  write_npy(projects.folder() / "labels.npy", "<i8", {128}, labels);
  // 100 held out: the last batch of 64 holds 36.
  write_npy(projects.folder() / "held_images.npy", "<f4", {100, 1, 28, 28},
            std::vector<float>(images.begin() + 20 * 784, images.begin() + 120 * 784));
  write_npy(projects.folder() / "held_labels.npy", "<i8", {100},
            std::vector<std::int64_t>(labels.begin() + 20, labels.begin() + 120));
  const auto arguments = [](const std::string& steps, const std::string& out) {
    return std::vector<std::string>{"--data",      "../images.npy,../labels.npy",
                                    "--test-data", "../held_images.npy,../held_labels.npy",
                                    "--steps",     steps,
                                    "--log",       "log",
                                    "--out",       out};
  };
  projects.run("cpu", "lenet_train", arguments("4", ""));
  const std::vector<double> expected = losses(projects.folder() / "cpu/log");
  std::vector<double> first;
  for (const char* order : {"forward", "random:7"}) {
    fs::remove(projects.folder() / "cuda/log");
    projects.run("cuda", "lenet_train", arguments("4", ""), order);
    const std::vector<double> got = losses(projects.folder() / "cuda/log");
    expect_same_losses(got, expected, 1e-4);
    EXPECT_TRUE(first.empty() || got == first) << "other losses in the order " << order;
    first = got;
    const auto on_cuda = evaluations(projects.folder() / "cuda/log"),
               on_cpu = evaluations(projects.folder() / "cpu/log");
    ASSERT_EQ(on_cuda.size(), on_cpu.size());
    ASSERT_FALSE(on_cpu.empty());
    for (std::size_t e = 0; e < on_cpu.size(); ++e) {
      EXPECT_NEAR(on_cuda[e].first, on_cpu[e].first, 1e-4 * on_cpu[e].first) << order;
      EXPECT_EQ(on_cuda[e].second, on_cpu[e].second) << order;
    }
  }
  // Stopped within the second epoch and resumed from the checkpoint: the same losses, bit for bit.
  fs::remove(projects.folder() / "cuda/log");
  auto stopped = arguments("3", "checkpoints");
  projects.run("cuda", "lenet_train", stopped);
  auto resumed = arguments("4", "checkpoints");
  resumed.emplace_back("--resume");
  projects.run("cuda", "lenet_train", resumed);
  EXPECT_EQ(losses(projects.folder() / "cuda/log"), first);
  projects.run("cuda", "selftest", {});

  // Steps ahead of the device, data that lies there, and a label that is no class, which a program's own data may have:
  // the error of the processor, and nothing is learned.
  EXPECT_EQ(projects.run_user(filled(kHost + kTraining, {{"NAME", "lenet_train"}})),
            "finish_step: expected a step under way, found none\n"
            "begin_step: expected at most 2 steps under way, found a third; finish_step() ends the first\n"
            "the same losses ahead: yes\n"
            "and weights: yes\n"
            "the same losses on the caller's stream: yes\n"
            "and weights: yes\n"
            "step: expected 1 or more, found 0\n"
            "loss_fn, 03_lenet.cpp:31: cross_entropy: label 10 at position 5 is outside [0, 10)\n"
            "finish_step: expected a step under way, found none\n"
            "the weights stay: yes\n"
            "loss_fn, 03_lenet.cpp:31: cross_entropy: label -1 at position 63 is outside [0, 10)\n"
            "again: yes\n"
            "and it goes on: yes\n"
            "C has the loss: yes\n"
            "1 finish_step: expected a step under way, found none\n");

  // The program runs ahead unless a step is logged or saved: the same losses and checkpoints either way.
  labels.clear();
  for (std::int64_t i = 0; i < 192; ++i) labels.push_back(i * 7 % 10);
  write_npy(projects.folder() / "images.npy", "<f4", {192, 1, 28, 28}, numbers(192 * 784, 2));
  write_npy(projects.folder() / "labels.npy", "<i8", {192}, labels);
  std::map<std::string, std::string> saved;
  std::vector<double> logged;
  for (const char* every : {"1", "2"}) {
    fs::remove_all(projects.folder() / "cuda/saved");
    fs::remove(projects.folder() / "cuda/log");
    projects.run("cuda", "lenet_train",
                 {"--data", "../images.npy,../labels.npy", "--epochs", "1", "--log", "log", "--log-every", every,
                  "--out", "saved", "--checkpoint-every", "2", "--keep", "9"});
    std::vector<double> found = losses(projects.folder() / "cuda/log");
    const auto files = checkpoints(projects.folder() / "cuda/saved");
    EXPECT_EQ(files.size(), 4u);
    EXPECT_TRUE(saved.empty() || files == saved) << "other checkpoints";
    saved = files;
    if (logged.empty())
      logged = found;
    else
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], logged[2 * i + 1]) << i;
  }
  EXPECT_EQ(logged.size(), 3u);
}

const std::string kInference = R"(
int main() {
  const auto weights = std::make_shared<const Weights>("weights.safetensors", 1);
  Model model(weights);
  std::vector<float> x(4), expected(3), found(3);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 5 % 7);
  model.forward(x.data(), expected.data());

  cudaSetDevice(1);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  model.use_stream(stream);
  float *on_device = nullptr, *pinned = nullptr;
  cudaMalloc(&on_device, found.size() * sizeof(float));
  cudaMallocHost(&pinned, found.size() * sizeof(float));
  for (int i = 0; i < 3; ++i) {
    const Late<float> late(x, stream);
    model.enqueue(late.device, on_device);
    cudaMemcpyAsync(pinned, on_device, found.size() * sizeof(float), cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    said("on the device", std::memcmp(pinned, expected.data(), found.size() * sizeof(float)) == 0);
  }
  // Two behind one another, from the host's page-locked memory, and other weights while they are under way.
  const Late<float> first(x, stream), second(std::vector<float>(x.rbegin(), x.rend()), stream);
  model.enqueue(first.host, pinned);
  model.enqueue(second.host, on_device);
  model.use(std::make_shared<const Weights>("", 1));
  model.wait();
  said("from the host", std::memcmp(pinned, expected.data(), found.size() * sizeof(float)) == 0);
  model.use(weights);
  model.forward(second.device, found.data());
  std::vector<float> other(found.size());
  cudaMemcpyAsync(other.data(), on_device, other.size() * sizeof(float), cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  said("and back", other == found && other != expected);

  NAME_weights* c_weights = nullptr;
  NAME_model* c = nullptr;
  std::fill(found.begin(), found.end(), 0.0f);
  const int status = NAME_load("weights.safetensors", 1, &c_weights) | NAME_create(c_weights, &c) |
                     NAME_use_stream(c, stream) | NAME_enqueue(c, first.device, found.data()) | NAME_wait(c);
  said("C has the same", status == 0 && found == expected);
  NAME_destroy(c);
  NAME_unload(c_weights);
  model.use_stream(nullptr);
  cudaFree(on_device);
  cudaFreeHost(pinned);
  cudaStreamDestroy(stream);
}
)";

TEST(CudaProjects, MyLinear) {
  Projects projects("my_linear", my_linear());
  write_npy(projects.folder() / "x.npy", "<f4", {11, 4}, numbers(44, 2));  // a whole batch and a partial one
  projects.run("cpu", "my_linear", {"--data", "../x.npy", "--output", "y.npy"});
  const std::vector<float> expected = read_npy(projects.folder() / "cpu/y.npy");
  ASSERT_EQ(expected.size(), 33u);
  std::string first;
  for (const char* order : kOrders) {
    projects.run("cuda", "my_linear", {"--data", "../x.npy", "--output", "y.npy"}, order);
    const std::vector<float> got = read_npy(projects.folder() / "cuda/y.npy");
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << order;
    const std::string bytes = read_text(projects.folder() / "cuda/y.npy");
    EXPECT_TRUE(first.empty() || bytes == first) << "other bits in the order " << order;
    first = bytes;
  }
  projects.run("cuda", "selftest", {});
  // On another device; and options that are wrong there.
  projects.run("cuda", "my_linear", {"--data", "../x.npy", "--output", "y.npy", "--device", "1"});
  EXPECT_EQ(read_text(projects.folder() / "cuda/y.npy"), first);
  projects.run("cuda", "my_linear", {"--data", "../x.npy", "--output", "y_one_by_one.npy", "--no-cuda-graph"});
  EXPECT_EQ(read_text(projects.folder() / "cuda/y_one_by_one.npy"), first);
  const std::tuple<const char*, const char*, const char*> wrong[] = {
      {"cuda", "--device=7", "device: expected 0 to 1, found 7"},
      {"cuda", "--threads=2", "--threads: all work is the CUDA device's; --device N chooses which"},
      {"cpu", "--device=1", "--device: the program was emitted for the processor"},
      {"cpu", "--no-cuda-graph", "--no-cuda-graph: the program was emitted for the processor"},
  };
  for (const auto& [target, option, message] : wrong) {
    const std::string said = projects.failure(target, "my_linear", {"--data", "../x.npy", option});
    EXPECT_NE(said.find(message), std::string::npos) << said;
  }

  // The caller's stream, and data that lies on the device.
  EXPECT_EQ(projects.run_user(filled(kHost + kInference, {{"NAME", "my_linear"}})),
            "on the device: yes\non the device: yes\non the device: yes\nfrom the host: yes\nand back: yes\n"
            "C has the same: yes\n");
}

}  // namespace
}  // namespace graven::codegen
