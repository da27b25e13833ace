// Threads: a persistent pool for short parallel regions.
//
//   Threads threads(4);                                         // the caller and 3 workers; Threads() takes every
//                                                               // processor
//   threads.run(12, [&](std::int64_t piece) { f(piece); });     // pieces 0 to 11, each exactly once, in any order, on
//                                                               // any thread; then returns
//
// Pieces are claimed one by one, half of the threads from the first on, the others from the last backwards: with two
// threads, the same pieces run on the same thread every time, where their memory is cached, and yet a thread that is
// slow or asleep is never waited for unless it holds a piece. A kernel's result must not depend on who runs which
// piece, nor on count(): what is summed, and in which order, depends on shapes alone.
//
// A region costs under a microsecond while the workers spin; after `spin_microseconds` without work they sleep, and the
// caller starts alone while they wake. With one thread, with one piece, or inside another region (nested use), the
// pieces run serially on the caller. One caller at a time may use a Threads object; the body must not throw. If the
// system refuses a thread, the pool is smaller, the results the same.
//
// Threads is one type for all instruction-set levels: run() is always inlined, everything else is reached through a
// pointer that the constructor sets, so it is compiled for the translation unit that constructs the pool.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "../config/calls.h"
#include "level.h"

namespace graven::kernels {

struct Collectives;  // collectives.h
struct Team;         // config/team.h

class Threads {
 public:
  /// `count` threads in all, the caller included; 0: as many as the process may run on.
  explicit Threads(int count = 0, int spin_microseconds = 2000)
      : spin_nanoseconds_(spin_microseconds * std::int64_t{1000}), region_(&Threads::region) {
    if (count <= 0) count = available();
    if (count > kMaximum) count = kMaximum;
    pthread_mutex_init(&mutex_, nullptr);
    pthread_cond_init(&wake_, nullptr);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    int created = 1;
    while (created < count && pthread_create(&workers_[created - 1], &attributes, &Threads::worker, this) == 0)
      ++created;
    pthread_attr_destroy(&attributes);
    count_ = created;
  }
  ~Threads() {
    pthread_mutex_lock(&mutex_);
    __atomic_store_n(&stop_, true, __ATOMIC_SEQ_CST);
    pthread_cond_broadcast(&wake_);
    pthread_mutex_unlock(&mutex_);
    for (int i = 0; i + 1 < count_; ++i) pthread_join(workers_[i], nullptr);
    pthread_cond_destroy(&wake_);
    pthread_mutex_destroy(&mutex_);
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  /// Threads in all, the caller included.
  int count() const { return count_; }

  /// The other ranks, for kernels that ask for them; nullptr: there is one rank.
  Collectives* collectives() const { return collectives_; }
  void set_collectives(Collectives* collectives) { collectives_ = collectives; }
  /// The ranks that have tensors in parts; nullptr: this is the only one.
  Team* team() const { return team_; }
  void set_team(Team* team) { team_ = team; }
  /// Who is told of calls that name their threads as EachCall; nullptr: nobody.
  CallListener* listener() const { return listener_; }
  void set_listener(CallListener* listener) { listener_ = listener; }
  [[gnu::always_inline]] inline void begin_call() {
    if (CallListener* const l = listener_; __builtin_expect(l != nullptr, false) && l->next != l->end)
      (l->next++)->ticks = read_ticks();
  }

  /// Calls body(piece) for every piece in [0, pieces) and returns when all have returned.
  template <class Body>
  [[gnu::always_inline]] inline void run(std::int64_t pieces, const Body& body) {
    if (pieces <= 1 || count_ == 1 || __atomic_load_n(&busy_, __ATOMIC_RELAXED)) {
      for (std::int64_t piece = 0; piece < pieces; ++piece) body(piece);
    } else {
      region_(
          *this, [](const void* context, std::int64_t piece) { (*static_cast<const Body*>(context))(piece); }, &body,
          pieces);
    }
  }

 private:
  using Call = void (*)(const void* context, std::int64_t piece);
  static constexpr int kMaximum = 256;
  static constexpr std::size_t kStackBytes = std::size_t{2} << 20;  // kernels keep up to 350 kB in local arrays
  // Pieces of one region are numbered with 16 bits; more are done in several regions.
  static constexpr std::int64_t kPiecesPerRegion = 65535;

  static int available() {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? static_cast<int>(online) : 1;
  }

  static std::int64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * std::int64_t{1000000000} + t.tv_nsec;
  }

  static void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  static void region(Threads& self, Call call, const void* context, std::int64_t pieces) {
    __atomic_store_n(&self.busy_, true, __ATOMIC_RELAXED);
    for (std::int64_t first = 0; first < pieces; first += kPiecesPerRegion) {
      const std::int64_t count = pieces - first < kPiecesPerRegion ? pieces - first : kPiecesPerRegion;
      self.publish(call, context, first, count);
    }
    __atomic_store_n(&self.busy_, false, __ATOMIC_RELAXED);
  }

  void publish(Call call, const void* context, std::int64_t first, std::int64_t pieces) {
    // Every piece of the last region was claimed and is done, so its ticket is used up: nobody can claim anything
    // before the new ticket stands. A worker that looks at these fields meanwhile throws away what it read.
    __atomic_store_n(&done_, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&call_, call, __ATOMIC_RELEASE);
    __atomic_store_n(&context_, context, __ATOMIC_RELEASE);
    __atomic_store_n(&first_, first, __ATOMIC_RELEASE);
    const std::uint64_t epoch = (__atomic_load_n(&ticket_, __ATOMIC_RELAXED) >> 32) + 1;
    __atomic_store_n(&ticket_, epoch << 32 | static_cast<std::uint64_t>(pieces), __ATOMIC_SEQ_CST);
    // Sequentially consistent with the worker that counts itself asleep and then looks at the ticket: one of the two
    // sees the other.
    if (__atomic_load_n(&sleeping_, __ATOMIC_SEQ_CST) > 0) {
      pthread_mutex_lock(&mutex_);
      pthread_cond_broadcast(&wake_);
      pthread_mutex_unlock(&mutex_);
    }
    take_pieces(false);
    for (int turn = 0; __atomic_load_n(&done_, __ATOMIC_ACQUIRE) != pieces; ++turn) {
      relax();
      if (turn % 1024 == 1023)
        sched_yield();  // more threads than processors: the one that holds the last piece may wait for ours
    }
  }

  /// Claims and runs pieces of the current region until none is left.
  void take_pieces(bool from_the_end) {
    std::uint64_t ticket = __atomic_load_n(&ticket_, __ATOMIC_ACQUIRE);
    for (;;) {
      const std::uint64_t begin = (ticket >> 16) & 0xffffu, end = ticket & 0xffffu;
      if (begin == end) return;
      const Call call = __atomic_load_n(&call_, __ATOMIC_ACQUIRE);
      const void* const context = __atomic_load_n(&context_, __ATOMIC_ACQUIRE);
      const std::int64_t first = __atomic_load_n(&first_, __ATOMIC_ACQUIRE);
      const std::uint64_t rest = from_the_end ? ticket - 1 : ticket + 0x10000u;
      // The claim succeeds only while the ticket is what it was before these loads: then they belong to this region,
      // which cannot end before the piece is done.
      if (!__atomic_compare_exchange_n(&ticket_, &ticket, rest, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) continue;
      call(context, first + static_cast<std::int64_t>(from_the_end ? end - 1 : begin));
      __atomic_fetch_add(&done_, 1, __ATOMIC_RELEASE);
      ticket = __atomic_load_n(&ticket_, __ATOMIC_ACQUIRE);
    }
  }

  static void* worker(void* argument) {
    Threads& self = *static_cast<Threads*>(argument);
    const bool from_the_end = __atomic_fetch_add(&self.started_, 1, __ATOMIC_RELAXED) % 2 == 0;
    std::uint64_t seen = 0;  // epoch of the last region looked at
    std::int64_t idle_since = now();
    for (std::uint32_t turn = 1;; ++turn) {
      const std::uint64_t epoch = __atomic_load_n(&self.ticket_, __ATOMIC_ACQUIRE) >> 32;
      if (epoch != seen) {
        seen = epoch;
        self.take_pieces(from_the_end);
        idle_since = 0;
        turn = 0;
        continue;
      }
      if (__atomic_load_n(&self.stop_, __ATOMIC_RELAXED)) return nullptr;
      relax();
      if (turn % 64 != 0) continue;
      const std::int64_t time = now();
      if (idle_since == 0) idle_since = time;
      if (time - idle_since < self.spin_nanoseconds_) continue;
      pthread_mutex_lock(&self.mutex_);
      __atomic_fetch_add(&self.sleeping_, 1, __ATOMIC_SEQ_CST);
      while (__atomic_load_n(&self.ticket_, __ATOMIC_SEQ_CST) >> 32 == seen &&
             !__atomic_load_n(&self.stop_, __ATOMIC_SEQ_CST))
        pthread_cond_wait(&self.wake_, &self.mutex_);
      __atomic_fetch_sub(&self.sleeping_, 1, __ATOMIC_SEQ_CST);
      pthread_mutex_unlock(&self.mutex_);
      idle_since = now();
    }
  }

  // One cache line: what the workers watch and read for every region.
  // Epoch of the region << 32 | first unclaimed piece << 16 | end of the unclaimed pieces.
  alignas(64) std::uint64_t ticket_ = 0;
  Call call_ = nullptr;
  const void* context_ = nullptr;
  std::int64_t first_ = 0;  // number of the region's first piece
  // Another, written by whoever finishes a piece.
  alignas(64) std::int64_t done_ = 0;
  alignas(64) bool busy_ = false;
  bool stop_ = false;
  int sleeping_ = 0;
  int started_ = 0;
  int count_ = 1;
  Collectives* collectives_ = nullptr;
  Team* team_ = nullptr;
  CallListener* listener_ = nullptr;
  std::int64_t spin_nanoseconds_;
  void (*region_)(Threads&, Call, const void*, std::int64_t);
  pthread_mutex_t mutex_;
  pthread_cond_t wake_;
  pthread_t workers_[kMaximum - 1];
};

}  // namespace graven::kernels
