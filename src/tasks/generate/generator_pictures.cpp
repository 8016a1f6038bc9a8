#include "tasks/generate/generator_pictures.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "tasks/base/report_blocks.h"

namespace tessera::tasks {

void require_codec(const Generator& generator, const train::OpenedCodec& vae, const std::string& file) {
  if (vae.codec->latent_channels() != generator.network->channels())
    fail_usage("'", vae.file, "' decodes latents of ", vae.codec->latent_channels(), " channels, ", file,
               " makes ", generator.network->channels());
  const auto& latents = generator.latents;
  if (latents && latents->checksum != vae.checksum)
    fail_usage(file, " was trained on latents of ", latents->codec, " ", latents->checksum, ", '", vae.file,
               "' is another VAE, ", vae.checksum);
}

void require_finite_images(const torch::Tensor& images, const std::string& file) {
  const torch::Tensor finite = images.flatten(1).isfinite().all(1);
  if (!finite.all().item<bool>())
    fail("'", file, "' decodes the latent of sample ", (~finite).nonzero()[0].item<int64_t>(),
         " of the batch to numbers that are not finite");
}

const data::Preprocess& decoded_pixels() {
  static const data::Preprocess pixels{.crop = 1, .mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}};
  return pixels;
}

int64_t published_guided_channels(const models::Denoiser& network) { return network.channels() == 4 ? 3 : 0; }

GeneratorPictures::GeneratorPictures(const Generator& generator, models::Extent size, train::OpenedCodec vae,
                                     const PictureSettings& settings, const std::string& file)
    : generator_(generator), size_(size), vae_(std::move(vae)) {
  const diffusion::NoiseProcess& process = *generator.process;
  if (!vae_.codec && generator.network->channels() != 3)
    fail_usage(file, " makes latents, which are no images: their VAE must be named");
  if (vae_.codec) {
    require_codec(generator, vae_, file);
    scale_ = generator.latents ? generator.latents->scale : vae_.scale;
    if (!(scale_ > 0)) fail_usage("'", vae_.file, "' does not contain the scale of its latents");
  }
  sampler_ = settings.sampler;
  if (sampler_.sampler == "auto") sampler_.sampler = process.diffusion() ? "ddim" : "euler";
  if (!sampler_.steps && process.row(sampler_).reads_key("steps")) sampler_.steps = process.most_steps(50);
  sampler_ = process.resolved(sampler_, /*pixels=*/!vae_.codec);
  cfg_ = generator.network->has_null_label() ? settings.cfg : 1;
  process.sampler(sampler_);  // throws for invalid settings
}

GenerateRequest GeneratorPictures::request(int64_t first, int64_t count) const {
  GenerateRequest request;
  request.height = size_.height, request.width = size_.width;
  request.guidance = {.scale = cfg_, .channels = published_guided_channels(*generator_.network)};
  request.sampler = sampler_;
  std::vector<int64_t> labels;
  for (int64_t i = first; i < first + count; ++i) {
    request.seeds.push_back(static_cast<uint64_t>(i));
    labels.push_back(label(i));
  }
  request.labels = torch::tensor(labels, torch::kInt64);
  return request;
}

std::vector<Image> GeneratorPictures::draw(int64_t first, int64_t count, torch::Device device,
                                           Precision precision, const std::function<bool()>& alive) {
  const torch::NoGradGuard no_grad;
  GenerateRequest asked = request(first, count);
  asked.after = [&alive](int64_t, int64_t, const torch::Tensor&) { return !alive || alive(); };
  const AutocastScope autocast(device, precision);
  torch::Tensor images = generate_images(*generator_.network, *generator_.process, asked, device).images;
  if (vae_.codec) {
    vae_.model->to(device);
    images = vae_.codec->decode(images.to(torch::kFloat32) / scale_);
    require_finite_images(images, vae_.file);
  }
  std::vector<Image> out;
  for (int64_t i = 0; i < images.size(0); ++i)
    out.push_back(picture_of(images[i], vae_.codec ? decoded_pixels() : generator_.preprocess));
  return out;
}

std::string GeneratorPictures::describe() const {
  const std::string steps = sampler_.steps ? text(*sampler_.steps, " steps of ") : "";
  return text(steps, sampler_.sampler, " with guidance ", shortest(cfg_));
}

}  // namespace tessera::tasks
