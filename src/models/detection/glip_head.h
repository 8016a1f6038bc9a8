// The one-stage detector of GLIP (Li et al. 2022) on a pyramid: layers of fusion (glip.h), self-attention of the tokens
// and a convolution of the cells, then for each cell its scores with the tokens, one box and its centredness.
//
//   for each layer:  v, l = fusion(v, l);  l = l + attention(l) + mlp(l);  v = relu(norm(conv(v)))
//   loss = (tokens' focal loss + 2 sum of c* (1 - GIoU) / mean c* + binary cross entropy of c with c*) / positives
//
// c* is FCOS' centredness of a cell in its object. Positive cells are chosen as in ATSS (Zhang et al. 2020): among the
// `nearest` cells to an object's centre in each level, those with an overlap of at least mean + deviation, within it. The
// published head has dynamic, deformable convolutions (DyHead) in place of ours.
#pragma once

#include "ops/torch.h"

#include <memory>
#include <vector>

#include "models/base/family.h"
#include "models/base/pyramid_neck.h"
#include "models/detection/boxes.h"
#include "models/detection/glip.h"
#include "nn/attention.h"

namespace tessera::models {

struct GlipOptions {
  int64_t width = 256, text_width = 768, inner = 2048, heads = 8, text_heads = 12, layers = 6;
  double anchor_side = 8;  // in cells
  int64_t nearest = 9;
  double alpha = 0.25, gamma = 2;
  TokenVote vote = TokenVote::mean;
};

// The objects of an image: boxes [n, 4] in pixels, labels int64 [n].
struct GlipTruth {
  torch::Tensor boxes, labels;
};

// Returns the object of each anchor, or Matches::kBackground. `levels`: anchors [n, 4] of each level.
std::vector<int64_t> atss_matches(const std::vector<torch::Tensor>& levels, const torch::Tensor& truths,
                                  int64_t nearest);

class GlipHead final : public torch::nn::Module {
 public:
  GlipHead(const GlipOptions& options, std::shared_ptr<PyramidNeck> neck);
  void initialise(uint64_t seed);

  struct Output {
    torch::Tensor scores, deltas, centredness;  // [batch, cells, tokens], [batch, cells, 4], [batch, cells]
    std::vector<torch::Tensor> anchors;         // one for each level, [n, 4] on the host
  };
  // `maps` of the backbone, [batch, channels, rows, columns]; tokens [batch, n, text_width]; mask [batch, n].
  Output forward(const std::vector<torch::Tensor>& maps, const torch::Tensor& tokens,
                 const torch::Tensor& mask);

  // Sums over this process' images, and their divisors.
  struct Losses {
    torch::Tensor tokens, boxes, centredness;
    double positives = 0, weight = 0;  // weight: sum of c*
  };
  Losses losses(const Output& output, const std::vector<GlipTruth>& truths, const TokenSpans& classes,
                const torch::Tensor& mask) const;

  struct Found {
    torch::Tensor boxes, scores, labels;
  };
  // Returns the objects of image `index`, best first: at most `most`, scores of at least `least`.
  Found detect(const Output& output, int64_t index, const TokenSpans& classes, Extent image, double least,
               double overlap, int64_t most) const;
  int64_t macs(Extent image, int64_t tokens) const;

 private:
  struct Layer {
    std::shared_ptr<GlipFusion> fusion;
    nn::LayerNorm norm1{nullptr}, norm2{nullptr};
    nn::Attention attention{nullptr};
    nn::Mlp mlp{nullptr};
    NormedConv conv{nullptr};
  };
  torch::Tensor fuse(std::vector<torch::Tensor>& pyramid, const torch::Tensor& tokens,
                     const torch::Tensor& mask);

  GlipOptions options_;
  std::shared_ptr<PyramidNeck> neck_;
  std::vector<Layer> layers_;
  std::shared_ptr<TokenAlignment> alignment_;
  NormedConv deltas_{nullptr}, centredness_{nullptr};
  torch::Tensor scales_;
  BoxCoder coder_{.weights = {10, 10, 5, 5}};
};

}  // namespace tessera::models
