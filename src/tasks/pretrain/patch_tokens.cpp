#include "tasks/pretrain/patch_tokens.h"

#include "core/error.h"
#include "models/base/capability.h"

namespace tessera::tasks {

PatchTokens::PatchTokens(const TaskSetup& setup, std::string path, std::string key, std::string codes_key,
                         int64_t codes)
    : path_(std::move(path)),
      key_(std::move(key)),
      codes_key_(std::move(codes_key)),
      codes_(codes),
      preprocess_(setup.preprocess),
      open_(setup.open_backbone),
      open_task_(setup.open_task) {}

models::Tokeniser& PatchTokens::opened() {
  if (!tokeniser_.model) {
    check(static_cast<bool>(open_), key_, " '", path_, "' cannot be opened here");
    OpenedBackbone opened = open_(path_);
    const auto& found =
        models::require<models::Tokeniser>(*opened.model, opened.spec.family, text(key_, " '", path_, "'"));
    if (found.codes() != codes_)
      fail_usage(key_, " '", path_, "' has ", found.codes(), " codes, ", codes_key_, " is ", codes_);
    for (const torch::Tensor& parameter : opened.model->parameters()) parameter.set_requires_grad(false);
    opened.model->eval();
    tokeniser_ = std::move(opened);
  }
  return dynamic_cast<models::Tokeniser&>(*tokeniser_.model);
}

const std::string& PatchTokens::checksum() {
  opened();
  return tokeniser_.checksum;
}

models::DecodesTokens* PatchTokens::decoder() {
  if (!whole_ && open_task_) {
    whole_ = open_task_(path_);
    set_training(whole_->parts(), false);
  }
  return dynamic_cast<models::DecodesTokens*>(whole_.get());
}

std::string PatchTokens::picture_refusal() {
  return decoder() ? "" : text(key_, " '", path_, "' holds only an encoder, which decodes no tokens");
}

torch::Tensor PatchTokens::images_of(const torch::Tensor& tokens, int64_t height, int64_t width,
                                     const torch::TensorOptions& options) {
  const torch::NoGradGuard no_grad;
  models::DecodesTokens* decodes = decoder();
  if (!decodes) fail_usage(picture_refusal());
  move(whole_->parts(), options.device(), c10::typeMetaToScalarType(options.dtype()));
  const torch::Tensor pixels = decodes->pictures(tokens).to(options);
  return images_of_pixels(resized_pixels(pixels, height, width), preprocess_);
}

torch::Tensor PatchTokens::operator()(const torch::Tensor& images, int64_t rows, int64_t columns) {
  const torch::NoGradGuard no_grad;
  models::Tokeniser& tokeniser = opened();
  const torch::Tensor first = tokeniser_.model->parameters().front();
  if (first.device() != images.device() || first.scalar_type() != images.scalar_type())
    tokeniser_.model->to(images.device(), images.scalar_type());
  const torch::Tensor pixels =
      resized_pixels(pixels_of(images, preprocess_), rows * tokeniser.cell(), columns * tokeniser.cell());
  return tokeniser.tokens(pixels).flatten(1);
}

namespace {

torch::Tensor channels(const std::vector<double>& values, const torch::Tensor& like) {
  return torch::tensor(values, torch::kFloat64).to(like.device(), like.scalar_type()).view({3, 1, 1});
}

}  // namespace

torch::Tensor pixels_of(const torch::Tensor& images, const data::Preprocess& preprocess) {
  return (images * channels(preprocess.std, images) + channels(preprocess.mean, images)).clamp(0, 1);
}

torch::Tensor images_of_pixels(const torch::Tensor& pixels, const data::Preprocess& preprocess) {
  return (pixels - channels(preprocess.mean, pixels)) / channels(preprocess.std, pixels);
}

torch::Tensor resized_pixels(const torch::Tensor& pixels, int64_t height, int64_t width) {
  if (pixels.size(2) == height && pixels.size(3) == width) return pixels;
  return at::_upsample_bicubic2d_aa(pixels, {height, width}, /*align_corners=*/false).clamp(0, 1);
}

}  // namespace tessera::tasks
