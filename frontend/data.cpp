#include "graven/data.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "ir/diagnostic.h"
#include "runtime_min/batch.h"
#include "runtime_min/dataset.h"
#include "runtime_min/error.h"
#include "runtime_min/sampler.h"

namespace graven::data {

namespace {

runtime::Split runtime_split(Split split) { return split == Split::train ? runtime::Split::train : runtime::Split::test; }

/// What files are looked for by name.
std::vector<runtime::TensorDescription> names() {
  return {{.name = "images", .dtype = runtime::DType::f32}, {.name = "labels", .dtype = runtime::DType::i64}};
}

}  // namespace

struct DataLoader::State {
  State(const std::string& path, DataLoaderOptions given) try
      : options(std::move(given)), dataset(runtime::open_dataset({.path = path, .format = options.format}, names(), runtime_split(options.split))) {
    if (options.batch_size < 1)
      throw UserError("DataLoader: batch_size must be positive, got " + std::to_string(options.batch_size)).note("of " + path);
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
  } catch (const runtime::UsageError& e) {
    // In the words of DataLoaderOptions, not of a command line.
    static const std::map<std::string, std::string> names = {
        {"--data", "path"}, {"--data-format", "format"}, {"--mean", "mean"}, {"--std", "std"}, {"--mean and --std", "mean and std"}};
    const auto name = names.find(e.file());
    throw UserError("DataLoader: " + (name == names.end() ? e.file() : name->second) + ": expected " + e.expected() + ", found " + e.found());
  } catch (const runtime::Error& e) {
    throw UserError(e.what());
  }

  std::int64_t batches() const {
    const std::int64_t full = dataset.size() / options.batch_size;
    return options.drop_last || dataset.size() % options.batch_size == 0 ? full : full + 1;
  }

  DataLoaderOptions options;
  runtime::Dataset dataset;
  std::vector<runtime::TensorDescription> inputs;
  std::optional<runtime::BatchSource> source;
};

DataLoader::DataLoader(const std::string& path, DataLoaderOptions options) : state_(std::make_shared<const State>(path, std::move(options))) {}

std::int64_t DataLoader::size() const { return state_->batches(); }
std::int64_t DataLoader::samples() const { return state_->dataset.size(); }
const DataLoaderOptions& DataLoader::options() const { return state_->options; }

DataLoader::Epoch DataLoader::epoch(std::int64_t number, std::int64_t first) const {
  if (first < 0 || first > size())
    throw UserError("DataLoader: the first batch must lie in [0, " + std::to_string(size()) + "], got " + std::to_string(first));
  return {*this, number, first};
}

Batch DataLoader::batch(std::int64_t number, std::int64_t index) const {
  const State& s = *state_;
  if (index < 0 || index >= size())
    throw UserError("DataLoader: an epoch has " + std::to_string(size()) + " batches, there is no batch " + std::to_string(index));
  const std::int64_t begin = index * s.options.batch_size, count = std::min(s.options.batch_size, samples() - begin);
  const runtime::Permutation order(samples(), s.options.seed, number);
  runtime::Batch rows(s.inputs, count);
  try {
    s.source->fill(rows, count, [&](std::int64_t i) { return s.options.shuffle ? order[begin + i] : begin + i; });
  } catch (const runtime::Error& e) {
    throw UserError(e.what());
  }
  const auto tensor = [&](std::size_t i, DType dtype) {
    std::vector<std::int64_t> shape = s.inputs[i].shape;
    shape[0] = count;
    Tensor t = empty(Shape::of(shape), dtype);
    const std::size_t bytes = s.inputs[i].sample_bytes() * static_cast<std::size_t>(count);
    if (bytes > 0) std::memcpy(t.data_ptr(), rows.pointers()[i], bytes);
    return t;
  };
  return {tensor(0, DType::f32), tensor(1, DType::i64)};
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
