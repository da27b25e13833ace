#include "graven/device.h"

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

void allow_tf32(bool on) { ir::allow_tf32(on); }
bool allows_tf32() { return ir::allows_tf32(); }

}  // namespace graven::cuda
