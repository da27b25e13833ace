// Emitted CUDA projects, whole, on the emulated device: the graphs of samples 1 to 3, as the samples' programs save
// them, are emitted for the CPU and for CUDA, built, and run as programs on the same data. Outputs and losses must
// agree, in every order of the device's threads; and the CUDA program must give the same bits in all of them. Where
// nvcc is present it compiles the same projects.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>
#include <sstream>
#include <tuple>

#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "frontend/eager/oracle.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/op.h"
#include "ir/passes/derive_evaluation.h"
#include "nvrtc_library.h"
#include "projects.h"
#include "tests/call.h"
#include "tests/patterns.h"
#include "tests/read_text.h"

namespace graven::codegen {
namespace {

using ir::DType;
using ir::Origins;
using ir::ValueId;

Origins at(std::string module) { return {{std::move(module), "sample.cpp", 1}}; }

/// A convolution and a linear layer with batch norms, in inference.
Graph with_batch_norms() {
  Graph g;
  g.name = "BatchNorms";
  const ValueId images = g.add_input("images", {DType::f32, {4, 3, 6, 6}});
  const auto norm = [&](const std::string& module, ValueId x, std::int64_t channels) {
    const ir::TensorType type{DType::f32, {channels}};
    const ValueId gamma = g.add_parameter(module + ".weight", type, true),
                  beta = g.add_parameter(module + ".bias", type, true);
    return g.call(
        "batch_norm",
        {x, gamma, beta, g.add_buffer(module + ".running_mean", type), g.add_buffer(module + ".running_var", type)}, {},
        at(module));
  };
  ValueId x =
      g.call("conv2d", {images, g.add_parameter("conv.weight", {DType::f32, {5, 3, 3, 3}}, true)}, {}, at("conv"));
  x = g.call("relu", {norm("conv_norm", x, 5)}, {}, at("conv_norm"));
  x = g.call("mean", {x}, {{"dims", ir::Ints{2, 3}}}, at("pool"));
  x = g.call("linear",
             {x, g.add_parameter("fc.weight", {DType::f32, {7, 5}}, true),
              g.add_parameter("fc.bias", {DType::f32, {7}}, true)},
             {}, at("fc"));
  g.outputs = {norm("fc_norm", x, 7)};
  return g;
}

/// A sum of linear layers, each trained by an optimizer of another kind.
Graph every_optimizer() {
  Graph g;
  g.name = "EveryOptimizer";
  g.training = true;
  const ValueId features = g.add_input("features", {DType::f32, {64, 5}});
  const ValueId y = g.add_input("y", {DType::f32, {64, 1}});
  const std::pair<const char*, std::map<std::string, double>> kinds[] = {
      {"sgd", {{"lr", 0.01}, {"momentum", 0.9}, {"nesterov", 1}}},
      {"adam", {{"lr", 0.01}, {"eps", 1e-3}, {"do_bias_correction", 0}}},
      {"adamw", {{"lr", 0.01}, {"eps", 1e-3}, {"amsgrad", 1}}},
      {"rmsprop", {{"lr", 0.01}, {"eps", 1e-3}}},
      {"rmsprop", {{"lr", 0.01}, {"eps", 1e-2}, {"centered", 1}, {"momentum", 0.5}}},
      {"adagrad", {{"lr", 0.01}, {"initial_accumulator_value", 0.1}, {"lr_decay", 0.1}}},
      {"adadelta", {{"lr", 1}, {"eps", 1e-3}}},
      {"lamb", {{"lr", 0.01}, {"eps", 1e-3}, {"weight_decay", 0.1}}},
      {"nadam", {{"lr", 0.01}, {"eps", 1e-3}, {"weight_decay", 0.1}}},
      {"radam", {{"lr", 0.01}, {"eps", 1e-3}, {"beta2", 0.9}, {"maximize", 0}}},
      {"adamax", {{"lr", 0.01}, {"eps", 1e-3}}},
      {"rprop", {{"lr", 0.001}}},
      {"lion", {{"lr", 0.001}, {"weight_decay", 0.1}}},
      {"lars", {{"lr", 0.01}, {"momentum", 0.9}, {"weight_decay", 0.1}}},
      {"adafactor", {{"lr", 0.01}, {"weight_decay", 0.1}}},
  };
  ValueId sum = ir::kNone;
  for (const auto& [kind, options] : kinds) {
    const std::string module = "layers." + std::to_string(g.optimizers.size());
    const ValueId w = g.add_parameter(module + ".weight", {DType::f32, {1, 5}}, true);
    const ValueId b = g.add_parameter(module + ".bias", {DType::f32, {1}}, true);
    const ValueId x = g.call("linear", {features, w, b}, {}, at(module));
    sum = sum == ir::kNone ? x : g.call("add", {sum, x}, {}, at("model"));
    g.optimizers.push_back({kind, {{{w, b}, options}}, {}});
  }
  const ValueId loss = g.call(
      "mean", {g.call("square", {g.call("sub", {sum, y}, {}, at("loss_fn"))}, {}, at("loss_fn"))}, {}, at("loss_fn"));
  g.outputs = {loss};
  g.losses = {{loss, ir::kNone}};
  return g;
}

/// A program that trains on device 1: what its calls allocate once the model is made, while they are recorded and when
/// they are replayed, and what is copied to the host.
const char* const kTrainingUser = R"(
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include <cuda_runtime.h>

#include "model.h"

using namespace NAME;

std::vector<char> copy_of(const std::vector<Tensor>& tensors) {
  std::vector<char> bytes;
  for (const Tensor& t : tensors) {
    std::size_t n = 4;
    for (const std::int64_t d : t.shape) n *= static_cast<std::size_t>(d);
    if (std::strcmp(t.dtype, "f32") == 0)
      bytes.insert(bytes.end(), static_cast<char*>(t.data), static_cast<char*>(t.data) + n);
  }
  return bytes;
}

int main() {
  Model model(1);
  model.load("weights.safetensors");
  std::vector<TYPE> x(COUNT);
  std::vector<std::int64_t> y(ROWS, 3);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<TYPE>(i * 5 % 7);
  Hyper hyper;
  cuda_on_cpu::reset_statistics();
  for (int i = 0; i < 3; ++i, ++hyper.step) {
    if (i == 2) cuda_on_cpu::reset_statistics();
    model.forward(x.data(), y.data(), hyper);
    model.backward(x.data(), y.data(), hyper);
    model.update(hyper);
    model.step(x.data(), y.data(), hyper);
    model.evaluate(x.data(), y.data());
    if (i == 0) continue;  // with symbolic sizes the second calls are recorded
    const auto s = cuda_on_cpu::statistics();
    std::printf("%s: %lld allocations, %lld descriptors\n", i == 1 ? "recorded" : "replayed",
                static_cast<long long>(s.allocations), static_cast<long long>(s.descriptors));
    if (i == 2) std::printf("%lld graph launches\n", static_cast<long long>(s.graph_launches));
  }
  const auto before = cuda_on_cpu::statistics();
  const Tensor predictions = model.predictions();
  const auto after = cuda_on_cpu::statistics();
  std::printf("predictions: %lld bytes\n", static_cast<long long>(after.bytes_to_host - before.bytes_to_host));
  const Tensor scores = model.scores();
  const std::int64_t classes = scores.shape[1];
  for (std::int64_t row = 0; row < scores.shape[0]; ++row) {
    const float* score = static_cast<const float*>(scores.data) + row * classes;
    std::int64_t best = 0;
    for (std::int64_t c = 1; c < classes; ++c)
      if (score[c] > score[best]) best = c;
    if (static_cast<const std::int64_t*>(predictions.data)[row] != best)
      std::printf("row %lld: another prediction\n", static_cast<long long>(row));
  }
  const std::vector<char> old_states = copy_of(model.states());
  model.step(x.data(), y.data(), hyper);
  try {
    model.write_back();
    std::printf("copies of before the step were written back\n");
  } catch (const std::exception& e) {
    std::printf("error: %s\n", e.what());
  }
  const std::vector<Tensor> parameters = model.parameters();
  static_cast<float*>(parameters[0].data)[0] = 42;
  model.write_back();
  if (copy_of(model.states()) == old_states) std::printf("the states are old ones\n");
  std::printf("parameter: %g\n", static_cast<double>(*static_cast<float*>(model.parameters()[0].data)));
  model.gradients();
  model.results();
  int device = -1;
  cudaGetDevice(&device);
  std::printf("%lld bytes pinned, device %d\n", static_cast<long long>(cuda_on_cpu::statistics().bytes_pinned), device);
  try {
    Model(7);
  } catch (const std::exception& e) {
    std::printf("error: %s\n", e.what());
  }
}
)";

/// Trains three models of one process: two whose calls are recorded and replayed, one on each device, and one whose
/// calls are given one by one. Sizes take turns; inputs, rates, numbers of steps and seeds change from call to call.
const char* const kReplayingUser = R"(
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "model.h"

using namespace NAME;

std::vector<char> copy_of(const std::vector<Tensor>& tensors) {
  std::vector<char> bytes;
  for (const Tensor& t : tensors) {
    std::size_t n = 4;
    for (const std::int64_t d : t.shape) n *= static_cast<std::size_t>(d);
    if (std::strcmp(t.dtype, "f32") == 0)
      bytes.insert(bytes.end(), static_cast<char*>(t.data), static_cast<char*>(t.data) + n);
  }
  return bytes;
}

Model plain(0), replayed(0), elsewhere(1);

/// Whether the three say the same of `call`.
template <class Call>
void compare(const char* what, int i, const Call& call) {
  const auto expected = call(plain);
  if (call(replayed) != expected) std::printf("%s %d: another result of the graph\n", what, i);
  if (call(elsewhere) != expected) std::printf("%s %d: another result on the other device\n", what, i);
}

int main() {
  plain.use_cuda_graph(false);
  for (Model* const model : {&plain, &replayed, &elsewhere}) model->load("weights.safetensors");
  std::vector<TYPE> x(COUNT);
  std::vector<std::int64_t> y(ROWS);
  Hyper hyper;
  const auto next = [&](int i) {
    for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<TYPE>((k * 5 + static_cast<std::size_t>(i)) % 7);
    for (std::size_t k = 0; k < y.size(); ++k) y[k] = static_cast<std::int64_t>(k + static_cast<std::size_t>(i)) % 4;
    hyper.step = i + 1;
    hyper.seed = 100 - i * i;
    for (double& rate : hyper.learning_rates) rate = 0.01 * (1 + i % 3);
  };
  std::vector<double> losses;
  cuda_on_cpu::reset_statistics();
  for (int i = 0; i < 6; ++i) {
    next(i);
    compare("step", i, [&](Model& m) {
      const double loss = i % 2 == 0 ? m.step(x.data(), y.data()SIZES, hyper) : m.step(x.data(), y.data()OTHERS, hyper);
      if (&m == &plain) losses.push_back(loss);
      return loss;
    });
  }
  std::printf("%lld graph launches\n", static_cast<long long>(cuda_on_cpu::statistics().graph_launches));
  for (std::size_t i = 0; i + 1 < losses.size(); ++i)
    if (losses[i] == losses[i + 1]) std::printf("step %zu: the same loss as before\n", i + 1);
  compare("weights", 6, [](Model& m) { return copy_of(m.parameters()); });
  compare("states", 6, [](Model& m) { return copy_of(m.states()); });
  compare("gradients", 6, [](Model& m) { return copy_of(m.gradients()); });
  // Nothing changes between evaluations: what comes again is what it was.
  double first[2] = {};
  for (int i = 0; i < 5; ++i)
    compare("evaluation", i, [&](Model& m) {
      const double loss = i % 2 == 0 ? m.evaluate(x.data(), y.data()SIZES) : m.evaluate(x.data(), y.data()OTHERS);
      if (i < 2) first[i] = loss;
      if (loss != first[i % 2]) std::printf("evaluation %d: not what it was\n", i);
      return loss;
    });
  for (int i = 6; i < 9; ++i) {
    next(i);
    compare("forward", i, [&](Model& m) { return m.forward(x.data(), y.data()SIZES, hyper); });
    compare("backward", i, [&](Model& m) {
      m.backward(x.data(), y.data()SIZES, hyper);
      return copy_of(m.gradients());
    });
    compare("update", i, [&](Model& m) {
      m.update(hyper);
      return copy_of(m.parameters());
    });
  }
  // Written into what the graph reads.
  compare("write_back", 9, [&](Model& m) {
    static_cast<float*>(m.parameters()[0].data)[0] = 2;
    m.write_back();
    return m.step(x.data(), y.data()SIZES, hyper);
  });
  // And back to calls one by one, and to graphs.
  for (const bool on : {false, true}) {
    replayed.use_cuda_graph(on);
    ++hyper.step;
    compare(on ? "on" : "off", 10, [&](Model& m) { return m.step(x.data(), y.data()SIZES, hyper); });
  }
  Model moved = std::move(replayed);
  replayed = std::move(moved);
  compare("moved", 11, [&](Model& m) { return m.step(x.data(), y.data()SIZES, hyper); });
}
)";

/// The same of inference, in BATCH samples of FEATURES numbers, with RESULTS results.
const char* const kInferenceUser = R"(
#include <cstdio>
#include <exception>
#include <vector>

#include <cuda_runtime.h>

#include "model.h"

using namespace NAME;

int main() {
  const auto on_second = std::make_shared<const Weights>("weights.safetensors", 1);
  const auto on_first = std::make_shared<const Weights>("weights.safetensors");
  Model model(on_second), other(on_first);
  std::vector<float> x(BATCH * FEATURES), y(BATCH * RESULTS), z(BATCH * RESULTS);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 5 % 7);
  const auto report = [](const char* what) {
    const auto s = cuda_on_cpu::statistics();
    std::printf("%s: %lld allocations, %lld descriptors, %lld graph launches\n", what,
                static_cast<long long>(s.allocations), static_cast<long long>(s.descriptors),
                static_cast<long long>(s.graph_launches));
    cuda_on_cpu::reset_statistics();
  };
  cuda_on_cpu::reset_statistics();
  FORWARD
  other.forward(x.data(), MORE z.data());
  if (y != z) std::printf("two devices differ\n");
  // Other weights, once the calls are recorded.
  const auto results = [&](Model& m) {
    std::vector<float> r(BATCH * RESULTS);
    m.forward(x.data(), MORE r.data());
    return r;
  };
  const auto zeros = std::make_shared<const Weights>("", 1);
  Model of_zeros(zeros);
  of_zeros.use_cuda_graph(false);
  const std::vector<float> expected = results(of_zeros);
  if (expected == y) std::printf("all weights give the same\n");
  for (int i = 0; i < 3; ++i)
    if (results(model) != y) std::printf("call %d: not what it was\n", i);
  model.use(zeros);
  for (int i = 0; i < 3; ++i)
    if (results(model) != expected) std::printf("call %d: not with the other weights\n", i);
  model.use(on_second);
  for (int i = 0; i < 3; ++i)
    if (results(model) != y) std::printf("call %d: not with the first weights\n", i);
  std::printf("%lld bytes pinned\n", static_cast<long long>(cuda_on_cpu::statistics().bytes_pinned));
  try {
    model.use(on_first);
  } catch (const std::exception& e) {
    std::printf("error: %s\n", e.what());
  }
  NAME_weights* weights = nullptr;
  const int status = NAME_load("weights.safetensors", 2, &weights);
  std::printf("%d: %s\n", status, NAME_error());
  int device = -1;
  cudaGetDevice(&device);
  std::printf("device %d\n", device);
}
)";

void fit_a_polynomial(const std::string& name, bool update_in_backward) {
  Graph graph = fit_polynomial();
  if (update_in_backward) graph.config[std::string(ir::kUpdateInBackward)] = true;
  Projects projects(name, graph);
  std::vector<float> features, y;
  for (int i = 0; i < 2000; ++i) {
    const double x = -std::numbers::pi + 2 * std::numbers::pi * i / 1999;
    for (const double power : {x, x * x, x * x * x}) features.push_back(static_cast<float>(power));
    y.push_back(static_cast<float>(std::sin(x)));
  }
  write_npy(projects.folder() / "features.npy", "<f4", {2000, 3}, features);
  write_npy(projects.folder() / "y.npy", "<f4", {2000}, y);
  const std::vector<std::string> arguments = {
      "--data", "../features.npy,../y.npy", "--epochs", "20", "--no-shuffle", "--warmup", "10", "--log", "log", "--out",
      "saved"};
  projects.run("cpu", name, arguments);
  const std::vector<double> expected = losses(projects.folder() / "cpu/log");
  EXPECT_LT(expected.back(), expected.front());
  std::vector<double> first;
  std::map<std::string, std::string> saved;
  for (const Way& way :
       {Way{"forward", ""}, Way{"reverse", ""}, Way{"random:7", ""}, Way{"forward", "--no-cuda-graph"}}) {
    SCOPED_TRACE(std::string(way.order) + " " + way.option);
    fs::remove(projects.folder() / "cuda/log");
    fs::remove_all(projects.folder() / "cuda/saved");
    projects.run("cuda", name, with_option(arguments, way), way.order);
    const std::vector<double> got = losses(projects.folder() / "cuda/log");
    expect_same_losses(got, expected, 1e-5);
    EXPECT_TRUE(first.empty() || got == first) << "other losses";
    first = got;
    const auto files = checkpoints(projects.folder() / "cuda/saved");
    EXPECT_GE(files.size(), 2u);
    EXPECT_TRUE(saved.empty() || files == saved) << "other weights";
    saved = files;
  }
  projects.run("cuda", "selftest", {});

  // Profiled, one call by one: the same losses, and which calls each phase makes.
  const std::vector<std::string> data = {"--data", "../features.npy,../y.npy", "--no-shuffle", "--warmup", "10"};
  std::vector<std::string> profile = data;
  profile.insert(profile.end(), {"--log", "log", "--profile", "trace.json", "--profile-steps", "4"});
  fs::remove(projects.folder() / "cuda/log");
  const std::string table = projects.run("cuda", name, profile);
  const std::vector<double> profiled = losses(projects.folder() / "cuda/log");
  ASSERT_EQ(profiled.size(), 7u);
  EXPECT_TRUE(std::equal(profiled.begin(), profiled.end(), first.begin())) << "other losses";
  EXPECT_NE(table.find(", device 0, batch 2000: "), std::string::npos) << table;
  EXPECT_NE(table.find("\nlimits, measured now: "), std::string::npos) << table;
  std::map<std::string, std::set<std::string>> modules;
  double in_steps = 0, in_calls = 0;
  const auto trace = nlohmann::json::parse(read_text(projects.folder() / "cuda/trace.json"));
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    (event.at("cat") == "step" ? in_steps : in_calls) += event.at("dur").get<double>();
    if (event.at("cat") != "step") modules[event.at("cat")].insert(event.at("args").at("module").get<std::string>());
  }
  EXPECT_LE(in_calls, in_steps);
  std::map<std::string, std::set<std::string>> expected_modules = {
      {"forward", {"model.0", "loss_fn"}}, {"backward", {"model.0", "loss_fn"}}, {"update", {"optimizer"}}};
  if (update_in_backward) expected_modules.erase("update");  // the modules' own, within backward
  EXPECT_EQ(modules, expected_modules);

  // Ranges of NVTX: where calls are recorded, once; one by one, in each step.
  const auto count = [](const std::string& text, const std::string& line) {
    std::size_t found = 0;
    for (std::size_t at = text.find(line); at != std::string::npos; at = text.find(line, at + 1)) ++found;
    return found;
  };
  std::vector<std::string> steps = data;
  steps.insert(steps.end(), {"--steps", "3", "--out", ""});
  const std::string once = projects.ranges_of(steps);
  steps.emplace_back("--no-cuda-graph");
  const std::string each = projects.ranges_of(steps);
  EXPECT_EQ(once.find("forward\nmodel.0: linear + bias + sub\npop\n"), 0u) << once;
  EXPECT_EQ(count(once, "model.0: linear + bias + sub\n"), 1u) << once;
  EXPECT_EQ(count(each, "model.0: linear + bias + sub\n"), 3u) << each;
  EXPECT_EQ(2 * count(each, "pop\n"), static_cast<std::size_t>(std::count(each.begin(), each.end(), '\n')));
}

TEST(CudaProjects, PolynomialFit) { fit_a_polynomial("fit_polynomial", false); }
TEST(CudaProjects, PolynomialFitUpdatesInBackward) { fit_a_polynomial("fit_polynomial_updates_in_backward", true); }

/// One at a time; the self-test, which runs every phase, says what is wrong.
TEST(CudaProjects, FaultsInTheTextAreNoticed) {
  Projects projects("faults", fit_polynomial());
  struct Fault {
    const char *file, *from, *to, *message;
  };
  const Fault faults[] = {
      {"kernels/cuda/device.cuh", "cudaMemsetAsync(device_.data(), 0, bytes, device.execution().stream())",
       "cudaMemset(device_.data(), 0, bytes)", "cudaMemset: work on the default stream"},
      {"kernels/cuda/tensor_list.cuh", "LaunchShape{dim3(list.pieces)", "LaunchShape{dim3(0)",
       "cudaErrorInvalidConfiguration"},
      {"kernels/cuda/update.cuh", "i < piece.end", "i + 1 < piece.end", "parameter.model"},
      {"kernels/cuda/tensor_list.cuh", "(list.sizes[t] + piece_size - 1) / piece_size", "list.sizes[t] / piece_size",
       "parameter.model"},
      {"runtime/session.h", "std::memcpy(next_.data(), &numbers, sizeof numbers)", "(void)numbers", "parameter.model"},
      {"functors.h", "static_cast<C>(lr)", "static_cast<C>(lr * 1.0001)", "parameter.model"},
      {"kernels/cuda/tensor_list.cuh", "list.data[a][t] = arrays[a] != nullptr ? arrays[a][first + t] : nullptr",
       "list.data[a][t] = reinterpret_cast<T*>(&list)", "is not device memory"},
  };
  for (const Fault& fault : faults) {
    const std::string said = projects.fails_with(fault.file, fault.from, fault.to);
    EXPECT_NE(said.find(fault.message), std::string::npos) << fault.file << ", " << fault.to << ":\n" << said;
  }
}

TEST(CudaProjects, EveryOptimizerSteps) {
  Projects projects("every_optimizer", every_optimizer(), /*evaluates_apart=*/false, /*finds_races=*/true);
  write_npy(projects.folder() / "features.npy", "<f4", {128, 5}, numbers(640, 2));
  write_npy(projects.folder() / "y.npy", "<f4", {128, 1}, numbers(128, 1));
  const std::vector<std::string> arguments = {
      "--data", "../features.npy,../y.npy", "--epochs", "5", "--log", "log", "--out", ""};
  projects.run("cpu", "every_optimizer", arguments);
  const std::vector<double> expected = losses(projects.folder() / "cpu/log");
  EXPECT_LT(expected.back(), expected.front());
  for (const char* order : kOrders) {
    fs::remove(projects.folder() / "cuda/log");
    projects.run("cuda", "every_optimizer", arguments, order);
    expect_same_losses(losses(projects.folder() / "cuda/log"), expected, 1e-5);
  }
  projects.run("cuda", "selftest", {});
}

/// Trains on both, with a held-out set that the network evaluates as it infers: without its dropouts, with its running
/// statistics. `write(x, y, n)` writes n samples into two files. `x`: what a step's first input is made of, and how
/// much of it; `rows`: labels of a step. `sizes` stand behind them in a call, as ", 8, 12", and `other_sizes` are
/// smaller. `tolerance`: of losses, relative.
void train_a_network(const std::string& name, const Graph& graph, const std::pair<std::string, std::int64_t>& x,
                     std::int64_t rows, const test::Call<void(const fs::path&, const fs::path&, std::int64_t)>& write,
                     const std::string& sizes = {}, const std::string& other_sizes = {}, double tolerance = 1e-4) {
  Projects projects(name, graph, /*evaluates_apart=*/true, /*finds_races=*/true);
  write(projects.folder() / "x.npy", projects.folder() / "y.npy", 16);
  write(projects.folder() / "held_x.npy", projects.folder() / "held_y.npy", 9);  // the last batch is a partial one
  const std::vector<std::string> arguments = {"--data",      "../x.npy,../y.npy",
                                              "--test-data", "../held_x.npy,../held_y.npy",
                                              "--epochs",    "2",
                                              "--log",       "log",
                                              "--out",       "saved"};
  projects.run("cpu", name, arguments);
  const std::vector<double> expected = losses(projects.folder() / "cpu/log");
  const auto on_cpu = evaluations(projects.folder() / "cpu/log");
  ASSERT_EQ(expected.size(), 4u);
  ASSERT_EQ(on_cpu.size(), 2u);
  std::vector<double> first;
  std::map<std::string, std::string> saved;
  for (const Way& way : {Way{"forward", ""}, Way{"random:7", ""}, Way{"forward", "--no-cuda-graph"}}) {
    SCOPED_TRACE(std::string(way.order) + " " + way.option);
    fs::remove(projects.folder() / "cuda/log");
    fs::remove_all(projects.folder() / "cuda/saved");
    projects.run("cuda", name, with_option(arguments, way), way.order);
    const std::vector<double> got = losses(projects.folder() / "cuda/log");
    expect_same_losses(got, expected, tolerance);
    EXPECT_TRUE(first.empty() || got == first) << "other losses";
    first = got;
    const auto on_cuda = evaluations(projects.folder() / "cuda/log");
    ASSERT_EQ(on_cuda.size(), on_cpu.size());
    for (std::size_t e = 0; e < on_cpu.size(); ++e) {
      EXPECT_NEAR(on_cuda[e].first, on_cpu[e].first, tolerance * on_cpu[e].first);
      EXPECT_EQ(on_cuda[e].second, on_cpu[e].second);
    }
    const auto files = checkpoints(projects.folder() / "cuda/saved");
    EXPECT_GE(files.size(), 2u);
    EXPECT_TRUE(saved.empty() || files == saved) << "other weights";
    saved = files;
  }
  projects.run("cuda", "selftest", {});
  std::string user =
      filled(kTrainingUser,
             {{"NAME", name}, {"TYPE", x.first}, {"COUNT", std::to_string(x.second)}, {"ROWS", std::to_string(rows)}});
  // A call brings its sizes behind its data.
  const std::string data = "y.data()";
  for (std::size_t i = user.find(data); i != std::string::npos; i = user.find(data, i + 1))
    user.insert(i + data.size(), sizes);
  EXPECT_EQ(
      projects.run_user(user),
      "recorded: 0 allocations, 10 descriptors\n"  // five graphs and their executables
      "replayed: 0 allocations, 0 descriptors\n"
      "5 graph launches\n"
      "predictions: " +
          std::to_string(8 * rows + 32) +  // and whether a label was out of range
          " bytes\n"
          "error: write_back: expected parameters() or states() to have been called since the last step, forward() or "
          "update()\n"
          "parameter: 42\n"
          "32 bytes pinned, device 0\n"  // the loss, and what a step is given: a rate, its number, a seed
          "error: device: expected 0 to 1, found 7\n");
  // Six steps of two models; with two sizes that take turns the first of each is not recorded.
  EXPECT_EQ(projects.run_user(filled(kReplayingUser, {{"NAME", name},
                                                      {"TYPE", x.first},
                                                      {"COUNT", std::to_string(x.second)},
                                                      {"ROWS", std::to_string(rows)},
                                                      {"SIZES", sizes},
                                                      {"OTHERS", other_sizes}})),
            sizes.empty() ? "12 graph launches\n" : "8 graph launches\n");
}

/// Batch norms, depthwise convolutions, residuals and a dropout.
struct SmallMobileNetV2 : models::MobileNetV2 {
  SmallMobileNetV2()
      : models::MobileNetV2({.num_classes = 10,
                             .width_mult = 0.25,
                             .inverted_residual_setting = {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 1, 2}},
                             .dropout = 0.3}) {}
};
struct TrainMobileNetV2 : nn::Graph<TrainMobileNetV2> {
  SmallMobileNetV2 model = child("model", SmallMobileNetV2());
  TrainMobileNetV2() {
    const optim::SGD optimizer(model.parameters(), {.lr = 0.05, .momentum = 0.9});
    add_optimizer(optimizer, lr_scheduler::StepLR(optimizer, {.step_size = 2, .gamma = 0.2}));
  }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = cross_entropy(model(x), y);
    loss.backward();
    return loss;
  }
};

/// Embeddings, layer norms, attention behind a causal mask, dropouts, and a table that two layers share.
struct SmallGpt2 : models::GPT2LMHeadModel {
  explicit SmallGpt2(double attn_pdrop)
      : models::GPT2LMHeadModel({.n_layer = 2,
                                 .n_head = 2,
                                 .n_embd = 32,
                                 .n_positions = 16,
                                 .vocab_size = 48,
                                 .resid_pdrop = 0.1,
                                 .embd_pdrop = 0.1,
                                 .attn_pdrop = attn_pdrop}) {}
};
struct TrainGpt2 : nn::Graph<TrainGpt2> {
  SmallGpt2 model;
  explicit TrainGpt2(double attn_pdrop) : model(child("model", SmallGpt2(attn_pdrop))) {
    const optim::AdamW optimizer(model.parameters(), {.lr = 1e-3});
    add_optimizer(optimizer, lr_scheduler::ExponentialLR(optimizer, {.gamma = 0.5}));
  }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = cross_entropy(model(x).flatten(0, -2), y.flatten());
    loss.backward();
    return loss;
  }
};

TEST(CudaProjects, MobileNetV2Trains) {
  manual_seed(1);
  TrainMobileNetV2 graph;
  train_a_network("mobilenet_v2_train", graph.trace(spec({8, 3, 16, 16}), spec({8}, i64)), {"float", 8 * 768}, 8,
                  [](const fs::path& x, const fs::path& y, std::int64_t n) {
                    std::vector<std::int64_t> labels;
                    for (std::int64_t i = 0; i < n; ++i) labels.push_back(i * 7 % 10);
                    write_npy(x, "<f4", {n, 3, 16, 16}, numbers(static_cast<std::size_t>(n) * 768, 2));
                    write_npy(y, "<i8", {n}, labels);
                  });
}

/// `attn_pdrop`: with some, attention draws numbers, the same as the dropout of the CPU's project. `recomputes`: each
/// block's activations in backward, dropout and all. `half`: in mixed precision, where a sum in another order may round
/// a product to the next bfloat16 number, 2^-8 away.
void train_gpt2(const std::string& name, double attn_pdrop, bool recomputes, bool half = false) {
  manual_seed(1);
  TrainGpt2 graph(attn_pdrop);
  if (half) graph.enable_amp();
  for (models::GPT2Block& block : graph.model.transformer.h) block.activation_checkpointing(recomputes);
  const Dim batch("batch", 8), length("length", 12);
  train_a_network(
      name, graph.trace(spec({batch, length}, i64), spec({batch, length}, i64)), {"std::int64_t", 96}, 96,
      [](const fs::path& x, const fs::path& y, std::int64_t n) {
        std::vector<std::int64_t> tokens;
        for (std::int64_t i = 0; i <= n * 12; ++i) tokens.push_back((i * 31 + i / 7) % 48);
        write_npy(x, "<i8", {n, 12}, std::vector<std::int64_t>(tokens.begin(), tokens.end() - 1));
        write_npy(y, "<i8", {n, 12}, std::vector<std::int64_t>(tokens.begin() + 1, tokens.end()));
      },
      ", 8, 12", ", 8, 7", half ? 2e-3 : 1e-4);
}

TEST(CudaProjects, Gpt2Trains) { train_gpt2("gpt2_train", 0, false); }
TEST(CudaProjects, Gpt2TrainsWithDropoutInAttention) { train_gpt2("gpt2_dropout", 0.1, false); }
TEST(CudaProjects, Gpt2TrainsWithRecomputation) { train_gpt2("gpt2_recomputes", 0.1, true); }
TEST(CudaProjects, Gpt2TrainsInMixedPrecision) { train_gpt2("gpt2_bf16", 0, false, true); }

TEST(CudaProjects, LeNetInfers) {
  // What the sample emits itself, with its weights.
  Projects projects("lenet", sample("03_lenet", "--out") / "lenet",
                    sample("03_lenet", "--out", {"--target", "cuda"}) / "lenet");
  // 8-bit, as the sample's mean and standard deviation are for.
  std::vector<std::uint8_t> pixels;
  for (const float x : numbers(21 * 784, 255)) pixels.push_back(static_cast<std::uint8_t>(x + 127.5f));
  write_npy(projects.folder() / "images.npy", "|u1", {21, 1, 28, 28}, pixels);
  projects.run("cpu", "lenet", {"--data", "../images.npy", "--output", "y.npy"});
  projects.run("cuda", "lenet", {"--data", "../images.npy", "--output", "y.npy"}, "random:3");
  const std::vector<float> expected = read_npy(projects.folder() / "cpu/y.npy"),
                           got = read_npy(projects.folder() / "cuda/y.npy");
  ASSERT_EQ(expected.size(), 210u);
  ASSERT_EQ(got.size(), 210u);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5);
  projects.run("cuda", "selftest", {});
  // Sizes below the largest have their descriptors made at their first call, five of each product and convolution; the
  // second call is recorded: a graph and its executable.
  EXPECT_EQ(projects.run_user(filled(kInferenceUser, {{"FORWARD", R"(
  model.forward(x.data(), maximum_batch, y.data());
  report("largest");
  for (const char* call : {"smaller", "again", "once more"}) {
    model.forward(x.data(), 3, z.data());
    report(call);
  }
  Model plain(on_second);
  plain.use_cuda_graph(false);
  std::vector<float> first(BATCH * RESULTS), again(BATCH * RESULTS);
  for (const std::int64_t n : {3, 5, 3, 5, 3, 64, 1, 5, 64, 3, 1, 1}) {
    for (float& pixel : x) pixel = pixel < 200 ? pixel + 1 : 0;
    plain.forward(x.data(), n, first.data());
    model.forward(x.data(), n, again.data());
    if (first != again) std::printf("%d: another result of the graph\n", static_cast<int>(n));
  }
  model.forward(x.data(), maximum_batch, y.data());
  cuda_on_cpu::reset_statistics();)"},
                                                      {"MORE", "maximum_batch, "},
                                                      {"NAME", "lenet"},
                                                      {"BATCH", "maximum_batch"},
                                                      {"FEATURES", "784"},
                                                      {"RESULTS", "10"}})),
            "largest: 0 allocations, 0 descriptors, 0 graph launches\n"
            "smaller: 0 allocations, 25 descriptors, 0 graph launches\n"
            "again: 0 allocations, 2 descriptors, 1 graph launches\n"
            "once more: 0 allocations, 0 descriptors, 1 graph launches\n"
            "0 bytes pinned\n"
            "error: weights: expected on the model's device, 1, found on device 0\n"
            "3: device: expected 0 to 1, found 2\n"
            "device 0\n");
}

TEST(CudaProjects, BatchNormsAreFolded) {
  Projects projects("batch_norms", with_batch_norms());
  const std::string model = read_text(projects.folder() / "cuda/model.cu");
  EXPECT_NE(model.find("fold_batch_norm(context, config::conv_norm_folded_weight, "), std::string::npos) << model;
  write_npy(projects.folder() / "images.npy", "<f4", {8, 3, 6, 6}, numbers(864, 2));
  projects.run("cpu", "batch_norms", {"--data", "../images.npy", "--output", "y.npy"});
  const std::vector<float> expected = read_npy(projects.folder() / "cpu/y.npy");
  ASSERT_EQ(expected.size(), 56u);
  EXPECT_GT(std::abs(expected[0]), 1e-3);
  for (const char* order : kOrders) {
    projects.run("cuda", "batch_norms", {"--data", "../images.npy", "--output", "y.npy"}, order);
    const std::vector<float> got = read_npy(projects.folder() / "cuda/y.npy");
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << order;
  }
  projects.run("cuda", "selftest", {});
  EXPECT_EQ(projects.run_user(filled(kInferenceUser, {{"FORWARD", R"(for (const char* call : {"recorded", "replayed"}) {
    model.forward(x.data(), y.data());
    report(call);
  })"},
                                                      {"MORE", ""},
                                                      {"NAME", "batch_norms"},
                                                      {"BATCH", "4"},
                                                      {"FEATURES", "108"},
                                                      {"RESULTS", "7"}})),
            "recorded: 0 allocations, 2 descriptors, 1 graph launches\n"
            "replayed: 0 allocations, 0 descriptors, 1 graph launches\n"
            "0 bytes pinned\n"
            "error: weights: expected on the model's device, 1, found on device 0\n"
            "3: device: expected 0 to 1, found 2\n"
            "device 0\n");
}

/// The style network: borders, windows of two strides, norms of what a picture has, enlarged pictures.
struct Pictures : nn::Graph<Pictures> {
  models::TransformerNet model = child("model", models::TransformerNet({.channels = 4}));
  Tensor build(Tensor x) { return model(x); }
};

TEST(CudaProjects, PicturesHaveAnySize) {
  manual_seed(1);
  Pictures graph;
  const ir::Graph& traced = graph.trace(spec({Dim("batch", 2), 3, Dim("height", 16, 24), Dim("width", 16, 24)}));
  Projects projects("pictures", traced);
  for (const auto& [height, width] : {std::pair<std::int64_t, std::int64_t>{24, 24}, {17, 22}}) {
    const std::int64_t count = 3 * 3 * height * width;
    write_npy(projects.folder() / "x.npy", "<f4", {3, 3, height, width}, numbers(static_cast<std::size_t>(count), 2));
    projects.run("cpu", "pictures", {"--data", "../x.npy", "--output", "y.npy"});
    projects.run("cuda", "pictures", {"--data", "../x.npy", "--output", "y.npy"}, "random:3");
    const std::vector<float> expected = read_npy(projects.folder() / "cpu/y.npy"),
                             got = read_npy(projects.folder() / "cuda/y.npy");
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(3 * 3 * ((height + 3) / 4 * 4) * ((width + 3) / 4 * 4)));
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], expected[i], 1e-4 * (1 + std::abs(expected[i]))) << i;
  }
  projects.run("cuda", "selftest", {});
  // Sizes that take turns are recorded when they come for the second time.
  EXPECT_EQ(projects.run_user(R"(
#include <cstdio>
#include <map>
#include <tuple>
#include <vector>

#include <cuda_runtime.h>

#include "model.h"

using namespace pictures;

int main() {
  const auto weights = std::make_shared<const Weights>("weights.safetensors");
  Model model(weights), plain(weights);
  plain.use_cuda_graph(false);
  std::vector<float> x(2 * 3 * 24 * 24);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 5 % 7);
  struct Size {
    std::int64_t batch, height, width;
  };
  cuda_on_cpu::reset_statistics();
  int call = 0;
  const Size first{1, 16, 17}, second{2, 24, 24}, third{1, 17, 16};
  for (const Size& s : {first, second, first, second, first, third}) {
    std::vector<float> got(x.size()), expected(x.size());
    model.forward(x.data(), s.batch, s.height, s.width, got.data());
    plain.forward(x.data(), s.batch, s.height, s.width, expected.data());
    if (got != expected) std::printf("call %d: another result of the graph\n", call);
    ++call;
  }
  std::printf("%lld graph launches\n", static_cast<long long>(cuda_on_cpu::statistics().graph_launches));
}
)"),
            "3 graph launches\n");
}

/// docs/cuda.md, where it says how to do without a GPU.
TEST(CudaProjects, TheDocumentedCommandBuildsAProgram) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "cuda_projects/documented";
  fs::remove_all(folder);
  emit(my_linear(), folder, {.name = "my_linear", .target = "cuda", .format = false});
  const std::string docs = read_text(fs::path(GRAVEN_SOURCE_DIR) / "docs/cuda.md");
  const std::size_t begin = docs.find("    g++ ");
  ASSERT_NE(begin, std::string::npos);
  std::size_t end = docs.find('\n', begin);
  while (docs[end - 1] == '\\') end = docs.find('\n', end + 1);  // the command goes on
  const std::string command = GRAVEN_PROJECT_COMPILER + docs.substr(begin + 7, end - begin - 7);
  run({"/usr/bin/env", std::string("GRAVEN=") + GRAVEN_SOURCE_DIR, std::string("GRAVEN_BUILD=") + GRAVEN_BINARY_DIR,
       "bash", "-c", command},
      folder);
  EXPECT_NE(run({"./program", "--help"}, folder).find("--device N"), std::string::npos);
}

/// Hundreds of values would stand on one another in its plan.
struct DeepGpt2 : nn::Graph<DeepGpt2> {
  models::GPT2LMHeadModel model = child(
      "model", models::GPT2LMHeadModel({.n_layer = 24, .n_head = 2, .n_embd = 16, .n_positions = 8, .vocab_size = 48}));
  DeepGpt2() { add_optimizer(optim::AdamW(model.parameters(), {.lr = 1e-3, .clip_grad_max_norm = 1})); }
  Tensor build(Tensor tokens, Tensor targets) {
    Tensor loss = cross_entropy(model(tokens).flatten(0, 1), targets.flatten());
    loss.backward();
    return loss;
  }
};

TEST(CudaProjects, NvccCompilesThem) {
  std::string nvcc = find_program("nvcc");
  if (nvcc.empty() && fs::exists("/usr/local/cuda/bin/nvcc")) nvcc = "/usr/local/cuda/bin/nvcc";
  if (nvcc.empty()) GTEST_SKIP() << "no CUDA toolkit: no nvcc in the PATH or /usr/local/cuda";
  DeepGpt2 deep;
  const ir::Graph deep_graph = deep.trace(spec({2, 8}, i64, "tokens"), spec({2, 8}, i64, "targets"));
  const struct {
    const char* name;
    ir::Graph graph;
    std::vector<const char*> files;
  } cases[] = {
      {"fit_polynomial", fit_polynomial(), {"model.cu", "model_api.cu"}},
      {"lenet_train", lenet_train(), {"model.cu", "model_api.cu"}},
      {"lenet", lenet_infer(), {"model.cu", "model_api.cu"}},
      {"deep_gpt2", deep_graph, {"model_api.cu"}},  // where the plan is read
  };
  for (const auto& c : cases) {
    const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "cuda_projects" / (std::string("nvcc_") + c.name);
    fs::remove_all(folder);
    emit(c.graph, folder, {.name = c.name, .target = "cuda", .format = false});
    for (const char* file : c.files)
      run({nvcc, "-std=c++20", "-arch=sm_80", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror", "-I.",
           "-c", file, "-o", std::string(file) + ".o"},
          folder);
  }
}

TEST(CudaProjects, CMakeBuildsThemWithNvcc) {
  std::string nvcc = find_program("nvcc");
  if (nvcc.empty() && fs::exists("/usr/local/cuda/bin/nvcc")) nvcc = "/usr/local/cuda/bin/nvcc";
  if (nvcc.empty()) GTEST_SKIP() << "no CUDA toolkit: no nvcc in the PATH or /usr/local/cuda";
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "cuda_projects/cmake_fit_polynomial";
  fs::remove_all(folder);
  emit(fit_polynomial(), folder, {.name = "fit_polynomial", .target = "cuda", .format = false});
  if (run_process({"cmake", "--version"}, {.seconds = 20}).output < "cmake version 3.24")
    GTEST_SKIP() << "a CUDA project needs CMake 3.24";
  const std::string said = run({"cmake", "-S", ".", "-B", "build", "-DCMAKE_CUDA_COMPILER=" + nvcc,
                                "-DGRAVEN_CUDA_ARCHITECTURES=80", "-DCMAKE_BUILD_TYPE=Debug", "-DGRAVEN_NVTX=ON"},
                               folder);
  EXPECT_EQ(said.find("Error"), std::string::npos) << said;
  run({"cmake", "--build", "build", "-j2"}, folder);
  for (const char* program : {"fit_polynomial", "selftest"})
    EXPECT_TRUE(fs::exists(folder / "build" / program)) << program;
}

TEST(CudaProjects, NvrtcCompilesTheirGeneratedFunctors) {
  const cuda_on_cpu::Nvrtc nvrtc;
  if (!nvrtc) GTEST_SKIP() << cuda_on_cpu::Nvrtc::missing;
  int seen = 0;
  for (const Graph& graph : {my_linear(), fit_polynomial(), lenet_train(), lenet_infer()}) {
    const auto files = render_project(graph, {.name = "project", .target = "cuda", .format = false});
    const auto found = files.find("functors.h");
    if (found == files.end()) continue;
    const std::string& text = found->second;
    std::vector<std::string> kernels;
    for (const tests::Match& functor :
         tests::matches(text, "struct (\\w+) \\{\\s*static constexpr int inputs = (\\d+);")) {
      const std::string name = "project::" + functor.groups[1];
      const int inputs = std::stoi(functor.groups[2]);
      std::string types = "float";
      for (int i = 0; i < inputs; ++i) types += ", float";
      kernels.push_back("graven::kernels::elementwise_kernel<" + name + ", " + types + ">");
      kernels.push_back("graven::kernels::broadcast_kernel<" + name + ", " + types + ">");
      if (inputs <= 2) kernels.push_back("graven::kernels::epilogue_kernel<" + name + ", float>");
      ++seen;
    }
    const std::string source =
        "#include \"kernels/cuda/elementwise.cuh\"\n#include \"kernels/cuda/epilogue.cuh\"\n" + text;
    for (const char* architecture : {"sm_80", "sm_90"})
      EXPECT_EQ(nvrtc.compile(source, kernels, architecture), "") << graph.name << ", " << architecture;
  }
  EXPECT_GE(seen, 4) << "no functors were found in the emitted text";
}

TEST(CudaProjects, WhatHasNoKernelIsAnErrorThatSaysSo) {
  Graph g;
  g.name = "Double";
  const ValueId x = g.add_input("x", {DType::f64, {3, 8}});
  g.outputs = {g.add_node(ir::kAttention, {x, x, x}, {}, at("model.attention"))[0]};
  try {
    render_project(g, {.target = "cuda", .format = false});
    FAIL();
  } catch (const graven::UserError& e) {
    EXPECT_NE(std::string(e.what()).find("model.attention"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("does not take f64[3,8]"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace graven::codegen
