// What layers begin with: uniform between the bounds of PyTorch, whose layers are those.
#include <gtest/gtest.h>

#include <graven/graven.h>
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/call.h"

namespace graven {
namespace {

using Parameters = std::vector<std::pair<std::string, Tensor>>;

TEST(InitialValues, LieWithinTheirBoundsAndReachThem) {
  const auto of = [](const auto& layer) {
    Parameters all;
    for (const auto& [name, value] : layer.named_parameters()) all.emplace_back(name, value);
    return all;
  };
  const struct {
    const char* name;
    test::Call<Parameters()> parameters;
    double bound;
  } cases[] = {
      {"Linear", [&] { return of(nn::Linear(30, 200)); }, 1 / std::sqrt(30.0)},
      {"Conv1d", [&] { return of(nn::Conv1d(8, 200, 3)); }, 1 / std::sqrt(8.0 * 3)},
      {"Conv2d", [&] { return of(nn::Conv2d(8, 200, 3)); }, 1 / std::sqrt(8.0 * 9)},
      {"Conv2d of groups", [&] { return of(nn::Conv2d(8, 200, 3, {.groups = 4})); }, 1 / std::sqrt(2.0 * 9)},
      {"ConvTranspose2d", [&] { return of(nn::ConvTranspose2d(8, 200, 2)); }, 1 / std::sqrt(200.0 * 4)},
      {"Bilinear", [&] { return of(nn::Bilinear(40, 7, 200)); }, 1 / std::sqrt(40.0)},
      {"RNN", [&] { return of(nn::RNN(5, 100)); }, 1 / std::sqrt(100.0)},
      {"LSTM", [&] { return of(nn::LSTM(5, 100)); }, 1 / std::sqrt(100.0)},
      {"GRU", [&] { return of(nn::GRU(5, 100)); }, 1 / std::sqrt(100.0)},
  };
  manual_seed(11);
  for (const auto& c : cases) {
    const Parameters parameters = c.parameters();
    ASSERT_GE(parameters.size(), 2U) << c.name;
    for (const auto& [name, parameter] : parameters) {
      SCOPED_TRACE(std::string(c.name) + "." + name);
      const std::vector<float> values = parameter.detach().reshape({-1}).to_vector<float>();
      ASSERT_GE(values.size(), 100U);
      const auto [least, most] = std::minmax_element(values.begin(), values.end());
      EXPECT_GE(*least, -c.bound * (1 + 1e-6));
      EXPECT_LE(*most, c.bound * (1 + 1e-6));
      EXPECT_LT(*least, -0.9 * c.bound);
      EXPECT_GT(*most, 0.9 * c.bound);
    }
  }
}

}  // namespace
}  // namespace graven
