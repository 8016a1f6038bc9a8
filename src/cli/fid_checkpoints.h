// FID over the checkpoints of a run: `tessera fid RUN --checkpoints`.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "data/source.h"
#include "tasks/inputs.h"

namespace tessera::cli {

// How the images of a checkpoint are drawn.
struct CheckpointDrawing {
  std::string vae, sampler = "auto";
  int64_t steps = 50;
  double cfg = 1.5;
  bool raw = false;
};
void add_checkpoint_drawing(Arguments& command, CheckpointDrawing& drawing);

struct CheckpointFid {
  int64_t step = 0;
  double fid = 0;
};

// Of `count` images by each checkpoint of the run, the same seeds for all, beside the images of `reference`, with the
// features of `weights`. A line for each as it is measured. Failures where the run has no checkpoints,
// interruption by a signal between steps.
std::vector<CheckpointFid> measure_checkpoints(const std::string& run, const CheckpointDrawing& drawing,
                                               int64_t count, std::shared_ptr<const data::Source> reference,
                                               const std::string& weights, torch::Device device,
                                               tasks::Precision precision, std::ostream& lines);

}  // namespace tessera::cli
