// conv2d: two-dimensional convolution of NHWC images, its gradients, and the packing of its weights, in f32. Formulas: config/conv2d.h.
//
//   x [batch,in_height,in_width,in_channels]  y [batch,out_height,out_width,out_channels]  bias [out_channels] or nullptr, 0
//   w [out_channels,in_channels/groups,kernel_height,kernel_width]: PyTorch's layout, packed once whenever it changes
//
//   inline constexpr conv2d_config features_0{.batch = 64, .in_height = 28, ...};
//   pack_conv2d_weight(threads, features_0, packed, w);                  // conv2d_packed_elements(features_0) floats
//   conv2d<relu>(threads, features_0, y, x, packed, bias);
//   pack_conv2d_weight_backward(threads, features_0, packed_backward, w);
//   conv2d_backward_input(threads, features_0, dx, dy, packed_backward);
//   conv2d_backward_weight(threads, features_0, dw, db, dy, x, workspace);  // conv2d_backward_weight_workspace_bytes(features_0)
//
// Any stride, padding, dilation and number of groups; padded pixels are clipped, not stored. An epilogue with two inputs takes the second from
// `residual`, of the output's shape; outputs must not overlap inputs, residual included. Which way is taken follows from the config alone:
//
//   conv2d_forward.h          register tiles of pixels x panels, (kh, kw, channel) innermost; a 1x1 convolution is a plain matrix product
//   conv2d_one_channel.h      one input channel, fewer than 16 output channels: vectors along the pixels
//   conv2d_depthwise.h        groups = channels: vectors along the channels
//   conv2d_backward_input.h   as forward with the kernel turned; strides and few channels: runs of (kw, channel) added to dx
//   conv2d_depthwise_weight.h the gradient of its weights: 3 x 3 taps in registers
//   conv2d_backward_weight.h  register tiles of (kw, channel) x panels over the pixels of splits, which are then added in order; pointwise:
//   linear.h's
#pragma once

#include "conv2d_backward_input.h"
#include "conv2d_backward_weight.h"
#include "conv2d_depthwise.h"
#include "conv2d_forward.h"
#include "conv2d_one_channel.h"
#include "conv2d_pack.h"
#include "linear.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace conv2d_detail {

/// Calls f(image, rows, panels) for parts of `height` rows and of the panels of channels: 32 pieces where the batch is small.
template <class F>
GRAVEN_ALWAYS_INLINE void for_each_depthwise_piece(Threads& threads, const conv2d_config& s, std::int64_t height, const F& f) {
  const std::int64_t panels = conv2d_panels(s.out_channels), want = divide_up(32, larger(1, s.batch));
  const std::int64_t rows = smaller(larger(1, height / 4), want), parts = smaller(divide_up(panels, 2), divide_up(want, rows));
  threads.run(s.batch * rows * parts, [&](std::int64_t piece) {
    f(piece / parts / rows, part_of(height, piece / parts % rows, rows), part_of(panels, piece % parts, parts));
  });
}

}  // namespace conv2d_detail

/// y = Epilogue(convolution of x with w + bias[, residual]).
template <class Epilogue = identity>
void conv2d(Threads& threads, const conv2d_config& config, float* y, const float* x, const float* packed, const float* bias,
            const float* residual = nullptr) {
  if (conv2d_detail::is_one_channel(config)) return conv2d_detail::forward_one_channel<Epilogue>(threads, config, y, x, packed, bias, residual);
  if (!conv2d_is_depthwise(config)) return conv2d_detail::forward_dense<Epilogue>(threads, config, y, x, packed, bias, residual);
  conv2d_detail::for_each_depthwise_piece(
      threads, config, config.out_height, [&](std::int64_t image, conv2d_detail::range rows, conv2d_detail::range panels) {
        conv2d_detail::for_each_block(panels, config.in_width, config.kernel_height + config.stride_height, [&](conv2d_detail::range block) {
          conv2d_detail::depthwise_forward<Epilogue>(config, y, x, packed, bias, residual, image, rows, block);
        });
      });
}

/// dx = Epilogue(gradient of x[, residual]) from dy, with weights packed by pack_conv2d_weight_backward.
template <class Epilogue = identity>
void conv2d_backward_input(Threads& threads, const conv2d_config& config, float* dx, const float* dy, const float* packed,
                           const float* residual = nullptr) {
  if (!conv2d_is_depthwise(config)) return conv2d_detail::backward_input_dense<Epilogue>(threads, config, dx, dy, packed, residual);
  conv2d_detail::for_each_depthwise_piece(
      threads, config, config.in_height, [&](std::int64_t image, conv2d_detail::range rows, conv2d_detail::range panels) {
        conv2d_detail::for_each_block(panels, config.out_width, config.kernel_height + 1, [&](conv2d_detail::range block) {
          conv2d_detail::depthwise_backward_input<Epilogue>(config, dx, dy, packed, residual, image, rows, block);
        });
      });
}

/// dw (w's layout, not packed) and db ([out_channels], or nullptr) from dy and x.
inline void conv2d_backward_weight(Threads& threads, const conv2d_config& config, float* dw, float* db, const float* dy, const float* x,
                                   void* workspace = nullptr) {
  const conv2d_config& s = config;
  if (s.out_channels * s.in_channels * s.kernel_height * s.kernel_width == 0) return;
  if (conv2d_is_pointwise(s)) return linear_backward_weight(threads, conv2d_pointwise(s), dw, db, dy, x, workspace);
  const std::int64_t splits = conv2d_backward_weight_splits(s), elements = conv2d_packed_elements(s);
  const std::int64_t group_panels = conv2d_panels(s.out_channels / s.groups), rows = s.batch * s.out_height;
  float* const parts = static_cast<float*>(workspace);
  float* const bias_parts = parts + splits * elements;
  if (conv2d_is_depthwise(s)) {
    const std::int64_t panels = conv2d_panels(s.out_channels), panel_size = s.kernel_height * s.kernel_width * kPanel;
    const bool together = conv2d_detail::depthwise_gradient_together(s);
    threads.run(splits * panels, [&](std::int64_t piece) {
      const std::int64_t panel = piece % panels, split = piece / panels;
      conv2d_detail::range part = conv2d_detail::part_of(together ? s.batch : rows, split, splits);
      if (together) part = {part.begin * s.out_height, part.end * s.out_height};
      conv2d_detail::depthwise_backward_weight(s, parts + split * elements + panel * panel_size,
                                               db != nullptr ? bias_parts + (split * panels + panel) * kPanel : nullptr, dy, x, part, panel);
    });
    return conv2d_detail::combine_parts(threads, s, dw, db, parts, bias_parts, splits);
  }
  if (conv2d_detail::is_one_channel(s)) {
    threads.run(splits, [&](std::int64_t split) {
      conv2d_detail::backward_weight_one_channel(s, parts + split * elements, db != nullptr ? bias_parts + split * kPanel : nullptr, dy, x,
                                                 conv2d_detail::part_of(rows, split, splits));
    });
    return conv2d_detail::combine_parts(threads, s, dw, db, parts, bias_parts, splits);
  }
  // Blocks of up to 4 panels; kernel rows apart where there are few other pieces.
  const std::int64_t blocks = conv2d_detail::divide_up(group_panels, conv2d_detail::kTilePanels);
  const std::int64_t parts_h = blocks * s.groups * splits < 16 ? s.kernel_height : 1;
  const bool whole = conv2d_detail::whole_images(s);
  threads.run(splits * s.groups * blocks * parts_h, [&](std::int64_t piece) {
    const std::int64_t split = piece / parts_h / blocks / s.groups;
    const conv2d_detail::range panels = conv2d_detail::part_of(group_panels, piece / parts_h % blocks, blocks);
    conv2d_detail::gradient_block b;
    b.group = piece / parts_h / blocks % s.groups;
    b.panel = panels.begin;
    b.panels = static_cast<int>(panels.size());
    b.taps_h = conv2d_detail::part_of(s.kernel_height, piece % parts_h, parts_h);
    b.rows = conv2d_detail::part_of(whole ? s.batch : rows, split, splits);
    if (whole) b.rows = {b.rows.begin * s.out_height, b.rows.end * s.out_height};
    float* const bias = db != nullptr && b.taps_h.begin == 0 ? bias_parts + split * s.groups * group_panels * kPanel : nullptr;
    conv2d_detail::dense_backward_weight(s, parts + split * elements, bias, dy, x, b);
  });
  conv2d_detail::combine_parts(threads, s, dw, db, parts, bias_parts, splits);
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
