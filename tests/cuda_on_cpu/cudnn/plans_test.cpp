// The real cuDNN, where it is installed: it makes plans for a device of which it is told the properties, and which need
// not be there. That there is a plan for every convolution of the networks' kinds, one that adds up in float and in the
// same order each time, is known without a GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cuda/cudnn.cuh"

namespace graven::kernels {
namespace {

/// As cuDNN writes down the properties of a device: what an NVIDIA H200 and an A100 have.
std::string properties(const std::string& name, int architecture, int processors, int shared_bytes, int cache_bytes) {
  return R"({"deviceName":")" + name +
         R"(","maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
         R"("multiProcessorCount":)" +
         std::to_string(processors) +
         R"(,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":)" +
         std::to_string(shared_bytes) +
         R"(,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
         R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)"
         R"("totalGlobalMem":80000000000,"smClockRateKHz":1500000,"memClockRateKHz":2000000,"l2CacheSize":)" +
         std::to_string(cache_bytes) + R"(,"cudaDeviceId":0,"deviceVer":)" + std::to_string(architecture) +
         R"(,"driverVer":13000})";
}

struct Shape {
  const char* name;
  std::int64_t batch, size, in, out, kernel, stride, padding, groups;
};
constexpr Shape kShapes[] = {
    {"ResNet-50's first layer", 64, 224, 3, 64, 7, 2, 3, 1},
    {"ResNet-50's 3x3", 64, 56, 64, 64, 3, 1, 1, 1},
    {"ResNet-50's 3x3, every other pixel", 64, 56, 128, 128, 3, 2, 1, 1},
    {"ResNet-50's shortcut", 64, 56, 256, 512, 1, 2, 0, 1},
    {"ResNet-50's last 3x3", 1, 7, 512, 512, 3, 1, 1, 1},
    {"MobileNetV2's first layer", 32, 224, 3, 32, 3, 2, 1, 1},
    {"MobileNetV2's depthwise", 32, 112, 96, 96, 3, 2, 1, 96},
    {"ResNeXt's groups", 16, 56, 128, 128, 3, 1, 1, 32},
    {"the style network's 9x9", 1, 256, 3, 32, 9, 1, 4, 1},
    {"LeNet's", 64, 28, 1, 6, 5, 1, 2, 1},
    {"odd channels", 3, 17, 5, 7, 3, 1, 1, 1},
};

TEST(CudnnPlans, ThereIsOneForEveryConvolution) {
  CudnnLibrary::open = [](std::string& why) {
    void* library = nullptr;
    for (const char* name : {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9"})
      if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) why = ::dlerror();
    return library;
  };
  const CudnnLibrary* const library = CudnnLibrary::find();
  if (library == nullptr) GTEST_SKIP() << CudnnLibrary::why();
  using A = CudnnLibrary::Attribute;
  int made = 0;
  for (const std::string& device : {properties("NVIDIA H200", 900, 132, 232448, 62914560),
                                    properties("NVIDIA A100-SXM4-80GB", 800, 108, 166912, 41943040)}) {
    SCOPED_TRACE(device);
    const CudnnDescriptor of(*library, CudnnLibrary::Made::device_properties);
    of.set(A::device_properties_json, CudnnLibrary::Type::character, std::vector<char>(device.begin(), device.end()));
    of.finalize();
    for (const Shape& s : kShapes)
      for (const auto type : {CudnnLibrary::float32, CudnnLibrary::float16, CudnnLibrary::bfloat16})
        for (const auto result : {CudnnResult::y, CudnnResult::dx, CudnnResult::dw})
          for (const bool fuses : {false, true}) {
            if (fuses && result != CudnnResult::y) continue;
            SCOPED_TRACE(std::string(s.name) + ", type " + std::to_string(type) + ", result " +
                         std::to_string(static_cast<int>(result)) + (fuses ? ", with bias and ReLU" : ""));
            const std::int64_t out = conv2d_out_size(s.size, s.kernel, s.stride, s.padding, 1);
            const CudnnGraph graph(*library, nullptr,
                                   {.result = result,
                                    .shape = {.batch = s.batch,
                                              .in_height = s.size,
                                              .in_width = s.size,
                                              .in_channels = s.in,
                                              .out_height = out,
                                              .out_width = out,
                                              .out_channels = s.out,
                                              .kernel_height = s.kernel,
                                              .kernel_width = s.kernel,
                                              .stride_height = s.stride,
                                              .stride_width = s.stride,
                                              .padding_height = s.padding,
                                              .padding_width = s.padding,
                                              .groups = s.groups},
                                    .type = type,
                                    .adds_bias = fuses,
                                    .applies_relu = fuses});
            const auto plans = graph.plans(1, &of);
            ASSERT_EQ(plans.size(), 1u);
            EXPECT_LE(plans[0].workspace_bytes, CudnnGraph::kMostWorkspaceBytes);
            ++made;
          }
  }
  EXPECT_EQ(made, 2 * 11 * 3 * 4);
  // And the arguments of a call, which nobody makes.
  const CudnnDescriptor arguments(*library, CudnnLibrary::Made::arguments);
  static float number = 0;
  arguments.set(A::arguments_ids, CudnnLibrary::Type::int64, std::vector<std::int64_t>{1, 2, 3});
  arguments.set(A::arguments_pointers, CudnnLibrary::Type::pointer, std::vector<const void*>(3, &number));
  arguments.set(A::arguments_workspace, CudnnLibrary::Type::pointer, std::vector<const void*>{&number});
  EXPECT_NO_THROW(arguments.finalize());
}

}  // namespace
}  // namespace graven::kernels
