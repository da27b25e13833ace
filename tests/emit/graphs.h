// Graphs that the tests of emission share, recorded by hand.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "ir/graph.h"
#include "ir/op.h"

namespace graven::codegen {

using ir::DType;
using ir::Graph;
using ir::Origins;
using ir::ValueId;

/// flatten, linear, relu, linear, cross entropy, SGD with momentum, batch 64.
inline Graph mlp_training() {
  Graph g;
  g.name = "TrainMlp";
  g.training = true;
  const ValueId images = g.add_input("images", {DType::f32, {64, 1, 28, 28}});
  const ValueId labels = g.add_input("labels", {DType::i64, {64}});
  const ValueId w1 = g.add_parameter("model.hidden.weight", {DType::f32, {256, 784}}, true);
  const ValueId b1 = g.add_parameter("model.hidden.bias", {DType::f32, {256}}, true);
  const ValueId w2 = g.add_parameter("model.logits.weight", {DType::f32, {10, 256}}, true);
  const ValueId b2 = g.add_parameter("model.logits.bias", {DType::f32, {10}}, true);
  const auto at = [](std::string module, std::uint32_t line) { return Origins{{std::move(module), "mlp.cpp", line}}; };
  const ValueId flat = g.call("reshape", {images}, {{"shape", ir::Shape{64, 784}}}, at("model", 8));
  const ValueId h = g.call("linear", {flat, w1, b1}, {}, at("model.hidden", 8));
  const ValueId r = g.call("relu", {h}, {}, at("model", 8));
  const ValueId logits = g.call("linear", {r, w2, b2}, {}, at("model.logits", 8));
  const ValueId loss = g.call("cross_entropy", {logits, labels}, {}, at("loss_fn", 20));
  g.outputs = {loss};
  g.losses = {{loss, ir::kNone}};
  g.optimizers.push_back({"sgd", {{{w1, b1, w2, b2}, {{"lr", 0.1}, {"momentum", 0.9}}}}, {}});
  return g;
}

/// x @ w + b, any batch up to 8.
inline Graph my_linear() {
  Graph g;
  g.name = "MyLinear";
  const ValueId x = g.add_input("x", {DType::f32, {ir::Dim("batch", 8), 4}});
  const ValueId w = g.add_parameter("model.weight", {DType::f32, {4, 3}}, false);
  const ValueId b = g.add_parameter("model.bias", {DType::f32, {3}}, false);
  const Origins at{{"model", "my_linear.cpp", 9}};
  const ValueId m = g.call("matmul", {x, w}, {}, at);
  g.outputs = {g.call("add", {m, b}, {}, at)};
  return g;
}

/// y = sin x fitted by a cubic: linear(3, 1), flatten, squared error, SGD; 2000 points.
inline Graph polynomial_fit() {
  Graph g;
  g.name = "PolynomialFit";
  g.training = true;
  const ValueId x = g.add_input("x", {DType::f32, {2000, 3}});
  const ValueId y = g.add_input("y", {DType::f32, {2000}});
  const ValueId w = g.add_parameter("model.0.weight", {DType::f32, {1, 3}}, true);
  const ValueId b = g.add_parameter("model.0.bias", {DType::f32, {1}}, true);
  const ValueId line = g.call("linear", {x, w, b}, {}, {{"model.0", "polynomial.cpp", 12}});
  const ValueId flat = g.call("reshape", {line}, {{"shape", ir::Shape{2000}}}, {{"model.1", "polynomial.cpp", 12}});
  const Origins at{{"loss_fn", "polynomial.cpp", 17}};
  const ValueId difference = g.call("sub", {flat, y}, {}, at);
  const ValueId loss = g.call("sum", {g.call("square", {difference}, {}, at)}, {}, at);
  g.outputs = {loss};
  g.losses = {{loss, ir::kNone}};
  g.optimizers.push_back({"sgd", {{{w, b}, {{"lr", 1e-6}}}}, {}});
  return g;
}

}  // namespace graven::codegen
