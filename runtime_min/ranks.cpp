#include "ranks.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "error.h"
#include "stopwatch.h"
#ifdef GRAVEN_MPI
#include <mpi.h>
#endif

namespace graven::runtime {
namespace {

/// The number in an environment variable; -1 where there is none.
int environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? -1 : std::atoi(text);
}

}  // namespace

/// Open MPI and launchers that speak PMI say so in these.
int launched_processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (const int size = environment(name); size > 0) return size;
  if (environment("PMIX_RANK") >= 0 || environment("PMI_RANK") >= 0)
    return std::max(environment("SLURM_STEP_NUM_TASKS"), 1);
  return 0;
}

#ifdef GRAVEN_MPI

struct Ranks::Engine {
  /// A sum that has begun: of one tensor where it lies, or of several small ones side by side.
  struct Piece {
    std::byte* data;
    std::size_t offset, bytes;  ///< in the bucket
  };
  struct Bucket {
    std::vector<std::byte> memory;
    std::vector<Piece> pieces;
    std::size_t bytes = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
  };
  // A message has a price of its own, and one over several megabytes comes when backward is nearly over.
  static constexpr std::size_t kSmallBytes = std::size_t{256} << 10, kBucketBytes = std::size_t{1} << 20;

  MPI_Comm everybody = MPI_COMM_NULL;
  std::vector<MPI_Request> requests;
  std::vector<Bucket> buckets;  ///< their memory is kept from step to step
  std::size_t begun = 0;        ///< buckets that are on their way
  bool ends_engine = false;     ///< this program has started MPI

  Engine() {
    int running = 0;
    MPI_Initialized(&running);
    if (running == 0) {
      int provided = 0;
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
      if (provided < MPI_THREAD_SERIALIZED)
        throw Error("MPI", "", "a library that may be called from any thread, one at a time (MPI_THREAD_SERIALIZED)",
                    "one that has been built without");
      ends_engine = true;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &everybody);
  }
  ~Engine() {
    int finished = 0;
    MPI_Finalized(&finished);
    if (finished != 0) return;
    MPI_Comm_free(&everybody);
    if (ends_engine) MPI_Finalize();
  }

  void start(void* data, std::size_t bytes, MPI_Datatype type) {
    const std::size_t element = type == MPI_FLOAT ? sizeof(float) : sizeof(double);
    auto* at = static_cast<std::byte*>(data);
    // Counts are ints.
    constexpr std::size_t kMost = std::size_t{1} << 30;
    for (std::size_t done = 0; done < bytes; done += kMost)
      MPI_Iallreduce(MPI_IN_PLACE, at + done, static_cast<int>(std::min(kMost, bytes - done) / element), type, MPI_SUM,
                     everybody, &requests.emplace_back());
  }
  void send_bucket() {
    if (begun == buckets.size() || buckets[begun].pieces.empty()) return;
    Bucket& bucket = buckets[begun++];
    start(bucket.memory.data(), bucket.bytes, bucket.type);
  }
  void add(void* data, std::size_t bytes, MPI_Datatype type) {
    if (bytes >= kSmallBytes) {
      start(data, bytes, type);
    } else {
      if (begun < buckets.size() && !buckets[begun].pieces.empty() &&
          (buckets[begun].type != type || buckets[begun].bytes + bytes > kBucketBytes))
        send_bucket();
      if (begun == buckets.size()) buckets.emplace_back().memory.resize(kBucketBytes);
      Bucket& bucket = buckets[begun];
      bucket.type = type;
      std::memcpy(bucket.memory.data() + bucket.bytes, data, bytes);
      bucket.pieces.push_back({static_cast<std::byte*>(data), bucket.bytes, bytes});
      bucket.bytes += bytes;
    }
    // The engine may only move data when it is called.
    int done = 0;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
  }
  void wait(double limit) {
    const Stopwatch watch;
    for (int spins = 0, done = 0;; ++spins) {
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
      if (done != 0) break;
      if (spins < 100) continue;
      ::sched_yield();
      if (watch.seconds() > limit)
        throw Error(
            "ranks", "",
            "an answer of the other ranks within " + std::to_string(std::int64_t(limit)) + " s (--rank-timeout)",
            "none: one of them hangs, or has died");
    }
    requests.clear();
  }
};

Ranks::Ranks() {
  int running = 0;
  MPI_Initialized(&running);
  if (running == 0 && launched_processes() == 0) return;
  engine_ = std::make_unique<Engine>();
  MPI_Comm_rank(engine_->everybody, &rank_);
  MPI_Comm_size(engine_->everybody, &size_);
  if (const int size = launched_processes(); size_ == 1 && size > 1)
    throw Error("ranks", "", "the mpirun of the MPI that the program is built with",
                "another's, which has started " + std::to_string(size) + " processes that do not know of each other");
}

int Ranks::sharing_processors() const {
  if (size_ == 1) return 1;
  // Two ranks share what they run on where machine and set of processors are the same.
  struct Place {
    char machine[256];
    cpu_set_t processors;
  };
  Place own;
  std::memset(&own, 0, sizeof own);
  ::gethostname(own.machine, sizeof own.machine - 1);
  ::sched_getaffinity(0, sizeof own.processors, &own.processors);
  std::vector<Place> places(static_cast<std::size_t>(size_));
  MPI_Allgather(&own, sizeof own, MPI_BYTE, places.data(), sizeof own, MPI_BYTE, engine_->everybody);
  return static_cast<int>(std::count_if(places.begin(), places.end(),
                                        [&](const Place& p) { return std::memcmp(&p, &own, sizeof own) == 0; }));
}

void Ranks::start_sum(float* x, std::int64_t n) {
  if (size_ > 1) engine_->add(x, static_cast<std::size_t>(n) * sizeof *x, MPI_FLOAT);
}

void Ranks::start_sum(double* x, std::int64_t n) {
  if (size_ > 1) engine_->add(x, static_cast<std::size_t>(n) * sizeof *x, MPI_DOUBLE);
}

void Ranks::finish() {
  if (size_ == 1) return;
  engine_->send_bucket();
  engine_->wait(time_limit_);
  for (std::size_t b = 0; b < engine_->begun; ++b) {
    Engine::Bucket& bucket = engine_->buckets[b];
    for (const Engine::Piece& piece : bucket.pieces)
      std::memcpy(piece.data, bucket.memory.data() + piece.offset, piece.bytes);
    bucket.pieces.clear();
    bucket.bytes = 0;
  }
  engine_->begun = 0;
}

void Ranks::sum(double* x, std::size_t n) {
  if (size_ == 1) return;
  std::vector<double> gathered(n * static_cast<std::size_t>(size_));
  MPI_Iallgather(x, static_cast<int>(n), MPI_DOUBLE, gathered.data(), static_cast<int>(n), MPI_DOUBLE,
                 engine_->everybody, &engine_->requests.emplace_back());
  engine_->wait(time_limit_);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = 0;
    for (std::size_t r = 0; r < static_cast<std::size_t>(size_); ++r) x[i] += gathered[r * n + i];
  }
}

void Ranks::broadcast(void* data, std::size_t bytes) {
  if (size_ == 1) return;
  auto* at = static_cast<std::byte*>(data);
  constexpr std::size_t kMost = std::size_t{1} << 30;
  for (std::size_t done = 0; done < bytes; done += kMost)
    MPI_Ibcast(at + done, static_cast<int>(std::min(kMost, bytes - done)), MPI_BYTE, 0, engine_->everybody,
               &engine_->requests.emplace_back());
  engine_->wait(time_limit_);
}

int Ranks::fail(const std::string& text, int status) {
  if (size_ == 1) {
    std::fprintf(stderr, "error: %s\n", text.c_str());
    return status;
  }
  ::usleep(static_cast<useconds_t>(std::min(rank_, 4)) * 500'000);
  std::fprintf(stderr, "error: rank %d: %s\n", rank_, text.c_str());
  std::fflush(stderr);
  MPI_Abort(engine_->everybody, status);
  std::_Exit(status);
}

#else

struct Ranks::Engine {};

Ranks::Ranks() {
  if (const int size = launched_processes(); size > 1)
    throw Error("ranks", "", "a program that is built with -DGRAVEN_MPI=ON",
                "one without, started as one of " + std::to_string(size) + " processes, which would train for itself");
}

int Ranks::sharing_processors() const { return 1; }
void Ranks::start_sum(float*, std::int64_t) {}
void Ranks::start_sum(double*, std::int64_t) {}
void Ranks::finish() {}
void Ranks::sum(double*, std::size_t) {}
void Ranks::broadcast(void*, std::size_t) {}

int Ranks::fail(const std::string& text, int status) {
  std::fprintf(stderr, "error: %s\n", text.c_str());
  return status;
}

#endif

Ranks::~Ranks() = default;

Ranks& Ranks::all() {
  static Ranks ranks;
  return ranks;
}

void Ranks::require_same(const char* what, const std::string& text) {
  if (size_ == 1) return;
  std::uint64_t length = text.size();
  broadcast(&length, sizeof length);
  std::string first = text;
  first.resize(length);
  broadcast(first.data(), first.size());
  if (first != text) throw Error(what, "", "the first rank's, " + first, text);
}

}  // namespace graven::runtime
