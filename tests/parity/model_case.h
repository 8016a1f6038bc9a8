// How a golden model becomes one of ours, and how the two are compared.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "models/heads/class_head.h"
#include "tests/parity/case.h"

namespace tessera::parity {

// Our settings for the constructor arguments that a golden's config holds; fails for a config it cannot
// express.
models::ModelSpec vision_lstm_spec(const nlohmann::json& config);  // published VisionLSTM2
models::ModelSpec vit_spec(const nlohmann::json& config);          // timm VisionTransformer
models::ModelSpec swin_spec(const nlohmann::json& config);         // timm SwinTransformer

models::ModelSpec visionllama_spec(const Golden& golden);      // published VisionLLaMA, plain
models::ModelSpec illama_spec(const nlohmann::json& config);   // published iLLaMA
models::ModelSpec pyramid_spec(const nlohmann::json& config);  // published PyramidVisionLLaMA
models::ModelSpec twins_spec(const nlohmann::json& config);    // timm Twins

// A settings tree from JSON.
Value to_value(const nlohmann::json& json);

using NamedOutputs = std::map<std::string, torch::Tensor>;
// What the case runs: outputs by the names that the golden gives them ("out", "y", "features"); undefined for
// a table of the published class that is seen through the other outputs only. `input` gives input.<name> in
// the dtype of the run.
using RunModel = std::function<NamedOutputs(models::Classifier& model,
                                            const std::function<torch::Tensor(const std::string&)>& input)>;

// Puts the golden's param.* into the model, through the family's renaming; fails unless both sides match
// exactly.
void load_parameters(models::Backbone& model, const models::Family& family, const Golden& golden,
                     torch::ScalarType dtype, const std::vector<std::string>& absent = {});

// Builds the model, loads the parameters, and compares outputs and all gradients, in float64 at the sharp
// tolerance of the goldens' README and in float32 at the loose one. Understands the formats of models/ and of
// components/. `absent` are parameters of ours that the published class does not have (nor use). `weights` is
// the golden that holds the parameters, where it is another one. Gradients are those of the outputs' sum
// weighted by loss_weight.*, or without such arrays those of the output "loss".
CaseResult compare_model(const Golden& golden, const models::ModelSpec& spec, const RunModel& run,
                         const std::vector<std::string>& absent = {}, const Golden* weights = nullptr);

// The same for a golden of several modules: `build` makes what is computed with and its modules, whose
// parameters have the names that `rename` gives a published one ("": not ours). `prefix` stands in front of
// the golden's outputs and gradients, where it holds several cases ("pixels/").
struct BuiltCase {
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  std::function<NamedOutputs(const std::function<torch::Tensor(const std::string&)>& input)> run;
};
void compare_built(Comparison& comparison, const Golden& golden, const Golden& weights,
                   const std::string& prefix, const std::function<std::string(const std::string&)>& rename,
                   const std::function<BuiltCase(torch::ScalarType dtype)>& build);

// The comparison alone, for cases that are no Backbone: parameters and inputs as leaves by their golden names
// ("param.x", "input.q"), `run` computes the outputs from them.
using Leaves = std::map<std::string, torch::Tensor>;
CaseResult compare_function(const Golden& golden, const std::function<NamedOutputs(const Leaves&)>& run);
void compare_function(Comparison& comparison, const Golden& golden,
                      const std::function<NamedOutputs(const Leaves&)>& run);
// The same for each part of a golden, by its name and its own golden.
using RunPart =
    std::function<NamedOutputs(const std::string& name, const Golden& part, const Leaves& leaves)>;
CaseResult compare_parts(const Golden& golden, const RunPart& run);

}  // namespace tessera::parity
