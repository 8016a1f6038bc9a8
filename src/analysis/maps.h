// Which places of an image a score depends on: maps, and two numbers by which maps can be told apart.
//
// A map is [batch, rows, columns] of any range; larger is more important. Images are [batch, 3, height, width].
#pragma once

#include "ops/torch.h"

#include <functional>

#include "io/images/image.h"

namespace tessera::analysis {

// The scores of the class in question, one an image: [batch]. Differentiable where a gradient is asked for.
using ScoreFunction = std::function<torch::Tensor(const torch::Tensor& images)>;

// |d score / d image|, the largest of the channels: [batch, height, width] (Simonyan et al. 2013).
torch::Tensor gradient_map(const ScoreFunction& score, const torch::Tensor& images);
// (image - baseline) times the mean gradient on the line between them, at the middles of `steps` equal parts (Sundararajan et al.
// 2017): [batch, 3, height, width], whose sum is score(image) - score(baseline) as steps grow. Exact where the score is linear.
torch::Tensor integrated_gradients(const ScoreFunction& score, const torch::Tensor& images,
                                   const torch::Tensor& baseline, int64_t steps);
// max(0, sum over channels of the mean gradient of a channel times its values) of a layer's features [batch, channels, rows,
// columns] (Selvaraju et al. 2017).
torch::Tensor gradcam(const torch::Tensor& features, const torch::Tensor& gradient);

// Areas under the score (deletion: its most important places are replaced first, so low is good; insertion: they are put back
// first, so high is good; Petsiuk et al. 2018). Places are the map's cells, replaced in `steps` equal portions: by 0, the mean
// colour of what models are fed, and put back into a blurred image. [batch] float64 each.
struct Faithfulness {
  torch::Tensor deletion, insertion;
};
Faithfulness faithfulness(const ScoreFunction& score, const torch::Tensor& images, const torch::Tensor& map,
                          int64_t steps);

// The map enlarged to the image, each in the range 0 to 1 of its own: [batch, height, width].
torch::Tensor enlarged(const torch::Tensor& map, int64_t height, int64_t width);
// The image under a map [height, width] of 0 to 1: pale gray where it is 0, red where it is 1.
Image overlay(const Image& image, const torch::Tensor& map);

}  // namespace tessera::analysis
