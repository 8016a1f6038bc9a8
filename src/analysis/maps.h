// Maps of the regions of an image that its score depends on, and two metrics to compare maps.
//
// A map is [batch, rows, columns] of any range; larger is more important. Images are [batch, 3, height,
// width].
#pragma once

#include "ops/torch.h"

#include <functional>

#include "io/images/image.h"

namespace tessera::analysis {

// Returns the score of the chosen class for each image: [batch]. Differentiable if a gradient is needed.
using ScoreFunction = std::function<torch::Tensor(const torch::Tensor& images)>;

// Returns |d score / d image|, maximum over the channels: [batch, height, width] (Simonyan et al. 2013).
torch::Tensor gradient_map(const ScoreFunction& score, const torch::Tensor& images);
// Returns (image - baseline) times the mean gradient on the line between them, at the midpoints of `steps`
// equal parts (Sundararajan et al. 2017): [batch, 3, height, width]. Its sum converges to score(image) -
// score(baseline) with more steps, and is exact for a linear score.
torch::Tensor integrated_gradients(const ScoreFunction& score, const torch::Tensor& images,
                                   const torch::Tensor& baseline, int64_t steps);
// Returns max(0, sum over channels of a channel's mean gradient times its values) for a layer's features
// [batch, channels, rows, columns] (Selvaraju et al. 2017).
torch::Tensor gradcam(const torch::Tensor& features, const torch::Tensor& gradient);

// Areas under the score curve, [batch] float64 each (Petsiuk et al. 2018). Deletion replaces the most
// important cells first (low is good); insertion restores them first (high is good). It takes `steps` equal
// portions of the map's cells. Deletion sets them to 0, the mean colour of model inputs; insertion starts
// from a blurred image.
struct Faithfulness {
  torch::Tensor deletion, insertion;
};
Faithfulness faithfulness(const ScoreFunction& score, const torch::Tensor& images, const torch::Tensor& map,
                          int64_t steps);

// Returns the map enlarged to the image, scaled to the range 0 to 1 for each image: [batch, height, width].
torch::Tensor enlarged(const torch::Tensor& map, int64_t height, int64_t width);
// Overlays a map [height, width] with values 0 to 1 on the image: pale gray at 0, red at 1.
Image overlay(const Image& image, const torch::Tensor& map);

}  // namespace tessera::analysis
