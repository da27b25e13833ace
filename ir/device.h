// Where a tensor's memory is, and the memory of devices: the seam between the frontend, whose tensors have such memory,
// and codegen/build, which opens a device's driver when one is first asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>

namespace graven::ir {

/// The host's memory, or a CUDA device's.
struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;  ///< of the device; 0 of the host

  Device() = default;
  Device(Kind kind, int index) : kind(kind), index(index) {}
  /// "cpu", "cuda", which is cuda:0, or "cuda:1". User error for any other text. Whether there is such a device is
  /// found when it is used.
  Device(std::string_view name);                                       // NOLINT: implicit, so that x.to("cuda") works
  Device(const char* name) : Device(std::string_view(name)) {}         // NOLINT
  Device(const std::string& name) : Device(std::string_view(name)) {}  // NOLINT

  bool is_cpu() const { return kind == Kind::cpu; }
  /// "cpu", "cuda:0".
  std::string to_string() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(index); }
  friend std::ostream& operator<<(std::ostream& out, const Device& device);
  friend bool operator==(const Device&, const Device&) = default;
};

/// How many CUDA devices this machine has; 0 where there is no driver. Defined in codegen/build, as is the rest.
int cuda_device_count();
/// UserError, one line that says what to do, where the device is not there.
void require_device(const Device& device);
/// What it is called: "Intel(R) Xeon(R) CPU, 2 processors", "NVIDIA H200, sm_90"; empty where it is not there.
std::string name_of_device(const Device& device);
/// What computes products and convolutions there: "cuBLASLt 130100, cuDNN 91900"; empty on the host, whose kernels are
/// Graven's.
std::string product_library(const Device& device);

/// Memory of a CUDA device, 256-byte aligned; it is given back when the last owner is gone. UserError where it is not
/// to be had.
std::shared_ptr<std::byte> allocate_on_device(const Device& device, std::size_t bytes);

// Copies, each behind all that the device was given before. The host's side has been read, or is there, when they
// return. A number (1, 4 or 8 bytes) is sent to a device without waiting for it. What the host waits for is a UserError
// where a call before found a number in its data out of range: its layer, its line, the number and its position.
void copy_to_device(const Device& device, std::byte* to, const std::byte* from, std::size_t bytes);
void copy_to_host(const Device& device, std::byte* to, const std::byte* from, std::size_t bytes);
/// Within the device; the copy is in its order when this returns.
void copy_on_device(const Device& device, std::byte* to, const std::byte* from, std::size_t bytes);
void clear_on_device(const Device& device, std::byte* data, std::size_t bytes);
/// Waits for all that the device was given. UserError as for copies to the host.
void synchronize_device(const Device& device);
/// The cudaStream_t that work is given to.
void* stream_of_device(const Device& device);
/// Has work go to a stream of the caller's, a cudaStream_t that is kept for as long; nullptr: to the device's own.
/// Waits for what was given before.
void use_stream_on_device(const Device& device, void* stream);

/// Whether operators that run by themselves on devices, and graphs that say nothing of it, may round what products
/// multiply to TF32 (kAllowTf32).
void allow_tf32(bool on);
bool allows_tf32();

}  // namespace graven::ir
