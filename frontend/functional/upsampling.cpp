#include "graven/functional/upsampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "graven/functional.h"

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

/// `from` times the factor, rounded down. Of a symbol where an expression says that: a whole number of halves, quarters
/// and so on.
Dim scaled(const Dim& from, double factor, Location where) {
  if (from.is_static()) return static_cast<std::int64_t>(std::floor(static_cast<double>(from.value()) * factor));
  for (std::int64_t parts = 1; parts <= 1024; parts *= 2)
    if (const double whole = factor * static_cast<double>(parts); whole == std::floor(whole) && whole < 0x1p30)
      return floor_divide(from * Dim(static_cast<std::int64_t>(whole)), parts);
  fail("interpolate",
       fmt::format("the scale_factor of {} must be a whole number of halves, quarters, ..., 1024ths, got {}",
                   from.to_string(), factor),
       where);
}

}  // namespace

Tensor interpolate(const Operand& x, const InterpolateOptions& options) {
  Tensor t = x.tensor();
  const Location where = x.where().in("interpolate");
  const auto rank = t.dim();
  if (rank < 3 || rank > 5)
    fail("interpolate", "expects [batch, channels, ...] of 3 to 5 dimensions, got " + t.describe(), where);
  const auto* mode =
      std::find_if(std::begin(kModes), std::end(kModes), [&](const Mode& m) { return options.mode == m.name; });
  if (mode == std::end(kModes))
    fail(
        "interpolate",
        "mode must be nearest, nearest-exact, linear, bilinear, bicubic, trilinear or area, got '" + options.mode + "'",
        where);
  if (mode->rank != 0 && mode->rank != rank)
    fail("interpolate",
         fmt::format("mode '{}' is for tensors of {} dimensions, got {}", options.mode, mode->rank, t.describe()),
         where);
  if (options.align_corners && !mode->aligns)
    fail("interpolate", "align_corners is for the linear and cubic modes, not '" + options.mode + "'", where);
  if (options.size.empty() == options.scale_factor.empty())
    fail("interpolate", "give either size or scale_factor", where);
  const auto count = static_cast<std::size_t>(rank - 2),
             given = std::max(options.size.size(), options.scale_factor.size());
  if (given != 1 && given != count)
    fail("interpolate", fmt::format("expects 1 or {} numbers for {}, got {}", count, t.describe(), given), where);

  std::vector<Dim> sizes(count);
  std::vector<double> steps(count, 0);  // 0: the quotient of the sizes
  std::vector<double> growth(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Dim& from = t.shape()[i + 2];
    if (!options.size.empty()) {
      sizes[i] = options.size[given == 1 ? 0 : i];
    } else {
      const double factor = options.scale_factor[given == 1 ? 0 : i];
      if (!(factor > 0) || !(std::floor(static_cast<double>(from.maximum()) * factor) < 0x1p30))
        fail("interpolate", fmt::format("scale_factor must be positive and finite, got {}", factor), where);
      sizes[i] = scaled(from, factor, where);
      if (!options.recompute_scale_factor) steps[i] = 1 / factor;
    }
    if (sizes[i].minimum() < 1)
      fail("interpolate", fmt::format("dimension {} of {} would have no elements", i + 2, t.describe()), where);
    growth[i] =
        static_cast<double>(sizes[i].maximum()) / static_cast<double>(std::max<std::int64_t>(from.maximum(), 1));
  }
  // One dimension at a time; what shrinks first leaves less to do.
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return growth[a] < growth[b]; });
  const bool align = options.align_corners.value_or(false);
  for (const std::size_t i : order) {
    if (sizes[i] == t.shape()[i + 2] && (steps[i] == 0 || steps[i] == 1 || align || options.mode == "area")) continue;
    t = detail::apply("resample", {t},
                      {{"dim", static_cast<std::int64_t>(i) + 2},
                       {"size", Shape{sizes[i]}},
                       {"mode", std::string(mode->one_dimension)},
                       {"align_corners", align},
                       {"scale", steps[i]}},
                      where);
  }
  return detail::unshared(t, x.tensor(), where);
}

// ---- at any places --------------------------------------------------------------------------------------------------

namespace {

/// Where a coordinate from -1 to 1 is in a line of `size` pixels, counted from the centre of the first.
Tensor pixel_of(const Tensor& x, std::int64_t size, const GridSampleOptions& o, Location where) {
  const detail::At at(where);
  const auto n = static_cast<double>(size);
  Tensor pixel = o.align_corners ? at.mul(at.add(x, 1), (n - 1) / 2) : at.mul(at.sub(at.mul(at.add(x, 1), n), 1), 0.5);
  if (o.padding_mode == "zeros") return pixel;
  if (o.padding_mode == "reflection") {
    // Back and forth between the centres, or the outer borders, of the first and the last pixel.
    const double low = o.align_corners ? 0 : -0.5, span = o.align_corners ? n - 1 : n;
    if (span == 0) return at.mul(pixel, 0);
    const Tensor distance = abs(at(at.sub(pixel, low)));
    const Tensor rest = fmod(at(distance), Operand(span, where));
    const Tensor back =
        ne(at(fmod(at(floor(at(at.div(distance.detach(where), span)))), Operand(2, where))), Operand(0, where));
    pixel = at.add(graven::where(at(back), at(at.sub(span, rest)), at(rest)), low);
  }
  return hardtanh(at(graven::where(at(isnan(at(pixel))), Operand(0, where), at(pixel))), 0, n - 1);
}

}  // namespace

Tensor grid_sample(const Operand& x, const Tensor& grid, const GridSampleOptions& o) {
  const Location where = x.where().in("grid_sample");
  const detail::At at(where);
  const Tensor& image = x.tensor();
  constexpr const char* kName = "grid_sample";
  if (o.mode != "bilinear" && o.mode != "nearest")
    fail(kName, "mode must be bilinear or nearest, got '" + o.mode + "'", where);
  if (o.padding_mode != "zeros" && o.padding_mode != "border" && o.padding_mode != "reflection")
    fail(kName, "padding_mode must be zeros, border or reflection, got '" + o.padding_mode + "'", where);
  if (image.dim() != 4 || !ir::is_floating(image.dtype()))
    fail(kName, "expects floating-point images [batch, channels, height, width], got " + image.describe(), where);
  detail::require_defined(grid, kName, where, "grid");
  if (grid.dim() != 4 || grid.dtype() != image.dtype() || grid.shape()[0] != image.shape()[0] ||
      grid.shape()[3] != Dim(2))
    fail(kName,
         "expects a grid " + std::string(ir::name(image.dtype())) + "[" + image.shape()[0].to_string() +
             ",height,width,2] for " + image.describe() + ", got " + grid.describe(),
         where);
  const std::int64_t height = detail::fixed_size(image, 2, kName, where),
                     width = detail::fixed_size(image, 3, kName, where);
  if (height < 1 || width < 1) fail(kName, "the images have no pixels: " + image.describe(), where);
  const Dim batch = image.shape()[0], channels = image.shape()[1];
  const Dim out_height = grid.shape()[1], out_width = grid.shape()[2], count = out_height * out_width;
  const Tensor pixels = image.reshape({batch, channels, height * width}, where),
               places = grid.reshape({batch, 1, count, 2}, where);
  const Tensor px = pixel_of(places.select(3, 0, where), width, o, where),
               py = pixel_of(places.select(3, 1, where), height, o, where);

  // Pixels (x, y), and 0 where there is none.
  const auto last = [](std::int64_t n) { return static_cast<double>(n - 1); };
  const auto inside = [&](const Tensor& p, std::int64_t n) {
    return logical_and(at(ge(at(p), Operand(0, where))), at(le(at(p), Operand(last(n), where))));
  };
  const auto position = [&](const Tensor& p, std::int64_t n) {
    return graven::where(at(inside(p, n)), at(p), Operand(0, where)).to(DType::i64, where);
  };
  const auto tap = [&](const Tensor& cx, const Tensor& cy, const Tensor& there) {
    const Tensor flat = at.add(mul(at(position(cy, height)), Operand(width, where)), position(cx, width));
    const Tensor index = flat.reshape({batch, 1, count}, where).expand({batch, channels, count}, where);
    const Tensor value = detail::apply("gather", {pixels, index}, {{"dim", std::int64_t{2}}}, where);
    return graven::where(at(there), at(value), Operand(0, where));
  };
  const auto result = [&](const Tensor& y) { return y.reshape({batch, channels, out_height, out_width}, where); };
  if (o.mode == "nearest") {
    const Tensor cx = round(at(px.detach(where))), cy = round(at(py.detach(where)));
    return result(tap(cx, cy, logical_and(at(inside(cx, width)), at(inside(cy, height)))));
  }
  const Tensor left = floor(at(px.detach(where))), top = floor(at(py.detach(where)));
  const Tensor right = at.add(left, 1), bottom = at.add(top, 1);
  const Tensor to_right = at.sub(px, left), to_left = at.sub(right, px), to_bottom = at.sub(py, top),
               to_top = at.sub(bottom, py);
  Tensor sum;
  for (const auto& [cy, wy] : {std::pair(top, to_top), std::pair(bottom, to_bottom)})
    for (const auto& [cx, wx] : {std::pair(left, to_left), std::pair(right, to_right)}) {
      const Tensor there = logical_and(at(inside(cx, width)), at(inside(cy, height)));
      const Tensor part = at.mul(tap(cx, cy, there), at.mul(wx, wy));
      sum = sum.defined() ? at.add(sum, part) : part;
    }
  return result(sum);
}

Tensor affine_grid(const Operand& x, const Shape& size, bool align_corners) {
  const Location where = x.where().in("affine_grid");
  const detail::At at(where);
  const Tensor& theta = x.tensor();
  constexpr const char* kName = "affine_grid";
  if (size.rank() != 4 || !size[2].is_static() || !size[3].is_static() || size[2].value() < 1 || size[3].value() < 1)
    fail(kName,
         "the size must be [batch, channels, height, width] of a known height and width, got " + size.to_string(),
         where);
  const Dim batch = size[0];
  const std::int64_t height = size[2].value(), width = size[3].value();
  if (theta.dim() != 3 || !ir::is_floating(theta.dtype()) || theta.shape() != Shape{batch, 2, 3})
    fail(kName, "expects floating-point maps [" + batch.to_string() + ",2,3], got " + theta.describe(), where);
  const auto line = [&](std::int64_t n) {
    const double end = n == 1 ? 0 : align_corners ? 1 : 1 - 1 / static_cast<double>(n);
    return detail::beside(linspace(-end, end, n, theta.dtype()), theta);
  };
  const Tensor xs = line(width).reshape({1, 1, width}, where), ys = line(height).reshape({1, height, 1}, where);
  std::vector<Tensor> coordinates;
  for (std::int64_t i = 0; i < 2; ++i) {
    const auto entry = [&](std::int64_t j) {
      return theta.select(1, i, where).select(1, j, where).reshape({batch, 1, 1}, where);
    };
    coordinates.push_back(at.add(at.add(at.mul(xs, entry(0)), at.mul(ys, entry(1))), entry(2)));
  }
  return stack(coordinates, 3, where);
}

}  // namespace graven
