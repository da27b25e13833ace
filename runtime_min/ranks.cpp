#include "ranks.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "error.h"
#include "stopwatch.h"
#ifdef GRAVEN_MPI
#include <mpi.h>
#endif

namespace graven::runtime {
namespace {

// Counts are ints.
[[maybe_unused]] constexpr std::size_t kMostBytes = std::size_t{1} << 30;

/// The number in an environment variable; -1 where there is none.
int environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? -1 : std::atoi(text);
}

[[maybe_unused]] std::unique_ptr<RankEngine> (*connect)() = nullptr;

}  // namespace

void Ranks::use(std::unique_ptr<RankEngine> (*by)()) { connect = by; }

/// torchrun, Open MPI and launchers that speak PMI say so in these.
int launched_processes() {
  if (const int size = environment("WORLD_SIZE"); size > 0 && environment("RANK") >= 0) return size;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (const int size = environment(name); size > 0) return size;
  if (environment("PMIX_RANK") >= 0 || environment("PMI_RANK") >= 0)
    return std::max(environment("SLURM_STEP_NUM_TASKS"), 1);
  return 0;
}

#ifdef GRAVEN_MPI

namespace {

using Accumulation = Ranks::Accumulation;

struct MpiEngine final : RankEngine {
  enum class Kind : std::uint8_t { mean, shard_of_mean, adding_shard, gather };
  /// Columns of one tensor in a bucket. Row r has what is rank r's of it.
  struct Piece {
    void* tensor;                 ///< the shard alone where it is added to
    std::int64_t n, width;        ///< the tensor's elements, and a rank's of them
    std::int64_t begin, columns;  ///< of a rank's
    std::int64_t place;           ///< in the bucket's rows
    Accumulation how;
  };
  /// A row of elements for each rank, of one or several tensors side by side.
  struct Bucket {
    /// Rows are being packed; on their way; what has been made of them is; done.
    enum class State : std::uint8_t { open, sent, gathering, done } state = State::done;
    Kind kind = Kind::mean;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    std::vector<std::byte> rows, received;
    std::vector<Piece> pieces;
    std::int64_t columns = 0;  ///< that are packed
    std::size_t number = 0;    ///< how many were opened before
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<int> counts, places;
  };
  // A message has a price of its own, and one over several megabytes comes when backward is nearly over.
  static constexpr std::size_t kBucketBytes = std::size_t{1} << 20, kRowBytes = std::size_t{16} << 10;
  static constexpr std::size_t kMostBuckets = 16;
  /// A bucket is not kept open for longer than so many others, or it would keep the ring from turning.
  static constexpr std::size_t kOpenFor = kMostBuckets / 2;

  MPI_Comm everybody = MPI_COMM_NULL;
  MPI_Comm results = MPI_COMM_NULL;  ///< what has been added up: it is sent when it is there, in an order of its own
  std::vector<Bucket> buckets;       ///< a ring; their memory is kept from step to step
  std::size_t oldest = 0, count = 0, opened = 0;
  struct Message {
    Kind kind;
    std::int64_t n;
    MPI_Datatype type;
  };
  std::vector<Message> messages, last_messages;  ///< asked for since the last finish(), and before it
  bool ends_engine = false;                      ///< this program has started MPI
  MpiEngine* beside = nullptr;                   ///< of another group, whose ranks may wait for this one while it waits

  MpiEngine() {
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
    MPI_Comm_dup(MPI_COMM_WORLD, &results);
    MPI_Comm_rank(everybody, &rank);
    MPI_Comm_size(everybody, &size);
  }
  /// Of those who say the same group.
  MpiEngine(const MpiEngine& all, int group) {
    MPI_Comm_split(all.everybody, group, 0, &everybody);
    MPI_Comm_dup(everybody, &results);
    MPI_Comm_rank(everybody, &rank);
    MPI_Comm_size(everybody, &size);
  }
  ~MpiEngine() override {
    int finished = 0;
    MPI_Finalized(&finished);
    if (finished != 0) return;
    MPI_Comm_free(&results);
    MPI_Comm_free(&everybody);
    if (ends_engine) MPI_Finalize();
  }

  static MPI_Datatype type_of(const float*) { return MPI_FLOAT; }
  static MPI_Datatype type_of(const double*) { return MPI_DOUBLE; }
  static std::size_t bytes_of(MPI_Datatype type) { return type == MPI_FLOAT ? sizeof(float) : sizeof(double); }
  /// Elements of a row.
  std::int64_t room(MPI_Datatype type) const {
    const std::size_t bytes = std::max(kBucketBytes / static_cast<std::size_t>(size), kRowBytes);
    return static_cast<std::int64_t>(bytes / bytes_of(type));
  }
  Bucket& bucket(std::size_t i) { return buckets[(oldest + i) % kMostBuckets]; }

  /// Sends what is packed. It depends on the calls alone what is sent when: all ranks send the same in one order.
  void close(Bucket& b) {
    if (b.state != Bucket::State::open) return;
    b.state = Bucket::State::sent;
    const double row = static_cast<double>(b.columns) * static_cast<double>(bytes_of(b.type));
    ++traffic.messages;
    traffic.sent += (b.kind == Kind::mean ? 2 : 1) * (size - 1) * row;
    const std::int64_t stride = room(b.type);
    b.counts.assign(static_cast<std::size_t>(size), static_cast<int>(b.columns));
    b.places.resize(b.counts.size());
    for (int r = 0; r < size; ++r) b.places[static_cast<std::size_t>(r)] = static_cast<int>(r * stride);
    if (b.kind == Kind::gather)
      start_gathering(b, everybody);
    else
      MPI_Ialltoallv(b.rows.data(), b.counts.data(), b.places.data(), b.type, b.received.data(), b.counts.data(),
                     b.places.data(), b.type, everybody, &b.request);
  }
  void close_all() {
    for (std::size_t i = 0; i < count; ++i) close(bucket(i));
  }
  void start_gathering(Bucket& b, MPI_Comm of) {
    b.state = Bucket::State::gathering;
    MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b.rows.data(), b.counts.data(), b.places.data(), b.type, of,
                    &b.request);
  }

  /// Row `rank` becomes the mean of what the ranks have sent.
  template <class T>
  void add_up(Bucket& b) const {
    const std::int64_t stride = room(b.type);
    T* const mean = reinterpret_cast<T*>(b.rows.data()) + rank * stride;
    const T* const from = reinterpret_cast<const T*>(b.received.data());
    const T count = static_cast<T>(size);
    for (std::int64_t i = 0; i < b.columns; ++i) mean[i] = from[i];
    for (int r = 1; r + 1 < size; ++r)
      for (std::int64_t i = 0; i < b.columns; ++i) mean[i] += from[r * stride + i];
    const T* const last = from + (size - 1) * stride;
    for (std::int64_t i = 0; i < b.columns; ++i) mean[i] = (mean[i] + last[i]) / count;
  }
  /// What becomes of this rank's row.
  template <class T>
  void keep(const Bucket& b) const {
    const T* const own = reinterpret_cast<const T*>(b.rows.data()) + rank * room(b.type);
    for (const Piece& p : b.pieces) {
      const std::int64_t first = rank * p.width + p.begin, count = std::clamp<std::int64_t>(p.n - first, 0, p.columns);
      const T* const mean = own + p.place;
      if (b.kind == Kind::shard_of_mean) {
        std::copy(mean, mean + count, static_cast<T*>(p.tensor) + first);
        continue;
      }
      T* const sum = static_cast<T*>(p.tensor) + p.begin;
      const T times = static_cast<T>(p.how.times), parts = static_cast<T>(p.how.parts);
      for (std::int64_t i = 0; i < count; ++i) {
        const T value = p.how.first ? mean[i] * times : sum[i] + mean[i] * times;
        sum[i] = p.how.last ? value / parts : value;
      }
    }
  }
  template <class T>
  void unpack(const Bucket& b) const {
    const std::int64_t stride = room(b.type);
    for (const Piece& p : b.pieces)
      for (int r = 0; r < size; ++r) {
        if (b.kind == Kind::gather && r == rank) continue;
        const std::int64_t first = r * p.width + p.begin;
        const T* const row = reinterpret_cast<const T*>(b.rows.data()) + r * stride + p.place;
        std::copy(row, row + std::clamp<std::int64_t>(p.n - first, 0, p.columns), static_cast<T*>(p.tensor) + first);
      }
  }

  /// Goes on with what has arrived.
  void progress() {
    using State = Bucket::State;
    bool is_next = true;  // every rank sends its results in one order
    for (std::size_t i = 0; i < count; ++i) {
      Bucket& b = bucket(i);
      const bool is_float = b.type == MPI_FLOAT;
      int arrived = 0;
      if ((b.state == State::sent && (b.kind != Kind::mean || is_next)) || b.state == State::gathering)
        MPI_Test(&b.request, &arrived, MPI_STATUS_IGNORE);
      if (arrived != 0 && b.state == State::sent) {
        is_float ? add_up<float>(b) : add_up<double>(b);
        if (b.kind == Kind::mean) {
          start_gathering(b, results);
          MPI_Test(&b.request, &arrived, MPI_STATUS_IGNORE);
        } else {
          is_float ? keep<float>(b) : keep<double>(b);
          b.state = State::done;
        }
      }
      if (arrived != 0 && b.state == State::gathering) {
        is_float ? unpack<float>(b) : unpack<double>(b);
        b.state = State::done;
      }
      if (b.kind == Kind::mean && b.state < State::gathering) is_next = false;
    }
    for (; count > 0 && bucket(0).state == State::done; --count) oldest = (oldest + 1) % kMostBuckets;
  }

  template <class Done>
  void wait(double limit, const Done& done) {
    const Stopwatch watch;
    for (int spins = 0; !done(); ++spins) {
      if (spins < 100) continue;
      ::sched_yield();
      if (watch.seconds() > limit)
        throw Error(
            "ranks", "",
            "an answer of the other ranks within " + std::to_string(std::int64_t(limit)) + " s (--rank-timeout)",
            "none: one of them hangs, or has died");
    }
  }
  void wait(double limit, MPI_Request& request) {
    wait(limit, [&] {
      progress();  // another rank may wait for what was begun before
      if (beside != nullptr) beside->progress();
      int done = 0;
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      return done != 0;
    });
  }

  /// A message to each other rank, of rows that stand `bytes` apart: start(at, count, row, request) begins to send
  /// `count` of each one's bytes.
  template <class Start>
  void send_rows(double limit, std::size_t bytes, const Start& start) {
    const Stopwatch watch;
    close_all();
    const std::size_t most = kMostBytes / static_cast<std::size_t>(size);
    for (std::size_t done = 0; done < bytes; done += most) {
      const int part = static_cast<int>(std::min(most, bytes - done));
      MPI_Datatype row = MPI_DATATYPE_NULL, spaced = MPI_DATATYPE_NULL;
      MPI_Type_contiguous(part, MPI_BYTE, &row);
      MPI_Type_create_resized(row, 0, static_cast<MPI_Aint>(bytes), &spaced);
      MPI_Type_commit(&spaced);
      MPI_Request request = MPI_REQUEST_NULL;
      start(done, part, spaced, &request);
      wait(limit, request);
      MPI_Type_free(&spaced);
      MPI_Type_free(&row);
    }
    ++traffic.messages;
    traffic.sent += static_cast<double>(size - 1) * static_cast<double>(bytes);
    traffic.waited += watch.seconds();
  }

  void finish_gathers(double limit) {
    for (std::size_t i = 0; i < count; ++i)
      if (bucket(i).kind == Kind::gather) close(bucket(i));
    wait(limit, [&] {
      progress();
      for (std::size_t i = 0; i < count; ++i)
        if (bucket(i).kind == Kind::gather && bucket(i).state != Bucket::State::done) return false;
      return true;
    });
  }

  Bucket& open(double limit, Kind kind, MPI_Datatype type) {
    for (std::size_t i = 0; i < count; ++i)
      if (Bucket& b = bucket(i); b.state == Bucket::State::open && b.kind == kind && b.type == type) return b;
    for (std::size_t i = 0; i < count; ++i)
      if (bucket(i).number + kOpenFor <= opened) close(bucket(i));
    buckets.resize(kMostBuckets);
    wait(limit, [&] {
      progress();
      return count < kMostBuckets;
    });
    Bucket& b = bucket(count++);
    b.state = Bucket::State::open;
    b.number = opened++;
    b.kind = kind;
    b.type = type;
    b.columns = 0;
    b.pieces.clear();
    const std::size_t bytes = static_cast<std::size_t>(size * room(type)) * bytes_of(type);
    b.rows.resize(bytes);
    if (kind != Kind::gather) b.received.resize(bytes);
    return b;
  }

  /// Begins what is to be done with x, of which `tensor` is to have the result.
  template <class T>
  void add(double limit, Kind kind, const T* x, std::int64_t n, T* tensor, const Accumulation& how) {
    const MPI_Datatype type = type_of(x);
    const double bytes = static_cast<double>(n) * sizeof(T);
    messages.push_back({kind, n, type});
    traffic.bytes += bytes;
    traffic.least += (kind == Kind::mean ? 2 : 1) * (size - 1) * bytes / size;
    const std::int64_t stride = room(type), width = (n + size - 1) / size;
    for (std::int64_t begin = 0; begin < width;) {
      Bucket& b = open(limit, kind, type);
      const std::int64_t columns = std::min(width - begin, stride - b.columns);
      b.pieces.push_back({tensor, n, width, begin, columns, b.columns, how});
      for (int r = 0; r < size; ++r) {
        if (kind == Kind::gather && r != rank) continue;
        const std::int64_t first = r * width + begin, count = std::clamp<std::int64_t>(n - first, 0, columns);
        T* const row = reinterpret_cast<T*>(b.rows.data()) + r * stride + b.columns;
        if (count > 0) std::copy(x + first, x + first + count, row);
        std::fill(row + count, row + columns, T(0));
      }
      b.columns += columns;
      begin += columns;
      if (b.columns == stride) close(b);
    }
    // The engine may only move data when it is called.
    progress();
  }

  void all_gather(double limit, const void* own, void* all, std::size_t bytes) override {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Iallgather(own, static_cast<int>(bytes), MPI_BYTE, all, static_cast<int>(bytes), MPI_BYTE, everybody, &request);
    wait(limit, request);
  }
  void broadcast(double limit, void* data, std::size_t bytes) override {
    close_all();
    auto* at = static_cast<std::byte*>(data);
    for (std::size_t done = 0; done < bytes; done += kMostBytes) {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Ibcast(at + done, static_cast<int>(std::min(kMostBytes, bytes - done)), MPI_BYTE, 0, everybody, &request);
      wait(limit, request);
    }
  }
  void transfer(double limit, int other, std::byte* data, std::size_t bytes, bool sends) override {
    for (std::size_t done = 0; done < bytes; done += kMostBytes) {
      const int count = static_cast<int>(std::min(kMostBytes, bytes - done));
      MPI_Request request = MPI_REQUEST_NULL;
      if (sends)
        MPI_Isend(data + done, count, MPI_BYTE, other, 0, everybody, &request);
      else
        MPI_Irecv(data + done, count, MPI_BYTE, other, 0, everybody, &request);
      wait(limit, request);
    }
  }
  /// Whoever ends first ends all the others, before they have waited.
  bool is_ended_by_others(double seconds) override {
    ::usleep(static_cast<useconds_t>(seconds * 1e6));
    return false;
  }
  void end(int status) override {
    MPI_Abort(everybody, status);
    std::_Exit(status);
  }
};

MpiEngine& mpi(const std::unique_ptr<RankEngine>& engine) { return static_cast<MpiEngine&>(*engine); }

}  // namespace

Ranks::Ranks() {
  int running = 0;
  MPI_Initialized(&running);
  if (running == 0 && launched_processes() == 0) return;
  engine_ = std::make_unique<MpiEngine>();
  rank_ = engine_->rank;
  size_ = engine_->size;
  if (const int size = launched_processes(); size_ == 1 && size > 1)
    throw Error("ranks", "", "the mpirun of the MPI that the program is built with",
                "another's, which has started " + std::to_string(size) + " processes that do not know of each other");
}

void Ranks::start_mean(float* x, std::int64_t n) {
  if (size_ > 1) mpi(engine_).add(time_limit_, MpiEngine::Kind::mean, x, n, x, {});
}
void Ranks::start_mean(double* x, std::int64_t n) {
  if (size_ > 1) mpi(engine_).add(time_limit_, MpiEngine::Kind::mean, x, n, x, {});
}
void Ranks::start_shard_of_mean(float* x, std::int64_t n) {
  if (size_ > 1) mpi(engine_).add(time_limit_, MpiEngine::Kind::shard_of_mean, x, n, x, {});
}
void Ranks::start_shard_of_mean(double* x, std::int64_t n) {
  if (size_ > 1) mpi(engine_).add(time_limit_, MpiEngine::Kind::shard_of_mean, x, n, x, {});
}
void Ranks::start_adding_shard(float* sum, const float* x, std::int64_t n, const Accumulation& how) {
  if (size_ > 1) mpi(engine_).add(time_limit_, MpiEngine::Kind::adding_shard, x, n, sum, how);
}
void Ranks::start_adding_shard(double* sum, const double* x, std::int64_t n, const Accumulation& how) {
  if (size_ > 1) mpi(engine_).add(time_limit_, MpiEngine::Kind::adding_shard, x, n, sum, how);
}
void Ranks::start_gather(float* x, std::int64_t n) {
  if (size_ > 1) mpi(engine_).add(time_limit_, MpiEngine::Kind::gather, x, n, x, {});
}
void Ranks::start_gather(double* x, std::int64_t n) {
  if (size_ > 1) mpi(engine_).add(time_limit_, MpiEngine::Kind::gather, x, n, x, {});
}

void Ranks::finish() {
  if (size_ == 1) return;
  const Stopwatch watch;
  mpi(engine_).close_all();
  mpi(engine_).wait(time_limit_, [&] {
    mpi(engine_).progress();
    return mpi(engine_).count == 0;
  });
  mpi(engine_).traffic.waited += watch.seconds();
  mpi(engine_).last_messages = std::exchange(mpi(engine_).messages, {});
}

void Ranks::finish_gathers() {
  if (size_ == 1) return;
  const Stopwatch watch;
  mpi(engine_).finish_gathers(time_limit_);
  mpi(engine_).traffic.waited += watch.seconds();
}

double Ranks::time_last_messages() {
  if (size_ == 1) return 0;
  const std::vector<MpiEngine::Message> messages = mpi(engine_).last_messages;
  std::int64_t most = 0;
  for (const MpiEngine::Message& m : messages) most = std::max(most, m.n);
  std::vector<double> memory(static_cast<std::size_t>(most));
  auto* const floats = reinterpret_cast<float*>(memory.data());
  double together = 0;
  sum(&together, 1);  // the others are here
  const Stopwatch watch;
  for (const MpiEngine::Message& m : messages)
    if (m.type == MPI_FLOAT)
      mpi(engine_).add(time_limit_, m.kind, floats, m.n, floats, {});
    else
      mpi(engine_).add(time_limit_, m.kind, memory.data(), m.n, memory.data(), {});
  finish();
  return watch.seconds();
}

void Ranks::exchange(const void* rows, void* received, std::size_t bytes) {
  if (size_ == 1 || bytes == 0) return;
  const auto* const from = static_cast<const std::byte*>(rows);
  auto* const to = static_cast<std::byte*>(received);
  mpi(engine_).send_rows(time_limit_, bytes, [&](std::size_t at, int, MPI_Datatype row, MPI_Request* request) {
    MPI_Ialltoall(from + at, 1, row, to + at, 1, row, mpi(engine_).everybody, request);
  });
}

void Ranks::gather_rows(const void* own, void* rows, std::size_t bytes) {
  if (size_ == 1 || bytes == 0) return;
  const auto* const from = static_cast<const std::byte*>(own);
  auto* const to = static_cast<std::byte*>(rows);
  mpi(engine_).send_rows(time_limit_, bytes, [&](std::size_t at, int count, MPI_Datatype row, MPI_Request* request) {
    MPI_Iallgather(from + at, count, MPI_BYTE, to + at, 1, row, mpi(engine_).everybody, request);
  });
}

#else

Ranks::Ranks() {
  if (connect != nullptr) {
    engine_ = connect();
    if (const int size = launched_processes(); engine_ == nullptr && size > 1)
      throw Error("ranks", "",
                  "a launcher that says which process each is: RANK and WORLD_SIZE, or as mpirun and srun do",
                  "one that has started " + std::to_string(size) + ", each of which would train for itself");
  } else if (const int size = launched_processes(); size > 1) {
    throw Error("ranks", "",
                "a program that is built with -DGRAVEN_MPI=ON, of a graph that was made for ranks "
                "(enable_data_parallel, set_stage, enable_tensor_parallel)",
                "one without, started as one of " + std::to_string(size) + " processes, which would train for itself");
  }
  if (engine_ == nullptr) return;
  rank_ = engine_->rank;
  size_ = engine_->size;
}

namespace {

/// Some of the ranks, by the messages of all of them, which make the same calls for their own group at one time.
class GroupEngine final : public RankEngine {
 public:
  /// `of`: the group of a rank, and its place in it.
  GroupEngine(RankEngine& all, std::pair<int, int> (*of)(int rank, int row), int row) : all_(all), of_(of), row_(row) {
    const int own = of(all.rank, row).first;
    for (int r = 0; r < all.size; ++r)
      if (of(r, row).first == own) members_.push_back(r);
    rank = of(all.rank, row).second;
    size = static_cast<int>(members_.size());
  }

  void all_gather(double limit, const void* own, void* all, std::size_t bytes) override {
    std::vector<std::byte> rows(bytes * static_cast<std::size_t>(all_.size));
    all_.all_gather(limit, own, rows.data(), bytes);
    auto* to = static_cast<std::byte*>(all);
    for (const int r : members_) to = std::copy_n(rows.data() + static_cast<std::size_t>(r) * bytes, bytes, to);
  }
  /// By way of the first of all.
  void broadcast(double limit, void* data, std::size_t bytes) override {
    auto* const own = static_cast<std::byte*>(data);
    if (all_.rank > 0) return all_.transfer(limit, 0, own, bytes, rank == 0);
    std::vector<std::byte> passing(bytes);
    for (int root = 0; root < all_.size; ++root) {
      const auto [group, place] = of_(root, row_);
      if (place != 0) continue;
      std::byte* const from = root == 0 ? own : passing.data();
      if (root > 0) all_.transfer(limit, root, from, bytes, false);
      for (int r = root + 1; r < all_.size; ++r)
        if (of_(r, row_).first == group) all_.transfer(limit, r, from, bytes, true);
    }
  }
  void transfer(double, int, std::byte*, std::size_t, bool) override {
    throw Error("ranks", "", "a transfer between all ranks", "one within a group of them");
  }
  void require_others() override { all_.require_others(); }
  bool is_ended_by_others(double seconds) override { return all_.is_ended_by_others(seconds); }
  void end(int status) override { all_.end(status); }

 private:
  RankEngine& all_;
  std::pair<int, int> (*of_)(int, int);
  const int row_;
  std::vector<int> members_;
};

}  // namespace

// Ranks that speak by sockets have devices, which exchange tensors themselves.
void Ranks::start_mean(float*, std::int64_t) {}
void Ranks::start_mean(double*, std::int64_t) {}
void Ranks::start_shard_of_mean(float*, std::int64_t) {}
void Ranks::start_shard_of_mean(double*, std::int64_t) {}
void Ranks::start_adding_shard(float*, const float*, std::int64_t, const Accumulation&) {}
void Ranks::start_adding_shard(double*, const double*, std::int64_t, const Accumulation&) {}
void Ranks::start_gather(float*, std::int64_t) {}
void Ranks::start_gather(double*, std::int64_t) {}
void Ranks::finish() {}
void Ranks::finish_gathers() {}
double Ranks::time_last_messages() { return 0; }
void Ranks::exchange(const void*, void*, std::size_t) {}
void Ranks::gather_rows(const void* own, void* rows, std::size_t bytes) {
  if (size_ > 1 && bytes > 0) engine_->all_gather(time_limit_, own, rows, bytes);
}

#endif

Ranks::Ranks(std::unique_ptr<RankEngine> engine) : engine_(std::move(engine)) {
  rank_ = engine_->rank;
  size_ = engine_->size;
}

Ranks::~Ranks() = default;

namespace {

/// What a rank runs on.
struct Place {
  char machine[256];
  cpu_set_t processors;
};

/// Of all ranks.
std::vector<Place> places(RankEngine& engine, double limit) {
  Place own;
  std::memset(&own, 0, sizeof own);
  ::gethostname(own.machine, sizeof own.machine - 1);
  ::sched_getaffinity(0, sizeof own.processors, &own.processors);
  std::vector<Place> all(static_cast<std::size_t>(engine.size));
  engine.all_gather(limit, &own, all.data(), sizeof own);
  return all;
}

}  // namespace

int Ranks::sharing_processors() const {
  if (size_ == 1) return 1;
  // Two ranks share what they run on where machine and set of processors are the same.
  const std::vector<Place> all = places(*engine_, time_limit_);
  const Place& own = all[static_cast<std::size_t>(rank_)];
  return static_cast<int>(
      std::count_if(all.begin(), all.end(), [&](const Place& p) { return std::memcmp(&p, &own, sizeof own) == 0; }));
}

int Ranks::place_on_machine() const {
  if (size_ == 1) return 0;
  const std::vector<Place> all = places(*engine_, time_limit_);
  return static_cast<int>(std::count_if(all.begin(), all.begin() + rank_, [&](const Place& p) {
    return std::strcmp(p.machine, all[static_cast<std::size_t>(rank_)].machine) == 0;
  }));
}

Ranks::Traffic Ranks::take_traffic() { return size_ == 1 ? Traffic{} : std::exchange(engine_->traffic, {}); }

void Ranks::count(const Traffic& traffic) {
  if (size_ == 1) return;
  Traffic& sum = engine_->traffic;
  sum.messages += traffic.messages;
  sum.bytes += traffic.bytes;
  sum.least += traffic.least;
  sum.sent += traffic.sent;
  sum.waited += traffic.waited;
}

std::vector<double> Ranks::gathered(const double* x, std::size_t n) {
  std::vector<double> all(n * static_cast<std::size_t>(size_));
  engine_->all_gather(time_limit_, x, all.data(), n * sizeof(double));
  return all;
}

std::vector<double> Ranks::all_numbers(const double* x, std::size_t n) {
  if (size_ == 1) return {x, x + n};
  const Stopwatch watch;
  std::vector<double> all = gathered(x, n);
  Traffic& traffic = engine_->traffic;
  const double bytes = static_cast<double>(n * sizeof(double));
  ++traffic.messages;
  traffic.bytes += bytes;
  traffic.least += (size_ - 1) * bytes;
  traffic.sent += (size_ - 1) * bytes;
  traffic.waited += watch.seconds();
  return all;
}

void Ranks::sum(double* x, std::size_t n) {
  if (size_ == 1) return;
  const std::vector<double> all = gathered(x, n);
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = 0;
    for (std::size_t r = 0; r < static_cast<std::size_t>(size_); ++r) x[i] += all[r * n + i];
  }
}

void Ranks::largest(double* x, std::size_t n) {
  if (size_ == 1) return;
  const std::vector<double> all = gathered(x, n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t r = 0; r < static_cast<std::size_t>(size_); ++r)
      if (const double other = all[r * n + i]; other > x[i] || std::isnan(other)) x[i] = other;
}

void Ranks::broadcast(void* data, std::size_t bytes) {
  if (size_ > 1) engine_->broadcast(time_limit_, data, bytes);
}

void Ranks::bring(int from, int to, const Variable& variable) {
  if (from == to || (rank_ != from && rank_ != to)) return;
  const bool sends = rank_ == from;
  engine_->transfer(time_limit_, sends ? to : from, static_cast<std::byte*>(variable.data), variable.bytes(), sends);
}

void Ranks::scatter(const Variable& variable, const void* whole) {
  std::vector<std::byte> part;
  for (int r = size_ - 1; r >= 0; --r) {
    if (rank_ == 0) {
      part.clear();
      variable.each_run_of(r, size_, [&](std::size_t at, std::size_t, std::size_t bytes) {
        const auto* const from = static_cast<const std::byte*>(whole) + at;
        part.insert(part.end(), from, from + bytes);
      });
      if (r > 0)
        engine_->transfer(time_limit_, r, part.data(), part.size(), true);
      else if (!part.empty())
        std::memcpy(variable.data, part.data(), part.size());
    } else if (rank_ == r) {
      engine_->transfer(time_limit_, 0, static_cast<std::byte*>(variable.data), variable.bytes(), false);
    }
  }
}

void Ranks::gather(const Variable& variable, void* whole) {
  // Rows of ranks have the same parts.
  const int count = variable.cut.is_cut() ? static_cast<int>(variable.cut.ranks) : size_;
  std::vector<std::byte> part;
  for (int r = 0; r < count; ++r) {
    if (rank_ == 0) {
      std::size_t length = 0;
      variable.each_run_of(r, size_, [&](std::size_t, std::size_t, std::size_t bytes) { length += bytes; });
      part.resize(length);
      if (r > 0)
        engine_->transfer(time_limit_, r, part.data(), length, false);
      else if (length > 0)
        std::memcpy(part.data(), variable.data, length);
      variable.each_run_of(r, size_, [&](std::size_t at, std::size_t own, std::size_t bytes) {
        if (bytes > 0) std::memcpy(static_cast<std::byte*>(whole) + at, part.data() + own, bytes);
      });
    } else if (rank_ == r) {
      engine_->transfer(time_limit_, 0, static_cast<std::byte*>(variable.data), variable.bytes(), true);
    }
  }
}

void Ranks::require_others(double seconds) const {
  if (size_ == 1) return;
  engine_->require_others();
  if (seconds > time_limit_)
    throw Error("ranks", "",
                "the other ranks' gradients within " + std::to_string(static_cast<std::int64_t>(time_limit_)) +
                    " s (--rank-timeout)",
                "none: one of them hangs, or has died");
}

int Ranks::fail(const std::exception& error, int status) {
  if (size_ == 1) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return status;
  }
  // One rank tells the user. Of those that have lost the first one the next does.
  const auto* const ended = dynamic_cast<const RankEnded*>(&error);
  const bool is_told = ended != nullptr && (ended->status() != 0 || (ended->other() == 0 && rank_ > 1));
  if (!is_told && !engine_->is_ended_by_others(0.5 * std::min(rank_, 4))) {
    std::fprintf(stderr, "error: rank %d: %s\n", rank_, error.what());
    std::fflush(stderr);
  }
  if (ended != nullptr && ended->status() != 0) status = ended->status();
  engine_->end(status);
  return status;
}

Ranks& Ranks::all() {
  static Ranks ranks;
  return ranks;
}

namespace {

/// This rank's groups.
struct Division {
  int count = 1;
  std::unique_ptr<Ranks> peers, team;
};
Division& division() {
  static Division division;
  return division;
}

}  // namespace

Ranks& Ranks::peers() {
  const Division& own = division();
  return own.peers ? *own.peers : all();
}

Ranks& Ranks::team() {
  const Division& own = division();
  return own.team ? *own.team : all();
}

void Ranks::divide(int count) {
  Ranks& ranks = all();  // first: what ends it outlives the groups
  if (ranks.size_ == 1) return;
  Division& own = division();
  if (own.peers && own.count == count) return;
  if (own.peers || ranks.size_ % count != 0)
    throw Error("ranks", "", "a multiple of " + std::to_string(own.peers ? own.count : count) + " ranks, one division",
                std::to_string(ranks.size_) + " ranks in rows of " + std::to_string(count));
  own.count = count;
#ifdef GRAVEN_MPI
  for (auto* group : {&own.peers, &own.team}) {
    const int of = group == &own.peers ? ranks.rank_ % count : ranks.rank_ / count;
    group->reset(new Ranks(std::make_unique<MpiEngine>(mpi(ranks.engine_), of)));
    (*group)->time_limit_ = ranks.time_limit_;
  }
  mpi(own.team->engine_).beside = &mpi(own.peers->engine_);
#else
  const auto group = [&](std::pair<int, int> (*of)(int, int)) {
    std::unique_ptr<Ranks> made(new Ranks(std::make_unique<GroupEngine>(*ranks.engine_, of, count)));
    made->time_limit_ = ranks.time_limit_;
    return made;
  };
  own.peers = group([](int rank, int row) { return std::pair(rank % row, rank / row); });
  own.team = group([](int rank, int row) { return std::pair(rank / row, rank % row); });
#endif
}

void Ranks::require_same(const char* what, const std::string& text) {
  if (size_ == 1) return;
  std::uint64_t length = text.size();
  broadcast(&length, sizeof length);
  std::string first = text;
  first.resize(length);
  broadcast(first.data(), first.size());
  if (first != text) throw Error(what, "", "the first rank's, " + first, text);
  // Nobody goes on, as to remove an older run's files, before all have come here.
  double agreed = 0;
  sum(&agreed, 1);
}

}  // namespace graven::runtime
