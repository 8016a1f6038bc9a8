#include "tasks/pairs/caption_model.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "models/base/encoder.h"

namespace tessera::tasks {
namespace {

// Returns a text for each row of ids.
std::vector<std::string> texts_of(const torch::Tensor& rows, const TextInput& input) {
  const torch::Tensor ids = rows.to(torch::kInt32).contiguous();
  std::vector<std::string> texts;
  for (int64_t i = 0; i < ids.size(0); ++i)
    texts.push_back(input.decode({ids[i].const_data_ptr<int32_t>(), static_cast<size_t>(ids.size(1))}));
  return texts;
}

}  // namespace

torch::Tensor image_tokens(models::Backbone& backbone, const torch::Tensor& images, ImageTokens which,
                           const models::Context& context) {
  if (auto* encoder = dynamic_cast<models::TokenEncoder*>(&backbone)) {
    const models::Encoded encoded = encoder->encode(encoder->tokenise(images, context), context);
    return which == ImageTokens::all ? encoded.tokens : encoded.patches_of(encoded.tokens);
  }
  return backbone.features(images, {backbone.block_count() - 1}, context).at(0).flatten(2).transpose(1, 2);
}

TokenExtent image_token_extent(models::Backbone& backbone, const models::ModelSpec& spec, int64_t side) {
  const auto number = [&](const char* key, int64_t otherwise) {
    const Value* found = spec.settings.find(key);
    return found && found->is_int() ? found->as_int() : otherwise;
  };
  auto* encoder = dynamic_cast<models::TokenEncoder*>(&backbone);
  constexpr int64_t kPyramid = 32;  // pixels per cell of the last map
  const int64_t stride = encoder ? number("patch_size", 16) : number("output_stride", kPyramid);
  const int64_t cells = side / std::max<int64_t>(1, stride);
  return {cells * cells, encoder ? encoder->token_width() : backbone.embed_width()};
}

std::vector<std::string> write_captions(int64_t images, const CaptionRequest& request, const TextInput& input,
                                        int64_t most_tokens, const models::NextToken& next) {
  if (request.longest > most_tokens)
    fail_usage("captions of ", request.longest, " tokens: the model reads at most ", most_tokens);
  input.check_rows();
  if (input.start() < 0) fail_usage("task.tokenizer has no token that begins a text, which captions need");
  models::CaptionSearch search{.start = input.start(), .end = input.end(), .pad = input.pad()};
  search.longest = request.longest > 0 ? request.longest : most_tokens;
  search.beams = request.search.beams;
  search.groups = request.search.groups;
  search.raw_scores = request.search.raw_scores;
  search.repetition_penalty = request.repetition_penalty;
  search.shortest = 2;  // an empty caption is useless
  return texts_of(models::search_captions(images, search, next), input);
}

std::vector<WordAttention> word_attention(const torch::Tensor& weights, std::span<const int32_t> ids,
                                          const TextInput& input) {
  const int64_t patches = weights.size(1);
  const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(patches))));
  if (side * side != patches)
    fail_usage("the image's ", patches, " tokens are no square: their attention cannot be shown as a map");
  const auto end = static_cast<size_t>(std::find(ids.begin(), ids.end(), input.end()) - ids.begin());
  std::vector<WordAttention> words;
  size_t before = 0;  // bytes of text that earlier tokens cover
  for (size_t place = 1; place < end; ++place) {
    const std::string text = input.decode(ids.first(place + 1));
    const std::string added = before < text.size() ? text.substr(before) : "";
    const bool begins = words.empty() || (!added.empty() && added[0] == ' ');
    before = std::max(before, text.size());
    const torch::Tensor row = weights[static_cast<int64_t>(place) - 1].to(torch::kCPU, torch::kFloat32);
    if (begins) words.push_back({"", torch::zeros({patches})});
    words.back().word += trim(added);
    words.back().map += row;
  }
  for (WordAttention& word : words)
    word.map = (word.map / word.map.sum().clamp_min(1e-30)).view({side, side});
  return words;
}

std::vector<std::string> WrittenCaptions::captions() const { return texts_of(ids_.rows(), input_); }

}  // namespace tessera::tasks
