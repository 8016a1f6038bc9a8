// Images and captions in one space, by two towers: CLIP (Radford et al. 2021), SigLIP (Zhai et al. 2023), LiT
// (Zhai et al. 2022: the image tower frozen by train.freeze) and UniCL (Yang et al. 2022: equal captions are
// positives).
//
//   u_i, v_i = vectors of length 1 of image i and of its caption
//   softmax:   mean over i of  (-log softmax_j(s u_i . v_j)[i] - log softmax_j(s v_i . u_j)[i]) / 2
//   sigmoid:   sum over all pairs of  -log sigmoid(z_ij (s u_i . v_j + b)), over the number of images
// declip adds supervision within images and within texts (declip.h), nclip a loss without negatives (nclip.h).
// With similarity = "tokens" (Yao et al. 2022, FILIP) token similarity replaces u_i . v_j
// (late_interaction.h). With views.weight two more views of each image are contrasted (Mu et al. 2022, SLIP:
// view_contrast.h).
// Every image is compared with every caption of the batch of all processes; the pairs are computed in chunks
// (pair_loss.h). Batches that exceed memory are embedded in pieces, and again in the backward pass (Gao et
// al. 2021, gradient caching): `piece` samples at a time, with the same gradient.
#pragma once

#include <optional>

#include "models/language/bert.h"
#include "models/pairs/text_tower.h"
#include "tasks/base/paired_findings.h"
#include "tasks/base/registry.h"
#include "tasks/base/text_input.h"
#include "tasks/pairs/declip.h"
#include "tasks/pairs/nclip.h"
#include "tasks/pairs/pair_loss.h"
#include "tasks/pairs/view_contrast.h"

namespace tessera::tasks {

enum class PairLossKind { softmax, sigmoid };
enum class PairSimilarity { vectors, tokens };
enum class TextModel { clip, bert };
struct ClipConfig {
  PairLossKind loss = PairLossKind::softmax;
  PairSimilarity similarity = PairSimilarity::vectors;
  int64_t embed_dim = 512;
  bool image_projection = true, text_projection = true;
  std::string tokenizer = "bytes";
  int64_t vocab_size = 0;
  TextModel text_model = TextModel::clip;
  models::BertConfig bert{.vocabulary = 1};
  std::string text_weights;
  int64_t context_length = 77, text_dim = 512, text_depth = 12, text_heads = 8, text_hidden = 0;
  models::TextMlp text_mlp = models::TextMlp::gelu;
  double text_norm_eps = 1e-5, text_init_values = 0;
  bool causal = true, text_projection_bias = false;
  models::TextPool text_pool = models::TextPool::largest;
  int64_t text_end_token = -1;
  double temperature = 0.07, first_bias = -10;
  EqualPairs equal_captions = EqualPairs::negatives;
  int64_t piece = 0, chunk = 128;
  std::vector<std::string> templates = {"{}"};
  TrainCaptions train_captions = TrainCaptions::drawn;
  EvalCaptions eval_captions = EvalCaptions::all;
  ViewConfig views;
  DeclipConfig declip;
  NclipConfig nclip;

  template <class V>
  void visit(V& v) {
    v("loss", loss, choice<PairLossKind>(),
      "softmax over the batch (CLIP), or a sigmoid for each pair (SigLIP)");
    v("similarity", similarity, choice<PairSimilarity>(),
      "between an image's vector and a text's (CLIP), or from each token to its best match (FILIP)");
    v("embed_dim", embed_dim, between(1, 65536), "width of the space that both towers map to");
    v("image_projection", image_projection,
      "a linear layer after the image tower; without one it must be embed_dim wide");
    v("text_projection", text_projection,
      "the same after the text tower; without one it must be embed_dim wide");
    v("tokenizer", tokenizer,
      "file of a tokeniser (tokenizer.json, vocab.json, tokenizer.model, CLIP's merges), bytes, or learned: "
      "from the training captions");
    v("vocab_size", vocab_size, between(0, 1 << 24),
      "rows of the token embedding, 0 = the tokeniser's number of ids");
    v("context_length", context_length, between(3, 65536), "tokens of a caption, with start and end");
    v("text_model", text_model, choice<TextModel>(),
      "the text tower: CLIP's Transformer, set by text_dim and the others, or bert");
    v("bert", bert, "the text tower of text_model = \"bert\"; vocabulary 1 = the tokeniser's");
    v("text_weights", text_weights,
      "bert: its first weights, a run of task bert or a folder of a published BERT; empty: drawn");
    v("text_dim", text_dim, between(1, 65536), "width of the text tower's tokens");
    v("text_depth", text_depth, between(1, 1000), "blocks of the text tower");
    v("text_heads", text_heads, between(1, 1024), "attention heads of the text tower");
    v("text_hidden", text_hidden, between(0, 1 << 22), "width inside the text tower's MLPs, 0 = 4 text_dim");
    v("text_mlp", text_mlp, choice<models::TextMlp>(),
      "their activation; gelu_tanh: SigLIP, quick_gelu: OpenAI's CLIP");
    v("text_norm_eps", text_norm_eps, above(0), "eps of the text tower's norms (SigLIP: 1e-6)");
    v("text_init_values", text_init_values, at_least(0),
      "first value of LayerScale in the text tower, 0 = no LayerScale");
    v("causal", causal, "causal mask in the text tower (SigLIP: false)");
    v("text_projection_bias", text_projection_bias, "a bias after the text tower (SigLIP: true)");
    v("text_pool", text_pool, choice<models::TextPool>(),
      "the pooled token: largest id (CLIP), the first end_token, the last (SigLIP)");
    v("text_end_token", text_end_token, between(-1, 1 << 24),
      "for text_pool = end_token; -1 = the tokeniser's");
    v("temperature", temperature, above_to(0, 100), "first value of exp(-logit_scale) (SigLIP: 0.1)");
    v("first_bias", first_bias, "sigmoid: first value of the bias");
    v("equal_captions", equal_captions, choice<EqualPairs>(),
      "pairs of a batch with equal captions: negatives, ignored, or positives (UniCL)");
    v("piece", piece, between(0, 1 << 20), "samples embedded at a time, twice; 0 = all at once");
    v("chunk", chunk, between(1, 1 << 20), "rows of pairs computed at a time");
    v("templates", templates,
      "zero-shot classes in validation: texts with {} for the name; \"imagenet\" = OpenAI's 80");
    v("train_captions", train_captions, choice<TrainCaptions>(),
      "which of several captions: a random one, or the first");
    v("eval_captions", eval_captions, choice<EvalCaptions>(), "captions of a validation image to search");
    v("views", views, "a contrastive loss between views of an image (SLIP)");
    v("declip", declip, "supervision within images and within texts (DeCLIP)");
    v("nclip", nclip, "a loss without negatives (nCLIP, xCLIP)");
  }
  // Throws usage errors for parts that exclude each other.
  void check() const;
  // DeCLIP's masks need an id after those of the tokeniser.
  bool masks_texts() const { return declip.views && declip.texts > 0; }
  models::TextTowerConfig text_tower(const TextInput& input) const;
  // Returns none unless text_model is bert. Throws a usage error for fewer rows than the tokeniser has ids.
  std::optional<models::BertConfig> bert_tower(const TextInput& input) const;
};

TaskKind clip_kind();

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::PairLossKind> {
  static constexpr std::array names = {"softmax", "sigmoid"};
};
template <>
struct tessera::EnumNames<tessera::tasks::PairSimilarity> {
  static constexpr std::array names = {"vectors", "tokens"};
};
template <>
struct tessera::EnumNames<tessera::tasks::TextModel> {
  static constexpr std::array names = {"clip", "bert"};
};
template <>
struct tessera::EnumNames<tessera::tasks::EqualPairs> {
  static constexpr std::array names = {"negatives", "ignored", "positives"};
};
