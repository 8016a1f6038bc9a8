#include "open/open_generator.h"

#include <cmath>
#include <filesystem>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "io/files/file.h"
#include "io/weights/torch_archive.h"
#include "models/base/denoiser.h"
#include "tasks/generate/diffuse.h"
#include "tasks/generate/generator_pictures.h"
#include "tasks/pretrain/patch_drawing.h"
#include "weights/diffusers_folder.h"
#include "weights/name_tables.h"
#include "weights/stored_tensors.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

bool is_generator(const models::ModelSpec& spec) {
  return dynamic_cast<models::Denoiser*>(models::meta_backbone(spec).get()) != nullptr;
}

// SiT networks compute variances and drop them, which identifies them.
Value published_task(const models::ModelSpec& spec) {
  const Value* sigma = spec.settings.find("sigma");
  Value task;
  task.set("name", tasks::diffuse_kind().name);
  if (sigma && *sigma == Value("dropped")) task.set("process", "linear");
  return tasks::resolve_task(task);
}

void name_imagenet(WeightsInfo& info) {
  const data::ImageNetClasses* known = data::imagenet_classes(info.model.settings.find("labels")->as_int());
  if (known) info.task_metadata.set("class_names", Value::Array(known->names.begin(), known->names.end()));
}

// Returns the published sizes with the blocks of a file, as "DiT-S/8 or SiT-S/8"; "" if there are none.
std::string published_with(const models::Family& family, const Value& settings) {
  std::vector<std::string> names;
  for (const models::Size& size : family.sizes) {
    const auto same = [&](const char* key) { return *size.settings.find(key) == *settings.find(key); };
    if (same("dim") && same("patch_size") && same("llama")) names.push_back(size.aliases.front());
  }
  return join(names, " or ");
}

// Blocks, channels and classes come from the file. The name determines width, patch and form, and the width
// determines the number of heads, which tensors do not show.
void require_named_size(const WeightFile& file, const models::ModelSpec& named, const Value& found,
                        const std::vector<int64_t>& patches) {
  const models::Family& family = models::find_family(named.family);
  const std::string is = published_with(family, found);
  const std::string hint = is.empty() ? "" : ": its tensors are those of " + is;
  const auto number = [&](const char* key) { return named.settings.find(key)->as_int(); };
  const int64_t dim = number("dim"), patch = number("patch_size");
  const bool by_family = named.name == family.name;  // fixes neither patch nor form
  if (patches[0] != dim || (patches[2] != patch && !by_family))
    fail("'", file.path(), "' is no ", named.name, ": tensor 'x_embedder.proj.weight' is ",
         c10::IntArrayRef(patches), ", must be ",
         c10::IntArrayRef({dim, patches[1], by_family ? patches[2] : patch, by_family ? patches[3] : patch}),
         hint);
  if (!by_family && *named.settings.find("llama") != *found.find("llama"))
    fail("'", file.path(), "' is no ", named.name, ": its blocks have ",
         found.find("llama")->as_bool() ? "'mlp.c_fc1.weight', must have 'mlp.fc1.weight'"
                                        : "'mlp.fc1.weight', must have 'mlp.c_fc1.weight'",
         hint);
}

constexpr const char* kAverage = "ema";

// True for an archive {model, ema, opt, args} of DiT's and SiT's training programs, if `ema` has as many
// tensors as the default choice. Their samplers draw with this moving average.
bool holds_average(const std::string& path) {
  if (!file_exists(path) || path.ends_with(".json") || !looks_like_torch(MappedFile(path).bytes()))
    return false;
  const TorchArchive archive(path);
  bool average = false, trained = false;
  for (const TorchGroup& group : archive.groups()) {
    average = average || group.key == kAverage;
    trained = trained || group.key == "model";
  }
  return average && trained && archive.choose(kAverage).tensors.size() == archive.choose().tensors.size();
}

// Opens the moving average of such an archive, and adds a note.
OpenedTask open_average(const std::string& path, OpenOptions options) {
  options.key = kAverage;
  OpenedTask opened = open_task(path, options);
  opened.notes.push_back(text(path, " holds the moving average, '", kAverage,
                              "', next to 'model': images are drawn with '", kAverage,
                              "' (`tessera convert --key model` takes the other out)"));
  return opened;
}

}  // namespace

void describe_generator(WeightsInfo& info, const WeightFile& file) {
  if (!is_generator(info.model)) return;
  const StoredTensors stored(file.tensors(), places_of(names_of(file.tensors()), info.model.family),
                             file.path());
  std::map<std::string, std::vector<int64_t>> shapes;
  int64_t blocks = 0;
  bool llama = false;
  for (const StoredTensor& tensor : stored.tensors()) {
    shapes[tensor.name()] = tensor.shape;
    if (tensor.name().ends_with(".attn.qkv.weight")) ++blocks;
    llama = llama || tensor.name().ends_with(".mlp.c_fc1.weight");
  }
  const auto shape = [&](const char* name, size_t axes) {
    const auto found = shapes.find(name);
    check(found != shapes.end() && found->second.size() == axes, "'", file.path(), "' does not fit ",
          info.model.name, ": it has no tensor '", name, "' with ", axes, " axes");
    return found->second;
  };
  const std::vector<int64_t> patches = shape("x_embedder.proj.weight", 4),
                             table = shape("y_embedder.embedding_table.weight", 2),
                             places = shape("pos_embed", 3), last = shape("final_layer.linear.bias", 1);
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(places[1]))));
  Value settings = info.model.settings;
  settings.set("channels", patches[1]);
  settings.set("patch_size", patches[2]);
  settings.set("dim", patches[0]);
  settings.set("labels", table[0] - 1);
  settings.set("image_size", side * patches[2]);
  settings.set("depth", blocks);
  settings.set("llama", llama);
  require_named_size(file, info.model, settings, patches);
  if (last[0] == patches[1] * patches[2] * patches[2]) settings.set("sigma", "none");
  info.task = published_task(info.model);  // looked up by the requested name, before its sigma is changed
  info.model.settings = models::resolve_model(info.model.name, settings).settings;
  info.preprocess.size = info.model.settings.find("image_size")->as_int();
  name_imagenet(info);
}

OpenedTask open_generator(const std::string& path, const OpenOptions& options) {
  const std::string folder = diffusers_part(path, "transformer");
  const std::string file = folder.empty() ? weights_file_of(path, options.raw) : "";
  for (const auto& [name, given] : {std::pair("--key", options.key), {"--model", options.model}})
    if (!folder.empty() && !given.empty())
      fail_usage(name, " ", printable(given), ": '", folder,
                 "' is a folder of diffusers, which names its own content: must be left out");
  OpenedTask opened = !folder.empty()                              ? open_diffusers_dit(folder)
                      : options.key.empty() && holds_average(file) ? open_average(file, options)
                                                                   : open_task(path, options);
  if (!tasks::generator_of(*opened.task) && !dynamic_cast<tasks::DrawsPatches*>(opened.task.get()))
    fail_usage("'", opened.file, "' generates nothing: it was trained for task ",
               tasks::task_name(opened.info.task));
  return opened;
}

void save_pipeline(const OpenedTask& opened, const OpenedCodec& vae, const std::string& folder) {
  const tasks::Generator& generator = *tasks::generator_of(*opened.task);
  tasks::require_codec(generator, vae, "'" + opened.file + "'");
  save_diffusers_dit(opened, folder + "/transformer");
  save_diffusers_vae(vae, generator.latents ? generator.latents->scale : vae.require_scale(),
                     folder + "/vae");
  fs::create_directories(folder + "/scheduler");
  write_text_atomic(folder + "/scheduler/scheduler_config.json",
                    scheduler_config(generator.process->config()).dump(2) + "\n");
  nlohmann::ordered_json index = {{"_class_name", "DiTPipeline"},
                                  {"scheduler", {"diffusers", "DDIMScheduler"}},
                                  {"transformer", {"diffusers", "DiTTransformer2DModel"}},
                                  {"vae", {"diffusers", "AutoencoderKL"}}};
  for (size_t label = 0; label < generator.class_names.size(); ++label)
    index["id2label"][std::to_string(label)] = generator.class_names[label];
  write_text_atomic(folder + "/model_index.json", index.dump(2) + "\n");
}

}  // namespace tessera::train
