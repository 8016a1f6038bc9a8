// Layers that keep only their packed weights.

#include <gtest/gtest.h>

#include "core/error.h"
#include "ops/inference.h"
#include "ops/linear.h"

namespace tessera::ops {
namespace {

using torch::Tensor;

// The weight's memory is freed at packing, unless it has other readers.
TEST(PackedOnly, APackedWeightIsGivenUp) {
  torch::manual_seed(3);
  const LinearParameters p{
      torch::randn({70, 50}), {}, kernels::Activation::silu_gate, torch::randn({70, 50})};
  const LinearParameters shared{torch::randn({70, 50})};
  const Tensor x = torch::randn({4, 50}), view = shared.weight.narrow(0, 0, 3);
  const torch::NoGradGuard no_grad;
  LinearCache cache, of_shared;
  const LinearParameters kept{p.weight.clone(), {}, p.activation, p.gate.clone()};
  const LinearParameters gone{p.weight.clone(), {}, p.activation, p.gate.clone()};
  const Tensor want = linear(x, kept, {}, cache);
  LinearCache alone;
  {
    const PackedOnly memory;
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(torch::equal(linear(x, gone, {}, alone), want));
    linear(x, shared, {}, of_shared);
    const PackedOnly both(false);
    linear(x, kept, {}, cache);
  }
  EXPECT_TRUE(torch::equal(linear(x, gone, {}, alone), want));
  EXPECT_TRUE(given_up(gone.weight) && given_up(gone.gate));
  EXPECT_FALSE(given_up(kept.weight) || given_up(shared.weight));
  const InferenceScope another({.int8 = true});
  EXPECT_THROW(linear(x, gone, {}, alone), Error);
}

}  // namespace
}  // namespace tessera::ops
