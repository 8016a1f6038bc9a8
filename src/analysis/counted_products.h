// The multiply-adds of a forward pass, counted while it runs: every matrix product and convolution that the composed form of
// a model carries out, by what it multiplies.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>
#include <vector>

#include "models/heads/class_head.h"

namespace tessera::analysis {

struct CountedProducts {
  int64_t weights = 0;       // activations by parameters, in matrix products
  int64_t convolutions = 0;  // the same in convolutions
  int64_t between = 0;  // activations by activations: scores and values of attention, the cell of an mLSTM
  int64_t scores = 0;   // numbers that pass a softmax: all entries of all attention matrices
  int64_t sum() const { return weights + convolutions + between; }
};
struct PlaceProducts {
  std::string place;  // "blocks.3": from the place in front up to this one; "head" behind the last
  CountedProducts products;
};

// Counts those of one image of `side` pixels, as the model runs without fused kernels. Its weights must be float64, for
// which no family has a kernel of its own.
std::vector<PlaceProducts> count_products(models::Classifier& model, int64_t channels, int64_t side);

CountedProducts sum_of(const std::vector<PlaceProducts>& places);

}  // namespace tessera::analysis
