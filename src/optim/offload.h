// Copies in main memory of parameters on a GPU, which keep the optimiser's state off the GPU (ZeRO-Offload, Ren et al.
// 2021):
//
//   auto copies = std::make_unique<Offload>(trained);
//   auto optimiser = make_optimiser(spec, groups of copies->here());   // its state is next to the copies
//   optimiser->follow(std::move(copies));                              // step() brings gradients here, and weights there
//
// A step moves the gradients of all parameters to main memory and the new values back. There each trained value takes 8
// bytes, next to those of the optimiser's state.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "nn/named_tensors.h"

namespace tessera::train {

class Offload {
 public:
  // The tensors must outlive it.
  explicit Offload(const NamedTensors& there);

  // Returns the copies, under the same names.
  const NamedTensors& here() const { return here_; }
  // Gives the copies the gradients, and the values of parameters that something else has changed.
  void fetch();
  // Gives the parameters the values of copies with a gradient.
  void send();
  // Drops the gradients of the parameters.
  void zero_grad();

 private:
  struct Change {
    const void* memory;
    uint32_t version;
  };
  static Change change_of(const torch::Tensor& tensor);
  void wait() const;

  NamedTensors there_, here_;
  std::vector<torch::Tensor> gradients_;  // memory of the gradients here
  std::vector<Change> known_;             // the state of each parameter that its copy equals
};

}  // namespace tessera::train
