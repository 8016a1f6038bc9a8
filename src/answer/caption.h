// Captions of images: `tessera caption`, and captioning models that are served.
#pragma once

#include <memory>

#include "answer/image_rows.h"
#include "tasks/base/paired.h"

namespace tessera::answer {

template <class V>
void visit_beams(V& v, tasks::CaptionBeams& beams) {
  v("beams", beams.beams, between(1, 64), "captions: beams of the search; 1 = greedy");
  v("beam_groups", beams.groups, between(1, 64), "independent groups of beams, for OpenCLIP's CoCa");
  v("raw_scores", beams.raw_scores,
    "rank beams by sums of scores instead of log probabilities, for OpenCLIP's CoCa");
}
// Throws a usage error for beam groups of different sizes, or raw scores of a single beam.
void check_beams(const tasks::CaptionBeams& beams);

struct CaptionOptions {
  tasks::CaptionRequest request;
  template <class V>
  void visit(V& v) {
    visit_beams(v, request.search);
    v("longest", request.longest, between(2, 65536), "most tokens (default: the context length)");
    v("repetition_penalty", request.repetition_penalty, between(1, 100),
      "divisor for scores of tokens that occurred");
    v("prompt", request.prompt, "first words of the text (SimVLM)");
  }
};

// Returns a text for each image [images, channels, height, width].
std::vector<std::string> captions_of(const train::ReadyTask& model, const torch::Tensor& images,
                                     const tasks::CaptionRequest& request);
// Returns the attention of each word of an image's text; `image` [1, channels, height, width].
std::vector<tasks::WordAttention> word_attention(const train::ReadyTask& model, const torch::Tensor& image,
                                                 const std::string& caption);

// Null unless the task writes texts about images.
std::shared_ptr<Answerer> open_captions(const AnswerSetup& setup);

}  // namespace tessera::answer
