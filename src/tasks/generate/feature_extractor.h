// Extracts features for metrics of generated images, with FID's Inception-v3 or any backbone.
#pragma once

#include "ops/torch.h"

#include <memory>
#include <string>

#include "data/transforms/transform.h"
#include "eval/statistics_file.h"
#include "models/backbones/inception.h"
#include "models/heads/class_head.h"
#include "tasks/base/inputs.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

// Features of a batch of images, contiguous.
struct ImageFeatures {
  torch::Tensor pooled;         // f32 [batch, width()], on the network's device
  torch::Tensor spatial;        // f32 [batch, spatial_width()], there; undefined if that is 0
  torch::Tensor probabilities;  // f64 [batch, classes()], on the CPU; undefined if that is 0
};

class FeatureExtractor {
 public:
  virtual ~FeatureExtractor() = default;
  // Preprocesses one image of any size for extract(): one field, "image".
  virtual std::shared_ptr<const data::Transform> transform() const = 0;
  // `images` [batch, 3, height, width] come from the transform.
  virtual ImageFeatures extract(const torch::Tensor& images) = 0;
  virtual int64_t width() const = 0;
  virtual int64_t spatial_width() const { return 0; }
  virtual int64_t classes() const { return 0; }
  // Two sets of features are comparable if they have the same origin.
  virtual eval::FeatureOrigin origin() const = 0;
};

struct ExtractorPlace {
  torch::Device device = torch::kCPU;
  Precision precision = Precision::fp32;
};

// `checksum` is that of the network's weights. The precision is fp32 or fp64.
std::unique_ptr<FeatureExtractor> make_inception_extractor(std::shared_ptr<models::InceptionFid> network,
                                                           models::FidProtocol protocol,
                                                           const std::string& checksum,
                                                           const ExtractorPlace& place = {});
// The same of a file of FID's weights (pt_inception-2015-12-05, recognised by its tensors); null for other files.
// `key`: dictionary of a PyTorch archive, "" = the usual one.
std::unique_ptr<FeatureExtractor> open_inception(const std::string& file, models::FidProtocol protocol,
                                                 const ExtractorPlace& place = {},
                                                 const std::string& key = "");
// Extracts the input of the class head, and class probabilities if there is a head. The model must be in
// evaluation mode; `name` and `checksum` identify the weights.
std::unique_ptr<FeatureExtractor> make_backbone_extractor(std::shared_ptr<models::Backbone> backbone,
                                                          std::shared_ptr<models::Classifier> classifier,
                                                          const data::Preprocess& preprocess,
                                                          const std::string& name,
                                                          const std::string& checksum,
                                                          const ExtractorPlace& place = {});

// Opens FID's Inception-v3, or the backbone of any weights.
std::unique_ptr<FeatureExtractor> open_extractor(const WeightsOpener& opener, const std::string& path,
                                                 const ExtractorPlace& place);

}  // namespace tessera::tasks
