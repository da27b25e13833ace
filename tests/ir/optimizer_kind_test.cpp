#include "ir/optimizer_kind.h"

#include <gtest/gtest.h>

#include <limits>

#include "ir/diagnostic.h"

namespace graven::ir {
namespace {

TEST(OptimizerKind, OptionsAreFiniteSoThatWhatIsSavedCanBeRead) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  int tried = 0;
  for (const OptimizerKind& kind : optimizer_kinds())
    for (const AttributeSpec& a : get_op(kind.op).attributes)
      if (a.type == AttributeType::number)
        for (const double value : {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
          EXPECT_THROW(check_options(kind.name, {{"lr", 0.1}, {std::string(a.name), value}}), UserError)
              << kind.name << ' ' << a.name << ' ' << value;
          ++tried;
        }
  EXPECT_GE(tried, 100);
}

}  // namespace
}  // namespace graven::ir
