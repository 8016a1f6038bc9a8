// Images drawn patch by patch by a model of task darl, from nothing or from a given part: `tessera complete`, served.
#pragma once

#include "ops/torch.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "answer/image_rows.h"
#include "tasks/pretrain/patch_drawing.h"

namespace tessera::answer {

struct CompletionOptions {
  int64_t count = 8, samples = 4, steps = 1000, seed = 0;
  double given = 0.5, temperature = 1;

  template <class V>
  void visit(V& v) {
    v("count", count, {.range = between(1, 1000000), .names = "-n"},
      "most images to complete, or images to draw from nothing");
    v("samples", samples, between(1, 1000), "completions of each image");
    v("given", given, between(0, 1), "share of the patches to keep, the first in the model's order");
    v("steps", steps, between(1, 1000), "noise levels of a patch's reverse chain");
    v("temperature", temperature, between(0.01, 100),
      "weights that draw tokens: below 1 likely ones are drawn more often");
    v("seed", seed, between(0, 1000000000), "seed of the first drawn image; each has the next");
  }
};

// Opened weights that draw patches.
class PatchDrawing {
 public:
  // Throws a usage error, which names the file, for weights that draw no images.
  explicit PatchDrawing(const train::ReadyTask& model);

  // Throws a usage error for a temperature other than 1 if the weights draw pixels.
  void check_temperature(double temperature) const;
  int64_t patches() const { return drawer_.patches(); }
  std::array<int64_t, 2> image_size() const { return drawer_.image_size(); }  // height, width
  bool draws_tokens() const { return drawer_.draws_tokens(); }
  // Returns the images of a request, [batch, 3, height, width] float32 on the CPU in the model's range. Fails if a
  // pixel is not finite.
  torch::Tensor draw(tasks::DrawRequest request) const;
  // Returns images [batch, 3, height, width] with all patches after the first `known` in the mean colour.
  torch::Tensor known_part(const torch::Tensor& images, int64_t known) const;
  Image picture(const torch::Tensor& image) const;
  const train::ReadyTask& model() const { return model_; }

 private:
  const train::ReadyTask& model_;
  tasks::DrawsPatches& drawer_;
};

// Completions of images, image after image, each with all of its samples.
class Completions {
 public:
  // `beginnings`: [images, 3, height, width], preprocessed; undefined to draw from nothing.
  Completions(const PatchDrawing& drawing, const CompletionOptions& options, torch::Tensor beginnings);

  int64_t count() const { return std::ssize(of_); }
  int64_t known() const { return known_; }  // patches that are given
  bool from_nothing() const { return !beginnings_.defined(); }
  // Returns the beginning of a drawn image.
  int64_t beginning_of(int64_t index) const { return of_[static_cast<size_t>(index)]; }
  // Draws all images, `batch` at a time. `progress` gets the patches that are drawn so far, of all images; if it
  // returns false, throws ErrorKind::interrupted.
  std::vector<Image> draw(int64_t batch, const std::function<bool(int64_t done)>& progress) const;
  // The image of a beginning, whole, or its given part.
  Image whole(int64_t beginning) const;
  Image given_part(int64_t beginning) const;

 private:
  torch::Tensor given(int64_t first, int64_t count) const;

  const PatchDrawing& drawing_;
  CompletionOptions options_;
  torch::Tensor beginnings_;
  int64_t known_ = 0;
  std::vector<int64_t> of_;  // the beginning of each drawn image
};

// Null unless the weights draw patches.
std::shared_ptr<Answerer> open_completions(const AnswerSetup& setup);

}  // namespace tessera::answer
