#include "nn/attention.h"

#include "core/error.h"
#include "nn/layer_division.h"
#include "nn/quantised_attention.h"
#include "nn/rope.h"
#include "ops/attention.h"

namespace tessera::nn {
namespace {

bool wants(const AttentionExtras& extras, const char* value) {
  return extras.taps && extras.taps->wants(extras.name + value);
}

// True if taps need internal values, which only the composition provides.
bool tapped(const AttentionExtras& extras) {
  return wants(extras, ".attention") || wants(extras, ".queries") || wants(extras, ".keys");
}

void tap_rotation(const AttentionExtras& extras, const char* value, const Rotation& rotation) {
  if (!rotation.defined() || !wants(extras, value)) return;
  tap(extras.taps, extras.name + value,
      torch::stack({rotation.angles.cos(), rotation.angles.sin()}) * rotation.magnitude);
}

void tap_operands(const torch::Tensor& q, const torch::Tensor& k, const AttentionExtras& extras) {
  if (!extras.taps) return;
  tap(extras.taps, extras.name + ".queries", q);
  tap(extras.taps, extras.name + ".keys", k);
  tap_rotation(extras, ".rotation", extras.rotation);
  tap_rotation(extras, ".key_rotation", extras.key_rotation);
}

// Tables that the fused form does not support.
bool by_sample(const Rotation& rotation) { return rotation.defined() && rotation.angles.dim() == 4; }
bool rotates_by_sample(const AttentionExtras& extras) {
  return by_sample(extras.rotation) || by_sample(extras.key_rotation);
}

ops::AttentionOptions options_of(const AttentionExtras& extras, const torch::Tensor& q) {
  ops::AttentionOptions options{
      .bias = extras.bias, .causal = extras.causal, .future_weight = extras.future_weight};
  const auto tables = [&](const Rotation& rotation, torch::Tensor& cos, torch::Tensor& sin) {
    if (!rotation.defined()) return;
    const RotationTables of = rotation_tables(rotation, q);
    cos = of.cos, sin = of.sin;
  };
  tables(extras.rotation, options.cos, options.sin);
  tables(extras.key_rotation, options.key_cos, options.key_sin);
  return options;
}

// Returns the extras for some of the heads.
AttentionExtras of_heads(AttentionExtras extras, const Share& heads) {
  const auto cut = [&](torch::Tensor& values) {  // [(batch,) heads or 1, …, …]
    if (values.defined() && values.dim() >= 3 && values.size(-3) > 1)
      values = values.narrow(-3, heads.first, heads.count);
  };
  cut(extras.bias);
  cut(extras.rotation.angles);
  cut(extras.key_rotation.angles);
  return extras;
}

}  // namespace

AttentionExtras of_samples(const AttentionExtras& extras, const torch::Tensor& samples) {
  AttentionExtras chosen = extras;
  if (!samples.defined()) return chosen;
  for (Rotation* rotation : {&chosen.rotation, &chosen.key_rotation})
    if (by_sample(*rotation))
      rotation->angles = rotation->angles.index_select(0, samples.to(rotation->angles.device()));
  if (const torch::Tensor& bias = extras.bias; bias.defined() && bias.dim() == 4 && bias.size(0) > 1)
    chosen.bias = bias.index_select(0, samples.remainder(bias.size(0)).to(bias.device()));
  return chosen;
}

namespace {

torch::Tensor attend_tapped(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                            const AttentionExtras& extras) {
  if (rotates_by_sample(extras)) {
    AttentionExtras rest = extras;
    rest.rotation = rest.key_rotation = {};
    const Rotation& keys = extras.key_rotation.defined() ? extras.key_rotation : extras.rotation;
    return attend_tapped(rotate(q, extras.rotation), rotate(k, keys), v, rest);
  }
  if (!wants(extras, ".attention")) return ops::attention(q, k, v, options_of(extras, q));
  torch::Tensor weights;
  const torch::Tensor attended = ops::attention_unfused(q, k, v, options_of(extras, q), &weights);
  tap(extras.taps, extras.name + ".attention", weights);
  return attended;
}

}  // namespace

torch::Tensor attend(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                     const AttentionExtras& extras) {
  tap_operands(q, k, extras);
  return attend_tapped(q, k, v, extras);
}

AttentionImpl::AttentionImpl(int64_t width, int64_t heads, bool qkv_bias, bool qk_norm, bool proj_bias,
                             int64_t head_dim)
    : heads_(heads) {
  check(heads > 0 && (head_dim > 0 || width % heads == 0), "the width ", width,
        " must be a multiple of the number of heads ", heads);
  head_dim_ = head_dim > 0 ? head_dim : width / heads;
  const int64_t inner = heads * head_dim_;
  qkv_ = register_module("qkv", Linear(width, 3 * inner, qkv_bias));
  if (qk_norm) {
    q_norm_ = register_module("q_norm", LayerNorm(head_dim_));
    k_norm_ = register_module("k_norm", LayerNorm(head_dim_));
  }
  proj_ = register_module("proj", Linear(inner, width, proj_bias));
}

// [batch, tokens, 3, heads, d].
torch::Tensor AttentionImpl::pack(const DeferredNorm& x) {
  const int64_t batch = x.x.size(0), tokens = x.x.size(1);
  return qkv_(x).view({batch, tokens, 3, heads_, head_dim_});
}

std::array<torch::Tensor, 3> AttentionImpl::unpack(const torch::Tensor& packed) {
  check(!rounding_of(*this), "attention with learned step sizes needs whole sequences");
  const torch::Tensor qkv = packed.permute({2, 0, 3, 1, 4});
  if (!q_norm_) return {qkv[0], qkv[1], qkv[2]};
  return {q_norm_(qkv[0]), k_norm_(qkv[1]), qkv[2]};
}

torch::Tensor AttentionImpl::split(const torch::Tensor& x) const {
  return x.unflatten(-1, {heads_, x.size(-1) / heads_}).transpose(1, 2);
}

torch::Tensor AttentionImpl::mix(const DeferredNorm& x, const AttentionExtras& extras) {
  const LayerDivision* const division = division_of(heads_);
  if (!division || tapped(extras) || qkv_->quantised() || rounding_of(*this))
    return mix_packed(pack(x), extras);
  const Share heads = division->share_of(heads_);
  const torch::Tensor in = enter_division(x, *division);
  const torch::Tensor part =
      product(in, rows_of(qkv_->weight, qkv_->bias, heads.channels(head_dim_), /*groups=*/3));
  return mix_packed(part.view({in.size(0), in.size(1), 3, heads.count, head_dim_}), of_heads(extras, heads));
}

torch::Tensor AttentionImpl::output(const torch::Tensor& mixed, const Epilogue& epilogue) {
  const LayerDivision* const division = division_of(heads_);
  if (!division || mixed.size(-1) == proj_->weight.size(1)) return proj_->forward(mixed, epilogue);
  const Share channels = division->share_of(heads_).channels(head_dim_);
  return join_channels(mixed, proj_->weight, proj_->bias, channels, *division, epilogue);
}

// Attends with packed q, k and v [batch, tokens, 3, heads, d].
torch::Tensor AttentionImpl::mix_packed(const torch::Tensor& packed, const AttentionExtras& extras) {
  if (AttentionRoundingImpl* rounding = rounding_of(*this)) {
    const torch::Tensor qkv = packed.permute({2, 0, 3, 1, 4});
    return merge(rounding->forward(qkv[0], qkv[1], qkv[2], extras));
  }
  if (!q_norm_ && !tapped(extras) && !rotates_by_sample(extras))
    return ops::attention_packed(packed, options_of(extras, packed));
  const auto [q, k, v] = unpack(packed);
  return merge(attend(q, k, v, extras));
}

void AttentionImpl::quantise(int64_t bits) {
  // Quantisation adds norms of q and k, so there must be none from qk_norm.
  check(!q_norm_, "attention with qk_norm already has the norms that learned step sizes add");
  register_module("rounding", AttentionRounding(heads_, head_dim_, bits));
}

int64_t AttentionImpl::mix_macs(int64_t tokens) const {
  return tokens * qkv_->macs() + 2 * tokens * tokens * heads_ * head_dim_;
}

}  // namespace tessera::nn
