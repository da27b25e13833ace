// The file of measured choices: what is written is read again, the same entries are the same bytes, and what is damaged
// is one error that says where.
#include "ir/tuning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ir/diagnostic.h"

namespace graven::ir {
namespace {

const TuningEntry kConvolution{.target = "cpu",
                               .device = "Some \"Processor\", 2 processors",
                               .versions = "graven 0.1.0, kernels 12345678",
                               .choice = "conv2d f32[1,8,8,64] f32[64,64,3,3] padding 1x1",
                               .chosen = "winograd 4",
                               .milliseconds = {{"direct", 1.21}, {"winograd 2", 0.5}, {"winograd 4", 0}}};
const TuningEntry kProduct{.target = "cuda",
                           .device = "A GPU, sm_90",
                           .versions = "graven 0.1.0, kernels 12345678, cuBLASLt 130000",
                           .choice = "linear f32 m=64 n=10 k=256",
                           .chosen = "algorithm 3",
                           .milliseconds = {}};

TEST(Tuning, IsReadAsItWasWritten) {
  const std::string text = tuning_text({kProduct, kConvolution});
  EXPECT_EQ(parse_tuning(text, "tuning.json"), (std::vector{kConvolution, kProduct}));
  EXPECT_EQ(tuning_text({kConvolution, kProduct}), text) << "sorted";
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 8) << text;
  EXPECT_TRUE(parse_tuning(tuning_text({}), "tuning.json").empty());
}

TEST(Tuning, WhatIsDamagedIsOneErrorThatSaysWhere) {
  const std::string whole = tuning_text({kConvolution, kProduct});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const struct {
    std::string text, said;
  } cases[] = {
      {"", "tuning.json: line 1, column 1: not valid JSON"},
      {whole.substr(0, whole.size() / 2), "tuning.json: line 5, column"},
      {"[]", "tuning.json: expected an object, found an array of 0"},
      {with("graven.tuning", "graven.graph"), R"(format: expected "graven.tuning", found the string "graven.graph")"},
      {with("\"version\": 1", "\"version\": 2"), "version: expected 1, found 2"},
      {with("\"version\": 1,\n", ""), R"(expected the key "version", found an object of 2)"},
      {with("\"version\"", "\"Version\""), R"(expected the keys of the format, each once, found the string "Version")"},
      {with("\"target\": \"cpu\"", "\"target\": 1"), "entries[0].target: expected a string, found 1"},
      {with("\"chosen\": \"algorithm 3\"", "\"chosen\": \"\""),
       R"(entries[1].chosen: expected a text that is not empty, found the string "")"},
      {with("\"chosen\": \"algorithm 3\"", "\"chosen\": \"a\", \"chosen\": \"b\""),
       R"(entries[1]: expected the keys of the format, each once, found the string "chosen")"},
      {with("1.21", "-1"), "entries[0].milliseconds.direct: expected a number that is not negative, found -1"},
      {with("1.21", "\"fast\""), "entries[0].milliseconds.direct: expected a number"},
      {with("\"winograd 2\": ", "\"direct\": "), "entries[0].milliseconds: expected each key once, found 0.5"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    try {
      parse_tuning(c.text, "tuning.json");
      ADD_FAILURE() << "no error";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(c.said), std::string::npos) << error.what();
      EXPECT_TRUE(error.notes().empty()) << "one line";
    }
  }
  EXPECT_THROW(read_tuning("/no/such/tuning.json"), UserError);
}

TEST(Tuning, StandsInTheConfigOfAGraph) {
  Graph graph;
  EXPECT_FALSE(has_tuned(graph));
  graph.config[std::string(kTunedFor)] = std::string("here");
  EXPECT_FALSE(has_tuned(graph));
  set_tuned(graph, "a choice", "direct");
  EXPECT_TRUE(has_tuned(graph));
  EXPECT_EQ(tuned(graph, "a choice"), "direct");
  EXPECT_EQ(tuned(graph, "another"), "");
  for (const auto& [text, threads] : {std::pair{"3", 3}, {"all", 0}, {"0", 0}, {"-1", 0}, {"3 ", 0}, {"5000", 0}}) {
    set_tuned(graph, threads_key(graph), text);
    EXPECT_EQ(tuned_threads(graph), threads) << text;
  }
}

}  // namespace
}  // namespace graven::ir
