// Linear algebra beside products.h, of matrices and batches of them: PyTorch's torch.linalg.
//
//   Tensor size = linalg::vector_norm(weight, 2, {-1}, true);
//   Tensor x = linalg::solve(a, b);
//
// solve(), inv(), det() and cholesky() eliminate one column after another, in a number of operators that grows with the
// matrix: they are for small ones, and their size must be known. Within a graph there is nothing to throw at: what
// PyTorch refuses has infinite or NaN elements.
#pragma once

#include <limits>
#include <string_view>

#include "graven/tensor.h"

namespace graven::linalg {

/// norm()'s other name, with its order in PyTorch's place: (sum |x|^ord)^(1/ord).
Tensor vector_norm(const Operand& x, double ord = 2, const OneOrMore& dim = {}, bool keepdim = false);
/// Of the matrices in two dimensions: "fro", the root of the sum of squares.
Tensor matrix_norm(const Operand& x, std::string_view ord = "fro", const OneOrMore& dim = {-2, -1},
                   bool keepdim = false);
/// 1 and -1: the largest and the smallest sum of a column's magnitudes; infinity and minus infinity: of a row's. User
/// error for 2 and -2, which need singular values.
Tensor matrix_norm(const Operand& x, double ord, const OneOrMore& dim = {-2, -1}, bool keepdim = false);

/// The x of a x = b: a[..., n, n], b[..., n, k] or one vector for each matrix, b[..., n]. By elimination with the
/// largest element as the pivot.
Tensor solve(const Operand& a, const Operand& b);
/// a[..., n, n] -> its inverse.
Tensor inv(const Operand& a);
/// a[..., n, n] -> [...]; the gradient is that of an invertible matrix.
Tensor det(const Operand& a);
/// The lower triangular L with L L^T = a, for a symmetric, positive definite a[..., n, n].
Tensor cholesky(const Operand& a);

}  // namespace graven::linalg
