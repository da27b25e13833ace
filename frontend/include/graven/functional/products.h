// Products of matrices and vectors. All are made of linear and matmul.
//
//   Tensor scores = einsum("bhqd,bhkd->bhqk", {q, k});
#pragma once

#include <string_view>

#include "graven/tensor.h"

namespace graven {

/// x[..., k] weight[n, k]^T + bias[n] -> [..., n]
Tensor linear(const Operand& x, const Tensor& weight, const Tensor& bias = {});
/// Vectors, matrices and batches of them, with broadcasting of the batch dimensions.
Tensor matmul(const Operand& a, const Operand& b);

/// Matrices; batches of matrices; a matrix and a vector; two vectors.
Tensor mm(const Operand& a, const Operand& b);
Tensor bmm(const Operand& a, const Operand& b);
Tensor mv(const Operand& a, const Operand& b);
Tensor dot(const Operand& a, const Operand& b);
/// [n] and [m] -> [n, m]
Tensor outer(const Operand& a, const Operand& b);
/// Each element of a times all of b, in its place: [n, m] and [k, l] -> [n * k, m * l]; any number of dimensions.
Tensor kron(const Operand& a, const Operand& b);
/// Sums over the last `dims` dimensions of a and the first of b; or over those that are named, in their order.
Tensor tensordot(const Operand& a, const Operand& b, std::int64_t dims = 2);
Tensor tensordot(const Operand& a, const Operand& b, const Sizes& dims_a, const Sizes& dims_b);
/// beta * input + alpha * (a @ b); input is broadcast.
Tensor addmm(const Operand& input, const Operand& a, const Operand& b, double beta = 1, double alpha = 1);
Tensor baddbmm(const Operand& input, const Operand& a, const Operand& b, double beta = 1, double alpha = 1);
/// Sums over products in Einstein's notation: "ij,jk->ik", "...ij->...ji", "ii" (the trace). Without "->" the result
/// has the letters that occur once, in the alphabet's order, behind an ellipsis. Lowered to permutations, batched
/// matrix products and sums, from left to right.
Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands, Location where = Location::current());
/// x1 weight[out] x2 + bias for each output: x1[..., in1], x2[..., in2], weight[out, in1, in2], bias[out].
Tensor bilinear(const Operand& x1, const Operand& x2, const Tensor& weight, const Tensor& bias = {});
/// The sum of the diagonal of a matrix.
Tensor trace(const Operand& x);
/// The vector product along dim, of 3 elements; broadcast.
Tensor cross(const Operand& a, const Operand& b, std::int64_t dim = -1);

}  // namespace graven
