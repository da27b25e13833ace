// Tensors and modules on a device.
#include <dlfcn.h>
#include <graven/graven.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "tests/cuda_jit/device.h"
#include "tests/cuda_jit/networks.h"

namespace graven {
namespace {

using cuda_jit::expect_close;

TEST(CudaTensor, GoesThereAndComesBack) {
  for (const DType dtype : {f32, f64, f16, i64, i32, u8, boolean}) {
    const Tensor x = arange(6).reshape({2, 3}).to(dtype), there = x.to("cuda:1");
    EXPECT_EQ(there.device(), Device("cuda:1"));
    EXPECT_EQ(there.describe(), x.describe());
    EXPECT_TRUE(equal(there.cpu(), x));
    EXPECT_TRUE(equal(there.cuda(0).cpu(), x)) << "from device to device";
    EXPECT_TRUE(there.to("cuda:1").is_same(there));
  }
  const Tensor x = arange(6).reshape({2, 3});
  EXPECT_TRUE(equal(x.t().cuda().cpu(), x.t())) << "a view";
  EXPECT_TRUE(equal(x.cuda().t().cpu(), x.t())) << "a view of what is there";
  EXPECT_TRUE(equal(x.cuda().to(f64).cpu(), x.to(f64)));
  EXPECT_EQ(x.cuda().to(f64).device(), Device("cuda"));
  EXPECT_TRUE(equal(x.cuda().clone().cpu(), x));
  EXPECT_EQ(tensor(2.5).cuda().item<double>(), 2.5);
  EXPECT_EQ(x.cuda().to_vector<std::int64_t>(), x.to_vector<std::int64_t>());
  EXPECT_EQ(zeros({0, 3}).cuda().cpu().describe(), "f32[0,3]");
  std::ostringstream text;
  text << tensor({1.0, 2.0}).cuda();
  EXPECT_EQ(text.str(), "tensor([1., 2.], device='cuda:0')");
}

TEST(CudaTensor, IsWrittenInto) {
  Tensor x = zeros({2, 3}).cuda();
  x.copy_(ones({2, 3}));
  EXPECT_TRUE(equal(x.cpu(), ones({2, 3})));
  x.fill_(3);
  EXPECT_TRUE(equal(x.cpu(), full({2, 3}, 3)));
  x.slice(1, 0, 1).copy_(full({2, 1}, 7).cuda());
  EXPECT_TRUE(equal(x.cpu(), tensor({{7, 3, 3}, {7, 3, 3}}).to(f32)));
}

/// A function of the stand-in for the driver.
template <class Function>
Function* of_driver(const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name));
}

TEST(CudaStream, IsTheCallersWhereOneIsGiven) {
  void* const own = cuda::stream();
  EXPECT_NE(own, nullptr);
  void* mine = nullptr;
  ASSERT_EQ(of_driver<int(void**, unsigned)>("cuStreamCreate")(&mine, 1), 0);
  Tensor x = full({4}, 2, Device("cuda"));
  cuda::use_stream(mine);
  EXPECT_EQ(cuda::stream(), mine);
  EXPECT_NE(cuda::stream(1), mine) << "the other device's";
  const Tensor y = x * 3 + 1;
  // What others give to the stream comes behind it.
  float numbers[4] = {};
  ASSERT_EQ((of_driver<int(void*, unsigned long long, std::size_t, void*)>("cuMemcpyDtoHAsync_v2")(
                numbers, reinterpret_cast<unsigned long long>(y.data_ptr()), sizeof numbers, mine)),
            0);
  ASSERT_EQ(of_driver<int(void*)>("cuStreamSynchronize")(mine), 0);
  for (const float number : numbers) EXPECT_EQ(number, 7);
  cuda::use_stream(nullptr);
  EXPECT_EQ(cuda::stream(), own);
  ASSERT_EQ(of_driver<int(void*)>("cuStreamDestroy_v2")(mine), 0);
  EXPECT_TRUE(equal((y - 1).cpu(), full({4}, 6)));
}

TEST(CudaModule, MovesWithItsStatesAndIsSaved) {
  const cuda_jit::Network& network = *std::find_if(cuda_jit::networks().begin(), cuda_jit::networks().end(),
                                                   [](const auto& n) { return n.name == "mlp_train_adamw"; });
  const cuda_jit::Running moves = network.make(), stays = network.make();
  manual_seed(13);
  for (int step = 0; step < 6; ++step) {
    // To the device, to the other one, and back: the optimizer's states follow.
    const Device device = step < 2   ? Device("cpu")
                          : step < 4 ? Device("cuda:1")
                          : step < 5 ? Device("cuda:0")
                                     : Device();
    moves.move(device);
    std::vector<Tensor> inputs = network.inputs(), there;
    for (const Tensor& x : inputs) there.push_back(x.to(device));
    SCOPED_TRACE(step);
    expect_close(moves.call(there), stays.call(inputs));
  }
  moves.move("cuda");
  const std::string file = testing::TempDir() + "cuda_jit_" + std::to_string(getpid()) + ".safetensors";
  nn::save(moves.graph->state_dict(), file);
  const cuda_jit::Running restored = network.make();
  restored.move("cuda:1");
  restored.graph->load_state_dict(nn::load(file));
  std::filesystem::remove(file);
  std::vector<Tensor> inputs = network.inputs(), on_first, on_second;
  for (const Tensor& x : inputs) on_first.push_back(x.cuda(0)), on_second.push_back(x.cuda(1));
  const Tensor a = moves.call(on_first), b = restored.call(on_second);
  EXPECT_TRUE(equal(a.cpu(), b.cpu()));
}

struct Counted : nn::Graph<Counted> {
  nn::Linear layer = child("layer", nn::Linear(4, 4));
  Tensor build(Tensor x) { return layer(x) * full({4}, 2) + relu(x).sum(0); }
};

TEST(CudaGraph, TakesAnySizeThatItsSymbolsAllow) {
  Counted graph;
  graph.compile(spec({Dim("batch", 9), 4}, "x"));
  manual_seed(17);
  std::vector<Tensor> inputs, expected;
  for (const std::int64_t batch : {9, 3, 5, 3, 9, 5, 1}) {
    inputs.push_back(randn({batch, 4}));
    expected.push_back(graph(inputs.back()));
  }
  graph.layer.to("cuda");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    SCOPED_TRACE(i);
    expect_close(graph(inputs[i].cuda()), expected[i]);
  }
}

}  // namespace
}  // namespace graven
