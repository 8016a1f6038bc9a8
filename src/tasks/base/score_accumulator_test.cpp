#include "tasks/base/score_accumulator.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "core/error.h"
#include "core/random.h"
#include "eval/ranking.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kSamples = 103, kClasses = 7;

// Held-out scores; if `several`, every fourth sample has two classes. Some scores are equal.
struct Drawn {
  explicit Drawn(bool several) : multi_label(several) {
    RandomStream stream(1, "score_accumulator_test");
    for (int64_t i = 0; i < kSamples; ++i) {
      for (int64_t c = 0; c < kClasses; ++c)
        scores.push_back(static_cast<float>(stream.integer(-6, 6)) / 2 + (c == 0 ? 1e-3f : 0));
      labels.push_back(stream.integer(0, kClasses - 1));
      for (int64_t c = 0; c < kClasses; ++c) targets.push_back(stream.chance(0.3) ? 1 : 0);
    }
  }
  bool multi_label;
  std::vector<float> scores, targets;
  std::vector<int64_t> labels;
};

// Scores on process `rank` of `size`; `batch` counts samples of all processes. Sample 40 is broken.
ScoredSamples evaluated(const Drawn& drawn, int64_t batch, int64_t rank = 0, int64_t size = 1,
                        const EvaluateOptions& options = {}) {
  ScoreAccumulator accumulator(kClasses, drawn.multi_label, kSamples);
  for (int64_t before = 0; before < kSamples; before += batch) {
    data::Batch loaded;
    loaded.whole = std::min(batch, kSamples - before);
    const int64_t from = before + loaded.whole * rank / size;
    loaded.first = from;
    loaded.size = before + loaded.whole * (rank + 1) / size - from;
    if (loaded.size == 0) continue;
    const auto rows = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + from * kClasses, all.begin() + (from + loaded.size) * kClasses);
    };
    for (int64_t i = 0; i < loaded.size; ++i) loaded.indices.push_back(from + i == 40 ? 41 : from + i);
    if (drawn.multi_label) {
      const auto targets = rows(drawn.targets);
      std::copy(targets.begin(), targets.end(),
                loaded.add({"targets", DType::f32, {kClasses}}).values<float>().begin());
    } else {
      std::copy_n(drawn.labels.begin() + from, loaded.size,
                  loaded.add({"label", DType::i64, {}}).values<int64_t>().begin());
    }
    std::vector<float> scores = rows(drawn.scores);
    accumulator.add(loaded, torch::from_blob(scores.data(), {loaded.size, kClasses}));
  }
  ScoredSamples out;
  accumulator.finish(options, out);
  return out;
}

std::vector<double> values(const ScoredSamples& scored) {
  std::vector<double> out;
  for (const Metric& metric : scored.metrics) out.push_back(metric.value);
  return out;
}

double metric(const ScoredSamples& scored, const std::string& name) {
  for (const Metric& one : scored.metrics)
    if (one.info.name == name) return one.value;
  fail("no metric ", name);
}

// The same with one thread per process.
std::vector<ScoredSamples> evaluated_together(const Drawn& drawn, int64_t batch, int64_t size) {
  std::vector<std::string> sent(static_cast<size_t>(size));
  std::vector<ScoredSamples> found(sent.size());
  std::barrier<> meeting(size);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      EvaluateOptions options;
      options.gather = [&](const std::string& bytes) {
        sent[static_cast<size_t>(rank)] = bytes;
        meeting.arrive_and_wait();
        const auto all = sent;
        meeting.arrive_and_wait();
        return all;
      };
      found[static_cast<size_t>(rank)] = evaluated(drawn, batch, rank, size, options);
    });
  for (std::thread& thread : threads) thread.join();
  return found;
}

TEST(ScoreAccumulator, NeitherBatchesNorProcessesChangeABit) {
  for (const bool several : {false, true}) {
    const Drawn drawn(several);
    const ScoredSamples whole = evaluated(drawn, kSamples);
    EXPECT_EQ(whole.samples, kSamples - 1) << "the broken one is left out";
    for (const int64_t batch : {1, 5, 64}) EXPECT_EQ(values(evaluated(drawn, batch)), values(whole)) << batch;
    for (const int64_t processes : {2, 3})
      for (const int64_t batch : {2, 16})  // the last batch has fewer samples than processes
        for (const ScoredSamples& part : evaluated_together(drawn, batch, processes)) {
          EXPECT_EQ(values(part), values(whole)) << processes << " processes, batches of " << batch;
          ASSERT_EQ(part.rows.size(), whole.rows.size());
          for (size_t i = 0; i < part.rows.size(); ++i) {
            EXPECT_EQ(part.rows[i].index, whole.rows[i].index);
            EXPECT_EQ(part.rows[i].score.best, whole.rows[i].score.best);
          }
        }
  }
}

TEST(ScoreAccumulator, TheMetricsAreThoseOfAllScoresAtOnce) {
  Drawn drawn(false);
  drawn.scores.erase(drawn.scores.begin() + 40 * kClasses, drawn.scores.begin() + 41 * kClasses);
  drawn.labels.erase(drawn.labels.begin() + 40);
  eval::ClassificationMeter meter(kClasses);
  meter.add(drawn.scores, drawn.labels);
  const ScoredSamples found = evaluated(Drawn(false), 10);
  EXPECT_EQ(metric(found, "top1"), meter.top(1));
  EXPECT_EQ(metric(found, "top5"), meter.top(5));
  EXPECT_EQ(metric(found, "loss"), meter.nll());
}

TEST(ScoreAccumulator, SeveralClassesAreMeasuredClassByClass) {
  const Drawn drawn(true);
  std::vector<eval::LabelScores> by_class;
  int64_t exact = 0;
  for (int64_t c = 0; c < kClasses; ++c) {
    std::vector<float> scores, targets;
    for (int64_t i = 0; i < kSamples; ++i) {
      if (i == 40) continue;
      scores.push_back(drawn.scores[static_cast<size_t>(i * kClasses + c)]);
      targets.push_back(drawn.targets[static_cast<size_t>(i * kClasses + c)]);
    }
    by_class.push_back(eval::label_scores(scores, targets));
  }
  const ScoredSamples found = evaluated(drawn, 10);
  for (const EvaluatedSample& row : found.rows) exact += row.score.right;
  const auto wanted = eval::multilabel_scores(by_class, exact, kSamples - 1);
  EXPECT_EQ(metric(found, "map"), wanted.map);
  EXPECT_EQ(metric(found, "micro_f1"), wanted.micro_f1);
  EXPECT_EQ(metric(found, "macro_f1"), wanted.macro_f1);
  EXPECT_EQ(metric(found, "exact_match"), wanted.exact_match);
}

TEST(ScoreAccumulator, AWrongLabelIsNamed) {
  Drawn drawn(false);
  drawn.labels[7] = kClasses;
  try {
    evaluated(drawn, 10);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "sample 7 has label 7, must be 0 to 6");
  }
}

}  // namespace
}  // namespace tessera::tasks
