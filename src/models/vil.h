// What the two versions of Vision-LSTM share: everything but the layout of their blocks and the order of
// their last norms. The families are in vil.cpp and vil1.cpp.
//
//   x = patches W + positions
//   x' = x + layer(norm(x))                  alternating: each block walks its own way (nn/mlstm.h,
//   Traversal) x' = x + sum over directions of layer_d(norm_d(x))         parallel (Vision-LSTM, eq. 15) x' =
//   x + layer(norm(x)), the layer summing its directions   in_layer (the training source)
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/family.h"
#include "models/isotropic.h"
#include "nn/mlstm.h"
#include "nn/patch_embed.h"

namespace tessera::models {

struct VilConfig : IsotropicSettings {
  int64_t stride = 0, inner_multiple = 1;
  std::string mode = "classifier", pooling = "bilateral_flatten";
  std::string directions = "bi", traversal = "alternating";
  bool positions = true, legacy_norm = true;
  std::string norm = "layer", norm_eps = "published", cell = "published";
  std::string conv_kind = "2d", conv_grid = "input";
  int64_t conv_kernel = 3;
  bool share_conv = true, value_conv = false, share_directions = false;
  bool skip = true, norm_bias = true, proj_bias = true, conv_bias = true;
  double init_values = 0;

  VilConfig() { heads = 4; }

  template <class V>
  void visit(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("patch_size", patch_size, "side of a patch in pixels");
    v("stride", stride, "step between patches in pixels, 0 = patch_size (no overlap)");
    v("classes", classes, "outputs of the head, 0 = no head");
    v("dim", dim, "width of a token");
    v("depth", depth,
      "vil: pairs of blocks, vil1: blocks; with traversal parallel or in_layer both: groups of all "
      "directions");
    v("heads", heads, "heads of the mLSTM cell");
    v("inner_multiple", inner_multiple, "the cell's width is 2 * dim rounded up to a multiple of this");
    v("mode", mode, "classifier, or features: tokens (pooling none) or a map (to_image)");
    v("pooling", pooling,
      "Table 5: bilateral_flatten (first and last token side by side), bilateral_avg, mean, center_mean (the "
      "four patches in the middle), middle; or class tokens, side by side: cls_first, cls_last, "
      "cls_bilateral, "
      "cls_middle, cls_middle_bilateral; or for mode features none, to_image");
    v("directions", directions, "uni, bi, quad or oct (Figure 4)");
    v("traversal", traversal,
      "alternating (one direction a block), parallel (a block for each, outputs summed, eq. 15), in_layer "
      "(between one pair of projections, as the training source)");
    v("positions", positions, "learned absolute positions");
    v("legacy_norm", legacy_norm, "a second norm before the head, as in the published training");
    v("norm", norm, "layer or rms");
    v("norm_eps", norm_eps,
      "of the last two norms: published (inference code), or training (as the weights were trained)");
    v("cell", cell, "published, or paper (eq. 3 to 9: ops/mlstm_mixer.h)");
    v("conv_kind", conv_kind, "depthwise convolution before q and k: 2d, conv1d, causal1d or none (Table 4)");
    v("conv_grid", conv_grid,
      "rows of the 2d convolution: input (those of the image), or built (as the published "
      "code, those of image_size whatever the image)");
    v("conv_kernel", conv_kernel, "side of the convolution");
    v("share_conv", share_conv, "one convolution for q and k (and v), else one for each");
    v("value_conv", value_conv, "v reads the convolution too");
    v("share_directions", share_directions, "traversal in_layer: the same weights in all directions");
    v("init_values", init_values, "first values of the layer scale, 0 = none");
    v("skip", skip, "learnable skip from the convolution to the output");
    v("norm_bias", norm_bias, "biases of the norms");
    v("proj_bias", proj_bias, "biases of the projections");
    v("conv_bias", conv_bias, "bias of the convolution");
    v("drop_path", drop_path, "rate of stochastic depth");
    v("drop_path_decay", drop_path_decay,
      "from 0 at the first group of blocks to drop_path at the last, else the same for all");
  }

  bool classifies() const { return mode == "classifier"; }
  int64_t direction_count() const;
  // Where class tokens stand among `patches` patches.
  std::vector<int64_t> class_places(int64_t patches) const;
  int64_t read_width() const;
  void check() const;
};

// What the published codes of the two versions do differently.
struct VilVersion {
  bool pairs;                 // blocks.N holds two blocks by the names of their directions, else one
  const char* conv_name;      // of the convolution's module
  const char* token_norm;     // over all tokens after the last block: residual scale, biases as norm_bias
  const char* read_norm;      // over the vector that the head reads: plain, with bias
  bool token_norm_is_legacy;  // which of the two legacy_norm = false takes away
  double token_eps, read_eps;
};

// One entry of `blocks`: what features() and taps can name.
class VilUnit : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& x, const nn::TokenGrid& grid,
                                const Context& context) = 0;
  // The layers inside, in the order in which they run.
  virtual std::vector<nn::MlstmLayer> layers() const = 0;
};

class VilBackbone : public IsotropicBackbone {
 public:
  VilBackbone(const VilConfig& config, const VilVersion& version);

  torch::Tensor forward(const torch::Tensor& images, const Context& context) override;
  // Tokens in, tokens out: all blocks and the norm after them. x [batch, rows * columns, dim].
  torch::Tensor run_stack(const torch::Tensor& x, int64_t rows, int64_t columns);
  int64_t embed_width() const override { return config_.read_width(); }
  int64_t macs(int64_t height, int64_t width) const override;
  // The same with every product that is carried out, where the paper's way of counting leaves some away.
  int64_t exact_macs(int64_t height, int64_t width) const;
  void reset_head(int64_t classes) override;
  std::vector<std::string> no_weight_decay() const override { return {"pos_embed.embed", "cls_tokens"}; }
  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override;

 protected:
  Tokens start(const torch::Tensor& images, const Context& context) override;
  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override;
  torch::Tensor read(const torch::Tensor& last, const Tokens& tokens, const Context& context) override;
  torch::Tensor to_map(const torch::Tensor& x, const Tokens& tokens) const override;
  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override;

 private:
  struct PositionTable : torch::nn::Module {
    torch::Tensor embed;  // [1, rows, columns, dim]
  };
  void make_blocks(const VilVersion& version);
  void make_norms(const VilVersion& version);
  nn::MlstmLayerOptions layer_options() const;
  // Multiply-adds with a cell that costs `cell(tokens)` in each direction.
  int64_t count_macs(int64_t height, int64_t width, const std::function<double(double tokens)>& cell) const;
  nn::TokenGrid grid_of(const Tokens& tokens) const;

  VilConfig config_;
  const char* conv_name_;
  int64_t rows_ = 0, columns_ = 0;
  nn::PatchEmbed patch_embed_{nullptr};
  std::shared_ptr<PositionTable> pos_embed_;
  torch::Tensor cls_tokens_;  // [1, number, dim]
  std::vector<std::shared_ptr<VilUnit>> units_;
  Norm token_norm_, read_norm_;
};

}  // namespace tessera::models
