// The blocks of Vision-LSTM: a norm and an mLSTM layer in one or several directions, sequential or parallel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/base/family.h"
#include "nn/mlstm.h"

namespace tessera::models {

// Settings shared by all blocks of a model.
struct VilBlockOptions {
  NormKind norm = NormKind::layer;
  bool norm_bias = true;
  nn::MlstmLayerOptions layer = {};
  int64_t window = 0;  // side of the windows that a block processes separately, 0 = the whole grid
};

// Registers a residual-scaled LayerNorm (xLSTM's), or an RMS norm.
Norm register_scaled_norm(torch::nn::Module& owner, const char* name, const VilBlockOptions& options,
                          double eps);

// One entry of `blocks`, as features() and taps count them.
class VilUnit : public torch::nn::Module {
 public:
  // Maps x [batch, grid.tokens(), dim] to the same shape.
  virtual torch::Tensor forward(const torch::Tensor& x, const nn::TokenGrid& grid,
                                const Context& context) = 0;
  // Runs one more token, x [batch, 1, dim] -> the same shape; `state` holds the layers' state, {} before the
  // first.
  virtual torch::Tensor step(const torch::Tensor& x, std::vector<torch::Tensor>& state) = 0;
  // Returns the layers inside, in the order in which they run.
  virtual std::vector<nn::MlstmLayer> layers() const = 0;
};

// x + layer(norm(x)); `index` keys the draws of drop path, `name` is the prefix of the taps' names.
class VilBlock final : public VilUnit {
 public:
  VilBlock(const VilBlockOptions& options, const std::vector<nn::Traversal>& directions, double drop_path,
           int64_t index, std::string name);
  torch::Tensor forward(const torch::Tensor& x, const nn::TokenGrid& grid, const Context& context) override;
  torch::Tensor step(const torch::Tensor& x, std::vector<torch::Tensor>& state) override;
  std::vector<nn::MlstmLayer> layers() const override { return {layer_}; }
  // Computes layer(norm(x)) with the epilogue, without the residual.
  torch::Tensor branch(const torch::Tensor& x, const nn::TokenGrid& grid, const Context& context,
                       const nn::Epilogue& epilogue);

 private:
  double drop_path_;
  int64_t index_, window_;
  std::string name_;
  Norm norm_;
  nn::MlstmLayer layer_{nullptr};
};

// Named blocks, sequential or parallel with their outputs summed.
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

// The units of a model: their number, directions and layout.
struct VilStack {
  VilBlockOptions block = {};
  int64_t depth = 0, directions = 2;
  enum class Layout { pairs, singles, parallel, in_layer } layout = Layout::pairs;
  std::vector<double> drop_path = {};  // per unit
  std::vector<int64_t> windows = {};   // per unit, as VilBlockOptions::window
};
std::vector<std::shared_ptr<VilUnit>> make_units(const VilStack& stack);

}  // namespace tessera::models
