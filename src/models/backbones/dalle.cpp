// The encoder of DALL-E's discrete VAE (Ramesh et al. 2021, "Zero-shot text-to-image generation", appendix A;
// the tokeniser of BEiT). Parameters have the names of the published safetensors
// (facebook/flava-image-codebook). DALL-E's own files are pickled modules, which are not supported.
//
//   x0 = conv7x7(0.8 x + 0.1)                                            x: pixels in [0, 1]
//   a group: its blocks, with max pooling of 2x2 cells before every group except the first
//   a block: x' = id(x) + g conv1x1(relu conv3x3(relu conv3x3(relu conv3x3(relu x)))),  g = 1 / blocks^2
//   outputs = conv1x1(relu x_L), one place per 8x8 pixels; the token is the index of the largest output
// id is a 1x1 convolution if the width changes. With a codebook the outputs are vectors, and the token is the
// nearest code (van den Oord et al. 2017).
#include "models/base/family.h"

#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/text.h"
#include "models/base/codebook.h"
#include "models/base/pyramid.h"
#include "models/base/tokeniser.h"
#include "nn/convolution.h"
#include "nn/drop_path.h"
#include "nn/init.h"

namespace tessera::models::dalle {
namespace {

constexpr int64_t kNarrowing = 4;  // width of a block as a multiple of its 3x3 convolutions' width
constexpr double kScale = 0.8, kShift = 0.1;

struct Config : DropPathSettings {
  Value image_size = 112;
  std::vector<int64_t> dims = {256, 512, 1024, 2048}, depths = {2, 2, 2, 2};
  int64_t outputs = 8192, codebook = 0;

  template <class V>
  void visit(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("dims", dims, kWidth, "channels of a group");
    v("depths", depths, kDepth, "blocks of a group");
    v("outputs", outputs, between(1, 65536),
      "channels of the last layer: a score of each code, or with a codebook a vector");
    v("codebook", codebook, between(0, 1 << 20), "code vectors (a token is the nearest one), 0 = scores");
    visit_drop_path(v);
  }

  void check() const {
    const Extent image = extent_of(image_size, "image_size");
    if (dims.empty() || dims.size() > 8 || depths.size() != dims.size())
      fail_usage("model.dims and model.depths must have as many entries each, 1 to 8");
    for (const int64_t dim : dims)
      if (dim % kNarrowing != 0) fail_usage("model.dims holds ", dim, ", must be a multiple of ", kNarrowing);
    const int64_t cell = int64_t{1} << (dims.size() - 1);
    if (image.height % cell != 0 || image.width % cell != 0)
      fail_usage("model.image_size must be a multiple of ", cell, " pixels, the side of a token's cell");
    check_tokens(image.height, image.width, dims[0]);
  }
  int64_t blocks() const { return std::accumulate(depths.begin(), depths.end(), int64_t{0}); }
};

// Maps x [batch, rows, columns, in] to [batch, rows, columns, out].
class CodeBlock : public torch::nn::Module {
 public:
  CodeBlock(int64_t in, int64_t out, int64_t index, double gain, double drop_path)
      : index_(index), drop_path_(drop_path), gain_(gain) {
    if (in != out)
      id_ = register_module("id_path", nn::Conv2d(nn::Conv2dOptions{.in = in, .out = out, .bias = true}));
    const auto path = register_module("res_path", std::make_shared<torch::nn::Module>())
                          ->register_module("path", std::make_shared<torch::nn::Module>());
    const int64_t inner = out / kNarrowing;
    for (int64_t i = 1; i <= 4; ++i)
      convs_.push_back(
          path->register_module(text("conv_", i), nn::Conv2d(nn::Conv2dOptions{.in = i == 1 ? in : inner,
                                                                               .out = i == 4 ? out : inner,
                                                                               .kernel = i == 4 ? 1 : 3,
                                                                               .padding = i == 4 ? 0 : 1,
                                                                               .bias = true})));
  }

  torch::Tensor forward(const torch::Tensor& x, const Context& context) {
    const torch::Tensor shortcut = id_ ? id_(x) : x;
    return nn::residual(
        shortcut, {}, drop_path_, is_training(), index_, context,
        [&](const torch::Tensor&, const nn::Epilogue& epilogue, const torch::Tensor& samples) {
          torch::Tensor h = torch::relu(samples.defined() ? x.index_select(0, samples) : x);
          for (size_t i = 0; i < convs_.size(); ++i)
            h = convs_[i]->forward(h, {.relu = i + 1 < convs_.size()});
          h = h * gain_;
          return epilogue.residual.defined() ? epilogue.residual + h : h;
        });
  }

  int64_t macs() const {  // per cell
    int64_t total = id_ ? id_->macs() : 0;
    for (const nn::Conv2d& conv : convs_) total += conv->macs();
    return total;
  }

 private:
  int64_t index_;
  double drop_path_, gain_;
  nn::Conv2d id_{nullptr};
  std::vector<nn::Conv2d> convs_;
};

class Dalle final : public PyramidBackbone, public Tokeniser {
 public:
  explicit Dalle(const Config& config) : config_(config) {
    if (config.codebook > 0) {
      codebook_ = register_parameter("codebook", nn::zeros({config.codebook, config.outputs}),
                                     /*requires_grad=*/false);
    }
    const auto blocks = register_module("blocks", std::make_shared<torch::nn::Module>());
    input_ = blocks->register_module(
        "input", nn::Conv2d(nn::Conv2dOptions{
                     .in = 3, .out = config.dims[0], .kernel = 7, .padding = 3, .bias = true}));
    const std::vector<double> rates = config.drop_path_rates(config.blocks());
    const auto total = static_cast<double>(config.blocks());
    int64_t in = config.dims[0], index = 0;
    for (size_t stage = 0; stage < config.dims.size(); ++stage) {
      const auto group =
          blocks->register_module(text("group_", stage + 1), std::make_shared<torch::nn::Module>())
              ->register_module("group", std::make_shared<torch::nn::Module>());
      stages_.emplace_back();
      for (int64_t i = 0; i < config.depths[stage]; ++i, ++index) {
        const auto block = std::make_shared<CodeBlock>(in, config.dims[stage], index, 1 / (total * total),
                                                       rates[static_cast<size_t>(index)]);
        group->register_module(text("block_", i + 1), block);
        stages_.back().push_back(block);
        keep_block(static_cast<int64_t>(stage), block);
        in = config.dims[stage];
      }
    }
    output_ = blocks->register_module("output", std::make_shared<torch::nn::Module>())
                  ->register_module(
                      "conv", nn::Conv2d(nn::Conv2dOptions{.in = in, .out = config.outputs, .bias = true}));
  }

  int64_t embed_width() const override { return config_.outputs; }

  int64_t macs(int64_t height, int64_t width) const override {
    int64_t cells = height * width, total = cells * input_->macs();
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      if (stage > 0) cells /= 4;
      for (const auto& block : stages_[stage]) total += cells * block->macs();
    }
    return total + cells * output_->macs();
  }

  // Initialises as DALL-E's code: normal with deviation 1 / sqrt(fan in). Codes are then set to vectors of
  // the first batch.
  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (name == "head.weight")
      fill.fan_in_uniform(embed_width());
    else if (name == "codebook")
      fill.uniform(1 / static_cast<double>(config_.codebook));
    else if (parameter.dim() == 4)
      fill.normal(1 / std::sqrt(static_cast<double>(parameter[0].numel())));
  }

  int64_t codes() const override { return config_.codebook > 0 ? config_.codebook : config_.outputs; }
  int64_t cell() const override { return int64_t{1} << (config_.dims.size() - 1); }
  torch::Tensor code_vectors() const override { return codebook_; }
  torch::Tensor code_outputs(const torch::Tensor& pixels) override {
    const torch::Tensor grid = features(pixels, {block_count() - 1}, {}).at(0).permute({0, 2, 3, 1});
    return output_(torch::relu(grid));
  }
  torch::Tensor tokens_of(const torch::Tensor& outputs) const override {
    return codebook_.defined() ? nearest_codes(outputs, codebook_) : outputs.argmax(-1);
  }

 protected:
  torch::Tensor enter(int64_t stage, const torch::Tensor& before) override {
    if (stage > 0) return torch::max_pool2d(before.permute({0, 3, 1, 2}), 2).permute({0, 2, 3, 1});
    check(before.dim() == 4 && before.size(1) == 3 && before.size(2) >= cell() && before.size(3) >= cell(),
          "images have shape ", before.sizes(),
          ", must be [batch, 3, height, width], with sides of at least ", cell(), " pixels");
    return input_((before * kScale + kShift).permute({0, 2, 3, 1}));
  }

  torch::Tensor run_block(int64_t stage, int64_t index, const torch::Tensor& x,
                          const Context& context) override {
    return stages_[static_cast<size_t>(stage)][static_cast<size_t>(index)]->forward(x, context);
  }

  torch::Tensor read(const torch::Tensor& x) override { return output_(torch::relu(x)).mean({1, 2}); }

 private:
  Config config_;
  torch::Tensor codebook_;
  nn::Conv2d input_{nullptr}, output_{nullptr};
  std::vector<std::vector<std::shared_ptr<CodeBlock>>> stages_;
};

}  // namespace

Family family() {
  Family family =
      make_family<Dalle, Config>("dalle", "encoder of DALL-E's discrete VAE: an image's tokens",
                                 {{"dalle_encoder", {"flava-image-codebook"}, table({{"classes", 0}})}});
  family.preprocess = table({{"size", 112},
                             {"crop", 1.0},
                             {"interpolation", "lanczos"},
                             {"mean", Value::Array{0.0, 0.0, 0.0}},
                             {"std", Value::Array{1.0, 1.0, 1.0}}});
  return family;
}

}  // namespace tessera::models::dalle
