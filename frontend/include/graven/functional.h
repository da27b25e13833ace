// Functions on tensors, by family. Each takes its first tensor as an Operand, which knows the line that called it.
//
//   Tensor y = relu(linear(x, weight, bias));
//   Tensor loss = cross_entropy(logits, labels);
#pragma once

#include "graven/functional/activations.h"    // IWYU pragma: export
#include "graven/functional/convolution.h"    // IWYU pragma: export
#include "graven/functional/distances.h"      // IWYU pragma: export
#include "graven/functional/indexing.h"       // IWYU pragma: export
#include "graven/functional/linalg.h"         // IWYU pragma: export
#include "graven/functional/losses.h"         // IWYU pragma: export
#include "graven/functional/normalization.h"  // IWYU pragma: export
#include "graven/functional/padding.h"        // IWYU pragma: export
#include "graven/functional/pointwise.h"      // IWYU pragma: export
#include "graven/functional/pooling.h"        // IWYU pragma: export
#include "graven/functional/products.h"       // IWYU pragma: export
#include "graven/functional/random.h"         // IWYU pragma: export
#include "graven/functional/reductions.h"     // IWYU pragma: export
#include "graven/functional/sequence.h"       // IWYU pragma: export
#include "graven/functional/shapes.h"         // IWYU pragma: export
#include "graven/functional/sizes.h"          // IWYU pragma: export
#include "graven/functional/upsampling.h"     // IWYU pragma: export
#include "graven/functional/windows.h"        // IWYU pragma: export
