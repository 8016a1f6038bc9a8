// `tessera generate --weights FILE -o OUT`: images generated from noise by a trained generator.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/images/generate_options.h"
#include "cli/images/generate_output.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "data/transforms/transform.h"
#include "io/files/file.h"
#include "io/images/image.h"
#include "models/base/family.h"
#include "open/device.h"
#include "open/open_generator.h"
#include "tasks/base/report_blocks.h"
#include "tasks/generate/diffuse.h"
#include "tasks/generate/generator_pictures.h"
#include "tasks/generate/image_generator.h"
#include "weights/diffusers_folder.h"

namespace tessera::cli {
namespace {

// --- images to begin with

// [1, 3, height, width] in the range of the network.
torch::Tensor read_image(const std::string& path, const data::Preprocess& preprocess, int64_t height,
                         int64_t width) {
  const auto transform = data::make_eval_transform(preprocess, height, width);
  torch::Tensor image = torch::empty({1, 3, height, width});
  RandomStream unused(0, "image to begin with");
  const data::Slot slot{reinterpret_cast<std::byte*>(image.data_ptr<float>()), nullptr};
  transform->apply(data::read_image_file(path), unused, {&slot, 1});
  return image;
}

// [1, 1, height, width]: 1 for white, which is regenerated, 0 for black.
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

class GenerateRun {
 public:
  GenerateRun(const GenerateOptions& options, const Given& given, const train::OpenedTask& opened)
      : options_(options),
        opened_(opened),
        generator_(*tasks::generator_of(*opened.task)),
        device_(train::choose_device(options.device)),
        precision_(tasks::parse_precision(options.precision)),
        asked_(answer::asked_images(options, generator_,
                                    [&](int64_t count) { check_count(options.out, count); })),
        part_(drawn_part_of(options.part, options.out, options.resume)) {
    const models::Extent size = answer::size_of(options.size, answer::trained_size(opened.info),
                                                opened.info.model.settings.find("patch_size")->as_int());
    height_ = size.height, width_ = size.width;
    check_options();
    wants_values_ = takes_values(options_.out);
    open_vae();
    check_output();
    fill_request(given);
    tasks::move(opened.task->parts(), device_, train::parameter_type(precision_));
  }

  void run() {
    const int64_t factor = wants_values_ ? 1 : decoder_.factor();
    const auto output = open_generate_output(options_.out, asked_, settings_text(),
                                             {factor * width_, factor * height_, options_.batch, part_},
                                             generator_.network->channels(), options_.resume, shards());
    const torch::InferenceMode inference;
    const Interruptible stretch;
    ProgressLine progress(std::cerr, {.label = "generate", .total = std::ssize(asked_), .now = {}});
    const double began = steady_seconds();
    const int64_t drawn = draw_missing(*output, asked_, options_.batch, part_,
                                       [&](std::span<const AskedImage> batch, int64_t first) {
                                         const tasks::Generated generated = draw(batch, progress, first);
                                         evaluations_ = std::max(evaluations_, generated.evaluations);
                                         blocks_ += generated.blocks;
                                         spared_blocks_ += generated.spared_blocks;
                                         network_seconds_ += generated.network_seconds;
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
  const train::OpenedCodec& codec() const { return decoder_.codec(); }

  void check_options() const {
    if (options_.start.empty() && !options_.from_class.empty()) fail_usage("--from-class goes with --start");
    if (options_.start.empty() && options_.strength) fail_usage("--strength goes with --start");
    check_shards(shards(), options_.out, options_.batch);
    if (options_.out.empty()) fail_usage("--output is empty, must name a grid (.png), a folder, or .npz");
    require_folder_of(options_.out);
    if (!options_.inpaint.empty() && options_.mask.empty()) fail_usage("--inpaint goes with --mask");
    if (options_.moments > 0 && !is_image_name(options_.out))
      fail_usage("--moments are drawn in a grid, -o must end in .png, .jpg or .webp");
    if (options_.inpaint.empty() && !options_.mask.empty()) fail_usage("--mask goes with --inpaint");
    if (!options_.start.empty() && !options_.inpaint.empty()) fail_usage("--start and --inpaint: choose one");
  }

  void check_output() const {
    if (codec().codec || generator_.network->channels() == 3 || wants_values_) return;
    fail_usage(
        "'", opened_.file, "' makes latents of ", generator_.network->channels(),
        " channels, which are no images: name their VAE with --vae, or write them with -o latents.npy");
  }

  // The VAE that decodes latents; it must be the one that encoded the training latents.
  void open_vae() {
    const std::string path =
        options_.vae.empty() && !wants_values_ ? answer::vae_of_pipeline(options_.weights) : options_.vae;
    if (path.empty() && options_.tile > 0) fail_usage("--tile goes with --vae");
    if (path.empty()) return;
    train::OpenedCodec codec = train::open_codec(path);
    for (const std::string& note : codec.notes) std::cerr << one_line(note) << "\n";
    decoder_ = answer::Decoder(std::move(codec), generator_, opened_.file, device_, options_.tile);
  }

  // Reads an image in the network's range, as a latent if there is a VAE.
  torch::Tensor input_of(const std::string& path) {
    if (!codec().codec) return read_image(path, generator_.preprocess, height_, width_);
    const int64_t factor = codec().codec->factor();
    const torch::NoGradGuard no_grad;
    const torch::Tensor image = read_image(path, tasks::decoded_pixels(), factor * height_, factor * width_);
    return codec().codec->encode(image.to(device_)).mean.cpu() * decoder_.scale();
  }

  // A latent position is regenerated if any of its pixels is.
  torch::Tensor input_mask(const std::string& path) const {
    if (!codec().codec) return read_mask(path, height_, width_);
    const int64_t factor = codec().codec->factor();
    return at::max_pool2d(read_mask(path, factor * height_, factor * width_), {factor, factor});
  }

  void fill_request(const Given& given) {
    request_.height = height_, request_.width = width_;
    request_.guidance = answer::guidance_of(options_.guidance, generator_);
    const diffusion::SamplerRow& row = generator_.process->row(options_.sampler);
    given.refuse([&](const OptionField& field) { return diffusion::unread(row, field.key); });
    request_.sampler = answer::sampler_of(options_.sampler, generator_, !options_.from_class.empty());
    sampler_ = generator_.process->sampler(request_.sampler);  // throws before anything is written
    steps_ = sampler_->steps();
    if (options_.moments > steps_ + 1)
      fail_usage("--moments ", options_.moments, ": a walk of ", counted(steps_, "step"), " has ", steps_ + 1,
                 " moments, noise and image among them, must be at most that");
    if (!options_.start.empty()) {
      request_.start = input_of(options_.start);
      request_.strength = options_.strength.value_or(options_.from_class.empty() ? 0.7 : 1);
    }
    if (!options_.from_class.empty()) {
      const std::vector<int64_t> found = answer::classes_of(options_.from_class, generator_, "--from-class");
      if (found.size() != 1)
        fail_usage("--from-class '", printable(options_.from_class), "', must be one class");
      from_class_ = found.front();
    }
    request_.reuse =
        answer::reuse_of(options_.reuse, options_.reuse_blocks, generator_.backbone->block_count());
    if (!options_.inpaint.empty()) {
      request_.known = input_of(options_.inpaint);
      request_.mask = input_mask(options_.mask);
    }
  }

  // All settings that determine the images.
  std::string settings_text() const {
    diffusion::SamplerConfig sampler = request_.sampler;
    nlohmann::ordered_json out;
    out["model"] = opened_.info.model.name;
    out["weights"] = checksum_of_weights(opened_.file);
    out["size"] = {height_, width_};
    out.update(json_of(option_fields(sampler)));
    out["cfg"] = request_.guidance.scale;
    out["cfg_channels"] = request_.guidance.channels;
    out["cfg_rescale"] = request_.guidance.rescale;
    out["cfg_interval"] = {request_.guidance.from, request_.guidance.to};
    out["precision"] = options_.precision;
    if (codec().codec) out["vae"] = codec().checksum;
    out["batch"] = options_.batch;
    out["classes"] = options_.classes;
    out["first_seed"] = options_.seed;
    for (const auto& [key, file] :
         {std::pair{"start", options_.start}, {"inpaint", options_.inpaint}, {"mask", options_.mask}})
      if (!file.empty()) out[key] = checksum_of(MappedFile(file).bytes());
    if (!options_.start.empty()) out["strength"] = request_.strength;
    if (!options_.from_class.empty()) out["from_class"] = from_class_;
    if (options_.tile > 0) out["tile"] = options_.tile;
    if (request_.reuse.every > 1)
      out["reuse"] = {{"every", request_.reuse.every},
                      {"first", request_.reuse.first},
                      {"last", request_.reuse.last - 1}};
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
    if (from_class_ >= 0) request_.start_labels = torch::full_like(request_.labels, from_class_);
    moments_.clear();
    request_.after = [&](int64_t step, int64_t steps, const torch::Tensor& x) {
      if (x.defined() && is_moment(step, steps)) moments_.push_back(x / loudness(step + 1));
      if (step >= 0) progress.update(before, {{"step", text(step + 1, "/", steps)}});
      return !interrupted();
    };
    try {
      tasks::Generated generated;
      {
        const tasks::AutocastScope autocast(device_, precision_);
        generated = tasks::generate_images(*generator_.network, *generator_.process, request_, device_);
      }
      if (!wants_values_) {
        generated.images = decoder_.decoded(generated.images);
        if (codec().codec) tasks::require_finite_images(generated.images, codec().file);
        for (torch::Tensor& moment : moments_) moment = decoder_.decoded(moment);
      }
      return generated;
    } catch (const Error& error) {
      if (error.kind == ErrorKind::interrupted || error.kind == ErrorKind::usage) throw;
      throw Error(error.kind, text(opened_.file, ", images from ", before, " on: ", error.what()));
    }
  }

  // Evenly spaced over the steps from the start (step -1), except the last, which is the image itself.
  bool is_moment(int64_t step, int64_t steps) const {
    for (int64_t i = 0; i + 1 < options_.moments; ++i)
      if (step + 1 == i * steps / (options_.moments - 1) && step + 1 < steps) return true;
    return false;
  }

  // Some samplers begin with noise of a large standard deviation; for a picture it is reduced to at most 1.
  double loudness(int64_t step) const {
    const diffusion::Level level = sampler_->level(step);
    return std::max(1.0, std::hypot(level.alpha, level.sigma));
  }

  DrawnImage drawn_image(const torch::Tensor& images, int64_t index) const {
    const auto picture = [&](const torch::Tensor& all) { return decoder_.picture(all[index], generator_); };
    if (wants_values_) return {{}, images[index]};
    DrawnImage drawn{picture(images), {}};
    for (const torch::Tensor& moment : moments_) drawn.moments.push_back(picture(moment));
    return drawn;
  }

  ShardLayout shards() const {
    return {.images = options_.shard_size,
            .classes = generator_.network->label_count(),
            .class_names = generator_.class_names};
  }

  void report(int64_t drawn, double seconds) const {
    const std::string& sampler = request_.sampler.sampler;
    if (options_.json) {
      nlohmann::ordered_json line = nlohmann::ordered_json::parse(settings_text());
      line["images"] = drawn;
      line["evaluations"] = evaluations_;
      if (request_.reuse.every > 1) line["blocks"] = blocks_, line["spared_blocks"] = spared_blocks_;
      line["seconds"] = seconds;
      line["network_seconds"] = network_seconds_;
      line["output"] = options_.out;
      std::cout << json_text(line) << "\n";
      return;
    }
    const std::string steps = generator_.process->row(request_.sampler).evaluations == 0
                                  ? text("steps that the tolerances of ", sampler, " set")
                                  : text(counted(steps_, "step"), " of ", sampler);
    std::cout << one_line(options_.out) << ": " << counted(drawn, "image") << " by " << steps << ", cfg "
              << shortest(options_.guidance.scale) << ", " << counted(evaluations_, "function evaluation")
              << " a batch, ";
    if (request_.reuse.every > 1)
      std::cout << spared_blocks_ << " of " << counted(blocks_, "block evaluation") << " spared, ";
    std::cout << fixed(seconds, 1) << " s\n";
  }

  const GenerateOptions& options_;
  const train::OpenedTask& opened_;
  const tasks::Generator& generator_;
  torch::Device device_;
  tasks::Precision precision_;
  std::vector<AskedImage> asked_;
  DrawnPart part_;
  int64_t height_ = 0, width_ = 0, steps_ = 0, evaluations_ = 0, blocks_ = 0, spared_blocks_ = 0;
  double network_seconds_ = 0;
  int64_t from_class_ = -1;  // class to class
  tasks::GenerateRequest request_;
  std::unique_ptr<diffusion::Sampler> sampler_;
  answer::Decoder decoder_;
  bool wants_values_ = false;
  std::vector<torch::Tensor> moments_;  // for the current batch
};

// An existing .npz is not overwritten, like an existing folder.
void check_absent(const GenerateOptions& options) {
  if (options.out.ends_with(".npz") && !options.resume && file_exists(options.out))
    fail_usage("'", options.out, "' exists already: --resume goes on, or name another file");
}

void generate(const GenerateOptions& options, const Given& given) {
  check_absent(options);
  train::use_threads(options.threads);
  const train::OpenedTask opened = train::open_generator(
      options.weights, {.model = options.model, .key = options.key, .raw = options.raw});
  const auto print_notes = [&] {  // once nothing is refused
    for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
  };
  if (tasks::generator_of(*opened.task)) {
    given.refuse_others(GenerateOptions::kDiffuse, "'" + opened.file + "' holds a network of task diffuse");
    GenerateRun drawing(options, given, opened);
    print_notes();
    return drawing.run();
  }
  given.refuse_others(GenerateOptions::kPatches,
                      "'" + opened.file + "' draws patch by patch (`tessera complete` completes an image)",
                      /*also=*/{"steps"});
  print_notes();
  generate_patches(options, opened);
}

}  // namespace

void add_generate(Arguments& command, Action& action) {
  action = with_options<GenerateOptions>(command, generate);
}

}  // namespace tessera::cli
