// FID over the checkpoints of a run: `tessera fid RUN --checkpoints`.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "cli/base/command.h"
#include "data/base/source.h"
#include "diffusion/samplers.h"
#include "eval/statistics_file.h"
#include "tasks/base/inputs.h"

namespace tessera::cli {

// Drawing of a checkpoint's images.
struct CheckpointDrawing {
  std::string vae;
  diffusion::SamplerConfig sampler;
  double cfg = 1.5;
  bool raw = false;
  template <class V>
  void visit(V& v) {
    v("vae", vae, "--checkpoints: VAE that decodes latents");
    v("sampler", sampler.sampler, {.choices = diffusion::sampler_names()},
      "--checkpoints: sampler (default: ddim, for interpolants euler)");
    v("steps", sampler.steps, between(1, 1'000'000), "--checkpoints: steps of the sampler (default: 50)");
    v("cfg", cfg, between(0, 1000), "--checkpoints: guidance, 1 = none");
    v("raw", raw, "--checkpoints: the raw weights instead of their moving average");
  }
};

struct CheckpointFid {
  int64_t step = 0;
  double fid = 0;
};
struct CheckpointFids {
  std::vector<CheckpointFid> checkpoints;
  std::string drawn_by;        // "50 steps of ddim with guidance 1.5"
  eval::FeatureOrigin origin;  // of the features
  int64_t width = 0;           // their dimensions
};

// Measures `count` images from each checkpoint of the run, with the same seeds, against the images of
// `reference`, on features of `weights`. Prints a line for each. Throws a usage error if the run has no
// checkpoints, or for more steps than its schedule has; a signal interrupts it between steps.
CheckpointFids measure_checkpoints(const std::string& run, const CheckpointDrawing& drawing, int64_t count,
                                   std::shared_ptr<const data::Source> reference, const std::string& weights,
                                   torch::Device device, tasks::Precision precision, std::ostream& lines);

// Writes the results into the run: lines of kind "checkpoint" in metrics.jsonl, "checkpoint/fid" for
// TensorBoard, a section of the report. Returns a line with these places, or the reason if another process
// uses the run.
std::string record_checkpoints(const std::string& run, const CheckpointFids& found, int64_t count);

// The sets that `tessera fid` measures: images, or statistics of their features.

// True if a path has statistics instead of images.
bool holds_statistics(const std::string& path);
// True if it has images. ADM's reference batches have both images and statistics of many more images.
bool holds_images(const std::string& path);
// Opens the first `count` images of a set, 0 = all; `split` is train, validation or all. Throws a usage
// error for a run, and for latents.
std::unique_ptr<data::Source> open_measured_images(const std::string& path, const std::string& split,
                                                   int64_t count);

}  // namespace tessera::cli
