// Cuts an image into patches and maps each to a token.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <memory>

#include "ops/linear.h"

namespace tessera::nn {

// Cuts images [batch, channels, height, width] into patches of the size of the kernel weight [width,
// channels, patch, patch]. Maps each to a vector: [batch, height / patch, width / patch, width]. Drops a
// border smaller than a patch.
torch::Tensor embed_patches(const torch::Tensor& images, const torch::Tensor& weight,
                            const torch::Tensor& bias, ops::LinearCache& cache);

// A convolution with its kernel size as stride (or less, for overlapping patches). Parameters proj.weight
// [width, channels, patch, patch] and proj.bias.
class PatchEmbedImpl : public torch::nn::Module {
 public:
  PatchEmbedImpl(int64_t patch, int64_t width, int64_t stride = 0, bool with_bias = true,
                 int64_t channels = 3);
  // [batch, channels, height, width] -> [batch, rows, columns, width]. Height and width must be multiples of
  // the patch.
  torch::Tensor forward(const torch::Tensor& images) const;
  int64_t rows(int64_t height) const { return (height - patch_) / stride_ + 1; }
  int64_t macs(int64_t height, int64_t width) const;
  int64_t patch() const { return patch_; }
  int64_t stride() const { return stride_; }

 private:
  struct Projection : torch::nn::Module {
    torch::Tensor weight, bias;
  };
  int64_t patch_, stride_, channels_;
  std::shared_ptr<Projection> proj_;
  std::shared_ptr<ops::LinearCache> cache_ = std::make_shared<ops::LinearCache>();
};
TORCH_MODULE(PatchEmbed);

// The pixels of each patch in the order row, column, channel, as in MAE (He et al. 2022): [batch, channels,
// height, width] -> [batch, rows * columns, patch * patch * channels].
torch::Tensor patchify(const torch::Tensor& images, int64_t patch);

}  // namespace tessera::nn
