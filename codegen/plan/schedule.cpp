#include "codegen/plan/schedule.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <queue>
#include <set>

#include "ir/analysis.h"
#include "ir/diagnostic.h"
#include "ir/stages.h"

namespace graven::codegen {

namespace {

using ir::NodeId;
using ir::ValueId;

/// What each node takes and frees, by class of aliases.
class Traffic {
 public:
  Traffic(const ir::Graph& graph, const Storage& storage, const std::vector<ir::KernelCall>& calls)
      : reads_(graph.nodes.size()),
        writes_(graph.nodes.size()),
        readers_(graph.values.size()),
        graph_(graph),
        storage_(storage),
        calls_(calls) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      auto& reads = reads_[n];
      for (const ValueId v : graph.nodes[n].inputs)
        if (storage.in_arena(v)) reads.push_back(storage.root[at(v)]);
      std::sort(reads.begin(), reads.end());
      reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
      for (const ValueId r : reads) readers_[at(r)].push_back(static_cast<NodeId>(n));
      if (graph.nodes[n].op->alias) continue;
      for (const ValueId v : graph.nodes[n].outputs)
        if (storage.in_arena(v)) writes_[n].push_back(v);
    }
  }

  const std::vector<ValueId>& reads(NodeId n) const { return reads_[at(n)]; }
  const std::vector<ValueId>& writes(NodeId n) const { return writes_[at(n)]; }
  const std::vector<NodeId>& readers(ValueId root) const { return readers_[at(root)]; }
  std::int64_t bytes(ValueId root) const { return storage_.bytes[at(root)]; }
  bool pinned(ValueId root) const { return storage_.pinned[at(root)]; }
  std::int64_t workspace(NodeId n) const { return calls_[at(n)].workspace_bytes.value_or(0); }

  /// Bytes of results that take over the memory of inputs that `left` says are dying here.
  std::int64_t taken_over(NodeId n, const std::vector<std::int32_t>& left) const {
    const ir::Node& node = graph_.nodes[at(n)];
    const ir::KernelCall& call = calls_[at(n)];
    std::int64_t sum = 0;
    if (!node.outputs.empty() && std::any_of(call.in_place.begin(), call.in_place.end(),
                                             [&](std::int32_t i) { return dies(node, i, node.outputs[0], left); }))
      sum += bytes(node.outputs[0]);
    for (const auto& [output, input] : call.over)
      if (const ValueId v = node.outputs[at(output)]; left[at(v)] > 0 && dies(node, input, v, left)) sum += bytes(v);
    return sum;
  }

 private:
  bool dies(const ir::Node& node, std::int32_t input, ValueId output, const std::vector<std::int32_t>& left) const {
    const ValueId v = at(input) < node.inputs.size() ? node.inputs[at(input)] : ir::kNone;
    if (!storage_.in_arena(output) || !storage_.in_arena(v)) return false;
    const ValueId r = storage_.root[at(v)];
    return left[at(r)] == 1 && !pinned(r) && bytes(r) == bytes(output);
  }

  std::vector<std::vector<ValueId>> reads_, writes_;
  std::vector<std::vector<NodeId>> readers_;
  const ir::Graph& graph_;
  const Storage& storage_;
  const std::vector<ir::KernelCall>& calls_;
};

/// Bytes alive while some order runs, on top of what was alive before it.
struct Use {
  std::int64_t peak = 0, end = 0;
  std::size_t at = 0;  ///< the place in the order where the peak is reached first
};

/// `left`, the readers still to come, is updated.
Use use_of(const std::vector<NodeId>& order, const Traffic& traffic, std::vector<std::int32_t>& left) {
  Use use;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const NodeId n = order[i];
    const std::int64_t taken_over = traffic.taken_over(n, left);
    for (const ValueId v : traffic.writes(n)) use.end += traffic.bytes(v);
    use.end -= taken_over;
    if (const std::int64_t now = use.end + traffic.workspace(n); now > use.peak) {
      use.peak = now;
      use.at = i;
    }
    for (const ValueId r : traffic.reads(n))
      if (--left[at(r)] == 0 && !traffic.pinned(r)) use.end -= traffic.bytes(r);
    use.end += taken_over;  // freed above as the inputs, alive as the outputs
    for (const ValueId v : traffic.writes(n))
      if (left[at(v)] == 0 && !traffic.pinned(v)) use.end -= traffic.bytes(v);
  }
  return use;
}

std::int64_t peak_of(const std::vector<NodeId>& order, const Traffic& traffic, std::vector<std::int32_t> left) {
  return use_of(order, traffic, left).peak;
}

/// Nodes of [begin, end) and the edges between them.
struct Segment {
  NodeId begin, end;
  std::vector<std::vector<NodeId>> before;  // by node - begin
  std::vector<std::vector<NodeId>> after;

  std::size_t size() const { return static_cast<std::size_t>(end - begin); }
};

std::vector<NodeId> greedy(const Segment& segment, const Traffic& traffic, std::vector<std::int32_t> left) {
  std::vector<std::int32_t> waiting(segment.size());
  std::vector<bool> done(segment.size(), false);
  auto score = [&](NodeId n) {
    std::int64_t bytes = 0;
    for (const ValueId v : traffic.writes(n))
      if (left[at(v)] > 0 || traffic.pinned(v)) bytes += traffic.bytes(v);
    for (const ValueId r : traffic.reads(n))
      if (left[at(r)] == 1 && !traffic.pinned(r)) bytes -= traffic.bytes(r);
    return bytes;
  };
  // Scores only fall, when a node becomes the last reader of a value: it is pushed again then, and the older entry is
  // passed over.
  using Entry = std::pair<std::int64_t, NodeId>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (std::size_t i = 0; i < segment.size(); ++i) {
    waiting[i] = static_cast<std::int32_t>(segment.before[i].size());
    if (waiting[i] == 0)
      ready.emplace(score(segment.begin + static_cast<NodeId>(i)), segment.begin + static_cast<NodeId>(i));
  }
  std::vector<NodeId> order;
  order.reserve(segment.size());
  while (!ready.empty()) {
    const NodeId n = ready.top().second;
    ready.pop();
    const std::size_t i = at(n - segment.begin);
    if (done[i]) continue;
    done[i] = true;
    order.push_back(n);
    for (const ValueId r : traffic.reads(n)) {
      if (--left[at(r)] != 1) continue;
      for (const NodeId reader : traffic.readers(r))
        if (reader >= segment.begin && reader < segment.end && !done[at(reader - segment.begin)] &&
            waiting[at(reader - segment.begin)] == 0)
          ready.emplace(score(reader), reader);
    }
    for (const NodeId next : segment.after[i])
      if (--waiting[at(next - segment.begin)] == 0) ready.emplace(score(next), next);
  }
  return order;
}

std::vector<NodeId> depth_first(const Segment& segment, const Traffic& traffic) {
  // What it takes to compute a node, its inputs evaluated one after another, the most demanding first.
  std::vector<std::int64_t> need(segment.size());
  std::vector<std::vector<NodeId>> before = segment.before;
  auto result_bytes = [&](NodeId n) {
    std::int64_t bytes = 0;
    for (const ValueId v : traffic.writes(n)) bytes += traffic.bytes(v);
    return bytes;
  };
  for (std::size_t i = 0; i < segment.size(); ++i) {
    const NodeId n = segment.begin + static_cast<NodeId>(i);
    std::stable_sort(before[i].begin(), before[i].end(), [&](NodeId a, NodeId b) {
      const std::int64_t x = need[at(a - segment.begin)] - result_bytes(a),
                         y = need[at(b - segment.begin)] - result_bytes(b);
      return x != y ? x > y : a < b;
    });
    std::int64_t held = 0, most = 0;
    for (const NodeId b : before[i]) {
      most = std::max(most, held + need[at(b - segment.begin)]);
      held += result_bytes(b);
    }
    need[i] = std::max(most, held + result_bytes(n) + traffic.workspace(n));
  }
  std::vector<NodeId> order;
  order.reserve(segment.size());
  std::vector<std::uint8_t> state(segment.size(), 0);  // 0 new, 1 entered, 2 done
  std::vector<std::pair<NodeId, std::size_t>> stack;
  for (std::size_t i = 0; i < segment.size(); ++i) {
    if (!segment.after[i].empty() || state[i] != 0) continue;
    stack.emplace_back(segment.begin + static_cast<NodeId>(i), 0);
    state[i] = 1;
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      const auto& list = before[at(n - segment.begin)];
      if (next < list.size()) {
        const NodeId b = list[next++];
        if (state[at(b - segment.begin)] == 0) {
          state[at(b - segment.begin)] = 1;
          stack.emplace_back(b, 0);
        }
      } else {
        state[at(n - segment.begin)] = 2;
        order.push_back(n);
        stack.pop_back();
      }
    }
  }
  return order;
}

}  // namespace

namespace {

/// What is computed again for a gradient, and what is made of that alone, a transposed copy, waits for what that
/// gradient's node waits for: begun earlier, it would be kept instead.
void hold_back_recomputation(const ir::Graph& graph, std::vector<std::vector<NodeId>>& before) {
  std::vector<NodeId> maker(graph.values.size(), -1), first_reader(graph.nodes.size(), -1);
  std::vector<bool> is_held(graph.nodes.size(), false);
  bool any = false;
  const auto maker_of = [&](ValueId v) { return v == ir::kNone ? -1 : maker[at(v)]; };
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const ir::Node& node = graph.nodes[n];
    bool from_copies = false, from_others = false;
    for (const ValueId v : node.inputs)
      if (const NodeId m = maker_of(v); m >= 0 && graph.nodes[at(m)].phase == node.phase)
        (is_held[at(m)] ? from_copies : from_others) = true;
    is_held[n] = node.recomputes || (from_copies && !from_others && node.phase == ir::Phase::backward);
    any = any || is_held[n];
    for (const ValueId v : node.outputs) maker[at(v)] = static_cast<NodeId>(n);
  }
  if (!any) return;
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    // The gradient's node that asks for it, itself or through others that are held, the first in the program.
    const NodeId reader = is_held[n] ? first_reader[n] : static_cast<NodeId>(n);
    if (reader < 0) continue;
    for (const ValueId v : graph.nodes[n].inputs)
      if (const NodeId m = maker_of(v); m >= 0 && is_held[at(m)])
        if (NodeId& first = first_reader[at(m)]; first < 0 || reader < first) first = reader;
  }
  std::vector<NodeId> behind;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!is_held[n] || first_reader[n] < 0) continue;
    // What stands behind the copy in the program, such as a view of the gradient, waits for something itself.
    behind = {first_reader[n]};
    for (std::size_t next = 0; next < behind.size(); ++next)
      for (const ValueId v : graph.nodes[at(behind[next])].inputs) {
        const NodeId m = maker_of(v);
        if (m < 0 || is_held[at(m)] || graph.nodes[at(m)].phase != graph.nodes[n].phase) continue;
        if (m < static_cast<NodeId>(n))
          before[n].push_back(m);
        else if (std::find(behind.begin(), behind.end(), m) == behind.end())
          behind.push_back(m);
      }
  }
}

}  // namespace

std::vector<std::vector<NodeId>> dependencies(const ir::Graph& graph, const Storage& storage) {
  std::vector<std::vector<NodeId>> before(graph.nodes.size());
  std::vector<NodeId> writer(graph.values.size(), -1);            // by root: the last to write it
  std::vector<std::vector<NodeId>> readers(graph.values.size());  // by root: since then
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const ir::Node& node = graph.nodes[n];
    // What moves nothing: whoever needs its output needs it to have been passed.
    const bool is_passed = node.op->alias || storage.left_out[n];
    auto& list = before[n];
    for (const ValueId v : node.inputs)
      if (v != ir::kNone && writer[at(storage.root[at(v)])] >= 0) list.push_back(writer[at(storage.root[at(v)])]);
    // A result that lies in a buffer overwrites what was there.
    for (const ValueId v : node.outputs)
      if (const ValueId r = storage.root[at(v)]; !is_passed && r != v) {
        list.insert(list.end(), readers[at(r)].begin(), readers[at(r)].end());
        if (writer[at(r)] >= 0) list.push_back(writer[at(r)]);
      }
    for (const ValueId v : node.inputs)
      if (v != ir::kNone) readers[at(storage.root[at(v)])].push_back(static_cast<NodeId>(n));
    if (!is_passed)
      for (const ValueId v : node.outputs) {
        const ValueId r = storage.root[at(v)];
        writer[at(r)] = static_cast<NodeId>(n);
        if (r != v) readers[at(r)].clear();
      }
  }
  hold_back_recomputation(graph, before);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    std::vector<NodeId>& list = before[n];
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    if (!list.empty() && list.back() == static_cast<NodeId>(n)) list.pop_back();
  }
  return before;
}

namespace {

/// By node - begin: whether what it writes takes the place of what it reads, so that memory is the same before it and
/// after it.
std::vector<bool> replacing(const Segment& segment, const Traffic& traffic, const std::vector<NodeId>& order,
                            std::vector<std::int32_t> left) {
  std::vector<bool> replaces(segment.size());
  for (const NodeId n : order) {
    std::int64_t written = 0;
    for (const ValueId v : traffic.writes(n)) written += traffic.bytes(v);
    replaces[at(n - segment.begin)] =
        written > 0 && traffic.taken_over(n, left) == written && traffic.workspace(n) == 0;
    for (const ValueId r : traffic.reads(n)) --left[at(r)];
  }
  return replaces;
}

/// `order` with small nodes (counters, scalars: under a thousandth of the peak all together with what they read and
/// write) and those that `free` has moved back to where the program has them, after the node before them there: what
/// moves for no memory's sake should not move.
std::vector<NodeId> settle(const Segment& segment, const Traffic& traffic, const std::vector<NodeId>& order,
                           std::int64_t peak, const std::vector<bool>& free) {
  const std::size_t n = segment.size();
  std::vector<std::pair<std::int64_t, NodeId>> key(n);  // place of the anchor in `order`, then place in the program
  std::vector<std::int64_t> place(n);
  for (std::size_t i = 0; i < n; ++i) place[at(order[i] - segment.begin)] = static_cast<std::int64_t>(i);
  std::int64_t anchor = -1;
  for (std::size_t i = 0; i < n; ++i) {
    const NodeId node = segment.begin + static_cast<NodeId>(i);
    std::int64_t bytes = traffic.workspace(node);
    for (const ValueId v : traffic.writes(node)) bytes += traffic.bytes(v);
    for (const ValueId r : traffic.reads(node)) bytes += traffic.bytes(r);
    const bool large = bytes > peak / 1000 && !free[i];
    if (large) anchor = place[i];
    key[i] = {anchor, node};
    if (large) continue;
    for (const NodeId b : segment.before[i])
      key[i] = std::max(key[i], std::pair(key[at(b - segment.begin)].first, node));
  }
  // Whatever somebody needs earlier comes earlier.
  for (std::size_t i = n; i-- > 0;)
    for (const NodeId next : segment.after[i]) key[i] = std::min(key[i], key[at(next - segment.begin)]);
  std::vector<std::int32_t> waiting(n);
  using Entry = std::pair<std::pair<std::int64_t, NodeId>, NodeId>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (std::size_t i = 0; i < n; ++i) {
    waiting[i] = static_cast<std::int32_t>(segment.before[i].size());
    if (waiting[i] == 0) ready.emplace(key[i], static_cast<NodeId>(i));
  }
  std::vector<NodeId> settled;
  settled.reserve(n);
  while (!ready.empty()) {
    const NodeId i = ready.top().second;
    ready.pop();
    settled.push_back(segment.begin + i);
    for (const NodeId next : segment.after[at(i)])
      if (const std::size_t k = at(next - segment.begin); --waiting[k] == 0)
        ready.emplace(key[k], static_cast<NodeId>(k));
  }
  return settled;
}

/// `order`, the program's, except for results that are alive at its peak and read only later: those are made right
/// before they are read, one after the other, until no more than `limit` bytes are alive at once. Nothing where that is
/// not enough.
std::optional<std::vector<NodeId>> sink(const Segment& segment, const Traffic& traffic,
                                        const std::vector<std::int32_t>& left, std::vector<NodeId> order,
                                        std::int64_t limit) {
  constexpr int kMost = 64;  // each costs a walk over the segment
  std::vector<std::size_t> place(segment.size()), last_reader(left.size());
  for (int moved = 0; moved <= kMost; ++moved) {
    std::vector<std::int32_t> left_behind = left;
    const Use use = use_of(order, traffic, left_behind);
    if (use.peak <= limit) return order;
    for (std::size_t i = 0; i < order.size(); ++i) {
      place[at(order[i] - segment.begin)] = i;
      for (const ValueId r : traffic.reads(order[i])) last_reader[at(r)] = i;
    }
    std::size_t best = order.size(), target = 0;
    std::int64_t most = 0;
    for (std::size_t i = 0; i <= use.at; ++i) {
      const NodeId n = order[i];
      std::int64_t gain = 0;
      for (const ValueId v : traffic.writes(n)) gain += traffic.bytes(v);
      if (gain <= most) continue;
      for (const ValueId r : traffic.reads(n))
        if (last_reader[at(r)] == i && left_behind[at(r)] == 0 && !traffic.pinned(r)) gain -= traffic.bytes(r);
      if (gain <= most) continue;
      std::size_t first = order.size();
      for (const NodeId next : segment.after[at(n - segment.begin)])
        first = std::min(first, place[at(next - segment.begin)]);
      if (first <= use.at + 1) continue;
      best = i;
      target = first;
      most = gain;
    }
    if (best == order.size()) return std::nullopt;
    const auto from = order.begin() + static_cast<std::ptrdiff_t>(best);
    std::rotate(from, from + 1, order.begin() + static_cast<std::ptrdiff_t>(target));
  }
  return std::nullopt;
}

/// How much memory is given for the order that readers know from the program, a fraction of the peak.
constexpr std::int64_t kSlack = 20;

/// An order that needs little memory. `best` is one with no more than `best_peak` bytes alive at once. The program's
/// order is kept where it needs hardly more; where it needs more than `limit`, which is what the whole graph has to
/// spare, only what is the cause of that moves, if that is enough.
std::vector<NodeId> closest(const Segment& segment, const Traffic& traffic, const std::vector<std::int32_t>& left,
                            const std::vector<NodeId>& traced, std::vector<NodeId> best, std::int64_t best_peak,
                            std::int64_t limit) {
  const std::int64_t traced_peak = peak_of(traced, traffic, left);
  if (traced_peak <= best_peak + best_peak / kSlack) return traced;
  if (traced_peak > limit)
    if (auto sunk = sink(segment, traffic, left, traced, limit)) return *std::move(sunk);
  for (const std::vector<bool>& free : {replacing(segment, traffic, best, left), std::vector<bool>(segment.size())}) {
    std::vector<NodeId> settled = settle(segment, traffic, best, best_peak, free);
    if (peak_of(settled, traffic, left) <= best_peak + best_peak / 1000) return settled;
  }
  return best;
}

}  // namespace

namespace {

enum class Straighten : std::uint8_t { memory_first, disable, speed_first, overlap, delay_short };  // kStraightenModes

Straighten straighten_mode(const ir::Graph& graph) {
  const std::string mode = graph.text(ir::kStraightenAlgorithm);
  if (mode.empty()) return Straighten::memory_first;
  const auto* const found = std::find(std::begin(ir::kStraightenModes), std::end(ir::kStraightenModes), mode);
  if (found == std::end(ir::kStraightenModes)) {
    std::string modes;
    for (const std::string_view m : ir::kStraightenModes) modes.append(modes.empty() ? "" : ", ").append(m);
    throw UserError("config." + std::string(ir::kStraightenAlgorithm) + ": expected one of " + modes + ", found " +
                    mode.substr(0, 100));
  }
  return static_cast<Straighten>(found - std::begin(ir::kStraightenModes));
}

/// Of the nodes that are ready, that one which has the smallest key; `key_of` is asked when a node becomes ready, with
/// how many have run. `backwards`: the order is made from its end, so that nodes are ready when all that needs them is
/// placed.
template <class KeyOf>
std::vector<NodeId> by_key(const Segment& segment, bool backwards, const KeyOf& key_of) {
  const auto& waits_for = backwards ? segment.after : segment.before;
  const auto& frees = backwards ? segment.before : segment.after;
  using Key = decltype(key_of(NodeId{}, std::size_t{}));
  using Entry = std::pair<Key, NodeId>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  std::vector<std::size_t> waiting(segment.size());
  const auto offer = [&](NodeId n, std::size_t done) { ready.emplace(key_of(n, done), backwards ? -n : n); };
  for (std::size_t i = 0; i < segment.size(); ++i) {
    waiting[i] = waits_for[i].size();
    if (waiting[i] == 0) offer(segment.begin + static_cast<NodeId>(i), 0);
  }
  std::vector<NodeId> order;
  order.reserve(segment.size());
  while (!ready.empty()) {
    const NodeId n = backwards ? -ready.top().second : ready.top().second;
    ready.pop();
    order.push_back(n);
    for (const NodeId next : frees[at(n - segment.begin)])
      if (--waiting[at(next - segment.begin)] == 0) offer(next, order.size());
  }
  if (backwards) std::reverse(order.begin(), order.end());
  return order;
}

/// The order of a mode that does not look at memory.
std::vector<NodeId> straightened(const Segment& segment, const ir::Graph& graph, Straighten mode) {
  std::vector<double> seconds(segment.size());
  double all = 0;
  for (std::size_t i = 0; i < segment.size(); ++i)
    all += seconds[i] = ir::seconds_of(ir::cost_of({graph, graph.nodes[at(segment.begin) + i]}));
  switch (mode) {
    case Straighten::speed_first:
      return by_key(segment, false, [](NodeId, std::size_t done) { return -static_cast<std::int64_t>(done); });
    case Straighten::overlap: {
      std::vector<double> chain = seconds;  // to the end of the phase
      for (std::size_t i = segment.size(); i-- > 0;)
        for (const NodeId next : segment.after[i])
          chain[i] = std::max(chain[i], seconds[i] + chain[at(next - segment.begin)]);
      return by_key(segment, false, [&](NodeId n, std::size_t) { return -chain[at(n - segment.begin)]; });
    }
    case Straighten::delay_short: {
      const double short_work = all / static_cast<double>(segment.size()) / 10;
      return by_key(segment, true, [&](NodeId n, std::size_t) { return seconds[at(n - segment.begin)] > short_work; });
    }
    case Straighten::memory_first:
    case Straighten::disable:
      break;
  }
  std::vector<NodeId> traced(segment.size());
  std::iota(traced.begin(), traced.end(), segment.begin);
  return traced;
}

}  // namespace

std::vector<NodeId> schedule(const ir::Graph& graph, const Storage& storage, const std::vector<ir::KernelCall>& calls) {
  const Straighten mode = straighten_mode(graph);
  const Traffic traffic(graph, storage, calls);
  const auto before = dependencies(graph, storage);
  std::vector<std::int32_t> left(graph.values.size(), 0);
  for (std::size_t v = 0; v < graph.values.size(); ++v)
    left[v] = static_cast<std::int32_t>(traffic.readers(static_cast<ValueId>(v)).size());

  std::vector<NodeId> order;
  order.reserve(graph.nodes.size());
  // The calls of a stage stay together.
  std::vector<std::int32_t> stage;
  std::vector<bool> second_round;
  if (ir::has_stages(graph)) stage = ir::stages_of_nodes(graph), second_round = ir::second_round(graph);
  const NodeId count = static_cast<NodeId>(graph.nodes.size());
  std::int64_t live = 0, highest = 0;  // bytes alive at the end of what is ordered, and at its peak
  for (NodeId begin = 0; begin < count;) {
    Segment segment{begin, begin, {}, {}};
    while (segment.end < count && graph.nodes[at(segment.end)].phase == graph.nodes[at(begin)].phase &&
           (stage.empty() ||
            (stage[at(segment.end)] == stage[at(begin)] && second_round[at(segment.end)] == second_round[at(begin)])))
      ++segment.end;
    begin = segment.end;
    segment.before.resize(segment.size());
    segment.after.resize(segment.size());
    std::vector<NodeId> traced;
    for (NodeId n = segment.begin; n < segment.end; ++n) {
      traced.push_back(n);
      for (const NodeId b : before[at(n)]) {
        if (b < segment.begin) continue;
        segment.before[at(n - segment.begin)].push_back(b);
        segment.after[at(b - segment.begin)].push_back(n);
      }
    }
    if (mode != Straighten::memory_first) {
      const std::vector<NodeId> straight = straightened(segment, graph, mode);
      GRAVEN_CHECK(straight.size() == segment.size(), "the graph has a cycle");
      order.insert(order.end(), straight.begin(), straight.end());
      continue;
    }
    std::vector<std::int32_t> after = left;
    const Use traced_use = use_of(traced, traffic, after);
    std::vector<NodeId> best = traced;
    std::int64_t best_peak = traced_use.peak;
    for (std::vector<NodeId> candidate : {greedy(segment, traffic, left), depth_first(segment, traffic)}) {
      GRAVEN_CHECK(candidate.size() == segment.size(), "the graph has a cycle");
      const std::int64_t peak = peak_of(candidate, traffic, left);
      if (peak < best_peak) best_peak = peak, best = std::move(candidate);
    }
    const std::int64_t limit = std::max(highest, live + best_peak) - live;
    best = closest(segment, traffic, left, traced, std::move(best), best_peak, limit + (live + limit) / kSlack);
    highest = std::max(highest, live + peak_of(best, traffic, left));
    live += traced_use.end;   // the same whatever the order
    left = std::move(after);  // likewise
    order.insert(order.end(), best.begin(), best.end());
  }
  return order;
}

}  // namespace graven::codegen
