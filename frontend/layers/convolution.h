// Padding modes of the convolution layers: what is not zeros is put around the input before the convolution.
#pragma once

#include <string>
#include <vector>

#include "graven/tensor.h"

namespace graven::nn::convolution {

/// User error unless zeros, reflect, replicate or circular.
void require_padding_mode(const char* layer, const std::string& mode);
/// x with its border around it, `padding` on both sides of each dimension, or as much as keeps the size ("same").
Tensor bordered(const Tensor& x, const Tensor& weight, bool same, const std::vector<std::int64_t>& padding,
                const std::vector<std::int64_t>& stride, const std::vector<std::int64_t>& dilation,
                const std::string& mode, Location where);

}  // namespace graven::nn::convolution
