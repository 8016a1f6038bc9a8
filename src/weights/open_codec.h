// The VAE of a generator, from a weights file or a folder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/base/codec.h"

namespace tessera::train {

// A codec in evaluation mode on the CPU, in float32.
struct OpenedCodec {
  std::shared_ptr<models::Backbone> model;
  models::LatentCodec* codec = nullptr;  // the same model
  models::ModelSpec spec;
  double scale = 0;  // factor on latents; 0 = not in the file
  int64_t image_size = 256;
  std::string file, checksum;
  std::vector<std::string> notes;  // for users

  // Throws a usage error if the scale is unknown.
  double require_scale() const;
};

// Opens the VAE at `path`:
// - weights of task vae (a file or its run)
// - a CompVis checkpoint of the auto-encoder or of a whole model
// - a file or folder of diffusers (a VAE, or a pipeline with `vae` in it), with old or new names
// Settings come from the file or from config.json next to it, else from the tensors. `file_of` returns the
// weights file of
// a path that is not a diffusers folder.
OpenedCodec open_codec(const std::string& path,
                       const std::function<std::string(const std::string&)>& file_of);

// Writes a folder for diffusers' AutoencoderKL.from_pretrained: config.json with this scale, and the weights.
void save_diffusers_vae(const OpenedCodec& opened, double scale, const std::string& folder);

}  // namespace tessera::train
