// Palettes of colours (iGPT, Chen et al. 2020, section 3.1): k-means over the pixels of training images, or a file.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>

#include "models/backbones/igpt.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

// Returns random cells of random training images, [n, 3], normalised.
torch::Tensor palette_pixels(const TaskSetup& setup, const models::ReadsColours& reader);
// Returns the centres of `pixels` [n, 3] after Lloyd's algorithm from random distinct pixels, [colours, 3]. Throws a
// usage error if there are fewer distinct pixels.
torch::Tensor kmeans_palette(const torch::Tensor& pixels, int64_t colours, uint64_t seed);
// Reads a palette [colours, 3] from a .npy file, as published: values from -1 to 1.
torch::Tensor read_palette(const std::string& path, int64_t colours);

}  // namespace tessera::tasks
