#include "graven/functional/pointwise.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "frontend/functional/elementwise.h"
#include "frontend/trace.h"
#include "graven/functional.h"
#include "ir/ops.h"

namespace graven {

using detail::apply;
using detail::At;
using detail::binary;
using detail::binary_as;
using detail::fail;
using detail::limited;
using detail::materialize;
using detail::records;
using detail::unary;
using detail::unary_floating;

Tensor add(const Operand& a, const Operand& b, double alpha) {
  const DType dtype = detail::promoted(a, b);
  if (alpha != 1) return add(a, detail::scaled(b, alpha, dtype, "add"));
  return dtype == DType::boolean ? binary_as("logical_or", a, b, dtype) : binary_as("add", a, b, dtype);
}
Tensor sub(const Operand& a, const Operand& b, double alpha) {
  const DType dtype = detail::promoted(a, b);
  // Neither from numbers: PyTorch refuses them, too.
  const auto is_bool = [](const Operand& o) {
    return o.is_tensor() ? o.tensor().dtype() == DType::boolean : o.scalar().category() == Scalar::Category::boolean;
  };
  if (is_bool(a) || is_bool(b))
    fail("sub", "bools cannot be subtracted; use ne() or logical_not(), or make numbers of them with to()", a.where());
  if (alpha != 1) return sub(a, detail::scaled(b, alpha, dtype, "sub"));
  return binary_as("sub", a, b, dtype);
}
Tensor mul(const Operand& a, const Operand& b) {
  const DType dtype = detail::promoted(a, b);
  return dtype == DType::boolean ? binary_as("logical_and", a, b, dtype) : binary_as("mul", a, b, dtype);
}
Tensor div(const Operand& a, const Operand& b) {
  const DType dtype = detail::promoted(a, b);
  return binary_as("div", a, b, ir::is_floating(dtype) ? dtype : DType::f32);
}
Tensor pow(const Operand& base, const Operand& exponent) {
  const DType dtype = detail::promoted(base, exponent);
  if (base.is_tensor() && !exponent.is_tensor() && base.tensor().dtype() == dtype) {
    const double e = exponent.scalar().number();
    if (e == 1) return base.tensor().clone(base.where());
    if (e == 2) return square(base);
    if (e == 3) return mul(Operand(square(base), base.where()), base);
    if (ir::is_floating(dtype) && e == 0.5) return sqrt(base);
    if (ir::is_floating(dtype) && e == -1) return reciprocal(base);
  }
  if (ir::is_floating(dtype)) return binary_as("pow", base, exponent, dtype);
  if (dtype == DType::boolean) fail("pow", "is not defined for bools", base.where());
  if (!exponent.is_tensor() && exponent.scalar().number() < 0)
    fail("pow",
         "integers have no negative powers: convert " + (base.is_tensor() ? base.tensor().describe() : "the base") +
             " with to(f32)",
         base.where());
  return binary_as("pow", base, exponent, dtype);
}
Tensor maximum(const Operand& a, const Operand& b) {
  const DType dtype = detail::promoted(a, b);
  return binary_as(dtype == DType::boolean ? "logical_or" : "maximum", a, b, dtype);
}
Tensor minimum(const Operand& a, const Operand& b) {
  const DType dtype = detail::promoted(a, b);
  return binary_as(dtype == DType::boolean ? "logical_and" : "minimum", a, b, dtype);
}
Tensor eq(const Operand& a, const Operand& b) { return binary("eq", a, b); }
Tensor ne(const Operand& a, const Operand& b) { return binary("ne", a, b); }
Tensor lt(const Operand& a, const Operand& b) { return binary("lt", a, b); }
Tensor le(const Operand& a, const Operand& b) { return binary("le", a, b); }
Tensor gt(const Operand& a, const Operand& b) { return binary("gt", a, b); }
Tensor ge(const Operand& a, const Operand& b) { return binary("ge", a, b); }
Tensor logical_and(const Operand& a, const Operand& b) { return binary("logical_and", a, b); }
Tensor logical_or(const Operand& a, const Operand& b) { return binary("logical_or", a, b); }
Tensor logical_not(const Operand& x) { return unary("logical_not", x); }

Tensor where(const Operand& condition, const Operand& x, const Operand& y) {
  if (condition.is_tensor() && condition.tensor().dtype() != DType::boolean)
    fail("where", "the condition must be bool, got " + condition.tensor().describe() + ": compare it, as in x != 0",
         condition.where());
  const DType dtype = detail::promoted(x, y);
  const bool recording = records(condition, condition) || records(x, y);
  return apply("where",
               {materialize(condition, DType::boolean, recording), materialize(x, dtype, recording),
                materialize(y, dtype, recording)},
               {}, condition.where());
}

Tensor neg(const Operand& x) { return unary("neg", x); }
Tensor abs(const Operand& x) { return unary("abs", x); }
Tensor sign(const Operand& x) { return unary("sign", x); }
Tensor exp(const Operand& x) { return unary_floating("exp", x); }
Tensor expm1(const Operand& x) { return unary_floating("expm1", x); }
Tensor log(const Operand& x) { return unary_floating("log", x); }
Tensor log1p(const Operand& x) { return unary_floating("log1p", x); }
Tensor sqrt(const Operand& x) { return unary_floating("sqrt", x); }
Tensor rsqrt(const Operand& x) { return unary_floating("rsqrt", x); }
Tensor square(const Operand& x) { return unary("square", x); }
Tensor reciprocal(const Operand& x) { return unary_floating("reciprocal", x); }
Tensor sin(const Operand& x) { return unary_floating("sin", x); }
Tensor cos(const Operand& x) { return unary_floating("cos", x); }
Tensor erf(const Operand& x) { return unary_floating("erf", x); }
Tensor floor(const Operand& x) { return unary("floor", x); }
Tensor ceil(const Operand& x) { return unary("ceil", x); }
Tensor round(const Operand& x) { return unary("round", x); }

Tensor clamp(const Operand& x, std::optional<Scalar> min, std::optional<Scalar> max) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // As PyTorch promotes them: a limit with a fraction makes numbers of integers.
  Tensor t = x.tensor("clamp");
  for (const std::optional<Scalar>& limit : {min, max}) {
    if (!limit) continue;
    if (limit->category() == Scalar::Category::floating && !ir::is_floating(t.dtype()))
      t = t.to(DType::f32, x.where());
    else if (limit->category() == Scalar::Category::integer && t.dtype() == DType::boolean)
      t = t.to(DType::i64, x.where());
  }
  return limited("clamp", Operand(t, x.where()), min ? min->number() : -kInfinity, max ? max->number() : kInfinity);
}

Tensor tan(const Operand& x) { return unary_floating("tan", x); }
Tensor asin(const Operand& x) { return unary_floating("asin", x); }
Tensor acos(const Operand& x) { return unary_floating("acos", x); }
Tensor atan(const Operand& x) { return unary_floating("atan", x); }
Tensor sinh(const Operand& x) { return unary_floating("sinh", x); }
Tensor cosh(const Operand& x) { return unary_floating("cosh", x); }
Tensor asinh(const Operand& x) { return unary_floating("asinh", x); }
Tensor acosh(const Operand& x) { return unary_floating("acosh", x); }
Tensor atanh(const Operand& x) { return unary_floating("atanh", x); }
Tensor exp2(const Operand& x) { return unary_floating("exp2", x); }
Tensor log2(const Operand& x) { return unary_floating("log2", x); }
Tensor log10(const Operand& x) { return unary_floating("log10", x); }
Tensor erfc(const Operand& x) { return unary_floating("erfc", x); }

Tensor trunc(const Operand& x) { return ir::is_floating(x.tensor().dtype()) ? unary_floating("trunc", x) : x.tensor(); }
Tensor frac(const Operand& x) {
  const At at(x.where().in("frac"));
  return at.sub(x, trunc(at(x)));
}

namespace {
/// `op` of floating tensors; of others always `otherwise`.
Tensor classify(const char* op, const Operand& x, bool otherwise) {
  if (ir::is_floating(x.tensor(op).dtype())) return unary_floating(op, x);
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
Tensor atan2(const Operand& y, const Operand& x) { return binary_as("atan2", y, x, floating_type(y, x)); }
Tensor logaddexp(const Operand& x, const Operand& y) {
  if (!ir::is_floating(detail::promoted(x, y))) fail("logaddexp", "needs floating-point numbers", x.where());
  return binary_as("logaddexp", x, y, detail::promoted(x, y));
}
Tensor floor_divide(const Operand& x, const Operand& y) {
  return binary_as("floor_divide", x, y, number_type(x, y, "floor_divide"));
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
  return binary_as("remainder", x, y, number_type(x, y, "remainder"));
}
Tensor fmod(const Operand& x, const Operand& y) { return binary_as("fmod", x, y, number_type(x, y, "fmod")); }
Tensor logical_xor(const Operand& a, const Operand& b) {
  return binary_as("logical_xor", a, b, detail::promoted(a, b));
}
Tensor bitwise_and(const Operand& a, const Operand& b) {
  return binary_as("bitwise_and", a, b, detail::promoted(a, b));
}
Tensor bitwise_or(const Operand& a, const Operand& b) { return binary_as("bitwise_or", a, b, detail::promoted(a, b)); }
Tensor bitwise_xor(const Operand& a, const Operand& b) {
  return binary_as("bitwise_xor", a, b, detail::promoted(a, b));
}

Tensor lerp(const Operand& start, const Operand& end, const Operand& weight) {
  const At at(start.where().in("lerp"));
  if (const DType d = detail::promoted(start, end); !ir::is_floating(d))
    fail("lerp", "needs floating-point numbers, got " + std::string(ir::name(d)), at.where());
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

Tensor clip(const Operand& x, std::optional<Scalar> min, std::optional<Scalar> max) {
  const At at(x.where().in("clip"));
  return clamp(at(x), min, max);
}
Tensor clip(const Operand& x, const Tensor& min, const Tensor& max) {
  const At at(x.where().in("clip"));
  return clamp(at(x), min, max);
}

Tensor isin(const Operand& x, const Tensor& of, bool invert) {
  const At at(x.where().in("isin"));
  detail::require_defined(of, "isin", at.where(), "the elements to look for");
  const Tensor found =
      any(at(eq(at(x.tensor("isin").unsqueeze(-1, at.where())), at(of.reshape({-1}, at.where())))), -1);
  return invert ? logical_not(at(found)) : found;
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
    return xlogy(x, at(detail::filled(Shape{}, y.scalar(), dtype, x.tensor(), at.where())));
  }
  const Operand zero(0, at.where());  // of no dtype that would make integers floating
  const Tensor edge = logical_or(at(le(y, zero)), at(isinf(y)));
  const Tensor nothing = logical_and(at(eq(x, zero)), at(edge));
  // There log 1 stands in for log y, which is infinite, has no slope, or is no number.
  const Tensor safe = where(at(nothing), at(1.0), y);
  return at.mul(x, log(at(safe)));
}

}  // namespace graven
