// Uses the installed library as its user would: eager, as a graph, saved for the graven command.
#include <graven/graven.h>

#include <cstdio>

using namespace graven;

struct Net : nn::Module<Net> {
  nn::Linear in = child("in", nn::Linear(8, 16));
  nn::Linear out = child("out", nn::Linear(16, 4));
  Tensor forward(Tensor x) { return out(relu(in(x))); }
};

struct Infer : nn::Graph<Infer> {
  Net model = child("model", Net());
  Tensor build(Tensor x) { return model(x); }
};

int main(int argc, char** argv) try {
  if (argc != 2) throw UserError("usage: consumer FOLDER");
  manual_seed(0);
  Infer graph;
  graph.compile(spec({Dim("batch", 32), 8}, "x"));
  const Tensor x = randn({5, 8});
  const Tensor eager = graph.model(x), compiled = graph(x);
  if (!allclose(eager, compiled, 1e-5, 1e-6)) throw UserError("eager and compiled results differ");
  graph.save(argv[1]);
  std::puts("consumer: OK");
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
