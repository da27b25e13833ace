// Graphs: what one stream is given while it records. A launch gives it again, in order.
#include <memory>
#include <utility>
#include <vector>

#include "cuda_runtime.h"

// As with streams, those that were destroyed stay, so that their use is seen.
struct CUgraph_st {
  int device = 0;
  std::vector<cuda_on_cpu::RecordedWork> work;
  bool destroyed = false;
};
struct CUgraphExec_st {
  CUgraph_st graph;
};

using cuda_on_cpu::returned;

namespace {

CUgraph_st& existing(CUgraph_st& graph) {
  if (graph.destroyed) throw cuda_on_cpu::Failure("a graph is used that was destroyed");
  return graph;
}
void destroy(CUgraph_st& graph) {
  existing(graph).destroyed = true;
  graph.work = {};
}

}  // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  CUstream_st* target = cuda_on_cpu::existing(stream);
  if (mode != cudaStreamCaptureModeThreadLocal)
    throw cuda_on_cpu::Failure("cudaStreamBeginCapture: other threads are to go on, which only ThreadLocal lets them");
  if (target->is_default || target->recording != nullptr)
    return returned(cudaErrorInvalidValue, "cudaStreamBeginCapture");
  target->recording = new std::vector<cuda_on_cpu::RecordedWork>;
  cuda_on_cpu::begin_recording();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  CUstream_st* target = cuda_on_cpu::existing(stream);
  if (graph == nullptr || target->recording == nullptr) return returned(cudaErrorInvalidValue, "cudaStreamEndCapture");
  const std::unique_ptr<std::vector<cuda_on_cpu::RecordedWork>> recorded(std::exchange(target->recording, nullptr));
  if (cuda_on_cpu::end_recording()) {
    *graph = nullptr;
    return returned(cudaErrorStreamCaptureInvalidated, "cudaStreamEndCapture");
  }
  cuda_on_cpu::count_descriptor();
  *graph = new CUgraph_st{.device = target->device, .work = std::move(*recorded)};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  if (executable == nullptr || graph == nullptr || flags != 0)
    return returned(cudaErrorInvalidValue, "cudaGraphInstantiate");
  cuda_on_cpu::count_descriptor();
  *executable = new CUgraphExec_st{existing(*graph)};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (executable == nullptr) return returned(cudaErrorInvalidValue, "cudaGraphLaunch");
  const CUgraph_st& graph = existing(executable->graph);
  if (graph.device != cuda_on_cpu::existing(stream)->device || graph.device != cuda_on_cpu::current_device())
    return returned(cudaErrorInvalidResourceHandle, "cudaGraphLaunch");
  cuda_on_cpu::count_graph_launch();
  for (const cuda_on_cpu::RecordedWork& each : graph.work) cuda_on_cpu::enqueue(each.name, each.run, stream);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  if (graph != nullptr) destroy(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  if (executable != nullptr) destroy(executable->graph);  // what was launched stays in the stream
  return cudaSuccess;
}
