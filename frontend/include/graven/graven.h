// Graven: networks written in C++, computed at once or compiled into standalone projects. The only include that a
// program needs.
//
// ## Tensors and eager mode (tensor.h, functional.h)
//
//   #include <graven/graven.h>
//   using namespace graven;
//
//   manual_seed(0);
//   Tensor x = linspace(-1, 1, 100).unsqueeze(1);
//   Tensor y = (3 * x).sin();                         // computed at once
//
// ## Modules (module.h, layers.h, init.h)
//
//   struct Net : nn::Module<Net> {
//     nn::Linear in = child("in", nn::Linear(1, 32));
//     nn::Linear out = child("out", nn::Linear(32, 1));
//     Tensor forward(Tensor x) { return out(tanh(in(x))); }
//   };
//
// ## Training eagerly (optim.h, lr_scheduler.h)
//
//   Net net;
//   optim::Adam optimizer(net.parameters(), {.lr = 1e-2});
//   for (int step = 0; step < 200; ++step) {
//     Tensor loss = mse_loss(net(x), y);
//     optimizer.zero_grad();
//     loss.backward();
//     optimizer.step();
//   }
//
// ## The same as a graph (graph.h)
//
//   struct TrainNet : nn::Graph<TrainNet> {
//     Net net = child("net", Net());
//     optim::Adam optimizer{net.parameters(), {.lr = 1e-2}};
//     TrainNet() { add_optimizer(optimizer); }
//     Tensor build(Tensor x, Tensor y) {
//       Tensor loss = mse_loss(net(x), y);
//       loss.backward();
//       return loss;
//     }
//   };
//   TrainNet graph;
//   Tensor loss = graph(x, y);      // the first call records build() and compiles it; every call is one training step
//
// ## Emitting a project (codegen.h)
//
//   codegen::emit(graph, "net_train");
//
// ## Networks ready to use (models.h)
//
//   models::ResNet resnet = models::resnet18({.num_classes = 10});
//
// ## Saving (serialize.h)
//
//   nn::save(net.state_dict(), "net.safetensors");
//   nn::save(optimizer.state_dict(), "optimizer.safetensors");
//   net.load_state_dict(nn::load("net.safetensors"));        // all or nothing; so does optimizer,
//                                                            // and a learning-rate schedule
//
// ## Deploying without the model's code (saved_graph.h)
//
//   graph.save("net");             // graph.json and weights.safetensors: what the graven command works from, too
//   nn::SavedGraph saved("net");   // in another program
//   Tensor z = saved({x}).at(0);
//
// Errors are graven::UserError: the module path, what was expected, what came, and the line of your program.
#pragma once

#include "graven/codegen.h"
#include "graven/data.h"
#include "graven/functional.h"
#include "graven/grad_scaler.h"
#include "graven/graph.h"
#include "graven/init.h"
#include "graven/layers.h"
#include "graven/lr_scheduler.h"
#include "graven/models.h"
#include "graven/module.h"
#include "graven/optim.h"
#include "graven/profile.h"
#include "graven/saved_graph.h"
#include "graven/serialize.h"
#include "graven/tensor.h"
#include "graven/threads.h"
#include "graven/tree.h"
#include "graven/types.h"
#include "graven/utils/averaging.h"
#include "graven/utils/clip_grad.h"
#include "graven/utils/convert_parameters.h"
#include "graven/utils/rnn.h"
