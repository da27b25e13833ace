// Command-line options from one table: the parser, --help with every default, and the messages all come from it.
//
//   std::int64_t epochs = 5;
//   bool shuffle = true;
//   Arguments arguments("lenet_train", "Trains lenet on images and labels.");
//   arguments.section("Training");
//   arguments.integer("epochs", epochs, 0, 1000000, "N", "passes over the training set");
//   arguments.flag("shuffle", shuffle, "a new order each epoch");        // --shuffle and --no-shuffle
//   if (!arguments.parse(argc, argv)) return 0;                          // --help was printed
//
// Defaults are what the variables hold when they are registered. `--name value` and `--name=value` are the same. A
// wrong option is a UsageError that names the option, what it expects and what it got.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "error.h"

namespace graven::runtime {

class Arguments {
 public:
  Arguments(std::string program, std::string summary) : program_(std::move(program)), summary_(std::move(summary)) {}

  /// A heading in --help for the options that follow.
  void section(const std::string& title) { entries_.push_back({.kind = Kind::section, .help = title}); }
  /// --name and --no-name.
  void flag(const char* name, bool& target, const char* help) {
    add({.kind = Kind::flag, .name = name, .target = &target, .help = help});
  }
  /// A whole number from `low` to `high`.
  void integer(const char* name, std::int64_t& target, std::int64_t low, std::int64_t high, const char* value,
               const char* help) {
    add({.kind = Kind::integer,
         .name = name,
         .value = value,
         .target = &target,
         .low = low,
         .high = high,
         .help = help});
  }
  /// A finite number from `low` to `high`.
  void number(const char* name, double& target, double low, double high, const char* value, const char* help) {
    add({.kind = Kind::number,
         .name = name,
         .value = value,
         .target = &target,
         .least = low,
         .most = high,
         .help = help});
  }
  /// Finite numbers, commas between.
  void numbers(const char* name, std::vector<double>& target, const char* value, const char* help) {
    add({.kind = Kind::numbers, .name = name, .value = value, .target = &target, .help = help});
  }
  void text(const char* name, std::string& target, const char* value, const char* help) {
    add({.kind = Kind::text, .name = name, .value = value, .target = &target, .help = help});
  }
  /// The same, but the value may be left out: then `target` becomes `without`.
  void optional_text(const char* name, std::string& target, std::string without, const char* value, const char* help) {
    add({.kind = Kind::text,
         .name = name,
         .value = value,
         .target = &target,
         .without = std::move(without),
         .value_optional = true,
         .help = help});
  }
  /// An option that other programs have: given to this one, the error says why it has not.
  void refuse(std::string name, std::string why) { refused_.push_back({std::move(name), std::move(why)}); }
  /// A paragraph at the end of --help.
  void note(const std::string& text) { notes_.push_back(text); }

  /// False when --help was asked for and printed.
  bool parse(int argc, const char* const* argv);
  /// Whether the option stood on the command line.
  bool given(const std::string& name) const;
  std::string help() const;

 private:
  enum class Kind : std::uint8_t { section, flag, integer, number, numbers, text };
  struct Entry {
    Kind kind;
    std::string name{}, value{};
    void* target = nullptr;
    std::int64_t low = 0, high = 0;
    double least = 0, most = 0;
    std::string without{};
    bool value_optional = false;
    std::string help{}, fallback{};
    bool given = false;
  };

  void add(Entry entry);
  Entry& find(const std::string& name, const std::string& as_written);
  void set(Entry& entry, const std::string& value) const;

  std::string program_, summary_;
  std::vector<Entry> entries_;
  std::vector<std::string> notes_;
  struct Refused {
    std::string name, why;
  };
  std::vector<Refused> refused_;
};

}  // namespace graven::runtime
