#include "arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "number.h"

namespace graven::runtime {
namespace {

/// The least number of single-letter changes from one word to the other.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

template <class T>
bool read(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

void Arguments::add(Entry entry) {
  switch (entry.kind) {
    case Kind::section:
      break;
    case Kind::flag:
      entry.fallback = *static_cast<bool*>(entry.target) ? "on" : "off";
      break;
    case Kind::integer:
      entry.fallback = std::to_string(*static_cast<std::int64_t*>(entry.target));
      break;
    case Kind::number:
      entry.fallback = to_text(*static_cast<double*>(entry.target));
      break;
    case Kind::numbers:
      for (const double x : *static_cast<std::vector<double>*>(entry.target))
        entry.fallback += std::string(entry.fallback.empty() ? "" : ",") + to_text(x);
      break;
    case Kind::text:
      entry.fallback = *static_cast<std::string*>(entry.target);
      break;
  }
  entries_.push_back(std::move(entry));
}

Arguments::Entry& Arguments::find(const std::string& name, const std::string& as_written) {
  const auto match = [&](const std::string& wanted) {
    return std::find_if(entries_.begin(), entries_.end(),
                        [&](const Entry& e) { return e.kind != Kind::section && e.name == wanted; });
  };
  if (const auto at = match(name); at != entries_.end()) return *at;
  if (name.starts_with("no-")) {
    if (const auto at = match(name.substr(3)); at != entries_.end() && at->kind == Kind::flag) return *at;
  }
  for (const Refused& refused : refused_)
    if (refused.name == name) throw UsageError("--" + name, refused.why);
  const Entry* closest = nullptr;
  std::size_t best = std::min<std::size_t>(3, name.size() / 2) + 1;
  for (const Entry& entry : entries_) {
    if (entry.kind == Kind::section) continue;
    if (const std::size_t d = distance(name.substr(0, 64), entry.name); d < best) {
      best = d;
      closest = &entry;
    }
  }
  throw UsageError(program_,
                   "unknown option " + as_written +
                       (closest != nullptr ? "; did you mean --" + closest->name + "?" : "; --help lists them"));
}

void Arguments::set(Entry& entry, const std::string& value) const {
  const std::string option = "--" + entry.name, found = printable(value);
  switch (entry.kind) {
    case Kind::integer: {
      std::int64_t x = 0;
      if (!read(value, x) || x < entry.low || x > entry.high)
        throw UsageError(option, "",
                         entry.low == entry.high ? std::to_string(entry.low) + ", which is fixed"
                                                 : std::string("a whole number from ") + std::to_string(entry.low) +
                                                       " to " + std::to_string(entry.high),
                         found);
      *static_cast<std::int64_t*>(entry.target) = x;
      return;
    }
    case Kind::number: {
      double x = 0;
      if (!read(value, x) || !std::isfinite(x) || x < entry.least || x > entry.most)
        throw UsageError(option, "",
                         std::string("a number from ") + to_text(entry.least) + " to " + to_text(entry.most), found);
      *static_cast<double*>(entry.target) = x;
      return;
    }
    case Kind::numbers: {
      std::vector<double> all;
      for (std::size_t begin = 0; begin <= value.size();) {
        const std::size_t end = std::min(value.find(',', begin), value.size());
        double x = 0;
        if (!read(value.substr(begin, end - begin), x) || !std::isfinite(x))
          throw UsageError(option, "", "numbers with commas between", found);
        all.push_back(x);
        begin = end + 1;
      }
      *static_cast<std::vector<double>*>(entry.target) = std::move(all);
      return;
    }
    case Kind::text:
      *static_cast<std::string*>(entry.target) = value;
      return;
    case Kind::flag:
    case Kind::section:
      return;
  }
}

bool Arguments::parse(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      const std::string text = help();
      std::fwrite(text.data(), 1, text.size(), stdout);
      return false;
    }
    if (!argument.starts_with("--")) throw UsageError(program_, "", "options, --name value", printable(argument));
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? std::string::npos : equals - 2);
    Entry& entry = find(name, printable(argument.substr(0, equals)));
    const std::string option = "--" + name;
    entry.given = true;
    if (entry.kind == Kind::flag) {
      if (equals != std::string::npos)
        throw UsageError(option, "", "no value (--" + entry.name + " or --no-" + entry.name + ")",
                         printable(argument.substr(equals + 1)));
      *static_cast<bool*>(entry.target) = name == entry.name;
      continue;
    }
    const bool next_is_value = i + 1 < argc && std::string_view(argv[i + 1]).substr(0, 2) != "--";
    if (equals != std::string::npos) {
      set(entry, argument.substr(equals + 1));
    } else if (next_is_value) {
      set(entry, argv[++i]);
    } else if (entry.value_optional) {
      set(entry, entry.without);
    } else {
      throw UsageError(option, "", "a value, " + entry.value,
                       i + 1 < argc ? printable(argv[i + 1]) : "the end of the line");
    }
  }
  return true;
}

bool Arguments::given(const std::string& name) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name && e.given; });
}

std::string Arguments::help() const {
  std::size_t width = 0;
  const auto left = [](const Entry& e) {
    if (e.kind == Kind::flag) return "  --" + e.name + ", --no-" + e.name;
    return "  --" + e.name + (e.value_optional ? " [" + e.value + "]" : " " + e.value);
  };
  for (const Entry& entry : entries_) {
    if (entry.kind != Kind::section) width = std::max(width, left(entry).size());
  }
  width = std::min<std::size_t>(width, 32);
  std::string text = summary_ + "\n\nusage: " + program_ + " [options]\n";
  for (const Entry& entry : entries_) {
    if (entry.kind == Kind::section) {
      text += "\n" + entry.help + "\n";
      continue;
    }
    std::string line = left(entry);
    line += line.size() > width ? std::string("\n") + std::string(width, ' ') : std::string(width - line.size(), ' ');
    text += line + "  " + entry.help + (entry.fallback.empty() ? "" : " (default: " + entry.fallback + ")") + "\n";
  }
  text += std::string("\n  --help") + std::string(width > 8 ? width - 8 : 0, ' ') + "  this text\n";
  for (const std::string& note : notes_) text += "\n" + note + "\n";
  return text;
}

}  // namespace graven::runtime
