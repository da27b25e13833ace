// A stand-in for cuBLASLt, libcublasLt.so.13: the emulated one of tests/cuda_on_cpu, by the names that the library has.
// These are given to functions of other names, since the emulated ones have them in C++.
#include "cublasLt.h"

extern "C" const char* exported_cublasLtGetStatusString(cublasStatus_t status) asm("cublasLtGetStatusString");
const char* exported_cublasLtGetStatusString(cublasStatus_t status) { return cublasLtGetStatusString(status); }
extern "C" std::size_t exported_cublasLtGetVersion() asm("cublasLtGetVersion");
std::size_t exported_cublasLtGetVersion() { return 130000; }
extern "C" cublasStatus_t exported_cublasLtCreate(cublasLtHandle_t* handle) asm("cublasLtCreate");
cublasStatus_t exported_cublasLtCreate(cublasLtHandle_t* handle) { return cublasLtCreate(handle); }
extern "C" cublasStatus_t exported_cublasLtDestroy(cublasLtHandle_t handle) asm("cublasLtDestroy");
cublasStatus_t exported_cublasLtDestroy(cublasLtHandle_t handle) { return cublasLtDestroy(handle); }
extern "C" cublasStatus_t exported_cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                                            cudaDataType_t scale) asm("cublasLtMatmulDescCreate");
cublasStatus_t exported_cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                                 cudaDataType_t scale) {
  return cublasLtMatmulDescCreate(product, compute, scale);
}
extern "C" cublasStatus_t exported_cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) asm(
    "cublasLtMatmulDescDestroy");
cublasStatus_t exported_cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  return cublasLtMatmulDescDestroy(product);
}
extern "C" cublasStatus_t exported_cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const void* value,
    std::size_t bytes) asm("cublasLtMatmulDescSetAttribute");
cublasStatus_t exported_cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                                       cublasLtMatmulDescAttributes_t attribute, const void* value,
                                                       std::size_t bytes) {
  return cublasLtMatmulDescSetAttribute(product, attribute, value, bytes);
}
extern "C" cublasStatus_t exported_cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                                              std::uint64_t rows, std::uint64_t columns,
                                                              std::int64_t leading) asm("cublasLtMatrixLayoutCreate");
cublasStatus_t exported_cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                                   std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
  return cublasLtMatrixLayoutCreate(layout, type, rows, columns, leading);
}
extern "C" cublasStatus_t exported_cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) asm(
    "cublasLtMatrixLayoutDestroy");
cublasStatus_t exported_cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return cublasLtMatrixLayoutDestroy(layout);
}
extern "C" cublasStatus_t exported_cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
    std::size_t bytes) asm("cublasLtMatrixLayoutSetAttribute");
cublasStatus_t exported_cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                         cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                         std::size_t bytes) {
  return cublasLtMatrixLayoutSetAttribute(layout, attribute, value, bytes);
}
extern "C" cublasStatus_t exported_cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) asm(
    "cublasLtMatmulPreferenceCreate");
cublasStatus_t exported_cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return cublasLtMatmulPreferenceCreate(preference);
}
extern "C" cublasStatus_t exported_cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) asm(
    "cublasLtMatmulPreferenceDestroy");
cublasStatus_t exported_cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return cublasLtMatmulPreferenceDestroy(preference);
}
extern "C" cublasStatus_t exported_cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
    std::size_t bytes) asm("cublasLtMatmulPreferenceSetAttribute");
cublasStatus_t exported_cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                             cublasLtMatmulPreferenceAttributes_t attribute,
                                                             const void* value, std::size_t bytes) {
  return cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, bytes);
}
extern "C" cublasStatus_t exported_cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                                                  cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                                  cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                                  cublasLtMatmulPreference_t preference, int requested,
                                                                  cublasLtMatmulHeuristicResult_t results[],
                                                                  int* found) asm("cublasLtMatmulAlgoGetHeuristic");
cublasStatus_t exported_cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                       cublasLtMatmulPreference_t preference, int requested,
                                                       cublasLtMatmulHeuristicResult_t results[], int* found) {
  return cublasLtMatmulAlgoGetHeuristic(handle, product, a, b, c, d, preference, requested, results, found);
}
extern "C" cublasStatus_t exported_cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
    cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
    cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm,
    void* workspace, std::size_t workspace_bytes, cudaStream_t stream) asm("cublasLtMatmul");
cublasStatus_t exported_cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha,
                                       const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                                       cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                                       cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                                       const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                                       std::size_t workspace_bytes, cudaStream_t stream) {
  return cublasLtMatmul(handle, product, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm,
                        workspace, workspace_bytes, stream);
}
