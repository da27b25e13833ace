// What a Tensor handle refers to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graven/tensor.h"
#include "ir/device.h"
#include "ir/graph.h"

namespace graven::detail {

struct GradNode;

/// Memory shared by a tensor and its views; 64-byte aligned. On a device nothing of the host reads or writes it.
struct Storage {
  explicit Storage(std::size_t bytes, const ir::Device& device = {});
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data = nullptr;
  std::size_t bytes = 0;
  ir::Device device;
  std::shared_ptr<std::byte> of_device;  ///< what `data` points to there
  /// Counts writes: autograd refuses saved tensors that were written since, graphs notice changed weights.
  std::atomic<std::uint64_t> version{0};
  /// Counts pointers that were given out, through which somebody may have written since.
  std::atomic<std::uint64_t> pointers{0};
  /// What a graph compares between calls.
  std::uint64_t possible_writes() const {
    return version.load(std::memory_order_relaxed) + pointers.load(std::memory_order_relaxed);
  }
  std::uint64_t made_in = 0;  ///< the trace in whose build() it was made
};

struct TensorImpl;

/// How a tensor came from another one's memory, in a graph or under autograd. What is written into either is seen
/// through both: a write into a view gives what it is a view of a new value, or a new history, and a view whose base
/// was written since is taken again when somebody asks for its own.
struct RecordedView {
  /// Eagerly: of a tensor of this storage.
  RecordedView(std::shared_ptr<TensorImpl> base, const ir::OpDef& op, ir::Attributes attributes, const Storage& storage)
      : base(std::move(base)),
        op(&op),
        attributes(std::move(attributes)),
        seen(storage.version.load(std::memory_order_relaxed)) {}
  /// While tracing, where all views of a tensor share the count of its changes.
  RecordedView(std::shared_ptr<TensorImpl> base, const ir::OpDef& op, ir::Attributes attributes,
               std::shared_ptr<std::uint64_t> changes, Tensor positions = {})
      : base(std::move(base)),
        op(&op),
        attributes(std::move(attributes)),
        positions(std::move(positions)),
        seen(*changes),
        changes(std::move(changes)) {}
  ~RecordedView();
  RecordedView(const RecordedView&) = delete;
  RecordedView& operator=(const RecordedView&) = delete;

  std::shared_ptr<TensorImpl> base;
  const ir::OpDef* op;
  ir::Attributes attributes;
  Tensor positions = {};  ///< of a part of a symbolic dimension, by index_select; else undefined
  std::uint64_t seen;     ///< the version of the memory, or the count of changes, when the view was taken
  std::shared_ptr<std::uint64_t> changes;  ///< of what all of them are views of; null eagerly
};

struct TensorImpl {
  DType dtype = DType::f32;
  Shape shape;
  // ---- memory: of a recorded tensor what it would have eagerly, with symbolic dimensions at their maxima ----
  Sizes sizes;
  Sizes strides;
  // ---- eager ----
  std::int64_t offset = 0;
  std::shared_ptr<Storage> storage;
  bool is_view = false;
  // ---- autograd ----
  bool requires_grad = false;
  std::uint64_t leaf_since = 0;  ///< when it began to require a gradient, in next_moment()s
  std::shared_ptr<TensorImpl> grad;
  std::shared_ptr<GradNode> grad_fn;
  std::int32_t output_index = 0;
  // ---- modules ----
  bool is_parameter = false;
  bool is_replaced = false;              ///< some module has another tensor in its place by now
  std::atomic<bool> was_let_go = false;  ///< a handle was given another tensor within a build()
  std::string owner;  ///< class of the module that registered it, as a parameter or a buffer, and its name there;
                      ///< of a recorded tensor the name of its value
  std::optional<Layout> layout;  ///< over ranks; none was set
  // ---- tracing ----
  std::uint64_t trace_id = 0;  ///< 0: not recorded
  ir::ValueId value = ir::kNone;
  // ---- tracing and autograd ----
  std::shared_ptr<RecordedView> view;  ///< of what it is a view, and how

  /// In the host's memory. User error where it lies on a device.
  std::byte* data() const {
    if (!storage->device.is_cpu()) refuse_device();
    return place();
  }
  /// Wherever it lies.
  std::byte* place() const { return storage->data + offset * static_cast<std::int64_t>(ir::size_of(dtype)); }
  [[noreturn]] void refuse_device() const;
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (std::int64_t s : sizes) n *= s;
    return n;
  }
  bool contiguous() const;
  void bump_version() { storage->version.fetch_add(1, std::memory_order_relaxed); }
};

/// A count over all threads: tells what was before a module's call from what was made within it.
std::uint64_t next_moment();

/// Row-major strides.
Sizes contiguous_strides(const Sizes& sizes);
/// Uninitialised memory; user error when the size is negative, symbolic or too large.
Tensor make_tensor(DType dtype, const Shape& shape, const ir::Device& device = {});
/// Another view of the same storage. Does not record.
Tensor make_view(const Tensor& base, Sizes sizes, Sizes strides, std::int64_t offset);
/// The same memory, no history.
Tensor alias_of(const Tensor& t);
/// What a function computed from x, or a copy where that shares x's memory, for functions that copy whatever their
/// arguments: a later write into the result is none into x.
Tensor unshared(const Tensor& result, const Tensor& x, Location where);
/// Copies elements between any strides and any devices, converting dtypes. Sizes are equal. Does not record; bumps the
/// version.
void copy_elements(const TensorImpl& source, TensorImpl& target);
/// Row-major copy in memory of the device, or the tensor itself when it is contiguous there. Does not record.
Tensor contiguous_on(const Tensor& t, const ir::Device& device);
/// The same in the host's memory.
Tensor contiguous_copy(const Tensor& t);
/// A row-major copy in memory of another device, which autograd remembers.
Tensor copied_to(const Tensor& t, const ir::Device& device, Location where);
/// The tensor, or a copy of it in the host's memory where it lies on a device. Does not record.
Tensor on_host(const Tensor& t);
/// Puts the tensor's elements into memory of the device, row-major, where they are not yet: all handles have it there.
void move_to(TensorImpl& impl, const ir::Device& device);
/// User error of the function when undefined. Without one: of a tensor that was looked at before.
const TensorImpl& get(const Tensor& t, const char* function, Location where);
const TensorImpl& get(const Tensor& t);
TensorImpl& get_mutable(const Tensor& t, const char* function, Location where);
/// Dimension d of `rank`, negative from the end; user error when out of range.
std::int64_t normalize_dim(std::int64_t d, std::int64_t rank, const char* function, Location where);

/// n elements of one dtype as another, row-major.
void convert_buffer(DType from, const void* source, DType to, void* target, std::int64_t n);
double read_element(DType dtype, const std::byte* p);
std::int64_t read_integer(DType dtype, const std::byte* p);
void write_element(DType dtype, std::byte* p, Scalar value);
/// f16 and bf16, round to nearest even.
std::uint16_t to_half(float value);
float from_half(std::uint16_t bits);
std::uint16_t to_bfloat16(float value);
float from_bfloat16(std::uint16_t bits);

}  // namespace graven::detail
