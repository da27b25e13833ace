#include "graven/functional/indexing.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "frontend/dispatch.h"
#include "frontend/functional/at.h"
#include "frontend/functional/indexed.h"
#include "frontend/trace.h"
#include "graven/functional.h"

namespace graven {

using detail::apply;
using detail::fail;
using detail::require_defined;

namespace {

/// i64, from the narrower integers.
Tensor checked_index(const char* function, const Tensor& index, Location where) {
  require_defined(index, function, where, "index");
  if (!ir::is_integral(index.dtype())) fail(function, "the index must be of integers, got " + index.describe(), where);
  return index.to(DType::i64, where);
}

std::int64_t checked_dim(const char* function, std::int64_t dim, const Tensor& x, Location where) {
  return detail::normalize_dim(dim, x.dim(), function, where);
}

/// The part of `source` that an index of this shape reads.
Tensor cut_to(const char* function, const Tensor& source, const Tensor& index, Location where) {
  require_defined(source, function, where, "source");
  if (source.dim() != index.dim())
    fail(function,
         "the source must have as many dimensions as the index, got " + source.describe() + " and " + index.describe(),
         where);
  Tensor cut = source;
  for (std::size_t d = 0; d < index.shape().rank(); ++d) {
    if (cut.shape()[d] == index.shape()[d]) continue;
    if (!index.shape()[d].is_static() || !cut.shape()[d].is_static() ||
        index.shape()[d].value() > cut.shape()[d].value())
      fail(function,
           "the index must not be larger than the source, got " + index.describe() + " and " + source.describe(),
           where);
    cut = cut.slice(static_cast<std::int64_t>(d), 0, index.shape()[d].value(), 1, where);
  }
  return cut;
}

/// Positions that count from the end where negative, counted from the start.
Tensor from_start(const Tensor& at, const Dim& size, const char* function, Location where) {
  // What is below all of them is said as it was given; what is above, the operator says.
  if (size.is_static() && !detail::would_record({at}) && detail::options_of(at).device.is_cpu()) {
    const std::vector<std::int64_t> given = at.to_vector<std::int64_t>(where);
    for (std::size_t i = 0; i < given.size(); ++i)
      if (given[i] < -size.value())
        fail(function,
             fmt::format("index {} at position {} is outside [{}, {})", given[i], i, -size.value(), size.value()),
             where);
  }
  const Operand count = size.is_static() ? Operand(size.value(), where)
                                         : Operand(detail::size_value(size, DType::i64, function, where), where);
  return graven::where(Operand(lt(Operand(at, where), Operand(0, where)), where),
                       Operand(add(Operand(at, where), count), where), Operand(at, where));
}

/// Each index times `step`, by a table of `size` entries: an index outside of it is an error that says where it stands.
Tensor looked_up(const Tensor& index, const Dim& size, std::int64_t step, Location where) {
  const ir::Attributes entries{
      {"shape", Shape{size}}, {"start", 0.0}, {"step", static_cast<double>(step)}, {"dtype", DType::i64}};
  // Recorded as what it is: a graph has no need to store it.
  const Tensor table = detail::would_record({index}) || !size.is_static()
                           ? detail::recorded("arange", entries, where)
                           : detail::beside(apply("arange", {}, entries, where), index);
  const Tensor found =
      apply("index_select", {table, index.reshape({index.shape().numel()}, where)}, {{"dim", std::int64_t{0}}}, where);
  return found.reshape(index.shape(), where);
}

}  // namespace

Tensor embedding(const Operand& indices, const Tensor& weight, std::optional<std::int64_t> padding_idx) {
  const Location where = indices.where().in("embedding");
  require_defined(weight, "embedding", where, "weight");
  if (weight.dim() != 2) fail("embedding", "the weight must be [embeddings, size], got " + weight.describe(), where);
  std::int64_t padding = -1;
  if (padding_idx) {
    const std::int64_t rows = detail::fixed_size(weight, 0, "embedding", where);
    padding = *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
    if (padding < 0 || padding >= rows)
      fail("embedding",
           "padding_idx must be one of the " + std::to_string(rows) + " rows, got " + std::to_string(*padding_idx),
           where);
  }
  return apply("embedding", {weight, checked_index("embedding", indices.tensor(), where)}, {{"padding_idx", padding}},
               where);
}

Tensor one_hot(const Operand& indices, std::int64_t num_classes) {
  const Location where = indices.where().in("one_hot");
  const Tensor index = checked_index("one_hot", indices.tensor(), where);
  if (num_classes < 0) {
    if (index.is_traced()) fail("one_hot", "needs num_classes when it is recorded: the data are not known then", where);
    const std::vector<std::int64_t> values = index.to_vector<std::int64_t>();
    if (values.empty()) fail("one_hot", "needs num_classes for an empty tensor", where);
    const std::int64_t largest = std::max<std::int64_t>(0, *std::max_element(values.begin(), values.end()));
    if (largest == std::numeric_limits<std::int64_t>::max())
      fail("one_hot", fmt::format("the class {} is too large", largest), where);
    num_classes = largest + 1;
  }
  return apply("one_hot", {index}, {{"num_classes", num_classes}}, where);
}

Tensor gather(const Operand& x, std::int64_t dim, const Tensor& index) {
  return apply("gather", {x.tensor(), checked_index("gather", index, x.where())},
               {{"dim", checked_dim("gather", dim, x.tensor(), x.where())}}, x.where());
}

Tensor scatter(const Operand& x, std::int64_t dim, const Tensor& positions, const Operand& source) {
  const Location where = x.where().in("scatter");
  const Tensor index = checked_index("scatter", positions, where);
  Tensor values;
  if (source.is_tensor())
    values = cut_to("scatter", source.tensor(), index, where).to(x.tensor().dtype(), where);
  else
    values = x.tensor().new_full(index.shape(), source.scalar(), {}, where);
  return apply("scatter", {x.tensor(), index, values}, {{"dim", checked_dim("scatter", dim, x.tensor(), where)}},
               where);
}

Tensor scatter_add(const Operand& x, std::int64_t dim, const Tensor& positions, const Tensor& source) {
  const Location where = x.where().in("scatter_add");
  const Tensor index = checked_index("scatter_add", positions, where);
  return apply("scatter_add", {x.tensor(), index, cut_to("scatter_add", source, index, where)},
               {{"dim", checked_dim("scatter_add", dim, x.tensor(), where)}}, where);
}

Tensor index_select(const Operand& x, std::int64_t dim, const Tensor& positions) {
  const Location where = x.where().in("index_select");
  const Tensor index = checked_index("index_select", positions, where);
  return apply("index_select", {x.tensor(), index.dim() == 0 ? index.reshape({1}, where) : index},
               {{"dim", checked_dim("index_select", dim, x.tensor(), where)}}, where);
}

Tensor index(const Operand& x, std::int64_t dim, const Tensor& positions) {
  const Location where = x.where().in("index");
  const Tensor& t = x.tensor();
  const std::int64_t d = checked_dim("index", dim, t, where);
  Tensor at = checked_index("index", positions, where);
  const Shape wanted = at.shape();
  if (t.dim() == 0) fail("index", "a scalar has no dimensions", where);
  at = from_start(at.reshape({wanted.numel()}, where), t.shape()[static_cast<std::size_t>(d)], "index", where);
  const Tensor picked = apply("index_select", {t, at}, {{"dim", d}}, where);
  Shape shape;
  for (std::int64_t k = 0; k < t.dim(); ++k) {
    if (k != d) {
      shape.push_back(t.shape()[static_cast<std::size_t>(k)]);
      continue;
    }
    for (const Dim& w : wanted) shape.push_back(w);
  }
  return picked.reshape(shape, where);
}

namespace {
/// Zeros of `size` slices along dim, to which those of x are added at their index.
Tensor added_at(const char* function, const Tensor& x, const Tensor& index, std::int64_t dim, const Dim& size,
                Location where) {
  const Location at = where.in(function);
  if (size.is_static()) return apply("index_add", {x, index}, {{"dim", dim}, {"size", size.value()}}, at);
  Shape shape = x.shape();
  if (static_cast<std::size_t>(dim) < shape.rank()) shape[static_cast<std::size_t>(dim)] = size;
  detail::require_recording(shape, function, where);
  const Tensor zeros = detail::recorded("full", {{"shape", shape}, {"value", 0.0}, {"dtype", x.dtype()}}, at);
  return apply("index_add", {x, index, zeros}, {{"dim", dim}}, at);
}
}  // namespace

Tensor index_add(const Operand& x, std::int64_t dim, const Tensor& positions, const Tensor& source, double alpha) {
  const Location where = x.where().in("index_add");
  const Tensor& t = x.tensor();
  const std::int64_t d = checked_dim("index_add", dim, t, where);
  if (t.dim() == 0) fail("index_add", "a scalar has no dimensions", where);
  require_defined(source, "index_add", where, "source");
  const Tensor added = added_at("index_add", source, checked_index("index_add", positions, where), d,
                                t.shape()[static_cast<std::size_t>(d)], where);
  return add(Operand(t, where), Operand(added, where), alpha);
}

namespace {

/// x with values[..., count, ...] written at the positions along d.
Tensor with_slices(const Tensor& x, std::int64_t d, const Tensor& positions, const Tensor& values, Location where) {
  Shape column;
  for (std::size_t k = 0; k < x.shape().rank(); ++k)
    column.push_back(k == static_cast<std::size_t>(d) ? positions.shape()[0] : Dim(1));
  const Tensor everywhere = positions.reshape(column, where).expand(values.shape(), where);
  return apply("scatter", {x, everywhere, values}, {{"dim", d}}, where);
}

/// A vector of positions, of a number or a vector.
Tensor checked_positions(const char* function, const Tensor& index, Location where) {
  const Tensor positions = checked_index(function, index, where);
  if (positions.dim() > 1) fail(function, "the index must be a vector, got " + index.describe(), where);
  return positions.dim() == 0 ? positions.reshape({1}, where) : positions;
}

}  // namespace

Tensor index_copy(const Operand& x, std::int64_t dim, const Tensor& index, const Tensor& source) {
  const Location where = x.where().in("index_copy");
  const Tensor& t = x.tensor();
  require_defined(source, "index_copy", where, "source");
  if (t.dim() == 0)
    return index_copy(Operand(t.reshape({1}, where), where), dim, index, source.reshape({1}, where))
        .reshape(Shape{}, where);
  const std::int64_t d = checked_dim("index_copy", dim, t, where);
  const Tensor positions = checked_positions("index_copy", index, where);
  std::vector<Dim> wanted = t.shape().dims();
  wanted[static_cast<std::size_t>(d)] = positions.shape()[0];
  const ir::TensorType type{t.dtype(), Shape(wanted)};
  if (source.dtype() != type.dtype || source.shape() != type.shape)
    fail("index_copy", "the source must be " + type.to_string() + ", a slice for each index, got " + source.describe(),
         where);
  return with_slices(t, d, positions, source, where);
}

Tensor index_fill(const Operand& x, std::int64_t dim, const Tensor& index, const Operand& value) {
  const Location where = x.where().in("index_fill");
  const Tensor& t = x.tensor();
  if (t.dim() == 0) return index_fill(Operand(t.reshape({1}, where), where), dim, index, value).reshape(Shape{}, where);
  const std::int64_t d = checked_dim("index_fill", dim, t, where);
  if (value.is_tensor() && value.tensor().dim() != 0)
    fail("index_fill", "the value must be a number or a tensor without dimensions, got " + value.tensor().describe(),
         where);
  if (!value.is_tensor()) detail::require_fits(value.scalar(), t.dtype(), "index_fill", where);
  const Tensor positions = from_start(checked_positions("index_fill", index, where),
                                      t.shape()[static_cast<std::size_t>(d)], "index_fill", where);
  std::vector<Dim> shape = t.shape().dims();
  shape[static_cast<std::size_t>(d)] = positions.shape()[0];
  const Tensor one =
      value.is_tensor() ? value.tensor().to(t.dtype(), where) : t.new_full({}, value.scalar(), {}, where);
  return with_slices(t, d, positions, one.expand(Shape(shape), where), where);
}

Tensor bincount(const Operand& x, const Tensor& weights, std::int64_t minlength) {
  const Location where = x.where().in("bincount");
  const Tensor index = checked_index("bincount", x.tensor(), where);
  if (index.dim() != 1) fail("bincount", "expects a vector, got " + x.tensor().describe(), where);
  if (minlength < 0) fail("bincount", fmt::format("minlength must not be negative, got {}", minlength), where);
  if (weights.defined() && weights.shape() != index.shape())
    fail("bincount",
         "the weights must have the shape of the numbers, got " + weights.describe() + " for " + x.tensor().describe(),
         where);
  std::int64_t size = minlength;
  if (index.is_traced()) {
    if (size == 0)
      fail("bincount", "needs minlength when it is recorded, the size of the result: the numbers are not known then",
           where);
  } else {
    for (const std::int64_t i : index.to_vector<std::int64_t>()) {
      if (i < 0) fail("bincount", fmt::format("the numbers must not be negative, got {}", i), where);
      if (i == std::numeric_limits<std::int64_t>::max())
        fail("bincount", fmt::format("the number {} is too large", i), where);
      size = std::max(size, i + 1);
    }
  }
  Tensor each = weights.defined() ? weights.detach(where) : detail::filled(index.shape(), 1, DType::i64, index, where);
  if (weights.defined() && !ir::is_floating(each.dtype())) each = each.to(DType::f64, where);
  return apply("scatter_add", {detail::filled({size}, 0, each.dtype(), index, where), index, each},
               {{"dim", std::int64_t{0}}}, where);
}

Tensor take_along_dim(const Operand& x, const Tensor& indices, std::optional<std::int64_t> dim) {
  const Location where = x.where().in("take_along_dim");
  Tensor t = x.tensor(), at = checked_index("take_along_dim", indices, where);
  if (!dim) {
    t = t.reshape({t.shape().numel()}, where);
    at = at.reshape({at.shape().numel()}, where);
  }
  if (t.dim() != at.dim())
    fail("take_along_dim",
         "the indices must have as many dimensions as the input, got " + at.describe() + " and " + t.describe(), where);
  const auto d = static_cast<std::size_t>(checked_dim("take_along_dim", dim.value_or(0), t, where));
  std::vector<Dim> wide = t.shape().dims(), indexed = at.shape().dims();
  for (std::size_t k = 0; k < wide.size(); ++k) {
    if (k == d || wide[k] == indexed[k]) continue;
    const Dim both = wide[k] == Dim(1) ? indexed[k] : wide[k];
    wide[k] = indexed[k] = both;
  }
  t = t.expand(Shape(wide), where);
  at = at.expand(Shape(indexed), where);
  return apply("gather", {t, at}, {{"dim", static_cast<std::int64_t>(d)}}, where);
}

Tensor take(const Operand& x, const Tensor& indices) {
  const Location where = x.where().in("take");
  const Tensor& t = x.tensor();
  return index(Operand(t.reshape({t.shape().numel()}, where), where), 0, checked_index("take", indices, where));
}

// ---- several tensors of positions -----------------------------------------------------------------------------------

namespace {

/// A tensor with the dimensions that are indexed side by side, and as one.
struct Indexed {
  Tensor x;                            ///< [before..., rows, after...]
  std::size_t dim = 0;                 ///< of the rows
  Shape inner;                         ///< what the rows were: the indexed dimensions
  Sizes order;                         ///< of x's dimensions, before the indexed ones became one
  Tensor at;                           ///< of rows, checked: the index tensors as one
  Shape with(const Shape& in) const {  ///< x's shape with `in` for the rows
    Shape shape;
    for (std::size_t k = 0; k < x.shape().rank(); ++k) {
      if (k != dim) {
        shape.push_back(x.shape()[k]);
        continue;
      }
      for (const Dim& d : in) shape.push_back(d);
    }
    return shape;
  }
};

/// `alone`: one index tensor is checked, too; else whoever reads the rows does it.
Indexed indexed_rows(const char* function, const Tensor& x, const detail::IndexTensors& indices, bool alone,
                     Location where) {
  Indexed rows;
  const std::int64_t first = indices.front().first, last = indices.back().first;
  const bool neighbours = last - first + 1 == static_cast<std::int64_t>(indices.size());
  rows.dim = neighbours ? static_cast<std::size_t>(first) : 0;
  const auto indexed = [&](std::int64_t d) {
    return std::any_of(indices.begin(), indices.end(), [d](const auto& i) { return i.first == d; });
  };
  for (std::int64_t d = 0; d < x.dim(); ++d)
    if (!indexed(d)) rows.order.push_back(d);
  Dim count = 1;
  std::vector<Dim> sizes;
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const Dim size = x.shape()[static_cast<std::size_t>(indices[k].first)];
    rows.order.insert(rows.order.begin() + static_cast<std::ptrdiff_t>(rows.dim + k), indices[k].first);
    rows.inner.push_back(size);
    sizes.push_back(size);
    count = count * size;
  }
  const Tensor turned = neighbours ? x : x.permute(rows.order, where);
  Shape shape;
  for (std::size_t k = 0; k < turned.shape().rank(); ++k)
    if (k < rows.dim || k >= rows.dim + indices.size())
      shape.push_back(turned.shape()[k]);
    else if (k == rows.dim)
      shape.push_back(count);
  rows.x = turned.reshape(shape, where);
  Dim stride = count;
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const Tensor& given = indices[k].second;
    require_defined(given, function, where, "index");
    if (given.dtype() == DType::boolean || given.dtype() == DType::u8)
      fail(function,
           "a tensor that is an index must be of i64, i32 or i8, got " + given.describe() +
               ": how many elements a mask selects is known only when it runs; where() and masked_fill() take one",
           where);
    const Tensor at = detail::beside(checked_index(function, given, where), x, where);
    for (std::size_t d = 0; rows.at.defined() && d < std::min(at.shape().rank(), rows.at.shape().rank()); ++d) {
      const Dim a = at.shape()[at.shape().rank() - 1 - d], b = rows.at.shape()[rows.at.shape().rank() - 1 - d];
      if (a != b && a != Dim(1) && b != Dim(1))
        fail(function,
             "the index tensors must broadcast together, got " + at.describe() + " beside " + rows.at.describe(),
             where);
    }
    stride = sizes[k] == Dim(0) ? Dim(0) : stride / sizes[k];
    Tensor part = from_start(at, sizes[k], function, where);
    // Looked up, not multiplied: an index outside of its own dimension is an error, whatever row it would come to.
    if (indices.size() > 1 || alone)
      part = looked_up(part, sizes[k], stride.is_static() ? std::max<std::int64_t>(stride.value(), 1) : 1, where);
    if (!stride.is_static())
      part = mul(Operand(part, where), Operand(detail::size_value(stride, DType::i64, function, where), where));
    rows.at = rows.at.defined() ? add(Operand(rows.at, where), Operand(part, where)) : part;
  }
  return rows;
}

}  // namespace

Tensor detail::index_by(const Tensor& x, const IndexTensors& indices, Location where) {
  const Indexed rows = indexed_rows("index", x, indices, false, where);
  const Tensor picked = apply("index_select", {rows.x, rows.at.reshape({rows.at.shape().numel()}, where)},
                              {{"dim", static_cast<std::int64_t>(rows.dim)}}, where);
  return picked.reshape(rows.with(rows.at.shape()), where);
}

Tensor index_put(const Operand& x, const std::vector<TensorIndex>& indices, const Operand& given, bool accumulate) {
  const Location where = x.where().in("index_put");
  const Tensor& t = x.tensor();
  detail::IndexTensors tensors;
  const auto dots = std::count_if(indices.begin(), indices.end(),
                                  [](const TensorIndex& i) { return i.kind() == TensorIndex::Kind::ellipsis; });
  const auto taken = static_cast<std::int64_t>(indices.size()) - dots;
  if (dots > 1) fail("index_put", "one ellipsis at most", where);
  if (taken > t.dim()) fail("index_put", fmt::format("{} indices for {}", taken, t.describe()), where);
  std::int64_t at = 0;
  for (const TensorIndex& i : indices) {
    const indexing::Slice& s = i.slice();
    if (i.kind() == TensorIndex::Kind::tensor)
      tensors.emplace_back(at++, i.tensor());
    else if (i.kind() == TensorIndex::Kind::ellipsis)
      at += t.dim() - taken;
    else if (i.kind() == TensorIndex::Kind::slice && !s.start.value && !s.stop.value && !s.step.value)
      ++at;
    else
      fail("index_put",
           "the indices must be tensors, Slice() and the ellipsis; views take a part of a dimension: "
           "x.index({...}).copy_(values)",
           where);
  }
  if (tensors.empty()) fail("index_put", "expects one index tensor at least", where);
  const Indexed rows = indexed_rows("index_put", t, tensors, !accumulate, where);
  const Shape wanted = rows.with(rows.at.shape()), flat = rows.with({rows.at.shape().numel()});
  Tensor values;
  if (given.is_tensor()) {
    values = given.tensor();
    if (values.dtype() != t.dtype())
      fail("index_put",
           "the values must be " + std::string(ir::name(t.dtype())) + ", as the input is, got " + values.describe(),
           where);
    const Shape& have = values.shape();
    bool fits = have.rank() <= wanted.rank();
    for (std::size_t d = 0; fits && d < have.rank(); ++d) {
      const Dim a = have[have.rank() - 1 - d];
      fits = a == wanted[wanted.rank() - 1 - d] || a == Dim(1);
    }
    if (!fits)
      fail("index_put", "the values must broadcast to " + wanted.to_string() + ", got " + values.describe(), where);
  } else {
    values = full({}, given.scalar(), t.dtype(), where);
  }
  values = detail::beside(values, t, where);
  values = values.expand(wanted, where).reshape(flat, where);
  const Tensor places = rows.at.reshape({rows.at.shape().numel()}, where);
  const auto dim = static_cast<std::int64_t>(rows.dim);
  Tensor put;
  if (accumulate) {
    if (t.dtype() == DType::boolean) fail("index_put", "bools cannot be added", where);
    const Dim& size = rows.x.shape()[rows.dim];
    put = apply("index_add", {values, places, rows.x}, {{"dim", dim}, {"size", size.is_static() ? size.value() : -1}},
                where);
  } else {
    Shape column;
    for (std::size_t k = 0; k < flat.rank(); ++k) column.push_back(k == rows.dim ? flat[k] : Dim(1));
    put = apply("scatter", {rows.x, places.reshape(column, where).expand(flat, where), values}, {{"dim", dim}}, where);
  }
  put = put.reshape(rows.with(rows.inner), where);
  Sizes back(rows.order.size());
  for (std::size_t k = 0; k < rows.order.size(); ++k)
    back[static_cast<std::size_t>(rows.order[k])] = static_cast<std::int64_t>(k);
  return std::is_sorted(back.begin(), back.end()) ? put : put.permute(back, where);
}

// ---- scatter_reduce -------------------------------------------------------------------------------------------------

namespace {

constexpr std::string_view kFixedProducts =
    "products are made of an index of a fixed length; sum, mean, amax and amin take a symbol, and exp() of the sum of "
    "log() is a product, too";

/// Elements of x[..., n, ...] along `dim`, each multiplied by those before it whose key is the same: equal keys are
/// neighbours. In log2(n) steps, each of which reaches twice as far.
Tensor running_products(Tensor x, const Tensor& key, std::int64_t dim, Location where) {
  const detail::At at(where);
  const std::int64_t n = detail::fixed_size(key, dim, "scatter_reduce", where, kFixedProducts);
  for (std::int64_t step = 1; step < n; step *= 2) {
    const Tensor same = eq(at(key.slice(dim, step, n, 1, where)), at(key.slice(dim, 0, n - step, 1, where)));
    const Tensor before = graven::where(at(same), at(x.slice(dim, 0, n - step, 1, where)), Operand(1, where));
    x = cat({x.slice(dim, 0, step, 1, where), at.mul(x.slice(dim, step, n, 1, where), before)}, dim, where);
  }
  return x;
}

/// 0 with the slope 1; also of infinity.
Tensor nothing_of(const Tensor& x, Location where) {
  const detail::At at(where);
  const Tensor finite = graven::where(at(isfinite(at(x))), at(x), Operand(0, where));
  return at.sub(finite, finite.detach(where));
}

}  // namespace

Tensor scatter_reduce(const Operand& x, std::int64_t dim, const Tensor& positions, const Tensor& given,
                      std::string_view reduce, bool include_self) {
  const Location where = x.where().in("scatter_reduce");
  const detail::At at(where);
  const Tensor& t = x.tensor();
  constexpr const char* kName = "scatter_reduce";
  if (reduce != "sum" && reduce != "prod" && reduce != "mean" && reduce != "amax" && reduce != "amin")
    fail(kName, "reduce must be sum, prod, mean, amax or amin, got '" + std::string(reduce) + "'", where);
  const Tensor whole = checked_index(kName, positions, where);
  require_defined(given, kName, where, "source");
  if (given.dtype() != t.dtype())
    fail(kName, "the source must be " + std::string(ir::name(t.dtype())) + ", as the input is, got " + given.describe(),
         where);
  if (t.dtype() == DType::boolean) fail(kName, "bools cannot be reduced, got " + t.describe(), where);
  if (reduce == "mean" && !ir::is_floating(t.dtype()))
    fail(kName, "the mean is of floating-point numbers, got " + t.describe(), where);
  if (t.dim() != whole.dim())
    fail(kName, "the index must have as many dimensions as the input, got " + whole.describe() + " and " + t.describe(),
         where);
  if (t.dim() == 0) {
    const Tensor one = scatter_reduce(at(t.reshape({1}, where)), 0, whole.reshape({1}, where),
                                      cut_to(kName, given, whole, where).reshape({1}, where), reduce, include_self);
    return one.reshape(Shape{}, where);
  }
  const std::int64_t d = checked_dim(kName, dim, t, where);
  const Tensor source = cut_to(kName, given, whole, where);
  // What is sorted first would be reported at its sorted place.
  const Dim size = t.shape()[static_cast<std::size_t>(d)];
  const bool sorted = reduce != "sum" && reduce != "mean" && size != Dim(0);
  const Tensor index = sorted ? looked_up(whole, size, 1, where) : whole;
  const auto added = [&](const Tensor& base, const Tensor& where_to, const Tensor& values) {
    return apply("scatter_add", {base, where_to, values}, {{"dim", d}}, where);
  };
  const auto written = [&](const Tensor& base, const Tensor& where_to, const Tensor& values) {
    return apply("scatter", {base, where_to, values}, {{"dim", d}}, where);
  };
  const auto each = [&](double value) { return detail::filled(index.shape(), value, t.dtype(), index, where); };
  const auto places = [&](double value) { return detail::filled(t.shape(), value, t.dtype(), t, where); };
  const auto gathered = [&](const Tensor& from, const Tensor& where_from) {
    return apply("gather", {from, where_from}, {{"dim", d}}, where);
  };

  if (reduce == "sum" || index.shape().numel() == Dim(0))
    return added(include_self ? t : written(t, index, each(0)), index, source);
  if (reduce == "mean") {
    const Tensor count = added(places(include_self ? 1 : 0), index, each(1));
    const Tensor sum = added(include_self ? t : written(t, index, each(0)), index, source);
    return at.div(sum, include_self ? count : maximum(at(count), Operand(1, where)));
  }
  const auto touched = [&] { return gt(at(written(places(0), index, each(1))), Operand(0, where)); };
  if (reduce == "prod") {
    const auto [key, order] = sort(at(index), d);
    const Tensor products = running_products(gathered(source, order), key, d, where);
    const std::int64_t n = detail::fixed_size(index, d, kName, where, kFixedProducts);
    // The last one of a key has the product of all.
    Tensor lasts = products;
    if (n > 1) {
      const Tensor ends = ne(at(key.slice(d, 1, n, 1, where)), at(key.slice(d, 0, n - 1, 1, where)));
      lasts = cat({graven::where(at(ends), at(products.slice(d, 0, n - 1, 1, where)), Operand(0, where)),
                   products.slice(d, n - 1, n, 1, where)},
                  d, where);
    }
    const Tensor factor = graven::where(at(touched()), at(added(places(0), key, lasts)), Operand(1, where));
    return include_self ? at.mul(t, factor) : graven::where(at(touched()), at(factor), at(t));
  }

  // Written in ascending order the largest stays, and NaN, which is sorted behind all numbers. The smallest is minus
  // the largest of the negative.
  const bool floating = ir::is_floating(t.dtype()), smallest = reduce == "amin", negated = smallest && floating;
  const auto turned = [&](const Tensor& v) { return negated ? neg(at(v)) : v; };
  const Tensor own = turned(t.detach(where));
  const auto [values, order] = sort(at(turned(source.detach(where))), d, smallest && !floating);
  Tensor best = written(own, gathered(index, order), values);
  if (include_self) best = smallest && !floating ? minimum(at(own), at(best)) : maximum(at(own), at(best));
  best = turned(best);
  if (!floating || !is_grad_enabled() || !(t.requires_grad() || source.requires_grad())) return best;
  // To which the elements that are it add nothing, each with its share of the slope. As in PyTorch what is at a place
  // counts as one of them, even where it is left out and its share goes to nobody.
  const Tensor mine = eq(at(t.detach(where)), at(best)).to(t.dtype(), where);
  const Tensor taken = include_self ? mine : graven::where(at(touched()), Operand(0, where), at(mine));
  const Tensor theirs = eq(at(source.detach(where)), at(gathered(best, index))).to(t.dtype(), where);
  const Tensor share = reciprocal(at(maximum(at(added(mine, index, theirs)), Operand(1, where))));
  return at.add(best, added(at.mul(nothing_of(t, where), at.mul(taken, share)), index,
                            at.mul(nothing_of(source, where), at.mul(theirs, gathered(share, index)))));
}

// ---- bags -----------------------------------------------------------------------------------------------------------

namespace {

constexpr const char* kBag = "embedding_bag";

/// The bag of each of n indices: how many bags begin at it or before it, less one.
Tensor bag_of_each(const Tensor& offsets, std::int64_t n, Location where) {
  const detail::At at(where);
  const Tensor none = detail::filled({n + 1}, 0, DType::i64, offsets, where),
               one = detail::filled(offsets.shape(), 1, DType::i64, offsets, where);
  const Tensor begin = apply("scatter_add", {none, offsets, one}, {{"dim", std::int64_t{0}}}, where);
  return sub(at(cumsum(at(begin), 0).slice(0, 0, n, 1, where)), Operand(1, where));
}

/// Of the rows[n, size] of each bag the largest, element by element, and of equals the first, whose slope is 1.
Tensor largest_in_bags(const Tensor& rows, const Tensor& compared, const Tensor& bag, std::int64_t bags,
                       Location where) {
  const detail::At at(where);
  const auto [values, order] = sort(at(compared.detach(where)), 0, true);
  const Tensor wide = bag.unsqueeze(1, where).expand(rows.shape(), where);
  const Tensor target = apply("gather", {wide, order}, {{"dim", std::int64_t{0}}}, where);
  // Written from the smallest to the largest: the last one stays.
  const Tensor none = detail::filled({bags, rows.shape()[1]}, 0, DType::i64, order, where);
  const Tensor winner =
      apply("scatter", {none, flip(at(target), {0}), flip(at(order), {0})}, {{"dim", std::int64_t{0}}}, where);
  return apply("gather", {rows, winner}, {{"dim", std::int64_t{0}}}, where);
}

}  // namespace

Tensor embedding_bag(const Operand& indices, const Tensor& weight, const EmbeddingBagFunctionOptions& o) {
  const Location where = indices.where().in("embedding_bag");
  const detail::At at(where);
  const Tensor index = checked_index(kBag, indices.tensor(), where);
  if (o.mode != "sum" && o.mode != "mean" && o.mode != "max")
    fail(kBag, "mode must be sum, mean or max, got '" + o.mode + "'", where);
  require_defined(weight, kBag, where, "weight");
  if (weight.dim() != 2) fail(kBag, "the weight must be [embeddings, size], got " + weight.describe(), where);
  if (index.dim() != 1 && index.dim() != 2)
    fail(kBag, "the indices must be [bags, length], or [n] with offsets, got " + index.describe(), where);
  if (index.dim() == 2 && o.offsets.defined())
    fail(kBag, "offsets are for a vector of indices; each row of " + index.describe() + " is a bag", where);
  if (index.dim() == 2 && o.include_last_offset)
    fail(kBag, "include_last_offset is for a vector of indices with offsets, got " + index.describe(), where);
  if (index.dim() == 1 && !o.offsets.defined())
    fail(kBag, "a vector of indices needs offsets, where the bags begin", where);
  if (const Tensor& w = o.per_sample_weights; w.defined()) {
    if (o.mode != "sum") fail(kBag, "per_sample_weights are for the mode sum, not '" + o.mode + "'", where);
    if (w.shape() != index.shape() || w.dtype() != weight.dtype())
      fail(kBag,
           "the per_sample_weights must be of the indices' shape and of the weight's dtype, " +
               ir::TensorType{weight.dtype(), index.shape()}.to_string() + ", got " + w.describe(),
           where);
  }
  Tensor rows = embedding(at(index), weight, o.padding_idx);
  Tensor counted;  // bool, of the indices' shape; none: all are
  if (o.padding_idx)
    counted = ne(at(index), Operand(*o.padding_idx < 0 ? *o.padding_idx + detail::fixed_size(weight, 0, kBag, where)
                                                       : *o.padding_idx,
                                    where));
  const bool largest = o.mode == "max";
  const auto only_counted = [&](const Tensor& of, double otherwise) {
    return counted.defined() ? graven::where(at(counted.unsqueeze(-1, where)), at(of), Operand(otherwise, where)) : of;
  };
  const auto ones_each = [&] {
    return counted.defined() ? counted.to(weight.dtype(), where)
                             : detail::filled(index.shape(), 1, weight.dtype(), index, where);
  };
  const auto not_below_one = [&](const Tensor& count) {
    return maximum(at(count), Operand(1, where)).unsqueeze(1, where);
  };
  if (!largest) rows = only_counted(rows, 0);
  if (o.per_sample_weights.defined()) rows = at.mul(rows, o.per_sample_weights.unsqueeze(-1, where));
  const double lowest = -std::numeric_limits<double>::infinity();

  if (index.dim() == 2) {
    if (largest && index.shape()[1] != Dim(0)) {
      const Tensor winner = argmax(at(only_counted(rows.detach(where), lowest)), 1, true);
      const Tensor best = apply("gather", {rows, winner}, {{"dim", std::int64_t{1}}}, where).squeeze(1, where);
      if (!counted.defined()) return best;
      return graven::where(at(any(at(counted), {1}, true)), at(best), Operand(0, where));
    }
    const Tensor total = sum(at(rows), {1});
    return o.mode == "mean" ? at.div(total, not_below_one(sum(at(ones_each()), {1}))) : total;
  }

  if (o.offsets.dim() != 1 || !ir::is_integral(o.offsets.dtype()))
    fail(kBag, "the offsets must be a vector of integers, got " + o.offsets.describe(), where);
  Tensor offsets = checked_index(kBag, o.offsets, where);
  constexpr std::string_view kRows =
      "indices of [bags, length] take a symbol in either dimension, with padding_idx for what is not there";
  const std::int64_t n = detail::fixed_size(index, 0, kBag, where, kRows);
  const std::int64_t bags = detail::fixed_size(offsets, 0, kBag, where, kRows) - (o.include_last_offset ? 1 : 0);
  if (bags < 0) fail(kBag, "include_last_offset needs one offset at least, got " + offsets.describe(), where);
  if (!offsets.is_traced() && offsets.numel() > 0)
    if (const std::int64_t first = offsets.to_vector<std::int64_t>().front(); first != 0)
      fail(kBag, fmt::format("the first offset must be 0, got {}", first), where);
  offsets = offsets.slice(0, 0, bags, 1, where);
  const Tensor bag = bag_of_each(offsets, n, where);
  const auto in_bags = [&](const Tensor& x) {
    return apply("index_add", {x, bag}, {{"dim", std::int64_t{0}}, {"size", bags}}, where);
  };
  if (o.mode == "sum" || n == 0) return in_bags(rows);
  const Tensor count = in_bags(ones_each());
  if (o.mode == "mean") return at.div(in_bags(rows), not_below_one(count));
  const Tensor best = largest_in_bags(rows, only_counted(rows, lowest), bag, bags, where);
  return graven::where(at(gt(at(count), Operand(0, where)).unsqueeze(1, where)), at(best), Operand(0, where));
}

}  // namespace graven
