#include "analysis/attention.h"

#include <algorithm>

#include "core/error.h"
#include "core/threads.h"

namespace tessera::analysis {
namespace {

torch::Tensor fused(const torch::Tensor& layer, HeadFusion fusion) {
  switch (fusion) {
    case HeadFusion::max:
      return layer.amax(1);
    case HeadFusion::min:
      return layer.amin(1);
    case HeadFusion::mean:
      break;
  }
  return layer.mean(1);
}

torch::Tensor identity_like(const torch::Tensor& matrix) {
  return torch::eye(matrix.size(-1), matrix.options()).expand_as(matrix);
}

void check_layers(const std::vector<torch::Tensor>& layers) {
  check(!layers.empty(), "attention maps: there is no layer with attention");
  for (const torch::Tensor& layer : layers)
    check(layer.dim() == 4 && layer.size(2) == layer.size(3) && layer.size(2) == layers[0].size(2),
          "attention maps: a layer ", layer.sizes(), ", must be [batch, heads, tokens, tokens] with ",
          layers[0].size(2), " tokens");
}

// Each thread computes one matrix [..., rows, columns]: a single matrix is too small for several threads.
torch::Tensor singular_values(const torch::Tensor& matrices) {
  const torch::Tensor wide = matrices.detach().to(torch::kCPU, torch::kFloat64);
  const torch::Tensor each = wide.reshape({-1, wide.size(-2), wide.size(-1)});
  const int64_t count = std::min(wide.size(-2), wide.size(-1));
  torch::Tensor values = torch::empty({each.size(0), count}, torch::kFloat64);
  auto* out = values.mutable_data_ptr<double>();
  parallel_for(each.size(0), 1, [&](int64_t begin, int64_t end) {
    const torch::NoGradGuard no_grad;  // thread-local
    for (int64_t i = begin; i < end; ++i) {
      const torch::Tensor found = torch::linalg_svdvals(each[i]).contiguous();
      std::copy_n(found.const_data_ptr<double>(), count, out + i * count);
    }
  });
  std::vector<int64_t> shape = wide.sizes().vec();
  shape.pop_back();
  shape.back() = count;
  return values.view(shape);
}

}  // namespace

AttentionRank attention_rank(const torch::Tensor& attention, double threshold) {
  AttentionRank out;
  out.singular_values = singular_values(attention);
  const torch::Tensor whole = out.singular_values.sum(-1, /*keepdim=*/true);
  out.cumulative = out.singular_values.cumsum(-1) / whole;
  const int64_t tokens = out.cumulative.size(-1);
  out.rank = (out.cumulative.lt(threshold).sum(-1) + 1).clamp_max(tokens);
  return out;
}

torch::Tensor attention_distance(const torch::Tensor& attention, const TokenLayout& layout, double patch) {
  const int64_t first = layout.first_patch, end = first + layout.patches();
  check(attention.size(-1) >= end && attention.size(-2) >= end, "attention ", attention.sizes(), " has no ",
        layout.rows, "x", layout.columns, " patches from ", first, " on");
  const auto numbers = torch::TensorOptions(torch::kFloat64).device(attention.device());
  const torch::Tensor place = torch::arange(layout.patches(), numbers);
  const torch::Tensor row = (place / layout.columns).floor(), column = place - row * layout.columns;
  const torch::Tensor apart =
      ((row.unsqueeze(0) - row.unsqueeze(1)).square() + (column.unsqueeze(0) - column.unsqueeze(1)).square())
          .sqrt() *
      patch;
  torch::Tensor among = attention.slice(-2, first, end).slice(-1, first, end).to(torch::kFloat64);
  among = among / among.sum(-1, true).clamp_min(1e-300);
  return (among * apart).sum(-1).mean(-1);
}

torch::Tensor attention_entropy(const torch::Tensor& attention) {
  const torch::Tensor weights = attention.to(torch::kFloat64);
  return -torch::xlogy(weights, weights).sum(-1);
}

torch::Tensor rollout(const std::vector<torch::Tensor>& layers, HeadFusion fusion) {
  check_layers(layers);
  torch::Tensor product;
  for (const torch::Tensor& layer : layers) {
    torch::Tensor step = fused(layer, fusion);
    step = (step + identity_like(step)) / 2;
    step = step / step.sum(-1, true);
    product = product.defined() ? step.matmul(product) : step;
  }
  return product;
}

torch::Tensor relevance(const std::vector<torch::Tensor>& layers,
                        const std::vector<torch::Tensor>& gradients) {
  check_layers(layers);
  check(layers.size() == gradients.size(), "relevance: ", layers.size(), " layers with ", gradients.size(),
        " gradients");
  torch::Tensor relevant;
  for (size_t i = 0; i < layers.size(); ++i) {
    const torch::Tensor step = (layers[i] * gradients[i]).clamp_min(0).mean(1);
    if (!relevant.defined()) relevant = identity_like(step);
    relevant = relevant + step.matmul(relevant);
  }
  return relevant;
}

torch::Tensor attention_gradcam(const torch::Tensor& attention, const torch::Tensor& gradient,
                                const TokenLayout& layout) {
  return patches_seen((attention * gradient).mean(1).clamp_min(0), layout);
}

torch::Tensor patches_seen(const torch::Tensor& matrix, const TokenLayout& layout) {
  const torch::Tensor row = layout.class_token >= 0 ? matrix.select(-2, layout.class_token) : matrix.mean(-2);
  return row.slice(-1, layout.first_patch, layout.first_patch + layout.patches());
}

torch::Tensor magnitudes_of_sum_one(const torch::Tensor& mixing) {
  const torch::Tensor magnitude = mixing.abs(), sum = magnitude.sum(-1, /*keepdim=*/true);
  return magnitude / torch::where(sum > 0, sum, torch::ones_like(sum));
}

Walk walk_of(const torch::Tensor& mixing) {
  if (mixing.triu(1).count_nonzero().item<int64_t>() == 0) return Walk::forwards;
  if (mixing.tril(-1).count_nonzero().item<int64_t>() == 0) return Walk::backwards;
  return Walk::other;
}

}  // namespace tessera::analysis
