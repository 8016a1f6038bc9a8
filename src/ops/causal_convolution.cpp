#include "ops/selective_scan.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/mlstm_mixer/parts.h"
#include "ops/inference.h"
#include "ops/mlstm_mixer.h"
#include "ops/sequence_rows.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kTokensOfPiece = 256;

kernels::DepthwiseShape shape_of(const torch::Tensor& x, const torch::Tensor& weight, bool reverse) {
  const int64_t kernel = weight.size(2);
  return {x.size(0), 1, x.size(1), x.size(2), 1, kernel, 0, kernel - 1, reverse};
}

torch::Tensor taps_of(const torch::Tensor& weight) { return weight.detach().squeeze(1).t().contiguous(); }

kernels::TokenRows stored(const torch::Tensor& x) {
  return {x.const_data_ptr<float>(), kernels::Element::f32, x.stride(0), x.stride(1)};
}

// Calls work(piece, begin, end) for pieces of all tokens.
template <class Work>
void each_piece(int64_t tokens, const Work& work) {
  const int64_t pieces = (tokens + kTokensOfPiece - 1) / kTokensOfPiece;
  parallel_for(pieces, 1, [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece)
      work(piece, piece * kTokensOfPiece, std::min(tokens, (piece + 1) * kTokensOfPiece));
  });
}

struct ConvolutionNode : torch::autograd::Function<ConvolutionNode> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& x, const torch::Tensor& weight,
                               const std::optional<torch::Tensor>& bias, bool reverse, bool keep) {
    const torch::Tensor out = torch::empty(x.sizes(), x.options()), taps = taps_of(weight);
    torch::Tensor pre;
    if (keep) pre = torch::empty(x.sizes(), x.options());
    const int64_t row = x.size(2), sample = x.size(1) * row;
    kernels::DepthwiseForward call{shape_of(x, weight, reverse),
                                   stored(x),
                                   taps.const_data_ptr<float>(),
                                   bias ? bias->const_data_ptr<float>() : nullptr,
                                   {pre.defined() ? pre.mutable_data_ptr<float>() : nullptr, sample, row},
                                   {out.mutable_data_ptr<float>(), kernels::Element::f32, sample, row}};
    const Profiled profiled("causal convolution");
    const kernels::MixerFunctions& functions = kernels::choose(kernels::mixer_table());
    each_piece(x.size(0) * x.size(1),
               [&](int64_t, int64_t begin, int64_t end) { functions.depthwise_forward(call, begin, end); });
    ctx->save_for_backward({x, weight, pre});
    ctx->saved_data["reverse"] = reverse;
    ctx->saved_data["bias"] = bias.has_value();
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    check_first_derivative("causal_convolution");
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1];
    const torch::Tensor gpre = torch::silu_backward(gradients[0].contiguous(), saved[2]);
    const torch::Tensor gx = torch::empty(x.sizes(), x.options()), taps = taps_of(weight);
    const int64_t row = x.size(2), sample = x.size(1) * row, tokens = x.size(0) * x.size(1);
    const int64_t pieces = (tokens + kTokensOfPiece - 1) / kTokensOfPiece;
    const torch::Tensor gtaps = torch::zeros({pieces, weight.size(2), row}, x.options()),
                        gbias = torch::zeros({pieces, row}, x.options());
    const kernels::MixerFunctions& functions = kernels::choose(kernels::mixer_table());
    const Profiled profiled("causal convolution backward");
    each_piece(tokens, [&](int64_t piece, int64_t begin, int64_t end) {
      functions.depthwise_backward({shape_of(x, weight, ctx->saved_data["reverse"].toBool()),
                                    stored(x),
                                    {gpre.const_data_ptr<float>(), sample, row},
                                    taps.const_data_ptr<float>(),
                                    {nullptr, 0, 0},
                                    {gx.mutable_data_ptr<float>(), kernels::Element::f32, sample, row},
                                    gtaps.mutable_data_ptr<float>() + piece * weight.size(2) * row,
                                    gbias.mutable_data_ptr<float>() + piece * row},
                                   begin, end);
    });
    return {gx, gtaps.sum(0).t().reshape(weight.sizes()),
            ctx->saved_data["bias"].toBool() ? gbias.sum(0) : torch::Tensor(), torch::Tensor(),
            torch::Tensor()};
  }
};

void check_shapes(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  check(x.dim() == 3 && weight.dim() == 3 && weight.size(0) == x.size(2) && weight.size(1) == 1 &&
            (!bias.defined() || bias.numel() == x.size(2)),
        "causal_convolution: x ", x.sizes(), " must be [batch, tokens, channels], the weight ",
        weight.sizes(), " [channels, 1, kernel], a bias [channels]");
}

}  // namespace

torch::Tensor causal_convolution_silu_unfused(const torch::Tensor& x, const torch::Tensor& weight,
                                              const torch::Tensor& bias, bool reverse) {
  check_shapes(x, weight, bias);
  const torch::Tensor walk = reverse ? x.flip({1}) : x;
  const torch::Tensor y = torch::silu(sequence_conv(walk, weight, bias, 1, x.size(1), /*causal=*/true));
  return reverse ? y.flip({1}) : y;
}

torch::Tensor causal_convolution_silu(const torch::Tensor& x, const torch::Tensor& weight,
                                      const torch::Tensor& bias, bool reverse) {
  check_shapes(x, weight, bias);
  if (!runs_on_float_kernels(x, {weight, bias}) || x.size(1) == 0)
    return causal_convolution_silu_unfused(x, weight, bias, reverse);
  const torch::Tensor y =
      ConvolutionNode::apply(channels_adjacent(x.to(torch::kFloat32)), weight,
                             bias.defined() ? std::optional(bias.contiguous()) : std::nullopt, reverse,
                             torch::GradMode::is_enabled());
  return y.to(x.scalar_type());
}

}  // namespace tessera::ops
