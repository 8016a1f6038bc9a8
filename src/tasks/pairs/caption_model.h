// What the tasks that write captions share: what a backbone shows a text model, and captions of a validation set.
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

// The tokens that a text model reads of images [batch, 3, height, width]: [batch, tokens, width]. Of a backbone of one
// grid those behind its last norm, patches alone or all of them; of another the cells of its last map.
enum class ImageTokens { all, patches };
torch::Tensor image_tokens(models::Backbone& backbone, const torch::Tensor& images, ImageTokens which,
                           const models::Context& context = {});
// The number of patches, or cells, of images of a side, and the width of their tokens, from the settings alone.
struct TokenExtent {
  int64_t count = 0, width = 0;
};
TokenExtent image_token_extent(models::Backbone& backbone, const models::ModelSpec& spec, int64_t side);

// Texts that `next` writes about so many images.
std::vector<std::string> write_captions(int64_t images, const CaptionRequest& request, const TextInput& input,
                                        int64_t most_tokens, const models::NextToken& next);

// The words of a caption with their maps, from weights [tokens, patches] of any sum: row i is that of the token in place i,
// which tells place i + 1. `ids` are the caption's, as TextInput::fit gives them. Patches fill a square.
std::vector<WordAttention> word_attention(const torch::Tensor& weights, std::span<const int32_t> ids,
                                          const TextInput& input);

// The captions that were written of a validation set, brought together from all processes as SampleRows does. A caption
// is kept as `length` ids.
class WrittenCaptions {
 public:
  WrittenCaptions(const TextInput& input, int64_t length) : input_(input), length_(length), ids_(length) {}
  // Captions of a batch before which `before` samples of all processes came.
  void add(const data::Batch& batch, int64_t before, const std::vector<std::string>& captions) {
    ids_.add(batch, before, input_.encode(captions, length_));
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
