// Models that turn images into maps of few channels and back: a generator is trained on these maps instead of
// pixels. They do not encode images for a class head, so they have a separate table.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <vector>

#include "models/base/model.h"

namespace tessera::models {

// A diagonal normal distribution over a latent map (Kingma & Welling 2014, "Auto-encoding variational
// Bayes").
struct LatentDistribution {
  torch::Tensor mean, logvar;  // [batch, channels, rows, columns]; logvar in [-30, 20]

  // Splits an encoder's moments [batch, 2 channels, rows, columns]: means, then log variances.
  static LatentDistribution of_moments(const torch::Tensor& moments);
  torch::Tensor deviation() const { return (0.5 * logvar).exp(); }
  // mean + deviation * noise
  torch::Tensor sample(const torch::Tensor& noise) const { return mean + deviation() * noise; }
  // Returns the KL divergence to N(0, 1), summed over each sample: [batch].
  torch::Tensor kl() const;
};

class LatentCodec {
 public:
  static constexpr const char* kAbility = "encodes images into latents and decodes them";
  virtual ~LatentCodec() = default;
  // Maps images [batch, 3, height, width] in [-1, 1], sides multiples of factor(), to moments.
  virtual torch::Tensor moments(const torch::Tensor& images) = 0;
  // Maps latents [batch, latent_channels(), rows, columns], not scaled, to images.
  virtual torch::Tensor decode(const torch::Tensor& latents) = 0;
  virtual int64_t latent_channels() const = 0;
  // Returns the pixels per cell of the latent, along each axis.
  virtual int64_t factor() const = 0;
  // Returns the factor that scales a generator's latents to a variance of about 1; 0 = unknown.
  virtual double scaling_factor() const = 0;
  // Returns the multiply-adds of decoding a latent of rows x columns cells.
  virtual int64_t decoding_macs(int64_t rows, int64_t columns) const = 0;

  LatentDistribution encode(const torch::Tensor& images) {
    return LatentDistribution::of_moments(moments(images));
  }
};

// Process large images in overlapping tiles, one at a time, so that memory does not grow with the image.
// Neighbouring tiles are blended linearly over `overlap` of their side. Norms and attention see one tile at a
// time: results differ slightly from those of the whole image.
struct Tiles {
  int64_t latent_side = 64;  // side of a tile in cells of the latent
  int64_t image_side = 512;  // side of the same tile in pixels
  double overlap = 0.25;
};
LatentDistribution encode_in_tiles(LatentCodec& codec, const torch::Tensor& images, const Tiles& tiles);
torch::Tensor decode_in_tiles(LatentCodec& codec, const torch::Tensor& latents, const Tiles& tiles);

// Returns the families of codecs, which families() does not list.
const std::vector<Family>& codec_families();

// Derives an auto-encoder's channels from the tensors of a file under our names: settings of autoencoder_kl
// except the groups and the scale, which tensors do not show. Fails with the name of a missing tensor.
Value autoencoder_settings(const std::function<std::vector<int64_t>(const std::string& name)>& shape_of,
                           const std::string& where);

}  // namespace tessera::models
