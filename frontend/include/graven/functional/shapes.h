// Rearranging: the methods of Tensor as functions, and what is made of them. Views share memory where PyTorch's do.
//
//   auto [query, key] = std::pair(split(x, 64, -1).at(0), split(x, 64, -1).at(1));
//   Tensor causal = tril(ones({n, n}));
#pragma once

#include <cstdint>
#include <vector>

#include "graven/indexing.h"
#include "graven/tensor.h"

namespace graven {

Tensor reshape(const Operand& x, const Shape& shape);
Tensor flatten(const Operand& x, std::int64_t start_dim = 0, std::int64_t end_dim = -1);
Tensor transpose(const Operand& x, std::int64_t dim0, std::int64_t dim1);
Tensor permute(const Operand& x, const Sizes& dims);
Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim = 0, Location where = Location::current());
Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim = 0, Location where = Location::current());

Tensor squeeze(const Operand& x);
Tensor squeeze(const Operand& x, std::int64_t dim);
Tensor unsqueeze(const Operand& x, std::int64_t dim);
/// Dimension dim as several; one may be -1.
Tensor unflatten(const Operand& x, std::int64_t dim, const Shape& sizes);
Tensor swapaxes(const Operand& x, std::int64_t dim0, std::int64_t dim1);
/// Dimensions `source` moved to the places `destination`, the others in their order.
Tensor movedim(const Operand& x, const OneOrMore& source, const OneOrMore& destination);
Tensor broadcast_to(const Operand& x, const Shape& shape);
/// i64[]: the size of a dimension as a tensor. Of a symbol it is what the symbol stands for when the graph runs: x /
/// size_of(x, 0).
Tensor size_of(const Operand& x, std::int64_t dim);
Tensor narrow(const Operand& x, std::int64_t dim, std::int64_t start, std::int64_t length);
Tensor select(const Operand& x, std::int64_t dim, std::int64_t index);

/// Parts of split_size (the last may be smaller), or of the sizes, along dim.
std::vector<Tensor> split(const Operand& x, std::int64_t split_size, std::int64_t dim = 0);
std::vector<Tensor> split(const Operand& x, const Sizes& split_sizes, std::int64_t dim = 0);
std::vector<Tensor> chunk(const Operand& x, std::int64_t chunks, std::int64_t dim = 0);
/// Every index of dim by itself, without the dimension.
std::vector<Tensor> unbind(const Operand& x, std::int64_t dim = 0);
/// cat's other name.
Tensor concat(const std::vector<Tensor>& tensors, std::int64_t dim = 0, Location where = Location::current());
Tensor hstack(const std::vector<Tensor>& tensors, Location where = Location::current());
Tensor vstack(const std::vector<Tensor>& tensors, Location where = Location::current());

/// The order along dims turned round: a copy.
Tensor flip(const Operand& x, const OneOrMore& dims);
/// Elements moved by shifts along dims, those that fall off come in at the other end. No dims: of the flattened tensor.
Tensor roll(const Operand& x, const OneOrMore& shifts, const OneOrMore& dims = {});
/// Copies of x side by side: repeat counts from the last dimension, more counts than dimensions add some in front.
Tensor repeat(const Operand& x, const Sizes& counts);
/// As repeat, but fewer counts than dimensions are taken as 1.
Tensor tile(const Operand& x, const Sizes& counts);
/// Each element `repeats` times in a row along dim; no dim: of the flattened tensor.
Tensor repeat_interleave(const Operand& x, std::int64_t repeats, std::optional<std::int64_t> dim = {});

/// The lower (upper) triangle of the last two dimensions, zeros elsewhere; diagonal 1 is above the main one, -1 below.
Tensor tril(const Operand& x, std::int64_t diagonal = 0);
Tensor triu(const Operand& x, std::int64_t diagonal = 0);
/// The diagonal of the dimensions dim1 and dim2, as the last dimension.
Tensor diagonal(const Operand& x, std::int64_t offset = 0, std::int64_t dim1 = 0, std::int64_t dim2 = 1);
/// Of a vector the square matrix that has it on a diagonal, and zeros elsewhere; of a matrix its diagonal.
Tensor diag(const Operand& x, std::int64_t diagonal = 0);
/// The last dimension as the diagonals of matrices, whose rows and columns are dim1 and dim2 of the result; all else is
/// 0.
Tensor diag_embed(const Operand& x, std::int64_t offset = 0, std::int64_t dim1 = -2, std::int64_t dim2 = -1);
/// x where the mask is false, value elsewhere.
Tensor masked_fill(const Operand& x, const Tensor& mask, const Operand& value);
/// Coordinates: of vectors of n0, n1, ... tensors of [n0, n1, ...]; indexing "ij", or "xy", which exchanges the first
/// two.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, std::string_view indexing = "ij",
                             Location where = Location::current());

/// [..., channels f^2, h, w] -> [..., channels, h f, w f]: each group of f^2 channels becomes f x f pixels (Shi et al.
/// 2016); and back.
Tensor pixel_shuffle(const Operand& x, std::int64_t upscale_factor);
Tensor pixel_unshuffle(const Operand& x, std::int64_t downscale_factor);
/// x[batch, channels, ...] with its channels dealt out: those of `groups` groups in turn (Zhang et al. 2018).
Tensor channel_shuffle(const Operand& x, std::int64_t groups);
/// Differences of neighbours along dim, n times over.
Tensor diff(const Operand& x, std::int64_t n = 1, std::int64_t dim = -1);

}  // namespace graven
