#include "dataset.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "cifar.h"
#include "error.h"
#include "idx.h"
#include "image.h"
#include "npy.h"
#include "npz.h"
#include "raw.h"
#include "safetensors.h"
#include "tokens.h"

namespace graven::runtime {
namespace {

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

bool ends_with(std::string_view text, std::string_view end) { return text.ends_with(end); }

/// The IDX file of the folder for "train-images" and the like, gzipped or not, with '-' or '.' before "idx"; empty when
/// there is none.
std::string find_idx(const std::string& folder, const std::vector<std::string>& names, const std::string& stem) {
  for (const std::string& name : names) {
    const std::string_view rest =
        name.starts_with(stem) ? std::string_view(name).substr(stem.size()) : std::string_view();
    if ((rest.starts_with("-idx") || rest.starts_with(".idx")) &&
        (ends_with(rest, "-ubyte") || ends_with(rest, "-ubyte.gz")))
      return join(folder, name);
  }
  return "";
}

void add_cifar(Dataset& data, const std::string& path, CifarKind kind) {
  const CifarFile file = read_cifar(path, kind);
  const std::int64_t labels = label_bytes(kind);
  const std::byte* record = file.bytes.view.data();
  std::vector<Field> fields = {{"images", DType::u8, {3, 32, 32}}, {"labels", DType::u8, {}}};
  std::vector<const std::byte*> starts = {record + labels, record + labels - 1};
  if (kind == CifarKind::cifar100) {
    fields.push_back({"coarse_labels", DType::u8, {}});
    starts.push_back(record);
  }
  data.append(fields, starts, labels + kCifarImageBytes, file.records, file.bytes.owner);
}

Array as_array(const std::shared_ptr<const SafetensorsFile>& file, const SafetensorsEntry& entry) {
  if (!entry.dtype)
    throw Error(file->path(), std::string("tensor ") + printable(entry.name), "a dtype that the program has",
                entry.dtype_name);
  return {.dtype = *entry.dtype,
          .shape = entry.shape,
          .bytes = file->bytes(entry),
          .path = file->path() + ": " + entry.name,
          .owner = file};
}

Dataset open_safetensors(const std::string& path, const std::vector<TensorDescription>& inputs) {
  const auto file = std::make_shared<const SafetensorsFile>(path);
  Dataset data(path);
  for (const TensorDescription& input : inputs) {
    const SafetensorsEntry* entry = file->find(input.name);
    if (entry == nullptr)
      throw Error(path, "", std::string("a tensor \"") + input.name + "\" for the model's input", "none of that name");
    data.add(input.name, as_array(file, *entry), input.batched);
  }
  return data;
}

Dims without_ones(const Dims& shape) {
  Dims kept;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(kept), [](std::int64_t d) { return d != 1; });
  return kept;
}

/// Of a file that is to be the input's field of that name: what cannot be its values is not decompressed. Of an input
/// that is batched and has no shape the name alone is known: any shape will do.
HeaderCheck check_for(const std::string& path, const std::string& name, const TensorDescription& input) {
  if (input.batched && input.shape.empty()) return no_check;
  return [=, &input](DType dtype, const Dims& shape) {
    Field field{name, dtype, shape, input.batched};
    if (input.batched && shape.empty()) return;  // Dataset::add() says so
    if (input.batched) field.shape.erase(field.shape.begin());
    check_field(field, path, input);
  };
}

Dataset open_npz(const std::string& path, const std::vector<TensorDescription>& inputs) {
  const NpzFile file(path);
  Dataset data(path);
  for (const TensorDescription& input : inputs)
    data.add(input.name, file.read(input.name, check_for(path + ": " + printable(input.name), input.name, input)),
             input.batched);
  return data;
}

bool has_npy_files(const std::string& folder, const std::vector<TensorDescription>& inputs) {
  return !inputs.empty() && kind_of(join(folder, std::string(inputs[0].name) + ".npy")) == FileKind::regular;
}

Dataset open_npy_folder(const std::string& folder, const std::vector<TensorDescription>& inputs) {
  Dataset data(folder);
  for (const TensorDescription& input : inputs) {
    const std::string path = join(folder, std::string(input.name) + ".npy");
    data.add(input.name, read_npy(path, check_for(path, input.name, input)), input.batched);
  }
  return data;
}

enum class Format : std::uint8_t { automatic, idx, cifar10, cifar100, npy, npz, safetensors, raw, text, tokens };

Format format_named(const std::string& name) {
  static constexpr std::string_view kNames[] = {"auto", "idx",         "cifar10", "cifar100", "npy",
                                                "npz",  "safetensors", "raw",     "text",     "tokens"};
  const auto* found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found == std::end(kNames))
    throw UsageError("--data-format", "", "auto, idx, cifar10, cifar100, npy, npz, safetensors, raw, text or tokens",
                     printable(name));
  return static_cast<Format>(found - std::begin(kNames));
}

/// The stream of a text or token file as the windows of a language model: its tokens, and its targets if it has two
/// inputs.
Dataset open_stream(const Array& stream, const std::vector<TensorDescription>& inputs) {
  const bool fits = (inputs.size() == 1 || inputs.size() == 2) &&
                    std::all_of(inputs.begin(), inputs.end(), [&](const TensorDescription& input) {
                      return input.batched && is_integral(input.dtype) && input.sample_shape().size() == 1 &&
                             input.sample_shape() == inputs[0].sample_shape();
                    });
  if (!fits) {
    std::string found;
    for (const TensorDescription& input : inputs)
      found += (found.empty() ? "" : ", ") + describe(input.dtype, input.shape);
    throw Error(stream.path, "", "a model of tokens, or of tokens and targets, integers [batch,length] both", found);
  }
  std::vector<std::string> names;
  for (const TensorDescription& input : inputs) names.emplace_back(input.name);
  Dataset data(stream.path);
  add_tokens(data, stream, inputs[0].sample_shape()[0], names);
  return data;
}

/// One file for one input.
Array read_file(const std::string& path, Format format, const TensorDescription& input) {
  const HeaderCheck check = check_for(path, input.name, input);
  if (format == Format::automatic) {
    const Bytes file = Bytes::map(path);
    if (is_npy(file.view) || ends_with(path, ".npy")) {
      format = Format::npy;
    } else if (is_image(file.view) && (ends_with(path, ".ppm") || ends_with(path, ".pgm") || ends_with(path, ".png"))) {
      return read_image(path, check);
    } else if (ends_with(path, ".gz") || path.find("idx") != std::string::npos) {
      format = Format::idx;
    } else if (ends_with(path, ".npz")) {
      throw Error(path, "", "alone, as the arrays of all inputs", "one of several files");
    } else {
      format = Format::raw;
    }
  }
  if (format == Format::npy) return read_npy(path, check);
  if (format == Format::idx) return read_idx(path, check);
  if (format != Format::raw)
    throw UsageError("--data-format", "", "idx, npy or raw for one file an input", printable(path));
  Array array = read_raw(path, input.dtype, input.sample_shape());
  if (!input.batched) {
    if (array.shape[0] != 1)
      throw Error(path, "", describe(input.dtype, input.shape), std::to_string(array.shape[0]) + " times that");
    array.shape.erase(array.shape.begin());
  }
  return array;
}

Dataset open_folder(const std::string& folder, Format format, const std::vector<TensorDescription>& inputs,
                    Split split) {
  const std::vector<std::string> names = list_directory(folder);
  const auto has = [&](const char* name) { return std::binary_search(names.begin(), names.end(), std::string(name)); };
  const bool any = format == Format::automatic;

  if (any || format == Format::idx) {
    const std::string stem = split == Split::train ? "train" : "t10k";
    const std::string images = find_idx(folder, names, stem + "-images"),
                      labels = find_idx(folder, names, stem + "-labels");
    if (!images.empty() && !labels.empty()) {
      Dataset data(images);
      // As BatchSource matches them: by name where each input has one's, else in order.
      const auto is_field = [](const TensorDescription& input) {
        return input.name == std::string_view("images") || input.name == std::string_view("labels");
      };
      const bool named = std::all_of(inputs.begin(), inputs.end(), is_field);
      const auto add = [&](const char* name, const std::string& path, std::size_t place) {
        const auto input =
            named ? std::find_if(inputs.begin(), inputs.end(),
                                 [&](const TensorDescription& i) { return i.name == std::string_view(name); })
                  : inputs.begin() + static_cast<std::ptrdiff_t>(std::min(place, inputs.size()));
        data.add(name, read_idx(path, input == inputs.end() ? no_check : check_for(path, name, *input)));
      };
      add("images", images, 0);
      add("labels", labels, 1);
      return data;
    }
    if (!images.empty() || !labels.empty())
      throw Error(folder, "", "both " + stem + "-images and " + stem + "-labels", "one of them");
  }
  if (any || format == Format::cifar10) {
    std::vector<std::string> files;
    for (const std::string& name : names) {
      if (split == Split::test ? name == "test_batch.bin" : name.starts_with("data_batch_") && ends_with(name, ".bin"))
        files.push_back(join(folder, name));
    }
    Dataset data(folder);
    for (const std::string& file : files) add_cifar(data, file, CifarKind::cifar10);
    if (!files.empty()) return data;
  }
  const char* whole = split == Split::train ? "train.bin" : "test.bin";
  if ((any || format == Format::cifar100) && has(whole)) {
    Dataset data(join(folder, whole));
    add_cifar(data, data.path(), CifarKind::cifar100);
    return data;
  }
  const char* tensors = split == Split::train ? "train.safetensors" : "test.safetensors";
  if ((any || format == Format::safetensors) && has(tensors)) return open_safetensors(join(folder, tensors), inputs);
  const char* arrays = split == Split::train ? "train.npz" : "test.npz";
  if ((any || format == Format::npz) && has(arrays)) return open_npz(join(folder, arrays), inputs);
  if (any || format == Format::npy) {
    const std::string inner = join(folder, split == Split::train ? "train" : "test");
    if (has_npy_files(inner, inputs)) return open_npy_folder(inner, inputs);
    if (has_npy_files(folder, inputs)) return open_npy_folder(folder, inputs);
  }
  throw Error(folder, "",
              std::string("a ") + (split == Split::train ? "training" : "test") +
                  " set: IDX files (train-images-..., t10k-images-...), CIFAR batches, train.safetensors and "
                  "test.safetensors, train.npz and "
                  "test.npz, or an .npy file for each input",
              "none of these");
}

}  // namespace

void check_field(const Field& field, const std::string& path, const TensorDescription& input) {
  const std::string place = std::string("field ") + printable(field.name);
  const std::size_t samples = input.batched ? 1 : 0;
  // As it would be with the field's sizes in the places of symbols, where those can be.
  Dims wanted = input.sample_shape();
  if (field.shape.size() == wanted.size()) {
    for (const SymbolicDimension& d : input.symbolic) {
      const std::int64_t found = field.shape[d.dimension - samples];
      if (found >= d.size(d.least) && found <= wanted[d.dimension - samples] && (found - d.offset) % d.coefficient == 0)
        wanted[d.dimension - samples] = found;
    }
  }
  if (field.batched != input.batched || without_ones(field.shape) != without_ones(wanted)) {
    std::string smaller;
    for (const SymbolicDimension& d : input.symbolic)
      smaller += (smaller.empty() ? ", or smaller in dimension " : " and ") + std::to_string(d.dimension - samples) +
                 (d.coefficient == 1 ? std::string() : " by multiples of " + std::to_string(d.coefficient)) +
                 (d.least == 1 ? std::string() : " (" + std::to_string(d.size(d.least)) + " or more)");
    if (!smaller.empty() && samples == 1) smaller += " of a sample";
    throw Error(path, place,
                std::string("samples of ") + describe(input.sample_shape()) + smaller + " for the model's input \"" +
                    input.name + "\"",
                describe(field.shape));
  }
  if (is_floating(field.dtype) && !is_floating(input.dtype)) {
    throw Error(path, place, std::string("integers for the model's input \"") + input.name + "\", " + name(input.dtype),
                name(field.dtype));
  }
}

int Dataset::find(std::string_view name) const {
  for (std::size_t f = 0; f < fields_.size(); ++f) {
    if (fields_[f].name == name) return static_cast<int>(f);
  }
  return -1;
}

void Dataset::add(const std::string& name, const Array& array, bool batched) {
  Field field{name, array.dtype, array.shape, batched, array.path};
  std::int64_t count = INT64_MAX, stride = 0;
  if (batched) {
    if (array.shape.empty())
      throw Error(array.path, "", "samples along a first dimension", describe(array.dtype, array.shape));
    count = array.shape[0];
    field.shape.erase(field.shape.begin());
    stride = count == 0 ? 0 : static_cast<std::int64_t>(array.bytes.size()) / count;
    if (count == 0) throw Error(array.path, "", "at least one sample", describe(array.dtype, array.shape));
    if (size_ >= 0 && count != size_)
      throw Error(array.path, "", std::to_string(size_) + " samples, as in " + path_, std::to_string(count));
    size_ = count;
  }
  fields_.push_back(std::move(field));
  segments_.push_back({{0, count, array.bytes.data(), stride}});
  owners_.push_back(array.owner);
}

void Dataset::append(const std::vector<Field>& fields, const std::vector<const std::byte*>& data, std::int64_t stride,
                     std::int64_t count, std::shared_ptr<const void> owner) {
  if (fields_.empty()) {
    fields_ = fields;
    segments_.resize(fields.size());
    size_ = 0;
  }
  for (std::size_t f = 0; f < segments_.size(); ++f) segments_[f].push_back({size_, size_ + count, data[f], stride});
  size_ += count;
  owners_.push_back(std::move(owner));
}

Dataset open_dataset(const DatasetOptions& options, const std::vector<TensorDescription>& inputs, Split split) {
  const Format format = format_named(options.format);
  if (options.path.empty()) throw UsageError("--data", "", "a path", "nothing");
  if (kind_of(options.path) == FileKind::directory) return open_folder(options.path, format, inputs, split);

  const std::vector<std::string> files = split_commas(options.path);
  if (files.size() == 1) {
    if (format == Format::safetensors || (format == Format::automatic && ends_with(files[0], ".safetensors")))
      return open_safetensors(files[0], inputs);
    if (format == Format::npz || (format == Format::automatic && ends_with(files[0], ".npz")))
      return open_npz(files[0], inputs);
    if (format == Format::text || (format == Format::automatic && ends_with(files[0], ".txt")))
      return open_stream(read_text(files[0]), inputs);
    if (format == Format::tokens ||
        (format == Format::automatic && ends_with(files[0], ".bin") && is_tokens(Bytes::map(files[0]).view)))
      return open_stream(read_tokens(files[0]), inputs);
    const bool batch_name = files[0].find("_batch") != std::string::npos && ends_with(files[0], ".bin");
    if (format == Format::cifar10 || format == Format::cifar100 || (format == Format::automatic && batch_name)) {
      Dataset data(files[0]);
      add_cifar(data, files[0], format == Format::cifar100 ? CifarKind::cifar100 : CifarKind::cifar10);
      return data;
    }
  }
  if (files.size() != inputs.size()) {
    if (files.size() == 1) const MappedFile there(files[0]);  // where it is not, that is the error
    std::string names;
    for (const TensorDescription& input : inputs)
      names += std::string(names.empty() ? "" : ", ") + std::string(input.name);
    throw Error(options.path, "",
                std::string("a folder, or a file for each of the model's ") + std::to_string(inputs.size()) +
                    " inputs (" + names + "), commas between",
                std::to_string(files.size()) + (files.size() == 1 ? " file" : " files"));
  }
  Dataset data(files[0]);
  for (std::size_t i = 0; i < files.size(); ++i)
    data.add(inputs[i].name, read_file(files[i], format, inputs[i]), inputs[i].batched);
  if (data.size() < 0) throw Error(options.path, "", "an input that counts samples", "none");
  return data;
}

bool has_test_split(const DatasetOptions& options, const std::vector<TensorDescription>& inputs) {
  if (kind_of(options.path) != FileKind::directory) return false;
  const std::vector<std::string> names = list_directory(options.path);
  const auto has = [&](const char* name) { return std::binary_search(names.begin(), names.end(), std::string(name)); };
  const Format format = format_named(options.format);
  const auto may = [&](Format f) { return format == Format::automatic || format == f; };
  return (may(Format::idx) && !find_idx(options.path, names, "t10k-images").empty()) ||
         (may(Format::cifar10) && has("test_batch.bin")) || (may(Format::cifar100) && has("test.bin")) ||
         (may(Format::safetensors) && has("test.safetensors")) || (may(Format::npz) && has("test.npz")) ||
         (may(Format::npy) && has_npy_files(join(options.path, "test"), inputs));
}

}  // namespace graven::runtime
