// Arenas beyond 2 and 4 GiB. The batch may be that large, and is small: memory that no call comes to is never there.
#include <graven/graven.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <fstream>

#include "codegen/emit/project.h"
#include "frontend/tensor_impl.h"

namespace graven::codegen {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30, kManyRows = std::int64_t{1} << 20, kWidth = 320;

struct Layers : nn::Module<Layers> {
  nn::Linear first = child("first", nn::Linear(3, kWidth)), second = child("second", nn::Linear(kWidth, kWidth)),
             third = child("third", nn::Linear(kWidth, kWidth)), last = child("last", nn::Linear(kWidth, 1));
  Tensor forward(Tensor x) { return last(tanh(third(tanh(second(tanh(first(x))))))); }
};
struct Wide : nn::Graph<Wide> {
  Layers model = child("model", Layers());
  optim::SGD optimizer{model.parameters(), {.lr = 0.1}};
  Wide() { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = model(x).square().mean();
    loss.backward();
    return loss;
  }
};

/// Pages of this process that are in memory, in bytes.
std::int64_t resident() {
  std::int64_t all = 0, here = 0;
  std::ifstream("/proc/self/statm") >> all >> here;
  return here * 4096;
}

bool can_map(std::int64_t bytes) {
  void* const data =
      mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data != MAP_FAILED && munmap(data, static_cast<std::size_t>(bytes)) == 0;
}

TEST(LargeArena, TrainsAsWithASmallOne) {
  const auto train = [](std::int64_t rows, EmitReport& report) {
    manual_seed(3);
    Wide graph;
    graph.compile(spec({Dim("rows", rows), 3}, "x"));
    render_project(graph.graph(), {.format = false}, &report);
    if (!can_map(report.arena_bytes)) return std::vector<Tensor>();
    std::vector<Tensor> results;
    for (int step = 0; step < 3; ++step) results.push_back(graph(randn({5, 3})).clone());
    for (const Tensor& p : graph.model.parameters()) results.push_back(p.clone());
    return results;
  };
  EmitReport small, large;
  const std::vector<Tensor> expected = train(8, small);
  const std::int64_t before = resident();
  const std::vector<Tensor> found = train(kManyRows, large);
  EXPECT_GT(large.arena_bytes, 4 * kGiB) << "or this tests nothing";
  if (found.empty()) GTEST_SKIP() << "this machine gives no process " << large.arena_bytes << " bytes, used or not";
  EXPECT_LT(resident() - before, kGiB / 8);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(equal(found[i], expected[i])) << i;
}

}  // namespace
}  // namespace graven::codegen
