#include "graven/functional/pointwise.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/trace.h"
#include "ir/ops.h"

namespace graven {

using detail::apply;
using detail::fail;

namespace {

/// Integers and bools become f32 first, as in PyTorch.
Tensor floating(std::string_view op, const Operand& x, ir::Attributes attributes = {}) {
  Tensor t = x.is_tensor() ? x.tensor() : tensor(x.scalar());
  if (!ir::is_floating(t.dtype())) t = t.to(DType::f32, x.where());
  return apply(op, {t}, std::move(attributes), x.where());
}

/// Both in the dtype that they promote to.
Tensor binary(std::string_view op, const Operand& a, const Operand& b, DType dtype) {
  const bool recording =
      (a.is_tensor() && detail::would_record({a.tensor()})) || (b.is_tensor() && detail::would_record({b.tensor()}));
  const auto in = [&](const Operand& o) -> Tensor {
    if (o.is_tensor()) return o.tensor().to(dtype, o.where());
    if (!recording) return tensor(o.scalar(), dtype);
    return detail::active_trace()
        ->record(ir::kFull, {}, {{"shape", Shape{}}, {"value", o.scalar().number()}, {"dtype", dtype}}, o.where())
        .at(0);
  };
  return apply(op, {in(a), in(b)}, {}, a.where());
}

}  // namespace

Tensor tan(const Operand& x) { return floating("tan", x); }
Tensor asin(const Operand& x) { return floating("asin", x); }
Tensor acos(const Operand& x) { return floating("acos", x); }
Tensor atan(const Operand& x) { return floating("atan", x); }
Tensor sinh(const Operand& x) { return floating("sinh", x); }
Tensor cosh(const Operand& x) { return floating("cosh", x); }
Tensor asinh(const Operand& x) { return floating("asinh", x); }
Tensor acosh(const Operand& x) { return floating("acosh", x); }
Tensor atanh(const Operand& x) { return floating("atanh", x); }
Tensor exp2(const Operand& x) { return floating("exp2", x); }
Tensor log2(const Operand& x) { return floating("log2", x); }
Tensor log10(const Operand& x) { return floating("log10", x); }
Tensor erfc(const Operand& x) { return floating("erfc", x); }

Tensor trunc(const Operand& x) { return ir::is_floating(x.tensor().dtype()) ? floating("trunc", x) : x.tensor(); }
Tensor frac(const Operand& x) { return sub(x, Operand(trunc(x), x.where())); }

namespace {
/// `op` of floating tensors; of others always `otherwise`.
Tensor classify(const char* op, const Operand& x, bool otherwise) {
  if (ir::is_floating(x.tensor().dtype())) return floating(op, x);
  return otherwise ? eq(x, x) : ne(x, x);
}
}  // namespace
Tensor isnan(const Operand& x) { return classify("isnan", x, false); }
Tensor isinf(const Operand& x) { return classify("isinf", x, false); }
Tensor isfinite(const Operand& x) { return classify("isfinite", x, true); }

Tensor nan_to_num(const Operand& x, double nan, std::optional<double> posinf, std::optional<double> neginf) {
  const Location at = x.where().in("nan_to_num");
  const DType dtype = x.tensor().dtype();
  if (!ir::is_floating(dtype)) return x.tensor().clone(at);
  const double largest = dtype == DType::f64    ? std::numeric_limits<double>::max()
                         : dtype == DType::f32  ? std::numeric_limits<float>::max()
                         : dtype == DType::bf16 ? 0x1.fep127
                                                : 65504;
  const auto replaced = [&](const Tensor& condition, double value, const Tensor& rest) {
    return where(Operand(condition, at), Operand(value, at), Operand(rest, at));
  };
  const Tensor infinite = isinf(x), positive = gt(x, Operand(0, at));
  Tensor y = replaced(isnan(x), nan, x.tensor());
  y = replaced(logical_and(Operand(infinite, at), Operand(positive, at)), posinf.value_or(largest), y);
  return replaced(logical_and(Operand(infinite, at), Operand(logical_not(Operand(positive, at)), at)),
                  neginf.value_or(-largest), y);
}

Tensor bitwise_not(const Operand& x) { return apply("bitwise_not", {x.tensor()}, {}, x.where()); }

namespace {
DType floating_type(const Operand& a, const Operand& b) {
  const DType dtype = result_type(a, b);
  return ir::is_floating(dtype) ? dtype : DType::f32;
}
DType number_type(const Operand& a, const Operand& b, const char* function) {
  const DType dtype = result_type(a, b);
  if (dtype == DType::boolean) fail(function, "is not defined for bools", a.where());
  return dtype;
}
}  // namespace
Tensor atan2(const Operand& y, const Operand& x) { return binary("atan2", y, x, floating_type(y, x)); }
Tensor logaddexp(const Operand& x, const Operand& y) {
  if (!ir::is_floating(result_type(x, y))) fail("logaddexp", "needs floating-point numbers", x.where());
  return binary("logaddexp", x, y, result_type(x, y));
}
Tensor floor_divide(const Operand& x, const Operand& y) {
  return binary("floor_divide", x, y, number_type(x, y, "floor_divide"));
}
Tensor div(const Operand& x, const Operand& y, std::string_view rounding_mode) {
  if (rounding_mode == "floor") return floor_divide(x, y);
  const Location at = x.where();
  if (rounding_mode != "trunc")
    fail("div", fmt::format("rounding_mode must be floor or trunc, got '{}'", rounding_mode), at);
  if (ir::is_floating(number_type(x, y, "div"))) return trunc(Operand(div(x, y), at));
  return floor_divide(Operand(sub(x, Operand(fmod(x, y), at)), at), y);  // of a multiple of y
}
Tensor remainder(const Operand& x, const Operand& y) {
  return binary("remainder", x, y, number_type(x, y, "remainder"));
}
Tensor fmod(const Operand& x, const Operand& y) { return binary("fmod", x, y, number_type(x, y, "fmod")); }
Tensor logical_xor(const Operand& a, const Operand& b) { return binary("logical_xor", a, b, result_type(a, b)); }
Tensor bitwise_and(const Operand& a, const Operand& b) { return binary("bitwise_and", a, b, result_type(a, b)); }
Tensor bitwise_or(const Operand& a, const Operand& b) { return binary("bitwise_or", a, b, result_type(a, b)); }
Tensor bitwise_xor(const Operand& a, const Operand& b) { return binary("bitwise_xor", a, b, result_type(a, b)); }

Tensor lerp(const Operand& start, const Operand& end, const Operand& weight) {
  const Location at = start.where();
  return add(start, Operand(mul(weight, Operand(sub(end, start), at)), at));
}
Tensor addcmul(const Operand& x, const Operand& a, const Operand& b, double value) {
  return add(x, Operand(mul(a, b), x.where()), value);
}
Tensor addcdiv(const Operand& x, const Operand& a, const Operand& b, double value) {
  return add(x, Operand(div(a, b), x.where()), value);
}
Tensor clamp(const Operand& x, const Tensor& min, const Tensor& max) {
  const Location at = x.where();
  if (!min.defined() && !max.defined()) fail("clamp", "needs min or max", at);
  Tensor y = x.tensor();
  if (min.defined()) y = maximum(Operand(y, at), Operand(min, at));
  return max.defined() ? minimum(Operand(y, at), Operand(max, at)) : y;
}

Tensor clip(const Operand& x, double min, double max) { return clamp(x, min, max); }
Tensor clip(const Operand& x, const Tensor& min, const Tensor& max) { return clamp(x, min, max); }

Tensor isclose(const Operand& a, const Operand& b, double rtol, double atol, bool equal_nan) {
  const Location at = a.where().in("isclose");
  if (!(rtol >= 0 && atol >= 0))
    fail("isclose", fmt::format("rtol and atol must not be negative, got {} and {}", rtol, atol), at);
  Tensor close = eq(a, b);
  const DType dtype = result_type(a, b);
  if (equal_nan && ir::is_floating(dtype))
    close = logical_or(Operand(close, at), Operand(logical_and(Operand(isnan(a), at), Operand(isnan(b), at)), at));
  if (dtype == DType::boolean || (rtol == 0 && atol == 0)) return close;
  const Tensor difference = abs(Operand(sub(a, b), at));
  const Tensor allowed = add(Operand(abs(Operand(mul(b, Operand(rtol, at)), at)), at), Operand(atol, at));
  const Tensor within = logical_and(Operand(isfinite(Operand(difference, at)), at),
                                    Operand(le(Operand(difference, at), Operand(allowed, at)), at));
  return logical_or(Operand(close, at), Operand(within, at));
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
  if (size.coefficient() % 2 != 0)
    fail("glu", fmt::format("dimension {} of {} has no two halves", dim, t.describe()), at);
  if (size == Dim(0)) return mul(Operand(t, at), Operand(sigmoid(Operand(t, at)), at));
  const std::vector<Tensor> halves = t.chunk(2, dim, at);
  return mul(Operand(halves[0], at), Operand(sigmoid(Operand(halves[1], at)), at));
}

Tensor prelu(const Operand& x, const Tensor& weight) {
  const Location at = x.where().in("prelu");
  const Tensor& t = x.tensor();
  if (!weight.defined() || weight.dim() > 1) fail("prelu", "the weight must be a scalar or a vector", at);
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

Tensor softmin(const Operand& x, std::int64_t dim) { return softmax(Operand(neg(x), x.where()), dim); }

Tensor logit(const Operand& x, std::optional<double> eps) {
  const Location at = x.where();
  const Operand t(eps ? clamp(x, *eps, 1 - *eps) : x.tensor(), at);
  return log(Operand(div(t, Operand(sub(Operand(1.0, at), t), at)), at));
}

Tensor xlogy(const Operand& x, const Operand& y) {
  const Location at = x.is_tensor() ? x.where() : y.where();
  if (!y.is_tensor()) {
    if (!x.is_tensor()) fail("xlogy", "expects a tensor, got two numbers", at);
    const DType dtype = ir::is_floating(x.tensor().dtype()) ? x.tensor().dtype() : DType::f32;
    return xlogy(x, Operand(detail::filled(Shape{}, y.scalar().number(), dtype, x.tensor(), at), at));
  }
  const Tensor edge = logical_or(Operand(le(y, Operand(0, at)), at), Operand(isinf(y), at));
  const Tensor nothing = logical_and(Operand(eq(x, Operand(0, at)), at), Operand(edge, at));
  // There log 1 stands in for log y, which is infinite, has no slope, or is no number.
  const Tensor safe = where(Operand(nothing, at), Operand(1.0, at), y);
  return mul(x, Operand(log(Operand(safe, at)), at));
}

}  // namespace graven
