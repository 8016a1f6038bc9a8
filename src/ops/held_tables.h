// Keeps the tables that a graph of a GPU reads as long as the graph.
#pragma once

#include <vector>

#include "ops/torch.h"

namespace tessera::ops {

// While it lives, a list gets the tables that this thread gets from kept_on(), and the host's side of its sent_to() (ops/gpu.h).
class HeldTables {
 public:
  explicit HeldTables(std::vector<torch::Tensor>& list);
  ~HeldTables();
  HeldTables(const HeldTables&) = delete;
  HeldTables& operator=(const HeldTables&) = delete;

 private:
  std::vector<torch::Tensor>* before_;
};

}  // namespace tessera::ops
