#include "codegen/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "ir/diagnostic.h"
#include "ir/op.h"
#include "ir/origin.h"

namespace graven::codegen {

namespace {

// As runtime_min/ranks.cpp has them.
/// Of runtime_min/ranks.cpp: bytes of a bucket, and of a rank's row in it; buckets at a time.
constexpr double kBucketBytes = 1 << 20, kRowBytes = 16 << 10, kMostBuckets = 16;
constexpr std::string_view kDataKinds[] = {"data", "zero1", "zero2", "zero3"};
constexpr std::int64_t kMostStages = 64, kMostTensor = 8;

}  // namespace

// ---- plans ----------------------------------------------------------------------------------------------------------

std::string SharingPlan::to_string() const {
  std::string out = fmt::format("{}:{}", kDataKinds[zero], data);
  if (data <= 1 && (stages > 1 || tensor > 1)) out.clear();
  if (stages > 1) out += fmt::format("{}pipeline:{}", out.empty() ? "" : ",", stages);
  if (tensor > 1) out += fmt::format("{}tensor:{}", out.empty() ? "" : ",", tensor);
  return out;
}

std::optional<SharingPlan> parse_plan(std::string_view text) {
  SharingPlan plan;
  std::array<bool, 3> given{};
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    const std::string_view name = part.substr(0, part.find(':'));
    std::int64_t count = 0;
    const bool has_count = name.size() < part.size();
    if (has_count) {
      const char* const end = part.data() + part.size();
      const auto [stop, error] = std::from_chars(part.data() + name.size() + 1, end, count);
      if (error != std::errc() || stop != end || count < 1 || count > (std::int64_t{1} << 30)) return std::nullopt;
    }
    const auto* const kind = std::find(std::begin(kDataKinds), std::end(kDataKinds), name);
    const std::size_t which = kind != std::end(kDataKinds) ? 0 : name == "pipeline" ? 1 : name == "tensor" ? 2 : 3;
    if (which == 3 || std::exchange(given[which], true) || (which > 0 && !has_count)) return std::nullopt;
    if (which == 0) plan.zero = static_cast<int>(kind - kDataKinds), plan.data = count;
    if (which == 1) plan.stages = count;
    if (which == 2) plan.tensor = count;
    if (part.size() == text.size()) return plan;
    text.remove_prefix(part.size() + 1);
  }
}

// ---- a part of the network, on one rank -----------------------------------------------------------------------------

struct Simulator::Item {
  const WorkStep* step = nullptr;
  double seconds = 0;
  double sum_seconds = 0;  ///< where gradients are sent: what a collective does before it begins
  Transfer tensor = {};    ///< behind it
  const char* sent = "tensor parallel sum";
};

struct Simulator::Part {
  struct Message {
    std::size_t item = 0;  ///< it goes out behind that; or it is there before
    double bytes = 0;
  };
  std::vector<Item> forward = {}, backward = {};
  std::vector<Message> gradients, forward_gathers, backward_gathers;
  double update_seconds = 0;
  double trained_bytes = 0, gradient_bytes = 0;
  std::vector<std::int32_t> parameters;
  MemoryUse memory;
  double least_memory = 0;

  static double seconds_of(const std::vector<Item>& items, bool with_network) {
    double total = 0;
    for (const Item& i : items) total += i.seconds + (with_network ? i.tensor.seconds : 0);
    return total;
  }
};

Simulator::Part Simulator::part(const SharingPlan& plan, std::int32_t begin, std::int32_t end, std::int64_t in_flight) {
  const Shards& s = shards(plan.tensor);
  const bool is_whole = begin == 0 && at(end) == work_.forward.size();
  const auto is_own = [&](std::int32_t position) { return position >= begin && position < end; };
  const Link& tensor_link = machine_.link(plan.tensor);
  const ir::Rates rates = machine_.rates();
  const double ranks = static_cast<double>(plan.data);
  Part p;
  // ---- work
  std::vector<std::size_t> item_of(work_.backward.size(), 0);
  const auto item = [&](const WorkStep& step) {
    Item i{&step};
    if (step.is_call) {
      ir::Cost cost = step.cost;
      cost.flops *= s.work[at(step.position)];
      cost.bytes *= s.work[at(step.position)];
      const bool is_collective = work_.graph.nodes[at(step.node)].op->collective;
      if (!is_collective)
        i.seconds = ir::seconds_of(cost, rates);
      else if (plan.data > 1)
        i.sum_seconds = ir::seconds_of(cost, rates);
    }
    return i;
  };
  const auto add = [](Transfer& to, const Transfer& more) {
    to.seconds += more.seconds;
    to.bytes += more.bytes;
  };
  // A batch norm of all ranks' batches: each hands a count, and two numbers for each channel, to all.
  const auto add_statistics = [&](Item& i) {
    const ir::Node& node = work_.graph.nodes[at(i.step->node)];
    if (plan.data == 1 || !i.step->is_call || !node.attributes.flag_or("over_ranks", false) ||
        !node.is(ir::kBatchNormTraining, ir::kBatchNormBackward))
      return;
    const auto channels = static_cast<double>(work_.graph.type(node.outputs[1]).shape.numel().maximum());
    add(i.tensor,
        all_gather((1 + 2 * channels) * sizeof(double) * ranks, plan.data, machine_.link(plan.data * plan.tensor)));
    i.sent = "statistics of all ranks";
  };
  for (const WorkStep& step : work_.forward) {
    if (!is_own(step.position)) continue;
    p.forward.push_back(item(step));
    Transfer& sent = p.forward.back().tensor;
    sent = all_reduce(s.forward_sum[at(step.position)], plan.tensor, tensor_link);
    add(sent, all_gather(s.forward_gather[at(step.position)], plan.tensor, tensor_link));
    add_statistics(p.forward.back());
  }
  std::vector<std::ptrdiff_t> last(work_.forward.size(), -1);  // by position, in p.backward
  for (std::size_t i = 0; i < work_.backward.size(); ++i) {
    if (is_own(work_.backward[i].position)) {
      last[at(work_.backward[i].position)] = static_cast<std::ptrdiff_t>(p.backward.size());
      p.backward.push_back(item(work_.backward[i]));
    }
    item_of[i] = p.backward.empty() ? 0 : p.backward.size() - 1;
  }
  for (std::int32_t position = begin; position < end; ++position)
    if (const std::ptrdiff_t i = last[at(position)]; i >= 0 && s.backward_sum[at(position)] > 0)
      p.backward[static_cast<std::size_t>(i)].tensor =
          all_reduce(s.backward_sum[at(position)], plan.tensor, tensor_link);
  for (Item& i : p.backward) add_statistics(i);
  // ---- parameters
  std::vector<char> is_here(work_.parameters.size(), 0);
  double all_trained = 0;
  for (std::size_t i = 0; i < work_.parameters.size(); ++i) {
    const WorkParameter& w = work_.parameters[i];
    all_trained += w.gradient_bytes;
    const bool here = w.readers.empty() ? begin == 0 : std::any_of(w.readers.begin(), w.readers.end(), is_own);
    if (!here) continue;
    is_here[i] = 1;
    p.parameters.push_back(static_cast<std::int32_t>(i));
    const double share = s.parameter[i];
    p.memory.parameters += w.bytes * share / (plan.zero >= 3 && w.gradient_bytes > 0 ? ranks : 1);
    p.memory.gradients += w.gradient_bytes * share / (plan.zero >= 2 ? ranks : 1);
    p.memory.state += w.state_bytes * share / (plan.zero >= 1 ? ranks : 1);
    p.trained_bytes += w.gradient_bytes * share;
  }
  for (const WorkStep& step : work_.update) p.update_seconds += step.is_call ? ir::seconds_of(step.cost, rates) : 0;
  p.update_seconds *= all_trained > 0 ? p.trained_bytes / all_trained / (plan.zero >= 1 ? ranks : 1) : 0;
  // ---- gradients, in messages
  double bucket = 0;
  std::size_t buckets = 0;
  double largest = 0;
  const double full = std::max(kBucketBytes, kRowBytes * static_cast<double>(plan.data));
  const auto close = [&](std::size_t behind) {
    if (bucket > 0) p.gradients.push_back({behind, bucket}), ++buckets;
    bucket = 0;
  };
  const auto take = [&](double bytes, std::size_t behind) {
    p.gradient_bytes += bytes;
    largest = std::max(largest, bytes);
    for (; bucket + bytes >= full; close(behind)) {
      bytes -= full - bucket;
      bucket = full;
    }
    bucket += bytes;
  };
  if (plan.data > 1) {
    const std::size_t end_of_backward = p.backward.empty() ? 0 : p.backward.size() - 1;
    for (const WorkGradient& g : work_.gradients)
      if (is_here[at(g.parameter)] && is_own(work_.backward[at(g.step)].position))
        take(g.bytes * s.parameter[at(g.parameter)], item_of[at(g.step)]);
    for (const WorkGradient& g : work_.gradients)  // of what another stage has as well
      if (is_here[at(g.parameter)] && !is_own(work_.backward[at(g.step)].position))
        take(g.bytes * s.parameter[at(g.parameter)], end_of_backward);
    close(end_of_backward);
    // What is sent, and what is received.
    p.memory.messages =
        2 * std::min(static_cast<double>(buckets), kMostBuckets) * full + (plan.zero >= 2 ? largest : 0);
  }
  // ---- parameters of others, gathered in the order in which they are needed
  if (plan.zero >= 3 && plan.data > 1) {
    double most = 0;
    const auto gathers = [&](const std::vector<Item>& items) {
      std::vector<Part::Message> found;
      std::vector<char> is_there(work_.parameters.size(), 0);
      for (std::size_t i = 0; i < items.size(); ++i)
        for (const std::int32_t q : items[i].step->parameters) {
          if (std::exchange(is_there[at(q)], 1) || work_.parameters[at(q)].gradient_bytes <= 0) continue;
          const double bytes = work_.parameters[at(q)].bytes * s.parameter[at(q)];
          if (found.empty() || found.back().item != i)
            found.push_back({i, bytes});
          else
            found.back().bytes += bytes;
        }
      for (const Part::Message& message : found) most = std::max(most, message.bytes);
      return found;
    };
    p.forward_gathers = gathers(p.forward);
    p.backward_gathers = gathers(p.backward);
    p.memory.messages += most;
  }
  // ---- activations
  std::vector<double> size(work_.buffers.size(), 0);
  double kept = 0, now = 0, peak = 0, least = 0;
  std::vector<double> change(work_.plan.steps.size() + 1, 0);
  for (std::size_t b = 0; b < size.size(); ++b) {
    const Workload::Buffer& buffer = work_.buffers[b];
    if (!is_own(buffer.position)) continue;
    const std::vector<double>& share = buffer.is_scratch ? s.work : buffer.is_backward ? s.input : s.output;
    size[b] = buffer.bytes * share[at(buffer.position)];
    change[at(buffer.first)] += size[b];
    change[at(buffer.last) + 1] -= size[b];
    if (buffer.is_kept) kept += size[b];
  }
  for (std::size_t step = 0; step < work_.plan.steps.size(); ++step) {
    now += change[step];
    peak = std::max(peak, now);
    double touched = 0;
    for (const std::int32_t b : work_.touched[step]) touched += size[at(b)];
    least = std::max(least, touched);
  }
  if (work_.plan.lower_bound() > 0)
    peak *= static_cast<double>(work_.plan.arena_bytes()) / static_cast<double>(work_.plan.lower_bound());
  const double received = is_whole ? 0 : crossed(work_, s).forward[at(begin)];
  p.memory.activations = peak + received + static_cast<double>(in_flight - 1) * (kept + received) + work_.input_bytes;
  p.least_memory = p.memory.total() - p.memory.activations + least + received + work_.input_bytes;
  return p;
}

// ---- time -----------------------------------------------------------------------------------------------------------

struct Simulator::Timeline {
  double seconds = 0, bubbles = 0;
  double sending = 0, sent = 0;  ///< of the rank with most
};

Simulator::Timeline Simulator::run(const SharingPlan& plan, const std::vector<Part>& parts, const Crossed& crossed,
                                   bool with_network, std::vector<Happening>* record) {
  const std::size_t stages = parts.size();
  const std::int64_t batches = batches_ / plan.data;
  const Link& data_link = machine_.link(plan.data * plan.tensor);
  const Link& stage_link = machine_.link(2 * plan.data * plan.tensor);
  const bool shards_gradients = plan.zero >= 2;
  std::vector<double> sending(stages, 0), sent(stages, 0);
  const auto count = [&](std::size_t stage, const Transfer& t, double times = 1) {
    sending[stage] += t.seconds * times;
    sent[stage] += t.bytes * times;
    return with_network ? t.seconds : 0;  // of one
  };
  const auto note = [&](std::size_t stage, bool is_message, double begin, double end, std::string name) {
    if (record != nullptr && end > begin)
      record->push_back({static_cast<std::int32_t>(stage), is_message, begin, end, std::move(name)});
  };
  const auto name_of = [&](const Item& item) {
    const ir::Node& node = work_.graph.nodes[at(item.step->node)];
    return fmt::format("{} {}", node.op->name,
                       work_.graph.value(node.outputs.empty() ? node.inputs[0] : node.outputs[0]).name);
  };
  double network = 0;  // when it is free
  // One phase of one batch, from `t` on; when it ends. Messages may still be on their way then.
  const auto phase = [&](std::size_t stage, const std::vector<Item>& items, const std::vector<Part::Message>& gathers,
                         const std::vector<Part::Message>* gradients, double t) {
    double there = 0;  // when the parameters that were asked for last are
    const auto ask = [&](std::size_t g, double now) {
      const double begin = std::max(network, now);
      network = there = begin + count(stage, exchange(gathers[g].bytes, plan.data, data_link));
      note(stage, true, begin, network, fmt::format("gather {:.0f} bytes", gathers[g].bytes));
    };
    double held = 0;
    for (std::size_t i = 0, g = 0, m = 0; i < items.size(); ++i) {
      if (g < gathers.size() && gathers[g].item == i) {
        ask(g, t);
        t = std::max(t, there);
        ++g;
      }
      const double own = items[i].seconds + (gradients != nullptr ? items[i].sum_seconds : 0);
      note(stage, false, t, t + own, record == nullptr ? "" : name_of(items[i]));
      t += own;
      if (items[i].tensor.bytes > 0) {
        const double seconds = count(stage, items[i].tensor);
        note(stage, true, t, t + seconds, items[i].sent);
        t += seconds;
      }
      for (; gradients != nullptr && m < gradients->size() && (*gradients)[m].item == i; ++m) {
        const double bytes = (*gradients)[m].bytes;
        const Transfer sum = plan.zero >= 1 ? exchange(bytes, plan.data, data_link) : mean(bytes, plan.data, data_link);
        const double seconds = count(stage, sum);
        if (!machine_.overlap) {
          held += seconds;
          continue;
        }
        const double begin = std::max(network, t);
        network = begin + seconds;
        note(stage, true, begin, network, fmt::format("gradients, {:.0f} bytes", bytes));
      }
    }
    if (held > 0) {
      note(stage, true, std::max(network, t), std::max(network, t) + held, "gradients");
      network = std::max(network, t) + held;
    }
    return t;
  };
  std::vector<double> done(stages, 0);  // backward, and its messages
  Timeline found;
  if (stages == 1) {
    const Part& p = parts[0];
    double t = 0;
    std::int64_t left = batches;
    if (!shards_gradients && left > 1) {
      // All but the last one are computation alone.
      const double one = Part::seconds_of(p.forward, with_network) + Part::seconds_of(p.backward, with_network);
      for (const auto* items : {&p.forward, &p.backward})
        for (const Item& i : *items) count(0, i.tensor, static_cast<double>(left - 1));
      note(0, false, 0, static_cast<double>(left - 1) * one, fmt::format("{} batches", left - 1));
      t = static_cast<double>(left - 1) * one;
      left = 1;
    }
    // Of many the first few show what the others take.
    constexpr std::int64_t kShown = 6;
    const std::int64_t shown = std::min(left, kShown);
    double before = 0;
    for (std::int64_t m = 0; m < shown; ++m) {
      before = std::max(t, network);
      const double sending_before = sending[0], sent_before = sent[0];
      t = phase(0, p.forward, p.forward_gathers, nullptr, t);
      t = phase(0, p.backward, p.backward_gathers, &p.gradients, t);
      if (m + 1 == shown && left > shown) {
        const double more = static_cast<double>(left - shown), period = std::max(t, network) - before;
        sending[0] += more * (sending[0] - sending_before);
        sent[0] += more * (sent[0] - sent_before);
        note(0, false, std::max(t, network), std::max(t, network) + more * period, fmt::format("{:.0f} batches", more));
        t += more * period;
        network += more * period;
      }
    }
    done[0] = std::max(t, network);
  } else {
    StageTimes times;
    for (std::size_t k = 0; k < stages; ++k) {
      times.forward.push_back(Part::seconds_of(parts[k].forward, with_network));
      times.backward.push_back(Part::seconds_of(parts[k].backward, with_network));
      for (const auto* items : {&parts[k].forward, &parts[k].backward})
        for (const Item& i : *items) count(k, i.tensor, static_cast<double>(batches));
      if (k + 1 == stages) break;
      const std::size_t cut = at(parts[k + 1].forward.front().step->position);
      const Transfer down = send(crossed.forward[cut], stage_link), up = send(crossed.backward[cut], stage_link);
      times.down.push_back(count(k, down, static_cast<double>(batches)));
      times.up.push_back(count(k + 1, up, static_cast<double>(batches)));
    }
    const PipelineRun pipeline = one_forward_one_backward(times, batches, record != nullptr);
    for (const Slot& slot : pipeline.slots)
      note(at(slot.stage), false, slot.begin, slot.end,
           fmt::format("{} {}", slot.is_forward ? "forward" : "backward", slot.batch));
    std::size_t slowest = 0;
    for (std::size_t k = 0; k < stages; ++k) {
      done[k] = pipeline.ends[k];
      if (times.forward[k] + times.backward[k] > times.forward[slowest] + times.backward[slowest]) slowest = k;
      if (parts[k].gradients.empty()) continue;
      // The last batch's backward once more, with what it sends.
      std::vector<Happening>* const kept = std::exchange(record, nullptr);
      std::vector<Item> items = parts[k].backward;
      for (Item& i : items) {
        if (with_network) i.seconds += i.tensor.seconds;
        i.tensor = {};
      }
      network = pipeline.last_backward[k];
      done[k] = std::max(phase(k, items, {}, &parts[k].gradients, network), network);
      record = kept;
      note(k, true, pipeline.last_backward[k], done[k], "gradients");
    }
    found.bubbles = *std::max_element(pipeline.ends.begin(), pipeline.ends.end()) -
                    static_cast<double>(batches) * (times.forward[slowest] + times.backward[slowest]);
    // ---- what several stages have: a table that is the last layer's weight, too
    for (std::size_t i = 0; i < work_.parameters.size(); ++i) {
      std::vector<std::size_t> owners;
      for (std::size_t k = 0; k < stages; ++k)
        if (std::binary_search(parts[k].parameters.begin(), parts[k].parameters.end(), static_cast<std::int32_t>(i)))
          owners.push_back(k);
      const double bytes = work_.parameters[i].gradient_bytes * shards(plan.tensor).parameter[i];
      if (owners.size() < 2 || bytes <= 0) continue;
      double begin = 0, end = 0;
      for (const std::size_t k : owners) begin = std::max(begin, done[k]);
      for (const std::size_t k : owners)
        end = begin + count(k, all_reduce(bytes, static_cast<std::int64_t>(owners.size()), stage_link));
      for (const std::size_t k : owners) {
        done[k] = end;
        note(k, true, begin, end, "gradient of several stages");
      }
    }
  }
  // ---- update
  for (std::size_t k = 0; k < stages; ++k) {
    double t = done[k] + parts[k].update_seconds;
    note(k, false, done[k], t, "update");
    if (plan.data > 1 && (plan.zero == 1 || plan.zero == 2)) {
      const double seconds = count(k, exchange(parts[k].trained_bytes, plan.data, data_link));
      note(k, true, t, t + seconds, "new parameters");
      t += seconds;
    }
    found.seconds = std::max(found.seconds, t);
    found.sending = std::max(found.sending, sending[k]);
    found.sent = std::max(found.sent, sent[k]);
  }
  return found;
}

// ---- predictions ----------------------------------------------------------------------------------------------------

Simulator::Simulator(const ir::Graph& graph, const Plan& plan, Machine machine, std::int64_t batches)
    : machine_(machine), work_(graph, plan), batches_(batches > 0 ? batches : machine.ranks) {
  const SharingPlan one{.data = 1};
  std::vector<Part> parts;
  parts.push_back(part(one, 0, static_cast<std::int32_t>(work_.forward.size()), 1));
  alone_ = run(one, parts, crossed(work_, shards(1)), false, nullptr).seconds;
}

const Shards& Simulator::shards(std::int64_t tensor) {
  const auto found = shards_.find(tensor);
  if (found != shards_.end()) return found->second;
  return shards_.emplace(tensor, shard(work_, tensor, machine_, machine_.link(tensor))).first->second;
}

const std::vector<std::vector<std::int32_t>>& Simulator::cuts(std::int64_t tensor) {
  const auto found = cuts_.find(tensor);
  if (found != cuts_.end()) return found->second;
  const Shards& s = shards(tensor);
  std::vector<double> seconds(work_.forward.size(), 0);
  const Part all = part({.data = 1, .tensor = tensor}, 0, static_cast<std::int32_t>(work_.forward.size()), 1);
  for (const auto* items : {&all.forward, &all.backward})
    for (const Item& i : *items) seconds[at(i.step->position)] += i.seconds + i.tensor.seconds;
  return cuts_.emplace(tensor, cut_into_stages(seconds, crossed(work_, s), kMostStages, machine_.link(2 * tensor)))
      .first->second;
}

Prediction Simulator::predict(SharingPlan plan, bool record) {
  const std::int64_t group = plan.stages * plan.tensor;
  const auto refuse = [&](const std::string& text) {
    if (plan.data == 0) plan.data = 1;
    return UserError("the plan " + plan.to_string() + ": " + text);
  };
  if (plan.data == 0 && machine_.ranks % group == 0) plan.data = machine_.ranks / group;
  if (plan.data == 0)
    throw refuse(fmt::format("expected a number of ranks that {} divides, found {}", group, machine_.ranks));
  if (plan.ranks() != machine_.ranks)
    throw refuse(fmt::format("expected one for {} ranks, found one for {}", machine_.ranks, plan.ranks()));
  if (batches_ % plan.data != 0)
    throw refuse(fmt::format("expected a number of batches that {} divides, found {}", plan.data, batches_));
  if (plan.zero >= 2 && plan.stages > 1)
    throw refuse("expected data or zero1 around a pipeline, whose gradients stay until its last batch, found zero" +
                 std::to_string(plan.zero));
  if (plan.tensor > 1 && shards(plan.tensor).cut == 0)
    throw refuse(
        fmt::format("expected a graph with products that {} ranks can share, found none that gain by it", plan.tensor));
  if (plan.stages > static_cast<std::int64_t>(cuts(plan.tensor).size()))
    throw refuse(
        fmt::format("expected at most {} stages, found {}: the graph has no more places to be cut at (a "
                    "pipeline has {} at most)",
                    cuts(plan.tensor).size(), plan.stages, kMostStages));
  const std::vector<std::int32_t>& begins = cuts(plan.tensor)[at(plan.stages) - 1];
  Prediction p{.plan = plan, .batches = batches_ / plan.data};
  std::vector<Part> parts;
  for (std::int64_t k = 0; k < plan.stages; ++k)
    parts.push_back(part(plan, begins[at(k)], begins[at(k) + 1], std::min(p.batches, plan.stages - k)));
  const Crossed cut = crossed(work_, shards(plan.tensor));
  const Timeline timeline = run(plan, parts, cut, true, record ? &p.happenings : nullptr);
  const Timeline without = run(plan, parts, cut, false, nullptr);
  p.seconds = timeline.seconds;
  p.samples = static_cast<double>(batches_ * work_.batch) / p.seconds;
  p.efficiency = alone_ / (static_cast<double>(machine_.ranks) * p.seconds);
  p.sent = timeline.sent;
  p.sending = timeline.sending;
  p.bubbles = timeline.bubbles;
  p.hidden = p.sending > 0 ? std::clamp(1 - (timeline.seconds - without.seconds) / p.sending, 0.0, 1.0) : 0;
  for (const Part& own : parts) {
    if (own.memory.total() > p.memory.total()) p.memory = own.memory;
    p.least_memory = std::max(p.least_memory, own.least_memory);
    p.gradient_bytes = std::max(p.gradient_bytes, own.gradient_bytes);
  }
  p.stages.assign(begins.begin(), begins.end() - 1);
  for (const std::int32_t begin : p.stages)
    p.stage_names.push_back(ir::owner_of(work_.graph.nodes[at(work_.forward[at(begin)].node)].origins));
  return p;
}

std::vector<SharingPlan> Simulator::possible_plans() {
  const std::int64_t n = machine_.ranks, most_tensor = machine_.ranks_a_node > 1 ? machine_.ranks_a_node : kMostTensor;
  std::vector<SharingPlan> found;
  for (std::int64_t tensor = 1; tensor <= std::min(n, most_tensor); ++tensor) {
    if (n % tensor != 0 || (tensor > 1 && shards(tensor).cut == 0)) continue;
    const std::int64_t most = std::min(n / tensor, static_cast<std::int64_t>(cuts(tensor).size()));
    for (std::int64_t stages = 1; stages <= most; ++stages) {
      const std::int64_t data = n / (tensor * stages);
      if (n % (tensor * stages) != 0 || batches_ % data != 0) continue;
      for (int zero = 0; zero <= (data == 1 ? 0 : stages > 1 ? 1 : 3); ++zero)
        found.push_back({.zero = zero, .data = data, .stages = stages, .tensor = tensor});
    }
  }
  return found;
}

std::int32_t best_of(const std::vector<Prediction>& predictions, const Machine& machine) {
  std::int32_t best = -1;
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    if (machine.memory > 0 && predictions[i].memory.total() > machine.memory) continue;
    if (best < 0 || predictions[i].seconds < predictions[at(best)].seconds) best = static_cast<std::int32_t>(i);
  }
  return best;
}

}  // namespace graven::codegen
