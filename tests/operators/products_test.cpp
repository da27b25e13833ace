#include <gtest/gtest.h>

#include "tests/operators/fixture.h"

namespace graven::tests {
namespace {

template <class F>
Function two(F f) {
  return one([f](const Fixture& x) { return f(x.tensor("a"), x.tensor("b")); });
}

TEST(Products, AgreeWithPyTorch) {
  std::map<std::string, Function> functions;
  functions["mm"] = two([](const Tensor& a, const Tensor& b) { return mm(a, b); });
  functions["bmm"] = two([](const Tensor& a, const Tensor& b) { return bmm(a, b); });
  functions["mv"] = two([](const Tensor& a, const Tensor& b) { return mv(a, b); });
  functions["dot"] = two([](const Tensor& a, const Tensor& b) { return dot(a, b); });
  functions["outer"] = two([](const Tensor& a, const Tensor& b) { return outer(a, b); });
  functions["matmul"] = two([](const Tensor& a, const Tensor& b) { return matmul(a, b); });
  functions["addmm"] = one([](const Fixture& f) {
    return addmm(f.tensor("c"), f.tensor("a"), f.tensor("b"), f.number("beta", 1), f.number("alpha", 1));
  });
  functions["baddbmm"] = one([](const Fixture& f) {
    return baddbmm(f.tensor("c"), f.tensor("a"), f.tensor("b"), f.number("beta", 1), f.number("alpha", 1));
  });
  functions["einsum"] = one([](const Fixture& f) {
    std::vector<Tensor> operands;
    for (const auto& [name, t] : f.inputs()) operands.push_back(t);
    return einsum(f.text("equation"), operands);
  });
  functions["linear"] =
      one([](const Fixture& f) { return linear(f.tensor("input"), f.tensor("weight"), f.tensor("bias")); });
  functions["bilinear"] = one([](const Fixture& f) {
    return bilinear(f.tensor("input1"), f.tensor("input2"), f.tensor("weight"), f.tensor("bias"));
  });
  functions["trace"] = one([](const Fixture& f) { return trace(f.tensor("x")); });
  functions["cross"] = one([](const Fixture& f) { return cross(f.tensor("a"), f.tensor("b"), f.integer("dim")); });
  expect_family("products", functions);
}

TEST(Products, EinsumRefusesWhatHasNoMeaning) {
  const Tensor a = zeros({2, 3}), b = zeros({4, 5});
  for (const char* equation : {"ij,jk->ik", "ij", "ij,kl->iz", "ij,kl->ii", "i,kl", "ijk,kl", "i.j,kl", "i1,kl",
                               "....ij,kl", "ii,kl", "ij,kl,mn"})
    EXPECT_THROW(einsum(equation, {a, b}), UserError) << equation;
  EXPECT_THROW(einsum("", {}), UserError);
}

}  // namespace
}  // namespace graven::tests
