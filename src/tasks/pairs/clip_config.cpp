// The settings of task clip: their contradictions, and those of its text tower.
#include "core/error.h"
#include "tasks/pairs/clip.h"

namespace tessera::tasks {

void ClipConfig::check() const {
  const bool tokens = similarity == PairSimilarity::tokens;
  if (declip.views && (views.weight > 0 || nclip.enabled() || tokens || loss == PairLossKind::sigmoid))
    fail_usage("task.declip.views has its own loss of vectors: without ",
               tokens             ? "task.similarity = \"tokens\""
               : nclip.enabled()  ? "task.nclip.weight"
               : views.weight > 0 ? "task.views.weight"
                                  : "task.loss = \"sigmoid\"");
  if (declip.views && text_pool == models::TextPool::class_token)
    fail_usage("task.declip.views reads a text's own tokens: task.text_pool must not be \"class_token\"");
  const bool has_bert = text_model == TextModel::bert;
  if (has_bert) bert.check();
  if (has_bert && masks_texts())
    fail_usage(
        "task.declip.texts masks tokens of CLIP's own text tower: with task.text_model = \"bert\" it must be "
        "0");
  if (!has_bert && !text_weights.empty())
    fail_usage("task.text_weights goes with task.text_model = \"bert\"");
  if (nclip.enabled() && tokens)
    fail_usage("task.nclip.weight is for vectors of images and texts: without task.similarity = \"tokens\"");
}

models::TextTowerConfig ClipConfig::text_tower(const TextInput& input) const {
  models::TextTowerConfig text;
  text.vocab_size = (vocab_size > 0 ? vocab_size : input.size()) + (masks_texts() ? 1 : 0);
  text.context_length = context_length;
  text.dim = text_dim, text.depth = text_depth, text.heads = text_heads;
  text.hidden = text_hidden, text.mlp = text_mlp, text.norm_eps = text_norm_eps;
  text.init_values = text_init_values;
  text.causal = causal, text.projection_bias = text_projection_bias;
  text.pool = text_pool;
  text.end_token = text_end_token >= 0 ? text_end_token : input.end();
  text.pad_token = input.pad();
  // The largest id ends a text in CLIP's vocabulary, but not in every other.
  const bool last = vocab_size > 0 || input.end() == input.size() - 1;
  if (text.pool == models::TextPool::largest && (!last || masks_texts()))
    text.pool = models::TextPool::end_token;
  return text;
}

std::optional<models::BertConfig> ClipConfig::bert_tower(const TextInput& input) const {
  if (text_model != TextModel::bert) return std::nullopt;
  input.require_padding("task.text_model = \"bert\"");
  models::BertConfig out = bert;
  if (out.vocabulary <= 1) out.vocabulary = input.size();
  if (out.vocabulary < input.size())
    fail_usage("task.bert.vocabulary = ", out.vocabulary, ", the tokeniser has ", input.size(), " tokens");
  return out;
}

}  // namespace tessera::tasks
