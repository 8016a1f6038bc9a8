// What tasks of images and texts can do for a program that searches, tells classes by their names, or writes captions.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>
#include <vector>

#include "models/language/caption_search.h"

namespace tessera::tasks {

// Texts that are longer than a model reads.
struct CutTexts {
  int64_t count = 0;
  std::string first = {};  // the first of them
  int64_t first_lost = 0;  // its tokens that are not read
  void add(const std::string& text, int64_t lost);
  // "2 texts are longer than the model reads, the first by 7 tokens: '…'"
  std::string line() const;
};

// Vectors of images and texts in one space.
class PairedEmbedding {
 public:
  virtual ~PairedEmbedding() = default;
  // Images [batch, 3, height, width], prepared as the weights ask -> rows [batch, width], vectors of length 1 where the
  // model compares vectors.
  virtual torch::Tensor embed_images(const torch::Tensor& images) = 0;
  // -> rows [texts, width] of the same kind, on the model's device. Texts that are too long are added to `cut`.
  virtual torch::Tensor embed_texts(const std::vector<std::string>& texts, CutTexts* cut = nullptr) = 0;
  // Similarities [from, to] of such rows: cosines, unless the model compares images and texts otherwise.
  virtual torch::Tensor similarities(const torch::Tensor& from, const torch::Tensor& to) const {
    return from.mm(to.t());
  }
  // Whether a class is the mean of the vectors of its prompts; else its similarity is the mean of theirs.
  virtual bool averages_prompts() const { return true; }
  // What cosines are multiplied by for a softmax over texts.
  virtual double similarity_scale() const = 0;
  // Templates of class names that the model was trained or is measured with.
  const std::vector<std::string>& templates() const { return templates_; }
  // {"imagenet"} stands for OpenAI's 80. A usage error for one without {}.
  void set_templates(const std::vector<std::string>& given);

 private:
  std::vector<std::string> templates_;
};

// How the texts of a caption are searched for.
struct CaptionBeams {
  int64_t beams = 1;   // texts that are followed at a time; 1 = the best token each time
  int64_t groups = 1;  // that search on their own, so many beams each as that leaves
  // Texts are compared by sums of raw scores, as OpenCLIP's CoCa does, not of log probabilities.
  bool raw_scores = false;
};

struct CaptionRequest {
  CaptionBeams search = {};
  int64_t longest = 0;  // 0 = as many tokens as the model reads
  double repetition_penalty = 1;
  std::string prompt = {};  // the caption begins with it; SimVLM alone
};

// Where a model looked in the image while it wrote a word.
struct WordAttention {
  std::string word;
  torch::Tensor map;  // [rows, columns] of the image's patches, float32 on the CPU, of sum 1
};

class Captioner {
 public:
  virtual ~Captioner() = default;
  // For the words of a caption, in their order: what its last layer that reads the image attends to, mean of the heads and of a
  // word's tokens. `image` [1, 3, height, width].
  virtual std::vector<WordAttention> attention(const torch::Tensor& image, const std::string& caption) = 0;
  // A caption for each image.
  virtual std::vector<std::string> caption(const torch::Tensor& images, const CaptionRequest& request) = 0;
  // Of evaluations.
  void set_beams(const CaptionBeams& beams) { beams_ = beams; }

 protected:
  CaptionBeams beams_;
};

}  // namespace tessera::tasks
