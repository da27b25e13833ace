// Batches: samples of a dataset gathered and converted into the model's inputs.
//
//   Batch batch(inputs, 64);                         // one aligned buffer an input, 64 samples each
//   BatchSource source(data, inputs, {.mean = {0.5}, .std = {0.5}});
//   source.fill(batch, 64, [&](auto i) { return order[start + i]; });
//   model.step(batch.pointers(), 64, ...);
//
// A field serves the input of its name; when the names don't match, fields serve inputs in order. Shapes must agree but
// for dimensions of 1: an image u8[28,28] fits f32[1,28,28]. Conversions: whatever is exact or rounds (integers to
// floats, floats to floats, integers to integers that hold them); 8-bit unsigned samples of more than one element
// become x / 255 where the model wants floats, as torchvision's ToTensor has it, then (x - mean) / std for each
// channel. Integers are checked against the input's number of classes, all of them when the source is made and again as
// they are copied. fill() allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "arena.h"
#include "dataset.h"
#include "tensor.h"

namespace graven::runtime {

/// Memory for a batch.
class Batch {
 public:
  Batch(const std::vector<TensorDescription>& tensors, std::int64_t samples);

  std::int64_t samples() const { return samples_; }
  std::byte* row(std::size_t tensor, std::int64_t sample) const {
    return rows_[tensor] + static_cast<std::size_t>(sample) * strides_[tensor];
  }
  const void* const* pointers() const { return constants_.data(); }
  void* const* writable() const { return pointers_.data(); }
  /// Writes `value` into every element of the rows from `first_row` on, of an input of integers that hold it.
  void set_rows(const std::vector<TensorDescription>& tensors, std::size_t tensor, std::int64_t first_row,
                std::int64_t value);
  /// Fills with what a benchmark needs: floats uniform in [-1, 1), integers below `classes` (or 0 and 1), the same for
  /// the same seed.
  void randomize(const std::vector<TensorDescription>& tensors, std::int64_t seed);

 private:
  std::int64_t samples_;
  Arena arena_;
  std::vector<std::byte*> rows_;
  std::vector<std::size_t> strides_;
  std::vector<void*> pointers_;
  std::vector<const void*> constants_;
};

/// What each symbol stands for in the data: their largest size where no field says, and an Error where two fields
/// differ. Fields are found by the inputs' names, or else by their order, as BatchSource does.
std::vector<std::int64_t> sizes_in(const Dataset& data, const std::vector<TensorDescription>& inputs,
                                   const std::vector<SymbolDescription>& symbols);
/// The descriptions with these sizes of the symbols.
std::vector<TensorDescription> with_sizes(std::vector<TensorDescription> tensors,
                                          const std::vector<std::int64_t>& sizes);

/// An Error unless samples of files can be fed to the inputs: one of them is batched, and the batch is nowhere but in
/// dimension 0 of those that are.
void require_samples(const std::vector<TensorDescription>& inputs);

struct Normalization {
  std::vector<double> mean{}, std{};  ///< empty, one number, or one for each channel (dimension 0 of an image of three)
  bool required = true;               ///< data without 8-bit images are an error; else they are taken as they are
};

class BatchSource {
 public:
  /// Refers to `data` and `inputs`, which must outlive it.
  BatchSource(const Dataset& data, const std::vector<TensorDescription>& inputs, const Normalization& normalization);

  const Dataset& dataset() const { return *data_; }
  /// Copies sample `index` into row `row` of every batched input.
  void copy(Batch& batch, std::int64_t row, std::int64_t index) const;
  /// Rows 0 to count - 1 become samples index(0), index(1), ...
  template <class Index>
  void fill(Batch& batch, std::int64_t count, const Index& index) const {
    for (std::int64_t i = 0; i < count; ++i) copy(batch, i, index(i));
  }
  /// Copies the inputs that are not batched; once is enough for a Batch.
  void fill_shared(Batch& batch) const;
  /// "images f32[1,28,28] from u8[28,28] / 255, mean 0.286, std 0.353".
  const std::vector<std::string>& bindings() const { return bindings_; }

 private:
  struct Binding {
    std::size_t field;
    std::int64_t elements, channel;  ///< of a sample; of a channel of it
    DType from, to;
    std::int64_t classes, ignored;
    bool batched;
    std::vector<float> table;  ///< 8-bit images: 256 values a channel
  };
  void convert(const Binding& binding, std::byte* to, const std::byte* from, std::int64_t index) const;

  const Dataset* data_;
  std::vector<Binding> bindings_by_input_;
  std::vector<std::string> bindings_;
};

}  // namespace graven::runtime
