// What a graph can be asked for, as users write it: it stands in the recorded graph and in its repr, or it is one error
// once the graph is recorded. What it changes in the emitted text: tests/emit/options_test.cpp.
#include <gtest/gtest.h>

#include <string>

#include "graven/graven.h"
#include "ir/graph.h"
#include "tests/call.h"
#include "tests/frontend/error_text.h"

namespace graven {
namespace {

struct Small : nn::Graph<Small> {
  nn::Linear model = child("model", nn::Linear(4, 4));
  optim::SGD optimizer{model.parameters(), {.lr = 0.1}};
  Small() { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = model(x).mean();
    loss.backward();
    return loss;
  }
};

TEST(GraphOptions, StandInTheGraphAndInItsRepr) {
  using Straighten = nn::GraphBase::Straighten;
  const struct {
    const char *key, *said;
    test::Call<void(Small&)> ask;
  } cases[] = {
      {"straighten_algorithm", "straighten_algorithm=speed_first",
       [](Small& graph) { graph.enable_straighten_algorithm(Straighten::speed_first); }},
      {"compress_memory", "compress_memory=True", [](Small& graph) { graph.enable_compress_memory(); }},
      {"no_model_update_fusion", "fuse_model_update_ops=False",
       [](Small& graph) { graph.allow_fuse_model_update_ops(false); }},
      {"no_add_to_output_fusion", "fuse_add_to_output=False",
       [](Small& graph) { graph.allow_fuse_add_to_output(false); }},
      {"no_cast_scale_fusion", "fuse_cast_scale=False", [](Small& graph) { graph.allow_fuse_cast_scale(false); }},
      {"measured_convolutions", "cudnn_conv_heuristic_search_algo=False",
       [](Small& graph) { graph.enable_cudnn_conv_heuristic_search_algo(false); }},
      {"allow_tf32", "allow_tf32=True", [](Small& graph) { graph.allow_tf32(); }},
      {"memory_budget", "memory_budget=1048576", [](Small& graph) { graph.memory_budget(std::int64_t{1} << 20); }},
      {"gradient_accumulation_steps", "gradient_accumulation_steps=2",
       [](Small& graph) { graph.set_gradient_accumulation_steps(2); }},
      {"data_parallel", "data_parallel=True", [](Small& graph) { graph.enable_data_parallel(); }},
      {"update_in_backward", "update_in_backward=True", [](Small& graph) { graph.update_in_backward(); }},
      {"amp", "amp=bf16", [](Small& graph) { graph.enable_amp(); }},
      {"grad_scaler.init_scale", "grad_scaler",
       [](Small& graph) { graph.set_grad_scaler(amp::GradScaler({.init_scale = 8})); }},
  };
  const auto x = spec({2, 4}, "x");
  Small plain;
  EXPECT_TRUE(plain.trace(x).config.empty());
  for (const auto& c : cases) {
    Small graph;
    c.ask(graph);
    EXPECT_NE(graph.repr().find(c.said), std::string::npos) << c.key << "\n" << graph.repr();
    EXPECT_EQ(plain.repr().find(c.said), std::string::npos) << c.key;
    EXPECT_EQ(graph.trace(x).config.count(c.key), 1u) << c.key;
    EXPECT_NE(test::error_of([&] { c.ask(plain); }).find("recorded already"), std::string::npos)
        << c.key << ": " << test::error_of([&] { c.ask(plain); });
  }
}

TEST(GraphOptions, OfTf32AreThoseOfTheDeviceWhereTheGraphSaysNothing) {
  const auto allows = [](Small& graph) {
    graph.trace(spec({2, 4}, "x"));
    cuda::allow_tf32(!cuda::allows_tf32());  // a recorded graph stays what it is
    const bool allowed = graph.graph().flag(ir::kAllowTf32);
    EXPECT_EQ(graph.repr().find("allow_tf32=True") != std::string::npos, allowed);
    cuda::allow_tf32(!cuda::allows_tf32());
    return allowed;
  };
  EXPECT_FALSE(cuda::allows_tf32());
  Small off, on, without;
  EXPECT_FALSE(allows(off));
  cuda::allow_tf32();
  EXPECT_TRUE(allows(on));
  without.allow_tf32(false);
  EXPECT_FALSE(allows(without));
  cuda::allow_tf32(false);
}

}  // namespace
}  // namespace graven
