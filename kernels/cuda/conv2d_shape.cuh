// What the kernels of convolutions share: blocks of threads that belong to an image each, so that places within an
// image are 32-bit numbers, which a device divides faster.
#pragma once

#include "../config/conv2d.h"
#include "context.cuh"

#ifndef __CUDACC_RTC__
namespace graven::kernels {

/// A thread for each of `items` of an image (blockIdx.x), images along blockIdx.y; kernels stride over both.
inline LaunchShape conv2d_shape(std::int64_t items, std::int64_t images) {
  LaunchShape shape = launch_shape(items);
  shape.blocks.y = static_cast<unsigned>(images < 65535 ? images : 65535);
  shape.empty = items == 0 || images == 0;
  return shape;
}

/// Before anything is started: places within an image, and pixels of all, are below 2^31.
inline void conv2d_check_sizes(const conv2d_config& s) {
  constexpr std::int64_t limit = (std::int64_t{1} << 31) - (std::int64_t{1} << 20);  // and of threads beyond the last
  if (s.in_height * s.in_width * s.in_channels >= limit || s.out_height * s.out_width * s.out_channels >= limit ||
      s.batch * s.out_height * s.out_width >= limit || s.in_channels * s.kernel_height * s.kernel_width >= limit / 128)
    throw CudaError("conv2d: expected images of less than 2^31 elements, and less than 2^31 pixels in all");
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
