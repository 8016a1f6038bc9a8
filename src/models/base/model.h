// A backbone: an image in, features out. Heads read them (models/heads); what only some families can do is a
// capability (models/base/capability.h).
#pragma once

#include "ops/torch.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/value.h"
#include "nn/context.h"
#include "nn/init.h"

namespace tessera::models {

using nn::Context;
using nn::tap;
using nn::Taps;

// The place of a step in training: its number (counted from 0), of how many, and how many make an epoch.
struct TrainingStep {
  int64_t step = 0, steps = 0, steps_per_epoch = 0;
};

class Backbone : public torch::nn::Module {
 public:
  // Maps of the chosen blocks (counted from 0), each [batch, channels, rows, columns], in the order asked
  // for. Here as below images are [batch, 3, height, width] of any size that the family can take; an error
  // says which it cannot.
  virtual std::vector<torch::Tensor> features(const torch::Tensor& images, const std::vector<int64_t>& blocks,
                                              const Context& context = {}) = 0;
  // The vector that a class head reads, [batch, embed_width()].
  virtual torch::Tensor embed(const torch::Tensor& images, const Context& context = {}) = 0;
  virtual int64_t embed_width() const = 0;
  // One vector [batch, embed_width()] for each class head that published files of the family have.
  virtual std::vector<torch::Tensor> read_outs(const torch::Tensor& images, const Context& context = {}) {
    return {embed(images, context)};
  }
  // The names of those heads' layers in this module's tree, as published files have them ("head", or inside
  // another module "head.fc"); none where the published form has no class head.
  virtual std::vector<std::string> head_names() const { return {"head"}; }
  // The number of blocks that features() can name.
  virtual int64_t block_count() const = 0;
  // Multiply-adds of one image of the given size without a head, one multiply-add counted once: linear
  // layers, convolutions, attention products, as the family's paper counts them.
  virtual int64_t macs(int64_t height, int64_t width) const = 0;
  // The same with every product that is carried out, where the paper's way of counting leaves some away.
  virtual int64_t exact_macs(int64_t height, int64_t width) const { return macs(height, width); }
  // Channels of Context::condition that this model's blocks read; 0 = they take none.
  virtual int64_t condition_width() const { return 0; }
  // Names of parameters that take no weight decay besides the one-dimensional ones.
  virtual std::vector<std::string> no_weight_decay() const { return {}; }
  // A stored tensor of another shape made to fit this model's tensor `name` as the family's own code does on
  // loading: positions interpolated to this model's grid. Undefined where there is no such way.
  virtual torch::Tensor fit(const std::string& /*name*/, const torch::Tensor& /*stored*/) const { return {}; }
  // Fills the first values of one parameter as the published code draws them, those of the class heads
  // ("head.weight") included; what is not touched stays as constructed.
  virtual void first_values(const std::string& name, const torch::Tensor& parameter,
                            const nn::Filler& fill) const = 0;
  // Draws all first weights from the seed and their names alone.
  void initialise(uint64_t seed);
  // Called before every step of training: what a model changes by itself as training goes on.
  virtual void before_step(const TrainingStep&) {}

  virtual void set_checkpointing(bool on) { checkpointing = on; }
  bool checkpointing = false;

 protected:
  // Fails unless the context's condition is what condition_width() says, for so many samples.
  void check_condition(const Context& context, int64_t batch) const;
  // Puts the class heads here in the order of the parameters instead of behind everything else: sums over
  // parameters (the norm of all gradients) go in that order, and must not change.
  void reserve_heads();
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
  // Builds from a full settings table, every weight as constructed; see build_backbone.
  std::function<std::shared_ptr<Backbone>(const Value& settings)> build;
  // All settings with their defaults, after laying `settings` over them; refuses unknown keys. Every family
  // knows at least: image_size (a side, or [height, width]), classes (outputs of the class head, 0 = none),
  // drop_path.
  std::function<Value(const Value& settings)> resolve;
  std::vector<Size> sizes;
  // Published tensor name -> ours, for names that differ (training-source forms, wrappers); ours stay as they
  // are. "": a tensor that the model computes by itself, and that files hold all the same (index tables,
  // masks).
  std::function<std::string(const std::string& published)> rename;
  // Brings the names of a whole file from an older published form, which no name tells alone, to that which
  // `rename` reads; null where there is none.
  std::function<void(std::vector<std::string>& names)> upgrade_names = nullptr;
  // The preparation of images when the published weights were measured, where it is not a test crop of 0.875
  // and ImageNet's mean and deviation: keys of a recipe's [preprocess].
  Value preprocess = {};
};

const std::vector<Family>& families();
const Family& find_family(const std::string& name);

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

class Classifier;  // models/heads/class_head.h

// Whether first weights are drawn; skip: for a model that takes all of them from a file. A head that is reset
// afterwards is drawn all the same.
enum class Init { draw, skip };

std::shared_ptr<Backbone> build_backbone(const ModelSpec& spec, uint64_t seed, Init init = Init::draw);
// A backbone with the class head that the settings ask for (`classes`, and where the family has it
// `head_batch_norm`).
std::shared_ptr<Classifier> build_classifier(const ModelSpec& spec, uint64_t seed, Init init = Init::draw);
// The same module trees on the meta device, without memory for their weights: names, shapes, macs; nothing
// can be computed with them.
std::shared_ptr<Backbone> meta_backbone(const ModelSpec& spec);
std::shared_ptr<Classifier> meta_classifier(const ModelSpec& spec);

int64_t count_parameters(const torch::nn::Module& module);

}  // namespace tessera::models
