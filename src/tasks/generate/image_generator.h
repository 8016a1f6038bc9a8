// Images from noise by a trained network: one seed an image, so that an image is the same whatever its batch.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <span>
#include <vector>

#include "diffusion/noise_process.h"
#include "models/base/denoiser.h"

namespace tessera::tasks {

struct GenerateRequest {
  std::vector<uint64_t> seeds;    // one an image
  torch::Tensor labels;           // [images] int64, the network's null label for none
  int64_t height = 0, width = 0;  // of the network's input
  diffusion::Guidance guidance;
  SamplerConfig sampler;
  models::BlockReuse reuse = {};  // with no call yet

  // Where there is an image to begin with, [images, channels, height, width] as the network has them: the share of the
  // steps that are walked from it with noise on top.
  torch::Tensor start = {};
  double strength = 1;
  // Class to class: the classes [images] int64 of the images to begin with. What is walked from is then no drawn noise but
  // that which the sampler would have made the image of for this class, without guidance (Su et al. 2023, "Dual
  // diffusion implicit bridges").
  torch::Tensor start_labels = {};
  // What is to stay of an image: `known` as `start`, where `mask` [1 or images, 1, height, width] is 0.
  torch::Tensor known = {}, mask = {};

  // Called with the noise that is begun with, as step -1, and after every step with x as it is then, undefined on the way
  // back of class to class; returning false ends with ErrorKind::interrupted.
  std::function<bool(int64_t step, int64_t steps, const torch::Tensor& x)> after = {};
};

struct Generated {
  torch::Tensor images;                   // [images, channels, height, width] float, on the network's device
  int64_t evaluations = 0;                // calls of the network
  double network_seconds = 0;             // spent in them; a GPU goes on after a call has returned
  int64_t blocks = 0, spared_blocks = 0;  // of all calls, and those of them that did not run; 0 without reuse
};

// Standard normal noise for each seed, [seeds, shape…] float32 on the CPU; `draw` tells draws of a seed apart.
torch::Tensor seeded_noise(std::span<const uint64_t> seeds, std::vector<int64_t> shape, const char* purpose,
                           uint64_t draw);

// Usage errors: a label the network does not have, sides of no whole patch, a mask or image of another size; reuse by a
// sampler that asks the network several times a step; class to class by one that cannot be walked back.
Generated generate_images(models::Denoiser& network, const NoiseProcess& process,
                          const GenerateRequest& request, torch::Device device);

// The network with guidance, as samplers call it.
diffusion::Network guided_network(models::Denoiser& network, const NoiseProcess& process,
                                  const torch::Tensor& labels, const diffusion::Guidance& guidance,
                                  models::BlockReuse* reuse = nullptr);

}  // namespace tessera::tasks
