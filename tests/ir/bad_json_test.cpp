// Graphs that must not be read. Each tests/errors/json/<case>.json, and each tests/errors/text/<case>.graph, gives the
// error in <case>.txt ("valid" when it must be read). `test_ir --bless` writes the texts anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "ir/diagnostic.h"
#include "ir/json.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace graven::ir {

bool bless = false;

namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string outcome(const std::string& text, const std::string& file) {
  try {
    const Graph g = file.ends_with(".graph") ? from_text(text, file) : from_json(text, file);
    verify(g);
    EXPECT_EQ(to_json(from_text(to_text(g), file)), to_json(g));
    EXPECT_EQ(to_json(from_json(to_json(g), file)), to_json(g));
    return "valid\n";
  } catch (const UserError& e) {
    return std::string(e.what()) + "\n";
  }
}

class BadGraph : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Forms, BadGraph, testing::Values("json", "text"),
                         [](const auto& i) { return std::string(i.param); });

TEST_P(BadGraph, GivesItsError) {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(GRAVEN_SOURCE_DIR) / "tests" / "errors" / GetParam())) {
    if (entry.path().extension() == ".txt") continue;
    ++count;
    const std::string found = outcome(read_text(entry.path()), entry.path().filename().string());
    fs::path expected = entry.path();
    expected.replace_extension(".txt");
    if (bless)
      std::ofstream(expected, std::ios::binary) << found;
    else
      EXPECT_EQ(found, read_text(expected))
          << entry.path() << "\nIf the change is meant, run: test_ir --bless, and read the difference";
  }
  EXPECT_GT(count, 50u);
}

/// A valid text with `from` replaced by `to`.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = read_text(fs::path(GRAVEN_SOURCE_DIR) / "tests" / "errors" / "json" / "valid.json");
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string repeated(const std::string& part, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += part;
  return all;
}

TEST(BadJson, LargeThingsAreBounded) {
  const struct {
    const char* what;
    std::string text, expected;
  } cases[] = {
      {"rank 1000", changed("f32[4,3]", "f32[1" + repeated(",1", 999) + "]"),
       "expected a rank of at most 8, found rank 1000"},
      {"nested arrays", repeated("[", 100000), "nested at most 64 deep"},
      {"nested objects", changed("{\"tuple\": [0, 1]}", repeated("{\"tuple\": [", 100000) + repeated("]}", 100000)),
       "nested at most 64 deep"},
      {"long name", changed("\"name\": \"w\"", "\"name\": \"" + std::string(1 << 20, 'w') + "\""),
       "expected a text of at most 4096 bytes, found 1048576 bytes"},
      {"long operator", changed("\"op\": \"add\"", "\"op\": \"" + std::string(1 << 20, 'w') + "\""),
       "expected a text of at most 4096 bytes, found 1048576 bytes"},
      {"many dims", changed("\"dims\": [1]", "\"dims\": [1" + repeated(",1", 99999) + "]"), "is named twice"},
  };
  for (const auto& c : cases) {
    const std::string found = outcome(c.text, "large.json");
    EXPECT_NE(found.find(c.expected), std::string::npos) << c.what << ": " << found.substr(0, 500);
    EXPECT_LT(found.size(), 2000u) << c.what;
  }
}

TEST(BadJson, ANulIsNotTheEndOfTheText) {
  const std::string text = read_text(fs::path(GRAVEN_SOURCE_DIR) / "tests" / "errors" / "json" / "valid.json");
  for (const std::string& behind : {std::string(1, '\0'), std::string("\0\0", 2), std::string("\0 more", 6)}) {
    const std::string found = outcome(text + behind, "nul.json");
    EXPECT_NE(found.find("not valid JSON: a NUL byte"), std::string::npos) << found;
  }
  EXPECT_NE(outcome(std::string(1, '\0') + text, "nul.json").find("not valid JSON"), std::string::npos);
}

TEST(BadJson, WhatIsPrintedHasNoControlCharacters) {
  const std::pair<const char*, const char*> places[] = {
      {"\"op\": \"add\"", "\"op\": \"@\""},
      {"\"dims\": [1]", "\"@\": [1]"},
      {"\"symbols\": {\"batch\"", "\"symbols\": {\"@\""},
      {"\"config\": {}", "\"config\": {\"@\": 1}"},
      {"\"name\": \"w\"", "\"name\": \"@\""},
      {"\"name\": \"w\"", "\"@\": \"w\""},
      {"f32[4,3]", "f32[@]"},
      {"\"phase\": \"forward\"", "\"phase\": \"@\""},
      {"\"tuple\"", "\"@\""},
  };
  for (const auto& [from, to] : places)
    for (const std::string escape : {"\\u001b[31m", "\\u007f", "\\u0000", "\\n"}) {
      std::string hostile = to;
      hostile.replace(hostile.find('@'), 1, escape);
      const std::string found = outcome(changed(from, hostile), "hostile.json");
      EXPECT_TRUE(found.starts_with("error: hostile.json: ")) << hostile << ": " << found;
      for (const char c : found)
        EXPECT_TRUE(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f)) << hostile << ": " << found;
      EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 1) << hostile << ": " << found;
    }
}

TEST(BadJson, TruncatedAnywhereIsAnError) {
  const std::string text = read_text(fs::path(GRAVEN_SOURCE_DIR) / "tests" / "errors" / "json" / "valid.json");
  const std::size_t end = text.rfind('}');
  for (std::size_t n = 0; n <= end; n += 7) EXPECT_THROW(from_json(text.substr(0, n), "cut.json"), UserError) << n;
}

TEST(BadJson, ChangedBytesNeverCrash) {
  const std::string text = read_text(fs::path(GRAVEN_SOURCE_DIR) / "tests" / "errors" / "json" / "valid.json");
  std::uint32_t random = 1;
  for (int i = 0; i < 4000; ++i) {
    std::string broken = text;
    for (int k = 0; k < 1 + i % 3; ++k) {
      random = random * 1664525u + 1013904223u;
      broken[(random >> 8) % broken.size()] = "\"[]{},:0-9ex\\\n\0\xff"[random % 17];
    }
    try {
      (void)to_json(from_json(broken, "broken.json"));
    } catch (const UserError&) {
    }
  }
}

TEST(GraphFile, LargeConstantsLieBesideIt) {
  const fs::path directory = fs::path(GRAVEN_BINARY_DIR) / "graph_file_test";
  fs::remove_all(directory);
  fs::create_directories(directory);
  Graph g;
  auto data = std::make_shared<TensorData>();
  data->type = {DType::i32, {1000}};
  for (std::int32_t i = 0; i < 4000; ++i) data->bytes.push_back(static_cast<std::byte>(i * 7));
  const ValueId c = g.add_constant("table", data);
  g.outputs = {g.call("neg", {c}, {}, {})};
  const std::string path = (directory / "graph.json").string();
  write_graph(path, g);
  EXPECT_TRUE(fs::exists(directory / "graph.safetensors"));
  const Graph again = read_graph(path);
  EXPECT_EQ(to_json(again), to_json(g));
  EXPECT_EQ(again.constants.begin()->second->bytes, data->bytes);
  // Its weights file may hold them, too.
  fs::rename(directory / "graph.safetensors", directory / "weights.safetensors");
  EXPECT_EQ(read_graph(path).constants.begin()->second->bytes, data->bytes);
  fs::remove(directory / "weights.safetensors");
  EXPECT_THROW(read_graph(path), UserError);
  EXPECT_THROW(read_graph((directory / "absent.json").string()), UserError);
  EXPECT_THROW(read_graph(directory.string()), UserError);
  EXPECT_THROW(write_graph((directory / "no" / "such.json").string(), g), UserError);
}

}  // namespace
}  // namespace graven::ir

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) != "--bless") {
      std::cerr << "unknown argument " << argv[i] << "; --bless rewrites the texts\n";
      return 2;
    }
    graven::ir::bless = true;
  }
  return RUN_ALL_TESTS();
}
