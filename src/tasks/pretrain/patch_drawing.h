// Generates images patch by patch with a trained task, for commands.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "models/backbones/next_patch.h"

namespace tessera::tasks {

struct DrawRequest {
  // Normalised images [batch, 3, height, width]. The first `known` patches of each, in the model's reading
  // order, are kept; the others are generated.
  torch::Tensor given = {};
  int64_t known = 0;
  int64_t steps = 1000;                  // in each patch's reverse chain
  double temperature = 1;                // for weights that draw tokens
  std::span<const uint64_t> seeds = {};  // one per image; an image depends only on its seed, not on the batch
  // Called after every patch with the patches done so far; returning false throws ErrorKind::interrupted.
  std::function<bool(int64_t done)> progress = {};
};

class DrawsPatches {
 public:
  static constexpr const char* kAbility = "weights that draw patches: task darl";
  virtual ~DrawsPatches() = default;
  virtual int64_t patches() const = 0;
  virtual std::array<int64_t, 2> image_size() const = 0;  // height, width
  // Returns why these weights cannot generate images ("they predict normalised pixels"); "" if they can.
  virtual std::string drawing_refusal() const = 0;
  // True if patches are sampled as tokens, so that there is a temperature but no number of steps.
  virtual bool draws_tokens() const = 0;
  // Returns the requested images, [batch, 3, height, width].
  virtual torch::Tensor draw(const DrawRequest& request) = 0;
  // Returns the images with unknown patches set to 0, the mean colour.
  virtual torch::Tensor known_part(const torch::Tensor& images, int64_t known) = 0;
};

// Returns noise of `pixels` numbers per patch for images with those seeds; the seeds must outlive it.
models::PatchNoise patch_noise_of(std::span<const uint64_t> seeds, int64_t pixels,
                                  const torch::TensorOptions& options);

}  // namespace tessera::tasks
