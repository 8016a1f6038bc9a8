// Images from noise by a trained network: one seed an image, so that an image is the same whatever its batch.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <span>
#include <vector>

#include "models/denoiser.h"
#include "tasks/noise_process.h"

namespace tessera::tasks {

struct GenerateRequest {
  std::vector<uint64_t> seeds;    // one an image
  torch::Tensor labels;           // [images] int64, the network's null label for none
  int64_t height = 0, width = 0;  // of the network's input
  diffusion::Guidance guidance;
  SamplerConfig sampler;

  // Where there is an image to begin with, [images, channels, height, width] as the network has them: the share of the
  // steps that are walked from it with noise on top.
  torch::Tensor start = {};
  double strength = 1;
  // What is to stay of an image: `known` as `start`, where `mask` [1 or images, 1, height, width] is 0.
  torch::Tensor known = {}, mask = {};

  // Called after every step with x as it is then; returning false ends with ErrorKind::interrupted.
  std::function<bool(int64_t step, int64_t steps, const torch::Tensor& x)> after = {};
};

struct Generated {
  torch::Tensor images;     // [images, channels, height, width] float, on the network's device
  int64_t evaluations = 0;  // calls of the network
};

// Standard normal noise for each seed, [seeds, shape…] float32 on the CPU; `draw` tells draws of a seed apart.
torch::Tensor seeded_noise(std::span<const uint64_t> seeds, std::vector<int64_t> shape, const char* purpose,
                           uint64_t draw);

// Usage errors: a label the network does not have, sides of no whole patch, a mask or image of another size.
Generated generate_images(models::Denoiser& network, const NoiseProcess& process,
                          const GenerateRequest& request, torch::Device device);

// The network with guidance, as samplers call it.
diffusion::Network guided_network(models::Denoiser& network, const NoiseProcess& process,
                                  const torch::Tensor& labels, const diffusion::Guidance& guidance);

}  // namespace tessera::tasks
