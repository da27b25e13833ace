#include <array>

#include "ir/ops/conv2d_shared.h"
#include "ir/ops/lowered/lowered.h"

namespace graven::ir {

namespace {

// The inputs: the three weights, each before its bias, then the residual.
constexpr std::size_t kExpandWeight = 1, kResidual = 7;

kernels::inverted_residual_config inverted_residual_sizes(const NodeView& node) {
  return ops::inverted_residual_sizes(node.attributes(), node.input(0).shape);
}

/// PyTorch's shapes of the three weights.
std::array<Ints, 3> weight_shapes(const kernels::inverted_residual_config& s) {
  return {Ints{s.wide_channels, s.in_channels, 1, 1}, Ints{s.wide_channels, 1, s.kernel_height, s.kernel_width},
          Ints{s.out_channels, s.wide_channels, 1, 1}};
}

}  // namespace

static void infer_inverted_residual(InferContext& c) {
  const TensorType x = c.input(0);
  ops::require_rank(c, 0, 4, "the input");
  for (const auto& [key, least] : {std::pair("kernel_size", 1), {"stride", 1}, {"padding", 0}, {"dilation", 1}})
    for (std::int64_t v : ops::checked_list(c, key, 2, least))
      c.require(v <= (1 << 24), std::string("'") + key + "' is too large: " + std::to_string(v));
  for (const char* key : {"wide_channels", "out_channels"}) {
    const std::int64_t channels = c.attributes.integer(key);
    c.require(channels >= 1 && channels <= (1 << 24),
              std::string("'") + key + "' must lie from 1 to 2^24, got " + std::to_string(channels));
  }
  for (std::size_t d = 1; d < 4; ++d) (void)ops::fixed(x.shape[d], "the image's shape");
  const kernels::inverted_residual_config s = ops::inverted_residual_sizes(c.attributes, x.shape);
  ops::Conv2dSizes window{.most = kernels::inverted_residual_depthwise(s),
                          .in_height = s.in_height,
                          .in_width = s.in_width,
                          .out_height = s.out_height,
                          .out_width = s.out_width};
  ops::check_conv2d_sizes(c, window);
  const bool packed = c.attributes.flag("packed");
  if (packed)
    c.require(kernels::inverted_residual_rows(s) >= 1, "what lies behind one row of results is more than the " +
                                                           std::to_string(kernels::kInvertedResidualFloats) +
                                                           " numbers that a thread has room for");
  const std::array<Ints, 3> shapes = weight_shapes(s);
  const std::array<std::int64_t, 3> elements = {
      kernels::conv2d_packed_elements(kernels::inverted_residual_expand(s)),
      kernels::conv2d_packed_elements(kernels::inverted_residual_depthwise(s)),
      kernels::conv2d_packed_elements(kernels::inverted_residual_project(s))};
  const auto expect = [&](std::size_t i, const std::string& name, const Shape& shape) {
    c.require(c.input(i).shape == shape,
              name + " must be " + describe(x.dtype, shape) + ", got " + c.input(i).to_string());
  };
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    const std::size_t weight = kExpandWeight + 2 * k;
    const std::string name = std::array{"expand", "depthwise", "project"}[k];
    expect(weight, name + "_weight", packed ? Shape{elements[k]} : Shape::of(shapes[k]));
    if (c.has_input(weight + 1)) expect(weight + 1, name + "_bias", {shapes[k][0]});
  }
  c.require(!packed || x.dtype == DType::f32, "weights are packed in f32 only, got " + x.to_string());
  const TensorType y{x.dtype, {x.shape[0], s.out_height, s.out_width, s.out_channels}};
  for (const char* key : {"expand_epilogue", "depthwise_epilogue"}) {
    const ScalarProgram& program = c.attributes.program(key);
    c.require(program.empty() || program.inputs == 1,
              std::string("'") + key + "' takes one input, got " + std::to_string(program.inputs));
    ops::check_program(c, program, {x.dtype});
    c.require(program.empty() || program.steps.back().dtype == x.dtype,
              [&] { return std::string("'") + key + "' must give " + std::string(name(x.dtype)); });
  }
  ops::check_epilogue(c, kResidual, y);
  c.output(y.dtype, y.shape);
}

/// The three convolutions.
static std::vector<Node> parts_of_inverted_residual(Graph& graph, const Node& node) {
  const Attributes& a = node.attributes;
  const TensorType x = graph.type(node.inputs[0]), y = graph.type(node.outputs[0]);
  const kernels::inverted_residual_config s = ops::inverted_residual_sizes(a, x.shape);
  const std::array<Ints, 3> shapes = weight_shapes(s);
  const auto between = [&](std::int64_t height, std::int64_t width, const char* name) {
    Value value;
    value.type = {x.dtype, {x.shape[0], height, width, s.wide_channels}};
    value.name = graph.value(node.outputs[0]).name + name;
    graph.values.push_back(std::move(value));
    return static_cast<ValueId>(graph.values.size()) - 1;
  };
  const ValueId wide = between(s.in_height, s.in_width, ".wide"), deep = between(s.out_height, s.out_width, ".deep");
  const auto input = [&](std::size_t i) { return i < node.inputs.size() ? node.inputs[i] : kNone; };
  std::vector<Node> parts;
  const auto part = [&](std::size_t k, ValueId from, ValueId to, const char* epilogue, ValueId residual) {
    Node convolution;
    convolution.op = &kLoweredConv2d;
    convolution.inputs = {from, input(kExpandWeight + 2 * k), input(kExpandWeight + 2 * k + 1), residual};
    convolution.outputs = {to};
    convolution.origins = node.origins;
    convolution.phase = node.phase;
    const bool depthwise = k == 1;
    for (const auto& [key, otherwise] : {std::pair("stride", 1), {"padding", 0}, {"dilation", 1}})
      convolution.attributes.set(key, depthwise ? a.integers(key) : Ints{otherwise, otherwise});
    convolution.attributes.set("groups", depthwise ? s.wide_channels : std::int64_t{1});
    convolution.attributes.set("channels_last", true);
    convolution.attributes.set("packed", a.flag("packed"));
    convolution.attributes.set("weight_shape", shapes[k]);
    convolution.attributes.set("epilogue", a.program(epilogue));
    parts.push_back(std::move(convolution));
  };
  part(0, node.inputs[0], wide, "expand_epilogue", kNone);
  part(1, wide, deep, "depthwise_epilogue", kNone);
  part(2, deep, node.outputs[0], "epilogue", input(kResidual));
  return parts;
}

static Cost cost_inverted_residual(const NodeView& node) {
  const kernels::inverted_residual_config s = inverted_residual_sizes(node);
  const Dim& batch = node.input(0).shape[0];
  return {.flops = ops::conv2d_flops(kernels::inverted_residual_expand(s), batch) +
                   ops::conv2d_flops(kernels::inverted_residual_depthwise(s), batch) +
                   ops::conv2d_flops(kernels::inverted_residual_project(s), batch)};
}

static std::string remark_inverted_residual(const NodeView& node) {
  const kernels::inverted_residual_config s = inverted_residual_sizes(node);
  std::string text = std::to_string(s.in_channels) + "->" + std::to_string(s.wide_channels) + "->" +
                     std::to_string(s.out_channels) + ", " + std::to_string(s.kernel_height) + "x" +
                     std::to_string(s.kernel_width);
  if (s.stride_height != 1 || s.stride_width != 1)
    text += ", stride " + std::to_string(s.stride_height) +
            (s.stride_height == s.stride_width ? "" : "x" + std::to_string(s.stride_width));
  return text;
}

static std::vector<TestCase> cases_inverted_residual() {
  std::vector<TestCase> cases;
  auto add = [&](std::string note, DType dtype, Shape x, std::int64_t wide, std::int64_t out, std::int64_t kernel,
                 std::int64_t stride, bool biases) {
    const Dim in = x[3];
    TestCase c{.note = std::move(note),
               .inputs = {ops::random(dtype, std::move(x))},
               .attributes = {{"kernel_size", Ints{kernel, kernel}},
                              {"stride", Ints{stride, stride}},
                              {"padding", Ints{kernel / 2, kernel / 2}},
                              {"wide_channels", wide},
                              {"out_channels", out}},
               .gradient = false};
    const TestCase::Input absent{.absent = true};
    c.inputs.push_back(ops::random(dtype, {wide, in, 1, 1}));
    c.inputs.push_back(biases ? ops::random(dtype, {wide}) : absent);
    c.inputs.push_back(ops::random(dtype, {wide, 1, kernel, kernel}));
    c.inputs.push_back(biases ? ops::random(dtype, {wide}) : absent);
    c.inputs.push_back(ops::random(dtype, {out, wide, 1, 1}));
    c.inputs.push_back(biases ? ops::random(dtype, {out}) : absent);
    cases.push_back(std::move(c));
  };
  add("3x3", DType::f32, {2, 9, 7, 4}, 19, 5, 3, 1, true);
  add("stride 2, no biases", DType::f32, {1, 8, 9, 3}, 8, 16, 3, 2, false);
  add("5x5", DType::f32, {1, 5, 6, 2}, 4, 3, 5, 1, true);
  add("one pixel", DType::f32, {2, 1, 1, 3}, 6, 4, 3, 1, true);
  add("empty batch", DType::f32, {0, 4, 4, 3}, 6, 4, 3, 1, true);
  for (DType d : ops::kFloats) add(std::string(name(d)), d, {1, 4, 4, 2}, 4, 3, 3, 1, true);
  return cases;
}

const OpDef kInvertedResidual{
    .name = "inverted_residual",
    .doc =
        "Three convolutions of NHWC images in one pass: 1x1 to wide_channels, depthwise with the window's attributes, "
        "1x1 to out_channels, each with "
        "its bias and epilogue. The pass fuse_inverted_residuals puts it where that is faster. Formula: "
        "kernels/config/inverted_residual.h.",
    .inputs = {{"x"},
               {"expand_weight"},
               {.name = "expand_bias", .optional = true},
               {"depthwise_weight"},
               {.name = "depthwise_bias", .optional = true},
               {"project_weight"},
               {.name = "project_bias", .optional = true},
               ops::kResidual},
    .attributes = {{"kernel_size", AttributeType::integers, std::nullopt,
                    "of the depthwise convolution, height and width, as are the next three"},
                   {"stride", AttributeType::integers, Ints{1, 1}, "of the window"},
                   {"padding", AttributeType::integers, Ints{0, 0}, "zeros above and below, left and right"},
                   {"dilation", AttributeType::integers, Ints{1, 1}, "distance between taps"},
                   {"wide_channels", AttributeType::integer, std::nullopt, "of the depthwise convolution"},
                   {"out_channels", AttributeType::integer, std::nullopt, "of the result"},
                   {"packed", AttributeType::boolean, false, "the weights are what pack_conv2d_weight made"},
                   {"expand_epilogue", AttributeType::program, ScalarProgram{},
                    "applied to each element between the first two convolutions"},
                   {"depthwise_epilogue", AttributeType::program, ScalarProgram{},
                    "applied to each element between the last two"},
                   ops::epilogue_attribute()},
    .infer = infer_inverted_residual,
    .parts = parts_of_inverted_residual,
    .lowered = true,
    .cost = cost_inverted_residual,
    .remark = remark_inverted_residual,
    .amp = AmpClass::white,
    .forms = {{.attributes = {{"kernel_size", Ints{3, 3}},
                              {"wide_channels", std::int64_t{4}},
                              {"out_channels", std::int64_t{3}}},
               .shapes = {{1, 4, 4, 2}, {4, 2, 1, 1}, {4}, {4, 1, 3, 3}, {4}, {3, 4, 1, 1}}}},
    .cases = cases_inverted_residual,
};

}  // namespace graven::ir
