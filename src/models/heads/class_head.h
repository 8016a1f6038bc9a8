// Class heads: a linear layer for each vector that a backbone reads out, and a backbone with its heads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/base/graphed.h"
#include "models/base/model.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace tessera::models {

// The settings of a model's class head.
struct ClassHeadOptions {
  int64_t classes = 1000;  // outputs of each head, 0 = no head
  bool bias = true;
  bool batch_norm = false;  // without parameters, before the head (MAE's linear probing), named "head_norm"
};
ClassHeadOptions class_head_options(const ModelSpec& spec);

// The linear layers that read Backbone::read_outs. They are modules of the backbone's tree, under its
// head_names(). So they have their published names, and are saved, averaged and moved with the backbone.
class ClassHead {
 public:
  // Registers the layers, with values as constructed. Fails if the backbone already has such modules.
  ClassHead(Backbone& backbone, const ClassHeadOptions& options);

  // Returns one tensor of scores [batch, classes] for each read-out.
  std::vector<torch::Tensor> forward(const std::vector<torch::Tensor>& read_outs) const;
  int64_t classes() const { return options_.classes; }
  bool empty() const { return layers_.empty(); }
  int64_t macs() const;  // per image
  // Returns the names of its tensors in the backbone's tree, buffers included.
  const std::vector<std::string>& tensor_names() const { return tensor_names_; }
  // Removes the layers from the tree.
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
  // Adds the head to the backbone, which then owns it, and draws its initial weights from the seed.
  Classifier(std::shared_ptr<Backbone> backbone, const ClassHeadOptions& options, uint64_t seed,
             Init init = Init::draw);

  // Maps [batch, 3, height, width] to [batch, classes]. If the family has two heads (DeiT's distillation),
  // returns their mean. Without a head, returns the backbone's embed(). Outside of training it is a graph of the GPU's if
  // TESSERA_GPU=graphs (models/base/graphed.h).
  torch::Tensor forward(const torch::Tensor& images, const Context& context = {});
  // Returns the scores of each head: {class head} or {class head, distillation head}; {embed()} without a
  // head.
  std::vector<torch::Tensor> forward_heads(const torch::Tensor& images, const Context& context = {});
  // Replaces the head by a new one after all other parameters, drawn from the seed that built the model; 0 =
  // no head.
  void reset_head(int64_t classes);
  int64_t classes() const { return head_.classes(); }
  const ClassHead& head() const { return head_; }
  const GraphedPass& graphs() const { return graphs_; }
  // The backbone's multiply-adds and those of the head.
  int64_t macs(int64_t height, int64_t width) const { return backbone->macs(height, width) + head_.macs(); }
  int64_t exact_macs(int64_t height, int64_t width) const {
    return backbone->exact_macs(height, width) + head_.macs();
  }

  const std::shared_ptr<Backbone> backbone;

 private:
  void draw_head();
  torch::Tensor mean_scores(const torch::Tensor& images, const Context& context);
  ClassHeadOptions options_;
  uint64_t seed_;
  ClassHead head_;
  GraphedPass graphs_;
};

}  // namespace tessera::models
