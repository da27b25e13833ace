// The reference kernels in double. They stand in a file of their own, for their headers and the CUDA kernels' define
// some names each.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/config/adafactor.h"
#include "kernels/config/attention.h"
#include "kernels/config/batch_norm.h"
#include "kernels/config/conv2d.h"
#include "kernels/config/group_norm.h"
#include "kernels/config/layer_norm.h"
#include "kernels/config/pool2d.h"
#include "kernels/config/recurrent.h"

namespace graven::kernels::oracle {

/// A convolution's weight as [out, taps, in / groups], for a config of `weight_by_channels`.
template <class T>
std::vector<T> by_channels(const conv2d_config& c, const std::vector<T>& w) {
  const std::int64_t in = c.in_channels / c.groups, taps = c.kernel_height * c.kernel_width;
  std::vector<T> turned(w.size());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(w.size()); ++i) {
    const std::int64_t o = i / (in * taps), channel = i / taps % in, tap = i % taps;
    turned[static_cast<std::size_t>((o * taps + tap) * in + channel)] = w[static_cast<std::size_t>(i)];
  }
  return turned;
}

void conv2d(const conv2d_config& c, double* y, const double* x, const double* w, const double* bias);
void conv2d_backward_input(const conv2d_config& c, double* dx, const double* dy, const double* w);
void conv2d_backward_weight(const conv2d_config& c, double* dw, double* db, const double* dy, const double* x);
void max_pool2d(const pool2d_config& c, double* y, std::uint8_t* index, const double* x);
void max_pool2d_backward(const pool2d_config& c, double* dx, const double* dy, const std::uint8_t* index);
void avg_pool2d(const pool2d_config& c, double* y, const double* x);
void avg_pool2d_backward(const pool2d_config& c, double* dx, const double* dy);
void batch_norm(const batch_norm_config& c, double* y, double* mean, double* rstd, double* new_running_mean,
                double* new_running_var, const double* x, const double* gamma, const double* beta,
                const double* running_mean, const double* running_var);
void batch_norm_backward(const batch_norm_config& c, double* dx, double* dgamma, double* dbeta, const double* dy,
                         const double* x, const double* gamma, const double* mean, const double* rstd);
void layer_norm(const layer_norm_config& c, double* y, double* mean, double* rstd, const double* x, const double* gamma,
                const double* beta);
void layer_norm_backward(const layer_norm_config& c, double* dx, double* dgamma, double* dbeta, const double* dy,
                         const double* x, const double* gamma, const double* mean, const double* rstd);
void rms_norm(const layer_norm_config& c, double* y, double* rstd, const double* x, const double* gamma);
void rms_norm_backward(const layer_norm_config& c, double* dx, double* dgamma, const double* dy, const double* x,
                       const double* gamma, const double* rstd);
void group_norm(const group_norm_config& c, double* y, double* mean, double* rstd, const double* x, const double* gamma,
                const double* beta);
void group_norm_backward(const group_norm_config& c, double* dx, double* dgamma, double* dbeta, const double* dy,
                         const double* x, const double* gamma, const double* mean, const double* rstd);
void rnn(const recurrent_config& c, double* y, double* h_n, const double* x, const double* w_hh, const double* b_hh,
         const double* h0, const std::int64_t* lengths);
void rnn_backward(const recurrent_config& c, double* dx, double* dh0, double* before, const double* dy,
                  const double* dh_n, const double* y, const double* w_hh, const double* h0,
                  const std::int64_t* lengths);
void lstm(const recurrent_config& c, double* y, double* h_n, double* c_n, double* cells, double* gates, const double* x,
          const double* w_hh, const double* b_hh, const double* h0, const double* c0, const double* w_hr,
          const std::int64_t* lengths);
void lstm_backward(const recurrent_config& c, double* dx, double* dh0, double* dc0, double* before, double* dh,
                   const double* dy, const double* dh_n, const double* dc_n, const double* y, const double* cells,
                   const double* gates, const double* w_hh, const double* h0, const double* c0, const double* w_hr,
                   const std::int64_t* lengths);
void gru(const recurrent_config& c, double* y, double* h_n, double* gates, const double* x, const double* w_hh,
         const double* b_hh, const double* h0, const std::int64_t* lengths);
void gru_backward(const recurrent_config& c, double* dsums, double* dx, double* dh0, double* before, const double* dy,
                  const double* dh_n, const double* y, const double* gates, const double* w_hh, const double* h0,
                  const std::int64_t* lengths);
void attention(const attention_config& c, double* y, double* lse, const double* q, const double* k, const double* v,
               const double* mask, const std::int64_t* seed, const std::int64_t* step);
void attention_backward(const attention_config& c, double* dq, double* dk, double* dv, const double* dy,
                        const double* q, const double* k, const double* v, const double* mask, const double* y,
                        const double* lse, const std::int64_t* seed, const std::int64_t* step);
/// A step of one parameter: row_vars and col_vars, or variances, are {nullptr}.
void adafactor(const adafactor_config& c, double* const* params, const double* const* grads, double* const* row_vars,
               double* const* col_vars, double* const* variances, const std::int64_t* sizes, double lr,
               std::int64_t step);

}  // namespace graven::kernels::oracle
