// inverted_residual, plain loops: its three convolutions one after the other. Weights are PyTorch's, not packed.
//
//   reference::inverted_residual(config, y, x, expand_weight, expand_bias, depthwise_weight, depthwise_bias,
//                                project_weight, project_bias);
#pragma once

#include <cstddef>
#include <vector>

#include "../config/inverted_residual.h"
#include "../cpu/functor.h"
#include "../cpu/level.h"
#include "conv2d.h"

namespace graven::kernels::reference {
inline namespace GRAVEN_LEVEL_NAMESPACE {

/// Formula: config/inverted_residual.h. residual has y's shape.
template <class ExpandEpilogue = identity, class DepthwiseEpilogue = identity, class Epilogue = identity, class T>
void inverted_residual(const inverted_residual_config& config, T* y, const plain_t<T>* x,
                       const plain_t<T>* expand_weight, const plain_t<T>* expand_bias,
                       const plain_t<T>* depthwise_weight, const plain_t<T>* depthwise_bias,
                       const plain_t<T>* project_weight, const plain_t<T>* project_bias,
                       const plain_t<T>* residual = nullptr) {
  const inverted_residual_config& s = config;
  std::vector<T> wide(static_cast<std::size_t>(s.batch * s.in_height * s.in_width * s.wide_channels));
  std::vector<T> deep(static_cast<std::size_t>(s.batch * s.out_height * s.out_width * s.wide_channels));
  conv2d<ExpandEpilogue>(inverted_residual_expand(s), wide.data(), x, expand_weight, expand_bias);
  conv2d<DepthwiseEpilogue>(inverted_residual_depthwise(s), deep.data(), wide.data(), depthwise_weight, depthwise_bias);
  conv2d<Epilogue>(inverted_residual_project(s), y, deep.data(), project_weight, project_bias, residual);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels::reference
