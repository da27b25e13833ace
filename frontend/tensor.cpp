#include "graven/tensor.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "frontend/autograd.h"
#include "frontend/dispatch.h"
#include "frontend/eager/convert_halves.h"
#include "frontend/eager/program.h"
#include "frontend/trace.h"
#include "graven/functional.h"
#include "ir/ops.h"

namespace graven {

std::string Location::file_name() const {
  const std::string path = file;
  return path.substr(path.find_last_of('/') + 1);
}

namespace detail {

// ---- memory ---------------------------------------------------------------------------------------------------------

namespace {
constexpr std::align_val_t kAlignment{64};
}

Storage::Storage(std::size_t size, const ir::Device& device) : bytes(size), device(device) {
  if (!device.is_cpu()) {
    of_device = ir::allocate_on_device(device, size);
    data = of_device.get();
    return;
  }
  try {
    data = static_cast<std::byte*>(::operator new(std::max<std::size_t>(size, 1), kAlignment));
  } catch (const std::bad_alloc&) {
    throw UserError("cannot allocate " + std::to_string(size) + " bytes for a tensor");
  }
}

Storage::~Storage() {
  if (device.is_cpu()) ::operator delete(data, kAlignment);
}

void TensorImpl::refuse_device() const {
  throw UserError("the tensor " + ir::describe(dtype, shape) + " is on " + storage->device.to_string() +
                  ", and its elements are asked for on the cpu: take its cpu() first");
}

bool TensorImpl::contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

std::uint64_t next_moment() {
  static std::atomic<std::uint64_t> count{0};
  return count.fetch_add(1, std::memory_order_relaxed) + 1;
}

Sizes contiguous_strides(const Sizes& sizes) {
  Sizes strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<std::int64_t>(sizes[i], 1);
  }
  return strides;
}

namespace {
/// User error where the shape has no such number.
std::size_t bytes_of(DType dtype, const Shape& shape) {
  if (std::find(std::begin(ir::kAllDTypes), std::end(ir::kAllDTypes), dtype) == std::end(ir::kAllDTypes))
    throw UserError("there is no dtype with the number " + std::to_string(static_cast<int>(dtype)));
  std::int64_t bytes = static_cast<std::int64_t>(ir::size_of(dtype));
  bool empty = false;
  for (const Dim& d : shape) {
    if (!d.is_static()) throw UserError("a tensor with elements needs fixed dimensions, got " + shape.to_string());
    if (d.value() < 0) throw UserError("a dimension must not be negative, got " + shape.to_string());
    if (d.value() == 0) empty = true;
  }
  if (empty) return 0;
  for (const Dim& d : shape)
    if (__builtin_mul_overflow(bytes, d.value(), &bytes))
      throw UserError("a tensor " + ir::describe(dtype, shape) + " is too large: its bytes do not fit in 63 bits");
  return static_cast<std::size_t>(bytes);
}
}  // namespace

Tensor make_tensor(DType dtype, const Shape& shape, const ir::Device& device) {
  const std::size_t bytes = bytes_of(dtype, shape);
  auto impl = std::make_shared<TensorImpl>();
  impl->dtype = dtype;
  impl->shape = shape;
  impl->sizes = shape.values();
  impl->strides = contiguous_strides(impl->sizes);
  impl->storage = std::make_shared<Storage>(bytes, device);
  if (const Trace* trace = active_trace()) impl->storage->made_in = trace->id;
  return Tensor(std::move(impl));
}

Tensor make_view(const Tensor& base, Sizes sizes, Sizes strides, std::int64_t offset) {
  const TensorImpl& b = get(base);
  auto impl = std::make_shared<TensorImpl>();
  impl->dtype = b.dtype;
  impl->shape = Shape::of(sizes);
  impl->sizes = std::move(sizes);
  impl->strides = std::move(strides);
  impl->offset = offset;
  impl->storage = b.storage;
  impl->is_view = true;
  return Tensor(std::move(impl));
}

RecordedView::~RecordedView() {
  // A long chain is taken apart in a loop: destroying it link by link would recurse once for each.
  std::shared_ptr<TensorImpl> last = std::move(base);
  while (last && last.use_count() == 1 && last->view && last->view.use_count() == 1)
    last = std::exchange(last->view->base, nullptr);
}

Tensor unshared(const Tensor& result, const Tensor& x, Location where) {
  const auto bottom_of = [](const TensorImpl& impl) {
    const TensorImpl* at = &impl;
    while (at->view) at = at->view->base.get();
    return at;
  };
  const TensorImpl &to = *result.impl(), &from = *x.impl();
  const bool shared = to.storage && from.storage ? to.storage == from.storage : bottom_of(to) == bottom_of(from);
  return shared ? result.clone(where) : result;
}

Tensor alias_of(const Tensor& t) {
  const TensorImpl& from = get(t);
  auto impl = std::make_shared<TensorImpl>();
  impl->dtype = from.dtype;
  impl->shape = from.shape;
  impl->sizes = from.sizes;
  impl->strides = from.strides;
  impl->offset = from.offset;
  impl->storage = from.storage;
  impl->is_view = from.is_view;
  return Tensor(std::move(impl));
}

const TensorImpl& get(const Tensor& t, const char* function, Location where) {
  require_defined(t, function, where);
  return *t.impl();
}
const TensorImpl& get(const Tensor& t) {
  GRAVEN_CHECK(t.defined(), "nobody looked whether this tensor is defined");
  return *t.impl();
}

TensorImpl& get_mutable(const Tensor& t, const char* function, Location where) {
  require_defined(t, function, where);
  return *t.impl();
}

std::int64_t normalize_dim(std::int64_t d, std::int64_t rank, const char* function, Location where) {
  const std::int64_t limit = std::max<std::int64_t>(rank, 1);
  if (d < -limit || d >= limit)
    fail(function,
         "dimension " + std::to_string(d) + " is out of range [" + std::to_string(-limit) + ", " +
             std::to_string(limit - 1) + "]",
         where);
  return d < 0 ? d + limit : d;
}

// ---- elements -------------------------------------------------------------------------------------------------------

std::uint16_t to_half(float value) {
  const std::uint32_t word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (word >> 16) & 0x8000u, magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 lines the bits up, and the addition rounds
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
}

float from_half(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u,
                      fraction = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::ldexp(static_cast<float>(fraction), -24)));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

std::uint16_t to_bfloat16(float value) {
  const std::uint32_t word = std::bit_cast<std::uint32_t>(value);
  if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((word >> 16) | 0x40u);
  return static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

float from_bfloat16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

namespace {

struct HalfElement {
  std::uint16_t bits;
  operator float() const { return from_half(bits); }  // NOLINT
  static HalfElement of(double v) { return {to_half(static_cast<float>(v))}; }
};
struct BFloat16Element {
  std::uint16_t bits;
  operator float() const { return from_bfloat16(bits); }  // NOLINT
  static BFloat16Element of(double v) { return {to_bfloat16(static_cast<float>(v))}; }
};

/// Calls f with a value of the dtype's element type.
template <class F>
decltype(auto) visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::f16:
      return f(HalfElement{});
    case DType::bf16:
      return f(BFloat16Element{});
    case DType::i8:
      return f(std::int8_t{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::i64:
      return f(std::int64_t{});
    case DType::u8:
      return f(std::uint8_t{});
    case DType::boolean:
      break;
  }
  return f(bool{});
}

template <class To, class From>
To convert_element(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else if constexpr (std::is_same_v<To, HalfElement> || std::is_same_v<To, BFloat16Element>)
    return To::of(static_cast<double>(value));
  else if constexpr (std::is_same_v<From, HalfElement> || std::is_same_v<From, BFloat16Element>)
    return convert_element<To>(static_cast<float>(value));
  else if constexpr (std::is_same_v<To, bool>)
    return value != From(0);
  else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    // Towards zero; what does not fit is not defined by C++, so it goes through the widest integer where it can: all
    // from -2^63 to below 2^63.
    if (!(value >= From(-0x1p63) && value < From(0x1p63)))
      return static_cast<To>(std::numeric_limits<std::int64_t>::min());
    return static_cast<To>(static_cast<std::int64_t>(value));
  } else
    return static_cast<To>(value);
}

/// Calls f(offset of a, offset of b) for each row of the innermost dimension.
template <class F>
void for_each_row(const Sizes& sizes, const Sizes& strides_a, const Sizes& strides_b, F&& f) {
  const std::size_t rank = sizes.size();
  for (std::int64_t s : sizes)
    if (s == 0) return;
  if (rank <= 1) {
    f(std::int64_t{0}, std::int64_t{0});
    return;
  }
  Sizes index(rank - 1, 0);
  std::int64_t a = 0, b = 0;
  while (true) {
    f(a, b);
    std::size_t d = rank - 1;
    while (true) {
      if (d == 0) return;
      --d;
      a += strides_a[d];
      b += strides_b[d];
      if (++index[d] < sizes[d]) break;
      a -= strides_a[d] * sizes[d];
      b -= strides_b[d] * sizes[d];
      index[d] = 0;
    }
  }
}

}  // namespace

double read_element(DType dtype, const std::byte* p) {
  return visit(dtype, [p](auto zero) -> double {
    decltype(zero) v;
    std::memcpy(&v, p, sizeof v);
    return static_cast<double>(v);
  });
}

std::int64_t read_integer(DType dtype, const std::byte* p) {
  return visit(dtype, [p](auto zero) -> std::int64_t {
    decltype(zero) v;
    std::memcpy(&v, p, sizeof v);
    return convert_element<std::int64_t>(v);
  });
}

void write_element(DType dtype, std::byte* p, Scalar value) {
  visit(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T v = value.category() == Scalar::Category::floating ? convert_element<T>(value.number())
                                                               : convert_element<T>(value.integer());
    std::memcpy(p, &v, sizeof v);
  });
}

namespace {

std::size_t bytes_of(const TensorImpl& impl) {
  return static_cast<std::size_t>(impl.numel()) * ir::size_of(impl.dtype);
}

/// Another tensor, which lies in memory as this one.
std::shared_ptr<TensorImpl> laid_as(const TensorImpl& impl, std::shared_ptr<Storage> storage) {
  auto copy = std::make_shared<TensorImpl>();
  copy->dtype = impl.dtype;
  copy->shape = impl.shape;
  copy->sizes = impl.sizes;
  copy->strides = impl.strides;
  copy->offset = impl.offset;
  copy->storage = std::move(storage);
  return copy;
}

/// The tensor as it lies, in a copy of its storage.
std::shared_ptr<TensorImpl> downloaded(const TensorImpl& impl) {
  auto copy = laid_as(impl, std::make_shared<Storage>(impl.storage->bytes));
  ir::copy_to_host(impl.storage->device, copy->storage->data, impl.storage->data, impl.storage->bytes);
  return copy;
}

/// A tensor of a device, row-major and of the dtype, by the device's own kernels: as_strided of all of its memory, then
/// a cast.
Tensor gathered_on_device(const TensorImpl& source, DType dtype) {
  Tensor t(laid_as(source, source.storage));
  if (!source.contiguous()) {
    const auto all = static_cast<std::int64_t>(source.storage->bytes / ir::size_of(source.dtype));
    t = eager::run(ir::kAsStrided, {make_view(t, {all}, {1}, 0)},
                   {{"shape", source.shape}, {"strides", source.strides}, {"offset", source.offset}})
            .at(0);
  }
  return t.dtype() == dtype ? t : eager::run(ir::kCast, {t}, {{"dtype", dtype}}).at(0);
}

/// Within a device by its kernels, from row-major elements straight across; what is written between other elements by
/// way of the host.
void copy_between_devices(const TensorImpl& source, TensorImpl& target) {
  const ir::Device from = source.storage->device, to = target.storage->device;
  if (!from.is_cpu() && from != to) return copy_elements(*downloaded(source), target);
  if (from == to && target.contiguous() && (source.dtype != target.dtype || !source.contiguous()))
    return copy_elements(*gathered_on_device(source, target.dtype).impl(), target);
  if (source.dtype == target.dtype && source.contiguous() && target.contiguous()) {
    target.bump_version();
    if (from == to) return ir::copy_on_device(to, target.place(), source.place(), bytes_of(source));
    return ir::copy_to_device(to, target.place(), source.place(), bytes_of(source));
  }
  const std::shared_ptr<TensorImpl> whole = downloaded(target);  // what lies between a view's elements stays
  copy_elements(from.is_cpu() ? source : *downloaded(source), *whole);
  target.bump_version();
  ir::copy_to_device(to, target.storage->data, whole->storage->data, whole->storage->bytes);
}

}  // namespace

void copy_elements(const TensorImpl& source, TensorImpl& target) {
  GRAVEN_CHECK(source.sizes == target.sizes, "copy between different shapes");
  const ir::Device &from_device = source.storage->device, &to_device = target.storage->device;
  if (!from_device.is_cpu() || !to_device.is_cpu()) return copy_between_devices(source, target);
  target.bump_version();
  if (source.dtype == target.dtype && source.contiguous() && target.contiguous()) {
    const std::size_t bytes = static_cast<std::size_t>(source.numel()) * ir::size_of(source.dtype);
    if (bytes) std::memmove(target.data(), source.data(), bytes);
    return;
  }
  const std::size_t rank = source.sizes.size();
  const std::int64_t inner = rank ? source.sizes.back() : 1, from_step = rank ? source.strides.back() : 1,
                     to_step = rank ? target.strides.back() : 1;
  if (from_step == 1 && to_step == 1 && (ir::is_half(source.dtype) || ir::is_half(target.dtype))) {
    for_each_row(source.sizes, source.strides, target.strides, [&](std::int64_t a, std::int64_t b) {
      convert_buffer(source.dtype, source.data() + a * static_cast<std::int64_t>(ir::size_of(source.dtype)),
                     target.dtype, target.data() + b * static_cast<std::int64_t>(ir::size_of(target.dtype)), inner);
    });
    return;
  }
  visit(source.dtype, [&](auto from_zero) {
    using From = decltype(from_zero);
    visit(target.dtype, [&](auto to_zero) {
      using To = decltype(to_zero);
      const From* from = reinterpret_cast<const From*>(source.data());
      To* to = reinterpret_cast<To*>(target.data());
      for_each_row(source.sizes, source.strides, target.strides, [&](std::int64_t a, std::int64_t b) {
        for (std::int64_t i = 0; i < inner; ++i) to[b + i * to_step] = convert_element<To>(from[a + i * from_step]);
      });
    });
  });
}

void convert_buffer(DType from_dtype, const void* source, DType to_dtype, void* target, std::int64_t n) {
  if (eager::convert_halves(from_dtype, source, to_dtype, target, n)) return;
  visit(from_dtype, [&](auto from_zero) {
    using From = decltype(from_zero);
    visit(to_dtype, [&](auto to_zero) {
      using To = decltype(to_zero);
      const From* from = static_cast<const From*>(source);
      To* to = static_cast<To*>(target);
      for (std::int64_t i = 0; i < n; ++i) to[i] = convert_element<To>(from[i]);
    });
  });
}

Tensor contiguous_on(const Tensor& t, const ir::Device& device) {
  const TensorImpl& from = get(t);
  if (from.contiguous() && from.storage->device == device) return t;
  Tensor copy = make_tensor(from.dtype, from.shape, device);
  copy_elements(from, *copy.impl());
  return copy;
}
Tensor contiguous_copy(const Tensor& t) { return contiguous_on(t, {}); }

Tensor on_host(const Tensor& t) {
  const TensorImpl& impl = get(t);
  return !impl.storage || impl.storage->device.is_cpu() ? t : contiguous_copy(t);
}

void move_to(TensorImpl& impl, const ir::Device& device) {
  if (impl.storage->device == device) return;
  const Tensor moved = make_tensor(impl.dtype, impl.shape, device);
  copy_elements(impl, *moved.impl());
  impl.strides = moved.impl()->strides;
  impl.offset = 0;
  impl.storage = moved.impl()->storage;
  if (impl.grad) move_to(*impl.grad, device);
}

std::vector<double> to_doubles(const Tensor& t, Location where) {
  require_defined(t, "to_vector", where);
  const Tensor wide = on_host(t.detach(where)).to(DType::f64, where).contiguous(where);
  const double* p = wide.data<double>(where);
  return {p, p + wide.numel()};
}

std::vector<std::int64_t> to_integers(const Tensor& t, Location where) {
  require_defined(t, "to_vector", where);
  const Tensor wide = on_host(t.detach(where)).to(DType::i64, where).contiguous(where);
  const std::int64_t* p = wide.data<std::int64_t>(where);
  return {p, p + wide.numel()};
}

}  // namespace detail

using detail::get;

// ---- handles --------------------------------------------------------------------------------------------------------

namespace {
/// A member that forgets what its module registered is noticed at the end of build(), by the number of handles.
void note_let_go(detail::TensorImpl* impl) noexcept {
  if (impl != nullptr && detail::active_trace() != nullptr) impl->was_let_go.store(true, std::memory_order_relaxed);
}

/// Whether another handle, or what shares the memory, would see what is written into this tensor.
bool is_seen_by_others(const std::shared_ptr<detail::TensorImpl>& impl) {
  long own = 1;  // this tensor, and what it was taken from
  const std::shared_ptr<detail::TensorImpl>* at = &impl;
  for (; at->use_count() == 1 && (*at)->view; at = &(*at)->view->base) ++own;
  return at->use_count() > 1 || ((*at)->storage && (*at)->storage.use_count() > own);
}
}  // namespace

Tensor& Tensor::operator=(const Tensor& other) & {
  if (impl_ == other.impl_) return *this;
  note_let_go(impl_.get());
  impl_ = other.impl_;
  return *this;
}

Tensor& Tensor::operator=(Tensor&& other) & noexcept {
  if (impl_ != other.impl_) note_let_go(impl_.get());
  impl_ = std::move(other.impl_);
  return *this;
}

Tensor Tensor::operator=(const Operand& value) && {
  (void)get(*this, "operator=", value.where());
  if (!is_seen_by_others(impl_)) {
    UserError error("assigns to " + describe() + ", which is a copy and no view: nobody would see what is written");
    error.note("index_put_() and masked_fill_() write where index tensors say");
    detail::throw_at(error, "operator=", value.where());
  }
  if (value.is_tensor())
    copy_(value.tensor(), value.where());
  else
    fill_(value.scalar(), value.where());
  return *this;
}

// ---- what it is -----------------------------------------------------------------------------------------------------

namespace {

/// Elements are asked for: not of a recorded tensor.
const detail::TensorImpl& with_data(const Tensor& t, const char* what, Location where) {
  const detail::TensorImpl& impl = get(t, what, where);
  if (impl.trace_id != 0)
    detail::fail_at(
        std::string(what) +
            ": a tensor recorded by a graph's build() has no data until the graph runs; return it from build() to see "
            "it",
        where);
  return impl;
}

/// The same for what looks at the elements themselves: those of a parameter or buffer are others in each of the graph's
/// steps.
const detail::TensorImpl& with_elements(const Tensor& t, const char* what, Location where) {
  const detail::TensorImpl& impl = with_data(t, what, where);
  const detail::Trace* trace = detail::active_trace();
  if (trace && trace->variables.count(&impl))
    detail::fail_at(std::string(what) + ": " + t.describe() + " (" + impl.owner +
                        ") is looked at within build(), which runs once; what follows " +
                        "from it would stay the same in every step. Compute with the tensor itself",
                    where);
  return impl;
}

}  // namespace

DType Tensor::dtype(Location where) const { return get(*this, "dtype", where).dtype; }
const Shape& Tensor::shape(Location where) const { return get(*this, "shape", where).shape; }
std::int64_t Tensor::dim(Location where) const {
  return static_cast<std::int64_t>(get(*this, "dim", where).shape.rank());
}
std::int64_t Tensor::size(std::int64_t d, Location where) const {
  if (get(*this, "size", where).shape.rank() == 0) detail::fail("size", "a scalar has no dimensions", where);
  return detail::fixed_size(
      *this, d, "size", where,
      "shape() has the symbol, for other shapes; size_of() gives what it stands for, as a tensor");
}
Sizes Tensor::sizes(Location where) const {
  const Shape& own = get(*this, "sizes", where).shape;
  if (!own.is_static())
    detail::fail("sizes", "the shape " + own.to_string() + " has a symbolic dimension; use shape()", where);
  return own.values();
}
Sizes Tensor::strides(Location where) const { return with_data(*this, "strides()", where).strides; }
std::int64_t Tensor::storage_offset(Location where) const { return with_data(*this, "storage_offset()", where).offset; }
std::int64_t Tensor::numel(Location where) const {
  const Dim n = get(*this, "numel", where).shape.numel();
  if (!n.is_static()) {
    UserError error("the shape " + shape().to_string() + " has a symbolic dimension");
    error.note("shape().numel() has it with the symbol; size_of(x.flatten(), 0) gives what it stands for, as a tensor");
    detail::throw_at(error, "numel", where);
  }
  return n.value();
}
bool Tensor::is_contiguous(Location where) const { return get(*this, "is_contiguous", where).contiguous(); }
bool Tensor::is_traced(Location where) const { return get(*this, "is_traced", where).trace_id != 0; }
bool Tensor::is_view(Location where) const { return get(*this, "is_view", where).is_view; }
std::string Tensor::describe(Location where) const {
  const detail::TensorImpl& impl = get(*this, "describe", where);
  return ir::describe(impl.dtype, impl.shape);
}

void Operand::fail_no_tensor(const char* function) const {
  detail::fail(function, is_tensor() ? "expects a tensor, got an undefined one" : "expects a tensor, got a number",
               where_);
}

void* Tensor::data_ptr(Location where) const {
  const detail::TensorImpl& impl = with_elements(*this, "data_ptr()", where);
  impl.storage->pointers.fetch_add(1, std::memory_order_relaxed);
  return impl.place();
}
void* Tensor::checked_data(DType wanted, Location where) const {
  const detail::TensorImpl& impl = with_elements(*this, "data()", where);
  if (impl.dtype != wanted)
    detail::fail_at(
        "data(): the tensor is " + describe() + ", not " + std::string(ir::name(wanted)) + "; convert it with to()",
        where);
  impl.storage->pointers.fetch_add(1, std::memory_order_relaxed);
  return impl.data();
}
Scalar Tensor::item_scalar(Location where) const {
  const detail::TensorImpl& impl = with_elements(*this, "item()", where);
  if (impl.numel() != 1) detail::fail_at("item(): needs one element, the tensor is " + describe(), where);
  if (!impl.storage->device.is_cpu()) return detail::on_host(*this).item_scalar(where);
  if (ir::is_floating(impl.dtype)) return detail::read_element(impl.dtype, impl.data());
  return detail::read_integer(impl.dtype, impl.data());
}

// ---- copies ---------------------------------------------------------------------------------------------------------

Tensor Tensor::clone(Location where) const {
  detail::require_defined(*this, "clone", where);
  if (detail::would_record({*this}) || (detail::grad_enabled() && requires_grad()))
    return detail::apply("cast", {*this}, {{"dtype", dtype()}}, where);
  const detail::TensorImpl& from = with_data(*this, "clone()", where);
  Tensor copy = detail::make_tensor(from.dtype, from.shape, from.storage->device);
  detail::copy_elements(from, *copy.impl());
  return copy;
}

Tensor Tensor::contiguous(Location where) const {
  if (get(*this, "contiguous", where).contiguous()) return *this;
  return detail::would_record({*this}) ? detail::active_trace()->copy_of(*this, where) : clone(where);
}

Tensor Tensor::to(DType wanted, Location where) const {
  if (wanted == get(*this, "to", where).dtype) return *this;
  if (detail::would_record({*this}) || (detail::grad_enabled() && requires_grad()))
    return detail::apply("cast", {*this}, {{"dtype", wanted}}, where);
  const detail::TensorImpl& from = with_data(*this, "to()", where);
  Tensor copy = detail::make_tensor(wanted, from.shape, from.storage->device);
  detail::copy_elements(from, *copy.impl());
  return copy;
}

Tensor Tensor::to(const Device& wanted, Location where) const {
  const detail::TensorImpl& from = with_data(*this, "to()", where);
  if (from.storage->device == wanted) return *this;
  if (detail::active_trace())
    detail::fail_at("to(" + wanted.to_string() + ") of " + describe() +
                        " within build(), which runs once: move it before, or the module that it is part of",
                    where);
  return detail::copied_to(*this, wanted, where);
}
Tensor detail::copied_to(const Tensor& t, const ir::Device& device, Location where) {
  const TensorImpl& from = *t.impl();
  Tensor copy = made_by("to", where, [&] { return make_tensor(from.dtype, from.shape, device); });
  copy_elements(from, *copy.impl());
  record_copy_on_tape(t, copy, where);
  return copy;
}
Tensor Tensor::cpu(Location where) const { return to(Device(), where); }
Tensor Tensor::cuda(int index, Location where) const { return to(Device(Device::Kind::cuda, index), where); }
Device Tensor::device(Location where) const { return with_data(*this, "device()", where).storage->device; }

Tensor Tensor::detach(Location where) const {
  detail::require_defined(*this, "detach", where);
  if (detail::would_record({*this})) return detail::apply("detach", {*this}, {}, where);
  (void)with_data(*this, "detach()", where);
  Tensor t = detail::alias_of(*this);
  t.impl()->is_view = true;
  return t;
}

// ---- in place -------------------------------------------------------------------------------------------------------

Tensor& Tensor::copy_(const Tensor& source, Location where) {
  for (const Tensor* t : {&std::as_const(*this), &source}) detail::require_defined(*t, "copy_", where);
  const std::uint64_t since = detail::tape_position();
  Tensor value = source.to(dtype(), where);
  if (value.shape() != shape()) value = value.expand(shape(), where);
  if (value.is_same(*this)) return *this;
  detail::assign_in_place(*this, value, "copy_", where, since);
  return *this;
}
Tensor& Tensor::fill_(Scalar value, Location where) {
  detail::require_defined(*this, "fill_", where);
  detail::require_fits(value, dtype(), "fill_", where);
  if (detail::would_record({*this})) {
    const Tensor filled = detail::recorded_full(shape(), value, dtype(), where);
    detail::assign_in_place(*this, filled, "fill_", where, 0);
    return *this;
  }
  (void)with_data(*this, "fill_()", where);
  const Tensor one = detail::wrapped(value, dtype());
  detail::assign_in_place(*this, one.expand(shape(), where), "fill_", where, detail::tape_position());
  return *this;
}
Tensor& Tensor::zero_(Location where) { return fill_(0, where.in("zero_")); }

// ---- factories ------------------------------------------------------------------------------------------------------

namespace {

/// Fills a fresh tensor from a function of the position.
template <class F>
Tensor generate(const Shape& shape, const TensorOptions& options, Location where, F&& value) {
  Tensor t = detail::made_by(where.function, where, [&] { return detail::make_tensor(options.dtype, shape); });
  std::byte* p = t.impl()->data();
  const std::size_t step = ir::size_of(options.dtype);
  const std::int64_t n = t.numel();
  for (std::int64_t i = 0; i < n; ++i)
    detail::write_element(options.dtype, p + static_cast<std::size_t>(i) * step, value(i));
  return detail::with_options(std::move(t), options, where);
}

}  // namespace

Tensor detail::with_options(Tensor t, const TensorOptions& options, Location where) {
  t = detail::contiguous_on(t, options.device);
  if (options.requires_grad) t.requires_grad_(true, where);
  return t;
}
TensorOptions detail::options_of(const Tensor& like) {
  const auto& storage = get(like).storage;
  return {like.dtype(), storage ? storage->device : Device()};
}

Tensor detail::beside(const Tensor& given, const Tensor& like, Location where) {
  const Device device = options_of(like).device;
  const bool moves = !device.is_cpu() && given.impl()->storage && given.impl()->storage->device.is_cpu();
  return moves ? copied_to(given, device, where) : given;
}

void detail::require_fits(Scalar value, DType dtype, const char* function, Location where) {
  const auto range = ir::integer_range(dtype);
  if (!range) return;
  const auto [least, largest] = *range;
  const bool floating = value.category() == Scalar::Category::floating;
  const bool fits = floating ? std::trunc(value.number()) >= static_cast<double>(least) &&
                                   value.number() < static_cast<double>(largest) + 1
                             : value.integer() >= (least == 0 ? -largest : least) && value.integer() <= largest;
  if (!fits)
    detail::fail(function,
                 fmt::format("the numbers of {} lie in [{}, {}], got {}", ir::name(dtype), least, largest,
                             floating ? fmt::format("{}", value.number()) : fmt::format("{}", value.integer())),
                 where);
}

Tensor empty(const Shape& shape, TensorOptions options, Location where) {
  return zeros(shape, options, where.in("empty"));
}
Tensor zeros(const Shape& shape, TensorOptions options, Location given) {
  const Location where = given.in("zeros");
  if (!shape.is_static()) return full(shape, 0, options, where);
  Tensor t = detail::made_by("zeros", where, [&] { return detail::make_tensor(options.dtype, shape, options.device); });
  const detail::Storage& memory = *t.impl()->storage;
  if (options.device.is_cpu())
    std::memset(memory.data, 0, memory.bytes);
  else
    ir::clear_on_device(options.device, memory.data, memory.bytes);
  return detail::with_options(std::move(t), options, where);
}
Tensor ones(const Shape& shape, TensorOptions options, Location where) {
  return full(shape, 1, options, where.in("ones"));
}
Tensor full(const Shape& shape, Scalar value, TensorOptions options, Location where) {
  detail::require_fits(value, options.dtype, "full", where);
  if (!shape.is_static()) {
    detail::require_recording(shape, "full", where);
    if (options.requires_grad)
      detail::fail(
          "full",
          "a tensor of the shape " + shape.to_string() + " cannot require a gradient: it is no parameter of fixed size",
          where);
    return detail::recorded_full(shape, value, options.dtype, where);
  }
  return generate(shape, options, where.in("full"), [&](std::int64_t) { return value; });
}
namespace {
TensorOptions options_like(const Tensor& like, DType dtype, const char* function, Location where) {
  detail::require_defined(like, function, where);
  TensorOptions options = detail::options_of(like);
  options.dtype = dtype;
  return options;
}
/// Of an undefined tensor any: the function that is given it says so.
DType dtype_like(const Tensor& like) { return like.defined() ? like.dtype() : DType::f32; }
}  // namespace

Tensor empty_like(const Tensor& like, DType dtype, Location where) {
  const TensorOptions options = options_like(like, dtype, "empty_like", where);
  return zeros(like.shape(), options, where.in("empty_like"));
}
Tensor zeros_like(const Tensor& like, DType dtype, Location where) {
  const TensorOptions options = options_like(like, dtype, "zeros_like", where);
  return zeros(like.shape(), options, where.in("zeros_like"));
}
Tensor ones_like(const Tensor& like, DType dtype, Location where) {
  const TensorOptions options = options_like(like, dtype, "ones_like", where);
  return ones(like.shape(), options, where.in("ones_like"));
}
Tensor full_like(const Tensor& like, Scalar value, DType dtype, Location where) {
  const TensorOptions options = options_like(like, dtype, "full_like", where);
  return full(like.shape(), value, options, where.in("full_like"));
}
Tensor empty_like(const Tensor& like, Location where) { return empty_like(like, dtype_like(like), where); }
Tensor zeros_like(const Tensor& like, Location where) { return zeros_like(like, dtype_like(like), where); }
Tensor ones_like(const Tensor& like, Location where) { return ones_like(like, dtype_like(like), where); }
Tensor full_like(const Tensor& like, Scalar value, Location where) {
  return full_like(like, value, dtype_like(like), where);
}

Tensor arange(const detail::Length& end, Location where) {
  if (end.size.is_static()) return arange(end.size.value(), where);
  detail::require_recording(Shape{end.size}, "arange", where);
  return detail::recorded("arange", {{"shape", Shape{end.size}}, {"dtype", DType::i64}}, where);
}
Tensor arange(Scalar end, Location where) { return arange(0, end, 1, where); }
Tensor arange(Scalar start, Scalar end, Scalar step, Location where) {
  const bool floating = start.category() == Scalar::Category::floating ||
                        end.category() == Scalar::Category::floating || step.category() == Scalar::Category::floating;
  return arange(start, end, step, floating ? DType::f32 : DType::i64, where);
}
Tensor arange(Scalar start, Scalar end, Scalar step, DType dtype, Location where) {
  if (!(step.number() != 0) || !std::isfinite(start.number()) || !std::isfinite(end.number()) ||
      !std::isfinite(step.number()))
    detail::fail("arange",
                 fmt::format("start, end and step must be finite, and step not 0, got {}, {} and {}", start.number(),
                             end.number(), step.number()),
                 where);
  const double count = std::ceil((end.number() - start.number()) / step.number());
  if (count < 0)
    detail::fail("arange",
                 fmt::format("the end lies on the other side of the start than the step goes, got {}, {} and {}",
                             start.number(), end.number(), step.number()),
                 where);
  if (count > 1e15) detail::fail("arange", fmt::format("too many elements: at most 10^15, got {}", count), where);
  const bool numbers = start.category() == Scalar::Category::floating || step.category() == Scalar::Category::floating;
  const bool integers = !numbers || !ir::is_floating(dtype);
  return generate({static_cast<std::int64_t>(count)}, {dtype}, where.in("arange"), [&](std::int64_t i) {
    return integers ? Scalar(start.integer() + i * step.integer())
                    : Scalar(start.number() + static_cast<double>(i) * step.number());
  });
}

Tensor linspace(double start, double end, std::int64_t steps, TensorOptions options, Location given) {
  const Location where = given.in("linspace");
  if (steps < 0)
    detail::fail("linspace", "the number of steps must not be negative, got " + std::to_string(steps), where);
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  // From both ends, as PyTorch does, so that the last element is exactly `end`. In the dtype's own precision where that
  // is f32.
  if (options.dtype == DType::f32) {
    const float first = static_cast<float>(start), last = static_cast<float>(end);
    const float width = steps > 1 ? (last - first) / static_cast<float>(steps - 1) : 0;
    return generate({steps}, options, where, [&](std::int64_t i) {
      return Scalar(i < steps / 2 || steps == 1 ? first + width * static_cast<float>(i)
                                                : last - width * static_cast<float>(steps - i - 1));
    });
  }
  return generate({steps}, options, where, [&](std::int64_t i) {
    return Scalar(i < steps / 2 || steps == 1 ? start + step * static_cast<double>(i)
                                              : end - step * static_cast<double>(steps - i - 1));
  });
}

Tensor eye(std::int64_t n, TensorOptions options, Location where) {
  return generate({n, n}, options, where.in("eye"), [&](std::int64_t i) {
    return Scalar(i / std::max<std::int64_t>(n, 1) == i % std::max<std::int64_t>(n, 1) ? 1 : 0);
  });
}

namespace {
/// Where column - row - offset is what `is_kept` takes.
Tensor triangle_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset, Location where,
                        const std::function<bool(std::int64_t)>& is_kept) {
  if (rows < 0 || columns < 0)
    detail::fail(where.function, fmt::format("sizes must not be negative, got {} and {}", rows, columns), where);
  if (columns > 0 && rows > std::numeric_limits<std::int32_t>::max() / columns)
    detail::fail(where.function, fmt::format("{} rows of {} are more than 2^31 elements", rows, columns), where);
  offset = std::clamp<std::int64_t>(offset, std::numeric_limits<std::int32_t>::min(),
                                    std::numeric_limits<std::int32_t>::max());  // further out there is nothing
  std::vector<std::int64_t> found[2];
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      if (is_kept(column - row - offset)) {
        found[0].push_back(row);
        found[1].push_back(column);
      }
  const auto count = static_cast<std::int64_t>(found[0].size());
  found[0].insert(found[0].end(), found[1].begin(), found[1].end());
  return from_data(found[0], {2, count}, where);
}
}  // namespace

Tensor tril_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset, Location where) {
  return triangle_indices(rows, columns, offset, where.in("tril_indices"),
                          [](std::int64_t above) { return above <= 0; });
}
Tensor triu_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset, Location where) {
  return triangle_indices(rows, columns, offset, where.in("triu_indices"),
                          [](std::int64_t above) { return above >= 0; });
}

Tensor detail::copied_from(const void* data, std::optional<std::size_t> bytes, DType dtype, const Shape& shape,
                           Location where) {
  const char* const function = where.function;
  if (!shape.is_static())
    fail(
        function,
        "the shape " + shape.to_string() + " has a symbol; data have as many elements as they have. Make them an input",
        where);
  // Before there is memory: a shape may be as wrong as its pointer.
  const std::size_t due = made_by(function, where, [&] { return bytes_of(dtype, shape); });
  if (bytes.value_or(due) != due)
    fail(function, fmt::format("{} takes {} bytes, got {}", ir::describe(dtype, shape), due, *bytes), where);
  if (data == nullptr && due > 0)
    fail(function, fmt::format("{} takes {} bytes, got a null pointer", ir::describe(dtype, shape), due), where);
  const Tensor t = made_by(function, where, [&] { return make_tensor(dtype, shape); });
  if (due > 0) std::memcpy(t.impl()->data(), data, due);
  return t;
}

Tensor from_bytes(const void* data, std::size_t bytes, DType dtype, const Shape& shape, Location where) {
  return detail::copied_from(data, bytes, dtype, shape, where.in("from_bytes"));
}

namespace {

void shape_of(const NestedList& list, std::size_t depth, Sizes& sizes, Scalar::Category& category, Location where) {
  if (!list.is_list()) {
    if (depth != sizes.size()) detail::fail("tensor", "the nested lists have different depths", where);
    category = std::max(category, list.leaf().category());
    return;
  }
  const auto length = static_cast<std::int64_t>(list.items().size());
  if (depth == sizes.size())
    sizes.push_back(length);
  else if (sizes[depth] != length)
    detail::fail("tensor",
                 "a list of " + std::to_string(length) + " stands beside one of " + std::to_string(sizes[depth]) +
                     " at depth " + std::to_string(depth),
                 where);
  bool first = true;
  for (const NestedList& item : list.items()) {
    // Only the first item may open another dimension.
    if (!first && item.is_list() && depth + 1 == sizes.size())
      detail::fail("tensor", "the nested lists have different depths", where);
    shape_of(item, depth + 1, sizes, category, where);
    first = false;
  }
}

void gather_leaves(const NestedList& list, std::vector<Scalar>& leaves) {
  if (!list.is_list()) {
    leaves.push_back(list.leaf());
    return;
  }
  for (const NestedList& item : list.items()) gather_leaves(item, leaves);
}

Tensor from_list(std::initializer_list<NestedList> items, std::optional<DType> dtype, Location where) {
  const NestedList list(items);
  Sizes sizes;
  Scalar::Category category = Scalar::Category::boolean;
  shape_of(list, 0, sizes, category, where);
  std::vector<Scalar> leaves;
  gather_leaves(list, leaves);
  if (leaves.empty()) category = Scalar::Category::floating;
  const DType chosen = dtype                                   ? *dtype
                       : category == Scalar::Category::boolean ? DType::boolean
                       : category == Scalar::Category::integer ? DType::i64
                                                               : DType::f32;
  for (const Scalar leaf : leaves) detail::require_fits(leaf, chosen, "tensor", where);
  return generate(Shape::of(sizes), {chosen}, where.in("tensor"),
                  [&](std::int64_t i) { return leaves[static_cast<std::size_t>(i)]; });
}

}  // namespace

Tensor tensor(std::initializer_list<NestedList> items, Location where) { return from_list(items, {}, where); }
Tensor tensor(std::initializer_list<NestedList> items, DType dtype, Location where) {
  return from_list(items, dtype, where);
}
Tensor tensor(Scalar value, Location where) {
  return tensor(value,
                value.category() == Scalar::Category::boolean   ? DType::boolean
                : value.category() == Scalar::Category::integer ? DType::i64
                                                                : DType::f32,
                where);
}
Tensor detail::wrapped(Scalar value, DType dtype) {
  return generate({}, {dtype}, Location{}.in("tensor"), [&](std::int64_t) { return value; });
}
Tensor tensor(Scalar value, DType dtype, Location where) {
  detail::require_fits(value, dtype, "tensor", where);
  return detail::wrapped(value, dtype);
}

// ---- comparison -----------------------------------------------------------------------------------------------------

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, Location where) {
  for (const Tensor* t : {&a, &b}) detail::require_defined(*t, "allclose", where);
  if (a.shape() != b.shape()) return false;
  const std::vector<double> x = a.to_vector<double>(where), y = b.to_vector<double>(where);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!(x[i] == y[i]) && !(std::abs(x[i] - y[i]) <= atol + rtol * std::abs(y[i]))) return false;
  return true;
}

bool equal(const Tensor& a, const Tensor& b, Location where) {
  for (const Tensor* t : {&a, &b}) detail::require_defined(*t, "equal", where);
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (ir::is_floating(a.dtype())) return a.to_vector<double>(where) == b.to_vector<double>(where);
  return a.to_vector<std::int64_t>(where) == b.to_vector<std::int64_t>(where);
}

}  // namespace graven
