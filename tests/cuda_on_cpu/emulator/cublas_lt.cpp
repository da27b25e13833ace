// cuBLASLt by plain loops. Column-major matrices: element (row, column) lies at row + column * leading.
#include "cublasLt.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct cublasLtMatrixLayoutOpaque {
  cudaDataType_t type;
  std::int64_t rows, columns, leading;
  std::int32_t batch = 1;
  std::int64_t stride = 0;

  std::size_t element_bytes() const { return type == CUDA_R_32F ? 4 : type == CUDA_R_64F ? 8 : 2; }
  std::size_t bytes() const {
    const std::int64_t elements = (batch - 1) * stride + (columns - 1) * leading + rows;
    return static_cast<std::size_t>(elements) * element_bytes();
  }
};
struct cublasLtMatmulPreferenceOpaque {
  std::size_t workspace = 0;
  std::uint32_t alignment = 256;
};

namespace {

constexpr std::size_t kScratch = 4096;  // asked for, and overwritten, as a real algorithm does

cublasStatus_t not_supported(const char* what) {
  std::fprintf(stderr, "cuda_on_cpu: cublasLt: %s is not emulated\n", what);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

template <class Value>
cublasStatus_t read(Value& to, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(Value)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

/// The checks that cublasLtMatmul and its heuristic share.
cublasStatus_t check(const cublasLtMatmulDescOpaque& p, const cublasLtMatrixLayoutOpaque& a,
                     const cublasLtMatrixLayoutOpaque& b, const cublasLtMatrixLayoutOpaque& c,
                     const cublasLtMatrixLayoutOpaque& d) {
  const bool f32 = p.compute == CUBLAS_COMPUTE_32F && p.scale == CUDA_R_32F,
             f64 = p.compute == CUBLAS_COMPUTE_64F && p.scale == CUDA_R_64F;
  if (!f32 && !f64) return not_supported("this compute type");
  for (const auto* m : {&a, &b, &c, &d}) {
    if (m->batch != d.batch) return CUBLAS_STATUS_INVALID_VALUE;
  }
  // The factors' type, or halves that are added up in floats, whose result may be of floats.
  const bool halves = f32 && (a.type == CUDA_R_16F || a.type == CUDA_R_16BF);
  if (a.type != b.type || c.type != d.type || (a.type != p.scale && !halves) ||
      (d.type != p.scale && (!halves || d.type != a.type)))
    return not_supported("this choice of matrices' types");
  if (f64 && p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return not_supported("an epilogue in double");
  if ((p.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 && d.batch > 1) return not_supported("a bias for a batch");
  const std::int64_t m = p.transpose_a == CUBLAS_OP_N ? a.rows : a.columns,
                     k = p.transpose_a == CUBLAS_OP_N ? a.columns : a.rows;
  const std::int64_t k_of_b = p.transpose_b == CUBLAS_OP_N ? b.rows : b.columns,
                     n = p.transpose_b == CUBLAS_OP_N ? b.columns : b.rows;
  if (m != d.rows || n != d.columns || k != k_of_b || c.rows != m || c.columns != n) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

/// Of 16 bits: a sign, `exponent_bits`, and the fraction; computed by the definition of IEEE 754.
struct HalfFormat {
  int exponent_bits, fraction_bits, bias;

  float decode(std::uint16_t bits) const {
    const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1),
              fraction = bits & ((1 << fraction_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return static_cast<float>(fraction != 0 ? NAN : sign * INFINITY);
    const double value = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                       : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    return static_cast<float>(sign * value);
  }
  std::uint16_t encode(float value) const {
    const int sign = std::signbit(value) ? 0x8000 : 0, infinity = ((1 << exponent_bits) - 1) << fraction_bits;
    if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | 1 << (fraction_bits - 1));
    const double magnitude = std::fabs(static_cast<double>(value));
    if (magnitude == 0) return static_cast<std::uint16_t>(sign);
    const int exponent = std::isinf(magnitude) ? bias + 1 : std::max(std::ilogb(magnitude), 1 - bias);
    if (exponent > bias) return static_cast<std::uint16_t>(sign | infinity);
    // In units of the last place; one too large carries into the exponent, and at the end into infinity.
    const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
    return static_cast<std::uint16_t>(sign | (((exponent + bias - 1) << fraction_bits) + units));
  }
};
constexpr HalfFormat kF16{5, 10, 15}, kBf16{8, 7, 127};

/// Element `i` of a matrix of this type, in T.
template <class T>
T element(const void* data, cudaDataType_t type, std::int64_t i) {
  if (type != CUDA_R_16F && type != CUDA_R_16BF) return static_cast<const T*>(data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  return static_cast<T>((type == CUDA_R_16F ? kF16 : kBf16).decode(bits));
}
template <class T>
void set_element(void* data, cudaDataType_t type, std::int64_t i, T value) {
  if (type != CUDA_R_16F && type != CUDA_R_16BF)
    static_cast<T*>(data)[i] = value;
  else
    static_cast<std::uint16_t*>(data)[i] = (type == CUDA_R_16F ? kF16 : kBf16).encode(static_cast<float>(value));
}

template <class T>
void multiply(const cublasLtMatmulDescOpaque& p, const cublasLtMatrixLayoutOpaque& la,
              const cublasLtMatrixLayoutOpaque& lb, const cublasLtMatrixLayoutOpaque& lc,
              const cublasLtMatrixLayoutOpaque& ld, T alpha, const void* a, const void* b, T beta, const void* c,
              void* d) {
  const std::int64_t k = p.transpose_a == CUBLAS_OP_N ? la.columns : la.rows;
  // A row of op(a) and a column of op(b), gathered, make the inner loop contiguous.
  std::vector<T> rows(static_cast<std::size_t>(ld.rows * k)), column(static_cast<std::size_t>(k));
  for (std::int32_t batch = 0; batch < ld.batch; ++batch) {
    const auto of_a = [&](std::int64_t i) { return element<T>(a, la.type, batch * la.stride + i); };
    const auto of_b = [&](std::int64_t i) { return element<T>(b, lb.type, batch * lb.stride + i); };
    for (std::int64_t i = 0; i < ld.rows; ++i)
      for (std::int64_t e = 0; e < k; ++e)
        rows[static_cast<std::size_t>(i * k + e)] =
            of_a(p.transpose_a == CUBLAS_OP_N ? i + e * la.leading : e + i * la.leading);
    for (std::int64_t j = 0; j < ld.columns; ++j) {
      for (std::int64_t e = 0; e < k; ++e)
        column[static_cast<std::size_t>(e)] =
            of_b(p.transpose_b == CUBLAS_OP_N ? e + j * lb.leading : j + e * lb.leading);
      for (std::int64_t i = 0; i < ld.rows; ++i) {
        const T* row = rows.data() + i * k;
        T parts[8] = {};
        std::int64_t e = 0;
        for (; e + 8 <= k; e += 8)
          for (int part = 0; part < 8; ++part)
            parts[part] += row[e + part] * column[static_cast<std::size_t>(e + part)];
        for (; e < k; ++e) parts[0] += row[e] * column[static_cast<std::size_t>(e)];
        T sum = 0;
        for (T part : parts) sum += part;
        sum *= alpha;
        if (beta != T(0)) sum += beta * element<T>(c, lc.type, batch * lc.stride + i + j * lc.leading);
        if ((p.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) sum += element<T>(p.bias, ld.type, i);
        if ((p.epilogue & CUBLASLT_EPILOGUE_RELU) != 0) sum = sum < T(0) ? T(0) : sum;
        set_element(d, ld.type, batch * ld.stride + i + j * ld.leading, sum);
      }
    }
  }
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  cuda_on_cpu::count_descriptor();
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  cuda_on_cpu::count_descriptor();
  *product = new cublasLtMatmulDescOpaque{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete product;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return read(product->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return read(product->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return read(product->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return read(product->bias, value, bytes);
  }
  return not_supported("an attribute of the product");
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  if (rows == 0 || columns == 0 || leading < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  cuda_on_cpu::count_descriptor();
  *layout = new cublasLtMatrixLayoutOpaque{.type = type,
                                           .rows = static_cast<std::int64_t>(rows),
                                           .columns = static_cast<std::int64_t>(columns),
                                           .leading = leading};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return read(layout->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return read(layout->stride, value, bytes);
  }
  return not_supported("an attribute of a layout");
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  cuda_on_cpu::count_descriptor();
  *preference = new cublasLtMatmulPreferenceOpaque;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return read(preference->workspace, value, bytes);
  std::uint32_t alignment = 0;
  const cublasStatus_t status = read(alignment, value, bytes);
  if (status == CUBLAS_STATUS_SUCCESS && alignment < preference->alignment) preference->alignment = alignment;
  return status;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int requested, cublasLtMatmulHeuristicResult_t results[], int* found) {
  *found = 0;
  if (requested < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t status = check(*product, *a, *b, *c, *d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const int known = std::max(static_cast<int>(cuda_on_cpu::algorithms().size()), 1);
  for (*found = 0; *found < std::min(known, requested); ++*found) {
    cublasLtMatmulHeuristicResult_t& result = results[*found];
    result = {};
    result.algo.data[0] = preference->alignment;  // what cublasLtMatmul then holds the pointers to
    result.algo.data[1] = static_cast<std::uint64_t>(*found);
    result.workspaceSize = preference->workspace < kScratch ? preference->workspace : kScratch;
    result.state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr || product == nullptr || alpha == nullptr || beta == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  const cublasStatus_t status = check(*product, *a_layout, *b_layout, *c_layout, *d_layout);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  using cuda_on_cpu::require_current_device;
  if (cuda_on_cpu::existing(stream)->device != cuda_on_cpu::current_device())
    throw cuda_on_cpu::Failure("cublasLtMatmul: the stream is another device's than the current one");
  require_current_device(a, a_layout->bytes(), "cublasLtMatmul, A");
  require_current_device(b, b_layout->bytes(), "cublasLtMatmul, B");
  require_current_device(c, c_layout->bytes(), "cublasLtMatmul, C");
  require_current_device(d, d_layout->bytes(), "cublasLtMatmul, D");
  if (workspace_bytes > 0) require_current_device(workspace, workspace_bytes, "cublasLtMatmul, workspace");
  if ((product->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)
    require_current_device(product->bias, static_cast<std::size_t>(d_layout->rows) * d_layout->element_bytes(),
                           "cublasLtMatmul, bias");
  if (algorithm != nullptr && algorithm->data[0] != 0) {
    for (const void* p : {a, b, c, static_cast<const void*>(d)})
      if (reinterpret_cast<std::uintptr_t>(p) % algorithm->data[0] != 0)
        throw cuda_on_cpu::Failure("cublasLtMatmul: the algorithm was chosen for an alignment of " +
                                   std::to_string(algorithm->data[0]) + " bytes, and a matrix lies elsewhere");
  }
  const std::uint64_t place = algorithm != nullptr ? algorithm->data[1] : 0;
  const double delay = place < cuda_on_cpu::algorithms().size() ? cuda_on_cpu::algorithms()[place] : 0;
  if (delay < 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  cuda_on_cpu::count_library_call();
  cuda_on_cpu::count_algorithm(static_cast<std::int64_t>(place));
  const auto enqueue = [&]<class T>(T) {
    T factor_alpha, factor_beta;
    std::memcpy(&factor_alpha, alpha, sizeof(T));
    std::memcpy(&factor_beta, beta, sizeof(T));
    cuda_on_cpu::enqueue(
        "cublasLtMatmul",
        [=, p = *product, la = *a_layout, lb = *b_layout, lc = *c_layout, ld = *d_layout] {
          cuda_on_cpu::pass_time(delay);
          if (workspace_bytes > 0) std::memset(workspace, 0xff, workspace_bytes);
          multiply(p, la, lb, lc, ld, factor_alpha, a, b, factor_beta, c, d);
        },
        stream);
  };
  if (product->scale == CUDA_R_32F)
    enqueue(float{});
  else
    enqueue(double{});
  return CUBLAS_STATUS_SUCCESS;
}
