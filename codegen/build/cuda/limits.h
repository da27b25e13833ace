// What a device reaches (kernels/cuda/limits.cuh), measured through the driver and NVRTC.
#pragma once

#include "ir/executable.h"

namespace graven::codegen::cuda {

/// UserError where the device is not there. Takes some milliseconds; the first time its kernel is compiled, or taken
/// from the cache.
ir::MachineLimits measure_device_limits(int device);

}  // namespace graven::codegen::cuda
