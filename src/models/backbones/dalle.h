// The encoder of DALL-E's discrete VAE as a model family (models/backbones/dalle.cpp).
#pragma once

#include "models/base/family.h"

namespace tessera::models {

Family dalle_family();

}  // namespace tessera::models
