// Data files as samples: a number of them, each with the same named fields.
//
//   const Dataset data = open_dataset({.path = "/usr/share/datasets/fashion-mnist"}, inputs, Split::train);
//   data.size();                       // 60000
//   data.fields()[0];                  // images: u8[28,28]
//   data.sample(0, 17);                // the bytes of sample 17 of field 0: in a mapping, or in memory when they had
//                                      // to be decompressed
//
// A path is one of
//   a folder with IDX files        train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz]; t10k-... are its
//                                  test set
//   a folder with CIFAR batches    data_batch_*.bin, test_batch.bin (CIFAR-10); train.bin, test.bin (CIFAR-100)
//   a folder with npy files        <input>.npy for each input of the model, or train/<input>.npy and test/<input>.npy
//   a folder with safetensors      train.safetensors and test.safetensors
//   a folder with npz files        train.npz and test.npz
//   a file                         .safetensors or .npz: tensors named like the model's inputs; CIFAR's .bin
//   a text                         .txt: its bytes are tokens; a model of tokens and targets gets windows of
//                                  both (tokens.h)
//   a token file                   llm.c's, of 16 or 32 bits a token: the same
//   several files, comma between   one for each input of the model, in order: IDX (also gzipped), npy, a PGM or PPM
//                                  picture, or raw samples of the input's type
// and --data-format says which where the names don't. Files are validated whole when they are opened: sizes, shapes,
// labels in range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "array.h"
#include "tensor.h"

namespace graven::runtime {

/// One field of every sample.
struct Field {
  std::string name;  ///< "images"
  DType dtype = DType::u8;
  Dims shape;             ///< of one sample
  bool batched = true;    ///< otherwise one tensor that all samples share
  std::string path = {};  ///< of the file that it comes from; empty: the dataset's
};

/// An Error unless the field's samples can be the input's: of its shape but for dimensions of 1, a symbolic dimension
/// with any size up to its largest, and integers where it takes integers. `path`: the file that the field comes from.
void check_field(const Field& field, const std::string& path, const TensorDescription& input);

enum class Split : std::uint8_t { train, test };

class Dataset {
 public:
  std::int64_t size() const { return size_; }
  const std::vector<Field>& fields() const { return fields_; }
  /// The field of that name, or -1.
  int find(std::string_view name) const;
  /// The bytes of a sample's field: row-major, little-endian, not necessarily aligned. 0 <= index < size().
  const std::byte* sample(std::size_t field, std::int64_t index) const {
    const std::vector<Segment>& segments = segments_[field];
    std::size_t s = 0;
    while (index >= segments[s].end) ++s;
    return segments[s].data + (index - segments[s].begin) * segments[s].stride;
  }
  /// What it was made from, for messages; and what one field was.
  const std::string& path() const { return path_; }
  const std::string& path_of(std::size_t field) const {
    return fields_[field].path.empty() ? path_ : fields_[field].path;
  }

  explicit Dataset(std::string path) : path_(std::move(path)) {}
  /// Adds an array as a field: its first dimension counts samples, unless it is not batched. All fields must agree on
  /// the number.
  void add(const std::string& name, const Array& array, bool batched = true);
  /// Adds `count` more samples to the fields, which lie `stride` bytes apart from `data[f]` on; the first such call
  /// says what the fields are.
  void append(const std::vector<Field>& fields, const std::vector<const std::byte*>& data, std::int64_t stride,
              std::int64_t count, std::shared_ptr<const void> owner);

 private:
  struct Segment {
    std::int64_t begin, end;  ///< samples
    const std::byte* data;
    std::int64_t stride;
  };

  std::string path_;
  std::int64_t size_ = -1;
  std::vector<Field> fields_;
  std::vector<std::vector<Segment>> segments_;  ///< by field
  std::vector<std::shared_ptr<const void>> owners_;
};

struct DatasetOptions {
  std::string path;
  std::string format = "auto";  ///< auto, idx, cifar10, cifar100, npy, npz, safetensors, raw, text, tokens
};

/// Opens one split. A path that has no splits (files) is whatever it is asked for. An Error when there is nothing, when
/// fields disagree on the number of samples, or when there are no samples.
Dataset open_dataset(const DatasetOptions& options, const std::vector<TensorDescription>& inputs, Split split);
/// Whether the path is a folder that holds a test set of its own.
bool has_test_split(const DatasetOptions& options, const std::vector<TensorDescription>& inputs);

}  // namespace graven::runtime
