// Adafactor over a list of tensors, with the formulas of cpu/adafactor.h: five launches for 24 tensors.
//
//   // the host's arrays of device pointers
//   adafactor(context, config, count, params, grads, row_vars, col_vars, variances, sizes, lr, step);
//
// Squares are added up in double, by block and then block after block: the same bits on every run. The gradient is read
// four times, the parameter twice, and written once.
#pragma once

#include "../config/adafactor.h"
#include "block.cuh"
#include "call_faults.cuh"
#include "context.cuh"
#include "reduce.cuh"
#include "scalar_math.cuh"

namespace graven::kernels {

/// Passed by value: 24 tensors fit a kernel's 4 KB of parameters. A row of blocks each.
template <class T>
struct adafactor_list {
  static constexpr int kTensors = 24;
  T* params[kTensors];
  const T* grads[kTensors];
  T* row_vars[kTensors];  ///< nullptr: it is not factored
  T* col_vars[kTensors];
  T* variances[kTensors];
  std::int64_t matrices[kTensors], rows[kTensors], columns[kTensors];
  double* means[kTensors];  ///< of row_vars: one a matrix
  double* sums;             ///< [tensors, blocks, 2]: a block's sums of squares, of the parameter and of the changes

  __device__ std::int64_t numel(unsigned t) const { return matrices[t] * rows[t] * columns[t]; }
  /// What the block writes.
  __device__ double* own_sums() const {
    return sums + 2 * (static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x);
  }
};

/// What a step computes once, by one thread of each block: its number and the rate lie on the device.
template <class T>
struct adafactor_step {
  double eps1, eps2, d, rho;
  T weight, least, shrink;
  bool maximize;
};

/// Every thread of the block calls it.
template <class T>
__device__ inline adafactor_step<T> adafactor_at_step(const adafactor_config& config, const double* lr,
                                                      const std::int64_t* step) {
  __shared__ adafactor_step<T> numbers;
  if (threadIdx.x == 0) {
    const double slowing = 1 / math::sqrt(static_cast<double>(*step));
    numbers.eps1 = config.eps1;
    numbers.eps2 = config.eps2;
    numbers.d = config.d;
    numbers.rho = slowing < *lr ? slowing : *lr;
    numbers.weight = static_cast<T>(math::pow(static_cast<double>(*step), config.beta2_decay));
    numbers.least = static_cast<T>(config.eps1 * config.eps1);
    numbers.shrink = static_cast<T>(1 - *lr * config.weight_decay);
    numbers.maximize = config.maximize;
  }
  __syncthreads();
  return numbers;
}

/// mean + weight (square - mean), from the nearer one: in the first step the weight is 1.
template <class T>
__device__ inline T adafactor_mean(T mean, T weight, T square) {
  return weight < T(0.5) ? math::fma(weight, square - mean, mean) : math::fma(weight - 1, square - mean, square);
}

/// u of element i.
template <class T>
__device__ inline T adafactor_change(const adafactor_list<T>& list, const adafactor_step<T>& step, std::int64_t i) {
  const unsigned t = blockIdx.y;
  T estimate;
  if (list.row_vars[t] == nullptr) {
    estimate = list.variances[t][i];
  } else {
    const std::int64_t columns = list.columns[t], row = i / columns, matrix = row / list.rows[t];
    const double mean = list.means[t][matrix] < step.eps1 ? step.eps1 : list.means[t][matrix];
    estimate = list.col_vars[t][matrix * columns + i % columns] *
               static_cast<T>(static_cast<double>(list.row_vars[t][row]) / mean);
  }
  return list.grads[t][i] / math::sqrt(estimate < step.least ? step.least : estimate);  // NaN stays NaN
}

/// A block's sum of the squares of element(i), as its sum `Which`.
template <int Which, class T, class Element>
__device__ inline void add_squares(const adafactor_list<T>& list, const Element& element) {
  double sum = 0;
  for (std::int64_t i = first_item(); i < list.numel(blockIdx.y); i += item_stride()) {
    const double x = static_cast<double>(element(i));
    sum = math::fma(x, x, sum);
  }
  sum = block_reduce<sum_of>(sum);
  if (threadIdx.x == 0) list.own_sums()[Which] = sum;
}

/// The means of rows, a block each in turn, or of elements; and the parameter's squares.
template <class T>
__global__ void adafactor_rows_kernel(adafactor_list<T> list, adafactor_config config, const double* lr,
                                      const std::int64_t* number, const call_fault* fault) {
  if (!updates(number, fault)) return;
  const adafactor_step<T> step = adafactor_at_step<T>(config, lr, number);
  const unsigned t = blockIdx.y;
  const T* const grad = list.grads[t];
  if (list.row_vars[t] == nullptr) {
    for (std::int64_t i = first_item(); i < list.numel(t); i += item_stride())
      list.variances[t][i] = adafactor_mean(list.variances[t][i], step.weight, grad[i] * grad[i]);
  } else {
    const std::int64_t columns = list.columns[t];
    for (std::int64_t row = blockIdx.x; row < list.matrices[t] * list.rows[t]; row += gridDim.x) {
      double sum = 0;
      for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
        const double g = static_cast<double>(grad[row * columns + c]);
        sum = math::fma(g, g, sum);
      }
      sum = block_reduce<sum_of>(sum);
      if (threadIdx.x == 0)
        list.row_vars[t][row] =
            adafactor_mean(list.row_vars[t][row], step.weight, static_cast<T>(sum / static_cast<double>(columns)));
    }
  }
  add_squares<0>(list, [&](std::int64_t i) { return list.params[t][i]; });
}

/// The means of columns, a thread each.
template <class T>
__global__ void adafactor_columns_kernel(adafactor_list<T> list, adafactor_config config, const double* lr,
                                         const std::int64_t* number, const call_fault* fault) {
  if (!updates(number, fault)) return;
  const adafactor_step<T> step = adafactor_at_step<T>(config, lr, number);
  const unsigned t = blockIdx.y;
  if (list.row_vars[t] == nullptr) return;
  const std::int64_t rows = list.rows[t], columns = list.columns[t];
  for (std::int64_t i = first_item(); i < list.matrices[t] * columns; i += item_stride()) {
    const T* const grad = list.grads[t] + i / columns * rows * columns + i % columns;
    double sum = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      const double g = static_cast<double>(grad[r * columns]);
      sum = math::fma(g, g, sum);
    }
    list.col_vars[t][i] =
        adafactor_mean(list.col_vars[t][i], step.weight, static_cast<T>(sum / static_cast<double>(rows)));
  }
}

/// The mean of each matrix's row_vars, a block each.
template <class T>
__global__ void adafactor_means_kernel(adafactor_list<T> list) {
  const unsigned t = blockIdx.y;
  if (list.row_vars[t] == nullptr) return;
  for (std::int64_t matrix = blockIdx.x; matrix < list.matrices[t]; matrix += gridDim.x) {
    double sum = 0;
    for (std::int64_t r = threadIdx.x; r < list.rows[t]; r += blockDim.x)
      sum += static_cast<double>(list.row_vars[t][matrix * list.rows[t] + r]);
    sum = block_reduce<sum_of>(sum);
    if (threadIdx.x == 0) list.means[t][matrix] = sum / static_cast<double>(list.rows[t]);
  }
}

template <class T>
__global__ void adafactor_changes_kernel(adafactor_list<T> list, adafactor_config config, const double* lr,
                                         const std::int64_t* number, const call_fault* fault) {
  if (!updates(number, fault)) return;
  const adafactor_step<T> step = adafactor_at_step<T>(config, lr, number);
  add_squares<1>(list, [&](std::int64_t i) { return adafactor_change(list, step, i); });
}

template <class T>
__global__ void adafactor_apply_kernel(adafactor_list<T> list, adafactor_config config, const double* lr,
                                       const std::int64_t* number, const call_fault* fault) {
  if (!updates(number, fault)) return;
  const adafactor_step<T> step = adafactor_at_step<T>(config, lr, number);
  const unsigned t = blockIdx.y;
  const double* const sums = list.sums + 2 * static_cast<std::int64_t>(t) * gridDim.x;
  double of_parameter = 0, of_changes = 0;
  for (unsigned block = threadIdx.x; block < gridDim.x; block += blockDim.x) {
    of_parameter += sums[2 * block];
    of_changes += sums[2 * block + 1];
  }
  const double numel = static_cast<double>(list.numel(t));
  of_parameter = math::sqrt(block_reduce<sum_of>(of_parameter) / numel);
  of_changes = math::sqrt(block_reduce<sum_of>(of_changes) / numel) / step.d;
  const double length =
      step.rho * (of_parameter > step.eps2 ? of_parameter : step.eps2) / (of_changes > 1 ? of_changes : 1);
  const T change = static_cast<T>(step.maximize ? length : -length);
  T* const p = list.params[t];
  for (std::int64_t i = first_item(); i < list.numel(t); i += item_stride())
    p[i] = math::fma(change, adafactor_change(list, step, i), p[i] * step.shrink);
}

#ifndef __CUDACC_RTC__

/// `lr` and `step`, which counts from 1, lie on the device; in step 0 nothing is changed, nor behind a
/// number out of range (call_faults.cuh).
template <class T>
void adafactor(CudaContext& context, const adafactor_config& config, std::int64_t count, T* const* params,
               const plain_t<T>* const* grads, plain_t<T>* const* row_vars, plain_t<T>* const* col_vars,
               plain_t<T>* const* variances, const std::int64_t* sizes, const double* lr, const std::int64_t* step) {
  using List = adafactor_list<T>;
  const call_fault* const fault = fault_of_calls(context);
  for (std::int64_t first = 0; first < count; first += List::kTensors) {
    List list{};
    const std::int64_t tensors = count - first < List::kTensors ? count - first : List::kTensors;
    std::int64_t largest = 0, means = 0;
    for (std::int64_t t = 0; t < tensors; ++t) {
      const adafactor_shape shape(sizes + 3 * (first + t));
      list.params[t] = params[first + t];
      list.grads[t] = grads[first + t];
      if (row_vars != nullptr) list.row_vars[t] = row_vars[first + t];
      if (col_vars != nullptr) list.col_vars[t] = col_vars[first + t];
      if (variances != nullptr) list.variances[t] = variances[first + t];
      list.matrices[t] = shape.matrices;
      list.rows[t] = shape.rows;
      list.columns[t] = shape.columns;
      if (shape.numel() == 0) list.matrices[t] = 0;
      means += list.matrices[t];
      if (shape.numel() > largest) largest = shape.numel();
    }
    LaunchShape shape = launch_shape(largest);
    if (shape.blocks.x > 1024) shape.blocks.x = 1024;
    shape.blocks.y = static_cast<unsigned>(tensors);
    double* workspace = static_cast<double*>(context.workspace(
        (static_cast<std::size_t>(means) + std::size_t{2} * shape.blocks.x * shape.blocks.y) * sizeof(double)));
    list.sums = workspace;
    workspace += std::size_t{2} * shape.blocks.x * shape.blocks.y;
    for (std::int64_t t = 0; t < tensors; ++t) {
      list.means[t] = workspace;
      workspace += list.matrices[t];
    }
    launch(context, "adafactor_rows", &adafactor_rows_kernel<T>, shape, list, config, lr, step, fault);
    launch(context, "adafactor_columns", &adafactor_columns_kernel<T>, shape, list, config, lr, step, fault);
    launch(context, "adafactor_means", &adafactor_means_kernel<T>, shape, list);
    launch(context, "adafactor_changes", &adafactor_changes_kernel<T>, shape, list, config, lr, step, fault);
    launch(context, "adafactor", &adafactor_apply_kernel<T>, shape, list, config, lr, step, fault);
  }
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
