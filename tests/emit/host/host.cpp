// Two emitted projects in one program, used by several threads at once: every thread has its models, the weights are
// shared.
#include <mlp_train/model.h>
#include <my_linear/model.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t kThreads = 4, kRows = 8, kIn = 4, kOut = 3, kBatch = 64, kPixels = 784;

struct Result {
  std::vector<float> y;
  std::vector<double> losses;
  std::string error;
};

void serve(const std::shared_ptr<const my_linear::Weights>& weights, int threads, Result& result) {
  std::vector<my_linear::Model> models;  // they move as they are kept in one
  models.emplace_back(std::make_shared<const my_linear::Weights>(""));
  models.emplace_back(weights, threads);
  models[0] = std::move(models[1]);
  my_linear::Model& model = models[0];
  std::vector<float> x(kRows * kIn), y(kRows * kOut);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
  for (const std::size_t rows : {std::size_t{1}, kRows, std::size_t{3}}) {
    model.forward(x.data(), static_cast<std::int64_t>(rows), y.data());
    result.y.insert(result.y.end(), y.begin(), y.begin() + static_cast<std::ptrdiff_t>(rows * kOut));
  }
}

void train(const std::string& path, int threads, Result& result) {
  mlp_train::Model model(threads);
  model.load(path);
  std::vector<float> images(kBatch * kPixels, 0.5f);
  std::vector<std::int64_t> labels(kBatch, 3);
  mlp_train::Hyper hyper;
  for (hyper.step = 1; hyper.step <= 3; ++hyper.step)
    result.losses.push_back(model.step(images.data(), labels.data(), hyper));
  labels[5] = 1000;  // an error of one thread's own, after which its model goes on
  try {
    (void)model.evaluate(images.data(), labels.data());
  } catch (const std::exception& e) {
    result.error = e.what();
  }
  labels[5] = 3;
  result.losses.push_back(model.evaluate(images.data(), labels.data()));
}

}  // namespace

int main(int, char** argv) try {
  const std::string projects = argv[1];
  const auto weights = std::make_shared<const my_linear::Weights>(projects + "/my_linear/weights.safetensors");
  std::vector<Result> results(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      serve(weights, static_cast<int>(i % 2 + 1), results[i]);
      train(projects + "/mlp_train/weights.safetensors", static_cast<int>(i % 2 + 1), results[i]);
    });
  for (std::thread& thread : threads) thread.join();
  const Result& first = results[0];
  for (const Result& r : results)
    if (r.y != first.y || r.losses != first.losses || r.error != first.error) return std::puts("the threads differ"), 1;
  if (std::memcmp(first.y.data(), first.y.data() + kOut, kOut * sizeof(float)) != 0)
    return std::puts("the first row depends on the others"), 1;
  if (!(first.losses[2] < first.losses[0] && first.losses[3] < first.losses[2]))
    return std::puts("the loss does not fall"), 1;
  if (first.error.find("label 1000 at position 5 is outside") == std::string::npos)
    return std::printf("error: '%s'\n", first.error.c_str()), 1;
  std::puts("as it should be");
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
