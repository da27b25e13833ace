// Operators, and methods of Tensor, that are functions of the families in graven/functional/.
#include <cstdint>

#include "frontend/autograd.h"
#include "frontend/dispatch.h"
#include "graven/functional.h"

namespace graven {

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
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max, Location where) const {
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
Tensor Tensor::tan(Location where) const { return graven::tan(Operand(*this, where)); }
Tensor Tensor::asin(Location where) const { return graven::asin(Operand(*this, where)); }
Tensor Tensor::acos(Location where) const { return graven::acos(Operand(*this, where)); }
Tensor Tensor::atan(Location where) const { return graven::atan(Operand(*this, where)); }
Tensor Tensor::sinh(Location where) const { return graven::sinh(Operand(*this, where)); }
Tensor Tensor::cosh(Location where) const { return graven::cosh(Operand(*this, where)); }
Tensor Tensor::asinh(Location where) const { return graven::asinh(Operand(*this, where)); }
Tensor Tensor::acosh(Location where) const { return graven::acosh(Operand(*this, where)); }
Tensor Tensor::atanh(Location where) const { return graven::atanh(Operand(*this, where)); }
Tensor Tensor::exp2(Location where) const { return graven::exp2(Operand(*this, where)); }
Tensor Tensor::expm1(Location where) const { return graven::expm1(Operand(*this, where)); }
Tensor Tensor::log2(Location where) const { return graven::log2(Operand(*this, where)); }
Tensor Tensor::log10(Location where) const { return graven::log10(Operand(*this, where)); }
Tensor Tensor::log1p(Location where) const { return graven::log1p(Operand(*this, where)); }
Tensor Tensor::erf(Location where) const { return graven::erf(Operand(*this, where)); }
Tensor Tensor::erfc(Location where) const { return graven::erfc(Operand(*this, where)); }
Tensor Tensor::floor(Location where) const { return graven::floor(Operand(*this, where)); }
Tensor Tensor::ceil(Location where) const { return graven::ceil(Operand(*this, where)); }
Tensor Tensor::round(Location where) const { return graven::round(Operand(*this, where)); }
Tensor Tensor::trunc(Location where) const { return graven::trunc(Operand(*this, where)); }
Tensor Tensor::frac(Location where) const { return graven::frac(Operand(*this, where)); }
Tensor Tensor::sign(Location where) const { return graven::sign(Operand(*this, where)); }
Tensor Tensor::reciprocal(Location where) const { return graven::reciprocal(Operand(*this, where)); }
Tensor Tensor::logical_not(Location where) const { return graven::logical_not(Operand(*this, where)); }
Tensor Tensor::isnan(Location where) const { return graven::isnan(Operand(*this, where)); }
Tensor Tensor::isinf(Location where) const { return graven::isinf(Operand(*this, where)); }
Tensor Tensor::isfinite(Location where) const { return graven::isfinite(Operand(*this, where)); }
Tensor Tensor::var(const OneOrMore& dims, double correction, bool keepdim, Location where) const {
  return graven::var(Operand(*this, where), dims, {.correction = correction, .keepdim = keepdim});
}
Tensor Tensor::std(const OneOrMore& dims, double correction, bool keepdim, Location where) const {
  return graven::std(Operand(*this, where), dims, {.correction = correction, .keepdim = keepdim});
}
Tensor Tensor::norm(double p, const OneOrMore& dims, bool keepdim, Location where) const {
  return graven::norm(Operand(*this, where), p, dims, keepdim);
}
Tensor Tensor::logsumexp(const OneOrMore& dims, bool keepdim, Location where) const {
  return graven::logsumexp(Operand(*this, where), dims, keepdim);
}
Tensor Tensor::all(const OneOrMore& dims, bool keepdim, Location where) const {
  return graven::all(Operand(*this, where), dims, keepdim);
}
Tensor Tensor::any(const OneOrMore& dims, bool keepdim, Location where) const {
  return graven::any(Operand(*this, where), dims, keepdim);
}
Tensor Tensor::cumsum(std::int64_t d, Location where) const { return graven::cumsum(Operand(*this, where), d); }
Tensor Tensor::cumprod(std::int64_t d, Location where) const { return graven::cumprod(Operand(*this, where), d); }
std::tuple<Tensor, Tensor> Tensor::sort(std::int64_t d, bool descending, Location where) const {
  return graven::sort(Operand(*this, where), d, descending);
}
Tensor Tensor::argsort(std::int64_t d, bool descending, Location where) const {
  return graven::argsort(Operand(*this, where), d, descending);
}
std::tuple<Tensor, Tensor> Tensor::topk(std::int64_t k, std::int64_t d, bool largest, Location where) const {
  return graven::topk(Operand(*this, where), k, d, largest);
}
std::vector<Tensor> Tensor::split(const Sizes& split_sizes, std::int64_t d, Location where) const {
  return graven::split(Operand(*this, where), split_sizes, d);
}
std::vector<Tensor> Tensor::unbind(std::int64_t d, Location where) const {
  return graven::unbind(Operand(*this, where), d);
}
Tensor Tensor::unflatten(std::int64_t d, const Shape& sizes, Location where) const {
  return graven::unflatten(Operand(*this, where), d, sizes);
}
Tensor Tensor::swapaxes(std::int64_t dim0, std::int64_t dim1, Location where) const {
  return graven::swapaxes(Operand(*this, where), dim0, dim1);
}
Tensor Tensor::movedim(const OneOrMore& source, const OneOrMore& destination, Location where) const {
  return graven::movedim(Operand(*this, where), source, destination);
}
Tensor Tensor::flip(const OneOrMore& dims, Location where) const { return graven::flip(Operand(*this, where), dims); }
Tensor Tensor::roll(const OneOrMore& shifts, const OneOrMore& dims, Location where) const {
  return graven::roll(Operand(*this, where), shifts, dims);
}
Tensor Tensor::repeat(const Sizes& counts, Location where) const {
  return graven::repeat(Operand(*this, where), counts);
}
Tensor Tensor::tile(const Sizes& counts, Location where) const { return graven::tile(Operand(*this, where), counts); }
Tensor Tensor::repeat_interleave(std::int64_t repeats, std::optional<std::int64_t> d, Location where) const {
  return graven::repeat_interleave(Operand(*this, where), repeats, d);
}
Tensor Tensor::tril(std::int64_t diagonal, Location where) const {
  return graven::tril(Operand(*this, where), diagonal);
}
Tensor Tensor::triu(std::int64_t diagonal, Location where) const {
  return graven::triu(Operand(*this, where), diagonal);
}
Tensor Tensor::diagonal(std::int64_t offset, std::int64_t dim1, std::int64_t dim2, Location where) const {
  return graven::diagonal(Operand(*this, where), offset, dim1, dim2);
}
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value, Location where) const {
  return graven::masked_fill(Operand(*this, where), mask, Operand(value, where));
}
Tensor Tensor::mm(const Tensor& other, Location where) const {
  return graven::mm(Operand(*this, where), Operand(other, where));
}
Tensor Tensor::bmm(const Tensor& other, Location where) const {
  return graven::bmm(Operand(*this, where), Operand(other, where));
}
Tensor Tensor::mv(const Tensor& other, Location where) const {
  return graven::mv(Operand(*this, where), Operand(other, where));
}
Tensor Tensor::dot(const Tensor& other, Location where) const {
  return graven::dot(Operand(*this, where), Operand(other, where));
}
Tensor Tensor::add(const Operand& other, double alpha) const {
  return graven::add(Operand(*this, other.where()), other, alpha);
}
Tensor Tensor::sub(const Operand& other, double alpha) const {
  return graven::sub(Operand(*this, other.where()), other, alpha);
}
Tensor Tensor::mul(const Operand& other) const { return graven::mul(Operand(*this, other.where()), other); }
Tensor Tensor::div(const Operand& other) const { return graven::div(Operand(*this, other.where()), other); }
Tensor Tensor::eq(const Operand& other) const { return graven::eq(Operand(*this, other.where()), other); }
Tensor Tensor::ne(const Operand& other) const { return graven::ne(Operand(*this, other.where()), other); }
Tensor Tensor::lt(const Operand& other) const { return graven::lt(Operand(*this, other.where()), other); }
Tensor Tensor::le(const Operand& other) const { return graven::le(Operand(*this, other.where()), other); }
Tensor Tensor::gt(const Operand& other) const { return graven::gt(Operand(*this, other.where()), other); }
Tensor Tensor::ge(const Operand& other) const { return graven::ge(Operand(*this, other.where()), other); }
Tensor Tensor::maximum(const Operand& other) const { return graven::maximum(Operand(*this, other.where()), other); }
Tensor Tensor::minimum(const Operand& other) const { return graven::minimum(Operand(*this, other.where()), other); }
Tensor Tensor::div(const Operand& other, std::string_view rounding_mode) const {
  return graven::div(Operand(*this, other.where()), other, rounding_mode);
}
Tensor Tensor::floor_divide(const Operand& other) const {
  return graven::floor_divide(Operand(*this, other.where()), other);
}
Tensor Tensor::remainder(const Operand& other) const { return graven::remainder(Operand(*this, other.where()), other); }
Tensor Tensor::fmod(const Operand& other) const { return graven::fmod(Operand(*this, other.where()), other); }
Tensor Tensor::logical_and(const Operand& other) const {
  return graven::logical_and(Operand(*this, other.where()), other);
}
Tensor Tensor::logical_or(const Operand& other) const {
  return graven::logical_or(Operand(*this, other.where()), other);
}
Tensor Tensor::max(Location where) const { return graven::amax(Operand(*this, where)); }
Tensor Tensor::min(Location where) const { return graven::amin(Operand(*this, where)); }
Tensor Tensor::max(const Tensor& other, Location where) const {
  return graven::maximum(Operand(*this, where), Operand(other, where));
}
Tensor Tensor::min(const Tensor& other, Location where) const {
  return graven::minimum(Operand(*this, where), Operand(other, where));
}
std::tuple<Tensor, Tensor> Tensor::max(std::int64_t d, bool keepdim, Location where) const {
  return graven::max(Operand(*this, where), d, keepdim);
}
std::tuple<Tensor, Tensor> Tensor::min(std::int64_t d, bool keepdim, Location where) const {
  return graven::min(Operand(*this, where), d, keepdim);
}
Tensor Tensor::median(Location where) const { return graven::median(Operand(*this, where)); }
std::tuple<Tensor, Tensor> Tensor::median(std::int64_t d, bool keepdim, Location where) const {
  return graven::median(Operand(*this, where), d, keepdim);
}
std::tuple<Tensor, Tensor> Tensor::kthvalue(std::int64_t k, std::int64_t d, bool keepdim, Location where) const {
  return graven::kthvalue(Operand(*this, where), k, d, keepdim);
}
Tensor Tensor::count_nonzero(const OneOrMore& dims, Location where) const {
  return graven::count_nonzero(Operand(*this, where), dims);
}
Tensor Tensor::gather(std::int64_t d, const Tensor& index, Location where) const {
  return graven::gather(Operand(*this, where), d, index);
}
Tensor Tensor::scatter(std::int64_t d, const Tensor& index, const Operand& source, Location where) const {
  return graven::scatter(Operand(*this, where), d, index, source);
}
Tensor Tensor::scatter_add(std::int64_t d, const Tensor& index, const Tensor& source, Location where) const {
  return graven::scatter_add(Operand(*this, where), d, index, source);
}
Tensor Tensor::index_select(std::int64_t d, const Tensor& index, Location where) const {
  return graven::index_select(Operand(*this, where), d, index);
}
Tensor Tensor::index_add(std::int64_t d, const Tensor& index, const Tensor& source, double alpha,
                         Location where) const {
  return graven::index_add(Operand(*this, where), d, index, source, alpha);
}
Tensor Tensor::scatter_reduce(std::int64_t d, const Tensor& index, const Tensor& source, std::string_view reduce,
                              bool include_self, Location where) const {
  return graven::scatter_reduce(Operand(*this, where), d, index, source, reduce, include_self);
}
Tensor Tensor::take_along_dim(const Tensor& indices, std::optional<std::int64_t> d, Location where) const {
  return graven::take_along_dim(Operand(*this, where), indices, d);
}
Tensor Tensor::take(const Tensor& indices, Location where) const {
  return graven::take(Operand(*this, where), indices);
}
Tensor Tensor::index_put(const std::vector<TensorIndex>& indices, const Operand& values, bool accumulate) const {
  return graven::index_put(Operand(*this, values.where()), indices, values, accumulate);
}
Tensor Tensor::outer(const Tensor& other, Location where) const {
  return graven::outer(Operand(*this, where), Operand(other, where));
}
Tensor Tensor::addmm(const Tensor& a, const Tensor& b, double beta, double alpha, Location where) const {
  return graven::addmm(Operand(*this, where), Operand(a, where), Operand(b, where), beta, alpha);
}
Tensor Tensor::trace(Location where) const { return graven::trace(Operand(*this, where)); }
bool Tensor::is_floating_point(Location where) const { return ir::is_floating(dtype(where)); }
bool Tensor::allclose(const Tensor& other, double rtol, double atol, Location where) const {
  return graven::allclose(*this, other, rtol, atol, where);
}
bool Tensor::equal(const Tensor& other, Location where) const { return graven::equal(*this, other, where); }
Tensor Tensor::nansum(const OneOrMore& dims, bool keepdim, Location where) const {
  return graven::nansum(Operand(*this, where), dims, keepdim);
}
Tensor Tensor::nanmean(const OneOrMore& dims, bool keepdim, Location where) const {
  return graven::nanmean(Operand(*this, where), dims, keepdim);
}
Tensor Tensor::logcumsumexp(std::int64_t d, Location where) const {
  return graven::logcumsumexp(Operand(*this, where), d);
}
Tensor Tensor::diff(std::int64_t n, std::int64_t d, Location where) const {
  return graven::diff(Operand(*this, where), n, d);
}
Tensor Tensor::diag_embed(std::int64_t offset, std::int64_t dim1, std::int64_t dim2, Location where) const {
  return graven::diag_embed(Operand(*this, where), offset, dim1, dim2);
}
Tensor Tensor::clamp_min(Scalar min, Location where) const { return clamp(min, {}, where.in("clamp_min")); }
Tensor Tensor::clamp_max(Scalar max, Location where) const { return clamp({}, max, where.in("clamp_max")); }
Tensor Tensor::nan_to_num(double nan, std::optional<double> posinf, std::optional<double> neginf,
                          Location where) const {
  return graven::nan_to_num(Operand(*this, where), nan, posinf, neginf);
}
Tensor Tensor::view_as(const Tensor& other, Location where) const {
  detail::require_defined(other, "view_as", where, "other");
  return view(other.shape(), where.in("view_as"));
}
Tensor Tensor::reshape_as(const Tensor& other, Location where) const {
  detail::require_defined(other, "reshape_as", where, "other");
  return reshape(other.shape(), where.in("reshape_as"));
}
Tensor Tensor::expand_as(const Tensor& other, Location where) const {
  detail::require_defined(other, "expand_as", where, "other");
  return expand(other.shape(), where.in("expand_as"));
}
Tensor Tensor::type_as(const Tensor& other, Location where) const {
  detail::require_defined(other, "type_as", where, "other");
  return to(other.dtype(), where.in("type_as"));
}

Tensor Tensor::new_empty(const Shape& shape, std::optional<DType> dtype, Location where) const {
  return new_full(shape, 0, dtype, where.in("new_empty"));
}
Tensor Tensor::new_zeros(const Shape& shape, std::optional<DType> dtype, Location where) const {
  return new_full(shape, 0, dtype, where.in("new_zeros"));
}
Tensor Tensor::new_ones(const Shape& shape, std::optional<DType> dtype, Location where) const {
  return new_full(shape, 1, dtype, where.in("new_ones"));
}
Tensor Tensor::new_full(const Shape& shape, Scalar value, std::optional<DType> wanted, Location where) const {
  detail::require_defined(*this, "new_full", where);
  const DType dtype = wanted.value_or(this->dtype());
  detail::require_fits(value, dtype, "new_full", where);
  return detail::filled(shape, value, dtype, *this, where);
}
Tensor Tensor::where(const Tensor& condition, const Operand& other) const {
  return graven::where(Operand(condition, other.where()), Operand(*this, other.where()), other);
}
Tensor Tensor::lerp(const Tensor& end, const Operand& weight) const {
  return graven::lerp(Operand(*this, weight.where()), Operand(end, weight.where()), weight);
}
Tensor Tensor::addcmul(const Tensor& a, const Tensor& b, double value, Location where) const {
  return graven::addcmul(Operand(*this, where), Operand(a, where), Operand(b, where), value);
}
Tensor Tensor::addcdiv(const Tensor& a, const Tensor& b, double value, Location where) const {
  return graven::addcdiv(Operand(*this, where), Operand(a, where), Operand(b, where), value);
}
Tensor Tensor::index_copy(std::int64_t d, const Tensor& index, const Tensor& source, Location where) const {
  return graven::index_copy(Operand(*this, where), d, index, source);
}
Tensor Tensor::index_fill(std::int64_t d, const Tensor& index, const Operand& value) const {
  return graven::index_fill(Operand(*this, value.where()), d, index, value);
}
Tensor Tensor::diag(std::int64_t diagonal, Location where) const {
  return graven::diag(Operand(*this, where), diagonal);
}
Tensor Tensor::clip(std::optional<Scalar> min, std::optional<Scalar> max, Location where) const {
  return clamp(min, max, where);
}
std::tuple<Tensor, Tensor> Tensor::cummax(std::int64_t d, Location where) const {
  return graven::cummax(Operand(*this, where), d);
}
std::tuple<Tensor, Tensor> Tensor::cummin(std::int64_t d, Location where) const {
  return graven::cummin(Operand(*this, where), d);
}
Tensor Tensor::quantile(double q, std::optional<std::int64_t> d, bool keepdim, std::string_view interpolation,
                        Location where) const {
  return graven::quantile(Operand(*this, where), q, d, keepdim, interpolation);
}
Tensor Tensor::isclose(const Tensor& other, double rtol, double atol, bool equal_nan, Location where) const {
  return graven::isclose(Operand(*this, where), Operand(other, where), rtol, atol, equal_nan);
}
Tensor Tensor::multinomial(std::int64_t num_samples, bool replacement, Location where) const {
  return graven::multinomial(Operand(*this, where), num_samples, replacement);
}
Tensor Tensor::bincount(const Tensor& weights, std::int64_t minlength, Location where) const {
  return graven::bincount(Operand(*this, where), weights, minlength);
}

// ---- in place -------------------------------------------------------------------------------------------------------

namespace {

/// Writes what `value` computes into x. An error of the function that does it, add(), is add_()'s.
template <class Value>
Tensor& assigned(Tensor& x, const Value& value, const char* function, Location where) {
  detail::require_defined(x, function, where);
  const std::uint64_t since = detail::tape_position();
  Tensor result;
  try {
    result = value();
  } catch (UserError& e) {
    if (e.operator_name() + "_" == function) e.called(function);
    throw;
  }
  detail::assign_in_place(x, result, function, where, since);
  return x;
}

}  // namespace

Tensor& Tensor::add_(const Operand& other, double alpha) {
  return assigned(*this, [&] { return add(other, alpha); }, "add_", other.where());
}
Tensor& Tensor::sub_(const Operand& other, double alpha) {
  return assigned(*this, [&] { return sub(other, alpha); }, "sub_", other.where());
}
Tensor& Tensor::mul_(const Operand& other) {
  return assigned(*this, [&] { return mul(other); }, "mul_", other.where());
}
Tensor& Tensor::div_(const Operand& other) {
  return assigned(*this, [&] { return div(other); }, "div_", other.where());
}
Tensor& Tensor::div_(const Operand& other, std::string_view rounding_mode) {
  return assigned(*this, [&] { return div(other, rounding_mode); }, "div_", other.where());
}
Tensor& Tensor::floor_divide_(const Operand& other) {
  return assigned(*this, [&] { return floor_divide(other); }, "floor_divide_", other.where());
}
Tensor& Tensor::remainder_(const Operand& other) {
  return assigned(*this, [&] { return remainder(other); }, "remainder_", other.where());
}
Tensor& Tensor::fmod_(const Operand& other) {
  return assigned(*this, [&] { return fmod(other); }, "fmod_", other.where());
}
Tensor& Tensor::pow_(const Operand& exponent) {
  return assigned(
      *this, [&] { return graven::pow(Operand(*this, exponent.where()), exponent); }, "pow_", exponent.where());
}
Tensor& Tensor::addcmul_(const Tensor& a, const Tensor& b, double value, Location where) {
  return assigned(
      *this, [&] { return graven::addcmul(Operand(*this, where), Operand(a, where), Operand(b, where), value); },
      "addcmul_", where);
}
Tensor& Tensor::addcdiv_(const Tensor& a, const Tensor& b, double value, Location where) {
  return assigned(
      *this, [&] { return graven::addcdiv(Operand(*this, where), Operand(a, where), Operand(b, where), value); },
      "addcdiv_", where);
}
Tensor& Tensor::lerp_(const Tensor& end, const Operand& weight) {
  const Location where = weight.where();
  return assigned(
      *this, [&] { return graven::lerp(Operand(*this, where), Operand(end, where), weight); }, "lerp_", where);
}
Tensor& Tensor::abs_(Location where) {
  return assigned(*this, [&] { return abs(where); }, "abs_", where);
}
Tensor& Tensor::neg_(Location where) {
  return assigned(*this, [&] { return neg(where); }, "neg_", where);
}
Tensor& Tensor::exp_(Location where) {
  return assigned(*this, [&] { return exp(where); }, "exp_", where);
}
Tensor& Tensor::expm1_(Location where) {
  return assigned(*this, [&] { return expm1(where); }, "expm1_", where);
}
Tensor& Tensor::log_(Location where) {
  return assigned(*this, [&] { return log(where); }, "log_", where);
}
Tensor& Tensor::log1p_(Location where) {
  return assigned(*this, [&] { return log1p(where); }, "log1p_", where);
}
Tensor& Tensor::sqrt_(Location where) {
  return assigned(*this, [&] { return sqrt(where); }, "sqrt_", where);
}
Tensor& Tensor::rsqrt_(Location where) {
  return assigned(*this, [&] { return rsqrt(where); }, "rsqrt_", where);
}
Tensor& Tensor::square_(Location where) {
  return assigned(*this, [&] { return square(where); }, "square_", where);
}
Tensor& Tensor::reciprocal_(Location where) {
  return assigned(*this, [&] { return reciprocal(where); }, "reciprocal_", where);
}
Tensor& Tensor::sigmoid_(Location where) {
  return assigned(*this, [&] { return sigmoid(where); }, "sigmoid_", where);
}
Tensor& Tensor::tanh_(Location where) {
  return assigned(*this, [&] { return tanh(where); }, "tanh_", where);
}
Tensor& Tensor::sin_(Location where) {
  return assigned(*this, [&] { return sin(where); }, "sin_", where);
}
Tensor& Tensor::cos_(Location where) {
  return assigned(*this, [&] { return cos(where); }, "cos_", where);
}
Tensor& Tensor::erf_(Location where) {
  return assigned(*this, [&] { return erf(where); }, "erf_", where);
}
Tensor& Tensor::floor_(Location where) {
  return assigned(*this, [&] { return floor(where); }, "floor_", where);
}
Tensor& Tensor::ceil_(Location where) {
  return assigned(*this, [&] { return ceil(where); }, "ceil_", where);
}
Tensor& Tensor::round_(Location where) {
  return assigned(*this, [&] { return round(where); }, "round_", where);
}
Tensor& Tensor::trunc_(Location where) {
  return assigned(*this, [&] { return trunc(where); }, "trunc_", where);
}
Tensor& Tensor::sign_(Location where) {
  return assigned(*this, [&] { return sign(where); }, "sign_", where);
}
Tensor& Tensor::relu_(Location where) {
  return assigned(*this, [&] { return graven::relu(Operand(*this, where)); }, "relu_", where);
}
Tensor& Tensor::clamp_(std::optional<Scalar> min, std::optional<Scalar> max, Location where) {
  return assigned(*this, [&] { return clamp(min, max, where); }, "clamp_", where);
}
Tensor& Tensor::clamp_min_(Scalar min, Location where) {
  return assigned(*this, [&] { return clamp_min(min, where); }, "clamp_min_", where);
}
Tensor& Tensor::clamp_max_(Scalar max, Location where) {
  return assigned(*this, [&] { return clamp_max(max, where); }, "clamp_max_", where);
}
Tensor& Tensor::nan_to_num_(double nan, std::optional<double> posinf, std::optional<double> neginf, Location where) {
  return assigned(*this, [&] { return nan_to_num(nan, posinf, neginf, where); }, "nan_to_num_", where);
}
Tensor& Tensor::tril_(std::int64_t diagonal, Location where) {
  return assigned(*this, [&] { return tril(diagonal, where); }, "tril_", where);
}
Tensor& Tensor::triu_(std::int64_t diagonal, Location where) {
  return assigned(*this, [&] { return triu(diagonal, where); }, "triu_", where);
}
Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value, Location where) {
  return assigned(*this, [&] { return masked_fill(mask, value, where); }, "masked_fill_", where);
}
Tensor& Tensor::scatter_(std::int64_t d, const Tensor& index, const Operand& source) {
  return assigned(*this, [&] { return scatter(d, index, source, source.where()); }, "scatter_", source.where());
}
Tensor& Tensor::index_copy_(std::int64_t d, const Tensor& index, const Tensor& source, Location where) {
  return assigned(*this, [&] { return index_copy(d, index, source, where); }, "index_copy_", where);
}
Tensor& Tensor::index_fill_(std::int64_t d, const Tensor& index, Scalar value, Location where) {
  return assigned(*this, [&] { return index_fill(d, index, Operand(value, where)); }, "index_fill_", where);
}
Tensor& Tensor::scatter_add_(std::int64_t d, const Tensor& index, const Tensor& source, Location where) {
  return assigned(*this, [&] { return scatter_add(d, index, source, where); }, "scatter_add_", where);
}
Tensor& Tensor::index_add_(std::int64_t d, const Tensor& index, const Tensor& source, double alpha, Location where) {
  return assigned(*this, [&] { return index_add(d, index, source, alpha, where); }, "index_add_", where);
}
Tensor& Tensor::index_put_(const std::vector<TensorIndex>& indices, const Operand& values, bool accumulate) {
  return assigned(*this, [&] { return index_put(indices, values, accumulate); }, "index_put_", values.where());
}

}  // namespace graven
