// The options of `tessera generate`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/base/common.h"
#include "diffusion/noise_process.h"
#include "models/base/denoiser.h"
#include "models/base/family.h"
#include "tasks/generate/diffuse.h"

namespace tessera::cli {

// Draws tokens: an option for some weights of task darl.
template <class V>
void visit_temperature(V& v, double& temperature) {
  v("temperature", temperature, {.range = between(0.01, 100), .only_for = "weights that draw tokens"},
    "weights that draw tokens: below 1 likely ones are drawn more often");
}

struct GenerateOptions : ComputeOptions {
  static constexpr int64_t kMostImages = 10'000'000;
  static constexpr const char *kDiffuse = "networks of task diffuse", *kPatches = "weights that draw tokens";

  std::string weights, model, out, classes, part, vae, size, from_class, reuse_blocks;
  std::string key;
  bool raw = false, resume = false, json = false;
  int64_t count = 0, seed = 0, batch = 16, moments = 0, reuse = 1, shard_size = 0, tile = 0;
  diffusion::Guidance guidance = {.scale = 1.5};
  diffusion::SamplerConfig sampler;
  std::optional<double> strength;
  double temperature = 1;
  std::string start, inpaint, mask;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w,--pretrained", .required = true},
      "weights of task diffuse or darl, a published DiT or SiT, or a diffusers folder");
    v("output", out, {.names = "-o", .required = true, .writes = Writes::file},
      "a grid (.png, .jpg, .webp), a folder of PNGs, a batch (.npz), or values (.npy, .safetensors)");
    v("vae", vae, {.only_for = kDiffuse},
      "VAE that decodes latents: weights of task vae, or a diffusers folder");
    v("tile", tile, {.range = between(0, 8192), .only_for = kDiffuse},
      "decode latents in tiles of this side in pixels, for large images (0: whole)");
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
    v("moments", moments, {.range = between(2, 64), .only_for = kDiffuse},
      "a row for each image: this many moments from noise to it");
    v("start", start, {.only_for = kDiffuse}, "image to image: begin with this image under noise");
    v("from_class", from_class, {.only_for = kDiffuse},
      "class to class: the class of --start; its noise is computed instead of drawn");
    v("strength", strength, {.range = above_to(0, 1), .only_for = kDiffuse},
      "--start: share of the steps to run (default: 0.7, with --from-class 1)");
    v("inpaint", inpaint, {.only_for = kDiffuse}, "keep this image except where --mask is white");
    v("mask", mask, {.only_for = kDiffuse}, "image of the same size as the drawn ones: white is drawn");
    v("reuse", reuse, {.range = between(1, 1000), .only_for = kDiffuse},
      "run the inner blocks only at every n-th step; 1 = at each");
    v("reuse_blocks", reuse_blocks, {.only_for = kDiffuse},
      "those blocks, counted from 0: 2-9 (default: all except the first and the last)");
    v("resume", resume, "continue a folder or .npz that an earlier run has begun");
    v("part", part, "2/4: the second of four processes that draw into one folder or .npz");
    v("shard_size", shard_size, between(1, kMostImages),
      "folders: shards (.tar) of this many images instead of PNGs");
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("key", key, "PyTorch archives: name of the dictionary, such as model_ema");
    v("model", model, "model name, if weights of other programs do not name it");
    v("json", json, "one JSON object");
    v("batch_size", batch, {.range = between(1, 4096), .names = "--batch"}, "images at a time");
    ComputeOptions::visit(v);
  }
};

// Returns the network's guidance and resolved sampler. Throws a usage error for options that do not go together, or that the
// sampler does not read.
diffusion::Guidance guidance_of(const GenerateOptions& options, const tasks::Generator& generator);
diffusion::SamplerConfig sampler_of(const GenerateOptions& options, const Given& given,
                                    const tasks::Generator& generator);

// Parse the words of an option; usage errors name it.
//
// "207,360", "0-9", names, or "none"; empty for all classes. A name of synonyms, "tench, Tinca tinca", may
// be given whole or as one of them.
std::vector<int64_t> classes_of(const std::string& words, const tasks::Generator& generator,
                                const char* option);
// "256" or "256x384" (height, width); nothing for the side that was trained.
models::Extent size_of(const std::string& words, models::Extent trained, int64_t patch);
// "2-9" is blocks 2 to 9, counted from 0, of `blocks`; empty: all except the first and the last.
models::BlockReuse reuse_of(int64_t every, const std::string& words, int64_t blocks);

}  // namespace tessera::cli
