// conv2d: two-dimensional convolution of NHWC images, its gradients, and the packing of its weights, in f32. Formulas:
// config/conv2d.h.
//
//   x [batch,in_height,in_width,in_channels]  y [batch,out_height,out_width,out_channels]
//   bias [out_channels] or nullptr, 0
//   w [out_channels,in_channels/groups,kernel_height,kernel_width]: PyTorch's layout, packed once whenever it changes
//
//   inline constexpr conv2d_config features_0{.batch = 64, .in_height = 28, ...};
//   pack_conv2d_weight(threads, features_0, packed, w);                  // conv2d_packed_elements(features_0) floats
//   conv2d<relu>(threads, features_0, y, x, packed, bias);
//   pack_conv2d_weight_backward(threads, features_0, packed_backward, w);
//   conv2d_backward_input(threads, features_0, dx, dy, packed_backward);
//   // conv2d_backward_weight_workspace_bytes(features_0)
//   conv2d_backward_weight(threads, features_0, dw, db, dy, x, workspace);
//
// Any stride, padding, dilation and number of groups; padded pixels are clipped, not stored. An epilogue with two
// inputs takes the second from `residual`, of the output's shape; outputs must not overlap inputs, residual included.
// Which way is taken follows from the config alone:
//
//   conv2d_forward.h          register tiles of pixels x panels, (kh, kw, channel) innermost; a 1x1 convolution is a
//                             plain matrix product
//   conv2d_one_channel.h      one input channel, fewer than 16 output channels: vectors along the pixels
//   conv2d_depthwise.h        groups = channels: vectors along the channels
//   conv2d_backward_input.h   as forward with the kernel turned; strides and few channels: runs of (kw, channel)
//                             added to dx
//   conv2d_depthwise_weight.h the gradient of its weights: 3 x 3 taps in registers
//   conv2d_backward_weight.h  register tiles of (kw, channel) x panels over the pixels of splits, which are then
//                             added in order; pointwise: linear.h's
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

/// Calls f(image, rows, panels) for parts of `height` rows and of the panels of channels: 32 pieces where the batch is
/// small.
template <class F>
GRAVEN_ALWAYS_INLINE void for_each_depthwise_piece(Threads& threads, const conv2d_config& s, std::int64_t height,
                                                   const F& f) {
  const std::int64_t panels = conv2d_panels(s.out_channels), want = divide_up(32, larger(1, s.batch));
  const std::int64_t rows = smaller(larger(1, height / 4), want),
                     parts = smaller(divide_up(panels, 2), divide_up(want, rows));
  threads.run(s.batch * rows * parts, [&](std::int64_t piece) {
    f(piece / parts / rows, part_of(height, piece / parts % rows, rows), part_of(panels, piece % parts, parts));
  });
}

[[gnu::noinline]] inline void forward_depthwise(Threads& threads, const conv2d_config& s, float* y, const float* x,
                                                const float* packed, const float* bias, const epilogue& last_step) {
  for_each_depthwise_piece(threads, s, s.out_height, [&](std::int64_t image, range rows, range panels) {
    for_each_block(panels, s.in_width, s.kernel_height + s.stride_height,
                   [&](range block) { depthwise_forward(s, y, x, packed, bias, last_step, image, rows, block); });
  });
}

[[gnu::noinline]] inline void backward_input_depthwise(Threads& threads, const conv2d_config& s, float* dx,
                                                       const float* dy, const float* packed,
                                                       const epilogue& last_step) {
  for_each_depthwise_piece(threads, s, s.in_height, [&](std::int64_t image, range rows, range panels) {
    for_each_block(panels, s.out_width, s.kernel_height + 1,
                   [&](range block) { depthwise_backward_input(s, dx, dy, packed, last_step, image, rows, block); });
  });
}

/// Where the parts of dw and, behind them, of db lie in the workspace.
struct gradient_parts {
  std::int64_t splits, elements;
  float *weight, *bias;

  gradient_parts(const conv2d_config& s, void* workspace)
      : splits(conv2d_backward_weight_splits(s)), elements(conv2d_packed_elements(s)) {
    weight = static_cast<float*>(workspace), bias = weight + splits * elements;
  }
};

[[gnu::noinline]] inline void backward_weight_of_depthwise(Threads& threads, const conv2d_config& s, float* dw,
                                                           float* db, const float* dy, const float* x,
                                                           void* workspace) {
  const gradient_parts parts(s, workspace);
  const std::int64_t rows = s.batch * s.out_height, panels = conv2d_panels(s.out_channels),
                     panel_size = s.kernel_height * s.kernel_width * kPanel;
  const bool together = depthwise_gradient_together(s);
  threads.run(parts.splits * panels, [&](std::int64_t piece) {
    const std::int64_t panel = piece % panels, split = piece / panels;
    range part = part_of(together ? s.batch : rows, split, parts.splits);
    if (together) part = {part.begin * s.out_height, part.end * s.out_height};
    depthwise_backward_weight(s, parts.weight + split * parts.elements + panel * panel_size,
                              db != nullptr ? parts.bias + (split * panels + panel) * kPanel : nullptr, dy, x, part,
                              panel);
  });
  combine_parts(threads, s, dw, db, parts.weight, parts.bias, parts.splits);
}

[[gnu::noinline]] inline void backward_weight_of_one_channel(Threads& threads, const conv2d_config& s, float* dw,
                                                             float* db, const float* dy, const float* x,
                                                             void* workspace) {
  const gradient_parts parts(s, workspace);
  threads.run(parts.splits, [&](std::int64_t split) {
    backward_weight_one_channel(s, parts.weight + split * parts.elements,
                                db != nullptr ? parts.bias + split * kPanel : nullptr, dy, x,
                                part_of(s.batch * s.out_height, split, parts.splits));
  });
  combine_parts(threads, s, dw, db, parts.weight, parts.bias, parts.splits);
}

[[gnu::noinline]] inline void backward_weight_of_dense(Threads& threads, const conv2d_config& s,
                                                       const tile_table<gradient_function>& tiles, float* dw, float* db,
                                                       const float* dy, const float* x, void* workspace) {
  const gradient_parts parts(s, workspace);
  const std::int64_t rows = s.batch * s.out_height, group_panels = conv2d_panels(s.out_channels / s.groups);
  if (conv2d_gradient_by_taps(s)) {
    const std::int64_t taps = s.kernel_height * s.kernel_width, strips = divide_up(s.in_channels / s.groups, kStrip);
    const std::int64_t parts_in = divide_up(strips, strips_at_once(s));
    threads.run(s.groups * taps * parts_in, [&](std::int64_t piece) {
      tap_backward_weight(s, tiles, parts.weight, dy, x, piece / parts_in / taps, piece / parts_in % taps,
                          part_of(strips, piece % parts_in, parts_in));
    });
    if (db != nullptr)
      threads.run(s.groups * group_panels, [&](std::int64_t piece) {
        const std::int64_t first = piece % group_panels * kPanel, group_out = s.out_channels / s.groups;
        detail::sum_columns(rows * s.out_width, s.out_channels, smaller(kPanel, group_out - first),
                            dy + piece / group_panels * group_out + first, parts.bias + piece * kPanel);
      });
    return combine_parts(threads, s, dw, db, parts.weight, parts.bias, 1);
  }
  // Blocks of up to 4 panels; kernel rows apart where there are few other pieces.
  const std::int64_t blocks = divide_up(group_panels, kTilePanels);
  const std::int64_t parts_h = blocks * s.groups * parts.splits < 16 ? s.kernel_height : 1;
  const bool whole = whole_images(s);
  threads.run(parts.splits * s.groups * blocks * parts_h, [&](std::int64_t piece) {
    const std::int64_t split = piece / parts_h / blocks / s.groups;
    const range panels = part_of(group_panels, piece / parts_h % blocks, blocks);
    gradient_block b;
    b.group = piece / parts_h / blocks % s.groups;
    b.panel = panels.begin;
    b.panels = static_cast<int>(panels.size());
    b.taps_h = part_of(s.kernel_height, piece % parts_h, parts_h);
    b.rows = part_of(whole ? s.batch : rows, split, parts.splits);
    if (whole) b.rows = {b.rows.begin * s.out_height, b.rows.end * s.out_height};
    float* const bias =
        db != nullptr && b.taps_h.begin == 0 ? parts.bias + split * s.groups * group_panels * kPanel : nullptr;
    dense_backward_weight(s, tiles, parts.weight + split * parts.elements, bias, dy, x, b);
  });
  combine_parts(threads, s, dw, db, parts.weight, parts.bias, parts.splits);
}

}  // namespace conv2d_detail

// The functions below are inlined where they are called, so that the compiler, which mostly knows the config there,
// keeps only what it takes.

/// y = Epilogue(convolution of x with w + bias[, residual]).
template <class Epilogue = identity>
GRAVEN_ALWAYS_INLINE void conv2d(Threads& threads, const conv2d_config& config, float* y, const float* x,
                                 const float* packed, const float* bias, const float* residual = nullptr) {
  using namespace conv2d_detail;
  const epilogue last_step = make_epilogue<Epilogue>(residual);
  if (is_one_channel(config)) {
    forward_one_channel(threads, config, choose_pixels(config), choose_planes(config), y, x, packed, bias, last_step);
  } else if (conv2d_is_depthwise(config)) {
    forward_depthwise(threads, config, y, x, packed, bias, last_step);
  } else {
    forward_dense(threads, config, choose_forward_tiles<end_of<Epilogue>()>(config), y, x, packed, bias, last_step);
  }
}

/// dx = Epilogue(gradient of x[, residual]) from dy, with weights packed by pack_conv2d_weight_backward.
template <class Epilogue = identity>
GRAVEN_ALWAYS_INLINE void conv2d_backward_input(Threads& threads, const conv2d_config& config, float* dx,
                                                const float* dy, const float* packed, const float* residual = nullptr) {
  using namespace conv2d_detail;
  const epilogue last_step = make_epilogue<Epilogue>(residual);
  if (conv2d_is_depthwise(config)) {
    backward_input_depthwise(threads, config, dx, dy, packed, last_step);
  } else if (choose_backward_input(config) == backward_input_path::scatter) {
    scatter(threads, config, scatter_tiles<plain_tiles>(config), scatter_tiles<adding_tiles>(config), dx, dy, packed,
            last_step);
  } else {
    backward_input_dense(threads, config, choose_forward_tiles<end_of<Epilogue>()>(turned_around(config)), dx, dy,
                         packed, last_step);
  }
}

/// dw (w's layout, not packed) and db ([out_channels], or nullptr) from dy and x.
GRAVEN_ALWAYS_INLINE void conv2d_backward_weight(Threads& threads, const conv2d_config& config, float* dw, float* db,
                                                 const float* dy, const float* x, void* workspace = nullptr) {
  using namespace conv2d_detail;
  if (config.out_channels * config.in_channels * config.kernel_height * config.kernel_width == 0) return;
  if (conv2d_is_pointwise(config)) {
    linear_backward_weight(threads, conv2d_pointwise(config), dw, db, dy, x, workspace);
  } else if (conv2d_is_depthwise(config)) {
    backward_weight_of_depthwise(threads, config, dw, db, dy, x, workspace);
  } else if (is_one_channel(config)) {
    backward_weight_of_one_channel(threads, config, dw, db, dy, x, workspace);
  } else {
    backward_weight_of_dense(threads, config, choose_gradient_tiles(config), dw, db, dy, x, workspace);
  }
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
