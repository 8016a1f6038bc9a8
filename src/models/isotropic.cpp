#include "models/isotropic.h"

#include "core/error.h"
#include "nn/checkpoint.h"

namespace tessera::models {

void IsotropicSettings::check_size() const {
  check_grid(image_size, patch_size);
  check_width(dim, depth, heads);
  check_rate("drop_path", drop_path);
}

Extent IsotropicSettings::grid() const {
  const Extent image = extent_of(image_size, "image_size");
  return {image.height / patch_size, image.width / patch_size};
}

torch::Tensor IsotropicBackbone::embed(const torch::Tensor& images, const Context& context) {
  const Tokens tokens = start(images, context);
  return tap(context.taps, "embed", read(run(tokens, context), tokens, context));
}

std::vector<torch::Tensor> IsotropicBackbone::features(const torch::Tensor& images,
                                                       const std::vector<int64_t>& blocks,
                                                       const Context& context) {
  for (const int64_t block : blocks)
    check(block >= 0 && block < block_count(), "features: there is no block ", block, ", the model has ",
          block_count());
  const Tokens tokens = start(images, context);
  std::vector<torch::Tensor> outputs, maps;
  run(tokens, context, &outputs);
  for (const int64_t block : blocks) maps.push_back(to_map(outputs[static_cast<size_t>(block)], tokens));
  return maps;
}

void IsotropicBackbone::add_block(const std::shared_ptr<torch::nn::Module>& block) {
  if (!list_) list_ = register_module("blocks", torch::nn::ModuleList());
  list_->push_back(block);
  blocks_.push_back(block);
}

torch::Tensor IsotropicBackbone::run(const Tokens& tokens, const Context& context,
                                     std::vector<torch::Tensor>* outputs) {
  torch::Tensor x = tokens.x;
  const bool recompute = checkpointing && is_training() && !context.taps;
  for (int64_t i = 0; i < block_count(); ++i) {
    const auto body = [this, i, tokens, context](const torch::Tensor& in) {
      return run_block(i, in, tokens, context);
    };
    x = recompute ? nn::checkpoint(body, x, blocks_[static_cast<size_t>(i)]->parameters()) : body(x);
    x = after_block(i, x, tokens);
    tap(context.taps, "blocks." + std::to_string(i), x);
    if (outputs) outputs->push_back(x);
  }
  return x;
}

torch::Tensor IsotropicBackbone::to_map(const torch::Tensor& x, const Tokens& tokens) const {
  return x.slice(1, tokens.before, x.size(1) - tokens.behind)
      .transpose(1, 2)
      .reshape({x.size(0), x.size(2), tokens.rows, tokens.columns});
}

}  // namespace tessera::models
