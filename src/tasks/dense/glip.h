// Detection with texts as classes (Li et al. 2022, "Grounded language-image pre-training", GLIP): BERT reads the names
// of the classes as one prompt, "cat. traffic light.", and each cell of the image is scored with each of its tokens
// (models/detection/glip_head.h). Other names at test time find other objects.
//
// In training the names are shuffled in every step, so that their places have no meaning. The normalisers of the losses
// are counted over all samples computed at a time.
#pragma once

#include <string>
#include <vector>

#include "models/detection/glip_head.h"
#include "models/language/bert.h"
#include "tasks/base/registry.h"
#include "text/tokeniser.h"

namespace tessera::tasks {

struct GlipTaskConfig {
  std::string tokenizer = "bytes", text_weights;
  int64_t prompt = 256;
  models::BertConfig text{.vocabulary = 1};
  int64_t width = 256, inner = 2048, heads = 8, layers = 6, nearest = 9;
  double anchor_side = 8;
  models::TokenVote vote = models::TokenVote::mean;
  std::vector<int64_t> shortest = {};
  int64_t longest = 0;
  std::vector<double> jitter = {};
  double flip = 0.5, score = 0.05, nms = 0.6;
  int64_t most = 100;

  template <class V>
  void visit(V& v) {
    v("tokenizer", tokenizer, "tokenizer.json or another form of the text encoder, or bytes");
    v("text_weights", text_weights,
      "first weights of the text encoder: a run of task bert, or a folder of a "
      "published BERT; empty: drawn");
    v("prompt", prompt, between(4, 1 << 16), "tokens of the names of all classes");
    v("text", text, "the text encoder; vocabulary 1 = the tokeniser's");
    v("width", width, between(1, 4096), "channels of the pyramid");
    v("inner", inner, between(1, 1 << 16), "width of the attention between cells and tokens");
    v("heads", heads, between(1, 1024), "its heads");
    v("layers", layers, between(1, 64), "layers of fusion, each with a convolution");
    v("anchor_side", anchor_side, above_to(0, 1024), "side of a cell's anchor in cells");
    v("nearest", nearest, between(1, 1024), "cells of a level that an object may be assigned to (ATSS)");
    v("vote", vote, choice<models::TokenVote>(),
      "probability of a name: the mean of its tokens, or the largest");
    v("shortest", shortest, between(1, 16384),
      "sides that the short one is resized to, one is drawn; empty: the image fits");
    v("longest", longest, between(0, 16384), "the long side stays within it, with shortest");
    v("jitter", jitter, "large-scale jitter: factors from low to high; empty: none");
    v("flip", flip, between(0, 1), "probability of a horizontal flip");
    v("score", score, between(0, 1), "detections below it are left out");
    v("nms", nms, between(0, 1), "of boxes of a class that overlap by more the best stays");
    v("most", most, between(1, 10000), "detections of an image at most");
  }
  void check() const { text.check(); }
};

// The names of classes as one text. A period ends each, and a blank separates them: "cat. traffic light.".
struct GlipPrompt {
  std::string words = {};
  std::vector<TokenSpan> places = {};  // the characters of each class's name, by class
};
// `order`: the classes as they occur in the text.
GlipPrompt glip_prompt(const std::vector<std::string>& names, const std::vector<int64_t>& order);

TaskKind glip_kind();

}  // namespace tessera::tasks
