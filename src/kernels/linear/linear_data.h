// What a packed linear layer holds. Shared by the fast forms' driver and the reference.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/linear/linear_isa.h"

namespace tessera::kernels {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

// One of the two matrices, with what belongs to its outputs (padded to whole panels).
struct PackedMatrix {
  std::unique_ptr<void, FreeMemory> panels;  // [panels][words][panel] words
  std::vector<float> bias;                   // zeros where there is none
  std::vector<float> scales;                 // int8
  std::vector<int32_t> start;                // int8: -128 * the column's sum, where x is stored 128 larger
  std::vector<float> plain;                  // reference: (out, in), rounded as the arithmetic asks
};

struct PackedLinearData {
  LinearImplementation implementation;
  int64_t in = 0, out = 0;
  Activation activation = Activation::none;
  float static_scale = 0;
  int64_t words = 0, panel = 0, panels = 0;
  PackedMatrix weight, gate;
  std::vector<float> out_scale;  // empty: none
};

// The definition: double sums, one thread.
void linear_forward_reference(const PackedLinearData& weights, const LinearForward& call);
void linear_gradients_reference(const LinearGradients& call);
void norm_forward_reference(const NormForward& call);

}  // namespace tessera::kernels
