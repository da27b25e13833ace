// Calls of the library's functions and layers, as rows of a table: what goes in, with letters for dimensions, and which
// of those must be numbers.
//
//   row("roll", {f("a4 b3")}, [](X x) { return R{roll(x[0], {1}, {1})}; })
//   row("conv2d", {f("a4 3 h6 w5"), f("2 c3 2 2")}, [](X x) { return R{conv2d(x[0], x[1])}; }, "h w c")
//
// The test makes each letter a symbol, and each even one twice a symbol ("2a"), one at a time: the call then computes
// what eager mode does at every size, or is refused where the row says so. A new function needs one row.
#pragma once

#include <graven/graven.h>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/call.h"

namespace graven::symbols_test {

/// One input: dimensions "a4 3 b2", each a number with or without a letter; values uniform in [low, high), or integers.
struct Input {
  std::string shape;
  DType dtype = DType::f32;
  double low = -1, high = 1;
  std::string below = {};  ///< of integers: a letter, whose size the values are less than, instead of high
};
inline Input f(std::string shape, double low = -1, double high = 1) {
  return {std::move(shape), DType::f32, low, high, {}};
}
inline Input i(std::string shape, double high) { return {std::move(shape), DType::i64, 0, high, {}}; }
inline Input i(std::string shape, std::string below) { return {std::move(shape), DType::i64, 0, 0, std::move(below)}; }
inline Input o(std::string shape) { return {std::move(shape), DType::boolean, 0, 2, {}}; }

using X = const std::vector<Tensor>&;
using R = std::vector<Tensor>;

struct Row {
  std::string name;
  std::vector<Input> inputs;
  test::Call<R(X)> call;
  std::string refused = {};  ///< "b 2b": where this letter must be a number, or no multiple of a symbol; each refused
                             ///< by the function's name
  Location where = {};
  bool random = false;                        ///< numbers are drawn: their shapes are compared
  std::optional<nn::ModuleBase> module = {};  ///< of a layer: what the graph registers
  std::string optional = {};                  ///< "12": the inputs that may be undefined, by their index
};

inline Row row(std::string name, std::vector<Input> inputs, test::Call<R(X)> call, std::string refused = {},
               Location where = Location::current()) {
  return {std::move(name), std::move(inputs), std::move(call), std::move(refused), where};
}
inline Row random_row(std::string name, std::vector<Input> inputs, test::Call<R(X)> call, std::string refused = {},
                      Location where = Location::current()) {
  Row r = row(std::move(name), std::move(inputs), std::move(call), std::move(refused), where);
  r.random = true;
  return r;
}
/// A layer, called by `call(layer, inputs)`.
template <class M, class Call>
Row layer_row(std::string name, std::vector<Input> inputs, M module, Call call, std::string refused = {},
              Location where = Location::current()) {
  Row r = row(
      std::move(name), std::move(inputs), [module, call](X x) mutable { return call(module, x); }, std::move(refused),
      where);
  r.module = module;
  return r;
}

/// A row whose inputs of these indices may be undefined.
inline Row without(std::string inputs, Row r) {
  r.optional = std::move(inputs);
  return r;
}

std::vector<Row> function_rows();
std::vector<Row> layer_rows();

}  // namespace graven::symbols_test
