// First weights that depend on the seed and the parameter's name alone: not on the order of construction, the
// number of threads, or ATen's generator.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <string>

#include "core/random.h"

namespace tessera::nn {

// Fills one parameter; made by initialise() for each name.
class Filler {
 public:
  Filler(torch::Tensor parameter, uint64_t seed, const std::string& name);
  void constant(double value) const;
  void normal(double deviation) const;
  // Normal, cut at +-2 (in units of 1, as timm's trunc_normal_: the limits do not scale with the deviation).
  void truncated_normal(double deviation) const;
  void uniform(double bound) const;  // [-bound, bound)
  // Glorot: uniform with bound sqrt(6 / (fan_in + fan_out)), the tensor seen as [size(0), rest].
  void xavier_uniform() const;
  // PyTorch's own default of linear and convolution layers: uniform with bound 1 / sqrt(fan_in).
  void fan_in_uniform(int64_t fan_in) const;
  // Evenly spaced from `first` to `last`, both included.
  void linspace(double first, double last) const;

 private:
  void fill(const std::function<double(RandomStream&)>& draw) const;
  torch::Tensor parameter_;
  uint64_t seed_;
  std::string name_;
};

// Calls rule(name, parameter, filler) for every parameter of the module, several at a time. What the rule
// does not touch keeps the value that the layer's constructor gave it (zeros, and ones where a norm or scale
// starts at one).
using InitRule =
    std::function<void(const std::string& name, const torch::Tensor& parameter, const Filler& fill)>;
void initialise(torch::nn::Module& module, uint64_t seed, const InitRule& rule);

bool ends_with(const std::string& name, const std::string& ending);

// Layers create their parameters with these. Inside a ShapesOnly scope they take no memory: the module tree
// has names and shapes, nothing can be computed with it.
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

}  // namespace tessera::nn
