// Rewrites single nodes by identities that hold for every input, NaN, infinities and zeros of either sign included:
//
//   x - 0, x + -0.0, x * 1, x / 1, x ** 1         x                      x * -1, -0.0 - x        neg(x)
//   x + 0, 0 - x, of integers                     x, neg(x)
//   x / 2**n, 1 / 2**n exact                      x * (1 / 2**n)         x ** 2, x ** -1         square, reciprocal
//   neg(neg(x)), not(not(x)), relu(relu(x))       x, x, relu(x)          x + neg(y), x - neg(y)  x - y, x + y
//   (x * a) * 2**n                                x * (a * 2**n)         where(c, x, x)          x
//   reshape, permute, expand, cast of one of its kind, or that change nothing: one, or none
//   permute that moves only dimensions of size 1  reshape                a reduction of size 1   reshape
//   an operand that is expanded, or full of one number: broadcasting does it
//   where(y > a, max_pool2d_backward(dz), 0)      max_pool2d_backward(where(z > a, dz, 0)), z = max_pool2d(y): the mask
//                                                 of a relu before pooling, taken where there are fewer elements, and
//                                                 y need not live until then
//   matmul of transposed operands                 matmul's flags
//   detach                                        nothing (autograd has run)
//   reshape(linear(x, w)) - y                     reshape(linear(x, w) - reshape(y)): next to its product it can become
//                                                 the product's epilogue
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "ir/tensor_value.h"

namespace graven::ir {

namespace {

bool is_power_of_two(double x) {
  int exponent = 0;
  return std::isfinite(x) && x != 0 && std::abs(std::frexp(x, &exponent)) == 0.5 && std::abs(exponent) < 100;
}

/// Whether every value of `from` is a value of `to`.
bool is_exact_cast(DType from, DType to) {
  if (from == to || from == DType::boolean) return true;
  auto rank = [](DType d) { return d == DType::f64 ? 3 : d == DType::f32 ? 2 : 1; };
  if (is_floating(from)) return is_floating(to) && (rank(to) > rank(from));
  if (to == DType::f64) return from != DType::i64;
  if (to == DType::f32) return from == DType::i8 || from == DType::u8;
  if (to == DType::i64) return true;
  if (to == DType::i32) return from == DType::i8 || from == DType::u8;
  return false;
}

/// Copies of what an update gives that another variable than the updated one is to hold (add_optimizer_updates).
std::set<ValueId> copies_of_updates(const Graph& graph, const Uses& uses) {
  std::set<ValueId> found;
  const ByValue<ValueId> variable = variable_of(graph);
  const std::vector<ValueId> memory = memory_roots(graph);
  for (const Donation& d : graph.donations) {
    const Node* const copy = uses.maker(graph, d.value);
    if (copy == nullptr || !copy->is(kCopy) || copy->phase != Phase::update) continue;
    const ValueId of = variable(memory[at(copy->inputs[0])]);
    if (of != kNone && of != d.variable) found.insert(d.value);
  }
  return found;
}

class Simplifier {
 public:
  explicit Simplifier(Graph& graph)
      : uses_(graph), copies_of_updates_(copies_of_updates(graph, uses_)), rewriter_(graph), graph_(graph) {
    for (const Donation& d : graph.donations) fixed_[d.variable] = false;
  }

  void run() {
    for (Node& node : rewriter_.old()) {
      rewriter_.forward_inputs(node);
      bool gone = false;
      // Each rule leads to a simpler operator, so this ends; the bound is against a fault in that argument.
      for (int round = 0; round < 16; ++round) {
        const Result result = rewrite(node);
        if (result == Result::unchanged) break;
        if (result == Result::gone) {
          gone = true;
          break;
        }
      }
      if (gone) continue;
      rewriter_.keep(std::move(node));
    }
    rewriter_.finish();
  }

 private:
  enum class Result { unchanged, changed, gone };

  /// The node that made `v`, if its operator is `op`.
  const Node* maker(ValueId v, const OpDef& op) const { return rewriter_.maker(v, op); }
  /// The number that `v` holds everywhere.
  std::optional<double> uniform(ValueId v) const {
    if (const Node* full = maker(v, kFull)) return full->attributes.number("value");
    return std::nullopt;
  }
  const TensorType& type(ValueId v) const { return graph_.type(v); }

  Result gone(const Node& node, ValueId by) {
    if (!node.op->alias && !may_be(by, node.outputs[0])) return Result::unchanged;
    rewriter_.replace(node.outputs[0], by);
    return Result::gone;
  }
  /// Whether readers of `y`, a copy of `by`, may read `by` itself. A result that is a variable, or a view of one, is
  /// what that holds after the call (ir/graph.h): a copy of what it held before is another.
  bool may_be(ValueId by, ValueId y) const { return fixed_(memory_of(by)) || !is_result(y); }
  /// Whether it is a result of the graph, or an alias of it is.
  bool is_result(ValueId y) const {
    return uses_.is_result(y) || std::any_of(uses_.readers(y).begin(), uses_.readers(y).end(), [&](NodeId n) {
             const Node& reader = rewriter_.old()[at(n)];
             return reader.op->alias && is_result(reader.outputs[0]);
           });
  }
  /// The value whose memory `v` is.
  ValueId memory_of(ValueId v) const {
    for (const Node* node = rewriter_.maker(v); node && node->op->alias; node = rewriter_.maker(v)) v = node->inputs[0];
    return v;
  }
  /// `node` by `by`, if that has its very type.
  Result same(const Node& node, ValueId by) {
    if (type(by) != type(node.outputs[0])) return Result::unchanged;
    return gone(node, by);
  }
  Result become(Node& node, const OpDef& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    node.op = &op;
    node.inputs = std::move(inputs);
    node.attributes = std::move(attributes);
    return Result::changed;
  }
  Result become_full(Node& node, double value) {
    const TensorType& t = type(node.outputs[0]);
    if (node.is(kFull)) return Result::unchanged;
    return become(node, kFull, {}, {{"shape", t.shape}, {"value", round_to(t.dtype, value)}, {"dtype", t.dtype}});
  }
  Result become_reshape(Node& node, ValueId from) {
    if (!node.op->alias && !may_be(from, node.outputs[0])) return Result::unchanged;
    return become(node, kReshape, {from}, {{"shape", type(node.outputs[0]).shape}});
  }
  /// A scalar, made once a dtype and number.
  ValueId scalar(double value, DType dtype, const Node& like) {
    // By bits: -0.0 is not 0.0.
    std::uint64_t bits = 0;
    static_assert(sizeof bits == sizeof value);
    __builtin_memcpy(&bits, &value, sizeof bits);
    const auto [known, fresh] = scalars_.emplace(std::pair(dtype, bits), kNone);
    if (fresh) {
      known->second = add(kFull, {}, {{"shape", Shape{}}, {"value", value}, {"dtype", dtype}}, like);
    }
    return known->second;
  }

  Result rewrite(Node& node) {
    if (node.outputs.size() != 1) return Result::unchanged;
    if (node.is(kFull)) return Result::unchanged;
    if (node.is(kCopy) && copies_of_updates_.count(node.outputs[0])) return Result::unchanged;
    if (node.is(kDetach, kStraightThrough, kCopy)) return gone(node, node.inputs[0]);
    if (node.is(kReshape)) return rewrite_reshape(node);
    if (node.is(kPermute)) return rewrite_permute(node);
    if (node.is(kExpand)) return rewrite_expand(node);
    if (node.is(kCast)) return rewrite_cast(node);
    if (node.is(kSum, kMean, kAmax, kAmin, kProd)) return rewrite_reduction(node);
    if (node.is(kMatmul)) return rewrite_matmul(node);
    if (node.is(kCat) && node.inputs.size() == 1) return gone(node, node.inputs[0]);
    if (node.is(kSlice)) return same(node, node.inputs[0]);  // as many elements: all of them
    if (node.is(kPad)) {
      for (std::int64_t p : node.attributes.integers("pads"))
        if (p != 0) return Result::unchanged;
      return gone(node, node.inputs[0]);
    }
    if (!node.op->elementwise()) return Result::unchanged;
    if (const Result r = shrink_operands(node); r != Result::unchanged) return r;
    Result r = Result::unchanged;
    if (node.inputs.size() == 1) r = rewrite_unary(node);
    if (node.inputs.size() == 2) r = rewrite_binary(node);
    if (node.is(kWhere)) r = rewrite_where(node);
    return r == Result::unchanged ? move_before_reshape(node) : r;
  }

  Result rewrite_reshape(Node& node) {
    const ValueId x = node.inputs[0];
    if (type(x) == type(node.outputs[0])) return gone(node, x);
    if (const Node* inner = maker(x, kReshape)) {
      node.inputs[0] = inner->inputs[0];
      return Result::changed;
    }
    if (const auto value = uniform(x)) return become_full(node, *value);
    return Result::unchanged;
  }
  Result rewrite_permute(Node& node) {
    const ValueId x = node.inputs[0];
    const Ints dims = node.attributes.integers("dims");
    const Shape& from = type(x).shape;
    bool identity = true, moves_only_ones = true;
    std::int64_t last = -1;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      identity = identity && dims[d] == static_cast<std::int64_t>(d);
      if (from[at(dims[d])] == Dim(1)) continue;
      moves_only_ones = moves_only_ones && dims[d] > last;
      last = dims[d];
    }
    if (identity) return gone(node, x);
    if (moves_only_ones) return become_reshape(node, x);
    if (const Node* inner = maker(x, kPermute)) {
      const Ints& first = inner->attributes.integers("dims");
      Ints composed;
      for (std::int64_t d : dims) composed.push_back(first[at(d)]);
      return become(node, kPermute, {inner->inputs[0]}, {{"dims", composed}});
    }
    if (const auto value = uniform(x)) return become_full(node, *value);
    return Result::unchanged;
  }
  Result rewrite_expand(Node& node) {
    const ValueId x = node.inputs[0];
    if (type(x) == type(node.outputs[0])) return gone(node, x);
    if (const auto value = uniform(x)) return become_full(node, *value);
    if (const Node* inner = maker(x, kExpand)) {
      node.inputs[0] = inner->inputs[0];
      return Result::changed;
    }
    return Result::unchanged;
  }
  Result rewrite_cast(Node& node) {
    const ValueId x = node.inputs[0];
    if (type(x) == type(node.outputs[0])) return gone(node, x);
    if (const Node* inner = maker(x, kCast); inner && is_exact_cast(type(inner->inputs[0]).dtype, type(x).dtype)) {
      node.inputs[0] = inner->inputs[0];
      return Result::changed;
    }
    if (const auto value = uniform(x); value && can_hold(type(node.outputs[0]).dtype, *value))
      return become_full(node, *value);
    return Result::unchanged;
  }
  Result rewrite_reduction(Node& node) {
    const ValueId x = node.inputs[0];
    const Shape& from = type(x).shape;
    const Ints& dims = node.attributes.integers("dims");
    bool ones = true, fixed = true;
    double count = 1;
    for (std::int64_t d : dims) {
      const Dim& dim = from[at(d)];
      ones = ones && dim == Dim(1);
      fixed = fixed && dim.is_static() && dim.value() > 0;
      count *= static_cast<double>(dim.maximum());
    }
    if (ones) return type(x) == type(node.outputs[0]) ? gone(node, x) : become_reshape(node, x);
    const auto value = uniform(x);
    if (!value || !fixed) return Result::unchanged;
    if (node.is(kAmax, kAmin)) return become_full(node, *value);
    // A sum beyond the dtype is infinite, and so is a mean over it.
    const double sum = *value * count + 0.0;  // which begins with 0, so that it is no -0.0
    const bool overflows = std::isfinite(*value) && !std::isfinite(round_to(type(x).dtype, sum));
    if (node.is(kMean) && !overflows) return become_full(node, *value + 0.0);
    if (node.is(kSum) && can_hold(type(x).dtype, sum)) return become_full(node, sum);
    return Result::unchanged;
  }
  Result rewrite_matmul(Node& node) {
    for (std::size_t i = 0; i < 2; ++i) {
      const Node* inner = maker(node.inputs[i], kPermute);
      if (!inner) continue;
      const Ints& dims = inner->attributes.integers("dims");
      const std::size_t rank = dims.size();
      bool swaps = rank >= 2 && dims[rank - 1] == static_cast<std::int64_t>(rank) - 2 &&
                   dims[rank - 2] == static_cast<std::int64_t>(rank) - 1;
      for (std::size_t d = 0; d + 2 < rank; ++d) swaps = swaps && dims[d] == static_cast<std::int64_t>(d);
      if (!swaps) continue;
      const char* flag = i == 0 ? "transpose_a" : "transpose_b";
      node.inputs[i] = inner->inputs[0];
      node.attributes.set(flag, !node.attributes.flag(flag));
      return Result::changed;
    }
    return Result::unchanged;
  }

  /// Broadcasting makes expanded operands, and tensors full of one number, superfluous.
  Result shrink_operands(Node& node) {
    const Shape& result = type(node.outputs[0]).shape;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId smaller = kNone;
      const Node* full = maker(node.inputs[i], kFull);
      const Node* expand = full ? nullptr : maker(node.inputs[i], kExpand);
      if (full && !type(node.inputs[i]).shape.empty()) {
        smaller = kNone;
      } else if (expand) {
        smaller = expand->inputs[0];
      } else {
        continue;
      }
      std::optional<Shape> shape = full ? Shape{} : type(smaller).shape;
      for (std::size_t j = 0; j < node.inputs.size() && shape; ++j)
        if (j != i) shape = broadcast(*shape, type(node.inputs[j]).shape);
      if (!shape || *shape != result) continue;
      if (full) smaller = scalar(full->attributes.number("value"), type(node.inputs[i]).dtype, node);
      node.inputs[i] = smaller;
      return Result::changed;
    }
    return Result::unchanged;
  }

  /// Whether `v` is read once, by a node and not as a result of the graph.
  bool read_once(ValueId v) const { return uses_.only_reader(v) >= 0; }
  /// An elementwise node of a reshaped product, of numbers and of tensors of its shape, before the reshape.
  Result move_before_reshape(Node& node) {
    const TensorType result = type(node.outputs[0]);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Node* reshape = maker(node.inputs[i], kReshape);
      if (!reshape || !read_once(node.inputs[i]) || type(node.inputs[i]).shape != result.shape) continue;
      const ValueId product = reshape->inputs[0];
      const bool moved = moved_.count(product) != 0;
      if (!moved && (!read_once(product) || (!maker(product, kLinear) && !maker(product, kMatmul)))) continue;
      bool alike = true;
      for (const ValueId v : node.inputs) alike = alike && (type(v).shape.empty() || type(v).shape == result.shape);
      if (!alike) continue;
      const Shape shape = type(product).shape;
      std::vector<ValueId> inputs;
      for (std::size_t j = 0; j < node.inputs.size(); ++j) {
        const ValueId v = node.inputs[j];
        inputs.push_back(j == i ? product : type(v).shape.empty() ? v : add(kReshape, {v}, {{"shape", shape}}, node));
      }
      const ValueId y = add(*node.op, std::move(inputs), std::move(node.attributes), node);
      moved_.insert(y);
      return become(node, kReshape, {y}, {{"shape", result.shape}});
    }
    return Result::unchanged;
  }

  Result rewrite_unary(Node& node) {
    const ValueId x = node.inputs[0];
    auto inner = [&](const OpDef& op) -> ValueId {
      const Node* m = maker(x, op);
      return m ? m->inputs[0] : kNone;
    };
    if (node.is(kNeg, kLogicalNot)) {
      if (const ValueId v = inner(*node.op); v != kNone) return same(node, v);
    } else if (node.is(kAbs, kSquare)) {
      // The magnitude of -5 in u8, which is 251, is not that of 5.
      const bool has_sign = type(x).dtype != DType::u8;
      if (const ValueId v = inner(kNeg); v != kNone && (has_sign || node.is(kSquare)))
        return become(node, *node.op, {v});
      if (node.is(kAbs) && inner(kAbs) != kNone) return gone(node, x);
      if (const ValueId v = inner(kAbs); node.is(kSquare) && v != kNone) return become(node, *node.op, {v});
    } else if (node.is(kRelu)) {
      // Of integers squares and magnitudes may wrap around to what is below 0.
      for (const OpDef* positive : {&kRelu, &kSigmoid, &kExp, &kSquare, &kAbs})
        if (inner(*positive) != kNone && (is_floating(type(x).dtype) || positive == &kRelu)) return gone(node, x);
    } else if (node.is(kClamp)) {
      if (node.attributes.number("min") == -INFINITY && node.attributes.number("max") == INFINITY) return gone(node, x);
    } else if (node.is(kFloor, kCeil, kRound)) {
      for (const OpDef* whole : {&kFloor, &kCeil, &kRound})
        if (inner(*whole) != kNone) return gone(node, x);
    }
    return Result::unchanged;
  }

  /// A tensor and what index_add has added up in zeros: it adds to the tensor instead. (The gradient of an embedding
  /// whose weight is used again.)
  Result add_at_index(Node& node) {
    const TensorType result = type(node.outputs[0]);
    if (result.dtype != DType::f32 && result.dtype != DType::f64)
      return Result::unchanged;  // half types are added up in f32
    for (const std::size_t i : {0, 1}) {
      const Node* added = maker(node.inputs[i], kIndexAdd);
      const ValueId base = node.inputs[1 - i];
      if (!added || added->inputs.size() > 2 || !read_once(node.inputs[i]) || base == node.inputs[i] ||
          type(base) != result)
        continue;
      return become(node, kIndexAdd, {added->inputs[0], added->inputs[1], base}, added->attributes);
    }
    return Result::unchanged;
  }

  Result rewrite_binary(Node& node) {
    const ValueId x = node.inputs[0], y = node.inputs[1];
    const std::optional<double> a = uniform(x), b = uniform(y);
    const DType dtype = type(node.outputs[0]).dtype;
    const bool floating = is_floating(dtype);
    auto negated = [&](ValueId v) -> ValueId {
      const Node* m = maker(v, kNeg);
      return m ? m->inputs[0] : kNone;
    };
    // Whether adding the number changes nothing: -0.0 + 0.0 is 0.0, but -0.0 + -0.0 is -0.0.
    auto is_none = [&](const std::optional<double>& number, bool negative) {
      return number && *number == 0 && (!floating || std::signbit(*number) == negative);
    };
    Result r = Result::unchanged;
    if (node.is(kAdd)) {
      if (is_none(b, true)) r = same(node, x);
      if (r == Result::unchanged && is_none(a, true)) r = same(node, y);
      if (r == Result::unchanged && negated(y) != kNone) return become(node, kSub, {x, negated(y)});
      if (r == Result::unchanged && negated(x) != kNone) return become(node, kSub, {y, negated(x)});
      if (r == Result::unchanged) r = add_at_index(node);
    } else if (node.is(kSub)) {
      if (is_none(b, false)) r = same(node, x);
      if (r == Result::unchanged && is_none(a, true) && type(y) == type(node.outputs[0]))
        return become(node, kNeg, {y});
      if (r == Result::unchanged && negated(y) != kNone) return become(node, kAdd, {x, negated(y)});
    } else if (node.is(kMul)) {
      if (a && !b) return become(node, kMul, {y, x});  // numbers stand on the right
      if (b && *b == 1) r = same(node, x);
      if (r == Result::unchanged && b && *b == -1 && type(x) == type(node.outputs[0])) return become(node, kNeg, {x});
      if (r == Result::unchanged && negated(x) != kNone && negated(y) != kNone)
        return become(node, kMul, {negated(x), negated(y)});
      if (r == Result::unchanged && b && negated(x) != kNone && floating)
        return become(node, kMul, {negated(x), scalar(-*b, dtype, node)});
      if (r == Result::unchanged && b && floating && type(y).shape.empty()) {
        const Node* inner = maker(x, kMul);
        const std::optional<double> c = inner ? uniform(inner->inputs[1]) : std::nullopt;
        // Scaling by a power of two commutes with rounding, short of overflow and underflow.
        if (c && type(inner->inputs[1]).shape.empty() && (is_power_of_two(*b) || is_power_of_two(*c)) &&
            can_hold(dtype, *b * *c) && round_to(dtype, *b * *c) == *b * *c)
          return become(node, kMul, {inner->inputs[0], scalar(*b * *c, dtype, node)});
      }
    } else if (node.is(kDiv)) {
      if (b && *b == 1) r = same(node, x);
      if (r == Result::unchanged && b && floating && is_power_of_two(*b)) {
        const double inverse = 1 / *b;
        if (round_to(dtype, inverse) == inverse && inverse != 0 && type(y).shape.empty())
          return become(node, kMul, {x, scalar(inverse, dtype, node)});
      }
    } else if (node.is(kPow)) {
      if (b && *b == 1) r = same(node, x);
      if (r == Result::unchanged && b && type(x) == type(node.outputs[0])) {
        if (*b == 2) return become(node, kSquare, {x});
        if (*b == -1) return become(node, kReciprocal, {x});
        if (*b == 0) return become_full(node, 1);
      }
    } else if (node.is(kMaximum, kMinimum, kLogicalAnd, kLogicalOr)) {
      if (x == y) r = same(node, x);
    }
    return r;
  }

  Result rewrite_where(Node& node) {
    if (node.inputs[1] == node.inputs[2]) return same(node, node.inputs[1]);
    if (const auto condition = uniform(node.inputs[0])) return same(node, node.inputs[*condition != 0 ? 1 : 2]);
    if (const Result r = mask_after_pooling(node); r != Result::unchanged) return r;
    if (const Node* negation = maker(node.inputs[0], kLogicalNot))
      return become(node, kWhere, {negation->inputs[0], node.inputs[2], node.inputs[1]});
    return Result::unchanged;
  }

  /// The element of a window that passes a gradient on is the largest: it equals the pooled one, and so does the mask.
  Result mask_after_pooling(Node& node) {
    const Node* mask = maker(node.inputs[0], kGt);
    const Node* pooled = maker(node.inputs[1], kMaxPool2dBackward);
    const auto otherwise = uniform(node.inputs[2]), threshold = mask ? uniform(mask->inputs[1]) : std::nullopt;
    if (!mask || !pooled || !otherwise || *otherwise != 0 || !threshold) return Result::unchanged;
    const Node* pool = maker(pooled->inputs[1], kMaxPool2d);
    if (!pool || pool->inputs[0] != mask->inputs[0] || pooled->inputs[1] != pool->outputs[1]) return Result::unchanged;
    if (type(node.inputs[1]) != type(node.outputs[0])) return Result::unchanged;
    ValueId z = pool->outputs[0], dz = pooled->inputs[0];
    const ValueId index = pooled->inputs[1], pooled_gradient = node.inputs[1];
    const Attributes attributes = pooled->attributes;
    const Origins origins = pooled->origins;
    const std::string name = "grad(" + graph_.value(z).name + ")";  // now: what is added moves the nodes
    // Behind flatten, the mask is best taken of the flat gradient: a linear layer's, whose epilogue it becomes.
    const Shape image = type(z).shape;
    if (const Node* flat = maker(dz, kReshape)) {
      dz = flat->inputs[0];
      z = add(kReshape, {z}, {{"shape", type(dz).shape}}, node);
    }
    const ValueId zero = scalar(0, type(dz).dtype, node);
    const ValueId positive = add(kGt, {z, scalar(*threshold, type(z).dtype, node)}, {}, node);
    dz = add(kWhere, {positive, dz, zero}, {}, node);
    if (type(dz).shape != image) dz = add(kReshape, {dz}, {{"shape", image}}, node, name);
    graph_.swap_names(pooled_gradient,
                      node.outputs[0]);  // what is left is called after what it is, and belongs where that did
    node.origins = origins;
    return become(node, kMaxPool2dBackward, {dz, index}, attributes);
  }
  /// A new node before `like`, of its origins and phase, named after it unless `name` says otherwise.
  ValueId add(const OpDef& op, std::vector<ValueId> inputs, Attributes attributes, const Node& like,
              std::string name = {}) {
    if (name.empty()) name = graph_.value(like.outputs[0]).name;
    return rewriter_.add(op, std::move(inputs), std::move(attributes), like.origins, like.phase, std::move(name));
  }

  ByValue<bool> fixed_{true};  ///< whether it is no variable that another value takes over
  Uses uses_;
  const std::set<ValueId> copies_of_updates_;
  Rewriter rewriter_;
  Graph& graph_;
  std::map<std::pair<DType, std::uint64_t>, ValueId> scalars_;
  std::set<ValueId> moved_;  ///< what has moved before a reshape, and is read by that alone
};

}  // namespace

void simplify_algebra(Graph& graph, const PassOptions& options) {
  Simplifier(graph).run();
  sort_by_phase(graph);
  remove_dead_nodes(graph, options);
}

}  // namespace graven::ir
