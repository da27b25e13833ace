#include "graven/functional.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include <fmt/format.h>

#include "frontend/autograd.h"
#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "frontend/trace.h"
#include "ir/ops.h"

namespace graven {

using detail::apply;
using detail::fail;

namespace {

int category(DType d) { return d == DType::boolean ? 0 : ir::is_floating(d) ? 2 : 1; }

/// The number as a scalar of this dtype, recorded as a node when the call it belongs to is.
Tensor scalar_like(Scalar value, DType dtype, bool recording, Location where) {
  if (!recording) return tensor(value, dtype);
  const ir::OpDef& op = ir::kFull;
  return detail::active_trace()
      ->record(op, {}, {{"shape", Shape{}}, {"value", value.number()}, {"dtype", dtype}}, where)
      .at(0);
}

Tensor materialize(const Operand& x, DType dtype, bool recording) {
  if (x.is_tensor()) return x.tensor().to(dtype, x.where());
  return scalar_like(x.scalar(), dtype, recording, x.where());
}

bool records(const Operand& a, const Operand& b) {
  return (a.is_tensor() && detail::would_record({a.tensor()})) || (b.is_tensor() && detail::would_record({b.tensor()}));
}

/// Their dtype was asked for by promoted(): what is no tensor was refused there.
Tensor binary_as(std::string_view op, const Operand& a, const Operand& b, DType dtype) {
  const bool recording = records(a, b);
  return apply(op, {materialize(a, dtype, recording), materialize(b, dtype, recording)}, {}, a.where());
}

Tensor binary(const char* op, const Operand& a, const Operand& b) {
  return binary_as(op, a, b, detail::promoted(a, b, op));
}

/// The operand as a tensor: a number becomes a scalar.
Tensor tensor_of(const Operand& x, const char* function = __builtin_FUNCTION()) {
  return x.is_tensor() ? x.tensor(function) : tensor(x.scalar());
}

Tensor unary(const char* op, const Operand& x, ir::Attributes attributes = {},
             const char* function = __builtin_FUNCTION()) {
  return apply(op, {tensor_of(x, function)}, std::move(attributes), x.where());
}

/// Integers and bools become f32 first, as in PyTorch.
Tensor unary_floating(const char* op, const Operand& x, ir::Attributes attributes = {}) {
  Tensor t = tensor_of(x, op);
  if (!ir::is_floating(t.dtype())) t = t.to(DType::f32, x.where());
  return apply(op, {t}, std::move(attributes), x.where());
}

Tensor reduce(std::string_view op, const Tensor& x, const Sizes& dims, bool keepdim, Location where) {
  return apply(op, {x}, {{"dims", dims}, {"keepdim", keepdim}}, where);
}

}  // namespace

DType result_type(const Operand& a, const Operand& b) { return detail::promoted(a, b); }

DType detail::promoted(const Operand& a, const Operand& b, const char* function) {
  // Three kinds, in PyTorch's order of say: tensors with dimensions, scalar tensors, numbers. A lower kind counts only
  // where its category (bool, integer, floating) is higher.
  struct Say {
    int kind, category;
    DType dtype;
  };
  const auto say = [function](const Operand& o) -> Say {
    if (o.is_tensor()) {
      const Tensor& t = o.tensor(function);
      return {t.dim() > 0 ? 2 : 1, category(t.dtype()), t.dtype()};
    }
    const int c = static_cast<int>(o.scalar().category());
    return {0, c, c == 0 ? DType::boolean : c == 1 ? DType::i64 : DType::f32};
  };
  const Say x = say(a), y = say(b);
  if (x.kind == y.kind) return ir::promote(x.dtype, y.dtype);
  const Say &high = x.kind > y.kind ? x : y, &low = x.kind > y.kind ? y : x;
  return low.category > high.category ? low.dtype : high.dtype;
}

Operand detail::scaled(const Operand& x, double factor, DType dtype, const char* function) {
  if (dtype == DType::boolean) fail(function, "bools are not scaled; alpha and beta must be 1", x.where());
  const bool floating = ir::is_floating(dtype);
  // 2^63 is the first double beyond i64.
  if (!floating && !(std::trunc(factor) == factor && std::abs(factor) < 0x1p63))
    fail(function, fmt::format("the factor of integers must be a whole number, got {}", factor), x.where());
  const Scalar by = floating ? Scalar(factor) : Scalar(static_cast<std::int64_t>(factor));
  if (!x.is_tensor()) {
    if (floating) return {Scalar(x.scalar().number() * factor), x.where()};
    // Wraps around.
    const auto product = static_cast<std::uint64_t>(x.scalar().integer()) * static_cast<std::uint64_t>(by.integer());
    return {Scalar(static_cast<std::int64_t>(product)), x.where()};
  }
  return {mul(Operand(x.tensor().to(dtype, x.where()), x.where()), Operand(by, x.where())), x.where()};
}

// ---- elementwise ----------------------------------------------------------------------------------------------------

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
namespace {
/// A limit that is NaN makes all of it NaN, which the operators' comparisons with their limits do not.
Tensor limited(const char* op, const Operand& x, double min, double max) {
  if (!std::isnan(min) && !std::isnan(max)) return unary(op, x, {{"min", min}, {"max", max}}, op);
  const Location at = x.where();
  if (!ir::is_floating(x.tensor(op).dtype())) fail(op, "a limit of integers must not be NaN", at);
  return minimum(Operand(maximum(x, Operand(min, at)), at), Operand(max, at));
}
}  // namespace
Tensor clamp(const Operand& x, double min, double max) { return limited("clamp", x, min, max); }

// ---- activations ----------------------------------------------------------------------------------------------------

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

// ---- reductions -----------------------------------------------------------------------------------------------------

Tensor sum(const Operand& x, const OneOrMore& dims, bool keepdim) {
  Tensor t = tensor_of(x);
  if (!ir::is_floating(t.dtype())) t = t.to(DType::i64, x.where());
  return reduce("sum", t, dims, keepdim, x.where());
}
Tensor mean(const Operand& x, const OneOrMore& dims, bool keepdim) {
  const Tensor t = tensor_of(x);
  if (!ir::is_floating(t.dtype()))
    fail("mean", "needs a floating-point tensor, got " + t.describe() + "; convert it with to(f32)", x.where());
  return reduce("mean", t, dims, keepdim, x.where());
}
Tensor amax(const Operand& x, const OneOrMore& dims, bool keepdim) {
  return reduce("amax", tensor_of(x), dims, keepdim, x.where());
}
Tensor amin(const Operand& x, const OneOrMore& dims, bool keepdim) {
  return reduce("amin", tensor_of(x), dims, keepdim, x.where());
}
Tensor prod(const Operand& x, const OneOrMore& dims, bool keepdim) {
  Tensor t = tensor_of(x);
  if (!ir::is_floating(t.dtype())) t = t.to(DType::i64, x.where());
  return reduce("prod", t, dims, keepdim, x.where());
}

namespace {
Tensor arg_extreme(const char* op, const Operand& x, std::optional<std::int64_t> dim, bool keepdim) {
  const Tensor t = tensor_of(x, op);
  if (dim)
    return apply(op, {t}, {{"dim", detail::normalize_dim(*dim, t.dim(), op, x.where())}, {"keepdim", keepdim}},
                 x.where());
  const Tensor flat =
      apply(op, {t.reshape({-1}, x.where())}, {{"dim", std::int64_t{0}}, {"keepdim", false}}, x.where());
  return keepdim ? flat.reshape(Shape(std::vector<Dim>(t.shape().rank(), Dim(1))), x.where()) : flat;
}
}  // namespace
Tensor argmax(const Operand& x, std::optional<std::int64_t> dim, bool keepdim) {
  return arg_extreme("argmax", x, dim, keepdim);
}
Tensor argmin(const Operand& x, std::optional<std::int64_t> dim, bool keepdim) {
  return arg_extreme("argmin", x, dim, keepdim);
}

// ---- shapes ---------------------------------------------------------------------------------------------------------

Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim, Location where) {
  if (tensors.empty()) fail("cat", "needs at least one tensor", where);
  detail::require_defined(tensors, "cat", where);
  DType dtype = tensors[0].dtype();
  for (const Tensor& t : tensors) dtype = ir::promote(dtype, t.dtype());
  std::vector<Tensor> same;
  for (const Tensor& t : tensors) same.push_back(t.to(dtype, where));
  return apply("cat", std::move(same), {{"dim", detail::normalize_dim(dim, tensors[0].dim(), "cat", where)}}, where);
}

Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim, Location where) {
  if (tensors.empty()) fail("stack", "needs at least one tensor", where);
  detail::require_defined(tensors, "stack", where);
  std::vector<Tensor> wide;
  for (const Tensor& t : tensors) {
    if (t.shape() != tensors[0].shape())
      fail("stack", "the tensors must have one shape, got " + tensors[0].describe() + " and " + t.describe(), where);
    wide.push_back(t.unsqueeze(detail::normalize_dim(dim, t.dim() + 1, "stack", where), where));
  }
  return cat(wide, detail::normalize_dim(dim, tensors[0].dim() + 1, "stack", where), where);
}

// ---- products -------------------------------------------------------------------------------------------------------

Tensor linear(const Operand& x, const Tensor& weight, const Tensor& bias) {
  return apply("linear", {x.tensor(), weight, bias}, {}, x.where());
}

Tensor matmul(const Operand& a, const Operand& b) {
  if (a.tensor().dtype() != b.tensor().dtype())
    fail("matmul", "both must have one dtype, got " + a.tensor().describe() + " and " + b.tensor().describe(),
         a.where());
  return apply("matmul", {a.tensor(), b.tensor()}, {}, a.where());
}

// ---- images ---------------------------------------------------------------------------------------------------------

namespace {
Sizes pair(Size2 s) { return {s.height, s.width}; }

/// A single image gets a batch dimension, and loses it again.
template <class F>
Tensor on_images(const Operand& x, const char* function, F&& f) {
  const Tensor& t = x.tensor(function);
  if (t.dim() == 3) return f(t.unsqueeze(0, x.where())).squeeze(0, x.where());
  if (t.dim() != 4)
    fail(function, "expects [batch, channels, height, width] or [channels, height, width], got " + t.describe(),
         x.where());
  return f(t);
}
}  // namespace

Tensor max_pool2d(const Operand& x, Size2 kernel_size, const MaxPool2dOptions& o) {
  return on_images(x, "max_pool2d", [&](const Tensor& images) {
    return apply("max_pool2d", {images},
                 {{"kernel_size", pair(kernel_size)},
                  {"stride", pair(o.stride.value_or(kernel_size))},
                  {"padding", pair(o.padding)},
                  {"dilation", pair(o.dilation)},
                  {"ceil_mode", o.ceil_mode}},
                 x.where());
  });
}

// ---- operators and methods ------------------------------------------------------------------------------------------

Tensor operator+(const Operand& a, const Operand& b) { return add(a, b); }
Tensor operator-(const Operand& a, const Operand& b) { return sub(a, b); }
Tensor operator*(const Operand& a, const Operand& b) { return mul(a, b); }
Tensor operator/(const Operand& a, const Operand& b) { return div(a, b); }
Tensor operator-(const Operand& a) { return neg(a); }
Tensor operator!(const Operand& a) { return logical_not(a); }
Tensor operator~(const Operand& a) { return bitwise_not(a); }
Tensor operator&(const Operand& a, const Operand& b) { return bitwise_and(a, b); }
Tensor operator|(const Operand& a, const Operand& b) { return bitwise_or(a, b); }
Tensor operator^(const Operand& a, const Operand& b) { return bitwise_xor(a, b); }
Tensor operator%(const Operand& a, const Operand& b) { return remainder(a, b); }
Tensor operator==(const Operand& a, const Operand& b) { return eq(a, b); }
Tensor operator!=(const Operand& a, const Operand& b) { return ne(a, b); }
Tensor operator<(const Operand& a, const Operand& b) { return lt(a, b); }
Tensor operator<=(const Operand& a, const Operand& b) { return le(a, b); }
Tensor operator>(const Operand& a, const Operand& b) { return gt(a, b); }
Tensor operator>=(const Operand& a, const Operand& b) { return ge(a, b); }

Tensor Tensor::abs(Location where) const { return graven::abs(Operand(*this, where)); }
Tensor Tensor::neg(Location where) const { return graven::neg(Operand(*this, where)); }
Tensor Tensor::exp(Location where) const { return graven::exp(Operand(*this, where)); }
Tensor Tensor::log(Location where) const { return graven::log(Operand(*this, where)); }
Tensor Tensor::sqrt(Location where) const { return graven::sqrt(Operand(*this, where)); }
Tensor Tensor::rsqrt(Location where) const { return graven::rsqrt(Operand(*this, where)); }
Tensor Tensor::square(Location where) const { return graven::square(Operand(*this, where)); }
Tensor Tensor::sin(Location where) const { return graven::sin(Operand(*this, where)); }
Tensor Tensor::cos(Location where) const { return graven::cos(Operand(*this, where)); }
Tensor Tensor::tanh(Location where) const { return graven::tanh(Operand(*this, where)); }
Tensor Tensor::sigmoid(Location where) const { return graven::sigmoid(Operand(*this, where)); }
Tensor Tensor::relu(Location where) const { return graven::relu(Operand(*this, where)); }
Tensor Tensor::silu(Location where) const { return graven::silu(Operand(*this, where)); }
Tensor Tensor::gelu(std::string_view approximate, Location where) const {
  return graven::gelu(Operand(*this, where), approximate);
}
Tensor Tensor::pow(const Operand& exponent) const { return graven::pow(Operand(*this, exponent.where()), exponent); }
Tensor Tensor::clamp(double min, double max, Location where) const {
  return graven::clamp(Operand(*this, where), min, max);
}
Tensor Tensor::sum(const OneOrMore& dims, bool keepdim, Location where) const {
  return graven::sum(Operand(*this, where), dims, keepdim);
}
Tensor Tensor::mean(const OneOrMore& dims, bool keepdim, Location where) const {
  return graven::mean(Operand(*this, where), dims, keepdim);
}
Tensor Tensor::amax(const OneOrMore& dims, bool keepdim, Location where) const {
  return graven::amax(Operand(*this, where), dims, keepdim);
}
Tensor Tensor::amin(const OneOrMore& dims, bool keepdim, Location where) const {
  return graven::amin(Operand(*this, where), dims, keepdim);
}
Tensor Tensor::prod(const OneOrMore& dims, bool keepdim, Location where) const {
  return graven::prod(Operand(*this, where), dims, keepdim);
}
Tensor Tensor::argmax(std::optional<std::int64_t> d, bool keepdim, Location where) const {
  return graven::argmax(Operand(*this, where), d, keepdim);
}
Tensor Tensor::argmin(std::optional<std::int64_t> d, bool keepdim, Location where) const {
  return graven::argmin(Operand(*this, where), d, keepdim);
}
Tensor Tensor::softmax(std::int64_t d, Location where) const { return graven::softmax(Operand(*this, where), d); }
Tensor Tensor::log_softmax(std::int64_t d, Location where) const {
  return graven::log_softmax(Operand(*this, where), d);
}
Tensor Tensor::matmul(const Tensor& other, Location where) const {
  return graven::matmul(Operand(*this, where), Operand(other, where));
}

}  // namespace graven
