#include "graven/functional/pooling.h"

#include <limits>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/functional/batched.h"
#include "graven/functional.h"
#include "ir/ops.h"

namespace graven {

using detail::apply;
using detail::batched;
using detail::fail;
using detail::fixed_size;
using detail::unshared;

namespace {
Sizes pair(Size2 s) { return {s.height, s.width}; }
}  // namespace

Tensor max_pool2d(const Operand& x, Size2 kernel_size, const MaxPool2dOptions& o) {
  return batched(x, 4, "max_pool2d", [&](const Tensor& images) {
    return apply("max_pool2d", {images},
                 {{"kernel_size", pair(kernel_size)},
                  {"stride", pair(o.stride.value_or(kernel_size))},
                  {"padding", pair(o.padding)},
                  {"dilation", pair(o.dilation)},
                  {"ceil_mode", o.ceil_mode}},
                 x.where());
  });
}

namespace {

/// f on volumes [n, c, d, h, w] as images [n, c * d, h, w], then g on what comes out as images [n, c, d, h * w].
template <class F, class G>
Tensor planes_then_depth(const Tensor& volumes, const char* function, Location at, F&& f, G&& g) {
  const Shape& s = volumes.shape();
  (void)fixed_size(volumes, 2, function, at);
  const Tensor flat = f(volumes.reshape({s[0], s[1] * s[2], s[3], s[4]}, at));
  const Dim height = flat.shape()[2], width = flat.shape()[3];
  const Tensor deep = g(flat.reshape({s[0], s[1], s[2], height * width}, at));
  return deep.reshape({s[0], s[1], deep.shape()[2], height, width}, at);
}

/// The largest of each window of an adaptive pooling along dimension 2 or 3 of images. Equal ones: the first gets the
/// gradient.
Tensor adaptive_max_along(const Tensor& images, std::int64_t dim, std::int64_t out, const char* function, Location at) {
  const std::int64_t in = fixed_size(images, dim, function, at);
  if (out < 1 || in < 1)
    fail(function, fmt::format("cannot make {} elements of dimension {} of {}", out, dim, images.describe()), at);
  if (in == out) return images;
  const auto window = [dim](std::int64_t n) { return dim == 2 ? Size2(n, 1) : Size2(1, n); };
  if (in % out == 0) return max_pool2d(Operand(images, at), window(in / out));
  // Of more windows than elements many are the same: each is pooled once, and stands where it belongs.
  const Tensor places = zeros({out}, DType::i64);
  std::int64_t* const place = places.data<std::int64_t>(at);
  std::vector<Tensor> parts;
  std::int64_t last_begin = -1, last_end = -1;
  for (std::int64_t i = 0; i < out; ++i) {
    const std::int64_t begin = i * in / out, end = ((i + 1) * in + out - 1) / out;
    if (begin != last_begin || end != last_end)
      parts.push_back(max_pool2d(Operand(images.slice(dim, begin, end, 1, at), at), window(end - begin)));
    place[i] = static_cast<std::int64_t>(parts.size()) - 1;
    last_begin = begin;
    last_end = end;
  }
  const Tensor distinct = cat(parts, dim, at);
  return static_cast<std::int64_t>(parts.size()) == out
             ? distinct
             : index_select(Operand(distinct, at), dim, detail::beside(places, distinct));
}

Tensor adaptive_mean_along(const Tensor& t, std::int64_t dim, std::int64_t out, const char* function, Location at) {
  const Dim& in = t.shape()[static_cast<std::size_t>(dim)];
  if (out < 1 || in.minimum() < 1)
    fail(function, fmt::format("cannot make {} elements of dimension {} of {}", out, dim, t.describe()), at);
  if (in == Dim(out)) return t;
  return apply("resample", {t}, {{"dim", dim}, {"size", Shape{out}}, {"mode", std::string("area")}}, at);
}

/// Averages over whole windows times their size, over another divisor.
Tensor divided_by(const Tensor& averages, std::int64_t window, std::optional<std::int64_t> divisor, bool ceil_mode,
                  const char* function, Location at) {
  if (!divisor) return averages;
  if (*divisor == 0) fail(function, "divisor_override must not be 0", at);
  if (ceil_mode) fail(function, "divisor_override with ceil_mode is not supported", at);
  return mul(Operand(averages, at), Operand(static_cast<double>(window) / static_cast<double>(*divisor), at));
}

}  // namespace

Tensor avg_pool2d(const Operand& x, Size2 kernel_size, const AvgPool2dOptions& o) {
  return batched(x, 4, "avg_pool2d", [&](const Tensor& images) {
    const Size2 stride = o.stride.value_or(kernel_size);
    const Tensor y = apply("avg_pool2d", {images},
                           {{"kernel_size", Sizes{kernel_size.height, kernel_size.width}},
                            {"stride", Sizes{stride.height, stride.width}},
                            {"padding", Sizes{o.padding.height, o.padding.width}},
                            {"ceil_mode", o.ceil_mode},
                            {"count_include_pad", o.count_include_pad || o.divisor_override.has_value()}},
                           x.where());
    return divided_by(y, kernel_size.height * kernel_size.width, o.divisor_override, o.ceil_mode, "avg_pool2d",
                      x.where());
  });
}

Tensor adaptive_avg_pool2d(const Operand& x, Size2 output_size) {
  const Location at = x.where().in("adaptive_avg_pool2d");
  return batched(x, 4, "adaptive_avg_pool2d", [&](const Tensor& images) {
    const Dim &height = images.shape()[2], &width = images.shape()[3];
    if (height.is_static() && width.is_static()) {
      const bool divides = output_size.height >= 1 && output_size.width >= 1 && height.value() >= 1 &&
                           width.value() >= 1 && height.value() % output_size.height == 0 &&
                           width.value() % output_size.width == 0;
      if (divides)
        return avg_pool2d(Operand(images, at),
                          Size2(height.value() / output_size.height, width.value() / output_size.width), {});
    } else if (output_size.height == 1 && output_size.width == 1 && height.minimum() >= 1 && width.minimum() >= 1) {
      return mean(Operand(images, at), {2, 3}, true);
    }
    const Tensor rows = adaptive_mean_along(images, 2, output_size.height, "adaptive_avg_pool2d", at);
    return adaptive_mean_along(rows, 3, output_size.width, "adaptive_avg_pool2d", at);
  });
}

Tensor adaptive_avg_pool1d(const Operand& x, std::int64_t output_size) {
  const Location at = x.where().in("adaptive_avg_pool1d");
  return batched(x, 3, "adaptive_avg_pool1d", [&](const Tensor& signals) {
    return unshared(adaptive_mean_along(signals, 2, output_size, "adaptive_avg_pool1d", at), signals, at);
  });
}

Tensor adaptive_avg_pool3d(const Operand& x, Size3 output_size) {
  const Location at = x.where().in("adaptive_avg_pool3d");
  return batched(x, 5, "adaptive_avg_pool3d", [&](const Tensor& volumes) {
    Tensor t = adaptive_mean_along(volumes, 2, output_size.depth, "adaptive_avg_pool3d", at);
    t = adaptive_mean_along(t, 3, output_size.height, "adaptive_avg_pool3d", at);
    return unshared(adaptive_mean_along(t, 4, output_size.width, "adaptive_avg_pool3d", at), volumes, at);
  });
}

Tensor adaptive_max_pool1d(const Operand& x, std::int64_t output_size) {
  const Location at = x.where().in("adaptive_max_pool1d");
  return batched(x, 3, "adaptive_max_pool1d", [&](const Tensor& signals) {
    return adaptive_max_along(signals.unsqueeze(2, at), 3, output_size, "adaptive_max_pool1d", at).squeeze(2, at);
  });
}

Tensor adaptive_max_pool2d(const Operand& x, Size2 output_size) {
  const Location at = x.where().in("adaptive_max_pool2d");
  return batched(x, 4, "adaptive_max_pool2d", [&](const Tensor& images) {
    const std::int64_t height = fixed_size(images, 2, "adaptive_max_pool2d", at),
                       width = fixed_size(images, 3, "adaptive_max_pool2d", at);
    if (output_size.height >= 1 && output_size.width >= 1 && height >= 1 && width >= 1 &&
        height % output_size.height == 0 && width % output_size.width == 0 &&
        (height / output_size.height) * (width / output_size.width) <= 256)
      return max_pool2d(Operand(images, at), Size2(height / output_size.height, width / output_size.width));
    // Along the width first: of equal ones in a window the first row's counts.
    return adaptive_max_along(adaptive_max_along(images, 3, output_size.width, "adaptive_max_pool2d", at), 2,
                              output_size.height, "adaptive_max_pool2d", at);
  });
}

Tensor adaptive_max_pool3d(const Operand& x, Size3 output_size) {
  const Location at = x.where().in("adaptive_max_pool3d");
  return batched(x, 5, "adaptive_max_pool3d", [&](const Tensor& volumes) {
    return planes_then_depth(
        volumes, "adaptive_max_pool3d", at,
        [&](const Tensor& t) {
          return adaptive_max_pool2d(Operand(t, at), Size2(output_size.height, output_size.width));
        },
        [&](const Tensor& t) { return adaptive_max_along(t, 2, output_size.depth, "adaptive_max_pool3d", at); });
  });
}

Tensor max_pool1d(const Operand& x, std::int64_t kernel_size, const MaxPool1dOptions& o) {
  const Location at = x.where().in("max_pool1d");
  return batched(x, 3, "max_pool1d", [&](const Tensor& signals) {
    return max_pool2d(Operand(signals.unsqueeze(2, at), at), {1, kernel_size},
                      {.stride = Size2(1, o.stride.value_or(kernel_size)),
                       .padding = {0, o.padding},
                       .dilation = {1, o.dilation},
                       .ceil_mode = o.ceil_mode})
        .squeeze(2, at);
  });
}

Tensor max_pool3d(const Operand& x, Size3 kernel_size, const MaxPool3dOptions& o) {
  const Location at = x.where().in("max_pool3d");
  const Size3 stride = o.stride.value_or(kernel_size);
  return batched(x, 5, "max_pool3d", [&](const Tensor& volumes) {
    return planes_then_depth(
        volumes, "max_pool3d", at,
        [&](const Tensor& t) {
          return max_pool2d(Operand(t, at), {kernel_size.height, kernel_size.width},
                            {.stride = Size2(stride.height, stride.width),
                             .padding = {o.padding.height, o.padding.width},
                             .dilation = {o.dilation.height, o.dilation.width},
                             .ceil_mode = o.ceil_mode});
        },
        [&](const Tensor& t) {
          return max_pool2d(Operand(t, at), {kernel_size.depth, 1},
                            {.stride = Size2(stride.depth, 1),
                             .padding = {o.padding.depth, 0},
                             .dilation = {o.dilation.depth, 1},
                             .ceil_mode = o.ceil_mode});
        });
  });
}

Tensor avg_pool1d(const Operand& x, std::int64_t kernel_size, const AvgPool1dOptions& o) {
  const Location at = x.where().in("avg_pool1d");
  return batched(x, 3, "avg_pool1d", [&](const Tensor& signals) {
    return avg_pool2d(Operand(signals.unsqueeze(2, at), at), {1, kernel_size},
                      {.stride = Size2(1, o.stride.value_or(kernel_size)),
                       .padding = {0, o.padding},
                       .ceil_mode = o.ceil_mode,
                       .count_include_pad = o.count_include_pad})
        .squeeze(2, at);
  });
}

Tensor avg_pool3d(const Operand& x, Size3 kernel_size, const AvgPool3dOptions& o) {
  const Location at = x.where().in("avg_pool3d");
  const Size3 stride = o.stride.value_or(kernel_size);
  const bool include = o.count_include_pad || o.divisor_override.has_value();
  return batched(x, 5, "avg_pool3d", [&](const Tensor& volumes) {
    const Tensor y = planes_then_depth(
        volumes, "avg_pool3d", at,
        [&](const Tensor& t) {
          return avg_pool2d(Operand(t, at), {kernel_size.height, kernel_size.width},
                            {.stride = Size2(stride.height, stride.width),
                             .padding = {o.padding.height, o.padding.width},
                             .ceil_mode = o.ceil_mode,
                             .count_include_pad = include});
        },
        [&](const Tensor& t) {
          return avg_pool2d(Operand(t, at), {kernel_size.depth, 1},
                            {.stride = Size2(stride.depth, 1),
                             .padding = {o.padding.depth, 0},
                             .ceil_mode = o.ceil_mode,
                             .count_include_pad = include});
        });
    return divided_by(y, kernel_size.depth * kernel_size.height * kernel_size.width, o.divisor_override, o.ceil_mode,
                      "avg_pool3d", at);
  });
}

namespace {
Tensor root(const Tensor& powers, double norm_type, std::int64_t window, Location at) {
  // A root's slope at 0 is infinite; as in PyTorch a window of zeros has no gradient.
  const Operand total(mul(Operand(powers, at), Operand(static_cast<double>(window), at)), at);
  const Operand zero(eq(total, Operand(0, at)), at);
  const Tensor safe = where(zero, Operand(1, at), total);
  const double at_zero = norm_type > 0 ? 0 : std::numeric_limits<double>::infinity();
  return where(zero, Operand(at_zero, at), Operand(pow(Operand(safe, at), Operand(1 / norm_type, at)), at));
}
void require_norm(double norm_type, const char* function, Location at) {
  if (!(norm_type != 0)) fail(function, "norm_type must not be 0", at);
}
}  // namespace

Tensor lp_pool1d(const Operand& x, double norm_type, std::int64_t kernel_size, std::optional<std::int64_t> stride,
                 bool ceil_mode) {
  const Location at = x.where().in("lp_pool1d");
  require_norm(norm_type, "lp_pool1d", at);
  const Tensor powers = pow(Operand(x.tensor(), at), Operand(norm_type, at));
  return root(avg_pool1d(Operand(powers, at), kernel_size, {.stride = stride, .ceil_mode = ceil_mode}), norm_type,
              kernel_size, at);
}

Tensor lp_pool2d(const Operand& x, double norm_type, Size2 kernel_size, std::optional<Size2> stride, bool ceil_mode) {
  const Location at = x.where().in("lp_pool2d");
  require_norm(norm_type, "lp_pool2d", at);
  const Tensor powers = pow(Operand(x.tensor(), at), Operand(norm_type, at));
  return root(avg_pool2d(Operand(powers, at), kernel_size, {.stride = stride, .ceil_mode = ceil_mode}), norm_type,
              kernel_size.height * kernel_size.width, at);
}

std::tuple<Tensor, Tensor> max_pool2d_with_indices(const Operand& x, Size2 kernel_size, const MaxPool2dOptions& o) {
  const Location at = x.where().in("max_pool2d_with_indices");
  const bool single = x.tensor().dim() == 3;
  if (!single && x.tensor().dim() != 4)
    fail("max_pool2d_with_indices", "expects a tensor of 3 or 4 dimensions, got " + x.tensor().describe(), at);
  const Tensor images = single ? x.tensor().unsqueeze(0, at) : x.tensor();
  const Size2 stride = o.stride.value_or(kernel_size);
  const std::vector<Tensor> pooled = detail::apply(ir::kMaxPool2d, {images},
                                                   {{"kernel_size", Sizes{kernel_size.height, kernel_size.width}},
                                                    {"stride", Sizes{stride.height, stride.width}},
                                                    {"padding", Sizes{o.padding.height, o.padding.width}},
                                                    {"dilation", Sizes{o.dilation.height, o.dilation.width}},
                                                    {"ceil_mode", o.ceil_mode}},
                                                   at);
  // The kernel's indices are places in the window: what each place adds to the position of the window's corner.
  const std::int64_t width = fixed_size(images, 3, "max_pool2d_with_indices", at);
  const std::int64_t rows = fixed_size(pooled[0], 2, "max_pool2d_with_indices", at),
                     columns = fixed_size(pooled[0], 3, "max_pool2d_with_indices", at);
  std::vector<std::int64_t> places, corners;
  for (std::int64_t i = 0; i < kernel_size.height; ++i)
    for (std::int64_t j = 0; j < kernel_size.width; ++j)
      places.push_back(i * o.dilation.height * width + j * o.dilation.width);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      corners.push_back((i * stride.height - o.padding.height) * width + j * stride.width - o.padding.width);
  const Tensor place = pooled[1].to(DType::i64, at).reshape({-1}, at);
  const auto table = [&](const std::vector<std::int64_t>& numbers, const Shape& shape) {
    return Operand(detail::beside(from_data(numbers, shape), place), at);
  };
  const Tensor added = index_select(table(places, {static_cast<std::int64_t>(places.size())}), 0, place);
  const Tensor indices = add(Operand(added.reshape(pooled[0].shape(), at), at), table(corners, {rows, columns}));
  return single ? std::tuple(pooled[0].squeeze(0, at), indices.squeeze(0, at)) : std::tuple(pooled[0], indices);
}

Tensor max_unpool2d(const Operand& x, const Tensor& indices, Size2 kernel_size, const MaxUnpool2dOptions& o) {
  const Location at = x.where().in("max_unpool2d");
  const Tensor& t = x.tensor();
  const Size2 stride = o.stride.value_or(kernel_size);
  if (t.dim() != 3 && t.dim() != 4)
    fail("max_unpool2d", "expects a tensor of 3 or 4 dimensions, got " + t.describe(), at);
  detail::require_defined(indices, "max_unpool2d", at, "indices");
  if (indices.dtype() != DType::i64 || indices.shape() != t.shape())
    fail("max_unpool2d", "the indices must be " + ir::describe(DType::i64, t.shape()) + ", got " + indices.describe(),
         at);
  const std::int64_t height = fixed_size(t, -2, "max_unpool2d", at), width = fixed_size(t, -1, "max_unpool2d", at);
  const Size2 size =
      o.output_size.value_or(Size2((height - 1) * stride.height - 2 * o.padding.height + kernel_size.height,
                                   (width - 1) * stride.width - 2 * o.padding.width + kernel_size.width));
  if (size.height < 1 || size.width < 1)
    fail("max_unpool2d", fmt::format("the result would be {}x{}", size.height, size.width), at);
  std::vector<Dim> planes(t.shape().begin(), t.shape().end() - 2), shape = planes, flat = planes;
  planes.emplace_back(t.shape().back(1) * t.shape().back(0));
  flat.emplace_back(size.height * size.width);
  for (const std::int64_t n : {size.height, size.width}) shape.emplace_back(n);
  const Shape lines(planes);
  const Tensor nothing = detail::filled(Shape(flat), 0, t.dtype(), t, at);
  const Tensor placed =
      scatter(Operand(nothing, at), -1, indices.reshape(lines, at), Operand(t.reshape(lines, at), at));
  return placed.reshape(Shape(std::move(shape)), at);
}

}  // namespace graven
