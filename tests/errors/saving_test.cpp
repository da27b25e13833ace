// Saving, interrupted: a process that saves is killed before and after each of its system calls, and at random moments
// between them; what it left is the old file or the new one, whole.
#include <graven/graven.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

#include "ir/json.h"
#include "tests/frontend/error_text.h"

namespace graven {
namespace {

namespace fs = std::filesystem;

/// Two tensors, every element of both the same number.
nn::StateDict state_of(float value) {
  return {{"a", from_data(std::vector<float>(5000, value), {5000})},
          {"b", from_data(std::vector<float>(300000, value), {300, 1000})}};
}

/// The number in a saved file, which must be whole.
float value_in(const std::string& path) {
  const nn::StateDict state = nn::load(path);
  EXPECT_EQ(state.size(), 2U);
  const float value = state.at(0).second.to_vector<float>().at(0);
  for (const auto& [name, t] : state)
    for (const float x : t.to_vector<float>()) EXPECT_EQ(x, value) << name;
  return value;
}

/// `body` in another process, which stops before its first line.
pid_t stopped_process(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(2);
    ::raise(SIGSTOP);
    try {
      body();
    } catch (const std::exception&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSTOPPED(status)) << "this process may not trace another one";
  return WIFSTOPPED(status) ? child : -1;
}

/// Runs `body` in another process and kills it where a system call begins or ends, the `moment`th of all of them. false
/// when it came to its end before.
bool killed_at(const std::function<void()>& body, int moment) {
  const pid_t child = stopped_process(body);
  if (child < 0) return false;
  for (int i = 0; i < moment; ++i) {
    EXPECT_EQ(::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr), 0);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    if (!WIFSTOPPED(status)) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "saving failed";
      return false;
    }
  }
  EXPECT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  return true;
}

/// Runs `body` for ever in another process and kills it after so many microseconds.
void killed_after(const std::function<void()>& body, useconds_t microseconds) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      for (;;) body();
    } catch (const std::exception&) {
      ::_exit(1);
    }
  }
  ::usleep(microseconds);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << "saving failed";
}

/// Kills `body` at each of its moments, and `rounds` times at random ones within so many microseconds; `check` looks at
/// what is left each time. How often it was killed at its moments, which do not depend on the machine's speed.
int kill_everywhere(const std::function<void()>& body, const std::function<void()>& check, int rounds,
                    unsigned microseconds) {
  int moment = 0;
  for (; killed_at(body, moment); ++moment) {
    SCOPED_TRACE("killed at moment " + std::to_string(moment));
    check();
  }
  const unsigned seed = 7;
  std::mt19937 random(seed);
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    killed_after(body, random() % microseconds);
    check();
  }
  std::cout << "killed at each of " << moment << " moments and " << rounds << " times at random\n";
  EXPECT_GT(moment, 10) << "saving makes more system calls";
  return moment;
}

class Saving : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::path(GRAVEN_BINARY_DIR) / "errors_saving" / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  fs::path folder_;
};

TEST_F(Saving, KilledAnywhereTheOldOrTheNewLoads) {
  const std::string path = (folder_ / "model.safetensors").string();
  const nn::StateDict first = state_of(1), second = state_of(2);
  nn::save(first, path);
  int seen[3] = {};
  kill_everywhere(
      [&] {
        nn::save(second, path);
        nn::save(first, path);
      },
      [&] {
        const float value = value_in(path);
        ASSERT_TRUE(value == 1 || value == 2);
        ++seen[static_cast<int>(value)];
        for (const auto& entry : fs::directory_iterator(folder_))
          if (entry.path() != path) fs::remove(entry.path());  // what the killed process was writing
      },
      200, 8000);
  EXPECT_GT(seen[1], 0);
  EXPECT_GT(seen[2], 0);
}

TEST_F(Saving, AGraphSavedAgainIsWhole) {
  struct Layer : nn::Graph<Layer> {
    nn::Linear layer = child("layer", nn::Linear(40, 300));
    Tensor build(Tensor x) { return layer(x); }
  } graph;
  graph.compile(spec({1, 40}));
  const std::string path = (folder_ / "saved").string();
  graph.save(path);
  const std::string text = ir::to_json(ir::read_graph(path + "/graph.json"));
  kill_everywhere([&] { graph.save(path); },
                  [&] {
                    EXPECT_EQ(ir::to_json(ir::read_graph(path + "/graph.json")), text);
                    EXPECT_EQ(nn::load(path + "/weights.safetensors").size(), 2U);
                  },
                  50, 6000);
}

/// Two graphs whose parameters and large constants have the same names and shapes, and another number in each of them.
struct FirstGraph : nn::Graph<FirstGraph> {
  nn::Linear layer = child("layer", nn::Linear(40, 300));
  Tensor table = full({300}, 1);
  FirstGraph() { fill(1); }
  void fill(double value) {
    const NoGradGuard no_grad;
    layer.weight.fill_(value);
    layer.bias.fill_(value);
  }
  Tensor build(Tensor x) { return relu(layer(x)) * table; }
};
struct SecondGraph : nn::Graph<SecondGraph> {
  nn::Linear layer = child("layer", nn::Linear(40, 300));
  Tensor table = full({300}, 2);
  SecondGraph() {
    const NoGradGuard no_grad;
    layer.weight.fill_(2);
    layer.bias.fill_(2);
  }
  Tensor build(Tensor x) { return sigmoid(layer(x)) * table; }
};

/// Every number of the graph that loads is the one that it was saved with; or an error names the two files. Whether it
/// loaded.
bool is_whole(const std::string& path) {
  try {
    const nn::SavedGraph saved(path);
    const float value = saved.name() == "FirstGraph" ? 1 : 2;
    for (const auto& [name, t] : saved.state_dict())
      for (const float x : t.to_vector<float>()) EXPECT_EQ(x, value) << name << " of " << saved.name();
    for (const auto& [id, data] : saved.graph().constants) {
      float x = 0;
      std::memcpy(&x, data->bytes.data(), sizeof x);
      EXPECT_EQ(x, value) << "the constant of " << saved.name();
    }
    EXPECT_EQ(saved.graph().constants.size(), 1U);
    return true;
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(path + "/graph.json and " + path + "/"), std::string::npos) << text;
    EXPECT_NE(text.find(".safetensors were not saved together"), std::string::npos) << text;
    return false;
  }
}

TEST_F(Saving, TwoGraphsInOneFolderAreNeverMixed) {
  FirstGraph one;
  SecondGraph two;
  one.compile(spec({1, 40}, "x"));
  two.compile(spec({1, 40}, "x"));
  const std::string path = (folder_ / "saved").string();
  one.save(path);
  EXPECT_TRUE(is_whole(path));
  int whole = 0, refused = 0;
  kill_everywhere(
      [&] {
        two.save(path);
        one.save(path);
      },
      [&] { ++(is_whole(path) ? whole : refused); }, 100, 12000);
  std::cout << whole << " whole, " << refused << " refused\n";
  EXPECT_GT(whole, 0);
  EXPECT_GT(refused, 0);
  one.save(path);
  EXPECT_TRUE(is_whole(path));
}

TEST_F(Saving, AFileOfAnotherFolderIsRefused) {
  FirstGraph one;
  SecondGraph two;
  one.compile(spec({1, 40}, "x"));
  two.compile(spec({1, 40}, "x"));
  const auto folder = [&](const char* name) { return (folder_ / name).string(); };
  const char* const files[] = {"graph.json", "graph.safetensors", "weights.safetensors"};
  two.save(folder("two"));
  for (const char* file : files) {
    SCOPED_TRACE(file);
    one.save(folder("one"));
    EXPECT_TRUE(is_whole(folder("one")));
    fs::copy_file(folder("two") + "/" + file, folder("one") + "/" + file, fs::copy_options::overwrite_existing);
    EXPECT_FALSE(is_whole(folder("one")));
  }
  // All of them are a folder again; and so are weights that somebody made by hand.
  for (const char* file : files)
    fs::copy_file(folder("two") + "/" + file, folder("one") + "/" + file, fs::copy_options::overwrite_existing);
  EXPECT_TRUE(is_whole(folder("one")));
  nn::save(two.state_dict(), folder("one") + "/weights.safetensors");
  EXPECT_TRUE(is_whole(folder("one")));
}

TEST_F(Saving, OtherWeightsOfTheGraphAreItsOwn) {
  // Saved again and again while it is trained, a folder has the old weights or the new ones whenever it is killed.
  FirstGraph graph;
  graph.compile(spec({1, 40}, "x"));
  const std::string path = (folder_ / "saved").string();
  graph.save(path);
  kill_everywhere(
      [&] {
        for (const double value : {2, 1}) {
          graph.fill(value);
          graph.save(path);
        }
      },
      [&] {
        const nn::SavedGraph saved(path);
        const float first = saved.state_dict().at(0).second.to_vector<float>().at(0);
        EXPECT_TRUE(first == 1 || first == 2);
        for (const auto& [name, t] : saved.state_dict())
          for (const float x : t.to_vector<float>()) ASSERT_EQ(x, first) << name;
      },
      50, 12000);
}

TEST_F(Saving, AFullDiskKeepsTheOldFile) {
  const std::string path = (folder_ / "model.safetensors").string();
  nn::save(state_of(1), path);
  // A limit on the size of files fails a write as a full disk does; in a process of its own, because the limit is the
  // process's.
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {100000, 100000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      nn::save(state_of(2), path);
      ::_exit(1);
    } catch (const UserError& error) {
      ::_exit(std::string(error.what()).find("cannot write: File too large") != std::string::npos ? 0 : 2);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(value_in(path), 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "no temporary file is left";
}

struct Doubles : nn::Graph<Doubles> {
  Tensor build(Tensor x) { return x * 2; }
};
struct Widens : nn::Graph<Widens> {
  Tensor build(Tensor x) { return x.expand({std::int64_t{1} << 61, 3}) * 2; }
};

/// What a symbol may be called, and how large a tensor may be, is said where the graph takes it: a graph that is there
/// can be called, emitted, saved and read again.
TEST_F(Saving, NamesAndSizesThatCouldNotBeReadAgainAreRefusedBefore) {
  const std::string saved = (folder_ / "saved").string();
  {
    Doubles good;
    good.compile(spec({Dim("batch", 5), 3}));
    good.save(saved);
  }
  const std::string before = ir::to_json(ir::read_graph(saved + "/graph.json"));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::pair<Shape, std::string> cases[] = {
      {{Dim("batch-size", 5), 3}, "has the symbol 'batch-size'; a symbol's name is made of letters, digits"},
      {{Dim("2*b", 5), 3}, "has the symbol '2*b'"},
      {{Dim("a b", 5), 3}, "has the symbol 'a b'"},
      {{Dim("2b", 5), 3}, "has the symbol '2b'"},
      {{Dim("gr\xc3\xb6\xc3\x9f"
            "e",
            5),
        3},
       "has the symbol 'gr"},
      {{Dim("a\nb", 5), 3}, "has the symbol 'a"},
      {{Dim("*/", 5), 3}, "has the symbol '*/'"},
      {{Dim("", 5), 3}, "has the symbol ''"},
      {{Dim(std::string(300, 'a'), 5), 3}, "has the symbol 'aaa"},
      {{Dim("b", 0), 3}, "a symbol stands for sizes of at least 1"},
      {{Dim("b", -5), 3}, "a symbol stands for sizes of at least 1"},
      {{Dim("b", std::int64_t{1} << 60), 3}, "do not fit in 63 bits"},
      {{Dim("b", kMost), 3}, "do not fit in 63 bits"},
      {{Dim("b", kMost) * Dim(3)}, "do not fit in 63 bits"},
      {{std::int64_t{1} << 62}, "do not fit in 63 bits"},
      {{std::int64_t{1} << 40, std::int64_t{1} << 40}, "do not fit in 63 bits"},
      {{1, 1, 1, 1, 1, 1, 1, 1, 1}, "has 9 dimensions; the most are 8"},
  };
  for (const auto& [shape, expected] : cases) {
    SCOPED_TRACE(expected);
    Doubles graph;
    const std::string error = test::error_of([&, &shape = shape] { graph.compile(spec(shape)); });
    EXPECT_NE(error.find(expected), std::string::npos) << error;
    EXPECT_NE(error.find("at saving_test.cpp:"), std::string::npos) << error;
    EXPECT_FALSE(graph.is_compiled());
    EXPECT_NE(test::error_of([&] { graph.save(saved); }), "no error");
    EXPECT_NE(test::error_of([&] { codegen::emit(graph, folder_ / "emitted"); }), "no error");
    EXPECT_EQ(ir::to_json(ir::read_graph(saved + "/graph.json")), before);
  }
  Widens wide;
  const std::string error = test::error_of([&] { wide.compile(spec({1, 3})); });
  EXPECT_NE(error.find("is too large: its bytes do not fit in 63 bits"), std::string::npos) << error;
  EXPECT_NE(error.find("at saving_test.cpp:"), std::string::npos) << error;

  for (const char* name : {"b", "B2", "_b", "batch_size", "int", "x"}) {
    SCOPED_TRACE(name);
    Doubles graph;
    graph.compile(spec({Dim(name, 5), 3}));
    EXPECT_TRUE(equal(graph(ones({2, 3})), full({2, 3}, 2.0)));
    graph.save(saved);
    EXPECT_EQ(
        ir::to_json(ir::read_graph(saved + "/graph.json")).find("\"" + std::string(name) + "\"") != std::string::npos,
        true);
    EXPECT_EQ(test::error_of([&] { codegen::emit(graph, folder_ / "emitted" / name); }), "no error");
  }
}

}  // namespace
}  // namespace graven
