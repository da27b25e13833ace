#include "graven/models/resnet.h"

#include "frontend/models/initialise.h"
#include "graven/init.h"

namespace graven::models {

namespace {

nn::Conv2d conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride = 1, std::int64_t groups = 1) {
  return nn::Conv2d(in, out, 3, {.stride = stride, .padding = 1, .groups = groups, .bias = false});
}
nn::Conv2d conv1x1(std::int64_t in, std::int64_t out, std::int64_t stride = 1) {
  return nn::Conv2d(in, out, 1, {.stride = stride, .bias = false});
}

/// Channels inside a Bottleneck.
std::int64_t bottleneck_width(std::int64_t planes, std::int64_t groups, std::int64_t width_per_group) {
  if (groups < 1 || width_per_group < 1) throw UserError("ResNet: groups and width_per_group must be positive");
  return static_cast<std::int64_t>(static_cast<double>(planes) * (static_cast<double>(width_per_group) / 64.0)) *
         groups;
}

}  // namespace

BasicBlock::BasicBlock(std::int64_t inplanes, std::int64_t planes, std::int64_t stride,
                       std::optional<nn::Sequential> downsample_module)
    : conv1(child("conv1", conv3x3(inplanes, planes, stride))),
      bn1(child("bn1", nn::BatchNorm2d(planes))),
      relu(child("relu", nn::ReLU())),
      conv2(child("conv2", conv3x3(planes, planes))),
      bn2(child("bn2", nn::BatchNorm2d(planes))),
      downsample(std::move(downsample_module)) {
  if (downsample) child("downsample", *downsample);
}

Tensor BasicBlock::forward(Tensor x) {
  Tensor shortcut = downsample ? (*downsample)(x) : x;
  Tensor y = relu(bn1(conv1(x)));
  return relu(bn2(conv2(y)) + shortcut);
}

Bottleneck::Bottleneck(std::int64_t inplanes, std::int64_t planes, std::int64_t stride,
                       std::optional<nn::Sequential> downsample_module, std::int64_t groups,
                       std::int64_t width_per_group)
    : conv1(child("conv1", conv1x1(inplanes, bottleneck_width(planes, groups, width_per_group)))),
      bn1(child("bn1", nn::BatchNorm2d(bottleneck_width(planes, groups, width_per_group)))),
      conv2(child("conv2", conv3x3(bottleneck_width(planes, groups, width_per_group),
                                   bottleneck_width(planes, groups, width_per_group), stride, groups))),
      bn2(child("bn2", nn::BatchNorm2d(bottleneck_width(planes, groups, width_per_group)))),
      conv3(child("conv3", conv1x1(bottleneck_width(planes, groups, width_per_group), planes * expansion))),
      bn3(child("bn3", nn::BatchNorm2d(planes * expansion))),
      relu(child("relu", nn::ReLU())),
      downsample(std::move(downsample_module)) {
  if (downsample) child("downsample", *downsample);
}

Tensor Bottleneck::forward(Tensor x) {
  Tensor shortcut = downsample ? (*downsample)(x) : x;
  Tensor y = relu(bn1(conv1(x)));
  y = relu(bn2(conv2(y)));
  return relu(bn3(conv3(y)) + shortcut);
}

ResNet::ResNet(ResNetBlock block, const std::array<std::int64_t, 4>& layers, const ResNetOptions& options)
    : block_(block),
      options_(options),
      inplanes_(options.stem_channels),
      conv1(child("conv1", nn::Conv2d(3, options.stem_channels, 7, {.stride = 2, .padding = 3, .bias = false}))),
      bn1(child("bn1", nn::BatchNorm2d(options.stem_channels))),
      relu(child("relu", nn::ReLU())),
      maxpool(child("maxpool", nn::MaxPool2d(3, {.stride = 2, .padding = 1}))),
      layer1(child("layer1", make_layer(options.stem_channels, layers[0], 1))),
      layer2(child("layer2", make_layer(options.stem_channels * 2, layers[1], 2))),
      layer3(child("layer3", make_layer(options.stem_channels * 4, layers[2], 2))),
      layer4(child("layer4", make_layer(options.stem_channels * 8, layers[3], 2))),
      avgpool(child("avgpool", nn::AdaptiveAvgPool2d(1))),
      fc(child("fc", nn::Linear(inplanes_, options.num_classes))) {
  initialise_convolutions(*this);
  if (options.zero_init_residual)
    apply([](nn::ModuleBase& m) {
      const char* const last = m.class_name() == "BasicBlock"   ? "bn2"
                               : m.class_name() == "Bottleneck" ? "bn3"
                                                                : nullptr;
      if (last == nullptr) return;
      for (const auto& [name, part] : m.children())
        if (name == last) nn::init::zeros_(part.named("weight"));
    });
}

nn::Sequential ResNet::make_layer(std::int64_t planes, std::int64_t blocks, std::int64_t stride) {
  if (blocks < 1) throw UserError("ResNet: a stage needs one block at least, got " + std::to_string(blocks));
  const bool basic = block_ == ResNetBlock::basic;
  if (basic && (options_.groups != 1 || options_.width_per_group != 64))
    throw UserError("ResNet: basic blocks only support groups = 1 and width_per_group = 64");
  const std::int64_t out = planes * (basic ? BasicBlock::expansion : Bottleneck::expansion);
  nn::Sequential layer;
  for (std::int64_t i = 0; i < blocks; ++i, stride = 1) {
    std::optional<nn::Sequential> downsample;
    if (i == 0 && (stride != 1 || inplanes_ != out))
      downsample = nn::Sequential(conv1x1(inplanes_, out, stride), nn::BatchNorm2d(out));
    if (basic)
      layer.push_back(BasicBlock(inplanes_, planes, stride, downsample));
    else
      layer.push_back(Bottleneck(inplanes_, planes, stride, downsample, options_.groups, options_.width_per_group));
    inplanes_ = out;
  }
  return layer;
}

Tensor ResNet::forward(Tensor x) {
  x = maxpool(relu(bn1(conv1(x))));
  x = layer4(layer3(layer2(layer1(x))));
  return fc(flatten(avgpool(x), 1));
}

ResNet resnet18(const ResNetOptions& options) { return ResNet(ResNetBlock::basic, {2, 2, 2, 2}, options); }
ResNet resnet34(const ResNetOptions& options) { return ResNet(ResNetBlock::basic, {3, 4, 6, 3}, options); }
ResNet resnet50(const ResNetOptions& options) { return ResNet(ResNetBlock::bottleneck, {3, 4, 6, 3}, options); }

}  // namespace graven::models
