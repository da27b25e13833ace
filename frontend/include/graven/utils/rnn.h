// Sequences of several lengths, padded to one, for the recurrent layers (layers/sequence.h), with PyTorch's names.
//
//   using namespace nn::utils::rnn;
//   nn::PackedSequence packed = pack_padded_sequence(x, lengths, {.batch_first = true, .enforce_sorted = false});
//   auto [out, state] = lstm(packed);                    // each sequence ends where its length says, backwards begins
//   auto [y, ends] = pad_packed_sequence(out, {.batch_first = true});
//
// The lengths are data, of a graph's input too, in any order: nothing is sorted.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "graven/layers/sequence.h"
#include "graven/tensor.h"

namespace graven::nn::utils::rnn {

struct PackOptions {
  bool batch_first = false;
  /// User error unless lengths descend, as in PyTorch, and in a graph that does not know them. What is computed is the
  /// same without.
  bool enforce_sorted = true;
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

enum class PaddingSide : std::uint8_t { right, left };
struct PadSequenceOptions {
  bool batch_first = false;
  double padding_value = 0;
  PaddingSide padding_side = PaddingSide::right;
};
/// Sequences [length_i, ...] that agree in all but the length, as one tensor [longest, batch, ...] (batch first when
/// asked for), with padding_value behind the end of each, or before its beginning. User error where there are none, one
/// is undefined or has no dimension, they differ elsewhere or in dtype, or a length is a symbol.
Tensor pad_sequence(const std::vector<Tensor>& sequences, PadSequenceOptions options = {},
                    Location where = Location::current());
/// The reverse: of padded_sequences[longest, batch, ...] (batch first when asked for) the first lengths[batch] steps
/// each. User error where the lengths are not integers from 0 to longest, one for each sequence, and in a graph that
/// does not know their values.
std::vector<Tensor> unpad_sequence(const Tensor& padded_sequences, const Tensor& lengths, bool batch_first = false,
                                   Location where = Location::current());

/// Sequences as pad_sequence() takes them, packed with their lengths, which are at least 1. enforce_sorted: user error
/// unless lengths descend.
PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted = true,
                             Location where = Location::current());
/// The reverse: the sequences, in the order in which they were packed. User error in a graph that does not know their
/// lengths.
std::vector<Tensor> unpack_sequence(const PackedSequence& packed, Location where = Location::current());

}  // namespace graven::nn::utils::rnn
