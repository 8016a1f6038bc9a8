// Images drawn patch by patch by a trained task: what commands ask of it.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "models/backbones/next_patch.h"

namespace tessera::tasks {

struct DrawRequest {
  // Images as they enter the model, [batch, 3, height, width]; of each the first `known` patches, in the order
  // in which the model reads them, are kept, and the others drawn.
  torch::Tensor given = {};
  int64_t known = 0;
  int64_t steps = 1000;    // of the reverse chain of each patch
  double temperature = 1;  // of weights that draw tokens
  std::span<const uint64_t> seeds =
      {};  // one an image: what it becomes, in whatever batch, follows from its own
  // Called after every patch with those done so far; returning false ends with ErrorKind::interrupted.
  std::function<bool(int64_t done)> progress = {};
};

class DrawsPatches {
 public:
  virtual ~DrawsPatches() = default;
  virtual int64_t patches() const = 0;
  virtual std::array<int64_t, 2> image_size() const = 0;  // height, width
  // Why these weights draw no images ("they predict normalised pixels"); empty if they do.
  virtual std::string drawing_refusal() const = 0;
  // Whether a patch is drawn as a token, by its scores, so that there are no steps but a temperature.
  virtual bool draws_tokens() const = 0;
  // The images of a request, [batch, 3, height, width].
  virtual torch::Tensor draw(const DrawRequest& request) = 0;
  // Those images with patches that are not known in the colour of zeros, which is that of the mean.
  virtual torch::Tensor known_part(const torch::Tensor& images, int64_t known) = 0;
};

// Draws of patches of `pixels` numbers, for images of those seeds, which must outlive it.
models::PatchNoise patch_noise_of(std::span<const uint64_t> seeds, int64_t pixels,
                                  const torch::TensorOptions& options);

}  // namespace tessera::tasks
