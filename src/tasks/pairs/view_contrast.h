// Self-supervision in addition to captions (Mu et al. 2022, SLIP): pulls two views of an image together, and
// pushes them away from all other images of the batch (Chen et al. 2020, SimCLR, eq. 1).
//
//   z = head(backbone(view)) of length 1
//   loss = mean over views i of  -log exp(z_i . z_j / t) / sum over all other views k of exp(z_i . z_k / t),
//   j the other view of i's image
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "core/config.h"
#include "data/transforms/transform.h"
#include "nn/linear.h"
#include "tasks/base/whole_batch_norm.h"

namespace tessera::tasks {

struct ViewConfig {
  double weight = 0, temperature = 0.1;
  int64_t hidden = 4096, dim = 256;
  data::AugmentConfig augment = usual();

  template <class V>
  void visit(V& v) {
    v("weight", weight, between(0, 1000),
      "factor of the loss between two more views of each image (SLIP: 1), 0 = no such views");
    v("temperature", temperature, above_to(0, 100), "divisor of the views' cosines");
    v("hidden", hidden, between(1, 1 << 20), "width inside their head, an MLP of three layers");
    v("dim", dim, between(1, 65536), "width of the space that views are compared in");
    v("augment", augment, "augmentation of the views");
  }

 private:
  // Colour augmentation of SLIP; greyscale and blur as in DeiT III.
  static data::AugmentConfig usual() {
    data::AugmentConfig augment;
    augment.three_augment = true, augment.color_jitter = {0.4, 0.4, 0.4, 0.1};
    return augment;
  }
};

// Linear, norm, ReLU, linear, norm, ReLU, linear, with SLIP's names layer1, bn1, layer2, bn2, layer3. The
// norms are over the views of all processes.
class ViewHead final : public torch::nn::Module {
 public:
  ViewHead(int64_t width, const ViewConfig& config);
  void initialise(uint64_t seed);
  // Maps views [batch, width] of this process, `whole` over all processes, to unit rows [batch, dim].
  torch::Tensor forward(const torch::Tensor& x, int64_t whole, Collective& others);
  int64_t macs() const;

 private:
  nn::Linear layer1_{nullptr}, layer2_{nullptr}, layer3_{nullptr};
  std::shared_ptr<WholeBatchNorm> bn1_, bn2_;
};

// Scalars.
struct ViewLoss {
  torch::Tensor sum;    // sum over this process' images, averaged over both views, with its graph
  torch::Tensor right;  // images that match their second view best, without a graph
};
// `a` and `b`: unit views [batch, dim] of this process' images, which have global indices from `first`.
ViewLoss view_contrast(const torch::Tensor& a, const torch::Tensor& b, double temperature, int64_t first,
                       int64_t chunk, Collective& others);

}  // namespace tessera::tasks
