// sync_batch_norm of one rank: batch_norm.
//
//   reference::sync_batch_norm(config, y, mean, rstd, new_running_mean, new_running_var, x, gamma, beta, running_mean,
//                              running_var);
#pragma once

#include "../config/sync_batch_norm.h"
#include "batch_norm.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

template <class T>
void sync_batch_norm(const sync_batch_norm_config& config, T* y, plain_t<T>* mean, plain_t<T>* rstd,
                     plain_t<T>* new_running_mean, plain_t<T>* new_running_var, const plain_t<T>* x,
                     const plain_t<T>* gamma, const plain_t<T>* beta, const plain_t<T>* running_mean,
                     const plain_t<T>* running_var) {
  batch_norm(config.of_rank(), y, mean, rstd, new_running_mean, new_running_var, x, gamma, beta, running_mean,
             running_var);
}

template <class T>
void sync_batch_norm_backward(const sync_batch_norm_config& config, T* dx, plain_t<T>* dgamma, plain_t<T>* dbeta,
                              const plain_t<T>* dy, const plain_t<T>* x, const plain_t<T>* gamma,
                              const plain_t<T>* mean, const plain_t<T>* rstd) {
  batch_norm_backward(config.of_rank(), dx, dgamma, dbeta, dy, x, gamma, mean, rstd);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
