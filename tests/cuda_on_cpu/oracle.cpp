#include "tests/cuda_on_cpu/oracle.h"

#include "kernels/reference/adafactor.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/batch_norm.h"
#include "kernels/reference/conv2d.h"
#include "kernels/reference/group_norm.h"
#include "kernels/reference/layer_norm.h"
#include "kernels/reference/pool2d.h"
#include "kernels/reference/recurrent.h"

namespace graven::kernels::oracle {

void conv2d(const conv2d_config& c, double* y, const double* x, const double* w, const double* bias) {
  reference::conv2d(c, y, x, w, bias);
}
void conv2d_backward_input(const conv2d_config& c, double* dx, const double* dy, const double* w) {
  reference::conv2d_backward_input(c, dx, dy, w);
}
void conv2d_backward_weight(const conv2d_config& c, double* dw, double* db, const double* dy, const double* x) {
  reference::conv2d_backward_weight(c, dw, db, dy, x);
}
void max_pool2d(const pool2d_config& c, double* y, std::uint8_t* index, const double* x) {
  reference::max_pool2d(c, y, index, x);
}
void max_pool2d_backward(const pool2d_config& c, double* dx, const double* dy, const std::uint8_t* index) {
  reference::max_pool2d_backward(c, dx, dy, index);
}
void avg_pool2d(const pool2d_config& c, double* y, const double* x) { reference::avg_pool2d(c, y, x); }
void avg_pool2d_backward(const pool2d_config& c, double* dx, const double* dy) {
  reference::avg_pool2d_backward(c, dx, dy);
}
void batch_norm(const batch_norm_config& c, double* y, double* mean, double* rstd, double* new_running_mean,
                double* new_running_var, const double* x, const double* gamma, const double* beta,
                const double* running_mean, const double* running_var) {
  reference::batch_norm(c, y, mean, rstd, new_running_mean, new_running_var, x, gamma, beta, running_mean, running_var);
}
void batch_norm_backward(const batch_norm_config& c, double* dx, double* dgamma, double* dbeta, const double* dy,
                         const double* x, const double* gamma, const double* mean, const double* rstd) {
  reference::batch_norm_backward(c, dx, dgamma, dbeta, dy, x, gamma, mean, rstd);
}
void layer_norm(const layer_norm_config& c, double* y, double* mean, double* rstd, const double* x, const double* gamma,
                const double* beta) {
  reference::layer_norm(c, y, mean, rstd, x, gamma, beta);
}
void layer_norm_backward(const layer_norm_config& c, double* dx, double* dgamma, double* dbeta, const double* dy,
                         const double* x, const double* gamma, const double* mean, const double* rstd) {
  reference::layer_norm_backward(c, dx, dgamma, dbeta, dy, x, gamma, mean, rstd);
}
void attention(const attention_config& c, double* y, double* lse, const double* q, const double* k, const double* v,
               const double* mask, const std::int64_t* seed, const std::int64_t* step) {
  reference::attention(c, y, lse, q, k, v, mask, seed, step);
}
void attention_backward(const attention_config& c, double* dq, double* dk, double* dv, const double* dy,
                        const double* q, const double* k, const double* v, const double* mask, const double* y,
                        const double* lse, const std::int64_t* seed, const std::int64_t* step) {
  reference::attention_backward(c, dq, dk, dv, dy, q, k, v, mask, y, lse, seed, step);
}
void rms_norm(const layer_norm_config& c, double* y, double* rstd, const double* x, const double* gamma) {
  reference::rms_norm(c, y, rstd, x, gamma);
}
void rms_norm_backward(const layer_norm_config& c, double* dx, double* dgamma, const double* dy, const double* x,
                       const double* gamma, const double* rstd) {
  reference::rms_norm_backward(c, dx, dgamma, dy, x, gamma, rstd);
}
void group_norm(const group_norm_config& c, double* y, double* mean, double* rstd, const double* x, const double* gamma,
                const double* beta) {
  reference::group_norm(c, y, mean, rstd, x, gamma, beta);
}
void group_norm_backward(const group_norm_config& c, double* dx, double* dgamma, double* dbeta, const double* dy,
                         const double* x, const double* gamma, const double* mean, const double* rstd) {
  reference::group_norm_backward(c, dx, dgamma, dbeta, dy, x, gamma, mean, rstd);
}
void rnn(const recurrent_config& c, double* y, double* h_n, const double* x, const double* w_hh, const double* b_hh,
         const double* h0, const std::int64_t* lengths) {
  reference::rnn(c, y, h_n, x, w_hh, b_hh, h0, lengths);
}
void rnn_backward(const recurrent_config& c, double* dx, double* dh0, double* before, const double* dy,
                  const double* dh_n, const double* y, const double* w_hh, const double* h0,
                  const std::int64_t* lengths) {
  reference::rnn_backward(c, dx, dh0, before, dy, dh_n, y, w_hh, h0, lengths);
}
void lstm(const recurrent_config& c, double* y, double* h_n, double* c_n, double* cells, double* gates, const double* x,
          const double* w_hh, const double* b_hh, const double* h0, const double* c0, const double* w_hr,
          const std::int64_t* lengths) {
  reference::lstm(c, y, h_n, c_n, cells, gates, x, w_hh, b_hh, h0, c0, w_hr, lengths);
}
void lstm_backward(const recurrent_config& c, double* dx, double* dh0, double* dc0, double* before, double* dh,
                   const double* dy, const double* dh_n, const double* dc_n, const double* y, const double* cells,
                   const double* gates, const double* w_hh, const double* h0, const double* c0, const double* w_hr,
                   const std::int64_t* lengths) {
  reference::lstm_backward(c, dx, dh0, dc0, before, dh, dy, dh_n, dc_n, y, cells, gates, w_hh, h0, c0, w_hr, lengths);
}
void gru(const recurrent_config& c, double* y, double* h_n, double* gates, const double* x, const double* w_hh,
         const double* b_hh, const double* h0, const std::int64_t* lengths) {
  reference::gru(c, y, h_n, gates, x, w_hh, b_hh, h0, lengths);
}
void gru_backward(const recurrent_config& c, double* dsums, double* dx, double* dh0, double* before, const double* dy,
                  const double* dh_n, const double* y, const double* gates, const double* w_hh, const double* h0,
                  const std::int64_t* lengths) {
  reference::gru_backward(c, dsums, dx, dh0, before, dy, dh_n, y, gates, w_hh, h0, lengths);
}
void adafactor(const adafactor_config& c, double* const* params, const double* const* grads, double* const* row_vars,
               double* const* col_vars, double* const* variances, const std::int64_t* sizes, double lr,
               std::int64_t step) {
  reference::adafactor(c, 1, params, grads, row_vars, col_vars, variances, sizes, lr, step);
}

}  // namespace graven::kernels::oracle
