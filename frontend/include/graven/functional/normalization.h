// Normalisation: PyTorch's functions, defaults and numbers.
//
//   Tensor y = layer_norm(x, {768}, weight, bias);
//   Tensor z = group_norm(images, 4, weight, bias);
#pragma once

#include <optional>

#include "graven/tensor.h"

namespace graven {

/// Normalises over every dimension but 1. When training, statistics of the batch are used and the running ones, where
/// given, are updated in place: running = (1 - momentum) running + momentum statistic (the variance unbiased).
Tensor batch_norm(const Operand& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = {},
                  const Tensor& bias = {}, bool training = false, double momentum = 0.1, double eps = 1e-5);
/// (x - mean) / sqrt(var + eps) * weight + bias over the last dimensions, which have the shape `normalized_shape`, as
/// weight and bias do.
Tensor layer_norm(const Operand& x, const Sizes& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
/// x / sqrt(mean of x^2 + eps) * weight over the last dimensions; eps: the dtype's epsilon where none is given.
Tensor rms_norm(const Operand& x, const Sizes& normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});
/// Of x[batch, channels, ...]: over each group of channels of each sample; weight and bias have a number a channel.
Tensor group_norm(const Operand& x, std::int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
/// Of x[batch, channels, ...]: over each channel of each sample. With use_input_stats the running statistics, where
/// given, are updated in place with the samples' mean; without it they are what is used.
Tensor instance_norm(const Operand& x, const Tensor& running_mean = {}, const Tensor& running_var = {},
                     const Tensor& weight = {}, const Tensor& bias = {}, bool use_input_stats = true,
                     double momentum = 0.1, double eps = 1e-5);
/// x / (k + alpha / size * the sum of x^2 over `size` neighbouring channels)^beta, of x[batch, channels, ...]
/// (Krizhevsky et al. 2012).
Tensor local_response_norm(const Operand& x, std::int64_t size, double alpha = 1e-4, double beta = 0.75, double k = 1);

}  // namespace graven
