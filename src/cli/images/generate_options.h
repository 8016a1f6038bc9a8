// The options of `tessera generate`.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cli/base/arguments.h"
#include "diffusion/noise_process.h"
#include "models/base/denoiser.h"
#include "models/base/family.h"
#include "tasks/generate/diffuse.h"

namespace tessera::cli {

struct GenerateOptions {
  static constexpr double kUnset = std::numeric_limits<double>::lowest();  // what the weights decide
  static constexpr int64_t kMostImages = 10'000'000;

  std::string weights, model, out, classes, part, vae, size, from_class, reuse_blocks, respacing;
  bool raw = false, resume = false, karras = false, json = false;
  int64_t count = 0, seed = 0, batch = 16, threads = 0, steps = 0, cfg_channels = 0, moments = 0, reuse = 1,
          shard_size = 0, tile = 0;
  double cfg = 1.5, cfg_rescale = 0, cfg_from = 0, cfg_to = 1, eta = 0, last_step_size = 0.04, clip = kUnset,
         strength = kUnset, threshold = 0, temperature = 1;
  std::string sampler = "auto", spacing = "trailing", form = "sigma", last_step = "mean";
  std::string start, inpaint, mask;
  std::string device = "auto", precision = "fp32";
};

void add_generate_options(Arguments& command, GenerateOptions& options);

// Usage errors: what only networks of task diffuse have, asked of weights in `file` that draw patch by patch, and the
// reverse.
void refuse_noise_options(const GenerateOptions& options, const std::string& file);
void refuse_patch_options(const GenerateOptions& options, const std::string& file);
// Usage errors: numbers that no weights can draw with.
void check_ranges(const GenerateOptions& options);
// A usage error for options that the sampler does not read. What diffusion/ refuses by itself is left to it.
void refuse_others_options(const GenerateOptions& options, diffusion::SamplerName sampler, bool diffusion);

// What the words of an option stand for; usage errors name it.
//
// "207,360", "0-9", names, or "none"; nothing stands for all classes. A name of synonyms, "tench, Tinca tinca", is given
// whole or as any of them.
std::vector<int64_t> classes_of(const std::string& words, const tasks::Generator& generator,
                                const char* option);
// "256" or "256x384" (height, width); nothing for the side that was trained.
models::Extent size_of(const std::string& words, models::Extent trained, int64_t patch);
// "2-9", which stands for blocks 2 to 9 of so many counted from 0; nothing for all but the first and the last.
models::BlockReuse reuse_of(int64_t every, const std::string& words, int64_t blocks);

}  // namespace tessera::cli
