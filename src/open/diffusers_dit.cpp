#include "open/open_generator.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "io/files/file.h"
#include "models/base/denoiser.h"
#include "tasks/generate/diffuse.h"
#include "weights/diffusers_folder.h"
#include "weights/load_tensors.h"
#include "weights/name_tables.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

// Files of diffusers contain no positions.
bool is_computed(const std::string& name) { return name == "pos_embed"; }

models::ModelSpec diffusers_spec(const std::string& path) {
  const nlohmann::json config = read_diffusers_config(path);
  const auto kind = config.find("_class_name");
  if (kind != config.end() && *kind != "DiTTransformer2DModel" && *kind != "Transformer2DModel")
    fail(path, ": the model is a ", printable(kind->dump()), ", must be a DiTTransformer2DModel");
  const auto number = [&](const char* key, int64_t standard) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) return standard;
    check(found->is_number_integer(), path, ": ", key, " is ", found->type_name(), ", must be an integer");
    return found->get<int64_t>();
  };
  const int64_t heads = number("num_attention_heads", 16), channels = number("in_channels", 4),
                out = number("out_channels", channels);
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

// Sets the process and class names to the pipeline's, or else to those of the published DiT.
void describe_pipeline(WeightsInfo& info, const std::string& pipeline) {
  Value task = scheduler_settings(pipeline);
  task.set("name", tasks::diffuse_kind().name);
  info.task = tasks::resolve_task(task);
  const int64_t classes = info.model.settings.find("labels")->as_int();
  std::vector<std::string> names = pipeline_class_names(pipeline, classes);
  // For 1000 classes, uses the same names as for all other weights, not the longer ones of DiT's pipelines.
  if (const data::ImageNetClasses* known = data::imagenet_classes(classes);
      known && (names.empty() || classes == 1000))
    names.assign(known->names.begin(), known->names.end());
  if (!names.empty()) info.task_metadata.set("class_names", Value::Array(names.begin(), names.end()));
}

}  // namespace

OpenedTask open_diffusers_dit(const std::string& folder) {
  OpenedTask opened;
  opened.file = diffusers_weights(folder);
  WeightsInfo& info = opened.info;
  info.model = diffusers_spec(folder + "/config.json");
  const std::string pipeline = pipeline_of(folder);
  describe_pipeline(info, pipeline);
  info.preprocess = read_config<data::Preprocess>(models::published_preprocess(info.model), "preprocess");
  info.preprocess.size = info.model.settings.find("image_size")->as_int();
  const WeightFile file(opened.file);
  const StoredTensors stored(file.tensors(), places_of(names_of(file.tensors()), info.model.family),
                             file.path());
  const LoadRules rules{.misfit = "does not fit its config.json", .surplus = true, .may_miss = is_computed};
  // Compares names and shapes with a model on the meta device before anything is allocated.
  match_tensors(tasks::named_state(meta_task(info)->parts()), stored, rules);
  tasks::TaskSetup setup;
  setup.settings = tasks::task_settings(info.task);
  setup.model = info.model;
  setup.init = models::Init::skip;
  setup.preprocess = info.preprocess;
  setup.metadata = info.task_metadata;
  setup.file = opened.file;
  setup.sides = {info.preprocess.size};
  opened.task = tasks::find_task(tasks::diffuse_kind().name).make(setup);
  load_tensors(tasks::named_state(opened.task->parts()), stored, rules);
  tasks::set_training(opened.task->parts(), false);
  const diffusion::ProcessConfig& process = tasks::generator_of(*opened.task)->process->config();
  opened.notes.push_back(text(opened.file,
                              " holds DiT as diffusers writes it (config.json next to it), which predicts ",
                              name_of(process.predict), " by a ", name_of(process.schedule), " schedule of ",
                              process.steps, " steps", pipeline.empty() ? ", as published" : ""));
  return opened;
}

void save_diffusers_dit(const OpenedTask& opened, const std::string& folder) {
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
    if (!is_computed(name)) tensors.emplace_back(name, tensor.detach());
  fs::create_directories(folder);
  save_tensors(folder + "/diffusion_pytorch_model.safetensors",
               by_names_of(*find_name_table("diffusers", opened.info.model.family), tensors));
  write_text_atomic(folder + "/config.json", config.dump(2) + "\n");
}

}  // namespace tessera::train
