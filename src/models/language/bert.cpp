#include "models/language/bert.h"

#include "core/error.h"
#include "core/text.h"
#include "models/language/language_model.h"
#include "ops/attention.h"

namespace tessera::models {
namespace {

constexpr double kPadded = -1e9;  // score of a padding token, far below any other
constexpr double kBertDeviation = 0.02;

torch::Tensor embedding_at(torch::nn::Module& root, const std::string& path, int64_t rows, int64_t width) {
  auto holder = std::make_shared<torch::nn::Module>();
  torch::Tensor weight = holder->register_parameter("weight", nn::zeros({rows, width}));
  register_at(root, path, holder);
  return weight;
}

nn::Linear linear_at(torch::nn::Module& root, const std::string& path, int64_t in, int64_t out) {
  nn::Linear layer(in, out);
  register_at(root, path, layer.ptr());
  return layer;
}

nn::LayerNorm norm_at(torch::nn::Module& root, const std::string& path, const BertConfig& config) {
  nn::LayerNorm norm(config.dim, nn::LayerNormOptions{.eps = config.eps});
  register_at(root, path, norm.ptr());
  return norm;
}

int64_t whole_number(const Value& tree, const char* key, int64_t otherwise, const std::string& where) {
  const Value* found = tree.find(key);
  if (!found) return otherwise;
  if (!found->is_int()) fail_usage(where, ": ", key, " is ", found->type_name(), ", must be an integer");
  return found->as_int();
}

std::string word_of(const Value& tree, const char* key, const std::string& otherwise) {
  const Value* found = tree.find(key);
  return found && found->is_string() ? found->as_string() : otherwise;
}

}  // namespace

void BertConfig::check() const {
  if (dim % heads != 0) fail_usage("bert.dim = ", dim, ", must be a multiple of bert.heads = ", heads);
  if (activation == Activation::published)
    fail_usage("bert.activation = \"published\", must be gelu, gelu_tanh, quick_gelu, relu or silu");
}

BertConfig bert_config_of(const Value& hub, const std::string& where) {
  const std::string kind = word_of(hub, "model_type", "bert");
  if (kind != "bert") fail_usage(where, ": model_type is '", printable(kind), "', must be bert");
  const std::string positions = word_of(hub, "position_embedding_type", "absolute");
  if (positions != "absolute")
    fail_usage(where, ": position_embedding_type is '", printable(positions), "', must be absolute");
  BertConfig config;
  config.vocabulary = whole_number(hub, "vocab_size", 30522, where);
  config.dim = whole_number(hub, "hidden_size", 768, where);
  config.depth = whole_number(hub, "num_hidden_layers", 12, where);
  config.heads = whole_number(hub, "num_attention_heads", 12, where);
  config.hidden = whole_number(hub, "intermediate_size", 3072, where);
  config.context = whole_number(hub, "max_position_embeddings", 512, where);
  config.segments = whole_number(hub, "type_vocab_size", 2, where);
  config.activation = published_activation(word_of(hub, "hidden_act", "gelu"), where + ": hidden_act");
  if (const Value* eps = hub.find("layer_norm_eps"); eps && eps->is_number()) config.eps = eps->as_double();
  config = read_config<BertConfig>(write_config(config), where);
  config.check();
  return config;
}

Bert::Bert(const BertConfig& config, const BertHeads& heads) : config_(config) {
  config_.check();
  const std::string embeddings = "bert.embeddings.";
  words_ = embedding_at(*this, embeddings + "word_embeddings", config.vocabulary, config.dim);
  positions_ = embedding_at(*this, embeddings + "position_embeddings", config.context, config.dim);
  segments_ = embedding_at(*this, embeddings + "token_type_embeddings", config.segments, config.dim);
  embedding_norm_ = norm_at(*this, embeddings + "LayerNorm", config);
  for (int64_t i = 0; i < config.depth; ++i) blocks_.push_back(make_block(i));
  if (heads.classes > 0 || heads.pooled)
    pooler_ = linear_at(*this, "bert.pooler.dense", config.dim, config.dim);
  if (heads.tokens) {
    transform_ = linear_at(*this, "cls.predictions.transform.dense", config.dim, config.dim);
    transform_norm_ = norm_at(*this, "cls.predictions.transform.LayerNorm", config);
    token_bias_ = named_children()["cls"]->named_children()["predictions"]->register_parameter(
        "bias", nn::zeros({config.vocabulary}));
  }
  if (heads.classes > 0) classifier_ = linear_at(*this, "classifier", config.dim, heads.classes);
}

Bert::Block Bert::make_block(int64_t index) {
  const std::string path = text("bert.encoder.layer.", index, ".");
  const int64_t dim = config_.dim, hidden = config_.hidden_width();
  Block block;
  block.query = linear_at(*this, path + "attention.self.query", dim, dim);
  block.key = linear_at(*this, path + "attention.self.key", dim, dim);
  block.value = linear_at(*this, path + "attention.self.value", dim, dim);
  block.out = linear_at(*this, path + "attention.output.dense", dim, dim);
  block.attention_norm = norm_at(*this, path + "attention.output.LayerNorm", config_);
  block.up = linear_at(*this, path + "intermediate.dense", dim, hidden);
  block.down = linear_at(*this, path + "output.dense", hidden, dim);
  block.output_norm = norm_at(*this, path + "output.LayerNorm", config_);
  return block;
}

torch::Tensor Bert::run_block(const Block& block, const torch::Tensor& x, const torch::Tensor& bias) const {
  const auto heads = [&](const nn::Linear& layer) {
    return layer->forward(x).unflatten(-1, {config_.heads, -1}).transpose(1, 2);
  };
  const torch::Tensor attended =
      ops::attention(heads(block.query), heads(block.key), heads(block.value), {.bias = bias})
          .transpose(1, 2)
          .flatten(2);
  const torch::Tensor y = block.attention_norm->forward(block.out->forward(attended, {.residual = x}));
  const torch::Tensor inner = activate(block.up->forward(y), config_.activation);
  return block.output_norm->forward(block.down->forward(inner, {.residual = y}));
}

torch::Tensor Bert::hidden(const BertInput& input) const {
  const torch::Tensor& ids = input.ids;
  check(ids.dim() == 2 && ids.size(1) <= config_.context, "texts of ", ids.sizes(),
        " tokens, must be [batch, at most ", config_.context, "]");
  const torch::Tensor segments =
      input.segments.defined() ? at::embedding(segments_, input.segments) : segments_[0];
  torch::Tensor x =
      embedding_norm_->forward(at::embedding(words_, ids) + segments + positions_.slice(0, 0, ids.size(1)));
  torch::Tensor bias;
  if (input.mask.defined())
    bias = torch::zeros({ids.size(0), 1, 1, ids.size(1)}, x.options().requires_grad(false))
               .masked_fill(~input.mask.to(torch::kBool).view({ids.size(0), 1, 1, ids.size(1)}), kPadded);
  for (size_t i = 0; i < blocks_.size(); ++i)
    x = nn::run_unit(
        x, {.body = [this, i, bias](const torch::Tensor& in) { return run_block(blocks_[i], in, bias); },
            .parameters = [&] { return unit(i); },
            .recompute = checkpointing && is_training()});
  return x;
}

std::vector<torch::Tensor> Bert::unit(size_t index) const {
  return parameters_at(*this, text("bert.encoder.layer.", index));
}

std::vector<std::vector<torch::Tensor>> Bert::units() const {
  std::vector<std::vector<torch::Tensor>> all;
  for (size_t i = 0; i < blocks_.size(); ++i) all.push_back(unit(i));
  return all;
}

torch::Tensor Bert::token_scores(const torch::Tensor& hidden) const {
  check(!transform_.is_empty(), "this BERT has no head for tokens");
  const torch::Tensor x = transform_norm_->forward(activate(transform_->forward(hidden), config_.activation));
  return at::linear(x, words_, token_bias_);
}

torch::Tensor Bert::pooled(const torch::Tensor& hidden) const {
  check(!pooler_.is_empty(), "this BERT has no pooler");
  return pooler_->forward(hidden.select(1, 0)).tanh();
}

torch::Tensor Bert::class_scores(const torch::Tensor& hidden) const {
  check(!classifier_.is_empty(), "this BERT has no head for classes");
  return classifier_->forward(pooled(hidden));
}

void Bert::initialise(uint64_t seed) {
  nn::initialise(*this, seed, [](const std::string&, const torch::Tensor& parameter, const nn::Filler& fill) {
    if (parameter.dim() == 2) fill.normal(kBertDeviation);
  });
}

int64_t Bert::macs(int64_t tokens) const {
  const int64_t dim = config_.dim, layers = 4 * dim * dim + 2 * dim * config_.hidden_width();
  int64_t total = config_.depth * tokens * (layers + 2 * tokens * dim);
  if (!transform_.is_empty()) total += tokens * (dim * dim + dim * config_.vocabulary);
  if (!pooler_.is_empty()) total += dim * dim;
  if (!classifier_.is_empty()) total += classifier_->macs();
  return total;
}

torch::Tensor bert_class_loss(const torch::Tensor& scores, const torch::Tensor& labels) {
  const torch::Tensor wide = scores.scalar_type() == torch::kFloat64 ? scores : scores.to(torch::kFloat32);
  if (wide.size(1) == 1) return (wide.squeeze(1) - labels.to(wide.scalar_type())).square().sum();
  return at::cross_entropy_loss(wide, labels, {}, at::Reduction::Sum);
}

}  // namespace tessera::models
