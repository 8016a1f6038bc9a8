// Images that a generator draws to be looked at or measured: the same seeds every time, so that two of its states compare.
#pragma once

#include <functional>
#include <vector>

#include "io/images/image.h"
#include "models/base/family.h"
#include "tasks/base/registry.h"
#include "tasks/generate/diffuse.h"
#include "tasks/generate/image_generator.h"

namespace tessera::tasks {

struct PictureSettings {
  SamplerName sampler = SamplerName::automatic;  // ddim, of interpolants Euler's method
  int64_t steps = 50;                            // at most those of the schedule
  double cfg = 1.5;                              // not taken where the network knows no image without a class
};

// Usage errors unless the VAE has as many channels as the network makes, and is the one of its latents as far as those say.
// `file` is the generator in errors: "'run/model.safetensors'".
void require_codec(const Generator& generator, const OpenedVae& vae, const std::string& file);
// Fails unless all numbers of decoded images [batch, …] are finite, naming the first image that is not so and the VAE's file.
void require_finite_images(const torch::Tensor& images, const std::string& file);
// Auto-encoders have pixels between -1 and 1.
const data::Preprocess& decoded_pixels();
// How many of the first channels are guided, 0 for all: the published guidance of latents leaves the fourth alone.
int64_t published_guided_channels(const models::Denoiser& network);

class GeneratorPictures {
 public:
  // `vae` decodes what a network of latents makes. Usage errors: none where there must be one, and those of require_codec().
  GeneratorPictures(const Generator& generator, models::Extent size, OpenedVae vae,
                    const PictureSettings& settings, const std::string& file);

  // Those with the seeds `first` to `first + count - 1`, classes in turn. `alive` is asked after every step; false ends
  // with ErrorKind::interrupted.
  std::vector<Image> draw(int64_t first, int64_t count, torch::Device device, Precision precision,
                          const std::function<bool()>& alive);
  int64_t label(int64_t image) const { return image % generator_.network->label_count(); }
  // "50 steps of ddim with guidance 1.5".
  std::string describe() const;

 private:
  GenerateRequest request(int64_t first, int64_t count) const;

  const Generator& generator_;
  models::Extent size_;
  OpenedVae vae_;
  double scale_ = 1;
  SamplerConfig sampler_;
  double cfg_ = 1;
};

}  // namespace tessera::tasks
