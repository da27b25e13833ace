// Many tensors in one launch, for optimizers: all are cut into pieces of one length, a block each, so that a large
// tensor beside small ones has most of the blocks.
//
//   for_each_list<float, 3>(count, {params, grads, momenta}, sizes, kPieces,
//                           [&](const auto& list, const LaunchShape& shape) { launch(...); });
//   const tensor_piece piece(list);             // the block's, in the kernel
//
// The length depends on the sizes alone. Pieces begin at multiples of 16 bytes where their tensors do.
#pragma once

#include "block.cuh"
#include "context.cuh"
#include "vector.cuh"

namespace graven::kernels {

/// Passed by value to the kernel: as many tensors of `Arrays` pointers each as leave 512 bytes of its 4 KB of
/// parameters.
template <class T, int Arrays>
struct tensor_list {
  static constexpr int kTensors = (4096 - 512 - 32) / (8 * Arrays + 8 + 4 + 1);
  T* data[Arrays][kTensors];
  std::int64_t sizes[kTensors];
  std::int64_t piece_size;              ///< elements of a piece; the last one of a tensor has the rest
  std::uint32_t first_piece[kTensors];  ///< pieces before each tensor's, in the list
  std::uint32_t tensors, pieces;        ///< in the list
  bool aligned[kTensors];               ///< whether all arrays can be moved 16 bytes at a time

  /// The tensor that a piece is of: the last whose pieces do not begin behind it.
  __device__ int tensor_of(std::uint32_t piece) const {
    int first = 0, last = static_cast<int>(tensors) - 1;
    while (first < last) {
      const int middle = (first + last + 1) / 2;
      if (first_piece[middle] <= piece)
        first = middle;
      else
        last = middle - 1;
    }
    return first;
  }
  __device__ std::uint32_t end_piece(int tensor) const {
    return tensor + 1 < static_cast<int>(tensors) ? first_piece[tensor + 1] : pieces;
  }
};

/// What a block works on: elements [begin, end) of a tensor.
struct tensor_piece {
  int tensor;
  bool aligned;
  std::int64_t begin, end;

  template <class List>
  __device__ explicit tensor_piece(const List& list) : tensor(list.tensor_of(blockIdx.x)) {
    aligned = list.aligned[tensor];
    begin = (blockIdx.x - list.first_piece[tensor]) * list.piece_size;
    end = begin + list.piece_size < list.sizes[tensor] ? begin + list.piece_size : list.sizes[tensor];
  }
  /// The first of the thread's elements, of which it has N in a row, and those kBlock * N further on.
  template <int N>
  __device__ std::int64_t first() const {
    return begin + static_cast<std::int64_t>(threadIdx.x) * N;
  }
  /// N elements from i on, and 0 behind the end; half types as floats.
  template <class T, int N>
  __device__ void load(const T* data, std::int64_t i, compute_t<T> (&to)[N]) const {
    T stored[N];
    if (aligned && i + N <= end) {
      load_vector(stored, data + i);
    } else {
#pragma unroll
      for (int e = 0; e < N; ++e) stored[e] = i + e < end ? data[i + e] : T(0);
    }
#pragma unroll
    for (int e = 0; e < N; ++e) to[e] = static_cast<compute_t<T>>(stored[e]);
  }
  template <class T, int N>
  __device__ void store(T* data, std::int64_t i, const compute_t<T> (&from)[N]) const {
    T stored[N];
#pragma unroll
    for (int e = 0; e < N; ++e) stored[e] = static_cast<T>(from[e]);
    if (aligned && i + N <= end) {
      store_vector(data + i, stored);
    } else {
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (i + e < end) data[i + e] = stored[e];
    }
  }
};

#ifndef __CUDACC_RTC__

/// Elements of each piece where all tensors are to be about `pieces`; there is one more a tensor at most.
inline std::int64_t tensor_piece_size(std::int64_t count, const std::int64_t* sizes, std::int64_t pieces) {
  constexpr std::int64_t unit = 4 * kBlock;
  std::int64_t all = 0;
  for (std::int64_t t = 0; t < count; ++t) all += sizes[t];
  const std::int64_t units = (all + pieces * unit - 1) / (pieces * unit);
  return (units > 0 ? units : 1) * unit;
}

/// Calls launch_one(list, shape), a block of kBlock threads a piece, for groups of tensors, which are cut into about
/// `pieces` all together; a null array stays null in the list.
template <class T, int Arrays, class Launch>
void for_each_list(std::int64_t count, T* const* const (&arrays)[Arrays], const std::int64_t* sizes,
                   std::int64_t pieces, Launch launch_one) {
  using List = tensor_list<T, Arrays>;
  static_assert(sizeof(List) <= 4096 - 512);
  const std::int64_t piece_size = tensor_piece_size(count, sizes, pieces);
  for (std::int64_t first = 0; first < count; first += List::kTensors) {
    List list{};
    list.piece_size = piece_size;
    const std::int64_t tensors = count - first < List::kTensors ? count - first : List::kTensors;
    list.tensors = static_cast<std::uint32_t>(tensors);
    for (std::int64_t t = 0; t < tensors; ++t) {
      list.aligned[t] = true;
      for (int a = 0; a < Arrays; ++a) {
        list.data[a][t] = arrays[a] != nullptr ? arrays[a][first + t] : nullptr;
        list.aligned[t] = list.aligned[t] && aligned_for_vectors<kVectorWidth<T>>(list.data[a][t]);
      }
      list.sizes[t] = sizes[first + t];
      list.first_piece[t] = list.pieces;
      list.pieces += static_cast<std::uint32_t>((list.sizes[t] + piece_size - 1) / piece_size);
    }
    launch_one(list, LaunchShape{dim3(list.pieces), dim3(kBlock), list.pieces == 0});
  }
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
