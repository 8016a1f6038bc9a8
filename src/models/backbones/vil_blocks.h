// The blocks of Vision-LSTM: a norm and an mLSTM layer in one direction or several, one after the other or
// side by side.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/base/family.h"
#include "nn/mlstm.h"

namespace tessera::models {

// Settings that all blocks of a model have in common.
struct VilBlockOptions {
  NormKind norm = NormKind::layer;
  bool norm_bias = true;
  nn::MlstmLayerOptions layer = {};
  int64_t window = 0;  // side of the windows that a block reads one by one, 0 = the whole grid
};

// A residual-scaled LayerNorm (xLSTM's), or an RMS norm.
Norm register_scaled_norm(torch::nn::Module& owner, const char* name, const VilBlockOptions& options,
                          double eps);

// One entry of `blocks`: what features() and taps can name.
class VilUnit : public torch::nn::Module {
 public:
  // x [batch, grid.tokens(), dim] -> the same.
  virtual torch::Tensor forward(const torch::Tensor& x, const nn::TokenGrid& grid,
                                const Context& context) = 0;
  // One token more, x [batch, 1, dim] -> the same; `state` holds that of the layers, {} before the first.
  virtual torch::Tensor step(const torch::Tensor& x, std::vector<torch::Tensor>& state) = 0;
  // The layers inside, in the order in which they run.
  virtual std::vector<nn::MlstmLayer> layers() const = 0;
};

// x + layer(norm(x)); `index` keys the draws of drop path, `name` stands before the names of taps.
class VilBlock final : public VilUnit {
 public:
  VilBlock(const VilBlockOptions& options, const std::vector<nn::Traversal>& directions, double drop_path,
           int64_t index, std::string name);
  torch::Tensor forward(const torch::Tensor& x, const nn::TokenGrid& grid, const Context& context) override;
  torch::Tensor step(const torch::Tensor& x, std::vector<torch::Tensor>& state) override;
  std::vector<nn::MlstmLayer> layers() const override { return {layer_}; }
  // layer(norm(x)) with the epilogue alone.
  torch::Tensor branch(const torch::Tensor& x, const nn::TokenGrid& grid, const Context& context,
                       const nn::Epilogue& epilogue);

 private:
  double drop_path_;
  int64_t index_, window_;
  std::string name_;
  Norm norm_;
  nn::MlstmLayer layer_{nullptr};
};

// Blocks by their names, one after the other, or side by side with their outputs summed.
class VilGroup final : public VilUnit {
 public:
  using Named = std::vector<std::pair<std::string, std::shared_ptr<VilBlock>>>;
  VilGroup(const Named& blocks, bool parallel, double drop_path, int64_t index);
  torch::Tensor forward(const torch::Tensor& x, const nn::TokenGrid& grid, const Context& context) override;
  torch::Tensor step(const torch::Tensor& x, std::vector<torch::Tensor>& state) override;
  std::vector<nn::MlstmLayer> layers() const override;

 private:
  bool parallel_;
  double drop_path_;
  int64_t index_;
  std::vector<std::shared_ptr<VilBlock>> blocks_;
};

// All units of a model: how many, in which directions, side by side or not.
struct VilStack {
  VilBlockOptions block = {};
  int64_t depth = 0, directions = 2;
  enum class Layout { pairs, singles, parallel, in_layer } layout = Layout::pairs;
  std::vector<double> drop_path = {};  // of each unit
  std::vector<int64_t> windows = {};   // of each unit, as VilBlockOptions::window
};
std::vector<std::shared_ptr<VilUnit>> make_units(const VilStack& stack);

}  // namespace tessera::models
