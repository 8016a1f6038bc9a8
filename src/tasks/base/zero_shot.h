// Zero-shot classification (Radford et al. 2021, section 3.1.4): a class is the mean vector of its prompts.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <string>
#include <vector>

namespace tessera::tasks {

// Maps prompt vectors [classes, templates, width] to unit vectors [classes, width]: normalises each, then
// their mean.
torch::Tensor class_vectors(const torch::Tensor& prompts);

// The 80 templates of OpenAI's zero-shot ImageNet, such as "a photo of a {}.".
const std::vector<std::string>& imagenet_templates();
// Returns the template with every "{}" replaced by the name. Throws a usage error if it has none.
std::string fill_template(const std::string& pattern, const std::string& name);

class PairedEmbedding;

// Classes as rows: one per class, or one per prompt if the model does not average prompts.
struct ClassRows {
  torch::Tensor rows;   // [classes x prompts, width], grouped by class
  int64_t prompts = 1;  // per class
  // Similarities [images, classes] for image rows on the same device.
  torch::Tensor similarities(const PairedEmbedding& model, const torch::Tensor& images) const;
};
// Returns the rows of zero_shot_classes, or of all prompts if the model does not average them. Same errors.
ClassRows class_rows(const PairedEmbedding& model, const std::vector<std::string>& names,
                     const std::vector<std::string>& templates,
                     const std::function<torch::Tensor(const std::vector<std::string>&)>& embed);

// Returns class vectors [classes, width]. `embed` maps at most `at_once` texts to vectors [texts, width].
// Throws a usage error for a template without {}, an empty class name, or a duplicate name.
torch::Tensor zero_shot_classes(const std::vector<std::string>& names,
                                const std::vector<std::string>& templates,
                                const std::function<torch::Tensor(const std::vector<std::string>&)>& embed,
                                size_t at_once = 8192);

}  // namespace tessera::tasks
