#include "tasks/pretrain/patch_tokens.h"

#include <algorithm>

#include "core/error.h"
#include "models/base/capability.h"
#include "ops/gpu.h"

namespace tessera::tasks {

PatchTokens::PatchTokens(const TaskSetup& setup, std::string path, std::string key, std::string codes_key,
                         int64_t codes)
    : path_(std::move(path)),
      key_(std::move(key)),
      codes_key_(std::move(codes_key)),
      codes_(codes),
      preprocess_(setup.preprocess),
      opener_(setup.opener) {}

models::Tokeniser& PatchTokens::opened() {
  if (!tokeniser_.task) {
    check(opener_ != nullptr, key_, " '", path_, "' cannot be opened here");
    OpenedWeights opened = opener_->open(path_, 0);
    const BackbonePart part = opened.task->backbones().at(0);
    const auto& found =
        models::require<models::Tokeniser>(*part.model, part.spec.family, text(key_, " '", path_, "'"));
    if (found.codes() != codes_)
      fail_usage(key_, " '", path_, "' has ", found.codes(), " codes, ", codes_key_, " is ", codes_);
    for (const Part& trained : opened.task->parts())
      for (const torch::Tensor& parameter : trained.module->parameters()) parameter.set_requires_grad(false);
    model_ = part.model;
    tokeniser_ = std::move(opened);
  }
  return dynamic_cast<models::Tokeniser&>(*model_);
}

const std::string& PatchTokens::checksum() {
  opened();
  return tokeniser_.checksum;
}

models::DecodesTokens* PatchTokens::decoder() {
  if (opener_) opened();
  return dynamic_cast<models::DecodesTokens*>(tokeniser_.task.get());
}

std::string PatchTokens::picture_refusal() {
  return decoder() ? "" : text(key_, " '", path_, "' holds only an encoder, which decodes no tokens");
}

torch::Tensor PatchTokens::images_of(const torch::Tensor& tokens, int64_t height, int64_t width,
                                     const torch::TensorOptions& options) {
  const torch::NoGradGuard no_grad;
  models::DecodesTokens* decodes = decoder();
  if (!decodes) fail_usage(picture_refusal());
  move(tokeniser_.task->parts(), options.device(), c10::typeMetaToScalarType(options.dtype()));
  const torch::Tensor pixels = decodes->pictures(tokens).to(options);
  return images_of_pixels(resized_pixels(pixels, height, width), preprocess_);
}

torch::Tensor PatchTokens::operator()(const torch::Tensor& images, int64_t rows, int64_t columns) {
  const torch::NoGradGuard no_grad;
  models::Tokeniser& tokeniser = opened();
  const torch::Tensor first = model_->parameters().front();
  if (first.device() != images.device() || first.scalar_type() != images.scalar_type())
    model_->to(images.device(), images.scalar_type());
  const torch::Tensor pixels =
      resized_pixels(pixels_of(images, preprocess_), rows * tokeniser.cell(), columns * tokeniser.cell());
  return tokeniser.tokens(pixels).flatten(1);
}

namespace {

torch::Tensor channels(const std::vector<double>& values, const torch::Tensor& like) {
  return ops::kept_on(like.device(), torch::tensor(values, torch::kFloat64))
      .to(like.scalar_type())
      .view({3, 1, 1});
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

void add_orders(data::Batch& batch, int64_t patches,
                const std::function<RandomStream(int64_t sample)>& stream_of) {
  const auto orders = batch.add({"order", DType::i64, {patches}}).values<int64_t>();
  for (int64_t i = 0; i < batch.size; ++i) {
    const auto order = stream_of(i).permutation(patches);
    std::copy(order.begin(), order.end(), orders.begin() + i * patches);
  }
}

void draw_orders(data::Batch& batch, int64_t patches, const char* purpose, const StepKey& key) {
  add_orders(batch, patches, [&](int64_t sample) {
    return RandomStream(key.seed, purpose, static_cast<uint64_t>(key.step),
                        static_cast<uint64_t>(batch.first + sample));
  });
}

}  // namespace tessera::tasks
