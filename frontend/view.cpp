// Views: strides and offsets eagerly, nodes while tracing.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/trace.h"
#include "graven/functional.h"
#include "graven/tensor.h"
#include "ir/ops.h"

namespace graven {

using detail::apply_view;
using detail::fail;
using detail::get;
using detail::normalize_dim;

namespace {

/// Fills in -1. The count may be symbolic.
Shape infer_shape(const Tensor& x, const Shape& wanted, const char* function, Location where) {
  std::vector<Dim> dims = wanted.dims();
  Dim known = 1;
  std::ptrdiff_t open = -1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == Dim(-1)) {
      if (open >= 0) fail(function, "only one dimension can be inferred, got " + wanted.to_string(), where);
      open = static_cast<std::ptrdiff_t>(i);
    } else if (dims[i].minimum() < 0) {
      fail(function, "a dimension must not be negative, got " + wanted.to_string(), where);
    } else {
      known = known * dims[i];
    }
  }
  const Dim total = x.shape().numel();
  if (open >= 0) {
    if (known == Dim(0)) fail(function, "the dimension -1 of " + wanted.to_string() + " can have any size", where);
    const std::optional<Dim> rest = divide(total, known);
    if (!rest)
      fail(
          function,
          "the shape " + wanted.to_string() + " does not fit the " + total.to_string() + " elements of " + x.describe(),
          where);
    dims[static_cast<std::size_t>(open)] = *rest;
  } else if (known != total) {
    fail(function,
         "the shape " + wanted.to_string() + " has " + known.to_string() + " elements, " + x.describe() + " has " +
             total.to_string(),
         where);
  }
  return Shape(std::move(dims));
}

/// Strides under which `sizes` walks the same elements in the same order, or nothing when only a copy can.
std::optional<Sizes> strides_for(const detail::TensorImpl& x, const Sizes& sizes) {
  if (x.numel() == 0) return detail::contiguous_strides(sizes);
  Sizes strides(sizes.size());
  std::ptrdiff_t view_d = static_cast<std::ptrdiff_t>(sizes.size()) - 1;
  std::int64_t base = x.strides.empty() ? 1 : x.strides.back();
  std::int64_t tensor_numel = 1, view_numel = 1;
  for (std::ptrdiff_t d = static_cast<std::ptrdiff_t>(x.sizes.size()) - 1; d >= 0; --d) {
    const auto i = static_cast<std::size_t>(d);
    tensor_numel *= x.sizes[i];
    // The end of a run of dimensions that lie one behind the other in memory.
    if (d == 0 || (x.sizes[i - 1] != 1 && x.strides[i - 1] != tensor_numel * base)) {
      while (view_d >= 0 && (view_numel < tensor_numel || sizes[static_cast<std::size_t>(view_d)] == 1)) {
        strides[static_cast<std::size_t>(view_d)] = view_numel * base;
        view_numel *= sizes[static_cast<std::size_t>(view_d)];
        --view_d;
      }
      if (view_numel != tensor_numel) return std::nullopt;
      if (d > 0) {
        base = x.strides[i - 1];
        tensor_numel = view_numel = 1;
      }
    }
  }
  while (view_d >= 0 && sizes[static_cast<std::size_t>(view_d)] == 1) strides[static_cast<std::size_t>(view_d--)] = 1;
  if (view_d >= 0) return std::nullopt;
  return strides;
}

}  // namespace

namespace detail {

namespace {
/// base with `value` in the place of its slices along dim at these positions.
Tensor written_at(const Tensor& base, const Tensor& value, const Tensor& positions, std::int64_t dim, Location where) {
  std::vector<Dim> column(value.shape().rank(), Dim(1));
  column[static_cast<std::size_t>(dim)] = value.shape()[static_cast<std::size_t>(dim)];
  const Tensor index = positions.reshape(Shape(std::move(column)), where).expand(value.shape(), where);
  return apply("scatter", {base, index, value}, {{"dim", dim}}, where);
}
}  // namespace

std::optional<Sizes> strides_of_view(const TensorImpl& base, const ir::OpDef& op, const ir::Attributes& attributes,
                                     const Sizes& sizes) {
  if (op == ir::kDetach) return base.strides;
  if (op == ir::kReshape) return strides_for(base, sizes);
  const auto at = [&](std::int64_t d) {
    return static_cast<std::size_t>(d < 0 ? d + static_cast<std::int64_t>(base.sizes.size()) : d);
  };
  Sizes strides = base.strides;
  if (op == ir::kPermute) {
    std::size_t i = 0;
    for (const std::int64_t d : attributes.integers("dims")) strides[i++] = base.strides[at(d)];
  } else if (op == ir::kExpand) {
    const std::size_t added = sizes.size() - base.sizes.size();
    strides.assign(sizes.size(), 0);
    for (std::size_t i = 0; i < base.sizes.size(); ++i)
      if (base.sizes[i] != 1 || sizes[added + i] == 1) strides[added + i] = base.strides[i];
  } else {
    GRAVEN_CHECK(op == ir::kSlice, "no strides for the view " + std::string(op.name));
    strides[at(attributes.integer("dim"))] *= attributes.integer("step");
  }
  return strides;
}

Tensor written_through(const TensorImpl& view, const Tensor& value, const char* function, Location where) {
  const ir::OpDef& op = *view.view->op;
  const ir::Attributes& attributes = view.view->attributes;
  const Tensor base(view.view->base);
  if (op == ir::kDetach) {
    if (!is_grad_enabled()) return value;  // no gradient flows through the change, whatever the base is
    fail(function,
         "what detach() gave is changed in place in a graph: whether gradients flow through the change cannot be said; "
         "use a new tensor, or NoGradGuard",
         where);
  }
  if (op == ir::kReshape) return value.reshape(base.shape(), where);
  if (op == ir::kPermute) {
    const ir::Ints& dims = attributes.integers("dims");
    Sizes back(dims.size());
    for (std::size_t d = 0; d < dims.size(); ++d)
      back[static_cast<std::size_t>(normalize_dim(dims[d], base.dim(), function, where))] =
          static_cast<std::int64_t>(d);
    return value.permute(back, where);
  }
  if (op == ir::kExpand) {
    if (value.shape().numel() != base.shape().numel())
      fail(function,
           "a tensor that was expanded is changed in place: several of its elements are one element of " +
               base.describe(),
           where);
    return value.reshape(base.shape(), where);
  }
  if (op == ir::kIndexSelect) return written_at(base, value, view.view->positions, attributes.integer("dim"), where);
  GRAVEN_CHECK(op == ir::kSlice, "no inverse of the view " + std::string(op.name));
  const std::int64_t dim = normalize_dim(attributes.integer("dim"), base.dim(), function, where);
  const Dim whole = base.shape()[static_cast<std::size_t>(dim)];
  const ir::Attribute* const between = attributes.find("bounds");  // eager views have none
  const Shape bounds = between ? std::get<Shape>(*between) : Shape();
  if (!whole.is_static() || !bounds.empty()) {
    const Operand count(counted(value.shape()[static_cast<std::size_t>(dim)], base, where), where);
    const Operand apart(mul(count, Operand(attributes.integer("step"), where)), where);
    const Operand start = bounds.empty() ? Operand(attributes.integer("start"), where)
                                         : Operand(size_value(bounds[0], DType::i64, function, where), where);
    return written_at(base, value, add(apart, start), dim, where);
  }
  const std::int64_t size = whole.value(), step = attributes.integer("step"), taken = value.size(dim, where);
  const auto bound = [&](std::int64_t at) { return std::clamp(at < 0 ? at + size : at, std::int64_t{0}, size); };
  const std::int64_t start = bound(attributes.integer("start"));
  if (taken == 0) return base;
  if (step == 1) {
    std::vector<Tensor> parts;
    if (start > 0) parts.push_back(base.slice(dim, 0, start, 1, where));
    parts.push_back(value);
    if (start + taken < size) parts.push_back(base.slice(dim, start + taken, size, 1, where));
    return parts.size() == 1 ? value : cat(parts, dim, where);
  }
  // Every step-th one: the old elements with the new ones behind them, in the order in which they belong.
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t k = 0; k < taken; ++k) order[static_cast<std::size_t>(start + k * step)] = size + k;
  return index_select(Operand(cat({base, value}, dim, where), where), dim, beside(from_data(order, {size}), value));
}

}  // namespace detail

Tensor Tensor::reshape(const Shape& wanted, Location where) const {
  detail::require_defined(*this, "reshape", where);
  const Shape target = infer_shape(*this, wanted, "reshape", where);
  return apply_view("reshape", *this, {{"shape", target}}, where, [&]() -> Tensor {
    const Sizes sizes = target.values();
    const auto strides = strides_for(get(*this), sizes);
    return strides ? detail::make_view(*this, sizes, *strides, get(*this).offset) : Tensor();
  });
}

Tensor Tensor::view(const Shape& wanted, Location where) const {
  detail::require_defined(*this, "view", where);
  const Shape target = infer_shape(*this, wanted, "view", where);
  if (!strides_for(get(*this), target.maxima()))
    fail("view",
         "strides cannot express " + target.to_string() + " of this view of " + describe() +
             "; use reshape(), which copies",
         where);
  return reshape(target, where);
}

Tensor Tensor::flatten(std::int64_t start_dim, std::int64_t end_dim, Location where) const {
  detail::require_defined(*this, "flatten", where);
  if (dim() == 0) return reshape({1}, where);
  const auto start = static_cast<std::size_t>(normalize_dim(start_dim, dim(), "flatten", where));
  const auto end = static_cast<std::size_t>(normalize_dim(end_dim, dim(), "flatten", where));
  if (start > end)
    fail("flatten", "start_dim " + std::to_string(start_dim) + " comes after end_dim " + std::to_string(end_dim),
         where);
  std::vector<Dim> dims;
  for (std::size_t i = 0; i < shape().rank(); ++i) {
    if (i > start && i <= end)
      dims.back() = dims.back() * shape()[i];
    else
      dims.push_back(shape()[i]);
  }
  return reshape(Shape(std::move(dims)), where);
}

Tensor Tensor::permute(const Sizes& wanted, Location where) const {
  detail::require_defined(*this, "permute", where);
  if (static_cast<std::int64_t>(wanted.size()) != dim())
    fail("permute",
         "needs each of the " + std::to_string(dim()) + " dimensions once, got " + std::to_string(wanted.size()),
         where);
  Sizes dims;
  std::vector<bool> seen(wanted.size(), false);
  for (std::int64_t d : wanted) {
    const std::int64_t n = normalize_dim(d, dim(), "permute", where);
    if (seen[static_cast<std::size_t>(n)]) fail("permute", "dimension " + std::to_string(d) + " is named twice", where);
    seen[static_cast<std::size_t>(n)] = true;
    dims.push_back(n);
  }
  const ir::Attributes attributes = {{"dims", dims}};
  return apply_view("permute", *this, attributes, where, [&] {
    const detail::TensorImpl& x = get(*this);
    Sizes sizes;
    for (std::int64_t d : dims) sizes.push_back(x.sizes[static_cast<std::size_t>(d)]);
    return detail::make_view(*this, sizes, *detail::strides_of_view(x, ir::kPermute, attributes, sizes), x.offset);
  });
}

Tensor Tensor::transpose(std::int64_t dim0, std::int64_t dim1, Location where) const {
  detail::require_defined(*this, "transpose", where);
  const std::int64_t a = normalize_dim(dim0, dim(), "transpose", where),
                     b = normalize_dim(dim1, dim(), "transpose", where);
  if (a == b) return *this;
  Sizes dims(shape().rank());
  std::iota(dims.begin(), dims.end(), 0);
  std::swap(dims[static_cast<std::size_t>(a)], dims[static_cast<std::size_t>(b)]);
  return permute(dims, where);
}

Tensor Tensor::t(Location where) const {
  detail::require_defined(*this, "t", where);
  if (dim() > 2) fail("t", "expects a matrix, got " + describe(), where);
  return dim() < 2 ? *this : transpose(0, 1, where);
}
Tensor Tensor::T(Location where) const {
  detail::require_defined(*this, "T", where);
  Sizes dims;
  for (std::int64_t d = dim(); d > 0; --d) dims.push_back(d - 1);
  return permute(dims, where);
}

Tensor Tensor::expand(const Shape& wanted, Location where) const {
  detail::require_defined(*this, "expand", where);
  const std::size_t rank = wanted.rank(), own = shape().rank();
  if (rank < own) fail("expand", "the shape " + wanted.to_string() + " has fewer dimensions than " + describe(), where);
  std::vector<Dim> dims = wanted.dims();
  for (std::size_t i = 0; i < rank; ++i) {
    if (i < rank - own) {
      if (dims[i].minimum() < 0) fail("expand", "-1 stands for no existing dimension in " + wanted.to_string(), where);
      continue;
    }
    const Dim& from = shape()[i - (rank - own)];
    if (dims[i] == Dim(-1)) dims[i] = from;
    if (dims[i] != from && from != Dim(1))
      fail("expand", describe() + " cannot be expanded to " + wanted.to_string(), where);
  }
  const Shape target(std::move(dims));
  if (target == shape()) return *this;
  const ir::Attributes attributes = {{"shape", target}};
  if (!target.is_static()) {  // a symbol stands for a number only in a graph: what is no part of it yet becomes one
    detail::require_recording(target, "expand", where);
    if (!detail::would_record({*this}))
      return detail::active_trace()->record(ir::kExpand, {*this}, attributes, where).at(0);
  }
  return apply_view("expand", *this, attributes, where, [&] {
    const detail::TensorImpl& x = get(*this);
    const Sizes sizes = target.values();
    return detail::make_view(*this, sizes, *detail::strides_of_view(x, ir::kExpand, attributes, sizes), x.offset);
  });
}

namespace {
/// Whether the dimension would be dropped at one size and stay at the others.
bool may_be_one(const Dim& d) { return !d.is_static() && d.minimum() <= 1 && d.maximum() >= 1; }
constexpr std::string_view kSayWhich =
    "a symbol that stands for 1 would be dropped, and stay at other sizes: squeeze(dim) drops a dimension that is "
    "always 1, reshape() any";
}  // namespace

Tensor Tensor::squeeze(Location where) const {
  detail::require_defined(*this, "squeeze", where);
  std::vector<Dim> dims;
  for (std::size_t d = 0; d < shape().rank(); ++d) {
    if (may_be_one(shape()[d])) detail::refuse_symbol(*this, static_cast<std::int64_t>(d), "squeeze", where, kSayWhich);
    if (shape()[d] != Dim(1)) dims.push_back(shape()[d]);
  }
  return dims.size() == shape().rank() ? *this : reshape(Shape(std::move(dims)), where);
}

Tensor Tensor::squeeze(std::int64_t d, Location where) const {
  detail::require_defined(*this, "squeeze", where);
  if (dim() == 0) return *this;
  const auto at = static_cast<std::size_t>(normalize_dim(d, dim(), "squeeze", where));
  if (may_be_one(shape()[at])) detail::refuse_symbol(*this, static_cast<std::int64_t>(at), "squeeze", where, kSayWhich);
  if (shape()[at] != Dim(1)) return *this;
  std::vector<Dim> dims = shape().dims();
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(at));
  return reshape(Shape(std::move(dims)), where);
}

Tensor Tensor::unsqueeze(std::int64_t d, Location where) const {
  detail::require_defined(*this, "unsqueeze", where);
  const std::int64_t at = normalize_dim(d, dim() + 1, "unsqueeze", where);
  std::vector<Dim> dims = shape().dims();
  dims.insert(dims.begin() + at, Dim(1));
  return reshape(Shape(std::move(dims)), where);
}

namespace {

constexpr std::string_view kUseChunk =
    "how many parts there are must not depend on the symbol: narrow() and select() take some, chunk() equal parts of a "
    "multiple of a symbol";

/// What stands between two sizes of a dimension.
Tensor part_between(const Tensor& x, std::int64_t axis, const Dim& start, const Dim& end, Location where) {
  if (start == Dim(0) && end == x.shape()[static_cast<std::size_t>(axis)]) return x;
  if (start.is_static() && end.is_static()) {
    const ir::Attributes attributes = {
        {"dim", axis}, {"start", start.value()}, {"end", end.value()}, {"step", std::int64_t{1}}};
    return detail::apply("slice", {x}, attributes, where);
  }
  const ir::Attributes attributes = {{"dim", axis}, {"bounds", Shape{start, end}}};
  if (detail::would_record({x})) return detail::apply("slice", {x}, attributes, where);
  return detail::active_trace()->record(ir::kSlice, {x}, attributes, where).at(0);
}

/// `length` slices from `start` on (counted from the end where negative) of a symbolic dimension. The program checks
/// those that are not always there.
Tensor part_of_symbol(const Tensor& x, std::int64_t axis, std::int64_t start, std::int64_t length, const char* function,
                      Location where) {
  const Dim& whole = x.shape()[static_cast<std::size_t>(axis)];
  const bool beyond = start < -whole.maximum() || length > whole.maximum() ||
                      (start < 0 ? start + length > 0 : start > whole.maximum() - length);
  if (beyond)
    fail(function,
         "start " + std::to_string(start) + " and length " + std::to_string(length) + " leave dimension " +
             std::to_string(axis) + " of " + x.describe(),
         where);
  const Location at = where.in(function);
  detail::require_recording(x.shape(), function, where);
  if (start >= 0 && start + length <= whole.minimum()) return part_between(x, axis, start, start + length, at);
  const ir::Attributes counted{{"shape", Shape{length}}, {"start", static_cast<double>(start)}, {"dtype", DType::i64}};
  Tensor positions = detail::recorded("arange", counted, at);
  if (start < 0)
    positions = add(Operand(positions, at), Operand(detail::size_value(whole, DType::i64, function, at), at));
  const Tensor part = detail::active_trace()->view_at(x, axis, positions, at);
  return is_grad_enabled() || !part.requires_grad() ? part : part.detach(at);
}

/// Where Python's index lies of a dimension: counted from the end where negative, clipped to it. Nothing where that
/// depends on what the symbols stand for.
std::optional<Dim> clipped(const Dim& index, const Dim& whole) {
  const Dim at = index.is_static() && index.value() < 0 ? whole + index : index;
  if (at.maximum() <= 0) return Dim(0);
  if ((at - whole).minimum() >= 0) return whole;
  if (at.minimum() >= 0 && (whole - at).minimum() >= 0) return at;
  return std::nullopt;
}

/// Python's slice of a dimension with symbols: it is there where how many elements it has is a size.
Tensor slice_of_symbol(const Tensor& x, std::int64_t axis, const Dim& start, const Dim& end, std::int64_t step,
                       Location where) {
  const bool is_open = end == Dim(std::numeric_limits<std::int64_t>::max());
  const Dim& whole = x.shape()[static_cast<std::size_t>(axis)];
  if (is_open && start.is_static() && start.value() >= 0 && start.value() < step && step > 1 && divide(whole, step)) {
    std::vector<Dim> apart = x.shape().dims();
    apart[static_cast<std::size_t>(axis)] = whole / Dim(step);
    apart.insert(apart.begin() + axis + 1, Dim(step));
    return x.reshape(Shape(std::move(apart)), where).select(axis + 1, start.value(), where.in("slice"));
  }
  const std::optional<Dim> from = clipped(start, whole), to = is_open ? whole : clipped(end, whole);
  // Nothing is left where both count from one side and do not lie in order, whatever lies between.
  const bool same_side = !is_open && (start.minimum() < 0) == (end.minimum() < 0);
  if ((same_side && (end - start).maximum() <= 0) || (from && to && (*to - *from).maximum() <= 0))
    return part_of_symbol(x, axis, 0, 0, "slice", where);
  if (!from || !to || (*to - *from).minimum() < 0) {
    UserError error(fmt::format(
        "how many elements {}:{}:{} leaves of dimension {} of {} depends on the size that the symbol stands for",
        start.to_string(), is_open ? "" : end.to_string(), step, axis, x.describe()));
    error.note(
        "narrow() takes a fixed number of them, which is checked when the graph runs, index_select() takes positions; "
        "a least size of the symbol, Dim(\"length\", 5, 64), says what is always there");
    detail::throw_at(error, "slice", where);
  }
  const Location at = where.in("slice");
  if (step == 1) return part_between(x, axis, *from, *to, at);
  const Dim count = floor_divide(*to - *from + Dim(step - 1), step);
  Tensor positions = mul(Operand(detail::counted(count, x, at), at), Operand(step, at));
  if (*from != Dim(0))
    positions = add(Operand(positions, at), Operand(detail::size_value(*from, DType::i64, "slice", at), at));
  const Tensor part = detail::active_trace()->view_at(x, axis, positions, at);
  return is_grad_enabled() || !part.requires_grad() ? part : part.detach(at);
}

}  // namespace

Tensor Tensor::slice(std::int64_t d, std::int64_t start, std::int64_t end, std::int64_t step, Location where) const {
  detail::require_defined(*this, "slice", where);
  if (dim() == 0) fail("slice", "a scalar has no dimensions", where);
  if (step < 1) fail("slice", "the step must be 1 or more, got " + std::to_string(step), where);
  const std::int64_t axis = normalize_dim(d, dim(), "slice", where);
  const Dim& length_dim = shape()[static_cast<std::size_t>(axis)];
  if (!length_dim.is_static()) return slice_of_symbol(*this, axis, start, end, step, where);
  const std::int64_t length = length_dim.value();
  if (start < 0) start = std::max<std::int64_t>(start + length, 0);
  if (end < 0) end = std::max<std::int64_t>(end + length, 0);
  start = std::min(start, length);
  end = std::clamp(end, start, length);
  const std::int64_t count = end > start ? (end - start - 1) / step + 1 : 0;
  if (count == length && step == 1) return *this;
  const ir::Attributes attributes = {{"dim", axis}, {"start", start}, {"end", end}, {"step", step}};
  return apply_view("slice", *this, attributes, where, [&] {
    const detail::TensorImpl& x = get(*this);
    Sizes sizes = x.sizes;
    const auto i = static_cast<std::size_t>(axis);
    sizes[i] = count;
    return detail::make_view(*this, sizes, *detail::strides_of_view(x, ir::kSlice, attributes, sizes),
                             count ? x.offset + start * x.strides[i] : x.offset);
  });
}

Tensor Tensor::slice(std::int64_t d, const Dim& start, const Dim& end, Location where) const {
  if (start.is_static() && end.is_static()) return slice(d, start.value(), end.value(), 1, where);
  detail::require_defined(*this, "slice", where);
  if (dim() == 0) fail("slice", "a scalar has no dimensions", where);
  detail::require_recording(Shape{start, end}, "slice", where);
  return slice_of_symbol(*this, normalize_dim(d, dim(), "slice", where), start, end, 1, where);
}

Tensor Tensor::narrow(std::int64_t d, const Dim& start, const Dim& length, Location where) const {
  if (start.is_static() && length.is_static()) return narrow(d, start.value(), length.value(), where);
  detail::require_defined(*this, "narrow", where);
  if (dim() == 0) fail("narrow", "a scalar has no dimensions", where);
  detail::require_recording(Shape{start, length}, "narrow", where);
  const std::int64_t axis = normalize_dim(d, dim(), "narrow", where);
  const Dim& whole = shape()[static_cast<std::size_t>(axis)];
  const Dim from = start.is_static() && start.value() < 0 ? whole + start : start;
  if (from.minimum() < 0 || length.minimum() < 0 || (whole - from - length).minimum() < 0)
    fail("narrow",
         "start " + start.to_string() + " and length " + length.to_string() + " may leave dimension " +
             std::to_string(axis) + " of " + describe(),
         where);
  return part_between(*this, axis, from, from + length, where.in("narrow"));
}

Tensor Tensor::narrow(std::int64_t d, std::int64_t start, std::int64_t length, Location where) const {
  detail::require_defined(*this, "narrow", where);
  if (dim() == 0) fail("narrow", "a scalar has no dimensions", where);
  const std::int64_t axis = normalize_dim(d, dim(), "narrow", where);
  if (const Dim& whole = shape()[static_cast<std::size_t>(axis)]; !whole.is_static()) {
    if (length < 0) fail("narrow", "the length must not be negative, got " + std::to_string(length), where);
    return part_of_symbol(*this, axis, start, length, "narrow", where);
  }
  const std::int64_t total = size(axis);
  if (start < 0) start += total;
  if (start < 0 || length < 0 || start > total - length)
    fail("narrow",
         "start " + std::to_string(start) + " and length " + std::to_string(length) + " leave dimension " +
             std::to_string(axis) + " of " + describe(),
         where);
  return slice(axis, start, start + length, 1, where);
}

Tensor Tensor::select(std::int64_t d, std::int64_t index, Location where) const {
  detail::require_defined(*this, "select", where);
  if (dim() == 0) fail("select", "a scalar has no dimensions", where);
  const std::int64_t axis = normalize_dim(d, dim(), "select", where);
  const Dim& whole = shape()[static_cast<std::size_t>(axis)];
  if (index < -whole.maximum() || index >= whole.maximum())
    fail("select",
         "index " + std::to_string(index) + " is out of range for dimension " + std::to_string(axis) + " of " +
             describe(),
         where);
  if (whole.is_static() && index < 0) index += whole.value();
  const Tensor one = whole.is_static() ? slice(axis, index, index + 1, 1, where)
                                       : part_of_symbol(*this, axis, index, 1, "select", where);
  std::vector<Dim> dims = one.shape().dims();
  dims.erase(dims.begin() + axis);
  return one.reshape(Shape(std::move(dims)), where);
}

std::vector<Tensor> Tensor::split(std::int64_t split_size, std::int64_t d, Location where) const {
  detail::require_defined(*this, "split", where);
  if (split_size < 1) fail("split", "the size must be 1 or more, got " + std::to_string(split_size), where);
  if (dim() == 0) fail("split", "a scalar has no dimensions", where);
  const std::int64_t axis = normalize_dim(d, dim(), "split", where);
  const std::int64_t total = detail::fixed_size(*this, axis, "split", where, kUseChunk);
  // Sizes of an empty tensor may be so large that a sum of two is no number.
  const std::int64_t count = std::max<std::int64_t>(total / split_size + (total % split_size != 0 ? 1 : 0), 1);
  detail::require_parts(count, "split", where);
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t start = i * split_size, length = std::min(split_size, total - start);
    parts.push_back(slice(axis, start, start + length, 1, where));
  }
  return parts;
}

std::vector<Tensor> Tensor::chunk(std::int64_t chunks, std::int64_t d, Location where) const {
  detail::require_defined(*this, "chunk", where);
  if (chunks < 1) fail("chunk", "the number of chunks must be 1 or more, got " + std::to_string(chunks), where);
  if (dim() == 0) fail("chunk", "a scalar has no dimensions", where);
  const std::int64_t axis = normalize_dim(d, dim(), "chunk", where);
  if (const Dim& whole = shape()[static_cast<std::size_t>(axis)]; !whole.is_static() && divide(whole, chunks)) {
    detail::require_parts(chunks, "chunk", where);
    const Dim each = whole / chunks;
    std::vector<Tensor> parts;
    for (std::int64_t i = 0; i < chunks; ++i)
      parts.push_back(part_between(*this, axis, each * i, each * (i + 1), where));
    return parts;
  }
  const std::int64_t total = detail::fixed_size(*this, axis, "chunk", where, kUseChunk);
  // Not (total + chunks - 1) / chunks, which may be no number.
  const std::int64_t each = total / chunks + (total % chunks != 0 ? 1 : 0);
  return split(std::max<std::int64_t>(each, 1), d, where.in("chunk"));
}

Tensor reshape(const Operand& x, const Shape& shape) { return x.tensor().reshape(shape, x.where()); }
Tensor flatten(const Operand& x, std::int64_t start_dim, std::int64_t end_dim) {
  return x.tensor().flatten(start_dim, end_dim, x.where());
}
Tensor transpose(const Operand& x, std::int64_t dim0, std::int64_t dim1) {
  return x.tensor().transpose(dim0, dim1, x.where());
}
Tensor permute(const Operand& x, const Sizes& dims) { return x.tensor().permute(dims, x.where()); }

}  // namespace graven
