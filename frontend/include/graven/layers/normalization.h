// Normalisation layers, with PyTorch's names, defaults and parameters: weights start as 1, biases as 0.
//
//   nn::LayerNorm norm = child("norm", nn::LayerNorm({768}));
//   nn::GroupNorm(4, 32)                // 32 channels in 4 groups
//   nn::InstanceNorm2d(64, {.affine = true})
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <type_traits>

#include "graven/module.h"

namespace graven::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  ///< none: the running statistics are the mean over all batches so far
  bool affine = true;
  bool track_running_stats = true;
};
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;
using BatchNorm3dOptions = BatchNormOptions;

/// What BatchNorm1d, 2d and 3d share: each channel is normalised over the batch; running statistics are buffers.
template <class Layer>
class BatchNormNd : public Module<Layer> {
 public:
  Tensor forward(Tensor x);
  Registered<BatchNormNd> weight, bias, running_mean, running_var, num_batches_tracked;

 protected:
  BatchNormNd(std::int64_t num_features, BatchNormOptions options);

 private:
  std::int64_t features_;
  BatchNormOptions options_;
};
/// Of x[batch, channels] or [batch, channels, length].
class BatchNorm1d : public BatchNormNd<BatchNorm1d> {
 public:
  explicit BatchNorm1d(std::int64_t num_features, BatchNormOptions options = {});
};
/// Of x[batch, channels, height, width].
class BatchNorm2d : public BatchNormNd<BatchNorm2d> {
 public:
  explicit BatchNorm2d(std::int64_t num_features, BatchNormOptions options = {});
};
/// Of x[batch, channels, depth, height, width].
class BatchNorm3d : public BatchNormNd<BatchNorm3d> {
 public:
  explicit BatchNorm3d(std::int64_t num_features, BatchNormOptions options = {});
};
using SyncBatchNormOptions = BatchNormOptions;
/// Of x[batch, channels, ...]: where several ranks train together (nn::GraphBase::enable_data_parallel()), each channel
/// is normalised over the batches of all of them, which may be of different sizes. The variance of the running
/// statistics is unbiased by the values of all, and they are the same on every rank. With one rank, eagerly, in other
/// graphs and behind eval() it is BatchNorm1d, 2d or 3d, bit for bit.
class SyncBatchNorm : public BatchNormNd<SyncBatchNorm> {
 public:
  explicit SyncBatchNorm(std::int64_t num_features, BatchNormOptions options = {});
  /// Makes each BatchNorm1d, 2d and 3d of the module, and the module itself where it is one, a SyncBatchNorm: in the
  /// graphs that record it from here on. Names, parameters, buffers and the training flag stay as they are. The module
  /// is converted where it is, for handles share it, and returned.
  ///
  ///   models::ResNet model = child("model", nn::SyncBatchNorm::convert_sync_batchnorm(models::resnet18()));
  template <class M>
  static M convert_sync_batchnorm(M module) {
    static_assert(std::is_base_of_v<ModuleBase, M>, "what is converted must be a module");
    convert(module);
    return module;
  }

 private:
  static void convert(const ModuleBase& module);
};

struct InstanceNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;
  bool affine = false;
  bool track_running_stats = false;
};

/// What InstanceNorm1d, 2d and 3d share: each channel of each sample is normalised by itself.
template <class Layer>
class InstanceNormNd : public Module<Layer> {
 public:
  Tensor forward(Tensor x);
  Registered<InstanceNormNd> weight, bias, running_mean, running_var, num_batches_tracked;

 protected:
  InstanceNormNd(std::int64_t num_features, InstanceNormOptions options);

 private:
  std::int64_t features_;
  InstanceNormOptions options_;
};
/// Of x[batch, channels, length], or without the batch.
class InstanceNorm1d : public InstanceNormNd<InstanceNorm1d> {
 public:
  explicit InstanceNorm1d(std::int64_t num_features, InstanceNormOptions options = {});
};
/// Of x[batch, channels, height, width], or without the batch.
class InstanceNorm2d : public InstanceNormNd<InstanceNorm2d> {
 public:
  explicit InstanceNorm2d(std::int64_t num_features, InstanceNormOptions options = {});
};
/// Of x[batch, channels, depth, height, width], or without the batch.
class InstanceNorm3d : public InstanceNormNd<InstanceNorm3d> {
 public:
  explicit InstanceNorm3d(std::int64_t num_features, InstanceNormOptions options = {});
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
};
/// Over the last dimensions, which must be normalized_shape.
class LayerNorm : public Module<LayerNorm> {
 public:
  explicit LayerNorm(Sizes normalized_shape, LayerNormOptions options = {});
  explicit LayerNorm(std::int64_t size, LayerNormOptions options = {}) : LayerNorm(Sizes{size}, options) {}
  explicit LayerNorm(std::initializer_list<std::int64_t> normalized_shape, LayerNormOptions options = {})
      : LayerNorm(Sizes(normalized_shape), options) {}
  Tensor forward(Tensor x);
  Registered<LayerNorm> weight, bias;

 private:
  Sizes shape_;
  double eps_;
};

struct RMSNormOptions {
  std::optional<double> eps = {};  ///< none: the dtype's epsilon
  bool elementwise_affine = true;
};
class RMSNorm : public Module<RMSNorm> {
 public:
  explicit RMSNorm(Sizes normalized_shape, RMSNormOptions options = {});
  explicit RMSNorm(std::int64_t size, RMSNormOptions options = {}) : RMSNorm(Sizes{size}, options) {}
  explicit RMSNorm(std::initializer_list<std::int64_t> normalized_shape, RMSNormOptions options = {})
      : RMSNorm(Sizes(normalized_shape), options) {}
  Tensor forward(Tensor x);
  Registered<RMSNorm> weight;

 private:
  Sizes shape_;
  std::optional<double> eps_;
};

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;
};
/// Of x[batch, channels, ...], over each group of channels of each sample.
class GroupNorm : public Module<GroupNorm> {
 public:
  GroupNorm(std::int64_t num_groups, std::int64_t num_channels, GroupNormOptions options = {});
  Tensor forward(Tensor x);
  Registered<GroupNorm> weight, bias;

 private:
  std::int64_t groups_, channels_;
  double eps_;
};

struct LocalResponseNormOptions {
  double alpha = 1e-4, beta = 0.75, k = 1;
};
/// x / (k + alpha / size * the sum of x^2 over `size` neighbouring channels)^beta.
class LocalResponseNorm : public Module<LocalResponseNorm> {
 public:
  explicit LocalResponseNorm(std::int64_t size, LocalResponseNormOptions options = {});
  Tensor forward(Tensor x);

 private:
  std::int64_t size_;
  LocalResponseNormOptions options_;
};

}  // namespace graven::nn
