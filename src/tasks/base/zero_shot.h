// Classes by their names (Radford et al. 2021, section 3.1.4): a class is the mean of the vectors of its prompts.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <string>
#include <vector>

namespace tessera::tasks {

// Prompts' vectors [classes, templates, width], of any length -> [classes, width] of length 1: each is brought to
// length 1, their mean again.
torch::Tensor class_vectors(const torch::Tensor& prompts);

// The 80 templates of OpenAI's zero-shot ImageNet, "a photo of a {}." among them.
const std::vector<std::string>& imagenet_templates();
// The template with the name in the place of every "{}". A usage error for a template without one.
std::string fill_template(const std::string& pattern, const std::string& name);

class PairedEmbedding;

// Classes as rows: one each, or, where a model does not average them, one a prompt.
struct ClassRows {
  torch::Tensor rows;   // [classes x prompts, width], those of a class behind each other
  int64_t prompts = 1;  // of a class
  // Similarities [images, classes] of images' rows on the same device.
  torch::Tensor similarities(const PairedEmbedding& model, const torch::Tensor& images) const;
};
// The rows of classes for a model, by zero_shot_classes or, where it does not average prompts, of all of them; the same
// errors.
ClassRows class_rows(const PairedEmbedding& model, const std::vector<std::string>& names,
                     const std::vector<std::string>& templates,
                     const std::function<torch::Tensor(const std::vector<std::string>&)>& embed);

// The vectors of classes, [classes, width]. `embed` gives the vectors [texts, width] of so many texts; at most `at_once`
// are asked for at a time. Usage errors: a template without {}, a class of no name, two classes of one name.
torch::Tensor zero_shot_classes(const std::vector<std::string>& names,
                                const std::vector<std::string>& templates,
                                const std::function<torch::Tensor(const std::vector<std::string>&)>& embed,
                                size_t at_once = 8192);

}  // namespace tessera::tasks
