// Turns any causal backbone into a predictor of patch after patch in a fixed order. It returns the state
// before each patch, for whole images at once or with a cache during sampling (DARL, Li, Bornschein & Chen
// 2024).
//
//   z_t = trunk([front tokens, x_o(1) ... x_o(t-1)])'s last token
//   reverse step  x' = sqrt(alpha) (1 - gamma') / (1 - gamma) x + sqrt(gamma') (1 - alpha) / (1 - gamma) x0
//                      + sqrt((1 - gamma') (1 - alpha) / (1 - gamma)) e,  alpha = gamma / gamma'   (eq. 3)
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/backbones/darl.h"
#include "models/base/causal_backbone.h"
#include "models/heads/patch_decoder.h"

namespace tessera::models {

class PatchPredictor {
 public:
  // `order` lists the grid's patches in their order of prediction, a permutation of the row-major indices.
  // Throws a usage error that starts with `who` if the model is not causal.
  PatchPredictor(std::shared_ptr<Backbone> trunk, const ModelSpec& spec, std::vector<int64_t> order,
                 const std::string& who);

  int64_t width() const;  // width of the trunk's tokens
  int64_t patches() const { return static_cast<int64_t>(order_.size()); }
  const std::vector<int64_t>& order() const { return order_; }
  int64_t patch() const { return patch_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // True if a token precedes all patches. Otherwise `start` [1, 1, width] is the state before the first
  // patch, unless the trunk reads the next position.
  bool has_front() const;
  // True if the trunk reads the next patch's position (models/backbones/darl.h): orders may then change.
  bool knows_next_place() const;

  // Maps images [batch, 3, height, width] to [batch, patches, width]: row t is the state before patch t,
  // after the trunk's last norm. Patches, here and below, are in order(), or in each sample's own order if
  // `orders` int64 [batch, patches] is defined.
  torch::Tensor before_each_patch(const torch::Tensor& images, const torch::Tensor& start,
                                  const Context& context = {}, const torch::Tensor& orders = {});
  // The same with a cache, in evaluation mode, all [batch, 1, width]: the state before the first patch, and
  // before each next one. The input is the current patch: its pixels [batch, 3 patch^2], or its tokens int64
  // [batch] if the trunk reads tokens.
  torch::Tensor before_first(int64_t batch, const torch::Tensor& start, Cache& cache);
  torch::Tensor before_next(const torch::Tensor& pixels, Cache& cache);
  torch::Tensor before_next_token(const torch::Tensor& tokens, Cache& cache);

  // Convert images to the pixels [batch, patches, 3 patch^2] of their patches in order, and back.
  torch::Tensor in_order(const torch::Tensor& images, const torch::Tensor& orders = {}) const;
  torch::Tensor to_images(const torch::Tensor& pixels, const torch::Tensor& orders = {}) const;
  // Convert rows [batch, patches, …] from raster order to their order, and back.
  torch::Tensor arranged(const torch::Tensor& raster, const torch::Tensor& orders = {}) const;
  torch::Tensor in_raster(const torch::Tensor& rows, const torch::Tensor& orders = {}) const;

 private:
  torch::Tensor after(const torch::Tensor& embedded, Cache& cache);
  std::shared_ptr<Backbone> trunk_;
  TokenEncoder* encoder_;
  CausalStep* causal_;
  NextPatch* next_;  // a trunk with a separate pass for this, or null
  std::vector<int64_t> order_;
  torch::Tensor index_on(torch::Device device) const;

  torch::Tensor index_;  // the order as a tensor; undefined for raster order
  int64_t patch_ = 0, rows_ = 0, columns_ = 0, front_ = 0;
};

// Sampling of patches from a denoising decoder: noise levels gammas[0] = 1 (clean) to gammas[T].
struct PatchSampling {
  std::vector<double> gammas = {};  // empty: the decoder predicts the patch itself
  bool predicts_noise = false;
  // Called after every patch with the number done; false ends with ErrorKind::interrupted.
  std::function<bool(int64_t done)> progress = {};
};
// Returns the random draws for patch t in sequence order, each [batch, 3 patch^2]: its initial value for step
// T, then the noise of steps T ... 1 as step - 1.
using PatchNoise = std::function<torch::Tensor(int64_t patch, int64_t step)>;

// Runs one step of a reverse chain from noise level gamma to `next`: x [batch, 1, 3 patch^2] -> the same
// shape. `noise` of that shape is scaled by the posterior's deviation and added; undefined = none.
torch::Tensor reverse_step(PatchDecoder& decoder, const PatchDecoder::Condition& condition,
                           const torch::Tensor& x, double gamma, double next, bool predicts_noise,
                           const torch::Tensor& noise);
// Samples patch `index` from z [batch, 1, width]: [batch, 3 patch^2].
torch::Tensor draw_patch(PatchDecoder& decoder, const torch::Tensor& z, const PatchSampling& sampling,
                         int64_t index, const PatchNoise& noise);

// Samples whole images, patch by patch with a cache. The first `known` patches of order() are copied from
// `given` [batch, patches, 3 patch^2], in sequence order; the others are sampled. Returns the same shape and
// order.
torch::Tensor draw_patches(PatchPredictor& predictor, PatchDecoder& decoder, const torch::Tensor& given,
                           int64_t known, const PatchSampling& sampling, const PatchNoise& noise);

// Chooses the tokens int64 [batch] of patch t from their scores [batch, codes].
using ChooseTokens = std::function<torch::Tensor(int64_t patch, const torch::Tensor& scores)>;
// Samples the tokens of whole images, int64 [batch, patches] in sequence order. Needs a trunk that reads
// tokens and a decoder that scores them. The first `known` are copied from `given`, of the same shape.
// `progress` as in PatchSampling.
torch::Tensor draw_tokens(PatchPredictor& predictor, PatchDecoder& decoder, const torch::Tensor& given,
                          int64_t known, const ChooseTokens& choose,
                          const std::function<bool(int64_t done)>& progress);

}  // namespace tessera::models
