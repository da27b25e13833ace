// Pooling of signals [batch, channels, l], images [batch, channels, h, w] and volumes [batch, channels, d, h, w], with
// or without the batch. Pooling is done one or two dimensions at a time, so that all use the kernels of images.
//
//   Tensor y = adaptive_max_pool2d(images, {7, 7});
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>

#include "graven/functional/sizes.h"

namespace graven {

struct MaxPool2dOptions {
  std::optional<Size2> stride = {};  ///< none: the kernel's size
  Size2 padding = 0, dilation = 1;
  bool ceil_mode = false;
};
Tensor max_pool2d(const Operand& x, Size2 kernel_size, const MaxPool2dOptions& options = {});
struct AvgPool2dOptions {
  std::optional<Size2> stride = {};  ///< none: the kernel's size
  Size2 padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<std::int64_t> divisor_override = {};  ///< what sums are divided by, instead of the window's size
};
Tensor avg_pool2d(const Operand& x, Size2 kernel_size, const AvgPool2dOptions& options = {});
/// The mean over windows that divide the image as evenly as it goes: over each channel's image when output_size is 1.
Tensor adaptive_avg_pool2d(const Operand& x, Size2 output_size);

struct MaxPool1dOptions {
  std::optional<std::int64_t> stride = {};  ///< none: the kernel's size
  std::int64_t padding = 0, dilation = 1;
  bool ceil_mode = false;
};
Tensor max_pool1d(const Operand& x, std::int64_t kernel_size, const MaxPool1dOptions& options = {});
struct MaxPool3dOptions {
  std::optional<Size3> stride = {};  ///< none: the kernel's size
  Size3 padding = 0, dilation = 1;
  bool ceil_mode = false;
};
Tensor max_pool3d(const Operand& x, Size3 kernel_size, const MaxPool3dOptions& options = {});

struct AvgPool1dOptions {
  std::optional<std::int64_t> stride = {};  ///< none: the kernel's size
  std::int64_t padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
};
Tensor avg_pool1d(const Operand& x, std::int64_t kernel_size, const AvgPool1dOptions& options = {});
struct AvgPool3dOptions {
  std::optional<Size3> stride = {};  ///< none: the kernel's size
  Size3 padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<std::int64_t> divisor_override = {};  ///< what sums are divided by, instead of the window's size
};
Tensor avg_pool3d(const Operand& x, Size3 kernel_size, const AvgPool3dOptions& options = {});

/// Windows from floor(i in / out) to ceil((i + 1) in / out).
Tensor adaptive_avg_pool1d(const Operand& x, std::int64_t output_size);
Tensor adaptive_avg_pool3d(const Operand& x, Size3 output_size);
Tensor adaptive_max_pool1d(const Operand& x, std::int64_t output_size);
Tensor adaptive_max_pool2d(const Operand& x, Size2 output_size);
Tensor adaptive_max_pool3d(const Operand& x, Size3 output_size);

/// max_pool2d, and for each result the position of its element in the plane, row * w + column, i64.
std::tuple<Tensor, Tensor> max_pool2d_with_indices(const Operand& x, Size2 kernel_size,
                                                   const MaxPool2dOptions& options = {});
struct MaxUnpool2dOptions {
  std::optional<Size2> stride = {};  ///< none: the kernel's size
  Size2 padding = 0;
  std::optional<Size2> output_size = {};  ///< none: (in - 1) stride - 2 padding + kernel
};
/// Zeros, with x at the positions that max_pool2d_with_indices gave. A position outside of the result is an error when
/// it runs.
Tensor max_unpool2d(const Operand& x, const Tensor& indices, Size2 kernel_size, const MaxUnpool2dOptions& options = {});

/// (sum of x^norm_type over the window)^(1 / norm_type)
Tensor lp_pool1d(const Operand& x, double norm_type, std::int64_t kernel_size, std::optional<std::int64_t> stride = {},
                 bool ceil_mode = false);
Tensor lp_pool2d(const Operand& x, double norm_type, Size2 kernel_size, std::optional<Size2> stride = {},
                 bool ceil_mode = false);

}  // namespace graven
