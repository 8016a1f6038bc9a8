// Interfaces of image-text tasks for search, zero-shot classification and captioning.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/config.h"
#include "models/language/caption_search.h"

namespace tessera::tasks {

// Which of several captions a training image uses.
enum class TrainCaptions { drawn, first };
// Which captions of a validation image count: published results use all, or the first five of each.
enum class EvalCaptions { first, five, all };

// A task that is measured with the captions of images.
class CaptionEvaluation {
 public:
  static constexpr const char* kAbility = "a model of images and captions: task clip, coca or simvlm";
  virtual ~CaptionEvaluation() = default;
  void set_eval_captions(EvalCaptions which) { eval_captions_ = which; }

 protected:
  EvalCaptions eval_captions_ = EvalCaptions::all;
};

// Texts longer than the model's context.
struct CutTexts {
  int64_t count = 0;
  std::string first = {};  // the first of them
  int64_t first_lost = 0;  // its number of unread tokens
  void add(const std::string& text, int64_t lost);
  // "2 texts are longer than the model reads, the first by 7 tokens: '…'"
  std::string line() const;
};

// Embeds images and texts into one space.
class PairedEmbedding {
 public:
  static constexpr const char* kAbility = "two towers, of images and of texts: task clip or coca";
  virtual ~PairedEmbedding() = default;
  // Maps preprocessed images [batch, 3, height, width] to rows [batch, width], of length 1 if the model
  // compares vectors.
  virtual torch::Tensor embed_images(const torch::Tensor& images) = 0;
  // Returns rows [texts, width] of the same kind, on the model's device. Adds texts that are too long to
  // `cut`.
  virtual torch::Tensor embed_texts(const std::vector<std::string>& texts, CutTexts* cut = nullptr) = 0;
  // Similarities [from, to] of such rows: cosines, unless a model overrides it.
  virtual torch::Tensor similarities(const torch::Tensor& from, const torch::Tensor& to) const {
    return from.mm(to.t());
  }
  // True if a class is the mean vector of its prompts; otherwise similarities are averaged over the prompts.
  virtual bool averages_prompts() const { return true; }
  // Factor on cosines before a softmax over texts.
  virtual double similarity_scale() const = 0;
  // Templates for class names, in training or evaluation.
  const std::vector<std::string>& templates() const { return templates_; }
  // {"imagenet"} means OpenAI's 80. Throws a usage error for a template without {}.
  void set_templates(const std::vector<std::string>& given);
  // Returns the names of a set's classes in texts: those given, else spoken_names(). Throws a usage error if
  // their number is wrong.
  std::vector<std::string> names_of(const std::vector<std::string>& set_classes) const;
  void set_class_names(std::vector<std::string> given) { class_names_ = std::move(given); }

 private:
  std::vector<std::string> templates_, class_names_;
};

// How captions are searched.
struct CaptionBeams {
  int64_t beams = 1;   // beams in total; 1 = greedy
  int64_t groups = 1;  // independent groups that share the beams equally
  // Ranks texts by sums of raw scores, as OpenCLIP's CoCa does, not of log probabilities.
  bool raw_scores = false;
};

struct CaptionRequest {
  CaptionBeams search = {};
  int64_t longest = 0;  // limit in tokens; 0 = the model's context length
  double repetition_penalty = 1;
  std::string prompt = {};  // first words of the caption; SimVLM only
};

// Image regions that a model attended to while writing a word.
struct WordAttention {
  std::string word;
  torch::Tensor map;  // [rows, columns] over the image's patches, float32 on the CPU, sums to 1
};

class Captioner {
 public:
  static constexpr const char* kAbility = "a model that writes texts: task coca or simvlm";
  virtual ~Captioner() = default;
  // Returns the attention map of each word of a caption, in order: from the last layer that reads the image,
  // averaged over heads and the word's tokens. `image` [1, 3, height, width].
  virtual std::vector<WordAttention> attention(const torch::Tensor& image, const std::string& caption) = 0;
  // Returns a caption for each image.
  virtual std::vector<std::string> caption(const torch::Tensor& images, const CaptionRequest& request) = 0;
  // Sets the search used in evaluations.
  void set_beams(const CaptionBeams& beams) { beams_ = beams; }

 protected:
  CaptionBeams beams_;
};

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::TrainCaptions> {
  static constexpr std::array names = {"drawn", "first"};
};
template <>
struct tessera::EnumNames<tessera::tasks::EvalCaptions> {
  static constexpr std::array names = {"first", "five", "all"};
};
