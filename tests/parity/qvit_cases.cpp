// components/block_qvit: the quantisers of Q-ViT's code, its layers and a whole model composed of them, and the loss
// over similarities of queries and keys.
#include "core/error.h"
#include "nn/norm.h"
#include "ops/attention.h"
#include "ops/lsq.h"
#include "ops/norm.h"
#include "tasks/base/losses.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::qvit_cases {
namespace {

using Json = nlohmann::json;
using torch::Tensor;

constexpr int64_t kEndBits = 8;  // of the patch embedding and the heads

// The parameters and flags of one part of the golden, by the names of the published modules ("blocks.0.attn.").
class Quantised {
 public:
  Quantised(const Golden& golden, const Leaves& leaves, int64_t bits)
      : golden_(golden), leaves_(leaves), bits_(bits) {}

  Tensor at(const std::string& name) const { return leaves_.at("param." + name); }
  bool has(const std::string& name) const { return leaves_.contains("param." + name); }

  // Activations with a step size and a zero point for each feature: the last axis of two or three, else the second.
  Tensor activation(const Tensor& x, const std::string& path, int64_t bits) const {
    const bool with_sign = golden_.tensor("buffer." + path + "signed").item<float>() != 0;
    const auto by_feature = [&](const Tensor& numbers) {
      return x.dim() == 4 ? numbers.view({1, -1, 1, 1}) : numbers;
    };
    return ops::zero_point_quantise(x, by_feature(at(path + "alpha")), by_feature(at(path + "zero_point")),
                                    ops::quantised_range(bits, with_sign), x.numel());
  }
  Tensor weight(const std::string& path, int64_t bits) const {
    const Tensor all = at(path + "weight");
    const Tensor rows = ops::learned_step_size_quantise(all.flatten(1), at(path + "alpha").unsqueeze(1),
                                                        ops::quantised_range(bits, true), {}, all.numel());
    return rows.view(all.sizes());
  }
  Tensor linear(const Tensor& x, const std::string& path, int64_t bits) const {
    return at::linear(activation(x, path + "act.", bits), weight(path, bits), bias(path));
  }
  Tensor convolution(const Tensor& x, const std::string& path, int64_t stride, int64_t bits) const {
    return torch::conv2d(activation(x, path + "act.", bits), weight(path, bits), bias(path), stride);
  }
  Tensor norm(const Tensor& x, const std::string& path, double eps) const {
    return ops::norm(x, {at(path + "weight"), at(path + "bias"), eps});
  }

  Tensor attention(const Tensor& x, const std::string& path, int64_t heads) const {
    const Tensor qkv = linear(x, path + "qkv.", bits_)
                           .unflatten(-1, {3, heads, x.size(-1) / heads})
                           .permute({2, 0, 3, 1, 4});
    const Tensor q = activation(norm(qkv[0], path + "norm_q.", 1e-5), path + "q_act.", bits_),
                 k = activation(norm(qkv[1], path + "norm_k.", 1e-5), path + "k_act.", bits_),
                 v = activation(qkv[2], path + "v_act.", bits_);
    const Tensor weights = activation(ops::attention_weights(q, k), path + "attn_act.", bits_);
    return linear(weights.matmul(v).transpose(1, 2).flatten(2), path + "proj.", bits_);
  }
  Tensor mlp(const Tensor& x, const std::string& path) const {
    return linear(at::gelu(linear(x, path + "fc1.", bits_)).clamp(-10, 10), path + "fc2.", bits_);
  }

  // Both heads' scores, as in training.
  NamedOutputs model(const Tensor& images, const Json& config) const {
    const Tensor map =
        convolution(images, "patch_embed.proj.", config.at("patch_size").get<int64_t>(), kEndBits);
    std::vector<Tensor> tokens;
    for (const char* name : {"cls_token", "dist_token"})
      if (has(name)) tokens.push_back(at(name).expand({images.size(0), -1, -1}));
    tokens.push_back(map.flatten(2).transpose(1, 2));
    Tensor x = torch::cat(tokens, 1) + at("pos_embed");
    for (int64_t i = 0; i < config.at("depth").get<int64_t>(); ++i) {
      const std::string block = text("blocks.", i, ".");
      x = x +
          attention(norm(x, block + "norm1.", 1e-6), block + "attn.", config.at("num_heads").get<int64_t>());
      x = x + mlp(norm(x, block + "norm2.", 1e-6), block + "mlp.");
    }
    x = norm(x, "norm.", 1e-6);
    NamedOutputs out = {{"y", linear(x.select(1, 0), "head.", kEndBits)}};
    if (has("dist_token")) out["y_dist"] = linear(x.select(1, 1), "head_dist.", kEndBits);
    return out;
  }

 private:
  Tensor bias(const std::string& path) const { return has(path + "bias") ? at(path + "bias") : Tensor(); }
  const Golden& golden_;
  const Leaves& leaves_;
  int64_t bits_;
};

// Q-ViT's first zero point from one before it, which only its code needs: 0.9 zero_point + 0.1 (min(x) + Qn s).
Tensor first_zero_point(const Tensor& x, const Tensor& step, const Tensor& zero_point,
                        const ops::QuantisedRange& range) {
  return zero_point * 0.9 + (x.min() + step * static_cast<double>(range.low)) * 0.1;
}

NamedOutputs first_numbers(const Tensor& x, const Tensor& weight, int64_t bits) {
  const bool with_sign = x.min().item<double>() < -1e-5;
  const auto range = ops::quantised_range(bits, with_sign);
  const Tensor step = ops::first_step_size(x, range, false);
  const Tensor features = torch::ones({x.size(-1)}, x.options().requires_grad(false));
  const Tensor weight_step = ops::first_step_size(weight, ops::quantised_range(bits, true), false);
  return {
      {"alpha", step * features},
      {"zero_point", first_zero_point(x.detach(), step, torch::zeros({1}, step.options()), range) * features},
      {"signed", torch::full({1}, with_sign ? 1.0 : 0.0, step.options())},
      {"weight_alpha", weight_step.expand({weight.size(0)})}};
}

std::vector<Tensor> layers_of(const Tensor& all) { return all.unbind(0); }

NamedOutputs similarities(const Leaves& leaves) {
  const auto loss = [&](const char* student, const char* teacher) {
    return tasks::similarity_distillation(layers_of(leaves.at(student)), layers_of(leaves.at(teacher)));
  };
  return {{"loss", (loss("input.student_q", "input.const_teacher_q") +
                    loss("input.student_k", "input.const_teacher_k"))
                       .view({1})}};
}

CaseResult check_qvit(const Golden& golden) {
  return compare_parts(golden, [](const std::string& name, const Golden& part, const Leaves& leaves) {
    if (name.starts_with("distil/")) return similarities(leaves);
    const Json& config = part.config();
    const auto bits = config.at("nbits").get<int64_t>();
    const Quantised q(part, leaves, bits);
    const Tensor x = leaves.at("input.x");
    if (name.starts_with("act/")) return NamedOutputs{{"y", q.activation(x, "", bits)}};
    if (name.starts_with("linear/")) return NamedOutputs{{"y", q.linear(x, "", bits)}};
    if (name.starts_with("conv/"))
      return NamedOutputs{{"y", q.convolution(x, "", config.at("stride").get<int64_t>(), bits)}};
    if (name.starts_with("init/")) return first_numbers(x, leaves.at("input.weight"), bits);
    if (name.starts_with("attention"))
      return NamedOutputs{{"y", q.attention(x, "", config.at("heads").get<int64_t>())}};
    check(name.starts_with("model"), "a case '", name, "' that this handler does not have");
    return q.model(x, config);
  });
}

const Registered registered({{"qvit", check_qvit, {"components/block_qvit"}}});

}  // namespace
}  // namespace tessera::parity::qvit_cases
