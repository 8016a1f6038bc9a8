// Names of a ResNet's tensors in the files of other programs.
#pragma once

#include <string>

namespace tessera::models {

// torchvision's name, which is ours, of what detectron2, Caffe's Detectron, OpenMMLab's programs and OpenAI's CLIP call otherwise:
// "backbone.bottom_up.res2.0.conv1.norm.weight" as "layer1.0.bn1.weight". "" for what is not of the model.
std::string resnet_name(const std::string& published);

}  // namespace tessera::models
