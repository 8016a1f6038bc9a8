// components/model_igpt*: GPT-2 on the colours of pixels. Each file holds several cases.

#include <cmath>

#include "core/error.h"
#include "models/backbones/igpt.h"
#include "models/heads/class_head.h"
#include "nn/linear.h"
#include "tasks/pretrain/igpt.h"
#include "tests/parity/config_reader.h"
#include "tests/parity/model_case.h"
#include "tests/parity/published_case.h"
#include "weights/name_tables.h"

namespace tessera::parity::igpt_cases {
namespace {

using Json = nlohmann::json;
using torch::Tensor;

// `pixels`: the length of a sequence, of a square image.
models::ModelSpec igpt_spec(const Json& json, int64_t pixels, bool causal) {
  ConfigReader config(json, "igpt");
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(pixels))));
  config.expect("activation_function", "quick_gelu");
  Value settings(Value::Table{{"image_size", side},
                              {"colours", config.at("vocab_size").get<int64_t>() - 1},
                              {"positions", config.at("n_positions").get<int64_t>()},
                              {"dim", config.at("n_embd").get<int64_t>()},
                              {"depth", config.at("n_layer").get<int64_t>()},
                              {"heads", config.at("n_head").get<int64_t>()},
                              {"hidden", config.value("n_inner", int64_t{0})},
                              {"norm_eps", config.value("layer_norm_epsilon", 1e-5)},
                              {"inverse_layer_scale", config.value("scale_attn_by_inverse_layer_idx", false)},
                              {"causal", causal},
                              {"classes", config.value("num_labels", int64_t{0})}});
  config.pass_over({"reorder_and_upcast_attn", "attn_pdrop", "embd_pdrop", "resid_pdrop", "mode", "causal"});
  config.expect("scale_attn_weights", true);
  config.expect("tie_word_embeddings", false);
  config.finish();
  return models::resolve_model("igpt", settings);
}

struct Built {
  std::shared_ptr<models::Classifier> model;
  models::ReadsColours& reader;
  models::TokenEncoder& encoder;
};
Built built(const models::ModelSpec& spec) {
  const auto model = models::build_classifier(spec, 0);
  return {model, dynamic_cast<models::ReadsColours&>(*model->backbone),
          dynamic_cast<models::TokenEncoder&>(*model->backbone)};
}

void load(PublishedCase& one, const Golden& golden, const std::string& prefix, const Built& ours,
          std::vector<NamedModule> modules) {
  std::vector<std::string> names;
  for (const auto& [name, shape] : shapes_of(golden, prefix)) names.push_back(name);
  modules.push_back({"", ours.model->backbone});
  one.load(modules, train::sources_of(train::names_of_family("igpt").ours(names)));
}

int64_t side_of(const Tensor& pixels) {
  return static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(pixels.size(1)))));
}

void run_language(PublishedCase& one, const Golden& golden, const std::string& name, bool causal) {
  const Tensor pixels = one.input("pixels");
  const models::ModelSpec spec = igpt_spec(golden.config()[name], pixels.size(1), causal);
  const Built ours = built(spec);
  const int64_t colours = ours.reader.palette().size(0), side = side_of(pixels);
  const auto lm_head =
      std::make_shared<nn::LinearImpl>(ours.encoder.token_width(), colours, /*with_bias=*/false);
  load(one, golden, name + "/", ours, {{"lm_head.", lm_head}});
  const models::Encoded encoded =
      ours.encoder.encode(ours.reader.sequence(tasks::igpt_shifted(pixels, colours), side, side));
  const Tensor scores = lm_head->forward(encoded.tokens), each = tasks::igpt_losses(scores, pixels);
  one.output("logits", scores);
  one.output("loss_transformers_labels", each.slice(1, 0, -1).mean().view({1}));
  one.output("loss", each.mean().view({1}));
}

void run_classification(PublishedCase& one, const Golden& golden, const std::string& name, bool causal) {
  const Tensor pixels = one.input("pixels");
  const Built ours = built(igpt_spec(golden.config()[name], pixels.size(1), causal));
  load(one, golden, name + "/", ours, {});
  const int64_t side = side_of(pixels);
  std::vector<int64_t> blocks;
  for (const std::string& layer : golden.names(name + "/output.hidden."))
    blocks.push_back(std::stoi(layer) - 1);
  const models::Encoded encoded = ours.encoder.encode(ours.reader.sequence(pixels, side, side), {}, blocks);
  for (size_t i = 0; i < blocks.size(); ++i)
    one.output("hidden." + std::to_string(blocks[i] + 1), encoded.maps[i].flatten(2).transpose(1, 2));
  one.output("logits", ours.model->head().forward({ours.encoder.pool(encoded)}).front());
}

void run_model(PublishedCase& one, const Golden& golden, const std::string& name, bool causal) {
  if (golden.config()[name].contains("num_labels"))
    run_classification(one, golden, name, causal);
  else
    run_language(one, golden, name, causal);
}

// The published code masks later pixels. Goldens whose table of the mask was overwritten do not: the key "causal" is false,
// or missing and their numbers are those of a model without it.
bool is_causal(const Golden& golden, const std::string& name) {
  if (golden.config()[name].contains("causal")) return golden.config()[name]["causal"];
  Comparison scratch;
  PublishedCase one(scratch, golden, torch::kFloat64, name + "/");
  run_model(one, golden, name, /*causal=*/true);
  return scratch.result().outcome == Outcome::passed;
}

void check_clusters(Comparison& comparison, const Golden& golden, const std::string& name,
                    torch::ScalarType dtype) {
  const Tensor image = golden.tensor(name + "/input.image").to(dtype) / 127.5 - 1;
  const Tensor clusters = golden.tensor(name + "/input.clusters", dtype);
  const Built ours = built(models::resolve_model(
      "igpt", Value(Value::Table{{"image_size", Value::Array{image.size(2), image.size(3)}},
                                 {"colours", clusters.size(0)},
                                 {"dim", int64_t{8}},
                                 {"heads", int64_t{1}},
                                 {"depth", int64_t{1}}})));
  ours.model->backbone->to(dtype);
  ours.reader.palette().copy_(clusters);
  const Tensor colours = ours.reader.colours_of(image);
  comparison.equal(name + " tokens", colours, golden.tensor(name + "/output.tokens"));
  const Tensor back = (127.5 * (ours.reader.palette().index_select(0, colours.flatten()) + 1)).round();
  const Tensor want = golden.tensor(name + "/output.pixels_back");
  comparison.equal(name + " pixels_back", back.to(want.dtype()).view_as(want), want);
}

CaseResult check_igpt(const Golden& golden) {
  Comparison comparison;
  std::string open;
  for (const std::string& name : golden.parts()) {
    const bool clusters = golden.config()[name].contains("clusters");
    const bool causal = clusters || is_causal(golden, name);
    if (!causal) open += (open.empty() ? "; without a causal mask: " : ", ") + name;
    for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
      if (clusters) {
        check_clusters(comparison, golden, name, dtype);
        continue;
      }
      PublishedCase one(comparison, golden, dtype, name + "/");
      run_model(one, golden, name, causal);
      one.gradients();
    }
  }
  CaseResult result = comparison.result();
  result.detail += open;
  return result;
}

const Registered registered({{"igpt", check_igpt, {"components/model_igpt"}}});

}  // namespace
}  // namespace tessera::parity::igpt_cases
