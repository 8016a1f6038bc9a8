#include "models/base/isotropic.h"

#include "core/error.h"
#include "models/base/windows.h"

namespace tessera::models {

void IsotropicSettings::check_size() const {
  check_grid(image_size, patch_size);
  check_width(dim, heads);
  check_tokens(grid().height, grid().width, dim);
}

Extent IsotropicSettings::grid() const {
  const Extent image = extent_of(image_size, "image_size");
  return {image.height / patch_size, image.width / patch_size};
}

torch::Tensor IsotropicBackbone::embed(const torch::Tensor& images, const Context& context) {
  const Tokens tokens = tokenise(images, context);
  return tap(context.taps, "embed", read(run(tokens, context), tokens, context));
}

std::vector<torch::Tensor> IsotropicBackbone::features(const torch::Tensor& images,
                                                       const std::vector<int64_t>& blocks,
                                                       const Context& context) {
  check_blocks(blocks);
  const Tokens tokens = tokenise(images, context);
  std::vector<torch::Tensor> outputs;
  run(tokens, context, &outputs);
  return maps_of(outputs, blocks, tokens);
}

Tokens IsotropicBackbone::keep(const Tokens& tokens, const torch::Tensor& index) const {
  if (const std::string why = keep_refusal(); !why.empty()) fail_usage("no patch can be left out: ", why);
  check_index(index, tokens.x.size(0), tokens.patches());
  const torch::Tensor places = tokens.chosen(index);
  Tokens chosen = tokens;
  chosen.kept = tokens.kept.defined() ? tokens.kept.gather(1, index) : index;
  chosen.x = rows_at_places(tokens.x, places);
  chosen.extras.rotation = rotation_at_places(tokens.extras.rotation, places);
  chosen.extras.key_rotation = rotation_at_places(tokens.extras.key_rotation, places);
  chosen.extras.bias = bias_at_places(tokens.extras.bias, places);
  return chosen;
}

Encoded IsotropicBackbone::encode(const Tokens& tokens, const Context& context,
                                  const std::vector<int64_t>& blocks) {
  check_blocks(blocks);
  check(tokens.x.dim() == 3 && tokens.x.size(1) == tokens.count() && tokens.x.size(2) == token_width(),
        "tokens ", tokens.x.sizes(), " to encode must be [batch, ", tokens.count(), ", ", token_width(), "]");
  std::vector<torch::Tensor> outputs;
  Encoded encoded;
  static_cast<TokenPlaces&>(encoded) = tokens;
  encoded.last = run(tokens, context, blocks.empty() ? nullptr : &outputs);
  encoded.tokens = norm_tokens(encoded.last);
  encoded.maps = maps_of(outputs, blocks, tokens);
  return encoded;
}

torch::Tensor IsotropicBackbone::pool(const Encoded& encoded, const Context& context) {
  return read(encoded.last, encoded, context);
}

void IsotropicBackbone::check_blocks(const std::vector<int64_t>& blocks) const {
  for (const int64_t block : blocks)
    check(block >= 0 && block < block_count(), "features: there is no block ", block, ", the model has ",
          block_count());
}

std::vector<torch::Tensor> IsotropicBackbone::maps_of(const std::vector<torch::Tensor>& outputs,
                                                      const std::vector<int64_t>& blocks,
                                                      const TokenPlaces& places) const {
  std::vector<torch::Tensor> maps;
  for (const int64_t block : blocks) maps.push_back(places.map_of(outputs[static_cast<size_t>(block)]));
  return maps;
}

void IsotropicBackbone::add_block(const std::shared_ptr<torch::nn::Module>& block) {
  if (!list_) list_ = register_module("blocks", torch::nn::ModuleList());
  list_->push_back(block);
  blocks_.push_back(block);
}

void IsotropicBackbone::add_conv_blocks(const WindowSettings& windows, int64_t dim) {
  convolutions_.resize(blocks_.size());
  for (const int64_t index : windows.conv_blocks) {
    const auto block = static_cast<size_t>(index);
    convolutions_[block] = blocks_[block]->register_module("residual", std::make_shared<ConvBottleneck>(dim));
  }
}

std::vector<std::vector<torch::Tensor>> IsotropicBackbone::units() const {
  std::vector<std::vector<torch::Tensor>> units;
  for (int64_t i = 0; i < block_count(); ++i) units.push_back(parameters_of_block(i));
  return units;
}

int64_t IsotropicBackbone::conv_block_macs() const {
  int64_t total = 0;
  for (const auto& convolutions : convolutions_) total += convolutions ? convolutions->macs() : 0;
  return total;
}

// Non-patch tokens are unchanged.
torch::Tensor IsotropicBackbone::after_convolutions(int64_t index, const torch::Tensor& x,
                                                    const TokenPlaces& places) const {
  const auto block = static_cast<size_t>(index);
  if (block >= convolutions_.size() || !convolutions_[block]) return x;
  const torch::Tensor map = places.patches_of(x).unflatten(1, {places.rows, places.columns});
  const torch::Tensor patches = convolutions_[block]->forward(map).flatten(1, 2);
  return torch::cat({x.slice(1, 0, places.before), patches, x.slice(1, places.before + places.patches())}, 1);
}

torch::Tensor IsotropicBackbone::run(const Tokens& tokens, const Context& given,
                                     std::vector<torch::Tensor>* outputs) {
  check_condition(given, tokens.x.size(0));
  Context context = given;
  if (!context.condition.defined()) context.condition = usual_condition(tokens.x);
  torch::Tensor x = tokens.x;
  const bool recompute = checkpointing && is_training() && (!context.taps || context.taps->whole_blocks);
  Context inner = context;
  if (recompute) inner.taps = nullptr;  // they may be gone when a block is recomputed
  for (int64_t i = 0; i < block_count(); ++i) {
    const auto body = [this, i, tokens, inner](const torch::Tensor& in) {
      return after_convolutions(i, run_block(i, in, tokens, inner), tokens);
    };
    std::vector<torch::Tensor> reads;
    if (context.condition.defined()) reads.push_back(context.condition);  // it gets its gradient too
    x = nn::run_unit(x, {.body = body,
                         .parameters = [&] { return parameters_of_block(i); },
                         .recompute = recompute,
                         .reads = reads});
    x = after_block(i, x, tokens);
    tap(context.taps, "blocks." + std::to_string(i), x);
    if (outputs) outputs->push_back(x);
  }
  return x;
}

}  // namespace tessera::models
