#include "codegen/plan/streams.h"

#include <algorithm>
#include <functional>

#include "codegen/plan/schedule.h"

namespace graven::codegen {

HappensBefore::HappensBefore(const ir::Graph& graph, const Storage& storage, Plan& plan)
    : streams_(plan.target->passes.streams.size()) {
  if (streams_ == 1) return;
  std::vector<std::int32_t> position(graph.nodes.size());
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    position[at(plan.steps[s].node)] = static_cast<std::int32_t>(s);
    stream_.push_back(plan.steps[s].stream);
  }
  done_.assign(plan.steps.size() * streams_, -1);
  on_stream_.resize(streams_);
  const std::vector<std::vector<ir::NodeId>> before = dependencies(graph, storage);
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    Step& step = plan.steps[s];
    if (step.call.name.empty()) continue;
    const auto here = static_cast<std::int32_t>(s);
    const std::span<std::int32_t> mine = std::span(done_).subspan(s * streams_, streams_);
    const auto join = [&](std::int32_t other) {
      for (std::size_t t = 0; t < streams_; ++t) mine[t] = std::max(mine[t], done(other)[t]);
      std::int32_t& last = mine[at(stream_[at(other)])];
      last = std::max(last, other);
    };
    std::vector<std::int32_t>& stream = on_stream_[at(step.stream)];
    if (!stream.empty()) join(stream.back());
    std::vector<std::int32_t> needed;
    for (const ir::NodeId n : before[at(step.node)])
      if (!plan.steps[at(position[at(n)])].call.name.empty()) needed.push_back(position[at(n)]);
    // A wait for a later step is often one for the earlier ones, too.
    std::sort(needed.begin(), needed.end(), std::greater<>());
    for (const std::int32_t other : needed) {
      if ((*this)(other, here)) continue;
      step.waits.push_back(other);
      join(other);
    }
    std::reverse(step.waits.begin(), step.waits.end());
    stream.push_back(here);
  }
}

std::int32_t HappensBefore::last_beside(std::int32_t step) const {
  std::int32_t last = step;
  for (std::size_t t = 0; t < on_stream_.size(); ++t) {
    if (t == at(stream_[at(step)])) continue;
    // What is done stays done: those that begin after it are the last ones of their stream.
    const auto& steps = on_stream_[t];
    const auto after =
        std::partition_point(steps.begin(), steps.end(), [&](std::int32_t s) { return !(*this)(step, s); });
    if (after != steps.begin()) last = std::max(last, *std::prev(after));
  }
  return last;
}

}  // namespace graven::codegen
