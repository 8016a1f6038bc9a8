// Missing spans: source and target hold the text, the loss against its formula, and errors.
#include "tasks/language/spans.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/core_testing.h"
#include "core/error.h"
#include "core/text.h"
#include "models/base/family.h"
#include "tasks/language/language_part.h"
#include "text/conversation.h"

namespace tessera::tasks {
namespace {

using models::table;

constexpr int32_t kFirst = 1000;  // sentinels

SpanRule some_rule(double noise, double mean_span) {
  SpanRule rule{.noise = noise, .mean_span = mean_span, .sentinels = {}, .end = 7};
  for (int32_t i = 0; i < 100; ++i) rule.sentinels.push_back(kFirst + i);
  return rule;
}

// Puts the spans of the target in place of the sentinels of the source.
std::vector<int32_t> joined(const SpanText& made) {
  std::map<int32_t, std::vector<int32_t>> spans;
  int32_t current = -1;
  for (size_t i = 0; i + 1 < made.target.size(); ++i)
    if (made.target[i] >= kFirst)
      current = made.target[i];
    else
      spans[current].push_back(made.target[i]);
  std::vector<int32_t> text;
  for (size_t i = 0; i + 1 < made.source.size(); ++i) {
    if (made.source[i] < kFirst) {
      text.push_back(made.source[i]);
      continue;
    }
    const std::vector<int32_t>& span = spans.at(made.source[i]);
    text.insert(text.end(), span.begin(), span.end());
    spans.erase(made.source[i]);
  }
  EXPECT_TRUE(spans.empty());
  return text;
}

TEST(Spans, SourceAndTargetHoldTheText) {
  for (const auto& [noise, mean_span] : {std::pair(0.15, 3.0), {0.5, 3.0}, {0.9, 1.0}, {0.01, 8.0}})
    for (const int64_t length : {2, 3, 7, 16, 60}) {
      const SpanRule rule = some_rule(noise, mean_span);
      const SpanCounts counts = span_counts(rule, length);
      EXPECT_GE(counts.missing, 1);
      EXPECT_LT(counts.missing, length);
      std::vector<int32_t> text(static_cast<size_t>(length));
      for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(10 + i);
      std::set<std::vector<int32_t>> sources;
      for (uint64_t i = 0; i < 40; ++i) {
        RandomStream random(3, "test", i);
        const SpanText made = span_text(rule, text, random);
        EXPECT_EQ(joined(made), text);
        EXPECT_EQ(std::ssize(made.source), length - counts.missing + counts.spans + 1);
        EXPECT_EQ(std::ssize(made.target), counts.missing + counts.spans + 1);
        EXPECT_EQ(made.source.back(), 7);
        EXPECT_EQ(made.target.back(), 7);
        EXPECT_EQ(made.source[0], 10) << "the text begins outside a span";
        EXPECT_EQ(made.target[0], kFirst) << "sentinels count from the first";
        for (size_t k = 1; k < made.source.size(); ++k)
          EXPECT_FALSE(made.source[k] >= kFirst && made.source[k - 1] >= kFirst) << "two spans meet";
        sources.insert(made.source);
      }
      if (length >= 60 && noise == 0.15) {
        EXPECT_GT(sources.size(), 30U);
      }
    }
  EXPECT_EQ(span_counts(some_rule(0.15, 3), 512).missing, 77);
  EXPECT_EQ(span_counts(some_rule(0.15, 3), 512).spans, 26);
  EXPECT_THROW(span_counts(some_rule(0.15, 3), 1), Error);
}

std::unique_ptr<Task> span_task(const std::string& settings = "") {
  TaskSetup setup;
  Value table = parse_toml(
      "form = 'seq2seq'\nlength = 12\nsentinels = 4\n"
      "seq2seq = {dim = 16, heads = 2, hidden = 24, encoder_depth = 1, decoder_depth = 2}\n",
      "task");
  merge(table, parse_toml(settings, "task"));
  setup.settings = language_kind().resolve(table);
  setup.model = models::resolve_model(models::kNoBackbone);
  setup.seed = 3;
  return language_kind().make(setup);
}

// One window of tokens, and a shorter one.
Inputs span_inputs(const Task& task) {
  data::Batch batch;
  batch.size = batch.whole = 2;
  const auto ids = batch.add({"ids", DType::i32, {12}}).values<int32_t>();
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i < 20 ? 3 + 5 * i : kNotLearned);
  task.prepare({&batch, 1}, {.seed = 3, .step = 1});
  Inputs inputs;
  inputs.streams.push_back(to_device(batch, "train", torch::kCPU, Precision::fp32));
  return inputs;
}

// Multiply-adds of span_task(): 12 tokens of the source, 4 of the target, of width 16. T5 and the Transformer have the
// same matrices.
int64_t macs_by_hand(int64_t vocabulary) {
  constexpr int64_t source = 12, target = 4, square = 16 * 16, mlp = 2 * 16 * 24;
  constexpr int64_t encoder = (4 * square + mlp) * source + 2 * 16 * source * source;
  // q, k, v and output of the target's attention, q and output of the memory's, whose k and v read the source.
  constexpr int64_t decoder =
      (6 * square + mlp) * target + 2 * square * source + 2 * 16 * target * (target + source);
  return encoder + 2 * decoder + vocabulary * 16 * target;
}

TEST(SpanTask, TheLossIsThatOfEachTargetTokenFromSourceAndEarlierOnes) {
  for (const std::string kind : {"t5", "transformer"}) {
    const auto task = span_task("seq2seq.kind = '" + kind + "'");
    move(task->parts(), torch::kCPU, torch::kFloat64);
    set_training(task->parts(), true);
    const Inputs inputs = span_inputs(*task);
    const Loss loss = task->loss(inputs, {}, Collective::alone());
    const AnsweringModel answering = dynamic_cast<const Answers&>(*task).answering_model();
    EXPECT_EQ(answering.vocabulary, answering.tokeniser.size());
    models::Seq2Seq& model = *answering.encoder_decoder;
    double expected = 0, tokens = 0;
    for (int64_t row = 0; row < 2; ++row) {
      const auto own = [&](const char* field) {
        const torch::Tensor all = inputs.at(field)[row].to(torch::kInt64);
        return all.index({all >= 0}).unsqueeze(0);
      };
      const torch::Tensor source = own("source"), target = own("target");
      const torch::Tensor memory = model.encode(source, {});
      torch::Tensor before = torch::full({1, 1}, answering.start, torch::kInt64);
      for (int64_t at = 0; at < target.size(1); ++at) {
        const torch::Tensor log_p =
            model.decode(before, {}, memory, {}).select(1, at).squeeze(0).log_softmax(0);
        expected -= log_p[target[0][at].item<int64_t>()].item<double>();
        before = torch::cat({before, target.slice(1, at, at + 1)}, 1);
        ++tokens;
      }
    }
    EXPECT_EQ(task->weight(inputs), tokens);
    EXPECT_NEAR(loss.sum.item<double>(), expected, 1e-8) << kind;
    loss.sum.backward();
    for (const auto& [name, parameter] : named_parameters(task->parts()))
      EXPECT_TRUE(parameter.grad().defined()) << kind << " " << name;
    EXPECT_EQ(task->macs(0), macs_by_hand(answering.vocabulary)) << kind;
  }
}

TEST(SpanTask, RefusesByName) {
  EXPECT_NE(usage_error_of([] { span_task("sentinels = 1\nlength = 40"); }).find("task.sentinels is 1"),
            std::string::npos);
  EXPECT_NE(usage_error_of([] { span_task("language_weights = 'lm'"); }).find("task.language_weights"),
            std::string::npos);
  EXPECT_NE(
      usage_error_of([] { span_task("seq2seq.vocabulary = 100"); }).find("task.seq2seq.vocabulary = 100"),
      std::string::npos);
}

}  // namespace
}  // namespace tessera::tasks
