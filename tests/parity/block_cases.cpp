// components/block_timm_layers, block_attention_classic: single layers, values and gradients.
#include "core/error.h"
#include "nn/attention.h"
#include "nn/attention_pool.h"
#include "nn/attention_scores.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/patch_embed.h"
#include "tests/parity/config_reader.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::block_cases {
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

// The shape of a parameter of a part.
std::vector<int64_t> shape_of(const Golden& golden, const std::string& part, const std::string& parameter) {
  return golden.view(part + "/param." + parameter).shape;
}

// How many heads a part has: what the config says, else the number, among the divisors of the width, whose result comes
// nearest to the golden's `output` (parameters do not show it).
int64_t heads_of(const Golden& golden, const std::string& part, int64_t width, const std::string& output,
                 const std::function<torch::Tensor(int64_t heads)>& result) {
  const Json& config = golden.config();
  const Json& own = config.contains(part) && config.at(part).is_object() ? config.at(part) : config;
  for (const char* key : {"num_heads", "heads", "n_head"})
    if (own.contains(key) && own.at(key).is_number()) return own.at(key).get<int64_t>();
  const torch::NoGradGuard no_grad;
  const torch::Tensor want = golden.tensor(part + "/output." + output, torch::kFloat64);
  int64_t best = 1;
  double nearest = INFINITY;
  for (int64_t heads = 1; heads <= width; ++heads) {
    if (width % heads != 0) continue;
    const double apart = (result(heads) - want).abs().max().item<double>();
    if (apart < nearest) nearest = apart, best = heads;
  }
  return best;
}

// Fills a layer from a part's parameters, in float64.
void fill(torch::nn::Module& layer, const Golden& golden, const std::string& part, const Sources& sources) {
  layer.to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  for (const auto& entry : layer.named_parameters()) {
    const auto found = sources.find(entry.key());
    std::vector<torch::Tensor> pieces;
    for (const std::string& one : found == sources.end() ? std::vector{entry.key()} : found->second)
      pieces.push_back(golden.tensor(part + "/param." + one, torch::kFloat64));
    entry.value().copy_(torch::cat(pieces).view(entry.value().sizes()));
  }
}

struct TimmBlockOptions {
  int64_t dim = 0, heads = 1, hidden = 0;
  bool qkv_bias = true, proj_bias = true, scaled = false;
};

// timm's Block: its layers under their names.
class TimmBlock : public torch::nn::Module {
 public:
  explicit TimmBlock(const TimmBlockOptions& o) {
    norm1_ = register_module("norm1", nn::LayerNorm(o.dim));
    attn_ =
        register_module("attn", nn::Attention(o.dim, o.heads, o.qkv_bias, /*qk_norm=*/false, o.proj_bias));
    norm2_ = register_module("norm2", nn::LayerNorm(o.dim));
    mlp_ = register_module("mlp", nn::Mlp(o.dim, o.hidden, o.proj_bias));
    if (!o.scaled) return;
    ls1_ = register_module("ls1", nn::LayerScale(o.dim, 1.0));
    ls2_ = register_module("ls2", nn::LayerScale(o.dim, 1.0));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = x + scaled(ls1_, attn_->forward(norm1_->forward(x)));
    return y + scaled(ls2_, mlp_->forward(norm2_->forward(y)));
  }

 private:
  static torch::Tensor scaled(nn::LayerScale& scale, const torch::Tensor& x) {
    return scale.is_empty() ? x : x * scale->gamma;
  }
  nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  nn::Attention attn_{nullptr};
  nn::Mlp mlp_{nullptr};
  nn::LayerScale ls1_{nullptr}, ls2_{nullptr};
};

// The layers that our backbones are made of; the file holds others too (convolutional and other gated MLPs, norms
// over channels; the norms of q and k with another eps, which model_vit_gap_qknorm compares). Widths follow from the
// shapes.
CaseResult check_timm_layers(const Golden& golden) {
  const int64_t dim = golden.config()["dim"];
  const auto has = [&](const std::string& part) { return !golden.names(part + "/output.").empty(); };
  const auto width = [&](const char* part, const char* parameter) {
    return shape_of(golden, part, parameter).at(0);
  };
  const auto y = [](auto& layer) {
    return [&](const Inputs& inputs) { return NamedOutputs{{"y", layer->forward(inputs.at("x"))}}; };
  };
  Comparison comparison;
  const auto check_layer = [&](const char* name, auto& layer, const Sources& sources = {}) {
    for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
      check_part(comparison, golden, name, layer.get(), y(layer), sources, dtype);
  };
  const auto searched = [&](const char* part, const auto& make) {
    return heads_of(golden, part, dim, "y", [&](int64_t heads) {
      auto layer = make(heads);
      fill(*layer, golden, part, {});
      return layer->forward(golden.tensor(std::string(part) + "/input.x", torch::kFloat64));
    });
  };
  // Other norms and layers without biases come with the models that have them.
  const auto plain = [&](const std::string& part, const char* bias, const char* norm) {
    return has(part) && golden.has(part + "/param." + bias) && !golden.has(part + "/param." + norm);
  };
  if (has("attention") && !golden.has("attention/param.q_norm.weight")) {
    const bool bias = golden.has("attention/param.qkv.bias"),
               proj_bias = golden.has("attention/param.proj.bias");
    const auto make = [&](int64_t heads) {
      return nn::Attention(dim, heads, bias, /*qk_norm=*/false, proj_bias);
    };
    nn::Attention attention = make(searched("attention", make));
    check_layer("attention", attention);
  }
  if (has("block") && !golden.has("block/param.attn.q_norm.weight")) {
    const auto make = [&](int64_t heads) {
      return std::make_shared<TimmBlock>(
          TimmBlockOptions{.dim = dim,
                           .heads = heads,
                           .hidden = width("block", "mlp.fc1.weight"),
                           .qkv_bias = golden.has("block/param.attn.qkv.bias"),
                           .proj_bias = golden.has("block/param.attn.proj.bias"),
                           .scaled = golden.has("block/param.ls1.gamma")});
    };
    std::shared_ptr<TimmBlock> block = make(searched("block", make));
    check_layer("block", block);
  }
  if (has("mlp_gelu") && !golden.has("mlp_gelu/param.norm.weight")) {
    nn::Mlp mlp(dim, width("mlp_gelu", "fc1.weight"), golden.has("mlp_gelu/param.fc1.bias"));
    check_layer("mlp_gelu", mlp);
  }
  if (plain("swiglu", "fc1_g.bias", "norm.weight")) {
    nn::PackedSwiGlu gated(dim, width("swiglu", "fc1_g.weight"));
    check_layer("swiglu", gated,
                {{"w12.weight", {"fc1_g.weight", "fc1_x.weight"}},
                 {"w12.bias", {"fc1_g.bias", "fc1_x.bias"}},
                 {"w3.weight", {"fc2.weight"}},
                 {"w3.bias", {"fc2.bias"}}});
  }
  if (has("rmsnorm")) {
    nn::RmsNorm norm(dim);
    check_layer("rmsnorm", norm);
  }
  if (has("patch_embed") && !golden.has("patch_embed/param.norm.weight")) {
    const std::vector<int64_t> kernel = shape_of(golden, "patch_embed", "proj.weight");
    check(kernel.at(2) == kernel.at(3), "patches that are not square are a setting unknown here");
    nn::PatchEmbed patches(kernel.at(2), dim, 0, golden.has("patch_embed/param.proj.bias"), kernel.at(1));
    const bool flat = golden.view("patch_embed/output.y").shape.size() == 3;
    const auto rows = [&](const Inputs& inputs) {
      const torch::Tensor map = patches->forward(inputs.at("x"));
      return NamedOutputs{{"y", flat ? map.flatten(1, 2) : map.permute({0, 3, 1, 2})}};
    };
    for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
      check_part(comparison, golden, "patch_embed", patches.get(), rows, {}, dtype);
  }
  return comparison.result();
}

// timm's pooling by a learned query; positions of the tokens are the model's part. Pooling over a map (CLIP's ResNet)
// comes with that model, queries of another width with CoCa.
CaseResult check_attention_pool(const Golden& golden) {
  Comparison comparison;
  for (const auto& [part, config] : golden.config().items()) {
    if (!part.starts_with("timm_latent")) continue;
    const int64_t width = config["in_features"];
    ConfigReader given(config, part);
    const auto pool_type = given.value("pool_type", "token");
    check(pool_type == "token" || pool_type == "avg", part, ": pool_type '", pool_type,
          "' is a setting unknown here");
    nn::AttentionPool pool(nn::AttentionPoolOptions{
        .width = width,
        .heads = config["num_heads"],
        .hidden = static_cast<int64_t>(static_cast<double>(width) * config.value("mlp_ratio", 4.0)),
        .norm_eps = 1e-5,
        .latents = given.value("latent_len", int64_t{1}),
        .mean = pool_type == "avg",
        .qk_norm = given.value("qk_norm", false),
        .qkv_bias = given.value("qkv_bias", true)});
    for (const char* width_of : {"out_features", "embed_dim"}) given.expect(width_of, width);
    given.pass_over({"in_features", "num_heads", "mlp_ratio", "pos_embed", "feat_size", "drop"});
    given.finish();
    for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
      const auto run = [&, &part = part](const Inputs& inputs) {
        const std::string positions = part + "/param.pos_embed";
        const torch::Tensor x = inputs.at("x");
        return NamedOutputs{
            {"y", pool->forward(golden.has(positions) ? x + golden.tensor(positions, dtype) : x)}};
      };
      check_part(comparison, golden, part, pool.get(), run, {}, dtype);
    }
  }
  return comparison.result();
}

// The scores of recurrent captioners with padded keys, scaled dot products, and PyTorch's causal attention.
CaseResult check_classic_attention(const Golden& golden) {
  const auto read_by = [](const auto& score) {
    return [score](const Inputs& inputs) {
      const torch::Tensor scores = score(inputs.at("q"), inputs.at("k"));
      const nn::Attended attended = nn::read_by_scores(scores, inputs.at("k"), inputs.at("mask"));
      return NamedOutputs{{"context", attended.context}, {"weights", attended.weights}};
    };
  };
  const std::vector<int64_t> of_queries = shape_of(golden, "additive", "W.weight"),
                             of_keys = shape_of(golden, "additive", "U.weight"),
                             both = shape_of(golden, "general", "W.weight");
  nn::AdditiveScores additive(of_queries.at(1), of_keys.at(1), of_queries.at(0));
  nn::GeneralScores general(both.at(1), both.at(0));
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
  const Sources names = {{"qkv.weight", {"in_proj_weight"}},
                         {"qkv.bias", {"in_proj_bias"}},
                         {"proj.weight", {"out_proj.weight"}},
                         {"proj.bias", {"out_proj.bias"}}};
  const int64_t width = shape_of(golden, "torch_mha_causal", "out_proj.weight").at(0);
  const int64_t heads = heads_of(golden, "torch_mha_causal", width, "y", [&](int64_t tried) {
    nn::Attention layer(width, tried);
    fill(*layer, golden, "torch_mha_causal", names);
    return layer->forward(golden.tensor("torch_mha_causal/input.x", torch::kFloat64), {.causal = true});
  });
  nn::Attention attention(width, heads);
  const auto causal = [&](const Inputs& inputs) {
    nn::Taps taps;
    const torch::Tensor y = attention->forward(inputs.at("x"), {.causal = true, .taps = &taps, .name = "a"});
    return NamedOutputs{{"y", y}, {"weights", taps.kept["a.attention"].mean(1)}};
  };
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

const Registered registered({
    {"timm_layers", check_timm_layers, {"components/block_timm_layers"}},
    {"attention_pool", check_attention_pool, {"components/block_attention_pool"}},
    {"classic_attention", check_classic_attention, {"components/block_attention_classic"}},
});

}  // namespace
}  // namespace tessera::parity::block_cases
