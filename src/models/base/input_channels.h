// Models for images with other than three channels, and weights for colour images adapted to them.
#pragma once

#include "ops/torch.h"

#include <string_view>

#include "core/value.h"

namespace tessera::models {

// Returns the channels of the images that a model with these settings reads.
int64_t input_channels(const Value& settings);

// Throws a usage error that names `who`, which predicts the pixels of colour images, if the model reads
// others.
void require_colours(const Value& settings, std::string_view who);

// Fits a first layer's stored kernel for red, green and blue, [width, 3, rows, columns], to the shape
// `wanted`, [width, channels, rows, columns], as timm does. One channel gets the sum of the three; more
// channels repeat them, scaled so that the sum over channels stays. Returns undefined if `stored` is no such
// kernel.
torch::Tensor fit_input_channels(const torch::Tensor& stored, torch::IntArrayRef wanted);

}  // namespace tessera::models
