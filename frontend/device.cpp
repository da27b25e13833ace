#include "graven/device.h"

namespace graven::cuda {

bool is_available() { return device_count() > 0; }
int device_count() { return ir::cuda_device_count(); }
void synchronize(int device) {
  ir::require_device({Device::Kind::cuda, device});
  ir::synchronize_device({Device::Kind::cuda, device});
}

}  // namespace graven::cuda
