#include "codegen/cuda_table/host_text.h"

#include <cctype>
#include <string_view>
#include <vector>

#include "ir/diagnostic.h"

namespace graven::codegen {

namespace {

[[noreturn]] void refuse(const std::string& file, std::size_t at, const std::string& text, const std::string& why) {
  throw UserError(file + ": " + why + ": " + text.substr(at, text.find('\n', at) - at));
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::size_t skip_blanks(const std::string& text, std::size_t at) {
  while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at])) != 0) ++at;
  return at;
}

/// Behind the bracket that closes the one at `at`; comments and literals have none that count.
std::size_t behind_bracket(const std::string& text, std::size_t at, char open, char close) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (text.compare(at, 2, "//") == 0) {
      at = text.find('\n', at);
      continue;
    }
    if (text[at] == '"' || (text[at] == '\'' && !is_word(text[at - 1]))) {
      const char quote = text[at];
      for (++at; at < text.size() && text[at] != quote; ++at)
        if (text[at] == '\\') ++at;
      continue;
    }
    if (text[at] == open) ++depth;
    if (text[at] == close && --depth == 0) return at + 1;
  }
  return std::string::npos;
}

/// "F, Y, X..." as expressions that say what the arguments are: `parameters` is what stands in "template <...>".
std::string argument_texts(const std::string& parameters) {
  std::string result, parameter;
  const auto add = [&] {
    parameter.resize(parameter.find('=') == std::string::npos ? parameter.size() : parameter.find('='));
    while (!parameter.empty() && !is_word(parameter.back())) parameter.pop_back();
    std::size_t begin = parameter.size();
    while (begin > 0 && is_word(parameter[begin - 1])) --begin;
    const bool pack = parameter.find("...") != std::string::npos;
    if (!result.empty()) result += ", ";
    result += "argument_text<" + parameter.substr(begin) + ">()" + (pack ? "..." : "");
    parameter.clear();
  };
  int depth = 0;
  for (const char c : parameters) {
    depth += c == '<' ? 1 : c == '>' ? -1 : 0;
    if (c == ',' && depth == 0)
      add();
    else
      parameter += c;
  }
  add();
  return result;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

}  // namespace

std::string host_text(const std::string& text, const std::string& file) {
  constexpr std::string_view kGlobal = "__global__ void ", kBounds = "__launch_bounds__";
  std::string result;
  std::size_t done = 0;
  for (std::size_t at = text.find(kGlobal); at != std::string::npos; at = text.find(kGlobal, at)) {
    const std::size_t line = text.rfind('\n', at) + 1;
    if (text.compare(line, 2, "//") == 0) {
      at += kGlobal.size();
      continue;
    }
    const std::size_t before = text.rfind('\n', line - 2) + 1;
    if (line != at || text.compare(before, 10, "template <") != 0)
      refuse(file, at, text, "expected a line \"template <...>\" before a kernel");
    const std::string parameters = text.substr(before + 10, line - 2 - (before + 10));
    std::size_t name = skip_blanks(text, at + kGlobal.size());
    if (text.compare(name, kBounds.size(), kBounds) == 0)
      name = skip_blanks(text, behind_bracket(text, name, '(', ')'));
    std::size_t end = name;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::size_t body = skip_blanks(text, behind_bracket(text, end, '(', ')'));
    if (end == name || text[body] != '{') refuse(file, at, text, "expected a kernel's name, parameters and body");
    result += text.substr(done, body - done);
    result += "{\n  note_kernel(kernel_text(\"" + text.substr(name, end - name) + "\", {" + argument_texts(parameters) +
              "}));\n}";
    done = at = behind_bracket(text, body, '{', '}');
  }
  result += text.substr(done);
  // Functions of the library's kernels for the processor have some of these names.
  replace_all(result, "namespace graven::kernels {", "namespace graven::kernels::inline on_cuda {");
  replace_all(result, "#include \"../", "#include \"kernels/");
  return result;
}

}  // namespace graven::codegen
