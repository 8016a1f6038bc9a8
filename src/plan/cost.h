// The time, memory and traffic of a training step under a layout. The formulas exist here only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plan/constants.h"
#include "plan/layout.h"

namespace tessera::plan {

// Seconds of a step by cause. Traffic counts what computation does not hide.
struct StepTime {
  double products = 0, attention = 0, memory_bound = 0, recomputed = 0, launches = 0;
  double tensor_traffic = 0, data_traffic = 0, pipeline_traffic = 0, bubble = 0, optimiser = 0,
         stragglers = 0;
  double sum() const;
  std::vector<std::pair<const char*, double>> by_cause() const;
  // The largest cause.
  const char* limit() const;
};

// Bytes a chip by kind, on the fullest pipeline stage.
struct StepMemory {
  double weights = 0, gradients = 0, optimiser = 0, average = 0, activations = 0, logits = 0, working = 0,
         reserve = 0;
  double sum() const;
  std::vector<std::pair<const char*, double>> by_kind() const;
};

// Bytes that a chip sends in a step.
struct StepTraffic {
  double data = 0, tensor = 0, pipeline = 0;
};

struct StepCost {
  StepTime time{};
  StepMemory memory{};
  StepTraffic traffic{};
  double mfu = 0;  // model FLOP, causal pairs counted whole, over the peak of all chips
};

// The times of one stack's layer on a chip of one kind, measured, for `samples` samples. They replace the
// formulas of products, attention and memory-bound work.
struct MeasuredBlock {
  double fixed_s = 0, per_sample_s = 0;              // forward and backward of a layer
  double outer_fixed_s = 0, outer_per_sample_s = 0;  // everything outside the layers, with the optimiser
  double layer_bytes = 0, outer_bytes = 0;           // activations of a sample
};

StepMemory step_memory(const Shape& shape, const Layout& layout, const Arithmetic& arithmetic);
StepTraffic step_traffic(const Shape& shape, const Layout& layout, const Arithmetic& arithmetic);
StepCost step_cost(const Shape& shape, const Cluster& cluster, const Layout& layout,
                   const Arithmetic& arithmetic, const Constants& constants,
                   const MeasuredBlock* measured = nullptr);

// Korthikanti et al. 2022: bytes of activations that one layer keeps for a sample on a chip.
double kept_bytes(const Stack& stack, const Layout& layout);

}  // namespace tessera::plan
