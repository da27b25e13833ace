// attention and its gradient, whose scores are never stored; formulas: reference/attention.h.
//
//   attention(context, attention_config{.matrices = 48, .queries = 1024, .keys = 1024, .size = 64, .scale = 0.125},
//             y, lse, q, k, v, nullptr, nullptr, nullptr);
//   attention_backward(context, config, dq, dk, dv, dy, q, k, v, nullptr, y, lse, nullptr, nullptr);
//
// Forward (Dao et al., FlashAttention, 2022; Milakov and Gimelshein, Online normalizer calculation for softmax, 2018):
// a block has 64 queries, and goes over the keys that these see, 32 or 16 at a time. It keeps the greatest score so
// far, the sum of exponentials and the sum of values of each query in registers; where the greatest score changes, both
// sums are scaled. Backward computes the scores again, from lse: one kernel has queries and goes over keys, for dq, and
// one has keys and goes over the queries that see them, for dk and dv. Nothing is added by atomics, and who adds what
// in which order depends on the config alone: the same bits on every run.
//
// Where there are a seed and a step, some weights are dropped behind the softmax, by the numbers that dropout has for
// an element of the matrices of weights (config/random.h). With m = 0 for these and 1 / (1 - p) for the others, and the
// weights P of a softmax without it,
//
//   y = (P * m) v,   dv = (P * m)^T dy,   dP = m * (dy v^T),   dS = P * (dP - D),   D_i = sum over j of P_ij dP_ij
//
// element by element but for the products; and D_i is still the sum of dy * y over row i, for that is the sum over j
// and d of P_ij m_ij dy_id v_jd. lse is that of all scores. m is drawn in registers in each kernel, and never stored. A
// counter has the words of four keys in a row: where rows begin with a counter (keys % 4 == 0), the threads that have
// these four, lanes forward and groups in the kernel that has keys, draw one counter in turns and tell each other the
// bits; else each draws a counter for every weight, four times the work.
//
// Bytes: q and y once, k and v once for each 64 queries (of the L2 cache, which holds those of a matrix: 0.5 MB at 1024
// keys of 64 floats); of the scores nothing. These are matrices * queries * keys floats, 201 MB of 48 matrices of
// 1024, which a product, a softmax and a product move 4 times forward. Arithmetic, in f32 whatever the
// types that are stored: 4 * matrices * queries * keys * size operations forward and 14 of these backward, half where
// causal: 13 GFLOP and 45 GFLOP at these sizes, which at 60 TFLOP/s take 0.2 and 0.75 ms, more than their bytes: the
// kernels are limited by arithmetic, and in it by what shared memory gives: a thread has 4 x 4 scores of a tile of 64 x
// 32, for which it reads 8 vectors of 16 bytes for 64 multiplications and additions. (Tensor cores are not used.)
// Dropout adds some 25 integer operations a weight to the 4 * size forward, and to the 6 and 8 * size of each kernel
// backward, and no bytes: of its own it would read and write the matrices forward and backward, 805 MB of these sizes.
//
// Heads of up to 32, 64 or 128 numbers have kernels of their own; the rest of a tile is zeros.
#pragma once

#include "../config/attention.h"
#include "../cpu/dtype.h"
#include "block.cuh"
#include "context.cuh"
#include "random.cuh"
#include "reduce.cuh"
#include "scalar_math.cuh"
#include "vector.cuh"

#ifndef __CUDACC_RTC__
#include <stdexcept>
#include <string>
#include <type_traits>
#endif

namespace graven::kernels {

/// Threads of a block: 16 groups of 8. A group has every 16th of the block's own rows, a thread of it every 8th column
/// of what these meet.
inline constexpr int kAttentionBlock = 128, kAttentionGroups = 16, kAttentionLanes = 8;

/// Blocks that a multiprocessor has registers for, 168 a thread: with those of 4, sums would be spilled.
inline constexpr int kAttentionBlocks = 3;

/// Rows that a block keeps, and rows that it goes over, of up to Size numbers each, in shared memory.
template <int Size, bool Backward>
struct attention_tile {
  static constexpr int kRows = Backward && Size > 64 ? 32 : 64;
  static constexpr int kColumns = Size > (Backward ? 32 : 64) ? 16 : 32;
  static constexpr int kPitch = Size + 4;  // rows begin in different banks
  static constexpr int kWeightPitch = kColumns + 4;
  static constexpr int kHeld = kRows / kAttentionGroups;       // rows of a thread
  static constexpr int kMet = kColumns / kAttentionLanes;      // columns of a thread
  static constexpr int kParts = Size / (4 * kAttentionLanes);  // vectors of a row that a thread sums up
};

/// What a thread is in its block.
struct attention_place {
  int group, lane;

  __device__ attention_place()
      : group(static_cast<int>(threadIdx.x) / kAttentionLanes), lane(static_cast<int>(threadIdx.x) % kAttentionLanes) {}
};

/// A matrix of q's, and a tile's first row, of items in order: the last rows first where they have most to do.
struct attention_item {
  std::int64_t matrix, first;

  __device__ attention_item(std::int64_t item, std::int64_t rows, int at_once, bool last_first) {
    const std::int64_t tiles = (rows + at_once - 1) / at_once, tile = item % tiles;
    matrix = item / tiles;
    first = (last_first ? tiles - 1 - tile : tile) * at_once;
  }
};

/// Rows of `size` numbers, of which `count` are there, times `factor`, to a tile; the rest of it is zeros.
template <int Rows, int Size, class T>
__device__ inline void load_tile(float* tile, const T* from, std::int64_t count, std::int64_t size, float factor,
                                 bool aligned) {
  constexpr int kPitch = Size + 4;
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x) * 4; at < Rows * Size; at += kAttentionBlock * 4) {
    const int row = at / Size, column = at % Size;
    T values[4] = {};
    if (row < count && column < size) {
      const T* const place = from + row * size + column;
      if (aligned) {
        load_vector(values, place);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (column + e < size) values[e] = place[e];
      }
    }
    *reinterpret_cast<float4*>(tile + row * kPitch + column) =
        make_float4(static_cast<float>(values[0]) * factor, static_cast<float>(values[1]) * factor,
                    static_cast<float>(values[2]) * factor, static_cast<float>(values[3]) * factor);
  }
}

/// sums[i][j] = the product of the thread's row i of `own` and row j of `met`.
template <int Size, int Held, int Met>
__device__ inline void multiply_rows(float (&sums)[Held][Met], const float* own, const float* met,
                                     const attention_place& at) {
  constexpr int kPitch = Size + 4;
#pragma unroll
  for (int i = 0; i < Held; ++i) fill_vector(sums[i], 0.0f);
#pragma unroll 4
  for (int d = 0; d < Size; d += 4) {
    float left[Held][4], right[Met][4];
#pragma unroll
    for (int i = 0; i < Held; ++i) load_vector(left[i], own + (at.group + i * kAttentionGroups) * kPitch + d);
#pragma unroll
    for (int j = 0; j < Met; ++j) load_vector(right[j], met + (at.lane + j * kAttentionLanes) * kPitch + d);
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
      for (int i = 0; i < Held; ++i)
#pragma unroll
        for (int j = 0; j < Met; ++j) sums[i][j] += left[i][e] * right[j][e];
  }
}

/// sums[i][p] += row i of the weights times the rows of `met`, in the thread's vectors p of a row.
template <int Size, int Columns, int Held, int Parts>
__device__ inline void add_weighted_rows(float (&sums)[Held][Parts][4], const float* weights, const float* met,
                                         const attention_place& at) {
  constexpr int kPitch = Size + 4, kWeightPitch = Columns + 4;
#pragma unroll 2
  for (int column = 0; column < Columns; column += 4) {
    float weight[Held][4];
#pragma unroll
    for (int i = 0; i < Held; ++i)
      load_vector(weight[i], weights + (at.group + i * kAttentionGroups) * kWeightPitch + column);
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
      for (int p = 0; p < Parts; ++p) {
        float value[4];
        load_vector(value, met + (column + e) * kPitch + (at.lane + p * kAttentionLanes) * 4);
#pragma unroll
        for (int i = 0; i < Held; ++i)
#pragma unroll
          for (int n = 0; n < 4; ++n) sums[i][p][n] += weight[i][e] * value[n];
      }
  }
}

/// The thread's numbers, of its rows and columns, to shared memory.
template <int Columns, int Held, int Met>
__device__ inline void store_weights(float* weights, const float (&values)[Held][Met], const attention_place& at) {
#pragma unroll
  for (int i = 0; i < Held; ++i)
#pragma unroll
    for (int j = 0; j < Met; ++j)
      weights[(at.group + i * kAttentionGroups) * (Columns + 4) + at.lane + j * kAttentionLanes] = values[i][j];
}

/// The thread's rows of a tile of `count` rows, times factors[i], to memory.
template <int Held, int Parts, class T>
__device__ inline void store_rows(T* to, const float (&sums)[Held][Parts][4], const float (&factors)[Held],
                                  std::int64_t count, std::int64_t size, bool aligned, const attention_place& at) {
#pragma unroll
  for (int i = 0; i < Held; ++i) {
    const int row = at.group + i * kAttentionGroups;
    if (row >= count) continue;
#pragma unroll
    for (int p = 0; p < Parts; ++p) {
      const int column = (at.lane + p * kAttentionLanes) * 4;
      T values[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) values[n] = static_cast<T>(sums[i][p][n] * factors[i]);
      T* const place = to + row * size + column;
      if (aligned && column < size) {
        store_vector(place, values);
      } else {
#pragma unroll
        for (int n = 0; n < 4; ++n)
          if (column + n < size) place[n] = values[n];
      }
    }
  }
}

/// The reduction over the 8 lanes of a group.
template <class Op>
__device__ inline float group_reduce(float value) {
#pragma unroll
  for (int lanes = kAttentionLanes / 2; lanes > 0; lanes /= 2)
    value = Op::join(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  return value;
}

/// Whether a query sees a key; both are ones that there are, or not.
__device__ inline bool sees(const attention_config& config, std::int64_t query, std::int64_t key) {
  return query < config.queries && key < config.keys && (!config.causal || key <= query + config.offset);
}
/// So many keys, the first ones, are seen by queries up to `last`, or by some of them.
__device__ inline std::int64_t keys_seen(const attention_config& config, std::int64_t last) {
  return config.causal && last + 1 + config.offset < config.keys ? last + 1 + config.offset : config.keys;
}

/// The mask of a matrix of scores.
template <class T>
struct attention_mask {
  const T* first;
  std::int64_t row_stride;

  __device__ attention_mask(const attention_config& config, const T* mask, std::int64_t matrix)
      : first(mask == nullptr ? nullptr : mask + matrix / config.mask_repeats * config.mask_rows * config.keys),
        row_stride(config.mask_rows == 1 ? 0 : config.keys) {}
  __device__ float at(std::int64_t query, std::int64_t key) const {
    return first == nullptr ? 0.0f : static_cast<float>(first[query * row_stride + key]);
  }
};

/// Dropout of the weights, as kernels are given it. Those of which none is dropped are others (Drops): they have no
/// register to spare for it.
struct attention_drops {
  bool all = false;      ///< none is kept
  bool by_four = false;  ///< the words of a counter are those of one row
  std::uint32_t threshold = 0;
  float scale = 1;  ///< of those that are kept
  int rank = 0;     ///< of attention_config::ranks
};

/// Which of its weights a thread keeps, of a matrix of q's.
template <bool Drops>
struct attention_dropout {
  attention_drops drops;
  std::int64_t seed = 0, stream, step = 0;
  std::int64_t first;  // the matrix's first weight's place in the whole tensor

  __device__ attention_dropout(const attention_config& config, const attention_drops& how, std::int64_t matrix,
                               const std::int64_t* seeds, const std::int64_t* steps)
      : drops(how), stream(config.stream), first(matrix * config.queries * config.keys) {
    if constexpr (Drops) {
      seed = *seeds;
      step = *steps;
      if (config.ranks > 1) first = (first / config.run * config.ranks + drops.rank) * config.run + first % config.run;
    }
  }

  /// What a weight that is kept is multiplied by.
  __device__ float scale() const { return Drops ? drops.scale : 1.0f; }

  /// Bit e says whether the thread's weight e is kept, which is at place_of(e) in the matrix. The four threads of a
  /// warp whose weights e are those of one counter differ in the bits `apart` and 2 * apart of their numbers: of these
  /// this one is the one at `place`. The whole warp calls it.
  template <int Count, class PlaceOf>
  __device__ std::uint32_t kept(int place, int apart, const PlaceOf& place_of) const {
    static_assert(Count % 4 == 0 && Count <= 32);
    if constexpr (!Drops)
      return 0xffffffffu;
    else
      return drops.by_four ? kept_by_four<Count>(place, apart, place_of) : kept_by_one<Count>(place_of);
  }

 private:
  __device__ bool keeps(std::uint32_t word) const { return !drops.all && word >= drops.threshold; }

  template <int Count, class PlaceOf>
  __device__ std::uint32_t kept_by_one(const PlaceOf& place_of) const {
    std::uint32_t bits = 0;
#pragma unroll 1
    for (int e = 0; e < Count; ++e) {
      const std::int64_t at = first + place_of(e);
      const random_words words = draw(seed, stream, step, at / 4);
      std::uint32_t word = words.word[0];
#pragma unroll
      for (int of = 1; of < 4; ++of)
        if (at % 4 == of) word = words.word[of];
      bits |= static_cast<std::uint32_t>(keeps(word)) << e;
    }
    return bits;
  }

  /// Of each four weights the thread draws that of its place, for all four threads, and has a bit for each of them.
  template <int Count, class PlaceOf>
  __device__ std::uint32_t kept_by_four(int place, int apart, const PlaceOf& place_of) const {
    std::uint32_t drawn = 0, bits = 0;
#pragma unroll
    for (int e = 0; e < Count; e += 4) {
      const random_words words = draw(seed, stream, step, (first + place_of(e + place)) / 4);
#pragma unroll
      for (int of = 0; of < 4; ++of) drawn |= static_cast<std::uint32_t>(keeps(words.word[of])) << (e + of);
    }
#pragma unroll
    for (int other = 0; other < 4; ++other) {
      const std::uint32_t from = __shfl_xor_sync(0xffffffffu, drawn, other * apart);
      bits |= ((from >> place) & 0x11111111u) << (place ^ other);
    }
    return bits;
  }
};

/// aligned: vectors of 4 numbers of all tensors can be moved at once.
template <int Size, bool Drops, class T>
__global__ void __launch_bounds__(kAttentionBlock, kAttentionBlocks)
    attention_kernel(attention_config config, bool aligned, attention_drops drops, T* y, float* lse, const T* q,
                     const T* k, const T* v, const T* mask, const std::int64_t* seed, const std::int64_t* step) {
  using tile = attention_tile<Size, false>;
  constexpr int kHeld = tile::kHeld, kMet = tile::kMet;
  alignas(16) __shared__ float own[tile::kRows * tile::kPitch];
  alignas(16) __shared__ float met[tile::kColumns * tile::kPitch];
  alignas(16) __shared__ float weights[tile::kRows * tile::kWeightPitch];
  const attention_place at;
  const float scale = static_cast<float>(config.scale);
  const std::int64_t tiles = (config.queries + tile::kRows - 1) / tile::kRows, items = config.matrices * tiles;
  for (std::int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const attention_item item(number, config.queries, tile::kRows, true);
    const std::int64_t row = item.matrix * config.queries + item.first, count = config.queries - item.first;
    const std::int64_t keys = item.matrix / config.groups * config.keys;
    const std::int64_t last = (count < tile::kRows ? config.queries : item.first + tile::kRows) - 1;
    const std::int64_t seen = keys_seen(config, last);
    const attention_mask<T> masked(config, mask, item.matrix);
    const attention_dropout<Drops> dropout(config, drops, item.matrix, seed, step);
    // Nobody reads `own` any more: the last scores lie before a barrier.
    load_tile<tile::kRows, Size>(own, q + row * config.size, count, config.size, scale, aligned);
    float sums[kHeld][tile::kParts][4] = {}, top[kHeld], total[kHeld];
    fill_vector(top, smallest<float>());
    fill_vector(total, 0.0f);
    for (std::int64_t first = 0; first < seen; first += tile::kColumns) {
      __syncthreads();  // after the last use of `met` and of `weights`
      load_tile<tile::kColumns, Size>(met, k + (keys + first) * config.size, config.keys - first, config.size, 1.0f,
                                      aligned);
      __syncthreads();
      float score[kHeld][kMet];
      multiply_rows<Size>(score, own, met, at);
      __syncthreads();  // before the values lie where the keys do
      load_tile<tile::kColumns, Size>(met, v + (keys + first) * config.size, config.keys - first, config.size, 1.0f,
                                      aligned);
      const std::uint32_t kept = dropout.template kept<kHeld * kMet>(at.lane % 4, 1, [&](int e) {
        return (item.first + at.group + e / kMet * kAttentionGroups) * config.keys + first + at.lane +
               e % kMet * kAttentionLanes;
      });
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const std::int64_t query = item.first + at.group + i * kAttentionGroups;
        float most = top[i];
#pragma unroll
        for (int j = 0; j < kMet; ++j) {
          const std::int64_t key = first + at.lane + j * kAttentionLanes;
          score[i][j] = sees(config, query, key) ? score[i][j] + masked.at(query, key) : smallest<float>();
          most = maximum_of::join(most, score[i][j]);
        }
        most = group_reduce<maximum_of>(most);
        const float shift = most == smallest<float>() ? 0.0f : most, factor = math::exp(top[i] - shift);
        top[i] = most;
        total[i] *= factor;
#pragma unroll
        for (int j = 0; j < kMet; ++j) {
          score[i][j] = math::exp(score[i][j] - shift);
          total[i] += score[i][j];
          if ((kept >> (i * kMet + j) & 1) == 0) score[i][j] = 0;
        }
#pragma unroll
        for (int p = 0; p < tile::kParts; ++p)
#pragma unroll
          for (int n = 0; n < 4; ++n) sums[i][p][n] *= factor;
      }
      store_weights<tile::kColumns>(weights, score, at);
      __syncthreads();
      add_weighted_rows<Size, tile::kColumns>(sums, weights, met, at);
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int place = at.group + i * kAttentionGroups;
      total[i] = group_reduce<sum_of>(total[i]);
      const bool is_zero = config.masked_to_zero && top[i] == smallest<float>();
      if (lse != nullptr && at.lane == 0 && place < count)
        lse[row + place] = is_zero ? largest<float>() : top[i] + math::log(total[i]);
      total[i] = is_zero || config.keys == 0 ? 0.0f : dropout.scale() / total[i];
    }
    store_rows(y + row * config.size, sums, total, count, config.size, aligned, at);
  }
}

/// along [matrices, queries]: the sum over a row of dy * y. dq may be nullptr.
template <int Size, bool Drops, class T>
__global__ void __launch_bounds__(kAttentionBlock, kAttentionBlocks)
    attention_backward_queries_kernel(attention_config config, bool aligned, attention_drops drops, T* dq, float* along,
                                      const T* dy, const T* q, const T* k, const T* v, const T* mask, const T* y,
                                      const float* lse, const std::int64_t* seed, const std::int64_t* step) {
  using tile = attention_tile<Size, true>;
  constexpr int kHeld = tile::kHeld, kMet = tile::kMet;
  alignas(16) __shared__ float own[tile::kRows * tile::kPitch];
  alignas(16) __shared__ float own_dy[tile::kRows * tile::kPitch];
  alignas(16) __shared__ float met[tile::kColumns * tile::kPitch];
  alignas(16) __shared__ float weights[tile::kRows * tile::kWeightPitch];
  const attention_place at;
  const float scale = static_cast<float>(config.scale);
  const std::int64_t tiles = (config.queries + tile::kRows - 1) / tile::kRows, items = config.matrices * tiles;
  for (std::int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const attention_item item(number, config.queries, tile::kRows, true);
    const std::int64_t row = item.matrix * config.queries + item.first, count = config.queries - item.first;
    const std::int64_t keys = item.matrix / config.groups * config.keys;
    const std::int64_t last = (count < tile::kRows ? config.queries : item.first + tile::kRows) - 1;
    const std::int64_t seen = dq == nullptr ? 0 : keys_seen(config, last);
    const attention_mask<T> masked(config, mask, item.matrix);
    const attention_dropout<Drops> dropout(config, drops, item.matrix, seed, step);
    float of_row[kHeld], product[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int place = at.group + i * kAttentionGroups;
      of_row[i] = place < count ? lse[row + place] : largest<float>();
      float sum = 0;
      if (place < count) {
        const std::int64_t first = (row + place) * config.size;
        for (std::int64_t d = at.lane; d < config.size; d += kAttentionLanes)
          sum += static_cast<float>(dy[first + d]) * static_cast<float>(y[first + d]);
      }
      product[i] = group_reduce<sum_of>(sum);
      if (at.lane == 0 && place < count) along[row + place] = product[i];
    }
    __syncthreads();  // after the last use of `own`
    load_tile<tile::kRows, Size>(own, q + row * config.size, count, config.size, scale, aligned);
    load_tile<tile::kRows, Size>(own_dy, dy + row * config.size, count, config.size, 1.0f, aligned);
    float sums[kHeld][tile::kParts][4] = {};
    for (std::int64_t first = 0; first < seen; first += tile::kColumns) {
      __syncthreads();  // after the last use of `met`
      load_tile<tile::kColumns, Size>(met, v + (keys + first) * config.size, config.keys - first, config.size, 1.0f,
                                      aligned);
      __syncthreads();
      float change[kHeld][kMet], score[kHeld][kMet];
      multiply_rows<Size>(change, own_dy, met, at);
      __syncthreads();  // before the keys lie where the values do
      load_tile<tile::kColumns, Size>(met, k + (keys + first) * config.size, config.keys - first, config.size, 1.0f,
                                      aligned);
      __syncthreads();
      multiply_rows<Size>(score, own, met, at);
      const std::uint32_t kept = dropout.template kept<kHeld * kMet>(at.lane % 4, 1, [&](int e) {
        return (item.first + at.group + e / kMet * kAttentionGroups) * config.keys + first + at.lane +
               e % kMet * kAttentionLanes;
      });
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const std::int64_t query = item.first + at.group + i * kAttentionGroups;
#pragma unroll
        for (int j = 0; j < kMet; ++j) {
          const std::int64_t key = first + at.lane + j * kAttentionLanes;
          const float of_weight = (kept >> (i * kMet + j) & 1) == 0 ? 0.0f : change[i][j] * dropout.scale();
          change[i][j] = sees(config, query, key)
                             ? math::exp(score[i][j] + masked.at(query, key) - of_row[i]) * (of_weight - product[i])
                             : 0.0f;
        }
      }
      store_weights<tile::kColumns>(weights, change, at);
      __syncwarp();  // a warp has whole rows of the weights
      add_weighted_rows<Size, tile::kColumns>(sums, weights, met, at);
    }
    if (dq == nullptr) continue;
    float factors[kHeld];
    fill_vector(factors, scale);
    store_rows(dq + row * config.size, sums, factors, count, config.size, aligned, at);
  }
}

/// dk and dv, of which either may be nullptr.
template <int Size, bool Drops, class T>
__global__ void __launch_bounds__(kAttentionBlock, kAttentionBlocks)
    attention_backward_keys_kernel(attention_config config, bool aligned, attention_drops drops, T* dk, T* dv,
                                   const T* dy, const T* q, const T* k, const T* v, const T* mask, const float* lse,
                                   const float* along, const std::int64_t* seed, const std::int64_t* step) {
  using tile = attention_tile<Size, true>;
  constexpr int kHeld = tile::kHeld, kMet = tile::kMet;
  alignas(16) __shared__ float own[tile::kRows * tile::kPitch];
  alignas(16) __shared__ float own_v[tile::kRows * tile::kPitch];
  alignas(16) __shared__ float met[tile::kColumns * tile::kPitch];
  alignas(16) __shared__ float weights[tile::kRows * tile::kWeightPitch];
  const attention_place at;
  const float scale = static_cast<float>(config.scale);
  const std::int64_t tiles = (config.keys + tile::kRows - 1) / tile::kRows;
  const std::int64_t items = config.matrices / config.groups * tiles;
  for (std::int64_t number = blockIdx.x; number < items; number += gridDim.x) {
    const attention_item item(number, config.keys, tile::kRows, false);
    const std::int64_t row = item.matrix * config.keys + item.first, count = config.keys - item.first;
    // Queries before the first that sees a key of these are left out, tiles of them.
    const std::int64_t before = config.causal && item.first > config.offset ? item.first - config.offset : 0;
    const std::int64_t begin = before / tile::kColumns * tile::kColumns;
    load_tile<tile::kRows, Size>(own, k + row * config.size, count, config.size, 1.0f, aligned);
    load_tile<tile::kRows, Size>(own_v, v + row * config.size, count, config.size, 1.0f, aligned);
    float of_k[kHeld][tile::kParts][4] = {}, of_v[kHeld][tile::kParts][4] = {};
    for (std::int64_t group = 0; group < config.groups; ++group) {
      const std::int64_t matrix = item.matrix * config.groups + group, queries = matrix * config.queries;
      const attention_mask<T> masked(config, mask, matrix);
      const attention_dropout<Drops> dropout(config, drops, matrix, seed, step);
      for (std::int64_t first = begin; first < config.queries; first += tile::kColumns) {
        const T* const from_q = q + (queries + first) * config.size;
        const std::int64_t there = config.queries - first;
        __syncthreads();  // after the last use of `met` and of `weights`
        load_tile<tile::kColumns, Size>(met, from_q, there, config.size, scale, aligned);
        __syncthreads();
        float weight[kHeld][kMet], change[kHeld][kMet];
        multiply_rows<Size>(weight, own, met, at);
        const std::uint32_t kept = dropout.template kept<kHeld * kMet>(at.group % 4, kAttentionLanes, [&](int e) {
          return (first + at.lane + e % kMet * kAttentionLanes) * config.keys + item.first + at.group +
                 e / kMet * kAttentionGroups;
        });
        float dropped[kHeld][kMet];  // the weights behind dropout, but for its scale
#pragma unroll
        for (int j = 0; j < kMet; ++j) {
          const std::int64_t query = first + at.lane + j * kAttentionLanes;
          const float of_query = query < config.queries ? lse[queries + query] : 0.0f;
#pragma unroll
          for (int i = 0; i < kHeld; ++i) {
            const std::int64_t key = item.first + at.group + i * kAttentionGroups;
            weight[i][j] = sees(config, query, key) ? math::exp(weight[i][j] + masked.at(query, key) - of_query) : 0.0f;
            dropped[i][j] = (kept >> (i * kMet + j) & 1) == 0 ? 0.0f : weight[i][j];
          }
        }
        store_weights<tile::kColumns>(weights, dropped, at);
        __syncthreads();  // before dy lies where q does
        load_tile<tile::kColumns, Size>(met, dy + (queries + first) * config.size, there, config.size, 1.0f, aligned);
        __syncthreads();
        add_weighted_rows<Size, tile::kColumns>(of_v, weights, met, at);
        multiply_rows<Size>(change, own_v, met, at);
#pragma unroll
        for (int j = 0; j < kMet; ++j) {
          const std::int64_t query = first + at.lane + j * kAttentionLanes;
          const float product = query < config.queries ? along[queries + query] : 0.0f;
#pragma unroll
          for (int i = 0; i < kHeld; ++i) {
            const std::int64_t key = item.first + at.group + i * kAttentionGroups;
            const float of_weight = (kept >> (i * kMet + j) & 1) == 0 ? 0.0f : change[i][j] * dropout.scale();
            change[i][j] = sees(config, query, key) ? weight[i][j] * (of_weight - product) : 0.0f;
          }
        }
        __syncthreads();  // before q lies where dy does, and the changes where the weights do
        load_tile<tile::kColumns, Size>(met, from_q, there, config.size, scale, aligned);
        store_weights<tile::kColumns>(weights, change, at);
        __syncthreads();
        add_weighted_rows<Size, tile::kColumns>(of_k, weights, met, at);
      }
    }
    float factors[kHeld];
    fill_vector(factors, 1.0f);
    if (dk != nullptr) store_rows(dk + row * config.size, of_k, factors, count, config.size, aligned, at);
    if constexpr (Drops) fill_vector(factors, drops.scale);
    if (dv != nullptr) store_rows(dv + row * config.size, of_v, factors, count, config.size, aligned, at);
  }
}

#ifndef __CUDACC_RTC__

namespace detail {

/// Calls use(Size, Drops) for the first of the kernels that has room for a row.
template <class Use>
void with_attention_kernel(std::int64_t size, bool drops, const Use& use) {
  if (size > kMostAttentionSize)
    throw std::invalid_argument("attention: queries of up to " + std::to_string(kMostAttentionSize) + " numbers, got " +
                                std::to_string(size));
  const auto with_size = [&](auto room) {
    if (drops)
      use(room, std::true_type());
    else
      use(room, std::false_type());
  };
  if (size <= 32)
    with_size(std::integral_constant<int, 32>());
  else if (size <= 64)
    with_size(std::integral_constant<int, 64>());
  else
    with_size(std::integral_constant<int, 128>());
}

/// A block for each tile of `at_once` rows of each matrix.
inline LaunchShape attention_shape(std::int64_t matrices, std::int64_t rows, int at_once) {
  return launch_shape(matrices * divide_up(rows, at_once) * kAttentionBlock, kAttentionBlock);
}

inline attention_drops drops_of(const CudaContext& context, const attention_config& config, const std::int64_t* seed) {
  if (seed == nullptr) return {};
  const bool all = config.p >= 1;
  return {.all = all,
          .by_four = config.keys % 4 == 0,
          .threshold = dropout_threshold(config.p),
          .scale = all ? 0.0f : static_cast<float>(1 / (1 - config.p)),
          .rank = static_cast<int>(rank_in_team(context))};
}

}  // namespace detail

/// lse may be nullptr where nobody needs the gradient; seed and step are nullptr where there is no dropout.
template <class T>
void attention(CudaContext& context, const attention_config& config, T* y, float* lse, const plain_t<T>* q,
               const plain_t<T>* k, const plain_t<T>* v, const plain_t<T>* mask, const std::int64_t* seed,
               const std::int64_t* step) {
  const bool aligned = config.size % 4 == 0 && aligned_for_vectors<4>(y, q, k, v);
  detail::with_attention_kernel(
      config.size, seed != nullptr,
      [&]<int Size, bool Drops>(std::integral_constant<int, Size>, std::bool_constant<Drops>) {
        launch(context, "attention", &attention_kernel<Size, Drops, T>,
               detail::attention_shape(config.matrices, config.queries, attention_tile<Size, false>::kRows), config,
               aligned, detail::drops_of(context, config, seed), y, lse, q, k, v, mask, seed, step);
      });
}

/// dq, dk and dv may be nullptr; seed and step are nullptr where there was no dropout.
template <class T>
void attention_backward(CudaContext& context, const attention_config& config, T* dq, plain_t<T>* dk, plain_t<T>* dv,
                        const plain_t<T>* dy, const plain_t<T>* q, const plain_t<T>* k, const plain_t<T>* v,
                        const plain_t<T>* mask, const plain_t<T>* y, const float* lse, const std::int64_t* seed,
                        const std::int64_t* step) {
  const bool aligned = config.size % 4 == 0 && aligned_for_vectors<4>(dq, dk, dv, dy, q, k, v, y);
  const std::int64_t rows = config.matrices * config.queries;
  const attention_drops drops = detail::drops_of(context, config, seed);
  float* const along = static_cast<float*>(context.workspace(static_cast<std::size_t>(rows) * sizeof(float)));
  detail::with_attention_kernel(
      config.size, seed != nullptr,
      [&]<int Size, bool Drops>(std::integral_constant<int, Size>, std::bool_constant<Drops>) {
        constexpr int kRows = attention_tile<Size, true>::kRows;
        launch(context, "attention_backward", &attention_backward_queries_kernel<Size, Drops, T>,
               detail::attention_shape(config.matrices, config.queries, kRows), config, aligned, drops, dq, along, dy,
               q, k, v, mask, y, lse, seed, step);
        if (dk == nullptr && dv == nullptr) return;
        launch(context, "attention_backward", &attention_backward_keys_kernel<Size, Drops, T>,
               detail::attention_shape(config.matrices / config.groups, config.keys, kRows), config, aligned, drops, dk,
               dv, dy, q, k, v, mask, lse, static_cast<const float*>(along), seed, step);
      });
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
