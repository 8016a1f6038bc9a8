#include "tasks/pairs/declip.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "models/pairs/two_tower.h"
#include "nn/init.h"

namespace tessera::tasks {
namespace {

torch::Tensor own_places(const torch::Tensor& rows) {
  return torch::arange(rows.size(0), torch::TensorOptions(torch::kInt64).device(rows.device()));
}

std::vector<std::string> words_in(const std::string& caption) {
  std::vector<std::string> words;
  for (const std::string& line : split(caption, '\n'))
    for (const std::string& word : split(line, ' '))
      if (!trim(word).empty()) words.push_back(word);
  return words;
}

class ChangedTextTransform final : public data::Transform {
 public:
  ChangedTextTransform(const TextInput& input, int64_t length, bool draw, double drop_ratio)
      : input_(input),
        draw_(draw),
        drop_ratio_(drop_ratio),
        fields_{{"tokens", DType::i32, {length}}, {"changed_tokens", DType::i32, {length}}} {}
  const std::vector<data::Field>& fields() const override { return fields_; }

  void apply(const data::RawSample& sample, RandomStream& random,
             std::span<const data::Slot> out) const override {
    const auto& captions = sample.annotation.captions;
    check(!captions.empty(), sample.name, ": has no caption");
    const std::string& caption = captions[draw_ ? random.below(captions.size()) : 0];
    const std::string changed = changed_text(caption, drop_ratio_, random);
    for (const auto& [place, words] : {std::pair(0, &caption), std::pair(1, &changed)}) {
      const auto at = static_cast<size_t>(place);
      const std::vector<int32_t> ids = input_.fit(*words, fields_[at].shape[0], sample.name);
      std::copy(ids.begin(), ids.end(), out[at].as<int32_t>());
    }
  }

 private:
  TextInput input_;
  bool draw_;
  double drop_ratio_;
  std::vector<data::Field> fields_;
};

}  // namespace

std::string changed_text(const std::string& caption, double drop_ratio, RandomStream& random) {
  std::vector<std::string> words = words_in(caption);
  if (words.size() < 2) return caption;
  if (random.chance(0.5)) {
    const size_t first = random.below(words.size()), second = random.below(words.size());
    std::swap(words[first], words[second]);
    return join(words, " ");
  }
  std::vector<std::string> kept;
  for (const std::string& word : words)
    if (!random.chance(drop_ratio)) kept.push_back(word);
  return kept.empty() ? words[random.below(words.size())] : join(kept, " ");
}

std::shared_ptr<const data::Transform> make_changed_text_transform(const TextInput& input, int64_t length,
                                                                   bool draw, double drop_ratio) {
  return std::make_shared<ChangedTextTransform>(input, length, draw, drop_ratio);
}

void mask_tokens(const TokenMask& rule, RandomStream& random, std::span<int32_t> ids,
                 std::span<int32_t> targets) {
  for (size_t i = 0; i < ids.size(); ++i) {
    targets[i] = kNotMasked;
    if (ids[i] == rule.start || ids[i] == rule.end || ids[i] == rule.pad) continue;
    if (!random.chance(rule.ratio)) continue;
    targets[i] = ids[i];
    ids[i] = masked_token(ids[i], rule.mask, rule.vocabulary, random);
  }
}

TextBank::TextBank(int64_t size, int64_t width) {
  rows_ = register_buffer("rows", nn::zeros({size, width}));
  pointer_ = register_buffer("pointer", nn::zeros({1}));
}

void TextBank::initialise(uint64_t seed) {
  const torch::NoGradGuard no_grad;
  RandomStream random(seed, "bank of texts");
  const std::vector<double> drawn = bulk_normal(random, static_cast<size_t>(rows_.numel()));
  rows_.copy_(models::normalised_rows(torch::tensor(drawn, torch::kFloat64).view(rows_.sizes())));
}

torch::Tensor TextBank::nearest(const torch::Tensor& texts, int64_t chunk) const {
  const torch::NoGradGuard no_grad;
  // In half precision many of the rows would be equally near.
  const c10::impl::ExcludeDispatchKeyGuard without_autocast(c10::autocast_dispatch_keyset);
  const torch::Tensor bank = models::normalised_rows(rows_), queries = texts.detach().to(bank.scalar_type());
  std::vector<torch::Tensor> places;
  for (int64_t first = 0; first < queries.size(0); first += chunk)
    places.push_back(queries.slice(0, first, first + chunk).mm(bank.t()).argmax(1));
  return bank.index_select(0, torch::cat(places));
}

void TextBank::add(const torch::Tensor& texts) {
  const torch::NoGradGuard no_grad;
  const auto place = static_cast<int64_t>(pointer_.item<double>());
  const int64_t end = std::min(place + texts.size(0), rows_.size(0));
  rows_.slice(0, place, end).copy_(texts.slice(0, 0, end - place));
  pointer_.fill_(static_cast<double>(place + texts.size(0) >= rows_.size(0) ? 0 : end));
}

torch::Tensor simsiam_sum(const torch::Tensor& p, const torch::Tensor& p2, const torch::Tensor& z,
                          const torch::Tensor& z2) {
  const auto cosines = [](const torch::Tensor& predicted, const torch::Tensor& projected) {
    return (models::normalised_rows(predicted) * models::normalised_rows(projected.detach())).sum();
  };
  return -(cosines(p, z2) + cosines(p2, z)) / 2;
}

PairLoss declip_pairs(const DeclipRows& rows, const torch::Tensor& scale, const PairOptions& options) {
  const torch::Tensor own = own_places(rows.images[0]);
  PairLoss all;
  for (const torch::Tensor& images : rows.images)
    for (const torch::Tensor& texts : rows.texts) {
      const PairLoss by_image = softmax_pairs(images, texts, scale, own, options),
                     by_text = softmax_pairs(texts, images, scale, own, options);
      const torch::Tensor sum = (by_image.sum + by_text.sum) / 8;
      all.sum = all.sum.defined() ? all.sum + sum : sum;
      all.right = all.right.defined() ? all.right : by_image.right;
    }
  return all;
}

torch::Tensor declip_nearest(const DeclipRows& rows, const torch::Tensor& scale, const PairOptions& options) {
  const torch::Tensor own = own_places(rows.images[0]);
  torch::Tensor all;
  for (const torch::Tensor& images : rows.images)
    for (const torch::Tensor& texts : rows.neighbours) {
      const torch::Tensor sum = softmax_pairs(images, texts, scale, own, options).sum / 4;
      all = all.defined() ? all + sum : sum;
    }
  return all;
}

DeclipParts::DeclipParts(const DeclipConfig& config, int64_t width, int64_t text_width, int64_t vocabulary) {
  const auto layer = [&](const std::string& name, int64_t from, int64_t to) {
    return register_module(name, nn::Linear(from, to));
  };
  if (config.images > 0) {
    const int64_t hidden = config.hidden;
    projector_ = {layer("projector_linear1", width, hidden), layer("projector_linear2", hidden, hidden),
                  layer("projector_linear3", hidden, hidden)};
    predictor_ = {layer("predictor_linear1", hidden, config.bottleneck),
                  layer("predictor_layer2", config.bottleneck, hidden)};
    for (size_t i = 0; i < norms_.size(); ++i)
      norms_[i] =
          register_module(i < 3 ? text("projector_bn", i + 1) : "predictor_bn1",
                          std::make_shared<WholeBatchNorm>(i < 3 ? hidden : config.bottleneck,
                                                           WholeBatchNorm::Options{.running = false}));
  }
  if (config.texts > 0) token_scores_ = layer("text_label_predictor", text_width, vocabulary);
  if (config.nearest > 0) bank_ = register_module("bank", std::make_shared<TextBank>(config.bank, width));
}

void DeclipParts::initialise(uint64_t seed) {
  nn::initialise(*this, seed, [](const std::string&, const torch::Tensor& parameter, const nn::Filler& fill) {
    if (parameter.dim() == 2) fill.fan_in_uniform(parameter.size(1));
  });
  if (bank_) bank_->initialise(seed);
}

torch::Tensor DeclipParts::project(const torch::Tensor& x, int64_t whole, Collective& others) const {
  torch::Tensor y = x;
  for (size_t i = 0; i < 3; ++i) {
    y = norms_[i]->forward(projector_[i]->forward(y), whole, others);
    if (i < 2) y = y.relu();
  }
  return y;
}

torch::Tensor DeclipParts::predict(const torch::Tensor& z, int64_t whole, Collective& others) const {
  return predictor_[1]->forward(norms_[3]->forward(predictor_[0]->forward(z), whole, others).relu());
}

torch::Tensor DeclipParts::masked_sum(const torch::Tensor& tokens, const torch::Tensor& targets) const {
  const torch::Tensor places = (targets.flatten() >= 0).nonzero().squeeze(1);
  torch::Tensor scores = token_scores_->forward(tokens.flatten(0, 1).index_select(0, places));
  if (scores.scalar_type() != torch::kFloat64) scores = scores.to(torch::kFloat32);
  return at::cross_entropy_loss(scores, targets.flatten().index_select(0, places).to(torch::kInt64), {},
                                at::Reduction::Sum);
}

int64_t DeclipParts::macs() const {
  int64_t total = 0;
  for (const nn::Linear& layer : projector_) total += layer.is_empty() ? 0 : 2 * layer->macs();
  for (const nn::Linear& layer : predictor_) total += layer.is_empty() ? 0 : 2 * layer->macs();
  return total;
}

}  // namespace tessera::tasks
