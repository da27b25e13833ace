// clang-format 19 over generated texts, several at a time. Pinned, or the bytes would depend on the machine; where it
// is missing the texts stay as they are, which is indented all the same.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace graven::codegen {

/// The formatter's path; empty when there is none of version 19.
std::string find_formatter();

/// Formats the C++ texts among `files` whose paths are in `paths`. False when the formatter failed: the texts are then
/// untouched.
bool format_texts(std::map<std::string, std::string>& files, const std::vector<std::string>& paths);

}  // namespace graven::codegen
