// FID of a generator during training, on features of trained weights or of Inception-v3.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/config.h"
#include "data/base/source.h"
#include "diffusion/noise_process.h"
#include "eval/frechet.h"
#include "io/images/image.h"
#include "models/base/denoiser.h"
#include "tasks/base/registry.h"
#include "tasks/generate/feature_extractor.h"

namespace tessera::tasks {

struct GeneratorFidConfig {
  std::string classifier = "", data = "";
  int64_t samples = 1000, reference = 10000;
  template <class V>
  void visit(V& v) {
    v("classifier", classifier,
      "weights of the feature extractor for FID at every evaluation, or Inception-v3's; empty: no FID");
    v("data", data, "real images to compare with, as `train --data`; empty: the training images");
    v("samples", samples, between(2, 1'000'000), "images drawn for FID");
    v("reference", reference, between(2, 10'000'000), "real images to compare with, at most");
  }
};

// Opens the weights of a feature extractor.
using OpenExtractor =
    std::function<std::unique_ptr<FeatureExtractor>(const std::string& path, const ExtractorPlace& place)>;

class GeneratorFid {
 public:
  // Reads at most `config.reference` evenly spaced images of `reference`, once, at the first FID. Opens the
  // weights immediately; throws a usage error if they extract no features.
  GeneratorFid(OpenExtractor open, const GeneratorFidConfig& config,
               std::shared_ptr<const data::Source> reference);

  // Returns the distance to the images from `draw`, with indices `first` to `first + count - 1`. Calls
  // `alive` between batches; false throws ErrorKind::interrupted.
  using Draw = std::function<std::vector<Image>(int64_t first, int64_t count)>;
  double measure(const Draw& draw, torch::Device device, const std::function<bool()>& alive);

 private:
  eval::Gaussian gaussian_of(int64_t count, const Draw& images, const std::function<bool()>& alive);

  OpenExtractor open_;
  GeneratorFidConfig config_;
  std::shared_ptr<const data::Source> reference_;
  std::unique_ptr<FeatureExtractor> extractor_;
  torch::Device device_ = torch::kCPU;
  eval::Gaussian real_;
};

// Likelihood of images under a generator: negative log-likelihood in bits per dimension.

// Returns [batch] float64 for images [batch, channels, height, width] in the network's range and labels
// [batch].
// Interpolants: the density along the ordinary equation from image to noise (Song et al. 2021, section 4.3),
// with the trace of its divergence estimated by one draw of signs. Diffusion: the bound of the whole chain
// (Ho et al. 2020, eq. 5), every step once, with one draw of noise each.
//
// `levels` is 256 for 8-bit images in [-1, 1]. An interpolant dequantises them uniformly over a level, so
// bits refer to the stored values. 0 for latents: measures their density; a usage error for diffusion, where
// the bound needs levels. All draws for image i depend only on seeds[i].
torch::Tensor bits_per_dimension(models::Denoiser& network, const diffusion::NoiseProcess& process,
                                 const torch::Tensor& images, const torch::Tensor& labels,
                                 std::span<const uint64_t> seeds, int64_t levels);

}  // namespace tessera::tasks
