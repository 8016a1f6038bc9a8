// Opens a trained image generator: a file of Tessera, a published one (DiT, SiT and their LLaMA forms, which
// have no metadata), or a folder of diffusers.
#pragma once

#include <string>

#include "open/open_task.h"

namespace tessera::train {

// Fills in the settings that a generator's tensors determine (classes, channels, patch, blocks), and its
// published process. Does nothing if the described model is not a generator.
void describe_generator(WeightsInfo& info, const WeightFile& file);

// Opens like open_task, and also opens diffusers' folders of DiTTransformer2DModel: a pipeline
// (model_index.json) or its transformer (config.json next to its weights). Throws a usage error unless the
// task is a generator (tasks::generator_of) or draws patches (tasks::DrawsPatches).
OpenedTask open_generator(const std::string& path, const OpenOptions& options = {});

// Writes a DiT on latents with its VAE for DiTPipeline.from_pretrained of diffusers. Throws a usage error for
// features that DiTTransformer2DModel lacks (diffusers_dit.h).
void save_pipeline(const OpenedTask& opened, const OpenedCodec& vae, const std::string& folder);

// DiT in the format of diffusers (DiTTransformer2DModel): reads and writes a folder with config.json and
// weights.

// Opens `folder`, a result of diffusers_part(path, "transformer"). The process is that of the pipeline's
// scheduler, else that of the published DiT. Class names are the pipeline's, else ImageNet's if their number
// matches.
OpenedTask open_diffusers_dit(const std::string& folder);

// Writes the files that DiTTransformer2DModel.from_pretrained reads. Throws a usage error for features that
// this class lacks: VisionLLaMA blocks, interpolants, another MLP ratio, no null label.
void save_diffusers_dit(const OpenedTask& opened, const std::string& folder);

}  // namespace tessera::train
