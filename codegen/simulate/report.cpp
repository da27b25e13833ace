#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "codegen/simulate/simulate.h"

namespace graven::codegen {

namespace {

/// "12.3 GB": three digits, powers of 1000.
std::string quantity(double value, std::string_view unit) {
  constexpr std::string_view kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  std::size_t p = 0;
  while (value >= 999.5 && p + 1 < std::size(kPrefixes)) value /= 1000, ++p;
  return fmt::format("{:.{}f} {}{}", value, p == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2, kPrefixes[p], unit);
}

std::string duration(double seconds) {
  if (seconds >= 0.9995) return fmt::format("{:.{}f} s", seconds, seconds >= 99.95 ? 0 : seconds >= 9.995 ? 1 : 2);
  const bool is_short = seconds < 0.9995e-3;
  const double value = seconds * (is_short ? 1e6 : 1e3);
  return fmt::format("{:.{}f} {}", value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2, is_short ? "us" : "ms");
}

std::string rate(double value) { return fmt::format("{:.{}f}", value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2); }

bool fits(const Prediction& p, const Machine& machine) {
  return machine.memory <= 0 || p.memory.total() <= machine.memory;
}

/// What becomes of a plan that does not fit.
std::string remark(const Prediction& p, const Machine& machine) {
  if (fits(p, machine)) return {};
  if (p.least_memory > machine.memory) return fmt::format("cannot fit: at least {}", quantity(p.least_memory, "B"));
  return fmt::format("does not fit; at least {}, if activations are recomputed", quantity(p.least_memory, "B"));
}

std::vector<std::size_t> fastest_first(const std::vector<Prediction>& predictions) {
  std::vector<std::size_t> order(predictions.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return predictions[a].seconds < predictions[b].seconds; });
  return order;
}

std::string proposal(const std::vector<Prediction>& predictions, const Machine& machine) {
  const std::int32_t best = best_of(predictions, machine);
  if (best < 0) {
    const auto least =
        std::min_element(predictions.begin(), predictions.end(),
                         [](const Prediction& a, const Prediction& b) { return a.memory.total() < b.memory.total(); });
    return fmt::format("no plan fits into the {} of a rank: {} takes the least, {}, and {} at least",
                       quantity(machine.memory, "B"), least->plan.to_string(), quantity(least->memory.total(), "B"),
                       quantity(least->least_memory, "B"));
  }
  const Prediction& p = predictions[at(best)];
  std::string out = fmt::format("proposed: {}, ", p.plan.to_string());
  const auto fitting = std::count_if(predictions.begin(), predictions.end(),
                                     [&](const Prediction& other) { return fits(other, machine); });
  if (predictions.size() == 1)
    out += "the only plan";
  else if (fitting == 1)
    out += "the only plan that fits";
  else
    out += fmt::format("the fastest of {} plans{}", fitting, machine.memory > 0 ? " that fit" : "");
  if (machine.memory > 0)
    out += fmt::format(": {} of the {} of a rank", quantity(p.memory.total(), "B"), quantity(machine.memory, "B"));
  const auto plain = std::find_if(predictions.begin(), predictions.end(), [&](const Prediction& other) {
    return other.plan.zero == 0 && other.plan.data == machine.ranks && machine.ranks > 1;
  });
  if (plain != predictions.end() && &*plain != &p)
    out += fmt::format(", and {:.2f} times as fast as {}{}", plain->seconds / p.seconds, plain->plan.to_string(),
                       fits(*plain, machine) ? "" : ", which does not fit");
  return out;
}

}  // namespace

std::string simulation_table(const std::vector<Prediction>& predictions, const Simulator& simulator) {
  const Machine& machine = simulator.machine();
  const Workload& w = simulator.workload();
  std::string out = fmt::format("{}: {} ranks, steps of {} samples ({} batches of {}); one rank alone takes {}\n",
                                w.graph.name, machine.ranks, simulator.batches() * w.batch, simulator.batches(),
                                w.batch, duration(simulator.seconds_alone()));
  std::vector<std::vector<std::string>> rows{
      {"plan", "step", "samples/s", "efficiency", "memory a rank", "sent a rank", "hidden", ""}};
  for (const std::size_t i : fastest_first(predictions)) {
    const Prediction& p = predictions[i];
    rows.push_back({p.plan.to_string(), duration(p.seconds), rate(p.samples),
                    fmt::format("{:.1f}%", p.efficiency * 100), quantity(p.memory.total(), "B"), quantity(p.sent, "B"),
                    p.sending > 0 ? fmt::format("{:.0f}%", p.hidden * 100) : "-", remark(p, machine)});
  }
  std::vector<std::size_t> width(rows[0].size(), 0);
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  for (const auto& row : rows) {
    std::string line = fmt::format("{:<{}}", row[0], width[0]);
    for (std::size_t c = 1; c + 1 < row.size(); ++c) line += fmt::format("  {:>{}}", row[c], width[c]);
    line += "  " + row.back();
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out + proposal(predictions, machine) + "\n";
}

std::string simulation_json(const std::vector<Prediction>& predictions, const Simulator& simulator) {
  using nlohmann::ordered_json;
  const Machine& m = simulator.machine();
  const Workload& w = simulator.workload();
  ordered_json plans = ordered_json::array();
  for (const std::size_t i : fastest_first(predictions)) {
    const Prediction& p = predictions[i];
    ordered_json stages = ordered_json::array();
    for (std::size_t k = 0; k < p.stages.size() && p.stages.size() > 1; ++k)
      stages.push_back({{"begins", p.stages[k]}, {"module", p.stage_names[k]}});
    plans.push_back({{"plan", p.plan.to_string()},
                     {"zero", p.plan.zero},
                     {"data", p.plan.data},
                     {"pipeline", p.plan.stages},
                     {"tensor", p.plan.tensor},
                     {"batches", p.batches},
                     {"seconds", p.seconds},
                     {"samples_per_second", p.samples},
                     {"efficiency", p.efficiency},
                     {"memory",
                      {{"total", p.memory.total()},
                       {"parameters", p.memory.parameters},
                       {"gradients", p.memory.gradients},
                       {"state", p.memory.state},
                       {"activations", p.memory.activations},
                       {"messages", p.memory.messages},
                       {"least", p.least_memory}}},
                     {"fits", fits(p, m)},
                     {"sent_bytes", p.sent},
                     {"gradient_bytes", p.gradient_bytes},
                     {"sending_seconds", p.sending},
                     {"hidden", p.hidden},
                     {"bubble_seconds", p.bubbles},
                     {"stages", stages}});
  }
  const std::int32_t best = best_of(predictions, m);
  const ordered_json all = {
      {"graph", w.graph.name},
      {"machine",
       {{"ranks", m.ranks},
        {"ranks_per_node", m.ranks_a_node},
        {"flops", m.flops},
        {"flops_efficiency", m.flops_efficiency},
        {"memory_bandwidth", m.memory_bandwidth},
        {"memory_efficiency", m.memory_efficiency},
        {"memory", m.memory},
        {"bandwidth", m.network.bandwidth},
        {"latency", m.network.latency},
        {"node_bandwidth", m.node.bandwidth},
        {"node_latency", m.node.latency},
        {"call_latency", m.call_latency},
        {"compute_scale", m.compute_scale},
        {"overlap", m.overlap}}},
      {"batch", w.batch},
      {"batches", simulator.batches()},
      {"samples", simulator.batches() * w.batch},
      {"seconds_alone", simulator.seconds_alone()},
      {"parameters", static_cast<std::int64_t>(w.parameters.size())},
      {"trained_bytes", w.sum(&WorkParameter::gradient_bytes)},
      {"plans", plans},
      {"proposed", best < 0 ? ordered_json() : ordered_json(predictions[at(best)].plan.to_string())}};
  return all.dump(2) + "\n";
}

std::string simulation_trace(const Prediction& prediction) {
  using nlohmann::ordered_json;
  ordered_json events = ordered_json::array();
  for (std::int32_t k = 0; k < static_cast<std::int32_t>(prediction.plan.stages); ++k) {
    const auto name = [&](const char* kind, int thread, const std::string& text) {
      events.push_back({{"ph", "M"}, {"name", kind}, {"pid", k}, {"tid", thread}, {"args", {{"name", text}}}});
    };
    name("process_name", 0, prediction.plan.stages > 1 ? fmt::format("a rank of stage {}", k) : std::string("a rank"));
    name("thread_name", 0, "computation");
    name("thread_name", 1, "network");
  }
  for (const Happening& h : prediction.happenings)
    events.push_back({{"ph", "X"},
                      {"name", h.name},
                      {"pid", h.stage},
                      {"tid", h.is_message ? 1 : 0},
                      {"ts", h.begin * 1e6},
                      {"dur", (h.end - h.begin) * 1e6}});
  return ordered_json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump() + "\n";
}

}  // namespace graven::codegen
