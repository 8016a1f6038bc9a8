// The layers of Vision-LSTM around the mLSTM cell.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>

#include "nn/init.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace tessera::nn {

// A block-diagonal linear map: weight [width / block, block, block].
class HeadwiseLinearImpl : public torch::nn::Module {
 public:
  HeadwiseLinearImpl(int64_t width, int64_t block, bool with_bias);
  torch::Tensor forward(const torch::Tensor& x) const;
  torch::Tensor weight, bias;
};
TORCH_MODULE(HeadwiseLinear);

// Gates from [q, k, v], the cell, a norm a head. Parameters igate, fgate, outnorm.
class MlstmCellImpl : public torch::nn::Module {
 public:
  MlstmCellImpl(int64_t width, int64_t heads, bool norm_bias);
  // [batch, tokens, width] each -> the same.
  torch::Tensor forward(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) const;
  int64_t heads() const { return heads_; }
  Linear igate{nullptr}, fgate{nullptr};
  LayerNorm outnorm{nullptr};

 private:
  int64_t heads_;
};
TORCH_MODULE(MlstmCell);

struct MlstmLayerOptions {
  int64_t width = 192, heads = 4, block = 4, expansion = 2;
  std::string conv = "2d";  // "2d" or "causal1d"
  int64_t kernel = 3;
  bool proj_bias = true, norm_bias = true;
};

// The whole layer: proj_up, the mixer of ops/mlstm_mixer.h, proj_down.
class MlstmLayerImpl : public torch::nn::Module {
 public:
  explicit MlstmLayerImpl(const MlstmLayerOptions& options);
  // x [batch, rows * columns, width]; `reverse` walks the tokens from last to first.
  torch::Tensor forward(const torch::Tensor& x, int64_t rows, int64_t columns, bool reverse,
                        const Tail& tail = {});
  // Linear maps and convolution of one token.
  int64_t macs_per_token() const;
  int64_t inner() const { return options_.width * options_.expansion; }
  const MlstmLayerOptions& options() const { return options_; }

 private:
  struct Convolution : torch::nn::Module {
    torch::Tensor weight, bias;
  };
  MlstmLayerOptions options_;
  Linear proj_up_{nullptr}, proj_down_{nullptr};
  HeadwiseLinear q_proj_{nullptr}, k_proj_{nullptr}, v_proj_{nullptr};
  std::shared_ptr<Convolution> conv_;  // where the parameters are: `conv`, or `conv.conv` for the causal form
  MlstmCell cell_{nullptr};
  torch::Tensor skip_;
};
TORCH_MODULE(MlstmLayer);

// First values of one parameter of a layer, by its name inside the layer ("proj_up.weight"), as the published
// code draws them; false if the name is not one of the layer's random ones.
bool initialise_mlstm_layer(const std::string& name, const Filler& fill, const MlstmLayerOptions& options);

}  // namespace tessera::nn
