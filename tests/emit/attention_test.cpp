// Attention of networks for CUDA stores no scores: what is called, and what lies in memory.
#include <graven/graven.h>
#include <graven/models/bert.h>
#include <graven/models/gpt2.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "codegen/plan/plan.h"
#include "codegen/targets/cuda/target.h"
#include "ir/analysis.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/passes/pass.h"

namespace graven::codegen {
namespace {

constexpr std::int64_t kSequences = 2, kLength = 24;

struct TrainsGpt2WithAttention : nn::Graph<TrainsGpt2WithAttention> {
  models::GPT2LMHeadModel model;
  explicit TrainsGpt2WithAttention(double attn_pdrop)
      : model(child("model", models::GPT2LMHeadModel({.n_layer = 2,
                                                      .n_head = 2,
                                                      .n_embd = 32,
                                                      .n_positions = 24,
                                                      .vocab_size = 48,
                                                      .attn_pdrop = attn_pdrop}))) {
    add_optimizer(optim::AdamW(model.parameters(), {.lr = 1e-3}));
  }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = cross_entropy(model(x).flatten(0, 1), y.flatten());
    loss.backward();
    return loss;
  }
};

struct TrainsBertWithAttention : nn::Graph<TrainsBertWithAttention> {
  models::BertForSequenceClassification model;
  explicit TrainsBertWithAttention(double dropout)
      : model(child("model", models::BertForSequenceClassification(3, {.vocab_size = 48,
                                                                       .hidden_size = 32,
                                                                       .num_hidden_layers = 2,
                                                                       .num_attention_heads = 2,
                                                                       .intermediate_size = 64,
                                                                       .attention_probs_dropout_prob = dropout,
                                                                       .max_position_embeddings = 24}))) {
    add_optimizer(optim::AdamW(model.parameters(), {.lr = 1e-3}));
  }
  Tensor build(Tensor x, Tensor mask, Tensor labels) {
    Tensor loss = cross_entropy(model(x, mask), labels);
    loss.backward();
    return loss;
  }
};

/// An encoder's and a decoder's layer, which have dropout by default; the attention of the latter to what the former
/// makes is in two lengths.
struct EncoderAndDecoder : nn::Module<EncoderAndDecoder> {
  nn::TransformerEncoderLayer encoder =
      child("encoder", nn::TransformerEncoderLayer(32, 2, {.dim_feedforward = 64, .batch_first = true}));
  nn::TransformerDecoderLayer decoder =
      child("decoder", nn::TransformerDecoderLayer(32, 2, {.dim_feedforward = 64, .batch_first = true}));
  Tensor forward(Tensor x, Tensor y) { return decoder(y, encoder(x)); }
};
struct TrainsTransformerWithAttention : nn::Graph<TrainsTransformerWithAttention> {
  EncoderAndDecoder model = child("model", EncoderAndDecoder());
  TrainsTransformerWithAttention() { add_optimizer(optim::AdamW(model.parameters(), {.lr = 1e-3})); }
  Tensor build(Tensor x, Tensor y) {
    Tensor loss = mse_loss(model(x, y), y);
    loss.backward();
    return loss;
  }
};

ir::Graph trace_gpt2(TrainsGpt2WithAttention& graph) {
  return graph.trace(spec({kSequences, kLength}, i64), spec({kSequences, kLength}, i64));
}
ir::Graph gpt2(double attn_pdrop) {
  TrainsGpt2WithAttention graph(attn_pdrop);
  return trace_gpt2(graph);
}
ir::Graph gpt2_in_bf16(double attn_pdrop) {
  TrainsGpt2WithAttention graph(attn_pdrop);
  graph.enable_amp();
  return trace_gpt2(graph);
}
ir::Graph gpt2_in_parts(double attn_pdrop) {
  TrainsGpt2WithAttention graph(attn_pdrop);
  graph.set_gradient_accumulation_steps(2);
  return trace_gpt2(graph);
}
ir::Graph gpt2_on_ranks(double attn_pdrop) {
  TrainsGpt2WithAttention graph(attn_pdrop);
  graph.enable_data_parallel();
  return trace_gpt2(graph);
}
ir::Graph bert(double dropout) {
  TrainsBertWithAttention graph(dropout);
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
    ir::Graph (*make)(double dropout);
  } networks[] = {{"gpt2", gpt2},
                  {"gpt2 in bf16", gpt2_in_bf16},
                  {"gpt2 in parts", gpt2_in_parts},
                  {"gpt2 on ranks", gpt2_on_ranks},
                  {"bert", bert}};
  for (const auto& network : networks)
    for (const double dropout : {0.0, 0.1}) {
      SCOPED_TRACE(std::string(network.name) + (dropout > 0 ? " with dropout" : ""));
      const Planned found = planned(network.make(dropout), {}),
                    before = planned(network.make(dropout), {"recognize_attention"});
      EXPECT_EQ(found.forward, 2);
      EXPECT_EQ(found.backward, 2);
      EXPECT_EQ(found.matrices, 0);
      EXPECT_EQ(before.forward + before.backward, 0);
      EXPECT_GT(before.matrices, 0);
      EXPECT_LT(found.bytes, before.bytes);
    }
}

TEST(Attention, OfLayersWithTheirDefaultDropout) {
  TrainsTransformerWithAttention graph;
  const Planned found = planned(graph.trace(spec({kSequences, kLength, 32}), spec({kSequences, kLength / 2, 32})), {});
  EXPECT_EQ(found.forward, 3);
  EXPECT_EQ(found.backward, 3);
  EXPECT_EQ(found.matrices, 0);
}

/// Backward, and what it computes again, draw forward's numbers: of the same stream, seed and step, which is the count
/// of all parts where a step has several.
TEST(Attention, DrawsItsNumbersAgain) {
  for (const std::int64_t parts : {1, 2}) {
    SCOPED_TRACE(parts);
    TrainsGpt2WithAttention graph(0.1);
    for (models::GPT2Block& block : graph.model.transformer.h) block.activation_checkpointing(true);
    graph.set_gradient_accumulation_steps(parts);
    ir::Graph g = trace_gpt2(graph);
    ir::PassOptions options;
    options.target = &cuda_target().passes;
    ir::run_passes(g, options);
    std::map<std::int64_t, std::vector<const ir::Node*>> of_stream;
    for (const ir::Node& node : g.nodes)
      if (node.is(ir::kAttention, ir::kAttentionBackward))
        of_stream[node.attributes.integer("stream")].push_back(&node);
    EXPECT_EQ(of_stream.size(), 2u);  // one of each layer
    for (const auto& [stream, nodes] : of_stream) {
      ASSERT_EQ(nodes.size(), 3u);  // forward, again, backward
      EXPECT_TRUE(nodes[1]->recomputes);
      for (const ir::Node* node : nodes) {
        EXPECT_EQ(node->attributes.number("p"), 0.1);
        ASSERT_TRUE(ir::is_random(*node));
        EXPECT_EQ(node->inputs[ir::input_range(*node, ir::InputRole::seed).begin], g.find(ir::kSeedName));
        EXPECT_EQ(node->inputs[ir::input_range(*node, ir::InputRole::step).begin],
                  g.find(parts > 1 ? ir::kDrawName : ir::kStepName));
      }
    }
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
