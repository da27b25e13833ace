// The `graven` command: one function a subcommand, each in a file of its own. A subcommand adds itself to the parser,
// whose table of options is also the help text, and returns the function that main() runs when it was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "ir/graph.h"

namespace graven::cli {

/// Exit status: 0 done, 1 the answer is no (a check failed) or a user error, 2 wrong options.
void add_emit(CLI::App& app, int& status);
void add_build(CLI::App& app, int& status);
void add_run(CLI::App& app, int& status);
void add_show(CLI::App& app, int& status);
void add_check(CLI::App& app, int& status);
void add_simulate(CLI::App& app, int& status);
void add_tune(CLI::App& app, int& status);
void add_passes(CLI::App& app, int& status);
void add_ops(CLI::App& app, int& status);

/// For an option: a whole number from `first` to `last`.
CLI::Validator whole_number(std::int64_t first, std::int64_t last);

/// "800000", "512K", "512M", "16G" (powers of 1024); nothing for other texts, 0 among them, and for what does not fit.
std::optional<std::int64_t> byte_size(const std::string& text);

/// The commands' arguments and options as Markdown, from the parser's table: the last part of docs/command.md.
std::string options_markdown(const CLI::App& app);

/// Where a saved graph lies: a folder with graph.json (a saved graph or an emitted project), or a JSON file.
std::string graph_file(const std::string& path);
ir::Graph load_graph(const std::string& path, std::string* saved = nullptr);
/// tuning.json beside the graph.
std::string tuning_file(const std::string& path);

/// Text to a file, or to the screen when `path` is empty or "-". User error when it cannot be written.
void write_text(const std::string& path, const std::string& text);

}  // namespace graven::cli
