#include "train/open_generator.h"

#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "data/class_names.h"
#include "io/file.h"
#include "io/json.h"
#include "models/denoiser.h"
#include "tasks/diffuse.h"
#include "tasks/patch_drawing.h"
#include "train/load.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDiffusersWeights = "diffusion_pytorch_model.safetensors";
constexpr JsonLimits kGeneratorConfigLimits = {
    .max_bytes = uint64_t{1} << 20, .max_depth = 8, .max_keys = 10'000};

bool is_generator(const models::ModelSpec& spec) {
  return dynamic_cast<models::Denoiser*>(models::meta_backbone(spec).get()) != nullptr;
}

// SiT's networks compute variances and drop them: by that they are known.
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

// --- diffusers

// The folder of the transformer; "" where the path is none of diffusers'.
std::string diffusers_folder(const std::string& path) {
  for (const std::string& folder : {path, path + "/transformer"})
    if (fs::is_directory(folder) && file_exists(folder + "/" + kDiffusersWeights) &&
        file_exists(folder + "/config.json"))
      return folder;
  return "";
}

nlohmann::json read_generator_config(const std::string& path) {
  const nlohmann::json config =
      parse_json(read_text(path, kGeneratorConfigLimits.max_bytes), path, kGeneratorConfigLimits);
  check(config.is_object(), path, " is ", config.type_name(), ", must be an object");
  return config;
}

models::ModelSpec diffusers_spec(const std::string& path) {
  const nlohmann::json config = read_generator_config(path);
  const std::string kind = config.value("_class_name", "DiTTransformer2DModel");
  if (kind != "DiTTransformer2DModel" && kind != "Transformer2DModel")
    fail(path, ": the model is a ", printable(kind), ", must be a DiTTransformer2DModel");
  const auto number = [&](const char* key, int64_t standard) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) return standard;
    check(found->is_number_integer(), path, ": ", key, " is ", found->type_name(), ", must be an integer");
    return found->get<int64_t>();
  };
  const int64_t heads = number("num_attention_heads", 16), channels = number("in_channels", 4),
                out = number("out_channels", 2 * channels);
  if (out != channels && out != 2 * channels)
    fail(path, ": out_channels is ", out, ", must be in_channels or twice that");
  return models::resolve_model("dit", Value(Value::Table{{"image_size", number("sample_size", 32)},
                                                         {"patch_size", number("patch_size", 2)},
                                                         {"classes", 0},
                                                         {"channels", channels},
                                                         {"dim", heads * number("attention_head_dim", 72)},
                                                         {"depth", number("num_layers", 28)},
                                                         {"heads", heads},
                                                         {"labels", number("num_embeds_ada_norm", 1000)},
                                                         {"sigma", out == channels ? "none" : "learned"}}));
}

// Tensors under our names; q, k and v put together. Fails where the embedders, which stand in every block, differ.
NamedTensors diffusers_tensors(const WeightFile& file, const models::Family& family) {
  std::map<std::string, torch::Tensor> found;
  for (const TensorView& view : file.tensors()) {
    const std::string name = family.rename(view.name);
    if (!name.empty()) {
      check(found.emplace(name, to_tensor(view)).second, "'", file.path(), "': two of its tensors are '",
            name, "'");
      continue;
    }
    // The same tensor of block 0, which was read under the model's own name.
    const size_t inside = view.name.find(".norm1.emb.");
    const std::string first = "transformer_blocks.0" + view.name.substr(inside);
    const auto same = std::find_if(file.tensors().begin(), file.tensors().end(),
                                   [&](const TensorView& other) { return other.name == first; });
    if (inside == std::string::npos || same == file.tensors().end() ||
        !torch::equal(to_tensor(*same), to_tensor(view)))
      fail("'", file.path(), "': ", printable(view.name), " differs from ", printable(first),
           ": the embedders of all blocks must be the same");
  }
  NamedTensors tensors;
  for (auto& [name, tensor] : found) {
    const size_t at = name.find(".attn.to_q.");
    if (at == std::string::npos) {
      if (name.find(".attn.to_") == std::string::npos) tensors.emplace_back(name, tensor);
      continue;
    }
    std::vector<torch::Tensor> thirds;
    for (const char* letter : {"q", "k", "v"}) {
      std::string third = name;
      third.replace(at, 11, std::string(".attn.to_") + letter + ".");
      check(found.contains(third), "'", file.path(), "' has no tensor '", third, "'");
      thirds.push_back(found.at(third));
    }
    std::string together = name;
    together.replace(at, 11, ".attn.qkv.");
    tensors.emplace_back(together, torch::cat(thirds));
  }
  return tensors;
}

OpenedTask open_diffusers(const std::string& folder) {
  OpenedTask opened;
  opened.file = folder + "/" + kDiffusersWeights;
  WeightsInfo& info = opened.info;
  info.model = diffusers_spec(folder + "/config.json");
  info.task = published_task(info.model);
  name_imagenet(info);
  info.preprocess = read_config<data::Preprocess>(models::published_preprocess(info.model), "preprocess");
  info.preprocess.size = info.model.settings.find("image_size")->as_int();
  const WeightFile file(opened.file);
  NamedTensors tensors = diffusers_tensors(file, models::find_family(info.model.family));
  // As large as the file before anything is allocated: names and shapes of an outline.
  const auto outline = meta_task(info);
  std::map<std::string, torch::Tensor> stored(tensors.begin(), tensors.end());
  for (const auto& [name, tensor] : tasks::named_state(outline->parts())) {
    if (name == "pos_embed") continue;  // computed
    const auto one = stored.find(name);
    check(one != stored.end(), "'", opened.file, "' has no tensor '", name, "'");
    if (one->second.sizes() != tensor.sizes())
      fail("'", opened.file, "': ", name, " is ", one->second.sizes(), ", must be ", tensor.sizes());
  }
  tasks::TaskSetup setup;
  setup.settings = tasks::task_settings(info.task);
  setup.model = info.model;
  setup.init = models::Init::skip;
  setup.preprocess = info.preprocess;
  setup.metadata = info.task_metadata;
  setup.file = opened.file;
  setup.sides = {info.preprocess.size};
  opened.task = tasks::find_task(tasks::diffuse_kind().name).make(setup);
  const torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : tasks::named_state(opened.task->parts()))
    if (name != "pos_embed") torch::Tensor(tensor).copy_(stored.at(name));
  tasks::set_training(opened.task->parts(), false);
  opened.notes.push_back(text(opened.file, " holds DiT as diffusers writes it (config.json beside it)"));
  return opened;
}

// The tensors as diffusers has them: q, k and v apart, the embedders in every block, positions computed.
NamedTensors as_diffusers(const NamedTensors& ours, int64_t blocks) {
  static const std::vector<std::pair<std::string, std::string>> whole = {
      {"x_embedder.proj.", "pos_embed.proj."},
      {"final_layer.adaLN_modulation.1.", "proj_out_1."},
      {"final_layer.linear.", "proj_out_2."}};
  static const std::vector<std::pair<std::string, std::string>> embedders = {
      {"t_embedder.mlp.0.", "timestep_embedder.linear_1."},
      {"t_embedder.mlp.2.", "timestep_embedder.linear_2."},
      {"y_embedder.embedding_table.", "class_embedder.embedding_table."}};
  static const std::vector<std::pair<std::string, std::string>> inside = {
      {".adaLN_modulation.1.", ".norm1.linear."},
      {".attn.proj.", ".attn1.to_out.0."},
      {".mlp.fc1.", ".ff.net.0.proj."},
      {".mlp.fc2.", ".ff.net.2."}};
  NamedTensors theirs;
  for (const auto& [name, tensor] : ours) {
    for (const auto& [from, to] : whole)
      if (name.starts_with(from)) theirs.emplace_back(to + name.substr(from.size()), tensor);
    for (const auto& [from, to] : embedders)
      for (int64_t block = 0; block < blocks && name.starts_with(from); ++block)
        theirs.emplace_back(text("transformer_blocks.", block, ".norm1.emb.", to, name.substr(from.size())),
                            tensor);
    if (!name.starts_with("blocks.")) continue;
    if (const size_t at = name.find(".attn.qkv."); at != std::string::npos) {
      const std::vector<torch::Tensor> thirds = tensor.chunk(3);
      for (size_t third = 0; third < 3; ++third)
        theirs.emplace_back(
            "transformer_" + name.substr(0, at) + ".attn1.to_" + "qkv"[third] + "." + name.substr(at + 10),
            thirds[third].contiguous());
    }
    for (const auto& [from, to] : inside)
      if (const size_t at = name.find(from); at != std::string::npos)
        theirs.emplace_back("transformer_" + name.substr(0, at) + to + name.substr(at + from.size()), tensor);
  }
  return theirs;
}

}  // namespace

void describe_generator(WeightsInfo& info, const WeightFile& file) {
  if (!is_generator(info.model)) return;
  const models::Family& family = models::find_family(info.model.family);
  const std::vector<TensorView>& tensors = file.tensors();
  const std::vector<std::string> names = our_names(tensors, family);
  std::map<std::string, std::vector<int64_t>> shapes;
  int64_t blocks = 0;
  bool llama = false;
  for (size_t i = 0; i < names.size(); ++i) {
    shapes[names[i]] = tensors[i].shape;
    if (names[i].ends_with(".attn.qkv.weight")) ++blocks;
    llama = llama || names[i].ends_with(".mlp.c_fc1.weight");
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
  if (last[0] == patches[1] * patches[2] * patches[2]) settings.set("sigma", "none");
  info.task = published_task(info.model);  // by the name that was asked for, before its sigma was looked at
  info.model.settings = models::resolve_model(info.model.name, settings).settings;
  info.preprocess.size = info.model.settings.find("image_size")->as_int();
  name_imagenet(info);
}

OpenedTask open_generator(const std::string& path, const OpenOptions& options) {
  const std::string folder = diffusers_folder(path);
  OpenedTask opened = folder.empty() ? open_task(path, options) : open_diffusers(folder);
  if (!tasks::generator_of(*opened.task) && !dynamic_cast<tasks::DrawsPatches*>(opened.task.get()))
    fail_usage("'", opened.file, "' generates nothing: it was trained for task ",
               tasks::task_name(opened.info.task));
  return opened;
}

bool is_diffusers_folder(const std::string& path) { return !diffusers_folder(path).empty(); }

void save_diffusers(const OpenedTask& opened, const std::string& folder) {
  const Value& settings = opened.info.model.settings;
  const auto number = [&](const char* key) { return settings.find(key)->as_int(); };
  const tasks::Generator* generator = tasks::generator_of(*opened.task);
  if (!generator)
    fail_usage("'", opened.file, "' was trained for task ", tasks::task_name(opened.info.task),
               ": diffusers' DiTTransformer2DModel is a network of task diffuse");
  if (settings.find("llama")->as_bool() || !generator->process->diffusion())
    fail_usage("'", opened.file, "' is ", opened.info.model.name,
               ": diffusers' DiTTransformer2DModel has neither VisionLLaMA's blocks nor interpolants");
  if (*settings.find("mlp_ratio") != Value(4.0) && *settings.find("mlp_ratio") != Value(int64_t{4}))
    fail_usage("'", opened.file, "' has mlp_ratio ", settings.find("mlp_ratio")->as_double(),
               ", diffusers' DiTTransformer2DModel has 4");
  const models::Denoiser& network = *generator->network;
  if (!network.has_null_label())
    fail_usage("'", opened.file, "' has no label for none, diffusers' DiTTransformer2DModel has one");
  const nlohmann::ordered_json config = {{"_class_name", "DiTTransformer2DModel"},
                                         {"activation_fn", "gelu-approximate"},
                                         {"attention_bias", true},
                                         {"attention_head_dim", number("dim") / number("heads")},
                                         {"in_channels", network.channels()},
                                         {"norm_elementwise_affine", false},
                                         {"norm_type", "ada_norm_zero"},
                                         {"num_attention_heads", number("heads")},
                                         {"num_embeds_ada_norm", network.label_count()},
                                         {"num_layers", number("depth")},
                                         {"out_channels", network.output_channels()},
                                         {"patch_size", number("patch_size")},
                                         {"sample_size", number("image_size")}};
  NamedTensors tensors;
  for (const auto& [name, tensor] : tasks::named_state(opened.task->parts()))
    tensors.emplace_back(name, tensor.detach());
  fs::create_directories(folder);
  save_tensors(folder + "/" + kDiffusersWeights, as_diffusers(tensors, number("depth")));
  write_text_atomic(folder + "/config.json", config.dump(2) + "\n");
}

}  // namespace tessera::train
