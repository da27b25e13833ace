#include "codegen/simulate/stages.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace graven::codegen {

Crossed crossed(const Workload& w, const Shards& shards) {
  const std::size_t n = w.forward.size();
  Crossed found{std::vector<double>(n + 1, 0), std::vector<double>(n + 1, 0)};
  // By differences: what is made at m and read last at r crosses the boundaries m + 1 to r.
  for (const Workload::Crossing& c : w.crossings) {
    const double bytes = c.bytes * shards.output[at(c.maker)];
    for (auto* list : {&found.forward, &found.backward}) {
      if (list == &found.backward && !c.flows_back) continue;
      (*list)[at(c.maker) + 1] += bytes;
      (*list)[at(c.last_reader) + 1] -= bytes;
    }
  }
  for (auto* list : {&found.forward, &found.backward}) {
    for (std::size_t i = 1; i <= n; ++i) (*list)[i] += (*list)[i - 1];
    for (double& bytes : *list) bytes = std::max(bytes, 0.0);
    (*list)[n] = 0;
  }
  return found;
}

std::vector<std::vector<std::int32_t>> cut_into_stages(const std::vector<double>& seconds, const Crossed& crossed,
                                                       std::int64_t most, const Link& link) {
  const std::size_t n = seconds.size();
  std::vector<double> before(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) before[i + 1] = before[i] + seconds[i];
  const auto bytes = [&](std::size_t cut) { return crossed.forward[cut] + crossed.backward[cut]; };
  // ---- where to look
  constexpr std::size_t kMost = 512;
  std::vector<std::size_t> cuts{0};
  for (std::size_t i = 1; i < n; ++i) {
    const auto share = [&](std::size_t cut) {
      return n <= kMost ? cut : static_cast<std::size_t>(before[cut] / std::max(before[n], 1e-300) * kMost);
    };
    if (cuts.size() == 1 || share(i) != share(cuts.back()))
      cuts.push_back(i);
    else if (bytes(i) < bytes(cuts.back()))
      cuts.back() = i;
  }
  cuts.push_back(n);
  // ---- the dynamic program
  using Score = std::pair<double, double>;  // seconds of the slowest, bytes
  const std::size_t k = cuts.size();
  most = std::clamp<std::int64_t>(most, 1, static_cast<std::int64_t>(k) - 1);
  const auto stage = [&](std::size_t i, std::size_t j) {
    return before[cuts[j]] - before[cuts[i]] + send(crossed.forward[cuts[j]], link).seconds +
           send(crossed.backward[cuts[j]], link).seconds;
  };
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<Score> best(k, {kNever, 0}), next;
  best[0] = {0, 0};
  std::vector<std::vector<std::size_t>> from;  // by stages - 1, by cut
  std::vector<std::vector<std::int32_t>> found;
  for (std::int64_t s = 1; s <= most; ++s) {
    next.assign(k, {kNever, 0});
    from.emplace_back(k, 0);
    for (std::size_t j = at(s); j < k; ++j)
      for (std::size_t i = j; i-- > at(s - 1);) {
        if (best[i].first == kNever) continue;
        const double own = stage(i, j);
        if (own > next[j].first) break;  // and those that begin before take longer
        const Score score{std::max(best[i].first, own), best[i].second + bytes(cuts[j])};
        if (score < next[j]) next[j] = score, from.back()[j] = i;
      }
    best.swap(next);
    std::vector<std::int32_t> begins(at(s) + 1);
    for (std::size_t j = k - 1, t = at(s); t > 0; --t) {
      begins[t] = static_cast<std::int32_t>(cuts[j]);
      j = from[t - 1][j];
    }
    found.push_back(std::move(begins));
  }
  return found;
}

PipelineRun one_forward_one_backward(const StageTimes& times, std::int64_t batches, bool record) {
  const std::size_t stages = times.forward.size();
  if (const std::int64_t many = 64 + 16 * static_cast<std::int64_t>(stages); batches > many) {
    // Once all stages are busy, so many batches take so many times the beat.
    const PipelineRun shorter = one_forward_one_backward(times, many / 2);
    PipelineRun run = one_forward_one_backward(times, many, record);
    const double beats = static_cast<double>(batches - many) / static_cast<double>(many - many / 2);
    for (std::size_t k = 0; k < stages; ++k) {
      run.last_backward[k] += beats * (run.last_backward[k] - shorter.last_backward[k]);
      run.ends[k] += beats * (run.ends[k] - shorter.ends[k]);
    }
    return run;
  }
  struct Progress {
    std::int64_t forward = 0, backward = 0;  // batches done
    double free = 0;                         // when it is
    double down_free = 0, up_free = 0;       // when the cut behind it is, and the way back from it
    std::vector<double> arrived, returned;   // when batches' activations, and their gradients, are here
  };
  std::vector<Progress> all(stages);
  for (Progress& p : all) {
    p.arrived.reserve(at(batches));
    p.returned.reserve(at(batches));
  }
  all.front().arrived.assign(at(batches), 0.0);
  all.back().returned.assign(at(batches), 0.0);
  PipelineRun run{std::vector<double>(stages, 0), std::vector<double>(stages, 0), {}};
  const auto advance = [&](std::size_t k) {
    Progress& own = all[k];
    const std::int64_t ahead = std::min(batches, static_cast<std::int64_t>(stages - k));
    bool moved = false;
    while (own.backward < batches) {
      const bool is_forward = own.forward < batches && own.forward - own.backward < ahead;
      const std::int64_t batch = is_forward ? own.forward : own.backward;
      const std::vector<double>& ready = is_forward ? own.arrived : own.returned;
      if (ready.size() <= at(batch)) break;
      const double begin = std::max(own.free, ready[at(batch)]);
      own.free = begin + (is_forward ? times.forward[k] : times.backward[k]);
      if (record) run.slots.push_back({static_cast<std::int32_t>(k), batch, is_forward, begin, own.free});
      if (is_forward) {
        ++own.forward;
        if (k + 1 < stages) {
          own.down_free = std::max(own.down_free, own.free) + times.down[k];
          all[k + 1].arrived.push_back(own.down_free);
        }
      } else {
        ++own.backward;
        run.last_backward[k] = begin;
        if (k > 0) {
          own.up_free = std::max(own.up_free, own.free) + times.up[k - 1];
          all[k - 1].returned.push_back(own.up_free);
        }
      }
      moved = true;
    }
    run.ends[k] = own.free;
    return moved;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t k = 0; k < stages; ++k) moved = advance(k) || moved;
    for (std::size_t k = stages; k-- > 0;) moved = advance(k) || moved;
  }
  return run;
}

}  // namespace graven::codegen
