// Images generated for display or metrics, with the same seeds every time, so that two states are comparable.
#pragma once

#include <functional>
#include <vector>

#include "io/images/image.h"
#include "models/base/family.h"
#include "tasks/base/registry.h"
#include "tasks/generate/diffuse.h"
#include "tasks/generate/image_generator.h"
#include "weights/open_codec.h"

namespace tessera::tasks {

struct PictureSettings {
  diffusion::SamplerConfig sampler =
      {};            // auto: ddim, or euler for interpolants; 50 steps by default, at most the schedule's
  double cfg = 1.5;  // ignored if the network has no unconditional label
};

// Throws a usage error unless the VAE has the network's number of channels and matches the recorded VAE of
// its latents, if any. `file` names the generator in errors: "'run/model.safetensors'".
void require_codec(const Generator& generator, const train::OpenedCodec& vae, const std::string& file);
// Throws unless all decoded images [batch, …] are finite; names the first bad image and the VAE's file.
void require_finite_images(const torch::Tensor& images, const std::string& file);
// Auto-encoders of pixels have the range [-1, 1].
const data::Preprocess& decoded_pixels();
// Returns the number of leading channels to guide, 0 for all: published guidance of latents skips the fourth.
int64_t published_guided_channels(const models::Denoiser& network);

class GeneratorPictures {
 public:
  // `vae` decodes latents. Throws a usage error if it is missing, and the errors of require_codec().
  GeneratorPictures(const Generator& generator, models::Extent size, train::OpenedCodec vae,
                    const PictureSettings& settings, const std::string& file);

  // Returns the images with seeds `first` to `first + count - 1`, cycling through classes. Calls `alive`
  // after every step; false throws ErrorKind::interrupted.
  std::vector<Image> draw(int64_t first, int64_t count, torch::Device device, Precision precision,
                          const std::function<bool()>& alive);
  int64_t label(int64_t image) const { return image % generator_.network->label_count(); }
  // "50 steps of ddim with guidance 1.5".
  std::string describe() const;

 private:
  GenerateRequest request(int64_t first, int64_t count) const;

  const Generator& generator_;
  models::Extent size_;
  train::OpenedCodec vae_;
  double scale_ = 1;
  diffusion::SamplerConfig sampler_;  // resolved
  double cfg_ = 1;
};

}  // namespace tessera::tasks
