// Generation of images patch by patch by a trained task, for commands.
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
  // order, are kept; the others are drawn.
  torch::Tensor given = {};
  int64_t known = 0;
  int64_t steps = 1000;                  // in each patch's reverse chain
  double temperature = 1;                // for weights that draw tokens
  std::span<const uint64_t> seeds = {};  // one per image; an image depends on its seed only, not on the batch
  // Called after every patch with the patches done so far; returning false throws ErrorKind::interrupted.
  std::function<bool(int64_t done)> progress = {};
};

class DrawsPatches {
 public:
  static constexpr const char* kAbility = "weights that draw patches: task darl";
  virtual ~DrawsPatches() = default;
  virtual int64_t patches() const = 0;
  virtual std::array<int64_t, 2> image_size() const = 0;  // height, width
  // Returns why these weights draw no images ("they predict normalised pixels"); empty if they do.
  virtual std::string drawing_refusal() const = 0;
  // True if a patch is drawn as a token from its scores, so that there is a temperature but no steps.
  virtual bool draws_tokens() const = 0;
  // Returns the images of a request, [batch, 3, height, width].
  virtual torch::Tensor draw(const DrawRequest& request) = 0;
  // Returns the images with unknown patches set to zero, the mean colour.
  virtual torch::Tensor known_part(const torch::Tensor& images, int64_t known) = 0;
};

// Noise of `pixels` numbers per patch for images with those seeds, which must outlive it.
models::PatchNoise patch_noise_of(std::span<const uint64_t> seeds, int64_t pixels,
                                  const torch::TensorOptions& options);

}  // namespace tessera::tasks
