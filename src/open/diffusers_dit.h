// DiT as diffusers has it (DiTTransformer2DModel): a folder with config.json and weights, read and written.
#pragma once

#include <string>

#include "open/open_task.h"

namespace tessera::train {

// `folder` as of diffusers_part(path, "transformer"). The process is that of the scheduler of the pipeline around it, else
// as DiT was published; class names are those of the pipeline, else ImageNet's where there are as many.
OpenedTask open_diffusers_dit(const std::string& folder);

// What DiTTransformer2DModel.from_pretrained reads. A usage error for what it cannot express: VisionLLaMA's blocks,
// interpolants, another MLP, no label for none.
void save_diffusers_dit(const OpenedTask& opened, const std::string& folder);

}  // namespace tessera::train
