// Convolutions against the card's limits: timing.cuh.
//
//   nvcc -std=c++20 -O3 -arch=native -I. tests/gpu/convolutions.cu -lcublasLt -o convolutions
//   ./convolutions [--filter TEXT] [--json FILE] [--check]
//
// Layers of ResNet-50, one image and 64, and of MobileNetV2: the layer with a bias and ReLU, and both gradients without
// a bias, as beside batch normalisation; in f32, in TF32 and in bf16, of which the last two are cuDNN's where it is
// installed. The operations are those of the definition, padding included: an algorithm that needs fewer, and those of
// tensor cores, may come out above 100 %.
#include "kernels/cuda/conv2d.cuh"

#include "timing.cuh"

namespace graven::kernels {
namespace {

using timing::Table;
using timing::Tensors;

struct relu {
  static constexpr int inputs = 1;
  template <class T>
  GRAVEN_DEVICE static T apply(T x) {
    return x < T(0) ? T(0) : x;
  }
};

}  // namespace
template <>
[[maybe_unused]] inline constexpr bool is_relu<relu> = true;
namespace {

struct Layer {
  std::int64_t batch, size, in, out, kernel, stride, padding, groups;
};

conv2d_config config_of(const Layer& layer) {
  const std::int64_t out_size = conv2d_out_size(layer.size, layer.kernel, layer.stride, layer.padding, 1);
  return {.batch = layer.batch,
          .in_height = layer.size,
          .in_width = layer.size,
          .in_channels = layer.in,
          .out_height = out_size,
          .out_width = out_size,
          .out_channels = layer.out,
          .kernel_height = layer.kernel,
          .kernel_width = layer.kernel,
          .stride_height = layer.stride,
          .stride_width = layer.stride,
          .padding_height = layer.padding,
          .padding_width = layer.padding,
          .groups = layer.groups};
}

template <class T>
void add_layer_of(Table& table, const Layer& layer, bool tf32, const std::string& type) {
  conv2d_config config = config_of(layer);
  config.tf32 = tf32;
  const std::int64_t inputs = config.batch * config.in_height * config.in_width * config.in_channels,
                     outputs = config.batch * config.out_height * config.out_width * config.out_channels,
                     each = config.in_channels / config.groups * config.kernel_height * config.kernel_width,
                     weights = config.out_channels * each, flops = 2 * outputs * each;
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  const std::string shape = " [" + text(layer.batch) + "," + text(layer.size) + "," + text(layer.size) + "," +
                            text(layer.in) + "->" + text(layer.out) + "] " + text(layer.kernel) + "x" +
                            text(layer.kernel) + (layer.stride > 1 ? " stride " + text(layer.stride) : "") +
                            (layer.groups > 1 ? " depthwise" : "") + type;
  table.add("conv2d" + shape, [=](Tensors& tensors) {
    const T *x = tensors.in<T>(inputs), *w = tensors.in<T>(weights), *bias = tensors.in<T>(config.out_channels);
    T* y = tensors.out<T>(outputs);
    tensors.computes(flops);
    return [=](CudaContext& context) { conv2d<relu>(context, config, y, x, w, bias); };
  });
  table.add("conv2d_backward_input" + shape, [=](Tensors& tensors) {
    const T *dy = tensors.in<T>(outputs), *w = tensors.in<T>(weights);
    T* dx = tensors.out<T>(inputs);
    tensors.computes(flops);
    return [=](CudaContext& context) { conv2d_backward_input(context, config, dx, dy, w); };
  });
  table.add("conv2d_backward_weight" + shape, [=](Tensors& tensors) {
    const T *dy = tensors.in<T>(outputs), *x = tensors.in<T>(inputs);
    float* dw = tensors.out(weights);
    tensors.computes(flops);
    return [=](CudaContext& context) { conv2d_backward_weight(context, config, dw, nullptr, dy, x); };
  });
}

void add_layer(Table& table, const Layer& layer) {
  add_layer_of<float>(table, layer, false, "");
  add_layer_of<float>(table, layer, true, " TF32");
  add_layer_of<bf16>(table, layer, false, " bf16");
}

void add_cases(Table& table) {
  const auto size = [&](std::int64_t full, std::int64_t small) { return table.size(full, small); };
  for (const std::int64_t batch : {size(1, 1), size(64, 2)}) {
    add_layer(table, {batch, size(56, 6), size(64, 8), size(64, 8), 3, 1, 1, 1});
    add_layer(table, {batch, size(14, 3), size(1024, 12), size(256, 5), 1, 1, 0, 1});
    add_layer(table, {batch, size(56, 5), size(256, 8), size(512, 12), 1, 2, 0, 1});
    add_layer(table, {batch, size(224, 9), 3, size(64, 8), 7, 2, 3, 1});
  }
  const std::int64_t channels = size(144, 12);
  for (const std::int64_t stride : {1, 2})
    add_layer(table, {size(64, 2), size(32, 5), channels, channels, 3, stride, 1, channels});
}

}  // namespace
}  // namespace graven::kernels

int main(int argc, char** argv) { return graven::kernels::timing::run(argc, argv, graven::kernels::add_cases); }
