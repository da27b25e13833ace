#include "graven/functional/shapes.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "frontend/functional/windows.h"
#include "frontend/trace.h"
#include "graven/functional.h"

namespace graven {

using detail::apply;
using detail::fail;
using detail::fixed_size;
using detail::normalize_dim;
using detail::unshared;

Tensor cat(const std::vector<Tensor>& tensors, std::int64_t dim, Location where) {
  if (tensors.empty()) fail("cat", "needs at least one tensor", where);
  detail::require_defined(tensors, "cat", where);
  DType dtype = tensors[0].dtype();
  for (const Tensor& t : tensors) dtype = ir::promote(dtype, t.dtype());
  std::vector<Tensor> same;
  for (const Tensor& t : tensors) same.push_back(t.to(dtype, where));
  return apply("cat", std::move(same), {{"dim", detail::normalize_dim(dim, tensors[0].dim(), "cat", where)}}, where);
}

Tensor stack(const std::vector<Tensor>& tensors, std::int64_t dim, Location where) {
  if (tensors.empty()) fail("stack", "needs at least one tensor", where);
  detail::require_defined(tensors, "stack", where);
  std::vector<Tensor> wide;
  for (const Tensor& t : tensors) {
    if (t.shape() != tensors[0].shape())
      fail("stack", "the tensors must have one shape, got " + tensors[0].describe() + " and " + t.describe(), where);
    wide.push_back(t.unsqueeze(detail::normalize_dim(dim, t.dim() + 1, "stack", where), where));
  }
  return cat(wide, detail::normalize_dim(dim, tensors[0].dim() + 1, "stack", where), where);
}

Tensor squeeze(const Operand& x) { return x.tensor().squeeze(x.where()); }
Tensor squeeze(const Operand& x, std::int64_t dim) { return x.tensor().squeeze(dim, x.where()); }
Tensor unsqueeze(const Operand& x, std::int64_t dim) { return x.tensor().unsqueeze(dim, x.where()); }
Tensor narrow(const Operand& x, std::int64_t dim, std::int64_t start, std::int64_t length) {
  return x.tensor().narrow(dim, start, length, x.where());
}
Tensor select(const Operand& x, std::int64_t dim, std::int64_t index) {
  return x.tensor().select(dim, index, x.where());
}
Tensor swapaxes(const Operand& x, std::int64_t dim0, std::int64_t dim1) {
  return x.tensor().transpose(dim0, dim1, x.where());
}
Tensor broadcast_to(const Operand& x, const Shape& shape) {
  return x.tensor().expand(shape, x.where().in("broadcast_to"));
}
Tensor size_of(const Operand& x, std::int64_t dim) {
  const Location at = x.where().in("size_of");
  const Tensor& t = x.tensor();
  if (t.dim() == 0) fail("size_of", "a scalar has no dimensions", at);
  return detail::size_value(t.shape()[static_cast<std::size_t>(normalize_dim(dim, t.dim(), "size_of", at))], DType::i64,
                            "size_of", at);
}
std::vector<Tensor> split(const Operand& x, std::int64_t split_size, std::int64_t dim) {
  return x.tensor().split(split_size, dim, x.where());
}
std::vector<Tensor> chunk(const Operand& x, std::int64_t chunks, std::int64_t dim) {
  return x.tensor().chunk(chunks, dim, x.where());
}

Tensor unflatten(const Operand& x, std::int64_t dim, const Shape& sizes) {
  const Tensor& t = x.tensor();
  if (t.dim() == 0) fail("unflatten", "a scalar has no dimensions", x.where());
  const auto at = static_cast<std::size_t>(normalize_dim(dim, t.dim(), "unflatten", x.where()));
  std::vector<Dim> dims = sizes.dims();
  Dim known = 1;
  std::ptrdiff_t open = -1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != Dim(-1)) {
      known = known * dims[i];
      continue;
    }
    if (open >= 0) fail("unflatten", "only one size can be inferred, got " + sizes.to_string(), x.where());
    open = static_cast<std::ptrdiff_t>(i);
  }
  const Dim& whole = t.shape()[at];
  if (const std::optional<Dim> rest = open >= 0 ? divide(whole, known) : std::nullopt) {
    dims[static_cast<std::size_t>(open)] = *rest;
    known = whole;
  }
  if (known != whole || dims.empty())
    fail("unflatten", fmt::format("{} does not make up dimension {} of {}", sizes.to_string(), at, t.describe()),
         x.where());
  std::vector<Dim> shape = t.shape().dims();
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(at));
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at), dims.begin(), dims.end());
  return t.reshape(Shape(std::move(shape)), x.where());
}

Tensor movedim(const Operand& x, const OneOrMore& source, const OneOrMore& destination) {
  const std::int64_t rank = x.tensor().dim();
  if (source.size() != destination.size())
    fail("movedim", "source and destination must have as many dimensions", x.where());
  Sizes order(static_cast<std::size_t>(rank), -1);
  std::vector<bool> moved(static_cast<std::size_t>(rank), false);
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::int64_t from = normalize_dim(source[i], rank, "movedim", x.where()),
                       to = normalize_dim(destination[i], rank, "movedim", x.where());
    if (rank == 0) continue;
    if (moved[static_cast<std::size_t>(from)] || order[static_cast<std::size_t>(to)] >= 0)
      fail("movedim", "a dimension is named twice", x.where());
    moved[static_cast<std::size_t>(from)] = true;
    order[static_cast<std::size_t>(to)] = from;
  }
  std::size_t next = 0;
  for (std::int64_t& place : order) {
    if (place >= 0) continue;
    while (moved[next]) ++next;
    place = static_cast<std::int64_t>(next++);
  }
  return x.tensor().permute(order, x.where());
}

namespace {
constexpr std::string_view kFixedParts =
    "how many parts there are must not depend on the symbol: narrow() and select() take some, chunk() equal parts of a "
    "multiple of a symbol";
}  // namespace

std::vector<Tensor> split(const Operand& x, const Sizes& split_sizes, std::int64_t dim) {
  const Tensor& t = x.tensor();
  if (t.dim() == 0) fail("split", "a scalar has no dimensions", x.where());
  const std::int64_t axis = normalize_dim(dim, t.dim(), "split", x.where());
  const std::int64_t total = fixed_size(t, axis, "split", x.where(), kFixedParts);
  std::int64_t sum = 0;
  for (const std::int64_t s : split_sizes) {
    if (s < 0 || s > total - sum) sum = total + 1;
    if (sum > total) break;
    sum += s;
  }
  if (sum != total)
    fail("split", fmt::format("the sizes do not add up to the {} of dimension {} of {}", total, axis, t.describe()),
         x.where());
  std::vector<Tensor> parts;
  std::int64_t start = 0;
  for (const std::int64_t s : split_sizes) {
    parts.push_back(t.slice(axis, start, start + s, 1, x.where()));
    start += s;
  }
  return parts;
}

std::vector<Tensor> unbind(const Operand& x, std::int64_t dim) {
  const Tensor& t = x.tensor();
  if (t.dim() == 0) fail("unbind", "a scalar has no dimensions", x.where());
  const std::int64_t axis = normalize_dim(dim, t.dim(), "unbind", x.where());
  std::vector<Tensor> parts;
  const std::int64_t count = fixed_size(t, axis, "unbind", x.where(), kFixedParts);
  detail::require_parts(count, "unbind", x.where());
  for (std::int64_t i = 0; i < count; ++i) parts.push_back(t.select(axis, i, x.where()));
  return parts;
}

Tensor concat(const std::vector<Tensor>& tensors, std::int64_t dim, Location where) {
  return cat(tensors, dim, where.in("concat"));
}

Tensor hstack(const std::vector<Tensor>& tensors, Location given) {
  const Location where = given.in("hstack");
  detail::require_defined(tensors, "hstack", where);
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors) parts.push_back(t.dim() == 0 ? t.reshape({1}, where) : t);
  return cat(parts, parts.empty() || parts[0].dim() == 1 ? 0 : 1, where);
}
Tensor vstack(const std::vector<Tensor>& tensors, Location given) {
  const Location where = given.in("vstack");
  detail::require_defined(tensors, "vstack", where);
  std::vector<Tensor> parts;
  for (const Tensor& t : tensors)
    parts.push_back(t.dim() == 0 ? t.reshape({1, 1}, where) : t.dim() == 1 ? t.unsqueeze(0, where) : t);
  return cat(parts, 0, where);
}

Tensor flip(const Operand& x, const OneOrMore& dims) {
  const Location at = x.where().in("flip");
  if (dims.empty() || x.tensor().dim() == 0) return x.tensor().clone(at);
  if (x.tensor().shape().is_static()) return apply("flip", {x.tensor()}, {{"dims", Sizes(dims)}}, at);
  Tensor t = x.tensor();
  std::vector<bool> turned(t.shape().rank(), false);
  for (const std::int64_t d : dims) {
    const std::int64_t axis = normalize_dim(d, t.dim(), "flip", at);
    if (turned[static_cast<std::size_t>(axis)]) fail("flip", fmt::format("dimension {} is named twice", axis), at);
    turned[static_cast<std::size_t>(axis)] = true;
    const Dim& size = t.shape()[static_cast<std::size_t>(axis)];
    if (size.is_static()) {
      t = apply("flip", {t}, {{"dims", Sizes{axis}}}, at);
      continue;
    }
    const Operand last(sub(Operand(detail::size_value(size, DType::i64, "flip", at), at), Operand(1, at)), at);
    t = index_select(Operand(t, at), axis, sub(last, Operand(detail::counted(size, t, at), at)));
  }
  return t;
}

Tensor roll(const Operand& x, const OneOrMore& shifts, const OneOrMore& dims) {
  Tensor t = x.tensor();
  const Location at = x.where().in("roll");
  if (dims.empty()) {
    if (shifts.size() != 1) fail("roll", "without dims there is one shift, got " + std::to_string(shifts.size()), at);
    if (t.dim() == 0) return t.clone(at);
    return roll(Operand(t.reshape({-1}, at), at), shifts, {0}).reshape(t.shape(), at);
  }
  if (shifts.size() != dims.size())
    fail("roll", fmt::format("{} shifts are given for {} dims", shifts.size(), dims.size()), at);
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (t.dim() == 0) fail("roll", "a scalar has no dimensions", at);
    const std::int64_t axis = normalize_dim(dims[i], t.dim(), "roll", at);
    if (const Dim& whole = t.shape()[static_cast<std::size_t>(axis)]; !whole.is_static()) {
      const Operand n(detail::size_value(whole, DType::i64, "roll", at), at);
      const Operand moved(sub(Operand(detail::counted(whole, t, at), at), Operand(shifts[i], at)), at);
      t = index_select(Operand(t, at), axis, remainder(moved, n));
      continue;
    }
    const std::int64_t size = fixed_size(t, axis, "roll", at);
    if (size == 0) continue;
    const std::int64_t shift = (shifts[i] % size + size) % size;
    if (shift != 0)
      t = cat({t.slice(axis, size - shift, size, 1, at), t.slice(axis, 0, size - shift, 1, at)}, axis, at);
  }
  return unshared(t, x.tensor(), at);
}

Tensor repeat(const Operand& x, const Sizes& counts) {
  const Tensor& t = x.tensor();
  const Location at = x.where().in("repeat");
  if (counts.size() < t.shape().rank())
    fail("repeat", fmt::format("expects at least {} counts for {}, got {}", t.dim(), t.describe(), counts.size()), at);
  for (const std::int64_t n : counts)
    if (n < 0) fail("repeat", "a count must not be negative, got " + std::to_string(n), at);
  // [a, b] -> [1, a, 1, b] -> [n, a, m, b] -> [n a, m b]
  std::vector<Dim> apart, wide, shape;
  const std::size_t added = counts.size() - t.shape().rank();
  for (std::size_t d = 0; d < counts.size(); ++d) {
    const Dim size = d < added ? Dim(1) : t.shape()[d - added];
    shape.push_back(size * Dim(counts[d]));
    if (counts[d] != 1) {
      apart.emplace_back(1);
      wide.emplace_back(counts[d]);
    }
    apart.push_back(size);
    wide.push_back(size);
  }
  return unshared(t.reshape(Shape(apart), at).expand(Shape(wide), at).reshape(Shape(shape), at), t, at);
}

Tensor tile(const Operand& x, const Sizes& counts) {
  Sizes all(std::max(counts.size(), x.tensor().shape().rank()), 1);
  std::copy(counts.begin(), counts.end(), all.end() - static_cast<std::ptrdiff_t>(counts.size()));
  return repeat(x, all);
}

Tensor repeat_interleave(const Operand& x, std::int64_t repeats, std::optional<std::int64_t> dim) {
  const Location at = x.where().in("repeat_interleave");
  if (repeats < 0)
    fail("repeat_interleave", "the number of repeats must not be negative, got " + std::to_string(repeats), at);
  const Tensor t = dim && x.tensor().dim() > 0 ? x.tensor() : x.tensor().reshape({-1}, at);
  const auto axis = static_cast<std::size_t>(normalize_dim(dim.value_or(0), t.dim(), "repeat_interleave", at));
  std::vector<Dim> wide = t.shape().dims(), shape = wide;
  wide.insert(wide.begin() + static_cast<std::ptrdiff_t>(axis) + 1, Dim(repeats));
  shape[axis] = shape[axis] * Dim(repeats);
  return unshared(
      t.unsqueeze(static_cast<std::int64_t>(axis) + 1, at).expand(Shape(wide), at).reshape(Shape(shape), at),
      x.tensor(), at);
}

namespace {

Tensor triangle(const Operand& x, std::int64_t diagonal, bool lower, const char* function) {
  const Tensor& t = x.tensor(function);
  const Location at = x.where().in(function);
  if (t.dim() < 2) fail(function, "expects a matrix or a batch of them, got " + t.describe(), at);
  if (!detail::would_record({t})) detail::require_data(function, {t}, at);
  const Tensor rows = detail::counted(t.shape().back(1), t, at).unsqueeze(1, at),
               columns = detail::counted(t.shape().back(0), t, at);
  const Operand limit(diagonal == 0 ? rows : add(Operand(rows, at), Operand(diagonal, at)), at);
  const Tensor inside = lower ? le(Operand(columns, at), limit) : ge(Operand(columns, at), limit);
  return where(Operand(inside, at), Operand(t, at),
               Operand(t.dtype() == DType::boolean ? Scalar(false) : Scalar(0), at));
}

}  // namespace

Tensor tril(const Operand& x, std::int64_t diagonal) { return triangle(x, diagonal, true, "tril"); }
Tensor triu(const Operand& x, std::int64_t diagonal) { return triangle(x, diagonal, false, "triu"); }

Tensor diagonal(const Operand& x, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
  const Tensor& t = x.tensor();
  const Location at = x.where().in("diagonal");
  if (t.dim() < 2) fail("diagonal", "expects at least two dimensions, got " + t.describe(), at);
  const std::int64_t a = normalize_dim(dim1, t.dim(), "diagonal", at), b = normalize_dim(dim2, t.dim(), "diagonal", at);
  if (a == b) fail("diagonal", "dim1 and dim2 must differ", at);
  const Tensor last = movedim(Operand(t, at), {a, b}, {-2, -1});
  const std::int64_t rows = fixed_size(last, -2, "diagonal", at), columns = fixed_size(last, -1, "diagonal", at);
  const std::int64_t count =
      std::max<std::int64_t>(0, offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns));
  std::vector<Dim> shape(last.shape().begin(), last.shape().end() - 2);
  shape.emplace_back(rows * columns);
  const std::int64_t first = offset >= 0 ? offset : -offset * columns,
                     dim = static_cast<std::int64_t>(shape.size()) - 1;
  const Tensor flat = last.reshape(Shape(std::move(shape)), at);
  if (count == 0) return flat.slice(dim, 0, 0, 1, at);
  return flat.slice(dim, first, first + (count - 1) * (columns + 1) + 1, columns + 1, at);
}

Tensor diag(const Operand& x, std::int64_t offset) {
  const Tensor& t = x.tensor();
  const Location at = x.where().in("diag");
  if (t.dim() == 2) return diagonal(Operand(t, at), offset);
  if (t.dim() != 1) fail("diag", "expects a vector or a matrix, got " + t.describe(), at);
  if (offset > 1 << 30 || offset < -(1 << 30))
    fail("diag", fmt::format("the diagonal must lie within 2^30, got {}", offset), at);
  // Of n + |offset| rows, as one vector, every (rows + 1)-th element.
  const std::int64_t n = fixed_size(t, 0, "diag", at), size = n + std::abs(offset),
                     first = offset >= 0 ? offset : -offset * size;
  if (n == 0) return pad(Operand(t, at), {0, size * size}).reshape({size, size}, at);
  return detail::placed(t, 0, size + 1, first, size * size, at).reshape({size, size}, at);
}

Tensor diag_embed(const Operand& x, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
  const Tensor& t = x.tensor("diag_embed");
  const Location at = x.where().in("diag_embed");
  if (t.dim() == 0) fail("diag_embed", "a scalar has no dimensions", at);
  if (offset > 1 << 30 || offset < -(1 << 30))
    fail("diag_embed", fmt::format("the diagonal must lie within 2^30, got {}", offset), at);
  const std::int64_t rank = t.dim() + 1, last = t.dim() - 1;
  const std::int64_t rows = normalize_dim(dim1, rank, "diag_embed", at),
                     columns = normalize_dim(dim2, rank, "diag_embed", at);
  if (rows == columns) fail("diag_embed", fmt::format("dim1 and dim2 must differ, got {} twice", rows), at);
  // Of n + |offset| rows, one behind the other, every (rows + 1)-th element.
  const std::int64_t n = fixed_size(t, last, "diag_embed", at), size = n + std::abs(offset),
                     first = offset >= 0 ? offset : -offset * size;
  std::vector<Dim> shape(t.shape().begin(), t.shape().end());
  shape.back() = Dim(size);
  shape.push_back(Dim(size));
  const Tensor y = n == 0 ? pad(Operand(t, at), {0, size * size}).reshape(Shape(shape), at)
                          : detail::placed(t, last, size + 1, first, size * size, at).reshape(Shape(shape), at);
  return movedim(Operand(y, at), {rank - 2, rank - 1}, {rows, columns});
}

Tensor masked_fill(const Operand& x, const Tensor& mask, const Operand& value) {
  detail::require_defined(mask, "masked_fill", x.where(), "mask");
  if (mask.dtype() != DType::boolean) fail("masked_fill", "the mask must be bool, got " + mask.describe(), x.where());
  const Location at = x.where().in("masked_fill");
  if (!value.is_tensor()) detail::require_fits(value.scalar(), x.tensor().dtype(), "masked_fill", at);
  const Tensor filled = where(Operand(mask, at), value, Operand(x.tensor(), at));
  return filled.to(x.tensor().dtype(), x.where());
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, std::string_view indexing, Location given) {
  const Location where = given.in("meshgrid");
  if (tensors.empty()) fail("meshgrid", "needs at least one tensor", where);
  detail::require_defined(tensors, "meshgrid", where);
  if (indexing != "ij" && indexing != "xy")
    fail("meshgrid", "indexing must be 'ij' or 'xy', got '" + std::string(indexing) + "'", where);
  const bool exchanged = indexing == "xy" && tensors.size() > 1;
  std::vector<Dim> shape;
  for (const Tensor& t : tensors) {
    if (t.dim() > 1) fail("meshgrid", "expects vectors, got " + t.describe(), where);
    shape.push_back(t.dim() == 0 ? Dim(1) : t.shape()[0]);
  }
  if (exchanged) std::swap(shape[0], shape[1]);
  std::vector<Tensor> grids;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t place = exchanged && i < 2 ? 1 - i : i;
    std::vector<Dim> ones(shape.size(), Dim(1));
    ones[place] = shape[place];
    grids.push_back(tensors[i].reshape(Shape(ones), where).expand(Shape(shape), where));
  }
  return grids;
}

namespace {

/// Small enough that its square is a number.
void require_factor(const char* function, const char* what, std::int64_t factor, Location at) {
  if (factor < 1 || factor > 1 << 15)
    fail(function, fmt::format("{} must lie in [1, {}], got {}", what, 1 << 15, factor), at);
}

/// The last three dimensions of x as `apart`, these in the order `order`, and then as `joined`.
Tensor regrouped(const Tensor& x, const std::array<Dim, 5>& apart, const std::array<std::int64_t, 5>& order,
                 const std::array<Dim, 3>& joined, Location at) {
  std::vector<Dim> wide(x.shape().begin(), x.shape().end() - 3), shape = wide;
  Sizes dims(wide.size());
  std::iota(dims.begin(), dims.end(), 0);
  for (const std::int64_t d : order) dims.push_back(x.dim() - 3 + d);
  wide.insert(wide.end(), apart.begin(), apart.end());
  shape.insert(shape.end(), joined.begin(), joined.end());
  return unshared(x.reshape(Shape(std::move(wide)), at).permute(dims, at).reshape(Shape(std::move(shape)), at), x, at);
}

}  // namespace

Tensor pixel_shuffle(const Operand& x, std::int64_t upscale_factor) {
  const Tensor& t = x.tensor();
  const Location at = x.where().in("pixel_shuffle");
  const std::int64_t f = upscale_factor;
  require_factor("pixel_shuffle", "upscale_factor", f, at);
  if (t.dim() < 3 || fixed_size(t, -3, "pixel_shuffle", at) % (f * f) != 0)
    fail("pixel_shuffle",
         fmt::format("expects [..., channels, h, w] with channels a multiple of {}, got {}", f * f, t.describe()), at);
  const Dim channels = t.shape().back(2) / Dim(f * f), height = t.shape().back(1), width = t.shape().back(0);
  return regrouped(t, {channels, f, f, height, width}, {0, 3, 1, 4, 2}, {channels, height * Dim(f), width * Dim(f)},
                   at);
}

Tensor pixel_unshuffle(const Operand& x, std::int64_t downscale_factor) {
  const Tensor& t = x.tensor();
  const Location at = x.where().in("pixel_unshuffle");
  const std::int64_t f = downscale_factor;
  require_factor("pixel_unshuffle", "downscale_factor", f, at);
  if (t.dim() < 3 || !divide(t.shape().back(1), f) || !divide(t.shape().back(0), f))
    fail("pixel_unshuffle",
         fmt::format("expects [..., channels, h, w] with h and w multiples of {}, got {}", f, t.describe()), at);
  const Dim channels = t.shape().back(2), height = t.shape().back(1) / Dim(f), width = t.shape().back(0) / Dim(f);
  return regrouped(t, {channels, height, f, width, f}, {0, 2, 4, 1, 3}, {channels * Dim(f * f), height, width}, at);
}

Tensor channel_shuffle(const Operand& x, std::int64_t groups) {
  const Tensor& t = x.tensor();
  const Location at = x.where().in("channel_shuffle");
  if (groups < 1) fail("channel_shuffle", "groups must be positive, got " + std::to_string(groups), at);
  if (t.dim() < 3 || fixed_size(t, 1, "channel_shuffle", at) % groups != 0)
    fail("channel_shuffle",
         fmt::format("expects [batch, channels, ...] with channels a multiple of {}, got {}", groups, t.describe()),
         at);
  return unshared(
      unflatten(Operand(t, at), 1, {groups, t.shape()[1] / Dim(groups)}).transpose(1, 2, at).reshape(t.shape(), at), t,
      at);
}

Tensor diff(const Operand& x, std::int64_t n, std::int64_t dim) {
  Tensor t = x.tensor();
  const Location at = x.where().in("diff");
  if (n < 0) fail("diff", "n must not be negative, got " + std::to_string(n), at);
  if (t.dim() == 0) fail("diff", "a scalar has no dimensions", at);
  const std::int64_t axis = normalize_dim(dim, t.dim(), "diff", at);
  std::int64_t size =
      n == 0
          ? 0
          : fixed_size(
                t, axis, "diff", at,
                "a symbol less one is no dimension: x - roll(x, {1}, {dim}) has all differences, and one of the ends");
  for (; n > 0 && size > 0; --n, --size) {
    const Tensor before = t.slice(axis, 0, size - 1, 1, at), behind = t.slice(axis, 1, size, 1, at);
    t = t.dtype() == DType::boolean ? logical_xor(Operand(behind, at), Operand(before, at))
                                    : sub(Operand(behind, at), Operand(before, at));
  }
  return unshared(t, x.tensor(), at);
}

}  // namespace graven
