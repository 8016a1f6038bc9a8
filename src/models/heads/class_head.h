// Class heads: a linear layer behind each vector that a backbone reads out, and the two together.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/base/model.h"
#include "nn/batch_norm.h"
#include "nn/linear.h"

namespace tessera::models {

// The settings of a model's class head.
struct ClassHeadOptions {
  int64_t classes = 1000;   // outputs of each head, 0 = no head
  bool batch_norm = false;  // one without parameters in front (MAE's linear probing), named "head_norm"
};
ClassHeadOptions class_head_options(const ModelSpec& spec);

// The linear layers that read Backbone::read_outs. They are modules of the backbone's tree, under its
// head_names(), so that they have their published names: saved, averaged and moved with the backbone.
class ClassHead {
 public:
  // Registers the layers, their values as constructed. Fails where the backbone has such modules already.
  ClassHead(Backbone& backbone, const ClassHeadOptions& options);

  // One tensor of scores [batch, classes] for each read-out.
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& read_outs) const;
  int64_t classes() const { return options_.classes; }
  bool empty() const { return layers_.empty(); }
  int64_t macs() const;  // of one image
  // The names of its tensors in the backbone's tree, buffers too.
  const std::vector<std::string>& tensor_names() const { return tensor_names_; }
  // Takes the layers out of the tree.
  void remove_from(Backbone& backbone);

 private:
  ClassHeadOptions options_;
  std::vector<std::string> modules_, tensor_names_;
  nn::BatchNorm norm_{nullptr};
  std::vector<nn::Linear> layers_;
};

// A backbone and its class head. All parameters and buffers are in the backbone's tree.
class Classifier {
 public:
  // Adds the head to the backbone, which holds it from then on, and draws its first weights from the seed.
  Classifier(std::shared_ptr<Backbone> backbone, const ClassHeadOptions& options, uint64_t seed,
             Init init = Init::draw);

  // [batch, 3, height, width] -> [batch, classes]; the mean of both heads where the family has two (DeiT's
  // distillation), the backbone's embed() without a head.
  torch::Tensor forward(const torch::Tensor& images, const Context& context = {});
  // The scores of each head: {class head} or {class head, distillation head}; {embed()} without a head.
  std::vector<torch::Tensor> forward_heads(const torch::Tensor& images, const Context& context = {});
  // Replaces the head by a fresh one behind all other parameters, drawn from the seed that the model was
  // built with; 0 = no head.
  void reset_head(int64_t classes);
  int64_t classes() const { return head_.classes(); }
  const ClassHead& head() const { return head_; }
  // Backbone's, with the head.
  int64_t macs(int64_t height, int64_t width) const { return backbone->macs(height, width) + head_.macs(); }
  int64_t exact_macs(int64_t height, int64_t width) const {
    return backbone->exact_macs(height, width) + head_.macs();
  }

  const std::shared_ptr<Backbone> backbone;

 private:
  void draw_head();
  ClassHeadOptions options_;
  uint64_t seed_;
  ClassHead head_;
};

}  // namespace tessera::models
