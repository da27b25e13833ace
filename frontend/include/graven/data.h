// Data in batches, from disk, from memory or from a class of one's own: for training loops of user programs. (Emitted
// programs read the files themselves, in the same order.)
//
//   data::DataLoader train("cifar-10-batches-bin", {.batch_size = 64, .shuffle = true, .drop_last = true});
//   for (std::int64_t epoch = 0; epoch < 10; ++epoch)
//     for (auto [images, labels] : train.epoch(epoch)) step(images, labels);      // f32[64,3,32,32] in [0, 1], i64[64]
//
// A path is a folder with IDX files (MNIST, Fashion-MNIST, also gzipped), with CIFAR-10 or CIFAR-100 binary batches, or
// with images.npy and labels.npy (also under train/ and test/); or a safetensors or npz file with arrays `images` and
// `labels`. 8-bit images become x / 255, as torchvision's ToTensor has it, then (x - mean) / std for each channel;
// pictures without a channel dimension get one of size 1.
//
//   data::DataLoader memory(data::TensorDataset(x, y), {.batch_size = 16, .shuffle = true});
//
//   struct Squares : data::Dataset {
//     std::int64_t size() const override { return 100; }
//     data::Batch get(std::int64_t index) const override { return {tensor(1.0 * index), tensor(1.0 * index * index)}; }
//   };
//   data::DataLoader own(Squares(), {.batch_size = 10});              // f32[10], f32[10]
//
// A batch is one tensor or two. Where a network takes more, a loader that is made beside another one goes through as
// many samples in the same order, whatever they hold:
//
//   data::DataLoader texts(data::TensorDataset(tokens, labels), {.batch_size = 16, .shuffle = true});
//   data::DataLoader masks(data::TensorDataset(mask), texts);         // has its options, and must have as many samples
//   for (std::int64_t b = 0; b < texts.size(); ++b)
//     step(texts.batch(epoch, b).data, masks.batch(epoch, b).data, texts.batch(epoch, b).target);
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "graven/tensor.h"

namespace graven::data {

enum class Split : std::uint8_t { train, test };

struct DataLoaderOptions {
  Split split = Split::train;
  std::int64_t batch_size = 1;
  bool shuffle = false;
  std::int64_t seed = 0;          ///< the order of an epoch depends on the seed and the epoch's number alone
  bool drop_last = false;         ///< leave out a last batch that is smaller
  std::vector<double> mean = {};  ///< empty, one number, or one for each channel
  std::vector<double> std = {};   ///< like mean
  std::int64_t num_classes = 0;   ///< labels must lie in [0, num_classes); 0: any
  /// auto (by the files' names), idx, cifar10, cifar100, npy, npz, safetensors. (Texts, token files and raw ones, which
  /// emitted programs read, too, have no images and labels.)
  std::string format = "auto";
};

/// Of files: images f32[n,channels,height,width] and labels i64[n]. Of other datasets what they have, with as many
/// samples as the first dimension.
struct Batch {
  Tensor data, target;
};

/// Samples that a program has or makes.
class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset& operator=(const Dataset&) = default;
  virtual ~Dataset() = default;
  /// How many samples there are; always the same.
  virtual std::int64_t size() const = 0;
  /// Sample `index`, from 0 to size() - 1, without a batch dimension; the target may be undefined. All samples have the
  /// same shapes and dtypes.
  virtual Batch get(std::int64_t index) const = 0;
  /// Several of them: what get() gives, stacked. User error naming the first sample that is unlike the first of them.
  virtual Batch get_batch(const Sizes& indices) const;
  /// The same, for whoever calls it on a dataset that is no constant: an error has the line of the call. (The one above
  /// is a class's to override, so it has no place for a line; a DataLoader says its own.)
  Batch get_batch(const Sizes& indices, Location where = Location::current());
};

/// Samples along the first dimension of tensors: `data`, and a `target` where there is one.
class TensorDataset : public Dataset {
 public:
  /// User error when the two have different numbers of samples, or one has no dimension.
  explicit TensorDataset(Tensor data, Tensor target = {}, Location where = Location::current());
  std::int64_t size() const override;
  /// User error for an index that is not in [0, size()): it does not count from the end, as Python's would.
  Batch get(std::int64_t index) const override;
  Batch get_batch(const Sizes& indices) const override;
  /// The same, for whoever calls them on a dataset that is no constant: an error has the line of the call. Those above
  /// say where the dataset was made.
  Batch get(std::int64_t index, Location where = Location::current());
  Batch get_batch(const Sizes& indices, Location where = Location::current());

 private:
  void require(std::int64_t index, const char* function) const;

  Tensor data_, target_;
  Location made_;
};

/// What a DataLoader reads: a path, a dataset, or one that is shared. Made implicitly.
class Source {
 public:
  template <class Path>
    requires std::is_convertible_v<const Path&, std::string>
  Source(const Path& path) : path_(path) {}  // NOLINT: DataLoader("fashion-mnist")
  template <class D>
    requires std::is_base_of_v<Dataset, D>
  Source(D dataset) : dataset_(std::make_shared<const D>(std::move(dataset))) {}  // NOLINT: DataLoader(Squares())
  template <class D>
    requires std::is_base_of_v<Dataset, D>
  Source(std::shared_ptr<D> dataset) : dataset_(std::move(dataset)), is_dataset_(true) {}  // NOLINT

  bool is_dataset() const { return is_dataset_ || dataset_; }
  const std::string& path() const { return path_; }
  const std::shared_ptr<const Dataset>& dataset() const { return dataset_; }

 private:
  std::string path_;
  std::shared_ptr<const Dataset> dataset_;
  bool is_dataset_ = false;
};

/// One split of a dataset. Copies share the data.
class DataLoader {
 public:
  class Epoch;
  using Iterating = const Batch*;

  /// Of files: validates them whole; user error naming file, place, expected and found. Of a dataset: batches, order
  /// and epochs are as those of files; user error for options that say what files hold: split, mean, std, num_classes,
  /// format. User error when there are no samples, and when batch_size is not positive.
  explicit DataLoader(Source source, DataLoaderOptions options = {}, Location where = Location::current());
  /// To go with `beside`: its batch_size, shuffle, seed and drop_last, so that batch b of an epoch has the same samples
  /// here as there. User error when the two have different numbers of samples, which would be shuffled differently; of
  /// loaders that are made apart with the same options nobody looks whether they have as many. Of files it reads the
  /// split, mean, std, num_classes and format of `beside` if that is of files, too, and those of DataLoaderOptions
  /// else.
  explicit DataLoader(Source source, const DataLoader& beside, Location where = Location::current());
  // Moved, too, it is copied: no loader is left without data.
  DataLoader(const DataLoader&) = default;
  DataLoader& operator=(const DataLoader&) = default;

  /// Batches of an epoch. None when drop_last is set and all samples are fewer than a batch.
  std::int64_t size() const;
  /// Samples in all.
  std::int64_t samples() const;
  const DataLoaderOptions& options() const;

  /// The batches of epoch `number`, from batch `first` on: a run that goes on where another stopped sees what that
  /// would have seen.
  Epoch epoch(std::int64_t number = 0, std::int64_t first = 0, Location where = Location::current()) const;
  /// A loader has no epoch of its own: `for (auto [x, y] : loader)` does not compile, and says what does.
  template <class T = void>
  Iterating begin() const {
    static_assert(sizeof(T*) == 0, "a loader is read epoch by epoch: for (auto [x, y] : loader.epoch(epoch))");
    return {};
  }
  template <class T = void>
  Iterating end() const {
    return {};
  }
  /// Batch `index` of epoch `number`.
  Batch batch(std::int64_t number, std::int64_t index, Location where = Location::current()) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

/// A range for `for`. Each step makes new tensors.
class DataLoader::Epoch {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    Iterator(const DataLoader& loader, std::int64_t number, std::int64_t index, Location where)
        : loader_(&loader), number_(number), index_(index), where_(where) {}
    Batch operator*() const { return loader_->batch(number_, index_, where_); }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return index_ == other.index_; }

   private:
    const DataLoader* loader_;
    std::int64_t number_, index_;
    Location where_;
  };

  /// `where`: the line of user code that errors of its batches name.
  Epoch(DataLoader loader, std::int64_t number, std::int64_t first, Location where)
      : loader_(std::move(loader)), number_(number), first_(first), where_(where) {}
  Iterator begin() const { return {loader_, number_, first_, where_}; }
  Iterator end() const { return {loader_, number_, loader_.size(), where_}; }

 private:
  DataLoader loader_;
  std::int64_t number_, first_;
  Location where_;
};

/// Whether the folder or file is there and has data that a DataLoader opens.
bool is_available(const std::string& path, Split split = Split::train);

}  // namespace graven::data
