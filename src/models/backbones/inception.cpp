#include "models/backbones/inception.h"

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/upsample_bilinear2d.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "nn/init.h"

namespace tessera::models {
namespace {

constexpr int64_t kSide = 299;
constexpr double kEps = 1e-3;
constexpr int64_t kSpatialChannels = 7;  // 7 x 17 x 17 values: about as many as the 2048 pooled features

// A convolution of a block: name, output channels, kernel and stride.
struct Layer {
  std::string name;
  int64_t out = 0, rows = 1, columns = 1, stride = 1;
};

// The first operation of a branch.
enum class Pool { none, average, largest, halving };

// Consecutive layers; with `fork`, the last two both read the output of the layers before them.
struct Branch {
  std::vector<Layer> layers = {};
  Pool pool = Pool::none;
  bool fork = false;
};
using Block = std::vector<Branch>;

Block block_a(int64_t pooled) {
  return {{{{"branch1x1", 64}}},
          {{{"branch5x5_1", 48}, {"branch5x5_2", 64, 5, 5}}},
          {{{"branch3x3dbl_1", 64}, {"branch3x3dbl_2", 96, 3, 3}, {"branch3x3dbl_3", 96, 3, 3}}},
          {{{"branch_pool", pooled}}, Pool::average}};
}

Block block_b() {
  return {{{{"branch3x3", 384, 3, 3, 2}}},
          {{{"branch3x3dbl_1", 64}, {"branch3x3dbl_2", 96, 3, 3}, {"branch3x3dbl_3", 96, 3, 3, 2}}},
          {{}, Pool::halving}};
}

Block block_c(int64_t width) {
  return {{{{"branch1x1", 192}}},
          {{{"branch7x7_1", width}, {"branch7x7_2", width, 1, 7}, {"branch7x7_3", 192, 7, 1}}},
          {{{"branch7x7dbl_1", width},
            {"branch7x7dbl_2", width, 7, 1},
            {"branch7x7dbl_3", width, 1, 7},
            {"branch7x7dbl_4", width, 7, 1},
            {"branch7x7dbl_5", 192, 1, 7}}},
          {{{"branch_pool", 192}}, Pool::average}};
}

Block block_d() {
  return {{{{"branch3x3_1", 192}, {"branch3x3_2", 320, 3, 3, 2}}},
          {{{"branch7x7x3_1", 192},
            {"branch7x7x3_2", 192, 1, 7},
            {"branch7x7x3_3", 192, 7, 1},
            {"branch7x7x3_4", 192, 3, 3, 2}}},
          {{}, Pool::halving}};
}

Block block_e(Pool pool) {
  return {
      {{{"branch1x1", 320}}},
      {{{"branch3x3_1", 384}, {"branch3x3_2a", 384, 1, 3}, {"branch3x3_2b", 384, 3, 1}}, Pool::none, true},
      {{{"branch3x3dbl_1", 448},
        {"branch3x3dbl_2", 384, 3, 3},
        {"branch3x3dbl_3a", 384, 1, 3},
        {"branch3x3dbl_3b", 384, 3, 1}},
       Pool::none,
       true},
      {{{"branch_pool", 192}}, pool}};
}

torch::Tensor pooled(const torch::Tensor& x, Pool pool) {
  switch (pool) {
    case Pool::average:
      return torch::avg_pool2d(x, 3, 1, 1, /*ceil_mode=*/false, /*count_include_pad=*/false);
    case Pool::largest:
      return torch::max_pool2d(x, 3, 1, 1);
    case Pool::halving:
      return torch::max_pool2d(x, 3, 2);
    default:
      return x;
  }
}

// Interpolates two neighbours along an axis, without half-pixel offsets (TensorFlow 1).
torch::Tensor stretched(const torch::Tensor& x, int64_t axis) {
  const int64_t in = x.size(axis);
  std::vector<int64_t> low(kSide), high(kSide);
  std::vector<double> share(kSide);
  for (int64_t i = 0; i < kSide; ++i) {
    const double source = static_cast<double>(i) * static_cast<double>(in) / static_cast<double>(kSide);
    const auto k = static_cast<size_t>(i);
    low[k] = std::min(in - 1, static_cast<int64_t>(source));
    high[k] = std::min(in - 1, low[k] + 1);
    share[k] = source - static_cast<double>(low[k]);
  }
  std::vector<int64_t> shape(4, 1);
  shape[static_cast<size_t>(axis)] = kSide;
  const torch::Tensor weight = torch::tensor(share, torch::kFloat64).to(x.scalar_type()).view(shape);
  const torch::Tensor a = x.index_select(axis, torch::tensor(low)),
                      b = x.index_select(axis, torch::tensor(high));
  return a + (b - a) * weight;
}

}  // namespace

torch::Tensor fid_resized(const torch::Tensor& images, FidProtocol protocol, torch::ScalarType type) {
  check(
      images.dim() == 4 && images.size(1) == 3 && images.numel() > 0 && images.scalar_type() == torch::kUInt8,
      "images for Inception have shape ", images.sizes(), ", must be bytes [batch, 3, height, width]");
  // In double: sampling positions between pixels would lose precision in proportion to the image's side.
  const torch::Tensor x = images.to(torch::kCPU, torch::kFloat64);
  if (protocol == FidProtocol::tf) return stretched(stretched(x, 2), 3).to(type);
  if (protocol == FidProtocol::pytorch)
    return at::upsample_bilinear2d(x, {kSide, kSide}, /*align_corners=*/false).to(type);
  return at::_upsample_bicubic2d_aa(x, {kSide, kSide}, /*align_corners=*/false).clamp(0, 255).to(type);
}

torch::Tensor fid_pixels(const torch::Tensor& images, FidProtocol protocol, torch::ScalarType type) {
  const torch::Tensor x = fid_resized(images, protocol, type);
  return protocol == FidProtocol::pytorch ? x / 127.5 - 1 : (x - 128) / 128;
}

// relu(norm(conv(x))), without padding or padded by half of the kernel's sides.
class InceptionFid::ConvNorm : public torch::nn::Module {
 public:
  ConvNorm(int64_t in, const Layer& layer, bool pad) : stride_(layer.stride) {
    const auto conv = register_module("conv", std::make_shared<torch::nn::Module>());
    const auto norm = register_module("bn", std::make_shared<torch::nn::Module>());
    weight_ = conv->register_parameter("weight", nn::zeros({layer.out, in, layer.rows, layer.columns}));
    scale_ = norm->register_parameter("weight", nn::ones({layer.out}));
    shift_ = norm->register_parameter("bias", nn::zeros({layer.out}));
    mean_ = norm->register_buffer("running_mean", nn::zeros({layer.out}));
    variance_ = norm->register_buffer("running_var", nn::ones({layer.out}));
    if (pad) padding_ = {layer.rows / 2, layer.columns / 2};
  }
  torch::Tensor forward(const torch::Tensor& x) const {
    const torch::Tensor factor = scale_ * (variance_ + kEps).rsqrt();
    return torch::conv2d(x, weight_ * factor.view({-1, 1, 1, 1}), shift_ - mean_ * factor, stride_, padding_)
        .relu_();
  }
  int64_t outputs() const { return weight_.size(0); }

 private:
  int64_t stride_;
  std::vector<int64_t> padding_ = {0, 0};
  torch::Tensor weight_, scale_, shift_, mean_, variance_;
};

class InceptionFid::Mixed : public torch::nn::Module {
 public:
  Mixed(int64_t in, Block block) : block_(std::move(block)) {
    for (const Branch& branch : block_) {
      int64_t width = in;
      layers_.emplace_back();
      for (size_t i = 0; i < branch.layers.size(); ++i) {
        const Layer& layer = branch.layers[i];
        const auto made = std::make_shared<ConvNorm>(width, layer, /*pad=*/layer.stride == 1);
        layers_.back().push_back(register_module(layer.name, made));
        const bool before_fork = !branch.fork || i + 2 < branch.layers.size();
        if (before_fork) width = layer.out;
      }
      outputs_ += branch.fork ? 2 * branch.layers.back().out : width;
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    std::vector<torch::Tensor> parts;
    for (size_t b = 0; b < block_.size(); ++b) {
      torch::Tensor y = pooled(x, block_[b].pool);
      const size_t chained = layers_[b].size() - (block_[b].fork ? 2 : 0);
      for (size_t i = 0; i < chained; ++i) y = layers_[b][i]->forward(y);
      if (block_[b].fork)
        for (size_t i = chained; i < layers_[b].size(); ++i) parts.push_back(layers_[b][i]->forward(y));
      else
        parts.push_back(y);
    }
    return torch::cat(parts, 1);
  }
  int64_t outputs() const { return outputs_; }

 private:
  Block block_;
  int64_t outputs_ = 0;
  std::vector<std::vector<std::shared_ptr<ConvNorm>>> layers_;
};

InceptionFid::InceptionFid() {
  add("Conv2d_1a_3x3", 3, 32, 3, 2, false);
  add("Conv2d_2a_3x3", 32, 32, 3, 1, false);
  add("Conv2d_2b_3x3", 32, 64, 3, 1, true);
  add("Conv2d_3b_1x1", 64, 80, 1, 1, false);
  add("Conv2d_4a_3x3", 80, 192, 3, 1, false);
  const std::pair<const char*, Block> blocks[] = {{"Mixed_5b", block_a(32)},
                                                  {"Mixed_5c", block_a(64)},
                                                  {"Mixed_5d", block_a(64)},
                                                  {"Mixed_6a", block_b()},
                                                  {"Mixed_6b", block_c(128)},
                                                  {"Mixed_6c", block_c(160)},
                                                  {"Mixed_6d", block_c(160)},
                                                  {"Mixed_6e", block_c(192)},
                                                  {"Mixed_7a", block_d()},
                                                  {"Mixed_7b", block_e(Pool::average)},
                                                  {"Mixed_7c", block_e(Pool::largest)}};
  int64_t width = 192;
  for (const auto& [name, block] : blocks) {
    mixed_.push_back(register_module(name, std::make_shared<Mixed>(width, block)));
    width = mixed_.back()->outputs();
  }
  const auto fc = register_module("fc", std::make_shared<torch::nn::Module>());
  fc_weight_ = fc->register_parameter("weight", nn::zeros({1008, width}));
  fc_bias_ = fc->register_parameter("bias", nn::zeros({1008}));
  eval();
}

void InceptionFid::add(const char* name, int64_t in, int64_t out, int64_t kernel, int64_t stride, bool pad) {
  stem_.push_back(
      register_module(name, std::make_shared<ConvNorm>(in, Layer{name, out, kernel, kernel, stride}, pad)));
}

InceptionFeatures InceptionFid::forward(const torch::Tensor& pixels) {
  const torch::NoGradGuard no_grad;
  InceptionFeatures out;
  torch::Tensor x = pixels.contiguous(torch::MemoryFormat::ChannelsLast);
  for (size_t i = 0; i < stem_.size(); ++i) {
    x = stem_[i]->forward(x);
    if (i != 2 && i != 4) continue;
    x = torch::max_pool2d(x, 3, 2);
    (i == 2 ? out.early64 : out.early192) = x.mean({2, 3});
  }
  constexpr size_t kMixed6d = 6, kMixed6e = 7;
  for (size_t i = 0; i < mixed_.size(); ++i) {
    x = mixed_[i]->forward(x);
    // The block's first channels are those of its 1x1 branch.
    if (i == kMixed6d) out.spatial = x.narrow(1, 0, kSpatialChannels).contiguous();
    if (i == kMixed6e) out.middle768 = x.mean({2, 3});
  }
  out.pooled = x.mean({2, 3});
  out.unbiased_logits = torch::linear(out.pooled, fc_weight_);
  out.logits = out.unbiased_logits + fc_bias_;
  return out;
}

void load_inception(InceptionFid& network, const std::function<torch::Tensor(const std::string& name)>& find,
                    const std::string& where) {
  const torch::NoGradGuard no_grad;
  const auto put = [&](const std::string& name, torch::Tensor target) {
    const torch::Tensor stored = find(name);
    check(stored.defined(), where, ": holds no Inception-v3 of FID: it has no tensor '", name, "'");
    check(stored.sizes() == target.sizes(), where, ": tensor '", name, "' is ", stored.sizes(), ", must be ",
          target.sizes());
    target.copy_(stored);
  };
  for (const auto& entry : network.named_parameters()) put(entry.key(), entry.value());
  for (const auto& entry : network.named_buffers()) put(entry.key(), entry.value());
}

}  // namespace tessera::models
