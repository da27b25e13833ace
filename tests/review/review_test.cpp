// What a reviewer reads after an edit of a network: the lines of its training project that change, against those that
// had to (tests/review/needed.h says which). Twelve kinds of edit, of LeNet, MobileNetV2 and GPT-2.
//
//   test_review                       checks every edit against the ratio stored below, prints them all
//   test_review --list                names the edits
//   test_review --diff lenet/width    prints the diff of one edit, and what it had to change
//
// A changed line counts once: of each hunk (neighbouring lines without an unchanged one between them) the larger of
// what is removed and what is added. graph.json and evaluation.json, which are graphs, weights, and what is copied from
// Graven (kernels/ and runtime/) do not count; files that only one of the projects has do, whole.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/emit/format.h"
#include "codegen/emit/project.h"
#include "frontend/eager/oracle.h"
#include "ir/passes/pass.h"
#include "tests/call.h"
#include "tests/review/needed.h"
#include "tests/review/networks.h"

namespace graven::review {
namespace {

using Lines = std::vector<std::string>;
using Files = std::map<std::string, Lines>;

struct Edit {
  const char* name;
  test::Call<ir::Graph()> after;
  double limit;  ///< changed lines to lines that had to be changed
};

template <class Options>
test::Call<ir::Graph()> edited(const test::Call<void(Options&)>& change) {
  return [change] {
    Options options;
    change(options);
    return traced(options);
  };
}

test::Call<ir::Graph()> lenet(const test::Call<void(LeNetOptions&)>& change) {
  return edited<LeNetOptions>(change);
}
test::Call<ir::Graph()> mobilenet(const test::Call<void(MobileNetOptions&)>& change) {
  return edited<MobileNetOptions>(change);
}
test::Call<ir::Graph()> gpt2(const test::Call<void(Gpt2Options&)>& change) { return edited<Gpt2Options>(change); }

/// The ratio that each edit has; one that grows fails.
const std::vector<Edit>& edits() {
  static const std::vector<Edit> table = {
      {"lenet/width", lenet([](auto& o) { o.hidden = 128; }), 1.08},
      {"lenet/activation", lenet([](auto& o) { o.tanh = true; }), 2.03},
      {"lenet/inserted", lenet([](auto& o) { o.normalised = true; }), 1.66},
      {"lenet/batch", lenet([](auto& o) { o.batch = 128; }), 1.12},
      {"lenet/learning_rate", lenet([](auto& o) { o.lr = 0.01; }), 1.50},
      {"lenet/input_dtype", lenet([](auto& o) { o.bytes = true; }), 1.84},
      {"lenet/renamed", lenet([](auto& o) { o.features = "backbone"; }), 1.07},
      {"lenet/dropout", lenet([](auto& o) { o.dropout = true; }), 2.12},
      {"lenet/optimizer", lenet([](auto& o) { o.adam = true; }), 1.50},
      {"lenet/removed", lenet([](auto& o) { o.without_84 = true; }), 1.11},
      {"lenet/kernel", lenet([](auto& o) { o.kernel = 3; }), 1.23},
      {"lenet/image", lenet([](auto& o) { o.image = 32; }), 1.03},
      {"mobilenet/width", mobilenet([](auto& o) { o.blocks[1].channels = 32; }), 2.07},
      {"mobilenet/activation", mobilenet([](auto& o) { o.hardswish = true; }), 1.56},
      {"mobilenet/inserted", mobilenet([](auto& o) { o.blocks[1].repeats = 3; }), 1.25},
      {"mobilenet/batch", mobilenet([](auto& o) { o.batch = 128; }), 1.15},
      {"mobilenet/learning_rate", mobilenet([](auto& o) { o.lr = 0.01; }), 1.50},
      {"mobilenet/renamed", mobilenet([](auto& o) { o.features = "backbone"; }), 1.06},
      {"mobilenet/dropout", mobilenet([](auto& o) { o.dropout = true; }), 1.47},
      {"mobilenet/optimizer", mobilenet([](auto& o) { o.adam = true; }), 1.09},
      {"mobilenet/removed", mobilenet([](auto& o) { o.blocks[3].repeats = 3; }), 1.21},
      {"mobilenet/kernel", mobilenet([](auto& o) { o.stem_kernel = 5; }), 1.26},
      {"mobilenet/image", mobilenet([](auto& o) { o.image = 64; }), 1.17},
      {"gpt2/width", gpt2([](auto& o) { o.inner = 640; }), 1.03},
      {"gpt2/inserted", gpt2([](auto& o) { o.layers = 3; }), 1.18},
      {"gpt2/batch", gpt2([](auto& o) { o.batch = 32; }), 1.01},
      {"gpt2/learning_rate", gpt2([](auto& o) { o.lr = 6e-4; }), 1.50},
      {"gpt2/input_dtype", gpt2([](auto& o) { o.tokens = i32; }), 1.66},
      {"gpt2/renamed", gpt2([](auto& o) { o.child = "gpt"; }), 1.01},
      {"gpt2/dropout", gpt2([](auto& o) { o.dropout = 0.1; }), 1.40},
      {"gpt2/optimizer", gpt2([](auto& o) { o.adam = true; }), 1.31},
      {"gpt2/removed", gpt2([](auto& o) { o.layers = 1; }), 1.15},
      {"gpt2/length", gpt2([](auto& o) { o.length = 128; }), 1.03},
  };
  return table;
}

std::string network_of(const std::string& edit) { return edit.substr(0, edit.find('/')); }

const ir::Graph& before_of(const std::string& network) {
  static std::map<std::string, ir::Graph> graphs;
  const auto known = graphs.find(network);
  if (known != graphs.end()) return known->second;
  ir::Graph graph = network == "lenet"       ? traced(LeNetOptions())
                    : network == "mobilenet" ? traced(MobileNetOptions())
                                             : traced(Gpt2Options());
  return graphs.emplace(network, std::move(graph)).first->second;
}

bool counts(const std::string& path) {
  return path.rfind("kernels/", 0) != 0 && path.rfind("runtime/", 0) != 0 && path != "graph.json" &&
         path != "evaluation.json";
}

Lines lines_of(const std::string& text) {
  Lines lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

Files project_of(const ir::Graph& graph, const std::string& name) {
  Files files;
  codegen::EmitOptions options;
  options.name = name + "_train";
  options.execute = eager::reference_run;
  for (const auto& [path, text] : codegen::render_project(graph, options))
    if (counts(path)) files[path] = lines_of(text);
  return files;
}

const Files& before_project(const std::string& network) {
  static std::map<std::string, Files> projects;
  const auto known = projects.find(network);
  return known != projects.end() ? known->second
                                 : projects.emplace(network, project_of(before_of(network), network)).first->second;
}

const Statements& before_statements(const std::string& network) {
  static std::map<std::string, Statements> statements;
  const auto known = statements.find(network);
  return known != statements.end() ? known->second
                                   : statements.emplace(network, statements_of(before_of(network))).first->second;
}

/// Neighbouring lines that change together.
struct Hunk {
  std::size_t before, after;  ///< the first lines
  Lines removed, added;
  int changed() const { return static_cast<int>(std::max(removed.size(), added.size())); }
};

/// Myers 1986: the shortest edit script, of which hunks are made.
std::vector<Hunk> diff(const Lines& a, const Lines& b) {
  const auto n = static_cast<std::ptrdiff_t>(a.size()), m = static_cast<std::ptrdiff_t>(b.size());
  const auto same = [&](std::ptrdiff_t x, std::ptrdiff_t y) {
    return a[static_cast<std::size_t>(x)] == b[static_cast<std::size_t>(y)];
  };
  std::vector<std::vector<std::ptrdiff_t>> rounds;
  std::vector<std::ptrdiff_t> furthest(static_cast<std::size_t>(2 * (n + m) + 3), 0);
  const auto at = [&](std::ptrdiff_t k) { return static_cast<std::size_t>(k + n + m + 1); };
  const auto down = [](const auto& v, std::ptrdiff_t k, std::ptrdiff_t d) {
    return k == -d || (k != d && v(k - 1) < v(k + 1));
  };
  std::ptrdiff_t d = 0;
  for (bool done = false; !done; ++d) {
    const auto value = [&](std::ptrdiff_t k) { return furthest[at(k)]; };
    // What this round reads.
    rounds.emplace_back();
    for (std::ptrdiff_t k = -d - 1; k <= d + 1; ++k) rounds.back().push_back(value(k));
    for (std::ptrdiff_t k = -d; k <= d && !done; k += 2) {
      std::ptrdiff_t x = down(value, k, d) ? value(k + 1) : value(k - 1) + 1, y = x - k;
      if (x > n || y > m) {
        furthest[at(k)] = x;
        continue;
      }
      while (x < n && y < m && same(x, y)) ++x, ++y;
      furthest[at(k)] = x;
      done = x == n && y == m;
    }
  }
  std::vector<std::pair<std::ptrdiff_t, std::ptrdiff_t>> kept;
  std::ptrdiff_t x = n, y = m;
  for (--d; d >= 0; --d) {
    const auto value = [&](std::ptrdiff_t k) {
      return rounds[static_cast<std::size_t>(d)][static_cast<std::size_t>(k + d + 1)];
    };
    const std::ptrdiff_t k = x - y;
    const std::ptrdiff_t before = down(value, k, d) ? k + 1 : k - 1;
    const std::ptrdiff_t from_x = d == 0 ? 0 : value(before), from_y = d == 0 ? 0 : from_x - before;
    while (x > from_x && y > from_y) kept.emplace_back(--x, --y);
    x = from_x;
    y = from_y;
  }
  std::reverse(kept.begin(), kept.end());
  kept.emplace_back(n, m);
  std::vector<Hunk> hunks;
  std::ptrdiff_t i = 0, j = 0;
  for (const auto& [next_i, next_j] : kept) {
    if (i < next_i || j < next_j)
      hunks.push_back({static_cast<std::size_t>(i), static_cast<std::size_t>(j),
                       Lines(a.begin() + i, a.begin() + next_i), Lines(b.begin() + j, b.begin() + next_j)});
    i = next_i + 1;
    j = next_j + 1;
  }
  return hunks;
}

std::map<std::string, std::vector<Hunk>> compare(const Files& before, const Files& after) {
  std::map<std::string, std::vector<Hunk>> result;
  std::map<std::string, int> paths;
  for (const Files* files : {&before, &after})
    for (const auto& [path, lines] : *files) ++paths[path];
  const Lines none;
  for (const auto& [path, count] : paths) {
    const auto a = before.find(path), b = after.find(path);
    auto hunks = diff(a == before.end() ? none : a->second, b == after.end() ? none : b->second);
    if (!hunks.empty()) result[path] = std::move(hunks);
  }
  return result;
}

int sum(const std::map<std::string, int>& by_file) {
  int total = 0;
  for (const auto& [file, count] : by_file) total += count;
  return total;
}

struct Result {
  std::map<std::string, int> changed, needed;
  double ratio() const { return static_cast<double>(sum(changed)) / std::max(1, sum(needed)); }
};

Result measure(const Edit& edit, bool print) {
  const std::string network = network_of(edit.name);
  const ir::Graph after = edit.after();
  const Statements now = statements_of(after);
  const auto hunks = compare(before_project(network), project_of(after, network));
  Result result;
  result.needed = needed_lines(before_statements(network), now);
  for (const auto& [path, list] : hunks) {
    if (print) std::printf("--- %s\n", path.c_str());
    for (const Hunk& h : list) {
      result.changed[path] += h.changed();
      if (!print) continue;
      std::printf("@@ -%zu,%zu +%zu,%zu @@\n", h.before + 1, h.removed.size(), h.after + 1, h.added.size());
      for (const std::string& line : h.removed) std::printf("-%s\n", line.c_str());
      for (const std::string& line : h.added) std::printf("+%s\n", line.c_str());
    }
  }
  // More than did change cannot have had to: the paths of a network that the graph calls otherwise, say, which no
  // identifier has.
  for (auto& [file, count] : result.needed) count = std::min(count, result.changed[file]);
  if (print) {
    std::printf("\n==== what had to change ====\n");
    for (const auto& [file, lines] : difference(before_statements(network), now))
      for (const std::string& line : lines) std::printf("%s: %s\n", file.c_str(), line.c_str());
    std::printf("\n");
  }
  return result;
}

int changed_by_a_line_above() {
  ir::Graph moved = before_of("lenet");
  for (ir::Node& n : moved.nodes)
    for (ir::Origin& origin : n.origins) ++origin.line;
  int total = 0;
  for (const auto& [path, hunks] : compare(before_project("lenet"), project_of(moved, "lenet")))
    for (const Hunk& h : hunks) total += h.changed();
  return total;
}

std::string by_file(const Result& result) {
  std::map<std::string, std::pair<int, int>> both;
  for (const auto& [file, count] : result.changed) both[file].first = count;
  for (const auto& [file, count] : result.needed) both[file].second = count;
  std::string text;
  for (const auto& [file, counts] : both) text += fmt::format("  {} {}/{}", file, counts.first, counts.second);
  return text;
}

TEST(Review, AnEditChangesItsOwnLines) {
  if (codegen::find_formatter().empty())
    GTEST_SKIP() << "clang-format 19 is not installed: lines would break elsewhere";
  std::vector<double> ratios;
  std::printf("%-24s %8s %8s %6s\n", "edit", "changed", "had to", "ratio");
  for (const Edit& edit : edits()) {
    const Result result = measure(edit, false);
    ratios.push_back(result.ratio());
    std::printf("%-24s %8d %8d %6.2f  %s\n", edit.name, sum(result.changed), sum(result.needed), ratios.back(),
                by_file(result).c_str());
    EXPECT_LE(ratios.back(), edit.limit + 0.005)
        << edit.name << " changes more lines than it did; test_review --diff " << edit.name << " shows them";
    EXPECT_GT(sum(result.needed), 0) << edit.name << " is no edit";
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("median %.2f, worst %.2f, of %zu edits\n", ratios[ratios.size() / 2], ratios.back(), ratios.size());
  EXPECT_LE(ratios[ratios.size() / 2], 1.5);
  EXPECT_LE(ratios.back(), 2.5);
  // A line of comment above the network, of which nothing had to change: every call's comment names the line of its
  // layer.
  std::printf("one line more above LeNet: %d lines changed\n", changed_by_a_line_above());
}

/// What somebody who writes GPT-2's training step by hand would not write.
TEST(Review, Gpt2HasNoMasksNoPadsAndNoBiasesOfTheirOwn) {
  const Gpt2Options options;
  ir::Graph graph = traced(options);
  ir::run_passes(graph, {});
  std::map<std::string_view, std::int64_t> count;
  std::int64_t with_bias = 0;
  for (const ir::Node& node : graph.nodes) {
    const std::string_view op = node.op->name;
    ++count[op];
    with_bias += (op == "matmul" || op == "lowered_matmul") && node.inputs.size() > 2 && node.inputs[2] != ir::kNone;
    if (op == "softmax" || op == "softmax_backward") {
      EXPECT_TRUE(node.attributes.flag("causal"));
    }
    // What is called after its role needs no number.
    for (const ir::ValueId v : node.outputs) {
      const std::string& name = graph.value(v).name;
      for (const char* role : {".q.", ".k.", ".k_transposed.", ".v.", ".scores.", ".weights.", ".context."})
        EXPECT_FALSE(name.find(role) != std::string::npos && name.back() >= '0' && name.back() <= '9') << name;
    }
  }
  EXPECT_EQ(count["causal_mask"], 0);
  EXPECT_EQ(count["pad"], 0);
  EXPECT_EQ(count["cat"], options.layers);  // the gradients of q, k and v
  EXPECT_EQ(count["clip_factor"], 1);
  EXPECT_EQ(count["softmax"], options.layers);
  EXPECT_EQ(count["softmax_backward"], options.layers);
  EXPECT_EQ(with_bias, 4 * options.layers);
}

TEST(Review, DiffIsTheShortest) {
  const auto changed = [](const Lines& a, const Lines& b) {
    int total = 0;
    for (const Hunk& h : diff(a, b)) total += h.changed();
    return total;
  };
  EXPECT_EQ(changed({}, {}), 0);
  EXPECT_EQ(changed({"a", "b"}, {"a", "b"}), 0);
  EXPECT_EQ(changed({}, {"a", "b"}), 2);
  EXPECT_EQ(changed({"a", "b", "c"}, {"a", "x", "c"}), 1);
  EXPECT_EQ(changed({"a", "b", "c"}, {"b", "c", "d"}), 2);
  EXPECT_EQ(changed({"a", "b", "c", "a", "b", "b", "a"}, {"c", "b", "a", "b", "a", "c"}), 5);
}

}  // namespace

/// Whether a switch was given and obeyed.
bool obey(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--list") {
      for (const Edit& edit : edits()) std::printf("%s\n", edit.name);
      return true;
    }
    if (std::string(argv[i]) != "--diff" || i + 1 == argc) continue;
    for (const Edit& edit : edits())
      if (std::string(argv[i + 1]) == edit.name) {
        const Result result = measure(edit, true);
        std::printf("%s: %d lines changed, %d had to, ratio %.2f\n%s\n", edit.name, sum(result.changed),
                    sum(result.needed), result.ratio(), by_file(result).c_str());
        return true;
      }
    std::fprintf(stderr, "no edit is called %s; --list names them\n", argv[i + 1]);
    return true;
  }
  return false;
}

}  // namespace graven::review

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return graven::review::obey(argc, argv) ? 0 : RUN_ALL_TESTS();
}
