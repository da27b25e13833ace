// Sequences of several lengths, padded to one, for the recurrent layers (layers/sequence.h), with PyTorch's names.
//
//   using namespace nn::utils::rnn;
//   nn::PackedSequence packed = pack_padded_sequence(x, lengths, {.batch_first = true});
//   auto [out, state] = lstm(packed);                    // each sequence ends where its length says, backwards begins
//   auto [y, ends] = pad_packed_sequence(out, {.batch_first = true});
//
// The lengths are data, of a graph's input too, in any order: nothing is sorted.
#pragma once

#include <optional>
#include <utility>

#include "graven/layers/sequence.h"
#include "graven/tensor.h"

namespace graven::nn::utils::rnn {

struct PackOptions {
  bool batch_first = false;
  bool enforce_sorted = false;  ///< an error unless lengths descend; not in a graph, which does not know them
};
/// Of input[length, batch, ...] (batch first when asked for) the first lengths[batch] steps each, integers from 1 to
/// length: others are an error where a recurrent layer runs. An integer less precise than i64 is converted.
PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& lengths, PackOptions options = {},
                                    Location where = Location::current());

struct PadPackedOptions {
  bool batch_first = false;
  double padding_value = 0;
  std::optional<std::int64_t> total_length = {};  ///< of the result; none: as long as what was packed
};
/// The sequences [length, batch, ...] (batch first when asked for) with padding_value behind the end of each, and their
/// lengths. The result is as long as the tensor that was packed, which need not be as short as the longest sequence; a
/// total_length below that is an error.
std::pair<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence, PadPackedOptions options = {},
                                              Location where = Location::current());

}  // namespace graven::nn::utils::rnn
