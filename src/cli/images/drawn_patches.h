// Images that a model of task darl draws patch by patch: what `complete` and `generate` share.
#pragma once

#include "ops/torch.h"

#include <string>
#include <vector>

#include "cli/base/arguments.h"
#include "cli/images/generate_output.h"
#include "open/open_task.h"
#include "tasks/base/task.h"
#include "tasks/pretrain/patch_drawing.h"

namespace tessera::cli {

void add_temperature_option(Arguments& command, double& temperature);

// The opened task as one that draws patches; usage errors name the file and why its weights draw no images, or not at a
// temperature.
tasks::DrawsPatches& patch_drawer(const train::OpenedTask& opened, double temperature);

// The images of a request, [batch, 3, height, width] float32 on the CPU as the model has them, computed on this device
// with this precision. Fails where a pixel is not finite.
torch::Tensor drawn_patches(tasks::DrawsPatches& drawer, tasks::DrawRequest request, torch::Device device,
                            tasks::Precision precision);

// What `tessera generate` asks of such a model.
struct GeneratePatches {
  std::string out, part;
  int64_t count = 0, seed = 0, batch = 0, steps = 0,
          shard_size = 0;  // count = 0: 16 images; steps = 0: 100 noise levels
  double temperature = 1;  // of weights that draw tokens
  bool resume = false, json = false;
  std::string device, precision;
};
// Draws images from nothing into a grid, a folder, a batch or values, and prints what was done.
void generate_patches(const GeneratePatches& options, const train::OpenedTask& opened);

}  // namespace tessera::cli
