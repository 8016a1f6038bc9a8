#include "models/heads/detr.h"

#include <torch/nn/modules/container/modulelist.h>

#include <numbers>

#include "core/error.h"
#include "nn/attention.h"
#include "nn/boxes.h"
#include "nn/host_values.h"
#include "nn/init.h"
#include "nn/norm.h"
#include "ops/gpu.h"

namespace tessera::models {
namespace {

using torch::Tensor;

constexpr double kNormEps = 1e-5;

nn::LayerNorm layer_norm(int64_t dim) { return nn::LayerNorm(dim, nn::LayerNormOptions{.eps = kNormEps}); }

// The part after the attention in both kinds of layer: linear2(activation(linear1 x)). It is used as norm(x +
// part(x)) or as x + part(norm(x)).
class FeedForwardLayer : public torch::nn::Module {
 public:
  FeedForwardLayer(const DetrConfig& config, int64_t hidden)
      : pre_norm_(config.pre_norm), activation_(config.activation) {
    linear1_ = register_module("linear1", nn::Linear(config.embed_dim, hidden));
    linear2_ = register_module("linear2", nn::Linear(hidden, config.embed_dim));
  }
  int64_t feed_forward_macs() const { return linear1_->macs() + linear2_->macs(); }

 protected:
  template <class Part>
  Tensor with_norm(const Tensor& x, nn::LayerNorm& norm, const Part& part) {
    return pre_norm_ ? x + part(norm(x)) : norm(x + part(x));
  }
  Tensor feed_forward(const Tensor& x, nn::LayerNorm& norm) {
    const Tensor inner = linear1_(pre_norm_ ? norm(x) : x);
    const Tensor y = linear2_(activate(inner, activation_), nn::Epilogue{.residual = x});
    return pre_norm_ ? y : norm(y);
  }

 private:
  bool pre_norm_;
  Activation activation_;
  nn::Linear linear1_{nullptr}, linear2_{nullptr};
};

class EncoderLayer final : public FeedForwardLayer {
 public:
  explicit EncoderLayer(const DetrConfig& config) : FeedForwardLayer(config, config.hidden) {
    attention_ =
        register_module("self_attn", std::make_shared<InputAttention>(config.embed_dim, config.num_heads));
    norm1_ = register_module("norm1", layer_norm(config.embed_dim));
    norm2_ = register_module("norm2", layer_norm(config.embed_dim));
  }
  Tensor forward(const Tensor& x, const Tensor& positions, const Tensor& bias) {
    const Tensor read = with_norm(x, norm1_, [&](const Tensor& y) {
      const Tensor placed = y + positions;
      return attention_->forward(placed, placed, y, bias);
    });
    return feed_forward(read, norm2_);
  }
  int64_t macs(int64_t cells) const { return attention_->macs(cells, cells) + cells * feed_forward_macs(); }

 private:
  std::shared_ptr<InputAttention> attention_;
  nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
};

class DecoderLayer final : public FeedForwardLayer {
 public:
  explicit DecoderLayer(const DetrConfig& config)
      : FeedForwardLayer(config, config.decoder_hidden > 0 ? config.decoder_hidden : config.hidden) {
    const int64_t heads = config.decoder_heads > 0 ? config.decoder_heads : config.num_heads;
    own_ = register_module("self_attn", std::make_shared<InputAttention>(config.embed_dim, heads));
    across_ = register_module("multihead_attn", std::make_shared<InputAttention>(config.embed_dim, heads));
    norm1_ = register_module("norm1", layer_norm(config.embed_dim));
    norm2_ = register_module("norm2", layer_norm(config.embed_dim));
    norm3_ = register_module("norm3", layer_norm(config.embed_dim));
  }
  Tensor forward(Tensor t, const Tensor& queries, const Tensor& memory, const Tensor& placed_memory,
                 const Tensor& bias) {
    t = with_norm(t, norm1_, [&](const Tensor& y) {
      const Tensor asked = y + queries;
      return own_->forward(asked, asked, y);
    });
    t = with_norm(t, norm2_, [&](const Tensor& y) {
      return across_->forward(y + queries, placed_memory, memory, bias);
    });
    return feed_forward(t, norm3_);
  }
  int64_t macs(int64_t queries, int64_t cells) const {
    return own_->macs(queries, queries) + across_->macs(queries, cells) + queries * feed_forward_macs();
  }

 private:
  std::shared_ptr<InputAttention> own_, across_;
  nn::LayerNorm norm1_{nullptr}, norm2_{nullptr}, norm3_{nullptr};
};

// Returns the bias of the scores that gives padding keys weight 0.
Tensor padding_bias(const Tensor& padding, torch::ScalarType type) {
  constexpr double kNever = -1e30;
  const torch::ScalarType wide = type == torch::kFloat64 ? type : torch::kFloat32;
  return torch::zeros({padding.size(0), 1, 1, padding.size(1)}, padding.options().dtype(wide))
      .masked_fill(padding.unsqueeze(1).unsqueeze(1), kNever);
}

}  // namespace

void DetrConfig::check(const char* section) const {
  if (embed_dim % num_heads != 0 || embed_dim % 4 != 0)
    fail_usage(section, ".embed_dim = ", embed_dim, ", must be a multiple of 4 and of ", section,
               ".num_heads = ", num_heads);
}

Tensor padded_sine_positions(const Tensor& padding, int64_t dim, torch::TensorOptions options) {
  const Tensor there = padding.logical_not().to(torch::kFloat64);
  const int64_t half = dim / 2;
  const Tensor index = torch::arange(half, there.options());
  const Tensor period = torch::pow(10000.0, 2 * (index / 2).floor() / static_cast<double>(half));
  const auto channels_of = [&](int64_t axis) {
    const Tensor count = there.cumsum(axis);
    const Tensor last = count.slice(axis, -1);
    const Tensor angle = (count / (last + 1e-6) * (2 * std::numbers::pi)).unsqueeze(-1) / period;
    const Tensor even = angle.slice(3, 0, half, 2).sin(), odd = angle.slice(3, 1, half, 2).cos();
    return torch::stack({even, odd}, 4).flatten(3);
  };
  return torch::cat({channels_of(1), channels_of(2)}, 3).flatten(1, 2).to(options);
}

InputAttention::InputAttention(int64_t dim, int64_t heads) : dim_(dim), heads_(heads) {
  in_weight_ = register_parameter("in_proj_weight", nn::zeros({3 * dim, dim}));
  in_bias_ = register_parameter("in_proj_bias", nn::zeros({3 * dim}));
  out_proj_ = register_module("out_proj", nn::Linear(dim, dim));
}

// Part of the joint matrix: 0 = q, 1 = k, 2 = v. Returns heads [batch, heads, tokens, d].
Tensor InputAttention::project(const Tensor& x, int64_t part) const {
  const Tensor y = torch::linear(x, in_weight_.slice(0, part * dim_, (part + 1) * dim_),
                                 in_bias_.slice(0, part * dim_, (part + 1) * dim_));
  return y.unflatten(2, {heads_, dim_ / heads_}).transpose(1, 2);
}

Tensor InputAttention::forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias) {
  const Tensor read =
      nn::attend(project(q, 0), project(k, 1), project(v, 2), nn::AttentionExtras{.bias = bias});
  return out_proj_(nn::AttentionImpl::merge(read));
}

int64_t InputAttention::macs(int64_t queries, int64_t keys) const {
  return 2 * (queries + keys) * dim_ * dim_ + 2 * queries * keys * dim_;
}

class DetrTransformer final : public torch::nn::Module, public nn::Stack {
 public:
  explicit DetrTransformer(const DetrConfig& config) {
    const auto encoder = register_module("encoder", std::make_shared<torch::nn::Module>());
    const auto encoders = encoder->register_module("layers", torch::nn::ModuleList());
    for (int64_t i = 0; i < config.encoder_depth; ++i) {
      encoder_.push_back(std::make_shared<EncoderLayer>(config));
      encoders->push_back(encoder_.back());
    }
    if (config.pre_norm) encoded_norm_ = encoder->register_module("norm", layer_norm(config.embed_dim));
    const auto decoder = register_module("decoder", std::make_shared<torch::nn::Module>());
    const auto decoders = decoder->register_module("layers", torch::nn::ModuleList());
    for (int64_t i = 0; i < config.decoder_depth; ++i) {
      decoder_.push_back(std::make_shared<DecoderLayer>(config));
      decoders->push_back(decoder_.back());
    }
    norm_ = decoder->register_module("norm", layer_norm(config.embed_dim));
  }

  std::vector<std::vector<Tensor>> units() const override {
    std::vector<std::vector<Tensor>> all = nn::parameters_of_each(encoder_);
    for (auto& unit : nn::parameters_of_each(decoder_)) all.push_back(std::move(unit));
    return all;
  }

  Tensor encode(Tensor x, const Tensor& positions, const Tensor& bias) {
    for (const auto& layer : encoder_)
      x = nn::run_unit(x, {.body = [layer, positions,
                                    bias](const Tensor& in) { return layer->forward(in, positions, bias); },
                           .parameters = [&] { return layer->parameters(); },
                           .recompute = checkpointing && is_training()});
    return encoded_norm_ ? encoded_norm_(x) : x;
  }

  // Returns the outputs of all layers after one shared norm, [layers, batch, queries, dim].
  Tensor decode(const Tensor& queries, const Tensor& memory, const Tensor& positions, const Tensor& bias) {
    const bool recompute = checkpointing && is_training();
    const Tensor placed = memory + positions;
    Tensor t = torch::zeros_like(queries);
    std::vector<Tensor> layers;
    for (const auto& layer : decoder_) {
      // What a recomputed block reads must not depend on another thing that it reads.
      const auto body = [=](const Tensor& in) {
        return layer->forward(in, queries, memory, recompute ? memory + positions : placed, bias);
      };
      t = nn::run_unit(t, {.body = body,
                           .parameters = [&] { return layer->parameters(); },
                           .recompute = recompute,
                           .reads = {queries, memory}});
      layers.push_back(norm_(t));
    }
    return torch::stack(layers);
  }

  int64_t macs(int64_t queries, int64_t cells) const {
    int64_t total = 0;
    for (const auto& layer : encoder_) total += layer->macs(cells);
    for (const auto& layer : decoder_) total += layer->macs(queries, cells);
    return total;
  }

 private:
  std::vector<std::shared_ptr<EncoderLayer>> encoder_;
  std::vector<std::shared_ptr<DecoderLayer>> decoder_;
  nn::LayerNorm norm_{nullptr}, encoded_norm_{nullptr};
};

Detr::Detr(const DetrConfig& config, int64_t feature_channels, int64_t classes)
    : config_(config), classes_(classes) {
  input_proj_ = register_module(
      "input_proj",
      nn::Conv2d(nn::Conv2dOptions{.in = feature_channels, .out = config.embed_dim, .bias = true}));
  transformer_ = register_module("transformer", std::make_shared<DetrTransformer>(config));
  const auto embedding = register_module("query_embed", std::make_shared<torch::nn::Module>());
  queries_ = embedding->register_parameter("weight", nn::zeros({config.queries, config.embed_dim}));
  class_embed_ = register_module("class_embed", nn::Linear(config.embed_dim, classes + 1));
  const auto boxes = register_module("bbox_embed", std::make_shared<torch::nn::Module>());
  const auto layers = boxes->register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < 3; ++i) {
    box_embed_.emplace_back(config.embed_dim, i < 2 ? config.embed_dim : 4);
    layers->push_back(box_embed_.back());
  }
}

// Initialises as published: Glorot for the Transformer's matrices, PyTorch's default for other layers.
void Detr::initialise(uint64_t seed) {
  nn::initialise(
      *this, seed, [this](const std::string& name, const Tensor& parameter, const nn::Filler& fill) {
        const bool attention = name.find("attn.") != std::string::npos;
        if (name == "query_embed.weight")
          fill.normal(1);
        else if (name.starts_with("transformer.") && parameter.dim() > 1)
          fill.xavier_uniform();
        else if (parameter.dim() > 1)
          fill.fan_in_uniform(parameter[0].numel());
        else if (nn::ends_with(name, "linear2.bias"))
          fill.fan_in_uniform(config_.decoder_hidden > 0 && name.find(".decoder.") != std::string::npos
                                  ? config_.decoder_hidden
                                  : config_.hidden);
        else if (nn::ends_with(name, ".bias") && !attention && name.find("norm") == std::string::npos &&
                 name != "input_proj.bias")
          fill.fan_in_uniform(config_.embed_dim);
      });
}

Detr::Objects Detr::forward(const Tensor& map, const Tensor& padding) {
  check(map.dim() == 4 && padding.dim() == 3 && padding.size(0) == map.size(0), "DETR: a map ", map.sizes(),
        " and padding ", padding.sizes(),
        ", must be [batch, channels, rows, columns] and [batch, height, width]");
  const int64_t batch = map.size(0), rows = map.size(2), columns = map.size(3);
  const Tensor shown = torch::upsample_nearest2d(padding.unsqueeze(1).to(torch::kFloat32), {rows, columns})
                           .squeeze(1)
                           .to(torch::kBool);
  const Tensor outside = shown.device() == map.device() ? shown : ops::sent_to(map.device(), shown);
  const Tensor x = input_proj_(map.permute({0, 2, 3, 1})).reshape({batch, rows * columns, config_.embed_dim});
  const Tensor positions =
      padded_sine_positions(outside, config_.embed_dim, x.options().requires_grad(false));
  const Tensor bias =
      nn::count_true(shown) > 0 ? padding_bias(outside.flatten(1), x.scalar_type()) : Tensor();
  Objects out;
  out.encoded = transformer_->encode(x, positions, bias);
  const Tensor queries = queries_.to(x.scalar_type()).unsqueeze(0).expand({batch, -1, -1});
  out.decoded = transformer_->decode(queries, out.encoded, positions, bias);
  out.logits = class_embed_(out.decoded);
  Tensor box = out.decoded;
  for (size_t i = 0; i < box_embed_.size(); ++i) {
    box = box_embed_[i](box);
    if (i + 1 < box_embed_.size()) box = torch::relu(box);
  }
  out.boxes = box.sigmoid();
  return out;
}

int64_t Detr::macs(int64_t rows, int64_t columns) const {
  int64_t heads = class_embed_->macs();
  for (const nn::Linear& layer : box_embed_) heads += layer->macs();
  return rows * columns * input_proj_->macs() + transformer_->macs(config_.queries, rows * columns) +
         config_.queries * heads;
}

DetrDetections detr_detections(const Tensor& logits, const Tensor& boxes, double height, double width) {
  const auto [scores, labels] = logits.softmax(-1).slice(-1, 0, -1).max(-1);
  const Tensor size = torch::tensor({width, height, width, height}, boxes.options().requires_grad(false));
  return {scores, labels, nn::corners_of_centres(boxes) * size};
}

}  // namespace tessera::models
