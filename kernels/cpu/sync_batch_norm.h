// sync_batch_norm: batch_norm over the batches of all ranks, and its gradient. Formulas: config/sync_batch_norm.h.
//
//   sync_batch_norm(threads, bn, y, mean, rstd, new_running_mean, new_running_var, x, gamma, beta, running_mean,
//                   running_var, workspace);
//   sync_batch_norm_backward(threads, bn, dx, dgamma, dbeta, dy, x, gamma, mean, rstd, workspace);
//
// Each rank finds the moments of its own batch as batch_norm does, all hand theirs to all, once a call, and each merges
// them in the order of the ranks: all have the same bits. So one rank has those of batch_norm. Every rank takes part,
// one without samples as well. Of f32 with batch_norm's loops, of other types plain ones in double.
//
// Workspace: sync_batch_norm_workspace_bytes(config).
#pragma once

#include <cstdint>

#include "../config/sync_batch_norm.h"
#include "batch_norm.h"
#include "check_value.h"
#include "collectives.h"
#include "functor.h"
#include "level.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace batch_norm_detail {

/// A rank's count, and two numbers for each channel; then those of all ranks; then scratch.
struct sync_memory {
  std::int64_t channels;
  double *own, *all;
  float *factors, *parts;

  sync_memory(const batch_norm_config& config, void* workspace)
      : channels(config.channels),
        own(static_cast<double*>(workspace)),
        all(own + 1 + 2 * channels),
        factors(reinterpret_cast<float*>(all + 1 + 2 * channels)),
        parts(factors + 4 * channels) {
    own[0] = static_cast<double>(config.outer * config.inner);
  }
  void keep(std::int64_t c, double first, double second) const { own[1 + c] = first, own[1 + channels + c] = second; }
  double count() const { return all[0]; }
  double first(std::int64_t c) const { return all[1 + c]; }
  double second(std::int64_t c) const { return all[1 + channels + c]; }
  moments moments_of(std::int64_t c) const {
    moments m;
    m.count = count(), m.mean = first(c), m.squares = second(c);
    return m;
  }

  /// join(all, theirs, channels) with the numbers of each rank, in their order, into what was 0.
  using Join = void (*)(double* all, const double* theirs, std::int64_t channels);
  void exchange(Collectives* ranks, Join join) {
    if (ranks == nullptr || ranks->size() == 1) {
      all = own;
      return;
    }
    for (std::int64_t i = 0; i < 1 + 2 * channels; ++i) all[i] = 0;
    struct context {
      double* all;
      std::int64_t channels;
      Join join;
    } with{all, channels, join};
    ranks->visit(
        own, 1 + 2 * channels,
        [](void* to, const double* theirs) {
          const context& c = *static_cast<const context*>(to);
          c.join(c.all, theirs, c.channels);
        },
        &with);
  }
};

inline void join_moments(double* all, const double* theirs, std::int64_t channels) {
  for (std::int64_t c = 0; c < channels; ++c) {
    moments both, other;
    both.count = all[0], both.mean = all[1 + c], both.squares = all[1 + channels + c];
    other.count = theirs[0], other.mean = theirs[1 + c], other.squares = theirs[1 + channels + c];
    both.merge(other);
    all[1 + c] = both.mean, all[1 + channels + c] = both.squares;
  }
  all[0] += theirs[0];
}

inline void join_sums(double* all, const double* theirs, std::int64_t channels) {
  for (std::int64_t i = 0; i < 1 + 2 * channels; ++i) all[i] += theirs[i];
}

/// f(position) for each element of channel c.
template <class F>
GRAVEN_ALWAYS_INLINE void each_of_channel(const batch_norm_config& config, std::int64_t c, const F& f) {
  for (std::int64_t o = 0; o < config.outer; ++o)
    for (std::int64_t i = 0; i < config.inner; ++i) f((o * config.channels + c) * config.inner + i);
}

}  // namespace batch_norm_detail

/// Of 1 value a channel, over all ranks, there is no variance: a value_error.
template <class T>
inline void sync_batch_norm(Threads& threads, const sync_batch_norm_config& of, T* y, plain_t<T>* mean,
                            plain_t<T>* rstd, plain_t<T>* new_running_mean, plain_t<T>* new_running_var,
                            const plain_t<T>* x, const plain_t<T>* gamma, const plain_t<T>* beta,
                            const plain_t<T>* running_mean, const plain_t<T>* running_var, void* workspace) {
  using namespace batch_norm_detail;
  const batch_norm_config config = of.of_rank();
  const std::int64_t channels = config.channels;
  if (channels * config.inner == 0) return;
  constexpr bool is_fast = same_type<T, float>;
  const bool is_rows = is_fast && config.inner == 1;
  sync_memory memory(config, workspace);
  if constexpr (is_fast) {
    if (is_rows) of_pieces(threads, config, x, memory.parts);
    threads.run(is_rows ? 1 : channels, [&](std::int64_t piece) {
      for (std::int64_t c = piece; c < (is_rows ? channels : piece + 1); ++c) {
        const moments m = is_rows ? of_parts(config, memory.parts, c) : of_channel(config, x, c);
        memory.keep(c, m.mean, m.squares);
      }
    });
  } else {
    threads.run(channels, [&](std::int64_t c) {
      double sum = 0, squares = 0;
      each_of_channel(config, c, [&](std::int64_t at) { sum += static_cast<double>(x[at]); });
      const double m = config.outer > 0 ? sum / memory.own[0] : 0;
      each_of_channel(config, c, [&](std::int64_t at) {
        const double d = static_cast<double>(x[at]) - m;
        squares += d * d;
      });
      memory.keep(c, m, squares);
    });
  }
  memory.exchange(threads.collectives(), join_moments);
  check_has_variance("sync_batch_norm", static_cast<std::int64_t>(memory.count()));
  if (memory.count() == 0) return;
  const statistics<T> out{mean, rstd, new_running_mean, new_running_var, gamma, beta, running_mean, running_var};
  if constexpr (is_fast) {
    if (is_rows) {
      float *const scale = memory.factors, *const shift = scale + channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        const factors f = out.finish(config, c, memory.moments_of(c));
        scale[c] = f.scale, shift[c] = f.shift;
      }
      normalise_rows(threads, config, y, x, scale, shift);
    } else {
      threads.run(channels, [&](std::int64_t c) {
        normalise_channel(config, y, x, c, out.finish(config, c, memory.moments_of(c)));
      });
    }
  } else {
    threads.run(channels, [&](std::int64_t c) {
      const double m = memory.first(c), scale = out.store(config, c, memory.moments_of(c)) * out.gamma_of(c);
      const double shift = out.beta_of(c);
      each_of_channel(config, c, [&](std::int64_t at) {
        y[at] = static_cast<T>((static_cast<double>(x[at]) - m) * scale + shift);
      });
    });
  }
}

template <class T>
inline void sync_batch_norm_backward(Threads& threads, const sync_batch_norm_config& of, T* dx, plain_t<T>* dgamma,
                                     plain_t<T>* dbeta, const plain_t<T>* dy, const plain_t<T>* x,
                                     const plain_t<T>* gamma, const plain_t<T>* mean, const plain_t<T>* rstd,
                                     void* workspace) {
  using namespace batch_norm_detail;
  const batch_norm_config config = of.of_rank();
  const std::int64_t channels = config.channels;
  if (channels * config.inner == 0) return;
  constexpr bool is_fast = same_type<T, float>;
  const bool is_rows = is_fast && config.inner == 1;
  sync_memory memory(config, workspace);
  if constexpr (is_fast) {
    if (is_rows) sums_of_pieces(threads, config, dy, x, mean, memory.parts);
    threads.run(is_rows ? 1 : channels, [&](std::int64_t piece) {
      for (std::int64_t c = piece; c < (is_rows ? channels : piece + 1); ++c) {
        const gradient_sums s =
            is_rows ? sums_of_parts(config, memory.parts, c) : sums_of_channel(config, dy, x, mean[c], c);
        memory.keep(c, s.dy, s.products);
      }
    });
  } else {
    threads.run(channels, [&](std::int64_t c) {
      const double m = static_cast<double>(mean[c]), r = static_cast<double>(rstd[c]);
      gradient_sums s;
      each_of_channel(config, c, [&](std::int64_t at) {
        s.dy += static_cast<double>(dy[at]);
        s.products += static_cast<double>(dy[at]) * (static_cast<double>(x[at]) - m) * r;
      });
      memory.keep(c, s.dy, s.products);
    });
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    const double products = memory.own[1 + channels + c];
    if (dgamma != nullptr) dgamma[c] = static_cast<T>(is_fast ? products * static_cast<double>(rstd[c]) : products);
    if (dbeta != nullptr) dbeta[c] = static_cast<T>(memory.own[1 + c]);
  }
  memory.exchange(threads.collectives(), join_sums);
  const double count = memory.count();
  if (count == 0) return;
  const auto gamma_of = [&](std::int64_t c) { return gamma != nullptr ? static_cast<double>(gamma[c]) : 1.0; };
  if constexpr (is_fast) {
    const auto line_of_channel = [&](std::int64_t c) {
      gradient_sums s;
      s.dy = memory.first(c), s.products = memory.second(c);
      return line_of(static_cast<double>(rstd[c]), gamma_of(c), count, s);
    };
    if (is_rows) {
      float *const a = memory.factors, *const b = a + channels, *const last = b + channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        const line f = line_of_channel(c);
        a[c] = f.a, b[c] = f.b, last[c] = f.c;
      }
      gradient_of_rows(threads, config, dx, dy, x, mean, a, b, last);
    } else {
      threads.run(channels,
                  [&](std::int64_t c) { gradient_of_channel(config, dx, dy, x, mean[c], c, line_of_channel(c)); });
    }
  } else {
    threads.run(channels, [&](std::int64_t c) {
      const double m = static_cast<double>(mean[c]), r = static_cast<double>(rstd[c]), scale = r * gamma_of(c);
      const double sum = memory.first(c), products = memory.second(c);
      each_of_channel(config, c, [&](std::int64_t at) {
        const double normalised = (static_cast<double>(x[at]) - m) * r;
        dx[at] = static_cast<T>(scale * (static_cast<double>(dy[at]) - sum / count - normalised * products / count));
      });
    });
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
