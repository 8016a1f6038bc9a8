// Shared by captioning tasks: a backbone's tokens for a text model, and captions of a validation set.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "models/base/model.h"
#include "models/language/caption_search.h"
#include "tasks/base/paired.h"
#include "tasks/base/sample_rows.h"
#include "tasks/base/text_input.h"

namespace tessera::tasks {

// Returns the tokens of images [batch, 3, height, width] for a text model: [batch, tokens, width]. For a
// backbone with one grid these are its normalised output, only patches or all tokens; for others the cells of
// the last map.
enum class ImageTokens { all, patches };
torch::Tensor image_tokens(models::Backbone& backbone, const torch::Tensor& images, ImageTokens which,
                           const models::Context& context = {});
// Number of patches or cells of an image, and the width of their tokens, from the settings alone.
struct TokenExtent {
  int64_t count = 0, width = 0;
};
TokenExtent image_token_extent(models::Backbone& backbone, const models::ModelSpec& spec, int64_t side);

// Returns the texts that `next` generates for `images` images.
std::vector<std::string> write_captions(int64_t images, const CaptionRequest& request, const TextInput& input,
                                        int64_t most_tokens, const models::NextToken& next);

// Returns the words of a caption with their maps. Row i of `weights` [tokens, patches] (not normalised) is
// the attention of the token at position i, which predicts position i + 1. `ids` are the caption's, as from
// TextInput::fit. The patches must form a square.
std::vector<WordAttention> word_attention(const torch::Tensor& weights, std::span<const int32_t> ids,
                                          const TextInput& input);

// Generated captions of a validation set, gathered from all processes like SampleRows. Stores each caption as
// `length` ids.
class WrittenCaptions {
 public:
  WrittenCaptions(const TextInput& input, int64_t length) : input_(input), length_(length), ids_(length) {}
  // Adds the captions of a batch of evaluate_each().
  void add(const data::Batch& batch, const std::vector<std::string>& captions) {
    ids_.add(batch, input_.encode(captions, length_));
  }
  void collect(const EvaluateOptions& options) { ids_.collect(options); }
  const std::vector<int64_t>& indices() const { return ids_.indices(); }  // into the source, ascending
  std::vector<std::string> captions() const;

 private:
  const TextInput& input_;
  int64_t length_;
  SampleRows ids_;
};

}  // namespace tessera::tasks
