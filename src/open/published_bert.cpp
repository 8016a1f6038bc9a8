// BERT with a head for classes of texts, as transformers saves it.
#include <algorithm>
#include <filesystem>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "models/base/family.h"
#include "models/language/bert.h"
#include "open/published_pair.h"
#include "tasks/base/registry.h"
#include "text/tokeniser.h"
#include "weights/language_files.h"

namespace tessera::train {
namespace {

constexpr const char* kClass = "BertForSequenceClassification";

// Returns the names of `id2label` in the order of their numbers; none if they are the numbers ("LABEL_0").
std::vector<std::string> names_in(const Value& config, int64_t classes, const std::string& where) {
  const Value* list = config.find("id2label");
  if (!list || !list->is_table() || list->as_table().empty()) return {};
  std::vector<std::string> names(static_cast<size_t>(classes));
  bool named = false;
  for (const auto& [number, name] : list->as_table()) {
    const auto place = parse_int(number);
    if (!place || *place < 0 || *place >= classes || !name.is_string())
      fail_usage(where, ": id2label has ", printable(number), ", the head has ", classes, " classes");
    names[static_cast<size_t>(*place)] = name.as_string();
    named = named || name.as_string() != text("LABEL_", *place);
  }
  if (std::ranges::count(names, "") > 0)
    fail_usage(where, ": id2label does not name all ", classes, " classes");
  return named ? names : std::vector<std::string>();
}

int64_t classes_in(const WeightFile& file) {
  for (const TensorView& tensor : file.tensors())
    if (tensor.name.ends_with("classifier.weight") && tensor.shape.size() == 2) return tensor.shape[0];
  fail("'", file.path(), "' has no classifier.weight, must be a ", kClass);
}

}  // namespace

bool is_bert_classifier(PublishedFolder& folder) {
  const Value config = folder.read({"config.json"});
  const Value* names = config.find("architectures");
  return names && names->is_array() && !names->as_array().empty() && names->as_array()[0] == Value(kClass);
}

WeightsInfo describe_bert_classifier(const WeightFile& file, PublishedFolder& folder) {
  const std::string where = folder.find({"config.json"});
  const Value config = folder.read({"config.json"});
  const int64_t classes = classes_in(file);
  const std::string problem = word_in(config, "problem_type");
  if (classes < 2 || !(problem.empty() || problem == "single_label_classification"))
    fail_usage(where, ": ",
               problem.empty() ? "one class is a regression" : "problem_type is " + printable(problem),
               ", must be single_label_classification");
  const std::string tokenizer = folder.find({"tokenizer.json"});
  if (tokenizer.empty())
    fail_usage("'", file.path(),
               "' has no tokenizer.json next to it: AutoTokenizer.from_pretrained(NAME)"
               ".save_pretrained(FOLDER) writes it");
  for (const char* read : {"vocab.txt", "tokenizer_config.json", "special_tokens_map.json"})
    folder.find({read});
  const models::BertConfig encoder = models::bert_config_of(config, where);
  WeightsInfo info;
  info.model = models::resolve_model(models::kNoBackbone);
  info.task.set("name", "bert");
  info.task.set("goal", "classes");
  info.task.set("tokenizer", tokenizer);
  info.task.set("length", encoder.context);
  info.task.set("encoder", write_config(encoder));
  info.task = tasks::resolve_task(info.task);
  info.task_metadata.set("tokenizer", Tokeniser::load(tokenizer).definition());
  const std::vector<std::string> names = names_in(config, classes, where);
  if (!names.empty()) info.task_metadata.set("class_names", Value::Array(names.begin(), names.end()));
  info.task_metadata.set("classes", classes);
  return info;
}

void load_bert_classifier(tasks::Task& task, const WeightFile& file, std::vector<std::string>& notes) {
  std::vector<std::string> names;
  for (const TensorView& tensor : file.tensors()) names.push_back(tensor.name);
  const int64_t classes = classes_in(file);
  torch::nn::Module& model = *task.parts().at(0).module;
  if (const torch::Tensor* head = model.named_parameters().find("classifier.weight");
      head && head->size(0) != classes)
    fail_usage("'", file.path(), "' has ", classes, " classes without names, the data have ", head->size(0));
  load_language(model, file, language_places(names, "bert", ""), notes);
}

}  // namespace tessera::train
