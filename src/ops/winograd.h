// Convolutions of 3x3 cells on the kernels of kernels/winograd: for inference on weights that are transformed
// once, and with gradients.
#pragma once

#include "ops/convolution.h"

namespace tessera::ops {

// Whether they are for this convolution of x to results of `type` (float or bfloat16), on this machine. What is
// asked for is the same for a sample alone and in any batch. Measured against oneDNN on Zen 4: in float they are
// 1.5 to 3.8 times as fast from 8x8 cells on; in bfloat16, which oneDNN multiplies two at a time and Winograd's
// form does not, 0.9 times (64 channels) to 1.9 times (512) where few tiles hang over the edge of the grid. With
// `training` weights are transformed in each step, which small grids do not repay.
bool winograd_applies(const torch::Tensor& x, const ConvolutionParameters& parameters, torch::ScalarType type,
                      bool training);

// weight [out, in, 3, 3] in floats, transformed. `rotated`: for the gradient of the input.
torch::Tensor winograd_weights(const torch::Tensor& weight, bool rotated = false);

// relu(conv(x) + bias + residual) as `type`; `transformed` from winograd_weights, `bias` in floats or undefined.
torch::Tensor winograd(const torch::Tensor& x, const torch::Tensor& transformed, const torch::Tensor& bias,
                       int64_t out, torch::ScalarType type, const torch::Tensor& residual = {},
                       bool relu = false);

// conv(x) + bias as `type`, with gradients in the types of x, weight and bias.
torch::Tensor winograd_with_gradients(const torch::Tensor& x, const torch::Tensor& weight,
                                      const torch::Tensor& bias, torch::ScalarType type);

}  // namespace tessera::ops
