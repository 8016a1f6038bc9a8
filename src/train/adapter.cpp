#include "train/adapter.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "train/weights.h"

namespace tessera::train {
namespace {

using Json = nlohmann::json;

constexpr const char *kConfigFile = "/adapter_config.json", *kTensorFile = "/adapter_model.safetensors";
constexpr const char* kWrapper = "base_model.model.";

std::string word_in(const Json& config, const char* key, const std::string& otherwise) {
  const auto found = config.find(key);
  return found != config.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

bool flag_in(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && *found == true;
}

models::LoraConfig read_lora_config(const std::string& path) {
  const Json config = parse_json(read_text(path), path);
  check(config.is_object(), path, " is no object");
  if (const std::string kind = word_in(config, "peft_type", "LORA"); kind != "LORA")
    fail_usage(path, ": peft_type is '", printable(kind), "', must be LORA");
  // fan_in_fan_out says how the layers of the model are stored, which it knows itself, as PEFT does.
  if (flag_in(config, "use_dora")) fail_usage(path, ": use_dora is not understood");
  for (const char* key : {"rank_pattern", "alpha_pattern"})
    if (const auto found = config.find(key); found != config.end() && !found->is_null() && !found->empty())
      fail_usage(path, ": ", key, " is not understood, all layers must have the same r and lora_alpha");
  if (const std::string bias = word_in(config, "bias", "none"); bias != "none")
    fail_usage(path, ": bias is '", printable(bias), "', must be none");
  models::LoraConfig lora;
  const auto rank = config.find("r"), targets = config.find("target_modules");
  if (rank == config.end() || !rank->is_number_integer() || *rank < 1 || *rank > 4096)
    fail(path, ": r must be a whole number from 1 to 4096");
  lora.rank = rank->get<int64_t>();
  const auto alpha = config.find("lora_alpha");
  check(alpha != config.end() && alpha->is_number(), path, ": lora_alpha must be a number");
  lora.alpha = alpha->get<double>();
  lora.by_root = flag_in(config, "use_rslora");
  lora.targets.clear();
  if (targets != config.end() && targets->is_array())
    for (const Json& name : *targets) {
      check(name.is_string(), path, ": target_modules must be a list of names");
      lora.targets.push_back(name.get<std::string>());
    }
  check(!lora.targets.empty(), path, ": target_modules must be a list of names");
  return lora;
}

bool is_lora(const std::string& name) { return name.find(".lora_") != std::string::npos; }

// PEFT's word for a tensor as ours: without the wrapper, and without the adapter's own name.
std::string own_name(std::string name, const models::LanguageModel& model) {
  if (name.starts_with(kWrapper)) name = name.substr(std::string_view(kWrapper).size());
  if (const size_t at = name.find(".default.weight"); at != std::string::npos) name.erase(at, 8);
  return model.rename(name);
}

// Whether the adapted layers are stored as [in, out], GPT-2's way.
bool adapts_in_out(const models::LanguageModel& model) {
  for (const auto& module : model.modules(/*include_self=*/false))
    if (const auto* projection = dynamic_cast<const models::ProjectionImpl*>(module.get());
        projection && projection->adapted())
      return projection->stored_in_out();
  return false;
}

}  // namespace

int64_t read_adapter(models::LanguageModel& model, const std::string& folder, bool merged) {
  const std::string tensors = folder + kTensorFile;
  const SafetensorsFile file(tensors);
  const int64_t layers = models::add_lora(model, read_lora_config(folder + kConfigFile));
  auto parameters = model.named_parameters();
  std::set<std::string> missing;
  for (const auto& entry : parameters)
    if (is_lora(entry.key())) missing.insert(entry.key());
  const torch::NoGradGuard no_grad;
  for (const TensorView& view : file.tensors()) {
    const std::string name = own_name(view.name, model);
    torch::Tensor* target = is_lora(name) ? parameters.find(name) : nullptr;
    if (!target) fail(tensors, ": '", printable(view.name), "' is no layer that adapter_config.json adapts");
    if (target->sizes() != c10::IntArrayRef(view.shape))
      fail(tensors, ": '", printable(view.name), "' is ", c10::IntArrayRef(view.shape), ", must be ",
           target->sizes());
    target->copy_(to_tensor(view));
    missing.erase(name);
  }
  if (!missing.empty()) fail(tensors, " has no '", *missing.begin(), "'");
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
