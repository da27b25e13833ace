#include "graven/device.h"

#include <atomic>

namespace graven::cuda {

bool is_available() { return device_count() > 0; }
int device_count() { return ir::cuda_device_count(); }

namespace {
Device checked(int index) {
  const Device device(Device::Kind::cuda, index);
  ir::require_device(device);
  return device;
}
}  // namespace

void synchronize(int device) { ir::synchronize_device(checked(device)); }
void* stream(int device) { return ir::stream_of_device(checked(device)); }
void use_stream(void* stream, int device) { ir::use_stream_on_device(checked(device), stream); }

namespace {
std::atomic<bool> tf32_is_allowed = false;
}
void allow_tf32(bool on) { tf32_is_allowed = on; }
bool allows_tf32() { return tf32_is_allowed; }

}  // namespace graven::cuda
