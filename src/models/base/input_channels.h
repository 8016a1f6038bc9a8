// Models of images with other than three channels, and weights of colour images for them.
#pragma once

#include "ops/torch.h"

#include <string_view>

#include "core/value.h"

namespace tessera::models {

// Channels of the images that a model with these settings reads.
int64_t input_channels(const Value& settings);

// A usage error that names `who`, which predicts the pixels of colour images, where the model reads others.
void require_colours(const Value& settings, std::string_view who);

// The stored kernel of a first layer that read red, green and blue, [width, 3, rows, columns], for a model's of
// other channels, `wanted` = [width, channels, rows, columns], as timm makes it: their sum for one channel; for
// more they are repeated and scaled so that the sum over channels stays. Undefined where it is no such kernel.
torch::Tensor fit_input_channels(const torch::Tensor& stored, torch::IntArrayRef wanted);

}  // namespace tessera::models
