// Typed attributes of a node, checked against the operator's declaration when they are recorded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/types.h"

namespace graven::ir {

using Ints = std::vector<std::int64_t>;

class Attributes;

/// Whether two numbers compute the same wherever they stand: NaN is NaN, and -0.0 is not 0.0.
bool same_number(double a, double b);

/// A small straight-line program over scalars: what a fused elementwise node, or the epilogue of a matrix product,
/// computes. Step i applies the elementwise operator `op` to earlier results. An argument is an input (0 .. inputs - 1)
/// or a step's result (inputs + step). The last step is the result. Its body text comes from the operator's entry, so a
/// fusion is never a new operator.
struct ScalarProgram {
  struct Step {
    std::string op = {};
    std::vector<std::int32_t> arguments = {};
    std::vector<std::pair<std::string, double>> constants = {};  ///< the operator's scalar attributes, by name
    DType dtype = DType::f32;                                    ///< of the step's result
    friend bool operator==(const Step& a, const Step& b);        ///< numbers as same_number() compares them
  };
  std::int32_t inputs = 1;
  std::vector<Step> steps = {};
  bool empty() const { return steps.empty(); }
  friend bool operator==(const ScalarProgram&, const ScalarProgram&) = default;
};

enum class AttributeType : std::uint8_t { boolean, integer, number, text, integers, dtype, shape, program };
std::string_view name(AttributeType type);

/// The alternatives stand in the order of AttributeType.
using Attribute = std::variant<bool, std::int64_t, double, std::string, Ints, DType, Shape, ScalarProgram>;

/// A boolean as 0 or 1, an integer, or a number; none of the other types.
std::optional<double> number_of(const Attribute& a);
inline AttributeType type_of(const Attribute& a) { return static_cast<AttributeType>(a.index()); }

/// Attributes by name, kept sorted, so that equal nodes print equal text.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, Attribute>> items) {
    for (const auto& [key, value] : items) set(key, value);
  }
  void set(std::string_view key, Attribute value);
  void erase(std::string_view key);
  const Attribute* find(std::string_view key) const;
  /// Internal error when absent: shape inference has filled in the defaults.
  const Attribute& at(std::string_view key) const;
  template <class T>
  const T& get(std::string_view key) const {
    return std::get<T>(at(key));
  }
  bool flag(std::string_view key) const { return get<bool>(key); }
  /// Of an attribute that not every operator has.
  bool flag_or(std::string_view key, bool otherwise) const {
    const Attribute* const found = find(key);
    return found == nullptr ? otherwise : std::get<bool>(*found);
  }
  std::int64_t integer(std::string_view key) const { return get<std::int64_t>(key); }
  double number(std::string_view key) const { return get<double>(key); }
  const std::string& text(std::string_view key) const { return get<std::string>(key); }
  const Ints& integers(std::string_view key) const { return get<Ints>(key); }
  const Shape& shape(std::string_view key) const { return get<Shape>(key); }
  DType dtype(std::string_view key) const { return get<DType>(key); }
  const ScalarProgram& program(std::string_view key) const { return get<ScalarProgram>(key); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  std::size_t size() const { return items_.size(); }
  /// Numbers as same_number() compares them.
  friend bool operator==(const Attributes& a, const Attributes& b);

 private:
  std::vector<std::pair<std::string, Attribute>> items_;
};

}  // namespace graven::ir
