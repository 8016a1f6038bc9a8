// The variational auto-encoder of latent diffusion (Rombach et al. 2022, "High-resolution image synthesis
// with latent diffusion models", Section 3.1 and Appendix G; CompVis/latent-diffusion), with its published
// tensor names.
//
//   moments = quant_conv(encoder(x)),  z ~ N(mean, exp(logvar)),  x' = decoder(post_quant_conv(z))
//   encoder:  3x3 convolution; levels of residual blocks, each except the last halving the grid; two residual
//             blocks with attention between them; norm, SiLU, 3x3 convolution
//   decoder:  the reverse, with one more block per level, doubling the grid by nearest neighbours
//   block:    x + conv(silu(norm(conv(silu(norm x)))))
// Stable Diffusion 3's form has no 1x1 convolutions at the latent, and subtracts a constant (shift_factor)
// from a generator's latents; others have no attention. Group norms have eps 1e-6. A convolution that halves
// the grid pads right and bottom only. Tensors inside are [batch, rows, columns, channels].
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <map>
#include <memory>

#include "core/error.h"
#include "core/text.h"
#include "models/base/codec.h"
#include "models/base/family.h"
#include "nn/attention.h"
#include "nn/convolution.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace tessera::models {
namespace {

constexpr double kEps = 1e-6;

struct Config {
  Value image_size = 256;
  std::vector<int64_t> dims = {128, 256, 512, 512};
  int64_t depth = 2;
  int64_t latent_channels = 4;
  int64_t groups = 32;
  double scaling_factor = 0.18215;
  double shift_factor = 0;
  bool quant_conv = true, attention = true;

  template <class V>
  void visit(V& v) {
    v("image_size", image_size,
      "side in pixels, or [height, width]; any whole number of cells of the latent");
    v("dims", dims, kWidth, "channels of each level, the finest first; each but the last halves the grid");
    v("depth", depth, kDepth, "residual blocks of a level; the decoder has one more");
    v("latent_channels", latent_channels, between(1, 256), "channels of the latent");
    v("groups", groups, between(1, 1024), "groups of channels of the norms");
    v("scaling_factor", scaling_factor, between(0, 1e6),
      "factor of a generator's latents, 0 = from their deviation");
    v("shift_factor", shift_factor, between(-1e6, 1e6), "subtracted from latents, and added before decoding");
    v("quant_conv", quant_conv, "1x1 convolutions on both sides of the latent");
    v("attention", attention, "attention between the middle's two residual blocks");
  }

  int64_t factor() const { return int64_t{1} << (dims.size() - 1); }
  void check() const {
    if (dims.empty() || dims.size() > 8)
      fail_usage("model.dims has ", dims.size(), " levels, must have 1 to 8");
    for (const int64_t dim : dims)
      if (dim % groups != 0)
        fail_usage("model.dims: ", dim, " channels are no multiple of model.groups = ", groups);
    const Extent image = extent_of(image_size, "image_size");
    if (image.height % factor() != 0 || image.width % factor() != 0)
      fail_usage("model.image_size is ", image.height, "x", image.width, ", must be a multiple of ", factor(),
                 ", the pixels per cell of the latent");
    check_tokens(image.height, image.width, dims.front());
  }
};

nn::Conv2dOptions conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
  return {.in = in,
          .out = out,
          .kernel = kernel,
          .stride = stride,
          .padding = stride == 1 ? kernel / 2 : 0,
          .bias = true};
}

class ResidualUnit : public torch::nn::Module {
 public:
  ResidualUnit(int64_t in, int64_t out, int64_t groups)
      : norm1_(register_module("norm1", nn::GroupNorm(in, groups, kEps))),
        conv1_(register_module("conv1", nn::Conv2d(conv(in, out, 3)))),
        norm2_(register_module("norm2", nn::GroupNorm(out, groups, kEps))),
        conv2_(register_module("conv2", nn::Conv2d(conv(out, out, 3)))) {
    if (in != out) shortcut_ = register_module("nin_shortcut", nn::Conv2d(conv(in, out, 1)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor residual = shortcut_ ? shortcut_->forward(x) : x;
    const torch::Tensor inner = conv1_->forward(norm1_->forward_silu(x));
    return conv2_->forward(norm2_->forward_silu(inner), {.norm = {}, .residual = residual});
  }
  int64_t macs() const { return conv1_->macs() + conv2_->macs() + (shortcut_ ? shortcut_->macs() : 0); }

 private:
  nn::GroupNorm norm1_{nullptr};
  nn::Conv2d conv1_{nullptr};
  nn::GroupNorm norm2_{nullptr};
  nn::Conv2d conv2_{nullptr}, shortcut_{nullptr};
};

// Attention with one head over all positions.
class PlaceAttention : public torch::nn::Module {
 public:
  PlaceAttention(int64_t width, int64_t groups)
      : norm_(register_module("norm", nn::GroupNorm(width, groups, kEps))),
        q_(register_module("q", nn::Linear(width, width))),
        k_(register_module("k", nn::Linear(width, width))),
        v_(register_module("v", nn::Linear(width, width))),
        proj_out_(register_module("proj_out", nn::Linear(width, width))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor places = norm_->forward(x).flatten(1, 2).contiguous();
    const auto head = [&](nn::Linear& layer) { return layer->forward(places).unsqueeze(1); };
    const torch::Tensor read = nn::attend(head(q_), head(k_), head(v_)).squeeze(1);
    return proj_out_->forward(read, {.scale = {}, .residual = x.flatten(1, 2)}).view(x.sizes());
  }
  int64_t macs(int64_t places) const {
    return places * (4 * q_->macs()) + 2 * places * places * q_->weight.size(0);
  }

 private:
  nn::GroupNorm norm_{nullptr};
  nn::Linear q_{nullptr}, k_{nullptr}, v_{nullptr}, proj_out_{nullptr};
};

class Middle : public torch::nn::Module {
 public:
  Middle(int64_t width, int64_t groups, bool attention) {
    first_ = register_module("block_1", std::make_shared<ResidualUnit>(width, width, groups));
    if (attention) attention_ = register_module("attn_1", std::make_shared<PlaceAttention>(width, groups));
    second_ = register_module("block_2", std::make_shared<ResidualUnit>(width, width, groups));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor inner = first_->forward(x);
    return second_->forward(attention_ ? attention_->forward(inner) : inner);
  }
  int64_t macs(int64_t places) const {
    return places * (first_->macs() + second_->macs()) + (attention_ ? attention_->macs(places) : 0);
  }

 private:
  std::shared_ptr<ResidualUnit> first_, second_;
  std::shared_ptr<PlaceAttention> attention_;
};

// A level: residual blocks, and a convolution that halves the grid (down) or doubles it (up).
class Level : public torch::nn::Module {
 public:
  enum class Resize { none, down, up };
  Level(int64_t in, int64_t out, int64_t blocks, int64_t groups, Resize resize) : resize_kind_(resize) {
    const auto list = register_module("block", torch::nn::ModuleList());
    for (int64_t i = 0; i < blocks; ++i) {
      blocks_.push_back(std::make_shared<ResidualUnit>(i == 0 ? in : out, out, groups));
      list->push_back(blocks_.back());
    }
    if (resize == Resize::none) return;
    const bool down = resize == Resize::down;
    const auto owner =
        register_module(down ? "downsample" : "upsample", std::make_shared<torch::nn::Module>());
    resize_ = owner->register_module("conv", nn::Conv2d(conv(out, out, 3, down ? 2 : 1)));
  }
  torch::Tensor blocks(torch::Tensor x) {
    for (const auto& block : blocks_) x = block->forward(x);
    return x;
  }
  torch::Tensor resize(const torch::Tensor& x) {
    if (resize_kind_ == Resize::down) return resize_->forward(torch::constant_pad_nd(x, {0, 0, 0, 1, 0, 1}));
    if (resize_kind_ == Resize::none) return x;
    const std::vector<int64_t> size{2 * x.size(1), 2 * x.size(2)};
    return resize_->forward(torch::upsample_nearest2d(x.permute({0, 3, 1, 2}), size).permute({0, 2, 3, 1}));
  }
  // Counts for a grid of `places` cells before the resizing convolution.
  int64_t macs(int64_t places) const {
    int64_t total = 0;
    for (const auto& block : blocks_) total += places * block->macs();
    if (resize_kind_ == Resize::down) total += places / 4 * resize_->macs();
    if (resize_kind_ == Resize::up) total += places * 4 * resize_->macs();
    return total;
  }

 private:
  Resize resize_kind_;
  std::vector<std::shared_ptr<ResidualUnit>> blocks_;
  nn::Conv2d resize_{nullptr};
};

class Encoder : public torch::nn::Module {
 public:
  explicit Encoder(const Config& config) {
    const auto& dims = config.dims;
    conv_in_ = register_module("conv_in", nn::Conv2d(conv(3, dims.front(), 3)));
    const auto down = register_module("down", torch::nn::ModuleList());
    for (size_t i = 0; i < dims.size(); ++i) {
      levels_.push_back(
          std::make_shared<Level>(i == 0 ? dims[0] : dims[i - 1], dims[i], config.depth, config.groups,
                                  i + 1 == dims.size() ? Level::Resize::none : Level::Resize::down));
      down->push_back(levels_.back());
    }
    mid_ = register_module("mid", std::make_shared<Middle>(dims.back(), config.groups, config.attention));
    norm_out_ = register_module("norm_out", nn::GroupNorm(dims.back(), config.groups, kEps));
    conv_out_ = register_module("conv_out", nn::Conv2d(conv(dims.back(), 2 * config.latent_channels, 3)));
  }
  // `maps`, if not null, receives the output of each level before resizing.
  torch::Tensor forward(const torch::Tensor& images, std::vector<torch::Tensor>* maps = nullptr) {
    torch::Tensor x = conv_in_->forward(images.permute({0, 2, 3, 1}));
    for (const auto& level : levels_) {
      x = level->blocks(x);
      if (maps) maps->push_back(x);
      x = level->resize(x);
    }
    return conv_out_->forward(norm_out_->forward_silu(mid_->forward(x)));
  }
  int64_t macs(int64_t places) const {
    int64_t total = places * conv_in_->macs();
    for (const auto& level : levels_) {
      total += level->macs(places);
      if (level != levels_.back()) places /= 4;
    }
    return total + mid_->macs(places) + places * conv_out_->macs();
  }

 private:
  nn::Conv2d conv_in_{nullptr};
  std::vector<std::shared_ptr<Level>> levels_;
  std::shared_ptr<Middle> mid_;
  nn::GroupNorm norm_out_{nullptr};
  nn::Conv2d conv_out_{nullptr};
};

class Decoder : public torch::nn::Module {
 public:
  explicit Decoder(const Config& config) {
    const auto& dims = config.dims;
    conv_in_ = register_module("conv_in", nn::Conv2d(conv(config.latent_channels, dims.back(), 3)));
    mid_ = register_module("mid", std::make_shared<Middle>(dims.back(), config.groups, config.attention));
    const auto up = register_module("up", torch::nn::ModuleList());  // counted from the finest level
    for (size_t i = 0; i < dims.size(); ++i) {
      levels_.push_back(std::make_shared<Level>(i + 1 == dims.size() ? dims[i] : dims[i + 1], dims[i],
                                                config.depth + 1, config.groups,
                                                i == 0 ? Level::Resize::none : Level::Resize::up));
      up->push_back(levels_.back());
    }
    norm_out_ = register_module("norm_out", nn::GroupNorm(dims.front(), config.groups, kEps));
    conv_out_ = register_module("conv_out", nn::Conv2d(conv(dims.front(), 3, 3)));
  }
  torch::Tensor forward(const torch::Tensor& latents) {
    torch::Tensor x = mid_->forward(conv_in_->forward(latents));
    for (auto level = levels_.rbegin(); level != levels_.rend(); ++level)
      x = (*level)->resize((*level)->blocks(x));
    return conv_out_->forward(norm_out_->forward_silu(x));
  }
  int64_t macs(int64_t places) const {  // `places` of the latent
    int64_t total = places * conv_in_->macs() + mid_->macs(places);
    for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
      total += (*level)->macs(places);
      if (*level != levels_.front()) places *= 4;
    }
    return total + places * conv_out_->macs();
  }

 private:
  nn::Conv2d conv_in_{nullptr};
  std::shared_ptr<Middle> mid_;
  std::vector<std::shared_ptr<Level>> levels_;
  nn::GroupNorm norm_out_{nullptr};
  nn::Conv2d conv_out_{nullptr};
};

class AutoencoderKl final : public Backbone, public LatentCodec {
 public:
  explicit AutoencoderKl(const Config& config)
      : config_(config),
        encoder_(register_module("encoder", std::make_shared<Encoder>(config))),
        decoder_(register_module("decoder", std::make_shared<Decoder>(config))) {
    const int64_t channels = config.latent_channels;
    if (config.quant_conv) {
      quant_conv_ = register_module("quant_conv", nn::Conv2d(conv(2 * channels, 2 * channels, 1)));
      post_quant_conv_ = register_module("post_quant_conv", nn::Conv2d(conv(channels, channels, 1)));
    }
    for (const auto& entry : named_parameters())
      if (entry.value().dim() > 1)
        fan_in_[entry.key().substr(0, entry.key().rfind('.'))] = entry.value()[0].numel();
  }

  torch::Tensor moments(const torch::Tensor& images) override {
    check(images.dim() == 4 && images.size(1) == 3 && images.size(2) % factor() == 0 &&
              images.size(3) % factor() == 0 && images.numel() > 0,
          "images have shape ", images.sizes(),
          ", must be [batch, 3, height, width] with sides that are multiples of ", factor());
    torch::Tensor out = encoder_->forward(images);
    if (quant_conv_) out = quant_conv_->forward(out);
    out = out.permute({0, 3, 1, 2});
    if (config_.shift_factor == 0) return out;
    const std::vector<torch::Tensor> parts = out.chunk(2, 1);
    return torch::cat({parts[0] - config_.shift_factor, parts[1]}, 1);
  }
  torch::Tensor decode(const torch::Tensor& latents) override {
    check(latents.dim() == 4 && latents.size(1) == latent_channels() && latents.numel() > 0,
          "latents have shape ", latents.sizes(), ", must be [batch, ", latent_channels(),
          ", rows, columns]");
    torch::Tensor x = latents.permute({0, 2, 3, 1});
    if (config_.shift_factor != 0) x = x + config_.shift_factor;
    if (post_quant_conv_) x = post_quant_conv_->forward(x);
    return decoder_->forward(x).permute({0, 3, 1, 2});
  }
  int64_t latent_channels() const override { return config_.latent_channels; }
  int64_t factor() const override { return config_.factor(); }
  double scaling_factor() const override { return config_.scaling_factor; }

  // Returns the maps of the encoder's levels.
  std::vector<torch::Tensor> features(const torch::Tensor& images, const std::vector<int64_t>& blocks,
                                      const Context&) override {
    std::vector<torch::Tensor> maps, chosen;
    encoder_->forward(images, &maps);
    for (const int64_t block : blocks) {
      if (block < 0 || block >= block_count())
        fail_usage("level ", block, ": the auto-encoder has the levels 0 to ", block_count() - 1);
      chosen.push_back(maps[static_cast<size_t>(block)].permute({0, 3, 1, 2}));
    }
    return chosen;
  }
  // Returns the mean of the latent distribution at each position.
  torch::Tensor embed(const torch::Tensor& images, const Context&) override {
    return encode(images).mean.mean({2, 3});
  }
  int64_t embed_width() const override { return config_.latent_channels; }
  std::vector<std::string> head_names() const override { return {}; }
  int64_t block_count() const override { return std::ssize(config_.dims); }

  int64_t macs(int64_t height, int64_t width) const override {
    const int64_t rows = height / factor(), columns = width / factor();
    return encoder_->macs(height * width) + (quant_conv_ ? rows * columns * quant_conv_->macs() : 0) +
           decoding_macs(rows, columns);
  }
  int64_t decoding_macs(int64_t rows, int64_t columns) const override {
    return decoder_->macs(rows * columns) +
           (post_quant_conv_ ? rows * columns * post_quant_conv_->macs() : 0);
  }

  // In CompVis' files, the attention's layers are 1x1 convolutions.
  torch::Tensor fit(const std::string&, const torch::Tensor& stored) const override {
    return stored.dim() == 4 && stored.size(2) == 1 && stored.size(3) == 1 ? stored.flatten(1)
                                                                           : torch::Tensor();
  }

  // PyTorch's default initial values of convolutions.
  void first_values(const std::string& name, const torch::Tensor&, const nn::Filler& fill) const override {
    const auto found = fan_in_.find(name.substr(0, name.rfind('.')));
    if (found != fan_in_.end()) fill.fan_in_uniform(found->second);
  }

 private:
  Config config_;
  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<Decoder> decoder_;
  nn::Conv2d quant_conv_{nullptr}, post_quant_conv_{nullptr};
  std::map<std::string, int64_t> fan_in_;  // per layer
};

Family autoencoder_kl_family() {
  Family family;
  family.name = "autoencoder_kl";
  family.summary = "AutoencoderKL: images into latents and back, for generators";
  const auto read = [](const Value& table) {
    auto config = read_config<Config>(table, "model");
    config.check();
    return config;
  };
  family.build = [read](const Value& settings) -> std::shared_ptr<Backbone> {
    return std::make_shared<AutoencoderKl>(read(settings));
  };
  family.resolve = [read](const Value& settings) { return write_config(read(settings)); };
  family.preprocess =
      table({{"crop", 1.0}, {"mean", Value::Array{0.5, 0.5, 0.5}}, {"std", Value::Array{0.5, 0.5, 0.5}}});
  family.sizes = {{"autoencoder_kl_f8", {"kl-f8", "sd-vae-ft-ema", "sd-vae-ft-mse"}, table({})}};
  return family;
}

}  // namespace

const std::vector<Family>& codec_families() {
  static const std::vector<Family> all = {autoencoder_kl_family()};
  return all;
}

Value autoencoder_settings(const std::function<std::vector<int64_t>(const std::string& name)>& shape_of,
                           const std::string& where) {
  const auto shape = [&](const std::string& name) {
    const std::vector<int64_t> found = shape_of(name);
    check(found.size() == 4, where, ": holds no auto-encoder: it has no tensor '", name, "' of 4 dimensions");
    return found;
  };
  Value::Array dims;
  for (size_t i = 0; dims.size() == i && i < 8; ++i) {
    const std::vector<int64_t> found = shape_of(text("encoder.down.", i, ".block.0.conv1.weight"));
    if (found.size() == 4) dims.emplace_back(found[0]);
  }
  int64_t depth = 0;
  while (depth < 64 && shape_of(text("encoder.down.0.block.", depth, ".conv1.weight")).size() == 4) ++depth;
  Value settings;
  const int64_t latent = shape("decoder.conv_in.weight")[1];
  shape("encoder.down.0.block.0.conv1.weight");
  settings.set("dims", dims);
  settings.set("depth", depth);
  settings.set("latent_channels", latent);
  settings.set("quant_conv", !shape_of("quant_conv.weight").empty());
  settings.set("attention", !shape_of("encoder.mid.attn_1.q.weight").empty());
  return settings;
}

}  // namespace tessera::models
