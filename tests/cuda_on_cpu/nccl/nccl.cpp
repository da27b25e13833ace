// Stands in for NCCL (libnccl.so.2) between processes with an emulated device each. A rank leaves what it sends in a
// file of its own, in a folder that the first rank makes; who has all ranks' adds them up, in their order. As with the
// library, work waits on its stream until every rank has come to it; unlike it, until all of the communicator have,
// also where a group is but of some that send to each other. What the library would wait for ever for is an error: a
// rank that makes another call, a send that nobody receives, a receive of what nobody sends, of another type or length.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cuda_runtime.h"

namespace {

namespace fs = std::filesystem;
using cuda_on_cpu::Failure;

enum Result { success = 0, system_error = 2, invalid_argument = 4, invalid_usage = 5 };
enum Type { uint8 = 1, float32 = 7, float64 = 8 };
enum Operation { mean = 4 };
constexpr int kMostRanks = 16;

struct UniqueId {
  char bytes[128];
};

/// What the ranks know of each other: how many groups of calls each has sent, and has got the results of.
struct Board {
  std::atomic<std::uint64_t> sent[kMostRanks], got[kMostRanks];
  std::atomic<int> joined, left;
};

std::size_t width_of(int type) { return type == uint8 ? 1 : type == float32 ? sizeof(float) : sizeof(double); }

/// As it is compared between ranks. `root`: of a send or a receive the other rank.
struct Call {
  enum class Kind : std::uint32_t { all_reduce, reduce, broadcast, all_gather, send, receive };
  Kind kind;
  int type, operation, root;
  std::uint64_t count;
  bool operator==(const Call&) const = default;
  std::uint64_t bytes() const { return count * width_of(type); }
  bool is_of_two() const { return kind == Kind::send || kind == Kind::receive; }
  bool adds_up() const { return kind == Kind::all_reduce || kind == Kind::reduce; }
  /// Whether a rank sends something, and gets something.
  bool sends(int rank) const { return kind != Kind::receive && (kind != Kind::broadcast || rank == root); }
  bool gets(int rank) const { return kind != Kind::send && (kind != Kind::reduce || rank == root); }
  std::string text() const {
    constexpr const char* kNames[] = {"ncclAllReduce", "ncclReduce", "ncclBroadcast",
                                      "ncclAllGather", "ncclSend",   "ncclRecv"};
    return std::string(kNames[static_cast<std::size_t>(kind)]) + " of " + std::to_string(count) + " of type " +
           std::to_string(type);
  }
};
struct Operands {
  const void* from;
  void* to;
};
/// A rank's, as it stands in its file; `at`: where what it sends does.
struct Sent {
  Call call;
  std::uint64_t at;
};

class File {
 public:
  File(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  /// From and to memory of the device, which the system's own calls may not touch.
  void write(const void* data, std::size_t bytes, std::size_t at) const {
    const std::string copy(static_cast<const char*>(data), bytes);
    if (::pwrite(fd_, copy.data(), bytes, static_cast<off_t>(at)) != static_cast<ssize_t>(bytes))
      throw Failure("stand-in of NCCL: a file cannot be written");
  }
  void read(void* data, std::size_t bytes, std::size_t at) const {
    std::string copy(bytes, '\0');
    if (::pread(fd_, copy.data(), bytes, static_cast<off_t>(at)) != static_cast<ssize_t>(bytes))
      throw Failure("NCCL: the ranks call for messages of different sizes");
    std::memcpy(data, copy.data(), bytes);
  }

 private:
  int fd_;
};

}  // namespace

struct Communicator {
  fs::path folder;
  int rank, size, device;
  Board* board;
  std::vector<std::unique_ptr<File>> files;
  std::uint64_t groups = 0;  ///< that have been begun
  // What it was given last.
  std::uint64_t last = 0;
  cudaStream_t last_stream = nullptr;
  std::weak_ptr<cuda_on_cpu::Recording> recording = {};
  std::atomic<bool> aborted = false;
  std::atomic<int> recorded = 0;  ///< groups in graphs that there are
};

namespace {

/// The calls of one group, once for each time that the stream comes to it.
class Group {
 public:
  explicit Group(Communicator& communicator) : communicator_(communicator) {}
  /// `sent`, `received`: bytes of the operands.
  void add(const Call& call, const Operands& operands, std::size_t sent, std::size_t received) {
    // The calls of a group have no order: nobody may write where another one reads or writes.
    const auto meet = [](const void* a, std::size_t of_a, const void* b, std::size_t of_b) {
      const auto *x = static_cast<const char*>(a), *y = static_cast<const char*>(b);
      return of_a > 0 && of_b > 0 && x < y + of_b && y < x + of_a;
    };
    for (const Range& r : ranges_)
      if (meet(operands.to, received, r.from, r.sent) || meet(operands.to, received, r.to, r.received) ||
          meet(operands.from, sent, r.to, r.received))
        throw Failure(call.text() + ": what one call of a group receives lies upon what another one sends or receives");
    ranges_.push_back({operands.from, operands.to, sent, received});
    calls_.push_back(call);
    operands_.push_back(operands);
  }
  /// Whether it is done.
  bool advance() {
    Communicator& c = communicator_;
    if (c.aborted) return true;
    const auto all = [&](const std::atomic<std::uint64_t>* counts, std::uint64_t least) {
      for (int r = 0; r < c.size; ++r)
        if (counts[r].load() < least) return false;
      return true;
    };
    if (!begun_) {
      if (!all(c.board->got, c.groups)) return false;  // files are still read
      begun_ = true;
      send();
      own_ = ++c.groups;
      c.board->sent[c.rank] = own_;
    }
    if (!all(c.board->sent, own_)) return false;
    receive();
    c.board->got[c.rank] = own_;
    begun_ = false;
    return true;
  }

 private:
  void send() const {
    const File& file = *communicator_.files[static_cast<std::size_t>(communicator_.rank)];
    const std::uint64_t count = calls_.size();
    file.write(&count, sizeof count, 0);
    std::size_t at = sizeof count + count * sizeof(Sent);
    for (std::size_t i = 0; i < count; ++i) {
      const Sent sent{calls_[i], at};
      file.write(&sent, sizeof sent, sizeof count + i * sizeof sent);
      if (!calls_[i].sends(communicator_.rank)) continue;
      file.write(operands_[i].from, calls_[i].bytes(), at);
      at += calls_[i].bytes();
    }
  }
  const File& file_of(int rank) const { return *communicator_.files[static_cast<std::size_t>(rank)]; }
  std::vector<Sent> calls_of(int rank) const {
    std::uint64_t count = 0;
    file_of(rank).read(&count, sizeof count, 0);
    std::vector<Sent> calls(count);
    if (count > 0) file_of(rank).read(calls.data(), count * sizeof(Sent), sizeof count);
    return calls;
  }
  void receive() const {
    const Communicator& c = communicator_;
    std::vector<std::vector<Sent>> all;
    for (int r = 0; r < c.size; ++r) all.push_back(calls_of(r));
    const std::vector<Sent>& own = all[static_cast<std::size_t>(c.rank)];
    // Calls of all ranks are the same ones, in one order.
    const auto shared = [](const std::vector<Sent>& of) {
      std::vector<Sent> found;
      std::copy_if(of.begin(), of.end(), std::back_inserter(found), [](const Sent& s) { return !s.call.is_of_two(); });
      return found;
    };
    std::vector<std::vector<Sent>> shared_by;
    for (const std::vector<Sent>& of : all) shared_by.push_back(shared(of));
    const std::vector<Sent>& mine = shared_by[static_cast<std::size_t>(c.rank)];
    for (int r = 0; r < c.size; ++r) {
      const std::vector<Sent>& theirs = shared_by[static_cast<std::size_t>(r)];
      for (std::size_t i = 0; i < std::max(mine.size(), theirs.size()); ++i)
        if (i >= mine.size() || i >= theirs.size() || theirs[i].call != mine[i].call)
          throw Failure("NCCL: rank " + std::to_string(r) + " makes another call" +
                        (i < theirs.size() ? ", " + theirs[i].call.text() : ""));
      match(own, all[static_cast<std::size_t>(r)], r);
    }
    std::size_t next = 0;  // of the shared ones
    std::vector<std::size_t> taken(static_cast<std::size_t>(c.size));
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Call& call = calls_[i];
      if (call.kind == Call::Kind::receive) {
        std::size_t& from = taken[static_cast<std::size_t>(call.root)];
        const Sent& theirs = *between(all[static_cast<std::size_t>(call.root)], Call::Kind::send, c.rank)[from++];
        file_of(call.root).read(operands_[i].to, call.bytes(), theirs.at);
      } else if (!call.is_of_two()) {
        if (call.gets(c.rank)) get(call, operands_[i].to, shared_by, next);
        ++next;
      }
    }
  }
  /// Those of a rank's calls that send to the other, or receive from it.
  static std::vector<const Sent*> between(const std::vector<Sent>& calls, Call::Kind kind, int other) {
    std::vector<const Sent*> found;
    for (const Sent& s : calls)
      if (s.call.kind == kind && s.call.root == other) found.push_back(&s);
    return found;
  }
  /// What this rank sends to the other that one receives, and the reverse.
  void match(const std::vector<Sent>& own, const std::vector<Sent>& theirs, int other) const {
    for (const bool sends : {true, false}) {
      const auto mine = between(own, sends ? Call::Kind::send : Call::Kind::receive, other);
      const auto answers = between(theirs, sends ? Call::Kind::receive : Call::Kind::send, communicator_.rank);
      for (std::size_t i = 0; i < std::max(mine.size(), answers.size()); ++i) {
        const std::string who = "NCCL: rank " + std::to_string(other);
        if (i >= answers.size())
          throw Failure(who + (sends ? " receives not" : " sends not") + " what this one " +
                        (sends ? "sends" : "receives") + ": " + mine[i]->call.text());
        if (i >= mine.size())
          throw Failure(who + (sends ? " receives" : " sends") + " what this one " + (sends ? "sends" : "receives") +
                        " not: " + answers[i]->call.text());
        if (mine[i]->call.type != answers[i]->call.type || mine[i]->call.count != answers[i]->call.count)
          throw Failure(who + " answers " + mine[i]->call.text() + " by " + answers[i]->call.text());
      }
    }
  }
  void get(const Call& call, void* to, const std::vector<std::vector<Sent>>& of_ranks, std::size_t place) const {
    const auto at = [&](int rank) { return of_ranks[static_cast<std::size_t>(rank)][place].at; };
    switch (call.kind) {
      case Call::Kind::broadcast:
        return file_of(call.root).read(to, call.bytes(), at(call.root));
      case Call::Kind::all_gather:
        for (int r = 0; r < communicator_.size; ++r)
          file_of(r).read(static_cast<char*>(to) + static_cast<std::size_t>(r) * call.bytes(), call.bytes(), at(r));
        return;
      case Call::Kind::all_reduce:
      case Call::Kind::reduce:
        return call.type == float32 ? add_up<float>(call, to, at) : add_up<double>(call, to, at);
      case Call::Kind::send:
      case Call::Kind::receive:
        return;
    }
  }
  template <class T, class At>
  void add_up(const Call& call, void* to, const At& at) const {
    const Communicator& c = communicator_;
    std::vector<T> sum(call.count), theirs(call.count);
    for (int r = 0; r < c.size; ++r) {
      file_of(r).read(theirs.data(), call.bytes(), at(r));
      for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += theirs[e] * (T(1) / static_cast<T>(c.size));
    }
    std::memcpy(to, sum.data(), call.bytes());
  }

  struct Range {
    const void *from, *to;
    std::size_t sent, received;
  };

  Communicator& communicator_;
  std::vector<Range> ranges_;
  std::vector<Call> calls_;
  std::vector<Operands> operands_;
  bool begun_ = false;
  std::uint64_t own_ = 0;
};

extern "C" int ncclGroupStart();
extern "C" int ncclGroupEnd();

thread_local int depth = 0;
thread_local std::shared_ptr<Group> group;
thread_local cudaStream_t stream_of_group = nullptr;
thread_local Communicator* communicator_of_group = nullptr;

/// The end of a group: its work comes behind what the communicator was given before, on whatever stream.
void enqueue_group() {
  cuda_on_cpu::count_library_call();
  Communicator& c = *communicator_of_group;
  const std::shared_ptr<cuda_on_cpu::Recording> recording = cuda_on_cpu::existing(stream_of_group)->recording;
  // As with the library, neither the end nor the abortion of a communicator is over while graphs have calls of it.
  std::shared_ptr<void> counted;
  if (recording != nullptr) {
    ++c.recorded;
    counted = std::shared_ptr<void>(nullptr, [&c](void*) { --c.recorded; });
  }
  const std::uint64_t after = c.last_stream != stream_of_group && c.recording.lock() == recording ? c.last : 0;
  c.last = cuda_on_cpu::enqueue_attempt(
      "ncclGroupEnd", [work = std::move(group), counted] { return work->advance(); }, stream_of_group, after);
  c.last_stream = stream_of_group;
  c.recording = recording;
  group = nullptr;
}

/// `sent`, `received`: elements that this rank's buffers have.
int add(const char* name, const Call& call, const void* from, std::size_t sent, void* to, std::size_t received,
        Communicator* c, cudaStream_t stream) {
  if (c == nullptr || c->aborted || (call.type != uint8 && call.type != float32 && call.type != float64) ||
      (call.type == uint8 && call.adds_up()) || call.operation > mean || call.root < 0 || call.root >= c->size)
    return invalid_argument;
  if (c->device != cuda_on_cpu::current_device() || cuda_on_cpu::existing(stream)->device != c->device)
    return invalid_usage;
  const std::size_t width = width_of(call.type);
  const std::string what = std::string(name) + ", ";
  const bool sends = call.sends(c->rank), gets = call.gets(c->rank);
  if (sends) cuda_on_cpu::require_current_device(from, sent * width, what + "what is sent");
  if (gets) cuda_on_cpu::require_current_device(to, received * width, what + "what is received");
  if (sends && gets) {
    // In place of an all_gather is the rank's own part of what is received.
    const char* const own =
        static_cast<const char*>(to) +
        (call.kind == Call::Kind::all_gather ? static_cast<std::size_t>(c->rank) * sent * width : 0);
    if (const auto *a = static_cast<const char*>(from), *b = static_cast<const char*>(to);
        a != own && a < b + received * width && b < a + sent * width)
      throw Failure(what + "what is received lies upon a part of what is sent");
  }
  ncclGroupStart();
  if (group == nullptr) {
    group = std::make_shared<Group>(*c);
    stream_of_group = stream;
    communicator_of_group = c;
  } else if (stream_of_group != stream || communicator_of_group != c) {
    throw Failure("stand-in of NCCL: a group on two streams, or of two communicators, is not emulated");
  }
  group->add(call, {from, to}, sends ? sent * width : 0, gets ? received * width : 0);
  return ncclGroupEnd();
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22100;
  return success;
}

const char* ncclGetErrorString(int result) {
  switch (result) {
    case success:
      return "no error";
    case system_error:
      return "unhandled system error";
    case invalid_argument:
      return "invalid argument";
    case invalid_usage:
      return "invalid usage";
    default:
      return "unknown result code";
  }
}

int ncclGetUniqueId(UniqueId* id) {
  std::string name = (fs::temp_directory_path() / "ranks_XXXXXX").string();
  if (name.size() >= sizeof id->bytes || ::mkdtemp(name.data()) == nullptr) return system_error;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->bytes, name.c_str(), name.size());
  const File board(fs::path(name) / "board", O_RDWR | O_CREAT);
  return ::ftruncate(board.fd(), sizeof(Board)) == 0 ? success : system_error;
}

int ncclCommInitRank(Communicator** communicator, int size, UniqueId id, int rank) {
  if (communicator == nullptr || size < 1 || size > kMostRanks || rank < 0 || rank >= size) return invalid_argument;
  const fs::path folder = id.bytes;
  const File board(folder / "board", O_RDWR);
  void* const memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, board.fd(), 0);
  if (board.fd() < 0 || memory == MAP_FAILED) return system_error;
  auto* const c = new Communicator{.folder = folder,
                                   .rank = rank,
                                   .size = size,
                                   .device = cuda_on_cpu::current_device(),
                                   .board = static_cast<Board*>(memory),
                                   .files = {}};
  const auto file_of = [&](int r) { return folder / ("rank_" + std::to_string(r)); };
  {
    const File own(file_of(rank), O_RDWR | O_CREAT);
  }
  for (++c->board->joined; c->board->joined < size;) ::usleep(100);
  for (int r = 0; r < size; ++r) c->files.push_back(std::make_unique<File>(file_of(r), O_RDWR));
  *communicator = c;
  return success;
}

int ncclCommDestroy(Communicator* c) {
  if (c == nullptr) return invalid_argument;
  if (depth > 0 && group != nullptr && communicator_of_group == c) {
    std::fprintf(stderr, "stand-in of NCCL: a communicator ends within a group: its calls were never made\n");
    return invalid_usage;
  }
  c->aborted = true;  // what is still queued runs, and does nothing
  while (c->recorded > 0) ::usleep(1000);
  if (++c->board->left == c->size) {
    std::error_code ignored;
    fs::remove_all(c->folder, ignored);
  }
  return success;
}

int ncclCommAbort(Communicator* c) { return ncclCommDestroy(c); }

int ncclCommGetAsyncError(Communicator* c, int* result) {
  if (c == nullptr || result == nullptr) return invalid_argument;
  *result = success;
  return success;
}

int ncclGroupStart() {
  ++depth;
  return success;
}

int ncclGroupEnd() {
  if (depth == 0) return invalid_usage;
  if (--depth == 0 && group != nullptr) enqueue_group();
  return success;
}

int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation, Communicator* c,
                  cudaStream_t stream) {
  if (operation != mean) return invalid_argument;
  return add("ncclAllReduce", {Call::Kind::all_reduce, type, operation, 0, count}, from, count, to, count, c, stream);
}
int ncclReduce(const void* from, void* to, std::size_t count, int type, int operation, int root, Communicator* c,
               cudaStream_t stream) {
  if (operation != mean) return invalid_argument;
  return add("ncclReduce", {Call::Kind::reduce, type, operation, root, count}, from, count, to, count, c, stream);
}
int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, Communicator* c,
                  cudaStream_t stream) {
  return add("ncclBroadcast", {Call::Kind::broadcast, type, 0, root, count}, from, count, to, count, c, stream);
}
int ncclAllGather(const void* from, void* to, std::size_t count, int type, Communicator* c, cudaStream_t stream) {
  const std::size_t all = c == nullptr ? 0 : count * static_cast<std::size_t>(c->size);
  return add("ncclAllGather", {Call::Kind::all_gather, type, 0, 0, count}, from, count, to, all, c, stream);
}
int ncclSend(const void* from, std::size_t count, int type, int to_rank, Communicator* c, cudaStream_t stream) {
  return add("ncclSend", {Call::Kind::send, type, 0, to_rank, count}, from, count, nullptr, 0, c, stream);
}
int ncclRecv(void* to, std::size_t count, int type, int from_rank, Communicator* c, cudaStream_t stream) {
  return add("ncclRecv", {Call::Kind::receive, type, 0, from_rank, count}, nullptr, 0, to, count, c, stream);
}

}  // extern "C"
