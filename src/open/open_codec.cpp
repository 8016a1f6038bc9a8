#include "open/open_codec.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/weights/weight_file.h"
#include "models/base/family.h"
#include "open/load.h"
#include "open/weights.h"
#include "weights/diffusers_folder.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFamily = "autoencoder_kl";
constexpr const char* kVariance = "latent_scale.running_var";  // of task vae

// Settings in the config.json that diffusers writes beside the weights; nothing where there is none.
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
  // Without one diffusers takes the default of its class, which is that of the settings.
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

using Views = std::map<std::string, const TensorView*>;

Views views_of(const WeightFile& file) {
  const std::vector<std::string> names = our_names(file.tensors(), models::find_family(kFamily));
  Views views;
  for (size_t i = 0; i < names.size(); ++i)
    if (!names[i].empty() && !views.emplace(names[i], &file.tensors()[i]).second)
      fail("'", file.path(), "': two of its tensors are '", names[i], "' of the auto-encoder");
  return views;
}

// Of a file of another program without a description.
Value settings_from(const Views& views, const std::string& file) {
  Value settings = models::autoencoder_settings(
      [&](const std::string& name) {
        const auto found = views.find(name);
        return found == views.end() ? std::vector<int64_t>{} : found->second->shape;
      },
      "'" + file + "'");
  // The files of the published size do not say their scale, its papers do.
  const models::ModelSpec published = models::resolve_model("autoencoder_kl_f8");
  const bool same = *published.settings.find("dims") == *settings.find("dims") &&
                    *published.settings.find("latent_channels") == *settings.find("latent_channels");
  if (!same) settings.set("scaling_factor", 0.0);
  return settings;
}

// What a description claims must be in the file: nothing is allocated on its word alone.
void check_claims(const models::ModelSpec& spec, const Views& views, const std::string& file) {
  int64_t stored = 0;
  for (const auto& [name, view] : views)
    stored += static_cast<int64_t>(view->bytes.size() / size_of(view->dtype));
  const int64_t needed = models::count_parameters(*models::meta_backbone(spec));
  check(needed <= stored, "'", file, "' holds ", human_count(static_cast<double>(stored)),
        " numbers, its auto-encoder would have ", human_count(static_cast<double>(needed)));
}

void load(OpenedCodec& opened, const Views& views) {
  const torch::NoGradGuard no_grad;
  for (auto& [name, target] : named_state(*opened.model)) {
    const auto found = views.find(name);
    check(found != views.end(), "'", opened.file, "' holds no such auto-encoder: it has no tensor '", name,
          "'");
    torch::Tensor stored = to_tensor(*found->second).to(torch::kFloat32);
    if (stored.sizes() != target.sizes()) stored = opened.model->fit(name, stored);
    if (!stored.defined() || stored.sizes() != target.sizes())
      fail("'", opened.file, "': tensor '", found->second->name, "' is ",
           c10::IntArrayRef(found->second->shape), ", must be ", target.sizes());
    if (!stored.isfinite().all().item<bool>())
      fail("'", opened.file, "': tensor '", found->second->name,
           "' holds numbers that are not finite: no image can be made of them");
    torch::Tensor(target).copy_(stored);
  }
}

// The name of a tensor of ours as diffusers has it, whose decoder counts its levels from the coarsest.
std::string diffusers_name(const std::string& ours, int64_t levels) {
  static const std::map<std::string, std::string> words = {{"norm_out", "conv_norm_out"},
                                                           {"nin_shortcut", "conv_shortcut"},
                                                           {"down", "down_blocks"},
                                                           {"downsample", "downsamplers.0"},
                                                           {"upsample", "upsamplers.0"},
                                                           {"block", "resnets"},
                                                           {"mid", "mid_block"},
                                                           {"block_1", "resnets.0"},
                                                           {"block_2", "resnets.1"},
                                                           {"attn_1", "attentions.0"},
                                                           {"q", "to_q"},
                                                           {"k", "to_k"},
                                                           {"v", "to_v"},
                                                           {"proj_out", "to_out.0"}};
  std::vector<std::string> parts = split(ours, '.');
  const bool attention = ours.find(".attn_1.") != std::string::npos;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::string& part = parts[i];
    if (part == "up" && i + 1 < parts.size()) {
      part = "up_blocks";
      parts[i + 1] = std::to_string(levels - 1 - parse_int(parts[i + 1]).value_or(0));
    } else if (part == "norm" && attention) {
      part = "group_norm";
    } else if (const auto word = words.find(part); word != words.end()) {
      part = word->second;
    }
  }
  return join(parts, ".");
}

}  // namespace

double OpenedCodec::require_scale() const {
  if (!(scale > 0))
    fail_usage(
        "'", file,
        "' does not say the scale of its latents, which a generator needs: encode a data set with ",
        "`tessera data encode`, which measures it, or write scaling_factor into the config.json beside it");
  return scale;
}

OpenedCodec open_codec(const std::string& path) {
  OpenedCodec opened;
  const std::string diffusers = diffusers_weights(diffusers_part(path, "vae"));
  opened.file = diffusers.empty() ? weights_file_of(path) : diffusers;
  const WeightFile file(opened.file);
  const WeightsInfo info = read_weights_info(file.metadata(), file.path());
  if (info.ours && info.model.family != kFamily)
    fail_usage("'", opened.file, "' holds ", info.model.name, ", no auto-encoder of images");
  const Views views = views_of(file);
  if (info.ours) {
    opened.spec = info.model;
  } else {
    const auto described = diffusers_settings(opened.file);
    opened.spec = models::resolve_model(kFamily, described ? *described : settings_from(views, opened.file));
    if (!described)
      opened.notes.push_back(opened.file +
                             " does not describe its auto-encoder; settings follow from its tensors");
  }
  check_claims(opened.spec, views, opened.file);
  opened.model = models::build_backbone(opened.spec, 0, models::Init::skip);
  load(opened, views);
  opened.model->eval();
  opened.codec = dynamic_cast<models::LatentCodec*>(opened.model.get());
  opened.scale = opened.codec->scaling_factor();
  if (const auto variance = views.find(kVariance); opened.scale == 0 && variance != views.end()) {
    const double value = to_tensor(*variance->second).to(torch::kFloat64).sum().item<double>();
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
  for (const auto& [name, tensor] : named_state(*opened.model))
    tensors.emplace_back(diffusers_name(name, std::ssize(dims)), tensor.detach());
  fs::create_directories(folder);
  save_tensors(folder + "/diffusion_pytorch_model.safetensors", tensors);
  write_text_atomic(folder + "/config.json", config.dump(2) + "\n");
}

}  // namespace tessera::train
