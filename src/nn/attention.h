// Multi-head self-attention as in ViT.
#pragma once

#include "ops/torch.h"

#include <array>
#include <cstdint>
#include <string>

#include "nn/context.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/rope.h"

namespace tessera::nn {

// Extensions of softmax(q k^T / sqrt(d)) v.
struct AttentionExtras {
  Rotation rotation = {};      // rotates q and k by position
  Rotation key_rotation = {};  // rotates k if keys have other positions than queries
  // Added to the scores, broadcast to [batch, heads, queries, keys]. If the first axis n divides the batch,
  // it is repeated: sample b uses entry b modulo n.
  torch::Tensor bias = {};
  bool causal = false;       // a token sees itself and earlier tokens
  double future_weight = 1;  // factor of the probabilities of later tokens after the softmax (iLLaMA)
  // "<name>.attention": the probabilities, [batch, heads, queries, keys]. "<name>.queries", "<name>.keys":
  // [batch, heads, tokens, d] before rotation. "<name>.rotation", "<name>.key_rotation": cosines and sines,
  // [2, …].
  Taps* taps = nullptr;
  std::string name = {};
};

// Returns the extras for the `samples` of a batch, for a branch on them alone: [kept] int64, undefined = all.
AttentionExtras of_samples(const AttentionExtras& extras, const torch::Tensor& samples);

// softmax(q k^T / sqrt(d) …) v for q, k, v [batch, heads, tokens, d] (Vaswani et al. 2017); rotates q and k.
torch::Tensor attend(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                     const AttentionExtras& extras = {});

// Self-attention over all tokens. Parameters qkv, proj, and with qk_norm a LayerNorm over each head's q and
// k. `head_dim`: channels of a head, 0 = width / heads.
class AttentionImpl : public torch::nn::Module, public DividedLayer {
 public:
  AttentionImpl(int64_t width, int64_t heads, bool qkv_bias = true, bool qk_norm = false,
                bool proj_bias = true, int64_t head_dim = 0);
  // [batch, tokens, width] -> the same.
  torch::Tensor forward(const DeferredNorm& x, const AttentionExtras& extras = {},
                        const Epilogue& epilogue = {}) {
    return output(mix(x, extras), epilogue);
  }
  int64_t macs(int64_t tokens) const { return mix_macs(tokens) + tokens * output_macs(); }
  int64_t mix_macs(int64_t tokens) const;                // of mix() over one sequence
  int64_t output_macs() const { return proj_->macs(); }  // per token
  // The two halves of forward: the attended values of all heads, concatenated [batch, tokens, width]; and
  // their output projection, for any shape [..., width]. In a divided layer the width is that of this process's heads.
  torch::Tensor mix(const DeferredNorm& x, const AttentionExtras& extras = {});
  torch::Tensor output(const torch::Tensor& mixed, const Epilogue& epilogue = {});
  // Parts of these: q, k and v [batch, heads, tokens, d], not rotated; splitting [batch, tokens, width] into
  // heads; merging heads.
  std::array<torch::Tensor, 3> project(const DeferredNorm& x) { return unpack(pack(x)); }
  torch::Tensor split(const torch::Tensor& x) const;
  static torch::Tensor merge(const torch::Tensor& attended) { return attended.transpose(1, 2).flatten(2); }

  // From now on, quantises q, k, v and the probabilities to 2^bits learned levels, in a submodule `rounding`
  // (nn/quantised_attention.h); only for whole sequences.
  void quantise(int64_t bits);
  int64_t most_shares() const override { return heads_; }

 private:
  torch::Tensor pack(const DeferredNorm& x);
  torch::Tensor mix_packed(const torch::Tensor& packed, const AttentionExtras& extras);
  std::array<torch::Tensor, 3> unpack(const torch::Tensor& packed);
  int64_t heads_, head_dim_;
  Linear qkv_{nullptr}, proj_{nullptr};
  LayerNorm q_norm_{nullptr}, k_norm_{nullptr};
};
TORCH_MODULE(Attention);

}  // namespace tessera::nn
