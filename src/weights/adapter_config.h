// adapter_config.json of the library PEFT: the layers that an adapter changes, and how.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/language/language_model.h"
#include "models/language/projection.h"
#include "text/pattern.h"

namespace tessera::train {

// True if any module that contains the tensor has a name that ends with this. "norm" matches input_layernorm
// too, as in PEFT's modules_to_save.
bool stands_in(const std::string& tensor, const std::string& end);

class AdapterConfig {
 public:
  // Checks and stores the config of the file at `path`. Throws Error for an adapter other than LoRA, for
  // numbers out of range, and for unsupported settings that would change the result.
  AdapterConfig(const nlohmann::ordered_json& config, const std::string& path);

  // Returns the LoRA settings of a layer ("model.layers.0.self_attn.q_proj"), none if it has no LoRA. Rules
  // as in PEFT:
  // - The name ends with an entry of target_modules, or matches it whole if it is an expression.
  // - exclude_modules and layers_to_transform exclude layers.
  // - The first match of rank_pattern and alpha_pattern with the end of the name sets rank and alpha.
  std::optional<models::LowRank> layer(const std::string& name) const;
  // True if the adapter's file replaces this tensor of the model ("lm_head.weight"). These are tensors in
  // modules_to_save and biases: all if `bias` is "all", those of adapted layers if it is "lora_only".
  bool replaces(const std::string& tensor) const;
  const std::vector<std::string>& saved() const { return saved_; }  // modules_to_save
  // Returns the names in target_modules, none if it is an expression or all layers.
  const std::vector<std::string>& targets() const { return targets_; }

 private:
  struct Names {  // ends of layer names, or a regular expression for whole names
    std::vector<std::string> ends;
    std::optional<tokens::Pattern> whole;
    bool hold(const std::string& name) const;
  };
  models::LowRank change_;
  enum class Biases { none, adapted, all };
  bool all_layers_ = false;
  Biases biases_ = Biases::none;
  std::vector<std::string> targets_, saved_;
  Names chosen_, excluded_;
  std::vector<int64_t> blocks_;  // block numbers; empty: all
  std::vector<std::pair<tokens::Pattern, int64_t>> ranks_;
  std::vector<std::pair<tokens::Pattern, double>> alphas_;
};

// Reads and checks the file. Throws Error if it is missing or invalid.
AdapterConfig read_adapter_config(const std::string& path);

// LoRA adapters in the format of the library PEFT: a folder with adapter_config.json and
// adapter_model.safetensors. Tensors are named base_model.model.LAYER.lora_A.weight and lora_B.weight; DoRA
// adds lora_magnitude_vector. Trained biases and whole modules (modules_to_save) keep the names of the model.

// Applies the adapter in `folder` to the model and returns the number of adapted layers. `merged` adds the
// changes to the weights instead of computing them separately. Saved modules and biases replace the model's
// own. Throws Error for a missing file, an adapter other than LoRA or a layer that the model lacks (with the
// nearest name). Throws Error for tensors that are missing, left over or of another shape.
int64_t read_adapter(models::LanguageModel& model, const std::string& path, bool merged);

// Writes the adapted layers of a model, with `base` as the name of the base model. Throws a usage error if no
// layer is adapted.
void write_adapter(const models::LanguageModel& model, const models::LoraConfig& config,
                   const std::string& base, const std::string& folder);

}  // namespace tessera::train
