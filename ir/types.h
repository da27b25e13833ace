// The vocabulary of tensors: element types, dimensions, shapes.
//
// A dimension is an integer, or an integer times a named symbol whose maximum is known ("batch", at most 64). Shape
// inference carries symbols, memory is planned for the maximum, and the emitted loops run to the actual value:
//
//   Shape images{Dim("batch", 64), 1, 28, 28};
//   images.numel()            // 784*batch
//   images.numel().maximum()  // 50176
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace graven::ir {

/// Element types. `boolean` is one byte, 0 or 1.
enum class DType : std::uint8_t { f32, f64, f16, bf16, i8, i32, i64, u8, boolean };

inline constexpr DType kAllDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16,   DType::i8,
                                       DType::i32, DType::i64, DType::u8,  DType::boolean};

/// "f32", ..., "i64", "u8", "bool": the spelling in JSON, in messages and in generated comments.
std::string_view name(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);
/// Bytes an element takes.
std::size_t size_of(DType dtype);
bool is_floating(DType dtype);
/// From 1 to the next number; 0 of what is not floating.
double epsilon_of(DType dtype);
/// Signed and unsigned integers; boolean is neither floating nor integral.
bool is_integral(DType dtype);
/// The least and the largest number of an integer dtype; nothing for others.
std::optional<std::pair<std::int64_t, std::int64_t>> integer_range(DType dtype);
/// PyTorch's promotion of two tensors' dtypes (dimension and scalar categories aside).
DType promote(DType a, DType b);

/// One dimension: `coefficient`, or `coefficient * symbol`, where the symbol runs from 1 to `symbol_maximum`.
class Dim {
 public:
  Dim() = default;
  Dim(std::int64_t value) : coefficient_(value) {}  // NOLINT: implicit, so that {64, 1, 28, 28} is a shape
  Dim(int value) : coefficient_(value) {}           // NOLINT
  Dim(std::string symbol, std::int64_t maximum)
      : coefficient_(1), symbol_maximum_(maximum), symbol_(std::move(symbol)) {}

  bool is_static() const { return symbol_.empty(); }
  std::int64_t coefficient() const { return coefficient_; }
  const std::string& symbol() const { return symbol_; }
  std::int64_t symbol_maximum() const { return symbol_maximum_; }
  /// The largest value: the value itself when static.
  std::int64_t maximum() const { return coefficient_ * symbol_maximum_; }
  /// The value when static. Internal error otherwise.
  std::int64_t value() const;
  /// The value when the symbol (if any) is `symbol_value`.
  std::int64_t at(std::int64_t symbol_value) const { return is_static() ? coefficient_ : coefficient_ * symbol_value; }

  /// Product. Two symbols cannot be multiplied: user error.
  friend Dim operator*(const Dim& a, const Dim& b);
  /// Exact quotient: user error when `b` does not divide `a`.
  friend Dim operator/(const Dim& a, const Dim& b);
  friend bool operator==(const Dim& a, const Dim& b) {
    return a.coefficient_ == b.coefficient_ && a.symbol_ == b.symbol_ &&
           (a.is_static() || a.symbol_maximum_ == b.symbol_maximum_);
  }
  friend bool operator!=(const Dim& a, const Dim& b) { return !(a == b); }
  /// "64", "batch", "784*batch".
  std::string to_string() const;

 private:
  std::int64_t coefficient_ = 0;
  std::int64_t symbol_maximum_ = 1;
  std::string symbol_;
};

/// The dimensions of a tensor, outermost first. Rank 0 is a scalar.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Dim> dims) : dims_(dims) {}
  explicit Shape(std::vector<Dim> dims) : dims_(std::move(dims)) {}
  Shape(const std::vector<std::int64_t>& dims)
      : dims_(dims.begin(), dims.end()) {}  // NOLINT: implicit, so that zeros(x.sizes()) works
  static Shape of(const std::vector<std::int64_t>& dims) { return Shape(std::vector<Dim>(dims.begin(), dims.end())); }

  std::size_t rank() const { return dims_.size(); }
  bool empty() const { return dims_.empty(); }
  const Dim& operator[](std::size_t i) const { return dims_[i]; }
  Dim& operator[](std::size_t i) { return dims_[i]; }
  /// From the end: back(0) is the last dimension.
  const Dim& back(std::size_t i = 0) const { return dims_[dims_.size() - 1 - i]; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }
  void push_back(Dim d) { dims_.push_back(std::move(d)); }
  const std::vector<Dim>& dims() const { return dims_; }

  bool is_static() const;
  /// How many dimensions are no fixed numbers.
  std::int64_t symbolic_dimensions() const;
  /// Product of the dimensions; 1 for rank 0.
  Dim numel() const;
  /// All values; internal error when a dimension is symbolic.
  std::vector<std::int64_t> values() const;
  /// All maxima.
  std::vector<std::int64_t> maxima() const;
  /// "[64,1,28,28]", "[batch,10]", "[]".
  std::string to_string() const;
  friend bool operator==(const Shape& a, const Shape& b) { return a.dims_ == b.dims_; }
  friend bool operator!=(const Shape& a, const Shape& b) { return !(a == b); }

 private:
  std::vector<Dim> dims_;
};

/// "f32[64,1,28,28]": how diagnostics and generated comments speak of a tensor.
std::string describe(DType dtype, const Shape& shape);

/// NumPy's broadcast of two shapes. Nullopt when they do not fit. A symbolic dimension fits itself and 1.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);

}  // namespace graven::ir
