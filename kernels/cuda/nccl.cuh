// NcclCollectives: ranks whose devices bring tensors together by NCCL, which is opened when there is more than one
// rank: a program needs libnccl.so.2 (2.10 or later) on machines where it trains over several devices, and nowhere
// else.
//
//   NcclCollectives ranks(context, {.rank = 1, .size = 4, .broadcast = ..., .require_others = ...});
//   ranks.begin_part(/*is_last=*/true);
//   program.backward(step);                     // all_reduce begins, bucket by bucket, beside the rest of backward
//   ranks.finish();                             // what the context's stream is given from here on finds the means
//
// Tensors are brought together where they lie, several of them by one launch: a bucket is what has come together when
// it has kBucketBytes, or backward is over. All of it may be recorded (recorded_calls.cuh): the stream of the messages
// forks from the context's, and joins it in finish(). With the same ranks, devices and library a mean has the same bits
// each time, on all ranks.
//
// The names and numbers of NCCL's interface: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html
#pragma once

#include "collectives.cuh"
#include "context.cuh"

#ifndef __CUDACC_RTC__
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace graven::kernels {

/// The library's functions.
class Nccl {
 public:
  struct Communicator;
  struct UniqueId {
    char bytes[128];
  };
  enum Type : int { float32 = 7, float64 = 8 };
  enum Operation : int { mean = 4 };
  static constexpr Type type_of(const float*) { return float32; }
  static constexpr Type type_of(const double*) { return float64; }
  static constexpr int success = 0, in_progress = 7;

  /// CudaError where it is not there, or too old.
  static const Nccl& library() {
    static const Nccl opened;
    return opened;
  }

  int (*get_unique_id)(UniqueId*);
  int (*init_rank)(Communicator**, int size, UniqueId, int rank);
  int (*destroy)(Communicator*);
  int (*abort)(Communicator*);
  int (*get_async_error)(Communicator*, int*);
  int (*all_reduce)(const void* from, void* to, std::size_t count, int type, int operation, Communicator*,
                    cudaStream_t);
  int (*reduce)(const void* from, void* to, std::size_t count, int type, int operation, int root, Communicator*,
                cudaStream_t);
  int (*broadcast)(const void* from, void* to, std::size_t count, int type, int root, Communicator*, cudaStream_t);
  int (*all_gather)(const void* from, void* to, std::size_t count_each, int type, Communicator*, cudaStream_t);
  int (*group_start)();
  int (*group_end)();
  const char* (*error_text)(int);

  void check(int result, const char* call, const char* file, int line) const {
    if (result != success) throw_cuda_error("NCCL", error_text(result), call, file, line);
  }

 private:
  Nccl() {
    void* const library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = ::dlerror();
      throw CudaError(std::string("NCCL, which several ranks need: libnccl.so.2 cannot be opened (") +
                      (why != nullptr ? why : "no reason is given") +
                      "); install it, or name its folder in LD_LIBRARY_PATH");
    }
    int (*get_version)(int*) = nullptr;
    find(library, "ncclGetVersion", get_version);
    int version = 0;
    if (get_version(&version) != success || version < kOldest)
      throw CudaError("NCCL: expected version 2.10 or later, found one that calls itself " + std::to_string(version));
    find(library, "ncclGetUniqueId", get_unique_id);
    find(library, "ncclCommInitRank", init_rank);
    find(library, "ncclCommDestroy", destroy);
    find(library, "ncclCommAbort", abort);
    find(library, "ncclCommGetAsyncError", get_async_error);
    find(library, "ncclAllReduce", all_reduce);
    find(library, "ncclReduce", reduce);
    find(library, "ncclBroadcast", broadcast);
    find(library, "ncclAllGather", all_gather);
    find(library, "ncclGroupStart", group_start);
    find(library, "ncclGroupEnd", group_end);
    find(library, "ncclGetErrorString", error_text);
  }
  template <class F>
  static void find(void* library, const char* name, F& function) {
    void* const found = ::dlsym(library, name);
    if (found == nullptr) throw CudaError(std::string("NCCL: libnccl.so.2 has no ") + name);
    std::memcpy(&function, &found, sizeof found);
  }

  static constexpr int kOldest = 21000;  ///< the first with means
};
#define GRAVEN_NCCL(call) ::graven::kernels::Nccl::library().check((call), #call, __FILE__, __LINE__)

class NcclCollectives final : public Collectives {
 public:
  /// The processes, by the host's own means.
  struct Processes {
    int rank = 0, size = 1;
    void (*broadcast)(void* data, std::size_t bytes);  ///< the first rank's bytes for everybody
    /// Called while this rank waits for the others, and has for so long: it throws where one of them is gone.
    void (*require_others)(double seconds);
  };

  /// Every rank makes one, of its context's device, which no other rank has; they wait for each other.
  NcclCollectives(CudaContext& context, const Processes& processes) : context_(context), processes_(processes) {
    const Nccl& nccl = Nccl::library();
    Nccl::UniqueId id{};
    if (processes.rank == 0) GRAVEN_NCCL(nccl.get_unique_id(&id));
    processes.broadcast(&id, sizeof id);
    GRAVEN_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    GRAVEN_CUDA(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming));
    GRAVEN_CUDA(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming));
    meet(id);
    context.set_collectives(this);
  }
  ~NcclCollectives() {
    context_.set_collectives(nullptr);
    if (aborting_.joinable()) aborting_.join();
    if (communicator_ != nullptr) (void)Nccl::library().destroy(communicator_);
    if (ready_ != nullptr) (void)cudaEventDestroy(ready_);
    if (done_ != nullptr) (void)cudaEventDestroy(done_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  NcclCollectives(const NcclCollectives&) = delete;
  NcclCollectives& operator=(const NcclCollectives&) = delete;

  int rank() const override { return processes_.rank; }
  int size() const override { return processes_.size; }
  bool is_last_part() const override { return is_last_; }
  /// What a step before has begun, and an error has kept from being sent, is none of this one's.
  void begin_part(bool is_last) {
    is_last_ = is_last;
    bucket_.clear();
    bucket_bytes_ = 0;
    is_begun_ = false;
  }
  void require_together() const override { (void)communicator(); }

  void start_mean(float* x, std::int64_t n) override { start(x, n, false); }
  void start_mean(double* x, std::int64_t n) override { start(x, n, false); }
  void start_shard_of_mean(float* x, std::int64_t n) override { start(x, n, true); }
  void start_shard_of_mean(double* x, std::int64_t n) override { start(x, n, true); }
  void shard_of_mean(float* shard, const float* x, std::int64_t n) override { reduce_shards(shard, x, n); }
  void shard_of_mean(double* shard, const double* x, std::int64_t n) override { reduce_shards(shard, x, n); }
  void gather(float* whole, const float* shard, std::int64_t n) override { gather_shards(whole, shard, n); }
  void gather(double* whole, const double* shard, std::int64_t n) override { gather_shards(whole, shard, n); }
  void gather_numbers(double* all, const double* own, std::int64_t n) override {
    GRAVEN_NCCL(Nccl::library().all_gather(own, all, static_cast<std::size_t>(n), Nccl::float64, communicator(),
                                           context_.stream()));
    count(static_cast<double>(n) * sizeof *own, size() - 1.0);
  }

  /// What has been begun comes before what the context's stream is given next.
  void finish() {
    send();
    if (!std::exchange(is_begun_, false)) return;
    GRAVEN_CUDA(cudaEventRecord(done_, stream_));
    GRAVEN_CUDA(cudaStreamWaitEvent(context_.stream(), done_, 0));
  }

  SentByRank take_sent() override { return std::exchange(sent_, {}); }
  void add_sent(const SentByRank& sent) override { sent_.add(sent); }

  void wait(cudaStream_t stream) override {
    wait_until([&] { return cudaStreamQuery(stream); }, "cudaStreamQuery");
  }
  void wait(cudaEvent_t event) override {
    wait_until([&] { return cudaEventQuery(event); }, "cudaEventQuery");
  }

 private:
  static constexpr std::size_t kBucketBytes = std::size_t{25} << 20;
  struct Tensor {
    void* data;
    std::int64_t count;
    Nccl::Type type;
    bool is_shared;  ///< each rank's shard becomes the mean
  };

  /// In a thread of its own: where another rank is gone nobody ever comes to the meeting.
  void meet(const Nccl::UniqueId& id) {
    const int device = context_.device();
    const Processes processes = processes_;
    std::packaged_task<Nccl::Communicator*()> meeting([=] {
      GRAVEN_CUDA(cudaSetDevice(device));
      Nccl::Communicator* communicator = nullptr;
      GRAVEN_NCCL(Nccl::library().init_rank(&communicator, processes.size, id, processes.rank));
      return communicator;
    });
    std::future<Nccl::Communicator*> met = meeting.get_future();
    std::thread(std::move(meeting)).detach();
    const auto begin = std::chrono::steady_clock::now();
    while (met.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready)
      processes_.require_others(seconds_since(begin));
    communicator_ = met.get();
  }

  Nccl::Communicator* communicator() const {
    if (communicator_ == nullptr) throw CudaError("NCCL: the ranks have parted, and this one cannot go on");
    return communicator_;
  }
  /// Calls that go to the device as one. Whatever happens within, the group ends: it is the thread's.
  template <class Calls>
  static void as_one(const Calls& calls) {
    struct Group {
      Group() { GRAVEN_NCCL(Nccl::library().group_start()); }
      ~Group() {
        if (open) (void)Nccl::library().group_end();
      }
      bool open = true;
    } group;
    calls();
    group.open = false;
    GRAVEN_NCCL(Nccl::library().group_end());
  }
  void count(double bytes, double times) { sent_.add({1, bytes, bytes * times}); }

  template <class T>
  void start(T* x, std::int64_t n, bool is_shared) {
    bucket_.push_back({x, n, Nccl::type_of(x), is_shared});
    const double bytes = static_cast<double>(n) * sizeof(T);
    sent_.add({0, bytes, (is_shared ? 1 : 2) * (1 - 1.0 / size()) * bytes});
    bucket_bytes_ += static_cast<std::size_t>(n) * sizeof(T);
    if (bucket_bytes_ >= kBucketBytes) send();
  }
  /// The bucket, once the context's stream has computed what is in it.
  void send() {
    if (bucket_.empty()) return;
    GRAVEN_CUDA(cudaEventRecord(ready_, context_.stream()));
    GRAVEN_CUDA(cudaStreamWaitEvent(stream_, ready_, 0));
    as_one([&] { send_tensors(); });
    bucket_.clear();
    bucket_bytes_ = 0;
    ++sent_.messages;
    is_begun_ = true;
  }
  void send_tensors() {
    const Nccl& nccl = Nccl::library();
    for (const Tensor& t : bucket_)
      if (!t.is_shared)
        GRAVEN_NCCL(nccl.all_reduce(t.data, t.data, static_cast<std::size_t>(t.count), t.type, Nccl::mean,
                                    communicator(), stream_));
      else if (t.type == Nccl::float32)
        reduce_shards_on(stream_, static_cast<float*>(t.data) + first_of_shard(t.count, rank(), size()),
                         static_cast<const float*>(t.data), t.count);
      else
        reduce_shards_on(stream_, static_cast<double*>(t.data) + first_of_shard(t.count, rank(), size()),
                         static_cast<const double*>(t.data), t.count);
  }

  template <class T>
  void reduce_shards(T* shard, const T* x, std::int64_t n) {
    as_one([&] { reduce_shards_on(context_.stream(), shard, x, n); });
    count(static_cast<double>(n) * sizeof(T), 1 - 1.0 / size());
  }
  /// Within a group. The last shards are shorter, for which the library's own call has no words.
  template <class T>
  void reduce_shards_on(cudaStream_t stream, T* shard, const T* x, std::int64_t n) {
    each_shard(n, [&](int root, std::int64_t first, std::size_t elements) {
      GRAVEN_NCCL(Nccl::library().reduce(x + first, shard, elements, Nccl::type_of(x), Nccl::mean, root, communicator(),
                                         stream));
    });
  }
  template <class T>
  void gather_shards(T* whole, const T* shard, std::int64_t n) {
    as_one([&] {
      each_shard(n, [&](int root, std::int64_t first, std::size_t elements) {
        GRAVEN_NCCL(Nccl::library().broadcast(shard, whole + first, elements, Nccl::type_of(whole), root,
                                              communicator(), context_.stream()));
      });
    });
    count(static_cast<double>(n) * sizeof(T), 1 - 1.0 / size());
  }
  template <class Call>
  void each_shard(std::int64_t n, const Call& call) const {
    for (int r = 0; r < size(); ++r) {
      const std::int64_t first = first_of_shard(n, r, size()), end = first_of_shard(n, r + 1, size());
      if (end > first) call(r, first, static_cast<std::size_t>(end - first));
    }
  }

  template <class Query>
  void wait_until(const Query& query, const char* name) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t looks = 1;; ++looks) {
      const cudaError_t found = query();
      if (found != cudaErrorNotReady) return check_cuda(found, name, __FILE__, __LINE__);
      (void)cudaGetLastError();  // that it is not ready is no error
      if (looks % 64 == 0) require_others(seconds_since(begin));
      if (looks > 1000) ::usleep(20);
    }
  }
  void require_others(double seconds) {
    try {
      processes_.require_others(seconds);
      int error = Nccl::success;
      GRAVEN_NCCL(Nccl::library().get_async_error(communicator(), &error));
      if (error != Nccl::in_progress) GRAVEN_NCCL(error);
    } catch (...) {
      // What waits on the device ends by this alone. It returns when no recorded call is left, which is when whoever
      // has recorded them gives up.
      if (communicator_ != nullptr)
        aborting_ = std::thread([of = std::exchange(communicator_, nullptr)] { (void)Nccl::library().abort(of); });
      throw;
    }
  }
  static double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  CudaContext& context_;
  const Processes processes_;
  Nccl::Communicator* communicator_ = nullptr;  ///< nullptr: the ranks have parted
  std::thread aborting_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t ready_ = nullptr, done_ = nullptr;
  bool is_last_ = true;
  std::vector<Tensor> bucket_;
  std::size_t bucket_bytes_ = 0;
  bool is_begun_ = false;  ///< something, since the last finish()
  SentByRank sent_;
};

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
