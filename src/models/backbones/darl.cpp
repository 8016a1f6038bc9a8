// DARL (Li, Bornschein & Chen 2024, "Denoising autoregressive representation learning"): a ViT trunk that
// reads [start, patches] and, in pre-training, predicts each patch from those before it. No published code
// exists; docs/models.md records the choices that the paper leaves open.
//
//   tokens = [start, patches W + b]                q and k rotated by decomposed 2-D RoPE:
//   y  = x + attention(norm1(x))                   half of a head's channels by x, half by y
//   x' = y + mlp(norm2(y))                         start has position (-1, -1)
//   scores = head(norm(x_L)[last patch])
// With `codes` the tokens of a discrete autoencoder are embedded instead of pixels: E[token] for patches W +
// b (Table 16). Two streams: g' = g + attention(query(norm1(g)); keys, values of the content) etc., all else
// shared. Without a start token, the content that a query sees is that of XLNet's strictly lower mask; the
// first query sees nothing.
#include "models/backbones/darl.h"

#include <algorithm>
#include <numbers>

#include "core/error.h"
#include "core/recording.h"
#include "models/base/capability.h"
#include "models/base/causal_backbone.h"
#include "models/base/family.h"
#include "models/base/model.h"
#include "models/base/residual_block.h"
#include "models/base/tokeniser.h"
#include "nn/attention.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/patch_embed.h"
#include "nn/position.h"
#include "nn/rope.h"
#include "nn/units.h"
#include "ops/gpu.h"

namespace tessera::models {
namespace {

enum class Positions { none, absolute, learned, rope_1d, rope_2d, rope_mixed };
enum class Pooling { last, mean };

}  // namespace
}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::Positions> {
  static constexpr std::array names = {"none", "absolute", "learned", "rope_1d", "rope_2d", "rope_mixed"};
};
template <>
struct tessera::EnumNames<tessera::models::Pooling> {
  static constexpr std::array names = {"last", "mean"};
};

namespace tessera::models {
namespace {

struct Config : IsotropicSettings {
  static constexpr bool kHeadBatchNorm = true;
  double mlp_ratio = 4;
  Positions positions = Positions::rope_2d;
  Pooling pooling = Pooling::last;
  double rope_theta = 10000;
  bool rope_turns = false, interpolate = true, causal = false, two_stream = false, start_token = true;
  int64_t codes = 0;
  std::string tokeniser = {};

  Config() { dim = 768, heads = 12; }

  template <class V>
  void visit(V& v) {
    visit_size(v);
    v("mlp_ratio", mlp_ratio, kMlpRatio, "hidden width of the MLP as a multiple of dim");
    v("positions", positions, choice<Positions>(),
      "absolute: 2-D sine and cosine; rope_mixed: pairs rotated by both axes, frequencies drawn (section "
      "D.1)");
    v("rope_theta", rope_theta, above(0), "base of the rotary frequencies");
    v("rope_turns", rope_turns, "angles in turns, 2 pi m theta, as section 3.4 prints them");
    v("interpolate", interpolate,
      "rotary positions of another grid are scaled to span the grid of image_size, else they run on");
    v("causal", causal, "the class head's tokens see only earlier ones (pre-training always does)");
    v("pooling", pooling, choice<Pooling>(), "the head reads the last patch or the mean of all patches");
    v("two_stream", two_stream, "a query stream for pre-training with orders that change");
    v("codes", codes, between(0, 1 << 20),
      "number of codes of the tokens from `tokeniser`, 0 = the model reads pixels");
    v("tokeniser", tokeniser, "weights of task dvae, or of DALL-E's encoder");
    v("start_token", start_token,
      "a learned token before the patches; false goes with two_stream: the query of the first patch then "
      "sees nothing (XLNet)");
    visit_drop_path(v);
  }

  int64_t before() const { return start_token ? 1 : 0; }  // tokens before the patches
  bool rotary() const { return positions >= Positions::rope_1d; }

  void check() const {
    check_size();
    const int64_t step = positions == Positions::rope_2d ? 4 : 2;
    if (two_stream && drop_path > 0)
      fail_usage("model.two_stream = true has no drop path: set model.drop_path = 0");
    if ((codes > 0) == tokeniser.empty())
      fail_usage(
          "model.codes and model.tokeniser go together: the number of codes, and the weights that produce ",
          "the tokens");
    if (codes == 1 || (codes > 0 && in_channels != 3))
      fail_usage("model.codes = ", codes, ", must be at least 2, of images with 3 channels");
    if (!start_token && !two_stream)
      fail_usage(
          "model.start_token = false goes with model.two_stream = true: nothing else precedes the first "
          "patch");
    if (!start_token && grid().height * grid().width < 2)
      fail_usage("model.start_token = false needs two patches or more, model.image_size holds one");
    if (rotary() && dim / heads % step != 0)
      fail_usage("model.positions = \"", name_of(positions), "\" rotates ", dim / heads,
                 " channels a head, must be a multiple of ", step);
    if (positions == Positions::absolute && dim % 4 != 0)
      fail_usage("model.positions = \"absolute\" needs dim to be a multiple of 4");
  }
};

// The plain ViT block, for one stream or both.
class Block final : public AttentionBlock {
 public:
  Block(const Config& config, int64_t index, double drop_path)
      : AttentionBlock({.dim = config.dim,
                        .mlp = MlpKind::gelu,
                        .hidden = default_hidden(MlpKind::gelu, config.dim, config.mlp_ratio),
                        .drop_path = drop_path,
                        .index = index,
                        .name = "blocks." + std::to_string(index)},
                       config.heads, /*qkv_bias=*/true) {}

  // Runs both streams, causal: query t sees content 0 … t, and content t is the patch before its own. If
  // content is one shorter than the queries, it has no start token: query t sees content 0 … t - 1, and the
  // first query sees none. `query_projection` computes the queries of the query stream.
  NextPatch::Streams two_streams(const NextPatch::Streams& in, nn::Linear& query_projection,
                                 const nn::Rotation& content_places, const nn::Rotation& query_places) {
    const auto [q, k_in, v] = attn_->project(norm1_.before_linear(in.content));
    const torch::Tensor k = nn::rotate(k_in, content_places);
    const auto attend = [&](const torch::Tensor& queries) {
      const int64_t blind = queries.size(2) - k.size(2);
      const torch::Tensor seen = nn::attend(queries.slice(2, blind), k, v, {.causal = true});
      return blind == 0 ? seen : torch::cat({torch::zeros_like(seen.slice(2, 0, blind)), seen}, 2);
    };
    const auto stream = [&](const torch::Tensor& x, const torch::Tensor& queries) {
      const torch::Tensor y = x + attn_->output(attn_->merge(attend(queries)));
      return y + feed_forward(norm2_.before_linear(y), {});
    };
    return {stream(in.query,
                   nn::rotate(attn_->split(query_projection(norm1_.before_linear(in.query))), query_places)),
            stream(in.content, nn::rotate(q, content_places))};
  }

  // Runs one query x [batch, 1, dim] on the keys and values of `state`; it reads nothing from an empty state.
  torch::Tensor query_step(const torch::Tensor& x, nn::Linear& query_projection, const nn::Rotation& at,
                           const std::vector<torch::Tensor>& state) {
    const torch::Tensor q = nn::rotate(attn_->split(query_projection(norm1_.before_linear(x))), at);
    const torch::Tensor seen = state.empty() ? torch::zeros_like(q) : nn::attend(q, state.at(0), state.at(1));
    const torch::Tensor y = x + attn_->output(attn_->merge(seen));
    return y + feed_forward(norm2_.before_linear(y), {});
  }
};

class Darl final : public CausalBackbone, public NextPatch, public MaskedAttention, public ReadsTokens {
 public:
  explicit Darl(const Config& config) : config_(config) {
    rows_ = config.grid().height;
    columns_ = config.grid().width;
    if (config.start_token) start_token_ = register_parameter("start_token", nn::zeros({1, 1, config.dim}));
    if (config.two_stream) {
      query_token_ = register_parameter("query_token", nn::zeros({1, 1, config.dim}));
      const auto list = register_module("q_query", torch::nn::ModuleList());
      for (int64_t i = 0; i < config.depth; ++i) {
        query_projections_.emplace_back(config.dim, config.dim);
        list->push_back(query_projections_.back());
      }
    }
    if (config.codes > 0) {
      const auto embed = register_module("token_embed", std::make_shared<torch::nn::Module>());
      token_embed_ = embed->register_parameter("weight", nn::zeros({config.codes, config.dim}));
    } else {
      patch_embed_ = register_module(
          "patch_embed", nn::Linear(config.in_channels * config.patch_size * config.patch_size, config.dim));
    }
    if (config.positions == Positions::learned)
      pos_embed_ = register_parameter("pos_embed", nn::zeros({1, rows_ * columns_, config.dim}));
    if (config.positions == Positions::rope_mixed)
      mixed_ = nn::mixed_frequencies(config.heads, config.dim / config.heads, config.rope_theta);
    const std::vector<double> rates = config.drop_path_rates(config.depth);
    for (int64_t i = 0; i < config.depth; ++i) {
      blocks_.push_back(std::make_shared<Block>(config, i, rates[static_cast<size_t>(i)]));
      add_block(blocks_.back());
    }
    norm_ = register_module("norm", nn::LayerNorm(config.dim));
  }

  int64_t embed_width() const override { return config_.dim; }
  int64_t token_width() const override { return config_.dim; }

  int64_t macs(int64_t height, int64_t width) const override {
    const int64_t patches = config_.patches(height, width);
    int64_t total = patch_embed_ ? patches * patch_embed_->macs() : 0;  // without the tokeniser
    for (const auto& block : blocks_) total += block->macs(patches + config_.before());
    return total;
  }

  int64_t masked_out_macs(int64_t height, int64_t width) const override {
    const int64_t tokens = config_.patches(height, width) + config_.before();
    return config_.causal ? config_.depth * causal_attention_saves(tokens, config_.dim) : 0;
  }

  std::vector<std::string> no_weight_decay() const override {
    return {"pos_embed", "start_token", "query_token"};
  }

  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (name == "patch_embed.weight" && stored.dim() == 2) {
      const int64_t side = config_.patch_size;  // a linear layer over rows, columns and channels of a patch
      if (stored.size(1) != 3 * side * side) return {};
      const torch::Tensor fitted = fit_input_channels(stored.view({-1, side, side, 3}).permute({0, 3, 1, 2}),
                                                      {config_.dim, config_.in_channels, side, side});
      return fitted.defined() ? fitted.permute({0, 2, 3, 1}).reshape({config_.dim, -1}) : fitted;
    }
    if (name != "pos_embed" || !pos_embed_.defined()) return {};
    return nn::fit_square_tokens(stored, 0, rows_, columns_, config_.dim, nn::Resample::bicubic);
  }

  torch::Tensor before_each_patch(const torch::Tensor& images, const torch::Tensor& order,
                                  const Context& context) override {
    check(config_.start_token, "without a start token only a query stream can predict the first patch");
    Tokens tokens = arrange(images, order, /*all=*/false);
    tokens.extras.causal = true;
    return norm_(run(tokens, context));
  }

  Streams two_streams(const torch::Tensor& images, const torch::Tensor& order) override {
    check(config_.two_stream, "this DARL has no query stream: set model.two_stream");
    const Tokens tokens = arrange(images, order, /*all=*/false);
    const torch::Tensor targets = order_or_raster(order, images.size(0), tokens.rows * tokens.columns);
    torch::Tensor query = query_token_.expand({images.size(0), targets.size(-1), -1});
    if (const torch::Tensor table = position_table(tokens.rows, tokens.columns); table.defined())
      query = query + in_order(table, targets);
    const nn::Rotation places = rotation(targets, tokens.rows, tokens.columns);
    const int64_t queries = query.size(1);
    const auto apart = [queries](const torch::Tensor& both) {
      return Streams{both.slice(1, 0, queries), both.slice(1, queries)};
    };
    torch::Tensor both = torch::cat({query, tokens.x}, 1);  // a unit goes from one tensor to another
    for (int64_t i = 0; i < block_count(); ++i) {
      const auto body = [this, i, apart, places,
                         content_places = tokens.extras.rotation](const torch::Tensor& in) {
        const auto block = static_cast<size_t>(i);
        const Streams out =
            blocks_[block]->two_streams(apart(in), query_projections_[block], content_places, places);
        return torch::cat({out.query, out.content}, 1);
      };
      both = nn::run_unit(both, {.body = body,
                                 .parameters = [&] { return parameters_of_block(i); },
                                 .recompute = checkpointing && is_training()});
    }
    const Streams last = apart(both);
    return {norm_(last.query), norm_(last.content)};
  }

  bool has_two_streams() const override { return config_.two_stream; }

  torch::Tensor query_step(int64_t place, const Cache& cache) override {
    check(config_.two_stream && cache.tokens >= config_.before(),
          "a query needs two streams and the start token before it");
    torch::Tensor x = query_token_.expand({cache.batch, -1, -1});
    if (const torch::Tensor position = position_at(place + config_.before()); position.defined())
      x = x + position;
    const nn::Rotation at = rotation(torch::full({1}, place, torch::kInt64), rows_, columns_);
    for (int64_t i = 0; i < block_count(); ++i) {
      const auto body = [&](const torch::Tensor& in) {
        const auto block = static_cast<size_t>(i);
        return blocks_[block]->query_step(in, query_projections_[block], at, cache.blocks[block]);
      };
      x = nn::run_unit(x, {.body = body, .parameters = [&] { return parameters_of_block(i); }});
    }
    return norm_(x);
  }

  Tokens tokenise(const torch::Tensor& images, const Context&) override {
    Tokens tokens = arrange(images, {}, /*all=*/true);
    tokens.extras.causal = config_.causal;
    return tokens;
  }

  std::string step_refusal() const override {
    return config_.causal ? "" : "model.causal = false sees patches to come";
  }
  std::string next_refusal() const override { return ""; }
  torch::Tensor embed_patches(const torch::Tensor& images) const override {
    check(!reads_tokens(), "a single patch has no token");
    return patch_embed_->forward(nn::patchify(images, config_.patch_size));
  }
  int64_t input_codes() const override { return config_.codes; }
  const std::string& input_tokeniser() const override { return config_.tokeniser; }
  void set_tokens(TokensOf tokens, std::string checksum) override {
    tokens_of_ = std::move(tokens);
    tokens_checksum_ = std::move(checksum);
  }
  const std::string& tokens_checksum() const override { return tokens_checksum_; }
  torch::Tensor embed_tokens(const torch::Tensor& tokens) const override {
    check(reads_tokens(), "a model that reads pixels embeds no tokens");
    return torch::embedding(token_embed_, tokens).unsqueeze(1);
  }
  torch::Tensor front_tokens() const override { return start_token_; }

  // Initialises as MAE (He et al. 2022), since the paper follows its recipe.
  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (name == "head.weight")
      fill.truncated_normal(2e-5);
    else if (name == "start_token" || name == "query_token" || name == "pos_embed")
      fill.normal(0.02);
    else if (parameter.dim() == 2)
      fill.xavier_uniform();
  }

 protected:
  int64_t sequence_length() const override { return rows_ * columns_ + config_.before(); }

  // The start token has no position.
  torch::Tensor position_at(int64_t place) const override {
    const torch::Tensor table = position_table(rows_, columns_);
    const int64_t patch = place - config_.before();
    return patch >= 0 && table.defined() ? table.slice(1, patch, patch + 1) : torch::Tensor();
  }

  torch::Tensor step_block(int64_t index, const torch::Tensor& x, int64_t place,
                           std::vector<torch::Tensor>& state) override {
    const nn::Rotation at =
        rotation(torch::full({1}, place - config_.before(), torch::kInt64), rows_, columns_);
    return blocks_[static_cast<size_t>(index)]->step(x, at, state);
  }

  std::vector<torch::Tensor> parameters_of_block(int64_t index) const override {
    std::vector<torch::Tensor> read = CausalBackbone::parameters_of_block(index);
    if (config_.two_stream)
      for (const torch::Tensor& one : query_projections_[static_cast<size_t>(index)]->parameters())
        read.push_back(one);
    return read;
  }

  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override {
    return blocks_[static_cast<size_t>(index)]->forward(x, tokens.extras, context);
  }

  torch::Tensor norm_tokens(const torch::Tensor& last) override { return norm_(last); }

  torch::Tensor read(const torch::Tensor& x, const TokenPlaces&, const Context&) override {
    return config_.pooling == Pooling::last ? norm_(x.select(1, -1))
                                            : norm_(x).slice(1, config_.before()).mean(1);
  }

 private:
  // Returns the order, or raster order: [patches] or [batch, patches].
  static torch::Tensor order_or_raster(const torch::Tensor& order, int64_t batch, int64_t patches) {
    if (!order.defined()) return torch::arange(patches, torch::kInt64);
    check((order.dim() == 1 || (order.dim() == 2 && order.size(0) == batch)) && order.size(-1) == patches &&
              order.scalar_type() == torch::kInt64,
          "an order of patches is ", order.scalar_type(), " ", order.sizes(), ", must be int64 [", patches,
          "] or [", batch, ", ", patches, "]");
    if (!order.is_cpu() || Recording::is_on()) return order;  // no GPU waits for a look at values
    const torch::Tensor sorted = std::get<0>(order.sort(-1));
    check(torch::equal(sorted, torch::arange(patches, order.options()).expand_as(sorted)), "an order of ",
          patches, " patches must be a permutation of 0 to ", patches - 1);
    return order;
  }

  // Returns rows of x [batch or 1, patches, dim] in the order of all samples or of each.
  static torch::Tensor in_order(const torch::Tensor& x, const torch::Tensor& order) {
    if (order.dim() == 1) return x.index_select(1, ops::kept_on(x.device(), order));
    return rows_at_places(x.expand({order.size(0), -1, -1}), order);
  }

  // Returns the absolute positions of the grid, [1, rows * columns, dim], or undefined.
  torch::Tensor position_table(int64_t rows, int64_t columns) const {
    if (config_.positions == Positions::learned)
      return nn::resample_tokens(pos_embed_, 0, rows_, columns_, rows, columns, nn::Resample::bicubic);
    if (config_.positions != Positions::absolute) return {};
    const torch::Tensor& like = reads_tokens() ? token_embed_ : patch_embed_->weight;
    return ops::kept_on(like.device(), nn::sincos_2d(rows, columns, config_.dim).unsqueeze(0))
        .to(like.scalar_type());
  }

  // Returns the rotation of patches by their index in raster order, [tokens] or [batch, tokens]; -1 is the
  // start token.
  nn::Rotation rotation(const torch::Tensor& places, int64_t rows, int64_t columns) const {
    if (places.dim() == 1) return rotation_of(places, rows, columns);
    const nn::Rotation all = rotation_of(torch::arange(-1, rows * columns, torch::kInt64), rows, columns);
    return rotation_at_places(all, places + 1);
  }

  nn::Rotation rotation_of(const torch::Tensor& places, int64_t rows, int64_t columns) const {
    const int64_t channels = config_.dim / config_.heads;
    const double unit = config_.rope_turns ? 2 * std::numbers::pi : 1;
    const auto share = [&](int64_t built, int64_t now) {
      return unit * (config_.interpolate ? static_cast<double>(built) / static_cast<double>(now) : 1);
    };
    if (!config_.rotary()) return {};
    if (config_.positions == Positions::rope_1d)
      return nn::rotation_1d(places.to(torch::kFloat64) * share(rows_ * columns_, rows * columns), channels,
                             config_.rope_theta);
    const torch::Tensor before = places < 0;
    const torch::Tensor x = torch::remainder(places, columns).masked_fill(before, -1).to(torch::kFloat64);
    const torch::Tensor y = torch::floor_divide(places, columns).masked_fill(before, -1).to(torch::kFloat64);
    const torch::Tensor across = x * share(columns_, columns), down = y * share(rows_, rows);
    if (config_.positions == Positions::rope_mixed) return nn::rotation_mixed(across, down, mixed_);
    return nn::rotation_halves(across, down, channels, config_.rope_theta);
  }

  bool reads_tokens() const { return config_.codes > 0; }

  // Embeds the tokens of images in raster order, [batch, patches, dim].
  torch::Tensor embedded_tokens(const torch::Tensor& images, int64_t rows, int64_t columns) const {
    check(static_cast<bool>(tokens_of_), "this model reads tokens, but model.tokeniser '", config_.tokeniser,
          "' was not opened");
    return torch::embedding(token_embed_, tokens_of_(images, rows, columns));
  }

  // Returns [start, patches in order], with or without the last patch.
  Tokens arrange(const torch::Tensor& images, const torch::Tensor& order, bool all) const {
    const int64_t rows = images.size(2) / config_.patch_size, columns = images.size(3) / config_.patch_size;
    torch::Tensor x = reads_tokens() ? embedded_tokens(images, rows, columns)
                                     : patch_embed_->forward(nn::patchify(images, config_.patch_size));
    if (const torch::Tensor table = position_table(rows, columns); table.defined()) x = x + table;
    torch::Tensor places = order_or_raster(order, images.size(0), rows * columns);
    if (order.defined()) x = in_order(x, order);
    if (!all) {
      x = x.slice(1, 0, -1);
      places = places.slice(-1, 0, -1);
    }
    Tokens tokens;
    tokens.x = config_.start_token ? torch::cat({start_token_.expand({images.size(0), -1, -1}), x}, 1) : x;
    tokens.rows = rows, tokens.columns = columns, tokens.before = config_.before();
    tokens.extras.rotation =
        rotation(torch::constant_pad_nd(places, {config_.before(), 0}, -1), rows, columns);
    return tokens;
  }

  Config config_;
  int64_t rows_ = 0, columns_ = 0;
  torch::Tensor start_token_, query_token_, pos_embed_;
  nn::MixedFrequencies mixed_;       // for positions = "rope_mixed"
  nn::Linear patch_embed_{nullptr};  // for pixels
  torch::Tensor token_embed_;        // for tokens
  TokensOf tokens_of_;
  std::string tokens_checksum_;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::vector<nn::Linear> query_projections_;  // of the query stream, one per block
  nn::LayerNorm norm_{nullptr};
};

Value size(int64_t patch, int64_t dim, int64_t depth, int64_t heads) {
  return table({{"patch_size", patch}, {"dim", dim}, {"depth", depth}, {"heads", heads}});
}

}  // namespace

torch::Tensor patch_order(const std::string& kind, int64_t rows, int64_t columns, int64_t block) {
  check(rows > 0 && columns > 0 && block > 0, "patches of ", rows, " x ", columns, " in blocks of ", block);
  if (kind == "raster") return torch::arange(rows * columns, torch::kInt64);
  std::vector<std::vector<int64_t>> blocks;  // each in raster order
  size_t longest = 0;
  for (int64_t top = 0; top < rows; top += block)
    for (int64_t left = 0; left < columns; left += block) {
      std::vector<int64_t> inside;
      for (int64_t y = top; y < std::min(top + block, rows); ++y)
        for (int64_t x = left; x < std::min(left + block, columns); ++x) inside.push_back(y * columns + x);
      longest = std::max(longest, inside.size());
      blocks.push_back(std::move(inside));
    }
  std::vector<int64_t> order;
  if (kind == "nested") {
    for (const auto& inside : blocks) order.insert(order.end(), inside.begin(), inside.end());
  } else {
    check(kind == "round_robin", "the order of patches is '", kind,
          "', must be raster, nested or round_robin");
    for (size_t round = 0; round < longest; ++round)
      for (const auto& inside : blocks)
        if (round < inside.size()) order.push_back(inside[round]);
  }
  return torch::tensor(order, torch::kInt64);
}

Family darl::family() {
  return make_family<Darl, Config>("darl", "DARL: a causal ViT with decomposed 2-D RoPE",
                                   {
                                       {"darl_base_patch16_224", {"darl-b16"}, size(16, 768, 12, 12)},
                                       {"darl_large_patch16_224", {"darl-l16"}, size(16, 1024, 24, 16)},
                                       {"darl_huge_patch14_224", {"darl-h14"}, size(14, 1280, 32, 16)},
                                   });
}

}  // namespace tessera::models
