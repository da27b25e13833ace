// Uses of kernels and of what stands around them, by name, with a fault of planted_faults_test.cpp in their text:
//
//   planted 3 softmax
//
// Fault 0 is none. Prints "as expected", or what it found.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/config/conv2d.h"
#include "kernels/cuda/clip_factor.cuh"
#include "kernels/cuda/conv2d_cudnn.cuh"
#include "kernels/cuda/convert_layout.cuh"
#include "kernels/cuda/cublas_lt.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/event_clock.cuh"
#include "kernels/cuda/nccl.cuh"
#include "kernels/cuda/softmax.cuh"

int planted_fault = 0;

namespace graven::kernels {
namespace {

/// Counts up from 1, on the device.
std::vector<float> counted(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i + 1);
  return values;
}
class OnDevice {
 public:
  explicit OnDevice(std::size_t n) : n_(n), buffer_(n * sizeof(float)) {
    const std::vector<float> values = counted(n);
    GRAVEN_CUDA(cudaMemcpy(data(), values.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    GRAVEN_CUDA(cudaDeviceSynchronize());
  }
  float* data() const { return static_cast<float*>(buffer_.data()); }
  std::vector<float> host() const {
    std::vector<float> values(n_);
    GRAVEN_CUDA(cudaDeviceSynchronize());
    GRAVEN_CUDA(cudaMemcpy(values.data(), data(), n_ * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t n_;
  DeviceBuffer buffer_;
};

void expect(const char* what, double got, double expected) {
  if (std::abs(got - expected) <= 1e-5 * std::abs(expected) + 1e-30) return;
  throw std::runtime_error(std::string(what) + " is " + (std::isnan(got) ? "NaN" : std::to_string(got)) + ", and not " +
                           std::to_string(expected));
}

void use_fill() {
  CudaContext context;
  const OnDevice y(2050);
  fill(context, fill_config{.n = 2050, .value = 3}, y.data());
  context.synchronize();
  for (const float value : y.host()) expect("an element", value, 3);
}
void use_copy() {
  CudaContext context;
  const OnDevice to(8), from(8);
  copy_on_device(context, to.data(), from.data() + 4, 4 * sizeof(float));
  context.synchronize();
  expect("a copy", to.host()[0], 5);
}
void use_softmax(std::int64_t outer, std::int64_t size, std::int64_t inner, std::size_t offset) {
  CudaContext context;
  const auto n = static_cast<std::size_t>(outer * size * inner);
  const OnDevice x(n + offset), y(n + offset);
  softmax(context, softmax_config{.outer = outer, .size = size, .inner = inner}, y.data() + offset, x.data() + offset);
  context.synchronize();
  const std::vector<float> got = y.host(), from = counted(n);
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) sum += std::exp(static_cast<double>((i - (size - 1)) * inner));
  for (std::size_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::int64_t>(i) / inner % size;
    expect("a softmax", got[i + offset], std::exp(static_cast<double>((at - (size - 1)) * inner)) / sum);
  }
}
void use_clip_factor() {
  CudaContext context;
  const OnDevice x(3000), factor(1);
  const float* const tensors[] = {x.data()};
  const std::int64_t sizes[] = {3000};
  clip_factor(context, clip_factor_config{.max_norm = 1, .norm_type = 1}, factor.data(), 1, tensors, sizes);
  context.synchronize();
  expect("a factor", factor.host()[0], 1 / (3000.0 * 3001 / 2 + 1e-6));
}
void use_product(std::int64_t batch, std::size_t offset, bool with_bias, bool measured) {
  CudaContext context;
  cuda_on_cpu::set_algorithms({3, 1});
  const ProductScope scope(context, conv2d_config{.measured = measured});
  const std::int64_t m = 3, n = 5, k = 4;
  const OnDevice a(static_cast<std::size_t>(batch * m * k) + offset), b(static_cast<std::size_t>(batch * n * k)),
      c(static_cast<std::size_t>(batch * m * n)), bias(5);
  matrix_product_shape shape{.batch = batch, .m = m, .n = n, .k = k, .transpose_b = true};
  shape.a_stride = m * k, shape.b_stride = n * k, shape.c_stride = m * n;
  matrix_product(context, shape, c.data(), a.data() + offset, b.data(),
                 with_bias ? fused_epilogue::bias : fused_epilogue::none, with_bias ? bias.data() : nullptr);
  context.synchronize();
  double sum = with_bias ? 5 : 0;  // the last element
  for (std::int64_t i = 0; i < k; ++i)
    sum += static_cast<double>(((batch * m - 1) * k + i + 1) + static_cast<std::int64_t>(offset)) *
           static_cast<double>((batch * n - 1) * k + i + 1);
  expect("a product", c.host()[static_cast<std::size_t>(batch * m * n - 1)], sum);
}
/// A convolution of 3x3 in TF32, which has every number here as it is.
void use_convolution(std::size_t offset) {
  CudaContext context;
  const conv2d_config config{.batch = 1,
                             .in_height = 4,
                             .in_width = 4,
                             .in_channels = 4,
                             .out_height = 4,
                             .out_width = 4,
                             .out_channels = 5,
                             .kernel_height = 3,
                             .kernel_width = 3,
                             .padding_height = 1,
                             .padding_width = 1,
                             .tf32 = true};
  const OnDevice x(64 + offset), w(180), y(80), bias(5);
  if (!conv2d_by_cudnn<identity>(context, config, y.data(), x.data() + offset, w.data(), bias.data(), nullptr))
    throw std::runtime_error("there is no plan");
  context.synchronize();
  double sum = 5;  // the last pixel's last channel: it sees two by two pixels
  for (int line = 0; line < 2; ++line)
    for (int column = 0; column < 2; ++column)
      for (int channel = 0; channel < 4; ++channel)
        sum += (((2 + line) * 4 + 2 + column) * 4 + channel + 1.0 + static_cast<double>(offset)) *
               ((4 * 4 + channel) * 9 + line * 3 + column + 1.0);
  expect("a convolution", y.host()[79], sum);
}
void use_clock() {
  CudaContext context;
  const OnDevice y(64);
  EventClock clock(context);
  const auto begin = clock.now();
  fill(context, fill_config{.n = 64, .value = 3}, y.data());
  const auto end = clock.now();
  clock.finish();
  if (clock.between(begin, end) < 0) throw std::runtime_error("time goes backwards");
}
/// A copy that is recorded, and given again with other numbers.
void use_recorded_copy() {
  CudaDevice device(0);
  const CudaDevice::PinnedMemory from(4 * sizeof(float));
  const OnDevice to(4);
  const cudaStream_t stream = device.execution().stream();
  GRAVEN_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  device.upload(to.data(), reinterpret_cast<const float*>(from.data()), 4);
  cudaGraph_t graph = nullptr;
  GRAVEN_CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr;
  GRAVEN_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  const float number = 7;
  std::memcpy(from.data() + 12, &number, sizeof number);
  GRAVEN_CUDA(cudaGraphLaunch(executable, stream));
  device.synchronize();
  expect("a number", to.host()[3], 7);
  GRAVEN_CUDA(cudaGraphExecDestroy(executable));
  GRAVEN_CUDA(cudaGraphDestroy(graph));
}

int pipe_of_ranks[2], rank_of_process;
void broadcast_by_pipe(void* data, std::size_t bytes) {
  const ssize_t moved =
      rank_of_process == 0 ? ::write(pipe_of_ranks[1], data, bytes) : ::read(pipe_of_ranks[0], data, bytes);
  if (moved != static_cast<ssize_t>(bytes)) throw std::runtime_error("the pipe is broken");
}
/// The same on two ranks, this process and another.
void on_two_ranks(int row, const std::function<void(CudaContext&, NcclRanks&)>& use,
                  const std::vector<NcclStages::Link>& links = {}) {
  if (::pipe(pipe_of_ranks) != 0) throw std::runtime_error("no pipe");
  std::fflush(stdout);
  const pid_t other = ::fork();
  rank_of_process = other == 0 ? 1 : 0;
  const auto run = [&] {
    CudaContext context;
    NcclRanks ranks(context,
                    {.rank = rank_of_process,
                     .size = 2,
                     .row = row,
                     .broadcast = broadcast_by_pipe,
                     .require_others =
                         [](double seconds) {
                           if (seconds > 3) throw std::runtime_error("the other rank does not come");
                         }},
                    links);
    use(context, ranks);
  };
  if (other == 0) {
    try {
      run();
      std::_Exit(0);
    } catch (const std::exception& error) {
      std::printf("%s\n", error.what());
      std::fflush(stdout);
      std::_Exit(1);
    }
  }
  std::string said;
  try {
    run();
  } catch (const std::exception& error) {
    said = error.what();
  }
  int status = 0;
  (void)::waitpid(other, &status, 0);
  for (const int end : pipe_of_ranks) ::close(end);
  if (!said.empty() || status != 0) throw std::runtime_error(said.empty() ? "the other rank fails" : said);
}
/// Terms that both have alike, as rank 0 has every second group of four of their sum; and what a rank has of that for
/// both.
void use_layouts() {
  on_two_ranks(2, [](CudaContext& context, NcclRanks&) {
    constexpr std::int64_t n = 64;
    const OnDevice x(n), part(n / 2), whole(n);
    convert_layout(context, convert_layout_config{.n = n, .ranks = 2, .from = -1, .to = 4}, part.data(), x.data());
    convert_layout(context, convert_layout_config{.n = n, .ranks = 2, .from = 4, .to = 0}, whole.data(), part.data());
    context.synchronize();
    for (std::size_t i = 0; i < n / 2; ++i)
      expect("a sum", part.host()[i], 2.0 * static_cast<double>(i / 4 * 8 + i % 4 + 1) + 8.0 * rank_of_process);
    for (std::size_t i = 0; i < n; ++i) expect("a sum for all", whole.host()[i], 2.0 * static_cast<double>(i + 1));
  });
}
void use_means() {
  on_two_ranks(1, [](CudaContext& context, NcclRanks& ranks) {
    const OnDevice x(64), y(64);
    fill(context, fill_config{.n = 64, .value = 1.0 + 2 * rank_of_process}, x.data());
    ranks.begin_part(true);
    context.collectives()->start_mean(x.data(), 64);
    ranks.finish();
    copy_on_device(context, y.data(), x.data(), 64 * sizeof(float));
    context.synchronize();
    for (const float value : y.host()) expect("a mean", value, 2);
  });
}
/// A value from the first stage to the second, whose memory both use before and behind it.
void use_stages() {
  // The second rank says what it finds, and a wait for all of a device does not end without it.
  std::signal(SIGCHLD, [](int) {
    siginfo_t end{};
    if (::waitid(P_ALL, 0, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_status != 0) std::_Exit(1);
  });
  const auto use = [](CudaContext& context, NcclRanks& ranks, bool all_streams) {
    const OnDevice x(64), y(64);
    const auto set = [&](float value) { fill(context, fill_config{.n = 64, .value = value}, x.data()); };
    if (rank_of_process == 0) {
      set(5);
      ranks.stages().send(0, 1, x.data(), 64 * sizeof(float));
      ranks.stages().finish_sending(0);
      set(-1);
    } else {
      set(7);
      ranks.stages().receive(0, x.data(), 64 * sizeof(float));
      ranks.stages().finish_receiving();
      copy_on_device(context, y.data(), x.data(), 64 * sizeof(float));
    }
    if (!all_streams)
      context.synchronize();
    else if (rank_of_process == 1)
      ::usleep(300'000);  // what is received is there, and comes as soon as anything does
    if (rank_of_process == 1)
      for (const float value : y.host()) expect("a value", value, 5);
    GRAVEN_CUDA(cudaDeviceSynchronize());
  };
  on_two_ranks(2,
               [&](CudaContext& context, NcclRanks& ranks) {
                 for (const bool all_streams : {false, true}) use(context, ranks, all_streams);
               },
               {{.from = 0, .to = 1}});
  std::signal(SIGCHLD, SIG_DFL);
}

const std::map<std::string, std::function<void()>> kUses = {
    {"fill", use_fill},
    {"copy", use_copy},
    {"softmax of rows", [] { use_softmax(5, 300, 1, 0); }},
    {"softmax of rows that lie anywhere", [] { use_softmax(5, 300, 1, 1); }},
    {"softmax of columns", [] { use_softmax(2, 40, 5, 0); }},
    {"clip_factor", use_clip_factor},
    {"product", [] { use_product(1, 0, false, false); }},
    {"product of a batch", [] { use_product(3, 0, false, false); }},
    {"product with a bias", [] { use_product(1, 0, true, false); }},
    {"product of matrices that lie anywhere",
     [] {
       use_product(1, 0, false, false);
       use_product(1, 1, false, false);
     }},
    {"measured product", [] { use_product(1, 0, false, true); }},
    {"convolution", [] { use_convolution(0); }},
    {"convolution of an image that lies anywhere", [] { use_convolution(1); }},
    {"clock", use_clock},
    {"recorded copy", use_recorded_copy},
    {"layouts of two ranks", use_layouts},
    {"means of two ranks", use_means},
    {"stages of two ranks", use_stages},
};

}  // namespace
}  // namespace graven::kernels

int main(int count, char** arguments) {
  planted_fault = count > 1 ? std::atoi(arguments[1]) : 0;
  try {
    for (const auto& [name, use] : graven::kernels::kUses)
      if (count < 3 || name == arguments[2]) use();
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  std::printf("as expected\n");
}
