// The tensors that a program and its files speak of: element types, descriptions of inputs and outputs, named memory.
//
//   TensorDescription images{.name = "images", .dtype = DType::f32, .shape = {64, 1, 28, 28}, .batched = true};
//   describe(images.dtype, images.shape);   // "f32[64,1,28,28]"
//   Variable weight{"model.conv1.weight", DType::f32, {6, 1, 5, 5}, pointer};
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shard.h"

namespace graven::runtime {

/// Element types of memory and files, native byte order (little-endian). A boolean is one byte, 0 or 1.
enum class DType : std::uint8_t { boolean, u8, i8, u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64 };

struct DTypeInfo {
  const char* name;         ///< "f32"
  const char* safetensors;  ///< as in safetensors headers
  std::size_t size;         ///< bytes
  bool floating, integral;
};

/// By value of DType.
inline constexpr DTypeInfo kDTypes[] = {
    {"bool", "BOOL", 1, false, false}, {"u8", "U8", 1, false, true},   {"i8", "I8", 1, false, true},
    {"u16", "U16", 2, false, true},    {"i16", "I16", 2, false, true}, {"f16", "F16", 2, true, false},
    {"bf16", "BF16", 2, true, false},  {"u32", "U32", 4, false, true}, {"i32", "I32", 4, false, true},
    {"f32", "F32", 4, true, false},    {"u64", "U64", 8, false, true}, {"i64", "I64", 8, false, true},
    {"f64", "F64", 8, true, false}};

constexpr const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }
constexpr const char* name(DType dtype) { return info(dtype).name; }
constexpr std::size_t size_of(DType dtype) { return info(dtype).size; }
/// The type of that name, "f32"; nothing when there is none.
constexpr std::optional<DType> dtype_named(std::string_view name) {
  for (std::size_t d = 0; d < std::size(kDTypes); ++d)
    if (name == kDTypes[d].name) return static_cast<DType>(d);
  return std::nullopt;
}
constexpr bool is_floating(DType dtype) { return info(dtype).floating; }
constexpr bool is_integral(DType dtype) { return info(dtype).integral; }

using Dims = std::vector<std::int64_t>;

/// Product of the dimensions, 1 for rank 0. The caller has checked that it does not overflow.
inline std::int64_t count_of(const Dims& shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

/// The product of the dimensions times `unit`, or nothing when a dimension is negative or a step of the product does
/// not fit 63 bits.
inline std::optional<std::int64_t> checked_count(const Dims& shape, std::int64_t unit = 1) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) {
    if (d < 0 || __builtin_mul_overflow(n, d, &n)) return std::nullopt;
  }
  if (__builtin_mul_overflow(n, unit, &n)) return std::nullopt;
  return n;
}

/// "[64,1,28,28]"; of more than 16 dimensions the first ones and their number.
inline std::string describe(const Dims& shape) {
  std::string s = "[";
  for (std::size_t i = 0; i < shape.size() && i < 16; ++i)
    s += std::string(i == 0 ? "" : ",") + std::to_string(shape[i]);
  return s + (shape.size() > 16 ? ",...] (" + std::to_string(shape.size()) + " dimensions)" : "]");
}
/// "f32[64,1,28,28]".
inline std::string describe(DType dtype, const Dims& shape) { return name(dtype) + describe(shape); }

/// A size that the files decide: a symbol of the model that is not the batch.
struct SymbolDescription {
  const char* name = "";     ///< "length"
  std::int64_t maximum = 1;  ///< the largest that it may be
};

/// A dimension that is a multiple of a symbol and a number.
struct SymbolicDimension {
  std::size_t dimension = 0;     ///< of the tensor's shape
  std::size_t symbol = 0;        ///< of the model's list of symbols
  std::int64_t coefficient = 1;  ///< the dimension is coefficient * symbol + offset
  std::int64_t offset = 0;
  std::int64_t least = 1;  ///< the smallest that the symbol may be
  std::int64_t size(std::int64_t symbol_size) const { return coefficient * symbol_size + offset; }
};

/// A dimension of an output that is any other expression.
struct ComputedDimension {
  std::size_t dimension = 0;                                                      ///< of the tensor's shape
  std::int64_t (*size)(std::int64_t batch, const std::int64_t* sizes) = nullptr;  ///< of the model's list of symbols
};

/// A dimension that is a multiple of the batch and a number.
struct BatchDimension {
  std::size_t dimension = 0;     ///< of the tensor's shape
  std::int64_t coefficient = 1;  ///< the dimension is coefficient * batch + offset
  std::int64_t offset = 0;
  std::string text() const {
    return (coefficient == 1 ? "" : std::to_string(coefficient) + "*") + std::string("batch") +
           (offset == 0 ? "" : (offset < 0 ? "" : "+") + std::to_string(offset));
  }
};

/// An input or output of the model.
struct TensorDescription {
  const char* name = "";  ///< "images"
  DType dtype = DType::f32;
  Dims shape{};                 ///< at the largest batch
  bool batched = true;          ///< dimension 0 counts samples; otherwise the whole tensor is the same for every batch
  std::int64_t classes = 0;     ///< integers: valid values are 0 to classes - 1; 0 when there is no such bound
  std::int64_t ignored = -100;  ///< with classes: a value beside them that is valid too, of labels that do not count
  const char* comment = "";     ///< for --help: "images, 28 x 28, one channel"
  std::vector<SymbolicDimension> symbolic{};  ///< whose sizes in `shape` are the largest
  std::vector<ComputedDimension> computed{};  ///< the same
  /// All dimensions that are of the batch, where that is not just dimension 0: samples are then neither rows of it nor
  /// left out of it, and it is not batched.
  std::vector<BatchDimension> batch_dimensions{};
  bool shared = false;  ///< of an output that is not batched: the samples have no part in it

  /// The shape of one sample: without dimension 0 when batched.
  Dims sample_shape() const { return batched ? Dims(shape.begin() + 1, shape.end()) : shape; }
  std::size_t sample_bytes() const { return static_cast<std::size_t>(count_of(sample_shape())) * size_of(dtype); }
  /// "f32[5,batch,3]": as describe(), with "batch" and "2*batch" for dimensions of batch_dimensions.
  std::string type() const {
    std::string s = std::string(runtime::name(dtype)) + "[";
    for (std::size_t i = 0; i < shape.size(); ++i) {
      std::string size = std::to_string(shape[i]);
      for (const BatchDimension& d : batch_dimensions)
        if (d.dimension == i) size = d.text();
      s += (i == 0 ? "" : ",") + size;
    }
    return s + "]";
  }
};

/// A parameter, buffer or optimizer state in the model's memory, under its path in checkpoints and weights files.
struct Variable {
  std::string path{};  ///< "model.conv1.weight", "model.conv1.weight-momentum"
  DType dtype = DType::f32;
  Dims shape{};
  void* data = nullptr;
  Shard shard{};  ///< of several ranks that share it this one has these elements alone
  Cut cut{};      ///< of several ranks that have it in parts this one has one alone

  bool is_part() const { return cut.is_cut() || shard.shares(count_of(shape)); }
  /// Elements and bytes that are here; those of the variable.
  std::int64_t count() const { return cut.is_cut() ? count_of(shape) / cut.ranks : shard.count(count_of(shape)); }
  std::size_t bytes() const { return static_cast<std::size_t>(count()) * size_of(dtype); }
  std::size_t whole_bytes() const { return static_cast<std::size_t>(count_of(shape)) * size_of(dtype); }
  /// The shape of what is here, where it is no shard.
  Dims own_shape() const {
    Dims own = shape;
    if (cut.is_cut()) own[static_cast<std::size_t>(cut.dim)] /= cut.ranks;
    return own;
  }

  /// Calls body(place in the whole variable, place in the part, count), in bytes, for what one of `size` ranks has of a
  /// variable that is_part().
  template <class Body>
  void each_run_of(int rank, int size, const Body& body) const {
    const std::size_t element = size_of(dtype);
    const std::int64_t n = count_of(shape);
    if (!cut.is_cut()) {
      const Shard theirs{rank, size, 1};
      body(static_cast<std::size_t>(theirs.first(n)) * element, std::size_t{0},
           static_cast<std::size_t>(theirs.count(n)) * element);
      return;
    }
    std::int64_t run = shape[static_cast<std::size_t>(cut.dim)] / (cut.blocks * cut.ranks);
    for (std::size_t d = static_cast<std::size_t>(cut.dim) + 1; d < shape.size(); ++d) run *= shape[d];
    std::int64_t own = 0;
    if (run == 0) return;
    for (std::int64_t at = rank % cut.ranks * run; at < n; at += cut.ranks * run, own += run)
      body(static_cast<std::size_t>(at) * element, static_cast<std::size_t>(own) * element,
           static_cast<std::size_t>(run) * element);
  }
};

/// Appends a variable. A function apart from those that list a model's hundreds of variables, which so stay quick to
/// compile.
[[gnu::noinline]] inline void add(std::vector<Variable>& list, const char* path, DType dtype,
                                  std::initializer_list<std::int64_t> shape, void* data) {
  list.push_back({path, dtype, shape, data});
}

}  // namespace graven::runtime
