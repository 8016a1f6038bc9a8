// DiT in the format of diffusers (DiTTransformer2DModel): reads and writes a folder with config.json and
// weights.
#pragma once

#include <string>

#include "open/open_task.h"

namespace tessera::train {

// Opens `folder`, a result of diffusers_part(path, "transformer"). The process is that of the pipeline's
// scheduler, else that of the published DiT. Class names are the pipeline's, else ImageNet's if their number
// matches.
OpenedTask open_diffusers_dit(const std::string& folder);

// Writes the files that DiTTransformer2DModel.from_pretrained reads. Throws a usage error for features that
// it lacks: VisionLLaMA blocks, interpolants, another MLP ratio, no null label.
void save_diffusers_dit(const OpenedTask& opened, const std::string& folder);

}  // namespace tessera::train
