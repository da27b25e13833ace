// CPU: a convolution's image may be so small that some taps of the kernel only ever meet its padding: of 3 x 3 taps
// over one pixel, eight. Such a convolution becomes one with the part of the kernel that meets the image. The weight is
// cut before it is used, and its gradient comes back with zeros around it, instead of all of it being packed, summed
// and unpacked: the last layers of deep networks, which have the largest weights, see the smallest images.
#include <algorithm>
#include <optional>

#include "ir/passes/passes.h"
#include "ir/passes/rewriter.h"
#include "kernels/config/conv2d.h"

namespace graven::ir {

namespace {

/// Taps [first, last] of one dimension.
struct Taps {
  std::int64_t first, last, padding;
  std::int64_t count() const { return last - first + 1; }
};

/// The taps that meet the image somewhere; nothing where a kernel of these taps alone would not have the same outputs.
std::optional<Taps> meeting(std::int64_t in, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                            std::int64_t dilation) {
  const std::int64_t out = kernels::conv2d_out_size(in, kernel, stride, padding, dilation);
  Taps taps{kernel, -1, 0};
  for (std::int64_t tap = 0; tap < kernel; ++tap) {
    const std::int64_t before = padding - tap * dilation;  // how far this tap's first place lies before the image
    const std::int64_t first_inside = before <= 0 ? 0 : (before + stride - 1) / stride;
    if (first_inside >= out || first_inside * stride - before >= in) continue;
    taps.first = std::min(taps.first, tap);
    taps.last = tap;
  }
  taps.padding = padding - taps.first * dilation;
  if (taps.last < 0 || taps.padding < 0 ||
      kernels::conv2d_out_size(in, taps.count(), stride, taps.padding, dilation) != out)
    return std::nullopt;
  return taps;
}

}  // namespace

void trim_kernels(Graph& graph, const PassOptions&) {
  Rewriter rewriter(graph);
  for (Node& node : rewriter.old()) {
    rewriter.forward_inputs(node);
    const Attributes& a = node.attributes;
    if (!node.is(kConv2d) || a.flag("channels_last") || a.integer("groups") != 1) {
      rewriter.keep(std::move(node));
      continue;
    }
    const Shape x = graph.type(node.inputs[0]).shape, weight = graph.type(node.inputs[1]).shape;
    const Ints &stride = a.integers("stride"), &padding = a.integers("padding"), &dilation = a.integers("dilation");
    const std::int64_t height = weight[2].value(), width = weight[3].value();
    std::optional<Taps> h, w;
    if (x[2].is_static() && x[3].is_static()) {
      h = meeting(x[2].value(), height, stride[0], padding[0], dilation[0]);
      w = meeting(x[3].value(), width, stride[1], padding[1], dilation[1]);
    }
    // Cutting costs a copy, which less than half of the taps makes up for, where they lie together in the weight: one
    // row, or whole rows.
    if (!h || !w || h->count() * w->count() * 2 > height * width || (h->count() > 1 && w->count() < width)) {
      rewriter.keep(std::move(node));
      continue;
    }
    const std::string name = graph.value(node.inputs[1]).name;
    const auto call = [&](const OpDef& op, ValueId input, Attributes attributes, const char* part) {
      return rewriter.add(op, {input}, std::move(attributes), node.origins, node.phase, name + part);
    };
    const std::int64_t first = h->first * width + w->first, count = h->count() * w->count();
    ValueId trimmed = call(kReshape, node.inputs[1], {{"shape", Shape{weight[0], weight[1], height * width}}}, ".taps");
    trimmed = call(kSlice, trimmed, {{"dim", std::int64_t{2}}, {"start", first}, {"end", first + count}}, ".trimmed");
    trimmed =
        call(kReshape, trimmed, {{"shape", Shape{weight[0], weight[1], h->count(), w->count()}}}, ".trimmed_kernel");
    node.inputs[1] = trimmed;
    node.attributes.set("padding", Ints{h->padding, w->padding});
    rewriter.keep(std::move(node));
  }
  rewriter.finish();
}

}  // namespace graven::ir
