#include "batch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "error.h"
#include "half.h"
#include "number.h"

namespace graven::runtime {
namespace {

/// Conversions go through a piece of doubles or 64-bit integers, so that n dtypes need 2 n loops, not n^2.
constexpr std::int64_t kPiece = 256;

template <class Stored, class Wide>
void widen(Wide* to, const std::byte* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    Stored x;
    std::memcpy(&x, from + static_cast<std::size_t>(i) * sizeof x, sizeof x);
    to[i] = static_cast<Wide>(x);
  }
}

template <class Stored, class Wide>
void narrow(std::byte* to, const Wide* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<Stored>(from[i]);
    std::memcpy(to + static_cast<std::size_t>(i) * sizeof x, &x, sizeof x);
  }
}

template <class Wide>
void widen_integers(DType from_dtype, Wide* to, const std::byte* from, std::int64_t n) {
  switch (from_dtype) {
    case DType::boolean:
    case DType::u8:
      return widen<std::uint8_t>(to, from, n);
    case DType::i8:
      return widen<std::int8_t>(to, from, n);
    case DType::u16:
      return widen<std::uint16_t>(to, from, n);
    case DType::i16:
      return widen<std::int16_t>(to, from, n);
    case DType::u32:
      return widen<std::uint32_t>(to, from, n);
    case DType::i32:
      return widen<std::int32_t>(to, from, n);
    case DType::u64:
      return widen<std::uint64_t>(to, from, n);
    default:
      return widen<std::int64_t>(to, from, n);
  }
}

void widen_numbers(DType from_dtype, double* to, const std::byte* from, std::int64_t n) {
  if (from_dtype == DType::f32) return widen<float>(to, from, n);
  if (from_dtype == DType::f64) return widen<double>(to, from, n);
  if (from_dtype != DType::f16 && from_dtype != DType::bf16) return widen_integers(from_dtype, to, from, n);
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, from + 2 * i, 2);
    to[i] = from_dtype == DType::f16 ? float_from_half(bits) : float_from_bfloat16(bits);
  }
}

void narrow_numbers(DType to_dtype, std::byte* to, const double* from, std::int64_t n) {
  if (to_dtype == DType::f32) return narrow<float>(to, from, n);
  if (to_dtype == DType::f64) return narrow<double>(to, from, n);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto x = static_cast<float>(from[i]);
    const std::uint16_t bits = to_dtype == DType::f16 ? half_from_float(x) : bfloat16_from_float(x);
    std::memcpy(to + 2 * i, &bits, 2);
  }
}

void narrow_integers(DType to_dtype, std::byte* to, const std::int64_t* from, std::int64_t n) {
  switch (to_dtype) {
    case DType::boolean:
    case DType::u8:
      return narrow<std::uint8_t>(to, from, n);
    case DType::i8:
      return narrow<std::int8_t>(to, from, n);
    case DType::u16:
      return narrow<std::uint16_t>(to, from, n);
    case DType::i16:
      return narrow<std::int16_t>(to, from, n);
    case DType::u32:
      return narrow<std::uint32_t>(to, from, n);
    case DType::i32:
      return narrow<std::int32_t>(to, from, n);
    default:
      return narrow<std::int64_t>(to, from, n);
  }
}

/// What an integer dtype holds, as far as 64 signed bits go.
void range_of(DType dtype, std::int64_t& low, std::int64_t& high) {
  const int bits = static_cast<int>(size_of(dtype)) * 8;
  const bool is_signed = dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i64;
  low = 0;
  high = std::numeric_limits<std::int64_t>::max();
  if (dtype == DType::boolean) {
    high = 1;
  } else if (is_signed) {
    low = std::numeric_limits<std::int64_t>::min() >> (64 - bits);
    high = ~low;
  } else if (bits < 64) {
    high = (std::int64_t{1} << bits) - 1;
  }
}

bool is_integer(DType dtype) { return is_integral(dtype) || dtype == DType::boolean; }

/// Where input i's values come from: the field of its name when every input has one, otherwise field i.
std::vector<std::size_t> match(const Dataset& data, const std::vector<TensorDescription>& inputs) {
  std::vector<std::size_t> fields;
  for (const TensorDescription& input : inputs) {
    if (const int f = data.find(input.name); f >= 0) fields.push_back(static_cast<std::size_t>(f));
  }
  if (fields.size() == inputs.size()) return fields;
  if (data.fields().size() < inputs.size()) {
    std::string names;
    for (const TensorDescription& input : inputs)
      names += std::string(names.empty() ? "" : ", ") + std::string(input.name);
    throw Error(data.path(), "", std::to_string(inputs.size()) + " fields, for the model's inputs " + names,
                std::to_string(data.fields().size()));
  }
  fields.clear();
  for (std::size_t i = 0; i < inputs.size(); ++i) fields.push_back(i);
  return fields;
}

}  // namespace

std::vector<std::int64_t> sizes_in(const Dataset& data, const std::vector<TensorDescription>& inputs,
                                   const std::vector<SymbolDescription>& symbols) {
  std::vector<std::int64_t> sizes(symbols.size(), 0);
  if (symbols.empty()) return sizes;
  const std::vector<std::size_t> fields = match(data, inputs);
  std::vector<const char*> from(symbols.size(), "");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Field& field = data.fields()[fields[i]];
    check_field(field, data.path_of(fields[i]), inputs[i]);
    const std::size_t samples = inputs[i].batched ? 1 : 0;
    for (const SymbolicDimension& d : inputs[i].symbolic) {
      if (field.shape.size() + samples != inputs[i].shape.size())
        continue;  // a dimension of 1 is left out: the rest is as large as it may be
      const std::int64_t size = (field.shape[d.dimension - samples] - d.offset) / d.coefficient;
      if (sizes[d.symbol] != 0 && sizes[d.symbol] != size)
        throw Error(data.path_of(fields[i]), std::string("field ") + printable(field.name),
                    std::string(symbols[d.symbol].name) + " of " + std::to_string(sizes[d.symbol]) +
                        ", as the input \"" + from[d.symbol] + "\" has",
                    std::to_string(size));
      sizes[d.symbol] = size;
      from[d.symbol] = inputs[i].name;
    }
  }
  for (std::size_t s = 0; s < symbols.size(); ++s)
    if (sizes[s] == 0) sizes[s] = symbols[s].maximum;
  return sizes;
}

std::vector<TensorDescription> with_sizes(std::vector<TensorDescription> tensors,
                                          const std::vector<std::int64_t>& sizes) {
  for (TensorDescription& tensor : tensors)
    for (const SymbolicDimension& d : tensor.symbolic) tensor.shape[d.dimension] = d.size(sizes[d.symbol]);
  return tensors;
}

void require_samples(const std::vector<TensorDescription>& inputs) {
  std::string all;
  bool any = false;
  for (const TensorDescription& input : inputs) {
    any = any || input.batched;
    all += std::string(all.empty() ? "" : ", ") + input.name + " " + input.type();
    if (input.batch_dimensions.empty()) continue;
    std::string found;
    for (const BatchDimension& d : input.batch_dimensions)
      found += (found.empty() ? "" : " and ") + d.text() + " as dimension " + std::to_string(d.dimension);
    throw Error(std::string("input \"") + input.name + "\" " + input.type(), "",
                "the batch as dimension 0 and nowhere else, along which files hold samples (take it so in build() and "
                "transpose or reshape it there; the library, model.h, takes it as it is)",
                found);
  }
  if (!any)
    throw Error("the model's inputs", "", "one whose dimension 0 is the batch, along which files hold samples", all);
}

Batch::Batch(const std::vector<TensorDescription>& tensors, std::int64_t samples) : samples_(samples) {
  ArenaPlan plan;
  std::vector<std::size_t> offsets;
  for (const TensorDescription& tensor : tensors) {
    const std::size_t bytes = tensor.sample_bytes();
    strides_.push_back(tensor.batched ? bytes : 0);
    offsets.push_back(plan.add(tensor.batched ? bytes * static_cast<std::size_t>(samples) : bytes));
  }
  arena_ = Arena(plan.bytes() + 64);
  for (const std::size_t offset : offsets) {
    rows_.push_back(arena_.at<std::byte>(offset));
    pointers_.push_back(rows_.back());
    constants_.push_back(rows_.back());
  }
}

void Batch::set_rows(const std::vector<TensorDescription>& tensors, std::size_t tensor, std::int64_t first_row,
                     std::int64_t value) {
  const DType dtype = tensors[tensor].dtype;
  const std::size_t size = size_of(dtype);
  const std::byte* const end = row(tensor, samples_);
  for (std::byte* at = row(tensor, first_row); at < end; at += size) narrow_integers(dtype, at, &value, 1);
}

void Batch::randomize(const std::vector<TensorDescription>& tensors, std::int64_t seed) {
  auto state = static_cast<std::uint64_t>(seed);
  const auto next = [&state] {  // SplitMix64
    std::uint64_t x = state += 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
  };
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const DType dtype = tensors[t].dtype;
    std::int64_t low = 0, high = 0;
    range_of(dtype, low, high);
    const std::int64_t bound = tensors[t].classes > 0 ? std::min(tensors[t].classes, high)
                               : dtype == DType::u8   ? 256
                                                      : 2;
    const std::int64_t n =
        static_cast<std::int64_t>(tensors[t].sample_bytes() / size_of(dtype)) * (tensors[t].batched ? samples_ : 1);
    for (std::int64_t i = 0; i < n; ++i) {
      std::byte* to = rows_[t] + static_cast<std::size_t>(i) * size_of(dtype);
      if (is_floating(dtype)) {
        const double x = static_cast<double>(next() >> 11) * 0x1p-52 - 1;
        narrow_numbers(dtype, to, &x, 1);
      } else {
        const auto x = static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
        narrow_integers(dtype, to, &x, 1);
      }
    }
  }
}

BatchSource::BatchSource(const Dataset& data, const std::vector<TensorDescription>& inputs,
                         const Normalization& normalization)
    : data_(&data) {
  const std::vector<std::size_t> fields = match(data, inputs);
  bool any_image = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorDescription& input = inputs[i];
    const Field& field = data.fields()[fields[i]];
    const Dims wanted = input.sample_shape();
    check_field(field, data.path_of(fields[i]), input);
    Binding binding{.field = fields[i],
                    .elements = count_of(wanted),
                    .channel = 0,
                    .from = field.dtype,
                    .to = input.dtype,
                    .classes = input.classes,
                    .ignored = input.ignored,
                    .batched = input.batched,
                    .table = {}};
    std::string text =
        std::string(input.name) + " " + describe(input.dtype, wanted) + " from " + describe(field.dtype, field.shape);
    if (field.dtype == DType::u8 && is_floating(input.dtype) && binding.elements > 1) {
      any_image = true;
      const std::int64_t channels = wanted.size() == 3 ? wanted[0] : 1;
      binding.channel = binding.elements / channels;
      const auto number = [&](const std::vector<double>& numbers, const char* option, std::int64_t c,
                              double otherwise) {
        if (numbers.empty()) return otherwise;
        if (numbers.size() != 1 && numbers.size() != static_cast<std::size_t>(channels))
          throw UsageError(option, "",
                           channels == 1 ? std::string("one number")
                                         : "one number or " + std::to_string(channels) + ", one a channel",
                           std::to_string(numbers.size()));
        return numbers[numbers.size() == 1 ? 0 : static_cast<std::size_t>(c)];
      };
      for (std::int64_t c = 0; c < channels; ++c) {
        const auto mean = static_cast<float>(number(normalization.mean, "--mean", c, 0)),
                   std = static_cast<float>(number(normalization.std, "--std", c, 1));
        if (!(std > 0)) throw UsageError("--std", "", "numbers above 0", std::to_string(std));
        const bool normalized = !normalization.mean.empty() || !normalization.std.empty();
        for (int x = 0; x < 256; ++x) {
          const float scaled = static_cast<float>(x) / 255.0F;
          binding.table.push_back(normalized ? (scaled - mean) / std : scaled);
        }
      }
      text += " / 255";
      const auto add = [&](const char* what, const std::vector<double>& numbers) {
        for (std::size_t i = 0; i < numbers.size(); ++i)
          text += (i == 0 ? std::string(", ") + what + " " : ",") + to_text(numbers[i]);
      };
      add("mean", normalization.mean);
      add("std", normalization.std);
    }
    if (!input.batched) text += ", the same for every batch";
    bindings_by_input_.push_back(std::move(binding));
    bindings_.push_back(std::move(text));
  }
  if (!any_image && normalization.required && (!normalization.mean.empty() || !normalization.std.empty()))
    throw UsageError("--mean and --std", "", "8-bit images to scale", "none in " + data.path());

  for (const Binding& binding : bindings_by_input_) {
    if (binding.classes == 0 && (binding.from == binding.to || !is_integer(binding.to))) continue;
    std::vector<std::byte> scratch(static_cast<std::size_t>(binding.elements) * size_of(binding.to));
    for (std::int64_t s = 0; s < (binding.batched ? data.size() : 1); ++s)
      convert(binding, scratch.data(), data.sample(binding.field, s), s);
  }
}

void BatchSource::copy(Batch& batch, std::int64_t row, std::int64_t index) const {
  for (std::size_t i = 0; i < bindings_by_input_.size(); ++i) {
    const Binding& binding = bindings_by_input_[i];
    if (binding.batched) convert(binding, batch.row(i, row), data_->sample(binding.field, index), index);
  }
}

void BatchSource::fill_shared(Batch& batch) const {
  for (std::size_t i = 0; i < bindings_by_input_.size(); ++i) {
    const Binding& binding = bindings_by_input_[i];
    if (!binding.batched) convert(binding, batch.row(i, 0), data_->sample(binding.field, 0), 0);
  }
}

void BatchSource::convert(const Binding& binding, std::byte* to, const std::byte* from, std::int64_t index) const {
  const std::int64_t n = binding.elements;
  const auto from_size = static_cast<std::int64_t>(size_of(binding.from)),
             to_size = static_cast<std::int64_t>(size_of(binding.to));
  if (!binding.table.empty() && binding.to == DType::f32) {
    auto* floats = reinterpret_cast<float*>(to);
    const auto* pixels = reinterpret_cast<const unsigned char*>(from);
    for (std::int64_t c = 0; c < n; c += binding.channel) {
      const float* table = binding.table.data() + c / binding.channel * 256;
      for (std::int64_t i = 0; i < binding.channel; ++i) floats[c + i] = table[pixels[c + i]];
    }
    return;
  }
  if (!binding.table.empty()) {
    for (std::int64_t i = 0; i < n; ++i) {
      const double x =
          binding.table[static_cast<std::size_t>(i / binding.channel * 256 + static_cast<std::int64_t>(from[i]))];
      narrow_numbers(binding.to, to + i * to_size, &x, 1);
    }
    return;
  }
  if (binding.from == binding.to && binding.classes == 0 && binding.to != DType::boolean) {
    if (n != 0) std::memcpy(to, from, static_cast<std::size_t>(n * from_size));
    return;
  }
  if (is_floating(binding.to)) {
    double piece[kPiece];
    for (std::int64_t i = 0; i < n; i += kPiece) {
      const std::int64_t m = std::min(kPiece, n - i);
      widen_numbers(binding.from, piece, from + i * from_size, m);
      narrow_numbers(binding.to, to + i * to_size, piece, m);
    }
    return;
  }
  std::int64_t low, high;
  range_of(binding.to, low, high);
  // Labels that do not count may lie beside the classes; not in an unsigned type, which would make them a class.
  const bool ignores =
      binding.classes > 0 && binding.ignored >= low && binding.ignored <= high && binding.from != DType::u64;
  if (binding.classes > 0) {
    low = 0;
    high = std::min(high, binding.classes - 1);
  }
  std::int64_t piece[kPiece];
  for (std::int64_t i = 0; i < n; i += kPiece) {
    const std::int64_t m = std::min(kPiece, n - i);
    widen_integers(binding.from, piece, from + i * from_size, m);
    for (std::int64_t k = 0; k < m; ++k) {
      // An unsigned number of 2^63 and more has become negative: out of every range that starts at 0, and of i64's only
      // as itself.
      if (piece[k] < low || piece[k] > high || (binding.from == DType::u64 && piece[k] < 0)) {
        if (ignores && piece[k] == binding.ignored) continue;
        throw Error(
            data_->path_of(binding.field),
            std::string("sample ") + std::to_string(index) + " of " + printable(data_->fields()[binding.field].name),
            std::string("a number from ") + std::to_string(low) + " to " + std::to_string(high),
            std::to_string(piece[k]));
      }
    }
    narrow_integers(binding.to, to + i * to_size, piece, m);
  }
}

}  // namespace graven::runtime
