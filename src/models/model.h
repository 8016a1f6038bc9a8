// What every backbone is to the rest of the house: an image in, features and class scores out.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/value.h"
#include "nn/context.h"

namespace tessera::models {

using nn::Context;
using nn::tap;
using nn::Taps;

class Backbone : public torch::nn::Module {
 public:
  // [batch, 3, height, width] -> [batch, classes]. Any size that the family can take; an error says which it
  // cannot.
  virtual torch::Tensor forward(const torch::Tensor& images, const Context& context = {}) = 0;
  // Maps of the chosen blocks (counted from 0), each [batch, channels, rows, columns], in the order asked
  // for.
  virtual std::vector<torch::Tensor> features(const torch::Tensor& images, const std::vector<int64_t>& blocks,
                                              const Context& context = {}) = 0;
  // The vector that the class head reads, [batch, embed_width()].
  virtual torch::Tensor embed(const torch::Tensor& images, const Context& context = {}) = 0;
  virtual int64_t embed_width() const = 0;
  // One tensor of scores a head: forward's, or where the model has a distillation head, {class head, that
  // head}.
  virtual std::vector<torch::Tensor> forward_heads(const torch::Tensor& images, const Context& context = {}) {
    return {forward(images, context)};
  }
  // How many blocks features() can name.
  virtual int64_t block_count() const = 0;
  // Multiply-adds of one image of the given size, one multiply-add counted once: linear layers, convolutions,
  // attention products, as the family's paper counts them.
  virtual int64_t macs(int64_t height, int64_t width) const = 0;
  // Replaces the class head by a fresh one, drawn from the seed that the model was built with; 0 = no head:
  // forward gives what embed does.
  virtual void reset_head(int64_t classes) = 0;
  // Names of parameters that take no weight decay besides the one-dimensional ones.
  virtual std::vector<std::string> no_weight_decay() const { return {}; }
  // A stored tensor of another shape made to fit this model's tensor `name` as the family's own code does on
  // loading: positions interpolated to this model's grid. Undefined where there is no such way.
  virtual torch::Tensor fit(const std::string& /*name*/, const torch::Tensor& /*stored*/) const { return {}; }
  // Draws all first weights from the seed alone.
  virtual void initialise(uint64_t seed) = 0;

  virtual void set_checkpointing(bool on) { checkpointing = on; }
  bool checkpointing = false;
};

// A model whose causal mask is softened early in training (iLLaMA): the trainer sets the share of the
// bi-directional mask before each step, 1 to 0.
class SoftMasked {
 public:
  virtual ~SoftMasked() = default;
  virtual void set_soft_mask(double share) = 0;
  virtual bool is_masked() const = 0;  // otherwise the share changes nothing
};

// A published size: its name, other names it goes by, and the settings that differ from the family's
// defaults.
struct Size {
  std::string name;
  std::vector<std::string> aliases;
  Value settings;
  Value preprocess = {};  // as Family::preprocess, laid over it
};

struct Family {
  std::string name;
  std::string summary;  // one line for `tessera models`
  // Builds from a full settings table; draws the initial weights from `seed` alone.
  std::function<std::shared_ptr<Backbone>(const Value& settings, uint64_t seed)> build;
  // All settings with their defaults, after laying `settings` over them; refuses unknown keys. Every family
  // knows at least: image_size (a side, or [height, width]), classes, drop_path.
  std::function<Value(const Value& settings)> resolve;
  std::vector<Size> sizes;
  // Published tensor name -> ours, for names that differ (training-source forms, wrappers); ours stay as they
  // are. "": a tensor that the model computes by itself, and that files hold all the same (index tables,
  // masks).
  std::function<std::string(const std::string& published)> rename;
  // Brings the names of a whole file from an older published form, which no name tells alone, to that which
  // `rename` reads; null where there is none.
  std::function<void(std::vector<std::string>& names)> modernise = nullptr;
  // How pictures were prepared when the published weights were measured, where it is not a test crop of 0.875
  // and ImageNet's mean and deviation: keys of a recipe's [preprocess].
  Value preprocess = {};
};

const std::vector<Family>& families();

// The names of all tensors of a file as the family's models have them, in the same order; "" as `rename`
// gives it.
std::vector<std::string> our_names(const Family& family, std::vector<std::string> published);

// The settings of a model by size name, alias or family name, with overrides laid over; usage error with the
// nearest name if there is none.
struct ModelSpec {
  std::string name;  // as asked for
  std::string family;
  Value settings;  // complete
};
ModelSpec resolve_model(const std::string& name, const Value& overrides = {});

// The [preprocess] keys that the published weights of a size ask for (Family::preprocess).
Value published_preprocess(const ModelSpec& spec);
std::shared_ptr<Backbone> build_model(const ModelSpec& spec, uint64_t seed);
// The same without drawing the first weights, for a model that takes all of them from a file. A head that is
// reset afterwards is drawn as ever.
std::shared_ptr<Backbone> build_undrawn(const ModelSpec& spec, uint64_t seed);
// The same module tree without memory for its weights: names, shapes, macs; nothing can be computed with it.
std::shared_ptr<Backbone> sketch_model(const ModelSpec& spec);
const Family& find_family(const std::string& name);

int64_t count_parameters(const torch::nn::Module& module);

}  // namespace tessera::models
