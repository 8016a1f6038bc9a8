#include "tasks/language/language_part.h"

#include <cmath>

#include "core/error.h"
#include "io/files/file.h"
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

Loss token_loss(const torch::Tensor& logits, const torch::Tensor& labels, double count) {
  const torch::Tensor right = (logits.detach().argmax(-1) == labels).sum();
  return {at::cross_entropy_loss(logits.flatten(0, 1), labels.flatten(), {}, at::Reduction::Sum, kNotLearned),
          {{right.to(torch::kFloat32), count}}};
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
