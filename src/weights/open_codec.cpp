#include "weights/open_codec.h"

#include <cmath>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/weights/weight_file.h"
#include "models/base/family.h"
#include "weights/diffusers_folder.h"
#include "weights/hub_config.h"
#include "weights/load_tensors.h"
#include "weights/name_tables.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr const char *kFamily = "autoencoder_kl", *kNoCodec = "holds no such auto-encoder";
constexpr const char* kVariance = "latent_scale.running_var";  // of task vae

// Reads the settings in the config.json of diffusers next to the weights, if it exists.
std::optional<Value> diffusers_settings(const std::string& file) {
  const std::string path = (fs::path(file).parent_path() / "config.json").string();
  if (!fs::path(file).filename().string().starts_with("diffusion_pytorch_model") || !file_exists(path))
    return std::nullopt;
  const nlohmann::json config = read_diffusers_config(path);
  if (const auto name = config.find("_class_name"); name != config.end() && *name != "AutoencoderKL")
    fail(path, ": describes ", printable(name->dump()), ", must be AutoencoderKL");
  Value settings;
  for (const auto& [ours, theirs] : {std::pair{"depth", "layers_per_block"},
                                     {"latent_channels", "latent_channels"},
                                     {"groups", "norm_num_groups"},
                                     {"image_size", "sample_size"}})
    if (const auto found = config.find(theirs); found != config.end() && found->is_number_integer())
      settings.set(ours, found->get<int64_t>());
  if (const auto dims = config.find("block_out_channels"); dims != config.end() && dims->is_array()) {
    Value::Array widths;
    for (const auto& width : *dims) {
      check(width.is_number_integer(), path, ": block_out_channels must be whole numbers");
      widths.emplace_back(width.get<int64_t>());
    }
    settings.set("dims", widths);
  }
  // If the key is absent, diffusers uses its class default, which equals ours.
  for (const char* number : {"scaling_factor", "shift_factor"})
    if (const auto found = config.find(number); found != config.end() && found->is_number())
      settings.set(number, found->get<double>());
  const auto flag = [&](const char* name) {
    const auto found = config.find(name);
    return found == config.end() || !found->is_boolean() || found->get<bool>();
  };
  check(flag("use_quant_conv") == flag("use_post_quant_conv"), path,
        ": use_quant_conv and use_post_quant_conv differ, must be equal");
  settings.set("quant_conv", flag("use_quant_conv"));
  settings.set("attention", flag("mid_block_add_attention"));
  return settings;
}

// Infers settings from the tensors, for files of other programs without a description.
Value settings_from(const StoredTensors& stored) {
  Value settings = models::autoencoder_settings(
      [&](const std::string& name) {
        const StoredTensor* found = stored.find(name);
        return found ? found->shape : std::vector<int64_t>{};
      },
      "'" + stored.where() + "'");
  // The scale of the published size comes from the papers; its files lack it.
  const models::ModelSpec published = models::resolve_model("autoencoder_kl_f8");
  const bool same = *published.settings.find("dims") == *settings.find("dims") &&
                    *published.settings.find("latent_channels") == *settings.find("latent_channels");
  if (!same) settings.set("scaling_factor", 0.0);
  return settings;
}

}  // namespace

double OpenedCodec::require_scale() const {
  if (!(scale > 0))
    fail_usage(
        "'", file, "' has no scale of its latents, which a generator needs: encode a data set with ",
        "`tessera data encode`, which measures it, or write scaling_factor into the config.json next to it");
  return scale;
}

OpenedCodec open_codec(const std::string& path,
                       const std::function<std::string(const std::string&)>& file_of) {
  OpenedCodec opened;
  const std::string diffusers = diffusers_weights(diffusers_part(path, "vae"));
  opened.file = diffusers.empty() ? file_of(path) : diffusers;
  const WeightFile file(opened.file);
  const std::optional<models::ModelSpec> own = stored_model(file.metadata(), file.path());
  if (own && own->family != kFamily)
    fail_usage("'", opened.file, "' holds ", own->name, ", no auto-encoder of images");
  const StoredTensors stored(file.tensors(), places_of(names_of(file.tensors()), kFamily), file.path());
  if (own) {
    opened.spec = *own;
  } else {
    const auto described = diffusers_settings(opened.file);
    opened.spec = models::resolve_model(kFamily, described ? *described : settings_from(stored));
    if (!described)
      opened.notes.push_back(opened.file +
                             " does not describe its auto-encoder; settings follow from its tensors");
  }
  check_claims(models::count_parameters(*models::meta_backbone(opened.spec)), file, kNoCodec);
  opened.model = models::build_backbone(opened.spec, 0, models::Init::skip);
  load_tensors(named_state(*opened.model), stored,
               {.misfit = kNoCodec,
                .surplus = true,
                .finite = "no image can be made of them",
                .fit = [&](const std::string& name, const torch::Tensor& value, torch::IntArrayRef) {
                  return opened.model->fit(name, value);
                }});
  opened.model->eval();
  opened.codec = dynamic_cast<models::LatentCodec*>(opened.model.get());
  opened.scale = opened.codec->scaling_factor();
  if (const StoredTensor* variance = stored.find(kVariance); opened.scale == 0 && variance) {
    const double value = variance->read().to(torch::kFloat64).sum().item<double>();
    check(std::isfinite(value) && value > 0, "'", opened.file, "': ", kVariance, " is ", value,
          ", must be a positive variance");
    opened.scale = 1 / std::sqrt(value);
  }
  opened.image_size = models::extent_of(*opened.spec.settings.find("image_size"), "image_size").height;
  opened.checksum = checksum_of_weights(opened.file);
  return opened;
}

void save_diffusers_vae(const OpenedCodec& opened, double scale, const std::string& folder) {
  const Value& settings = opened.spec.settings;
  std::vector<int64_t> dims;
  for (const Value& dim : settings.find("dims")->as_array()) dims.push_back(dim.as_int());
  const auto times = [&](const char* block) { return std::vector<std::string>(dims.size(), block); };
  const bool quant = settings.find("quant_conv")->as_bool();
  const nlohmann::ordered_json config = {{"_class_name", "AutoencoderKL"},
                                         {"act_fn", "silu"},
                                         {"block_out_channels", dims},
                                         {"down_block_types", times("DownEncoderBlock2D")},
                                         {"in_channels", 3},
                                         {"latent_channels", opened.codec->latent_channels()},
                                         {"layers_per_block", settings.find("depth")->as_int()},
                                         {"mid_block_add_attention", settings.find("attention")->as_bool()},
                                         {"norm_num_groups", settings.find("groups")->as_int()},
                                         {"out_channels", 3},
                                         {"sample_size", opened.image_size},
                                         {"scaling_factor", scale},
                                         {"shift_factor", settings.find("shift_factor")->as_double()},
                                         {"up_block_types", times("UpDecoderBlock2D")},
                                         {"use_post_quant_conv", quant},
                                         {"use_quant_conv", quant}};
  NamedTensors tensors;
  for (const auto& [name, tensor] : named_state(*opened.model)) tensors.emplace_back(name, tensor.detach());
  fs::create_directories(folder);
  save_tensors(folder + "/diffusion_pytorch_model.safetensors",
               by_names_of(*find_name_table("diffusers", kFamily), tensors));
  write_text_atomic(folder + "/config.json", config.dump(2) + "\n");
}

}  // namespace tessera::train
