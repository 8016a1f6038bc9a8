// `tessera generate --weights FILE -o OUT`: images generated from noise by a trained generator.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/images/generate_options.h"
#include "cli/images/generate_output.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/images/image.h"
#include "open/device.h"
#include "open/open_generator.h"

namespace tessera::cli {
namespace {

class GenerateRun {
 public:
  GenerateRun(const GenerateOptions& options, const Given& given, const train::ReadyTask& model)
      : options_(options),
        model_(model),
        drawing_(model),
        asked_(answer::asked_images(options, drawing_.generator(),
                                    [&](int64_t count) { check_count(options.out, count); })),
        part_(drawn_part_of(options.part, options.out, options.resume)) {
    drawing_.set_size(options.size);
    check_options();
    if (takes_values(options_.out)) drawing_.keep_values();
    open_vae();
    check_output();
    set_drawing(given);
  }

  void run() {
    const auto [height, width] = drawing_.size();
    const auto output =
        open_generate_output(options_.out, asked_, settings_text(),
                             {drawing_.factor() * width, drawing_.factor() * height, options_.batch, part_},
                             drawing_.channels(), options_.resume, shards());
    const torch::InferenceMode inference;
    const Interruptible stretch;
    ProgressLine progress(std::cerr, {.label = "generate", .total = std::ssize(asked_), .now = {}});
    const double began = steady_seconds();
    const int64_t drawn = draw_missing(*output, asked_, options_.batch, part_,
                                       [&](std::span<const AskedImage> batch, int64_t first) {
                                         const answer::DrawnBatch made = draw(batch, progress, first);
                                         std::vector<DrawnImage> images;
                                         for (int64_t i = 0; i < std::ssize(batch); ++i)
                                           images.push_back(drawn_image(made, i));
                                         progress.update(first + std::ssize(batch), {});
                                         return images;
                                       });
    output->finish();
    progress.finish();
    report(drawn, steady_seconds() - began);
  }

 private:
  const train::OpenedCodec& codec() const { return drawing_.decoder().codec(); }
  bool keeps_values() const { return takes_values(options_.out); }

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
    if (codec().codec || drawing_.channels() == 3 || keeps_values()) return;
    fail_usage(
        "'", model_.file(), "' makes latents of ", drawing_.channels(),
        " channels, which are no images: name their VAE with --vae, or write them with -o latents.npy");
  }

  // The VAE that decodes latents; it must be the one that encoded the training latents.
  void open_vae() {
    const std::string path =
        options_.vae.empty() && !keeps_values() ? answer::vae_of_pipeline(options_.weights) : options_.vae;
    if (path.empty() && options_.tile > 0) fail_usage("--tile goes with --vae");
    if (path.empty()) return;
    train::OpenedCodec codec = train::open_codec(path);
    for (const std::string& note : codec.notes) std::cerr << one_line(note) << "\n";
    drawing_.set_codec(std::move(codec), options_.tile);
  }

  void set_drawing(const Given& given) {
    given.refuse([&](const OptionField& field) { return drawing_.unread(options_.sampler, field.key); });
    drawing_.set_sampling(options_, !options_.from_class.empty());  // throws before anything is written
    const int64_t steps = drawing_.steps();
    if (options_.moments > steps + 1)
      fail_usage("--moments ", options_.moments, ": a walk of ", counted(steps, "step"), " has ", steps + 1,
                 " moments, noise and image among them, must be at most that");
    drawing_.set_start({.start = options_.start,
                        .inpaint = options_.inpaint,
                        .mask = options_.mask,
                        .from_class = options_.from_class,
                        .strength = options_.strength});
    drawing_.set_reuse(options_.reuse, options_.reuse_blocks);
  }

  // All settings that determine the images.
  std::string settings_text() const {
    const auto& request = drawing_.request();
    auto sampler = request.sampler;
    nlohmann::ordered_json out;
    out["model"] = model_.info().model.name;
    out["weights"] = checksum_of_weights(model_.file());
    out["size"] = {request.height, request.width};
    out.update(json_of(option_fields(sampler)));
    out["cfg"] = request.guidance.scale;
    out["cfg_channels"] = request.guidance.channels;
    out["cfg_rescale"] = request.guidance.rescale;
    out["cfg_interval"] = {request.guidance.from, request.guidance.to};
    out["precision"] = options_.precision;
    if (codec().codec) out["vae"] = codec().checksum;
    out["batch"] = options_.batch;
    out["classes"] = options_.classes;
    out["first_seed"] = options_.seed;
    for (const auto& [key, file] :
         {std::pair{"start", options_.start}, {"inpaint", options_.inpaint}, {"mask", options_.mask}})
      if (!file.empty()) out[key] = checksum_of(MappedFile(file).bytes());
    if (!options_.start.empty()) out["strength"] = request.strength;
    if (!options_.from_class.empty()) out["from_class"] = drawing_.from_class();
    if (options_.tile > 0) out["tile"] = options_.tile;
    if (request.reuse.every > 1)
      out["reuse"] = {
          {"every", request.reuse.every}, {"first", request.reuse.first}, {"last", request.reuse.last - 1}};
    return json_text(out);
  }

  answer::DrawnBatch draw(std::span<const AskedImage> batch, ProgressLine& progress, int64_t before) {
    const auto after = [&](int64_t step, int64_t steps, const torch::Tensor&) {
      if (step >= 0) progress.update(before, {{"step", text(step + 1, "/", steps)}});
      return !interrupted();
    };
    try {
      answer::DrawnBatch drawn = drawing_.draw(batch, options_.moments, after);
      evaluations_ = std::max(evaluations_, drawn.generated.evaluations);
      blocks_ += drawn.generated.blocks;
      spared_blocks_ += drawn.generated.spared_blocks;
      network_seconds_ += drawn.generated.network_seconds;
      return drawn;
    } catch (const Error& error) {
      if (error.kind == ErrorKind::interrupted || error.kind == ErrorKind::usage) throw;
      throw Error(error.kind, text(model_.file(), ", images from ", before, " on: ", error.what()));
    }
  }

  DrawnImage drawn_image(const answer::DrawnBatch& batch, int64_t index) const {
    if (keeps_values()) return {{}, batch.generated.images[index]};
    DrawnImage drawn{drawing_.picture(batch.generated.images[index]), {}};
    for (const torch::Tensor& moment : batch.moments)
      drawn.moments.push_back(drawing_.picture(moment[index]));
    return drawn;
  }

  ShardLayout shards() const {
    return {.images = options_.shard_size,
            .classes = drawing_.generator().network->label_count(),
            .class_names = drawing_.generator().class_names};
  }

  void report(int64_t drawn, double seconds) const {
    const std::string& sampler = drawing_.request().sampler.sampler;
    const bool reuses = drawing_.request().reuse.every > 1;
    if (options_.json) {
      nlohmann::ordered_json line = nlohmann::ordered_json::parse(settings_text());
      line["images"] = drawn;
      line["evaluations"] = evaluations_;
      if (reuses) line["blocks"] = blocks_, line["spared_blocks"] = spared_blocks_;
      line["seconds"] = seconds;
      line["network_seconds"] = network_seconds_;
      line["output"] = options_.out;
      std::cout << json_text(line) << "\n";
      return;
    }
    const std::string steps = drawing_.sets_own_steps()
                                  ? text("steps that the tolerances of ", sampler, " set")
                                  : text(counted(drawing_.steps(), "step"), " of ", sampler);
    std::cout << one_line(options_.out) << ": " << counted(drawn, "image") << " by " << steps << ", cfg "
              << shortest(options_.guidance.scale) << ", " << counted(evaluations_, "function evaluation")
              << " a batch, ";
    if (reuses) std::cout << spared_blocks_ << " of " << counted(blocks_, "block evaluation") << " spared, ";
    std::cout << fixed(seconds, 1) << " s\n";
  }

  const GenerateOptions& options_;
  const train::ReadyTask& model_;
  answer::Drawing drawing_;
  std::vector<AskedImage> asked_;
  DrawnPart part_;
  int64_t evaluations_ = 0, blocks_ = 0, spared_blocks_ = 0;
  double network_seconds_ = 0;
};

// An existing .npz is not overwritten, like an existing folder.
void check_absent(const GenerateOptions& options) {
  if (options.out.ends_with(".npz") && !options.resume && file_exists(options.out))
    fail_usage("'", options.out, "' exists already: --resume goes on, or name another file");
}

void generate(const GenerateOptions& options, const Given& given) {
  check_absent(options);
  train::use_threads(options.threads);
  const train::ReadyTask model(
      train::open_generator(options.weights,
                            {.model = options.model, .key = options.key, .raw = options.raw}),
      options.device, options.precision);
  const auto print_notes = [&] {  // once nothing is refused
    for (const std::string& note : model.opened().notes) std::cerr << one_line(note) << "\n";
  };
  if (answer::draws_from_noise(model)) {
    given.refuse_others(GenerateOptions::kDiffuse, "'" + model.file() + "' holds a network of task diffuse");
    GenerateRun drawing(options, given, model);
    print_notes();
    return drawing.run();
  }
  given.refuse_others(GenerateOptions::kPatches,
                      "'" + model.file() + "' draws patch by patch (`tessera complete` completes an image)",
                      /*also=*/{"steps"});
  print_notes();
  generate_patches(options, model);
}

}  // namespace

void add_generate(Arguments& command, Action& action) {
  action = with_options<GenerateOptions>(command, generate);
}

}  // namespace tessera::cli
