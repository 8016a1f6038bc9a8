// DETR as transformers writes it (DetrForObjectDetection), by the names of its authors.
#pragma once

#include <string>

#include "weights/fused_names.h"

namespace tessera::train {

// Whether a tensor of that name belongs to such a file alone.
bool is_transformers_detr(const std::string& name);

// Its tensors under the authors' names, q, k and v of an attention in one "in_proj"; others stay as they are. Throws Error where one of
// the three is missing.
NamedTensors detr_of_transformers(const NamedTensors& tensors);
// The way back: tensors under the authors' names as transformers has them, its ResNet as timm's.
NamedTensors transformers_of_detr(const NamedTensors& tensors);

}  // namespace tessera::train
