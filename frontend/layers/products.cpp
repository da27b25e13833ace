#include "graven/layers/products.h"

#include <cmath>

#include "frontend/layers/arguments.h"
#include "graven/functional.h"

namespace graven::nn {

using arguments::default_bias;
using arguments::default_weight;
using arguments::python;
using arguments::require_positive;

Linear::Linear(std::int64_t in_features, std::int64_t out_features, LinearOptions options) {
  require_positive(in_features, "in_features", "Linear");
  require_positive(out_features, "out_features", "Linear");
  weight = parameter("weight", default_weight({out_features, in_features}, options.dtype));
  if (options.bias) bias = parameter("bias", default_bias(out_features, weight));
  set_arguments(
      fmt::format("in_features={}, out_features={}, bias={}", in_features, out_features, python(options.bias)));
}
Tensor Linear::forward(Tensor x) { return linear(Operand(x, call_location()), weight, bias); }

Bilinear::Bilinear(std::int64_t in1_features, std::int64_t in2_features, std::int64_t out_features,
                   BilinearOptions options) {
  require_positive(in1_features, "in1_features", "Bilinear");
  require_positive(in2_features, "in2_features", "Bilinear");
  require_positive(out_features, "out_features", "Bilinear");
  const double bound = 1 / std::sqrt(static_cast<double>(in1_features));
  weight = parameter("weight",
                     init::uniform_(zeros({out_features, in1_features, in2_features}, options.dtype), -bound, bound));
  if (options.bias) bias = parameter("bias", init::uniform_(zeros({out_features}, options.dtype), -bound, bound));
  set_arguments(fmt::format("in1_features={}, in2_features={}, out_features={}, bias={}", in1_features, in2_features,
                            out_features, python(options.bias)));
}
Tensor Bilinear::forward(Tensor x1, Tensor x2) {
  return bilinear(Operand(x1, call_location()), Operand(x2, call_location()), weight, bias);
}

}  // namespace graven::nn
