// docs/library.md names every layer, function, optimizer, schedule and initialiser that the headers declare, and
// nothing else.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "tests/public_names.h"

namespace graven::tests {
namespace {

TEST(LibraryPage, NamesWhatTheHeadersDeclare) {
  const std::filesystem::path include = public_headers();
  const PublicNames declared_names = public_names();
  std::set<std::string> schedules = declared({include / "lr_scheduler.h"}, "^class ([A-Za-z]+) : public LRScheduler");
  schedules.insert("ReduceLROnPlateau");
  std::set<std::string> optimizers = declared({include / "optim.h"}, "^class ([A-Za-z]+) : public OptimizerOf");
  optimizers.insert("LBFGS");
  const struct {
    std::string section, row;
    std::set<std::string> expected;
  } cases[] = {
      {"Layers", "", declared_names.layers},
      {"Functions", "", declared_names.functions},
      {"Training", "Optimizers", optimizers},
      {"Training", "Learning-rate", schedules},
      {"Training", "Initialisers", declared({include / "init.h"}, "^Tensor ([a-z_]+)\\(")},
      {"Training", "Clipping", declared({include / "utils/clip_grad.h"}, "^\\w+ ([a-z_]+)\\(")},
  };
  for (const auto& c : cases) {
    EXPECT_GT(c.expected.size(), 1u) << c.section << " " << c.row;
    const std::set<std::string> found = names_on_library_page(c.section, c.row);
    for (const std::string& name : c.expected)
      EXPECT_TRUE(found.count(name)) << name << " is not in docs/library.md under " << c.section << " " << c.row;
    for (const std::string& name : found)
      EXPECT_TRUE(c.expected.count(name))
          << name << " in docs/library.md under " << c.section << " is declared nowhere";
  }
}

}  // namespace
}  // namespace graven::tests
