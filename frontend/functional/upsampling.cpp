#include "graven/functional/upsampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "frontend/dispatch.h"

namespace graven {

using detail::fail;

namespace {

struct Mode {
  const char* name;
  const char* one_dimension;  ///< of the operator `resample`
  std::int64_t rank;          ///< of the tensor; 0: any
  bool aligns;
};
constexpr Mode kModes[] = {{"nearest", "nearest", 0, false}, {"nearest-exact", "nearest-exact", 0, false},
                           {"linear", "linear", 3, true},    {"bilinear", "linear", 4, true},
                           {"trilinear", "linear", 5, true}, {"bicubic", "cubic", 4, true},
                           {"area", "area", 0, false}};

}  // namespace

Tensor interpolate(const Operand& x, const InterpolateOptions& options) {
  Tensor t = x.tensor();
  const Location where = x.where();
  const auto rank = t.dim();
  if (rank < 3 || rank > 5) fail("interpolate", "expects [batch, channels, ...] of 3 to 5 dimensions, got " + t.describe(), where);
  const auto* mode = std::find_if(std::begin(kModes), std::end(kModes), [&](const Mode& m) { return options.mode == m.name; });
  if (mode == std::end(kModes))
    fail("interpolate", "mode must be nearest, nearest-exact, linear, bilinear, bicubic, trilinear or area, got '" + options.mode + "'", where);
  if (mode->rank != 0 && mode->rank != rank)
    fail("interpolate", fmt::format("mode '{}' is for tensors of {} dimensions, got {}", options.mode, mode->rank, t.describe()), where);
  if (options.align_corners && !mode->aligns)
    fail("interpolate", "align_corners is for the linear and cubic modes, not '" + options.mode + "'", where);
  if (options.size.empty() == options.scale_factor.empty()) fail("interpolate", "give either size or scale_factor", where);
  const auto count = static_cast<std::size_t>(rank - 2), given = std::max(options.size.size(), options.scale_factor.size());
  if (given != 1 && given != count) fail("interpolate", fmt::format("expects 1 or {} numbers for {}, got {}", count, t.describe(), given), where);

  Sizes sizes(count);
  std::vector<double> steps(count, 0);  // 0: the quotient of the sizes
  std::vector<double> growth(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t from = t.size(static_cast<std::int64_t>(i) + 2);
    if (!options.size.empty()) {
      sizes[i] = options.size[given == 1 ? 0 : i];
    } else {
      const double factor = options.scale_factor[given == 1 ? 0 : i], size = std::floor(static_cast<double>(from) * factor);
      if (!(factor > 0) || !(size < 0x1p30)) fail("interpolate", fmt::format("scale_factor must be positive and finite, got {}", factor), where);
      sizes[i] = static_cast<std::int64_t>(size);
      if (!options.recompute_scale_factor) steps[i] = 1 / factor;
    }
    if (sizes[i] < 1) fail("interpolate", fmt::format("dimension {} of {} would have no elements", i + 2, t.describe()), where);
    growth[i] = static_cast<double>(sizes[i]) / static_cast<double>(std::max<std::int64_t>(from, 1));
  }
  // One dimension at a time; what shrinks first leaves less to do.
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return growth[a] < growth[b]; });
  const bool align = options.align_corners.value_or(false);
  for (const std::size_t i : order) {
    const auto dim = static_cast<std::int64_t>(i) + 2;
    if (sizes[i] == t.size(dim) && (steps[i] == 0 || steps[i] == 1 || align || options.mode == "area")) continue;
    t = detail::apply("resample", {t},
                      {{"dim", dim}, {"size", sizes[i]}, {"mode", std::string(mode->one_dimension)}, {"align_corners", align}, {"scale", steps[i]}},
                      where);
  }
  return t;
}

}  // namespace graven
