// A cluster as the simulator sees it: what a rank computes and holds, and what the links between ranks carry; and what
// sending takes over such links.
//
//   Machine m{.ranks = 1024, .bandwidth = 25e9, .latency = 5e-6};
//   all_reduce(4 * parameters, 1024, m.link(1024)).seconds
//
// Costs of collectives are those of Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005: a message of n bytes takes latency + n / bandwidth, each rank sends and
// receives one at a time, and additions are counted as free. Of several algorithms the cheapest is taken.
#pragma once

#include <cstdint>
#include <string_view>

#include "ir/rates.h"

namespace graven::codegen {

/// Between two ranks, each way.
struct Link {
  double bandwidth = 1;  ///< bytes a second
  double latency = 0;    ///< seconds
};

struct Machine {
  std::int64_t ranks = 1;
  double flops = 200e9;              ///< of a rank: peak, FLOP a second
  double memory_bandwidth = 12.5e9;  ///< of a rank: peak, bytes a second
  /// What programs reach of these. 163 of 312 TFLOP/s, 52%, is the best of Narayanan et al., "Efficient Large-Scale
  /// Language Model Training on GPU Clusters Using Megatron-LM", SC 2021; 80% and more of a memory's bandwidth is what
  /// copying reaches (STREAM).
  double flops_efficiency = 0.5, memory_efficiency = 0.8;
  double call_latency = 0;  ///< seconds that each kernel's call takes besides its work
  double memory = 0;        ///< of a rank, bytes; 0: no limit
  Link network = {};        ///< between nodes: what one rank has of it
  /// Ranks of one node speak over `node`. Tensor parallel ranks are neighbours, then data parallel ones; the stages of
  /// a pipeline are farthest apart.
  std::int64_t ranks_a_node = 1;
  Link node = {};
  bool overlap = true;  ///< gradients travel, and parameters come, beside the computation
  double compute_scale =
      1;  ///< times are so many times the roofline's: what a measured run took over what was predicted

  ir::Rates rates() const {
    return {.flops = flops * flops_efficiency / compute_scale,
            .bytes = memory_bandwidth * memory_efficiency / compute_scale,
            .call = call_latency,
            .at_once = true};
  }
  /// Between ranks that are all among `span` neighbours.
  const Link& link(std::int64_t span) const { return span <= ranks_a_node ? node : network; }
};

/// What one rank sends, and how long all of them take.
struct Transfer {
  double seconds = 0, bytes = 0;
  std::string_view algorithm = {};
};

/// The sum of `bytes` over the ranks, for each of them: a ring, 2(p-1) latency + 2(p-1)/p n / bandwidth; where p is a
/// power of two Rabenseifner's, 2 log2(p) latency + the same; or recursive doubling, log2(p) (latency + n / bandwidth).
/// No algorithm sends less than 2(p-1)/p n from each rank (Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms
/// for Clusters of Workstations", JPDC 69(2), 2009).
Transfer all_reduce(double bytes, std::int64_t ranks, const Link& link);
/// Each rank has a share of `bytes` and gets all: a ring, (p-1) latency + (p-1)/p n / bandwidth, or recursive doubling,
/// log2(p) latency + the same.
Transfer all_gather(double bytes, std::int64_t ranks, const Link& link);
/// How the engine of emitted programs (runtime_min/ranks.h) makes means: each rank sends each other one its share,
/// (p-1) latency + (p-1)/p n / bandwidth, and as long again what comes of it; a gather is the latter alone.
Transfer exchange(double bytes, std::int64_t ranks, const Link& link);
Transfer mean(double bytes, std::int64_t ranks, const Link& link);
/// From one rank to another.
Transfer send(double bytes, const Link& link);

}  // namespace graven::codegen
