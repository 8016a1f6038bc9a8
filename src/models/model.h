// What every backbone is to the rest of the house: an image in, features and class scores out.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/value.h"

namespace tessera::models {

// Named places inside a model that analysis wants to see: "block.3", "block.3.attention". A model calls tap(taps, …);
// with taps == nullptr nothing is kept.
struct Taps {
  std::function<bool(const std::string& name)> wanted;
  std::map<std::string, torch::Tensor> kept;
};
torch::Tensor tap(Taps* taps, const std::string& name, torch::Tensor value);

// What a forward pass is told besides the image.
struct Context {
  // Keys the random draws of drop path: (seed, step) and the samples' positions, never ATen's generator.
  uint64_t seed = 0, step = 0;
  Taps* taps = nullptr;
};

// One multiply-add counted once; see Backbone::macs.
class Backbone : public torch::nn::Module {
 public:
  // [batch, 3, height, width] -> [batch, classes].
  virtual torch::Tensor forward(const torch::Tensor& images, const Context& context = {}) = 0;
  // Maps of the chosen blocks (counted from 0), each [batch, channels, rows, columns].
  virtual std::vector<torch::Tensor> features(const torch::Tensor& images, const std::vector<int64_t>& blocks,
                                              const Context& context = {}) = 0;
  // The vector that the class head reads, [batch, width].
  virtual torch::Tensor embed(const torch::Tensor& images, const Context& context = {}) = 0;
  // Multiply-adds of one image of the given size: linear layers, convolutions, attention products.
  virtual int64_t macs(int64_t height, int64_t width) const = 0;
  // Replaces the class head by a fresh one.
  virtual void reset_head(int64_t classes) = 0;
  // Names of parameters that take no weight decay besides the one-dimensional ones.
  virtual std::vector<std::string> no_weight_decay() const { return {}; }

  virtual void set_checkpointing(bool on) { checkpointing = on; }
  bool checkpointing = false;
};

// A published size: its name, other names it goes by, and the settings that differ from the family's defaults.
struct Size {
  std::string name;
  std::vector<std::string> aliases;
  Value settings;
};

struct Family {
  std::string name;
  std::string summary;  // one line for `tessera models`
  // Builds from a full settings table; draws the initial weights from `seed` alone.
  std::function<std::shared_ptr<Backbone>(const Value& settings, uint64_t seed)> build;
  // All settings with their defaults, after laying `settings` over them; refuses unknown keys.
  std::function<Value(const Value& settings)> resolve;
  std::vector<Size> sizes;
  // Published tensor name -> ours, for names that differ (training-source forms, wrappers).
  std::function<std::string(const std::string& published)> rename;
};

const std::vector<Family>& families();

// The settings of a model by size name, alias or family name, with overrides laid over; usage error with the nearest
// name if there is none. The result holds "family" and every setting.
struct ModelSpec {
  std::string name;    // as asked for
  std::string family;
  Value settings;      // complete
};
ModelSpec resolve_model(const std::string& name, const Value& overrides = {});
std::shared_ptr<Backbone> build_model(const ModelSpec& spec, uint64_t seed);
const Family& find_family(const std::string& name);

int64_t count_parameters(const torch::nn::Module& module);

}  // namespace tessera::models
