// Convolutions over a grid with channels last, [batch, rows, columns, channels], and their batch norm.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <memory>

#include "ops/convolution.h"

namespace tessera::nn {

struct Conv2dOptions {
  int64_t in = 0, out = 0, kernel = 1, stride = 1, padding = 0, dilation = 1, groups = 1;
  bool bias = false;
};

// Parameters weight [out, in / groups, kernel, kernel] and bias [out], zero until initialised.
class Conv2dImpl : public torch::nn::Module {
 public:
  explicit Conv2dImpl(const Conv2dOptions& options);
  torch::Tensor forward(const torch::Tensor& x, const ops::ConvolutionEpilogue& epilogue = {}) const;
  // Returns the number of rows (or columns) of the result for `size` of x.
  int64_t extent(int64_t size) const;
  int64_t macs() const { return weight.numel(); }  // per cell of the result
  torch::Tensor weight, bias;                      // bias is undefined without one

 private:
  Conv2dOptions options_;
  std::shared_ptr<ops::ConvolutionCache> cache_ = std::make_shared<ops::ConvolutionCache>();
};
TORCH_MODULE(Conv2d);

// A transposed convolution that expands each cell to 2 x 2: a linear layer with four outputs per channel,
// rearranged. Parameters weight [in, out, 2, 2] and bias [out], zero until initialised.
class DoublingConvolutionImpl : public torch::nn::Module {
 public:
  DoublingConvolutionImpl(int64_t in, int64_t out);
  torch::Tensor forward(const torch::Tensor& x) const;  // [batch, 2 rows, 2 columns, out]
  int64_t macs() const { return weight.numel(); }       // per cell of x
  torch::Tensor weight, bias;
};
TORCH_MODULE(DoublingConvolution);

struct BatchNorm2dOptions {
  double eps = 1e-5;
  double momentum = 0.1;  // weight of one step in the running statistics
};

// Batch norm of each channel (Ioffe & Szegedy 2015): parameters weight, bias, buffers running_mean,
// running_var. Training uses the mean and (biased) variance of the samples that this process computes at a
// time. The running statistics move towards them by the momentum, with the variance times n / (n - 1), once
// per step even if a block is recomputed. Inference uses the running statistics. The trainer averages them
// over processes.
class BatchNorm2dImpl : public torch::nn::Module {
 public:
  explicit BatchNorm2dImpl(int64_t channels, const BatchNorm2dOptions& options = {});
  torch::Tensor forward(const torch::Tensor& x);
  // Returns the norm with its running statistics.
  ops::ChannelNorm fixed() const { return {running_mean, running_var, weight, bias, options_.eps}; }
  const BatchNorm2dOptions& options() const { return options_; }
  torch::Tensor weight, bias, running_mean, running_var;

 private:
  BatchNorm2dOptions options_;
};
TORCH_MODULE(BatchNorm2d);

// relu(norm(conv(x)) + residual); residual and relu are optional.
torch::Tensor convolve(const Conv2d& conv, const BatchNorm2d& norm, const torch::Tensor& x, bool relu = true,
                       const torch::Tensor& residual = {});

// Means over adjacent windows of `size` x `size` cells; drops a last incomplete window.
torch::Tensor average_cells(const torch::Tensor& x, int64_t size);

}  // namespace tessera::nn
