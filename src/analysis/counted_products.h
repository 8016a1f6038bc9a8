// Counts the multiply-adds of a forward pass as it runs: every matrix product and convolution of the model
// without fused kernels, by kind of operands.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>
#include <vector>

#include "models/heads/class_head.h"

namespace tessera::analysis {

struct CountedProducts {
  int64_t weights = 0;       // activations times parameters, in matrix products
  int64_t convolutions = 0;  // activations times parameters, in convolutions
  int64_t between = 0;       // activations times activations: scores and values of attention, mLSTM cells
  int64_t scores = 0;        // values that pass through a softmax: all entries of all attention matrices
  int64_t sum() const { return weights + convolutions + between; }
};
struct PlaceProducts {
  std::string place;  // "blocks.3": from the previous tap to this one; "head" after the last
  CountedProducts products;
};

// Counts one image of `side` pixels. The weights must be float64, since no fused kernel supports that
// type.
std::vector<PlaceProducts> count_products(models::Classifier& model, int64_t channels, int64_t side);

CountedProducts sum_of(const std::vector<PlaceProducts>& places);

}  // namespace tessera::analysis
