#include "cli/images/generate_options.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/base/common.h"
#include "cli/images/drawn_patches.h"
#include "core/error.h"
#include "core/text.h"
#include "diffusion/discrete_sampler.h"
#include "diffusion/interpolant_sampler.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMostPatchSteps = 1000, kMostSide = 16384;

// The parts between commas. ImageNet's names hold commas themselves: "tench, Tinca tinca" are two synonyms.
std::vector<std::string> parts_of(const std::string& words) {
  std::vector<std::string> parts;
  for (const std::string& part : split(words, ',')) parts.emplace_back(trim(part));
  return parts;
}

// Classes by their names.
class NamedClasses {
 public:
  explicit NamedClasses(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      synonyms_.push_back(parts_of(name));
      longest_ = std::max(longest_, synonyms_.back().size());
      spelled_.push_back(join(synonyms_.back(), ", "));
    }
  }

  // The words of a list: its parts, but those that make a whole name together are one.
  std::vector<std::string> words_of(const std::string& list) const {
    const std::vector<std::string> parts = parts_of(list);
    std::vector<std::string> words;
    for (size_t i = 0; i < parts.size();) {
      size_t length = std::min(longest_, parts.size() - i);
      for (; length > 1; --length)
        if (whole(some(parts, i, length)) >= 0) break;
      words.push_back(some(parts, i, length));
      i += length;
    }
    return words;
  }

  // The class of a whole name, or else of a synonym; usage errors name the option.
  int64_t find(const std::string& word, const char* option) const {
    if (const int64_t found = whole(word); found >= 0) return found;
    std::vector<std::string> classes;
    for (size_t i = 0; i < synonyms_.size(); ++i)
      if (std::ranges::find(synonyms_[i], word) != synonyms_[i].end()) classes.push_back(std::to_string(i));
    if (classes.size() > 1)
      fail_usage(option, ": '", printable(word), "' names the classes ", join(classes, ", "),
                 ", must be one of these numbers");
    if (classes.size() == 1) return *parse_int(classes.front());
    std::vector<std::string> known = spelled_;
    for (const auto& names : synonyms_) known.insert(known.end(), names.begin(), names.end());
    fail_usage(option, ": there is no class '", printable(word), "'", did_you_mean(word, known));
  }

 private:
  static std::string some(const std::vector<std::string>& parts, size_t first, size_t count) {
    const auto begin = parts.begin() + static_cast<std::ptrdiff_t>(first);
    return join(std::vector<std::string>(begin, begin + static_cast<std::ptrdiff_t>(count)), ", ");
  }
  int64_t whole(const std::string& word) const {
    const auto found = std::ranges::find(spelled_, word);
    return found == spelled_.end() ? -1 : found - spelled_.begin();
  }

  std::vector<std::vector<std::string>> synonyms_;
  std::vector<std::string> spelled_;
  size_t longest_ = 1;
};

}  // namespace

void add_generate_options(Arguments& command, GenerateOptions& options) {
  command
      .add("-w,--weights,--pretrained", options.weights,
           "weights of task diffuse or darl, a published DiT or SiT, or a folder of diffusers")
      .required();
  command
      .add("-o,--output", options.out,
           "a grid (.png, .jpg, .webp), a folder of PNGs, a batch (.npz), or values (.npy, .safetensors)")
      .required();
  command.add("--vae", options.vae,
              "the VAE that decodes latents: weights of task vae, or a folder of diffusers");
  command
      .add("--tile", options.tile,
           "decode latents in tiles of this side in pixels, for large images (0: whole)")
      .show_default()
      .range<int64_t>(0, 8192);
  command.add("--classes", options.classes,
              "numbers or names: 207,360 or 0-9 or star, in turn; none (default: all)");
  command
      .add("-n,--count", options.count, "images (default: one of each class, at most 16 where none is named)")
      .range<int64_t>(1, GenerateOptions::kMostImages);
  command.add("--seed", options.seed, "seed of the first image; each has the next").show_default();
  command.add("--cfg", options.cfg, "classifier-free guidance, 1 = none").show_default();
  command.add("--cfg-channels", options.cfg_channels,
              "guide the first so many channels (default: all, of latents 3)");
  command.add("--cfg-rescale", options.cfg_rescale, "share that gets the deviation without guidance")
      .show_default();
  command.add("--cfg-from", options.cfg_from, "guide from this share of noise on, 0 is the image")
      .show_default();
  command.add("--cfg-to", options.cfg_to, "guide up to this share of noise, 1 is noise").show_default();
  command.add("--sampler", options.sampler, "how noise is taken away (default: ddpm, of interpolants dopri5)")
      .one_of(names_of<diffusion::SamplerName>());
  command
      .add("--steps", options.steps,
           "steps (default: 250 of ddpm and sde, 100 for each patch of darl, else 50)")
      .range<int64_t>(1, 1'000'000);
  command.add("--respacing", options.respacing,
              "ddpm: so many steps of each part of the schedule, 10,15,20, or every n-th, ddim50");
  add_temperature_option(command, options.temperature);
  command.add("--eta", options.eta, "ddim: share of the chain's noise").show_default();
  command.flag("--karras", options.karras, "dpmpp, euler, heun: Karras' spacing of the noise");
  command.add("--spacing", options.spacing, "which steps of the schedule are taken")
      .one_of(names_of<diffusion::Spacing>())
      .show_default();
  command.add("--diffusion", options.form, "sde: its coefficient")
      .one_of(names_of<diffusion::DiffusionForm>())
      .show_default();
  command.add("--last-step", options.last_step, "sde: the step to the end")
      .one_of(names_of<diffusion::LastStep>())
      .show_default();
  command.add("--last-step-size", options.last_step_size, "sde: how long it is").show_default();
  command.add("--clip", options.clip,
              "ddpm, ddim: clean images stay within +- this, 0 = not (default: 1 of pixels)");
  command.add(
      "--threshold", options.threshold,
      "ddim, dpmpp: clean images stay within this quantile of their magnitudes (0.995), divided by it");
  command.add("--size", options.size,
              "side of the images in the network's own pixels, or HEIGHTxWIDTH (default: as trained)");
  command.add("--moments", options.moments, "a row for each image: so many moments from noise to it")
      .range<int64_t>(2, 64);
  command.add("--start", options.start, "image to image: begin with this one under noise");
  command.add("--from-class", options.from_class,
              "class to class: the class of --start; its noise is found instead of drawn");
  command.add("--strength", options.strength,
              "--start: share of the steps that are walked (default: 0.7, with --from-class 1)");
  command.add("--inpaint", options.inpaint, "keep this image but for what --mask says");
  command.add("--mask", options.mask, "image as large as those that are drawn: white is drawn anew");
  command.add("--reuse", options.reuse, "run the inner blocks at every so many steps only; 1 = at each")
      .show_default()
      .range<int64_t>(1, 1000);
  command.add("--reuse-blocks", options.reuse_blocks,
              "which, counted from 0: 2-9 (default: all but the first and the last)");
  command.flag("--resume", options.resume, "go on with a folder or .npz that an earlier run has begun");
  command.add("--part", options.part,
              "2/4: this is the second of four processes that draw into one folder or .npz");
  command.add("--shard-size", options.shard_size, "folders: shards (.tar) of so many images instead of PNGs")
      .range<int64_t>(1, GenerateOptions::kMostImages);
  command.flag("--raw", options.raw, "checkpoints: the raw weights instead of their moving average");
  command.add("--model", options.model, "model name, where weights of other programs do not tell");
  command.flag("--json", options.json, "what was done as one JSON object");
  command.add("--batch-size,--batch", options.batch, "images at a time")
      .show_default()
      .range<int64_t>(1, 4096);
  add_compute_options(command, options.device, options.precision, options.threads);
}

void refuse_noise_options(const GenerateOptions& options, const std::string& file) {
  const GenerateOptions standard;
  if (options.steps > kMostPatchSteps)
    fail_usage("--steps ", options.steps, ": a patch has at most ", kMostPatchSteps, " noise levels");
  refuse_given({{"--classes", !options.classes.empty()},
                {"--vae", !options.vae.empty()},
                {"--cfg", options.cfg != standard.cfg},
                {"--cfg-channels", options.cfg_channels != standard.cfg_channels},
                {"--cfg-rescale", options.cfg_rescale != standard.cfg_rescale},
                {"--cfg-from", options.cfg_from != standard.cfg_from},
                {"--cfg-to", options.cfg_to != standard.cfg_to},
                {"--sampler", options.sampler != standard.sampler},
                {"--eta", options.eta != standard.eta},
                {"--karras", options.karras},
                {"--spacing", options.spacing != standard.spacing},
                {"--respacing", !options.respacing.empty()},
                {"--diffusion", options.form != standard.form},
                {"--last-step", options.last_step != standard.last_step},
                {"--last-step-size", options.last_step_size != standard.last_step_size},
                {"--clip", options.clip != standard.clip},
                {"--threshold", options.threshold != standard.threshold},
                {"--size", options.size != standard.size},
                {"--moments", options.moments != standard.moments},
                {"--start", !options.start.empty()},
                {"--from-class", !options.from_class.empty()},
                {"--strength", options.strength != standard.strength},
                {"--tile", options.tile != standard.tile},
                {"--reuse", options.reuse != standard.reuse},
                {"--reuse-blocks", !options.reuse_blocks.empty()},
                {"--inpaint", !options.inpaint.empty()},
                {"--mask", !options.mask.empty()}},
               "is for networks of task diffuse; '" + file +
                   "' draws patch by patch (an image is completed by `tessera complete`)");
}

void refuse_others_options(const GenerateOptions& options, diffusion::SamplerName sampler, bool diffusion) {
  using enum diffusion::SamplerName;
  const GenerateOptions standard;
  const bool stochastic = sampler == sde || sampler == sde_heun;
  struct Option {
    const char *name, *whose;
    bool given, read;
  };
  const Option all[] = {
      {"--eta", "ddim", options.eta != standard.eta, diffusion},
      {"--karras", "samplers of diffusion", options.karras, diffusion},
      {"--clip", "samplers of diffusion", options.clip > 0, diffusion},
      {"--threshold", "samplers of diffusion", options.threshold != standard.threshold, diffusion},
      {"--spacing", "samplers of diffusion other than ddpm", options.spacing != standard.spacing,
       diffusion && sampler != ddpm},
      {"--respacing", "ddpm", !options.respacing.empty(), sampler == ddpm},
      {"--diffusion", "sde and sde_heun", options.form != standard.form, stochastic},
      {"--last-step", "sde and sde_heun", options.last_step != standard.last_step, stochastic},
      {"--last-step-size", "sde and sde_heun", options.last_step_size != standard.last_step_size,
       stochastic}};
  for (const Option& one : all)
    if (one.given && !one.read)
      fail_usage(one.name, " is read by ", one.whose, ", not by ", name_of(sampler));
  if (options.steps > 0) diffusion::require_counted_steps(sampler, options.steps);
  if (!options.respacing.empty() && options.steps > 0)
    fail_usage("--respacing says the steps by itself, --steps ", options.steps, " does not go with it");
}

void check_ranges(const GenerateOptions& options) {
  if (options.clip != GenerateOptions::kUnset && !(options.clip >= 0 && std::isfinite(options.clip)))
    fail_usage("--clip ", shortest(options.clip), ", must be at least 0, which stands for none");
  if (options.cfg_from > options.cfg_to)
    fail_usage("--cfg-from = ", shortest(options.cfg_from),
               " must be at most --cfg-to = ", shortest(options.cfg_to));
}

void refuse_patch_options(const GenerateOptions& options, const std::string& file) {
  if (options.temperature != GenerateOptions().temperature)
    fail_usage("--temperature is for weights that draw tokens; '", file, "' holds a network of task diffuse");
}

std::vector<int64_t> classes_of(const std::string& words, const tasks::Generator& generator,
                                const char* option) {
  const int64_t count = generator.network->label_count();
  std::vector<int64_t> classes;
  const auto add = [&](int64_t one) {
    if (one < 0 || one >= count) fail_usage(option, ": class ", one, ", must be 0 to ", count - 1);
    classes.push_back(one);
  };
  if (words.empty())
    for (int64_t i = 0; i < count; ++i) classes.push_back(i);
  const NamedClasses named(generator.class_names);
  for (const std::string& word : words.empty() ? std::vector<std::string>() : named.words_of(words)) {
    const size_t dash = word.find('-', 1);
    const auto first = parse_int(word.substr(0, dash)),
               last = dash == std::string::npos ? first : parse_int(word.substr(dash + 1));
    if (word == "none") {
      if (!generator.network->has_null_label())
        fail_usage(option, ": the network knows no image without a class");
      classes.push_back(generator.network->null_label());
    } else if (first && last) {
      if (*last < *first || *last - *first >= count)
        fail_usage(option, ": ", printable(word), " is no range of classes");
      for (int64_t one = *first; one <= *last; ++one) add(one);
    } else {
      add(named.find(word, option));
    }
  }
  return classes;
}

models::Extent size_of(const std::string& words, models::Extent trained, int64_t patch) {
  if (words.empty()) return trained;
  const size_t cross = words.find('x');
  const auto height = parse_int(words.substr(0, cross)),
             width = cross == std::string::npos ? height : parse_int(words.substr(cross + 1));
  if (!height || !width || *height < 1 || *width < 1 || *height > kMostSide || *width > kMostSide)
    fail_usage("--size '", printable(words), "', must be a side or HEIGHTxWIDTH, each 1 to ", kMostSide);
  for (const int64_t side : {*height, *width})
    if (side % patch != 0) fail_usage("--size ", words, ", must be whole patches of ", patch, " pixels");
  return {*height, *width};
}

models::BlockReuse reuse_of(int64_t every, const std::string& words, int64_t blocks) {
  if (every == 1) {
    if (!words.empty()) fail_usage("--reuse-blocks goes with --reuse");
    return {};
  }
  if (words.empty() && blocks < 3)
    fail_usage("--reuse: a network of ", blocks,
               " blocks has none between the first and the last: name some ", "with --reuse-blocks");
  if (words.empty()) return {.every = every, .first = 1, .last = blocks - 1};
  const size_t dash = words.find('-');
  const auto first = parse_int(words.substr(0, dash)),
             last = dash == std::string::npos ? first : parse_int(words.substr(dash + 1));
  if (!first || !last || *first < 0 || *last < *first || *last >= blocks)
    fail_usage("--reuse-blocks '", printable(words), "', must be as 1-2, within 0 to ", blocks - 1);
  return {.every = every, .first = *first, .last = *last + 1};
}

}  // namespace tessera::cli
