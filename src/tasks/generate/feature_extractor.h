// What turns images into the numbers that generated images are measured by: Inception-v3 of FID, or any backbone.
#pragma once

#include "ops/torch.h"

#include <memory>
#include <string>

#include "data/transforms/transform.h"
#include "eval/statistics_file.h"
#include "models/backbones/inception.h"
#include "models/heads/class_head.h"
#include "tasks/base/inputs.h"

namespace tessera::tasks {

// Of a batch of images, on the CPU.
struct ImageFeatures {
  torch::Tensor pooled;         // f32 [batch, width()]
  torch::Tensor spatial;        // f32 [batch, spatial_width()]; undefined where that is 0
  torch::Tensor probabilities;  // f64 [batch, classes()]; undefined where that is 0
};

class FeatureExtractor {
 public:
  virtual ~FeatureExtractor() = default;
  // One image, of any size, as it enters extract(): one field, "image".
  virtual std::shared_ptr<const data::Transform> transform() const = 0;
  // `images` [batch, 3, height, width] of the transform.
  virtual ImageFeatures extract(const torch::Tensor& images) = 0;
  virtual int64_t width() const = 0;
  virtual int64_t spatial_width() const { return 0; }
  virtual int64_t classes() const { return 0; }
  // Two sets of features compare where these are the same.
  virtual eval::FeatureOrigin origin() const = 0;
};

struct ExtractorPlace {
  torch::Device device = torch::kCPU;
  Precision precision = Precision::fp32;
};

// `checksum` of the network's weights. Precision fp32 or fp64.
std::unique_ptr<FeatureExtractor> make_inception_extractor(std::shared_ptr<models::InceptionFid> network,
                                                           models::FidProtocol protocol,
                                                           const std::string& checksum,
                                                           const ExtractorPlace& place = {});
// The vector that a class head reads, and the probabilities of its classes if there is a head. The model is in
// evaluation mode; `name` and `checksum` say which weights it has.
std::unique_ptr<FeatureExtractor> make_backbone_extractor(std::shared_ptr<models::Backbone> backbone,
                                                          std::shared_ptr<models::Classifier> classifier,
                                                          const data::Preprocess& preprocess,
                                                          const std::string& name,
                                                          const std::string& checksum,
                                                          const ExtractorPlace& place = {});

}  // namespace tessera::tasks
