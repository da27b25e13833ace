#include "graven/data.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>

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
  if (!sample.data.defined()) throw UserError("DataLoader: sample " + std::to_string(index) + " has undefined data");
  if (description_of(sample) == description_of(first)) return;
  throw UserError("DataLoader: the samples of a dataset must have the same shapes and dtypes")
      .note("sample " + std::to_string(first_index) + " is " + description_of(first) + ", sample " +
            std::to_string(index) + " " + description_of(sample));
}

}  // namespace

Batch Dataset::get_batch(const Sizes& indices) const {
  std::vector<Batch> samples;
  for (const std::int64_t index : indices) {
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

TensorDataset::TensorDataset(Tensor data, Tensor target, Location where)
    : data_(std::move(data)), target_(std::move(target)) {
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
Batch TensorDataset::get(std::int64_t index) const {
  return {data_.select(0, index, Location{}), target_.defined() ? target_.select(0, index, Location{}) : Tensor()};
}
Batch TensorDataset::get_batch(const Sizes& indices) const {
  const Tensor at = from_data(indices, {static_cast<std::int64_t>(indices.size())});
  const auto rows = [&](const Tensor& t) { return index_select(Operand(t, Location{}), 0, at); };
  return {rows(data_), target_.defined() ? rows(target_) : Tensor()};
}

// ---- files ----------------------------------------------------------------------------------------------------------

namespace detail {

/// Images and labels of files, and how they become tensors.
struct Files {
  Files(const std::string& path, const DataLoaderOptions& options)
      : dataset(
            runtime::open_dataset({.path = path, .format = options.format}, names(), runtime_split(options.split))) {
    if (options.batch_size < 1)
      throw UserError("DataLoader: batch_size must be positive, got " + std::to_string(options.batch_size))
          .note("of " + path);
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
      throw UserError(e.what());
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
      : options(std::move(given)), files(std::in_place, path, options) {
  } catch (const runtime::UsageError& e) {
    // In the words of DataLoaderOptions, not of a command line.
    static const std::map<std::string, std::string> names = {{"--data", "path"},
                                                             {"--data-format", "format"},
                                                             {"--mean", "mean"},
                                                             {"--std", "std"},
                                                             {"--mean and --std", "mean and std"}};
    const auto name = names.find(e.file());
    throw UserError("DataLoader: " + (name == names.end() ? e.file() : name->second) + ": expected " + e.expected() +
                    ", found " + e.found());
  } catch (const runtime::Error& e) {
    throw UserError(e.what());
  }
  State(std::shared_ptr<const Dataset> given, DataLoaderOptions o) : options(std::move(o)), own(std::move(given)) {
    if (!own) throw UserError("DataLoader: there is no dataset");
    if (options.batch_size < 1)
      throw UserError("DataLoader: batch_size must be positive, got " + std::to_string(options.batch_size));
    const DataLoaderOptions none;
    if (options.split != none.split || !options.mean.empty() || !options.std.empty() || options.num_classes != 0 ||
        options.format != none.format)
      throw UserError(
          "DataLoader: split, mean, std, num_classes and format are of files; a dataset of the program's own gives its "
          "samples as they are");
    if (own->size() < 1)
      throw UserError("DataLoader: the dataset must have samples, its size is " + std::to_string(own->size()));
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
