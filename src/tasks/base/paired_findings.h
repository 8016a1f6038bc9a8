// Metrics of image-text models: retrieval in both directions, zero-shot classification, captions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "tasks/base/findings.h"
#include "tasks/base/paired.h"
#include "tasks/base/sample_rows.h"

namespace tessera::tasks {

// Adds R@1, 5 and 10 from images to texts and back (image_to_text_r1, …) and the number of distinct
// `captions`. If the set has one class per image, adds zero_shot_top1 and top5 with the model's templates.
// Adds the table "classes" if requested. `images` holds the model's image rows; `embed` returns text rows. A
// text matches every image that has it as a caption. Metrics are NaN if a vector is not finite.
void add_retrieval(Findings& out, const data::Source& source, const SampleRows& images, EvalCaptions which,
                   const PairedEmbedding& model, const EvaluateOptions& options,
                   const std::function<torch::Tensor(const std::vector<std::string>&)>& embed);

// Adds cider, bleu4, rouge_l and `exact`, the share of captions equal to one of their references. Adds a
// table of samples, and captioned pictures if requested. `captions[i]` is for the image with source index
// `indices[i]`.
void add_caption_scores(Findings& out, const data::Source& source, const std::vector<int64_t>& indices,
                        const std::vector<std::string>& captions, EvalCaptions which,
                        const EvaluateOptions& options);

}  // namespace tessera::tasks
