// Sizes: a dimension is an integer, or an expression over named symbols whose ranges are known.
//
//   const Dim batch("batch", 64), height("height", 16, 512);   // 1 to 64, 16 to 512
//   784 * batch                        // "784*batch"
//   batch * height + 1                 // "batch*height+1"
//   floor_divide(height - 1, 2) + 1    // "(height+1)/2": quotients are rounded down
//   (batch * height).maximum()         // 32768
//
// Two expressions that are the same polynomial are equal, however they were written. Shape inference carries
// expressions, memory is planned for their maxima, and emitted code computes them from what a call brings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace graven::ir {

/// A size that is known when a program runs, from `least` to `most`.
struct Symbol {
  std::string name;
  std::int64_t least = 1, most = 1;
  /// "[1, 64]"
  std::string range() const;
  friend bool operator==(const Symbol& a, const Symbol& b) {
    return a.name == b.name && a.least == b.least && a.most == b.most;
  }
};

/// What symbols stand for, by name.
using SymbolSizes = std::map<std::string, std::int64_t>;

/// One dimension, or a product of several: a sum of products of symbols and of quotients.
class Dim {
 public:
  Dim() = default;
  Dim(std::int64_t value) : constant_(value) {}  // NOLINT: implicit, so that {64, 1, 28, 28} is a shape
  Dim(int value) : constant_(value) {}           // NOLINT
  /// A symbol from 1 to `most`.
  Dim(std::string symbol, std::int64_t most) : Dim(std::move(symbol), 1, most) {}
  Dim(std::string symbol, std::int64_t least, std::int64_t most);

  bool is_static() const { return symbolic_ == nullptr; }
  /// The value when static. Internal error otherwise.
  std::int64_t value() const;
  /// Bounds: no value is less, none is larger. What does not fit 63 bits is the nearest number that does.
  std::int64_t minimum() const;
  std::int64_t maximum() const;
  /// The value where the symbols stand for these sizes; a symbol that is not there stands for its most.
  std::int64_t at(const SymbolSizes& sizes) const;
  /// The symbols that it depends on, by name.
  std::vector<Symbol> symbols() const;
  bool depends_on(std::string_view symbol) const;
  /// Where it is `coefficient * symbol + offset`: what stands for `symbol` when the dimension is `size`, and nothing
  /// where no whole number does, or where it is another expression.
  struct Linear {
    Symbol symbol;
    std::int64_t coefficient = 1, offset = 0;
    /// The symbol, and nothing with it.
    bool is_symbol() const { return coefficient == 1 && offset == 0; }
    std::optional<std::int64_t> symbol_at(std::int64_t size) const;
  };
  std::optional<Linear> linear() const;
  /// The expression with other symbols or numbers in the places of its symbols.
  Dim with(const std::function<Dim(const Symbol&)>& replacement) const;

  /// User error where the numbers are too large, or the terms too many.
  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  /// Exact quotient: user error when `b` does not divide `a` at every size.
  friend Dim operator/(const Dim& a, const Dim& b);
  /// Exact quotient, where there is one.
  friend std::optional<Dim> divide(const Dim& a, const Dim& b);
  /// The quotient rounded down, towards minus infinity. `b` is positive.
  friend Dim floor_divide(const Dim& a, std::int64_t b);
  friend bool operator==(const Dim& a, const Dim& b);
  friend bool operator!=(const Dim& a, const Dim& b) { return !(a == b); }

  /// "64", "batch", "784*batch", "2*length+1", "(height+1)/2".
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const Dim& dim);
  /// The same as an expression of C++, "784 * batch", with `name` for each symbol. Numerators of quotients are not
  /// negative where their minimum is not, so that its division is this one.
  std::string to_code(const std::function<std::string(const Symbol&)>& name) const;

  struct Expression;  ///< the symbolic part, in ir/dim.cpp

 private:
  struct Spelling;
  Dim(std::int64_t constant, Expression expression);
  std::string spelled(const Spelling& spelling) const;

  std::int64_t constant_ = 0;
  std::shared_ptr<const Expression> symbolic_;  ///< null: a number
};

/// What to_string() writes, or a user may: sums, differences and products of numbers, of symbols that `find` knows and
/// of quotients by numbers. Nothing where the text is something else, or a number in it, then `too_large`, has more
/// than 63 bits.
std::optional<Dim> parse_dim(std::string_view text, const std::function<std::optional<Symbol>(std::string_view)>& find,
                             bool* too_large = nullptr);

}  // namespace graven::ir
