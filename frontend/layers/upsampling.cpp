#include "graven/layers/upsampling.h"

#include "frontend/layers/arguments.h"

namespace graven::nn {

namespace {

std::string described(const UpsampleOptions& o) {
  std::string text;
  if (!o.scale_factor.empty())
    text = "scale_factor=" +
           (o.scale_factor.size() == 1 ? arguments::number(o.scale_factor[0]) : arguments::tuple(o.scale_factor));
  else
    text = "size=" + (o.size.size() == 1 ? std::to_string(o.size[0]) : arguments::tuple(o.size));
  return text + ", mode='" + o.mode + "'";
}

}  // namespace

Upsample::Upsample(UpsampleOptions options) : options_(std::move(options)) { set_arguments(described(options_)); }
Tensor Upsample::forward(Tensor x) { return interpolate(Operand(x, call_location()), options_); }

UpsamplingNearest2d::UpsamplingNearest2d(UpsampleOptions options) : options_(std::move(options)) {
  options_.mode = "nearest";
  options_.align_corners.reset();
  set_arguments(described(options_));
}
Tensor UpsamplingNearest2d::forward(Tensor x) { return interpolate(Operand(x, call_location()), options_); }

UpsamplingBilinear2d::UpsamplingBilinear2d(UpsampleOptions options) : options_(std::move(options)) {
  options_.mode = "bilinear";
  options_.align_corners = true;
  set_arguments(described(options_));
}
Tensor UpsamplingBilinear2d::forward(Tensor x) { return interpolate(Operand(x, call_location()), options_); }

}  // namespace graven::nn
