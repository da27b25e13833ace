#include <fmt/format.h>

#include <charconv>
#include <string>

#include "codegen/cli/command.h"

namespace graven::cli {

// The parser's own check says it in other words in each of its versions.
CLI::Validator whole_number(std::int64_t first, std::int64_t last) {
  const std::string range = "from " + std::to_string(first) + " to " + std::to_string(last);
  return CLI::Validator(
      [=](std::string& text) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool good = error == std::errc() && end == text.data() + text.size() && value >= first && value <= last;
        return good ? std::string() : "expected a whole number " + range + ", found " + text.substr(0, 100);
      },
      range);
}

std::optional<std::int64_t> byte_size(const std::string& text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  constexpr std::string_view kUnits = "KMG";
  const std::size_t unit = end - stop == 1 ? kUnits.find(*stop) : std::string_view::npos;
  const int shift = stop == end ? 0 : unit == std::string_view::npos ? -1 : 10 * (static_cast<int>(unit) + 1);
  if (error != std::errc() || value <= 0 || shift < 0 || value > (std::int64_t{1} << 60 >> shift)) return std::nullopt;
  return value << shift;
}

namespace {

/// What stands after an option, without the checks that versions of the parser put there in words of their own. Empty:
/// nothing, it is a flag.
std::string placeholder(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}

std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);  // a vertical bar would end the cell
  return out;
}

std::string names(const CLI::Option& option) {
  if (option.get_positional()) return "`" + option.get_name(true) + "`";
  std::string out;
  for (const std::string& name : option.get_snames()) out += "`-" + name + "`, ";
  for (const std::string& name : option.get_lnames()) out += "`--" + name + "`, ";
  out.resize(out.size() - 2);
  if (const std::string value = placeholder(option); !value.empty()) out.insert(out.size() - 1, " " + value);
  return out;
}

}  // namespace

std::string options_markdown(const CLI::App& app) {
  std::string out =
      "## Options\n\nWhat `graven COMMAND --help` lists, in one place (printed by `graven --markdown`). `-h`, `--help` "
      "goes with every\ncommand.\n";
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    out += fmt::format("\n### graven {}\n\n{}.\n", command->get_name(), command->get_description());
    std::string rows;
    for (const CLI::Option* option : command->get_options()) {
      if (option == command->get_help_ptr()) continue;
      rows +=
          fmt::format("| {} | {}{}{} |\n", names(*option), cell(option->get_description()),
                      option->get_required() ? "; required" : "",
                      option->get_default_str().empty() ? "" : " (default: " + cell(option->get_default_str()) + ")");
    }
    if (!rows.empty()) out += "\n| | |\n|---|---|\n" + rows;
  }
  return out;
}

}  // namespace graven::cli
