// The time, memory and traffic of a training step under a layout. The formulas exist here only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/constants.h"
#include "plan/layout.h"

namespace tessera::plan {

// Seconds of a step by cause. Traffic counts only the part that does not overlap with computation.
struct StepTime {
  double products = 0, attention = 0, memory_bound = 0, recomputed = 0, launches = 0;
  double tensor_traffic = 0, data_traffic = 0, pipeline_traffic = 0, bubble = 0, optimiser = 0,
         stragglers = 0;
  double sum() const;
  std::vector<std::pair<const char*, double>> by_cause() const;
  // The largest cause.
  const char* limit() const;
};

// Bytes per chip by kind, on the fullest pipeline stage.
struct StepMemory {
  double weights = 0, gradients = 0, optimiser = 0, average = 0, activations = 0, logits = 0, working = 0,
         reserve = 0;
  double sum() const;
  std::vector<std::pair<const char*, double>> by_kind() const;
};

// Bytes that each chip sends in a step.
struct StepTraffic {
  double data = 0, tensor = 0, pipeline = 0;
};

struct StepCost {
  StepTime time{};
  StepMemory memory{};
  StepTraffic traffic{};
  double mfu = 0;  // model FLOP, causal pairs counted in full, over the peak of all chips
};

// The cost of one layer on a chip of one kind, measured. It replaces the formulas of products, attention and
// memory-bound work. Depths are those of the model's settings; one layer there may be several of a stack.
struct MeasuredBlock {
  double fixed_s = 0, per_sample_s = 0, step_s = 0;  // a layer: forward and backward, and the optimiser step
  double outer_fixed_s = 0, outer_per_sample_s = 0, outer_step_s = 0;  // everything outside the layers
  double layer_bytes = 0, outer_bytes = 0;                             // activations of a sample
  double program_bytes = 0;                                            // resident without a model, about
  double layers = 0;  // depth in the model's settings, 0 = the layers of the stacks

  template <class V>
  void visit(V& v) {
    v("fixed_s", fixed_s, "seconds of a layer and microbatch");
    v("per_sample_s", per_sample_s, "seconds of a layer and sample");
    v("step_s", step_s, "seconds of a layer's optimiser step");
    v("outer_fixed_s", outer_fixed_s, "seconds of a microbatch outside the layers");
    v("outer_per_sample_s", outer_per_sample_s, "seconds of a sample outside the layers");
    v("outer_step_s", outer_step_s, "seconds of the optimiser outside the layers");
    v("layer_bytes", layer_bytes, "activations of a layer and sample");
    v("outer_bytes", outer_bytes, "activations of a sample outside the layers");
    v("program_bytes", program_bytes, "resident memory with one layer");
    v("layers", layers, "depth in the model's settings");
  }
};

StepMemory step_memory(const Shape& shape, const Layout& layout, const Arithmetic& arithmetic,
                       const MeasuredBlock* measured = nullptr);
StepTraffic step_traffic(const Shape& shape, const Layout& layout, const Arithmetic& arithmetic);
StepCost step_cost(const Shape& shape, const Cluster& cluster, const Layout& layout,
                   const Arithmetic& arithmetic, const Constants& constants,
                   const MeasuredBlock* measured = nullptr);

// Korthikanti et al. 2022: bytes of activations that one layer keeps per sample and chip.
double kept_bytes(const Stack& stack, const Layout& layout);

}  // namespace tessera::plan
