#include "tasks/language/few_shot.h"

#include <algorithm>
#include <unordered_set>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"

namespace tessera::tasks {
namespace {

constexpr std::string_view kText = "{text}", kPair = "{pair}", kLabel = "{label}";
constexpr int64_t kRows = 64;  // labels that are scored at a time

// Fills {text} and {pair}; their own content is not searched.
std::string filled(std::string_view pattern, const std::vector<std::string>& texts) {
  std::string out;
  while (!pattern.empty()) {
    const bool text = pattern.starts_with(kText), pair = pattern.starts_with(kPair);
    if (text || pair) {
      const size_t index = text ? 0 : 1;
      if (index < texts.size()) out += texts[index];
      pattern.remove_prefix((text ? kText : kPair).size());
    } else {
      out += pattern[0];
      pattern.remove_prefix(1);
    }
  }
  return out;
}

std::vector<int64_t> wide(const std::vector<int32_t>& ids) { return {ids.begin(), ids.end()}; }

size_t common_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(end - a.begin());
}

void report_progress(const FewShot::Progress& progress, int64_t done, const char* what) {
  if (progress && !progress(done))
    throw Error(ErrorKind::interrupted, text("interrupted after ", done, " ", what, " texts"));
}

}  // namespace

ShotPattern::ShotPattern(const std::string& pattern, const std::string& who) {
  const size_t at = pattern.find(kLabel), text = pattern.find(kText);
  if (text == std::string::npos || at == std::string::npos || text > at ||
      pattern.find(kLabel, at + 1) != std::string::npos)
    fail_usage(who, " '", printable(pattern), "' must have {text}, and then {label} once");
  before_ = pattern.substr(0, at), after_ = pattern.substr(at + kLabel.size());
}

std::string ShotPattern::question(const std::vector<std::string>& texts) const {
  return filled(before_, texts);
}

std::string ShotPattern::example(const std::vector<std::string>& texts, const std::string& label) const {
  return question(texts) + label + filled(after_, texts);
}

std::vector<int64_t> drawn_shots(int64_t size, int64_t shots, uint64_t seed, int64_t question) {
  check(shots <= size, shots, " examples of ", size, " samples");
  RandomStream random(seed, "examples of a prompt", static_cast<uint64_t>(question));
  std::vector<int64_t> drawn;
  std::unordered_set<int64_t> seen;
  while (std::ssize(drawn) < shots)
    if (const int64_t one = random.integer(0, size - 1); seen.insert(one).second) drawn.push_back(one);
  return drawn;
}

int64_t ShotTokens::length() const {
  size_t longest = 0;
  for (const auto& label : labels) longest = std::max(longest, label.size());
  return static_cast<int64_t>(prompt.size() + longest);
}

ShotTokens shot_tokens(const Tokeniser& tokeniser, const std::string& prompt,
                       const std::vector<std::string>& labels) {
  const std::vector<int32_t> alone = tokeniser.encode(prompt, /*special=*/false);
  size_t shared = alone.size();
  std::vector<std::vector<int32_t>> whole;
  for (const std::string& label : labels) {
    check(!trim(label).empty(), "a label has no characters");
    whole.push_back(tokeniser.encode(prompt + label, /*special=*/false));
    shared = std::min(shared, common_prefix(alone, whole.back()));
  }
  ShotTokens out;
  // The token that begins a text, if the tokeniser adds one.
  const std::vector<int32_t> special = tokeniser.encode("", /*special=*/true);
  if (!special.empty() && special[0] == tokeniser.special().begin) out.prompt.push_back(special[0]);
  const auto split = static_cast<std::ptrdiff_t>(shared);
  const std::vector<int64_t> ids = wide(alone);
  out.prompt.insert(out.prompt.end(), ids.begin(), ids.begin() + split);
  for (const std::vector<int32_t>& one : whole) out.labels.emplace_back(one.begin() + split, one.end());
  check(!out.prompt.empty(), "a prompt has no token before its label");
  return out;
}

torch::Tensor label_likelihoods(models::LanguageModel& model, const ShotTokens& tokens,
                                torch::Device device) {
  const torch::NoGradGuard no_grad;
  const auto integers = torch::TensorOptions(torch::kInt64);
  const auto read = static_cast<int64_t>(tokens.prompt.size()) - 1;  // tokens that all rows share
  models::KeyValueCache shared;
  if (read > 0)
    model.hidden({.ids = torch::tensor(tokens.prompt, integers).slice(0, 0, read).unsqueeze(0).to(device),
                  .cache = &shared});
  const auto count = std::ssize(tokens.labels);
  const int64_t longest = tokens.length() - std::ssize(tokens.prompt);
  torch::Tensor out = torch::zeros({count}, torch::kFloat64);
  for (int64_t first = 0; first < count; first += kRows) {
    const int64_t rows = std::min(kRows, count - first);
    // Each row has the last token of the prompt and those of a label, then padding, which no token before it sees.
    torch::Tensor ids = torch::zeros({rows, longest + 1}, integers), aims = torch::full_like(ids, -1);
    for (int64_t row = 0; row < rows; ++row) {
      const std::vector<int64_t>& label = tokens.labels[static_cast<size_t>(first + row)];
      const torch::Tensor own = torch::tensor(label, integers);
      ids[row].slice(0, 1, 1 + own.size(0)).copy_(own);
      aims[row].slice(0, 0, own.size(0)).copy_(own);
    }
    ids.select(1, 0).fill_(tokens.prompt.back());
    ids = ids.slice(1, 0, longest).contiguous().to(device), aims = aims.slice(1, 0, longest).to(device);
    models::KeyValueCache cache = shared;
    if (read > 0) cache.select(torch::zeros({rows}, integers.device(device)));
    const torch::Tensor logits = model.forward({.ids = ids, .cache = read > 0 ? &cache : nullptr});
    const torch::Tensor each = logits.to(torch::kFloat64)
                                   .log_softmax(-1)
                                   .gather(2, aims.clamp_min(0).unsqueeze(2))
                                   .squeeze(2)
                                   .masked_fill(aims < 0, 0);
    out.slice(0, first, first + rows).copy_(each.sum(1));
  }
  return out;
}

// --- a set of questions

FewShot::FewShot(const FewShotOptions& options, Tokeniser tokeniser, const data::Source& examples,
                 const data::Source& questions, const Progress& progress)
    : options_(options),
      pattern_(options.pattern, "--prompt"),
      tokeniser_(std::move(tokeniser)),
      examples_(examples),
      questions_(questions),
      labels_(data::require_labels(questions, "--shots")) {
  data::require_labels(examples, "--shots");
  check(questions_.size() > 0, questions_.describe(), ": there is no text to classify");
  if (questions_.read(0).annotation.captions.empty())
    fail_usage("--shots: ", questions_.describe(),
               " has no texts, such as those of --data text:classes,FILE.jsonl");
  if (labels_.class_names().size() < 2)
    fail_usage("--shots: ", questions_.describe(), " has one class, must have several");
  if (options_.shots > examples_.size())
    fail_usage("--shots ", options_.shots, ": ", examples_.describe(), " has ", examples_.size(),
               " texts for examples");
  if (options_.context > 0) tokenise_all(progress);
}

void FewShot::tokenise_all(const Progress& progress) {
  std::vector<ShotTokens> all;
  for (int64_t i = 0; i < questions_.size(); ++i) {
    all.push_back(tokens(i, options_.shots));
    const int64_t length = all.back().length();
    if (length > options_.context)
      fail_usage("--shots ", options_.shots, ": the prompt of ", questions_.read(i).name, " has ", length,
                 " tokens, the model reads ", options_.context, ": fewer examples or shorter texts fit");
    report_progress(progress, i + 1, "tokenised");
  }
  longest_ = std::move(all);
}

ShotTokens FewShot::tokens(int64_t question, int64_t shots) const {
  if (shots == options_.shots && !longest_.empty()) return longest_.at(static_cast<size_t>(question));
  std::string prompt;
  const data::ClassLabels& labels = *examples_.class_labels();
  for (const int64_t i : drawn_shots(examples_.size(), shots, options_.seed, question))
    prompt += pattern_.example(examples_.read(i).annotation.captions,
                               labels.class_names().at(static_cast<size_t>(labels.label(i))));
  prompt += pattern_.question(questions_.read(question).annotation.captions);
  return shot_tokens(tokeniser_, prompt, labels_.class_names());
}

ShotScores FewShot::measure(models::LanguageModel& model, torch::Device device, int64_t shots,
                            const Progress& progress) const {
  check(shots <= options_.shots, shots, " shots, must be at most ", options_.shots);
  ShotScores out{.samples = questions_.size()};
  for (int64_t i = 0; i < out.samples; ++i) {
    const torch::Tensor scores = label_likelihoods(model, tokens(i, shots), device);
    const int64_t label = labels_.label(i);
    out.right += scores.argmax().item<int64_t>() == label;
    out.loss -= scores.log_softmax(0)[label].item<double>() / static_cast<double>(out.samples);
    report_progress(progress, i + 1, "evaluated");
  }
  return out;
}

}  // namespace tessera::tasks
