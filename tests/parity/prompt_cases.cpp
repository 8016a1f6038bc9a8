#include <cmath>
#include <filesystem>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "eval/captioning.h"
#include "tests/parity/case.h"
#include "text/conversation.h"

namespace tessera::parity::prompt_cases {
namespace {

using Json = nlohmann::json;

std::string numbers(const std::vector<int64_t>& ids) {
  std::string out;
  for (const int64_t id : ids) out += text(out.empty() ? "" : " ", id);
  return printable(out, 300);
}

CaseResult check_prompts(const Golden& golden) {
  Comparison comparison;
  const Tokeniser tokeniser = Tokeniser::load(
      golden.directory + "/" + golden.meta.value("tokenizer", "tokenizers/tok_llama_sp/tokenizer.json"));
  int number = 0;
  for (const Json& item : golden.meta.at("cases")) {
    const ChatTemplate& chat = find_template(item.at("template").get<std::string>());
    const std::string what = text("case ", number++, " (", chat.name, ") ");
    std::vector<Turn> turns;
    for (const Json& turn : item.at("conversation"))
      turns.push_back({turn.at("from") == "human", turn.at("value").get<std::string>()});
    const TrainingText got = training_text(tokeniser, chat, turns);
    comparison.holds(what + "text", got.text == item.at("text"), "'" + printable(got.text, 300) + "'");
    comparison.holds(what + "ids", got.ids == item.at("ids").get<std::vector<int64_t>>(), numbers(got.ids));
    comparison.holds(what + "labels", got.labels == item.at("labels").get<std::vector<int64_t>>(),
                     numbers(got.labels));
    const std::string prompt = conversation_text(chat, with_images_first({turns.front()}));
    comparison.holds(what + "prompt", prompt == item.at("first_prompt"), "'" + printable(prompt, 300) + "'");
  }
  return comparison.result();
}

CaseResult check_answers(const Golden& golden) {
  Comparison comparison;
  for (const Json& pair : golden.meta.at("processed")) {
    const std::string got = eval::processed_answer(pair[0].get<std::string>());
    comparison.holds(pair.dump(), got == pair[1], "becomes '" + printable(got) + "'");
  }
  std::map<std::string, std::pair<double, int64_t>> sums;
  for (const Json& question : golden.meta.at("questions")) {
    const auto answers = question.at("answers").get<std::vector<std::string>>();
    const double got = eval::vqa_accuracy(question.at("answer").get<std::string>(), answers);
    const double want = question.at("accuracy").get<double>();
    comparison.holds(question.dump(), std::abs(got - want) <= 1e-12, text("accuracy ", got));
    for (const std::string& group : {std::string("overall"), question.at("answer_type").get<std::string>()}) {
      sums[group].first += got;
      ++sums[group].second;
    }
  }
  for (const auto& [group, wanted] : golden.config().at("accuracy").items()) {
    const auto& [sum, count] = sums[group];
    const double got = sum / static_cast<double>(count);
    comparison.holds(group, std::abs(got - wanted.get<double>()) <= 1e-12, text("accuracy ", got));
  }
  return comparison.result();
}

const Registered registered({
    {"prompts", check_prompts, {"components/llava_prompts"}},
    {"answers", check_answers, {"components/metric_vqa"}},
});

}  // namespace
}  // namespace tessera::parity::prompt_cases
