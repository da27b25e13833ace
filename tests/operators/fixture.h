// What PyTorch gave for a function (tests/fixtures/make_operators.py), and the comparison with ours.
//
//   TEST(Normalization, AgreesWithPyTorch) {
//     expect_family("normalization", {{"layer_norm", [](const Fixture& f) {
//                     return layer_norm(f.tensor("x"), f.sizes("normalized_shape"), f.tensor("weight"),
//                                       f.tensor("bias"), f.number("eps"));
//                   }}});
//   }
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "graven/graven.h"
#include "tests/call.h"
#include "tests/tolerances.h"

namespace graven::tests {

/// One stored case.
class Fixture {
 public:
  explicit Fixture(const nlohmann::json& stored);
  const std::string& function() const { return function_; }
  const std::string& note() const { return note_; }
  /// An input; undefined where PyTorch was given none.
  Tensor tensor(const std::string& name) const;
  bool has(const std::string& option) const { return options_.contains(option); }
  bool is_text(const std::string& option) const { return has(option) && options_.at(option).is_string(); }
  bool is_list(const std::string& option) const { return has(option) && options_.at(option).is_array(); }
  /// A number, or the text inf.
  double number(const std::string& option, double fallback = 0) const {
    const auto found = options_.find(option);
    return found != options_.end() && found->is_string() ? std::stod(found->get<std::string>())
                                                         : options_.value(option, fallback);
  }
  std::int64_t integer(const std::string& option, std::int64_t fallback = 0) const {
    return options_.value(option, fallback);
  }
  /// With the category that it was written in, 1 or 1.0; nothing where there is none.
  std::optional<Scalar> scalar(const std::string& option) const {
    if (!has(option)) return {};
    if (options_.at(option).is_number_integer()) return Scalar(integer(option));
    return Scalar(number(option));
  }
  bool flag(const std::string& option, bool fallback = false) const { return options_.value(option, fallback); }
  std::string text(const std::string& option, const std::string& fallback = "") const {
    return options_.value(option, fallback);
  }
  /// A list of integers, or one.
  Sizes sizes(const std::string& option) const;
  std::vector<double> numbers(const std::string& option) const;
  Reduction reduction() const;

  const std::vector<Tensor>& outputs() const { return outputs_; }
  /// By output; undefined where it has no gradient.
  const std::vector<Tensor>& weights() const { return weights_; }
  const std::map<std::string, Tensor>& gradients() const { return gradients_; }
  const std::map<std::string, Tensor>& inputs() const { return inputs_; }
  /// The same case on other tensors: leaves that require gradients.
  Fixture with(std::map<std::string, Tensor> inputs) const;
  /// A module's parameters take the values of the inputs of their names ("__" for "."), and their gradients stand for
  /// the inputs'.
  void give_parameters(nn::ModuleBase& module) const;
  /// Where the gradient of an input arrives.
  Tensor leaf(const std::string& name) const;

 private:
  std::string function_, note_;
  nlohmann::json options_;
  std::map<std::string, Tensor> inputs_, gradients_;
  std::vector<Tensor> outputs_, weights_;
  std::shared_ptr<std::map<std::string, Tensor>> parameters_ = std::make_shared<std::map<std::string, Tensor>>();
};

/// Our side of a function: all of PyTorch's outputs, or the first few of them.
using Function = test::Call<std::vector<Tensor>(const Fixture&)>;
/// A function with one output. Most capture nothing: these are pointers, which cost the compiler a tenth of what
/// closures do.
Function one(Tensor (*function)(const Fixture&));
template <class F>
  requires(!std::is_convertible_v<F, Tensor (*)(const Fixture&)>)
Function one(F function) {
  return [function](const Fixture& fixture) { return std::vector<Tensor>{function(fixture)}; };
}

/// Every case of tests/fixtures/operators/<family>.json, eagerly: outputs and gradients within the dtype's rounding.
/// Fails for a function that is not in the table, and for a table's function without a case. The tolerances are
/// relative to 1 + the largest magnitude of the expected tensor.
void expect_family(const std::string& family, const std::map<std::string, Function>& functions,
                   const tolerance::Tolerance& outputs = tolerance::functions,
                   const tolerance::Tolerance& gradients = tolerance::function_gradients);

/// Sizes of a fixture: one number for all dimensions, or one each; `fallback` where it has none.
inline std::int64_t entry(const Sizes& s, std::size_t i, std::int64_t fallback) {
  return s.empty() ? fallback : s.size() == 1 ? s[0] : s[i];
}
inline std::int64_t number(const Fixture& f, const char* key, std::int64_t fallback = 0) {
  return entry(f.sizes(key), 0, fallback);
}
inline Size2 size2(const Fixture& f, const char* key, std::int64_t fallback = 0) {
  const Sizes s = f.sizes(key);
  return {entry(s, 0, fallback), entry(s, 1, fallback)};
}
inline Size3 size3(const Fixture& f, const char* key, std::int64_t fallback = 0) {
  const Sizes s = f.sizes(key);
  return {entry(s, 0, fallback), entry(s, 1, fallback), entry(s, 2, fallback)};
}

}  // namespace graven::tests
