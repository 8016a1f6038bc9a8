// Images and texts in one space: CLIP (Radford et al. 2021) and SigLIP (Zhai et al. 2023), with any image
// backbone.
//
//   u = backbone(image) W_image            v = text tower(caption)
//   logits = exp(logit_scale) u' v'^T + logit_bias, u' and v' of length 1; the bias is SigLIP's
//
// Parameters have OpenCLIP's names for timm towers: visual.trunk.* (the backbone, a separate module),
// visual.head.proj, text.*, logit_scale, logit_bias. Other published names: weights/names/tower_names.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "models/base/model.h"
#include "models/pairs/bert_tower.h"
#include "models/pairs/text_tower.h"
#include "nn/linear.h"

namespace tessera::models {

inline constexpr const char* kImageTower = "visual.trunk.";  // prefix of the backbone's names

struct TwoTowerConfig {
  TextTowerConfig text;
  int64_t image_width = 0;       // width of the backbone's vector
  int64_t embed_dim = 512;       // width of the shared space
  bool image_projection = true;  // without it, the backbone's vector must have width embed_dim
  bool text_projection = true;   // without it the text tower must be
  bool logit_bias = false;
  std::optional<BertConfig> bert =
      {};  // the text tower is a BERT; of `text` only context length and padding count
  double first_scale = 1 / 0.07, first_bias = -10;  // initial exp(logit_scale) and logit_bias
};

// All parts except the backbone.
class TwoTower final : public torch::nn::Module {
 public:
  explicit TwoTower(const TwoTowerConfig& config);
  void initialise(uint64_t seed);

  // Maps the backbone's vector [batch, image_width] or tokens [batch, tokens, image_width] to [batch, …,
  // embed_dim], not normalised.
  torch::Tensor image(const torch::Tensor& embedded) const {
    return proj_ ? proj_->forward(embedded) : embedded;
  }
  // Maps ids [batch, tokens] to [batch, embed_dim], not normalised.
  torch::Tensor text(const torch::Tensor& ids, const Context& context = {}) {
    return text_->forward(ids, context);
  }

  // Maps ids [batch, tokens] to the vectors of all tokens in the space, [batch, tokens, embed_dim], not
  // normalised.
  torch::Tensor text_tokens(const torch::Tensor& ids, const Context& context = {}) {
    return text_->project(text_->encode(ids, {}, context));
  }

  // Returns the factor on cosines: exp(logit_scale), a scalar with its graph.
  torch::Tensor scale() const { return logit_scale.exp(); }
  TextEncoder& text_tower() { return *text_; }
  int64_t macs() const { return text_->macs() + (proj_ ? proj_->macs() : 0); }
  // Clamps exp(logit_scale) to 1 … 100; called after every step (Radford et al. 2021, section 2.5).
  void bound_scale();

  torch::Tensor logit_scale, logit_bias;  // scalars; the bias is undefined if there is none

 private:
  TwoTowerConfig config_;
  nn::Linear proj_{nullptr};
  std::shared_ptr<TextEncoder> text_;
};

// Scales the rows to length 1.
torch::Tensor normalised_rows(const torch::Tensor& x);

}  // namespace tessera::models
