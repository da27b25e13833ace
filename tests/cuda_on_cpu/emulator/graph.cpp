// Graphs: what a stream is given while it records, and those that have joined it. A launch gives it again, in order: to
// the stream that it is launched on what the first one was given, to streams of its own what the others were.
#include <algorithm>
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
  std::vector<CUstream_st*> streams;  ///< for all but the first of those that it was recorded by
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

/// Whether the first stream has waited for the last work of another.
bool is_joined(const cuda_on_cpu::Recording& recording, std::size_t stream) {
  std::size_t last = 0;
  for (std::size_t w = 0; w < recording.work.size(); ++w)
    if (recording.work[w].stream == stream) last = w + 1;
  return std::any_of(recording.work.begin(), recording.work.end(),
                     [&](const cuda_on_cpu::RecordedWork& work) { return work.stream == 0 && work.after == last; });
}

}  // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  CUstream_st* target = cuda_on_cpu::existing(stream);
  if (mode != cudaStreamCaptureModeThreadLocal)
    throw cuda_on_cpu::Failure("cudaStreamBeginCapture: other threads are to go on, which only ThreadLocal lets them");
  if (target->is_default || target->recording != nullptr)
    return returned(cudaErrorInvalidValue, "cudaStreamBeginCapture");
  target->recording = std::make_shared<cuda_on_cpu::Recording>();
  target->recording->streams.push_back(target);
  cuda_on_cpu::begin_recording();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  CUstream_st* target = cuda_on_cpu::existing(stream);
  if (graph == nullptr || target->recording == nullptr) return returned(cudaErrorInvalidValue, "cudaStreamEndCapture");
  const std::shared_ptr<cuda_on_cpu::Recording> recorded = target->recording;
  if (recorded->streams.front() != target) return returned(cudaErrorInvalidValue, "cudaStreamEndCapture");
  recorded->ended = true;
  for (CUstream_st* const stream : recorded->streams) stream->recording = nullptr;
  *graph = nullptr;
  if (cuda_on_cpu::end_recording()) return returned(cudaErrorStreamCaptureInvalidated, "cudaStreamEndCapture");
  for (std::size_t s = 1; s < recorded->streams.size(); ++s)
    if (!is_joined(*recorded, s)) return returned(cudaErrorStreamCaptureUnjoined, "cudaStreamEndCapture");
  cuda_on_cpu::count_descriptor();
  *graph = new CUgraph_st{.device = target->device, .work = std::move(recorded->work)};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  if (executable == nullptr || graph == nullptr || flags != 0)
    return returned(cudaErrorInvalidValue, "cudaGraphInstantiate");
  cuda_on_cpu::count_descriptor();
  *executable = new CUgraphExec_st{existing(*graph), {}};
  for (const cuda_on_cpu::RecordedWork& each : graph->work)
    while ((*executable)->streams.size() < each.stream)
      (*executable)->streams.push_back(new CUstream_st{.device = graph->device, .blocking = false});
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (executable == nullptr) return returned(cudaErrorInvalidValue, "cudaGraphLaunch");
  const CUgraph_st& graph = existing(executable->graph);
  if (graph.device != cuda_on_cpu::existing(stream)->device || graph.device != cuda_on_cpu::current_device())
    return returned(cudaErrorInvalidResourceHandle, "cudaGraphLaunch");
  cuda_on_cpu::count_graph_launch();
  std::vector<std::uint64_t> given = {0};
  for (const cuda_on_cpu::RecordedWork& each : graph.work)
    given.push_back(cuda_on_cpu::enqueue_attempt(
        each.name, each.run, each.stream == 0 ? stream : executable->streams[each.stream - 1], given[each.after]));
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
