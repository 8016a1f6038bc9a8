#include "nn/patch_embed.h"

#include "core/error.h"
#include "nn/init.h"
#include "ops/convolution.h"

namespace tessera::nn {

// Computes all patches as rows of one matrix product, which is faster than a convolution on a CPU and puts
// channels last.
torch::Tensor embed_patches(const torch::Tensor& images, const torch::Tensor& weight,
                            const torch::Tensor& bias, ops::LinearCache& cache) {
  const torch::Tensor patches = ops::patch_rows(images, weight.size(2));
  return ops::linear(patches, {.weight = weight.view({weight.size(0), -1}), .bias = bias}, {}, cache);
}

PatchEmbedImpl::PatchEmbedImpl(int64_t patch, int64_t width, int64_t stride, bool with_bias, int64_t channels)
    : patch_(patch), stride_(stride > 0 ? stride : patch), channels_(channels) {
  proj_ = register_module("proj", std::make_shared<Projection>());
  proj_->weight = proj_->register_parameter("weight", zeros({width, channels, patch, patch}));
  if (with_bias) proj_->bias = proj_->register_parameter("bias", zeros({width}));
}

torch::Tensor PatchEmbedImpl::forward(const torch::Tensor& images) const {
  check(images.dim() == 4 && images.size(1) == channels_, "images have shape ", images.sizes(),
        ", must be [batch, ", channels_, ", height, width]");
  const int64_t height = images.size(2), width = images.size(3);
  check(height >= patch_ && width >= patch_ && height % patch_ == 0 && width % patch_ == 0, "images are ",
        height, "x", width, ", both sides must be multiples of the patch size ", patch_);
  if (stride_ != patch_)
    return torch::conv2d(images, proj_->weight, proj_->bias, stride_).permute({0, 2, 3, 1});
  return embed_patches(images, proj_->weight, proj_->bias, *cache_);
}

int64_t PatchEmbedImpl::macs(int64_t height, int64_t width) const {
  return rows(height) * rows(width) * proj_->weight.numel();
}

torch::Tensor patchify(const torch::Tensor& images, int64_t patch) {
  check(images.dim() == 4 && images.size(2) >= patch && images.size(2) % patch == 0 &&
            images.size(3) >= patch && images.size(3) % patch == 0,
        "images have shape ", images.sizes(),
        ", must be [batch, channels, height, width] with sides of whole patches of ", patch);
  const int64_t batch = images.size(0), channels = images.size(1);
  const int64_t rows = images.size(2) / patch, columns = images.size(3) / patch;
  return images.reshape({batch, channels, rows, patch, columns, patch})
      .permute({0, 2, 4, 3, 5, 1})
      .reshape({batch, rows * columns, patch * patch * channels});
}

}  // namespace tessera::nn
