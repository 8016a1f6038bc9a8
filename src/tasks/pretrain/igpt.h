// iGPT's objectives (Chen et al. 2020, "Generative pretraining from pixels"), on the colours x_1 … x_n of an image's
// pixels, row by row:
//
//   gen    loss = mean over pixels of  -log p(x_i | start, x_1 … x_(i-1))                                   (eq. 2)
//   bert   loss = mean over the masked pixels M of  -log p(x_i | x_j, j not in M), each in M with mask_ratio (eq. 3)
// p = softmax(lm_head(last norm)). Masked pixels read as the start token. Our tables of colours are part of the model.
#pragma once

#include <cstdint>
#include <string>

#include "models/backbones/igpt.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

enum class IgptObjective { gen, bert };

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::IgptObjective> {
  static constexpr std::array names = {"gen", "bert"};
};

namespace tessera::tasks {

struct IgptConfig {
  IgptObjective objective = IgptObjective::gen;
  double mask_ratio = 0.15;
  std::string palette = {};

  template <class V>
  void visit(V& v) {
    v("objective", objective, choice<IgptObjective>(),
      "predict each pixel from those before it, or masked ones from the others");
    v("mask_ratio", mask_ratio, Range{.low = 0, .high = 1, .without_low = true, .without_high = true},
      "bert: probability that a pixel is masked");
    v("palette", palette,
      "colours [n, 3] from -1 to 1 in a .npy; \"\" = those of pretrained weights, else k-means over training "
      "images");
  }
};

// Returns the ids that gen reads: the start token, then all pixels except the last.
torch::Tensor igpt_shifted(const torch::Tensor& colours, int64_t start);
// Returns -log softmax(scores)[colour] of each pixel, [batch, pixels], of scores [batch, pixels, colours].
torch::Tensor igpt_losses(const torch::Tensor& scores, const torch::Tensor& colours);

// Palettes of colours (section 3.1): k-means over the pixels of training images, or a file.

// Returns random cells of random training images, [n, 3], normalised.
torch::Tensor palette_pixels(const TaskSetup& setup, const models::ReadsColours& reader);
// Returns the centres of `pixels` [n, 3] after Lloyd's algorithm from random distinct pixels, [colours, 3]. Throws a
// usage error if there are fewer distinct pixels.
torch::Tensor kmeans_palette(const torch::Tensor& pixels, int64_t colours, uint64_t seed);
// Reads a palette [colours, 3] from a .npy file, as published: values from -1 to 1.
torch::Tensor read_palette(const std::string& path, int64_t colours);

TaskKind igpt_kind();

}  // namespace tessera::tasks
