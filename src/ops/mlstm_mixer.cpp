#include "ops/mlstm_mixer.h"

#include "core/error.h"
#include "ops/mlstm.h"

namespace tessera::ops {

torch::Tensor headwise_linear(const torch::Tensor& x, const torch::Tensor& weight,
                              const torch::Tensor& bias) {
  const int64_t blocks = weight.size(0), size = weight.size(2), inner = x.size(-1);
  check(blocks * size == inner && weight.size(1) == size, "block-diagonal weight ", weight.sizes(),
        " does not fit a width of ", inner);
  // [blocks, n, size] x [blocks, size, size]^T, block by block.
  const torch::Tensor split = x.reshape({-1, blocks, size}).transpose(0, 1);
  const torch::Tensor y = torch::bmm(split, weight.transpose(1, 2)).transpose(0, 1).reshape(x.sizes());
  return bias.defined() ? y + bias : y;
}

torch::Tensor sequence_conv(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                            int64_t rows, int64_t columns) {
  const int64_t batch = x.size(0), tokens = x.size(1), inner = x.size(2), kernel = weight.size(-1);
  if (weight.dim() == 3) {  // causal
    const torch::Tensor padded = torch::constant_pad_nd(x.transpose(1, 2), {kernel - 1, 0});
    return torch::conv1d(padded, weight, bias, at::IntArrayRef{1}, at::IntArrayRef{0}, at::IntArrayRef{1},
                         inner)
        .transpose(1, 2);
  }
  check(rows * columns == tokens, "a grid of ", rows, " x ", columns, " tokens does not hold ", tokens,
        " tokens");
  const torch::Tensor grid = x.view({batch, rows, columns, inner}).permute({0, 3, 1, 2});
  return torch::conv2d(grid, weight, bias, at::IntArrayRef{1}, at::IntArrayRef{kernel / 2},
                       at::IntArrayRef{1}, inner)
      .permute({0, 2, 3, 1})
      .reshape({batch, tokens, inner});
}

torch::Tensor headwise_norm(const torch::Tensor& h, int64_t heads, const torch::Tensor& scale,
                            const torch::Tensor& bias, double eps) {
  const int64_t inner = h.size(-1);
  return torch::group_norm(h.reshape({-1, inner}), heads, scale, bias, eps).view(h.sizes());
}

torch::Tensor mlstm_mixer_unfused(const torch::Tensor& u, const MlstmMixerParameters& p,
                                  const MlstmMixerOptions& options) {
  const int64_t batch = u.size(0), tokens = u.size(1), inner = u.size(2) / 2, heads = options.heads;
  const torch::Tensor walked = options.reverse ? u.flip(1) : u;
  const torch::Tensor x = walked.slice(2, 0, inner), z = walked.slice(2, inner);
  const torch::Tensor a =
      torch::silu(sequence_conv(x.contiguous(), p.conv_weight, p.conv_bias, options.rows, options.columns));
  const torch::Tensor q = headwise_linear(a, p.q_weight, p.q_bias);
  const torch::Tensor k = headwise_linear(a, p.k_weight, p.k_bias);
  const torch::Tensor v = headwise_linear(x, p.v_weight, p.v_bias);
  const torch::Tensor qkv = torch::cat({q, k, v}, -1);
  const torch::Tensor i = torch::linear(qkv, p.input_weight, p.input_bias).transpose(1, 2);
  const torch::Tensor f = torch::linear(qkv, p.forget_weight, p.forget_bias).transpose(1, 2);
  const auto by_head = [&](const torch::Tensor& t) {
    return t.view({batch, tokens, heads, inner / heads}).transpose(1, 2);
  };
  const torch::Tensor h = mlstm_parallel(by_head(q), by_head(k), by_head(v), i, f, {.eps = options.cell_eps})
                              .transpose(1, 2)
                              .reshape({batch, tokens, inner});
  const torch::Tensor normed = headwise_norm(h, heads, p.norm_weight + 1, p.norm_bias, options.norm_eps);
  const torch::Tensor y = (normed + p.skip * a) * torch::silu(z);
  return options.reverse ? y.flip(1) : y;
}

torch::Tensor mlstm_mixer(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                          const MlstmMixerOptions& options) {
  return mlstm_mixer_unfused(u, parameters, options);
}

}  // namespace tessera::ops
