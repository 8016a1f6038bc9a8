#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/path.h"
#include "io/weights/safetensors.h"
#include "weights/adapter_config.h"
#include "weights/language_files.h"
#include "weights/load_tensors.h"

namespace tessera::train {
namespace {

constexpr const char *kConfigFile = "/adapter_config.json", *kTensorFile = "/adapter_model.safetensors";
constexpr const char* kWrapper = "base_model.model.";

bool is_lora(const std::string& name) { return name.find(".lora_") != std::string::npos; }

// Returns our name of a PEFT tensor: without wrapper prefixes and without the adapter's name.
std::string own_name(std::string name, const models::LanguageModel& model) {
  if (name.starts_with(kWrapper)) name = name.substr(std::string_view(kWrapper).size());
  if (const size_t at = name.find(".default.weight"); at != std::string::npos) name.erase(at, 8);
  if (const size_t at = name.find(".base_layer."); at != std::string::npos) name.erase(at, 11);
  if (name.ends_with(".lora_magnitude_vector.weight")) name.resize(name.size() - 7);
  return decoder_name(name, model);
}

// Adapts the layers that `config` selects and returns their count. Throws Error if a target matches no layer,
// or if no layer is selected.
int64_t adapt(models::LanguageModel& model, const AdapterConfig& config, const std::string& path) {
  for (const std::string& target : config.targets()) {
    const auto modules = model.named_modules(std::string(), /*include_self=*/false);
    if (std::none_of(modules.begin(), modules.end(), [&](const auto& entry) {
          return dynamic_cast<const models::ProjectionImpl*>(entry.value().get()) &&
                 models::ends_with_name(entry.key(), target);
        }))
      models::fail_no_layer(model, target);
  }
  const int64_t layers =
      models::adapt_layers(model, [&](const std::string& name) { return config.layer(name); });
  check(layers > 0, path, ": target_modules and the keys that leave layers out choose no linear layer");
  return layers;
}

// True if the adapted layers are stored as [in, out], as in GPT-2.
bool adapts_in_out(const models::LanguageModel& model) {
  for (const auto& module : model.modules(/*include_self=*/false))
    if (const auto* projection = dynamic_cast<const models::ProjectionImpl*>(module.get());
        projection && projection->adapted())
      return projection->stored_in_out();
  return false;
}

// Throws a usage error for modules_to_save that the model lacks, and for tied embeddings: PEFT trains a copy
// of each saved module, which would untie them.
void check_saved(const models::LanguageModel& model, const AdapterConfig& config, const std::string& path) {
  const auto parameters = model.named_parameters();
  for (const std::string& saved : config.saved()) {
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const auto& entry) { return stands_in(entry.key(), saved); });
    const bool embedding = found != parameters.end() && found->value().dim() == 2 &&
                           found->value().size(0) == model.config().vocabulary;
    if (model.config().tied && (found == parameters.end() || embedding))
      fail_usage(path, ": modules_to_save holds '", printable(saved),
                 "', which the model has not apart from its tied embedding");
    if (found == parameters.end())
      fail_usage(path, ": modules_to_save holds '", printable(saved), "', which is no module of the model");
  }
}

}  // namespace

int64_t read_adapter(models::LanguageModel& model, const std::string& path, bool merged) {
  const std::string folder = without_cache(path);
  const std::string tensors = folder + kTensorFile;
  const SafetensorsFile file(tensors);
  const AdapterConfig config = read_adapter_config(folder + kConfigFile);
  const int64_t layers = adapt(model, config, folder + kConfigFile);
  auto parameters = model.named_parameters();
  check_saved(model, config, folder + kConfigFile);
  NamedTensors targets;
  for (const auto& entry : parameters)
    if (is_lora(entry.key()) || config.replaces(entry.key()))
      targets.emplace_back(entry.key(), entry.value());
  std::vector<NamePlace> places;
  for (const TensorView& view : file.tensors()) places.push_back({view.name, own_name(view.name, model)});
  load_tensors(targets, {file.tensors(), places, tensors},
               {.misfit = "does not fit what adapter_config.json adapts or saves"});
  if (merged)
    for (const auto& entry : model.named_modules(std::string(), /*include_self=*/false))
      if (auto* projection = dynamic_cast<models::ProjectionImpl*>(entry.value().get())) projection->merge();
  return layers;
}

void write_adapter(const models::LanguageModel& model, const models::LoraConfig& config,
                   const std::string& base, const std::string& folder) {
  NamedTensors tensors;
  for (const auto& entry : model.named_parameters())
    if (is_lora(entry.key())) tensors.emplace_back(kWrapper + entry.key(), entry.value());
  if (tensors.empty()) fail_usage("'", base, "' has no layer with LoRA: task.lora_rank was 0");
  make_directories(folder);
  save_tensors(folder + kTensorFile, tensors, {{"format", "pt"}});
  const nlohmann::ordered_json description = {{"base_model_name_or_path", base},
                                              {"bias", "none"},
                                              {"fan_in_fan_out", adapts_in_out(model)},
                                              {"lora_alpha", config.alpha},
                                              {"lora_dropout", 0.0},
                                              {"peft_type", "LORA"},
                                              {"r", config.rank},
                                              {"target_modules", config.targets},
                                              {"task_type", "CAUSAL_LM"},
                                              {"use_rslora", config.by_root}};
  write_text_atomic(folder + kConfigFile, description.dump(2) + "\n");
}

}  // namespace tessera::train
