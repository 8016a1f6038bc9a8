// A division of a training step over chips.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/cluster.h"
#include "plan/shape.h"

namespace tessera::plan {

// Activations that the backward pass recomputes: none; attention scores (Korthikanti et al. 2022,
// "selective"); every second product with all that follows it (torchtitan, "selective op"); whole layers.
enum class Recompute { none, attention, products, full };
const char* name_of(Recompute recompute);
Recompute parse_recompute(const std::string& name);

struct Layout {
  int64_t data = 1, tensor = 1, pipeline = 1, context = 1;
  int64_t zero = 0;            // stage: 1 shards optimiser state, 2 gradients, 3 weights
  int64_t microbatch = 1;      // samples
  int64_t virtual_stages = 1;  // number of model parts on a pipeline stage
  Recompute recompute = Recompute::none;
  bool sequence_parallel = true;  // norms and residuals are also divided over the tensor group
  bool flash = true;              // attention without stored scores

  int64_t chips() const { return data * tensor * pipeline * context; }
  int64_t microbatches(int64_t batch) const { return batch / (data * microbatch); }
  std::string text() const;
};

// The arithmetic of a step. Bytes are per parameter or per number.
struct Arithmetic {
  int64_t batch = 1;               // samples a step
  double weight_bytes = 4;         // weights between steps
  double gathered_bytes = 2;       // weights in the form that layers use and gather
  double held_gradient_bytes = 4;  // gradients in memory
  double gradient_bytes = 4;       // gradients in reductions
  double optimiser_bytes = 8;      // AdamW's two moments
  double average_bytes = 0;        // a moving average
  bool overlapped_tensor = false;  // exchanges of tensor parallelism overlap with products
};

// Returns why a layout is impossible apart from memory; "" if it is possible.
std::string why_impossible(const Layout& layout, const Shape& shape, const Cluster& cluster, int64_t batch);

// Returns why this program cannot run a layout yet; "" if it can.
std::string why_not_yet(const Layout& layout);

// The order of a pipeline's work, as data.
enum class Work { idle, forward, backward };

// The work of each stage in equal slots: a forward pass takes one slot, a backward pass two.
struct Slot {
  Work work = Work::idle;
  int64_t microbatch = 0;
};
using Schedule = std::vector<std::vector<Slot>>;  // [stage][slot], all of one length

// One forward, one backward (Narayanan et al. 2021): stage s keeps min(m, p - s) microbatches.
Schedule one_forward_one_backward(int64_t stages, int64_t microbatches);

// Returns the idle slots of a stage divided by its busy ones.
double bubble_of(const Schedule& schedule);

}  // namespace tessera::plan
