#include "ir/ops/shared.h"

namespace graven::ir {

const OpDef kBinaryCrossEntropyBackward{
    .name = "binary_cross_entropy_backward",
    .doc =
        "dx = dy (x - t) / max(x (1 - x), 1e-12), the gradient of binary_cross_entropy, as PyTorch has it: 0 where x = "
        "t = 0 or 1.",
    .inputs = {{"dy"}, {"x"}, {"t"}},
    .scalar =
        [](ElementRule& e) {
          const Scalar x = e.x(), y = e.y(), z = e.z();
          return x * (y - z) / max(y * (1 - y), 1e-12);
        },
    .amp = AmpClass::black,
    .cases =
        [] {
          std::vector<TestCase> cases;
          const auto add = [&](std::string note, DType d, Shape dy, Shape x) {
            cases.push_back(
                {.note = std::move(note),
                 .inputs = {ops::random(d, std::move(dy)), ops::random(d, x, 0.05, 0.95), ops::random(d, x, 0, 1)},
                 .gradient = false});
          };
          add("matrix", DType::f32, {7, 5}, {7, 5});
          add("one gradient", DType::f32, {}, {7, 5});
          add("empty", DType::f32, {0}, {0});
          add("one", DType::f32, {1}, {1});
          for (DType d : ops::kFloats) add(std::string(name(d)), d, {3, 6}, {3, 6});
          return cases;
        },
};

}  // namespace graven::ir
