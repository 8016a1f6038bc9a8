// The model and the images of an analysis.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "analysis/attention.h"
#include "cli/base/arguments.h"
#include "cli/base/common.h"
#include "cli/base/image_model.h"
#include "data/base/source.h"
#include "models/base/model.h"
#include "models/heads/class_head.h"
#include "tasks/base/inputs.h"

namespace tessera::cli {

struct AnalysisInput : ComputeOptions {
  AnalysisInput() = default;
  AnalysisInput(int64_t images_of_set, int64_t batch_size = 8) : count(images_of_set), batch(batch_size) {}

  std::string weights, model, data, split = "validation";
  std::vector<std::string> images;
  int64_t count = 30, size = 0, batch = 8;
  std::string key;
  bool raw = false, classes_in_order = false;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w,--pretrained", .required = true},
      "weights file of any format, checkpoint or run directory");
    v("files", images, {.argument = "IMAGES"}, "images or folders of images; or --data");
    v("data", data, "data source (default: the data of the run's recipe)");
    v("split", split, {.choices = {"validation", "train", "all"}},
      "split of the data source; all of a set without splits");
    v("images", count, between(1, 100000), "images to analyse, evenly spread over the set");
    v("size", size, between(1, 8192), "input side in pixels (default: from the weights)");
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("key", key, "PyTorch archives: name of the dictionary, such as model_ema");
    v("model", model, "model name, if weights of other programs do not name it");
    v("batch_size", batch, between(1, 4096), "images at a time");
    ComputeOptions::visit(v);
  }
  // Options of a command that compares several weights on one set.
  template <class V>
  void visit_set(V& v, std::vector<std::string>& several) {
    v("weights", several, {.names = "-w", .required = true}, "weights files, checkpoints or run directories");
    v("data", data, "the images (default: the data of the first run's recipe)");
    v("split", split, {.choices = {"validation", "train", "all"}},
      "split of the set; all of a set without splits");
    v("images", count, between(0, 1000000000), "most images, evenly spread over the set (0: all)");
    v("size", size, between(1, 8192), "input side in pixels (default: from the weights)");
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    v("key", key, "PyTorch archives: name of the dictionary, such as model_ema");
    v("model", model, "model name, if weights of other programs do not name it");
    v("batch_size", batch, between(1, 65536), "images at a time");
    ComputeOptions::visit(v);
  }
};
// The precisions that an analysis allows: `exact` (fp32 and fp64) for internal values of a model, `all` for
// scores.
enum class AnalysisPrecisions { exact, all };

// A trained model in evaluation mode on its device.
class AnalysedModel : public ImageModel {
 public:
  explicit AnalysedModel(const AnalysisInput& input, AnalysisPrecisions allowed = AnalysisPrecisions::exact);
  models::Backbone& backbone() const { return *task().backbones().at(0).model; }
  // Returns the classifier. Throws a usage error if the task has none.
  models::Classifier& classifier() const;
  std::vector<std::string> class_names() const;  // empty if the weights have no class names
  // Returns the places of tokens for images of that shape. Throws a usage error if the model has no single
  // sequence of tokens.
  analysis::TokenLayout layout(const torch::Tensor& images) const;
  bool has_layout() const;
  // The values at the taps that `wanted` lists, from one forward pass.
  std::map<std::string, torch::Tensor> tapped(const torch::Tensor& images,
                                              const std::function<bool(const std::string&)>& wanted) const;
};

// Images, preprocessed as the weights specify.
struct AnalysedImages {
  torch::Tensor images;  // [count, 3, height, width] on the model's device
  std::vector<std::string> names;
  std::vector<int64_t> labels;         // -1 if absent
  std::vector<std::string> checksums;  // for each image as read, before preprocessing
  std::string source;                  // described
  int64_t count() const { return images.size(0); }
};
// Reads the listed files, or evenly spaced images of the set or of the run. Fails if none can be read.
AnalysedImages read_images(const AnalysisInput& input, const AnalysedModel& model);

// Puts "blocks.2.attention" before "blocks.10.attention", the order of the network.
bool by_number(const std::string& a, const std::string& b);
// Returns a model's taps with that ending, in the order of the network, from a pass over one image. Throws a
// usage error with the model's name if there is none.
std::vector<std::string> taps_ending(const AnalysedModel& model, const torch::Tensor& image,
                                     const std::string& ending, const std::string& what);
// Returns a preprocessed image as bytes 0 … 255, [height, width, 3].
Image picture_of(const torch::Tensor& image, const data::Preprocess& preprocess);

}  // namespace tessera::cli
