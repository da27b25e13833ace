// Versions of one project, opened, called, and closed in one process in any order: each computes what it computes
// alone, and what is closed is gone.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/attack/attack.h"
#include "tests/emit/versions.h"

namespace graven::attack {
namespace {

namespace fs = std::filesystem;
using codegen::Version;

/// Libraries of versions, and what each computes alone; made as they are asked for.
class Versions {
 public:
  explicit Versions(fs::path folder) : folder_(std::move(folder)), host_(codegen::build_host_of_versions(folder_)) {}

  const std::string& host() const { return host_; }
  std::vector<Version> any(Attack& attack, std::size_t possible) {
    std::vector<Version> chosen;
    for (std::size_t n = std::min(possible, 2 + attack.below(2)); n > 0; --n)
      chosen.push_back(get(attack, attack.below(possible)));
    // The same library twice is one library.
    for (std::size_t i = 1; i < chosen.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (chosen[i].library == chosen[j].library) return any(attack, possible);
    return chosen;
  }

 private:
  const Version& get(Attack& attack, std::size_t number) {
    const bool training = number % 4 == 3;
    const fs::path project = folder_ / std::to_string(number);
    Version& version = made_[number];
    if (!version.library.empty()) return version;
    codegen::emit_version(static_cast<std::int64_t>(2 + number % 7), training, project);
    codegen::ByHand how{GRAVEN_CXX, codegen::shares_nothing(GRAVEN_CXX_IS_CLANG ? "clang" : "gnu")};
    how.flags.emplace_back(number % 3 == 2 ? "-O2" : "-O0");
    version.library = codegen::library_by_hand(how, project, "version.so");
    version.weights = (project / "weights.safetensors").string();
    version.alone = codegen::alone(host_, version);
    attack.count(training ? "trainings compiled" : "inferences compiled");
    return version;
  }

  fs::path folder_;
  std::string host_;
  std::map<std::size_t, Version> made_;
};

TEST(Versions, ComeAndGoInOneProcess) {
  const fs::path folder = fs::path(GRAVEN_BINARY_DIR) / "attack/versions";
  fs::remove_all(folder);
  Versions versions(folder);
  Attack attack("versions in one process", 25);
  const std::size_t possible = attack.is_long() ? 14 : 2;
  while (attack.next()) {
    SCOPED_TRACE(attack.where());
    const std::vector<Version> chosen = versions.any(attack, possible);
    std::vector<bool> open(chosen.size());
    std::vector<std::string> steps;
    for (std::size_t n = 4 + attack.below(20); n > 0; --n) {
      const std::size_t which = attack.below(chosen.size());
      const std::string number = std::to_string(which);
      if (!open[which]) {
        steps.push_back((attack.below(3) == 0 ? "g" : "l") + number);
        open[which] = true;
      } else if (const std::size_t what = attack.below(8); what < 3) {
        steps.push_back("r" + number);
      } else if (what < 4) {
        steps.push_back("e" + number);
      } else if (what < 5) {
        steps.emplace_back("t");
      } else {
        steps.push_back("u" + number);
        open[which] = false;
      }
    }
    for (const std::string& step : steps)
      attack.count(step[0] == 'l' || step[0] == 'g' ? "opened"
                   : step[0] == 'r'                 ? "called"
                   : step[0] == 't'                 ? "called all at once"
                   : step[0] == 'e'                 ? "made to report an error"
                                                    : "closed");
    EXPECT_EQ(codegen::fault_of_host(versions.host(), chosen, steps), "");
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace graven::attack
