// Attention of networks for CUDA stores no scores: what is called, and what lies in memory.
#include <graven/graven.h>
#include <graven/models/bert.h>
#include <graven/models/gpt2.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "codegen/plan/plan.h"
#include "codegen/targets/cuda/target.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/passes/pass.h"

namespace graven::codegen {
namespace {

constexpr std::int64_t kSequences = 2, kLength = 24;

struct TrainsGpt2WithAttention : nn::Graph<TrainsGpt2WithAttention> {
  models::GPT2LMHeadModel model = child(
      "model", models::GPT2LMHeadModel(
                   {.n_layer = 2, .n_head = 2, .n_embd = 32, .n_positions = 24, .vocab_size = 48, .attn_pdrop = 0}));
  TrainsGpt2WithAttention() { add_optimizer(optim::AdamW(model.parameters(), {.lr = 1e-3})); }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = cross_entropy(model(x).flatten(0, 1), y.flatten());
    loss.backward();
    return loss;
  }
};

struct TrainsBertWithAttention : nn::Graph<TrainsBertWithAttention> {
  models::BertForSequenceClassification model =
      child("model", models::BertForSequenceClassification(3, {.vocab_size = 48,
                                                               .hidden_size = 32,
                                                               .num_hidden_layers = 2,
                                                               .num_attention_heads = 2,
                                                               .intermediate_size = 64,
                                                               .attention_probs_dropout_prob = 0,
                                                               .max_position_embeddings = 24}));
  TrainsBertWithAttention() { add_optimizer(optim::AdamW(model.parameters(), {.lr = 1e-3})); }
  Tensor build(Tensor x, Tensor mask, Tensor labels) {
    Tensor loss = cross_entropy(model(x, mask), labels);
    loss.backward();
    return loss;
  }
};

ir::Graph gpt2() {
  TrainsGpt2WithAttention graph;
  return graph.trace(spec({kSequences, kLength}, i64), spec({kSequences, kLength}, i64));
}
ir::Graph gpt2_in_bf16() {
  TrainsGpt2WithAttention graph;
  graph.enable_amp();
  return graph.trace(spec({kSequences, kLength}, i64), spec({kSequences, kLength}, i64));
}
ir::Graph bert() {
  TrainsBertWithAttention graph;
  return graph.trace(spec({kSequences, kLength}, i64), spec({kSequences, kLength}, i64), spec({kSequences}, i64));
}

struct Planned {
  std::ptrdiff_t forward = 0, backward = 0;  ///< calls of attention, and of its gradient
  std::ptrdiff_t matrices = 0;               ///< values in the arena with a number for each query and key of each head
  std::int64_t bytes = 0;                    ///< of the arena
};

Planned planned(ir::Graph graph, std::vector<std::string> disabled) {
  const Target& target = cuda_target();
  ir::PassOptions options;
  options.target = &target.passes;
  options.disabled = std::move(disabled);
  ir::run_passes(graph, options);
  const Plan plan = make_plan(graph, target);
  Planned found{.bytes = plan.arena_bytes()};
  for (const Step& step : plan.steps) {
    found.forward += step.call.name == "attention";
    found.backward += step.call.name == "attention_backward";
  }
  for (const Buffer& buffer : plan.buffers)
    found.matrices += std::any_of(buffer.values.begin(), buffer.values.end(), [&](ir::ValueId v) {
      const Shape& shape = graph.type(v).shape;
      return shape.rank() > 2 && shape.back(0) == Dim(kLength) && shape.back(1) == Dim(kLength);
    });
  return found;
}

TEST(Attention, StoresNoScoresOnCuda) {
  const struct {
    const char* name;
    ir::Graph (*make)();
  } networks[] = {{"gpt2", gpt2}, {"gpt2 in bf16", gpt2_in_bf16}, {"bert", bert}};
  for (const auto& network : networks) {
    SCOPED_TRACE(network.name);
    const Planned found = planned(network.make(), {}), before = planned(network.make(), {"recognize_attention"});
    EXPECT_EQ(found.forward, 2);
    EXPECT_EQ(found.backward, 2);
    EXPECT_EQ(found.matrices, 0);
    EXPECT_EQ(before.forward + before.backward, 0);
    EXPECT_GT(before.matrices, 0);
    EXPECT_LT(found.bytes, before.bytes);
  }
}

TEST(Attention, OnCudaHasItsLimits) {
  const auto refusal = [](DType dtype, std::int64_t size) -> std::string {
    ir::Graph graph;
    const ir::ValueId x = graph.add_input("x", {dtype, {3, size}});
    const ir::ValueId y = graph.add_node(ir::kAttention, {x, x, x}, {}, {})[0];
    graph.outputs = {y};
    try {
      (void)make_plan(graph, cuda_target());
    } catch (const UserError& e) {
      return e.message();
    }
    return "none";
  };
  EXPECT_EQ(refusal(DType::f32, 128), "none");
  EXPECT_EQ(refusal(DType::f32, 129), "the CUDA kernel attention takes queries of up to 128 numbers, got 129");
  EXPECT_EQ(refusal(DType::f64, 8), "the CUDA kernel attention does not take f64[3,8] (x): convert with to(f32)");
}

}  // namespace
}  // namespace graven::codegen
