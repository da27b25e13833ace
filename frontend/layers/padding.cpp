#include "graven/layers/padding.h"

#include "frontend/dispatch.h"
#include "frontend/layers/arguments.h"

namespace graven::nn {

namespace {

/// [batch, channels, ...] or [channels, ...] with `dimensions` more.
Tensor padded(const char* layer, const Tensor& x, const Sizes& pads, const char* mode, double value, Location where) {
  const auto dimensions = static_cast<std::int64_t>(pads.size() / 2);
  graven::detail::require_defined(x, layer, where);
  if (x.dim() != dimensions + 1 && x.dim() != dimensions + 2)
    graven::detail::fail(
        layer,
        fmt::format("expects a tensor of {} or {} dimensions, got {}", dimensions + 1, dimensions + 2, x.describe()),
        where);
  return pad(Operand(x, where), pads, mode, value);
}

}  // namespace

ReflectionPad1d::ReflectionPad1d(Pads<2> padding) : padding_(std::move(padding.values)) {
  set_arguments(arguments::tuple(padding_));
}
Tensor ReflectionPad1d::forward(Tensor x) {
  return padded("ReflectionPad1d", x, padding_, "reflect", 0, call_location());
}
ReflectionPad2d::ReflectionPad2d(Pads<4> padding) : padding_(std::move(padding.values)) {
  set_arguments(arguments::tuple(padding_));
}
Tensor ReflectionPad2d::forward(Tensor x) {
  return padded("ReflectionPad2d", x, padding_, "reflect", 0, call_location());
}
ReflectionPad3d::ReflectionPad3d(Pads<6> padding) : padding_(std::move(padding.values)) {
  set_arguments(arguments::tuple(padding_));
}
Tensor ReflectionPad3d::forward(Tensor x) {
  return padded("ReflectionPad3d", x, padding_, "reflect", 0, call_location());
}
ReplicationPad1d::ReplicationPad1d(Pads<2> padding) : padding_(std::move(padding.values)) {
  set_arguments(arguments::tuple(padding_));
}
Tensor ReplicationPad1d::forward(Tensor x) {
  return padded("ReplicationPad1d", x, padding_, "replicate", 0, call_location());
}
ReplicationPad2d::ReplicationPad2d(Pads<4> padding) : padding_(std::move(padding.values)) {
  set_arguments(arguments::tuple(padding_));
}
Tensor ReplicationPad2d::forward(Tensor x) {
  return padded("ReplicationPad2d", x, padding_, "replicate", 0, call_location());
}
ReplicationPad3d::ReplicationPad3d(Pads<6> padding) : padding_(std::move(padding.values)) {
  set_arguments(arguments::tuple(padding_));
}
Tensor ReplicationPad3d::forward(Tensor x) {
  return padded("ReplicationPad3d", x, padding_, "replicate", 0, call_location());
}
CircularPad1d::CircularPad1d(Pads<2> padding) : padding_(std::move(padding.values)) {
  set_arguments(arguments::tuple(padding_));
}
Tensor CircularPad1d::forward(Tensor x) { return padded("CircularPad1d", x, padding_, "circular", 0, call_location()); }
CircularPad2d::CircularPad2d(Pads<4> padding) : padding_(std::move(padding.values)) {
  set_arguments(arguments::tuple(padding_));
}
Tensor CircularPad2d::forward(Tensor x) { return padded("CircularPad2d", x, padding_, "circular", 0, call_location()); }
CircularPad3d::CircularPad3d(Pads<6> padding) : padding_(std::move(padding.values)) {
  set_arguments(arguments::tuple(padding_));
}
Tensor CircularPad3d::forward(Tensor x) { return padded("CircularPad3d", x, padding_, "circular", 0, call_location()); }
ZeroPad1d::ZeroPad1d(Pads<2> padding) : padding_(std::move(padding.values)) {
  set_arguments(arguments::tuple(padding_));
}
Tensor ZeroPad1d::forward(Tensor x) { return padded("ZeroPad1d", x, padding_, "constant", 0, call_location()); }
ZeroPad2d::ZeroPad2d(Pads<4> padding) : padding_(std::move(padding.values)) {
  set_arguments(arguments::tuple(padding_));
}
Tensor ZeroPad2d::forward(Tensor x) { return padded("ZeroPad2d", x, padding_, "constant", 0, call_location()); }
ZeroPad3d::ZeroPad3d(Pads<6> padding) : padding_(std::move(padding.values)) {
  set_arguments(arguments::tuple(padding_));
}
Tensor ZeroPad3d::forward(Tensor x) { return padded("ZeroPad3d", x, padding_, "constant", 0, call_location()); }
ConstantPad1d::ConstantPad1d(Pads<2> padding, double value) : padding_(std::move(padding.values)), value_(value) {
  set_arguments(fmt::format("padding={}, value={}", arguments::tuple(padding_), arguments::number(value)));
}
Tensor ConstantPad1d::forward(Tensor x) {
  return padded("ConstantPad1d", x, padding_, "constant", value_, call_location());
}
ConstantPad2d::ConstantPad2d(Pads<4> padding, double value) : padding_(std::move(padding.values)), value_(value) {
  set_arguments(fmt::format("padding={}, value={}", arguments::tuple(padding_), arguments::number(value)));
}
Tensor ConstantPad2d::forward(Tensor x) {
  return padded("ConstantPad2d", x, padding_, "constant", value_, call_location());
}
ConstantPad3d::ConstantPad3d(Pads<6> padding, double value) : padding_(std::move(padding.values)), value_(value) {
  set_arguments(fmt::format("padding={}, value={}", arguments::tuple(padding_), arguments::number(value)));
}
Tensor ConstantPad3d::forward(Tensor x) {
  return padded("ConstantPad3d", x, padding_, "constant", value_, call_location());
}

}  // namespace graven::nn
