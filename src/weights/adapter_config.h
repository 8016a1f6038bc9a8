// adapter_config.json of the library PEFT: which layers an adapter changes, and how.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/language/projection.h"
#include "text/pattern.h"

namespace tessera::train {

// Whether the tensor stands in a module whose name ends so, at any depth. "norm" means input_layernorm too, as PEFT reads
// modules_to_save.
bool stands_in(const std::string& tensor, const std::string& end);

class AdapterConfig {
 public:
  // What the file at `path` holds, checked. Throws Error: another kind of adapter than LoRA, a setting that changes what
  // the layers compute and is not understood, numbers out of range.
  AdapterConfig(const nlohmann::ordered_json& config, const std::string& path);

  // The change of the layer with this name ("model.layers.0.self_attn.q_proj"), if it has one. PEFT's rules: it ends with
  // a name of target_modules, or is matched whole where that is an expression; exclude_modules and
  // layers_to_transform leave layers out; the first expression of rank_pattern and alpha_pattern that the end of the name
  // matches gives its rank and alpha.
  std::optional<models::LowRank> layer(const std::string& name) const;
  // Whether the adapter's file holds a tensor of the model ("lm_head.weight") in place of the model's own: one that
  // stands in one of modules_to_save, or a bias where `bias` is "all" (of adapted layers: "lora_only").
  bool replaces(const std::string& tensor) const;
  const std::vector<std::string>& saved() const { return saved_; }  // modules_to_save
  // Names of target_modules; empty where it is an expression or all layers.
  const std::vector<std::string>& targets() const { return targets_; }

 private:
  struct Names {  // names that a layer's may end with, or an expression for the whole
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
  std::vector<int64_t> blocks_;  // numbers of blocks; empty: all
  std::vector<std::pair<tokens::Pattern, int64_t>> ranks_;
  std::vector<std::pair<tokens::Pattern, double>> alphas_;
};

// Throws Error where there is no such file, or no JSON in it.
AdapterConfig read_adapter_config(const std::string& path);

}  // namespace tessera::train
