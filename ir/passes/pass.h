// A pass is one verb-named function in one file that rewrites a graph; its tests are before/after texts in
// tests/passes/<name>/. pipeline.inc is the ordered table: name, function, when it runs, and the reason for its place.
// Timing, dumping, verifying and logging live in run_passes, once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/analysis.h"
#include "ir/graph.h"
#include "ir/ops.h"

namespace graven::ir {

struct KernelCall;

/// Where a node's kernel runs, and where what it reads and writes lies.
struct Place {
  std::int32_t stream = 0, space = 0;
};

/// One of each.
inline constexpr std::string_view kMemory[] = {"memory"}, kStream[] = {"stream"};

/// What passes ask about the machine that a program is made for; the rest stands in its folder of codegen/targets.
struct TargetTraits {
  std::string_view name;                      ///< as the table of passes has it
  std::span<const DType> epilogues = {};      ///< in these dtypes kernels apply what alone reads their result
  std::span<const DType> channels_last = {};  ///< in these images lie as [n, h, w, c] where convolutions gain by it
  /// What mixed precision computes in half types, besides elementwise work; none: nothing (mixed_precision).
  std::span<const OpDef* const> half = {};
  /// Whether the kernel that a node with half types becomes takes them; nullptr: every one does (widen_half_types).
  bool (*takes_half)(const NodeView& node) = nullptr;
  bool packs_weights = false;   ///< convolutions take epilogues with packed weights alone
  bool orders_weights = false;  ///< convolutions read weights as [out, h, w, in / groups]
  /// Attention in f32 and the half types is one kernel where queries have up to so many numbers each; 0: it has none.
  std::int64_t attention_size = 0;
  /// Kinds of memory. What is given and kept, and results, lie in the first.
  std::span<const std::string_view> spaces = kMemory;
  /// Each runs its kernels one after the other, beside the others.
  std::span<const std::string_view> streams = kStream;
  /// nullptr: all in the first ones. Of a copy the stream counts, for it may read another space than it writes.
  Place (*place)(const NodeView& node) = nullptr;
  /// The kernel that a node becomes. User error naming the node and what it would need when the operator, its dtype or
  /// its layout is not covered. nullptr, where nothing is planned: none works in place or in memory of its own.
  KernelCall (*lower)(const NodeView& node) = nullptr;
  /// Bytes of the arena of a graph that has been through all passes; nullptr: nobody plans, an estimate has to do.
  std::int64_t (*arena_bytes)(const Graph& graph, const TargetTraits& target) = nullptr;
};

/// The place of a node: its target's, but what prepares weights does so in the first ones, and what changes variables
/// in the first space.
Place place_of(const NodeView& node, const TargetTraits& target);
/// By value, the space that it lies in: its maker's; of a copy, that of whoever reads it first.
ByValue<std::int32_t> memory_spaces(const Graph& graph, const TargetTraits& target);

/// The processor that Graven itself runs on: what is meant where nobody says otherwise.
inline constexpr DType kHostEpilogues[] = {DType::f32, DType::bf16};
inline constexpr DType kHostImages[] = {DType::f32, DType::f16, DType::bf16};
inline constexpr const OpDef* kHostHalf[] = {&kLinear,
                                             &kLinearBackwardInput,
                                             &kLinearBackwardWeight,
                                             &kMatmul,
                                             &kConv2d,
                                             &kConv2dBackwardInput,
                                             &kCat,
                                             &kConv2dBackwardWeight,
                                             &kCopy,
                                             &kDetach,
                                             &kExpand,
                                             &kFlip,
                                             &kPad,
                                             &kPermute,
                                             &kReceive,
                                             &kReshape,
                                             &kSlice,
                                             &kDropout};
inline constexpr TargetTraits kHost{
    .name = "cpu", .epilogues = kHostEpilogues, .channels_last = kHostImages, .half = kHostHalf, .packs_weights = true};

/// What passes may ask about the program to be made.
struct PassOptions {
  const TargetTraits* target = &kHost;
  std::vector<std::string> disabled;  ///< names of passes to leave out; naming an unknown one is a user error
  std::string from, to;               ///< first and last pass to run; empty: all
  std::string dump_directory;         ///< writes 00-trace.json, 01-<pass>.json, ...; every one is a valid input again
  bool verify = true;                 ///< check the invariants after every pass
};

struct Pass {
  std::string_view name;  ///< file name of the pass
  void (*run)(Graph&, const PassOptions&);
  bool (*applies)(const Graph&, const PassOptions&);  ///< nullptr: always
  std::string_view reason;                            ///< why it stands where it stands
  std::string_view target = {};                       ///< the one that it is for; empty: all
};

std::span<const Pass> pipeline();

struct PassTiming {
  std::string_view name;
  double milliseconds;
  std::size_t nodes_before, nodes_after;
};

/// Runs the table over the graph.
std::vector<PassTiming> run_passes(Graph& graph, const PassOptions& options);

/// Runs the passes that the graph has not been through yet, by its stage; nothing when it has been through all of them,
/// or is at `options.to`. User error when its stage is no pass of this version.
std::vector<PassTiming> finish_passes(Graph& graph, PassOptions options);

}  // namespace graven::ir
