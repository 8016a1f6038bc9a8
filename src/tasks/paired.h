// What tasks of images and texts can do for a program that searches, tells classes by their names, or writes captions.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>
#include <vector>

#include "models/caption_search.h"

namespace tessera::tasks {

// Vectors of images and texts in one space.
class PairedEmbedding {
 public:
  virtual ~PairedEmbedding() = default;
  // Images [batch, 3, height, width], prepared as the weights ask -> rows [batch, width], vectors of length 1 where the
  // model compares vectors.
  virtual torch::Tensor embed_images(const torch::Tensor& images) = 0;
  // -> rows [texts, width] of the same kind, on the model's device. `cut` takes how many texts were longer than is read.
  virtual torch::Tensor embed_texts(const std::vector<std::string>& texts, int64_t* cut = nullptr) = 0;
  // Similarities [from, to] of such rows: cosines, unless the model compares images and texts otherwise.
  virtual torch::Tensor similarities(const torch::Tensor& from, const torch::Tensor& to) const {
    return from.mm(to.t());
  }
  // Whether a class is the mean of the vectors of its prompts; else its similarity is the mean of theirs.
  virtual bool averages_prompts() const { return true; }
  // What cosines are multiplied by for a softmax over texts.
  virtual double similarity_scale() const = 0;
  // Templates of class names that the model was trained or is measured with.
  virtual std::vector<std::string> templates() const = 0;
};

struct CaptionRequest {
  int64_t beams = 1, longest = 0;  // longest 0 = as many tokens as the model reads
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
  // Texts that evaluation follows at a time; 1 = the best token each time.
  void set_beams(int64_t beams) { beams_ = beams; }

 protected:
  int64_t beams_ = 1;
};

}  // namespace tessera::tasks
