#include "scale.h"

#include <graven/graven.h>

#include <chrono>
#include <cstdio>

#include "codegen/emit/project.h"
#include "ir/passes/pass.h"
#include "workloads.h"

namespace graven::bench {

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// One block of nine nodes (0.5 is one): a small product, elementwise work, a residual.
struct Block : nn::Module<Block> {
  nn::Linear up = child("up", nn::Linear(16, 16));
  Tensor forward(Tensor x) { return tanh(up(x)) * sigmoid(x) + relu(x - 0.5) + x; }
};

struct Deep : nn::Graph<Deep> {
  nn::ModuleList<Block> blocks;
  explicit Deep(std::vector<Block> list) : blocks(child("blocks", nn::ModuleList<Block>(list))) {}
  Tensor build(Tensor x) {
    for (Block& b : blocks) x = b(x);
    return x;
  }
};

void report(const char* name, std::size_t nodes, double trace, const ir::Graph& graph) {
  const auto start = Clock::now();
  codegen::EmitReport r;
  codegen::EmitOptions options;
  options.format = false;
  const auto texts = codegen::render_project(graph, options, &r);
  const double rest = since(start);
  double passes = 0;
  for (const ir::PassTiming& t : r.passes) passes += t.milliseconds / 1e3;
  std::size_t bytes = 0, largest = 0;
  for (const auto& [path, text] : texts) {
    bytes += text.size();
    if (path.ends_with(".cpp")) largest = std::max(largest, text.size());
  }
  std::printf(
      "%-24s %8zu nodes: trace %7.3f s, passes %7.3f s, plan %7.3f s, emit %7.3f s, all %7.3f s; arena / lower bound "
      "%.3f; %.1f MB of text, largest "
      ".cpp %.2f MB\n",
      name, nodes, trace, passes, r.plan_milliseconds / 1e3, r.emit_milliseconds / 1e3, trace + rest,
      r.lower_bound ? static_cast<double>(r.arena_bytes) / static_cast<double>(r.lower_bound) : 1.0,
      static_cast<double>(bytes) / 1e6, static_cast<double>(largest) / 1e6);
  std::fflush(stdout);
}

}  // namespace

int measure_scale() {
  for (const char* name : {"lenet-train", "mobilenetv2-cifar-train", "resnet50-224-b1"}) {
    const Workload workload = make_workload(name);
    report(name, workload.graph.nodes.size(), workload.trace_seconds, workload.graph);
  }
  for (const int nodes : {1'000, 10'000, 100'000}) {
    std::vector<Block> list;
    for (int i = 0; 9 * i < nodes; ++i) list.emplace_back();
    Deep deep(list);
    const auto start = Clock::now();
    const ir::Graph& graph = deep.trace(spec({8, 16}, "x"));
    report("synthetic", graph.nodes.size(), since(start), graph);
  }
  return 0;
}

}  // namespace graven::bench
