// Devices and their memory (ir/device.h).
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include <fmt/format.h>

#include "codegen/build/cuda/context.h"
#include "codegen/build/cuda/libraries.h"
#include "codegen/build/jit_cpu.h"
#include "cuda_host/cudnn.cuh"
#include "ir/data_error.h"
#include "ir/device.h"
#include "ir/diagnostic.h"

namespace graven::codegen::cuda {

namespace {

struct Known {
  std::recursive_mutex mutex;
  std::unique_ptr<kernels::CudaContext> context;
  /// By size: memory that nobody has any more. Whoever gets it uses it behind those who had it, on the one stream.
  std::multimap<std::size_t, void*> free;
};

std::atomic<bool> exiting{false};

/// For good: at the end of the process the driver may be gone before this would be.
Known& known(int device) {
  static std::mutex mutex;
  static auto* const all = [] {
    // Behind the driver's own static objects, which are there by now.
    (void)std::atexit([] { exiting = true; });
    return new std::map<int, Known>;
  }();
  const std::lock_guard lock(mutex);
  return (*all)[device];
}

int checked(int device) {
  ir::require_device({ir::Device::Kind::cuda, device});
  return device;
}

std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

void give_up(Known& own) {
  own.context->synchronize();
  for (const auto& [size, address] : own.free) (void)cudaFree(address);
  own.free.clear();
}

/// Memory of the current device: what was given back, or new. Where there is none, all that was given back goes first.
void* take(Known& own, std::size_t bytes) {
  if (const auto found = own.free.find(bytes); found != own.free.end()) {
    void* data = found->second;
    own.free.erase(found);
    return data;
  }
  void* data = nullptr;
  if (cudaMalloc(&data, bytes) == cudaSuccess) return data;
  give_up(own);
  if (cudaMalloc(&data, bytes) == cudaSuccess) return data;
  std::size_t free = 0, total = 0;
  GRAVEN_CUDA(cudaMemGetInfo(&free, &total));
  throw kernels::CudaOutOfMemory(
      fmt::format("out of memory: a tensor takes {} bytes, and {} of {} are free", bytes, free, total));
}

}  // namespace

bool is_exiting() { return exiting; }

std::shared_ptr<std::byte> allocate(int device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const Lease lease(device);
  void* const data = take(known(device), rounded(bytes));
  return {static_cast<std::byte*>(data), [device, bytes](std::byte* address) {
            Known& own = known(device);
            const std::lock_guard lock(own.mutex);
            own.free.emplace(rounded(bytes), address);
          }};
}

void make_room(int device, std::size_t bytes) {
  const Lease lease(device);
  std::size_t free = 0, total = 0;
  GRAVEN_CUDA(cudaMemGetInfo(&free, &total));
  if (free < bytes) give_up(known(device));
}

Lease::Lease(int device) : lock_(known(checked(device)).mutex), guard_(device) {
  Known& own = known(device);
  if (!own.context) {
    kernels::CudnnLibrary::open = cudnn;
    own.context = std::make_unique<kernels::CudaContext>();
    // Before anything is recorded: updates are to look at it.
    (void)own.context->library<kernels::CallFaults>();
  }
  context_ = own.context.get();
}

}  // namespace graven::codegen::cuda

namespace graven::ir {

using codegen::cuda::Lease;

namespace {

/// Runs `work` with the device's context; what fails is the user's to read.
template <class Work>
void on_device(const Device& device, const Work& work) {
  try {
    const Lease lease(device.index);
    work(lease.context());
  } catch (const kernels::CudaOutOfMemory& e) {
    throw UserError(fmt::format("{}: {}", device.to_string(), e.what()));
  } catch (const kernels::CudaError& e) {
    throw UserError(fmt::format("{}: {}", device.to_string(), e.what()));
  } catch (const kernels::index_error& e) {
    throw data_error(e.what());
  } catch (const kernels::value_error& e) {
    throw data_error(e.what());
  }
}

}  // namespace

int cuda_device_count() { return codegen::cuda::device_count(); }

std::string name_of_device(const Device& device) {
  if (device.is_cpu()) return codegen::processor_name();
  return device.index < cuda_device_count() ? codegen::cuda::name_of(device.index) : std::string();
}
std::string product_library(const Device& device) {
  return device.is_cpu() ? std::string() : codegen::cuda::library_versions();
}

void require_device(const Device& device) {
  if (device.is_cpu()) return;
  if (const std::string& why = codegen::cuda::why_no_device(); !why.empty())
    throw UserError(fmt::format("{}: {}", device.to_string(), why));
  if (const int count = codegen::cuda::device_count(); device.index < 0 || device.index >= count)
    throw UserError(fmt::format("{}: no such device, this machine has {}", device.to_string(),
                                count == 1 ? "cuda:0 alone" : fmt::format("cuda:0 to cuda:{}", count - 1)));
}

std::shared_ptr<std::byte> allocate_on_device(const Device& device, std::size_t bytes) {
  std::shared_ptr<std::byte> memory;
  on_device(device, [&](kernels::CudaContext&) { memory = codegen::cuda::allocate(device.index, bytes); });
  return memory;
}

namespace {

/// A number, as an argument of what is given to the stream: nobody waits for it.
bool is_set(kernels::CudaContext& context, std::byte* to, const std::byte* from, std::size_t bytes) {
  const codegen::cuda::Driver& driver = codegen::cuda::driver();
  const auto address = reinterpret_cast<codegen::cuda::DevicePointer>(to);
  const auto check = [](codegen::cuda::Result result) { GRAVEN_CUDA(static_cast<cudaError_t>(result)); };
  if (bytes == 1) {
    check(driver.set_bytes(address, static_cast<unsigned char>(*from), 1, context.stream()));
    return true;
  }
  if (bytes != 4 && bytes != 8) return false;
  for (std::size_t at = 0; at < bytes; at += 4) {
    std::uint32_t word;
    std::memcpy(&word, from + at, sizeof word);
    check(driver.set_words(address + at, word, 1, context.stream()));
  }
  return true;
}

}  // namespace

void copy_to_device(const Device& device, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  on_device(device, [&](kernels::CudaContext& context) {
    if (is_set(context, to, from, bytes)) return;
    GRAVEN_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, context.stream()));
    context.synchronize();
  });
}
void copy_to_host(const Device& device, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  on_device(device, [&](kernels::CudaContext& context) {
    GRAVEN_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, context.stream()));
    kernels::finish_calls(context);
  });
}
void copy_on_device(const Device& device, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  on_device(device, [&](kernels::CudaContext& context) {
    GRAVEN_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, context.stream()));
  });
}
void clear_on_device(const Device& device, std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  on_device(device,
            [&](kernels::CudaContext& context) { GRAVEN_CUDA(cudaMemsetAsync(data, 0, bytes, context.stream())); });
}
void synchronize_device(const Device& device) {
  if (!device.is_cpu()) on_device(device, [](kernels::CudaContext& context) { kernels::finish_calls(context); });
}

void* stream_of_device(const Device& device) {
  void* stream = nullptr;
  on_device(device, [&](kernels::CudaContext& context) { stream = context.stream(); });
  return stream;
}
void use_stream_on_device(const Device& device, void* stream) {
  on_device(device, [&](kernels::CudaContext& context) { context.use_stream(static_cast<cudaStream_t>(stream)); });
}

}  // namespace graven::ir
