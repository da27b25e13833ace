#include "profile.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "file.h"
#include "json_writer.h"

namespace graven::runtime {

namespace {

/// "12.3 k": three digits and a power of a thousand.
std::string quantity(double x) {
  static constexpr const char* kPrefixes[] = {" ", "k", "M", "G", "T", "P", "E"};
  std::size_t prefix = 0;
  while (x >= 999.5 && prefix + 1 < std::size(kPrefixes)) x /= 1000, ++prefix;
  char text[32];
  const int digits = prefix == 0 && x == std::floor(x) ? 0 : x < 9.995 ? 2 : x < 99.95 ? 1 : 0;
  std::snprintf(text, sizeof text, "%.*f %s", digits, x, kPrefixes[prefix]);
  return text;
}

/// "1.234 ms", "12.3 us"
std::string time_text(double seconds) {
  char text[32];
  if (seconds >= 0.9995)
    std::snprintf(text, sizeof text, "%.3f s ", seconds);
  else if (seconds >= 0.9995e-3)
    std::snprintf(text, sizeof text, "%.3f ms", seconds * 1e3);
  else
    std::snprintf(text, sizeof text, "%.2f us", seconds * 1e6);
  return text;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", share * 100);
  return text;
}

std::string left(std::string text, std::size_t width) {
  // Of UTF-8 every byte but those that go on counts.
  const auto columns = static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
  if (columns < width) text.append(width - columns, ' ');
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

}  // namespace

void Profile::add_step(double begin, double seconds, const std::vector<ProfiledCall>& calls, std::int64_t samples) {
  Step step{begin, seconds, samples, 0, 0, {}};
  step.calls.reserve(calls.size());
  for (const ProfiledCall& c : calls) {
    Kind kind{c.phase, c.module, c.operation, c.types, c.flops, c.bytes};
    const auto [known, fresh] = numbers_.try_emplace(kind, kinds_.size());
    if (fresh) kinds_.push_back(std::move(kind));
    step.calls.push_back({known->second, c.begin, c.seconds});
    step.flops += c.flops;
    step.bytes += c.bytes;
  }
  steps_.push_back(std::move(step));
}

std::vector<const Profile::Step*> Profile::largest() const {
  std::vector<const Step*> list;
  for (const Step& s : steps_) {
    if (!list.empty() && s.size() < list.front()->size()) continue;
    if (!list.empty() && s.size() > list.front()->size()) list.clear();
    list.push_back(&s);
  }
  return list;
}

std::vector<const Profile::Step*> Profile::faster_half() const {
  std::vector<const Step*> list = largest();
  std::stable_sort(list.begin(), list.end(), [](const Step* a, const Step* b) { return a->seconds < b->seconds; });
  list.resize((list.size() + 1) / 2);
  return list;
}

double Profile::seconds() const {
  double sum = 0;
  const std::vector<const Step*> list = faster_half();
  for (const Step* s : list) sum += s->seconds;
  return list.empty() ? 0 : sum / static_cast<double>(list.size());
}

double Profile::least_seconds(const Kind& kind) const {
  if (limits_.flops <= 0 || limits_.bytes <= 0) return 0;
  return std::max(kind.flops / limits_.flops, kind.bytes / limits_.bytes);
}

void Profile::add_shares(ProfileRow& row, double least) const {
  const double whole = seconds();
  row.share = whole > 0 ? row.seconds / whole : 0;
  row.share_of_limit = row.seconds > 0 ? least / row.seconds : 0;
}

std::vector<ProfileRow> Profile::rows() const {
  struct Sum {
    ProfileRow row;
    double least = 0;
  };
  const std::vector<const Step*> list = faster_half();
  const double each = list.empty() ? 0 : 1 / static_cast<double>(list.size());
  std::vector<Sum> sums;
  std::map<std::vector<std::string>, std::size_t> places;
  std::vector<std::size_t> place_of(kinds_.size());
  // In the order of the program, of which every step has all: that of the first step.
  for (std::size_t k = 0; k < kinds_.size(); ++k) {
    const Kind& kind = kinds_[k];
    const auto [known, fresh] = places.try_emplace({kind.phase, kind.module, kind.operation}, sums.size());
    if (fresh) sums.push_back({{.phase = kind.phase, .module = kind.module, .operation = kind.operation}});
    place_of[k] = known->second;
  }
  for (const Step* step : list)
    for (const Timed& call : step->calls) {
      const Kind& kind = kinds_[call.kind];
      Sum& sum = sums[place_of[call.kind]];
      sum.row.calls += each;
      sum.row.seconds += call.seconds * each;
      sum.row.flops += kind.flops * each;
      sum.row.bytes += kind.bytes * each;
      sum.least += least_seconds(kind) * each;
    }
  std::vector<ProfileRow> rows;
  for (Sum& sum : sums) {
    add_shares(sum.row, sum.least);
    rows.push_back(std::move(sum.row));
  }
  return rows;
}

std::string Profile::table() const {
  const std::vector<ProfileRow> all = rows();
  const double whole = seconds();
  // A group of rows as one: what they could take at least adds up.
  const auto sum_of = [&](const auto& belongs) {
    ProfileRow sum;
    double least = 0;
    for (const ProfileRow& r : all) {
      if (!belongs(r)) continue;
      sum.calls += r.calls;
      sum.seconds += r.seconds;
      sum.flops += r.flops;
      sum.bytes += r.bytes;
      least += r.share_of_limit * r.seconds;
    }
    add_shares(sum, least);
    return sum;
  };
  std::vector<std::pair<std::string, ProfileRow>> lines;
  const auto once = [](std::vector<std::string>& seen, const std::string& name) {
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) return false;
    seen.push_back(name);
    return true;
  };
  std::vector<std::string> phases;
  for (const ProfileRow& of_phase : all) {
    const std::string& phase = of_phase.phase;
    if (!once(phases, phase)) continue;
    lines.emplace_back(phase, sum_of([&](const ProfileRow& r) { return r.phase == phase; }));
    std::vector<std::string> modules;
    for (const ProfileRow& of_module : all) {
      const std::string& module = of_module.module;
      if (of_module.phase != phase || !once(modules, module)) continue;
      const auto belongs = [&](const ProfileRow& r) { return r.phase == phase && r.module == module; };
      const std::string name = module.empty() ? "(no module)" : module;
      if (std::count_if(all.begin(), all.end(), belongs) == 1) {
        lines.emplace_back("  " + name + "  " + of_module.operation, of_module);
        continue;
      }
      lines.emplace_back("  " + name, sum_of(belongs));
      for (const ProfileRow& r : all)
        if (belongs(r)) lines.emplace_back("    " + r.operation, r);
    }
  }
  const ProfileRow total = sum_of([](const ProfileRow&) { return true; });
  ProfileRow between;
  between.seconds = whole - total.seconds;
  between.share = whole > 0 ? between.seconds / whole : 0;
  lines.emplace_back("between calls", between);
  ProfileRow step = total;
  step.seconds = whole;
  step.share = whole > 0 ? 1 : 0;
  step.share_of_limit = whole > 0 ? total.share_of_limit * total.seconds / whole : 0;
  lines.emplace_back("total", step);

  std::size_t width = 20;
  for (const auto& [name, row] : lines) width = std::max(width, std::min<std::size_t>(name.size(), 72));
  const std::size_t count = largest().size();
  std::string text = name_ + ", " + where_ + ": " + time_text(whole) + " a step, the mean of the faster half of " +
                     (count < steps_.size() ? "the " + std::to_string(count) + " largest of " : "") +
                     std::to_string(steps_.size()) + "\n";
  if (limits_.flops > 0 && limits_.bytes > 0)
    text += "limits, measured now: " + quantity(limits_.flops) + "FLOP/s (f32 multiply-adds), " +
            quantity(limits_.bytes) + "B/s (a copy, read and written)\n";
  for (const std::string& note : notes_) text += note + "\n";
  const auto line = [&](const std::string& name, const std::vector<std::string>& cells) {
    static constexpr std::size_t kWidths[] = {7, 11, 9, 9, 9, 9, 9, 9};
    std::string row = left(name, width);
    for (std::size_t i = 0; i < cells.size(); ++i) row += right(cells[i], kWidths[i]);
    while (!row.empty() && row.back() == ' ') row.pop_back();
    text += row + "\n";
  };
  line("", {"calls", "time", "of step", "bytes", "FLOP", "B/s", "FLOP/s", "of limit"});
  for (const auto& [name, row] : lines) {
    const bool has_calls = row.calls > 0;
    const double by = row.seconds > 0 ? 1 / row.seconds : 0;
    char calls[32];
    std::snprintf(calls, sizeof calls, "%.15g", std::round(row.calls * 100) / 100);
    std::vector<std::string> cells = {has_calls ? calls : "", time_text(row.seconds), percent(row.share)};
    if (has_calls) {
      for (const double x : {row.bytes, row.flops, row.bytes * by, row.flops * by}) cells.push_back(quantity(x));
      if (limits_.flops > 0 && limits_.bytes > 0) cells.push_back(percent(row.share_of_limit));
    }
    line(name, cells);
  }
  return text;
}

void Profile::write_trace(AtomicFile& file) const {
  std::vector<std::string> phases;
  for (const Kind& k : kinds_)
    if (std::find(phases.begin(), phases.end(), k.phase) == phases.end()) phases.push_back(k.phase);
  const auto row_of = [&](const std::string& phase) {
    return std::find(phases.begin(), phases.end(), phase) - phases.begin() + 2;
  };
  JsonWriter json;
  const auto flush = [&] {
    file.write(json.text());
    json.clear();
  };
  bool is_first = true;
  const auto event = [&]() -> JsonWriter& {
    if (!is_first) file.write(",");
    is_first = false;
    file.write("\n");
    return json.begin_object();
  };
  const auto named = [&](const char* what, std::int64_t row, const std::string& name) {
    event().key("ph").value("M").key("name").value(what).key("pid").value(1).key("tid").value(row);
    json.key("args").begin_object().key("name").value(name).end_object().end_object();
    flush();
  };
  file.write("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
  named("process_name", 1, name_ + ", " + where_);
  named("thread_name", 1, "steps");
  for (const std::string& phase : phases) named("thread_name", row_of(phase), phase);
  const double origin = steps_.empty() ? 0 : steps_.front().begin;
  const auto span = [&](const std::string& name, const std::string& category, std::int64_t row, double begin,
                        double seconds) -> JsonWriter& {
    event().key("ph").value("X").key("name").value(name).key("cat").value(category);
    json.key("pid").value(1).key("tid").value(row).key("ts").value((begin - origin) * 1e6);
    return json.key("dur").value(seconds * 1e6).key("args").begin_object();
  };
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    span("step " + std::to_string(s + 1), "step", 1, step.begin, step.seconds).end_object().end_object();
    flush();
    for (std::size_t c = 0; c < step.calls.size(); ++c) {
      const Timed& call = step.calls[c];
      const Kind& kind = kinds_[call.kind];
      // Clocks are read one after the other, and a device's are not the host's: spans lie within one another all the
      // same, or a reader of traces drops them.
      double end = std::min(call.begin + call.seconds, step.begin + step.seconds);
      if (c + 1 < step.calls.size()) end = std::min(end, step.calls[c + 1].begin);
      span((kind.module.empty() ? "" : kind.module + ": ") + kind.operation, kind.phase, row_of(kind.phase), call.begin,
           std::max(end - call.begin, 0.0));
      json.key("module").value(kind.module).key("operator").value(kind.operation).key("shapes").value(kind.types);
      json.key("bytes").value(kind.bytes).key("flops").value(kind.flops).end_object().end_object();
      flush();
    }
  }
  file.write("\n]}\n");
}

}  // namespace graven::runtime
