// Sample 2: y = sin x on [-pi, pi], fitted by a polynomial of degree 3 with gradient descent; eagerly and as a graph,
// side by side.
//
//   build/samples/02_polynomial_fit
//   build/samples/02_polynomial_fit --save DIRECTORY      # saves the graph, too:
//   build/graven emit DIRECTORY -o PROJECT [--target cuda]
#include <graven/graven.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <numbers>
#include <string_view>

using namespace graven;

/// [a + b x + c x^2 + d x^3] for each row (x, x^2, x^3).
nn::Sequential polynomial() { return nn::Sequential(nn::Linear(3, 1), nn::Flatten(0, 1)); }

struct FitPolynomial : nn::Graph<FitPolynomial> {
  nn::Sequential model = child("model", polynomial());
  nn::MSELoss loss_fn = child("loss_fn", nn::MSELoss({.reduction = nn::Reduction::sum}));
  optim::SGD optimizer{model.parameters(), {.lr = 1e-6}};

  FitPolynomial() { add_optimizer(optimizer); }

  Tensor build(Tensor features, Tensor y) {
    Tensor loss = loss_fn(model(features), y);
    loss.backward();
    return loss;
  }
};

void print_result(const nn::ModuleBase& model) {
  const std::vector<double> w = model.children()[0].second.named("weight").to_vector<double>();
  const double a = model.children()[0].second.named("bias").item<double>();
  std::printf("Result: y = %.3f + %.3f x + %.3f x^2 + %.3f x^3\n", a, w[0], w[1], w[2]);
}

int main(int argc, char** argv) try {
  const bool saves = argc == 3 && std::string_view(argv[1]) == "--save";
  if (argc != 1 && !saves) throw UserError("usage: 02_polynomial_fit [--save DIRECTORY]");

  const Tensor x = linspace(-std::numbers::pi, std::numbers::pi, 2000);
  const Tensor features = stack({x, x.pow(2), x.pow(3)}, 1);  // f32[2000,3]
  const Tensor y = sin(x);

  manual_seed(0);
  nn::Sequential eager = polynomial();
  nn::MSELoss loss_fn({.reduction = nn::Reduction::sum});
  optim::SGD optimizer(eager.parameters(), {.lr = 1e-6});

  FitPolynomial graph;
  graph.model.load_state_dict(eager.state_dict());  // the same start

  std::printf("  step        eager        graph\n");
  bool same = true;
  for (int step = 1; step <= 2000; ++step) {
    Tensor loss = loss_fn(eager(features), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();

    const Tensor graph_loss = graph(features, y);  // forward, backward and update

    const double a = loss.item<double>(), b = graph_loss.item<double>();
    same = same && std::abs(a - b) <= 1e-3 * std::abs(a);
    if (step % 100 == 0) std::printf("%6d %12.4f %12.4f\n", step, a, b);
  }
  print_result(eager);
  print_result(graph.model);
  if (saves) graph.save(argv[2]);
  return same ? 0 : 1;
} catch (const UserError& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
