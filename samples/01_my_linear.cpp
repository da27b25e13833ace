// Sample 1: a module of one's own, computed at once and as a graph, with the same numbers.
//
//   build/samples/01_my_linear
//   build/samples/01_my_linear --save DIRECTORY      # saves the graph, too:
//   build/graven emit DIRECTORY -o PROJECT [--target cuda]
#include <graven/graven.h>

#include <iostream>
#include <string_view>

using namespace graven;

struct MyLinear : nn::Module<MyLinear> {
  Tensor weight, bias;

  MyLinear(std::int64_t in_features, std::int64_t out_features)
      : weight(parameter("weight", randn({in_features, out_features}))),
        bias(parameter("bias", randn({out_features}))) {}

  Tensor forward(Tensor x) { return matmul(x, weight) + bias; }
};

struct MyLinearGraph : nn::Graph<MyLinearGraph> {
  MyLinear model;

  explicit MyLinearGraph(MyLinear linear) : model(child("model", linear)) {}

  Tensor build(Tensor x) { return model(x); }
};

int main(int argc, char** argv) try {
  const bool saves = argc == 3 && std::string_view(argv[1]) == "--save";
  if (argc != 1 && !saves) throw UserError("usage: 01_my_linear [--save DIRECTORY]");
  manual_seed(0);
  MyLinear linear(4, 3);
  MyLinearGraph graph(linear);  // shares the module's parameters
  const Tensor x = randn({1, 4});

  const Tensor eager = linear(x);
  const Tensor compiled = graph(x);  // records build(), emits a C++ project, compiles and runs it

  std::cout << linear << "\n\n" << graph << "\n\n";
  std::cout << "eager  " << eager << "\n";
  std::cout << "graph  " << compiled << "\n";
  if (saves) graph.save(argv[2]);
  return allclose(eager, compiled, 1e-5, 1e-6) ? 0 : 1;
} catch (const UserError& e) {
  std::cerr << e.what() << "\n";
  return 2;
}
