// Functions on tensors. Each takes its first tensor as an Operand, which knows the line that called it.
//
//   Tensor y = relu(linear(x, weight, bias));
//   Tensor loss = cross_entropy(logits, labels);
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "graven/tensor.h"

namespace graven {

/// A number for both dimensions, or {height, width}.
struct Size2 {
  std::int64_t height, width;
  constexpr Size2(std::int64_t both) : height(both), width(both) {}  // NOLINT: Conv2d(1, 6, 5)
  constexpr Size2(int both) : height(both), width(both) {}           // NOLINT
  constexpr Size2(std::int64_t height, std::int64_t width) : height(height), width(width) {}
  friend constexpr bool operator==(const Size2&, const Size2&) = default;
};

/// A number for all three dimensions, or {depth, height, width}.
struct Size3 {
  std::int64_t depth, height, width;
  constexpr Size3(std::int64_t all) : depth(all), height(all), width(all) {}  // NOLINT
  constexpr Size3(int all) : depth(all), height(all), width(all) {}           // NOLINT
  constexpr Size3(std::int64_t depth, std::int64_t height, std::int64_t width)
      : depth(depth), height(height), width(width) {}
  friend constexpr bool operator==(const Size3&, const Size3&) = default;
};

/// Padding of a convolution: a number for each dimension, "valid" (none) or "same" (the result has the input's size;
/// for a stride of 1).
template <class Size>
struct ConvolutionPadding {
  Size value = 0;
  bool same = false;
  ConvolutionPadding(Size size) : value(size) {}  // NOLINT: {.padding = 1}
  ConvolutionPadding(int all) : value(all) {}     // NOLINT
  ConvolutionPadding(std::int64_t all)            // NOLINT
    requires(!std::is_same_v<Size, std::int64_t>)
      : value(all) {}
  template <class... Each>
    requires(sizeof...(Each) > 1)
  ConvolutionPadding(Each... each) : value(each...) {}           // NOLINT: {.padding = {1, 2}}
  ConvolutionPadding(const char* name) : same(is_same(name)) {}  // NOLINT: {.padding = "same"}

 private:
  static bool is_same(std::string_view name) {
    if (name != "same" && name != "valid")
      throw UserError("padding must be numbers, 'same' or 'valid', got '" + std::string(name) + "'");
    return name == "same";
  }
};
using Padding1 = ConvolutionPadding<std::int64_t>;
using Padding2 = ConvolutionPadding<Size2>;
using Padding3 = ConvolutionPadding<Size3>;

// ---- elementwise ----
Tensor add(const Operand& a, const Operand& b, double alpha = 1);
Tensor sub(const Operand& a, const Operand& b, double alpha = 1);
Tensor mul(const Operand& a, const Operand& b);
/// True division: integers give f32.
Tensor div(const Operand& a, const Operand& b);
/// Of integers exactly, wrapping around; a negative number as their exponent is an error.
Tensor pow(const Operand& base, const Operand& exponent);
Tensor maximum(const Operand& a, const Operand& b);
Tensor minimum(const Operand& a, const Operand& b);
Tensor eq(const Operand& a, const Operand& b);
Tensor ne(const Operand& a, const Operand& b);
Tensor lt(const Operand& a, const Operand& b);
Tensor le(const Operand& a, const Operand& b);
Tensor gt(const Operand& a, const Operand& b);
Tensor ge(const Operand& a, const Operand& b);
Tensor logical_and(const Operand& a, const Operand& b);
Tensor logical_or(const Operand& a, const Operand& b);
Tensor logical_not(const Operand& x);
/// x where the condition, which is bool, holds; y elsewhere.
Tensor where(const Operand& condition, const Operand& x, const Operand& y);

Tensor neg(const Operand& x);
Tensor abs(const Operand& x);
Tensor sign(const Operand& x);
Tensor exp(const Operand& x);
Tensor expm1(const Operand& x);
Tensor log(const Operand& x);
Tensor log1p(const Operand& x);
Tensor sqrt(const Operand& x);
Tensor rsqrt(const Operand& x);
Tensor square(const Operand& x);
Tensor reciprocal(const Operand& x);
Tensor sin(const Operand& x);
Tensor cos(const Operand& x);
Tensor erf(const Operand& x);
Tensor floor(const Operand& x);
Tensor ceil(const Operand& x);
Tensor round(const Operand& x);
Tensor clamp(const Operand& x, double min = -std::numeric_limits<double>::infinity(),
             double max = std::numeric_limits<double>::infinity());

// ---- activations ----
Tensor relu(const Operand& x);
Tensor relu6(const Operand& x);
Tensor sigmoid(const Operand& x);
Tensor tanh(const Operand& x);
/// x * Phi(x); approximate is "none" (erf) or "tanh".
Tensor gelu(const Operand& x, std::string_view approximate = "none");
Tensor silu(const Operand& x);
Tensor softplus(const Operand& x, double beta = 1, double threshold = 20);
Tensor leaky_relu(const Operand& x, double negative_slope = 0.01);
Tensor elu(const Operand& x, double alpha = 1);
Tensor hardtanh(const Operand& x, double min_val = -1, double max_val = 1);
Tensor softmax(const Operand& x, std::int64_t dim);
Tensor log_softmax(const Operand& x, std::int64_t dim);

// ---- reductions; empty dims: all of them ----
Tensor sum(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
Tensor mean(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
Tensor amax(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
Tensor amin(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
Tensor prod(const Operand& x, const OneOrMore& dims = {}, bool keepdim = false);
/// i64; over the flattened tensor when no dimension is given.
Tensor argmax(const Operand& x, std::optional<std::int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Operand& x, std::optional<std::int64_t> dim = {}, bool keepdim = false);

// ---- shapes ----
Tensor reshape(const Operand& x, const Shape& shape);
Tensor flatten(const Operand& x, std::int64_t start_dim = 0, std::int64_t end_dim = -1);
Tensor transpose(const Operand& x, std::int64_t dim0, std::int64_t dim1);
Tensor permute(const Operand& x, const Sizes& dims);
Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim = 0, Location where = Location::current());
Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim = 0, Location where = Location::current());

// ---- products ----
/// x[..., k] weight[n, k]^T + bias[n] -> [..., n]
Tensor linear(const Operand& x, const Tensor& weight, const Tensor& bias = {});
/// Vectors, matrices and batches of them, with broadcasting of the batch dimensions.
Tensor matmul(const Operand& a, const Operand& b);

// ---- images: [batch, channels, height, width] ----
struct Conv2dFunctionOptions {
  Size2 stride = 1;
  Padding2 padding = 0;
  Size2 dilation = 1;
  std::int64_t groups = 1;
};
/// Cross-correlation with weight[out, in / groups, kernel_h, kernel_w].
Tensor conv2d(const Operand& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dFunctionOptions& options = {});
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

}  // namespace graven

// ---- families ----
#include "graven/functional/convolution.h"    // IWYU pragma: export
#include "graven/functional/distances.h"      // IWYU pragma: export
#include "graven/functional/indexing.h"       // IWYU pragma: export
#include "graven/functional/linalg.h"         // IWYU pragma: export
#include "graven/functional/losses.h"         // IWYU pragma: export
#include "graven/functional/normalization.h"  // IWYU pragma: export
#include "graven/functional/padding.h"        // IWYU pragma: export
#include "graven/functional/pointwise.h"      // IWYU pragma: export
#include "graven/functional/pooling.h"        // IWYU pragma: export
#include "graven/functional/products.h"       // IWYU pragma: export
#include "graven/functional/random.h"         // IWYU pragma: export
#include "graven/functional/reductions.h"     // IWYU pragma: export
#include "graven/functional/sequence.h"       // IWYU pragma: export
#include "graven/functional/shapes.h"         // IWYU pragma: export
#include "graven/functional/upsampling.h"     // IWYU pragma: export
#include "graven/functional/windows.h"        // IWYU pragma: export
