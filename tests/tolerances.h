// How far computed numbers may lie from the true ones, by what is compared and by dtype: the one table that the tests
// read and docs/testing.md shows. They state what rounding leaves, not what would still do: a test that fails is no
// reason to raise one.
//
//   EXPECT_LE(std::abs(got - want), tolerance::softmax.f32 * (1 + std::abs(want)));
//
// Relative to 1 + the magnitude of the expected number (kernels) or of the largest of its tensor (all others).
#pragma once

#include <limits>

namespace graven::tests::tolerance {

/// Where nothing is compared.
inline constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct Tolerance {
  const char* what;
  double f64, f32, f16, bf16;
};

// ---- kernels against loops in double (tests/kernels)
inline constexpr Tolerance elementwise{"kernels: elementwise", kNone, 1e-6, kNone, kNone};
inline constexpr Tolerance reduction{"kernels: reductions (sums of n: times 2 + n / 8)", 1e-14, 1e-6, 1e-3, 1e-2};
inline constexpr Tolerance softmax{"kernels: softmax and its gradients", 1e-13, 3e-6, 2e-2, kNone};
inline constexpr Tolerance cross_entropy{"kernels: cross entropy and its gradient", kNone, 2e-6, kNone, kNone};
inline constexpr Tolerance product{"kernels: matrix products of n terms, times 4 + sqrt(n)", kNone, 1e-6, kNone, kNone};
inline constexpr Tolerance convolution{"kernels: convolutions of n terms, times 2 + sqrt(n)", kNone, 1e-6, kNone,
                                       kNone};
inline constexpr Tolerance winograd{"kernels: Winograd's form of n terms, times 2 + sqrt(n)", kNone, 4e-6, kNone,
                                    kNone};
inline constexpr Tolerance normalisation{"kernels: batch normalisation, around 0", kNone, 2e-5, kNone, kNone};
inline constexpr Tolerance moment{"kernels: batch normalisation's means", kNone, 1e-6, kNone, kNone};
inline constexpr Tolerance pooling{"kernels: pooling", kNone, 2e-5, kNone, kNone};
inline constexpr Tolerance recurrent{"kernels: recurrent layers and their gradients", kNone, 4e-6, kNone, kNone};
inline constexpr Tolerance update{"kernels: an optimizer's steps", kNone, 5e-5, kNone, kNone};
inline constexpr Tolerance plain_update{"kernels: the steps of sgd", kNone, 1e-6, kNone, kNone};
inline constexpr Tolerance adaptive_update{"kernels: the steps of adagrad and adadelta", kNone, 1e-5, kNone, kNone};

// ---- CUDA's kernels against loops in double (tests/cuda_on_cpu)
inline constexpr Tolerance cuda_elementwise{
    "CUDA kernels: elementwise, pooling, resampling, sgd (sums of n: times sqrt(n))", kNone, 1e-6, kNone, kNone};
inline constexpr Tolerance cuda_softmax{"CUDA kernels: softmax, cross entropy, small products, sums in any order",
                                        kNone, 1e-5, kNone, kNone};
inline constexpr Tolerance cuda_product{"CUDA kernels: matrix products and convolutions", 1e-14, 2e-5, kNone, kNone};
inline constexpr Tolerance cuda_weight{"CUDA kernels: gradients of convolutions' weights", kNone, 5e-5, kNone, kNone};
inline constexpr Tolerance cuda_update{"CUDA kernels: the steps of the other optimizers", kNone, 1e-5, kNone, kNone};

// ---- operators (tests/ops)
inline constexpr Tolerance operators{"operators on every backend against the reference kernels in double", 1e-12, 4e-6,
                                     4e-3, 3e-2};
inline constexpr Tolerance operator_gradients{"their gradients", 1e-12, 4e-5, 4e-2, 3e-1};

// ---- PyTorch's numbers (tests/operators, tests/models, tests/networks)
inline constexpr Tolerance functions{"functions against PyTorch's in double", 1e-12, 2e-6, 2e-3, 1.5e-2};
inline constexpr Tolerance function_gradients{"their gradients", 5e-12, 1e-5, 4e-3, 3e-2};
inline constexpr Tolerance layers{"layers, attention and recurrent networks against PyTorch's in double", 2e-12, 4e-6,
                                  4e-3, 3e-2};
inline constexpr Tolerance layer_gradients{"their gradients", 1e-11, 2e-5, 8e-3, 6e-2};
inline constexpr Tolerance models{"models with published weights: outputs", 1e-13, 4e-6, kNone, kNone};
inline constexpr Tolerance network_output{"networks: outputs", 1e-7, 2e-6, kNone, kNone};
inline constexpr Tolerance network_gradient{"networks: first gradients", 1e-7, 5e-6, kNone, kNone};
inline constexpr Tolerance network_loss{"networks: the loss of every step", 1e-11, 5e-6, kNone, kNone};
inline constexpr Tolerance network_final{"networks: what is learned in all steps", 1e-7, 2e-5, kNone, kNone};
inline constexpr Tolerance network_on_device{"networks on a device against the processor: results, what is learned",
                                             kNone, 1e-4, 4e-3, 3e-2};

// ---- one graph in two ways (tests/passes, tests/differential)
inline constexpr Tolerance rewritten{"graphs before and after passes, in double but for folded constants", kNone, 1e-6,
                                     kNone, kNone};
inline constexpr Tolerance random_rewritten{"random graphs before and after passes, likewise", kNone, 2e-6, kNone,
                                            kNone};
inline constexpr Tolerance random_emitted{
    "random graphs, run and emitted, against double; and 20 times what changing the inputs by 1e-6 changes", kNone,
    4e-5, kNone, kNone};

inline constexpr const Tolerance* kAll[] = {
    &elementwise,
    &reduction,
    &softmax,
    &cross_entropy,
    &product,
    &convolution,
    &winograd,
    &normalisation,
    &moment,
    &pooling,
    &recurrent,
    &update,
    &plain_update,
    &adaptive_update,
    &cuda_elementwise,
    &cuda_softmax,
    &cuda_product,
    &cuda_weight,
    &cuda_update,
    &operators,
    &operator_gradients,
    &functions,
    &function_gradients,
    &layers,
    &layer_gradients,
    &models,
    &network_output,
    &network_gradient,
    &network_loss,
    &network_final,
    &network_on_device,
    &rewritten,
    &random_rewritten,
    &random_emitted,
};

}  // namespace graven::tests::tolerance
