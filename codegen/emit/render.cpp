#include "codegen/emit/render.h"

#include <algorithm>
#include <inja/inja.hpp>

#include "codegen/emit/embedded.h"
#include "ir/diagnostic.h"

namespace graven::codegen {

namespace {

inja::Environment make_environment() {
  inja::Environment environment;
  environment.set_expression("@{", "}@");
  environment.set_statement("{%", "%}");
  environment.set_comment("{#", "#}");
  environment.set_line_statement("@%%");
  environment.set_trim_blocks(true);
  environment.set_lstrip_blocks(true);
  environment.set_search_included_templates_in_files(false);
  return environment;
}

}  // namespace

std::string render_text(std::string_view text, const nlohmann::json& data) {
  inja::Environment environment = make_environment();
  try {
    return environment.render(text, data);
  } catch (const inja::InjaError& e) {
    GRAVEN_CHECK(false, std::string("template: ") + e.what());
  }
  return {};
}

std::string render(std::string_view template_name, const nlohmann::json& data) {
  const std::string path =
      template_name.starts_with("codegen/") ? std::string(template_name) : "templates/" + std::string(template_name);
  inja::Environment environment = make_environment();
  try {
    return environment.render(embedded_text(path), data);
  } catch (const inja::InjaError& e) {
    GRAVEN_CHECK(false, path + ": " + e.what());
  }
  return {};
}

const EmbeddedFile* find_embedded(std::string_view path) {
  const auto files = embedded_files();
  const auto it = std::lower_bound(files.begin(), files.end(), path,
                                   [](const EmbeddedFile& f, std::string_view p) { return f.path < p; });
  return it == files.end() || it->path != path ? nullptr : &*it;
}

std::string_view embedded_text(std::string_view path) {
  const EmbeddedFile* file = find_embedded(path);
  GRAVEN_CHECK(file != nullptr, std::string(path) + " was not compiled into the library");
  return file->text;
}

}  // namespace graven::codegen
