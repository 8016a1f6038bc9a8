// Discrete autoencoders: images to a grid of tokens, and back. Two ways to discretise an encoder's output:
//
//   scores     (Ramesh et al. 2021, DALL-E) the encoder scores the codes; the decoder reads
//              softmax((scores + g) / tau) C, g Gumbel noise, tau falling from `temperature` to
//              `temperature_end`;  loss = -log p(x) + w KL(softmax(scores) || uniform)
//   nearest    (van den Oord et al. 2017, VQ-VAE) the encoder outputs vectors z; the decoder reads the
//              nearest code q, with straight-through gradients to z;  loss = -log p(x) + beta (z - sg q)^2;
//              the codes are moving averages of the z nearest to them
// p is logit-Laplace, or for loss = "mse" a Gaussian of unit variance, up to a constant. The model selects
// the way: model.codebook = 0, or the number of codes. Pixels require preprocess.mean = 0 and std = 1.
//
// A sample is an image. The weights are tokenisers for task darl's objective "tokens".
#pragma once

#include <cstdint>

#include "tasks/base/registry.h"

namespace tessera::tasks {

enum class DvaeLoss { logit_laplace, mse };

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::DvaeLoss> {
  static constexpr std::array names = {"logit_laplace", "mse"};
};

namespace tessera::tasks {

struct DvaeConfig {
  DvaeLoss loss = DvaeLoss::logit_laplace;
  int64_t code_width = 128;
  double temperature = 1, temperature_end = 0.0625;
  int64_t temperature_steps = 150000;
  bool hard = false;
  double kl_weight = 6.6;
  int64_t kl_steps = 5000;
  double commitment = 0.25, decay = 0.99;

  template <class V>
  void visit(V& v) {
    v("loss", loss, choice<DvaeLoss>(), "of pixels: DALL-E's logit-Laplace likelihood, or the squared error");
    v("code_width", code_width, between(1, 65536),
      "scores: width of a code's vector in the decoder (nearest: that of the encoder's outputs)");
    v("temperature", temperature, above(0), "scores: for the relaxed samples, at the start");
    v("temperature_end", temperature_end, above(0), "scores: for the relaxed samples, at the end");
    v("temperature_steps", temperature_steps, at_least(0),
      "scores: steps from one to the other, by a cosine");
    v("hard", hard, "scores: the decoder reads one code, with the gradient of the relaxed sample");
    v("kl_weight", kl_weight, at_least(0),
      "scores: weight of the divergence from equal shares, of a cell's pixels together");
    v("kl_steps", kl_steps, at_least(0), "scores: steps over which that weight rises from 0");
    v("commitment", commitment, at_least(0), "nearest: weight of the outputs' distance from their codes");
    v("decay", decay, from_to_below(0, 1), "nearest: decay of the codes' moving averages");
  }
};

// Falls from `begin` at step 0 to `end` at `steps` along half a cosine, then stays at `end`.
double dvae_annealed(double begin, double end, int64_t step, int64_t steps);

TaskKind dvae_kind();

}  // namespace tessera::tasks
