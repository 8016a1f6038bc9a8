// components/block_timm_layers, block_attention_classic: single layers, values and gradients.
#include "core/error.h"
#include "nn/attention.h"
#include "nn/attention_pool.h"
#include "nn/attention_scores.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/patch_embed.h"
#include "tests/parity/backbone_cases.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {
namespace {

using Json = nlohmann::json;
// Our parameter -> the published ones that it holds one below the other, where the names differ.
using Sources = std::map<std::string, std::vector<std::string>>;
using Inputs = std::map<std::string, torch::Tensor>;
using Run = std::function<NamedOutputs(const Inputs&)>;

void check_gradient(Comparison& comparison, const std::string& what, const torch::Tensor& leaf,
                    const torch::Tensor& want, bool sharp) {
  const double largest = want.abs().max().item<double>();
  const torch::Tensor got = leaf.grad().defined() ? leaf.grad() : torch::zeros_like(leaf);
  // Sums that cancel (a key's bias) are zero up to the rounding of what is summed.
  if (sharp)
    comparison.close(what, got, want, 1e-6, 1e-7 * largest + 1e-9);
  else
    comparison.close(what, got, want, 1e-3, 1e-4 * largest + 1e-5);
}

// The part "<name>/…" of a golden against one of our layers (null: a plain function) in one precision.
void check_part(Comparison& comparison, const Golden& golden, const std::string& name,
                torch::nn::Module* layer, const Run& run, const Sources& sources, torch::ScalarType dtype) {
  const bool sharp = dtype == torch::kFloat64;
  const std::string part = name + "/", what = (sharp ? "float64 " : "float32 ") + name + " ";
  const auto published = [&](const std::string& kind, const std::string& ours) {
    const auto found = sources.find(ours);
    std::vector<torch::Tensor> pieces;
    for (const std::string& one : found == sources.end() ? std::vector{ours} : found->second)
      pieces.push_back(golden.tensor(part + kind + one, dtype));
    return torch::cat(pieces);
  };
  if (layer) {
    layer->to(dtype);
    layer->zero_grad();
    const torch::NoGradGuard no_grad;
    for (const auto& entry : layer->named_parameters())
      entry.value().copy_(published("param.", entry.key()).view(entry.value().sizes()));
  }
  Inputs inputs;
  for (const std::string& input : golden.names(part + "input.")) {
    inputs[input] = golden.tensor(part + "input." + input, dtype);
    if (inputs[input].is_floating_point()) inputs[input].requires_grad_();
  }
  torch::Tensor loss = torch::zeros({}, dtype);
  for (const auto& [output, value] : run(inputs)) {
    const torch::Tensor want = golden.tensor(part + "output." + output);
    const double largest = want.abs().max().item<double>();
    comparison.close(what + output, value, want, sharp ? 1e-6 : 1e-4, sharp ? 1e-7 * largest : 1e-5);
    loss = loss + (value * golden.tensor(part + "loss_weight." + output, dtype)).sum();
  }
  loss.backward();
  if (layer)
    for (const auto& entry : layer->named_parameters())
      check_gradient(comparison, what + "gradient of " + entry.key(), entry.value(),
                     published("grad.", entry.key()).view(entry.value().sizes()), sharp);
  for (const auto& [input, value] : inputs)
    if (golden.has(part + "grad.input." + input))
      check_gradient(comparison, what + "gradient of " + input, value,
                     golden.tensor(part + "grad.input." + input), sharp);
}

}  // namespace

// The layers that our backbones are made of; the file holds others too (convolutional and other gated MLPs;
// the norms of q and k with another eps, which model_vit_gap_qknorm compares).
CaseResult check_timm_layers(const Golden& golden) {
  const int64_t dim = golden.config()["dim"];
  nn::Attention attention(dim, /*heads=*/4);
  nn::Mlp mlp(dim, 2 * dim);
  nn::PackedSwiGlu gated(dim, 3 * dim);
  nn::RmsNorm norm(dim);
  nn::PatchEmbed patches(4, dim);
  const auto y = [](auto& layer) {
    return [&](const Inputs& inputs) { return NamedOutputs{{"y", layer->forward(inputs.at("x"))}}; };
  };
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const auto check_layer = [&](const char* name, auto& layer, const Sources& sources = {}) {
      check_part(comparison, golden, name, layer.get(), y(layer), sources, dtype);
    };
    check_layer("attention", attention);
    check_layer("mlp_gelu", mlp);
    check_layer("swiglu", gated,
                {{"w12.weight", {"fc1_g.weight", "fc1_x.weight"}},
                 {"w12.bias", {"fc1_g.bias", "fc1_x.bias"}},
                 {"w3.weight", {"fc2.weight"}},
                 {"w3.bias", {"fc2.bias"}}});
    check_layer("rmsnorm", norm);
    const auto rows = [&](const Inputs& inputs) {
      return NamedOutputs{{"y", patches->forward(inputs.at("x")).flatten(1, 2)}};
    };
    check_part(comparison, golden, "patch_embed", patches.get(), rows, {}, dtype);
  }
  return comparison.result();
}

// timm's pooling by a learned query; positions of the tokens are the model's part. Pooling with queries of
// another width (open_clip) and over a map (CLIP's ResNet) come with those models.
CaseResult check_attention_pool(const Golden& golden) {
  const Json& config = golden.config()["timm_latent"];
  const int64_t width = config["in_features"];
  nn::AttentionPool pool(nn::AttentionPoolOptions{
      .width = width,
      .heads = config["num_heads"],
      .hidden = static_cast<int64_t>(static_cast<double>(width) * config["mlp_ratio"].get<double>()),
      .norm_eps = 1e-5});
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const auto run = [&](const Inputs& inputs) {
      const torch::Tensor positions = golden.tensor("timm_latent/param.pos_embed", dtype);
      return NamedOutputs{{"y", pool->forward(inputs.at("x") + positions)}};
    };
    check_part(comparison, golden, "timm_latent", pool.get(), run, {}, dtype);
  }
  return comparison.result();
}

// The scores of recurrent captioners with padded keys, scaled dot products, and PyTorch's causal attention.
CaseResult check_classic_attention(const Golden& golden) {
  constexpr int64_t width = 8, heads = 2, hidden = 6;
  const auto read_by = [](const auto& score) {
    return [score](const Inputs& inputs) {
      const torch::Tensor scores = score(inputs.at("q"), inputs.at("k"));
      const nn::Attended attended = nn::read_by_scores(scores, inputs.at("k"), inputs.at("mask"));
      return NamedOutputs{{"context", attended.context}, {"weights", attended.weights}};
    };
  };
  nn::AdditiveScores additive(width, width, hidden);
  nn::GeneralScores general(width, width);
  const auto of = [](auto& layer) {
    return [&](const torch::Tensor& q, const torch::Tensor& k) { return layer->forward(q, k); };
  };
  const auto scaled = [](const Inputs& inputs) {
    const torch::Tensor q = inputs.at("q").unsqueeze(1), k = inputs.at("k").unsqueeze(1);
    const torch::Tensor seen = inputs.at("mask").unsqueeze(1).unsqueeze(1);
    nn::Taps taps;
    const torch::Tensor bias = torch::zeros({1}, q.options()).expand_as(seen).masked_fill(~seen, -INFINITY);
    const torch::Tensor context = nn::attend(q, k, k, {.bias = bias, .taps = &taps, .name = "a"});
    return NamedOutputs{{"context", context.squeeze(1)}, {"weights", taps.kept["a.attention"].squeeze(1)}};
  };
  nn::Attention attention(width, heads);
  const auto causal = [&](const Inputs& inputs) {
    nn::Taps taps;
    const torch::Tensor y = attention->forward(inputs.at("x"), {.causal = true, .taps = &taps, .name = "a"});
    return NamedOutputs{{"y", y}, {"weights", taps.kept["a.attention"].mean(1)}};
  };
  const Sources names = {{"qkv.weight", {"in_proj_weight"}},
                         {"qkv.bias", {"in_proj_bias"}},
                         {"proj.weight", {"out_proj.weight"}},
                         {"proj.bias", {"out_proj.bias"}}};
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    check_part(comparison, golden, "additive", additive.get(), read_by(of(additive)), {}, dtype);
    check_part(comparison, golden, "dot", nullptr, read_by(&nn::dot_scores), {}, dtype);
    check_part(comparison, golden, "general", general.get(), read_by(of(general)), {}, dtype);
    check_part(comparison, golden, "scaled", nullptr, scaled, {}, dtype);
    check_part(comparison, golden, "torch_mha_causal", attention.get(), causal, names, dtype);
  }
  return comparison.result();
}

}  // namespace tessera::parity
