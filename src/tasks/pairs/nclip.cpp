#include "tasks/pairs/nclip.h"

#include "nn/init.h"

namespace tessera::tasks {
namespace {

torch::Tensor at_least_float(const torch::Tensor& x) {
  return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
}

// Returns the entropy of the rows' distributions. A probability of 0 adds 0, with a finite slope.
torch::Tensor entropy(const torch::Tensor& probabilities) {
  return -(probabilities * probabilities.clamp_min(1e-30).log()).sum(-1);
}

}  // namespace

torch::Tensor NclipTerms::sum(const NclipConfig& config, int64_t count) const {
  return cross_entropy + config.sharp * mean_entropy -
         config.spread * static_cast<double>(count) * entropy_of_mean;
}

NclipTerms nclip_terms(const torch::Tensor& images, const torch::Tensor& texts, double temperature,
                       int64_t whole, Collective& others) {
  const torch::Tensor image_scores = at_least_float(images) / temperature,
                      text_scores = at_least_float(texts) / temperature;
  const torch::Tensor p = image_scores.softmax(1), q = text_scores.softmax(1);
  const torch::Tensor log_p = image_scores.log_softmax(1), log_q = text_scores.log_softmax(1);
  const torch::Tensor mean = others.sum(torch::stack({p.sum(0), q.sum(0)})) / static_cast<double>(whole);
  NclipTerms terms;
  terms.cross_entropy = -(p * log_q + q * log_p).sum() / 2;
  terms.mean_entropy = -((p * log_p).sum() + (q * log_q).sum()) / 2;
  terms.entropy_of_mean = entropy(mean).mean();
  return terms;
}

NclipHeads::NclipHeads(int64_t width, const NclipConfig& config) {
  const auto layer = [&](const char* name, int64_t from, int64_t to) {
    return register_module(name, nn::Linear(from, to));
  };
  image_ = {layer("image_fc1", width, config.hidden), layer("image_fc2", config.hidden, config.outputs)};
  text_ = {layer("text_fc1", width, config.hidden), layer("text_fc2", config.hidden, config.outputs)};
}

void NclipHeads::initialise(uint64_t seed) {
  nn::initialise(*this, seed, [](const std::string&, const torch::Tensor& parameter, const nn::Filler& fill) {
    if (parameter.dim() == 2) fill.fan_in_uniform(parameter.size(1));
  });
}

}  // namespace tessera::tasks
