// --profile of emitted programs: its table and its trace, that it trains as the program does, and what it refuses.
#include <graven/codegen.h>
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "runtime_min/npy.h"
#include "tests/read_text.h"

namespace graven::codegen {
namespace {

namespace fs = std::filesystem;

struct ProfiledBlock : nn::Module<ProfiledBlock> {
  nn::Linear wide = child("wide", nn::Linear(16, 32)), narrow = child("narrow", nn::Linear(32, 16));
  Tensor forward(Tensor x) { return x + narrow(gelu(wide(x))); }
};

/// Its blocks are calls of one function in the project.
struct ProfiledBlocks : nn::Module<ProfiledBlocks> {
  nn::Sequential blocks = child("blocks", nn::Sequential(ProfiledBlock(), ProfiledBlock(), ProfiledBlock()));
  nn::Linear logits = child("logits", nn::Linear(16, 3));
  Tensor forward(Tensor x) { return logits(blocks(x)); }
};

struct ProfiledTraining : nn::Graph<ProfiledTraining> {
  ProfiledBlocks model = child("model", ProfiledBlocks());
  nn::CrossEntropyLoss loss_fn = child("loss_fn", nn::CrossEntropyLoss());
  optim::SGD optimizer{model.parameters(), {.lr = 0.05, .momentum = 0.9}};
  ProfiledTraining() { add_optimizer(optimizer); }
  Tensor build(Tensor images, Tensor labels) {
    Tensor loss = loss_fn(model(images), labels);
    loss.backward();
    return loss;
  }
};

struct ProfiledInference : nn::Graph<ProfiledInference> {
  ProfiledBlocks model = child("model", ProfiledBlocks());
  Tensor build(Tensor images) { return model(images); }
};

template <class T>
void write_rows(const fs::path& path, runtime::DType dtype, const runtime::Dims& shape, const std::vector<T>& values) {
  runtime::NpyWriter writer(path.string(), dtype, shape);
  writer.write(values.data(), values.size() * sizeof(T));
  writer.commit();
}

/// A training and an inference project, built once, and data for both.
class ProfileOfProjects : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    fs::remove_all(folder());
    fs::create_directories(folder());
    manual_seed(1);
    ProfiledTraining train;
    train.compile(spec({Dim("batch", 8), 16}, "images"), spec({Dim("batch", 8)}, i64, "labels"));
    emit(train, (folder() / "train").string());
    ProfiledInference infer;
    infer.compile(spec({8, 16}, "images"));
    emit(infer, (folder() / "infer").string());
    for (const char* project : {"train", "infer"}) build(project);
    std::vector<float> images(40 * 16);
    std::vector<std::int64_t> labels(40);
    for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(std::sin(1.7 * double(i)));
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(i % 3);
    write_rows(folder() / "images.npy", runtime::DType::f32, {40, 16}, images);
    write_rows(folder() / "labels.npy", runtime::DType::i64, {40}, labels);
  }

  void tells_the_modules_of_blocks_apart();
  void trains_as_the_program_does();
  void says_of_which_sizes_its_numbers_are();
  void is_of_an_inference_on_data_or_on_random_numbers();
  void refuses_what_makes_no_sense();
  void says_where_the_list_of_calls_is_not_the_programs();

  static fs::path folder() { return fs::path(GRAVEN_BINARY_DIR) / "emitted" / "profiled"; }
  static void build(const std::string& project) {
    const fs::path at = folder() / project;
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"cmake", "-S", at.string(), "-B", (at / "build").string(), "-DGRAVEN_LEVELS=base",
                                   "-DCMAKE_CXX_FLAGS=-Werror"},
          std::vector<std::string>{"cmake", "--build", (at / "build").string(), "-j2"}}) {
      const ProcessResult r = run_process(command, {.seconds = 500});
      ASSERT_EQ(r.exit_status, 0) << r.output;
    }
  }
  static ProcessResult run(const std::string& project, const std::string& program,
                           const std::vector<std::string>& options) {
    std::vector<std::string> command = {(folder() / project / "build" / program).string()};
    command.insert(command.end(), options.begin(), options.end());
    return run_process(command, {.directory = folder().string(), .seconds = 100});
  }
  static std::string output_of(const std::string& project, const std::string& program,
                               const std::vector<std::string>& options) {
    const ProcessResult r = run(project, program, options);
    EXPECT_EQ(r.exit_status, 0) << r.output;
    return r.output;
  }
  static constexpr const char *kTrain = "profiled_training", *kInfer = "profiled_inference";

  /// Of a trace: the calls of kernels, by phase and module; how many steps there are, and how much of them is calls'.
  struct Trace {
    std::map<std::string, std::set<std::string>> modules;
    int steps = 0;
    double in_steps = 0, in_calls = 0;
  };
  static Trace read_trace(const fs::path& path) {
    Trace trace;
    const nlohmann::json all = nlohmann::json::parse(read_text(path));
    for (const nlohmann::json& event : all.at("traceEvents")) {
      if (event.at("ph") == "M") continue;
      EXPECT_EQ(event.at("ph"), "X");
      EXPECT_EQ(event.at("pid"), 1);
      EXPECT_GE(event.at("tid"), 1);
      EXPECT_TRUE(event.at("ts").is_number());
      if (event.at("cat") == "step") {
        ++trace.steps;
        trace.in_steps += event.at("dur").get<double>();
      } else {
        trace.in_calls += event.at("dur").get<double>();
        trace.modules[event.at("cat")].insert(event.at("args").at("module").get<std::string>());
        EXPECT_TRUE(event.at("args").at("flops").is_number());
        EXPECT_TRUE(event.at("args").at("bytes").is_number());
      }
    }
    return trace;
  }
};

void ProfileOfProjects::tells_the_modules_of_blocks_apart() {
  const std::string table = output_of("train", kTrain, {"--profile", "trace.json", "--profile-steps", "7"});
  EXPECT_NE(table.find("a step, the mean of the faster half of 7\nlimits, measured now: "), std::string::npos) << table;
  EXPECT_EQ(table.find("largest sizes"), std::string::npos) << table;
  for (const char* row : {"\nforward", "\nbackward", "\nupdate", "\n  optimizer  sgd, momentum 0.9", "\nbetween calls",
                          "\ntotal", "\n  model.logits", "\n  loss_fn", "\ntrace: trace.json"})
    EXPECT_NE(table.find(row), std::string::npos) << row << "\n" << table;
  std::set<std::string> layers = {"model.logits", "loss_fn"};
  for (const char* block : {"0", "1", "2"})
    for (const char* layer : {".wide", ".narrow"}) layers.insert(std::string("model.blocks.") + block + layer);
  const Trace trace = read_trace(folder() / "trace.json");
  EXPECT_EQ(trace.modules.size(), 3u);
  for (const char* phase : {"forward", "backward"})
    for (const std::string& layer : layers) {
      EXPECT_TRUE(trace.modules.at(phase).count(layer)) << phase << " " << layer;
      EXPECT_NE(table.find("\n  " + layer), std::string::npos) << layer;
    }
  EXPECT_EQ(trace.modules.at("update"), std::set<std::string>{"optimizer"});
  EXPECT_EQ(trace.steps, 7);
  EXPECT_LE(trace.in_calls, trace.in_steps);
  EXPECT_GT(trace.in_calls, 0);
  // In the text the blocks are calls of a function.
  const std::string model = read_text(folder() / "train/model.cpp");
  EXPECT_NE(model.find("model.blocks.1: ProfiledBlock"), std::string::npos) << "blocks are no functions any more";
}

void ProfileOfProjects::trains_as_the_program_does() {
  const std::vector<std::string> data = {"--data", "images.npy,labels.npy", "--seed", "4", "--batch", "8"};
  const auto losses_of = [&](std::vector<std::string> options, const std::string& log) {
    fs::remove(folder() / log);
    options.insert(options.end(), data.begin(), data.end());
    options.insert(options.end(), {"--log", log});
    output_of("train", kTrain, options);
    std::vector<double> losses;
    std::istringstream lines(read_text(folder() / log));
    for (std::string line; std::getline(lines, line);)
      if (const auto entry = nlohmann::json::parse(line); entry.at("event") == "step") losses.push_back(entry["loss"]);
    return losses;
  };
  const std::vector<double> profiled = losses_of({"--profile", "--profile-steps", "9"}, "profiled.jsonl"),
                            plain = losses_of({"--steps", "12", "--out", ""}, "plain.jsonl");
  EXPECT_EQ(profiled.size(), 12u);
  EXPECT_EQ(profiled, plain);
  EXPECT_FALSE(fs::exists(folder() / "checkpoints"));  // a profile saves nothing
}

void ProfileOfProjects::says_of_which_sizes_its_numbers_are() {
  EXPECT_NE(output_of("train", kTrain, {"--profile", "--batch", "4"})
                .find("\nbytes and FLOP are those of the largest sizes: batch 8\n"),
            std::string::npos);
}

void ProfileOfProjects::is_of_an_inference_on_data_or_on_random_numbers() {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--profile", "call.json"},
        std::vector<std::string>{"--data", "images.npy", "--profile", "call.json", "--profile-steps", "20"}}) {
    fs::remove(folder() / "call.json");
    const std::string table = output_of("infer", kInfer, options);
    EXPECT_EQ(table.find("backward"), std::string::npos) << table;
    const Trace trace = read_trace(folder() / "call.json");
    EXPECT_EQ(trace.steps, 20);
    ASSERT_EQ(trace.modules.size(), 1u);
    EXPECT_TRUE(trace.modules.at("forward").count("model.blocks.2.wide"));
  }
}

void ProfileOfProjects::refuses_what_makes_no_sense() {
  const struct {
    const char *project, *program;
    std::vector<std::string> options;
    int status;
    const char* error;
  } cases[] = {
      {"train", kTrain, {"--profile", "missing/trace.json"}, 1, "error: missing/trace.json: cannot create"},
      {"train", kTrain, {"--profile", "--bench", "3"}, 2, "error: --profile: expected no --bench"},
      {"train", kTrain, {"--profile", "--steps", "3"}, 2, "error: --profile: expected no --steps"},
      {"train", kTrain, {"--profile", "--resume"}, 2, "error: --profile: expected no --resume"},
      {"train", kTrain, {"--profile", "--out", "there"}, 2, "error: --profile: expected no --out"},
      {"train", kTrain, {"--profile-steps", "3"}, 2, "error: --profile-steps: expected --profile beside it"},
      {"train", kTrain, {"--profile", "--profile-steps", "0"}, 2, "error: --profile-steps"},
      {"infer", kInfer, {"--profile", "missing/trace.json"}, 1, "error: missing/trace.json: cannot create"},
      {"infer", kInfer, {"--profile", "--bench"}, 2, "error: --profile: expected no --bench"},
      {"infer", kInfer, {"--profile", "--output", "x.npy"}, 2, "error: --profile: expected no --output"},
  };
  for (const auto& c : cases) {
    const ProcessResult r = run(c.project, c.program, c.options);
    EXPECT_EQ(r.exit_status, c.status) << r.output;
    EXPECT_EQ(r.output.find(c.error), 0u) << r.output;  // the first line, before any work
  }
}

/// Calls are known by their order: where the text was edited, that is said and not guessed.
void ProfileOfProjects::says_where_the_list_of_calls_is_not_the_programs() {
  const fs::path list = folder() / "infer/calls.h";
  const std::string text = read_text(list);
  const std::size_t last = text.rfind("GRAVEN_CALL(forward");
  ASSERT_NE(last, std::string::npos);
  std::ofstream(list) << std::string(text).erase(last, text.find('\n', last) + 1 - last);
  build("infer");
  const ProcessResult r = run("infer", kInfer, {"--profile"});
  std::ofstream(list) << text;
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_NE(r.output.find("error: calls.h: expected a line for call "), std::string::npos) << r.output;
}

/// One test, so that the projects are built once.
TEST_F(ProfileOfProjects, TableTraceAndErrors) {
  tells_the_modules_of_blocks_apart();
  trains_as_the_program_does();
  says_of_which_sizes_its_numbers_are();
  is_of_an_inference_on_data_or_on_random_numbers();
  refuses_what_makes_no_sense();
  says_where_the_list_of_calls_is_not_the_programs();
}

}  // namespace
}  // namespace graven::codegen
