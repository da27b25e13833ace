// Where tensors lie: in the host's memory, or on a CUDA device.
//
//   const Device device = cuda::is_available() ? Device("cuda") : Device("cpu");
//   Net net;
//   net.to(device);
//   Tensor y = graph(x.to(device));   // runs there; y stays there until it is printed, or y.item(), y.cpu()
//
// NVIDIA's driver, NVRTC and cuBLASLt are opened when a device is first asked for; a program runs with and without
// them.
#pragma once

#include "ir/device.h"

namespace graven {

/// Device("cpu"), Device("cuda"), which is cuda:0, or Device("cuda:1"); any other text is a user error.
using ir::Device;

namespace cuda {

/// Whether there is a device and a driver for it.
bool is_available();
/// 0 where there is no driver.
int device_count();
/// Waits for all that the device was given. User error where there is none.
void synchronize(int device = 0);
/// The cudaStream_t that everything is given to, in the order of the calls: other code's work on a tensor's data_ptr()
/// goes there, too, or waits for an event in it.
void* stream(int device = 0);
/// Has everything go to a cudaStream_t of the caller's from now on, made on that device and kept for as long; nullptr:
/// back to Graven's own. Waits for what was given before. User error where there is no such device.
void use_stream(void* stream, int device = 0);

/// Whether products and convolutions of f32 on a device may round what they multiply to TF32, 10 bits behind the point,
/// and add up in f32: several times as fast where it has units for it, three digits instead of seven. Off unless asked
/// for, as PyTorch's torch.backends.cuda.matmul.allow_tf32; convolutions, too (PyTorch has a switch of their own for
/// these, which is on). A gradient is computed as its operator was. Graphs take what holds when they are recorded,
/// unless nn::GraphBase::allow_tf32 says it. Depthwise convolutions, recurrent cells and processors do not round.
void allow_tf32(bool on = true);
bool allows_tf32();

}  // namespace cuda

}  // namespace graven
