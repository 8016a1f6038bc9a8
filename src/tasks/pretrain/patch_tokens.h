// Tokens of images as targets or inputs: what a trained tokeniser (task dvae, or DALL-E's encoder) says of each patch.
#pragma once

#include <memory>
#include <string>

#include "models/base/tokeniser.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

// A tokeniser in a file, opened when it is first needed.
class PatchTokens {
 public:
  PatchTokens() = default;
  // Images will be normalised as `setup.preprocess` says. Usage errors name `key`, the setting that holds the
  // path, and `codes_key`, that of the number of codes.
  PatchTokens(const TaskSetup& setup, std::string path, std::string key, std::string codes_key,
              int64_t codes);

  // One token for each patch of a grid, int64 [batch, rows * columns]: images [batch, 3, height, width] as they
  // enter a model are resized so that a token stands for a patch (as in BEiT, Bao et al. 2022).
  torch::Tensor operator()(const torch::Tensor& images, int64_t rows, int64_t columns);
  // Opens it now; its file's checksum.
  const std::string& checksum();

  // Why no pictures can be made of its tokens; "" if they can.
  std::string picture_refusal();
  // Tokens int64 [batch, rows, columns] as images [batch, 3, height, width] of a model, on its device in its type.
  torch::Tensor images_of(const torch::Tensor& tokens, int64_t height, int64_t width,
                          const torch::TensorOptions& options);

 private:
  models::Tokeniser& opened();
  models::DecodesTokens* decoder();  // null where the weights hold an encoder alone
  std::string path_, key_, codes_key_;
  int64_t codes_ = 0;
  data::Preprocess preprocess_;
  std::function<OpenedBackbone(const std::string&)> open_;
  std::function<std::shared_ptr<Task>(const std::string&)> open_task_;
  OpenedBackbone tokeniser_;
  std::shared_ptr<Task> whole_;  // opened when pictures are asked for
};

// Images of a model as pixels in [0, 1], in its floating type; as they were before `preprocess`' mean and std.
torch::Tensor pixels_of(const torch::Tensor& images, const data::Preprocess& preprocess);
// And back.
torch::Tensor images_of_pixels(const torch::Tensor& pixels, const data::Preprocess& preprocess);
// Pixels resized, antialiased bicubic, clamped to [0, 1]; the same tensor where the size is right.
torch::Tensor resized_pixels(const torch::Tensor& pixels, int64_t height, int64_t width);

}  // namespace tessera::tasks
