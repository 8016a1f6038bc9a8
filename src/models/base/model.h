// A backbone maps an image to features. Heads read them (models/heads). Abilities of only some families are
// capabilities (models/base/capability.h).
#pragma once

#include "ops/torch.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/value.h"
#include "nn/context.h"
#include "nn/init.h"
#include "nn/units.h"

namespace tessera::models {

using nn::Context;
using nn::tap;
using nn::Taps;

// A step's position in training: its number (counted from 0), the total, and the number of steps in an epoch.
struct TrainingStep {
  int64_t step = 0, steps = 0, steps_per_epoch = 0;
};

class Backbone : public torch::nn::Module, public nn::Stack {
 public:
  // Returns the maps of the chosen blocks (counted from 0), each [batch, channels, rows, columns], in the
  // given order. Images, here and below, are [batch, 3, height, width] of any size that the family supports;
  // other sizes are an error.
  virtual std::vector<torch::Tensor> features(const torch::Tensor& images, const std::vector<int64_t>& blocks,
                                              const Context& context = {}) = 0;
  // Returns the vector that a class head reads, [batch, embed_width()].
  virtual torch::Tensor embed(const torch::Tensor& images, const Context& context = {}) = 0;
  virtual int64_t embed_width() const = 0;
  // Returns one vector [batch, embed_width()] for each class head in the family's published files. If it has
  // the vectors of all tokens, [batch, tokens, embed_width()], the head takes the largest score of each class.
  virtual std::vector<torch::Tensor> read_outs(const torch::Tensor& images, const Context& context = {}) {
    return {embed(images, context)};
  }
  // Returns the names of those heads' layers in this module's tree, as in published files ("head", or inside
  // another module "head.fc"). Empty if the published form has no class head.
  virtual std::vector<std::string> head_names() const { return {"head"}; }
  // Returns the number of blocks that features() accepts.
  virtual int64_t block_count() const = 0;
  // Returns the multiply-adds of one image of this size without a head, each counted once: linear layers,
  // convolutions and attention products, as the family's paper counts them.
  virtual int64_t macs(int64_t height, int64_t width) const = 0;
  // As macs(), but with every product that is computed, if the paper's count leaves some out.
  virtual int64_t exact_macs(int64_t height, int64_t width) const { return macs(height, width); }
  // Returns the channels of Context::condition that this model's blocks read; 0 = none.
  virtual int64_t condition_width() const { return 0; }
  // Returns the names of parameters without weight decay, in addition to the one-dimensional ones.
  virtual std::vector<std::string> no_weight_decay() const { return {}; }
  // Fits a stored tensor of another shape to this model's tensor `name`, as the family's published code does
  // on loading: positions are interpolated to this model's grid. Returns undefined if no rule applies.
  virtual torch::Tensor fit(const std::string& /*name*/, const torch::Tensor& /*stored*/) const { return {}; }
  // Fills the initial values of one parameter as the published code draws them, including those of the class
  // heads ("head.weight"). Other parameters stay as constructed.
  virtual void first_values(const std::string& name, const torch::Tensor& parameter,
                            const nn::Filler& fill) const = 0;
  // Draws all initial weights, which depend only on the seed and their names.
  void initialise(uint64_t seed);
  // Called before every training step: updates the values that a model changes on its own during training. Returns true if the
  // host reads one that may have changed: a recorded pass would repeat the old one.
  virtual bool before_step(const TrainingStep&) { return false; }

  std::vector<std::vector<torch::Tensor>> units() const override { return {}; }

 protected:
  // Fails if the context has a condition that is not [batch, condition_width()].
  void check_condition(const Context& context, int64_t batch) const;
  // Places the class heads here in the order of parameters instead of after all others. Sums over parameters
  // (the norm of all gradients) follow that order and must not change.
  void reserve_heads();
};

// A published size: its name, its aliases, and the settings that differ from the family's defaults.
struct Size {
  std::string name;
  std::vector<std::string> aliases;
  Value settings;
  Value preprocess = {};  // laid over Family::preprocess
};

struct Family {
  std::string name;
  std::string summary;  // one line for `tessera models`
  // Builds from a complete table of settings, with weights as constructed; see build_backbone.
  std::function<std::shared_ptr<Backbone>(const Value& settings)> build;
  // Returns all settings: the defaults, overridden by `settings`. Unknown keys are an error. Every family has
  // at least image_size (a side, or [height, width]), classes (outputs of the class head, 0 = none) and
  // drop_path.
  std::function<Value(const Value& settings)> resolve;
  std::vector<Size> sizes;
  // Image preprocessing for the published weights, if it is not a test crop of 0.875 with ImageNet's mean and
  // deviation: keys of a recipe's [preprocess].
  Value preprocess = {};
};

const std::vector<Family>& families();
const Family& find_family(const std::string& name);

// Returns the settings of a model by size name, alias or family name, with `overrides` applied. Throws a
// usage error with the nearest name for an unknown one.
struct ModelSpec {
  std::string name;  // as requested
  std::string family;
  Value settings;  // complete
};
ModelSpec resolve_model(const std::string& name, const Value& overrides = {});

// Returns the [preprocess] keys for the published weights of a size (Family::preprocess).
Value published_preprocess(const ModelSpec& spec);

class Classifier;  // models/heads/class_head.h

// Whether initial weights are drawn. skip: for a model with all weights from a file. A head that is reset
// afterwards is drawn in both cases.
enum class Init { draw, skip };

std::shared_ptr<Backbone> build_backbone(const ModelSpec& spec, uint64_t seed, Init init = Init::draw);
// Builds a backbone with the class head that the settings describe (`classes`, and `head_batch_norm` if the
// family has it).
std::shared_ptr<Classifier> build_classifier(const ModelSpec& spec, uint64_t seed, Init init = Init::draw);
// Build the same module trees on the meta device, without memory for their weights: for names, shapes and
// macs, not for computation.
std::shared_ptr<Backbone> meta_backbone(const ModelSpec& spec);
std::shared_ptr<Classifier> meta_classifier(const ModelSpec& spec);

int64_t count_parameters(const torch::nn::Module& module);

// Models for images with other than three channels, and weights for colour images adapted to them.

// Returns the channels of the images that a model with these settings reads.
int64_t input_channels(const Value& settings);

// Throws a usage error if the model does not read colour images. `who`, which predicts their pixels, is for
// the message.
void require_colours(const Value& settings, std::string_view who);

// Fits a first layer's stored kernel for red, green and blue, [width, 3, rows, columns], to the shape
// `wanted`, [width, channels, rows, columns], as timm does. One channel gets the sum of the three; more
// channels repeat them, scaled so that the sum over channels is unchanged. Returns undefined if `stored` is
// not such a kernel.
torch::Tensor fit_input_channels(const torch::Tensor& stored, torch::IntArrayRef wanted);

// timm's names of weights: a size, a dot, and a tag that identifies the training
// ("vit_base_patch16_224.augreg_in21k").

struct PublishedName {
  std::string size, tag;  // tag is "" if the name has none
};
PublishedName split_published_name(const std::string& name);

// Returns the [preprocess] keys in which weights of this tag differ from the first weights of the size; none
// for an empty tag. Throws a usage error that lists the published tags for an unknown one.
Value tag_preprocess(const PublishedName& name);

}  // namespace tessera::models
