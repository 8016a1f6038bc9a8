// What whole detectors and their parts are compared with.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/base/model.h"
#include "tests/parity/detection_case.h"

namespace tessera::parity {

using NameRule = std::function<std::string(const std::string&)>;

inline constexpr torch::ScalarType kDetectorTypes[] = {torch::kFloat64, torch::kFloat32};

torch::Tensor gradient_of(const torch::Tensor& leaf);  // zeros where there is none
// Puts the parameters and buffers "param.X" of a case into a module, by the names that the rule gives; those with an
// empty name are passed over. Every parameter must be given. -> ours by published name.
std::map<std::string, torch::Tensor> load_published(torch::nn::Module& module, const SubCase& from,
                                                    const NameRule& rule,
                                                    const models::Backbone* fitting = nullptr);
void compare_gradients(Comparison& comparison, const SubCase& at,
                       const std::map<std::string, torch::Tensor>& leaves);

// The name of a tensor of a published detector in ours; "" for one of the backbone.
std::string detector_name(const std::string& published);

// The settings of family vitdet that a golden's config stands for.
Value vitdet_settings(const nlohmann::json& config, int64_t image_size);

// A detector, its backbone, and how the golden's images become what they are fed.
struct WholeDetector {
  std::shared_ptr<torch::nn::Module> body;
  std::function<std::vector<torch::Tensor>(const torch::Tensor&)> maps;
  std::string prefix;  // of the body's names in the golden
  NameRule rename;     // behind the prefix
  std::shared_ptr<models::Detector> detector;
};
WholeDetector build_detector(const Golden& golden);

struct DetectorInput {
  torch::Tensor batch;
  std::vector<models::Extent> sizes;
  std::vector<torch::Tensor> leaves;  // the images, where they have a gradient
  std::vector<models::DetectionTarget> targets;
};
DetectorInput feed_detector(const SubCase& at, bool training);

}  // namespace tessera::parity
