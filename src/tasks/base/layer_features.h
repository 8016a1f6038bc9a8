// The features of all blocks of a backbone for a set of images, by one pass: what probes read.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/config.h"
#include "data/loading/loader.h"
#include "data/transforms/transform.h"
#include "models/base/model.h"
#include "tasks/base/inputs.h"

namespace tessera::tasks {

// What stands for an image in a block's output: the mean of its patches, the last of them, or the class token
// (the first token that is no patch).
enum class FeatureToken { mean, last, class_token };

struct FeatureOptions {
  std::vector<FeatureToken> tokens = {FeatureToken::mean};
  int64_t batch = 64, loader_threads = 1;
  Precision precision = Precision::fp32;
  torch::Device device = torch::kCPU;
  // The features lie in a file without a name; a usage error says how large it would have to be.
  int64_t most_bytes = int64_t{4} << 30;
  // Called after every batch with the images done so far; returning false ends with ErrorKind::interrupted.
  std::function<bool(int64_t done)> progress = {};
};

// One block's output, or what the class head reads ("head").
struct LayerFeatures {
  std::string layer, token;  // "block 3", "mean"
  torch::Tensor rows;        // [images, width] float32
};
struct FeatureSet {
  std::vector<LayerFeatures> layers;
  torch::Tensor labels;    // [images] int64
  data::BadImages broken;  // that were left out
};

// Of every image of a source with one class each, prepared by `transform`. The backbone is in evaluation mode
// on the device.
FeatureSet collect_features(models::Backbone& backbone, const data::Source& source,
                            std::shared_ptr<const data::Transform> transform, const FeatureOptions& options);

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::FeatureToken> {
  static constexpr std::array names = {"mean", "last", "class"};
};
