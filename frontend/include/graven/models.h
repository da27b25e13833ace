// Networks ready to use: module paths, initial values and defaults as in torchvision (pictures) and transformers
// (text), so that weights load by name.
//
//   models::MobileNetV2 mobilenet({.num_classes = 10});
//   models::ResNet resnet = models::resnet50();
//   resnet.load_state_dict(nn::load("resnet50.safetensors"));
#pragma once

#include "graven/models/bert.h"
#include "graven/models/gpt2.h"
#include "graven/models/lenet.h"
#include "graven/models/mlp.h"
#include "graven/models/mobilenet_v2.h"
#include "graven/models/resnet.h"
#include "graven/models/style_transfer.h"
#include "graven/models/vgg.h"
#include "graven/models/vit.h"
