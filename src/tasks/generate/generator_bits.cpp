#include "tasks/generate/generator_fid.h"

#include <cmath>

#include "core/error.h"
#include "tasks/generate/image_generator.h"

namespace tessera::tasks {
namespace {

torch::Tensor noise_of(std::span<const uint64_t> seeds, const torch::Tensor& images, const char* purpose,
                       int64_t draw) {
  return seeded_noise(seeds, images.sizes().slice(1).vec(), purpose, static_cast<uint64_t>(draw))
      .to(images.options());
}

torch::Tensor of_interpolant(const diffusion::Interpolant& interpolant, const diffusion::Network& network,
                             const torch::Tensor& images, std::span<const uint64_t> seeds, int64_t levels) {
  torch::Tensor values = images;
  double bits = 0;  // a level is 2 / (levels - 1) wide
  if (levels > 0) {
    const double half = 1.0 / static_cast<double>(levels - 1);
    // Maps normal numbers to uniform ones by the normal distribution function.
    const torch::Tensor normal = noise_of(seeds, images, "bits levels", 0);
    values = images + half * torch::erf(normal / std::sqrt(2.0));
    bits = -std::log2(2 * half);
  }
  const torch::Tensor signs = noise_of(seeds, images, "bits signs", 0).sign();
  return diffusion::ode_bits(interpolant, network, values, signs, {.points = 2}).to(torch::kFloat64) + bits;
}

torch::Tensor of_chain(const diffusion::GaussianDiffusion& chain, const diffusion::Network& network,
                       const torch::Tensor& images, std::span<const uint64_t> seeds, int64_t steps) {
  torch::Tensor bits = chain.prior_bits(images).to(torch::kFloat64);
  for (int64_t step = steps - 1; step >= 0; --step) {
    const torch::Tensor t = torch::full({images.size(0)}, step, images.options().dtype(torch::kInt64)),
                        x = chain.noised(images, t, noise_of(seeds, images, "bits noise", step));
    bits += chain.variational_bits(network(x, t.to(images.scalar_type())), images, x, t).to(torch::kFloat64);
  }
  return bits;
}

}  // namespace

torch::Tensor bits_per_dimension(models::Denoiser& network, const diffusion::NoiseProcess& process,
                                 const torch::Tensor& images, const torch::Tensor& labels,
                                 std::span<const uint64_t> seeds, int64_t levels) {
  const diffusion::Network asked = guided_network(network, process, labels, {});
  if (process.interpolant()) return of_interpolant(*process.interpolant(), asked, images, seeds, levels);
  if (levels == 0)
    fail_usage(
        "task.bits: the bound of diffusion ends in the 256 levels of an image, latents have none; measure an "
        "interpolant (task.process = linear, gvp or vp)");
  return of_chain(*process.diffusion(), asked, images, seeds, process.config().steps);
}

}  // namespace tessera::tasks
