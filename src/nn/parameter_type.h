// The type of parameters that layers create (nn/init.h) in a scope. A model loaded in bfloat16 never needs
// the memory of its float32 form.
#pragma once

#include "ops/torch.h"

namespace tessera::nn {

class ParameterType {
 public:
  explicit ParameterType(torch::ScalarType type);
  ~ParameterType();
  ParameterType(const ParameterType&) = delete;
  ParameterType& operator=(const ParameterType&) = delete;

 private:
  torch::ScalarType before_;
};

}  // namespace tessera::nn
