#include "tasks/language/language_part.h"

#include <cmath>

#include "core/error.h"
#include "io/files/file.h"
#include "nn/layer_division.h"
#include "nn/own_rows.h"
#include "text/bpe_trainer.h"
#include "text/conversation.h"

namespace tessera::tasks {
namespace {

constexpr const char* kBytes = "bytes";

// Byte-level BPE without merges.
Tokeniser tokeniser_of_bytes() {
  BpeTrainer trainer({.vocabulary = 257, .least = 2, .special = {"<|endoftext|>"}});
  trainer.add("a");
  return Tokeniser::from_definition(trainer.learn(), kBytes);
}

}  // namespace

std::optional<Tokeniser> open_task_tokeniser(const std::string& path, int64_t vocabulary,
                                             const TaskSetup& setup, const std::string& who) {
  if (const Value* stored = setup.metadata.find("tokenizer"); stored && stored->is_string())
    return Tokeniser::from_definition(stored->as_string(), setup.file + ": tokenizer");
  if (path.empty()) fail_usage(who, " needs task.tokenizer, a tokenizer.json or another form, or \"bytes\"");
  if (path == kBytes) return tokeniser_of_bytes();
  // If it is neither initialised nor continued from a run, the model is only described, for a plan.
  const bool described = setup.meta || (!setup.draws() && !setup.continued);
  if (described && !file_exists(path)) {
    if (vocabulary > 1) return std::nullopt;
    fail("task.tokenizer: cannot open '", path, "'");
  }
  return Tokeniser::load(path);
}

int32_t separator_of(const Tokeniser& tokeniser, const std::string& path) {
  const SpecialTokens& special = tokeniser.special();
  for (const int32_t id : {special.end, special.begin})
    if (id >= 0) return id;
  if (const auto id = tokeniser.find("<|endoftext|>")) return *id;
  fail_usage("task.tokenizer = \"", path, "\" has no token that ends a text, such as <|endoftext|>");
}

torch::Tensor token_sums(const torch::Tensor& logits, const torch::Tensor& labels) {
  const torch::Tensor learned = labels >= 0;
  const torch::Tensor losses = at::cross_entropy_loss(logits.to(torch::kFloat64).flatten(0, 1),
                                                      labels.flatten(), {}, at::Reduction::None, kNotLearned)
                                   .view_as(labels);
  const torch::Tensor right = (logits.argmax(-1) == labels) & learned;
  return torch::stack({losses.sum(1), learned.sum(1).to(torch::kFloat64), right.sum(1).to(torch::kFloat64)},
                      1);
}

namespace {

// Returns the cross entropy from logits [tokens, own words]; each process has other words (Shoeybi et al. 2019, section 3).
Loss divided_token_loss(const torch::Tensor& logits, const torch::Tensor& labels, const nn::Share& own,
                        const nn::LayerDivision& division) {
  const torch::Tensor largest = [&] {
    const torch::NoGradGuard no_grad;
    const torch::Tensor each = torch::zeros({division.size(), logits.size(0)}, logits.options());
    each[division.rank()].copy_(logits.amax(1));
    division.sum(each);
    return each.amax(0);
  }();
  const torch::Tensor place = labels - own.first, inside = (place >= 0) & (place < own.count);
  const torch::Tensor term = logits.gather(1, place.clamp(0, own.count - 1).unsqueeze(1)).squeeze(1);
  const torch::Tensor wanted = nn::leave_division(term.masked_fill(~inside, 0), division),
                      total = nn::leave_division((logits - largest.unsqueeze(1)).exp().sum(1), division),
                      learned = labels != kNotLearned;
  const torch::Tensor right = ((wanted.detach() >= largest) & learned).sum();
  return {(total.log() + largest - wanted).masked_fill(~learned, 0).sum(), {right_tokens(right, labels)}};
}

}  // namespace

Term right_tokens(const torch::Tensor& right, const torch::Tensor& labels) {
  return {right.to(torch::kFloat32) / (labels != kNotLearned).sum().to(torch::kFloat32), 1};
}

Loss token_loss(const torch::Tensor& logits, const torch::Tensor& labels, int64_t words) {
  if (logits.size(-1) < words) {
    const nn::LayerDivision* const division = nn::division_of(words);
    check(division && logits.size(-1) == division->share_of(words).count, "logits of ", logits.size(-1),
          " words, the vocabulary has ", words);
    return divided_token_loss(logits.flatten(0, 1), labels.flatten(), division->share_of(words), *division);
  }
  const torch::Tensor right = (logits.detach().argmax(-1) == labels).sum();
  return {at::cross_entropy_loss(logits.flatten(0, 1), labels.flatten(), {}, at::Reduction::Sum, kNotLearned),
          {right_tokens(right, labels)}};
}

std::vector<Metric> token_metrics(const MetricInfo& main, const SampleRows& rows) {
  const torch::Tensor sums = rows.rows().to(torch::kFloat64).sum(0);
  const double total = sums[0].item<double>(), tokens = sums[1].item<double>();
  return {{main, std::exp(total / tokens), tokens > 0},
          mean_metric({"loss", Unit::number, false}, total, tokens),
          mean_metric({"accuracy", Unit::share}, sums[2].item<double>(), tokens)};
}

void copy_language_weights(const models::LanguageModel& stored, const Tokeniser& theirs,
                           models::LanguageModel& model, const Tokeniser& tokeniser,
                           const std::string& path) {
  if (theirs.definition() != tokeniser.definition())
    fail_usage("task.language_weights = \"", path, "\": its tokeniser differs from task.tokenizer");
  const torch::NoGradGuard no_grad;
  const auto parameters = stored.named_parameters();
  const int64_t vocabulary = stored.config().vocabulary;
  for (const auto& entry : model.named_parameters()) {
    if (entry.key().find(".lora_") != std::string::npos) continue;
    const torch::Tensor* found = parameters.find(entry.key());
    torch::Tensor target = entry.value();
    if (found && found->dim() == 2 && found->size(0) == vocabulary && target.size(0) > vocabulary)
      target = target.slice(0, 0, vocabulary);
    if (!found || found->sizes() != target.sizes())
      fail_usage("task.language_weights = \"", path, "\" does not fit task.language: '", entry.key(), "' is ",
                 target.sizes(), ", there ", found ? text("it is ", found->sizes()) : "it is missing");
    if (target.is_same(entry.value()))
      nn::copy_rows(target, *found, /*read=*/false);
    else
      target.copy_(*found);
  }
}

}  // namespace tessera::tasks
