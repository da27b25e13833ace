// Host threads at once: eager training, graphs, compiled programs, a compiled library's instances. Each thread's
// numbers are those of one thread alone. Built with ThreadSanitizer (-DGRAVEN_SANITIZE=thread), this is the test that
// finds races.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "codegen/build/cache.h"
#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "tests/emit/graphs.h"

namespace graven {
namespace {

namespace fs = std::filesystem;

constexpr int kThreads = 4;

/// Runs body(0) to body(kThreads - 1) on a thread each, all at once.
void at_once(const std::function<void(int)>& body) {
  std::atomic<int> waiting{kThreads};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      body(i);
    });
  }
  for (std::thread& t : threads) t.join();
}

struct Mlp : nn::Module<Mlp> {
  nn::Linear hidden = child("hidden", nn::Linear(6, 20));
  nn::Linear logits = child("logits", nn::Linear(20, 3));
  Tensor forward(Tensor x) { return logits(relu(hidden(x))); }
};

/// A model whose numbers depend on `seed` alone.
Mlp model_of(int seed) {
  Mlp model;
  std::int64_t i = 0;
  NoGradGuard no_grad;
  for (Tensor& p : model.parameters())
    p.copy_(sin(arange(0.0, static_cast<double>(p.numel())).to(f32) * (0.3 + seed) + i++).reshape(p.shape()) * 0.2);
  return model;
}
Tensor inputs_of(int seed) { return cos(arange(0.0, 48.0).to(f32) * (0.7 + seed)).reshape({8, 6}); }
Tensor labels() { return tensor({0, 1, 2, 0, 1, 2, 0, 1}); }

std::vector<double> train_eagerly(int seed, int steps) {
  Mlp model = model_of(seed);
  optim::Adam optimizer(model.parameters(), {.lr = 0.01});
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    Tensor loss = cross_entropy(model(inputs_of(seed)), labels());
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

TEST(Threads, TrainEagerly) {
  std::vector<std::vector<double>> alone(kThreads), together(kThreads);
  for (int i = 0; i < kThreads; ++i) alone[static_cast<std::size_t>(i)] = train_eagerly(i, 5);
  at_once([&](int i) { together[static_cast<std::size_t>(i)] = train_eagerly(i, 5); });
  EXPECT_EQ(together, alone);
}

TEST(Threads, ReadOneModel) {
  const Mlp model = model_of(1);
  const std::vector<double> expected = model(inputs_of(2)).to_vector<double>();
  at_once([&](int) {
    NoGradGuard no_grad;
    for (int i = 0; i < 5; ++i) EXPECT_EQ(model(inputs_of(2)).to_vector<double>(), expected);
  });
  // With gradients, too: each thread has its own graph of the computation, and reads the shared parameters.
  at_once([&](int) {
    const Tensor x = inputs_of(2).requires_grad_();
    const std::vector<Tensor> g = grad({model(x).sum()}, {x});
    EXPECT_EQ(g.at(0).shape(), x.shape());
  });
}

TEST(Threads, ShareRandomNumbers) {
  manual_seed(3);
  at_once([](int) {
    for (int i = 0; i < 20; ++i) EXPECT_LE(rand({16}).amax().item<double>(), 1.0);
  });
}

struct TrainGraph : nn::Graph<TrainGraph> {
  Mlp model;
  optim::SGD optimizer;
  explicit TrainGraph(Mlp mlp)
      : model(child("model", mlp)), optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9}) {
    add_optimizer(optimizer);
  }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = cross_entropy(model(x), y);
    loss.backward();
    return loss;
  }
};
struct InferGraph : nn::Graph<InferGraph> {
  Mlp model;
  explicit InferGraph(Mlp mlp) : model(child("model", mlp)) {}
  Tensor build(Tensor x) { return model(x).softmax(1); }
};

std::vector<double> train_graph(int seed, int steps) {
  TrainGraph graph(model_of(seed));
  graph.set_threads(1 + seed % 2);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) losses.push_back(graph(inputs_of(seed), labels()).item<double>());
  return losses;
}

TEST(Threads, RunGraphs) {
  // The first ones meet in the empty cache: one compiles, the others wait for it.
  std::vector<std::vector<double>> together(kThreads), alone(kThreads);
  at_once([&](int i) { together[static_cast<std::size_t>(i)] = train_graph(i, 5); });
  for (int i = 0; i < kThreads; ++i) alone[static_cast<std::size_t>(i)] = train_graph(i, 5);
  EXPECT_EQ(together, alone);

  // Graphs over one model, a thread each.
  const Mlp shared = model_of(1);
  std::vector<std::vector<double>> outputs(kThreads);
  at_once([&](int i) {
    InferGraph graph(shared);
    for (int k = 0; k < 5; ++k) outputs[static_cast<std::size_t>(i)] = graph(inputs_of(2)).to_vector<double>();
  });
  for (const auto& output : outputs) EXPECT_EQ(output, outputs[0]);

  // One graph: its calls give what they should, or say that they meet another one.
  InferGraph graph(shared);
  graph(inputs_of(2));
  at_once([&](int) {
    for (int k = 0; k < 50; ++k) {
      try {
        EXPECT_EQ(graph(inputs_of(2)).to_vector<double>(), outputs[0]);
      } catch (const UserError& e) {
        EXPECT_NE(std::string(e.what()).find("runs in another thread: a graph makes one call at a time"),
                  std::string::npos)
            << e.what();
      }
    }
  });
}

TEST(Threads, SaveTheSameFile) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "threads_save";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const std::string path = (folder / "model.safetensors").string();
  at_once([&](int i) {
    for (int k = 0; k < 5; ++k) {
      nn::save(model_of(i).state_dict(), path);
      Mlp loaded;
      loaded.load_state_dict(nn::load(path));  // somebody's, whole
    }
  });
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1) << "no temporary file is left";
}

// The emitted library: instances that share weights, weights replaced meanwhile, and the C interface, from host threads
// that each have a pool.
TEST(Threads, RunEmittedInstances) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "threads_project";
  fs::remove_all(folder);  // a host of its own is added to what is emitted
  codegen::emit(codegen::my_linear(), folder, {.name = "my_linear", .format = false});
  std::ofstream(folder / "host.cpp") << R"(#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "model.h"

int main() {
  const auto first = std::make_shared<const my_linear::Weights>("weights.safetensors");
  const auto second = std::make_shared<const my_linear::Weights>("");
  float x[8 * 4];
  for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(i % 7) - 3;
  float expected[8 * 3];
  my_linear::Model(first, 1).forward(x, 8, expected);
  std::vector<int> wrong(8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      my_linear::Model model(first, 1 + t % 3);
      for (int k = 0; k < 200; ++k) {
        float y[8 * 3] = {};
        model.use(k % 3 == 0 ? second : first);
        model.forward(x, 8, y);
        for (int i = 0; i < 24; ++i)
          if (std::fabs(y[i] - (k % 3 == 0 ? 0 : expected[i])) > 1e-6F) ++wrong[t];
      }
    });
  for (int t = 4; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 20; ++k) {
        my_linear_weights* weights = nullptr;
        my_linear_model* model = nullptr;
        wrong[t] += my_linear_load("none.safetensors", &weights) != MY_LINEAR_ERROR ||
                    std::string(my_linear_error()).find("none") == std::string::npos;
        wrong[t] += my_linear_load("weights.safetensors", &weights) != MY_LINEAR_OK;
        wrong[t] += my_linear_create(weights, 2, &model) != MY_LINEAR_OK;
        my_linear_unload(weights);
        float y[8 * 3] = {};
        wrong[t] += my_linear_forward(model, x, 9, y) != MY_LINEAR_BAD_ARGUMENT;
        wrong[t] += my_linear_forward(model, x, 8, y) != MY_LINEAR_OK;
        for (int i = 0; i < 24; ++i) wrong[t] += std::fabs(y[i] - expected[i]) > 1e-6F;
        my_linear_destroy(model);
      }
    });
  for (std::thread& t : threads) t.join();
  int all = 0;
  for (const int w : wrong) all += w;
  std::printf("%d wrong\n", all);
  return all != 0;
}
)";
  std::ofstream(folder / "CMakeLists.txt", std::ios::app)
      << "\nadd_executable(host host.cpp)\ntarget_link_libraries(host PRIVATE ${PROJECT_NAME}_model)\n";
  const std::string build = (folder / "build").string();
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"cmake", "-S", folder.string(), "-B", build, "-DCMAKE_CXX_COMPILER=" GRAVEN_CXX,
                                 GRAVEN_THREAD_SANITIZER ? "-DGRAVEN_SANITIZE=thread" : "-DGRAVEN_SANITIZE=OFF"},
        {"cmake", "--build", build, "-j2", "--target", "host"},
        {build + "/host"}}) {
    const codegen::ProcessResult r = codegen::run_process(command, {.directory = folder.string(), .seconds = 300});
    EXPECT_EQ(r.exit_status, 0) << r.output;
    EXPECT_EQ(r.output.find("WARNING: ThreadSanitizer"), std::string::npos) << r.output;
  }
}

}  // namespace
}  // namespace graven
