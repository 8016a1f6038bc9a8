// DETR on a backbone (Carion et al. 2020, sections 3.2 and A.4). A Transformer turns one map and a set of
// learned queries into as many objects, each a class (or none) and a box. Parameters have the names of the
// published files.
//
//   encoder layer   x <- norm(x + attention(x + p, x + p, x));  x <- norm(x + ffn(x))
//   decoder layer   t <- norm(t + attention(t + q, t + q, t));  t <- norm(t + attention(t + q, m + p, m));
//                   t <- norm(t + ffn(t)),  t from 0, q the queries, m the encoder's output
//   p               sines and cosines of the place in the image without its padding
// With pre_norm the norms come before attention and ffn instead, x <- x + attention(norm(x) + p, norm(x) + p,
// norm(x)), and the encoder ends with one more norm.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "core/config.h"
#include "models/base/family.h"
#include "nn/convolution.h"
#include "nn/linear.h"

namespace tessera::models {

struct DetrConfig {
  int64_t embed_dim = 256, num_heads = 8, encoder_depth = 6, decoder_depth = 6, hidden = 2048, queries = 100;
  bool pre_norm = false;
  // For files by other authors: the activation of the feed-forward networks, and the decoder's own heads and
  // hidden width (0 = the encoder's).
  Activation activation = Activation::relu;
  int64_t decoder_heads = 0, decoder_hidden = 0;

  template <class V>
  void visit(V& v) {
    v("embed_dim", embed_dim, between(4, 16384),
      "width of a token and of a query, a multiple of 4 and num_heads");
    v("num_heads", num_heads, between(1, 1024), "attention heads");
    v("encoder_depth", encoder_depth, between(1, 256), "layers of the encoder");
    v("decoder_depth", decoder_depth, between(1, 256), "layers of the decoder");
    v("hidden", hidden, between(1, 1 << 20), "hidden width of the feed-forward networks");
    v("queries", queries, between(1, 65536), "objects that an image may have");
    v("pre_norm", pre_norm, "norms before attention and feed-forward network, not after");
  }
  void check(const char* section) const;
};

// Returns sines and cosines of positions, [batch, rows * columns, dim], in `options`: the first half of the
// channels for rows. Places are counted without padding (`padding` [batch, rows, columns] bool, true =
// outside the image), divided by their number and multiplied by 2 pi.
torch::Tensor padded_sine_positions(const torch::Tensor& padding, int64_t dim, torch::TensorOptions options);

// Attention with three inputs of one width. Parameters in_proj_weight [3 dim, dim], in_proj_bias, out_proj.
class InputAttention : public torch::nn::Module {
 public:
  InputAttention(int64_t dim, int64_t heads);
  // q [batch, queries, dim], k and v [batch, keys, dim]; `bias` is added to the scores (undefined = nothing).
  torch::Tensor forward(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                        const torch::Tensor& bias = {});
  int64_t macs(int64_t queries, int64_t keys) const;

 private:
  torch::Tensor project(const torch::Tensor& x, int64_t part) const;
  int64_t dim_, heads_;
  torch::Tensor in_weight_, in_bias_;
  nn::Linear out_proj_{nullptr};
};

class DetrTransformer;

class Detr final : public torch::nn::Module {
 public:
  // `classes` does not count the class "nothing", which comes last.
  Detr(const DetrConfig& config, int64_t feature_channels, int64_t classes);
  void initialise(uint64_t seed);

  // The outputs of each decoder layer in order: logits [layers, batch, queries, classes + 1] and boxes
  // [layers, batch, queries, 4]. A box is centre x, y, width and height, relative to the image without
  // padding.
  struct Objects {
    torch::Tensor logits, boxes;
    torch::Tensor encoded, decoded;  // [batch, cells, dim]; [layers, batch, queries, dim]
  };
  // `map` [batch, feature_channels, rows, columns]; `padding` [batch, height, width] bool of any size, true =
  // outside the image.
  Objects forward(const torch::Tensor& map, const torch::Tensor& padding);
  int64_t macs(int64_t rows, int64_t columns) const;
  int64_t classes() const { return classes_; }

 private:
  DetrConfig config_;
  int64_t classes_;
  nn::Conv2d input_proj_{nullptr};
  std::shared_ptr<DetrTransformer> transformer_;
  torch::Tensor queries_;
  nn::Linear class_embed_{nullptr};
  std::vector<nn::Linear> box_embed_;
};

// The objects of one image in the order of the queries: the best class except "nothing", its probability, and
// corners in pixels of an image of that size.
struct DetrDetections {
  torch::Tensor scores, labels, boxes;  // [queries], int64 [queries], [queries, 4]
};
DetrDetections detr_detections(const torch::Tensor& logits, const torch::Tensor& boxes, double height,
                               double width);

}  // namespace tessera::models
