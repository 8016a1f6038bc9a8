// Images generated from noise: `tessera generate`, and generators that are served.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
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

// True if the weights are a generator that Drawing takes.
bool draws_from_noise(const train::ReadyTask& model);

// Images that a drawing begins with.
struct StartingImages {
  std::string start, inpaint, mask;  // files, "" = none
  std::string from_class;            // class to class: the class of `start`
  std::optional<double> strength = {};
};

struct DrawnBatch {
  tasks::Generated generated;          // decoded, unless the network's values are kept
  std::vector<torch::Tensor> moments;  // on the way to the images, in the same form
};

// Drawings by one generator with equal settings, batch after batch. `model` must outlive it.
class Drawing {
 public:
  explicit Drawing(const train::ReadyTask& model);

  // Each throws a usage error for settings that the generator refuses. They are set in this order.
  void set_size(const std::string& words);  // as size_of()
  void set_codec(train::OpenedCodec codec, int64_t tile);
  void set_sampling(const DrawingOptions& options, bool inverts);
  void set_start(const StartingImages& images);
  void set_reuse(int64_t every, const std::string& blocks);
  void keep_values() { keeps_values_ = true; }  // the network's values: nothing is decoded

  // Draws a batch with `moments` states of the walk, evenly spaced from its begin, except the image itself. `after` is
  // that of tasks::GenerateRequest. Throws for values that are not finite.
  DrawnBatch draw(
      std::span<const AskedImage> batch, int64_t moments,
      const std::function<bool(int64_t step, int64_t steps, const torch::Tensor& x)>& after) const;
  Image picture(const torch::Tensor& image) const { return decoder_.picture(image, generator_); }

  // Returns why these settings do not read an option; "" if they do.
  std::string unread(const diffusion::SamplerConfig& sampler, const std::string& key) const;
  const tasks::Generator& generator() const { return generator_; }
  const tasks::GenerateRequest& request() const { return request_; }
  const Decoder& decoder() const { return decoder_; }
  int64_t channels() const { return generator_.network->channels(); }
  models::Extent size() const { return {request_.height, request_.width}; }  // the network's input
  int64_t factor() const { return keeps_values_ ? 1 : decoder_.factor(); }   // pixels of an image a position
  int64_t from_class() const { return from_class_; }                         // -1 = none
  int64_t steps() const { return sampler_->steps(); }
  bool sets_own_steps() const;  // by tolerances

 private:
  torch::Tensor input_of(const std::string& path) const;
  torch::Tensor input_mask(const std::string& path) const;

  const train::ReadyTask& model_;
  const tasks::Generator& generator_;
  Decoder decoder_;
  tasks::GenerateRequest request_;  // without seeds and labels
  std::shared_ptr<const diffusion::Sampler> sampler_;
  int64_t from_class_ = -1;
  bool keeps_values_ = false;
};

// Null unless the task is a generator (tasks::generator_of). Adds notes for people.
std::shared_ptr<Answerer> open_generation(const AnswerSetup& setup, const std::string& path,
                                          std::vector<std::string>& notes);

}  // namespace tessera::answer
