// Images generated from noise: `tessera generate`, and generators that are served.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "answer/image_rows.h"
#include "diffusion/noise_process.h"
#include "models/base/denoiser.h"
#include "models/base/family.h"
#include "tasks/generate/diffuse.h"
#include "tasks/generate/image_generator.h"
#include "weights/open_codec.h"

namespace tessera::answer {

// Sampling of tokens: an option for some weights of task darl.
template <class V>
void visit_temperature(V& v, double& temperature) {
  v("temperature", temperature, {.range = between(0.01, 100), .only_for = "weights that draw tokens"},
    "weights that draw tokens: below 1 likely ones are drawn more often");
}

// The options of a generation, except for files.
struct DrawingOptions {
  static constexpr int64_t kMostImages = 10'000'000;
  static constexpr const char* kDiffuse = "networks of task diffuse";

  std::string classes, size;
  int64_t count = 0, seed = 0;
  diffusion::Guidance guidance = {.scale = 1.5};
  diffusion::SamplerConfig sampler;
  double temperature = 1;

  template <class V>
  void visit(V& v) {
    v("classes", classes, {.only_for = kDiffuse},
      "numbers or names: 207,360 or 0-9 or star, in turn; none (default: all)");
    v("count", count, {.range = between(1, kMostImages), .names = "-n"},
      "images (default: one for each class, at most 16 if no class is given)");
    v("seed", seed, "seed of the first image; each has the next");
    v("guidance", guidance, {.only_for = kDiffuse}, "");
    v("sampler", sampler, {.only_for = kDiffuse}, "");
    visit_temperature(v, temperature);
    v("size", size, {.only_for = kDiffuse},
      "side of the images in the network's own pixels, or HEIGHTxWIDTH (default: as trained)");
  }
};

// One requested image.
struct AskedImage {
  int64_t index = 0;  // among all
  uint64_t seed = 0;
  int64_t label = 0;
  std::string caption;  // its class in words; empty for a generator without names
};
// Throws a usage error for classes that the generator lacks. `check_count` is called with their number first.
std::vector<AskedImage> asked_images(const DrawingOptions& options, const tasks::Generator& generator,
                                     const std::function<void(int64_t count)>& check_count);

// Returns the network's guidance and resolved sampler. Throws a usage error for conflicting options.
// `inverts`: the sampler must map an image back to noise.
diffusion::Guidance guidance_of(const diffusion::Guidance& asked, const tasks::Generator& generator);
diffusion::SamplerConfig sampler_of(const diffusion::SamplerConfig& asked, const tasks::Generator& generator,
                                    bool inverts);

// Parse the words of an option; usage errors name it.
//
// "207,360", "0-9", names, or "none"; empty for all classes. For a name with synonyms, "tench, Tinca tinca",
// the whole name or one synonym may be given.
std::vector<int64_t> classes_of(const std::string& words, const tasks::Generator& generator,
                                const char* option);
// "256" or "256x384" (height, width); nothing for the side of training.
models::Extent size_of(const std::string& words, models::Extent trained, int64_t patch);
// The image side of the weights' training.
models::Extent trained_size(const train::WeightsInfo& info);
// "2-9" is blocks 2 to 9, counted from 0, of `blocks`; empty: all except the first and the last.
models::BlockReuse reuse_of(int64_t every, const std::string& words, int64_t blocks);

// Returns the VAE of a diffusers pipeline; "" without one.
std::string vae_of_pipeline(const std::string& weights);

// Decodes the network's output into pixels, in float32; latents by a VAE.
class Decoder {
 public:
  Decoder() = default;
  // Throws a usage error unless it is the generator's VAE. `tile`: side of tiles in pixels, 0 = no tiles.
  Decoder(train::OpenedCodec codec, const tasks::Generator& generator, const std::string& file,
          torch::Device device, int64_t tile);

  torch::Tensor decoded(const torch::Tensor& images) const;
  Image picture(const torch::Tensor& decoded, const tasks::Generator& generator) const;
  // Number of pixels per side for each position of the network's input.
  int64_t factor() const { return codec_.codec ? codec_.codec->factor() : 1; }
  const train::OpenedCodec& codec() const { return codec_; }
  double scale() const { return scale_; }

 private:
  train::OpenedCodec codec_;
  double scale_ = 1;
  int64_t tile_ = 0;
};

// Null unless the task is a generator (tasks::generator_of). Adds notes for people.
std::shared_ptr<Answerer> open_generation(const AnswerSetup& setup, const std::string& path,
                                          std::vector<std::string>& notes);

}  // namespace tessera::answer
