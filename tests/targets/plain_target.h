// A target that only these tests have: every kernel is a plain loop of kernels/reference, on one thread, without SIMD.
// It shows what a target is made of, and that the house needs no edit for another one.
#pragma once

#include "codegen/targets/target.h"

namespace graven::tests {

const codegen::Target& plain_target();

}  // namespace graven::tests
