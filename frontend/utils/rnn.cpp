#include "graven/utils/rnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "frontend/dispatch.h"
#include "graven/functional.h"

namespace graven::nn::utils::rnn {

using graven::detail::fail;

namespace {

void require_descending(const std::vector<std::int64_t>& lengths, const char* name, Location where) {
  const auto rises = std::adjacent_find(lengths.begin(), lengths.end(), std::less<>());
  if (rises == lengths.end()) return;
  fail(
      name,
      fmt::format("expects lengths that descend, got {} before {} at position {}; enforce_sorted = false takes them in "
                  "any order",
                  rises[0], rises[1], rises - lengths.begin()),
      where);
}

}  // namespace

PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& lengths, PackOptions options, Location where) {
  constexpr const char* kName = "pack_padded_sequence";
  graven::detail::require_defined(input, kName, where, "input");
  graven::detail::require_defined(lengths, kName, where, "lengths");
  if (input.dim() < 2)
    fail(kName,
         std::string("expects ") + (options.batch_first ? "[batch, length, ...]" : "[length, batch, ...]") + ", got " +
             input.describe(),
         where);
  const Dim batch = input.shape()[options.batch_first ? 0 : 1];
  if (!ir::is_integral(lengths.dtype()) || lengths.dim() != 1 || lengths.shape()[0] != batch)
    fail(kName, "lengths must be integers [" + batch.to_string() + "], as the batch is, got " + lengths.describe(),
         where);
  if (options.enforce_sorted) {
    if (lengths.is_traced())
      fail(kName,
           "expects lengths that descend, which a graph does not know of its input; enforce_sorted = false takes them "
           "in any order",
           where);
    require_descending(lengths.to(DType::i64, where).to_vector<std::int64_t>(where), kName, where);
  }
  PackedSequence packed;
  packed.steps_ = options.batch_first ? input.transpose(0, 1, where) : input;
  packed.lengths_ = lengths.to(DType::i64, where);
  packed.lengths_ = graven::detail::beside(packed.lengths_, input, where);
  return packed;
}

std::pair<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence, PadPackedOptions options,
                                              Location where) {
  constexpr const char* kName = "pad_packed_sequence";
  Tensor y = sequence.steps_;
  graven::detail::require_defined(y, kName, where, "sequence");
  const auto at = [where](const Tensor& t) { return Operand(t, where); };
  if (!sequence.ends_in_zeros_ || options.padding_value != 0) {
    const Tensor places = graven::detail::counted(y.shape()[0], y, where).unsqueeze(1, where);
    Tensor behind = ge(at(places), at(sequence.lengths_.unsqueeze(0, where)));
    for (std::int64_t d = 2; d < y.dim(); ++d) behind = behind.unsqueeze(-1, where);
    y = masked_fill(at(y), behind, Operand(options.padding_value, where));
  }
  if (options.total_length && Dim(*options.total_length) != y.shape()[0]) {
    const std::int64_t length = graven::detail::fixed_size(y, 0, kName, where), more = *options.total_length - length;
    if (more < 0)
      fail(kName,
           fmt::format("total_length must be at least {}, the length that was packed, got {}", length,
                       *options.total_length),
           where);
    std::vector<std::int64_t> pads(static_cast<std::size_t>(2 * y.dim()), 0);
    pads.back() = more;
    y = pad(at(y), pads, options.padding_value);
  }
  if (options.batch_first) y = y.transpose(0, 1, where);
  return {y, sequence.lengths_};
}

namespace {

/// The lengths of sequences that agree in all else.
std::vector<std::int64_t> lengths_of(const std::vector<Tensor>& sequences, const char* name, Location where) {
  if (sequences.empty()) fail(name, "expects at least one sequence, got none", where);
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const Tensor& t = sequences[i];
    graven::detail::require_defined(t, name, where, fmt::format("sequence {}", i));
    if (t.dim() < 1)
      fail(name, fmt::format("expects sequences [length, ...], got {} at position {}", t.describe(), i), where);
    bool agrees = t.dtype() == sequences[0].dtype() && t.dim() == sequences[0].dim();
    for (std::int64_t d = 1; agrees && d < t.dim(); ++d) agrees = t.shape()[d] == sequences[0].shape()[d];
    if (!agrees)
      fail(
          name,
          fmt::format("expects sequences that differ in their length alone, got {} at position 0 and {} at position {}",
                      sequences[0].describe(), t.describe(), i),
          where);
    lengths.push_back(graven::detail::fixed_size(t, 0, name, where));
  }
  return lengths;
}

/// [longest, batch, ...] or, batch first, [batch, longest, ...].
Tensor padded(const std::vector<Tensor>& sequences, const std::vector<std::int64_t>& lengths,
              const PadSequenceOptions& options, Location where) {
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<Tensor> rows;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (lengths[i] == longest) {
      rows.push_back(sequences[i]);
      continue;
    }
    // Pairs of paddings begin with the last dimension's.
    std::vector<std::int64_t> pads(static_cast<std::size_t>(2 * sequences[i].dim()), 0);
    (options.padding_side == PaddingSide::right ? pads.back() : *(pads.end() - 2)) = longest - lengths[i];
    rows.push_back(pad(Operand(sequences[i], where), pads, options.padding_value));
  }
  return stack(rows, options.batch_first ? 0 : 1, where);
}

/// The first steps of each of [longest, batch, ...].
std::vector<Tensor> cut(const Tensor& steps, const Tensor& lengths, const char* name, Location where) {
  if (lengths.is_traced())
    fail(name, "needs the lengths' values, which a graph does not know; lengths that are no input of it will do",
         where);
  const std::vector<std::int64_t> values = lengths.to(DType::i64, where).to_vector<std::int64_t>(where);
  const std::int64_t longest = graven::detail::fixed_size(steps, 0, name, where);
  std::vector<Tensor> sequences;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0 || values[i] > longest)
      fail(name, fmt::format("length {} at position {} is outside [0, {}]", values[i], i, longest), where);
    sequences.push_back(steps.select(1, static_cast<std::int64_t>(i), where).narrow(0, 0, values[i], where));
  }
  return sequences;
}

}  // namespace

Tensor pad_sequence(const std::vector<Tensor>& sequences, PadSequenceOptions options, Location where) {
  return padded(sequences, lengths_of(sequences, "pad_sequence", where), options, where);
}

std::vector<Tensor> unpad_sequence(const Tensor& padded_sequences, const Tensor& lengths, bool batch_first,
                                   Location where) {
  constexpr const char* kName = "unpad_sequence";
  graven::detail::require_defined(padded_sequences, kName, where, "padded_sequences");
  graven::detail::require_defined(lengths, kName, where, "lengths");
  if (padded_sequences.dim() < 2)
    fail(kName,
         std::string("expects ") + (batch_first ? "[batch, longest, ...]" : "[longest, batch, ...]") + ", got " +
             padded_sequences.describe(),
         where);
  const Dim batch = padded_sequences.shape()[batch_first ? 0 : 1];
  if (!ir::is_integral(lengths.dtype()) || lengths.dim() != 1 || lengths.shape()[0] != batch)
    fail(kName, "lengths must be integers [" + batch.to_string() + "], as the batch is, got " + lengths.describe(),
         where);
  return cut(batch_first ? padded_sequences.transpose(0, 1, where) : padded_sequences, lengths, kName, where);
}

PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted, Location where) {
  constexpr const char* kName = "pack_sequence";
  const std::vector<std::int64_t> lengths = lengths_of(sequences, kName, where);
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] < 1) fail(kName, fmt::format("length 0 at position {}: a packed sequence has a step", i), where);
  if (enforce_sorted) require_descending(lengths, kName, where);
  return pack_padded_sequence(padded(sequences, lengths, {}, where),
                              from_data(lengths, Shape{static_cast<std::int64_t>(lengths.size())}),
                              {.enforce_sorted = false}, where);
}

std::vector<Tensor> unpack_sequence(const PackedSequence& packed, Location where) {
  const std::pair<Tensor, Tensor> padded = pad_packed_sequence(packed, {}, where);
  return cut(padded.first, padded.second, "unpack_sequence", where);
}

}  // namespace graven::nn::utils::rnn
