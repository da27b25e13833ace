// Rearranging layers: the functions of graven/functional/shapes.h and windows.h with their options.
//
//   nn::Sequential upscale(nn::Conv2d(64, 4 * 3, 3, {.padding = 1}), nn::PixelShuffle(2));
#pragma once

#include "graven/functional.h"
#include "graven/module.h"

namespace graven::nn {

using graven::WindowOptions;

class Flatten : public Module<Flatten> {
 public:
  explicit Flatten(std::int64_t start_dim = 1, std::int64_t end_dim = -1);
  Tensor forward(Tensor x);

 private:
  std::int64_t start_dim_, end_dim_;
};

/// Dimension dim as several; one may be -1.
class Unflatten : public Module<Unflatten> {
 public:
  Unflatten(std::int64_t dim, Sizes unflattened_size);
  Tensor forward(Tensor x);

 private:
  std::int64_t dim_;
  Sizes sizes_;
};
/// [..., channels f^2, h, w] -> [..., channels, h f, w f].
class PixelShuffle : public Module<PixelShuffle> {
 public:
  explicit PixelShuffle(std::int64_t upscale_factor);
  Tensor forward(Tensor x);

 private:
  std::int64_t factor_;
};
/// [..., channels, h f, w f] -> [..., channels f^2, h, w].
class PixelUnshuffle : public Module<PixelUnshuffle> {
 public:
  explicit PixelUnshuffle(std::int64_t downscale_factor);
  Tensor forward(Tensor x);

 private:
  std::int64_t factor_;
};
/// x[batch, channels, ...] with the channels of `groups` groups in turn.
class ChannelShuffle : public Module<ChannelShuffle> {
 public:
  explicit ChannelShuffle(std::int64_t groups);
  Tensor forward(Tensor x);

 private:
  std::int64_t groups_;
};
/// Windows as columns: [batch, channels, h, w] -> [batch, channels * kernel_h * kernel_w, windows].
class Unfold : public Module<Unfold> {
 public:
  explicit Unfold(Size2 kernel_size, WindowOptions options = {});
  Tensor forward(Tensor x);

 private:
  Size2 kernel_;
  WindowOptions options_;
};
/// The sum of columns as windows: [batch, channels * kernel_h * kernel_w, windows] -> [batch, channels, output_size].
class Fold : public Module<Fold> {
 public:
  Fold(Size2 output_size, Size2 kernel_size, WindowOptions options = {});
  Tensor forward(Tensor x);

 private:
  Size2 size_, kernel_;
  WindowOptions options_;
};

}  // namespace graven::nn
