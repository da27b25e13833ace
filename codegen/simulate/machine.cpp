#include "codegen/simulate/machine.h"

#include <bit>
#include <cmath>

namespace graven::codegen {

namespace {

bool is_power_of_two(std::int64_t n) { return std::has_single_bit(static_cast<std::uint64_t>(n)); }

}  // namespace

Transfer all_reduce(double bytes, std::int64_t ranks, const Link& link) {
  if (ranks <= 1 || bytes <= 0) return {};
  const double p = static_cast<double>(ranks), rounds = std::ceil(std::log2(p));
  Transfer best{2 * (p - 1) * link.latency + 2 * (p - 1) / p * bytes / link.bandwidth, 2 * (p - 1) / p * bytes, "ring"};
  const auto offer = [&](const Transfer& other) {
    if (other.seconds < best.seconds) best = other;
  };
  if (is_power_of_two(ranks))
    offer({2 * rounds * link.latency + best.bytes / link.bandwidth, best.bytes, "Rabenseifner"});
  // Where they are no power of two, those that are too many send theirs to others first, and get the sum at last.
  const double doubling = is_power_of_two(ranks) ? rounds : rounds + 1;
  offer({doubling * (link.latency + bytes / link.bandwidth), doubling * bytes, "recursive doubling"});
  return best;
}

Transfer all_gather(double bytes, std::int64_t ranks, const Link& link) {
  if (ranks <= 1 || bytes <= 0) return {};
  const double p = static_cast<double>(ranks), share = (p - 1) / p * bytes;
  if (is_power_of_two(ranks) && ranks > 2)
    return {std::log2(p) * link.latency + share / link.bandwidth, share, "recursive doubling"};
  return {(p - 1) * link.latency + share / link.bandwidth, share, "ring"};
}

Transfer exchange(double bytes, std::int64_t ranks, const Link& link) {
  if (ranks <= 1 || bytes <= 0) return {};
  const double p = static_cast<double>(ranks), share = (p - 1) / p * bytes;
  return {(p - 1) * link.latency + share / link.bandwidth, share, "pairwise exchange"};
}

Transfer mean(double bytes, std::int64_t ranks, const Link& link) {
  const Transfer half = exchange(bytes, ranks, link);
  return {2 * half.seconds, 2 * half.bytes, half.algorithm};
}

Transfer send(double bytes, const Link& link) {
  if (bytes <= 0) return {};
  return {link.latency + bytes / link.bandwidth, bytes, "one message"};
}

}  // namespace graven::codegen
