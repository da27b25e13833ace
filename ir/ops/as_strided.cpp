#include <algorithm>

#include "ir/ops/shared.h"

namespace graven::ir {

static void infer_as_strided(InferContext& c) {
  const Shape shape = c.attributes.shape("shape");
  const Ints& strides = c.attributes.integers("strides");
  const std::int64_t offset = c.attributes.integer("offset");
  ops::require_kernel_rank(c, shape.rank());
  c.require(strides.size() == shape.rank(), "'strides' must have one number for each of the " +
                                                std::to_string(shape.rank()) + " dimensions, got " +
                                                std::to_string(strides.size()));
  c.require(shape.is_static() && c.input(0).shape.is_static(), "expects fixed sizes");
  const std::int64_t elements = c.input(0).shape.numel().value();
  c.require(offset >= 0, "'offset' must not be negative, got " + std::to_string(offset));
  std::int64_t last = offset;
  for (std::size_t d = 0; d < shape.rank(); ++d) {
    c.require(strides[d] >= 0, "'strides' must not be negative, got " + std::to_string(strides[d]));
    last += std::max<std::int64_t>(shape[d].value() - 1, 0) * strides[d];
  }
  c.require(shape.numel() == Dim(0) || last < elements,
            "the last element would be number " + std::to_string(last) + " of " + std::to_string(elements));
  c.output(c.input(0).dtype, shape);
}

/// Elements of x that several of y are get the sum of their gradients.
static void gradient_as_strided(GradientBuilder& g) {
  const Shape from = g.type(g.input(0)).shape, to = g.type(g.output()).shape;
  const Ints& strides = g.attributes().integers("strides");
  const Dim all = from.numel();
  // Where each element of y stands in x, one dimension after the other.
  ops::Term places(
      g,
      g.call("full", {},
             {{"shape", to}, {"value", static_cast<double>(g.attributes().integer("offset"))}, {"dtype", DType::i64}}));
  for (std::size_t d = 0; d < to.rank(); ++d) {
    Shape line;
    for (std::size_t k = 0; k < to.rank(); ++k) line.push_back(k == d ? to[d] : Dim(1));
    const ValueId steps = g.call(
        "arange", {},
        {{"shape", Shape{to[d]}}, {"start", 0.0}, {"step", static_cast<double>(strides[d])}, {"dtype", DType::i64}});
    places = places + ops::Term(g, g.call("reshape", {steps}, {{"shape", line}}));
  }
  const auto flat = [&](ValueId v, const Dim& n) { return g.call("reshape", {v}, {{"shape", Shape{n}}}); };
  const ValueId zeros =
      g.call("full", {}, {{"shape", Shape{all}}, {"value", 0.0}, {"dtype", g.type(g.output()).dtype}});
  const ValueId sum = g.call("scatter_add", {zeros, flat(places, to.numel()), flat(g.output_gradient(), to.numel())},
                             {{"dim", std::int64_t{0}}});
  g.set(0, g.call("reshape", {sum}, {{"shape", from}}));
}

const OpDef kAsStrided{
    .name = "as_strided",
    .doc = "y[i, j, ...] is the element of x, row-major, that stands at offset + i strides[0] + j strides[1] + ...",
    .inputs = {{"x"}},
    .dtypes = kAnyDType,
    .attributes = {{"shape", AttributeType::shape, {}, "of y; fixed"},
                   {"strides", AttributeType::integers, {}, "in elements of x, not negative; 0 repeats"},
                   {"offset", AttributeType::integer, std::int64_t{0}, "of y's first element"}},
    .infer = infer_as_strided,
    .gradient = gradient_as_strided,
    .cost = [](const NodeView&) { return Cost{}; },
    .amp = AmpClass::clear,
    .forms = {{.attributes = {{"shape", Shape{2}}, {"strides", Ints{2}}}}},
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType dtype, Shape x, Shape y, Ints strides, std::int64_t offset) {
            cases.push_back(
                {.note = std::move(note),
                 .inputs = {ops::random(dtype, std::move(x), 0, 2)},
                 .attributes = {{"shape", std::move(y)}, {"strides", std::move(strides)}, {"offset", offset}},
                 .gradient = is_floating(dtype)});
          };
          add("transposed", DType::f32, {3, 5}, {5, 3}, {1, 5}, 0);
          add("every other one", DType::f32, {11}, {5}, {2}, 1);
          add("windows", DType::f32, {9}, {7, 3}, {1, 1}, 0);
          add("diagonal", DType::f32, {4, 4}, {4}, {5}, 0);
          add("repeated", DType::f32, {2, 3}, {4, 3}, {0, 1}, 3);
          add("a box", DType::f32, {4, 5, 6}, {2, 3, 2}, {30, 6, 2}, 37);
          add("nothing", DType::f32, {4}, {0, 3}, {1, 1}, 0);
          add("of nothing", DType::f32, {0}, {0}, {1}, 0);
          add("one", DType::f32, {1}, {1, 1}, {1, 1}, 0);
          add("rank 0", DType::f32, {6}, {}, {}, 4);
          for (DType d : kAllDTypes) add(std::string(name(d)), d, {3, 5}, {5, 2}, {1, 5}, 5);
          return cases;
        },
};

}  // namespace graven::ir
