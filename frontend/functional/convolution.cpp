#include "graven/functional/convolution.h"

#include <fmt/format.h>

#include <algorithm>

#include "frontend/dispatch.h"
#include "frontend/functional/batched.h"
#include "frontend/functional/windows.h"
#include "graven/functional.h"

namespace graven {

using detail::apply;
using detail::batched;
using detail::fail;
using detail::fixed_size;

namespace {

Sizes list(Size2 s) { return {s.height, s.width}; }

void require_weight(const Tensor& weight, std::int64_t rank, const char* function, Location where) {
  detail::require_defined(weight, function, where, "weight");
  if (weight.dim() != rank)
    fail(function, fmt::format("the weight must have {} dimensions, got {}", rank, weight.describe()), where);
}

/// The padding before and behind one dimension, of a number or of "same".
struct Sides {
  std::int64_t before, behind;
};
Sides sides(bool same, std::int64_t padding, std::int64_t kernel, std::int64_t stride, std::int64_t dilation,
            const char* function, Location where) {
  if (!same) return {padding, padding};
  if (stride != 1) fail(function, "padding 'same' is for a stride of 1, got " + std::to_string(stride), where);
  const std::int64_t total = dilation * (kernel - 1);
  return {total / 2, total - total / 2};
}

/// The arguments of a transposed convolution along one dimension.
void check_transposed(const char* function, std::int64_t stride, std::int64_t dilation, std::int64_t padding,
                      std::int64_t more, Location where) {
  if (stride < 1 || dilation < 1 || padding < 0 || more < 0)
    fail(function, "stride and dilation must be positive, padding and output_padding not negative", where);
  if (more != 0 && more >= std::max(stride, dilation))
    fail(function, "output_padding must be smaller than stride or dilation, got " + std::to_string(more), where);
}

}  // namespace

Tensor conv2d(const Operand& x, const Tensor& weight, const Tensor& bias, const Conv2dFunctionOptions& o) {
  const Location at = x.where().in("conv2d");
  return batched(x, 4, "conv2d", [&](Tensor images) {
    Sizes padding = list(o.padding.value);
    if (o.padding.same) {
      require_weight(weight, 4, "conv2d", at);
      const Sides h =
          sides(true, 0, fixed_size(weight, 2, "conv2d", at), o.stride.height, o.dilation.height, "conv2d", at);
      const Sides w =
          sides(true, 0, fixed_size(weight, 3, "conv2d", at), o.stride.width, o.dilation.width, "conv2d", at);
      // An even window needs one row or column more behind than before.
      if (h.before != h.behind || w.before != w.behind)
        images = pad(Operand(images, at), {0, w.behind - w.before, 0, h.behind - h.before});
      padding = {h.before, w.before};
    }
    return apply(
        "conv2d", {images, weight, bias},
        {{"stride", list(o.stride)}, {"padding", padding}, {"dilation", list(o.dilation)}, {"groups", o.groups}}, at);
  });
}

Tensor conv1d(const Operand& x, const Tensor& weight, const Tensor& bias, const Conv1dFunctionOptions& o) {
  const Location at = x.where().in("conv1d");
  require_weight(weight, 3, "conv1d", at);
  return batched(x, 3, "conv1d", [&](const Tensor& signals) {
    Conv2dFunctionOptions options{
        .stride = {1, o.stride}, .padding = Size2(0, o.padding.value), .dilation = {1, o.dilation}, .groups = o.groups};
    options.padding.same = o.padding.same;
    return conv2d(Operand(signals.unsqueeze(2, at), at), weight.unsqueeze(2, at), bias, options).squeeze(2, at);
  });
}

Tensor conv3d(const Operand& x, const Tensor& weight, const Tensor& bias, const Conv3dFunctionOptions& o) {
  const Location at = x.where().in("conv3d");
  require_weight(weight, 5, "conv3d", at);
  return batched(x, 5, "conv3d", [&](const Tensor& volumes) {
    const std::int64_t taps = fixed_size(weight, 2, "conv3d", at);
    (void)fixed_size(volumes, 2, "conv3d", at);
    const Sides around =
        sides(o.padding.same, o.padding.value.depth, taps, o.stride.depth, o.dilation.depth, "conv3d", at);
    if (o.stride.depth < 1 || o.dilation.depth < 1 || around.before < 0)
      fail("conv3d", "stride and dilation must be positive, padding not negative", at);
    // Planes behind each other are images side by side; a tap along the depth is a conv2d of every stride-th plane.
    Tensor planes = volumes.permute({0, 2, 1, 3, 4}, at);
    if (around.before != 0 || around.behind != 0)
      planes = pad(Operand(planes, at), {0, 0, 0, 0, 0, 0, around.before, around.behind});
    const std::int64_t reach = o.dilation.depth * (taps - 1) + 1,
                       depth = planes.size(1) < reach ? 0 : (planes.size(1) - reach) / o.stride.depth + 1;
    if (taps < 1 || depth < 1)
      fail("conv3d", fmt::format("the kernel's depth {} does not fit into the padded depth {}", taps, planes.size(1)),
           at);
    const Dim images = planes.shape()[0] * Dim(depth);
    Conv2dFunctionOptions options{.stride = {o.stride.height, o.stride.width},
                                  .padding = Size2(o.padding.value.height, o.padding.value.width),
                                  .dilation = {o.dilation.height, o.dilation.width},
                                  .groups = o.groups};
    options.padding.same = o.padding.same;
    Tensor sum;
    for (std::int64_t k = 0; k < taps; ++k) {
      const std::int64_t first = k * o.dilation.depth;
      const Tensor taken = planes.slice(1, first, first + (depth - 1) * o.stride.depth + 1, o.stride.depth, at)
                               .reshape({images, planes.shape()[2], planes.shape()[3], planes.shape()[4]}, at);
      const Tensor part = conv2d(Operand(taken, at), weight.select(2, k, at), k == 0 ? bias : Tensor(), options);
      sum = sum.defined() ? add(Operand(sum, at), Operand(part, at)) : part;
    }
    return sum.reshape({planes.shape()[0], depth, sum.shape()[1], sum.shape()[2], sum.shape()[3]}, at)
        .permute({0, 2, 1, 3, 4}, at);
  });
}

Tensor conv_transpose2d(const Operand& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dFunctionOptions& o) {
  const Location at = x.where().in("conv_transpose2d");
  require_weight(weight, 4, "conv_transpose2d", at);
  return batched(x, 4, "conv_transpose2d", [&](const Tensor& images) {
    const Sizes stride = list(o.stride), padding = list(o.padding), more = list(o.output_padding),
                dilation = list(o.dilation);
    Shape size{0, 0};
    bool reaches = true;  // a convolution of the result with this padding gives the size of x
    for (std::size_t d = 0; d < 2; ++d) {
      check_transposed("conv_transpose2d", stride[d], dilation[d], padding[d], more[d], at);
      const auto dim = static_cast<std::int64_t>(d) + 2;
      const std::int64_t taps = fixed_size(weight, dim, "conv_transpose2d", at);
      size[d] = (images.shape()[d + 2] - 1) * stride[d] + Dim(dilation[d] * (taps - 1) - 2 * padding[d] + more[d] + 1);
      if (size[d].minimum() < 1)
        fail("conv_transpose2d",
             fmt::format("dimension {} of the result would have {} elements: the padding is too large", dim,
                         size[d].to_string()),
             at);
      reaches = reaches && more[d] < stride[d];
    }
    const auto transposed = [&](const Sizes& pads, const Shape& sizes) {
      return apply(
          "conv2d_backward_input", {images, weight},
          {{"stride", stride}, {"padding", pads}, {"dilation", dilation}, {"groups", o.groups}, {"input_size", sizes}},
          at);
    };
    Tensor y;
    if (reaches) {
      y = transposed(padding, size);
    } else {
      // Without padding first; then what lies around it is cut off, or zeros are added.
      Shape full{0, 0};
      for (std::size_t d = 0; d < 2; ++d) full[d] = size[d] + Dim(2 * padding[d] - more[d]);
      y = pad(Operand(transposed({0, 0}, full), at),
              {-padding[1], more[1] - padding[1], -padding[0], more[0] - padding[0]});
    }
    if (!bias.defined()) return y;
    const std::int64_t channels = fixed_size(y, 1, "conv_transpose2d", at);
    if (bias.shape() != Shape{channels})
      fail("conv_transpose2d", fmt::format("bias must have {} elements, got {}", channels, bias.describe()), at);
    return add(Operand(y, at), Operand(bias.reshape({channels, 1, 1}, at), at));
  });
}

Tensor conv_transpose1d(const Operand& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose1dFunctionOptions& o) {
  const Location at = x.where().in("conv_transpose1d");
  require_weight(weight, 3, "conv_transpose1d", at);
  return batched(x, 3, "conv_transpose1d", [&](const Tensor& signals) {
    return conv_transpose2d(Operand(signals.unsqueeze(2, at), at), weight.unsqueeze(2, at), bias,
                            {.stride = {1, o.stride},
                             .padding = {0, o.padding},
                             .output_padding = {0, o.output_padding},
                             .groups = o.groups,
                             .dilation = {1, o.dilation}})
        .squeeze(2, at);
  });
}

Tensor conv_transpose3d(const Operand& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose3dFunctionOptions& o) {
  const Location at = x.where().in("conv_transpose3d");
  require_weight(weight, 5, "conv_transpose3d", at);
  return batched(x, 5, "conv_transpose3d", [&](const Tensor& volumes) {
    const std::int64_t taps = fixed_size(weight, 2, "conv_transpose3d", at),
                       count = fixed_size(volumes, 2, "conv_transpose3d", at);
    const std::int64_t stride = o.stride.depth, dilation = o.dilation.depth, padding = o.padding.depth,
                       more = o.output_padding.depth;
    check_transposed("conv_transpose3d", stride, dilation, padding, more, at);
    const std::int64_t depth = (count - 1) * stride - 2 * padding + dilation * (taps - 1) + more + 1;
    if (taps < 1 || count < 1 || depth < 1)
      fail("conv_transpose3d",
           fmt::format("dimension 2 of the result would have {} elements: the padding is too large", depth), at);
    // Planes behind each other are images side by side; each tap along the depth puts what it makes of them where it
    // belongs.
    const Tensor planes = volumes.permute({0, 2, 1, 3, 4}, at);
    const Tensor images =
        planes.reshape({planes.shape()[0] * Dim(count), planes.shape()[2], planes.shape()[3], planes.shape()[4]}, at);
    const ConvTranspose2dFunctionOptions options{.stride = {o.stride.height, o.stride.width},
                                                 .padding = {o.padding.height, o.padding.width},
                                                 .output_padding = {o.output_padding.height, o.output_padding.width},
                                                 .groups = o.groups,
                                                 .dilation = {o.dilation.height, o.dilation.width}};
    Tensor sum;
    for (std::int64_t k = 0; k < taps; ++k) {
      const Tensor part = conv_transpose2d(Operand(images, at), weight.select(2, k, at), Tensor(), options);
      const Tensor apart =
          part.reshape({planes.shape()[0], count, part.shape()[1], part.shape()[2], part.shape()[3]}, at);
      const Tensor there = detail::placed(apart, 1, stride, k * dilation - padding, depth, at);
      sum = sum.defined() ? add(Operand(sum, at), Operand(there, at)) : there;
    }
    const Tensor y = sum.permute({0, 2, 1, 3, 4}, at);
    if (!bias.defined()) return y;
    const std::int64_t channels = fixed_size(y, 1, "conv_transpose3d", at);
    if (bias.shape() != Shape{channels})
      fail("conv_transpose3d", fmt::format("bias must have {} elements, got {}", channels, bias.describe()), at);
    return add(Operand(y, at), Operand(bias.reshape({channels, 1, 1, 1}, at), at));
  });
}

}  // namespace graven
