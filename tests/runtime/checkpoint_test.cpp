#include "runtime_min/checkpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <iostream>
#include <random>

#include "fixture.h"
#include "runtime_min/file.h"
#include "runtime_min/safetensors.h"
#include "runtime_min/sha256.h"

namespace graven::runtime {
namespace {

namespace fs = std::filesystem;

struct Model {
  float weight[3] = {};
  double momentum[2] = {};
  std::vector<Variable> weights() { return {{"w", DType::f32, {3}, weight}}; }
  std::vector<Variable> states() { return {{"w-momentum", DType::f64, {2}, momentum}}; }
};

TrainingState state_at(std::int64_t step) {
  TrainingState s;
  s.model = "mock";
  s.graph_hash = "123";
  s.computation = "abc";
  s.generator = "graven test";
  s.step = step;
  s.epoch = 2;
  s.position = 17;
  s.samples = 100;
  s.loss_sum = 0.1 + 0.2;
  s.seed = -5;
  s.batch = 4;
  s.shuffle = false;
  s.drop_last = true;
  s.lr = 1.0 / 3;
  s.warmup = 9;
  s.total_steps = 11;
  return s;
}

std::string save(const std::string& folder, std::int64_t step, std::int64_t keep = 0, std::int64_t best = -1) {
  Model model;
  model.weight[0] = static_cast<float>(step);
  model.momentum[1] = -static_cast<double>(step);
  TrainingState state = state_at(step);
  state.has_best = best >= 0;
  state.best_step = best;
  state.best_metric = 0.5;
  const auto weights = model.weights(), states = model.states();
  return CheckpointFolder(folder).save(state, weights, states, keep);
}

/// The step of the checkpoint that loads, and how many were passed over.
std::pair<std::int64_t, int> load(const std::string& folder, Model& model) {
  int passed = 0;
  const auto weights = model.weights(), states = model.states();
  const TrainingState state = load_newest(folder, "abc", weights, states, [&](const std::string&) { ++passed; });
  EXPECT_EQ(model.weight[0], static_cast<float>(state.step));
  EXPECT_EQ(model.momentum[1], -static_cast<double>(state.step));
  return {state.step, passed};
}

std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& path : list_checkpoints(folder)) steps.push_back(step_of(path));
  return steps;
}

TEST(Checkpoint, OfStepZeroIsOneToo) {
  const TemporaryFolder folder;
  for (const std::int64_t step : {0, 3}) save(folder / "out", step, 0, step);
  EXPECT_EQ(steps_in(folder / "out"), (std::vector<std::int64_t>{3, 0}));
}

TEST(Checkpoint, HoldsEverything) {
  const TemporaryFolder folder;
  const std::string out = folder / "a/b";
  EXPECT_EQ(save(out, 7, 0, 7), out + "/step-00000007");
  Model model;
  const auto weights = model.weights(), states = model.states();
  const TrainingState s = load_newest(out, "abc", weights, states, [](const std::string& text) { FAIL() << text; });
  const TrainingState expected = state_at(7);
  EXPECT_EQ(s.model, expected.model);
  EXPECT_EQ(s.generator, expected.generator);
  EXPECT_EQ(s.step, 7);
  EXPECT_EQ(s.epoch, 2);
  EXPECT_EQ(s.position, 17);
  EXPECT_EQ(s.samples, 100);
  EXPECT_EQ(s.loss_sum, expected.loss_sum);
  EXPECT_EQ(s.seed, -5);
  EXPECT_EQ(s.batch, 4);
  EXPECT_FALSE(s.shuffle);
  EXPECT_TRUE(s.drop_last);
  EXPECT_EQ(s.lr, 1.0 / 3);
  EXPECT_EQ(s.warmup, 9);
  EXPECT_EQ(s.total_steps, 11);
  EXPECT_TRUE(s.has_best);
  EXPECT_EQ(s.best_metric, 0.5);
  EXPECT_EQ(fs::read_symlink(out + "/latest"), "step-00000007");
  EXPECT_EQ(fs::read_symlink(out + "/best"), "step-00000007");
  for (const char* file : {"/weights.safetensors", "/optimizer.safetensors"})
    EXPECT_EQ(SafetensorsFile(out + "/latest" + file).metadata(),
              (std::vector<std::pair<std::string, std::string>>{
                  {"generator", "graven test"}, {"graph", "123"}, {"model", "mock"}, {"step", "7"}}));
}

TEST(Checkpoint, KeepsTheNewestAndTheBest) {
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  save(out, 1, 2, 1);
  for (std::int64_t step = 2; step <= 6; ++step) save(out, step, 2, 1);
  EXPECT_EQ(steps_in(out), (std::vector<std::int64_t>{6, 5, 1}));
  EXPECT_EQ(fs::read_symlink(out + "/best"), "step-00000001");
  EXPECT_EQ(fs::read_symlink(out + "/latest"), "step-00000006");
  save(out, 7, 0);
  EXPECT_EQ(steps_in(out).size(), 4U) << "0 keeps all";
  save(out, 3, 0);
  EXPECT_EQ(steps_in(out), (std::vector<std::int64_t>{3, 1})) << "what an abandoned run had ahead goes";
  for (std::int64_t step = 4; step <= 6; ++step) save(out, step, 0);
  save(out, 4, 2);
  EXPECT_EQ(steps_in(out), (std::vector<std::int64_t>{4, 3})) << "and is not counted among those that are kept";
}

TEST(Checkpoint, PassesOverDamage) {
  const struct {
    const char* note;
    void (*damage)(const std::string& path);
  } cases[] = {
      {"truncated weights", [](const std::string& p) { fs::resize_file(p + "/weights.safetensors", 20); }},
      {"empty optimizer state", [](const std::string& p) { fs::resize_file(p + "/optimizer.safetensors", 0); }},
      {"a flipped bit of the weights",
       [](const std::string& p) {
         std::string s = read_file(p + "/weights.safetensors");
         s.back() = static_cast<char>(s.back() ^ 1);
         write_file(p + "/weights.safetensors", s);
       }},
      {"no manifest", [](const std::string& p) { fs::remove(p + "/manifest.json"); }},
      {"empty manifest", [](const std::string& p) { fs::resize_file(p + "/manifest.json", 0); }},
      {"truncated manifest",
       [](const std::string& p) { fs::resize_file(p + "/manifest.json", fs::file_size(p + "/manifest.json") - 1); }},
      {"another step in the manifest",
       [](const std::string& p) {
         std::string s = read_file(p + "/manifest.json");
         s.replace(s.find("\"epoch\":2"), 9, "\"epoch\":3");
         write_file(p + "/manifest.json", s);
       }},
      {"no weights", [](const std::string& p) { fs::remove(p + "/weights.safetensors"); }},
      {"an empty folder", [](const std::string& p) { fs::remove_all(p), fs::create_directory(p); }},
      {"a folder in the place of the optimizer's state",
       [](const std::string& p) {
         fs::remove(p + "/optimizer.safetensors");
         fs::create_directory(p + "/optimizer.safetensors");
       }},
      {"a folder with a file in the place of the manifest",
       [](const std::string& p) {
         fs::remove(p + "/manifest.json");
         fs::create_directory(p + "/manifest.json");
         write_file(p + "/manifest.json/note", "x");
       }},
      {"a file in its place", [](const std::string& p) { fs::remove_all(p), write_file(p, "x"); }},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.note);
    const TemporaryFolder folder;
    const std::string out = folder / "out";
    save(out, 1);
    const std::string newest = save(out, 2);
    EXPECT_TRUE(is_whole_checkpoint(newest));
    c.damage(newest);
    EXPECT_FALSE(is_whole_checkpoint(newest));
    Model model;
    EXPECT_EQ(load(out, model), std::pair(std::int64_t{1}, 1));
    // Going on from the older one replaces the damaged one.
    save(out, 2);
    EXPECT_EQ(load(out, model), std::pair(std::int64_t{2}, 0));
  }
}

// Not by a file's mode: tests may run as root.
TEST(Checkpoint, ThatCannotBeOpenedIsNoDamage) {
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  save(out, 1);
  const std::string newest = save(out, 2);
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const int next = ::open("/dev/null", O_RDONLY);
  ::close(next);
  // The folder can be listed, and no file opened besides.
  const rlimit none{static_cast<rlim_t>(next), files.rlim_max};
  std::exception_ptr failure;  // looked at where sanitizers may open what they need for it
  Model model;
  const auto weights = model.weights(), states = model.states();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool whole = is_whole_checkpoint(newest);
  try {
    (void)load_checkpoint(newest, "abc", weights, states);
  } catch (...) {
    failure = std::current_exception();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_TRUE(whole) << "for those who can open it";
  ASSERT_TRUE(failure);
  std::string message;
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("manifest.json: cannot open: Too many open files"), std::string::npos) << message;
  EXPECT_EQ(message.find("damaged"), std::string::npos) << message;
}

TEST(Checkpoint, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  Model model;
  auto weights = model.weights(), states = model.states();
  const auto silent = [](const std::string&) {};
  EXPECT_ERROR(load_newest(out, "abc", weights, states, silent), "a checkpoint to resume from");
  save(out, 1);
  EXPECT_ERROR(load_newest(out, "xyz", weights, states, silent),
               "expected xyz, found \"abc\": the checkpoint is of \"mock\" as it was, or of another model: ");
  weights[0].shape = {1, 3};
  EXPECT_ERROR(load_newest(out, "abc", weights, states, silent), "none that is whole");
  EXPECT_EQ(model.weight[0], 0) << "nothing is written";
  weights[0].shape = {3};
  states[0].shape = {1, 2};
  EXPECT_ERROR(load_newest(out, "abc", weights, states, silent), "none that is whole");
  EXPECT_EQ(model.weight[0], 0) << "nor is anything where the optimizer's state does not fit";
  const CheckpointFolder first(out);
  EXPECT_ERROR(CheckpointFolder(out), "another run is training into this folder");
  write_file(folder / "file", "");
  EXPECT_ERROR(CheckpointFolder(folder / "file"), "expected a folder, found a file");
  EXPECT_ERROR(CheckpointFolder(folder / "file/x"), "cannot create the folder");
}

/// The manifest with one text for another, and a checksum that agrees.
void rewrite_manifest(const std::string& checkpoint, const std::string& text, const std::string& instead) {
  std::string manifest = read_file(checkpoint + "/manifest.json");
  manifest.replace(manifest.find(text), text.size(), instead);
  const std::string body = manifest.substr(0, manifest.rfind(",\n\"manifest_sha256\":\""));
  write_file(checkpoint + "/manifest.json", body + ",\n\"manifest_sha256\":\"" + sha256(as_span(body)) + "\"}\n");
}

// A manifest that agrees with its checksum, and says what cannot be.
TEST(Checkpoint, RefusesManifestsThatMakeNoSense) {
  const struct {
    const char *text, *instead, *error;
  } cases[] = {
      {"\"position\":17", "\"position\":101", "a position of at most 100, found 101"},
      {"\"seed\":-5", "\"warmup\":9", "expected a key \"seed\", found none"},
      {"\"version\":1", "\"version\":0", "expected version 1, found 0"},
      {"\"ranks\":1", "\"ranks\":2", "expected 1 rank, found 2"},
      {"\"epoch\":2", "\"epoch\":-2", "expected a number from 0 to 9007199254740992, found -2"},
      {"\"epoch\":2", "\"epoch\":9223372036854775807", "to 9007199254740992, found 9223372036854775807"},
      {"\"step\":1", "\"step\":9007199254740993", "to 9007199254740992, found 9007199254740993"},
      {"\"warmup\"", "\"wormup\"", "expected a key of version 1, found \"wormup\""},
      {"optimizer.safetensors", "optimizer.safetensorz", "expected \"optimizer.safetensors\", found none of that name"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.error);
    const TemporaryFolder folder;
    const std::string path = save(folder / "out", 1);
    rewrite_manifest(path, c.text, c.instead);
    EXPECT_FALSE(is_whole_checkpoint(path));
    Model model;
    const auto weights = model.weights(), states = model.states();
    EXPECT_ERROR(load_checkpoint(path, "abc", weights, states), c.error);
  }
}

TEST(Checkpoint, OfANewerFormatIsNotPassedOver) {
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  save(out, 1);
  const std::string newest = save(out, 2);
  rewrite_manifest(newest, "\"version\":1", "\"version\":2");
  rewrite_manifest(newest, "\"epoch\":2", "\"era\":\"iron\"");
  rewrite_manifest(newest, "\"format\"", "\"alloys\":[1,{\"tin\":2}],\"format\"");
  Model model;
  const auto weights = model.weights(), states = model.states();
  const auto silent = [](const std::string& text) { ADD_FAILURE() << text; };
  const char* error =
      "manifest.json: expected version 1 of the checkpoint's format, found 2: it was written by a program of a newer "
      "generator";
  EXPECT_ERROR(load_newest(out, "abc", weights, states, silent), error);
  EXPECT_ERROR(load_checkpoint(newest, "abc", weights, states), error);
  EXPECT_TRUE(is_whole_checkpoint(newest)) << "so that it is not lost by going on from an older one";
  EXPECT_EQ(model.weight[0], 0);
}

TEST(Checkpoint, AFolderCopiedWithItsLinksFollowedIsGoneOnWith) {
  const TemporaryFolder folder;
  const std::string out = folder / "out", copy = folder / "copy";
  save(out, 1, 0, 1);
  save(out, 2, 0, 1);
  fs::copy(out, copy, fs::copy_options::recursive);
  ASSERT_FALSE(fs::is_symlink(copy + "/latest"));
  save(copy, 3, 0, 1);
  EXPECT_EQ(fs::read_symlink(copy + "/latest"), "step-00000003");
  EXPECT_EQ(fs::read_symlink(copy + "/best"), "step-00000001");
  EXPECT_EQ(steps_in(copy), (std::vector<std::int64_t>{3, 2, 1}));
}

TEST(Checkpoint, WhatAUserPutsAmongThemStays) {
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  std::vector<std::string> told;
  CheckpointFolder checkpoints(out, [&](const std::string& text) { told.push_back(text); });
  Model model;
  const auto weights = model.weights(), states = model.states();
  const auto save_step = [&](std::int64_t step) { checkpoints.save(state_at(step), weights, states, 2); };
  save_step(1);
  write_file(out + "/step-00000001/figures/loss.txt", "a plot");
  write_file(out + "/step-00000001/weights.safetensors.mine", "a copy");
  save_step(2);
  write_file(out + "/step-00000002/notes.txt", "notes");
  save_step(2);  // as when the evaluation was still to come
  EXPECT_EQ(read_file(out + "/step-00000002/notes.txt"), "notes");
  EXPECT_TRUE(is_whole_checkpoint(out + "/step-00000002"));
  EXPECT_TRUE(told.empty());
  save_step(3);
  EXPECT_EQ(told.size(), 1U) << "when it is removed, not when it is found again";
  for (std::int64_t step = 4; step <= 6; ++step) save_step(step);
  EXPECT_EQ(read_file(out + "/step-00000001/figures/loss.txt"), "a plot");
  EXPECT_EQ(read_file(out + "/step-00000001/weights.safetensors.mine"), "a copy");
  EXPECT_EQ(list_directory(out + "/step-00000001").size(), 2U);
  EXPECT_EQ(list_directory(out + "/step-00000002"), std::vector<std::string>{"notes.txt"});
  EXPECT_EQ(steps_in(out), (std::vector<std::int64_t>{6, 5, 2, 1})) << "two whole ones, and the rests";
  EXPECT_EQ(told, (std::vector<std::string>{
                      out + "/step-00000001: is removed but for the files in it that are not the checkpoint's",
                      out + "/step-00000002: is removed but for the files in it that are not the checkpoint's"}));
  told.clear();
  // What bears the name of a link and is none.
  fs::remove(out + "/latest");
  write_file(out + "/latest", "my notes");
  write_file(out + "/best/mine.txt", "mine");
  TrainingState best = state_at(7);
  best.has_best = true;
  best.best_step = 7;
  for (int i = 0; i < 2; ++i) checkpoints.save(best, weights, states, 2);
  EXPECT_EQ(read_file(out + "/latest"), "my notes");
  EXPECT_EQ(read_file(out + "/best/mine.txt"), "mine");
  EXPECT_EQ(told, (std::vector<std::string>{
                      out + "/latest: expected a link to a checkpoint, found something else, which is left alone",
                      out + "/best: expected a link to a checkpoint, found something else, which is left alone"}));
  told.clear();
  // What cannot be removed ends no training.
  fs::remove(out + "/step-00000006/weights.safetensors");
  fs::create_directory(out + "/step-00000006/weights.safetensors");
  write_file(out + "/step-00000006/weights.safetensors/mine.txt", "mine");
  save_step(8);
  save_step(9);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("step-00000006: is removed but for the files in it that are not the checkpoint's"),
            std::string::npos)
      << told[0];
  EXPECT_EQ(read_file(out + "/step-00000006/weights.safetensors/mine.txt"), "mine");
  fs::remove_all(out + "/step-00000006");
  checkpoints.clear();
  EXPECT_EQ(read_file(out + "/latest"), "my notes");
  EXPECT_EQ(read_file(out + "/step-00000002/notes.txt"), "notes");
}

TEST(Checkpoint, ClearsWhatAKilledRunLeft) {
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  save(out, 1);
  write_file(out + "/.tmp-step-00000002/weights.safetensors", "half");
  write_file(out + "/.tmp-latest", "");
  Model model;
  EXPECT_EQ(load(out, model).first, 1);
  CheckpointFolder again(out);
  EXPECT_FALSE(fs::exists(out + "/.tmp-step-00000002"));
  EXPECT_FALSE(fs::exists(out + "/.tmp-latest"));
  again.clear();
  EXPECT_TRUE(steps_in(out).empty());
  EXPECT_FALSE(fs::is_symlink(out + "/latest"));
}

TEST(Checkpoint, AFailedWriteLeavesTheOldOne) {
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  save(out, 1);
  // A file-size limit fails the write as a full disk does; in a child, because the limit is the process's.
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {64, 64};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      save(out, 2);
      ::_exit(1);
    } catch (const Error& error) {
      ::_exit(std::string(error.what()).find("cannot write") != std::string::npos ? 0 : 2);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Model model;
  EXPECT_EQ(load(out, model), std::pair(std::int64_t{1}, 0));
  for (const auto& entry : fs::directory_iterator(out))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp")) << entry.path();
}

TEST(Checkpoint, AFolderThatTakesNothingKeepsTheOldOne) {
  if (::geteuid() == 0) GTEST_SKIP() << "root writes into read-only folders";
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  save(out, 1);
  fs::permissions(out, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_ERROR(save(out, 3), "cannot create");
  fs::permissions(out, fs::perms::owner_all);
  Model model;
  EXPECT_EQ(load(out, model).first, 1);
}

// A process that saves again and again is killed at hundreds of moments; whatever it left, a checkpoint loads, and
// steps never go back.
TEST(Checkpoint, SurvivesKill) {
  constexpr int kKills = 250;
  const TemporaryFolder folder;
  const std::string out = folder / "out";
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t step = 1; step <= 4; ++step) save(out, step, 2);
  const auto saving =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count() / 4;
  std::int64_t last = 4;
  int kills = 0, midway = 0;
  std::mt19937 random(20240117);
  for (; kills < kKills; ++kills) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (std::int64_t step = last + 1;; ++step) {
          save(out, step, 2, step - 1);
          save(out, step, 2, step);  // the same step again, as after an epoch's evaluation
        }
      } catch (const std::exception&) {
        ::_exit(1);
      }
    }
    // Within the first three times that it saves: at any moment of any of them, however slow the disk.
    ::usleep(static_cast<useconds_t>(random() % static_cast<std::uint64_t>(3 * saving + 1)));
    if (kills == kKills - 1) {  // at least one has saved something in the end
      for (int wait = 0; wait < 2000 && steps_in(out)[0] == 4; ++wait) ::usleep(10000);
    }
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "saving failed";
    for (const auto& entry : fs::directory_iterator(out)) {
      if (!entry.path().filename().string().starts_with(".tmp")) continue;
      ++midway;
      break;
    }
    Model model;
    const auto [step, passed] = load(out, model);
    EXPECT_EQ(passed, 0) << "nothing half-written is under a checkpoint's name";
    EXPECT_GE(step, last);
    last = step;
  }
  std::cout << kills << " kills, " << midway << " of them while a checkpoint was written, step " << last << "\n";
  EXPECT_EQ(kills, kKills);
  EXPECT_GT(midway, 0);
  EXPECT_GT(last, 4) << "the child had time to save";
}

}  // namespace
}  // namespace graven::runtime
