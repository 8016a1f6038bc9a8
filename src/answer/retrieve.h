// The images of a gallery that fit a text or an image: `tessera retrieve`, and galleries that are served.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "answer/image_rows.h"
#include "data/base/image_files.h"
#include "open/image_walk.h"
#include "tasks/base/paired.h"

namespace tessera::answer {

// Walks over images as train::for_each_batch() does; returns the number of those that cannot be read.
using WalkImages = std::function<int64_t(const data::Source& images,
                                         const std::function<void(const train::WalkedBatch& batch)>& see)>;

// Vectors of images by path, size and time of their last change, with the checksum of the weights that made them.
class VectorIndex {
 public:
  // "" keeps nothing. Throws a usage error for a file that is no index.
  VectorIndex(const std::string& path, const std::string& weights);

  // Undefined if the image is unknown, or its path has a line end.
  torch::Tensor find(const std::string& path) const;
  void add(const std::string& path, const torch::Tensor& vector);
  // Writes the file if vectors were added.
  void write() const;

 private:
  static std::string key(const std::string& path);

  std::string path_, weights_;
  std::map<std::string, torch::Tensor> kept_;
  bool changed_ = false;
};

struct Hit {
  size_t place = 0;  // among the gallery's images
  double cosine = 0;
};

// Images with their vectors.
class Gallery {
 public:
  // Reads the images, except those in the index, which is then written. `model` and `images` must outlive it.
  Gallery(const train::ReadyTask& model, const data::ImageFiles& images, const std::string& index,
          const WalkImages& walk);

  // Returns the `top` images most similar to a query [1, width], best first.
  std::vector<Hit> best(const torch::Tensor& query, int64_t top) const;
  const std::string& path(const Hit& hit) const { return images_.paths()[hit.place]; }
  int64_t broken() const { return broken_; }  // images that cannot be read

 private:
  const tasks::PairedEmbedding& towers_;
  const data::ImageFiles& images_;
  torch::Tensor rows_;          // [readable images, width]
  std::vector<size_t> places_;  // of each row, among the gallery's images
  int64_t broken_ = 0;
};

// Returns the vector of a text, [1, width]. Adds a text that is too long to `cut`.
torch::Tensor text_vector(const train::ReadyTask& model, const std::string& text,
                          tasks::CutTexts* cut = nullptr);
// Returns the vectors of images [images, channels, height, width].
torch::Tensor picture_vectors(const train::ReadyTask& model, const torch::Tensor& images);

// Null unless the task embeds images and texts, and a gallery is given. Throws a usage error for one without an image.
// Adds lines about images that cannot be read.
std::shared_ptr<Answerer> open_gallery(const AnswerSetup& setup, const OpenRequest& request,
                                       std::vector<std::string>& notes);

}  // namespace tessera::answer
