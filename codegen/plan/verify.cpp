// Checks a plan by running it, with marks instead of numbers: in the order of the graph, where each value has memory of
// its own, and in the order and the memory of the plan. Every node must find the same marks both times, and so must
// whoever reads the results. This shares no code with what makes plans: neither storage, nor schedule, nor arena is
// asked for anything.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "codegen/plan/plan.h"
#include "codegen/plan/verify_streams.h"
#include "ir/analysis.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"

namespace graven::codegen {

namespace {

using ir::NodeId;
using ir::ValueId;

/// What memory holds: a number for each result of each node in each call, or for what was there before the first.
using Mark = std::int64_t;
constexpr Mark kNothing = -1;

std::int64_t bytes_of(const ir::TensorType& type) {
  std::int64_t bytes = static_cast<std::int64_t>(ir::size_of(type.dtype));
  for (const ir::Dim& d : type.shape) bytes *= d.maximum();
  return bytes;
}

/// Of an arena; of what has no buffer, begin is -1.
struct Piece {
  std::int64_t begin = -1, bytes = 0;
  std::int32_t space = 0;
  std::int64_t end() const { return begin + bytes; }
};

/// The marks of what is not in the arena, and of pieces of the arena.
class Memory {
 public:
  Mark& of(ValueId value) { return marks_.try_emplace(value, kNothing).first->second; }
  Mark& of(Home home, std::int32_t index) { return homes_.try_emplace({home, index}, kNothing).first->second; }

  Mark piece(const Piece& piece) {
    const auto& pieces = pieces_[piece.space];
    const auto found = pieces.find(piece.begin);
    return found != pieces.end() && found->second.first == piece.end() ? found->second.second : kNothing;
  }
  void write(const Piece& piece, Mark mark) {
    auto& pieces = pieces_[piece.space];
    auto next = pieces.lower_bound(piece.begin);
    if (next != pieces.begin() && std::prev(next)->second.first > piece.begin) --next;
    while (next != pieces.end() && next->first < piece.end()) next = pieces.erase(next);
    if (piece.bytes > 0 && mark != kNothing) pieces.emplace(piece.begin, std::pair(piece.end(), mark));
  }

 private:
  std::map<ValueId, Mark> marks_;
  std::map<std::pair<Home, std::int32_t>, Mark> homes_;
  /// By space, by begin: end, mark; they do not overlap.
  std::map<std::int32_t, std::map<std::int64_t, std::pair<std::int64_t, Mark>>> pieces_;
};

class Verifier {
 public:
  Verifier(const ir::Graph& graph, const Plan& plan) : graph_(graph), plan_(plan) {}

  void run() {
    verify_steps();
    verify_placements();
    verify_buffers();
    verify_streams(graph_, plan_);
    for (std::size_t v = 0; v < graph_.values.size(); ++v)
      if (graph_.values[v].kind != ir::ValueKind::node) given(static_cast<ValueId>(v));
    // What is prepared, and what a call leaves behind, must do for the next call, too.
    for (int call = 0; call < 2; ++call) {
      run_graph(call);
      run_plan(call);
      for (const ValueId v : graph_.outputs) verify_result(v);
      for (const ir::Loss& loss : graph_.losses) verify_result(loss.value);
      for (const auto* kept : {&graph_.parameters, &graph_.states})
        for (const ValueId v : *kept)
          if (!given_up_.count(v)) verify_result(v);
      for (const ir::Gradient& g : graph_.gradients)
        if (g.sum != ir::kNone) verify_result(g.sum);
    }
  }

 private:
  const ir::Node& node_of(const Step& step) const { return graph_.nodes[at(step.node)]; }
  const Placement& place(ValueId v) const { return plan_.placements[at(v)]; }
  const std::string& name(ValueId v) const { return graph_.values[at(v)].name; }
  ValueId owner(ValueId v) const { return place(v).home == Home::alias ? place(v).alias_of : v; }
  bool in_arena(ValueId v) const { return place(owner(v)).home == Home::arena; }
  Piece piece(ValueId v) const {
    const std::int32_t buffer = place(owner(v)).buffer;
    if (buffer < 0) return {};
    const Buffer& b = plan_.buffers[at(buffer)];
    return {b.offset, bytes_of(graph_.type(owner(v))), b.space};
  }
  bool is_empty(ValueId v) const { return bytes_of(graph_.type(v)) == 0; }

  void verify_steps() const {
    GRAVEN_CHECK(plan_.steps.size() == graph_.nodes.size(), "the plan leaves nodes out or repeats them");
    std::vector<bool> seen(graph_.nodes.size(), false);
    for (std::size_t s = 0; s < plan_.steps.size(); ++s) {
      const NodeId n = plan_.steps[s].node;
      GRAVEN_CHECK(n >= 0 && at(n) < graph_.nodes.size() && !seen[at(n)], "a node is run twice or does not exist");
      seen[at(n)] = true;
      GRAVEN_CHECK(s == 0 || node_of(plan_.steps[s - 1]).phase <= node_of(plan_.steps[s]).phase,
                   "phases are out of order");
    }
  }

  void verify_placements() const {
    GRAVEN_CHECK(plan_.placements.size() == graph_.values.size(), "values without a placement");
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const Placement& p = plan_.placements[v];
      const std::string& name = graph_.values[v].name;
      if (p.home == Home::alias) {
        GRAVEN_CHECK(p.alias_of >= 0 && at(p.alias_of) < graph_.values.size() && place(p.alias_of).home != Home::alias,
                     name + " is an alias of nothing");
        GRAVEN_CHECK(bytes_of(graph_.type(p.alias_of)) == bytes_of(graph_.values[v].type),
                     name + " is not as large as what it is an alias of");
      }
      if (p.home == Home::arena && p.buffer >= 0) {
        GRAVEN_CHECK(at(p.buffer) < plan_.buffers.size(), name + " has a buffer that does not exist");
        GRAVEN_CHECK(plan_.buffers[at(p.buffer)].bytes >= bytes_of(graph_.values[v].type),
                     name + " does not fit its buffer");
      }
      if (p.home == Home::gradient) {
        GRAVEN_CHECK(p.parameter >= 0 && at(p.parameter) < graph_.values.size(), name + " is the gradient of nothing");
        const ir::TensorType &own = graph_.values[v].type, &parameter = graph_.type(p.parameter);
        GRAVEN_CHECK(own.dtype == parameter.dtype && bytes_of(own) == bytes_of(parameter),
                     name + " does not fit its parameter's gradient");
      }
      if (p.home == Home::output)
        GRAVEN_CHECK(p.buffer >= 0 && at(p.buffer) < graph_.outputs.size(), name + " is a result that does not exist");
    }
  }

  void verify_buffers() const {
    GRAVEN_CHECK(plan_.arenas.size() == plan_.target->passes.spaces.size(), "a memory space has no arena");
    for (const Buffer& b : plan_.buffers)
      GRAVEN_CHECK(b.space >= 0 && at(b.space) < plan_.arenas.size(), b.name + " lies in a space that does not exist");
    for (std::size_t space = 0; space < plan_.arenas.size(); ++space) verify_arena(space);
  }
  /// Sweeps over the steps: whatever lives is kept by offset, so only neighbours need comparing.
  void verify_arena(std::size_t space) const {
    const Arena& arena = plan_.arenas[space];
    std::int64_t peak = 0;
    std::map<std::int32_t, std::int64_t> change;  // of the bytes alive, by step
    std::vector<std::int32_t> starts, ends;
    for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
      const Buffer& b = plan_.buffers[i];
      if (at(b.space) != space) continue;
      GRAVEN_CHECK(b.first <= b.last && b.first >= 0 && at(b.last) < plan_.steps.size(), b.name + " has no life");
      GRAVEN_CHECK(b.bytes >= 0 && b.offset >= 0 && b.offset + b.bytes <= arena.bytes,
                   b.name + " lies outside the arena");
      GRAVEN_CHECK(b.offset % plan_.alignment == 0 && b.bytes % plan_.alignment == 0, b.name + " is not aligned");
      if (b.bytes == 0) continue;
      peak = std::max(peak, b.offset + b.bytes);
      change[b.first] += b.bytes;
      change[b.last + 1] -= b.bytes;
      starts.push_back(static_cast<std::int32_t>(i));
      ends.push_back(static_cast<std::int32_t>(i));
    }
    const auto buffer = [&](std::int32_t i) -> const Buffer& { return plan_.buffers[at(i)]; };
    std::sort(starts.begin(), starts.end(), [&](auto a, auto b) { return buffer(a).first < buffer(b).first; });
    std::sort(ends.begin(), ends.end(), [&](auto a, auto b) { return buffer(a).last < buffer(b).last; });
    std::map<std::int64_t, std::int32_t> alive;  // by offset
    std::size_t ended = 0;
    for (const std::int32_t i : starts) {
      for (; buffer(ends[ended]).last < buffer(i).first; ++ended) alive.erase(buffer(ends[ended]).offset);
      const auto [place, fresh] = alive.emplace(buffer(i).offset, i);
      GRAVEN_CHECK(fresh, buffer(i).name + " and " + buffer(place->second).name + " live at one time in one place");
      if (place != alive.begin()) {
        const Buffer& below = buffer(std::prev(place)->second);
        GRAVEN_CHECK(below.offset + below.bytes <= buffer(i).offset,
                     buffer(i).name + " and " + below.name + " overlap while both live");
      }
      if (std::next(place) != alive.end()) {
        const Buffer& above = buffer(std::next(place)->second);
        GRAVEN_CHECK(buffer(i).offset + buffer(i).bytes <= above.offset,
                     buffer(i).name + " and " + above.name + " overlap while both live");
      }
    }
    GRAVEN_CHECK(peak == arena.bytes, "the stated peak is not the peak");
    std::int64_t alive_bytes = 0, most = 0;
    for (const auto& [step, bytes] : change) most = std::max(most, alive_bytes += bytes);
    GRAVEN_CHECK(most == arena.lower_bound, "the stated bound is not the bound");
  }

  /// A mark that stands in the value before the first call, in the graph's memory and in the plan's.
  void given(ValueId v) {
    const Mark mark = next_mark_++;
    in_graph_.of(v) = mark;
    if (place(v).home != Home::alias && place(v).home != Home::arena) planned(v) = mark;
  }
  /// The plan's memory of a value that is not in the arena.
  Mark& planned(ValueId v) {
    const ValueId o = owner(v);
    if (place(o).home == Home::output) return in_plan_.of(Home::output, place(o).buffer);
    if (place(o).home == Home::gradient) return in_plan_.of(Home::gradient, place(o).parameter);
    return in_plan_.of(o);
  }
  Mark read(ValueId v) {
    if (!in_arena(v)) return planned(v);
    const Piece own = piece(v);
    return own.begin < 0 ? kNothing : in_plan_.piece(own);
  }

  /// The value whose memory `v` is where nothing is planned: its own, unless a view made it.
  ValueId memory_in_graph(ValueId v) {
    const auto found = memory_.find(v);
    return found == memory_.end() ? v : found->second;
  }
  static bool prepares(const ir::Node& node) { return node.phase == ir::Phase::prepare; }
  static bool copies(const ir::Node& node) { return node.is(ir::kCopy); }

  /// In the graph's order; notes what each node reads and makes.
  void run_graph(int call) {
    reads_.assign(graph_.nodes.size(), {});
    makes_.assign(graph_.nodes.size(), 0);
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const ir::Node& node = graph_.nodes[n];
      if (call > 0 && prepares(node)) continue;
      if (node.op->alias) {
        memory_[node.outputs[0]] = memory_in_graph(node.inputs[0]);
        continue;
      }
      for (const ValueId v : node.inputs)
        reads_[n].push_back(v == ir::kNone ? kNothing : in_graph_.of(memory_in_graph(v)));
      makes_[n] = next_mark_;
      next_mark_ += static_cast<Mark>(node.outputs.size());
      for (std::size_t i = 0; i < node.outputs.size(); ++i) in_graph_.of(node.outputs[i]) = mark(n, i);
    }
    std::vector<Mark> held;
    for (const ir::Donation& d : graph_.donations) held.push_back(in_graph_.of(memory_in_graph(d.value)));
    for (std::size_t i = 0; i < held.size(); ++i) in_graph_.of(graph_.donations[i].variable) = held[i];
  }
  /// What the node leaves in its output: a copy what it reads.
  Mark mark(std::size_t n, std::size_t output) const {
    return copies(graph_.nodes[n]) ? reads_[n][0] : makes_[n] + static_cast<Mark>(output);
  }

  void run_plan(int call) {
    for (std::size_t s = 0; s < plan_.steps.size(); ++s)
      if (const ir::Node& node = node_of(plan_.steps[s]); !node.op->alias && (call == 0 || !prepares(node)))
        run_step(s);
  }
  void run_step(std::size_t s) {
    const Step& step = plan_.steps[s];
    const ir::Node& node = node_of(step);
    const std::size_t n = at(step.node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      if (v == ir::kNone || is_empty(v)) continue;
      GRAVEN_CHECK(read(v) == reads_[n][i],
                   std::string(node.op->name) + " does not find " + name(v) + " where the plan has it");
      verify_life(v, s, "read");
    }
    // A copy of what was computed where it belongs has nothing to do.
    if (step.call.name.empty()) {
      GRAVEN_CHECK(copies(node) && owner(node.inputs[0]) == owner(node.outputs[0]),
                   std::string(node.op->name) + " is not run");
      return;
    }
    verify_workspace(s);
    const std::size_t own = ir::own_outputs(node).size();
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId v = node.outputs[i];
      if (in_arena(v) && place(owner(v)).buffer < 0) {
        GRAVEN_CHECK(i > 0 || node.op->donates(), name(v) + " is written and has no memory");
        continue;
      }
      verify_writable(v, node);
      verify_life(v, s, "written");
      if (i < own) verify_apart(s, i);
    }
    verify_donated(node);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) write(node.outputs[i], mark(n, i));
    for (const ValueId v : step.last_reads) {
      GRAVEN_CHECK(prepares(node) && !in_arena(v), name(v) + " is given up by a step that is run again");
      planned(v) = kNothing;
      given_up_.insert(v);
    }
  }
  void write(ValueId v, Mark mark) {
    if (!in_arena(v)) {
      planned(v) = mark;
      return;
    }
    if (const Piece own = piece(v); own.begin >= 0) in_plan_.write(own, mark);
  }

  void verify_writable(ValueId v, const ir::Node& node) const {
    const Home home = place(owner(v)).home;
    GRAVEN_CHECK(home != Home::constant && home != Home::hyper,
                 std::string(node.op->name) + " writes into " + name(v) + ", which is constant");
    GRAVEN_CHECK((home == Home::prepared) == prepares(node) || home != Home::prepared,
                 name(v) + " is prepared, and written in every call");
    GRAVEN_CHECK(!prepares(node) || home == Home::prepared,
                 name(v) + " is made once, where each call has memory of its own");
  }
  void verify_life(ValueId v, std::size_t s, const char* what) const {
    const ValueId o = owner(v);
    if (place(o).home != Home::arena || place(o).buffer < 0 || is_empty(v)) return;
    const Buffer& b = plan_.buffers[at(place(o).buffer)];
    GRAVEN_CHECK(at(b.first) <= s && s <= at(b.last), name(v) + " is " + what + " outside its buffer's life");
  }
  void verify_workspace(std::size_t s) const {
    const Step& step = plan_.steps[s];
    const std::string_view op = node_of(step).op->name;
    GRAVEN_CHECK((step.workspace >= 0) == (step.call.workspace_bytes > 0),
                 std::string(op) + " has scratch memory that it does not need, or none");
    if (step.workspace < 0) return;
    GRAVEN_CHECK(at(step.workspace) < plan_.buffers.size(),
                 std::string(op) + " has scratch memory that does not exist");
    const Buffer& b = plan_.buffers[at(step.workspace)];
    const auto here = static_cast<std::int32_t>(s);
    const bool ends = b.last == here || plan_.target->passes.streams.size() > 1;
    GRAVEN_CHECK(b.values.empty() && b.first == here && ends && b.bytes >= step.call.workspace_bytes,
                 b.name + " is too small or at another step");
  }
  /// Where an output lies over an input, the kernel must take that, of every input that lies there.
  void verify_apart(std::size_t s, std::size_t output) {
    const Step& step = plan_.steps[s];
    const ir::Node& node = node_of(step);
    const ValueId v = node.outputs[output];
    if (is_empty(v)) return;
    for (std::size_t other = 0; other < output; ++other)
      GRAVEN_CHECK(is_empty(node.outputs[other]) || !overlap(v, node.outputs[other]),
                   "two results of " + std::string(node.op->name) + " lie in one place");
    ValueId below = ir::kNone;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId x = node.inputs[i];
      if (x == ir::kNone || is_empty(x) || !overlap(v, x)) continue;
      GRAVEN_CHECK(below == ir::kNone || below == x,
                   std::string(node.op->name) + " reads what it overwrites as two shapes");
      below = x;
      const auto input = static_cast<std::int32_t>(i);
      const auto& over = step.call.over;
      const bool takes = (output == 0 && std::count(step.call.in_place.begin(), step.call.in_place.end(), input) > 0) ||
                         std::count(over.begin(), over.end(), std::pair(static_cast<std::int32_t>(output), input)) > 0;
      GRAVEN_CHECK(takes && same_place(v, x),
                   std::string(node.op->name) + " writes " + name(v) + " over " + name(x) + ", which it reads");
    }
  }
  /// What an update changes lies where its result does, of which it has one pointer, and nothing else that it reads or
  /// makes lies there.
  void verify_donated(const ir::Node& node) const {
    std::map<ValueId, std::size_t> inputs, outputs;  // by memory: how many
    for (const ValueId v : node.inputs)
      if (v != ir::kNone && !is_empty(v)) ++inputs[owner(v)];
    for (const ValueId v : node.outputs) ++outputs[owner(v)];
    for (const auto& [input, output] : ir::donated_by(node)) {
      const ValueId from = node.inputs[input], to = node.outputs[output];
      if (is_empty(from)) continue;
      GRAVEN_CHECK(owner(from) == owner(to) && same_place(from, to),
                   name(to) + " does not take over the memory of " + name(from));
      GRAVEN_CHECK(
          inputs[owner(from)] == 1 && outputs[owner(from)] == 1,
          std::string(node.op->name) + " reads " + name(from) + " as something else, too, or changes it twice");
    }
  }
  bool overlap(ValueId a, ValueId b) {
    if (in_arena(a) != in_arena(b)) return false;
    if (!in_arena(a)) return &planned(a) == &planned(b);
    const Piece x = piece(a), y = piece(b);
    return x.begin >= 0 && y.begin >= 0 && x.space == y.space && x.begin < y.end() && y.begin < x.end();
  }
  /// Element upon element.
  bool same_place(ValueId a, ValueId b) const {
    return ir::size_of(graph_.type(a).dtype) == ir::size_of(graph_.type(b).dtype) &&
           bytes_of(graph_.type(a)) == bytes_of(graph_.type(b)) && (!in_arena(a) || piece(a).begin == piece(b).begin);
  }

  /// After a call: what the caller reads is what the graph makes of it.
  void verify_result(ValueId v) {
    if (is_empty(v)) return;
    GRAVEN_CHECK(read(v) == in_graph_.of(memory_in_graph(v)),
                 name(v) + " is a result, but its memory was given to another");
    if (in_arena(v))
      GRAVEN_CHECK(at(plan_.buffers[at(place(owner(v)).buffer)].last) + 1 == plan_.steps.size(),
                   name(v) + " is a result, but its buffer does not live to the end");
  }

  const ir::Graph& graph_;
  const Plan& plan_;
  Memory in_graph_, in_plan_;
  Mark next_mark_ = 0;
  std::map<ValueId, ValueId> memory_;     // of what views made
  std::vector<std::vector<Mark>> reads_;  // by node: of each input
  std::vector<Mark> makes_;               // by node: of its first output; those of the others follow
  std::set<ValueId> given_up_;            // weights that nobody reads after the prepare phase
};

}  // namespace

void verify_plan(const ir::Graph& graph, const Plan& plan) { Verifier(graph, plan).run(); }

}  // namespace graven::codegen
