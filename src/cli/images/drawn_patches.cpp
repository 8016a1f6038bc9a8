#include <iostream>
#include <nlohmann/json.hpp>

#include "answer/complete.h"
#include "cli/base/common.h"
#include "cli/images/generate_output.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "io/files/file.h"

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

// Returns the steps of a patch. Throws a usage error if there are too many, or if patches have none.
int64_t steps_of(const GenerateOptions& options, const answer::PatchDrawing& drawing) {
  const int64_t steps = options.sampler.steps.value_or(kStandardSteps);
  if (steps > kMostSteps)
    fail_usage("--steps ", steps, ": a patch has at most ", kMostSteps, " noise levels");
  if (drawing.draws_tokens() && options.sampler.steps)
    fail_usage("--steps is for weights that draw pixels; '", drawing.model().file(),
               "' draws a token for each patch");
  return steps;
}

// Returns everything that determines the images.
nlohmann::ordered_json settings_of(const GenerateOptions& options, const answer::PatchDrawing& drawing,
                                   int64_t steps) {
  nlohmann::ordered_json settings = {{"model", drawing.model().info().model.name},
                                     {"weights", checksum_of_weights(drawing.model().file())},
                                     {"size", drawing.image_size()},
                                     {"precision", options.precision},
                                     {"batch", options.batch},
                                     {"first_seed", options.seed}};
  if (drawing.draws_tokens())
    settings["temperature"] = options.temperature;
  else
    settings["steps"] = steps;
  return settings;
}

}  // namespace

void generate_patches(const GenerateOptions& options, const train::ReadyTask& model) {
  const answer::PatchDrawing drawing(model);
  drawing.check_temperature(options.temperature);
  const int64_t steps = steps_of(options, drawing);
  const DrawnPart part = drawn_part_of(options.part, options.out, options.resume);
  const auto [height, width] = drawing.image_size();
  const std::vector<AskedImage> asked = asked_images(options);
  nlohmann::ordered_json settings = settings_of(options, drawing, steps);
  const ShardLayout shards{.images = options.shard_size};
  check_shards(shards, options.out, options.batch);
  const auto output =
      open_generate_output(options.out, asked, json_text(settings), {width, height, options.batch, part},
                           /*channels=*/3, options.resume, shards);
  const torch::InferenceMode inference;
  const Interruptible stretch;
  ProgressLine progress(std::cerr, {.label = "generate", .total = std::ssize(asked)});
  const double began = steady_seconds();
  const auto draw = [&](std::span<const AskedImage> batch, int64_t first) {
    std::vector<uint64_t> seeds;
    for (const AskedImage& one : batch) seeds.push_back(one.seed);
    const torch::Tensor images =
        drawing.draw({.given = torch::zeros({std::ssize(batch), 3, height, width}),
                      .known = 0,
                      .steps = steps,
                      .temperature = options.temperature,
                      .seeds = seeds,
                      .progress = [&](int64_t done) {
                        progress.update(first, {{"patch", text(done, "/", drawing.patches())}});
                        return !interrupted();
                      }});
    std::vector<DrawnImage> drawn;
    for (int64_t i = 0; i < images.size(0); ++i) drawn.push_back({drawing.picture(images[i]), images[i]});
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
              << counted(drawing.patches(), "patch", "patches") << ", "
              << (drawing.draws_tokens() ? "a token" : counted(steps, "step")) << " each, "
              << fixed(seconds, 1) << " s\n";
}

}  // namespace tessera::cli
