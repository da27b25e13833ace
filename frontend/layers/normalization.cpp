#include "graven/layers/normalization.h"

#include <limits>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "frontend/functional/batch_norm.h"
#include "frontend/layers/arguments.h"
#include "frontend/module_state.h"
#include "graven/functional.h"

namespace graven::nn {

using arguments::number;
using arguments::python;
using arguments::require_positive;
using graven::detail::At;

namespace {

const Sizes& checked(const Sizes& shape, const char* layer) {
  if (shape.empty()) throw UserError(std::string(layer) + ": normalized_shape must have at least one dimension");
  for (std::int64_t s : shape) require_positive(s, "each dimension of normalized_shape", layer);
  return shape;
}

/// The dimensions of a layer's input with its batch.
template <class Layer>
struct Dimensions;
template <>
struct Dimensions<BatchNorm1d> {
  static constexpr std::int64_t least = 2, most = 3;
  static constexpr const char *name = "BatchNorm1d", *expected = "[batch, channels] or [batch, channels, length]";
};
template <>
struct Dimensions<BatchNorm2d> {
  static constexpr std::int64_t least = 4, most = 4;
  static constexpr const char *name = "BatchNorm2d", *expected = "[batch, channels, height, width]";
};
template <>
struct Dimensions<BatchNorm3d> {
  static constexpr std::int64_t least = 5, most = 5;
  static constexpr const char *name = "BatchNorm3d", *expected = "[batch, channels, depth, height, width]";
};
template <>
struct Dimensions<SyncBatchNorm> {
  static constexpr std::int64_t least = 2, most = std::numeric_limits<std::int64_t>::max();
  static constexpr const char *name = "SyncBatchNorm", *expected = "[batch, channels, ...]";
};
template <>
struct Dimensions<InstanceNorm1d> {
  static constexpr std::int64_t most = 3;
  static constexpr const char *name = "InstanceNorm1d", *expected = "[batch, channels, length], or [channels, length]";
};
template <>
struct Dimensions<InstanceNorm2d> {
  static constexpr std::int64_t most = 4;
  static constexpr const char *name = "InstanceNorm2d",
                              *expected = "[batch, channels, height, width], or [channels, height, width]";
};
template <>
struct Dimensions<InstanceNorm3d> {
  static constexpr std::int64_t most = 5;
  static constexpr const char *name = "InstanceNorm3d",
                              *expected = "[batch, channels, depth, height, width], or without the batch";
};

template <class D>
void check_batch(const Tensor& x, Location where) {
  graven::detail::require_defined(x, D::name, where);
  if (x.dim() < D::least || x.dim() > D::most)
    graven::detail::fail(D::name, std::string("expects ") + D::expected + ", got " + x.describe(), where);
}

template <class Options>
std::string arguments_of(std::int64_t features, const Options& o) {
  const std::optional<double> momentum = o.momentum;
  return fmt::format("{}, eps={}, momentum={}, affine={}, track_running_stats={}", features, number(o.eps),
                     momentum ? number(*momentum) : "None", python(o.affine), python(o.track_running_stats));
}

}  // namespace

template <class Layer>
BatchNormNd<Layer>::BatchNormNd(std::int64_t num_features, BatchNormOptions options)
    : features_(num_features), options_(options) {
  require_positive(num_features, "num_features", Dimensions<Layer>::name);
  if (options.affine) {
    weight = this->parameter("weight", ones({num_features}));
    bias = this->parameter("bias", zeros({num_features}));
  }
  if (options.track_running_stats) {
    running_mean = this->buffer("running_mean", zeros({num_features}));
    running_var = this->buffer("running_var", ones({num_features}));
    num_batches_tracked = this->buffer("num_batches_tracked", tensor(0, DType::i64));
  }
  this->set_arguments(arguments_of(num_features, options));
  this->state()->is_batch_norm = true;
  this->state()->is_synchronised = std::is_same_v<Layer, SyncBatchNorm>;
}
template <class Layer>
Tensor BatchNormNd<Layer>::forward(Tensor x) {
  const Location where = this->call_location();
  const bool is_synchronised = this->state()->is_synchronised;
  if (is_synchronised)
    check_batch<Dimensions<SyncBatchNorm>>(x, where);
  else
    check_batch<Dimensions<Layer>>(x, where);
  // Behind eval() a layer without running statistics normalises each batch by itself.
  const bool sync = is_synchronised && this->is_training();
  const bool training = this->is_training() || !options_.track_running_stats;
  if (this->is_training() && options_.track_running_stats) num_batches_tracked.add_(Operand(1, where));
  if (!training || !options_.track_running_stats || options_.momentum)
    return graven::detail::batch_norm(Operand(x, where), running_mean, running_var, weight, bias, training,
                                      options_.momentum.value_or(0), options_.eps, sync);
  // With a momentum of 1 the batch's own statistics come out, which have their part in the mean over all batches.
  const DType dtype = running_mean.dtype();
  const Tensor mean = graven::detail::filled({features_}, 0, dtype, x, where),
               variance = graven::detail::filled({features_}, 0, dtype, x, where);
  const Tensor y =
      graven::detail::batch_norm(Operand(x, where), mean, variance, weight, bias, true, 1, options_.eps, sync);
  NoGradGuard no_grad;
  const At at(where);
  const Tensor batches = num_batches_tracked.to(dtype, where);
  running_mean.copy_(at.add(running_mean, at.div(at.sub(mean, running_mean), batches)), where);
  running_var.copy_(at.add(running_var, at.div(at.sub(variance, running_var), batches)), where);
  return y;
}
template class BatchNormNd<BatchNorm1d>;
template class BatchNormNd<BatchNorm2d>;
template class BatchNormNd<BatchNorm3d>;
template class BatchNormNd<SyncBatchNorm>;
BatchNorm1d::BatchNorm1d(std::int64_t num_features, BatchNormOptions options) : BatchNormNd(num_features, options) {}
BatchNorm2d::BatchNorm2d(std::int64_t num_features, BatchNormOptions options) : BatchNormNd(num_features, options) {}
BatchNorm3d::BatchNorm3d(std::int64_t num_features, BatchNormOptions options) : BatchNormNd(num_features, options) {}
SyncBatchNorm::SyncBatchNorm(std::int64_t num_features, BatchNormOptions options)
    : BatchNormNd(num_features, options) {}
void SyncBatchNorm::convert(const ModuleBase& module) {
  for (const ModuleBase& m : module.modules()) {
    ModuleState& state = *m.state();
    if (!state.is_batch_norm) continue;
    state.is_synchronised = true;
    state.class_name = Dimensions<SyncBatchNorm>::name;
  }
}

template <class Layer>
InstanceNormNd<Layer>::InstanceNormNd(std::int64_t num_features, InstanceNormOptions options)
    : features_(num_features), options_(options) {
  require_positive(num_features, "num_features", Dimensions<Layer>::name);
  if (options.affine) {
    weight = this->parameter("weight", ones({num_features}));
    bias = this->parameter("bias", zeros({num_features}));
  }
  if (options.track_running_stats) {
    running_mean = this->buffer("running_mean", zeros({num_features}));
    running_var = this->buffer("running_var", ones({num_features}));
    num_batches_tracked = this->buffer("num_batches_tracked", tensor(0, DType::i64));
  }
  this->set_arguments(arguments_of(num_features, options));
}
template <class Layer>
Tensor InstanceNormNd<Layer>::forward(Tensor x) {
  const Location where = this->call_location();
  using D = Dimensions<Layer>;
  graven::detail::require_defined(x, D::name, where);
  const bool batched = x.dim() == D::most;
  if (!batched && x.dim() != D::most - 1)
    graven::detail::fail(D::name, std::string("expects ") + D::expected + ", got " + x.describe(), where);
  if (!batched) x = x.unsqueeze(0, where);
  if (x.shape()[1] != Dim(features_))
    graven::detail::fail(D::name, "expects " + std::to_string(features_) + " channels, got " + x.describe(), where);
  const Tensor y = instance_norm(Operand(x, where), running_mean, running_var, weight, bias,
                                 this->is_training() || !options_.track_running_stats, options_.momentum, options_.eps);
  return batched ? y : y.squeeze(0, where);
}
template class InstanceNormNd<InstanceNorm1d>;
template class InstanceNormNd<InstanceNorm2d>;
template class InstanceNormNd<InstanceNorm3d>;
InstanceNorm1d::InstanceNorm1d(std::int64_t num_features, InstanceNormOptions options)
    : InstanceNormNd(num_features, options) {}
InstanceNorm2d::InstanceNorm2d(std::int64_t num_features, InstanceNormOptions options)
    : InstanceNormNd(num_features, options) {}
InstanceNorm3d::InstanceNorm3d(std::int64_t num_features, InstanceNormOptions options)
    : InstanceNormNd(num_features, options) {}

LayerNorm::LayerNorm(Sizes normalized_shape, LayerNormOptions options)
    : shape_(checked(normalized_shape, "LayerNorm")), eps_(options.eps) {
  if (options.elementwise_affine) {
    weight = parameter("weight", ones(Shape::of(shape_)));
    if (options.bias) bias = parameter("bias", zeros(Shape::of(shape_)));
  }
  set_arguments(fmt::format("{}, eps={}, elementwise_affine={}", arguments::tuple(shape_), number(eps_),
                            python(options.elementwise_affine)));
}
Tensor LayerNorm::forward(Tensor x) { return layer_norm(Operand(x, call_location()), shape_, weight, bias, eps_); }

RMSNorm::RMSNorm(Sizes normalized_shape, RMSNormOptions options)
    : shape_(checked(normalized_shape, "RMSNorm")), eps_(options.eps) {
  if (options.elementwise_affine) weight = parameter("weight", ones(Shape::of(shape_)));
  set_arguments(fmt::format("{}, eps={}, elementwise_affine={}", arguments::tuple(shape_),
                            eps_ ? number(*eps_) : "None", python(options.elementwise_affine)));
}
Tensor RMSNorm::forward(Tensor x) { return rms_norm(Operand(x, call_location()), shape_, weight, eps_); }

GroupNorm::GroupNorm(std::int64_t num_groups, std::int64_t num_channels, GroupNormOptions options)
    : groups_(num_groups), channels_(num_channels), eps_(options.eps) {
  require_positive(num_groups, "num_groups", "GroupNorm");
  require_positive(num_channels, "num_channels", "GroupNorm");
  if (num_channels % num_groups != 0)
    throw UserError(fmt::format("GroupNorm: num_groups {} must divide num_channels {}", num_groups, num_channels));
  if (options.affine) {
    weight = parameter("weight", ones({num_channels}));
    bias = parameter("bias", zeros({num_channels}));
  }
  set_arguments(
      fmt::format("{}, {}, eps={}, affine={}", num_groups, num_channels, number(eps_), python(options.affine)));
}
Tensor GroupNorm::forward(Tensor x) {
  const Location where = call_location();
  graven::detail::require_defined(x, "GroupNorm", where);
  if (x.dim() < 2 || x.shape()[1] != Dim(channels_))
    graven::detail::fail("GroupNorm", "expects [batch, " + std::to_string(channels_) + ", ...], got " + x.describe(),
                         where);
  return group_norm(Operand(x, where), groups_, weight, bias, eps_);
}

LocalResponseNorm::LocalResponseNorm(std::int64_t size, LocalResponseNormOptions options)
    : size_(size), options_(options) {
  arguments::require_positive(size, "size", "LocalResponseNorm");
  set_arguments(fmt::format("{}, alpha={}, beta={}, k={}", size, arguments::number(options.alpha),
                            arguments::number(options.beta), arguments::number(options.k)));
}
Tensor LocalResponseNorm::forward(Tensor x) {
  return local_response_norm(Operand(x, call_location()), size_, options_.alpha, options_.beta, options_.k);
}

}  // namespace graven::nn
