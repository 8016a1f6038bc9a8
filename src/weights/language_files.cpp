#include "weights/language_files.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "models/language/bert.h"
#include "nn/init.h"
#include "weights/load_tensors.h"
#include "weights/name_tables.h"
#include "weights/published_folder.h"

namespace tessera::train {
Value read_language_config(const std::string& path) {
  return read_published_json(
      path, {"task_specific_params", "label2id", "id2label", "quantization_config", "auto_map"});
}

std::string word_in(const Value& tree, const char* key) {
  const Value* found = tree.find(key);
  return found && found->is_string() ? found->as_string() : "";
}

int64_t number_in(const Value& tree, const char* key, int64_t otherwise) {
  const Value* found = tree.find(key);
  return found && found->is_int() ? found->as_int() : otherwise;
}

double real_in(const Value& tree, const char* key, double otherwise) {
  const Value* found = tree.find(key);
  return found && found->is_number() ? found->as_double() : otherwise;
}

std::vector<NamePlace> language_places(const std::vector<std::string>& names, const std::string& family,
                                       const std::string& embedding) {
  std::vector<std::string> bare;
  for (const std::string& name : names) bare.push_back(without_wrappers(name));
  std::vector<NamePlace> places;
  std::vector<std::vector<NamePlace>> each = names_of_family(family).each(bare);
  for (size_t i = 0; i < names.size(); ++i)
    for (NamePlace& place : each[i]) {
      place.theirs = names[i];
      places.push_back(std::move(place));
    }
  constexpr std::string_view kHead = "lm_head.weight";
  for (NamePlace& place : places)
    if (!embedding.empty() && place.ours.ends_with(kHead)) {
      place.ours.replace(place.ours.size() - kHead.size(), kHead.size(), embedding);
      place.known = place.older = true;
    }
  return places;
}

std::vector<NamePlace> decoder_places(const std::vector<std::string>& names,
                                      const models::LanguageModel& model) {
  return language_places(names, "decoder", model.config().tied ? model.embedding_name() : "");
}

std::string decoder_name(const std::string& theirs, const models::LanguageModel& model) {
  return decoder_places({theirs}, model).front().ours;
}

void load_language(torch::nn::Module& module, const WeightFile& file, const std::vector<NamePlace>& places,
                   std::vector<std::string>& notes, const std::function<bool(const std::string&)>& there,
                   const std::string& misfit) {
  NamedTensors targets;
  for (const auto& entry : module.named_parameters()) targets.emplace_back(entry.key(), entry.value());
  const LoadedTensors loaded =
      load_tensors(targets, {file.tensors(), places, file.path()},
                   {.misfit = misfit, .surplus = true, .reshape = true, .may_miss = there}, &file);
  if (!loaded.surplus.empty())
    notes.push_back(text("not used: ", counted(std::ssize(loaded.surplus), "tensor"), " (",
                         some_of(loaded.surplus, 4, 100), ")"));
}

void begin_bert(models::Bert& bert, const WeightFile& file, const std::string& key) {
  std::vector<std::string> names, notes;
  for (const TensorView& tensor : file.tensors()) names.push_back(tensor.name);
  const auto head = [](const std::string& name) {
    return name.starts_with("cls.") || name.starts_with("classifier.") || name.starts_with("bert.pooler.");
  };
  std::vector<NamePlace> places = language_places(names, "bert", "");
  const auto parameters = bert.named_parameters();
  const torch::Tensor* classes = parameters.find("classifier.weight");
  for (size_t i = 0; classes && i < places.size();
       ++i)  // a head for another number of classes stays as drawn
    if (const auto& shape = file.tensors()[i].shape;
        places[i].ours.starts_with("classifier.") && !shape.empty() && shape[0] != classes->size(0))
      places[i].ours.clear();
  load_language(bert, file, places, notes, head, text("does not fit ", key));
}

std::vector<int64_t> end_tokens_of(const std::string& folder, const Value& config, int64_t vocabulary) {
  const std::string file = (std::filesystem::path(folder) / "generation_config.json").string();
  const Value generation = file_exists(file) ? read_language_config(file) : Value(Value::Table());
  const Value* named = generation.find("eos_token_id");
  if (!named) named = config.find("eos_token_id");
  std::vector<int64_t> ends;
  const auto add = [&](const Value& id) {
    if (id.is_int() && id.as_int() >= 0 && id.as_int() < vocabulary) ends.push_back(id.as_int());
  };
  if (named && named->is_array())
    std::ranges::for_each(named->as_array(), add);
  else if (named)
    add(*named);
  return ends;
}

}  // namespace tessera::train
