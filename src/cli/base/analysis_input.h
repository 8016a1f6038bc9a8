// The model and the images that an analysis looks at.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analysis/attention.h"
#include "cli/base/arguments.h"
#include "cli/base/image_model.h"
#include "data/base/source.h"
#include "models/base/model.h"
#include "models/heads/class_head.h"
#include "tasks/base/inputs.h"

namespace tessera::cli {

struct AnalysisInput {
  std::string weights, model, data, split = "validation", device = "auto", precision = "fp32";
  std::vector<std::string> images;
  int64_t count = 30, size = 0, batch = 8, threads = 0;
  bool raw = false, classes_in_order = false;
};
// --weights and where images come from; `count` images unless --images says otherwise.
void add_input_options(Arguments& command, AnalysisInput& input, int64_t count);

// What --precision may ask for: fp32 and fp64, where values inside a model are looked at, or all that scores can be computed in.
enum class AnalysisPrecisions { exact, all };

// A trained model in evaluation mode on its device.
class AnalysedModel : public ImageModel {
 public:
  explicit AnalysedModel(const AnalysisInput& input, AnalysisPrecisions allowed = AnalysisPrecisions::exact);
  models::Backbone& backbone() const { return *task().backbones().at(0).model; }
  // What gives classes scores; a usage error where the task has none.
  models::Classifier& classifier() const;
  std::vector<std::string> class_names() const;  // empty where the weights name none
  // The places of tokens for images of that shape; a usage error where the model has no one sequence of tokens.
  analysis::TokenLayout layout(const torch::Tensor& images) const;
  bool has_layout() const;
  // Values at the taps that `wanted` names, of one forward pass.
  std::map<std::string, torch::Tensor> tapped(const torch::Tensor& images,
                                              const std::function<bool(const std::string&)>& wanted) const;
};

// Images that were prepared as the weights ask.
struct AnalysedImages {
  torch::Tensor images;  // [count, 3, height, width] on the model's device
  std::vector<std::string> names;
  std::vector<int64_t> labels;         // -1 where there is none
  std::vector<std::string> checksums;  // of each as it was read, before it was prepared
  std::string source;                  // described
  int64_t count() const { return images.size(0); }
};
// Of the files that the input names, or evenly spread over its set, or over that of the run. Fails where none can be read.
AnalysedImages read_images(const AnalysisInput& input, const AnalysedModel& model);

// "blocks.2.attention" and "blocks.10.attention" in the order of the network.
bool by_number(const std::string& a, const std::string& b);
// The taps of a model that end so, in the order of the network, from a pass over one image. A usage error that names the model
// where there is none.
std::vector<std::string> taps_ending(const AnalysedModel& model, const torch::Tensor& image,
                                     const std::string& ending, const std::string& what);
// Bytes 0 … 255 of a prepared image, [height, width, 3].
Image picture_of(const torch::Tensor& image, const data::Preprocess& preprocess);

}  // namespace tessera::cli
