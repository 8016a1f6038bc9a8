#include "models/language/language_model.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "nn/relative_position.h"
#include "ops/attention.h"
#include "ops/cached_attention.h"
#include "ops/gpu.h"
#include "ops/inference.h"
#include "ops/linear.h"

namespace tessera::models {
namespace {

// Far below any score, but finite: a padding token without visible keys gets the mean instead of NaN.
constexpr double kUnseen = -1e9;
constexpr double kInitialDeviation = 0.02;  // GPT-2's, and LLaMA's

using Packing = LanguageForm::Packing;
using Positions = LanguageForm::Positions;

Norm norm_at(torch::nn::Module& root, const std::string& path, const LanguageForm& form, int64_t width,
             double eps) {
  Norm norm;
  if (form.norm == NormKind::rms) {
    norm.rms = nn::RmsNorm(width, eps);
    register_at(root, path, norm.rms.ptr());
  } else {
    norm.layer = nn::LayerNorm(width, nn::LayerNormOptions{.eps = eps, .bias = form.norm_bias});
    register_at(root, path, norm.layer.ptr());
  }
  return norm;
}

// Registers a module with a single matrix "weight", and returns the matrix. No block reads it, and words may be added.
torch::Tensor table_at(torch::nn::Module& root, const std::string& path, int64_t rows, int64_t width) {
  auto holder = std::make_shared<torch::nn::Module>();
  torch::Tensor weight = holder->register_parameter("weight", nn::zeros({rows, width}));
  nn::keep_whole(weight);
  register_at(root, path, holder);
  return weight;
}

}  // namespace

void register_at(torch::nn::Module& root, const std::string& path,
                 std::shared_ptr<torch::nn::Module> module) {
  torch::nn::Module* at = &root;
  const std::vector<std::string> names = split(path, '.');
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    const auto children = at->named_children();
    if (const auto* found = children.find(names[i]))
      at = found->get();
    else
      at = at->register_module(names[i], std::make_shared<torch::nn::Module>()).get();
  }
  at->register_module(names.back(), std::move(module));
}

std::vector<torch::Tensor> parameters_at(const torch::nn::Module& root, const std::string& path) {
  std::shared_ptr<torch::nn::Module> at;
  for (const std::string& name : split(path, '.')) at = (at ? *at : root).named_children()[name];
  return at->parameters();
}

nn::RopeScaling LanguageConfig::scaling() const {
  return {.kind = rope_scaling,
          .factor = rope_factor,
          .trained = rope_trained,
          .fast = rope_fast,
          .slow = rope_slow,
          .whole_pairs = rope_whole_pairs,
          .low_frequency = rope_low,
          .high_frequency = rope_high,
          .short_factors = rope_short,
          .long_factors = rope_long,
          .magnitude = rope_magnitude};
}

LanguageConfig LanguageConfig::complete() const {
  LanguageConfig out = *this;
  const auto refuse = [](const auto&... parts) { fail_usage("language model: ", parts...); };
  if (out.kv_heads == 0) out.kv_heads = heads;
  if (out.heads % out.kv_heads != 0)
    refuse("heads = ", heads, " must be a multiple of kv_heads = ", out.kv_heads);
  if (out.head_dim == 0) {
    if (dim % heads != 0)
      refuse("dim = ", dim, " must be a multiple of heads = ", heads, ", or head_dim given");
    out.head_dim = dim / heads;
  }
  const LanguageForm& form = language_form(kind);
  if (form.positions == Positions::rotary && out.head_dim % 2 != 0)
    refuse("rotary positions need an even head_dim, it is ", out.head_dim);
  const int64_t pairs = out.head_dim / 2;
  if (rope_scaling == nn::RopeScalingKind::longrope)
    for (const auto& [key, factors] : {std::pair("rope_short", &rope_short), {"rope_long", &rope_long}}) {
      if (std::ssize(*factors) != pairs)
        refuse(key, " has ", factors->size(), " divisors, must be ", pairs,
               ", one for each pair of channels");
      if (std::any_of(factors->begin(), factors->end(), [](double one) { return !(one > 0); }))
        refuse(key, " must be above 0 throughout");
    }
  if (form.packing != Packing::separate && (out.kv_heads != heads || out.head_dim * heads != dim))
    refuse(name_of(kind), " has as many heads of keys as of queries, dim / heads channels each");
  if (out.hidden == 0) out.hidden = *form.gate ? nn::llama_hidden(dim) : 4 * dim;
  if (out.activation == Activation::published) out.activation = form.activation;
  out.tied = !out.untied && (out.tied || form.tied);
  if (out.norm_residual && form.norm != NormKind::layer)
    refuse("norm_residual is BLOOM's, ", name_of(kind), " adds the input of a norm");
  if (out.window_from > out.depth)
    refuse("window_from = ", window_from, ", the model has ", depth, " blocks");
  return out;
}

// The inputs that all blocks share in one pass.
struct LanguageModel::Shared {
  ops::AttentionOptions attention;
  torch::Tensor cos, sin;            // [(batch, 1,) tokens, head_dim / 2]; undefined: no rotation
  ops::CachedAttentionOptions step;  // options for one token after a cache
  torch::Tensor places;              // int64 [batch, tokens] or [tokens]: positions of the new tokens
};

LanguageModel::LanguageModel(const LanguageConfig& config) : config_(config.complete()) {
  const LanguageForm& form = language_form(config_.kind);
  embedding_ = table_at(*this, form.embedding, config_.vocabulary, config_.dim);
  if (form.positions == Positions::learned)
    positions_ = table_at(*this, form.positions_name, config_.context, config_.dim);
  if (*form.embedding_norm)
    embedding_norm_ = norm_at(*this, form.embedding_norm, form, config_.dim, config_.eps);
  for (int64_t i = 0; i < config_.depth; ++i) blocks_.push_back(make_block(i));
  last_norm_ = norm_at(*this, form.last_norm, form, config_.dim, config_.eps);
  if (!config_.tied) head_ = table_at(*this, "lm_head", config_.vocabulary, config_.dim);
}

LanguageModel::Block LanguageModel::make_block(int64_t index) {
  const LanguageForm& form = language_form(config_.kind);
  const std::string path = text(form.block, index, ".");
  const auto projection = [&](const char* name, int64_t in, int64_t out, bool bias) {
    Projection layer(in, out, bias, form.stored_in_out);
    register_at(*this, path + name, layer.ptr());
    return layer;
  };
  const int64_t dim = config_.dim, q_width = config_.heads * config_.head_dim,
                kv_width = config_.kv_heads * config_.head_dim;
  const bool attention_bias = form.attention_bias || config_.attention_bias,
             mlp_bias = form.mlp_bias || config_.mlp_bias;
  Block block;
  block.attention_norm = norm_at(*this, path + form.attention_norm, form, dim, config_.eps);
  if (form.packing == Packing::separate) {
    block.q = projection(form.q, dim, q_width, attention_bias);
    block.k = projection(form.k, dim, kv_width, attention_bias);
    block.v = projection(form.v, dim, kv_width, attention_bias);
  } else {
    block.packed = projection(form.qkv, dim, 3 * dim, attention_bias);
  }
  block.out = projection(form.out, q_width, dim, form.output_bias || config_.attention_bias);
  block.mlp_norm = norm_at(*this, path + form.mlp_norm, form, dim, config_.eps);
  if (*form.gate) block.gate = projection(form.gate, dim, config_.hidden, mlp_bias);
  block.up = projection(form.up, dim, config_.hidden, mlp_bias);
  block.down = projection(form.down, config_.hidden, dim, mlp_bias);
  return block;
}

torch::Tensor LanguageModel::embed(const torch::Tensor& ids) const {
  return torch::embedding(embedding_, ids);
}

std::array<torch::Tensor, 3> LanguageModel::project(const Block& block, int64_t index, const torch::Tensor& x,
                                                    const nn::LayerDivision* division) const {
  const LanguageForm& form = language_form(config_.kind);
  // Attention divides by the root of head_dim; any other scale is applied to the queries.
  const double by_layer = config_.scale_by_layer ? 1 / static_cast<double>(index + 1) : 1;
  const double scale = config_.attention_scale == 0 ? by_layer
                                                    : by_layer * config_.attention_scale *
                                                          std::sqrt(static_cast<double>(config_.head_dim));
  const auto queries = [&](const torch::Tensor& q) { return scale == 1 ? q : q * scale; };
  const auto heads_of = [&](const torch::Tensor& y) {
    return y.unflatten(-1, {-1, config_.head_dim}).transpose(1, 2);
  };
  nn::DeferredNorm normed = block.attention_norm.before_linear(x);
  if (division || form.packing == Packing::separate) normed = torch::Tensor(normed);
  if (division) normed = nn::enter_division(normed, *division);
  // `width`: channels of a head of keys in the layer.
  const auto projected = [&](const Projection& layer, int64_t width, int64_t groups = 1) {
    if (!division) return layer->forward(normed);
    const nn::Share rows = division->share_of(config_.kv_heads).channels(width);
    return nn::product(normed, nn::rows_of(layer->matrix(), layer->bias, rows, groups));
  };
  const int64_t width = config_.head_dim;
  if (form.packing == Packing::separate)
    return {queries(heads_of(projected(block.q, width * (config_.heads / config_.kv_heads)))),
            heads_of(projected(block.k, width)), heads_of(projected(block.v, width))};
  torch::Tensor packed = form.packing == Packing::thirds ? projected(block.packed, width, /*groups=*/3)
                                                         : projected(block.packed, 3 * width);
  if (config_.clip_qkv > 0) packed = packed.clamp(-config_.clip_qkv, config_.clip_qkv);
  if (form.packing == Packing::thirds) {
    const auto parts = packed.chunk(3, -1);
    return {queries(heads_of(parts[0])), heads_of(parts[1]), heads_of(parts[2])};
  }
  const torch::Tensor by_head = packed.unflatten(-1, {-1, 3, config_.head_dim}).permute({3, 0, 2, 1, 4});
  return {queries(by_head[0]), by_head[1], by_head[2]};
}

bool LanguageModel::steps_are_alike() const {
  const auto kind = config_.rope_scaling;
  return language_form(config_.kind).positions != Positions::rotary ||
         (kind != nn::RopeScalingKind::dynamic && kind != nn::RopeScalingKind::longrope);
}

StepPlace LanguageModel::step_place(const KeyValueCache& cache, const torch::Tensor& mask) const {
  const LanguageForm& form = language_form(config_.kind);
  const torch::Device device = embedding_.device();
  const int64_t room = cache.room();
  StepPlace place;
  place.before = torch::full({1}, cache.length, torch::TensorOptions(torch::kInt64).device(device));
  if (mask.defined()) {
    place.seen = torch::ones({mask.size(0), room}, mask.options().dtype(torch::kBool));
    place.seen.slice(1, 0, mask.size(1)).copy_(mask);
    place.padding = place.seen.logical_not().sum(1, /*keepdim=*/true);
  }
  if (form.positions == Positions::rotary) {
    const nn::RopeScaling scaling = config_.scaling();
    const torch::Tensor angles =
        torch::outer(torch::arange(room, torch::kFloat64),
                     nn::rotary_frequencies(config_.head_dim, config_.theta, scaling, room));
    const auto wide = embedding_.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
    const double magnitude = nn::rotary_magnitude(scaling);
    place.cos = (angles.cos() * magnitude).to(device, wide);
    place.sin = (angles.sin() * magnitude).to(device, wide);
  }
  if (form.positions == Positions::alibi) place.slopes = nn::alibi_slopes(config_.heads).to(device);
  return place;
}

LanguageModel::Shared LanguageModel::shared_of_step(const StepPlace& place) {
  Shared shared;
  shared.places = place.padding.defined() ? place.before - place.padding : place.before;
  shared.step = {.seen = place.seen, .slopes = place.slopes, .before = place.before};
  if (place.cos.defined()) {
    const torch::Tensor rows = shared.places.flatten();
    shared.step.cos = place.cos.index_select(0, rows), shared.step.sin = place.sin.index_select(0, rows);
  }
  return shared;
}

// Returns cosines and sines of places [(batch,) tokens] below `keys`, [(batch, 1,) tokens, pairs]. With `kept`, they are rows of a table
// that the device keeps, so that nothing is copied between it and the host.
nn::RotationTables LanguageModel::rotation_of(const torch::Tensor& places, int64_t keys,
                                              const torch::Tensor& x, bool kept) const {
  const nn::RopeScaling scaling = config_.scaling();
  const torch::Tensor frequency = nn::rotary_frequencies(config_.head_dim, config_.theta, scaling, keys);
  const double magnitude = nn::rotary_magnitude(scaling);
  const auto wide = x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  if (!kept) {
    const torch::Tensor angles = places.to(torch::kCPU, torch::kFloat64).unsqueeze(-1) * frequency;
    const torch::Tensor by_head = angles.dim() == 3 ? angles.unsqueeze(1) : angles;
    return {(by_head.cos() * magnitude).to(x.device(), wide),
            (by_head.sin() * magnitude).to(x.device(), wide)};
  }
  const nn::RotationTables all =
      nn::rotation_tables({torch::outer(torch::arange(keys, torch::kFloat64), frequency), magnitude}, x);
  const auto rows = [&](const torch::Tensor& table) {
    const torch::Tensor there = table.to(x.device(), wide);
    if (places.dim() == 1) return there;
    return there.index_select(0, places.flatten()).view({places.size(0), 1, places.size(1), -1});
  };
  return {rows(all.cos), rows(all.sin)};
}

LanguageModel::Shared LanguageModel::shared_of(const TextInput& input, const torch::Tensor& x) const {
  if (input.place) return shared_of_step(*input.place);
  const LanguageForm& form = language_form(config_.kind);
  const int64_t before = input.cache ? input.cache->length : 0, tokens = x.size(1), keys = before + tokens;
  const torch::TensorOptions integers = x.options().dtype(torch::kInt64).requires_grad(false);
  Shared shared;
  shared.attention.causal = true;
  shared.attention.first_query = before;
  if (input.mask.defined()) {
    check(input.mask.dim() == 2 && input.mask.size(0) == x.size(0) && input.mask.size(1) == keys,
          "the mask of a text is ", input.mask.sizes(), ", must be [", x.size(0), ", ", keys, "]");
    const torch::Tensor mask = input.mask.to(torch::kBool);
    shared.step.seen = mask;
    shared.attention.bias = torch::zeros({x.size(0), 1, 1, keys}, x.options().requires_grad(false))
                                .masked_fill_(~mask.view({x.size(0), 1, 1, keys}), kUnseen);
    shared.places = (mask.to(torch::kInt64).cumsum(1) - 1).clamp_min(0).slice(1, before);
  } else {
    shared.places = torch::arange(before, keys, integers);
  }
  if (form.positions == Positions::rotary) {
    const nn::RotationTables rows = rotation_of(shared.places, keys, x, /*kept=*/!input.cache);
    shared.cos = rows.cos, shared.sin = rows.sin;
    if (tokens == 1) shared.step.cos = shared.cos.flatten(0, -2), shared.step.sin = shared.sin.flatten(0, -2);
  }
  if (form.positions == Positions::alibi) {
    // Distances are counted from the last key, since a constant for all keys of a query changes nothing.
    const torch::Tensor behind = torch::arange(1 - keys, 1, integers).to(torch::kFloat64);
    const torch::Tensor slopes = ops::kept_on(x.device(), nn::alibi_slopes(config_.heads));
    shared.step.slopes = slopes;
    const torch::Tensor bias = (slopes.view({1, -1, 1, 1}) * behind).to(x.scalar_type());
    shared.attention.bias = shared.attention.bias.defined() ? shared.attention.bias + bias : bias;
  }
  return shared;
}

// Layers with a low-rank change or quantisation are computed whole.
const nn::LayerDivision* LanguageModel::division_of_attention(const Block& block) const {
  for (const Projection& layer : {block.packed, block.q, block.k, block.v, block.out})
    if (layer && !layer->divides()) return nullptr;
  return nn::division_of(config_.kv_heads);
}

const nn::LayerDivision* LanguageModel::division_of_mlp(const Block& block) const {
  for (const Projection& layer : {block.gate, block.up, block.down})
    if (layer && !layer->divides()) return nullptr;
  return nn::division_of(config_.hidden);
}

torch::Tensor LanguageModel::attend(const Block& block, int64_t index, const torch::Tensor& x,
                                    const Shared& shared, KeyValueCache* cache) const {
  const nn::LayerDivision* const division = cache ? nullptr : division_of_attention(block);
  auto [q, k, v] = project(block, index, x, division);
  const torch::Tensor residual =
      config_.norm_residual ? torch::Tensor(block.attention_norm.before_linear(x)) : x;
  const int64_t window = index < config_.window_from ? 0 : config_.window;
  if (cache && x.size(1) == 1) {
    const auto [keys, values] =
        shared.step.before.defined() ? cache->whole(index) : cache->extended(index, k);
    ops::CachedAttentionOptions options = shared.step;
    options.window = window;
    return output(block, ops::cached_attention(q, k, v, keys, values, options), residual, division);
  }
  if (shared.cos.defined()) {
    q = ops::rotate_halves(q, shared.cos, shared.sin);
    k = ops::rotate_halves(k, shared.cos, shared.sin);
  }
  if (cache) {
    const auto [keys, values] = cache->extended(index, k);
    keys.slice(2, cache->length).copy_(k);
    values.slice(2, cache->length).copy_(v);
    k = keys, v = values;
  }
  if (const int64_t group = config_.heads / config_.kv_heads; group > 1) {
    k = k.repeat_interleave(group, 1);
    v = v.repeat_interleave(group, 1);
  }
  ops::AttentionOptions options = shared.attention;
  options.window = window;
  if (division && options.bias.defined() && options.bias.size(1) > 1) {
    const nn::Share heads = division->share_of(config_.kv_heads).channels(config_.heads / config_.kv_heads);
    options.bias = options.bias.narrow(1, heads.first, heads.count);
  }
  return output(block, ops::attention(q.contiguous(), k.contiguous(), v.contiguous(), options), residual,
                division);
}

torch::Tensor LanguageModel::output(const Block& block, const torch::Tensor& read,
                                    const torch::Tensor& residual, const nn::LayerDivision* division) const {
  const torch::Tensor merged = read.transpose(1, 2).flatten(2);
  if (!division) return block.out->forward(merged, {.residual = residual});
  const nn::Share channels =
      division->share_of(config_.kv_heads).channels(config_.heads / config_.kv_heads * config_.head_dim);
  return nn::join_channels(merged, block.out->matrix(), block.out->bias, channels, *division,
                           {.residual = residual});
}

// Computes activation(gate x) * up x, in one fused layer if the activation is silu and neither layer has
// LoRA.
torch::Tensor LanguageModel::gated(const Block& block, const nn::DeferredNorm& in) const {
  const Projection &gate = block.gate, &up = block.up;
  if (gate->adapted() || up->adapted() || gate->quantised() || up->quantised() || gate->bias.defined() ||
      config_.activation != Activation::silu) {
    const torch::Tensor plain = in;
    return activate(gate->forward(plain), config_.activation) * up->forward(plain);
  }
  const auto [x, norm] = up->seen(gate->seen(in));
  ops::LinearParameters parameters = up->parameters_for(x);
  parameters.activation = kernels::Activation::silu_gate;
  parameters.gate = gate->parameters_for(x).weight;
  return ops::linear(x, parameters, {}, *block.gated, norm);
}

torch::Tensor LanguageModel::feed_forward(const Block& block, const torch::Tensor& x) const {
  const nn::DeferredNorm normed = block.mlp_norm.before_linear(x);
  const torch::Tensor residual = config_.norm_residual ? torch::Tensor(block.mlp_norm.before_linear(x)) : x;
  if (const nn::LayerDivision* const division = division_of_mlp(block)) {
    const nn::Share channels = division->share_of(config_.hidden);
    const torch::Tensor in = nn::enter_division(normed, *division);
    const auto part = [&](const Projection& layer) {
      return nn::product(in, nn::rows_of(layer->matrix(), layer->bias, channels));
    };
    const torch::Tensor hidden = block.gate ? activate(part(block.gate), config_.activation) * part(block.up)
                                            : activate(part(block.up), config_.activation);
    return nn::join_channels(hidden, block.down->matrix(), block.down->bias, channels, *division,
                             {.residual = residual});
  }
  if (!block.gate)
    return block.down->forward(activate(block.up->forward(normed), config_.activation),
                               {.residual = residual});
  return block.down->forward(gated(block, normed), {.residual = x});
}

torch::Tensor LanguageModel::hidden(const TextInput& input) {
  torch::Tensor x = input.embedded.defined() ? input.embedded : embed(input.ids);
  const Shared shared = shared_of(input, x);
  check_length((input.cache ? input.cache->length : 0) + x.size(1));
  if (positions_.defined()) x = x + torch::embedding(positions_, shared.places);
  if (embedding_norm_) x = embedding_norm_(x);
  for (int64_t i = 0; i < config_.depth; ++i) {
    if (input.before_block) x = input.before_block(i, x);
    const auto body = [this, i, shared, cache = input.cache](const torch::Tensor& in) {
      const Block& block = blocks_[static_cast<size_t>(i)];
      return feed_forward(block, attend(block, i, in, shared, cache));
    };
    x = nn::run_unit(x, {.body = body,
                         .parameters = [&] { return unit(i); },
                         .recompute = checkpointing && is_training() && !input.cache});
    if (input.after_block) input.after_block(i, x);
  }
  if (input.cache && !input.place) input.cache->length += x.size(1);
  return last_norm_(x);
}

void LanguageModel::check_length(int64_t tokens) const {
  check(!positions_.defined() || tokens <= config_.context, "a text of ", tokens,
        " tokens is longer than the ", config_.context, " positions of the model");
}

std::vector<torch::Tensor> LanguageModel::unit(int64_t index) const {
  return parameters_at(*this, text(language_form(config_.kind).block, index));
}

std::vector<std::vector<torch::Tensor>> LanguageModel::units() const {
  std::vector<std::vector<torch::Tensor>> all;
  for (int64_t i = 0; i < config_.depth; ++i) all.push_back(unit(i));
  return all;
}

torch::Tensor LanguageModel::logits_share(const torch::Tensor& hidden) const {
  const torch::Tensor& weight = head_.defined() ? head_ : embedding_;
  const nn::LayerDivision* const division = nn::division_of(weight.size(0));
  if (!division) return logits(hidden);
  const nn::Share words = division->share_of(weight.size(0));
  return at::linear(nn::enter_division(hidden, *division), weight.narrow(0, words.first, words.count));
}

torch::Tensor LanguageModel::logits(const torch::Tensor& hidden) const {
  const torch::Tensor& weight = head_.defined() ? head_ : embedding_;
  if (ops::gradients_wanted()) return at::linear(hidden, weight);
  const ops::PackedOnly both(ops::packed_only() && head_.defined());  // embeddings are also read unpacked
  return ops::linear(hidden, {.weight = weight}, {}, *head_cache_);
}

void LanguageModel::initialise(uint64_t seed) {
  // Layers that end a residual branch start smaller, by the number of branches (Radford et al. 2019).
  const double branch = kInitialDeviation / std::sqrt(2.0 * static_cast<double>(config_.depth));
  const LanguageForm& form = language_form(config_.kind);
  const auto ends = [](const std::string& name, const char* path) {
    return name.ends_with(text(".", path, ".weight"));
  };
  nn::initialise(*this, seed,
                 [&](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
                   if (parameter.dim() < 2 || name.find("lora_B") != std::string::npos) return;
                   fill.normal(ends(name, form.out) || ends(name, form.down) ? branch : kInitialDeviation);
                 });
}

std::string LanguageModel::embedding_name() const {
  return std::string(language_form(config_.kind).embedding) + ".weight";
}

void LanguageModel::resize_vocabulary(int64_t tokens) {
  const torch::NoGradGuard no_grad;
  const int64_t kept = std::min(tokens, config_.vocabulary);
  for (torch::Tensor* const table : {&embedding_, &head_}) {
    if (!table->defined()) continue;
    const torch::Tensor resized = torch::zeros({tokens, config_.dim}, table->options().requires_grad(false));
    resized.slice(0, 0, kept).copy_(table->slice(0, 0, kept));
    table->set_data(resized);
  }
  config_.vocabulary = tokens;
}

int64_t LanguageModel::macs(int64_t tokens) const {
  int64_t linear = config_.vocabulary * config_.dim;
  for (const auto& module : modules(false))
    if (const auto* projection = dynamic_cast<const ProjectionImpl*>(module.get()))
      linear += projection->weight.numel();
  return tokens * linear + config_.depth * config_.heads * config_.head_dim * tokens * tokens;
}

}  // namespace tessera::models
