// Saving, interrupted: a process that saves again and again is killed at random moments; what it left is the old file or the new one, whole.
#include <graven/graven.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <random>
#include <vector>

#include "ir/json.h"

namespace graven {
namespace {

namespace fs = std::filesystem;

/// Two tensors, every element of both the same number.
nn::StateDict state_of(float value) {
  return {{"a", from_data(std::vector<float>(5000, value), {5000})}, {"b", from_data(std::vector<float>(300000, value), {300, 1000})}};
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

/// Runs `body` for ever in another process and kills it after so many microseconds.
void run_and_kill(const std::function<void()>& body, useconds_t microseconds) {
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

class Saving : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(GRAVEN_BINARY_DIR) / "errors_saving" / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  fs::path folder_;
};

TEST_F(Saving, KilledHundredsOfTimesTheOldOrTheNewLoads) {
  const unsigned seed = 7;
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const std::string path = (folder_ / "model.safetensors").string();
  const nn::StateDict first = state_of(1), second = state_of(2);
  nn::save(first, path);
  int seen[3] = {};
  for (int round = 0; round < 200; ++round) {
    run_and_kill(
        [&] {
          nn::save(round % 2 ? first : second, path);  // a slow machine does not come to the other one
          nn::save(round % 2 ? second : first, path);
        },
        random() % 8000);
    const float value = value_in(path);
    ASSERT_TRUE(value == 1 || value == 2) << "round " << round;
    ++seen[static_cast<int>(value)];
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path() != path) fs::remove(entry.path());  // what the killed process was writing
  }
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
  std::mt19937 random(11);
  for (int round = 0; round < 100; ++round) {
    run_and_kill([&] { graph.save(path); }, random() % 6000);
    EXPECT_EQ(ir::to_json(ir::read_graph(path + "/graph.json")), text) << "round " << round;
    EXPECT_EQ(nn::load(path + "/weights.safetensors").size(), 2U) << "round " << round;
  }
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

/// Every number of the graph that loads is the one that it was saved with; or an error names the two files. Whether it loaded.
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
  std::mt19937 random(13);
  int whole = 0, refused = 0;
  for (int round = 0; round < 200; ++round) {
    run_and_kill(
        [&] {
          two.save(path);
          one.save(path);
        },
        random() % 12000);
    ++(is_whole(path) ? whole : refused);
  }
  std::cout << whole << " whole, " << refused << " refused\n";
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
  for (const char* file : files) fs::copy_file(folder("two") + "/" + file, folder("one") + "/" + file, fs::copy_options::overwrite_existing);
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
  std::mt19937 random(17);
  for (int round = 0; round < 50; ++round) {
    run_and_kill(
        [&] {
          for (const double value : {2, 1}) {
            graph.fill(value);
            graph.save(path);
          }
        },
        random() % 12000);
    const nn::SavedGraph saved(path);
    const float first = saved.state_dict().at(0).second.to_vector<float>().at(0);
    EXPECT_TRUE(first == 1 || first == 2);
    for (const auto& [name, t] : saved.state_dict())
      for (const float x : t.to_vector<float>()) ASSERT_EQ(x, first) << name;
  }
}

TEST_F(Saving, AFullDiskKeepsTheOldFile) {
  const std::string path = (folder_ / "model.safetensors").string();
  nn::save(state_of(1), path);
  // A limit on the size of files fails a write as a full disk does; in a process of its own, because the limit is the process's.
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

}  // namespace
}  // namespace graven
