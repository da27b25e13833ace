// Plans with several memory spaces and streams: what the waits leave open makes no difference to any bit, and a plan
// that leaves too much open is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "codegen/emit/project.h"
#include "codegen/plan/arena.h"
#include "codegen/plan/plan.h"
#include "codegen/plan/summary.h"
#include "frontend/eager/executor.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/passes/passes.h"
#include "tests/frontend/error_text.h"
#include "tests/passes/graphs.h"
#include "tests/targets/scattered_target.h"

namespace graven::codegen {
namespace {

using ir::Graph;
using ir::ValueId;
using test::error_of;

constexpr std::uint64_t kSeeds = 12, kOrders = 6;

/// A linear congruential generator.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::size_t below(std::size_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>(state_ >> 33) % n;
  }

 private:
  std::uint64_t state_;
};

const std::vector<std::pair<std::string, std::function<Graph()>>>& networks() {
  static const std::vector<std::pair<std::string, std::function<Graph()>>> kNetworks = {
      {"mlp_training", [] { return tests::mlp_training(4, 16); }},
      {"lenet_training", [] { return tests::lenet_training(2); }},
      {"residual_training", [] { return tests::residual_training(); }},
      {"residual_inference", [] { return tests::residual_inference(); }},
      {"norms_inference", [] { return tests::norms_inference(); }}};
  return kNetworks;
}

struct Planned {
  Graph graph;
  Plan plan;
};

Planned planned(const std::function<Graph()>& network, std::uint64_t seed) {
  tests::scattering = seed;
  Planned made{network(), {}};
  ir::PassOptions options;
  options.target = &tests::kScattered;
  ir::run_passes(made.graph, options);
  made.plan = make_plan(made.graph, tests::scattered_target(), /*keep_results=*/true);
  return made;
}

/// What verify_plan says; nothing where it finds nothing.
std::string refusal_of(const Planned& p) {
  try {
    verify_plan(p.graph, p.plan);
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

/// An order of the steps in which each stream runs its own in the order of the plan, and each step waits for what the
/// plan says. Steps that call nothing stand right behind what makes their inputs.
std::vector<std::int32_t> any_order(const Planned& p, Random& random) {
  const auto& steps = p.plan.steps;
  const auto node = [&](std::int32_t s) -> const ir::Node& { return p.graph.nodes[at(steps[at(s)].node)]; };
  std::vector<std::vector<std::int32_t>> streams(tests::kScattered.streams.size()), behind(steps.size());
  std::vector<std::int32_t> maker(p.graph.values.size(), -1), order;
  for (std::int32_t s = 0; s < static_cast<std::int32_t>(steps.size()); ++s) {
    for (const ValueId v : node(s).outputs) maker[at(v)] = s;
    if (!steps[at(s)].call.name.empty())
      streams[at(steps[at(s)].stream)].push_back(s);
    else if (const std::int32_t made = maker[at(node(s).inputs[0])]; made >= 0)
      behind[at(made)].push_back(s);
    else
      order.push_back(s);
  }
  std::vector<bool> done(steps.size(), false);
  const std::function<void(std::int32_t)> run = [&](std::int32_t s) {
    done[at(s)] = true;
    order.push_back(s);
    for (const std::int32_t next : behind[at(s)]) run(next);
  };
  for (const std::int32_t s : std::vector<std::int32_t>(order))
    for (const std::int32_t next : behind[at(s)]) run(next);
  std::vector<std::size_t> next(streams.size(), 0);
  while (order.size() < steps.size()) {
    std::vector<std::size_t> ready;
    for (std::size_t t = 0; t < streams.size(); ++t) {
      if (next[t] == streams[t].size()) continue;
      const std::vector<std::int32_t>& waits = steps[at(streams[t][next[t]])].waits;
      if (std::all_of(waits.begin(), waits.end(), [&](std::int32_t w) { return done[at(w)]; })) ready.push_back(t);
    }
    if (ready.empty()) ADD_FAILURE() << "the streams wait for one another";
    if (ready.empty()) break;
    const std::size_t t = ready[random.below(ready.size())];
    run(streams[t][next[t]++]);
  }
  return order;
}

/// Each value that the graph is given, by its number.
eager::Environment given(const Graph& graph) {
  eager::Environment values;
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const auto v = static_cast<ValueId>(i);
    const ir::Value& value = graph.value(v);
    if (value.kind == ir::ValueKind::node || value.kind == ir::ValueKind::constant) continue;
    ir::TensorData data{value.type, {}};
    const auto n = static_cast<std::size_t>(value.type.shape.numel().maximum());
    data.bytes.resize(n * ir::size_of(value.type.dtype));
    Random random(i + 7);
    for (std::size_t k = 0; k < n; ++k) {
      const std::size_t drawn = random.below(1000);
      const float number = static_cast<float>(drawn) / 1000 + 0.001f;  // a variance is positive
      const double rate = 0.01;
      const std::int64_t integer = value.kind == ir::ValueKind::hyper ? 1 : static_cast<std::int64_t>(drawn % 3);
      std::byte* const to = data.bytes.data() + k * ir::size_of(value.type.dtype);
      if (value.type.dtype == ir::DType::f32) std::memcpy(to, &number, sizeof number);
      if (value.type.dtype == ir::DType::f64) std::memcpy(to, &rate, sizeof rate);
      if (value.type.dtype == ir::DType::i64) std::memcpy(to, &integer, sizeof integer);
    }
    values.emplace(v, std::move(data));
  }
  return values;
}

using Results = std::vector<std::vector<std::byte>>;

/// Runs the steps in this order in the plan's memory, which holds NaN at first: outputs, and what variables hold.
Results run(const Planned& p, const std::vector<std::int32_t>& order) {
  const auto offset = [&](std::int32_t buffer) -> std::int64_t {
    return buffer < 0 ? -1 : p.plan.begin(p.plan.buffers[at(buffer)].space) + p.plan.buffers[at(buffer)].offset;
  };
  eager::MemoryLayout layout;
  layout.bytes = p.plan.arena_bytes();
  for (const std::int32_t s : order) {
    layout.order.push_back(p.plan.steps[at(s)].node);
    layout.workspace.push_back(offset(p.plan.steps[at(s)].workspace));
  }
  for (const Placement& place : p.plan.placements)
    layout.offset.push_back(place.home == Home::arena ? offset(place.buffer) : -1);
  layout.before = [](std::size_t position, std::span<std::byte> arena) {
    if (position == 0) std::fill(arena.begin(), arena.end(), std::byte{0xff});
  };
  eager::Environment values = given(p.graph);
  eager::execute(p.graph, values, {.layout = &layout});
  Results results;
  for (const auto* list : {&p.graph.outputs, &p.graph.parameters, &p.graph.states})
    for (const ValueId v : *list) results.push_back(values.at(v).bytes);
  return results;
}

Results run_in_plan_order(const Planned& p) {
  std::vector<std::int32_t> order(p.plan.steps.size());
  std::iota(order.begin(), order.end(), 0);
  return run(p, order);
}

/// Each buffer in its space's arena by its life.
void place_anew(Plan& plan) {
  for (std::size_t space = 0; space < plan.arenas.size(); ++space) {
    std::vector<Buffer> own;
    for (const Buffer& b : plan.buffers)
      if (at(b.space) == space) own.push_back(b);
    plan.arenas[space].lower_bound = arena_lower_bound(own);
    plan.arenas[space].bytes = place_buffers(own);
    auto placed = own.begin();
    for (Buffer& b : plan.buffers)
      if (at(b.space) == space) b = *placed++;
  }
}

/// Whether the steps, in this order, do not end, or with other results.
bool differs(const Planned& p, const std::vector<std::int32_t>& order, const Results& expected) {
  try {
    return run(p, order) != expected;
  } catch (const UserError&) {  // of numbers that are not what they were, such as labels
    return true;
  }
}

class Streams : public testing::TestWithParam<std::size_t> {
 protected:
  static const std::function<Graph()>& network() { return networks()[GetParam()].second; }
};

TEST_P(Streams, RunInAnyOrderThatTheWaitsAllow) {
  std::size_t waits = 0, transfers = 0;
  Results first;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const Planned p = planned(network(), seed);
    verify_plan(p.graph, p.plan);
    const Results expected = run_in_plan_order(p);
    if (first.empty()) first = expected;
    EXPECT_EQ(expected, first) << "where nodes run makes a difference";
    Random random(seed);
    for (std::uint64_t order = 0; order < kOrders; ++order) EXPECT_EQ(run(p, any_order(p, random)), expected);
    for (const Step& step : p.plan.steps) {
      waits += step.waits.size();
      transfers += p.graph.nodes[at(step.node)].is(ir::kCopy);
    }
  }
  EXPECT_GT(waits, kSeeds);
  EXPECT_GT(transfers, kSeeds);
}

/// No wait is there for nothing, and none may be left out.
TEST_P(Streams, AWaitThatIsLeftOutIsFound) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Planned p = planned(network(), seed);
    for (std::size_t s = 0; s < p.plan.steps.size(); ++s) {
      const std::vector<std::int32_t> waits = std::exchange(p.plan.steps[s].waits, {});
      if (!waits.empty()) {
        EXPECT_NE(refusal_of(p).find("may run beside"), std::string::npos) << "seed " << seed << ", step " << s;
      }
      p.plan.steps[s].waits = waits;
    }
  }
}

/// Buffers that live from step to step, as if there were one stream, are reused while another one still reads them.
TEST_P(Streams, AnEarlyReuseIsFound) {
  std::size_t found = 0, differing = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Planned p = planned(network(), seed);
    const Results expected = run_in_plan_order(p);
    const auto use = [&](std::int32_t buffer, std::size_t s) {
      if (buffer >= 0) p.plan.buffers[at(buffer)].last = static_cast<std::int32_t>(s);
    };
    for (std::size_t s = 0; s < p.plan.steps.size(); ++s) {
      const ir::Node& node = p.graph.nodes[at(p.plan.steps[s].node)];
      use(p.plan.steps[s].workspace, s);
      for (const auto* list : {&node.inputs, &node.outputs})
        for (const ValueId v : *list)
          if (v != ir::kNone && p.plan.placements[at(root(p.plan, v))].home == Home::arena)
            use(p.plan.placements[at(root(p.plan, v))].buffer, s);
    }
    for (const ValueId v : p.graph.outputs)
      if (const Placement& place = p.plan.placements[at(root(p.plan, v))]; place.home == Home::arena)
        use(place.buffer, p.plan.steps.size() - 1);
    place_anew(p.plan);
    const bool is_refused = refusal_of(p).find("may run beside") != std::string::npos;
    found += is_refused;
    Random random(seed);
    bool fails = false;
    for (std::uint64_t order = 0; order < kOrders; ++order) fails |= differs(p, any_order(p, random), expected);
    EXPECT_TRUE(is_refused || !fails) << "seed " << seed << ": what is not refused computes something else";
    differing += fails;
  }
  EXPECT_GT(found, 0u);
  std::cout << found << " of " << kSeeds << " plans are refused, " << differing << " of them compute something else\n";
}

TEST_P(Streams, AnArgumentInAnotherSpaceIsFound) {
  Planned p = planned(network(), 1);
  for (Buffer& b : p.plan.buffers)
    if (b.bytes > 0 && !b.values.empty()) {
      b.space = 1 - b.space;
      break;
    }
  place_anew(p.plan);
  EXPECT_NE(refusal_of(p).find("in another memory space"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Networks, Streams, testing::Range<std::size_t>(0, 5),
                         [](const auto& info) { return networks()[info.param].first; });

TEST(SeveralStreams, AreInTheTexts) {
  const Planned p = planned(networks()[0].second, 1);
  const std::string summary = memory_summary(p.graph, p.plan), table = memory_table(p.graph, p.plan),
                    order = order_table(p.graph, p.plan);
  for (const char* words : {"arena of near ", "arena of far ", "stream even: ", "stream odd: "})
    EXPECT_NE(summary.find(words), std::string::npos) << summary;
  for (const char* words : {"arena of far ", ", in near\n", ", in far\n"})
    EXPECT_NE(table.find(words), std::string::npos) << table;
  for (const char* words : {", on even\n", ", on odd, behind "})
    EXPECT_NE(order.find(words), std::string::npos) << order;
}

TEST(SeveralStreams, AreNotEmitted) {
  static const bool added = [] {
    add_target(tests::scattered_target());
    return true;
  }();
  EXPECT_TRUE(added);
  const Graph traced = tests::mlp_training(4, 16);
  EXPECT_NE(error_of([&] {
              (void)render_project(traced, {.target = "scattered", .format = false});
            }).find("emitted programs have one memory space and one stream, scattered work has 2 and 2"),
            std::string::npos);
}

}  // namespace
}  // namespace graven::codegen
