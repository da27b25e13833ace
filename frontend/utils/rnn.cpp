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
      fail(kName, "enforce_sorted needs the lengths' values, which a graph does not know", where);
    const std::vector<std::int64_t> values = lengths.to(DType::i64, where).to_vector<std::int64_t>(where);
    if (!std::is_sorted(values.begin(), values.end(), std::greater<>()))
      fail(kName, "lengths must descend where enforce_sorted is set", where);
  }
  PackedSequence packed;
  packed.steps_ = options.batch_first ? input.transpose(0, 1, where) : input;
  packed.lengths_ = lengths.to(DType::i64, where);
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

}  // namespace graven::nn::utils::rnn
