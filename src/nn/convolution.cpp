#include "nn/convolution.h"

#include "nn/init.h"
#include "nn/units.h"
#include "ops/linear.h"

namespace tessera::nn {

Conv2dImpl::Conv2dImpl(const Conv2dOptions& options) : options_(options) {
  weight = register_parameter(
      "weight", zeros({options.out, options.in / options.groups, options.kernel, options.kernel}));
  if (options.bias) bias = register_parameter("bias", zeros({options.out}));
}

torch::Tensor Conv2dImpl::forward(const torch::Tensor& x, const ops::ConvolutionEpilogue& epilogue) const {
  const auto& [in, out, kernel, stride, padding, dilation, groups, with_bias] = options_;
  return ops::convolution(x, {weight, bias, stride, padding, dilation, groups}, epilogue, *cache_);
}

int64_t Conv2dImpl::extent(int64_t size) const {
  const int64_t reach = options_.dilation * (options_.kernel - 1) + 1;
  return (size + 2 * options_.padding - reach) / options_.stride + 1;
}

DoublingConvolutionImpl::DoublingConvolutionImpl(int64_t in, int64_t out) {
  weight = register_parameter("weight", nn::zeros({in, out, 2, 2}));
  bias = register_parameter("bias", nn::zeros({out}));
}

// Outputs are in the order of the new cells, so that whole rows of channels can be moved. The reordered
// weights are packed at every call, which is cheap compared with the product over all cells.
torch::Tensor DoublingConvolutionImpl::forward(const torch::Tensor& x) const {
  const int64_t batch = x.size(0), rows = x.size(1), columns = x.size(2), out = weight.size(1);
  const torch::Tensor ordered = weight.permute({2, 3, 1, 0}).reshape({4 * out, weight.size(0)});
  ops::LinearCache packed;
  return ops::linear(x, {.weight = ordered, .bias = bias.repeat(4)}, {}, packed)
      .view({batch, rows, columns, 2, 2 * out})
      .transpose(2, 3)
      .reshape({batch, 2 * rows, 2 * columns, out});
}

BatchNorm2dImpl::BatchNorm2dImpl(int64_t channels, const BatchNorm2dOptions& options) : options_(options) {
  weight = register_parameter("weight", ones({channels}));
  bias = register_parameter("bias", zeros({channels}));
  running_mean = register_buffer("running_mean", zeros({channels}));
  running_var = register_buffer("running_var", ones({channels}));
}

torch::Tensor BatchNorm2dImpl::forward(const torch::Tensor& x) {
  const bool training = is_training(), update = training && !recomputing();
  torch::Tensor mean, variance;  // LibTorch writes them without changing their version
  if (update) mean = running_mean.clone(), variance = running_var.clone();
  if (!training) mean = running_mean, variance = running_var;
  const torch::Tensor y = torch::batch_norm(x.permute({0, 3, 1, 2}), weight, bias, mean, variance, training,
                                            options_.momentum, options_.eps, /*cudnn_enabled=*/true);
  if (update) {
    const torch::NoGradGuard no_grad;
    running_mean.copy_(mean), running_var.copy_(variance);
  }
  return y.permute({0, 2, 3, 1});
}

torch::Tensor convolve(const Conv2d& conv, const BatchNorm2d& norm, const torch::Tensor& x, bool relu,
                       const torch::Tensor& residual) {
  if (!norm->is_training()) return conv->forward(x, {norm->fixed(), residual, relu});
  torch::Tensor y = norm.ptr()->forward(conv->forward(x));
  if (residual.defined()) y = y + residual;
  return relu ? torch::relu(y) : y;
}

torch::Tensor average_cells(const torch::Tensor& x, int64_t size) {
  return torch::avg_pool2d(x.permute({0, 3, 1, 2}), size).permute({0, 2, 3, 1});
}

}  // namespace tessera::nn
