// Rendering: a template of templates/, or of a target's folder, by its path from the root, filled with JSON data by
// inja. An unknown variable is an error, never an empty text.
//
//   render("project/params.h", data)
//
// The delimiters cannot stand in C++, CMake or Markdown by accident: @{ value }@, {% for x in list %}, {# comment #}. A
// line that holds a statement alone leaves no blank line. Templates hold no logic beyond loops and the question whether
// something is there.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace graven::codegen {

/// Internal error naming template, line and column: templates are ours.
std::string render(std::string_view template_name, const nlohmann::json& data);

/// The same for a text, for tests.
std::string render_text(std::string_view text, const nlohmann::json& data);

}  // namespace graven::codegen
