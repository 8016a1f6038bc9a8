#include "tasks/generate/image_generator.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/error.h"
#include "core/progress.h"
#include "models/base/graphed.h"

namespace tessera::tasks {
namespace {

void check_request(const models::Denoiser& network, const GenerateRequest& request,
                   const diffusion::SamplerRow& sampler) {
  const auto count = static_cast<int64_t>(request.seeds.size());
  check(count > 0 && request.labels.dim() == 1 && request.labels.size(0) == count, "labels ",
        request.labels.sizes(), " for ", count, " seeds");
  const int64_t low = request.labels.min().item<int64_t>(), high = request.labels.max().item<int64_t>();
  if (low < 0 || high > network.null_label() || (high == network.null_label() && !network.has_null_label()))
    fail_usage("class ", low < 0 ? low : high, " does not exist, must be 0 to ", network.label_count() - 1);
  request.guidance.check();
  if (request.guidance.on() && !network.has_null_label())
    fail_usage("cfg = ", request.guidance.scale,
               ": the network has no embedding of no class (model.null_label = false), must be 1");
  if (!(request.strength > 0 && request.strength <= 1))
    fail_usage("strength = ", request.strength, ", must be above 0 and at most 1");
  const auto expect = [&](const torch::Tensor& image, const char* what, int64_t channels) {
    if (image.defined() &&
        (image.dim() != 4 || image.size(1) != channels || image.size(2) != request.height ||
         image.size(3) != request.width || (image.size(0) != count && image.size(0) != 1)))
      fail_usage(what, " is ", image.sizes(), ", must be [", count, ", ", channels, ", ", request.height,
                 ", ", request.width, "]");
  };
  expect(request.start, "the start image", network.channels());
  expect(request.known, "the image to keep", network.channels());
  expect(request.mask, "the mask", 1);
  check(request.known.defined() == request.mask.defined(), "an image to keep goes with a mask");
  if (request.reuse.every > 1 && sampler.evaluations != 1)
    fail_usage("blocks are reused from step to step: sampler ", sampler.name,
               " calls the network several times a step, must be another");
  check(!request.start_labels.defined() ||
            (request.start.defined() && request.start_labels.sizes() == request.labels.sizes()),
        "classes ", request.start_labels.sizes(), " of start images, for ", request.labels.sizes());
}

}  // namespace

torch::Tensor seeded_noise(std::span<const uint64_t> seeds, std::vector<int64_t> shape, const char* purpose,
                           uint64_t draw) {
  shape.insert(shape.begin(), static_cast<int64_t>(seeds.size()));
  torch::Tensor noise = torch::empty(shape, torch::kFloat32);
  const int64_t each = seeds.empty() ? 0 : noise[0].numel();
  auto* value = noise.data_ptr<float>();
  for (const uint64_t seed : seeds) {
    RandomStream stream(seed, purpose, draw);
    for (int64_t i = 0; i < each; ++i) *value++ = static_cast<float>(stream.normal());
  }
  return noise;
}

namespace {

// The sampler's dtype: float64 if the weights are, else float32.
torch::ScalarType numbers_for(const models::Denoiser& network) {
  const auto* module = dynamic_cast<const torch::nn::Module*>(&network);
  const auto weights = module ? module->parameters() : std::vector<torch::Tensor>();
  return !weights.empty() && weights.front().scalar_type() == torch::kFloat64 ? torch::kFloat64
                                                                              : torch::kFloat32;
}

}  // namespace

diffusion::Network guided_network(models::Denoiser& network, const diffusion::NoiseProcess& process,
                                  const torch::Tensor& labels, const diffusion::Guidance& guidance,
                                  models::BlockReuse* reuse) {
  // Steps of a sampler differ in their numbers alone. With reuse the host decides which blocks run.
  const auto graphs = std::make_shared<models::GraphedPass>();
  auto* const module = reuse ? nullptr : dynamic_cast<torch::nn::Module*>(&network);
  const auto denoise = [=, &network](const torch::Tensor& x, const torch::Tensor& time,
                                     const torch::Tensor& of) {
    if (!module) return network.denoise(x, time, of, {}, reuse);
    return graphs->run({x, time, of}, {module}, [&network](const models::GraphedPass::Tensors& in) {
      return network.denoise(in[0], in[1], in[2]);
    });
  };
  return [=, &network, &process](const torch::Tensor& x, const torch::Tensor& time) {
    // Samplers keep full precision, even if the network's output is rounded.
    const auto wide = [&](const torch::Tensor& output) { return output.to(x.scalar_type()); };
    torch::Tensor applies;  // undefined: to all images
    if (guidance.from > 0 || guidance.to < 1) {
      const torch::Tensor share = process.noise_share(time);
      applies = (share >= guidance.from) & (share <= guidance.to);
    }
    if (!guidance.on() || (applies.defined() && !applies.any().item<bool>()))
      return wide(denoise(x, time, labels));
    const torch::Tensor none = torch::full_like(labels, network.null_label());
    const std::vector<torch::Tensor> out =
        wide(denoise(torch::cat({x, x}), torch::cat({time, time}), torch::cat({labels, none}))).chunk(2);
    const torch::Tensor mixed = diffusion::guided(out[0], out[1], guidance, x.size(1));
    return applies.defined() ? torch::where(applies.view({-1, 1, 1, 1}), mixed, out[0]) : mixed;
  };
}

Generated generate_images(models::Denoiser& network, const diffusion::NoiseProcess& process,
                          const GenerateRequest& request, torch::Device device) {
  check_request(network, request, process.row(request.sampler));
  const auto sampler = process.sampler(request.sampler);
  const int64_t steps = sampler->steps();
  const std::vector<int64_t> shape = {network.channels(), request.height, request.width};
  const torch::ScalarType numbers = numbers_for(network);
  const auto noise = [&](const char* purpose, int64_t draw) {
    return seeded_noise(request.seeds, shape, purpose, static_cast<uint64_t>(draw)).to(device, numbers);
  };
  const auto there = [&](const torch::Tensor& image) {
    return image.defined() ? image.to(device, numbers) : image;
  };
  const torch::Tensor known = there(request.known), mask = there(request.mask), start = there(request.start);

  Generated result;
  models::BlockReuse reuse = request.reuse;
  const auto network_for = [&](const torch::Tensor& labels, const diffusion::Guidance& guidance,
                               models::BlockReuse* reused) {
    return diffusion::counted(
        [&result, guided = guided_network(network, process, labels.to(device), guidance, reused)](
            const torch::Tensor& state, const torch::Tensor& time) {
          const double began = steady_seconds();
          torch::Tensor out = guided(state, time);
          result.network_seconds += steady_seconds() - began;
          return out;
        },
        result.evaluations);
  };
  const auto go_on = [&](int64_t step, const torch::Tensor& state) {
    if (request.after && !request.after(step, steps, state))
      throw Error(ErrorKind::interrupted, "interrupted");
  };
  diffusion::Walk walk;
  torch::Tensor x = noise("first noise", 0);
  if (start.defined()) {
    const auto walked = static_cast<int64_t>(std::ceil(static_cast<double>(steps) * request.strength - 1e-9));
    walk.first = steps - std::clamp<int64_t>(walked, 1, steps);
    const diffusion::Level level = sampler->level(walk.first);
    if (request.start_labels.defined()) {
      walk.after = [&](int64_t step, torch::Tensor&) { go_on(step, {}); };
      x = sampler->walk_back(network_for(request.start_labels, {}, nullptr), start.expand_as(x).contiguous(),
                             walk);
    } else {
      x = level.alpha * start + level.sigma * x;
    }
  } else {
    x = x * sampler->start_scale();
  }
  go_on(-1, x);
  walk.noise = [&](int64_t step) { return noise("noise of a step", step); };
  walk.after = [&](int64_t step, torch::Tensor& state) {
    if (known.defined()) {
      const diffusion::Level level = sampler->level(step + 1);
      const torch::Tensor kept = level.alpha * known + level.sigma * noise("noise of the kept part", step);
      state = mask * state + (1 - mask) * kept;
    }
    go_on(step, state);
  };
  models::BlockReuse* const used = reuse.every > 1 ? &reuse : nullptr;
  result.images = sampler->run(network_for(request.labels, request.guidance, used), x, walk);
  result.blocks = reuse.asked, result.spared_blocks = reuse.spared;
  return result;
}

}  // namespace tessera::tasks
