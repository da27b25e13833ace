// The graven command given what it cannot use: a status, one message on the screen, nothing written.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "ir/json.h"
#include "ir/op.h"
#include "runtime_min/safetensors.h"

namespace graven {
namespace {

namespace fs = std::filesystem;

TEST(Command, GivesItsError) {
  const fs::path work = fs::path(GRAVEN_BINARY_DIR) / "errors_command";
  fs::remove_all(work);
  fs::create_directories(work / "occupied");
  std::ofstream(work / "occupied/mine.txt") << "not Graven's";
  std::ofstream(work / "half.json") << "{\n\"format\": \"graven.graph\",";
  std::ofstream(work / "words.json") << "no JSON";
  std::ofstream(work / "empty.json");
  ASSERT_EQ(::mkfifo((work / "pipe").c_str(), 0600), 0);  // nobody writes into it
  fs::create_directories(work / "bad_weights");
  const fs::path golden = fs::path(GRAVEN_SOURCE_DIR) / "tests/golden/my_linear";
  fs::copy_file(golden / "graph.json", work / "bad_weights/graph.json");
  std::ofstream(work / "bad_weights/weights.safetensors") << "short";
  // A graph whose types are not what its operators make; weights of another shape, and of another graph.
  ir::Graph relu;
  relu.name = "Relu";
  const ir::ValueId x = relu.add_input("x", {ir::DType::f32, {2, 3}}),
                    w = relu.add_parameter("w", {ir::DType::f32, {3}}, false);
  relu.outputs = {relu.call("relu", {relu.call("mul", {x, w}, {}, {})}, {}, {})};
  for (const char* folder : {"other_shape", "other_graph"}) {
    fs::create_directories(work / folder);
    ir::write_graph((work / folder / "graph.json").string(), relu, "digest");
    std::vector<float> numbers(4);
    const bool shape = std::string_view(folder) == "other_shape";
    runtime::save_variables((work / folder / "weights.safetensors").string(),
                            std::vector<runtime::Variable>{{"w", runtime::DType::f32, {shape ? 4 : 3}, numbers.data()}},
                            {{std::string(ir::kSavedKey), shape ? "digest" : "another"}});
  }
  relu.value(relu.outputs[0]).type.shape = {2, 4};
  ir::write_graph((work / "types.json").string(), relu);
  // A few lines that declare more than any machine holds.
  const std::string graph = golden.string(), out = (work / "project").string(),
                    trained = (golden.parent_path() / "polynomial_fit").string(),
                    on_cuda = (golden.parent_path() / "polynomial_fit_cuda").string();

  const struct {
    std::vector<std::string> words;
    int status;
    std::string error;
  } cases[] = {
      {{}, 2, "error: a command is required"},
      {{"compile"}, 2, "error: there is no command 'compile'"},
      {{"--bogus"}, 2, "--bogus"},
      {{"emit"}, 2, "error: graph is required"},
      {{"emit", graph, "-o", out, "--bogus"}, 2, "--bogus"},
      {{"emit", graph, "-o"}, 2, "--output"},
      {{"emit", graph}, 1, "error: where should the project go?"},
      {{"emit", "/nonexistent", "-o", out}, 1, "error: /nonexistent: no such file or folder"},
      {{"emit", graph, "-o", "/proc/none"}, 1, "error: /proc/none: cannot create the folder"},
      {{"emit", graph, "-o", (work / "half.json").string()}, 1, "is a file; a project needs a folder"},
      {{"emit", graph, "-o", (work / "occupied").string()}, 1, "is not empty, and holds no graph of Graven's"},
      {{"emit", graph, "-o", out, "--target", "tpu"}, 2, "error: --target: tpu not in {cpu,cuda}"},
      {{"emit", graph, "-o", out, "--disable", "nonsense"}, 1, "error: there is no pass 'nonsense'"},
      {{"emit", graph, "-o", out, "--from", "nonsense"}, 1, "error: there is no pass 'nonsense'"},
      {{"emit", graph, "-o", out, "--to", "nonsense"}, 1, "error: there is no pass 'nonsense'"},
      // What the passes did is not undone.
      {{"emit", graph, "-o", out, "--disable", "fuse_epilogues"},
       1,
       "error: the pass 'fuse_epilogues' cannot be left out: the graph MyLinear has been through it\n  emit the graph "
       "as it was saved"},
      {{"emit", graph, "-o", out, "--target", "cuda"},
       1,
       "error: the graph MyLinear has been through the passes for the CPU: it cannot be emitted for CUDA\n  emit the "
       "graph as it was saved"},
      {{"emit", on_cuda, "-o", out, "--target", "cpu"},
       1,
       "error: the graph PolynomialFit has been through the passes for CUDA: it cannot be emitted for the CPU\n  emit "
       "the graph as it was saved"},
      {{"emit", graph, "-o", out, "--update-in-backward"}, 1, "has no optimizer"},
      {{"emit", graph, "-o", out, "--to", "choose_layout"}, 1, "error: the graph is past the pass 'choose_layout'"},
      {{"emit", graph, "-o", out, "--dump", "/proc/none"}, 1, "error: /proc/none: cannot create the directory"},
      {{"emit", graph, "-o", out, "--memory-budget", "-5"},
       2,
       "error: --memory-budget: expected a whole number from 0 to 1152921504606846976, found -5"},
      {{"emit", graph, "-o", out, "--memory-budget", "nan"}, 2, "--memory-budget"},
      {{"emit", graph, "-o", out, "--memory-budget", "99999999999999999999"}, 2, "--memory-budget"},
      {{"emit", (golden.parent_path() / "polynomial_fit").string(), "-o", out, "--memory-budget", "1000"},
       1,
       "memory budget is 1000"},
      {{"emit", graph, "-o", out, "--selftest", "-1"}, 2, "--selftest"},
      {{"emit", graph, "-o", out, "--selftest", "much"}, 2, "--selftest"},
      {{"emit", (work / "other_shape").string(), "-o", out},
       1,
       "the tensor 'w' does not fit the graph\n  expected  f32[3]\n  found     f32[4]"},
      {{"emit", (work / "other_graph").string(), "-o", out}, 1, "were not saved together"},
      {{"check", (work / "other_shape").string()}, 1, "the tensor 'w' does not fit the graph"},
      {{"check", (work / "types.json").string()},
       1,
       "types.json: nodes[1].outputs[0][1]: expected f32[2,3], which 'relu' gives, found f32[2,4]"},
      {{"emit", (work / "half.json").string(), "-o", out}, 1, "half.json: line 2"},
      {{"emit", (work / "bad_weights").string(), "-o", out},
       1,
       "weights.safetensors: header: expected 8 bytes of length, found 5 bytes"},
      {{"check", (work / "words.json").string()}, 1, "words.json: line 1, column 2: not valid JSON"},
      {{"check", (work / "empty.json").string()}, 1, "empty.json"},
      {{"check", (work / "occupied").string()}, 1, "holds no graph.json"},
      {{"check", (work / "pipe").string()}, 1, "pipe: expected a file, found something else"},
      {{"check", "/dev/zero"}, 1, "/dev/zero: expected a file, found something else"},
      {{"check", (work / "bad_weights").string()}, 1, "weights.safetensors: header"},
      {{"show", graph, "--format", "nonsense"}, 2, "error: --format: nonsense not in"},
      {{"show", graph, "-o", "/dev/full"}, 1, "error: /dev/full: cannot write: No space left on device"},
      {{"show", graph, "-o", work.string()}, 1, "expected a file, found a folder"},
      {{"build", "/nonexistent"}, 1, "error: /nonexistent: is no emitted project"},
      {{"build", work.string()}, 1, "is no emitted project"},
      {{"build", graph, "-j", "-1"}, 2, "error: --jobs: expected a whole number from 0 to 4096, found -1"},
      {{"build", graph, "-j", "99999999999"}, 2, "--jobs"},
      {{"run", "/nonexistent"}, 1, "is no emitted project"},
      {{"simulate", trained}, 2, "error: --ranks is required"},
      {{"simulate", trained, "--ranks", "4", "--latency", "5us"}, 2, "error: --bandwidth is required"},
      {{"simulate", trained, "--ranks", "0", "--bandwidth", "1GB/s", "--latency", "5us"},
       2,
       "error: --ranks: expected a whole number from 1 to 1048576, found 0"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "fast", "--latency", "5us"},
       2,
       "error: --bandwidth: expected a rate as in 25GB/s or 200Gbit/s, found fast"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "25", "--latency", "5us"},
       2,
       "error: --bandwidth: expected a rate as in 25GB/s or 200Gbit/s, found 25"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "0GB/s", "--latency", "5us"}, 2, "found 0GB/s"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "infGB/s", "--latency", "5us"}, 2, "found infGB/s"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "1GB/s", "--latency", "-1us"},
       2,
       "error: --latency: expected a time as in 5us or 0.1ms, found -1us"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "1GB/s", "--latency", "5us", "--memory", "80"},
       2,
       "error: --memory: expected a size as in 80GB or 512MiB, found 80"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "1GB/s", "--latency", "5us", "--flops", "1GB/s"},
       2,
       "error: --flops: expected a rate as in 312TFLOP/s or 200GFLOP/s, found 1GB/s"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "1GB/s", "--latency", "5us", "--flops-efficiency", "1.5"},
       2,
       "error: --flops-efficiency: expected a number above 0, 1 at most, found 1.5"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "1GB/s", "--latency", "5us", "--plan", "zero4"},
       2,
       "error: --plan: expected data, zero1, zero2, zero3, pipeline:S or tensor:T, or several of them as in "
       "data:8,pipeline:4,tensor:2, found zero4"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "1GB/s", "--latency", "5us", "--plan", "pipeline:3"},
       1,
       "error: the plan pipeline:3: expected a number of ranks that 3 divides, found 4"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "1GB/s", "--latency", "5us", "--trace", out},
       1,
       "error: --trace: expected one --plan, found 0"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "1GB/s", "--latency", "5us", "--measured", "/nonexistent"},
       1,
       "error: /nonexistent: cannot be read"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "1GB/s", "--latency", "5us", "--measured",
        (work / "words.json").string()},
       1,
       "words.json: expected a line {"},
      {{"simulate", trained, "--ranks", "4", "--bandwidth", "1GB/s", "--latency", "5us", "--batch", "7"},
       1,
       "error: --batch: expected 2000, which the graph is recorded for, found 7"},
      {{"simulate", graph, "--ranks", "4", "--bandwidth", "1GB/s", "--latency", "5us"},
       1,
       "error: the graph MyLinear does not train: it has no loss, or no optimizer"},
      {{"ops", "nonsense"}, 1, "error: unknown operator 'nonsense'"},
      {{"passes", "extra"}, 2, "not expected: extra"},
  };
  for (const auto& c : cases) {
    std::vector<std::string> command = {GRAVEN_BINARY_DIR "/graven"};
    command.insert(command.end(), c.words.begin(), c.words.end());
    std::string line;
    for (const std::string& word : c.words) line += " " + word;
    SCOPED_TRACE("graven" + line);
    const codegen::ProcessResult r = codegen::run_process(command, {.directory = work.string(), .seconds = 60});
    EXPECT_FALSE(r.timed_out);
    EXPECT_EQ(r.exit_status, c.status) << r.output;
    EXPECT_NE(r.output.find("error: "), std::string::npos) << r.output;
    EXPECT_NE(r.output.find(c.error), std::string::npos) << r.output;
    EXPECT_LT(r.output.size(), 2000U) << r.output;
    EXPECT_FALSE(fs::exists(out)) << "nothing is written";
    fs::remove_all(out);
  }
}

/// Where the memory ends while a file is read: the sanitizers' own would not fit either.
TEST(Command, SaysThatItIsOutOfMemory) {
  if (GRAVEN_SANITIZED) GTEST_SKIP() << "a sanitizer's address space cannot be bounded";
  const fs::path work = fs::path(GRAVEN_BINARY_DIR) / "errors_memory";
  fs::remove_all(work);
  fs::create_directories(work);
  std::string numbers = "[0";
  for (int i = 0; i < 8 << 20; ++i) numbers += ",0";
  std::ofstream(work / "long.json") << numbers << "]";
  const codegen::ProcessResult r =
      codegen::run_process({"sh", "-c", "ulimit -v 60000 && exec " GRAVEN_BINARY_DIR "/graven check long.json"},
                           {.directory = work.string(), .seconds = 60});
  EXPECT_EQ(r.exit_status, 1) << r.output;
  EXPECT_EQ(r.output, "error: out of memory in graven check long.json\n");
  fs::remove_all(work);
}

}  // namespace
}  // namespace graven
