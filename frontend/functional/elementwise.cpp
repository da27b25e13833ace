#include "frontend/functional/elementwise.h"

#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "graven/functional.h"
#include "ir/types.h"

namespace graven {

using detail::apply;
using detail::fail;

namespace {

int category(DType d) { return d == DType::boolean ? 0 : ir::is_floating(d) ? 2 : 1; }

}  // namespace

// ---- dtypes ----

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

// ---- operands ----

Tensor detail::materialize(const Operand& x, DType dtype, bool recording) {
  if (x.is_tensor()) return x.tensor().to(dtype, x.where());
  return recording ? detail::recorded_full({}, x.scalar(), dtype, x.where()) : detail::wrapped(x.scalar(), dtype);
}

bool detail::records(const Operand& a, const Operand& b) {
  return (a.is_tensor() && detail::would_record({a.tensor()})) || (b.is_tensor() && detail::would_record({b.tensor()}));
}

Tensor detail::binary_as(std::string_view op, const Operand& a, const Operand& b, DType dtype) {
  const bool recording = records(a, b);
  return apply(op, {materialize(a, dtype, recording), materialize(b, dtype, recording)}, {}, a.where());
}

Tensor detail::binary(const char* op, const Operand& a, const Operand& b) {
  return binary_as(op, a, b, detail::promoted(a, b, op));
}

Tensor detail::tensor_of(const Operand& x, const char* function) {
  return x.is_tensor() ? x.tensor(function) : tensor(x.scalar());
}

Tensor detail::unary(const char* op, const Operand& x, ir::Attributes attributes, const char* function) {
  return apply(op, {tensor_of(x, function)}, std::move(attributes), x.where());
}

Tensor detail::unary_floating(const char* op, const Operand& x, ir::Attributes attributes) {
  Tensor t = tensor_of(x, op);
  if (!ir::is_floating(t.dtype())) t = t.to(DType::f32, x.where());
  return apply(op, {t}, std::move(attributes), x.where());
}

Tensor detail::limited(const char* op, const Operand& x, double min, double max) {
  if (!std::isnan(min) && !std::isnan(max)) return unary(op, x, {{"min", min}, {"max", max}}, op);
  const Location at = x.where();
  if (!ir::is_floating(x.tensor(op).dtype())) fail(op, "a limit of integers must not be NaN", at);
  return minimum(Operand(maximum(x, Operand(min, at)), at), Operand(max, at));
}

}  // namespace graven
