// What is measured of models of images and texts: retrieval in both directions, classes by their names, captions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/config.h"
#include "data/base/source.h"
#include "tasks/base/findings.h"
#include "tasks/base/paired.h"
#include "tasks/base/sample_rows.h"

namespace tessera::tasks {

// Of several captions of a training image.
enum class TrainCaptions { drawn, first };
// Which captions a validation image is measured by.
enum class EvalCaptions { first, all };

// R@1, 5 and 10 from images to texts and back (image_to_text_r1, …), the number of distinct `captions`, and, where the
// set has one class an image, zero_shot_top1 and top5 with the model's templates, with the table "classes" where the options
// want it. `images` holds the model's rows of images, `embed` gives those of texts. A text belongs to every image that has
// it. NaN where a vector is not finite.
void add_retrieval(Findings& out, const data::Source& source, const SampleRows& images, EvalCaptions which,
                   const PairedEmbedding& model, const EvaluateOptions& options,
                   const std::function<torch::Tensor(const std::vector<std::string>&)>& embed);

// cider, bleu4, rouge_l, and `exact`, the share of captions that are one of their references word for word; a table of
// samples, and pictures with their captions where the options want them. `captions` of the images with these indices into
// the source.
void add_caption_scores(Findings& out, const data::Source& source, const std::vector<int64_t>& indices,
                        const std::vector<std::string>& captions, EvalCaptions which,
                        const EvaluateOptions& options);

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::TrainCaptions> {
  static constexpr std::array names = {"drawn", "first"};
};
template <>
struct tessera::EnumNames<tessera::tasks::EvalCaptions> {
  static constexpr std::array names = {"first", "all"};
};
