// Vision-LSTM (Alkin et al. 2024, "Vision-LSTM: xLSTM as generic vision backbone"). To be read in the order of the
// paper: blocks.h (section 3: the mLSTM layer and its directions), config.h (ablations), this model, then the
// published versions with their sizes in version2.cpp and version1.cpp. The versions differ in the layout of their
// blocks and the order of their last norms.
//
//   x = patches W + positions, with class tokens among them if the head reads those
//   x' = x + layer(norm(x))                              alternating: each block has its own direction
//   x' = x + sum over directions of layer_d(norm_d(x))   parallel (Vision-LSTM, eq. 15)
//   x' = x + layer(norm(x)), the layer summing its directions    in_layer (the training source)
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/backbones/vil/blocks.h"
#include "models/backbones/vil/config.h"
#include "models/base/capability.h"
#include "models/base/causal_backbone.h"
#include "models/base/patch_mask.h"
#include "nn/patch_embed.h"

namespace tessera::models {

// The differences between the published codes of the two versions.
struct VilVersion {
  bool pairs;                 // blocks.N is a pair, named by direction; else it is one block
  const char* conv_name;      // name of the convolution's module
  const char* token_norm;     // norm of all tokens after the last block: residual scale, biases as norm_bias
  const char* read_norm;      // norm of the vector that the head reads: plain, with bias
  bool token_norm_is_legacy;  // the norm that legacy_norm = false removes
  double token_eps, read_eps;
};

class VilBackbone : public CausalBackbone, public MlstmCells, public MasksPatches {
 public:
  VilBackbone(const VilConfig& config, const VilVersion& version);

  int64_t embed_width() const override { return config_.read_width(); }
  int64_t token_width() const override { return config_.dim; }
  int64_t mask_width() const override { return config_.dim; }
  int64_t map_stride() const override { return config_.stride > 0 ? config_.stride : config_.patch_size; }
  int64_t map_width() const override { return config_.dim; }
  std::vector<std::string> head_names() const override;
  int64_t macs(int64_t height, int64_t width) const override;
  int64_t exact_macs(int64_t height, int64_t width) const override;
  int64_t cell_macs(MlstmForm form, int64_t height, int64_t width) const override;
  std::vector<std::string> no_weight_decay() const override { return {"pos_embed.embed", "cls_tokens"}; }
  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override;
  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override;
  Tokens tokenise(const torch::Tensor& images, const Context& context) override;
  std::string keep_refusal() const override;
  std::string step_refusal() const override;
  std::string next_refusal() const override;
  torch::Tensor embed_patches(const torch::Tensor& images) const override;
  torch::Tensor front_tokens() const override;
  // Returns the output of the published class in mode "features": all tokens after both last norms, [batch,
  // tokens, dim], or with pooling "to_image" a map [batch, dim, rows, columns]. Fails in mode "classifier".
  torch::Tensor published_features(const torch::Tensor& images, const Context& context = {});

 protected:
  torch::Tensor last_map(const torch::Tensor& images, bool normed, const Context& context) override {
    return last_map_of(*this, images, normed, context);
  }
  int64_t sequence_length() const override { return built_places().count(); }
  torch::Tensor position_at(int64_t place) const override;
  torch::Tensor step_block(int64_t index, const torch::Tensor& x, int64_t place,
                           std::vector<torch::Tensor>& state) override;
  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override;
  torch::Tensor norm_tokens(const torch::Tensor& last) override;
  torch::Tensor read(const torch::Tensor& last, const TokenPlaces& places, const Context& context) override;

 private:
  struct PositionTable : torch::nn::Module {
    torch::Tensor embed;  // [1, rows, columns, dim]
  };
  void make_norms(const VilVersion& version);
  // Counts multiply-adds with a cell that costs `cell(tokens)` in each direction.
  int64_t count_macs(int64_t height, int64_t width, const std::function<double(double tokens)>& cell) const;
  double exact_cell(MlstmForm form, double tokens) const;  // settings of one direction of a layer
  nn::TokenGrid grid_of(const TokenPlaces& places) const;
  TokenPlaces built_places() const;                                   // for an image of image_size
  torch::Tensor position_table(int64_t rows, int64_t columns) const;  // [rows, columns, dim]

  VilConfig config_;
  nn::MlstmLayerOptions layer_;  // settings shared by all layers, apart from their directions
  int64_t rows_ = 0, columns_ = 0;
  nn::PatchEmbed patch_embed_{nullptr};
  std::shared_ptr<PositionTable> pos_embed_;
  torch::Tensor cls_tokens_;  // [1, number, dim]
  std::vector<std::shared_ptr<VilUnit>> units_;
  Norm token_norm_, read_norm_;
};

}  // namespace tessera::models
