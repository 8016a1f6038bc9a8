// The VAE of a generator, from a file of weights or a folder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/base/codec.h"

namespace tessera::train {

// In evaluation mode on the CPU, in float32.
struct OpenedCodec {
  std::shared_ptr<models::Backbone> model;
  models::LatentCodec* codec = nullptr;  // the model as one
  models::ModelSpec spec;
  double scale = 0;  // factor on a generator's latents; 0 = not in the file
  int64_t image_size = 256;
  std::string file, checksum;
  std::vector<std::string> notes;  // for users

  // Throws a usage error if the scale is not known.
  double require_scale() const;
};

// `path`: weights of task vae (a file or its run), CompVis' checkpoints with or without what is around their auto-encoder, files
// and folders that diffusers writes (a folder of the VAE, or of a pipeline with `vae` in it), with old or new names. Settings are
// those of the file or of the config.json next to it, else they follow from its tensors. `file_of` returns the weights file of a
// path that is no folder of diffusers.
OpenedCodec open_codec(const std::string& path,
                       const std::function<std::string(const std::string&)>& file_of);

// What AutoencoderKL.from_pretrained of diffusers reads: config.json with this scale, and the weights.
void save_diffusers_vae(const OpenedCodec& opened, double scale, const std::string& folder);

}  // namespace tessera::train
