#include "weights/diffusers_folder.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/path.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr JsonLimits kDiffusersLimits = {.max_bytes = uint64_t{1} << 22, .max_depth = 8, .max_keys = 100'000};
constexpr const char *kIndex = "/model_index.json", *kScheduler = "/scheduler/scheduler_config.json";

// Names in diffusers and the corresponding values here.
template <class E>
using Names = std::vector<std::pair<const char*, E>>;
const Names<diffusion::ScheduleKind>& schedules() {
  using enum diffusion::ScheduleKind;
  static const Names<diffusion::ScheduleKind> names = {
      {"linear", linear},   {"scaled_linear", scaled_linear}, {"squaredcos_cap_v2", cosine},
      {"sigmoid", sigmoid}, {"exponential", exponential},     {"laplace", laplace}};
  return names;
}
const Names<diffusion::Prediction>& predictions() {
  using enum diffusion::Prediction;
  static const Names<diffusion::Prediction> names = {
      {"epsilon", epsilon}, {"sample", x0}, {"v_prediction", v}};
  return names;
}

template <class E>
std::string name_in_config(const nlohmann::json& config, const char* key, const Names<E>& names,
                           const std::string& path) {
  const auto found = config.find(key);
  if (found == config.end()) return name_of(names.front().second);
  const std::string word = found->is_string() ? found->get<std::string>() : found->dump();
  std::vector<std::string> known;
  for (const auto& [theirs, ours] : names) {
    if (word == theirs) return name_of(ours);
    known.emplace_back(theirs);
  }
  fail(path, ": ", key, " is ", printable(word), ", must be one of ", join(known, ", "));
}

template <class E>
const char* their_name(E value, const Names<E>& names) {
  return std::find_if(names.begin(), names.end(), [&](const auto& one) { return one.second == value; })
      ->first;
}

}  // namespace

std::string diffusers_weights(const std::string& folder) {
  if (!fs::is_directory(folder)) return "";
  for (const char* name :
       {"diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.safetensors.index.json",
        "diffusion_pytorch_model.fp16.safetensors", "diffusion_pytorch_model.safetensors.index.fp16.json",
        "diffusion_pytorch_model.bin", "diffusion_pytorch_model.fp16.bin"})
    if (const std::string file = folder + "/" + name; file_exists(file)) return file;
  return "";
}

std::string diffusers_part(const std::string& path, const std::string& part) {
  const std::string pipeline = without_cache(path);
  for (const std::string& folder : {pipeline, pipeline + "/" + part}) {
    refuse_broken_links(folder);
    if (!diffusers_weights(folder).empty()) return folder;
  }
  return "";
}

nlohmann::json read_diffusers_config(const std::string& path) {
  nlohmann::json config = parse_json(read_text(path, kDiffusersLimits.max_bytes), path, kDiffusersLimits);
  check(config.is_object(), path, " is ", config.type_name(), ", must be an object");
  return config;
}

std::string pipeline_of(const std::string& path) {
  fs::path folder = fs::absolute(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // as in "transformer/"
  for (const std::string& one : {folder.string(), folder.parent_path().string()})
    if (file_exists(one + kIndex) || file_exists(one + kScheduler)) return one;
  return "";
}

Value scheduler_settings(const std::string& pipeline) {
  Value settings{Value::Table{}};
  const std::string path = pipeline + kScheduler;
  if (pipeline.empty() || !file_exists(path)) return settings;
  const nlohmann::json config = read_diffusers_config(path);
  const std::string kind = config.contains("_class_name") && config["_class_name"].is_string()
                               ? config["_class_name"].get<std::string>()
                               : "";
  if (kind.starts_with("FlowMatch") || kind.starts_with("EDM") || config.contains("sigma_data"))
    fail(path, ": the scheduler is ", printable(kind),
         ", must be one of denoising diffusion over steps, such as DDIMScheduler");
  if (const auto betas = config.find("trained_betas"); betas != config.end() && !betas->is_null())
    fail(path, ": trained_betas are given, must be a schedule between beta_start and beta_end");
  settings.set("schedule", name_in_config(config, "beta_schedule", schedules(), path));
  settings.set("predict", name_in_config(config, "prediction_type", predictions(), path));
  if (const auto steps = config.find("num_train_timesteps"); steps != config.end()) {
    check(steps->is_number_integer(), path, ": num_train_timesteps is ", steps->type_name(),
          ", must be an integer");
    settings.set("steps", steps->get<int64_t>());
  }
  for (const char* key : {"beta_start", "beta_end"})
    if (const auto beta = config.find(key); beta != config.end()) {
      check(beta->is_number(), path, ": ", key, " is ", beta->type_name(), ", must be a number");
      settings.set(key, beta->get<double>());
    }
  if (const auto zero = config.find("rescale_betas_zero_snr"); zero != config.end() && zero->is_boolean())
    settings.set("zero_terminal_snr", zero->get<bool>());
  return settings;
}

nlohmann::ordered_json scheduler_config(const diffusion::ProcessConfig& process) {
  const double per_step = 1 / static_cast<double>(process.steps);
  return {{"_class_name", "DDIMScheduler"},
          {"num_train_timesteps", process.steps},
          {"beta_start", process.beta_start > 0 ? process.beta_start : 0.1 * per_step},
          {"beta_end", process.beta_end > 0 ? process.beta_end : 20 * per_step},
          {"beta_schedule", their_name(process.schedule, schedules())},
          {"prediction_type", their_name(process.predict, predictions())},
          {"rescale_betas_zero_snr", process.zero_terminal_snr},
          {"trained_betas", nullptr},
          {"clip_sample", false},
          {"set_alpha_to_one", true},
          {"steps_offset", 0},
          {"timestep_spacing", "trailing"}};
}

std::vector<std::string> pipeline_class_names(const std::string& pipeline, int64_t classes) {
  if (pipeline.empty() || !file_exists(pipeline + kIndex)) return {};
  const nlohmann::json index = read_diffusers_config(pipeline + kIndex);
  const auto labels = index.find("id2label");
  if (labels == index.end() || !labels->is_object()) return {};
  std::vector<std::string> names;
  for (int64_t label = 0; label < classes; ++label) {
    const auto found = labels->find(std::to_string(label));
    if (found == labels->end() || !found->is_string()) return {};
    names.push_back(found->get<std::string>());
  }
  return names;
}

}  // namespace tessera::train
