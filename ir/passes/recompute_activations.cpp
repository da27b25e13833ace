// Computes again, in the backward phase, what backward reads of the forward phase, instead of keeping it until then.
// What is computed again is a copy of the forward node, with its attributes (a dropout's stream of random numbers is
// one of them) and on the same values or on such copies, right before what reads it first: so every number is the same.
//
//   forward   h = linear(x, w)                     h = linear(x, w)
//             y = gelu(h)                          y = gelu(h)
//   backward  gw = linear_backward_weight(dy, y)   y.again = gelu(h)   (recomputes)
//                                                  gw = linear_backward_weight(dy, y.again)
//
// First the modules that ask for it (Graph::checkpoints). A gradient's node that belongs to a call reads copies of what
// the call computed; what others need of it in any case is kept, and read by all. A call within such a call is computed
// again from copies of what it was given, when its own gradients are.
//
// Then a memory budget (Graph::config, "memory_budget"): as long as the arena is too large, values are dropped, those
// first that free the most bytes above the budget, over the steps of the program, for the seconds that computing them
// again takes (seconds_of); values of one kind, in blocks that repeat, together, so that blocks stay alike. At the end
// those are kept after all that there is room for. This greedy choice is that of a knapsack, with costs that depend on
// what else was dropped; compare PyTorch's activation_memory_budget, and Checkmate (Jain et al. 2020) for the exact
// optimum. How many bytes are alive is estimated from the nodes' order; the target, where it plans, says what the
// program comes to, and the estimate's budget moves until that fits.
#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/analysis.h"
#include "ir/call.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

/// Where a copy belongs: to a call of a module, by its place in Graph::checkpoints, from 1, or to the whole graph. What
/// belongs to none is what forward has computed.
using Scope = std::uint32_t;
constexpr Scope kOriginal = 0, kWholeGraph = std::numeric_limits<Scope>::max();

std::size_t bytes_of(const TensorType& type) { return at(type.shape.numel().maximum()) * size_of(type.dtype); }

/// What of the graph is the same whatever is computed again.
struct Structure {
  explicit Structure(const Graph& graph) : root(memory_roots(graph)) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      if (graph.nodes[n].phase != Phase::forward) continue;
      for (const ValueId v : graph.nodes[n].outputs) maker[v] = static_cast<NodeId>(n);
      if (graph.nodes[n].attributes.flag_or("over_ranks", false))
        for (const ValueId v : graph.nodes[n].outputs) is_made_once[v] = true;
    }
    const Uses uses(graph);
    for (std::size_t v = 0; v < graph.values.size(); ++v)
      if (uses.is_result(static_cast<ValueId>(v))) is_kept[root[v]] = true;
    for (const Node& node : graph.nodes)
      if (node.phase == Phase::update)
        for (const ValueId v : node.inputs)
          if (v != kNone) is_kept[root[at(v)]] = true;
  }
  /// Whether forward computes it: views of parameters and inputs are there anyway.
  bool is_computed(ValueId v) const { return v != kNone && maker(v) >= 0 && maker(root[at(v)]) >= 0; }

  std::vector<ValueId> root;
  ByValue<NodeId> maker{-1};   ///< in the forward phase
  ByValue<bool> is_kept;       ///< by root: read behind backward, or after the step
  ByValue<bool> is_made_once;  ///< by root: ranks have talked about it, which they do not do again
};

/// The copies that a choice makes, in the order in which backward needs them.
///   scope_of(v, reader): where what `reader`, the scope of a copy or of a gradient's node, reads of v belongs to
///   emit(maker, scope): computes it
template <class ScopeOf, class Emit>
class Demand {
 public:
  Demand(const std::vector<Node>& nodes, const Structure& structure, ScopeOf scope_of, Emit emit)
      : nodes_(nodes), structure_(structure), scope_of_(scope_of), emit_(emit) {}

  /// What a node of the backward phase needs.
  void meet(const Node& node, Scope scope) {
    needed_.clear();
    ask(node, scope);
    // Forward's order is one in which each finds its inputs.
    for (std::size_t next = 0; next < needed_.size(); ++next)
      ask(nodes_[at(needed_[next].first)], needed_[next].second);
    std::sort(needed_.begin(), needed_.end());
    for (const auto& [maker, own] : needed_) emit_(maker, own);
  }

 private:
  void ask(const Node& node, Scope scope) {
    for (const ValueId v : node.inputs) {
      if (!structure_.is_computed(v)) continue;
      const Scope own = scope_of_(v, scope);
      if (own == kOriginal) continue;
      const std::pair key(structure_.maker(v), own);
      if (made_.insert(key).second) needed_.push_back(key);
    }
  }

  const std::vector<Node>& nodes_;
  const Structure& structure_;
  ScopeOf scope_of_;
  Emit emit_;
  std::set<std::pair<NodeId, Scope>> made_;
  std::vector<std::pair<NodeId, Scope>> needed_;
};

/// Puts the copies into the graph. `scope_of_node`: that of a node of the backward phase.
template <class ScopeOf, class ScopeOfNode>
void insert_copies_of(Graph& graph, const Structure& structure, ScopeOf scope_of, ScopeOfNode scope_of_node) {
  const std::vector<Node> old = std::move(graph.nodes);
  graph.nodes.clear();
  std::map<std::pair<ValueId, Scope>, ValueId> again;
  const auto forward_inputs = [&](Node& node, Scope scope) {
    for (ValueId& v : node.inputs)
      if (structure.is_computed(v))
        if (const Scope own = scope_of(v, scope); own != kOriginal) v = again.at({v, own});
  };
  Demand demand(old, structure, scope_of, [&](NodeId maker, Scope scope) {
    Node copy = old[at(maker)];
    // Running statistics have advanced, and nobody reads them of a copy.
    if (copy.is(kBatchNormTraining)) copy.inputs.resize(std::min<std::size_t>(copy.inputs.size(), 3));
    forward_inputs(copy, scope);
    for (ValueId& v : copy.outputs) {
      const ValueId own = graph.add_value(graph.value(v).name + ".again", ValueKind::node, graph.type(v));
      again.emplace(std::pair(v, scope), own);
      v = own;
    }
    copy.phase = Phase::backward;
    copy.recomputes = true;
    graph.nodes.push_back(std::move(copy));
  });
  for (Node node : old) {
    if (node.phase == Phase::backward) {
      const Scope scope = scope_of_node(node);
      demand.meet(node, scope);
      forward_inputs(node, scope);
    }
    graph.nodes.push_back(std::move(node));
  }
}

// ---- modules --------------------------------------------------------------------------------------------------------

class Checkpoints {
 public:
  explicit Checkpoints(const Graph& graph) : graph_(graph) {}

  /// The innermost call that both are part of, or are.
  Scope common(Scope a, Scope b) const {
    while (a != b) (a > b ? a : b) = within(std::max(a, b));
    return a;
  }
  /// The innermost call that all of the node is part of.
  Scope of(const Node& node) const {
    if (node.origins.empty()) return kOriginal;
    Scope scope = node.origins[0].checkpoint;
    for (const Origin& o : node.origins) scope = common(scope, o.checkpoint);
    return scope;
  }

 private:
  /// Each is within one that stands before it.
  Scope within(Scope call) const { return graph_.checkpoints[call - 1].within; }
  const Graph& graph_;
};

void recompute_modules(Graph& graph) {
  const Structure structure(graph);
  const Checkpoints checkpoints(graph);
  std::vector<Scope> scopes;
  for (const Node& node : graph.nodes) scopes.push_back(checkpoints.of(node));
  ByValue<bool> is_kept = structure.is_kept;
  for (std::size_t v = 0; v < graph.values.size(); ++v)
    if (structure.is_made_once(static_cast<ValueId>(v))) is_kept[static_cast<ValueId>(v)] = true;
  const auto scope_of = [&](ValueId v, Scope reader) {
    return is_kept(structure.root[at(v)]) ? kOriginal : checkpoints.common(scopes[at(structure.maker(v))], reader);
  };
  // What somebody needs as it is, is there for all.
  ByValue<bool> is_needed = is_kept;
  const auto note = [&](const Node& node, Scope scope) {
    for (const ValueId v : node.inputs)
      if (structure.is_computed(v) && scope_of(v, scope) == kOriginal) is_needed[structure.root[at(v)]] = true;
  };
  Demand demand(graph.nodes, structure, scope_of,
                [&](NodeId maker, Scope scope) { note(graph.nodes[at(maker)], scope); });
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].phase != Phase::backward) continue;
    demand.meet(graph.nodes[n], scopes[n]);
    note(graph.nodes[n], scopes[n]);
  }
  is_kept = is_needed;
  insert_copies_of(graph, structure, scope_of, [&](const Node& node) { return checkpoints.of(node); });
}

// ---- a budget -------------------------------------------------------------------------------------------------------

/// Chooses what is kept from forward to backward, by estimates of what that comes to.
class Search {
 public:
  using Kept = std::vector<char>;  ///< by root: whether it is there for backward as forward has computed it

  struct Estimate {
    double seconds = 0;     ///< of what is computed again
    double excess = 0;      ///< bytes above the limit, over the steps
    std::int64_t peak = 0;  ///< bytes
  };

  Search(const Graph& graph, const TargetTraits& target) : graph_(graph), structure_(graph) {
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      const bool is_own = graph.values[v].kind == ValueKind::node && at(structure_.root[v]) == v;
      bytes_.push_back(is_own ? static_cast<std::int64_t>(bytes_of(graph.values[v].type) + 63) / 64 * 64 : 0);
    }
    // What variables are to hold lies where they do, and gradients of parameters have a place of their own.
    for (const Node& node : graph.nodes)
      for (const auto& [input, output] : donated_by(node)) bytes_[at(node.outputs[output])] = 0;
    if (!updates_in_backward(graph)) place_gradients();
    ByValue<ValueId> viewed{kNone};
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      Work& work = work_.emplace_back();
      work.seconds = seconds_of(cost_of({graph, node}));
      work.is_backward = node.phase == Phase::backward;
      if (target.lower != nullptr) {
        const KernelCall call = target.lower({graph, node});
        for (const std::int32_t input : call.in_place) work.over.push_back({0, input});
        work.over.insert(work.over.end(), call.over.begin(), call.over.end());
        work.scratch = call.workspace_bytes.value_or(0);
      }
      if (node.phase <= Phase::forward) first_of_backward_ = n + 1;
      for (ValueId v : node.inputs) {
        // With updates in backward a gradient is gone where it was made; what else updates read is kept anyway.
        if (v == kNone || node.phase == Phase::update) continue;
        if (viewed(v) != kNone) v = viewed(v);
        const ValueId root = structure_.root[at(v)];
        work.reads.push_back({root, structure_.is_computed(v) ? structure_.maker(v) : -1});
      }
      // A view that backward makes of what forward has computed is one of its copy, where it has one.
      if (node.op->alias && work.is_backward)
        viewed[node.outputs[0]] = viewed(node.inputs[0]) == kNone ? node.inputs[0] : viewed(node.inputs[0]);
      if (!node.op->alias) work.writes.assign(node.outputs.begin(), node.outputs.end());
    }
    const Kept none(graph.values.size(), 0);
    pinned_ = everything_ = none;
    for (std::size_t v = 0; v < graph.values.size(); ++v)
      pinned_[v] = everything_[v] = structure_.is_kept(static_cast<ValueId>(v)) ? 1 : 0;
    if (updates_in_backward(graph))
      for (const Gradient& g : graph.gradients) pinned_[at(structure_.root[at(g.value)])] = 0;
    find_groups();
    borders_ = {none, narrow_places(), ends_of_elements()};
  }

  const Kept& everything() const { return everything_; }

  /// What is kept so that no more than `limit` bytes are alive at once, as it is estimated; nothing where that was not
  /// found. Of several ways the one that takes the least time: where a network is cut into parts that are computed
  /// again each for itself, what stands between them is kept.
  std::optional<Kept> search(std::int64_t limit) {
    limit_ = limit;
    std::optional<Kept> best;
    double least = 0;
    for (const Kept& border : borders_) {
      std::optional<Kept> kept = drop(border);
      if (!kept) continue;
      if (const double seconds = estimate(*kept).seconds; !best || seconds < least) {
        least = seconds;
        best = std::move(kept);
      }
    }
    return best;
  }

  Estimate estimate(const Kept& kept) {
    Estimate found;
    ++turn_;
    computed_in_.resize(graph_.nodes.size(), 0);
    sequence_.clear();
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (work_[n].is_backward) {
        const std::size_t first = sequence_.size();
        ask(n, kept);
        for (std::size_t next = first; next < sequence_.size(); ++next) ask(sequence_[next].node, kept);
        std::sort(sequence_.begin() + static_cast<std::ptrdiff_t>(first), sequence_.end(),
                  [](const Step& a, const Step& b) { return a.node < b.node; });
        for (std::size_t s = first; s < sequence_.size(); ++s) found.seconds += work_[sequence_[s].node].seconds;
      }
      sequence_.push_back({n, false});
    }
    // When each value, and its copy, is read for the last time.
    for (auto& last : last_) last.assign(graph_.values.size(), -1);
    const auto is_copy = [&](const Step& step, const Read& read) {
      return read.maker >= 0 && !kept[at(read.root)] && (step.again || work_[step.node].is_backward);
    };
    for (std::size_t s = 0; s < sequence_.size(); ++s)
      for (const Read& read : work_[sequence_[s].node].reads)
        last_[is_copy(sequence_[s], read)][at(read.root)] = static_cast<std::int32_t>(s);
    std::int64_t live = 0;
    for (std::size_t s = 0; s < sequence_.size(); ++s) {
      const Step& step = sequence_[s];
      const Work& work = work_[step.node];
      if (work.writes.empty()) continue;
      const auto dies = [&](const Read& read) {
        return last_[is_copy(step, read)][at(read.root)] == static_cast<std::int32_t>(s) &&
               (is_copy(step, read) || !pinned_[at(read.root)]);
      };
      std::int64_t made = 0, freed = 0, replaced = 0;
      taken_.clear();
      for (const auto& [output, input] : work.over) {
        const ValueId v = graph_.nodes[step.node].inputs[at(input)];
        if (v == kNone || std::count(taken_.begin(), taken_.end(), output) > 0) continue;
        const auto read = std::find_if(work.reads.begin(), work.reads.end(),
                                       [&](const Read& r) { return r.root == structure_.root[at(v)]; });
        if (read == work.reads.end() || !dies(*read) || bytes_[at(read->root)] != bytes_[at(work.writes[at(output)])])
          continue;
        taken_.push_back(output);
        replaced += bytes_[at(read->root)];
      }
      for (std::size_t i = 0; i < work.writes.size(); ++i) {
        const std::size_t v = at(work.writes[i]);
        const bool is_read = last_[step.again][v] >= 0 || (!step.again && pinned_[v]);
        if (is_read || i == 0) made += bytes_[v];
        if (!is_read && i == 0) freed += bytes_[v];
      }
      for (const Read& read : work.reads) {
        if (!dies(read)) continue;
        last_[is_copy(step, read)][at(read.root)] = -1;  // it is freed once
        freed += bytes_[at(read.root)];
      }
      const std::int64_t peak = live + made - replaced + work.scratch;
      found.peak = std::max(found.peak, peak);
      if (peak > limit_) found.excess += static_cast<double>(peak - limit_);
      live += made - freed;
    }
    return found;
  }

  /// Computes again what is not kept, in a graph like the one that was looked at.
  void apply(Graph& graph, const Kept& kept) const {
    insert_copies_of(
        graph, structure_, [&](ValueId v, Scope) { return kept[at(structure_.root[at(v)])] ? kOriginal : kWholeGraph; },
        [](const Node&) { return kWholeGraph; });
  }

 private:
  struct Read {
    ValueId root;
    NodeId maker;  ///< in forward, of what is read of it; -1: it is there anyway
  };
  struct Work {
    double seconds = 0;
    bool is_backward = false;
    std::int64_t scratch = 0;                                 ///< bytes
    std::vector<std::pair<std::int32_t, std::int32_t>> over;  ///< outputs, and inputs whose memory they may take over
    std::vector<Read> reads;
    std::vector<ValueId> writes;
  };
  struct Step {
    std::size_t node;
    bool again;
  };
  /// Values that are alike but for the block that they are part of, in order.
  using Group = std::vector<ValueId>;

  /// Gradients of parameters, and terms of such a gradient, which are added up where it lies.
  void place_gradients() {
    const Uses uses(graph_);
    std::vector<ValueId> placed;
    for (const Gradient& g : graph_.gradients) placed.push_back(structure_.root[at(g.value)]);
    for (std::size_t i = 0; i < placed.size(); ++i) {
      bytes_[at(placed[i])] = 0;
      const Node* const maker = uses.maker(graph_, placed[i]);
      if (maker == nullptr || maker->phase != Phase::backward) continue;
      for (const ValueId v : maker->inputs)
        if (v != kNone && bytes_[at(v)] > 0 && graph_.type(v) == graph_.type(placed[i]) && uses.only_reader(v) >= 0)
          placed.push_back(v);
    }
  }

  /// Puts what the node reads, and has to be computed again, at the end of the sequence.
  void ask(std::size_t node, const Kept& kept) {
    for (const Read& read : work_[node].reads)
      if (read.maker >= 0 && !kept[at(read.root)] && std::exchange(computed_in_[at(read.maker)], turn_) != turn_)
        sequence_.push_back({at(read.maker), true});
  }

  static void set(Kept& kept, const Group& group, std::size_t from, bool value) {
    for (std::size_t i = from; i < group.size(); ++i) kept[at(group[i])] = value ? 1 : 0;
  }

  /// Drops groups of values, but not those in `border`, until the limit is met: always that which takes the most bytes
  /// above it, over the steps, for the seconds that it costs.
  std::optional<Kept> drop(const Kept& border) {
    Kept kept = everything_;
    std::vector<Group> groups;
    for (const Group& all : groups_) {
      Group group;
      for (const ValueId v : all)
        if (!border[at(v)]) group.push_back(v);
      if (!group.empty()) groups.push_back(std::move(group));
    }
    Estimate now = estimate(kept);
    struct Entry {
      double score;
      std::size_t group;
      bool operator<(const Entry& other) const {
        return score != other.score ? score < other.score : group > other.group;
      }
    };
    const auto without = [&](std::size_t group) {
      set(kept, groups[group], 0, false);
      const Estimate then = estimate(kept);
      set(kept, groups[group], 0, true);
      return then;
    };
    const auto score_of = [&](const Estimate& then) {
      const double gain = now.excess - then.excess;
      return gain <= 0 ? 0 : gain / std::max(then.seconds - now.seconds, 1e-12);
    };
    std::priority_queue<Entry> queue;
    std::vector<std::size_t> useless, dropped;
    for (std::size_t g = 0; g < groups.size() && now.excess > 0; ++g) queue.push({score_of(without(g)), g});
    while (now.excess > 0) {
      if (queue.empty()) return std::nullopt;
      const std::size_t g = queue.top().group;
      queue.pop();
      const Estimate then = without(g);
      const double score = score_of(then);
      if (score <= 0) {
        useless.push_back(g);
      } else if (!queue.empty() && score < queue.top().score) {
        queue.push({score, g});  // what it was worth before others were dropped
      } else {
        set(kept, groups[g], 0, false);
        now = then;
        dropped.push_back(g);
        for (const std::size_t other : useless) queue.push({score_of(without(other)), other});
        useless.clear();
      }
    }
    keep_after_all(kept, groups, dropped);
    return kept;
  }

  /// Keeps what there is room for, the costliest first: whole groups, and then the last ones of one group.
  void keep_after_all(Kept& kept, const std::vector<Group>& groups, std::vector<std::size_t> dropped) {
    const auto seconds_of_group = [&](std::size_t g) {
      double seconds = 0;
      for (const ValueId v : groups[g]) seconds += work_[at(structure_.maker(v))].seconds;
      return seconds;
    };
    std::stable_sort(dropped.begin(), dropped.end(),
                     [&](std::size_t a, std::size_t b) { return seconds_of_group(a) > seconds_of_group(b); });
    const auto fits = [&](std::size_t g, std::size_t from) {
      Kept more = kept;
      set(more, groups[g], from, true);
      if (estimate(more).excess > 0) return false;
      kept = std::move(more);
      return true;
    };
    std::vector<std::size_t> rest;
    for (const std::size_t g : dropped)
      if (!fits(g, 0)) rest.push_back(g);
    for (const std::size_t g : rest) {
      std::size_t out = 0, in = groups[g].size();  // from `in` on they fit
      while (out + 1 < in) {
        const std::size_t middle = (out + in) / 2;
        (fits(g, middle) ? in : out) = middle;
      }
      if (in < groups[g].size()) return;
    }
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  }

  /// "add model.h.*.mlp.add f32[2,4]" of "model.h.3.mlp.add_2": without numbers of elements of a list, and those that
  /// tell names apart.
  std::string kind_of(const Node& maker, ValueId v) const {
    std::string kind(maker.op->name);
    std::string_view rest = graph_.value(v).name;
    while (!rest.empty()) {
      const std::string_view part = rest.substr(0, rest.find('.'));
      rest.remove_prefix(std::min(rest.size(), part.size() + 1));
      const std::size_t bar = part.rfind('_');
      const bool is_told_apart = bar != std::string_view::npos && is_number(part.substr(bar + 1)) && rest.empty();
      kind.append(" ").append(is_number(part) ? "*" : is_told_apart ? part.substr(0, bar) : part);
    }
    return kind + " " + graph_.type(v).to_string();
  }

  void find_groups() {
    ByValue<bool> is_candidate;
    for (std::size_t n = first_of_backward_; n < work_.size(); ++n)
      for (const Read& read : work_[n].reads)
        if (read.maker >= 0) is_candidate[read.root] = true;
    std::map<std::string, std::size_t> known;
    for (std::size_t n = 0; n < first_of_backward_; ++n)
      for (const ValueId v : work_[n].writes) {
        if (structure_.is_made_once(v)) everything_[at(v)] = 1;
        if (!is_candidate(v) || pinned_[at(v)] || bytes_[at(v)] == 0 || structure_.is_made_once(v)) continue;
        everything_[at(v)] = 1;
        const auto [found, fresh] = known.emplace(kind_of(graph_.nodes[n], v), groups_.size());
        if (fresh) groups_.emplace_back();
        groups_[found->second].push_back(v);
      }
  }

  /// Values that nearly all that forward has alive at some place are: the residual stream of a transformer.
  Kept narrow_places() const {
    std::vector<std::size_t> last(graph_.values.size(), 0);
    for (std::size_t n = 0; n < first_of_backward_; ++n)
      for (const Read& read : work_[n].reads) last[at(read.root)] = n;
    Kept narrow(graph_.values.size(), 0);
    std::set<ValueId> alive;
    for (std::size_t n = 0; n < first_of_backward_; ++n) {
      for (const Read& read : work_[n].reads)
        if (last[at(read.root)] == n) alive.erase(read.root);
      for (const ValueId v : work_[n].writes)
        if (last[at(v)] > n) alive.insert(v);
      std::int64_t all = 0;
      ValueId largest = kNone;
      for (const ValueId v : alive) {
        all += bytes_[at(v)];
        if (largest == kNone || bytes_[at(v)] > bytes_[at(largest)]) largest = v;
      }
      if (largest != kNone && bytes_[at(largest)] * 10 >= all * 9) narrow[at(largest)] = 1;
    }
    return narrow;
  }

  /// Values that one element of a list of modules gives to others: "model.h.3".
  Kept ends_of_elements() const {
    const auto element_of = [](const Node& node) {
      const std::string path = owner_of(node.origins);
      for (std::size_t begin = 0; begin < path.size();) {
        const std::size_t end = std::min(path.find('.', begin), path.size());
        if (is_number(std::string_view(path).substr(begin, end - begin))) return path.substr(0, end);
        begin = end + 1;
      }
      return std::string();
    };
    Kept ends(graph_.values.size(), 0);
    for (std::size_t n = 0; n < first_of_backward_; ++n) {
      const std::string reader = element_of(graph_.nodes[n]);
      for (const Read& read : work_[n].reads)
        if (read.maker >= 0 && element_of(graph_.nodes[at(structure_.maker(read.root))]) != reader)
          ends[at(read.root)] = 1;
    }
    return ends;
  }

  const Graph& graph_;
  const Structure structure_;
  std::vector<Work> work_;           // by node
  std::vector<std::int64_t> bytes_;  // by value: of roots that lie in the arena
  Kept pinned_;                      // by root: there until the step ends
  Kept everything_;
  std::size_t first_of_backward_ = 0;
  std::vector<Group> groups_;
  std::vector<Kept> borders_;  // what is kept in any case, a way each
  std::int64_t limit_ = 0;
  // Of one estimate.
  std::uint32_t turn_ = 0;
  std::vector<std::uint32_t> computed_in_;  // by node: the estimate that has it in its sequence again
  std::vector<Step> sequence_;
  std::vector<std::int32_t> last_[2], taken_;
};

class Budget {
 public:
  Budget(Graph& graph, const PassOptions& options)
      : graph_(graph), options_(options), budget_(graph.count(kMemoryBudget)), search_(graph, *options.target) {}

  void run() {
    const Search::Kept& everything = search_.everything();
    const std::int64_t whole = search_.estimate(everything).peak, planned = bytes_with(everything);
    if (planned <= budget_) return;
    // The estimate leaves out scratch memory, and gaps: it is told another budget until the plan is within its own.
    std::optional<Search::Kept> best;
    std::int64_t limit = budget_ - (planned - whole), least_too_large = whole;
    constexpr int kTurns = 8;  // each plans the program once
    for (int turn = 0; turn < kTurns; ++turn) {
      const std::optional<Search::Kept> kept = search_.search(limit);
      if (!kept) break;
      const std::int64_t bytes = bytes_with(*kept);
      if (bytes <= budget_) {
        best = kept;
        if (least_too_large - limit <= whole / 256) break;
        const std::int64_t next = std::min(limit + (budget_ - bytes), limit + (least_too_large - limit) / 2);
        if (next <= limit + whole / 256) break;
        largest_fitting_ = limit;
        limit = next;
      } else {
        least_too_large = std::min(least_too_large, limit);
        const std::int64_t next = best ? largest_fitting_ + (limit - largest_fitting_) / 2 : limit - (bytes - budget_);
        if (best && next <= largest_fitting_ + whole / 256) break;
        limit = next;
      }
    }
    if (!best) best = least();
    search_.apply(graph_, *best);
  }

 private:
  /// What takes the fewest bytes. User error where these are too many.
  Search::Kept least() {
    std::int64_t out = 0, in = search_.estimate(search_.everything()).peak;
    std::optional<Search::Kept> kept = search_.everything();
    const std::int64_t enough = in / 128;
    while (out + enough < in) {
      const std::int64_t middle = out + (in - out) / 2;
      if (std::optional<Search::Kept> fewer = search_.search(middle)) {
        in = middle;
        kept = std::move(fewer);
      } else {
        out = middle;
      }
    }
    if (const std::int64_t bytes = bytes_with(*kept); bytes > budget_)
      throw UserError("the memory budget is " + std::to_string(budget_) + " bytes, and the arena of " + graph_.name +
                      " takes " + std::to_string(bytes) +
                      ", the fewest that were found, with all recomputed that helps")
          .note("not counted are parameters, their gradients, buffers, optimizer state and inputs")
          .note(updates_in_backward(graph_) ? "a smaller batch takes less" : "a smaller batch takes less");
    return *std::move(kept);
  }

  /// The arena of what comes of the choice.
  std::int64_t bytes_with(const Search::Kept& kept) {
    if (options_.target->arena_bytes == nullptr) return search_.estimate(kept).peak;
    Graph whole = graph_;
    search_.apply(whole, kept);
    whole.stage = "recompute_activations";
    PassOptions rest = options_;
    rest.from = rest.to = rest.dump_directory = {};
    rest.verify = false;
    finish_passes(whole, rest);
    return options_.target->arena_bytes(whole, *options_.target);
  }

  Graph& graph_;
  const PassOptions& options_;
  const std::int64_t budget_;
  Search search_;
  std::int64_t largest_fitting_ = 0;
};

}  // namespace

bool recomputes_activations(const Graph& graph) {
  return (!graph.checkpoints.empty() || graph.count(kMemoryBudget) > 0) &&
         std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.phase == Phase::backward; });
}

void recompute_activations(Graph& graph, const PassOptions& options) {
  if (!graph.checkpoints.empty()) recompute_modules(graph);
  if (graph.count(kMemoryBudget) > 0) Budget(graph, options).run();
}

}  // namespace graven::ir
