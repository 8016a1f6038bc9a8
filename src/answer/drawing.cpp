#include <algorithm>
#include <cmath>

#include "answer/generate.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "open/image_walk.h"
#include "tasks/generate/generator_pictures.h"

namespace tessera::answer {
namespace {

// Returns [1, 3, height, width] as the network has them.
torch::Tensor read_start(const std::string& path, const data::Preprocess& preprocess, int64_t height,
                         int64_t width) {
  const auto transform = data::make_eval_transform(preprocess, height, width);
  return train::prepared_images(*transform, 1, [&](int64_t) { return data::read_image_file(path); });
}

// Returns [1, 1, height, width]: 1 for white, which is regenerated, 0 for black.
torch::Tensor read_mask(const std::string& path, int64_t height, int64_t width) {
  const Image mask = data::decode_sample(data::read_image_file(path));
  if (mask.width != width || mask.height != height)
    fail_usage("the mask '", path, "' is ", mask.width, " x ", mask.height, " pixels, must be ", width, " x ",
               height, " as the images that are drawn");
  torch::Tensor out = torch::empty({1, 1, height, width});
  float* value = out.data_ptr<float>();
  for (int64_t i = 0; i < height * width; ++i)
    value[i] = mask.pixels[static_cast<size_t>(i * mask.channels)] >= 128 ? 1.0F : 0.0F;
  return out;
}

// Evenly spaced over the walk from its begin, step -1, without its end, which is the image itself.
bool is_moment(int64_t moments, int64_t step, int64_t steps) {
  for (int64_t i = 0; i + 1 < moments; ++i)
    if (step + 1 == i * steps / (moments - 1) && step + 1 < steps) return true;
  return false;
}

// Some samplers begin with noise of a large deviation; a picture of it has at most 1.
double loudness(const diffusion::Sampler& sampler, int64_t step) {
  const diffusion::Level level = sampler.level(step);
  return std::max(1.0, std::hypot(level.alpha, level.sigma));
}

}  // namespace

bool draws_from_noise(const train::ReadyTask& model) { return tasks::generator_of(model.task()) != nullptr; }

Drawing::Drawing(const train::ReadyTask& model)
    : model_(model), generator_(*tasks::generator_of(model.task())) {}

void Drawing::set_size(const std::string& words) {
  const models::Extent size =
      size_of(words, trained_size(model_.info()), model_.info().model.settings.find("patch_size")->as_int());
  request_.height = size.height, request_.width = size.width;
}

void Drawing::set_codec(train::OpenedCodec codec, int64_t tile) {
  decoder_ = Decoder(std::move(codec), generator_, model_.file(), model_.device(), tile);
}

void Drawing::set_sampling(const DrawingOptions& options, bool inverts) {
  request_.guidance = guidance_of(options.guidance, generator_);
  request_.sampler = sampler_of(options.sampler, generator_, inverts);
  sampler_ = generator_.process->sampler(request_.sampler);  // throws if the process refuses it
}

void Drawing::set_start(const StartingImages& images) {
  if (!images.start.empty()) {
    request_.start = input_of(images.start);
    request_.strength = images.strength.value_or(images.from_class.empty() ? 0.7 : 1);
  }
  if (!images.from_class.empty()) {
    const std::vector<int64_t> found = classes_of(images.from_class, generator_, "--from-class");
    if (found.size() != 1) fail_usage("--from-class '", printable(images.from_class), "', must be one class");
    from_class_ = found.front();
  }
  if (!images.inpaint.empty()) {
    request_.known = input_of(images.inpaint);
    request_.mask = input_mask(images.mask);
  }
}

void Drawing::set_reuse(int64_t every, const std::string& blocks) {
  request_.reuse = reuse_of(every, blocks, generator_.backbone->block_count());
}

// Reads an image in the network's form, as a latent if there is a VAE.
torch::Tensor Drawing::input_of(const std::string& path) const {
  const train::OpenedCodec& codec = decoder_.codec();
  if (!codec.codec) return read_start(path, generator_.preprocess, request_.height, request_.width);
  const int64_t factor = codec.codec->factor();
  const torch::NoGradGuard no_grad;
  const torch::Tensor image =
      read_start(path, tasks::decoded_pixels(), factor * request_.height, factor * request_.width);
  return codec.codec->encode(image.to(model_.device())).mean.cpu() * decoder_.scale();
}

// A latent position is regenerated if any of its pixels is.
torch::Tensor Drawing::input_mask(const std::string& path) const {
  const train::OpenedCodec& codec = decoder_.codec();
  if (!codec.codec) return read_mask(path, request_.height, request_.width);
  const int64_t factor = codec.codec->factor();
  return at::max_pool2d(read_mask(path, factor * request_.height, factor * request_.width), {factor, factor});
}

DrawnBatch Drawing::draw(
    std::span<const AskedImage> batch, int64_t moments,
    const std::function<bool(int64_t step, int64_t steps, const torch::Tensor& x)>& after) const {
  tasks::GenerateRequest request = request_;
  std::vector<int64_t> labels;
  for (const AskedImage& one : batch) {
    request.seeds.push_back(one.seed);
    labels.push_back(one.label);
  }
  request.labels = torch::tensor(labels, torch::kInt64);
  if (from_class_ >= 0) request.start_labels = torch::full_like(request.labels, from_class_);
  DrawnBatch out;
  request.after = [&](int64_t step, int64_t steps, const torch::Tensor& x) {
    if (x.defined() && is_moment(moments, step, steps))
      out.moments.push_back(x / loudness(*sampler_, step + 1));
    return after(step, steps, x);
  };
  {
    const tasks::AutocastScope autocast = model_.autocast();
    out.generated =
        tasks::generate_images(*generator_.network, *generator_.process, request, model_.device());
  }
  if (keeps_values_) return out;
  out.generated.images = decoder_.decoded(out.generated.images);
  if (decoder_.codec().codec) tasks::require_finite_images(out.generated.images, decoder_.codec().file);
  for (torch::Tensor& moment : out.moments) moment = decoder_.decoded(moment);
  return out;
}

std::string Drawing::unread(const diffusion::SamplerConfig& sampler, const std::string& key) const {
  return diffusion::unread(generator_.process->row(sampler), key);
}

bool Drawing::sets_own_steps() const { return generator_.process->row(request_.sampler).evaluations == 0; }

}  // namespace tessera::answer
