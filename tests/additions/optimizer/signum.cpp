// The optimizer that was added, eagerly and in a graph: gradients of 2, -3 and 0 take steps of the same size.
#include <graven/graven.h>

#include <cstdio>

using namespace graven;

struct Net : nn::Module<Net> {
  Tensor weight = parameter("weight", zeros({3}));
  Tensor forward(Tensor x) { return (weight * x).sum(); }
};

struct Train : nn::Graph<Train> {
  Net net = child("net", Net());
  optim::Signum optimizer{net.parameters(), {.lr = 0.5}};
  Train() { add_optimizer(optimizer); }
  Tensor build(Tensor x) {
    Tensor loss = net(x);
    loss.backward();
    return loss;
  }
};

int main() {
  const Tensor x = tensor({2.0f, -3.0f, 0.0f});
  Train graph;
  Net net;
  optim::Signum optimizer(net.parameters(), {.lr = 0.5});
  for (int step = 0; step < 2; ++step) {
    graph(x);
    net(x).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  bool right = true;
  for (const Tensor& weight : {net.weight, graph.net.weight})
    right = right && allclose(weight.detach(), tensor({-1.0f, 1.0f, 0.0f}));
  std::printf("%s\n", right ? "signum: right" : "signum: WRONG");
  return right ? 0 : 1;
}
