// A file as a text.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace graven {

/// The bytes of the file; empty where there is none.
inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream all;
  all << in.rdbuf();
  return all.str();
}

}  // namespace graven
