// Image tokens as targets or inputs: the output of a trained tokeniser (task dvae, or DALL-E's encoder) per
// patch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/random.h"
#include "data/base/field.h"
#include "models/base/tokeniser.h"
#include "tasks/base/registry.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

// A tokeniser in a file, opened on first use.
class PatchTokens {
 public:
  PatchTokens() = default;
  // Images are normalised with `setup.preprocess`. Usage errors name the settings: `key` for the path,
  // `codes_key` for the number of codes.
  PatchTokens(const TaskSetup& setup, std::string path, std::string key, std::string codes_key,
              int64_t codes);

  // Returns one token for each patch of a grid, int64 [batch, rows * columns]. Normalised images [batch, 3,
  // height, width] are resized so that a token covers a patch (as in BEiT, Bao et al. 2022).
  torch::Tensor operator()(const torch::Tensor& images, int64_t rows, int64_t columns);
  // Opens the file if needed; returns its checksum.
  const std::string& checksum();

  // Returns why its tokens cannot be decoded to pictures; "" if they can.
  std::string picture_refusal();
  // Decodes tokens int64 [batch, rows, columns] to normalised images [batch, 3, height, width], on the
  // model's device and in its dtype.
  torch::Tensor images_of(const torch::Tensor& tokens, int64_t height, int64_t width,
                          const torch::TensorOptions& options);

 private:
  models::Tokeniser& opened();
  models::DecodesTokens* decoder();  // null if the weights hold only an encoder
  std::string path_, key_, codes_key_;
  int64_t codes_ = 0;
  data::Preprocess preprocess_;
  std::shared_ptr<const WeightsOpener> opener_;
  OpenedWeights tokeniser_;  // has no task until it is opened
  std::shared_ptr<models::Backbone> model_;
};

// Converts a model's images to pixels in [0, 1], in the same floating-point type, undoing `preprocess`' mean
// and std.
torch::Tensor pixels_of(const torch::Tensor& images, const data::Preprocess& preprocess);
// The inverse of pixels_of.
torch::Tensor images_of_pixels(const torch::Tensor& pixels, const data::Preprocess& preprocess);
// Resizes pixels by antialiased bicubic interpolation, clamped to [0, 1]; returns the same tensor if the size
// matches.
torch::Tensor resized_pixels(const torch::Tensor& pixels, int64_t height, int64_t width);

// A random patch order for each sample of a batch; it determines the mask, or the sequence.

// Adds the field "order", i64 [patches]: a permutation for each sample, drawn from stream_of(its index in the
// batch).
void add_orders(data::Batch& batch, int64_t patches,
                const std::function<RandomStream(int64_t sample)>& stream_of);

// The same for a training step, with new orders in every step. They depend on the sample's global index, so
// not on the number of processes or pieces. `purpose` separates several kinds of draws.
void draw_orders(data::Batch& batch, int64_t patches, const char* purpose, const StepKey& key);

}  // namespace tessera::tasks
