// The functions of toolkit/cuda_runtime.h and toolkit/cublasLt.h, made of the driver's and of cuBLASLt's.
#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "codegen/build/cuda/libraries.h"
#include "codegen/build/cuda/program.h"
#include "cublasLt.h"
#include "ir/diagnostic.h"

namespace graven::cuda_toolkit {

namespace {

using codegen::cuda::DevicePointer;
using codegen::cuda::driver;

cudaError_t as_error(codegen::cuda::Result result) { return static_cast<cudaError_t>(result); }
DevicePointer address_of(const void* data) { return reinterpret_cast<DevicePointer>(data); }

/// The primary context of a device, which the runtime and the libraries of others in this process use as well. Kept for
/// good.
cudaError_t primary_context(int device, void** context) {
  static std::mutex mutex;
  static std::vector<void*> contexts;
  const std::lock_guard lock(mutex);
  if (contexts.empty()) contexts.resize(static_cast<std::size_t>(codegen::cuda::device_count()));
  if (device < 0 || device >= static_cast<int>(contexts.size())) return cudaErrorInvalidDevice;
  void*& known = contexts[static_cast<std::size_t>(device)];
  if (!known) {
    int handle = 0;
    if (const auto error = driver().device_get(&handle, device); error != 0) return as_error(error);
    if (const auto error = driver().primary_context(&known, handle); error != 0) return as_error(error);
  }
  *context = known;
  return cudaSuccess;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

thread_local codegen::cuda::Program* t_program = nullptr;

}  // namespace

// ---- names and launches ---------------------------------------------------------------------------------------------

std::string type_text(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                         std::free);
  GRAVEN_CHECK(status == 0, "a type without a name");
  std::string text = demangled.get();
  replace_all(text, "graven::kernels::on_cuda::", "graven::kernels::");
  return text;
}

std::string kernel_text(const char* name, std::initializer_list<std::string> arguments) {
  std::string text = std::string("graven::kernels::") + name + "<";
  for (const std::string& argument : arguments) text += (text.back() == '<' ? "" : ", ") + argument;
  return text + ">";
}

void note_kernel(std::string name) {
  GRAVEN_CHECK(t_program, "a kernel outside of a program");
  t_program->note(name);
}
bool is_known_kernel(const void* host_function) {
  GRAVEN_CHECK(t_program, "a kernel outside of a program");
  return t_program->knows(host_function);
}
cudaError_t launch_noted_kernel(const void* host_function, const cudaLaunchConfig_t& config, void** parameters) {
  return t_program->launch(host_function, config, parameters);
}

// ---- errors and devices ---------------------------------------------------------------------------------------------

const char* cudaGetErrorName(cudaError_t error) {
  const char* text = nullptr;
  driver().error_name(error, &text);
  return text ? text : "CUDA error";
}
const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  driver().error_string(error, &text);
  return text ? text : "unknown";
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = codegen::cuda::device_count();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  void* context = nullptr;
  if (const cudaError_t error = primary_context(device, &context); error != cudaSuccess) return error;
  return as_error(driver().set_context(context));
}
cudaError_t cudaGetDevice(int* device) {
  void* context = nullptr;
  if (const auto error = driver().get_context(&context); error != 0) return as_error(error);
  if (!context)
    if (const cudaError_t error = cudaSetDevice(0); error != cudaSuccess) return error;
  return as_error(driver().context_device(device));
}

// ---- streams, events, memory, graphs --------------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return as_error(driver().stream_create(reinterpret_cast<void**>(stream), flags));
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return as_error(driver().stream_destroy(stream)); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return as_error(driver().stream_synchronize(stream)); }
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return as_error(driver().event_create(reinterpret_cast<void**>(event), 0));
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return as_error(driver().event_destroy(event)); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return as_error(driver().event_record(event, stream));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return as_error(driver().event_synchronize(event)); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return as_error(driver().event_elapsed(milliseconds, start, end));
}
cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  DevicePointer pointer = 0;
  const auto error = driver().allocate(&pointer, bytes);
  *address = reinterpret_cast<void*>(pointer);
  return as_error(error);
}
cudaError_t cudaFree(void* address) { return as_error(driver().release(address_of(address))); }
cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  return as_error(driver().allocate_host(address, bytes));
}
cudaError_t cudaFreeHost(void* address) { return as_error(driver().release_host(address)); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (t_program && t_program->collects()) return cudaSuccess;
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return as_error(driver().copy_to_device(address_of(to), from, bytes, stream));
    case cudaMemcpyDeviceToHost:
      return as_error(driver().copy_to_host(to, address_of(from), bytes, stream));
    case cudaMemcpyDeviceToDevice:
      return as_error(driver().copy_on_device(address_of(to), address_of(from), bytes, stream));
    case cudaMemcpyDefault:
      break;
  }
  return cudaErrorInvalidValue;
}
cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream) {
  if (t_program && t_program->collects()) return cudaSuccess;
  return as_error(driver().set_bytes(address_of(address), static_cast<unsigned char>(value), bytes, stream));
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return as_error(driver().memory_info(free, total));
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return as_error(driver().capture_begin(stream, mode));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return as_error(driver().capture_end(stream, reinterpret_cast<void**>(graph)));
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return as_error(driver().graph_instantiate(reinterpret_cast<void**>(executable), graph, flags));
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return as_error(driver().graph_launch(executable, stream));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return as_error(driver().graph_destroy(graph)); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return as_error(driver().graph_exec_destroy(executable));
}

// ---- cuBLASLt -------------------------------------------------------------------------------------------------------

#define GRAVEN_FORWARD(name, ...)                                                                           \
  static const auto function = reinterpret_cast<decltype(&name)>(codegen::cuda::cublas_lt_function(#name)); \
  return function(__VA_ARGS__)

const char* cublasLtGetStatusString(cublasStatus_t status) { GRAVEN_FORWARD(cublasLtGetStatusString, status); }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { GRAVEN_FORWARD(cublasLtCreate, handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { GRAVEN_FORWARD(cublasLtDestroy, handle); }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  GRAVEN_FORWARD(cublasLtMatmulDescCreate, product, compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  GRAVEN_FORWARD(cublasLtMatmulDescDestroy, product);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  GRAVEN_FORWARD(cublasLtMatmulDescSetAttribute, product, attribute, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  GRAVEN_FORWARD(cublasLtMatrixLayoutCreate, layout, type, rows, columns, leading);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  GRAVEN_FORWARD(cublasLtMatrixLayoutDestroy, layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  GRAVEN_FORWARD(cublasLtMatrixLayoutSetAttribute, layout, attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  GRAVEN_FORWARD(cublasLtMatmulPreferenceCreate, preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  GRAVEN_FORWARD(cublasLtMatmulPreferenceDestroy, preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  GRAVEN_FORWARD(cublasLtMatmulPreferenceSetAttribute, preference, attribute, value, bytes);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  GRAVEN_FORWARD(cublasLtMatmulAlgoGetHeuristic, handle, product, a, b, c, d, preference, requested, results, found);
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  if (t_program && t_program->collects()) return CUBLAS_STATUS_SUCCESS;  // nothing is computed
  GRAVEN_FORWARD(cublasLtMatmul, handle, product, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,
                 algorithm, workspace, workspace_bytes, stream);
}

#undef GRAVEN_FORWARD

}  // namespace graven::cuda_toolkit

namespace graven::codegen::cuda {

using cuda_toolkit::cudaError_t;
using cuda_toolkit::cudaSuccess;
using cuda_toolkit::t_program;

Program::~Program() {
  for (void* module : modules_) driver().module_unload(module);
}

Program::Use::Use(Program& program, const StandIns& call, std::size_t number) {
  GRAVEN_CHECK(!t_program, "a call within a call");
  program.call_ = &call;
  program.number_ = number;
  if (program.functions_.size() <= number) program.functions_.resize(number + 1);
  t_program = &program;
}
Program::Use::~Use() { t_program = nullptr; }

void Program::note(const std::string& text) {
  noted_ = text;
  const auto fill_in = [&](std::string_view stand_in, const std::string& with) {
    cuda_toolkit::replace_all(noted_, stand_in, with);
  };
  const std::string toolkit = "graven::cuda_toolkit::";
  for (const char* functor : {"relu_functor", "functor<1>", "functor<2>", "functor<3>", "functor<4>", "functor<5>",
                              "functor<6>", "functor<7>", "functor<8>", "rule<0>", "rule<1>", "rule<2>"})
    fill_in(toolkit + functor, call_->functor);
  fill_in(toolkit + "rule_options", call_->options);
  for (std::size_t place = 0; place < call_->types.size(); ++place)
    for (const char* bytes : {"1", "2", "4", "8"})
      fill_in(toolkit + "element<" + bytes + ", " + std::to_string(place) + ">", call_->types[place]);
  fill_in(toolkit, "");  // CUDA's own types stand in no namespace
}

cudaError_t Program::launch(const void* host_function, const cuda_toolkit::cudaLaunchConfig_t& config,
                            void** parameters) {
  if (collects_) {
    if (kernels_.count(noted_) == 0) missing_.insert(noted_);
    return cudaSuccess;
  }
  void*& function = functions_[number_][host_function];
  if (!function) {
    const auto kernel = kernels_.find(noted_);
    GRAVEN_CHECK(kernel != kernels_.end(), "the kernel " + noted_ + " was not compiled");
    const auto& [module, lowered_name] = kernel->second;
    if (const Result error = driver().module_function(&function, module, lowered_name.c_str()); error != 0)
      return static_cast<cudaError_t>(error);
  }
  return static_cast<cudaError_t>(driver().launch(
      function, config.gridDim.x, config.gridDim.y, config.gridDim.z, config.blockDim.x, config.blockDim.y,
      config.blockDim.z, static_cast<unsigned>(config.dynamicSmemBytes), config.stream, parameters, nullptr));
}

void Program::load(const CompiledKernels& kernels) {
  void* module = nullptr;
  if (const Result error = driver().module_load(&module, kernels.cubin.data()); error != 0)
    throw UserError(std::string("CUDA: the compiled kernels cannot be loaded: ") +
                    cuda_toolkit::cudaGetErrorName(static_cast<cudaError_t>(error)));
  modules_.push_back(module);
  for (const auto& [name, lowered] : kernels.lowered_names) {
    kernels_.emplace(name, Kernel{module, lowered});
    missing_.erase(name);
  }
}

}  // namespace graven::codegen::cuda
