// Images that a model of task darl draws patch by patch, for `complete` and `generate`.
#pragma once

#include "ops/torch.h"

#include <string>
#include <vector>

#include "cli/images/generate_options.h"
#include "open/open_task.h"
#include "tasks/base/task.h"
#include "tasks/pretrain/patch_drawing.h"

namespace tessera::cli {

// The opened task as one that draws patches; usage errors name the file and why its weights draw no images, or not at a
// temperature.
tasks::DrawsPatches& patch_drawer(const train::OpenedTask& opened, double temperature);

// Returns the images of a request, [batch, 3, height, width] float32 on the CPU in the model's range,
// computed on this device in this precision. Fails if a pixel is not finite.
torch::Tensor drawn_patches(tasks::DrawsPatches& drawer, tasks::DrawRequest request, torch::Device device,
                            tasks::Precision precision);

// Draws images from nothing into a grid, a folder, a batch or values, and prints a summary.
void generate_patches(const GenerateOptions& options, const train::OpenedTask& opened);

}  // namespace tessera::cli
