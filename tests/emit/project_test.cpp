#include "codegen/emit/project.h"

#include <graven/graven.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <locale>
#include <sstream>

#include "codegen/build/process.h"
#include "frontend/eager/oracle.h"
#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/op.h"
#include "tests/emit/graphs.h"
#include "tests/emit/self_tests.h"
#include "tests/read_text.h"

namespace graven::codegen {
namespace {

namespace fs = std::filesystem;
using ir::Graph;
using ir::Origins;
using ir::ValueId;

struct Folder {
  fs::path path;
  explicit Folder(const std::string& name) : path(fs::path(GRAVEN_BINARY_DIR) / "emitted" / name) {
    fs::remove_all(path);
  }
};

std::string expect_runs(const std::vector<std::string>& command, const fs::path& folder = {}) {
  const ProcessResult r = run_process(command, {.directory = folder.string(), .seconds = 500});
  std::string line;
  for (const auto& c : command) line += c + " ";
  EXPECT_EQ(r.exit_status, 0) << line << "\n" << r.output;
  return r.output;
}

/// Of the compilers that emitted projects need at least, those that are here; else what is here of the same kind.
std::vector<std::string> compilers() {
  std::vector<std::string> found;
  for (const auto& names :
       {std::vector<const char*>{"g++-11", "g++"}, std::vector<const char*>{"clang++-14", "clang++"}})
    for (const char* name : names)
      if (const std::string path = find_program(name); !path.empty()) {
        found.push_back(path);
        break;
      }
  return found;
}

/// model.h as C and as C++ of 2017, which it promises to be; a program in C, linked with the project's library and run
/// in its folder.
void expect_c_interface(const fs::path& project, const std::string& name, const std::string& client) {
  const std::vector<std::string> strict = {"-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I."};
  const auto compile = [&](std::vector<std::string> command) {
    command.insert(command.begin(), GRAVEN_CXX);
    command.insert(command.end(), strict.begin(), strict.end());
    expect_runs(command, project);
  };
  std::ofstream(project / "build/interface.cpp") << "#include \"model.h\"\n";
  compile({"-std=c++17", "-fsyntax-only", "build/interface.cpp"});
  compile(
      {"-x", "c", "-std=c99", "-c", std::string(GRAVEN_SOURCE_DIR "/tests/emit/") + client, "-o", "build/client.o"});
  expect_runs({GRAVEN_CXX, "build/client.o", "build/lib" + name + "_model.a", "-pthread", "-o", "build/client"},
              project);
  EXPECT_EQ(expect_runs({(project / "build/client").string()}, project), "as it should be\n");
}

/// The calls of the project's library, built for all levels in build/, need no memory besides what they have from the
/// start.
void expect_no_allocations(const fs::path& project, const std::string& name, bool training) {
  std::vector<std::string> command = {GRAVEN_CXX,
                                      "-std=c++20",
                                      "-I.",
                                      "-DPROJECT=" + name,
                                      training ? "-DTRAINING" : "-DINFERENCE",
                                      GRAVEN_SOURCE_DIR "/tests/emit/host/allocations.cpp",
                                      "build/lib" + name + "_model.a",
                                      "-pthread",
                                      "-o",
                                      "build/allocations"};
  for (const char* function : {"malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "mmap"})
    command.push_back(std::string("-Wl,--wrap=") + function);
  expect_runs(command, project);
  EXPECT_EQ(expect_runs({(project / "build/allocations").string()}, project), "some at the start, 0 in later calls\n");
}

TEST(Project, TrainingBuildsAndAgreesWithWhatWasRecorded) {
  const Folder folder("mlp_train");
  const EmitReport report = emit(mlp_training(), folder.path, {.name = "mlp_train", .execute = eager::reference_run});
  EXPECT_GT(report.written.size(), 20u);
  expect_runs(
      {"cmake", "-S", folder.path.string(), "-B", (folder.path / "build").string(), "-DCMAKE_CXX_FLAGS=-Werror"});
  expect_runs({"cmake", "--build", (folder.path / "build").string(), "-j2"});
  EXPECT_TRUE(fs::exists(folder.path / "selftest.safetensors"));
  expect_runs({(folder.path / "build/selftest").string()}, folder.path);
  expect_runs({(folder.path / "build/mlp_train").string(), "--help"});
  for (const char* copied : {"kernels/LICENSE", "runtime/LICENSE"})
    EXPECT_EQ(read_text(folder.path / copied), read_text(GRAVEN_SOURCE_DIR "/LICENSE"));
  expect_c_interface(folder.path, "mlp_train", "training_client.c");
  // Away from its files, as where the build folder is not in the project, it says what it looked for and where.
  fs::rename(folder.path / "weights.safetensors", folder.path / "elsewhere");
  EXPECT_EQ(
      run_process({(folder.path / "build/selftest").string()}, {.directory = folder.path.string(), .seconds = 100})
          .output,
      "error: weights.safetensors: expected this file beside the program, in the folder above it, in share/ there, or "
      "in this one, found no such "
      "file\n");
}

/// A mean teacher: it is averaged behind the update, and its target is part of the loss.
struct Teacher : nn::Graph<Teacher> {
  nn::Sequential student = child("student", nn::Sequential(nn::Linear(6, 5), nn::Tanh(), nn::Linear(5, 3)));
  nn::Sequential teacher = child("teacher", nn::Sequential(nn::Linear(6, 5), nn::Tanh(), nn::Linear(5, 3)));
  optim::AdamW optimizer{student.parameters(), {.lr = 0.01}};
  Teacher() {
    add_optimizer(optimizer);
    teacher.load_state_dict(student.state_dict());
  }
  Tensor build(Tensor x, Tensor labels) {
    Tensor target = teacher(x).detach();
    Tensor scores = student(x);
    Tensor loss = cross_entropy(scores, labels) + mse_loss(scores, target);
    loss.backward();
    nn::utils::update_average_(teacher, student, 0.75);
    return loss;
  }
};

TEST(Project, AnAverageOfWeightsIsPartOfTheStepItsSelfTestAndItsCheckpoints) {
  for (const bool in_backward : {false, true}) {
    const Folder folder(in_backward ? "teacher_in_backward" : "teacher_train");
    manual_seed(3);
    Teacher graph;
    if (in_backward) graph.update_in_backward();
    graph.compile(spec({8, 6}, "x"), spec({8}, i64, "labels"));
    (void)codegen::emit(graph, folder.path, {.name = "teacher_train"});
    expect_runs(
        {"cmake", "-S", folder.path.string(), "-B", (folder.path / "build").string(), "-DCMAKE_CXX_FLAGS=-Werror"});
    expect_runs({"cmake", "--build", (folder.path / "build").string(), "-j2"});
    expect_runs({(folder.path / "build/selftest").string()}, folder.path);
    // The same steps here and there.
    std::vector<double> x;
    std::vector<std::int64_t> labels;
    for (int i = 0; i < 24 * 6; ++i) x.push_back(std::sin(0.7 * i));
    for (int i = 0; i < 24; ++i) labels.push_back(i % 3);
    const Tensor xs = from_data(x, {24, 6}).to(f32), ys = from_data(labels, {24});
    nn::save({{"x", xs}, {"labels", ys}}, (folder.path / "data.safetensors").string());
    expect_runs({(folder.path / "build/teacher_train").string(), "--data", "data.safetensors", "--no-shuffle",
                 "--epochs", "2", "--out", "run"},
                folder.path);
    for (int epoch = 0; epoch < 2; ++epoch)
      for (int i = 0; i < 24; i += 8) (void)graph(xs.slice(0, i, i + 8), ys.slice(0, i, i + 8));
    const nn::StateDict learned = nn::load((folder.path / "run/latest/weights.safetensors").string());
    std::size_t compared = 0;
    for (const auto& [name, t] : graph.state_dict())
      for (const auto& [other, found] : learned)
        if (name == other) {
          EXPECT_TRUE(equal(t, found)) << name;
          ++compared;
        }
    EXPECT_EQ(compared, 8U);
  }
}

struct Segment : nn::Graph<Segment> {
  nn::Linear model = child("model", nn::Linear(4, 21));
  optim::SGD optimizer{model.parameters(), {.lr = 0.1}};
  std::int64_t ignored;
  explicit Segment(std::int64_t ignored) : ignored(ignored) { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(model(x).flatten(0, 1), labels.flatten(), {.ignore_index = ignored});
    loss.backward();
    return loss;
  }
};

TEST(Project, DataMayHaveTheLabelThatTheLossIgnores) {
  const auto labels = [](std::int64_t ignored) {
    Segment graph(ignored);
    graph.compile(spec({2, 3, 4}, "x"), spec({2, 3}, i64, "labels"));
    const std::string text = render_project(graph.graph(), {.name = "segment", .format = false}).at("main.cpp");
    const std::size_t at = text.find(".classes = 21");
    return text.substr(at, text.find('}', at) - at);
  };
  EXPECT_EQ(labels(255), ".classes = 21, .ignored = 255");
  EXPECT_EQ(labels(-100), ".classes = 21") << "what the run time takes for it";
  EXPECT_EQ(labels(3), ".classes = 21, .ignored = 0") << "a class: none beside them";
}

// The gradient of a bias before a batch norm is zero: what is computed of it is rounding, in double as in float, and no
// number to be compared.
struct CancellingNet : nn::Module<CancellingNet> {
  nn::Conv2d conv = child("conv", nn::Conv2d(3, 8, 3));
  nn::BatchNorm2d norm = child("norm", nn::BatchNorm2d(8));
  nn::Linear out = child("out", nn::Linear(8, 3));
  Tensor forward(Tensor x) { return out(sigmoid(norm(conv(x))).mean({2, 3})); }
};
struct TrainCancelling : nn::Graph<TrainCancelling> {
  CancellingNet model = child("model", CancellingNet());
  optim::Adam optimizer{model.parameters()};
  TrainCancelling() { add_optimizer(optimizer); }
  Tensor build(Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(model(x), labels);
    loss.backward();
    return loss;
  }
};

TEST(Project, GradientsThatAreRoundingAloneAgreeWithWhatWasRecorded) {
  const Folder folder("cancelling");
  manual_seed(3);
  TrainCancelling graph;
  graph.compile(spec({4, 3, 10, 10}, "x"), spec({4}, i64, "labels"));
  emit(graph, folder.path, {.name = "cancelling"});
  expect_runs(
      {"cmake", "-S", folder.path.string(), "-B", (folder.path / "build").string(), "-DCMAKE_CXX_FLAGS=-Werror"});
  expect_runs({"cmake", "--build", (folder.path / "build").string(), "--target", "selftest", "-j2"});
  expect_runs({(folder.path / "build/selftest").string()}, folder.path);
  expect_no_allocations(folder.path, "cancelling", true);
}

// A table that is looked up in and, packed, multiplied by; a large weight that is only multiplied by; a small one.
struct TiedNet : nn::Module<TiedNet> {
  nn::Embedding table = child("table", nn::Embedding(1100, 256));
  nn::Linear wide = child("wide", nn::Linear(256, 1100));
  nn::Linear narrow = child("narrow", nn::Linear(1100, 256));
  nn::Linear small = child("small", nn::Linear(256, 256));
  Tensor forward(Tensor tokens) { return linear(small(narrow(relu(wide(table(tokens))))), table.weight); }
};
struct InferTied : nn::Graph<InferTied> {
  TiedNet model = child("model", TiedNet());
  Tensor build(Tensor tokens) { return model(tokens); }
};
struct TrainTied : nn::Graph<TrainTied> {
  TiedNet model = child("model", TiedNet());
  optim::SGD optimizer{model.parameters(), {.lr = 0.1}};
  TrainTied() { add_optimizer(optimizer); }
  Tensor build(Tensor tokens) {
    Tensor loss = model(tokens).mean();
    loss.backward();
    return loss;
  }
};

TEST(Project, AnInferenceGivesUpTheMemoryOfLargeWeightsOncePacked) {
  const Folder folder("tied");
  InferTied graph;
  graph.compile(spec({4, 8}, i64, "tokens"));
  emit(graph, folder.path, {.name = "tied"});
  const std::string text = read_text(folder.path / "model.cpp");
  for (const char* released : {"release(param.wide_weight, 281600);", "release(param.narrow_weight, 281600);"})
    EXPECT_NE(text.find(released), std::string::npos) << released;
  EXPECT_EQ(text.find("release(param.small_weight"), std::string::npos) << "not worth a line";
  EXPECT_EQ(text.find("release(param.table_weight"), std::string::npos) << "each call looks up in it";
  expect_runs({"cmake", "-S", folder.path.string(), "-B", (folder.path / "build").string(), "-DCMAKE_CXX_FLAGS=-Werror",
               "-DGRAVEN_LEVELS=native"});
  expect_runs({"cmake", "--build", (folder.path / "build").string(), "--target", "selftest", "-j2"});
  expect_runs({(folder.path / "build/selftest").string()}, folder.path);
  // The weights of a host program and of a training are not the calls' to give up.
  EXPECT_EQ(render_project(graph.graph(), {.jit_entry = true, .format = false}).at("model.cpp").find("release("),
            std::string::npos);
  TrainTied train;
  train.compile(spec({4, 8}, i64, "tokens"));
  EXPECT_EQ(render_project(train.graph(), {.format = false}).at("model.cpp").find("release("), std::string::npos);
}

// Blocks of MobileNetV2 that are computed in one pass over their rows, of any batch.
struct Block : nn::Module<Block> {
  nn::Conv2d expand, deep, project;
  nn::BatchNorm2d norm = child("norm", nn::BatchNorm2d(120));
  Block(std::int64_t in, std::int64_t kernel, std::int64_t stride)
      : expand(child("expand", nn::Conv2d(in, 120, 1))),
        deep(child("deep", nn::Conv2d(120, 120, kernel,
                                      {.stride = stride, .padding = kernel / 2, .groups = 120, .bias = false}))),
        project(child("project", nn::Conv2d(120, 8, 1))) {}
  Tensor forward(Tensor x) {
    const Tensor y = project(relu6(norm(deep(relu6(expand(x))))));
    return y.shape() == x.shape() ? y + x : relu(y);
  }
};
struct InferBlocks : nn::Graph<InferBlocks> {
  Block first = child("first", Block(8, 3, 1)), second = child("second", Block(8, 5, 2));
  InferBlocks() { first.eval(), second.eval(); }
  Tensor build(Tensor images) { return second(first(images)); }
};

TEST(Project, BlocksInOnePassBuildAndAgreeWithWhatWasRecorded) {
  const Folder folder("blocks");
  InferBlocks graph;
  graph.compile(spec({Dim("batch", 3), 8, 37, 41}, "images"));
  emit(graph, folder.path, {.name = "blocks"});
  const std::string text = read_text(folder.path / "model.cpp");
  for (const char* call :
       {"inverted_residual<hardtanh_0_6, hardtanh_0_6, add>(", "inverted_residual<hardtanh_0_6, hardtanh_0_6, relu>("})
    EXPECT_NE(text.find(call), std::string::npos) << call << "\n" << text;
  expect_runs({"cmake", "-S", folder.path.string(), "-B", (folder.path / "build").string(), "-DCMAKE_CXX_FLAGS=-Werror",
               "-DGRAVEN_LEVELS=all"});
  expect_runs({"cmake", "--build", (folder.path / "build").string(), "--target", "selftest", "-j2"});
  expect_runs({(folder.path / "build/selftest").string()}, folder.path);
  expect_no_allocations(folder.path, "blocks", false);
}

TEST(Project, UpdateInBackwardBuildsAndAgreesWithWhatWasRecorded) {
  for (const char* kind : {"sgd", "adamw"}) {
    Graph graph = mlp_training();
    if (kind == std::string("adamw")) {
      graph.optimizers[0].kind = kind;
      graph.optimizers[0].groups[0].options = {
          {"lr", 1e-3}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.01}};
    }
    const Folder folder(std::string("update_in_backward_") + kind);
    const EmitReport plain = emit(graph, folder.path, {.name = "mlp_train"});
    const EmitReport report =
        emit(graph, folder.path, {.name = "mlp_train", .execute = eager::reference_run, .update_in_backward = true});
    EXPECT_LT(report.arena_bytes, plain.arena_bytes + 4 * 256 * 784) << "the largest gradient comes and goes";
    const std::string header = read_text(folder.path / "model.h");
    EXPECT_EQ(header.find("gradients()"), std::string::npos);
    EXPECT_EQ(header.find("void update("), std::string::npos);
    expect_runs(
        {"cmake", "-S", folder.path.string(), "-B", (folder.path / "build").string(), "-DCMAKE_CXX_FLAGS=-Werror"});
    expect_runs({"cmake", "--build", (folder.path / "build").string(), "-j2"});
    expect_runs({(folder.path / "build/selftest").string()}, folder.path);
    expect_every_number_counts(folder.path, 9);
    // From the file alone the same bytes.
    const Graph read = ir::read_graph((folder.path / "graph.json").string());
    EmitOptions options = recorded_options(read);
    options.execute = eager::reference_run;
    EXPECT_TRUE(check(folder.path, options).empty());
  }
}

TEST(Project, EveryDumpGivesTheSameProject) {
  const Folder dumps("dumps");
  EmitOptions options{.name = "named", .epochs = 7, .format = false};
  options.passes.dump_directory = dumps.path.string();
  const auto files = render_project(mlp_training(), options);
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dumps.path)) {
    SCOPED_TRACE(entry.path().filename());
    const Graph dumped = ir::read_graph(entry.path().string());
    EmitOptions again = recorded_options(dumped);
    again.format = false;
    EXPECT_EQ(render_project(dumped, again), files);
    // What is behind stays as it was chosen; what is to come may still be chosen.
    const auto error_of = [&](const EmitOptions& changed) -> std::string {
      try {
        render_project(dumped, changed);
        return "no error";
      } catch (const UserError& e) {
        return e.what();
      }
    };
    const auto place = [](std::string_view name) {
      const auto passes = ir::pipeline();
      return name == "trace"
                 ? 0
                 : std::find_if(passes.begin(), passes.end(), [&](const ir::Pass& p) { return p.name == name; }) -
                       passes.begin() + 1;
    };
    EmitOptions without = again, on_cuda = again;
    without.passes.disabled = {"fuse_epilogues"};
    on_cuda.target = "cuda";
    EXPECT_EQ(error_of(without),
              place(dumped.stage) < place("fuse_epilogues")
                  ? "no error"
                  : "error: the pass 'fuse_epilogues' cannot be left out: the graph TrainMlp has been through it\n"
                    "  emit the graph as it was saved");
    EXPECT_EQ(error_of(on_cuda),
              place(dumped.stage) < place("choose_layout")
                  ? "no error"
                  : "error: the graph TrainMlp has been through the passes for the CPU: it cannot be emitted for CUDA\n"
                    "  emit the graph as it was saved");
    ++count;
  }
  EXPECT_GE(count, 8u);
}

TEST(Project, UpdateInBackwardNeedsAnUpdateToCome) {
  const auto error_of = [](const Graph& graph) -> std::string {
    try {
      render_project(graph, {.update_in_backward = true, .format = false});
      return "no error";
    } catch (const UserError& e) {
      return e.what();
    }
  };
  EXPECT_NE(error_of(my_linear()).find("has no optimizer"), std::string::npos) << error_of(my_linear());
  Graph through = mlp_training();
  ir::run_passes(through, {});
  through.stage = ir::pipeline().back().name;  // as the graph of an emitted project says
  EXPECT_NE(error_of(through).find("has been through all passes"), std::string::npos) << error_of(through);
}

/// What takes the compilers' built-in functions: a convolution of one channel, a broadcast functor, a product with few
/// columns.
Graph small_network() {
  Graph g;
  g.name = "Small";
  g.training = true;
  const ValueId images = g.add_input("images", {ir::DType::f32, {8, 1, 12, 12}}),
                labels = g.add_input("labels", {ir::DType::i64, {8}});
  const ValueId w = g.add_parameter("conv.weight", {ir::DType::f32, {6, 1, 5, 5}}, true),
                b = g.add_parameter("conv.bias", {ir::DType::f32, {6}}, true);
  const ValueId scale = g.add_parameter("scale", {ir::DType::f32, {6, 1, 1}}, true),
                head = g.add_parameter("head.weight", {ir::DType::f32, {3, 96}}, true);
  const auto at = [](std::string module) { return Origins{{std::move(module), "small.cpp", 1}}; };
  const ValueId c = g.call("conv2d", {images, w, b}, {}, at("conv"));
  const ValueId pooled = g.call("max_pool2d", {g.call("mul", {c, scale}, {}, at("scale"))},
                                {{"kernel_size", ir::Ints{2, 2}}, {"stride", ir::Ints{2, 2}}}, at("pool"));
  const ValueId logits =
      g.call("linear", {g.call("reshape", {pooled}, {{"shape", ir::Shape{8, 96}}}, at("flat")), head}, {}, at("head"));
  const ValueId loss = g.call("cross_entropy", {logits, labels}, {}, at("loss_fn"));
  g.outputs = {loss};
  g.losses = {{loss, ir::kNone}};
  g.optimizers.push_back(
      {"adamw",
       {{{w, b, scale, head}, {{"lr", 1e-3}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.01}}}},
       {}});
  return g;
}

TEST(Project, EveryCompilerTakesIt) {
  const Folder folder("compilers");
  emit(small_network(), folder.path);
  const std::vector<std::string> all = compilers();
  if (all.empty()) GTEST_SKIP() << "there is neither a g++ nor a clang++";
  for (const std::string& compiler : all) {
#if defined(__x86_64__)
    constexpr const char* kLevels[] = {"-march=x86-64", "-march=x86-64-v3", "-march=x86-64-v4"};
#else
    constexpr const char* kLevels[] = {"-O2"};
#endif
    for (const char* level : kLevels)
      expect_runs({compiler, "-std=c++20", "-fsyntax-only", "-O2", level, "-Wall", "-Wextra", "-Werror",
                   "-DGRAVEN_LEVEL_NAMESPACE=isa_level", "-I.", "model.cpp"},
                  folder.path);
    for (const char* file : {"model_api.cpp", "main.cpp", "selftest.cpp", "runtime/train.cpp", "runtime/checkpoint.cpp",
                             "runtime/batch.cpp", "runtime/safetensors.cpp"})
      expect_runs(
          {compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-DGRAVEN_HAS_NATIVE", "-I.", file},
          folder.path);
  }
}

TEST(Project, InferenceBuildsForEveryLevel) {
  const Folder folder("my_linear");
  emit(my_linear(), folder.path, {.execute = eager::reference_run});
  // By the command, which says where the program is.
  const std::string command = GRAVEN_BINARY_DIR "/graven";
  EXPECT_EQ(expect_runs({command, "build", folder.path.string(), "-j", "2"}),
            (folder.path / "build/my_linear").string() + "\n");
  EXPECT_TRUE(fs::exists(folder.path / "selftest.safetensors"));
  expect_runs({(folder.path / "build/selftest").string()}, folder.path);
  expect_every_number_counts(folder.path, 1);
  // It runs the program with what follows --, and ends with its status.
  EXPECT_NE(expect_runs({command, "run", folder.path.string(), "--", "--help"}).find("--topk"), std::string::npos);
  const ProcessResult refused = run_process({command, "run", folder.path.string(), "--", "--bogus"});
  EXPECT_EQ(refused.exit_status, run_process({(folder.path / "build/my_linear").string(), "--bogus"}).exit_status);
  EXPECT_NE(refused.exit_status, 0);
  EXPECT_NE(refused.output.find("--bogus"), std::string::npos) << refused.output;
  expect_c_interface(folder.path, "my_linear", "inference_client.c");
}

TEST(Project, CStepsInPartsAndCountsWhatIsSkipped) {
  const Folder folder("parts");
  ir::Graph graph = mlp_training();
  graph.config[std::string(ir::kAccumulationSteps)] = std::int64_t{2};
  graph.config[std::string(ir::kLossScale)] = 1024.0;
  graph.config[std::string(ir::kScaleGrowth)] = 2.0;
  graph.config[std::string(ir::kScaleBackoff)] = 0.5;
  graph.config[std::string(ir::kScaleInterval)] = std::int64_t{2000};
  emit(graph, folder.path, {.name = "mlp_train", .execute = eager::reference_run});
  expect_runs(
      {"cmake", "-S", folder.path.string(), "-B", (folder.path / "build").string(), "-DCMAKE_CXX_FLAGS=-Werror"});
  expect_runs({"cmake", "--build", (folder.path / "build").string(), "-j2"});
  expect_c_interface(folder.path, "mlp_train", "parts_client.c");
}

struct CallsTrain : nn::Graph<CallsTrain> {
  nn::Linear hidden = child("hidden", nn::Linear(3, 8)), logits = child("logits", nn::Linear(8, 2));
  nn::Dropout dropout = child("dropout", nn::Dropout(0.5));
  optim::SGD optimizer{{hidden.weight, hidden.bias, logits.weight, logits.bias}, {.lr = 0.1}};
  CallsTrain() { add_optimizer(optimizer); }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = cross_entropy(logits(dropout(relu(hidden(images)))), labels);
    loss.backward();
    return loss;
  }
};

TEST(Project, CRefusesWhatIsGivenWronglyAndOutOfTurn) {
  const Folder folder("calls");
  CallsTrain graph;
  graph.enable_data_parallel();  // its steps may have parts, with a symbolic batch
  const ir::Dim batch("batch", 8);
  graph.compile(spec({batch, 3}, "images"), spec({batch}, i64, "labels"));
  emit(graph, folder.path, {.name = "calls_train"});
  expect_runs(
      {"cmake", "-S", folder.path.string(), "-B", (folder.path / "build").string(), "-DCMAKE_CXX_FLAGS=-Werror"});
  expect_runs({"cmake", "--build", (folder.path / "build").string(), "-j2"});
  expect_c_interface(folder.path, "calls_train", "calls_client.c");
}

TEST(Project, SeveralLiveInTheProgramOfAHost) {
  const Folder folder("hosted");
  emit(my_linear(), folder.path / "my_linear", {.execute = eager::reference_run});
  emit(mlp_training(), folder.path / "mlp_train", {.name = "mlp_train", .execute = eager::reference_run});
  const std::string build = (folder.path / "build").string(), source = GRAVEN_SOURCE_DIR "/tests/emit/host";
  expect_runs({"cmake", "-S", source, "-B", build, "-DPROJECTS=" + folder.path.string(), "-DGRAVEN_LEVELS=base"});
  expect_runs({"cmake", "--build", build, "-j2"});
  EXPECT_EQ(expect_runs({build + "/selftest", folder.path.string()}), "as it should be\n");
  EXPECT_EQ(expect_runs({build + "/mlp_train"}), "0 0 0\n") << "weights of zero";
}

// A static library, which throws and catches, in hosts whose CMake knows no C++: in a subdirectory, and installed.
TEST(Project, LivesInTheProgramOfAHostInCAlone) {
  const Folder folder("hosted_in_c");
  const fs::path project = folder.path / "my_linear", prefix = folder.path / "prefix";
  emit(my_linear(), project, {.execute = eager::reference_run});
  const std::string build = (project / "build").string();
  expect_runs({"cmake", "-S", project.string(), "-B", build, "-DGRAVEN_LEVELS=base"});
  expect_runs({"cmake", "--build", build, "-j2"});
  expect_runs({"cmake", "--install", build, "--prefix", prefix.string()});
  const std::string weights = (project / "weights.safetensors").string();
  std::string with_weights;
  for (const std::string& how :
       {"add_subdirectory(" + project.string() + " model)", std::string("find_package(my_linear REQUIRED)")}) {
    SCOPED_TRACE(how);
    const fs::path host = folder.path / (with_weights.empty() ? "subdirectory" : "installed");
    fs::create_directories(host);
    std::ofstream(host / "CMakeLists.txt")
        << "cmake_minimum_required(VERSION 3.16)\nproject(host LANGUAGES C)\n"
        << how
        << "\nadd_executable(client " GRAVEN_SOURCE_DIR
           "/tests/emit/host/client.c)\ntarget_link_libraries(client PRIVATE my_linear::model)\n";
    expect_runs({"cmake", "-S", host.string(), "-B", (host / "build").string(),
                 "-DCMAKE_PREFIX_PATH=" + prefix.string(), "-DGRAVEN_LEVELS=base"});
    expect_runs({"cmake", "--build", (host / "build").string()});
    const std::string client = (host / "build/client").string(), printed = expect_runs({client, weights});
    EXPECT_NE(printed, expect_runs({client}));
    if (!with_weights.empty()) {
      EXPECT_EQ(printed, with_weights);
    }
    with_weights = printed;
    EXPECT_NE(run_process({client, (folder.path / "none").string()}).exit_status, 0)
        << "an error is thrown and caught within";
  }
}

TEST(Project, IsInstalledAsASharedLibrary) {
  const Folder folder("installed");
  emit(my_linear(), folder.path, {.execute = eager::reference_run});
  const std::string build = (folder.path / "build").string(), prefix = (folder.path / "prefix").string();
  expect_runs({"cmake", "-S", folder.path.string(), "-B", build, "-DBUILD_SHARED_LIBS=ON", "-DGRAVEN_LEVELS=base"});
  expect_runs({"cmake", "--build", build, "-j2"});
  expect_runs({"cmake", "--install", build, "--prefix", prefix});
  // Nothing is left of where it came from.
  fs::rename(folder.path / "build", folder.path / "gone");
  fs::rename(folder.path / "weights.safetensors", folder.path / "gone.safetensors");
  expect_runs({prefix + "/bin/my_linear", "--bench", "1", "--threads", "1"}, prefix);
  const fs::path consumer = folder.path / "consumer";
  fs::create_directories(consumer);
  std::ofstream(consumer / "CMakeLists.txt")
      << "cmake_minimum_required(VERSION 3.16)\nproject(consumer LANGUAGES C CXX)\n"
         "find_package(my_linear REQUIRED)\nadd_executable(client " GRAVEN_SOURCE_DIR
         "/tests/emit/host/client.c)\ntarget_link_libraries(client PRIVATE my_linear::model)\n";
  expect_runs({"cmake", "-S", consumer.string(), "-B", (consumer / "build").string(), "-DCMAKE_PREFIX_PATH=" + prefix});
  expect_runs({"cmake", "--build", (consumer / "build").string()});
  const std::string client = (consumer / "build/client").string();
  EXPECT_NE(expect_runs({client, prefix + "/share/my_linear/weights.safetensors"}), expect_runs({client}));
}

// A project that is found under another name than was asked for, and what of its interface is, are in the notes.
TEST(Project, NamesThatEmissionChangesAreNoted) {
  const auto notes_of = [](const std::string& graph_name, const std::string& name, const std::string& input,
                           const std::string& output, const std::string& size) {
    Graph g;
    g.name = graph_name;
    const ValueId x = g.add_input(input, {DType::f32, {ir::Dim(size, 8), 3}});
    g.outputs = {g.call("relu", {x}, {}, {})};
    if (!output.empty()) {
      g.output_tree.kind = ir::Tree::Kind::map;
      g.output_tree.keys = {output};
      g.output_tree.children = {ir::Tree()};
    }
    EmitReport report;
    render_project(g, {.name = name, .format = false}, &report);
    std::string all;
    for (const std::string& note : report.notes)
      if (note.find(" called '") != std::string::npos) all += note + "\n";
    return all;
  };
  EXPECT_EQ(notes_of("TrainMlp", "", "x", "", "batch"), "");
  EXPECT_EQ(notes_of("TrainMlp", "digits", "x", "scores", "batch"), "");
  const std::string lstm =
      "the project, its library and its program are called 'lstm_model': 'lstm' is no identifier, or "
      "another name that its code or its build has\n";
  EXPECT_EQ(notes_of("TrainMlp", "lstm", "x", "", "batch"), lstm);
  EXPECT_EQ(notes_of("Lstm", "", "x", "", "batch"), lstm);
  EXPECT_EQ(notes_of("Lstm", "lstm_model", "x", "", "batch"), "") << "as graph.json records it";
  EXPECT_NE(notes_of("N", "my net", "x", "", "batch").find("'my_net': 'my net' is no identifier"), std::string::npos);
  EXPECT_EQ(notes_of("Net", "", "class", "for", "int"),
            "the input 'class' is called 'class_' in the project\n"
            "the output 'for' is called 'for_' in the project\n"
            "the size 'int' is called 'int_' in the project\n");
  EXPECT_EQ(notes_of("Net", "", "x", "x", "batch"), "the output 'x' is called 'x_output' in the project\n");
}

// What programs may feed and write: the batch as dimension 0 alone, or nothing of the batch.
TEST(Project, TheProgramKnowsWhereTheBatchIs) {
  const auto main_of = [](const std::vector<ir::Shape>& shapes, std::vector<std::string>* notes = nullptr) {
    Graph g;
    g.name = "Layouts";
    std::vector<ValueId> results;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const ValueId x = g.add_input("x" + std::to_string(i), {DType::f32, shapes[i]});
      results.push_back(g.call("relu", {x}, {}, {}));
    }
    g.outputs = results;
    EmitReport report;
    const std::string text = render_project(g, {.format = false}, &report).at("main.cpp");
    if (notes) *notes = report.notes;
    return text;
  };
  const ir::Dim batch("batch", 8), twice = batch * ir::Dim(2);
  const struct {
    const char* what;
    std::vector<ir::Shape> shapes;
    std::vector<std::string> lines;  // of the inputs' descriptions
    std::size_t refused;
  } cases[] = {
      {"the batch alone", {{batch, 3}, {5}}, {"{8, 3}, .batched = true}", "{5}, .batched = false}"}, 0},
      {"another dimension",
       {{5, batch, 3}, {batch}},
       {"{5, 8, 3}, .batched = false, .batch_dimensions = {{1, 1}}}"},
       1},
      {"a multiple", {{twice, 3}, {batch}}, {"{16, 3}, .batched = false, .batch_dimensions = {{0, 2}}}"}, 1},
      {"called so", {{3, batch}}, {".batch_dimensions = {{1, 1}}}"}, 1},
      {"a size of another name", {{3, ir::Dim("length", 8)}}, {"{3, 8}, .batched = true, .symbolic = {{1, 0, 1}}}"}, 0},
      {"a size that stands first elsewhere",
       {{ir::Dim("length", 6)}, {batch, 2}, {3, ir::Dim("length", 6)}},
       {"{6}, .batched = false, .symbolic = {{0, 0, 1}}}", "{8, 2}, .batched = true}",
        "{3, 6}, .batched = false, .symbolic = {{1, 0, 1}}}"},
       0},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    std::vector<std::string> notes;
    const std::string text = main_of(c.shapes, &notes);
    for (const std::string& line : c.lines) EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
    std::size_t refused = 0;
    for (const std::string& note : notes) refused += note.find("the program cannot be fed: the input 'x0'") == 0;
    EXPECT_EQ(refused, c.refused);
  }
  // Of outputs: where the batch is, and whether the samples have a part in them.
  const std::string text = main_of({{batch, 3}, {5}});
  EXPECT_NE(text.find("{8, 3}, .batched = true},"), std::string::npos) << text;
  EXPECT_NE(text.find("{5}, .batched = false, .shared = true},"), std::string::npos) << text;
  Graph g;
  g.name = "Sums";
  const ValueId x = g.add_input("x", {DType::f32, {batch, 3}});
  g.outputs = {g.call("sum", {x}, {{"dims", ir::Ints{0}}}, {}), g.call("permute", {x}, {{"dims", ir::Ints{1, 0}}}, {}),
               g.call("reshape", {x}, {{"shape", ir::Shape{batch * ir::Dim(3)}}}, {})};
  const std::string sums = render_project(g, {.format = false}).at("main.cpp");
  for (const char* line : {"{3}, .batched = false},", "{3, 8}, .batched = false, .batch_dimensions = {{1, 1}}},",
                           "{24}, .batched = false, .batch_dimensions = {{0, 3}}},"})
    EXPECT_NE(sums.find(line), std::string::npos) << line << "\n" << sums;
  // Of several symbols: what follows from them, and what they must be together.
  const ir::Dim height("height", 16, 40), width("width", 4);
  Graph pictures;
  pictures.name = "Pictures";
  const ValueId image = pictures.add_input("x", {DType::f32, {batch, height * ir::Dim(2), width}});
  pictures.outputs = {pictures.call("sum", {image}, {{"dims", ir::Ints{1}}}, {}),
                      pictures.call("reshape", {image}, {{"shape", ir::Shape{batch * height * width, 2}}}, {}),
                      pictures.call("cat", {image, image}, {{"dim", std::int64_t{2}}}, {})};
  pictures.config["least_size.batch*width"] = std::int64_t{2};
  const std::map<std::string, std::string> files = render_project(pictures, {.format = false});
  const std::string described = files.at("main.cpp");
  for (const char* line : {"{8, 80, 4}, .batched = true, .symbolic = {{1, 0, 2, 0, 16}, {2, 1, 1}}},",
                           "{8, 4}, .batched = true, .symbolic = {{1, 1, 1}}},",
                           "{1280, 2}, .batched = false, .computed = {{0, [](std::int64_t batch, const std::int64_t* "
                           "size) { return batch * size[0] * size[1]; }}}},",
                           "{8, 80, 8}, .batched = true, .symbolic = {{1, 0, 2, 0, 16}, {2, 1, 2}}},"})
    EXPECT_NE(described.find(line), std::string::npos) << line << "\n" << described;
  EXPECT_NE(files.at("model_api.cpp").find("require_size(\"batch*width\", batch * width, 2);"), std::string::npos);
  EXPECT_NE(files.at("model_api.cpp").find("require_size(\"height\", height, 16, 40);"), std::string::npos);
}

TEST(Project, EmittingAgainChangesNothing) {
  const Folder folder("again"), other("again_from_json");
  emit(mlp_training(), folder.path);
  const EmitReport second = emit(mlp_training(), folder.path);
  EXPECT_TRUE(second.written.empty()) << second.written.front();
  // From the file alone, elsewhere, the same bytes.
  const Graph read = ir::read_graph((folder.path / "graph.json").string());
  const EmitReport third = emit(read, other.path, recorded_options(read));
  for (const std::string& path : third.written)
    EXPECT_EQ(read_text(folder.path / path), read_text(other.path / path)) << path;
  EXPECT_EQ(third.written.size(), second.unchanged.size());
  EXPECT_TRUE(check(folder.path, recorded_options(read)).empty());
  std::ofstream(folder.path / "model.cpp", std::ios::app) << "// changed\n";
  fs::remove(folder.path / "params.h");
  EmitReport left;
  EXPECT_EQ(check(read, folder.path, recorded_options(read), &left), std::vector<std::string>{"params.h: is missing"});
  EXPECT_EQ(left.kept, std::vector<std::string>{"model.cpp"});
}

TEST(Project, RecordedOptionsAreReadInAnyLocale) {
  struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
  };
  Graph graph = mlp_training();
  graph.config["emit.mean"] = std::string("0.485 0.456");
  const std::locale before = std::locale::global(std::locale(std::locale(), new Comma));
  const std::vector<double> mean = recorded_options(graph).mean;
  std::locale::global(before);
  EXPECT_EQ(mean, (std::vector<double>{0.485, 0.456}));
  graph.config["emit.std"] = std::string("0.229,0.224");
  EXPECT_THROW(recorded_options(graph), UserError);
}

TEST(Project, BudgetIsAnError) {
  try {
    render_project(mlp_training(), {.memory_budget = 1000, .format = false});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("memory budget is 1000"), std::string::npos) << e.what();
  }
}

TEST(Project, OptionsOfEmissionAreTheProgramsDefaultsAndAreRecorded) {
  const EmitOptions options{.name = "net",
                            .memory_budget = std::int64_t{1} << 40,
                            .threads = 3,
                            .data = "here",
                            .test_data = "there",
                            .epochs = 7,
                            .seed = 11,
                            .shuffle = false,
                            .mean = {0.5, 0.25},
                            .std = {2, 4},
                            .format = false};
  const auto files = render_project(mlp_training(), options);
  const std::string& program = files.at("main.cpp");
  for (const char* part : {".data = \"here\"", ".test_data = \"there\"", ".epochs = 7", ".seed = 11", ".threads = 3",
                           ".shuffle = false", ".mean = {0.5, 0.25}", ".std = {2, 4}"})
    EXPECT_NE(program.find(part), std::string::npos) << part << "\n" << program;
  const EmitOptions recorded = recorded_options(ir::from_json(files.at("graph.json"), "graph.json"));
  EXPECT_EQ(recorded.name, options.name);
  EXPECT_EQ(recorded.memory_budget, options.memory_budget);
  EXPECT_EQ(recorded.threads, options.threads);
  EXPECT_EQ(recorded.data, options.data);
  EXPECT_EQ(recorded.test_data, options.test_data);
  EXPECT_EQ(recorded.epochs, options.epochs);
  EXPECT_EQ(recorded.seed, options.seed);
  EXPECT_EQ(recorded.shuffle, options.shuffle);
  EXPECT_EQ(recorded.mean, options.mean);
  EXPECT_EQ(recorded.std, options.std);
}

ValueId call(Graph& g, std::string_view op, std::vector<ValueId> inputs, ir::Attributes attributes = {}) {
  return g.call(op, std::move(inputs), std::move(attributes), {{"model", "network.cpp", 1}});
}

/// A training graph of x f32[2*batch,3], y f32[batch] and a parameter w f32[3], and the losses that `build` makes of x
/// * w and y * w[0].
Graph of_losses(std::vector<ValueId> (*build)(Graph& g, ValueId x, ValueId y)) {
  Graph g;
  g.name = "Losses";
  g.training = true;
  const ir::Dim batch("batch", 4);
  const ValueId x = g.add_input("x", {DType::f32, {batch * ir::Dim(2), 3}}),
                y = g.add_input("y", {DType::f32, {batch}});
  const ValueId w = g.add_parameter("w", {DType::f32, {3}}, true), v = g.add_parameter("v", {DType::f32, {1}}, true);
  for (const ValueId loss : build(g, call(g, "mul", {x, w}), call(g, "mul", {y, v}))) {
    g.losses.push_back({loss, ir::kNone});
    g.outputs.push_back(loss);
  }
  g.optimizers.push_back({"sgd", {{{w}, {{"lr", 0.1}}}}, {"cosine", {{"T_max", 9}, {"eta_min", 0}}, {}}});
  g.optimizers.push_back({"sgd", {{{v}, {{"lr", 0.1}}}}, {"exponential", {{"gamma", 0.5}}, {}}});
  return g;
}

TEST(Project, ProgramsKnowTheirLossesSchedulesAndBatch) {
  const struct {
    const char* note;
    std::vector<ValueId> (*build)(Graph& g, ValueId x, ValueId y);
    bool sum;
  } cases[] = {
      {"two sums",
       [](Graph& g, ValueId x, ValueId y) { return std::vector<ValueId>{call(g, "sum", {x}), call(g, "sum", {y})}; },
       true},
      {"a sum and a mean",
       [](Graph& g, ValueId x, ValueId y) { return std::vector<ValueId>{call(g, "sum", {x}), call(g, "mean", {y})}; },
       false},
      {"a mean and a sum",
       [](Graph& g, ValueId x, ValueId y) { return std::vector<ValueId>{call(g, "mean", {x}), call(g, "sum", {y})}; },
       false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    const auto files = render_project(of_losses(c.build), {.format = false});
    const std::string &program = files.at("main.cpp"), &api = files.at("model_api.cpp");
    EXPECT_EQ(program.find("The loss is a sum over the samples") != std::string::npos, c.sum) << program;
    EXPECT_EQ(program.find("The loss is a mean over the samples") != std::string::npos, !c.sum) << program;
    EXPECT_NE(api.find("losses(2)"), std::string::npos) << "both are added up\n" << api;
    EXPECT_NE(api.find("losses.fetch(device, 1, "), std::string::npos) << api;
    EXPECT_NE(program.find(".schedule = {.kind = Schedule::Kind::cosine, .eta_min = 0, .T_max = 9}"), std::string::npos)
        << program;
    EXPECT_NE(program.find(".schedule = {.kind = Schedule::Kind::exponential, .gamma = 0.5}"), std::string::npos)
        << program;
    EXPECT_NE(program.find(".batch = 4,"), std::string::npos) << "x has two rows a sample\n" << program;
  }

  // Of sequences, each position has a label.
  Graph g;
  g.name = "Positions";
  g.training = true;
  const ValueId tokens = g.add_input("tokens", {DType::i64, {4, 6}}),
                targets = g.add_input("targets", {DType::i64, {4, 6}});
  const ValueId table = g.add_parameter("table", {DType::f32, {5, 5}}, true);
  const ValueId scores = call(g, "reshape", {call(g, "embedding", {table, tokens})}, {{"shape", ir::Shape{24, 5}}});
  const ValueId loss = call(g, "cross_entropy", {scores, call(g, "reshape", {targets}, {{"shape", ir::Shape{24}}})});
  g.outputs = {loss};
  g.losses = {{loss, ir::kNone}};
  g.optimizers.push_back({"sgd", {{{table}, {{"lr", 0.1}}}}, {}});
  const std::string program = render_project(g, {.format = false}).at("main.cpp");
  EXPECT_NE(program.find("row < count * 6"), std::string::npos) << program;
}

TEST(Project, WhatAnEarlierEmissionLeftIsRemovedAndReported) {
  const Folder folder("left");
  emit(mlp_training(), folder.path, {.format = false});
  EXPECT_TRUE(fs::exists(folder.path / "runtime/train.cpp"));
  const EmitReport report = emit(my_linear(), folder.path, {.format = false});
  EXPECT_FALSE(report.removed.empty());
  EXPECT_FALSE(fs::exists(folder.path / "runtime/train.cpp"));
  EXPECT_EQ(check(folder.path, {.format = false}), std::vector<std::string>());
  std::ofstream(folder.path / "kernels/cpu/another.h") << "";
  std::ofstream(folder.path / "mine.txt") << "";
  EXPECT_EQ(check(folder.path, {.format = false}), std::vector<std::string>())
      << "another's, and no part of the project";
}

TEST(Project, WeightsOfAnotherTypeAreRefused) {
  const Folder folder("other_weights");
  const ir::TensorType turned{DType::f32, {3, 4}};
  const auto weight = std::make_shared<ir::TensorData>(ir::TensorData{turned, std::vector<std::byte>(48)});
  try {
    emit(my_linear(), folder.path, {.weights = {{"model.weight", weight}}, .format = false});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("model.weight: expected f32[4,3], the weights given have f32[3,4]"),
              std::string::npos)
        << e.what();
  }
}

TEST(Project, RefusesGraphsWithoutInputs) {
  for (const bool training : {false, true}) {
    Graph graph;
    graph.name = "Alone";
    graph.training = training;
    const ValueId w = graph.add_parameter("w", {ir::DType::f32, {3}}, training);
    const ValueId sum = graph.call("sum", {graph.call("square", {w}, {}, {})}, {}, {});
    graph.outputs = {sum};
    if (training) {
      graph.losses = {{sum, ir::kNone}};
      graph.optimizers.push_back({"sgd", {{graph.parameters, {{"lr", 0.1}}}}, {}});
    }
    try {
      (void)render_project(graph, {});
      ADD_FAILURE() << training;
    } catch (const UserError& e) {
      EXPECT_EQ(std::string(e.what()),
                training
                    ? "error: a training graph without inputs cannot be emitted: there would be no samples to train on"
                    : "error: a graph without inputs cannot be emitted: it would compute the same at each call");
    }
  }
}

TEST(Project, RefusesOptionsOfEmissionThatCannotBe) {
  const struct {
    const char* key;
    ir::Attribute value;
    const char* error;
  } cases[] = {
      {"emit.epochs", std::int64_t{-5},
       "net/graph.json: config.emit.epochs: expected a number from 0 to 9007199254740992, found -5"},
      {"emit.threads", std::int64_t{4097}, "config.emit.threads: expected a number from 0 to 4096, found 4097"},
      {"emit.seed", std::int64_t{-1}, "config.emit.seed: expected a number from 0 to 9007199254740992, found -1"},
      {"emit.memory_budget", std::int64_t{-1}, "config.emit.memory_budget: expected a number from 0"},
      {"emit.epochs", std::string("5"), "config.emit.epochs: expected the type integer, found text"},
      {"emit.shuffle", std::int64_t{1}, "config.emit.shuffle: expected the type boolean, found integer"},
      {"emit.target", std::string("tpu"), "config.emit.target: expected cpu or cuda, found 'tpu'"},
      {"emit.mean", std::string("0.5 x"),
       "config.emit.mean: expected finite numbers with spaces between them, found '0.5 x'"},
      {"emit.std", std::string("1 0"),
       "config.emit.std: expected finite numbers above 0 with spaces between them, found '1 0'"},
      {"emit.foo", true,
       "config.emit.foo: expected one of emit.data, emit.epochs, emit.mean, emit.memory_budget, emit.name, emit.seed, "
       "emit.selftest, emit.shuffle, emit.std, emit.target, emit.test_data, emit.threads, found another key"},
  };
  for (const auto& c : cases) {
    Graph graph = polynomial_fit();
    graph.config[c.key] = c.value;
    try {
      (void)recorded_options(graph, "net/graph.json");
      ADD_FAILURE() << c.error;
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find(c.error), std::string::npos) << e.what();
    }
  }
}

TEST(Project, SchedulesAreWrittenWholeOrRefused) {
  Graph graph = polynomial_fit();
  graph.optimizers[0].schedule = {
      "step",
      {{"step_size", 3}, {"gamma", 0.5}, {"warmup_linear", 1}, {"warmup_factor", 0.25}, {"warmup_iters", 4}},
      {}};
  const std::string text = render_project(graph, {.format = false}).at("main.cpp");
  EXPECT_NE(text.find(".kind = Schedule::Kind::step, .gamma = 0.5, .step_size = 3, .warmup = Schedule::Warmup::linear, "
                      ".warmup_factor = 0.25, "
                      ".warmup_iters = 4"),
            std::string::npos)
      << text;
  const ir::Schedule step{"step", {{"step_size", 3}, {"gamma", 0.5}}, {}};
  graph.optimizers[0].schedule = {
      "sequential",
      {},
      {5, 20},
      {{"one_cycle",
        {{"total_steps", 5},
         {"pct_start", 0.5},
         {"div_factor", 4},
         {"final_div_factor", 10},
         {"anneal_linear", 0},
         {"three_phase", 1}},
        {}},
       {"sequential",
        {},
        {4},
        {step, {"exp_range", {{"max_factor", 10}, {"step_size_up", 2}, {"step_size_down", 3}, {"gamma", 0.5}}, {}}}},
       {"cosine_warm_restarts",
        {{"T_0", 7},
         {"T_mult", 2},
         {"eta_min", 0.25},
         {"warmup_linear", 0},
         {"warmup_factor", 0.25},
         {"warmup_iters", 3}},
        {}}}};
  const std::string nested = render_project(graph, {.format = false}).at("main.cpp");
  const std::string expected =
      R"(            {.lr = 1e-06, .schedule = {.kind = Schedule::Kind::sequential, .milestones = {5, 20}, .parts = {
              {.kind = Schedule::Kind::one_cycle, .div_factor = 4, .final_div_factor = 10, .pct_start = 0.5,)"
      R"( .total_steps = 5, .anneal_linear = false, .three_phase = true},
              {.kind = Schedule::Kind::sequential, .milestones = {4}, .parts = {
                {.kind = Schedule::Kind::step, .gamma = 0.5, .step_size = 3},
                {.kind = Schedule::Kind::exp_range, .gamma = 0.5, .max_factor = 10,)"
      R"( .step_size_up = 2, .step_size_down = 3},
              }},
              {.kind = Schedule::Kind::cosine_warm_restarts, .eta_min = 0.25, .T_0 = 7, .T_mult = 2,)"
      R"( .warmup = Schedule::Warmup::constant, .warmup_factor = 0.25, .warmup_iters = 3},
            }}},
)";
  EXPECT_NE(nested.find(expected), std::string::npos) << nested;
  const double inf = std::numeric_limits<double>::infinity();
  const struct {
    ir::Schedule schedule;
    const char* error;
  } cases[] = {
      {{"step", {{"step_size", 0}}, {}}, "expected a whole number from 1 to 2^53 for step_size, found 0"},
      {{"step", {{"step_size", 1.5}}, {}}, "for step_size, found 1.5"},
      {{"step", {{"step_size", 1e300}}, {}}, "for step_size, found 1e+300"},
      {{"cosine", {{"T_max", -1}}, {}}, "for T_max, found -1"},
      {{"cosine", {{"T_max", inf}}, {}}, "for T_max"},
      {{"linear", {{"total_iters", -1}}, {}}, "expected a whole number from 0 to 2^53 for total_iters, found -1"},
      {{"exponential", {{"gamma", -inf}}, {}}, "expected a finite number for gamma"},
      {{"multi_step", {}, {2, 2.5}}, "for a milestone, found 2.5"},
      {{"step", {{"momentum", 1}}, {}}, "the schedule 'step' has an unknown option, 'momentum'"},
      {{"sawtooth", {}, {}}, "no learning-rate schedule of kind 'sawtooth'"},
      {{"one_cycle", {{"total_steps", 0}}, {}},
       "the schedule 'one_cycle': expected a whole number from 1 to 2^53 for total_steps, found 0"},
      {{"one_cycle", {{"pct_start", -0.5}}, {}}, "expected a number from 0 to 1 for pct_start, found -0.5"},
      {{"one_cycle", {{"final_div_factor", 0}}, {}}, "expected a finite number above 0 for final_div_factor, found 0"},
      {{"one_cycle", {{"three_phase", 2}}, {}}, "expected 0 or 1 for three_phase, found 2"},
      {{"cosine_warm_restarts", {{"T_mult", 0.5}}, {}}, "for T_mult, found 0.5"},
      {{"triangular", {{"step_size_down", 0}}, {}}, "for step_size_down, found 0"},
      {{"cosine_decay", {{"decay_steps", 0}}, {}}, "for decay_steps, found 0"},
      {{"sequential", {}, {}}, "the schedule 'sequential': expected one milestone fewer than parts, found 0 and 0"},
      {{"sequential", {}, {1, 2}, {step, step}}, "expected one milestone fewer than parts, found 2 and 2"},
      {{"sequential", {}, {0}, {step, step}}, "expected milestones that increase from above 0, found 0"},
      {{"sequential", {}, {3, 3}, {step, step, step}}, "expected milestones that increase from above 0, found 3, 3"},
      {{"sequential", {}, {3}, {step, {"sawtooth", {}, {}}}}, "no learning-rate schedule of kind 'sawtooth'"},
      {{"sequential", {}, {3}, {step, {"step", {{"step_size", 0}}, {}}}},
       "the schedule 'step': expected a whole number from 1"},
      {{"step", {}, {}, {step}}, "the schedule 'step' has parts, as only 'sequential' may"},
  };
  for (const auto& c : cases) {
    graph.optimizers[0].schedule = c.schedule;
    try {
      render_project(graph, {.format = false});
      ADD_FAILURE() << c.error;
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find(c.error), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace graven::codegen
