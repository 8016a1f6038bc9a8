// A convolution over a grid with the channels last, with its batch norm and what stands behind that, as one
// operation:
//
//   y = relu(norm(conv(x)) + residual),   norm(z) = (z - mean) / sqrt(variance + eps) * weight + bias
//
// norm, residual and relu may each be absent. Without gradients on a CPU the norm is folded into the weights,
// which oneDNN lays out once (LibTorch's copy), and residual and relu happen while its results are in the
// registers. A depthwise one of 7x7 cells runs on a kernel of our own (kernels/depthwise), and so does one of 3x3
// cells, with gradients too, where that is faster (ops/winograd.h). Else ATen composes it.
#pragma once

#include <memory>

#include "ops/torch.h"

namespace tessera::ops {

struct ConvolutionParameters {
  torch::Tensor weight, bias = {};  // [out, in / groups, kernel, kernel], [out] or undefined
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};

// A batch norm with statistics that do not change, [channels] each.
struct ChannelNorm {
  torch::Tensor mean = {}, variance = {}, weight = {}, bias = {};
  double eps = 1e-5;
  bool defined() const { return mean.defined(); }
};

struct ConvolutionEpilogue {
  ChannelNorm norm = {};
  torch::Tensor residual = {};  // [batch, rows, columns, out] of the result, or undefined
  bool relu = false;
};

// The laid-out weights of one layer, kept with it; made again when a tensor that they come from has changed
// (its memory or version), or another type is asked for. May be used by several threads.
class ConvolutionCache {
 public:
  ConvolutionCache();
  ~ConvolutionCache();
  struct Packed {
    torch::Tensor weight, bias;  // the weight is opaque
  };
  // For oneDNN: `shape` of x as [batch, in, height, width], for which the layout is chosen. Without a shape for
  // kernels/winograd, without a type for kernels/depthwise.
  std::shared_ptr<const Packed> packed(const ConvolutionParameters& parameters, const ChannelNorm& norm,
                                       torch::ScalarType type, at::IntArrayRef shape);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// x [batch, rows, columns, in] -> [batch, rows', columns', out], contiguous: in the type of x, or bfloat16
// under autocast to it.
torch::Tensor convolution(const torch::Tensor& x, const ConvolutionParameters& parameters,
                          const ConvolutionEpilogue& epilogue, ConvolutionCache& cache);

// The definition in ATen operations.
torch::Tensor convolution_unfused(const torch::Tensor& x, const ConvolutionParameters& parameters,
                                  const ConvolutionEpilogue& epilogue);

}  // namespace tessera::ops
