// The plain ViT of ViTDet as a family of models.
#pragma once

#include "models/base/model.h"

namespace tessera::models {

Family vitdet_family();

}  // namespace tessera::models
