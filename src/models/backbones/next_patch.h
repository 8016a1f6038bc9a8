// Any causal backbone as one that predicts patch after patch in a fixed order: what it knows before each of
// them, for whole images at once or with a cache while they are drawn (DARL, Li, Bornschein & Chen 2024).
//
//   z_t = trunk([front tokens, x_o(1) ... x_o(t-1)])'s last token
//   reverse step  x' = sqrt(alpha) (1 - gamma') / (1 - gamma) x + sqrt(gamma') (1 - alpha) / (1 - gamma) x0
//                      + sqrt((1 - gamma') (1 - alpha) / (1 - gamma)) e,  alpha = gamma / gamma'       (eq. 3)
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
  // `order` names the grid's patches in the order in which they come, a permutation of its row-major places.
  // A usage error that starts with `who` where the model is not causal.
  PatchPredictor(std::shared_ptr<Backbone> trunk, const ModelSpec& spec, std::vector<int64_t> order,
                 const std::string& who);

  int64_t width() const;  // of the trunk's tokens
  int64_t patches() const { return static_cast<int64_t>(order_.size()); }
  const std::vector<int64_t>& order() const { return order_; }
  int64_t patch() const { return patch_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // Whether a token stands in front of all patches; else `start` [1, 1, width] stands for what is known
  // before the first, unless the trunk is told the next place.
  bool has_front() const;
  // Whether the trunk is told the place of the patch that comes next (models/backbones/darl.h): orders may then change.
  bool knows_next_place() const;

  // images [batch, 3, height, width] -> [batch, patches, width]; row t is what is known before the patch that
  // comes at t, after the trunk's last norm. Here as below the patches come in order(), or where `orders` int64
  // [batch, patches] is given in that of each sample.
  torch::Tensor before_each_patch(const torch::Tensor& images, const torch::Tensor& start,
                                  const Context& context = {}, const torch::Tensor& orders = {});
  // The same with a cache, in evaluation mode: what is known before the first patch, and before the next one
  // once the pixels of the current one [batch, 3 patch^2] are given, or its tokens int64 [batch] where the trunk reads
  // tokens. All [batch, 1, width].
  torch::Tensor before_first(int64_t batch, const torch::Tensor& start, Cache& cache);
  torch::Tensor before_next(const torch::Tensor& pixels, Cache& cache);
  torch::Tensor before_next_token(const torch::Tensor& tokens, Cache& cache);

  // Pixels [batch, patches, 3 patch^2] of an image's patches in their order, and back to images.
  torch::Tensor in_order(const torch::Tensor& images, const torch::Tensor& orders = {}) const;
  torch::Tensor to_images(const torch::Tensor& pixels, const torch::Tensor& orders = {}) const;
  // Rows [batch, patches, …] of the raster in their order, and back.
  torch::Tensor arranged(const torch::Tensor& raster, const torch::Tensor& orders = {}) const;
  torch::Tensor in_raster(const torch::Tensor& rows, const torch::Tensor& orders = {}) const;

 private:
  torch::Tensor after(const torch::Tensor& embedded, Cache& cache);
  std::shared_ptr<Backbone> trunk_;
  TokenEncoder* encoder_;
  CausalStep* causal_;
  NextPatch* next_;  // a trunk that brings the pass of its own, or null
  std::vector<int64_t> order_;
  torch::Tensor index_;  // the order as a tensor; undefined where it is the raster's
  int64_t patch_ = 0, rows_ = 0, columns_ = 0, front_ = 0;
};

// How patches are drawn from a denoising decoder: noise levels gammas[0] = 1 (clean) to gammas[T].
struct PatchSampling {
  std::vector<double> gammas = {};  // empty: the decoder predicts the patch itself
  bool predicts_noise = false;
  // Called after every patch with those done so far; returning false ends with ErrorKind::interrupted.
  std::function<bool(int64_t done)> progress = {};
};
// The draws for patch t in sequence order: its first value for step T, then the noise of steps T ... 1 as
// step - 1; each [batch, 3 patch^2].
using PatchNoise = std::function<torch::Tensor(int64_t patch, int64_t step)>;

// One step of a reverse chain, from noise level gamma to `next`: x [batch, 1, 3 patch^2] of both. `noise` of
// the same shape is added by the posterior's deviation; undefined = none.
torch::Tensor reverse_step(PatchDecoder& decoder, const PatchDecoder::Condition& condition,
                           const torch::Tensor& x, double gamma, double next, bool predicts_noise,
                           const torch::Tensor& noise);
// Patch `index` from z [batch, 1, width]: [batch, 3 patch^2].
torch::Tensor draw_patch(PatchDecoder& decoder, const torch::Tensor& z, const PatchSampling& sampling,
                         int64_t index, const PatchNoise& noise);

// Whole images, patch by patch with a cache. The first `known` patches of order() are those of `given`
// [batch, patches, 3 patch^2], in sequence order; the others are drawn. The same shape and order.
torch::Tensor draw_patches(PatchPredictor& predictor, PatchDecoder& decoder, const torch::Tensor& given,
                           int64_t known, const PatchSampling& sampling, const PatchNoise& noise);

// Which tokens int64 [batch] patch t gets, by their scores [batch, codes].
using ChooseTokens = std::function<torch::Tensor(int64_t patch, const torch::Tensor& scores)>;
// The tokens of whole images, int64 [batch, patches] in sequence order, of a trunk that reads tokens and a decoder that
// scores them: the first `known` are those of `given`, of that shape. `progress` as in PatchSampling.
torch::Tensor draw_tokens(PatchPredictor& predictor, PatchDecoder& decoder, const torch::Tensor& given,
                          int64_t known, const ChooseTokens& choose,
                          const std::function<bool(int64_t done)>& progress);

}  // namespace tessera::models
