// The texts that emission needs, compiled into the library by cmake/embed.cmake: templates/, kernels/ and runtime_min/,
// by path.
#pragma once

#include <span>
#include <string_view>

namespace graven::codegen {

struct EmbeddedFile {
  std::string_view path;  ///< "templates/project/model.h"
  std::string_view text;
};

/// Sorted by path.
std::span<const EmbeddedFile> embedded_files();

/// Internal error when there is none of that path.
std::string_view embedded_text(std::string_view path);
/// Nullptr when there is none.
const EmbeddedFile* find_embedded(std::string_view path);

}  // namespace graven::codegen
