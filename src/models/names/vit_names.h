// How published files of ViTs spell the tensors that are called as timm calls them here.
#pragma once

#include <string>

namespace tessera::models {

// torchvision's names, DeiT III's first ones, those of its re-implementation by the Vision-LSTM authors, and
// MMPretrain's, as timm's. "" for what follows from other settings; other names stay as they are.
std::string timm_vit_name(const std::string& published);

}  // namespace tessera::models
