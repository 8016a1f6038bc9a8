// The encoder of DALL-E's discrete VAE as a model family (models/dalle.cpp).
#pragma once

#include "models/family.h"

namespace tessera::models {

Family dalle_family();

}  // namespace tessera::models
