#include "models/heads/class_head.h"

#include <algorithm>

#include "core/error.h"
#include "nn/init.h"

namespace tessera::models {
namespace {

constexpr const char* kNorm = "head_norm";

// Splits "head.fc" into the module "head", created if missing, and "fc".
std::pair<torch::nn::Module*, std::string> place_of(Backbone& backbone, const std::string& path) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) return {&backbone, path};
  const std::string outer = path.substr(0, dot);
  const auto children = backbone.named_children();
  const auto* found = children.find(outer);
  const auto owner = found ? *found : backbone.register_module(outer, std::make_shared<torch::nn::Module>());
  return {owner.get(), path.substr(dot + 1)};
}

// Puts the layer where the backbone has reserved a place, or after all others.
void put(Backbone& backbone, const std::string& path, const std::shared_ptr<torch::nn::Module>& layer) {
  const auto [owner, name] = place_of(backbone, path);
  const auto children = owner->named_children();
  const auto* reserved = children.find(name);
  if (!reserved) {
    owner->register_module(name, layer);
    return;
  }
  check((*reserved)->parameters().empty(), "the backbone has a module '", path, "' already");
  owner->replace_module(name, layer);
}

void take_out(Backbone& backbone, const std::string& path) {
  const size_t dot = path.find('.');
  const std::string outermost = path.substr(0, dot);
  const auto children = backbone.named_children();
  const auto* outer = children.find(outermost);
  if (!outer) return;
  if (dot != std::string::npos) {
    const std::string inner = path.substr(dot + 1);
    if ((*outer)->named_children().contains(inner)) (*outer)->unregister_module(inner);
    if (!(*outer)->children().empty()) return;  // the backbone's own modules are in it too
  }
  backbone.unregister_module(outermost);
}

}  // namespace

ClassHeadOptions class_head_options(const ModelSpec& spec) {
  ClassHeadOptions options;
  if (const Value* classes = spec.settings.find("classes")) {
    if (!classes->is_int()) fail_usage("model.classes is ", classes->type_name(), ", must be an integer");
    options.classes = classes->as_int();
  }
  if (options.classes < 0) fail_usage("model.classes = ", options.classes, ", must be at least 0");
  if (const Value* norm = spec.settings.find("head_batch_norm"))
    options.batch_norm = norm->is_bool() && norm->as_bool();
  if (const Value* bias = spec.settings.find("head_bias")) options.bias = !bias->is_bool() || bias->as_bool();
  return options;
}

ClassHead::ClassHead(Backbone& backbone, const ClassHeadOptions& options) : options_(options) {
  const std::vector<std::string> names = backbone.head_names();
  check(names.size() <= 1 || !options.batch_norm, "a batch norm needs exactly one class head, the model has ",
        names.size());
  if (options.classes == 0) {
    for (const std::string& name : names) take_out(backbone, name);  // a reserved place
    return;
  }
  if (options.batch_norm && !names.empty()) {
    norm_ = nn::BatchNorm(backbone.embed_width());
    put(backbone, kNorm, norm_.ptr());
    modules_.emplace_back(kNorm);
  }
  for (const std::string& name : names) {
    layers_.emplace_back(backbone.embed_width(), options.classes, options.bias);
    put(backbone, name, layers_.back().ptr());
    modules_.push_back(name);
  }
  const auto add_names = [this](const auto& tensors) {
    for (const auto& entry : tensors)
      if (std::any_of(modules_.begin(), modules_.end(),
                      [&](const std::string& module) { return entry.key().starts_with(module + "."); }))
        tensor_names_.push_back(entry.key());
  };
  add_names(backbone.named_parameters());
  add_names(backbone.named_buffers());
}

std::vector<torch::Tensor> ClassHead::forward(const std::vector<torch::Tensor>& read_outs) const {
  check(read_outs.size() == layers_.size(), "the model reads out ", read_outs.size(), " vectors for ",
        layers_.size(), " class heads");
  std::vector<torch::Tensor> scores;
  for (size_t i = 0; i < layers_.size(); ++i) {
    scores.push_back(layers_[i]->forward(norm_ ? norm_.ptr()->forward(read_outs[i]) : read_outs[i]));
    if (scores.back().dim() == 3) scores.back() = std::get<0>(scores.back().max(1));
  }
  return scores;
}

int64_t ClassHead::macs() const {
  int64_t total = 0;
  for (const nn::Linear& layer : layers_) total += layer->macs();
  return total;
}

void ClassHead::remove_from(Backbone& backbone) {
  for (const std::string& module : modules_) take_out(backbone, module);
  modules_.clear(), tensor_names_.clear(), layers_.clear();
  norm_ = nullptr;
  options_.classes = 0;
}

Classifier::Classifier(std::shared_ptr<Backbone> given, const ClassHeadOptions& options, uint64_t seed,
                       Init init)
    : backbone(std::move(given)), options_(options), seed_(seed), head_(*backbone, options) {
  if (init == Init::draw) draw_head();
}

void Classifier::draw_head() {
  const std::vector<std::string>& names = head_.tensor_names();
  nn::initialise(*backbone, seed_, [&](const auto& name, const auto& parameter, const nn::Filler& fill) {
    if (std::find(names.begin(), names.end(), name) != names.end())
      backbone->first_values(name, parameter, fill);
  });
}

torch::Tensor Classifier::forward(const torch::Tensor& images, const Context& context) {
  if (context.taps || context.condition.defined() || backbone->is_training())
    return mean_scores(images, context);
  return graphs_.run(images, {backbone.get()},
                     [this](const torch::Tensor& in) { return mean_scores(in, {}); });
}

torch::Tensor Classifier::mean_scores(const torch::Tensor& images, const Context& context) {
  const std::vector<torch::Tensor> scores = forward_heads(images, context);
  if (scores.size() == 1) return scores[0];
  torch::Tensor sum = scores[0];
  for (size_t i = 1; i < scores.size(); ++i) sum = sum + scores[i];
  return sum / static_cast<int64_t>(scores.size());
}

std::vector<torch::Tensor> Classifier::forward_heads(const torch::Tensor& images, const Context& context) {
  if (head_.empty()) return {backbone->embed(images, context)};
  return head_.forward(backbone->read_outs(images, context));
}

void Classifier::reset_head(int64_t classes) {
  check(classes >= 0, "a head of ", classes, " classes, must be 0 (none) or more");
  check(classes == 0 || !backbone->head_names().empty(), "this model has no class head: it cannot get ",
        classes, " classes");
  graphs_.forget();
  head_.remove_from(*backbone);
  ClassHeadOptions options = options_;
  options.classes = classes;
  head_ = ClassHead(*backbone, options);
  draw_head();
}

}  // namespace tessera::models
