// 3x3 convolutions by kernels/winograd: for inference, with weights transformed once, and with
// gradients.
#pragma once

#include "ops/convolution.h"

namespace tessera::ops {

// True if the kernels should compute this convolution of x with a result of `type` (float or bfloat16) on
// this machine. The answer does not depend on the batch. Speed relative to oneDNN on Zen 4: in float 1.5 to
// 3.8 times from 8x8 cells on. In bfloat16, which oneDNN multiplies two at a time and Winograd's form does
// not, 0.9 times (64 channels) to 1.9 times (512) with few tiles across the grid's edge. With `training`,
// weights are transformed in each step, which does not pay off on small grids.
bool winograd_applies(const torch::Tensor& x, const ConvolutionParameters& parameters, torch::ScalarType type,
                      bool training);

// Transforms weight [out, in, 3, 3] to floats. `rotated`: for the gradient of the input.
torch::Tensor winograd_weights(const torch::Tensor& weight, bool rotated = false);

// relu(conv(x) + bias + residual) as `type`; `transformed` from winograd_weights, `bias` in floats or
// undefined.
torch::Tensor winograd(const torch::Tensor& x, const torch::Tensor& transformed, const torch::Tensor& bias,
                       int64_t out, torch::ScalarType type, const torch::Tensor& residual = {},
                       bool relu = false);

// conv(x) + bias as `type`, with gradients in the types of x, weight and bias.
torch::Tensor winograd_with_gradients(const torch::Tensor& x, const torch::Tensor& weight,
                                      const torch::Tensor& bias, torch::ScalarType type);

}  // namespace tessera::ops
