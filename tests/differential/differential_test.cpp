// Random graphs, computed in every way there is (checks.h), and random programs, run eagerly and as graphs
// (random_program.h). The bounded run is a test; the long one is the same program:
//
//   build/tests/differential/test_differential --seconds 600 [--seed N] [--emitted 16]
//
// goes on from seed N, with a program after each graph; what differs is shrunk and written to --corpus (default: here).
// With --emitted, every so many graphs are also emitted, compiled and run as one program.
//
// A finding goes into corpus/ as a graph; every graph there is checked for good.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <set>
#include <tuple>

#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/op.h"
#include "tests/differential/checks.h"
#include "tests/differential/random_graph.h"
#include "tests/differential/random_program.h"
#include "tests/differential/symbolic.h"

namespace graven::tests {
namespace {

std::optional<Finding> check_or_throw(const ir::Graph& g, std::uint64_t seed) {
  try {
    return check(g, seed);
  } catch (const std::exception& e) {
    return Finding{"error", e.what()};
  }
}

std::optional<Finding> check_emitted_or_throw(const std::vector<ir::Graph>& graphs) {
  try {
    return check_emitted(graphs);
  } catch (const std::exception& e) {
    return Finding{"emitted", e.what()};
  }
}

TEST(Differential, RandomGraphsAgreeInEveryWay) {
  for (std::uint64_t seed = 1; seed <= 250; ++seed) {
    const auto finding = check_or_throw(random_graph(seed), seed);
    ASSERT_FALSE(finding) << "seed " << seed << ", " << finding->check << ": " << finding->text
                          << "\nshrink it with --seed " << seed << " --seconds 1";
  }
}

TEST(Differential, RandomProgramsMeanTheSameInAGraph) {
  int programs = 0, by_both = 0;
  for (const auto& [training, in_backward, count] :
       {std::tuple(true, false, 200), std::tuple(true, true, 60), std::tuple(false, false, 60)})
    for (int i = 0; i < count; ++i, ++programs) {
      const ProgramResult result = check_program(static_cast<std::uint64_t>(programs), training, in_backward);
      by_both += result.by_both;
      EXPECT_FALSE(result.finding) << *result.finding;
    }
  EXPECT_GE(by_both, programs * 3 / 5);  // the generator is worth what both take
}

TEST(Differential, EmittedProgramsComputeTheSame) {
  std::vector<ir::Graph> training, inference;
  for (std::uint64_t seed = 1001; training.size() < 6 || inference.size() < 6; ++seed) {
    ir::Graph g = random_graph(seed);
    auto& list = g.losses.empty() ? inference : training;
    if (list.size() < 6) list.push_back(std::move(g));
  }
  std::vector<ir::Graph> symbolic;
  for (std::uint64_t seed = 2001; symbolic.size() < 6; ++seed)
    if (std::optional<ir::Graph> g = with_symbol(random_graph(seed)); g && takes_ones(*g))
      symbolic.push_back(std::move(*g));
  for (const auto* list : {&training, &inference, &symbolic}) {
    const auto finding = check_emitted(*list);
    EXPECT_FALSE(finding) << finding->text;
  }
}

TEST(Differential, SavedGraphsAgree) {
  std::set<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(GRAVEN_SOURCE_DIR "/tests/differential/corpus"))
    if (entry.path().extension() == ".json") files.insert(entry.path());
  for (const auto& file : files) {
    const auto finding = check_or_throw(ir::read_graph(file.string()), 1);
    EXPECT_FALSE(finding) << file.filename() << ", " << finding->check << ": " << finding->text;
  }
}

TEST(Differential, GraphsAreTheSameForTheSameSeed) {
  EXPECT_EQ(ir::to_json(random_graph(3)), ir::to_json(random_graph(3)));
  EXPECT_NE(ir::to_json(random_graph(3)), ir::to_json(random_graph(4)));
}

/// The generator is worth what it reaches.
TEST(Differential, NearlyEveryOperatorIsDrawn) {
  std::set<std::string_view> seen, missing;
  for (std::uint64_t seed = 1; seed <= 400; ++seed)
    for (const ir::Node& n : random_graph(seed).nodes) seen.insert(n.op->name);
  std::size_t all = 0;
  for (const ir::OpDef* op : ir::all_ops()) {
    if (op->donates() || !op->cases || op->lowered) continue;
    ++all;
    if (!seen.count(op->name)) missing.insert(op->name);
  }
  std::string names;
  for (std::string_view name : missing) names += " " + std::string(name);
  EXPECT_LE(missing.size(), all / 50) << names;
}

/// The shrinker keeps what fails and little else.
TEST(Differential, ShrinkingKeepsTheFailure) {
  ir::Graph g;
  for (std::uint64_t seed = 1;; ++seed) {
    g = random_graph(seed);
    if (std::any_of(g.nodes.begin(), g.nodes.end(), [](const ir::Node& n) { return n.op->name == "tanh"; }) &&
        g.nodes.size() > 15)
      break;
  }
  const auto has_tanh = [](const ir::Graph& candidate) {
    return std::any_of(candidate.nodes.begin(), candidate.nodes.end(),
                       [](const ir::Node& n) { return n.op->name == "tanh"; });
  };
  const ir::Graph small = shrink(g, has_tanh);
  EXPECT_TRUE(has_tanh(small));
  EXPECT_LE(small.nodes.size(), 3u) << ir::to_json(small);
}

/// Goes on until the time is over; returns the number of findings.
int fuzz(std::uint64_t seed, double seconds, std::uint64_t emitted, const std::string& corpus) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  int findings = 0;
  std::uint64_t graphs = 0;
  std::size_t nodes = 0;
  std::vector<ir::Graph> batch;
  for (; elapsed() < seconds; ++seed, ++graphs) {
    const ir::Graph g = random_graph(seed);
    nodes += g.nodes.size();
    if (emitted > 0) {
      // Every other batch is of graphs with symbols, as far as they have one.
      const std::optional<ir::Graph> symbolic = graphs / emitted % 2 == 0 ? with_symbol(g) : std::nullopt;
      if (symbolic && takes_ones(*symbolic))
        batch.push_back(*symbolic);
      else if (graphs / emitted % 2 != 0)
        batch.push_back(g);
    }
    if (emitted > 0 && graphs % emitted == emitted - 1 && !batch.empty()) {
      if (const auto finding = check_emitted_or_throw(batch)) {
        ++findings;
        std::cout << fmt::format("seeds up to {}, {}: {}\n", seed, finding->check, finding->text);
        for (std::size_t k = 0; k < batch.size(); ++k)
          if (const auto alone = check_emitted_or_throw({batch[k]})) {
            const ir::Graph small = shrink(
                batch[k], [](const ir::Graph& candidate) { return check_emitted_or_throw({candidate}).has_value(); });
            const std::string file = fmt::format("{}/emitted-{}-{}.json", corpus, seed, k);
            ir::write_graph(file, small);
            std::cout << fmt::format("  graph {}: {}\n  {} nodes: {}\n", k, alone->text, small.nodes.size(), file);
          }
      }
      batch.clear();
    }
    if (const ProgramResult r = check_program(seed, seed % 4 != 0, seed % 8 == 1); r.finding) {
      ++findings;
      std::cout << *r.finding;
    }
    const auto finding = check_or_throw(g, seed);
    if (!finding) continue;
    ++findings;
    const ir::Graph small = shrink(g, [&](const ir::Graph& candidate) {
      const auto again = check_or_throw(candidate, seed);
      return again && again->check == finding->check;
    });
    const auto left = check_or_throw(small, seed);
    const std::string file = fmt::format("{}/{}-{}.json", corpus, finding->check, seed);
    ir::write_graph(file, small);
    std::cout << fmt::format("seed {}, {}: {}\n  {} nodes: {}\n  {}\n", seed, finding->check, finding->text,
                             small.nodes.size(), left ? left->text : "(gone)", file);
  }
  std::cout << fmt::format("{} graphs, {} nodes, {} findings; the next seed is {}\n", graphs, nodes, findings, seed);
  return findings;
}

}  // namespace
}  // namespace graven::tests

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  double seconds = 0;
  std::uint64_t seed = 100000, emitted = 0;
  std::string corpus = ".";
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    bool known = true;
    if (option == "--seconds")
      known = std::from_chars(value.data(), value.data() + value.size(), seconds).ec == std::errc();
    else if (option == "--seed")
      known = std::from_chars(value.data(), value.data() + value.size(), seed).ec == std::errc();
    else if (option == "--emitted")
      known = std::from_chars(value.data(), value.data() + value.size(), emitted).ec == std::errc();
    else if (option == "--corpus")
      corpus = value;
    else
      known = false;
    if (!known || value.empty()) {
      std::cerr << "test_differential: expected --seconds N, --seed N, --emitted N, --corpus FOLDER; found '" << option
                << " " << value << "'\n";
      return 2;
    }
  }
  if (seconds > 0) return graven::tests::fuzz(seed, seconds, emitted, corpus) == 0 ? 0 : 1;
  return RUN_ALL_TESTS();
}
