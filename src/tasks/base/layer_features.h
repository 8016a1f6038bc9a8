// Features of all blocks of a backbone for a set of images, in one pass; the input of probes.
#pragma once

#include <cstdint>
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

// How a block's output is pooled: mean of the patches, last patch, or class token (the first non-patch
// token).
enum class FeatureToken { mean, last, class_token };

struct FeatureOptions {
  std::vector<FeatureToken> tokens = {FeatureToken::mean};
  int64_t batch = 64, loader_threads = 1;
  Precision precision = Precision::fp32;
  torch::Device device = torch::kCPU;
  // Size limit of the temporary file that holds the features; a usage error reports the size needed.
  int64_t most_bytes = int64_t{4} << 30;
  // Called after every batch with the images done so far; returning false throws ErrorKind::interrupted.
  std::function<bool(int64_t done)> progress = {};
};

// The output of one block, or the input of the class head ("head").
struct LayerFeatures {
  std::string layer, token;  // "block 3", "mean"
  torch::Tensor rows;        // [images, width] float32
};
struct FeatureSet {
  std::vector<LayerFeatures> layers;
  torch::Tensor labels;    // [images] int64
  data::BadImages broken;  // left out
};

// Returns the features of every image of a source with one class each, preprocessed by `transform`. The
// backbone must be on the device and in evaluation mode.
FeatureSet collect_features(models::Backbone& backbone, const data::Source& source,
                            std::shared_ptr<const data::Transform> transform, const FeatureOptions& options);

// The feature maps that heads of dense prediction read, derived from a model's settings.

struct BackboneMaps {
  std::vector<int64_t> blocks;   // blocks that give the maps, counted from 0
  std::vector<int64_t> widths;   // channels of each map
  std::vector<int64_t> strides;  // pixels per cell side of each map
  bool stages = false;           // true: maps of a pyramid; false: all on one grid
  int64_t unit = 1;              // image sides must be multiples of it
};

// Returns the maps of the given blocks (task.blocks). If none are given: all stages, or every fourth of the
// `count` blocks. Throws a usage error for a missing block.
BackboneMaps maps_of(const models::ModelSpec& spec, const std::vector<int64_t>& asked, int64_t count);

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::FeatureToken> {
  static constexpr std::array names = {"mean", "last", "class"};
};
