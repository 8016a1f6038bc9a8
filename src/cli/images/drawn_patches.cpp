#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/common.h"
#include "cli/images/generate_output.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "io/files/file.h"
#include "open/device.h"
#include "open/ready_task.h"
#include "tasks/base/report_blocks.h"

namespace tessera::cli {
namespace {

constexpr int64_t kStandardCount = 16, kStandardSteps = 100, kMostSteps = 1000;

std::vector<AskedImage> asked_images(const GenerateOptions& options) {
  check_count(options.out, options.count);
  std::vector<AskedImage> asked;
  for (int64_t i = 0; i < (options.count > 0 ? options.count : kStandardCount); ++i)
    asked.push_back({.index = i, .seed = static_cast<uint64_t>(options.seed + i), .caption = ""});
  return asked;
}

// Returns the steps per patch. Throws a usage error if they are too many, or if patches have no steps.
int64_t steps_of(const GenerateOptions& options, const tasks::DrawsPatches& drawer, const std::string& file) {
  const int64_t steps = options.sampler.steps.value_or(kStandardSteps);
  if (steps > kMostSteps)
    fail_usage("--steps ", steps, ": a patch has at most ", kMostSteps, " noise levels");
  if (drawer.draws_tokens() && options.sampler.steps)
    fail_usage("--steps is for weights that draw pixels; '", file, "' draws a token for each patch");
  return steps;
}

// Returns everything that determines the images.
nlohmann::ordered_json settings_of(const GenerateOptions& options, const train::OpenedTask& opened,
                                   const tasks::DrawsPatches& drawer, int64_t steps) {
  nlohmann::ordered_json settings = {
      {"model", opened.info.model.name}, {"weights", checksum_of_weights(opened.file)},
      {"size", drawer.image_size()},     {"precision", options.precision},
      {"batch", options.batch},          {"first_seed", options.seed}};
  if (drawer.draws_tokens())
    settings["temperature"] = options.temperature;
  else
    settings["steps"] = steps;
  return settings;
}

}  // namespace

tasks::DrawsPatches& patch_drawer(const train::OpenedTask& opened, double temperature) {
  auto& drawer = train::require<tasks::DrawsPatches>(opened, "a drawing patch by patch");
  if (const std::string why = drawer.drawing_refusal(); !why.empty())
    fail_usage(opened.file, ": these weights draw no images: ", why);
  if (temperature != 1 && !drawer.draws_tokens())
    fail_usage("--temperature is for weights that draw tokens; '", opened.file, "' draws pixels");
  return drawer;
}

torch::Tensor drawn_patches(tasks::DrawsPatches& drawer, tasks::DrawRequest request, torch::Device device,
                            tasks::Precision precision) {
  request.given = request.given.to(device, train::parameter_type(precision));
  const tasks::AutocastScope autocast(device, precision);
  const torch::Tensor images = drawer.draw(request).to(torch::kCPU, torch::kFloat32);
  if (!images.isfinite().all().item<bool>())
    fail("the drawn pixels are not finite: the training of these weights went astray");
  return images;
}

void generate_patches(const GenerateOptions& options, const train::OpenedTask& opened) {
  tasks::DrawsPatches& drawer = patch_drawer(opened, options.temperature);
  const int64_t steps = steps_of(options, drawer, opened.file);
  const DrawnPart part = drawn_part_of(options.part, options.out, options.resume);
  const torch::Device device = train::choose_device(options.device);
  const tasks::Precision precision = tasks::parse_precision(options.precision);
  const auto [height, width] = drawer.image_size();
  const std::vector<AskedImage> asked = asked_images(options);
  nlohmann::ordered_json settings = settings_of(options, opened, drawer, steps);
  const ShardLayout shards{.images = options.shard_size};
  check_shards(shards, options.out, options.batch);
  const auto output =
      open_generate_output(options.out, asked, json_text(settings), {width, height, options.batch, part},
                           /*channels=*/3, options.resume, shards);
  tasks::move(opened.task->parts(), device, train::parameter_type(precision));
  const torch::InferenceMode inference;
  const Interruptible stretch;
  ProgressLine progress(std::cerr, {.label = "generate", .total = std::ssize(asked)});
  const double began = steady_seconds();
  const auto draw = [&](std::span<const AskedImage> batch, int64_t first) {
    std::vector<uint64_t> seeds;
    for (const AskedImage& one : batch) seeds.push_back(one.seed);
    tasks::DrawRequest request{.given = torch::zeros({std::ssize(batch), 3, height, width}),
                               .known = 0,
                               .steps = steps,
                               .temperature = options.temperature,
                               .seeds = seeds};
    request.progress = [&](int64_t done) {
      progress.update(first, {{"patch", text(done, "/", drawer.patches())}});
      return !interrupted();
    };
    const torch::Tensor images = drawn_patches(drawer, request, device, precision);
    std::vector<DrawnImage> drawn;
    for (int64_t i = 0; i < images.size(0); ++i)
      drawn.push_back({tasks::picture_of(images[i], opened.info.preprocess), images[i]});
    progress.update(first + std::ssize(batch), {});
    return drawn;
  };
  const int64_t drawn = draw_missing(*output, asked, options.batch, part, draw);
  output->finish();
  progress.finish();
  const double seconds = steady_seconds() - began;
  settings.update({{"images", drawn}, {"seconds", seconds}, {"output", options.out}});
  if (options.json)
    std::cout << json_text(settings) << "\n";
  else
    std::cout << one_line(options.out) << ": " << counted(drawn, "image") << " of "
              << counted(drawer.patches(), "patch", "patches") << ", "
              << (drawer.draws_tokens() ? "a token" : counted(steps, "step")) << " each, "
              << fixed(seconds, 1) << " s\n";
}

}  // namespace tessera::cli
