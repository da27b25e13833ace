#include "codegen/plan/arena.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "ir/diagnostic.h"

namespace graven::codegen {

namespace {

using Offsets = std::vector<std::int64_t>;
using Order = std::vector<std::int32_t>;

/// Pairs looked at by one placement by gaps, and by all of the search, at the most.
constexpr std::int64_t kPairsPerPlacement = 20'000'000, kPairsOfSearch = 40'000'000;

/// Turns of the search; and of one that goes on as long as it helps, those without a gain that end it.
constexpr std::int64_t kMostTurns = 3000, kTurnsWithoutGain = 20'000;

Order identity(std::span<const Buffer> buffers) {
  Order order;
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].bytes > 0) order.push_back(static_cast<std::int32_t>(i));
  return order;
}

std::int64_t peak_of(std::span<const Buffer> buffers, const Offsets& offsets) {
  std::int64_t peak = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) peak = std::max(peak, offsets[i] + buffers[i].bytes);
  return peak;
}

/// Free pieces of memory, by offset and by size; the last one has no end.
class FreeList {
 public:
  /// The smallest piece that holds `bytes`, the lowest of equals; else grows the end.
  std::int64_t take(std::int64_t bytes) {
    const auto fit = by_size_.lower_bound({bytes, 0});
    if (fit != by_size_.end()) {
      const auto [size, offset] = *fit;
      by_size_.erase(fit);
      by_offset_.erase(offset);
      if (size > bytes) add(offset + bytes, size - bytes);
      return offset;
    }
    // A free piece at the very end is extended.
    std::int64_t offset = end_;
    if (!by_offset_.empty()) {
      const auto last = std::prev(by_offset_.end());
      if (last->first + last->second == end_) {
        offset = last->first;
        by_size_.erase({last->second, last->first});
        by_offset_.erase(last);
      }
    }
    end_ = offset + bytes;
    return offset;
  }
  void give(std::int64_t offset, std::int64_t bytes) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + bytes) {
      bytes += next->second;
      by_size_.erase({next->second, next->first});
      next = by_offset_.erase(next);
    }
    if (next != by_offset_.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        offset = previous->first;
        bytes += previous->second;
        by_size_.erase({previous->second, previous->first});
        by_offset_.erase(previous);
      }
    }
    add(offset, bytes);
  }

 private:
  void add(std::int64_t offset, std::int64_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  std::map<std::int64_t, std::int64_t> by_offset_;
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;
  std::int64_t end_ = 0;
};

/// In the order of time, each buffer in the best-fitting free piece. Backwards is the same on the mirrored axis.
Offsets in_time(std::span<const Buffer> buffers, bool backwards) {
  Order starts = identity(buffers), ends = starts;
  auto first = [&](std::int32_t i) { return backwards ? -buffers[at(i)].last : buffers[at(i)].first; };
  auto last = [&](std::int32_t i) { return backwards ? -buffers[at(i)].first : buffers[at(i)].last; };
  std::stable_sort(starts.begin(), starts.end(), [&](auto a, auto b) {
    return first(a) != first(b) ? first(a) < first(b) : buffers[at(a)].bytes > buffers[at(b)].bytes;
  });
  std::stable_sort(ends.begin(), ends.end(), [&](auto a, auto b) { return last(a) < last(b); });
  Offsets offsets(buffers.size(), 0);
  FreeList free;
  std::size_t e = 0;
  for (const std::int32_t i : starts) {
    for (; last(ends[e]) < first(i); ++e) free.give(offsets[at(ends[e])], buffers[at(ends[e])].bytes);
    offsets[at(i)] = free.take(buffers[at(i)].bytes);
  }
  return offsets;
}

std::int32_t steps_of(std::span<const Buffer> buffers) {
  std::int32_t steps = 1;
  for (const Buffer& b : buffers) steps = std::max(steps, b.last + 1);
  return steps;
}

/// Maximum over a range of steps, assignment to a range.
class Skyline {
 public:
  explicit Skyline(std::int32_t steps) {
    while (size_ < steps) size_ *= 2;
    top_.assign(static_cast<std::size_t>(2 * size_), 0);
    set_.assign(static_cast<std::size_t>(2 * size_), -1);
  }
  std::int64_t maximum(std::int32_t first, std::int32_t last) { return maximum(1, 0, size_ - 1, first, last); }
  void assign(std::int32_t first, std::int32_t last, std::int64_t value) {
    assign(1, 0, size_ - 1, first, last, value);
  }

 private:
  void push(std::int32_t node) {
    if (set_[at(node)] < 0) return;
    for (const std::int32_t child : {2 * node, 2 * node + 1}) top_[at(child)] = set_[at(child)] = set_[at(node)];
    set_[at(node)] = -1;
  }
  std::int64_t maximum(std::int32_t node, std::int32_t low, std::int32_t high, std::int32_t first, std::int32_t last) {
    if (first > high || last < low) return 0;
    if (first <= low && high <= last) return top_[at(node)];
    push(node);
    const std::int32_t middle = low + (high - low) / 2;
    return std::max(maximum(2 * node, low, middle, first, last), maximum(2 * node + 1, middle + 1, high, first, last));
  }
  void assign(std::int32_t node, std::int32_t low, std::int32_t high, std::int32_t first, std::int32_t last,
              std::int64_t value) {
    if (first > high || last < low) return;
    if (first <= low && high <= last) {
      top_[at(node)] = set_[at(node)] = value;
      return;
    }
    push(node);
    const std::int32_t middle = low + (high - low) / 2;
    assign(2 * node, low, middle, first, last, value);
    assign(2 * node + 1, middle + 1, high, first, last, value);
    top_[at(node)] = std::max(top_[at(2 * node)], top_[at(2 * node + 1)]);
  }
  std::int32_t size_ = 1;
  std::vector<std::int64_t> top_, set_;
};

/// Longest life first, each on top of what lives with it: exact where any two lives are nested or apart.
Offsets on_skyline(std::span<const Buffer> buffers) {
  Order order = identity(buffers);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    const Buffer &x = buffers[at(a)], &y = buffers[at(b)];
    const std::int32_t long_x = x.last - x.first, long_y = y.last - y.first;
    return long_x != long_y ? long_x > long_y : x.bytes > y.bytes;
  });
  Skyline skyline(steps_of(buffers));
  Offsets offsets(buffers.size(), 0);
  for (const std::int32_t i : order) {
    const Buffer& b = buffers[at(i)];
    offsets[at(i)] = skyline.maximum(b.first, b.last);
    skyline.assign(b.first, b.last, offsets[at(i)] + b.bytes);
  }
  return offsets;
}

/// For each buffer, those that live at one time with it.
class Neighbours {
 public:
  explicit Neighbours(std::span<const Buffer> buffers) : begin_(buffers.size() + 1, 0) {
    Order order = identity(buffers);
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return buffers[at(a)].first < buffers[at(b)].first; });
    std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
    std::set<std::pair<std::int32_t, std::int32_t>> alive;  // last step, buffer
    for (const std::int32_t i : order) {
      alive.erase(alive.begin(), alive.lower_bound({buffers[at(i)].first, 0}));
      for (const auto& other : alive) pairs.emplace_back(i, other.second);
      alive.emplace(buffers[at(i)].last, i);
    }
    for (const auto& [a, b] : pairs) ++begin_[at(a) + 1], ++begin_[at(b) + 1];
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
    list_.resize(static_cast<std::size_t>(begin_.back()));
    std::vector<std::int64_t> next(begin_.begin(), begin_.end() - 1);
    for (const auto& [a, b] : pairs) {
      list_[static_cast<std::size_t>(next[at(a)]++)] = b;
      list_[static_cast<std::size_t>(next[at(b)]++)] = a;
    }
  }
  std::span<const std::int32_t> of(std::int32_t i) const {
    return {list_.data() + begin_[at(i)], static_cast<std::size_t>(begin_[at(i) + 1] - begin_[at(i)])};
  }
  std::int64_t count() const { return static_cast<std::int64_t>(list_.size()); }

 private:
  std::vector<std::int64_t> begin_;
  Order list_;
};

/// A buffer that has its place.
struct Placed {
  std::int64_t begin, stop;
  std::int32_t first, last;
};

/// The smallest gap of `bytes`, or more, between those of `placed`, which stand by their offsets, that live at some
/// time from `first` to `last`; the lowest of equals, or of all (`first_fit`); else behind them.
std::int64_t gap_among(const std::vector<Placed>& placed, const Buffer& buffer, bool first_fit) {
  std::int64_t end = 0, best = -1, best_gap = 0;
  for (const Placed *p = placed.data(), *const behind = p + placed.size(); p != behind; ++p) {
    if (p->first > buffer.last || p->last < buffer.first) continue;
    const std::int64_t gap = p->begin - end;
    if (gap >= buffer.bytes && (best < 0 || gap < best_gap)) {
      best = end, best_gap = gap;
      if (first_fit) break;
    }
    if (p->stop > end) end = p->stop;
  }
  return best >= 0 ? best : end;
}

/// In the given order, each buffer in the smallest gap between the placed ones that live with it.
Offsets in_gaps(std::span<const Buffer> buffers, const Order& order, const Neighbours& neighbours, bool first_fit) {
  Offsets offsets(buffers.size(), -1);
  const auto lower = [](const Placed& a, const Placed& b) { return a.begin < b.begin; };
  const auto count = static_cast<std::int64_t>(order.size());
  std::vector<Placed> placed;
  // Where most live with many, all that are placed are kept in order: looking at them is less than sorting.
  const bool are_many = neighbours.count() * 32 >= count * count;
  for (const std::int32_t i : order) {
    const Buffer& buffer = buffers[at(i)];
    if (!are_many) {
      placed.clear();
      for (const std::int32_t other : neighbours.of(i))
        if (offsets[at(other)] >= 0)
          placed.push_back({offsets[at(other)], offsets[at(other)] + buffers[at(other)].bytes, buffers[at(other)].first,
                            buffers[at(other)].last});
      std::sort(placed.begin(), placed.end(), lower);
    }
    const std::int64_t offset = offsets[at(i)] = gap_among(placed, buffer, first_fit);
    if (are_many) {
      const Placed own{offset, offset + buffer.bytes, buffer.first, buffer.last};
      placed.insert(std::upper_bound(placed.begin(), placed.end(), own, lower), own);
    }
  }
  for (std::int64_t& o : offsets) o = std::max<std::int64_t>(o, 0);
  return offsets;
}

/// Pairs of buffers that live at one time.
std::int64_t count_pairs(std::span<const Buffer> buffers) {
  std::vector<std::int32_t> starts, ends;
  for (const Buffer& b : buffers)
    if (b.bytes > 0) starts.push_back(b.first), ends.push_back(b.last);
  std::sort(starts.begin(), starts.end());
  std::sort(ends.begin(), ends.end());
  std::int64_t pairs = 0;
  std::size_t ended = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    while (ends[ended] < starts[i]) ++ended;
    pairs += static_cast<std::int64_t>(i - ended);
  }
  return pairs;
}

}  // namespace

std::int64_t arena_lower_bound(std::span<const Buffer> buffers) {
  std::map<std::int32_t, std::int64_t> change;
  for (const Buffer& b : buffers) {
    change[b.first] += b.bytes;
    change[b.last + 1] -= b.bytes;
  }
  std::int64_t live = 0, most = 0;
  for (const auto& [step, bytes] : change) most = std::max(most, live += bytes);
  return most;
}

std::int64_t place_buffers(std::span<Buffer> buffers, bool compress) {
  const std::int64_t bound = arena_lower_bound(buffers);
  Offsets best;
  std::int64_t best_peak = -1;
  auto offer = [&](const Offsets& offsets) {
    const std::int64_t peak = peak_of(buffers, offsets);
    if (best_peak >= 0 && peak >= best_peak) return false;
    best_peak = peak;
    best = offsets;
    return true;
  };
  auto done = [&] { return best_peak >= 0 && best_peak <= bound; };

  offer(in_time(buffers, false));
  if (!done()) offer(on_skyline(buffers));
  if (!done()) offer(in_time(buffers, true));
  const std::int64_t pairs = done() ? 0 : count_pairs(buffers);
  if (!done() && pairs <= kPairsPerPlacement) {
    const Neighbours neighbours(buffers);
    auto life = [&](std::int32_t i) { return static_cast<double>(buffers[at(i)].last - buffers[at(i)].first + 1); };
    auto size = [&](std::int32_t i) { return static_cast<double>(buffers[at(i)].bytes); };
    auto sorted = [&](auto key) {
      Order order = identity(buffers);
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return key(a) > key(b); });
      return order;
    };
    // The most bytes alive at a step of the buffer's life: where memory is scarce, there is least choice.
    std::vector<std::int64_t> live(static_cast<std::size_t>(steps_of(buffers)) + 1, 0);
    for (const Buffer& b : buffers) live[at(b.first)] += b.bytes, live[at(b.last) + 1] -= b.bytes;
    std::partial_sum(live.begin(), live.end(), live.begin());
    Skyline crowd(static_cast<std::int32_t>(live.size()));
    for (std::size_t s = 0; s < live.size(); ++s)
      crowd.assign(static_cast<std::int32_t>(s), static_cast<std::int32_t>(s), live[s]);
    std::vector<double> crowded(buffers.size());
    for (std::size_t i = 0; i < buffers.size(); ++i)
      crowded[i] = static_cast<double>(crowd.maximum(buffers[i].first, buffers[i].last));
    const Order candidates[] = {sorted(size),
                                sorted([&](std::int32_t i) { return size(i) * life(i); }),
                                sorted(life),
                                sorted([&](std::int32_t i) { return std::pair(crowded[at(i)], size(i)); }),
                                sorted([&](std::int32_t i) { return std::pair(crowded[at(i)], life(i)); }),
                                sorted([&](std::int32_t i) { return crowded[at(i)] * size(i) * std::sqrt(life(i)); })};
    Order order = candidates[0];
    for (const Order& candidate : candidates)
      for (const bool first_fit : {false, true})
        if (!done() && offer(in_gaps(buffers, candidate, neighbours, first_fit))) order = candidate;
    // Buffers that reach above the bound move to the front of the order, or swap with a random earlier one; what helps
    // is kept.
    const std::int64_t turns = std::min<std::int64_t>(
        kMostTurns,
        kPairsOfSearch / std::max<std::int64_t>(1, neighbours.count() + static_cast<std::int64_t>(order.size()) * 4));
    std::int64_t last_gain = 0;
    const auto goes_on = [&](std::int64_t turn) {
      return compress ? turn < last_gain + kTurnsWithoutGain : turn < turns;
    };
    std::uint64_t random = 0x9e3779b97f4a7c15u;
    auto draw = [&](std::size_t below) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      return static_cast<std::size_t>(random % below);
    };
    Offsets current = in_gaps(buffers, order, neighbours, false);
    std::int64_t current_peak = peak_of(buffers, current);
    // What the search would still gain is not worth its time, unless it was asked for.
    const std::int64_t enough = compress ? bound : bound + bound / 256;
    for (std::int64_t turn = 0; goes_on(turn) && best_peak > enough; ++turn) {
      Order changed = order;
      std::vector<std::size_t> above;
      for (std::size_t k = 0; k < changed.size(); ++k)
        if (current[at(changed[k])] + buffers[at(changed[k])].bytes > bound) above.push_back(k);
      if (above.empty()) break;
      const std::size_t k = above[draw(above.size())];
      const std::size_t to = turn % 3 == 0 ? 0 : draw(k + 1);
      if (turn % 3 == 2)
        std::swap(changed[k], changed[to]);
      else
        std::rotate(changed.begin() + static_cast<std::ptrdiff_t>(to), changed.begin() + static_cast<std::ptrdiff_t>(k),
                    changed.begin() + static_cast<std::ptrdiff_t>(k) + 1);
      Offsets offsets = in_gaps(buffers, changed, neighbours, turn % 2 == 1);
      const std::int64_t peak = peak_of(buffers, offsets);
      if (peak > current_peak) continue;
      order = std::move(changed);
      current = std::move(offsets);
      current_peak = peak;
      if (offer(current)) last_gain = turn;
    }
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].offset = best.empty() ? 0 : best[i];
  return std::max<std::int64_t>(best_peak, 0);
}

}  // namespace graven::codegen
