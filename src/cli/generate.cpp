// `tessera generate --weights FILE -o OUT`: images out of noise, by a trained generator.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/common.h"
#include "cli/drawn_patches.h"
#include "cli/generate_output.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/image_files.h"
#include "data/transform.h"
#include "io/file.h"
#include "io/image_write.h"
#include "models/family.h"
#include "tasks/diffuse.h"
#include "tasks/image_generator.h"
#include "tasks/patch_pictures.h"
#include "train/device.h"
#include "train/open_codec.h"
#include "train/open_generator.h"

namespace tessera::cli {
namespace {

constexpr double kUnset = -1;
constexpr int64_t kMostImages = 10'000'000;
constexpr int64_t kMostPatchSteps = 1000;

struct Options {
  std::string weights, model, out, classes, part, vae;
  bool raw = false, resume = false, karras = false, json = false;
  int64_t count = 0, seed = 0, size = 0, batch = 16, threads = 0, steps = 0, cfg_channels = 0, moments = 0;
  double cfg = 1.5, cfg_rescale = 0, cfg_from = 0, cfg_to = 1, eta = 0, last_step_size = 0.04, clip = kUnset,
         strength = 0.7;
  std::string sampler = "auto", spacing = "trailing", form = "sigma", last_step = "mean";
  std::string start, inpaint, mask;
  std::string device = "auto", precision = "fp32";
};

// --- what is asked for

// "207,360", "0-9", names, or "none"; nothing stands for all classes.
std::vector<int64_t> classes_of(const std::string& words, const tasks::Generator& generator) {
  const int64_t count = generator.network->label_count();
  std::vector<int64_t> classes;
  const auto add = [&](int64_t one) {
    if (one < 0 || one >= count) fail_usage("--classes: class ", one, ", must be 0 to ", count - 1);
    classes.push_back(one);
  };
  if (words.empty())
    for (int64_t i = 0; i < count; ++i) classes.push_back(i);
  for (const std::string& word : words.empty() ? std::vector<std::string>() : split(words, ',')) {
    const size_t dash = word.find('-', 1);
    const auto first = parse_int(word.substr(0, dash)),
               last = dash == std::string::npos ? first : parse_int(word.substr(dash + 1));
    if (word == "none") {
      classes.push_back(generator.network->null_label());
    } else if (first && last) {
      if (*last < *first || *last - *first >= count)
        fail_usage("--classes: ", printable(word), " is no range of classes");
      for (int64_t one = *first; one <= *last; ++one) add(one);
    } else {
      const auto& names = generator.class_names;
      const auto found = std::find(names.begin(), names.end(), word);
      if (found == names.end())
        fail_usage("--classes: there is no class '", printable(word), "'", did_you_mean(word, names));
      add(found - names.begin());
    }
  }
  return classes;
}

std::string class_text(int64_t label, const tasks::Generator& generator) {
  if (label == generator.network->null_label()) return "none";
  const auto at = static_cast<size_t>(label);
  return at < generator.class_names.size() ? generator.class_names[at] : text("class ", label);
}

std::vector<AskedImage> asked_images(const Options& options, const tasks::Generator& generator) {
  const std::vector<int64_t> classes = classes_of(options.classes, generator);
  const int64_t count = options.count > 0         ? options.count
                        : options.classes.empty() ? std::min<int64_t>(std::ssize(classes), 16)
                                                  : std::ssize(classes);
  std::vector<AskedImage> asked;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t label = classes[static_cast<size_t>(i % std::ssize(classes))];
    asked.push_back({.index = i,
                     .seed = static_cast<uint64_t>(options.seed + i),
                     .label = label,
                     .caption = class_text(label, generator)});
  }
  return asked;
}

// --- images to begin with

// [1, 3, height, width] as the network has them.
torch::Tensor read_image(const std::string& path, const data::Preprocess& preprocess, int64_t height,
                         int64_t width) {
  const auto transform = data::make_eval_transform(preprocess, height, width);
  torch::Tensor image = torch::empty({1, 3, height, width});
  RandomStream unused(0, "image to begin with");
  const data::Slot slot{reinterpret_cast<std::byte*>(image.data_ptr<float>()), nullptr};
  transform->apply(data::read_image_file(path), unused, {&slot, 1});
  return image;
}

// [1, 1, height, width]: 1 where the mask is white, which is drawn anew, 0 where it is black.
torch::Tensor read_mask(const std::string& path, int64_t height, int64_t width) {
  const Image mask = data::decode_sample(data::read_image_file(path));
  if (mask.width != width || mask.height != height)
    fail_usage("the mask '", path, "' is ", mask.width, " x ", mask.height, " pixels, must be ", width, " x ",
               height, " as the images that are drawn");
  torch::Tensor out = torch::empty({1, 1, height, width});
  float* value = out.data_ptr<float>();
  for (int64_t i = 0; i < height * width; ++i)
    value[i] = mask.pixels[static_cast<size_t>(i * mask.channels)] >= 128 ? 1.0F : 0.0F;
  return out;
}

// --- the run

class Drawing {
 public:
  Drawing(const Options& options, const train::OpenedTask& opened)
      : options_(options),
        opened_(opened),
        generator_(*tasks::generator_of(*opened.task)),
        device_(train::choose_device(options.device)),
        precision_(tasks::parse_precision(options.precision)),
        asked_(asked_images(options, generator_)),
        part_(drawn_part_of(options.part, options.out, options.resume)) {
    const models::Extent trained =
        models::extent_of(*opened.info.model.settings.find("image_size"), "image_size");
    height_ = options.size > 0 ? options.size : trained.height;
    width_ = options.size > 0 ? options.size : trained.width;
    const int64_t patch = opened.info.model.settings.find("patch_size")->as_int();
    if (height_ % patch != 0) fail_usage("--size ", height_, ", must be whole patches of ", patch, " pixels");
    check_options();
    wants_values_ = takes_values(options_.out);
    open_vae();
    check_output();
    fill_request();
    tasks::move(opened.task->parts(), device_, train::parameter_type(precision_));
  }

  void run() {
    const int64_t factor = codec_.codec && !wants_values_ ? codec_.codec->factor() : 1;
    const auto output =
        open_generate_output(options_.out, asked_, settings_text(), factor * width_, factor * height_,
                             generator_.network->channels(), options_.resume);
    const torch::InferenceMode inference;
    const Interruptible stretch;
    ProgressLine progress(std::cerr, {.label = "generate", .total = std::ssize(asked_), .now = {}});
    const double began = steady_seconds();
    const int64_t drawn = draw_missing(*output, asked_, options_.batch, part_,
                                       [&](std::span<const AskedImage> batch, int64_t first) {
                                         const tasks::Generated generated = draw(batch, progress, first);
                                         evaluations_ = std::max(evaluations_, generated.evaluations);
                                         std::vector<DrawnImage> images;
                                         for (int64_t i = 0; i < std::ssize(batch); ++i)
                                           images.push_back(drawn_image(generated.images, i));
                                         progress.update(first + std::ssize(batch), {});
                                         return images;
                                       });
    output->finish();
    progress.finish();
    report(drawn, steady_seconds() - began);
  }

 private:
  void check_options() const {
    if (options_.out.empty()) fail_usage("--output is empty, must name a grid (.png), a folder, or .npz");
    if (!options_.inpaint.empty() && options_.mask.empty()) fail_usage("--inpaint goes with --mask");
    if (options_.moments > 0 && !is_image_name(options_.out))
      fail_usage("--moments are drawn in a grid, -o must end in .png, .jpg or .webp");
    if (options_.inpaint.empty() && !options_.mask.empty()) fail_usage("--mask goes with --inpaint");
    if (!options_.start.empty() && !options_.inpaint.empty()) fail_usage("--start and --inpaint: choose one");
  }

  void check_output() const {
    if (codec_.codec || generator_.network->channels() == 3 || wants_values_) return;
    fail_usage(
        "'", opened_.file, "' makes latents of ", generator_.network->channels(),
        " channels, which are no images: name their VAE with --vae, or write them with -o latents.npy");
  }

  // The VAE that latents are decoded by, which must be the one that they were made with.
  void open_vae() {
    if (options_.vae.empty()) return;
    codec_ = train::open_codec(options_.vae);
    for (const std::string& note : codec_.notes) std::cerr << one_line(note) << "\n";
    if (codec_.codec->latent_channels() != generator_.network->channels())
      fail_usage("'", codec_.file, "' decodes latents of ", codec_.codec->latent_channels(), " channels, '",
                 opened_.file, "' makes ", generator_.network->channels());
    if (generator_.latents && generator_.latents->checksum != codec_.checksum)
      fail_usage("'", opened_.file, "' was trained on latents of ", generator_.latents->codec, " ",
                 generator_.latents->checksum, ", '", codec_.file, "' is another VAE, ", codec_.checksum);
    scale_ = generator_.latents ? generator_.latents->scale : codec_.require_scale();
    codec_.model->to(device_);
  }

  // As the network has images, in latents where there is a VAE.
  torch::Tensor input_of(const std::string& path) {
    if (!codec_.codec) return read_image(path, generator_.preprocess, height_, width_);
    const int64_t factor = codec_.codec->factor();
    const torch::NoGradGuard no_grad;
    const torch::Tensor image = read_image(path, pixels_, factor * height_, factor * width_);
    return codec_.codec->encode(image.to(device_)).mean.cpu() * scale_;
  }

  // A place of the latent is drawn anew where any pixel of it is.
  torch::Tensor input_mask(const std::string& path) const {
    if (!codec_.codec) return read_mask(path, height_, width_);
    const int64_t factor = codec_.codec->factor();
    return at::max_pool2d(read_mask(path, factor * height_, factor * width_), {factor, factor});
  }

  // Pixels of what the network made, in float32.
  torch::Tensor decoded(const torch::Tensor& images) const {
    return codec_.codec ? codec_.codec->decode(images.to(torch::kFloat32) / scale_) : images;
  }

  void fill_request() {
    request_.height = height_, request_.width = width_;
    request_.guidance = {.scale = options_.cfg,
                         .channels = options_.cfg_channels,
                         .rescale = options_.cfg_rescale,
                         .from = options_.cfg_from,
                         .to = options_.cfg_to};
    // The published guidance of latents leaves the fourth channel alone.
    if (options_.cfg_channels == 0 && generator_.network->channels() == 4) request_.guidance.channels = 3;
    request_.guidance.check();
    tasks::SamplerConfig& sampler = request_.sampler;
    sampler.sampler = parse_enum<tasks::SamplerName>(options_.sampler, "--sampler");
    sampler.steps = options_.steps;
    sampler.eta = options_.eta;
    sampler.karras = options_.karras;
    sampler.spacing = parse_enum<diffusion::Spacing>(options_.spacing, "--spacing");
    sampler.form = parse_enum<diffusion::DiffusionForm>(options_.form, "--diffusion");
    sampler.last_step = parse_enum<diffusion::LastStep>(options_.last_step, "--last-step");
    sampler.last_step_size = options_.last_step_size;
    sampler = generator_.process->resolved(sampler);
    // Pixels lie within -1 and 1, latents do not.
    const bool clips =
        sampler.sampler == tasks::SamplerName::ddpm || sampler.sampler == tasks::SamplerName::ddim;
    sampler.clip = options_.clip >= 0 ? options_.clip : clips && generator_.network->channels() == 3 ? 1 : 0;
    steps_ = generator_.process->sampler(sampler)->steps();  // what it refuses, before anything is written
    if (!options_.start.empty()) {
      request_.start = input_of(options_.start);
      request_.strength = options_.strength;
    }
    if (!options_.inpaint.empty()) {
      request_.known = input_of(options_.inpaint);
      request_.mask = input_mask(options_.mask);
    }
  }

  // All that decides what is drawn.
  std::string settings_text() const {
    const tasks::SamplerConfig& sampler = request_.sampler;
    nlohmann::ordered_json out;
    out["model"] = opened_.info.model.name;
    out["weights"] = checksum_of(MappedFile(opened_.file).bytes());
    out["size"] = {height_, width_};
    out["sampler"] = name_of(sampler.sampler);
    out["steps"] = sampler.steps;
    out["eta"] = sampler.eta;
    out["karras"] = sampler.karras;
    out["spacing"] = name_of(sampler.spacing);
    out["diffusion"] = name_of(sampler.form);
    out["last_step"] = name_of(sampler.last_step);
    out["last_step_size"] = sampler.last_step_size;
    out["clip"] = sampler.clip;
    out["cfg"] = request_.guidance.scale;
    out["cfg_channels"] = request_.guidance.channels;
    out["cfg_rescale"] = request_.guidance.rescale;
    out["cfg_interval"] = {request_.guidance.from, request_.guidance.to};
    out["precision"] = options_.precision;
    if (codec_.codec) out["vae"] = codec_.checksum;
    out["batch"] = options_.batch;
    out["classes"] = options_.classes;
    out["first_seed"] = options_.seed;
    for (const auto& [key, file] :
         {std::pair{"start", options_.start}, {"inpaint", options_.inpaint}, {"mask", options_.mask}})
      if (!file.empty()) out[key] = checksum_of(MappedFile(file).bytes());
    if (!options_.start.empty()) out["strength"] = options_.strength;
    return json_text(out);
  }

  tasks::Generated draw(std::span<const AskedImage> batch, ProgressLine& progress, int64_t before) {
    std::vector<int64_t> labels;
    request_.seeds.clear();
    for (const AskedImage& one : batch) {
      request_.seeds.push_back(one.seed);
      labels.push_back(one.label);
    }
    request_.labels = torch::tensor(labels, torch::kInt64);
    moments_.clear();
    request_.after = [&](int64_t step, int64_t steps, const torch::Tensor& x) {
      if (is_moment(step, steps)) moments_.push_back(x);
      progress.update(before, {{"step", text(step + 1, "/", steps)}});
      return !interrupted();
    };
    try {
      tasks::Generated generated;
      {
        const tasks::AutocastScope autocast(device_, precision_);
        generated = tasks::generate_images(*generator_.network, *generator_.process, request_, device_);
      }
      if (!wants_values_) {
        generated.images = decoded(generated.images);
        for (torch::Tensor& moment : moments_) moment = decoded(moment);
      }
      return generated;
    } catch (const Error& error) {
      if (error.kind == ErrorKind::interrupted || error.kind == ErrorKind::usage) throw;
      throw Error(error.kind, opened_.file + ": " + error.what());
    }
  }

  // Evenly spaced over the walk, without its end, which is the image itself.
  bool is_moment(int64_t step, int64_t steps) const {
    for (int64_t i = 1; i < options_.moments; ++i)
      if (step + 1 == i * steps / options_.moments && step + 1 < steps) return true;
    return false;
  }

  DrawnImage drawn_image(const torch::Tensor& images, int64_t index) const {
    const auto picture = [&](const torch::Tensor& all) {
      return tasks::picture_of(all[index], codec_.codec ? pixels_ : generator_.preprocess);
    };
    if (wants_values_) return {{}, images[index]};
    DrawnImage drawn{picture(images), {}};
    for (const torch::Tensor& moment : moments_) drawn.moments.push_back(picture(moment));
    return drawn;
  }

  void report(int64_t drawn, double seconds) const {
    const std::string sampler = name_of(request_.sampler.sampler);
    if (options_.json) {
      nlohmann::ordered_json line = nlohmann::ordered_json::parse(settings_text());
      line["images"] = drawn;
      line["evaluations"] = evaluations_;
      line["seconds"] = seconds;
      line["output"] = options_.out;
      std::cout << json_text(line) << "\n";
      return;
    }
    std::cout << one_line(options_.out) << ": " << counted(drawn, "image") << " by "
              << counted(steps_, "step") << " of " << sampler << ", cfg " << shortest(options_.cfg) << ", "
              << counted(evaluations_, "function evaluation") << " a batch, " << fixed(seconds, 1) << " s\n";
  }

  const Options& options_;
  const train::OpenedTask& opened_;
  const tasks::Generator& generator_;
  torch::Device device_;
  tasks::Precision precision_;
  std::vector<AskedImage> asked_;
  DrawnPart part_;
  int64_t height_ = 0, width_ = 0, steps_ = 0, evaluations_ = 0;
  tasks::GenerateRequest request_;
  train::OpenedCodec codec_;
  data::Preprocess pixels_ = {.crop = 1, .mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}};  // of the VAE
  double scale_ = 1;
  bool wants_values_ = false;
  std::vector<torch::Tensor> moments_;  // of the batch that is drawn
};

// Options that only networks of task diffuse have, for weights that draw patch by patch.
void refuse_noise_options(const Options& options, const std::string& file) {
  const Options standard;
  if (options.steps > kMostPatchSteps)
    fail_usage("--steps ", options.steps, ": a patch has at most ", kMostPatchSteps, " noise levels");
  const std::pair<const char*, bool> given[] = {
      {"--classes", !options.classes.empty()},
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
      {"--diffusion", options.form != standard.form},
      {"--last-step", options.last_step != standard.last_step},
      {"--last-step-size", options.last_step_size != standard.last_step_size},
      {"--clip", options.clip != standard.clip},
      {"--size", options.size != standard.size},
      {"--moments", options.moments != standard.moments},
      {"--start", !options.start.empty()},
      {"--inpaint", !options.inpaint.empty()},
      {"--mask", !options.mask.empty()}};
  for (const auto& [name, is_given] : given)
    if (is_given)
      fail_usage(name, " is for networks of task diffuse; '", file,
                 "' draws patch by patch (an image is completed by `tessera complete`)");
}

void generate(const Options& options) {
  train::use_threads(options.threads);
  const train::OpenedTask opened =
      train::open_generator(options.weights, {.model = options.model, .raw = options.raw});
  for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
  if (tasks::generator_of(*opened.task)) return Drawing(options, opened).run();
  refuse_noise_options(options, opened.file);
  generate_patches({.out = options.out,
                    .part = options.part,
                    .count = options.count,
                    .seed = options.seed,
                    .batch = options.batch,
                    .steps = options.steps,
                    .resume = options.resume,
                    .json = options.json,
                    .device = options.device,
                    .precision = options.precision},
                   opened);
}

}  // namespace

void add_generate(Arguments& command, Action& action) {
  auto options = std::make_shared<Options>();
  command
      .add("-w,--weights,--pretrained", options->weights,
           "weights of task diffuse or darl, a published DiT or SiT, or a folder of diffusers")
      .required();
  command
      .add("-o,--output", options->out,
           "a grid (.png, .jpg, .webp), a folder of PNGs, a batch (.npz), or values (.npy, .safetensors)")
      .required();
  command.add("--vae", options->vae,
              "the VAE that decodes latents: weights of task vae, or a folder of diffusers");
  command.add("--classes", options->classes,
              "numbers or names: 207,360 or 0-9 or star, in turn; none (default: all)");
  command
      .add("-n,--count", options->count,
           "images (default: one of each class, at most 16 where none is named)")
      .range<int64_t>(1, kMostImages);
  command.add("--seed", options->seed, "seed of the first image; each has the next").show_default();
  command.add("--cfg", options->cfg, "classifier-free guidance, 1 = none").show_default();
  command.add("--cfg-channels", options->cfg_channels,
              "guide the first so many channels (default: all, of latents 3)");
  command.add("--cfg-rescale", options->cfg_rescale, "share that gets the deviation without guidance")
      .show_default();
  command.add("--cfg-from", options->cfg_from, "guide from this share of noise on, 0 is the image")
      .show_default();
  command.add("--cfg-to", options->cfg_to, "guide up to this share of noise, 1 is noise").show_default();
  command
      .add("--sampler", options->sampler, "how noise is taken away (default: ddpm, of interpolants dopri5)")
      .one_of(names_of<tasks::SamplerName>());
  command
      .add("--steps", options->steps,
           "steps (default: 250 of ddpm and sde, 100 for each patch of darl, else 50)")
      .range<int64_t>(1, 1'000'000);
  command.add("--eta", options->eta, "ddim: share of the chain's noise").show_default();
  command.flag("--karras", options->karras, "dpmpp, euler, heun: Karras' spacing of the noise");
  command.add("--spacing", options->spacing, "which steps of the schedule are taken")
      .one_of(names_of<diffusion::Spacing>())
      .show_default();
  command.add("--diffusion", options->form, "sde: its coefficient")
      .one_of(names_of<diffusion::DiffusionForm>())
      .show_default();
  command.add("--last-step", options->last_step, "sde: the step to the end")
      .one_of(names_of<diffusion::LastStep>())
      .show_default();
  command.add("--last-step-size", options->last_step_size, "sde: how long it is").show_default();
  command.add("--clip", options->clip,
              "ddpm, ddim: clean images stay within +- this, 0 = not (default: 1 of pixels)");
  command.add("--size", options->size, "side of the images in the network's own pixels (default: as trained)")
      .range<int64_t>(1, 16384);
  command.add("--moments", options->moments, "a row for each image: so many moments from noise to it")
      .range<int64_t>(2, 64);
  command.add("--start", options->start, "image to image: begin with this one under noise");
  command.add("--strength", options->strength, "--start: share of the steps that are walked").show_default();
  command.add("--inpaint", options->inpaint, "keep this image but for what --mask says");
  command.add("--mask", options->mask, "image as large as those that are drawn: white is drawn anew");
  command.flag("--resume", options->resume, "go on with a folder or .npz that an earlier run has begun");
  command.add("--part", options->part, "2/4: this is the second of four processes that draw into one folder");
  command.flag("--raw", options->raw, "checkpoints: the raw weights instead of their moving average");
  command.add("--model", options->model, "model name, where weights of other programs do not tell");
  command.flag("--json", options->json, "what was done as one JSON object");
  command.add("--batch-size,--batch", options->batch, "images at a time")
      .show_default()
      .range<int64_t>(1, 4096);
  add_compute_options(command, options->device, options->precision, options->threads);
  action = [options] { generate(*options); };
}

}  // namespace tessera::cli
