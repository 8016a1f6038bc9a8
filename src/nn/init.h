// Initial weights that depend only on the seed and the parameter's name: not on the order of construction,
// the number of threads, or ATen's generator.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <string>

#include "core/random.h"
#include "nn/own_rows.h"

namespace tessera::nn {

// Fills one parameter; initialise() creates one filler per name.
class Filler {
 public:
  // `rows`: draws all numbers, and keeps those of these rows.
  Filler(torch::Tensor parameter, uint64_t seed, const std::string& name, std::optional<RowRange> rows = {});
  void constant(double value) const;
  void normal(double deviation) const;
  // Normal, truncated at +-2 (absolute, as in timm's trunc_normal_: the limits do not scale with the
  // deviation).
  void truncated_normal(double deviation) const;
  void uniform(double bound) const;  // [-bound, bound)
  // Glorot: uniform with bound sqrt(6 / (fan_in + fan_out)), for the tensor as [size(0), rest].
  void xavier_uniform() const;
  // PyTorch's default for linear and convolution layers: uniform with bound 1 / sqrt(fan_in).
  void fan_in_uniform(int64_t fan_in) const;
  // Evenly spaced from `first` to `last`, both included.
  void linspace(double first, double last) const;

 private:
  void fill(const std::function<double(RandomStream&)>& draw) const;
  torch::Tensor parameter_;
  uint64_t seed_;
  std::string name_;
  int64_t begin_, end_;  // numbers that are kept
};

// Calls rule(name, parameter, filler) for every parameter of the module, several at a time. Other
// parameters keep the value from the layer's constructor (zeros, or ones for norms and scales that start at
// one).
using InitRule =
    std::function<void(const std::string& name, const torch::Tensor& parameter, const Filler& fill)>;
void initialise(torch::nn::Module& module, uint64_t seed, const InitRule& rule);

bool ends_with(const std::string& name, const std::string& ending);

// Layers create their parameters with these functions. Inside a ShapesOnly scope parameters use no memory:
// the module tree has names and shapes, but cannot compute. Inside an OwnRowsScope large zeros are lazy_zeros().
torch::Tensor zeros(torch::IntArrayRef shape);
torch::Tensor ones(torch::IntArrayRef shape);
class ShapesOnly {
 public:
  ShapesOnly();
  ~ShapesOnly();
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;
  static bool active();

 private:
  bool before_;
};

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
