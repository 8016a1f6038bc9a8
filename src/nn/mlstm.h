// The layers of Vision-LSTM around the mLSTM cell.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/context.h"
#include "nn/init.h"
#include "nn/layer_division.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/mlstm_mixer.h"

namespace tessera::nn {

// A block-diagonal linear map: weight [width / block, block, block].
class HeadwiseLinearImpl : public torch::nn::Module {
 public:
  HeadwiseLinearImpl(int64_t width, int64_t block, bool with_bias);
  torch::Tensor forward(const torch::Tensor& x) const;
  torch::Tensor weight, bias;
};
TORCH_MODULE(HeadwiseLinear);

// Gates from [q, k, v], the cell, a norm per head. Parameters igate, fgate, outnorm.
class MlstmCellImpl : public torch::nn::Module {
 public:
  // `gate_width`: inputs of each gate.
  MlstmCellImpl(int64_t width, int64_t heads, bool norm_bias, int64_t gate_width);
  // [batch, tokens, width] each -> the same; for gates that read q, k and v.
  torch::Tensor forward(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) const;
  Linear igate{nullptr}, fgate{nullptr};
  LayerNorm outnorm{nullptr};

 private:
  int64_t heads_;
};
TORCH_MODULE(MlstmCell);

// An order in which the tokens of an image are visited: along rows from the top left, modified by these
// options.
struct Traversal {
  bool columns = false;      // column by column instead of row by row
  bool mirrored = false;     // from the right instead of from the left
  bool reversed = false;     // the same path from its end
  std::string name() const;  // "rowwise_from_top_left", "colwise_from_bot_right", …
};
// The first 1, 2, 4 or 8 of: rows, rows reversed, columns, columns reversed, and those four mirrored
// (Vision-LSTM, Figure 4: uni-, bi-, quad- and oct-directional).
std::vector<Traversal> traversals(int64_t count);

// The tokens of an image in row-major order, and the ascending positions of other tokens (class tokens).
struct TokenGrid {
  int64_t rows = 0, columns = 0;
  std::vector<int64_t> off_grid = {};
  int64_t tokens() const { return rows * columns + static_cast<int64_t>(off_grid.size()); }
};

// The depthwise convolution before q and k: none, over the grid, over the sequence in both directions, or
// causal over the sequence.
enum class MlstmConv { grid, sequence, causal, none };

struct MlstmLayerOptions {
  int64_t width = 192, inner = 384, heads = 4, block = 4;
  MlstmConv conv = MlstmConv::grid;
  std::string conv_name = "conv";  // name of the convolution in the published code
  int64_t kernel = 3;
  bool proj_bias = true, norm_bias = true, conv_bias = true, skip = true;
  bool paper_cell = false;  // ops/mlstm_mixer.h
  bool share_conv = true;   // one convolution for all readers, else "<conv_name>_k" and "_v" in addition
  bool value_conv = false;  // v reads the convolution too
  // Directions have separate convolution, q, k, v, cell and skip, or share them; outputs are summed.
  std::vector<Traversal> directions = {{}};
  bool share_directions = false;
  double init_values = 0;  // initial value of layerscale.gamma, a factor on the output; 0 = none
};

// The whole layer: proj_up, the mixer of ops/mlstm_mixer.h in each direction, proj_down. As in the training
// source, the parameters of the second direction end in "_rev", of others in "_du", "_ud", "_mirror", ….
class MlstmLayerImpl : public torch::nn::Module, public DividedLayer {
 public:
  explicit MlstmLayerImpl(const MlstmLayerOptions& options);
  // x [batch, grid.tokens(), width] -> the same. Taps receive the state after the last token:
  // "<name>.state.c", ".n" and ".m" (ops/mlstm.h), and "<name>.state_rev.c" and so on for other directions.
  torch::Tensor forward(const DeferredNorm& x, const TokenGrid& grid, const Epilogue& epilogue = {},
                        Taps* taps = nullptr, const std::string& name = {});
  // One more token, x [batch, 1, width] -> the same, after the tokens in `state`. The layer must have one
  // direction, along rows from the top left, and a causal convolution or none.
  torch::Tensor step(const DeferredNorm& x, ops::MlstmMixerState& state, const Epilogue& epilogue = {});
  // The linear maps and convolutions for one token.
  int64_t macs_per_token() const;
  const MlstmLayerOptions& options() const { return options_; }
  // Heads; 1 if a head's channels are not whole blocks of q, k and v.
  int64_t most_shares() const override {
    return options_.inner / options_.heads % options_.block == 0 ? options_.heads : 1;
  }

 private:
  struct Convolution : torch::nn::Module {
    torch::Tensor weight, bias;
  };
  struct Branch {
    Traversal direction;
    HeadwiseLinear q{nullptr}, k{nullptr}, v{nullptr};
    // Modules with their parameters; null without a (separate) convolution.
    std::shared_ptr<Convolution> conv = nullptr, k_conv = nullptr, v_conv = nullptr;
    MlstmCell cell{nullptr};
    torch::Tensor skip = {};  // may be undefined
  };
  void add_branch(const Traversal& direction, const std::string& suffix);
  std::shared_ptr<Convolution> make_convolution(const std::string& name);
  static ops::MlstmMixerParameters parameters_of(const Branch& branch);
  // `last` receives the state after the last token, unless null.
  torch::Tensor mix(const Branch& branch, const torch::Tensor& u, const TokenGrid& grid,
                    ops::MlstmState* last) const;
  // Mixes the channels of this process's heads, u [batch, tokens, 2 * channels].
  torch::Tensor mix_share(const Branch& branch, const torch::Tensor& u, const TokenGrid& grid,
                          const LayerDivision& division) const;
  static torch::Tensor walk(const Traversal& direction, const torch::Tensor& u, const TokenGrid& grid,
                            const ops::MlstmMixerParameters& parameters,
                            const ops::MlstmMixerOptions& options);
  torch::Tensor forward_share(const torch::Tensor& x, const TokenGrid& grid, const Epilogue& epilogue,
                              const LayerDivision& division) const;
  Share channels_of(const Share& heads) const { return heads.channels(options_.inner / options_.heads); }

  MlstmLayerOptions options_;
  Linear proj_up_{nullptr}, proj_down_{nullptr};
  std::vector<Branch> branches_;
  torch::Tensor gamma_;  // may be undefined
};
TORCH_MODULE(MlstmLayer);

// Initialises one parameter of a layer, by its name inside the layer ("proj_up.weight"), like the published
// code. Returns false if the parameter is not randomly initialised.
bool initialise_mlstm_layer(const std::string& name, const Filler& fill, const MlstmLayerOptions& options);

}  // namespace tessera::nn
