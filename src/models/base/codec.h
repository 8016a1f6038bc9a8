// Models that turn images into maps of few channels and back: what a generator is trained on instead of pixels. They
// are no encoders of images for a class head, so they stand in a table of their own.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <vector>

#include "models/base/model.h"

namespace tessera::models {

// A normal distribution of independent numbers for every place of a latent map (Kingma & Welling 2014,
// "Auto-encoding variational Bayes").
struct LatentDistribution {
  torch::Tensor mean, logvar;  // [batch, channels, rows, columns]; logvar in [-30, 20]

  // From the moments that an encoder gives, [batch, 2 channels, rows, columns]: means, then log variances.
  static LatentDistribution of_moments(const torch::Tensor& moments);
  torch::Tensor deviation() const { return (0.5 * logvar).exp(); }
  // mean + deviation * noise
  torch::Tensor sample(const torch::Tensor& noise) const { return mean + deviation() * noise; }
  // The divergence to N(0, 1), summed over the places of each sample: [batch].
  torch::Tensor kl() const;
};

class LatentCodec {
 public:
  static constexpr const char* kAbility = "encodes images into latents and decodes them";
  virtual ~LatentCodec() = default;
  // Images [batch, 3, height, width] with values in [-1, 1], sides multiples of factor() -> moments.
  virtual torch::Tensor moments(const torch::Tensor& images) = 0;
  // Latents [batch, latent_channels(), rows, columns], not scaled, -> images.
  virtual torch::Tensor decode(const torch::Tensor& latents) = 0;
  virtual int64_t latent_channels() const = 0;
  // Pixels to a place of the latent, along each axis.
  virtual int64_t factor() const = 0;
  // What a generator's latents are multiplied by, so that their variance is about 1; 0 = not known.
  virtual double scaling_factor() const = 0;
  // Multiply-adds of decoding a latent of so many places.
  virtual int64_t decoding_macs(int64_t rows, int64_t columns) const = 0;

  LatentDistribution encode(const torch::Tensor& images) {
    return LatentDistribution::of_moments(moments(images));
  }
};

// Large images in overlapping tiles, one after another, so that memory does not grow with the image. Neighbouring
// tiles are blended linearly over `overlap` of their side. Norms and attention see one tile at a time, so that the
// result differs a little from that of the whole.
struct Tiles {
  int64_t latent_side = 64;  // of a tile, in places of the latent
  int64_t image_side = 512;  // of the same tile, in pixels
  double overlap = 0.25;
};
LatentDistribution encode_in_tiles(LatentCodec& codec, const torch::Tensor& images, const Tiles& tiles);
torch::Tensor decode_in_tiles(LatentCodec& codec, const torch::Tensor& latents, const Tiles& tiles);

// The families of codecs, beside families().
const std::vector<Family>& codec_families();

// Channels of an auto-encoder from the tensors of a file under our names: settings of autoencoder_kl but for its
// number of groups and its scale, which no tensor tells. Fails naming the tensor that is missing.
Value autoencoder_settings(const std::function<std::vector<int64_t>(const std::string& name)>& shape_of,
                           const std::string& where);

}  // namespace tessera::models
