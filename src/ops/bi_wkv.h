// Bidirectional WKV attention of Vision-RWKV (kernels/bi_wkv has its formula), and its shift of channels.
#pragma once

#include "ops/torch.h"

namespace tessera::ops {

// w and u [channels], k and v [batch, tokens, channels] -> y like v. On a CPU, floats (and lower precision as
// floats) run on the kernel; elsewhere it is composed of ATen operations. Under WholeScans, traces
// record tessera::bi_wkv(w, u, k, v) -> y.
torch::Tensor bi_wkv(const torch::Tensor& w, const torch::Tensor& u, const torch::Tensor& k,
                     const torch::Tensor& v);
// The definition in ATen operations: log2(tokens) rounds, with the largest exponent of each sum split off.
torch::Tensor bi_wkv_unfused(const torch::Tensor& w, const torch::Tensor& u, const torch::Tensor& k,
                             const torch::Tensor& v);

// Reproduces the published CUDA kernel, which differs from the formula of the paper in the exponent: another
// token has the weight e^{-|t - i| w} instead of e^{-(|t - i| - 1) w}, with further terms inside the 32
// pieces that its threads take. All pairs of tokens in ATen operations. Throws under WholeScans,
// since a trace would record one part for each sample.
torch::Tensor bi_wkv_published(const torch::Tensor& w, const torch::Tensor& u, const torch::Tensor& k,
                               const torch::Tensor& v);

// Moves four parts of the channels, int(gamma C) each, by `pixels` cells of the grid: right, left, down, up,
// with zeros at the border. Channels from int(4 gamma C) on do not move. x [batch, rows * columns, channels].
torch::Tensor quad_shift(const torch::Tensor& x, int64_t rows, int64_t columns, double gamma, int64_t pixels);

}  // namespace tessera::ops
