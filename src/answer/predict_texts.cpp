// Classes of texts that are served.
#include <cmath>

#include "answer/predict.h"
#include "core/text.h"
#include "io/files/json.h"
#include "tasks/language/bert.h"

namespace tessera::answer {
namespace {

constexpr size_t kMostBytesOfTexts = size_t{1} << 20;  // of a request

struct TextOptions : PredictOptions {
  std::string words, pair;
  template <class V>
  void visit(V& v) {
    v("text", words, "the text");
    v("pair", pair, "second text of a pair");
    PredictOptions::visit(v);
  }
};

struct PreparedText : Prepared {
  TextOptions options;
};

class TextPredictions final : public Answerer {
 public:
  TextPredictions(const AnswerSetup& setup, tasks::TextClasses& classes) : setup_(setup), classes_(classes) {
    description_.kind = "predict";
    description_.summary = "the most likely classes of texts";
    description_.options = describe_options<TextOptions>();
    description_.outputs = {{"class", Datatype::bytes, {1, -1}, "[1, best first]"},
                            {"index", Datatype::int64, {1, -1}, "numbers of the classes"},
                            {"probability", Datatype::fp64, {1, -1}, "their probabilities"}};
    description_.details = details_of(*setup_.model);
    description_.details.erase("preprocessing");
  }
  const Description& description() const override { return description_; }

  std::unique_ptr<Prepared> prepare(const Request& request) const override {
    check_inputs(request, description_);
    auto prepared = std::make_unique<PreparedText>();
    prepared->options = read_options<TextOptions>(request.options);
    const TextOptions& options = prepared->options;
    options.check();
    if (trim(options.words).empty()) fail_usage("option 'text' is empty, must be a text");
    prepared->bytes = options.words.size() + options.pair.size();
    if (prepared->bytes > kMostBytesOfTexts)
      throw TooLarge(text("the texts have ", human_bytes(prepared->bytes), ", must have at most ",
                          human_bytes(kMostBytesOfTexts)));
    prepared->key = std::to_string(options.top);
    return prepared;
  }

  std::vector<Reply> answer(std::span<Prepared* const> requests, const Control&) override {
    const torch::InferenceMode inference;
    const tasks::AutocastScope autocast = setup_.model->autocast();
    std::vector<tasks::GivenText> texts;
    for (const Prepared* one : requests) {
      const TextOptions& options = static_cast<const PreparedText&>(*one).options;
      texts.push_back({options.words, options.pair});
    }
    const int64_t top = static_cast<const PreparedText&>(*requests[0]).options.top;
    std::vector<Reply> replies;
    for (const tasks::Prediction& one : classes_.predict_texts(texts, top)) {
      if (!tasks::gives_numbers(one)) require_finite(*setup_.model, torch::full({}, std::nan("")));
      replies.push_back({.outputs = columns_of({one}), .results = {}});
      replies.back().results.push_back({{"predictions", json_of(one)}});
    }
    return replies;
  }

 private:
  AnswerSetup setup_;
  tasks::TextClasses& classes_;
  Description description_;
};

}  // namespace

std::shared_ptr<Answerer> open_text_predictions(const AnswerSetup& setup) {
  auto* classes = ability_of<tasks::TextClasses>(setup.model->task());
  return classes && !setup.model->task().output_names().empty()
             ? std::make_shared<TextPredictions>(setup, *classes)
             : nullptr;
}

}  // namespace tessera::answer
