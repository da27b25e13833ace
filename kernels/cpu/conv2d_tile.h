// The micro-kernel of the convolutions: a register tile of up to 12 pixels x 1 to 4 panels of 16 channels.
//
//   acc[r][c] = start[c] (or y's, or 0) + sum over (t, s, k) of
//               x[r*x_row + t*x_outer + s*x_inner + k] * w[c / 16][t*w_outer + s*w_inner + k*16 + c % 16]
//
// t runs over the rows of the kernel; s and k over its columns and the channels, merged into one long k where they are
// contiguous in x. The broadcast of x folds into the multiply-add; what is left in the loop is one load for each vector
// of weights. Rows of the tile are pixels at any constant distance: along a row of the image, or down a column.
#pragma once

#include <cstdint>
#include <utility>

#include "functor.h"
#include "simd.h"
#include "window.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace conv2d_detail {

using namespace window;

/// The sums that a tile makes; see above.
struct tile_input {
  const float* x;
  std::int64_t x_row;                    ///< from one pixel of the tile to the next
  std::int64_t outer, x_outer, w_outer;  ///< t
  std::int64_t inner, x_inner, w_inner;  ///< s
  std::int64_t depth;                    ///< k
  const float* w;
  std::int64_t w_panel;    ///< from one panel to the next
  std::int64_t ahead = 0;  ///< weights that far on are asked for meanwhile, a line for each k (4 panels)
  // For the ends of a tile; see below.
  const float* residual = nullptr;  ///< of the tile's first pixel, as y lies
  float least = 0, most = 0;
};

template <int Rows, int Vectors>
GRAVEN_ALWAYS_INLINE void accumulate(vec (&acc)[Rows][Vectors], const tile_input& in) {
  for (std::int64_t t = 0; t < in.outer; ++t)
    for (std::int64_t s = 0; s < in.inner; ++s) {
      const float* x = in.x + t * in.x_outer + s * in.x_inner;
      const float* w = in.w + t * in.w_outer + s * in.w_inner;
      const std::int64_t row = in.x_row;
      for (const float* const end = x + in.depth; x != end; ++x, w += kPanel) {
        // Here the compiler knows nothing of x: it keeps one pointer and the rows' distances, where it would otherwise
        // keep a pointer for each row, more than there are registers.
        asm("" : "+r"(x));
        vec b[Vectors];
        if constexpr (Vectors == 4 * kPanelVectors)
          prefetch_to_l2(w + in.ahead);  // narrower tiles have no loads to spare
#pragma GCC unroll 16
        for (int v = 0; v < Vectors; ++v) b[v] = load(w + v / kPanelVectors * in.w_panel + v % kPanelVectors * kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r) {
          const vec a = broadcast(x[r * row]);
#pragma GCC unroll 16
          for (int c = 0; c < Vectors; ++c) acc[r][c] = fma(a, b[c], acc[r][c]);
        }
      }
    }
}

/// What a tile does to its sums while they are in registers.
enum class tile_end {
  none,
  limit,          ///< min(max(sum, least), most); NaN stays NaN
  add_and_limit,  ///< the same of sum + residual
};

/// y[r][c] = the sums, all of the tile's columns. start: `Rows` rows start_row apart (0: one row for all, the bias), or
/// y itself.
template <int Rows, int Vectors, tile_end End = tile_end::none>
[[gnu::noinline]] void tile(const tile_input& in, float* y, std::int64_t y_row, const float* start,
                            std::int64_t start_row) {
  vec acc[Rows][Vectors];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int c = 0; c < Vectors; ++c) acc[r][c] = load(start + r * start_row + c * kLanes);
  accumulate(acc, in);
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 16
    for (int c = 0; c < Vectors; ++c) {
      vec result = acc[r][c];
      if constexpr (End == tile_end::add_and_limit) result += load(in.residual + r * y_row + c * kLanes);
      if constexpr (End != tile_end::none) result = min(broadcast(in.most), max(broadcast(in.least), result));
      store(y + r * y_row + c * kLanes, result);
    }
}

/// y[r][c] += the sums where keep[c] is all ones; where it is 0, y stays as it is, even if the sums are not finite.
template <int Rows, int Vectors>
[[gnu::noinline]] void tile_add(const tile_input& in, float* y, std::int64_t y_row, const float* keep, std::int64_t) {
  vec acc[Rows][Vectors] = {};
  accumulate(acc, in);
#pragma GCC unroll 16
  for (int c = 0; c < Vectors; ++c) {
    const mask m = reinterpret_cast<mask>(load(keep + c * kLanes));
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      float* const to = y + r * y_row + c * kLanes;
      store(to, load(to) + reinterpret_cast<vec>(reinterpret_cast<mask>(acc[r][c]) & m));
    }
  }
}

using tile_function = void (*)(const tile_input&, float*, std::int64_t, const float*, std::int64_t);

/// Panels that one tile covers at most, and rows for so many panels: what the registers hold, with room for a row of
/// weights and a broadcast.
inline constexpr int kTilePanels = kVectorBytes == 64 ? 4 : 1;
inline constexpr int kTileMaximumRows = kVectorBytes == 64 ? 12 : kVectorRegisters == 32 || kVectorBytes == 32 ? 6 : 2;
[[gnu::always_inline]] constexpr int tile_rows(int panels) {
  return kVectorBytes != 64 ? kTileMaximumRows : panels == 4 ? 6 : panels == 3 ? 8 : 12;
}

/// Panels of the next tile when `left` are left: 4 at a time, but no single one behind (5 is 3 + 2).
constexpr int next_panels(std::int64_t left) {
  if (kTilePanels == 1) return 1;
  if (left == 5) return 3;
  return left < 4 ? static_cast<int>(left) : 4;
}

/// `count` rows in tiles of up to `maximum`, as even as possible: 14 is 5 + 5 + 4.
struct row_tiles {
  std::int64_t tiles, rows, longer;  ///< the first `longer` tiles have rows + 1

  GRAVEN_ALWAYS_INLINE row_tiles(std::int64_t maximum, std::int64_t count) {
    if (count <= maximum) {
      tiles = count > 0 ? 1 : 0, rows = count, longer = 0;
    } else {
      tiles = (count + maximum - 1) / maximum, rows = count / tiles, longer = count % tiles;
    }
  }
  GRAVEN_ALWAYS_INLINE int operator[](std::int64_t tile) const {
    return static_cast<int>(rows + (tile < longer ? 1 : 0));
  }
};

/// tile_input::ahead of tile i of `tiles` that share their weights: each asks for a panel of the ones that follow in
/// memory, but for the first if it can be spared, which reads its own.
GRAVEN_ALWAYS_INLINE std::int64_t weights_ahead(std::int64_t i, std::int64_t tiles, int panels, std::int64_t w_panel) {
  const std::int64_t panel = tiles > panels ? i - 1 : i;
  return panel >= 0 && panel < panels ? (panels + panel) * w_panel : 0;
}

/// Piece i of n in the order in which a thread walks up memory: Threads claims pieces from both ends, and the second
/// half is turned around.
GRAVEN_ALWAYS_INLINE std::int64_t upwards(std::int64_t i, std::int64_t n) {
  return i < (n + 1) / 2 ? i : n - 1 - (i - (n + 1) / 2);
}

/// The sizes that the tiles of a call may have, for one number of panels: rows from least to most; none where most is
/// 0.
struct tile_sizes {
  int least, most;
};
GRAVEN_ALWAYS_INLINE tile_sizes any_rows(int panels) { return {1, tile_rows(panels)}; }
/// Those of `count` rows, in tiles of up to `maximum`.
GRAVEN_ALWAYS_INLINE tile_sizes rows_in_tiles(int maximum, std::int64_t count) {
  const row_tiles split(maximum, count);
  if (split.tiles == 0) return {0, 0};
  return {static_cast<int>(split.rows), static_cast<int>(split.rows + (split.longer > 0 ? 1 : 0))};
}
GRAVEN_ALWAYS_INLINE tile_sizes rows_of(int panels, std::int64_t count) {
  return rows_in_tiles(tile_rows(panels), count);
}
/// Those of either.
GRAVEN_ALWAYS_INLINE tile_sizes either(tile_sizes a, tile_sizes b) {
  if (a.most == 0) return b;
  if (b.most == 0) return a;
  return {a.least < b.least ? a.least : b.least, a.most > b.most ? a.most : b.most};
}

/// Which panels the tiles of a matrix of `count` panels have, 4 at a time from a multiple of 4 on.
GRAVEN_ALWAYS_INLINE bool has_tile_of(int panels, std::int64_t count) {
  if (kTilePanels == 1) return panels == 1;
  if (panels == 4) return count >= 4;
  const std::int64_t rest = count % 4;
  return rest == panels || (rest == 1 && count > 1);  // 5 is 3 + 2, or 4 + 1 where a piece ends
}

/// Where a panel is two vectors, the last one may have columns in the first alone: such tiles are one vector wide and
/// have twice the rows.
inline constexpr int kNarrowRows = kPanelVectors == 2 ? 12 : 0;
[[gnu::always_inline]] constexpr bool is_narrow(std::int64_t columns) {
  return kNarrowRows > 0 && columns % kPanel != 0 && columns % kPanel <= kLanes;
}

/// The micro-kernels of one kind that a call may need, by panels and rows. Which they are is chosen by functions that
/// are inlined where the call stands: a config that the compiler knows names few of them, and what nobody names is not
/// compiled.
template <class Function>
struct tile_table {
  const Function* rows[kTilePanels] = {};

  GRAVEN_ALWAYS_INLINE Function operator()(int panels, int row_count) const { return rows[panels - 1][row_count - 1]; }
};

template <class Kind, int Rows, int Panels, bool Needed>
constexpr typename Kind::function tile_or_none() {
  if constexpr (Needed)
    return Kind::template tile<Rows, Panels>();
  else
    return nullptr;
}
template <class Kind, int Panels, int Least, int Most, class Sequence>
struct tile_list;
template <class Kind, int Panels, int Least, int Most, int... Index>
struct tile_list<Kind, Panels, Least, Most, std::integer_sequence<int, Index...>> {
  static constexpr typename Kind::function list[] = {
      tile_or_none<Kind, Index + 1, Panels, (Index + 1 >= Least && Index + 1 <= Most)>()...};
};

template <class Kind, int Panels, int... Index>
GRAVEN_ALWAYS_INLINE const typename Kind::function* choose_tiles(tile_sizes sizes,
                                                                 std::integer_sequence<int, Index...> all) {
  constexpr int kMost = sizeof...(Index);
  const typename Kind::function* found = nullptr;
  if (sizes.most == 0) return found;
  if (sizes.least == sizes.most) {
    ((found = sizes.least == Index + 1 ? tile_list<Kind, Panels, Index + 1, Index + 1, decltype(all)>::list : found),
     ...);
    return found;
  }
  if (sizes.least >= kMost / 2) return tile_list<Kind, Panels, kMost / 2, kMost, decltype(all)>::list;
  return tile_list<Kind, Panels, 1, kMost, decltype(all)>::list;
}
/// From the sizes of the tiles of 1, 2, 3 and 4 panels.
template <class Kind>
GRAVEN_ALWAYS_INLINE tile_table<typename Kind::function> make_tile_table(tile_sizes one, tile_sizes two,
                                                                         tile_sizes three, tile_sizes four) {
  tile_table<typename Kind::function> table;
  table.rows[0] = choose_tiles<Kind, 1>(one, std::make_integer_sequence<int, tile_rows(1)>{});
  if constexpr (kTilePanels == 4) {
    table.rows[1] = choose_tiles<Kind, 2>(two, std::make_integer_sequence<int, tile_rows(2)>{});
    table.rows[2] = choose_tiles<Kind, 3>(three, std::make_integer_sequence<int, tile_rows(3)>{});
    table.rows[3] = choose_tiles<Kind, 4>(four, std::make_integer_sequence<int, tile_rows(4)>{});
  }
  return table;
}

/// All of them, where no config says more.
template <class Kind>
GRAVEN_ALWAYS_INLINE tile_table<typename Kind::function> every_tile() {
  return make_tile_table<Kind>(any_rows(1), any_rows(2), any_rows(3), any_rows(4));
}

/// Kinds of tiles.
template <tile_end End>
struct ending_tiles {
  using function = tile_function;
  template <int Rows, int Panels>
  static constexpr function tile() {
    return &conv2d_detail::tile<Rows, Panels * kPanelVectors, End>;
  }
};
using plain_tiles = ending_tiles<tile_end::none>;
struct adding_tiles {
  using function = tile_function;
  template <int Rows, int Panels>
  static constexpr function tile() {
    return &tile_add<Rows, Panels * kPanelVectors>;
  }
};
template <tile_end End>
struct narrow_tiles {
  using function = tile_function;
  template <int Rows, int>
  static constexpr function tile() {
    return &conv2d_detail::tile<Rows, 1, End>;
  }
};

/// Copies n floats, n at most a few panels.
GRAVEN_ALWAYS_INLINE void copy_row(float* to, const float* from, std::int64_t n) {
  std::int64_t c = 0;
  for (; c + kPanel <= n; c += kPanel)
#pragma GCC unroll 16
    for (int v = 0; v < kPanelVectors; ++v) store(to + c + v * kLanes, load(from + c + v * kLanes));
  copy_head(to + c, from + c, n - c);
}

/// y[i] = Epilogue(y[i][, residual[i]]), i < n.
template <class Epilogue>
GRAVEN_ALWAYS_INLINE void finish_run(float* y, const float* residual, std::int64_t n) {
  // In place: a copy on the stack, written in narrow and read in wide vectors, would wait for each store.
  std::int64_t i = 0;
  for (; i + kPanel <= n; i += kPanel) {
    float* const to = y + i;
    const float* const other = Epilogue::inputs == 2 ? residual + i : nullptr;
    GRAVEN_INDEPENDENT
    for (std::int64_t l = 0; l < kPanel; ++l) to[l] = apply_epilogue<Epilogue>(to[l], other, l);
  }
  for (; i < n; ++i) y[i] = apply_epilogue<Epilogue>(y[i], residual, i);
}

/// The same over `rows` runs of `columns` floats, `stride` apart. A function of its own for each epilogue, and what
/// calls it is compiled once for all.
using finish_function = void (*)(float* y, const float* residual, std::int64_t rows, std::int64_t stride,
                                 std::int64_t columns);
template <class Epilogue>
[[gnu::noinline]] void finish(float* y, const float* residual, std::int64_t rows, std::int64_t stride,
                              std::int64_t columns) {
  if (stride == columns) columns *= rows, rows = 1;
  for (std::int64_t r = 0; r < rows; ++r)
    finish_run<Epilogue>(y + r * stride, Epilogue::inputs == 2 ? residual + r * stride : nullptr, columns);
}

/// What tiles can do of an epilogue in registers: limits, of the result or of the result + residual. All that a functor
/// must be for that is stated by its `limits`.
template <class Epilogue>
constexpr tile_end end_of() {
  if constexpr (requires { Epilogue::limits; })
    return Epilogue::inputs == 2 ? tile_end::add_and_limit : tile_end::limit;
  else
    return tile_end::none;
}

/// An epilogue and its residual; both are nullptr where there is none.
struct epilogue {
  finish_function finish;
  const float* residual;
  tile_end end = tile_end::none;  ///< not none: tiles can do it all in registers, and finish is for what they leave
  float least = 0, most = 0;

  /// For what starts at element `at` of the output.
  GRAVEN_ALWAYS_INLINE void operator()(float* y, std::int64_t at, std::int64_t rows, std::int64_t stride,
                                       std::int64_t columns) const {
    if (finish != nullptr) finish(y + at, residual != nullptr ? residual + at : nullptr, rows, stride, columns);
  }
};
template <class Epilogue>
GRAVEN_ALWAYS_INLINE epilogue make_epilogue(const float* residual) {
  if constexpr (same_type<Epilogue, identity>)
    return {nullptr, nullptr};
  else if constexpr (end_of<Epilogue>() != tile_end::none)
    return {&finish<Epilogue>, Epilogue::inputs == 2 ? residual : nullptr, end_of<Epilogue>(), Epilogue::limits[0],
            Epilogue::limits[1]};
  else
    return {&finish<Epilogue>, Epilogue::inputs == 2 ? residual : nullptr};
}

}  // namespace conv2d_detail
}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
