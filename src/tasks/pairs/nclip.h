// Contrast of images and texts without negatives (Zhou et al. 2023, "Non-contrastive learning meets language-image
// pre-training"): nCLIP, and xCLIP, which adds it to CLIP.
//
//   p = softmax(head(u) / t), q = softmax(head'(v) / t)      u, v: vectors of an image and of its text
//   loss = mean over pairs of (- sum p log q - sum q log p) / 2        alignment
//          + sharp * mean over samples of their entropy                each sample decides for few outputs
//          - spread * entropy of the mean over samples                 all outputs are used
//   the two entropies are averaged over images and texts; xCLIP = contrast * CLIP + weight * loss
//
// The heads are two linear layers with GELU between them.
#pragma once

#include "ops/torch.h"

#include <array>
#include <cstdint>

#include "core/config.h"
#include "nn/linear.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

struct NclipConfig {
  double weight = 0, contrast = 1, temperature = 1, sharp = 0.5, spread = 1;
  int64_t hidden = 4096, outputs = 32768;

  template <class V>
  void visit(V& v) {
    v("weight", weight, between(0, 1000), "factor of the loss without negatives (nCLIP), 0 = none");
    v("contrast", contrast, between(0, 1000), "factor of CLIP's loss next to it; 0 = nCLIP alone");
    v("temperature", temperature, above(0), "divisor of the heads' scores");
    v("sharp", sharp, at_least(0), "factor of the mean entropy of the samples");
    v("spread", spread, at_least(0), "factor of the entropy of their mean");
    v("hidden", hidden, between(1, 1 << 20), "width inside the heads");
    v("outputs", outputs, between(2, 1 << 22), "outputs of the heads");
  }
  bool enabled() const { return weight > 0; }
  bool alone() const { return enabled() && contrast == 0; }
};

// Parts of the loss over scores [samples, outputs] of this process.
struct NclipTerms {
  torch::Tensor cross_entropy, mean_entropy;  // sums over the samples
  torch::Tensor entropy_of_mean;              // over the `whole` samples of all processes
  // Returns the loss as a sum over `count` samples of this process.
  torch::Tensor sum(const NclipConfig& config, int64_t count) const;
};
NclipTerms nclip_terms(const torch::Tensor& images, const torch::Tensor& texts, double temperature,
                       int64_t whole, Collective& others);

// Parameters image_fc1, image_fc2, text_fc1, text_fc2.
class NclipHeads final : public torch::nn::Module {
 public:
  NclipHeads(int64_t width, const NclipConfig& config);
  void initialise(uint64_t seed);
  // Map vectors [samples, width] to scores [samples, outputs].
  torch::Tensor image(const torch::Tensor& rows) const { return scores(image_, rows); }
  torch::Tensor text(const torch::Tensor& rows) const { return scores(text_, rows); }
  int64_t macs() const { return 2 * (image_[0]->macs() + image_[1]->macs()); }

 private:
  using Head = std::array<nn::Linear, 2>;
  static torch::Tensor scores(const Head& head, const torch::Tensor& rows) {
    return head[1]->forward(head[0]->forward_gelu(rows));
  }
  Head image_{nn::Linear{nullptr}, nn::Linear{nullptr}}, text_{nn::Linear{nullptr}, nn::Linear{nullptr}};
};

}  // namespace tessera::tasks
