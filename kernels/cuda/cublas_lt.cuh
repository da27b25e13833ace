// cublas_lt: matrix products of row-major matrices by cuBLASLt, with a bias and ReLU where it fuses them.
//
//   matrix_product(context, matrix_product_shape{.batch = 1, .m = 64, .n = 10, .k = 256, .transpose_b = true}, c, a, b,
//                  fused_epilogue::bias, bias);
//
// cuBLASLt thinks in columns: a row-major c[m,n] is a column-major n x m matrix, so c = a b is asked for as c^T = b^T
// a^T, and the bias, one value a column of c, is what cuBLASLt calls a bias of its rows. Products of floats are in full
// precision; those of half types are added up in float, and c may be float. The algorithm for a shape is chosen once,
// the first that the library recommends; the same shape gives the same bits on every run. A config says otherwise:
//
//   const ProductScope scope(context, config);   // for its scope
//
// `tf32`: factors of floats are rounded to TF32, 10 bits behind the point, and products added up in float. `algorithm`:
// which of those that the library recommends, the last where it has fewer. `measured`: the fastest of them, which is
// measured on memory of its own when the shape first comes, when calls are rehearsed: never while they are recorded.
#pragma once

#include "../cpu/dtype.h"
#include "context.cuh"
#include "fastest.cuh"

#ifndef __CUDACC_RTC__
#include <cublasLt.h>

#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

namespace graven::kernels {

inline void check_cublas(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) throw_cuda_error("cuBLASLt", cublasLtGetStatusString(status), call, file, line);
}
#define GRAVEN_CUBLAS(call) ::graven::kernels::check_cublas((call), #call, __FILE__, __LINE__)

/// c[batch,m,n] = op(a) op(b), or += it; a is stored [m,k], or [k,m] when transposed; b [k,n], or [n,k]. Strides are
/// elements from one matrix of the batch to the next (0 repeats the same), leading dimensions those from one stored row
/// to the next (0: rows lie side by side).
struct matrix_product_shape {
  std::int64_t batch = 1, m, n, k;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  std::int64_t a_leading = 0, b_leading = 0, c_leading = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  auto key() const {
    return std::tuple(batch, m, n, k, a_stride, b_stride, c_stride, a_leading, b_leading, c_leading, transpose_a,
                      transpose_b);
  }
};

enum class fused_epilogue { none, bias, relu, relu_bias };

/// What the library calls an element type, and the types of which it fuses epilogues.
template <class T>
inline constexpr cudaDataType_t cublas_type = CUDA_R_32F;
template <>
inline constexpr cudaDataType_t cublas_type<double> = CUDA_R_64F;
template <>
inline constexpr cudaDataType_t cublas_type<half> = CUDA_R_16F;
template <>
inline constexpr cudaDataType_t cublas_type<bfloat16> = CUDA_R_16BF;
template <class T>
inline constexpr bool fuses_epilogues = !std::is_same_v<T, double>;

/// The library's handle, and for each shape its descriptors and the chosen algorithm.
class CublasLt {
 public:
  static constexpr int slot = 0;
  static constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // what NVIDIA recommends for Hopper

  explicit CublasLt(cudaStream_t) { GRAVEN_CUBLAS(cublasLtCreate(&handle_)); }
  ~CublasLt() { (void)cublasLtDestroy(handle_); }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  /// `scratch`: kWorkspaceBytes of the device's memory, or nullptr: the context's workspace.
  template <class C, class T>
  void run(CudaContext& context, const matrix_product_shape& shape, C* c, const T* a, const T* b,
           fused_epilogue epilogue, const C* bias, void* scratch) {
    using Compute = compute_t<C>;
    static_assert(std::is_same_v<Compute, compute_t<T>> && std::is_floating_point_v<Compute>);
    const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
    const std::uintptr_t addresses = address(a) | address(b) | address(c) | address(bias);
    std::uint32_t alignment = 256;
    while (addresses % alignment != 0) alignment /= 2;
    const Types types{cublas_type<T>, cublas_type<C>, cublas_type<Compute>,
                      std::is_same_v<Compute, double>              ? CUBLAS_COMPUTE_64F
                      : settings_.tf32 && std::is_same_v<T, float> ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                   : CUBLAS_COMPUTE_32F};
    const Key key{shape.key(),  epilogue,      alignment,          types.operands,
                  types.result, types.compute, settings_.measured, settings_.algorithm};
    auto found = plans_.find(key);
    if (found == plans_.end())  // whole before it is kept: making it may fail
      found = plans_.emplace(key, Plan(handle_, shape, types, epilogue, bias, alignment, settings_, context.stream()))
                  .first;
    const Plan& plan = found->second;
    // Rehearsed is the most that an algorithm may take: with sizes that were not rehearsed another one may be chosen.
    void* const workspace =
        scratch != nullptr ? scratch : context.workspace(context.rehearses() ? kWorkspaceBytes : plan.workspace_bytes);
    if (context.rehearses()) return;
    if (bias != nullptr) set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    const Compute one = 1, times = shape.accumulate ? 1 : 0;
    // Matrix "A" of the library is b, its "B" is a.
    GRAVEN_CUBLAS(cublasLtMatmul(handle_, plan.product, &one, b, plan.b, a, plan.a, &times, c, plan.c, c, plan.c,
                                 &plan.algorithm, workspace, plan.workspace_bytes, context.stream()));
  }

  /// As configs say it; what was chosen by others stays beside it.
  struct Settings {
    bool measured = false, tf32 = false;
    std::int64_t algorithm = 0;
  };
  const Settings& settings() const { return settings_; }
  void set(const Settings& settings) { settings_ = settings; }

 private:
  /// What the library makes, with one owner.
  template <class Made, cublasStatus_t (*Destroy)(Made)>
  class Owned {
   public:
    Owned() = default;
    ~Owned() {
      if (made_ != nullptr) (void)Destroy(made_);
    }
    Owned(Owned&& other) noexcept : made_(std::exchange(other.made_, nullptr)) {}
    Owned& operator=(Owned&&) = delete;
    Made* place() { return &made_; }
    operator Made() const { return made_; }

   private:
    Made made_ = nullptr;
  };
  using Product = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

  static constexpr int kMeasured = 8;  ///< algorithms that are tried where they are measured

  /// Of a and b, of c and the bias, of the factors, and what is added up in.
  struct Types {
    cudaDataType_t operands, result, scale;
    cublasComputeType_t compute;
  };

  /// The descriptors of a product and the algorithm that was chosen for it.
  struct Plan {
    Plan(cublasLtHandle_t handle, const matrix_product_shape& s, const Types& types, fused_epilogue epilogue,
         const void* bias, std::uint32_t alignment, const Settings& settings, cudaStream_t stream)
        : a(s.transpose_a ? layout(types.operands, s.k, s.m, s.a_leading, s.batch, s.a_stride)
                          : layout(types.operands, s.m, s.k, s.a_leading, s.batch, s.a_stride)),
          b(s.transpose_b ? layout(types.operands, s.n, s.k, s.b_leading, s.batch, s.b_stride)
                          : layout(types.operands, s.k, s.n, s.b_leading, s.batch, s.b_stride)),
          c(layout(types.result, s.m, s.n, s.c_leading, s.batch, s.c_stride)) {
      GRAVEN_CUBLAS(cublasLtMatmulDescCreate(product.place(), types.compute, types.scale));
      set(product, CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
      set(product, CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
      const cublasLtEpilogue_t fused = epilogue == fused_epilogue::bias        ? CUBLASLT_EPILOGUE_BIAS
                                       : epilogue == fused_epilogue::relu      ? CUBLASLT_EPILOGUE_RELU
                                       : epilogue == fused_epilogue::relu_bias ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                                               : CUBLASLT_EPILOGUE_DEFAULT;
      set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, fused);
      if (bias != nullptr)
        set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);  // part of what the algorithm is chosen for

      Preference preference;
      GRAVEN_CUBLAS(cublasLtMatmulPreferenceCreate(preference.place()));
      GRAVEN_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                         &kWorkspaceBytes, sizeof kWorkspaceBytes));
      for (cublasLtMatmulPreferenceAttributes_t attribute :
           {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
        GRAVEN_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof alignment));
      cublasLtMatmulHeuristicResult_t choices[kMeasured] = {};
      const int asked = settings.measured                    ? kMeasured
                        : settings.algorithm < kMeasured - 1 ? static_cast<int>(settings.algorithm) + 1
                                                             : kMeasured;
      int found = 0;
      GRAVEN_CUBLAS(cublasLtMatmulAlgoGetHeuristic(handle, product, b, a, c, c, preference, asked, choices, &found));
      if (found == 0) GRAVEN_CUBLAS(CUBLAS_STATUS_NOT_SUPPORTED);
      int chosen = found - 1;
      if (settings.measured && found > 1) chosen = fastest_algorithm(handle, s, types, choices, found, stream);
      if (choices[chosen].state != CUBLAS_STATUS_SUCCESS) chosen = 0;
      algorithm = choices[chosen].algo;
      workspace_bytes = choices[chosen].workspaceSize;
    }

    /// Of algorithms, the one that takes the least time for the product.
    int fastest_algorithm(cublasLtHandle_t handle, const matrix_product_shape& s, const Types& types,
                          const cublasLtMatmulHeuristicResult_t* choices, int count, cudaStream_t stream) const {
      const auto bytes = [&](std::int64_t rows, std::int64_t columns, std::int64_t leading, std::int64_t stride,
                             cudaDataType_t type) {
        const std::int64_t matrix = (rows - 1) * (leading != 0 ? leading : columns) + columns;
        const std::size_t element = type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
        return static_cast<std::size_t>((s.batch - 1) * stride + matrix) * element;
      };
      const DeviceBuffer of_a(s.transpose_a ? bytes(s.k, s.m, s.a_leading, s.a_stride, types.operands)
                                            : bytes(s.m, s.k, s.a_leading, s.a_stride, types.operands)),
          of_b(s.transpose_b ? bytes(s.n, s.k, s.b_leading, s.b_stride, types.operands)
                             : bytes(s.k, s.n, s.b_leading, s.b_stride, types.operands)),
          of_c(bytes(s.m, s.n, s.c_leading, s.c_stride, types.result)), workspace(kWorkspaceBytes);
      for (const DeviceBuffer* matrix : {&of_a, &of_b, &of_c})
        GRAVEN_CUDA(cudaMemsetAsync(matrix->data(), 0, matrix->bytes(), stream));
      const double one_f64 = 1, zero_f64 = 0;
      const float one_f32 = 1, zero_f32 = 0;
      const bool is_double = types.scale == CUDA_R_64F;
      const void* const one = is_double ? static_cast<const void*>(&one_f64) : &one_f32;
      const void* const zero = is_double ? static_cast<const void*>(&zero_f64) : &zero_f32;
      return fastest_of(stream, count, [&](int i) {
        return choices[i].state == CUBLAS_STATUS_SUCCESS &&
               cublasLtMatmul(handle, product, one, of_b.data(), b, of_a.data(), a, zero, of_c.data(), c, of_c.data(),
                              c, &choices[i].algo, workspace.data(), choices[i].workspaceSize,
                              stream) == CUBLAS_STATUS_SUCCESS;
      });
    }

    Product product;
    Layout a, b, c;
    cublasLtMatmulAlgo_t algorithm{};
    std::size_t workspace_bytes = 0;
  };
  using Key = std::tuple<decltype(matrix_product_shape{}.key()), fused_epilogue, std::uint32_t, cudaDataType_t,
                         cudaDataType_t, cublasComputeType_t, bool, std::int64_t>;

  template <class Value>
  static void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    GRAVEN_CUBLAS(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof value));
  }

  /// A row-major [rows, columns] matrix, as the column-major matrix of columns x rows that it is to the library.
  static Layout layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t leading,
                       std::int64_t batch, std::int64_t stride) {
    Layout result;
    GRAVEN_CUBLAS(cublasLtMatrixLayoutCreate(result.place(), type, static_cast<std::uint64_t>(columns),
                                             static_cast<std::uint64_t>(rows), leading != 0 ? leading : columns));
    if (batch > 1) {
      const auto count = static_cast<std::int32_t>(batch);
      GRAVEN_CUBLAS(cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
      GRAVEN_CUBLAS(cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                     sizeof stride));
    }
    return result;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Plan> plans_;
  Settings settings_;
};

/// Products within its scope are computed as a kernel's config says; what it does not say stays.
class ProductScope {
 public:
  template <class Config>
  ProductScope(CudaContext& context, const Config& config)
      : library_(context.library<CublasLt>()), before_(library_.settings()) {
    CublasLt::Settings now{before_.measured, config.tf32, config.algorithm};
    if constexpr (requires { config.measured; }) now.measured = config.measured;
    library_.set(now);
  }
  ~ProductScope() { library_.set(before_); }
  ProductScope(const ProductScope&) = delete;
  ProductScope& operator=(const ProductScope&) = delete;

 private:
  CublasLt& library_;
  CublasLt::Settings before_;
};

/// c = a b, then the epilogue. m, n and k are not 0. `scratch`: CublasLt::kWorkspaceBytes for whoever uses the
/// context's workspace for something else, or nullptr.
template <class C, class T>
void matrix_product(CudaContext& context, const matrix_product_shape& shape, C* c, const T* a, const T* b,
                    fused_epilogue epilogue = fused_epilogue::none, const plain_t<C>* bias = nullptr,
                    void* scratch = nullptr) {
  context.library<CublasLt>().run(context, shape, c, a, b, epilogue, bias, scratch);
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
