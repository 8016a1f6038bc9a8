// Encoder and decoder learn the missing spans of texts (Raffel et al. 2020, T5, section 3.1.4). A span is a run of
// adjacent tokens. A sentinel is a token that occurs in no text: <0> is <extra_id_0>, <1> is <extra_id_1>.
//
//   text    a b c d e f g          spans have `mean_span` tokens on average, and a share `noise` of all tokens
//   source  a <0> d e <1> </s>     a sentinel replaces each span
//   target  <0> b c <1> f g </s>   each sentinel, then the tokens of its span
//   loss = - sum over the target's tokens of log p(token | source, target before it)
//
// As in the published code, the text begins outside a span and ends with one, so the target ends with a span.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/random.h"
#include "tasks/language/language.h"

namespace tessera::tasks {

struct SpanRule {
  double noise = 0.15, mean_span = 3;
  std::vector<int32_t> sentinels;  // in their order
  int32_t end = 1;
};
// The numbers of a text of `length` tokens, at least 2: missing tokens, and spans.
struct SpanCounts {
  int64_t missing = 0, spans = 0;
};
SpanCounts span_counts(const SpanRule& rule, int64_t length);

// The source and the target of a text, of random spans. Their lengths depend on that of the text alone.
struct SpanText {
  std::vector<int32_t> source, target;
};
SpanText span_text(const SpanRule& rule, std::span<const int32_t> text, RandomStream& random);

// Task language with form = "seq2seq".
std::unique_ptr<Task> make_span_task(const TaskSetup& setup, const LanguageTaskConfig& config);

}  // namespace tessera::tasks
