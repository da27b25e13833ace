// A program as users write it: a network on the device where there is one. What it prints is compared by
// errors_test.cpp, which runs it with drivers and libraries of all kinds.
//
//   cuda_jit_probe               says whether there is a device, then asks for it all the same
//   cuda_jit_probe product       a linear layer
//   cuda_jit_probe convolution   of half types
//   cuda_jit_probe plan          what takes more memory on the way than its inputs and results
#include <graven/graven.h>

#include <iostream>
#include <string>
#include <utility>

using namespace graven;

struct Net : nn::Module<Net> {
  nn::Linear layer = child("layer", nn::Linear(3, 2));
  std::string kind;
  explicit Net(std::string kind) : kind(std::move(kind)) {}
  Tensor forward(Tensor x) {
    if (kind == "product") return layer(x);
    if (kind == "convolution") return conv2d(x.to(f16).reshape({1, 1, 2, 3}), ones({1, 1, 1, 2}).to(f16));
    if (kind == "plan") return softmax(x.reshape({-1, 1}) * x.reshape({1, -1}), 1).sum(0);
    return relu(x);
  }
};
struct Infer : nn::Graph<Infer> {
  Net net;
  explicit Infer(const std::string& kind) : net(child("net", Net(kind))) {}
  Tensor build(Tensor x) { return net(x); }
};

int main(int argc, char** argv) {
  std::cout << "available: " << cuda::is_available() << ", devices: " << cuda::device_count() << "\n";
  try {
    const std::string kind = argc > 1 ? argv[1] : "";
    Infer graph(kind);
    const Device device = kind == "cuda:7" ? Device(kind) : Device("cuda");
    const std::int64_t rows = kind == "large" ? 1 << 20 : kind == "plan" ? 400 : 2;
    graph.net.to(device);
    std::cout << graph(ones({rows, 3}).to(device)).shape().to_string() << "\n";
  } catch (const std::exception& e) {
    std::cout << e.what() << "\n";
  }
}
