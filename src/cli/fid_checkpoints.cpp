#include "cli/fid_checkpoints.h"

#include <ostream>

#include "cli/common.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/text.h"
#include "models/family.h"
#include "tasks/generator_fid.h"
#include "tasks/generator_pictures.h"
#include "tasks/noise_process.h"
#include "train/checkpoint.h"
#include "train/open_codec.h"
#include "train/open_extractor.h"
#include "train/open_generator.h"

namespace tessera::cli {

void add_checkpoint_drawing(Arguments& command, CheckpointDrawing& drawing) {
  command.add("--vae", drawing.vae, "--checkpoints: the VAE that decodes latents");
  command
      .add("--sampler", drawing.sampler,
           "--checkpoints: how images are drawn (default: ddim, of interpolants euler)")
      .one_of(names_of<tasks::SamplerName>());
  command.add("--steps", drawing.steps, "--checkpoints: steps of it")
      .show_default()
      .range<int64_t>(1, 1'000'000);
  command.add("--cfg", drawing.cfg, "--checkpoints: guidance, 1 = none").show_default().range(0.0, 1000.0);
  command.flag("--raw", drawing.raw, "--checkpoints: the raw weights instead of their moving average");
}

void refuse_checkpoint_drawing(const CheckpointDrawing& drawing) {
  const CheckpointDrawing standard;
  refuse_given({{"--vae", !drawing.vae.empty()},
                {"--sampler", drawing.sampler != standard.sampler},
                {"--steps", drawing.steps != standard.steps},
                {"--cfg", drawing.cfg != standard.cfg},
                {"--raw", drawing.raw}},
               "goes with --checkpoints");
}

namespace {

// The default is as many as there are, where there are fewer.
void check_steps(const CheckpointDrawing& drawing, const tasks::NoiseProcess& process) {
  const int64_t total = process.config().steps;
  if (process.diffusion() && drawing.steps > total && drawing.steps != CheckpointDrawing().steps)
    fail_usage("steps = ", drawing.steps, ", must be 1 to ", total,
               ": the schedule that the model was trained on");
}

}  // namespace

CheckpointFids measure_checkpoints(const std::string& run, const CheckpointDrawing& drawing, int64_t count,
                                   std::shared_ptr<const data::Source> reference, const std::string& weights,
                                   torch::Device device, tasks::Precision precision, std::ostream& lines) {
  const train::CheckpointStore store(run + "/checkpoints");
  const std::vector<int64_t> steps = store.steps();
  if (steps.empty())
    fail_usage("'", run,
               "' has no checkpoints: --checkpoints measures those of a run (train.keep_last keeps several)");
  CheckpointFids found;
  const auto open = [&found](const std::string& path, const tasks::ExtractorPlace& place) {
    auto extractor = train::open_extractor_at(path, place);
    found.origin = extractor->origin(), found.width = extractor->width();
    return extractor;
  };
  tasks::GeneratorFid fid(open, {.classifier = weights, .samples = count, .reference = reference->size()},
                          reference);
  train::OpenedCodec codec;
  if (!drawing.vae.empty()) codec = train::open_codec(drawing.vae);
  const Interruptible stretch;
  const auto alive = [] { return !interrupted(); };
  for (const int64_t step : steps) {
    const train::OpenedTask opened = train::open_generator(store.directory_of(step), {.raw = drawing.raw});
    const tasks::Generator* generator = tasks::generator_of(*opened.task);
    if (!generator)
      fail_usage("'", run, "' draws patch by patch: --checkpoints measures runs of task diffuse");
    check_steps(drawing, *generator->process);
    tasks::move(opened.task->parts(), device, train::parameter_type(precision));
    tasks::GeneratorPictures pictures(
        *generator, models::extent_of(*opened.info.model.settings.find("image_size"), "image_size"),
        codec.for_tasks(),
        {.sampler = parse_enum<tasks::SamplerName>(drawing.sampler, "--sampler"),
         .steps = drawing.steps,
         .cfg = drawing.cfg},
        "'" + opened.file + "'");
    const double value = fid.measure(
        [&](int64_t first, int64_t images) { return pictures.draw(first, images, device, precision, alive); },
        device, alive);
    found.checkpoints.push_back({.step = step, .fid = value});
    lines << "step " << step << "  FID  " << fixed(value, 4) << "  (" << count << " images by "
          << pictures.describe() << ")" << std::endl;
  }
  return found;
}

}  // namespace tessera::cli
