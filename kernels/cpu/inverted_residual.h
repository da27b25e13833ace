// inverted_residual: three convolutions in one pass over the rows of an image, in f32. Formulas:
// config/inverted_residual.h.
//
//   x [batch,in_height,in_width,in_channels]  y [batch,out_height,out_width,out_channels]
//   biases [channels] or nullptr, 0
//   weights: each convolution's own, as pack_conv2d_weight lays it out
//
//   inverted_residual<relu6, relu6, add>(threads, features_3, y, x, expand_weight, expand_bias, depthwise_weight,
//                                        depthwise_bias, project_weight, project_bias, residual);
//
// What lies between the convolutions is several times as large as x and y, and takes longer to write and read than to
// compute. So a thread makes a few rows of it at a time, in its second-level cache, and keeps those that the next rows
// see as well. An epilogue with two inputs takes the second from `residual`, of the output's shape; only the last may
// have two. y must not overlap an input, and inverted_residual_rows(config) must not be 0.
#pragma once

#include "../config/inverted_residual.h"
#include "conv2d_depthwise.h"
#include "conv2d_forward.h"
#include "threads.h"

namespace graven::kernels {
inline namespace GRAVEN_LEVEL_NAMESPACE {
namespace inverted_residual_detail {

using namespace conv2d_detail;

/// A 1x1 convolution over rows of pixels.
struct pointwise {
  const float* weight;
  const float* bias;
  forward_tiles tiles;

  void operator()(std::int64_t pixels, std::int64_t in_channels, std::int64_t out_channels, float* y, const float* x,
                  const epilogue& end) const {
    const conv2d_config s = conv2d_of_pixels(1, 1, pixels, in_channels, out_channels);
    const forward kernel{s, y, x, weight, bias, end, tiles};
    kernel({.image = 0,
            .group = 0,
            .images = 1,
            .rows = {0, 1},
            .columns = {0, pixels},
            .panels = {0, conv2d_panels(out_channels)}});
  }
};

struct inverted_residual_call {
  const inverted_residual_config& s;
  float* y;
  const float* x;
  pointwise expand;
  const float* depthwise_weight;
  const float* depthwise_bias;
  pointwise project;
  epilogue expand_end, depthwise_end, project_end;

  /// Output rows [rows) of one image.
  [[gnu::noinline]] void operator()(std::int64_t image, range rows) const {
    alignas(64) float buffer[kInvertedResidualFloats];
    const std::int64_t most = inverted_residual_rows(s), bands = divide_up(rows.size(), most);
    const std::int64_t wide_row = s.in_width * s.wide_channels, deep_row = s.out_width * s.wide_channels;
    const float* const in = x + image * s.in_height * s.in_width * s.in_channels;
    const taps v{s.kernel_width, s.in_width, s.stride_width, s.padding_width, s.dilation_width, 0, 1};
    const range panels{0, conv2d_panels(s.wide_channels)};
    float* const deep = buffer;
    float* const wide = buffer + most * deep_row;
    range held{0, 0};  // the rows of the wide tensor in the buffer
    for (std::int64_t i = 0; i < bands; ++i) {
      const range part = part_of(rows.size(), i, bands), band{rows.begin + part.begin, rows.begin + part.end};
      // The rows that the band sees.
      const std::int64_t top = band.begin * s.stride_height - s.padding_height;
      const std::int64_t bottom =
          (band.end - 1) * s.stride_height - s.padding_height + (s.kernel_height - 1) * s.dilation_height + 1;
      const std::int64_t begin = smaller(larger(top, 0), s.in_height);
      const range seen{begin, larger(begin, smaller(bottom, s.in_height))};
      const std::int64_t kept = larger(0, held.end - seen.begin);
      if (kept > 0 && seen.begin != held.begin)
        __builtin_memmove(wide, wide + (seen.begin - held.begin) * wide_row,
                          static_cast<std::size_t>(kept * wide_row) * sizeof(float));
      const range fresh{seen.begin + kept, seen.end};
      if (fresh.size() > 0)
        expand(fresh.size() * s.in_width, s.in_channels, s.wide_channels, wide + kept * wide_row,
               in + fresh.begin * s.in_width * s.in_channels, expand_end);
      held = seen;
      // To the depthwise convolution, the rows in the buffer are the image: row 0 is row seen.begin.
      const taps h{s.kernel_height,   seen.size(), s.stride_height, s.padding_height + seen.begin,
                   s.dilation_height, 0,           s.kernel_width};
      const bool limited = depthwise_end.end == tile_end::limit;
      for (std::int64_t row = band.begin; row < band.end; ++row) {
        const std::int64_t at = (row - band.begin) * deep_row;
        depthwise_row(deep + at, s.wide_channels, s.out_width, row, wide, s.in_width, depthwise_weight, depthwise_bias,
                      s.wide_channels, panels, h, v, s.kernel_height * s.kernel_width,
                      limited ? &depthwise_end : nullptr);
        if (!limited) depthwise_end(deep, at, s.out_width, s.wide_channels, s.wide_channels);
      }
      const std::int64_t at = (image * s.out_height + band.begin) * s.out_width * s.out_channels;
      epilogue end = project_end;
      if (end.residual != nullptr) end.residual += at;
      project(band.size() * s.out_width, s.wide_channels, s.out_channels, y + at, deep, end);
    }
  }
};

/// Tiles for rows of `width` pixels or more.
template <class Epilogue>
GRAVEN_ALWAYS_INLINE forward_tiles pointwise_tiles(std::int64_t width, std::int64_t in_channels,
                                                   std::int64_t out_channels) {
  return choose_forward_tiles<end_of<Epilogue>()>(conv2d_of_pixels(1, 1, width, in_channels, out_channels));
}

}  // namespace inverted_residual_detail

/// y from x; see above.
template <class ExpandEpilogue = identity, class DepthwiseEpilogue = identity, class Epilogue = identity>
GRAVEN_ALWAYS_INLINE void inverted_residual(Threads& threads, const inverted_residual_config& config, float* y,
                                            const float* x, const float* expand_weight, const float* expand_bias,
                                            const float* depthwise_weight, const float* depthwise_bias,
                                            const float* project_weight, const float* project_bias,
                                            const float* residual = nullptr) {
  using namespace inverted_residual_detail;
  const inverted_residual_config& s = config;
  if (s.batch * s.out_height * s.out_width * s.out_channels == 0) return;
  const inverted_residual_call call{
      s,
      y,
      x,
      {expand_weight, expand_bias, pointwise_tiles<ExpandEpilogue>(s.in_width, s.in_channels, s.wide_channels)},
      depthwise_weight,
      depthwise_bias,
      {project_weight, project_bias, pointwise_tiles<Epilogue>(s.out_width, s.wide_channels, s.out_channels)},
      make_epilogue<ExpandEpilogue>(nullptr),
      make_epilogue<DepthwiseEpilogue>(nullptr),
      make_epilogue<Epilogue>(residual)};
  // A piece makes the rows above its first anew, so there are as few as keep the threads busy. No result depends on
  // where a piece begins.
  const std::int64_t wanted = divide_up(2 * threads.count(), s.batch),
                     parts = smaller(wanted, divide_up(s.out_height, 4));
  threads.run(s.batch * parts,
              [&](std::int64_t piece) { call(piece / parts, part_of(s.out_height, piece % parts, parts)); });
}

}  // namespace GRAVEN_LEVEL_NAMESPACE
}  // namespace graven::kernels
