// convert_layout: what a rank has of a tensor becomes what it has in another layout (kernels/config/convert_layout.h).
//
//   convert_layout(threads, {.n = 8 * 64 * 768, .ranks = 2, .from = -1, .to = 0}, y, x, workspace);   // adds up
//
// The workspace has room for 2 * (n + ranks) elements, where a rank has not all of x. Terms are added up in the order
// of the ranks, those of half types in f32: all ranks have the same bits.
#pragma once

#include <cstdint>
#include <cstring>

#include "../config/convert_layout.h"
#include "../config/team.h"
#include "functor.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {

namespace detail {

/// Calls body(whole, own, count) for each row of elements that the rank has: where it lies in the whole tensor, and
/// among those of the rank.
template <class Body>
inline void each_run(std::int64_t n, std::int64_t ranks, std::int64_t run, std::int64_t rank, const Body& body) {
  std::int64_t own = 0;
  for (std::int64_t at = rank * run; at < n; at += ranks * run, own += run) body(at, own, run);
}

/// What two ranks have in common of a tensor that the one has in runs of `a`, the other in runs of `b`.
template <class Body>
inline void each_common(std::int64_t n, std::int64_t ranks, std::int64_t a, std::int64_t rank_a, std::int64_t b,
                        std::int64_t rank_b, const Body& body) {
  each_run(n, ranks, a, rank_a, [&](std::int64_t at, std::int64_t own, std::int64_t count) {
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t left_of_b = b - (at + i) % b, step = left_of_b < count - i ? left_of_b : count - i;
      const std::int64_t whole = at + i;
      if (whole / b % ranks == rank_b) body(own + i, whole / (ranks * b) * b + whole % b, step);
      i += step;
    }
  });
}

/// y[i] = the sum of rows[r * stride + i] over the ranks, in their order.
template <class T>
inline void add_rows(Threads& threads, std::int64_t ranks, std::int64_t stride, std::int64_t n, T* y, const T* rows) {
  using C = compute_t<T>;
  constexpr std::int64_t kPiece = 16384;
  threads.run((n + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    const std::int64_t last = (piece + 1) * kPiece < n ? (piece + 1) * kPiece : n;
    for (std::int64_t i = piece * kPiece; i < last; ++i) {
      C sum = static_cast<C>(rows[i]);
      for (std::int64_t r = 1; r < ranks; ++r) sum += static_cast<C>(rows[r * stride + i]);
      y[i] = static_cast<T>(sum);
    }
  });
}

template <class T>
inline void copy_elements(T* to, const T* from, std::int64_t count) {
  std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(count) * sizeof(T));
}
template <class T>
inline void zero_elements(T* to, std::int64_t count) {
  std::memset(static_cast<void*>(to), 0, static_cast<std::size_t>(count) * sizeof(T));
}

/// A term for each rank, of which each adds up its part.
template <class T>
inline void add_up(Threads& threads, const convert_layout_config& c, Team* team, T* y, const T* x, T* rows, T* other) {
  const std::int64_t ranks = c.ranks, bytes = static_cast<std::int64_t>(sizeof(T));
  if (c.to > 0) {
    const std::int64_t part = c.n / ranks;
    for (std::int64_t r = 0; r < ranks; ++r)
      each_run(c.n, ranks, c.to, r, [&](std::int64_t at, std::int64_t own, std::int64_t count) {
        copy_elements(rows + r * part + own, x + at, count);
      });
    team->exchange(rows, other, part * bytes);
    add_rows(threads, ranks, part, part, y, other);
    return;
  }
  // Each rank adds up a row of the elements, and all ranks have all of them.
  const std::int64_t width = (c.n + ranks - 1) / ranks;
  copy_elements(rows, x, c.n);
  zero_elements(rows + c.n, ranks * width - c.n);
  team->exchange(rows, other, width * bytes);
  add_rows(threads, ranks, width, width, rows, other);
  team->gather(rows, other, width * bytes);
  copy_elements(y, other, c.n);
}

}  // namespace detail

template <class T>
inline void convert_layout(Threads& threads, const convert_layout_config& c, T* y, const plain_t<T>* x,
                           void* workspace = nullptr) {
  using namespace detail;
  Team* const team = threads.team();
  const std::int64_t ranks = c.ranks, rank = team != nullptr ? team->rank() : 0, part = c.n / ranks;
  const bool alone = team == nullptr || ranks == 1;
  T* const rows = static_cast<T*>(workspace);
  // Where nothing is sent, there is no workspace.
  T* const other = rows != nullptr ? rows + c.n + ranks : nullptr;
  if (c.n == 0) return;
  if (c.from == c.to) {
    copy_elements(y, x, c.from > 0 ? part : c.n);
  } else if (c.from == 0 && c.to < 0) {
    // One of them has it.
    rank == 0 ? copy_elements(y, x, c.n) : zero_elements(y, c.n);
  } else if (c.from == 0 || (alone && c.from < 0)) {
    if (c.to == 0)
      copy_elements(y, x, c.n);
    else
      each_run(c.n, ranks, c.to, rank,
               [&](std::int64_t at, std::int64_t own, std::int64_t count) { copy_elements(y + own, x + at, count); });
  } else if (c.from < 0) {
    add_up(threads, c, team, y, x, rows, other);
  } else if (c.to <= 0) {
    // Its own part, among those of the others or among zeros.
    if (alone || c.to < 0) {
      zero_elements(y, c.n);
      each_run(c.n, ranks, c.from, rank,
               [&](std::int64_t at, std::int64_t own, std::int64_t count) { copy_elements(y + at, x + own, count); });
      return;
    }
    team->gather(x, rows, part * static_cast<std::int64_t>(sizeof(T)));
    for (std::int64_t r = 0; r < ranks; ++r)
      each_run(c.n, ranks, c.from, r, [&](std::int64_t at, std::int64_t own, std::int64_t count) {
        copy_elements(y + at, rows + r * part + own, count);
      });
  } else {
    // A row for each rank: what it is to have, in the order of the whole tensor. Rows are as long as the longest.
    if (alone) {
      zero_elements(y, part);
      each_common(c.n, ranks, c.from, 0, c.to, 0, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
        copy_elements(y + to, x + from, count);
      });
      return;
    }
    std::int64_t width = 0;
    for (std::int64_t a = 0; a < ranks; ++a)
      for (std::int64_t b = 0; b < ranks; ++b) {
        std::int64_t sum = 0;
        each_common(c.n, ranks, c.from, a, c.to, b, [&](std::int64_t, std::int64_t, std::int64_t n) { sum += n; });
        width = sum > width ? sum : width;
      }
    // Where ranks have all of one another's, rows do not fit into the workspace: each asks for what it is to have.
    if (width * ranks > c.n + ranks) {
      team->gather(x, rows, part * static_cast<std::int64_t>(sizeof(T)));
      for (std::int64_t r = 0; r < ranks; ++r)
        each_common(c.n, ranks, c.from, r, c.to, rank, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
          copy_elements(y + to, rows + r * part + from, count);
        });
      return;
    }
    for (std::int64_t r = 0; r < ranks; ++r) {
      std::int64_t filled = 0;
      each_common(c.n, ranks, c.from, rank, c.to, r, [&](std::int64_t from, std::int64_t, std::int64_t count) {
        copy_elements(rows + r * width + filled, x + from, count);
        filled += count;
      });
      zero_elements(rows + r * width + filled, width - filled);
    }
    team->exchange(rows, other, width * static_cast<std::int64_t>(sizeof(T)));
    for (std::int64_t r = 0; r < ranks; ++r) {
      std::int64_t taken = 0;
      each_common(c.n, ranks, c.from, r, c.to, rank, [&](std::int64_t, std::int64_t to, std::int64_t count) {
        copy_elements(y + to, other + r * width + taken, count);
        taken += count;
      });
    }
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
