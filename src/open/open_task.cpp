#include "open/open_task.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "data/base/class_names.h"
#include "io/files/file.h"
#include "io/files/path.h"
#include "models/base/family.h"
#include "models/base/model.h"
#include "models/heads/class_head.h"
#include "open/calibrate.h"
#include "open/load.h"
#include "open/open_generator.h"
#include "open/open_language.h"
#include "open/published_pair.h"
#include "runs/checkpoint.h"
#include "weights/hub_config.h"
#include "weights/load_tensors.h"
#include "weights/name_tables.h"
#include "weights/published_folder.h"

namespace tessera::train {

namespace fs = std::filesystem;

std::string weights_file_of(const std::string& path, bool raw) {
  if (!fs::is_directory(path)) {
    if (raw && !file_exists(path)) fail("'", path, "' does not exist");
    if (raw) fail_usage("'", path, "' is a file: raw weights are those of a checkpoint or run directory");
    // If a checkpoint's file has an index, another file holds the frozen weights.
    const std::string index = path + kIndexEnding, name = fs::path(path).filename().string();
    const bool checkpointed = name == kWeightsFile || name == kEmaFile;
    return checkpointed && file_exists(index) ? index : path;
  }
  if (file_exists(path + "/manifest.json")) {
    const StoredCheckpoint checkpoint = read_checkpoint(path);
    const bool averaged = !raw && checkpoint.holds(kEmaFile);
    return checkpoint.weights_path(averaged ? kEmaFile : kWeightsFile);
  }
  if (!raw) {
    refuse_broken_links(path);
    for (const char* name : {"model.safetensors", "model.safetensors.index.json", "best.safetensors",
                             "best.safetensors.index.json"})
      if (file_exists(path + "/" + name)) return path + "/" + name;
    if (std::string file = published_file_in(path); !file.empty()) return file;
  }
  if (const std::string snapshot = raw ? "" : snapshot_in(path); !snapshot.empty())
    return weights_file_of(snapshot, raw);
  std::vector<std::string> notes;
  if (const auto checkpoint = CheckpointStore(path + "/checkpoints").newest(notes))
    return weights_file_of(checkpoint->directory, raw);
  fail("'", path, "' holds no weights: it must be a weights file, a run directory or a checkpoint directory",
       other_weights_in(path), notes.empty() ? "" : "; ", notes.empty() ? "" : notes.front());
}

namespace {

double largest(const Value& settings, const char* one, const char* several) {
  double value = 0;
  if (const Value* found = settings.find(one); found && found->is_int())
    value = static_cast<double>(found->as_int());
  if (const Value* list = settings.find(several); list && list->is_array())
    for (const Value& item : list->as_array())
      if (item.is_int()) value = std::max(value, static_cast<double>(item.as_int()));
  return value;
}

// Checks a file's claims before even a model without memory is built. A block of any family has more
// parameters than its squared width, and the file must contain all blocks.
void check_claimed_blocks(const WeightFile& file, const models::ModelSpec& spec) {
  const double width = largest(spec.settings, "dim", "dims"),
               blocks = largest(spec.settings, "depth", "depths");
  if (blocks > static_cast<double>(file.tensors().size()) ||
      width * width > 4 * static_cast<double>(numbers_in(file.tensors())))
    fail("'", file.path(), "' does not fit ", spec.name, ": it holds ", file.tensors().size(), " tensors of ",
         human_count(static_cast<double>(numbers_in(file.tensors()))), " numbers, the model would have ",
         blocks, " blocks of width ", width);
}

// Returns the largest number of heads of any stage, scaled by the stage's share of the first stage's tokens.
double heads_by_tokens(const Value& settings) {
  double most = largest(settings, "heads", ""), share = 1;
  if (const Value* list = settings.find("heads"); list && list->is_array())
    for (const Value& heads : list->as_array()) {
      most = std::max(most, share * heads.as_double());
      share /= 4;
    }
  return std::max(1.0, most);
}

// A model's computation grows with the image side, which a damaged file can claim at no cost.
void check_claimed_sides(const WeightFile& file, const WeightsInfo& info) {
  constexpr double kMostSide = 4096, kMostTokens = 1 << 17, kMostPairs = 1 << 27;
  constexpr double kStemStride = 4;  // limit for convolutional families, which have no patches
  const Value& settings = info.model.settings;
  const double side =
      std::max(largest(settings, "image_size", "image_size"), static_cast<double>(info.preprocess.size));
  if (side > kMostSide)
    fail("'", file.path(), "': metadata: images of ", side, " pixels a side, must be at most ", kMostSide);
  const double stride = largest(settings, "stride", ""), patch = largest(settings, "patch_size", "");
  const double cell = stride > 0 ? stride : patch > 0 ? patch : kStemStride;
  const double cells = side / std::max(1.0, cell), tokens = cells * cells;
  if (tokens > kMostTokens)
    fail("'", file.path(), "': metadata: images of ", side, " pixels a side are ", tokens,
         " tokens, must be at most ", kMostTokens);
  // Number of biases for pairs of tokens, if the family stores them: over all tokens, or per window.
  const Value* positions = settings.find("positions");
  const bool biased = positions && (*positions == Value("alibi") || *positions == Value("relative"));
  const double window = std::min(cells, largest(settings, "window_size", ""));
  const double pairs =
      std::max(biased ? tokens * tokens : 0, tokens * window * window) * heads_by_tokens(settings);
  if (pairs > kMostPairs)
    fail("'", file.path(), "': metadata: images of ", side, " pixels a side need ", human_count(pairs),
         " biases of pairs of tokens, must be at most ", human_count(kMostPairs));
}

constexpr size_t kNamesShown = 3;

// Describes the heads of other programs' segmenters and detectors; "" if the file has none.
std::string dense_heads(const WeightFile& file) {
  constexpr std::array<std::pair<const char*, const char*>, 5> kinds = {
      {{"decode_head.", "heads for masks"},
       {"roi_head", "a detector's heads"},
       {"proposal_generator.", "a detector's heads"},
       {"rpn_head.", "a detector's heads"},
       {"bbox_embed.", "a detector's heads"}}};
  for (const TensorView& tensor : file.tensors())
    for (const auto& [part, what] : kinds)
      if (tensor.name.find(part) != std::string::npos) return what;
  return "";
}

// Returns the name with torchvision's tag if the tensors have torchvision's names, since those weights have
// other preprocessing. A tag that was given stays.
std::string with_program(const std::string& name, const WeightFile& file) {
  const auto named = [&](std::string_view tensor) {
    const std::vector<std::string> names = unwrap_names(names_of(file.tensors())).names;
    return std::find(names.begin(), names.end(), tensor) != names.end();
  };
  if (!models::split_published_name(name).tag.empty()) return name;
  const std::vector<std::string> tags = models::published_tags(name).others;
  const bool has_tag = std::find(tags.begin(), tags.end(), models::kTorchvisionTag) != tags.end();
  return has_tag && (named("conv_proj.weight") || named("features.0.0.weight"))
             ? text(name, ".", models::kTorchvisionTag)
             : name;
}

// Returns the model size of another program's file: the only size with the same tensors, or among those the only
// one that torchvision publishes if the names are its.
std::string infer_size_from_tensors(const WeightFile& file) {
  std::vector<std::string> sizes = sizes_that_fit(file.tensors()), of_program;
  std::copy_if(sizes.begin(), sizes.end(), std::back_inserter(of_program),
               [&](const std::string& size) { return with_program(size, file) != size; });
  if (!of_program.empty()) sizes = of_program;
  if (sizes.size() == 1) return sizes.front();
  if (const std::string heads = dense_heads(file); !heads.empty())
    fail_usage(
        "'", file.path(), "' has ", heads,
        " and does not name its model: write a file that "
        "does by `tessera convert FILE OUT.safetensors --recipe RECIPE`, with the recipe of such a run");
  if (sizes.size() > 1)
    fail_usage("'", file.path(), "' does not name its model, and its tensors are those of ",
               join(sizes, ", "), ": name it with --model");
  if (!families_alike(file.tensors()).empty())
    fail_usage("'", file.path(), "' does not name its model: name it with --model (see `tessera models`)");
  std::vector<std::string> first;
  for (const TensorView& tensor : file.tensors())
    if (first.size() < kNamesShown) first.push_back(printable(tensor.name));
  fail("'", file.path(), "' holds no model of any family (`tessera models` lists them): its ",
       counted(std::ssize(file.tensors()), "tensor"), file.tensors().size() == 1 ? " is " : " begin with ",
       join(first, ", "));
}

// Throws a usage error for a folder of a class of transformers that is not read, unless its tensors are those of a
// registered size or of a model that `tessera convert` takes with a recipe.
void refuse_unread_class(PublishedFolder& folder, const WeightFile& file) {
  const std::string name = unread_class(folder);
  const bool encoder = name.starts_with("Bert");
  if (encoder || (!name.empty() && is_language_model(file.path())))
    fail_usage("'", file.path(), "' holds a ", printable(name), ", ",
               encoder ? "an encoder of texts: a run of task bert begins with it (task.weights), and "
                         "`tessera eval` takes such a run, or a BertForSequenceClassification"
                       : "a language model: `tessera chat` reads it");
  if (!name.empty() && sizes_that_fit(file.tensors()).empty() && dense_heads(file).empty())
    fail_usage("'", file.path(), "' holds a ", printable(name), " (config.json next to it), must be one of ",
               readable_classes(), ", or weights with --model");
}

// Returns the number of rows of the file's head; 0 without a head.
int64_t classes_in(const WeightFile& file, const models::ModelSpec& spec) {
  Value one_class = spec.settings;
  one_class.set("classes", 1);
  const auto model = models::meta_classifier(models::resolve_model(spec.name, one_class));
  const std::vector<std::string>& head = model->head().tensor_names();
  const StoredTensors stored(file.tensors(), places_of(names_of(file.tensors()), spec.family), file.path());
  for (const StoredTensor& tensor : stored.tensors())
    if (std::find(head.begin(), head.end(), tensor.name()) != head.end() && !tensor.shape.empty())
      return tensor.shape[0];
  return 0;
}

// Returns the first line of a message of LibTorch; the rest is a stack trace.
std::string first_line(const std::string& message) { return message.substr(0, message.find('\n')); }

std::vector<std::string> names_in(const WeightFile& file, const WeightsInfo& info) {
  std::vector<std::string> names;
  for (const NamePlace& place : places_of(names_of(file.tensors()), info.model.family))
    names.push_back(place.ours);
  return names;
}

std::unique_ptr<tasks::Task> build_task(const WeightsInfo& info, bool meta, const SharedSource& validation,
                                        const std::string& file = "") {
  tasks::TaskSetup setup;
  setup.settings = tasks::task_settings(info.task);
  setup.model = info.model;
  setup.init = models::Init::skip;
  setup.meta = meta;
  setup.validation = validation;
  setup.preprocess = info.preprocess;
  setup.metadata = info.task_metadata;
  setup.file = file;
  setup.sides = {info.preprocess.size};
  if (!meta) setup.opener = weights_opener();
  auto task = tasks::find_task(tasks::task_name(info.task)).make(setup);
  if (info.quantization.enabled()) quantise_blocks(*task->backbones().at(0).model, info.quantization);
  return task;
}

// Builds the task, ready to load from the file.
std::unique_ptr<tasks::Task> build_for(const WeightFile& file, const WeightsInfo& info,
                                       const SharedSource& validation) {
  check_claimed_blocks(file, info.model);
  try {
    check_claims(tasks::count_parameters(meta_task(info)->parts()), file, "does not fit " + info.model.name);
    auto task = build_task(info, /*meta=*/false, validation, file.path());
    add_input_step_sizes(*task->backbones().at(0).model, names_in(file, info));
    return task;
  } catch (const c10::Error& error) {
    fail("'", file.path(), "': the model it describes cannot be built: ", first_line(error.what()));
  }
}

void finish(tasks::Task& task, const WeightFile& file) {
  check_input_step_sizes(*task.backbones().at(0).model, file.path());
  tasks::set_training(task.parts(), false);
}

// True if `name` is the model's family, its size, or another name of that size. A model described only by
// settings matches any size of its family.
bool is_of(const models::ModelSpec& model, const std::string& name) {
  if (name == model.name) return true;
  const models::ModelSpec asked = models::resolve_model(name);
  if (asked.family != model.family) return false;
  if (name == asked.family || model.name == model.family) return true;
  return asked.settings == models::resolve_model(model.name).settings;
}

// Returns the architecture in a config.json. If it is unknown, throws an error that names it.
std::string known_model(const HubConfig& hub, const WeightFile& file) {
  try {
    return models::resolve_model(hub.model).name;
  } catch (const Error&) {
    fail("'", file.path(), "' holds ", printable(hub.model),
         " (by the config.json next to it), which is no model of any family (`tessera models` lists them)");
  }
}

std::string size_of(const std::string& name) { return models::split_published_name(name).size; }

// Returns the model's published preprocessing. A config.json of the same architecture overrides it.
data::Preprocess published_for(const models::ModelSpec& model, const std::optional<HubConfig>& hub) {
  Value keys = models::published_preprocess(model);
  if (hub && (hub->model == model.family || size_of(hub->model) == size_of(model.name)))
    merge(keys, hub->preprocess);
  return read_config<data::Preprocess>(keys, "preprocess");
}

// Returns "as published for resnet50.a1_in1k: …", with the tags of weights that were published with other
// preprocessing.
std::string published_line(const models::ModelSpec& model, const data::Preprocess& preprocess) {
  const models::PublishedName name = models::split_published_name(model.name);
  const models::PublishedTags tags = models::published_tags(name.size);
  std::string line = text(" has no preprocessing; as published for ", model.name);
  if (name.tag.empty() && !tags.usual.empty() && !tags.others.empty()) line += "." + tags.usual;
  line += ": " + preprocess_text(preprocess);
  if (name.tag.empty() && !tags.others.empty())
    line += text("; others: --model ", name.size, ".TAG with ", some_of(tags.others));
  return line;
}

// Adds lines on the content of a file of another program.
void describe_to(std::vector<std::string>& notes, const WeightFile& file, const WeightsInfo& info,
                 const std::optional<HubConfig>& hub, const std::string& asked) {
  if (asked.empty())
    notes.push_back(
        hub ? text(file.path(), " holds ", info.model.name, " (config.json next to it)")
            : text(file.path(), " does not name its model; its tensors are those of ", info.model.name));
  if (!hub || hub->prepared_by.empty() || size_of(hub->model) != size_of(info.model.name)) {
    notes.push_back(file.path() + published_line(info.model, info.preprocess));
    return;
  }
  notes.push_back(text(file.path(), ": images are prepared as in its ", hub->prepared_by, ": ",
                       preprocess_text(info.preprocess)));
  if (!hub->test_size.empty())
    notes.push_back(text(file.path(), ": its config.json has another test: ", hub->test_size));
}

// Names the classes as in the config.json, or as ImageNet's for a head of its size. Adds a line if the config.json
// has another number of names.
void name_as_published(WeightsInfo& info, const std::optional<HubConfig>& hub, const WeightFile& file,
                       std::vector<std::string>& lines) {
  const int64_t classes = class_count(info);
  if (classes == 0) return;
  const int64_t names = hub ? std::ssize(hub->class_names) : 0;
  if (names == classes) return name_classes(info, hub->class_names, file.path());
  if (names > 0)
    lines.push_back(text(file.path(), ": its config.json names ", counted(names, "class", "classes"),
                         ", its head has ", classes, ": the names are not used"));
  if (const data::ImageNetClasses* known = data::imagenet_classes(classes))
    name_classes(info, known->names, file.path());
}

}  // namespace

std::string preprocess_text(const data::Preprocess& preprocess) {
  std::vector<std::string> parts;
  const Value table = write_config(preprocess);
  for (const char* key : {"size", "crop", "crop_mode", "interpolation", "mean", "std"})
    parts.push_back(text(key, " ", toml_text(*table.find(key))));
  return join(parts, ", ");
}

WeightsInfo describe_weights(const WeightFile& file, const std::string& model, const std::string& tokenizer,
                             std::vector<std::string>* notes) {
  std::vector<std::string> unused;
  std::vector<std::string>& lines = notes ? *notes : unused;
  WeightsInfo info = read_weights_info(file.metadata(), file.path());
  if (info.ours) {
    if (!model.empty() && !is_of(info.model, model))
      fail_usage("'", file.path(), "' holds ", info.model.name, ", not ", model);
    check_claimed_blocks(file, info.model);
    check_claimed_sides(file, info);
    return info;
  }
  PublishedFolder folder(file.path(), /*any_name=*/true);
  if (model.empty())
    if (const auto pair = published_pair(file, lines)) {
      info = describe_pair(*pair, file, tokenizer, folder);
      if (folder.find({"open_clip_config.json"}).empty()) folder.find({"config.json"});
      if (!tokenizer.empty()) folder.count_as_read(tokenizer);
      lines.push_back(text(file.path(), ": images: ", preprocess_text(info.preprocess)));
      for (std::string& line : folder.lines()) lines.push_back(std::move(line));
      return info;
    }
  folder = PublishedFolder(file.path());
  if (model.empty() && is_bert_classifier(folder)) {
    info = describe_bert_classifier(file, folder);
    for (std::string& line : folder.lines()) lines.push_back(std::move(line));
    return info;
  }
  const auto hub = read_hub_config(folder);
  if (model.empty() && !hub) refuse_unread_class(folder, file);
  const std::string name = with_program(!model.empty() ? model
                                        : hub          ? known_model(*hub, file)
                                                       : infer_size_from_tensors(file),
                                        file);
  const bool as_hub = hub && size_of(hub->model) == size_of(name);
  info.model = models::resolve_model(name, as_hub ? hub->settings : Value());
  const int64_t classes = classes_in(file, info.model);
  info.model.settings.set("classes", classes);
  info.preprocess = published_for(info.model, hub);
  if (const Value* size = info.model.settings.find("image_size"); size && size->is_int() && !as_hub) {
    if (const Value* of_tag = models::published_preprocess(info.model).find("size"))
      info.model.settings.set("image_size", *of_tag);
    else
      info.preprocess.size = size->as_int();
  }
  name_as_published(info, hub, file, lines);
  if (as_hub && hub->multi_label) info.task_metadata.set("multi_label", true);
  if (const std::string license = published_license(folder); !license.empty())
    info.task_metadata.set("license", license);
  describe_generator(info, file);
  if (tasks::task_name(info.task) == tasks::default_task().name) describe_to(lines, file, info, hub, model);
  for (std::string& line : folder.lines()) lines.push_back(std::move(line));
  return info;
}

data::Preprocess preprocess_of(const WeightFile& file, const std::string& model) {
  const WeightsInfo info = read_weights_info(file.metadata(), file.path());
  if (info.ours) return info.preprocess;
  std::vector<std::string> notes;
  PublishedFolder folder(file.path(), /*any_name=*/true);
  if (const auto pair = published_pair(file, notes)) return preprocess_of_pair(*pair, folder);
  folder = PublishedFolder(file.path());
  return published_for(models::resolve_model(with_program(model, file)), read_hub_config(folder));
}

int64_t class_count(const WeightsInfo& info) {
  const Value* classes = info.model.settings.find("classes");
  return classes && classes->is_int() ? classes->as_int() : 0;
}

void name_classes(WeightsInfo& info, const std::vector<std::string>& names, const std::string& file) {
  const int64_t classes = class_count(info);
  if (std::ssize(names) != classes)
    fail_usage(names.size(), " class names for '", file, "', which has ", classes, " classes");
  info.task_metadata.set("class_names", Value::Array(names.begin(), names.end()));
}

std::unique_ptr<tasks::Task> meta_task(const WeightsInfo& info) {
  return build_task(info, /*meta=*/true, nullptr);
}

std::unique_ptr<tasks::Task> meta_task(const WeightsInfo& info, const WeightFile& file) {
  auto task = meta_task(info);
  add_input_step_sizes(*task->backbones().at(0).model, names_in(file, info));
  return task;
}

std::unique_ptr<tasks::Task> read_task(const WeightFile& file, const WeightsInfo& info,
                                       const SharedSource& validation, std::vector<std::string>* lines) {
  auto task = build_for(file, info, validation);
  std::vector<std::string> notes;
  const bool classifier = tasks::task_name(info.task) == tasks::default_task().name;
  if (const auto pair = info.ours || classifier ? std::nullopt : published_pair(file, notes)) {
    load_pair(*task, file, *pair);
  } else if (!info.ours && tasks::task_name(info.task) == "bert") {
    load_bert_classifier(*task, file, lines ? *lines : notes);
  } else {
    const LoadReport report = load_weights(*task, file);
    if (lines) lines->insert(lines->end(), report.lines.begin() + 1, report.lines.end());
  }
  finish(*task, file);
  return task;
}

OpenedTask open_task(const std::string& path, const OpenOptions& options) {
  OpenedTask opened;
  opened.file = weights_file_of(path, options.raw);
  const WeightFile file(opened.file, options.key);
  if (options.key.empty() && file.has_other_weights())
    opened.notes.push_back(text(opened.file, ": ", file.form(), "; --key takes another"));
  opened.info = describe_weights(file, options.model, options.tokenizer, &opened.notes);
  WeightsInfo& info = opened.info;
  const bool classifier = tasks::task_name(info.task) == tasks::default_task().name;
  if (!info.ours && !classifier && options.size != 0 && options.size != info.preprocess.size)
    fail_usage("'", opened.file, "': a published model of images and texts is opened at its own size, ",
               info.preprocess.size);
  if (const std::string line = info.ours ? "" : beside_line(file, classifier ? info.model.family : "");
      !line.empty())
    opened.notes.push_back(line);
  if (!options.class_names.empty()) name_classes(info, options.class_names, opened.file);
  if (!options.settings.as_table().empty()) {
    Value settings = info.model.settings;
    merge(settings, options.settings);
    info.model = models::resolve_model(info.model.name, settings);
  }
  if (options.crop > 0) info.preprocess.crop = options.crop;
  if (options.size == 0) {
    opened.task = read_task(file, info, options.validation, &opened.notes);
    return opened;
  }
  info.model.settings.set("image_size", options.size);
  info.preprocess.size = options.size;
  opened.task = build_for(file, info, options.validation);
  const LoadReport report = load_pretrained(*opened.task, file);
  for (const std::string& change : report.interpolated)
    opened.notes.push_back("positions interpolated: " + change);
  finish(*opened.task, file);
  return opened;
}

}  // namespace tessera::train
