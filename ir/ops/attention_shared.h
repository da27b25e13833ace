// What attention, its gradient and their lowering share: the sizes behind the operands.
#pragma once

#include <optional>

#include "ir/ops/random_shared.h"
#include "ir/ops/rank_shared.h"
#include "ir/ops/shared.h"

namespace graven::ir::ops {

inline std::vector<AttributeSpec> attention_attributes() {
  std::vector<AttributeSpec> all{
      {"scale", AttributeType::number, 1.0, "what q is multiplied by"},
      {"causal", AttributeType::boolean, false, "query i sees keys 0 to i + offset alone"},
      {"offset", AttributeType::integer, std::int64_t{0}, "where causal: not negative", NumberRange{.least = 0}},
      {"masked_to_zero", AttributeType::boolean, false, "zeros for a query with no score above -infinity"}};
  for (AttributeSpec& of_dropout : dropout_attributes(
           {"p", AttributeType::number, 0.0, "the probability of 0 for a weight, in [0, 1]; 0 where there is no seed"}))
    all.push_back(std::move(of_dropout));
  return all;
}

/// The weights' shape, of which dropout counts the elements.
inline Shape attention_weights(const Shape& q, const Shape& k) {
  Shape weights = q;
  weights[q.rank() - 1] = k.back(1);
  return weights;
}

/// A mask [..., queries or 1, keys] of the scores of q: its leading dimensions are those of q, of which the last ones
/// may be 1, or are left out.
struct AttentionMask {
  Dim repeats = 1;  ///< so many matrices in a row have the mask of one
  Dim rows = 1;     ///< queries, or 1 for all of them
};
/// Nothing where `mask` is none.
inline std::optional<AttentionMask> attention_mask(const Shape& mask, const Shape& q, const Dim& keys) {
  if (mask.rank() < 1 || mask.rank() > q.rank() || mask.back() != keys) return std::nullopt;
  AttentionMask found;
  if (mask.rank() > 1) found.rows = mask.back(1);
  if (found.rows != q.back(1) && found.rows != Dim(1)) return std::nullopt;
  bool is_own = false;  // from here to the front each matrix has its own
  for (std::size_t back = 2; back < q.rank(); ++back) {
    const Dim given = back < mask.rank() ? mask.back(back) : Dim(1);
    if (given != q.back(back) && (is_own || given != Dim(1))) return std::nullopt;
    if (given != q.back(back)) found.repeats = found.repeats * q.back(back);
    if (given != Dim(1)) is_own = true;
  }
  return found;
}

/// So many matrices of q in a row have the keys and values of one of k's. Nothing where their shapes are those of no
/// attention.
inline std::optional<std::int64_t> attention_groups(const Shape& q, const Shape& k, const Shape& v) {
  if (q.rank() < 2 || k.rank() != q.rank() || v != k || q.back() != k.back() || !q.back().is_static())
    return std::nullopt;
  std::int64_t groups = 1;
  for (std::size_t back = 2; back < q.rank(); ++back) {
    if (q.back(back) == k.back(back)) continue;
    if (back != 2 || !q.back(2).is_static() || !k.back(2).is_static() || k.back(2).value() < 1 ||
        q.back(2).value() % k.back(2).value() != 0)
      return std::nullopt;
    groups = q.back(2).value() / k.back(2).value();
  }
  return groups;
}

/// Checks q, k, v and the mask, which are the inputs from `first` on, and the seed and the step, which are those from
/// `seed` on.
inline void check_attention(const InferContext& c, std::size_t first, std::size_t seed) {
  const TensorType &q = c.input(first), &k = c.input(first + 1), &v = c.input(first + 2);
  c.require(attention_groups(q.shape, k.shape, v.shape).has_value(), [&] {
    return "expects q[..., heads, queries, size], k and v[..., heads or a divisor of it, keys, size], got " +
           q.to_string() + ", " + k.to_string() + " and " + v.to_string();
  });
  if (c.has_input(first + 3))
    c.require(attention_mask(c.input(first + 3).shape, q.shape, k.shape.back(1)).has_value(), [&] {
      return "the mask must be [..., queries or 1, keys] of " + q.to_string() + " and " + k.to_string() + ", got " +
             c.input(first + 3).to_string();
    });
  c.require(c.has_input(seed) == c.has_input(seed + 1), "takes a seed and a step, or neither");
  if (!c.has_input(seed)) {
    c.require(c.attributes.number("p") == 0, "drops weights, 'p' > 0, by a seed and a step, and there are none");
    return;
  }
  check_dropout(c, attention_weights(q.shape, k.shape), seed);
  if (c.attributes.integer("ranks") > 1)
    c.require(divide(Dim(c.attributes.integer("run")), q.shape.back(1) * k.shape.back(1)).has_value(), [&] {
      return "'run' must be whole matrices of weights, got " + std::to_string(c.attributes.integer("run"));
    });
}

/// A number for each query.
inline Shape attention_rows(const Shape& q) {
  Shape shape;
  for (std::size_t d = 0; d + 1 < q.rank(); ++d) shape.push_back(q[d]);
  return shape;
}

/// By batches and heads, along which no matrix is divided; a mask of one matrix for all of them is whole on each rank.
/// Each rank drops the weights that one process would drop.
inline void attention_layouts(RankRules& rules, std::size_t first, std::size_t seed) {
  const Shape &q = rules.input(first), weights = attention_weights(q, rules.input(first + 1));
  for (std::size_t d = 0; d + 2 < q.rank(); ++d)
    rules.each_split(q, static_cast<std::int64_t>(d), [&](const RankLayout& layout) {
      if (!can_have(rules.input(first + 1), layout, rules.ranks())) return;
      RankLayouts way = rules.way();
      way.inputs.assign(way.inputs.size(), layout);
      way.outputs.assign(way.outputs.size(), layout);
      if (rules.has_input(first + 3)) {
        const Shape& mask = rules.input(first + 3);
        const std::size_t missing = q.rank() - mask.rank();
        way.inputs[first + 3] = d < missing || mask[d - missing] == Dim(1)
                                    ? RankLayout{}
                                    : RankLayout::split(static_cast<std::int64_t>(d - missing), layout.blocks);
      }
      if (rules.has_input(seed)) {
        if (!product(weights, d + 1, weights.rank()).is_static()) return;
        way.inputs[seed] = way.inputs[seed + 1] = RankLayout{};
        way.attributes.emplace_back("ranks", rules.ranks());
        way.attributes.emplace_back("run", run_of(weights, layout, rules.ranks()).value());
      }
      rules.add(std::move(way));
    });
}

/// Of `products` matrix products of the size of the scores, and a random word of each weight where some are dropped, of
/// which causal ones need half.
inline Cost attention_cost(const NodeView& node, std::size_t first, double products) {
  const Shape &q = node.input(first).shape, &k = node.input(first + 1).shape;
  double all = 2 * products * static_cast<double>(q.numel().maximum()) * static_cast<double>(k.back(1).maximum());
  if (node.attributes().number("p") > 0) all += 20 * static_cast<double>(attention_weights(q, k).numel().maximum());
  return {.flops = node.attributes().flag("causal") ? all / 2 : all};
}

inline std::string attention_remark(const NodeView& node) {
  std::string remark = node.attributes().flag("causal") ? "causal" : "";
  if (const double p = node.attributes().number("p"); p > 0)
    remark += (remark.empty() ? "dropout " : ", dropout ") + text_of(p);
  return remark;
}

/// Cases of q, k, v and perhaps a mask; `add` is given them and the attributes. Those with a 'p' have a seed and a
/// step.
template <class Add>
void each_attention_case(const Add& add) {
  const auto given = [&](std::string note, DType d, Shape q, Shape k, Attributes attributes = {},
                         std::optional<Shape> mask = std::nullopt) {
    add(std::move(note), d, std::move(q), std::move(k), std::move(mask), std::move(attributes));
  };
  const Attributes causal{{"causal", true}, {"scale", 0.5}};
  given("matrices", DType::f32, {5, 8}, {7, 8});
  given("scaled", DType::f32, {2, 3, 6, 4}, {2, 3, 6, 4}, {{"scale", 0.5}});
  given("causal", DType::f32, {2, 3, 37, 16}, {2, 3, 37, 16}, causal);
  given("causal, more keys", DType::f32, {2, 3, 8}, {2, 20, 8}, causal);
  given("causal, more queries", DType::f32, {2, 9, 8}, {2, 3, 8}, causal);
  given("causal, offset", DType::f32, {2, 4, 5}, {2, 9, 5}, {{"causal", true}, {"offset", std::int64_t{5}}});
  given("tiles", DType::f32, {2, 70, 40}, {2, 67, 40}, {{"scale", 0.2}});
  given("large heads", DType::f32, {1, 35, 128}, {1, 40, 128}, {{"causal", true}, {"scale", 0.1}});
  given("grouped queries", DType::f32, {2, 6, 5, 8}, {2, 2, 5, 8}, causal);
  given("one head of keys", DType::f32, {4, 5, 8}, {1, 6, 8});
  given("mask of keys", DType::f32, {2, 3, 5, 4}, {2, 3, 6, 4}, {{"masked_to_zero", true}}, Shape{2, 1, 1, 6});
  given("mask of scores", DType::f32, {2, 3, 5, 4}, {2, 3, 6, 4}, {}, Shape{5, 6});
  given("masks of heads", DType::f32, {2, 3, 5, 4}, {2, 3, 6, 4}, {{"scale", 2.0}}, Shape{2, 3, 5, 6});
  given("mask and causal", DType::f32, {2, 4, 4}, {2, 4, 4}, causal, Shape{4});
  const auto dropping = [](double p, Attributes others = {}) {
    others.set("p", p);
    others.set("stream", std::int64_t{0x3123456789abcdef});
    return others;
  };
  given("dropout", DType::f32, {2, 3, 6, 4}, {2, 3, 6, 4}, dropping(0.5));
  given("dropout, rows of fours", DType::f32, {2, 37, 16}, {2, 44, 16}, dropping(0.1, causal));
  given("dropout, grouped queries and a mask", DType::f32, {2, 6, 5, 8}, {2, 2, 7, 8}, dropping(0.3, causal),
        Shape{2, 1, 1, 7});
  given("dropout, parts of ranks", DType::f32, {2, 3, 4, 4}, {2, 3, 8, 4},
        dropping(0.5, {{"ranks", std::int64_t{2}}, {"run", std::int64_t{3 * 4 * 8}}}));
  given("dropout of nothing", DType::f32, {5, 8}, {7, 8}, dropping(0));
  given("dropout of nearly everything", DType::f32, {5, 8}, {7, 8}, dropping(0.99));
  given("dropout of everything", DType::f32, {5, 8}, {7, 8}, dropping(1));
  given("dropout of one", DType::f32, {1, 1}, {1, 1}, dropping(0.5));
  given("dropout, no queries", DType::f32, {2, 0, 4}, {2, 3, 4}, dropping(0.5));
  given("dropout, no keys", DType::f32, {2, 3, 4}, {2, 0, 4}, dropping(0.5));
  given("one", DType::f32, {1, 1}, {1, 1});
  given("no queries", DType::f32, {2, 0, 4}, {2, 3, 4});
  given("no keys", DType::f32, {2, 3, 4}, {2, 0, 4});
  given("no heads", DType::f32, {0, 3, 4}, {0, 2, 4});
  given("nothing to sum", DType::f32, {2, 3, 0}, {2, 2, 0});
  for (DType d : kFloats) given(std::string(name(d)), d, {2, 4, 4}, {2, 5, 4}, causal);
  for (DType d : kFloats) given(std::string(name(d)) + ", dropout", d, {2, 4, 4}, {2, 5, 4}, dropping(0.25, causal));
}

/// The seed and the step of a case that drops weights, behind its other inputs: `count` of these.
inline void add_numbers_of_dropout(TestCase& c, std::size_t count) {
  if (c.attributes.find("p") == nullptr) return;
  while (c.inputs.size() < count) c.inputs.push_back(absent());
  c.inputs.push_back(random(DType::i64, {}, 0, 1000));
  c.inputs.push_back(random(DType::i64, {}, 1, 1000));
}

}  // namespace graven::ir::ops
