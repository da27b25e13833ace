#include "graven/functional/windows.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "frontend/functional/batched.h"
#include "frontend/functional/windows.h"
#include "graven/functional.h"

namespace graven {

using detail::batched;
using detail::fail;
using detail::fixed_size;

Tensor detail::placed(const Tensor& x, std::int64_t dim, std::int64_t stride, std::int64_t offset, std::int64_t size,
                      Location where) {
  const std::int64_t count = fixed_size(x, dim, "fold", where);
  // Pads of the dimensions from the last one to `dim`.
  const auto padded = [&](const Tensor& t, std::int64_t d, std::int64_t before, std::int64_t behind) {
    Sizes pads(static_cast<std::size_t>(2 * (t.dim() - d)), 0);
    pads[pads.size() - 2] = before;
    pads[pads.size() - 1] = behind;
    return before == 0 && behind == 0 ? t : pad(Operand(t, where), pads);
  };
  Tensor apart = x;
  if (stride > 1 && count > 1) {
    std::vector<Dim> shape = x.shape().dims();
    shape[static_cast<std::size_t>(dim)] = Dim(count * stride);
    // [count] -> [count, 1] -> [count, stride] -> [count * stride], without the zeros behind the last one.
    apart = padded(x.unsqueeze(dim + 1, where), dim + 1, 0, stride - 1).reshape(Shape(std::move(shape)), where);
    apart = apart.slice(dim, 0, (count - 1) * stride + 1, 1, where);
  }
  return padded(apart, dim, offset, size - offset - apart.size(dim));
}

namespace {

/// How many windows there are along each dimension.
Size2 windows_in(Size2 size, Size2 kernel, const WindowOptions& o, const char* function, Location where) {
  const auto along = [&](std::int64_t n, std::int64_t k, std::int64_t dilation, std::int64_t padding,
                         std::int64_t stride) {
    if (k < 1 || dilation < 1 || padding < 0 || stride < 1)
      fail(function, "kernel_size, dilation and stride must be positive, padding not negative", where);
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();  // so that their products are numbers
    if (std::max({n, k, dilation, padding, stride}) > kMost)
      fail(function, fmt::format("sizes above {} are not supported", kMost), where);
    const std::int64_t room = n + 2 * padding - dilation * (k - 1) - 1;
    if (n < 1 || room < 0)
      fail(function,
           fmt::format("a window of {} with dilation {} does not fit into {} with padding {}", k, dilation, n, padding),
           where);
    return room / stride + 1;
  };
  return {along(size.height, kernel.height, o.dilation.height, o.padding.height, o.stride.height),
          along(size.width, kernel.width, o.dilation.width, o.padding.width, o.stride.width)};
}

}  // namespace

Tensor unfold(const Operand& x, Size2 kernel_size, const WindowOptions& o) {
  const Location at = x.where().in("unfold");
  return batched(x, 4, "unfold", [&](const Tensor& images) {
    const Size2 windows = windows_in({fixed_size(images, 2, "unfold", at), fixed_size(images, 3, "unfold", at)},
                                     kernel_size, o, "unfold", at);
    const Tensor around =
        pad(Operand(images, at), {o.padding.width, o.padding.width, o.padding.height, o.padding.height});
    std::vector<Tensor> taps;
    for (std::int64_t i = 0; i < kernel_size.height; ++i)
      for (std::int64_t j = 0; j < kernel_size.width; ++j) {
        const std::int64_t top = i * o.dilation.height, left = j * o.dilation.width;
        taps.push_back(around.slice(2, top, top + (windows.height - 1) * o.stride.height + 1, o.stride.height, at)
                           .slice(3, left, left + (windows.width - 1) * o.stride.width + 1, o.stride.width, at));
      }
    const Dim channels = images.shape()[1] * Dim(kernel_size.height * kernel_size.width);
    return stack(taps, 2, at).reshape({images.shape()[0], channels, windows.height * windows.width}, at);
  });
}

Tensor fold(const Operand& x, Size2 output_size, Size2 kernel_size, const WindowOptions& o) {
  const Location at = x.where().in("fold");
  return batched(x, 3, "fold", [&](const Tensor& columns) {
    const Size2 windows = windows_in(output_size, kernel_size, o, "fold", at);
    const std::int64_t taps = kernel_size.height * kernel_size.width;
    const std::int64_t rows = fixed_size(columns, 1, "fold", at);
    if (rows % taps != 0 || fixed_size(columns, 2, "fold", at) != windows.height * windows.width)
      fail("fold",
           fmt::format("expects [batch, channels * {}, {}] for windows of {}x{} in {}x{}, got {}", taps,
                       windows.height * windows.width, kernel_size.height, kernel_size.width, output_size.height,
                       output_size.width, columns.describe()),
           at);
    const Tensor apart = columns.reshape({columns.shape()[0], rows / taps, taps, windows.height, windows.width}, at);
    Tensor sum;
    for (std::int64_t i = 0; i < kernel_size.height; ++i)
      for (std::int64_t j = 0; j < kernel_size.width; ++j) {
        Tensor tap = apart.select(2, i * kernel_size.width + j, at);
        tap = detail::placed(tap, 2, o.stride.height, i * o.dilation.height - o.padding.height, output_size.height, at);
        tap = detail::placed(tap, 3, o.stride.width, j * o.dilation.width - o.padding.width, output_size.width, at);
        sum = sum.defined() ? add(Operand(sum, at), Operand(tap, at)) : tap;
      }
    return sum;
  });
}

Tensor Tensor::unfold(std::int64_t d, std::int64_t size, std::int64_t step, Location given) const {
  const Location where = given.in("unfold");
  const detail::At at(where);
  const Tensor x = dim() == 0 ? reshape({1}, where) : *this;
  const std::int64_t axis = detail::normalize_dim(d, x.dim(), "unfold", where),
                     n = detail::fixed_size(x, axis, "unfold", where);
  if (size < 0 || size > n)
    fail("unfold", fmt::format("the windows' size must lie in [0, {}], got {}", n, size), where);
  if (step < 1) fail("unfold", fmt::format("the step must be positive, got {}", step), where);
  const std::int64_t windows = (n - size) / step + 1;
  const Tensor start = graven::mul(at(detail::counted(windows, x, where)), Operand(step, where)).unsqueeze(1, where);
  const Tensor each = at.add(start, detail::counted(size, x, where)).reshape({windows * size}, where);
  const Tensor picked = graven::unflatten(at(graven::index_select(at(x), axis, each)), axis, {windows, size});
  const Tensor result = graven::movedim(at(picked), axis + 1, -1);
  return dim() == 0 ? result.reshape({size}, where) : result;
}

}  // namespace graven
