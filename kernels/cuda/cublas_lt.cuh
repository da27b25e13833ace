// cublas_lt: matrix products of row-major matrices by cuBLASLt, with a bias and ReLU where it fuses them.
//
//   matrix_product(context, matrix_product_shape{.batch = 1, .m = 64, .n = 10, .k = 256, .transpose_b = true}, c, a, b, fused_epilogue::bias, bias);
//
// cuBLASLt thinks in columns: a row-major c[m,n] is a column-major n x m matrix, so c = a b is asked for as c^T = b^T a^T, and the bias, one value a
// column of c, is what cuBLASLt calls a bias of its rows. Products are in full float precision (no TF32). The algorithm for a shape is chosen once,
// the first that the library recommends; the same shape gives the same bits on every run.
#pragma once

#include "context.cuh"

#ifndef __CUDACC_RTC__
#include <cublasLt.h>

#include <map>
#include <tuple>
#include <type_traits>

namespace graven::kernels {

inline void check_cublas(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) throw_cuda_error("cuBLASLt", cublasLtGetStatusString(status), call, file, line);
}
#define GRAVEN_CUBLAS(call) ::graven::kernels::check_cublas((call), #call, __FILE__, __LINE__)

/// c[batch,m,n] = op(a) op(b); a is stored [m,k], or [k,m] when transposed; b [k,n], or [n,k]. Strides are elements from one matrix of the batch to
/// the next; 0 repeats the same.
struct matrix_product_shape {
  std::int64_t batch = 1, m, n, k;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool transpose_a = false, transpose_b = false;
  auto key() const { return std::tuple(batch, m, n, k, a_stride, b_stride, c_stride, transpose_a, transpose_b); }
};

enum class fused_epilogue { none, bias, relu, relu_bias };

/// The library's handle, and for each shape its descriptors and the chosen algorithm.
class CublasLt {
 public:
  static constexpr int slot = 0;
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // what NVIDIA recommends for Hopper

  explicit CublasLt(cudaStream_t) { GRAVEN_CUBLAS(cublasLtCreate(&handle_)); }
  ~CublasLt() {
    for (auto& [key, plan] : plans_) plan.destroy();
    (void)cublasLtDestroy(handle_);
  }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  template <class T>
  void run(CudaContext& context, const matrix_product_shape& shape, T* c, const T* a, const T* b, fused_epilogue epilogue, const T* bias) {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>, "float or double");
    const auto address = [](const T* p) { return reinterpret_cast<std::uintptr_t>(p); };
    const std::uintptr_t addresses = address(a) | address(b) | address(c) | address(bias);
    std::uint32_t alignment = 256;
    while (addresses % alignment != 0) alignment /= 2;
    Plan& plan = plan_for(Key{shape.key(), epilogue, alignment, sizeof(T)}, shape, std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_64F,
                          std::is_same_v<T, float> ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_64F, epilogue, bias, alignment);
    if (bias != nullptr) set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    const T one = 1, zero = 0;
    // Matrix "A" of the library is b, its "B" is a.
    GRAVEN_CUBLAS(cublasLtMatmul(handle_, plan.product, &one, b, plan.b, a, plan.a, &zero, c, plan.c, c, plan.c, &plan.algorithm,
                                 context.workspace(plan.workspace_bytes), plan.workspace_bytes, context.stream()));
  }

 private:
  struct Plan {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
    std::size_t workspace_bytes = 0;
    void destroy() {
      for (cublasLtMatrixLayout_t layout : {a, b, c})
        if (layout != nullptr) (void)cublasLtMatrixLayoutDestroy(layout);
      if (product != nullptr) (void)cublasLtMatmulDescDestroy(product);
    }
  };
  using Key = std::tuple<decltype(matrix_product_shape{}.key()), fused_epilogue, std::uint32_t, std::size_t>;

  template <class Value>
  static void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    GRAVEN_CUBLAS(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value));
  }

  /// A row-major [rows, columns] matrix, as the column-major matrix of columns x rows that it is to the library.
  static cublasLtMatrixLayout_t layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t batch, std::int64_t stride) {
    cublasLtMatrixLayout_t result = nullptr;
    GRAVEN_CUBLAS(cublasLtMatrixLayoutCreate(&result, type, static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows), columns));
    if (batch > 1) {
      const auto count = static_cast<std::int32_t>(batch);
      GRAVEN_CUBLAS(cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
      GRAVEN_CUBLAS(cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    }
    return result;
  }

  Plan& plan_for(const Key& key, const matrix_product_shape& s, cudaDataType_t type, cublasComputeType_t compute, fused_epilogue epilogue,
                 const void* bias, std::uint32_t alignment) {
    if (auto found = plans_.find(key); found != plans_.end()) return found->second;
    Plan& plan = plans_[key];
    GRAVEN_CUBLAS(cublasLtMatmulDescCreate(&plan.product, compute, type));
    set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(plan.product, CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    const cublasLtEpilogue_t fused = epilogue == fused_epilogue::bias        ? CUBLASLT_EPILOGUE_BIAS
                                     : epilogue == fused_epilogue::relu      ? CUBLASLT_EPILOGUE_RELU
                                     : epilogue == fused_epilogue::relu_bias ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                                             : CUBLASLT_EPILOGUE_DEFAULT;
    set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE, fused);
    if (bias != nullptr) set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);  // part of what the algorithm is chosen for
    plan.a = s.transpose_a ? layout(type, s.k, s.m, s.batch, s.a_stride) : layout(type, s.m, s.k, s.batch, s.a_stride);
    plan.b = s.transpose_b ? layout(type, s.n, s.k, s.batch, s.b_stride) : layout(type, s.k, s.n, s.batch, s.b_stride);
    plan.c = layout(type, s.m, s.n, s.batch, s.c_stride);

    cublasLtMatmulPreference_t preference = nullptr;
    GRAVEN_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
    struct Destroy {
      cublasLtMatmulPreference_t preference;
      ~Destroy() { (void)cublasLtMatmulPreferenceDestroy(preference); }
    } destroy{preference};
    GRAVEN_CUBLAS(
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes, sizeof kWorkspaceBytes));
    for (cublasLtMatmulPreferenceAttributes_t attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      GRAVEN_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment));
    cublasLtMatmulHeuristicResult_t choice{};
    int found = 0;
    GRAVEN_CUBLAS(cublasLtMatmulAlgoGetHeuristic(handle_, plan.product, plan.b, plan.a, plan.c, plan.c, preference, 1, &choice, &found));
    if (found == 0) GRAVEN_CUBLAS(CUBLAS_STATUS_NOT_SUPPORTED);
    plan.algorithm = choice.algo;
    plan.workspace_bytes = choice.workspaceSize;
    return plan;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Plan> plans_;
};

/// c = a b, then the epilogue. m, n and k are not 0.
template <class T>
void matrix_product(CudaContext& context, const matrix_product_shape& shape, T* c, const T* a, const T* b,
                    fused_epilogue epilogue = fused_epilogue::none, const T* bias = nullptr) {
  context.library<CublasLt>().run(context, shape, c, a, b, epilogue, bias);
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
