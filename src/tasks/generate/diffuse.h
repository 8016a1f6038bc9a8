// Image generation: a network learns to predict the noise of a noised image (DiT, Peebles & Xie 2023), or the
// velocity on the path from noise to it (SiT, Ma et al. 2024).
//
//   x_t = alpha_t x + sigma_t e,  t drawn for each sample, e normal, the class dropped with `label_dropout`
//   diffusion:    loss = mean (e - net(x_t, t, class))^2 + variational term of the learned variances
//   interpolants: loss = mean (alpha' x + sigma' e - net(x_t, t, class))^2
//
// A sample is an image with its class, or a stored latent. The model can be any Denoiser
// (models/base/denoiser.h); `tessera generate` draws images with it.
#pragma once

#include <optional>

#include "data/sources/latents.h"
#include "diffusion/noise_process.h"
#include "models/base/denoiser.h"
#include "tasks/base/registry.h"
#include "tasks/generate/generator_fid.h"

namespace tessera::tasks {

struct DiffuseConfig : diffusion::ProcessConfig {
  double label_dropout = 0.1;
  int64_t samples = 16, sample_steps = 50;
  double sample_cfg = 1.5;
  int64_t bits = 0;
  std::string vae = "";
  GeneratorFidConfig fid = {};

  template <class V>
  void visit(V& v) {
    ProcessConfig::visit(v);
    v("label_dropout", label_dropout, between(0, 1), "share of the samples that train without their class");
    v("samples", samples, between(0, 256), "images that the report shows, in turn of each class");
    v("sample_steps", sample_steps, between(2, 100000), "steps of their sampler");
    v("sample_cfg", sample_cfg, between(0, 100), "guidance of these images, 1 = none");
    v("bits", bits, between(0, 1 << 30),
      "validation images measured in bits a dimension, some hundred passes each; 0 = none");
    v("vae", vae,
      "stored latents: their VAE, which decodes the report's images and those of FID; empty: none are drawn");
    v("fid", fid, "FID while it trains, of images that are drawn like those of the report");
  }
};

TaskKind diffuse_kind();

// Everything needed to generate images with a trained task; used by `tessera generate`.
struct Generator {
  std::shared_ptr<models::Backbone> backbone;
  models::Denoiser* network = nullptr;
  std::shared_ptr<const diffusion::NoiseProcess> process;
  data::Preprocess preprocess;
  std::vector<std::string> class_names;  // empty if unknown
  // The VAE of its training latents; empty for pixels, or if the file does not record it.
  std::optional<data::LatentInfo> latents;
};
// Null for other tasks.
const Generator* generator_of(const Task& task);

}  // namespace tessera::tasks
