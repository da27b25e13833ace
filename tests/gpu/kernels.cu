// CUDA kernels against the card's limits: timing.cuh.
//
//   nvcc -std=c++20 -O3 -arch=native -I. tests/gpu/kernels.cu -lcublasLt -o kernels
//   ./kernels [--filter TEXT] [--json FILE] [--check]
//
// Shapes are those of layers of ResNet-50, MobileNetV2 and GPT-2, f32. A kernel that must go twice over what the cache
// does not hold (batch normalisation learns a channel's mean before it can apply it) cannot reach 100 %.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/batch_norm.cuh"
#include "kernels/cuda/clip_factor.cuh"
#include "kernels/cuda/concat.cuh"
#include "kernels/cuda/cross_entropy.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/group_norm.cuh"
#include "kernels/cuda/index.cuh"
#include "kernels/cuda/layer_norm.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/matmul.cuh"
#include "kernels/cuda/pad_border.cuh"
#include "kernels/cuda/pool2d.cuh"
#include "kernels/cuda/random.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/resample.cuh"
#include "kernels/cuda/scalar_math.cuh"
#include "kernels/cuda/scan.cuh"
#include "kernels/cuda/softmax.cuh"
#include "kernels/cuda/sort.cuh"
#include "kernels/cuda/strided_copy.cuh"
#include "kernels/cuda/update.cuh"

#include "timing.cuh"

namespace graven::kernels {
namespace {

using timing::named;
using timing::Table;
using timing::Tensors;

struct add {
  static constexpr int inputs = 2;
  template <class T>
  GRAVEN_DEVICE static T apply(T x, T y) {
    return x + y;
  }
};
struct multiply {
  static constexpr int inputs = 2;
  template <class T>
  GRAVEN_DEVICE static T apply(T x, T y) {
    return x * y;
  }
};
struct gelu {
  static constexpr int inputs = 1;
  template <class T>
  GRAVEN_DEVICE static T apply(T x) {
    return T(0.5) * x * (T(1) + math::erf(x * T(0.70710678118654752)));
  }
};

struct adam_config {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};
/// m += (1 - beta1) (g - m); v = beta2 v + (1 - beta2) g^2; p -= lr m' / (sqrt(v') + eps), m' and v' without the bias
/// of their start at 0 (Kingma and Ba 2015), and p shrinks by lr weight_decay (Loshchilov and Hutter 2019).
struct adam_rule {
  template <class C>
  struct numbers {
    C toward_gradient, beta2, toward_square, rate, root_correction, eps, kept;
  };
  template <class C, class Config>
  GRAVEN_DEVICE static numbers<C> at_step(const Config& config, double lr, std::int64_t step) {
    const auto steps = static_cast<double>(step);
    return {.toward_gradient = static_cast<C>(1 - config.beta1),
            .beta2 = static_cast<C>(config.beta2),
            .toward_square = static_cast<C>(1 - config.beta2),
            .rate = static_cast<C>(lr / (1 - math::pow(config.beta1, steps))),
            .root_correction = static_cast<C>(1 / math::sqrt(1 - math::pow(config.beta2, steps))),
            .eps = static_cast<C>(config.eps),
            .kept = static_cast<C>(1 - lr * config.weight_decay)};
  }
  template <class C>
  GRAVEN_DEVICE static void apply(const numbers<C>& k, C& p, C grad, C& m, C& v) {
    m = math::fma(k.toward_gradient, grad - m, m);
    v = math::fma(k.beta2, v, k.toward_square * grad * grad);
    p = k.kept * p - k.rate * m / math::fma(math::sqrt(v), k.root_correction, k.eps);
  }
};

// ---- elementwise, copies --------------------------------------------------------------------------------------------

void add_elementwise(Table& table) {
  const std::int64_t n = table.size(std::int64_t{1} << 26, 1000);
  table.add(named("elementwise add", {n}), [=](Tensors& tensors) {
    const float *a = tensors.in(n), *b = tensors.in(n);
    float* y = tensors.out(n);
    return [=](CudaContext& context) { elementwise<add>(context, elementwise_config{.n = n}, y, a, b); };
  });
  table.add(named("elementwise gelu", {n}), [=](Tensors& tensors) {
    const float* x = tensors.in(n);
    float* y = tensors.out(n);
    return [=](CudaContext& context) { elementwise<gelu>(context, elementwise_config{.n = n}, y, x); };
  });
  const std::int64_t rows = table.size(8192, 5), columns = table.size(4096, 12);
  table.add(named("broadcast add", {rows, columns}) + named(" +", {columns}), [=](Tensors& tensors) {
    const float *x = tensors.in(rows * columns), *bias = tensors.in(columns);
    float* y = tensors.out(rows * columns);
    const broadcast_config config{.rank = 2, .shape = {rows, columns}, .strides = {{columns, 1}, {0, 1}}};
    return [=](CudaContext& context) { broadcast<add>(context, config, y, x, bias); };
  });
  const std::int64_t batch = table.size(64, 2), pixels = table.size(56 * 56, 9), channels = table.size(256, 8);
  table.add(named("broadcast multiply", {batch, pixels, channels}) + named(" *", {batch, 1, channels}),
            [=](Tensors& tensors) {
              const float *x = tensors.in(batch * pixels * channels), *scale = tensors.in(batch * channels);
              float* y = tensors.out(batch * pixels * channels);
              const broadcast_config config{.rank = 3,
                                            .shape = {batch, pixels, channels},
                                            .strides = {{pixels * channels, channels, 1}, {channels, 0, 1}}};
              return [=](CudaContext& context) { broadcast<multiply>(context, config, y, x, scale); };
            });
  table.add(named("fill", {n}), [=](Tensors& tensors) {
    float* y = tensors.out(n);
    return [=](CudaContext& context) { fill(context, fill_config{.n = n, .value = 1.5}, y); };
  });
}

void add_copies(Table& table) {
  const std::int64_t images = table.size(64, 2), channels = table.size(64, 8), side = table.size(56, 5);
  const std::int64_t pixels = side * side, n = images * channels * pixels;
  const auto add_copy = [&](const std::string& name, const strided_copy_config& config, std::int64_t count) {
    table.add(name, [=](Tensors& tensors) {
      const float* x = tensors.in(count);
      float* y = tensors.out(count);
      return [=](CudaContext& context) { strided_copy(context, config, y, x); };
    });
  };
  add_copy(named("strided_copy NHWC -> NCHW", {images, channels, side, side}),
           {.rank = 4,
            .shape = {images, channels, side, side},
            .strides = {pixels * channels, 1, side * channels, channels}},
           n);
  add_copy(named("strided_copy NCHW -> NHWC", {images, side, side, channels}),
           {.rank = 4, .shape = {images, side, side, channels}, .strides = {pixels * channels, side, 1, pixels}}, n);
  const std::int64_t batch = table.size(8, 2), tokens = table.size(1024, 5), heads = table.size(12, 3),
                     size = table.size(64, 4);
  add_copy(
      named("strided_copy heads", {batch, tokens, heads, size}),
      {.rank = 4, .shape = {batch, heads, tokens, size}, .strides = {tokens * heads * size, size, heads * size, 1}},
      batch * tokens * heads * size);
  const auto add_concat = [&](std::int64_t outer, std::int64_t inner, std::int64_t first, std::int64_t second) {
    table.add(named("concat", {outer, first, inner}) + named(" and", {outer, second, inner}), [=](Tensors& tensors) {
      const float *a = tensors.in(outer * first * inner), *b = tensors.in(outer * second * inner);
      float* y = tensors.out(outer * (first + second) * inner);
      return [=](CudaContext& context) {
        const float* const xs[] = {a, b};
        const std::int64_t sizes[] = {first, second};
        concat(context, concat_config{.outer = outer, .inner = inner}, y, 2, xs, sizes);
      };
    });
  };
  add_concat(images * pixels, 1, table.size(64, 8), table.size(32, 3));
  add_concat(images, pixels, table.size(128, 3), table.size(64, 2));
}

// ---- reductions -----------------------------------------------------------------------------------------------------

void add_reductions(Table& table) {
  const auto add_sum = [&](const std::string& name, const reduce_config& config) {
    table.add(name, [=](Tensors& tensors) {
      const float* x = tensors.in(config.outer * config.size * config.inner);
      float* y = tensors.out(config.outer * config.inner);
      return [=](CudaContext& context) { reduce_sum(context, config, y, x); };
    });
  };
  const std::int64_t rows = table.size(8192, 5), columns = table.size(4096, 600);
  add_sum(named("reduce_sum rows", {rows, columns}), {.outer = rows, .size = columns});
  add_sum(named("reduce_sum columns", {rows, columns}), {.outer = 1, .size = rows, .inner = columns});
  const std::int64_t batch = table.size(256, 7), features = table.size(3072, 12);
  add_sum(named("reduce_sum columns", {batch, features}), {.outer = 1, .size = batch, .inner = features});
  const std::int64_t classes = table.size(1000, 37);
  table.add(named("argmax", {rows, classes}), [=](Tensors& tensors) {
    const float* x = tensors.in(rows * classes);
    std::int64_t* y = tensors.out<std::int64_t>(rows);
    return [=](CudaContext& context) { argmax(context, reduce_config{.outer = rows, .size = classes}, y, x); };
  });
}

// ---- rows -----------------------------------------------------------------------------------------------------------

void add_softmaxes(Table& table) {
  const softmax_config config{.outer = table.size(8192, 5), .size = table.size(1024, 100)};
  const std::int64_t n = config.outer * config.size;
  table.add(named("softmax", {config.outer, config.size}), [=](Tensors& tensors) {
    const float* x = tensors.in(n);
    float* y = tensors.out(n);
    return [=](CudaContext& context) { softmax(context, config, y, x); };
  });
  table.add(named("softmax_backward", {config.outer, config.size}), [=](Tensors& tensors) {
    const float *dy = tensors.in(n), *y = tensors.in(n, 0, 1);
    float* dx = tensors.out(n);
    return [=](CudaContext& context) { softmax_backward(context, config, dx, dy, y); };
  });
  const std::int64_t matrices = table.size(96, 2), tokens = table.size(1024, 36);
  const std::int64_t scores = matrices * tokens * tokens, unseen = matrices * tokens * (tokens - 1) / 2;
  const causal_softmax_config causal{.matrices = matrices, .queries = tokens, .keys = tokens};
  table.add(named("causal_softmax", {matrices, tokens, tokens}), [=](Tensors& tensors) {
    const float* x = tensors.in(scores);
    float* y = tensors.out(scores);
    tensors.leave_out(unseen * 4);
    return [=](CudaContext& context) { causal_softmax(context, causal, y, x); };
  });
  table.add(named("causal_softmax_backward", {matrices, tokens, tokens}), [=](Tensors& tensors) {
    const float *dy = tensors.in(scores), *y = tensors.in(scores, 0, 1);
    float* dx = tensors.out(scores);
    tensors.leave_out(2 * unseen * 4);
    return [=](CudaContext& context) { causal_softmax_backward(context, causal, dx, dy, y); };
  });
}

void add_cross_entropy(Table& table) {
  const cross_entropy_config config{.rows = table.size(4096, 5), .classes = table.size(50257, 71), .reduction = 1};
  const std::int64_t n = config.rows * config.classes;
  table.add(named("cross_entropy", {config.rows, config.classes}), [=](Tensors& tensors) {
    const float* logits = tensors.in(n);
    const auto* labels = tensors.in<std::int64_t>(config.rows, 0, static_cast<double>(config.classes));
    float *loss = tensors.out(1), *probabilities = tensors.out(n);
    return [=](CudaContext& context) { cross_entropy(context, config, loss, probabilities, logits, labels); };
  });
  table.add(named("cross_entropy_backward", {config.rows, config.classes}), [=](Tensors& tensors) {
    const float *dloss = tensors.in(1), *probabilities = tensors.in(n, 0, 1);
    const auto* labels = tensors.in<std::int64_t>(config.rows, 0, static_cast<double>(config.classes));
    float* dlogits = tensors.out(n);
    return
        [=](CudaContext& context) { cross_entropy_backward(context, config, dlogits, dloss, probabilities, labels); };
  });
}

// ---- normalisations -------------------------------------------------------------------------------------------------

void add_layer_norms(Table& table) {
  const layer_norm_config config{.rows = table.size(8192, 9), .size = table.size(768, 52)};
  const std::int64_t n = config.rows * config.size;
  table.add(named("layer_norm", {config.rows, config.size}), [=](Tensors& tensors) {
    const float *x = tensors.in(n), *gamma = tensors.in(config.size), *beta = tensors.in(config.size);
    float *y = tensors.out(n), *mean = tensors.out(config.rows), *rstd = tensors.out(config.rows);
    return [=](CudaContext& context) { layer_norm(context, config, y, mean, rstd, x, gamma, beta); };
  });
  table.add(named("layer_norm_backward", {config.rows, config.size}), [=](Tensors& tensors) {
    const float *dy = tensors.in(n), *x = tensors.in(n), *gamma = tensors.in(config.size),
                *mean = tensors.in(config.rows), *rstd = tensors.in(config.rows, 0.5, 1.5);
    float *dx = tensors.out(n), *dgamma = tensors.out(config.size), *dbeta = tensors.out(config.size);
    return [=](CudaContext& context) {
      layer_norm_backward(context, config, dx, dgamma, dbeta, dy, x, gamma, mean, rstd);
    };
  });
  table.add(named("rms_norm", {config.rows, config.size}), [=](Tensors& tensors) {
    const float *x = tensors.in(n), *gamma = tensors.in(config.size);
    float *y = tensors.out(n), *rstd = tensors.out(config.rows);
    return [=](CudaContext& context) { rms_norm(context, config, y, rstd, x, gamma); };
  });
  table.add(named("rms_norm_backward", {config.rows, config.size}), [=](Tensors& tensors) {
    const float *dy = tensors.in(n), *x = tensors.in(n), *gamma = tensors.in(config.size),
                *rstd = tensors.in(config.rows, 0.5, 1.5);
    float *dx = tensors.out(n), *dgamma = tensors.out(config.size);
    return [=](CudaContext& context) { rms_norm_backward(context, config, dx, dgamma, dy, x, gamma, rstd); };
  });
}

void add_batch_norms(Table& table, std::int64_t outer, std::int64_t channels) {
  const batch_norm_config config{.outer = outer, .channels = channels};
  const std::int64_t n = outer * channels;
  table.add(named("batch_norm", {outer, channels}), [=](Tensors& tensors) {
    const float *x = tensors.in(n), *gamma = tensors.in(channels), *beta = tensors.in(channels),
                *running_mean = tensors.in(channels), *running_var = tensors.in(channels, 0.5, 1.5);
    float *y = tensors.out(n), *mean = tensors.out(channels), *rstd = tensors.out(channels),
          *new_mean = tensors.out(channels), *new_var = tensors.out(channels);
    return [=](CudaContext& context) {
      batch_norm(context, config, y, mean, rstd, new_mean, new_var, x, gamma, beta, running_mean, running_var);
    };
  });
  table.add(named("batch_norm_backward", {outer, channels}), [=](Tensors& tensors) {
    const float *dy = tensors.in(n), *x = tensors.in(n), *gamma = tensors.in(channels), *mean = tensors.in(channels),
                *rstd = tensors.in(channels, 0.5, 1.5);
    float *dx = tensors.out(n), *dgamma = tensors.out(channels), *dbeta = tensors.out(channels);
    return [=](CudaContext& context) {
      batch_norm_backward(context, config, dx, dgamma, dbeta, dy, x, gamma, mean, rstd);
    };
  });
  table.add(named("batch_norm_inference", {outer, channels}), [=](Tensors& tensors) {
    const float *x = tensors.in(n), *gamma = tensors.in(channels), *beta = tensors.in(channels),
                *mean = tensors.in(channels), *var = tensors.in(channels, 0.5, 1.5);
    float* y = tensors.out(n);
    return [=](CudaContext& context) { batch_norm_inference(context, config, y, x, gamma, beta, mean, var); };
  });
}

void add_group_norms(Table& table) {
  const group_norm_config config{.batch = table.size(8, 2),
                                 .channels = table.size(64, 6),
                                 .groups = table.size(32, 3),
                                 .inner = table.size(64 * 64, 25)};
  const std::int64_t n = config.batch * config.channels * config.inner, groups = config.batch * config.groups;
  const std::string shape =
      named("", {config.batch, config.channels, config.inner}) + " in " + std::to_string(config.groups) + " groups";
  table.add("group_norm" + shape, [=](Tensors& tensors) {
    const float *x = tensors.in(n), *gamma = tensors.in(config.channels), *beta = tensors.in(config.channels);
    float *y = tensors.out(n), *mean = tensors.out(groups), *rstd = tensors.out(groups);
    return [=](CudaContext& context) { group_norm(context, config, y, mean, rstd, x, gamma, beta); };
  });
  table.add("group_norm_backward" + shape, [=](Tensors& tensors) {
    const float *dy = tensors.in(n), *x = tensors.in(n), *gamma = tensors.in(config.channels),
                *mean = tensors.in(groups), *rstd = tensors.in(groups, 0.5, 1.5);
    float *dx = tensors.out(n), *dgamma = tensors.out(config.channels), *dbeta = tensors.out(config.channels);
    return [=](CudaContext& context) {
      group_norm_backward(context, config, dx, dgamma, dbeta, dy, x, gamma, mean, rstd);
    };
  });
}

// ---- embeddings, random numbers -------------------------------------------------------------------------------------

void add_embeddings(Table& table) {
  const index_select_config config{
      .size = table.size(50257, 40), .inner = table.size(768, 12), .count = table.size(8192, 23)};
  const std::int64_t named_rows = config.count * config.inner, all = config.size * config.inner;
  table.add(named("index_select", {config.count, config.inner}) + " of " + std::to_string(config.size),
            [=](Tensors& tensors) {
              const float* x = tensors.in(all);
              tensors.leave_out((all - named_rows) * 4);
              const auto* index = tensors.in<std::int64_t>(config.count, 0, static_cast<double>(config.size));
              float* y = tensors.out(named_rows);
              return [=](CudaContext& context) { index_select(context, config, y, x, index); };
            });
  table.add(named("index_add", {config.count, config.inner}) + " to " + std::to_string(config.size),
            [=](Tensors& tensors) {
              const float* dy = tensors.in(named_rows);
              const auto* index = tensors.in<std::int64_t>(config.count, 0, static_cast<double>(config.size));
              float* dx = tensors.out(all);
              return [=](CudaContext& context) { index_add(context, config, dx, dy, index, nullptr); };
            });
}

void add_random(Table& table) {
  const std::int64_t n = table.size(std::int64_t{1} << 25, 1001);
  table.add(named("dropout", {n}), [=](Tensors& tensors) {
    const float* x = tensors.in(n);
    float* y = tensors.out(n);
    const std::int64_t* numbers = tensors.in<std::int64_t>(2, 1, 100);
    return [=](CudaContext& context) {
      dropout(context, dropout_config{.n = n, .p = 0.1, .stream = 3}, y, x, numbers, numbers + 1);
    };
  });
  table.add(named("random_normal", {n}), [=](Tensors& tensors) {
    float* y = tensors.out(n);
    const std::int64_t* numbers = tensors.in<std::int64_t>(2, 1, 100);
    return [=](CudaContext& context) {
      random_normal(context, random_config{.n = n, .stream = 3}, y, numbers, numbers + 1);
    };
  });
}

// ---- images ---------------------------------------------------------------------------------------------------------

pool2d_config pool_of(std::int64_t batch, std::int64_t side, std::int64_t channels, std::int64_t kernel,
                      std::int64_t stride, std::int64_t padding) {
  const std::int64_t out = pool2d_out_size(side, kernel, stride, padding, 1, false);
  return {.batch = batch,
          .channels = channels,
          .in_height = side,
          .in_width = side,
          .out_height = out,
          .out_width = out,
          .kernel_height = kernel,
          .kernel_width = kernel,
          .stride_height = stride,
          .stride_width = stride,
          .padding_height = padding,
          .padding_width = padding};
}

void add_average_pools(Table& table, const std::string& shape, const pool2d_config& config) {
  const std::int64_t images = config.batch * config.channels, inputs = images * config.in_height * config.in_width,
                     outputs = images * config.out_height * config.out_width;
  table.add("avg_pool2d" + shape, [=](Tensors& tensors) {
    const float* x = tensors.in(inputs);
    float* y = tensors.out(outputs);
    return [=](CudaContext& context) { avg_pool2d(context, config, y, x); };
  });
  table.add("avg_pool2d_backward" + shape, [=](Tensors& tensors) {
    const float* dy = tensors.in(outputs);
    float* dx = tensors.out(inputs);
    return [=](CudaContext& context) { avg_pool2d_backward(context, config, dx, dy); };
  });
}

void add_pools(Table& table) {
  const pool2d_config config = pool_of(table.size(64, 2), table.size(112, 7), table.size(64, 8), 3, 2, 1);
  const std::int64_t images = config.batch * config.channels, inputs = images * config.in_height * config.in_width,
                     outputs = images * config.out_height * config.out_width;
  const std::string shape =
      named("", {config.batch, config.in_height, config.in_width, config.channels}) + " 3x3 stride 2";
  table.add("max_pool2d" + shape, [=](Tensors& tensors) {
    const float* x = tensors.in(inputs);
    float* y = tensors.out(outputs);
    std::uint8_t* index = tensors.out<std::uint8_t>(outputs);
    return [=](CudaContext& context) { max_pool2d(context, config, y, index, x); };
  });
  table.add("max_pool2d_backward" + shape, [=](Tensors& tensors) {
    const float* dy = tensors.in(outputs);
    const auto* index = tensors.in<std::uint8_t>(outputs, 0, 9);
    float* dx = tensors.out(inputs);
    return [=](CudaContext& context) { max_pool2d_backward(context, config, dx, dy, index); };
  });
  add_average_pools(table, shape, config);
  const std::int64_t side = 7, channels = table.size(2048, 12);
  add_average_pools(table, named("", {config.batch, side, side, channels}) + " 7x7",
                    pool_of(config.batch, side, channels, side, 1, 0));
}

void add_borders(Table& table) {
  const std::int64_t batch = table.size(64, 2), side = table.size(56, 5), channels = table.size(64, 8);
  const std::int64_t inputs = batch * side * side * channels, padded = batch * (side + 2) * (side + 2) * channels;
  const std::string shape = named("", {batch, side, side, channels});
  const pad_border_config border{.rank = 3,
                                 .shape = {batch, side + 2, side + 2},
                                 .in_shape = {batch, side, side},
                                 .before = {0, 1, 1},
                                 .inner = channels,
                                 .mode = kPadReflect};
  table.add("pad_border" + shape, [=](Tensors& tensors) {
    const float* x = tensors.in(inputs);
    float* y = tensors.out(padded);
    return [=](CudaContext& context) { pad_border(context, border, y, x); };
  });
  table.add("pad_border_backward" + shape, [=](Tensors& tensors) {
    const float* dy = tensors.in(padded);
    float* dx = tensors.out(inputs);
    return [=](CudaContext& context) { pad_border_backward(context, border, dx, dy); };
  });
  const auto add_resample = [&](const std::string& name, std::int64_t mode) {
    const resample_config config{
        .outer = batch, .in = side, .out = 2 * side, .inner = side * channels, .mode = mode, .scale = 0.5};
    table.add("resample " + name + shape + " to 2x rows", [=](Tensors& tensors) {
      const float* x = tensors.in(inputs);
      float* y = tensors.out(2 * inputs);
      return [=](CudaContext& context) { resample(context, config, y, x); };
    });
    table.add("resample_backward " + name + shape + " to 2x rows", [=](Tensors& tensors) {
      const float* dy = tensors.in(2 * inputs);
      float* dx = tensors.out(inputs);
      return [=](CudaContext& context) { resample_backward(context, config, dx, dy); };
    });
  };
  add_resample("nearest", kResampleNearest);
  add_resample("linear", kResampleLinear);
}

// ---- optimizers -----------------------------------------------------------------------------------------------------

/// 60 tensors of 30 million elements in all: matrices, filters, and twice as many biases as either.
std::vector<std::int64_t> parameter_sizes(const Table& table) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < table.size(60, 5); ++i)
    sizes.push_back(i % 4 == 0   ? table.size(768 * 2560, 1200)
                    : i % 4 == 2 ? table.size(64 * 64 * 9, 90)
                                 : table.size(512, 3) + i);
  return sizes;
}

void add_updates(Table& table) {
  const std::vector<std::int64_t> sizes = parameter_sizes(table);
  const auto count = static_cast<std::int64_t>(sizes.size());
  std::int64_t n = 0;
  for (const std::int64_t size : sizes) n += size;
  const std::string shape = named("", {n}) + " in " + std::to_string(count) + " tensors";
  table.add("update_parameters adam" + shape, [=](Tensors& tensors) {
    std::vector<float*> params, first, second;
    std::vector<const float*> grads;
    for (const std::int64_t size : sizes) {
      params.push_back(tensors.inout(size));
      grads.push_back(tensors.in(size));
      first.push_back(tensors.inout(size));
      second.push_back(tensors.inout(size, 0, 1));
    }
    const double* lr = tensors.in<double>(1, 1e-4, 1e-3);
    const std::int64_t* step = tensors.in<std::int64_t>(1, 10, 11);
    return [=](CudaContext& context) {
      update_parameters<adam_rule>(context, adam_config{}, count, params.data(), grads.data(), sizes.data(), lr, step,
                                   first.data(), second.data());
    };
  });
  table.add("clip_factor" + shape, [=](Tensors& tensors) {
    std::vector<const float*> grads;
    for (const std::int64_t size : sizes) grads.push_back(tensors.in(size));
    float* factor = tensors.out(1);
    return [=](CudaContext& context) {
      clip_factor(context, clip_factor_config{.max_norm = 1}, factor, count, grads.data(), sizes.data());
    };
  });
}

// ---- scans, sorts, products -----------------------------------------------------------------------------------------

void add_scans(Table& table) {
  const std::int64_t rows = table.size(4096, 5), size = table.size(1024, 70);
  table.add(named("cumsum", {rows, size}), [=](Tensors& tensors) {
    const float* x = tensors.in(rows * size);
    float* y = tensors.out(rows * size);
    return [=](CudaContext& context) { cumsum(context, scan_config{.outer = rows, .size = size}, y, x); };
  });
  const std::int64_t lines = table.size(1024, 3);
  table.add(named("sort", {lines, size}), [=](Tensors& tensors) {
    const float* x = tensors.in(lines * size);
    float* y = tensors.out(lines * size);
    std::int64_t* index = tensors.out<std::int64_t>(lines * size);
    const sort_config config{.outer = lines, .size = size, .count = size};
    return [=](CudaContext& context) { sort(context, config, y, index, x); };
  });
}

void add_products(Table& table) {
  const linear_config config{.m = table.size(8192, 7), .n = table.size(3072, 12), .k = table.size(768, 9)};
  const std::string shape = named("", {config.m, config.k}) + " to " + std::to_string(config.n);
  table.add("linear" + shape, [=](Tensors& tensors) {
    const float *x = tensors.in(config.m * config.k), *w = tensors.in(config.n * config.k),
                *bias = tensors.in(config.n);
    float* y = tensors.out(config.m * config.n);
    tensors.computes(2 * config.m * config.n * config.k);
    return [=](CudaContext& context) { linear(context, config, y, x, w, bias); };
  });
  table.add("linear_backward_input" + shape, [=](Tensors& tensors) {
    const float *dy = tensors.in(config.m * config.n), *w = tensors.in(config.n * config.k);
    float* dx = tensors.out(config.m * config.k);
    tensors.computes(2 * config.m * config.n * config.k);
    return [=](CudaContext& context) { linear_backward_input(context, config, dx, dy, w); };
  });
  table.add("linear_backward_weight" + shape, [=](Tensors& tensors) {
    const float *dy = tensors.in(config.m * config.n), *x = tensors.in(config.m * config.k);
    float *dw = tensors.out(config.n * config.k), *db = tensors.out(config.n);
    tensors.computes(2 * config.m * config.n * config.k);
    return [=](CudaContext& context) { linear_backward_weight(context, config, dw, db, dy, x); };
  });
  const std::int64_t batch = table.size(96, 2), tokens = table.size(1024, 6), size = table.size(64, 4);
  const matmul_config scores{.batch = batch,
                             .m = tokens,
                             .n = tokens,
                             .k = size,
                             .a_batch_stride = tokens * size,
                             .b_batch_stride = tokens * size,
                             .transpose_b = true};
  table.add(named("matmul", {batch, tokens, size}) + " to scores", [=](Tensors& tensors) {
    const float *a = tensors.in(batch * tokens * size), *b = tensors.in(batch * tokens * size);
    float* c = tensors.out(batch * tokens * tokens);
    tensors.computes(2 * batch * tokens * tokens * size);
    return [=](CudaContext& context) { matmul(context, scores, c, a, b); };
  });
}

/// Forward and backward, causal; with dropout, and without.
void add_attention(Table& table) {
  const std::int64_t matrices = table.size(48, 2), tokens = table.size(1024, 36);
  for (const auto& [size, p] :
       {std::pair{table.size(64, 8), 0.0}, {table.size(64, 8), 0.1}, {table.size(128, 12), 0.0}}) {
    const attention_config config{.matrices = matrices,
                                  .queries = tokens,
                                  .keys = tokens,
                                  .size = size,
                                  .scale = 0.125,
                                  .causal = true,
                                  .p = p,
                                  .stream = 7};
    const bool drops = p > 0;
    const std::string with = drops ? " with dropout" : "";
    const std::int64_t n = matrices * tokens * size, products = matrices * tokens * tokens * size / 2;
    table.add(named("attention", {matrices, tokens, size}) + with, [=](Tensors& tensors) {
      const float *q = tensors.in(n), *k = tensors.in(n), *v = tensors.in(n);
      float *y = tensors.out(n), *lse = tensors.out(matrices * tokens);
      tensors.computes(4 * products);
      const std::int64_t* numbers = tensors.in<std::int64_t>(2, 1, 100);
      const std::int64_t *seed = drops ? numbers : nullptr, *step = drops ? numbers + 1 : nullptr;
      return [=](CudaContext& context) { attention(context, config, y, lse, q, k, v, nullptr, seed, step); };
    });
    table.add(named("attention_backward", {matrices, tokens, size}) + with, [=](Tensors& tensors) {
      const float *dy = tensors.in(n), *q = tensors.in(n), *k = tensors.in(n), *v = tensors.in(n), *y = tensors.in(n),
                  *lse = tensors.in(matrices * tokens, 6, 8);
      float *dq = tensors.out(n), *dk = tensors.out(n), *dv = tensors.out(n);
      tensors.computes(14 * products);
      const std::int64_t* numbers = tensors.in<std::int64_t>(2, 1, 100);
      const std::int64_t *seed = drops ? numbers : nullptr, *step = drops ? numbers + 1 : nullptr;
      return [=](CudaContext& context) {
        attention_backward(context, config, dq, dk, dv, dy, q, k, v, nullptr, y, lse, seed, step);
      };
    });
  }
}

void add_cases(Table& table) {
  add_elementwise(table);
  add_copies(table);
  add_reductions(table);
  add_softmaxes(table);
  add_cross_entropy(table);
  add_layer_norms(table);
  add_batch_norms(table, table.size(64 * 56 * 56, 130), table.size(64, 8));
  add_batch_norms(table, table.size(64 * 32 * 32, 75), table.size(144, 12));
  add_group_norms(table);
  add_embeddings(table);
  add_random(table);
  add_pools(table);
  add_borders(table);
  add_updates(table);
  add_scans(table);
  add_products(table);
  add_attention(table);
}

}  // namespace
}  // namespace graven::kernels

int main(int argc, char** argv) { return graven::kernels::timing::run(argc, argv, graven::kernels::add_cases); }
