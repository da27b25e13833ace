// Layers and losses, by family, with PyTorch's names, defaults, shapes and initialisation.
//
//   nn::Conv2d(1, 6, 5, {.padding = 2})        // weight f32[6,1,5,5], bias f32[6], both uniform in +-1/sqrt(fan_in)
//   nn::Linear(400, 120, {.bias = false})
//   nn::CrossEntropyLoss()(logits, labels)
#pragma once

#include "graven/layers/activations.h"    // IWYU pragma: export
#include "graven/layers/containers.h"     // IWYU pragma: export
#include "graven/layers/convolution.h"    // IWYU pragma: export
#include "graven/layers/distances.h"      // IWYU pragma: export
#include "graven/layers/indexing.h"       // IWYU pragma: export
#include "graven/layers/losses.h"         // IWYU pragma: export
#include "graven/layers/normalization.h"  // IWYU pragma: export
#include "graven/layers/padding.h"        // IWYU pragma: export
#include "graven/layers/pooling.h"        // IWYU pragma: export
#include "graven/layers/products.h"       // IWYU pragma: export
#include "graven/layers/random.h"         // IWYU pragma: export
#include "graven/layers/sequence.h"       // IWYU pragma: export
#include "graven/layers/shapes.h"         // IWYU pragma: export
#include "graven/layers/transformer.h"    // IWYU pragma: export
#include "graven/layers/upsampling.h"     // IWYU pragma: export
