#include "models/base/encoder.h"

#include "core/error.h"
#include "core/recording.h"
#include "ops/gpu.h"

namespace tessera::models {

std::vector<int64_t> TokenPlaces::others() const {
  std::vector<int64_t> places;
  const auto add = [&](int64_t first, int64_t number) {
    for (int64_t i = 0; i < number; ++i) places.push_back(first + i);
  };
  add(0, before);
  add(before + patches() / 2, middle);
  add(before + middle + patches(), behind);
  return places;
}

torch::Tensor TokenPlaces::patches_of(const torch::Tensor& x) const {
  const int64_t first = before + patches() / 2;
  if (middle == 0) return x.slice(1, before, x.size(1) - behind);
  return torch::cat({x.slice(1, before, first), x.slice(1, first + middle, x.size(1) - behind)}, 1);
}

torch::Tensor TokenPlaces::map_of(const torch::Tensor& x) const {
  check(!kept.defined(), "a map needs all ", rows * columns, " patches in their places, ", patches(),
        " were kept");
  return patches_of(x).transpose(1, 2).reshape({x.size(0), x.size(2), rows, columns});
}

torch::Tensor TokenPlaces::chosen(const torch::Tensor& index) const {
  const int64_t batch = index.size(0), half = index.size(1) / 2;
  const auto range = [&](int64_t first, int64_t number) {
    return torch::arange(first, first + number, index.options()).expand({batch, -1});
  };
  const torch::Tensor patch = before + index + (index >= patches() / 2).to(torch::kInt64) * middle;
  return torch::cat({range(0, before), patch.slice(1, 0, half), range(before + patches() / 2, middle),
                     patch.slice(1, half), range(before + middle + patches(), behind)},
                    1);
}

torch::Tensor TokenPlaces::on_the_grid() const {
  check(kept.defined(), "all patches are in their places");
  TokenPlaces whole = *this;
  whole.kept = torch::Tensor();
  return whole.chosen(kept);
}

void check_index(const torch::Tensor& index, int64_t batch, int64_t patches) {
  check(
      index.dim() == 2 && index.size(0) == batch && index.size(1) > 0 && index.scalar_type() == torch::kInt64,
      "the patches to keep are ", index.scalar_type(), " ", index.sizes(), ", must be int64 [", batch,
      ", kept]");
  if (!index.is_cpu() || Recording::is_on()) return;  // no GPU waits for a look at values
  check(index.min().item<int64_t>() >= 0 && index.max().item<int64_t>() < patches, "patches ",
        index.min().item<int64_t>(), " to ", index.max().item<int64_t>(), " are to be kept, there are 0 to ",
        patches - 1);
}

torch::Tensor rows_at_places(const torch::Tensor& x, const torch::Tensor& places) {
  const torch::Tensor index = places.to(x.device()).unsqueeze(-1);
  return x.gather(1, index.expand({-1, -1, x.size(2)}));
}

nn::Rotation rotation_at_places(const nn::Rotation& rotation, const torch::Tensor& places) {
  if (!rotation.defined()) return rotation;
  torch::Tensor angles = ops::kept_on(places.device(), rotation.angles);
  const int64_t batch = places.size(0), tokens = places.size(1);
  if (angles.dim() == 4) {
    const std::vector<int64_t> shape{batch, angles.size(1), tokens, angles.size(3)};
    return {angles.gather(2, places.view({batch, 1, tokens, 1}).expand(shape)), rotation.magnitude};
  }
  if (angles.dim() == 2) angles = angles.unsqueeze(0);
  const int64_t heads = angles.size(0);
  const torch::Tensor rows = angles.index_select(1, places.flatten());
  return {rows.view({heads, batch, tokens, angles.size(2)}).transpose(0, 1), rotation.magnitude};
}

torch::Tensor bias_at_places(const torch::Tensor& bias, const torch::Tensor& places) {
  if (!bias.defined()) return bias;
  torch::Tensor four = bias;
  while (four.dim() < 4) four = four.unsqueeze(0);
  const int64_t batch = places.size(0), tokens = places.size(1), heads = four.size(1);
  check(batch % four.size(0) == 0, "a bias ", bias.sizes(), " does not fit a batch of ", batch);
  four = four.size(0) == 1 ? four.expand({batch, -1, -1, -1}) : four.repeat({batch / four.size(0), 1, 1, 1});
  const torch::Tensor index = places.to(four.device());
  if (four.size(2) > 1)
    four = four.gather(2, index.view({batch, 1, tokens, 1}).expand({-1, heads, -1, four.size(3)}));
  if (four.size(3) > 1)
    four = four.gather(3, index.view({batch, 1, 1, tokens}).expand({-1, heads, four.size(2), -1}));
  return four;
}

}  // namespace tessera::models
