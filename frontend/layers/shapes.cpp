#include "graven/layers/shapes.h"

#include "frontend/layers/arguments.h"

namespace graven::nn {

using arguments::require_positive;
using arguments::tuple;

namespace {
std::string window_arguments(Size2 kernel, const WindowOptions& o) {
  return fmt::format("kernel_size={}, dilation={}, padding={}, stride={}", tuple(kernel), tuple(o.dilation),
                     tuple(o.padding), tuple(o.stride));
}
}  // namespace

Flatten::Flatten(std::int64_t start_dim, std::int64_t end_dim) : start_dim_(start_dim), end_dim_(end_dim) {
  set_arguments(fmt::format("start_dim={}, end_dim={}", start_dim, end_dim));
}
Tensor Flatten::forward(Tensor x) { return flatten(Operand(x, call_location()), start_dim_, end_dim_); }

Unflatten::Unflatten(std::int64_t dim, Sizes unflattened_size) : dim_(dim), sizes_(std::move(unflattened_size)) {
  set_arguments(fmt::format("dim={}, unflattened_size={}", dim, tuple(sizes_)));
}
Tensor Unflatten::forward(Tensor x) { return unflatten(Operand(x, call_location()), dim_, Shape::of(sizes_)); }

PixelShuffle::PixelShuffle(std::int64_t upscale_factor) : factor_(upscale_factor) {
  require_positive(upscale_factor, "upscale_factor", "PixelShuffle");
  set_arguments(fmt::format("upscale_factor={}", upscale_factor));
}
Tensor PixelShuffle::forward(Tensor x) { return pixel_shuffle(Operand(x, call_location()), factor_); }

PixelUnshuffle::PixelUnshuffle(std::int64_t downscale_factor) : factor_(downscale_factor) {
  require_positive(downscale_factor, "downscale_factor", "PixelUnshuffle");
  set_arguments(fmt::format("downscale_factor={}", downscale_factor));
}
Tensor PixelUnshuffle::forward(Tensor x) { return pixel_unshuffle(Operand(x, call_location()), factor_); }

ChannelShuffle::ChannelShuffle(std::int64_t groups) : groups_(groups) {
  require_positive(groups, "groups", "ChannelShuffle");
  set_arguments(fmt::format("groups={}", groups));
}
Tensor ChannelShuffle::forward(Tensor x) { return channel_shuffle(Operand(x, call_location()), groups_); }

Unfold::Unfold(Size2 kernel_size, WindowOptions options) : kernel_(kernel_size), options_(options) {
  set_arguments(window_arguments(kernel_size, options));
}
Tensor Unfold::forward(Tensor x) { return unfold(Operand(x, call_location()), kernel_, options_); }

Fold::Fold(Size2 output_size, Size2 kernel_size, WindowOptions options)
    : size_(output_size), kernel_(kernel_size), options_(options) {
  set_arguments(fmt::format("output_size={}, {}", tuple(output_size), window_arguments(kernel_size, options)));
}
Tensor Fold::forward(Tensor x) { return fold(Operand(x, call_location()), size_, kernel_, options_); }

}  // namespace graven::nn
