// Ranks that speak by sockets, each a thread here.
#include "runtime_min/rank_sockets.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime_min/error.h"

namespace graven::runtime {
namespace {

constexpr double kLimit = 20;

int port() {
  static int next = 21000 + ::getpid() % 20000;
  return next++;
}

/// What each rank says where it fails.
std::vector<std::string> run(int size, const std::function<void(RankEngine&)>& work, double limit = kLimit) {
  std::vector<std::string> said(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  const int at = port();
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        work(*connect_by_sockets({.rank = rank, .size = size, .address = "127.0.0.1", .port = at}, limit));
      } catch (const std::exception& e) {
        said[static_cast<std::size_t>(rank)] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return said;
}

TEST(RankSockets, CarryWhatRanksTellEachOther) {
  for (const int size : {2, 3, 5}) {
    const auto said = run(size, [size](RankEngine& engine) {
      ASSERT_EQ(engine.size, size);
      for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{70000}}) {
        std::vector<double> own(n, engine.rank + 0.5), all(n * static_cast<std::size_t>(size));
        engine.all_gather(kLimit, own.data(), all.data(), n * sizeof(double));
        for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<double>(i / n) + 0.5);
        std::string text(n, static_cast<char>('a' + engine.rank));
        engine.broadcast(kLimit, text.data(), n);
        EXPECT_EQ(text, std::string(n, 'a'));
        // To the first rank, and back from it.
        for (int other = 1; other < size; ++other)
          for (const bool to_first : {true, false}) {
            if (engine.rank != 0 && engine.rank != other) continue;
            std::vector<std::byte> bytes(n, static_cast<std::byte>(engine.rank));
            engine.transfer(kLimit, engine.rank == 0 ? other : 0, bytes.data(), n, (engine.rank == 0) != to_first);
            const auto from = static_cast<std::byte>(to_first ? other : 0);
            for (const std::byte b : bytes) ASSERT_EQ(b, from);
          }
      }
    });
    for (const std::string& text : said) EXPECT_EQ(text, "");
  }
}

TEST(RankSockets, OneThatEndsIsMissed) {
  // Rank 1 goes at once, while the others wait for one another.
  const auto said = run(3, [](RankEngine& engine) {
    if (engine.rank == 1) return;
    double own = 1, all[3];
    engine.all_gather(kLimit, &own, all, sizeof own);
  });
  EXPECT_EQ(said[0], "ranks: expected all ranks to go on until the end, found rank 1 gone");
  EXPECT_EQ(said[2], "ranks: expected all ranks to go on until the end, found rank 0 gone");
  const auto looked = run(2, [](RankEngine& engine) {
    if (engine.rank == 1) return;
    for (int i = 0; i < 2000; ++i) {
      engine.require_others();
      ::usleep(1000);
    }
  });
  EXPECT_EQ(looked[0], "ranks: expected all ranks to go on until the end, found rank 1 gone");
  // What one has said before it went is still heard.
  const auto heard = run(2, [](RankEngine& engine) {
    double own = 1, all[2];
    if (engine.rank == 0) ::usleep(200000);
    engine.all_gather(kLimit, &own, all, sizeof own);
    EXPECT_EQ(all[1 - engine.rank], 1);
  });
  EXPECT_EQ(heard[0] + heard[1], "");
}

TEST(RankSockets, OneThatHangsOrMakesOtherCallsIsAnError) {
  const auto said = run(2, [](RankEngine& engine) {
    double x = 1;
    if (engine.rank == 1) {
      ::usleep(600000);
      return;
    }
    double all[2];
    engine.all_gather(0.2, &x, all, sizeof x);
  });
  EXPECT_EQ(said[0],
            "ranks: expected an answer of rank 1 within 0 s (--rank-timeout), found none: it hangs, or has died");
  const auto other = run(2, [](RankEngine& engine) {
    double x[2] = {}, all[4];
    engine.all_gather(kLimit, x, all, engine.rank == 0 ? 8 : 16);
  });
  EXPECT_EQ(other[0],
            "ranks: expected a gathering of 8 bytes, as this rank makes it, found a gathering of 16 from rank 1");
}

TEST(RankSockets, WhoDoesNotMeet) {
  const auto meet = [](const RankPlace& place, double limit) {
    try {
      connect_by_sockets(place, limit);
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const int at = port();
  const std::string where = "ranks: at 127.0.0.1, port " + std::to_string(at) + ": ";
  EXPECT_EQ(meet({.rank = 0, .size = 3, .address = "127.0.0.1", .port = at}, 0.2),
            where + "expected 3 ranks within 0 s, found 1; MASTER_ADDR names the first rank's machine");
  EXPECT_EQ(
      meet({.rank = 2, .size = 3, .address = "127.0.0.1", .port = at}, 0.2),
      where + "expected the first rank within 0 s, on the machine that MASTER_ADDR names, found Connection refused");
  EXPECT_NE(meet({.rank = 1, .size = 2, .address = "no.such.machine.invalid", .port = at}, 0.2)
                .find("on the machine that MASTER_ADDR names, found \"no.such.machine.invalid\": "),
            std::string::npos);
  // Two with one rank; and one that has other ranks in mind.
  for (const auto& [rank, size, expected] :
       {std::tuple{1, 3, "expected each rank from 1 to 2 once, found another 1"},
        std::tuple{2, 4, "expected ranks of one program that has 3 of them, found one that has 4"}}) {
    const int here = port();
    std::string said[2];
    std::thread first([&] { (void)meet({.rank = 1, .size = 3, .address = "127.0.0.1", .port = here}, kLimit); });
    std::thread second([&, r = rank, n = size] {
      ::usleep(100000);
      (void)meet({.rank = r, .size = n, .address = "127.0.0.1", .port = here}, kLimit);
    });
    said[0] = meet({.rank = 0, .size = 3, .address = "127.0.0.1", .port = here}, kLimit);
    first.join();
    second.join();
    EXPECT_NE(said[0].find(expected), std::string::npos) << said[0];
  }
}

TEST(RankSockets, StrangersAreSentAway) {
  const int at = port();
  const auto place = [&](int rank) { return RankPlace{.rank = rank, .size = 2, .address = "127.0.0.1", .port = at}; };
  std::thread first([&] {
    const auto engine = connect_by_sockets(place(0), kLimit);
    char text = 'a';
    engine->broadcast(kLimit, &text, 1);
  });
  // One says nothing, one speaks of something else, one goes at once.
  std::vector<int> strangers;
  for (const std::string said : {"", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "gone"}) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(at));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < 200 && ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0; ++i)
      ::usleep(10000);
    ASSERT_EQ(::send(fd, said.data(), said.size(), MSG_NOSIGNAL), static_cast<ssize_t>(said.size()));
    if (said == "gone")
      ::close(fd);
    else
      strangers.push_back(fd);
  }
  const auto second = connect_by_sockets(place(1), kLimit);
  char text = 'b';
  second->broadcast(kLimit, &text, 1);
  EXPECT_EQ(text, 'a');
  first.join();
  for (const int fd : strangers) ::close(fd);
}

TEST(RankSockets, TheEnvironmentSaysWhoIsWho) {
  const char* const kAll[] = {
      "RANK",        "WORLD_SIZE",   "OMPI_COMM_WORLD_RANK",        "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
      "PMI_SIZE",    "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",        "MV2_COMM_WORLD_RANK",  "MV2_COMM_WORLD_SIZE",
      "MASTER_ADDR", "MASTER_PORT",  "TORCHELASTIC_USE_AGENT_STORE"};
  const struct {
    std::map<std::string, std::string> environment;
    std::string expected;  ///< "rank of size at address:port", or the error
  } cases[] = {
      {{}, "0 of 1 at 127.0.0.1:29500"},
      {{{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "node7"}, {"MASTER_PORT", "1234"}}, "3 of 8 at node7:1234"},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1234"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}},
       "1 of 2 at 127.0.0.1:1235"},
      {{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, "1 of 2 at 127.0.0.1:29500"},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, "0 of 2 at 127.0.0.1:29500"},
      {{{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "4"}}, "1 of 4 at 127.0.0.1:29500"},
      {{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}}, "1 of 4 at 127.0.0.1:29500"},
      {{{"WORLD_SIZE", "4"}}, "0 of 1 at 127.0.0.1:29500"},
      {{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK: expected a rank below WORLD_SIZE, 2, found 2"},
      {{{"RANK", "one"}, {"WORLD_SIZE", "2"}}, "RANK: expected a whole number, found \"one\""},
      {{{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK: expected a whole number, found \"-1\""},
      {{{"MASTER_PORT", "0"}}, "MASTER_PORT: expected a port from 1 to 65535, found 0"},
      {{{"MASTER_PORT", "70000"}}, "MASTER_PORT: expected a port from 1 to 65535, found 70000"},
      {{{"MASTER_PORT", "x"}}, "MASTER_PORT: expected a whole number, found \"x\""},
  };
  for (const auto& c : cases) {
    for (const char* name : kAll) ::unsetenv(name);
    for (const auto& [name, value] : c.environment) ::setenv(name.c_str(), value.c_str(), 1);
    std::string found;
    try {
      const RankPlace place = rank_place();
      found = std::to_string(place.rank) + " of " + std::to_string(place.size) + " at " + place.address + ":" +
              std::to_string(place.port);
    } catch (const Error& e) {
      found = e.what();
    }
    EXPECT_EQ(found, c.expected);
  }
  for (const char* name : kAll) ::unsetenv(name);
}

}  // namespace
}  // namespace graven::runtime
