#include "models/pairs/bert_tower.h"

#include <cmath>

#include "core/error.h"
#include "nn/init.h"

namespace tessera::models {

BertTower::BertTower(const BertTowerConfig& config) : config_(config) {
  if (config.context_length > config.bert.context)
    fail_usage("texts of ", config.context_length, " tokens are longer than the ", config.bert.context,
               " positions of BERT");
  bert_ = register_module("encoder", std::make_shared<Bert>(config.bert));
  if (config.embed_dim > 0)
    text_projection_ = register_module("text_projection",
                                       nn::Linear(config.bert.dim, config.embed_dim, config.projection_bias));
}

void BertTower::initialise(uint64_t seed) {
  bert_->initialise(seed);
  nn::initialise(*this, seed, [&](const std::string& name, const torch::Tensor&, const nn::Filler& fill) {
    if (name == "text_projection.weight") fill.normal(1 / std::sqrt(static_cast<double>(config_.bert.dim)));
  });
}

torch::Tensor BertTower::encode(const torch::Tensor& ids, const torch::Tensor& seen, const Context&) {
  check(ids.dim() == 2 && ids.size(1) <= config_.context_length, "texts of ", ids.sizes(),
        " tokens, must be [batch, at most ", config_.context_length, "]");
  return bert_->hidden({.ids = ids.to(torch::kInt64), .mask = seen.defined() ? seen : text_places(ids)});
}

torch::Tensor BertTower::read(const torch::Tensor& tokens, const torch::Tensor&) const {
  return project(tokens.select(1, 0));
}

torch::Tensor BertTower::forward(const torch::Tensor& ids, const Context& context) {
  return read(encode(ids, {}, context), ids);
}

int64_t BertTower::macs() const {
  return bert_->macs(config_.context_length) + (text_projection_ ? text_projection_->macs() : 0);
}

}  // namespace tessera::models
