// The vocabulary of tensors: element types, dimensions, shapes.
//
// A dimension is an integer, or an expression over symbols (ir/dim.h):
//
//   Shape images{Dim("batch", 64), 1, 28, 28};
//   images.numel()            // 784*batch
//   images.numel().maximum()  // 50176
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/dim.h"

namespace graven::ir {

/// Element types. `boolean` is one byte, 0 or 1.
enum class DType : std::uint8_t { f32, f64, f16, bf16, i8, i32, i64, u8, boolean };

inline constexpr DType kAllDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16,   DType::i8,
                                       DType::i32, DType::i64, DType::u8,  DType::boolean};

/// "f32", ..., "i64", "u8", "bool": the spelling in JSON, in messages and in generated comments.
std::string_view name(DType dtype);
std::ostream& operator<<(std::ostream& out, DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);
/// Bytes an element takes.
std::size_t size_of(DType dtype);
bool is_floating(DType dtype);
/// f16 or bf16: 16 bits in memory, and f32 in sums.
bool is_half(DType dtype);
/// From 1 to the next number; 0 of what is not floating.
double epsilon_of(DType dtype);
/// Signed and unsigned integers; boolean is neither floating nor integral.
bool is_integral(DType dtype);
/// The least and the largest number of an integer dtype; nothing for others.
std::optional<std::pair<std::int64_t, std::int64_t>> integer_range(DType dtype);
/// PyTorch's promotion of two tensors' dtypes (dimension and scalar categories aside).
DType promote(DType a, DType b);

/// Some of the dtypes.
class DTypeSet {
 public:
  constexpr DTypeSet(std::initializer_list<DType> dtypes) {
    for (const DType d : dtypes) bits_ |= bit(d);
  }
  constexpr bool contains(DType d) const { return (bits_ & bit(d)) != 0; }
  /// "floating-point numbers", "f32 or f64": what is expected where one of them is due.
  std::string to_string() const;
  friend constexpr bool operator==(DTypeSet a, DTypeSet b) { return a.bits_ == b.bits_; }

 private:
  static constexpr unsigned bit(DType d) { return 1u << static_cast<unsigned>(d); }
  unsigned bits_ = 0;
};
inline constexpr DTypeSet kFloating{DType::f32, DType::f64, DType::f16, DType::bf16},
    kNumbers{DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::i32, DType::i64, DType::u8},
    kIntegersAndBools{DType::i8, DType::i32, DType::i64, DType::u8, DType::boolean},
    kAnyDType{DType::f32, DType::f64, DType::f16, DType::bf16,   DType::i8,
              DType::i32, DType::i64, DType::u8,  DType::boolean};

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
  /// Product of the dimensions; 1 for rank 0.
  Dim numel() const;
  /// All values; internal error when a dimension is symbolic.
  std::vector<std::int64_t> values() const;
  /// All maxima.
  std::vector<std::int64_t> maxima() const;
  /// "[64,1,28,28]", "[batch,10]", "[]".
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape);
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
