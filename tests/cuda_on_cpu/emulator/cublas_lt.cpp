// cuBLASLt by plain loops. Column-major matrices: element (row, column) lies at row + column * leading.
//
// What the library refuses is refused by the same status, and stderr says why; what it would do unseen, with memory
// that is not there or used twice, is a Failure.
#include "cublasLt.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "cuda_on_cpu/numbers.h"

// As with streams, those that were destroyed stay, so that their use is seen.
struct cublasLtContext {
  int device = 0;
  bool destroyed = false;
};
struct cublasLtMatmulDescOpaque {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  bool destroyed = false;
};
struct cublasLtMatrixLayoutOpaque {
  cudaDataType_t type;
  std::int64_t rows, columns, leading;
  std::int32_t batch = 1;
  std::int64_t stride = 0;
  bool destroyed = false;

  bool same_as(const cublasLtMatrixLayoutOpaque& o) const {
    return type == o.type && rows == o.rows && columns == o.columns && leading == o.leading && batch == o.batch &&
           (batch == 1 || stride == o.stride);
  }
  /// Elements from the first to the end of the last, of one matrix of the batch.
  std::int64_t elements() const { return (columns - 1) * leading + rows; }
  std::size_t element_bytes() const { return type == CUDA_R_32F ? 4 : type == CUDA_R_64F ? 8 : 2; }
  std::size_t bytes() const { return static_cast<std::size_t>((batch - 1) * stride + elements()) * element_bytes(); }
};
struct cublasLtMatmulPreferenceOpaque {
  std::size_t workspace = 0;
  std::uint32_t alignment = 256;
  bool destroyed = false;
};

namespace {

constexpr std::size_t kScratch = 4096;  // asked for, and overwritten, as a real algorithm does

cublasStatus_t not_supported(const char* what) {
  std::fprintf(stderr, "cuda_on_cpu: cublasLt: %s is not emulated\n", what);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t invalid(const std::string& what) {
  std::fprintf(stderr, "cuda_on_cpu: cublasLt: %s\n", what.c_str());
  return CUBLAS_STATUS_INVALID_VALUE;
}

/// Failure for one that was destroyed. `call` and `what` name it.
template <class Made>
Made* existing(Made* made, const char* call, const char* what) {
  if (made != nullptr && made->destroyed)
    throw cuda_on_cpu::Failure(std::string(call) + ": " + what + " is used that was destroyed");
  return made;
}

/// What an algorithm was recommended for, which is all that it may be used for: types, transposes, epilogue, batch.
std::uint64_t kind_of(const cublasLtMatmulDescOpaque& p, const cublasLtMatrixLayoutOpaque& a,
                      const cublasLtMatrixLayoutOpaque& d) {
  std::uint64_t kind = 1;
  for (const int part : {static_cast<int>(p.compute), static_cast<int>(p.scale), static_cast<int>(a.type),
                         static_cast<int>(d.type), static_cast<int>(p.transpose_a), static_cast<int>(p.transpose_b),
                         static_cast<int>(p.epilogue), d.batch > 1 ? 1 : 0})
    kind = kind * 128 + static_cast<std::uint64_t>(part);
  return kind;
}

template <class Value>
cublasStatus_t read(Value& to, const void* value, std::size_t bytes) {
  if (value == nullptr) return invalid("an attribute's value is missing");
  if (bytes != sizeof(Value))
    return invalid("an attribute of " + std::to_string(sizeof(Value)) + " bytes is given " + std::to_string(bytes));
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

/// The checks that cublasLtMatmul and its heuristic share.
cublasStatus_t check(const cublasLtMatmulDescOpaque& p, const cublasLtMatrixLayoutOpaque& a,
                     const cublasLtMatrixLayoutOpaque& b, const cublasLtMatrixLayoutOpaque& c,
                     const cublasLtMatrixLayoutOpaque& d) {
  const bool tf32 = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type == CUDA_R_32F;
  const bool f32 = (p.compute == CUBLAS_COMPUTE_32F || tf32) && p.scale == CUDA_R_32F,
             f64 = p.compute == CUBLAS_COMPUTE_64F && p.scale == CUDA_R_64F;
  if (!f32 && !f64) return not_supported("this compute type");
  for (const auto* m : {&a, &b, &c, &d}) {
    if (m->batch != d.batch || m->batch < 1) return invalid("the matrices' batches are not of one size");
    if (m->leading < m->rows) return invalid("a leading dimension is less than the rows of its matrix");
    if (m->batch > 1 && m->stride < 0) return invalid("a stride from matrix to matrix is negative");
  }
  // One behind the other, or side by side within the leading dimension.
  if (d.batch > 1 && d.stride < d.elements() && (d.stride < d.rows || (d.batch - 1) * d.stride + d.rows > d.leading))
    return invalid("the results of a batch lie upon each other");
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
  if (m != d.rows || n != d.columns || k != k_of_b || c.rows != m || c.columns != n)
    return invalid("op(A) of " + std::to_string(m) + "x" + std::to_string(k) + " times op(B) of " +
                   std::to_string(k_of_b) + "x" + std::to_string(n) + " is given C of " + std::to_string(c.rows) + "x" +
                   std::to_string(c.columns) + " and D of " + std::to_string(d.rows) + "x" + std::to_string(d.columns));
  return CUBLAS_STATUS_SUCCESS;
}

/// Failure where a part of a call was destroyed, or the handle is another device's.
void require_usable(const char* call, cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                    std::initializer_list<cublasLtMatrixLayout_t> layouts) {
  if (existing(handle, call, "a handle")->device != cuda_on_cpu::current_device())
    throw cuda_on_cpu::Failure(std::string(call) + ": the handle is another device's than the current one");
  existing(product, call, "a product");
  for (const auto layout : layouts) existing(layout, call, "a layout");
}

/// What a product may take: 4096 bytes, and without so much an algorithm that takes none.
std::size_t scratch_within(std::size_t bytes) { return bytes < kScratch ? 0 : kScratch; }

/// Failure, where memory that is written lies upon other memory of the call.
void require_apart(const void* written, std::size_t written_bytes, const char* written_name, const void* other,
                   std::size_t bytes, const char* name) {
  const auto* w = static_cast<const char*>(written);
  const auto* o = static_cast<const char*>(other);
  if (w < o + bytes && o < w + written_bytes)
    throw cuda_on_cpu::Failure(std::string("cublasLtMatmul: ") + written_name + " lies upon " + name);
}

/// Element `i` of a matrix of this type, in T.
template <class T>
T element(const void* data, cudaDataType_t type, std::int64_t i) {
  if (type != CUDA_R_16F && type != CUDA_R_16BF) return static_cast<const T*>(data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  return static_cast<T>((type == CUDA_R_16F ? cuda_on_cpu::kF16 : cuda_on_cpu::kBf16).decode(bits));
}
template <class T>
void set_element(void* data, cudaDataType_t type, std::int64_t i, T value) {
  if (type != CUDA_R_16F && type != CUDA_R_16BF)
    static_cast<T*>(data)[i] = value;
  else
    static_cast<std::uint16_t*>(data)[i] =
        (type == CUDA_R_16F ? cuda_on_cpu::kF16 : cuda_on_cpu::kBf16).encode(static_cast<float>(value));
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
    const auto factor = [&](const void* data, const cublasLtMatrixLayoutOpaque& layout, std::int64_t i) {
      const T value = element<T>(data, layout.type, batch * layout.stride + i);
      return p.compute == CUBLAS_COMPUTE_32F_FAST_TF32
                 ? static_cast<T>(cuda_on_cpu::rounded_to_tf32(static_cast<float>(value)))
                 : value;
    };
    const auto of_a = [&](std::int64_t i) { return factor(a, la, i); };
    const auto of_b = [&](std::int64_t i) { return factor(b, lb, i); };
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
  *handle = new cublasLtContext{.device = cuda_on_cpu::current_device()};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  existing(handle, "cublasLtDestroy", "a handle")->destroyed = true;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  cuda_on_cpu::count_descriptor();
  *product = new cublasLtMatmulDescOpaque{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  if (product == nullptr) return invalid("cublasLtMatmulDescDestroy: nullptr");
  existing(product, "cublasLtMatmulDescDestroy", "a product")->destroyed = true;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  if (product == nullptr) return invalid("cublasLtMatmulDescSetAttribute: nullptr");
  existing(product, "cublasLtMatmulDescSetAttribute", "a product");
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
  if (rows == 0 || columns == 0) return invalid("a matrix without elements");
  if (leading < static_cast<std::int64_t>(rows))
    return invalid("a leading dimension of " + std::to_string(leading) + " for columns of " + std::to_string(rows));
  cuda_on_cpu::count_descriptor();
  *layout = new cublasLtMatrixLayoutOpaque{.type = type,
                                           .rows = static_cast<std::int64_t>(rows),
                                           .columns = static_cast<std::int64_t>(columns),
                                           .leading = leading};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  if (layout == nullptr) return invalid("cublasLtMatrixLayoutDestroy: nullptr");
  existing(layout, "cublasLtMatrixLayoutDestroy", "a layout")->destroyed = true;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  if (layout == nullptr) return invalid("cublasLtMatrixLayoutSetAttribute: nullptr");
  existing(layout, "cublasLtMatrixLayoutSetAttribute", "a layout");
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
  if (preference == nullptr) return invalid("cublasLtMatmulPreferenceDestroy: nullptr");
  existing(preference, "cublasLtMatmulPreferenceDestroy", "a preference")->destroyed = true;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  if (preference == nullptr) return invalid("cublasLtMatmulPreferenceSetAttribute: nullptr");
  existing(preference, "cublasLtMatmulPreferenceSetAttribute", "a preference");
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return read(preference->workspace, value, bytes);
  std::uint32_t alignment = 0;
  const cublasStatus_t status = read(alignment, value, bytes);
  if (status == CUBLAS_STATUS_SUCCESS && (alignment == 0 || (alignment & (alignment - 1)) != 0))
    return invalid("an alignment of " + std::to_string(alignment) + " bytes, which is no power of 2");
  if (status == CUBLAS_STATUS_SUCCESS && alignment < preference->alignment) preference->alignment = alignment;
  return status;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  *found = 0;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (product == nullptr || preference == nullptr || results == nullptr)
    return invalid("cublasLtMatmulAlgoGetHeuristic: nullptr");
  if (requested < 1) return invalid("no algorithm is asked for");
  require_usable("cublasLtMatmulAlgoGetHeuristic", handle, product, {a, b, c, d});
  existing(preference, "cublasLtMatmulAlgoGetHeuristic", "a preference");
  for (const auto* layout : {a, b, c, d})
    if (layout == nullptr) return invalid("cublasLtMatmulAlgoGetHeuristic: a layout is missing");
  const cublasStatus_t status = check(*product, *a, *b, *c, *d);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const int known = std::max(static_cast<int>(cuda_on_cpu::algorithms().size()), 1);
  for (*found = 0; *found < std::min(known, requested); ++*found) {
    cublasLtMatmulHeuristicResult_t& result = results[*found];
    result = {};
    result.algo.data[0] = preference->alignment;  // what cublasLtMatmul then holds the pointers to
    result.algo.data[1] = static_cast<std::uint64_t>(*found);
    result.workspaceSize = scratch_within(preference->workspace);
    result.algo.data[2] = result.workspaceSize;
    result.algo.data[3] = kind_of(*product, *a, *d);
    result.state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  for (const void* needed :
       std::initializer_list<const void*>{product, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout})
    if (needed == nullptr) return invalid("cublasLtMatmul: nullptr");
  require_usable("cublasLtMatmul", handle, product, {a_layout, b_layout, c_layout, d_layout});
  for (const void* factor : {alpha, beta})
    if (cuda_on_cpu::is_device(factor))
      throw cuda_on_cpu::Failure("cublasLtMatmul: alpha and beta are read by the host, and one is device memory");
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
  const std::pair<const char*, std::pair<const void*, const cublasLtMatrixLayoutOpaque*>> matrices[] = {
      {"A", {a, a_layout}}, {"B", {b, b_layout}}, {"C", {c, c_layout}}, {"D", {d, d_layout}}};
  for (const auto& [name, matrix] : matrices)
    if (reinterpret_cast<std::uintptr_t>(matrix.first) % matrix.second->element_bytes() != 0)
      return invalid(std::string("the address of ") + name + " is no multiple of its elements' size");
  if (c == d && !c_layout->same_as(*d_layout)) return invalid("C and D are one matrix, in two layouts");
  const std::size_t d_bytes = d_layout->bytes();
  require_apart(d, d_bytes, "D", a, a_layout->bytes(), "A");
  require_apart(d, d_bytes, "D", b, b_layout->bytes(), "B");
  if (c != d) require_apart(d, d_bytes, "D", c, c_layout->bytes(), "C");
  if (workspace_bytes > 0) {
    if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0)
      return invalid("the workspace's address is no multiple of 256");
    for (const auto& [name, matrix] : matrices)
      require_apart(workspace, workspace_bytes, "the workspace", matrix.first, matrix.second->bytes(), name);
  }
  if (algorithm != nullptr) {
    if (algorithm->data[0] == 0) return invalid("an algorithm that nobody recommended");
    if (algorithm->data[3] != kind_of(*product, *a_layout, *d_layout))
      return not_supported("an algorithm that was recommended for another product: it");
    if (workspace_bytes < algorithm->data[2])
      return invalid("a workspace of " + std::to_string(workspace_bytes) + " bytes for an algorithm that takes " +
                     std::to_string(algorithm->data[2]));
    for (const auto& [name, matrix] : matrices)
      if (reinterpret_cast<std::uintptr_t>(matrix.first) % algorithm->data[0] != 0)
        throw cuda_on_cpu::Failure("cublasLtMatmul: the algorithm was chosen for an alignment of " +
                                   std::to_string(algorithm->data[0]) + " bytes, and " + name + " lies elsewhere");
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
