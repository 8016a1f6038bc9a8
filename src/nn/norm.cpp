#include "nn/norm.h"

#include "nn/init.h"

namespace tessera::nn {

LayerNormImpl::LayerNormImpl(int64_t width, LayerNormOptions options) : options_(options) {
  weight = register_parameter("weight", options.residual ? zeros({width}) : ones({width}));
  if (options.bias) bias = register_parameter("bias", zeros({width}));
}

RmsNormImpl::RmsNormImpl(int64_t width, double eps) : eps_(eps) {
  weight = register_parameter("weight", ones({width}));
}

LayerScaleImpl::LayerScaleImpl(int64_t width, double first_value) {
  gamma = register_parameter("gamma", ones({width}).mul_(first_value));
}

}  // namespace tessera::nn
