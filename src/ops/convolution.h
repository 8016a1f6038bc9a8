// A convolution over a grid with channels last, fused with its batch norm and the operations after it:
//
//   y = relu(norm(conv(x)) + residual),   norm(z) = (z - mean) / sqrt(variance + eps) * weight + bias
//
// norm, residual and relu are optional. Without gradients on a CPU, the norm is folded into the weights,
// which oneDNN (LibTorch's copy) lays out once. Residual and relu then run while the results are in
// registers. Depthwise 7x7 convolutions run on their own kernel (kernels/depthwise). So do 3x3 convolutions,
// with gradients too, if that is faster (ops/winograd.h). Otherwise it is composed of ATen operations.
#pragma once

#include <memory>

#include "ops/torch.h"

namespace tessera::ops {

struct ConvolutionParameters {
  torch::Tensor weight, bias = {};  // [out, in / groups, kernel, kernel], [out] or undefined
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};

// A batch norm with constant statistics, [channels] each.
struct ChannelNorm {
  torch::Tensor mean = {}, variance = {}, weight = {}, bias = {};
  double eps = 1e-5;
  bool defined() const { return mean.defined(); }
};

struct ConvolutionEpilogue {
  ChannelNorm norm = {};
  torch::Tensor residual = {};  // [batch, rows, columns, out], like the result, or undefined
  bool relu = false;
};

// The laid-out weights of one layer, kept with it. They are made again if a source tensor has changed (its
// memory or version), or for another type. Thread-safe.
class ConvolutionCache {
 public:
  ConvolutionCache();
  ~ConvolutionCache();
  struct Packed {
    torch::Tensor weight, bias;  // the weight is opaque
  };
  // For oneDNN: the layout depends on `shape`, the shape of x as [batch, in, height, width]. Without a shape
  // for kernels/winograd, without a type for kernels/depthwise.
  std::shared_ptr<const Packed> packed(const ConvolutionParameters& parameters, const ChannelNorm& norm,
                                       torch::ScalarType type, at::IntArrayRef shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// x [batch, rows, columns, in] -> [batch, rows', columns', out], contiguous, in the type of x, or in bfloat16
// under that autocast.
torch::Tensor convolution(const torch::Tensor& x, const ConvolutionParameters& parameters,
                          const ConvolutionEpilogue& epilogue, ConvolutionCache& cache);

// Returns the patches of images [batch, channels, height, width] as rows [batch, rows, columns, channels * patch * patch], which
// make a convolution with its kernel size as stride one product. Leaves out a border smaller than a patch. In bfloat16 on a GPU
// by one kernel, if the images need no gradient.
torch::Tensor patch_rows(const torch::Tensor& images, int64_t patch);

// The definition in ATen operations.
torch::Tensor convolution_unfused(const torch::Tensor& x, const ConvolutionParameters& parameters,
                                  const ConvolutionEpilogue& epilogue);

}  // namespace tessera::ops
