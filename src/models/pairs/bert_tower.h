// BERT (models/language/bert.h) as the text side of two towers, with the names of its published files below "encoder.", and
// `text_projection`.
//
//   text = text_projection(x_L[the first token, [CLS]])
#pragma once

#include "models/language/bert.h"
#include "models/pairs/text_encoder.h"

namespace tessera::models {

struct BertTowerConfig {
  BertConfig bert;
  int64_t context_length = 77;  // at most bert.context
  int64_t pad_token = 0;
  int64_t embed_dim = 512;  // width after the projection, 0 = none
  bool projection_bias = false;
};

class BertTower final : public TextEncoder {
 public:
  explicit BertTower(const BertTowerConfig& config);
  void initialise(uint64_t seed) override;
  torch::Tensor forward(const torch::Tensor& ids, const Context& context = {}) override;
  torch::Tensor encode(const torch::Tensor& ids, const torch::Tensor& seen = {},
                       const Context& context = {}) override;
  torch::Tensor read(const torch::Tensor& tokens, const torch::Tensor& ids) const override;
  torch::Tensor text_places(const torch::Tensor& ids) const override { return ids != config_.pad_token; }
  torch::Tensor project(const torch::Tensor& x) const override {
    return text_projection_ ? text_projection_->forward(x) : x;
  }
  int64_t vocabulary() const override { return config_.bert.vocabulary; }
  int64_t macs() const override;
  // For its first weights.
  Bert& bert() { return *bert_; }

 private:
  BertTowerConfig config_;
  std::shared_ptr<Bert> bert_;
  nn::Linear text_projection_{nullptr};
};

}  // namespace tessera::models
