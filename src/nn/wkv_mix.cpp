#include "nn/wkv_mix.h"

#include "nn/init.h"
#include "ops/bi_wkv.h"

namespace tessera::nn {
namespace {

constexpr LayerNormOptions kKeyNorm{.eps = 1e-5};

}  // namespace

WkvMixImpl::WkvMixImpl(const WkvMixOptions& options) : options_(options) {}

torch::Tensor WkvMixImpl::add_mix(const char* name) {
  if (options_.shift_pixels == 0) return {};
  return register_parameter(name, zeros({1, 1, options_.dim}));
}

torch::Tensor WkvMixImpl::shifted(const torch::Tensor& x, const WkvGrid& grid) const {
  if (options_.shift_pixels == 0) return x;
  return ops::quad_shift(x, grid.rows, grid.columns, options_.channel_gamma, options_.shift_pixels);
}

torch::Tensor WkvMixImpl::mixed(const torch::Tensor& x, const torch::Tensor& shifted,
                                const torch::Tensor& mix) {
  return mix.defined() ? torch::lerp(shifted, x, mix.to(x.scalar_type())) : x;
}

SpatialMixImpl::SpatialMixImpl(const WkvMixOptions& options) : WkvMixImpl(options) {
  const int64_t dim = options.dim;
  decay_ = register_parameter("spatial_decay", zeros({dim}));
  first_ = register_parameter("spatial_first", zeros({dim}));
  mix_k_ = add_mix("spatial_mix_k");
  mix_v_ = add_mix("spatial_mix_v");
  mix_r_ = add_mix("spatial_mix_r");
  key_ = register_module("key", Linear(dim, dim, /*with_bias=*/false));
  value_ = register_module("value", Linear(dim, dim, /*with_bias=*/false));
  receptance_ = register_module("receptance", Linear(dim, dim, /*with_bias=*/false));
  if (options.key_norm) key_norm_ = register_module("key_norm", LayerNorm(dim, kKeyNorm));
  output_ = register_module("output", Linear(dim, dim, /*with_bias=*/false));
}

torch::Tensor SpatialMixImpl::forward(const torch::Tensor& x, const WkvGrid& grid,
                                      const Epilogue& epilogue) const {
  const torch::Tensor moved = shifted(x, grid);
  const torch::Tensor k = key_->forward(mixed(x, moved, mix_k_)),
                      v = value_->forward(mixed(x, moved, mix_v_)),
                      r = receptance_->forward(mixed(x, moved, mix_r_));
  const auto tokens = static_cast<double>(x.size(1));
  const auto wkv = options_.form == WkvForm::paper ? ops::bi_wkv : ops::bi_wkv_published;
  torch::Tensor y = wkv(decay_ / tokens, first_ / tokens, k, v);
  if (key_norm_) y = key_norm_.ptr()->forward(y);
  return output_->forward(torch::sigmoid(r) * y, epilogue);
}

int64_t SpatialMixImpl::macs() const {
  constexpr int64_t kSums = 4;  // numerator and denominator, in both directions
  return 4 * output_->macs() + kSums * options_.dim;
}

ChannelMixImpl::ChannelMixImpl(const WkvMixOptions& options) : WkvMixImpl(options) {
  mix_k_ = add_mix("spatial_mix_k");
  mix_r_ = add_mix("spatial_mix_r");
  key_ = register_module("key", Linear(options.dim, options.hidden, /*with_bias=*/false));
  if (options.key_norm) key_norm_ = register_module("key_norm", LayerNorm(options.hidden, kKeyNorm));
  receptance_ = register_module("receptance", Linear(options.dim, options.dim, /*with_bias=*/false));
  value_ = register_module("value", Linear(options.hidden, options.dim, /*with_bias=*/false));
}

torch::Tensor ChannelMixImpl::forward(const torch::Tensor& x, const WkvGrid& grid) const {
  const torch::Tensor moved = shifted(x, grid);
  torch::Tensor k = torch::square(torch::relu(key_->forward(mixed(x, moved, mix_k_))));
  if (key_norm_) k = key_norm_.ptr()->forward(k);
  return torch::sigmoid(receptance_->forward(mixed(x, moved, mix_r_))) * value_->forward(k);
}

int64_t ChannelMixImpl::macs() const { return key_->macs() + value_->macs() + receptance_->macs(); }

}  // namespace tessera::nn
