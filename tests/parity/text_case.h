// Language models: components/model_gpt2_*, model_llama_*, model_t5_*, model_alibi_lm, model_transformer_seq2seq,
// lora_*, text_generation_*.
#pragma once

#include <functional>

#include "models/language/llava.h"
#include "tests/parity/case.h"
#include "tests/parity/model_case.h"
#include "weights/base/name_table.h"

namespace tessera::parity {

// The settings of a golden's config, which is that of the published class but for its model_type.
models::LanguageConfig decoder_config(nlohmann::json config, const std::string& kind);

// Returns the place of a published tensor that is ours of that name.
inline train::NamePlace named(const std::string& ours) { return {"", ours}; }

// One model of a golden whose names may have a prefix ("qwen2/"): loads its param.*, compares outputs and gradients.
// Outputs that are whole numbers must be equal; tokens behind the golden's may only be padding.
class TextCase {
 public:
  TextCase(Comparison& comparison, const Golden& golden, std::string prefix, torch::ScalarType dtype)
      : comparison_(comparison), golden_(golden), prefix_(std::move(prefix)), dtype_(dtype) {}

  // Fails unless both sides have the same parameters. `place`: published name -> ours, "" = not ours. What the golden
  // lists as without gradients is frozen.
  void load(torch::nn::Module& module, const std::function<train::NamePlace(const std::string&)>& place);
  torch::Tensor input(const std::string& name) const {
    return golden_.tensor(prefix_ + "input." + name, dtype_);
  }
  bool has(const std::string& key) const { return golden_.has(prefix_ + key); }
  // Names that begin so, with that cut off.
  std::vector<std::string> names(const std::string& key) const { return golden_.names(prefix_ + key); }
  torch::Tensor tensor(const std::string& key) const { return golden_.tensor(prefix_ + key, dtype_); }
  // Compares output.<name>, and adds it to the loss where it has a loss_weight.
  void output(const std::string& name, const torch::Tensor& got);
  void tokens(const std::string& name, const torch::Tensor& got, int64_t pad);
  // Gradients of all parameters, by the names that load() was given; those without a golden must have none.
  void gradients();

 private:
  std::string label(const std::string& name) const;
  Comparison& comparison_;
  const Golden& golden_;
  std::string prefix_;
  torch::ScalarType dtype_;
  torch::Tensor loss_;
  struct Loaded {
    std::string published;
    torch::Tensor parameter;
    train::NamePlace place;
  };
  torch::Tensor part_of(const torch::Tensor& whole, const Loaded& loaded) const;
  std::vector<Loaded> parameters_;
};

}  // namespace tessera::parity
