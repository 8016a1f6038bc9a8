// Feature vectors of images: from a backbone, or from two towers, whose vectors can be compared.
#pragma once

#include <memory>

#include "answer/image_rows.h"
#include "models/base/graphed.h"
#include "tasks/base/paired.h"

namespace tessera::answer {

struct FeatureOptions {
  int64_t layer = -1;
  bool tokens = false;
  template <class V>
  void visit(V& v) {
    v("layer", layer, between(0, 100000),
      "mean of the tokens of this block, counted from 0 (default: the input of the class head)");
    v("tokens", tokens, "all tokens of the last block or of --layer: [channels, rows, columns]");
  }
};

// Returns for each image the vector that the class head reads, the mean of a chosen block's tokens, or the
// map of all tokens, [channels, rows, columns].
class Extractor {
 public:
  // Throws a usage error for a block that the backbone lacks. `graphs`, if given, are those of the class head's vectors.
  Extractor(const FeatureOptions& options, const train::ReadyTask& model,
            models::GraphedPass* graphs = nullptr);

  // Returns float32 on the CPU, contiguous.
  torch::Tensor operator()(const torch::Tensor& images);

 private:
  torch::Tensor embedded(const torch::Tensor& images);

  const train::ReadyTask& model_;
  models::Backbone& backbone_;
  models::GraphedPass* graphs_;
  bool tokens_;
  int64_t block_ = -1;
};

// Null for a task without a backbone that reads images.
std::shared_ptr<Answerer> open_features(const AnswerSetup& setup);

// Computes in the model's precision; returns float32 on the CPU.
torch::Tensor image_vectors(const train::ReadyTask& model, tasks::PairedEmbedding& towers,
                            const torch::Tensor& images);

}  // namespace tessera::answer
