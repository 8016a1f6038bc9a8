#include "nn/mlstm.h"

#include <cmath>

#include "core/error.h"
#include "ops/mlstm.h"
#include "ops/mlstm_mixer.h"

namespace tessera::nn {

HeadwiseLinearImpl::HeadwiseLinearImpl(int64_t width, int64_t block, bool with_bias) {
  check(width % block == 0, "the width ", width, " must be a multiple of the block size ", block);
  weight = register_parameter("weight", zeros({width / block, block, block}));
  if (with_bias) bias = register_parameter("bias", zeros({width}));
}

torch::Tensor HeadwiseLinearImpl::forward(const torch::Tensor& x) const {
  return ops::headwise_linear(x, weight, bias);
}

MlstmCellImpl::MlstmCellImpl(int64_t width, int64_t heads, bool norm_bias) : heads_(heads) {
  check(width % heads == 0, "the inner width ", width, " must be a multiple of the number of heads ", heads);
  igate = register_module("igate", Linear(3 * width, heads));
  fgate = register_module("fgate", Linear(3 * width, heads));
  outnorm =
      register_module("outnorm", LayerNorm(width, LayerNormOptions{1e-5, norm_bias, /*residual=*/true}));
}

torch::Tensor MlstmCellImpl::forward(const torch::Tensor& q, const torch::Tensor& k,
                                     const torch::Tensor& v) const {
  const int64_t batch = q.size(0), tokens = q.size(1), width = q.size(2);
  const auto by_head = [&](const torch::Tensor& t) {
    return t.view({batch, tokens, heads_, width / heads_}).transpose(1, 2);
  };
  const torch::Tensor qkv = torch::cat({q, k, v}, -1);
  const torch::Tensor h =
      ops::mlstm_parallel(by_head(q), by_head(k), by_head(v), igate->forward(qkv).transpose(1, 2),
                          fgate->forward(qkv).transpose(1, 2));
  return ops::headwise_norm(h.transpose(1, 2).reshape({batch, tokens, width}), heads_, outnorm->scale(),
                            outnorm->bias, outnorm->eps());
}

MlstmLayerImpl::MlstmLayerImpl(const MlstmLayerOptions& options) : options_(options) {
  const int64_t inner = options.width * options.expansion;
  proj_up_ = register_module("proj_up", Linear(options.width, 2 * inner, options.proj_bias));
  q_proj_ = register_module("q_proj", HeadwiseLinear(inner, options.block, options.proj_bias));
  k_proj_ = register_module("k_proj", HeadwiseLinear(inner, options.block, options.proj_bias));
  v_proj_ = register_module("v_proj", HeadwiseLinear(inner, options.block, options.proj_bias));
  conv_ = std::make_shared<Convolution>();
  if (options.conv == "2d") {
    check(options.kernel % 2 == 1, "the 2d convolution's kernel is ", options.kernel, ", must be odd");
    register_module("conv", conv_);
    conv_->weight = conv_->register_parameter("weight", zeros({inner, 1, options.kernel, options.kernel}));
  } else {
    check(options.conv == "causal1d", "conv_kind is '", options.conv, "', must be 2d or causal1d");
    register_module("conv", std::make_shared<torch::nn::Module>())->register_module("conv", conv_);
    conv_->weight = conv_->register_parameter("weight", zeros({inner, 1, options.kernel}));
  }
  conv_->bias = conv_->register_parameter("bias", zeros({inner}));
  cell_ = register_module("mlstm_cell", MlstmCell(inner, options.heads, options.norm_bias));
  skip_ = register_parameter("learnable_skip", ones({inner}));
  proj_down_ = register_module("proj_down", Linear(inner, options.width, options.proj_bias));
}

torch::Tensor MlstmLayerImpl::forward(const torch::Tensor& x, int64_t rows, int64_t columns, bool reverse,
                                      const Tail& tail) {
  const ops::MlstmMixerParameters parameters{.conv_weight = conv_->weight,
                                             .conv_bias = conv_->bias,
                                             .q_weight = q_proj_->weight,
                                             .q_bias = q_proj_->bias,
                                             .k_weight = k_proj_->weight,
                                             .k_bias = k_proj_->bias,
                                             .v_weight = v_proj_->weight,
                                             .v_bias = v_proj_->bias,
                                             .input_weight = cell_->igate->weight,
                                             .input_bias = cell_->igate->bias,
                                             .forget_weight = cell_->fgate->weight,
                                             .forget_bias = cell_->fgate->bias,
                                             .norm_weight = cell_->outnorm->weight,
                                             .norm_bias = cell_->outnorm->bias,
                                             .skip = skip_};
  const ops::MlstmMixerOptions options{.heads = options_.heads,
                                       .rows = rows,
                                       .columns = columns,
                                       .reverse = reverse,
                                       .norm_eps = cell_->outnorm->eps()};
  return proj_down_->forward(ops::mlstm_mixer(proj_up_(x), parameters, options), tail);
}

int64_t MlstmLayerImpl::macs_per_token() const {
  return proj_up_->macs() + proj_down_->macs() + 3 * q_proj_->weight.numel() + conv_->weight.numel() +
         2 * cell_->igate->macs();
}

bool initialise_mlstm_layer(const std::string& name, const Filler& fill, const MlstmLayerOptions& options) {
  const auto width = static_cast<double>(options.width);
  if (name == "proj_up.weight" || name == "q_proj.weight" || name == "k_proj.weight" ||
      name == "v_proj.weight") {
    fill.normal(std::sqrt(2 / (5 * width)));  // Nguyen & Salazar 2019
  } else if (name == "proj_down.weight") {
    fill.normal(2 / std::sqrt(width));  // Wang & Komatsuzaki 2021, with one block
  } else if (name.starts_with("conv.")) {
    fill.fan_in_uniform(options.conv == "2d" ? options.kernel * options.kernel : options.kernel);
  } else if (name == "mlstm_cell.fgate.bias") {
    fill.linspace(3, 6);
  } else if (name == "mlstm_cell.igate.bias") {
    fill.normal(0.1);
  } else {
    return false;
  }
  return true;
}

}  // namespace tessera::nn
