// Compiled as kernels are: what eager mode computes in f32 for half types is converted before and after.
#include "frontend/eager/convert_halves.h"

#include "kernels/cpu/dtype.h"

namespace graven::eager {

namespace {

template <class From, class To>
void convert(const void* source, void* target, std::int64_t n) {
  const From* const from = static_cast<const From*>(source);
  To* const to = static_cast<To*>(target);
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

}  // namespace

bool convert_halves(ir::DType from, const void* source, ir::DType to, void* target, std::int64_t n) {
  using ir::DType;
  if (from == DType::f32 && to == DType::f16)
    convert<float, kernels::half>(source, target, n);
  else if (from == DType::f32 && to == DType::bf16)
    convert<float, kernels::bfloat16>(source, target, n);
  else if (from == DType::f16 && to == DType::f32)
    convert<kernels::half, float>(source, target, n);
  else if (from == DType::bf16 && to == DType::f32)
    convert<kernels::bfloat16, float>(source, target, n);
  else
    return false;
  return true;
}

}  // namespace graven::eager
