// NcclRanks: ranks whose devices bring tensors together by NCCL, which is opened when there is more than one rank: a
// program needs libnccl.so.2 (2.10 or later) on machines where it runs on several devices, and nowhere else.
//
//   NcclRanks ranks(context, {.rank = 1, .size = 4, .row = 2, .broadcast = ..., .require_others = ...});
//   ranks.begin_part(/*is_last=*/true);
//   program.backward(step);                     // all_reduce begins, bucket by bucket, beside the rest of backward
//   ranks.finish();                             // what the context's stream is given from here on finds the means
//
// Tensors are brought together where they lie, several of them by one launch: a bucket is what has come together when
// it has kBucketBytes, or backward is over. All of it may be recorded (recorded_calls.cuh): the stream of the messages
// forks from the context's, and joins it in finish(). With the same ranks, devices and library a mean has the same bits
// each time, on all ranks.
//
// Stages of a pipeline send each other values beside what they compute (NcclStages).
//
// What a team sends is moved alone, and added up by the kernels that ask for it, in the order of the ranks
// (convert_layout.cuh): it depends neither on the library nor on its algorithms. Where there is a team, the means stand
// on the context's stream, too: of two communicators of a device, which wait for other ranks each, the calls have one
// order on all ranks.
//
// The names and numbers of NCCL's interface: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html
#pragma once

#include "collectives.cuh"
#include "context.cuh"
#include "stream.cuh"

#ifndef __CUDACC_RTC__
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
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
  enum Type : int { bytes = 1, float32 = 7, float64 = 8 };
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
  int (*send)(const void* from, std::size_t count, int type, int to_rank, Communicator*, cudaStream_t);
  int (*receive)(void* to, std::size_t count, int type, int from_rank, Communicator*, cudaStream_t);
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
    find(library, "ncclSend", send);
    find(library, "ncclRecv", receive);
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

/// Those who bring tensors together by one communicator, this rank among them.
class NcclGroup {
 public:
  NcclGroup(CudaContext& context, int rank, int size) : context_(context), rank_(rank), size_(size) {}
  ~NcclGroup() {
    if (communicator_ != nullptr) (void)Nccl::library().destroy(communicator_);
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  CudaContext& context() const { return context_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  void set_communicator(Nccl::Communicator* communicator) { communicator_ = communicator; }
  /// An error where the ranks have parted.
  Nccl::Communicator* communicator() const {
    if (communicator_ == nullptr) throw CudaError("NCCL: the ranks have parted, and this one cannot go on");
    return communicator_;
  }
  /// From here on they have; nullptr: before, too.
  Nccl::Communicator* part() { return std::exchange(communicator_, nullptr); }
  /// An error that the library has found since.
  void check() const {
    int error = Nccl::success;
    GRAVEN_NCCL(Nccl::library().get_async_error(communicator(), &error));
    if (error != Nccl::in_progress) GRAVEN_NCCL(error);
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

  SentByRank sent;  ///< since it was taken

 private:
  CudaContext& context_;
  const int rank_, size_;
  Nccl::Communicator* communicator_ = nullptr;
};

class NcclCollectives final : public Collectives {
 public:
  /// `beside`: what start_...() begins has a stream of its own.
  NcclCollectives(NcclGroup& group, bool beside) : group_(group) {
    if (beside) beside_.emplace();
  }

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  bool is_last_part() const override { return is_last_; }
  /// What a step before has begun, and an error has kept from being sent, is none of this one's.
  void begin_part(bool is_last) {
    is_last_ = is_last;
    bucket_.clear();
    bucket_bytes_ = 0;
    is_begun_ = false;
  }

  void start_mean(float* x, std::int64_t n) override { start(x, n, false); }
  void start_mean(double* x, std::int64_t n) override { start(x, n, false); }
  void start_shard_of_mean(float* x, std::int64_t n) override { start(x, n, true); }
  void start_shard_of_mean(double* x, std::int64_t n) override { start(x, n, true); }
  void shard_of_mean(float* shard, const float* x, std::int64_t n) override { reduce_shards(shard, x, n); }
  void shard_of_mean(double* shard, const double* x, std::int64_t n) override { reduce_shards(shard, x, n); }
  void gather(float* whole, const float* shard, std::int64_t n) override { gather_shards(whole, shard, n); }
  void gather(double* whole, const double* shard, std::int64_t n) override { gather_shards(whole, shard, n); }
  void gather_numbers(double* all, const double* own, std::int64_t n) override {
    GRAVEN_NCCL(Nccl::library().all_gather(own, all, static_cast<std::size_t>(n), Nccl::float64, group_.communicator(),
                                           group_.context().stream()));
    count(static_cast<double>(n) * sizeof *own, size() - 1.0);
  }

  /// What has been begun comes before what the context's stream is given next.
  void finish() {
    send();
    if (std::exchange(is_begun_, false) && beside_) beside_->done.order(stream(), group_.context().stream());
  }

 private:
  static constexpr std::size_t kBucketBytes = std::size_t{25} << 20;
  struct Tensor {
    void* data;
    std::int64_t count;
    Nccl::Type type;
    bool is_shared;  ///< each rank's shard becomes the mean
  };

  void count(double bytes, double times) { group_.sent.add({1, bytes, bytes * times, bytes * times}); }

  template <class T>
  void start(T* x, std::int64_t n, bool is_shared) {
    bucket_.push_back({x, n, Nccl::type_of(x), is_shared});
    const double bytes = static_cast<double>(n) * sizeof(T), sent = (is_shared ? 1 : 2) * (1 - 1.0 / size()) * bytes;
    group_.sent.add({0, bytes, sent, sent});
    bucket_bytes_ += static_cast<std::size_t>(n) * sizeof(T);
    if (bucket_bytes_ >= kBucketBytes) send();
  }
  /// The bucket, once the context's stream has computed what is in it.
  void send() {
    if (bucket_.empty()) return;
    if (beside_) beside_->ready.order(group_.context().stream(), stream());
    NcclGroup::as_one([&] { send_tensors(stream()); });
    bucket_.clear();
    bucket_bytes_ = 0;
    ++group_.sent.messages;
    is_begun_ = true;
  }
  void send_tensors(cudaStream_t stream) {
    const Nccl& nccl = Nccl::library();
    for (const Tensor& t : bucket_)
      if (!t.is_shared)
        GRAVEN_NCCL(nccl.all_reduce(t.data, t.data, static_cast<std::size_t>(t.count), t.type, Nccl::mean,
                                    group_.communicator(), stream));
      else if (t.type == Nccl::float32)
        reduce_shards_on(stream, static_cast<float*>(t.data) + first_of_shard(t.count, rank(), size()),
                         static_cast<const float*>(t.data), t.count);
      else
        reduce_shards_on(stream, static_cast<double*>(t.data) + first_of_shard(t.count, rank(), size()),
                         static_cast<const double*>(t.data), t.count);
  }

  template <class T>
  void reduce_shards(T* shard, const T* x, std::int64_t n) {
    NcclGroup::as_one([&] { reduce_shards_on(group_.context().stream(), shard, x, n); });
    count(static_cast<double>(n) * sizeof(T), 1 - 1.0 / size());
  }
  /// Within a group. The last shards are shorter, for which the library's own call has no words.
  template <class T>
  void reduce_shards_on(cudaStream_t stream, T* shard, const T* x, std::int64_t n) {
    each_shard(n, [&](int root, std::int64_t first, std::size_t elements) {
      GRAVEN_NCCL(Nccl::library().reduce(x + first, shard, elements, Nccl::type_of(x), Nccl::mean, root,
                                         group_.communicator(), stream));
    });
  }
  template <class T>
  void gather_shards(T* whole, const T* shard, std::int64_t n) {
    NcclGroup::as_one([&] {
      each_shard(n, [&](int root, std::int64_t first, std::size_t elements) {
        GRAVEN_NCCL(Nccl::library().broadcast(shard, whole + first, elements, Nccl::type_of(whole), root,
                                              group_.communicator(), group_.context().stream()));
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

  struct Beside {
    OwnStream stream;
    OwnEvent ready, done;
  };
  /// Of what start_...() begins.
  cudaStream_t stream() const { return beside_ ? beside_->stream.get() : group_.context().stream(); }

  NcclGroup& group_;
  std::optional<Beside> beside_;  ///< nothing: it stands on the context's
  bool is_last_ = true;
  std::vector<Tensor> bucket_;
  std::size_t bucket_bytes_ = 0;
  bool is_begun_ = false;  ///< something, since the last finish()
};

class NcclTeam final : public Team {
 public:
  explicit NcclTeam(NcclGroup& group) : group_(group) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  void exchange(const void* rows, void* received, std::int64_t bytes) override {
    if (bytes == 0) return;
    const Nccl& nccl = Nccl::library();
    const auto count = static_cast<std::size_t>(bytes);
    const cudaStream_t stream = group_.context().stream();
    const auto* const from = static_cast<const char*>(rows);
    auto* const to = static_cast<char*>(received);
    NcclGroup::as_one([&] {
      for (int r = 0; r < size(); ++r) {
        if (r == rank()) continue;
        GRAVEN_NCCL(nccl.send(from + r * bytes, count, Nccl::bytes, r, group_.communicator(), stream));
        GRAVEN_NCCL(nccl.receive(to + r * bytes, count, Nccl::bytes, r, group_.communicator(), stream));
      }
    });
    copy_on_device(group_.context(), to + rank() * bytes, from + rank() * bytes, count);
    count_message(bytes);
  }
  void gather(const void* own, void* rows, std::int64_t bytes) override {
    if (bytes == 0) return;
    GRAVEN_NCCL(Nccl::library().all_gather(own, rows, static_cast<std::size_t>(bytes), Nccl::bytes,
                                           group_.communicator(), group_.context().stream()));
    count_message(bytes);
  }

 private:
  /// What it takes at least the emitted project knows (TrainingDescription::tensor_bytes).
  void count_message(std::int64_t bytes) {
    group_.sent.add({.messages = 1, .sent = static_cast<double>(bytes) * (size() - 1)});
  }

  NcclGroup& group_;
};

/// What goes from a stage of a pipeline to another, each on a rank of its own (runtime/pipeline.h). Whoever sends from
/// one stage to one other one has a communicator and a stream of its own on both ranks: what goes one way waits for
/// nothing that goes another way, and arrives in the order in which it was sent.
class NcclStages {
 public:
  struct Link {
    int from, to;  ///< stages
  };

  /// Of all links, those of this rank.
  NcclStages(CudaContext& context, int stage, const std::vector<Link>& links) : context_(context) {
    for (const Link& link : links)
      if (link.from == stage)
        sent_.emplace(link.to, std::make_unique<Own>(context, 0));
      else if (link.to == stage)
        received_.emplace(link.from, std::make_unique<Own>(context, 1));
  }
  /// nullptr where this rank has nothing to do with a link.
  NcclGroup* group_of(int stage, const Link& link) {
    if (link.from == stage) return &sent_.at(link.to)->group;
    return link.to == stage ? &received_.at(link.from)->group : nullptr;
  }

  /// Once the context's stream has computed it, and beside what that is given next.
  void send(int slot, int stage, const void* data, std::size_t bytes) {
    if (bytes == 0) return;
    Own& to = *sent_.at(stage);
    to.ready.order(context_.stream(), to.stream.get());
    GRAVEN_NCCL(Nccl::library().send(data, bytes, Nccl::bytes, 1, to.group.communicator(), to.stream.get()));
    std::unique_ptr<OwnEvent>& done = to.done[slot];
    if (done == nullptr) done = std::make_unique<OwnEvent>();
    GRAVEN_CUDA(cudaEventRecord(done->get(), to.stream.get()));
    to.under_way.insert(slot);
    const auto number = static_cast<double>(bytes);
    to.group.sent.add({.messages = 1, .bytes = number, .least = number, .sent = number});
  }
  /// Once the context's stream has done what it has been given: it may have used the memory.
  void receive(int stage, void* data, std::size_t bytes) {
    if (bytes == 0) return;
    Own& from = *received_.at(stage);
    from.ready.order(context_.stream(), from.stream.get());
    GRAVEN_NCCL(Nccl::library().receive(data, bytes, Nccl::bytes, 0, from.group.communicator(), from.stream.get()));
    from.under_way.insert(0);
  }
  /// What the context's stream is given from here on comes behind what was to be received.
  void finish_receiving() {
    for (const auto& [stage, from] : received_)
      if (from->under_way.erase(0) > 0) from->arrived.order(from->stream.get(), context_.stream());
  }
  /// The same of what a slot sends.
  void finish_sending(int slot) {
    for (const auto& [stage, to] : sent_)
      if (to->under_way.erase(slot) > 0)
        GRAVEN_CUDA(cudaStreamWaitEvent(context_.stream(), to->done.at(slot)->get(), 0));
  }

 private:
  struct Own {
    Own(CudaContext& context, int rank) : group(context, rank, 2) {}
    NcclGroup group;
    OwnStream stream;
    OwnEvent ready, arrived;
    std::map<int, std::unique_ptr<OwnEvent>> done;  ///< by slot
    std::set<int> under_way;                        ///< slots; of what is received 0
  };

  CudaContext& context_;
  std::map<int, std::unique_ptr<Own>> sent_, received_;  ///< by the other stage
};

class NcclRanks final : public OtherRanks {
 public:
  /// The processes, by the host's own means.
  struct Processes {
    int rank = 0, size = 1;
    int row = 1;  ///< so many in a row, which divides `size`, have one model: its tensors in parts, or each a stage
    void (*broadcast)(void* data, std::size_t bytes);  ///< the first rank's bytes for everybody
    /// Called while this rank waits for the others, and has for so long: it throws where one of them is gone.
    void (*require_others)(double seconds);
  };

  /// Every rank makes one, of its context's device, which no other rank has; they wait for each other. `links`: of
  /// ranks that have a stage each.
  NcclRanks(CudaContext& context, const Processes& processes, const std::vector<NcclStages::Link>& links = {})
      : context_(context),
        processes_(processes),
        peers_(context, processes.rank / processes.row, processes.size / processes.row),
        row_(context, processes.rank % processes.row, processes.row) {
    if (!links.empty()) stages_.emplace(context, row_.rank(), links);
    meet(links);
    const bool is_team = row_.size() > 1 && !stages_;
    if (peers_.size() > 1) collectives_.emplace(peers_, /*beside=*/!is_team);
    if (is_team) team_.emplace(row_);
    context.set_ranks(this, collectives_ ? &*collectives_ : nullptr, team_ ? &*team_ : nullptr);
  }
  ~NcclRanks() {
    context_.set_ranks(nullptr, nullptr, nullptr);
    if (aborting_.joinable()) aborting_.join();
  }
  NcclRanks(const NcclRanks&) = delete;
  NcclRanks& operator=(const NcclRanks&) = delete;

  /// Of a step: behind the last part gradients are brought together.
  void begin_part(bool is_last) {
    if (collectives_) collectives_->begin_part(is_last);
  }
  void finish() {
    if (collectives_) collectives_->finish();
  }
  /// Where this rank has a stage of a pipeline.
  NcclStages& stages() { return stages_.value(); }

  void require_together() const override {
    for (const NcclGroup* group : groups_) (void)group->communicator();
  }
  SentByRank take_sent() override {
    SentByRank sent;
    for (NcclGroup* group : groups_) sent.add(std::exchange(group->sent, {}));
    return sent;
  }
  void add_sent(const SentByRank& sent) override {
    if (!groups_.empty()) groups_.front()->sent.add(sent);
  }

  void wait(cudaStream_t stream) override {
    wait_until([&] { return cudaStreamQuery(stream); }, "cudaStreamQuery");
  }
  void wait(cudaEvent_t event) override {
    wait_until([&] { return cudaEventQuery(event); }, "cudaEventQuery");
  }

 private:
  /// What it takes to make a communicator.
  struct Meeting {
    NcclGroup* group;
    Nccl::UniqueId id;
    int rank, size;
  };

  /// In a thread of its own: where another rank is gone nobody ever comes to the meeting.
  void meet(const std::vector<NcclStages::Link>& links) {
    // All groups of more than one rank, in one order on all of them, and of each the group of this rank, if it is in.
    const int row = processes_.row, rows = processes_.size / row, place = row_.rank();
    std::vector<NcclGroup*> all;
    for (int r = 0; r < rows; ++r) {
      const bool is_own = r == peers_.rank();
      for (const NcclStages::Link& link : links) all.push_back(is_own ? stages_->group_of(place, link) : nullptr);
      if (row > 1 && links.empty()) all.push_back(is_own ? &row_ : nullptr);
    }
    if (rows > 1)
      for (int r = 0; r < row; ++r) all.push_back(r == place ? &peers_ : nullptr);
    std::vector<Nccl::UniqueId> ids(all.size());
    if (processes_.rank == 0)
      for (Nccl::UniqueId& id : ids) GRAVEN_NCCL(Nccl::library().get_unique_id(&id));
    processes_.broadcast(ids.data(), ids.size() * sizeof ids[0]);
    std::vector<Meeting> meetings;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] == nullptr) continue;
      meetings.push_back({all[i], ids[i], all[i]->rank(), all[i]->size()});
      groups_.push_back(all[i]);
    }
    std::packaged_task<std::vector<Nccl::Communicator*>()> task([meetings, device = context_.device()] {
      GRAVEN_CUDA(cudaSetDevice(device));
      std::vector<Nccl::Communicator*> made;
      for (const Meeting& m : meetings)
        GRAVEN_NCCL(Nccl::library().init_rank(&made.emplace_back(), m.size, m.id, m.rank));
      return made;
    });
    std::future<std::vector<Nccl::Communicator*>> met = task.get_future();
    std::thread(std::move(task)).detach();
    const auto begin = std::chrono::steady_clock::now();
    while (met.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready)
      processes_.require_others(seconds_since(begin));
    const std::vector<Nccl::Communicator*> made = met.get();
    for (std::size_t i = 0; i < made.size(); ++i) meetings[i].group->set_communicator(made[i]);
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
      for (const NcclGroup* group : groups_) group->check();
    } catch (...) {
      // What waits on the device ends by this alone. It returns when no recorded call is left, which is when whoever
      // has recorded them gives up. Of two communicators each may wait for the other's calls.
      std::vector<Nccl::Communicator*> parting;
      for (NcclGroup* group : groups_) parting.push_back(group->part());
      if (!aborting_.joinable())
        aborting_ = std::thread([parting] {
          std::vector<std::thread> each;
          for (Nccl::Communicator* const of : parting)
            if (of != nullptr) each.emplace_back([of] { (void)Nccl::library().abort(of); });
          for (std::thread& thread : each) thread.join();
        });
      throw;
    }
  }
  static double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  CudaContext& context_;
  const Processes processes_;
  NcclGroup peers_, row_;
  std::optional<NcclStages> stages_;
  std::vector<NcclGroup*> groups_;  ///< those that have met
  std::optional<NcclCollectives> collectives_;
  std::optional<NcclTeam> team_;
  std::thread aborting_;
};

}  // namespace graven::kernels
#endif  // __CUDACC_RTC__
