// Races are found by one walk over the steps in the plan's order, which keeps for each piece of memory the step that
// wrote it and, by stream, the last step that has read it since: who writes it next must come after these, and who
// reads it after the one that wrote it.
#include "codegen/plan/verify_streams.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/diagnostic.h"
#include "ir/ops.h"

namespace graven::codegen {

namespace {

using ir::ValueId;

class StreamVerifier {
 public:
  StreamVerifier(const ir::Graph& graph, const Plan& plan)
      : graph_(graph), plan_(plan), streams_(plan.target->passes.streams.size()) {}

  void run() {
    std::vector<std::vector<std::int32_t>> done_on(streams_, std::vector<std::int32_t>(streams_, -1));
    for (std::size_t s = 0; s < plan_.steps.size(); ++s) {
      const Step& step = plan_.steps[s];
      step_ = static_cast<std::int32_t>(s);
      if (step.call.name.empty()) {
        done_.emplace_back();
        continue;
      }
      place_ = ir::place_of({graph_, node()}, plan_.target->passes);
      GRAVEN_CHECK(step.stream == place_.stream, text(step_) + " runs on another stream than the target says");
      std::vector<std::int32_t>& mine = done_on[at(step.stream)];
      for (const std::int32_t other : step.waits) {
        GRAVEN_CHECK(
            other >= 0 && other < step_ && !done_[at(other)].empty() && plan_.steps[at(other)].stream != step.stream,
            text(step_) + " waits for what is no earlier step of another stream");
        for (std::size_t t = 0; t < streams_; ++t) mine[t] = std::max(mine[t], done_[at(other)][t]);
        std::int32_t& last = mine[at(plan_.steps[at(other)].stream)];
        last = std::max(last, other);
      }
      done_.push_back(mine);
      verify_accesses(step);
      mine[at(step.stream)] = step_;
    }
  }

 private:
  /// Bytes that a step wrote, and by stream the last one that has read them since.
  struct Piece {
    std::int64_t end;
    std::int32_t writer;
    std::vector<std::int32_t> readers;
  };
  /// Of an arena, by begin.
  using Pieces = std::map<std::int64_t, Piece>;

  const ir::Node& node() const { return graph_.nodes[at(plan_.steps[at(step_)].node)]; }
  std::string text(std::int32_t step) const {
    const ir::Node& n = graph_.nodes[at(plan_.steps[at(step)].node)];
    return std::string(n.op->name) + " (step " + std::to_string(step) + ")";
  }
  void must_come_after(std::int32_t other, const char* what) const {
    if (other < 0 || other == step_) return;
    GRAVEN_CHECK(done_[at(step_)][at(plan_.steps[at(other)].stream)] >= other,
                 text(step_) + " may run beside " + text(other) + ", which " + what + " the same memory");
  }

  void verify_accesses(const Step& step) {
    const ir::Node& n = node();
    for (const ValueId v : n.inputs)
      if (v != ir::kNone) touch(v, false);
    for (const ValueId v : n.outputs) touch(v, true);
    if (step.workspace < 0) return;
    const Buffer& b = plan_.buffers[at(step.workspace)];
    verify_space(b.space, b.name);
    touch_arena(b.space, b.offset, b.offset + b.bytes, true);
  }

  void verify_space(std::int32_t space, const std::string& name) const {
    GRAVEN_CHECK(space == place_.space || node().is(ir::kCopy),
                 text(step_) + " finds " + name + " in another memory space");
  }

  void touch(ValueId v, bool writes) {
    const Placement& own = plan_.placements[at(v)];
    const ValueId root = own.home == Home::alias ? own.alias_of : v;
    const Placement& p = plan_.placements[at(root)];
    const std::string& name = graph_.value(v).name;
    if (p.home == Home::hyper || graph_.type(v).shape.numel() == ir::Dim(0)) return;
    if (p.home != Home::arena) {
      verify_space(0, name);
      const std::int32_t which = p.home == Home::output ? p.buffer : p.home == Home::gradient ? p.parameter : root;
      Piece& whole =
          others_.try_emplace({p.home, which}, Piece{0, -1, std::vector<std::int32_t>(streams_, -1)}).first->second;
      return writes ? write(whole) : read(whole);
    }
    if (p.buffer < 0) return;
    const Buffer& b = plan_.buffers[at(p.buffer)];
    verify_space(b.space, name);
    touch_arena(b.space, b.offset, b.offset + b.bytes, writes);
  }

  void touch_arena(std::int32_t space, std::int64_t begin, std::int64_t end, bool writes) {
    Pieces& pieces = arenas_[space];
    cut(pieces, begin);
    cut(pieces, end);
    const auto first = pieces.lower_bound(begin), last = pieces.lower_bound(end);
    for (auto piece = first; piece != last; ++piece) writes ? write(piece->second) : read(piece->second);
    if (!writes || begin == end) return;
    pieces.erase(first, last);
    pieces.emplace(begin, Piece{end, step_, std::vector<std::int32_t>(streams_, -1)});
  }
  /// Makes two pieces of the one around `place`.
  static void cut(Pieces& pieces, std::int64_t place) {
    const auto above = pieces.upper_bound(place);
    if (above == pieces.begin()) return;
    const auto around = std::prev(above);
    if (around->first == place || around->second.end <= place) return;
    pieces.emplace(place, around->second);
    around->second.end = place;
  }

  void read(Piece& piece) {
    must_come_after(piece.writer, "writes");
    piece.readers[at(plan_.steps[at(step_)].stream)] = step_;
  }
  void write(Piece& piece) {
    must_come_after(piece.writer, "writes");
    for (std::int32_t& reader : piece.readers) {
      must_come_after(reader, "reads");
      reader = -1;
    }
    piece.writer = step_;
  }

  const ir::Graph& graph_;
  const Plan& plan_;
  std::size_t streams_;
  std::int32_t step_ = 0;
  ir::Place place_;
  std::vector<std::vector<std::int32_t>> done_;  // by step, by stream: the last one that is done when the step begins
  std::map<std::int32_t, Pieces> arenas_;        // by space
  std::map<std::pair<Home, std::int32_t>, Piece> others_;
};

}  // namespace

void verify_streams(const ir::Graph& graph, const Plan& plan) {
  const ir::TargetTraits& target = plan.target->passes;
  if (target.streams.size() > 1 || target.spaces.size() > 1) return StreamVerifier(graph, plan).run();
  for (const Step& step : plan.steps)
    GRAVEN_CHECK(step.stream == 0 && step.waits.empty(), "a step waits, or runs on a stream, where there is but one");
}

}  // namespace graven::codegen
