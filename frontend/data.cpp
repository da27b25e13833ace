#include "graven/data.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "frontend/dispatch.h"
#include "graven/functional.h"
#include "ir/diagnostic.h"
#include "runtime_min/batch.h"
#include "runtime_min/dataset.h"
#include "runtime_min/error.h"
#include "runtime_min/sampler.h"

namespace graven::data {

namespace {

runtime::Split runtime_split(Split split) {
  return split == Split::train ? runtime::Split::train : runtime::Split::test;
}

/// What files are looked for by name.
std::vector<runtime::TensorDescription> names() {
  return {{.name = "images", .dtype = runtime::DType::f32}, {.name = "labels", .dtype = runtime::DType::i64}};
}

}  // namespace

// ---- samples of a program -------------------------------------------------------------------------------------------

namespace {

std::string description_of(const Batch& sample) {
  const auto part = [](const Tensor& t) { return t.defined() ? t.describe() : std::string("none"); };
  return part(sample.data) + " and " + part(sample.target);
}

/// Before anything is stacked: samples that do not fit together are the dataset's mistake, not an operator's.
void require_like(const Batch& sample, std::int64_t index, const Batch& first, std::int64_t first_index) {
  if (!sample.data.defined())
    throw UserError("Dataset: get() must give data, sample " + std::to_string(index) + " has undefined ones");
  if (description_of(sample) == description_of(first)) return;
  throw UserError("Dataset: the samples must have the same shapes and dtypes")
      .note("sample " + std::to_string(first_index) + " is " + description_of(first) + ", sample " +
            std::to_string(index) + " " + description_of(sample));
}

}  // namespace

Batch Dataset::get_batch(const Sizes& indices) const {
  if (indices.empty()) throw UserError("Dataset: get_batch() expects one index at least, got none");
  std::vector<Batch> samples;
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= size())
      throw UserError("Dataset: get_batch() expects indices in [0, " + std::to_string(size()) + "), got " +
                      std::to_string(index));
    samples.push_back(get(index));
    require_like(samples.back(), index, samples.front(), indices.front());
  }
  const auto stacked = [&](Tensor Batch::* part) {
    std::vector<Tensor> tensors;
    for (const Batch& sample : samples)
      if ((sample.*part).defined()) tensors.push_back(sample.*part);
    return tensors.empty() ? Tensor() : stack(tensors);
  };
  return {stacked(&Batch::data), stacked(&Batch::target)};
}

Batch Dataset::get_batch(const Sizes& indices, Location where) {
  return graven::detail::located(where, [&] { return std::as_const(*this).get_batch(indices); });
}

TensorDataset::TensorDataset(Tensor data, Tensor target, Location where)
    : data_(std::move(data)), target_(std::move(target)), made_(where) {
  if (!data_.defined() || data_.dim() == 0)
    graven::detail::fail_at("TensorDataset: expected a tensor of samples along its first dimension, got " +
                                (data_.defined() ? data_.describe() : "none"),
                            where);
  if (target_.defined() && (target_.dim() == 0 || target_.size(0) != data_.size(0)))
    graven::detail::fail_at("TensorDataset: the target must have as many samples as the data, got " +
                                target_.describe() + " for " + data_.describe(),
                            where);
}
std::int64_t TensorDataset::size() const { return data_.size(0); }
void TensorDataset::require(std::int64_t index, const char* function) const {
  if (index >= 0 && index < size()) return;
  UserError error("TensorDataset: " + std::string(function) + "() expects an index in [0, " + std::to_string(size()) +
                  "), got " + std::to_string(index));
  error.note("the dataset is made at " + made_.file_name() + ":" + std::to_string(made_.line));
  throw error;
}
Batch TensorDataset::get(std::int64_t index) const {
  require(index, "get");
  return {data_.select(0, index, Location{}), target_.defined() ? target_.select(0, index, Location{}) : Tensor()};
}
Batch TensorDataset::get(std::int64_t index, Location where) {
  return graven::detail::located(where, [&] { return std::as_const(*this).get(index); });
}
Batch TensorDataset::get_batch(const Sizes& indices, Location where) { return Dataset::get_batch(indices, where); }
Batch TensorDataset::get_batch(const Sizes& indices) const {
  for (const std::int64_t index : indices) require(index, "get_batch");
  const Tensor at = from_data(indices, {static_cast<std::int64_t>(indices.size())});
  const auto rows = [&](const Tensor& t) {
    return index_select(Operand(t, Location{}), 0, graven::detail::beside(at, t));
  };
  return {rows(data_), target_.defined() ? rows(target_) : Tensor()};
}

// ---- files ----------------------------------------------------------------------------------------------------------

namespace {

/// An error of the readers, which emitted programs share, in a loader's words: there are no model and no command line
/// here, but images, labels and DataLoaderOptions.
std::string in_own_words(const runtime::Error& e) {
  static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"--data-format: ", "format: "},
      {"--data: ", "path: "},
      {"--mean and --std: ", "mean and std: "},
      {"--mean: ", "mean: "},
      {"--std: ", "std: "},
      {", for the model's inputs images, labels", ", of images and labels"},
      {" for the model's input \"", " for \""},
      {" for the model's input", ""},
      {"a file for each of the model's 2 inputs", "a file of images and one of labels"},
      {"or an .npy file for each input", "or images.npy and labels.npy"},
      {"alone, as the arrays of all inputs", "alone, as the arrays of images and labels"},
      {"idx, npy or raw for one file an input", "idx or npy for a file of images and one of labels"},
  };
  if (e.expected().starts_with("a model of tokens"))
    return "DataLoader: " + e.file() + ": expected images and labels, found a text or a file of tokens";
  std::string text = e.what();
  for (const auto& [theirs, own] : kWords)
    for (std::size_t at = text.find(theirs); at != std::string::npos; at = text.find(theirs, at + own.size()))
      text.replace(at, theirs.size(), own);
  return text;
}

}  // namespace

namespace detail {

/// Images and labels of files, and how they become tensors.
struct Files {
  Files(const std::string& path, const DataLoaderOptions& options)
      : dataset(
            runtime::open_dataset({.path = path, .format = options.format}, names(), runtime_split(options.split))) {
    if (dataset.fields().size() < 2)
      throw UserError("DataLoader: " + path + " holds no labels beside its images")
          .note("expected two fields, found " + std::to_string(dataset.fields().size()));
    inputs = names();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const int named = dataset.find(inputs[i].name);
      runtime::Dims shape = dataset.fields()[named >= 0 ? static_cast<std::size_t>(named) : i].shape;
      if (i == 0 && shape.size() == 2) shape.insert(shape.begin(), 1);
      inputs[i].shape = std::move(shape);
      inputs[i].shape.insert(inputs[i].shape.begin(), options.batch_size);
    }
    inputs[1].classes = options.num_classes;
    source.emplace(dataset, inputs, runtime::Normalization{options.mean, options.std});
  }

  Batch get_batch(const Sizes& indices) const {
    const auto count = static_cast<std::int64_t>(indices.size());
    runtime::Batch rows(inputs, count);
    try {
      source->fill(rows, count, [&](std::int64_t i) { return indices[static_cast<std::size_t>(i)]; });
    } catch (const runtime::Error& e) {
      throw UserError(in_own_words(e));
    }
    const auto tensor = [&](std::size_t i, DType dtype) {
      std::vector<std::int64_t> shape = inputs[i].shape;
      shape[0] = count;
      Tensor t = empty(Shape::of(shape), dtype);
      const std::size_t bytes = inputs[i].sample_bytes() * static_cast<std::size_t>(count);
      if (bytes > 0) std::memcpy(t.data_ptr(), rows.pointers()[i], bytes);
      return t;
    };
    return {tensor(0, DType::f32), tensor(1, DType::i64)};
  }

  runtime::Dataset dataset;
  std::vector<runtime::TensorDescription> inputs;
  std::optional<runtime::BatchSource> source;
};

}  // namespace detail

struct DataLoader::State {
  State(const std::string& path, DataLoaderOptions given) try
      : options(checked(std::move(given))), files(std::in_place, path, options) {
  } catch (const runtime::UsageError& e) {
    throw UserError("DataLoader: " + in_own_words(e));
  } catch (const runtime::Error& e) {
    throw UserError(in_own_words(e));
  }
  State(std::shared_ptr<const Dataset> given, DataLoaderOptions o)
      : options(checked(std::move(o))), own(std::move(given)) {
    if (!own) throw UserError("DataLoader: there is no dataset");
    const DataLoaderOptions none;
    if (options.split != none.split || !options.mean.empty() || !options.std.empty() || options.num_classes != 0 ||
        options.format != none.format)
      throw UserError(
          "DataLoader: split, mean, std, num_classes and format are of files; a dataset of the program's own gives its "
          "samples as they are");
    if (own->size() < 1)
      throw UserError("DataLoader: the dataset must have samples, its size is " + std::to_string(own->size()));
  }

  /// What can be said of options before anything is read.
  static DataLoaderOptions checked(DataLoaderOptions o) {
    if (o.batch_size < 1)
      throw UserError("DataLoader: batch_size must be positive, got " + std::to_string(o.batch_size));
    if (o.num_classes < 0)
      throw UserError("DataLoader: num_classes must not be negative, got " + std::to_string(o.num_classes));
    static constexpr std::string_view kFormats[] = {"auto", "idx", "cifar10", "cifar100", "npy", "npz", "safetensors"};
    if (std::find(std::begin(kFormats), std::end(kFormats), o.format) == std::end(kFormats))
      throw UserError("DataLoader: format: expected auto, idx, cifar10, cifar100, npy, npz or safetensors, found " +
                      runtime::printable(o.format));
    return o;
  }

  std::int64_t samples() const { return files ? files->dataset.size() : own->size(); }
  std::int64_t batches() const {
    const std::int64_t full = samples() / options.batch_size;
    return options.drop_last || samples() % options.batch_size == 0 ? full : full + 1;
  }
  Batch batch(std::int64_t number, std::int64_t index) const;

  DataLoaderOptions options;
  std::optional<detail::Files> files;
  std::shared_ptr<const Dataset> own;  ///< where there are no files
};

DataLoader::DataLoader(Source source, DataLoaderOptions options, Location where)
    : state_(graven::detail::located(where, [&] {
        return source.is_dataset() ? std::make_shared<const State>(source.dataset(), std::move(options))
                                   : std::make_shared<const State>(source.path(), std::move(options));
      })) {}

DataLoader::DataLoader(Source source, const DataLoader& beside, Location where)
    : DataLoader(
          source,
          [&] {
            DataLoaderOptions options = beside.options();
            // What a dataset of the program's own has no use for.
            if (source.is_dataset())
              options = {.batch_size = options.batch_size,
                         .shuffle = options.shuffle,
                         .seed = options.seed,
                         .drop_last = options.drop_last};
            return options;
          }(),
          where) {
  if (samples() != beside.samples())
    graven::detail::fail_at("DataLoader: loaders that go together must have as many samples, expected " +
                                std::to_string(beside.samples()) + " as the one beside has, got " +
                                std::to_string(samples()),
                            where);
}

std::int64_t DataLoader::size() const { return state_->batches(); }
std::int64_t DataLoader::samples() const { return state_->samples(); }
const DataLoaderOptions& DataLoader::options() const { return state_->options; }

DataLoader::Epoch DataLoader::epoch(std::int64_t number, std::int64_t first, Location where) const {
  if (first < 0 || first > size())
    graven::detail::fail_at(
        "DataLoader: the first batch must lie in [0, " + std::to_string(size()) + "], got " + std::to_string(first),
        where);
  return {*this, number, first, where};
}

Batch DataLoader::batch(std::int64_t number, std::int64_t index, Location where) const {
  if (index < 0 || index >= size())
    graven::detail::fail_at(
        "DataLoader: an epoch has " + std::to_string(size()) + " batches, there is no batch " + std::to_string(index),
        where);
  return graven::detail::located(where, [&] { return state_->batch(number, index); });
}

Batch DataLoader::State::batch(std::int64_t number, std::int64_t index) const {
  const std::int64_t begin = index * options.batch_size, count = std::min(options.batch_size, samples() - begin);
  const runtime::Permutation order(samples(), options.seed, number);
  Sizes indices;
  for (std::int64_t i = begin; i < begin + count; ++i) indices.push_back(options.shuffle ? order[i] : i);
  if (files) return files->get_batch(indices);
  Batch batch = own->get_batch(indices);
  const auto require_rows = [&](const Tensor& t, const char* what) {
    if (!t.defined() || (t.dim() > 0 && t.shape()[0] == Dim(count))) return;
    throw UserError("DataLoader: get_batch() of a dataset must give a row for each index, expected " +
                    std::to_string(count) + " rows of " + what + ", got " + t.describe());
  };
  if (!batch.data.defined()) throw UserError("DataLoader: get_batch() of a dataset gave undefined data");
  require_rows(batch.data, "data");
  require_rows(batch.target, "targets");
  return batch;
}

bool is_available(const std::string& path, Split split) {
  try {
    runtime::open_dataset({.path = path}, names(), runtime_split(split));
    return true;
  } catch (const runtime::Error&) {
    return false;
  }
}

}  // namespace graven::data
