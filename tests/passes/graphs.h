// Graphs written out by hand, as a trace would record them: what the tests of passes, plans and emission work on.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"

namespace graven::tests {

using ir::Attributes;
using ir::DType;
using ir::Graph;
using ir::Ints;
using ir::Shape;
using ir::ValueId;

/// Records nodes under a module's path, a line each.
class Recorder {
 public:
  explicit Recorder(Graph& graph) : graph_(graph) {}
  ValueId operator()(const std::string& module, std::string_view op, std::vector<ValueId> inputs,
                     Attributes attributes = {}) {
    return all(module, op, std::move(inputs), std::move(attributes)).at(0);
  }
  std::vector<ValueId> all(const std::string& module, std::string_view op, std::vector<ValueId> inputs,
                           Attributes attributes = {}) {
    return graph_.add_node(ir::get_op(op), std::move(inputs), std::move(attributes),
                           {{module, "network.cpp", ++line_}});
  }
  ValueId number(double value, DType dtype = DType::f32) {
    return (*this)("", "full", {}, {{"shape", Shape{}}, {"value", value}, {"dtype", dtype}});
  }
  const Graph& graph() const { return graph_; }

 private:
  Graph& graph_;
  std::uint32_t line_ = 0;
};

inline ValueId parameter(Graph& g, const std::string& name, Shape shape) {
  return g.add_parameter(name, {DType::f32, std::move(shape)}, true);
}

inline ir::Optimizer sgd(const Graph& g, double momentum = 0.9) {
  ir::Optimizer o{.kind = "sgd", .groups = {}, .schedule = {}};
  ir::ParameterGroup group;
  for (ValueId p : g.parameters)
    if (g.value(p).kind == ir::ValueKind::parameter) group.parameters.push_back(p);
  group.options = {{"lr", 0.1},         {"momentum", momentum}, {"dampening", 0},
                   {"weight_decay", 0}, {"nesterov", 0},        {"maximize", 0}};
  o.groups.push_back(group);
  return o;
}

/// Closes a training graph: one loss, which is also the output. Callers record the loss among the arguments, so the
/// graph is copied here.
inline Graph train(const Graph& recorded, ValueId loss, ir::Optimizer optimizer) {
  Graph g = recorded;
  g.training = true;
  g.outputs = {loss};
  g.losses = {{loss, ir::kNone}};
  g.optimizers = {std::move(optimizer)};
  return g;
}

/// linear 784 -> 256, relu, linear 256 -> 10, cross entropy; SGD with momentum.
inline Graph mlp_training(std::int64_t batch = 64, std::int64_t hidden = 256) {
  Graph g;
  g.name = "TrainMlp";
  Recorder record(g);
  const ValueId images = g.add_input("images", {DType::f32, {batch, 1, 28, 28}}),
                labels = g.add_input("labels", {DType::i64, {batch}});
  const ValueId w1 = parameter(g, "model.hidden.weight", {hidden, 784}),
                b1 = parameter(g, "model.hidden.bias", {hidden});
  const ValueId w2 = parameter(g, "model.logits.weight", {10, hidden}), b2 = parameter(g, "model.logits.bias", {10});
  ValueId x = record("model", "reshape", {images}, {{"shape", Shape{batch, 784}}});
  x = record("model.hidden", "linear", {x, w1, b1});
  x = record("model", "relu", {x});
  x = record("model.logits", "linear", {x, w2, b2});
  const ValueId loss = record("loss_fn", "cross_entropy", {x, labels});
  g.input_tree = {.kind = ir::Tree::Kind::tuple,
                  .index = 0,
                  .children = {{}, {.kind = ir::Tree::Kind::leaf, .index = 1, .children = {}, .keys = {}}},
                  .keys = {}};
  return train(g, loss, sgd(g));
}

/// A step on images of one pixel, which only one tap of the first kernel meets.
inline Graph pixel_training() {
  Graph g;
  g.name = "TrainPixel";
  Recorder record(g);
  const ValueId pixels = g.add_input("pixels", {DType::f32, {4, 140, 1, 1}}),
                labels = g.add_input("labels", {DType::i64, {4}});
  const ValueId around = parameter(g, "model.around.weight", {140, 140, 3, 3}),
                bias = parameter(g, "model.around.bias", {140});
  const ValueId plain = parameter(g, "model.plain.weight", {140, 140, 1, 1});
  ValueId x = record("model.around", "conv2d", {pixels, around, bias}, {{"padding", Ints{1, 1}}});
  x = record("model.plain", "conv2d", {x, plain});
  x = record("model", "reshape", {x}, {{"shape", Shape{4, 140}}});
  return train(g, record("loss_fn", "cross_entropy", {x, labels}), sgd(g));
}

/// The network of LeNet-5 up to the logits.
inline ValueId lenet_logits(Graph& g, ValueId images, const ir::Dim& batch) {
  Recorder record(g);
  auto layer = [&](const std::string& path, Shape weight) {
    const ir::Dim out = weight[0];
    const ValueId w = parameter(g, path + ".weight", std::move(weight));
    return std::pair(w, parameter(g, path + ".bias", {out}));
  };
  const auto [c1w, c1b] = layer("model.conv1", {6, 1, 5, 5});
  const auto [c2w, c2b] = layer("model.conv2", {16, 6, 5, 5});
  const auto [f1w, f1b] = layer("model.fc1", {120, 400});
  const auto [f2w, f2b] = layer("model.fc2", {84, 120});
  const auto [f3w, f3b] = layer("model.fc3", {10, 84});
  ValueId x = record("model.conv1", "conv2d", {images, c1w, c1b}, {{"padding", Ints{2, 2}}});
  x = record("model", "relu", {x});
  x = record("model.pool", "max_pool2d", {x}, {{"kernel_size", Ints{2, 2}}});
  x = record("model.conv2", "conv2d", {x, c2w, c2b});
  x = record("model", "relu", {x});
  x = record("model.pool", "max_pool2d", {x}, {{"kernel_size", Ints{2, 2}}});
  x = record("model", "reshape", {x}, {{"shape", Shape{batch, 400}}});
  x = record("model", "relu", {record("model.fc1", "linear", {x, f1w, f1b})});
  x = record("model", "relu", {record("model.fc2", "linear", {x, f2w, f2b})});
  return record("model.fc3", "linear", {x, f3w, f3b});
}

inline Graph lenet_training(std::int64_t batch = 64) {
  Graph g;
  g.name = "TrainLeNet";
  const ValueId images = g.add_input("images", {DType::f32, {batch, 1, 28, 28}}),
                labels = g.add_input("labels", {DType::i64, {batch}});
  const ValueId logits = lenet_logits(g, images, batch);
  const ValueId loss = Recorder(g)("loss_fn", "cross_entropy", {logits, labels});
  g.input_tree = {.kind = ir::Tree::Kind::tuple,
                  .index = 0,
                  .children = {{}, {.kind = ir::Tree::Kind::leaf, .index = 1, .children = {}, .keys = {}}},
                  .keys = {}};
  return train(g, loss, sgd(g));
}

inline Graph lenet_inference(const ir::Dim& batch = ir::Dim("batch", 64)) {
  Graph g;
  g.name = "LeNet";
  const ValueId images = g.add_input("images", {DType::f32, {batch, 1, 28, 28}});
  g.outputs = {lenet_logits(g, images, batch)};
  return g;
}

/// conv, batch norm, relu; again, with a shortcut around it; mean over the image.
inline Graph residual_inference(const ir::Dim& batch = 2) {
  Graph g;
  g.name = "Residual";
  Recorder record(g);
  const ValueId images = g.add_input("images", {DType::f32, {batch, 3, 8, 8}});
  auto norm = [&](const std::string& path, ValueId x) {
    const ValueId gamma = parameter(g, path + ".weight", {4}), beta = parameter(g, path + ".bias", {4});
    const ValueId mean = g.add_buffer(path + ".running_mean", {DType::f32, {4}}),
                  var = g.add_buffer(path + ".running_var", {DType::f32, {4}});
    return record(path, "batch_norm", {x, gamma, beta, mean, var});
  };
  ValueId x = record("model.conv1", "conv2d", {images, parameter(g, "model.conv1.weight", {4, 3, 3, 3})},
                     {{"padding", Ints{1, 1}}});
  const ValueId shortcut = record("model", "relu", {norm("model.bn1", x)});
  x = record("model.conv2", "conv2d",
             {shortcut, parameter(g, "model.conv2.weight", {4, 4, 3, 3}), parameter(g, "model.conv2.bias", {4})},
             {{"padding", Ints{1, 1}}});
  x = record("model", "add", {norm("model.bn2", x), shortcut});
  x = record("model", "relu", {x});
  g.outputs = {record("model", "mean", {x}, {{"dims", Ints{2, 3}}})};
  return g;
}

/// Blocks of MobileNetV2: one with a shortcut, one of stride 2 with other epilogues and without biases, one too small
/// to gain by being computed in one pass, and one whose wide tensor is read twice.
inline Graph inverted_residuals(const ir::Dim& batch = 2) {
  Graph g;
  g.name = "Blocks";
  Recorder record(g);
  const ValueId images = g.add_input("images", {DType::f32, {batch, 8, 36, 36}});
  auto convolution = [&](const std::string& path, ValueId x, const ir::Shape& weight, bool bias,
                         Attributes attributes) {
    std::vector<ValueId> inputs{x, parameter(g, path + ".weight", weight)};
    if (bias) inputs.push_back(parameter(g, path + ".bias", {weight[0]}));
    return record(path, "conv2d", inputs, std::move(attributes));
  };
  auto relu6 = [&](ValueId x) { return record("model", "hardtanh", {x}, {{"min", 0.0}, {"max", 6.0}}); };
  auto deep = [&](const std::string& path, ValueId x, std::int64_t channels, std::int64_t kernel, std::int64_t stride,
                  bool bias) {
    return convolution(
        path + ".depthwise", x, {channels, 1, kernel, kernel}, bias,
        {{"stride", Ints{stride, stride}}, {"padding", Ints{kernel / 2, kernel / 2}}, {"groups", channels}});
  };
  ValueId x = relu6(convolution("model.first.expand", images, {104, 8, 1, 1}, true, {}));
  x = relu6(deep("model.first", x, 104, 3, 1, true));
  const ValueId first =
      record("model", "add", {convolution("model.first.project", x, {8, 104, 1, 1}, true, {}), images});
  x = record("model", "silu", {convolution("model.second.expand", first, {104, 8, 1, 1}, false, {})});
  x = convolution("model.second.project", deep("model.second", x, 104, 5, 2, false), {16, 104, 1, 1}, false, {});
  const ValueId second = record("model", "relu", {x});
  x = relu6(convolution("model.small.expand", second, {32, 16, 1, 1}, true, {}));
  x = convolution("model.small.project", relu6(deep("model.small", x, 32, 3, 1, true)), {16, 32, 1, 1}, true, {});
  const ValueId small = record("model", "add", {x, second});
  const ValueId seen = relu6(convolution("model.seen.expand", first, {104, 8, 1, 1}, true, {}));
  x = convolution("model.seen.project", relu6(deep("model.seen", seen, 104, 3, 1, true)), {4, 104, 1, 1}, true, {});
  for (const ValueId result : {small, seen, x})
    g.outputs.push_back(record("model", "mean", {result}, {{"dims", Ints{2, 3}}}));
  return g;
}

/// Four 3x3 convolutions of 64 channels: two of one weight with a shortcut, which Winograd's form suits; one of stride
/// 2, and one whose weight is given from outside, which it does not.
inline Graph wide_inference() {
  Graph g;
  g.name = "Wide";
  Recorder record(g);
  const ValueId images = g.add_input("images", {DType::f32, {1, 64, 8, 8}}),
                kernel = g.add_input("kernel", {DType::f32, {64, 64, 3, 3}});
  const ValueId w = parameter(g, "model.conv.weight", {64, 64, 3, 3}), b = parameter(g, "model.conv.bias", {64});
  const ValueId x =
      record("model", "relu", {record("model.conv", "conv2d", {images, w, b}, {{"padding", Ints{1, 1}}})});
  ValueId y = record("model", "add", {record("model.conv", "conv2d", {x, w, b}, {{"padding", Ints{1, 1}}}), x});
  y = record("model", "conv2d", {y, kernel}, {{"padding", Ints{1, 1}}});
  y = record("model.down", "conv2d", {y, parameter(g, "model.down.weight", {64, 64, 3, 3})},
             {{"stride", Ints{2, 2}}, {"padding", Ints{1, 1}}});
  g.outputs = {record("model", "mean", {y}, {{"dims", Ints{2, 3}}})};
  return g;
}

/// residual_inference with batch norms in training mode, a linear layer and Adam.
inline Graph residual_training(std::int64_t batch = 2) {
  Graph g;
  g.name = "TrainResidual";
  Recorder record(g);
  const ValueId images = g.add_input("images", {DType::f32, {batch, 3, 8, 8}}),
                labels = g.add_input("labels", {DType::i64, {batch}});
  auto norm = [&](const std::string& path, ValueId x) {
    const ValueId gamma = parameter(g, path + ".weight", {4}), beta = parameter(g, path + ".bias", {4});
    const ValueId mean = g.add_buffer(path + ".running_mean", {DType::f32, {4}}),
                  var = g.add_buffer(path + ".running_var", {DType::f32, {4}});
    const std::vector<ValueId> out = record.all(path, "batch_norm_training", {x, gamma, beta, mean, var});
    g.donations.push_back({mean, out[3]});
    g.donations.push_back({var, out[4]});
    return out[0];
  };
  ValueId x = record("model.conv1", "conv2d", {images, parameter(g, "model.conv1.weight", {4, 3, 3, 3})},
                     {{"padding", Ints{1, 1}}});
  const ValueId shortcut = record("model", "relu", {norm("model.bn1", x)});
  x = record("model.conv2", "conv2d", {shortcut, parameter(g, "model.conv2.weight", {4, 4, 3, 3})},
             {{"padding", Ints{1, 1}}});
  x = record("model", "relu", {record("model", "add", {norm("model.bn2", x), shortcut})});
  x = record("model", "mean", {x}, {{"dims", Ints{2, 3}}});
  x = record("model.fc", "linear", {x, parameter(g, "model.fc.weight", {5, 4}), parameter(g, "model.fc.bias", {5})});
  const ValueId loss = record("loss_fn", "cross_entropy", {x, labels});
  ir::Optimizer adam = sgd(g);
  adam.kind = "adam";
  adam.groups[0].options = {{"lr", 1e-3},        {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8},
                            {"weight_decay", 0}, {"amsgrad", 0}, {"maximize", 0}};
  return train(g, loss, adam);
}

/// The polynomial fit: features (x, x^2, x^3), linear 3 -> 1, squared error summed, plain SGD.
inline Graph polynomial_training(std::int64_t count = 2000) {
  Graph g;
  g.name = "PolynomialFit";
  Recorder record(g);
  const ValueId features = g.add_input("features", {DType::f32, {count, 3}}),
                y = g.add_input("y", {DType::f32, {count}});
  ValueId x = record("model.0", "linear",
                     {features, parameter(g, "model.0.weight", {1, 3}), parameter(g, "model.0.bias", {1})});
  x = record("model.1", "reshape", {x}, {{"shape", Shape{count}}});
  x = record("loss_fn", "square", {record("loss_fn", "sub", {x, y})});
  const ValueId loss = record("loss_fn", "sum", {x}, {{"dims", Ints{}}});
  return train(g, loss, sgd(g, 0));
}

inline std::shared_ptr<const ir::TensorData> floats(Shape shape, const std::vector<float>& values) {
  auto data = std::make_shared<ir::TensorData>();
  data->type = {DType::f32, std::move(shape)};
  data->bytes.resize(values.size() * sizeof(float));
  std::memcpy(data->bytes.data(), values.data(), data->bytes.size());
  return data;
}

/// Batch norms of every kind that is folded: of one linear layer twice in one module, without weight and bias, one of
/// literal statistics; of a grouped convolution whose weight, too, is a literal.
inline Graph norms_inference() {
  Graph g;
  g.name = "Norms";
  Recorder record(g);
  const ValueId rows = g.add_input("rows", {DType::f32, {2, 3}}),
                images = g.add_input("images", {DType::f32, {2, 4, 3, 3}});
  const ValueId w = parameter(g, "model.fc.weight", {4, 3}), b = parameter(g, "model.fc.bias", {4});
  const ValueId mean = g.add_buffer("model.running_mean", {DType::f32, {4}}),
                var = g.add_buffer("model.running_var", {DType::f32, {4}});
  const ValueId means = g.add_constant("means", floats({4}, {0, 1, -2, 0.5f})),
                variances = g.add_constant("variances", floats({4}, {1, 0.25f, 4, 0}));
  const ValueId none = ir::kNone;
  const ValueId first = record("model", "batch_norm",
                               {record("model.fc", "linear", {rows, w, b}), none, none, mean, var}, {{"eps", 0.125}});
  const ValueId second =
      record("model", "batch_norm",
             {record("model.fc", "linear", {rows, w}), none, parameter(g, "model.shift", {4}), means, variances},
             {{"eps", 1e-3}});
  const ValueId kernel = g.add_constant("kernel", floats({4, 2, 1, 1}, {1, -1, 2, -2, 3, -3, 4, -4}));
  const ValueId image = record("", "conv2d", {images, kernel}, {{"groups", std::int64_t{2}}});
  g.outputs = {first, second, record("", "batch_norm", {image, parameter(g, "gain", {4}), none, means, variances})};
  return g;
}

}  // namespace graven::tests
