// Tensors: a handle to shared elements, as in PyTorch. Copying a Tensor copies the handle; clone() copies the elements.
//
//   Tensor x = randn({64, 3});
//   Tensor y = (x * 2 + 1).sum(-1);        // computes at once, outside of a graph's build()
//   Tensor w = randn({3}).requires_grad_();
//   matmul(x, w).square().mean().backward();
//   w.grad();                              // f32[3]
//
// Names, defaults, broadcasting, dtype promotion and numbers are PyTorch's. Views (view, transpose, slice, ...) share
// memory with what they are taken from. Inside nn::Graph's build() nothing is computed: the same calls record the
// graph; a tensor then has a shape and a dtype but no data, and its dimensions may be symbolic (spec({Dim("batch", 64),
// 3})).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "graven/device.h"
#include "graven/layout.h"
#include "graven/types.h"

namespace graven {

class Operand;
class Tensor;
class TensorIndex;

namespace detail {
struct TensorImpl;
/// A dimension, which is made of no number: arange(5) means a Scalar.
struct Length {
  template <std::same_as<Dim> D>
  Length(const D& size) : size(size) {}  // NOLINT: implicit, as its use is
  Dim size;
};
/// An index with the line that it stands on: operators take no further argument.
struct Position {
  template <class T>
    requires std::convertible_to<T, std::int64_t> && (std::is_integral_v<T> || std::is_enum_v<T>)
  Position(T index, Location where = Location::current())  // NOLINT: implicit, as its use is
      : index(static_cast<std::int64_t>(index)), where(where) {}
  std::int64_t index;
  Location where;
};
}  // namespace detail

/// Options of the factories: zeros({2}, i64), zeros({2}, device), zeros({2}, {f32, true}).
struct TensorOptions {
  DType dtype = DType::f32;
  bool requires_grad = false;
  Device device = {};
  TensorOptions() = default;
  TensorOptions(DType dtype, bool requires_grad = false, const Device& device = {})  // NOLINT: implicit
      : dtype(dtype), requires_grad(requires_grad), device(device) {}
  TensorOptions(DType dtype, const Device& device) : dtype(dtype), device(device) {}
  TensorOptions(const Device& device) : device(device) {}  // NOLINT: implicit
};

class Tensor {
 public:
  /// No tensor at all: an absent bias, for example.
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  ~Tensor() = default;
  /// Assigning to a name assigns the handle: it refers to the other's tensor from now on.
  Tensor& operator=(const Tensor& other) &;
  Tensor& operator=(Tensor&& other) & noexcept;
  /// Assigning to a view without a name writes its elements, what it is a view of included: x[0] = ones({3}),
  /// x.index({Slice(), 0}) = 5. As copy_() and fill_(): broadcast, and converted to the view's dtype. User error where
  /// nobody would see it, since what is assigned to is a copy, such as x.index() with index tensors.
  Tensor operator=(const Operand& value) &&;

  bool defined() const { return impl_ != nullptr; }

  // ---- what it is ----
  // Each is a user error of an undefined tensor, which is nothing.
  DType dtype(Location where = Location::current()) const;
  const Shape& shape(Location where = Location::current()) const;
  /// The number of dimensions.
  std::int64_t dim(Location where = Location::current()) const;
  /// The size of one dimension; negative counts from the end. User error when it is symbolic: shape() has it, and
  /// size_of(x, d) as a tensor.
  std::int64_t size(std::int64_t d, Location where = Location::current()) const;
  Sizes sizes(Location where = Location::current()) const;
  Sizes strides(Location where = Location::current()) const;
  std::int64_t storage_offset(Location where = Location::current()) const;
  std::int64_t numel(Location where = Location::current()) const;
  bool is_contiguous(Location where = Location::current()) const;
  /// Recorded by a graph's build(): has a type, but no data.
  bool is_traced(Location where = Location::current()) const;
  bool is_view(Location where = Location::current()) const;
  /// "f32[64,3]"
  std::string describe(Location where = Location::current()) const;
  bool is_floating_point(Location where = Location::current()) const;
  /// allclose() and equal() with another one.
  bool allclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8,
                Location where = Location::current()) const;
  bool equal(const Tensor& other, Location where = Location::current()) const;
  /// Whether two handles refer to the same tensor.
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

  // ---- its elements ----
  /// Pointer to the first element; T must be the dtype's C++ type. Elements of a view lie strides() apart: contiguous()
  /// first. What is written through it, autograd does not notice; a graph whose parameter or buffer it is sees it at
  /// the next call, if data() was asked after the last one: a graph for inference computes what follows from its
  /// weights once, and again after they may have changed.
  template <class T>
  T* data(Location where = Location::current()) const {
    return static_cast<T*>(checked_data(dtype_of<T>(), where));
  }
  /// The same, of whatever type and wherever it lies: of a tensor on a device an address of that device's memory, where
  /// what was computed is in the order of its stream (cuda::stream()).
  void* data_ptr(Location where = Location::current()) const;
  /// The only element. User error when there are more.
  template <class T>
  T item(Location where = Location::current()) const {
    const Scalar s = item_scalar(where);
    return std::is_floating_point_v<T> ? static_cast<T>(s.number()) : static_cast<T>(s.integer());
  }
  /// All elements, row-major, converted.
  template <class T>
  std::vector<T> to_vector(Location where = Location::current()) const;

  // ---- ranks ----
  /// What each rank has of it where a graph has its tensors in parts (GraphBase::enable_tensor_parallel): of a
  /// parameter or buffer of a module, split(dim) or broadcast; within build(), of an input or of what is computed, any
  /// layout. Eagerly there is one rank, and nothing changes. User error for a dimension that it has not, and for terms
  /// of a parameter or of integers.
  Tensor& set_layout(const Layout& layout, Location where = Location::current());
  /// The last one that was set; nothing where none was.
  std::optional<Layout> layout(Location where = Location::current()) const;

  // ---- autograd ----
  bool requires_grad(Location where = Location::current()) const;
  Tensor& requires_grad_(bool value = true, Location where = Location::current());
  bool is_leaf(Location where = Location::current()) const;
  /// The accumulated gradient; undefined before backward(). Within build() both are user errors: there backward() marks
  /// a loss, and gradients are found when the graph runs.
  Tensor grad(Location where = Location::current()) const;
  /// A gradient of this tensor's shape and dtype, else a user error; an undefined one forgets what there is.
  void set_grad(const Tensor& gradient, Location where = Location::current());
  /// Adds d(this)/d(leaf) to grad() of every leaf that requires it. Without `gradient` this tensor must have one
  /// element. The graph behind it is freed unless `retain_graph`. Inside build(): marks this tensor as a loss.
  void backward(const Tensor& gradient = {}, bool retain_graph = false, Location where = Location::current()) const;
  /// The same elements, cut off from the history.
  Tensor detach(Location where = Location::current()) const;

  // ---- copies and conversions ----
  Tensor clone(Location where = Location::current()) const;
  Tensor contiguous(Location where = Location::current()) const;
  Tensor to(DType dtype, Location where = Location::current()) const;
  /// A copy on the device, through which gradients flow back, or the tensor itself where it lies there. Not within
  /// build().
  Tensor to(const Device& device, Location where = Location::current()) const;
  Tensor cpu(Location where = Location::current()) const;
  Tensor cuda(int index = 0, Location where = Location::current()) const;
  /// Where it lies. Within build() that of a recorded tensor is a user error: it is the graph's.
  Device device(Location where = Location::current()) const;

  // ---- views ----
  /// One dimension may be -1: whatever is left. A view where strides allow it, a copy otherwise.
  Tensor reshape(const Shape& shape, Location where = Location::current()) const;
  /// To one dimension: reshape(-1).
  template <std::integral I>
  Tensor reshape(I size, Location where = Location::current()) const {
    return reshape(Shape{Dim(static_cast<std::int64_t>(size))}, where);
  }
  /// As reshape, but an error where it would have to copy.
  Tensor view(const Shape& shape, Location where = Location::current()) const;
  template <std::integral I>
  Tensor view(I size, Location where = Location::current()) const {
    return view(Shape{Dim(static_cast<std::int64_t>(size))}, where);
  }
  Tensor flatten(std::int64_t start_dim = 0, std::int64_t end_dim = -1, Location where = Location::current()) const;
  Tensor transpose(std::int64_t dim0, std::int64_t dim1, Location where = Location::current()) const;
  /// Of a matrix.
  Tensor t(Location where = Location::current()) const;
  /// The dimensions in reverse order: PyTorch's property T.
  Tensor T(Location where = Location::current()) const;
  Tensor permute(const Sizes& dims, Location where = Location::current()) const;
  Tensor expand(const Shape& shape, Location where = Location::current()) const;
  Tensor squeeze(Location where = Location::current()) const;
  Tensor squeeze(std::int64_t d, Location where = Location::current()) const;
  Tensor unsqueeze(std::int64_t d, Location where = Location::current()) const;
  /// Elements start, start + step, ... before end along dimension d; negative positions count from the end, and are
  /// clamped.
  Tensor slice(std::int64_t d, std::int64_t start = 0, std::int64_t end = std::numeric_limits<std::int64_t>::max(),
               std::int64_t step = 1, Location where = Location::current()) const;
  /// The same with sizes that symbols are part of, `positions.slice(0, 0, x.shape()[1])`: between `start` and `end`, of
  /// which each lies within the dimension, or beyond it, at every size.
  Tensor slice(std::int64_t d, const Dim& start, const Dim& end, Location where = Location::current()) const;
  Tensor narrow(std::int64_t d, std::int64_t start, std::int64_t length, Location where = Location::current()) const;
  Tensor narrow(std::int64_t d, const Dim& start, const Dim& length, Location where = Location::current()) const;
  Tensor select(std::int64_t d, std::int64_t index, Location where = Location::current()) const;
  /// Windows of `size` elements along dimension d, each `step` behind the one before, as a last dimension: [..., n,
  /// ...] becomes [..., (n - size) / step + 1, ..., size]. A copy; PyTorch's is a view.
  Tensor unfold(std::int64_t d, std::int64_t size, std::int64_t step, Location where = Location::current()) const;
  std::vector<Tensor> chunk(std::int64_t chunks, std::int64_t d = 0, Location where = Location::current()) const;
  std::vector<Tensor> split(std::int64_t split_size, std::int64_t d = 0, Location where = Location::current()) const;
  /// select(0, position): x[3], x[-1].
  Tensor operator[](detail::Position position) const { return select(0, position.index, position.where); }

  // ---- functions of one tensor (graven/functional.h has them all) ----
  Tensor abs(Location where = Location::current()) const;
  Tensor neg(Location where = Location::current()) const;
  Tensor exp(Location where = Location::current()) const;
  Tensor log(Location where = Location::current()) const;
  Tensor sqrt(Location where = Location::current()) const;
  Tensor rsqrt(Location where = Location::current()) const;
  Tensor square(Location where = Location::current()) const;
  Tensor sin(Location where = Location::current()) const;
  Tensor cos(Location where = Location::current()) const;
  Tensor tanh(Location where = Location::current()) const;
  Tensor sigmoid(Location where = Location::current()) const;
  Tensor relu(Location where = Location::current()) const;
  Tensor silu(Location where = Location::current()) const;
  /// approximate: "none" or "tanh".
  Tensor gelu(std::string_view approximate = "none", Location where = Location::current()) const;
  Tensor pow(const Operand& exponent) const;
  /// {}: no limit.
  Tensor clamp(std::optional<Scalar> min = {}, std::optional<Scalar> max = {},
               Location where = Location::current()) const;
  /// Over one dimension, `0`, several, `{0, 2}`, or all of them, as all reductions.
  Tensor sum(const OneOrMore& dims = {}, bool keepdim = false, Location where = Location::current()) const;
  Tensor mean(const OneOrMore& dims = {}, bool keepdim = false, Location where = Location::current()) const;
  Tensor amax(const OneOrMore& dims = {}, bool keepdim = false, Location where = Location::current()) const;
  Tensor amin(const OneOrMore& dims = {}, bool keepdim = false, Location where = Location::current()) const;
  Tensor prod(const OneOrMore& dims = {}, bool keepdim = false, Location where = Location::current()) const;
  Tensor argmax(std::optional<std::int64_t> d = {}, bool keepdim = false, Location where = Location::current()) const;
  Tensor argmin(std::optional<std::int64_t> d = {}, bool keepdim = false, Location where = Location::current()) const;
  Tensor softmax(std::int64_t d, Location where = Location::current()) const;
  Tensor log_softmax(std::int64_t d, Location where = Location::current()) const;
  Tensor matmul(const Tensor& other, Location where = Location::current()) const;

  // ---- the same of the families of graven/functional/ ----
  Tensor tan(Location where = Location::current()) const;
  Tensor asin(Location where = Location::current()) const;
  Tensor acos(Location where = Location::current()) const;
  Tensor atan(Location where = Location::current()) const;
  Tensor sinh(Location where = Location::current()) const;
  Tensor cosh(Location where = Location::current()) const;
  Tensor asinh(Location where = Location::current()) const;
  Tensor acosh(Location where = Location::current()) const;
  Tensor atanh(Location where = Location::current()) const;
  Tensor exp2(Location where = Location::current()) const;
  Tensor expm1(Location where = Location::current()) const;
  Tensor log2(Location where = Location::current()) const;
  Tensor log10(Location where = Location::current()) const;
  Tensor log1p(Location where = Location::current()) const;
  Tensor erf(Location where = Location::current()) const;
  Tensor erfc(Location where = Location::current()) const;
  Tensor floor(Location where = Location::current()) const;
  Tensor ceil(Location where = Location::current()) const;
  Tensor round(Location where = Location::current()) const;
  Tensor trunc(Location where = Location::current()) const;
  Tensor frac(Location where = Location::current()) const;
  Tensor sign(Location where = Location::current()) const;
  Tensor reciprocal(Location where = Location::current()) const;
  Tensor logical_not(Location where = Location::current()) const;
  Tensor isnan(Location where = Location::current()) const;
  Tensor isinf(Location where = Location::current()) const;
  Tensor isfinite(Location where = Location::current()) const;
  Tensor var(const OneOrMore& dims = {}, double correction = 1, bool keepdim = false,
             Location where = Location::current()) const;
  Tensor std(const OneOrMore& dims = {}, double correction = 1, bool keepdim = false,
             Location where = Location::current()) const;
  Tensor norm(double p = 2, const OneOrMore& dims = {}, bool keepdim = false,
              Location where = Location::current()) const;
  Tensor logsumexp(const OneOrMore& dims, bool keepdim = false, Location where = Location::current()) const;
  Tensor all(const OneOrMore& dims = {}, bool keepdim = false, Location where = Location::current()) const;
  Tensor any(const OneOrMore& dims = {}, bool keepdim = false, Location where = Location::current()) const;
  Tensor cumsum(std::int64_t d, Location where = Location::current()) const;
  Tensor cumprod(std::int64_t d, Location where = Location::current()) const;
  std::tuple<Tensor, Tensor> sort(std::int64_t d = -1, bool descending = false,
                                  Location where = Location::current()) const;
  Tensor argsort(std::int64_t d = -1, bool descending = false, Location where = Location::current()) const;
  std::tuple<Tensor, Tensor> topk(std::int64_t k, std::int64_t d = -1, bool largest = true,
                                  Location where = Location::current()) const;
  std::vector<Tensor> split(const Sizes& split_sizes, std::int64_t d, Location where = Location::current()) const;
  std::vector<Tensor> unbind(std::int64_t d = 0, Location where = Location::current()) const;
  Tensor unflatten(std::int64_t d, const Shape& sizes, Location where = Location::current()) const;
  Tensor swapaxes(std::int64_t dim0, std::int64_t dim1, Location where = Location::current()) const;
  Tensor movedim(const OneOrMore& source, const OneOrMore& destination, Location where = Location::current()) const;
  Tensor flip(const OneOrMore& dims, Location where = Location::current()) const;
  Tensor roll(const OneOrMore& shifts, const OneOrMore& dims = {}, Location where = Location::current()) const;
  Tensor repeat(const Sizes& counts, Location where = Location::current()) const;
  Tensor tile(const Sizes& counts, Location where = Location::current()) const;
  Tensor repeat_interleave(std::int64_t repeats, std::optional<std::int64_t> d = {},
                           Location where = Location::current()) const;
  Tensor tril(std::int64_t diagonal = 0, Location where = Location::current()) const;
  Tensor triu(std::int64_t diagonal = 0, Location where = Location::current()) const;
  Tensor diagonal(std::int64_t offset = 0, std::int64_t dim1 = 0, std::int64_t dim2 = 1,
                  Location where = Location::current()) const;
  Tensor masked_fill(const Tensor& mask, Scalar value, Location where = Location::current()) const;
  Tensor mm(const Tensor& other, Location where = Location::current()) const;
  Tensor bmm(const Tensor& other, Location where = Location::current()) const;
  Tensor mv(const Tensor& other, Location where = Location::current()) const;
  Tensor dot(const Tensor& other, Location where = Location::current()) const;
  Tensor add(const Operand& other, double alpha = 1) const;
  Tensor sub(const Operand& other, double alpha = 1) const;
  Tensor mul(const Operand& other) const;
  Tensor div(const Operand& other) const;
  Tensor eq(const Operand& other) const;
  Tensor ne(const Operand& other) const;
  Tensor lt(const Operand& other) const;
  Tensor le(const Operand& other) const;
  Tensor gt(const Operand& other) const;
  Tensor ge(const Operand& other) const;
  Tensor maximum(const Operand& other) const;
  Tensor minimum(const Operand& other) const;
  Tensor div(const Operand& other, std::string_view rounding_mode) const;
  Tensor floor_divide(const Operand& other) const;
  Tensor remainder(const Operand& other) const;
  Tensor fmod(const Operand& other) const;
  Tensor logical_and(const Operand& other) const;
  Tensor logical_or(const Operand& other) const;
  Tensor max(Location where = Location::current()) const;
  Tensor min(Location where = Location::current()) const;
  /// Element by element: maximum() and minimum().
  Tensor max(const Tensor& other, Location where = Location::current()) const;
  Tensor min(const Tensor& other, Location where = Location::current()) const;
  std::tuple<Tensor, Tensor> max(std::int64_t d, bool keepdim = false, Location where = Location::current()) const;
  std::tuple<Tensor, Tensor> min(std::int64_t d, bool keepdim = false, Location where = Location::current()) const;
  Tensor median(Location where = Location::current()) const;
  std::tuple<Tensor, Tensor> median(std::int64_t d, bool keepdim = false, Location where = Location::current()) const;
  std::tuple<Tensor, Tensor> kthvalue(std::int64_t k, std::int64_t d = -1, bool keepdim = false,
                                      Location where = Location::current()) const;
  Tensor count_nonzero(const OneOrMore& dims = {}, Location where = Location::current()) const;
  Tensor gather(std::int64_t d, const Tensor& index, Location where = Location::current()) const;
  Tensor scatter(std::int64_t d, const Tensor& index, const Operand& source,
                 Location where = Location::current()) const;
  Tensor scatter_add(std::int64_t d, const Tensor& index, const Tensor& source,
                     Location where = Location::current()) const;
  Tensor index_select(std::int64_t d, const Tensor& index, Location where = Location::current()) const;
  Tensor index_add(std::int64_t d, const Tensor& index, const Tensor& source, double alpha = 1,
                   Location where = Location::current()) const;
  Tensor scatter_reduce(std::int64_t d, const Tensor& index, const Tensor& source, std::string_view reduce,
                        bool include_self = true, Location where = Location::current()) const;
  Tensor take_along_dim(const Tensor& indices, std::optional<std::int64_t> d = {},
                        Location where = Location::current()) const;
  Tensor take(const Tensor& indices, Location where = Location::current()) const;
  Tensor index_put(const std::vector<TensorIndex>& indices, const Operand& values, bool accumulate = false) const;
  Tensor outer(const Tensor& other, Location where = Location::current()) const;
  Tensor addmm(const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1,
               Location where = Location::current()) const;
  Tensor trace(Location where = Location::current()) const;
  Tensor clamp_min(Scalar min, Location where = Location::current()) const;
  Tensor clamp_max(Scalar max, Location where = Location::current()) const;
  Tensor nan_to_num(double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {},
                    Location where = Location::current()) const;
  Tensor view_as(const Tensor& other, Location where = Location::current()) const;
  Tensor reshape_as(const Tensor& other, Location where = Location::current()) const;
  Tensor expand_as(const Tensor& other, Location where = Location::current()) const;
  Tensor type_as(const Tensor& other, Location where = Location::current()) const;
  /// Tensors of another shape, and of this one's dtype unless another is given.
  Tensor new_empty(const Shape& shape, std::optional<DType> dtype = {}, Location where = Location::current()) const;
  Tensor new_zeros(const Shape& shape, std::optional<DType> dtype = {}, Location where = Location::current()) const;
  Tensor new_ones(const Shape& shape, std::optional<DType> dtype = {}, Location where = Location::current()) const;
  Tensor new_full(const Shape& shape, Scalar value, std::optional<DType> dtype = {},
                  Location where = Location::current()) const;
  /// This tensor where the condition, which is bool, holds; other elsewhere.
  Tensor where(const Tensor& condition, const Operand& other) const;
  /// this + weight * (end - this); this + value * a * b; this + value * a / b
  Tensor lerp(const Tensor& end, const Operand& weight) const;
  Tensor addcmul(const Tensor& a, const Tensor& b, double value = 1, Location where = Location::current()) const;
  Tensor addcdiv(const Tensor& a, const Tensor& b, double value = 1, Location where = Location::current()) const;
  Tensor index_copy(std::int64_t d, const Tensor& index, const Tensor& source,
                    Location where = Location::current()) const;
  Tensor index_fill(std::int64_t d, const Tensor& index, const Operand& value) const;
  Tensor diag(std::int64_t diagonal = 0, Location where = Location::current()) const;
  Tensor clip(std::optional<Scalar> min = {}, std::optional<Scalar> max = {},
              Location where = Location::current()) const;
  std::tuple<Tensor, Tensor> cummax(std::int64_t d, Location where = Location::current()) const;
  std::tuple<Tensor, Tensor> cummin(std::int64_t d, Location where = Location::current()) const;
  Tensor quantile(double q, std::optional<std::int64_t> d = {}, bool keepdim = false,
                  std::string_view interpolation = "linear", Location where = Location::current()) const;
  Tensor isclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false,
                 Location where = Location::current()) const;
  Tensor nansum(const OneOrMore& dims = {}, bool keepdim = false, Location where = Location::current()) const;
  Tensor nanmean(const OneOrMore& dims = {}, bool keepdim = false, Location where = Location::current()) const;
  Tensor logcumsumexp(std::int64_t d, Location where = Location::current()) const;
  Tensor diff(std::int64_t n = 1, std::int64_t d = -1, Location where = Location::current()) const;
  Tensor diag_embed(std::int64_t offset = 0, std::int64_t dim1 = -2, std::int64_t dim2 = -1,
                    Location where = Location::current()) const;
  Tensor multinomial(std::int64_t num_samples, bool replacement = false, Location where = Location::current()) const;
  Tensor bincount(const Tensor& weights = {}, std::int64_t minlength = 0, Location where = Location::current()) const;
  /// x[1, 2:, ...] as views: x.index({1, Slice(2, None), "..."}); with tensors among the indices, x[rows, columns], a
  /// copy (graven/indexing.h).
  Tensor index(const std::vector<TensorIndex>& indices, Location where = Location::current()) const;

  // ---- in place ----
  // The result is written into this tensor's memory, so every view of it changes too, and what it is a view of. While
  // tracing the change is recorded as a new value of these tensors.
  /// + alpha * other.
  Tensor& add_(const Operand& other, double alpha = 1);
  Tensor& sub_(const Operand& other, double alpha = 1);
  Tensor& mul_(const Operand& other);
  Tensor& div_(const Operand& other);
  Tensor& div_(const Operand& other, std::string_view rounding_mode);
  Tensor& floor_divide_(const Operand& other);
  Tensor& remainder_(const Operand& other);
  Tensor& fmod_(const Operand& other);
  Tensor& pow_(const Operand& exponent);
  /// + value * a * b; + value * a / b.
  Tensor& addcmul_(const Tensor& a, const Tensor& b, double value = 1, Location where = Location::current());
  Tensor& addcdiv_(const Tensor& a, const Tensor& b, double value = 1, Location where = Location::current());
  /// + weight * (end - this).
  Tensor& lerp_(const Tensor& end, const Operand& weight);
  Tensor& abs_(Location where = Location::current());
  Tensor& neg_(Location where = Location::current());
  Tensor& exp_(Location where = Location::current());
  Tensor& expm1_(Location where = Location::current());
  Tensor& log_(Location where = Location::current());
  Tensor& log1p_(Location where = Location::current());
  Tensor& sqrt_(Location where = Location::current());
  Tensor& rsqrt_(Location where = Location::current());
  Tensor& square_(Location where = Location::current());
  Tensor& reciprocal_(Location where = Location::current());
  Tensor& sigmoid_(Location where = Location::current());
  Tensor& tanh_(Location where = Location::current());
  Tensor& sin_(Location where = Location::current());
  Tensor& cos_(Location where = Location::current());
  Tensor& erf_(Location where = Location::current());
  Tensor& floor_(Location where = Location::current());
  Tensor& ceil_(Location where = Location::current());
  Tensor& round_(Location where = Location::current());
  Tensor& trunc_(Location where = Location::current());
  Tensor& sign_(Location where = Location::current());
  Tensor& relu_(Location where = Location::current());
  Tensor& clamp_(std::optional<Scalar> min, std::optional<Scalar> max, Location where = Location::current());
  Tensor& clamp_min_(Scalar min, Location where = Location::current());
  Tensor& clamp_max_(Scalar max, Location where = Location::current());
  Tensor& nan_to_num_(double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {},
                      Location where = Location::current());
  Tensor& tril_(std::int64_t diagonal = 0, Location where = Location::current());
  Tensor& triu_(std::int64_t diagonal = 0, Location where = Location::current());
  Tensor& masked_fill_(const Tensor& mask, Scalar value, Location where = Location::current());
  Tensor& scatter_(std::int64_t d, const Tensor& index, const Operand& source);
  Tensor& index_copy_(std::int64_t d, const Tensor& index, const Tensor& source, Location where = Location::current());
  Tensor& index_fill_(std::int64_t d, const Tensor& index, Scalar value, Location where = Location::current());
  Tensor& scatter_add_(std::int64_t d, const Tensor& index, const Tensor& source, Location where = Location::current());
  Tensor& index_add_(std::int64_t d, const Tensor& index, const Tensor& source, double alpha = 1,
                     Location where = Location::current());
  Tensor& index_put_(const std::vector<TensorIndex>& indices, const Operand& values, bool accumulate = false);
  Tensor& copy_(const Tensor& source, Location where = Location::current());
  Tensor& fill_(Scalar value, Location where = Location::current());
  Tensor& zero_(Location where = Location::current());
  Tensor& uniform_(double from = 0, double to = 1, Location where = Location::current());
  Tensor& normal_(double mean = 0, double std = 1, Location where = Location::current());

  // ---- inside ----
  explicit Tensor(std::shared_ptr<detail::TensorImpl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<detail::TensorImpl>& impl() const { return impl_; }

 private:
  void* checked_data(DType wanted, Location where) const;
  Scalar item_scalar(Location where) const;

  std::shared_ptr<detail::TensorImpl> impl_;
};

/// A tensor or a number, and the line where it was written: what makes `a + b` know its line. Made implicitly.
class Operand {
 public:
  Operand(const Tensor& tensor, Location where = Location::current()) : tensor_(tensor), where_(where) {}  // NOLINT
  template <class T>
    requires std::is_arithmetic_v<T>
  Operand(T number, Location where = Location::current()) : scalar_(number), where_(where) {}       // NOLINT
  Operand(Scalar number, Location where = Location::current()) : scalar_(number), where_(where) {}  // NOLINT

  bool is_tensor() const { return !scalar_.has_value(); }
  /// User error where it is a number, or a tensor that is undefined: of the function that asks, unless where() names
  /// another.
  const Tensor& tensor(const char* function = __builtin_FUNCTION()) const {
    if (!tensor_.defined()) fail_no_tensor(function);
    return tensor_;
  }
  Scalar scalar() const { return *scalar_; }
  Location where() const { return where_; }

 private:
  [[noreturn]] void fail_no_tensor(const char* function) const;

  Tensor tensor_;
  std::optional<Scalar> scalar_;
  Location where_;
};

// ---- factories ----
// Within build() a dimension of the shape may be a symbol, zeros({x.shape()[0], 3}); elsewhere that is a user error.
Tensor empty(const Shape& shape, TensorOptions options = {}, Location where = Location::current());
Tensor zeros(const Shape& shape, TensorOptions options = {}, Location where = Location::current());
Tensor ones(const Shape& shape, TensorOptions options = {}, Location where = Location::current());
Tensor full(const Shape& shape, Scalar value, TensorOptions options = {}, Location where = Location::current());
/// Zeros, too: no memory is left as it was found.
Tensor empty_like(const Tensor& like, Location where = Location::current());
Tensor zeros_like(const Tensor& like, Location where = Location::current());
Tensor ones_like(const Tensor& like, Location where = Location::current());
Tensor full_like(const Tensor& like, Scalar value, Location where = Location::current());
/// On its device, of another dtype: zeros_like(x, i64).
Tensor empty_like(const Tensor& like, DType dtype, Location where = Location::current());
Tensor zeros_like(const Tensor& like, DType dtype, Location where = Location::current());
Tensor ones_like(const Tensor& like, DType dtype, Location where = Location::current());
Tensor full_like(const Tensor& like, Scalar value, DType dtype, Location where = Location::current());
/// start, start + step, ... before end. i64 when all three are integers, f32 otherwise, unless a dtype is given. As
/// many as there are by the step itself; start and step then become integers where the dtype is one of them.
Tensor arange(Scalar end, Location where = Location::current());
/// 0, 1, ... of a dimension, which may be a symbol: arange(x.shape()[0]). i64.
Tensor arange(const detail::Length& end, Location where = Location::current());
Tensor arange(Scalar start, Scalar end, Scalar step = 1, Location where = Location::current());
Tensor arange(Scalar start, Scalar end, Scalar step, DType dtype, Location where = Location::current());
/// `steps` numbers from start to end, both included.
Tensor linspace(double start, double end, std::int64_t steps, TensorOptions options = {},
                Location where = Location::current());
Tensor eye(std::int64_t n, TensorOptions options = {}, Location where = Location::current());
/// i64[2, n]: rows and columns of the elements that tril (triu) of a matrix keeps, row by row.
Tensor tril_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset = 0,
                    Location where = Location::current());
Tensor triu_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset = 0,
                    Location where = Location::current());
/// Uniform in [0, 1); normal with mean 0 and deviation 1; integers in [low, high); 0 to n - 1 in any order. Within a
/// graph they are drawn anew in each of its steps (graven/functional/random.h).
Tensor rand(const Shape& shape, TensorOptions options = {}, Location where = Location::current());
Tensor randn(const Shape& shape, TensorOptions options = {}, Location where = Location::current());
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, TensorOptions options = {DType::i64},
               Location where = Location::current());
Tensor randperm(std::int64_t n, Location where = Location::current());

/// A nested list of numbers: {1, 2}, {{1, 2}, {3, 4}}.
class NestedList {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  NestedList(T number) : leaf_(number) {}  // NOLINT
  NestedList(std::initializer_list<NestedList> items) : items_(items), is_list_(true) {}

  bool is_list() const { return is_list_; }
  Scalar leaf() const { return leaf_; }
  const std::vector<NestedList>& items() const { return items_; }

 private:
  Scalar leaf_ = 0;
  std::vector<NestedList> items_;
  bool is_list_ = false;
};

/// tensor({{1., 2.}, {3., 4.}}): f32 when any number is floating, i64 when integers, bool when bools, unless a dtype is
/// given.
Tensor tensor(std::initializer_list<NestedList> items, Location where = Location::current());
Tensor tensor(std::initializer_list<NestedList> items, DType dtype, Location where = Location::current());
/// A scalar.
Tensor tensor(Scalar value, Location where = Location::current());
Tensor tensor(Scalar value, DType dtype, Location where = Location::current());

/// A tensor of its own with a copy of row-major elements: T is the dtype's C++ type (float: f32, std::int64_t: i64).
/// `data` points to as many elements as the shape has, and may be null where it has none. User error where it is null
/// otherwise, where a vector has another number of elements, where the shape has a symbol or a negative dimension, and
/// where its bytes do not fit in 63 bits.
template <class T>
Tensor from_data(const T* data, const Shape& shape, Location where = Location::current());
template <class T>
Tensor from_data(const std::vector<T>& data, const Shape& shape, Location where = Location::current());
/// The same of any dtype, and of a size in bytes, which must be that of the shape.
Tensor from_bytes(const void* data, std::size_t bytes, DType dtype, const Shape& shape,
                  Location where = Location::current());

namespace detail {
/// `bytes`: how many there are, none where the shape says so.
Tensor copied_from(const void* data, std::optional<std::size_t> bytes, DType dtype, const Shape& shape, Location where);
}  // namespace detail

template <class T>
Tensor from_data(const T* data, const Shape& shape, Location where) {
  return detail::copied_from(data, std::nullopt, dtype_of<T>(), shape, where.in("from_data"));
}
template <class T>
Tensor from_data(const std::vector<T>& data, const Shape& shape, Location where) {
  return detail::copied_from(data.data(), data.size() * sizeof(T), dtype_of<T>(), shape, where.in("from_data"));
}

namespace detail {
std::vector<double> to_doubles(const Tensor& t, Location where = Location::current());
std::vector<std::int64_t> to_integers(const Tensor& t, Location where = Location::current());
}  // namespace detail

template <class T>
std::vector<T> Tensor::to_vector(Location where) const {
  std::vector<T> result;
  if constexpr (std::is_floating_point_v<T>) {
    for (double v : detail::to_doubles(*this, where)) result.push_back(static_cast<T>(v));
  } else {
    for (std::int64_t v : detail::to_integers(*this, where)) result.push_back(static_cast<T>(v));
  }
  return result;
}

/// PyTorch's print: tensor([[1., 2.],
///                          [3., 4.]])
std::string to_string(const Tensor& t);
std::ostream& operator<<(std::ostream& out, const Tensor& t);

// ---- operators ----
Tensor operator+(const Operand& a, const Operand& b);
Tensor operator-(const Operand& a, const Operand& b);
Tensor operator*(const Operand& a, const Operand& b);
Tensor operator/(const Operand& a, const Operand& b);
Tensor operator-(const Operand& a);
Tensor operator!(const Operand& a);
/// PyTorch's operators of bools and integers, and the remainder with the divisor's sign. & and | bind less tightly than
/// ==, other than in Python: (tokens != 0) & (tokens != 7).
Tensor operator~(const Operand& a);
Tensor operator&(const Operand& a, const Operand& b);
Tensor operator|(const Operand& a, const Operand& b);
Tensor operator^(const Operand& a, const Operand& b);
Tensor operator%(const Operand& a, const Operand& b);
Tensor operator==(const Operand& a, const Operand& b);
Tensor operator!=(const Operand& a, const Operand& b);
Tensor operator<(const Operand& a, const Operand& b);
Tensor operator<=(const Operand& a, const Operand& b);
Tensor operator>(const Operand& a, const Operand& b);
Tensor operator>=(const Operand& a, const Operand& b);
inline Tensor& operator+=(Tensor& a, const Operand& b) { return a.add_(b); }
inline Tensor& operator-=(Tensor& a, const Operand& b) { return a.sub_(b); }
inline Tensor& operator*=(Tensor& a, const Operand& b) { return a.mul_(b); }
inline Tensor& operator/=(Tensor& a, const Operand& b) { return a.div_(b); }
/// Of views: x[1] += 2, x.index({Slice(), 0}) *= 3.
inline Tensor operator+=(Tensor&& a, const Operand& b) { return a.add_(b); }
inline Tensor operator-=(Tensor&& a, const Operand& b) { return a.sub_(b); }
inline Tensor operator*=(Tensor&& a, const Operand& b) { return a.mul_(b); }
inline Tensor operator/=(Tensor&& a, const Operand& b) { return a.div_(b); }

/// PyTorch's result dtype of an arithmetic operator on these operands.
DType result_type(const Operand& a, const Operand& b);

// ---- random numbers ----
/// Seeds the process's default generator: Philox4x32-10, counter-based, so the numbers depend on the seed and on how
/// many were drawn before, and on nothing else (PyTorch's generator on the CPU is another one: numbers differ,
/// distributions do not). User error within build(): a graph's numbers come from the seed, the step and the place, so
/// it is seeded outside.
void manual_seed(std::uint64_t seed, Location where = Location::current());

// ---- autograd ----
/// No history is recorded on this thread while one lives.
class NoGradGuard {
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool previous_;
};
bool is_grad_enabled();

/// Gradients of the sum of `outputs` (or of outputs times `output_gradients`) with respect to `inputs`, without
/// touching grad(). User error within build().
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& output_gradients = {}, bool retain_graph = false,
                         Location where = Location::current());

/// max |a - b| <= atol + rtol |b|, everywhere.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              Location where = Location::current());
/// Same shape, dtype and elements.
bool equal(const Tensor& a, const Tensor& b, Location where = Location::current());

}  // namespace graven
