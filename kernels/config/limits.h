// What a machine reaches, measured: the limits with which FLOPs and bytes of calls are compared.
#pragma once

namespace graven::kernels {

/// A second, of all threads together, or of the device.
struct machine_limits {
  double flops;  ///< f32 multiply-adds that never leave the registers, counted as two
  double bytes;  ///< copying more than the caches hold: read, and written
};

}  // namespace graven::kernels
