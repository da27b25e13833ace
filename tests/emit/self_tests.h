// That self-tests of emitted projects can fail.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/build/process.h"
#include "runtime_min/safetensors.h"

namespace graven::codegen {

/// Whatever recorded result is changed, the self-test that was built in the project's folder fails and names it. There
/// are `least` of them or more.
inline void expect_every_number_counts(const std::filesystem::path& folder, int least) {
  const std::filesystem::path path = folder / "selftest.safetensors";
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string recorded = all.str();
  std::uint64_t header = 0;
  std::memcpy(&header, recorded.data(), sizeof header);
  const std::vector<runtime::SafetensorsEntry> entries = runtime::SafetensorsFile(path.string()).entries();
  int results = 0;
  for (const runtime::SafetensorsEntry& entry : entries) {
    if (entry.name.starts_with("input.") || entry.name.starts_with("tolerance.")) continue;
    SCOPED_TRACE(entry.name);
    const bool counts = entry.dtype == runtime::DType::i64;
    ASSERT_TRUE(counts || entry.dtype == runtime::DType::f32);
    std::string changed = recorded;
    char* const first = changed.data() + 8 + header + entry.begin;
    float number = 0;
    std::memcpy(&number, first, sizeof number);
    number += 1 + std::abs(number);
    if (counts)
      ++*first;
    else
      std::memcpy(first, &number, sizeof number);
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary) << changed;
    const ProcessResult r =
        run_process({(folder / "build/selftest").string()}, {.directory = folder.string(), .seconds = 100});
    EXPECT_EQ(r.exit_status, 1) << r.output;
    const std::string lines = "\n" + r.output;
    const std::size_t line = lines.find("\n" + entry.name + " ");
    ASSERT_NE(line, std::string::npos) << r.output;
    EXPECT_NE(lines.substr(line, lines.find('\n', line + 1) - line).find("FAILED"), std::string::npos) << r.output;
    ++results;
  }
  EXPECT_GE(results, least);
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << recorded;
}

}  // namespace graven::codegen
