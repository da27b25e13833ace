// Data files, pictures, weights, manifests and command lines, damaged: bytes changed, cut out, repeated, exchanged for
// others that the format knows. A reader takes them or refuses them with an error that names the file; with the
// sanitizers on, this finds reads beyond the end. And checkpoints: a folder of them of which files are damaged goes on
// from the newest whole one.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "runtime_min/checkpoint.h"
#include "runtime_min/error.h"
#include "tests/attack/attack.h"
#include "tests/fuzz/targets.h"

namespace graven::attack {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// Some of the bytes are others, or missing, or there twice.
std::string damaged(std::string s, Attack& attack) {
  static const std::string tokens[] = {"\"",    "{",
                                       "[",     "]",
                                       "}",     ",",
                                       ":",     "-",
                                       "9",     "0",
                                       "(",     ")",
                                       "\\u",   "18446744073709551615",
                                       "\n--",  "9223372036854775807",
                                       "1e999", "\xFF\xFF\xFF\xFF"};
  for (std::size_t n = 1 + attack.below(3); n > 0 && !s.empty(); --n) {
    const std::size_t at = attack.below(s.size());
    switch (attack.below(7)) {
      case 0:
        s[at] = static_cast<char>(attack.below(256));
        break;
      case 1:
        s[at] = static_cast<char>(s[at] ^ (1 << attack.below(8)));
        break;
      case 2:
        s.erase(at, attack.below(8) + 1);
        break;
      case 3:
        s.insert(at, s.substr(attack.below(s.size()), attack.below(16)));
        break;
      case 4:
        s.resize(at);
        break;
      case 5:
        std::rotate(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(at),
                    s.begin() + static_cast<std::ptrdiff_t>(std::min(s.size(), at + 8)));
        break;
      default:
        s.replace(at, 1, attack.choose(tokens));
    }
  }
  return s;
}

/// A broken promise ends the process, which then says in what.
char being_tried[200];
void say_what_was_tried(int signal) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, being_tried, std::strlen(being_tried));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

TEST(Data, DamagedFilesAreTakenOrRefused) {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, say_what_was_tried);
  std::map<std::string, std::vector<std::string>> corpus;
  for (const fuzz::Target& target : fuzz::kReaders)
    for (const auto& entry : fs::directory_iterator(fs::path(GRAVEN_SOURCE_DIR) / "tests/fuzz/corpus" / target.name))
      corpus[target.name].push_back(read(entry.path()));
  for (auto& [name, texts] : corpus) std::sort(texts.begin(), texts.end());
  Attack attack("data files", 3000);
  std::map<std::string, int> refused;
  while (attack.next()) {
    const fuzz::Target& target = attack.choose(fuzz::kReaders);
    const std::string bytes = damaged(attack.choose(corpus.at(target.name)), attack);
    std::snprintf(being_tried, sizeof being_tried, "%s, %s\n", attack.where().c_str(), target.name);
    const bool taken = target.run({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
    attack.count(std::string(target.name) + (taken ? " taken" : " refused"));
    refused[target.name] += taken ? 0 : 1;
  }
  for (const auto& [name, n] : refused) EXPECT_GT(n, attack.number() / 300) << name << ": the damage does harm";
}

struct Model {
  float weight[3] = {};
  double momentum[2] = {};
  std::vector<runtime::Variable> weights() { return {{"w", runtime::DType::f32, {3}, weight}}; }
  std::vector<runtime::Variable> states() { return {{"w-momentum", runtime::DType::f64, {2}, momentum}}; }
};

void save(const std::string& folder, std::int64_t step, std::int64_t keep) {
  Model model;
  model.weight[0] = static_cast<float>(step);
  model.momentum[1] = -static_cast<double>(step);
  runtime::TrainingState state;
  state.graph_hash = "123";
  state.computation = "abc";
  state.step = step;
  state.samples = 100;
  state.batch = 4;
  runtime::CheckpointFolder(folder).save(state, model.weights(), model.states(), keep);
}

TEST(Data, OfDamagedCheckpointsTheNewestWholeOneGoesOn) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "attack/checkpoints";
  Attack attack("checkpoints", 25);
  while (attack.next()) {
    SCOPED_TRACE(attack.where());
    fs::remove_all(folder);
    std::int64_t whole = 0;
    const auto steps = static_cast<std::int64_t>(1 + attack.below(4));
    for (std::int64_t step = 1; step <= steps; ++step) save(folder.string(), step, 0);
    for (std::int64_t step = 1; step <= steps; ++step) {
      const fs::path checkpoint = folder / ("step-0000000" + std::to_string(step));
      const char* const names[] = {"weights.safetensors", "optimizer.safetensors", "manifest.json"};
      const fs::path file = checkpoint / attack.choose(names);
      const std::string before = read(file);
      switch (attack.below(6)) {
        case 0:
          write(file, damaged(before, attack));
          attack.count("files damaged");
          break;
        case 1:
          fs::remove(file);
          attack.count("files removed");
          break;
        case 2:
          fs::remove(file);
          fs::create_directory(file);
          attack.count("files made folders");
          break;
        case 3:  // another checkpoint's
          if (step > 1 && fs::is_regular_file(folder / "step-00000001" / file.filename()))
            fs::copy_file(folder / "step-00000001" / file.filename(), file, fs::copy_options::overwrite_existing);
          attack.count("files exchanged");
          break;
        default:
          break;
      }
      if (fs::is_regular_file(file) && read(file) == before) whole = step;
    }
    Model model;
    try {
      const runtime::TrainingState state =
          runtime::load_newest(folder.string(), "abc", model.weights(), model.states(), [&](const std::string& text) {
            EXPECT_FALSE(text.empty());
            attack.count("passed over, with a warning");
          });
      EXPECT_EQ(state.step, whole);
      EXPECT_EQ(model.weight[0], static_cast<float>(whole));
      EXPECT_EQ(model.momentum[1], -static_cast<double>(whole));
      attack.count("gone on");
    } catch (const runtime::Error& e) {
      EXPECT_EQ(whole, 0) << e.what();
      EXPECT_EQ(model.weight[0], 0) << "all or nothing";
      attack.count("refused: none is whole");
    }
    // What stands there hinders no further one.
    save(folder.string(), 9, 2);
    const runtime::TrainingState state =
        runtime::load_newest(folder.string(), "abc", model.weights(), model.states(), [](const std::string&) {});
    EXPECT_EQ(state.step, 9);
  }
}

}  // namespace
}  // namespace graven::attack
