// Reading and writing at positions that are data. Every index is checked when it runs: outside of its dimension it is
// an error, eagerly and in emitted programs.
//
//   Tensor words = embedding(tokens, weight);       // f32[batch, length, size] of i64[batch, length] and
//                                                   // f32[vocabulary, size]
//   Tensor picked = gather(scores, 1, labels.unsqueeze(1));
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graven/indexing.h"
#include "graven/tensor.h"

namespace graven {

/// weight[indices[...], :]; row padding_idx (from the end where negative) gets no gradient. Indices i64 or i32.
Tensor embedding(const Operand& indices, const Tensor& weight, std::optional<std::int64_t> padding_idx = {});
/// PyTorch's arguments of embedding_bag.
struct EmbeddingBagFunctionOptions {
  /// Where each bag begins in a vector of indices; the first is 0. None for indices[bags, length].
  Tensor offsets = {};
  std::string mode = "mean";                     ///< of a bag's rows: "sum", "mean" or "max"
  Tensor per_sample_weights = {};                ///< factors of the rows, of the indices' shape; for sums
  bool include_last_offset = false;              ///< the last offset ends the last bag
  std::optional<std::int64_t> padding_idx = {};  ///< a row that no bag takes in, from the end where negative
};
/// The sum, mean or largest of the rows weight[index] of each bag: [bags, size]; 0 for bags without a row. How many
/// bags there are must be known.
Tensor embedding_bag(const Operand& indices, const Tensor& weight, const EmbeddingBagFunctionOptions& options = {});
/// i64[..., num_classes]; without num_classes one more than the largest index, which only an eager call can know.
Tensor one_hot(const Operand& indices, std::int64_t num_classes = -1);
/// y[i, j] = x[index[i, j], j] for dim 0, and so on; the index may be smaller than x in the other dimensions.
Tensor gather(const Operand& x, std::int64_t dim, const Tensor& index);
/// A copy of x with source written (a number: the same everywhere), or added, where gather would read. Of several
/// elements for one place the last stays. source may be larger than the index.
Tensor scatter(const Operand& x, std::int64_t dim, const Tensor& index, const Operand& source);
Tensor scatter_add(const Operand& x, std::int64_t dim, const Tensor& index, const Tensor& source);
/// A copy of x in which source's elements are reduced with what is at their places, or, without include_self, with each
/// other alone: "sum", "prod", "mean", "amax" or "amin". Places that no index names stay. source may be larger than the
/// index. Of equal extremes each has its share of the gradient.
Tensor scatter_reduce(const Operand& x, std::int64_t dim, const Tensor& index, const Tensor& source,
                      std::string_view reduce, bool include_self = true);
/// The slices index[0], index[1], ... of x along dim.
Tensor index_select(const Operand& x, std::int64_t dim, const Tensor& index);
/// x[:, index] for dim 1, and so on, as NumPy does: the index may have any shape, and count from the end where
/// negative.
Tensor index(const Operand& x, std::int64_t dim, const Tensor& index);
/// A copy of x to which alpha * source's slices are added at index along dim.
Tensor index_add(const Operand& x, std::int64_t dim, const Tensor& index, const Tensor& source, double alpha = 1);
/// A copy of x with source's slices (one value: the same everywhere) written at index along dim. Of several for one
/// place the last stays. The indices of index_fill count from the end where negative.
Tensor index_copy(const Operand& x, std::int64_t dim, const Tensor& index, const Tensor& source);
Tensor index_fill(const Operand& x, std::int64_t dim, const Tensor& index, const Operand& value);
/// How often each of 0, 1, ... stands in a vector of integers, i64; with weights, of f32 or f64, the sums of theirs. As
/// many as the largest needs, minlength at least. In a graph, where the numbers are not known, exactly minlength: a
/// larger number is an error when it runs. No gradient.
Tensor bincount(const Operand& x, const Tensor& weights = {}, std::int64_t minlength = 0);
/// gather with the indices broadcast against x in the other dimensions, as argsort's and argmax's are; without a
/// dimension of both as vectors.
Tensor take_along_dim(const Operand& x, const Tensor& indices, std::optional<std::int64_t> dim = {});
/// The elements of x at positions in row-major order, from the end where negative, in the indices' shape.
Tensor take(const Operand& x, const Tensor& indices);
/// A copy of x in which x.index(indices) is `values`, broadcast, or x's own plus those: with `accumulate` what is named
/// twice is added twice, without it the last stays. The indices are tensors, Slice() and the ellipsis.
Tensor index_put(const Operand& x, const std::vector<TensorIndex>& indices, const Operand& values,
                 bool accumulate = false);

}  // namespace graven
