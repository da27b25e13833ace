// Attention is written as two products with a softmax between them. Where the target has kernels for it
// (TargetTraits::attention_size), it becomes one operator, which stores none of the scores, neither forward nor, since
// gradients are made behind this pass, backward:
//
//   matmul(softmax(matmul(q * scale, transposed k)), v)     attention(q, k, v; scale)
//   scores times or divided by a number                     the same
//   a causal softmax                                        attention(...; causal, offset)
//   a softmax of scores + mask                              attention(q, k, v, mask), no mask that is learned
//   where(mask, scores, -infinity), or the opposite         the same, of where(mask, 0, -infinity)
//   dropout between the softmax and the product with v      attention(..., seed, step; p, stream), by the same numbers
//   k and v repeated for each of several heads              attention of those that are repeated
//
// Scores or weights that anything else reads, before dropout or behind it, stay as they are.
//
// One thing changes: what a query does not see, and a hidden score, may be read or not, so that a NaN or an infinity
// there makes a row NaN or does not; and so may a NaN in a row of which dropout keeps nothing.
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "ir/ops/attention_shared.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"

namespace graven::ir {

namespace {

class Attentions {
 public:
  Attentions(Graph& graph, std::int64_t most_size)
      : graph_(graph), most_size_(most_size), uses_(graph), learned_(of_parameters(graph)) {}

  void run() {
    std::map<std::size_t, Match> matches;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n)
      if (std::optional<Match> match = find(graph_.nodes[n])) matches.emplace(n, std::move(*match));
    if (matches.empty()) return;
    Rewriter rewriter(graph_);
    for (std::size_t n = 0; n < rewriter.old().size(); ++n) {
      Node& node = rewriter.old()[n];
      rewriter.forward_inputs(node);
      if (const auto found = matches.find(n); found != matches.end())
        replace(rewriter, node, found->second);
      else
        rewriter.keep(std::move(node));
    }
    rewriter.finish();
  }

 private:
  /// What is added to the scores: a value, or -infinity where a condition is `hides`, and 0 elsewhere.
  struct Mask {
    ValueId value = kNone;
    std::optional<bool> hides = std::nullopt;
  };
  struct Match {
    ValueId q, k, v;
    Mask mask;
    ValueId seed = kNone, step = kNone;
    Attributes attributes;
  };
  struct Scores {
    ValueId q = kNone, k = kNone;
    double scale = 1;
    Mask mask = {};
  };

  /// By value: whether it depends on a parameter.
  static ByValue<bool> of_parameters(const Graph& graph) {
    ByValue<bool> learned;
    for (std::size_t v = 0; v < graph.values.size(); ++v)
      if (graph.values[v].kind == ValueKind::parameter) learned[static_cast<ValueId>(v)] = true;
    for (const Node& node : graph.nodes) {
      bool any = false;
      for (const ValueId v : node.inputs) any = any || learned(v);
      if (!any) continue;
      for (const ValueId v : node.outputs) learned[v] = true;
    }
    return learned;
  }

  const Shape& shape(ValueId v) const { return graph_.type(v).shape; }
  const Node* maker(ValueId v) const { return uses_.maker(graph_, v); }
  const Node* maker(ValueId v, const OpDef& op) const {
    const Node* const node = maker(v);
    return node != nullptr && node->is(op) ? node : nullptr;
  }
  /// The same, of what one node alone reads.
  const Node* private_maker(ValueId v) const { return uses_.only_reader(v) < 0 ? nullptr : maker(v); }

  std::optional<double> number(ValueId v) const {
    const Node* const full = maker(v, kFull);
    if (full == nullptr || !shape(v).empty()) return std::nullopt;
    return full->attributes.number("value");
  }

  std::optional<Match> find(const Node& product) const {
    if (!product.is(kMatmul) || product.inputs.size() != 2 || product.attributes.flag("transpose_a") ||
        product.attributes.flag("transpose_b"))
      return std::nullopt;
    const Node* softmax = private_maker(product.inputs[0]);
    const Node* const dropout = softmax != nullptr && softmax->is(kDropout) ? softmax : nullptr;
    if (dropout != nullptr) {
      if (dropout->phase != product.phase) return std::nullopt;
      softmax = private_maker(dropout->inputs[0]);
    }
    if (softmax == nullptr || !softmax->is(kSoftmax) || softmax->phase != product.phase) return std::nullopt;
    const Shape& weights = shape(product.inputs[0]);
    if (softmax->attributes.integer("dim") + 1 != static_cast<std::int64_t>(weights.rank())) return std::nullopt;
    const DType dtype = graph_.type(product.inputs[0]).dtype;
    if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) return std::nullopt;
    const std::optional<Scores> scores = find_scores(softmax->inputs[0]);
    if (!scores) return std::nullopt;
    Match match{.q = scores->q, .k = scores->k, .v = product.inputs[1], .mask = scores->mask, .attributes = {}};
    const Shape& q = shape(match.q);
    if (graph_.type(match.q) != graph_.type(product.outputs[0]) ||
        !ops::attention_groups(q, shape(match.k), shape(match.v)) || q.back().value() > most_size_)
      return std::nullopt;
    if (match.mask.value != kNone && !ops::attention_mask(shape(match.mask.value), q, weights.back()))
      return std::nullopt;
    const ValueId k = repeated(match.k), v = repeated(match.v);
    if (k != kNone && v != kNone && ops::attention_groups(q, shape(k), shape(v))) {
      match.k = k;
      match.v = v;
    }
    match.attributes = {{"scale", scores->scale},
                        {"causal", softmax->attributes.flag("causal")},
                        {"offset", softmax->attributes.integer("offset")},
                        {"masked_to_zero", softmax->attributes.flag("masked_to_zero")}};
    if (dropout != nullptr) {
      match.seed = dropout->inputs[1];
      match.step = dropout->inputs[2];
      for (const AttributeSpec& spec : dropout->op->attributes)
        match.attributes.set(spec.name, dropout->attributes.at(spec.name));
    }
    return match;
  }

  std::optional<Scores> find_scores(ValueId x) const {
    const Node* const node = private_maker(x);
    if (node == nullptr) return std::nullopt;
    const auto with = [&](ValueId scores, Mask mask) -> std::optional<Scores> {
      if (graph_.type(scores) != graph_.type(x) || learned_(mask.value)) return std::nullopt;
      std::optional<Scores> found = find_product(scores);
      if (found) found->mask = mask;
      return found;
    };
    if (node->is(kAdd))
      for (const std::size_t i : {1, 0})
        if (graph_.type(node->inputs[i]).dtype == graph_.type(x).dtype)
          if (const auto found = with(node->inputs[1 - i], {node->inputs[i]})) return found;
    if (node->is(kWhere))
      for (const std::size_t i : {2, 1})
        if (number(node->inputs[i]) == -INFINITY)
          if (const auto found = with(node->inputs[3 - i], {node->inputs[0], i == 1})) return found;
    return find_product(x);
  }

  /// The product of queries and keys, times a number.
  std::optional<Scores> find_product(ValueId x) const {
    const Node* node = private_maker(x);
    if (node == nullptr) return std::nullopt;
    double scale = 1;
    if (node->is(kMul, kDiv)) {
      for (const std::size_t i : {1, 0})
        if (const std::optional<double> factor = number(node->inputs[i]); factor && (i == 1 || node->is(kMul))) {
          scale = node->is(kMul) ? *factor : 1 / *factor;
          node = private_maker(node->inputs[1 - i]);
          break;
        }
      if (node == nullptr) return std::nullopt;
    }
    if (!node->is(kMatmul) || node->inputs.size() != 2 || node->attributes.flag("transpose_a")) return std::nullopt;
    Scores found{.q = node->inputs[0], .k = node->inputs[1], .scale = scale};
    if (!node->attributes.flag("transpose_b")) {
      const Node* const transposed = maker(found.k, kPermute);
      if (transposed == nullptr) return std::nullopt;
      const Ints& dims = transposed->attributes.integers("dims");
      Ints swapped(dims.size());
      for (std::size_t d = 0; d < dims.size(); ++d) swapped[d] = static_cast<std::int64_t>(d);
      if (dims.size() < 2) return std::nullopt;
      std::swap(swapped[dims.size() - 1], swapped[dims.size() - 2]);
      if (dims != swapped) return std::nullopt;
      found.k = transposed->inputs[0];
    }
    if (const Node* const scaled = maker(found.q, kMul))
      for (const std::size_t i : {1, 0})
        if (const std::optional<double> factor = number(scaled->inputs[i])) {
          found.scale *= *factor;
          found.q = scaled->inputs[1 - i];
          break;
        }
    return found;
  }

  /// Where x is another value of which each matrix is repeated: that value. x [..., heads * repeats, rows, size] is
  /// reshaped from what [..., heads, 1, rows, size] is expanded to.
  ValueId repeated(ValueId x) const {
    const Node* const joined = maker(x, kReshape);
    const Node* const wide = joined != nullptr ? maker(joined->inputs[0], kExpand) : nullptr;
    const Node* const narrow = wide != nullptr ? maker(wide->inputs[0], kReshape) : nullptr;
    if (narrow == nullptr) return kNone;
    const Shape &all = shape(x), &from = shape(narrow->inputs[0]), &one = shape(wide->inputs[0]),
                &expanded = shape(joined->inputs[0]);
    const std::size_t rank = all.rank();
    if (rank < 3 || from.rank() != rank || one.rank() != rank + 1 || expanded.rank() != rank + 1) return kNone;
    for (std::size_t back = 0; back < rank; ++back) {
      const std::size_t in_wide = back < 2 ? back : back + 1;
      if (from.back(back) != one.back(in_wide) || from.back(back) != expanded.back(in_wide)) return kNone;
      if (back != 2 && from.back(back) != all.back(back)) return kNone;
    }
    return one.back(2) == Dim(1) ? narrow->inputs[0] : kNone;
  }

  void replace(Rewriter& rewriter, const Node& product, Match& match) {
    std::vector<ValueId> inputs{match.q, match.k, match.v};
    if (match.mask.value != kNone || match.seed != kNone) inputs.push_back(match.mask.value);
    if (match.seed != kNone) inputs.insert(inputs.end(), {match.seed, match.step});
    for (ValueId& v : inputs) v = rewriter.resolve(v);
    const ValueId y = product.outputs[0];
    if (match.mask.hides) inputs[3] = as_numbers(rewriter, match.mask, inputs[3], product);
    const std::string& old = graph_.value(y).name;
    constexpr std::string_view kProduct = "matmul";
    const std::string name =
        old.ends_with(kProduct) ? old.substr(0, old.size() - kProduct.size()) + std::string(kAttention.name) : old;
    const ValueId made = graph_.add_node(kAttention, std::move(inputs), std::move(match.attributes), product.origins,
                                         product.phase, name)[0];
    if (uses_.is_result(y)) graph_.swap_names(y, made);
    rewriter.replace(y, made);
  }

  /// -infinity for what is hidden, and 0; once of each mask.
  ValueId as_numbers(Rewriter& rewriter, const Mask& mask, ValueId condition, const Node& product) {
    const DType dtype = graph_.type(product.outputs[0]).dtype;
    ValueId& made = numbers_.emplace(std::tuple(condition, *mask.hides, dtype), kNone).first->second;
    if (made != kNone) return made;
    const std::string& of = graph_.value(condition).name;
    const auto full = [&](double value, const char* name) {
      return rewriter.add(kFull, {}, {{"shape", Shape{}}, {"value", value}, {"dtype", dtype}}, product.origins,
                          product.phase, of + "." + name);
    };
    const ValueId hidden = full(-INFINITY, "hidden"), seen = full(0, "seen");
    made = rewriter.add(kWhere, {condition, *mask.hides ? hidden : seen, *mask.hides ? seen : hidden}, {},
                        product.origins, product.phase, of + ".numbers");
    return made;
  }

  Graph& graph_;
  std::int64_t most_size_;
  const Uses uses_;
  const ByValue<bool> learned_;
  std::map<std::tuple<ValueId, bool, DType>, ValueId> numbers_;
};

}  // namespace

void recognize_attention(Graph& graph, const PassOptions& options) {
  Attentions(graph, options.target->attention_size).run();
  remove_dead_nodes(graph, options);
}

}  // namespace graven::ir
