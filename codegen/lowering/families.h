// The tables of this folder, and what its files share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/call.h"
#include "ir/diagnostic.h"
#include "ir/ops.h"
#include "ir/ops/shared.h"

namespace graven::codegen::lowering {

using ir::Attribute;
using ir::Attributes;
using ir::ConfigField;
using ir::Dim;
using ir::Ints;
using ir::KernelCall;
using ir::NodeView;
using ir::Shape;
namespace ops = ir::ops;

/// An operator and what its nodes become.
struct Row {
  const ir::OpDef* op;
  KernelCall (*call)(const NodeView& node);
};

std::span<const Row> convolutions();
std::span<const Row> indexing();
std::span<const Row> losses();
std::span<const Row> movement();
std::span<const Row> norms();
std::span<const Row> pooling();
std::span<const Row> products();
std::span<const Row> random_numbers();
std::span<const Row> recurrent_layers();
std::span<const Row> reductions();
std::span<const Row> updates();

/// Of operators with a rule of elements: `elementwise` where every input has the output's shape, else `broadcast`;
/// dimensions that all operands share are merged.
KernelCall elementwise(const NodeView& node);
/// Of operators with a rule of updates (ir/update_rule.h), alone and fused with the gradient of a linear layer.
KernelCall update_parameters(const NodeView& node);
KernelCall linear_update(const NodeView& node);

/// Strides of a contiguous tensor, in elements.
std::vector<Dim> contiguous_strides(const Shape& shape);

}  // namespace graven::codegen::lowering
