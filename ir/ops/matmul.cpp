#include "ir/ops/matmul_shared.h"
#include "ir/ops/rank_shared.h"

namespace graven::ir {

static void infer_matmul(InferContext& c) {
  const TensorType &a = c.input(0), &b = c.input(1);
  c.require(!a.shape.empty() && !b.shape.empty(),
            "both operands must have at least one dimension, got " + a.to_string() + " and " + b.to_string());
  c.require(!(c.attributes.flag("transpose_a") && a.shape.rank() == 1) &&
                !(c.attributes.flag("transpose_b") && b.shape.rank() == 1),
            "a vector cannot be transposed");
  const ops::MatmulSides s =
      ops::matmul_sides(a.shape, b.shape, c.attributes.flag("transpose_a"), c.attributes.flag("transpose_b"));
  c.require(s.k_a == s.k_b, "the rows of b must be as many as the columns of a, got " + s.k_b.to_string() + " and " +
                                s.k_a.to_string());
  const std::optional<Shape> batch = broadcast(s.batch_a, s.batch_b);
  c.require(batch.has_value(),
            "the batch dimensions " + s.batch_a.to_string() + " and " + s.batch_b.to_string() + " do not broadcast");
  Shape shape = *batch;
  if (!s.vector_a) shape.push_back(s.m);
  if (!s.vector_b) shape.push_back(s.n);
  if (c.has_input(2))
    c.require(!s.vector_b && c.input(2).shape == Shape{s.n}, [&] {
      return s.vector_b ? std::string("a product with a vector has no columns that a bias could be added to")
                        : "bias must be " + describe(a.dtype, {s.n}) + ", got " + c.input(2).to_string();
    });
  c.output(a.dtype, shape);
}

static void gradient_matmul(GradientBuilder& g) {
  const Shape shape_a = g.type(g.input(0)).shape, shape_b = g.type(g.input(1)).shape;
  bool ta = g.attributes().flag("transpose_a"), tb = g.attributes().flag("transpose_b");
  const ops::MatmulSides s = ops::matmul_sides(shape_a, shape_b, ta, tb);
  // Vectors become matrices of one row or one column.
  ops::Term a(g, g.input(0)), b(g, g.input(1)), dc(g, g.output_gradient());
  const auto reshaped = [](ops::Term t, const Shape& shape) { return t.apply("reshape", {}, {{"shape", shape}}); };
  Shape full = *broadcast(s.batch_a, s.batch_b);
  full.push_back(s.m);
  full.push_back(s.n);
  if (s.vector_a) a = reshaped(a, {1, s.k_a});
  if (s.vector_b) b = reshaped(b, {s.k_b, 1});
  if (s.vector_a || s.vector_b) dc = reshaped(dc, full);
  const auto product = [](ops::Term x, ops::Term y, bool transpose_x, bool transpose_y) {
    return x.apply("matmul", {y}, {{"transpose_a", transpose_x}, {"transpose_b", transpose_y}});
  };
  // Batches that broadcasting added are summed; `shape` is the operand's as a matrix.
  const auto finish = [&](std::size_t i, ops::Term gradient, bool vector) {
    if (vector) {
      const std::size_t rank = g.type(gradient).shape.rank();
      if (rank > 2) {
        Ints dims;
        for (std::size_t d = 0; d + 2 < rank; ++d) dims.push_back(static_cast<std::int64_t>(d));
        gradient = gradient.apply("sum", {}, {{"dims", dims}});
      }
      gradient = reshaped(gradient, g.type(g.input(i)).shape);
      return g.set(i, gradient);
    }
    g.set_reduced(i, gradient);
  };
  if (g.has_input(2) && g.needs(2)) g.set_reduced(2, g.output_gradient());
  if (g.needs(0)) finish(0, ta ? product(b, dc, tb, true) : product(dc, b, false, !tb), s.vector_a);
  if (g.needs(1)) {
    if (s.batch_b.empty() && !s.batch_a.empty() && !ta) {
      // One b for all of a: a's batches are more rows, and the sum over them is part of the product.
      const Dim rows = s.batch_a.numel() * s.m;
      a = reshaped(a, {rows, s.k_a});
      dc = reshaped(dc, {rows, s.n});
    }
    finish(1, tb ? product(dc, a, true, ta) : product(a, dc, !ta, false), s.vector_b);
  }
}

static Cost cost_matmul(const NodeView& node) {
  return {.flops = 2.0 * static_cast<double>(node.output().shape.numel().maximum()) *
                   static_cast<double>(ops::matmul_sides(node).k_a.maximum())};
}

static std::vector<TestCase> cases_matmul() {
  std::vector<TestCase> cases;
  auto add = [&](std::string note, DType dtype, Shape a, Shape b, bool ta = false, bool tb = false) {
    cases.push_back({.note = std::move(note),
                     .inputs = {ops::random(dtype, std::move(a)), ops::random(dtype, std::move(b))},
                     .attributes = {{"transpose_a", ta}, {"transpose_b", tb}}});
  };
  auto add_with_bias = [&](std::string note, DType dtype, Shape a, Shape b, std::int64_t n, bool ta = false,
                           bool tb = false) {
    add(std::move(note), dtype, std::move(a), std::move(b), ta, tb);
    cases.back().inputs.push_back(ops::random(dtype, {n}));
  };
  add("matrices", DType::f32, {5, 7}, {7, 3});
  add("a transposed", DType::f32, {7, 5}, {7, 3}, true, false);
  add("b transposed", DType::f32, {5, 7}, {3, 7}, false, true);
  add("both transposed", DType::f32, {7, 5}, {3, 7}, true, true);
  add("panels", DType::f32, {33, 20}, {20, 48});
  add("vector by vector", DType::f32, {7}, {7});
  add("vector by matrix", DType::f32, {7}, {7, 3});
  add("matrix by vector", DType::f32, {5, 7}, {7});
  add("batch", DType::f32, {4, 5, 7}, {4, 7, 3});
  add("batch of a", DType::f32, {4, 5, 7}, {7, 3});
  add("batch of a transposed", DType::f32, {4, 7, 5}, {7, 3}, true, false);
  add("batch of b", DType::f32, {5, 7}, {4, 7, 3});
  add("batch transposed", DType::f32, {2, 3, 7, 5}, {2, 3, 4, 7}, true, true);
  add("batch by vector", DType::f32, {4, 5, 7}, {7});
  add("vector by batch", DType::f32, {7}, {4, 7, 3});
  add("mixed batches", DType::f32, {2, 1, 5, 7}, {3, 7, 3});
  for (DType d : {DType::f32, DType::f16, DType::bf16}) {
    add("no rows", d, {0, 7}, {7, 3});
    add("nothing to sum", d, {5, 0}, {0, 3});
    add("nothing to sum, batch", d, {2, 5, 0}, {2, 0, 3});
  }
  for (DType d : ops::kFloats) add(std::string(name(d)), d, {3, 4}, {4, 5});
  add_with_bias("bias", DType::f32, {5, 7}, {7, 3}, 3);
  add_with_bias("bias of panels", DType::f32, {33, 20}, {20, 50}, 50);
  add_with_bias("bias of rows", DType::f32, {4, 5, 7}, {7, 3}, 3);
  add_with_bias("bias of a batch", DType::f32, {4, 5, 7}, {4, 7, 3}, 3);
  add_with_bias("bias, transposed", DType::f32, {7, 5}, {3, 7}, 3, true, true);
  add_with_bias("bias, vector by matrix", DType::f32, {7}, {7, 3}, 3);
  add_with_bias("bias, nothing to sum", DType::f32, {5, 0}, {0, 3}, 3);
  add_with_bias("bias, no rows", DType::f32, {0, 7}, {7, 3}, 3);
  for (DType d : ops::kFloats) add_with_bias("bias, " + std::string(name(d)), d, {3, 4}, {4, 5}, 5);
  return cases;
}

/// By batches, rows and columns; and by terms of the sum.
static void layouts_of_matmul(RankRules& rules) {
  const Shape &a = rules.input(0), &b = rules.input(1), &c = rules.output();
  if (a.rank() < 2 || b.rank() < 2) return;
  const Attributes& attributes = rules.node().attributes();
  const auto end = [](const Shape& shape, std::int64_t back) { return static_cast<std::int64_t>(shape.rank()) - back; };
  const bool at = attributes.flag("transpose_a"), bt = attributes.flag("transpose_b"), bias = rules.has_input(2);
  for (std::int64_t d = 0; d < end(c, 2); ++d)
    rules.each_split(c, d, [&](const RankLayout& layout) {
      RankLayouts way = rules.way();
      way.outputs[0] = layout;
      for (const std::size_t i : {0, 1}) {
        const std::int64_t own = d - (end(c, 0) - end(rules.input(i), 0));
        if (own >= 0 && rules.input(i)[static_cast<std::size_t>(own)] != Dim(1))
          way.inputs[i] = RankLayout::split(own, layout.blocks);
      }
      rules.add(std::move(way));
    });
  rules.each_split(c, end(c, 2), [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[0] = RankLayout::split(end(a, at ? 1 : 2), layout.blocks);
    way.outputs[0] = layout;
    rules.add(std::move(way));
  });
  rules.each_split(c, end(c, 1), [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[1] = RankLayout::split(end(b, bt ? 2 : 1), layout.blocks);
    if (bias) way.inputs[2] = RankLayout::split(0, layout.blocks);
    way.outputs[0] = layout;
    rules.add(std::move(way));
  });
  rules.each_split(a, end(a, at ? 2 : 1), [&](const RankLayout& layout) {
    RankLayouts way = rules.way();
    way.inputs[0] = layout;
    way.inputs[1] = RankLayout::split(end(b, bt ? 1 : 2), layout.blocks);
    if (bias) way.inputs[2] = RankLayout::partial_sum();
    way.outputs[0] = RankLayout::partial_sum();
    rules.add(std::move(way));
  });
}

const OpDef kMatmul{
    .name = "matmul",
    .doc =
        "c[..., m, n] = a[..., m, k] b[..., k, n] + bias[n]: PyTorch's matmul. A vector on the left is a row, on the "
        "right a column, and its dimension is dropped from the result; leading dimensions are batches and broadcast.",
    .inputs = {{"a"}, {"b"}, ops::kOptionalBias},
    .attributes = ops::matmul_attributes(),
    .infer = infer_matmul,
    .gradient = gradient_matmul,
    .rank_layouts = layouts_of_matmul,
    .cost = cost_matmul,
    .amp = AmpClass::white,
    .cases = cases_matmul,
};

}  // namespace graven::ir
