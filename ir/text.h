// The graph as compact text for people: what `graven show` prints, what the tests of passes are written in, and what
// read_graph() takes as well as JSON. It says the same as the JSON (ir/json.h), of which it is another spelling, with
// what stands at its default left out: reading gives the same graph back.
//
//   graph TrainMlp (differentiate, training)
//   symbol batch 64
//   input x f32[batch,3]
//   parameter model.0.weight f32[4,3]
//   hyper step i64[]
//   forward
//     model.0.linear f32[batch,4] = linear(x, model.0.weight, -) @ model.0 mlp.cpp:8
//     loss f32[] = mean(model.0.linear; dims=[0, 1]) @ loss_fn mlp.cpp:9
//   output loss
//   loss loss
//   donation model.norm.running_mean = model.norm.batch_norm_training.running_mean
//   optimizer sgd
//     group lr=0.1, momentum=0.9 (model.0.weight)
//
// One statement a line; a line goes on where a bracket is open. "-" is an absent input; several results stand in
// parentheses, and so does none. What stands after "#" is a comment. Names that hold other characters than letters,
// digits, "_", ".", "*", "/", "-" and "+", or parentheses that pair up, stand in quotes, as in JSON. A scalar program
// is numbered: {%0, %1: %2 = mul(%0, %1) f32}. Calls of modules with activation checkpointing are listed,
// "checkpoint model.block.mlp within 1", and an origin that belongs to one has its place in the list behind it:
// "@ model.block.mlp mlp.cpp:8 [2]"; a node that computes again what a forward node has computed says "recomputes".
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"
#include "ir/json.h"

namespace graven::ir {

/// The whole graph, ending with a newline. User error where to_json() has one.
std::string to_text(const Graph& graph);

/// `file` is what errors call the text. User error on any mistake: what was expected and found, and the line.
Graph from_text(std::string_view text, const std::string& file, const ConstantLoader& load_constant = {});

}  // namespace graven::ir
