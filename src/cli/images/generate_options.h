// The options of `tessera generate`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "answer/generate.h"
#include "cli/base/common.h"

namespace tessera::cli {

using answer::visit_temperature;

struct GenerateOptions : ComputeOptions, answer::DrawingOptions {
  static constexpr const char* kPatches = "weights that draw tokens";

  std::string weights, model, out, part, vae, from_class, reuse_blocks;
  std::string key;
  bool raw = false, resume = false, json = false;
  int64_t batch = 16, moments = 0, reuse = 1, shard_size = 0, tile = 0;
  std::optional<double> strength;
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
    DrawingOptions::visit(v);
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

}  // namespace tessera::cli
