// What the public headers declare, and what docs/library.md names.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/patterns.h"

namespace graven::tests {

inline std::string text_of_file(const std::filesystem::path& file) {
  std::ifstream in(file);
  EXPECT_TRUE(in.good()) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// What the pattern's group finds in these headers.
inline std::set<std::string> declared(const std::vector<std::filesystem::path>& headers, const std::string& pattern) {
  std::set<std::string> names;
  for (const std::filesystem::path& header : headers) {
    // Not what is the library's own.
    std::string text = text_of_file(header);
    for (std::size_t begin = text.find("\nnamespace detail {"); begin != std::string::npos;
         begin = text.find("\nnamespace detail {"))
      text.erase(begin, std::min(text.find("\n}\n", begin), text.find("\n}  // namespace detail", begin)) - begin);
    for (const Match& name : matches(text, pattern)) names.insert(name.groups[1]);
  }
  return names;
}

inline std::filesystem::path public_headers() {
  return std::filesystem::path(GRAVEN_SOURCE_DIR) / "frontend/include/graven";
}

struct PublicNames {
  std::set<std::string> layers, functions, methods;  ///< of nn::, of graven::, of Tensor
};
inline PublicNames public_names() {
  const std::filesystem::path include = public_headers();
  std::vector<std::filesystem::path> layers{include / "layers.h"},
      functions{include / "tensor.h", include / "functional.h"};
  for (const auto& entry : std::filesystem::directory_iterator(include / "layers")) layers.push_back(entry.path());
  for (const auto& entry : std::filesystem::directory_iterator(include / "functional"))
    functions.push_back(entry.path());
  PublicNames names;
  names.layers = declared(layers, "^class ([A-Za-z0-9]+) : public");
  for (const char* base : {"BatchNormNd", "InstanceNormNd", "Recurrent", "RecurrentCell"})
    EXPECT_EQ(names.layers.erase(base), 1u) << base;
  names.layers.insert({"Sequential", "ModuleList", "Lambda"});
  names.functions = declared(functions, "^(?:Tensor|std::(?:pair|tuple|vector)<[^(\\n]*>|bool) ([a-z_0-9]+)\\(");
  const std::string tensor = text_of_file(include / "tensor.h");
  const std::size_t begin = tensor.find("\nclass Tensor {"), end = tensor.find("\n};", begin);
  for (const Match& name : matches(tensor.substr(begin, end - begin), "^  [A-Za-z][^(\\n]* ([a-z_0-9]+)\\("))
    names.methods.insert(name.groups[1]);
  return names;
}

/// What docs/library.md names in the second columns of a section's rows whose first column begins with `row`.
inline std::set<std::string> names_on_library_page(const std::string& section, const std::string& row) {
  std::set<std::string> names;
  std::istringstream lines(text_of_file(std::filesystem::path(GRAVEN_SOURCE_DIR) / "docs/library.md"));
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, 3, "## ") == 0) inside = line == "## " + section;
    const std::size_t second = line.find('|', 1);
    if (!inside || line.compare(0, 2 + row.size(), "| " + row) != 0 || second == std::string::npos) continue;
    for (const Match& name : matches(line.substr(second), "`([A-Za-z0-9_]+)`")) names.insert(name.groups[1]);
  }
  return names;
}

}  // namespace graven::tests
