#include "ir/tuning.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ir/diagnostic.h"
#include "ir/json_document.h"

namespace graven::ir {

namespace {

constexpr std::string_view kTuned = "tuned.", kFormat = "graven.tuning";
constexpr std::int64_t kVersion = 1;

std::string config_key(std::string_view key) { return std::string(kTuned).append(key); }

class TuningReader {
 public:
  TuningReader(std::string_view text, const std::string& file) : file_(file), document_(text, file, 8) {}

  std::vector<TuningEntry> read() {
    bool known = false, current = false;
    std::vector<TuningEntry> entries;
    fields(document_.root(), "", {"format", "version", "entries"}, [&](std::string_view key, json::Item item) {
      if (key == "format") {
        known = text(item, "format") == kFormat;
        if (!known) fail("format", "\"" + std::string(kFormat) + "\"", item);
      } else if (key == "version") {
        current = item.kind() == json::Kind::integer && item.integer() == kVersion;
        if (!current) fail("version", std::to_string(kVersion), item);
      } else {
        expect(item, json::Kind::array, "entries");
        for (json::Item entry : item)
          entries.push_back(read_entry(entry, "entries[" + std::to_string(entries.size()) + "]"));
      }
    });
    return entries;
  }

 private:
  TuningEntry read_entry(json::Item item, const std::string& place) {
    TuningEntry e;
    const std::pair<std::string_view, std::string*> texts[] = {{"target", &e.target},
                                                               {"device", &e.device},
                                                               {"versions", &e.versions},
                                                               {"choice", &e.choice},
                                                               {"chosen", &e.chosen}};
    fields(item, place, {"target", "device", "versions", "choice", "chosen", "milliseconds"},
           [&](std::string_view key, json::Item value) {
             for (const auto& [name, to] : texts)
               if (name == key) *to = text(value, place + "." + std::string(key));
             if (key == "milliseconds") read_times(value, place + ".milliseconds", e.milliseconds);
           });
    return e;
  }

  void read_times(json::Item item, const std::string& place, std::map<std::string, double>& times) {
    expect(item, json::Kind::object, place);
    for (auto it = item.begin(); it != item.end(); ++it) {
      std::string name((*it).text());
      const json::Item value = *++it;
      if ((value.kind() != json::Kind::integer && value.kind() != json::Kind::number) ||
          !std::isfinite(value.number()) || value.number() < 0)
        fail(place + "." + name.substr(0, 100), "a number that is not negative", value);
      if (!times.emplace(name, value.number()).second) fail(place, "each key once", value);
    }
  }

  /// Each of the keys, once, and no other.
  template <class Read>
  void fields(json::Item item, const std::string& place, std::vector<std::string_view> keys, const Read& read) {
    expect(item, json::Kind::object, place);
    for (auto it = item.begin(); it != item.end(); ++it) {
      const json::Item key = *it;
      const auto found = std::find(keys.begin(), keys.end(), key.text());
      if (found == keys.end()) fail(place, "the keys of the format, each once", key);
      keys.erase(found);
      read(key.text(), *++it);
    }
    if (!keys.empty()) fail(place, "the key \"" + std::string(keys.front()) + "\"", item);
  }
  std::string text(json::Item item, const std::string& place) {
    expect(item, json::Kind::text, place);
    if (item.text().empty()) fail(place, "a text that is not empty", item);
    return std::string(item.text());
  }
  void expect(json::Item item, json::Kind kind, const std::string& place) {
    if (item.kind() != kind) fail(place, std::string(json::describe(kind)), item);
  }
  [[noreturn]] void fail(const std::string& place, const std::string& expected, json::Item found) {
    throw UserError(file_ + ": " + (place.empty() ? "" : place + ": ") + "expected " + expected + ", found " +
                    found.quote());
  }

  const std::string& file_;
  json::Document document_;
};

}  // namespace

std::string tuned(const Graph& graph, std::string_view key) {
  const auto found = graph.config.find(config_key(key));
  const std::string* chosen = found == graph.config.end() ? nullptr : std::get_if<std::string>(&found->second);
  return chosen != nullptr ? *chosen : std::string();
}

void set_tuned(Graph& graph, std::string_view key, std::string chosen) {
  graph.config[config_key(key)] = std::move(chosen);
}

bool has_tuned(const Graph& graph) {
  const auto first = graph.config.lower_bound(std::string(kTuned));
  return first != graph.config.end() && first->first.starts_with(kTuned);
}

std::string threads_key(const Graph& graph) {
  std::string key = "threads of " + graph.name;
  for (const ValueId v : graph.inputs) key += " " + graph.type(v).to_string();
  return key;
}

int tuned_threads(const Graph& graph) { return thread_count(tuned(graph, threads_key(graph))).value_or(0); }

std::optional<int> thread_count(const std::string& text) {
  int count = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || stop != end || count < 1 || count > 4096) return std::nullopt;
  return count;
}

std::string tuning_text(std::vector<TuningEntry> entries) {
  std::sort(entries.begin(), entries.end());
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  std::string text = "{\n\"format\": " + quoted(std::string(kFormat)) + ",\n\"version\": " + std::to_string(kVersion) +
                     ",\n\"entries\": [\n";
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const TuningEntry& e = entries[i];
    text += "{\"target\": " + quoted(e.target) + ", \"device\": " + quoted(e.device) +
            ", \"versions\": " + quoted(e.versions) + ", \"choice\": " + quoted(e.choice) +
            ", \"chosen\": " + quoted(e.chosen) + ", \"milliseconds\": {";
    for (const auto& [name, time] : e.milliseconds)
      text.append(name == e.milliseconds.begin()->first ? "" : ", ")
          .append(quoted(name) + ": " + nlohmann::json(time).dump());
    text += i + 1 == entries.size() ? "}}\n" : "}},\n";
  }
  return text + "]\n}\n";
}

std::vector<TuningEntry> parse_tuning(std::string_view text, const std::string& file) {
  return TuningReader(text, file).read();
}

std::vector<TuningEntry> read_tuning(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw UserError(file + ": cannot be read: " + std::strerror(errno));
  return parse_tuning(text, file);
}

}  // namespace graven::ir
