// fastest_of: which of several ways to compute the same takes the least time on this device, now.
//
//   const int best = fastest_of(context.stream(), 3, [&](int way) { return start(way); });   // false: it fails
//
// Each way runs on the stream kRuns times behind one that is not counted, which loads its kernels; the best of them is
// its time. Of ways that take the same the first is chosen; one that fails takes no part. It waits for the stream, so
// it has no place where calls are recorded.
#pragma once

#include "context.cuh"

#ifndef __CUDACC_RTC__
namespace graven::kernels {

template <class Way>
int fastest_of(cudaStream_t stream, int count, const Way& start_way) {
  constexpr int kRuns = 5;
  struct Event {
    Event() { GRAVEN_CUDA(cudaEventCreate(&event)); }
    ~Event() { (void)cudaEventDestroy(event); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    cudaEvent_t event = nullptr;
  };
  const Event start, end;
  int fastest = 0;
  float least = 0;
  bool any = false;
  for (int way = 0; way < count; ++way) {
    bool works = true;
    for (int run = 0; works && run <= kRuns; ++run) {
      GRAVEN_CUDA(cudaEventRecord(start.event, stream));
      works = start_way(way);
      GRAVEN_CUDA(cudaEventRecord(end.event, stream));
      GRAVEN_CUDA(cudaEventSynchronize(end.event));
      float milliseconds = 0;
      GRAVEN_CUDA(cudaEventElapsedTime(&milliseconds, start.event, end.event));
      if (run == 0 || !works || (any && milliseconds >= least)) continue;
      any = true;
      least = milliseconds;
      fastest = way;
    }
  }
  return fastest;
}

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
