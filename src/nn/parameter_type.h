// The type of parameters that layers create (nn/init.h) in a scope: a model that is loaded in bfloat16 never takes the memory of
// its float32 form.
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
