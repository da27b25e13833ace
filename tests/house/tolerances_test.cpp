// docs/testing.md shows the tolerances that the tests compare with.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/tolerances.h"

namespace graven::tests {
namespace {

std::string cell(double tolerance) {
  if (std::isnan(tolerance)) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%g", tolerance);
  return text;
}

TEST(Tolerances, AreThoseInTheDocumentation) {
  std::string table = "| | f64 | f32 | f16 | bf16 |\n|---|---|---|---|---|\n";
  for (const tolerance::Tolerance* t : tolerance::kAll)
    table += std::string("| ") + t->what + " | " + cell(t->f64) + " | " + cell(t->f32) + " | " + cell(t->f16) + " | " +
             cell(t->bf16) + " |\n";
  std::ifstream in(GRAVEN_SOURCE_DIR "/docs/testing.md", std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_NE(text.str().find("\n\n" + table), std::string::npos) << "docs/testing.md must hold\n\n" << table;
}

}  // namespace
}  // namespace graven::tests
