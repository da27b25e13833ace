// What users write with symbols: every row of the table, with each of its dimensions in turn a symbol, twice a symbol,
// and a symbol that is never small, and pairs of dimensions two symbols. A graph of it computes what eager mode
// computes at every size, or the call is one error that names the function, the user's line and what to write instead.
// A public function, method or layer without a row fails the test.
//
// And what they write with nothing: each tensor of a row in turn undefined is one error of the function, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "frontend/eager/executor.h"
#include "ir/passes/passes.h"
#include "tests/call.h"
#include "tests/public_names.h"
#include "tests/symbols/rows.h"

namespace graven::symbols_test {
namespace {

/// What stands for each letter: a number, or a multiple of a symbol.
using Meaning = std::map<char, Dim>;

struct Size {
  char letter = 0;
  std::int64_t number = 0;
};
std::vector<Size> parsed(const std::string& shape) {
  std::vector<Size> sizes;
  std::istringstream words(shape);
  for (std::string word; words >> word;) {
    const bool named = word[0] >= 'a' && word[0] <= 'z';
    sizes.push_back({named ? word[0] : '\0', std::stoll(word.substr(named ? 1 : 0))});
  }
  return sizes;
}

Meaning numbers_of(const Row& row) {
  Meaning meaning;
  for (const Input& input : row.inputs)
    for (const Size& s : parsed(input.shape))
      if (s.letter != 0) meaning[s.letter] = Dim(s.number);
  return meaning;
}

Shape shape_of(const Input& input, const Meaning& meaning) {
  Shape shape;
  for (const Size& s : parsed(input.shape)) shape.push_back(s.letter == 0 ? Dim(s.number) : meaning.at(s.letter));
  return shape;
}

/// The meaning once its symbols stand for numbers.
Meaning at_sizes(Meaning meaning, const std::map<std::string, std::int64_t>& sizes) {
  for (auto& [letter, dim] : meaning) dim = Dim(dim.at(sizes));
  return meaning;
}

/// The same numbers each time, no two of them equal.
std::vector<Tensor> data_for(const Row& row, const Meaning& meaning) {
  std::vector<Tensor> data;
  double next = 0.5;
  for (const Input& input : row.inputs) {
    const Shape shape = shape_of(input, meaning);
    const double high = input.below.empty() ? input.high : static_cast<double>(meaning.at(input.below[0]).value());
    std::vector<double> values;
    for (std::int64_t i = 0; i < shape.numel().value(); ++i) {
      next = std::fmod(next + 0.6180339887498949, 1.0);
      values.push_back(input.low + (high - input.low) * next);
    }
    const Tensor numbers = from_data(values, shape);
    data.push_back(input.dtype == i64       ? numbers.floor().to(i64)
                   : input.dtype == boolean ? numbers >= 1
                                            : numbers.to(input.dtype));
  }
  return data;
}

/// Each floating input moved by a number times a direction of its own, so that the number's gradient is that of the
/// input in this direction.
std::vector<Tensor> moved(const std::vector<Tensor>& inputs, const std::vector<Tensor>& steps) {
  std::vector<Tensor> result;
  for (std::size_t k = 0; k < inputs.size(); ++k)
    result.push_back(ir::is_floating(inputs[k].dtype()) ? inputs[k] + cos(inputs[k].detach() * 3.7) * steps[k]
                                                        : inputs[k]);
  return result;
}

bool is_learnt(const Tensor& t) { return ir::is_floating(t.dtype()) && t.requires_grad(); }

Tensor loss_of(const std::vector<Tensor>& results) {
  Tensor loss;
  for (const Tensor& y : results) {
    if (!is_learnt(y)) continue;
    const Tensor part = (y * y * 0.5 + y).sum().to(f32);
    loss = loss.defined() ? loss + part : part;
  }
  return loss;
}

struct Call : nn::Graph<Call> {
  const Row& row;
  bool learns;
  nn::ParameterList steps;
  optim::SGD optimizer;
  Call(const Row& r, bool learning)
      : row(r), learns(learning), steps(child("steps", zero_steps(r))), optimizer(parameters_of(steps), {.lr = 1}) {
    if (row.module) register_child("layer", *row.module);
    if (learns) add_optimizer(optimizer);
  }
  static nn::ParameterList zero_steps(const Row& r) {
    std::vector<Tensor> zero;
    for (std::size_t k = 0; k < r.inputs.size(); ++k) zero.push_back(zeros({}));
    return nn::ParameterList(zero);
  }
  static std::vector<Tensor> parameters_of(const nn::ParameterList& list) { return list.parameters(); }
  std::vector<Tensor> build(std::vector<Tensor> inputs) {
    std::vector<Tensor> own;
    for (std::size_t k = 0; k < inputs.size(); ++k) own.push_back(steps[k]);
    std::vector<Tensor> results = row.call(learns ? moved(inputs, own) : inputs);
    if (learns) {
      Tensor loss = own[0] * 0;
      for (std::size_t k = 1; k < own.size(); ++k) loss = loss + own[k] * 0;
      if (const Tensor of_results = loss_of(results); of_results.defined()) loss = loss + of_results;
      loss.backward();
    }
    return results;
  }
};

ir::TensorData data_of(const Tensor& t) {
  const Tensor rows = t.detach().contiguous();
  ir::TensorData data;
  data.type = {rows.dtype(), rows.shape()};
  data.bytes.resize(static_cast<std::size_t>(rows.numel()) * ir::size_of(rows.dtype()));
  if (!data.bytes.empty()) std::memcpy(data.bytes.data(), rows.data_ptr(), data.bytes.size());
  return data;
}
Tensor tensor_of(const ir::TensorData& data) {
  return from_bytes(data.bytes.data(), data.bytes.size(), data.type.dtype, data.type.shape);
}

/// Results, and the gradient of each floating input in its direction.
struct Computed {
  std::vector<Tensor> results;
  std::vector<double> gradients;
};

Computed eagerly(const Row& row, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> steps;
  for (std::size_t k = 0; k < inputs.size(); ++k) steps.push_back(zeros({}, {f32, true}));
  Computed computed;
  computed.results = row.call(moved(inputs, steps));
  if (const Tensor loss = loss_of(computed.results); loss.defined()) loss.backward();
  for (const Tensor& s : steps) computed.gradients.push_back(s.grad().defined() ? s.grad().item<double>() : 0);
  return computed;
}

Computed by_graph(const ir::Graph& graph, const nn::StateDict& state, const std::vector<Tensor>& inputs,
                  const std::map<std::string, std::int64_t>& sizes) {
  eager::Environment values;
  for (std::size_t k = 0; k < inputs.size(); ++k) values[graph.inputs.at(k)] = data_of(inputs[k]);
  for (const auto& [name, t] : state)
    if (const ir::ValueId v = graph.find(name); v != ir::kNone) values[v] = data_of(t);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ir::Value& value = graph.values[v];
    if (value.kind != ir::ValueKind::hyper) continue;
    values[static_cast<ir::ValueId>(v)] = data_of(value.type.dtype == i64 ? tensor(1, i64) : tensor(1.0, f64));
  }
  eager::execute(graph, values, {.symbols = sizes});
  Computed computed;
  for (const ir::ValueId v : graph.outputs) computed.results.push_back(tensor_of(values.at(v)));
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const ir::ValueId v = graph.find("steps." + std::to_string(k));
    computed.gradients.push_back(v == ir::kNone ? 0 : -tensor_of(values.at(v)).item<double>());
  }
  return computed;
}

bool alike(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 1e-4 * (1 + std::abs(b));
}

void expect_alike(const Computed& found, const Computed& expected, bool random) {
  ASSERT_EQ(found.results.size(), expected.results.size());
  for (std::size_t k = 0; k < found.results.size(); ++k) {
    SCOPED_TRACE("result " + std::to_string(k));
    ASSERT_EQ(found.results[k].describe(), expected.results[k].describe());
    if (random) continue;
    const std::vector<double> a = found.results[k].to_vector<double>(), b = expected.results[k].to_vector<double>();
    for (std::size_t j = 0; j < a.size(); ++j)
      ASSERT_TRUE(alike(a[j], b[j])) << "element " << j << ": " << a[j] << ", eagerly " << b[j];
  }
  if (random) return;
  for (std::size_t k = 0; k < found.gradients.size(); ++k)
    EXPECT_TRUE(alike(found.gradients[k], expected.gradients[k]))
        << "input " << k << " has the slope " << found.gradients[k] << ", eagerly " << expected.gradients[k];
}

/// One message: the function or the layer's path first, what to write instead, the line of the row.
void expect_proper(const UserError& error, const Row& row) {
  const std::string text = error.what();
  const std::string begin = row.module ? "error: layer" : "error: " + row.name + ": ";
  EXPECT_EQ(text.compare(0, begin.size(), begin), 0) << text;
  // Notes of inputs are in two columns.
  const bool advised = std::any_of(error.notes().begin(), error.notes().end(), [](const std::string& note) {
    return note.find("  ") == std::string::npos && note.find(" is declared at ") == std::string::npos;
  });
  EXPECT_TRUE(advised) << "there is no advice: " << text;
  const std::string at = row.where.file_name() + ":";
  const std::size_t place = text.find("\n  at " + at);
  ASSERT_NE(place, std::string::npos) << text;
  if (row.module) return;  // it is called by what several rows share
  const int line = std::atoi(text.c_str() + place + 6 + at.size());
  EXPECT_LE(std::abs(line - static_cast<int>(row.where.line)), 10) << text;
}

enum class Expected : std::uint8_t { runs, refused, either };

void check(const Row& row, const Meaning& meaning, const std::vector<std::map<std::string, std::int64_t>>& sizes,
           Expected expected) {
  bool learns = row.random;
  if (!learns) {
    std::vector<Tensor> inputs = data_for(row, numbers_of(row)), steps;
    for (std::size_t k = 0; k < inputs.size(); ++k) steps.push_back(zeros({}, {f32, true}));
    learns = loss_of(row.call(moved(inputs, steps))).defined();
  }
  std::vector<Spec> specs;
  for (const Input& input : row.inputs) specs.push_back(spec(shape_of(input, meaning), input.dtype));
  std::optional<Call> call;
  try {
    call.emplace(row, learns);
    call->debug(-1);
    (void)call->trace(specs);
  } catch (const UserError& error) {
    if (expected == Expected::runs) FAIL() << "is refused: " << error.what();
    return expect_proper(error, row);
  }
  ASSERT_NE(expected, Expected::refused) << "is taken";
  ir::Graph graph = call->graph();
  ir::run_passes(graph, {});
  for (const auto& size : sizes) {
    std::string text;
    for (const auto& [symbol, value] : size) text += symbol + " = " + std::to_string(value) + " ";
    SCOPED_TRACE(text);
    const std::vector<Tensor> inputs = data_for(row, at_sizes(meaning, size));
    const nn::StateDict state = call->state_dict();
    std::optional<Computed> eager;
    try {
      eager = eagerly(row, inputs);
    } catch (const UserError&) {
      // What is not there at this size is an error of the graph, too.
      EXPECT_THROW((void)by_graph(graph, state, inputs, size), UserError);
      continue;
    }
    expect_alike(by_graph(graph, state, inputs, size), *eager, row.random);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

class Symbols : public ::testing::TestWithParam<Row> {};

TEST_P(Symbols, WorkOrAreRefused) {
  const Row& row = GetParam();
  const Meaning numbers = numbers_of(row);
  std::set<std::string> refused;
  std::istringstream words(row.refused);
  for (std::string word; words >> word;) refused.insert(word);
  for (const auto& [letter, number] : numbers)
    for (const std::int64_t times : {1, 2}) {
      const std::int64_t most = number.value() / times;
      if (most * times != number.value() || most < 1) continue;
      const std::string name = (times == 2 ? "2" : "") + std::string(1, letter);
      SCOPED_TRACE(name + " is a symbol");
      Meaning meaning = numbers;
      meaning[letter] = Dim("n", most) * Dim(times);
      std::vector<std::map<std::string, std::int64_t>> sizes;
      for (const std::int64_t size : {most, std::int64_t{1}, std::int64_t{2}, std::int64_t{3}})
        if (size <= most && (sizes.empty() || size != most)) sizes.push_back({{"n", size}});
      check(row, meaning, sizes, refused.erase(name) != 0 ? Expected::refused : Expected::runs);
    }
  for (const std::string& name : refused) ADD_FAILURE() << "the row has no dimension " << name;
}

/// What needs so many elements, a window, a part, has them at every size.
TEST_P(Symbols, WorkOrAreRefusedWhereTheyAreNeverSmall) {
  static const std::set<std::string> windows = {
      "conv1d",     "conv2d",          "conv3d",          "max_pool1d",     "max_pool2d", "max_pool3d", "avg_pool1d",
      "avg_pool2d", "avg_pool3d",      "Conv1d",          "Conv2d",         "Conv3d",     "MaxPool1d",  "MaxPool2d",
      "MaxPool3d",  "AvgPool1d",       "AvgPool2d",       "AvgPool3d",      "lp_pool1d",  "lp_pool2d",  "LPPool1d",
      "LPPool2d",   "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d"};
  const Row& row = GetParam();
  const Meaning numbers = numbers_of(row);
  for (const auto& [letter, number] : numbers) {
    const std::int64_t least = number.value();
    if (least < 1) continue;
    SCOPED_TRACE(std::string(1, letter) + " is a symbol");
    Meaning meaning = numbers;
    meaning[letter] = Dim("n", least, least + 3);
    const bool is_window = windows.count(row.name) != 0 && (letter == 'h' || letter == 'w');
    // What a slice leaves is said by both its dimensions.
    const bool runs = is_window || (row.refused.find(letter) == std::string::npos && row.name != "slice");
    check(row, meaning, {{{"n", least + 3}}, {{"n", least}}, {{"n", least + 1}}, {{"n", least + 2}}},
          runs ? Expected::runs : Expected::either);
  }
}

TEST_P(Symbols, WorkOrAreRefusedInPairs) {
  const Row& row = GetParam();
  const Meaning numbers = numbers_of(row);
  for (const auto& [first, size_of_first] : numbers)
    for (const auto& [second, size_of_second] : numbers) {
      if (first >= second) continue;
      SCOPED_TRACE(std::string(1, first) + " and " + second + " are symbols");
      Meaning meaning = numbers;
      meaning[first] = Dim("n", size_of_first.value());
      meaning[second] = Dim("m", size_of_second.value());
      check(row, meaning,
            {{{"n", size_of_first.value()}, {"m", size_of_second.value()}},
             {{"n", 1}, {"m", size_of_second.value()}},
             {{"n", std::min<std::int64_t>(2, size_of_first.value())}, {"m", 1}}},
            Expected::either);
      if (size_of_first.value() < 1 || size_of_second.value() < 1) continue;
      const std::int64_t n = size_of_first.value(), m = size_of_second.value();
      meaning[first] = Dim("n", n, n + 3);
      meaning[second] = Dim("m", m, m + 3);
      check(row, meaning, {{{"n", n + 3}, {"m", m + 2}}, {{"n", n}, {"m", m}}, {{"n", n + 1}, {"m", m + 3}}},
            Expected::either);
    }
}

/// A call one of whose tensors is undefined.
struct Lacking : nn::Graph<Lacking> {
  const Row& row;
  std::size_t absent;
  Lacking(const Row& r, std::size_t k) : row(r), absent(k) {
    if (row.module) register_child("layer", *row.module);
  }
  std::vector<Tensor> build(std::vector<Tensor> inputs) {
    inputs[absent] = Tensor();
    return row.call(inputs);
  }
};

/// Rows that ask something of a tensor (in place: of the first), or compute with it, before they call their function.
bool begins_with_another(const Row& row) {
  static const std::set<std::string> others = {"expand",
                                               "affine_grid",
                                               "empty",
                                               "zeros",
                                               "ones",
                                               "full",
                                               "new_empty",
                                               "new_zeros",
                                               "new_ones",
                                               "new_full",
                                               "arange",
                                               "rand",
                                               "randn",
                                               "randint",
                                               "select",
                                               "narrow",
                                               "view_as",
                                               "searchsorted",
                                               "broadcast_to",
                                               "solve",
                                               "inv",
                                               "det",
                                               "cholesky",
                                               "contiguous",
                                               "margin_ranking_loss",
                                               "hinge_embedding_loss",
                                               "cosine_embedding_loss"};
  return row.name.back() == '_' || others.count(row.name) != 0;
}

/// One error: of the function or the layer, with what is expected, what came, and the line of the row.
void expect_refusal(const test::Call<void()>& call, const Row& row, const std::string& layer, bool of_the_row) {
  try {
    call();
    FAIL() << "is taken";
  } catch (const UserError& error) {
    const std::string text = error.what();
    const std::string begin = "error: " + (row.module ? layer : row.name + ": ");
    if (of_the_row) {
      EXPECT_EQ(text.compare(0, begin.size(), begin), 0) << text;
    } else {
      EXPECT_NE(text.find(": expects "), std::string::npos) << text;
    }
    EXPECT_NE(text.find(", got an undefined one"), std::string::npos) << text;
    // Not of what the layer looked at first.
    for (const char* look : {" (dim)", " (shape)", " (dtype)", " (size)", " (sizes)", " (numel)", " (describe)"})
      EXPECT_EQ(text.find(look), std::string::npos) << text;
    const std::string at = "\n  at " + row.where.file_name() + ":";
    const std::size_t place = text.find(at);
    ASSERT_NE(place, std::string::npos) << text;
    EXPECT_EQ(text.find("\n  at ", place + 1), std::string::npos) << text;
    if (row.module || !of_the_row) return;  // it is called by what several rows share
    const int line = std::atoi(text.c_str() + place + at.size());
    EXPECT_LE(std::abs(line - static_cast<int>(row.where.line)), 10) << text;
  }
}

TEST_P(Symbols, UndefinedTensorsAreRefused) {
  const Row& row = GetParam();
  const Meaning numbers = numbers_of(row);
  for (std::size_t k = 0; k < row.inputs.size(); ++k) {
    if (row.optional.find(static_cast<char>('0' + k)) != std::string::npos) continue;
    SCOPED_TRACE("input " + std::to_string(k));
    std::vector<Tensor> inputs = data_for(row, numbers);
    inputs[k] = Tensor();
    const bool by_another = begins_with_another(row) && (k == 0 || row.name.back() != '_');
    expect_refusal([&] { (void)row.call(inputs); }, row, row.name, !by_another);
    std::vector<Spec> specs;
    for (const Input& input : row.inputs) specs.push_back(spec(shape_of(input, numbers), input.dtype));
    Lacking graph(row, k);
    graph.debug(-1);
    expect_refusal([&] { (void)graph.trace(specs); }, row, "layer", !by_another);
  }
}

std::vector<Row> all_rows() {
  std::vector<Row> rows = function_rows();
  for (Row& r : layer_rows()) rows.push_back(std::move(r));
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Table, Symbols, ::testing::ValuesIn(all_rows()),
                         [](const auto& info) { return info.param.name + "_" + std::to_string(info.index); });

TEST(SymbolsTable, HasARowForEverything) {
  std::set<std::string> rows;
  for (const Row& r : all_rows()) rows.insert(r.name);
  // Of no shape, of data that are there, or what they take is no tensor of the graph.
  const std::set<std::string> without = {"linspace",   "eye",        "randperm",      "tensor",          "from_data",
                                         "from_bytes", "to_doubles", "to_integers",   "is_grad_enabled", "grad",
                                         "allclose",   "equal",      "tril_indices",  "triu_indices",    "Sequential",
                                         "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"};
  const tests::PublicNames names = tests::public_names();
  for (const std::set<std::string>* group : {&names.functions, &names.layers})
    for (const std::string& name : *group)
      EXPECT_TRUE(rows.count(name) != 0 || without.count(name) != 0) << name << " has no row in tests/symbols";
  // Methods that are functions, too, call those.
  const std::set<std::string> about = {"defined",
                                       "dtype",
                                       "shape",
                                       "dim",
                                       "strides",
                                       "storage_offset",
                                       "is_contiguous",
                                       "is_traced",
                                       "is_view",
                                       "describe",
                                       "is_same",
                                       "data_ptr",
                                       "requires_grad",
                                       "requires_grad_",
                                       "is_leaf",
                                       "set_grad",
                                       "backward",
                                       "impl",
                                       "t",
                                       "checked_data",
                                       "item_scalar",
                                       "data",
                                       "item",
                                       "to_vector",
                                       "grad",
                                       "layout",
                                       "set_layout",
                                       "device",
                                       "cpu",
                                       "cuda",
                                       "is_floating_point"};
  for (const std::string& name : names.methods)
    EXPECT_TRUE(rows.count(name) != 0 || names.functions.count(name) != 0 || about.count(name) != 0)
        << "Tensor::" << name << " has no row in tests/symbols";
  for (const std::string& name : rows)
    EXPECT_TRUE(names.functions.count(name) != 0 || names.layers.count(name) != 0 || names.methods.count(name) != 0)
        << name << " is declared nowhere";
}

TEST(SymbolsTable, DocumentationNamesWhatRefusesSome) {
  std::set<std::string> refusing;
  for (const Row& r : all_rows())
    if (!r.refused.empty()) refusing.insert(r.name);
  const std::set<std::string> named = tests::names_on_library_page("Symbols", "");
  for (const std::string& name : refusing)
    EXPECT_TRUE(named.count(name) != 0) << name << " is not in docs/library.md under Symbols";
  for (const std::string& name : named)
    EXPECT_TRUE(refusing.count(name) != 0) << name << " in docs/library.md under Symbols takes every symbol";
}

struct Doubled : nn::Graph<Doubled> {
  Tensor build(Tensor x) { return x * 2; }
};

/// A call's inputs say what its symbols stand for.
TEST(SymbolsTable, SpecsSayWhatEachSymbolStandsFor) {
  const Dim n("n", 4), m("m", 3);
  const struct {
    Dim dim;
    const char* text;
  } cases[] = {{n * m, "the dimension m*n"},
               {n + m, "the dimension m+n"},
               {floor_divide(n, 2), "the dimension n/2"},
               {Dim(5) - n, "the dimension -n+5"},
               {n - 2, "the dimension n-2"},
               {Dim("n", 0), "the range [1, 0]"},
               {Dim("n", 5, 3), "the range [5, 3]"},
               {Dim("n", 0, 3), "the range [0, 3]"},
               {Dim("1n", 3), "the symbol '1n'"}};
  for (const auto& c : cases) {
    Doubled graph;
    try {
      graph.compile(spec({c.dim, 3}));
      ADD_FAILURE() << c.text;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(c.text), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("symbols_test.cpp:"), std::string::npos) << error.what();
    }
  }
  Doubled graph;
  graph.compile(spec({n * 2 + 1, m}));
  for (const std::int64_t size : {3, 9}) EXPECT_EQ(graph(ones({size, 2})).shape(), Shape({size, 2}));
  for (const std::int64_t size : {1, 4, 11}) EXPECT_THROW((void)graph(ones({size, 2})), UserError);
}

}  // namespace
}  // namespace graven::symbols_test
