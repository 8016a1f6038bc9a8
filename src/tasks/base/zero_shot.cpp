#include "tasks/base/zero_shot.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "models/pairs/two_tower.h"
#include "tasks/base/paired.h"

namespace tessera::tasks {

torch::Tensor class_vectors(const torch::Tensor& prompts) {
  check(prompts.dim() == 3, "prompts' vectors ", prompts.sizes(), ", must be [classes, templates, width]");
  return models::normalised_rows(models::normalised_rows(prompts).mean(1));
}

const std::vector<std::string>& imagenet_templates() {
  static const std::vector<std::string> templates = {
      "a bad photo of a {}.",
      "a photo of many {}.",
      "a sculpture of a {}.",
      "a photo of the hard to see {}.",
      "a low resolution photo of the {}.",
      "a rendering of a {}.",
      "graffiti of a {}.",
      "a bad photo of the {}.",
      "a cropped photo of the {}.",
      "a tattoo of a {}.",
      "the embroidered {}.",
      "a photo of a hard to see {}.",
      "a bright photo of a {}.",
      "a photo of a clean {}.",
      "a photo of a dirty {}.",
      "a dark photo of the {}.",
      "a drawing of a {}.",
      "a photo of my {}.",
      "the plastic {}.",
      "a photo of the cool {}.",
      "a close-up photo of a {}.",
      "a black and white photo of the {}.",
      "a painting of the {}.",
      "a painting of a {}.",
      "a pixelated photo of the {}.",
      "a sculpture of the {}.",
      "a bright photo of the {}.",
      "a cropped photo of a {}.",
      "a plastic {}.",
      "a photo of the dirty {}.",
      "a jpeg corrupted photo of a {}.",
      "a blurry photo of the {}.",
      "a photo of the {}.",
      "a good photo of the {}.",
      "a rendering of the {}.",
      "a {} in a video game.",
      "a photo of one {}.",
      "a doodle of a {}.",
      "a close-up photo of the {}.",
      "a photo of a {}.",
      "the origami {}.",
      "the {} in a video game.",
      "a sketch of a {}.",
      "a doodle of the {}.",
      "a origami {}.",
      "a low resolution photo of a {}.",
      "the toy {}.",
      "a rendition of the {}.",
      "a photo of the clean {}.",
      "a photo of a large {}.",
      "a rendition of a {}.",
      "a photo of a nice {}.",
      "a photo of a weird {}.",
      "a blurry photo of a {}.",
      "a cartoon {}.",
      "art of a {}.",
      "a sketch of the {}.",
      "a embroidered {}.",
      "a pixelated photo of a {}.",
      "itap of the {}.",
      "a jpeg corrupted photo of the {}.",
      "a good photo of a {}.",
      "a plushie {}.",
      "a photo of the nice {}.",
      "a photo of the small {}.",
      "a photo of the weird {}.",
      "the cartoon {}.",
      "art of the {}.",
      "a drawing of the {}.",
      "a photo of the large {}.",
      "a black and white photo of a {}.",
      "the plushie {}.",
      "a dark photo of a {}.",
      "itap of a {}.",
      "graffiti of the {}.",
      "a toy {}.",
      "itap of my {}.",
      "a photo of a cool {}.",
      "a photo of a small {}.",
      "a tattoo of the {}.",
  };
  return templates;
}

std::string fill_template(const std::string& pattern, const std::string& name) {
  std::string out;
  size_t begin = 0;
  for (size_t found = pattern.find("{}"); found != std::string::npos; found = pattern.find("{}", begin)) {
    out += pattern.substr(begin, found - begin) + name;
    begin = found + 2;
  }
  if (begin == 0)
    fail_usage("template '", printable(pattern, 80),
               "' has no {} for the name of a class, as in \"a photo of a {}\"");
  return out + pattern.substr(begin);
}

namespace {

// Fills each template with each class; throws usage errors for invalid names or templates.
std::vector<std::string> prompts_of(const std::vector<std::string>& names,
                                    const std::vector<std::string>& templates) {
  if (names.empty()) fail_usage("there is no class to choose from");
  if (templates.empty()) fail_usage("there is no template, such as \"a photo of a {}\"");
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < names.size(); ++i) {
    if (trim(names[i]).empty()) fail_usage("class ", i, " has no name");
    const auto [found, is_new] = places.try_emplace(names[i], i);
    if (!is_new)
      fail_usage("classes ", found->second, " and ", i, " are both '", printable(names[i], 80),
                 "': names must be distinct");
  }
  std::vector<std::string> texts;
  for (const std::string& name : names)
    for (const std::string& pattern : templates) texts.push_back(fill_template(pattern, name));
  return texts;
}

// Returns [texts, width], with at most `at_once` texts computed at a time.
torch::Tensor embed_all(const std::vector<std::string>& texts,
                        const std::function<torch::Tensor(const std::vector<std::string>&)>& embed,
                        size_t at_once) {
  std::vector<torch::Tensor> parts;
  for (size_t first = 0; first < texts.size(); first += at_once) {
    const size_t last = std::min(texts.size(), first + at_once);
    parts.push_back(embed({texts.begin() + static_cast<std::ptrdiff_t>(first),
                           texts.begin() + static_cast<std::ptrdiff_t>(last)}));
  }
  return torch::cat(parts);
}

constexpr size_t kTextsAtOnce = 8192;

}  // namespace

torch::Tensor zero_shot_classes(const std::vector<std::string>& names,
                                const std::vector<std::string>& templates,
                                const std::function<torch::Tensor(const std::vector<std::string>&)>& embed,
                                size_t at_once) {
  const torch::Tensor all = embed_all(prompts_of(names, templates), embed, at_once);
  return class_vectors(
      all.view({static_cast<int64_t>(names.size()), static_cast<int64_t>(templates.size()), all.size(1)}));
}

torch::Tensor ClassRows::similarities(const PairedEmbedding& model, const torch::Tensor& images) const {
  const torch::Tensor all = model.similarities(images, rows);
  return all.view({all.size(0), -1, prompts}).mean(2);
}

ClassRows class_rows(const PairedEmbedding& model, const std::vector<std::string>& names,
                     const std::vector<std::string>& templates,
                     const std::function<torch::Tensor(const std::vector<std::string>&)>& embed) {
  if (model.averages_prompts()) return {zero_shot_classes(names, templates, embed)};
  return {embed_all(prompts_of(names, templates), embed, kTextsAtOnce), std::ssize(templates)};
}

}  // namespace tessera::tasks
