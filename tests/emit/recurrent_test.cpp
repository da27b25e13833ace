// Recurrent layers in emitted projects: the text does not grow with the length of the sequences; packed sequences.
#include <graven/graven.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <string>

#include "codegen/build/process.h"
#include "codegen/emit/project.h"
#include "frontend/eager/oracle.h"
#include "tests/emit/self_tests.h"
#include "tests/read_text.h"

namespace graven::codegen {
namespace {

struct Sequences : nn::Module<Sequences> {
  nn::LSTM lstm = child("lstm", nn::LSTM(4, 6, {.num_layers = 2, .bidirectional = true, .proj_size = 2}));
  nn::GRU gru = child("gru", nn::GRU(4, 5, {.bidirectional = true}));
  nn::RNN rnn = child("rnn", nn::RNN(10, 3));
  Tensor forward(Tensor x) { return rnn(gru(lstm(x).first).first).first; }
};
struct TrainSequences : nn::Graph<TrainSequences> {
  Sequences model = child("model", Sequences());
  optim::SGD optimizer{model.parameters(), {.lr = 0.1}};
  TrainSequences() { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = model(x).square().mean();
    loss.backward();
    return loss;
  }
};

/// With one digit for each number, and without the hash of graph.json. Comments that count memory and operations name
/// their unit by size, and are left out.
std::string without_numbers(const std::string& text) {
  std::string shorter;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) i = std::min(text.find('\n', i), text.size() - 1);
    if (text.compare(i, 6, "graph_") == 0) i = text.find_first_not_of("0123456789abcdef", i + 6);
    const bool digit = std::isdigit(static_cast<unsigned char>(text[i])) != 0;
    if (!digit || shorter.empty() || shorter.back() != '0') shorter += digit ? '0' : text[i];
  }
  return shorter;
}

struct InferSequences : nn::Graph<InferSequences> {
  Sequences model = child("model", Sequences());
  Tensor build(Tensor x) { return model(x); }
};

using Files = std::map<std::string, std::string>;
template <class Graph>
Files rendered(std::int64_t length) {
  manual_seed(1);
  Graph graph;
  return render_project(graph.trace(spec({length, 32, 4}, "x")), {.format = false});
}
void expect_same_but_for_numbers(const Files& few, const Files& many) {
  ASSERT_EQ(few.size(), many.size());
  int compared = 0;
  for (const auto& [name, text] : few) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(many.contains(name));
    if (name == "memory_plan.h") continue;  // where each buffer lies, which goes by how large they all are
    if (!name.ends_with(".cpp") && !name.ends_with(".h") && !name.ends_with(".txt")) continue;
    const std::string& other = many.at(name);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), std::count(other.begin(), other.end(), '\n'));
    EXPECT_EQ(without_numbers(text), without_numbers(other));
    ++compared;
  }
  EXPECT_GT(compared, 5);
}

/// A training step has as many lines: whether the gradient of a weight has a workspace goes by how many rows it sums.
TEST(Recurrent, TextDoesNotGrowWithTheLength) {
  expect_same_but_for_numbers(rendered<InferSequences>(16), rendered<InferSequences>(512));
  const auto lines = [](std::int64_t length) {
    const std::string text = rendered<TrainSequences>(length).at("model.cpp");
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines(16), lines(512));
}

struct InferPacked : nn::Graph<InferPacked> {
  nn::GRU gru = child("gru", nn::GRU(4, 5, {.num_layers = 2, .bidirectional = true}));
  nn::LSTM lstm = child("lstm", nn::LSTM(10, 7, {.proj_size = 3}));
  std::pair<Tensor, Tensor> build(Tensor x, Tensor lengths) {
    using namespace nn::utils::rnn;
    const auto [y, state] =
        lstm(gru(pack_padded_sequence(x, lengths, {.batch_first = true, .enforce_sorted = false})).first);
    return {pad_packed_sequence(y, {.batch_first = true, .padding_value = -1}).first, state.second};
  }
};

TEST(Recurrent, PackedSequencesRunInAnEmittedProject) {
  const std::filesystem::path folder = std::filesystem::path(GRAVEN_BINARY_DIR) / "emitted/packed_sequences";
  std::filesystem::remove_all(folder);
  manual_seed(2);
  InferPacked graph;
  emit(graph.trace(spec({3, 6, 4}, "x"), spec({3}, DType::i32, "lengths")), folder,
       {.name = "packed", .execute = eager::reference_run});
  EXPECT_NE(read_text(folder / "model.cpp").find("lengths"), std::string::npos);
  const ProcessResult configured =
      run_process({"cmake", "-S", folder.string(), "-B", (folder / "build").string()}, {.seconds = 200});
  ASSERT_EQ(configured.exit_status, 0) << configured.output;
  const ProcessResult built = run_process({"cmake", "--build", (folder / "build").string()}, {.seconds = 500});
  ASSERT_EQ(built.exit_status, 0) << built.output;
  const ProcessResult run =
      run_process({(folder / "build/selftest").string()}, {.directory = folder.string(), .seconds = 100});
  EXPECT_EQ(run.exit_status, 0) << run.output;
  expect_every_number_counts(folder, 2);
}

}  // namespace
}  // namespace graven::codegen
