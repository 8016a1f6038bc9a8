#include "models/heads/dvae_decoder.h"

#include <cmath>
#include <numeric>

#include "core/error.h"
#include "nn/init.h"

namespace tessera::models {
namespace {

constexpr int64_t kNarrowing = 4;  // width of a block over that of its inner convolutions

// Repeats every cell as 2 x 2 cells.
torch::Tensor doubled(const torch::Tensor& x) { return x.repeat_interleave(2, 1).repeat_interleave(2, 2); }

nn::Conv2dOptions layer(int64_t in, int64_t out, int64_t kernel) {
  return {.in = in, .out = out, .kernel = kernel, .padding = kernel / 2, .bias = true};
}

}  // namespace

class DvaeDecoder::Block final : public torch::nn::Module {
 public:
  Block(int64_t in, int64_t out, double gain) : gain_(gain) {
    if (in != out) id_ = register_module("id_path", nn::Conv2d(layer(in, out, 1)));
    const auto path = register_module("res_path", std::make_shared<torch::nn::Module>())
                          ->register_module("path", std::make_shared<torch::nn::Module>());
    const int64_t inner = out / kNarrowing;
    for (int64_t i = 1; i <= 4; ++i)
      convs_.push_back(path->register_module(
          text("conv_", i), nn::Conv2d(layer(i == 1 ? in : inner, i == 4 ? out : inner, i == 1 ? 1 : 3))));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor h = torch::relu(x);
    for (size_t i = 0; i < convs_.size(); ++i) h = convs_[i]->forward(h, {.relu = i + 1 < convs_.size()});
    return (id_ ? id_(x) : x) + h * gain_;
  }

  int64_t macs() const {  // per cell
    int64_t total = id_ ? id_->macs() : 0;
    for (const nn::Conv2d& conv : convs_) total += conv->macs();
    return total;
  }

 private:
  double gain_;
  nn::Conv2d id_{nullptr};
  std::vector<nn::Conv2d> convs_;
};

DvaeDecoder::DvaeDecoder(const DvaeDecoderOptions& options) : options_(options) {
  check(!options.dims.empty() && options.dims.size() == options.depths.size(),
        "a decoder needs a width and a number of blocks for each group");
  if (options.codes > 0)
    codebook_ = register_parameter("codebook", nn::zeros({options.codes, options.code_width}));
  const auto blocks = register_module("blocks", std::make_shared<torch::nn::Module>());
  input_ = blocks->register_module("input", nn::Conv2d(layer(options.code_width, options.code_width, 1)));
  const auto total =
      static_cast<double>(std::accumulate(options.depths.begin(), options.depths.end(), int64_t{0}));
  int64_t in = options.code_width;
  for (size_t g = 0; g < options.dims.size(); ++g) {
    const auto group = blocks->register_module(text("group_", g + 1), std::make_shared<torch::nn::Module>())
                           ->register_module("group", std::make_shared<torch::nn::Module>());
    groups_.emplace_back();
    for (int64_t i = 0; i < options.depths[g]; ++i) {
      groups_.back().push_back(std::make_shared<Block>(in, options.dims[g], 1 / (total * total)));
      group->register_module(text("block_", i + 1), groups_.back().back());
      in = options.dims[g];
    }
  }
  output_ = blocks->register_module("output", std::make_shared<torch::nn::Module>())
                ->register_module("conv", nn::Conv2d(layer(in, options.outputs, 1)));
}

void DvaeDecoder::initialise(uint64_t seed) {
  nn::initialise(*this, seed,
                 [](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
                   if (name == "codebook")
                     fill.normal(1);
                   else if (parameter.dim() == 4)
                     fill.normal(1 / std::sqrt(static_cast<double>(parameter[0].numel())));
                 });
}

torch::Tensor DvaeDecoder::forward(const torch::Tensor& vectors) {
  torch::Tensor x = input_(vectors);
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (g > 0) x = doubled(x);
    for (const auto& block : groups_[g]) x = block->forward(x);
  }
  return output_(torch::relu(x));
}

torch::Tensor DvaeDecoder::mixed(const torch::Tensor& weights) const {
  return torch::matmul(weights, codebook_.to(weights.scalar_type()));
}

torch::Tensor DvaeDecoder::chosen(const torch::Tensor& index) const {
  std::vector<int64_t> shape = index.sizes().vec();
  shape.push_back(codebook_.size(1));
  return codebook_.index_select(0, index.flatten()).view(shape);
}

int64_t DvaeDecoder::macs(int64_t rows, int64_t columns) const {
  int64_t cells = rows * columns, total = cells * input_->macs();
  if (codebook_.defined()) total += cells * codebook_.numel();
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (g > 0) cells *= 4;
    for (const auto& block : groups_[g]) total += cells * block->macs();
  }
  return total + cells * output_->macs();
}

}  // namespace tessera::models
