// The VAE of a generator, from a file of weights or a folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/base/codec.h"
#include "open/open_task.h"

namespace tessera::train {

// In evaluation mode on the CPU, in float32.
struct OpenedCodec {
  std::shared_ptr<models::Backbone> model;
  models::LatentCodec* codec = nullptr;  // the model as one
  models::ModelSpec spec;
  double scale = 0;  // what a generator's latents are multiplied by; 0 = the file does not say
  int64_t image_size = 256;
  std::string file, checksum;
  std::vector<std::string> notes;  // for people

  // Usage error where the scale is not known.
  double require_scale() const;
  // What tasks are given of it.
  tasks::OpenedVae for_tasks() const {
    return {.model = model, .codec = codec, .scale = scale, .file = file, .checksum = checksum};
  }
};

// `path`: weights of task vae (a file or its run), CompVis' checkpoints with or without what stands around their
// auto-encoder, files and folders that diffusers writes (a folder of the VAE, or of a pipeline with `vae` in it), with
// old or new names. Settings are those of the file or of the config.json beside it, else they follow from its tensors.
OpenedCodec open_codec(const std::string& path);

// What AutoencoderKL.from_pretrained of diffusers reads: config.json with this scale, and the weights.
void save_diffusers_vae(const OpenedCodec& opened, double scale, const std::string& folder);

}  // namespace tessera::train
