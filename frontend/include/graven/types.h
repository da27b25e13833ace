// The words that every other header uses: element types, shapes, scalars, and the line of user code that asked for
// something.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ir/diagnostic.h"
#include "ir/types.h"

namespace graven {

using ir::Dim;
using ir::DType;
using ir::Shape;

inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;
inline constexpr DType f16 = DType::f16;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType i8 = DType::i8;
inline constexpr DType i32 = DType::i32;
inline constexpr DType i64 = DType::i64;
inline constexpr DType u8 = DType::u8;
inline constexpr DType boolean = DType::boolean;

/// Sizes and dimensions.
using Sizes = std::vector<std::int64_t>;

/// One number, or several: `x.sum(0)`, `x.sum({0, 2})`. Of dimensions to reduce none at all, `{}`, means every one.
class OneOrMore : public Sizes {
 public:
  OneOrMore() = default;
  template <class T>
    requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
  OneOrMore(T number) : Sizes{static_cast<std::int64_t>(number)} {}           // NOLINT: x.sum(0)
  OneOrMore(std::initializer_list<std::int64_t> numbers) : Sizes(numbers) {}  // NOLINT: x.sum({0, 2})
  OneOrMore(Sizes numbers) : Sizes(std::move(numbers)) {}                     // NOLINT: of as many as a program has
};

/// A line of user code. As a defaulted argument it is the caller's: `void f(Location where = Location::current())`. Not
/// std::source_location, which clang++ 14 lacks.
struct Location {
  const char* file = "";
  std::uint32_t line = 0;
  /// What was called there, where that is made of other functions: an error of one of those is the function's. None:
  /// whoever reports it says so.
  const char* function = nullptr;

  static constexpr Location current(const char* file = __builtin_FILE(), std::uint32_t line = __builtin_LINE()) {
    return {file, line, nullptr};
  }
  /// The same line, within this function. The outermost one's name stays.
  constexpr Location in(const char* name) const { return {file, line, function == nullptr ? name : function}; }
  /// The file's base name, so that nothing depends on where the user's code lies.
  std::string file_name() const;
};

/// A number as PyTorch sees it: a bool, an integer or a floating-point number, each a category of its own in dtype
/// promotion.
class Scalar {
 public:
  enum class Category : std::uint8_t { boolean, integer, floating };

  template <class T>
    requires std::is_arithmetic_v<T>
  constexpr Scalar(T value)  // NOLINT: implicit, so that `x * 2` works
      : category_(std::is_same_v<T, bool>       ? Category::boolean
                  : std::is_floating_point_v<T> ? Category::floating
                                                : Category::integer),
        integer_(std::is_floating_point_v<T> ? 0 : static_cast<std::int64_t>(value)),
        number_(static_cast<double>(value)) {}

  constexpr Category category() const { return category_; }
  constexpr double number() const { return number_; }
  constexpr std::int64_t integer() const {
    return category_ == Category::floating ? static_cast<std::int64_t>(number_) : integer_;
  }

 private:
  Category category_;
  std::int64_t integer_;
  double number_;
};

/// The C++ type of the elements of a dtype that C++ has a type for: T -> DType. f16 and bf16 have none: read them
/// through to(f32).
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, bool>)
    return DType::boolean;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return DType::u8;
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == 1)
    return DType::i8;
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == 4)
    return DType::i32;
  else {
    static_assert(std::is_integral_v<T> && std::is_signed_v<T> && sizeof(T) == 8, "no dtype has this element type");
    return DType::i64;
  }
}

}  // namespace graven
