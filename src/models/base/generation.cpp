#include "models/base/generation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace tessera::models {
namespace {

constexpr double kRemoved = -std::numeric_limits<double>::infinity();
// The score that excludes a beam, as published: a finite number, so that sums with it stay comparable.
constexpr double kOut = -1e9;

torch::Tensor removed(const torch::Tensor& scores, const torch::Tensor& mask) {
  return scores.masked_fill(mask, kRemoved);
}

// Maps a mask over the sorted scores back to the original order.
torch::Tensor unsorted(const torch::Tensor& mask, const torch::Tensor& order) {
  return torch::zeros_like(mask).scatter(1, order, mask);
}

std::vector<int64_t> row_of(const torch::Tensor& ids, int64_t row) {
  const torch::Tensor own = ids[row].to(torch::kCPU, torch::kInt64).contiguous();
  return {own.data_ptr<int64_t>(), own.data_ptr<int64_t>() + own.numel()};
}

torch::Tensor without(const torch::Tensor& scores, const std::vector<int64_t>& tokens) {
  torch::Tensor out = scores.clone();
  for (const int64_t token : tokens)
    if (token >= 0 && token < scores.size(1)) out.select(1, token).fill_(kRemoved);
  return out;
}

bool is_end(int64_t token, const std::vector<int64_t>& ends) {
  return std::find(ends.begin(), ends.end(), token) != ends.end();
}

int64_t draw(const torch::Tensor& scores, uint64_t seed, int64_t row, int64_t position) {
  RandomStream random(seed, "next_token", static_cast<uint64_t>(row), static_cast<uint64_t>(position));
  return draw_token(scores, random);
}

Generated one_by_one(const NextTokenModel& model, const torch::Tensor& prompt,
                     const GenerationOptions& options, int64_t first_row) {
  const int64_t rows = prompt.size(0);
  std::vector<bool> ended(static_cast<size_t>(rows), false);
  torch::Tensor ids = prompt, fresh = prompt;
  for (int64_t step = 0; step < options.max_new_tokens; ++step) {
    const torch::Tensor scores = apply_rules(model.next(fresh), ids, options.rules, options.ends,
                                             prompt.size(1), options.sample, options.padding);
    std::vector<int64_t> tokens = row_of(scores.argmax(1).unsqueeze(0), 0);
    bool open = false;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t& token = tokens[static_cast<size_t>(row)];
      const auto place = static_cast<size_t>(row);
      if (options.sample && !ended[place]) token = draw(scores[row], options.seed, first_row + row, step);
      if (ended[place]) token = options.pad;
      ended[place] = ended[place] || is_end(token, options.ends);
      open = open || !ended[place];
    }
    fresh = torch::tensor(tokens, torch::kInt64).to(prompt.device()).unsqueeze(1);
    ids = torch::cat({ids, fresh}, 1);
    if (options.progress && !options.progress(tokens)) break;
    if (!open) break;
  }
  return {ids, {}};
}

double length_divisor(double length, const GenerationOptions& options) {
  return std::pow(options.gnmt_length ? (5 + length) / 6 : length, options.length_penalty);
}

// Beam search as in the transformers library: `beams` unfinished texts for each prompt, and the best finished
// ones.
class BeamSearch {
 public:
  BeamSearch(const NextTokenModel& model, const torch::Tensor& prompt, const GenerationOptions& options)
      : model_(model), options_(options), prompts_(prompt.size(0)), prompt_(prompt.size(1)) {
    const int64_t beams = options.beams;
    open_ = prompt.repeat_interleave(beams, 0).view({prompts_, beams, prompt_});
    open_scores_ = torch::full({prompts_, beams}, kOut, torch::kFloat64);
    open_scores_.select(1, 0).fill_(0);
    done_ = open_.clone();
    done_scores_ = torch::full({prompts_, beams}, kOut, torch::kFloat64);
    is_done_ = torch::zeros({prompts_, beams}, torch::kBool);
    improvable_ = torch::ones({prompts_, 1}, torch::kBool);
  }

  Generated run() {
    torch::Tensor fresh = open_.flatten(0, 1);
    for (int64_t step = 1; step <= options_.max_new_tokens; ++step) {
      if (options_.stopped && options_.stopped())
        return {open_.slice(1, 0, options_.returned).flatten(0, 1),
                open_scores_.slice(1, 0, options_.returned).flatten()};
      const torch::Tensor rows = advance(model_.next(fresh), step);
      if (finished(step)) break;
      model_.reorder(rows);
      fresh = open_.select(2, -1).flatten().unsqueeze(1);
    }
    return result();
  }

 private:
  // Extends the unfinished texts by one token; returns the rows they came from.
  torch::Tensor advance(const torch::Tensor& scores, int64_t step) {
    const int64_t beams = options_.beams, vocabulary = scores.size(1);
    const int64_t kept =
        std::min(std::max<int64_t>(2, 1 + std::ssize(options_.ends)) * beams, beams * vocabulary);
    torch::Tensor logs = scores.to(torch::kCPU, torch::kFloat64).log_softmax(1);
    const torch::Tensor padding =
        options_.padding.defined() ? options_.padding.repeat_interleave(beams) : torch::Tensor();
    logs = apply_rules(logs, open_.flatten(0, 1), options_.rules, options_.ends, prompt_, options_.sample,
                       padding);
    const torch::Tensor sums =
        (logs.view({prompts_, beams, vocabulary}) + open_scores_.unsqueeze(2)).view({prompts_, -1});
    auto [best, place] = sums.topk(kept, 1);
    const torch::Tensor from = place.div(vocabulary, "floor"), token = place.remainder(vocabulary);
    const torch::Tensor texts = torch::cat(
        {open_.gather(1, from.unsqueeze(2).expand({-1, -1, open_.size(2)})), token.unsqueeze(2)}, 2);
    torch::Tensor ends = torch::full_like(token, step == options_.max_new_tokens, torch::kBool);
    for (const int64_t end : options_.ends) ends = ends | (token == end);
    all_end_ = ends.all().item<bool>();

    const torch::Tensor still = best + ends * kOut;
    const torch::Tensor chosen = std::get<1>(still.topk(beams, 1));
    open_ = rows_of(texts, chosen);
    open_scores_ = still.gather(1, chosen);
    keep_finished(best, texts, ends, step);
    const torch::Tensor base = torch::arange(prompts_, torch::kInt64).unsqueeze(1) * beams;
    return (from.gather(1, chosen) + base).flatten();
  }

  static torch::Tensor rows_of(const torch::Tensor& texts, const torch::Tensor& which) {
    return texts.gather(1, which.unsqueeze(2).expand({-1, -1, texts.size(2)}));
  }

  // Only the first `beams` candidates may end here. With `gnmt_length`, as in Vaswani et al. (2017), a text
  // cut off at the maximum length counts only if no text of its prompt has ended.
  void keep_finished(const torch::Tensor& best, const torch::Tensor& texts, const torch::Tensor& ends,
                     int64_t step) {
    const int64_t beams = options_.beams;
    const torch::Tensor among_first = torch::arange(best.size(1), torch::kInt64).unsqueeze(0) < beams;
    const torch::Tensor ended = ends & among_first;
    torch::Tensor scores = best / length_divisor(static_cast<double>(step), options_);
    if (options_.early_stop == EarlyStop::yes) scores = scores + is_done_.all(1, true) * kOut;
    scores = scores + (~ended) * kOut + (~improvable_) * kOut;
    if (options_.gnmt_length) {
      torch::Tensor by_token = torch::zeros_like(ended);
      for (const int64_t end : options_.ends) by_token = by_token | (texts.select(2, -1) == end);
      const torch::Tensor any = is_done_.any(1, true) | (by_token & among_first).any(1, true);
      scores = scores + (any & ~by_token) * kOut;
    }
    const torch::Tensor padded =
        torch::cat({done_, torch::full({prompts_, beams, 1}, options_.pad, torch::kInt64)}, 2);
    const torch::Tensor all_scores = torch::cat({done_scores_, scores}, 1);
    const auto [top, which] = all_scores.topk(beams, 1);
    done_ = rows_of(torch::cat({padded, texts}, 1), which);
    done_scores_ = top;
    is_done_ = torch::cat({is_done_, ended}, 1).gather(1, which);
  }

  bool finished(int64_t step) {
    const bool furthest = options_.early_stop == EarlyStop::never && options_.length_penalty > 0;
    const double length = static_cast<double>(furthest ? options_.max_new_tokens : step);
    const torch::Tensor possible = open_scores_.slice(1, 0, 1) / length_divisor(length, options_);
    const torch::Tensor worst = torch::where(is_done_, std::get<0>(done_scores_.min(1, true)),
                                             torch::full({1}, kOut, torch::kFloat64));
    improvable_ = improvable_ & (possible > worst).any(1, true);
    const bool all_done = is_done_.all().item<bool>() && options_.early_stop == EarlyStop::yes;
    return !improvable_.any().item<bool>() || all_done || all_end_;
  }

  // Returns the best texts of each prompt, without columns that contain only padding.
  Generated result() const {
    torch::Tensor ids = done_.slice(1, 0, options_.returned).flatten(0, 1);
    int64_t length = ids.size(1);
    while (length > prompt_ && ids.select(1, length - 1).eq(options_.pad).all().item<bool>() &&
           !is_end(options_.pad, options_.ends))
      --length;
    return {ids.slice(1, 0, length), done_scores_.slice(1, 0, options_.returned).flatten()};
  }

  const NextTokenModel& model_;
  const GenerationOptions& options_;
  int64_t prompts_, prompt_;
  torch::Tensor open_, open_scores_, done_, done_scores_, is_done_, improvable_;
  bool all_end_ = false;
};

}  // namespace

int64_t draw_token(const torch::Tensor& scores, RandomStream& random) {
  const torch::Tensor shares = scores.to(torch::kCPU, torch::kFloat64).softmax(0).contiguous();
  const double* at = shares.data_ptr<double>();
  double left = random.uniform();
  int64_t last = 0;
  for (int64_t i = 0; i < shares.numel(); ++i) {
    if (at[i] <= 0) continue;
    last = i;
    left -= at[i];
    if (left < 0) break;
  }
  return last;
}

torch::Tensor penalise_repetition(const torch::Tensor& scores, const torch::Tensor& ids, double penalty,
                                  const torch::Tensor& padding) {
  const int64_t vocabulary = scores.size(1);
  torch::Tensor counted = ids;
  if (padding.defined()) {  // padding counts as an extra id after the vocabulary
    const torch::Tensor place = torch::arange(ids.size(1), ids.options()).unsqueeze(0);
    counted = ids.masked_fill(place < padding.to(ids.device()).unsqueeze(1), vocabulary);
  }
  const torch::Tensor seen =
      torch::zeros({scores.size(0), vocabulary + 1}, scores.options().dtype(torch::kBool))
          .scatter_(1, counted, true)
          .slice(1, 0, vocabulary);
  return torch::where(seen, torch::where(scores < 0, scores * penalty, scores / penalty), scores);
}

torch::Tensor forbid_repeated_ngrams(const torch::Tensor& scores, const torch::Tensor& ids, int64_t length) {
  torch::Tensor out = scores.clone();
  for (int64_t row = 0; row < ids.size(0); ++row) {
    const std::vector<int64_t> tokens = row_of(ids, row);
    const int64_t count = std::ssize(tokens), prefix = length - 1;
    if (count < length) continue;
    for (int64_t start = 0; start + length <= count; ++start)
      if (std::equal(tokens.begin() + start, tokens.begin() + start + prefix, tokens.end() - prefix))
        out[row][tokens[static_cast<size_t>(start + prefix)]] = kRemoved;
  }
  return out;
}

torch::Tensor forbid_words(const torch::Tensor& scores, const torch::Tensor& ids,
                           const std::vector<std::vector<int64_t>>& words) {
  torch::Tensor out = scores.clone();
  for (int64_t row = 0; row < ids.size(0); ++row) {
    const std::vector<int64_t> tokens = row_of(ids, row);
    for (const std::vector<int64_t>& word : words) {
      const std::ptrdiff_t prefix = std::ssize(word) - 1;
      if (prefix < 0 || prefix > std::ssize(tokens)) continue;
      if (std::equal(word.begin(), word.end() - 1, tokens.end() - prefix)) out[row][word.back()] = kRemoved;
    }
  }
  return out;
}

torch::Tensor keep_top_k(const torch::Tensor& scores, int64_t count) {
  const torch::Tensor best = std::get<0>(scores.topk(std::min(count, scores.size(1)), 1));
  return removed(scores, scores < best.slice(1, -1));
}

torch::Tensor keep_top_p(const torch::Tensor& scores, double share) {
  const auto [sorted, order] = scores.sort(1, /*descending=*/false);
  torch::Tensor out = sorted.softmax(1).cumsum(1) <= 1 - share;
  out.slice(1, -1).fill_(false);
  return removed(scores, unsorted(out, order));
}

torch::Tensor keep_min_p(const torch::Tensor& scores, double share) {
  const torch::Tensor shares = scores.softmax(1);
  return removed(scores, shares < share * std::get<0>(shares.max(1, true)));
}

torch::Tensor keep_typical(const torch::Tensor& scores, double share) {
  const torch::Tensor logs = scores.log_softmax(1), shares = logs.exp();
  const torch::Tensor entropy = -(shares * logs).nan_to_num(0).sum(1, true);
  const auto [distance, order] = ((-logs) - entropy).abs().sort(1, /*descending=*/false);
  const torch::Tensor together = scores.gather(1, order).softmax(1).cumsum(1);
  const torch::Tensor last = (together < share).sum(1, true).clamp_max(scores.size(1) - 1);
  return removed(scores, unsorted(distance > distance.gather(1, last), order));
}

torch::Tensor keep_epsilon(const torch::Tensor& scores, double least) {
  const torch::Tensor best = std::get<0>(scores.max(1, true));
  return removed(scores, (scores.softmax(1) < least) & (scores < best));
}

torch::Tensor apply_rules(torch::Tensor scores, const torch::Tensor& ids, const TokenRules& rules,
                          const std::vector<int64_t>& ends, int64_t prompt, bool draws,
                          const torch::Tensor& padding) {
  if (rules.repetition_penalty != 1)
    scores = penalise_repetition(scores, ids, rules.repetition_penalty, padding);
  if (rules.no_repeat_ngram > 0) scores = forbid_repeated_ngrams(scores, ids, rules.no_repeat_ngram);
  if (!rules.bad_words.empty()) scores = forbid_words(scores, ids, rules.bad_words);
  const int64_t least = rules.min_new_tokens > 0 ? prompt + rules.min_new_tokens : rules.min_length;
  if (ids.size(1) < least) scores = without(scores, ends);
  if (!draws) return scores;
  // Scores divided by a tiny temperature would overflow, so their differences from the largest score are
  // used.
  constexpr double kTiny = 1e-6, kLeast = 1e-30;
  if (rules.temperature < kTiny)
    scores = (scores - std::get<0>(scores.max(1, true))) / std::max(rules.temperature, kLeast);
  else if (rules.temperature != 1)
    scores = scores / rules.temperature;
  if (rules.top_k > 0) scores = keep_top_k(scores, rules.top_k);
  if (rules.top_p < 1) scores = keep_top_p(scores, rules.top_p);
  if (rules.min_p > 0) scores = keep_min_p(scores, rules.min_p);
  if (rules.typical_p < 1) scores = keep_typical(scores, rules.typical_p);
  if (rules.epsilon > 0) scores = keep_epsilon(scores, rules.epsilon);
  return scores;
}

Generated generate(const NextTokenModel& model, const torch::Tensor& prompt, const GenerationOptions& options,
                   int64_t first_row) {
  check(prompt.dim() == 2 && prompt.size(1) > 0 && prompt.scalar_type() == torch::kInt64, "a prompt is ",
        prompt.sizes(), ", must be int64 [rows, at least one token]");
  if (options.beams > 1 && options.sample)
    fail_usage("beams search for the best text: they do not draw samples");
  if (options.returned > options.beams)
    fail_usage(options.returned, " texts are to be returned, but there are only ", options.beams, " beams");
  if (options.rules.temperature <= 0)
    fail_usage("temperature = ", options.rules.temperature, ", must be above 0");
  if (!(options.rules.top_p > 0 && options.rules.top_p <= 1))
    fail_usage("top-p = ", options.rules.top_p, ", must be above 0 and at most 1");
  const torch::NoGradGuard no_grad;
  if (options.beams == 1) return one_by_one(model, prompt, options, first_row);
  return BeamSearch(model, prompt, options).run();
}

}  // namespace tessera::models
