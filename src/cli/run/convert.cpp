// `tessera convert IN OUT`: weights of any format as safetensors with metadata.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/output_places.h"
#include "core/config.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/value.h"
#include "data/base/class_names.h"
#include "data/loading/loader.h"
#include "io/files/file.h"
#include "io/weights/safetensors_shards.h"
#include "io/weights/weight_file.h"
#include "models/backbones/baselines.h"
#include "open/calibrate.h"
#include "open/load.h"
#include "open/open_generator.h"
#include "open/open_task.h"
#include "train/setup.h"
#include "weights/diffusers_folder.h"
#include "weights/hub_config.h"
#include "weights/load_tensors.h"
#include "weights/name_tables.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

struct ConvertOptions {
  static constexpr const char* kSafetensors = "files of one model";
  std::string in, out, model, key, precision, calibrate, class_names, recipe, vae, names;
  std::vector<std::string> preprocess, settings;
  int64_t calibrate_images = 512;
  double shard_gigabytes = 5;
  bool diffusers = false, bgr = false, merge = false, json = false;

  template <class V>
  void visit(V& v) {
    v("in", in, {.argument = "IN", .required = true},
      "weights: .safetensors, .safetensors.index.json, PyTorch's .pth, .pt, .bin, .th; numpy's arrays in a "
      ".pkl; a run directory, a checkpoint or a model hub's folder");
    v("out", out, {.argument = "OUT", .required = true, .writes = Writes::file},
      "NAME.safetensors, or NAME.safetensors.index.json for several files");
    v("model", model, "model name (see `tessera models`), if the file does not name it");
    v("recipe", recipe, {.only_for = kSafetensors},
      "recipe of the task, for files of other programs with more than a classifier (mmseg, UperNet of "
      "transformers)");
    v("set", settings, {.only_for = kSafetensors}, "settings of the recipe: --set model.form=mmseg");
    v("key", key, "PyTorch archives: name of the dictionary, such as model_ema");
    v("preprocess", preprocess, {.only_for = kSafetensors},
      "preprocessing, if not as published: --preprocess crop=1.0 mean=[0.5,0.5,0.5]");
    v("names", names, {.choices = train::named_programs(), .only_for = kSafetensors},
      "names of another program, for weights of segment, detect and detr");
    v("bgr", bgr, {.only_for = kSafetensors},
      "the file's network reads BGR (Caffe, detectron2's model zoo): reverse its first convolution, so that "
      "images and --preprocess are RGB");
    v("class_names", class_names, {.only_for = kSafetensors},
      "file with one class name in a line (default: from the weights)");
    v("merge", merge, {.only_for = kSafetensors},
      "VanillaNet: the form for inference, in which each pair of convolutions is one");
    v("precision", precision, {.choices = {"fp32", "bf16", "fp16"}, .only_for = kSafetensors},
      "element type of the tensors (default: unchanged)");
    v("calibrate", calibrate, {.only_for = kSafetensors},
      "images, in the form of `tessera train --data`, that set fixed scales for --precision int8 of eval and "
      "predict");
    v("calibrate_images", calibrate_images, between(1, 1 << 20), "images of --calibrate");
    v("diffusers", diffusers, "a DiT as a folder OUT that diffusers reads");
    v("vae", vae, "--diffusers: the VAE of its latents; OUT is then a whole pipeline (DiTPipeline)");
    v("shard_size", shard_gigabytes, between(1e-6, 1e6), "GB of tensors in each of several files");
    visit_json(v, json);
  }
};

// The tensors to write, the memory of those that were converted, and the stream for lines for people.
struct Tensors {
  std::ostream& lines;
  std::vector<TensorView> views = {};
  std::vector<torch::Tensor> kept = {};
};

void convert_elements(Tensors& tensors, const std::string& precision) {
  static const std::vector<std::tuple<std::string, DType, torch::ScalarType>> types = {
      {"fp32", DType::f32, torch::kFloat32},
      {"bf16", DType::bf16, torch::kBFloat16},
      {"fp16", DType::f16, torch::kFloat16}};
  for (const auto& [name, dtype, type] : types) {
    if (name != precision) continue;
    for (TensorView& view : tensors.views) {
      const torch::Tensor stored = train::to_tensor(view);
      if (!stored.is_floating_point() || view.dtype == dtype || view.name.ends_with("_log_step") ||
          view.name.ends_with("_zero_point"))
        continue;
      const torch::Tensor& converted = tensors.kept.emplace_back(stored.to(type));
      if (stored.isfinite().all().item<bool>() && !converted.isfinite().all().item<bool>())
        fail("tensor '", view.name, "' has numbers too large for ", name);
      view.dtype = dtype;
      view.bytes = {static_cast<const std::byte*>(converted.const_data_ptr()), converted.nbytes()};
    }
  }
}

TensorView view_of(const std::string& name, const torch::Tensor& tensor) {
  return {name,
          train::element_type(tensor, name),
          tensor.sizes().vec(),
          {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

// The file's tensors with the statistics that its norms lack, and with --bgr its first convolution turned.
std::vector<TensorView> completed_views(const WeightFile& file, bool bgr, Tensors& tensors) {
  std::vector<TensorView> views = file.tensors();
  const NamedTensors statistics = train::absent_statistics(views);
  for (const auto& [name, tensor] : statistics)
    views.push_back(view_of(name, tensors.kept.emplace_back(tensor)));
  if (!statistics.empty())
    tensors.lines << "norms   " << std::ssize(statistics) / 2
                  << " of scale and shift alone: means of 0 and variances of 1 replace their statistics\n";
  if (!bgr) return views;
  const auto [turned, tensor] = train::turned_first_convolution(views, file.path());
  for (TensorView& view : views)
    if (view.name == turned) view = view_of(turned, tensors.kept.emplace_back(tensor.to(torch::kFloat32)));
  tensors.lines << "colours '" << printable(turned) << "' takes red first now\n";
  return views;
}

// Returns the number of classes from the score layer in a detector's file; none without such a layer. Its
// first or last row is the background.
std::optional<data::NumberedClasses> object_classes_of(const WeightFile& file) {
  for (const TensorView& view : file.tensors())
    for (const char* scores :
         {"cls_score.weight", "fc_cls.weight", "class_embed.weight", "class_labels_classifier.weight"})
      if (view.name.ends_with(scores) && view.shape.size() == 2 && view.shape[0] > 1)
        return data::published_object_classes(view.shape[0] - 1);
  return std::nullopt;
}

// Returns the description of another program's file by the recipe of a task: model, task and preprocessing.
train::WeightsInfo info_of_recipe(const ConvertOptions& options, const WeightFile& file) {
  train::Recipe recipe = train::load_recipe(options.recipe, options.settings);
  train::WeightsInfo info = train::describe_run(recipe, {});
  const auto scores = std::find_if(file.tensors().begin(), file.tensors().end(), [](const TensorView& view) {
    return view.name.ends_with("decode_head.conv_seg.weight") ||
           view.name.ends_with("decode_head.classifier.weight");
  });
  if (!options.class_names.empty()) {
    const std::vector<std::string> names = data::read_class_names(options.class_names);
    info.task_metadata.set("class_names", Value::Array(names.begin(), names.end()));
  } else if (scores != file.tensors().end() && !scores->shape.empty()) {
    Value::Array numbers;
    for (int64_t c = 0; c < scores->shape[0]; ++c) numbers.emplace_back(std::to_string(c));
    info.task_metadata.set("class_names", numbers);
  } else if (const auto objects = object_classes_of(file)) {
    info.task_metadata.set("class_names", Value::Array(objects->names.begin(), objects->names.end()));
    info.task_metadata.set("class_numbers", Value::Array(objects->numbers.begin(), objects->numbers.end()));
  }
  return info;
}

// Renames the tensors for another program, which does not read our metadata.
Metadata rename_for_program(Tensors& tensors, const std::string& program, const train::WeightsInfo& info) {
  NamedTensors ours;
  for (const TensorView& view : tensors.views) ours.emplace_back(view.name, train::to_tensor(view));
  tensors.views.clear();
  const Value* code = info.task.find("code");
  const train::NamedModel model{tasks::task_name(info.task),
                                code && code->is_string() ? code->as_string() : "", info.model};
  for (const auto& [name, tensor] : train::as_program(ours, program, model))
    tensors.views.push_back(view_of(name, tensors.kept.emplace_back(tensor.contiguous())));
  tensors.lines << "names   those of " << program << "\n";
  return {{"format", "pt"}};
}

// Calibrates on the first `calibrate_images` training images, shuffled with seed 0, preprocessed as the
// weights specify.
void add_calibration(Tensors& tensors, const ConvertOptions& options, const WeightFile& file,
                     const train::WeightsInfo& info) {
  const auto source = data::open_source({.path = options.calibrate}, data::Split::train);
  const int64_t pictures = std::min(options.calibrate_images, source->size());
  if (pictures == 0) fail_usage("--calibrate ", options.calibrate, ": no images");
  data::Loader loader(*source, data::make_eval_transform(info.preprocess),
                      {.batch_size = std::min<int64_t>(pictures, 32), .drop_last = false});
  ProgressLine::Options bar;
  bar.label = "calibrate";
  bar.total = pictures;
  ProgressLine progress(std::cerr, bar);
  const auto task = train::read_task(file, info);
  const auto steps = train::calibrate(*task, loader, pictures, [&](int64_t done) {
    progress.update(done, {});
    return !interrupted();
  });
  progress.finish();
  for (const auto& [name, step] : steps) {
    std::erase_if(tensors.views, [&](const TensorView& view) { return view.name == name; });
    tensors.views.push_back(view_of(name, tensors.kept.emplace_back(step)));
  }
  tensors.lines << "int8    a step for the inputs of " << counted(std::ssize(steps), "layer") << ", from "
                << counted(pictures, "image") << " of " << one_line(source->describe()) << "\n";
}

// Existing files that an OUT of several files would replace are outputs too.
void guard_several(const ConvertOptions& options) {
  const fs::path out = options.out, parent = fs::path(".") / out.parent_path();
  const std::string stem = options.out.substr(0, options.out.size() - std::string(kShardIndexEnding).size());
  const std::string shard = fs::path(stem).filename().string() + "-";
  const auto written = [&](const std::string& name) {
    if (!options.diffusers) return name.starts_with(shard) && name.ends_with(".safetensors");
    return name.starts_with("diffusion_pytorch_model") || name.ends_with("config.json") ||
           name == "model_index.json";
  };
  const std::vector<fs::path> folders =
      options.diffusers ? std::vector{out, out / "transformer", out / "vae", out / "scheduler"}
                        : std::vector{parent};
  std::error_code error;
  for (const fs::path& folder : folders)
    for (const auto& entry : fs::directory_iterator(folder, error))
      if (written(entry.path().filename().string()))
        guard_output({.path = entry.path().string(), .option = "OUT"});
}

// Reads and writes folders of diffusers.
void convert_generator(const ConvertOptions& options, const Given& given) {
  given.refuse_others("folders of diffusers", "convert folders of diffusers to .safetensors first");
  const train::OpenedTask opened =
      train::open_generator(options.in, {.model = options.model, .key = options.key});
  people(options.json) << "model   " << one_line(opened.info.model.name) << "\n";
  if (!options.diffusers)
    train::save_weights(options.out, tasks::named_state(opened.task->parts()), opened.info);
  else if (options.vae.empty())
    train::save_diffusers_dit(opened, options.out);
  else
    train::save_pipeline(opened, train::open_codec(options.vae), options.out);
  people(options.json) << "written " << one_line(options.out) << "\n";
  print_outcome(options.json, {{"output", options.out}, {"model", opened.info.model.name}});
}

// Throws usage errors for options that conflict with each other.
void check_options(const ConvertOptions& options, const Given& given) {
  if (given.has("calibrate_images") && options.calibrate.empty())
    fail_usage("--calibrate-images goes with --calibrate");
  if (given.has("shard_size") && !options.out.ends_with(kShardIndexEnding))
    fail_usage("--shard-size goes with an OUT that ends in ", kShardIndexEnding);
  if (!options.vae.empty() && !options.diffusers) fail_usage("--vae goes with --diffusers");
}

Value parse_preprocess(const std::vector<std::string>& settings) {
  Value asked;
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos)
      fail_usage("--preprocess '", setting, "': must be key=value, such as crop=1.0");
    asked.set(setting.substr(0, equals), parse_toml_value(setting.substr(equals + 1)));
  }
  return asked;
}

// A weights file on its way to safetensors.
class Conversion {
 public:
  explicit Conversion(const ConvertOptions& options)
      : options_(options),
        file_(train::weights_file_of(options.in), options.key),
        tensors_{people(options.json)} {
    tensors_.lines << one_line(file_.path()) << ": " << file_.form() << ", "
                   << counted(std::ssize(file_.tensors()), "tensor") << "\n";
    preprocess_ = parse_preprocess(options.preprocess);
    metadata_ = file_.metadata();
    ours_ = train::read_weights_info(metadata_, file_.path()).ours;
    train::PublishedFolder folder(file_.path());
    by_tensors_ = !ours_ && options.model.empty() && !train::read_hub_config(folder);
    sizes_ = by_tensors_ ? train::sizes_that_fit(file_.tensors()) : std::vector{options.model};
    check_file();
  }

  // Takes the tensors of a known model under our names, or all tensors of the file under their own.
  void take(const Given& given) {
    if (sizes_.size() == 1 || by_recipe()) return take_model();
    if (!options_.calibrate.empty())
      fail_usage("--calibrate runs the model: name it with --model (see `tessera models`)");
    given.refuse([](const OptionField& option) {
      const bool kept = option.key == "preprocess" || option.key == "bgr" || option.key == "class_names";
      return kept ? "is kept with a known model: name it with --model" : "";
    });
    tensors_.views = file_.tensors();
    tensors_.lines << "model   " << (sizes_.empty() ? "unknown" : join(sizes_, " or "))
                   << ": names stay as they are; with --model they become those of `tessera predict`\n";
  }

  void write() {
    convert_elements(tensors_, options_.precision);
    const Interruptible stretch;
    const auto go_on = [&] {
      if (interrupted())
        throw Error(ErrorKind::interrupted, "interrupted: '" + options_.out + "' is not written");
    };
    if (options_.out.ends_with(kShardIndexEnding))
      write_sharded_safetensors(options_.out, tensors_.views, metadata_,
                                static_cast<uint64_t>(options_.shard_gigabytes * 1e9), go_on);
    else
      write_safetensors(options_.out, tensors_.views, metadata_, go_on);
    uint64_t bytes = 0;
    for (const TensorView& view : tensors_.views) bytes += view.bytes.size();
    tensors_.lines << "written " << one_line(options_.out) << ": "
                   << counted(std::ssize(tensors_.views), "tensor") << ", " << human_bytes(bytes) << "\n";
    outcome_["output"] = options_.out;
    outcome_["tensors"] = tensors_.views.size();
    outcome_["bytes"] = bytes;
    if (!options_.names.empty()) outcome_["names"] = options_.names;
    print_outcome(options_.json, outcome_);
  }

 private:
  bool by_recipe() const { return !options_.recipe.empty(); }

  // Throws usage errors for options that do not apply to this file.
  void check_file() const {
    if (!options_.names.empty() && !options_.calibrate.empty())
      fail_usage("--names ", options_.names, " and --calibrate: no other program reads fixed scales");
    if (options_.bgr && ours_)
      fail_usage("--bgr: '", options_.in, "' was written by tessera, whose images are red first");
    if (by_recipe() && (ours_ || !options_.model.empty()))
      fail_usage("--recipe ", options_.recipe,
                 ours_ ? ": the file names its own content" : " and --model: choose one");
  }

  train::WeightsInfo describe() const {
    train::WeightsInfo info =
        by_recipe() ? info_of_recipe(options_, file_) : train::describe_weights(file_, sizes_.front());
    info.preprocess = read_config(preprocess_, "preprocess", info.preprocess);
    data::make_eval_transform(info.preprocess);  // checks it
    if (!options_.class_names.empty() && !by_recipe())
      train::name_classes(info, data::read_class_names(options_.class_names), file_.path());
    return info;
  }

  void take_model() {
    train::WeightsInfo info = describe();
    const auto meta = train::meta_task(info, file_);
    const std::vector<TensorView> views =
        ours_ ? file_.tensors() : completed_views(file_, options_.bgr, tensors_);
    const train::StoredTensors stored = train::stored_for(*meta, views, ours_, file_.path());
    tensors_.views = train::views_of(train::match_weights(*meta, stored), tensors_.kept);
    size_t at = 0;  // the shape in the model: other programs may have more axes
    for (const auto& [name, tensor] : tasks::named_state(meta->parts()))
      tensors_.views[at++].shape = tensor.sizes().vec();
    print(info, *meta);
    if (options_.merge) merge(info);
    metadata_ = train::weights_metadata(info);
    if (!options_.calibrate.empty()) add_calibration(tensors_, options_, file_, info);
    if (!options_.names.empty()) metadata_ = rename_for_program(tensors_, options_.names, info);
  }

  void merge(train::WeightsInfo& info) {
    const Value* merged = info.model.settings.find("merged");
    if (info.model.family != "vanillanet" || tasks::task_name(info.task) != tasks::default_task().name)
      fail_usage("--merge goes with classifiers of family vanillanet, '", options_.in, "' is ",
                 info.model.name);
    if (merged->as_bool()) fail_usage("--merge: '", options_.in, "' is merged already");
    NamedTensors trained;
    for (const TensorView& view : tensors_.views) trained.emplace_back(view.name, train::to_tensor(view));
    std::vector<TensorView> views;
    for (const auto& [name, tensor] : models::merged_vanillanet(trained))
      views.push_back(view_of(name, tensors_.kept.emplace_back(tensor)));
    tensors_.views = std::move(views);
    info.model.settings.set("slope_epochs", int64_t{0});
    info.model.settings.set("merged", true);
    tensors_.lines << "merged  each pair of convolutions in one\n";
  }

  void print(const train::WeightsInfo& info, const tasks::Task& task) {
    const int64_t classes = train::class_count(info);
    const bool other_task = tasks::task_name(info.task) != tasks::default_task().name;
    outcome_["model"] = info.model.name;
    outcome_["task"] = tasks::task_name(info.task);
    if (classes > 0) outcome_["classes"] = classes;
    outcome_["size"] = info.preprocess.size;
    tensors_.lines << "model   " << one_line(info.model.name)
                   << (by_tensors_ && !by_recipe() ? ", by its tensors" : "") << ", "
                   << (other_task    ? text("task ", tasks::task_name(info.task), ", ", task.outputs())
                       : classes > 0 ? text(classes, " classes")
                                     : "no head")
                   << ", images of " << info.preprocess.size << "\n";
    if (!ours_ || !options_.preprocess.empty())
      tensors_.lines << "pixels  " << train::preprocess_text(info.preprocess) << "\n";
    const bool classifier = !by_recipe() && !other_task;
    if (const std::string line = ours_ ? "" : train::beside_line(file_, classifier ? info.model.family : "");
        !line.empty())
      tensors_.lines << line << "\n";
  }

  const ConvertOptions& options_;
  const WeightFile file_;
  Value preprocess_;
  Metadata metadata_;
  bool ours_ = false;               // the file was written by Tessera
  bool by_tensors_ = false;         // only the tensors describe the model
  std::vector<std::string> sizes_;  // models that it may be
  Tensors tensors_;
  nlohmann::ordered_json outcome_;
};

void run(const ConvertOptions& options, const Given& given) {
  check_options(options, given);
  if (options.diffusers || options.out.ends_with(kShardIndexEnding)) guard_several(options);
  if (options.diffusers || !train::diffusers_part(options.in, "transformer").empty())
    return convert_generator(options, given);
  if (!options.out.ends_with(kShardIndexEnding) && !options.out.ends_with(".safetensors"))
    fail_usage("'", options.out, "' must end in .safetensors, or in ", kShardIndexEnding,
               " for several files");
  Conversion conversion(options);
  conversion.take(given);
  conversion.write();
}

}  // namespace

void add_convert(Arguments& command, Action& action) { action = with_options<ConvertOptions>(command, run); }

}  // namespace tessera::cli
