// Many tensors in one launch, for optimizers: up to 24 at a time, a row of blocks each.
//
//   for_each_list<float, 3>(count, {params, grads, momenta}, sizes,
//                           [&](const auto& list, const LaunchShape& shape) { launch(...); });
#pragma once

#include "context.cuh"

namespace graven::kernels {

/// Passed by value to the kernel: 24 tensors of `Arrays` pointers each fit its 4 KB of parameters.
template <class T, int Arrays>
struct tensor_list {
  static constexpr int kTensors = 24;
  T* data[Arrays][kTensors];
  std::int64_t sizes[kTensors];
};

#ifndef __CUDACC_RTC__

/// Calls launch_one(list, shape) for groups of tensors; a null array stays null in the list.
template <class T, int Arrays, class Launch>
void for_each_list(std::int64_t count, T* const* const (&arrays)[Arrays], const std::int64_t* sizes,
                   Launch launch_one) {
  using List = tensor_list<T, Arrays>;
  for (std::int64_t first = 0; first < count; first += List::kTensors) {
    List list{};
    const std::int64_t tensors = count - first < List::kTensors ? count - first : List::kTensors;
    std::int64_t largest_size = 0;
    for (std::int64_t t = 0; t < tensors; ++t) {
      for (int a = 0; a < Arrays; ++a) list.data[a][t] = arrays[a] != nullptr ? arrays[a][first + t] : nullptr;
      list.sizes[t] = sizes[first + t];
      if (list.sizes[t] > largest_size) largest_size = list.sizes[t];
    }
    LaunchShape shape = launch_shape(largest_size);
    if (shape.blocks.x > 1024) shape.blocks.x = 1024;
    shape.blocks.y = static_cast<unsigned>(tensors);
    launch_one(list, shape);
  }
}

#endif  // __CUDACC_RTC__

}  // namespace graven::kernels
