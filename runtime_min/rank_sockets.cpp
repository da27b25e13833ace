#include "rank_sockets.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "error.h"
#include "stopwatch.h"

namespace graven::runtime {
namespace {

constexpr double kMeetingSeconds = 60;
constexpr int kPort = 29500;

/// What stands in front of every message: who speaks tells, by it, whether both sides make the same call.
struct Header {
  enum class Kind : std::uint32_t { hello, welcome, gathered, broadcast, transfer, end };
  std::array<char, 8> magic = {'g', 'r', 'a', 'v', 'e', 'n', 'r', '1'};
  Kind kind = Kind::hello;
  std::int32_t number = 0;  ///< of a hello, the rank; of an end, its status
  std::uint64_t bytes = 0;  ///< that follow; of a hello, how many ranks there are
};

const char* name(Header::Kind kind) {
  constexpr const char* kNames[] = {"hello", "welcome", "gathering", "broadcast", "transfer", "end"};
  return static_cast<std::size_t>(kind) < std::size(kNames) ? kNames[static_cast<std::size_t>(kind)] : "unknown";
}

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  void close() noexcept {
    if (fd_ >= 0) (void)::close(fd_);
  }
  int fd_ = -1;
};

struct Addresses {
  Addresses(const char* host, int port, bool passive) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = passive ? AI_PASSIVE : 0;
    const std::string service = std::to_string(port);
    if (const int error = ::getaddrinfo(host, service.c_str(), &hints, &list); error != 0)
      throw Error("MASTER_ADDR", "", "the address of the first rank's machine",
                  printable(host != nullptr ? host : "") + ": " + ::gai_strerror(error));
  }
  ~Addresses() {
    if (list != nullptr) ::freeaddrinfo(list);
  }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  addrinfo* list = nullptr;
};

/// Messages go out at once, and none of them blocks.
void prepare(int fd) {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  (void)::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

class SocketEngine final : public RankEngine {
 public:
  SocketEngine(const RankPlace& place, double limit) {
    rank = place.rank;
    size = place.size;
    if (rank == 0)
      receive_others(place, limit);
    else
      reach_first(place, limit);
  }

  void all_gather(double limit, const void* own, void* all, std::size_t bytes) override {
    auto* const rows = static_cast<std::byte*>(all);
    const std::size_t whole = bytes * static_cast<std::size_t>(size);
    if (rank > 0) {
      send(limit, others_[0], Header::Kind::gathered, own, bytes);
      return receive(limit, others_[0], Header::Kind::gathered, all, whole);
    }
    if (bytes > 0) std::memmove(rows, own, bytes);
    for (const Other& other : others_)
      receive(limit, other, Header::Kind::gathered, rows + static_cast<std::size_t>(other.rank) * bytes, bytes);
    for (const Other& other : others_) send(limit, other, Header::Kind::gathered, all, whole);
  }
  void broadcast(double limit, void* data, std::size_t bytes) override {
    if (rank > 0) return receive(limit, others_[0], Header::Kind::broadcast, data, bytes);
    for (const Other& other : others_) send(limit, other, Header::Kind::broadcast, data, bytes);
  }
  void transfer(double limit, int rank_of_other, std::byte* data, std::size_t bytes, bool sends) override {
    for (const Other& other : others_)
      if (other.rank == rank_of_other)
        return sends ? send(limit, other, Header::Kind::transfer, data, bytes)
                     : receive(limit, other, Header::Kind::transfer, data, bytes);
    throw Error("ranks", "", "a transfer from or to the first rank", "one of rank " + std::to_string(rank_of_other));
  }
  void require_others() override {
    for (const Other& other : others_) require(other);
  }
  bool is_ended_by_others(double seconds) override {
    const Stopwatch watch;
    do {
      for (const Other& other : others_)
        if (const auto last = ended(other); last && last->kind == Header::Kind::end) return true;
      ::usleep(10'000);
    } while (watch.seconds() < seconds);
    return false;
  }
  void end(int status) override {
    const Header message{.kind = Header::Kind::end, .number = status};
    for (const Other& other : others_) (void)::send(other.socket.fd(), &message, sizeof message, MSG_NOSIGNAL);
    std::_Exit(status);
  }

 private:
  struct Other {
    int rank;
    Socket socket;
  };

  [[noreturn]] static void fail_on_meeting(const RankPlace& place, const std::string& expected,
                                           const std::string& found) {
    throw Error("ranks", "at " + place.address + ", port " + std::to_string(place.port), expected, found);
  }
  /// Another program may be there, or other ranks of this one.
  static void require_hello(const RankPlace& place, const Header& hello, Header::Kind kind) {
    if (hello.magic != Header{}.magic || hello.kind != kind || hello.bytes != static_cast<std::uint64_t>(place.size))
      fail_on_meeting(place, "ranks of one program that has " + std::to_string(place.size) + " of them",
                      hello.magic != Header{}.magic ? "another program, or another version of it; MASTER_PORT chooses "
                                                      "another port"
                                                    : "one that has " + std::to_string(hello.bytes));
  }

  void receive_others(const RankPlace& place, double limit) {
    // On this machine nobody else's need see it.
    const bool is_local = place.address == "127.0.0.1";
    const Addresses addresses(is_local ? place.address.c_str() : nullptr, place.port, true);
    Socket listener;
    int error = 0;
    // One of IPv6 hears who comes by IPv4 as well.
    std::vector<const addrinfo*> list;
    for (const addrinfo* a = addresses.list; a != nullptr; a = a->ai_next) list.push_back(a);
    std::stable_partition(list.begin(), list.end(), [](const addrinfo* a) { return a->ai_family == AF_INET6; });
    for (const addrinfo* const a : list) {
      if (listener) break;
      Socket socket(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
      const int on = 1, off = 0;
      if (socket) (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (a->ai_family == AF_INET6) (void)::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      if (socket && ::bind(socket.fd(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(socket.fd(), 1024) == 0)
        listener = std::move(socket);
      else
        error = errno;
    }
    if (!listener)
      fail_on_meeting(place, "a port that is free, for the other ranks to come to",
                      std::string(std::strerror(error)) + "; MASTER_PORT chooses another");
    std::vector<Stranger> strangers;
    const Stopwatch watch;
    while (static_cast<int>(others_.size()) + 1 < size) {
      std::vector<pollfd> polled = {{listener.fd(), POLLIN, 0}};
      for (const Stranger& s : strangers) polled.push_back({s.socket.fd(), POLLIN, 0});
      (void)::poll(polled.data(), polled.size(), 100);
      for (std::size_t i = strangers.size(); i-- > 0;)
        if (polled[i + 1].revents != 0 && !admit(place, strangers[i]))
          strangers.erase(strangers.begin() + static_cast<std::ptrdiff_t>(i));
      if ((polled[0].revents & POLLIN) != 0)
        if (Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC)); socket) {
          prepare(socket.fd());
          strangers.push_back({std::move(socket)});
        }
      if (watch.seconds() > limit)
        fail_on_meeting(place, std::to_string(size) + " ranks within " + std::to_string(static_cast<int>(limit)) + " s",
                        std::to_string(others_.size() + 1) + "; MASTER_ADDR names the first rank's machine");
    }
    std::sort(others_.begin(), others_.end(), [](const Other& a, const Other& b) { return a.rank < b.rank; });
    const Header welcome{.kind = Header::Kind::welcome, .bytes = static_cast<std::uint64_t>(size)};
    for (const Other& other : others_)
      put(limit, other, {reinterpret_cast<const std::byte*>(&welcome), sizeof welcome});
  }
  /// One that has not said who it is.
  struct Stranger {
    Socket socket;
    Header hello = {};
    std::size_t got = 0;
  };
  /// Who says that it is a rank is one; anybody else is sent away. Whether it has still to say so.
  bool admit(const RankPlace& place, Stranger& stranger) {
    Header& hello = stranger.hello;
    const ssize_t got = ::recv(stranger.socket.fd(), reinterpret_cast<std::byte*>(&hello) + stranger.got,
                               sizeof hello - stranger.got, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
    if (got <= 0) return false;
    stranger.got += static_cast<std::size_t>(got);
    if (stranger.got < sizeof hello) return true;
    if (hello.magic != Header{}.magic) return false;
    require_hello(place, hello, Header::Kind::hello);
    const auto is_same = [&](const Other& other) { return other.rank == hello.number; };
    if (hello.number < 1 || hello.number >= size || std::any_of(others_.begin(), others_.end(), is_same))
      fail_on_meeting(place, "each rank from 1 to " + std::to_string(size - 1) + " once",
                      "another " + std::to_string(hello.number));
    others_.push_back({hello.number, std::move(stranger.socket)});
    return false;
  }

  /// None, and why, where nobody answers there within so many seconds.
  static Socket reach(const addrinfo& address, double seconds, std::string& why) {
    Socket socket(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol));
    int error = socket ? 0 : errno;
    if (socket) {
      prepare(socket.fd());
      if (::connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0) error = errno;
    }
    if (error == EINPROGRESS) {
      pollfd polled = {socket.fd(), POLLOUT, 0};
      socklen_t length = sizeof error;
      if (::poll(&polled, 1, static_cast<int>(seconds * 1000) + 1) <= 0)
        error = ETIMEDOUT;
      else if (::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0)
        error = errno;
    }
    if (error == 0) return socket;
    why = std::strerror(error);
    return {};
  }
  void reach_first(const RankPlace& place, double limit) {
    const Stopwatch watch;
    std::string why;
    while (others_.empty()) {
      if (watch.seconds() > limit)
        fail_on_meeting(place,
                        "the first rank within " + std::to_string(static_cast<int>(limit)) +
                            " s, on the machine that MASTER_ADDR names",
                        why);
      // A name may be known only once the first rank's machine is up.
      try {
        const Addresses addresses(place.address.c_str(), place.port, false);
        for (const addrinfo* a = addresses.list; a != nullptr && others_.empty(); a = a->ai_next)
          if (Socket socket = reach(*a, std::max(limit - watch.seconds(), 0.01), why); socket)
            others_.push_back({0, std::move(socket)});
      } catch (const Error& e) {
        why = e.found();
      }
      if (others_.empty()) ::usleep(20'000);
    }
    const Header hello{.number = rank, .bytes = static_cast<std::uint64_t>(size)};
    put(limit, others_[0], {reinterpret_cast<const std::byte*>(&hello), sizeof hello});
    Header welcome;
    take(limit, others_[0], {reinterpret_cast<std::byte*>(&welcome), sizeof welcome});
    if (welcome.magic == hello.magic) require_running(others_[0], welcome);
    require_hello(place, welcome, Header::Kind::welcome);
  }

  void send(double limit, const Other& other, Header::Kind kind, const void* data, std::size_t bytes) {
    const Header header{.kind = kind, .bytes = bytes};
    put(limit, other, {reinterpret_cast<const std::byte*>(&header), sizeof header});
    put(limit, other, {static_cast<const std::byte*>(data), bytes});
  }
  void receive(double limit, const Other& other, Header::Kind kind, void* data, std::size_t bytes) {
    Header header;
    take(limit, other, {reinterpret_cast<std::byte*>(&header), sizeof header});
    require_running(other, header);
    if (header.kind != kind || header.bytes != bytes)
      throw Error("ranks", "",
                  std::string("a ") + name(kind) + " of " + std::to_string(bytes) + " bytes, as this rank makes it",
                  std::string("a ") + name(header.kind) + " of " + std::to_string(header.bytes) + " from rank " +
                      std::to_string(other.rank));
    take(limit, other, {static_cast<std::byte*>(data), bytes});
  }

  void put(double limit, const Other& other, std::span<const std::byte> bytes) {
    const Stopwatch watch;
    while (!bytes.empty()) {
      const ssize_t sent = ::send(other.socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent >= 0)
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
      else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        wait(limit, watch, other, POLLOUT);
      else
        lose(other);
    }
  }
  void take(double limit, const Other& other, std::span<std::byte> bytes) {
    const Stopwatch watch;
    while (!bytes.empty()) {
      const ssize_t got = ::recv(other.socket.fd(), bytes.data(), bytes.size(), 0);
      if (got > 0)
        bytes = bytes.subspan(static_cast<std::size_t>(got));
      else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        wait(limit, watch, other, POLLIN);
      else
        lose(other);
    }
  }
  /// Until the other can go on; an Error where one of the rest has ended meanwhile.
  void wait(double limit, const Stopwatch& watch, const Other& other, short event) {
    pollfd polled = {other.socket.fd(), event, 0};
    if (::poll(&polled, 1, 100) > 0) return;
    for (const Other& each : others_)
      if (&each != &other) require(each);
    if (watch.seconds() > limit)
      throw Error("ranks", "",
                  "an answer of rank " + std::to_string(other.rank) + " within " +
                      std::to_string(static_cast<std::int64_t>(limit)) + " s (--rank-timeout)",
                  "none: it hangs, or has died");
  }

  /// Whether another has ended, and said nothing before that this rank has still to hear.
  std::optional<Header> ended(const Other& other) const {
    Header next;
    const ssize_t got = ::recv(other.socket.fd(), &next, sizeof next, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return Header{};
    if (got == sizeof next && next.magic == Header{}.magic && next.kind == Header::Kind::end) return next;
    return std::nullopt;
  }
  void require(const Other& other) const {
    const std::optional<Header> last = ended(other);
    if (!last) return;
    require_running(other, *last);
    lose(other);
  }
  /// One that ends with an error has said which.
  static void require_running(const Other& other, const Header& header) {
    if (header.kind == Header::Kind::end) throw RankEnded(other.rank, header.number);
  }
  [[noreturn]] static void lose(const Other& other) { throw RankEnded(other.rank); }

  std::vector<Other> others_;  ///< the first rank's are all others, any other's the first rank
};

/// The number in an environment variable; nothing where there is none.
std::optional<int> number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == 0) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text, &end, 10);
  if (*end != 0 || errno != 0 || value < 0 || value > (1 << 24))
    throw Error(variable, "", "a whole number", printable(text));
  return static_cast<int>(value);
}

}  // namespace

RankPlace rank_place() {
  constexpr const char* kLaunchers[][2] = {{"RANK", "WORLD_SIZE"},
                                           {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                           {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  RankPlace place;
  for (const auto& [rank, size] : kLaunchers) {
    const std::optional<int> own = number_in(rank), all = number_in(size);
    if (!own || !all) continue;
    if (*own >= *all)
      throw Error(rank, "", "a rank below " + std::string(size) + ", " + std::to_string(*all), std::to_string(*own));
    place.rank = *own;
    place.size = *all;
    break;
  }
  const char* const address = std::getenv("MASTER_ADDR");
  place.address = address != nullptr && *address != 0 ? address : "127.0.0.1";
  place.port = number_in("MASTER_PORT").value_or(kPort);
  // torchrun's own processes speak there.
  if (const char* own = std::getenv("TORCHELASTIC_USE_AGENT_STORE"); own != nullptr && std::string(own) == "True")
    ++place.port;
  if (place.port < 1 || place.port > 65535)
    throw Error("MASTER_PORT", "", "a port from 1 to 65535", std::to_string(place.port));
  return place;
}

std::unique_ptr<RankEngine> connect_by_sockets(const RankPlace& place, double limit) {
  if (place.size == 1) return nullptr;
  return std::make_unique<SocketEngine>(place, limit);
}

std::unique_ptr<RankEngine> connect_by_sockets() { return connect_by_sockets(rank_place(), kMeetingSeconds); }

}  // namespace graven::runtime
