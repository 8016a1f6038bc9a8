#include "tasks/pairs/view_contrast.h"

#include "models/pairs/two_tower.h"
#include "nn/init.h"
#include "tasks/pairs/pair_loss.h"

namespace tessera::tasks {

ViewHead::ViewHead(int64_t width, const ViewConfig& config) {
  const auto layer = [&](const char* name, int64_t from, int64_t to) {
    return register_module(name, nn::Linear(from, to, true));
  };
  layer1_ = layer("layer1", width, config.hidden);
  bn1_ = register_module(
      "bn1", std::make_shared<WholeBatchNorm>(config.hidden, WholeBatchNorm::Options{.running = false}));
  layer2_ = layer("layer2", config.hidden, config.hidden);
  bn2_ = register_module(
      "bn2", std::make_shared<WholeBatchNorm>(config.hidden, WholeBatchNorm::Options{.running = false}));
  layer3_ = layer("layer3", config.hidden, config.dim);
}

void ViewHead::initialise(uint64_t seed) {
  nn::initialise(*this, seed, [](const std::string&, const torch::Tensor& parameter, const nn::Filler& fill) {
    if (parameter.dim() == 2) fill.fan_in_uniform(parameter.size(1));
  });
}

torch::Tensor ViewHead::forward(const torch::Tensor& x, int64_t whole, Collective& others) {
  const torch::Tensor first = bn1_->forward(layer1_->forward(x), whole, others).relu();
  const torch::Tensor second = bn2_->forward(layer2_->forward(first), whole, others).relu();
  return models::normalised_rows(layer3_->forward(second));
}

int64_t ViewHead::macs() const { return layer1_->macs() + layer2_->macs() + layer3_->macs(); }

ViewLoss view_contrast(const torch::Tensor& a, const torch::Tensor& b, double temperature, int64_t first,
                       int64_t chunk, Collective& others) {
  const torch::Tensor own = torch::arange(a.size(0), torch::TensorOptions(torch::kInt64).device(a.device()));
  // A view is not compared with itself, which is the only key with the query's id.
  const torch::Tensor images = first + own;
  const PairOptions options{.equal = EqualPairs::ignored,
                            .query_groups = images,
                            .key_groups = torch::cat({-1 - images, images}),
                            .chunk = chunk,
                            .others = &others};
  const torch::Tensor scale = torch::full({}, 1 / temperature, a.options().requires_grad(false));
  const PairLoss of_a = softmax_pairs(a, torch::cat({b, a}), scale, own, options),
                 of_b = softmax_pairs(b, torch::cat({a, b}), scale, own, options);
  return {(of_a.sum + of_b.sum) / 2, of_a.right};
}

}  // namespace tessera::tasks
