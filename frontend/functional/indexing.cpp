#include "graven/functional/indexing.h"

#include <algorithm>

#include "frontend/dispatch.h"
#include "graven/functional.h"

namespace graven {

using detail::apply;
using detail::fail;

namespace {

/// i64, from the narrower integers.
Tensor checked_index(const char* function, const Tensor& index, Location where) {
  if (!index.defined()) fail(function, "the index is undefined", where);
  if (!ir::is_integral(index.dtype())) fail(function, "the index must be of integers, got " + index.describe(), where);
  return index.to(DType::i64, where);
}

std::int64_t checked_dim(const char* function, std::int64_t dim, const Tensor& x, Location where) {
  return detail::normalize_dim(dim, x.dim(), function, where);
}

/// The part of `source` that an index of this shape reads.
Tensor cut_to(const char* function, const Tensor& source, const Tensor& index, Location where) {
  if (source.dim() != index.dim())
    fail(function, "the source must have as many dimensions as the index, got " + source.describe() + " and " + index.describe(), where);
  Tensor cut = source;
  for (std::size_t d = 0; d < index.shape().rank(); ++d) {
    if (cut.shape()[d] == index.shape()[d]) continue;
    if (!index.shape()[d].is_static() || !cut.shape()[d].is_static() || index.shape()[d].value() > cut.shape()[d].value())
      fail(function, "the index must not be larger than the source, got " + index.describe() + " and " + source.describe(), where);
    cut = cut.slice(static_cast<std::int64_t>(d), 0, index.shape()[d].value(), 1, where);
  }
  return cut;
}

}  // namespace

Tensor embedding(const Operand& indices, const Tensor& weight, std::optional<std::int64_t> padding_idx) {
  const Location where = indices.where();
  if (weight.dim() != 2) fail("embedding", "the weight must be [embeddings, size], got " + weight.describe(), where);
  std::int64_t padding = -1;
  if (padding_idx) {
    const std::int64_t rows = weight.size(0);
    padding = *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
    if (padding < 0 || padding >= rows)
      fail("embedding", "padding_idx must be one of the " + std::to_string(rows) + " rows, got " + std::to_string(*padding_idx), where);
  }
  return apply("embedding", {weight, checked_index("embedding", indices.tensor(), where)}, {{"padding_idx", padding}}, where);
}

Tensor one_hot(const Operand& indices, std::int64_t num_classes) {
  const Location where = indices.where();
  const Tensor index = checked_index("one_hot", indices.tensor(), where);
  if (num_classes < 0) {
    if (index.is_traced()) fail("one_hot", "needs num_classes when it is recorded: the data are not known then", where);
    const std::vector<std::int64_t> values = index.to_vector<std::int64_t>();
    if (values.empty()) fail("one_hot", "needs num_classes for an empty tensor", where);
    num_classes = std::max<std::int64_t>(0, *std::max_element(values.begin(), values.end())) + 1;
  }
  return apply("one_hot", {index}, {{"num_classes", num_classes}}, where);
}

Tensor gather(const Operand& x, std::int64_t dim, const Tensor& index) {
  return apply("gather", {x.tensor(), checked_index("gather", index, x.where())}, {{"dim", checked_dim("gather", dim, x.tensor(), x.where())}},
               x.where());
}

Tensor scatter(const Operand& x, std::int64_t dim, const Tensor& positions, const Operand& source) {
  const Location where = x.where();
  const Tensor index = checked_index("scatter", positions, where);
  Tensor values;
  if (source.is_tensor())
    values = cut_to("scatter", source.tensor(), index, where).to(x.tensor().dtype(), where);
  else
    values = mul(Operand(index, where), Operand(0, where)).to(x.tensor().dtype(), where) + Operand(source.scalar(), where);
  return apply("scatter", {x.tensor(), index, values.to(x.tensor().dtype(), where)}, {{"dim", checked_dim("scatter", dim, x.tensor(), where)}},
               where);
}

Tensor scatter_add(const Operand& x, std::int64_t dim, const Tensor& positions, const Tensor& source) {
  const Location where = x.where();
  const Tensor index = checked_index("scatter_add", positions, where);
  return apply("scatter_add", {x.tensor(), index, cut_to("scatter_add", source, index, where)},
               {{"dim", checked_dim("scatter_add", dim, x.tensor(), where)}}, where);
}

Tensor index_select(const Operand& x, std::int64_t dim, const Tensor& positions) {
  const Location where = x.where();
  const Tensor index = checked_index("index_select", positions, where);
  return apply("index_select", {x.tensor(), index.dim() == 0 ? index.reshape({1}, where) : index},
               {{"dim", checked_dim("index_select", dim, x.tensor(), where)}}, where);
}

Tensor index(const Operand& x, std::int64_t dim, const Tensor& positions) {
  const Location where = x.where();
  const Tensor& t = x.tensor();
  const std::int64_t d = checked_dim("index", dim, t, where);
  Tensor at = checked_index("index", positions, where);
  const Shape wanted = at.shape();
  at = at.reshape({wanted.numel()}, where);
  at = graven::where(Operand(lt(Operand(at, where), Operand(0, where)), where), Operand(add(Operand(at, where), Operand(t.size(d), where)), where),
                     Operand(at, where));
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

Tensor index_add(const Operand& x, std::int64_t dim, const Tensor& positions, const Tensor& source, double alpha) {
  const Location where = x.where();
  const Tensor& t = x.tensor();
  const std::int64_t d = checked_dim("index_add", dim, t, where);
  const Tensor added = apply("index_add", {source, checked_index("index_add", positions, where)}, {{"dim", d}, {"size", t.size(d)}}, where);
  return add(Operand(t, where), Operand(added, where), alpha);
}

Tensor take_along_dim(const Operand& x, const Tensor& indices, std::int64_t dim) {
  const Location where = x.where();
  Tensor t = x.tensor(), at = checked_index("take_along_dim", indices, where);
  if (t.dim() != at.dim())
    fail("take_along_dim", "the indices must have as many dimensions as the input, got " + at.describe() + " and " + t.describe(), where);
  const auto d = static_cast<std::size_t>(checked_dim("take_along_dim", dim, t, where));
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

}  // namespace graven
