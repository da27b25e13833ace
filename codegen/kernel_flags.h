// What the fast kernels are compiled with, everywhere: in emitted projects, just in time, in the table of eager mode,
// in the tests and benchmarks of kernels. CMake reads these lines too (cmake/kernel_flags.cmake). -march comes on top.
//
// g++: what of -O3 the kernels need. They are written in vectors and say what is to be unrolled; with all of -O3 they
// are as fast, twice as large, and take half as long again to compile. -funswitch-loops: a loop that asks at each
// element whether this is the first step becomes two loops, each of them vectorised.
//
// -ffp-contract=off: a product and a sum are one instruction where a kernel says fma() (kernels/cpu/level.h), and
// nowhere else. So compilers agree.
#pragma once

namespace graven::codegen {

inline constexpr const char* kKernelFlagsOfGnu =
    "-O2 -fvect-cost-model=dynamic -fpeel-loops -funswitch-loops -fno-math-errno -fno-trapping-math -ffp-contract=off";
inline constexpr const char* kKernelFlags = "-O3 -fno-math-errno -fno-trapping-math -ffp-contract=off";

}  // namespace graven::codegen
