#include "models/backbones/next_patch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "models/base/capability.h"
#include "models/base/family.h"
#include "models/base/model.h"
#include "models/base/tokeniser.h"
#include "nn/patch_embed.h"
#include "ops/gpu.h"

namespace tessera::models {

PatchPredictor::PatchPredictor(std::shared_ptr<Backbone> trunk, const ModelSpec& spec,
                               std::vector<int64_t> order, const std::string& who)
    : trunk_(std::move(trunk)),
      encoder_(&require<TokenEncoder>(*trunk_, spec.family, who)),
      causal_(&require<CausalStep>(*trunk_, spec.family, who)),
      next_(dynamic_cast<NextPatch*>(trunk_.get())),
      order_(std::move(order)) {
  if (const std::string why = causal_->next_refusal(); !why.empty())
    fail_usage(who, " predicts each patch from those before it: ", why);
  require_colours(spec.settings, who);
  const Extent image = extent_of(*spec.settings.find("image_size"), "image_size");
  patch_ = spec.settings.find("patch_size")->as_int();
  rows_ = image.height / patch_, columns_ = image.width / patch_;
  const torch::Tensor front = causal_->front_tokens();
  front_ = front.defined() ? front.size(1) : 0;
  check(static_cast<int64_t>(order_.size()) == rows_ * columns_, "an order of ", order_.size(),
        " patches, the image has ", rows_ * columns_);
  if (std::is_sorted(order_.begin(), order_.end())) return;
  index_ = torch::tensor(order_, torch::kInt64);
  // The cache needs no grid, but a pass over whole images selects tokens.
  if (const std::string why = encoder_->keep_refusal(); !next_ && !why.empty())
    fail_usage(who, " reads the patches in another order: ", why);
}

int64_t PatchPredictor::width() const { return encoder_->token_width(); }
bool PatchPredictor::has_front() const { return front_ > 0; }
bool PatchPredictor::knows_next_place() const { return next_ && next_->has_two_streams(); }

torch::Tensor PatchPredictor::before_each_patch(const torch::Tensor& images, const torch::Tensor& start,
                                                const Context& context, const torch::Tensor& orders) {
  if (knows_next_place()) return next_->two_streams(images, orders.defined() ? orders : index_).query;
  check(!orders.defined(), "this trunk does not read the place of the next patch");
  if (next_) return next_->before_each_patch(images, index_, context);
  Tokens tokens = encoder_->tokenise(images, context);
  const int64_t batch = images.size(0);
  if (index_.defined())
    tokens = encoder_->keep(tokens, index_on(images.device()).unsqueeze(0).expand({batch, -1}));
  const Encoded encoded = encoder_->encode(tokens, context);
  const torch::Tensor behind = encoded.patches_of(encoded.tokens).slice(1, 0, patches() - 1);
  const torch::Tensor first = front_ > 0 ? encoded.tokens.slice(1, front_ - 1, front_)
                                         : start.to(behind.scalar_type()).expand({batch, 1, -1});
  return torch::cat({first, behind}, 1);
}

torch::Tensor PatchPredictor::before_first(int64_t batch, const torch::Tensor& start, Cache& cache) {
  std::vector<int64_t> places(static_cast<size_t>(front_));
  std::iota(places.begin(), places.end(), int64_t{0});
  for (const int64_t patch : order_) places.push_back(front_ + patch);
  cache = causal_->start_at(batch, std::move(places));
  if (front_ == 0)
    return knows_next_place() ? next_->query_step(order_.front(), cache) : start.expand({batch, 1, -1});
  const torch::Tensor front = causal_->front_tokens().expand({batch, -1, -1});
  torch::Tensor z;
  for (int64_t i = 0; i < front_; ++i) z = causal_->step(front.slice(1, i, i + 1), cache);
  return knows_next_place() ? next_->query_step(order_.front(), cache) : z;
}

torch::Tensor PatchPredictor::before_next(const torch::Tensor& pixels, Cache& cache) {
  const torch::Tensor image = pixels.view({-1, patch_, patch_, 3}).permute({0, 3, 1, 2}).contiguous();
  return after(causal_->embed_patches(image), cache);
}

torch::Tensor PatchPredictor::before_next_token(const torch::Tensor& tokens, Cache& cache) {
  const auto* reader = dynamic_cast<const ReadsTokens*>(trunk_.get());
  check(reader != nullptr, "this trunk reads no tokens");
  return after(reader->embed_tokens(tokens), cache);
}

torch::Tensor PatchPredictor::after(const torch::Tensor& embedded, Cache& cache) {
  const torch::Tensor z = causal_->step(embedded, cache);
  return knows_next_place() ? next_->query_step(order_[static_cast<size_t>(cache.tokens - front_)], cache)
                            : z;
}

torch::Tensor PatchPredictor::index_on(torch::Device device) const { return ops::kept_on(device, index_); }

torch::Tensor PatchPredictor::in_order(const torch::Tensor& images, const torch::Tensor& orders) const {
  return arranged(nn::patchify(images, patch_), orders);
}

torch::Tensor PatchPredictor::arranged(const torch::Tensor& raster, const torch::Tensor& orders) const {
  if (orders.defined()) {
    torch::Tensor index = orders.to(raster.device());
    while (index.dim() < raster.dim()) index = index.unsqueeze(-1);
    return raster.gather(1, index.expand_as(raster));
  }
  return index_.defined() ? raster.index_select(1, index_on(raster.device())) : raster;
}

torch::Tensor PatchPredictor::in_raster(const torch::Tensor& rows, const torch::Tensor& orders) const {
  if (orders.defined()) {
    torch::Tensor index = orders.to(rows.device());
    while (index.dim() < rows.dim()) index = index.unsqueeze(-1);
    return torch::empty_like(rows).scatter_(1, index.expand_as(rows), rows);
  }
  return index_.defined() ? torch::empty_like(rows).index_copy_(1, index_on(rows.device()), rows) : rows;
}

torch::Tensor PatchPredictor::to_images(const torch::Tensor& pixels, const torch::Tensor& orders) const {
  return in_raster(pixels, orders)
      .reshape({pixels.size(0), rows_, columns_, patch_, patch_, 3})
      .permute({0, 5, 1, 3, 2, 4})
      .reshape({pixels.size(0), 3, rows_ * patch_, columns_ * patch_});
}

torch::Tensor reverse_step(PatchDecoder& decoder, const PatchDecoder::Condition& condition,
                           const torch::Tensor& x, double gamma, double next, bool predicts_noise,
                           const torch::Tensor& noise) {
  const torch::Tensor level = torch::full({x.size(0), 1, 1}, gamma, x.options());
  torch::Tensor clean = decoder.denoise(condition, x, level).to(x.scalar_type());
  if (predicts_noise) clean = (x - std::sqrt(1 - gamma) * clean) / std::sqrt(gamma);
  const double alpha = gamma / next, variance = (1 - next) * (1 - alpha) / (1 - gamma);
  const torch::Tensor mean =
      std::sqrt(alpha) * (1 - next) / (1 - gamma) * x + std::sqrt(next) * (1 - alpha) / (1 - gamma) * clean;
  return noise.defined() ? mean + std::sqrt(variance) * noise : mean;
}

torch::Tensor draw_patch(PatchDecoder& decoder, const torch::Tensor& z, const PatchSampling& sampling,
                         int64_t index, const PatchNoise& noise) {
  if (sampling.gammas.empty()) return decoder.forward(z).squeeze(1);
  const auto condition = decoder.condition(z);
  const auto steps = static_cast<int64_t>(sampling.gammas.size()) - 1;
  torch::Tensor x = noise(index, steps).unsqueeze(1);
  for (int64_t s = steps; s > 0; --s)
    x = reverse_step(decoder, *condition, x, sampling.gammas[static_cast<size_t>(s)],
                     sampling.gammas[static_cast<size_t>(s - 1)], sampling.predicts_noise,
                     s > 1 ? noise(index, s - 1).unsqueeze(1) : torch::Tensor());
  return x.squeeze(1);
}

namespace {

void go_on(const std::function<bool(int64_t done)>& progress, int64_t patches) {
  if (progress && !progress(patches))
    throw Error(ErrorKind::interrupted, text("interrupted after ", patches, " patches"));
}

}  // namespace

torch::Tensor draw_patches(PatchPredictor& predictor, PatchDecoder& decoder, const torch::Tensor& given,
                           int64_t known, const PatchSampling& sampling, const PatchNoise& noise) {
  const torch::NoGradGuard no_grad;
  Cache cache;
  std::vector<torch::Tensor> patches;
  torch::Tensor z = predictor.before_first(given.size(0), decoder.start(), cache);
  for (int64_t t = 0; t < predictor.patches(); ++t) {
    patches.push_back(t < known ? given.select(1, t)
                                : draw_patch(decoder, z, sampling, t, noise).to(given.scalar_type()));
    go_on(sampling.progress, t + 1);
    if (t + 1 < predictor.patches()) z = predictor.before_next(patches.back(), cache);
  }
  return torch::stack(patches, 1);
}

torch::Tensor draw_tokens(PatchPredictor& predictor, PatchDecoder& decoder, const torch::Tensor& given,
                          int64_t known, const ChooseTokens& choose,
                          const std::function<bool(int64_t done)>& progress) {
  const torch::NoGradGuard no_grad;
  Cache cache;
  std::vector<torch::Tensor> tokens;
  torch::Tensor z = predictor.before_first(given.size(0), decoder.start(), cache);
  for (int64_t t = 0; t < predictor.patches(); ++t) {
    tokens.push_back(t < known ? given.select(1, t) : choose(t, decoder.forward(z).squeeze(1)));
    go_on(progress, t + 1);
    if (t + 1 < predictor.patches()) z = predictor.before_next_token(tokens.back(), cache);
  }
  return torch::stack(tokens, 1);
}

}  // namespace tessera::models
