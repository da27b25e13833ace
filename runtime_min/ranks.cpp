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
  int rank = 0, size = 1;
  std::vector<Bucket> buckets;  ///< a ring; their memory is kept from step to step
  std::size_t oldest = 0, count = 0, opened = 0;
  struct Message {
    Kind kind;
    std::int64_t n;
    MPI_Datatype type;
  };
  std::vector<Message> messages, last_messages;  ///< asked for since the last finish(), and before it
  Traffic traffic;
  bool ends_engine = false;  ///< this program has started MPI
  Engine* beside = nullptr;  ///< of another group, whose ranks may wait for this one while it waits

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
    MPI_Comm_dup(MPI_COMM_WORLD, &results);
    MPI_Comm_rank(everybody, &rank);
    MPI_Comm_size(everybody, &size);
  }
  /// Of those who say the same group.
  Engine(const Engine& all, int group) {
    MPI_Comm_split(all.everybody, group, 0, &everybody);
    MPI_Comm_dup(everybody, &results);
    MPI_Comm_rank(everybody, &rank);
    MPI_Comm_size(everybody, &size);
  }
  ~Engine() {
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
};

Ranks::Ranks() {
  int running = 0;
  MPI_Initialized(&running);
  if (running == 0 && launched_processes() == 0) return;
  engine_ = std::make_unique<Engine>();
  rank_ = engine_->rank;
  size_ = engine_->size;
  if (const int size = launched_processes(); size_ == 1 && size > 1)
    throw Error("ranks", "", "the mpirun of the MPI that the program is built with",
                "another's, which has started " + std::to_string(size) + " processes that do not know of each other");
}

Ranks::Ranks(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {
  rank_ = engine_->rank;
  size_ = engine_->size;
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

void Ranks::start_mean(float* x, std::int64_t n) {
  if (size_ > 1) engine_->add(time_limit_, Engine::Kind::mean, x, n, x, {});
}
void Ranks::start_mean(double* x, std::int64_t n) {
  if (size_ > 1) engine_->add(time_limit_, Engine::Kind::mean, x, n, x, {});
}
void Ranks::start_shard_of_mean(float* x, std::int64_t n) {
  if (size_ > 1) engine_->add(time_limit_, Engine::Kind::shard_of_mean, x, n, x, {});
}
void Ranks::start_shard_of_mean(double* x, std::int64_t n) {
  if (size_ > 1) engine_->add(time_limit_, Engine::Kind::shard_of_mean, x, n, x, {});
}
void Ranks::start_adding_shard(float* sum, const float* x, std::int64_t n, const Accumulation& how) {
  if (size_ > 1) engine_->add(time_limit_, Engine::Kind::adding_shard, x, n, sum, how);
}
void Ranks::start_adding_shard(double* sum, const double* x, std::int64_t n, const Accumulation& how) {
  if (size_ > 1) engine_->add(time_limit_, Engine::Kind::adding_shard, x, n, sum, how);
}
void Ranks::start_gather(float* x, std::int64_t n) {
  if (size_ > 1) engine_->add(time_limit_, Engine::Kind::gather, x, n, x, {});
}
void Ranks::start_gather(double* x, std::int64_t n) {
  if (size_ > 1) engine_->add(time_limit_, Engine::Kind::gather, x, n, x, {});
}

void Ranks::finish() {
  if (size_ == 1) return;
  const Stopwatch watch;
  engine_->close_all();
  engine_->wait(time_limit_, [&] {
    engine_->progress();
    return engine_->count == 0;
  });
  engine_->traffic.waited += watch.seconds();
  engine_->last_messages = std::exchange(engine_->messages, {});
}

void Ranks::finish_gathers() {
  if (size_ == 1) return;
  const Stopwatch watch;
  engine_->finish_gathers(time_limit_);
  engine_->traffic.waited += watch.seconds();
}

Ranks::Traffic Ranks::take_traffic() { return size_ == 1 ? Traffic{} : std::exchange(engine_->traffic, {}); }

double Ranks::time_last_messages() {
  if (size_ == 1) return 0;
  const std::vector<Engine::Message> messages = engine_->last_messages;
  std::int64_t most = 0;
  for (const Engine::Message& m : messages) most = std::max(most, m.n);
  std::vector<double> memory(static_cast<std::size_t>(most));
  auto* const floats = reinterpret_cast<float*>(memory.data());
  double together = 0;
  sum(&together, 1);  // the others are here
  const Stopwatch watch;
  for (const Engine::Message& m : messages)
    if (m.type == MPI_FLOAT)
      engine_->add(time_limit_, m.kind, floats, m.n, floats, {});
    else
      engine_->add(time_limit_, m.kind, memory.data(), m.n, memory.data(), {});
  finish();
  return watch.seconds();
}

std::vector<double> Ranks::gathered(const double* x, std::size_t n) {
  std::vector<double> all(n * static_cast<std::size_t>(size_));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(x, static_cast<int>(n), MPI_DOUBLE, all.data(), static_cast<int>(n), MPI_DOUBLE, engine_->everybody,
                 &request);
  engine_->wait(time_limit_, request);
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
  if (size_ == 1) return;
  engine_->close_all();
  auto* at = static_cast<std::byte*>(data);
  for (std::size_t done = 0; done < bytes; done += kMostBytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Ibcast(at + done, static_cast<int>(std::min(kMostBytes, bytes - done)), MPI_BYTE, 0, engine_->everybody,
               &request);
    engine_->wait(time_limit_, request);
  }
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
        transfer(r, part.data(), part.size(), true);
      else if (!part.empty())
        std::memcpy(variable.data, part.data(), part.size());
    } else if (rank_ == r) {
      transfer(0, static_cast<std::byte*>(variable.data), variable.bytes(), false);
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
        transfer(r, part.data(), length, false);
      else if (length > 0)
        std::memcpy(part.data(), variable.data, length);
      variable.each_run_of(r, size_, [&](std::size_t at, std::size_t own, std::size_t bytes) {
        if (bytes > 0) std::memcpy(static_cast<std::byte*>(whole) + at, part.data() + own, bytes);
      });
    } else if (rank_ == r) {
      transfer(0, static_cast<std::byte*>(variable.data), variable.bytes(), true);
    }
  }
}

void Ranks::exchange(const void* rows, void* received, std::size_t bytes) {
  if (size_ == 1 || bytes == 0) return;
  const auto* const from = static_cast<const std::byte*>(rows);
  auto* const to = static_cast<std::byte*>(received);
  engine_->send_rows(time_limit_, bytes, [&](std::size_t at, int, MPI_Datatype row, MPI_Request* request) {
    MPI_Ialltoall(from + at, 1, row, to + at, 1, row, engine_->everybody, request);
  });
}

void Ranks::gather_rows(const void* own, void* rows, std::size_t bytes) {
  if (size_ == 1 || bytes == 0) return;
  const auto* const from = static_cast<const std::byte*>(own);
  auto* const to = static_cast<std::byte*>(rows);
  engine_->send_rows(time_limit_, bytes, [&](std::size_t at, int count, MPI_Datatype row, MPI_Request* request) {
    MPI_Iallgather(from + at, count, MPI_BYTE, to + at, 1, row, engine_->everybody, request);
  });
}

/// Sends bytes to another rank, or receives them.
void Ranks::transfer(int other, std::byte* data, std::size_t bytes, bool sends) {
  for (std::size_t done = 0; done < bytes; done += kMostBytes) {
    const int count = static_cast<int>(std::min(kMostBytes, bytes - done));
    MPI_Request request = MPI_REQUEST_NULL;
    if (sends)
      MPI_Isend(data + done, count, MPI_BYTE, other, 0, engine_->everybody, &request);
    else
      MPI_Irecv(data + done, count, MPI_BYTE, other, 0, engine_->everybody, &request);
    engine_->wait(time_limit_, request);
  }
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

struct Ranks::Engine {
  Engine(const Engine&, int) {}
  Engine* beside = nullptr;
};

Ranks::Ranks(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

Ranks::Ranks() {
  if (const int size = launched_processes(); size > 1)
    throw Error("ranks", "",
                "a program that is built with -DGRAVEN_MPI=ON, of a graph that was made for ranks "
                "(enable_data_parallel, set_stage, enable_tensor_parallel)",
                "one without, started as one of " + std::to_string(size) + " processes, which would train for itself");
}

int Ranks::sharing_processors() const { return 1; }
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
Ranks::Traffic Ranks::take_traffic() { return {}; }
double Ranks::time_last_messages() { return 0; }
std::vector<double> Ranks::all_numbers(const double* x, std::size_t n) { return {x, x + n}; }
void Ranks::sum(double*, std::size_t) {}
void Ranks::largest(double*, std::size_t) {}
void Ranks::broadcast(void*, std::size_t) {}
void Ranks::scatter(const Variable&, const void*) {}
void Ranks::gather(const Variable&, void*) {}
void Ranks::exchange(const void*, void*, std::size_t) {}
void Ranks::gather_rows(const void*, void*, std::size_t) {}

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
  for (auto* group : {&own.peers, &own.team}) {
    const int of = group == &own.peers ? ranks.rank_ % count : ranks.rank_ / count;
    group->reset(new Ranks(std::make_unique<Engine>(*ranks.engine_, of)));
    (*group)->time_limit_ = ranks.time_limit_;
  }
  own.team->engine_->beside = own.peers->engine_.get();
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
