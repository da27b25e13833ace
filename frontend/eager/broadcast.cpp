#include "frontend/eager/broadcast.h"

#include "kernels/cpu/strides.h"
#include "kernels/cpu/threads.h"

namespace graven::eager {

namespace {

struct Input {
  const char* x;
  std::size_t bytes;  // of an element
  kernels::Strides<1> strides;

  bool contiguous() const { return strides.rank == 1 && strides.stride[0][0] == 1; }
  bool scalar() const { return strides.rank == 1 && strides.stride[0][0] == 0; }
};

constexpr std::int64_t kChunk = kernels::detail::kBroadcastChunk;
constexpr std::size_t kLargestElement = 8;

/// The elements of an input that belong to `count` elements of the output: where they lie, if they lie together, else
/// copied into `buffer`. `Bits`: an integer as large as they are.
template <class Bits>
const void* range(const Input& input, std::int64_t first, std::int64_t count, void* buffer) {
  using Element [[gnu::may_alias]] = Bits;
  const Element* const x = reinterpret_cast<const Element*>(input.x);
  Element* const copy = static_cast<Element*>(buffer);
  kernels::StrideWalker<1> at(input.strides, first);
  const std::int64_t stride = input.strides.stride[0][input.strides.rank - 1];
  if (stride == 1 && at.left >= count) return x + at.offset[0];
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t run = at.left < count - i ? at.left : count - i;
    const Element* const from = x + at.offset[0];
    if (stride == 0) {
      const Element element = *from;
      for (std::int64_t j = 0; j < run; ++j) copy[i + j] = element;
    } else {
      GRAVEN_INDEPENDENT
      for (std::int64_t j = 0; j < run; ++j) copy[i + j] = from[j * stride];
    }
    i += run;
    at.advance(run);
  }
  return buffer;
}

const void* range(const Input& input, std::int64_t first, std::int64_t count, void* buffer) {
  switch (input.bytes) {
    case 1:
      return range<std::uint8_t>(input, first, count, buffer);
    case 2:
      return range<std::uint16_t>(input, first, count, buffer);
    case 4:
      return range<std::uint32_t>(input, first, count, buffer);
    default:
      return range<std::uint64_t>(input, first, count, buffer);
  }
}

}  // namespace

void broadcast(const Arguments& a, ApplyRange apply, std::span<const std::size_t> element_bytes) {
  constexpr std::int64_t kPiece = kernels::detail::kElementwisePiece;
  const kernels::broadcast_config& config = *a.broadcast;
  const std::size_t count = element_bytes.size() - 1;
  std::int64_t n = 1;
  for (std::int64_t d = 0; d < config.rank; ++d) n *= config.shape[d];
  if (n == 0) return;
  Input inputs[kernels::broadcast_config::kMaximumInputs];
  bool contiguous = true;
  for (std::size_t i = 0; i < count; ++i) {
    inputs[i] = {static_cast<const char*>(a.tensors[1 + i]), element_bytes[1 + i],
                 kernels::merge_dimensions<1>(config.rank, config.shape, {config.strides[i]})};
    contiguous = contiguous && inputs[i].contiguous();
  }
  char* const y = static_cast<char*>(a.tensors[0]);
  a.threads.run((n + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    const std::int64_t first = piece * kPiece, last = n - first < kPiece ? n : first + kPiece;
    const void* x[kernels::broadcast_config::kMaximumInputs];
    const auto apply_to = [&](std::int64_t from, std::int64_t elements) {
      apply(elements, y + static_cast<std::size_t>(from) * element_bytes[0], x);
    };
    if (contiguous) {
      for (std::size_t i = 0; i < count; ++i) x[i] = inputs[i].x + static_cast<std::size_t>(first) * inputs[i].bytes;
      apply_to(first, last - first);
      return;
    }
    alignas(64) char buffers[kernels::broadcast_config::kMaximumInputs][kChunk * kLargestElement];
    for (std::size_t i = 0; i < count; ++i)
      if (inputs[i].scalar()) x[i] = range(inputs[i], 0, last - first < kChunk ? last - first : kChunk, buffers[i]);
    for (std::int64_t from = first; from < last; from += kChunk) {
      const std::int64_t elements = last - from < kChunk ? last - from : kChunk;
      for (std::size_t i = 0; i < count; ++i)
        if (!inputs[i].scalar()) x[i] = range(inputs[i], from, elements, buffers[i]);
      apply_to(from, elements);
    }
  });
}

}  // namespace graven::eager
