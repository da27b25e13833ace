#include "graven/functional/activations.h"

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "frontend/functional/elementwise.h"
#include "graven/functional.h"

namespace graven {

using detail::apply;
using detail::fail;
using detail::limited;
using detail::unary;
using detail::unary_floating;

Tensor relu(const Operand& x) { return unary("relu", x); }
Tensor relu6(const Operand& x) {
  const detail::At at(x.where().in("relu6"));
  return hardtanh(at(x), 0, 6);
}
Tensor sigmoid(const Operand& x) { return unary_floating("sigmoid", x); }
Tensor tanh(const Operand& x) { return unary_floating("tanh", x); }
Tensor gelu(const Operand& x, std::string_view approximate) {
  if (approximate == "none") return unary("gelu", x);
  if (approximate == "tanh") return unary("gelu_tanh", x);
  fail("gelu", "approximate must be 'none' or 'tanh', got '" + std::string(approximate) + "'", x.where());
}
Tensor silu(const Operand& x) { return unary("silu", x); }
Tensor softplus(const Operand& x, double beta, double threshold) {
  return unary("softplus", x, {{"beta", beta}, {"threshold", threshold}});
}
Tensor leaky_relu(const Operand& x, double negative_slope) {
  return unary("leaky_relu", x, {{"negative_slope", negative_slope}});
}
Tensor elu(const Operand& x, double alpha) { return unary("elu", x, {{"alpha", alpha}}); }
Tensor hardtanh(const Operand& x, double min_val, double max_val) { return limited("hardtanh", x, min_val, max_val); }
Tensor softmax(const Operand& x, std::int64_t dim) {
  return unary("softmax", x, {{"dim", detail::normalize_dim(dim, x.tensor().dim(), "softmax", x.where())}});
}
Tensor log_softmax(const Operand& x, std::int64_t dim) {
  return unary("log_softmax", x, {{"dim", detail::normalize_dim(dim, x.tensor().dim(), "log_softmax", x.where())}});
}

Tensor hardsigmoid(const Operand& x) { return apply("hardsigmoid", {x.tensor()}, {}, x.where()); }
Tensor hardswish(const Operand& x) { return apply("hardswish", {x.tensor()}, {}, x.where()); }
Tensor mish(const Operand& x) { return apply("mish", {x.tensor()}, {}, x.where()); }
Tensor selu(const Operand& x) { return apply("selu", {x.tensor()}, {}, x.where()); }
Tensor celu(const Operand& x, double alpha) { return apply("celu", {x.tensor()}, {{"alpha", alpha}}, x.where()); }
Tensor softsign(const Operand& x) { return apply("softsign", {x.tensor()}, {}, x.where()); }
Tensor tanhshrink(const Operand& x) { return apply("tanhshrink", {x.tensor()}, {}, x.where()); }
Tensor softshrink(const Operand& x, double lambd) {
  return apply("softshrink", {x.tensor()}, {{"lambd", lambd}}, x.where());
}
Tensor hardshrink(const Operand& x, double lambd) {
  return apply("hardshrink", {x.tensor()}, {{"lambd", lambd}}, x.where());
}
Tensor threshold(const Operand& x, double threshold, double value) {
  return apply("threshold", {x.tensor()}, {{"threshold", threshold}, {"value", value}}, x.where());
}
Tensor logsigmoid(const Operand& x) { return apply("logsigmoid", {x.tensor()}, {}, x.where()); }

Tensor glu(const Operand& x, std::int64_t dim) {
  const Location at = x.where().in("glu");
  const Tensor& t = x.tensor();
  if (t.dim() == 0) fail("glu", "a scalar has no halves", at);
  const Dim& size = t.shape()[static_cast<std::size_t>(detail::normalize_dim(dim, t.dim(), "glu", at))];
  if (!divide(size, 2)) fail("glu", fmt::format("dimension {} of {} has no two halves", dim, t.describe()), at);
  if (size == Dim(0)) return mul(Operand(t, at), Operand(sigmoid(Operand(t, at)), at));
  const std::vector<Tensor> halves = t.chunk(2, dim, at);
  return mul(Operand(halves[0], at), Operand(sigmoid(Operand(halves[1], at)), at));
}

Tensor prelu(const Operand& x, const Tensor& weight) {
  const Location at = x.where().in("prelu");
  const Tensor& t = x.tensor();
  detail::require_defined(weight, "prelu", at, "weight");
  if (weight.dim() > 1) fail("prelu", "the weight must be a scalar or a vector, got " + weight.describe(), at);
  Tensor factor = weight;
  if (weight.dim() == 1 && weight.shape()[0] != Dim(1)) {
    const Dim channels = t.dim() >= 2 ? t.shape()[1] : Dim(1);
    if (channels != weight.shape()[0])
      fail("prelu",
           fmt::format("the weight must have 1 or {} elements for {}, got {}", channels.to_string(), t.describe(),
                       weight.describe()),
           at);
    std::vector<Dim> shape(t.shape().rank() - 1, Dim(1));
    shape[0] = channels;
    factor = weight.reshape(Shape(shape), at);
  } else if (weight.dim() == 1 && t.dim() == 0) {
    factor = weight.reshape(Shape{}, at);
  }
  return where(Operand(gt(x, Operand(0, at)), at), x, Operand(mul(Operand(factor, at), x), at));
}

Tensor softmin(const Operand& x, std::int64_t dim) {
  const Location at = x.where().in("softmin");
  return softmax(Operand(neg(Operand(x.tensor(), at)), at), dim);
}

}  // namespace graven
