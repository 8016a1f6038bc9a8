#include "models/heads/patch_decoder.h"

#include <torch/nn/modules/container/modulelist.h>

#include <cmath>

#include "core/error.h"
#include "nn/init.h"

namespace tessera::models {
namespace {

int64_t hidden_width(const PatchDecoderOptions& options) {
  return default_hidden(MlpKind::gelu, options.width, options.mlp_ratio);
}

}  // namespace

// The ViT block on many sequences of two tokens. A softmax over two is a sigmoid of the difference of their
// scores, so no pairs are stored.
class PatchDecoder::PairBlock final : public AttentionBlock {
 public:
  PairBlock(const PatchDecoderOptions& options, int64_t index)
      : AttentionBlock({.dim = options.width,
                        .mlp = MlpKind::gelu,
                        .hidden = hidden_width(options),
                        .index = index,
                        .name = "decoder.blocks." + std::to_string(index)},
                       options.heads, /*qkv_bias=*/true) {}

  // A token [batch, patches, width], with q, k and v [batch, heads, patches, channels].
  struct Token {
    torch::Tensor x, q, k, v;
  };
  Token project(const torch::Tensor& x) {
    auto [q, k, v] = attn_->project(norm1_.before_linear(x));
    return {x, q, k, v};
  }

  // Returns the token after the block, in which it attends to itself and the other token.
  torch::Tensor advance(const Token& token, const Token& other) {
    const double scale = 1 / std::sqrt(static_cast<double>(token.q.size(-1)));
    const auto wide = token.q.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
    const torch::Tensor score = (token.q * (other.k - token.k)).sum(-1, /*keepdim=*/true, wide) * scale;
    const torch::Tensor mixed =
        token.v + torch::sigmoid(score).to(token.v.scalar_type()) * (other.v - token.v);
    const torch::Tensor y = token.x + attn_->output(nn::AttentionImpl::merge(mixed));
    return y + feed_forward(norm2_.before_linear(y), {});
  }

  int64_t linear_macs() const { return macs(1); }
};

// u + mlp(norm(u)).
class PatchDecoder::MlpLayer final : public torch::nn::Module {
 public:
  explicit MlpLayer(const PatchDecoderOptions& options) {
    norm_ = register_module("norm", nn::LayerNorm(options.width));
    mlp_ = register_module("mlp", nn::Mlp(options.width, hidden_width(options)));
  }
  torch::Tensor forward(const torch::Tensor& u) { return u + mlp_->forward(norm_->before_linear(u)); }
  int64_t macs() const { return mlp_->macs(); }

 private:
  nn::LayerNorm norm_{nullptr};
  nn::Mlp mlp_{nullptr};
};

struct PatchDecoder::Condition {
  torch::Tensor z;
  PairBlock::Token first;  // z as input of the first block, if any
};

PatchDecoder::PatchDecoder(const PatchDecoderOptions& options) : options_(options) {
  check(options.kind != PatchDecoderKind::transformer || options.denoises,
        "a decoder of transformer blocks needs a noised patch in addition to the trunk's token");
  check(options.kind != PatchDecoderKind::transformer || options.width % options.heads == 0, "a decoder of ",
        options.heads, " heads on ", options.width, " channels");
  if (options.learns_start) start_ = register_parameter("start", nn::zeros({1, 1, options.width}));
  if (options.denoises)
    embed_ = register_module("embed", nn::Linear(options.pixels + (options.gamma ? 1 : 0), options.width));
  const auto list = options.depth > 0 ? register_module("blocks", torch::nn::ModuleList()) : nullptr;
  for (int64_t i = 0; i < options.depth; ++i) {
    if (options.kind == PatchDecoderKind::transformer) {
      pairs_.push_back(std::make_shared<PairBlock>(options, i));
      list->push_back(pairs_.back());
    } else {
      layers_.push_back(std::make_shared<MlpLayer>(options));
      list->push_back(layers_.back());
    }
  }
  // If a linear layer has no other inputs, the trunk's last norm precedes it.
  if (options.denoises || options.depth > 0) norm_ = register_module("norm", nn::LayerNorm(options.width));
  head_ = register_module("head", nn::Linear(options.width, options.pixels));
}

PatchDecoder::~PatchDecoder() = default;

void PatchDecoder::initialise(uint64_t seed) {
  nn::initialise(*this, seed,
                 [](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
                   if (name == "start")
                     fill.normal(0.02);
                   else if (parameter.dim() == 2)
                     fill.xavier_uniform();
                 });
}

torch::Tensor PatchDecoder::through_mlp(torch::Tensor u) {
  for (const auto& layer : layers_) u = layer->forward(u);
  return norm_ ? head_->forward(norm_->before_linear(u)) : head_->forward(u);
}

torch::Tensor PatchDecoder::forward(const torch::Tensor& z) {
  check(!options_.denoises, "this decoder needs a noised patch");
  return through_mlp(z);
}

std::shared_ptr<const PatchDecoder::Condition> PatchDecoder::condition(const torch::Tensor& z) {
  auto condition = std::make_shared<Condition>();
  condition->z = z;
  if (!pairs_.empty()) condition->first = pairs_.front()->project(z);
  return condition;
}

// The last block computes only the noised patch's token, since nothing reads the other.
torch::Tensor PatchDecoder::denoise(const Condition& condition, const torch::Tensor& noised,
                                    const torch::Tensor& gamma) {
  check(options_.denoises, "this decoder takes no noised patch");
  torch::Tensor x =
      embed_->forward(options_.gamma ? torch::cat({noised, gamma.to(noised.scalar_type())}, -1) : noised);
  if (pairs_.empty()) return through_mlp(condition.z + x);
  torch::Tensor z = condition.z;
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const PairBlock::Token context = i == 0 ? condition.first : pairs_[i]->project(z);
    const PairBlock::Token patch = pairs_[i]->project(x);
    if (i + 1 < pairs_.size()) z = pairs_[i]->advance(context, patch);
    x = pairs_[i]->advance(patch, context);
  }
  return head_->forward(norm_->before_linear(x));
}

int64_t PatchDecoder::macs() const {
  int64_t total = head_->macs() + (embed_ ? embed_->macs() : 0);
  for (const auto& layer : layers_) total += layer->macs();
  // Both tokens of every block; in the last block only q, k and v of the trunk's token.
  for (const auto& block : pairs_) total += 2 * block->linear_macs();
  if (!pairs_.empty()) total -= pairs_.back()->linear_macs() - 3 * options_.width * options_.width;
  return total;
}

}  // namespace tessera::models
