#include "models/base/codec.h"

#include <algorithm>

#include "core/error.h"

namespace tessera::models {
namespace {

constexpr double kLeastLogvar = -30, kMostLogvar = 20;

// A tile's side, the distance to the next tile, and the numbers of blended and kept cells, in cells of one of
// the maps.
struct Plan {
  int64_t side = 0, stride = 0;  // cells of the input
  int64_t blend = 0, keep = 0;   // cells of the output
};

Plan plan_of(const Tiles& tiles, int64_t in, int64_t out) {
  if (in < 1 || out < 1 || !(tiles.overlap >= 0 && tiles.overlap < 1))
    fail_usage("tiles of ", tiles.image_side, " pixels and ", tiles.latent_side,
               " places with an overlap of ", tiles.overlap,
               " cannot be made: sides must be positive, the overlap at least 0 and below 1");
  Plan plan{.side = in,
            .stride = static_cast<int64_t>(static_cast<double>(in) * (1 - tiles.overlap)),
            .blend = static_cast<int64_t>(static_cast<double>(out) * tiles.overlap)};
  plan.keep = out - plan.blend;
  if (plan.stride < 1) fail_usage("tiles with an overlap of ", tiles.overlap, " never advance");
  return plan;
}

// Blends the last cells of `before` into the first `blend` cells of `tile` along the axis.
void blend_from(const torch::Tensor& before, torch::Tensor& tile, int64_t axis, int64_t blend) {
  const int64_t count = std::min({blend, before.size(axis), tile.size(axis)});
  if (count == 0) return;
  std::vector<int64_t> shape(4, 1);
  shape[static_cast<size_t>(axis)] = count;
  const torch::Tensor share = (torch::arange(count, tile.options()) / static_cast<double>(count)).view(shape);
  torch::Tensor part = tile.narrow(axis, 0, count);
  const torch::Tensor end = before.narrow(axis, before.size(axis) - count, count);
  part.copy_(end.narrow(5 - axis, 0, tile.size(5 - axis)) * (1 - share) + part * share);
}

// Runs `map` over the tiles of x [batch, channels, rows, columns] and joins the results.
torch::Tensor in_tiles(const torch::Tensor& x, const Plan& plan,
                       const std::function<torch::Tensor(const torch::Tensor&)>& map) {
  std::vector<torch::Tensor> rows, above;
  for (int64_t top = 0; top < x.size(2); top += plan.stride) {
    std::vector<torch::Tensor> tiles, kept;
    const torch::Tensor band = x.narrow(2, top, std::min(plan.side, x.size(2) - top));
    for (int64_t left = 0; left < x.size(3); left += plan.stride) {
      torch::Tensor tile = map(band.narrow(3, left, std::min(plan.side, x.size(3) - left))).contiguous();
      if (!above.empty()) blend_from(above[tiles.size()], tile, 2, plan.blend);
      if (!tiles.empty()) blend_from(tiles.back(), tile, 3, plan.blend);
      tiles.push_back(tile);
      kept.push_back(tile.slice(2, 0, plan.keep).slice(3, 0, plan.keep));
    }
    rows.push_back(torch::cat(kept, 3));
    above = std::move(tiles);
  }
  return torch::cat(rows, 2);
}

}  // namespace

LatentDistribution LatentDistribution::of_moments(const torch::Tensor& moments) {
  const std::vector<torch::Tensor> halves = moments.chunk(2, 1);
  return {halves.at(0), halves.at(1).clamp(kLeastLogvar, kMostLogvar)};
}

torch::Tensor LatentDistribution::kl() const {
  return 0.5 * (mean.square() + logvar.exp() - 1 - logvar).sum({1, 2, 3});
}

LatentDistribution encode_in_tiles(LatentCodec& codec, const torch::Tensor& images, const Tiles& tiles) {
  const Plan plan = plan_of(tiles, tiles.image_side, tiles.latent_side);
  if (plan.side % codec.factor() != 0 || plan.stride % codec.factor() != 0)
    fail_usage("tiles of ", tiles.image_side, " pixels with an overlap of ", tiles.overlap,
               " do not begin on cells of the latent, which are ", codec.factor(), " pixels");
  const torch::NoGradGuard no_grad;
  return LatentDistribution::of_moments(
      in_tiles(images, plan, [&](const torch::Tensor& tile) { return codec.moments(tile); }));
}

torch::Tensor decode_in_tiles(LatentCodec& codec, const torch::Tensor& latents, const Tiles& tiles) {
  const Plan plan = plan_of(tiles, tiles.latent_side, tiles.image_side);
  const torch::NoGradGuard no_grad;
  return in_tiles(latents, plan, [&](const torch::Tensor& tile) { return codec.decode(tile); });
}

}  // namespace tessera::models
