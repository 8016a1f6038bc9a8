// Attention by the kernels of a GPU, which the emulator runs on tensors of the CPU, against its composition in double.
#include "ops/attention.h"
#include "ops/gpu_testing.h"

namespace tessera::ops {
namespace {

using torch::Tensor;

struct AttentionCase {
  int64_t queries, keys, dim;
  bool causal = false, rotated = false;
  double future_weight = 1;
  const char *forward, *backward;
};
const AttentionCase kAttentionCases[] = {
    {20, 20, 64, false, false, 1, "attention (short64)", "attention backward (short64x64)"},
    {70, 70, 32, true, true, 1, "attention (short32)", "attention backward (short32x208)"},
    {33, 33, 40, false, true, 0.25, "attention (short64)", "attention backward (short64x64)"},
    {5, 220, 64, false, false, 1, "attention (short64)", "attention backward (short64x256)"},
};

AttentionOptions attention_options(const AttentionCase& c) {
  AttentionOptions options;
  options.causal = c.causal, options.future_weight = c.future_weight;
  if (!c.rotated) return options;
  const Tensor angles = torch::rand({c.keys, c.dim / 2}) * 6;
  options.cos = angles.cos(), options.sin = angles.sin();
  return options;
}

// The tensors' gradients and the result, of numbers in bfloat16, computed in double.
std::vector<Tensor> exact(const std::vector<Tensor>& inputs, const AttentionOptions& options) {
  std::vector<Tensor> wide;
  for (const Tensor& x : inputs) wide.push_back(x.detach().to(torch::kFloat64).requires_grad_());
  return with_gradients(wide, [&] { return attention_unfused(wide[0], wide[1], wide[2], options); });
}

TEST(GpuAttention, SeparateAndPackedAreTheDefinition) {
  for (const AttentionCase& c : kAttentionCases) {
    SCOPED_TRACE(c.backward);
    torch::manual_seed(6);
    const auto drawn = [&](int64_t tokens) {
      return torch::randn({2, tokens, 3, c.dim})
          .to(torch::kBFloat16)
          .transpose(1, 2)
          .detach()
          .requires_grad_();
    };
    const std::vector<Tensor> inputs = {drawn(c.queries), drawn(c.keys), drawn(c.keys)};
    const AttentionOptions options = attention_options(c);
    const std::vector<Tensor> want = exact(inputs, options);
    const Emulated emulated;
    const Runs runs("attention");
    expect_close(with_gradients(inputs, [&] { return attention(inputs[0], inputs[1], inputs[2], options); }),
                 want, 1e-2);
    EXPECT_EQ(runs.names(), (std::vector<std::string>{c.forward, c.backward}));
    if (c.queries != c.keys) continue;
    const Tensor qkv = torch::stack({inputs[0], inputs[1], inputs[2]}, 3)
                           .permute({0, 2, 3, 1, 4})
                           .contiguous()
                           .detach()
                           .requires_grad_();
    const auto packed = with_gradients({qkv}, [&] {
      return attention_packed(qkv, options).unflatten(2, {3, c.dim}).transpose(1, 2);
    });
    const auto part = [&](int64_t i) { return packed[0].select(2, i).transpose(1, 2); };
    expect_close({part(0), part(1), part(2), packed[1]}, want, 1e-2);
  }
}

TEST(GpuAttention, WhatNoKernelTakesIsComposed) {
  torch::manual_seed(7);
  const auto drawn = [](int64_t tokens, int64_t dim) {
    return torch::randn({1, 2, tokens, dim}).to(torch::kBFloat16);
  };
  const auto runs = [](const Tensor& q, const Tensor& k, const AttentionOptions& options) {
    const Emulated emulated;
    const Runs of_attention("attention");
    EXPECT_EQ(attention(q, k, k, options).sizes(), q.sizes());
    return of_attention.names().size();
  };
  const Tensor q = drawn(9, 64);
  EXPECT_EQ(runs(q, q, {}), 1);
  EXPECT_EQ(runs(q, q, {.bias = torch::zeros({9, 9})}), 0);
  EXPECT_EQ(runs(q, q, {.window = 3}), 0);
  EXPECT_EQ(runs(q, drawn(257, 64), {}), 0);
  EXPECT_EQ(runs(drawn(9, 60), drawn(9, 60), {}), 0);
  EXPECT_EQ(runs(q.to(torch::kFloat32), q.to(torch::kFloat32), {}), 0);
  // Wide heads have no kernel for their gradients.
  const Tensor wide = drawn(9, 128);
  EXPECT_EQ(runs(wide, wide, {}), 1);
  EXPECT_EQ(runs(wide.clone().requires_grad_(), wide, {}), 0);
}

}  // namespace
}  // namespace tessera::ops
