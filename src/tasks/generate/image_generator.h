// Generates images from noise with a trained network. Each image has its own seed, whatever the batch.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <span>
#include <vector>

#include "diffusion/noise_process.h"
#include "models/base/denoiser.h"

namespace tessera::tasks {

struct GenerateRequest {
  std::vector<uint64_t> seeds;    // one per image
  torch::Tensor labels;           // [images] int64; the network's null label for no class
  int64_t height = 0, width = 0;  // the network's input size
  diffusion::Guidance guidance;
  diffusion::SamplerConfig sampler;
  models::BlockReuse reuse = {};  // unused so far

  // An optional start image, [images, channels, height, width] in the network's range. `strength` is the
  // share of the steps that run after noise was added to it.
  torch::Tensor start = {};
  double strength = 1;
  // Class to class: the classes [images] int64 of the start images. Sampling then starts not from drawn noise
  // but from the noise that the sampler maps to the image for this class, without guidance (Su et al. 2023,
  // "Dual diffusion implicit bridges").
  torch::Tensor start_labels = {};
  // Inpainting: `known`, in the form of `start`, is kept where `mask` [1 or images, 1, height, width] is 0.
  torch::Tensor known = {}, mask = {};

  // Called with the initial noise, as step -1, and after every step with the current x, which is undefined
  // during class-to-class inversion; returning false throws ErrorKind::interrupted.
  std::function<bool(int64_t step, int64_t steps, const torch::Tensor& x)> after = {};
};

struct Generated {
  torch::Tensor images;                   // [images, channels, height, width] float, on the network's device
  int64_t evaluations = 0;                // calls of the network
  double network_seconds = 0;             // seconds in the network; a GPU continues after a call returns
  int64_t blocks = 0, spared_blocks = 0;  // block evaluations: total and skipped; 0 without reuse
};

// Normal noise for each seed, [seeds, shape…] float32 on the CPU; `draw` separates draws of one seed.
torch::Tensor seeded_noise(std::span<const uint64_t> seeds, std::vector<int64_t> shape, const char* purpose,
                           uint64_t draw);

// Throws usage errors: a label that the network lacks; sides not divisible by the patch; a mask or image of
// another size; reuse with a sampler that calls the network several times a step; class to class with a
// sampler that cannot be inverted.
Generated generate_images(models::Denoiser& network, const diffusion::NoiseProcess& process,
                          const GenerateRequest& request, torch::Device device);

// The network with guidance, in the form that samplers call.
diffusion::Network guided_network(models::Denoiser& network, const diffusion::NoiseProcess& process,
                                  const torch::Tensor& labels, const diffusion::Guidance& guidance,
                                  models::BlockReuse* reuse = nullptr);

}  // namespace tessera::tasks
