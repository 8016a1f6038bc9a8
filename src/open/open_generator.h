// A trained image generator from a file: ours, the published ones (DiT, SiT and their LLaMA forms, whose files say nothing of
// what they are), or a folder that diffusers writes.
#pragma once

#include <string>

#include "open/open_task.h"

namespace tessera::train {

// Fills in what the tensors of a generator's file tell of its settings (classes, channels, patch, blocks), and by which
// process it was trained, as published. Nothing where the described model is no generator.
void describe_generator(WeightsInfo& info, const WeightFile& file);

// open_task, and folders of diffusers: a pipeline (model_index.json) or its transformer (config.json beside its weights), as
// DiTTransformer2DModel. A usage error where the weights are neither of a generator (tasks::generator_of) nor of a task that
// draws patches (tasks::DrawsPatches).
OpenedTask open_generator(const std::string& path, const OpenOptions& options = {});

// Writes a DiT on latents with its VAE as DiTPipeline.from_pretrained of diffusers reads them. A usage error for what
// DiTTransformer2DModel cannot express (diffusers_dit.h).
void save_pipeline(const OpenedTask& opened, const OpenedCodec& vae, const std::string& folder);

}  // namespace tessera::train
