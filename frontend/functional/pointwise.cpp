#include "graven/functional/pointwise.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "frontend/trace.h"
#include "ir/ops.h"

namespace graven {

using detail::apply;
using detail::At;
using detail::fail;

namespace {

/// Integers and bools become f32 first, as in PyTorch.
Tensor floating(const char* op, const Operand& x, ir::Attributes attributes = {}) {
  Tensor t = x.is_tensor() ? x.tensor(op) : tensor(x.scalar());
  if (!ir::is_floating(t.dtype())) t = t.to(DType::f32, x.where());
  return apply(op, {t}, std::move(attributes), x.where());
}

/// Both in the dtype that they promote to, for which promoted() was asked: what is no tensor was refused there.
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
Tensor frac(const Operand& x) {
  const At at(x.where().in("frac"));
  return at.sub(x, trunc(at(x)));
}

namespace {
/// `op` of floating tensors; of others always `otherwise`.
Tensor classify(const char* op, const Operand& x, bool otherwise) {
  if (ir::is_floating(x.tensor(op).dtype())) return floating(op, x);
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
DType floating_type(const Operand& a, const Operand& b, const char* function = __builtin_FUNCTION()) {
  const DType dtype = detail::promoted(a, b, function);
  return ir::is_floating(dtype) ? dtype : DType::f32;
}
DType number_type(const Operand& a, const Operand& b, const char* function) {
  const DType dtype = detail::promoted(a, b, function);
  if (dtype == DType::boolean) fail(function, "is not defined for bools", a.where());
  return dtype;
}
}  // namespace
Tensor atan2(const Operand& y, const Operand& x) { return binary("atan2", y, x, floating_type(y, x)); }
Tensor logaddexp(const Operand& x, const Operand& y) {
  if (!ir::is_floating(detail::promoted(x, y))) fail("logaddexp", "needs floating-point numbers", x.where());
  return binary("logaddexp", x, y, detail::promoted(x, y));
}
Tensor floor_divide(const Operand& x, const Operand& y) {
  return binary("floor_divide", x, y, number_type(x, y, "floor_divide"));
}
Tensor div(const Operand& x, const Operand& y, std::string_view rounding_mode) {
  const At at(x.where().in("div"));
  if (rounding_mode == "floor") return floor_divide(at(x), at(y));
  if (rounding_mode != "trunc")
    fail("div", fmt::format("rounding_mode must be floor or trunc, got '{}'", rounding_mode), at.where());
  if (ir::is_floating(number_type(at(x), at(y), "div"))) return trunc(at(at.div(x, y)));
  return floor_divide(at(at.sub(x, fmod(at(x), at(y)))), at(y));  // of a multiple of y
}
Tensor remainder(const Operand& x, const Operand& y) {
  return binary("remainder", x, y, number_type(x, y, "remainder"));
}
Tensor fmod(const Operand& x, const Operand& y) { return binary("fmod", x, y, number_type(x, y, "fmod")); }
Tensor logical_xor(const Operand& a, const Operand& b) { return binary("logical_xor", a, b, detail::promoted(a, b)); }
Tensor bitwise_and(const Operand& a, const Operand& b) { return binary("bitwise_and", a, b, detail::promoted(a, b)); }
Tensor bitwise_or(const Operand& a, const Operand& b) { return binary("bitwise_or", a, b, detail::promoted(a, b)); }
Tensor bitwise_xor(const Operand& a, const Operand& b) { return binary("bitwise_xor", a, b, detail::promoted(a, b)); }

Tensor lerp(const Operand& start, const Operand& end, const Operand& weight) {
  const At at(start.where().in("lerp"));
  return at.add(start, at.mul(weight, at.sub(end, start)));
}
Tensor addcmul(const Operand& x, const Operand& a, const Operand& b, double value) {
  const At at(x.where().in("addcmul"));
  return add(at(x), at(at.mul(a, b)), value);
}
Tensor addcdiv(const Operand& x, const Operand& a, const Operand& b, double value) {
  const At at(x.where().in("addcdiv"));
  return add(at(x), at(at.div(a, b)), value);
}
Tensor clamp(const Operand& x, const Tensor& min, const Tensor& max) {
  const Location at = x.where();
  if (!min.defined() && !max.defined()) fail("clamp", "needs min or max, got two undefined tensors", at);
  Tensor y = x.tensor();
  if (min.defined()) y = maximum(Operand(y, at), Operand(min, at));
  return max.defined() ? minimum(Operand(y, at), Operand(max, at)) : y;
}

Tensor clip(const Operand& x, double min, double max) {
  const At at(x.where().in("clip"));
  return clamp(at(x), min, max);
}
Tensor clip(const Operand& x, const Tensor& min, const Tensor& max) {
  const At at(x.where().in("clip"));
  return clamp(at(x), min, max);
}

Tensor isclose(const Operand& first, const Operand& second, double rtol, double atol, bool equal_nan) {
  const At at(first.where().in("isclose"));
  if (!(rtol >= 0 && atol >= 0))
    fail("isclose", fmt::format("rtol and atol must not be negative, got {} and {}", rtol, atol), at.where());
  const Operand a = at(first), b = at(second);
  Tensor close = eq(a, b);
  const DType dtype = detail::promoted(a, b);
  if (equal_nan && ir::is_floating(dtype)) close = logical_or(at(close), at(logical_and(at(isnan(a)), at(isnan(b)))));
  if (dtype == DType::boolean || (rtol == 0 && atol == 0)) return close;
  const Tensor difference = abs(at(at.sub(a, b)));
  const Tensor allowed = at.add(abs(at(at.mul(b, rtol))), atol);
  const Tensor within = logical_and(at(isfinite(at(difference))), at(le(at(difference), at(allowed))));
  return logical_or(at(close), at(within));
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

Tensor logit(const Operand& x, std::optional<double> eps) {
  const Location at = x.where().in("logit");
  const Operand t(eps ? clamp(Operand(x.tensor(), at), *eps, 1 - *eps) : x.tensor(), at);
  return log(Operand(div(t, Operand(sub(Operand(1.0, at), t), at)), at));
}

Tensor xlogy(const Operand& given, const Operand& other) {
  const At at((given.is_tensor() ? given.where() : other.where()).in("xlogy"));
  const Operand x = at(given), y = at(other);
  if (!y.is_tensor()) {
    if (!x.is_tensor()) fail("xlogy", "expects a tensor, got two numbers", at.where());
    const DType dtype = ir::is_floating(x.tensor().dtype()) ? x.tensor().dtype() : DType::f32;
    return xlogy(x, at(detail::filled(Shape{}, y.scalar().number(), dtype, x.tensor(), at.where())));
  }
  const Operand zero(0, at.where());  // of no dtype that would make integers floating
  const Tensor edge = logical_or(at(le(y, zero)), at(isinf(y)));
  const Tensor nothing = logical_and(at(eq(x, zero)), at(edge));
  // There log 1 stands in for log y, which is infinite, has no slope, or is no number.
  const Tensor safe = where(at(nothing), at(1.0), y);
  return at.mul(x, log(at(safe)));
}

}  // namespace graven
