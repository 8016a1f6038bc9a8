#include "analysis/embedding.h"

#include <algorithm>

#include "core/error.h"
#include "eval/tsne.h"

namespace tessera::analysis {

PrincipalComponents principal_components(const torch::Tensor& x, int64_t count) {
  check(x.dim() == 2 && x.size(0) > 1, "principal components of ", x.sizes(),
        ": there must be two samples [samples, width] at least");
  const int64_t most = std::min({count, x.size(0), x.size(1)});
  const torch::Tensor wide = x.detach().to(torch::kCPU, torch::kFloat64), centred = wide - wide.mean(0);
  const auto [u, s, vh] = torch::linalg_svd(centred, /*full_matrices=*/false);
  PrincipalComponents out;
  const torch::Tensor rows = vh.slice(0, 0, most);
  const torch::Tensor largest = rows.gather(1, rows.abs().argmax(1, /*keepdim=*/true));
  out.components = rows * torch::where(largest < 0, -torch::ones_like(largest), torch::ones_like(largest));
  out.scores = centred.mm(out.components.t());
  const double whole = s.square().sum().item<double>();
  for (int64_t i = 0; i < most; ++i) {
    const double square = s[i].square().item<double>();
    out.variance.push_back(square / static_cast<double>(x.size(0) - 1));
    out.variance_share.push_back(whole > 0 ? square / whole : 0);
  }
  return out;
}

torch::Tensor tsne_places(const torch::Tensor& features, double perplexity, int64_t steps, uint64_t seed,
                          double* divergence) {
  const torch::Tensor x = features.detach().to(torch::kCPU, torch::kFloat32).contiguous();
  const torch::Tensor scores = principal_components(x, 2).scores;
  const torch::Tensor deviation = scores.select(1, 0).std().clamp_min(1e-300);
  torch::Tensor start = (scores / deviation * 1e-4).contiguous();
  if (start.size(1) < 2) start = torch::cat({start, torch::zeros_like(start)}, 1).contiguous();
  const auto span = [](const torch::Tensor& t, auto* first) {
    return std::span(first, static_cast<size_t>(t.numel()));
  };
  const eval::TsneMap map = eval::tsne(span(x, x.const_data_ptr<float>()), x.size(0), x.size(1),
                                       span(start, start.const_data_ptr<double>()),
                                       {.steps = steps, .perplexity = perplexity, .seed = seed});
  if (divergence) *divergence = map.kl;
  return torch::tensor(map.places, torch::kFloat64).view({x.size(0), 2});
}

}  // namespace tessera::analysis
