// The graven command at work: what each subcommand prints and writes for a small saved graph. What they refuse stands
// in tests/errors. Whole texts are stored under tests/command/texts; `test_command --bless` rewrites them, and the
// options in docs/command.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "codegen/build/process.h"
#include "codegen/emit/format.h"
#include "codegen/plan/plan.h"
#include "ir/json.h"
#include "ir/op.h"
#include "ir/ops.h"
#include "ir/passes/derive_evaluation.h"
#include "ir/passes/pass.h"
#include "ir/tuning.h"
#include "tests/passes/graphs.h"
#include "tests/read_text.h"

namespace graven::test {
namespace {

namespace fs = std::filesystem;
using codegen::ProcessResult;

bool bless = false;

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void expect_text(const std::string& name, const std::string& found) {
  const std::string path = GRAVEN_SOURCE_DIR "/tests/command/texts/" + name;
  if (bless) std::ofstream(path, std::ios::binary) << found;
  EXPECT_EQ(text_of(path), found)
      << path << " says otherwise. If the change is meant, run: test_command --bless, and read the difference";
}

/// A folder of the test's own, where the command runs. Its saved/ is a network that is another function when it is
/// evaluated: it has batch norms.
class Command : public testing::Test {
 protected:
  Command() {
    fs::remove_all(work);
    fs::create_directories(work / "saved");
    ir::write_graph((work / "saved/graph.json").string(), tests::residual_training());
  }

  ProcessResult run(std::vector<std::string> words, const std::vector<std::string>& environment = {}) const {
    std::vector<std::string> command = {"/usr/bin/env"};
    command.insert(command.end(), environment.begin(), environment.end());
    command.emplace_back(GRAVEN_BINARY_DIR "/graven");
    command.insert(command.end(), words.begin(), words.end());
    return codegen::run_process(command,
                                {.directory = work.string(), .seconds = 300, .output_limit = std::size_t{1} << 24});
  }

  /// What it prints, and that it succeeds.
  std::string output(const std::vector<std::string>& words, const std::vector<std::string>& environment = {}) const {
    const ProcessResult r = run(words, environment);
    std::string line = "graven";
    for (const std::string& word : words) line += " " + word;
    EXPECT_EQ(r.exit_status, 0) << line << "\n" << r.output;
    return r.output;
  }

  const fs::path work =
      fs::path(GRAVEN_BINARY_DIR) / "command" / testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(Command, SlowFormattersAreWaitedFor) {
  const std::string formatter = codegen::find_formatter();
  if (formatter.empty()) GTEST_SKIP() << "clang-format 19 is not installed";
  ir::write_graph((work / "saved/graph.json").string(), tests::polynomial_training());
  const fs::path slow = work / "bin/clang-format-19";
  fs::create_directories(slow.parent_path());
  std::ofstream(slow) << "#!/bin/sh\nif [ \"$1\" = --version ]; then sleep 11; fi\nexec " << formatter << " \"$@\"\n";
  fs::permissions(slow, fs::perms::owner_all);
  const std::vector<std::string> path = {"PATH=" + slow.parent_path().string() + ":" + std::getenv("PATH")};
  EXPECT_EQ(output({"emit", "saved", "-o", "project", "-q"}, path).find("clang-format"), std::string::npos);
  output({"emit", "project", "--check"});
}

TEST_F(Command, CheckNeedsTheFormatterOnlyWhereItDecides) {
  if (codegen::find_formatter().empty()) GTEST_SKIP() << "clang-format 19 is not installed";
  ir::write_graph((work / "saved/graph.json").string(), tests::polynomial_training());
  const std::vector<std::string> without = {"PATH=" + work.string()};
  output({"emit", "saved", "-o", "formatted", "-q"});
  EXPECT_NE(output({"emit", "formatted", "--check"}).find("as it would be emitted now"), std::string::npos);
  ProcessResult r = run({"emit", "formatted", "--check"}, without);
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_NE(r.output.find("error: formatted: cannot be compared: clang-format 19 was not found"), std::string::npos)
      << r.output;
  EXPECT_EQ(r.output.find("are not what would be emitted now"), std::string::npos) << r.output;
  // A file that nobody formats decides by itself.
  fs::remove(work / "formatted/CMakeLists.txt");
  r = run({"emit", "formatted", "--check"}, without);
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_NE(r.output.find("CMakeLists.txt: is missing\n"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("model.cpp: differs, perhaps for want of clang-format 19\n"), std::string::npos) << r.output;
  // What was emitted without it is compared without it.
  EXPECT_NE(output({"emit", "saved", "-o", "plain", "-q"}, without).find("note: clang-format 19 was not found"),
            std::string::npos);
  output({"emit", "plain", "--check"}, without);
  output({"emit", "plain", "--check", "--no-format"});
}

TEST_F(Command, CheckComparesWithTheGraphThatIsGiven) {
  ir::Graph graph = tests::polynomial_training();
  ir::write_graph((work / "saved/graph.json").string(), graph);
  output({"emit", "saved", "-o", "project", "-q", "--no-format", "--name", "fit"});
  // With the options that the project was emitted with.
  output({"emit", "saved", "-o", "project", "--check", "--no-format"});
  graph.name = "Another";
  graph.optimizers[0].groups[0].options["lr"] = 0.5;
  graph.optimizers[0].groups[0].options["momentum"] = 0.5;
  fs::create_directories(work / "other");
  ir::write_graph((work / "other/graph.json").string(), graph);
  ProcessResult r = run({"emit", "other", "-o", "project", "--check", "--no-format"});
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_NE(r.output.find("model.cpp: differs\n"), std::string::npos) << r.output;
  // A pass that would no longer run.
  r = run({"emit", "saved", "-o", "project", "--check", "--no-format", "--disable", "fuse_elementwise"});
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_NE(r.output.find("graph.json: differs\n"), std::string::npos) << r.output;
  for (const char* file : {"weights.safetensors", "selftest.safetensors"}) {
    fs::rename(work / "project" / file, work / "away");
    r = run({"emit", "project", "--check", "--no-format"});
    EXPECT_EQ(r.exit_status, 1);
    EXPECT_NE(r.output.find(std::string(file) + ": is missing\n"), std::string::npos) << r.output;
    fs::rename(work / "away", work / "project" / file);
  }
  fs::copy_file(work / "project/selftest.safetensors", work / "project/weights.safetensors",
                fs::copy_options::overwrite_existing);
  r = run({"emit", "saved", "-o", "project", "--check", "--no-format"});
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_NE(r.output.find("weights.safetensors: has no "), std::string::npos) << r.output;
}

TEST_F(Command, SaysThatAGraphIsSound) {
  output({"emit", "saved", "-o", "project", "-q", "--no-format"});
  for (const std::string path : {"saved", "saved/graph.json", "project"}) {
    const std::string text = output({"check", path});
    EXPECT_EQ(text.find(path + ": sound: "), 0u) << text;
    EXPECT_NE(text.find(" nodes after "), std::string::npos) << text;
    const std::string weights = path == "project" ? ", weights fit" : " (no weights beside it)";
    EXPECT_NE(text.find(" parameters and buffers" + weights + "; compiles to "), std::string::npos) << text;
    EXPECT_NE(text.find("; its evaluation to "), std::string::npos) << text;
  }
}

TEST_F(Command, EmitsAgainWithTheBudgetThatWasGiven) {
  output({"emit", "saved", "-o", "project", "-q", "--no-format", "--memory-budget", "1000000"});
  output({"emit", "project", "--check", "--no-format"});
  const ProcessResult r = run({"emit", "project", "--check", "--no-format", "--memory-budget", "1000001"});
  EXPECT_EQ(r.exit_status, 1) << r.output;
  const std::string plan = read_text(work / "project/memory_plan.h");
  EXPECT_NE(plan.find("<= 1000000"), std::string::npos) << plan;
  // One byte is a budget, too; none lifts the one that was given.
  const ProcessResult small = run({"emit", "project", "-o", "project", "--no-format", "--memory-budget", "1"});
  EXPECT_EQ(small.exit_status, 1) << small.output;
  EXPECT_NE(small.output.find("memory budget is 1"), std::string::npos) << small.output;
  EXPECT_EQ(read_text(work / "project/memory_plan.h"), plan);
  output({"emit", "project", "-o", "project", "-q", "--no-format", "--memory-budget", "0"});
  EXPECT_EQ(read_text(work / "project/memory_plan.h").find("budget"), std::string::npos);
  output({"emit", "project", "--check", "--no-format"});
}

/// The check and the emission say the same of every change: sound exactly where nothing would be written.
TEST_F(Command, CheckIsSoundExactlyWhereEmissionChangesNothing) {
  const fs::path saved = work / "saved/graph.json", project = work / "project";
  ir::Graph graph = tests::polynomial_training();
  ir::write_graph(saved.string(), graph);
  output({"emit", "saved", "-o", "first", "-q", "--no-format", "--name", "fit"});
  // Options that a program gives, of which the saved graph knows nothing.
  ir::Graph recorded = ir::read_graph((work / "first/graph.json").string());
  const auto option = [&](const char* key, ir::Attribute value) { graph.config[key] = std::move(value); };
  option("emit.name", std::string("fit"));
  option("emit.mean", std::string("0.5 0.25"));
  option("emit.epochs", std::int64_t{7});
  fs::create_directories(work / "with");
  ir::write_graph((work / "with/graph.json").string(), graph);
  output({"emit", "with", "-o", "project", "-q", "--no-format"});
  const std::vector<std::string> emission = {"emit", "saved", "-o", "project", "--no-format"};
  const auto expect_agreement = [&](const std::string& change, int status) {
    SCOPED_TRACE(change);
    std::vector<std::string> check = emission;
    check.emplace_back("--check");
    const ProcessResult checked = run(check);
    EXPECT_EQ(checked.exit_status, status) << checked.output;
    const ProcessResult r = run(emission);
    const bool sound = r.exit_status == 0 && r.output.find("project: 0 files written") != std::string::npos &&
                       r.output.find(" 0 removed") != std::string::npos;
    EXPECT_EQ(sound, status == 0) << r.output;
    return checked.output + r.output;
  };
  expect_agreement("nothing", 0);
  EXPECT_NE(text_of(project / "main.cpp").find("0.25"), std::string::npos) << "the normalisation";
  std::ofstream(project / "model.cpp", std::ios::app) << "// mine\n";
  std::ofstream(project / "mine.cpp") << "";
  EXPECT_NE(expect_agreement("an edited file", 0).find("model.cpp: edited, and left so"), std::string::npos);
  fs::remove(project / "model.h");
  expect_agreement("a missing file", 1);
  expect_agreement("after it was written", 0);
  fs::rename(project / ".graven", work / "away");
  expect_agreement("no record, and an edited file", 1);
  fs::rename(work / "away", project / ".graven");
  // Weights of other numbers.
  fs::copy_file(work / "first/weights.safetensors", work / "saved/weights.safetensors");
  {
    std::fstream file(work / "saved/weights.safetensors", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end).put('\x3d');
  }
  expect_agreement("other weights", 1);
  expect_agreement("after they were written", 0);
}

/// The differences of two projects' folders, weights and recorded tensors included.
std::vector<std::string> differences(const fs::path& a, const fs::path& b) {
  std::vector<std::string> found;
  const std::pair<fs::path, fs::path> both[] = {{a, b}, {b, a}};
  for (const auto& [from, to] : both)
    for (const auto& entry : fs::recursive_directory_iterator(from)) {
      const fs::path path = entry.path().lexically_relative(from);
      if (entry.is_regular_file() && (!fs::exists(to / path) || text_of(entry.path()) != text_of(to / path)))
        found.push_back(path.string());
    }
  return found;
}

TEST_F(Command, EmitsTheSameWhateverIsWrongWithTheMachine) {
  ir::write_graph((work / "saved/graph.json").string(), tests::polynomial_training());
  output({"emit", "saved", "-o", "whole", "-q"});
  const auto in_shell = [&](const std::string& before, const std::string& after) {
    const std::string line = before + " " GRAVEN_BINARY_DIR "/graven emit saved -o project -q " + after;
    return codegen::run_process({"bash", "-c", line}, {.directory = work.string(), .seconds = 100});
  };
  // No space: nothing of the project is there, and it is emitted again, into the same folder.
  ProcessResult r = in_shell("trap '' XFSZ; ulimit -f 24;", "");
  EXPECT_EQ(r.exit_status, 1) << r.output;
  EXPECT_NE(r.output.find("error: project/selftest.safetensors: cannot write: File too large"), std::string::npos)
      << r.output;
  for (const auto& entry : fs::recursive_directory_iterator(work / "project"))
    EXPECT_EQ(entry.path(), work / "project/.graven");
  output({"emit", "saved", "-o", "project", "-q"});
  EXPECT_EQ(differences(work / "whole", work / "project"), std::vector<std::string>());
  // Closed streams: what is said goes nowhere, and into no file; the formatter runs all the same.
  fs::remove_all(work / "project");
  EXPECT_EQ(in_shell("", "<&- >&- 2>&-").exit_status, 0);
  EXPECT_EQ(differences(work / "whole", work / "project"), std::vector<std::string>());
}

TEST_F(Command, SaysThatTheFormatterHasNoPlaceForItsFiles) {
  if (codegen::find_formatter().empty()) GTEST_SKIP() << "clang-format 19 is not installed";
  ir::write_graph((work / "saved/graph.json").string(), tests::polynomial_training());
  const ProcessResult r =
      codegen::run_process({"bash", "-c", "TMPDIR=/nonexistent " GRAVEN_BINARY_DIR "/graven emit saved -o project -q"},
                           {.directory = work.string(), .seconds = 100});
  EXPECT_EQ(r.exit_status, 1) << r.output;
  EXPECT_NE(r.output.find("error: /nonexistent: no place for the temporary files of clang-format"), std::string::npos)
      << r.output;
  EXPECT_FALSE(fs::exists(work / "project"));
}

TEST_F(Command, ShowsTheGraphAsText) {
  expect_text("show.txt", output({"show", "saved"}));
  expect_text("show_after_differentiate.txt", output({"show", "saved", "--after", "differentiate"}));
  expect_text("show_after_final.txt", output({"show", "saved", "--after", "final"}));
  expect_text("show_evaluation.txt", output({"show", "saved", "--evaluation"}));
  expect_text("show.dot", output({"show", "saved", "--format", "dot"}));
  // To a file the same as to the screen, and nothing on the screen.
  EXPECT_EQ(output({"show", "saved", "-f", "dot", "-o", "graph.dot"}), "");
  EXPECT_EQ(text_of(work / "graph.dot"), output({"show", "saved/graph.json", "-f", "dot", "-o", "-"}));
}

TEST_F(Command, ShowsWhereTheMemoryGoes) {
  expect_text("show_plan.txt", output({"show", "saved", "-f", "plan"}));
  expect_text("show_plan_of_evaluation.txt", output({"show", "saved", "-f", "plan", "--evaluation"}));
  // One rectangle a buffer, each with its name.
  const ir::Graph graph = [&] {
    ir::Graph lowered = tests::residual_training();
    ir::finish_passes(lowered, {});
    return lowered;
  }();
  const codegen::Plan plan = codegen::make_plan(graph);
  const std::string picture = output({"show", "saved", "-f", "memory"});
  EXPECT_EQ(picture.rfind("<svg ", 0), 0u) << picture.substr(0, 100);
  std::size_t titles = 0;
  for (std::size_t at = 0; (at = picture.find("<title>", at)) != std::string::npos; ++at) ++titles;
  EXPECT_EQ(titles, plan.buffers.size());
  for (const codegen::Buffer& buffer : plan.buffers)
    EXPECT_NE(picture.find("<title>" + buffer.name + "  "), std::string::npos) << buffer.name;
}

TEST_F(Command, SimulatesAStepOnACluster) {
  // Later options take the place of these.
  const auto with = [](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"simulate", "saved"};
    for (const auto& [option, value] :
         std::initializer_list<std::pair<const char*, const char*>>{{"--ranks", "4"},
                                                                    {"--bandwidth", "25GB/s"},
                                                                    {"--latency", "5us"},
                                                                    {"--flops", "10TFLOP/s"},
                                                                    {"--memory-bandwidth", "1TB/s"}})
      if (std::find(more.begin(), more.end(), option) == more.end()) words.insert(words.end(), {option, value});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_text("simulate.txt", output(with({})));
  expect_text("simulate_memory.txt",
              output(with({"--memory", "50KB", "--ranks-per-node", "2", "--node-latency", "1us"})));
  expect_text("simulate.json", output(with({"--json", "--plan", "data:2,pipeline:2", "--plan", "zero3"})));
  const auto seconds = [&](std::vector<std::string> more, const char* plan = "data") {
    more.insert(more.end(), {"--plan", plan, "--json"});
    const std::string text = output(with(std::move(more)));
    return std::stod(text.substr(text.find("\"seconds\": ") + 11));
  };
  // Units, and options that change what they say.
  const double base = seconds({});
  EXPECT_DOUBLE_EQ(base, seconds({"--bandwidth", "200Gbit/s", "--latency", "0.005ms"}));
  EXPECT_EQ(base, seconds({"--flops-efficiency", "0.5", "--memory-efficiency", "0.8", "--call-latency", "0s"}));
  EXPECT_LE(seconds({}, "zero3"), seconds({"--no-overlap"}, "zero3"));
  EXPECT_LT(base, seconds({"--call-latency", "2us"}));
  EXPECT_LT(base, seconds({"--memory-efficiency", "0.4"}));
  EXPECT_LT(base, seconds({"--accumulation-steps", "3"}));
  // Computation as it was measured on one rank.
  std::ofstream(work / "bench.json") << "{\"peer\":\"graven\",\"ranks\":2,\"median_ms\":5}\n"
                                        "{\"peer\":\"graven\",\"median_ms\":250}\n";
  EXPECT_NEAR(seconds({"--measured", "bench.json", "--ranks", "1"}), 0.25, 1e-12);
  EXPECT_GT(seconds({"--measured", "bench.json"}), 0.25);
  // A trace of the one plan that is asked for.
  output(with({"--plan", "data", "--trace", "trace.json"}));
  EXPECT_EQ(text_of(work / "trace.json").find("{\"displayTimeUnit\""), 0u);
}

TEST_F(Command, SimulatesAnOpenBatch) {
  ir::Graph graph = tests::mlp_training();
  const ir::Dim batch("batch", 2, 64);
  for (ir::Value& v : graph.values)
    if (!v.type.shape.empty() && v.type.shape[0] == ir::Dim(64)) v.type.shape[0] = batch;
  for (ir::Node& n : graph.nodes)
    if (const ir::Attribute* shape = n.attributes.find("shape"); shape && !std::get<ir::Shape>(*shape).empty())
      n.attributes.set("shape", ir::Shape{batch, 784});
  ir::write_graph((work / "saved/graph.json").string(), graph);
  const std::vector<std::string> common = {"simulate",    "saved", "--ranks",   "2",
                                           "--bandwidth", "1GB/s", "--latency", "0s"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), common.begin(), common.end());
    return more;
  };
  EXPECT_NE(output(common).find("steps of 128 samples (2 batches of 64)"), std::string::npos);
  EXPECT_NE(output(with({"--batch", "16"})).find("steps of 32 samples (2 batches of 16)"), std::string::npos);
  const ProcessResult r = run(with({"--batch", "65"}));
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_NE(r.output.find("error: --batch: batch must lie in [2, 64], got 65"), std::string::npos) << r.output;
}

TEST_F(Command, ShowsTheGraphAsJson) {
  EXPECT_EQ(output({"show", "saved", "-f", "json"}), text_of(work / "saved/graph.json"));
  // The text is a file of the graph as well.
  EXPECT_EQ(output({"show", "saved", "-o", "saved/net.graph"}), "");
  EXPECT_EQ(output({"show", "saved/net.graph", "-f", "json"}), text_of(work / "saved/graph.json"));
  EXPECT_EQ(output({"show", "saved/net.graph", "--after", "final"}), output({"show", "saved", "--after", "final"}));
  ir::Graph evaluation = ir::evaluation_graph(tests::residual_training());
  EXPECT_EQ(output({"show", "saved", "-f", "json", "--evaluation"}), ir::to_json(evaluation));
  // The graph after a pass is a graph again, and what comes after it is the same.
  output({"show", "saved", "-f", "json", "--after", "differentiate", "-o", "differentiated.json"});
  EXPECT_EQ(output({"show", "differentiated.json", "--after", "final"}), output({"show", "saved", "--after", "final"}));
}

TEST_F(Command, ShowsTheGraphAsAPicture) {
  if (codegen::find_program("dot").empty()) GTEST_SKIP() << "Graphviz is not installed";
  const std::string svg = output({"show", "saved", "-f", "svg"});
  EXPECT_NE(svg.find("<svg "), std::string::npos) << svg.substr(0, 500);
  for (const char* word : {">model.conv1<", ">batch_norm_training<", ">cross_entropy<"})
    EXPECT_NE(svg.find(word), std::string::npos) << word;
  EXPECT_EQ(output({"show", "saved", "-f", "png", "-o", "graph.png"}), "");
  EXPECT_EQ(text_of(work / "graph.png").substr(0, 8), "\x89PNG\r\n\x1a\n");
  ProcessResult r = run({"show", "saved", "-f", "png"});
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_NE(r.output.find("expected  -o FILE.png"), std::string::npos) << r.output;
  // Whether it ends before or after it could have read the graph.
  for (int i = 0; i < 20; ++i) {
    r = run({"show", "saved", "-f", "svg"}, {"PATH=" + work.string()});
    EXPECT_EQ(r.exit_status, 1);
    EXPECT_NE(r.output.find("its command 'dot' was not found"), std::string::npos) << r.output;
  }
}

TEST_F(Command, ListsPassesAndOperators) {
  const std::string passes = output({"passes"});
  std::size_t at = 0;
  for (const ir::Pass& pass : ir::pipeline()) {
    at = passes.find("  " + std::string(pass.name) + " ", at);
    ASSERT_NE(at, std::string::npos) << pass.name << " is missing, or out of order";
    EXPECT_NE(passes.find(std::string(pass.reason) + "\n", at), std::string::npos) << pass.name;
    EXPECT_EQ(passes.find(" cpu ", at) < passes.find('\n', at), pass.target == "cpu") << pass.name;
  }
  EXPECT_EQ(static_cast<std::size_t>(std::count(passes.begin(), passes.end(), '\n')), ir::pipeline().size());
  const std::string operators = output({"ops"});
  for (const ir::OpDef* op : ir::all_ops())
    EXPECT_NE(("\n" + operators).find("\n" + std::string(op->name) + " "), std::string::npos) << op->name;
  for (const char* name : {"conv2d", "relu", "cat", "sgd"}) {
    const ir::OpDef& op = ir::get_op(name);
    const std::string all = output({"ops", name});
    EXPECT_EQ(all.rfind(std::string(name) + "\n  " + std::string(op.doc) + "\n", 0), 0u) << all;
    for (const ir::InputSpec& input : op.inputs)
      EXPECT_NE(all.find("  input      " + std::string(input.name)), std::string::npos) << all;
    for (const ir::AttributeSpec& attribute : op.attributes)
      EXPECT_NE(all.find("  attribute  " + std::string(attribute.name) + ": "), std::string::npos) << all;
  }
}

TEST_F(Command, EmitsFromEveryDump) {
  output({"emit", "saved", "-o", "straight", "--dump", "dumps", "-q", "--no-format"});
  std::vector<fs::path> dumps;
  for (const auto& entry : fs::directory_iterator(work / "dumps"))
    if (entry.path().filename() != "evaluation.json") dumps.push_back(entry.path());
  std::sort(dumps.begin(), dumps.end());
  ASSERT_GT(dumps.size(), 5u);
  EXPECT_EQ(dumps.front().filename(), "00-trace.json");
  // The saved graph, and what was chosen at emission.
  ir::Graph first = ir::read_graph(dumps.front().string());
  EXPECT_EQ(first.config.count("emit.target"), 1u);
  first.config.clear();
  EXPECT_EQ(ir::to_json(first), text_of(work / "saved/graph.json"));
  // What has been through some passes ends as what went through all of them; beside it lies how it is evaluated.
  for (const std::size_t i : {dumps.size() / 2, dumps.size() - 1}) {
    const std::string name = "from_" + std::to_string(i);
    output({"emit", dumps[i].string(), "-o", name, "-q", "--no-format"});
    EXPECT_EQ(differences(work / "straight", work / name), std::vector<std::string>()) << dumps[i];
  }
}

TEST_F(Command, EmitsWithoutPasses) {
  ir::write_graph((work / "saved/graph.json").string(), tests::mlp_training());
  const auto project = [&](const std::string& name, std::vector<std::string> options) {
    options.insert(options.begin(), {"emit", "saved", "-o", name, "-q", "--no-format"});
    output(options);
    return text_of(work / name / "model.cpp");
  };
  const std::string whole = project("whole", {});
  EXPECT_NE(whole.find("linear<relu>("), std::string::npos) << whole;
  const std::string apart = project("apart", {"--disable", "fuse_epilogues,fuse_elementwise"});
  EXPECT_EQ(apart.find("linear<relu>("), std::string::npos) << apart;
  EXPECT_NE(apart.find("elementwise<relu>("), std::string::npos) << apart;
}

TEST_F(Command, EmitsBetweenPasses) {
  const auto emit = [&](const std::string& from, const std::string& to, std::vector<std::string> options) {
    options.insert(options.begin(), {"emit", from, "-o", to, "-q", "--no-format"});
    output(options);
  };
  const auto names = [&](const char* folder) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(work / folder)) found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  };
  const auto updates = [&](const char* project) {
    return text_of(work / project / "model.cpp").find("  update_parameters<adam>(") != std::string::npos;
  };
  emit("saved", "whole", {});
  EXPECT_TRUE(updates("whole"));
  // Not further than a pass; from there on, another time, to the same project.
  emit("saved", "part", {"--to", "differentiate", "--dump", "first"});
  EXPECT_EQ(names("first"),
            (std::vector<std::string>{"00-trace.json", "01-remove_dead_nodes.json", "02-trim_kernels.json",
                                      "03-recognize_causal_softmax.json", "06-differentiate.json", "evaluation.json"}));
  EXPECT_EQ(ir::read_graph((work / "part/graph.json").string()).stage, "differentiate");
  EXPECT_FALSE(updates("part"));
  emit("part", "rest", {});
  EXPECT_EQ(differences(work / "whole", work / "rest"), std::vector<std::string>());
  // From a pass on, without those between.
  emit("first/06-differentiate.json", "without_update",
       {"--from", "clip_gradients", "--disable", "add_optimizer_updates", "--dump", "second"});
  EXPECT_EQ(names("second").front(), "09-differentiate.json");
  emit("first/06-differentiate.json", "from", {"--from", "fold_constants"});
  EXPECT_FALSE(updates("from"));
  EXPECT_FALSE(updates("without_update"));
}

// From measuring to a project: a convolution has three algorithms, of which one is written down, and emitted.
TEST_F(Command, TunesAndEmitsWhatWasMeasured) {
  ir::Graph graph;
  graph.name = "Tuned";
  const ir::ValueId x = graph.add_input("x", {ir::DType::f32, {1, 16, 6, 6}}),
                    w = graph.add_parameter("w", {ir::DType::f32, {16, 16, 3, 3}}, true);
  graph.outputs = {graph.add_node(ir::kConv2d, {x, w}, {{"padding", ir::Ints{1, 1}}}, {}).at(0)};
  ir::write_graph((work / "saved/graph.json").string(), graph);
  const std::vector<std::string> tune = {"tune", "saved", "--rounds", "1", "--threads", "1"};
  const std::string said = output(tune, {"CXXFLAGS=-O0"});
  for (const char* part :
       {"conv2d f32[1,6,6,16] f32[16,16,3,3] padding 1x1: ", " ms  direct\n", " ms  winograd 2\n", " ms  winograd 4\n",
        "threads of Tuned f32[1,16,6,6]: 1, not all\n", "saved/tuning.json: 2 choices, "})
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  std::vector<ir::TuningEntry> entries = ir::read_tuning((work / "saved/tuning.json").string());
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].milliseconds.size(), 3u);
  const auto emit = [&](const std::string& chosen) {
    entries[0].chosen = chosen;
    std::ofstream(work / "saved/tuning.json") << ir::tuning_text(entries);
    std::string notes = output({"emit", "saved", "-o", "project", "-q"});
    EXPECT_NE(output({"emit", "saved", "-o", "project", "--check"}).find("as it would be emitted now"),
              std::string::npos);
    return notes;
  };
  EXPECT_EQ(emit("winograd 2").find("tuning.json"), std::string::npos);
  EXPECT_NE(text_of(work / "project/model.cpp").find("conv2d_winograd 16->16, 3x3, as measured"), std::string::npos);
  EXPECT_NE(text_of(work / "project/main.cpp").find(".threads = 1"), std::string::npos);
  emit("direct");
  EXPECT_EQ(text_of(work / "project/model.cpp").find("winograd"), std::string::npos);
  output({"emit", "saved", "-o", "untuned", "-q", "--no-tuning"});
  EXPECT_EQ(text_of(work / "untuned/main.cpp").find(".threads = 1"), std::string::npos);
  // Of another device: one line; where a project was emitted for it, or it is named, they hold.
  for (ir::TuningEntry& e : entries) e.device = "Another";
  const std::string ignored = "note: saved/tuning.json: entries that are ignored: 2 for another device (Another;";
  std::ofstream(work / "saved/tuning.json") << ir::tuning_text(entries);
  EXPECT_NE(output({"emit", "saved", "-o", "elsewhere", "-q"}).find(ignored), std::string::npos);
  const std::string named = output({"emit", "saved", "-o", "elsewhere", "-q", "--tuned-for", "Another"});
  EXPECT_EQ(named.find("ignored"), std::string::npos) << named;
  EXPECT_EQ(output({"emit", "saved", "-o", "elsewhere", "--check"}).find("ignored"), std::string::npos);
  EXPECT_NE(text_of(work / "elsewhere/main.cpp").find(".threads = 1"), std::string::npos);
  // What is damaged is said before anything is written.
  std::ofstream(work / "saved/tuning.json") << "{\n\"format\": ";
  for (const auto& words : {std::vector<std::string>{"emit", "saved", "-o", "none"}, tune}) {
    const ProcessResult r = run(words);
    EXPECT_EQ(r.exit_status, 1);
    EXPECT_NE(r.output.find("error: saved/tuning.json: line 2, column"), std::string::npos) << r.output;
  }
  EXPECT_FALSE(fs::exists(work / "none"));
}

TEST_F(Command, OptionsAreThoseOfTheManual) {
  const fs::path manual = GRAVEN_SOURCE_DIR "/docs/command.md";
  const std::string text = text_of(manual), found = output({"--markdown"});
  const std::size_t begin = text.find("## Options\n");
  ASSERT_NE(begin, std::string::npos);
  if (bless) std::ofstream(manual, std::ios::binary) << text.substr(0, begin) + found;
  EXPECT_EQ(text_of(manual).substr(begin), found) << manual << " says otherwise: test_command --bless";
  for (const char* option :
       {"--from PASS", "--to PASS", "--name NAME", "--memory-budget BYTES", "--no-format", "--evaluation"})
    EXPECT_NE(found.find("`" + std::string(option) + "`"), std::string::npos) << option;
  EXPECT_EQ(output({"emit", "--help"}).find("{false}"), std::string::npos);
}

}  // namespace
}  // namespace graven::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != "--bless") {
      std::fprintf(stderr, "unknown argument %s; --bless rewrites what is stored\n", argv[i]);
      return 2;
    }
    graven::test::bless = true;
  }
  return RUN_ALL_TESTS();
}
