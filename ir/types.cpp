#include "ir/types.h"

#include <algorithm>
#include <limits>
#include <ostream>

#include "ir/diagnostic.h"

namespace graven::ir {

namespace {

struct DTypeInfo {
  std::string_view name;
  std::size_t size;
  double epsilon = 0;
};

constexpr DTypeInfo kInfo[] = {{"f32", 4, 0x1p-23}, {"f64", 8, 0x1p-52}, {"f16", 2, 0x1p-10},
                               {"bf16", 2, 0x1p-7}, {"i8", 1},           {"i32", 4},
                               {"i64", 8},          {"u8", 1},           {"bool", 1}};

}  // namespace

std::string_view name(DType dtype) { return kInfo[static_cast<std::size_t>(dtype)].name; }
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

std::optional<DType> dtype_from_name(std::string_view text) {
  for (DType d : kAllDTypes)
    if (name(d) == text) return d;
  return std::nullopt;
}

std::size_t size_of(DType dtype) { return kInfo[static_cast<std::size_t>(dtype)].size; }

double epsilon_of(DType dtype) { return kInfo[static_cast<std::size_t>(dtype)].epsilon; }

bool is_floating(DType d) { return d == DType::f32 || d == DType::f64 || is_half(d); }
bool is_half(DType d) { return d == DType::f16 || d == DType::bf16; }

bool is_integral(DType d) { return d == DType::i8 || d == DType::i32 || d == DType::i64 || d == DType::u8; }

std::optional<std::pair<std::int64_t, std::int64_t>> integer_range(DType d) {
  const auto range = [](auto zero) {
    using Limits = std::numeric_limits<decltype(zero)>;
    return std::pair<std::int64_t, std::int64_t>(Limits::min(), Limits::max());
  };
  switch (d) {
    case DType::i8:
      return range(std::int8_t{});
    case DType::u8:
      return range(std::uint8_t{});
    case DType::i32:
      return range(std::int32_t{});
    case DType::i64:
      return range(std::int64_t{});
    default:
      return std::nullopt;
  }
}

std::string DTypeSet::to_string() const {
  if (*this == kFloating) return "floating-point numbers";
  if (*this == kNumbers) return "numbers";
  if (*this == kIntegersAndBools) return "integers or bools";
  std::string text;
  for (const DType d : kAllDTypes)
    if (contains(d)) text.append(text.empty() ? "" : " or ").append(name(d));
  return text;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::boolean) return b;
  if (b == DType::boolean) return a;
  const bool fa = is_floating(a), fb = is_floating(b);
  if (fa != fb) return fa ? a : b;
  if (fa) {
    if (a == DType::f64 || b == DType::f64) return DType::f64;
    return DType::f32;  // f16 with bf16 too, as in PyTorch
  }
  if (a == DType::i64 || b == DType::i64) return DType::i64;
  if (a == DType::i32 || b == DType::i32) return DType::i32;
  // i8 with u8 needs a type that holds both; PyTorch takes int16, which Graven does not have.
  return DType::i32;
}

bool Shape::is_static() const {
  return std::all_of(dims_.begin(), dims_.end(), [](const Dim& d) { return d.is_static(); });
}

Dim Shape::numel() const {
  Dim n = 1;
  for (const Dim& d : dims_) n = n * d;
  return n;
}

std::vector<std::int64_t> Shape::values() const {
  std::vector<std::int64_t> v;
  v.reserve(dims_.size());
  for (const Dim& d : dims_) v.push_back(d.value());
  return v;
}

std::vector<std::int64_t> Shape::maxima() const {
  std::vector<std::int64_t> v;
  v.reserve(dims_.size());
  for (const Dim& d : dims_) v.push_back(d.maximum());
  return v;
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.to_string(); }

std::string Shape::to_string() const {
  std::string s = "[";
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    if (i) s += ',';
    s += dims_[i].to_string();
  }
  return s + "]";
}

std::string describe(DType dtype, const Shape& shape) { return std::string(name(dtype)) + shape.to_string(); }

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.rank(), b.rank());
  std::vector<Dim> dims(rank);
  for (std::size_t i = 0; i < rank; ++i) {  // from the end
    const Dim one = 1;
    const Dim& x = i < a.rank() ? a.back(i) : one;
    const Dim& y = i < b.rank() ? b.back(i) : one;
    if (x == y || y == one)
      dims[rank - 1 - i] = x;
    else if (x == one)
      dims[rank - 1 - i] = y;
    else
      return std::nullopt;
  }
  return Shape(std::move(dims));
}

}  // namespace graven::ir
